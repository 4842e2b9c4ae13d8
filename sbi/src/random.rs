//! Random numbers for jitter.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::time::Duration;

/// A random number between 0 and 1, which is no secret.
pub fn random() -> f64 {
    let random = RandomState::new().build_hasher().finish();
    f64::from(u32::try_from(random >> 32).unwrap_or_default()) / f64::from(u32::MAX)
}

/// A random duration up to `longest`.
pub fn random_up_to(longest: Duration) -> Duration {
    longest.mul_f64(random())
}
