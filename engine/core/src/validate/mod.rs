//! The first stage: validates an object against everything that it names, and decides which spec is realised.

mod attachment;
mod checks;

pub mod bgp;
pub mod subnets;
pub mod trunks;
pub mod users;
pub mod vrf;

use std::collections::BTreeSet;

use eno_schemas::Phase;

use crate::fabric::Fabric;
use crate::kinds::Cause;
use crate::nad::Nads;
use crate::node::Nodes;
use crate::pods::Pods;
use crate::store::{Store, Verdict};
use crate::vlan::Vlans;
use crate::{Config, Key, Kind};

use trunks::Trunks;

/// The objects that are to be validated.
#[derive(Debug, Default)]
pub struct Validation {
    /// Objects to be validated.
    queue: BTreeSet<Key>,
    /// Which attachments exclude each other.
    trunks: Trunks,
}

/// Checks objects against the parts of the engine.
#[derive(Clone, Copy)]
pub struct Validator<'a> {
    pub config: &'a Config,
    pub store: &'a Store,
    pub vlan: &'a Vlans,
    pub fabric: &'a Fabric,
    pub nad: &'a Nads,
    pub node: &'a Nodes,
    pub pods: &'a Pods,
    pub trunks: &'a Trunks,
}

impl Validation {
    /// Adds objects to the queue, and takes them out of `keys`.
    pub fn request(&mut self, keys: &mut BTreeSet<Key>) {
        self.queue.extend(std::mem::take(keys));
    }

    /// Takes an object that is gone out of the queue.
    pub fn forget(&mut self, key: &Key) {
        self.queue.remove(key);
    }

    /// The kind of the next object in the queue.
    pub fn next_kind(&self) -> Option<Kind> {
        self.queue.first().map(|key| key.kind)
    }

    /// Takes the next object out of the queue: the kinds in their order.
    pub fn pop(&mut self) -> Option<Key> {
        self.queue.pop_first()
    }

    /// An input of the decision about trunks changed.
    pub fn touch_trunks(&mut self) {
        self.trunks.touch();
    }

    /// True when it has to be decided again which attachments exclude each other.
    pub fn has_stale_trunks(&self) -> bool {
        self.trunks.is_stale()
    }

    /// Which attachments exclude each other.
    pub fn trunks(&self) -> &Trunks {
        &self.trunks
    }

    /// Updates the index of trunks after an object was added, changed or removed.
    pub fn update_trunk_index(&mut self, store: &Store, key: &Key) {
        self.trunks.update_index(store, key);
    }

    /// Decides which attachments exclude each other. Those with a changed result are validated again.
    pub fn decide_trunks(&mut self, store: &Store, fabric: &Fabric) {
        let changed = self.trunks.decide(store, fabric);
        self.queue.extend(changed);
    }

    /// True when nothing is to be done.
    pub fn is_idle(&self) -> bool {
        self.queue.is_empty() && !self.trunks.is_stale()
    }
}

impl Validator<'_> {
    /// Validates one object. `None`: there is no such object.
    pub fn decide(&self, key: &Key) -> Option<Verdict> {
        let record = self.store.get(key)?;
        let checked = match &record.spec {
            // An object that is being deleted is not validated.
            Ok(spec) if record.deleting => Ok(spec.clone()),
            Err(invalid) => Err(invalid.clone().because(Cause::Spec)),
            Ok(spec) => self.check(key, spec).map(|()| spec.clone()),
        };
        // A spec that only the state of other objects hinders is planned all the same.
        let planned = match (&checked, &record.spec) {
            (Ok(spec), _) => Some(spec.clone()),
            (Err(_), Ok(spec)) if key.kind.facts().planned_when_hindered => Some(spec.clone()),
            _ => record.effective.clone().filter(|_| !self.trunks.evicts(key)),
        };
        // A reported phase Deleted is final, even if another object names it before its finalizer is removed.
        let reported_gone = record.status.phase == Some(Phase::Deleted);
        let is_in_use = || !reported_gone && self.blocking_user(key).is_some();
        let effective = match record.deleting {
            false => planned,
            true if is_in_use() => record.effective.clone().or_else(|| record.status.realized.clone()),
            true => None,
        };
        let problem = checked.err();
        let arriving = |key: &Key| self.store.get(key).is_none_or(|record| record.incomplete);
        // No object names the FabricDevices that lead to a connection point: some may not have arrived yet.
        let lacks_ports = key.kind == Kind::ConnectionPoint
            && self.fabric.point(&key.name).is_some_and(|point| !point.missing.is_empty());
        let incomplete = problem.is_some()
            && !record.await_elapsed
            && (lacks_ports || record.indexed_references.iter().any(arriving));
        let same = record.effective == effective
            && (&record.problem, record.incomplete) == (&problem, incomplete)
            && record.version > 0;
        let mut dependencies = record.indexed_references.iter().filter_map(|key| self.store.get(key));
        Some(Verdict {
            starts_waiting: incomplete && !record.incomplete,
            same,
            changed: !same || dependencies.any(|other| other.version > record.version),
            given_up: record.effective.is_some() && effective.is_none(),
            effective,
            problem,
            incomplete,
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::store::fixture::{config, key, store};

    fn decide(store: &Store, key: &Key) -> Verdict {
        let config = config();
        let (vlan, fabric, nad) = (Vlans::default(), Fabric::default(), Nads::default());
        let (node, pods, trunks) = (Nodes::default(), Pods::default(), Trunks::default());
        let validator = Validator {
            config: &config,
            store,
            vlan: &vlan,
            fabric: &fabric,
            nad: &nad,
            node: &node,
            pods: &pods,
            trunks: &trunks,
        };
        validator.decide(key).expect("the object is there")
    }

    #[test]
    fn missing_reference_is_awaited_once_and_the_realised_spec_stays() {
        let service = key(Kind::L2Service, "s");
        let mut store =
            store([(Kind::L2Service, "s", json!({ "SegmentationID": 100, "PhysicalNW": ["dc"] }))]);
        let first = decide(&store, &service);
        assert!(first.incomplete && first.starts_waiting && first.effective.is_some());
        let problem = first.problem.expect("a problem");
        assert_eq!((problem.cause, problem.field.as_str()), (Cause::ReferenceNotFound, "spec.PhysicalNW"));
        store.get_mut(&service).expect("it is there").await_elapsed = true;
        assert!(!decide(&store, &service).incomplete);
    }

    #[test]
    fn deleted_object_keeps_its_spec_while_another_names_it() {
        let network = key(Kind::PhysicalNetwork, "dc");
        for (users, given_up) in [(vec!["dc"], false), (vec![], true)] {
            let mut store = store([
                (Kind::PhysicalNetwork, "dc", json!({})),
                (Kind::L2Service, "s", json!({ "SegmentationID": 100, "PhysicalNW": users })),
            ]);
            store.get_mut(&network).expect("it is there").deleting = true;
            assert_eq!(decide(&store, &network).given_up, given_up);
        }
    }
}
