//! Writes objects. For each object in order: outbox, status, finalizer. Many objects are written concurrently.

mod low_priority;
mod queue;
mod work;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use eno_core::{Key, Kind};
use eno_queue::FairQueue;
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
    let mut waiting: BTreeSet<(Instant, Key)> = BTreeSet::new();
    let mut running: JoinSet<(Key, queue::Todo, Result<(), Failure>)> = JoinSet::new();
    let mut batch = Vec::new();
    let mut ready = ReadyObjects::default();
    let mut low_priority = LowPriorityQueue::new(Instant::now());
    loop {
        context.events.busy(running.len() > BUSY_ABOVE);
        let low_priority_due = low_priority.due().filter(|_| running.len() <= BUSY_ABOVE);
        let wake = waiting.first().map(|(at, _)| *at).into_iter().chain(low_priority_due).min();
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
                    ready.add(job.key);
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
                    ready.add(key);
                }
            }
            () = async { sleep_until(wake.unwrap_or_else(Instant::now).into()).await }, if wake.is_some() => {
                let now = Instant::now();
                while let Some((at, _)) = waiting.first() && *at <= now {
                    if let Some((_, key)) = waiting.pop_first() {
                        ready.add(key);
                    }
                }
            }
        }
        while running.len() < MAX_RUNNING {
            let now = Instant::now();
            let busy = running.len() > BUSY_ABOVE;
            let (key, is_turn) = match ready.next() {
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
                Next::Wait(at) => {
                    waiting.insert((at, key));
                }
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

/// Objects that may have work, without duplicates and fair between namespaces. Cluster-scoped objects count as one
/// namespace.
#[derive(Debug, Default)]
struct ReadyObjects {
    ready: FairQueue<Key>,
    queued: HashSet<Key>,
}

impl ReadyObjects {
    fn add(&mut self, key: Key) {
        if self.queued.insert(key.clone()) {
            let namespace = key.namespace.clone();
            self.ready.push(&namespace, key);
        }
    }

    fn next(&mut self) -> Option<Key> {
        let key = self.ready.pop()?;
        self.queued.remove(&key);
        Some(key)
    }
}

/// The change that removes the operator's finalizer from an object.
pub fn removal(kind: Kind, stored: &StoredObject) -> Change {
    let index = stored.finalizers.iter().position(|one| &**one == api::finalizer(kind));
    Change::RemoveFinalizer(Removal { index })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ready_objects_are_deduplicated_and_fair_between_namespaces() {
        let mut ready = ReadyObjects::default();
        let key = |namespace: &str, name: usize| {
            Key::namespaced(Kind::L2ServiceAttachment, &namespace.into(), &name.to_string().into())
        };
        for n in (0..10_000).chain(0..10_000) {
            ready.add(key("flood", n));
        }
        ready.add(key("other", 0));
        ready.add(Key::cluster(Kind::L2Service, &"s".into()));
        let first: Vec<_> = std::iter::from_fn(|| ready.next()).take(4).map(|key| key.namespace).collect();
        assert_eq!(first.iter().map(|name| &**name).collect::<Vec<_>>(), ["flood", "other", "", "flood"]);
        ready.add(key("flood", 0));
        assert_eq!(std::iter::from_fn(|| ready.next()).count(), 10_000 - 2 + 1);
    }
}
