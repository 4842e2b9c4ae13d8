//! A queue of keys with work to do, now or later.

use std::hash::Hash;
use std::time::Instant;

use crate::{DelayQueue, FairQueue};

/// Keys that have work now, served fairly by namespace, and keys that have work later. A key with work now stays in
/// its place when it is added again.
#[derive(Debug)]
pub struct WorkQueue<K, T = Instant> {
    namespace: fn(&K) -> &str,
    ready: FairQueue<K>,
    later: DelayQueue<K, T>,
}

impl<K: Clone + Eq + Hash + Ord, T: Copy + Ord> WorkQueue<K, T> {
    /// An empty queue. `namespace` returns the namespace of a key; keys without one count as one namespace.
    #[must_use]
    pub fn new(namespace: fn(&K) -> &str) -> Self {
        Self { namespace, ready: FairQueue::default(), later: DelayQueue::default() }
    }

    /// The key has work now.
    pub fn add(&mut self, key: &K) {
        self.later.remove(key);
        self.ready.push((self.namespace)(key), key.clone());
    }

    /// The key has work at this time, unless it has work before.
    pub fn add_at(&mut self, key: &K, at: T) {
        if !self.ready.contains(key) && self.later.due(key).is_none_or(|due| at < due) {
            self.later.insert(key.clone(), at);
        }
    }

    /// Removes the next key with work now.
    pub fn pop(&mut self, now: T) -> Option<K> {
        while let Some(key) = self.later.pop(now) {
            self.add(&key);
        }
        self.ready.pop()
    }

    /// When the first of the delayed keys has work.
    pub fn wake(&self) -> Option<T> {
        self.later.wake()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn namespace(key: &(&'static str, u32)) -> &'static str {
        key.0
    }

    #[test]
    fn delayed_keys_are_served_fairly_once_due() {
        let mut queue = WorkQueue::new(namespace);
        for n in (0..10_000_u32).chain(0..10_000) {
            queue.add(&("flood", n));
        }
        queue.add_at(&("other", 0), 5);
        assert_eq!(
            (queue.wake(), queue.pop(4), queue.pop(4)),
            (Some(5), Some(("flood", 0)), Some(("flood", 1)))
        );
        assert_eq!((queue.pop(5), queue.pop(5)), (Some(("flood", 2)), Some(("other", 0))));
        queue.add(&("", 0));
        queue.add(&("flood", 0));
        assert_eq!((queue.pop(5), queue.pop(5)), (Some(("flood", 3)), Some(("", 0))));
        assert_eq!(std::iter::from_fn(|| queue.pop(5)).count(), 10_000 - 4 + 1);
    }

    #[test]
    fn earliest_time_of_a_key_counts() {
        let mut queue = WorkQueue::new(namespace);
        for at in [7, 5, 9] {
            queue.add_at(&("a", 0), at);
        }
        assert_eq!(queue.wake(), Some(5));
        queue.add(&("a", 0));
        queue.add_at(&("a", 0), 3);
        assert_eq!((queue.wake(), queue.pop(0), queue.pop(9)), (None, Some(("a", 0)), None));
    }
}
