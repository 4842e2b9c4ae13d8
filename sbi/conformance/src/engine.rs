//! What a driver sees of an engine.

use std::time::Duration;

use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy, pull};
use eno_schemas::{Command, Report, decode, encode, subject};
use futures::StreamExt;

use super::NatsServer;
use eno_sbi::nats::{Connection, ensure_streams, forget_target};

/// How long a report is waited for.
const PATIENCE: Duration = Duration::from_secs(40);

/// Publishes commands and reads reports, as the engine does.
pub struct Engine {
    /// Its way to NATS.
    pub connection: Connection,
}

impl Engine {
    /// Connects and makes the streams.
    pub async fn new(server: &NatsServer) -> Self {
        let connection = server.connect("eno-engine").await;
        ensure_streams(&connection.jetstream, 1).await.expect("streams");
        Self { connection }
    }

    /// Publishes a command.
    pub async fn command(&self, command: &Command) {
        let bytes = encode(command).expect("a command that keeps its schema");
        self.raw(&command.driver, &command.target, bytes).await;
    }

    /// Publishes anything as the command of a target.
    pub async fn raw(&self, driver: &str, target: &str, payload: impl Into<Vec<u8>>) {
        let sent =
            self.connection.jetstream.publish(subject::command(driver, target), payload.into().into()).await;
        sent.expect("a connection").await.expect("an acknowledgement");
    }

    /// Waits for the first report of the target that `accepts` takes, beginning with the last one.
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
                    filter_subject: subject::result(driver, target),
                    ack_policy: AckPolicy::None,
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
        match tokio::time::timeout(PATIENCE, waiting).await {
            Ok(report) => report,
            Err(elapsed) => {
                panic!("no such report of {target}: {elapsed} ({PATIENCE:?}); the last one was {last:?}")
            }
        }
    }

    /// Has the target be forgotten.
    pub async fn forget(&self, driver: &str, target: &str) {
        forget_target(&self.connection, driver, target).await.expect("forgotten");
    }
}
