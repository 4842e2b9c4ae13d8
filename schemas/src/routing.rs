//! Routing instances of a device, and the interfaces by which VLANs are led into them.

use std::net::IpAddr;

use ipnet::IpNet;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::{BgpGroup, VlanId};

/// What a device does with the VLANs that are led to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum DeviceRole {
    /// It switches them. A VLAN is led into a VRF by an interface of the device itself beside the VLAN (IRB).
    #[default]
    Switch,
    /// It routes them and switches none. A VLAN is a tagged sub-interface of the one listed port that carries it.
    Router,
}

impl DeviceRole {
    /// True for [`Self::Switch`].
    pub fn is_switch(&self) -> bool {
        *self == Self::Switch
    }
}

/// A VRF that is to exist on a device (RFC 4364). One of this name without our description is used as it is, and never
/// removed.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FabricVrf {
    /// The device's name of it.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// The object that it is of, as `VRF/<name>`.
    pub owner: String,
    /// `<ASN>:<number>` or `<IPv4 address>:<number>` (RFC 4364, section 4.2). Absent: the VRF is local to the device.
    pub route_distinguisher: Option<String>,
    /// The route targets whose routes it takes in, ascending, each once; written as distinguishers are.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub import_targets: Vec<String>,
    /// The route targets that its connected and static routes leave with, ascending, each once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub export_targets: Vec<String>,
    /// The BGP sessions with workers, ascending by `owner`, each once. Only drivers that announce `bgp` get any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bgp: Vec<BgpGroup>,
}

/// The interface by which a VLAN is led into a VRF: an IRB interface on a switch, a tagged sub-interface on a router.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RoutedInterface {
    /// The VRF, a name in [`FabricDesired::vrfs`](crate::FabricDesired::vrfs).
    pub vrf: String,
    /// The object that it is of, as `VRFAttachment/<name>`.
    pub owner: String,
    /// Its addresses with the prefix length of their networks, ascending, each once.
    #[schemars(with = "Vec<String>")]
    pub addresses: Vec<IpNet>,
    /// Bytes of an IP packet; absent: the device's default.
    #[serde(rename = "mtu")]
    pub mtu: Option<u32>,
    /// Routes of the VRF by next hops in the VLAN, ascending by prefix, then by next hop.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<VrfRoute>,
}

/// A static route of a VRF.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VrfRoute {
    /// The destination.
    #[schemars(with = "String")]
    pub prefix: IpNet,
    /// An address in a network of the VLAN, of the family of the prefix.
    #[schemars(with = "String")]
    pub next_hop: IpAddr,
    /// Of several routes to a prefix the lowest counts. Absent: the device's default.
    pub preference: Option<u8>,
}

/// The description of a VRF of ours: `eno-<cluster> <name>`. It tells our VRFs on a device without further records.
pub fn vrf_description(cluster: &str, name: &str) -> String {
    format!("eno-{cluster} {name}")
}

/// The description of a routed interface of ours, the name of its VLAN.
pub fn routed_description(cluster: &str, vid: VlanId) -> String {
    crate::vlan_name(cluster, vid)
}
