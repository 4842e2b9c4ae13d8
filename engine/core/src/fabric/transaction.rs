//! Transactions across switches: the switches that change together, and the networks that one of them refused.
//!
//! A network that a switch refuses within a transaction is *withheld*. It stays where it was last confirmed on every
//! switch until its spec changes, the switch reports on its own, or a retry is due.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use eno_schemas::{Outcome, Phase, Report, VlanId, VlanSet};

use crate::fabric::device::{DeviceTarget, ReportEffects};
use crate::fabric::topology::{Indices, Ports};
use crate::vlan::VlanScope;
use crate::{Effect, Key, Kind, Name, Target};

use crate::engine::Engine;
use crate::fabric::planner;

/// Milliseconds. A switch whose last change took less is never slow.
const MIN_SLOW_MS: u64 = 2000;
/// A switch is slow when its last change took this many times the median of the others.
const SLOW_FACTOR: u64 = 4;

/// The prefix of a refusal's message, before the name of the switch.
const DEVICE_PREFIX: &str = "FabricDevice ";

/// Switches that change together, since changing networks connect them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TransactionGroup {
    /// Switches that can hold a change until all have verified theirs. Two or more of them form a transaction.
    pub holding: Vec<Name>,
    /// Switches that can't hold a change. They follow once the others have confirmed.
    pub plain: Vec<Name>,
}

/// The refusal of a network by a switch.
#[derive(Debug)]
pub(crate) struct Refusal {
    /// The plan that was refused: the VLAN and its ports.
    pub desired: Option<(VlanId, Arc<Ports>)>,
    /// The switch that refused it.
    pub device: Name,
    /// The switch, the hop and the switch's own message.
    pub message: String,
    /// The same request may succeed later.
    pub retryable: bool,
    /// The placement at which the network was confirmed then.
    confirmed: Option<Placement>,
    /// A part of `confirmed` is not in `desired`.
    has_surplus: bool,
    /// The number of refusals in a row, from 1.
    attempt: u32,
    /// How it is planned.
    mode: PlanMode,
}

/// A VLAN and the ports that carry it.
type Placement = (VlanId, BTreeMap<Name, BTreeSet<Name>>);

/// How a refused network is planned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PlanMode {
    /// As desired: it is tried again.
    Retry,
    /// The part of its confirmed placement that is still desired.
    Reduce,
    /// Its confirmed placement.
    Freeze,
}

impl Refusal {
    /// True while it is not tried again.
    pub fn is_withheld(&self) -> bool {
        self.mode != PlanMode::Retry
    }

    /// True when it keeps a part of its placement that is not desired.
    pub fn keeps_surplus(&self) -> bool {
        self.has_surplus && self.mode == PlanMode::Freeze
    }

    /// True when the network was confirmed on this port.
    pub fn confirmed_on(&self, vid: VlanId, device: &Name, port: &str) -> bool {
        self.confirmed.as_ref().is_some_and(|(own, devices)| {
            *own == vid && devices.get(device).is_some_and(|ports| ports.contains(port))
        })
    }
}

impl Engine {
    /// Groups the switches of `names`, which have unpublished changes, into those that have to change together. A
    /// switch that fails, is slow or has no driver gets a group of its own.
    pub fn transaction_groups<'a>(&self, names: impl IntoIterator<Item = &'a Name>) -> Vec<TransactionGroup> {
        let slow = self.slow_devices();
        let mut members: Vec<(&Name, bool)> = Vec::new();
        let mut groups: Vec<TransactionGroup> = Vec::new();
        // By component of the fabric and VLAN: the first member that changes it.
        let mut first: HashMap<&Name, Vec<Option<usize>>> = HashMap::new();
        let mut parents: Vec<usize> = Vec::new();
        for name in names {
            let device =
                self.fabric.devices.get(name).filter(|device| self.participates(name, device, &slow));
            let (Some(device), Some(component)) = (device, self.fabric.topology.component(name)) else {
                groups.push(TransactionGroup { holding: Vec::new(), plain: vec![name.clone()] });
                continue;
            };
            let own = members.len();
            members.push((name, device.can_hold() && self.schedule.holding_drivers.contains(&device.driver)));
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
        // A network that moves to another VLAN changes both at once.
        for (first, vids) in first
            .values()
            .flat_map(|first| self.fabric.pending_vlan_changes.values().map(move |vids| (first, vids)))
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

    /// True when the switch takes part in transactions: it does not fail, is not slow, and has a driver.
    fn participates(&self, name: &Name, device: &DeviceTarget, slow: &BTreeSet<&Name>) -> bool {
        device.failure.is_none()
            && !device.late
            && !slow.contains(name)
            && self.schedule.live_drivers.contains(&device.driver)
    }

    /// The VLANs whose change is withheld from a switch that takes part in no transaction. The others have to confirm
    /// it first, else the switch might make the change while they still decide.
    pub(crate) fn undecided_vlans(&self, name: &Name) -> VlanSet {
        let slow = self.slow_devices();
        let Some(device) =
            self.fabric.devices.get(name).filter(|device| !self.participates(name, device, &slow))
        else {
            return VlanSet::EMPTY;
        };
        let component = self.fabric.topology.component(name);
        let mut moved = VlanSet::EMPTY;
        for (other, other_device) in &self.fabric.devices {
            if other != name
                && self.fabric.topology.component(other) == component
                && self.participates(other, other_device, &slow)
            {
                moved = moved.union(other_device.moved());
            }
        }
        for vids in self.fabric.pending_vlan_changes.values() {
            if vids.iter().any(|vid| moved.contains(*vid)) {
                moved = moved.union(&vids.iter().copied().collect());
            }
        }
        device.moved().intersection(&moved)
    }

    /// Publishes again to switches whose last state left out undecided changes.
    pub(crate) fn publish_partial(&mut self) {
        let partial = self.fabric.devices.iter().filter(|(_, device)| device.is_partial());
        self.schedule.publish_queue.extend(partial.map(|(name, _)| Target::Fabric(name.clone())));
    }

    /// Restores pending VLAN changes. `had`: the networks and VLANs of the former leader's commands. A network with
    /// another VLAN in these or in its status leaves the one and takes the other at once.
    pub(crate) fn restore_vlan_changes(&mut self, had: BTreeSet<(Key, VlanId)>) {
        let networks =
            self.store.records.iter().filter(|(key, record)| planner::is_network(key) && !record.generated);
        let granted = networks.filter_map(|(key, record)| Some((key.clone(), record.status.granted_id?)));
        for (key, former) in granted.chain(had).collect::<Vec<_>>() {
            let planned = self.fabric.networks.get(&key).and_then(|network| network.planned.as_ref());
            let now = planned.map(|(now, _)| *now);
            if now != Some(former) {
                self.fabric
                    .pending_vlan_changes
                    .entry(key)
                    .or_default()
                    .extend(now.into_iter().chain([former]));
            }
        }
    }

    /// Assigns VLANs of ours that were found on a switch but are in no command or plan: an unconfirmed command
    /// removed them. Their owner may have to keep them.
    pub(crate) fn assign_orphan_vlans(&mut self, name: &Name, report: &Report) {
        let Some(device) = self.fabric.devices.get(name) else { return };
        let orphans: Vec<(VlanId, Key)> = device
            .orphan_vlans(report)
            .iter()
            .filter_map(|vid| Some((vid, self.orphan_owner(vid, name)?)))
            .collect();
        if let Some(device) = self.fabric.devices.get_mut(name) {
            for (vid, key) in orphans {
                device.assign_orphan(vid, &key, report);
            }
        }
    }

    /// The owner of an orphan VLAN: the network that is leaving it, else its holder.
    fn orphan_owner(&self, vid: VlanId, name: &Name) -> Option<Key> {
        let component = self.fabric.topology.component(name)?;
        let left = |(key, vids): &(&Key, &BTreeSet<VlanId>)| {
            let planned = self.fabric.networks.get(*key).and_then(|network| network.planned.as_ref());
            vids.contains(&vid)
                && planned.is_none_or(|(now, ports)| {
                    *now != vid
                        && (ports.is_empty()
                            || ports
                                .keys()
                                .any(|name| self.fabric.topology.component(name) == Some(component)))
                })
        };
        let former = self.fabric.pending_vlan_changes.iter().filter(left).map(|(key, _)| key).min();
        former.or_else(|| self.vlan.ids.holder(vid, &VlanScope::Fabric(component.clone()))).cloned()
    }

    /// The VLAN that a withheld network keeps, or that a network has and is leaving. While that is unknown, the one
    /// in its status.
    pub(crate) fn former_vlan(&self, key: &Key) -> Option<VlanId> {
        let refusal = self.refusal(key).filter(|refusal| refusal.is_withheld());
        if let Some((vid, _)) = refusal.and_then(|refusal| refusal.confirmed.as_ref()) {
            return Some(*vid);
        }
        let vids = self.fabric.pending_vlan_changes.get(key)?;
        let planned = self.fabric.networks.get(key).and_then(|network| network.planned.as_ref());
        let mut former = vids.iter().copied().filter(|vid| planned.is_none_or(|(now, _)| now != vid));
        let has =
            |vid: &VlanId| self.fabric.devices.values().any(|device| !device.confirmed(*vid, key).is_empty());
        former.find(has).or_else(|| {
            let unknown = self.fabric.devices.values().any(|device| !device.is_known());
            self.store.records.get(key)?.status.granted_id.filter(|vid| unknown && vids.contains(vid))
        })
    }

    /// Restores refusals from statuses. These networks are tried again, and are in error until that succeeds.
    pub(crate) fn restore_refusals(&mut self) {
        let mut refused = Vec::new();
        for (key, network) in &self.fabric.networks {
            let Some(record) = self.store.records.get(key) else { continue };
            let status = &record.status;
            let by = status.message.strip_prefix(DEVICE_PREFIX).and_then(|message| message.split_once(": "));
            let Some((by, _)) = by.filter(|_| {
                status.phase == Some(Phase::Error) && status.observed_generation == record.generation
            }) else {
                continue;
            };
            let desired = network.planned.clone();
            if desired.as_ref().is_some_and(|(_, ports)| ports.contains_key(by)) {
                let refusal = Refusal {
                    desired,
                    device: by.into(),
                    message: status.message.clone(),
                    retryable: true,
                    confirmed: None,
                    has_surplus: false,
                    attempt: 1,
                    mode: PlanMode::Retry,
                };
                refused.push((key.clone(), refusal));
            }
        }
        for (key, refusal) in refused {
            self.fabric.refused_networks.insert(key.clone());
            self.fabric.networks.entry(key).or_default().refusal = Some(refusal);
        }
    }

    /// The switches whose last change took much longer than that of the others.
    fn slow_devices(&self) -> BTreeSet<&Name> {
        let took =
            |name: &Name| Some(self.fabric.devices.get(name)?.last_transaction.as_ref()?.change.took_ms);
        let candidates =
            self.fabric.devices.keys().filter(|name| took(name).is_some_and(|took| took > MIN_SLOW_MS));
        let candidates: Vec<&Name> = candidates.collect();
        if candidates.is_empty() {
            return BTreeSet::new();
        }
        let mut all: Vec<u64> = self.fabric.devices.keys().filter_map(took).collect();
        all.sort_unstable();
        let slow = candidates.into_iter().filter(|name| {
            // The candidate is at the upper end of the order, so the median is that of the rest.
            let own = took(name).unwrap_or_default();
            let at = all.partition_point(|took| *took < own);
            let others: Vec<u64> =
                all.iter().enumerate().filter(|(index, _)| *index != at).map(|(_, took)| *took).collect();
            others.get(others.len() / 2).is_some_and(|median| own > median.saturating_mul(SLOW_FACTOR))
        });
        slow.collect()
    }

    /// True when a report rejects a change that was issued to the switch: its transaction can't be confirmed.
    pub fn rejects_planned_change(&self, target: &Target, report: &Report) -> bool {
        let Target::Fabric(name) = target else { return false };
        self.fabric.devices.get(name).is_some_and(|device| !device.rejected_networks(report).is_empty())
    }

    /// Withholds the networks that a report rejects.
    pub(crate) fn withhold_rejected(&mut self, name: &Name, report: &Report) {
        let Some(device) = self.fabric.devices.get(name) else { return };
        for (network, message) in device.rejected_networks(report) {
            if let Some((message, retryable)) = message {
                self.withhold(&network, name, &message, retryable);
            }
        }
    }

    /// Retries what a switch refused when it reports on its own.
    pub(crate) fn retry_after_report(&mut self, name: &Name, report: &Report) {
        let Some(device) = self.fabric.devices.get(name) else { return };
        match report.outcome {
            Outcome::Applied if device.is_spontaneous(report) => self.retry_refused_by(name, true),
            // A failed switch takes part in no transaction, so its former refusals don't matter.
            Outcome::Failed(_) => self.retry_refused_by(name, false),
            _ => {}
        }
    }

    /// Retries all networks that `by` refused. `remember`: the refusals stay until they succeed.
    fn retry_refused_by(&mut self, by: &Name, remember: bool) {
        let matches = |key: &&Key| self.refusal(key).is_some_and(|refusal| refusal.device == *by);
        let keys: Vec<Key> = self.fabric.refused_networks.iter().filter(matches).cloned().collect();
        for key in keys {
            let Some(network) = self.fabric.networks.get_mut(&key) else { continue };
            if remember {
                network.refusal.iter_mut().for_each(|refusal| refusal.mode = PlanMode::Retry);
            } else {
                network.refusal = None;
                self.fabric.refused_networks.remove(&key);
            }
            self.fabric.queue.insert(key.clone());
            self.vlan.claim_queue.insert(key);
        }
    }

    /// The backoff of a refused network is over.
    pub(crate) fn retry(&mut self, key: &Key, attempt: u32) {
        let refusal = self.fabric.networks.get_mut(key).and_then(|network| network.refusal.as_mut());
        if let Some(refusal) = refusal.filter(|refusal| refusal.attempt == attempt && refusal.is_withheld()) {
            refusal.mode = PlanMode::Retry;
            self.fabric.queue.insert(key.clone());
            self.vlan.claim_queue.insert(key.clone());
        }
    }

    /// Withholds a network that a switch refused.
    fn withhold(&mut self, key: &Key, by: &Name, message: &str, retryable: bool) {
        let network = self.fabric.networks.get(key);
        let planned = network.and_then(|network| network.planned.clone());
        let before = network.and_then(|network| network.refusal.as_ref());
        if before.is_some_and(|before| before.mode == PlanMode::Freeze) {
            return self.handle_rejected_fallback(key, by);
        }
        let (desired, attempt) = match before {
            Some(before) if before.mode == PlanMode::Reduce => (before.desired.clone(), before.attempt),
            Some(before) if before.desired == planned => (planned.clone(), before.attempt + 1),
            _ => (planned.clone(), 1),
        };
        let confirmed = self.confirmed_placement(key, planned.map(|(vid, _)| vid));
        let tried = before.is_none_or(|before| before.mode == PlanMode::Retry);
        let (has_desired, has_surplus) = self.compare_confirmed(confirmed.as_ref(), desired.as_ref());
        let reduce = tried && has_desired && has_surplus;
        let mode = if reduce { PlanMode::Reduce } else { PlanMode::Freeze };
        let message = format!("{DEVICE_PREFIX}{by}: {message}");
        let refusal = Refusal {
            desired,
            device: by.clone(),
            message,
            retryable,
            confirmed,
            has_surplus,
            attempt,
            mode,
        };
        self.fabric.networks.entry(key.clone()).or_default().refusal = Some(refusal);
        self.fabric.refused_networks.insert(key.clone());
        self.work.effects.push(Effect::Retry { network: key.clone(), attempt });
        self.fabric.queue.insert(key.clone());
        self.vlan.claim_queue.insert(key.clone());
        self.reevaluate_networks(BTreeSet::from([key.clone()]));
    }

    /// Compares a confirmed placement with the desired one: whether a part of it is desired, and whether a part is
    /// not.
    fn compare_confirmed(
        &self,
        confirmed: Option<&Placement>,
        desired: Option<&(VlanId, Arc<Ports>)>,
    ) -> (bool, bool) {
        let (mut has_desired, mut has_surplus) = (false, false);
        if let Some((vid, devices)) = confirmed {
            for (device, port) in
                devices.iter().flat_map(|(name, ports)| ports.iter().map(move |port| (name, port)))
            {
                let wanted =
                    desired.is_some_and(|(own, ports)| own == vid && self.is_among(ports, device, port));
                has_desired |= wanted;
                has_surplus |= !wanted;
            }
        }
        (has_desired, has_surplus)
    }

    /// Updates the confirmed placement of a withheld network; returns true on a change.
    fn refresh_withheld_network(&mut self, key: &Key) -> bool {
        let Some(refusal) = self.refusal(key).filter(|refusal| refusal.is_withheld()) else { return false };
        let vid = refusal.confirmed.as_ref().map(|(vid, _)| *vid);
        let confirmed = self.confirmed_placement(key, vid.or(refusal.desired.as_ref().map(|(vid, _)| *vid)));
        if confirmed == refusal.confirmed {
            return false;
        }
        let (_, has_surplus) = self.compare_confirmed(confirmed.as_ref(), refusal.desired.as_ref());
        if let Some(refusal) = self.fabric.networks.get_mut(key).and_then(|network| network.refusal.as_mut())
        {
            (refusal.confirmed, refusal.has_surplus) = (confirmed, has_surplus);
        }
        self.fabric.queue.insert(key.clone());
        self.vlan.claim_queue.insert(key.clone());
        self.reevaluate_networks(BTreeSet::from([key.clone()]));
        true
    }

    /// Updates all withheld networks after the initial state of a switch was found.
    pub(crate) fn refresh_withheld(&mut self) {
        for key in self.fabric.refused_networks.clone() {
            self.refresh_withheld_network(&key);
        }
    }

    /// A switch refuses even the placement that a withheld network falls back to. If it can't be updated, the open
    /// changes of the switch count as confirmed, so that the same is not tried without end.
    fn handle_rejected_fallback(&mut self, key: &Key, by: &Name) {
        if self.refresh_withheld_network(key) {
            return;
        }
        if let Some(device) = self.fabric.devices.get_mut(by) {
            let open: Vec<VlanId> = device.open_vlans_of(key).collect();
            for vid in open {
                device.adopt_confirmed(vid, key, self.fabric.change_count);
            }
        }
    }

    fn is_among(&self, ports: &Ports, device: &Name, port: &Name) -> bool {
        let names = self.fabric.topology.port_names(device);
        ports
            .get(device)
            .is_some_and(|ports| ports.iter().any(|index| names.get(usize::from(*index)) == Some(port)))
    }

    /// The placement at which a network is confirmed: with its new VLAN if that is there, else with its former one.
    /// With `vid: None`, any.
    fn confirmed_placement(&self, key: &Key, vid: Option<VlanId>) -> Option<Placement> {
        let former = self.fabric.pending_vlan_changes.get(key).into_iter().flatten().copied();
        let open = self
            .fabric
            .devices
            .values()
            .filter(|_| vid.is_none())
            .flat_map(|device| device.open_vlans_of(key));
        vid.into_iter().chain(former).chain(open).find_map(|vid| {
            let on = |name: &Name| {
                let ports = self.fabric.devices.get(name)?.confirmed(vid, key);
                (!ports.is_empty()).then(|| (name.clone(), ports.into_iter().collect()))
            };
            let devices: BTreeMap<_, _> = self.fabric.devices.keys().filter_map(on).collect();
            (!devices.is_empty()).then_some((vid, devices))
        })
    }

    pub(crate) fn refusal(&self, key: &Key) -> Option<&Refusal> {
        self.fabric.networks.get(key)?.refusal.as_ref()
    }

    /// The plan for a network that wants `desired`, limited by its refusal.
    pub(crate) fn apply_refusal(
        &mut self,
        key: &Key,
        desired: Option<(VlanId, Arc<Ports>)>,
    ) -> Option<(VlanId, Arc<Ports>)> {
        let Some(refusal) = self.fabric.networks.get(key).and_then(|network| network.refusal.as_ref()) else {
            return desired;
        };
        if refusal.desired != desired {
            // The desired plan changed.
            self.clear_refusal(key);
            return desired;
        }
        if refusal.mode == PlanMode::Retry {
            return desired;
        }
        let Some((vid, devices)) = &refusal.confirmed else {
            return desired.map(|(vid, _)| (vid, Arc::default()));
        };
        let mut ports = Ports::new();
        for (device, names) in devices {
            let fabric = self.fabric.topology.component(device).cloned().map(VlanScope::Fabric);
            if fabric.is_none_or(|fabric| self.vlan.ids.check(*vid, key, &fabric).is_err()) {
                continue;
            }
            let keeps = |index: &u16| {
                let kept = || {
                    desired
                        .as_ref()
                        .and_then(|(_, ports)| ports.get(device))
                        .is_some_and(|p| p.contains(index))
                };
                refusal.mode == PlanMode::Freeze || kept()
            };
            let all = (0u16..).zip(self.fabric.topology.port_names(device));
            let indices: Indices =
                all.filter(|(_, name)| names.contains(*name)).map(|(i, _)| i).filter(keeps).collect();
            if !indices.is_empty() {
                ports.insert(device.clone(), indices);
            }
        }
        Some((*vid, Arc::new(ports)))
    }

    /// Drops the refusal of a network.
    fn clear_refusal(&mut self, key: &Key) {
        if self.fabric.refused_networks.remove(key) {
            self.fabric.networks.entry(key.clone()).or_default().refusal = None;
            self.vlan.claim_queue.insert(key.clone());
            self.reevaluate_networks(BTreeSet::from([key.clone()]));
        }
    }

    /// The VLAN that a withheld network keeps, and its scopes: it still holds the ID there.
    pub(crate) fn withheld_scopes(&self, key: &Key) -> Option<(VlanId, BTreeSet<VlanScope>)> {
        let (vid, devices) = self.refusal(key).filter(|refusal| refusal.is_withheld())?.confirmed.as_ref()?;
        let scope = |device: &Name| self.fabric.topology.component(device).cloned().map(VlanScope::Fabric);
        Some((*vid, devices.keys().filter_map(scope).collect()))
    }

    /// A switch confirmed changes of these networks. `first`: nothing was known of the switch before.
    pub(crate) fn handle_device_confirmed(&mut self, name: &Name, networks: &BTreeSet<Key>, first: bool) {
        if self.fabric.refused_networks.is_empty() && self.fabric.pending_vlan_changes.is_empty() {
            return;
        }
        let recheck: Vec<Key> =
            if first { self.fabric.pending_vlan_changes.keys().cloned().collect() } else { Vec::new() };
        for key in networks.iter().chain(&recheck) {
            let is_clear = self.fabric.devices.get(name).is_some_and(|device| device.is_gone(key));
            if is_clear
                && self.refusal(key).is_some_and(|refusal| !refusal.is_withheld() && refusal.device == *name)
            {
                self.clear_refusal(key);
            }
            if self.fabric.pending_vlan_changes.contains_key(key)
                && self.fabric.devices.values().all(|device| device.is_gone(key))
            {
                self.fabric.pending_vlan_changes.remove(key);
                // Its former VLAN is released.
                self.status.queue.insert(key.clone());
            }
        }
    }

    /// A change that one switch confirmed is decided for its component: the other switches fall back to it, too.
    pub(crate) fn adopt_confirmed(&mut self, name: &Name, effects: &ReportEffects) {
        if effects.decided.is_empty() {
            return;
        }
        let component = self.fabric.topology.component(name);
        let part = self
            .fabric
            .devices
            .iter_mut()
            .filter(|(name, _)| self.fabric.topology.component(name) == component);
        for (_, device) in part {
            for (key, vid) in &effects.decided {
                let others = self
                    .fabric
                    .pending_vlan_changes
                    .get(key)
                    .into_iter()
                    .flatten()
                    .filter(|other| *other != vid);
                for vid in others.chain([vid]) {
                    device.adopt_confirmed(*vid, key, effects.count);
                }
            }
        }
    }

    /// A switch missed the deadline of its transaction.
    pub(crate) fn mark_late(&mut self, name: &Name) {
        if let Some(device) = self.fabric.devices.get_mut(name).filter(|device| !device.late) {
            device.late = true;
            self.publish_partial();
            self.status.queue.insert(Key::cluster(Kind::FabricDevice, name));
        }
    }
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
