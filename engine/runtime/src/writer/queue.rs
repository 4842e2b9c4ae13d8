//! What is still to be done about one object. Pure: time comes in.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use eno_core::{Key, Kind, Name, Status};
use eno_schemas::Phase;

use crate::objects::StoredObject;
use crate::status::{content, is_transient};

/// A phase that may pass within a moment, and news that is no change of phase, are kept out of the status for so long,
const STATUS_DELAY: Duration = Duration::from_secs(1);
/// and such a phase for so much longer while there is more urgent work than can be done.
const EXTRA_STATUS_DELAY: Duration = Duration::from_millis(250);
/// A service is attached right after it is made: its first status waits for that to be told with it.
const FIRST_STATUS_DELAY: Duration = Duration::from_millis(30);
const FIRST_BACKOFF: Duration = Duration::from_millis(200);
const MAX_BACKOFF: Duration = Duration::from_secs(30);

/// Something to be done about an object.
#[derive(Debug)]
pub struct Job {
    /// Which.
    pub key: Key,
    /// What.
    pub change: Change,
}

/// What is to be done.
#[derive(Debug)]
pub enum Change {
    /// Put the finalizer on, on the object of this uid.
    AddFinalizer(Name),
    /// The phase changed.
    Transition {
        /// The phase before.
        previous: Option<Phase>,
        /// The status now.
        status: Arc<Status>,
        /// The object.
        object: Arc<StoredObject>,
        /// RFC 3339.
        at: Arc<str>,
    },
    /// The outbox has lost the last phase change.
    RepeatTransition {
        /// What it told.
        status: Arc<Status>,
        /// The object.
        object: Arc<StoredObject>,
        /// RFC 3339.
        at: Arc<str>,
    },
    /// The status changed.
    Status(Arc<Status>, Name),
    /// Take the finalizer off.
    RemoveFinalizer(Removal),
    /// The status that the API server holds.
    StatusKnown(WrittenStatus),
    /// A status was seen on the API server; perhaps one that was overtaken since.
    StatusObserved {
        /// What it says.
        found: WrittenStatus,
        /// Whose.
        uid: Name,
        /// What is to be there.
        status: Arc<Status>,
    },
    /// The object is gone.
    Gone,
}

/// A status as the API server holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrittenStatus {
    /// As [`content`] names it.
    pub content: u64,
    /// The version of the object that has it.
    pub version: u64,
}

/// Where in the list of finalizers ours was last seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Removal {
    /// `None`: it has to be looked for.
    pub index: Option<usize>,
}

/// One entry of the outbox that is still to be written.
#[derive(Clone, Debug)]
pub struct Entry {
    pub previous: Option<Phase>,
    pub status: Arc<Status>,
    pub object: Arc<StoredObject>,
    pub at: Arc<str>,
    /// It was told before.
    pub is_repeat: bool,
}

/// One round of work; what is done is taken out of it.
#[derive(Debug, Default)]
pub struct Todo {
    pub uid: Option<Name>,
    pub add: bool,
    pub entries: VecDeque<Entry>,
    pub status: Option<Arc<Status>>,
    pub remove: Option<Removal>,
    /// The last sequence of the object's subject in the outbox.
    pub sequence: u64,
    /// The status that was written last.
    pub written: Option<WrittenStatus>,
    /// [`Status::leased`] of what is written when this round is over, where that is more than was told before.
    pub leased: Option<u64>,
    /// The highest that was told.
    pub leased_reported: u64,
}

impl Todo {
    fn is_empty(&self) -> bool {
        !self.add && self.entries.is_empty() && self.status.is_none() && self.remove.is_none()
    }
}

/// What to do next about an object.
#[derive(Debug)]
pub enum Next {
    Work(Box<Todo>),
    Wait(Instant),
    /// There is news, which is to stand in line.
    LowPriority,
    Nothing,
}

/// How long a status waits.
#[derive(Clone, Copy, Debug)]
struct Delay {
    until: Instant,
    urgency: Urgency,
}

/// How long a status may wait on top when there is much to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Urgency {
    /// Not at all.
    Immediate,
    /// As long as there is more urgent work: it may pass by itself.
    Transient,
    /// As well for its turn among its like: it changes no phase, and the object is not in error.
    LowPriority,
    /// It is in line for that turn.
    Queued,
}

impl Urgency {
    fn waits_for_turn(self) -> bool {
        matches!(self, Self::LowPriority | Self::Queued)
    }
}

/// What is to be done about one object.
#[derive(Debug)]
pub struct Queue {
    kind: Kind,
    todo: Todo,
    /// [`Status::leased`] of the last status that was given to a round.
    leased_given: u64,
    /// The status waits for a later one.
    delay: Option<Delay>,
    /// Its first status gathers what follows right behind.
    delays_first_status: bool,
    /// What was found while a round of work was under way, and what is to be there.
    observed: Option<(WrittenStatus, Arc<Status>)>,
    /// After a failure nothing is tried until then.
    retry_at: Option<Instant>,
    failures: u32,
    running: bool,
    gone: bool,
}

impl Queue {
    /// `sequence`: the last of its subject in the outbox.
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

    /// Takes in a job.
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
                // What waits to be written takes this along. That an error is stalled now waits for no turn.
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
            Change::StatusObserved { found, uid, status } => {
                let other = self.todo.uid.as_ref().is_some_and(|known| *known != uid);
                if self.running && !other {
                    self.observed = Some((found, status));
                } else if !other {
                    self.status_observed(found, uid, status, now);
                }
            }
            Change::Gone => {
                // The last entries still go out.
                self.gone = true;
                self.todo.add = false;
                self.todo.status = None;
                self.todo.remove = None;
                self.delay = None;
            }
        }
    }

    /// A status that is later than what was written here, and another one, is written over: a former leader may have
    /// had it on its way.
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
        // A pod waits for its addresses to be written down.
        let (hold, urgency) = if status.leased > self.leased_given {
            (Duration::ZERO, Urgency::Immediate)
        } else {
            (hold, urgency)
        };
        // Waiting is counted from the first status that is not written yet; an urgent one ends it.
        let until = now + hold;
        self.delay = Some(match self.delay {
            Some(delay) if urgency == Urgency::Queued => delay,
            Some(delay) if urgency == delay.urgency => Delay { until: delay.until.min(until), urgency },
            _ => Delay { until, urgency },
        });
        // An object that is deleted goes away instead of saying so.
        self.todo.status = (status.phase != Some(Phase::Deleted)).then_some(status);
    }

    /// The work that can be done now. `busy`: there is more urgent work; `is_turn`: it is its news' turn.
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

    /// Its news stands in line.
    pub fn is_queued_low_priority(&self) -> bool {
        self.delay.is_some_and(|delay| delay.urgency == Urgency::Queued)
    }

    /// A round of work is over. `failed`: it did not get through; true: another try may help.
    pub fn finished(&mut self, left: Todo, failed: Option<bool>, now: Instant) {
        self.running = false;
        self.todo.sequence = left.sequence;
        if self.todo.uid == left.uid {
            self.todo.written = left.written;
            self.todo.leased_reported = left.leased_reported;
        }
        match failed {
            None => {
                self.failures = 0;
                self.retry_at = None;
            }
            Some(retryable) => {
                self.failures = self.failures.saturating_add(1);
                let delay =
                    (FIRST_BACKOFF * 2_u32.saturating_pow(self.failures.min(10) - 1)).min(MAX_BACKOFF);
                self.retry_at = Some(now + delay);
                self.leased_given = self.todo.leased_reported;
                if retryable && !(self.gone && left.entries.is_empty()) {
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

    /// Nothing more will come of this object.
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
