//! Describes drift: the differences that somebody else caused. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use eno_fabric_driver::desired::{desired_vlans, vlans_of};
use eno_fabric_driver::report::{BoundedNotes, DRIFT};
use eno_schemas::{
    Applied, Drift, FabricDesired, FabricPort, FabricVrf, Item, Note, Report, RoutedInterface,
    VLAN_TAKEN_OFF, VlanId, VlanSet, vlan_name,
};

use crate::plan::{
    ChangeUnit, Exclusions, GroupChange, Mode, ObservedConfig, VrfChange, emptied_list_message, group_name,
    is_emptied, members, ours, plan_routing, switched,
};

/// Maximum differences that get a note of their own.
const MAX_DRIFT_NOTES: usize = 50;

/// Deviations from the desired state that are no drift: a report names them by rejections and notes, or they are work
/// that is still to be done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KnownDeviations {
    vlans: VlanSet,
    /// Ports with a deviation as a whole.
    ports: Vec<String>,
    on_ports: BTreeMap<String, VlanSet>,
    /// VRFs with a deviation as a whole.
    vrfs: BTreeSet<String>,
    /// Owners of BGP groups with a deviation.
    bgp: BTreeSet<String>,
    /// VLANs of which the way into a VRF deviates.
    routed: VlanSet,
    /// What the command changes. Its VLANs say nothing about ports.
    to_do: Wanted,
}

/// The VLANs that a command wants, on the device and on each port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    address: String,
    vlans: VlanSet,
    /// By port and LAG.
    ports: BTreeMap<(String, Option<String>), VlanSet>,
    vrfs: BTreeMap<String, FabricVrf>,
    routed: BTreeMap<VlanId, Arc<RoutedInterface>>,
}

impl Wanted {
    /// The VLANs of this command.
    pub fn of(desired: &FabricDesired) -> Self {
        let vrfs = desired.vrfs.iter().map(|vrf| (vrf.name.clone(), vrf.clone())).collect();
        let routed = desired.vlans.iter().filter_map(|vlan| Some((vlan.vid, vlan.routed.clone()?))).collect();
        let desired = &*switched(desired);
        let key = |port: &FabricPort| (port.name.clone(), port.lag.clone());
        Self {
            address: desired.device.address.clone(),
            vlans: desired_vlans(desired),
            ports: desired.ports.iter().map(|port| (key(port), port.vlans.clone())).collect(),
            vrfs,
            routed,
        }
    }

    fn on(&self, port: &FabricPort) -> VlanSet {
        self.ports.get(&(port.name.clone(), port.lag.clone())).cloned().unwrap_or_default()
    }
}

/// What others changed.
#[derive(Debug, Default)]
pub struct DriftFound {
    /// A note for each difference up to a bound, then a note with the number of the rest.
    pub notes: Vec<Note>,
    /// The units of a change that would repair it.
    pub units: Vec<ChangeUnit>,
}

impl KnownDeviations {
    /// The deviations of these items.
    pub fn of<'a>(items: impl IntoIterator<Item = &'a Item>) -> Self {
        let mut known = Self::default();
        for item in items {
            if let Some(owner) = &item.bgp {
                known.bgp.insert(owner.clone());
                continue;
            }
            match (&item.vrf, item.vlan) {
                (Some(_), Some(vid)) => {
                    known.routed.insert(vid);
                    continue;
                }
                (Some(vrf), None) => {
                    known.vrfs.insert(vrf.clone());
                    continue;
                }
                (None, _) => {}
            }
            match (&item.port, item.vlan) {
                (None, Some(vid)) => drop(known.vlans.insert(vid)),
                (Some(port), None) => known.ports.push(port.clone()),
                (Some(port), Some(vid)) => {
                    known.on_ports.entry(port.clone()).or_default().insert(vid);
                }
                (None, None) => {}
            }
        }
        known
    }

    /// The deviations of a report.
    pub fn of_report(report: &Report) -> Self {
        Self::of(items(&report.rejected, &report.notes))
    }

    /// The deviations under another command, after `before` was verified. `None`: that was another device.
    pub fn after_change(&self, before: &Wanted, desired: &FabricDesired) -> Option<Self> {
        let mut to_do = Wanted::of(desired);
        if before.address != to_do.address {
            return None;
        }
        to_do.vlans = symmetric_difference(&to_do.vlans, &before.vlans);
        for (port, vlans) in &mut to_do.ports {
            let before = before.ports.get(port).unwrap_or(&VlanSet::EMPTY);
            *vlans = symmetric_difference(vlans, before);
        }
        let mut known = self.clone();
        known.vrfs.extend(differing(&before.vrfs, &to_do.vrfs));
        known.routed.extend(differing(&before.routed, &to_do.routed));
        Some(Self { to_do, ..known })
    }

    /// The deviations under another command than that of the last report, of which only the noted drift is known.
    /// `None`: it notes no drift.
    pub fn after_report(report: &Report, desired: &FabricDesired) -> Option<Self> {
        let noted = Self::of(report.notes.iter().filter(|note| note.kind == DRIFT).map(|note| &note.item));
        if noted == Self::default() {
            return None;
        }
        let mut to_do = Wanted::of(desired);
        let nothing = (VlanSet::EMPTY, BTreeMap::new(), BTreeSet::new());
        let (vlans, ports, vrfs, routed) = match &report.applied {
            Some(Applied::Fabric { vlans, ports, vrfs, routed, .. }) => (vlans, ports, vrfs, routed),
            _ => (&nothing.0, &nothing.1, &nothing.2, &nothing.0),
        };
        let mut known = Self::of_report(report);
        known
            .vrfs
            .extend(vrfs.iter().chain(to_do.vrfs.keys()).filter(|vrf| !noted.vrfs.contains(*vrf)).cloned());
        let led: VlanSet = to_do.routed.keys().copied().collect();
        known.routed = known.routed.union(&led.union(routed).difference(&noted.routed));
        to_do.vlans = to_do.vlans.union(vlans).difference(&noted.vlans);
        for ((port, _), vlans) in &mut to_do.ports {
            let was = ports.get(port).unwrap_or(&VlanSet::EMPTY);
            let noted = if noted.ports.contains(port) { Some(&*vlans) } else { noted.on_ports.get(port) };
            let noted = noted.cloned().unwrap_or_default();
            *vlans = vlans.union(was).difference(&noted);
        }
        Some(Self { to_do, ..known })
    }

    fn port(&self, port: &FabricPort) -> bool {
        self.ports.contains(&port.name)
    }

    /// The VLANs that deviate on the device.
    fn on_device(&self) -> VlanSet {
        self.vlans.union(&self.to_do.vlans)
    }

    /// The VLANs that deviate on the port.
    fn on(&self, port: &FabricPort) -> VlanSet {
        let own = self.on_ports.get(&port.name).unwrap_or(&VlanSet::EMPTY);
        own.union(&self.vlans).union(&self.to_do.on(port))
    }
}

/// The keys whose values differ between two maps.
fn differing<'a, K: Ord + Clone, V: PartialEq>(
    one: &'a BTreeMap<K, V>,
    other: &'a BTreeMap<K, V>,
) -> impl Iterator<Item = K> + use<'a, K, V> {
    one.keys().chain(other.keys()).filter(|key| one.get(key) != other.get(key)).cloned()
}

fn symmetric_difference(one: &VlanSet, other: &VlanSet) -> VlanSet {
    one.difference(other).union(&other.difference(one))
}

/// The items of all rejections and notes except drift.
pub fn items<'a>(
    rejected: &'a [eno_schemas::Rejection],
    notes: &'a [Note],
) -> impl Iterator<Item = &'a Item> {
    // A VLAN that was taken off a foreign list is as desired.
    let amiss = notes.iter().filter(|note| note.kind != DRIFT && note.kind != VLAN_TAKEN_OFF);
    let noted = amiss.map(|note| &note.item);
    rejected.iter().map(|rejection| &rejection.item).chain(noted)
}

/// Finds the differences that are not `known`.
pub fn drift(observed: &ObservedConfig, desired: &FabricDesired, known: &KnownDeviations) -> DriftFound {
    let mut drift_notes = DriftNotes { notes: BoundedNotes::new(MAX_DRIFT_NOTES), units: Vec::new() };
    routing(&mut drift_notes, observed, desired, known);
    let desired = &*switched(desired);
    let ours = ours(observed, &desired.cluster);
    let desired_vlans = desired_vlans(desired);
    let known_vlans = known.on_device();
    let settled = observed.vlans.settled(&desired.cluster);
    for vid in desired_vlans.difference(&known_vlans).difference(settled).iter() {
        let unit = || Some(ChangeUnit::Vlan(vid));
        let name = vlan_name(&desired.cluster, vid);
        match observed.vlans.get(vid) {
            None => drift_notes.add(Item::vlan(vid), unit(), || format!("VLAN {vid} missing")),
            Some(current) if current.name.as_ref() != Some(&name) => {
                // The plan takes over no VLAN of another name.
                drift_notes.add(Item::vlan(vid), None, || {
                    let now =
                        current.name.as_ref().map_or("nothing".to_owned(), |other| format!("{other:?}"));
                    format!("VLAN {vid} renamed from {name:?} to {now}")
                });
            }
            Some(current) if !current.active => {
                drift_notes.add(Item::vlan(vid), unit(), || format!("VLAN {vid} suspended"));
            }
            Some(_) => {}
        }
    }
    let unwanted = ours.difference(&desired_vlans).difference(&known_vlans);
    for vid in unwanted.iter().filter(|_| observed.contested.is_empty()) {
        let unit = Some(ChangeUnit::Vlan(vid));
        drift_notes.add(Item::vlan(vid), unit, || format!("VLAN {vid} there although not wanted"));
    }
    let of_ours = ours.union(&desired_vlans);
    for (interface, ports) in members(desired) {
        if ports.iter().any(|port| known.port(port)) {
            continue;
        }
        if observed.ports.get(interface).is_some_and(|current| is_emptied(current, &ports)) {
            // Without repair, the plan leaves it and notes it.
            if desired.device.drift == Drift::Repair {
                let item = ports.first().map_or(Item::TARGET, |port| Item::port(&port.name));
                drift_notes.add(item, None, || emptied_list_message(interface));
            }
        } else {
            port(&mut drift_notes, observed, interface, &ports, &of_ours, known);
        }
    }
    let DriftNotes { notes, units } = drift_notes;
    DriftFound { notes: notes.finish(|more| format!("and {more} more differences")), units }
}

/// Adds the differences of VRFs and of what leads VLANs into them.
fn routing(
    drift_notes: &mut DriftNotes,
    observed: &ObservedConfig,
    desired: &FabricDesired,
    known: &KnownDeviations,
) {
    let vlans = ours(observed, &desired.cluster).union(&desired_vlans(desired));
    let changes = plan_routing(observed, desired, &Exclusions::default(), &vlans).changes;
    for (name, change) in changes.vrfs.iter().filter(|(name, _)| !known.vrfs.contains(*name)) {
        let was = observed.routing.read().is_some_and(|read| read.vrfs.contains_key(name));
        let what = match change {
            VrfChange::Remove => "there although not wanted",
            VrfChange::Set { .. } if was => "changed",
            VrfChange::Set { .. } => "missing",
        };
        let unit = Some(ChangeUnit::Vrf(name.clone()));
        drift_notes.add(Item::vrf(name), unit, || format!("VRF {name} {what}"));
    }
    // What no device shows, the password, is no drift.
    let groups = changes.bgp.groups.iter().filter(|(_, change)| !change.is_password());
    let known_groups: BTreeSet<String> =
        known.bgp.iter().flat_map(|owner| [group_name(&desired.cluster, owner), owner.clone()]).collect();
    let is_known =
        |name: &String, change: &GroupChange| known.vrfs.contains(&change.vrf) || known_groups.contains(name);
    for (name, change) in groups.filter(|(name, change)| !is_known(name, change)) {
        let what = match (change.is_wanted, change.is_there) {
            (false, _) => "there although not wanted",
            (true, true) => "changed",
            (true, false) => "missing",
        };
        let unit = Some(ChangeUnit::Bgp(name.clone()));
        // Without its VRF, only what it used is left.
        let item = if change.vrf.is_empty() { Item::TARGET } else { Item::vrf(&change.vrf) };
        drift_notes.add(item, unit, || format!("the BGP group {name} {what}"));
    }
    for vid in changes.routed.keys().copied().filter(|vid| !known.routed.contains(*vid)) {
        let unit = Some(ChangeUnit::Routed(vid));
        match desired.vlans.get(vid).and_then(|vlan| vlan.routed.as_ref()) {
            Some(routed) if known.vrfs.contains(&routed.vrf) => {}
            Some(routed) => drift_notes.add(Item::routed(&routed.vrf, vid), unit, || {
                format!("the interface or a route of VLAN {vid} in VRF {} changed", routed.vrf)
            }),
            None => drift_notes.add(Item::vlan(vid), unit, || {
                format!("the interface or a route of VLAN {vid} there although not wanted")
            }),
        }
    }
}

/// Adds the differences of one interface, which its ports share.
fn port(
    drift_notes: &mut DriftNotes,
    observed: &ObservedConfig,
    interface: &str,
    ports: &[&FabricPort],
    of_ours: &VlanSet,
    known: &KnownDeviations,
) {
    let Some(first) = ports.first() else { return };
    let want = vlans_of(ports.iter().copied());
    let known = ports.iter().fold(VlanSet::EMPTY, |all, port| all.union(&known.on(port)));
    // A port of which every VLAN is a known deviation had none.
    let had_vlans = !want.difference(&known).is_empty();
    let item = || Item::port(&first.name);
    let unit = || Some(ChangeUnit::Port(interface.to_owned()));
    let Some(current) = observed.ports.get(interface) else {
        if had_vlans {
            drift_notes.add(item(), None, || format!("{interface} missing"));
        }
        return;
    };
    if current.mode == Some(Mode::Access) {
        if had_vlans {
            drift_notes.add(item(), unit(), || format!("mode of {interface} changed from trunk to access"));
        }
        return;
    }
    if current.open {
        if had_vlans {
            drift_notes.add(item(), None, || emptied_list_message(interface));
        }
        return;
    }
    let tagged = current.tagged();
    if current.mode.is_none() && had_vlans && tagged.is_empty() {
        drift_notes.add(item(), unit(), || format!("mode of {interface} changed from trunk to none"));
    }
    // The native VLAN belongs to the port.
    let native: VlanSet = current.native.into_iter().collect();
    let at = |vid: VlanId| {
        let port = ports.iter().find(|port| port.vlans.contains(vid)).unwrap_or(first);
        Item::port_vlan(&port.name, vid)
    };
    let unit = |vid: VlanId| Some(ChangeUnit::PortVlan(interface.to_owned(), vid));
    for vid in want.difference(tagged).difference(&known).iter() {
        drift_notes.add(at(vid), unit(vid), || format!("VLAN {vid} on {interface} missing"));
    }
    // Foreign uses of a VID and inherited VLANs are no drift.
    let foreign = native.union(&current.taken_vlans()).union(&current.inherited);
    let unwanted = tagged.intersection(of_ours).difference(&want).difference(&foreign);
    for vid in unwanted.difference(&known).iter().filter(|_| observed.contested.is_empty()) {
        drift_notes
            .add(at(vid), unit(vid), || format!("VLAN {vid} on {interface} there although not wanted"));
    }
}

struct DriftNotes {
    notes: BoundedNotes,
    units: Vec<ChangeUnit>,
}

impl DriftNotes {
    /// Adds a difference. `unit`: the part of a change that would repair it, if there is one.
    fn add(&mut self, item: Item, unit: Option<ChangeUnit>, message: impl FnOnce() -> String) {
        self.units.extend(unit);
        self.notes.add(|| Note::new(DRIFT, item, message()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::test_states::{desired, own_vlans, set, vid};
    use crate::plan::{ObservedPort, ObservedVlan};

    fn observed(vlans: &str, ports: &[(&str, &str)]) -> ObservedConfig {
        let port = |(name, vlans): &(&str, &str)| {
            let tagged = set(vlans).into();
            let port = ObservedPort { mode: Some(Mode::Trunk), tagged, ..ObservedPort::default() };
            ((*name).to_owned(), port)
        };
        ObservedConfig {
            vlans: own_vlans(vlans),
            ports: ports.iter().map(port).collect(),
            ..ObservedConfig::default()
        }
    }

    fn messages(observed: &ObservedConfig, desired_state: &FabricDesired) -> Vec<String> {
        let notes = drift(observed, desired_state, &KnownDeviations::default()).notes;
        assert!(notes.iter().all(|note| note.kind == DRIFT));
        notes.into_iter().map(|note| note.message.into()).collect()
    }

    #[test]
    fn each_difference_is_noted_once() {
        let desired = desired("100-102", &[("e1", "100-101"), ("e2", "100"), ("e3", "102"), ("e4", "")]);
        let mut current =
            observed("100-102", &[("e1", "100-101"), ("e2", "100"), ("e3", "102"), ("e4", "7")]);
        assert_eq!(messages(&current, &desired), [""; 0]);
        current.vlans = own_vlans("200");
        current.vlans.insert(
            vid(100),
            ObservedVlan { name: Some("mine".into()), ..ObservedVlan::ours("c", vid(100)) },
        );
        current.vlans.insert(vid(101), ObservedVlan { active: false, ..ObservedVlan::ours("c", vid(101)) });
        current.ports.get_mut("e1").unwrap().tagged = set("7,101-102").into();
        current.ports.get_mut("e2").unwrap().mode = Some(Mode::Access);
        current.ports.get_mut("e3").unwrap().open = true;
        current.ports.remove("e4");
        assert_eq!(
            messages(&current, &desired),
            [
                "VLAN 100 renamed from \"eno-c-100\" to \"mine\"",
                "VLAN 101 suspended",
                "VLAN 102 missing",
                "VLAN 200 there although not wanted",
                "VLAN 100 on e1 missing",
                "VLAN 102 on e1 there although not wanted",
                "mode of e2 changed from trunk to access",
                "e3 carries every VLAN: its list is gone",
            ]
        );
    }

    #[test]
    fn foreign_use_of_a_vid_on_a_port_is_no_drift() {
        let desired = desired("100-101", &[("e1", "100")]);
        let mut current = observed("100-101", &[("e1", "100-102")]);
        let port = current.ports.get_mut("e1").unwrap();
        port.taken.insert(vid(101), "it belongs to e1.1 of red".into());
        port.inherited.insert(vid(102));
        assert_eq!(messages(&current, &desired), [""; 0]);
    }

    #[test]
    fn known_deviation_is_no_drift() {
        let desired = desired("100-103", &[("e1", "100-103"), ("e2", "100")]);
        let current = observed("100-102", &[("e1", "100"), ("e2", "")]);
        let items = [
            Item::vlan(vid(103)),
            Item::port_vlan("e1", vid(101)),
            Item::port_vlan("e1", vid(102)),
            Item::port("e2"),
        ];
        assert_eq!(drift(&current, &desired, &KnownDeviations::of(&items)).notes, []);
        let notes = drift(&current, &desired, &KnownDeviations::of(&items[1..])).notes;
        assert_eq!(notes.len(), 2, "{notes:?}");
    }

    #[test]
    fn known_emptied_list_is_no_drift() {
        let mut desired = desired("100", &[("e1", "100")]);
        desired.ports[0].closed = true;
        let mut current = observed("100", &[("e1", "")]);
        current.ports.get_mut("e1").unwrap().open = true;
        assert_eq!(messages(&current, &desired), ["e1 carries every VLAN: its list is gone"]);
        assert_eq!(drift(&current, &desired, &KnownDeviations::of(&[Item::port("e1")])).notes, []);
    }

    #[test]
    fn many_differences_are_summarised() {
        let ports: Vec<String> = (0..48).map(|number| format!("e{number}")).collect();
        let ports: Vec<(&str, &str)> = ports.iter().map(|name| (name.as_str(), "1-4094")).collect();
        let messages = messages(&observed("", &[]), &desired("1-4094", &ports));
        assert_eq!(messages.len(), MAX_DRIFT_NOTES + 1);
        assert_eq!(
            messages.last().unwrap(),
            &format!("and {} more differences", 4094 + 48 - MAX_DRIFT_NOTES)
        );
    }
}
