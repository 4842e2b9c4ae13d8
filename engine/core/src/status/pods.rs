//! Pods in statuses.

use std::collections::BTreeMap;

use ipnet::IpNet;

use crate::{Key, Name};

/// The entry of one pod in the status of a configuration or attachment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodEntry {
    /// The pod's name.
    pub name: Name,
    /// Its uid.
    pub uid: Name,
    /// Its addresses by name of the link. They are written before a node gets them.
    pub leases: BTreeMap<Name, Vec<IpNet>>,
    /// The name in the pod of an attachment's interface. It is written before a node gets it, too.
    pub ifname: Option<String>,
    /// Its interfaces as read back.
    pub links: Vec<LinkEntry>,
    /// Why something is not there.
    pub problem: Option<String>,
}

/// One interface of a pod that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkEntry {
    /// The link's name in the spec.
    pub link: Name,
    /// Its name in the pod.
    pub name: String,
    /// The name of its other end on the host.
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

/// Everything that one pod was given, by any object: the status of its PodNetwork.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodView {
    /// Where it runs.
    pub node: Name,
    /// Its interfaces, in the order in which they are made.
    pub interfaces: Vec<PodInterface>,
}

/// An interface of a [`PodView`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodInterface {
    /// The object that gives it.
    pub owner: Key,
    /// The type, as in `ip link add type …`. `primary` for a change of the pod's primary interface, `none` where the
    /// object that a label names does not exist, `refused` where an attachment can't give interfaces of VLANs.
    pub kind: &'static str,
    /// The interface as read back; an empty `name` when it does not exist yet.
    pub entry: LinkEntry,
    /// Its routes, as `ip route` writes them.
    pub routes: Vec<String>,
    /// Why it is not complete.
    pub problem: Option<String>,
}
