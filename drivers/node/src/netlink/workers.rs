//! Threads that enter namespaces. One that has done its work goes home, to the namespace that it was started in, and
//! waits a while for more: to start a thread costs more than most of what is done on it. Nobody waits for it to get
//! there: all work begins with entering a namespace.

use std::io;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};
use std::time::Duration;

use super::Namespace;

/// Work. What it gives tells of its end, once the thread can be had again.
pub(super) type Job = Box<dyn FnOnce() -> Tell + Send>;
pub(super) type Tell = Box<dyn FnOnce()>;

/// Threads that wait at most.
const KEPT: usize = 4;

/// How long one waits for more.
const PATIENCE: Duration = Duration::from_secs(5);

/// The last that became free comes first: what it needs is still in the caches.
static IDLE: Mutex<Vec<Idle>> = Mutex::new(Vec::new());

/// A thread that waits at home.
struct Idle {
    thread: ThreadId,
    jobs: Sender<Job>,
}

/// Does the work on a thread that may enter any namespace.
pub(super) fn spawn(job: Job) -> io::Result<()> {
    let free = idle().pop();
    let job = match free {
        Some(Idle { jobs, .. }) => match jobs.send(job) {
            Ok(()) => return Ok(()),
            Err(mpsc::SendError(job)) => job,
        },
        None => job,
    };
    let builder = thread::Builder::new().name("netns".to_owned()).stack_size(512 * 1024);
    builder.spawn(move || live(job)).map(drop)
}

/// One that can't go home ends, unless it has work already: it would keep a namespace alive that has ended otherwise.
fn live(first: Job) {
    let home = Namespace::current();
    let (jobs, more) = mpsc::channel();
    let mut next = Some(first);
    while let Some(job) = next {
        let tell = job();
        let free = home.is_ok() && offer(&jobs);
        tell();
        let at_home = home.as_ref().is_ok_and(Namespace::go_home);
        let patience = if at_home { PATIENCE } else { Duration::ZERO };
        next = if free { wait(&more, patience) } else { None };
    }
}

/// False when enough others wait.
fn offer(jobs: &Sender<Job>) -> bool {
    let mut idle = idle();
    let room = idle.len() < KEPT;
    if room {
        idle.push(Idle { thread: thread::current().id(), jobs: jobs.clone() });
    }
    room
}

fn wait(more: &Receiver<Job>, patience: Duration) -> Option<Job> {
    if let Ok(job) = more.recv_timeout(patience) {
        return Some(job);
    }
    let me = thread::current().id();
    let mut idle = idle();
    let waits = idle.iter().position(|one| one.thread == me);
    if let Some(at) = waits {
        idle.remove(at);
        return None;
    }
    drop(idle);
    // Someone has just taken it, with work that is on its way.
    more.recv().ok()
}

fn idle() -> MutexGuard<'static, Vec<Idle>> {
    IDLE.lock().unwrap_or_else(PoisonError::into_inner)
}
