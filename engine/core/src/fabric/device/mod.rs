//! One switch as a target: its desired state, and what it has confirmed.

mod conditions;
mod lookup;
mod render;
mod report;
mod vrfs;

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::sync::Arc;

use eno_schemas::{
    Device, DeviceInfo, Drift, FabricDesired, FabricPort, Failure, Note, PortBefore, Rejection, Report,
    Rollback, RoutedInterface, VlanId, VlanSet,
};

use crate::event::Config;
use crate::fabric::changes::{Changes, Extent, Owners, Place};
use crate::kinds::DeviceSpec;
use crate::status::hop::{HopState, Wait};
use crate::status::{LastTransaction, PortMemory};
use crate::{ConditionType, Key, Name};

use lookup::Lookup;
pub use lookup::ProberState;
use render::Rendering;
pub use render::{SharedBlocks, SwitchState};
use report::Observed;
pub use report::ReportEffects;
use vrfs::Vrfs;

/// The state of one switch.
#[allow(clippy::struct_excessive_bools, reason = "facts of a switch, independent of each other")]
#[derive(Debug)]
pub struct DeviceTarget {
    /// The driver that configures it.
    pub driver: Name,
    /// How the device is reached, and its policies.
    access: Device,
    /// Its ports, sorted by name. [`Indices`] are positions in this list.
    pub ports: Vec<FabricPort>,
    /// Interfaces that left the spec and may still carry VLANs of ours.
    leaving: BTreeMap<String, LeavingPort>,
    /// By VLAN: the networks that want it.
    wanted: BTreeMap<VlanId, Owners>,
    /// The VRFs that are wanted, and those that are leaving.
    vrfs: Vrfs,
    /// Where it has learnt the MAC addresses of probes.
    lookup: Lookup,
    /// The desired state that was rendered last.
    rendering: Rendering,
    /// The state that the last report read back.
    applied: Option<Observed>,
    /// The rejections of the last report.
    rejected: Vec<Rejection>,
    /// The failure of the last report, if it was one.
    pub failure: Option<Failure>,
    /// The notes of the last report.
    pub notes: Vec<Note>,
    /// When the drift among `notes` was repaired, RFC 3339.
    repaired: Option<String>,
    /// Vendor, model and capabilities, as the device reported them.
    pub info: Option<DeviceInfo>,
    /// The last change of the device, and its outcome.
    pub last_transaction: Option<LastTransaction>,
    /// A change is held on the device until its transaction is decided.
    pub held: bool,
    /// It missed the deadline of a transaction and has not applied anything since.
    pub late: bool,
    /// The changes that are not confirmed yet.
    changes: Changes,
    /// Networks with VLANs that the driver does not remove because of [`Self::clash`].
    blocked_removals: BTreeSet<(Key, VlanId)>,
    /// The device has reported on a state that this process issued.
    known: bool,
    /// The hash of the command that a former leader left on NATS.
    restored_command: Option<String>,
    /// The hash of the last command, of this process or a former leader.
    commanded_hash: Option<String>,
    /// The hash of the state last reported as applied.
    reported_hash: Option<String>,
    /// States issued before this count were for another device or other interfaces.
    valid_since: u64,
    /// The restored command was for another device or other interfaces.
    restored_elsewhere: bool,
    /// Term and sequence of the last generation that was applied or that failed.
    last_answered: Option<(u64, u64)>,
    /// The device has applied all changes so far.
    pub settled: bool,
}

/// An interface that left the spec.
#[derive(Clone, Debug)]
struct LeavingPort {
    /// The change count at which it left.
    since: u64,
    /// Its configuration before its first VLAN of ours.
    before: Option<PortBefore>,
}

impl DeviceTarget {
    /// A switch without desired VLANs. `ports` are all of its ports, sorted, including far ends of links that `spec`
    /// doesn't list. `memory` is what a former leader remembered of them. They are current as of `count`.
    pub fn new(spec: &DeviceSpec, ports: &[Name], memory: &PortMemory, count: u64) -> Self {
        let mut target = Self {
            driver: spec.driver.clone(),
            access: spec.device.clone(),
            ports: Vec::new(),
            leaving: BTreeMap::new(),
            wanted: BTreeMap::new(),
            vrfs: Vrfs::default(),
            lookup: Lookup::default(),
            rendering: Rendering::default(),
            applied: None,
            rejected: Vec::new(),
            failure: None,
            notes: Vec::new(),
            repaired: None,
            info: None,
            last_transaction: None,
            held: false,
            late: false,
            changes: Changes::default(),
            blocked_removals: BTreeSet::new(),
            known: false,
            restored_command: None,
            commanded_hash: None,
            reported_hash: None,
            valid_since: 0,
            restored_elsewhere: false,
            last_answered: None,
            settled: false,
        };
        target.update_spec(spec, ports, count);
        for port in &mut target.ports {
            port.closed = memory.closed.iter().any(|name| **name == port.name);
            port.before = memory.before.get(interface(port)).cloned();
        }
        let listed: BTreeSet<&str> = target.ports.iter().map(interface).collect();
        let leaving = memory.leaving.iter().filter(|name| !listed.contains(&***name));
        let leaving = leaving.map(|name| {
            (name.to_string(), LeavingPort { since: count, before: memory.before.get(name).cloned() })
        });
        target.leaving = leaving.collect();
        target
    }

    /// Sets how often the driver audits the device. What is wanted and confirmed stays. Returns true on a change.
    pub fn set_audit_interval(&mut self, interval: Option<NonZeroU32>) -> bool {
        let changed = std::mem::replace(&mut self.access.audit_interval, interval) != interval;
        self.rendering.switch_changed |= changed;
        changed
    }

    /// Applies a changed spec. All networks have to call [`Self::want`] again. What was observed is kept by port
    /// name. Port memory is kept for the same interface of the same device. Returns true when the command of the
    /// target changes.
    pub fn update_spec(&mut self, spec: &DeviceSpec, ports: &[Name], count: u64) -> bool {
        // Another address may mean another device.
        let same = self.access.address == spec.device.address && self.driver == spec.driver;
        let before = if same { self.before() } else { BTreeMap::new() };
        let new: Vec<FabricPort> = ports
            .iter()
            .map(|name| {
                let listed = spec.ports.iter().find(|port| port.name == *name);
                let lag = listed.and_then(|port| port.lag.as_deref());
                let own = lag.unwrap_or(name);
                let mut was = self.ports.iter().filter(|port| same && interface(port) == own);
                FabricPort {
                    name: name.to_string(),
                    lag: lag.map(str::to_owned),
                    mode: listed.map(|port| port.mode).unwrap_or_default(),
                    vlans: VlanSet::EMPTY,
                    closed: was.any(|was| was.closed),
                    before: before.get(own).cloned(),
                }
            })
            .collect();
        if new == self.ports && self.access == spec.device && self.driver == spec.driver {
            return false;
        }
        if let Some(observed) = &mut self.applied {
            let names = self.ports.iter().map(|port| port.name.clone());
            observed.others.extend(names.zip(std::mem::take(&mut observed.ports)));
            observed.ports =
                new.iter().map(|port| observed.others.remove(&port.name).unwrap_or_default()).collect();
        }
        if self.access != spec.device || self.driver != spec.driver {
            self.failure = None;
        }
        let moves = |old: u16| {
            let name = &self.ports.get(usize::from(old))?.name;
            new.iter().position(|port| port.name == *name).and_then(|index| u16::try_from(index).ok())
        };
        self.changes.remap_ports(moves);
        self.changes.set_count(count);
        for (vid, owners) in std::mem::take(&mut self.wanted) {
            for (network, Place { ports, routed }) in owners {
                let ports: BTreeSet<u16> = ports.iter().filter_map(|port| moves(*port)).collect();
                let before = Place { ports: ports.into_iter().collect(), routed };
                self.changes.record_change(vid, &network, before);
            }
            self.changes.update_moved(vid, None);
        }
        if !same || has_other_lags(&self.ports, &new) {
            self.valid_since = count;
        }
        let listed: BTreeSet<&str> = new.iter().map(interface).collect();
        let left =
            |name: &str| (name.to_owned(), LeavingPort { since: count, before: before.get(name).cloned() });
        let former = self.ports.iter().map(|port| left(interface(port)));
        let former = former.chain(std::mem::take(&mut self.leaving)).filter(|_| same);
        self.leaving = former.filter(|(name, _)| !listed.contains(&**name)).collect();
        (self.ports, self.access, self.driver) = (new, spec.device.clone(), spec.driver.clone());
        self.rendering = Rendering::default();
        self.settled = false;
        true
    }

    /// Sets where `network` wants `vid`, as of `count`; an empty place withdraws it. Returns true on a change.
    pub fn want(&mut self, vid: VlanId, network: &Key, place: &Place, count: u64) -> bool {
        let owners = self.wanted.entry(vid).or_default();
        let before =
            if place.is_empty() { owners.remove(network) } else { owners.insert(network, place.clone()) };
        if owners.is_empty() {
            self.wanted.remove(&vid);
        }
        let before = before.unwrap_or_default();
        if before == *place {
            return false;
        }
        self.settled = false;
        self.rendering.changed.insert(vid);
        self.changes.set_count(count);
        self.changes.record_change(vid, network, before);
        self.changes.update_moved(vid, self.wanted.get(&vid));
        true
    }

    /// Registers the current desired state as issued at the start, since a report on it may already be there.
    pub fn begin(&mut self, config: &Config, blocks: &SharedBlocks, count: u64) {
        self.refresh(config, blocks);
        let hash = self.render(config, blocks, &VlanSet::EMPTY).tree().root().to_string();
        self.changes.record_issued(&hash, count, VlanSet::EMPTY);
    }

    /// The same under the hash of a former leader's command, if that has this state. An earlier version made its hashes
    /// in another way.
    pub fn begin_with_hash(&mut self, former: &FabricDesired, hash: &str, count: u64) {
        if self.rendering.is_of(former) {
            self.changes.record_issued(hash, count, VlanSet::EMPTY);
        }
    }

    /// Records that the state with this hash is issued: [`Self::render`] with all changes up to `count` except those
    /// of the VLANs `without`. Returns the networks that are confirmed by it at once: a state that the device has
    /// already reported gets no new report. `None`: the next report confirms it.
    pub fn record_issued(&mut self, hash: &str, count: u64, without: VlanSet) -> Option<BTreeSet<Key>> {
        self.changes.record_issued(hash, count, without);
        let previous = self.commanded_hash.replace(hash.to_owned());
        let is_reported = previous.as_deref() == Some(hash) && self.reported_hash == previous;
        let extent = self.changes.extent(hash).filter(|_| is_reported)?;
        let mut settled = BTreeSet::new();
        let touched = self.mark_known();
        self.add_owners_of(&touched, &mut settled);
        settled.extend(self.confirm(&extent).0);
        Some(settled)
    }

    /// Notes that the device has a state of this process; returns the VLANs for which that is news.
    fn mark_known(&mut self) -> VlanSet {
        if std::mem::replace(&mut self.known, true) {
            return VlanSet::EMPTY;
        }
        self.changes.set_unverified(VlanSet::EMPTY, &self.wanted);
        self.wanted.keys().copied().collect()
    }

    /// Notes that the device has confirmed a state.
    fn confirm(&mut self, extent: &Extent) -> (BTreeSet<Key>, BTreeSet<(Key, VlanId)>) {
        self.settled = self.changes.is_complete(extent);
        let routed = || self.wanted.values().filter_map(Owners::routed);
        let is_used = |name: &str| routed().any(|routed| routed.vrf == name);
        let is_refused = |name: &str| self.rejected.iter().any(|one| vrfs::is_of_vrf(one, name));
        self.vrfs.confirm(extent, &self.rejected, |name| is_used(name) || is_refused(name));
        self.changes.confirm(extent, &self.wanted)
    }

    /// True when configuration of ours was changed on the device and is not repaired ([`Drift::Report`]).
    pub fn leaves_drift(&self) -> bool {
        self.access.drift == Drift::Report
            && self.notes.iter().any(|note| note.kind == ConditionType::Drift.as_ref())
    }

    /// The endpoint of the device.
    pub fn access(&self) -> &Device {
        &self.access
    }

    /// True when the last issued state leaves out changes that other switches have to decide first.
    pub fn is_partial(&self) -> bool {
        self.changes.is_partial()
    }

    /// The trunks of ours that have a VLAN list, or whose list somebody emptied.
    pub fn closed(&self) -> impl Iterator<Item = &str> {
        self.ports.iter().filter(|port| port.closed).map(|port| port.name.as_str())
    }

    /// The networks whose issued change a report rejects, each with the rejection. `None`: the network has changed
    /// again since.
    pub fn rejected_networks<'a>(&self, report: &'a Report) -> BTreeMap<Key, Option<&'a Rejection>> {
        let mut refused = BTreeMap::new();
        let Some(extent) = self.changes.extent(&report.generation.hash) else { return refused };
        for rejection in &report.rejected {
            let item = &rejection.item;
            let vids = match item.vlan {
                Some(vid) => vec![vid],
                None => self.changes.open_vlans().collect(),
            };
            for vid in vids {
                for (network, ports, since) in self.changes.changed_by(&extent, vid, self.wanted.get(&vid)) {
                    let name =
                        |index: &u16| self.ports.get(usize::from(*index)).map_or("", |port| &port.name);
                    if ports.iter().any(|index| item.covers(vid, name(index))) {
                        refused.entry(network.clone()).or_insert((!since).then_some(rejection));
                    }
                }
            }
        }
        refused
    }

    /// The names of the ports on which `network` was last confirmed to have `vid`.
    pub fn confirmed(&self, vid: VlanId, network: &Key) -> Vec<Name> {
        let place = self.confirmed_place(vid, network);
        let name = |index: &u16| Some(self.ports.get(usize::from(*index))?.name.as_str().into());
        place.into_iter().flat_map(|place| &*place.ports).filter_map(name).collect()
    }

    /// How `network` was last confirmed to lead `vid` into a VRF.
    pub fn confirmed_routed(&self, vid: VlanId, network: &Key) -> Option<Arc<RoutedInterface>> {
        self.confirmed_place(vid, network)?.routed.clone()
    }

    fn confirmed_place(&self, vid: VlanId, network: &Key) -> Option<&Place> {
        let wanted = || self.wanted.get(&vid)?.get(network);
        self.changes.confirmed(vid, network).or_else(wanted)
    }

    /// The networks with a change of this VLAN that is not confirmed yet.
    pub fn open_networks(&self, vid: VlanId) -> impl Iterator<Item = &Key> {
        self.changes.open_networks(vid)
    }

    /// The VLANs for which the network has an unconfirmed change.
    pub fn open_vlans_of(&self, network: &Key) -> impl Iterator<Item = VlanId> {
        self.changes.open_vlans_of(network)
    }

    /// Other switches confirmed what the network wanted at `count`: a withheld network keeps this placement.
    pub fn adopt_confirmed(&mut self, vid: VlanId, network: &Key, count: u64) {
        self.changes.adopt_confirmed(vid, network, count, self.wanted.get(&vid));
    }

    /// The VLANs whose wanted placement differs, or may differ, from the confirmed one.
    pub fn moved(&self) -> &VlanSet {
        self.changes.moved()
    }

    /// True when the device can roll back an unconfirmed change.
    pub fn can_hold(&self) -> bool {
        let rollback = self.info.as_ref().and_then(|info| info.rollback);
        matches!(rollback, Some(Rollback::Persistent | Rollback::Session))
    }

    /// The number of VLANs, of VLANs on ports, of VRFs and of routed interfaces that differ from the desired state.
    pub fn pending_count(&self) -> u32 {
        let nothing = Observed::default();
        let observed = self.applied.as_ref().unwrap_or(&nothing);
        let open: VlanSet = self.changes.open_vlans().collect();
        let in_vlans = if open.is_empty() { 0 } else { self.pending_in_vlans(&open, observed) };
        u32::try_from(in_vlans + self.vrfs.pending_count(&observed.vrfs)).unwrap_or(u32::MAX)
    }

    /// The part of [`Self::pending_count`] that is of these VLANs.
    fn pending_in_vlans(&self, open: &VlanSet, observed: &Observed) -> usize {
        let wanted = || open.iter().filter_map(|vid| Some((vid, self.wanted.get(&vid)?)));
        let wanted_at_all = wanted().map(|(vid, _)| vid).collect();
        let differ =
            |wanted: &VlanSet, found: &VlanSet| wanted.symmetric_difference(&found.intersection(open)).len();
        let on_ports = self
            .carried(wanted())
            .into_iter()
            .enumerate()
            .map(|(index, wanted)| differ(&wanted, observed.ports.get(index).unwrap_or(&VlanSet::EMPTY)));
        let led_elsewhere = open.iter().filter(|vid| self.is_led_elsewhere(*vid, observed)).count();
        differ(&wanted_at_all, &observed.vlans) + on_ports.sum::<usize>() + led_elsewhere
    }

    /// True when a VLAN is not led into a VRF as it is wanted.
    fn is_led_elsewhere(&self, vid: VlanId, observed: &Observed) -> bool {
        let owners = self.wanted.get(&vid);
        let wanted = owners.and_then(Owners::routed);
        let is_there = observed.routed.contains(vid);
        wanted.is_some() != is_there
            || (is_there && self.changes.confirmed_owners(vid, owners).routed() != wanted)
    }

    /// The ports that the last report confirmed with `vid`. `None`: it confirmed none.
    fn confirmed_on(&self, vid: VlanId) -> Option<impl Fn(u16) -> bool> {
        let observed = self
            .applied
            .as_ref()
            .filter(|observed| self.known && observed.vlans.contains(vid) && !self.changes.is_open(vid))?;
        Some(move |index| observed.ports.get(usize::from(index)).is_some_and(|vlans| vlans.contains(vid)))
    }

    /// True while the state of a VLAN on a port is either that it is confirmed, or that a report is awaited.
    pub fn is_plain(&self) -> bool {
        self.rejected.is_empty() && self.failure.is_none() && !self.leaves_drift()
    }

    /// The first of the ports `indices` in each state that `vid` has there, in order. `None`: states may differ in more
    /// than whether they are confirmed.
    pub fn states(&self, vid: VlanId, indices: &[u16]) -> Option<[Option<u16>; 2]> {
        if !self.rejected.is_empty() {
            return None;
        }
        let (first, rest) = indices.split_first()?;
        let is_confirmed = self.confirmed_on(vid);
        let other = is_confirmed.and_then(|is_confirmed| {
            let of_first = is_confirmed(*first);
            rest.iter().copied().find(|index| is_confirmed(*index) != of_first)
        });
        Some([Some(*first), other])
    }

    /// The state of `vid` on the port with this index.
    pub fn hop(&self, vid: VlanId, index: u16) -> HopState<'_> {
        let port = self.ports.get(usize::from(index)).map_or("", |port| &port.name);
        let is_confirmed = self.confirmed_on(vid).is_some_and(|is_confirmed| is_confirmed(index));
        let rejections = self.rejected.iter().filter(|rejection| rejection.item.covers(vid, port));
        HopState::of_report(rejections, is_confirmed, self.failure.as_ref())
            .waiting_for(|| if self.leaves_drift() { Wait::Drift } else { Wait::Report })
    }

    /// The VLAN whose state on each port is the worst, by the index of the port. `only`: this VLAN. Ports without a VLAN are
    /// left out.
    pub fn worst_on_ports(&self, only: Option<VlanId>) -> Vec<(u16, VlanId)> {
        let wanted = self.wanted.iter().filter(|(vid, _)| only.is_none_or(|only| only == **vid));
        let carried = self.carried(wanted.map(|(vid, owners)| (*vid, owners)));
        let open: VlanSet = self.changes.open_vlans().collect();
        let worst = (0..).zip(carried).filter_map(|(index, vlans)| {
            let there = self.applied.as_ref().filter(|_| self.known).map_or(VlanSet::EMPTY, |observed| {
                let there = observed.ports.get(usize::from(index)).unwrap_or(&VlanSet::EMPTY);
                there.intersection(&observed.vlans).difference(&open)
            });
            let unconfirmed = vlans.difference(&there).iter().next();
            // Without a rejection, all VLANs that are not confirmed have one state, and so have the others.
            let vid = match unconfirmed.or_else(|| vlans.iter().next()) {
                found if self.rejected.is_empty() => found,
                _ => vlans.iter().min_by_key(|vid| self.hop(*vid, index).severity()),
            };
            Some((index, vid?))
        });
        worst.collect()
    }

    /// The state of the device as a whole. A failure is its own, so it says whether a retry may help.
    pub fn own_hop(&self) -> HopState<'_> {
        match &self.failure {
            Some(Failure { reason, retryable, unreachable: false }) => {
                HopState::Refused { reason, retryable: *retryable }
            }
            Some(failure) => HopState::Unreachable { reason: &failure.reason, was_confirmed: false },
            None if self.known => HopState::Confirmed,
            None => HopState::Waiting(Wait::Report),
        }
    }

    /// True when no removed VLAN of `network` is left on the device. A network that was removed before this process
    /// started counts as gone once the device has reported on a state of this process.
    pub fn is_gone(&self, network: &Key) -> bool {
        self.known
            && !self.changes.has_open(network)
            && self.blocked_removals.iter().all(|(owner, _)| owner != network)
    }

    /// True when the device has confirmed that it carries nothing of ours.
    pub fn is_empty(&self) -> bool {
        self.settled
            && self.applied.as_ref().is_some_and(|observed| {
                observed.vlans.is_empty()
                    && observed.vrfs.is_empty()
                    && observed.ports.iter().all(VlanSet::is_empty)
            })
    }

    /// True once the device has reported on a state of this process.
    pub fn is_known(&self) -> bool {
        self.known
    }

    /// The networks with VLANs on this switch.
    pub fn networks(&self) -> BTreeSet<Key> {
        self.wanted.values().flat_map(Owners::networks).cloned().collect()
    }
}

/// The interface that a port stands for: its LAG, or itself.
fn interface(port: &FabricPort) -> &str {
    port.lag.as_deref().unwrap_or(&port.name)
}

/// The name of a leaving interface in commands and reports. A port of its own name may be listed, when that port is
/// in a LAG now.
fn leaving_name(interface: &str) -> String {
    format!("{interface} (leaving)")
}

/// True when a port of the same name stands for another interface than `before`.
fn has_other_lags(before: &[FabricPort], now: &[FabricPort]) -> bool {
    let other = |port: &FabricPort| before.iter().any(|old| old.name == port.name && old.lag != port.lag);
    now.iter().any(other)
}
