//! PodNetworkConfig (`podnetwork.opdev.io`) and PodConfig (`podconfig.opdev.io`): interfaces of the pods with a label.

use std::collections::BTreeMap;

use eno_schemas::{LinkKind, PodRoute, PodRule};
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::{Absence, Described, Facts, Name, Path};

/// Interfaces of the pods that carry the object's name in a label.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodLinksSpec {
    /// The links, with unique names. A link comes after the one that it is made on or a member of.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<PodLinkSpec>,
    /// A change of the pods' primary interface.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub primary: Option<PrimarySpec>,
    /// The sample Deployment to make.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sample: Option<Name>,
}

impl Described for PodLinksSpec {
    const FACTS: Facts =
        Facts { path: Path::Pods, absence: Absence::UnlessInPods, gives_to_pods: true, ..Facts::DEFAULT };
}

/// An interface of each pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodLinkSpec {
    /// Its name. The interface is `<name><PID>` in the pod and `h<name><PID>` on the host. At most 13 bytes; the
    /// agent refuses a name that exceeds 15 with the actual PID.
    pub name: Name,
    /// Its type. A parent in this spec is `Parent::Link(<its name>)`, a veth's bridge a `Master::Bridge` without
    /// VLANs.
    pub kind: LinkKind,
    /// The name of the bridge or VRF of this spec that it is a member of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member_of: Option<Name>,
    /// The networks that addresses are leased from, at most one of each family. The first address is the bridge's,
    /// where there is one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cidrs: Vec<IpNet>,
    /// The addresses to lease, instead of `cidrs`: one of each family to a pod.
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
    /// Routes through it.
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
