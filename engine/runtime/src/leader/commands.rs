//! Publishes commands and handles the reports on them.

use eno_core::{
    DecidedTransaction, Event, Key, Kind, Name, Participant, PendingCommand, Republished, StreamEvent, Target,
};
use eno_schemas::{Desired, Drift, Outcome, Report, Text};
use jiff::Timestamp;
use kube::runtime::events::EventType;
use tracing::{debug, info, warn};

use super::{Leader, LeaderContext};
use crate::commands::drift::DRIFT;
use crate::commands::publish;
use crate::commands::repairs;
use crate::metrics::Metrics;
use crate::status::events;

impl Leader {
    /// A driver reported on its target.
    pub(super) fn handle_report(&mut self, target: Target, report: Box<Report>) {
        if self.engine.is_unissued(&report.generation) {
            self.context.metrics.malformed("report");
            warn!(%target, generation = %report.generation, "a report is of a generation that no engine issued");
            let driver = report.driver.as_str().into();
            return self.engine.handle(Event::Stream(StreamEvent::ReportUnissued(target, driver)));
        }
        if self.engine.accepts_report(&target, &report) {
            match &target {
                Target::Node(node) => self.publish_repair_events(node, &report),
                Target::Fabric(name)
                    if !matches!(report.outcome, Outcome::Progress { .. } | Outcome::Held) =>
                {
                    self.publish_drift_events(name, &report);
                    self.publish_vlan_taken_off_events(name, &report);
                }
                Target::Fabric(_) | Target::Nad(..) => {}
            }
        }
        self.engine.handle(Event::Report(target, report));
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
            self.outputs.events.publish(object, EventType::Normal, "Repaired", "Repair", note);
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
    fn publish_warning(&self, name: &Name, reason: &str, action: &str, messages: &[Text]) {
        let key = Key::cluster(Kind::FabricDevice, name);
        if let Some(stored) = self.objects.get(&key) {
            let object = events::object_ref(&key, &stored.uid);
            self.outputs.events.publish(object, EventType::Warning, reason, action, &messages.join("; "));
        }
    }

    /// True when the report was made before this leadership.
    fn predates_leadership(&self, report: &Report) -> bool {
        report.at.parse::<Timestamp>().is_ok_and(|at| at < self.leading_since)
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
    }

    pub(super) fn send_command(&mut self, participant: Participant, command: PendingCommand) {
        let Participant { target, driver, desired, .. } = participant;
        debug!(%target, driver = &*driver, generation = %command.generation, "publishing");
        let LeaderContext { connection, metrics, lease_guard, .. } = self.context.clone();
        let mailbox = self.outputs.mailbox.clone();
        self.publishing.spawn(async move {
            lease_guard.wait_until_held().await;
            publish::publish(&connection, &mailbox, &metrics, target, driver, desired, command).await;
        });
    }
}

/// Logs and counts commands that have to be published again.
pub(super) fn log_republished(metrics: &Metrics, republished: Vec<(Target, Republished)>) {
    let (lost, replaced): (Vec<_>, Vec<_>) =
        republished.into_iter().partition(|(_, cause)| *cause == Republished::Lost);
    if !lost.is_empty() {
        warn!(lost = lost.len(), "NATS lost commands: publishing them again");
    }
    for (target, _) in replaced {
        metrics.command("replaced");
        warn!(%target, "a command that is not this engine's is replaced");
    }
}
