//! What is still to be done about one object. Pure: time comes in.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use eno_core::{Key, Kind, Name, Status};
use eno_schemas::Phase;

use crate::objects::Stored;
use crate::status::{content, passes};

/// A phase that may pass within a moment, and news that is no change of phase, are kept out of the status for so long,
const HOLD: Duration = Duration::from_secs(1);
/// and such a phase for so much longer while there is more urgent work than can be done.
const HOLD_AGAIN: Duration = Duration::from_millis(250);
/// A service is attached right after it is made: its first status waits for that to be told with it.
const GATHER: Duration = Duration::from_millis(30);
const FIRST_DELAY: Duration = Duration::from_millis(200);
const LAST_DELAY: Duration = Duration::from_secs(30);

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
        object: Arc<Stored>,
        /// RFC 3339.
        at: Arc<str>,
    },
    /// The outbox has lost the last phase change.
    Again {
        /// What it told.
        status: Arc<Status>,
        /// The object.
        object: Arc<Stored>,
        /// RFC 3339.
        at: Arc<str>,
    },
    /// The status changed.
    Status(Arc<Status>, Name),
    /// Take the finalizer off.
    RemoveFinalizer(Removal),
    /// The status that the API server holds.
    Known(Told),
    /// A status was seen on the API server; perhaps one that was overtaken since.
    Found {
        /// What it says.
        found: Told,
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
pub struct Told {
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
    pub object: Arc<Stored>,
    pub at: Arc<str>,
    /// It was told before.
    pub again: bool,
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
    pub written: Option<Told>,
    /// [`Status::leased`] of what is written when this round is over, where that is more than was told before.
    pub leased: Option<u64>,
    /// The highest that was told.
    pub recorded: u64,
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
    Line,
    Nothing,
}

/// How long a status waits.
#[derive(Clone, Copy, Debug)]
struct Hold {
    until: Instant,
    urgency: Urgency,
}

/// How long a status may wait on top when there is much to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Urgency {
    /// Not at all.
    Due,
    /// As long as there is more urgent work: it may pass by itself.
    Passing,
    /// As well for its turn among its like: it changes no phase, and the object is not in error.
    News,
    /// It is in line for that turn.
    InLine,
}

impl Urgency {
    fn has_turn(self) -> bool {
        matches!(self, Self::News | Self::InLine)
    }
}

/// What is to be done about one object.
#[derive(Debug)]
pub struct Queue {
    kind: Kind,
    todo: Todo,
    /// [`Status::leased`] of the last status that was given to a round.
    leasing: u64,
    /// The status waits for a later one.
    held: Option<Hold>,
    /// Its first status gathers what follows right behind.
    gathers: bool,
    /// What was found while a round of work was under way, and what is to be there.
    found: Option<(Told, Arc<Status>)>,
    /// After a failure nothing is tried until then.
    later: Option<Instant>,
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
            leasing: 0,
            held: None,
            gathers: key.kind == Kind::L2Service,
            found: None,
            later: None,
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
                    phase if passes(phase) => (HOLD, Urgency::Passing),
                    Some(Phase::Ready) if self.gathers => (GATHER, Urgency::Due),
                    _ => (Duration::ZERO, Urgency::Due),
                };
                self.status(status.clone(), object.uid.clone(), now, hold, urgency);
                self.todo.entries.push_back(Entry { previous, status, object, at, again: false });
            }
            Change::Again { status, object, at } => {
                self.todo.entries.push_back(Entry { previous: None, status, object, at, again: true });
            }
            Change::Status(status, uid) => {
                // What waits to be written takes this along. That an error is stalled now waits for no turn.
                let urgency = match self.held {
                    _ if self.todo.status.is_none() && status.phase == Some(Phase::Error) => Urgency::Due,
                    _ if self.todo.status.is_none() => Urgency::News,
                    Some(held) => held.urgency,
                    None => Urgency::Due,
                };
                self.status(status, uid, now, HOLD, urgency);
            }
            Change::RemoveFinalizer(removal) => self.todo.remove = Some(removal),
            Change::Known(told) => self.todo.written = Some(told),
            Change::Found { found, uid, status } => {
                let other = self.todo.uid.as_ref().is_some_and(|known| *known != uid);
                if self.running && !other {
                    self.found = Some((found, status));
                } else if !other {
                    self.found(found, uid, status, now);
                }
            }
            Change::Gone => {
                // The last entries still go out.
                self.gone = true;
                self.todo.add = false;
                self.todo.status = None;
                self.todo.remove = None;
                self.held = None;
            }
        }
    }

    /// A status that is later than what was written here, and another one, is written over: a former leader may have
    /// had it on its way.
    fn found(&mut self, found: Told, uid: Name, status: Arc<Status>, now: Instant) {
        let Some(written) = self.todo.written else { return };
        if self.gone || found.version <= written.version || found.content == written.content {
            return;
        }
        self.todo.written = Some(found);
        if self.todo.status.is_none() && self.todo.remove.is_none() {
            self.status(status, uid, now, Duration::ZERO, Urgency::Due);
        }
    }

    fn status(&mut self, status: Arc<Status>, uid: Name, now: Instant, hold: Duration, urgency: Urgency) {
        if self.todo.uid.as_ref() != Some(&uid) {
            if self.todo.uid.is_some() {
                self.todo.written = None;
                self.todo.recorded = 0;
                self.leasing = 0;
            }
            self.todo.uid = Some(uid);
        }
        // A pod waits for its addresses to be written down.
        let (hold, urgency) =
            if status.leased > self.leasing { (Duration::ZERO, Urgency::Due) } else { (hold, urgency) };
        // Waiting is counted from the first status that is not written yet; an urgent one ends it.
        let until = now + hold;
        self.held = Some(match self.held {
            Some(held) if urgency == Urgency::InLine => held,
            Some(held) if urgency == held.urgency => Hold { until: held.until.min(until), urgency },
            _ => Hold { until, urgency },
        });
        // An object that is deleted goes away instead of saying so.
        self.todo.status = (status.phase != Some(Phase::Deleted)).then_some(status);
    }

    /// The work that can be done now. `busy`: there is more urgent work; `turn`: it is its news' turn.
    pub fn next(&mut self, now: Instant, busy: bool, turn: bool) -> Next {
        if self.running || self.todo.is_empty() {
            return Next::Nothing;
        }
        if let Some(later) = self.later.filter(|later| *later > now) {
            return Next::Wait(later);
        }
        if self.todo.remove.is_some() {
            self.todo.status = None;
            self.held = None;
        }
        if let Some(held) = &mut self.held
            && held.until <= now
            && held.urgency == Urgency::Passing
            && busy
        {
            held.until = now + HOLD_AGAIN;
        }
        let held = self.held.filter(|held| held.until > now || (held.urgency.has_turn() && !turn));
        let mut todo = Todo {
            uid: self.todo.uid.clone(),
            add: std::mem::take(&mut self.todo.add),
            entries: std::mem::take(&mut self.todo.entries),
            status: None,
            remove: self.todo.remove.take(),
            sequence: self.todo.sequence,
            written: self.todo.written,
            leased: None,
            recorded: self.todo.recorded,
        };
        if held.is_none() {
            self.held = None;
            if let Some(status) = self.todo.status.take() {
                todo.leased = Some(status.leased).filter(|leased| *leased > self.todo.recorded);
                self.leasing = self.leasing.max(status.leased);
                let content = content(self.kind, &status);
                let written = self.todo.written.is_some_and(|told| told.content == content);
                todo.status = Some(status).filter(|_| !written || todo.leased.is_some());
            }
        }
        if !todo.is_empty() {
            self.running = true;
            return Next::Work(Box::new(todo));
        }
        match &mut self.held {
            Some(held) if self.todo.status.is_some() && held.until > now => Next::Wait(held.until),
            Some(held) if self.todo.status.is_some() && held.urgency == Urgency::News => {
                held.urgency = Urgency::InLine;
                Next::Line
            }
            _ => Next::Nothing,
        }
    }

    /// Its news stands in line.
    pub fn in_line(&self) -> bool {
        self.held.is_some_and(|held| held.urgency == Urgency::InLine)
    }

    /// A round of work is over. `failed`: it did not get through; true: another try may help.
    pub fn finished(&mut self, left: Todo, failed: Option<bool>, now: Instant) {
        self.running = false;
        self.todo.sequence = left.sequence;
        if self.todo.uid == left.uid {
            self.todo.written = left.written;
            self.todo.recorded = left.recorded;
        }
        match failed {
            None => {
                self.failures = 0;
                self.later = None;
            }
            Some(retryable) => {
                self.failures = self.failures.saturating_add(1);
                let delay = (FIRST_DELAY * 2_u32.saturating_pow(self.failures.min(10) - 1)).min(LAST_DELAY);
                self.later = Some(now + delay);
                self.leasing = self.todo.recorded;
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
        if let (Some((found, status)), Some(uid)) = (self.found.take(), self.todo.uid.clone()) {
            self.found(found, uid, status, now);
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
