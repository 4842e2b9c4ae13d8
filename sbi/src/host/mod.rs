//! Runs a [`Driver`] on NATS: takes the newest command of each target, has one worked on at a time and many
//! targets at once, tries again what may pass later, and publishes what was read back.

mod feed;
mod metrics;
mod owners;
mod presence;
mod preview;
mod publish;
mod schedule;
mod work;

use std::sync::Arc;
use std::time::{Duration, Instant};

use eno_schemas::{DriverHello, MessageError};
use futures::StreamExt;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info, warn};

pub use metrics::HostMetrics;

use crate::driver::Driver;
use crate::nats::{self, Connection};
use crate::permit::ConcurrencyPermits;
use crate::target_ownership::OwnedTargets;
use crate::work::HOLD;
use feed::{Event, Filter};
use owners::{Answer, Ask};
use publish::{Publisher, Record};
use schedule::{Offer, Schedule};
use work::{Context, Finished};

/// How long work in flight may go on after the host was told to stop.
const GRACE: Duration = Duration::from_secs(10);
/// What the whole driver is called among the owners.
const WHOLE: &str = "_";

/// How instances of one driver share the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ownership {
    /// Each target is worked on by one of them: for few targets that hold a session each, and for drivers that
    /// work on one target alone ([`Driver::only_target`]).
    PerTarget,
    /// One of them works on all targets and the others stand by: for thousands of targets.
    WholeDriver,
}

/// What a user may choose about a host.
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

/// What a host needs.
#[derive(Clone, Debug)]
pub struct HostOptions {
    /// The way to NATS.
    pub connection: Connection,
    /// How instances share the work.
    pub ownership: Ownership,
    /// The driver's version, for its presence.
    pub version: String,
    /// Tells the instances of a driver apart.
    pub instance: String,
    /// How many targets are worked on at once.
    pub concurrency: usize,
    /// When a target's work is broken off.
    pub time_limit: Duration,
    /// Where the host counts.
    pub metrics: HostMetrics,
}

impl HostOptions {
    /// The defaults of [`HostArgs`], with an instance name that is made up.
    pub fn new(connection: Connection, ownership: Ownership, version: impl Into<String>) -> Self {
        let inbox = connection.client.new_inbox();
        Self {
            connection,
            ownership,
            version: version.into(),
            instance: inbox.rsplit('.').next().unwrap_or(&inbox).to_owned(),
            concurrency: 64,
            time_limit: Duration::from_mins(10),
            metrics: HostMetrics::default(),
        }
    }

    /// Takes over what the user chose.
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

/// Why a host ended before it was told to.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// The driver's identity breaks the schema of [`DriverHello`].
    #[error(transparent)]
    Hello(#[from] MessageError),
    /// A subject could not be subscribed to. A retry helps.
    #[error("subscribing to {subject}: {source}")]
    Subscribe {
        /// The subject.
        subject: String,
        /// The client's words.
        source: async_nats::Error,
    },
}

/// Runs the driver until `shutdown`; then work in flight is told that it is not current, and has some seconds.
pub async fn run<D: Driver>(
    driver: D,
    options: HostOptions,
    shutdown: CancellationToken,
) -> Result<(), HostError> {
    let identity = driver.identity();
    let holds = identity.capabilities.iter().any(|capability| capability == HOLD);
    let hello = DriverHello {
        driver: identity.name.clone(),
        instance: options.instance.clone(),
        version: options.version.clone(),
        kinds: identity.kinds.clone(),
        capabilities: identity.capabilities,
        target: driver.only_target(),
    };
    eno_schemas::encode(&hello)?;
    info!(driver = %identity.name, instance = %options.instance, "driver starts");

    let connection = options.connection.clone();
    let subscribe = async |subject: String| {
        let subscribed = connection.client.subscribe(subject.clone()).await;
        subscribed.map_err(|source| HostError::Subscribe { subject, source: source.into() })
    };
    let forgotten = subscribe(nats::forget_subject(&identity.name)).await?;
    let asked = subscribe(preview::all(&identity.name)).await?;
    let released = subscribe(owners::released_subject(&identity.name)).await?;

    let mut helpers = JoinSet::new();
    let (events_in, events) = mpsc::channel(256);
    let filter =
        Filter { driver: identity.name.clone(), target: driver.only_target(), kinds: identity.kinds, holds };
    helpers.spawn(feed::run(connection.clone(), filter, events_in));
    let (asks, asks_out) = mpsc::unbounded_channel();
    let (answers_in, answers) = mpsc::unbounded_channel();
    let name = identity.name.clone();
    let instance = options.instance.clone();
    let owned_targets = OwnedTargets::default();
    let who = (name, instance);
    helpers.spawn(owners::run(
        connection.clone(),
        who,
        owned_targets.clone(),
        released,
        asks_out,
        answers_in,
    ));
    let present = CancellationToken::new();
    let presence = presence::run(connection.clone(), hello, present.clone());
    helpers.spawn(async move {
        if let Err(error) = presence.await {
            error!(%error, "the driver can't announce itself");
        }
    });

    let changed = driver.changed();
    let mut host = Host {
        schedule: Schedule::new(options.ownership),
        ownership: options.ownership,
        asks,
        connection: connection.clone(),
        context: Arc::new(Context {
            driver,
            name: identity.name,
            instance: options.instance,
            publisher: Publisher::new(connection),
            time_limit: options.time_limit,
            metrics: options.metrics,
            owned_targets,
            ownership: options.ownership,
        }),
        jobs: JoinSet::new(),
        checks: JoinSet::new(),
        previews: JoinSet::new(),
    };
    if options.ownership == Ownership::WholeDriver {
        host.ask(Ask::Own(WHOLE.into()));
    }
    host.serve(
        options.concurrency,
        Inputs { events, answers, forgotten, asked, changed: Box::pin(changed) },
        &shutdown,
    )
    .await;
    host.wind_down().await;
    // Without asks the owners' task releases all and ends; without a listener the feed ends.
    drop(host);
    present.cancel();
    if tokio::time::timeout(GRACE, async { while helpers.join_next().await.is_some() {} }).await.is_err() {
        warn!("NATS does not answer, leaving without a word");
    }
    info!("driver ends");
    Ok(())
}

struct Inputs<C> {
    events: mpsc::Receiver<Event>,
    answers: mpsc::UnboundedReceiver<Answer>,
    forgotten: async_nats::Subscriber,
    asked: async_nats::Subscriber,
    changed: C,
}

struct Host<D> {
    schedule: Schedule<Record>,
    ownership: Ownership,
    asks: mpsc::UnboundedSender<Ask>,
    connection: Connection,
    context: Arc<Context<D>>,
    jobs: JoinSet<Finished>,
    /// Looks whether targets that are said to be gone have a command: their name, the position of their last
    /// command when it was said, and the answer.
    checks: JoinSet<(String, Option<u64>, bool)>,
    /// Answers to those who ask what would be done.
    previews: JoinSet<()>,
}

impl<D: Driver> Host<D> {
    async fn serve<C>(&mut self, concurrency: usize, mut inputs: Inputs<C>, shutdown: &CancellationToken)
    where
        C: futures::Stream<Item = String> + Unpin,
    {
        let mut changes_end = false;
        let permits = ConcurrencyPermits::new(concurrency);
        let mut taken = permits.taken();
        loop {
            // Marks as seen what is looked at.
            taken.borrow_and_update();
            while let Some(permit) = permits.take() {
                let Some(start) = self.schedule.next() else {
                    // Nobody waits for it, so that it is free again is no news.
                    drop(permit);
                    taken.borrow_and_update();
                    break;
                };
                self.jobs.spawn(work::run(self.context.clone(), start, permit));
            }
            let retry = self.schedule.next_retry().map(tokio::time::Instant::from_std);
            tokio::select! {
                () = shutdown.cancelled() => return,
                Some(event) = inputs.events.recv() => self.on_event(event),
                Some(answer) = inputs.answers.recv() => self.on_answer(answer),
                Some(message) = inputs.forgotten.next() => self.on_forgotten(&message.payload),
                Some(message) = inputs.asked.next(), if self.previews.len() < preview::MOST => {
                    self.on_asked(message);
                }
                Some(_) = self.previews.join_next() => {}
                target = inputs.changed.next(), if !changes_end => match target {
                    Some(target) => self.schedule.changed(&target),
                    None => changes_end = true,
                },
                Some(done) = self.jobs.join_next() => self.on_finished(done),
                Ok(()) = taken.changed() => {}
                Some(Ok((target, position, wanted))) = self.checks.join_next() => {
                    // A command that came after it was said is for a new target of that name.
                    if !wanted && self.schedule.position(&target) == position {
                        self.forget(&target);
                    }
                }
                () = tokio::time::sleep_until(retry.unwrap_or_else(tokio::time::Instant::now)), if retry.is_some() => {
                    let count = self.schedule.retry(Instant::now());
                    self.context.metrics.retried(count);
                }
            }
            self.context.metrics.targets(self.schedule.len());
        }
    }

    fn on_event(&mut self, event: Event) {
        match event {
            Event::Started => self.schedule.reading_starts(),
            Event::CaughtUp => {
                for target in self.schedule.reading_caught_up() {
                    self.ask_for_target(|| Ask::Release(target));
                }
            }
            Event::Command(command, position) => {
                let (target, generation) = (command.target.clone(), command.generation.clone());
                self.see(&target);
                match self.schedule.offer(command, position) {
                    Offer::New => debug!(%target, %generation, "command"),
                    Offer::Known => {}
                    Offer::Older => {
                        self.context.metrics.older_command();
                        warn!(%target, %generation, "ignoring a command older than one seen before");
                    }
                }
            }
            Event::Bad(target, position, bad) => {
                self.context.metrics.bad_message();
                warn!(%target, reason = %bad.reason, "ignoring a message that is no command");
                self.see(&target);
                self.schedule.offer_bad(&target, position, bad);
            }
        }
    }

    fn see(&mut self, target: &str) {
        if !self.schedule.is_wanted(target) {
            self.ask_for_target(|| Ask::Own(target.to_owned()));
        }
    }

    fn ask_for_target(&self, ask: impl FnOnce() -> Ask) {
        if self.ownership == Ownership::PerTarget {
            self.ask(ask());
        }
    }

    fn ask(&self, ask: Ask) {
        if self.asks.send(ask).is_err() {
            error!("the task that keeps the ownership is gone");
        }
    }

    fn on_answer(&mut self, answer: Answer) {
        let (name, owned) = match answer {
            Answer::Owned(name) => (name, true),
            Answer::Lost(name) => (name, false),
        };
        let target = (self.ownership == Ownership::PerTarget).then_some(name.as_str());
        self.schedule.set_owned(target, owned);
    }

    /// Someone says that a target is gone: looks whether that is so.
    fn on_forgotten(&mut self, payload: &[u8]) {
        let Ok(target) = std::str::from_utf8(payload).map(str::to_owned) else {
            warn!("a target to forget has no readable name");
            return;
        };
        if !self.schedule.contains(&target) {
            return;
        }
        let position = self.schedule.position(&target);
        let (connection, driver) = (self.connection.clone(), self.context.name.clone());
        self.checks.spawn(async move {
            let wanted = nats::has_command(&connection, &driver, &target).await.unwrap_or_else(|error| {
                warn!(%error, %target, "can't tell whether it is gone");
                true
            });
            (target, position, wanted)
        });
    }

    /// Someone asks what would be done about a command. Who works on the target answers, once it was commanded.
    fn on_asked(&mut self, message: async_nats::Message) {
        let Some((command, reply)) = preview::read(message) else { return };
        let Some(last) = self.schedule.commanded(&command.target) else { return };
        let allowed = preview::allowed(&command.desired, &last.desired);
        let client = self.connection.client.clone();
        let context = self.context.clone();
        self.previews.spawn(async move {
            let preview = match allowed {
                Ok(()) => preview::look(&context, command).await,
                Err(reason) => preview::failed(reason, false),
            };
            preview::answer(&client, &preview, reply).await;
        });
    }

    fn forget(&mut self, target: &str) {
        self.schedule.forget(target);
        self.ask_for_target(|| Ask::Release(target.to_owned()));
    }

    fn on_finished(&mut self, done: Result<Finished, tokio::task::JoinError>) {
        match done {
            Ok(done) => {
                self.schedule.finished(
                    &done.target,
                    done.retry.as_ref(),
                    &done.job,
                    done.record,
                    Instant::now(),
                );
            }
            // A job catches the driver's panics; what is left is a fault of the host.
            Err(error) => error!(%error, "a job broke off"),
        }
    }

    /// Lets work in flight end.
    async fn wind_down(&mut self) {
        self.schedule.wind_down();
        let end = async { while self.jobs.join_next().await.is_some() {} };
        if tokio::time::timeout(GRACE, end).await.is_err() {
            warn!(targets = self.jobs.len(), "breaking off work in flight");
            self.jobs.shutdown().await;
        }
    }
}
