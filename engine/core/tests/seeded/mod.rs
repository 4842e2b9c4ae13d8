//! Random histories by seed: users act, messages are delayed, repeated or skipped, and engine and drivers crash.
//!
//! Invariants after each step: a VLAN has one owner, and ready objects are applied. A deleted object goes after its
//! configuration. Transitions are recorded in order, without a gap, and before the status.
//! At the end the desired state is applied, a new engine finds nothing to do, and deleted objects leave nothing.
//!
//! `ENO_SEED=n` replays one history. `ENO_SEEDS=n` is the number of histories, from `ENO_SEED` on.

mod cluster;
mod messages;
mod mutants;
mod random;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use cluster::{Cluster, Violation};
use mutants::Mutant;

/// Default number of histories.
const SEEDS: u64 = 2000;

/// Maximum number of histories until a mutant must be detected.
const MUTANT_SEEDS: u64 = 20_000;

fn history(seed: u64, mutant: Option<Mutant>) -> Result<(), Violation> {
    let mut cluster = Cluster::new(seed, mutant)?;
    for _ in 0..cluster.random.below(80) {
        match cluster.random.below(24) {
            0..4 => cluster.user_acts(),
            4 => cluster.crash()?,
            5 => cluster.run_until_quiescent()?,
            _ => cluster.deliver_any()?,
        }
    }
    cluster.finish()
}

fn from_env(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{name}={value}: must be a number")))
}

#[test]
fn random_delivery_and_crashes_converge() {
    let first = from_env("ENO_SEED").unwrap_or(1);
    let count = from_env("ENO_SEEDS").unwrap_or(if first == 1 { SEEDS } else { 1 });
    let (next, began) = (AtomicU64::new(first), Instant::now());
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= first + count {
                return;
            }
            if let Err(violation) = history(seed, None) {
                panic!("ENO_SEED={seed} cargo test -p eno-core --test tests seeded replays it: {violation}");
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    let per_second = f64::from(u32::try_from(count).unwrap_or(u32::MAX)) / began.elapsed().as_secs_f64();
    println!("{count} histories, {per_second:.0} in a second");
}

#[test]
fn every_mutant_is_detected() {
    for mutant in Mutant::ALL {
        let detected = (1..=MUTANT_SEEDS)
            .find_map(|seed| history(seed, Some(mutant)).err().map(|violation| (seed, violation)));
        let Some((seed, violation)) = detected else {
            panic!("{mutant:?} is not detected in {MUTANT_SEEDS} histories")
        };
        println!("{mutant:?}: by seed {seed}: {violation}");
    }
}
