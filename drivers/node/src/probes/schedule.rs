//! Which VLANs are probed next, and what was found so far. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use eno_queue::Backoff;
use eno_schemas::{GatewayAnswer, NetworkProbes, ProbeResults, Text, Unasked, Visit, VlanId, VlanSet};

/// Maximum VLANs that are probed at once, and that are visited at once.
pub const MAX_BATCH: usize = 10;

/// Delays before a VLAN is probed again on which something did not answer.
const RETRY: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(30));

/// A network of the host as the way to a connection point.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The connection point.
    pub point: String,
    /// The network.
    pub network: String,
}

impl Place {
    fn of(probes: &NetworkProbes) -> Self {
        Self { point: probes.point.clone(), network: probes.network.clone() }
    }
}

/// What is asked on a VLAN. A result holds for one aim only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Aim {
    /// The path that the packets take.
    revision: String,
    /// The node that is asked.
    pub next: Option<String>,
    /// The gateways that are asked.
    pub gateways: BTreeSet<IpAddr>,
}

/// What the next node answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It answered.
    Passed,
    /// It did not, although its agent was there.
    Lost,
    /// It could not be asked, for this reason.
    Unasked(Text),
}

/// What was found on a VLAN.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Of the next node; absent: there is none.
    pub next: Option<Verdict>,
    /// Who answered for each gateway that was asked.
    pub gateways: BTreeMap<IpAddr, BTreeSet<String>>,
}

impl Outcome {
    /// Nothing could be asked.
    pub fn unasked(reason: &str) -> Self {
        Self { next: Some(Verdict::Unasked(reason.into())), gateways: BTreeMap::new() }
    }

    /// True when the next node did not answer although its agent was there.
    fn is_lost(&self) -> bool {
        self.next == Some(Verdict::Lost)
    }

    /// True when all that was to be asked has answered.
    fn is_good(&self) -> bool {
        self.next.as_ref().is_none_or(|next| *next == Verdict::Passed)
            && !self.gateways.values().any(BTreeSet::is_empty)
    }
}

/// VLANs of one place that are probed together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Where.
    pub place: Place,
    /// What is asked on each VLAN.
    pub vlans: BTreeMap<VlanId, Arc<Aim>>,
}

impl Batch {
    /// The node that is asked on all of them.
    pub fn next_node(&self) -> Option<&str> {
        self.vlans.values().find_map(|aim| aim.next.as_deref())
    }

    /// The VLANs.
    pub fn vlan_set(&self) -> VlanSet {
        self.vlans.keys().copied().collect()
    }
}

/// What is to be done next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Probing these.
    Probe(Batch),
    /// Waiting, until then; `None`: until something else is wanted.
    Wait(Option<Instant>),
}

/// A VLAN.
#[derive(Clone, Debug)]
struct Entry {
    /// What is asked.
    aim: Arc<Aim>,
    /// What was found.
    outcome: Option<Outcome>,
    /// The next node did not answer when it was last asked, and is asked once more before that counts.
    is_doubted: bool,
    /// How often in a row something did not answer.
    failures: u32,
    /// When it is probed next.
    due: Instant,
}

impl Entry {
    /// True when it counts as lost.
    fn is_lost(&self) -> bool {
        self.outcome.as_ref().is_some_and(Outcome::is_lost)
    }
}

/// What is wanted, and what was found.
#[derive(Debug, Default)]
pub struct Schedule {
    /// What is wanted, in the order of the command.
    wanted: Vec<NetworkProbes>,
    /// The wanted VLANs.
    entries: BTreeMap<Place, BTreeMap<VlanId, Entry>>,
}

impl Schedule {
    /// Sets what is wanted. What was found stays where the aim is the same.
    pub fn want(&mut self, wanted: Vec<NetworkProbes>, now: Instant) {
        let mut before = std::mem::take(&mut self.entries);
        for probes in &wanted {
            let place = Place::of(probes);
            let mut known = before.remove(&place).unwrap_or_default();
            let latest = now + Duration::from_secs(probes.interval.into());
            let entries = self.entries.entry(place).or_default();
            for (vlan, aim) in aims(probes) {
                let entry = match known.remove(&vlan).filter(|entry| *entry.aim == aim) {
                    Some(entry) => Entry { due: entry.due.min(latest), ..entry },
                    None => {
                        Entry { aim: Arc::new(aim), outcome: None, is_doubted: false, failures: 0, due: now }
                    }
                };
                entries.insert(vlan, entry);
            }
        }
        self.wanted = wanted;
    }

    /// The VLANs of one place that are due, those that have waited longest first.
    pub fn next(&self, now: Instant) -> Next {
        let first = |entries: &BTreeMap<VlanId, Entry>| entries.values().map(|entry| entry.due).min();
        let places =
            self.entries.iter().filter_map(|(place, entries)| Some((first(entries)?, place, entries)));
        let Some((first, place, entries)) = places.min_by_key(|(due, ..)| *due) else {
            return Next::Wait(None);
        };
        if first > now {
            return Next::Wait(Some(first));
        }
        let mut due: Vec<(&VlanId, &Entry)> = entries.iter().filter(|(_, entry)| entry.due <= now).collect();
        due.sort_by_key(|(vlan, entry)| (entry.due, **vlan));
        let due = due.into_iter().take(MAX_BATCH);
        let vlans = due.map(|(vlan, entry)| (*vlan, Arc::clone(&entry.aim))).collect();
        Next::Probe(Batch { place: place.clone(), vlans })
    }

    /// Records what was found, and when it is looked for again. What is not wanted any more is left out. True when a
    /// result has changed. `random`: between 0 and 1.
    pub fn record(
        &mut self,
        batch: &Batch,
        mut found: BTreeMap<VlanId, Outcome>,
        now: Instant,
        random: f64,
    ) -> bool {
        let interval = self.wanted.iter().find(|probes| Place::of(probes) == batch.place);
        let Some(interval) = interval.map(|probes| Duration::from_secs(probes.interval.into())) else {
            return false;
        };
        let Some(entries) = self.entries.get_mut(&batch.place) else { return false };
        let mut changed = false;
        for (vlan, aim) in &batch.vlans {
            let Some(entry) = entries.get_mut(vlan).filter(|entry| entry.aim == *aim) else { continue };
            let Some(outcome) = found.remove(vlan) else { continue };
            entry.is_doubted = !entry.is_doubted && outcome.is_lost() && !entry.is_lost();
            if entry.is_doubted {
                // The agent of the next node may have ended after it said that it is there.
                entry.due = now;
                continue;
            }
            let wait = interval.mul_f64(0.9 + 0.2 * random.clamp(0.0, 1.0));
            if outcome.is_good() {
                entry.failures = 0;
                entry.due = now + wait;
            } else {
                entry.failures = entry.failures.saturating_add(1);
                entry.due = now + wait.min(RETRY.delay(entry.failures, random));
            }
            changed |= entry.outcome.as_ref() != Some(&outcome);
            entry.outcome = Some(outcome);
        }
        changed
    }

    /// Where the agent of the node `from` may have this one go, as it asks; `None`: nowhere.
    pub fn permitted(&self, from: &str, visit: &Visit) -> Option<(Place, VlanSet)> {
        let asks = |probes: &&NetworkProbes| {
            probes.point == visit.point
                && probes.network == visit.network
                && probes.previous.as_deref() == Some(from)
        };
        let probes = self.wanted.iter().find(asks)?;
        let vlans = probes.paths.iter().fold(VlanSet::EMPTY, |all, path| all.union(&path.vlans));
        Some((Place::of(probes), vlans.intersection(&visit.vlans)))
    }

    /// What was found, in the order of the command.
    pub fn results(&self) -> Vec<ProbeResults> {
        let none = BTreeMap::new();
        let of =
            |probes: &NetworkProbes| results(probes, self.entries.get(&Place::of(probes)).unwrap_or(&none));
        self.wanted.iter().map(of).collect()
    }
}

/// What is asked on each VLAN.
fn aims(probes: &NetworkProbes) -> BTreeMap<VlanId, Aim> {
    let mut aims = BTreeMap::new();
    for path in &probes.paths {
        for vlan in path.vlans.iter() {
            let gateways = probes.gateways.iter().filter(|gateway| gateway.vlans.contains(vlan));
            let gateways = gateways.map(|gateway| gateway.address).collect();
            aims.insert(vlan, Aim { revision: path.revision.clone(), next: probes.next.clone(), gateways });
        }
    }
    aims
}

/// The results of one place, VLANs with the same ones together.
fn results(probes: &NetworkProbes, entries: &BTreeMap<VlanId, Entry>) -> ProbeResults {
    let Place { point, network } = Place::of(probes);
    let mut results = ProbeResults { point, network, ..ProbeResults::default() };
    let mut gateways: BTreeMap<(IpAddr, &BTreeSet<String>), VlanSet> = BTreeMap::new();
    let mut unasked: BTreeMap<&Text, VlanSet> = BTreeMap::new();
    for (vlan, entry) in entries {
        let Some(outcome) = &entry.outcome else { continue };
        let of_next = match &outcome.next {
            Some(Verdict::Passed) => Some(&mut results.passed),
            Some(Verdict::Lost) => Some(&mut results.lost),
            Some(Verdict::Unasked(reason)) => Some(unasked.entry(reason).or_default()),
            None => None,
        };
        of_next.map(|vlans| vlans.insert(*vlan));
        for (address, macs) in &outcome.gateways {
            gateways.entry((*address, macs)).or_default().insert(*vlan);
        }
    }
    let answer = |((address, macs), vlans): ((IpAddr, &BTreeSet<String>), VlanSet)| GatewayAnswer {
        address,
        macs: macs.clone(),
        vlans,
    };
    results.gateways = gateways.into_iter().map(answer).collect();
    let reason = |(reason, vlans): (&Text, VlanSet)| Unasked { reason: reason.clone(), vlans };
    results.unasked = unasked.into_iter().map(reason).collect();
    results
}

#[cfg(test)]
#[path = "schedule_tests.rs"]
mod tests;
