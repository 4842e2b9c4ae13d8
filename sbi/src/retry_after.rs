//! The header `Retry-After`.

use std::time::Duration;

use jiff::Timestamp;

/// The wait that the value of a header `Retry-After` asks for: seconds, or a date (RFC 9110, section 10.2.3). `None`: it
/// is neither.
pub fn retry_after(text: &str, now: Timestamp) -> Option<Duration> {
    let text = text.trim();
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let at = jiff::fmt::rfc2822::parse(text).ok()?.timestamp();
    Some(Duration::try_from(at.duration_since(now)).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        let now: Timestamp = "2026-01-02T03:04:05Z".parse().unwrap();
        for (text, seconds) in [
            ("120", Some(120)),
            ("Fri, 02 Jan 2026 03:05:05 GMT", Some(60)),
            ("Fri, 02 Jan 2026 03:03:05 GMT", Some(0)),
            ("soon", None),
        ] {
            assert_eq!(retry_after(text, now), seconds.map(Duration::from_secs), "{text}");
        }
    }
}
