//! The fields of an interface, as both groups spell them.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use strum::IntoStaticStr;

use crate::schema;

/// What an interface is, as `ip link add type …` calls it.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    JsonSchema,
    IntoStaticStr,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum LinkType {
    /// One end of a pair whose other end is on the node.
    #[default]
    Veth,
    /// macvlan on an interface of the node.
    Macvlan,
    /// ipvlan on an interface of the node.
    Ipvlan,
    /// A VLAN of another interface of the pod.
    Vlan,
    /// A bridge inside the pod.
    Bridge,
    /// VXLAN.
    Vxlan,
    /// Geneve.
    Geneve,
    /// IP in GRE.
    Gre,
    /// Ethernet in GRE.
    Gretap,
    /// IP in IP.
    Ipip,
    /// A TUN device.
    Tun,
    /// A TAP device.
    Tap,
    /// A device that drops what it is given.
    Dummy,
    /// A routing table with interfaces of its own.
    Vrf,
}

impl LinkType {
    /// As written in a spec.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// What an interface is made of, whatever its list calls it.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LinkFields {
    /// What it is; absent: veth.
    pub link_type: Option<LinkType>,
    /// For veth, the bridge on the node that its other end is a port of, which is made if it is not there; for macvlan
    /// and ipvlan, the interface of the node.
    #[serde(default)]
    #[schemars(schema_with = "schema::interface_name")]
    pub master: Option<String>,
    /// For vlan, the interface of the pod that it is a VLAN of: another one of this list or, say, eth0. For macvlan and
    /// ipvlan as master. Of a veth pair the ends are their own parents.
    #[serde(default)]
    #[schemars(schema_with = "schema::interface_name")]
    pub parent: Option<String>,
    /// The bridge or VRF of this list that it is a member of.
    #[serde(default)]
    #[schemars(schema_with = "schema::interface_name")]
    pub member_of: Option<String>,
    /// The network that its addresses are handed out of, such as 192.168.100.0/24: the bridge has the first one, each
    /// pod one of the next.
    #[serde(default)]
    #[schemars(schema_with = "schema::network")]
    pub cidr: Option<String>,
    /// As cidr, for both families: at most one network of each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::networks::<2>")]
    pub cidrs: Vec<String>,
    /// Addresses with prefix lengths that are handed out instead, one of each family to a pod.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::cidrs::<512>")]
    pub addresses: Vec<String>,
    /// In bytes; absent: the kernel's choice.
    #[schemars(range(min = 68, max = 65535))]
    pub mtu: Option<u32>,
    /// The MAC address, such as 02:00:00:00:00:01; absent: the kernel's choice.
    #[serde(default)]
    #[schemars(schema_with = "schema::mac")]
    pub hardware_addr: Option<String>,
    /// The interface's alias.
    #[schemars(length(min = 1, max = 255))]
    pub alias: Option<String>,
    /// Whether it is administratively up; absent: it is.
    pub up: Option<bool>,
    /// Routes out of it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::list::<RouteFields, 256>")]
    pub routes: Vec<RouteFields>,
    /// Rules that choose the table of a route.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::list::<RuleFields, 256>")]
    pub rules: Vec<RuleFields>,
    /// Kernel parameters of this interface, such as net.ipv4.conf.IFNAME.rp_filter: "2"; only those that concern
    /// nobody else.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::sysctls")]
    pub sysctls: BTreeMap<String, String>,
    /// For vlan, the VLAN.
    #[serde(default, rename = "vlanID")]
    #[schemars(schema_with = "schema::vlan_id")]
    pub vlan_id: Option<u16>,
    /// For vxlan and geneve, the network identifier.
    #[schemars(range(min = 0, max = 16_777_215))]
    pub vni: Option<u32>,
    /// For the tunnels, the other end.
    #[serde(default)]
    #[schemars(schema_with = "schema::ip")]
    pub remote: Option<String>,
    /// For the tunnels, the own end; absent: by the route.
    #[serde(default)]
    #[schemars(schema_with = "schema::ip")]
    pub local: Option<String>,
    /// For vxlan and geneve, the UDP port; absent: 4789 and 6081.
    #[schemars(range(min = 1, max = 65535))]
    pub port: Option<u16>,
    /// For gre and gretap, the key.
    #[serde(default)]
    #[schemars(schema_with = "schema::unsigned")]
    pub key: Option<u32>,
    /// For gre, gretap and ipip; absent: inherited.
    #[schemars(range(min = 1, max = 255))]
    pub ttl: Option<u8>,
    /// For vrf, its table.
    #[serde(default)]
    #[schemars(schema_with = "schema::unsigned")]
    pub table: Option<u32>,
    /// For tun and tap, the user who may open it.
    #[serde(default)]
    #[schemars(schema_with = "schema::unsigned")]
    pub owner: Option<u32>,
    /// For tun and tap, the group that may open it.
    #[serde(default)]
    #[schemars(schema_with = "schema::unsigned")]
    pub group: Option<u32>,
}

/// A route.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RouteFields {
    /// The network that it leads to; 0.0.0.0/0 and ::/0 are the default.
    #[schemars(schema_with = "schema::cidr")]
    pub to: String,
    /// The next hop; absent: on the link.
    #[serde(default)]
    #[schemars(schema_with = "schema::ip")]
    pub via: Option<String>,
    /// The table; absent: main.
    #[serde(default)]
    #[schemars(schema_with = "schema::unsigned")]
    pub table: Option<u32>,
    /// Lower is preferred.
    #[serde(default)]
    #[schemars(schema_with = "schema::unsigned")]
    pub metric: Option<u32>,
    /// The preferred source address.
    #[serde(default)]
    #[schemars(schema_with = "schema::ip")]
    pub src: Option<String>,
}

/// A rule that chooses the table of a route.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RuleFields {
    /// Packets from here; absent: from anywhere.
    #[serde(default)]
    #[schemars(schema_with = "schema::cidr")]
    pub from: Option<String>,
    /// Packets to there; absent: to anywhere.
    #[serde(default)]
    #[schemars(schema_with = "schema::cidr")]
    pub to: Option<String>,
    /// The table that is looked up.
    #[schemars(schema_with = "schema::unsigned")]
    pub table: u32,
    /// Lower comes first.
    #[schemars(range(min = 1, max = 32765))]
    pub priority: u32,
}
