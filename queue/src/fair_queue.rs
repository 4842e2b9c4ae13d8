//! A queue that serves its lanes in turn. Pure.

use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::Hash;

/// Items in lanes, such as namespaces, that are served round-robin: an item waits for at most one item of
/// each other lane per item before it in its own lane. Each lane is first in, first out. An item is queued once.
#[derive(Debug)]
pub struct FairQueue<T> {
    lanes: HashMap<Box<str>, VecDeque<T>>,
    /// The lanes with items, the next one first.
    order: VecDeque<Box<str>>,
    queued: HashSet<T>,
}

impl<T> Default for FairQueue<T> {
    fn default() -> Self {
        Self { lanes: HashMap::new(), order: VecDeque::new(), queued: HashSet::new() }
    }
}

impl<T: Clone + Eq + Hash> FairQueue<T> {
    /// Appends an item to a lane, unless it is queued.
    pub fn push(&mut self, lane: &str, item: T) {
        if !self.queued.insert(item.clone()) {
            return;
        }
        if let Some(waiting) = self.lanes.get_mut(lane) {
            waiting.push_back(item);
            return;
        }
        self.lanes.insert(lane.into(), VecDeque::from([item]));
        self.order.push_back(lane.into());
    }

    /// Removes the next item.
    pub fn pop(&mut self) -> Option<T> {
        let lane = self.order.pop_front()?;
        let waiting = self.lanes.get_mut(&lane)?;
        let item = waiting.pop_front()?;
        self.queued.remove(&item);
        if waiting.is_empty() {
            self.lanes.remove(&lane);
        } else {
            self.order.push_back(lane);
        }
        Some(item)
    }

    /// True when the item is queued.
    pub fn contains(&self, item: &T) -> bool {
        self.queued.contains(item)
    }

    /// Number of queued items.
    pub fn len(&self) -> usize {
        self.queued.len()
    }

    /// True when no item is queued.
    pub fn is_empty(&self) -> bool {
        self.queued.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn pop_takes_one_item_of_each_lane_in_turn() {
        let mut queue = FairQueue::default();
        for n in 0..10_000 {
            queue.push("flood", n);
        }
        queue.push("other", 10_000);
        queue.push("third", 10_001);
        queue.push("other", 10_002);
        queue.push("flood", 7);
        assert!(queue.contains(&7) && queue.len() == 10_003);
        let first: Vec<_> = std::iter::from_fn(|| queue.pop()).take(7).collect();
        assert_eq!(first, [0, 10_000, 10_001, 1, 10_002, 2, 3]);
        // A new lane does not wait for all items of the others.
        queue.push("late", 0);
        let next: Vec<_> = std::iter::from_fn(|| queue.pop()).take(2).collect();
        assert_eq!(next, [4, 0]);
        assert_eq!(std::iter::from_fn(|| queue.pop()).count(), 10_000 - 5);
        assert!(queue.is_empty() && queue.pop().is_none());
    }

    proptest! {
        /// No item is lost, each lane stays in order, and the wait is bounded by the rank in the lane times
        /// the number of lanes.
        #[test]
        fn wait_is_bounded_by_rank_times_lanes(pushes in proptest::collection::vec(0_u8..5, 0..200)) {
            let mut queue = FairQueue::default();
            for (n, lane) in pushes.iter().enumerate() {
                queue.push(&lane.to_string(), (*lane, n));
            }
            let popped: Vec<_> = std::iter::from_fn(|| queue.pop()).collect();
            prop_assert_eq!(popped.len(), pushes.len());
            let lanes: std::collections::BTreeSet<_> = pushes.iter().collect();
            for lane in &lanes {
                let own = popped.iter().enumerate().filter(|(_, (of, _))| of == *lane);
                let mut before = None;
                for (rank, (popped_at, (_, n))) in own.enumerate() {
                    prop_assert!(before < Some(*n));
                    before = Some(*n);
                    prop_assert!(popped_at < (rank + 1) * lanes.len());
                }
            }
        }
    }
}
