//! The objects of the cluster, and which of them name which.

#[cfg(test)]
pub mod fixture;
pub mod lookups;
pub mod record;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use crate::kinds::{Invalid, Spec};
use crate::work::Work;
use crate::{Key, Kind, Labels, Name, Object};

use record::Record;

/// The custom resources, Nodes and namespaces.
#[derive(Debug, Default)]
pub struct Store {
    /// The custom resources.
    records: HashMap<Key, Record>,
    /// By object: the objects that name it ([`Record::indexed_references`]).
    referrers: HashMap<Key, BTreeSet<Key>>,
    /// The labels of each Node.
    nodes: BTreeMap<Name, Labels>,
    /// The number of nodes that do not run Windows.
    linux_nodes: usize,
    /// The labels of each namespace.
    namespaces: HashMap<Name, Labels>,
    /// The highest [`Record::version`].
    version: u64,
}

/// What an object of an event does to the store.
#[derive(Debug)]
pub enum Update {
    /// Nothing.
    Unchanged,
    /// It changed a record.
    Changed {
        /// The annotation [`Object::forget`] changed.
        forget: bool,
        /// [`Object::verify`] changed.
        verify: bool,
    },
    /// There is no record of this object: its name is free, or an object with another uid has it.
    Unknown(Box<Object>),
}

/// The decision about one object.
#[allow(clippy::struct_excessive_bools, reason = "facts of a decision, independent of each other")]
#[derive(Debug)]
pub struct Verdict {
    /// The spec that is realised.
    pub effective: Option<Arc<Spec>>,
    /// Why the manifest's spec can't be realised.
    pub problem: Option<Invalid>,
    /// The problem may only be that a referenced object has not arrived yet.
    pub incomplete: bool,
    /// It has just become incomplete: the time for the others to arrive begins.
    pub starts_waiting: bool,
    /// The decision about the object itself is the last one.
    pub same: bool,
    /// It, or what it depends on, changed for others.
    pub changed: bool,
    /// It had a realised spec, and has none any more.
    pub given_up: bool,
}

impl Store {
    /// The record of an object.
    pub fn get(&self, key: &Key) -> Option<&Record> {
        self.records.get(key)
    }

    /// The key of an object.
    pub fn key<'a>(&'a self, key: &Key) -> Option<&'a Key> {
        self.records.get_key_value(key).map(|(key, _)| key)
    }

    /// The record of an object, to be changed.
    pub fn get_mut(&mut self, key: &Key) -> Option<&mut Record> {
        self.records.get_mut(key)
    }

    /// True when the object is there.
    pub fn contains(&self, key: &Key) -> bool {
        self.records.contains_key(key)
    }

    /// All objects, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (&Key, &Record)> {
        self.records.iter()
    }

    /// All objects of one kind, in no order.
    pub fn of_kind(&self, kind: Kind) -> impl Iterator<Item = (&Key, &Record)> {
        self.records.iter().filter(move |(key, _)| key.kind == kind)
    }

    /// The objects that name an object, in the order of their keys.
    pub fn referrers<'a>(&'a self, key: &Key) -> impl Iterator<Item = &'a Key> + use<'a> {
        self.referrers.get(key).into_iter().flatten()
    }

    /// The realised spec of an object, if it is of the kind that `read` takes.
    pub fn effective<T>(&self, key: &Key, read: impl Fn(&Spec) -> Option<&T>) -> Option<&T> {
        read(self.records.get(key)?.effective.as_deref()?)
    }

    /// The Nodes with their labels.
    pub fn nodes(&self) -> impl Iterator<Item = (&Name, &Labels)> {
        self.nodes.iter()
    }

    /// The labels of a node; `None`: there is no such node.
    pub fn node_labels(&self, name: &str) -> Option<&Labels> {
        self.nodes.get(name)
    }

    /// The labels of a namespace.
    pub fn namespace(&self, name: &Name) -> Option<&Labels> {
        self.namespaces.get(name)
    }

    /// Takes a Node's labels. Returns true when they are new.
    pub fn set_node(&mut self, name: &Name, labels: Labels) -> bool {
        let is_new = self.nodes.get(name) != Some(&labels);
        self.linux_nodes += usize::from(!is_windows(&labels));
        let before = self.nodes.insert(name.clone(), labels);
        self.linux_nodes -= usize::from(before.is_some_and(|labels| !is_windows(&labels)));
        is_new
    }

    /// The number of Nodes that do not run Windows.
    pub fn linux_nodes(&self) -> usize {
        self.linux_nodes
    }

    /// Removes a Node. Returns true when it was there.
    pub fn remove_node(&mut self, name: &Name) -> bool {
        let removed = self.nodes.remove(name);
        self.linux_nodes -= usize::from(removed.as_ref().is_some_and(|labels| !is_windows(labels)));
        removed.is_some()
    }

    /// Takes a namespace's labels. Returns true when they are new.
    pub fn set_namespace(&mut self, name: &Name, labels: Labels) -> bool {
        let is_new = self.namespaces.get(name) != Some(&labels);
        self.namespaces.insert(name.clone(), labels);
        is_new
    }

    /// Removes a namespace.
    pub fn remove_namespace(&mut self, name: &Name) {
        self.namespaces.remove(name);
    }

    /// Takes a changed object into its record.
    pub fn update(&mut self, object: Box<Object>) -> Update {
        let Some(record) = self.records.get_mut(&object.key).filter(|record| record.uid == object.uid) else {
            return Update::Unknown(object);
        };
        let forget = record.forget != object.forget;
        let verify = record.verify != object.verify;
        let renewed = record.generation != object.generation;
        let turned = (record.finalized, record.deleting) != (object.finalized, object.deleting);
        let relabelled = record.labels != object.labels;
        if !(forget || verify || renewed || turned || relabelled) {
            return Update::Unchanged;
        }
        if turned {
            // The object becomes active or stops taking new users: everything that depends on it is validated again.
            (record.finalizer_requested, record.version) = (false, 0);
            if !record.finalized && object.key.kind.facts().needs_networks {
                // Without a finalizer it held nothing: it starts from what its status says is realised.
                record.effective = record.status.realized.clone();
            }
        }
        if relabelled {
            // What names it is validated again, since VRFs select it by its labels.
            (record.labels, record.version) = (object.labels, 0);
        }
        (record.deleting, record.finalized, record.forget) =
            (object.deleting, object.finalized, object.forget);
        record.verify = object.verify;
        if renewed {
            record.generation = object.generation;
            record.await_elapsed = false;
            record.spec = object.spec.map(Arc::new);
            record.unknown_opts = object.unknown_opts;
        }
        Update::Changed { forget, verify }
    }

    /// Adds a record, or replaces one.
    pub fn insert(&mut self, key: Key, record: Record) {
        self.records.insert(key, record);
    }

    /// Removes a record.
    pub fn remove(&mut self, key: &Key) -> Option<Record> {
        self.records.remove(key)
    }

    /// Takes the specs of an object that is gone, so that it wants nothing. Returns the references that the index
    /// has of it. `None`: there is no such object.
    pub fn clear_specs(&mut self, key: &Key) -> Option<BTreeSet<Key>> {
        let record = self.records.get_mut(key)?;
        (record.spec, record.effective) = (Err(Invalid::new("", "gone")), None);
        Some(std::mem::take(&mut record.indexed_references))
    }

    /// Takes a decision about an object into its record.
    pub fn apply(&mut self, key: &Key, verdict: Verdict) {
        let Some(record) = self.records.get_mut(key) else { return };
        (record.effective, record.problem, record.incomplete) =
            (verdict.effective, verdict.problem, verdict.incomplete);
        if verdict.changed {
            self.version += 1;
            record.version = self.version;
        }
    }

    /// Updates the index of referrers with the references of an object. Returns those that it does not have any more.
    pub fn update_references(&mut self, key: &Key, work: &mut Work) -> Vec<Key> {
        let Some(record) = self.records.get_mut(key) else { return Vec::new() };
        let now = record.references();
        if now == record.indexed_references {
            return Vec::new();
        }
        let before = std::mem::replace(&mut record.indexed_references, now.clone());
        for reference in now.difference(&before) {
            self.referrers.entry(reference.clone()).or_default().insert(key.clone());
            self.revalidate_if_deleting(reference, work);
        }
        let removed: Vec<Key> = before.difference(&now).cloned().collect();
        for reference in &removed {
            self.remove_referrer(reference, key, work);
        }
        removed
    }

    /// Removes an object from the referrers of another.
    pub fn remove_referrer(&mut self, reference: &Key, key: &Key, work: &mut Work) {
        if let Some(referrers) = self.referrers.get_mut(reference) {
            referrers.remove(key);
            if referrers.is_empty() {
                self.referrers.remove(reference);
            }
        }
        self.revalidate_if_deleting(reference, work);
    }

    /// The users of an object changed. When it is being deleted, they decide whether it may go.
    pub fn revalidate_if_deleting(&self, key: &Key, work: &mut Work) {
        if self.records.get(key).is_some_and(|record| record.deleting) {
            work.validate.insert(key.clone());
        }
    }

    /// Requests the validation of the objects that name an object.
    pub fn revalidate_referrers(&self, key: &Key, work: &mut Work) {
        work.validate.extend(self.referrers(key).cloned());
    }

    /// Requests the validation of all objects of a kind.
    pub fn revalidate_kind(&self, kind: Kind, work: &mut Work) {
        work.validate.extend(self.of_kind(kind).map(|(key, _)| key.clone()));
    }

    /// Requests the validation of all objects in a namespace.
    pub fn revalidate_namespace(&self, namespace: &Name, work: &mut Work) {
        let inside = self.records.keys().filter(|key| key.namespace == *namespace);
        work.validate.extend(inside.cloned());
    }

    /// Requests the evaluation of networks and of the objects that name them.
    pub fn evaluate_networks(&self, networks: impl IntoIterator<Item = Key>, work: &mut Work) {
        for network in networks {
            work.evaluate.extend(self.referrers(&network).cloned());
            if self.contains(&network) {
                work.evaluate.insert(network);
            }
        }
    }

    /// The same after a report of a switch that only confirms. An object that waits for a switch of an earlier name
    /// keeps its status: that switch is still the first one.
    pub fn evaluate_confirmed(
        &self,
        switch: &Name,
        networks: impl IntoIterator<Item = Key>,
        work: &mut Work,
    ) {
        let depends = |key: &&Key| {
            let awaited = self.records.get(*key).and_then(|record| record.awaited.as_ref());
            awaited.is_none_or(|awaited| awaited >= switch)
        };
        for network in networks {
            work.evaluate.extend(self.referrers(&network).filter(depends).cloned());
            if self.contains(&network) && depends(&&network) {
                work.evaluate.insert(network);
            }
        }
    }
}

/// Whether a node with these labels runs Windows.
fn is_windows(labels: &Labels) -> bool {
    labels.get("kubernetes.io/os").is_some_and(|os| os == "windows")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::fixture::{key, object, store};
    use super::*;

    #[test]
    fn object_is_updated_unless_its_name_belongs_to_another_one() {
        let service = |vid: u16| object(Kind::L2Service, "s", 0, json!({ "SegmentationID": vid }));
        let mut store = store([(Kind::L2Service, "s", json!({ "SegmentationID": 100 }))]);
        assert!(matches!(store.update(Box::new(service(100))), Update::Unchanged));
        let renewed = Object { generation: 2, ..service(200) };
        assert!(matches!(store.update(Box::new(renewed)), Update::Changed { forget: false, verify: false }));
        let recreated = Object { uid: "other".into(), ..service(100) };
        assert!(matches!(store.update(Box::new(recreated)), Update::Unknown(_)));
    }

    #[test]
    fn deleted_object_is_validated_when_its_last_user_goes() {
        let mut store = store([
            (Kind::PhysicalNetwork, "dc", json!({})),
            (Kind::L2Service, "s", json!({ "SegmentationID": 100, "PhysicalNW": ["dc"] })),
        ]);
        let (network, service) = (key(Kind::PhysicalNetwork, "dc"), key(Kind::L2Service, "s"));
        assert_eq!(store.referrers(&network).collect::<Vec<_>>(), [&service]);
        store.get_mut(&network).expect("it is there").deleting = true;
        let mut work = Work::default();
        store.remove_referrer(&network, &service, &mut work);
        assert_eq!((work.validate, store.referrers(&network).count()), (BTreeSet::from([network]), 0));
    }
}
