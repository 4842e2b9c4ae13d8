//! A queue of keys that become due.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

/// Keys with the time at which each is due. `T` is the caller's clock.
///
/// `tokio_util::time::DelayQueue` is not used: it reads the clock itself, so that its users are not pure, and it holds
/// an entry for each insertion of a key.
#[derive(Debug)]
pub struct DelayQueue<K, T = Instant> {
    times: BTreeMap<K, T>,
    order: BTreeSet<(T, K)>,
}

impl<K, T> Default for DelayQueue<K, T> {
    fn default() -> Self {
        Self { times: BTreeMap::new(), order: BTreeSet::new() }
    }
}

impl<K: Clone + Ord, T: Copy + Ord> DelayQueue<K, T> {
    /// The key is due at this time, and not at its former one.
    pub fn insert(&mut self, key: K, at: T) {
        self.remove(&key);
        self.times.insert(key.clone(), at);
        self.order.insert((at, key));
    }

    /// Removes a key. Returns its time.
    pub fn remove<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<T>
    where
        K: Borrow<Q>,
    {
        let (key, at) = self.times.remove_entry(key)?;
        self.order.remove(&(at, key));
        Some(at)
    }

    /// When a key is due.
    pub fn due(&self, key: &K) -> Option<T> {
        self.times.get(key).copied()
    }

    /// Removes the key that is due first, if its time has come.
    pub fn pop(&mut self, now: T) -> Option<K> {
        self.wake().filter(|at| *at <= now)?;
        let (_, key) = self.order.pop_first()?;
        self.times.remove(&key);
        Some(key)
    }

    /// When the first key is due.
    pub fn wake(&self) -> Option<T> {
        self.order.first().map(|(at, _)| *at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_popped_when_due_in_order_of_their_last_time() {
        let mut queue = DelayQueue::default();
        for (key, at) in [("a", 5), ("b", 3), ("c", 4), ("a", 9), ("c", 1)] {
            queue.insert(key, at);
        }
        assert_eq!((queue.wake(), queue.due(&"a"), queue.pop(0)), (Some(1), Some(9), None));
        assert_eq!(std::iter::from_fn(|| queue.pop(5)).collect::<Vec<_>>(), ["c", "b"]);
        assert_eq!((queue.remove(&"a"), queue.remove(&"a"), queue.due(&"a")), (Some(9), None, None));
        assert_eq!((queue.wake(), queue.pop(10)), (None, None));
    }
}
