//! Histories that a seed decides: users act, and everything arrives late, twice or overtaken, while engine and drivers
//! die in between. After each step: one owner per VLAN, what is ready is there, nothing goes before it is gone,
//! transitions are told in order and without a gap, the outbox before the status. In the end: all is as it is wanted,
//! another engine finds nothing to do, and nothing is left of what is deleted.
//!
//! `ENO_SEED=n` replays one history; `ENO_SEEDS=n` says how many are tried, from `ENO_SEED` on.

mod chance;
mod cluster;
mod messages;
mod mutants;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use cluster::{Cluster, Wrong};
use mutants::Mutant;

/// So many histories are tried where nobody asks for more.
const SEEDS: u64 = 2000;

/// Each mutant has to be noticed in one of so many.
const MUTANT_SEEDS: u64 = 20_000;

fn history(seed: u64, mutant: Option<Mutant>) -> Result<(), Wrong> {
    let mut cluster = Cluster::new(seed, mutant)?;
    for _ in 0..cluster.chance.below(80) {
        match cluster.chance.below(24) {
            0..4 => cluster.act(),
            4 => cluster.crash()?,
            5 => cluster.rest()?,
            _ => cluster.arrive()?,
        }
    }
    cluster.end()
}

fn from_env(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{name}={value}: must be a number")))
}

#[test]
fn whatever_arrives_when_it_ends_as_it_is_wanted() {
    let first = from_env("ENO_SEED").unwrap_or(1);
    let count = from_env("ENO_SEEDS").unwrap_or(if first == 1 { SEEDS } else { 1 });
    let (next, began) = (AtomicU64::new(first), Instant::now());
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= first + count {
                return;
            }
            if let Err(wrong) = history(seed, None) {
                panic!("ENO_SEED={seed} cargo test -p eno-core --test tests seeded replays it: {wrong}");
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    let per_second = f64::from(u32::try_from(count).unwrap_or(u32::MAX)) / began.elapsed().as_secs_f64();
    println!("{count} histories, {per_second:.0} in a second");
}

#[test]
fn every_mutant_is_noticed() {
    for mutant in Mutant::ALL {
        let noticed =
            (1..=MUTANT_SEEDS).find_map(|seed| history(seed, Some(mutant)).err().map(|why| (seed, why)));
        let Some((seed, why)) = noticed else {
            panic!("{mutant:?} is not noticed in {MUTANT_SEEDS} histories")
        };
        println!("{mutant:?}: by seed {seed}: {why}");
    }
}
