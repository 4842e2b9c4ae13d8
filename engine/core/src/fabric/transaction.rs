//! Transactions across switches: the switches that change together.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use eno_schemas::{Report, VlanId, VlanSet};

use crate::vlan::{VlanScope, Vlans};
use crate::work::Work;
use crate::{Key, Kind, Name, Target};

use super::Fabric;
use super::device::{DeviceTarget, ReportEffects};

/// Milliseconds. A switch whose last change took less is never slow.
const MIN_SLOW_MS: u64 = 2000;
/// A switch is slow when its last change took this many times the median of the others.
const SLOW_FACTOR: u64 = 4;

/// Switches that change together, since changing networks connect them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TransactionGroup {
    /// Switches that can hold a change until all have verified theirs. Two or more of them form a transaction.
    pub holding: Vec<Name>,
    /// Switches that can't hold a change. They follow once the others have confirmed.
    pub plain: Vec<Name>,
}

impl Fabric {
    /// Groups the switches of `names`, which have unpublished changes, into those that have to change together. A
    /// switch that fails, is slow or has no driver gets a group of its own. `alive`: the drivers that are alive;
    /// `holding`: those that can hold a change.
    pub fn transaction_groups<'a>(
        &self,
        alive: &BTreeSet<Name>,
        holding: &BTreeSet<Name>,
        names: impl IntoIterator<Item = &'a Name>,
    ) -> Vec<TransactionGroup> {
        let slow = self.slow_devices();
        let mut members: Vec<(&Name, bool)> = Vec::new();
        let mut groups: Vec<TransactionGroup> = Vec::new();
        // By component of the fabric and VLAN: the first member that changes it.
        let mut first: HashMap<&Name, Vec<Option<usize>>> = HashMap::new();
        let mut parents: Vec<usize> = Vec::new();
        for name in names {
            let device = self.devices.get(name).filter(|device| participates(name, device, alive, slow));
            let (Some(device), Some(component)) = (device, self.topology.component(name)) else {
                groups.push(TransactionGroup { holding: Vec::new(), plain: vec![name.clone()] });
                continue;
            };
            let own = members.len();
            members.push((name, device.can_hold() && holding.contains(&device.driver)));
            parents.push(own);
            let first =
                first.entry(component).or_insert_with(|| vec![None; usize::from(VlanId::MAX.get()) + 1]);
            for vid in device.moved().iter() {
                match first[usize::from(vid.get())] {
                    None => first[usize::from(vid.get())] = Some(own),
                    Some(other) => join(&mut parents, own, other),
                }
            }
        }
        self.join_routers(&members, &first, &mut parents);
        // A network that moves to another VLAN changes both at once.
        for (first, (_, vids)) in
            first.values().flat_map(|first| self.placements.moving().map(move |moving| (first, moving)))
        {
            let mut ends = vids.iter().filter_map(|vid| first[usize::from(vid.get())]);
            if let Some(one) = ends.next() {
                for other in ends {
                    join(&mut parents, one, other);
                }
            }
        }
        let mut by_root: BTreeMap<usize, TransactionGroup> = BTreeMap::new();
        for (index, (name, holds)) in members.into_iter().enumerate() {
            let group = by_root.entry(root(&mut parents, index)).or_default();
            if holds { group.holding.push(name.clone()) } else { group.plain.push(name.clone()) }
        }
        groups.extend(by_root.into_values());
        groups
    }

    /// Joins each router with the switches that change a VLAN of the same network, though it is in no fabric of theirs.
    fn join_routers(
        &self,
        members: &[(&Name, bool)],
        first: &HashMap<&Name, Vec<Option<usize>>>,
        parents: &mut [usize],
    ) {
        let routers = members.iter().enumerate().filter(|(_, (name, _))| self.topology.is_router(name));
        for (own, (name, _)) in routers {
            let Some(router) = self.devices.get(*name) else { continue };
            for fabric in self.topology.fabrics_of(name) {
                let Some(first) = first.get(fabric) else { continue };
                for vid in router.moved().iter() {
                    let Some(other) = first[usize::from(vid.get())] else { continue };
                    let Some(switch) = members.get(other).and_then(|(name, _)| self.devices.get(*name))
                    else {
                        continue;
                    };
                    if switch.open_networks(vid).any(|one| router.open_networks(vid).any(|own| own == one)) {
                        join(parents, own, other);
                    }
                }
            }
        }
    }

    /// The VLANs whose change is withheld from a switch that takes part in no transaction. The others have to confirm
    /// it first, else the switch might make the change while they still decide.
    pub fn undecided_vlans(&self, alive: &BTreeSet<Name>, name: &Name) -> VlanSet {
        let slow = self.slow_devices();
        let device = self.devices.get(name).filter(|device| !participates(name, device, alive, slow));
        let Some(device) = device else { return VlanSet::EMPTY };
        let mut moved = VlanSet::EMPTY;
        for (other, other_device) in &self.devices {
            if other != name
                && self.topology.are_joined(other, name)
                && participates(other, other_device, alive, slow)
            {
                moved = moved.union(other_device.moved());
            }
        }
        for (_, vids) in self.placements.moving() {
            if vids.iter().any(|vid| moved.contains(*vid)) {
                moved = moved.union(&vids.iter().copied().collect());
            }
        }
        device.moved().intersection(&moved)
    }

    /// Publishes again to switches whose last state left out undecided changes.
    pub fn publish_partial(&self, work: &mut Work) {
        let partial = self.devices.iter().filter(|(_, device)| device.is_partial());
        work.publish.extend(partial.map(|(name, _)| Target::Fabric(name.clone())));
    }

    /// Assigns VLANs of ours that were found on a switch but are in no command or plan: an unconfirmed command
    /// removed them. Their owner may have to keep them.
    pub(super) fn assign_orphan_vlans(&mut self, vlan: &Vlans, name: &Name, report: &Report) {
        let Some(device) = self.devices.get(name) else { return };
        let orphans: Vec<(VlanId, Key)> = device
            .orphan_vlans(report)
            .iter()
            .filter_map(|vid| Some((vid, self.orphan_owner(vlan, vid, name)?)))
            .collect();
        if let Some(device) = self.devices.get_mut(name) {
            for (vid, key) in orphans {
                device.assign_orphan(vid, &key, report);
            }
        }
    }

    /// The owner of an orphan VLAN: the network that is leaving it, else its holder.
    fn orphan_owner(&self, vlan: &Vlans, vid: VlanId, name: &Name) -> Option<Key> {
        let component = self.topology.component(name)?;
        let left = |(key, vids): &(&Key, &BTreeSet<VlanId>)| {
            vids.contains(&vid)
                && self.placements.planned(key).is_none_or(|(now, ports)| {
                    *now != vid
                        && (ports.is_empty()
                            || ports.keys().any(|name| self.topology.component(name) == Some(component)))
                })
        };
        let former = self.placements.moving().find(left).map(|(key, _)| key);
        former.or_else(|| vlan.holder(vid, &VlanScope::Fabric(component.clone()))).cloned()
    }

    /// The switches whose last change took much longer than that of the others.
    fn slow_devices(&self) -> &BTreeSet<Name> {
        self.slow.get_or_init(|| self.find_slow_devices())
    }

    fn find_slow_devices(&self) -> BTreeSet<Name> {
        let took = |name: &Name| Some(self.devices.get(name)?.last_transaction.as_ref()?.change.took_ms);
        let candidates = self.devices.keys().filter(|name| took(name).is_some_and(|took| took > MIN_SLOW_MS));
        let candidates: Vec<&Name> = candidates.collect();
        if candidates.is_empty() {
            return BTreeSet::new();
        }
        let mut all: Vec<u64> = self.devices.keys().filter_map(took).collect();
        all.sort_unstable();
        let slow = candidates.into_iter().filter(|name| {
            // The candidate is at the upper end of the order, so the median is that of the rest.
            let own = took(name).unwrap_or_default();
            let at = all.partition_point(|took| *took < own);
            let others: Vec<u64> =
                all.iter().enumerate().filter(|(index, _)| *index != at).map(|(_, took)| *took).collect();
            others.get(others.len() / 2).is_some_and(|median| own > median.saturating_mul(SLOW_FACTOR))
        });
        slow.cloned().collect()
    }

    /// A change that one switch confirmed is decided for its component: the other switches fall back to it, too.
    pub(super) fn adopt_confirmed(&mut self, name: &Name, effects: &ReportEffects) {
        if effects.decided.is_empty() {
            return;
        }
        let part = self.devices.iter_mut().filter(|(other, _)| self.topology.are_joined(other, name));
        for (_, device) in part {
            for (key, vid) in &effects.decided {
                let others = self.placements.vlans(key).filter(|other| other != vid);
                for vid in others.chain([*vid]) {
                    device.adopt_confirmed(vid, key, effects.count);
                }
            }
        }
    }

    /// A switch missed the deadline of its transaction.
    pub fn mark_late(&mut self, name: &Name, work: &mut Work) {
        if let Some(device) = self.devices.get_mut(name).filter(|device| !device.late) {
            device.late = true;
            self.publish_partial(work);
            work.evaluate.insert(Key::cluster(Kind::FabricDevice, name));
        }
    }
}

/// True when the switch takes part in transactions: it does not fail, is not slow, and has a driver.
fn participates(name: &Name, device: &DeviceTarget, alive: &BTreeSet<Name>, slow: &BTreeSet<Name>) -> bool {
    device.failure.is_none() && !device.late && !slow.contains(name) && alive.contains(&device.driver)
}

fn join(parents: &mut [usize], one: usize, other: usize) {
    let (a, b) = (root(parents, one), root(parents, other));
    parents[a.max(b)] = a.min(b);
}

fn root(parents: &mut [usize], mut index: usize) -> usize {
    while parents[index] != index {
        parents[index] = parents[parents[index]];
        index = parents[index];
    }
    index
}
