//! Changes that concern a few switches of many, and what a bad switch costs those that have nothing to do with it.

use std::time::Instant;

use anyhow::Context as _;
use eno_simulator::{Fault, Topology};

use super::load::{Apis, Place, Tracker};
use super::report::{BetweenRacks, percentile};
use super::{BenchArgs, one_by_one, remove};
use crate::sandbox::Sandbox;
use crate::switch;

/// How much longer every operation of the slow leaf takes.
const SLOW_MS: u64 = 3000;
/// Changes that are timed in each state of the leaf, after those in which the engine gets to know it.
const TIMED: usize = 30;
const BEFORE: usize = 4;
/// The places of the first two racks and of the last two.
const FIRST: &str = "bench-first";
const LAST: &str = "bench-last";

/// The nodes of the first two racks and of the last two, of which the last one's leaf has the faults.
pub(super) struct Racks {
    bad: String,
    first: Vec<String>,
    last: Vec<String>,
}

impl Racks {
    /// `None` if these are not four racks.
    pub(super) fn of(topology: &Topology) -> Option<Self> {
        // Where nodes don't fill all leaves, the last ones have none.
        let mut racks: Vec<(&str, Vec<String>)> = Vec::new();
        for node in &topology.nodes {
            let leaf = node.interfaces.first()?.switch.as_str();
            match racks.last_mut().filter(|(last, _)| *last == leaf) {
                Some((_, nodes)) => nodes.push(node.name.clone()),
                None => racks.push((leaf, vec![node.name.clone()])),
            }
        }
        let [(_, first), (_, second), .., (_, last_but_one), (bad, last)] = racks.as_slice() else {
            return None;
        };
        Some(Self {
            bad: (*bad).to_owned(),
            first: [first.as_slice(), second].concat(),
            last: [last_but_one.as_slice(), last].concat(),
        })
    }

    pub(super) fn places(&self) -> [Place<'static>; 2] {
        [
            Place { name: FIRST, nodes: Some(self.first.clone()) },
            Place { name: LAST, nodes: Some(self.last.clone()) },
        ]
    }

    /// Times changes between the first two racks: alone, and beside changes between the last two.
    pub(super) async fn measure(
        &self,
        args: &BenchArgs,
        sandbox: &Sandbox,
        http: &reqwest::Client,
        apis: &Apis,
        tracker: &Tracker,
    ) -> anyhow::Result<BetweenRacks> {
        let leaf = sandbox.switch(&self.bad).with_context(|| format!("there is no {}", self.bad))?;
        let alone = percentile(&mut one_by_one(args, apis, tracker, FIRST).await?, 50);
        let mut medians = [0.0; 3];
        let states = [None, Some(Fault::Slow { ms: SLOW_MS, times: None }), Some(Fault::Unreachable {})];
        for (median, fault) in medians.iter_mut().zip(states) {
            if let Some(fault) = fault {
                switch::inject(http, leaf, &fault).await?;
            }
            *median = percentile(&mut changes(apis, tracker).await?, 50);
            switch::inject(http, leaf, &Fault::Clear {}).await?;
            remove(2 * (BEFORE + TIMED), args, apis, tracker).await?;
        }
        let [beside, slow, dead] = medians;
        Ok(BetweenRacks { alone, beside, slow, dead })
    }
}

/// In milliseconds. Before each one between the last racks is begun, which nobody waits for.
async fn changes(apis: &Apis, tracker: &Tracker) -> anyhow::Result<Vec<f64>> {
    let mut samples = Vec::with_capacity(TIMED);
    for sample in 0..BEFORE + TIMED {
        apis.add(2 * sample, LAST).await?;
        let started = Instant::now();
        let pair = apis.add(2 * sample + 1, FIRST).await?;
        tracker
            .until("a change beside another", |seen| pair.iter().all(|one| seen.ready.contains(one)))
            .await?;
        if sample >= BEFORE {
            samples.push(started.elapsed().as_secs_f64() * 1000.0);
        }
    }
    Ok(samples)
}
