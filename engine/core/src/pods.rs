//! Pods, as far as the core needs them, and what it says of them.

use std::collections::BTreeMap;

use ipnet::IpNet;

use crate::{Key, Name};

/// An unfinished pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    /// `metadata.uid`.
    pub uid: Name,
    /// Its namespace.
    pub namespace: Name,
    /// Its name.
    pub name: Name,
    /// The NetworkAttachmentDefinitions that it uses, each with its namespace: by its annotation, or by its labels in its
    /// own.
    pub uses: Vec<(Name, Name)>,
    /// Its labels that choose a configuration: `podconfig`, `podNetworkConfig` and `attach.eno.k8s.io/…`.
    pub labels: BTreeMap<Name, Name>,
    /// Where it runs.
    pub node: Option<Name>,
    /// `spec.hostNetwork`: its namespace is the node's own.
    pub host_network: bool,
    /// The id of its first container, once that runs.
    pub container: Option<Name>,
}

/// What the status of a configuration or an attachment says about one pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodEntry {
    /// The pod's name.
    pub name: Name,
    /// Its uid.
    pub uid: Name,
    /// The addresses that are its own, by the name of the link; written down before anyone acts on them.
    pub leases: BTreeMap<Name, Vec<IpNet>>,
    /// What is there, as read back.
    pub links: Vec<LinkEntry>,
    /// What is not there and why.
    pub problem: Option<String>,
}

/// One interface of a pod that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkEntry {
    /// The link's name in the spec.
    pub link: Name,
    /// What it is called in the pod.
    pub name: String,
    /// What its other end is called on the host.
    pub host_name: Option<String>,
    /// The bridge that the other end is a port of.
    pub bridge: Option<String>,
    /// Six bytes in hexadecimal with colons.
    pub mac: Option<String>,
    /// Bytes.
    pub mtu: u32,
    /// With the prefix length of their network.
    pub addresses: Vec<IpNet>,
}

/// Everything that one pod was given, whoever asked for it: the status of its PodNetwork.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodView {
    /// Where it runs.
    pub node: Name,
    /// Its interfaces, in the order of their making.
    pub interfaces: Vec<PodInterface>,
}

/// An interface of a [`PodView`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodInterface {
    /// The object that asked for it.
    pub owner: Key,
    /// As `ip link add type …` calls it; `primary` for a change of the pod's primary interface, `none` where what asks for
    /// it is not there.
    pub kind: &'static str,
    /// What is there; with an empty `name` when nothing is there yet.
    pub entry: LinkEntry,
    /// Its routes, as `ip route` writes them.
    pub routes: Vec<String>,
    /// Why it is not, or not entirely, there.
    pub problem: Option<String>,
}
