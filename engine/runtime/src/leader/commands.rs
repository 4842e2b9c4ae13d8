//! Publishes commands, and Events about what drivers report on them.

use eno_core::{About, DecidedTransaction, NoticeKind, Participant, PendingCommand, Republished, Target};
use eno_schemas::{Generation, Text};
use kube::runtime::events::EventType;
use tracing::{debug, info, warn};

use super::{Leader, LeaderContext};
use crate::commands::publish;
use crate::metrics::Metrics;
use crate::status::events;

impl Leader {
    /// Publishes a Kubernetes Event.
    pub(super) fn publish_event(&self, about: &About, kind: NoticeKind, messages: &[Text]) {
        let object = match about {
            About::Object(key) => match self.objects.get(key) {
                Some(stored) => events::object_ref(key, &stored.uid),
                None => return,
            },
            About::Node(name) => events::node_ref(name),
            About::Pod { namespace, name, uid } => events::pod_ref(namespace, name, uid),
        };
        let (severity, reason, action) = match kind {
            NoticeKind::NetworksUnclear => (EventType::Warning, "NetworksUnclear", "Reconcile"),
            NoticeKind::Drift => (EventType::Warning, "Drift", "Compare"),
            NoticeKind::VlanTakenOff => (EventType::Warning, eno_schemas::VLAN_TAKEN_OFF, "Reconcile"),
            NoticeKind::Repaired => (EventType::Normal, "Repaired", "Repair"),
            NoticeKind::PacketsLost => (EventType::Warning, "PacketsLost", "Probe"),
            NoticeKind::PacketsPass => (EventType::Normal, "PacketsPass", "Probe"),
        };
        if kind == NoticeKind::Drift {
            self.context.metrics.drift.inc_by(u64::try_from(messages.len()).unwrap_or_default());
        }
        self.outputs.events.publish(object, severity, reason, action, &messages.join("; "));
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
        let outgoing = self.parts.outgoing(target, driver, desired, command, self.started.elapsed());
        let LeaderContext { connection, metrics, lease_guard, .. } = self.context.clone();
        let mailbox = self.outputs.mailbox.clone();
        self.publishing.spawn(async move {
            lease_guard.wait_until_held().await;
            publish::publish(&connection, &mailbox, &metrics, outgoing).await;
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

/// Logs and counts reports on generations that no engine issued.
pub(super) fn log_unissued(metrics: &Metrics, unissued: Vec<(Target, Generation)>) {
    for (target, generation) in unissued {
        metrics.malformed("report");
        warn!(%target, %generation, "a report is of a generation that no engine issued");
    }
}
