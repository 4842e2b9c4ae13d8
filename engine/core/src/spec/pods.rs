//! What is given to running pods.

use std::collections::BTreeMap;

use eno_schemas::{LinkKind, PodRoute, PodRule};
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::Name;

/// A bridge that only pods of its own node are on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BridgeSpec {
    /// What it is called on the nodes: at most 15 bytes.
    pub name: String,
    /// Its networks, at most one of each family: it has the first address of each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cidrs: Vec<IpNet>,
    /// Bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
}

/// Interfaces of the pods that carry the object's name in a label.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodLinksSpec {
    /// Each name once; what one is made on, or a member of, comes before it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<PodLinkSpec>,
    /// A change of the pods' primary interface.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub primary: Option<PrimarySpec>,
    /// The sample Deployment to make.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sample: Option<Name>,
}

/// An interface of each pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodLinkSpec {
    /// In the pod it is `<name><PID>`, on the host `h<name><PID>`: at most 13 bytes, and the agent refuses what gets
    /// longer than 15 with the PID that there is.
    pub name: Name,
    /// What it is. A parent that is an interface of this spec is `Parent::Link(<its name>)`, a veth's bridge a
    /// `Master::Bridge` without VLANs.
    pub kind: LinkKind,
    /// The name of the bridge or VRF of this spec that it is a member of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member_of: Option<Name>,
    /// The networks that addresses are handed out of, at most one of each family: their first address is the
    /// bridge's, where there is one, the next ones are the pods'.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cidrs: Vec<IpNet>,
    /// The addresses that are handed out, instead of `cidrs`: of each family one to a pod.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<IpNet>,
    /// Bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    /// Six bytes in hexadecimal with colons, lower case.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<String>,
    /// `ifalias`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alias: Option<String>,
    /// Routes out of it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<PodRoute>,
    /// Rules that choose the table of a route.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<PodRule>,
    /// As in [`eno_schemas::PodLink::sysctls`].
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub sysctls: BTreeMap<String, String>,
    /// Administratively up.
    pub up: bool,
}

/// A change of the pods' primary interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PrimarySpec {
    /// `eth0`.
    pub name: String,
    /// Bytes.
    pub mtu: u32,
}
