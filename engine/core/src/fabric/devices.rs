//! The FabricDevices: they make the topology, each is a target, and one that is deleted is emptied first.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::kinds::{DeviceSpec, Spec};
use crate::store::Store;
use crate::work::Work;
use crate::{Key, Kind, Name, PortMemory, Target};

use super::Fabric;
use super::device::DeviceTarget;
use super::topology::Topology;

impl Fabric {
    /// A FabricDevice changed: the topology is built anew.
    pub fn touch_topology(&mut self) {
        self.topology_dirty = true;
    }

    /// A FabricDevice is gone.
    pub(super) fn remove_device(&mut self, name: &Name, work: &mut Work) {
        self.topology_dirty = true;
        self.slow.take();
        if self.devices.remove(name).is_some() {
            work.forget.push(Target::Fabric(name.clone()));
        }
    }

    /// Builds the topology from all realised FabricDevices. When it changed, everything that depends on it is
    /// validated and planned again.
    pub(super) fn rebuild_topology(&mut self, store: &Store, work: &mut Work) {
        let specs: BTreeMap<Name, Arc<Spec>> = store
            .of_kind(Kind::FabricDevice)
            .filter(|(_, record)| record.finalized)
            .filter_map(|(key, record)| Some((key.name.clone(), record.effective.clone()?)))
            .collect();
        let topology = Topology::new(device_specs(&specs));
        let mut reshaped = false;
        for (name, spec) in device_specs(&specs) {
            let ports = topology.port_names(name);
            let changed = if let Some(device) = self.devices.get_mut(name) {
                if device.set_audit_interval(spec.device.audit_interval) {
                    work.publish.insert(Target::Fabric(name.clone()));
                }
                device.update_spec(spec, ports, self.change_count)
            } else {
                let memory = port_memory(store, name, spec);
                self.devices.insert(name.clone(), DeviceTarget::new(spec, ports, &memory, self.change_count));
                true
            };
            if self.forget_leaving(store, name) || changed {
                reshaped = true;
                work.publish.insert(Target::Fabric(name.clone()));
                work.evaluate.insert(Key::cluster(Kind::FabricDevice, name));
            }
        }
        self.add_leaving_devices(store, &specs, work);
        let same = self.topology.same(&topology);
        self.topology = topology;
        self.path_cache.borrow_mut().clear();
        let has_devices = store.of_kind(Kind::FabricDevice).any(|(_, record)| !record.deleting);
        let had_devices = std::mem::replace(&mut self.has_devices, has_devices);
        if same && !reshaped && has_devices == had_devices {
            return;
        }
        self.touch_lookups();
        self.evaluate_stations(work);
        let keys = |kind| store.of_kind(kind).map(|(key, _)| key.clone());
        work.evaluate.extend(keys(Kind::PhysicalNetwork));
        work.validate.extend(keys(Kind::ConnectionPoint).chain(keys(Kind::L2Service)));
        work.validate.extend(keys(Kind::VRFAttachment));
        let networks: BTreeSet<Key> = self
            .networks
            .keys()
            .chain(self.placements.keys())
            .cloned()
            .chain(keys(Kind::L2Service))
            .collect();
        work.place.extend(keys(Kind::VRF));
        work.claim.extend(networks.iter().cloned());
        work.place.extend(networks);
    }

    /// Drops the leaving ports of a device that the admin annotated for it; returns true on a change.
    fn forget_leaving(&mut self, store: &Store, name: &Name) -> bool {
        let record = store.get(&Key::cluster(Kind::FabricDevice, name));
        let forgets = record.is_some_and(|record| record.forget && !record.deleting);
        forgets && self.devices.get_mut(name).is_some_and(|device| device.forget_leaving(self.change_count))
    }

    /// Adds devices that are being deleted since before this process started: they are emptied first.
    fn add_leaving_devices(&mut self, store: &Store, specs: &BTreeMap<Name, Arc<Spec>>, work: &mut Work) {
        let leaving: BTreeMap<Name, Arc<Spec>> = store
            .of_kind(Kind::FabricDevice)
            .filter(|(key, record)| {
                record.finalized && record.deleting && !self.devices.contains_key(&key.name)
            })
            .filter_map(|(key, record)| {
                let spec = record.status.realized.as_ref().or(record.spec.as_ref().ok());
                Some((key.name.clone(), spec?.clone()))
            })
            .collect();
        if leaving.is_empty() {
            return;
        }
        let topology = Topology::new(device_specs(specs).chain(device_specs(&leaving)));
        for (name, spec) in device_specs(&leaving) {
            let (ports, memory) = (topology.port_names(name), port_memory(store, name, spec));
            self.devices.insert(name.clone(), DeviceTarget::new(spec, ports, &memory, self.change_count));
            work.publish.insert(Target::Fabric(name.clone()));
        }
    }
}

fn device_specs(specs: &BTreeMap<Name, Arc<Spec>>) -> impl Iterator<Item = (&Name, &DeviceSpec)> + Clone {
    specs.iter().filter_map(|(name, spec)| Some((name, spec.device()?)))
}

/// The port memory in the status of a device, if it is still the same device. Ports that left the spec while no
/// engine led are added as leaving.
fn port_memory(store: &Store, name: &Name, spec: &DeviceSpec) -> PortMemory {
    let Some(record) = store.get(&Key::cluster(Kind::FabricDevice, name)) else {
        return PortMemory::default();
    };
    let before = record.status.realized.as_deref().and_then(Spec::device);
    let Some(before) = before.filter(|before| before.is_same_device(spec)) else {
        return PortMemory::default();
    };
    let mut memory = record.status.port_memory.clone();
    memory.closed.retain(|port| before.lag(port) == spec.lag(port));
    let interfaces = |spec: &DeviceSpec| -> BTreeSet<Name> {
        spec.ports.iter().map(|port| port.lag.as_ref().unwrap_or(&port.name)).cloned().collect()
    };
    memory.leaving.extend(interfaces(before).difference(&interfaces(spec)).cloned());
    memory
}
