//! Which commands go when, and what comes of reports on them.

use std::hash::{BuildHasher as _, Hasher as _};
use std::time::{Duration, Instant};

use eno_core::{Event, Key, Kind, Name, Target};
use eno_schemas::{ChangeReport, Desired, Drift, Generation, Outcome, Report};
use jiff::Timestamp;
use kube::runtime::events::EventType;
use tracing::{debug, info, warn};

use super::{Realm, Throne};
use crate::drift::DRIFT;
use crate::events;
use crate::gate::{Answer, DEADLINE, Participant, Turn};
use crate::publish;
use crate::repairs;

/// A network that a switch refused is tried again after so long, twice as long after each further try,
const FIRST_RETRY: Duration = Duration::from_secs(5);
/// and so long at most.
const LAST_RETRY: Duration = Duration::from_mins(5);

impl Throne {
    /// A driver reported on its target.
    pub(super) fn reported(&mut self, target: Target, driver: &Name, mut report: Box<Report>) {
        // What a former driver of the target says no longer counts.
        if self.gate.driver(&target).is_some_and(|current| current != driver) {
            return;
        }
        let found = report.generation.term;
        // Nothing is commanded before all is seen.
        let of_another = || !self.unsynced.is_empty() || !self.gate.has_issued(&report.generation);
        if found > self.term || (found == self.term && of_another()) {
            self.used = self.used.max(Some(found));
        }
        if self.told_by_another(&target, driver, &report.generation)
            && matches!(report.outcome, Outcome::Failed(_))
        {
            // That of what nobody wants says nothing of what is wanted.
            return;
        }
        let answer = match report.outcome {
            Outcome::Progress { .. } => None,
            Outcome::Applied => Some(Answer::Applied),
            Outcome::Held => {
                Some(Answer::Held { refused: self.engine.rejects_planned_change(&target, &report) })
            }
            Outcome::RolledBack { .. } => Some(Answer::RolledBack),
            Outcome::Failed(ref failure) if failure.retryable => Some(Answer::Waits),
            Outcome::Failed(_) => Some(Answer::Failed),
        };
        if answer == Some(Answer::RolledBack) && report.change.is_none() {
            report.change = self.gate.transaction(&target).map(|id| ChangeReport {
                transaction: Some(id.to_owned()),
                at: report.at.clone(),
                took_ms: 0,
                added: 0,
                removed: 0,
            });
        }
        if let Some(answer) = answer
            && self.gate.reported(&target, &report.generation, answer, Instant::now())
            && let Target::Fabric(name) = &target
        {
            self.engine.handle(Event::ChangeRefused(name.clone(), report.clone()));
        }
        match &target {
            Target::Node(node) => self.tell_repairs(node, &report),
            Target::Fabric(name) if answer.is_some_and(Answer::is_final) => {
                self.tell_drift(name, &report);
                self.report_taken_off(name, &report);
            }
            Target::Fabric(_) | Target::Nad(..) => {}
        }
        self.engine.handle(Event::Report(target, report));
    }

    /// A leader that was stopped for a while may have had a command on its way, or what stands there is no command: what
    /// is wanted is said again, and a target that nobody wants any more is forgotten. True when it is said again.
    fn told_by_another(&mut self, target: &Target, driver: &Name, generation: &Generation) -> bool {
        if self.gate.overwritten(target, generation, Instant::now()) {
            warn!(%target, %generation, "a command that is not this engine's is replaced");
            return true;
        }
        if self.begun {
            self.forget_unwanted(target, driver);
        } else if self.gate.driver(target).is_none() {
            self.uncommanded.push((target.clone(), driver.clone()));
        }
        false
    }

    /// Forgets a target that was reported on, of which no command is known, if nobody wants it: who was to forget it
    /// died meanwhile. Of this term too: of a subject that was taken off, a server that is killed remembers that its
    /// last message is gone, and not always that the ones before it are.
    pub(super) fn forget_unwanted(&mut self, target: &Target, driver: &Name) {
        // The desired state of a switch is large: it is not made of a target whose command is known.
        if self.gate.driver(target).is_none()
            && self.engine.desired(target).is_none()
            && self.gate.forget_unknown(target)
        {
            self.forget(target.clone(), driver.clone());
        }
    }

    /// Tells of what an agent has put right on its node. A report of former times was told by who led then.
    fn tell_repairs(&mut self, node: &Name, report: &Report) {
        if !repairs::any(report) || self.is_former(report) {
            return;
        }
        let desired = match self.engine.desired(&Target::Node(node.clone())) {
            Some((_, Desired::Node(desired))) => Some(desired),
            _ => None,
        };
        for (object, note) in repairs::told(node, desired.as_ref(), &self.objects, report) {
            self.events.tell(object, EventType::Normal, "Repaired", "Repair", note);
        }
    }

    /// Tells of differences on a switch that were not there at its last report.
    fn tell_drift(&mut self, name: &Name, report: &Report) {
        let new = self.drifts.take(name, report, self.engine.drift_policy(name));
        if new.is_empty() || self.is_former(report) {
            return;
        }
        self.realm.metrics.drift.inc_by(u64::try_from(new.len()).unwrap_or_default());
        self.warn(name, DRIFT, "Compare", &new);
    }

    /// Tells of VLANs that were taken off the lists of others since the last report.
    fn report_taken_off(&mut self, name: &Name, report: &Report) {
        let new = self.taken_off.take(name, report, Drift::Report);
        if !new.is_empty() && !self.is_former(report) {
            self.warn(name, eno_schemas::VLAN_TAKEN_OFF, "Reconcile", &new);
        }
    }

    /// An Event about a switch.
    fn warn(&self, name: &Name, reason: &str, action: &str, messages: &[String]) {
        let key = Key::cluster(Kind::FabricDevice, name);
        if let Some(stored) = self.objects.get(&key) {
            let object = events::of_object(&key, &stored.uid);
            self.events.tell(object, EventType::Warning, reason, action, &messages.join("; "));
        }
    }

    /// It was made before this time of leading.
    fn is_former(&self, report: &Report) -> bool {
        report.at.parse::<Timestamp>().is_ok_and(|at| at < self.since)
    }

    /// A network is to be tried again after a while.
    pub(super) fn retry_later(&mut self, network: Key, attempt: u32) {
        let random = std::hash::RandomState::new().build_hasher().finish();
        self.retries.insert((Instant::now() + back_off(attempt, random), network, attempt));
    }

    /// Does what was put off until now.
    pub(super) fn end_retries(&mut self) {
        let now = Instant::now();
        while let Some((at, network, attempt)) = self.retries.pop_first() {
            if at > now {
                self.retries.insert((at, network, attempt));
                return;
            }
            self.engine.handle(Event::RetryDue(network, attempt));
        }
    }

    /// Publishes the commands whose turn has come; tells when to look again.
    pub(super) fn publish(&mut self) -> Option<Instant> {
        if !self.unsynced.is_empty() {
            return None;
        }
        let now = Instant::now();
        let engine = &self.engine;
        if self.begun {
            self.gate.release(|who| engine.is_same_endpoint(&who.target, &who.driver, &who.desired));
        }
        let due = self.gate.due(now, |switches| engine.transaction_groups(switches));
        for target in due.decided {
            if let Some((who, turn)) = self.gate.decision(&target, now) {
                self.send(who, turn);
            }
        }
        for target in due.alone {
            if let Target::Fabric(name) = &target
                && self.gate.is_silent(&target, now)
            {
                self.engine.handle(Event::MissedDeadline(name.clone()));
            }
            if let Some(who) = self.wanted(target) {
                self.publish_alone(who, now);
            }
        }
        for targets in due.together {
            self.publish_together(targets, now);
        }
        for ended in self.gate.ended() {
            let (id, outcome, participants) = (&ended.id, ended.outcome, ended.participants);
            info!(transaction = id, outcome, participants, took = ?ended.took, late = ?ended.late, "decided");
            self.realm.metrics.transaction(&ended);
            for target in ended.late {
                if let Target::Fabric(name) = target {
                    self.engine.handle(Event::MissedDeadline(name));
                }
            }
        }
        let (waiting, outstanding) = self.gate.counts();
        self.realm.metrics.publish_waiting.set(i64::try_from(waiting).unwrap_or(i64::MAX));
        self.realm.metrics.publish_outstanding.set(i64::try_from(outstanding).unwrap_or(i64::MAX));
        due.next
    }

    /// What is wanted of a target now.
    fn wanted(&mut self, target: Target) -> Option<Participant> {
        let Some((driver, desired)) = self.engine.desired(&target) else {
            self.gate.dropped(&target);
            return None;
        };
        let hash = self.engine.desired_hash(&target, &desired);
        Some(Participant { target, driver, desired, hash })
    }

    fn publish_alone(&mut self, who: Participant, now: Instant) {
        match self.gate.take(&who.target, &who.driver, who.hash.clone(), now) {
            Some(turn) => self.send(who, turn),
            None => self.realm.metrics.command("same"),
        }
    }

    /// One transaction of all that have something to do.
    fn publish_together(&mut self, targets: Vec<Target>, now: Instant) {
        let all: Vec<Participant> = targets.into_iter().filter_map(|target| self.wanted(target)).collect();
        let (part, same): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|who| !self.gate.is_said(&who.target, &who.driver, &who.hash));
        for who in same {
            self.publish_alone(who, now);
        }
        if part.len() < 2 {
            return part.into_iter().for_each(|who| self.publish_alone(who, now));
        }
        let at = Timestamp::now();
        let deadline = at.checked_add(DEADLINE).unwrap_or(at);
        for (who, turn) in self.gate.open(part, deadline.to_string(), now) {
            self.send(who, turn);
        }
    }

    fn send(&mut self, who: Participant, turn: Turn) {
        let Participant { target, driver, desired, .. } = who;
        self.engine.handle(Event::CommandIssued(target.clone(), turn.generation.clone()));
        debug!(%target, driver = &*driver, generation = %turn.generation, "publishing");
        let Realm { connection, metrics, tenure, .. } = self.realm.clone();
        let mailbox = self.mailbox.clone();
        self.publishing.spawn(async move {
            tenure.held().await;
            publish::publish(&connection, &mailbox, &metrics, target, driver, desired, turn).await
        });
    }
}

/// How long a network that was refused waits before its next try: between three quarters and all of a time that
/// doubles, by a random number.
fn back_off(attempt: u32, random: u64) -> Duration {
    let doubled = FIRST_RETRY.saturating_mul(2_u32.saturating_pow(attempt.saturating_sub(1).min(16)));
    let quarter = doubled.min(LAST_RETRY) / 4;
    quarter * 3 + quarter * u32::try_from(random % 257).unwrap_or_default() / 256
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_back_off_doubles_up_to_a_bound_and_never_is_the_same_for_all() {
        let longest = |attempt| back_off(attempt, 256);
        assert_eq!([1, 2, 3].map(longest), [5, 10, 20].map(Duration::from_secs));
        assert_eq!([7, 40, u32::MAX].map(longest), [LAST_RETRY; 3]);
        assert_eq!(back_off(2, 0), Duration::from_millis(7500));
        assert!(back_off(2, 100) < back_off(2, 101));
    }
}
