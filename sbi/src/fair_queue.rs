//! Whose turn it is when many have much to do. Pure.

use std::collections::{HashMap, VecDeque};

/// Things to do in lanes, such as namespaces, which take turns: who has one thing to do waits for one of each other lane
/// and not for all that others have. Within a lane, first come, first served.
#[derive(Debug)]
pub struct FairQueue<T> {
    lanes: HashMap<Box<str>, VecDeque<T>>,
    /// The lanes that have something, the next one first.
    order: VecDeque<Box<str>>,
    len: usize,
}

impl<T> Default for FairQueue<T> {
    fn default() -> Self {
        Self { lanes: HashMap::new(), order: VecDeque::new(), len: 0 }
    }
}

impl<T> FairQueue<T> {
    /// Puts something at the end of a lane.
    pub fn push(&mut self, lane: &str, thing: T) {
        self.len += 1;
        if let Some(waiting) = self.lanes.get_mut(lane) {
            waiting.push_back(thing);
            return;
        }
        self.lanes.insert(lane.into(), VecDeque::from([thing]));
        self.order.push_back(lane.into());
    }

    /// Takes what is next.
    pub fn pop(&mut self) -> Option<T> {
        let lane = self.order.pop_front()?;
        let waiting = self.lanes.get_mut(&lane)?;
        let thing = waiting.pop_front()?;
        self.len -= 1;
        if waiting.is_empty() {
            self.lanes.remove(&lane);
        } else {
            self.order.push_back(lane);
        }
        Some(thing)
    }

    /// How many things wait.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Nothing waits.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn one_of_each_lane_in_turn() {
        let mut turns = FairQueue::default();
        for n in 0..10_000 {
            turns.push("flood", n);
        }
        turns.push("other", 10_000);
        turns.push("third", 10_001);
        turns.push("other", 10_002);
        assert_eq!(turns.len(), 10_003);
        let first: Vec<_> = std::iter::from_fn(|| turns.pop()).take(7).collect();
        assert_eq!(first, [0, 10_000, 10_001, 1, 10_002, 2, 3]);
        // Who comes late is not behind them all either.
        turns.push("late", 0);
        let next: Vec<_> = std::iter::from_fn(|| turns.pop()).take(2).collect();
        assert_eq!(next, [4, 0]);
        assert_eq!(std::iter::from_fn(|| turns.pop()).count(), 10_000 - 5);
        assert!(turns.is_empty() && turns.pop().is_none());
    }

    proptest! {
        /// Nothing is lost, the order within a lane stays, and nobody waits for more than what is before it in its lane
        /// and as many of each other lane.
        #[test]
        fn nobody_waits_for_long(pushes in proptest::collection::vec(0_u8..5, 0..200)) {
            let mut turns = FairQueue::default();
            for (n, lane) in pushes.iter().enumerate() {
                turns.push(&lane.to_string(), (*lane, n));
            }
            let popped: Vec<_> = std::iter::from_fn(|| turns.pop()).collect();
            prop_assert_eq!(popped.len(), pushes.len());
            let lanes: std::collections::BTreeSet<_> = pushes.iter().collect();
            for lane in &lanes {
                let permits = popped.iter().enumerate().filter(|(_, (of, _))| of == *lane);
                let mut before = None;
                for (rank, (permit, (_, n))) in permits.enumerate() {
                    prop_assert!(before < Some(*n));
                    before = Some(*n);
                    prop_assert!(permit < (rank + 1) * lanes.len());
                }
            }
        }
    }
}
