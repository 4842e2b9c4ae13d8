//! The objects of the cluster, and which of them name which.

pub mod lookups;
pub mod record;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::spec::Spec;
use crate::work::Work;
use crate::{Key, Kind, Labels, Name};

use record::Record;

/// The custom resources, Nodes and namespaces.
#[derive(Debug, Default)]
pub struct Store {
    /// The custom resources.
    pub records: HashMap<Key, Record>,
    /// By object: the objects that name it ([`Record::indexed_references`]).
    pub referrers: HashMap<Key, BTreeSet<Key>>,
    /// The labels of each Node.
    pub nodes: BTreeMap<Name, Labels>,
    /// The labels of each namespace.
    pub namespaces: HashMap<Name, Labels>,
    /// The highest [`Record::version`].
    pub version: u64,
}

impl Store {
    /// An object.
    pub fn get(&self, key: &Key) -> Option<&Record> {
        self.records.get(key)
    }

    /// True when the object exists.
    pub fn contains(&self, key: &Key) -> bool {
        self.records.contains_key(key)
    }

    /// All objects of one kind.
    pub fn of_kind(&self, kind: Kind) -> impl Iterator<Item = (&Key, &Record)> {
        self.records.iter().filter(move |(key, _)| key.kind == kind)
    }

    /// The objects that name an object.
    pub fn referrers(&self, key: &Key) -> impl Iterator<Item = &Key> {
        self.referrers.get(key).into_iter().flatten()
    }

    /// The realised spec of an object, if it is of the kind that `read` takes.
    pub fn effective<T>(&self, key: &Key, read: impl Fn(&Spec) -> Option<&T>) -> Option<&T> {
        read(self.records.get(key)?.effective.as_deref()?)
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
}
