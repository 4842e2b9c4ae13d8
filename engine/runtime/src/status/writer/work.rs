//! Carries out one round of work on one object.

use std::sync::Arc;
use std::time::Instant;

use eno_core::{Event, Key, Name, Status};
use eno_nbi_crds::RECORDED;
use eno_sbi::nats::Connection;
use eno_schemas::{Phase, Transition, subject};
use jiff::Timestamp;
use kube::Client;
use kube::api::{Api, DynamicObject, Patch};
use kube::core::PartialObjectMeta;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tracing::{debug, error, warn};

use super::allowance::Allowance;
use super::queue::{Entry, Failed, Todo, WrittenStatus};
use crate::api::{self, WriteError, Written};
use crate::leader::lease_guard::LeaseGuard;
use crate::metrics::Metrics;
use crate::status::bounds::bound_size;
use crate::status::convert;
use crate::status::events::Events;
use crate::status::outbox::{self, OutboxError};
use crate::watch::mailbox::{Input, Mailbox, post};

/// Field manager of the condition `Recorded`.
const OUTBOX_MANAGER: &str = "eno-outbox";

/// Connections and settings of the writer.
pub struct WriterContext {
    /// Client of the API server.
    pub client: Client,
    /// Connection to NATS, for the outbox.
    pub connection: Connection,
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
    /// What failed, if a retry may help.
    pub fn failed(&self) -> Failed {
        match self {
            Self::Outbox(OutboxError::Nats { .. }) => Failed::Outbox,
            Self::Write(error) if error.retryable => Failed::Write,
            Self::Superseded(_) | Self::Outbox(_) | Self::Write(_) => Failed::ForGood,
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
        match add_to_outbox(&context.connection, transition, &mut todo.sequence, &mut todo.allowance).await {
            Ok(()) => {}
            // The entry can't be written ever; the status can.
            Err(error @ (OutboxError::Message(_) | OutboxError::TooLarge { .. })) => {
                error!(object = %key, %error, "a transition can't be written and is left out of the outbox");
            }
            Err(error @ OutboxError::Superseded { .. }) => return Err(Failure::Superseded(error)),
            Err(error) => {
                show_refusal(context, key, todo).await;
                return Err(Failure::Outbox(error));
            }
        }
        if !entry.is_repeat {
            context.metrics.transition(key.kind, phase(&entry.status));
            context.events.transition(key, &entry.object.uid, entry.previous, &entry.status);
        }
        todo.entries.pop_front();
        context.metrics.outbox_lag.dec();
    }
    if todo.is_unrecorded {
        write_recorded(context, key, &uid, &[]).await?;
        todo.is_unrecorded = false;
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

/// Lets the object say that NATS refuses its transition: the status waits for the outbox.
async fn show_refusal(context: &WriterContext, key: &Key, todo: &mut Todo) {
    let (Some(uid), Some(entry), Err(refusal)) =
        (&todo.uid, todo.entries.front(), context.connection.store.check())
    else {
        return;
    };
    if todo.is_unrecorded {
        return;
    }
    let condition = json!({
        "type": RECORDED,
        "status": "False",
        "reason": "Refused",
        "message": format!("the phase {} waits until it is recorded: {refusal}", phase(&entry.status)),
        "lastTransitionTime": format!("{:.0}", Timestamp::now()),
    });
    match write_recorded(context, key, uid, &[condition]).await {
        Ok(()) => todo.is_unrecorded = true,
        Err(failure) => warn!(object = %key, %failure, "the condition {RECORDED} is not written"),
    }
}

async fn write_recorded(
    context: &WriterContext,
    key: &Key,
    uid: &str,
    conditions: &[Value],
) -> Result<(), Failure> {
    let mut body = api::apply_body(key, uid);
    body["status"] = json!({ "conditions": conditions });
    // The semaphore is never closed.
    let _permit = context.permits.acquire().await.ok();
    let (operation, patch) = ("write a condition of", Patch::Apply(body));
    api::patch_as(&context.client, OUTBOX_MANAGER, operation, key, Some("status"), &patch).await?;
    Ok(())
}

/// Writes a transition after the entry `sequence`. It takes the place of that entry if the object adds too much.
async fn add_to_outbox(
    connection: &Connection,
    mut transition: Transition,
    sequence: &mut u64,
    allowance: &mut Allowance,
) -> Result<(), OutboxError> {
    let (jetstream, uid) = (&connection.jetstream, Name::from(transition.uid.as_str()));
    let max = outbox::max_size(jetstream);
    let (size, now) = (bound_size(&mut transition, max), Instant::now());
    let joined = allowance.joined(&uid, size, now);
    if joined.is_some() {
        transition.left_out.get_or_insert_default().transitions = joined;
        bound_size(&mut transition, max);
    }
    let former = *sequence;
    let published = outbox::publish(jetstream, &transition, former).await;
    connection.store.note(subject::TRANSITIONS, &published);
    *sequence = published?;
    allowance.written(&uid, size, joined, now);
    if joined.is_some()
        && let Err(error) = outbox::remove(jetstream, former).await
    {
        // Its callback is posted, too.
        debug!(uid = &*uid, former, %error, "a transition stays in the outbox");
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
        left_out: object.left_out.as_deref().cloned(),
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
    let result = api::patch_as(&context.client, api::MANAGER, operation, key, subresource, patch).await;
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
mod tests;
