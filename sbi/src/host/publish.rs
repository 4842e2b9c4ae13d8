//! Reports to their streams, so that an older word never replaces a newer one.

use async_nats::jetstream::context::{PublishError, PublishErrorKind};
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::stream::{DirectGetErrorKind, Stream};
use eno_schemas::{Applied, Generation, MessageError, Outcome, Report, decode, encode, subject};
use tracing::debug;

use crate::nats::{Connection, has_command};

/// What is known of the report that the stream holds for a target.
#[derive(Debug, Default)]
pub(super) struct Record {
    stored: Option<Stored>,
    /// What was last read back from the target; `None`: not known.
    pub applied: Option<Applied>,
}

impl Record {
    /// The stored report, as far as is known.
    pub fn report(&self) -> Option<&Report> {
        self.stored.as_ref()?.report.as_ref()
    }

    /// The next publish looks at the stream first. Returns the report that was last published.
    pub fn forget_stored(&mut self) -> Option<Report> {
        self.stored.take()?.report
    }
}

#[derive(Debug)]
struct Stored {
    /// Position in the stream; 0: there is none.
    position: u64,
    /// `None`: none, or one that can't be read.
    report: Option<Report>,
}

/// What came of publishing a report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Published {
    /// It is in the stream.
    Stored,
    /// The stream holds it already.
    Unchanged,
    /// The stream holds the report of a newer generation, and keeps it.
    Superseded(Generation),
    /// The target's command is gone, and so nobody waits for a report.
    Gone,
}

/// Why a report was not published.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReportError {
    /// The driver made a report that nobody could read. A retry does not help.
    #[error(transparent)]
    Message(#[from] MessageError),
    /// It is larger than the server takes. A retry does not help.
    #[error("the report of {target} is larger than NATS takes ({bytes} bytes)")]
    TooLarge { target: String, bytes: usize },
    /// The server did not answer or refused. A retry helps.
    #[error("{operation} the report of {target}: {source}")]
    Server { operation: &'static str, target: String, source: async_nats::Error },
}

impl ReportError {
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Server { .. })
    }
}

/// Publishes reports. `record` must be the target's own, and be used by one publisher at a time; a publish that
/// is dropped half-way leaves it such that the next one looks at the stream first.
#[derive(Clone, Debug)]
pub(super) struct Publisher {
    connection: Connection,
}

impl Publisher {
    pub fn new(connection: Connection) -> Self {
        Self { connection }
    }

    /// Reads what the stream holds, where that is not known yet.
    pub async fn load(&self, record: &mut Record, driver: &str, target: &str) -> Result<(), ReportError> {
        if record.stored.is_none() {
            let stored = self.read(driver, target).await?;
            if let Some(Report { outcome: Outcome::Applied | Outcome::RolledBack { .. }, applied, .. }) =
                &stored.report
            {
                record.applied.clone_from(applied);
            }
            record.stored = Some(stored);
        }
        Ok(())
    }

    /// Publishes a report unless the stream holds a newer one, or one that says the same.
    pub async fn publish(&self, record: &mut Record, report: &Report) -> Result<Published, ReportError> {
        let server = |source: async_nats::Error| ReportError::Server {
            operation: "publishing",
            target: report.target.clone(),
            source,
        };
        let bytes = encode(report)?;
        let subject = subject::result(&report.driver, &report.target);
        loop {
            let known = record.stored.is_some();
            // Taken out while its place in the stream is open.
            let stored = match record.stored.take() {
                Some(stored) => stored,
                None => self.read(&report.driver, &report.target).await?,
            };
            if let Some(other) = &stored.report {
                let order = |generation: &Generation| (generation.term, generation.sequence);
                let newer = order(&other.generation) > order(&report.generation);
                let (newer, same) = (newer.then(|| other.generation.clone()), same(other, report));
                if newer.is_some() || same {
                    record.stored = Some(stored);
                    return Ok(newer.map_or(Published::Unchanged, Published::Superseded));
                }
            }
            let message = PublishMessage::build()
                .payload(bytes.clone().into())
                .expected_last_subject_sequence(stored.position)
                .outbound_message(subject.clone());
            let headers = message.headers.clone().unwrap_or_default();
            let sent = match self
                .connection
                .jetstream
                .publish_with_headers(subject.clone(), headers, message.payload)
                .await
            {
                Ok(sent) => sent.await,
                Err(error) => Err(error),
            };
            match sent {
                Ok(ack) => {
                    record.stored = Some(Stored { position: ack.sequence, report: Some(report.clone()) });
                    return Ok(Published::Stored);
                }
                Err(error) if error.kind() == PublishErrorKind::WrongLastSequence => {
                    debug!(target = %report.target, "another report came between, looking at it");
                    let found = self.read(&report.driver, &report.target).await?;
                    if known && found.position == 0 && !self.wanted(report).await? {
                        return Ok(Published::Gone);
                    }
                    if found.position == stored.position {
                        return Err(server(
                            "the server that was asked does not have the last report yet".into(),
                        ));
                    }
                }
                Err(error) => return Err(failed(error, report, bytes.len(), server)),
            }
        }
    }

    /// Adds a report to the history.
    pub async fn remember(&self, report: &Report) -> Result<(), ReportError> {
        let bytes = encode(report)?;
        let length = bytes.len();
        let subject = subject::history(&report.driver, &report.target);
        let sent = match self.connection.jetstream.publish(subject, bytes.into()).await {
            Ok(sent) => sent.await,
            Err(error) => Err(error),
        };
        let server = |source| ReportError::Server {
            operation: "adding to the history",
            target: report.target.clone(),
            source,
        };
        sent.map(|_| ()).map_err(|error| failed(error, report, length, server))
    }

    /// True when the report that was last published is still the one that the stream holds.
    pub async fn is_there(&self, record: &Record, driver: &str, target: &str) -> Result<bool, ReportError> {
        let Some(known) = &record.stored else { return Ok(false) };
        Ok(self.read(driver, target).await?.position == known.position)
    }

    async fn wanted(&self, report: &Report) -> Result<bool, ReportError> {
        has_command(&self.connection, &report.driver, &report.target).await.map_err(|source| {
            ReportError::Server {
                operation: "looking for the command before",
                target: report.target.clone(),
                source,
            }
        })
    }

    /// What a server has, which may be behind others for a moment.
    async fn read(&self, driver: &str, target: &str) -> Result<Stored, ReportError> {
        let server = |source| ReportError::Server { operation: "reading", target: target.to_owned(), source };
        let results: Stream<()> = self
            .connection
            .jetstream
            .get_stream_no_info(subject::RESULTS)
            .await
            .map_err(|error| server(error.into()))?;
        match results.direct_get_last_for_subject(subject::result(driver, target)).await {
            Ok(message) => Ok(Stored { position: message.sequence, report: decode(&message.payload).ok() }),
            Err(error) if error.kind() == DirectGetErrorKind::NotFound => {
                Ok(Stored { position: 0, report: None })
            }
            Err(error) => Err(server(error.into())),
        }
    }
}

fn failed(
    error: PublishError,
    report: &Report,
    bytes: usize,
    server: impl FnOnce(async_nats::Error) -> ReportError,
) -> ReportError {
    match error.kind() {
        PublishErrorKind::MaxPayloadExceeded => {
            ReportError::TooLarge { target: report.target.clone(), bytes }
        }
        _ => server(error.into()),
    }
}

/// `b` says nothing that `a` did not say, but for the time. A change that was made is news each time, such as the repair
/// of what another hand changes again and again.
fn same(a: &Report, b: &Report) -> bool {
    b.change.as_ref().is_none_or(|change| a.change.as_ref() == Some(change))
        && (&a.generation, &a.outcome, &a.applied, &a.rejected, &a.notes, &a.device, &a.instance)
            == (&b.generation, &b.outcome, &b.applied, &b.rejected, &b.notes, &b.device, &b.instance)
}

#[cfg(test)]
mod tests {
    use eno_conformance::{Engine, NatsServer, fabric};
    use eno_schemas::{Command, Generation, Outcome, Report};
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::nats::{NatsArgs, connect};

    const DRIVER: &str = "stub";

    fn command(target: &str, term: u64, sequence: u64) -> Command {
        let desired = fabric([]);
        let generation = Generation { term, sequence, hash: desired.hash() };
        Command { driver: DRIVER.into(), target: target.into(), generation, desired, transaction: None }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_report_does_not_replace_a_newer_one() {
        let server = NatsServer::start().await;
        let engine = Engine::new(&server).await;
        let args =
            NatsArgs { nats_url: server.url(), nats_credentials: None, nats_ca: None, nats_replicas: 1 };
        let connection = connect(&args, "eno-driver-stub", &CancellationToken::new()).await.unwrap();
        let publisher = Publisher::new(connection);
        let report = |sequence, instance: &str| Report {
            driver: DRIVER.into(),
            target: "x".into(),
            instance: instance.into(),
            generation: command("x", 1, sequence).generation,
            at: "2030-01-01T00:00:00Z".into(),
            outcome: Outcome::Applied,
            applied: None,
            rejected: Vec::new(),
            notes: Vec::new(),
            device: None,
            change: None,
        };
        engine.command(&command("x", 1, 3)).await;
        let (mut one, mut two) = (Record::default(), Record::default());
        assert_eq!(publisher.publish(&mut one, &report(1, "one")).await.unwrap(), Published::Stored);
        assert_eq!(publisher.publish(&mut two, &report(2, "two")).await.unwrap(), Published::Stored);
        let newer = report(2, "two").generation;
        assert_eq!(publisher.publish(&mut one, &report(1, "one")).await.unwrap(), Published::Unchanged);
        one.forget_stored();
        assert_eq!(
            publisher.publish(&mut one, &report(1, "one")).await.unwrap(),
            Published::Superseded(newer)
        );
        assert_eq!(publisher.publish(&mut one, &report(3, "one")).await.unwrap(), Published::Stored);
        assert_eq!(publisher.publish(&mut two, &report(3, "two")).await.unwrap(), Published::Stored);
        // The target is forgotten meanwhile: nothing is left behind.
        engine.forget(DRIVER, "x").await;
        assert_eq!(publisher.publish(&mut two, &report(4, "two")).await.unwrap(), Published::Gone);
        drop(server);
    }
}
