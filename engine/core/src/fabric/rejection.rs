//! The networks that a switch rejected: they are withheld, tried again, and restored from statuses.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use eno_schemas::{Outcome, Phase, Report, VlanId};

use crate::store::Store;
use crate::vlan::{VlanScope, Vlans};
use crate::work::Work;
use crate::{ConditionReason, ConditionType, Config, Confirmed, Effect, Key, Name, PlacementStatus, Status};

use super::Fabric;
use super::placement::{Placement, Plan, PlanMode, Rejection, Routed};
use super::topology::{Indices, Ports};

impl Fabric {
    /// The rejection of a network by a switch.
    pub fn rejection(&self, key: &Key) -> Option<&Rejection> {
        self.placements.rejection(key)
    }

    /// True when a withheld network keeps a part of its placement that is not desired.
    pub fn keeps_surplus(&self, key: &Key) -> bool {
        self.placements.get(key).is_some_and(|placement| {
            placement.rejected_by.as_ref().is_some_and(|rejection| rejection.mode == PlanMode::Freeze)
                && self.compare(placement.confirmed.as_ref(), placement.desired.as_ref()).1
        })
    }

    /// The VLAN that a withheld network keeps, and its scopes: it still holds the ID there.
    pub fn withheld_scopes(&self, key: &Key) -> Option<(VlanId, BTreeSet<VlanScope>)> {
        let placement = self.placements.get(key)?;
        let confirmed = placement.withheld().and(placement.confirmed.as_ref())?;
        let scope = |device: &Name| self.topology.component(device).cloned().map(VlanScope::Fabric);
        Some((confirmed.vlan, confirmed.ports.keys().filter_map(scope).collect()))
    }

    /// The VLAN that a withheld network keeps, or that a network has and is leaving. While that is unknown, the one
    /// in its status.
    pub fn former_vlan(&self, store: &Store, key: &Key) -> Option<VlanId> {
        let placement = self.placements.get(key)?;
        if let Some(confirmed) = placement.withheld().and(placement.confirmed.as_ref()) {
            return Some(confirmed.vlan);
        }
        let now = placement.planned.as_ref().map(|(now, _)| *now);
        let mut former = placement.vlans.iter().copied().filter(|vid| Some(*vid) != now);
        let has = |vid: &VlanId| self.devices.values().any(|device| !device.confirmed(*vid, key).is_empty());
        former.find(has).or_else(|| {
            let unknown = self.devices.values().any(|device| !device.is_known());
            let last = last_vlan(&store.get(key)?.status);
            last.filter(|vid| unknown && placement.vlans.contains(vid))
        })
    }

    /// The part of a network's placement that its status carries.
    pub fn placement_status(&self, store: &Store, key: &Key) -> Option<PlacementStatus> {
        let placement = self.placements.get(key)?;
        let desired = placement.desired.as_ref().map(|(vid, _)| *vid);
        let rejected_by = placement
            .rejected_by
            .as_ref()
            .and_then(|rejection| Some((rejection.device.clone()?, rejection.retryable)));
        let former = self.former_vlan(store, key).map(|vlan| Confirmed { vlan, ports: BTreeMap::new() });
        let confirmed = self.kept(placement).or_else(|| placement.confirmed.clone()).or(former);
        let moves = confirmed.as_ref().is_some_and(|confirmed| Some(confirmed.vlan) != desired);
        (rejected_by.is_some() || moves).then_some(PlacementStatus { confirmed, desired, rejected_by })
    }

    /// Where a withheld network stays, if that is a part of where it was confirmed.
    fn kept(&self, placement: &Placement) -> Option<Confirmed> {
        placement.withheld().filter(|rejection| rejection.mode == PlanMode::Reduce)?;
        let (vlan, planned) = placement.planned.as_ref()?;
        let named = planned.iter().map(|(device, indices)| {
            let all = (0u16..).zip(self.topology.port_names(device));
            let names = all.filter(|(index, _)| indices.contains(index)).map(|(_, name)| name.clone());
            (device.clone(), names.collect())
        });
        Some(Confirmed { vlan: *vlan, ports: named.collect() })
    }

    /// Restores pending VLAN changes. `had`: the networks and VLANs of the former leader's commands. A network with
    /// another VLAN in these or in its status leaves the one and takes the other at once.
    pub(super) fn restore_vlan_changes(&mut self, store: &Store, had: BTreeSet<(Key, VlanId)>) {
        let networks = store.iter().filter(|(key, record)| key.kind.facts().has_vlan && !record.generated);
        let last = networks.filter_map(|(key, record)| Some((key.clone(), last_vlan(&record.status)?)));
        for (key, former) in last.chain(had).collect::<Vec<_>>() {
            let now = self.placements.planned(&key).map(|(now, _)| *now);
            if now != Some(former) {
                self.placements.update(&key, |placement| {
                    placement.vlans.extend(now.into_iter().chain([former]));
                });
            }
        }
    }

    /// Restores rejections from statuses. These networks are tried again, and are in error until that succeeds. An engine
    /// that observes leaves them as they are.
    pub(super) fn restore_rejections(&mut self, config: &Config, store: &Store, work: &mut Work) {
        for (key, record) in store.iter().filter(|(key, _)| key.kind.facts().has_vlan) {
            let status = &record.status;
            let last = status.placement.as_ref();
            let by = last.and_then(|last| last.rejected_by.clone());
            let is_withheld = config.observes && by.is_some();
            let refused = status.conditions.iter().any(|condition| {
                condition.kind == ConditionType::Ready && condition.reason == ConditionReason::Refused
            });
            let is_refused = status.observed_generation == record.generation
                && (is_withheld || (refused && status.phase == Some(Phase::Error)));
            let Some((_, ports)) = self.placements.planned(key).filter(|_| is_refused) else { continue };
            let is_off = by.as_ref().is_some_and(|(device, _)| !ports.contains_key(device));
            if !is_withheld && (ports.is_empty() || is_off) {
                continue;
            }
            // An earlier version wrote no placement.
            let (device, retryable) =
                by.map_or((None, true), |(device, retryable)| (Some(device), retryable));
            let message = status.message.clone();
            let unreachable = status.phase != Some(Phase::Error);
            let confirmed = last.filter(|_| is_withheld).and_then(|last| last.confirmed.clone());
            let mode = if is_withheld { PlanMode::Freeze } else { PlanMode::Retry };
            let rejection = Rejection { device, message, retryable, unreachable, attempt: 1, mode };
            self.placements.update(key, |placement| {
                (placement.rejected_by, placement.confirmed) = (Some(rejection), confirmed);
            });
            if is_withheld {
                rejection_changed(store, key, work);
            }
        }
    }

    /// True when a report rejects a change that was issued to the switch: its transaction can't be confirmed.
    pub fn rejects_planned_change(&self, name: &Name, report: &Report) -> bool {
        self.devices.get(name).is_some_and(|device| !device.rejected_networks(report).is_empty())
    }

    /// Withholds the networks that a report rejects.
    pub fn withhold_rejected(&mut self, store: &Store, name: &Name, report: &Report, work: &mut Work) {
        let Some(device) = self.devices.get(name) else { return };
        for (network, rejection) in device.rejected_networks(report) {
            if let Some(rejection) = rejection {
                self.withhold(store, &network, name, rejection, work);
            }
        }
    }

    /// Retries what a switch rejected when it reports on its own.
    pub(super) fn retry_after_report(&mut self, name: &Name, report: &Report, work: &mut Work) {
        let Some(device) = self.devices.get(name) else { return };
        match report.outcome {
            Outcome::Applied if device.is_spontaneous(report) => self.retry_rejected_by(name, true, work),
            // A failed switch takes part in no transaction, so its former rejections don't matter.
            Outcome::Failed(_) => self.retry_rejected_by(name, false, work),
            _ => {}
        }
    }

    /// Retries all networks that `by` rejected. `remember`: the rejections stay until they succeed.
    fn retry_rejected_by(&mut self, by: &Name, remember: bool, work: &mut Work) {
        let matches = |key: &&Key| {
            self.rejection(key).is_some_and(|rejection| rejection.device.as_ref().is_none_or(|d| d == by))
        };
        let keys: Vec<Key> = self.placements.rejected().iter().filter(matches).cloned().collect();
        for key in keys {
            self.placements.update(&key, |placement| match &mut placement.rejected_by {
                Some(rejection) if remember => rejection.mode = PlanMode::Retry,
                _ => (placement.rejected_by, placement.confirmed) = (None, None),
            });
            work.place.insert(key.clone());
            work.claim.insert(key);
        }
    }

    /// The backoff of a rejected network is over.
    pub fn retry(&mut self, key: &Key, attempt: u32, work: &mut Work) {
        let is_due = |rejection: &Rejection| rejection.attempt == attempt && rejection.is_withheld();
        if self.rejection(key).is_some_and(is_due) {
            self.placements.update(key, |placement| {
                placement.rejected_by.iter_mut().for_each(|rejection| rejection.mode = PlanMode::Retry);
            });
            work.place.insert(key.clone());
            work.claim.insert(key.clone());
        }
    }

    /// Withholds a network that a switch rejected.
    fn withhold(
        &mut self,
        store: &Store,
        key: &Key,
        by: &Name,
        rejection: &eno_schemas::Rejection,
        work: &mut Work,
    ) {
        let placement = self.placements.get(key);
        let before = placement.and_then(|placement| placement.rejected_by.as_ref());
        if before.is_some_and(|before| before.mode == PlanMode::Freeze) {
            return self.handle_rejected_fallback(store, key, by, work);
        }
        let tried = before.is_none_or(|before| before.mode == PlanMode::Retry);
        let attempt = before.map_or(1, |before| if tried { before.attempt + 1 } else { before.attempt });
        let planned = placement.and_then(|placement| placement.planned.as_ref()).map(|(vid, _)| *vid);
        let confirmed = self.confirmed_placement(key, planned);
        let desired = placement.and_then(|placement| placement.desired.as_ref());
        let (has_desired, has_surplus) = self.compare(confirmed.as_ref(), desired);
        let reduce = tried && has_desired && has_surplus;
        let mode = if reduce { PlanMode::Reduce } else { PlanMode::Freeze };
        let eno_schemas::Rejection { item, reason, retryable, unreachable } = rejection;
        let message = format!("FabricDevice {by}: {item}: {reason}");
        let (retryable, unreachable) = (*retryable || *unreachable, *unreachable);
        let rejection =
            Rejection { device: Some(by.clone()), message, retryable, unreachable, attempt, mode };
        self.placements.update(key, |placement| {
            (placement.rejected_by, placement.confirmed) = (Some(rejection), confirmed);
        });
        work.effects.push(Effect::Retry { network: key.clone(), attempt });
        rejection_changed(store, key, work);
    }

    /// Compares a confirmed placement with the desired one: whether a part of it is desired, and whether a part is
    /// not.
    fn compare(&self, confirmed: Option<&Confirmed>, desired: Option<&Plan>) -> (bool, bool) {
        let (mut has_desired, mut has_surplus) = (false, false);
        if let Some(Confirmed { vlan, ports }) = confirmed {
            for (device, port) in
                ports.iter().flat_map(|(name, ports)| ports.iter().map(move |port| (name, port)))
            {
                let wanted =
                    desired.is_some_and(|(own, ports)| own == vlan && self.is_among(ports, device, port));
                has_desired |= wanted;
                has_surplus |= !wanted;
            }
        }
        (has_desired, has_surplus)
    }

    fn is_among(&self, ports: &Ports, device: &Name, port: &Name) -> bool {
        let names = self.topology.port_names(device);
        ports
            .get(device)
            .is_some_and(|ports| ports.iter().any(|index| names.get(usize::from(*index)) == Some(port)))
    }

    /// Updates the confirmed placement of a withheld network; returns true on a change.
    fn refresh_withheld_network(&mut self, store: &Store, key: &Key, work: &mut Work) -> bool {
        let Some(placement) = self.placements.get(key).filter(|one| one.withheld().is_some()) else {
            return false;
        };
        let vid = placement.confirmed.as_ref().map(|confirmed| confirmed.vlan);
        let confirmed =
            self.confirmed_placement(key, vid.or(placement.desired.as_ref().map(|(vid, _)| *vid)));
        if confirmed == placement.confirmed {
            return false;
        }
        self.placements.update(key, |placement| placement.confirmed = confirmed);
        rejection_changed(store, key, work);
        true
    }

    /// Updates all withheld networks after the initial state of a switch was found.
    pub(super) fn refresh_withheld(&mut self, store: &Store, work: &mut Work) {
        for key in self.placements.rejected().clone() {
            self.refresh_withheld_network(store, &key, work);
        }
    }

    /// A switch rejects even the placement that a withheld network falls back to. If it can't be updated, the open
    /// changes of the switch count as confirmed, so that the same is not tried without end.
    fn handle_rejected_fallback(&mut self, store: &Store, key: &Key, by: &Name, work: &mut Work) {
        if self.refresh_withheld_network(store, key, work) {
            return;
        }
        if let Some(device) = self.devices.get_mut(by) {
            let open: Vec<VlanId> = device.open_vlans_of(key).collect();
            for vid in open {
                device.adopt_confirmed(vid, key, self.change_count);
            }
        }
    }

    /// The placement at which a network is confirmed: with its new VLAN if that is there, else with its former one.
    /// With `vid: None`, any. What a switch refused outside a transaction counts as confirmed. So a VLAN that no
    /// switch was seen to carry comes last.
    fn confirmed_placement(&self, key: &Key, vid: Option<VlanId>) -> Option<Confirmed> {
        let open =
            self.devices.values().filter(|_| vid.is_none()).flat_map(|device| device.open_vlans_of(key));
        let all = vid.into_iter().chain(self.placements.vlans(key)).chain(open).filter_map(|vlan| {
            let on = |name: &Name| {
                let ports = self.devices.get(name)?.confirmed(vlan, key);
                (!ports.is_empty()).then(|| (name.clone(), ports.into_iter().collect()))
            };
            let ports: BTreeMap<_, _> = self.devices.keys().filter_map(on).collect();
            (!ports.is_empty()).then_some(Confirmed { vlan, ports })
        });
        let mut all: Vec<Confirmed> = all.collect();
        let is_seen = |confirmed: &Confirmed| {
            confirmed.ports.iter().any(|(name, ports)| {
                self.devices.get(name).is_some_and(|device| device.carries(confirmed.vlan, ports))
            })
        };
        let first = all.iter().position(is_seen).unwrap_or_default();
        (first < all.len()).then(|| all.swap_remove(first))
    }

    /// The plan for a network that wants `desired` and `routed`, limited to what is confirmed while a switch rejects it.
    pub(super) fn limit_to_confirmed(
        &self,
        vlan: &Vlans,
        key: &Key,
        desired: Option<Plan>,
        routed: &Routed,
    ) -> (Option<Plan>, Routed) {
        let as_desired = |desired| (desired, routed.clone());
        let Some(placement) = self.placements.get(key) else { return as_desired(desired) };
        let Some(rejection) = placement.withheld() else { return as_desired(desired) };
        let Some(confirmed) = &placement.confirmed else {
            return (desired.map(|(vid, _)| (vid, Arc::default())), Routed::new());
        };
        let vid = confirmed.vlan;
        let is_held = |device: &Name| {
            let fabric = self.topology.component(device).cloned().map(VlanScope::Fabric);
            fabric.is_some_and(|fabric| vlan.check(vid, key, &fabric).is_ok())
        };
        let mut ports = Ports::new();
        for (device, names) in confirmed.ports.iter().filter(|(device, _)| is_held(device)) {
            let wanted = desired.as_ref().and_then(|(_, ports)| ports.get(device));
            let keeps = |index: &u16| {
                rejection.mode == PlanMode::Freeze || wanted.is_some_and(|wanted| wanted.contains(index))
            };
            let all = (0u16..).zip(self.topology.port_names(device));
            let indices: Indices =
                all.filter(|(_, name)| names.contains(*name)).map(|(i, _)| i).filter(keeps).collect();
            if !indices.is_empty() {
                ports.insert(device.clone(), indices);
            }
        }
        let stays = |device: &Name| {
            is_held(device) && (rejection.mode == PlanMode::Freeze || routed.contains_key(device))
        };
        let kept = self.devices.iter().filter(|(device, _)| stays(device));
        let kept: Routed = kept
            .filter_map(|(device, one)| Some((device.clone(), one.confirmed_routed(vid, key)?)))
            .collect();
        for device in kept.keys() {
            ports.entry(device.clone()).or_default();
        }
        (Some((vid, Arc::new(ports))), kept)
    }

    /// Drops the rejection of a network.
    pub(super) fn clear_rejection(&mut self, store: &Store, key: &Key, work: &mut Work) {
        if self.placements.rejected().contains(key) {
            self.placements.update(key, |placement| {
                (placement.rejected_by, placement.confirmed) = (None, None);
            });
            work.claim.insert(key.clone());
            store.evaluate_networks([key.clone()], work);
        }
    }

    /// A switch confirmed changes of these networks. `first`: nothing was known of the switch before.
    pub(super) fn handle_confirmed(
        &mut self,
        store: &Store,
        name: &Name,
        networks: &BTreeSet<Key>,
        first: bool,
        work: &mut Work,
    ) {
        if self.placements.all_settled() {
            return;
        }
        let moving: Vec<Key> =
            if first { self.placements.moving().map(|(key, _)| key.clone()).collect() } else { Vec::new() };
        for key in networks.iter().chain(&moving) {
            if self.rejection(key).is_some_and(|rejection| !rejection.is_withheld())
                && self.has_confirmed_retry(name, key)
            {
                self.clear_rejection(store, key, work);
            }
            if self.placements.vlans(key).next().is_some()
                && self.devices.values().all(|device| device.is_gone(key))
            {
                self.placements.update(key, |placement| placement.vlans.clear());
                // Its former VLAN is released.
                work.evaluate.insert(key.clone());
            }
        }
    }

    /// True when the switch that rejected a network, which `name` may be, has confirmed what it rejected.
    fn has_confirmed_retry(&self, name: &Name, key: &Key) -> bool {
        let is_clear = |name: &Name| self.devices.get(name).is_some_and(|device| device.is_gone(key));
        match self.rejection(key).and_then(|rejection| rejection.device.as_ref()) {
            Some(device) => device == name && is_clear(name),
            None => self.placements.planned(key).is_none_or(|(_, ports)| ports.keys().all(is_clear)),
        }
    }
}

/// Requests what follows from a changed rejection of a network.
fn rejection_changed(store: &Store, key: &Key, work: &mut Work) {
    work.place.insert(key.clone());
    work.claim.insert(key.clone());
    store.evaluate_networks([key.clone()], work);
}

/// The VLAN that a network had when its status was written.
fn last_vlan(status: &Status) -> Option<VlanId> {
    let confirmed = status.placement.as_ref().and_then(|placement| placement.confirmed.as_ref());
    confirmed.map(|confirmed| confirmed.vlan).or(status.granted_id)
}
