//! Names of objects and targets.

use std::fmt;

use crate::kinds::{Kind, Named, Spec};
use crate::name::Name;

/// One custom resource.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// Its kind.
    pub kind: Kind,
    /// Its namespace; empty for cluster-scoped kinds.
    pub namespace: Name,
    /// Its name.
    pub name: Name,
}

impl Key {
    /// A cluster-scoped object.
    pub fn cluster(kind: Kind, name: &Name) -> Self {
        Self { kind, namespace: Name::from(""), name: name.clone() }
    }

    /// A namespaced object.
    pub fn namespaced(kind: Kind, namespace: &Name, name: &Name) -> Self {
        Self { kind, namespace: namespace.clone(), name: name.clone() }
    }

    /// Parses a network's key as written by [`Display`](fmt::Display).
    pub fn of_network(text: &str) -> Option<Self> {
        let (kind, name) = text.split_once('/')?;
        let kind = Kind::of_name(kind).filter(|kind| kind.has_vlan())?;
        Some(Self::cluster(kind, &name.into()))
    }

    /// The namespace, if it has one.
    pub fn namespace(&self) -> Option<&str> {
        (!self.namespace.is_empty()).then_some(&*self.namespace)
    }
}

impl From<Named<'_>> for Key {
    /// Objects name cluster-scoped ones only.
    fn from(named: Named<'_>) -> Self {
        Self::cluster(named.kind, named.name)
    }
}

impl Spec {
    /// The objects that it names, in the order of its fields. Links between FabricDevices are not included.
    pub fn references(&self) -> Vec<Key> {
        self.named().into_iter().map(Key::from).collect()
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.namespace() {
            Some(namespace) => write!(f, "{}/{namespace}/{}", self.kind, self.name),
            None => write!(f, "{}/{}", self.kind, self.name),
        }
    }
}

/// Something that a driver brings to its desired state.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Target {
    /// A switch, by the name of its FabricDevice.
    Fabric(Name),
    /// A NetworkAttachmentDefinition, by namespace and name.
    Nad(Name, Name),
    /// A node, by name.
    Node(Name),
    /// What BGP speakers know of a BGPSessionGroup, by name.
    Speaker(Name),
}

impl fmt::Display for Target {
    /// The target's name in messages.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fabric(name) | Self::Node(name) | Self::Speaker(name) => f.write_str(name),
            Self::Nad(namespace, name) => write!(f, "{namespace}/{name}"),
        }
    }
}
