//! ConcurrencyPermits among the targets that are worked on at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::watch;

/// So many permits.
#[derive(Clone, Debug)]
pub(crate) struct ConcurrencyPermits {
    limit: usize,
    taken: watch::Sender<usize>,
}

impl ConcurrencyPermits {
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, taken: watch::Sender::new(0) }
    }

    /// A place, if one is free.
    pub(crate) fn take(&self) -> Option<ConcurrencyPermit> {
        let mine = AtomicBool::new(true);
        self.try_take().then(|| ConcurrencyPermit(Some(Arc::new(Taken { permits: self.clone(), mine }))))
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

/// The place of one job, for as long as one of its clones lives. By default there are permits for all.
#[derive(Clone, Debug, Default)]
pub(crate) struct ConcurrencyPermit(Option<Arc<Taken>>);

#[derive(Debug)]
struct Taken {
    permits: ConcurrencyPermits,
    mine: AtomicBool,
}

impl ConcurrencyPermit {
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
            taken.permits.taken.send_modify(|taken| *taken += 1);
        }
    }

    /// Takes one again as soon as one is free.
    pub(crate) async fn take_again(&self) {
        let Some(taken) = &self.0 else { return };
        let mut others = taken.permits.taken();
        loop {
            // Marks as seen what is looked at.
            others.borrow_and_update();
            if taken.mine.load(Ordering::Acquire) {
                return;
            }
            if taken.permits.try_take() {
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
            self.permits.taken.send_modify(|taken| *taken = taken.saturating_sub(1));
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
        let permits = ConcurrencyPermits::new(1);
        let first = permits.take().unwrap();
        assert!(permits.take().is_none());
        first.give_up();
        first.give_up();
        let second = permits.take().unwrap();
        let mut again = Box::pin(first.take_again());
        assert!(futures::poll!(again.as_mut()).is_pending());
        drop(second);
        again.await;
        assert!(permits.take().is_none());
        first.give_up();
        let third = permits.take().unwrap();
        first.insist();
        assert_eq!(*permits.taken().borrow(), 2);
        drop((first, third));
        assert_eq!(*permits.taken().borrow(), 0);
    }
}
