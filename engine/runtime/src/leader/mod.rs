//! One term of leadership, from acquiring the Lease to losing it. One task owns the core and decides; all other tasks
//! watch or write.

pub mod cluster_id;
mod commands;
mod delays;
pub mod lease;
pub mod lease_guard;
mod parts;
mod phases;
mod references;
mod tasks;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use eno_core::{Config, DEADLINE, Effect, Engine, Event, Key, Kind, Moment, Name, StreamEvent, Target};
use eno_queue::DelayQueue;
use eno_sbi::nats::{Connection, ensure_streams};
use jiff::Timestamp;
use kube::Client;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::callbacks;
use crate::commands::drivers::{self, StoredCommands};
use crate::commands::parts::PartsEvent;
use crate::commands::publish;
use crate::leader::delays::Delayed;
use crate::leader::lease_guard::LeaseGuard;
use crate::leader::parts::CommandParts;
use crate::leader::phases::Phases;
use crate::leader::tasks::{MAILBOX_CAPACITY, Outputs};
use crate::metrics::Metrics;
use crate::nodes::{node_labels, pod_networks};
use crate::status::outbox::{self, LoadedOutbox};
use crate::status::writer::{self, Change, Job, WrittenStatus};
use crate::watch::mailbox::{Input, Source};
use crate::watch::objects::{Objects, StoredObject};

/// Maximum time between two runs of the loop.
const MAX_IDLE: Duration = Duration::from_mins(1);
/// Connections and settings that a leader uses.
#[derive(Clone)]
pub struct LeaderContext {
    /// Client of the API server.
    pub client: Client,
    /// Connection to NATS.
    pub connection: Connection,
    /// Posts callbacks.
    pub poster: Arc<callbacks::Poster>,
    /// Configuration of the core.
    pub config: Config,
    /// Image of sample Deployments; `None`: none are made.
    pub sample_image: Option<Arc<str>>,
    /// The namespace of Multus.
    pub multus_namespace: Arc<str>,
    /// Prometheus metrics of the engine.
    pub metrics: Arc<Metrics>,
    /// Name of this process, as reporting instance of Kubernetes Events.
    pub identity: Arc<str>,
    /// True while the engine is in sync with the cluster.
    pub synced: Arc<std::sync::atomic::AtomicBool>,
    /// Until when this process is sure to hold the Lease.
    pub lease_guard: LeaseGuard,
}

/// Why leadership ended on its own.
#[derive(Debug, thiserror::Error)]
pub enum LeaderError {
    /// NATS failed during the start. A retry may help.
    #[error("{0}")]
    Nats(#[from] async_nats::Error),
    /// The outbox was lost and is empty. The next leadership publishes the last transition of every object again.
    #[error("the outbox was lost")]
    OutboxLost,
}

/// Leads until `stop`, or until another process leads. All tasks that it started have ended when it returns.
pub async fn run_leader(
    context: &LeaderContext,
    term: u64,
    stop: impl Future<Output = ()>,
) -> Result<(), LeaderError> {
    // Cancels all tasks of this leadership, whichever of them ends it.
    let stop_all = CancellationToken::new();
    let mut tasks = JoinSet::new();
    let result = tokio::select! {
        result = run_loop(context, term, &stop_all, &mut tasks) => result,
        () = stop_all.cancelled() => Ok(()),
        () = stop => Ok(()),
    };
    stop_all.cancel();
    tasks.shutdown().await;
    context.synced.store(false, std::sync::atomic::Ordering::Relaxed);
    context.metrics.reset();
    result
}

async fn run_loop(
    context: &LeaderContext,
    term: u64,
    stop_all: &CancellationToken,
    tasks: &mut JoinSet<()>,
) -> Result<(), LeaderError> {
    let LeaderContext { connection, metrics, .. } = context;
    let started = Instant::now();
    metrics.leading.set(1);
    ensure_streams(&connection.jetstream, connection.replicas).await.map_err(async_nats::Error::from)?;
    let (outbox, stored) =
        tokio::try_join!(outbox::load(&connection.jetstream), drivers::commands(connection, metrics))?;
    let parts = CommandParts::restore(&stored);
    let StoredCommands { commands, .. } = stored;
    (0..outbox.unreadable).for_each(|_| metrics.malformed("transition"));
    info!(term, outbox = outbox.last.len(), commands = commands.len(), "leading");
    let sequences = outbox.last.iter().map(|(key, last)| (key.clone(), last.sequence)).collect();
    let (outputs, mut inputs) = tasks::start(context, sequences, tasks, stop_all).await;
    let mut leader = Leader {
        context: context.clone(),
        engine: Engine::new(context.config.clone(), term),
        objects: Objects::default(),
        phases: Phases::default(),
        outbox,
        outbox_lost: false,
        unsynced: Source::all().collect(),
        absent: BTreeSet::new(),
        needed: Vec::new(),
        gone_objects: Vec::new(),
        delayed: DelayQueue::default(),
        outputs,
        settled_once: false,
        publishing: JoinSet::new(),
        parts,
        stop_all: stop_all.clone(),
        next_command: None,
        started,
        caught_up: false,
    };
    leader.engine.handle(Event::StoredCommands(commands));
    let mut batch = Vec::new();
    loop {
        let wake = leader.next_wake();
        tokio::select! {
            count = inputs.recv_many(&mut batch, MAILBOX_CAPACITY) => {
                if count == 0 {
                    return Ok(());
                }
                leader.on_inputs(batch.drain(..))?;
                metrics.mailbox.set(i64::try_from(inputs.len()).unwrap_or(i64::MAX));
            }
            Some(_) = leader.publishing.join_next() => {}
            Some(ended) = tasks.join_next() => {
                if !stop_all.is_cancelled() {
                    warn!(panicked = ended.is_err(), "a part of the engine ended by itself, beginning again");
                }
                return Ok(());
            }
            () = tokio::time::sleep_until(wake.into()) => {}
        }
        leader.on_time();
    }
}

/// State of the task that owns the core.
struct Leader {
    /// Connections and settings.
    context: LeaderContext,
    /// The core.
    engine: Engine,
    /// The last version of every object.
    objects: Objects,
    /// Phase of each object, for the metrics.
    phases: Phases,
    /// Last outbox entry of each object that no watch has shown yet.
    outbox: LoadedOutbox,
    /// The outbox was recreated empty: the next leader publishes its last transitions again.
    outbox_lost: bool,
    /// Sources whose initial state is not complete.
    unsynced: HashSet<Source>,
    /// Kinds that the API server does not know.
    absent: BTreeSet<Kind>,
    /// Those without which nothing can be decided, as last logged.
    needed: Vec<String>,
    /// What the core waits for.
    delayed: DelayQueue<Delayed>,
    /// Objects that are gone since the last batch; their last transitions may still have to be written.
    gone_objects: Vec<Key>,
    /// Senders to the other tasks.
    outputs: Outputs,
    /// The effects of the initial state are dispatched.
    settled_once: bool,
    /// Tasks that publish commands or purge targets.
    publishing: JoinSet<()>,
    /// The parts of commands on NATS.
    parts: CommandParts,
    /// Ends this leadership when cancelled.
    stop_all: CancellationToken,
    /// When the next command may be due.
    next_command: Option<Instant>,
    /// When this leadership began, for durations.
    started: Instant,
    /// All commands that follow from the initial state are published.
    caught_up: bool,
}

impl Leader {
    fn handle_input(&mut self, input: Input) {
        match input {
            Input::Object(mut object, stored) => {
                if self.objects.get(&object.key).is_none() {
                    self.first_seen(&mut object, &stored);
                } else if let (Some(content), Some(status)) =
                    (stored.status_content, self.engine.status(&object.key))
                {
                    let (found, status) =
                        (WrittenStatus { content, version: stored.version }, status.clone().into());
                    self.enqueue_job(
                        &object.key,
                        Change::StatusObserved { found, uid: stored.uid.clone(), status },
                    );
                }
                self.gone_objects.retain(|key| *key != object.key);
                self.objects.put(object.key.clone(), stored);
                self.engine.handle(Event::Object(object));
            }
            Input::ObjectGone(key) => {
                self.gone_objects.push(key.clone());
                self.engine.handle(Event::ObjectGone(key));
            }
            Input::Event(event) => {
                if matches!(event, Event::Stream(StreamEvent::StreamsLost)) {
                    self.handle_parts(PartsEvent::StreamLost);
                }
                self.engine.handle(event);
            }
            Input::Report(target, report) => self.handle_report(target, report),
            Input::Parts(event) => self.handle_parts(event),
            Input::DriversOfParts(drivers) => self.set_drivers_of_parts(drivers),
            Input::ReferenceExists(key) => self.wait_for_references(key),
            Input::Synced(source) => {
                self.unsynced.remove(&source);
                if let Source::Kind(kind) = source {
                    self.absent.remove(&kind);
                }
                debug!(source = source.as_str(), left = self.unsynced.len(), "all seen");
            }
            Input::Absent(kind) => {
                self.absent.insert(kind);
            }
            Input::OutboxLost => self.outbox_lost = true,
            Input::Nameless(stream, subject) => self.remove_nameless(stream, subject),
        }
    }

    /// Purges the messages of a removed target from NATS.
    fn remove_target(&mut self, target: Target, driver: Name) {
        let LeaderContext { connection, lease_guard, .. } = self.context.clone();
        let mailbox = self.outputs.mailbox.clone();
        self.publishing.spawn(async move {
            lease_guard.wait_until_held().await;
            publish::remove_target(&connection, &mailbox, target, driver).await;
        });
    }

    fn remove_nameless(&mut self, stream: &'static str, subject: String) {
        let LeaderContext { connection, lease_guard, .. } = self.context.clone();
        self.publishing.spawn(async move {
            lease_guard.wait_until_held().await;
            publish::remove_nameless(&connection, stream, subject).await;
        });
    }

    /// Handles the first sight of an object. Its last outbox entry replaces its status if that is older.
    fn first_seen(&mut self, object: &mut eno_core::Object, stored: &Arc<StoredObject>) {
        let uid = &stored.uid;
        if let Some(content) = stored.status_content {
            let known = WrittenStatus { content, version: stored.version };
            self.enqueue_job(&object.key, Change::StatusKnown(known));
        }
        if stored.is_unrecorded {
            self.enqueue_job(&object.key, Change::UnrecordedKnown(uid.clone()));
        }
        if let Some(last) = self.outbox.last.remove(&object.key) {
            let counter = object.status.as_ref().map_or(0, |status| status.transitions);
            if let Some(repeated) =
                last.status.filter(|repeated| last.uid == *uid && repeated.transitions > counter)
            {
                self.enqueue_job(&object.key, Change::Status(Arc::new(repeated.clone()), uid.clone()));
                object.status = Some(repeated);
                return;
            }
        } else {
            self.repeat_transition(object, stored);
        }
        // The core sees no change in it. A status with pods changes anyway as soon as their nodes report.
        if let Some(status) =
            object.status.as_ref().filter(|status| stored.status_is_outdated && status.pods.is_empty())
        {
            self.enqueue_job(&object.key, Change::Status(Arc::new(status.clone()), uid.clone()));
        }
    }

    /// Publishes the last transition of an object again if the outbox that had it was lost.
    fn repeat_transition(&self, object: &eno_core::Object, stored: &Arc<StoredObject>) {
        let repeated =
            object.status.as_ref().filter(|status| self.outbox.is_complete && status.transitions > 0);
        if let Some(status) = repeated {
            let at = format!("{:.3}", Timestamp::now()).into();
            let change =
                Change::RepeatTransition { status: Arc::new(status.clone()), object: stored.clone(), at };
            self.enqueue_job(&object.key, change);
        }
    }

    /// True once all that the first decisions depend on has been seen. A kind that the API server does not know may
    /// come later if nothing that is realised depends on its objects.
    fn may_decide(&mut self) -> bool {
        if self.settled_once {
            return true;
        }
        let is_absent = |source: &Source| matches!(source, Source::Kind(kind) if self.absent.contains(kind));
        if !self.unsynced.iter().all(is_absent) {
            return false;
        }
        let need = |kind: &Kind| Some(format!("{kind}: {}", self.engine.need_of(*kind)?));
        let needed: Vec<String> = self.absent.iter().filter_map(need).collect();
        if !needed.is_empty() {
            if needed != self.needed {
                warn!(kinds = needed.join("; "), "nothing changes until the API server knows these kinds");
                self.needed = needed;
            }
            return false;
        }
        self.synced();
        true
    }

    fn synced(&mut self) {
        self.outbox.last = HashMap::new();
        self.context.synced.store(true, std::sync::atomic::Ordering::Relaxed);
        self.context.metrics.synced.set(u64::try_from(Timestamp::now().as_second()).unwrap_or_default());
        info!(took = ?self.started.elapsed(), "in step with the cluster");
    }

    /// Records how long the start took until no command was left to publish.
    fn report_catch_up(&mut self) {
        if !std::mem::replace(&mut self.caught_up, true) {
            let took = self.started.elapsed();
            self.context.metrics.catch_up.set(took.as_secs_f64());
            info!(?took, "caught up with the cluster");
        }
    }

    /// Inputs arrived.
    fn on_inputs(&mut self, inputs: impl Iterator<Item = Input>) -> Result<(), LeaderError> {
        self.engine.handle(Event::Time(self.started.elapsed()));
        for input in inputs {
            self.handle_input(input);
        }
        if self.outbox_lost {
            return Err(LeaderError::OutboxLost);
        }
        self.reconcile();
        Ok(())
    }

    /// Time passed: waits may be over, and commands may be due.
    fn on_time(&mut self) {
        self.engine.handle(Event::Time(self.started.elapsed()));
        self.run_due();
        self.reconcile();
    }

    /// The next time at which something is due.
    fn next_wake(&self) -> Instant {
        let parts = self.parts.next().map(|at| self.started + at);
        let due = self.next_command.into_iter().chain(self.delayed.wake()).chain(parts).min();
        due.unwrap_or_else(|| Instant::now() + MAX_IDLE)
    }

    /// Lets the core work out what follows from all inputs, and carries it out.
    fn reconcile(&mut self) {
        if !self.may_decide() {
            return;
        }
        let now = Timestamp::now();
        let deadline = now.checked_add(DEADLINE).unwrap_or(now).to_string();
        let moment = Moment { at: format!("{now:.3}"), elapsed: self.started.elapsed(), deadline };
        let started = Instant::now();
        let reconciled = self.engine.reconcile(&moment);
        self.context.metrics.settle.observe(started.elapsed().as_secs_f64());
        let at: Arc<str> = moment.at.into();
        for effect in reconciled.effects {
            self.context.metrics.effect(&effect);
            self.dispatch(effect, &at);
        }
        for (target, driver) in reconciled.removed {
            self.remove_target(target, driver);
        }
        self.on_first_reconcile();
        self.forget_gone_objects();
        for (participant, command) in reconciled.commands {
            self.send_command(participant, command);
        }
        self.count_commands(reconciled.unchanged, reconciled.decided);
        commands::log_republished(&self.context.metrics, reconciled.republished);
        commands::log_unissued(&self.context.metrics, reconciled.unissued);
        let metrics = &self.context.metrics;
        metrics.publish_waiting.set(i64::try_from(reconciled.waiting).unwrap_or(i64::MAX));
        metrics.publish_outstanding.set(i64::try_from(reconciled.outstanding).unwrap_or(i64::MAX));
        metrics.nodes.set(i64::try_from(reconciled.nodes).unwrap_or(i64::MAX));
        self.next_command = reconciled.next.map(|at| self.started + at);
        self.work_on_parts();
        if reconciled.waiting == 0 {
            self.report_catch_up();
        }
    }

    /// The effects of the initial state are dispatched, once.
    fn on_first_reconcile(&mut self) {
        if !std::mem::replace(&mut self.settled_once, true) {
            // Without node management, nothing receives this.
            let _ = self.outputs.pod_networks.send(pod_networks::Update::InitialSyncDone);
        }
    }

    /// Ends the work on objects that are gone since the last batch.
    fn forget_gone_objects(&mut self) {
        for key in std::mem::take(&mut self.gone_objects) {
            self.enqueue_job(&key, Change::Gone);
            self.objects.remove(&key);
            self.phases.remove(&key, &self.context.metrics);
        }
    }

    fn dispatch(&mut self, effect: Effect, at: &Arc<str>) {
        match effect {
            Effect::BridgeDomain { service, spec } => {
                // The receiver ends together with this leadership.
                let _ = self.outputs.bridge_domains.send((service, spec));
            }
            Effect::PodNetwork { namespace, name, uid, view } => {
                let _ =
                    self.outputs.pod_networks.send(pod_networks::Update::Desired(namespace, name, uid, view));
            }
            Effect::Notice { about, kind, messages } => self.publish_event(&about, kind, &messages),
            Effect::LabelNode { node, points, bridges } => {
                let wanted = node_labels::DesiredLabels::new(&points, &bridges);
                let _ = self.outputs.node_labels.send(node_labels::Update::Desired(node, wanted));
            }
            Effect::SampleDeployment { owner, name } => {
                if let Some(stored) = self.stored(&owner) {
                    let _ = self.outputs.samples.send((owner, (stored.uid.clone(), name)));
                }
            }
            Effect::Retry { network, attempt } => self.schedule_retry(network, attempt),
            Effect::Await(key) => self.wait_for_references(key),
            Effect::Deadline { key, since } => self.start_deadline(key, since),
            Effect::AddFinalizer(key) => {
                if let Some(stored) = self.stored(&key) {
                    self.enqueue_job(&key, Change::AddFinalizer(stored.uid.clone()));
                }
            }
            Effect::RemoveFinalizer(key) => {
                if let Some(stored) = self.stored(&key) {
                    self.enqueue_job(&key, writer::removal(key.kind, &stored));
                }
            }
            Effect::Transition { key, previous, status } => {
                if let Some(object) = self.stored(&key) {
                    self.phases.set(&key, &status, &self.context.metrics);
                    let change =
                        Change::Transition { previous, status: status.into(), object, at: at.clone() };
                    self.enqueue_job(&key, change);
                }
            }
            Effect::Status { key, status } => {
                if let Some(stored) = self.stored(&key) {
                    self.phases.set(&key, &status, &self.context.metrics);
                    self.enqueue_job(&key, Change::Status(status.into(), stored.uid.clone()));
                }
            }
        }
    }

    fn stored(&self, key: &Key) -> Option<Arc<StoredObject>> {
        let stored = self.objects.get(key);
        if stored.is_none() {
            debug!(object = %key, "nothing is written about an object that was never seen");
        }
        stored.cloned()
    }

    fn enqueue_job(&self, key: &Key, change: Change) {
        if self.outputs.jobs.send(Job { key: key.clone(), change }).is_err() {
            // The writer ended, which ends this leadership.
            self.stop_all.cancel();
        }
    }
}
