//! The reports that are stored, of all targets of a driver.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use eno_schemas::{Report, Subject, SubjectKind, decode, subject};

use crate::nats::{Connection, Content, Selection, StoredMessage, for_each_stored, last_stored};

/// The last report of a target.
#[derive(Debug)]
pub(super) struct Stored {
    /// Stream position; 0: none is stored.
    pub position: u64,
    /// `None`: none is stored, or it is unreadable.
    pub report: Option<Report>,
}

impl Stored {
    const NONE: Self = Self { position: 0, report: None };

    fn of(message: &StoredMessage) -> Self {
        let report = match &message.content {
            Content::Payload(payload) => decode(payload).ok(),
            Content::Removed | Content::Foreign(_) => None,
        };
        Self { position: message.sequence, report }
    }
}

/// Reads them all at once where many are needed, as after the start of a driver of thousands of targets. What it read
/// counts once for each target; then that target is read alone.
#[derive(Clone, Debug)]
pub(super) struct StoredReports {
    connection: Connection,
    filter: String,
    state: Arc<Mutex<State>>,
    /// Held while all are read.
    reading: Arc<tokio::sync::Mutex<()>>,
}

#[derive(Debug, Default)]
struct State {
    /// How often everything changed.
    changes: u64,
    /// By subject; `None`: they have to be read.
    reports: Option<HashMap<String, Stored>>,
    /// Subjects that have to be read alone.
    used: HashSet<String>,
}

impl StoredReports {
    /// Of one target or of all targets of a driver.
    pub fn new(connection: Connection, driver: &str, target: Option<&str>) -> Self {
        let filter = match target {
            Some(target) => Subject::result(driver, target).to_string(),
            None => SubjectKind::Result.of_driver(driver),
        };
        Self { connection, filter, state: Arc::default(), reading: Arc::default() }
    }

    /// Another process may have reported on all targets, or the connection was lost.
    pub fn all_changed(&self) {
        let mut state = self.state();
        *state = State { changes: state.changes + 1, ..State::default() };
    }

    /// Another process may have reported on the target.
    pub fn changed(&self, driver: &str, target: &str) {
        self.state().used.insert(Subject::result(driver, target).to_string());
    }

    /// The report of a target. Its position may be outdated: publishing with it finds that out.
    pub async fn read(&self, driver: &str, target: &str) -> Result<Stored, async_nats::Error> {
        let subject = Subject::result(driver, target).to_string();
        if self.state().used.contains(&subject) {
            return self.read_alone(driver, target).await;
        }
        let reading = self.reading.lock().await;
        if self.state().reports.is_none() {
            self.read_all().await?;
        }
        drop(reading);
        match self.take(subject) {
            Some(stored) => Ok(stored),
            None => self.read_alone(driver, target).await,
        }
    }

    /// What was read of a subject; `None`: it has to be read alone.
    fn take(&self, subject: String) -> Option<Stored> {
        let mut state = self.state();
        let found = state.reports.as_mut().map(|reports| reports.remove(&subject).unwrap_or(Stored::NONE));
        let is_first = state.used.insert(subject);
        found.filter(|_| is_first)
    }

    /// Reads the report of one target. The server may lag behind the stream's leader.
    pub async fn read_alone(&self, driver: &str, target: &str) -> Result<Stored, async_nats::Error> {
        let subject = Subject::result(driver, target).to_string();
        let last = last_stored(&self.connection.jetstream, subject::RESULTS, &subject).await?;
        Ok(last.as_ref().map_or(Stored::NONE, Stored::of))
    }

    async fn read_all(&self) -> Result<(), async_nats::Error> {
        let changes = self.state().changes;
        let mut reports = HashMap::new();
        let all = Selection::last(subject::RESULTS, &self.filter);
        for_each_stored(&self.connection.jetstream, all, |message| {
            let stored = Stored::of(&message);
            reports.insert(message.subject, stored);
        })
        .await?;
        let mut state = self.state();
        if state.changes == changes {
            state.reports = Some(reports);
        }
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
