//! The one reader of everything that comes from a stream.
//!
//! A stream holds what somebody stored there, and not everybody who can store may do so. A server sends its answers to
//! whatever subject a request names, with rights of its own. So any user can have such an answer stored on any subject.
//! This reader tells what an authorised publisher can have written from what it can't have, by the headers.
//!
//! It does not use the streams of messages of `async-nats`. These take what another consumer delivers into their inbox
//! for their own, and answer a notice on whatever subject it names.

use std::time::{Duration, Instant};

use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy, push};
use async_nats::jetstream::{self, Context, stream};
use async_nats::{HeaderMap, Message, StatusCode, Subscriber};
use bytes::Bytes;
use futures::StreamExt as _;
use tokio::time::timeout;

/// Interval of the server's sign of life on a silent consumer.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// Time without any message after which the consumer counts as lost.
const SILENCE: Duration = Duration::from_secs(13);
/// Time after which a server removes a consumer that nobody reads.
const INACTIVE: Duration = Duration::from_secs(5);
/// Time of waiting after which an empty queue of this process is certain, so that the next message has just come.
const QUIET: Duration = Duration::from_millis(100);
/// Maximum time that a message is under way.
const TRANSIT: Duration = Duration::from_secs(1);

/// The headers that ENO's publishers set, and a server that ends a key or leaves out a payload. A message with any other
/// header comes from a server: an answer, a source, a republished or a directly read message.
const HEADERS: [&str; 11] = [
    "Nats-Msg-Id",
    "Nats-Expected-Stream",
    "Nats-Expected-Last-Msg-Id",
    "Nats-Expected-Last-Sequence",
    "Nats-Expected-Last-Subject-Sequence",
    "Nats-Rollup",
    "Nats-TTL",
    "Nats-Marker-Reason",
    "Nats-Msg-Size",
    "KV-Operation",
    "Content-Type",
];
/// The headers of a message that removes a key of a bucket (NATS ADR-8), or marks that its time is over (ADR-43).
const REMOVALS: [&str; 2] = ["KV-Operation", "Nats-Marker-Reason"];
/// The size of a payload that was left out.
const SIZE: &str = "Nats-Msg-Size";

/// Which messages are read.
#[derive(Clone, Copy, Debug)]
pub struct Selection<'a> {
    /// The stream. That of a bucket is `KV_<bucket>`.
    pub stream: &'a str,
    /// One subject with wildcards. A permission names it, so it is never empty.
    pub filter: &'a str,
    /// The first message.
    pub from: DeliverPolicy,
    /// Leaves out payloads, which are then empty.
    pub headers_only: bool,
}

impl<'a> Selection<'a> {
    /// The last message of each subject, and all later ones.
    pub fn last(stream: &'a str, filter: &'a str) -> Self {
        Self { stream, filter, from: DeliverPolicy::LastPerSubject, headers_only: false }
    }

    /// All messages.
    pub fn all(stream: &'a str, filter: &'a str) -> Self {
        Self { from: DeliverPolicy::All, ..Self::last(stream, filter) }
    }
}

/// What a message of a stream says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// The payload that a publisher stored. Who may publish on the subject may have written it, or it is an answer of
    /// a server, which has no header: decoding it tells.
    Payload(Bytes),
    /// What the subject held is removed.
    Removed,
    /// No publisher of ENO wrote it. The text says why.
    Foreign(String),
}

impl Content {
    /// Judges a message by its headers.
    pub fn of(message: &Message) -> Self {
        if let Some(status) = message.status {
            return Self::Foreign(format!("it is an answer of a NATS server, with the status {status}"));
        }
        let headers = message.headers.as_ref();
        if let Some(name) = headers.and_then(foreign_header) {
            return Self::Foreign(format!(
                "a NATS server sent it and no part of ENO, as its header {name} tells"
            ));
        }
        let has = |name: &str| headers.is_some_and(|headers| headers.get(name).is_some());
        let left_out = headers.and_then(|headers| headers.get(SIZE)).is_some_and(|size| size.as_str() != "0");
        if REMOVALS.into_iter().any(has) || (message.payload.is_empty() && !left_out) {
            return Self::Removed;
        }
        Self::Payload(message.payload.clone())
    }
}

fn foreign_header(headers: &HeaderMap) -> Option<String> {
    headers.iter().map(|(name, _)| name.to_string()).find(|name| !HEADERS.contains(&name.as_str()))
}

/// A message of a stream.
#[derive(Clone, Debug)]
pub struct StoredMessage {
    /// Its subject.
    pub subject: String,
    /// Its sequence in the stream.
    pub sequence: u64,
    /// How many messages of the selection follow it.
    pub pending: u64,
    /// When the server stored it, in nanoseconds since 1970.
    pub stored_at: i128,
    /// The time that has passed since, by the clock of NATS.
    pub age: Duration,
    /// What it says.
    pub content: Content,
}

/// The clock of the NATS server, from one of its times and this process's time since then. It is ahead of the server by
/// the time of one request at most. The server's clock may be set meanwhile, so each message that has just come
/// corrects it.
#[derive(Clone, Copy, Debug)]
struct ServerClock {
    /// Nanoseconds since 1970.
    time: i128,
    asked: Instant,
}

impl ServerClock {
    /// The time that has passed since `then`, in nanoseconds since 1970.
    fn age(&self, then: i128, now: Instant) -> Duration {
        let passed = i128::try_from(now.duration_since(self.asked).as_nanos()).unwrap_or(i128::MAX);
        let age = self.time.saturating_add(passed).saturating_sub(then);
        Duration::from_nanos(u64::try_from(age.max(0)).unwrap_or(u64::MAX))
    }

    /// A message came that was stored at `then`, while this process had waited for it for `waited`. A clock by which it
    /// is older, or not stored yet, was set.
    fn correct(&mut self, then: i128, waited: Duration, now: Instant) {
        let is_fresh = (QUIET..SILENCE).contains(&waited);
        let passed = i128::try_from(now.duration_since(self.asked).as_nanos()).unwrap_or(i128::MAX);
        let is_future = then > self.time.saturating_add(passed);
        if is_fresh && (is_future || self.age(then, now) > waited + TRANSIT) {
            *self = Self { time: then, asked: now };
        }
    }
}

/// Reads a selection of a stream, stored and future messages, by a push consumer into an inbox of this process. A pull
/// consumer would give its messages to any client that knows its name.
#[derive(Debug)]
pub struct StreamReader {
    jetstream: Context,
    subscriber: Subscriber,
    stream: String,
    consumer: String,
    /// Number of messages that were stored when the reading began.
    waiting: u64,
    /// Number of messages that were read.
    read: u64,
    /// The time of the server that made the consumer.
    clock: ServerClock,
    /// The server had sent all messages that it had, when the last one came.
    is_drained: bool,
}

impl StreamReader {
    /// Begins to read. A retry may help if it fails: the stream may not exist yet.
    pub async fn open(jetstream: &Context, of: Selection<'_>) -> Result<Self, async_nats::Error> {
        let client = jetstream.client();
        let inbox = client.new_inbox();
        let consumer = inbox.rsplit('.').next().unwrap_or(&inbox).to_owned();
        let subscriber = client.subscribe(inbox.clone()).await?;
        let found: stream::Stream<()> = jetstream.get_stream_no_info(of.stream).await?;
        let asked = Instant::now();
        let created = found
            .create_consumer(push::Config {
                name: Some(consumer.clone()),
                deliver_subject: inbox,
                deliver_policy: of.from,
                filter_subject: of.filter.to_owned(),
                headers_only: of.headers_only,
                ack_policy: AckPolicy::None,
                memory_storage: true,
                num_replicas: 1,
                flow_control: true,
                idle_heartbeat: HEARTBEAT,
                inactive_threshold: INACTIVE,
                ..push::Config::default()
            })
            .await?;
        let info = created.cached_info();
        let clock = ServerClock { time: info.created.unix_timestamp_nanos(), asked };
        let waiting = info.num_pending;
        Ok(Self {
            jetstream: jetstream.clone(),
            subscriber,
            stream: of.stream.to_owned(),
            consumer,
            waiting,
            read: 0,
            clock,
            is_drained: waiting == 0,
        })
    }

    /// True when every message that was stored at the beginning has been read, or replaced.
    pub fn is_caught_up(&self) -> bool {
        self.read >= self.waiting
    }

    /// The next message. After an error, such as a lost message, open a new reader.
    pub async fn next(&mut self) -> Result<StoredMessage, async_nats::Error> {
        loop {
            let began = Instant::now();
            let message = timeout(SILENCE, self.subscriber.next()).await;
            let now = Instant::now();
            let message = message.map_err(|_| "the consumer is silent")?.ok_or("the consumer ended")?;
            if message.reply.as_deref().is_some_and(|reply| reply.starts_with("$JS.ACK.")) {
                let message = jetstream::Message { message, context: self.jetstream.clone() };
                let Ok(info) = message.info() else { continue };
                // Another consumer's deliveries are sent here by somebody who was told of this inbox.
                if (info.stream, info.consumer) != (&*self.stream, &*self.consumer) {
                    continue;
                }
                if info.consumer_sequence != self.read + 1 {
                    return Err(self.lost());
                }
                self.read += 1;
                if info.pending == 0 {
                    self.waiting = self.waiting.min(self.read);
                }
                let stored_at = info.published.unix_timestamp_nanos();
                if std::mem::replace(&mut self.is_drained, info.pending == 0) {
                    self.clock.correct(stored_at, now.duration_since(began), now);
                }
                return Ok(StoredMessage {
                    sequence: info.stream_sequence,
                    pending: info.pending,
                    stored_at,
                    age: self.clock.age(stored_at, now),
                    content: Content::of(&message),
                    subject: message.subject.to_string(),
                });
            }
            self.on_notice(&message).await?;
        }
    }

    /// Answers a request for flow control, and finds lost messages by a heartbeat.
    async fn on_notice(&self, message: &Message) -> Result<(), async_nats::Error> {
        if message.status != Some(StatusCode::IDLE_HEARTBEAT) {
            return Ok(());
        }
        let header = |name: &str| Some(message.headers.as_ref()?.get(name)?.as_str());
        let resume = message.reply.as_deref().or_else(|| header("Nats-Consumer-Stalled"));
        if let Some(subject) = resume
            && self.is_flow_control(subject)
        {
            self.jetstream.client().publish(subject.to_owned(), Bytes::new()).await?;
        }
        let delivered = header("Nats-Last-Consumer").and_then(|last| last.parse::<u64>().ok());
        if delivered.is_some_and(|delivered| delivered > self.read) { Err(self.lost()) } else { Ok(()) }
    }

    /// True for a subject of flow control of this consumer: `$JS.FC.<stream>.<consumer>.…`, or the same after domain and
    /// account (NATS ADR-15). A message that names another one asks for a publication in its place.
    fn is_flow_control(&self, subject: &str) -> bool {
        let Some(rest) = subject.strip_prefix("$JS.FC.") else { return false };
        let tokens: Vec<&str> = rest.split('.').collect();
        let own = [&*self.stream, &*self.consumer];
        matches!(tokens.len(), 3 | 5) && tokens[tokens.len() - 3..tokens.len() - 1] == own
    }

    fn lost(&self) -> async_nats::Error {
        format!("message {} of the consumer was lost", self.read + 1).into()
    }
}

/// Visits the stored messages of a selection.
pub async fn for_each_stored(
    jetstream: &Context,
    of: Selection<'_>,
    mut visit: impl FnMut(StoredMessage),
) -> Result<(), async_nats::Error> {
    let mut reader = StreamReader::open(jetstream, of).await?;
    while !reader.is_caught_up() {
        visit(reader.next().await?);
    }
    Ok(())
}

/// The last message on a subject, if there is one.
pub async fn last_stored(
    jetstream: &Context,
    stream: &str,
    subject: &str,
) -> Result<Option<StoredMessage>, async_nats::Error> {
    let mut last = None;
    for_each_stored(jetstream, Selection::last(stream, subject), |message| last = Some(message)).await?;
    Ok(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(headers: &[(&str, &str)], payload: &'static str, status: Option<StatusCode>) -> Message {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.insert(*name, *value);
        }
        Message {
            subject: "eno.v1.result.netconf.x".into(),
            reply: None,
            payload: payload.into(),
            headers: Some(map),
            status,
            description: None,
            length: 0,
        }
    }

    #[test]
    fn age_of_a_message_is_by_the_clock_of_the_server() {
        let asked = Instant::now();
        let clock = ServerClock { time: 1_000_000_000_000, asked };
        let age = |then, passed| clock.age(then, asked + Duration::from_secs(passed));
        assert_eq!(age(940_000_000_000, 5), Duration::from_secs(65));
        assert_eq!(age(1_002_000_000_000, 5), Duration::from_secs(3));
        // Another server stored it, whose clock is ahead.
        assert_eq!(age(1_020_000_000_000, 5), Duration::ZERO);
    }

    /// The clock of NATS is set back by 5 minutes, and then ahead.
    #[test]
    fn message_that_has_just_come_corrects_the_clock() {
        const SECOND: i128 = 1_000_000_000;
        let asked = Instant::now();
        for set in [-300, 300] {
            let mut clock = ServerClock { time: 1000 * SECOND, asked };
            let mut age = |stored: i128, waited, passed| {
                let now = asked + Duration::from_secs(passed);
                clock.correct(stored * SECOND, Duration::from_millis(waited), now);
                clock.age(stored * SECOND, now).as_secs()
            };
            assert_eq!(age(1009, 3000, 10), 1, "before the clock is set");
            assert_eq!(age(1020 + set, 3000, 20), 0);
            assert_eq!(age(1030 + set, 0, 35), 5, "a message that lay in the queue keeps its age");
            assert_eq!(age(1040 + set, 20_000, 70), 30, "this process may have been stopped while it waited");
            assert_eq!(age(1078 + set, 3000, 80), 2, "no older than the time of waiting");
        }
    }

    #[test]
    fn messages_are_judged_by_their_headers() {
        let payload = |text: &'static str| Content::Payload(text.into());
        for headers in [
            &[][..],
            &[("Nats-Msg-Id", "a")],
            &[("Nats-Expected-Last-Subject-Sequence", "3"), ("Nats-TTL", "15s")],
        ] {
            assert_eq!(Content::of(&message(headers, "{}", None)), payload("{}"));
            assert_eq!(Content::of(&message(headers, "", None)), Content::Removed);
        }
        // A consumer of headers leaves out the payload and tells its size.
        assert_eq!(Content::of(&message(&[("Nats-Msg-Size", "7")], "", None)), payload(""));
        assert_eq!(Content::of(&message(&[("Nats-Msg-Size", "0")], "", None)), Content::Removed);
        for removal in [("KV-Operation", "DEL"), ("KV-Operation", "PURGE"), ("Nats-Marker-Reason", "MaxAge")]
        {
            assert_eq!(Content::of(&message(&[removal], "", None)), Content::Removed);
        }
        for foreign in [
            "Nats-Stream",
            "Nats-Stream-Source",
            "Nats-Sequence",
            "Nats-Subject",
            "Nats-Last-Sequence",
            "Nats-Request-Info",
            "Nats-Num-Pending",
            "Anything",
        ] {
            for payload in ["{}", ""] {
                let judged = Content::of(&message(&[("Nats-Msg-Id", "a"), (foreign, "x")], payload, None));
                assert!(matches!(&judged, Content::Foreign(why) if why.contains(foreign)), "{judged:?}");
            }
        }
        for status in [StatusCode::IDLE_HEARTBEAT, StatusCode::NOT_FOUND, StatusCode::OK] {
            assert!(matches!(Content::of(&message(&[], "{}", Some(status))), Content::Foreign(_)));
        }
    }
}
