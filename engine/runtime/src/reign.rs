//! One time of leading, from taking the lead to losing it. One task owns the core and decides; all others watch or
//! write.

mod arrivals;
mod deadlines;
mod turns;

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use eno_core::{Config, Effect, Engine, Event, Key, Name, Status, Target};
use eno_sbi::nats::{Connection, ensure_streams};
use eno_schemas::{Command, Decision, Phase, Transaction};
use jiff::Timestamp;
use kube::Client;
use tokio::sync::{Semaphore, mpsc, watch as watch_channel};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info, warn};

use crate::bridge_domains;
use crate::callbacks;
use crate::drift::{DRIFT, Drifts};
use crate::drivers;
use crate::events::Events;
use crate::gate::{Gate, Participant};
use crate::mailbox::{Input, Source};
use crate::marks;
use crate::metrics::Metrics;
use crate::objects::{Objects, Stored};
use crate::outbox::{self, Found};
use crate::pod_networks;
use crate::publish;
use crate::samples;
use crate::streams;
use crate::tenure::Tenure;
use crate::watch;
use crate::writer::{self, Change, Job, Told};

/// The mailbox holds so much; then those who fill it wait.
const MAILBOX: usize = 4096;
/// So long nothing may need to be done.
const IDLE: Duration = Duration::from_mins(1);
/// Writes to the API server at any time.
const WRITES: usize = 32;

/// What one time of leading is done with.
#[derive(Clone)]
pub struct Realm {
    /// The API server.
    pub client: Client,
    /// NATS.
    pub connection: Connection,
    /// Posts callbacks.
    pub poster: Arc<callbacks::Poster>,
    /// For the core.
    pub config: Config,
    /// Of sample Deployments.
    pub sample_image: Option<Arc<str>>,
    /// Counts and measures.
    pub metrics: Arc<Metrics>,
    /// This process, in Kubernetes Events.
    pub identity: Arc<str>,
    /// Set while the engine is in step with the cluster.
    pub synced: Arc<std::sync::atomic::AtomicBool>,
    /// Until when this process leads for sure.
    pub tenure: Tenure,
}

/// Why leading ended by itself.
#[derive(Debug, thiserror::Error)]
pub enum ReignError {
    /// NATS did not do what is needed to begin. A retry may help.
    #[error("{0}")]
    Nats(#[from] async_nats::Error),
    /// Words of this or a later term are on NATS: the Lease was made anew and counts from the beginning. A term above
    /// this one is needed, since drivers follow the highest only.
    #[error("words of term {found} are on NATS already")]
    TermUsed {
        /// The highest that was found.
        found: u64,
    },
    /// The outbox was lost and is empty. Who begins again tells the last transition of every object once more.
    #[error("the outbox was lost")]
    OutboxLost,
}

/// Leads until `stop`, or until it turns out that another does. All that it started has ended when it returns.
pub async fn reign(realm: &Realm, term: u64, stop: impl Future<Output = ()>) -> Result<(), ReignError> {
    // Ends all tasks of this time of leading, whoever brings that about.
    let over = CancellationToken::new();
    let mut tasks = JoinSet::new();
    let result = tokio::select! {
        result = rule(realm, term, &over, &mut tasks) => result,
        () = over.cancelled() => Ok(()),
        () = stop => Ok(()),
    };
    over.cancel();
    tasks.shutdown().await;
    realm.synced.store(false, std::sync::atomic::Ordering::Relaxed);
    realm.metrics.reset();
    result
}

async fn rule(
    realm: &Realm,
    term: u64,
    over: &CancellationToken,
    tasks: &mut JoinSet<()>,
) -> Result<(), ReignError> {
    let Realm { client, connection, metrics, .. } = realm;
    let began = Instant::now();
    metrics.leading.set(1);
    ensure_streams(&connection.jetstream, connection.replicas).await.map_err(async_nats::Error::from)?;
    let (outbox, commands) =
        tokio::try_join!(outbox::load(&connection.jetstream), drivers::commands(connection, metrics))?;
    (0..outbox.unreadable).for_each(|_| metrics.malformed("transition"));
    let terms =
        commands.iter().filter_map(|(_, held, _)| held.generation.as_ref()).map(|generation| generation.term);
    if let Some(found) = terms.max().filter(|found| *found >= term) {
        return Err(ReignError::TermUsed { found });
    }
    info!(term, outbox = outbox.last.len(), commands = commands.len(), "leading");
    let (mailbox, mut inputs) = mpsc::channel(MAILBOX);
    let (marks, marked) = mpsc::unbounded_channel();
    watch::start(tasks, client, &mailbox, marks.clone(), metrics).await;
    let (losses, lost) = watch_channel::channel(0);
    tasks.spawn(drivers::reports(connection.clone(), mailbox.clone(), metrics.clone(), lost.clone()));
    tasks.spawn(drivers::presence(connection.clone(), mailbox.clone(), metrics.clone(), lost.clone()));
    tasks.spawn(streams::guard(connection.clone(), mailbox.clone(), losses));
    let poster = realm.poster.clone();
    let tenure = realm.tenure.clone();
    tasks.spawn(callbacks::run(connection.clone(), poster, metrics.clone(), tenure, lost, over.clone()));
    let (jobs, queue) = mpsc::unbounded_channel();
    let events = Events::start(client.clone(), &realm.identity, metrics.clone(), over.clone());
    let tools = Arc::new(writer::Tools {
        client: client.clone(),
        jetstream: connection.jetstream.clone(),
        mailbox: mailbox.clone(),
        permits: Arc::new(Semaphore::new(WRITES)),
        events: events.clone(),
        metrics: metrics.clone(),
        tenure: realm.tenure.clone(),
    });
    let sequences = outbox.last.iter().map(|(key, last)| (key.clone(), last.sequence)).collect();
    tasks.spawn(writer::run(tools, queue, sequences, over.clone()));
    let (bridge_domains, wanted) = mpsc::unbounded_channel();
    tasks.spawn(bridge_domains::run(client.clone(), wanted, metrics.clone(), over.clone()));
    let (pod_networks, views) = mpsc::unbounded_channel();
    let (samples, deployments) = mpsc::unbounded_channel();
    if realm.config.nodes {
        tasks.spawn(marks::run(client.clone(), marked, metrics.clone(), over.clone()));
        let tell = events.clone();
        tasks.spawn(pod_networks::run(client.clone(), views, tell, metrics.clone(), over.clone()));
        let image = realm.sample_image.clone();
        let (mailbox, events) = (mailbox.clone(), events.clone());
        let metrics = metrics.clone();
        tasks.spawn(samples::run(client.clone(), image, deployments, mailbox, events, metrics, over.clone()));
    }

    let mut throne = Throne {
        realm: realm.clone(),
        term,
        used: None,
        engine: Engine::new(realm.config.clone()),
        gate: Gate::new(term),
        objects: Objects::default(),
        phases: HashMap::new(),
        outbox,
        outbox_lost: false,
        unsynced: Source::all().collect(),
        gone: Vec::new(),
        waits: VecDeque::new(),
        retries: BTreeSet::new(),
        deadlines: BTreeSet::new(),
        drifts: Drifts::of(DRIFT),
        taken_off: Drifts::of(eno_schemas::VLAN_TAKEN_OFF),
        mailbox,
        jobs,
        bridge_domains,
        pod_networks,
        marks,
        samples,
        events,
        begun: false,
        uncommanded: Vec::new(),
        publishing: JoinSet::new(),
        over: over.clone(),
        began,
        caught_up: false,
        since: Timestamp::now(),
    };
    // What one participant was told is decided for all.
    let confirmed = |(_, _, command): &(Target, crate::gate::Held, Option<Command>)| {
        let transaction = command.as_ref()?.transaction.as_ref()?;
        (transaction.decision == Some(Decision::Confirm)).then(|| transaction.id.clone())
    };
    let confirmed: BTreeSet<String> = commands.iter().filter_map(confirmed).collect();
    for (target, held, command) in commands {
        throne.found(target, held, command, &confirmed);
    }
    let mut batch = Vec::new();
    let mut wake: Option<Instant> = None;
    loop {
        let at = wake.unwrap_or_else(|| Instant::now() + IDLE);
        tokio::select! {
            count = inputs.recv_many(&mut batch, MAILBOX) => {
                if count == 0 {
                    return Ok(());
                }
                for input in batch.drain(..) {
                    throne.take(input);
                }
                if let Some(found) = throne.used {
                    return Err(ReignError::TermUsed { found });
                }
                if throne.outbox_lost {
                    return Err(ReignError::OutboxLost);
                }
                metrics.mailbox.set(i64::try_from(inputs.len()).unwrap_or(i64::MAX));
                throne.settle();
            }
            Some(result) = throne.publishing.join_next() => {
                if let Ok(Err(error)) = result {
                    error!(%error, "stepping down");
                    over.cancel();
                    return Ok(());
                }
            }
            Some(ended) = tasks.join_next() => {
                if !over.is_cancelled() {
                    warn!(panicked = ended.is_err(), "a part of the engine ended by itself, beginning again");
                }
                return Ok(());
            }
            () = tokio::time::sleep_until(at.into()) => {}
        }
        throne.end_waits();
        throne.end_retries();
        throne.end_deadlines();
        loop {
            wake = throne.publish();
            // What is commanded now is judged by what was reported before.
            if !throne.settle() {
                break;
            }
        }
        throne.catch_up();
        let put_off = throne.retries.first().map(|(at, ..)| *at);
        let deadline = throne.deadlines.first().map(|(at, ..)| *at);
        let waits = throne.waits.front().map(|(until, _)| *until);
        wake = wake.into_iter().chain(waits).chain(put_off).chain(deadline).min();
    }
}

/// Where it is decided.
struct Throne {
    realm: Realm,
    term: u64,
    /// A term that another engine has used and that is not below this one.
    used: Option<u64>,
    engine: Engine,
    gate: Gate,
    objects: Objects,
    /// The phase of each object, for the metrics.
    phases: HashMap<Key, Option<Phase>>,
    /// The last outbox entry of each object that was not seen yet.
    outbox: Found,
    /// It was made anew since: who leads next tells again what it held.
    outbox_lost: bool,
    unsynced: HashSet<Source>,
    /// Objects that name something that is not there yet, and until when that is waited for, the first first.
    waits: VecDeque<(Instant, Key)>,
    /// Networks that a switch refused, with the time at which they are tried again and their attempt.
    retries: BTreeSet<(Instant, Key, u32)>,
    /// When errors that may pass count as lasting: the object, and when its error began.
    deadlines: BTreeSet<(Instant, Key, Name)>,
    drifts: Drifts,
    taken_off: Drifts,
    /// Objects that went away in this batch; their last words may still be said.
    gone: Vec<Key>,
    mailbox: mpsc::Sender<Input>,
    jobs: mpsc::UnboundedSender<Job>,
    bridge_domains: mpsc::UnboundedSender<bridge_domains::Wanted>,
    pod_networks: mpsc::UnboundedSender<pod_networks::Word>,
    marks: mpsc::UnboundedSender<marks::Word>,
    samples: mpsc::UnboundedSender<samples::Wanted>,
    events: Events,
    /// What follows from all that there was at the start is handed out.
    begun: bool,
    /// Targets, with their drivers, that were reported on before that and of which there is no command.
    uncommanded: Vec<(Target, Name)>,
    publishing: JoinSet<Result<(), publish::Superseded>>,
    over: CancellationToken,
    began: Instant,
    /// Nothing is left to be published of what follows from all that there was at the start.
    caught_up: bool,
    since: Timestamp,
}

impl Throne {
    /// A command that was on NATS before this time of leading. `confirmed`: the transactions that are.
    fn found(
        &mut self,
        target: Target,
        held: crate::gate::Held,
        command: Option<Command>,
        confirmed: &BTreeSet<String>,
    ) {
        let driver = held.driver.clone();
        self.gate.found(target.clone(), held);
        let Some(Command { generation, desired, transaction, .. }) = command else { return };
        self.engine.handle(Event::StoredCommand(target.clone(), Box::new(desired.clone())));
        let undone = |transaction: &Transaction| transaction.decision != Some(Decision::Confirm);
        if let Some(mut transaction) = transaction.filter(undone) {
            let confirmed = confirmed.contains(&transaction.id);
            transaction.decision = Some(if confirmed { Decision::Confirm } else { Decision::Abort });
            let who = Participant { target, driver, desired, hash: generation.hash.clone() };
            self.gate.decide_found(who, generation, transaction, Instant::now());
        }
    }

    fn take(&mut self, input: Input) {
        match input {
            Input::Object(mut object, stored) => {
                if self.objects.get(&object.key).is_none() {
                    self.first_seen(&mut object, &stored);
                } else if let (Some(content), Some(status)) = (stored.told, self.engine.status(&object.key)) {
                    let (found, status) = (Told { content, version: stored.version }, status.clone().into());
                    self.job(&object.key, Change::Found { found, uid: stored.uid.clone(), status });
                }
                self.gone.retain(|key| *key != object.key);
                self.objects.put(object.key.clone(), stored);
                self.engine.handle(Event::Object(object));
            }
            Input::ObjectGone(key) => {
                self.gone.push(key.clone());
                self.engine.handle(Event::ObjectGone(key));
            }
            Input::World(event) => {
                if let Event::Drivers(drivers) = &event {
                    self.gate.alive(drivers.clone());
                }
                self.engine.handle(event);
            }
            Input::Report(target, driver, report) => self.reported(target, &driver, report),
            Input::Unread(target, driver) => self.gate.unread(&target, &driver, Instant::now()),
            Input::Arriving(key) => self.wait_for_arrivals(key),
            Input::Synced(source) => {
                self.unsynced.remove(&source);
                debug!(source = source.as_str(), left = self.unsynced.len(), "all seen");
                if self.unsynced.is_empty() {
                    self.synced();
                }
            }
            Input::Published(target, generation, sequence) => {
                self.gate.published(&target, &generation, sequence, Instant::now());
            }
            Input::Forgotten(target) => self.gate.forgotten(&target),
            Input::NotPublished(target, found) => self.gate.failed(&target, found, Instant::now()),
            Input::Kept(kept) => {
                let lost = self.gate.kept(&kept, Instant::now());
                if lost > 0 {
                    warn!(lost, "NATS lost commands: publishing them again");
                }
            }
            Input::StreamsLost { outbox } => {
                warn!(outbox, "NATS lost streams: publishing all commands again");
                self.gate.lost();
                self.outbox_lost |= outbox;
            }
        }
    }

    /// A target is gone: its words are taken off NATS.
    fn forget(&mut self, target: Target, driver: Name) {
        let Realm { connection, tenure, .. } = self.realm.clone();
        let mailbox = self.mailbox.clone();
        self.publishing.spawn(async move {
            tenure.held().await;
            publish::forget(&connection, &mailbox, target, &driver).await;
            Ok(())
        });
    }

    /// An object is seen for the first time: its last outbox entry counts, when that is ahead of its status.
    fn first_seen(&mut self, object: &mut eno_core::Object, stored: &Arc<Stored>) {
        let uid = &stored.uid;
        if let Some(content) = stored.told {
            let known = Told { content, version: stored.version };
            self.job(&object.key, Change::Known(known));
        }
        if let Some(last) = self.outbox.last.remove(&object.key) {
            let counter = object.status.as_ref().map_or(0, |status| status.transitions);
            if let Some(told) = last.status.filter(|told| last.uid == *uid && told.transitions > counter) {
                self.job(&object.key, Change::Status(Arc::new(told.clone()), uid.clone()));
                object.status = Some(told);
                return;
            }
        } else {
            self.tell_again(object, stored);
        }
        // The core sees nothing new in it. Of one with pods it does, as soon as their nodes report.
        if let Some(status) = object.status.as_ref().filter(|status| stored.former && status.pods.is_empty())
        {
            self.job(&object.key, Change::Status(Arc::new(status.clone()), uid.clone()));
        }
    }

    /// Tells the last transition of an object once more, when the outbox that had it was lost.
    fn tell_again(&self, object: &eno_core::Object, stored: &Arc<Stored>) {
        let told = object.status.as_ref().filter(|status| self.outbox.is_complete && status.transitions > 0);
        if let Some(status) = told {
            let at = format!("{:.3}", Timestamp::now()).into();
            let change = Change::Again { status: Arc::new(status.clone()), object: stored.clone(), at };
            self.job(&object.key, change);
        }
    }

    fn synced(&mut self) {
        self.outbox.last = HashMap::new();
        self.realm.synced.store(true, std::sync::atomic::Ordering::Relaxed);
        self.realm.metrics.synced.set(u64::try_from(Timestamp::now().as_second()).unwrap_or_default());
        info!(took = ?self.began.elapsed(), "in step with the cluster");
    }

    /// Tells how long it took until nothing was left to be published.
    fn catch_up(&mut self) {
        if !self.caught_up && self.begun && self.gate.counts().0 == 0 {
            self.caught_up = true;
            let took = self.began.elapsed();
            self.realm.metrics.catch_up.set(took.as_secs_f64());
            info!(?took, "caught up with the cluster");
        }
    }

    /// Works out what follows from all that was taken in, and hands it out; true: there is something to publish.
    fn settle(&mut self) -> bool {
        if !self.unsynced.is_empty() {
            return false;
        }
        let mut publish = false;
        let now = Timestamp::now();
        let at: Arc<str> = format!("{now:.3}").into();
        let began = Instant::now();
        let effects = self.engine.settle(&at);
        self.realm.metrics.settle.observe(began.elapsed().as_secs_f64());
        for effect in effects {
            self.realm.metrics.effect(&effect);
            publish |= matches!(effect, Effect::Publish(_));
            self.hand_out(effect, &at);
        }
        if !std::mem::replace(&mut self.begun, true) {
            // Where nodes are left alone, nobody listens.
            let _ = self.pod_networks.send(pod_networks::Word::Begin);
            for (target, driver) in std::mem::take(&mut self.uncommanded) {
                self.forget_unwanted(&target, &driver);
            }
        }
        for key in std::mem::take(&mut self.gone) {
            self.job(&key, Change::Gone);
            self.objects.remove(&key);
            if let Some(phase) = self.phases.remove(&key) {
                self.realm.metrics.leaves(key.kind, phase);
            }
        }
        publish
    }

    fn hand_out(&mut self, effect: Effect, at: &Arc<str>) {
        match effect {
            Effect::Publish(target) => self.gate.changed(target, Instant::now()),
            Effect::Forget(target) => {
                if let Some(driver) = self.gate.forget(&target, Instant::now()) {
                    self.forget(target, driver);
                }
            }
            Effect::BridgeDomain { service, spec } => {
                // It ends with this time of leading, and then nothing is handed out any more.
                let _ = self.bridge_domains.send((service, spec));
            }
            Effect::PodNetwork { namespace, name, uid, view } => {
                let _ = self.pod_networks.send(pod_networks::Word::Wanted(namespace, name, uid, view));
            }
            Effect::LabelNode { node, points, bridges } => {
                let wanted = marks::Wanted::new(&points, &bridges);
                let _ = self.marks.send(marks::Word::Wanted(node, wanted));
            }
            Effect::SampleDeployment { owner, name } => {
                if let Some(stored) = self.stored(&owner) {
                    let _ = self.samples.send((owner, (stored.uid.clone(), name)));
                }
            }
            Effect::Retry { network, attempt } => self.retry_later(network, attempt),
            Effect::Await(key) => self.wait_for_arrivals(key),
            Effect::Deadline { key, since } => self.start_deadline(key, since),
            Effect::AddFinalizer(key) => {
                if let Some(stored) = self.stored(&key) {
                    self.job(&key, Change::AddFinalizer(stored.uid.clone()));
                }
            }
            Effect::RemoveFinalizer(key) => {
                if let Some(stored) = self.stored(&key) {
                    self.job(&key, writer::removal(key.kind, &stored));
                }
            }
            Effect::Transition { key, previous, status } => {
                if let Some(object) = self.stored(&key) {
                    self.count(&key, &status);
                    let change =
                        Change::Transition { previous, status: status.into(), object, at: at.clone() };
                    self.job(&key, change);
                }
            }
            Effect::Status { key, status } => {
                if let Some(stored) = self.stored(&key) {
                    self.count(&key, &status);
                    self.job(&key, Change::Status(status.into(), stored.uid.clone()));
                }
            }
        }
    }

    fn stored(&self, key: &Key) -> Option<Arc<Stored>> {
        let stored = self.objects.get(key);
        if stored.is_none() {
            debug!(object = %key, "nothing is written about an object that was never seen");
        }
        stored.cloned()
    }

    fn count(&mut self, key: &Key, status: &Status) {
        self.realm.metrics.enters(key.kind, status.phase);
        if let Some(before) = self.phases.insert(key.clone(), status.phase) {
            self.realm.metrics.leaves(key.kind, before);
        }
    }

    fn job(&self, key: &Key, change: Change) {
        if self.jobs.send(Job { key: key.clone(), change }).is_err() {
            // The writer ended, and with it this time of leading.
            self.over.cancel();
        }
    }
}
