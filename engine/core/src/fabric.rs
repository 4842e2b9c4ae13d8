//! One switch as a target: what is wanted on it and what it has confirmed.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::num::NonZeroU32;

use eno_schemas::{
    Applied, Desired, Device, DeviceInfo, Drift, FabricDesired, FabricPort, FabricVlan, Failure, Item, Note,
    Outcome, PortBefore, PortMode, Rejection, Report, Rollback, VLAN_TAKEN_OFF, VlanId, VlanSet,
};

use crate::changes::{Changes, Extent, Owners};
use crate::event::Config;
use crate::spec::DeviceSpec;
use crate::status::{ChangeOutcome, LastTransaction, PortMemory};
use crate::topology::Indices;
use crate::{Key, Name};

/// So many bytes of notes of one kind are shown.
const MAX_NOTE_BYTES: usize = 4000;

/// The kind of a driver's notes that another cluster uses our cluster ID: then it takes nothing off the switch.
const CLUSTER_ID_CLASH: &str = "ClusterIDClash";

/// The state of one switch.
#[allow(clippy::struct_excessive_bools, reason = "facts of a switch, independent of each other")]
#[derive(Debug)]
pub struct DeviceTarget {
    /// Who configures it.
    pub driver: Name,
    access: Device,
    /// Its listed ports, sorted by name; indices point here.
    pub ports: Vec<FabricPort>,
    /// Interfaces that are not listed any more and may still carry VLANs of ours.
    leaving: BTreeMap<String, LeavingPort>,
    wanted: BTreeMap<VlanId, Owners>,
    applied: Option<Observed>,
    rejected: Vec<Rejection>,
    /// The last report was a failure.
    pub failure: Option<Failure>,
    /// What the driver noted.
    pub notes: Vec<Note>,
    /// When the differences among these were put right, RFC 3339.
    repaired: Option<String>,
    /// What the device said of itself.
    pub info: Option<DeviceInfo>,
    /// The last change of the device.
    pub last_transaction: Option<LastTransaction>,
    /// The last report was that a change is held until its transaction is decided.
    pub held: bool,
    /// It had not answered when the deadline of a transaction came, and has done nothing by itself since.
    pub late: bool,
    changes: Changes,
    /// The networks that still have a VLAN where nobody wants it, since of a switch with a clash nothing is taken off.
    blocked_removals: BTreeSet<(Key, VlanId)>,
    /// A report on a state that was handed out, or on the present one, has come since the start.
    known: bool,
    /// The hash of the state that a former process commanded last.
    restored_command: Option<String>,
    /// The hash of the last command, whoever gave it.
    last_hash: Option<String>,
    /// The hash of the state last reported as applied.
    reported_hash: Option<String>,
    /// What was handed out before this count was for another device, or for other interfaces.
    valid_since: u64,
    /// So was what a former process commanded last.
    restored_elsewhere: bool,
    /// Term and sequence of the last generation that was applied or failed.
    last_answered: Option<(u64, u64)>,
    /// The present state is the one reported as applied.
    pub settled: bool,
}

#[derive(Debug, Default)]
struct Observed {
    vlans: VlanSet,
    ports: Vec<VlanSet>,
    /// What was read of ports that are listed no more: they may be again before anything was commanded.
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
    /// At which count of changes.
    since: u64,
    /// What it was like before its first VLAN of ours.
    before: Option<PortBefore>,
}

/// What follows from a report.
#[derive(Debug, Default)]
pub struct ReportEffects {
    /// The networks for which something may have changed.
    pub networks: BTreeSet<Key>,
    /// The networks that the report has confirmed to be elsewhere than before, with their VLANs,
    pub decided: BTreeSet<(Key, VlanId)>,
    /// as they were wanted at this count.
    pub count: u64,
    /// It tells what was there before this process began to command.
    pub found_initial_state: bool,
    /// Other than before is remembered of ports, or fewer are leaving: the next command says so.
    pub port_memory_changed: bool,
}

/// How far one VLAN is on one port.
#[derive(Debug, PartialEq, Eq)]
pub enum HopState<'a> {
    /// Read back.
    Confirmed,
    /// Not yet.
    Waiting,
    /// The device or its driver refused it.
    Refused {
        /// In these words.
        reason: &'a str,
        /// It may pass as it is asked for.
        retryable: bool,
    },
    /// The device does not answer.
    Unreachable(&'a str),
}

impl DeviceTarget {
    /// A switch on which nothing is wanted yet and of which nothing is known but what is remembered of its ports. `ports`
    /// are all of its ports, sorted; those that `spec` doesn't list are the far ends of links. That changes at `count`.
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
            last_hash: None,
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

    /// Takes over how often the driver reads the device. That is nothing to be made: what is wanted and confirmed stays.
    /// True when it is a change.
    pub fn set_audit_interval(&mut self, interval: Option<NonZeroU32>) -> bool {
        std::mem::replace(&mut self.access.audit_interval, interval) != interval
    }

    /// Takes over a changed spec. Everything that was wanted has to be said again; what was confirmed is kept by
    /// port name; what is remembered of a port, where it stands for the same interface of the same device. True when the
    /// target's command changes by it alone.
    pub fn update_spec(&mut self, spec: &DeviceSpec, ports: &[Name], count: u64) -> bool {
        // At another address there may be another device.
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

    /// Says on which ports `network` wants `vid`, since `count`; none withdraws it. True when that is a change.
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

    /// The hash of the state that [`Self::desired`] gave last.
    pub fn last_commanded(&self) -> Option<&str> {
        self.last_hash.as_deref()
    }

    /// This process begins, and says nothing yet: what is wanted may be there already.
    pub fn begin(&mut self, config: &Config, count: u64) {
        let last_commanded = self.last_hash.take();
        self.desired(config, count, VlanSet::EMPTY);
        self.last_hash = last_commanded;
    }

    /// The complete desired state with all changes up to `count`, in which the VLANs `without` are still as they were
    /// confirmed, and the networks for which something is settled by it: a state that the device has already reported
    /// needs no further report.
    pub fn desired(&mut self, config: &Config, count: u64, without: VlanSet) -> (Desired, BTreeSet<Key>) {
        let mut ports = self.ports.clone();
        let mut vlans = Vec::new();
        // Networks with the same ends share the list of their ports.
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
        let desired = Desired::Fabric(FabricDesired {
            cluster: config.cluster.clone(),
            cluster_uid: config.cluster_uid.clone(),
            device: self.access.clone(),
            vlans,
            ports,
        });
        let hash = desired.hash();
        self.changes.record_issued(&hash, count, without);
        let mut settled = BTreeSet::new();
        let previous = self.last_hash.replace(hash.clone());
        if previous.as_ref() == Some(&hash)
            && self.reported_hash == previous
            && let Some(extent) = self.changes.extent(&hash)
        {
            let touched = self.mark_known();
            self.add_owners_of(&touched, &mut settled);
            settled.extend(self.confirm(&extent).0);
        }
        (desired, settled)
    }

    /// A state of ours is there; the VLANs of which that is news.
    fn mark_known(&mut self) -> VlanSet {
        if std::mem::replace(&mut self.known, true) {
            return VlanSet::EMPTY;
        }
        self.changes.set_unverified(VlanSet::EMPTY, &self.wanted);
        self.wanted.keys().copied().collect()
    }

    /// The state that contains so much is there.
    fn confirm(&mut self, extent: &Extent) -> (BTreeSet<Key>, BTreeSet<(Key, VlanId)>) {
        self.settled = self.changes.is_complete(extent);
        self.changes.confirm(extent, &self.wanted)
    }

    /// What a former process commanded last: as far as nothing else is found, that is there. The networks that had
    /// something then, each with its VLAN.
    pub fn restore_command(&mut self, former: &FabricDesired) -> BTreeSet<(Key, VlanId)> {
        let mut had = BTreeSet::new();
        self.restored_command = Some(Desired::Fabric(former.clone()).hash());
        self.restored_elsewhere =
            former.device.address != self.access.address || has_other_lags(&former.ports, &self.ports);
        self.last_hash.clone_from(&self.restored_command);
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

    /// The VLANs of ours that a former process left here and that nothing tells whose they are, since neither its last
    /// command nor what is wanted names them.
    pub fn orphan_vlans(&self, report: &Report) -> VlanSet {
        let Some(Applied::Fabric { vlans, .. }) = &report.applied else { return VlanSet::EMPTY };
        let final_word = !matches!(report.outcome, Outcome::Held | Outcome::Progress { .. });
        if !final_word || !self.describes_initial_state(report) {
            return VlanSet::EMPTY;
        }
        vlans.iter().filter(|vid| !self.changes.is_open(*vid) && !self.wanted.contains_key(vid)).collect()
    }

    /// True when a report tells what was there before this process began to command: it is about the last command of
    /// the former one. What that asked for and has no answer yet was decided, or the decision is still to come.
    fn describes_initial_state(&self, report: &Report) -> bool {
        !self.known && self.restored_command.as_ref().is_none_or(|hash| *hash == report.generation.hash)
    }

    /// A stray VLAN is the network's, on the ports where the report has it.
    pub fn assign_orphan(&mut self, vid: VlanId, network: &Key, report: &Report) {
        let Some(Applied::Fabric { ports, .. }) = &report.applied else { return };
        let carries = |port: &FabricPort| ports.get(&port.name).is_some_and(|vlans| vlans.contains(vid));
        let indices = (0u16..).zip(&self.ports).filter(|(_, port)| carries(port)).map(|(index, _)| index);
        self.changes.assume_confirmed(vid, network, indices.collect());
        self.changes.update_moved(vid, self.wanted.get(&vid));
    }

    /// Another hand changed what is ours, and that is left so ([`Drift::Report`]).
    pub fn leaves_drift(&self) -> bool {
        self.access.drift == Drift::Report && self.notes.iter().any(|note| note.kind == "Drift")
    }

    /// How it is reached.
    pub fn access(&self) -> &Device {
        &self.access
    }

    /// The last state that was handed out leaves out changes that others have to decide on first.
    pub fn is_partial(&self) -> bool {
        self.changes.is_partial()
    }

    /// Takes in what a driver reported.
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

    /// True when the command of this hash was for the present device and its present interfaces.
    fn concerns_current_ports(&self, hash: &str) -> bool {
        match self.changes.extent(hash) {
            Some(extent) => extent.count >= self.valid_since,
            None => self.valid_since == 0 && !self.restored_elsewhere,
        }
    }

    /// Which ports are trunks of ours that have a list, and what ports were like before ours; true when that is news.
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

    /// Drops the leaving interfaces on which a state with the changes up to `count` left none of ours, and which are not
    /// `owed` VLANs of others. True when there are any.
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

    /// The admin gives up what of ours is on interfaces that are leaving. True when there are any.
    pub fn forget_leaving(&mut self, count: u64) -> bool {
        let some = !std::mem::take(&mut self.leaving).is_empty();
        if some {
            self.changes.set_count(count);
        }
        some
    }

    /// What is remembered of its ports.
    pub fn port_memory(&self) -> PortMemory {
        let before = self.before().into_iter().map(|(interface, before)| (interface.as_str().into(), before));
        PortMemory {
            closed: self.closed().map(Name::from).collect(),
            before: before.collect(),
            leaving: self.leaving.keys().map(|interface| interface.as_str().into()).collect(),
        }
    }

    /// What interfaces, listed and leaving, were like before they carried VLANs of ours.
    fn before(&self) -> BTreeMap<String, PortBefore> {
        let ports = self.ports.iter().map(|port| (interface(port), &port.before));
        let leaving = self.leaving.iter().map(|(interface, leaving)| (interface.as_str(), &leaving.before));
        let all = leaving.chain(ports);
        all.filter_map(|(interface, before)| Some((interface.to_owned(), before.clone()?))).collect()
    }

    /// The ports that are trunks of ours and have a list, or had one that somebody emptied.
    pub fn closed(&self) -> impl Iterator<Item = &str> {
        self.ports.iter().filter(|port| port.closed).map(|port| port.name.as_str())
    }

    /// Takes over what was read back, `was`: before this process began to command; the VLANs with which something is
    /// otherwise than before.
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

    /// Takes down which networks still have what they gave up by the confirmed state, since there is a clash; those for
    /// which that is news.
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

    /// What the driver says of another cluster with our cluster ID: then nothing is taken off the switch.
    pub fn clash(&self) -> Option<&str> {
        self.notes.iter().find(|note| note.kind == CLUSTER_ID_CLASH).map(|note| note.message.as_str())
    }

    /// Adds the networks that have to do with these VLANs.
    fn add_owners_of(&self, vlans: &VlanSet, networks: &mut BTreeSet<Key>) {
        for vid in vlans.iter() {
            networks.extend(self.wanted.get(&vid).into_iter().flat_map(Owners::networks).cloned());
            networks.extend(self.changes.open_networks(vid).cloned());
        }
    }

    /// True when the report is not the answer to a command, but what became of one that was answered before.
    pub fn is_spontaneous(&self, report: &Report) -> bool {
        report.outcome == Outcome::Applied
            && self.last_answered == Some((report.generation.term, report.generation.sequence))
    }

    /// The networks that a report refuses though it was their turn to change, each with the device's words and whether
    /// that may pass; `None`: something else is wanted of it since.
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

    /// Where `network` was last confirmed to have `vid`, by the names of the ports.
    pub fn confirmed(&self, vid: VlanId, network: &Key) -> Vec<Name> {
        let wanted = || self.wanted.get(&vid)?.get(network);
        let ports = self.changes.confirmed(vid, network).or_else(wanted);
        let name = |index: &u16| Some(self.ports.get(usize::from(*index))?.name.as_str().into());
        ports.into_iter().flat_map(|ports| &**ports).filter_map(name).collect()
    }

    /// The VLANs with which the network has a change that is not confirmed yet.
    pub fn open_vlans_of(&self, network: &Key) -> impl Iterator<Item = VlanId> {
        self.changes.open_vlans_of(network)
    }

    /// Others have confirmed what was wanted of the network at this count: when it has to stay as it is, then so.
    pub fn adopt_confirmed(&mut self, vid: VlanId, network: &Key, count: u64) {
        self.changes.adopt_confirmed(vid, network, count, self.wanted.get(&vid));
    }

    /// The VLANs that are wanted elsewhere than they were confirmed, and those that may be.
    pub fn moved(&self) -> &VlanSet {
        self.changes.moved()
    }

    /// A change of it can be taken back.
    pub fn can_hold(&self) -> bool {
        let rollback = self.info.as_ref().and_then(|info| info.rollback);
        matches!(rollback, Some(Rollback::Persistent | Rollback::Session))
    }

    /// How many VLANs, and VLANs on ports, are not as they are wanted.
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

    /// How far `vid` is on the port with this index.
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
            // It is the device's, and not this VLAN's.
            Some(failure) => HopState::Refused { reason: &failure.reason, retryable: true },
            None => HopState::Waiting,
        }
    }

    /// True when `vid` waits on every port for the device to report, and nothing else is to be said of it.
    pub fn only_waits(&self, vid: VlanId) -> bool {
        let open = !self.known || self.changes.is_open(vid);
        open && self.rejected.is_empty() && self.failure.is_none() && !self.leaves_drift()
    }

    /// True when nothing that `network` gave up is left on the device. (A network that was given up before this
    /// process began is known to be gone once the device has reported on a state of ours.)
    pub fn is_gone(&self, network: &Key) -> bool {
        self.known
            && !self.changes.has_open(network)
            && self.blocked_removals.iter().all(|(owner, _)| owner != network)
    }

    /// True when the device is verifiably empty of ours.
    pub fn is_empty(&self) -> bool {
        self.settled
            && self.applied.as_ref().is_some_and(|observed| {
                observed.vlans.is_empty() && observed.ports.iter().all(VlanSet::is_empty)
            })
    }

    /// What is known of the device itself, as conditions: type, whether it holds, reason and message.
    pub fn conditions(&self) -> Vec<(&'static str, bool, &'static str, String)> {
        let mut conditions = Vec::new();
        if self.last_answered.is_some() {
            conditions.push(match self.failure.as_ref().filter(|failure| failure.unreachable) {
                Some(failure) => ("Reachable", false, "Unreachable", failure.reason.clone()),
                None => ("Reachable", true, "Answers", String::new()),
            });
        }
        if let Some(rollback) = self.info.as_ref().and_then(|info| info.rollback) {
            conditions.push(rollback_condition(rollback));
        }
        if self.held {
            let message = "its change is held until every switch of the transaction has verified its own";
            conditions.push(("Held", true, "Transaction", message.into()));
        }
        for kind in
            [CLUSTER_ID_CLASH, "Drift", "NoConfirmedCommit", "OpenTrunk", "StartupNotSaved", VLAN_TAKEN_OFF]
        {
            let notes: Vec<&str> = self
                .notes
                .iter()
                .filter(|note| note.kind == kind)
                .map(|note| note.message.as_str())
                .collect();
            if !notes.is_empty() {
                let repaired = self.repaired.as_ref().filter(|_| kind == "Drift");
                let when = repaired.map(|at| format!("; put right at {at}")).unwrap_or_default();
                conditions.push((kind, true, "ReportedByDriver", listed(&notes) + &when));
            } else if kind == "Drift" && self.known {
                conditions.push((kind, false, "AsWanted", String::new()));
            }
        }
        conditions
    }

    /// The rejections of the device as a whole.
    pub fn refusals(&self) -> impl Iterator<Item = &Rejection> {
        self.rejected
            .iter()
            .filter(|rejection| rejection.item == Item::TARGET || rejection.item.vlan.is_none())
    }

    /// True once the device has reported on a state that this process asked for.
    pub fn is_known(&self) -> bool {
        self.known
    }

    /// The networks that want something here.
    pub fn networks(&self) -> BTreeSet<Key> {
        self.wanted.values().flat_map(Owners::networks).cloned().collect()
    }
}

/// The interface that a port stands for.
fn interface(port: &FabricPort) -> &str {
    port.lag.as_deref().unwrap_or(&port.name)
}

/// The name that an interface has in commands and reports while it is leaving: a listed port may have its own, if that
/// is in a LAG now.
fn leaving_name(interface: &str) -> String {
    format!("{interface} (leaving)")
}

/// True when a port stands for another interface than `before`.
fn has_other_lags(before: &[FabricPort], now: &[FabricPort]) -> bool {
    let other = |port: &FabricPort| before.iter().any(|old| old.name == port.name && old.lag != port.lag);
    now.iter().any(other)
}

fn rollback_condition(rollback: Rollback) -> (&'static str, bool, &'static str, String) {
    match rollback {
        Rollback::Persistent => {
            let message = "the device takes a change back by itself unless it is confirmed in time; changes that \
                           touch several devices are confirmed on all or taken back on all";
            ("CanRollBack", true, "Persistent", message.into())
        }
        Rollback::Session => {
            let message = "the device takes a change back by itself when the session ends or it is not confirmed in \
                           time; changes that touch several devices are confirmed on all or taken back on all";
            ("CanRollBack", true, "Session", message.into())
        }
        Rollback::None => {
            let message = "what was changed can't be taken back: a change that fails midway is undone or completed \
                           by later ones, and one that touches several devices follows once those that can hold \
                           theirs have confirmed";
            ("CanRollBack", false, "NotSupported", message.into())
        }
    }
}

/// As many of them as a message has room for.
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
