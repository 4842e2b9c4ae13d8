//! Delivers the callbacks of one outbox, until an error or its loss.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_nats::jetstream::Context;
use async_nats::jetstream::consumer::DeliverPolicy;
use async_nats::jetstream::kv::{self, Store};
use async_nats::jetstream::stream::Stream;
use eno_core::Name;
use eno_sbi::nats::{Restarts, Selection, StoredMessage, StreamReader};
use eno_sbi::random;
use eno_schemas::{Subject, SubjectKind, subject};
use futures::StreamExt as _;
use jiff::Timestamp;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, sleep};
use tracing::{debug, warn};

use super::attempt::{AttemptResult, DeliveryChange, attempt};
use super::message::{Address, address};
use super::notices::{Notices, WriteOutcome};
use super::requests::{FinishedRequest, PendingRequest};
use super::schedule::Schedule;
use super::state::EntryWatch;
use super::{DeliveryContext, Newest, RETRY_DELAY, condition, state};
use crate::status::outbox;

/// Interval of saving the progress.
const SAVE_INTERVAL: Duration = Duration::from_millis(250);
/// Maximum waiting requests; further ones get no answer.
const MAX_PENDING_REQUESTS: usize = 64;

/// Delivers callbacks until an error. `newest` survives, for the next delivery of this process.
pub async fn deliver(context: &Arc<DeliveryContext>, newest: &mut Newest) -> Result<(), async_nats::Error> {
    let connection = &context.connection;
    let stream = connection.jetstream.get_stream(subject::TRANSITIONS).await?;
    let bucket = connection.jetstream.get_key_value(subject::CALLBACKS).await?;
    let mut restarts = Restarts::new(connection, None);
    restarts.begin();
    let (schedule, notices) = state::load(&bucket, &stream, newest, context.poster.notice_delay).await?;
    let mut requests = connection.client.subscribe(Subject::CallbackRequest.to_string()).await?;
    let messages = follow(&connection.jetstream, schedule.read()).await?;
    let entries = EntryWatch::read(&bucket).await?;
    let mut deliveries = Deliveries {
        context: context.clone(),
        stream,
        bucket,
        newest,
        schedule,
        notices,
        restarts,
        messages,
        entries,
        broken: false,
        followed: Instant::now(),
        posts: JoinSet::new(),
        writes: JoinSet::new(),
        pending_requests: VecDeque::new(),
        running_requests: JoinSet::new(),
    };
    let mut save = interval(SAVE_INTERVAL);
    save.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let wait = deliveries.start_due();
        tokio::select! {
            message = deliveries.messages.next(), if !deliveries.broken => deliveries.on_message(message).await?,
            entry = deliveries.entries.next(), if !deliveries.broken => deliveries.on_entry(entry).await,
            more = deliveries.restarts.needed() => {
                if !more {
                    return Err("the connection to NATS ended".into());
                }
                deliveries.broken = true;
            }
            Some(done) = deliveries.posts.join_next() => deliveries.on_attempted(done?),
            Some(done) = deliveries.writes.join_next() => {
                let (object, outcome) = done?;
                deliveries.notices.written(&object, outcome, now());
            }
            Some(request) = requests.next() => deliveries.on_request(&request),
            Some(done) = deliveries.running_requests.join_next() => deliveries.on_request_done(done?).await,
            _ = save.tick() => deliveries.on_save().await?,
            () = sleep(wait.unwrap_or(SAVE_INTERVAL)), if wait.is_some() => {}
        }
    }
}

/// The callbacks of one outbox.
struct Deliveries<'a> {
    /// Connections and settings.
    context: Arc<DeliveryContext>,
    /// The outbox.
    stream: Stream,
    /// The bucket `ENO_CALLBACKS`.
    bucket: Store,
    /// The newest transition that was read.
    newest: &'a mut Newest,
    /// Decides what is posted next.
    schedule: Schedule,
    /// Decides which conditions are written next.
    notices: Notices,
    /// Tells when messages in flight and recent writes may be lost. The state in memory is complete then, so reading
    /// goes on where it was instead of beginning with all that is stored ([`Restarts::follow`]).
    restarts: Restarts,
    /// Follows the outbox.
    messages: StreamReader,
    /// Follows the bucket.
    entries: EntryWatch,
    /// Outbox and bucket have to be followed anew.
    broken: bool,
    /// When that was done or tried last.
    followed: Instant,
    /// Attempts in progress.
    posts: JoinSet<AttemptResult>,
    /// Writes of conditions in progress.
    writes: JoinSet<(Name, WriteOutcome)>,
    /// Requests that wait for their object.
    pending_requests: VecDeque<PendingRequest>,
    /// Requests in progress.
    running_requests: JoinSet<FinishedRequest>,
}

impl Deliveries<'_> {
    /// Starts all attempts, writes and requests that may start. Returns how long to wait for the next one.
    fn start_due(&mut self) -> Option<Duration> {
        let now = now();
        while let Some(callback) = self.schedule.next(now) {
            self.posts.spawn(attempt(self.context.clone(), self.stream.clone(), callback));
        }
        while let Some((object, notice)) = self.notices.next(now) {
            let (context, bucket) = (self.context.clone(), self.bucket.clone());
            self.writes.spawn(async move {
                let outcome = condition::update(context.poster.kube(), &bucket, &object, &notice).await;
                (object, outcome)
            });
        }
        for _ in 0..self.pending_requests.len() {
            let Some(one) = self.pending_requests.pop_front() else { break };
            if !one.needs_exclusive_delivery() || self.schedule.pause(&one.object) {
                self.running_requests.spawn(one.execute(self.context.clone()));
            } else {
                self.pending_requests.push_back(one);
            }
        }
        self.context.metrics.callbacks_pending.set(i64::try_from(self.schedule.len()).unwrap_or(i64::MAX));
        let wake = self.schedule.wake().into_iter().chain(self.notices.wake()).min();
        wake.map(|at| Duration::from_millis(u64::try_from(at - now).unwrap_or_default()))
    }

    async fn on_message(
        &mut self,
        message: Result<StoredMessage, async_nats::Error>,
    ) -> Result<(), async_nats::Error> {
        let message = match message {
            Ok(message) => message,
            Err(error) => {
                warn!(%error, "transitions are not followed any more");
                self.broken = true;
                return Ok(());
            }
        };
        let sequence = message.sequence;
        *self.newest = (*self.newest).max(Some((sequence, message.stored_at)));
        let object = SubjectKind::Transition.tokens_of(&message.subject).unwrap_or(&message.subject);
        let read = outbox::check(&message.content)
            .and_then(|payload| address(payload).map_err(|error| outbox::unreadable(payload, &error)));
        let address = match read {
            Ok(address) => address,
            Err(error) => {
                self.context.metrics.malformed("transition");
                let reason = error.reason;
                warn!(object, sequence, reason, "a transition can't be read, and is called back to nobody");
                if error.of_nobody {
                    self.context.lease_guard.wait_until_held().await;
                    outbox::remove(&self.context.connection.jetstream, sequence).await?;
                }
                Address::default()
            }
        };
        if address.is_joined {
            self.schedule.add_joined(&object.into(), sequence, address.host);
        } else {
            self.schedule.add(&object.into(), sequence, address.host);
        }
        Ok(())
    }

    async fn on_entry(&mut self, entry: Result<kv::Entry, async_nats::Error>) {
        let entry = match entry {
            Ok(entry) => entry,
            Err(error) => {
                warn!(%error, "what is remembered of callbacks is not followed any more");
                self.broken = true;
                return;
            }
        };
        if self.entries.apply_entry(&entry, &mut self.schedule, &mut self.notices, now()) {
            self.context.lease_guard.wait_until_held().await;
            if let Err(error) = state::delete_key(&self.bucket, &entry.key).await {
                warn!(%error, key = entry.key, "what is remembered of nobody can't be forgotten");
                self.broken = true;
            }
        }
    }

    fn on_attempted(&mut self, done: AttemptResult) {
        let AttemptResult { object, ended, took, change } = done;
        let now = now();
        self.schedule.attempt_ended(&object, ended, took, now, random());
        match change {
            DeliveryChange::None => {}
            DeliveryChange::Delivered(counter) => self.notices.delivered(&object, counter, now),
            DeliveryChange::Undelivered(mut about) => {
                about.next_try = about.next_try.and(self.schedule.next_try(&object));
                self.notices.failed(&object, *about, now);
            }
        }
    }

    fn on_request(&mut self, request: &async_nats::Message) {
        let request = PendingRequest::parse(request);
        self.pending_requests.extend(request.filter(|_| self.pending_requests.len() < MAX_PENDING_REQUESTS));
    }

    async fn on_request_done(&mut self, mut done: FinishedRequest) {
        let object = done.request.object.clone();
        if done.request.needs_exclusive_delivery() {
            done.answer.waiting = self.schedule.resume(&object).try_into().unwrap_or(u64::MAX);
        }
        let all = done.answer.dead == 0 && done.answer.waiting == 0;
        if all && done.delivered.is_some() {
            self.notices.delivered(&object, done.delivered, now());
        }
        done.reply(&self.context.connection.client).await;
    }

    async fn on_save(&mut self) -> Result<(), async_nats::Error> {
        self.context.lease_guard.wait_until_held().await;
        if self.broken && self.followed.elapsed() >= RETRY_DELAY {
            self.followed = Instant::now();
            match self.follow_anew().await {
                Ok(end) if end < self.schedule.read() => return Err("the outbox has lost its end".into()),
                Ok(_) => {}
                Err(error) => warn!(%error, "callbacks can't be followed anew"),
            }
        }
        let saved = async {
            state::save(&self.bucket, &mut self.schedule).await?;
            self.entries.read_again(&self.bucket).await
        };
        let saved = saved.await;
        self.context.connection.store.note_any(subject::CALLBACKS, &saved);
        if let Err(error) = saved {
            warn!(%error, "what is remembered of callbacks can't be written, trying again");
        }
        self.context.metrics.callbacks_failing.set(i64::try_from(self.notices.len()).unwrap_or(i64::MAX));
        Ok(())
    }

    /// Follows outbox and bucket anew, and writes the whole state again. Returns the end of the intact outbox; nothing
    /// else happens if that lacks transitions that were read.
    async fn follow_anew(&mut self) -> Result<u64, async_nats::Error> {
        let end = state::intact_until(&self.stream, *self.newest).await?;
        let messages = follow(&self.context.connection.jetstream, self.schedule.read()).await?;
        let entries = EntryWatch::read(&self.bucket).await?;
        if end >= self.schedule.read() {
            (self.messages, self.entries, self.broken) = (messages, entries, false);
            self.schedule.rewrite_entries();
            self.notices.rewrite_all(now());
        }
        Ok(end)
    }
}

/// Follows the transitions after `read`.
async fn follow(jetstream: &Context, read: u64) -> Result<StreamReader, async_nats::Error> {
    let of = SubjectKind::Transition.all();
    let from = DeliverPolicy::ByStartSequence { start_sequence: read + 1 };
    debug!(from = read + 1, "delivering callbacks");
    StreamReader::open(jetstream, Selection { from, ..Selection::all(subject::TRANSITIONS, &of) }).await
}

/// The time in Unix milliseconds.
fn now() -> i64 {
    Timestamp::now().as_millisecond()
}
