//! Progress reports while a part is obtained, which can take minutes.

use std::io::{IsTerminal, Write};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// A progress event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event<'a> {
    /// A candidate is not usable.
    Rejected {
        /// Name of the part.
        part: &'a str,
        /// The reason as text.
        why: &'a str,
    },
    /// Another process is obtaining the part.
    Waiting {
        /// Name of the part.
        part: &'a str,
    },
    /// The download of a prebuilt part began.
    Downloading {
        /// Name of the part.
        part: &'a str,
    },
    /// The build began.
    Building {
        /// Name of the part.
        part: &'a str,
        /// The pinned version, `v1.36.3`.
        version: &'a str,
    },
    /// A package was compiled or a module downloaded.
    Step {
        /// Name of the part.
        part: &'a str,
        /// Number of packages so far.
        packages: usize,
        /// The line of the build output.
        line: &'a str,
    },
    /// The part is in the cache.
    Done {
        /// Name of the part.
        part: &'a str,
        /// How long it took.
        took: Duration,
    },
}

/// Writes to standard error: an updated line on a terminal, else occasional lines.
#[derive(Debug, Default)]
pub(crate) struct StderrProgress {
    last_step: Mutex<Option<Instant>>,
}

/// Minimum time between two lines about a build, if not on a terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(15);

impl StderrProgress {
    /// Receives an event, from any thread.
    pub(super) fn report(&self, event: Event<'_>) {
        let mut stderr = std::io::stderr().lock();
        let terminal = stderr.is_terminal();
        let clear = if terminal { "\r\x1b[K" } else { "" };
        // A closed standard error is ignored.
        let _ = match event {
            Event::Rejected { part, why } => writeln!(stderr, "{clear}{part}: {why}"),
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
                if last.is_some_and(|at| at.elapsed() < LINE_INTERVAL) {
                    return;
                }
                *last = Some(Instant::now());
                writeln!(stderr, "{part}: {packages} packages, {line}")
            }
            Event::Done { part, took } => writeln!(stderr, "{clear}{part}: got it in {} s", took.as_secs()),
        };
    }
}
