//! Metrics of a host. All labels come from a fixed list.

use std::time::Duration;

use eno_schemas::Outcome;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

use crate::driver::Reconciled;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByOutcome {
    outcome: &'static str,
}

/// The host's metrics; clones share their values.
#[derive(Clone, Debug)]
pub struct HostMetrics {
    /// Reconciles by outcome.
    reconciles: Family<ByOutcome, Counter>,
    /// Duration of reconciles in seconds.
    duration: Histogram,
    /// Known targets.
    targets: Gauge,
    /// Retried reconciles.
    retries: Counter,
    /// Invalid messages on command subjects.
    bad_messages: Counter,
    /// Ignored older commands.
    older_commands: Counter,
    /// Reports dropped for a newer one.
    fenced: Counter,
}

impl Default for HostMetrics {
    fn default() -> Self {
        Self {
            reconciles: Family::default(),
            // 5 ms to 40 s.
            duration: Histogram::new(exponential_buckets(0.005, 2.0, 14)),
            targets: Gauge::default(),
            retries: Counter::default(),
            bad_messages: Counter::default(),
            older_commands: Counter::default(),
            fenced: Counter::default(),
        }
    }
}

impl HostMetrics {
    /// Registers them under `eno_driver_…`.
    pub fn register(&self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("eno_driver");
        registry.register("reconciles", "Reconciles by their outcome", self.reconciles.clone());
        registry.register_with_unit(
            "reconcile_duration",
            "How long reconciles took",
            Unit::Seconds,
            self.duration.clone(),
        );
        registry.register("targets", "Targets that have a command", self.targets.clone());
        registry.register("retries", "Reconciles that were tried again", self.retries.clone());
        registry.register("bad_messages", "Commands that broke their schema", self.bad_messages.clone());
        registry.register(
            "older_commands",
            "Commands older than one seen before",
            self.older_commands.clone(),
        );
        registry.register("fenced_reports", "Reports dropped for a newer one", self.fenced.clone());
    }

    pub(super) fn reconciled(&self, reconciled: &Reconciled, took: Duration) {
        let outcome = match &reconciled.outcome {
            Outcome::Applied if reconciled.rejected.is_empty() => "applied",
            Outcome::Applied => "partial",
            Outcome::Failed(failure) if failure.unreachable => "unreachable",
            Outcome::Failed(failure) if failure.retryable => "failed",
            Outcome::Failed(_) => "refused",
            Outcome::RolledBack { .. } => "rolled-back",
            Outcome::Held | Outcome::Progress { .. } => "progress",
        };
        self.reconciles.get_or_create(&ByOutcome { outcome }).inc();
        self.duration.observe(took.as_secs_f64());
    }

    pub(super) fn targets(&self, count: usize) {
        self.targets.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    pub(super) fn retried(&self, count: usize) {
        self.retries.inc_by(count as u64);
    }

    pub(super) fn bad_message(&self) {
        self.bad_messages.inc();
    }

    pub(super) fn older_command(&self) {
        self.older_commands.inc();
    }

    pub(super) fn fenced(&self) {
        self.fenced.inc();
    }
}
