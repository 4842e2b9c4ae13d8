//! Kubernetes Events, for errors, recoveries and deletions. They are courtesy: what can't be written is dropped.

use std::sync::Arc;

use eno_core::{Key, Status};
use eno_schemas::Phase;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::debug;

use crate::api;
use crate::metrics::Metrics;

/// So many wait at most.
const ROOM: usize = 8192;
/// `note` has at most 1 kB.
const NOTE: usize = 1000;

/// The way to the Events of the cluster.
#[derive(Clone, Debug)]
pub struct Events {
    queue: mpsc::Sender<(ObjectReference, Event)>,
    metrics: Arc<Metrics>,
}

impl Events {
    /// Writes them until `stop`, one after the other, so that they never crowd out anything that matters.
    pub fn start(client: Client, identity: &str, metrics: Arc<Metrics>, stop: CancellationToken) -> Self {
        let (queue, mut events) = mpsc::channel::<(ObjectReference, Event)>(ROOM);
        let reporter = Reporter { controller: api::MANAGER.into(), instance: Some(identity.into()) };
        let recorder = Recorder::new(client, reporter);
        let counts = metrics.clone();
        tokio::spawn(async move {
            loop {
                let (object, event) = tokio::select! {
                    () = stop.cancelled() => return,
                    next = events.recv() => match next {
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
        Self { queue, metrics }
    }

    /// Tells of a transition, if it is worth an Event.
    pub fn transition(&self, key: &Key, uid: &str, previous: Option<Phase>, status: &Status) {
        let (type_, reason) = match (previous, status.phase) {
            (_, Some(Phase::Error)) => (EventType::Warning, "Error"),
            (Some(Phase::Error), Some(Phase::Ready)) => (EventType::Normal, "Recovered"),
            (_, Some(Phase::Deleted)) => (EventType::Normal, "Deleted"),
            _ => return,
        };
        self.tell(of_object(key, uid), type_, reason, "Reconcile", &status.message);
    }

    /// Tells of something about an object.
    pub fn tell(&self, object: ObjectReference, type_: EventType, reason: &str, action: &str, note: &str) {
        let mut note = note.to_owned();
        if note.len() > NOTE {
            note.truncate(note.floor_char_boundary(NOTE));
            note.push('…');
        }
        let note = (!note.is_empty()).then_some(note);
        let event = Event { type_, reason: reason.into(), note, action: action.into(), secondary: None };
        if self.queue.try_send((object, event)).is_err() {
            self.metrics.write("event", "dropped");
        }
    }
}

/// A custom resource, as an Event refers to it.
pub fn of_object(key: &Key, uid: &str) -> ObjectReference {
    ObjectReference {
        api_version: Some(api::api_version(key.kind)),
        kind: Some(key.kind.as_str().into()),
        name: Some(key.name.to_string()),
        namespace: key.namespace().map(ToOwned::to_owned),
        uid: Some(uid.into()),
        ..ObjectReference::default()
    }
}

/// A pod, as an Event refers to it.
pub fn of_pod(namespace: &str, name: &str, uid: &str) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".into()),
        kind: Some("Pod".into()),
        name: Some(name.into()),
        namespace: Some(namespace.into()),
        uid: Some(uid.into()),
        ..ObjectReference::default()
    }
}

/// A node, as an Event refers to it: with its name as its uid, as the kubelet does.
pub fn of_node(name: &str) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".into()),
        kind: Some("Node".into()),
        name: Some(name.into()),
        uid: Some(name.into()),
        ..ObjectReference::default()
    }
}
