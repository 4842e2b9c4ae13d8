//! Publishes commands and handles the reports on them.

use std::hash::{BuildHasher as _, Hasher as _};
use std::time::{Duration, Instant};

use eno_core::{
    DecidedTransaction, DriverAnswer, Event, Key, Kind, Name, Participant, PendingCommand, Target,
};
use eno_schemas::{ChangeReport, Desired, Drift, Generation, Outcome, Report};
use jiff::Timestamp;
use kube::runtime::events::EventType;
use tracing::{debug, info, warn};

use super::{Leader, LeaderContext};
use crate::commands::drift::DRIFT;
use crate::commands::publish;
use crate::commands::repairs;
use crate::status::events;

/// First delay before a network that a switch refused is retried; it doubles with each attempt,
const FIRST_RETRY_DELAY: Duration = Duration::from_secs(5);
/// up to this delay.
const MAX_RETRY_DELAY: Duration = Duration::from_mins(5);

impl Leader {
    /// A driver reported on its target.
    pub(super) fn handle_report(&mut self, target: Target, driver: &Name, mut report: Box<Report>) {
        // Reports of a former driver of the target do not count.
        if self.engine.schedule().driver(&target).is_some_and(|current| current != driver) {
            return;
        }
        let found = report.generation.term;
        // This engine issues no command before all sources are synced.
        let unknown_to_this_leader =
            || !self.unsynced.is_empty() || !self.engine.schedule().has_issued(&report.generation);
        if found > self.term || (found == self.term && unknown_to_this_leader()) {
            self.conflicting_term = self.conflicting_term.max(Some(found));
        }
        if self.is_replaced(&target, driver, &report.generation)
            && matches!(report.outcome, Outcome::Failed(_))
        {
            // A failure of a command that was replaced says nothing about the desired state.
            return;
        }
        let answer = match report.outcome {
            Outcome::Progress { .. } => None,
            Outcome::Applied => Some(DriverAnswer::Applied),
            Outcome::Held => {
                Some(DriverAnswer::Held { refused: self.engine.rejects_planned_change(&target, &report) })
            }
            Outcome::RolledBack { .. } => Some(DriverAnswer::RolledBack),
            Outcome::Failed(ref failure) if failure.retryable => Some(DriverAnswer::WillRetry),
            Outcome::Failed(_) => Some(DriverAnswer::Failed),
        };
        if answer == Some(DriverAnswer::RolledBack) && report.change.is_none() {
            report.change = self.engine.schedule().transaction(&target).map(|id| ChangeReport {
                transaction: Some(id.to_owned()),
                at: report.at.clone(),
                took_ms: 0,
                added: 0,
                removed: 0,
            });
        }
        if let Some(answer) = answer
            && self.engine.schedule_mut().handle_report(
                &target,
                &report.generation,
                answer,
                self.started.elapsed(),
            )
            && let Target::Fabric(name) = &target
        {
            self.engine.handle(Event::ChangeRefused(name.clone(), report.clone()));
        }
        match &target {
            Target::Node(node) => self.publish_repair_events(node, &report),
            Target::Fabric(name) if answer.is_some_and(DriverAnswer::is_final) => {
                self.publish_drift_events(name, &report);
                self.publish_vlan_taken_off_events(name, &report);
            }
            Target::Fabric(_) | Target::Nad(..) => {}
        }
        self.engine.handle(Event::Report(target, report));
    }

    /// Checks whether the target's command was replaced, by a late command of a former leader or by an invalid
    /// message. If so, the desired state is published again. A target that is no longer desired is removed. True: the
    /// command was replaced.
    fn is_replaced(&mut self, target: &Target, driver: &Name, generation: &Generation) -> bool {
        if self.engine.schedule_mut().command_replaced(target, generation, self.started.elapsed()) {
            warn!(%target, %generation, "a command that is not this engine's is replaced");
            return true;
        }
        if self.settled_once {
            self.remove_unwanted(target, driver);
        } else if self.engine.schedule().driver(target).is_none() {
            self.uncommanded.push((target.clone(), driver.clone()));
        }
        false
    }

    /// Removes a target that is not desired and has no known command, when a report on it shows up: the former leader
    /// died before it removed it. Such reports may be of this term as well: after a purge, a NATS server that is
    /// killed may restore older messages of the subject.
    pub(super) fn remove_unwanted(&mut self, target: &Target, driver: &Name) {
        // The desired state of a switch is large; the first check avoids building it.
        if self.engine.schedule().driver(target).is_none()
            && self.engine.desired(target).is_none()
            && self.engine.schedule_mut().remove_unknown(target)
        {
            self.remove_target(target.clone(), driver.clone());
        }
    }

    /// Publishes Events of repairs that an agent made on its node. Reports of former terms have their Events already.
    fn publish_repair_events(&mut self, node: &Name, report: &Report) {
        if !repairs::has_repairs(report) || self.predates_leadership(report) {
            return;
        }
        let desired = match self.engine.desired(&Target::Node(node.clone())) {
            Some((_, Desired::Node(desired))) => Some(desired),
            _ => None,
        };
        for (object, note) in repairs::repair_events(node, desired.as_ref(), &self.objects, report) {
            self.events.publish(object, EventType::Normal, "Repaired", "Repair", note);
        }
    }

    /// Publishes an Event of drift on a switch that the previous report did not have.
    fn publish_drift_events(&mut self, name: &Name, report: &Report) {
        let new = self.drift_notes.new_notes(name, report, self.engine.drift_policy(name));
        if new.is_empty() || self.predates_leadership(report) {
            return;
        }
        self.context.metrics.drift.inc_by(u64::try_from(new.len()).unwrap_or_default());
        self.publish_warning(name, DRIFT, "Compare", &new);
    }

    /// Publishes an Event of VLANs that were removed from lists of other owners since the last report.
    fn publish_vlan_taken_off_events(&mut self, name: &Name, report: &Report) {
        let new = self.vlan_taken_off_notes.new_notes(name, report, Drift::Report);
        if !new.is_empty() && !self.predates_leadership(report) {
            self.publish_warning(name, eno_schemas::VLAN_TAKEN_OFF, "Reconcile", &new);
        }
    }

    /// Publishes a warning Event of a switch.
    fn publish_warning(&self, name: &Name, reason: &str, action: &str, messages: &[String]) {
        let key = Key::cluster(Kind::FabricDevice, name);
        if let Some(stored) = self.objects.get(&key) {
            let object = events::object_ref(&key, &stored.uid);
            self.events.publish(object, EventType::Warning, reason, action, &messages.join("; "));
        }
    }

    /// True when the report was made before this leadership.
    fn predates_leadership(&self, report: &Report) -> bool {
        report.at.parse::<Timestamp>().is_ok_and(|at| at < self.leading_since)
    }

    /// Schedules a retry of a network.
    pub(super) fn schedule_retry(&mut self, network: Key, attempt: u32) {
        let random = std::hash::RandomState::new().build_hasher().finish();
        self.retries.insert((Instant::now() + retry_delay(attempt, random), network, attempt));
    }

    /// Passes retries that are due to the core.
    pub(super) fn run_due_retries(&mut self) {
        let now = Instant::now();
        while let Some((at, network, attempt)) = self.retries.pop_first() {
            if at > now {
                self.retries.insert((at, network, attempt));
                return;
            }
            self.engine.handle(Event::RetryDue(network, attempt));
        }
    }

    /// Counts what became of changed targets, and logs the transactions that were decided.
    pub(super) fn count_commands(&self, unchanged: usize, decided: Vec<DecidedTransaction>) {
        for _ in 0..unchanged {
            self.context.metrics.command("same");
        }
        for ended in decided {
            let (id, outcome, participants) = (&ended.id, ended.outcome, ended.participants);
            info!(transaction = id, outcome, participants, took = ?ended.took, late = ?ended.late, "decided");
            self.context.metrics.transaction(&ended);
        }
        let (waiting, outstanding) = self.engine.schedule().counts();
        self.context.metrics.publish_waiting.set(i64::try_from(waiting).unwrap_or(i64::MAX));
        self.context.metrics.publish_outstanding.set(i64::try_from(outstanding).unwrap_or(i64::MAX));
    }

    pub(super) fn send_command(&mut self, participant: Participant, command: PendingCommand) {
        let Participant { target, driver, desired, .. } = participant;
        debug!(%target, driver = &*driver, generation = %command.generation, "publishing");
        let LeaderContext { connection, metrics, lease_guard, .. } = self.context.clone();
        let mailbox = self.mailbox.clone();
        self.publishing.spawn(async move {
            lease_guard.wait_until_held().await;
            publish::publish(&connection, &mailbox, &metrics, target, driver, desired, command).await
        });
    }
}

/// Delay before the retry of a refused network: doubles with each attempt, between 75 and 100 percent by `random`.
fn retry_delay(attempt: u32, random: u64) -> Duration {
    let doubled = FIRST_RETRY_DELAY.saturating_mul(2_u32.saturating_pow(attempt.saturating_sub(1).min(16)));
    let quarter = doubled.min(MAX_RETRY_DELAY) / 4;
    quarter * 3 + quarter * u32::try_from(random % 257).unwrap_or_default() / 256
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_delay_doubles_up_to_maximum_with_jitter() {
        let longest = |attempt| retry_delay(attempt, 256);
        assert_eq!([1, 2, 3].map(longest), [5, 10, 20].map(Duration::from_secs));
        assert_eq!([7, 40, u32::MAX].map(longest), [MAX_RETRY_DELAY; 3]);
        assert_eq!(retry_delay(2, 0), Duration::from_millis(7500));
        assert!(retry_delay(2, 100) < retry_delay(2, 101));
    }
}
