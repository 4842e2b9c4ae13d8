//! Prometheus metrics. All labels are from fixed sets, or name a switch, a driver or a stream.

use std::sync::atomic::AtomicU64;

use eno_core::{ConditionReason, DecidedTransaction, Effect, Kind, Name};
use eno_sbi::nats::StreamUse;
use eno_schemas::Phase;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Metric, Registry};

/// Kind and phase of an object.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ObjectLabels {
    kind: &'static str,
    phase: &'static str,
}

/// One label.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct What {
    what: &'static str,
}

/// The written resource, and the result.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct WriteLabels {
    what: &'static str,
    result: &'static str,
}

/// A switch, by the name of its FabricDevice.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct DeviceLabel {
    device: String,
}

/// A BGPSessionGroup, by its name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct GroupLabel {
    group: String,
}

/// A kind of custom resources.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct KindLabel {
    kind: &'static str,
}

/// A driver, by its name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct DriverLabel {
    driver: String,
}

/// A stream of NATS, by its name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct StreamLabel {
    stream: String,
}

/// A reason of a condition.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ReasonLabel {
    reason: String,
}

impl From<ConditionReason> for ReasonLabel {
    fn from(reason: ConditionReason) -> Self {
        Self { reason: reason.to_string() }
    }
}

/// The reasons for which a Subnet is short of addresses.
const SHORT: [ConditionReason; 2] = [ConditionReason::FewLeft, ConditionReason::NoneLeft];

/// The kinds of which probes tell whether packets pass.
const PROBED: [Kind; 2] = [Kind::L2Service, Kind::L2ServiceAttachment];

/// All metrics of the engine.
#[derive(Debug)]
pub struct Metrics {
    /// 1 while this process leads.
    pub leading: Gauge,
    /// Objects by kind and phase.
    pub objects: Family<ObjectLabels, Gauge>,
    /// Earliest Unix time at which an object in this phase stopped being ready, by kind and phase.
    oldest: Family<ObjectLabels, Gauge>,
    /// Objects whose condition Verified is false, by kind.
    packets_lost: Family<KindLabel, Gauge>,
    /// Subnets whose condition AddressesLow is true, by its reason.
    subnets_low: Family<ReasonLabel, Gauge>,
    /// Whether each switch answers.
    device_up: Family<DeviceLabel, Gauge>,
    /// Whether each switch differs from what ENO wants.
    device_drift: Family<DeviceLabel, Gauge>,
    /// The sessions of each BGPSessionGroup.
    bgp_sessions: Family<GroupLabel, Gauge>,
    /// Those of them that are established.
    bgp_sessions_established: Family<GroupLabel, Gauge>,
    /// Live processes of each driver.
    drivers: Family<DriverLabel, Gauge>,
    /// By how many seconds the clock of each driver is ahead of this process's.
    clock_skew: Family<DriverLabel, Gauge<f64, AtomicU64>>,
    /// Nodes that should have an agent.
    pub nodes: Gauge,
    /// Size of each stream in bytes.
    stream_bytes: Family<StreamLabel, Gauge>,
    /// Maximum size of each stream in bytes; 0: no limit.
    stream_limits: Family<StreamLabel, Gauge>,
    /// The part of each stream's limits that is used, from 0 to 1.
    stream_fill: Family<StreamLabel, Gauge<f64, AtomicU64>>,
    /// Transitions in the outbox by kind and phase.
    transitions: Family<ObjectLabels, Counter>,
    /// Effects of the core by kind.
    effects: Family<What, Counter>,
    /// Writes to the API server by type and result.
    writes: Family<WriteLabels, Counter>,
    /// Targets whose change is not published yet.
    pub publish_waiting: Gauge,
    /// Targets whose driver has not reported yet.
    pub publish_outstanding: Gauge,
    /// Commands by outcome.
    commands: Family<What, Counter>,
    /// Transactions by outcome.
    transactions: Family<What, Counter>,
    /// Seconds from the opening of a transaction to its decision.
    pub transaction_seconds: Histogram,
    /// Participants per transaction.
    pub transaction_participants: Histogram,
    /// Differences that drivers found between the observed and the desired state of switches.
    pub drift: Counter,
    /// Transitions that are not in the outbox yet.
    pub outbox_lag: Gauge,
    /// Callbacks by outcome.
    callbacks: Family<What, Counter>,
    /// Callbacks that are not delivered yet.
    pub callbacks_pending: Gauge,
    /// Objects whose last callback failed.
    pub callbacks_failing: Gauge,
    /// Seconds that the core took per batch.
    pub settle: Histogram,
    /// Messages in the mailbox of the core.
    pub mailbox: Gauge,
    /// Logins of agents to NATS by outcome.
    node_logins: Family<What, Counter>,
    /// Unreadable messages by type.
    malformed: Family<What, Counter>,
    /// Broken watches by kind.
    watch_errors: Family<What, Counter>,
    /// The kinds that the API server does not know.
    kind_absent: Family<KindLabel, Gauge>,
    /// Unix time in seconds of the last full sync; 0: never.
    pub synced: Gauge<u64, AtomicU64>,
    /// Seconds from acquiring the Lease until all initial commands were published; 0: not yet.
    pub catch_up: Gauge<f64, AtomicU64>,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new(&mut Registry::default())
    }
}

impl Metrics {
    /// Metrics that are registered under `eno_engine_…`.
    pub fn new(registry: &mut Registry) -> Self {
        let all = registry.sub_registry_with_prefix("eno_engine");
        Self {
            drift: added(all, "drift", "Differences found on switches in what is ours"),
            leading: added(all, "leading", "1 while this process leads"),
            objects: added(all, "objects", "Custom resources by kind and phase"),
            oldest: added(
                all,
                "phase_oldest_timestamp_seconds",
                "Earliest time at which an object in this phase stopped being ready",
            ),
            packets_lost: added(
                all,
                "packets_lost",
                "Custom resources whose packets do not pass, as probes found",
            ),
            subnets_low: added(all, "subnets_low", "Subnets with few free addresses or none"),
            device_up: added(all, "device_up", "1 while the switch answers"),
            device_drift: added(all, "device_drift", "1 while the switch differs from what ENO wants"),
            bgp_sessions: added(all, "bgp_sessions", "BGP sessions of a BGPSessionGroup"),
            bgp_sessions_established: added(
                all,
                "bgp_sessions_established",
                "BGP sessions of a BGPSessionGroup that are established",
            ),
            drivers: added(all, "drivers", "Live processes of each driver"),
            clock_skew: added(
                all,
                "driver_clock_skew_seconds",
                "Largest difference of a driver's clock from the engine's; negative: behind",
            ),
            nodes: added(all, "nodes", "Nodes that should have an agent"),
            stream_bytes: added(all, "stream_bytes", "Size of a stream of NATS"),
            stream_limits: added(all, "stream_limit_bytes", "Maximum size of the stream; 0: none"),
            stream_fill: added(
                all,
                "stream_fill_ratio",
                "Used part of the stream's limits of bytes and messages",
            ),
            transitions: added(all, "transitions", "Transitions written to the outbox"),
            effects: added(all, "effects", "What the core asked for"),
            writes: added(all, "kube_writes", "Writes to the API server by what and result"),
            publish_waiting: added(all, "publish_waiting", "Targets with an unpublished change"),
            publish_outstanding: added(all, "publish_outstanding", "Targets whose driver has not answered"),
            commands: added(all, "commands", "Commands by what became of them"),
            transactions: added(all, "transactions", "Transactions of switches by outcome"),
            transaction_seconds: added_as(
                all,
                "transaction_seconds",
                "Time from the opening of a transaction to its decision",
                Histogram::new(exponential_buckets(0.01, 2.0, 13)),
            ),
            transaction_participants: added_as(
                all,
                "transaction_participants",
                "Switches that took part in a transaction",
                Histogram::new(exponential_buckets(2.0, 2.0, 9)),
            ),
            outbox_lag: added(all, "outbox_lag", "Transitions not yet in the outbox"),
            callbacks: added(all, "callbacks", "Callbacks by what became of them"),
            callbacks_pending: added(all, "callbacks_pending", "Callbacks not yet delivered"),
            callbacks_failing: added(all, "callbacks_failing", "Objects whose last callback was not taken"),
            settle: added_as(
                all,
                "settle_seconds",
                "Time to work out what follows from a batch",
                Histogram::new(exponential_buckets(0.000_05, 4.0, 10)),
            ),
            mailbox: added(all, "mailbox", "Events not yet worked out"),
            node_logins: added(all, "node_logins", "Logins of agents to NATS by outcome"),
            malformed: added(all, "malformed", "Messages that could not be read"),
            watch_errors: added(all, "watch_errors", "Watches that broke off"),
            kind_absent: added(all, "kind_absent", "1 while the API server does not know the kind"),
            synced: added(all, "synced_timestamp_seconds", "When the engine was last in step"),
            catch_up: added(
                all,
                "catch_up_seconds",
                "Time from taking the lead until nothing was left to publish; 0: not yet",
            ),
        }
    }

    /// Counts a transition in the outbox.
    pub fn transition(&self, kind: Kind, phase: Phase) {
        self.transitions
            .get_or_create(&ObjectLabels { kind: kind.as_str(), phase: phase_name(Some(phase)) })
            .inc();
    }

    /// An object entered a phase.
    pub fn enters(&self, kind: Kind, phase: Option<Phase>) {
        self.objects.get_or_create(&ObjectLabels { kind: kind.as_str(), phase: phase_name(phase) }).inc();
    }

    /// An object left a phase.
    pub fn leaves(&self, kind: Kind, phase: Option<Phase>) {
        self.objects.get_or_create(&ObjectLabels { kind: kind.as_str(), phase: phase_name(phase) }).dec();
    }

    /// The earliest Unix time at which an object in this phase stopped being ready; `None`: no object is in it.
    pub fn oldest(&self, kind: Kind, phase: Phase, since: Option<i64>) {
        let labels = ObjectLabels { kind: kind.as_str(), phase: phase_name(Some(phase)) };
        match since {
            Some(since) => {
                self.oldest.get_or_create(&labels).set(since);
            }
            None => {
                self.oldest.remove(&labels);
            }
        }
    }

    /// An object of a kind is there, and loses packets or not.
    pub fn loses(&self, kind: Kind, loses: bool) {
        if PROBED.contains(&kind) {
            self.packets_lost.get_or_create(&KindLabel { kind: kind.as_str() }).inc_by(i64::from(loses));
        }
    }

    /// An object of a kind is in this state no more.
    pub fn loses_no_more(&self, kind: Kind, loses: bool) {
        if PROBED.contains(&kind) {
            self.packets_lost.get_or_create(&KindLabel { kind: kind.as_str() }).dec_by(i64::from(loses));
        }
    }

    /// A Subnet is there, and is short of addresses for this reason; `None`: it is not.
    pub fn short(&self, reason: Option<ConditionReason>) {
        for known in SHORT {
            self.subnets_low.get_or_create(&known.into()).inc_by(i64::from(reason == Some(known)));
        }
    }

    /// A Subnet is short of addresses for this reason no more.
    pub fn short_no_more(&self, reason: ConditionReason) {
        self.subnets_low.get_or_create(&reason.into()).dec();
    }

    /// The state of a switch.
    pub fn device(&self, name: &str, is_up: bool, has_drift: bool) {
        let label = DeviceLabel { device: name.to_owned() };
        self.device_up.get_or_create(&label).set(i64::from(is_up));
        self.device_drift.get_or_create(&label).set(i64::from(has_drift));
    }

    /// A switch is no longer ENO's.
    pub fn device_gone(&self, name: &str) {
        let label = DeviceLabel { device: name.to_owned() };
        self.device_up.remove(&label);
        self.device_drift.remove(&label);
    }

    /// The sessions of a BGPSessionGroup, and those of them that are established.
    pub fn sessions(&self, group: &str, all: usize, established: usize) {
        let label = GroupLabel { group: group.to_owned() };
        let gauges = [(&self.bgp_sessions, all), (&self.bgp_sessions_established, established)];
        for (gauge, number) in gauges {
            gauge.get_or_create(&label).set(i64::try_from(number).unwrap_or(i64::MAX));
        }
    }

    /// A BGPSessionGroup is gone.
    pub fn sessions_gone(&self, group: &str) {
        let label = GroupLabel { group: group.to_owned() };
        self.bgp_sessions.remove(&label);
        self.bgp_sessions_established.remove(&label);
    }

    /// The number of live processes of a driver.
    pub fn driver(&self, name: &Name, count: usize) {
        let label = DriverLabel { driver: name.to_string() };
        self.drivers.get_or_create(&label).set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// The largest difference of the clock of a process of a driver; `None`: unknown.
    pub fn clock_skew(&self, driver: &Name, skew: Option<f64>) {
        let label = DriverLabel { driver: driver.to_string() };
        match skew {
            Some(skew) => {
                self.clock_skew.get_or_create(&label).set(skew);
            }
            None => {
                self.clock_skew.remove(&label);
            }
        }
    }

    /// What the streams hold.
    pub fn streams(&self, uses: &[StreamUse]) {
        let count = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
        for used in uses {
            let label = StreamLabel { stream: used.stream.clone() };
            self.stream_bytes.get_or_create(&label).set(count(used.bytes));
            self.stream_limits.get_or_create(&label).set(count(used.limit.unwrap_or_default()));
            self.stream_fill.get_or_create(&label).set(used.fill_ratio());
        }
    }

    /// Counts an effect of the core.
    pub fn effect(&self, effect: &Effect) {
        let what = match effect {
            Effect::AddFinalizer(_) => "add-finalizer",
            Effect::Await(_) => "await",
            Effect::Deadline { .. } => "deadline",
            Effect::Transition { .. } => "transition",
            Effect::Status { .. } => "status",
            Effect::RemoveFinalizer(_) => "remove-finalizer",
            Effect::BridgeDomain { .. } => "bridge-domain",
            Effect::PodNetwork { .. } => "pod-network",
            Effect::Notice { .. } => "event",
            Effect::LabelNode { .. } => "mark",
            Effect::SampleDeployment { .. } => "sample-deployment",
            Effect::Retry { .. } => "retry",
        };
        self.effects.get_or_create(&What { what }).inc();
    }

    /// Counts a write to the API server.
    pub fn write(&self, what: &'static str, result: &'static str) {
        self.writes.get_or_create(&WriteLabels { what, result }).inc();
    }

    /// Counts a command: published, unchanged or failed.
    pub fn command(&self, what: &'static str) {
        self.commands.get_or_create(&What { what }).inc();
    }

    /// Records a decided transaction.
    pub fn transaction(&self, decided: &DecidedTransaction) {
        self.transactions.get_or_create(&What { what: decided.outcome }).inc();
        self.transaction_seconds.observe(decided.took.as_secs_f64());
        // The number of switches is far below the limit of exact floating point.
        self.transaction_participants.observe(u32::try_from(decided.participants).unwrap_or(u32::MAX).into());
    }

    /// Counts the outcome of a callback.
    pub fn callback(&self, what: &'static str) {
        self.callbacks.get_or_create(&What { what }).inc();
    }

    /// Counts the outcome of an agent's login to NATS.
    pub fn node_login(&self, what: &'static str) {
        self.node_logins.get_or_create(&What { what }).inc();
    }

    /// How often a login had this outcome.
    #[cfg(test)]
    pub fn node_logins(&self, what: &'static str) -> u64 {
        self.node_logins.get_or_create(&What { what }).get()
    }

    /// Counts an unreadable message.
    pub fn malformed(&self, what: &'static str) {
        self.malformed.get_or_create(&What { what }).inc();
    }

    /// Counts a broken watch.
    pub fn watch_error(&self, what: &'static str) {
        self.watch_errors.get_or_create(&What { what }).inc();
    }

    /// Whether the API server lacks a kind.
    pub fn kind_absent(&self, kind: &'static str, is_absent: bool) {
        self.kind_absent.get_or_create(&KindLabel { kind }).set(i64::from(is_absent));
    }

    /// Resets the metrics of a leadership that ended.
    pub fn reset(&self) {
        self.objects.clear();
        self.oldest.clear();
        self.packets_lost.clear();
        self.subnets_low.clear();
        self.device_up.clear();
        self.device_drift.clear();
        self.bgp_sessions.clear();
        self.bgp_sessions_established.clear();
        self.drivers.clear();
        self.clock_skew.clear();
        self.kind_absent.clear();
        self.nodes.set(0);
        self.stream_bytes.clear();
        self.stream_limits.clear();
        self.stream_fill.clear();
        for gauge in [&self.leading, &self.publish_waiting, &self.publish_outstanding, &self.outbox_lag] {
            gauge.set(0);
        }
        self.callbacks_pending.set(0);
        self.callbacks_failing.set(0);
        self.mailbox.set(0);
        self.catch_up.set(0.0);
    }
}

fn phase_name(phase: Option<Phase>) -> &'static str {
    phase.map_or("none", Phase::as_str)
}

/// A new metric of this name.
fn added<M: Metric + Clone + Default>(registry: &mut Registry, name: &str, help: &str) -> M {
    added_as(registry, name, help, M::default())
}

fn added_as<M: Metric + Clone>(registry: &mut Registry, name: &str, help: &str, metric: M) -> M {
    registry.register(name, help, metric.clone());
    metric
}
