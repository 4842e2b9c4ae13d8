//! Bounds what one object adds to the outbox. Pure: the time is an argument.

use std::time::Instant;

use eno_core::Name;

/// Bytes that an object may add at once: hundreds of transitions, or a few of the largest objects.
const BURST: u64 = 4 * 1024 * 1024;
/// Bytes that it may add in a second, in the long run: 37 MiB in the 7 days that the outbox keeps.
const PER_SECOND: u64 = 64;

/// What an object may add to the outbox. Beyond that, its transitions take the place of its last one.
#[derive(Clone, Debug, Default)]
pub struct Allowance {
    /// Bytes above the long-run rate, as of `at`.
    used: u64,
    at: Option<Instant>,
    /// The last transition that this process wrote.
    last: Option<Last>,
}

#[derive(Clone, Debug)]
struct Last {
    uid: Name,
    /// Number of transitions that it took the place of.
    joined: u64,
}

impl Allowance {
    /// The number of transitions that the next one of this size takes the place of; `None`: it has room of its own.
    /// Only a transition of the same object that this process wrote is replaced.
    pub fn joined(&self, uid: &Name, size: usize, now: Instant) -> Option<u64> {
        let last = self.last.as_ref().filter(|last| last.uid == *uid)?;
        (self.used(now).saturating_add(bytes(size)) > BURST).then_some(last.joined + 1)
    }

    /// A transition was written; `joined`: the result of [`Self::joined`].
    pub fn written(&mut self, uid: &Name, size: usize, joined: Option<u64>, now: Instant) {
        if joined.is_none() {
            self.used = self.used(now).saturating_add(bytes(size));
            self.at = Some(now);
        }
        self.last = Some(Last { uid: uid.clone(), joined: joined.unwrap_or_default() });
    }

    fn used(&self, now: Instant) -> u64 {
        let seconds = self.at.map_or(0, |at| now.saturating_duration_since(at).as_secs());
        self.used.saturating_sub(seconds.saturating_mul(PER_SECOND))
    }
}

fn bytes(size: usize) -> u64 {
    u64::try_from(size).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Writes a transition, and returns what it took the place of.
    fn write(allowance: &mut Allowance, uid: &str, size: usize, now: Instant) -> Option<u64> {
        let joined = allowance.joined(&uid.into(), size, now);
        allowance.written(&uid.into(), size, joined, now);
        joined
    }

    #[test]
    fn toggled_object_joins_until_time_has_passed() {
        let (mut allowance, start) = (Allowance::default(), Instant::now());
        let size = 20_000;
        let kept = (0..1000).take_while(|_| write(&mut allowance, "u", size, start).is_none()).count();
        assert_eq!(kept as u64, BURST / size as u64);
        assert_eq!(write(&mut allowance, "u", size, start), Some(2));
        assert_eq!(write(&mut allowance, "u", size, start), Some(3));
        let later = start + Duration::from_secs(size as u64 / PER_SECOND + 1);
        assert_eq!(write(&mut allowance, "u", size, later), None);
        assert_eq!(write(&mut allowance, "u", size, later), Some(1));
    }

    #[test]
    fn week_of_toggling_is_bounded() {
        let (mut allowance, start) = (Allowance::default(), Instant::now());
        let size = 100_000;
        let week = Duration::from_hours(7 * 24);
        let added: usize = (0..week.as_secs() / 10)
            .filter(|n| write(&mut allowance, "u", size, start + Duration::from_secs(n * 10)).is_none())
            .count();
        let bound = BURST + week.as_secs() * PER_SECOND;
        assert!((added * size) as u64 <= bound, "{added}");
    }

    #[test]
    fn transition_of_another_object_is_never_replaced() {
        let (mut allowance, now) = (Allowance::default(), Instant::now());
        let size = usize::try_from(BURST).unwrap() + 1;
        // It has no predecessor that this process wrote.
        assert_eq!(write(&mut allowance, "u", size, now), None);
        assert_eq!(write(&mut allowance, "u", size, now), Some(1));
        // An object of the same name.
        assert_eq!(write(&mut allowance, "v", size, now), None);
        assert_eq!(write(&mut allowance, "v", size, now), Some(1));
    }
}
