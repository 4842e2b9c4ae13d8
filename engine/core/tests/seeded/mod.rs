//! Random histories by seed: users act, messages are delayed, repeated, lost or skipped, switches and drivers fail, and
//! engine and drivers crash. The engine decides by `handle` and `reconcile` alone.
//!
//! Invariants after each step: a VLAN has one owner, and ready objects are applied. A deleted object goes after its
//! configuration. Transitions are recorded in order, without a gap, and before the status. A transaction is confirmed
//! only when all participants hold it. A driver that holds a change gets the decision before any other command.
//! When nothing happens any more, no change waits. At the end the desired state is applied, a new engine finds nothing
//! to do, and deleted objects leave nothing.
//!
//! `ENO_SEED=n` replays one history, and with `ENO_TRACE=1` prints it. `ENO_SEEDS=n` is the number of histories, from
//! `ENO_SEED` on.

mod checks;
mod cluster;
mod drivers;
mod messages;
mod random;
mod time;

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use cluster::{Cluster, Violation};

/// Default number of histories.
const SEEDS: u64 = 300;

fn history(seed: u64) -> Result<(), Violation> {
    let mut cluster = Cluster::new(seed)?;
    for _ in 0..cluster.random.below(250) {
        match cluster.random.below(32) {
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
    let violation = Mutex::new(None);
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= first + count {
                return;
            }
            if let Err(found) = history(seed) {
                next.store(first + count, Ordering::Relaxed);
                violation.lock().unwrap().get_or_insert((seed, found));
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    if let Some((seed, violation)) = violation.into_inner().unwrap() {
        panic!("ENO_SEED={seed} cargo test -p eno-core --test tests seeded replays it: {violation}");
    }
    let per_second = f64::from(u32::try_from(count).unwrap_or(u32::MAX)) / began.elapsed().as_secs_f64();
    println!("{count} histories, {per_second:.0} in a second");
}
