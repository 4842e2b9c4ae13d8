//! A queue of status writes that change no phase, one at a time. A failed switch may concern thousands of ready
//! objects; their writes must not delay urgent ones on the API server and its watchers. Pure: the time is an argument.
//! The queue as a whole has a rate, and no object has a time of its own, so it is no [`eno_queue::DelayQueue`].

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use eno_core::Key;

/// Minimum interval of these writes.
const MIN_INTERVAL: Duration = Duration::from_millis(20);
/// Maximum interval while other writes happen.
const MAX_WAIT: Duration = Duration::from_millis(250);
/// Other writes count as ended after this time.
const QUIET_PERIOD: Duration = Duration::from_millis(300);

/// The queued objects, and the times of the last writes.
#[derive(Debug)]
pub struct LowPriorityQueue {
    keys: VecDeque<Key>,
    last: Instant,
    other: Instant,
}

impl LowPriorityQueue {
    /// An empty queue.
    pub fn new(now: Instant) -> Self {
        Self { keys: VecDeque::new(), last: now, other: now }
    }

    /// Appends an object.
    pub fn push(&mut self, key: Key) {
        self.keys.push_back(key);
    }

    /// Another write was made.
    pub fn other_written(&mut self, now: Instant) {
        self.other = now;
    }

    /// When the first object may be written.
    pub fn due(&self) -> Option<Instant> {
        let quiet = (self.other + QUIET_PERIOD).min(self.last + MAX_WAIT);
        self.keys.front().map(|_| (self.last + MIN_INTERVAL).max(quiet))
    }

    /// Removes the first object if it may be written.
    pub fn pop(&mut self, now: Instant) -> Option<Key> {
        self.due().filter(|due| *due <= now)?;
        self.keys.pop_front()
    }

    /// A low-priority write was made.
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
        // Other writes happen all the time.
        queue.other_written(now);
        now += MAX_WAIT;
        queue.other_written(now);
        assert_eq!(queue.pop(now).as_ref(), Some(&keys[0]));
        queue.written(now);
        now += Duration::from_millis(200);
        queue.other_written(now);
        assert_eq!((queue.pop(now), queue.due()), (None, Some(now + Duration::from_millis(50))));
        // No other writes any more.
        now += QUIET_PERIOD;
        assert_eq!(queue.pop(now).as_ref(), Some(&keys[1]));
        queue.written(now);
        assert_eq!((queue.pop(now), queue.due()), (None, Some(now + MIN_INTERVAL)));
        assert_eq!(queue.pop(now + MIN_INTERVAL).as_ref(), Some(&keys[2]));
        assert_eq!(queue.due(), None);
    }
}
