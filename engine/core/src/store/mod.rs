//! The objects of the cluster, and which of them name which.

pub mod record;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::{Key, Labels, Name};

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
