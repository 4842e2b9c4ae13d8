//! Commands in parts: which driver gets them, and what has to be published again or purged.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use eno_core::{Event, Name, PendingCommand, StreamEvent, Target};
use eno_schemas::{Desired, Outcome, Report};
use tracing::{debug, info};

use super::{Leader, LeaderContext};
use crate::commands::drivers::StoredCommands;
use crate::commands::parts::{Ledger, PartsEvent, Place, SwitchState};
use crate::commands::publish::{self, Outgoing};

/// What the leader knows of the parts of commands.
#[derive(Debug, Default)]
pub(super) struct CommandParts {
    ledger: Ledger,
    /// The drivers that get their commands in parts.
    drivers: BTreeSet<Name>,
}

impl CommandParts {
    /// With what NATS stored before this leadership.
    pub(super) fn restore(stored: &StoredCommands) -> Self {
        let mut ledger = Ledger::default();
        for command in &stored.commands {
            let place = (command.target.clone(), command.driver.clone());
            let Some((tree, command)) = stored.trees.get(&place).zip(command.command.as_ref()) else {
                continue;
            };
            ledger.restore_head(place, SwitchState::new(Arc::new(command.desired.clone()), tree.clone()));
        }
        ledger.on_event(PartsEvent::Read(stored.parts.clone()), Duration::ZERO);
        Self { ledger, drivers: BTreeSet::new() }
    }

    /// A command as it has to be published. A switch gets it in parts if its driver reads them.
    pub(super) fn outgoing(
        &mut self,
        target: Target,
        driver: Name,
        desired: Arc<Desired>,
        pending: PendingCommand,
        now: Duration,
    ) -> Outgoing {
        let tree = pending.tree.clone().filter(|_| self.drivers.contains(&driver));
        let place = (target, driver);
        let parts = tree.map(|tree| {
            let state = SwitchState::new(desired.clone(), tree);
            let missing = self.ledger.publish(&place, &state, now);
            (state, missing)
        });
        let (target, driver) = place;
        Outgoing { target, driver, desired, pending, parts }
    }

    /// When there may be something to do, if nothing happens before.
    pub(super) fn next(&self) -> Option<Duration> {
        self.ledger.next()
    }

    /// True for a report of a driver's earlier version that it can't read a head. The switch gets a whole command.
    fn refuses_head(&self, place: &Place, report: &Report) -> bool {
        let is_refusal = matches!(&report.outcome, Outcome::Failed(failure) if !failure.retryable);
        is_refusal && !self.drivers.contains(&place.1) && self.ledger.is_head(place, &report.generation.hash)
    }
}

impl Leader {
    pub(super) fn handle_parts(&mut self, event: PartsEvent) {
        self.parts.ledger.on_event(event, self.started.elapsed());
    }

    /// Takes in a report, and which parts its driver lacks.
    pub(super) fn handle_report(&mut self, target: Target, report: Box<Report>) {
        let place = (target, Name::from(report.driver.as_str()));
        if self.parts.refuses_head(&place, &report) {
            debug!(target = %place.0, "the driver's process does not read commands in parts");
            return;
        }
        if let (false, Ok(root)) = (report.lacking.is_empty(), report.generation.hash.parse()) {
            self.parts.ledger.lacking(&place, root, &report.lacking, self.started.elapsed());
        }
        self.engine.handle(Event::Report(place.0, report));
    }

    /// Takes in which drivers read commands in parts. One of which an earlier version appeared gets whole commands.
    pub(super) fn set_drivers_of_parts(&mut self, drivers: BTreeSet<Name>) {
        let before = std::mem::replace(&mut self.parts.drivers, drivers);
        for driver in before.difference(&self.parts.drivers) {
            info!(%driver, "a process of the driver does not read commands in parts: it gets whole ones");
        }
        let unread = |(_, driver): &Place| !self.parts.drivers.contains(driver);
        let heads: Vec<Place> = self.parts.ledger.heads().filter(|place| unread(place)).cloned().collect();
        for (target, driver) in heads {
            self.engine.handle(Event::Stream(StreamEvent::CommandUnread(target, driver)));
        }
    }

    /// Publishes parts again that NATS lost, and purges those that no command names.
    pub(super) fn work_on_parts(&mut self) {
        let now = self.started.elapsed();
        for resend in self.parts.ledger.resends(now) {
            let LeaderContext { connection, lease_guard, .. } = self.context.clone();
            let mailbox = self.outputs.mailbox.clone();
            self.publishing.spawn(async move {
                lease_guard.wait_until_held().await;
                publish::resend(&connection, &mailbox, resend).await;
            });
        }
        for purge in self.parts.ledger.purges(now) {
            let LeaderContext { connection, lease_guard, .. } = self.context.clone();
            let mailbox = self.outputs.mailbox.clone();
            self.publishing.spawn(async move {
                lease_guard.wait_until_held().await;
                publish::purge_part(&connection, &mailbox, purge).await;
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use eno_schemas::{Device, FabricDesired, FabricVlans, Failure, Generation, Tree};

    use super::*;

    fn pending(tree: Option<Arc<Tree>>, hash: String) -> PendingCommand {
        let generation = Generation { term: 1, sequence: 1, hash };
        PendingCommand { generation, expected: 0, moved_from: None, transaction: None, tree }
    }

    #[test]
    fn driver_that_reads_parts_gets_them_and_another_one_can_not_refuse_them() {
        let fabric = FabricDesired {
            cluster: "lab".into(),
            cluster_uid: None,
            device: Device::new("192.0.2.1:830"),
            vrfs: Vec::new(),
            lookup: None,
            vlans: FabricVlans::new(),
            ports: Vec::new(),
        };
        let tree = Arc::new(Tree::of(&fabric));
        let hash = tree.root().to_string();
        let desired = Arc::new(Desired::Fabric(fabric));
        let mut parts = CommandParts { drivers: [Name::from("netconf")].into(), ..CommandParts::default() };
        let missing = |driver: &str, tree: Option<&Arc<Tree>>, parts: &mut CommandParts| {
            let (target, pending) = (Target::Fabric("leaf1".into()), pending(tree.cloned(), hash.clone()));
            let outgoing = parts.outgoing(target, driver.into(), desired.clone(), pending, Duration::ZERO);
            outgoing.parts.map(|(_, missing)| missing.len())
        };
        assert_eq!(missing("netconf", Some(&tree), &mut parts), Some(2), "the root and the switch");
        assert_eq!(missing("other", Some(&tree), &mut parts), None);
        assert_eq!(missing("netconf", None, &mut parts), None, "the hash is of an earlier version");

        let place: Place = (Target::Fabric("leaf1".into()), "netconf".into());
        let report = |hash: &str, retryable| {
            let failure = Failure { reason: "of version 2".into(), retryable, unreachable: false };
            let generation = Generation { term: 1, sequence: 1, hash: hash.into() };
            let report = Report::new(("netconf", "leaf1"), generation, ("1", "2030-01-01T00:00:00Z"));
            Report { outcome: Outcome::Failed(failure), ..report }
        };
        assert!(!parts.refuses_head(&place, &report(&hash, false)), "each process reads parts");
        parts.drivers.clear();
        assert!(parts.refuses_head(&place, &report(&hash, false)));
        assert!(!parts.refuses_head(&place, &report(&hash, true)));
        assert!(!parts.refuses_head(&place, &report("another", false)));
    }
}
