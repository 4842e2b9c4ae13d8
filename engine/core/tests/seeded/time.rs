//! The time of the simulated cluster, since its beginning. Its text is sorted as the time is.

use std::time::Duration;

/// A time as RFC 3339.
pub fn at(time: Duration) -> String {
    let (seconds, milliseconds) = (time.as_secs(), time.subsec_millis());
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    let (day, hour, minute, second) = (1 + hours / 24, hours % 24, minutes % 60, seconds % 60);
    format!("2026-01-{day:02}T{hour:02}:{minute:02}:{second:02}.{milliseconds:03}Z")
}

/// The time of [`at`].
pub fn parse(text: &str) -> Duration {
    let number = |range: std::ops::Range<usize>| text[range].parse::<u64>().unwrap();
    let (day, hour, minute, second) = (number(8..10), number(11..13), number(14..16), number(17..19));
    let seconds = (((day - 1) * 24 + hour) * 60 + minute) * 60 + second;
    Duration::from_millis(seconds * 1000 + number(20..23))
}

#[test]
fn text_of_a_time_is_read_back() {
    let time = Duration::from_millis(((24 + 3) * 3600 + 4 * 60 + 5) * 1000 + 67);
    assert_eq!(at(time), "2026-01-02T03:04:05.067Z");
    assert_eq!(parse(&at(time)), time);
}
