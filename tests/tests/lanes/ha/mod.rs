//! Several engines and several instances of each driver: a standby takes over, and a resumed former leader does no
//! harm.

mod cluster_id_upgrade;
mod driver_failover;
mod engine_failover;
mod late_writes;
mod nats_outage;
mod processes;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Maximum time from the leader's crash or pause until the standby is synced.
const AFTER_DEATH: Duration = Duration::from_secs(15);

/// Runs these tests one after the other, since they measure durations.
fn serialize_tests() -> MutexGuard<'static, ()> {
    static LOCK: Mutex<()> = Mutex::new(());
    LOCK.lock().unwrap_or_else(PoisonError::into_inner)
}
