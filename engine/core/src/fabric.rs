//! One switch as a target: what is wanted on it and what it has confirmed.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use eno_schemas::{
    Applied, Desired, Device, DeviceInfo, FabricDesired, FabricPort, FabricVlan, Failure, Item, Note,
    Outcome, Rejection, Report, VlanId, VlanSet,
};

use crate::spec::DeviceSpec;
use crate::{Key, Name};

/// How many handed out states are remembered: more than can be on their way at once.
const HANDED_OUT: usize = 8;

/// The state of one switch.
#[derive(Debug)]
pub struct DeviceTarget {
    /// Who configures it.
    pub driver: Name,
    access: Device,
    /// Its listed ports, sorted by name; indices point here.
    pub ports: Vec<FabricPort>,
    wanted: BTreeMap<VlanId, BTreeMap<Key, Vec<u16>>>,
    applied: Option<Seen>,
    rejected: Vec<Rejection>,
    /// The last report was a failure.
    pub failure: Option<Failure>,
    /// What the driver noted.
    pub notes: Vec<Note>,
    /// What the device said of itself.
    pub info: Option<DeviceInfo>,
    /// Counts the changes of what is wanted.
    changes: u64,
    /// Hashes of the states handed out, with the count of changes that they contain.
    handed_out: VecDeque<(String, u64)>,
    /// VLANs that changed since the last state that was reported on.
    unsettled: BTreeMap<VlanId, (u64, BTreeSet<Key>)>,
    /// A report on a state that was handed out, or on the present one, has come since the start.
    known: bool,
    /// The hash of the state last reported as applied.
    reported: Option<String>,
    /// The present state is the one reported as applied.
    pub settled: bool,
}

#[derive(Debug, Default)]
struct Seen {
    vlans: VlanSet,
    ports: Vec<VlanSet>,
}

/// How far one VLAN is on one port.
#[derive(Debug, PartialEq, Eq)]
pub enum Hop<'a> {
    /// Read back.
    Confirmed,
    /// Not yet.
    Waiting,
    /// The device or its driver refused it, in these words.
    Refused(&'a str),
    /// The device does not answer.
    Unreachable(&'a str),
}

impl DeviceTarget {
    /// A switch on which nothing is wanted yet and of which nothing is known. `ports` are all of its ports,
    /// sorted; those that `spec` doesn't list are the far ends of links.
    pub fn new(spec: &DeviceSpec, ports: &[Name]) -> Self {
        let mut target = Self {
            driver: spec.driver.clone(),
            access: spec.device.clone(),
            ports: Vec::new(),
            wanted: BTreeMap::new(),
            applied: None,
            rejected: Vec::new(),
            failure: None,
            notes: Vec::new(),
            info: None,
            changes: 0,
            handed_out: VecDeque::new(),
            unsettled: BTreeMap::new(),
            known: false,
            reported: None,
            settled: false,
        };
        target.reshape(spec, ports);
        target
    }

    /// Takes over a changed spec. Everything that was wanted has to be said again; what was confirmed is kept by
    /// port name. True when the target's command changes by it alone.
    pub fn reshape(&mut self, spec: &DeviceSpec, ports: &[Name]) -> bool {
        let new: Vec<FabricPort> = ports
            .iter()
            .map(|name| {
                let listed = spec.ports.iter().find(|port| port.name == *name);
                FabricPort {
                    name: name.to_string(),
                    lag: listed.and_then(|port| port.lag.as_deref().map(str::to_owned)),
                    mode: listed.map(|port| port.mode).unwrap_or_default(),
                    vlans: VlanSet::EMPTY,
                }
            })
            .collect();
        if new == self.ports && self.access == spec.device && self.driver == spec.driver {
            return false;
        }
        if let Some(seen) = &mut self.applied {
            let of = |name: &str| {
                self.ports.iter().position(|port| port.name == name).and_then(|i| seen.ports.get(i).cloned())
            };
            seen.ports = new.iter().map(|port| of(&port.name).unwrap_or_default()).collect();
        }
        if self.access != spec.device || self.driver != spec.driver {
            self.failure = None;
        }
        self.changes += 1;
        for (vid, owners) in std::mem::take(&mut self.wanted) {
            let unsettled = self.unsettled.entry(vid).or_default();
            unsettled.0 = self.changes;
            unsettled.1.extend(owners.into_keys());
        }
        (self.ports, self.access, self.driver) = (new, spec.device.clone(), spec.driver.clone());
        self.settled = false;
        true
    }

    /// Says on which ports `network` wants `vid`; none withdraws it. True when that is a change.
    pub fn want(&mut self, vid: VlanId, network: &Key, ports: &[u16]) -> bool {
        let owners = self.wanted.entry(vid).or_default();
        let before = if ports.is_empty() {
            owners.remove(network)
        } else {
            owners.insert(network.clone(), ports.into())
        };
        if owners.is_empty() {
            self.wanted.remove(&vid);
        }
        if before.as_deref().unwrap_or_default() == ports {
            return false;
        }
        self.changes += 1;
        self.settled = false;
        let unsettled = self.unsettled.entry(vid).or_default();
        unsettled.0 = self.changes;
        unsettled.1.insert(network.clone());
        true
    }

    /// The complete desired state, and the networks for which something is settled by it: a state that the device
    /// has already reported needs no further report.
    pub fn desired(&mut self, cluster: &str) -> (Desired, BTreeSet<Key>) {
        let mut ports = self.ports.clone();
        let mut vlans = Vec::new();
        for (vid, owners) in &self.wanted {
            vlans.push(FabricVlan { vid: *vid, owners: owners.keys().map(ToString::to_string).collect() });
            for index in owners.values().flatten() {
                ports[usize::from(*index)].vlans.insert(*vid);
            }
        }
        let desired = Desired::Fabric(FabricDesired {
            cluster: cluster.into(),
            device: self.access.clone(),
            vlans,
            ports,
        });
        let hash = desired.hash();
        let again = self.handed_out.back().is_some_and(|(last, _)| *last == hash);
        if again {
            self.handed_out.pop_back();
        }
        self.handed_out.push_back((hash.clone(), self.changes));
        if self.handed_out.len() > HANDED_OUT {
            self.handed_out.pop_front();
        }
        let settled = if again && self.reported.as_ref() == Some(&hash) {
            self.settle(self.changes)
        } else {
            BTreeSet::new()
        };
        (desired, settled)
    }

    /// The state after `contained` changes is there.
    fn settle(&mut self, contained: u64) -> BTreeSet<Key> {
        let mut networks = BTreeSet::new();
        self.settled = contained == self.changes;
        self.unsettled.retain(|_, (changed, keys)| {
            let open = *changed > contained;
            if !open {
                networks.append(keys);
            }
            open
        });
        networks
    }

    /// Takes in what a driver reported and returns the networks for which something may have changed.
    pub fn report(&mut self, report: Report) -> BTreeSet<Key> {
        let mut touched = VlanSet::EMPTY;
        if matches!(report.outcome, Outcome::Held | Outcome::RolledBack { .. } | Outcome::Progress { .. }) {
            return BTreeSet::new();
        }
        let failure = match report.outcome {
            Outcome::Failed(failure) => Some(failure),
            Outcome::Applied | Outcome::Held | Outcome::RolledBack { .. } | Outcome::Progress { .. } => None,
        };
        let mut networks = BTreeSet::new();
        if self.failure != failure || self.rejected != report.rejected {
            touched.extend(self.wanted.keys().copied());
        }
        let applied_it = failure.is_none();
        self.failure = failure;
        self.rejected = report.rejected;
        self.notes = report.notes;
        self.info = report.device.or(self.info.take());
        if let Some(Applied::Fabric { vlans, ports, .. }) = report.applied {
            let seen = Seen {
                vlans,
                ports: self
                    .ports
                    .iter()
                    .map(|port| ports.get(&port.name).cloned().unwrap_or_default())
                    .collect(),
            };
            let before = self.applied.take().unwrap_or_default();
            for (i, now) in seen.ports.iter().enumerate() {
                let was = before.ports.get(i).unwrap_or(&VlanSet::EMPTY);
                touched = touched.union(&was.difference(now)).union(&now.difference(was));
            }
            touched = touched
                .union(&before.vlans.difference(&seen.vlans))
                .union(&seen.vlans.difference(&before.vlans));
            self.applied = Some(seen);
        }
        if applied_it {
            let hash = report.generation.hash;
            if let Some(contained) =
                self.handed_out.iter().rev().find(|(known, _)| *known == hash).map(|(_, n)| *n)
            {
                if !self.known {
                    self.known = true;
                    touched.extend(self.wanted.keys().copied());
                }
                networks.append(&mut self.settle(contained));
            }
            self.reported = Some(hash);
        }
        for vid in touched.iter() {
            networks.extend(self.wanted.get(&vid).into_iter().flat_map(|owners| owners.keys().cloned()));
            networks.extend(self.unsettled.get(&vid).into_iter().flat_map(|(_, keys)| keys.iter().cloned()));
        }
        networks
    }

    /// How far `vid` is on the port with this index.
    pub fn hop(&self, vid: VlanId, index: u16) -> Hop<'_> {
        let index = usize::from(index);
        let port = self.ports.get(index).map_or("", |port| &port.name);
        if let Some(rejection) = self.rejected.iter().find(|rejection| rejection.item.covers(vid, port)) {
            return Hop::Refused(&rejection.reason);
        }
        let there = self.applied.as_ref().is_some_and(|seen| {
            seen.vlans.contains(vid) && seen.ports.get(index).is_some_and(|v| v.contains(vid))
        });
        if there && self.known && !self.unsettled.contains_key(&vid) {
            return Hop::Confirmed;
        }
        match &self.failure {
            Some(failure) if failure.unreachable => Hop::Unreachable(&failure.reason),
            Some(failure) => Hop::Refused(&failure.reason),
            None => Hop::Waiting,
        }
    }

    /// True when nothing that `network` gave up is left on the device. (A network that was given up before this
    /// process began is known to be gone once the device has reported on a state of ours.)
    pub fn gone(&self, network: &Key) -> bool {
        self.known && !self.unsettled.values().any(|(_, keys)| keys.contains(network))
    }

    /// True when the device is verifiably empty of ours.
    pub fn is_empty(&self) -> bool {
        self.settled
            && self
                .applied
                .as_ref()
                .is_some_and(|seen| seen.vlans.is_empty() && seen.ports.iter().all(VlanSet::is_empty))
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
        self.wanted.values().flat_map(|owners| owners.keys().cloned()).collect()
    }
}
