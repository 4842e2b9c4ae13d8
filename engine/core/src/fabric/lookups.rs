//! Which switches may have to be asked for the ports of probes.

use std::collections::BTreeSet;

use crate::work::Work;
use crate::{Key, Kind, Name};

use super::Fabric;
use super::device::ProberState;

/// The switches that may have to be asked anew.
#[derive(Debug, Default)]
pub(super) struct LookupQueue {
    /// These.
    pub(super) devices: BTreeSet<Name>,
    /// Those with ports that lead to these nodes.
    pub(super) nodes: BTreeSet<Name>,
}

impl LookupQueue {
    pub(super) fn is_empty(&self) -> bool {
        self.devices.is_empty() && self.nodes.is_empty()
    }
}

impl Fabric {
    /// The drivers that answer lookups changed.
    pub fn set_drivers_with_lookups(&mut self, drivers: BTreeSet<Name>) {
        let changed: BTreeSet<&Name> = self.with_lookups.symmetric_difference(&drivers).collect();
        let devices = self.devices.iter().filter(|(_, device)| changed.contains(&device.driver));
        self.lookup_queue.devices.extend(devices.map(|(name, _)| name.clone()));
        self.with_lookups = drivers;
    }

    /// Each switch may have to be asked anew.
    pub fn touch_lookups(&mut self) {
        self.lookup_queue.devices.extend(self.devices.keys().cloned());
    }

    /// True when every process of this driver says that it answers lookups.
    pub fn has_lookups(&self, driver: &Name) -> bool {
        self.with_lookups.contains(driver)
    }

    /// Takes the switches that may have to be asked anew.
    pub fn take_lookups(&mut self) -> BTreeSet<Name> {
        let LookupQueue { mut devices, nodes } = std::mem::take(&mut self.lookup_queue);
        for node in nodes {
            devices.extend(self.topology.node_ports(&node, &[]).into_keys());
        }
        devices
    }

    /// Decides whether a switch is asked anew ([`DeviceTarget::update_lookup`](super::device::DeviceTarget)). Returns true
    /// when its command changes.
    pub fn update_lookup(&mut self, name: &Name, states: Option<&[ProberState]>) -> bool {
        self.devices.get_mut(name).is_some_and(|device| device.update_lookup(states))
    }

    /// Where nodes are to be may have changed: what switches have learnt of them is compared again.
    pub fn evaluate_stations(&self, work: &mut Work) {
        let with_stations = self.devices.iter().filter(|(_, device)| !device.stations().is_empty());
        work.evaluate.extend(with_stations.map(|(name, _)| Key::cluster(Kind::FabricDevice, name)));
    }
}
