//! The VRFs on devices.

use std::collections::{BTreeMap, BTreeSet};

use eno_schemas::{BgpGroup, FabricVrf};

use crate::kinds::{Spec, VrfAttachmentSpec, VrfSpec};
use crate::store::Store;
use crate::work::Work;
use crate::{Key, Kind, Name, Target};

use super::Fabric;
use super::device::DeviceTarget;

impl Fabric {
    /// Puts a VRF on its devices, and takes it off all others.
    pub(super) fn place_vrf(&mut self, store: &Store, key: &Key, work: &mut Work) {
        let record = store.get(key).filter(|record| record.finalized);
        let spec = record.and_then(|record| record.effective.as_deref()?.vrf());
        for (name, device) in &mut self.devices {
            let vrf = spec.and_then(|spec| vrf_on(spec, key, name));
            let vrf = vrf.map(|vrf| FabricVrf { bgp: sessions_on(&self.sessions, key, name), ..vrf });
            if device.want_vrf(&key.name, vrf, self.change_count) {
                work.publish.insert(Target::Fabric(name.clone()));
                work.evaluate.insert(key.clone());
            }
        }
    }

    /// Sets the BGP sessions of an object in a VRF, by device; `None`: it has none.
    pub fn want_sessions(&mut self, key: &Key, sessions: Option<Sessions>, work: &mut Work) {
        let before = match sessions {
            Some(sessions) if self.sessions.get(key) == Some(&sessions) => return,
            Some(sessions) => {
                work.place.insert(sessions.vrf.clone());
                self.sessions.insert(key.clone(), sessions)
            }
            None => self.sessions.remove(key),
        };
        work.place.extend(before.map(|before| before.vrf));
    }

    /// A device that may have BGP sessions of an object which is being deleted.
    pub fn device_with_sessions_of(&self, key: &Key) -> Option<(&Name, &DeviceTarget)> {
        let left: BTreeSet<&Name> = self.placements.left(key).collect();
        self.devices
            .iter()
            .find(|(name, device)| device.has_sessions_of(key) || (left.contains(name) && !device.is_known()))
    }

    /// A device that may have a VRF which is being deleted.
    pub fn device_with_remains_of(&self, key: &Key) -> Option<(&Name, &DeviceTarget)> {
        let left: BTreeSet<&Name> = self.placements.left(key).collect();
        self.devices.iter().find(|(name, device)| {
            device.has_vrf_of(&key.name) || (left.contains(name) && !device.is_known())
        })
    }

    /// The live drivers that can make no VRFs changed.
    pub fn set_drivers_without_vrfs(&mut self, store: &Store, drivers: BTreeSet<Name>, work: &mut Work) {
        if self.without_vrfs != drivers {
            self.without_vrfs = drivers;
            store.revalidate_kind(Kind::VRF, work);
        }
    }

    /// The live drivers that can make no BGP sessions changed, or those that know no neighbours by a network.
    pub fn set_drivers_without_bgp(
        &mut self,
        store: &Store,
        drivers: BTreeSet<Name>,
        by_network: BTreeSet<Name>,
        work: &mut Work,
    ) {
        if (&self.without_bgp, &self.without_dynamic_neighbours) != (&drivers, &by_network) {
            (self.without_bgp, self.without_dynamic_neighbours) = (drivers, by_network);
            store.revalidate_kind(Kind::BGPSessionGroup, work);
        }
    }

    /// True when a process of this driver says that it can make no BGP sessions.
    pub fn lacks_bgp(&self, driver: &Name) -> bool {
        self.without_bgp.contains(driver)
    }

    /// True when a process of this driver says that it knows no neighbours by a network.
    pub fn lacks_dynamic_neighbours(&self, driver: &Name) -> bool {
        self.without_dynamic_neighbours.contains(driver)
    }

    /// True when a process of this driver says that it can make no VRFs.
    pub fn lacks_vrfs(&self, driver: &Name) -> bool {
        self.without_vrfs.contains(driver)
    }
}

/// The BGP sessions of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sessions {
    /// The VRF.
    pub vrf: Key,
    /// By device.
    pub groups: BTreeMap<Name, BgpGroup>,
}

/// The BGP sessions in a VRF on a device, ascending by owner.
fn sessions_on(all: &BTreeMap<Key, Sessions>, vrf: &Key, device: &Name) -> Vec<BgpGroup> {
    let of_vrf = all.values().filter(|sessions| sessions.vrf == *vrf);
    of_vrf.filter_map(|sessions| sessions.groups.get(device).cloned()).collect()
}

/// A VRF on a device; `None`: it is not to be there.
fn vrf_on(spec: &VrfSpec, key: &Key, device: &Name) -> Option<FabricVrf> {
    let own = spec.devices.iter().find(|one| one.name == *device)?;
    Some(FabricVrf {
        name: spec.device_name(&key.name).to_owned(),
        owner: key.to_string(),
        route_distinguisher: own.route_distinguisher.clone(),
        import_targets: spec.import_targets.clone(),
        export_targets: spec.export_targets.clone(),
        bgp: Vec::new(),
    })
}

/// A VRF, or an object that leads a service into one, changed: what depends on it is looked at again.
pub(crate) fn follow_change(store: &Store, key: &Key, work: &mut Work) {
    match key.kind {
        Kind::VRF => {
            work.place.insert(key.clone());
            let attachments =
                store.referrers(key).filter_map(|user| store.effective(user, Spec::vrf_attachment));
            work.place.extend(attachments.map(|spec| Key::cluster(Kind::L2Service, &spec.service)));
            // Others may have the same name or distinguisher.
            for (other, record) in store.of_kind(Kind::VRF).filter(|(other, _)| *other != key) {
                work.evaluate.insert(other.clone());
                if record.problem.is_some() {
                    work.validate.insert(other.clone());
                }
            }
        }
        Kind::VRFAttachment => {
            let Some(record) = store.get(key) else { return };
            for named in &record.indexed_references {
                match named.kind {
                    Kind::VRF => revalidate_refused(store, named, work),
                    Kind::L2Service => revalidate_users_of_addresses(store, named, work),
                    _ => {}
                }
            }
        }
        _ => {}
    }
}

/// A service is not led into a VRF any more as it was: others may have the addresses and routes, and the VRF may leave
/// the device.
pub(crate) fn follow_leaving(store: &Store, former: &VrfAttachmentSpec, work: &mut Work) {
    let vrf = Key::cluster(Kind::VRF, &former.vrf);
    revalidate_refused(store, &vrf, work);
    work.validate.insert(vrf);
    revalidate_users_of_addresses(store, &Key::cluster(Kind::L2Service, &former.service), work);
}

/// Validates again what is not led into a VRF as wanted. A change of one object never invalidates another that is.
fn revalidate_refused(store: &Store, vrf: &Key, work: &mut Work) {
    let refused = |user: &&Key| store.get(user).is_some_and(|record| record.problem.is_some());
    work.validate.extend(store.referrers(vrf).filter(refused).cloned());
}

/// A service changed: whether next hops of its Subnets answer may have, too.
pub(crate) fn evaluate_subnets(store: &Store, service: &Key, work: &mut Work) {
    let named = store.get(service).into_iter().flat_map(|record| &record.indexed_references);
    work.evaluate.extend(named.filter(|named| named.kind == Kind::Subnet).cloned());
}

/// The addresses of routed interfaces in a service's Subnets changed: no pod gets one of them.
pub(crate) fn revalidate_users_of_addresses(store: &Store, service: &Key, work: &mut Work) {
    store.revalidate_referrers(service, work);
    let Some(record) = store.get(service) else { return };
    for subnet in record.indexed_references.iter().filter(|named| named.kind == Kind::Subnet) {
        work.evaluate.insert(subnet.clone());
        for service in store.referrers(subnet) {
            store.revalidate_referrers(service, work);
        }
    }
}
