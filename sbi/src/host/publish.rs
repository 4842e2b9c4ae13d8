//! Publishes reports to their streams, so that an older report never replaces a newer one.

use async_nats::jetstream::context::{PublishError, PublishErrorKind};
use async_nats::jetstream::message::PublishMessage;
use eno_schemas::{Applied, Generation, MessageError, Outcome, Report, Subject, encode, subject};
use tracing::debug;

use super::stored_reports::{Stored, StoredReports};
use crate::nats::{Connection, has_command};

/// `max_payload` of the shipped configuration, which is also the bound of the stream's messages.
const MAX_MESSAGE: usize = 2 * 1024 * 1024;
/// Bytes of headers.
const RESERVE: usize = 4 * 1024;

/// State of a target's stored report.
#[derive(Debug, Default)]
pub(super) struct ReportRecord {
    stored: Option<Stored>,
    /// The state last read back from the target; `None`: not known.
    pub applied: Option<Applied>,
}

impl ReportRecord {
    /// The stored report, if known.
    pub fn report(&self) -> Option<&Report> {
        self.stored.as_ref()?.report.as_ref()
    }

    /// Returns the last published report, and makes the next publish read the stream first.
    pub fn take_report(&mut self) -> Option<Report> {
        self.stored.take()?.report
    }
}

/// Result of publishing a report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Published {
    /// The report was stored.
    Stored,
    /// An equal report was stored already.
    Unchanged,
    /// The stream keeps the report of a newer generation.
    Superseded(Generation),
    /// The server that was asked has no command of the target. It may lag behind, or no report is expected any more.
    Uncommanded,
}

/// Why a report was not published.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReportError {
    /// The driver's report breaks its schema. A retry does not help.
    #[error(transparent)]
    Message(#[from] MessageError),
    /// The report exceeds the server's payload limit. A retry does not help.
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

/// Publishes reports. Each target has its own `record`, used by one publish at a time. A cancelled publish
/// leaves the record such that the next one reads the stream first.
#[derive(Clone, Debug)]
pub(super) struct Publisher {
    connection: Connection,
    stored: StoredReports,
}

impl Publisher {
    /// `stored`: the reports of the driver.
    pub fn new(connection: Connection, stored: StoredReports) -> Self {
        Self { connection, stored }
    }

    /// Maximum bytes of a report.
    pub fn max_size(&self) -> usize {
        self.connection.client.server_info().max_payload.min(MAX_MESSAGE).saturating_sub(RESERVE)
    }

    /// Reads the stored report unless it is known.
    pub async fn load(
        &self,
        record: &mut ReportRecord,
        driver: &str,
        target: &str,
    ) -> Result<(), ReportError> {
        if record.stored.is_none() {
            let stored = self.stored.read(driver, target).await.map_err(reading(target))?;
            if let Some(Report { outcome: Outcome::Applied | Outcome::RolledBack { .. }, applied, .. }) =
                &stored.report
            {
                record.applied.clone_from(applied);
            }
            record.stored = Some(stored);
        }
        Ok(())
    }

    /// Publishes a report unless a newer or an equal one is stored.
    pub async fn publish(
        &self,
        record: &mut ReportRecord,
        report: &Report,
    ) -> Result<Published, ReportError> {
        let server = |source: async_nats::Error| ReportError::Server {
            operation: "publishing",
            target: report.target.clone(),
            source,
        };
        let bytes = encode(report)?;
        let subject = Subject::result(&report.driver, &report.target).to_string();
        loop {
            let known = record.stored.is_some();
            // Taken, so that a cancelled publish leaves the record unknown.
            let stored = match record.stored.take() {
                Some(stored) => stored,
                None => self.read_alone(report).await?,
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
            self.connection.store.note(subject::RESULTS, &sent);
            match sent {
                Ok(ack) => {
                    record.stored = Some(Stored { position: ack.sequence, report: Some(report.clone()) });
                    return Ok(Published::Stored);
                }
                Err(error) if error.kind() == PublishErrorKind::WrongLastSequence => {
                    debug!(target = %report.target, "another report came between, looking at it");
                    let found = self.read_alone(report).await?;
                    if known && found.position == 0 && !self.is_commanded(report).await? {
                        // Without this position, a retry would store the report of a target that is gone.
                        record.stored = Some(stored);
                        return Ok(Published::Uncommanded);
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

    /// Adds a report to the history, without the state that was read back.
    pub async fn append_to_history(&self, report: &Report) -> Result<(), ReportError> {
        let bytes = encode(&report.without_state())?;
        let length = bytes.len();
        let subject = Subject::history(&report.driver, &report.target).to_string();
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

    /// True when the last published report is still the stored one.
    pub async fn is_stored(
        &self,
        record: &ReportRecord,
        driver: &str,
        target: &str,
    ) -> Result<bool, ReportError> {
        let Some(known) = &record.stored else { return Ok(false) };
        let stored = self.stored.read(driver, target).await.map_err(reading(target))?;
        Ok(stored.position == known.position)
    }

    async fn is_commanded(&self, report: &Report) -> Result<bool, ReportError> {
        has_command(&self.connection, &report.driver, &report.target).await.map_err(|source| {
            ReportError::Server {
                operation: "looking for the command before",
                target: report.target.clone(),
                source,
            }
        })
    }

    async fn read_alone(&self, report: &Report) -> Result<Stored, ReportError> {
        let Report { driver, target, .. } = report;
        self.stored.read_alone(driver, target).await.map_err(reading(target))
    }
}

fn reading(target: &str) -> impl Fn(async_nats::Error) -> ReportError {
    move |source| ReportError::Server { operation: "reading", target: target.to_owned(), source }
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

/// True when `b` equals `a` but for its time. A report with a new change always differs, so that each repair
/// of drift is reported.
fn same(a: &Report, b: &Report) -> bool {
    b.change.as_ref().is_none_or(|change| a.change.as_ref() == Some(change))
        && (&a.generation, &a.outcome, &a.applied, &a.rejected, &a.notes, &a.device, &a.instance, &a.lacking)
            == (
                &b.generation,
                &b.outcome,
                &b.applied,
                &b.rejected,
                &b.notes,
                &b.device,
                &b.instance,
                &b.lacking,
            )
}

#[cfg(test)]
mod tests {
    use eno_conformance::{Engine, NatsServer, fabric};
    use eno_schemas::{Command, Report};
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::nats::{NatsArgs, connect};

    const DRIVER: &str = "stub";

    fn command(target: &str, term: u64, sequence: u64) -> Command {
        Command::new(DRIVER, target, (term, sequence), fabric([]))
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn older_report_never_replaces_a_newer_one() {
        let server = NatsServer::start().await;
        let engine = Engine::new(&server).await;
        let args =
            NatsArgs { nats_url: server.url(), nats_credentials: None, nats_ca: None, nats_replicas: 1 };
        let connection = connect(&args, "eno-driver-stub", &CancellationToken::new()).await.unwrap();
        let publisher = Publisher::new(connection.clone(), StoredReports::new(connection, DRIVER, None));
        let report = |sequence, instance: &str| {
            let generation = command("x", 1, sequence).generation;
            Report::new((DRIVER, "x"), generation, (instance, "2030-01-01T00:00:00Z"))
        };
        engine.command(&command("x", 1, 3)).await;
        let (mut one, mut two) = (ReportRecord::default(), ReportRecord::default());
        assert_eq!(publisher.publish(&mut one, &report(1, "one")).await.unwrap(), Published::Stored);
        assert_eq!(publisher.publish(&mut two, &report(2, "two")).await.unwrap(), Published::Stored);
        let newer = report(2, "two").generation;
        assert_eq!(publisher.publish(&mut one, &report(1, "one")).await.unwrap(), Published::Unchanged);
        one.take_report();
        assert_eq!(
            publisher.publish(&mut one, &report(1, "one")).await.unwrap(),
            Published::Superseded(newer)
        );
        assert_eq!(publisher.publish(&mut one, &report(3, "one")).await.unwrap(), Published::Stored);
        assert_eq!(publisher.publish(&mut two, &report(3, "two")).await.unwrap(), Published::Stored);
        // The target is forgotten meanwhile, so its report is not stored.
        engine.forget(DRIVER, "x").await;
        assert_eq!(publisher.publish(&mut two, &report(4, "two")).await.unwrap(), Published::Uncommanded);
        drop(server);
    }
}
