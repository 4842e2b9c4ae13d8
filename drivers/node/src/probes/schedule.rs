//! Which VLANs are probed next, and what was found so far. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use eno_queue::Backoff;
use eno_schemas::{
    CrossedVlans, GatewayAnswer, NetworkProbes, ProbeResults, Text, Unasked, Visit, VlanId, VlanSet,
};

use super::crossing::{Crossing, Pairs};

/// Maximum VLANs that are probed at once, and that are visited at once.
pub const MAX_BATCH: usize = 10;

/// Delays before a VLAN is probed again on which something did not answer.
pub const RETRY: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(30));

/// A network of the host as the way to a connection point.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The connection point.
    pub point: String,
    /// The network.
    pub network: String,
}

impl Place {
    /// Where these probes are.
    pub fn of(probes: &NetworkProbes) -> Self {
        Self { point: probes.point.clone(), network: probes.network.clone() }
    }
}

/// What is asked on a VLAN. A result holds for one aim only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Aim {
    /// The path that the packets take.
    pub revision: String,
    /// The node that is asked.
    pub next: Option<String>,
    /// Bytes of a packet of full size that it is asked by; absent: none.
    pub mtu: Option<u16>,
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
    /// It answered, but not to a packet of full size.
    TooBig,
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

    /// True when somebody did not answer who was asked, and `before` does not say that too.
    fn has_new_silence(&self, before: Option<&Self>) -> bool {
        let is_silent = |one: &Self, gateway| one.gateways.get(gateway).is_some_and(BTreeSet::is_empty);
        let is_known = |gateway| before.is_some_and(|before| is_silent(before, gateway));
        let is_next_new = before.is_none_or(|before| before.next != self.next);
        (is_next_new && matches!(self.next, Some(Verdict::Lost | Verdict::TooBig)))
            || self.gateways.keys().any(|gateway| is_silent(self, gateway) && !is_known(gateway))
    }

    /// True when small packets pass to the next node.
    fn carries(&self) -> bool {
        matches!(self.next, Some(Verdict::Passed | Verdict::TooBig))
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
    /// Asking across these.
    Cross(Crossing),
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
    /// Somebody did not answer when last asked, and is asked once more before that counts.
    is_doubted: bool,
    /// How often in a row something did not answer.
    failures: u32,
    /// When it is probed next.
    due: Instant,
}

/// What is wanted, and what was found.
#[derive(Debug, Default)]
pub struct Schedule {
    /// What is wanted, in the order of the command.
    wanted: Vec<NetworkProbes>,
    /// The wanted VLANs.
    entries: BTreeMap<Place, BTreeMap<VlanId, Entry>>,
    /// The pairs of them that should be isolated.
    pairs: Pairs,
}

/// Where another agent may have this one go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Permit {
    /// The place.
    pub place: Place,
    /// The VLANs.
    pub vlans: VlanSet,
    /// Of these, those on which echo requests may be answered.
    pub echo: VlanSet,
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
            let aims = aims(probes);
            self.pairs.want(probes, &aims, now);
            for (vlan, aim) in aims {
                let entry = match known.remove(&vlan).filter(|entry| *entry.aim == aim) {
                    Some(entry) => Entry { due: entry.due.min(latest), ..entry },
                    None => {
                        Entry { aim: Arc::new(aim), outcome: None, is_doubted: false, failures: 0, due: now }
                    }
                };
                entries.insert(vlan, entry);
            }
        }
        self.pairs.keep(&wanted);
        self.wanted = wanted;
    }

    /// What is due of one place: VLANs, or pairs of VLANs that both carry packets. What has waited longest is first.
    pub fn next(&self, now: Instant) -> Next {
        let first = |entries: &BTreeMap<VlanId, Entry>| entries.values().map(|entry| entry.due).min();
        let places =
            self.entries.iter().filter_map(|(place, entries)| Some((first(entries)?, place, entries)));
        let Some((first, place, entries)) = places.min_by_key(|(due, ..)| *due) else {
            return Next::Wait(None);
        };
        let is_ready = |place: &Place, pair: &CrossedVlans| self.carries(place, *pair);
        match self.pairs.first(is_ready) {
            Some((due, place)) if due < first && due <= now => {
                return Next::Cross(self.pairs.due(place, now, |pair| self.carries(place, *pair)));
            }
            crossed if first > now => {
                return Next::Wait(Some(crossed.map_or(first, |(due, _)| due.min(first))));
            }
            _ => {}
        }
        let mut due: Vec<(&VlanId, &Entry)> = entries.iter().filter(|(_, entry)| entry.due <= now).collect();
        due.sort_by_key(|(vlan, entry)| (entry.due, **vlan));
        let due = due.into_iter().take(MAX_BATCH);
        let vlans = due.map(|(vlan, entry)| (*vlan, Arc::clone(&entry.aim))).collect();
        Next::Probe(Batch { place: place.clone(), vlans })
    }

    /// True when both VLANs of a pair carry packets. On others, silence says nothing of their isolation.
    fn carries(&self, place: &Place, pair: CrossedVlans) -> bool {
        let Some(entries) = self.entries.get(place) else { return false };
        let carries =
            |entry: &Entry| !entry.is_doubted && entry.outcome.as_ref().is_some_and(Outcome::carries);
        [pair.vlan, pair.other].iter().all(|vlan| entries.get(vlan).is_some_and(carries))
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
        let Some(wait) = self.interval(&batch.place, random) else { return false };
        let Some(entries) = self.entries.get_mut(&batch.place) else { return false };
        let mut changed = false;
        for (vlan, aim) in &batch.vlans {
            let Some(entry) = entries.get_mut(vlan).filter(|entry| entry.aim == *aim) else { continue };
            let Some(outcome) = found.remove(vlan) else { continue };
            entry.is_doubted = !entry.is_doubted && outcome.has_new_silence(entry.outcome.as_ref());
            if entry.is_doubted {
                // The agent of the next node may have ended after it said that it is there, or a port of this node.
                entry.due = now;
                continue;
            }
            if outcome.is_good() {
                entry.failures = 0;
                entry.due = now + wait;
            } else {
                entry.failures = entry.failures.saturating_add(1);
                entry.due = now + wait.min(RETRY.delay(entry.failures, random));
            }
            if !outcome.carries() {
                changed |= self.pairs.forget(&batch.place, *vlan, now);
            }
            changed |= entry.outcome.as_ref() != Some(&outcome);
            entry.outcome = Some(outcome);
        }
        changed
    }

    /// Records across which pairs the next node answered. Others are asked again soon. True when a result has changed.
    pub fn record_crossing(
        &mut self,
        crossing: &Crossing,
        found: &BTreeMap<CrossedVlans, bool>,
        now: Instant,
        random: f64,
    ) -> bool {
        let wait = self.interval(&crossing.place, random);
        wait.is_some_and(|wait| self.pairs.record(crossing, found, now, wait, random))
    }

    /// The time until what has answered is asked again: the interval, but for a tenth.
    fn interval(&self, place: &Place, random: f64) -> Option<Duration> {
        let probes = self.wanted.iter().find(|probes| Place::of(probes) == *place)?;
        Some(Duration::from_secs(probes.interval.into()).mul_f64(0.9 + 0.2 * random.clamp(0.0, 1.0)))
    }

    /// Where the agent of the node `from` may have this one go, as it asks; `None`: nowhere. Echo requests are answered
    /// only where this node probes by them itself.
    pub fn permitted(&self, from: &str, visit: &Visit) -> Option<Permit> {
        let asks = |probes: &&NetworkProbes| {
            probes.point == visit.point
                && probes.network == visit.network
                && probes.previous.as_deref() == Some(from)
        };
        let probes = self.wanted.iter().find(asks)?;
        let all = probes.paths.iter().fold(VlanSet::EMPTY, |all, path| all.union(&path.vlans));
        let full = probes.paths.iter().filter(|path| path.mtu.is_some());
        let full = full.fold(VlanSet::EMPTY, |all, path| all.union(&path.vlans));
        let vlans = all.intersection(&visit.vlans);
        let echo = full.intersection(&visit.echo).intersection(&vlans);
        Some(Permit { place: Place::of(probes), vlans, echo })
    }

    /// What was found, in the order of the command.
    pub fn results(&self) -> Vec<ProbeResults> {
        let none = BTreeMap::new();
        let of = |probes: &NetworkProbes| {
            let place = Place::of(probes);
            let found = results(probes, self.entries.get(&place).unwrap_or(&none));
            let [isolated, leaking] = [false, true].map(|leaking| self.pairs.found(&place, leaking));
            ProbeResults { isolated, leaking, ..found }
        };
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
            let (revision, next) = (path.revision.clone(), probes.next.clone());
            aims.insert(vlan, Aim { revision, next, mtu: path.mtu, gateways });
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
            Some(Verdict::TooBig) => Some(&mut results.too_big),
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
