//! Detects what the plugin does in the pools, by inotify(7).
//!
//! An event says only that something has changed. So the pools are read again. No difference, as after the agent's own
//! changes, wakes nobody.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use eno_sbi::Baseline;
use futures::Stream;
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::time::{Instant, sleep, timeout_at};
use tracing::warn;

use super::pool::Contents;
use super::{Last, Pools, Shared};
use crate::netlink::run_on_worker;

/// Each pod writes several files: their events are handled together.
const DEBOUNCE: Duration = Duration::from_millis(50);
/// Maximum delay of what nobody waits for.
const PATIENCE: Duration = Duration::from_millis(500);
/// Delay before the next attempt after a failure.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);

/// Files appear in a folder or disappear from it.
const EVENTS: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::DELETE)
    .union(WatchFlags::MOVED_FROM)
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::ONLYDIR)
    .union(WatchFlags::DONT_FOLLOW);

/// Yields when the pools differ from the last reconcile.
pub(super) fn changed(shared: Arc<Shared>) -> impl Stream<Item = ()> + Send + 'static {
    let watcher = Watcher { shared, events: None };
    futures::stream::unfold(watcher, |mut watcher| async move {
        watcher.next().await;
        Some(((), watcher))
    })
}

struct Watcher {
    shared: Arc<Shared>,
    /// The events; absent: not subscribed yet.
    events: Option<AsyncFd<OwnedFd>>,
}

/// How soon a difference is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Difference {
    None,
    Later,
    AtOnce,
}

impl Watcher {
    /// Waits until the pools differ from the last reconcile.
    async fn next(&mut self) {
        loop {
            self.wait_for_event().await;
            let latest = Instant::now() + PATIENCE;
            loop {
                sleep(DEBOUNCE).await;
                match self.difference().await {
                    Difference::None => break,
                    Difference::AtOnce => return,
                    Difference::Later if timeout_at(latest, self.wait_for_event()).await.is_err() => return,
                    Difference::Later => {}
                }
            }
        }
    }

    /// Waits for an event. Also returns after subscribing: earlier changes may have been missed.
    async fn wait_for_event(&mut self) {
        loop {
            let failed = match &self.events {
                Some(events) => match event(events).await {
                    Ok(()) => return,
                    Err(error) => error,
                },
                None => match subscribe(&self.shared.folder) {
                    Ok(events) => {
                        self.events = Some(events);
                        return;
                    }
                    // Without the folder, the reconciles say so.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => std::future::pending().await,
                    Err(error) => error,
                },
            };
            warn!(error = %failed, folder = %self.shared.folder.display(), "can't listen to what the plugin does");
            self.events = None;
            sleep(RETRY_INTERVAL).await;
        }
    }

    /// Compares the pools with the last reconcile, after the present one. Folders that appeared are watched first, so
    /// that no change is missed.
    async fn difference(&mut self) -> Difference {
        let watched = self.events.as_ref().map_or(Ok(()), |events| watch(events, &self.shared.folder));
        if let Err(error) = watched {
            warn!(%error, folder = %self.shared.folder.display(), "can't listen to what the plugin does");
            self.events = None;
        }
        let writing = Arc::clone(&self.shared.writing).lock_owned().await;
        let last = match &*self.shared.last.borrow() {
            Baseline::Observed(last) => Arc::clone(last),
            // Without a command nothing is known, and a failed reconcile is retried anyway.
            Baseline::Unset | Baseline::Failed => return Difference::None,
        };
        let shared = Arc::clone(&self.shared);
        let look = move || {
            let _writing = writing;
            difference(&last, &shared.look(&last.commanded))
        };
        run_on_worker(look).await.unwrap_or(Difference::AtOnce)
    }
}

fn difference(last: &Last, pools: &Pools) -> Difference {
    let empty = Contents::default();
    let names = last.pools.keys().chain(pools.keys());
    let each = names.map(|subnet| {
        let [before, now] = [&last.pools, pools].map(|pools| pools.get(subnet).unwrap_or(&empty));
        if before == now {
            Difference::None
        } else if is_urgent(before, now) {
            Difference::AtOnce
        } else {
            Difference::Later
        }
    });
    each.max().unwrap_or(Difference::None)
}

/// Whether a pod waits or the next one would, or somebody else changed the ranges.
fn is_urgent(before: &Contents, now: &Contents) -> bool {
    before.ranges != now.ranges
        || before.applied.waiting != now.applied.waiting
        || before.applied.unread != now.applied.unread
        || (before.free() > 0 && now.free() == 0)
}

fn subscribe(folder: &Path) -> io::Result<AsyncFd<OwnedFd>> {
    let events = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
    // The successor of this function is unsafe: a type might change its descriptor. `OwnedFd` owns its descriptor.
    #[expect(deprecated, reason = "unsafe code is forbidden here")]
    let events = AsyncFd::with_interest(events, Interest::READABLE)?;
    watch(&events, folder)?;
    Ok(events)
}

/// Watches the folder, its pools and theirs. A folder that is watched already stays so.
fn watch(events: &AsyncFd<OwnedFd>, folder: &Path) -> io::Result<()> {
    inotify::add_watch(events.get_ref(), folder, EVENTS)?;
    for pool in eno_ipam::Root::new(folder).pools()? {
        let pool = folder.join(pool);
        for folder in [pool.clone(), pool.join("leases"), pool.join("waiting")] {
            match inotify::add_watch(events.get_ref(), folder, EVENTS) {
                // It does not exist yet, or any more.
                Ok(_) | Err(rustix::io::Errno::NOENT) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(())
}

async fn event(events: &AsyncFd<OwnedFd>) -> io::Result<()> {
    loop {
        events.readable().await?.clear_ready();
        if drain(events.get_ref())? {
            return Ok(());
        }
    }
}

/// Discards the waiting events. True when there were any.
fn drain(events: &OwnedFd) -> io::Result<bool> {
    let mut buffer = [0_u8; 4096];
    let mut any = false;
    loop {
        match rustix::io::read(events, &mut buffer) {
            Ok(_) => any = true,
            Err(rustix::io::Errno::AGAIN) => return Ok(any),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}
