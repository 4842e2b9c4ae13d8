//! What the processes of one driver say to each other, each of which works on its only target.

use async_nats::{Client, Subscriber};
use eno_schemas::{Subject, SubjectKind, Visit, decode, encode, subject};
use futures::StreamExt as _;
use tracing::debug;

use super::HostError;

/// Sends visits to the processes of other targets.
#[derive(Clone, Debug)]
pub struct Peers {
    client: Client,
    own: String,
}

/// The visits that others send to this process.
#[derive(Debug)]
pub struct Visits {
    own: String,
    messages: Subscriber,
}

/// Joins the exchange as the process of the target `own`.
pub(super) async fn join(client: &Client, own: &str) -> Result<(Peers, Visits), HostError> {
    let subject = SubjectKind::Visit.with_tokens(&format!("{}.*", subject::token(own)));
    let subscribed = client.subscribe(subject.clone()).await;
    let messages = subscribed.map_err(|source| HostError::Subscribe { subject, source: source.into() })?;
    let own = own.to_owned();
    Ok((Peers { client: client.clone(), own: own.clone() }, Visits { own, messages }))
}

impl Peers {
    /// Sends a visit. Nothing tells whether it arrives, but its answer.
    pub async fn send(&self, to: &str, visit: &Visit) {
        let subject = Subject::Visit { to: to.into(), from: self.own.as_str().into() }.to_string();
        let sent = match encode(visit) {
            Ok(bytes) => self.client.publish(subject, bytes.into()).await.map_err(async_nats::Error::from),
            Err(error) => Err(error.into()),
        };
        if let Err(error) = sent {
            debug!(%error, to, "a visit was not sent");
        }
    }
}

impl Visits {
    /// The next visit, with the target whose process sent it: nobody else may publish on its subject. What is no visit
    /// is left out, such as an answer of the server that somebody led here. `None`: the connection has ended.
    pub async fn next(&mut self) -> Option<(String, Visit)> {
        loop {
            let message = self.messages.next().await?;
            let from = match message.subject.parse() {
                Ok(Subject::Visit { to, from }) if *to == *self.own => from.into_owned(),
                _ => continue,
            };
            match decode(&message.payload) {
                Ok(visit) => return Some((from, visit)),
                Err(error) => debug!(%error, from, "what came is no visit"),
            }
        }
    }
}
