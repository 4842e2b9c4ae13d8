//! The observed configuration of a device.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;

use eno_schemas::{VlanId, VlanSet};

use super::observed_vlans::ObservedVlans;
use super::routing::Routing;
use super::tagged::Tagged;
use crate::memory::{Counter, Kept};

/// The observed configuration of a device, independent of its model.
#[derive(Clone, Debug, Default)]
pub struct ObservedConfig {
    /// All VLANs.
    pub vlans: ObservedVlans,
    /// VLANs that were ours at the last report and do not exist now. Port entries for them are ours.
    pub deleted_by_others: VlanSet,
    /// VLANs that this driver has just made, and whose names the device changed. They are ours.
    pub renamed: VlanSet,
    /// VLANs under our names that another cluster owns. While there are any, nothing is removed.
    pub contested: VlanSet,
    /// The requested interfaces that exist.
    pub ports: BTreeMap<String, ObservedPort>,
    /// A trunk must not have an empty list: the list would carry every VLAN, or be refused.
    pub empty_opens: bool,
    /// The VRFs, and the interfaces that lead VLANs into them.
    pub routing: Routing,
    /// The dialect's own state between reading and writing.
    pub layout: Layout,
    /// The memory that it takes.
    pub memory: Kept,
}

impl ObservedConfig {
    /// The device has the passwords of all BGP groups of the command.
    pub(crate) fn assume_passwords_written(&mut self) {
        if let Routing::Read(read) = &mut self.routing
            && let Some(bgp) = &mut read.bgp
        {
            bgp.passwords.assume_written();
        }
    }
}

/// The state that a dialect keeps between reading and writing, beyond the rest of [`ObservedConfig`]. It is a value of
/// a type of the dialect, or nothing.
#[derive(Clone, Debug, Default)]
pub struct Layout(Option<Arc<dyn Any + Send + Sync>>);

impl Layout {
    /// A layout with this state.
    pub fn new(state: impl Any + Send + Sync) -> Self {
        Self(Some(Arc::new(state)))
    }

    /// The state, if it has this type.
    pub fn get<T: Any>(&self) -> Option<&T> {
        self.0.as_deref()?.downcast_ref()
    }
}

/// The interfaces of a device by name, from its operational state. Unconfigured hardware ports are in it.
pub type Inventory = BTreeMap<String, InterfaceState>;

/// The operational state of an interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InterfaceState {
    /// The number by which other parts of the configuration refer to the interface, if they use no name.
    pub number: Option<u32>,
}

/// An observed interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own about the interface")]
pub struct ObservedPort {
    /// The interface is configured, and not only present in hardware.
    pub configured: bool,
    /// The interface is a LAG.
    pub aggregate: bool,
    /// The switching mode.
    pub mode: Option<Mode>,
    /// The tagged VLANs.
    pub tagged: Tagged,
    /// The VLAN of untagged frames of a trunk.
    pub native: Option<VlanId>,
    /// The VLAN of an access port.
    pub access: Option<VlanId>,
    /// The trunk carries every VLAN.
    pub open: bool,
    /// It carries every VLAN by inherited configuration, which the driver does not change.
    pub open_by_inheritance: bool,
    /// VIDs that the interface uses for something else than the VLAN of that VID, with a description.
    pub taken: BTreeMap<VlanId, String>,
    /// The reason why it can carry no VLAN of ours, as a phrase that follows its name.
    pub unfit: Option<String>,
    /// The dialect does not understand its configuration, so nothing of it is written.
    pub unread: bool,
    /// Tagged VLANs that the interface only inherits. The driver does not change them.
    pub inherited: VlanSet,
    /// Tagged VLANs of its own list that the interface inherits, too. It carries them without its own entry as well.
    pub shadowed: VlanSet,
    /// It is an access port by inherited configuration alone. A trunk that loses its mode becomes that again.
    pub access_by_inheritance: bool,
    /// VLANs that the interface refers to by name. Without the VLAN the reference would dangle.
    pub vlans_by_name: VlanSet,
    /// The list has entries that match no VLAN, so it is not empty without VLANs.
    pub has_unresolved_members: bool,
    /// Own objects that carry nothing, by VID and name. A device or driver that died left them.
    pub leftovers: BTreeMap<VlanId, String>,
    /// Settings that our first VLAN changes besides VLAN lists, by the dialect's names.
    pub settings: BTreeMap<&'static str, Setting>,
}

/// A setting of an interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Setting {
    /// The value; `None`: unset.
    pub value: Option<String>,
    /// The value is the one that the driver sets, and nobody else needs it.
    pub ours: bool,
}

impl Setting {
    /// A setting that is ours if it has this value.
    pub fn of(value: Option<&str>, ours: bool) -> Self {
        Self { value: value.map(str::to_owned), ours }
    }
}

/// Switching modes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// One VLAN, untagged.
    Access,
    /// Tagged VLANs.
    Trunk,
}

impl ObservedPort {
    /// The VIDs that the interface uses for something else.
    pub fn taken_vlans(&self) -> VlanSet {
        self.taken.keys().copied().collect()
    }

    /// The tagged VLANs.
    pub fn tagged(&self) -> &VlanSet {
        self.tagged.vlans()
    }

    /// Counts the memory of an interface of this name.
    pub(super) fn count(&self, name: &str, kept: &mut Counter) {
        kept.port(name);
        kept.ranges(self.tagged.entries().len());
        kept.taken(self.taken.len() + self.leftovers.len());
        let sets = [&self.inherited, &self.shadowed, &self.vlans_by_name];
        sets.iter().filter(|set| !set.is_empty()).for_each(|_| kept.set());
        let settings = self.settings.values().filter_map(|setting| setting.value.as_deref());
        let texts = self.taken.values().chain(self.leftovers.values()).map(String::as_str);
        settings.chain(texts).chain(self.unfit.as_deref()).for_each(|text| kept.text(text));
    }
}

/// The settings of an interface. They are a node of a map, which has room for eleven.
const SETTINGS: usize = 11 * size_of::<(&str, Setting)>();

impl Counter {
    /// An interface with its name, its settings and the set of its tagged VLANs, but without the entries of its list.
    pub(crate) fn port(&mut self, name: &str) {
        self.entry(size_of::<ObservedPort>() + SETTINGS);
        self.set();
        self.text(name);
    }
}
