//! VRFs and routed interfaces as a device has them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};

use eno_schemas::{FabricVrf, VlanId, is_vlan_name, vrf_description};
use ipnet::IpNet;

use crate::memory::Kept;
use crate::plan::{Layout, ObservedBgp};

/// What a session knows of the routing of a device.
#[derive(Clone, Debug, Default)]
pub enum Routing {
    /// It was not read: nothing of ours is there, and nothing is desired.
    #[default]
    NotRead,
    /// The dialect of this name has no VRFs.
    Unknown(&'static str),
    /// What was read.
    Read(Box<ObservedRouting>),
}

impl Routing {
    /// What was read, if it was.
    pub fn read(&self) -> Option<&ObservedRouting> {
        if let Self::Read(observed) = self { Some(observed) } else { None }
    }
}

/// The VRFs of a device, and the interfaces that lead VLANs into them.
#[derive(Clone, Debug, Default)]
pub struct ObservedRouting {
    /// All routing instances, by name.
    pub vrfs: BTreeMap<String, ObservedVrf>,
    /// The interfaces of single VLANs.
    pub interfaces: BTreeMap<RoutedId, ObservedInterface>,
    /// What sub-interfaces of the requested ports have in common.
    pub parents: BTreeMap<String, ObservedParent>,
    /// A VRF has at most one target in each direction.
    pub one_target: bool,
    /// A prefix of a VRF has one entry with one owner and one preference.
    pub one_route: bool,
    /// The BGP groups, if they were read.
    pub bgp: Option<ObservedBgp>,
    /// Why the device does not show them.
    pub bgp_refusal: Option<String>,
    /// The dialect's own state between reading and writing.
    pub layout: Layout,
    /// The memory that it takes.
    pub memory: Kept,
}

/// Where a VLAN is routed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RoutedId {
    /// The VLAN.
    pub vid: VlanId,
    /// The port of the sub-interface; `None`: an interface of the device beside the VLAN (IRB).
    pub port: Option<String>,
}

impl RoutedId {
    /// The interface beside the VLAN.
    pub fn irb(vid: VlanId) -> Self {
        Self { vid, port: None }
    }

    /// The sub-interface of a port.
    pub fn on(port: impl Into<String>, vid: VlanId) -> Self {
        Self { vid, port: Some(port.into()) }
    }

    /// The interface that has it as a unit; `irb`: the one of all that are beside VLANs.
    pub fn interface_name<'a>(&'a self, irb: &'a str) -> &'a str {
        self.port.as_deref().unwrap_or(irb)
    }

    /// Its name as a unit, `<interface>.<VLAN>`.
    pub fn unit_name(&self, irb: &str) -> String {
        format!("{}.{}", self.interface_name(irb), self.vid)
    }

    /// The unit of this name, if its number is a VLAN ID.
    pub fn of_unit(name: &str, irb: &str) -> Option<Self> {
        let (port, unit) = name.rsplit_once('.')?;
        let vid = unit.parse().ok()?;
        Some(if port == irb { Self::irb(vid) } else { Self::on(port, vid) })
    }
}

impl fmt::Display for RoutedId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.port {
            Some(port) => write!(f, "sub-interface {} of {port}", self.vid),
            None => write!(f, "the interface of VLAN {}", self.vid),
        }
    }
}

/// The place of an address family in [`ObservedInterface::mtus`].
pub(crate) fn family(net: &IpNet) -> usize {
    usize::from(net.addr().is_ipv6())
}

/// An interface of one VLAN.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObservedInterface {
    /// Its description.
    pub description: Option<String>,
    /// Its addresses.
    pub addresses: BTreeSet<IpNet>,
    /// The MTU of its packets, in bytes, for IPv4 and IPv6.
    pub mtus: [Option<u32>; 2],
    /// It is otherwise as the driver makes it.
    pub fits: bool,
}

impl ObservedInterface {
    /// It has these addresses and this MTU.
    pub(super) fn has(&self, addresses: &BTreeSet<IpNet>, mtu: Option<u32>) -> bool {
        self.addresses == *addresses && addresses.iter().all(|net| self.mtus[family(net)] == mtu)
    }

    /// It bears the description of this cluster.
    pub(super) fn is_ours(&self, cluster: &str, vid: VlanId) -> bool {
        self.description.as_deref().is_some_and(|text| is_vlan_name(text, cluster, vid))
    }
}

/// A port with sub-interfaces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own about the port")]
pub struct ObservedParent {
    /// Packets without a tag are used.
    pub untagged: bool,
    /// Packets with a tag are used, or are allowed to be.
    pub tagged: bool,
    /// Packets with a tag are used by the setting that the driver makes.
    pub is_plain: bool,
    /// The number of its sub-interfaces.
    pub units: usize,
    /// It has more than sub-interfaces, and than what they need.
    pub has_others: bool,
}

/// A routing instance.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own about the instance")]
pub struct ObservedVrf {
    /// It is a VRF and not an instance of another type.
    pub is_vrf: bool,
    /// Its description.
    pub description: Option<String>,
    /// Its distinguisher, written as in [`FabricVrf`].
    pub route_distinguisher: Option<String>,
    /// The targets that it imports.
    pub import_targets: BTreeSet<String>,
    /// The targets that it exports.
    pub export_targets: BTreeSet<String>,
    /// Whether policies decide what it imports, and what it exports. They are not ENO's.
    pub policies: [bool; 2],
    /// Whether it exports its connected and static routes; `None`: some of them.
    pub exports: Option<bool>,
    /// Its interfaces of single VLANs, with their names in it.
    pub interfaces: BTreeMap<RoutedId, String>,
    /// It has other interfaces, or more that is not read.
    pub has_others: bool,
    /// It has BGP, which is read apart.
    pub has_bgp: bool,
    /// Its static routes to next hops, by prefix and next hop.
    pub routes: BTreeMap<(IpNet, IpAddr), ObservedRoute>,
    /// The number of next hops of each prefix, with those that are no addresses.
    pub next_hops: BTreeMap<IpNet, usize>,
    /// The device's name of its static routes, if it has any.
    pub static_routes: Option<String>,
    /// Others have more there than routes.
    pub keeps_static_routes: bool,
}

/// A static route of a VRF.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObservedRoute {
    /// Of several routes to a prefix the lowest counts.
    pub preference: Option<u32>,
    /// The key of its next hop on the device.
    pub key: String,
}

impl ObservedVrf {
    /// It bears the description of this cluster.
    pub(super) fn is_ours(&self, cluster: &str, name: &str) -> bool {
        self.description.as_deref() == Some(&*vrf_description(cluster, name))
    }

    /// Its distinguisher and its targets are as desired.
    pub(crate) fn has_values_of(&self, vrf: &FabricVrf) -> bool {
        self.route_distinguisher == vrf.route_distinguisher && self.has_targets_of(vrf)
    }

    /// The same, where a policy does not decide.
    pub(super) fn agrees_with(&self, vrf: &FabricVrf) -> bool {
        self.route_distinguisher == vrf.route_distinguisher
            && (self.policies[0] || self.import_targets.iter().eq(&vrf.import_targets))
            && (self.policies[1] || self.export_targets.iter().eq(&vrf.export_targets))
    }

    /// Its static routes to a prefix, by next hop.
    pub(crate) fn routes_to(&self, prefix: &IpNet) -> impl Iterator<Item = (&IpAddr, &ObservedRoute)> {
        let (prefix, first) = (*prefix, IpAddr::V4(Ipv4Addr::UNSPECIFIED));
        let all = self.routes.range((prefix, first)..).take_while(move |((of, _), _)| *of == prefix);
        all.map(|((_, next_hop), route)| (next_hop, route))
    }

    /// Its targets are as desired.
    pub(crate) fn has_targets_of(&self, vrf: &FabricVrf) -> bool {
        self.import_targets.iter().eq(&vrf.import_targets)
            && self.export_targets.iter().eq(&vrf.export_targets)
    }

    /// It exports its own routes as a VRF with this distinguisher is to.
    pub(crate) fn exports_as(&self, vrf: &FabricVrf) -> bool {
        self.exports == Some(vrf.route_distinguisher.is_some())
    }
}
