//! What the reports of a switch say about its VLANs and ports.

use std::collections::{BTreeMap, BTreeSet};

use eno_schemas::{
    Applied, BgpSession, ChangeOutcome, Drift, FabricDesired, FabricPort, FabricVlan, Note, Outcome,
    PortBefore, Rejection, Report, Text, VlanId, VlanSet,
};

use super::{DeviceTarget, has_other_lags, interface, leaving_name};
use crate::fabric::changes::{Extent, Owners, Place};
use crate::fabric::topology::Indices;
use crate::status::{LastTransaction, PortMemory};
use crate::{ConditionType, Key, Name};

/// The consequences of a report.
#[derive(Debug, Default)]
pub struct ReportEffects {
    /// The networks for which something may have changed.
    pub networks: BTreeSet<Key>,
    /// The networks and VLANs that the report confirms at a new placement.
    pub decided: BTreeSet<(Key, VlanId)>,
    /// The change count at which `decided` were wanted.
    pub count: u64,
    /// The report shows the state before this process issued a command.
    pub found_initial_state: bool,
    /// The port memory changed: the next command has to carry it.
    pub port_memory_changed: bool,
}

/// VLANs of ours that the driver read back.
#[derive(Debug, Default)]
pub(super) struct Observed {
    /// The VLANs that exist on the device.
    pub(super) vlans: VlanSet,
    /// The VRFs that are there as desired.
    pub(super) vrfs: BTreeSet<String>,
    /// The VLANs that are led into VRFs as desired.
    pub(super) routed: VlanSet,
    /// By owner: the BGP sessions that are there as desired.
    pub(super) bgp: BTreeMap<String, Vec<BgpSession>>,
    /// The VLANs of each port, by index.
    pub(super) ports: Vec<VlanSet>,
    /// By name: ports that are not listed. They may be listed again before anything is commanded.
    pub(super) others: BTreeMap<String, VlanSet>,
}

impl Observed {
    /// The ports that carry a VLAN.
    pub(super) fn carriers(&self, vid: VlanId) -> Indices {
        (0u16..).zip(&self.ports).filter(|(_, carried)| carried.contains(vid)).map(|(i, _)| i).collect()
    }
}

impl DeviceTarget {
    /// Restores the last command of a former leader. It counts as confirmed until a report shows otherwise. Adds the
    /// networks in it with their VLANs to `had`, which is that of all switches: they share the keys. Returns the
    /// networks.
    pub fn restore_command(
        &mut self,
        former: &FabricDesired,
        hash: &str,
        had: &mut BTreeSet<(Key, VlanId)>,
    ) -> BTreeSet<Key> {
        let mut networks = BTreeSet::new();
        self.restored_command = Some(hash.to_owned());
        self.restored_elsewhere =
            former.device.address != self.access.address || has_other_lags(&former.ports, &self.ports);
        self.commanded_hash.clone_from(&self.restored_command);
        let before: BTreeMap<&str, &VlanSet> =
            former.ports.iter().map(|port| (port.name.as_str(), &port.vlans)).collect();
        let before: Vec<(u16, &VlanSet)> = (0u16..)
            .zip(&self.ports)
            .filter_map(|(index, port)| Some((index, *before.get(port.name.as_str())?)))
            .collect();
        // Most VLANs are on the same ports as the one before.
        let mut ports = Indices::default();
        self.restore_vrfs(&former.vrfs);
        self.restore_lookup(former.lookup.as_ref());
        for FabricVlan { vid, owners, routed } in &former.vlans {
            let carries = before.iter().filter(|(_, vlans)| vlans.contains(*vid)).map(|(index, _)| *index);
            if !carries.clone().eq(ports.iter().copied()) {
                ports = carries.collect();
            }
            for network in owners.iter().filter_map(|owner| Key::of_network(owner)) {
                let own = (network, *vid);
                let network = had.get(&own).map_or_else(|| own.0.clone(), |(known, _)| known.clone());
                let place = Place { ports: ports.clone(), routed: routed.clone() };
                self.changes.assume_confirmed(*vid, &network, place);
                had.insert((network.clone(), *vid));
                networks.insert(network);
            }
        }
        self.changes.set_unverified(former.vlans.vids(), &self.wanted);
        networks
    }

    /// VLANs of ours on the device that neither the last command nor the desired state names.
    pub fn orphan_vlans(&self, report: &Report) -> VlanSet {
        let Some(Applied::Fabric { vlans, .. }) = &report.applied else { return VlanSet::EMPTY };
        let final_word = !matches!(report.outcome, Outcome::Held | Outcome::Progress { .. });
        if !final_word || !self.describes_initial_state(report) {
            return VlanSet::EMPTY;
        }
        vlans.iter().filter(|vid| !self.changes.is_open(*vid) && !self.wanted.contains_key(vid)).collect()
    }

    /// True when a report shows the state before this process issued a command: it answers the last command of the
    /// former leader. A part of it without an answer was decided, or is still to be decided.
    fn describes_initial_state(&self, report: &Report) -> bool {
        !self.known && self.restored_command.as_ref().is_none_or(|hash| *hash == report.generation.hash)
    }

    /// Assigns an orphan VLAN to a network, on the ports where the report has it.
    pub fn assign_orphan(&mut self, vid: VlanId, network: &Key, report: &Report) {
        let Some(Applied::Fabric { ports, .. }) = &report.applied else { return };
        let carries = |port: &FabricPort| ports.get(&port.name).is_some_and(|vlans| vlans.contains(vid));
        let indices = (0u16..).zip(&self.ports).filter(|(_, port)| carries(port)).map(|(index, _)| index);
        self.changes.assume_confirmed(vid, network, Place { ports: indices.collect(), routed: None });
        self.changes.update_moved(vid, self.wanted.get(&vid));
    }

    /// Processes a report of the driver.
    pub fn report(&mut self, report: Report) -> ReportEffects {
        let mut effects = ReportEffects::default();
        let was = self.describes_initial_state(&report);
        self.held = match &report.outcome {
            Outcome::Progress { .. } => return effects,
            Outcome::Held => true,
            Outcome::Applied | Outcome::RolledBack { .. } | Outcome::Failed(_) => false,
        };
        self.info = report.device.clone().or(self.info.take());
        if self.held {
            return effects;
        }
        let outcome = match &report.outcome {
            Outcome::RolledBack { .. } => ChangeOutcome::RolledBack,
            _ => ChangeOutcome::Confirmed,
        };
        let repaired = report.change.as_ref().filter(|_| self.access.drift == Drift::Repair);
        let repaired = repaired.map(|change| change.at.clone());
        self.last_transaction =
            report.change.map(|change| LastTransaction { change, outcome }).or(self.last_transaction.take());
        effects.found_initial_state = was && report.applied.is_some();
        let mut to_restore = BTreeSet::new();
        if let Some(Applied::Fabric { before, .. }) = &report.applied {
            to_restore.extend(
                before.iter().filter(|(_, before)| !before.vlans.is_empty()).map(|(name, _)| name.clone()),
            );
        }
        if let Some(Applied::Fabric { closed: Some(closed), before, .. }) = &report.applied
            && self.concerns_current_ports(&report.generation.hash)
        {
            effects.port_memory_changed = self.update_port_memory(closed, before);
        }
        self.observe_lookup(report.applied.as_ref());
        let mut touched = self.observe(report.applied, was);
        let failure = match report.outcome {
            Outcome::Failed(failure) => Some(failure),
            Outcome::Applied => None,
            _ => {
                self.add_owners_of(&touched, &mut effects.networks);
                return effects;
            }
        };
        self.last_answered = Some((report.generation.term, report.generation.sequence));
        if self.failure != failure || self.rejected != report.rejected {
            touched.extend(self.wanted.keys().copied());
        }
        let applied_it = failure.is_none();
        self.failure = failure;
        self.rejected = report.rejected;
        (self.notes, self.repaired) = (report.notes, repaired);
        if applied_it {
            self.late = false;
            let hash = report.generation.hash;
            if let Some(extent) = self.changes.extent(&hash) {
                effects.port_memory_changed |= self.drop_emptied(extent.count, &to_restore);
                touched = touched.union(&self.mark_known());
                let blocked = self.update_blocked_removals(&extent);
                (effects.networks, effects.decided) = self.confirm(&extent);
                effects.networks.extend(blocked);
                effects.count = extent.count;
            }
            self.reported_hash = Some(hash);
        }
        self.add_owners_of(&touched, &mut effects.networks);
        effects
    }

    /// True when the command with this hash was for the present device and its present interfaces.
    fn concerns_current_ports(&self, hash: &str) -> bool {
        match self.changes.extent(hash) {
            Some(extent) => extent.count >= self.valid_since,
            None => self.valid_since == 0 && !self.restored_elsewhere,
        }
    }

    /// Stores which trunks have a VLAN list, and the configuration of ports before ours. Returns true on a change.
    fn update_port_memory(
        &mut self,
        closed: &BTreeSet<String>,
        before: &BTreeMap<String, PortBefore>,
    ) -> bool {
        let mut changed = false;
        for port in &mut self.ports {
            let now = closed.contains(&port.name);
            changed |= std::mem::replace(&mut port.closed, now) != now;
            let was = before.get(&port.name);
            if port.before.as_ref() != was {
                port.before = was.cloned();
                changed = true;
            }
        }
        self.rendering.switch_changed |= changed;
        changed
    }

    /// Drops the leaving interfaces that carry no VLAN of ours in a state with the changes up to `count`. An
    /// interface of `to_restore` stays until it has its former VLANs. Returns true if any was dropped.
    fn drop_emptied(&mut self, count: u64, to_restore: &BTreeSet<String>) -> bool {
        let Some(observed) = &self.applied else { return false };
        let before = self.leaving.len();
        let stays = |interface: &str| {
            let name = leaving_name(interface);
            to_restore.contains(&name) || observed.others.get(&name).is_some_and(|vlans| !vlans.is_empty())
        };
        self.leaving.retain(|interface, leaving| leaving.since > count || stays(interface));
        let dropped = self.leaving.len() < before;
        self.rendering.switch_changed |= dropped;
        dropped
    }

    /// Drops all leaving interfaces, on request of the admin. Returns true if there were any.
    pub fn forget_leaving(&mut self, count: u64) -> bool {
        let some = !std::mem::take(&mut self.leaving).is_empty();
        if some {
            self.rendering.switch_changed = true;
            self.changes.set_count(count);
        }
        some
    }

    /// The port memory, for the status.
    pub fn port_memory(&self) -> PortMemory {
        let before = self.before().into_iter().map(|(interface, before)| (interface.as_str().into(), before));
        PortMemory {
            closed: self.closed().map(Name::from).collect(),
            before: before.collect(),
            leaving: self.leaving.keys().map(|interface| interface.as_str().into()).collect(),
        }
    }

    /// The configuration of interfaces, listed and leaving, before they carried VLANs of ours.
    pub(super) fn before(&self) -> BTreeMap<String, PortBefore> {
        let ports = self.ports.iter().map(|port| (interface(port), &port.before));
        let leaving = self.leaving.iter().map(|(interface, leaving)| (interface.as_str(), &leaving.before));
        let all = leaving.chain(ports);
        all.filter_map(|(interface, before)| Some((interface.to_owned(), before.clone()?))).collect()
    }

    /// Stores what was read back. `was`: it is the state before this process issued a command. Returns the VLANs that
    /// differ from the last report.
    fn observe(&mut self, applied: Option<Applied>, was: bool) -> VlanSet {
        let mut touched = VlanSet::EMPTY;
        let Some(Applied::Fabric { vlans, ports: mut others, vrfs, routed, bgp, .. }) = applied else {
            return touched;
        };
        let ports = self.ports.iter().map(|port| others.remove(&port.name).unwrap_or_default()).collect();
        let observed = Observed { vlans, vrfs, routed, bgp, ports, others };
        let before = self.applied.take().unwrap_or_default();
        for (i, now) in observed.ports.iter().enumerate() {
            let was = before.ports.get(i).unwrap_or(&VlanSet::EMPTY);
            touched = touched.union(&was.difference(now)).union(&now.difference(was));
        }
        touched = touched
            .union(&before.vlans.difference(&observed.vlans))
            .union(&observed.vlans.difference(&before.vlans))
            .union(&before.routed.difference(&observed.routed))
            .union(&observed.routed.difference(&before.routed));
        if was {
            self.changes.set_unverified(VlanSet::EMPTY, &self.wanted);
            self.changes
                .set_observed(&self.wanted, |vid| (observed.carriers(vid), observed.routed.contains(vid)));
        } else if !self.known {
            let vids: VlanSet = self.changes.open_vlans().collect();
            let elsewhere = |vid: &VlanId| {
                let former = self.changes.confirmed_owners(*vid, self.wanted.get(vid));
                let is_routed = former.routed().is_some();
                let former: BTreeSet<u16> = former.indices().collect();
                is_routed != observed.routed.contains(*vid)
                    || former != observed.carriers(*vid).iter().copied().collect()
            };
            let unverified = vids.union(&observed.vlans).iter().filter(elsewhere).collect();
            self.changes.set_unverified(unverified, &self.wanted);
        }
        self.applied = Some(observed);
        touched
    }

    /// True when the device was last seen to carry a VLAN on one of these ports.
    pub fn carries(&self, vid: VlanId, ports: &BTreeSet<Name>) -> bool {
        let carriers = self.applied.as_ref().map(|observed| observed.carriers(vid)).unwrap_or_default();
        let mut carriers = carriers.iter().filter_map(|index| self.ports.get(usize::from(*index)));
        carriers.any(|port| ports.contains(port.name.as_str()))
    }

    /// Updates the networks whose VLANs the driver does not remove because of a clash; returns those that changed.
    fn update_blocked_removals(&mut self, extent: &Extent) -> BTreeSet<Key> {
        let before = std::mem::take(&mut self.blocked_removals);
        if let Some(observed) = self.applied.as_ref().filter(|_| self.clash().is_some()) {
            let open = self.changes.open_vlans().filter(|vid| !extent.without.contains(*vid));
            let open = open
                .flat_map(|vid| self.changes.open_networks(vid).map(move |network| (network.clone(), vid)));
            let is_left = |vid: VlanId| match self.wanted.get(&vid) {
                None => observed.vlans.contains(vid) || !observed.carriers(vid).is_empty(),
                Some(owners) => {
                    !observed.carriers(vid).iter().all(|port| owners.indices().any(|wanted| wanted == *port))
                }
            };
            let blocked = open.chain(before.iter().cloned()).filter(|(_, vid)| is_left(*vid));
            self.blocked_removals = blocked.collect();
        }
        before.symmetric_difference(&self.blocked_removals).map(|(network, _)| network.clone()).collect()
    }

    /// Adds the networks that want these VLANs or have an open change of them.
    pub(super) fn add_owners_of(&self, vlans: &VlanSet, networks: &mut BTreeSet<Key>) {
        for vid in vlans.iter() {
            networks.extend(self.wanted.get(&vid).into_iter().flat_map(Owners::networks).cloned());
            networks.extend(self.changes.open_networks(vid).cloned());
        }
    }

    /// The notes of a kind in a report that the last report did not have. A repair is reported together with the drift
    /// that it removed, so that drift is new each time.
    pub fn new_notes(&self, kind: &str, report: &Report) -> Vec<Text> {
        let repairs = self.access.drift == Drift::Repair && kind == ConditionType::Drift.as_ref();
        let were_removed = repairs && (report.change.is_some() || self.repaired.is_some());
        let of_kind = |notes: &[Note]| -> BTreeSet<Text> {
            notes.iter().filter(|note| note.kind == kind).map(|note| note.message.clone()).collect()
        };
        let mut found = of_kind(&report.notes);
        if !were_removed {
            found = &found - &of_kind(&self.notes);
        }
        found.into_iter().collect()
    }

    /// True when the report is a later one on a command that was answered before. A driver repeats what is refused, so
    /// a report that rejects the same is not.
    pub fn is_spontaneous(&self, report: &Report) -> bool {
        let items = |all: &[Rejection]| all.iter().map(|one| one.item.clone()).collect::<BTreeSet<_>>();
        report.outcome == Outcome::Applied
            && self.last_answered == Some((report.generation.term, report.generation.sequence))
            && (report.rejected.is_empty() || items(&report.rejected) != items(&self.rejected))
    }
}
