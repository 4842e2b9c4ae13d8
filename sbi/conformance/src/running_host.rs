//! A host that runs a driver in a task, for tests.

use std::time::Duration;

use eno_sbi::Driver;
use eno_sbi::host::{self, HostError, HostOptions};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Time limit for an orderly end.
const END_TIMEOUT: Duration = Duration::from_secs(40);

/// A running host.
pub struct RunningHost {
    stop: CancellationToken,
    task: JoinHandle<Result<(), HostError>>,
}

impl RunningHost {
    /// Starts a host of this driver.
    pub fn start<D: Driver>(driver: D, options: HostOptions) -> Self {
        let stop = CancellationToken::new();
        Self { task: tokio::spawn(host::run(driver, options, stop.clone())), stop }
    }

    /// Stops it and waits for its orderly end.
    pub async fn end(self) {
        self.stop.cancel();
        let ended = tokio::time::timeout(END_TIMEOUT, self.task).await.expect("an end");
        ended.expect("no panic").expect("an orderly end");
    }

    /// Ends it at its next await, as if its process were killed.
    pub async fn kill(self) {
        self.task.abort();
        assert!(self.task.await.is_err_and(|ended| ended.is_cancelled()), "it had ended by itself");
    }
}
