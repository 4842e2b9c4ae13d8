//! Writes objects. For each object in order: outbox, status, finalizer. Many objects are written concurrently.

mod low_priority;
mod queue;
mod work;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use eno_core::{Key, Kind};
use eno_queue::WorkQueue;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::sleep_until;
use tokio_util::sync::CancellationToken;
use tracing::{error, warn};

use low_priority::LowPriorityQueue;
pub use queue::{Change, Job, Removal, WrittenStatus};
use queue::{Next, Queue};
pub use work::WriterContext;
use work::{Failure, carry_out};

use crate::api;
use crate::watch::objects::StoredObject;

/// With more objects than this in progress, low-priority writes wait.
const BUSY_ABOVE: usize = 4;
/// Maximum objects in progress. Others wait, fairly by namespace.
const MAX_RUNNING: usize = 256;

/// Takes jobs until `stop`, which it cancels when another engine leads. `sequences`: the last outbox sequence of each
/// object.
pub async fn run(
    context: Arc<WriterContext>,
    mut jobs: mpsc::UnboundedReceiver<Job>,
    mut sequences: HashMap<Key, u64>,
    stop: CancellationToken,
) {
    let mut queues: HashMap<Key, Queue> = HashMap::new();
    // Objects that may have work.
    let mut work = WorkQueue::new(|key: &Key| &key.namespace);
    let mut running: JoinSet<(Key, queue::Todo, Result<(), Failure>)> = JoinSet::new();
    let mut batch = Vec::new();
    let mut low_priority = LowPriorityQueue::new(Instant::now());
    loop {
        context.events.busy(running.len() > BUSY_ABOVE);
        let low_priority_due = low_priority.due().filter(|_| running.len() <= BUSY_ABOVE);
        let wake =
            work.wake().filter(|_| running.len() < MAX_RUNNING).into_iter().chain(low_priority_due).min();
        tokio::select! {
            () = stop.cancelled() => break,
            count = jobs.recv_many(&mut batch, 4096) => {
                if count == 0 {
                    break;
                }
                for job in batch.drain(..) {
                    let sequence = &mut sequences;
                    let queue = queues
                        .entry(job.key.clone())
                        .or_insert_with(|| Queue::new(&job.key, sequence.remove(&job.key).unwrap_or_default()));
                    if matches!(job.change, Change::Transition { .. } | Change::RepeatTransition { .. }) {
                        context.metrics.outbox_lag.inc();
                    }
                    queue.add(job.change, Instant::now());
                    work.add(&job.key);
                }
            }
            Some(done) = running.join_next() => {
                let Ok((key, todo, result)) = done else { continue };
                if let Err(failure) = &result {
                    if matches!(failure, Failure::Superseded(_)) {
                        error!(%failure, "stepping down");
                        stop.cancel();
                        break;
                    }
                    warn!(object = %key, %failure, "not written");
                    if !failure.retryable() {
                        let lost = i64::try_from(todo.entries.len()).unwrap_or_default();
                        context.metrics.outbox_lag.dec_by(lost);
                    }
                }
                if let Some(queue) = queues.get_mut(&key) {
                    queue.finished(todo, result.err().map(|failure| failure.retryable()), Instant::now());
                    work.add(&key);
                }
            }
            () = async { sleep_until(wake.unwrap_or_else(Instant::now).into()).await }, if wake.is_some() => {}
        }
        while running.len() < MAX_RUNNING {
            let now = Instant::now();
            let busy = running.len() > BUSY_ABOVE;
            let (key, is_turn) = match work.pop(now) {
                Some(key) => (key, false),
                None if busy => break,
                None => match low_priority.pop(now) {
                    Some(key) => (key, true),
                    None => break,
                },
            };
            let Some(queue) = queues.get_mut(&key) else { continue };
            let next = queue.next(now, busy, is_turn);
            match (is_turn, &next) {
                (true, _) if queue.is_queued_low_priority() => {
                    // A write is in progress, or the last one failed.
                    low_priority.written(now);
                    low_priority.push(key.clone());
                }
                (true, Next::Work(_)) => low_priority.written(now),
                (false, Next::Work(_)) => low_priority.other_written(now),
                _ => {}
            }
            match next {
                Next::Work(todo) => {
                    let context = context.clone();
                    let name = key.clone();
                    running.spawn(async move {
                        let mut todo = *todo;
                        let result = carry_out(&context, &name, &mut todo).await;
                        (name, todo, result)
                    });
                }
                Next::Wait(at) => work.add_at(&key, at),
                Next::LowPriority => low_priority.push(key),
                Next::Nothing if queue.gone() => {
                    let sequence = queue.sequence();
                    queues.remove(&key);
                    // A new object of this name continues at this sequence.
                    sequences.insert(key, sequence);
                }
                Next::Nothing => {}
            }
        }
    }
    // Writes in progress are cancelled: the next leader repeats them.
    running.shutdown().await;
}

/// The change that removes the operator's finalizer from an object.
pub fn removal(kind: Kind, stored: &StoredObject) -> Change {
    let index = stored.finalizers.iter().position(|one| &**one == api::finalizer(kind));
    Change::RemoveFinalizer(Removal { index })
}
