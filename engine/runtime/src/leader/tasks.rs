//! The tasks of one leadership, and the channels between them and the task that owns the core.

use std::collections::HashMap;
use std::sync::Arc;

use eno_core::Key;
use tokio::sync::{Semaphore, mpsc, watch as watch_channel};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::LeaderContext;
use crate::callbacks;
use crate::commands::{drivers, stored_parts, streams};
use crate::nodes::{node_labels, pod_networks, samples};
use crate::status::bridge_domains;
use crate::status::events::Events;
use crate::status::writer::{self, Job, WriterContext};
use crate::watch;
use crate::watch::mailbox::Input;

/// Capacity of the mailbox in messages; senders wait when it is full.
pub const MAILBOX_CAPACITY: usize = 4096;
/// Maximum concurrent writes to the API server.
const MAX_CONCURRENT_WRITES: usize = 32;

/// Senders to the other tasks.
pub struct Outputs {
    /// Sender of the mailbox, for spawned tasks.
    pub mailbox: mpsc::Sender<Input>,
    /// Sender to the writer of statuses, transitions and finalizers.
    pub jobs: mpsc::UnboundedSender<Job>,
    /// Sender to the task that maintains L2BridgeDomains.
    pub bridge_domains: mpsc::UnboundedSender<bridge_domains::DesiredBridgeDomain>,
    /// Sender to the task that maintains PodNetworks.
    pub pod_networks: mpsc::UnboundedSender<pod_networks::Update>,
    /// Sender to the task that labels nodes.
    pub node_labels: mpsc::UnboundedSender<node_labels::Update>,
    /// Sender to the task that creates sample Deployments.
    pub samples: mpsc::UnboundedSender<samples::DesiredSample>,
    /// Publishes Kubernetes Events.
    pub events: Events,
}

/// Starts all tasks. `sequences`: the last outbox entry of each object. Returns the receiver of the mailbox.
pub async fn start(
    context: &LeaderContext,
    sequences: HashMap<Key, u64>,
    tasks: &mut JoinSet<()>,
    stop: &CancellationToken,
) -> (Outputs, mpsc::Receiver<Input>) {
    let LeaderContext { client, connection, metrics, lease_guard, .. } = context.clone();
    let (mailbox, inputs) = mpsc::channel(MAILBOX_CAPACITY);
    let (node_labels, label_updates) = mpsc::unbounded_channel();
    let multus = context.multus_namespace.clone();
    watch::start(tasks, &client, &mailbox, multus, node_labels.clone(), &metrics).await;
    let (losses, lost) = watch_channel::channel(0);
    tasks.spawn(drivers::reports(connection.clone(), mailbox.clone(), metrics.clone(), lost.clone()));
    tasks.spawn(drivers::stored_commands(connection.clone(), mailbox.clone(), lost.clone()));
    tasks.spawn(stored_parts::follow(connection.clone(), mailbox.clone(), lost.clone()));
    tasks.spawn(drivers::presence(connection.clone(), mailbox.clone(), metrics.clone(), lost.clone()));
    tasks.spawn(streams::guard(connection.clone(), mailbox.clone(), metrics.clone(), losses));
    tasks.spawn(callbacks::run(
        connection.clone(),
        context.poster.clone(),
        metrics.clone(),
        lease_guard.clone(),
        lost,
        stop.clone(),
    ));
    let events = Events::start(client.clone(), &context.identity, metrics.clone(), stop.clone());
    let (jobs, queue) = mpsc::unbounded_channel();
    let writer_context = Arc::new(WriterContext {
        client: client.clone(),
        connection,
        mailbox: mailbox.clone(),
        permits: Arc::new(Semaphore::new(MAX_CONCURRENT_WRITES)),
        events: events.clone(),
        metrics: metrics.clone(),
        lease_guard,
    });
    tasks.spawn(writer::run(writer_context, queue, sequences, stop.clone()));
    let (bridge_domains, desired) = mpsc::unbounded_channel();
    tasks.spawn(bridge_domains::run(client.clone(), desired, metrics.clone(), stop.clone()));
    let (pod_networks, views) = mpsc::unbounded_channel();
    let (samples, deployments) = mpsc::unbounded_channel();
    if context.config.nodes {
        tasks.spawn(node_labels::run(client.clone(), label_updates, metrics.clone(), stop.clone()));
        tasks.spawn(pod_networks::run(client.clone(), views, events.clone(), metrics.clone(), stop.clone()));
        tasks.spawn(samples::run(
            client,
            context.sample_image.clone(),
            deployments,
            mailbox.clone(),
            events.clone(),
            metrics,
            stop.clone(),
        ));
    }
    (Outputs { mailbox, jobs, bridge_domains, pod_networks, node_labels, samples, events }, inputs)
}
