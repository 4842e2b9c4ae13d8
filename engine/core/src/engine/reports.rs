//! The reports of drivers, and the start with those of the former leader's time.

use std::collections::{BTreeSet, HashMap};

use eno_schemas::{Desired, FabricDesired, NodeDesired, Report, VlanId};

use super::Engine;
use crate::fabric::may_remove;
use crate::schedule::Receipt;
use crate::{Key, Kind, Name, StoredCommand, Target};

/// What came before the first [`Engine::reconcile`].
#[derive(Debug, Default)]
pub(super) struct Startup {
    /// The first [`Engine::reconcile`] is over.
    pub is_over: bool,
    /// Reports of drivers.
    pub early_reports: Vec<(Target, Report)>,
    /// Commands of the former leader, found on NATS.
    pub stored_commands: Vec<StoredCommand>,
}

impl Engine {
    /// Runs once. Restores the commands of the former leader, cleans up targets that no longer exist, and processes
    /// the reports that have come so far.
    pub(super) fn start(&mut self) {
        let mut had: BTreeSet<(Key, VlanId)> = BTreeSet::new();
        let stored = std::mem::take(&mut self.startup.stored_commands);
        // Each with its hash, which an earlier version may have made otherwise.
        let mut others: Vec<(Target, Desired, String)> = Vec::new();
        let mut switches: Vec<(Name, (FabricDesired, String))> = Vec::new();
        for StoredCommand { target, command, .. } in stored {
            let Some(command) = command else { continue };
            match (target, command.desired) {
                (Target::Fabric(name), Desired::Fabric(desired)) => {
                    switches.push((name, (desired, command.generation.hash)));
                }
                (target, desired) => others.push((target, desired, command.generation.hash)),
            }
        }
        let early = |target: &Target| {
            self.startup
                .early_reports
                .iter()
                .rev()
                .find(|(other, _)| other == target)
                .map(|(_, report)| report)
        };
        let removing = switches
            .iter()
            .filter(|(name, command)| may_remove(command, early(&Target::Fabric((*name).clone()))));
        let removing: BTreeSet<Name> = removing.map(|(name, _)| name.clone()).collect();
        let commanded = others.iter().map(|(target, _, hash)| (target.clone(), hash.clone()));
        let commanded: HashMap<Target, String> = commanded
            .chain(switches.iter().map(|(name, (_, hash))| (Target::Fabric(name.clone()), hash.clone())))
            .collect();
        for (target, report) in &mut self.startup.early_reports {
            // Another state was commanded since and may be in progress: only a new report counts.
            if commanded.get(target).is_some_and(|hash| *hash != report.generation.hash) {
                report.generation.hash.clear();
            }
        }
        for (target, hash) in commanded {
            self.schedule.restore_command(target, hash);
        }
        for (name, command) in &switches {
            if !self.fabric.restore_command(&self.store, name, command, &mut had) {
                self.work.forget.push(Target::Fabric(name.clone()));
            }
        }
        let mut nodes: Vec<(Name, NodeDesired, String)> = Vec::new();
        for (target, desired, hash) in others {
            match (target, desired) {
                (Target::Node(name), _) if self.node.node(&name).is_none() => {
                    self.work.forget.push(Target::Node(name));
                }
                (Target::Node(name), Desired::Node(desired)) => nodes.push((name, desired, hash)),
                (Target::Nad(namespace, name), Desired::Nad(desired)) => {
                    let key = Key::namespaced(Kind::L2ServiceAttachment, &namespace, &name);
                    self.nad.restore(&self.store, self.pods.ipam(), &key, desired, &mut self.work);
                }
                (Target::Speaker(name), Desired::Speaker(desired)) if *desired.name == *name => {
                    self.groups.restore_speaker(&self.store, desired, &mut self.work);
                }
                _ => {}
            }
        }
        self.fabric.start(&self.config, &self.store, &switches, had, &mut self.work);
        for (name, _) in self.store.nodes() {
            if let Some(desired) = self.node.render(name, &self.config.cluster) {
                self.node.record_issued(name, &desired.hash(), false);
            }
        }
        for (name, desired, hash) in &nodes {
            self.node.begin_with_hash(name, &self.config.cluster, desired, hash);
        }
        for (target, report) in std::mem::take(&mut self.startup.early_reports) {
            self.report(&target, report);
        }
        for key in self.fabric.restore_removals(&self.store, &removing) {
            self.status.follow_removal(&key);
        }
        // What a former leader commanded may stay in use.
        self.work.place.extend(self.store.of_kind(Kind::VRF).map(|(key, _)| key.clone()));
        self.node.inherit();
        self.pods.start_ranges();
        self.pods.forget_idle();
        self.work.evaluate.extend(self.store.iter().map(|(key, _)| key.clone()));
    }

    /// Takes in a report of a driver.
    pub(super) fn receive(&mut self, target: Target, mut report: Box<Report>) {
        if self.schedule.is_foreign(&report.generation) {
            return self.schedule.report_unissued(target, &report.driver, report.generation);
        }
        let fabric = &self.fabric;
        let refuses = |report: &Report| matches!(&target, Target::Fabric(name) if fabric.rejects_planned_change(name, report));
        match (self.schedule.receive(&target, &mut report, refuses), &target) {
            (Receipt::Ignored, _) => return,
            (Receipt::Refused, Target::Fabric(name)) => {
                self.fabric.withhold_rejected(&self.store, name, &report, &mut self.work);
            }
            _ => {}
        }
        if self.startup.is_over {
            self.announce(&target, &report);
            self.report(&target, *report);
        } else {
            self.startup.early_reports.push((target, *report));
        }
    }

    fn report(&mut self, target: &Target, mut report: Report) {
        if self.schedule.is_outdated(target, &report.generation) {
            report.generation.hash.clear();
        }
        match target {
            Target::Fabric(name) => {
                self.fabric.report(&self.store, &self.vlan, name, report, &mut self.work);
                self.status.reevaluate_removed(name);
            }
            Target::Nad(namespace, name) => {
                let key = Key::namespaced(Kind::L2ServiceAttachment, namespace, name);
                self.nad.report(&self.store, &key, report, &mut self.work);
            }
            Target::Speaker(name) => self.groups.speaker_reported(name, report, &mut self.work),
            Target::Node(name) => {
                if let Some(changes) = self.node.report(&self.store, name, report, &mut self.work) {
                    self.change_node(name, changes);
                }
            }
        }
    }
}
