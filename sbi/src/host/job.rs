//! One job on one target, from the driver's result to the published report.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use eno_queue::Backoff;
use eno_schemas::{Command, Failure, Generation, Outcome, Report};
use futures::FutureExt;
use tokio::sync::{mpsc, watch};
use tracing::{Instrument, debug, error, info, info_span, warn};

use super::metrics::HostMetrics;
use super::parts::Lacking;
use super::publish::{Published, Publisher, ReportError, ReportRecord};
use super::scheduler::{InvalidCommand, Job, Start, generation_without_hash};
use super::{Ownership, WHOLE_DRIVER_KEY};
use crate::driver::{Driver, Reconciled};
use crate::nats::BACKOFF;
use crate::permit::ConcurrencyPermit;
use crate::random::random;
use crate::target_ownership::OwnedTargets;
use crate::work::{LatestCommand, Phase, Work};

/// Interval of progress reports of long work.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(2);

/// What all jobs share.
pub(super) struct Context<D> {
    /// The driver.
    pub driver: D,
    /// The driver's name.
    pub name: String,
    /// This instance's name.
    pub instance: String,
    /// Publishes reports.
    pub publisher: Publisher,
    /// Time limit of one reconcile.
    pub time_limit: Duration,
    /// The host's metrics.
    pub metrics: HostMetrics,
    /// The targets that this instance owns.
    pub owned_targets: OwnedTargets,
    /// How instances share the work.
    pub ownership: Ownership,
}

/// A job that ended.
pub(super) struct Finished {
    pub target: String,
    /// The job with the command that was worked on last: the decision, where one came while a change was
    /// held.
    pub job: Job,
    /// The generation to retry, and the policy.
    pub retry: Option<(Generation, Backoff)>,
    pub record: ReportRecord,
}

/// Runs a job.
pub(super) async fn run<D: Driver>(
    context: Arc<Context<D>>,
    start: Start<ReportRecord>,
    permit: ConcurrencyPermit,
) -> Finished {
    let span = info_span!("target", name = %start.target);
    let Start { target, mut job, newest, mut record } = start;
    async {
        let mut retry = None;
        match &mut job {
            Job::Reconcile(command) if context.is_older(command, &mut record).await => {}
            Job::Reconcile(command) => {
                let (reconciled, worked_on) =
                    context.reconcile(command, newest.clone(), &mut record, &permit).await;
                *command = worked_on;
                let again = reconciled.retry_policy();
                let current = !newest.borrow().is_newer_than(&command.generation);
                // Work that was cancelled for a newer command is not reported.
                if current || matches!(reconciled.outcome, Outcome::Applied | Outcome::RolledBack { .. }) {
                    let report = context.report(&target, &command.generation, reconciled);
                    context.publish(&mut record, report, newest).await;
                }
                retry = again.map(|policy| (command.generation.clone(), policy));
            }
            Job::Reject(invalid, generation) => {
                context.raise_generation(generation, &target, &mut record).await;
                let report = context.report(&target, generation, rejected(invalid));
                context.publish(&mut record, report, newest).await;
            }
            Job::Wait(lacking) => context.report_lacking(&target, lacking, &mut record).await,
            Job::Verify => context.verify(&target, newest, &mut record).await,
            Job::Forget => {
                info!("forgetting the target");
                let _ = AssertUnwindSafe(context.driver.forget(&target)).catch_unwind().await;
            }
        }
        // A driver may have kept a clone of its work, and with it the permit.
        permit.release();
        Finished { target: target.clone(), job, retry, record }
    }
    .instrument(span)
    .await
}

fn rejected(invalid: &InvalidCommand) -> Reconciled {
    Reconciled::failed(Failure::permanent(invalid.reason.clone()))
}

impl<D: Driver> Context<D> {
    /// True when a report of a newer generation is stored, by another process or by an earlier run of this
    /// one. On an error the work goes on: publishing its report checks again.
    async fn is_older(&self, command: &Command, record: &mut ReportRecord) -> bool {
        if let Err(error) = self.publisher.load(record, &self.name, &command.target).await {
            warn!(%error, "can't tell what was reported last");
        }
        // The command that waits for parts does not end what came before it.
        let reported = record.report().filter(|report| report.lacking.is_empty());
        let Some(stored) = reported.map(|report| &report.generation) else { return false };
        let older = (command.generation.term, command.generation.sequence) < (stored.term, stored.sequence);
        if older {
            self.metrics.older_command();
            warn!(
                command = %command.generation, reported = %stored,
                "ignoring a command older than what was reported already"
            );
        }
        older
    }

    /// Raises the generation of an invalid message to that of the last report. A report of an older
    /// generation would be dropped, and a new process knows no earlier command.
    async fn raise_generation(&self, generation: &mut Generation, target: &str, record: &mut ReportRecord) {
        if let Err(error) = self.publisher.load(record, &self.name, target).await {
            warn!(%error, "can't tell what was reported last");
        }
        let order = |generation: &Generation| (generation.term, generation.sequence);
        let last = record.report().map(|report| &report.generation);
        if let Some(last) = last.filter(|last| order(last) > order(generation)) {
            *generation = generation_without_hash(last);
        }
    }

    /// Runs the driver within the time limit and catches its panics. Returns the command that was worked on
    /// last as well.
    async fn reconcile(
        &self,
        command: &Arc<Command>,
        newest: watch::Receiver<LatestCommand>,
        record: &mut ReportRecord,
        permit: &ConcurrencyPermit,
    ) -> (Reconciled, Arc<Command>) {
        let started = Instant::now();
        let (progress, messages) = mpsc::channel(16);
        // Reports of work in progress have no state.
        let mut reported = record.report().cloned();
        if let Some(report) = &mut reported {
            report.applied = report.applied.take().or_else(|| record.applied.clone());
        }
        let work = Work::new(command.clone(), newest.clone(), progress)
            .with_reported(reported)
            .with_ownership(self.owned_targets.ownership_of(match self.ownership {
                Ownership::PerTarget => &command.target,
                Ownership::WholeDriver => WHOLE_DRIVER_KEY,
            }))
            .with_permit(permit.clone());
        let phase = work.phase();
        let reconcile = AssertUnwindSafe(self.driver.reconcile(work)).catch_unwind();
        let failed = |reason: String| {
            error!(generation = %command.generation, "{reason}");
            Reconciled::failed(Failure::retryable(reason))
        };
        let reconciled = tokio::select! {
            done = reconcile => match done {
                Ok(reconciled) => reconciled,
                Err(_) => failed(format!("driver {} panicked", self.name)),
            },
            () = self.supervise(command, &newest, messages, phase.clone(), record, permit) => {
                failed(format!("driver {} took longer than {} s", self.name, self.time_limit.as_secs()))
            }
        };
        let worked_on = match &*phase.borrow() {
            // A driver that gave up nevertheless leaves the decision to be worked on.
            Phase::Settled(Some(decision)) if !matches!(reconciled.outcome, Outcome::Progress { .. }) => {
                decision.clone()
            }
            Phase::Settled(_) | Phase::Working | Phase::Held(_) => command.clone(),
        };
        // Work that was given up has read nothing back.
        if !matches!(reconciled.outcome, Outcome::Progress { .. }) {
            record.applied.clone_from(&reconciled.applied);
        }
        self.metrics.reconciled(&reconciled, started.elapsed());
        let generation = &worked_on.generation;
        match &reconciled.outcome {
            Outcome::Failed(failure) => {
                warn!(%generation, retryable = failure.retryable, reason = %failure.reason, "failed");
            }
            Outcome::RolledBack { reason } => info!(%generation, %reason, "taken back"),
            _ if !reconciled.rejected.is_empty() => {
                warn!(%generation, rejected = reconciled.rejected.len(), "applied in part");
            }
            _ => debug!(%generation, took = ?started.elapsed(), "applied"),
        }
        (reconciled, worked_on)
    }

    /// Publishes progress and held reports while the driver works. Ends at the time limit, to which the time
    /// of a hold does not count. May be dropped at any point.
    async fn supervise(
        &self,
        command: &Command,
        newest: &watch::Receiver<LatestCommand>,
        messages: mpsc::Receiver<String>,
        mut phase: watch::Receiver<Phase>,
        record: &mut ReportRecord,
        permit: &ConcurrencyPermit,
    ) {
        let started = tokio::time::Instant::now();
        let mut limit = started + self.time_limit;
        let held = {
            let publishing = self.publish_progress(command, newest, messages, record);
            tokio::select! {
                never = publishing => match never {},
                () = tokio::time::sleep_until(limit) => return,
                // An error means that the driver ended, which ends this too.
                Ok(phase) = phase.wait_for(|phase| *phase != Phase::Working) => match &*phase {
                    Phase::Held(verified) => Some((**verified).clone()),
                    Phase::Working | Phase::Settled(_) => None,
                },
            }
        };
        if let Some(held) = held {
            let since = tokio::time::Instant::now();
            permit.release();
            let held = Reconciled { applied: None, ..held };
            let report = self.report(&command.target, &command.generation, held);
            debug!(generation = %command.generation, "held");
            let publishing = async {
                self.publish(record, report, newest.clone()).await;
                std::future::pending::<std::convert::Infallible>().await
            };
            tokio::select! {
                never = publishing => match never {},
                _ = phase.wait_for(|phase| matches!(phase, Phase::Settled(_))) => {}
            }
            // A decision is carried out without waiting for a permit.
            permit.force_acquire();
            limit += since.elapsed();
        }
        tokio::time::sleep_until(limit).await;
    }

    /// Publishes the driver's progress messages. Never ends, and may be dropped at any point.
    async fn publish_progress(
        &self,
        command: &Command,
        newest: &watch::Receiver<LatestCommand>,
        mut messages: mpsc::Receiver<String>,
        record: &mut ReportRecord,
    ) -> std::convert::Infallible {
        let mut last = String::from("working");
        loop {
            tokio::time::sleep(PROGRESS_INTERVAL).await;
            while let Ok(message) = messages.try_recv() {
                last = message;
            }
            if newest.borrow().is_newer_than(&command.generation) {
                continue;
            }
            if let Err(error) = self.publisher.load(record, &self.name, &command.target).await {
                debug!(%error, "no progress report");
                continue;
            }
            let progress = Reconciled::progress(last.clone());
            let report = self.report(&command.target, &command.generation, progress);
            if let Err(error) = self.publisher.publish(record, &report).await {
                debug!(%error, "no progress report");
            }
        }
    }

    /// Reports what a command lacks, once.
    async fn report_lacking(&self, target: &str, lacking: &Lacking, record: &mut ReportRecord) {
        let message = format!(
            "waits for {} parts of its command since {} s",
            lacking.parts.len(),
            lacking.waited.as_secs()
        );
        let report = Report {
            lacking: lacking.parts.clone(),
            ..self.report(target, &lacking.generation, Reconciled::progress(message))
        };
        let published = async {
            self.publisher.load(record, &self.name, target).await?;
            self.publisher.publish(record, &report).await
        };
        match published.await {
            Ok(_) => warn!(command = %lacking.generation, parts = lacking.parts.len(), "parts are lacking"),
            Err(error) => warn!(%error, "can't report that parts are lacking"),
        }
    }

    /// Republishes a report that the stream has lost.
    async fn verify(&self, target: &str, newest: watch::Receiver<LatestCommand>, record: &mut ReportRecord) {
        let report = match self.publisher.is_stored(record, &self.name, target).await {
            Ok(true) => return,
            Ok(false) => record.take_report(),
            Err(error) => {
                warn!(%error, "can't tell whether the report is still there");
                record.take_report()
            }
        };
        if let Some(report) = report {
            self.publish(record, report, newest).await;
        }
    }

    /// Publishes until it succeeds, or a newer command or the end of the target makes the report needless.
    async fn publish(
        &self,
        record: &mut ReportRecord,
        report: Report,
        mut newest: watch::Receiver<LatestCommand>,
    ) {
        let mut report = report;
        let mut failures = 0;
        loop {
            match self.publisher.publish(record, &report).await {
                Ok(Published::Stored) => {
                    if let Err(error) = self.publisher.append_to_history(&report).await {
                        warn!(%error, "the history lacks a report");
                    }
                    return;
                }
                Ok(Published::Unchanged) => return,
                Ok(Published::Superseded(generation)) => {
                    self.metrics.fenced();
                    info!(ours = %report.generation, theirs = %generation, "a newer report is there, keeping it");
                    return;
                }
                Ok(Published::Uncommanded) => {
                    info!("NATS has no command of the target, trying again unless it is forgotten");
                }
                Err(error) if error.is_retryable() => warn!(%error, "trying again"),
                Err(error) => {
                    error!(%error, "the driver's report can't be published");
                    if !self.replace_with_failure(&mut report, &error) {
                        return;
                    }
                    continue;
                }
            }
            failures += 1;
            tokio::select! {
                () = tokio::time::sleep(BACKOFF.delay(failures, random())) => {}
                changed = newest.changed() => {
                    if changed.is_err() || newest.borrow().is_newer_than(&report.generation) {
                        return;
                    }
                }
            }
        }
    }

    /// Replaces a report that can't be published by a failure. False when it is such a failure already.
    fn replace_with_failure(&self, report: &mut Report, error: &ReportError) -> bool {
        let reason = format!("driver {} made a report that can't be published: {error}", self.name);
        let failure = Reconciled::failed(Failure::permanent(reason));
        let replacement = self.report(&report.target, &report.generation, failure);
        let again = matches!(report.outcome, Outcome::Failed(_)) && report.applied.is_none();
        *report = replacement;
        !again
    }

    fn report(&self, target: &str, generation: &Generation, reconciled: Reconciled) -> Report {
        let mut report = Report {
            driver: self.name.clone(),
            target: target.to_owned(),
            instance: self.instance.clone(),
            generation: generation.clone(),
            at: jiff::Timestamp::now().to_string(),
            outcome: reconciled.outcome,
            applied: reconciled.applied,
            rejected: reconciled.rejected,
            notes: reconciled.notes,
            device: reconciled.device,
            change: reconciled.change,
            lacking: Vec::new(),
        };
        report.bound(self.publisher.max_size());
        report
    }
}
