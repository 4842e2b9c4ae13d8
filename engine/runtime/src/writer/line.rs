//! News of ready objects, one after the other. Where a switch that dies concerns thousands of them, neither the API
//! server nor anybody who watches is to be kept from changes of others. Pure: time comes in.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use eno_core::Key;

/// News comes so far apart,
const APART: Duration = Duration::from_millis(20);
/// and so far while something else is written that often:
const BESIDE: Duration = Duration::from_millis(250);
/// less than this ago.
const LATELY: Duration = Duration::from_millis(300);

/// Whose news waits, and since when the last is written.
#[derive(Debug)]
pub struct Line {
    keys: VecDeque<Key>,
    last: Instant,
    other: Instant,
}

impl Line {
    /// Nobody waits.
    pub fn new(now: Instant) -> Self {
        Self { keys: VecDeque::new(), last: now, other: now }
    }

    /// The last in line.
    pub fn push(&mut self, key: Key) {
        self.keys.push_back(key);
    }

    /// Something that is no news is written.
    pub fn gives_way(&mut self, now: Instant) {
        self.other = now;
    }

    /// When the first one's turn comes.
    pub fn due(&self) -> Option<Instant> {
        let quiet = (self.other + LATELY).min(self.last + BESIDE);
        self.keys.front().map(|_| (self.last + APART).max(quiet))
    }

    /// The first, if its turn has come.
    pub fn pop(&mut self, now: Instant) -> Option<Key> {
        self.due().filter(|due| *due <= now)?;
        self.keys.pop_front()
    }

    /// It had its turn.
    pub fn told(&mut self, now: Instant) {
        self.last = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use eno_core::Kind;

    #[test]
    fn news_gives_way_and_still_comes() {
        let mut now = Instant::now();
        let mut line = Line::new(now);
        assert_eq!(line.due(), None);
        let keys = ["a", "b", "c"].map(|name| Key::cluster(Kind::L2Service, &name.into()));
        for key in &keys {
            line.push(key.clone());
        }
        // Something else is written all the time.
        line.gives_way(now);
        now += BESIDE;
        line.gives_way(now);
        assert_eq!(line.pop(now).as_ref(), Some(&keys[0]));
        line.told(now);
        now += Duration::from_millis(200);
        line.gives_way(now);
        assert_eq!((line.pop(now), line.due()), (None, Some(now + Duration::from_millis(50))));
        // Then nothing else.
        now += LATELY;
        assert_eq!(line.pop(now).as_ref(), Some(&keys[1]));
        line.told(now);
        assert_eq!((line.pop(now), line.due()), (None, Some(now + APART)));
        assert_eq!(line.pop(now + APART).as_ref(), Some(&keys[2]));
        assert_eq!(line.due(), None);
    }
}
