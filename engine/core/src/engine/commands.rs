//! The desired states of targets, and the commands that may be published now.

use std::sync::Arc;
use std::time::Duration;

use eno_schemas::{Desired, Device};

use super::Engine;
use crate::bgp::SPEAKER_DRIVER;
use crate::fabric::{Fabric, IssuedState};
use crate::nad::NAD_DRIVER;
use crate::node::NODE_DRIVER;
use crate::schedule::{Moment, Participant, PendingCommand, Reconciled, Schedule};
use crate::{Key, Kind, Name, Target};

impl Engine {
    /// The driver and the complete desired state of a target. `None`: there is no such target.
    pub fn desired(&self, target: &Target) -> Option<(Name, Arc<Desired>)> {
        match target {
            Target::Fabric(name) => self.fabric.desired(&self.config, &self.schedule.live_drivers, name),
            Target::Nad(namespace, name) => {
                let key = Key::namespaced(Kind::L2ServiceAttachment, namespace, name);
                let desired = self.nad.desired(&self.store, self.pods.ipam(), &key)?;
                Some((NAD_DRIVER.into(), desired.into()))
            }
            Target::Node(name) => {
                let desired = self.node.render(name, &self.config.cluster)?;
                Some((NODE_DRIVER.into(), desired.into()))
            }
            Target::Speaker(name) => {
                Some((SPEAKER_DRIVER.into(), self.groups.speaker_desired(name)?.clone().into()))
            }
        }
    }

    /// A target with a change, and its desired state, which is commanded now. `None`: there is no such target, and the
    /// change is dropped. It may leave work for [`Self::settle`]: a state that the target has already reported gets no
    /// new report.
    fn issue(&mut self, target: &Target) -> Option<Participant> {
        let Some(participant) = self.participant(target) else {
            if let Target::Nad(namespace, name) = target {
                let key = Key::namespaced(Kind::L2ServiceAttachment, namespace, name);
                self.nad.mark_unpublished(&key);
            }
            self.schedule.discard_change(target);
            return None;
        };
        if let Target::Node(name) = target
            && let is_stored = self.schedule.is_commanded(target, &participant.driver, &participant.hash)
            && self.node.record_issued(name, &participant.hash, is_stored)
        {
            let changes = self.node.changes(name, &mut self.work);
            self.change_node(name, changes);
        }
        self.distribute();
        Some(participant)
    }

    /// A target with its desired state. That of a switch is issued.
    fn participant(&mut self, target: &Target) -> Option<Participant> {
        let Target::Fabric(name) = target else {
            let (driver, desired) = self.desired(target)?;
            let hash = desired.hash();
            return Some(Participant { target: target.clone(), driver, desired, tree: None, hash });
        };
        let alive = &self.schedule.live_drivers;
        let issued = self.fabric.issue(&self.config, &self.store, alive, name, &mut self.work)?;
        if issued.is_first {
            // No report follows on which deleted networks would be evaluated.
            self.status.reevaluate_removed(name);
        }
        let IssuedState { driver, state, hash, .. } = issued;
        let (desired, tree) = (state.desired().clone(), Some(state.tree().clone()));
        Some(Participant { target: target.clone(), driver, desired, tree, hash })
    }

    /// Works out all that follows from the events since the last call: effects, and the commands that may be published
    /// now. A state that a target has already reported gets no new report, so commands may have effects in turn.
    pub fn reconcile(&mut self, now: &Moment) -> Reconciled {
        self.schedule.now = now.elapsed;
        self.pods.wake_ranges(now.elapsed);
        self.groups.wake(now.elapsed);
        let at = Name::from(now.at.as_str());
        let mut result = Reconciled::default();
        loop {
            self.settle(&at);
            result.effects.append(&mut self.work.effects);
            for target in std::mem::take(&mut self.work.forget) {
                let driver = self.schedule.remove_target(&target, now.elapsed);
                result.removed.extend(driver.map(|driver| (target, driver)));
            }
            for target in std::mem::take(&mut self.schedule.publish_queue) {
                self.schedule.mark_dirty(target, now.elapsed);
            }
            self.issue_ready(now, &mut result);
            if !self.is_unsettled() {
                break;
            }
        }
        for (target, driver) in self.schedule.take_uncommanded() {
            if self.schedule.driver(&target).is_some() || self.desired(&target).is_none() {
                self.schedule.purge(target, driver);
            }
        }
        result.next =
            result.next.into_iter().chain(self.pods.next_wake()).chain(self.groups.next_wake()).min();
        result.removed.extend(self.schedule.take_purges());
        result.republished = self.schedule.take_republished();
        result.unissued = self.schedule.take_unissued();
        (result.waiting, result.outstanding) = self.schedule.counts();
        result.nodes = if self.config.nodes { self.store.linux_nodes() } else { 0 };
        result
    }

    /// Issues all commands that may be published now.
    fn issue_ready(&mut self, moment: &Moment, result: &mut Reconciled) {
        let now = moment.elapsed;
        if self.startup.is_over {
            let fabric = &self.fabric;
            self.schedule.release_inherited(|participant| {
                is_same_endpoint(fabric, &participant.target, &participant.driver, &participant.desired)
            });
        }
        let (mut ready, switches) = self.schedule.collect_ready(now);
        if let Some(switches) = switches {
            let Schedule { live_drivers, holding_drivers, .. } = &self.schedule;
            let groups = self.fabric.transaction_groups(live_drivers, holding_drivers, &switches);
            self.schedule.add_groups(groups, now, &mut ready);
        }
        result.next = ready.next;
        for target in ready.decisions {
            if let Some(command) = self.schedule.issue_decision(&target, now) {
                self.add_command(command, result);
            }
        }
        for target in ready.single {
            if let Target::Fabric(name) = &target
                && self.schedule.is_silent(&target, now)
            {
                self.fabric.mark_late(name, &mut self.work);
            }
            if let Some(participant) = self.issue(&target) {
                self.issue_single(participant, now, result);
            }
        }
        for targets in ready.joint {
            self.issue_transaction(&targets, moment, result);
        }
        for ended in self.schedule.take_decided() {
            for target in &ended.late {
                if let Target::Fabric(name) = target {
                    self.fabric.mark_late(name, &mut self.work);
                }
            }
            result.decided.push(ended);
        }
        self.distribute();
    }

    fn issue_single(&mut self, participant: Participant, now: Duration, result: &mut Reconciled) {
        let Participant { target, driver, hash, .. } = &participant;
        match self.schedule.issue_if_changed(target, driver, hash.clone(), now) {
            Some(command) => self.add_command((participant, command), result),
            None => result.unchanged += 1,
        }
    }

    /// Issues one transaction of all targets whose desired state changed.
    fn issue_transaction(&mut self, targets: &[Target], moment: &Moment, result: &mut Reconciled) {
        let now = moment.elapsed;
        let all: Vec<Participant> = targets.iter().filter_map(|target| self.issue(target)).collect();
        let (part, same): (Vec<_>, Vec<_>) = all.into_iter().partition(|participant| {
            !self.schedule.is_commanded(&participant.target, &participant.driver, &participant.hash)
        });
        for participant in same {
            self.issue_single(participant, now, result);
        }
        if part.len() < 2 {
            return part.into_iter().for_each(|participant| self.issue_single(participant, now, result));
        }
        for command in self.schedule.open_transaction(part, moment.deadline.clone(), now) {
            self.add_command(command, result);
        }
    }

    fn add_command(
        &mut self,
        (participant, mut pending): (Participant, PendingCommand),
        result: &mut Reconciled,
    ) {
        self.schedule.record_command(participant.target.clone(), pending.generation.clone());
        pending.tree.clone_from(&participant.tree);
        result.commands.push((participant, pending));
    }
}

/// True when a target that was commanded `desired` still has the same endpoint and driver.
fn is_same_endpoint(fabric: &Fabric, target: &Target, driver: &Name, desired: &Desired) -> bool {
    match (target, desired) {
        (Target::Fabric(name), Desired::Fabric(desired)) => fabric.device(name).is_some_and(|device| {
            device.driver == *driver && is_same_access(device.access(), &desired.device)
        }),
        _ => false,
    }
}

/// True when two endpoints differ at most in their audit interval.
fn is_same_access(one: &Device, other: &Device) -> bool {
    *one == Device { audit_interval: one.audit_interval, ..other.clone() }
}
