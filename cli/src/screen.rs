//! Standard output: tables that fit the terminal, colours on terminals only, times for people. Its reader may end before
//! the program does, such as `head`.

use std::env;
use std::fmt::Arguments;
use std::io::{ErrorKind, IsTerminal as _, Write as _, stdout};

use comfy_table::presets::{NOTHING, UTF8_BORDERS_ONLY};
use comfy_table::{Cell, Color, ContentArrangement, Row, Table};
use jiff::{SignedDuration, Timestamp, tz::TimeZone};

/// The width of a table with borders where standard output is no terminal, in columns.
const WIDTH: u16 = 100;

/// Prints a line, as `println!` does. The program ends if nobody reads it any more.
#[macro_export]
macro_rules! outln {
    () => { $crate::outln!("") };
    ($($text:tt)*) => { $crate::screen::write(format_args!("{}\n", format_args!($($text)*))) };
}

/// Prints text, as `print!` does. The program ends without an error if nobody reads it any more, and with one if the
/// text can't be written.
pub fn write(text: Arguments<'_>) {
    let mut output = stdout().lock();
    if let Err(error) = output.write_fmt(text).and_then(|()| output.flush()) {
        if error.kind() == ErrorKind::BrokenPipe {
            std::process::exit(0);
        }
        eprintln!("eno: writing to standard output: {error}");
        std::process::exit(1);
    }
}

/// True if standard output is a terminal, and `NO_COLOR` is absent or empty (no-color.org).
pub fn has_colours() -> bool {
    stdout().is_terminal() && env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// A table with borders. It is as wide as the terminal, or at most 100 columns.
pub fn bordered_table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(UTF8_BORDERS_ONLY).set_content_arrangement(ContentArrangement::Dynamic);
    table.set_header(header.iter().copied());
    if !table.is_tty() {
        table.set_width(WIDTH);
    }
    table
}

/// Prints a table without borders, if it has rows. A terminal gets cells in lines; a program gets one line for each row.
pub(crate) fn print_table<const N: usize>(header: [&str; N], rows: impl IntoIterator<Item = [String; N]>) {
    let mut table = Table::new();
    table.load_style(NOTHING).set_header(header);
    let is_tty = table.is_tty();
    table.set_content_arrangement(if is_tty {
        ContentArrangement::Dynamic
    } else {
        ContentArrangement::Disabled
    });
    let colours = has_colours();
    for row in rows {
        table.add_row(Row::from(row.map(|text| {
            let colour = colour(&text).filter(|_| colours);
            // A program reads one line for each row.
            let cell = Cell::new(if is_tty { text } else { text.replace('\n', " ") });
            if let Some(colour) = colour { cell.fg(colour) } else { cell }
        })));
    }
    if table.row_count() > 0 {
        // The last column needs no padding.
        table.to_string().lines().for_each(|line| crate::outln!("{}", line.trim_end()));
        crate::outln!();
    }
}

/// The colour of a cell that is nothing but the word of a phase, a status or a change.
fn colour(text: &str) -> Option<Color> {
    match text {
        "ready" | "configured" | "confirmed" | "True" | "create" | "passed" | "answered" | "isolated" => {
            Some(Color::Green)
        }
        "error" | "refused" | "unreachable" | "False" | "delete" | "lost" | "silent" | "too-big"
        | "leaking" => Some(Color::Red),
        "pending" | "configuring" | "terminating" | "waiting" | "change" | "unasked" => Some(Color::Yellow),
        _ => None,
    }
}

/// The time from `at`, an RFC 3339 time, to `now`, such as `12s`, `5m`, `3h` or `4d`; `at` itself if it is not one.
pub(crate) fn age(at: &str, now: Timestamp) -> String {
    match at.parse::<Timestamp>() {
        Ok(time) => short(now.duration_since(time)),
        Err(_) => at.to_owned(),
    }
}

/// A duration in the largest unit of which there are two.
fn short(duration: SignedDuration) -> String {
    let seconds = duration.as_secs().max(0);
    let (unit, name) = match seconds {
        0..120 => (1, "s"),
        120..7_200 => (60, "m"),
        7_200..172_800 => (3_600, "h"),
        _ => (86_400, "d"),
    };
    format!("{}{name}", seconds / unit)
}

/// An RFC 3339 time in the time zone of this machine, such as `Nov 24 10:12:08.120`; `at` itself if it is not one.
pub(crate) fn local_time(at: &str) -> String {
    match at.parse::<Timestamp>() {
        Ok(time) => time.to_zoned(TimeZone::system()).strftime("%b %d %H:%M:%S%.3f").to_string(),
        Err(_) => at.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_the_largest_fitting_unit() {
        for (seconds, expected) in [
            (-3, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (7_199, "119m"),
            (7_200, "2h"),
            (172_800, "2d"),
        ] {
            assert_eq!(short(SignedDuration::from_secs(seconds)), expected);
        }
    }

    #[test]
    fn text_that_is_no_time_is_kept() {
        assert_eq!((age("now", Timestamp::UNIX_EPOCH), local_time("")), ("now".to_owned(), String::new()));
        assert!(local_time("2026-11-24T10:12:08.12Z").ends_with(":08.120"), "milliseconds are shown");
    }
}
