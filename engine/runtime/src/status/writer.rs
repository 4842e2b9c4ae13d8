//! Writes objects. For each object in order: outbox, status, finalizer. Many objects are written concurrently.

mod allowance;
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
use queue::{Failed, Next, Queue, Todo};
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
    sequences: HashMap<Key, u64>,
    stop: CancellationToken,
) {
    let mut writer = Writer {
        context,
        sequences,
        queues: HashMap::new(),
        work: WorkQueue::new(|key: &Key| &key.namespace),
        low_priority: LowPriorityQueue::new(Instant::now()),
        running: JoinSet::new(),
    };
    let mut batch = Vec::new();
    loop {
        writer.context.events.busy(writer.is_busy());
        let wake = writer.wake();
        tokio::select! {
            () = stop.cancelled() => break,
            count = jobs.recv_many(&mut batch, 4096) => {
                if count == 0 {
                    break;
                }
                batch.drain(..).for_each(|job| writer.on_job(job));
            }
            Some(done) = writer.running.join_next() => {
                let Ok((key, todo, result)) = done else { continue };
                if let Err(failure @ Failure::Superseded(_)) = &result {
                    error!(%failure, "stepping down");
                    stop.cancel();
                    break;
                }
                writer.on_written(&key, todo, result);
            }
            () = async { sleep_until(wake.unwrap_or_else(Instant::now).into()).await }, if wake.is_some() => {}
        }
        writer.start_ready();
    }
    // Writes in progress are cancelled: the next leader repeats them.
    writer.running.shutdown().await;
}

/// All pending work.
struct Writer {
    /// Connections and settings.
    context: Arc<WriterContext>,
    /// The last outbox sequence of each object without a queue.
    sequences: HashMap<Key, u64>,
    /// The work of each object.
    queues: HashMap<Key, Queue>,
    /// Objects that may have work, by namespace.
    work: WorkQueue<Key>,
    /// Objects whose status may wait for its turn.
    low_priority: LowPriorityQueue,
    /// Objects in progress.
    running: JoinSet<(Key, Todo, Result<(), Failure>)>,
}

impl Writer {
    /// True while low-priority writes wait.
    fn is_busy(&self) -> bool {
        self.running.len() > BUSY_ABOVE
    }

    /// When an object may have work, unless a job comes or ends before.
    fn wake(&self) -> Option<Instant> {
        let work = self.work.wake().filter(|_| self.running.len() < MAX_RUNNING);
        work.into_iter().chain(self.low_priority.due().filter(|_| !self.is_busy())).min()
    }

    fn on_job(&mut self, job: Job) {
        if matches!(job.change, Change::Transition { .. } | Change::RepeatTransition { .. }) {
            self.context.metrics.outbox_lag.inc();
        }
        self.work.add(&job.key);
        let sequences = &mut self.sequences;
        let queue = self
            .queues
            .entry(job.key)
            .or_insert_with_key(|key| Queue::new(key, sequences.remove(key).unwrap_or_default()));
        queue.add(job.change, Instant::now());
    }

    fn on_written(&mut self, key: &Key, todo: Todo, result: Result<(), Failure>) {
        if let Err(failure) = &result {
            warn!(object = %key, %failure, "not written");
            if failure.failed() == Failed::ForGood {
                let lost = i64::try_from(todo.entries.len()).unwrap_or_default();
                self.context.metrics.outbox_lag.dec_by(lost);
            }
        }
        if let Some(queue) = self.queues.get_mut(key) {
            queue.finished(todo, result.err().map(|failure| failure.failed()), Instant::now());
            self.work.add(key);
        }
    }

    /// Starts as much work as may run.
    fn start_ready(&mut self) {
        while self.running.len() < MAX_RUNNING {
            let now = Instant::now();
            let busy = self.is_busy();
            let (key, is_turn) = match self.work.pop(now) {
                Some(key) => (key, false),
                None if busy => break,
                None => match self.low_priority.pop(now) {
                    Some(key) => (key, true),
                    None => break,
                },
            };
            let Some(queue) = self.queues.get_mut(&key) else { continue };
            let next = queue.next(now, busy, is_turn);
            match (is_turn, &next) {
                (true, _) if queue.is_queued_low_priority() => {
                    // A write is in progress, or the last one failed.
                    self.low_priority.written(now);
                    self.low_priority.push(key.clone());
                }
                (true, Next::Work(_)) => self.low_priority.written(now),
                (false, Next::Work(_)) => self.low_priority.other_written(now),
                _ => {}
            }
            match next {
                Next::Work(mut todo) => {
                    let context = self.context.clone();
                    self.running.spawn(async move {
                        let result = carry_out(&context, &key, &mut todo).await;
                        (key, *todo, result)
                    });
                }
                Next::Wait(at) => self.work.add_at(&key, at),
                Next::LowPriority => self.low_priority.push(key),
                Next::Nothing if queue.gone() => {
                    let sequence = queue.sequence();
                    self.queues.remove(&key);
                    // A new object of this name continues at this sequence.
                    self.sequences.insert(key, sequence);
                }
                Next::Nothing => {}
            }
        }
    }
}

/// The change that removes the operator's finalizer from an object.
pub fn removal(kind: Kind, stored: &StoredObject) -> Change {
    let index = stored.finalizers.iter().position(|one| &**one == api::finalizer(kind));
    Change::RemoveFinalizer(Removal { index })
}
