//! Output of the demo: lines and tables, with colours on a terminal only.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use comfy_table::Table;
use eno::screen::{bordered_table, has_colours};

use super::objects::State;
use crate::receiver::Callback;

const BOLD: &str = "\x1b[1m";
const PLAIN: &str = "\x1b[0m";

pub(super) struct Screen {
    colours: bool,
}

impl Screen {
    pub(super) fn new() -> Self {
        Self { colours: has_colours() }
    }

    pub(super) fn title(&self, text: &str) {
        if self.colours { eno::outln!("\n{BOLD}{text}{PLAIN}") } else { eno::outln!("\n{text}") }
    }

    pub(super) fn change(&self, after: Duration, object: &str, state: &State) {
        let phase = if state.phase().is_empty() { "applied" } else { state.phase() };
        let (colour, plain) = if self.colours { (colour(phase), PLAIN) } else { ("", "") };
        let message = match state {
            State::Present { message, .. } if phase != "ready" => message.as_str(),
            _ => "",
        };
        let line =
            format!("  {:6.2} s  {object:<40} {colour}{phase:<11}{plain} {message}", after.as_secs_f64());
        eno::outln!("{}", line.trim_end());
    }
}

pub(super) fn line(text: &str) {
    eno::outln!("  {text}");
}

fn colour(phase: &str) -> &'static str {
    match phase {
        "ready" => "\x1b[32m",
        "error" => "\x1b[31m",
        "gone" => "\x1b[2m",
        _ => "\x1b[33m",
    }
}

/// `Kind name is phase: message`
pub(super) fn sentence(object: &str, state: &State) -> String {
    match state {
        State::Present { phase, message } if phase.is_empty() => {
            format!("{object} has no phase yet{message}")
        }
        State::Present { phase, message } => format!("{object} is {phase}: {message}"),
        State::Gone => format!("{object} is not there"),
    }
}

/// A table of callbacks by kind and phase, with their count and the time of the last one.
pub(super) fn callbacks(callbacks: &[&Callback], since: Instant) -> Table {
    let mut rows: BTreeMap<(&str, &str), (usize, Duration)> = BTreeMap::new();
    for callback in callbacks {
        let kind = callback.object.split(' ').next().unwrap_or_default();
        let row = rows.entry((kind, &callback.phase)).or_default();
        row.0 += 1;
        row.1 = row.1.max(callback.at.duration_since(since));
    }
    let mut table = bordered_table(&["kind", "phase", "callbacks", "the last after"]);
    for ((kind, phase), (count, last)) in rows {
        table.add_row([kind, phase, &count.to_string(), &format!("{:.2} s", last.as_secs_f64())]);
    }
    table
}
