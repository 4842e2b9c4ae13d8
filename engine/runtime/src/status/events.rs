//! Kubernetes Events for errors, recoveries and deletions. They are best effort: an Event that can't be written is
//! dropped.

use std::sync::Arc;
use std::time::Duration;

use eno_core::{Key, Status};
use eno_schemas::Phase;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use crate::api;
use crate::metrics::Metrics;

/// Maximum queued Events of each queue.
const QUEUE_CAPACITY: usize = 8192;
/// Maximum bytes of a note (the API server allows 1 kB).
const MAX_NOTE_LEN: usize = 1000;
/// Interval of deletion Events while the writer is busy.
const DELETION_DELAY: Duration = Duration::from_millis(250);

/// Sender of Events.
#[derive(Clone, Debug)]
pub struct Events {
    queue: mpsc::Sender<(ObjectReference, Event)>,
    deletions: mpsc::Sender<(ObjectReference, Event)>,
    busy: watch::Sender<bool>,
    metrics: Arc<Metrics>,
}

/// The queued Events. Deletions yield to other writes: Events of a mass deletion would slow it down. A deletion is the
/// last Event of its object, so the order per object is kept.
struct EventQueue<T> {
    queue: mpsc::Receiver<T>,
    deletions: mpsc::Receiver<T>,
    busy: watch::Receiver<bool>,
    /// The first deletion, and until when it yields.
    delayed: Option<(T, Instant)>,
}

impl<T> EventQueue<T> {
    /// The next Event; `None`: the senders have ended.
    async fn next(&mut self) -> Option<T> {
        loop {
            let until = self.delayed.as_ref().map_or_else(Instant::now, |(_, until)| *until);
            tokio::select! {
                biased;
                Some(next) = self.queue.recv() => return Some(next),
                Some(next) = self.deletions.recv(), if self.delayed.is_none() => {
                    self.delayed = Some((next, Instant::now() + DELETION_DELAY));
                }
                _ = timeout_at(until, self.busy.wait_for(|busy| !*busy)), if self.delayed.is_some() => {
                    return self.delayed.take().map(|(next, _)| next);
                }
                else => return None,
            }
        }
    }
}

impl Events {
    /// Writes Events one at a time until `stop`, so that they never delay other writes.
    pub fn start(client: Client, identity: &str, metrics: Arc<Metrics>, stop: CancellationToken) -> Self {
        let (queue, events) = mpsc::channel::<(ObjectReference, Event)>(QUEUE_CAPACITY);
        let (deletions, last) = mpsc::channel(QUEUE_CAPACITY);
        let busy = watch::Sender::new(false);
        let mut waiting =
            EventQueue { queue: events, deletions: last, busy: busy.subscribe(), delayed: None };
        let reporter = Reporter { controller: api::MANAGER.into(), instance: Some(identity.into()) };
        let recorder = Recorder::new(client, reporter);
        let counts = metrics.clone();
        tokio::spawn(async move {
            loop {
                let (object, event) = tokio::select! {
                    () = stop.cancelled() => return,
                    next = waiting.next() => match next {
                        Some(next) => next,
                        None => return,
                    },
                };
                match recorder.publish(&event, &object).await {
                    Ok(()) => counts.write("event", "done"),
                    Err(error) => {
                        counts.write("event", "refused");
                        debug!(%error, object = object.name, "an Event was not written");
                    }
                }
            }
        });
        Self { queue, deletions, busy, metrics }
    }

    /// Sets whether the writer is busy with more urgent writes.
    pub fn busy(&self, busy: bool) {
        self.busy.send_if_modified(|before| std::mem::replace(before, busy) != busy);
    }

    /// Publishes an Event of a transition to or from an error, or of a deletion.
    pub fn transition(&self, key: &Key, uid: &str, previous: Option<Phase>, status: &Status) {
        let (type_, reason) = match (previous, status.phase) {
            (_, Some(Phase::Error)) => (EventType::Warning, "Error"),
            (Some(Phase::Error), Some(Phase::Ready)) => (EventType::Normal, "Recovered"),
            (_, Some(Phase::Deleted)) => (EventType::Normal, "Deleted"),
            _ => return,
        };
        let queue = if status.phase == Some(Phase::Deleted) { &self.deletions } else { &self.queue };
        self.enqueue(queue, object_ref(key, uid), event(type_, reason, "Reconcile", &status.message));
    }

    /// Publishes an Event about an object.
    pub fn publish(&self, object: ObjectReference, type_: EventType, reason: &str, action: &str, note: &str) {
        self.enqueue(&self.queue, object, event(type_, reason, action, note));
    }

    fn enqueue(&self, queue: &mpsc::Sender<(ObjectReference, Event)>, object: ObjectReference, event: Event) {
        if queue.try_send((object, event)).is_err() {
            self.metrics.write("event", "dropped");
        }
    }
}

fn event(type_: EventType, reason: &str, action: &str, note: &str) -> Event {
    let mut note = note.to_owned();
    if note.len() > MAX_NOTE_LEN {
        note.truncate(note.floor_char_boundary(MAX_NOTE_LEN));
        note.push('…');
    }
    let note = (!note.is_empty()).then_some(note);
    Event { type_, reason: reason.into(), note, action: action.into(), secondary: None }
}

/// Reference to a custom resource.
pub fn object_ref(key: &Key, uid: &str) -> ObjectReference {
    ObjectReference {
        api_version: Some(api::api_version(key.kind).into()),
        kind: Some(key.kind.as_str().into()),
        name: Some(key.name.to_string()),
        namespace: key.namespace().map(ToOwned::to_owned),
        uid: Some(uid.into()),
        ..ObjectReference::default()
    }
}

/// Reference to a pod.
pub fn pod_ref(namespace: &str, name: &str, uid: &str) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".into()),
        kind: Some("Pod".into()),
        name: Some(name.into()),
        namespace: Some(namespace.into()),
        uid: Some(uid.into()),
        ..ObjectReference::default()
    }
}

/// Reference to a node; its uid is its name, as in Events of the kubelet.
pub fn node_ref(name: &str) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".into()),
        kind: Some("Node".into()),
        name: Some(name.into()),
        uid: Some(name.into()),
        ..ObjectReference::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn deletion_events_yield_to_others_and_still_come() {
        let (sender, queue) = mpsc::channel(8);
        let (deletion_sender, deletions) = mpsc::channel(8);
        let busy = watch::Sender::new(true);
        let mut waiting = EventQueue { queue, deletions, busy: busy.subscribe(), delayed: None };
        for one in ["gone 1", "gone 2", "gone 3", "gone 4"] {
            deletion_sender.try_send(one).unwrap();
        }
        sender.try_send("error").unwrap();
        let started = Instant::now();
        assert_eq!((waiting.next().await, started.elapsed()), (Some("error"), Duration::ZERO));
        assert_eq!((waiting.next().await, started.elapsed()), (Some("gone 1"), DELETION_DELAY));
        // An error does not wait for the delayed deletion.
        let next = tokio::time::timeout(DELETION_DELAY / 2, waiting.next()).await;
        assert!(next.is_err());
        sender.try_send("another").unwrap();
        assert_eq!((waiting.next().await, started.elapsed()), (Some("another"), DELETION_DELAY * 3 / 2));
        assert_eq!((waiting.next().await, started.elapsed()), (Some("gone 2"), DELETION_DELAY * 2));
        busy.send_replace(false);
        assert_eq!(waiting.next().await, Some("gone 3"));
        drop((sender, deletion_sender));
        assert_eq!((waiting.next().await, started.elapsed()), (Some("gone 4"), DELETION_DELAY * 2));
        assert_eq!(waiting.next().await, None);
    }
}
