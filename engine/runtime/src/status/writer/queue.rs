//! The pending work on one object. Pure: the time is an argument.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use eno_core::{Key, Kind, Name, Status};
use eno_queue::Backoff;
use eno_schemas::Phase;

use super::allowance::Allowance;
use crate::status::convert::{content, is_transient};
use crate::watch::objects::StoredObject;

/// Delay of the status for a transient phase, or for a change without a phase.
const STATUS_DELAY: Duration = Duration::from_secs(1);
/// Further delay of a transient phase while the writer is busy.
const EXTRA_STATUS_DELAY: Duration = Duration::from_millis(250);
/// Delay of the first status of a service. It is usually attached right after its creation.
const FIRST_STATUS_DELAY: Duration = Duration::from_millis(30);
const FIRST_BACKOFF: Duration = Duration::from_millis(200);
const MAX_BACKOFF: Duration = Duration::from_secs(30);
const MAX_OUTBOX_BACKOFF: Duration = Duration::from_secs(5);
/// Delays after failed writes to the API server. They need no jitter: the limit on concurrent writes spreads them.
const BACKOFF: Backoff = Backoff::new(FIRST_BACKOFF, MAX_BACKOFF);
/// Delays after failed writes to the outbox. NATS refuses at once while a stream has no leader, so there are many
/// failures in an election. The object goes on soon after it.
const OUTBOX_BACKOFF: Backoff = Backoff::new(FIRST_BACKOFF, MAX_OUTBOX_BACKOFF);

/// A change of one object.
#[derive(Debug)]
pub struct Job {
    /// The object.
    pub key: Key,
    /// The change.
    pub change: Change,
}

/// A change to write.
#[derive(Debug)]
pub enum Change {
    /// Add the finalizer to the object of this uid.
    AddFinalizer(Name),
    /// The phase changed: write to outbox and status.
    Transition {
        /// The phase before.
        previous: Option<Phase>,
        /// The new status.
        status: Arc<Status>,
        /// The object.
        object: Arc<StoredObject>,
        /// Time, RFC 3339.
        at: Arc<str>,
    },
    /// The outbox lost the last transition: publish it again.
    RepeatTransition {
        /// The status after that transition.
        status: Arc<Status>,
        /// The object.
        object: Arc<StoredObject>,
        /// Time, RFC 3339.
        at: Arc<str>,
    },
    /// The status of the object of this uid changed.
    Status(Arc<Status>, Name),
    /// Remove the finalizer.
    RemoveFinalizer(Removal),
    /// The status on the API server at the first sight of the object.
    StatusKnown(WrittenStatus),
    /// The object of this uid has the condition `Recorded` at its first sight.
    UnrecordedKnown(Name),
    /// A status was observed on the API server; it may be overwritten already.
    StatusObserved {
        /// The observed status.
        found: WrittenStatus,
        /// Uid of the object.
        uid: Name,
        /// The desired status.
        status: Arc<Status>,
    },
    /// The object was deleted.
    Gone,
}

/// A status on the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrittenStatus {
    /// Hash from [`content`].
    pub content: u64,
    /// Resource version of the object with it.
    pub version: u64,
}

/// The finalizer's position in the list, as last observed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Removal {
    /// `None`: it has to be looked up.
    pub index: Option<usize>,
}

/// An outbox entry to write.
#[derive(Clone, Debug)]
pub struct Entry {
    pub previous: Option<Phase>,
    pub status: Arc<Status>,
    pub object: Arc<StoredObject>,
    pub at: Arc<str>,
    /// It was published before.
    pub is_repeat: bool,
}

/// One round of work; completed parts are removed from it.
#[derive(Debug, Default)]
pub struct Todo {
    /// Uid of the object.
    pub uid: Option<Name>,
    /// Add the finalizer.
    pub add: bool,
    /// Outbox entries, in order.
    pub entries: VecDeque<Entry>,
    /// The status to write.
    pub status: Option<Arc<Status>>,
    /// The finalizer to remove.
    pub remove: Option<Removal>,
    /// The last sequence of the object's subject in the outbox.
    pub sequence: u64,
    /// What the object may add to the outbox.
    pub allowance: Allowance,
    /// The object has the condition `Recorded`: NATS refused an entry.
    pub is_unrecorded: bool,
    /// The last written status.
    pub written: Option<WrittenStatus>,
    /// [`Status::leased`] after this round, if it is higher than reported before.
    pub leased: Option<u64>,
    /// The highest number reported to the core.
    pub leased_reported: u64,
}

impl Todo {
    fn is_empty(&self) -> bool {
        !self.add
            && self.entries.is_empty()
            && self.status.is_none()
            && self.remove.is_none()
            && !self.is_unrecorded
    }
}

/// Why a round did not complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failed {
    /// NATS did not take an outbox entry. A retry may help.
    Outbox,
    /// The API server did not take a write. A retry may help.
    Write,
    /// A retry does not help.
    ForGood,
}

/// The next step for an object.
#[derive(Debug)]
pub enum Next {
    Work(Box<Todo>),
    Wait(Instant),
    /// The status has to wait in the low-priority queue.
    LowPriority,
    Nothing,
}

/// A delayed status.
#[derive(Clone, Copy, Debug)]
struct Delay {
    until: Instant,
    urgency: Urgency,
}

/// How long a status may wait in addition while the writer is busy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Urgency {
    /// Not at all.
    Immediate,
    /// While there is more urgent work: the phase may pass.
    Transient,
    /// Also until its turn among others: it changes no phase, and the object is not in error.
    LowPriority,
    /// It waits in the low-priority queue.
    Queued,
}

impl Urgency {
    fn waits_for_turn(self) -> bool {
        matches!(self, Self::LowPriority | Self::Queued)
    }
}

/// The pending work on one object.
#[derive(Debug)]
pub struct Queue {
    /// Kind of the object.
    kind: Kind,
    /// The work of the next round.
    todo: Todo,
    /// [`Status::leased`] of the last status given to a round.
    leased_given: u64,
    /// Delays the status in favour of a later one.
    delay: Option<Delay>,
    /// Delays the first status to combine it with the next one.
    delays_first_status: bool,
    /// Status that was observed during a round, with the desired one.
    observed: Option<(WrittenStatus, Arc<Status>)>,
    /// No attempt is made before this time, after a failure.
    retry_at: Option<Instant>,
    /// Number of successive failures.
    failures: u32,
    /// A round is in progress.
    running: bool,
    /// The object is deleted.
    gone: bool,
}

impl Queue {
    /// `sequence`: the last one of its subject in the outbox.
    pub fn new(key: &Key, sequence: u64) -> Self {
        let todo = Todo { sequence, ..Todo::default() };
        Self {
            kind: key.kind,
            todo,
            leased_given: 0,
            delay: None,
            delays_first_status: key.kind == Kind::L2Service,
            observed: None,
            retry_at: None,
            failures: 0,
            running: false,
            gone: false,
        }
    }

    /// Adds a change.
    pub fn add(&mut self, change: Change, now: Instant) {
        if !matches!(change, Change::Gone) {
            self.gone = false;
        }
        match change {
            Change::AddFinalizer(uid) => {
                self.todo.uid = Some(uid);
                self.todo.add = true;
            }
            Change::Transition { previous, status, object, at } => {
                let (hold, urgency) = match status.phase {
                    phase if is_transient(phase) => (STATUS_DELAY, Urgency::Transient),
                    Some(Phase::Ready) if self.delays_first_status => {
                        (FIRST_STATUS_DELAY, Urgency::Immediate)
                    }
                    _ => (Duration::ZERO, Urgency::Immediate),
                };
                self.status(status.clone(), object.uid.clone(), now, hold, urgency);
                self.todo.entries.push_back(Entry { previous, status, object, at, is_repeat: false });
            }
            Change::RepeatTransition { status, object, at } => {
                self.todo.entries.push_back(Entry { previous: None, status, object, at, is_repeat: true });
            }
            Change::Status(status, uid) => {
                // The pending status includes this one. A stalled error waits for no turn.
                let urgency = match self.delay {
                    _ if self.todo.status.is_none() && status.phase == Some(Phase::Error) => {
                        Urgency::Immediate
                    }
                    _ if self.todo.status.is_none() => Urgency::LowPriority,
                    Some(delay) => delay.urgency,
                    None => Urgency::Immediate,
                };
                self.status(status, uid, now, STATUS_DELAY, urgency);
            }
            Change::RemoveFinalizer(removal) => self.todo.remove = Some(removal),
            Change::StatusKnown(written) => self.todo.written = Some(written),
            Change::UnrecordedKnown(uid) => {
                self.todo.uid = Some(uid);
                self.todo.is_unrecorded = true;
            }
            Change::StatusObserved { found, uid, status } => {
                let other = self.todo.uid.as_ref().is_some_and(|known| *known != uid);
                if self.running && !other {
                    self.observed = Some((found, status));
                } else if !other {
                    self.status_observed(found, uid, status, now);
                }
            }
            Change::Gone => {
                // The remaining entries are still published.
                self.gone = true;
                self.todo.add = false;
                self.todo.status = None;
                self.todo.remove = None;
                self.todo.is_unrecorded = false;
                self.delay = None;
            }
        }
    }

    /// Overwrites a different status that is newer than the last written one: a former leader had its write in flight.
    fn status_observed(&mut self, found: WrittenStatus, uid: Name, status: Arc<Status>, now: Instant) {
        let Some(written) = self.todo.written else { return };
        if self.gone || found.version <= written.version || found.content == written.content {
            return;
        }
        self.todo.written = Some(found);
        if self.todo.status.is_none() && self.todo.remove.is_none() {
            self.status(status, uid, now, Duration::ZERO, Urgency::Immediate);
        }
    }

    fn status(&mut self, status: Arc<Status>, uid: Name, now: Instant, hold: Duration, urgency: Urgency) {
        if self.todo.uid.as_ref() != Some(&uid) {
            if self.todo.uid.is_some() {
                self.todo.written = None;
                self.todo.leased_reported = 0;
                self.leased_given = 0;
            }
            self.todo.uid = Some(uid);
        }
        // A pod waits until its addresses are stored.
        let (hold, urgency) = if status.leased > self.leased_given {
            (Duration::ZERO, Urgency::Immediate)
        } else {
            (hold, urgency)
        };
        // The delay counts from the first status that is not written; an urgent status ends it.
        let until = now + hold;
        self.delay = Some(match self.delay {
            Some(delay) if urgency == Urgency::Queued => delay,
            Some(delay) if urgency == delay.urgency => Delay { until: delay.until.min(until), urgency },
            _ => Delay { until, urgency },
        });
        // A deleted object goes away without a final status.
        self.todo.status = (status.phase != Some(Phase::Deleted)).then_some(status);
    }

    /// Returns the next step. `busy`: there is more urgent work; `is_turn`: the object is first in the low-priority
    /// queue.
    pub fn next(&mut self, now: Instant, busy: bool, is_turn: bool) -> Next {
        if self.running || self.todo.is_empty() {
            return Next::Nothing;
        }
        if let Some(retry_at) = self.retry_at.filter(|retry_at| *retry_at > now) {
            return Next::Wait(retry_at);
        }
        if self.todo.remove.is_some() {
            self.todo.status = None;
            self.delay = None;
        }
        if let Some(delay) = &mut self.delay
            && delay.until <= now
            && delay.urgency == Urgency::Transient
            && busy
        {
            delay.until = now + EXTRA_STATUS_DELAY;
        }
        let delay =
            self.delay.filter(|delay| delay.until > now || (delay.urgency.waits_for_turn() && !is_turn));
        let mut todo = Todo {
            uid: self.todo.uid.clone(),
            add: std::mem::take(&mut self.todo.add),
            entries: std::mem::take(&mut self.todo.entries),
            status: None,
            remove: self.todo.remove.take(),
            sequence: self.todo.sequence,
            allowance: self.todo.allowance.clone(),
            is_unrecorded: self.todo.is_unrecorded,
            written: self.todo.written,
            leased: None,
            leased_reported: self.todo.leased_reported,
        };
        if delay.is_none() {
            self.delay = None;
            if let Some(status) = self.todo.status.take() {
                todo.leased = Some(status.leased).filter(|leased| *leased > self.todo.leased_reported);
                self.leased_given = self.leased_given.max(status.leased);
                let content = content(self.kind, &status);
                let written = self.todo.written.is_some_and(|written| written.content == content);
                todo.status = Some(status).filter(|_| !written || todo.leased.is_some());
            }
        }
        if !todo.is_empty() {
            self.running = true;
            return Next::Work(Box::new(todo));
        }
        match &mut self.delay {
            Some(delay) if self.todo.status.is_some() && delay.until > now => Next::Wait(delay.until),
            Some(delay) if self.todo.status.is_some() && delay.urgency == Urgency::LowPriority => {
                delay.urgency = Urgency::Queued;
                Next::LowPriority
            }
            _ => Next::Nothing,
        }
    }

    /// True while the status waits in the low-priority queue.
    pub fn is_queued_low_priority(&self) -> bool {
        self.delay.is_some_and(|delay| delay.urgency == Urgency::Queued)
    }

    /// A round ended. `failed`: it did not complete.
    pub fn finished(&mut self, left: Todo, failed: Option<Failed>, now: Instant) {
        self.running = false;
        self.todo.sequence = left.sequence;
        self.todo.allowance = left.allowance;
        if self.todo.uid == left.uid {
            self.todo.is_unrecorded = left.is_unrecorded && !self.gone;
            self.todo.written = left.written;
            self.todo.leased_reported = left.leased_reported;
        }
        match failed {
            None => {
                self.failures = 0;
                self.retry_at = None;
            }
            Some(failed) => {
                self.failures = self.failures.saturating_add(1);
                let backoff = if failed == Failed::Outbox { OUTBOX_BACKOFF } else { BACKOFF };
                self.retry_at = Some(now + backoff.delay(self.failures, 0.0));
                self.leased_given = self.todo.leased_reported;
                if failed != Failed::ForGood && !(self.gone && left.entries.is_empty()) {
                    let mut entries = left.entries;
                    entries.append(&mut self.todo.entries);
                    self.todo.entries = entries;
                    if !self.gone {
                        self.todo.add |= left.add;
                        self.todo.status = self.todo.status.take().or(left.status);
                        self.todo.remove = self.todo.remove.or(left.remove);
                    }
                }
            }
        }
        if let (Some((found, status)), Some(uid)) = (self.observed.take(), self.todo.uid.clone()) {
            self.status_observed(found, uid, status, now);
        }
    }

    /// True when no work is left on a deleted object.
    pub fn gone(&self) -> bool {
        self.gone && !self.running && self.todo.is_empty()
    }

    /// The last sequence of its subject in the outbox.
    pub fn sequence(&self) -> u64 {
        self.todo.sequence
    }
}

#[cfg(test)]
mod tests;
