//! The VRFs of a device, and the interfaces by which VLANs are led into them.

use std::collections::BTreeMap;

use eno_schemas::{FabricVlans, FabricVrf, Rejection, VlanId};

use super::DeviceTarget;
use crate::Name;
use crate::fabric::changes::Extent;
use crate::status::hop::{HopState, Wait};

/// The VRFs of a device, by the names of their objects.
#[derive(Debug, Default)]
pub(super) struct Vrfs {
    /// Those that are wanted.
    wanted: BTreeMap<Name, FabricVrf>,
    /// Those that were withdrawn and may still be there, each with the change count at which it was.
    leaving: BTreeMap<Name, (u64, FabricVrf)>,
    /// The count of the last change that the device has not confirmed.
    open: Option<u64>,
}

impl Vrfs {
    /// The device has confirmed a state.
    pub(super) fn confirm(&mut self, extent: &Extent) {
        // A VLAN whose change is left out may still be led into a VRF that leaves.
        if extent.without.is_empty() {
            self.leaving.retain(|_, (since, _)| *since > extent.count);
        }
        self.open.take_if(|count| *count <= extent.count);
    }

    /// Those of a state with these VLANs, ascending by their names on the device.
    pub(super) fn rendered(&self, vlans: &FabricVlans) -> Vec<FabricVrf> {
        let mut all: BTreeMap<&str, &FabricVrf> = BTreeMap::new();
        if !self.leaving.is_empty() {
            let leaving: BTreeMap<&str, &FabricVrf> =
                self.leaving.values().map(|(_, vrf)| (vrf.name.as_str(), vrf)).collect();
            let used = vlans.iter().filter_map(|vlan| vlan.routed.as_ref());
            all.extend(used.filter_map(|routed| leaving.get_key_value(routed.vrf.as_str())));
        }
        all.extend(self.wanted.values().map(|vrf| (vrf.name.as_str(), vrf)));
        all.into_values().cloned().collect()
    }
}

impl DeviceTarget {
    /// Sets the VRF that the object `owner` wants, as of `count`; `None` withdraws it. Returns true on a change.
    pub fn want_vrf(&mut self, owner: &Name, vrf: Option<FabricVrf>, count: u64) -> bool {
        let Vrfs { wanted, leaving, open } = &mut self.vrfs;
        if wanted.get(owner) == vrf.as_ref() {
            return false;
        }
        let is_wanted = vrf.is_some();
        let before = match vrf {
            Some(vrf) => wanted.insert(owner.clone(), vrf),
            None => wanted.remove(owner),
        };
        match before {
            _ if is_wanted => drop(leaving.remove(owner)),
            Some(before) => drop(leaving.insert(owner.clone(), (count, before))),
            None => {}
        }
        *open = Some(count);
        self.rendering.switch_changed = true;
        self.changes.set_count(count);
        self.settled = false;
        true
    }

    /// Takes the VRFs of a former leader's command that are not wanted any more as leaving.
    pub(super) fn restore_vrfs(&mut self, former: &[FabricVrf]) {
        for vrf in former {
            let owner = vrf.owner.split_once('/').map(|(_, name)| Name::from(name));
            if let Some(owner) = owner.filter(|owner| !self.vrfs.wanted.contains_key(owner)) {
                self.vrfs.leaving.insert(owner, (0, vrf.clone()));
            }
        }
    }

    /// The objects whose VRFs are here, or may still be.
    pub fn vrf_owners(&self) -> impl Iterator<Item = &Name> {
        self.vrfs.wanted.keys().chain(self.vrfs.leaving.keys())
    }

    /// True when the VRF of `owner` is withdrawn, and may still be there.
    pub fn has_leaving_vrf(&self, owner: &Name) -> bool {
        self.vrfs.leaving.contains_key(owner) || (self.vrfs.wanted.contains_key(owner))
    }

    /// The state of the VRF of `owner`.
    pub fn vrf_hop(&self, owner: &Name) -> HopState<'_> {
        let Some(vrf) = self.vrfs.wanted.get(owner) else { return HopState::Waiting(Wait::Report) };
        let is_there = self.applied.as_ref().is_some_and(|observed| observed.vrfs.contains(&vrf.name));
        self.routed_state(&vrf.name, None, is_there && self.known && self.vrfs.open.is_none())
    }

    /// The state of the interface by which `vid` is led into `vrf`.
    pub fn routed_hop(&self, vid: VlanId, vrf: &str) -> HopState<'_> {
        let wanted = self.wanted.get(&vid).and_then(|owners| owners.routed());
        let is_there = self.applied.as_ref().is_some_and(|observed| observed.routed.contains(vid));
        let is_wanted = wanted.is_some_and(|routed| routed.vrf == vrf);
        self.routed_state(vrf, Some(vid), is_wanted && is_there && self.known && !self.changes.is_open(vid))
    }

    /// The state of a VRF, or of what leads `vid` into it. A rejection of the VRF is one of all that is led into it.
    fn routed_state(&self, vrf: &str, vid: Option<VlanId>, is_confirmed: bool) -> HopState<'_> {
        let covers = |rejection: &&Rejection| {
            let item = &rejection.item;
            let is_whole = item.vrf.is_none() && item.vlan.is_none() && item.port.is_none();
            is_whole
                || (item.vrf.as_deref() == Some(vrf) && (item.vlan.is_none() || item.vlan == vid))
                || (item.vrf.is_none() && item.port.is_none() && vid.is_some() && item.vlan == vid)
        };
        HopState::of_report(self.rejected.iter().filter(covers), is_confirmed, self.failure.as_ref())
            .waiting_for(|| if self.leaves_drift() { Wait::Drift } else { Wait::Report })
    }
}
