//! Hearing of changes by another hand, and not of one's own.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::Stream;
use tokio::io::unix::AsyncFd;
use tokio::sync::{Mutex, Notify, OwnedMutexGuard};
use tokio::task::AbortHandle;

use super::Sandbox;
use crate::netlink::{Namespace, Watch};

/// Changes come in bursts, and those of a routing daemon never end: they are gathered for this long.
const GATHER: Duration = Duration::from_millis(100);

/// How often it is looked whether a pod's namespace has ended: to listen in it keeps it alive.
const ALIVE: Duration = Duration::from_secs(2);

/// Where news is told and heard.
#[derive(Clone, Debug, Default)]
pub struct News(Arc<Notify>);

impl News {
    /// One item for all that was told since the last.
    pub fn stream(&self) -> impl Stream<Item = ()> + Send + use<> {
        let news = Arc::clone(&self.0);
        futures::stream::unfold(news, |news| async move {
            news.notified().await;
            tokio::time::sleep(GATHER).await;
            Some(((), news))
        })
    }
}

/// A namespace that is listened to.
#[derive(Clone, Debug)]
pub struct Watched {
    /// Held by the task alone: when that ends, nothing keeps the namespace.
    fd: Weak<AsyncFd<Watch>>,
    quiet: Arc<Mutex<()>>,
    news: News,
    /// Something was heard since this was last looked at.
    stirred: Arc<AtomicBool>,
    _task: Arc<Stop>,
}

/// Ends the task with the last that holds it.
#[derive(Debug)]
struct Stop(AbortHandle);

impl Drop for Stop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// While this is held nothing is told.
#[derive(Debug)]
pub struct Quiet {
    fd: Arc<AsyncFd<Watch>>,
    _guard: OwnedMutexGuard<()>,
}

impl Quiet {
    /// Forgets what has come so far.
    pub fn drain(&self) {
        self.fd.get_ref().drain();
    }
}

impl Watched {
    /// Listens; for a pod's namespace, until it is no longer at its path.
    pub fn start(watch: Watch, news: &News, sandbox: Option<Sandbox>) -> io::Result<Self> {
        // Its successor is unsafe to call since a type may lie about its descriptor; this one owns it and keeps it.
        #[expect(deprecated, reason = "unsafe code is forbidden here")]
        let fd = Arc::new(AsyncFd::new(watch)?);
        let quiet = Arc::new(Mutex::new(()));
        let weak = Arc::downgrade(&fd);
        let stirred = Arc::new(AtomicBool::new(false));
        let task = tokio::spawn(listen(fd, Arc::clone(&quiet), news.clone(), Arc::clone(&stirred), sandbox));
        let stop = Arc::new(Stop(task.abort_handle()));
        Ok(Self { fd: weak, quiet, news: news.clone(), stirred, _task: stop })
    }

    /// It still listens, and there is no news.
    pub fn is_quiet(&self) -> bool {
        let Some(fd) = self.fd.upgrade() else { return false };
        if fd.get_ref().drain() {
            tell(&self.news, &self.stirred);
        }
        !self.stirred.load(Ordering::Acquire)
    }

    /// All is about to be looked at: what was heard so far is seen then.
    pub fn forget_news(&self) {
        self.stirred.store(false, Ordering::Release);
        if let Some(fd) = self.fd.upgrade() {
            fd.get_ref().drain();
        }
    }

    /// From now on nothing is told, if it still listens.
    pub async fn hush(&self) -> Option<Quiet> {
        let guard = Arc::clone(&self.quiet).lock_owned().await;
        self.stirred.store(false, Ordering::Release);
        Some(Quiet { fd: self.fd.upgrade()?, _guard: guard })
    }

    /// It still listens.
    pub fn listens(&self) -> bool {
        self.fd.strong_count() > 0
    }
}

fn tell(news: &News, stirred: &AtomicBool) {
    stirred.store(true, Ordering::Release);
    news.0.notify_one();
}

async fn listen(
    fd: Arc<AsyncFd<Watch>>,
    quiet: Arc<Mutex<()>>,
    news: News,
    stirred: Arc<AtomicBool>,
    sandbox: Option<Sandbox>,
) {
    let mut alive = tokio::time::interval(ALIVE);
    loop {
        let readable = tokio::select! {
            readable = fd.readable() => readable,
            _ = alive.tick(), if sandbox.is_some() => {
                let ended = sandbox.as_ref().is_some_and(|pod| Namespace::open_exactly(&pod.path, pod.id).is_err());
                if ended {
                    return;
                }
                continue;
            }
        };
        let Ok(mut guard) = readable else { return };
        let _quiet = quiet.lock().await;
        guard.clear_ready();
        if fd.get_ref().drain() {
            tell(&news, &stirred);
        }
    }
}
