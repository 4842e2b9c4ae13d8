//! The changes of VRFs and routed interfaces.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use eno_schemas::{FabricVrf, VlanId};
use ipnet::IpNet;

use super::observed::RoutedId;
use crate::plan::{BgpChanges, ChangeUnit};

/// The changes of the VRFs of a device, which a dialect renders beside those of its VLANs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RoutingChanges {
    /// The VRFs to make, change or remove.
    pub vrfs: BTreeMap<String, VrfChange>,
    /// What changes for each VLAN that is led into a VRF.
    pub routed: BTreeMap<VlanId, RoutedChange>,
    /// What changes of BGP.
    pub bgp: BgpChanges,
}

/// A change of a VRF itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VrfChange {
    /// It is made, or gets these values.
    Set {
        /// Its values.
        vrf: FabricVrf,
        /// Its description.
        description: String,
    },
    /// It is removed with all that it has.
    Remove,
}

/// What changes for a VLAN that is led into a VRF.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RoutedChange {
    /// The interface to make or change.
    pub set: Option<InterfaceValues>,
    /// Interfaces to remove.
    pub remove: BTreeSet<RoutedId>,
    /// The VRF that gets an interface.
    pub join: Option<(String, RoutedId)>,
    /// The VRFs that lose an interface.
    pub leave: BTreeSet<(String, RoutedId)>,
    /// Static routes to make or change, by VRF, prefix and next hop, with their preferences.
    pub add_routes: BTreeMap<RouteKey, Option<u8>>,
    /// Static routes to remove.
    pub remove_routes: BTreeSet<RouteKey>,
}

/// A static route of a VRF.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RouteKey {
    /// The VRF.
    pub vrf: String,
    /// The destination.
    pub prefix: IpNet,
    /// The next hop.
    pub next_hop: IpAddr,
}

/// The values of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfaceValues {
    /// Where it is.
    pub id: RoutedId,
    /// Its description.
    pub description: String,
    /// All of its addresses.
    pub addresses: BTreeSet<IpNet>,
    /// Its MTU in bytes; absent: the device's default.
    pub mtu: Option<u32>,
}

impl RoutingChanges {
    /// True when there is no change.
    pub fn is_empty(&self) -> bool {
        self.vrfs.is_empty() && self.routed.is_empty() && self.bgp.is_empty()
    }

    /// The VRFs, VLANs and BGP groups that change.
    pub fn units(&self) -> impl Iterator<Item = ChangeUnit> {
        let routed = self.routed.keys().copied().map(ChangeUnit::Routed);
        let groups = self.bgp.groups.keys().cloned().map(ChangeUnit::Bgp);
        self.vrfs.keys().cloned().map(ChangeUnit::Vrf).chain(routed).chain(groups)
    }

    /// The numbers of VRFs, interfaces and BGP groups that are made or changed, and that are removed.
    pub fn added_and_removed(&self) -> (usize, usize) {
        let removed = self.vrfs.values().filter(|change| **change == VrfChange::Remove).count()
            + self.routed.values().filter(|change| change.only_removes()).count()
            + self.bgp.groups.values().filter(|change| change.only_removes()).count();
        (self.vrfs.len() + self.routed.len() + self.bgp.groups.len() - removed, removed)
    }

    /// The VRF is removed with all that it has.
    pub fn removes(&self, vrf: &str) -> bool {
        self.vrfs.get(vrf) == Some(&VrfChange::Remove)
    }

    /// All VRFs with a change of their own or of what is in them.
    pub fn touched_vrfs(&self) -> BTreeSet<&str> {
        let routed = self.routed.values().flat_map(|change| {
            let members = change.join.iter().chain(&change.leave).map(|(vrf, _)| vrf);
            members.chain(change.add_routes.keys().chain(&change.remove_routes).map(|route| &route.vrf))
        });
        self.vrfs.keys().chain(routed).map(String::as_str).chain(self.bgp.vrfs()).collect()
    }
}

impl RoutedChange {
    /// The VLAN is led into no VRF from now on.
    fn only_removes(&self) -> bool {
        self.set.is_none() && self.join.is_none() && self.add_routes.is_empty()
    }
}
