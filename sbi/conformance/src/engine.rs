//! The engine's side of the streams, for tests.

use std::time::Duration;

use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy, pull};
use eno_schemas::{
    Command, Desired, DriverHello, Head, Outcome, PartHash, Report, Subject, Tree, decode, encode, subject,
};
use futures::StreamExt;

use super::NatsServer;
use eno_sbi::PARTS;
use eno_sbi::nats::{Connection, Content, Selection, ensure_streams, for_each_stored, forget_target};

/// Time limit for an expected report.
const REPORT_TIMEOUT: Duration = Duration::from_secs(40);

/// True for the report that the command of this sequence is applied.
pub fn done(sequence: u64) -> impl FnMut(&Report) -> bool {
    move |report| report.generation.sequence == sequence && report.outcome == Outcome::Applied
}

/// Publishes commands and reads reports, as the engine does.
pub struct Engine {
    /// The connection to NATS.
    pub connection: Connection,
}

impl Engine {
    /// Connects and creates the streams.
    pub async fn new(server: &NatsServer) -> Self {
        let connection = server.connect("eno-engine").await;
        ensure_streams(&connection.jetstream, 1).await.expect("streams");
        Self { connection }
    }

    /// Publishes a command as its driver reads it: in parts, if each of its processes announces that.
    pub async fn send(&self, command: &Command) {
        if self.sends_parts(&command.driver).await && Head::of(command).is_some() {
            self.parts(command, |_| true).await;
            self.head(command).await;
        } else {
            self.command(command).await;
        }
    }

    /// True when each process of the driver announces that it reads parts.
    pub async fn sends_parts(&self, driver: &str) -> bool {
        let mut reads = Vec::new();
        let keys = subject::of_bucket(subject::DRIVERS, &format!("{}.*", subject::token(driver)));
        let stream = subject::bucket_stream(subject::DRIVERS);
        for_each_stored(&self.connection.jetstream, Selection::last(&stream, &keys), |message| {
            if let Content::Payload(payload) = message.content {
                let hello: DriverHello = decode(&payload).expect("a presence that keeps its schema");
                reads.push(hello.capabilities.iter().any(|one| one == PARTS));
            }
        })
        .await
        .expect("the drivers");
        !reads.is_empty() && !reads.contains(&false)
    }

    /// Publishes the head of a command of a switch.
    pub async fn head(&self, command: &Command) {
        let head = Head::of(command).expect("a command that can be sent in parts");
        let bytes = encode(&head).expect("a head that keeps its schema");
        self.raw(&command.driver, &command.target, bytes).await;
    }

    /// Publishes the parts of a command that `chosen` returns true for.
    pub async fn parts(&self, command: &Command, chosen: impl Fn(PartHash) -> bool) {
        let Desired::Fabric(desired) = &command.desired else { panic!("only switches have parts") };
        let tree = Tree::of(desired);
        for part in tree.parts().filter(|part| chosen(*part)) {
            let payload = tree.payload(desired, part).expect("a part of the state");
            self.raw_part(&command.driver, &command.target, part, payload).await;
        }
    }

    /// Publishes any payload as a part of a target's commands.
    pub async fn raw_part(&self, driver: &str, target: &str, part: PartHash, payload: impl Into<Vec<u8>>) {
        let subject = Subject::part(driver, target, part).to_string();
        let sent = self.connection.jetstream.publish(subject, payload.into().into()).await;
        sent.expect("a connection").await.expect("an acknowledgement");
    }

    /// Publishes a whole command.
    pub async fn command(&self, command: &Command) {
        let bytes = encode(command).expect("a command that keeps its schema");
        self.raw(&command.driver, &command.target, bytes).await;
    }

    /// Publishes a command, and returns the report that it is applied.
    pub async fn apply(&self, command: &Command) -> Report {
        self.command(command).await;
        self.report(&command.driver, &command.target, done(command.generation.sequence)).await
    }

    /// Publishes any payload as the command of a target.
    pub async fn raw(&self, driver: &str, target: &str, payload: impl Into<Vec<u8>>) {
        let sent = self
            .connection
            .jetstream
            .publish(Subject::command(driver, target).to_string(), payload.into().into())
            .await;
        sent.expect("a connection").await.expect("an acknowledgement");
    }

    /// Waits for the first report of the target that `accepts` returns true for, starting with the stored
    /// one.
    pub async fn report(
        &self,
        driver: &str,
        target: &str,
        mut accepts: impl FnMut(&Report) -> bool,
    ) -> Report {
        let (mut last, jetstream) = (None, &self.connection.jetstream);
        let waiting = async {
            let results = jetstream.get_stream(subject::RESULTS).await.expect("results");
            let consumer = results
                .create_consumer(pull::Config {
                    deliver_policy: DeliverPolicy::LastPerSubject,
                    filter_subject: Subject::result(driver, target).to_string(),
                    ack_policy: AckPolicy::None,
                    // The server removes a consumer that a busy machine leaves alone for this long.
                    inactive_threshold: REPORT_TIMEOUT,
                    ..pull::Config::default()
                })
                .await
                .expect("a consumer");
            let mut messages = consumer.messages().await.expect("messages");
            loop {
                let message = messages.next().await.expect("another message").expect("a message");
                let report: Report = decode(&message.payload).expect("a report that keeps its schema");
                if accepts(&report) {
                    return report;
                }
                last = Some(report);
            }
        };
        match tokio::time::timeout(REPORT_TIMEOUT, waiting).await {
            Ok(report) => report,
            Err(elapsed) => {
                panic!(
                    "no such report of {target}: {elapsed} ({REPORT_TIMEOUT:?}); the last one was {last:?}"
                )
            }
        }
    }

    /// Removes the target.
    pub async fn forget(&self, driver: &str, target: &str) {
        forget_target(&self.connection, driver, target).await.expect("forgotten");
    }
}
