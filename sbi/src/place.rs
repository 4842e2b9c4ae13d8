//! Places among the targets that are worked on at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::watch;

/// So many places.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    limit: usize,
    taken: watch::Sender<usize>,
}

impl Places {
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, taken: watch::Sender::new(0) }
    }

    /// A place, if one is free.
    pub(crate) fn take(&self) -> Option<Place> {
        let mine = AtomicBool::new(true);
        self.try_take().then(|| Place(Some(Arc::new(Taken { places: self.clone(), mine }))))
    }

    /// Follows how many are taken.
    pub(crate) fn taken(&self) -> watch::Receiver<usize> {
        self.taken.subscribe()
    }

    fn try_take(&self) -> bool {
        self.taken.send_if_modified(|taken| {
            let free = *taken < self.limit;
            *taken += usize::from(free);
            free
        })
    }
}

/// The place of one job, for as long as one of its clones lives. By default there are places for all.
#[derive(Clone, Debug, Default)]
pub(crate) struct Place(Option<Arc<Taken>>);

#[derive(Debug)]
struct Taken {
    places: Places,
    mine: AtomicBool,
}

impl Place {
    /// Leaves it to another job.
    pub(crate) fn give_up(&self) {
        if let Some(taken) = &self.0 {
            taken.give_up();
        }
    }

    /// Takes one again, if need be one too many.
    pub(crate) fn insist(&self) {
        if let Some(taken) = &self.0
            && !taken.mine.swap(true, Ordering::AcqRel)
        {
            taken.places.taken.send_modify(|taken| *taken += 1);
        }
    }

    /// Takes one again as soon as one is free.
    pub(crate) async fn take_again(&self) {
        let Some(taken) = &self.0 else { return };
        let mut others = taken.places.taken();
        loop {
            // Marks as seen what is looked at.
            others.borrow_and_update();
            if taken.mine.load(Ordering::Acquire) {
                return;
            }
            if taken.places.try_take() {
                taken.mine.store(true, Ordering::Release);
                return;
            }
            if others.changed().await.is_err() {
                return;
            }
        }
    }
}

impl Taken {
    fn give_up(&self) {
        if self.mine.swap(false, Ordering::AcqRel) {
            self.places.taken.send_modify(|taken| *taken = taken.saturating_sub(1));
        }
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.give_up();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_place_is_given_up_and_waited_for() {
        let places = Places::new(1);
        let first = places.take().unwrap();
        assert!(places.take().is_none());
        first.give_up();
        first.give_up();
        let second = places.take().unwrap();
        let mut again = Box::pin(first.take_again());
        assert!(futures::poll!(again.as_mut()).is_pending());
        drop(second);
        again.await;
        assert!(places.take().is_none());
        first.give_up();
        let third = places.take().unwrap();
        first.insist();
        assert_eq!(*places.taken().borrow(), 2);
        drop((first, third));
        assert_eq!(*places.taken().borrow(), 0);
    }
}
