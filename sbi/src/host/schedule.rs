//! Which target is worked on when: no IO, and time comes in as an argument.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use eno_schemas::{Command, Generation};
use tokio::sync::watch;

use super::Ownership;
use crate::fair_queue::FairQueue;
use crate::work::Newest;

const FIRST_RETRY: Duration = Duration::from_millis(500);
const LAST_RETRY: Duration = Duration::from_mins(1);

/// A message on a target's command subject that is no command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BadCommand {
    /// As far as it can be made out.
    pub generation: Option<Generation>,
    /// What is wrong with it and where.
    pub reason: String,
}

/// Something to do about a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Job {
    /// Bring it to the state of this command.
    Reconcile(Arc<Command>),
    /// Report that a command can't be read; with the generation that the report has.
    Reject(BadCommand, Generation),
    /// See whether the report last published is still there.
    Verify,
    /// Drop what the driver holds of it.
    Forget,
}

/// A job that may start.
#[derive(Debug)]
pub(super) struct Start<R> {
    pub target: String,
    pub job: Job,
    /// Follows the newest command of the target.
    pub newest: watch::Receiver<Newest>,
    /// What is known of its published reports.
    pub record: R,
}

/// What came of offering a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Offer {
    New,
    Known,
    Older,
}

#[derive(Default)]
#[expect(clippy::struct_excessive_bools, reason = "each may be due besides the others")]
struct Pending {
    /// The newest command was not worked on yet.
    command: bool,
    /// It is to be worked on again.
    again: bool,
    reject: Option<BadCommand>,
    verify: bool,
    forget: bool,
}

impl Pending {
    fn any(&self) -> bool {
        self.command || self.again || self.reject.is_some() || self.verify || self.forget
    }
}

struct Target<R> {
    command: Option<Arc<Command>>,
    /// Position in the stream of the last message on its subject.
    position: u64,
    /// The reading of the stream in which it was last seen.
    reading: u64,
    owned: bool,
    /// No message came since it was forgotten.
    forgotten: bool,
    queued: bool,
    busy: Option<watch::Sender<Newest>>,
    pending: Pending,
    retries: Option<ExponentialBackoff>,
    retry_at: Option<Instant>,
    record: R,
}

impl<R> Target<R> {
    fn may_start(&self) -> bool {
        self.pending.forget || (self.owned && self.pending.any())
    }
}

/// All targets of a driver. `R` is what the caller wants kept with each.
pub(super) struct Schedule<R> {
    targets: HashMap<String, Target<R>>,
    queue: FairQueue<String>,
    retries: BTreeSet<(Instant, String)>,
    reading: u64,
    ownership: Ownership,
    all_owned: bool,
}

impl<R: Default> Schedule<R> {
    pub fn new(ownership: Ownership) -> Self {
        Self {
            targets: HashMap::new(),
            queue: FairQueue::default(),
            retries: BTreeSet::new(),
            reading: 0,
            ownership,
            all_owned: false,
        }
    }

    /// How many targets have a command.
    pub fn len(&self) -> usize {
        self.targets.len()
    }

    /// True when the target is known.
    pub fn contains(&self, target: &str) -> bool {
        self.targets.contains_key(target)
    }

    /// True when the target is known, and not about to be forgotten.
    pub fn is_wanted(&self, target: &str) -> bool {
        self.targets.get(target).is_some_and(|target| !target.forgotten)
    }

    /// The newest command of a target that this instance works on.
    pub fn commanded(&self, target: &str) -> Option<&Arc<Command>> {
        self.targets.get(target).filter(|target| target.owned)?.command.as_ref()
    }

    /// Position in the stream of the last message of the target; `None`: unknown target.
    pub fn position(&self, target: &str) -> Option<u64> {
        self.targets.get(target).map(|target| target.position)
    }

    /// The stream is read from its start again.
    pub fn reading_starts(&mut self) {
        self.reading += 1;
    }

    /// Everything in the stream has been offered: targets that were not there are gone, and of the others the
    /// published reports may be. Returns the gone ones.
    pub fn reading_caught_up(&mut self) -> Vec<String> {
        let reading = self.reading;
        let (seen, gone): (Vec<_>, Vec<_>) =
            self.targets.iter().partition(|(_, target)| target.reading == reading);
        let seen: Vec<String> = seen.into_iter().map(|(name, _)| name.clone()).collect();
        let gone: Vec<String> = gone.into_iter().map(|(name, _)| name.clone()).collect();
        for name in &seen {
            self.add(name, |target| target.pending.verify |= target.command.is_some());
        }
        for name in &gone {
            self.forget(name);
        }
        gone
    }

    /// Takes a command at `position` of the stream.
    pub fn offer(&mut self, command: Arc<Command>, position: u64) -> Offer {
        let name = command.target.clone();
        let target = self.seen(&name, position);
        if let Some(known) = &target.command {
            let order = |generation: &Generation| (generation.term, generation.sequence);
            let (known, offered) = (order(&known.generation), order(&command.generation));
            if offered <= known {
                return if offered == known { Offer::Known } else { Offer::Older };
            }
        }
        if let Some(newest) = &target.busy {
            newest.send_replace(Newest::Command(command.clone()));
        }
        target.command = Some(command);
        target.retries = None;
        self.unschedule(&name);
        self.add(&name, |target| target.pending.command = true);
        Offer::New
    }

    /// Takes a message that is no command. What was commanded before stays.
    pub fn offer_bad(&mut self, name: &str, position: u64, bad: BadCommand) {
        self.seen(name, position);
        self.add(name, |target| target.pending.reject = Some(bad));
    }

    /// Something on the target changed by another hand.
    pub fn changed(&mut self, name: &str) {
        self.add(name, |target| target.pending.again |= target.command.is_some());
    }

    /// The target is gone for good. What comes of it later is to be owned anew.
    pub fn forget(&mut self, name: &str) {
        self.unschedule(name);
        let stays_owned = self.ownership == Ownership::WholeDriver;
        self.add(name, |target| {
            target.owned &= stays_owned;
            target.forgotten = true;
            target.command = None;
            target.retries = None;
            target.pending = Pending { forget: true, ..Pending::default() };
            if let Some(newest) = &target.busy {
                newest.send_replace(Newest::End);
            }
        });
    }

    /// This instance works from now on, or no more, on one target or (`None`) on all.
    pub fn set_owned(&mut self, name: Option<&str>, owned: bool) {
        let names: Vec<String> = if let Some(name) = name {
            vec![name.to_owned()]
        } else {
            self.all_owned = owned;
            self.targets.keys().cloned().collect()
        };
        for name in names {
            if !owned {
                self.unschedule(&name);
            }
            self.add(&name, |target| {
                target.owned = owned;
                target.retries = None;
                if owned {
                    target.pending.again |= target.command.is_some();
                } else {
                    if let Some(newest) = &target.busy {
                        newest.send_replace(Newest::End);
                    }
                    // Another instance reports from now on.
                    target.record = R::default();
                }
            });
        }
    }

    /// Tells all work in flight that it is not current.
    pub fn wind_down(&mut self) {
        for target in self.targets.values() {
            if let Some(newest) = &target.busy {
                newest.send_replace(Newest::End);
            }
        }
    }

    /// A job that may start now. Call [`Schedule::finished`] when it ended.
    pub fn next(&mut self) -> Option<Start<R>> {
        while let Some(name) = self.queue.pop() {
            let Some(target) = self.targets.get_mut(&name) else { continue };
            target.queued = false;
            if !target.may_start() {
                continue;
            }
            let job = if target.pending.forget {
                target.pending.forget = false;
                Job::Forget
            } else if let Some(bad) = target.pending.reject.take() {
                let known = target.command.as_ref().map(|command| &command.generation);
                let generation = bad.generation.clone().or(known.map(in_the_place_of));
                let nothing = Generation { term: 0, sequence: 0, hash: String::new() };
                Job::Reject(bad, generation.unwrap_or(nothing))
            } else if let (true, Some(command)) =
                (target.pending.command || target.pending.again, &target.command)
            {
                // A reconcile publishes what it finds, which is all that verifying would do.
                target.pending = Pending { forget: target.pending.forget, ..Pending::default() };
                Job::Reconcile(command.clone())
            } else {
                target.pending.verify = false;
                Job::Verify
            };
            let newest = target.command.clone().map_or(Newest::End, Newest::Command);
            let (sender, newest) = watch::channel(newest);
            target.busy = Some(sender);
            let record = std::mem::take(&mut target.record);
            // Whatever else is done, what failed is still to be tried again.
            if matches!(job, Job::Reconcile(_)) {
                self.unschedule(&name);
            }
            return Some(Start { target: name, job, newest, record });
        }
        None
    }

    /// A job ended: `done`, with the command that was worked on in the end, which may have come while it ran.
    /// `retry`: it was about this generation and wants to be tried again. Returns true when the target is gone now.
    pub fn finished(
        &mut self,
        name: &str,
        retry: Option<&Generation>,
        done: &Job,
        record: R,
        now: Instant,
    ) -> bool {
        let Some(target) = self.targets.get_mut(name) else { return false };
        target.busy = None;
        if *done == Job::Forget {
            if target.command.is_none() && !target.pending.any() {
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
            Some(generation) if current == Some(generation) && target.owned => {
                let delay = target
                    .retries
                    .get_or_insert_with(|| {
                        ExponentialBuilder::new()
                            .with_min_delay(FIRST_RETRY)
                            .with_max_delay(LAST_RETRY)
                            .with_jitter()
                            .without_max_times()
                            .build()
                    })
                    .next()
                    .unwrap_or(LAST_RETRY);
                target.retry_at = Some(now + delay);
                self.retries.insert((now + delay, name.to_owned()));
            }
            None if matches!(done, Job::Reconcile(_)) => target.retries = None,
            Some(_) | None => {}
        }
        self.add(name, |_| {});
        false
    }

    /// When [`Schedule::retry`] has something to do next.
    pub fn next_retry(&self) -> Option<Instant> {
        self.retries.first().map(|(at, _)| *at)
    }

    /// Queues what is to be tried again by now; how many.
    pub fn retry(&mut self, now: Instant) -> usize {
        let mut count = 0;
        while let Some((at, name)) = self.retries.first().cloned() {
            if at > now {
                break;
            }
            self.unschedule(&name);
            self.changed(&name);
            count += 1;
        }
        count
    }

    fn seen(&mut self, name: &str, position: u64) -> &mut Target<R> {
        let owned = self.ownership == Ownership::WholeDriver && self.all_owned;
        let target = self.targets.entry(name.to_owned()).or_insert_with(|| Target {
            command: None,
            position: 0,
            reading: 0,
            owned,
            forgotten: false,
            queued: false,
            busy: None,
            pending: Pending::default(),
            retries: None,
            retry_at: None,
            record: R::default(),
        });
        target.position = position;
        target.reading = self.reading;
        target.forgotten = false;
        target
    }

    fn unschedule(&mut self, name: &str) {
        if let Some(at) = self.targets.get_mut(name).and_then(|target| target.retry_at.take()) {
            self.retries.remove(&(at, name.to_owned()));
        }
    }

    /// Changes what is pending for a target and queues it when it may be worked on.
    fn add(&mut self, name: &str, change: impl FnOnce(&mut Target<R>)) {
        let Some(target) = self.targets.get_mut(name) else { return };
        change(target);
        if target.may_start() && !target.queued && target.busy.is_none() {
            target.queued = true;
            self.queue.push(lane(name), name.to_owned());
        }
    }
}

/// The generation of a message without one that came after this one. Nobody is told that what was said before it failed.
pub(super) fn in_the_place_of(known: &Generation) -> Generation {
    Generation { hash: String::new(), ..known.clone() }
}

/// Targets of a namespace are called `namespace/name`; the others, such as switches, take turns with namespaces as one.
fn lane(target: &str) -> &str {
    target.split_once('/').map_or("", |(namespace, _)| namespace)
}

#[cfg(test)]
#[path = "schedule_tests.rs"]
mod tests;
