//! Waits until a pool has changed so that a pod may get an address.

use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use eno_ipam::PoolDir;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};

/// A pool that can't be watched is looked at so often: the system may have no more inotify instances.
const PERIOD: Duration = Duration::from_secs(1);

const RANGES: &CStr = c"ranges.json";

/// Notifications about pools.
pub struct Changes {
    /// `None`: the system gives none.
    inotify: Option<Arc<OwnedFd>>,
    /// All pools are watched.
    is_complete: bool,
    receiver: Receiver<()>,
    /// Keeps the channel open.
    _sender: Sender<()>,
}

impl Changes {
    pub fn new() -> Self {
        let (sender, receiver) = channel();
        let inotify = inotify::init(CreateFlags::CLOEXEC).ok().map(Arc::new);
        if let Some(inotify) = inotify.clone() {
            let sender = sender.clone();
            std::thread::spawn(move || notify(&inotify, &sender));
        }
        Self { is_complete: inotify.is_some(), inotify, receiver, _sender: sender }
    }

    /// Watches a pool: its ranges are replaced by rename(2), and files of leases are removed.
    pub fn watch(&mut self, pool: &PoolDir) {
        let Some(inotify) = &self.inotify else { return };
        let folder = WatchFlags::ONLYDIR | WatchFlags::DONT_FOLLOW;
        let watched = inotify::add_watch(inotify, pool.path(), folder | WatchFlags::MOVED_TO)
            .and(inotify::add_watch(inotify, pool.leases_path(), folder | WatchFlags::DELETE));
        self.is_complete &= watched.is_ok();
    }

    /// Waits for a change, or for a while if not all pools are watched. False: it is too late.
    pub fn wait(&self, until: Instant) -> bool {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return false;
        }
        let _ = self.receiver.recv_timeout(if self.is_complete { left } else { left.min(PERIOD) });
        while self.receiver.try_recv().is_ok() {}
        true
    }
}

/// Hands on what may help, until the process ends.
fn notify(inotify: &OwnedFd, sender: &Sender<()>) {
    let mut buffer = [MaybeUninit::uninit(); 4096];
    let mut reader = Reader::new(inotify, &mut buffer);
    while let Ok(event) = reader.next() {
        let of_others = event.events().contains(ReadFlags::MOVED_TO) && event.file_name() != Some(RANGES);
        if !of_others && sender.send(()).is_err() {
            return;
        }
    }
}
