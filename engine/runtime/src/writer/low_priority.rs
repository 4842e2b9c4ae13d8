//! News of ready objects, one after the other. Where a switch that dies concerns thousands of them, neither the API
//! server nor anybody who watches is to be kept from changes of others. Pure: time comes in.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use eno_core::Key;

/// News comes so far apart,
const MIN_INTERVAL: Duration = Duration::from_millis(20);
/// and so far while something else is written that often:
const MAX_WAIT: Duration = Duration::from_millis(250);
/// less than this ago.
const QUIET_PERIOD: Duration = Duration::from_millis(300);

/// Whose news waits, and since when the last is written.
#[derive(Debug)]
pub struct LowPriorityQueue {
    keys: VecDeque<Key>,
    last: Instant,
    other: Instant,
}

impl LowPriorityQueue {
    /// Nobody waits.
    pub fn new(now: Instant) -> Self {
        Self { keys: VecDeque::new(), last: now, other: now }
    }

    /// The last in line.
    pub fn push(&mut self, key: Key) {
        self.keys.push_back(key);
    }

    /// Something that is no news is written.
    pub fn other_written(&mut self, now: Instant) {
        self.other = now;
    }

    /// When the first one's turn comes.
    pub fn due(&self) -> Option<Instant> {
        let quiet = (self.other + QUIET_PERIOD).min(self.last + MAX_WAIT);
        self.keys.front().map(|_| (self.last + MIN_INTERVAL).max(quiet))
    }

    /// The first, if its turn has come.
    pub fn pop(&mut self, now: Instant) -> Option<Key> {
        self.due().filter(|due| *due <= now)?;
        self.keys.pop_front()
    }

    /// It had its turn.
    pub fn written(&mut self, now: Instant) {
        self.last = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use eno_core::Kind;

    #[test]
    fn low_priority_writes_yield_and_still_proceed() {
        let mut now = Instant::now();
        let mut queue = LowPriorityQueue::new(now);
        assert_eq!(queue.due(), None);
        let keys = ["a", "b", "c"].map(|name| Key::cluster(Kind::L2Service, &name.into()));
        for key in &keys {
            queue.push(key.clone());
        }
        // Something else is written all the time.
        queue.other_written(now);
        now += MAX_WAIT;
        queue.other_written(now);
        assert_eq!(queue.pop(now).as_ref(), Some(&keys[0]));
        queue.written(now);
        now += Duration::from_millis(200);
        queue.other_written(now);
        assert_eq!((queue.pop(now), queue.due()), (None, Some(now + Duration::from_millis(50))));
        // Then nothing else.
        now += QUIET_PERIOD;
        assert_eq!(queue.pop(now).as_ref(), Some(&keys[1]));
        queue.written(now);
        assert_eq!((queue.pop(now), queue.due()), (None, Some(now + MIN_INTERVAL)));
        assert_eq!(queue.pop(now + MIN_INTERVAL).as_ref(), Some(&keys[2]));
        assert_eq!(queue.due(), None);
    }
}
