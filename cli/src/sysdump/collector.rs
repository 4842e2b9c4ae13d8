//! Takes what is read into a dump, and notes what can't be read.

use std::cell::RefCell;
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use jiff::Timestamp;
use tokio::time::Instant;

use super::archive::{Entry, Writer};
use super::{FORMAT, Index, IndexedFile, LeftOut, NotRead, VERSION};

/// How long one thing is waited for, so that it does not use the time of all others.
const PART_TIMEOUT: Duration = Duration::from_secs(20);

/// How much is read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// How long the whole dump may take.
    pub timeout: Duration,
    /// Only newer logs and Events.
    pub since: Option<Duration>,
    /// The lines of each log.
    pub log_lines: u32,
}

/// A dump that is being made. All parts of the program write to it in turn.
pub(crate) struct Collector {
    pub(super) limits: Limits,
    pub(super) made_at: Timestamp,
    deadline: Instant,
    writer: RefCell<Writer>,
    left_out: RefCell<Vec<LeftOut>>,
    not_read: RefCell<Vec<NotRead>>,
}

/// What became of a dump.
#[derive(Debug)]
pub(crate) struct Made {
    /// The size of the file; `None`: nothing could be read, and there is no file.
    pub size: Option<u64>,
    /// Its files.
    pub files: Vec<IndexedFile>,
    /// What could not be read.
    pub not_read: Vec<NotRead>,
}

impl Collector {
    /// Begins a dump.
    pub(crate) fn new(limits: Limits) -> anyhow::Result<Self> {
        Ok(Self {
            limits,
            made_at: Timestamp::now(),
            deadline: Instant::now() + limits.timeout,
            writer: RefCell::new(Writer::new().context("creating a temporary file")?),
            left_out: RefCell::default(),
            not_read: RefCell::default(),
        })
    }

    /// When the reading began.
    pub(crate) fn made_at(&self) -> Timestamp {
        self.made_at
    }

    /// Does a part of the work. A failure, or an end of its time, is noted; then `None` is returned.
    pub(super) async fn part<T, E: Into<anyhow::Error>>(
        &self,
        what: &str,
        work: impl Future<Output = Result<T, E>>,
    ) -> Option<T> {
        self.part_within(PART_TIMEOUT, what, work).await
    }

    /// Does a part of the work that reads much: it may take half of the whole time.
    pub(super) async fn long_part<T, E: Into<anyhow::Error>>(
        &self,
        what: &str,
        work: impl Future<Output = Result<T, E>>,
    ) -> Option<T> {
        self.part_within(PART_TIMEOUT.max(self.limits.timeout / 2), what, work).await
    }

    async fn part_within<T, E: Into<anyhow::Error>>(
        &self,
        time: Duration,
        what: &str,
        work: impl Future<Output = Result<T, E>>,
    ) -> Option<T> {
        let until = self.deadline.min(Instant::now() + time);
        match tokio::time::timeout_at(until, work).await {
            Ok(Ok(done)) => return Some(done),
            Ok(Err(error)) => self.not_read(what, with_causes(&error.into())),
            Err(_) if until == self.deadline => {
                self.not_read(what, format!("the time of {} s was over", self.limits.timeout.as_secs()));
            }
            Err(_) => self.not_read(what, format!("no answer within {} s", time.as_secs())),
        }
        None
    }

    /// Notes that something could not be read.
    pub(crate) fn not_read(&self, what: &str, reason: impl Into<String>) {
        let reason = super::redact::Redactor::default().text(&reason.into());
        self.not_read.borrow_mut().push(NotRead { what: what.to_owned(), reason });
    }

    /// Notes that a part of the cluster's state is not known.
    pub(super) fn left_out(&self, left_out: LeftOut) {
        self.left_out.borrow_mut().push(left_out);
    }

    /// Adds a file. A part of it that did not fit is noted.
    pub(super) fn add(&self, what: &str, entry: Entry) {
        if !entry.has_room() {
            self.not_read(what, "it is too long: its end was cut off");
        }
        let added = self.writer.borrow_mut().add(entry);
        match added {
            Ok(true) => {}
            Ok(false) => self.not_read(what, "the dump has no room for it"),
            Err(error) => self.not_read(what, format!("writing it to a temporary file: {error}")),
        }
    }

    /// Writes the file, unless nothing was read.
    pub(crate) fn finish(self, namespace: Option<String>, file: &Path) -> anyhow::Result<Made> {
        let Self { made_at, writer, left_out, not_read, .. } = self;
        let (writer, not_read) = (writer.into_inner(), not_read.into_inner());
        let files = writer.files().to_vec();
        if files.is_empty() {
            return Ok(Made { size: None, files, not_read });
        }
        let index = Index {
            format: FORMAT,
            eno: VERSION.to_owned(),
            made_at,
            namespace,
            files: files.clone(),
            left_out: left_out.into_inner(),
            not_read: not_read.clone(),
            redacted: writer.redacted().to_vec(),
        };
        let size = writer.finish(&index, file).with_context(|| format!("writing {}", file.display()))?;
        Ok(Made { size: Some(size), files, not_read })
    }
}

/// An error with its causes. Some errors have the text of their cause in their own.
pub(crate) fn with_causes(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if text.is_empty() {
            text = cause;
        } else if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}
