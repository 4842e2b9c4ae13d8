//! Assembles the commands of switches from heads and parts. Pure: it does no IO, and time is an argument.
//!
//! A head whose parts are not all there waits, and the last complete command stays in force. Only the newest head of a
//! target waits. Parts are named by their hashes, so a part that is there once never has to be read again.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::{Duration, Instant};

use eno_schemas::{
    Command, FabricDesired, Generation, Head, Incomplete, Part, PartError, PartHash, Report, Tree, assemble,
    decode_part,
};

/// Time after which a part that is lacking is read alone.
const READ_AFTER: Duration = Duration::from_secs(1);
/// Time after which a part that is lacking is reported.
const REPORT_AFTER: Duration = Duration::from_secs(2);
/// The same while the parts that are stored were not all read yet.
const REPORT_UNREAD_AFTER: Duration = Duration::from_secs(30);
/// Interval of further reports.
const REPORT_INTERVAL: Duration = Duration::from_secs(10);
/// Time for which a part is kept that no command names. The engine removes it from the stream after a shorter time.
const KEEP: Duration = Duration::from_mins(1);
/// Maximum number of parts of a target that no complete command names. The largest command has 274.
const MAX_UNNAMED: usize = 512;

/// A head that waits for parts.
struct Waiting {
    head: Head,
    /// Its age when it came.
    age: Duration,
    since: Instant,
    /// What the last attempt to assemble it lacked, without what came since.
    lacking: BTreeSet<PartHash>,
    /// These parts have been read alone, which is done once.
    were_read: bool,
    /// When the lacking parts are reported next, from the beginning of the waiting.
    report_after: Duration,
}

#[derive(Default)]
struct Target {
    /// The newest generation that came.
    newest: Option<(u64, u64)>,
    /// The last state that was assembled, and its tree.
    last: Option<(Tree, FabricDesired)>,
    /// Parts that the last state does not have, and when they came.
    parts: BTreeMap<PartHash, (Instant, Part)>,
}

/// What a message led to.
#[derive(Debug, PartialEq)]
pub enum Step {
    /// Nothing, or a head waits for parts.
    None,
    /// The head is older than a message before it.
    Older,
    /// A head and its parts are there. With the time since NATS stored the head.
    Complete(Box<Command>, Duration),
    /// A head is there, and its parts make no command.
    Invalid(Generation, String),
}

/// What is due for a head that waits.
#[derive(Debug, PartialEq)]
pub enum Due {
    /// These parts of a target are to be read alone.
    Read(String, Vec<PartHash>),
    /// These parts of a target are to be reported as lacking.
    Report(String, Lacking),
}

/// What a command lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lacking {
    /// The generation of the command.
    pub generation: Generation,
    /// How long it has waited.
    pub waited: Duration,
    /// The first parts that it lacks.
    pub parts: Vec<PartHash>,
}

/// The heads and parts of all targets of a driver.
#[derive(Default)]
pub struct Assembler {
    targets: HashMap<String, Target>,
    /// By target.
    waiting: HashMap<String, Waiting>,
    /// All parts that are stored have been read once.
    caught_up: bool,
}

impl Assembler {
    /// A head came. `age`: the time since NATS stored it.
    pub fn head(&mut self, head: Head, age: Duration, now: Instant) -> Step {
        let name = head.target.clone();
        match self.order(&name, head.generation.term, head.generation.sequence) {
            Ordering::Less => return Step::Older,
            Ordering::Equal => return Step::None,
            Ordering::Greater => {}
        }
        let waiting = Waiting {
            head,
            age,
            since: now,
            lacking: BTreeSet::new(),
            were_read: false,
            report_after: REPORT_AFTER,
        };
        self.waiting.insert(name.clone(), waiting);
        self.assemble(&name, now)
    }

    /// A whole command came. An older head does not wait any longer.
    pub fn whole(&mut self, name: &str, generation: &Generation) {
        if self.order(name, generation.term, generation.sequence) == Ordering::Greater {
            self.waiting.remove(name);
        }
    }

    /// A part came. An error tells that the payload is not this part; then nothing changes.
    pub fn part(
        &mut self,
        name: &str,
        hash: PartHash,
        payload: &[u8],
        now: Instant,
    ) -> Result<Step, PartError> {
        let target = self.targets.entry(name.to_owned()).or_default();
        if target.has(hash) {
            return Ok(Step::None);
        }
        let waiting = self.waiting.get_mut(name).filter(|waiting| waiting.lacking.contains(&hash));
        let part = match decode_part(hash, payload) {
            Ok(part) => part,
            // Its name is right, so whoever stored it meant this.
            Err(error @ PartError::Message(..)) if waiting.is_some() => {
                return Ok(self.refuse(name, error.to_string()));
            }
            Err(error) => return Err(error),
        };
        target.keep(hash, part, now);
        let Some(waiting) = waiting else { return Ok(Step::None) };
        waiting.lacking.remove(&hash);
        Ok(if waiting.lacking.is_empty() { self.assemble(name, now) } else { Step::None })
    }

    /// The parts that are stored are read from the start. Parts of targets without a command are forgotten.
    pub fn replay_started(&mut self) {
        self.caught_up = false;
        self.targets.retain(|_, target| target.newest.is_some());
    }

    /// The parts that were stored at the start have been read.
    pub fn replay_caught_up(&mut self) {
        self.caught_up = true;
    }

    /// The target is gone.
    pub fn forget(&mut self, name: &str) {
        self.targets.remove(name);
        self.waiting.remove(name);
    }

    /// When [`Self::due`] has something.
    pub fn wake(&self) -> Option<Instant> {
        self.waiting.values().map(|waiting| self.due_at(waiting)).min()
    }

    /// Something that is due now.
    pub fn due(&mut self, now: Instant) -> Option<Due> {
        let name = self.waiting.iter().find(|(_, waiting)| self.due_at(waiting) <= now)?.0.clone();
        let waiting = self.waiting.get_mut(&name)?;
        let parts: Vec<PartHash> = waiting.lacking.iter().copied().take(Report::MAX_LACKING).collect();
        if self.caught_up && !waiting.were_read {
            waiting.were_read = true;
            return Some(Due::Read(name, parts));
        }
        let waited = now.saturating_duration_since(waiting.since);
        waiting.report_after = waited + REPORT_INTERVAL;
        Some(Due::Report(name, Lacking { generation: waiting.head.generation(), waited, parts }))
    }

    fn due_at(&self, waiting: &Waiting) -> Instant {
        waiting.since
            + match (self.caught_up, waiting.were_read) {
                (true, false) => READ_AFTER,
                (true, true) => waiting.report_after,
                (false, _) => waiting.report_after.max(REPORT_UNREAD_AFTER),
            }
    }

    /// The order of a generation of the target to the newest one before, which it replaces if it is newer.
    fn order(&mut self, name: &str, term: u64, sequence: u64) -> Ordering {
        let target = self.targets.entry(name.to_owned()).or_default();
        let order = Some((term, sequence)).cmp(&target.newest);
        if order == Ordering::Greater {
            target.newest = Some((term, sequence));
        }
        order
    }

    fn assemble(&mut self, name: &str, now: Instant) -> Step {
        let (Some(target), Some(waiting)) = (self.targets.get_mut(name), self.waiting.get_mut(name)) else {
            return Step::None;
        };
        let part = |hash| target.parts.get(&hash).map(|(_, part)| part);
        let last = target.last.as_ref().map(|(tree, desired)| (tree, desired));
        match assemble(waiting.head.generation.hash, part, last) {
            Ok((tree, desired)) => {
                let age = waiting.age + now.saturating_duration_since(waiting.since);
                target.complete(tree, desired.clone(), now);
                let command = self.waiting.remove(name).map(|waiting| waiting.head.command(desired));
                command.map_or(Step::None, |command| Step::Complete(Box::new(command), age))
            }
            Err(Incomplete::Lacking(parts)) => {
                waiting.lacking = parts.into_iter().collect();
                // A part that came names them.
                waiting.were_read = false;
                Step::None
            }
            Err(Incomplete::Invalid(reason)) => self.refuse(name, reason),
        }
    }

    fn refuse(&mut self, name: &str, reason: String) -> Step {
        let refused = self.waiting.remove(name);
        refused.map_or(Step::None, |waiting| Step::Invalid(waiting.head.generation(), reason))
    }
}

impl Target {
    /// True for a part that need not be read again.
    fn has(&self, hash: PartHash) -> bool {
        let last = self.last.as_ref();
        self.parts.contains_key(&hash) || last.is_some_and(|(tree, _)| tree.parts().any(|part| part == hash))
    }

    /// Keeps a part. If there are too many, the oldest one is dropped.
    fn keep(&mut self, hash: PartHash, part: Part, now: Instant) {
        if self.parts.len() >= MAX_UNNAMED
            && let Some(oldest) = self.parts.iter().min_by_key(|(_, (came, _))| *came).map(|(hash, _)| *hash)
        {
            self.parts.remove(&oldest);
        }
        self.parts.insert(hash, (now, part));
    }

    /// A state is complete. What it has is taken from there, and what only the state before has is kept for a while: a
    /// later command may name it again.
    fn complete(&mut self, tree: Tree, desired: FabricDesired, now: Instant) {
        self.parts.retain(|_, (came, _)| now.saturating_duration_since(*came) < KEEP);
        if let Some((before, former)) = self.last.take() {
            let (new, gone) = tree.difference(&before);
            for hash in new {
                self.parts.remove(&hash);
            }
            for (hash, part) in gone.into_iter().filter_map(|hash| Some((hash, before.part(&former, hash)?)))
            {
                self.keep(hash, part, now);
            }
        } else {
            for hash in tree.parts() {
                self.parts.remove(&hash);
            }
        }
        self.last = Some((tree, desired));
    }
}

#[cfg(test)]
#[path = "parts_tests.rs"]
mod tests;
