//! One switch as a target: its desired state, and what it has confirmed.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::num::NonZeroU32;

use eno_schemas::{
    Applied, ChangeOutcome, Desired, Device, DeviceInfo, Drift, FabricDesired, FabricPort, FabricVlan,
    Failure, Item, Note, Outcome, PortBefore, PortMode, Rejection, Report, Rollback, VlanId, VlanSet,
};

use crate::event::Config;
use crate::fabric::changes::{Changes, Extent, Owners};
use crate::fabric::topology::Indices;
use crate::spec::DeviceSpec;
use crate::status::{LastTransaction, PortMemory};
use crate::{ConditionReason, ConditionState, ConditionType, Key, Name};

/// Maximum bytes of notes of one kind that a condition shows.
const MAX_NOTE_BYTES: usize = 4000;

/// The kinds of a driver's notes that are conditions of the device, by the name of the condition.
const NOTED_CONDITIONS: [ConditionType; 6] = [
    ConditionType::ClusterIdClash,
    ConditionType::Drift,
    ConditionType::NoConfirmedCommit,
    ConditionType::OpenTrunk,
    ConditionType::StartupNotSaved,
    ConditionType::VlanTakenOff,
];

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

/// VLANs of ours that the driver read back.
#[derive(Debug, Default)]
struct Observed {
    /// The VLANs that exist on the device.
    vlans: VlanSet,
    /// The VLANs of each port, by index.
    ports: Vec<VlanSet>,
    /// By name: ports that are not listed. They may be listed again before anything is commanded.
    others: BTreeMap<String, VlanSet>,
}

impl Observed {
    /// The ports that carry a VLAN.
    fn carriers(&self, vid: VlanId) -> Indices {
        (0u16..).zip(&self.ports).filter(|(_, carried)| carried.contains(vid)).map(|(i, _)| i).collect()
    }
}

/// An interface that left the spec.
#[derive(Clone, Debug)]
struct LeavingPort {
    /// The change count at which it left.
    since: u64,
    /// Its configuration before its first VLAN of ours.
    before: Option<PortBefore>,
}

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

/// The state of one hop of a path, such as one VLAN on one port.
#[derive(Debug, PartialEq, Eq)]
pub enum HopState<'a> {
    /// Confirmed: read back from the target.
    Confirmed,
    /// Not confirmed yet.
    Waiting,
    /// The device or its driver refused it.
    Refused {
        /// The message of the driver.
        reason: &'a str,
        /// The same request may succeed later.
        retryable: bool,
    },
    /// The device does not answer.
    Unreachable(&'a str),
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
        std::mem::replace(&mut self.access.audit_interval, interval) != interval
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
            for (network, ports) in owners {
                let ports: BTreeSet<u16> = ports.iter().filter_map(|port| moves(*port)).collect();
                self.changes.record_change(vid, &network, ports.into_iter().collect());
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
        self.settled = false;
        true
    }

    /// Sets the ports on which `network` wants `vid`, as of `count`; an empty list withdraws it. Returns true on a
    /// change.
    pub fn want(&mut self, vid: VlanId, network: &Key, ports: &Indices, count: u64) -> bool {
        let owners = self.wanted.entry(vid).or_default();
        let before =
            if ports.is_empty() { owners.remove(network) } else { owners.insert(network, ports.clone()) };
        if owners.is_empty() {
            self.wanted.remove(&vid);
        }
        let before = before.unwrap_or_default();
        if before == *ports {
            return false;
        }
        self.settled = false;
        self.changes.set_count(count);
        self.changes.record_change(vid, network, before);
        self.changes.update_moved(vid, self.wanted.get(&vid));
        true
    }

    /// Registers the current desired state as issued at the start, since a report on it may already be there.
    pub fn begin(&mut self, config: &Config, count: u64) {
        let hash = self.render(config, &VlanSet::EMPTY).hash();
        self.changes.record_issued(&hash, count, VlanSet::EMPTY);
    }

    /// The complete desired state, except that the VLANs `without` are as last confirmed.
    pub fn render(&self, config: &Config, without: &VlanSet) -> Desired {
        let mut ports = self.ports.clone();
        let mut vlans = Vec::new();
        // Networks with the same endpoints share one list of ports.
        let mut carried: HashMap<*const u16, (Indices, VlanSet)> = HashMap::new();
        let mut put = |vid: VlanId, owners: &Owners| {
            vlans.push(FabricVlan { vid, owners: owners.networks().map(ToString::to_string).collect() });
            for indices in owners.ports() {
                let alike = carried.entry(indices.as_ptr());
                alike.or_insert_with(|| (indices.clone(), VlanSet::EMPTY)).1.insert(vid);
            }
        };
        for (vid, owners) in self.wanted.iter().filter(|(vid, _)| !without.contains(**vid)) {
            put(*vid, owners);
        }
        for vid in without.iter() {
            let former = self.changes.confirmed_owners(vid, self.wanted.get(&vid));
            if !former.is_empty() {
                put(vid, &former);
            }
        }
        vlans.sort_unstable_by_key(|vlan| vlan.vid);
        for (indices, vids) in carried.values() {
            for index in indices.iter() {
                let carries = &mut ports[usize::from(*index)].vlans;
                *carries = carries.union(vids);
            }
        }
        ports.extend(self.leaving.iter().map(|(interface, leaving)| FabricPort {
            name: leaving_name(interface),
            lag: Some(interface.clone()),
            mode: PortMode::Keep,
            vlans: VlanSet::EMPTY,
            closed: false,
            before: leaving.before.clone(),
        }));
        ports.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        Desired::Fabric(FabricDesired {
            cluster: config.cluster.clone(),
            cluster_uid: config.cluster_uid.clone(),
            device: self.access.clone(),
            vlans,
            ports,
        })
    }

    /// Records that the state with this hash is issued: [`Self::render`] with all changes up to `count` except those
    /// of the VLANs `without`. Returns the networks that are confirmed by it at once: a state that the device has
    /// already reported gets no new report.
    pub fn record_issued(&mut self, hash: &str, count: u64, without: VlanSet) -> BTreeSet<Key> {
        self.changes.record_issued(hash, count, without);
        let mut settled = BTreeSet::new();
        let previous = self.commanded_hash.replace(hash.to_owned());
        if previous.as_deref() == Some(hash)
            && self.reported_hash == previous
            && let Some(extent) = self.changes.extent(hash)
        {
            let touched = self.mark_known();
            self.add_owners_of(&touched, &mut settled);
            settled.extend(self.confirm(&extent).0);
        }
        settled
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
        self.changes.confirm(extent, &self.wanted)
    }

    /// Restores the last command of a former leader. It counts as confirmed until a report shows otherwise. Returns
    /// the networks in it with their VLANs.
    pub fn restore_command(&mut self, former: &FabricDesired) -> BTreeSet<(Key, VlanId)> {
        let mut had = BTreeSet::new();
        self.restored_command = Some(Desired::Fabric(former.clone()).hash());
        self.restored_elsewhere =
            former.device.address != self.access.address || has_other_lags(&former.ports, &self.ports);
        self.commanded_hash.clone_from(&self.restored_command);
        for FabricVlan { vid, owners } in &former.vlans {
            let carries = |port: &FabricPort| {
                former.ports.iter().any(|before| before.name == port.name && before.vlans.contains(*vid))
            };
            let ports: Indices =
                (0u16..).zip(&self.ports).filter(|(_, port)| carries(port)).map(|(index, _)| index).collect();
            for network in owners.iter().filter_map(|owner| Key::of_network(owner)) {
                self.changes.assume_confirmed(*vid, &network, ports.clone());
                had.insert((network, *vid));
            }
        }
        self.changes.set_unverified(former.vlans.iter().map(|vlan| vlan.vid).collect(), &self.wanted);
        had
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
        self.changes.assume_confirmed(vid, network, indices.collect());
        self.changes.update_moved(vid, self.wanted.get(&vid));
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
        self.leaving.len() < before
    }

    /// Drops all leaving interfaces, on request of the admin. Returns true if there were any.
    pub fn forget_leaving(&mut self, count: u64) -> bool {
        let some = !std::mem::take(&mut self.leaving).is_empty();
        if some {
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
    fn before(&self) -> BTreeMap<String, PortBefore> {
        let ports = self.ports.iter().map(|port| (interface(port), &port.before));
        let leaving = self.leaving.iter().map(|(interface, leaving)| (interface.as_str(), &leaving.before));
        let all = leaving.chain(ports);
        all.filter_map(|(interface, before)| Some((interface.to_owned(), before.clone()?))).collect()
    }

    /// The trunks of ours that have a VLAN list, or whose list somebody emptied.
    pub fn closed(&self) -> impl Iterator<Item = &str> {
        self.ports.iter().filter(|port| port.closed).map(|port| port.name.as_str())
    }

    /// Stores what was read back. `was`: it is the state before this process issued a command. Returns the VLANs that
    /// differ from the last report.
    fn observe(&mut self, applied: Option<Applied>, was: bool) -> VlanSet {
        let mut touched = VlanSet::EMPTY;
        let Some(Applied::Fabric { vlans, ports: mut others, .. }) = applied else { return touched };
        let ports = self.ports.iter().map(|port| others.remove(&port.name).unwrap_or_default()).collect();
        let observed = Observed { vlans, ports, others };
        let before = self.applied.take().unwrap_or_default();
        for (i, now) in observed.ports.iter().enumerate() {
            let was = before.ports.get(i).unwrap_or(&VlanSet::EMPTY);
            touched = touched.union(&was.difference(now)).union(&now.difference(was));
        }
        touched = touched
            .union(&before.vlans.difference(&observed.vlans))
            .union(&observed.vlans.difference(&before.vlans));
        if was {
            self.changes.set_unverified(VlanSet::EMPTY, &self.wanted);
            self.changes.set_observed(&self.wanted, |vid| observed.carriers(vid));
        } else if !self.known {
            let vids: VlanSet = self.changes.open_vlans().collect();
            let elsewhere = |vid: &VlanId| {
                let former = self.changes.confirmed_owners(*vid, self.wanted.get(vid));
                let former: BTreeSet<u16> = former.indices().collect();
                former != observed.carriers(*vid).iter().copied().collect()
            };
            let unverified = vids.union(&observed.vlans).iter().filter(elsewhere).collect();
            self.changes.set_unverified(unverified, &self.wanted);
        }
        self.applied = Some(observed);
        touched
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

    /// The driver's message about another cluster with our cluster ID. While there is one, it removes nothing from
    /// the switch.
    pub fn clash(&self) -> Option<&str> {
        self.notes
            .iter()
            .find(|note| note.kind == ConditionType::ClusterIdClash.as_ref())
            .map(|note| note.message.as_str())
    }

    /// Adds the networks that want these VLANs or have an open change of them.
    fn add_owners_of(&self, vlans: &VlanSet, networks: &mut BTreeSet<Key>) {
        for vid in vlans.iter() {
            networks.extend(self.wanted.get(&vid).into_iter().flat_map(Owners::networks).cloned());
            networks.extend(self.changes.open_networks(vid).cloned());
        }
    }

    /// True when the report is a later one on a command that was answered before.
    pub fn is_spontaneous(&self, report: &Report) -> bool {
        report.outcome == Outcome::Applied
            && self.last_answered == Some((report.generation.term, report.generation.sequence))
    }

    /// The networks whose issued change a report rejects, each with the device's message and whether a retry may
    /// help. `None`: the network has changed again since.
    pub fn rejected_networks(&self, report: &Report) -> BTreeMap<Key, Option<(String, bool)>> {
        let mut refused = BTreeMap::new();
        let Some(extent) = self.changes.extent(&report.generation.hash) else { return refused };
        for Rejection { item, reason, retryable, .. } in &report.rejected {
            let vids = match item.vlan {
                Some(vid) => vec![vid],
                None => self.changes.open_vlans().collect(),
            };
            for vid in vids {
                for (network, ports, since) in self.changes.changed_by(&extent, vid, self.wanted.get(&vid)) {
                    let name =
                        |index: &u16| self.ports.get(usize::from(*index)).map_or("", |port| &port.name);
                    if ports.iter().any(|index| item.covers(vid, name(index))) {
                        let message = || (!since).then(|| (format!("{item}: {reason}"), *retryable));
                        refused.entry(network.clone()).or_insert_with(message);
                    }
                }
            }
        }
        refused
    }

    /// The names of the ports on which `network` was last confirmed to have `vid`.
    pub fn confirmed(&self, vid: VlanId, network: &Key) -> Vec<Name> {
        let wanted = || self.wanted.get(&vid)?.get(network);
        let ports = self.changes.confirmed(vid, network).or_else(wanted);
        let name = |index: &u16| Some(self.ports.get(usize::from(*index))?.name.as_str().into());
        ports.into_iter().flat_map(|ports| &**ports).filter_map(name).collect()
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

    /// The number of VLANs, and of VLANs on ports, that differ from the desired state.
    pub fn pending_count(&self) -> u32 {
        let mut count = 0;
        for vid in self.changes.open_vlans() {
            let owners = self.wanted.get(&vid);
            let there = self.applied.as_ref().is_some_and(|observed| observed.vlans.contains(vid));
            count += u32::from(owners.is_some() != there);
            let wanted: BTreeSet<u16> = owners.into_iter().flat_map(Owners::indices).collect();
            let found = self.applied.as_ref().map(|observed| observed.carriers(vid)).unwrap_or_default();
            let found = found.iter().copied().collect();
            count += u32::try_from(wanted.symmetric_difference(&found).count()).unwrap_or(u32::MAX);
        }
        count
    }

    /// The state of `vid` on the port with this index.
    pub fn hop(&self, vid: VlanId, index: u16) -> HopState<'_> {
        let index = usize::from(index);
        let port = self.ports.get(index).map_or("", |port| &port.name);
        if let Some(rejection) = self.rejected.iter().find(|rejection| rejection.item.covers(vid, port)) {
            return HopState::Refused { reason: &rejection.reason, retryable: rejection.retryable };
        }
        let there = self.applied.as_ref().is_some_and(|observed| {
            observed.vlans.contains(vid) && observed.ports.get(index).is_some_and(|v| v.contains(vid))
        });
        if there && self.known && !self.changes.is_open(vid) {
            return HopState::Confirmed;
        }
        match &self.failure {
            Some(failure) if failure.unreachable => HopState::Unreachable(&failure.reason),
            // The failure is of the device, not of this VLAN.
            Some(failure) => HopState::Refused { reason: &failure.reason, retryable: true },
            None => HopState::Waiting,
        }
    }

    /// True when `vid` is waiting on every port for the device to report, without a rejection, failure or drift.
    pub fn only_waits(&self, vid: VlanId) -> bool {
        let open = !self.known || self.changes.is_open(vid);
        open && self.rejected.is_empty() && self.failure.is_none() && !self.leaves_drift()
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
                observed.vlans.is_empty() && observed.ports.iter().all(VlanSet::is_empty)
            })
    }

    /// The conditions of the device.
    pub fn conditions(&self) -> Vec<ConditionState> {
        let mut conditions = Vec::new();
        if self.last_answered.is_some() {
            conditions.push(match self.failure.as_ref().filter(|failure| failure.unreachable) {
                Some(failure) => ConditionState::new(
                    ConditionType::Reachable,
                    false,
                    ConditionReason::Unreachable,
                    failure.reason.clone(),
                ),
                None => ConditionState::new(
                    ConditionType::Reachable,
                    true,
                    ConditionReason::Answers,
                    String::new(),
                ),
            });
        }
        if let Some(rollback) = self.info.as_ref().and_then(|info| info.rollback) {
            conditions.push(rollback_condition(rollback));
        }
        if self.held {
            let message = "its change is held until every switch of the transaction has verified its own";
            conditions.push(ConditionState::new(
                ConditionType::Held,
                true,
                ConditionReason::Transaction,
                message,
            ));
        }
        for kind in NOTED_CONDITIONS {
            let notes: Vec<&str> = self
                .notes
                .iter()
                .filter(|note| note.kind == kind.as_ref())
                .map(|note| note.message.as_str())
                .collect();
            if !notes.is_empty() {
                let repaired = self.repaired.as_ref().filter(|_| kind == ConditionType::Drift);
                let when = repaired.map(|at| format!("; put right at {at}")).unwrap_or_default();
                let message = listed(&notes) + &when;
                conditions.push(ConditionState::new(kind, true, ConditionReason::ReportedByDriver, message));
            } else if kind == ConditionType::Drift && self.known {
                conditions.push(ConditionState::new(kind, false, ConditionReason::AsWanted, ""));
            }
        }
        conditions
    }

    /// The rejections that concern the device as a whole.
    pub fn refusals(&self) -> impl Iterator<Item = &Rejection> {
        self.rejected
            .iter()
            .filter(|rejection| rejection.item == Item::TARGET || rejection.item.vlan.is_none())
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

fn rollback_condition(rollback: Rollback) -> ConditionState {
    match rollback {
        Rollback::Persistent => {
            let message = "the device takes a change back by itself unless it is confirmed in time; changes that \
                           touch several devices are confirmed on all or taken back on all";
            ConditionState::new(ConditionType::CanRollBack, true, ConditionReason::Persistent, message)
        }
        Rollback::Session => {
            let message = "the device takes a change back by itself when the session ends or it is not confirmed in \
                           time; changes that touch several devices are confirmed on all or taken back on all";
            ConditionState::new(ConditionType::CanRollBack, true, ConditionReason::Session, message)
        }
        Rollback::None => {
            let message = "what was changed can't be taken back: a change that fails midway is undone or completed \
                           by later ones, and one that touches several devices follows once those that can hold \
                           theirs have confirmed";
            ConditionState::new(ConditionType::CanRollBack, false, ConditionReason::NotSupported, message)
        }
    }
}

/// Joins as many notes as a message has room for ([`MAX_NOTE_BYTES`]).
fn listed(notes: &[&str]) -> String {
    let mut text = String::new();
    for (index, note) in notes.iter().enumerate() {
        if text.len() + note.len() > MAX_NOTE_BYTES && index > 0 {
            text.push_str("; and ");
            text.push_str(&(notes.len() - index).to_string());
            text.push_str(" more");
            break;
        }
        if index > 0 {
            text.push_str("; ");
        }
        text.push_str(note.get(..note.floor_char_boundary(MAX_NOTE_BYTES)).unwrap_or_default());
    }
    text
}
