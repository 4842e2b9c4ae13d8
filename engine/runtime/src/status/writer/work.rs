//! Carries out one round of work on one object.

use std::sync::Arc;

use async_nats::jetstream::Context;
use eno_core::{Event, Key, Status};
use eno_schemas::{Phase, Transition};
use kube::Client;
use kube::api::{Api, DynamicObject, Patch};
use kube::core::PartialObjectMeta;
use serde_json::json;
use tokio::sync::Semaphore;
use tracing::error;

use super::queue::{Entry, Todo, WrittenStatus};
use crate::api::{self, WriteError, Written};
use crate::leader::lease_guard::LeaseGuard;
use crate::metrics::Metrics;
use crate::status::convert;
use crate::status::events::Events;
use crate::status::outbox::{self, OutboxError};
use crate::watch::mailbox::{Input, Mailbox, post};

/// Connections and settings of the writer.
pub struct WriterContext {
    /// Client of the API server.
    pub client: Client,
    /// JetStream context for the outbox.
    pub jetstream: Context,
    /// Receives which leases are stored.
    pub mailbox: Mailbox,
    /// Limits concurrent writes to the API server.
    pub permits: Arc<Semaphore>,
    /// Kubernetes Events to publish.
    pub events: Events,
    /// Prometheus metrics.
    pub metrics: Arc<Metrics>,
    /// Until when this process is sure to hold the Lease.
    pub lease_guard: LeaseGuard,
}

/// Why a round did not complete.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// Another engine leads.
    #[error(transparent)]
    Superseded(OutboxError),
    /// The outbox write failed.
    #[error(transparent)]
    Outbox(OutboxError),
    /// The write to the API server failed.
    #[error(transparent)]
    Write(#[from] WriteError),
}

impl Failure {
    /// True when a retry may help.
    pub fn retryable(&self) -> bool {
        match self {
            Self::Superseded(_) => false,
            Self::Outbox(error) => matches!(error, OutboxError::Nats { .. }),
            Self::Write(error) => error.retryable,
        }
    }
}

/// Carries out the round in order, and removes completed parts from `todo`.
pub async fn carry_out(context: &WriterContext, key: &Key, todo: &mut Todo) -> Result<(), Failure> {
    let uid = todo.uid.clone().unwrap_or_default();
    if todo.add {
        let mut body = api::apply_body(key, &uid);
        body["metadata"]["finalizers"] = json!([api::finalizer(key.kind)]);
        write(context, "add the finalizer to", key, None, &Patch::Apply(body)).await?;
        todo.add = false;
    }
    while let Some(entry) = todo.entries.front() {
        let transition = transition(key, entry);
        context.lease_guard.wait_until_held().await;
        match outbox::publish(&context.jetstream, &transition, todo.sequence).await {
            Ok(sequence) => todo.sequence = sequence,
            // The entry can't be encoded ever; the status can.
            Err(OutboxError::Message(error)) => {
                error!(object = %key, %error, "a transition can't be written and is left out of the outbox");
            }
            Err(error @ OutboxError::Superseded { .. }) => return Err(Failure::Superseded(error)),
            Err(error) => return Err(Failure::Outbox(error)),
        }
        if !entry.is_repeat {
            context.metrics.transition(key.kind, transition.phase);
            context.events.transition(key, &entry.object.uid, entry.previous, &entry.status);
        }
        todo.entries.pop_front();
        context.metrics.outbox_lag.dec();
    }
    if let Some(now) = &todo.status {
        let content = convert::content(key.kind, now);
        // A status that is already written needs only the report below.
        if todo.written.is_none_or(|written| written.content != content) {
            let mut body = api::apply_body(key, &uid);
            body["status"] = convert::to_json(key.kind, now);
            let patch = Patch::Apply(body);
            let version = match write(context, "write the status of", key, Some("status"), &patch).await? {
                Written::Done(version) => version,
                Written::Gone => {
                    todo.leased = None;
                    0
                }
            };
            todo.written = Some(WrittenStatus { content, version });
        }
        todo.status = None;
    }
    if let Some(leased) = todo.leased.take() {
        // The receiver ends together with this task.
        post(&context.mailbox, Input::Event(Event::StatusWritten(key.clone(), leased))).await;
        todo.leased_reported = leased;
    }
    if let Some(removal) = todo.remove {
        remove_finalizer(context, key, removal.index).await?;
        todo.remove = None;
    }
    Ok(())
}

fn transition(key: &Key, entry: &Entry) -> Transition {
    let Entry { previous, status, object, at, is_repeat: _ } = entry;
    Transition {
        id: convert::transition_id(&object.uid, status.transitions),
        uid: object.uid.to_string(),
        counter: status.transitions,
        kind: key.kind.as_str().into(),
        namespace: key.namespace().map(ToOwned::to_owned),
        name: key.name.to_string(),
        previous: *previous,
        phase: phase(status),
        at: at.to_string(),
        object: object.with_status(status),
    }
}

/// An object without a phase has no transitions.
fn phase(status: &Status) -> Phase {
    status.phase.unwrap_or(Phase::Pending)
}

/// Removes the operator's finalizer and keeps others, by a JSON patch that tests the removed value.
async fn remove_finalizer(
    context: &WriterContext,
    key: &Key,
    mut index: Option<usize>,
) -> Result<(), Failure> {
    const TRIES: u32 = 5;
    for attempt in 1..=TRIES {
        if index.is_none() {
            index = match find_finalizer(context, key).await? {
                Some(index) => Some(index),
                None => return Ok(()),
            };
        }
        let path = format!("/metadata/finalizers/{}", index.unwrap_or_default());
        let operations = json!([
            { "op": "test", "path": path, "value": api::finalizer(key.kind) },
            { "op": "remove", "path": path },
        ]);
        let patch =
            serde_json::from_value(operations).map(Patch::Json::<()>).map_err(|error| WriteError {
                operation: "take the finalizer off",
                key: key.clone(),
                retryable: false,
                source: kube::Error::SerdeError(error),
            })?;
        match write(context, "take the finalizer off", key, None, &patch).await {
            Ok(_) => return Ok(()),
            // The list of finalizers changed since it was observed.
            Err(Failure::Write(error)) if error.code() == Some(422) && attempt < TRIES => index = None,
            Err(failure) => return Err(failure),
        }
    }
    Ok(())
}

async fn find_finalizer(context: &WriterContext, key: &Key) -> Result<Option<usize>, WriteError> {
    let resource = api::resource(key.kind);
    let objects: Api<DynamicObject> = match key.namespace() {
        Some(namespace) => Api::namespaced_with(context.client.clone(), namespace, &resource),
        None => Api::all_with(context.client.clone(), &resource),
    };
    let found = objects.get_metadata_opt(&key.name).await.map_err(|source| WriteError {
        operation: "look for the finalizer of",
        key: key.clone(),
        retryable: true,
        source,
    })?;
    let all = |object: PartialObjectMeta<DynamicObject>| object.metadata.finalizers.unwrap_or_default();
    Ok(found.map(all).and_then(|all| all.iter().position(|one| one == api::finalizer(key.kind))))
}

async fn write<P: serde::Serialize + std::fmt::Debug>(
    context: &WriterContext,
    operation: &'static str,
    key: &Key,
    subresource: Option<&str>,
    patch: &Patch<P>,
) -> Result<Written, Failure> {
    // The semaphore is never closed.
    let _permit = context.permits.acquire().await.ok();
    let result = api::patch(&context.client, operation, key, subresource, patch).await;
    context.metrics.write(
        if subresource.is_some() { "status" } else { "finalizer" },
        match &result {
            Ok(Written::Done(_)) => "done",
            Ok(Written::Gone) => "gone",
            Err(error) if error.retryable => "retry",
            Err(_) => "refused",
        },
    );
    Ok(result?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finalizer_json_patch_deserializes() {
        let operations = json!([{ "op": "test", "path": "/metadata/finalizers/0", "value": "x" }]);
        assert!(serde_json::from_value(operations).map(Patch::Json::<()>).is_ok());
    }
}
