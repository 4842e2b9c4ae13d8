//! The state with which [`Driver::changed`](crate::Driver::changed) compares what it is notified of.

use std::mem;
use std::sync::Arc;

use tokio::sync::watch;

/// What the last reconcile of a target has left.
#[derive(Debug)]
pub enum Baseline<T> {
    /// There was no reconcile yet, or one is in progress.
    Unset,
    /// The last reconcile failed or was dropped, so any change may let a retry succeed.
    Failed,
    /// The last reconcile observed this.
    Observed(Arc<T>),
}

/// Sets the baseline when a reconcile ends or its future is dropped.
#[derive(Debug)]
pub struct BaselineGuard<'a, T> {
    baseline: &'a watch::Sender<Baseline<T>>,
    /// The baseline before the reconcile.
    pub before: Baseline<T>,
    /// The baseline after the reconcile.
    pub next: Baseline<T>,
}

impl<'a, T> BaselineGuard<'a, T> {
    /// Starts a reconcile: there is no baseline, and if the reconcile sets no other, it has failed.
    pub fn start(baseline: &'a watch::Sender<Baseline<T>>) -> Self {
        let before = baseline.send_replace(Baseline::Unset);
        Self { baseline, before, next: Baseline::Failed }
    }
}

impl<T> Drop for BaselineGuard<'_, T> {
    fn drop(&mut self) {
        self.baseline.send_replace(mem::replace(&mut self.next, Baseline::Unset));
    }
}
