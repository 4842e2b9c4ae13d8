//! Plans the VRFs of a device and the interfaces by which VLANs are led into them. Pure.
//!
//! The device alone tells who owns what:
//! - A VRF is ours when it bears the description [`vrf_description`]. A VRF of a desired name without it is foreign. It
//!   is used while its distinguisher and its targets are as desired, never changed, and never removed. One that is
//!   named for adoption gets our description and values, and is ours from then on.
//! - An interface of a VLAN is ours when it bears the description [`routed_description`]. Another one at the place of
//!   ours stays as it is.
//! - A static route is ours when its next hop is in a network of an interface of ours in that VRF.
//! - A VRF of ours with interfaces of others stays until they are gone.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use eno_fabric_driver::desired::{listed_name, vlans_of};
use eno_schemas::{
    DeviceRole, FabricDesired, FabricPort, FabricVlans, FabricVrf, Item, Note, Rejection, RoutedInterface,
    VlanId, VlanSet, routed_description, vrf_description,
};
use ipnet::IpNet;

use super::bgp::{BgpPlan, concerns_bgp, plan_bgp, reject_all};
use super::{ChangeUnit, Exclusions, ObservedConfig};

mod changes;
mod observed;
#[cfg(test)]
mod tests;

pub use changes::{InterfaceValues, RouteKey, RoutedChange, RoutingChanges, VrfChange};
pub(crate) use observed::family;
pub use observed::{
    ObservedInterface, ObservedParent, ObservedRoute, ObservedRouting, ObservedVrf, RoutedId, Routing,
};

/// The plan of a device's VRFs, and what of them is as desired already.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RoutingPlan {
    /// The difference between the observed and the desired state.
    pub changes: RoutingChanges,
    /// Desired items that stay as they are, with reasons.
    pub rejected: Vec<Rejection>,
    /// Notes for the admin.
    pub notes: Vec<Note>,
    /// The VRFs that are as desired.
    pub vrfs: BTreeSet<String>,
    /// The VLANs whose interfaces and routes are as desired.
    pub routed: VlanSet,
    /// The owners of the BGP groups that are as desired.
    pub bgp: BTreeSet<String>,
}

/// Whether a command has anything to do with VRFs.
pub fn concerns_routing(desired: &FabricDesired) -> bool {
    desired.device.role == DeviceRole::Router
        || !desired.vrfs.is_empty()
        || desired.vlans.iter().any(|vlan| vlan.routed.is_some())
}

/// The part of a desired state that is switched. A router switches no VLAN.
pub fn switched(desired: &FabricDesired) -> Cow<'_, FabricDesired> {
    if desired.device.role == DeviceRole::Switch {
        return Cow::Borrowed(desired);
    }
    let port = |port: &FabricPort| FabricPort { vlans: VlanSet::EMPTY, ..port.clone() };
    let ports = desired.ports.iter().map(port).collect();
    Cow::Owned(FabricDesired { vlans: FabricVlans::new(), ports, ..desired.clone() })
}

/// The interfaces of ours.
pub fn own_interfaces<'a>(
    observed: &'a ObservedConfig,
    cluster: &'a str,
) -> impl Iterator<Item = (&'a RoutedId, &'a ObservedInterface)> {
    let read = observed.routing.read().into_iter();
    read.flat_map(|read| &read.interfaces).filter(|(id, interface)| interface.is_ours(cluster, id.vid))
}

/// Whether the device has a VRF, an interface or a BGP group of ours.
pub fn has_ours(observed: &ObservedConfig, cluster: &str) -> bool {
    let mut vrfs = observed.routing.read().into_iter().flat_map(|read| &read.vrfs);
    vrfs.any(|(name, vrf)| vrf.is_ours(cluster, name))
        || own_interfaces(observed, cluster).next().is_some()
        || has_own_bgp(observed)
}

/// Whether the device has a BGP group of ours, or what one uses.
pub fn has_own_bgp(observed: &ObservedConfig) -> bool {
    let bgp = observed.routing.read().and_then(|read| read.bgp.as_ref());
    bgp.is_some_and(|bgp| !bgp.entries.is_empty())
}

/// Computes the difference. `switched`: the VLANs that are on the device after the change.
pub fn plan_routing(
    observed: &ObservedConfig,
    desired: &FabricDesired,
    excluded: &Exclusions,
    switched: &VlanSet,
) -> RoutingPlan {
    match &observed.routing {
        Routing::NotRead => RoutingPlan::default(),
        Routing::Unknown(dialect) => unknown(dialect, desired),
        Routing::Read(read) => {
            let own = read.interfaces.iter().filter(|(id, one)| one.is_ours(&desired.cluster, id.vid));
            let mut planner = Planner {
                config: observed,
                observed: read,
                own: own.collect(),
                desired,
                excluded,
                switched,
                usable: BTreeMap::new(),
                members: members(read),
                kept: VlanSet::EMPTY,
                wanted: BTreeMap::new(),
                refused: VlanSet::EMPTY,
                with_bgp: BTreeSet::new(),
                plan: RoutingPlan::default(),
            };
            planner.reject_excluded();
            planner.plan_vrfs();
            planner.plan_bgp();
            planner.plan_interfaces();
            planner.remove_interfaces();
            planner.plan_routes();
            planner.remove_vrfs();
            planner.finish()
        }
    }
}

/// A dialect without VRFs refuses what needs them.
fn unknown(dialect: &str, desired: &FabricDesired) -> RoutingPlan {
    let reason = format!("ENO knows no VRFs of devices with the dialect {dialect}");
    let vrfs = desired.vrfs.iter().map(|vrf| Item::vrf(&vrf.name));
    let routed =
        desired.vlans.iter().filter_map(|vlan| Some(Item::routed(&vlan.routed.as_ref()?.vrf, vlan.vid)));
    let rejected = vrfs.chain(routed).map(|item| Rejection::permanent(item, &*reason));
    let rejected = rejected.chain(led_nowhere(desired).map(reject_led_nowhere)).collect();
    RoutingPlan { rejected, ..RoutingPlan::default() }
}

/// The VLANs of a router that are led into no VRF.
fn led_nowhere(desired: &FabricDesired) -> impl Iterator<Item = VlanId> {
    let is_router = desired.device.role == DeviceRole::Router;
    let on_ports = if is_router { vlans_of(&desired.ports) } else { VlanSet::EMPTY };
    let vlans = desired.vlans.iter().filter(|vlan| vlan.routed.is_none()).map(|vlan| vlan.vid);
    vlans.filter(move |vid| on_ports.contains(*vid))
}

fn reject_led_nowhere(vid: VlanId) -> Rejection {
    Rejection::permanent(Item::vlan(vid), "the device is a router, and the VLAN is led into no VRF")
}

/// The networks of our interfaces in a VRF.
#[derive(Default)]
struct Networks {
    /// Their VLANs.
    vlans: BTreeMap<IpNet, VlanId>,
    /// The lengths of their prefixes.
    lengths: BTreeSet<u8>,
}

impl Networks {
    /// Adds the networks of these addresses. The first VLAN of a network counts.
    fn add<'a>(&mut self, vid: VlanId, addresses: impl Iterator<Item = &'a IpNet>) {
        for net in addresses {
            self.lengths.insert(net.prefix_len());
            self.vlans.entry(net.trunc()).or_insert(vid);
        }
    }

    /// The VLAN of the smallest network with this address.
    fn vlan_of(&self, address: IpAddr) -> Option<VlanId> {
        let networks = self.lengths.iter().rev().filter_map(|length| IpNet::new(address, *length).ok());
        networks.into_iter().find_map(|net| self.vlans.get(&net.trunc()).copied())
    }
}

/// The VRFs of each interface.
fn members(observed: &ObservedRouting) -> BTreeMap<&RoutedId, Vec<&str>> {
    let mut members: BTreeMap<&RoutedId, Vec<&str>> = BTreeMap::new();
    for (name, vrf) in &observed.vrfs {
        for id in vrf.interfaces.keys() {
            members.entry(id).or_default().push(name);
        }
    }
    members
}

struct Planner<'a> {
    config: &'a ObservedConfig,
    observed: &'a ObservedRouting,
    /// The interfaces of ours.
    own: BTreeMap<&'a RoutedId, &'a ObservedInterface>,
    desired: &'a FabricDesired,
    excluded: &'a Exclusions,
    /// The VLANs that are on the device after the change.
    switched: &'a VlanSet,
    /// The VRFs that VLANs may be led into.
    usable: BTreeMap<&'a str, &'a FabricVrf>,
    /// The VRFs of each interface.
    members: BTreeMap<&'a RoutedId, Vec<&'a str>>,
    /// The VLANs whose interfaces and routes stay as they are.
    kept: VlanSet,
    /// The interfaces of all other VLANs that are led into a VRF.
    wanted: BTreeMap<VlanId, (RoutedId, &'a RoutedInterface)>,
    /// The VLANs of which a route is refused.
    refused: VlanSet,
    /// The VRFs in which BGP of others is left.
    with_bgp: BTreeSet<String>,
    plan: RoutingPlan,
}

impl<'a> Planner<'a> {
    fn reject(&mut self, item: Item, reason: impl Into<String>) {
        self.plan.rejected.push(Rejection::permanent(item, reason.into()));
    }

    fn change(&mut self, vid: VlanId) -> &mut RoutedChange {
        self.plan.changes.routed.entry(vid).or_default()
    }

    /// Nothing is removed while another cluster with our identifier may own it.
    fn removes(&self) -> bool {
        self.config.contested.is_empty()
    }

    fn reject_excluded(&mut self) {
        for (unit, reason) in self.excluded.reasons() {
            let item = match unit {
                ChangeUnit::Vrf(name) => Item::vrf(name),
                ChangeUnit::Routed(vid) => {
                    let routed = self.desired.vlans.get(*vid).and_then(|vlan| vlan.routed.as_ref());
                    routed.map_or_else(|| Item::vlan(*vid), |routed| Item::routed(&routed.vrf, *vid))
                }
                _ => continue,
            };
            self.reject(item, reason);
        }
    }

    fn plan_vrfs(&mut self) {
        for vrf in &self.desired.vrfs {
            if self.excluded.vrf(&vrf.name) {
                continue;
            }
            match self.vrf_change(vrf) {
                Ok(Some(change)) => drop(self.plan.changes.vrfs.insert(vrf.name.clone(), change)),
                Ok(None) => drop(self.plan.vrfs.insert(vrf.name.clone())),
                Err(reason) => {
                    self.reject(Item::vrf(&vrf.name), reason);
                    continue;
                }
            }
            self.usable.insert(&vrf.name, vrf);
        }
    }

    /// The change of a desired VRF, or the reason against using it.
    fn vrf_change(&self, vrf: &FabricVrf) -> Result<Option<VrfChange>, String> {
        let name = &vrf.name;
        if self.observed.one_target && (vrf.import_targets.len() > 1 || vrf.export_targets.len() > 1) {
            return Err(
                "the device has one import and one export target in a VRF, and policies for more, which \
                        are not ENO's: name one of each"
                    .to_owned(),
            );
        }
        let description = vrf_description(&self.desired.cluster, name);
        let set = || Some(VrfChange::Set { vrf: vrf.clone(), description });
        let Some(current) = self.observed.vrfs.get(name) else { return Ok(set()) };
        if !current.is_vrf {
            return Err(format!("{name} exists on the device and is no VRF: choose another DeviceName"));
        }
        if current.is_ours(&self.desired.cluster, name) {
            return Ok(if current.has_values_of(vrf) && current.exports_as(vrf) { None } else { set() });
        }
        if self.desired.device.adopt_vrfs.contains(name) {
            return Ok(set());
        }
        if current.agrees_with(vrf) { Ok(None) } else { Err(difference(current, vrf)) }
    }

    fn plan_bgp(&mut self) {
        let removes = self.removes();
        let BgpPlan { changes, rejected, groups, kept_in } = match &self.observed.bgp {
            Some(read) => plan_bgp(read, self.desired, &self.usable, self.excluded, removes),
            None if concerns_bgp(self.desired) => {
                let refusal = self.observed.bgp_refusal.as_ref();
                let reason = match refusal {
                    Some(errors) => format!("the device does not show its BGP: {errors}"),
                    None => "ENO knows no BGP of devices with this dialect".to_owned(),
                };
                reject_all(self.desired, &reason)
            }
            None => BgpPlan::default(),
        };
        let unread = self.observed.vrfs.iter().filter(|(_, vrf)| vrf.has_bgp && self.observed.bgp.is_none());
        self.with_bgp = unread.map(|(name, _)| name.clone()).chain(kept_in).collect();
        (self.plan.changes.bgp, self.plan.bgp) = (changes, groups);
        self.plan.rejected.extend(rejected);
    }

    fn plan_interfaces(&mut self) {
        let desired = self.desired;
        self.plan.rejected.extend(led_nowhere(desired).map(reject_led_nowhere));
        for vlan in &desired.vlans {
            let Some(routed) = vlan.routed.as_deref() else { continue };
            if let Some(id) = self.place(vlan.vid, routed) {
                self.plan_interface(id, routed);
            } else if !self.is_elsewhere(vlan.vid, &routed.vrf) {
                self.kept.insert(vlan.vid);
            }
        }
    }

    /// Whether an interface of ours leads the VLAN into another VRF than this one. It goes then: out of that VRF alone, it
    /// would lead into the routes of the device itself.
    fn is_elsewhere(&self, vid: VlanId, vrf: &str) -> bool {
        let first = RoutedId::irb(vid);
        let own = self.own.range::<&RoutedId, _>(&first..).map(|(id, _)| *id);
        own.take_while(|id| id.vid == vid).any(|id| self.vrfs_of(id).any(|name| name != vrf))
    }

    /// The VRFs that have an interface now.
    fn vrfs_of(&self, id: &RoutedId) -> impl Iterator<Item = &'a str> + use<'a> {
        self.members.get(id).cloned().unwrap_or_default().into_iter()
    }

    /// Where the VLAN is to be routed; `None`: it stays as it is where it is in no other VRF.
    fn place(&mut self, vid: VlanId, routed: &RoutedInterface) -> Option<RoutedId> {
        let item = || Item::routed(&routed.vrf, vid);
        if self.excluded.routed(vid) {
            return None;
        }
        if !self.usable.contains_key(routed.vrf.as_str()) {
            if !self.desired.vrfs.iter().any(|vrf| vrf.name == routed.vrf) {
                self.reject(item(), format!("the command has no VRF {}", routed.vrf));
            }
            return None;
        }
        let id = match self.desired.device.role {
            // Why the VLAN is not there is a rejection of its own.
            DeviceRole::Switch => self.switched.contains(vid).then(|| RoutedId::irb(vid))?,
            DeviceRole::Router => RoutedId::on(self.port_of(vid, routed)?, vid),
        };
        let Some(current) = self.observed.interfaces.get(&id) else {
            let parent = id.port.as_ref().and_then(|port| self.observed.parents.get(port));
            if let (Some(port), Some(parent)) = (&id.port, parent)
                && parent.untagged
                && !parent.tagged
            {
                let reason = format!(
                    "{port} is used without tags, which is not ours: take that configuration away, or name another \
                     port"
                );
                self.reject(item(), reason);
                return None;
            }
            return Some(id);
        };
        if !current.is_ours(&self.desired.cluster, vid) {
            let addresses: Vec<String> = current.addresses.iter().map(ToString::to_string).collect();
            let with = if addresses.is_empty() { "without an address".into() } else { addresses.join(", ") };
            let named = current.description.as_ref().map_or(String::new(), |text| format!(" {text:?}"));
            self.reject(
                item(),
                format!("{id} exists on the device{named} ({with}) and is not ours: delete it there"),
            );
            return None;
        }
        Some(id)
    }

    /// The interface of the one port of a router that leads to the VLAN.
    fn port_of(&mut self, vid: VlanId, routed: &RoutedInterface) -> Option<String> {
        let ports = self.desired.ports.iter().filter(|port| port.vlans.contains(vid));
        let names: BTreeSet<&str> = ports.map(listed_name).collect();
        let mut all = names.iter();
        let reason = match (all.next(), all.next()) {
            // That a port is missing is a rejection of its own.
            (Some(name), None) => {
                return self.config.ports.contains_key(*name).then(|| (*name).to_owned());
            }
            (None, _) => "no port of the router leads to the VLAN".to_owned(),
            (Some(one), Some(other)) => format!(
                "both {one} and {other} of the router lead to the VLAN: make them one LAG, or take one out of the \
                 FabricDevice"
            ),
        };
        self.reject(Item::routed(&routed.vrf, vid), reason);
        None
    }

    fn plan_interface(&mut self, id: RoutedId, routed: &'a RoutedInterface) {
        let (vid, observed) = (id.vid, self.observed);
        let addresses: BTreeSet<IpNet> = routed.addresses.iter().copied().collect();
        let is_there =
            observed.interfaces.get(&id).is_some_and(|now| now.fits && now.has(&addresses, routed.mtu));
        if !is_there {
            let description = routed_description(&self.desired.cluster, vid);
            let values = InterfaceValues { id: id.clone(), description, addresses, mtu: routed.mtu };
            self.change(vid).set = Some(values);
        }
        for name in self.vrfs_of(&id).filter(|name| *name != routed.vrf) {
            self.change(vid).leave.insert((name.to_owned(), id.clone()));
        }
        if !observed.vrfs.get(&routed.vrf).is_some_and(|vrf| vrf.interfaces.contains_key(&id)) {
            self.change(vid).join = Some((routed.vrf.clone(), id.clone()));
        }
        self.wanted.insert(vid, (id, routed));
    }

    /// Whether what is of this VLAN and not wanted goes.
    fn drops(&self, vid: VlanId) -> bool {
        self.removes() && !self.kept.contains(vid) && !self.excluded.routed(vid)
    }

    fn remove_interfaces(&mut self) {
        let own: Vec<RoutedId> = self.own.keys().map(|id| (*id).clone()).collect();
        for id in own {
            let is_wanted = self.wanted.get(&id.vid).is_some_and(|(wanted, _)| *wanted == id);
            if is_wanted || !self.drops(id.vid) {
                continue;
            }
            let left = self.vrfs_of(&id).map(|name| (name.to_owned(), id.clone()));
            let change = self.change(id.vid);
            change.leave.extend(left);
            change.remove.insert(id);
        }
    }

    /// The networks of our interfaces by VRF, wanted and observed.
    fn networks(&self) -> BTreeMap<&'a str, Networks> {
        let mut networks: BTreeMap<&str, Networks> = BTreeMap::new();
        for (vid, (_, routed)) in &self.wanted {
            networks.entry(&routed.vrf).or_default().add(*vid, routed.addresses.iter());
        }
        for (id, interface) in &self.own {
            for name in self.vrfs_of(id) {
                networks.entry(name).or_default().add(id.vid, interface.addresses.iter());
            }
        }
        networks
    }

    fn plan_routes(&mut self) {
        let mut wanted: BTreeMap<RouteKey, (VlanId, Option<u8>)> = BTreeMap::new();
        for (vid, (_, routed)) in &self.wanted {
            for route in &routed.routes {
                let key =
                    RouteKey { vrf: routed.vrf.clone(), prefix: route.prefix, next_hop: route.next_hop };
                wanted.insert(key, (*vid, route.preference));
            }
        }
        let (observed, networks) = (self.observed, self.networks());
        for (name, vrf) in observed.vrfs.iter().filter(|(_, vrf)| !vrf.routes.is_empty()) {
            let networks = networks.get(name.as_str());
            for ((prefix, next_hop), now) in &vrf.routes {
                let key = RouteKey { vrf: name.clone(), prefix: *prefix, next_hop: *next_hop };
                match (wanted.get(&key), networks.and_then(|networks| networks.vlan_of(*next_hop))) {
                    (Some((_, preference)), _) if preference.map(u32::from) == now.preference => {
                        wanted.remove(&key);
                    }
                    (None, Some(vid)) if self.drops(vid) => {
                        self.change(vid).remove_routes.insert(key);
                    }
                    _ => {}
                }
            }
        }
        for (key, (vid, preference)) in wanted {
            if observed.one_route && self.is_of_others(&key, networks.get(key.vrf.as_str())) {
                let reason =
                    format!("the device has a route to {} in VRF {} that is not ours", key.prefix, key.vrf);
                self.reject(Item::routed(&key.vrf, vid), reason);
                self.refused.insert(vid);
                continue;
            }
            self.change(vid).add_routes.insert(key, preference);
        }
    }

    /// A prefix has a next hop that is not in our networks.
    fn is_of_others(&self, key: &RouteKey, networks: Option<&Networks>) -> bool {
        let Some(vrf) = self.observed.vrfs.get(&key.vrf) else { return false };
        let is_ours = |next_hop: &IpAddr| networks.is_some_and(|all| all.vlan_of(*next_hop).is_some());
        let ours = vrf.routes_to(&key.prefix).filter(|(next_hop, _)| is_ours(next_hop)).count();
        vrf.next_hops.get(&key.prefix).is_some_and(|all| *all > ours)
    }

    /// The interface was read and is there no more, so it belongs to nobody.
    fn is_gone(&self, id: &RoutedId) -> bool {
        let was_read = id.port.as_ref().is_none_or(|port| self.observed.parents.contains_key(port));
        was_read && !self.observed.interfaces.contains_key(id)
    }

    fn remove_vrfs(&mut self) {
        let (observed, cluster) = (self.observed, &self.desired.cluster);
        let desired: BTreeSet<&str> = self.desired.vrfs.iter().map(|vrf| vrf.name.as_str()).collect();
        let unwanted = observed.vrfs.iter().filter(|(name, vrf)| {
            vrf.is_ours(cluster, name) && !desired.contains(name.as_str()) && !self.excluded.vrf(name)
        });
        let left: BTreeSet<(String, RoutedId)> =
            self.plan.changes.routed.values().flat_map(|change| change.leave.iter().cloned()).collect();
        for (name, vrf) in unwanted.filter(|_| self.removes()).collect::<Vec<_>>() {
            let is_left = |id: &RoutedId| left.contains(&(name.clone(), id.clone()));
            let stays = |id: &RoutedId| !is_left(id) && !self.is_gone(id);
            if vrf.has_others || self.with_bgp.contains(name) || vrf.interfaces.keys().any(stays) {
                let message =
                    format!("VRF {name} is not removed: interfaces or settings of others are in it");
                self.plan.notes.push(Note::new("StillUsed", Item::vrf(name), message));
            } else {
                self.plan.changes.vrfs.insert(name.clone(), VrfChange::Remove);
            }
        }
    }

    fn finish(mut self) -> RoutingPlan {
        let changed = &self.plan.changes.routed;
        let unchanged = self.wanted.keys().copied().filter(|vid| !changed.contains_key(vid));
        self.plan.routed = unchanged.filter(|vid| !self.refused.contains(*vid)).collect();
        self.plan
    }
}

/// Names both values of what differs between a foreign VRF and the desired one.
fn difference(current: &ObservedVrf, vrf: &FabricVrf) -> String {
    let list = |targets: &mut dyn Iterator<Item = &String>| {
        let targets: Vec<&str> = targets.map(String::as_str).collect();
        if targets.is_empty() { "none".to_owned() } else { targets.join(", ") }
    };
    let values = [
        (
            "distinguisher",
            false,
            list(&mut current.route_distinguisher.iter()),
            list(&mut vrf.route_distinguisher.iter()),
        ),
        (
            "import targets",
            current.policies[0],
            list(&mut current.import_targets.iter()),
            list(&mut vrf.import_targets.iter()),
        ),
        (
            "export targets",
            current.policies[1],
            list(&mut current.export_targets.iter()),
            list(&mut vrf.export_targets.iter()),
        ),
    ];
    let differing = values.iter().filter(|(_, by_policy, is, want)| !by_policy && is != want);
    let differing: Vec<String> =
        differing.map(|(what, _, is, want)| format!("{what} {is} instead of {want}")).collect();
    format!(
        "VRF {} exists on the device and is not ours, with {}: change the VRF here or there, or name it in AdoptVRFs \
         of the FabricDevice",
        vrf.name,
        differing.join(", ")
    )
}
