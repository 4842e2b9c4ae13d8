//! A difference, and what is left out of it.

use std::collections::{BTreeMap, BTreeSet};

use eno_schemas::{PortBefore, VlanId, VlanSet};

/// What can be left out of a change by itself.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ChangeUnit {
    /// A VLAN, everywhere.
    Vlan(VlanId),
    /// An interface, whole.
    Port(String),
    /// A VLAN on an interface.
    PortVlan(String, VlanId),
}

/// Units that stay as they are on the device, and why.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exclusions(BTreeMap<ChangeUnit, String>);

impl Exclusions {
    /// Leaves `unit` out; true when it was not yet. The first reason stays.
    pub fn add(&mut self, unit: ChangeUnit, reason: impl Into<String>) -> bool {
        if self.0.contains_key(&unit) {
            return false;
        }
        self.0.insert(unit, reason.into());
        true
    }

    /// How many units there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Nothing is left out.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The units, and why.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&ChangeUnit, &String)> {
        self.0.iter()
    }

    pub(super) fn port(&self, interface: &str) -> bool {
        self.0.contains_key(&ChangeUnit::Port(interface.to_owned()))
    }

    pub(super) fn vlan(&self, vid: VlanId) -> bool {
        self.0.contains_key(&ChangeUnit::Vlan(vid))
    }

    /// The VLANs that are left out on this interface, or everywhere.
    pub(super) fn on(&self, interface: &str) -> VlanSet {
        let vid = |unit: &ChangeUnit| match unit {
            ChangeUnit::Vlan(vid) => Some(*vid),
            ChangeUnit::PortVlan(port, vid) if port == interface => Some(*vid),
            _ => None,
        };
        self.0.keys().filter_map(vid).collect()
    }
}

/// A difference, to be rendered for a device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// VLANs to make, or to set right, with their names.
    pub create: BTreeMap<VlanId, String>,
    /// VLANs to delete.
    pub delete: VlanSet,
    /// Interfaces to change, by name.
    pub ports: BTreeMap<String, PortChange>,
}

/// A change of one interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PortChange {
    /// Tagged VLANs to add.
    pub add: VlanSet,
    /// Tagged VLANs to take off.
    pub remove: VlanSet,
    /// What happens to its mode.
    pub mode: ModeChange,
    /// It carries every VLAN and gets a list, of what [is seen](super::SeenPort::tagged), added and not taken off.
    pub close: bool,
    /// Settings that are as they were before the first VLAN of ours again, by the dialect's names; `None`: not set. They
    /// come before what `mode` asks for.
    pub restore: BTreeMap<&'static str, Option<String>>,
    /// What is remembered of all that was then, for what is restored VLAN by VLAN.
    pub former: Option<PortBefore>,
}

/// A change of an interface's mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ModeChange {
    /// None.
    #[default]
    Keep,
    /// It becomes a trunk.
    Trunk,
    /// It is a trunk and becomes nothing, with an empty list.
    Drop,
}

impl PortChange {
    /// What a setting was before the first VLAN of ours, where that is remembered and it was set.
    pub fn former(&self, name: &str) -> Option<&str> {
        self.former.as_ref()?.settings.as_ref()?.get(name).map(String::as_str)
    }

    /// It is remembered that the interface was a trunk.
    pub fn was_trunk(&self) -> bool {
        self.former.as_ref().is_some_and(|former| former.trunk)
    }
}

impl Changes {
    /// Nothing is to be done.
    pub fn is_empty(&self) -> bool {
        self.create.is_empty() && self.delete.is_empty() && self.ports.is_empty()
    }

    /// All VLANs that are touched.
    pub fn vlans(&self) -> VlanSet {
        let mut all: VlanSet = self.create.keys().copied().collect();
        all.extend(self.delete.iter());
        for change in self.ports.values() {
            all = all.union(&change.add).union(&change.remove);
        }
        all
    }

    /// How many VLANs change on an interface.
    pub fn size_on(&self, interface: &str) -> usize {
        self.ports.get(interface).map_or(0, |change| change.add.len() + change.remove.len())
    }

    /// What is taken away: VLANs, and VLANs of interfaces.
    pub fn removals(&self) -> Vec<ChangeUnit> {
        let on_ports = self.ports.iter().flat_map(|(name, change)| on(name, &change.remove));
        self.delete.iter().map(ChangeUnit::Vlan).chain(on_ports).collect()
    }

    /// What comes to each interface. One that is closed is one unit.
    pub fn additions(&self) -> BTreeMap<&String, Vec<ChangeUnit>> {
        let units = |(name, change): (_, &PortChange)| {
            let closed = change.close.then(|| vec![ChangeUnit::Port(String::clone(name))]);
            (name, closed.unwrap_or_else(|| on(name, &change.add)))
        };
        self.ports.iter().map(units).filter(|(_, units)| !units.is_empty()).collect()
    }

    /// The VLANs that come to interfaces.
    pub fn added_on_ports(&self) -> VlanSet {
        self.ports.values().fold(VlanSet::EMPTY, |all, change| all.union(&change.add))
    }

    /// What to leave out of interfaces that accept none of their additions: their removals stay in.
    pub fn refused_on(&self, interfaces: Vec<&String>) -> Vec<ChangeUnit> {
        let units = |name: &String| match self.ports.get(name) {
            Some(change) if !change.remove.is_empty() && !change.close => on(name, &change.add),
            _ => vec![ChangeUnit::Port(name.clone())],
        };
        interfaces.into_iter().flat_map(units).collect()
    }

    /// Each VLAN that is made or deleted, each change of a VLAN on a port, and each port that is closed or restored.
    pub fn units(&self) -> BTreeSet<ChangeUnit> {
        let vlans = self.create.keys().copied().chain(self.delete.iter()).map(ChangeUnit::Vlan);
        let closed = self.ports.iter().filter(|(_, change)| change.close || !change.restore.is_empty());
        let closed = closed.map(|(name, _)| ChangeUnit::Port(name.clone()));
        let ports = self.ports.iter().flat_map(|(name, change)| on(name, &change.add.union(&change.remove)));
        vlans.chain(closed).chain(ports).collect()
    }
}

fn on(interface: &str, vids: &VlanSet) -> Vec<ChangeUnit> {
    vids.iter().map(|vid| ChangeUnit::PortVlan(interface.to_owned(), vid)).collect()
}
