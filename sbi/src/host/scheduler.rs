//! Decides which target is worked on when. Pure: it does no IO, and time is an argument.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use eno_queue::{Backoff, DelayQueue, FairQueue};
use eno_schemas::{Command, Generation};
use tokio::sync::watch;

use super::Ownership;
use super::parts::Lacking;
use crate::random::random;
use crate::work::LatestCommand;

/// A message on a target's command subject that is no valid command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct InvalidCommand {
    /// The generation, if that much is readable.
    pub generation: Option<Generation>,
    /// What is wrong and where.
    pub reason: String,
}

/// A unit of work on a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Job {
    /// Reconcile the target to this command.
    Reconcile(Arc<Command>),
    /// Report an invalid message under this generation.
    Reject(InvalidCommand, Generation),
    /// Report the parts for which the next command waits.
    Wait(Lacking),
    /// Check that the last published report is still stored.
    Verify,
    /// Drop the driver's state of the target.
    Forget,
}

/// A job that may start.
#[derive(Debug)]
pub(super) struct Start<R> {
    pub target: String,
    pub job: Job,
    /// Follows the latest command of the target.
    pub newest: watch::Receiver<LatestCommand>,
    /// State of the target's published reports.
    pub record: R,
}

/// Result of offering a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OfferResult {
    New,
    Known,
    Stale,
}

#[derive(Default)]
#[expect(clippy::struct_excessive_bools, reason = "each may be due besides the others")]
struct Pending {
    /// The latest command was not reconciled yet.
    command: bool,
    /// The command is to be reconciled again.
    reconcile_again: bool,
    reject: Option<InvalidCommand>,
    wait: Option<Lacking>,
    verify: bool,
    forget: bool,
}

impl Pending {
    fn is_due(&self) -> bool {
        self.command
            || self.reconcile_again
            || self.reject.is_some()
            || self.wait.is_some()
            || self.verify
            || self.forget
    }
}

struct Target<R> {
    /// The latest command; `None`: none, or forgotten.
    command: Option<Arc<Command>>,
    /// Stream position of the last message on its subject.
    position: u64,
    /// Number of the stream replay in which it was last seen.
    replay: u64,
    /// This instance owns the target.
    owned: bool,
    /// No message came since the target was forgotten.
    forgotten: bool,
    /// Notifies the running job of newer commands; `None`: no job runs.
    in_flight: Option<watch::Sender<LatestCommand>>,
    /// The jobs to start.
    pending: Pending,
    /// Number of failures in a row, and the policy of their retries.
    failures: u32,
    policy: Option<Backoff>,
    /// The caller's state.
    record: R,
}

impl<R> Target<R> {
    fn may_start(&self) -> bool {
        self.pending.forget || (self.owned && self.pending.is_due())
    }
}

/// All targets of a driver. `R` is caller state that is kept per target.
pub(super) struct TargetScheduler<R> {
    /// Known targets by name.
    targets: HashMap<String, Target<R>>,
    /// Targets with a job that may start.
    queue: FairQueue<String>,
    /// Targets that wait for a retry. A job of another kind may start before.
    retries: DelayQueue<String>,
    /// Number of the current stream replay.
    replay: u64,
    /// How instances share the work.
    ownership: Ownership,
    /// This instance owns all targets ([`Ownership::WholeDriver`]).
    all_owned: bool,
}

impl<R: Default> TargetScheduler<R> {
    pub fn new(ownership: Ownership) -> Self {
        Self {
            targets: HashMap::new(),
            queue: FairQueue::default(),
            retries: DelayQueue::default(),
            replay: 0,
            ownership,
            all_owned: false,
        }
    }

    /// Number of known targets.
    pub fn len(&self) -> usize {
        self.targets.len()
    }

    /// True when the target is known.
    pub fn contains(&self, target: &str) -> bool {
        self.targets.contains_key(target)
    }

    /// True when the target is known and not about to be forgotten.
    pub fn is_active(&self, target: &str) -> bool {
        self.targets.get(target).is_some_and(|target| !target.forgotten)
    }

    /// True when this instance owns the target and the target has a command.
    pub fn is_commanded(&self, target: &str) -> bool {
        self.targets.get(target).is_some_and(|target| target.owned && target.command.is_some())
    }

    /// Stream position of the last message of the target; `None`: unknown target.
    pub fn position(&self, target: &str) -> Option<u64> {
        self.targets.get(target).map(|target| target.position)
    }

    /// A replay of the stream begins.
    pub fn replay_started(&mut self) {
        self.replay += 1;
    }

    /// The replay is complete. Targets that it lacked are forgotten; the stored reports of the others are
    /// verified. Returns the forgotten ones.
    pub fn replay_caught_up(&mut self) -> Vec<String> {
        let replay = self.replay;
        let (seen, gone): (Vec<_>, Vec<_>) =
            self.targets.iter().partition(|(_, target)| target.replay == replay);
        let seen: Vec<String> = seen.into_iter().map(|(name, _)| name.clone()).collect();
        let gone: Vec<String> = gone.into_iter().map(|(name, _)| name.clone()).collect();
        for name in &seen {
            self.update(name, |target| target.pending.verify |= target.command.is_some());
        }
        for name in &gone {
            self.forget(name);
        }
        gone
    }

    /// Adds a command at `position` of the stream.
    pub fn offer(&mut self, command: Arc<Command>, position: u64) -> OfferResult {
        let name = command.target.clone();
        let target = self.on_message(&name, position);
        if let Some(known) = &target.command {
            let order = |generation: &Generation| (generation.term, generation.sequence);
            let (known, offered) = (order(&known.generation), order(&command.generation));
            if offered <= known {
                return if offered == known { OfferResult::Known } else { OfferResult::Stale };
            }
        }
        if let Some(newest) = &target.in_flight {
            newest.send_replace(LatestCommand::Command(command.clone()));
        }
        target.command = Some(command);
        target.failures = 0;
        target.pending.wait = None;
        self.retries.remove(&name);
        self.update(&name, |target| target.pending.command = true);
        OfferResult::New
    }

    /// Notes a message at `position` of the stream whose command is not complete yet.
    pub fn seen(&mut self, name: &str, position: u64) {
        self.on_message(name, position);
    }

    /// The next command of the target waits for parts. The previous command stays.
    pub fn wait(&mut self, name: &str, lacking: Lacking) {
        self.update(name, |target| target.pending.wait = Some(lacking));
    }

    /// Adds an invalid message. The previous command stays.
    pub fn offer_invalid(&mut self, name: &str, position: u64, invalid: InvalidCommand) {
        self.on_message(name, position);
        self.update(name, |target| target.pending.reject = Some(invalid));
    }

    /// The target was changed externally or is due for a retry: it is reconciled again.
    pub fn changed(&mut self, name: &str) {
        self.update(name, |target| target.pending.reconcile_again |= target.command.is_some());
    }

    /// The target is gone for good. A target that is created under its name later needs a new lease.
    pub fn forget(&mut self, name: &str) {
        self.retries.remove(name);
        let stays_owned = self.ownership == Ownership::WholeDriver;
        self.update(name, |target| {
            target.owned &= stays_owned;
            target.forgotten = true;
            target.command = None;
            target.failures = 0;
            target.pending = Pending { forget: true, ..Pending::default() };
            if let Some(newest) = &target.in_flight {
                newest.send_replace(LatestCommand::Stopped);
            }
        });
    }

    /// Sets whether this instance owns one target or (`None`) all.
    pub fn set_owned(&mut self, name: Option<&str>, owned: bool) {
        let names: Vec<String> = if let Some(name) = name {
            vec![name.to_owned()]
        } else {
            self.all_owned = owned;
            self.targets.keys().cloned().collect()
        };
        for name in names {
            if !owned {
                self.retries.remove(&name);
            }
            self.update(&name, |target| {
                target.owned = owned;
                target.failures = 0;
                if owned {
                    target.pending.reconcile_again |= target.command.is_some();
                } else {
                    if let Some(newest) = &target.in_flight {
                        newest.send_replace(LatestCommand::Stopped);
                    }
                    // Another instance publishes reports from here on, so the record is outdated.
                    target.record = R::default();
                }
            });
        }
    }

    /// Tells all work in flight that it is not current any more.
    pub fn wind_down(&mut self) {
        for target in self.targets.values() {
            if let Some(newest) = &target.in_flight {
                newest.send_replace(LatestCommand::Stopped);
            }
        }
    }

    /// The next job that may start. Call [`TargetScheduler::finished`] when it ends.
    pub fn next(&mut self) -> Option<Start<R>> {
        while let Some(name) = self.queue.pop() {
            let Some(target) = self.targets.get_mut(&name) else { continue };
            if !target.may_start() {
                continue;
            }
            let job = if target.pending.forget {
                target.pending.forget = false;
                Job::Forget
            } else if let Some(invalid) = target.pending.reject.take() {
                let known = target.command.as_ref().map(|command| &command.generation);
                let generation = invalid.generation.clone().or(known.map(generation_without_hash));
                let unknown = Generation { term: 0, sequence: 0, hash: String::new() };
                Job::Reject(invalid, generation.unwrap_or(unknown))
            } else if let Some(lacking) = target.pending.wait.take() {
                Job::Wait(lacking)
            } else if let (true, Some(command)) =
                (target.pending.command || target.pending.reconcile_again, &target.command)
            {
                // A reconcile publishes a report, which makes verification needless.
                target.pending = Pending { forget: target.pending.forget, ..Pending::default() };
                Job::Reconcile(command.clone())
            } else {
                target.pending.verify = false;
                Job::Verify
            };
            let newest = target.command.clone().map_or(LatestCommand::Stopped, LatestCommand::Command);
            let (sender, newest) = watch::channel(newest);
            target.in_flight = Some(sender);
            let record = std::mem::take(&mut target.record);
            // Only a reconcile replaces a pending retry; other jobs keep it.
            if matches!(job, Job::Reconcile(_)) {
                self.retries.remove(&name);
            }
            return Some(Start { target: name, job, newest, record });
        }
        None
    }

    /// Records the end of a job. `done` has the command that was worked on last, which may have come while
    /// the job ran. `retry` is the generation to retry, and the policy. Returns true when the target was removed.
    pub fn finished(
        &mut self,
        name: &str,
        retry: Option<&(Generation, Backoff)>,
        done: &Job,
        record: R,
        now: Instant,
    ) -> bool {
        let Some(target) = self.targets.get_mut(name) else { return false };
        target.in_flight = None;
        if *done == Job::Forget {
            if target.command.is_none() && !target.pending.is_due() {
                self.targets.remove(name);
                return true;
            }
        } else if target.owned {
            target.record = record;
        }
        let current = target.command.as_ref().map(|command| &command.generation);
        if let Job::Reconcile(worked_on) = done
            && current == Some(&worked_on.generation)
        {
            target.pending.command = false;
        }
        match retry {
            Some((generation, policy)) if current == Some(generation) && target.owned => {
                if target.policy.replace(*policy) != Some(*policy) {
                    target.failures = 0;
                }
                target.failures = target.failures.saturating_add(1);
                self.retries.insert(name.to_owned(), now + policy.delay(target.failures, random()));
            }
            None if matches!(done, Job::Reconcile(_)) => target.failures = 0,
            Some(_) | None => {}
        }
        self.update(name, |_| {});
        false
    }

    /// When [`TargetScheduler::retry`] is due next.
    pub fn next_retry(&self) -> Option<Instant> {
        self.retries.wake()
    }

    /// Queues all targets whose retry is due, and returns their number.
    pub fn retry(&mut self, now: Instant) -> usize {
        let mut count = 0;
        while let Some(name) = self.retries.pop(now) {
            self.changed(&name);
            count += 1;
        }
        count
    }

    fn on_message(&mut self, name: &str, position: u64) -> &mut Target<R> {
        let owned = self.ownership == Ownership::WholeDriver && self.all_owned;
        let target = self.targets.entry(name.to_owned()).or_insert_with(|| Target {
            command: None,
            position: 0,
            replay: 0,
            owned,
            forgotten: false,
            in_flight: None,
            pending: Pending::default(),
            failures: 0,
            policy: None,
            record: R::default(),
        });
        target.position = position;
        target.replay = self.replay;
        target.forgotten = false;
        target
    }

    /// Changes a target and queues it when it has a job that may start.
    fn update(&mut self, name: &str, change: impl FnOnce(&mut Target<R>)) {
        let Some(target) = self.targets.get_mut(name) else { return };
        change(target);
        if target.may_start() && target.in_flight.is_none() {
            self.queue.push(lane(name), name.to_owned());
        }
    }
}

/// The generation for an invalid message that carries none and follows `known`. The empty hash keeps the
/// failure from being attributed to the known command.
pub(super) fn generation_without_hash(known: &Generation) -> Generation {
    Generation { hash: String::new(), ..known.clone() }
}

/// The fair-queue lane of a target: its namespace for `namespace/name`. All others, such as switches, share
/// one lane.
fn lane(target: &str) -> &str {
    target.split_once('/').map_or("", |(namespace, _)| namespace)
}

#[cfg(test)]
#[path = "scheduler_tests.rs"]
mod tests;
