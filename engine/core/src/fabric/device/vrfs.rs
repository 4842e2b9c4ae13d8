//! The VRFs of a device, and the interfaces by which VLANs are led into them.

use std::collections::{BTreeMap, BTreeSet};

use eno_schemas::{BgpSession, FabricVlans, FabricVrf, Failure, Rejection, VlanId};

use super::DeviceTarget;
use crate::fabric::changes::Extent;
use crate::status::hop::{HopState, Wait};
use crate::work::Work;
use crate::{Key, Kind, Name};

/// The VRFs of a device.
#[derive(Debug, Default)]
pub(super) struct Vrfs {
    /// Those that are wanted, by the names of their objects.
    wanted: BTreeMap<Name, FabricVrf>,
    /// Those that were withdrawn and may still be there, by their names on the device.
    leaving: BTreeMap<String, LeavingVrf>,
    /// The owners of BGP sessions that were withdrawn and may still be there, each with the change count at that time.
    leaving_sessions: BTreeMap<String, u64>,
    /// The count of the last change that the device has not confirmed.
    open: Option<u64>,
}

/// A VRF that was withdrawn.
#[derive(Debug)]
struct LeavingVrf {
    /// The name of its object.
    owner: Name,
    /// The change count at which it was withdrawn.
    since: u64,
    vrf: FabricVrf,
}

/// What the states of the VRFs of a device depend on.
#[derive(PartialEq)]
pub struct VrfFacts {
    /// The objects whose VRFs are there, or may still be.
    owners: Vec<Name>,
    sessions: BTreeMap<String, Vec<BgpSession>>,
    there: Option<BTreeSet<String>>,
    open: Option<u64>,
    known: bool,
    leaves_drift: bool,
    rejected: Vec<Rejection>,
    failure: Option<Failure>,
}

impl Vrfs {
    /// The device has confirmed a state. `stays`: the VRF of this name may still be there.
    /// `rejected`: what the device refused.
    pub(super) fn confirm(&mut self, extent: &Extent, rejected: &[Rejection], stays: impl Fn(&str) -> bool) {
        // A VLAN whose change is left out may still be led into a VRF that leaves.
        if extent.without.is_empty() {
            self.leaving.retain(|name, leaving| leaving.since > extent.count || stays(name));
        }
        // A rejection names sessions that leave as the device does.
        let is_wanted = |owner: &String| self.session_owners().any(|wanted| wanted == owner);
        let some_stay =
            rejected.iter().filter_map(|one| one.item.bgp.as_ref()).any(|owner| !is_wanted(owner));
        self.leaving_sessions.retain(|_, since| some_stay || *since > extent.count);
        self.open.take_if(|count| *count <= extent.count);
    }

    /// The owners of BGP sessions that are wanted.
    fn session_owners(&self) -> impl Iterator<Item = &String> {
        self.wanted.values().flat_map(|vrf| &vrf.bgp).map(|group| &group.owner)
    }

    /// Takes the sessions of a former VRF that are not wanted any more as leaving.
    fn leave_sessions(&mut self, before: &FabricVrf, count: u64) {
        for owner in before.bgp.iter().map(|group| &group.owner) {
            if !self.session_owners().any(|wanted| wanted == owner) {
                self.leaving_sessions.insert(owner.clone(), count);
            }
        }
    }

    /// The number of VRFs that are wanted and not among those of these names, or the other way round. Zero once all
    /// changes are confirmed.
    pub(super) fn pending_count(&self, found: &BTreeSet<String>) -> usize {
        if self.open.is_none() {
            return 0;
        }
        let wanted: BTreeSet<&str> = self.wanted.values().map(|vrf| vrf.name.as_str()).collect();
        wanted.symmetric_difference(&found.iter().map(String::as_str).collect()).count()
    }

    /// Those of a state with these VLANs, ascending by their names on the device.
    pub(super) fn rendered(&self, vlans: &FabricVlans) -> Vec<FabricVrf> {
        let mut all: BTreeMap<&str, &FabricVrf> = BTreeMap::new();
        if !self.leaving.is_empty() {
            let used = vlans.iter().filter_map(|vlan| self.leaving.get_key_value(&vlan.routed.as_ref()?.vrf));
            all.extend(used.map(|(name, leaving)| (name.as_str(), &leaving.vrf)));
        }
        all.extend(self.wanted.values().map(|vrf| (vrf.name.as_str(), vrf)));
        all.into_values().cloned().collect()
    }
}

impl DeviceTarget {
    /// Sets the VRF that the object `owner` wants, as of `count`; `None` withdraws it. Returns true on a change.
    pub fn want_vrf(&mut self, owner: &Name, vrf: Option<FabricVrf>, count: u64) -> bool {
        if self.vrfs.wanted.get(owner) == vrf.as_ref() {
            return false;
        }
        let now = vrf.as_ref().map(|vrf| vrf.name.clone());
        for group in vrf.iter().flat_map(|vrf| &vrf.bgp) {
            self.vrfs.leaving_sessions.remove(&group.owner);
        }
        let before = match vrf {
            Some(vrf) => self.vrfs.wanted.insert(owner.clone(), vrf),
            None => self.vrfs.wanted.remove(owner),
        };
        if let Some(before) = &before {
            self.vrfs.leave_sessions(before, count);
        }
        let Vrfs { wanted, leaving, open, .. } = &mut self.vrfs;
        if let Some(before) = before.filter(|before| now.as_ref() != Some(&before.name)) {
            let former = LeavingVrf { owner: owner.clone(), since: count, vrf: before };
            // Another object may have been given the name in the meantime.
            if !wanted.values().any(|vrf| vrf.name == former.vrf.name) {
                leaving.insert(former.vrf.name.clone(), former);
            }
        }
        if let Some(now) = now {
            leaving.remove(&now);
        }
        *open = Some(count);
        self.rendering.switch_changed = true;
        self.changes.set_count(count);
        self.settled = false;
        true
    }

    /// The VRF that the object `owner` wants, or that it wanted and that may still be there.
    pub fn vrf_of(&self, owner: &Name) -> Option<&FabricVrf> {
        let mut leaving = self.vrfs.leaving.values().filter(|leaving| leaving.owner == *owner);
        self.vrfs.wanted.get(owner).or_else(|| leaving.next().map(|leaving| &leaving.vrf))
    }

    /// Takes the VRFs of a former leader's command that are not wanted any more as leaving.
    pub(super) fn restore_vrfs(&mut self, former: &[FabricVrf]) {
        for vrf in former {
            self.vrfs.leave_sessions(vrf, 0);
            let owner = vrf.owner.split_once('/').map(|(_, name)| Name::from(name));
            let is_wanted = self.vrfs.wanted.values().any(|wanted| wanted.name == vrf.name);
            if let Some(owner) = owner.filter(|_| !is_wanted) {
                self.vrfs.leaving.insert(vrf.name.clone(), LeavingVrf { owner, since: 0, vrf: vrf.clone() });
            }
        }
    }

    /// What the states of VRFs here depend on; `None`: there are no VRFs.
    pub fn vrf_facts(&self) -> Option<VrfFacts> {
        let owners: Vec<Name> = self.vrf_owners().cloned().collect();
        (!owners.is_empty()).then(|| VrfFacts {
            owners,
            sessions: self.applied.as_ref().map(|observed| observed.bgp.clone()).unwrap_or_default(),
            there: self.applied.as_ref().map(|observed| observed.vrfs.clone()),
            open: self.vrfs.open,
            known: self.known,
            leaves_drift: self.leaves_drift(),
            rejected: self.rejected.clone(),
            failure: self.failure.clone(),
        })
    }

    /// Evaluates the VRFs that were here with their BGP sessions, if what their states depend on differs from `before`.
    pub fn evaluate_changed_vrfs(&self, before: Option<&VrfFacts>, work: &mut Work) {
        let Some(before) = before.filter(|before| self.vrf_facts().as_ref() != Some(before)) else { return };
        work.evaluate.extend(before.owners.iter().map(|owner| Key::cluster(Kind::VRF, owner)));
        let owners = self.vrfs.session_owners().chain(before.sessions.keys());
        work.evaluate.extend(owners.filter_map(|owner| owner_of_sessions(owner)));
    }

    /// True when BGP sessions of an object are wanted, or withdrawn and may still be there.
    pub fn has_sessions_of(&self, key: &Key) -> bool {
        let owner = key.to_string();
        self.vrfs.leaving_sessions.contains_key(&owner) || self.vrfs.session_owners().any(|own| *own == owner)
    }

    /// The state of the BGP sessions of an object in a VRF of this name, as configuration.
    pub fn sessions_hop(&self, key: &Key, vrf: &str) -> HopState<'_> {
        let is_there = self.sessions(key).is_some();
        let owner = key.to_string();
        self.routed_state(vrf, Some(&owner), None, is_there && self.known && self.vrfs.open.is_none())
    }

    /// The BGP sessions of an object, as the device knows them. `None`: their configuration is not there as wanted.
    pub fn sessions(&self, key: &Key) -> Option<&[BgpSession]> {
        Some(self.applied.as_ref()?.bgp.get(&key.to_string())?)
    }

    /// The objects whose VRFs are here, or may still be.
    pub fn vrf_owners(&self) -> impl Iterator<Item = &Name> {
        self.vrfs.wanted.keys().chain(self.vrfs.leaving.values().map(|leaving| &leaving.owner))
    }

    /// True when the VRF of `owner` is wanted, or withdrawn and may still be there.
    pub fn has_vrf_of(&self, owner: &Name) -> bool {
        self.vrf_owners().any(|known| known == owner)
    }

    /// Why the device does not remove the VRF of `owner`.
    pub fn refused_vrf_removal(&self, owner: &Name) -> Option<&str> {
        let name = &self.vrf_of(owner)?.name;
        self.rejected.iter().find(|one| is_of_vrf(one, name)).map(|one| one.reason.as_str())
    }

    /// The state of the VRF of `owner`.
    pub fn vrf_hop(&self, owner: &Name) -> HopState<'_> {
        let Some(vrf) = self.vrfs.wanted.get(owner) else { return HopState::Waiting(Wait::Report) };
        let is_there = self.applied.as_ref().is_some_and(|observed| observed.vrfs.contains(&vrf.name));
        self.routed_state(&vrf.name, None, None, is_there && self.known && self.vrfs.open.is_none())
    }

    /// The state of the interface by which `vid` is led into `vrf`.
    pub fn routed_hop(&self, vid: VlanId, vrf: &str) -> HopState<'_> {
        let wanted = self.wanted.get(&vid).and_then(|owners| owners.routed());
        let is_there = self.applied.as_ref().is_some_and(|observed| observed.routed.contains(vid));
        let is_wanted = wanted.is_some_and(|routed| routed.vrf == vrf);
        let is_confirmed = is_wanted && is_there && self.known && !self.changes.is_open(vid);
        self.routed_state(vrf, None, Some(vid), is_confirmed)
    }

    /// The state of a VRF, of the BGP sessions of `owner` there, or of what leads `vid` into it. A rejection of the VRF is
    /// one of all of these.
    fn routed_state(
        &self,
        vrf: &str,
        owner: Option<&str>,
        vid: Option<VlanId>,
        is_confirmed: bool,
    ) -> HopState<'_> {
        let covers = |rejection: &&Rejection| {
            let item = &rejection.item;
            if item.bgp.is_some() {
                return item.vrf.as_deref() == Some(vrf) && item.bgp.as_deref() == owner;
            }
            let is_whole = item.vrf.is_none() && item.vlan.is_none() && item.port.is_none();
            is_whole
                || (item.vrf.as_deref() == Some(vrf) && (item.vlan.is_none() || item.vlan == vid))
                || (item.vrf.is_none() && item.port.is_none() && vid.is_some() && item.vlan == vid)
        };
        HopState::of_report(self.rejected.iter().filter(covers), is_confirmed, self.failure.as_ref())
            .waiting_for(|| if self.leaves_drift() { Wait::Drift } else { Wait::Report })
    }
}

/// The object of an owner in commands.
fn owner_of_sessions(owner: &str) -> Option<Key> {
    let name = owner.strip_prefix(Kind::BGPSessionGroup.as_str())?.strip_prefix('/')?;
    Some(Key::cluster(Kind::BGPSessionGroup, &name.into()))
}

/// True for a rejection of a whole VRF, or of BGP sessions there, without which it can't leave.
pub(super) fn is_of_vrf(rejection: &Rejection, vrf: &str) -> bool {
    rejection.item.vrf.as_deref() == Some(vrf) && rejection.item.vlan.is_none()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use eno_schemas::{Applied, Device, Generation, Report, RoutedInterface, VlanSet};

    use super::*;
    use crate::fabric::changes::Place;
    use crate::kinds::DeviceSpec;
    use crate::status::PortMemory;

    fn target() -> DeviceTarget {
        let spec = DeviceSpec { driver: "netconf".into(), device: Device::new("x:830"), ports: Vec::new() };
        DeviceTarget::new(&spec, &["e0".into()], &PortMemory::default(), 0)
    }

    /// The service leads VLAN 100 into a VRF by this address, as of `count`.
    fn lead(target: &mut DeviceTarget, address: &str, count: u64) {
        let routed = RoutedInterface {
            vrf: "blue".into(),
            owner: "VRFAttachment/a".into(),
            addresses: vec![address.parse().unwrap()],
            mtu: None,
            routes: Vec::new(),
        };
        let place = Place { ports: [0].as_slice().into(), routed: Some(Arc::new(routed)) };
        target.want(VlanId::new(100).unwrap(), &Key::cluster(Kind::L2Service, &"s".into()), &place, count);
    }

    fn want_blue(target: &mut DeviceTarget, is_wanted: bool, count: u64) {
        let blue = FabricVrf {
            name: "blue".into(),
            owner: "VRF/blue".into(),
            route_distinguisher: None,
            import_targets: Vec::new(),
            export_targets: Vec::new(),
            bgp: Vec::new(),
        };
        target.want_vrf(&"blue".into(), is_wanted.then_some(blue), count);
    }

    /// The device has all changes up to `count`.
    fn confirm(target: &mut DeviceTarget, count: u64) {
        target.changes.record_issued("a", count, VlanSet::EMPTY);
        let vlans: VlanSet = target.wanted.keys().copied().collect();
        let generation = Generation { term: 1, sequence: count, hash: "a".into() };
        let applied = Applied::Fabric {
            vlans: vlans.clone(),
            ports: [("e0".to_owned(), vlans.clone())].into(),
            carried: BTreeMap::new(),
            closed: None,
            before: BTreeMap::new(),
            vrfs: target.vrfs.wanted.values().map(|vrf| vrf.name.clone()).collect(),
            routed: vlans,
            lookup: None,
            bgp: BTreeMap::new(),
        };
        let report = Report::new(("netconf", "x"), generation, ("i", "2026-01-02T03:04:05Z"));
        target.report(Report { applied: Some(applied), ..report });
    }

    #[test]
    fn vrfs_and_what_is_led_into_them_are_pending_until_they_are_confirmed() {
        let mut target = target();
        want_blue(&mut target, true, 1);
        assert_eq!(target.pending_count(), 1, "the VRF");
        lead(&mut target, "10.0.0.1/24", 1);
        assert_eq!(target.pending_count(), 4, "also the VLAN, on its port and in the VRF");
        confirm(&mut target, 1);
        assert_eq!(target.pending_count(), 0);
        lead(&mut target, "10.0.0.2/24", 2);
        assert_eq!(target.pending_count(), 1, "the address");
        confirm(&mut target, 2);
        want_blue(&mut target, false, 3);
        assert_eq!(target.pending_count(), 1, "the VRF that is withdrawn");
        confirm(&mut target, 3);
        assert_eq!(target.pending_count(), 0);
    }
}
