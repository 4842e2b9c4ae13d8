//! What the kernel of a node says, as far as the networks of its host depend on it. Values only.

use std::collections::BTreeMap;

use eno_schemas::{VlanId, VlanSet};

use crate::netlink::{Address, Kind, Link, PortVlan, Route, Snapshot};

/// `RT_TABLE_MAIN`.
pub const MAIN: u32 = 254;
/// `IN6_ADDR_GEN_MODE_NONE`: an interface that is set up gets no link-local address, and so no route in main.
pub const NO_ADDRESSES: u8 = 1;

/// All of it, at one time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// Interfaces, addresses, routes and rules.
    pub snapshot: Snapshot,
    /// The VLANs of those ports of our VLAN-filtering bridges that lead to the fabric, by index.
    pub vlans: BTreeMap<u32, Vec<PortVlan>>,
}

impl State {
    /// The interface of that name or alternative name.
    pub fn named(&self, name: &str) -> Option<&Link> {
        let links = &self.snapshot.links;
        self.snapshot
            .named(name)
            .or_else(|| links.iter().find(|link| link.altnames.iter().any(|other| other == name)))
    }

    /// What an interface is called; its number where it has just gone.
    pub fn name(&self, index: u32) -> String {
        self.snapshot.link(index).map_or_else(|| format!("number {index}"), |link| link.name.clone())
    }

    /// The addresses of an interface.
    pub fn addresses_of(&self, index: u32) -> impl Iterator<Item = &Address> {
        self.snapshot.addresses.iter().filter(move |address| address.index == index)
    }

    /// Routes out of an interface, by the main table.
    pub fn main_routes_of(&self, index: u32) -> impl Iterator<Item = &Route> {
        self.snapshot.routes.iter().filter(move |route| route.table == MAIN && route.index == Some(index))
    }

    /// Interfaces made on this one, such as VLANs of it; not the other end of a pair.
    pub fn uppers(&self, index: u32) -> impl Iterator<Item = &Link> {
        self.snapshot.links.iter().filter(move |link| {
            link.parent == Some(index)
                && link.parent_namespace.is_none()
                && !matches!(link.kind, Kind::Device | Kind::Loopback | Kind::Veth)
        })
    }

    /// The VLANs of an uplink: those that it carries tagged, and those that are there in another way.
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

/// As `ip link` calls it.
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
