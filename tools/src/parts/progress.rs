//! What is told to people while a part is got, which can take minutes.

use std::io::{IsTerminal, Write};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::Part;

/// One step on the way to a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event<'a> {
    /// An installed one won't do.
    PassedOver {
        /// Which.
        part: Part,
        /// Why, for people.
        why: &'a str,
    },
    /// Another process is at it.
    Waiting {
        /// Which.
        part: Part,
    },
    /// A prebuilt one is asked for.
    Downloading {
        /// Which.
        part: Part,
    },
    /// The build began.
    Building {
        /// Which.
        part: Part,
        /// The pinned version, `v1.36.3`.
        version: &'a str,
    },
    /// A package was compiled or a module downloaded.
    Step {
        /// Which.
        part: Part,
        /// Packages so far.
        packages: usize,
        /// The build's own line.
        line: &'a str,
    },
    /// It is in the cache.
    Done {
        /// Which.
        part: Part,
        /// How long it took.
        took: Duration,
    },
}

/// Takes the events; called from any thread.
pub trait Progress: Send + Sync {
    /// One event.
    fn report(&self, event: Event<'_>);
}

/// Says nothing.
#[derive(Debug, Default)]
pub struct Silent;

impl Progress for Silent {
    fn report(&self, _: Event<'_>) {}
}

/// Writes to standard error: one line that changes on a terminal, else a line now and then.
#[derive(Debug, Default)]
pub struct StderrProgress {
    last_step: Mutex<Option<Instant>>,
}

/// Between two lines about a build, where lines stay.
const QUIET: Duration = Duration::from_secs(15);

impl Progress for StderrProgress {
    fn report(&self, event: Event<'_>) {
        let mut stderr = std::io::stderr().lock();
        let terminal = stderr.is_terminal();
        let clear = if terminal { "\r\x1b[K" } else { "" };
        // Nobody is left to tell when standard error is closed.
        let _ = match event {
            Event::PassedOver { part, why } => writeln!(stderr, "{clear}{part}: {why}"),
            Event::Waiting { part } => {
                writeln!(stderr, "{clear}{part}: waiting for another process that gets it")
            }
            Event::Downloading { part } => writeln!(stderr, "{clear}{part}: asking for a prebuilt one"),
            Event::Building { part, version } => {
                writeln!(stderr, "{clear}{part} {version}: building; this is done once and can take minutes")
            }
            Event::Step { part, packages, line } if terminal => {
                let line: String = line.chars().take(60).collect();
                write!(stderr, "{clear}{part}: {packages} packages, {line}").and_then(|()| stderr.flush())
            }
            Event::Step { part, packages, line } => {
                let mut last = self.last_step.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                if last.is_some_and(|at| at.elapsed() < QUIET) {
                    return;
                }
                *last = Some(Instant::now());
                writeln!(stderr, "{part}: {packages} packages, {line}")
            }
            Event::Done { part, took } => writeln!(stderr, "{clear}{part}: got it in {} s", took.as_secs()),
        };
    }
}
