//! Times changes on a few of many switches, and the effect of an unrelated faulty switch on them.

use std::time::Instant;

use anyhow::Context as _;
use eno_simulator::{Fault, Topology};

use super::BenchArgs;
use super::changes::remove;
use super::load::{Apis, PoolAndPoint, Tracker};
use super::report::{BetweenRacks, percentile};
use crate::sandbox::Sandbox;
use crate::switch;

/// Additional milliseconds of every operation on the slow leaf.
const SLOW_MS: u64 = 3000;
/// Number of timed changes in each state of the leaf, after the warm-up in which the engine notices the state.
const SAMPLES: usize = 30;
const WARM_UP: usize = 4;
/// The names of the pool and point of the first two racks, and of the last two.
pub(super) const FIRST: &str = "bench-first";
const LAST: &str = "bench-last";

/// The nodes of the first two racks and of the last two; the last rack's leaf gets the faults.
pub(super) struct Racks {
    faulty_leaf: String,
    first: Vec<String>,
    last: Vec<String>,
}

impl Racks {
    /// The racks of a topology; `None` if there are fewer than four.
    pub(super) fn of(topology: &Topology) -> Option<Self> {
        // Where nodes don't fill all leaves, the last leaves have none.
        let mut racks: Vec<(&str, Vec<String>)> = Vec::new();
        for node in &topology.nodes {
            let leaf = node.interfaces.first()?.switch.as_str();
            match racks.last_mut().filter(|(last, _)| *last == leaf) {
                Some((_, nodes)) => nodes.push(node.name.clone()),
                None => racks.push((leaf, vec![node.name.clone()])),
            }
        }
        let [(_, first), (_, second), .., (_, last_but_one), (faulty_leaf, last)] = racks.as_slice() else {
            return None;
        };
        Some(Self {
            faulty_leaf: (*faulty_leaf).to_owned(),
            first: [first.as_slice(), second].concat(),
            last: [last_but_one.as_slice(), last].concat(),
        })
    }

    pub(super) fn pools_and_points(&self) -> [PoolAndPoint<'static>; 2] {
        [
            PoolAndPoint { name: FIRST, nodes: Some(self.first.clone()) },
            PoolAndPoint { name: LAST, nodes: Some(self.last.clone()) },
        ]
    }

    /// Times changes between the first two racks beside changes between the last two. `alone`: their median without
    /// others, in milliseconds.
    pub(super) async fn measure(
        &self,
        args: &BenchArgs,
        sandbox: &Sandbox,
        http: &reqwest::Client,
        apis: &Apis,
        tracker: &Tracker,
        alone: f64,
    ) -> anyhow::Result<BetweenRacks> {
        let leaf =
            sandbox.switch(&self.faulty_leaf).with_context(|| format!("there is no {}", self.faulty_leaf))?;
        let mut medians = [0.0; 3];
        let states = [
            None,
            Some(Fault::Slow { ms: SLOW_MS, operation: None, times: None }),
            Some(Fault::Unreachable {}),
        ];
        for (median, fault) in medians.iter_mut().zip(states) {
            if let Some(fault) = fault {
                switch::inject(http, leaf, &fault).await?;
            }
            *median = percentile(&mut changes(apis, tracker).await?, 50);
            switch::inject(http, leaf, &Fault::Clear {}).await?;
            remove(2 * (WARM_UP + SAMPLES), args, apis, tracker, args.size).await?;
        }
        let [beside, slow, dead] = medians;
        Ok(BetweenRacks { alone, beside, slow, dead })
    }
}

/// Times changes in milliseconds. Before each, a change between the last racks is started without waiting for it.
async fn changes(apis: &Apis, tracker: &Tracker) -> anyhow::Result<Vec<f64>> {
    let mut samples = Vec::with_capacity(SAMPLES);
    for sample in 0..WARM_UP + SAMPLES {
        apis.add(2 * sample, LAST).await?;
        let started = Instant::now();
        let pair = apis.add(2 * sample + 1, FIRST).await?;
        tracker
            .until("a change beside another", |seen| pair.iter().all(|one| seen.ready.contains(one)))
            .await?;
        if sample >= WARM_UP {
            samples.push(started.elapsed().as_secs_f64() * 1000.0);
        }
    }
    Ok(samples)
}
