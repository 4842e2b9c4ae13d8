//! Worker threads that enter namespaces. An idle worker returns to the namespace that it was started in and waits for
//! more work, since starting a thread costs more than most jobs. A job may be sent before the worker has returned:
//! every job begins with entering a namespace.

use std::io;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};
use std::time::Duration;

use super::Namespace;

/// A unit of work. It returns a callback that reports completion, which runs after the thread is available again.
pub(super) type Job = Box<dyn FnOnce() -> Completion + Send>;
pub(super) type Completion = Box<dyn FnOnce()>;

/// Maximum idle threads.
const MAX_IDLE: usize = 4;

/// How long an idle thread waits for a job before it ends.
const IDLE_TIMEOUT: Duration = Duration::from_secs(5);

/// Idle threads. The most recently used is reused first: its data is still in the CPU caches.
static IDLE: Mutex<Vec<Idle>> = Mutex::new(Vec::new());

/// A thread that waits for a job.
struct Idle {
    thread: ThreadId,
    jobs: Sender<Job>,
}

/// Does the job on an idle worker, or on a new one.
pub(super) fn spawn(job: Job) -> io::Result<()> {
    let parked = idle().pop();
    let job = match parked {
        Some(Idle { jobs, .. }) => match jobs.send(job) {
            Ok(()) => return Ok(()),
            Err(mpsc::SendError(job)) => job,
        },
        None => job,
    };
    let builder = thread::Builder::new().name("netns".to_owned()).stack_size(512 * 1024);
    builder.spawn(move || work_loop(job)).map(drop)
}

/// Does jobs until the thread has been idle for too long. A thread that can't return to its own namespace ends at once,
/// unless a job is on its way: it would keep another namespace alive.
fn work_loop(first: Job) {
    let home = Namespace::current();
    let (jobs, next_jobs) = mpsc::channel();
    let mut next = Some(first);
    while let Some(job) = next {
        let complete = job();
        let parked = home.is_ok() && park(&jobs);
        complete();
        let at_home = home.as_ref().is_ok_and(Namespace::return_home);
        let timeout = if at_home { IDLE_TIMEOUT } else { Duration::ZERO };
        next = if parked { wait(&next_jobs, timeout) } else { None };
    }
}

/// Adds the calling thread to the idle ones. False when there are enough.
fn park(jobs: &Sender<Job>) -> bool {
    let mut idle = idle();
    let room = idle.len() < MAX_IDLE;
    if room {
        idle.push(Idle { thread: thread::current().id(), jobs: jobs.clone() });
    }
    room
}

fn wait(next_jobs: &Receiver<Job>, timeout: Duration) -> Option<Job> {
    if let Ok(job) = next_jobs.recv_timeout(timeout) {
        return Some(job);
    }
    let current = thread::current().id();
    let mut idle = idle();
    let position = idle.iter().position(|one| one.thread == current);
    if let Some(at) = position {
        idle.remove(at);
        return None;
    }
    drop(idle);
    // Another thread has just taken it from the list, and is about to send a job.
    next_jobs.recv().ok()
}

fn idle() -> MutexGuard<'static, Vec<Idle>> {
    IDLE.lock().unwrap_or_else(PoisonError::into_inner)
}
