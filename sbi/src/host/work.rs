//! One job on one target, from the driver's answer to the published report.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use backon::{BackoffBuilder, ExponentialBuilder};
use eno_schemas::{Command, Failure, Generation, Outcome, Report};
use futures::FutureExt;
use tokio::sync::{mpsc, watch};
use tracing::{Instrument, debug, error, info, info_span, warn};

use super::metrics::HostMetrics;
use super::publish::{Published, Publisher, Record, ReportError};
use super::schedule::{BadCommand, Job, Start, in_the_place_of};
use super::{Ownership, WHOLE};
use crate::driver::{Driver, Reconciled};
use crate::permit::ConcurrencyPermit;
use crate::target_ownership::OwnedTargets;
use crate::work::{Newest, Phase, Work};

/// Work that takes longer than this says so, and again each time that this has passed.
const PROGRESS: Duration = Duration::from_secs(2);

/// What all jobs share.
pub(super) struct Context<D> {
    pub driver: D,
    pub name: String,
    pub instance: String,
    pub publisher: Publisher,
    pub time_limit: Duration,
    pub metrics: HostMetrics,
    pub owned_targets: OwnedTargets,
    pub ownership: Ownership,
}

/// A job that ended.
pub(super) struct Finished {
    pub target: String,
    /// With the command that was worked on in the end: the decision, where one came while a change was held.
    pub job: Job,
    /// The generation to try again.
    pub retry: Option<Generation>,
    pub record: Record,
}

/// Does the job.
pub(super) async fn run<D: Driver>(
    context: Arc<Context<D>>,
    start: Start<Record>,
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
                let again = reconciled.wants_retry();
                let current = !newest.borrow().is_newer_than(&command.generation);
                // What was broken off for a newer command is no news.
                if current || matches!(reconciled.outcome, Outcome::Applied | Outcome::RolledBack { .. }) {
                    let report = context.report(&target, &command.generation, reconciled);
                    context.publish(&mut record, report, newest).await;
                }
                retry = again.then(|| command.generation.clone());
            }
            Job::Reject(bad, generation) => {
                context.raise(generation, &target, &mut record).await;
                let report = context.report(&target, generation, rejected(bad));
                context.publish(&mut record, report, newest).await;
            }
            Job::Verify => context.verify(&target, newest, &mut record).await,
            Job::Forget => {
                info!("forgetting the target");
                let _ = AssertUnwindSafe(context.driver.forget(&target)).catch_unwind().await;
            }
        }
        // A driver may have kept its work.
        permit.give_up();
        Finished { target: target.clone(), job, retry, record }
    }
    .instrument(span)
    .await
}

fn rejected(bad: &BadCommand) -> Reconciled {
    Reconciled::failed(Failure { reason: bad.reason.clone(), retryable: false, unreachable: false })
}

impl<D: Driver> Context<D> {
    /// True when a newer generation than this has been worked on already, by another process or by this one's
    /// predecessor. Without an answer the work goes on: publishing its report looks again.
    async fn is_older(&self, command: &Command, record: &mut Record) -> bool {
        if let Err(error) = self.publisher.load(record, &self.name, &command.target).await {
            warn!(%error, "can't tell what was reported last");
        }
        let Some(stored) = record.report().map(|report| &report.generation) else { return false };
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

    /// Raises the generation of what is no command to that of the last report, which would outlive a report on an older one:
    /// a process that has seen no command before it knows no better.
    async fn raise(&self, generation: &mut Generation, target: &str, record: &mut Record) {
        if let Err(error) = self.publisher.load(record, &self.name, target).await {
            warn!(%error, "can't tell what was reported last");
        }
        let order = |generation: &Generation| (generation.term, generation.sequence);
        let last = record.report().map(|report| &report.generation);
        if let Some(last) = last.filter(|last| order(last) > order(generation)) {
            *generation = in_the_place_of(last);
        }
    }

    /// Has the driver do its work, within the time limit and whatever becomes of it. Returns the command that was
    /// worked on in the end as well.
    async fn reconcile(
        &self,
        command: &Arc<Command>,
        newest: watch::Receiver<Newest>,
        record: &mut Record,
        permit: &ConcurrencyPermit,
    ) -> (Reconciled, Arc<Command>) {
        let started = Instant::now();
        let (progress, messages) = mpsc::channel(16);
        let reported = record.report().cloned();
        let work = Work::new(command.clone(), newest.clone(), progress)
            .with_reported(reported)
            .with_ownership(self.owned_targets.of(match self.ownership {
                Ownership::PerTarget => &command.target,
                Ownership::WholeDriver => WHOLE,
            }))
            .with_permit(permit.clone());
        let phase = work.phase();
        let reconcile = AssertUnwindSafe(self.driver.reconcile(work)).catch_unwind();
        let failed = |reason: String| {
            error!(generation = %command.generation, "{reason}");
            Reconciled::failed(Failure { reason, retryable: true, unreachable: false })
        };
        let reconciled = tokio::select! {
            done = reconcile => match done {
                Ok(reconciled) => reconciled,
                Err(_) => failed(format!("driver {} panicked", self.name)),
            },
            () = self.attend(command, &newest, messages, phase.clone(), record, permit) => {
                failed(format!("driver {} took longer than {} s", self.name, self.time_limit.as_secs()))
            }
        };
        let worked_on = match &*phase.borrow() {
            // A driver that gave up all the same has left the decision to be worked on.
            Phase::Settled(Some(decision)) if !matches!(reconciled.outcome, Outcome::Progress { .. }) => {
                decision.clone()
            }
            Phase::Settled(_) | Phase::Working | Phase::Held(_) => command.clone(),
        };
        record.applied.clone_from(&reconciled.applied);
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

    /// Listens to the driver while it works. Ends when the time limit is over, to which the time that a change is
    /// held does not count; may be dropped at any point.
    async fn attend(
        &self,
        command: &Command,
        newest: &watch::Receiver<Newest>,
        messages: mpsc::Receiver<String>,
        mut phase: watch::Receiver<Phase>,
        record: &mut Record,
        permit: &ConcurrencyPermit,
    ) {
        let started = tokio::time::Instant::now();
        let mut limit = started + self.time_limit;
        let held = {
            let telling = self.tell_progress(command, newest, messages, record);
            tokio::select! {
                never = telling => match never {},
                () = tokio::time::sleep_until(limit) => return,
                // The driver is gone when there is an error: so is this, soon.
                Ok(phase) = phase.wait_for(|phase| *phase != Phase::Working) => match &*phase {
                    Phase::Held(verified) => Some((**verified).clone()),
                    Phase::Working | Phase::Settled(_) => None,
                },
            }
        };
        if let Some(held) = held {
            let since = tokio::time::Instant::now();
            permit.give_up();
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
            // What is decided waits for nobody.
            permit.insist();
            limit += since.elapsed();
        }
        tokio::time::sleep_until(limit).await;
    }

    /// Publishes what the driver says while it works. Never ends, and may be dropped at any point.
    async fn tell_progress(
        &self,
        command: &Command,
        newest: &watch::Receiver<Newest>,
        mut messages: mpsc::Receiver<String>,
        record: &mut Record,
    ) -> std::convert::Infallible {
        let mut last = String::from("working");
        loop {
            tokio::time::sleep(PROGRESS).await;
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
            let report = self.report(
                &command.target,
                &command.generation,
                Reconciled {
                    outcome: Outcome::Progress { message: last.clone() },
                    applied: record.applied.clone(),
                    rejected: Vec::new(),
                    notes: Vec::new(),
                    device: None,
                    change: None,
                },
            );
            if let Err(error) = self.publisher.publish(record, &report).await {
                debug!(%error, "no progress report");
            }
        }
    }

    /// Publishes again what the stream has lost.
    async fn verify(&self, target: &str, newest: watch::Receiver<Newest>, record: &mut Record) {
        let report = match self.publisher.is_there(record, &self.name, target).await {
            Ok(true) => return,
            Ok(false) => record.forget_stored(),
            Err(error) => {
                warn!(%error, "can't tell whether the report is still there");
                record.forget_stored()
            }
        };
        if let Some(report) = report {
            self.publish(record, report, newest).await;
        }
    }

    /// Publishes until it is done, or needless because of a newer command.
    async fn publish(&self, record: &mut Record, report: Report, mut newest: watch::Receiver<Newest>) {
        let mut report = report;
        let mut delays = ExponentialBuilder::new()
            .with_min_delay(Duration::from_millis(100))
            .with_max_delay(Duration::from_secs(5))
            .with_jitter()
            .without_max_times()
            .build();
        loop {
            match self.publisher.publish(record, &report).await {
                Ok(Published::Stored) => {
                    if let Err(error) = self.publisher.remember(&report).await {
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
                Ok(Published::Gone) => {
                    info!("the target's command is gone, and so no report is due");
                    return;
                }
                Err(error) if error.is_retryable() => {
                    warn!(%error, "trying again");
                    let delay = delays.next().unwrap_or(Duration::from_secs(5));
                    tokio::select! {
                        () = tokio::time::sleep(delay) => {}
                        changed = newest.changed() => {
                            if changed.is_err() || newest.borrow().is_newer_than(&report.generation) {
                                return;
                            }
                        }
                    }
                }
                Err(error) => {
                    error!(%error, "the driver's report can't be published");
                    if !self.replace(&mut report, &error) {
                        return;
                    }
                }
            }
        }
    }

    /// Puts a failure in the place of a report that can't be published; false when it is one already.
    fn replace(&self, report: &mut Report, error: &ReportError) -> bool {
        let reason = format!("driver {} made a report that can't be published: {error}", self.name);
        let failure = Reconciled::failed(Failure { reason, retryable: false, unreachable: false });
        let replacement = self.report(&report.target, &report.generation, failure);
        let again = matches!(report.outcome, Outcome::Failed(_)) && report.applied.is_none();
        *report = replacement;
        !again
    }

    fn report(&self, target: &str, generation: &Generation, reconciled: Reconciled) -> Report {
        Report {
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
        }
    }
}
