//! Permits that limit the number of concurrently worked-on targets.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::watch;

/// A pool of permits.
#[derive(Clone, Debug)]
pub(crate) struct ConcurrencyPermits {
    limit: usize,
    in_use: watch::Sender<usize>,
}

impl ConcurrencyPermits {
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, in_use: watch::Sender::new(0) }
    }

    /// A permit, if one is free.
    pub(crate) fn try_acquire(&self) -> Option<ConcurrencyPermit> {
        let held = AtomicBool::new(true);
        self.try_reserve()
            .then(|| ConcurrencyPermit(Some(Arc::new(PermitState { permits: self.clone(), held }))))
    }

    /// Follows the number of permits in use.
    pub(crate) fn in_use(&self) -> watch::Receiver<usize> {
        self.in_use.subscribe()
    }

    fn try_reserve(&self) -> bool {
        self.in_use.send_if_modified(|count| {
            let free = *count < self.limit;
            *count += usize::from(free);
            free
        })
    }
}

/// The permit of one job, held until its last clone is dropped. The default permit is unlimited.
#[derive(Clone, Debug, Default)]
pub(crate) struct ConcurrencyPermit(Option<Arc<PermitState>>);

#[derive(Debug)]
struct PermitState {
    permits: ConcurrencyPermits,
    held: AtomicBool,
}

impl ConcurrencyPermit {
    /// Returns the permit to the pool. Releasing twice is harmless.
    pub(crate) fn release(&self) {
        if let Some(state) = &self.0 {
            state.release();
        }
    }

    /// Takes a permit again without waiting, exceeding the limit if none is free.
    pub(crate) fn force_acquire(&self) {
        if let Some(state) = &self.0
            && !state.held.swap(true, Ordering::AcqRel)
        {
            state.permits.in_use.send_modify(|count| *count += 1);
        }
    }

    /// Waits for a free permit and takes it.
    pub(crate) async fn reacquire(&self) {
        let Some(state) = &self.0 else { return };
        let mut in_use = state.permits.in_use();
        loop {
            // Marks the current value as seen.
            in_use.borrow_and_update();
            if state.held.load(Ordering::Acquire) {
                return;
            }
            if state.permits.try_reserve() {
                state.held.store(true, Ordering::Release);
                return;
            }
            if in_use.changed().await.is_err() {
                return;
            }
        }
    }
}

impl PermitState {
    fn release(&self) {
        if self.held.swap(false, Ordering::AcqRel) {
            self.permits.in_use.send_modify(|count| *count = count.saturating_sub(1));
        }
    }
}

impl Drop for PermitState {
    fn drop(&mut self) {
        self.release();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn permit_is_released_and_reacquired() {
        let permits = ConcurrencyPermits::new(1);
        let first = permits.try_acquire().unwrap();
        assert!(permits.try_acquire().is_none());
        first.release();
        first.release();
        let second = permits.try_acquire().unwrap();
        let mut again = Box::pin(first.reacquire());
        assert!(futures::poll!(again.as_mut()).is_pending());
        drop(second);
        again.await;
        assert!(permits.try_acquire().is_none());
        first.release();
        let third = permits.try_acquire().unwrap();
        first.force_acquire();
        assert_eq!(*permits.in_use().borrow(), 2);
        drop((first, third));
        assert_eq!(*permits.in_use().borrow(), 0);
    }
}
