//! Names of objects and targets.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// A name, shared by all that refer to it.
pub type Name = Arc<str>;

/// The kinds of custom resources, in the order in which they are evaluated: a kind comes after those that it names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Kind {
    /// A route into a pod.
    Route,
    /// A subnet.
    Subnet,
    /// A set of nodes.
    NodePool,
    /// A network outside the fabric.
    PhysicalNetwork,
    /// A switch.
    FabricDevice,
    /// Where pods connect.
    ConnectionPoint,
    /// An L2 network.
    L2Service,
    /// A VLAN on connection points.
    L2BridgeDomain,
    /// A service at a connection point.
    L2ServiceAttachment,
    /// A bridge of pods (`podnetwork.opdev.io`).
    Bridge,
    /// Interfaces of the pods with a label (`podnetwork.opdev.io`).
    PodNetworkConfig,
    /// Interfaces of the pods with a label (`podconfig.opdev.io`).
    PodConfig,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 12] = [
        Self::Route,
        Self::Subnet,
        Self::NodePool,
        Self::PhysicalNetwork,
        Self::FabricDevice,
        Self::ConnectionPoint,
        Self::L2Service,
        Self::L2BridgeDomain,
        Self::L2ServiceAttachment,
        Self::Bridge,
        Self::PodNetworkConfig,
        Self::PodConfig,
    ];

    /// As the manifest spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Route => "Route",
            Self::Subnet => "Subnet",
            Self::NodePool => "NodePool",
            Self::PhysicalNetwork => "PhysicalNetwork",
            Self::FabricDevice => "FabricDevice",
            Self::ConnectionPoint => "ConnectionPoint",
            Self::L2Service => "L2Service",
            Self::L2BridgeDomain => "L2BridgeDomain",
            Self::L2ServiceAttachment => "L2ServiceAttachment",
            Self::Bridge => "Bridge",
            Self::PodNetworkConfig => "PodNetworkConfig",
            Self::PodConfig => "PodConfig",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

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
    pub(crate) fn of_network(text: &str) -> Option<Self> {
        let (kind, name) = text.split_once('/')?;
        let kind =
            [Kind::L2Service, Kind::L2BridgeDomain].into_iter().find(|known| known.as_str() == kind)?;
        Some(Self::cluster(kind, &name.into()))
    }

    /// True for the kinds that have a VLAN.
    pub(crate) fn is_network(&self) -> bool {
        matches!(self.kind, Kind::L2Service | Kind::L2BridgeDomain)
    }

    /// True for the kinds that use networks at connection points.
    pub(crate) fn uses_networks(&self) -> bool {
        matches!(self.kind, Kind::L2ServiceAttachment | Kind::L2BridgeDomain)
    }

    /// The namespace, if it has one.
    pub fn namespace(&self) -> Option<&str> {
        (!self.namespace.is_empty()).then_some(&*self.namespace)
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
}

impl fmt::Display for Target {
    /// The target's name in messages.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fabric(name) | Self::Node(name) => f.write_str(name),
            Self::Nad(namespace, name) => write!(f, "{namespace}/{name}"),
        }
    }
}

/// The first of some things, and how many more there are.
pub(crate) fn and_more(first: &str, count: usize) -> String {
    if count > 1 { format!("{first} and {} more", count - 1) } else { first.into() }
}
