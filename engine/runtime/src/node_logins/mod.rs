//! Logins of agents to NATS. A server asks about each client that has no nkey ("auth callout"), and every engine answers,
//! whether or not it leads: one of the group answers each request. The API server says to which node the client's token
//! belongs, and the client gets the rights of that node.
//!
//! After a start of NATS all agents log in at once. So requests wait in a bounded queue, few are asked of the API server at
//! a time, and none is answered for which the server has stopped waiting: its client comes again.

mod answer;
mod jwt;
mod keys;
mod request;
mod review;
mod rights;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_nats::{HeaderValue, Message, Subscriber};
use eno_sbi::nats::Connection;
use futures::{StreamExt as _, stream};
use jiff::Timestamp;
use kube::Client;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info, warn};

use crate::metrics::Metrics;
use keys::LoginKeys;

/// Where servers ask.
const SUBJECT: &str = "$SYS.REQ.USER.AUTH";
/// The group of the engines.
const GROUP: &str = "eno-engine";
/// Where servers wait for answers. Nothing is sent elsewhere, since the engine has more rights than who asks.
const INBOX: &str = "$SYS._INBOX.";
/// Maximum concurrent reviews by the API server.
const CONCURRENCY: usize = 32;
/// Maximum requests that wait. Some clusters have 5,000 nodes.
const QUEUE: usize = 8192;
/// Age from which on a request is dropped: the server stops waiting after 1.9 s (`timeout` in
/// `deploy/nats/authorization.conf`).
const MAX_AGE: Duration = Duration::from_millis(1500);
/// What a server logs about a client that is no agent.
const REFUSED: &str = "the engine does not accept this client";
/// What a server logs when nobody could judge.
const UNJUDGED: &str = "the API server did not say whose token it is";

/// What the answers need.
struct Answering {
    connection: Connection,
    client: Client,
    keys: PathBuf,
    metrics: Arc<Metrics>,
}

/// Answers until `shutdown`. `client` is not that of the leader, whose writes need the Lease.
pub async fn run(
    connection: Connection,
    client: Client,
    keys: PathBuf,
    metrics: Arc<Metrics>,
    shutdown: CancellationToken,
) {
    let requests = match connection.client.queue_subscribe(SUBJECT, GROUP.to_owned()).await {
        Ok(requests) => requests,
        Err(error) => return error!(%error, "no agent can log in to NATS: subscribing to {SUBJECT}"),
    };
    let (queue, waiting) = mpsc::channel(QUEUE);
    let reading = read(requests, queue, metrics.clone());
    let answering = Arc::new(Answering { connection, client, keys, metrics });
    let waiting = stream::unfold(waiting, async |mut waiting| Some((waiting.recv().await?, waiting)));
    let answers = waiting.for_each_concurrent(CONCURRENCY, |(request, received): (Message, Instant)| {
        let answering = answering.clone();
        async move {
            if received.elapsed() > MAX_AGE {
                answering.metrics.node_login("late");
                return;
            }
            answering.answer(request).await;
        }
    });
    tokio::select! {
        () = async { tokio::join!(reading, answers); } => {}
        () = shutdown.cancelled() => {}
    }
}

/// Puts requests into the queue. What finds it full is dropped.
async fn read(mut requests: Subscriber, queue: mpsc::Sender<(Message, Instant)>, metrics: Arc<Metrics>) {
    while let Some(request) = requests.next().await {
        if queue.try_send((request, Instant::now())).is_err() {
            metrics.node_login("late");
        }
    }
}

impl Answering {
    async fn answer(&self, message: Message) {
        let keys = match LoginKeys::read(&self.keys) {
            Ok(keys) => keys,
            Err(error) => {
                self.metrics.node_login("unjudged");
                return warn!(%error, "a login to NATS can't be judged");
            }
        };
        let header = message.headers.as_ref().and_then(|headers| headers.get(request::SERVER_KEY));
        let server_key = header.map(HeaderValue::as_str);
        let (mut login, keys) = match request::open(&message.payload, server_key, &keys) {
            Ok(opened) => opened,
            Err(error) => {
                self.metrics.node_login("foreign");
                return warn!(%error, "a message to judge a login is not a NATS server's");
            }
        };
        let Some(reply) = message.reply.filter(|reply| reply.starts_with(INBOX)) else {
            self.metrics.node_login("foreign");
            return warn!("a message to judge a login does not say where the NATS server waits");
        };
        let verdict = self.verdict(login.token.take()).await;
        let now = u64::try_from(Timestamp::now().as_second()).unwrap_or_default();
        match answer::answer(&login, verdict.as_deref().map_err(|why| *why), keys, now) {
            Ok(answer) => {
                if let Err(error) = self.connection.client.publish(reply, answer.into()).await {
                    debug!(%error, "answering a NATS server");
                }
            }
            Err(error) => error!(%error, "no agent can log in to NATS"),
        }
    }

    /// The node, or what the server is told.
    async fn verdict(&self, token: Option<String>) -> Result<String, &'static str> {
        let reviewed = match token {
            Some(token) => review::review(&self.client, token).await,
            None => Ok(Err(review::Refusal::NoToken)),
        };
        match reviewed {
            Ok(Ok(node)) => {
                self.metrics.node_login("accepted");
                info!(%node, "its agent logs in to NATS");
                Ok(node)
            }
            Ok(Err(refusal)) => {
                self.metrics.node_login("refused");
                warn!(%refusal, "a client of NATS is refused");
                Err(REFUSED)
            }
            Err(error) => {
                self.metrics.node_login("unjudged");
                warn!(%error, "a login to NATS can't be judged");
                Err(UNJUDGED)
            }
        }
    }
}
