//! Several engines and several instances of each driver: who dies, leaves or is stopped is followed by another one, and
//! whoever goes on after a while does no harm.

mod drivers;
mod late_words;
mod leaders;
mod nats;
mod networks;
mod parts;
mod upgrade;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A successor of an engine that died or was stopped is at work within this time.
const AFTER_DEATH: Duration = Duration::from_secs(15);

/// One after the other: what is measured is how long something takes.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}
