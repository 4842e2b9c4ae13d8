//! What was seen on a device.

use std::collections::BTreeMap;

use eno_schemas::{VlanId, VlanSet};

use crate::dialect::Layout;

/// The configuration of a device, as far as it matters here, whatever the device's model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObservedConfig {
    /// What holds the VLANs on the device, where the model has such a thing (OpenConfig: the network-instance).
    pub home: Option<String>,
    /// All VLANs.
    pub vlans: BTreeMap<VlanId, ObservedVlan>,
    /// VLANs that were ours when last reported, and exist no more: what ports list of them is ours.
    pub gone: VlanSet,
    /// VLANs under our names that another cluster makes: while there are any, nothing is taken off the device.
    pub contested: VlanSet,
    /// Of the interfaces that were asked for, those that exist.
    pub ports: BTreeMap<String, ObservedPort>,
    /// A trunk must not have an empty list: it would carry every VLAN, or be refused.
    pub empty_opens: bool,
    /// How the device writes it, for the dialect that read it.
    pub layout: Layout,
}

/// A device's interfaces by name, from its state: configured ones, and those that are only in the hardware.
pub type Inventory = BTreeMap<String, InterfaceState>;

/// What the state says of an interface, where the model has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InterfaceState {
    /// The number that other parts of the configuration know it by (IEEE 802.1Q: `bridge-port/port-number`).
    pub number: Option<u32>,
}

/// A VLAN that exists.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObservedVlan {
    /// Its name.
    pub name: Option<String>,
    /// It forwards.
    pub active: bool,
    /// Why it can't get another name, where it can't.
    pub fixed: Option<String>,
}

/// An interface that exists.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own about the interface")]
pub struct ObservedPort {
    /// It is in the configuration, and not only in the hardware.
    pub configured: bool,
    /// It is a LAG.
    pub aggregate: bool,
    /// Its switching mode.
    pub mode: Option<Mode>,
    /// The tagged VLANs as the device lists them: ranges, both ends inclusive, as they may overlap.
    pub tagged: Vec<(VlanId, VlanId)>,
    /// The VLAN of untagged frames of a trunk.
    pub native: Option<VlanId>,
    /// The VLAN of an access port.
    pub access: Option<VlanId>,
    /// It is a trunk that carries every VLAN.
    pub open: bool,
    /// It does so by what comes to it from elsewhere in the configuration, which is not changed.
    pub open_elsewhere: bool,
    /// VIDs that something else uses on it, which is not the VLAN of that VID on the device, in words.
    pub taken: BTreeMap<VlanId, String>,
    /// Why it can carry no VLAN of ours, where it can't: what it is, in words that follow its name.
    pub unfit: Option<String>,
    /// Tagged VLANs that come to it from elsewhere in the configuration, which is not changed: they stay.
    pub inherited: VlanSet,
    /// VLANs that it tells by their names, and not by their VIDs. Without such a VLAN it would name nothing.
    pub names: VlanSet,
    /// Its list has entries that stand for no VLAN, and so is not empty without VLANs.
    pub filled: bool,
    /// Parts of VLANs that carry nothing, by the names that they bear: where these are ours, a device or a driver that died
    /// left them.
    pub leftovers: BTreeMap<VlanId, String>,
    /// What the first VLAN of ours changes beside lists of VLANs, by the dialect's names.
    pub settings: BTreeMap<&'static str, Setting>,
}

/// A setting of an interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Setting {
    /// `None`: not set.
    pub value: Option<String>,
    /// It is as we make it, and nobody else needs it so.
    pub ours: bool,
}

impl Setting {
    /// One that is ours if it has this value.
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
    /// The tagged VLANs.
    pub fn tagged(&self) -> VlanSet {
        self.tagged.iter().copied().collect()
    }
}
