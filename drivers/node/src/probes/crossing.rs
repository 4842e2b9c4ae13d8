//! Pairs of VLANs that should be isolated from each other: which are asked about next, and what was found. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use eno_schemas::{CrossedVlans, NetworkProbes, VlanId, VlanSet};

use super::schedule::{Aim, MAX_BATCH, Place, RETRY};

/// What is asked about a pair. A result holds for one question only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// The paths of both VLANs.
    revisions: [String; 2],
    /// The node that is asked.
    next: String,
}

/// Pairs of one place that are asked about together. Each address of the next node is asked for on one VLAN only, so that
/// questions are not taken for answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Crossing {
    /// Where.
    pub place: Place,
    /// The pairs.
    pub pairs: BTreeMap<CrossedVlans, Arc<Question>>,
}

impl Crossing {
    /// The node that is asked about all of them.
    pub fn next_node(&self) -> Option<&str> {
        self.pairs.values().next().map(|question| question.next.as_str())
    }

    /// The VLANs on which this node asks, and those on which the next one answers.
    pub fn sides(&self) -> (VlanSet, VlanSet) {
        self.pairs.keys().map(|pair| (pair.vlan, pair.other)).unzip()
    }
}

/// A pair.
#[derive(Clone, Debug)]
struct Pair {
    /// What is asked.
    question: Arc<Question>,
    /// True when the next node has answered, false when it did not.
    leaks: Option<bool>,
    /// How often in a row nothing could be found.
    failures: u32,
    /// When it is asked about next.
    due: Instant,
}

/// The pairs of all places.
#[derive(Debug, Default)]
pub struct Pairs(BTreeMap<Place, BTreeMap<CrossedVlans, Pair>>);

impl Pairs {
    /// Sets the pairs of one place, where `aims` is what is asked on each VLAN. What was found stays where the question
    /// is the same.
    pub fn want(&mut self, probes: &NetworkProbes, aims: &BTreeMap<VlanId, Aim>, now: Instant) {
        let place = Place::of(probes);
        let mut known = self.0.remove(&place).unwrap_or_default();
        let latest = now + Duration::from_secs(probes.interval.into());
        let question = |pair: &CrossedVlans| {
            let (vlan, other) = (aims.get(&pair.vlan)?, aims.get(&pair.other)?);
            let revisions = [vlan.revision.clone(), other.revision.clone()];
            Some(Question { revisions, next: probes.next.clone()? })
        };
        let crossed = probes.crossed.iter().take(CrossedVlans::MAX).filter(|pair| pair.vlan != pair.other);
        let wanted = crossed.filter_map(|pair| Some((*pair, question(pair)?)));
        let pairs = wanted.map(|(pair, question)| {
            let state = match known.remove(&pair).filter(|state| *state.question == question) {
                Some(state) => Pair { due: state.due.min(latest), ..state },
                None => Pair { question: Arc::new(question), leaks: None, failures: 0, due: now },
            };
            (pair, state)
        });
        let pairs: BTreeMap<_, _> = pairs.collect();
        if !pairs.is_empty() {
            self.0.insert(place, pairs);
        }
    }

    /// Forgets what was found with this VLAN. It is asked again once both VLANs are ready. True when there was a result.
    pub fn forget(&mut self, place: &Place, vlan: VlanId, now: Instant) -> bool {
        let all = self.0.get_mut(place).into_iter().flatten();
        let mut changed = false;
        for (_, state) in all.filter(|(pair, _)| pair.vlan == vlan || pair.other == vlan) {
            state.due = now;
            changed |= state.leaks.take().is_some();
        }
        changed
    }

    /// Forgets the pairs of other places than these.
    pub fn keep(&mut self, wanted: &[NetworkProbes]) {
        self.0.retain(|place, _| wanted.iter().any(|probes| Place::of(probes) == *place));
    }

    /// When and where a pair is asked about next, of those that are ready.
    pub fn first(&self, is_ready: impl Fn(&Place, &CrossedVlans) -> bool) -> Option<(Instant, &Place)> {
        let all = self.0.iter().flat_map(|(place, pairs)| pairs.iter().map(move |pair| (place, pair)));
        let ready = all.filter(|(place, (pair, _))| is_ready(place, pair));
        ready.map(|(place, (_, state))| (state.due, place)).min_by_key(|(due, _)| *due)
    }

    /// The pairs of a place that are ready and due, those that have waited longest first.
    pub fn due(&self, place: &Place, now: Instant, is_ready: impl Fn(&CrossedVlans) -> bool) -> Crossing {
        let all = self.0.get(place).into_iter().flatten();
        let mut due: Vec<_> = all.filter(|(pair, state)| state.due <= now && is_ready(pair)).collect();
        due.sort_by_key(|(pair, state)| (state.due, **pair));
        let mut crossing = Crossing { place: place.clone(), pairs: BTreeMap::new() };
        for (pair, state) in due {
            let mut others = crossing.pairs.keys();
            if others.all(|other| pair.other != other.other) {
                crossing.pairs.insert(*pair, Arc::clone(&state.question));
            }
            if crossing.pairs.len() == MAX_BATCH {
                break;
            }
        }
        crossing
    }

    /// Records across which pairs the next node has answered, and when they are asked about again: after `wait`, or
    /// sooner if nothing could be found. True when a result has changed.
    pub fn record(
        &mut self,
        crossing: &Crossing,
        found: &BTreeMap<CrossedVlans, bool>,
        now: Instant,
        wait: Duration,
        random: f64,
    ) -> bool {
        let Some(pairs) = self.0.get_mut(&crossing.place) else { return false };
        let mut changed = false;
        for (pair, question) in &crossing.pairs {
            let Some(state) = pairs.get_mut(pair).filter(|state| state.question == *question) else {
                continue;
            };
            if let Some(leaks) = found.get(pair) {
                state.failures = 0;
                state.due = now + wait;
                changed |= state.leaks.replace(*leaks) != Some(*leaks);
            } else {
                state.failures = state.failures.saturating_add(1);
                state.due = now + wait.min(RETRY.delay(state.failures, random));
            }
        }
        changed
    }

    /// The pairs of a place across which the next node has answered, or has not.
    pub fn found(&self, place: &Place, leaks: bool) -> Vec<CrossedVlans> {
        let all = self.0.get(place).into_iter().flatten();
        all.filter(|(_, state)| state.leaks == Some(leaks)).map(|(pair, _)| *pair).collect()
    }
}

#[cfg(test)]
#[path = "crossing_tests.rs"]
mod tests;
