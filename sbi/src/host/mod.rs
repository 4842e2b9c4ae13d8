//! Runs a [`Driver`] on NATS.
//!
//! The host takes the latest command of each target, reconciles many targets at once and each target one
//! command at a time, retries retryable failures, and publishes the driver's reports.

mod command_stream;
mod heartbeat;
mod job;
mod metrics;
#[doc(hidden)]
pub mod parts;
mod peers;
mod preview;
mod publish;
mod scheduler;
mod stored_reports;
mod target_leases;

use std::sync::Arc;
use std::time::{Duration, Instant};

use eno_schemas::{Command, DriverHello, MessageError, PayloadKind, Subject, SubjectKind};
use futures::StreamExt;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info, warn};

pub use metrics::HostMetrics;
pub use peers::{Peers, Visits};

use crate::driver::Driver;
use crate::nats::{self, Connection};
use crate::permit::ConcurrencyPermits;
use crate::target_ownership::OwnedTargets;
use crate::work::{HOLD, VISITS};
use command_stream::{CommandFilter, Event};
use job::{Context, Finished};
use parts::{Assembler, Due, Step};
use publish::{Publisher, ReportRecord};
use scheduler::{InvalidCommand, OfferResult, TargetScheduler};
use stored_reports::StoredReports;
use target_leases::{LeaseEvent, LeaseRequest, Leaser};

/// Time that work in flight gets to end after shutdown was requested.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(10);
/// Time by which a NATS server lags behind the leader of a stream at most.
const SERVER_LAG: Duration = Duration::from_secs(1);
/// Lease name of the whole driver ([`Ownership::WholeDriver`]) in the owners bucket.
const WHOLE_DRIVER_KEY: &str = "_";

/// How instances of one driver share the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ownership {
    /// Each target is leased by one instance. For few targets that hold a session each, and for drivers that
    /// work on one target alone ([`Driver::only_target`]).
    PerTarget,
    /// One instance works on all targets and the others stand by. For thousands of targets.
    WholeDriver,
}

/// Command-line flags of a host.
#[derive(Clone, Debug, clap::Args)]
pub struct HostArgs {
    /// How many targets are worked on at once. Those that hold a change until a transaction is
    /// decided don't count, nor those that are being connected to.
    #[arg(long, env = "ENO_CONCURRENCY", default_value_t = 64, value_name = "COUNT",
          value_parser = clap::value_parser!(u16).range(1..))]
    pub concurrency: u16,
    /// Tells this process from others of the driver. One that starts again under its old name goes on at once;
    /// otherwise it waits until the old one's ownership ends. Two that run at once must not share a name.
    /// Default: made up at each start.
    #[arg(long, env = "ENO_INSTANCE", value_name = "NAME")]
    pub instance: Option<String>,
    /// A target's work is broken off, and tried again, after this many seconds.
    #[arg(long, env = "ENO_TIME_LIMIT", default_value_t = 600, value_name = "SECONDS",
          value_parser = clap::value_parser!(u32).range(1..))]
    pub time_limit: u32,
}

/// Configuration of a host.
#[derive(Clone, Debug)]
pub struct HostOptions {
    /// The connection to NATS.
    pub connection: Connection,
    /// How instances share the work.
    pub ownership: Ownership,
    /// The driver's version, published in its presence.
    pub version: String,
    /// Unique name of this instance among those of the driver.
    pub instance: String,
    /// Maximum concurrent reconciles.
    pub concurrency: usize,
    /// Time after which one reconcile is cancelled.
    pub time_limit: Duration,
    /// Lifetime of the ownership of a target after its renewal, as the bucket of owners has it.
    pub lease_duration: Duration,
    /// The host's metrics.
    pub metrics: HostMetrics,
}

impl HostOptions {
    /// The defaults of [`HostArgs`], with a generated instance name.
    pub fn new(connection: Connection, ownership: Ownership, version: impl Into<String>) -> Self {
        let inbox = connection.client.new_inbox();
        Self {
            connection,
            ownership,
            version: version.into(),
            instance: inbox.rsplit('.').next().unwrap_or(&inbox).to_owned(),
            concurrency: 64,
            time_limit: Duration::from_mins(10),
            lease_duration: nats::LEASE,
            metrics: HostMetrics::default(),
        }
    }

    /// Applies the command-line flags.
    #[must_use]
    pub fn with_args(mut self, args: &HostArgs) -> Self {
        self.concurrency = args.concurrency.into();
        self.time_limit = Duration::from_secs(args.time_limit.into());
        if let Some(instance) = &args.instance {
            self.instance.clone_from(instance);
        }
        self
    }
}

/// The reason why a host ended without a stop request.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// The driver's identity breaks the schema of [`DriverHello`].
    #[error(transparent)]
    Hello(#[from] MessageError),
    /// A subscription failed. A retry helps.
    #[error("subscribing to {subject}: {source}")]
    Subscribe {
        /// The subject.
        subject: String,
        /// The client's error.
        source: async_nats::Error,
    },
}

/// Runs the driver until `shutdown`. Work in flight then sees that it is not current, and gets
/// [`SHUTDOWN_GRACE`] to end.
pub async fn run<D: Driver>(
    driver: D,
    options: HostOptions,
    shutdown: CancellationToken,
) -> Result<(), HostError> {
    let identity = driver.identity();
    let can_hold = identity.capabilities.iter().any(|capability| capability == HOLD);
    let visits = identity.capabilities.iter().any(|capability| capability == VISITS);
    let only_target = driver.only_target();
    let hello = DriverHello {
        driver: identity.name.clone(),
        instance: options.instance.clone(),
        version: options.version.clone(),
        kinds: identity.kinds.clone(),
        capabilities: identity.capabilities,
        target: only_target.clone(),
        at: None,
    };
    eno_schemas::encode(&hello)?;
    info!(driver = %identity.name, instance = %options.instance, "driver starts");

    let connection = options.connection.clone();
    let subscribe = async |subject: String| {
        let subscribed = connection.client.subscribe(subject.clone()).await;
        subscribed.map_err(|source| HostError::Subscribe { subject, source: source.into() })
    };
    let forget_messages = subscribe(Subject::forget(&identity.name).to_string()).await?;
    let preview_requests = subscribe(match &only_target {
        Some(target) => Subject::preview(&identity.name, target).to_string(),
        None => SubjectKind::Preview.of_driver(&identity.name),
    })
    .await?;

    let mut background = JoinSet::new();
    if let Some(target) = only_target.as_deref().filter(|_| visits) {
        let (peers, visits) = peers::join(&connection.client, target).await?;
        driver.meet(peers, visits);
    }
    let (command_events_in, command_events) = mpsc::channel(256);
    let filter =
        CommandFilter { driver: identity.name.clone(), target: only_target, kinds: identity.kinds, can_hold };
    background.spawn(command_stream::run(connection.clone(), filter.clone(), command_events_in.clone()));
    let (can_read_parts, reads_parts) = watch::channel((!filter.reads_parts()).then_some(false));
    if filter.reads_parts() {
        let events = command_events_in.clone();
        background.spawn(command_stream::run_parts(connection.clone(), filter, events, can_read_parts));
    }
    let (lease_requests, lease_requests_out) = mpsc::unbounded_channel();
    let (lease_events_in, lease_events) = mpsc::unbounded_channel();
    let owned_targets = OwnedTargets::default();
    let leaser = Leaser {
        driver: identity.name.clone(),
        target: driver.only_target(),
        instance: options.instance.clone(),
        lease_duration: options.lease_duration,
    };
    background.spawn(target_leases::run(
        connection.clone(),
        leaser,
        owned_targets.clone(),
        lease_requests_out,
        lease_events_in,
    ));
    let heartbeat_stop = CancellationToken::new();
    let heartbeat = heartbeat::run(connection.clone(), hello, reads_parts, heartbeat_stop.clone());
    background.spawn(async move {
        if let Err(error) = heartbeat.await {
            error!(%error, "the driver can't announce itself");
        }
    });

    let stored_reports =
        StoredReports::new(connection.clone(), &identity.name, driver.only_target().as_deref());
    let changed = driver.changed();
    let mut host = Host {
        scheduler: TargetScheduler::new(options.ownership),
        assembler: Assembler::default(),
        events: command_events_in,
        part_reads: JoinSet::new(),
        ownership: options.ownership,
        lease_requests,
        connection: connection.clone(),
        context: Arc::new(Context {
            driver,
            name: identity.name,
            instance: options.instance,
            publisher: Publisher::new(connection, stored_reports.clone()),
            time_limit: options.time_limit,
            metrics: options.metrics,
            owned_targets,
            ownership: options.ownership,
        }),
        stored_reports,
        jobs: JoinSet::new(),
        forget_checks: JoinSet::new(),
        previews: JoinSet::new(),
    };
    if options.ownership == Ownership::WholeDriver {
        host.request_lease(LeaseRequest::Acquire(WHOLE_DRIVER_KEY.into()));
    }
    host.serve(
        options.concurrency,
        Inputs {
            command_events,
            lease_events,
            forget_messages,
            preview_requests,
            changed: Box::pin(changed),
        },
        &shutdown,
    )
    .await;
    host.wind_down().await;
    // Dropping the host closes its channels: the lease task releases all leases and ends, and so does the
    // command stream.
    drop(host);
    heartbeat_stop.cancel();
    if tokio::time::timeout(SHUTDOWN_GRACE, async { while background.join_next().await.is_some() {} })
        .await
        .is_err()
    {
        warn!("NATS does not answer, leaving without a word");
    }
    info!("driver ends");
    Ok(())
}

struct Inputs<C> {
    command_events: mpsc::Receiver<Event>,
    lease_events: mpsc::UnboundedReceiver<LeaseEvent>,
    forget_messages: async_nats::Subscriber,
    preview_requests: async_nats::Subscriber,
    changed: C,
}

struct Host<D> {
    /// Decides which target is worked on next.
    scheduler: TargetScheduler<ReportRecord>,
    /// Makes commands of heads and parts.
    assembler: Assembler,
    /// Events of the streams.
    events: mpsc::Sender<Event>,
    /// Reads of single parts.
    part_reads: JoinSet<()>,
    /// How instances share the work.
    ownership: Ownership,
    /// Requests to the lease task.
    lease_requests: mpsc::UnboundedSender<LeaseRequest>,
    /// The connection to NATS.
    connection: Connection,
    /// What all jobs share.
    context: Arc<Context<D>>,
    /// The stored reports of the driver.
    stored_reports: StoredReports,
    /// Jobs in flight.
    jobs: JoinSet<Finished>,
    /// Checks whether a target of a forget message still has a command: its name, the stream position of its
    /// last command when the message came, and the result.
    forget_checks: JoinSet<(String, Option<u64>, bool)>,
    /// Previews in progress.
    previews: JoinSet<()>,
}

impl<D: Driver> Host<D> {
    async fn serve<C>(&mut self, concurrency: usize, mut inputs: Inputs<C>, shutdown: &CancellationToken)
    where
        C: futures::Stream<Item = String> + Unpin,
    {
        let mut changes_ended = false;
        let permits = ConcurrencyPermits::new(concurrency);
        let mut permits_in_use = permits.in_use();
        loop {
            // Marks the current value as seen.
            permits_in_use.borrow_and_update();
            while let Some(permit) = permits.try_acquire() {
                let Some(start) = self.scheduler.next() else {
                    // No job waits for this permit, so its release needs no wake-up.
                    drop(permit);
                    permits_in_use.borrow_and_update();
                    break;
                };
                self.jobs.spawn(job::run(self.context.clone(), start, permit));
            }
            let retry = self.scheduler.next_retry().map(tokio::time::Instant::from_std);
            let lacking = self.assembler.wake().map(tokio::time::Instant::from_std);
            tokio::select! {
                () = shutdown.cancelled() => return,
                Some(event) = inputs.command_events.recv() => self.on_event(event),
                Some(event) = inputs.lease_events.recv() => self.on_lease_event(event),
                Some(message) = inputs.forget_messages.next() => self.on_forget_message(&message.payload),
                Some(message) = inputs.preview_requests.next(), if self.previews.len() < preview::MAX_CONCURRENT => {
                    self.on_preview_request(&message);
                }
                Some(_) = self.previews.join_next() => {}
                target = inputs.changed.next(), if !changes_ended => match target {
                    Some(target) => self.scheduler.changed(&target),
                    None => changes_ended = true,
                },
                Some(done) = self.jobs.join_next() => self.on_finished(done),
                Ok(()) = permits_in_use.changed() => {}
                Some(Ok(checked)) = self.forget_checks.join_next() => self.on_forget_checked(checked),
                () = tokio::time::sleep_until(retry.unwrap_or_else(tokio::time::Instant::now)), if retry.is_some() => {
                    self.context.metrics.retried(self.scheduler.retry(Instant::now()));
                }
                () = tokio::time::sleep_until(lacking.unwrap_or_else(tokio::time::Instant::now)), if lacking.is_some() => {
                    while let Some(due) = self.assembler.due(Instant::now()) {
                        self.on_lacking(due);
                    }
                }
                Some(_) = self.part_reads.join_next() => {}
            }
            self.context.metrics.targets(self.scheduler.len());
        }
    }

    fn on_event(&mut self, event: Event) {
        match event {
            Event::Started => {
                self.stored_reports.all_changed();
                self.scheduler.replay_started();
            }
            Event::CaughtUp => {
                for target in self.scheduler.replay_caught_up() {
                    self.assembler.forget(&target);
                    self.request_target_lease(|| LeaseRequest::Release(target));
                }
            }
            Event::Command(command, position) => {
                if command.desired.kind() == PayloadKind::Fabric {
                    self.assembler.whole(&command.target, &command.generation);
                }
                self.offer(command, position);
            }
            Event::Head(head, position, age) => {
                let target = head.target.clone();
                self.ensure_lease(&target);
                self.scheduler.seen(&target, position);
                let step = self.assembler.head(head, age, Instant::now());
                self.on_step(&target, step);
            }
            Event::PartsStarted => self.assembler.replay_started(),
            Event::PartsCaughtUp => self.assembler.replay_caught_up(),
            Event::Part(target, hash, payload) => {
                match self.assembler.part(&target, hash, &payload, Instant::now()) {
                    Ok(step) => self.on_step(&target, step),
                    Err(error) => {
                        self.context.metrics.bad_message();
                        warn!(%target, %error, "ignoring a message that is no part");
                    }
                }
            }
            Event::Invalid(target, position, bad) => self.offer_invalid(&target, position, bad),
        }
    }

    /// Handles what a head or a part led to.
    fn on_step(&mut self, target: &str, step: Step) {
        let position = self.scheduler.position(target).unwrap_or_default();
        match step {
            Step::None => {}
            Step::Older => self.ignore_older(target),
            Step::Complete(command, age) => {
                self.offer(command_stream::with_deadline(*command, age), position);
            }
            Step::Invalid(generation, reason) => {
                let bad = InvalidCommand { generation: Some(generation), reason };
                self.offer_invalid(target, position, bad);
            }
        }
    }

    /// Handles what is due for a command that lacks parts.
    fn on_lacking(&mut self, due: Due) {
        match due {
            Due::Read(target, parts) => {
                let (connection, driver) = (self.connection.clone(), self.context.name.clone());
                let events = self.events.clone();
                self.part_reads.spawn(command_stream::read_alone(connection, driver, target, parts, events));
            }
            Due::Report(target, lacking) => self.scheduler.wait(&target, lacking),
        }
    }

    fn offer(&mut self, command: Arc<Command>, position: u64) {
        let (target, generation) = (command.target.clone(), command.generation.clone());
        self.ensure_lease(&target);
        match self.scheduler.offer(command, position) {
            OfferResult::New => debug!(%target, %generation, "command"),
            OfferResult::Known => {}
            OfferResult::Stale => self.ignore_older(&target),
        }
    }

    fn ignore_older(&self, target: &str) {
        self.context.metrics.older_command();
        warn!(%target, "ignoring a command older than one seen before");
    }

    fn offer_invalid(&mut self, target: &str, position: u64, bad: InvalidCommand) {
        self.context.metrics.bad_message();
        warn!(%target, reason = %bad.reason, "ignoring a message that is no command");
        self.ensure_lease(target);
        self.scheduler.offer_invalid(target, position, bad);
    }

    fn ensure_lease(&mut self, target: &str) {
        if !self.scheduler.is_active(target) {
            self.request_target_lease(|| LeaseRequest::Acquire(target.to_owned()));
        }
    }

    fn request_target_lease(&self, request: impl FnOnce() -> LeaseRequest) {
        if self.ownership == Ownership::PerTarget {
            self.request_lease(request());
        }
    }

    fn request_lease(&self, request: LeaseRequest) {
        if self.lease_requests.send(request).is_err() {
            error!("the task that keeps the ownership is gone");
        }
    }

    fn on_lease_event(&mut self, event: LeaseEvent) {
        let (name, owned) = match event {
            LeaseEvent::Acquired(name) => (name, true),
            LeaseEvent::Lost(name) => (name, false),
        };
        let target = (self.ownership == Ownership::PerTarget).then_some(name.as_str());
        // Another instance may have reported.
        match target {
            Some(target) => self.stored_reports.changed(&self.context.name, target),
            None => self.stored_reports.all_changed(),
        }
        self.scheduler.set_owned(target, owned);
    }

    /// Handles the message that a target is gone, by checking whether it still has a command.
    fn on_forget_message(&mut self, payload: &[u8]) {
        let Ok(target) = std::str::from_utf8(payload).map(str::to_owned) else {
            warn!("a target to forget has no readable name");
            return;
        };
        if !self.scheduler.contains(&target) {
            return;
        }
        let position = self.scheduler.position(&target);
        let (connection, driver) = (self.connection.clone(), self.context.name.clone());
        self.forget_checks.spawn(async move {
            // The server that is asked may lag behind: it may not have purged the command yet, or lack a new one.
            tokio::time::sleep(SERVER_LAG).await;
            let is_commanded =
                nats::has_command(&connection, &driver, &target).await.unwrap_or_else(|error| {
                    warn!(%error, %target, "can't tell whether it is gone");
                    true
                });
            (target, position, is_commanded)
        });
    }

    fn on_forget_checked(&mut self, (target, position, is_commanded): (String, Option<u64>, bool)) {
        // A command that came after the forget message is for a new target of that name.
        if !is_commanded && self.scheduler.position(&target) == position {
            self.forget(&target);
        }
    }

    /// Handles a preview request. Only the instance that works on the target replies, and only once the
    /// target has a command.
    fn on_preview_request(&mut self, message: &async_nats::Message) {
        let Some((command, reply)) = preview::parse_request(message) else { return };
        if !self.scheduler.is_commanded(&command.target) {
            return;
        }
        let client = self.connection.client.clone();
        let context = self.context.clone();
        self.previews.spawn(async move {
            let preview = preview::run(&context, command).await;
            preview::reply(&client, &preview, reply).await;
        });
    }

    fn forget(&mut self, target: &str) {
        self.assembler.forget(target);
        self.scheduler.forget(target);
        self.request_target_lease(|| LeaseRequest::Release(target.to_owned()));
    }

    fn on_finished(&mut self, done: Result<Finished, tokio::task::JoinError>) {
        match done {
            Ok(done) => {
                self.scheduler.finished(
                    &done.target,
                    done.retry.as_ref(),
                    &done.job,
                    done.record,
                    Instant::now(),
                );
            }
            // A job catches the driver's panics, so this is a bug of the host.
            Err(error) => error!(%error, "a job broke off"),
        }
    }

    /// Waits for work in flight to end.
    async fn wind_down(&mut self) {
        self.scheduler.wind_down();
        let end = async { while self.jobs.join_next().await.is_some() {} };
        if tokio::time::timeout(SHUTDOWN_GRACE, end).await.is_err() {
            warn!(targets = self.jobs.len(), "breaking off work in flight");
            self.jobs.shutdown().await;
        }
    }
}
