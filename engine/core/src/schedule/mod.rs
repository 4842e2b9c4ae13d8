//! The commands of targets: when the next command of each target may be published, and what was commanded last. Time is
//! an argument, as the time since some moment before the first use.
//!
//! A target has at most one command outstanding with its driver. Changes made meanwhile accumulate in the desired
//! state, and the next command carries all of them. Commands of switches are debounced: a switch that had a command
//! recently gets the next one when its changes pause or reach a maximum age. A flood of small changes becomes few
//! transactions, and a single change is published at once. Switches that change together wait for each other and form
//! one transaction (`transaction`).

mod answers;
mod last_commanded;
mod transaction;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use eno_queue::FairQueue;
use eno_schemas::{Decision, Generation, Transaction, Tree};

use crate::fabric::transaction::TransactionGroup;
use crate::{Effect, Name, Target};

pub(crate) use answers::Receipt;
pub use answers::Republished;
use last_commanded::LastCommanded;
use transaction::DriverAnswer;
use transaction::OpenTransaction;
pub use transaction::{DEADLINE, DecidedTransaction, Participant};

/// A switch without a command for this time gets its next command at once.
const IDLE_AFTER: Duration = Duration::from_millis(500);
/// Pause between changes after which a recently commanded switch gets its next command, for up to [`FEW_CHANGES`].
const DEBOUNCE: Duration = Duration::from_millis(40);
const FEW_CHANGES: u32 = 2;
/// The same pause for more changes, which others are likely to follow.
const LONG_DEBOUNCE: Duration = Duration::from_millis(600);
/// Maximum time that debouncing delays a change.
const MAX_DELAY: Duration = Duration::from_millis(900);
/// Time without a report after which an alive driver gets the next command anyway. The driver checks for a newer
/// generation before it commits.
const DRIVER_TIMEOUT: Duration = Duration::from_secs(15);
/// Maximum publishes that wait for an acknowledgement of NATS.
const MAX_PUBLISHING: usize = 256;

/// The last command of a target, as NATS stores it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Stored {
    /// The driver that the command is for.
    driver: Name,
    /// Generation of the last command; `None`: it is unreadable or has to be published again.
    generation: Option<Generation>,
    /// The command belongs to a transaction that is not confirmed, so its state has to be commanded again.
    unconfirmed: bool,
    /// Sequence of the last message on the subject; 0: the subject is empty.
    sequence: u64,
}

/// A command that may be published now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingCommand {
    /// Its generation.
    pub generation: Generation,
    /// Last sequence that the subject must have. NATS refuses the publish if another engine wrote meanwhile.
    pub expected: u64,
    /// The former driver of a moved target; its subjects have to be purged.
    pub moved_from: Option<Name>,
    /// The transaction that this command opens or decides.
    pub transaction: Option<Transaction>,
    /// Of a switch, the hashes of the parts of its desired state. `None`: an earlier version made the hash of the
    /// generation.
    pub tree: Option<Arc<Tree>>,
}

/// Targets that may be published now, and when to check again. The time is now when a target waits only for targets in
/// this result, since those may have nothing to publish.
#[derive(Debug, Default)]
pub struct ReadyCommands {
    /// Targets that are published independently.
    pub single: Vec<Target>,
    /// Groups of switches that are published as one transaction each.
    pub joint: Vec<Vec<Target>>,
    /// Transaction participants that have to receive the decision.
    pub decisions: Vec<Target>,
    /// When to check again if nothing else happens before.
    pub next: Option<Duration>,
}

impl ReadyCommands {
    fn check_at(&mut self, at: Duration) {
        self.next = Some(self.next.map_or(at, |next| next.min(at)));
    }
}

/// The time of a call of the engine.
#[derive(Clone, Debug)]
pub struct Moment {
    /// The wall-clock time, RFC 3339.
    pub at: String,
    /// The monotonic time since the beginning of the leadership.
    pub elapsed: Duration,
    /// The wall-clock time [`DEADLINE`] from now, RFC 3339.
    pub deadline: String,
}

/// What the runtime has to do now.
#[derive(Debug, Default)]
pub struct Reconciled {
    /// The effects, in order. Those on commands are carried out already: they are facts.
    pub effects: Vec<Effect>,
    /// The commands to publish, each with its target and desired state.
    pub commands: Vec<(Participant, PendingCommand)>,
    /// Targets that are gone, each with the driver whose messages about it have to be purged from NATS.
    pub removed: Vec<(Target, Name)>,
    /// Number of changed targets whose desired state is commanded already.
    pub unchanged: usize,
    /// The transactions that were decided since the last call.
    pub decided: Vec<DecidedTransaction>,
    /// Commands that NATS lost or that another publisher replaced; they are published again.
    pub republished: Vec<(Target, Republished)>,
    /// Reports on generations that no engine issued: they say nothing, and are purged.
    pub unissued: Vec<(Target, Generation)>,
    /// Number of targets with an unpublished change.
    pub waiting: usize,
    /// Number of targets with an outstanding command.
    pub outstanding: usize,
    /// Number of nodes that should have an agent.
    pub nodes: usize,
    /// When to ask again if nothing else happens before.
    pub next: Option<Duration>,
}

impl Reconciled {
    /// True if there is nothing to do before [`Self::next`].
    pub fn is_idle(&self) -> bool {
        self.effects.is_empty() && self.commands.is_empty() && self.removed.is_empty()
    }
}

/// Schedules the commands of all targets.
#[derive(Debug)]
pub struct Schedule {
    /// Term of this engine.
    term: u64,
    /// Sequence of the last issued generation.
    sequence: u64,
    /// State of each target.
    slots: HashMap<Target, Slot>,
    /// Targets with an unpublished change.
    dirty: BTreeSet<Target>,
    /// Targets whose messages are being purged from NATS, with the drivers in their subjects: one entry for each purge
    /// in progress. A purge would also delete a newer command for that driver, which waits.
    removing: BTreeMap<Target, Vec<Name>>,
    /// The drivers that are alive; an agent as `node/<name>`.
    pub(crate) live_drivers: BTreeSet<Name>,
    /// The drivers that can hold a change until its transaction is decided.
    pub(crate) holding_drivers: BTreeSet<Name>,
    /// The drivers whose clocks differ from the engine's, and how.
    pub(crate) skewed_drivers: BTreeMap<Name, Name>,
    /// Targets whose desired state changed.
    pub(crate) publish_queue: BTreeSet<Target>,
    /// Number of unacknowledged publishes.
    publishing: usize,
    /// Number of transactions opened in this term.
    opened: u64,
    /// Transactions that still bind a participant.
    transactions: Vec<OpenTransaction>,
    /// Transactions decided since the last [`Self::take_decided`].
    decided: Vec<DecidedTransaction>,
    /// Commands to be published again, since the last [`Self::take_republished`].
    republished: Vec<(Target, Republished)>,
    /// Reports on generations that no engine issued, since the last [`Self::take_unissued`].
    unissued: Vec<(Target, Generation)>,
    /// Targets with messages on the subjects of a driver that they have no command for.
    uncommanded: BTreeSet<(Target, Name)>,
    /// Targets on which this driver reported a generation that nobody issued, while a command is being published or a
    /// transaction binds them: their messages are purged afterwards.
    distrusted: BTreeSet<(Target, Name)>,
    /// Messages that have to be purged, by target and the driver in their subjects.
    purges: Vec<(Target, Name)>,
    /// The time of the current events.
    pub(crate) now: Duration,
}

#[derive(Debug, Default)]
struct Slot {
    /// The last command on NATS.
    stored: Option<Stored>,
    /// What was commanded last.
    last_commanded: Option<LastCommanded>,
    /// Progress of the last command.
    state: State,
    /// When the last command was issued.
    last_issued: Option<Duration>,
    /// Changes that no command carries yet.
    changes: Option<Changes>,
    /// No publish is tried before this time, after a failure.
    retry_at: Option<Duration>,
    /// Sequence of the last message that NATS stored on the subject of the command, as far as this is known.
    seen: u64,
    /// When somebody else wrote on the subjects of the target last, and how often that followed shortly.
    disturbed: Option<(Duration, u32)>,
    /// Number of successive aborted transactions of this target.
    aborts: u32,
    /// No command is issued before this time, after several aborted transactions.
    backoff_until: Option<Duration>,
}

#[derive(Clone, Copy, Debug)]
struct Changes {
    first: Duration,
    last: Duration,
    count: u32,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Idle,
    /// Sent to NATS and not acknowledged yet. The report of the driver may arrive before the acknowledgement.
    Publishing { generation: Generation, reported: bool, unconfirmed: bool },
    /// Published at this time; the driver works on it.
    Outstanding(Generation, Duration),
}

impl Schedule {
    /// Creates the schedule of the engine that leads in `term`.
    pub fn new(term: u64) -> Self {
        Self {
            term,
            sequence: 0,
            slots: HashMap::new(),
            dirty: BTreeSet::new(),
            removing: BTreeMap::new(),
            live_drivers: BTreeSet::new(),
            holding_drivers: BTreeSet::new(),
            skewed_drivers: BTreeMap::new(),
            publish_queue: BTreeSet::new(),
            publishing: 0,
            opened: 0,
            transactions: Vec::new(),
            decided: Vec::new(),
            republished: Vec::new(),
            unissued: Vec::new(),
            uncommanded: BTreeSet::new(),
            distrusted: BTreeSet::new(),
            purges: Vec::new(),
            now: Duration::ZERO,
        }
    }

    /// The desired state of the target changed.
    pub fn mark_dirty(&mut self, target: Target, now: Duration) {
        let slot = self.slots.entry(target.clone()).or_default();
        let before = slot.changes.map_or((now, 0), |changes| (changes.first, changes.count));
        slot.changes = Some(Changes { first: before.0, last: now, count: before.1.saturating_add(1) });
        self.dirty.insert(target);
    }

    /// The targets that may be published now, and the switches that have to be grouped for [`Self::add_groups`] before
    /// it is known whether they may; `None`: none of them is ready.
    pub fn collect_ready(&mut self, now: Duration) -> (ReadyCommands, Option<Vec<Name>>) {
        self.expire(now);
        self.purge_distrusted(now);
        let mut ready = ReadyCommands::default();
        self.collect_decisions(now, &mut ready);
        let free_publishes = MAX_PUBLISHING.saturating_sub(self.publishing);
        // Switches that may have to wait for others. A switch with a stuck or absent driver delays no other.
        let mut switches: Vec<Name> = Vec::new();
        let mut alone = FairQueue::default();
        let mut any_ready = false;
        for target in &self.dirty {
            let wait = self.wait(target, now);
            if let Target::Fabric(name) = target
                && !self.is_stuck(target, now)
            {
                any_ready |= matches!(wait, Wait::Now);
                switches.push(name.clone());
                continue;
            }
            match wait {
                Wait::Now => alone.push(fairness_key(target), target),
                Wait::Blocked => {}
                Wait::Until(at) => ready.check_at(at),
            }
        }
        // Fair between namespaces: a large namespace delays no other.
        ready.single.extend(std::iter::from_fn(|| alone.pop()).take(free_publishes).cloned());
        if free_publishes > 0 && !alone.is_empty() {
            ready.check_at(now);
        }
        if any_ready {
            switches.extend(self.transactions.iter().flat_map(OpenTransaction::switches));
            return (ready, Some(switches));
        }
        for name in switches {
            if let Wait::Until(at) = self.wait(&Target::Fabric(name), now) {
                ready.check_at(at);
            }
        }
        (ready, None)
    }

    /// Adds the switches of the groups that are ready. `groups`: which of the switches have to change together.
    pub fn add_groups(&self, groups: Vec<TransactionGroup>, now: Duration, ready: &mut ReadyCommands) {
        for group in groups {
            self.add_group(group, now, ready);
        }
    }

    /// A group is ready when all of its members are.
    fn add_group(&self, group: TransactionGroup, now: Duration, ready: &mut ReadyCommands) {
        let targets = |names: Vec<Name>| names.into_iter().map(Target::Fabric).collect::<Vec<_>>();
        let (holding, plain) = (targets(group.holding), targets(group.plain));
        let mut all_may = true;
        for target in holding.iter().chain(&plain) {
            match self.wait(target, now) {
                Wait::Now if self.dirty.contains(target) => {}
                Wait::Until(at) => {
                    all_may = false;
                    ready.check_at(at);
                }
                Wait::Now | Wait::Blocked => all_may = false,
            }
        }
        if !all_may {
            return;
        }
        if holding.len() > 1 {
            ready.joint.push(holding);
            if !plain.is_empty() {
                ready.check_at(now);
            }
        } else {
            ready.single.extend(holding);
            ready.single.extend(plain);
        }
    }

    fn wait(&self, target: &Target, now: Duration) -> Wait {
        let purged = |drivers: &Vec<Name>| self.driver(target).is_none_or(|driver| drivers.contains(driver));
        if self.is_bound(target) || self.removing.get(target).is_some_and(purged) {
            return Wait::Blocked;
        }
        let Some(slot) = self.slots.get(target) else { return Wait::Now };
        let paced = match (target, slot.last_issued, slot.changes) {
            (Target::Fabric(_), Some(last_issued), Some(changes))
                if changes.first < last_issued + IDLE_AFTER =>
            {
                let pause = if changes.count <= FEW_CHANGES { DEBOUNCE } else { LONG_DEBOUNCE };
                Some((changes.last + pause).min(changes.first + MAX_DELAY)).filter(|at| *at > now)
            }
            _ => None,
        };
        let paced = paced.max(slot.retry_at.max(slot.backoff_until).filter(|at| *at > now));
        let stored = slot.stored.as_ref();
        match &slot.state {
            State::Publishing { .. } => Wait::Blocked,
            State::Outstanding(_, since)
                if stored.is_some_and(|stored| self.is_alive(&stored.driver, target)) =>
            {
                let patience = *since + DRIVER_TIMEOUT;
                if patience > now { Wait::Until(patience) } else { paced.map_or(Wait::Now, Wait::Until) }
            }
            _ => paced.map_or(Wait::Now, Wait::Until),
        }
    }

    /// True when the target has a command that its driver does not seem to work on.
    fn is_stuck(&self, target: &Target, now: Duration) -> bool {
        let Some(slot) = self.slots.get(target) else { return false };
        let State::Outstanding(_, since) = slot.state else { return false };
        let alive = slot.stored.as_ref().is_some_and(|stored| self.is_alive(&stored.driver, target));
        !self.is_bound(target) && (!alive || since + DRIVER_TIMEOUT <= now)
    }

    /// True when the target's driver is alive and does not report on its command.
    pub fn is_silent(&self, target: &Target, now: Duration) -> bool {
        let driver = self.driver(target);
        self.is_stuck(target, now) && driver.is_some_and(|driver| self.is_alive(driver, target))
    }

    /// Each node has an agent process of its own.
    fn is_alive(&self, driver: &Name, target: &Target) -> bool {
        match target {
            Target::Node(node) => self.live_drivers.contains(&instance_of(driver, node)),
            Target::Fabric(_) | Target::Nad(..) | Target::Speaker(_) => self.live_drivers.contains(driver),
        }
    }

    /// Issues a command of a ready target with the current desired state; `None`: NATS already holds that state.
    pub fn issue_if_changed(
        &mut self,
        target: &Target,
        driver: &Name,
        hash: String,
        now: Duration,
    ) -> Option<PendingCommand> {
        if self.is_commanded(target, driver, &hash) {
            self.skip(target);
            return None;
        }
        Some(self.issue(target, driver, hash, None, now))
    }

    /// True when NATS holds a confirmed command of this driver with this state.
    pub fn is_commanded(&self, target: &Target, driver: &Name, hash: &str) -> bool {
        let stored = self.slots.get(target).and_then(|slot| slot.stored.as_ref());
        stored.is_some_and(|stored| {
            stored.driver == *driver
                && !stored.unconfirmed
                && stored.generation.as_ref().is_some_and(|generation| generation.hash == hash)
        })
    }

    /// Drops the pending change of a target without a command.
    fn skip(&mut self, target: &Target) {
        self.dirty.remove(target);
        self.slots.entry(target.clone()).or_default().changes = None;
    }

    /// Issues the next command of the target.
    fn issue(
        &mut self,
        target: &Target,
        driver: &Name,
        hash: String,
        transaction: Option<Transaction>,
        now: Duration,
    ) -> PendingCommand {
        self.sequence += 1;
        let generation = Generation { term: self.term, sequence: self.sequence, hash };
        let slot = self.slots.entry(target.clone()).or_default();
        if transaction.as_ref().is_none_or(|transaction| transaction.decision.is_none()) {
            self.dirty.remove(target);
            slot.changes = None;
        }
        let stored = slot.stored.take();
        let moved_from =
            stored.as_ref().filter(|stored| stored.driver != *driver).map(|stored| stored.driver.clone());
        let stored = stored.filter(|stored| stored.driver == *driver);
        let expected = stored.as_ref().map_or(0, |stored| stored.sequence);
        slot.seen = expected;
        let unconfirmed =
            transaction.as_ref().is_some_and(|transaction| transaction.decision != Some(Decision::Confirm));
        slot.state = State::Publishing { generation: generation.clone(), reported: false, unconfirmed };
        slot.stored = Some(Stored {
            driver: driver.clone(),
            // NATS holds the previous command until it acknowledges this one.
            unconfirmed: stored.as_ref().is_some_and(|stored| stored.unconfirmed),
            generation: stored.and_then(|stored| stored.generation),
            sequence: expected,
        });
        slot.last_issued = Some(now);
        self.publishing += 1;
        PendingCommand { generation, expected, moved_from, transaction, tree: None }
    }

    /// The target does not exist any more.
    pub fn discard_change(&mut self, target: &Target) {
        self.dirty.remove(target);
    }

    /// The target is gone. Returns the driver whose messages about it have to be purged from NATS, if it was
    /// commanded.
    pub fn remove_target(&mut self, target: &Target, now: Duration) -> Option<Name> {
        self.remove_participant(target, now);
        self.dirty.remove(target);
        let driver = self.slots.remove(target)?.stored?.driver;
        self.removing.entry(target.clone()).or_default().push(driver.clone());
        Some(driver)
    }

    /// Commands that have to be published again, since the last call.
    pub fn take_republished(&mut self) -> Vec<(Target, Republished)> {
        std::mem::take(&mut self.republished)
    }

    /// Reports on generations that no engine issued, since the last call.
    pub fn take_unissued(&mut self) -> Vec<(Target, Generation)> {
        std::mem::take(&mut self.unissued)
    }

    /// The driver that the target's stored command is for.
    pub fn driver(&self, target: &Target) -> Option<&Name> {
        self.slots.get(target)?.stored.as_ref().map(|stored| &stored.driver)
    }

    /// Number of targets with an unpublished change, and of targets with an outstanding command.
    pub fn counts(&self) -> (usize, usize) {
        let outstanding = self.slots.values().filter(|slot| slot.state != State::Idle).count();
        (self.dirty.len(), outstanding)
    }
}

enum Wait {
    Now,
    Until(Duration),
    /// Until NATS acknowledges a publish or purge, or until a transaction is decided.
    Blocked,
}

/// The name in [`crate::Event::Drivers`] of an instance that serves only this target.
pub fn instance_of(driver: &str, target: &str) -> Name {
    format!("{driver}/{target}").into()
}

/// The key for fairness between targets: the namespace, or one key for all targets without one.
fn fairness_key(target: &Target) -> &str {
    match target {
        Target::Nad(namespace, _) => namespace,
        Target::Fabric(_) | Target::Node(_) | Target::Speaker(_) => "",
    }
}
