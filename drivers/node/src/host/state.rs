//! The observed state of the kernel that the host's networks depend on, as plain values.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use eno_schemas::{MarkMask, OvsDatapath, VlanId, VlanSet};
use ipnet::IpNet;

use super::interface::Settings;

use crate::netlink::{Address, Kind, Link, MarkRule, PortVlan, Route, Snapshot};

/// `RT_TABLE_MAIN`.
pub const TABLE_MAIN: u32 = 254;
/// `IN6_ADDR_GEN_MODE_NONE`: no link-local address, and so no route in the main table, when the interface is set up.
pub const ADDR_GEN_NONE: u8 = 1;

/// The observed state at one time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// Interfaces, addresses, routes and rules.
    pub snapshot: Snapshot,
    /// VLANs of ports of ENO's VLAN-filtering bridges that are no pods', by the port's index.
    pub vlans: BTreeMap<u32, Vec<PortVlan>>,
    /// Settings of interfaces for BGP sessions, by index.
    pub interfaces: BTreeMap<u32, Settings>,
    /// Rules of ENO's table of nftables, by chain.
    pub chains: BTreeMap<String, Vec<MarkRule>>,
    /// What the installation says of the host.
    pub installation: Arc<Installation>,
}

/// What the installation says of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Installation {
    /// The name of the node.
    pub node: String,
    /// Networks of the cluster that the kernel need not know, such as that of services.
    pub reserved: Vec<IpNet>,
    /// The datapath of Open vSwitch bridges that ask for none in particular.
    pub ovs_datapath: OvsDatapath,
    /// The bits of marks that lead answers back.
    pub return_path_mask: MarkMask,
    /// `/proc/sys/net`, writable.
    pub proc_sys_net: PathBuf,
}

impl Default for Installation {
    fn default() -> Self {
        Self {
            node: String::new(),
            reserved: Vec::new(),
            ovs_datapath: OvsDatapath::System,
            return_path_mask: MarkMask::default(),
            proc_sys_net: "/proc/sys/net".into(),
        }
    }
}

impl State {
    /// The interface with that name or alternative name.
    pub fn named(&self, name: &str) -> Option<&Link> {
        let links = &self.snapshot.links;
        self.snapshot
            .named(name)
            .or_else(|| links.iter().find(|link| link.altnames.iter().any(|other| other == name)))
    }

    /// The name of an interface; `number <index>` if it does not exist.
    pub fn name(&self, index: u32) -> String {
        self.snapshot.link(index).map_or_else(|| format!("number {index}"), |link| link.name.clone())
    }

    /// The addresses of an interface.
    pub fn addresses_of(&self, index: u32) -> impl Iterator<Item = &Address> {
        self.snapshot.addresses.iter().filter(move |address| address.index == index)
    }

    /// The main table's routes over an interface.
    pub fn main_routes_of(&self, index: u32) -> impl Iterator<Item = &Route> {
        self.snapshot
            .routes
            .iter()
            .filter(move |route| route.table == TABLE_MAIN && route.index == Some(index))
    }

    /// Interfaces made on this one, such as its VLAN subinterfaces; not its veth peer.
    pub fn uppers(&self, index: u32) -> impl Iterator<Item = &Link> {
        self.snapshot.links.iter().filter(move |link| {
            link.parent == Some(index)
                && link.parent_namespace.is_none()
                && !matches!(link.kind, Kind::Device | Kind::Loopback | Kind::Veth)
        })
    }

    /// The VLANs of an uplink: the tagged ones, and the others (PVID or untagged).
    pub fn uplink_vlans(&self, index: u32) -> (VlanSet, VlanSet) {
        let (mut tagged, mut other) = (VlanSet::EMPTY, VlanSet::EMPTY);
        for vlan in self.vlans.get(&index).into_iter().flatten() {
            if let Ok(vid) = VlanId::new(vlan.vid) {
                let set = if vlan.pvid || vlan.untagged { &mut other } else { &mut tagged };
                set.insert(vid);
            }
        }
        (tagged, other)
    }
}

/// The kind's name in messages, mostly that of `ip link`.
pub fn kind_name(kind: &Kind) -> &str {
    match kind {
        Kind::Device => "NIC",
        Kind::Loopback => "loopback",
        Kind::Veth => "veth",
        Kind::Bridge { .. } => "bridge",
        Kind::Macvlan { .. } => "macvlan",
        Kind::Ipvlan { .. } => "ipvlan",
        Kind::Vlan { .. } => "VLAN",
        Kind::Vxlan(_) => "vxlan",
        Kind::Geneve(_) => "geneve",
        Kind::Gre(_) => "gre",
        Kind::Gretap(_) => "gretap",
        Kind::Ipip(_) => "ipip",
        Kind::Tun { .. } => "tun",
        Kind::Dummy => "dummy",
        Kind::Vrf { .. } => "vrf",
        Kind::Bond { .. } => "bond",
        Kind::Other(name) => name,
    }
}
