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
