//! The changes of a device and the units that can be excluded from them.

use std::collections::{BTreeMap, BTreeSet};

use eno_schemas::{DeviceRole, PortBefore, VlanId, VlanSet};

use super::routing::RoutingChanges;

/// Maximum refused VLANs of a trunk that are named one by one, unless the trunk loses VLANs too.
const MAX_REFUSED_VLANS: usize = 64;

/// The smallest part of a change that can be excluded.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ChangeUnit {
    /// A VLAN on the whole device.
    Vlan(VlanId),
    /// An interface with all its VLANs.
    Port(String),
    /// A VLAN on an interface.
    PortVlan(String, VlanId),
    /// A VRF itself.
    Vrf(String),
    /// What leads a VLAN into a VRF: its interfaces and its routes.
    Routed(VlanId),
    /// A BGP group, by its name on the device.
    Bgp(String),
}

/// Units that stay as they are on the device. Those that can't be changed have a reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exclusions(BTreeMap<ChangeUnit, Option<String>>);

impl Exclusions {
    /// Excludes `unit`; false if it was excluded already. The first reason is kept.
    pub fn add(&mut self, unit: ChangeUnit, reason: impl Into<String>) -> bool {
        if self.0.contains_key(&unit) {
            return false;
        }
        self.0.insert(unit, Some(reason.into()));
        true
    }

    /// Excludes `unit`, which somebody else changed and which is not repaired.
    pub fn leave(&mut self, unit: ChangeUnit) {
        self.0.entry(unit).or_insert(None);
    }

    /// Excludes these VLANs no more.
    pub(crate) fn remove_vlans(&mut self, vlans: &VlanSet) {
        self.0.retain(|unit, _| !matches!(unit, ChangeUnit::Vlan(vid) if vlans.contains(*vid)));
    }

    /// The number of units that can't be changed.
    pub fn len(&self) -> usize {
        self.reasons().count()
    }

    /// True when no unit is excluded.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The units that can't be changed, and the reasons.
    pub(super) fn reasons(&self) -> impl Iterator<Item = (&ChangeUnit, &String)> {
        self.0.iter().filter_map(|(unit, reason)| Some((unit, reason.as_ref()?)))
    }

    pub(super) fn port(&self, interface: &str) -> bool {
        self.0.contains_key(&ChangeUnit::Port(interface.to_owned()))
    }

    pub(super) fn vrf(&self, name: &str) -> bool {
        self.0.contains_key(&ChangeUnit::Vrf(name.to_owned()))
    }

    pub(super) fn routed(&self, vid: VlanId) -> bool {
        self.0.contains_key(&ChangeUnit::Routed(vid))
    }

    pub(super) fn bgp(&self, group: &str) -> bool {
        self.0.contains_key(&ChangeUnit::Bgp(group.to_owned()))
    }

    pub(super) fn vlan(&self, vid: VlanId) -> bool {
        self.0.contains_key(&ChangeUnit::Vlan(vid))
    }

    /// The VLANs that are excluded on the whole device.
    pub(super) fn vlans(&self) -> VlanSet {
        let vid = |unit: &ChangeUnit| if let ChangeUnit::Vlan(vid) = unit { Some(*vid) } else { None };
        self.0.keys().filter_map(vid).collect()
    }

    /// The VLANs that are excluded on this interface or on the whole device.
    pub(super) fn on(&self, interface: &str) -> VlanSet {
        let vid = |unit: &ChangeUnit| match unit {
            ChangeUnit::Vlan(vid) => Some(*vid),
            ChangeUnit::PortVlan(port, vid) if port == interface => Some(*vid),
            _ => None,
        };
        self.0.keys().filter_map(vid).collect()
    }
}

/// The changes of a device, which a dialect renders.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// VLANs to create, rename or activate, with their names.
    pub create: BTreeMap<VlanId, String>,
    /// VLANs to delete.
    pub delete: VlanSet,
    /// Interfaces to change, by name.
    pub ports: BTreeMap<String, PortChange>,
    /// VRFs and what leads VLANs into them.
    pub routing: RoutingChanges,
}

/// A change of one interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PortChange {
    /// Tagged VLANs to add.
    pub add: VlanSet,
    /// Tagged VLANs to remove.
    pub remove: VlanSet,
    /// The change of its mode.
    pub mode: ModeChange,
    /// The port carries every VLAN and gets a list: its [observed](super::ObservedPort::tagged) VLANs with `add` and
    /// without `remove`.
    pub close: bool,
    /// Settings that get their values from before our first VLAN, by the dialect's names; `None`: unset. They are
    /// applied before `mode`.
    pub restore: BTreeMap<&'static str, Option<String>>,
    /// The port memory, for dialects that restore VLAN by VLAN.
    pub former: Option<PortBefore>,
}

/// A change of an interface's mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ModeChange {
    /// The mode stays.
    #[default]
    Keep,
    /// The port becomes a trunk.
    Trunk,
    /// The port loses its trunk mode and its empty list.
    Drop,
}

impl PortChange {
    /// The interface has or may have other VLANs, which the refusal of these does not concern.
    fn keeps_others(&self) -> bool {
        let is_trunk = self.mode == ModeChange::Keep && self.add.len() <= MAX_REFUSED_VLANS;
        !self.close && (is_trunk || !self.remove.is_empty())
    }

    /// The remembered value of a setting, if it was set.
    pub fn former(&self, name: &str) -> Option<&str> {
        self.former.as_ref()?.settings.as_ref()?.get(name).map(String::as_str)
    }

    /// The interface is remembered as a trunk.
    pub fn was_trunk(&self) -> bool {
        self.former.as_ref().is_some_and(|former| former.trunk)
    }
}

impl Changes {
    /// True when there is no change.
    pub fn is_empty(&self) -> bool {
        self.switches_nothing() && self.routing.is_empty()
    }

    /// True when no VLAN and no port changes.
    pub fn switches_nothing(&self) -> bool {
        self.create.is_empty() && self.delete.is_empty() && self.ports.is_empty()
    }

    /// The VLANs that are made, changed or deleted.
    pub fn on_device(&self) -> VlanSet {
        let created: VlanSet = self.create.keys().copied().collect();
        created.union(&self.delete)
    }

    /// All VLANs that the change affects.
    pub fn vlans(&self) -> VlanSet {
        let mut all = self.on_device();
        for change in self.ports.values() {
            all = all.union(&change.add).union(&change.remove);
        }
        all
    }

    /// The number of VLANs that change on an interface.
    pub fn size_on(&self, interface: &str) -> usize {
        self.ports.get(interface).map_or(0, |change| change.add.len() + change.remove.len())
    }

    /// The removals: VLANs, and VLANs on interfaces.
    pub fn removals(&self) -> Vec<ChangeUnit> {
        let on_ports = self.ports.iter().flat_map(|(name, change)| on(name, &change.remove));
        self.delete.iter().map(ChangeUnit::Vlan).chain(on_ports).collect()
    }

    /// Takes away what is there of a former role of the device.
    pub fn leaves_former_role(&self, role: DeviceRole) -> bool {
        let mut removed = self.routing.routed.values().flat_map(|change| &change.remove);
        match role {
            DeviceRole::Switch => removed.any(|id| id.port.is_some()),
            DeviceRole::Router => !self.delete.is_empty() || removed.any(|id| id.port.is_none()),
        }
    }

    /// The additions by interface. A port that gets a list again is one unit.
    pub fn additions(&self) -> BTreeMap<&String, Vec<ChangeUnit>> {
        let units = |(name, change): (_, &PortChange)| {
            let closed = change.close.then(|| vec![ChangeUnit::Port(String::clone(name))]);
            (name, closed.unwrap_or_else(|| on(name, &change.add)))
        };
        self.ports.iter().map(units).filter(|(_, units)| !units.is_empty()).collect()
    }

    /// The VLANs that are added to interfaces.
    pub fn added_on_ports(&self) -> VlanSet {
        self.ports.values().fold(VlanSet::EMPTY, |all, change| all.union(&change.add))
    }

    /// The units to exclude for interfaces that refuse all their additions. Their removals stay in the change, and so
    /// do the VLANs that they carry already.
    pub fn refused_on(&self, interfaces: Vec<&String>) -> Vec<ChangeUnit> {
        let units = |name: &String| match self.ports.get(name) {
            Some(change) if change.keeps_others() && !change.add.is_empty() => on(name, &change.add),
            _ => vec![ChangeUnit::Port(name.clone())],
        };
        interfaces.into_iter().flat_map(units).collect()
    }

    /// The unit to exclude when the device refuses the only VLAN that changes on an interface.
    pub fn refused_alone(&self, interface: String) -> ChangeUnit {
        let change = self.ports.get(&interface).filter(|change| change.keeps_others());
        match change.and_then(|change| change.add.union(&change.remove).iter().next()) {
            Some(vid) => ChangeUnit::PortVlan(interface, vid),
            None => ChangeUnit::Port(interface),
        }
    }

    /// All units: each VLAN, each VLAN on a port, each port that gets a list or restored settings, and those of VRFs.
    pub fn units(&self) -> BTreeSet<ChangeUnit> {
        let vlans = self.create.keys().copied().chain(self.delete.iter()).map(ChangeUnit::Vlan);
        let closed = self.ports.iter().filter(|(_, change)| change.close || !change.restore.is_empty());
        let closed = closed.map(|(name, _)| ChangeUnit::Port(name.clone()));
        let ports = self.ports.iter().flat_map(|(name, change)| on(name, &change.add.union(&change.remove)));
        vlans.chain(closed).chain(ports).chain(self.routing.units()).collect()
    }
}

fn on(interface: &str, vids: &VlanSet) -> Vec<ChangeUnit> {
    vids.iter().map(|vid| ChangeUnit::PortVlan(interface.to_owned(), vid)).collect()
}
