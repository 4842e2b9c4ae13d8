//! Reconciles one device: plan, transact, wait for ovs-vswitchd, read back, and watch for drift.

use std::sync::Arc;
use std::time::Duration;

use eno_fabric_driver::{Converged, Convergence};
use eno_ovsdb::open_vswitch::{self, ConfigError, DATABASE, Root};
use eno_ovsdb::{Changes, Client, Endpoint, Error, Mirror, MirrorState, Options, Uuid};
use eno_sbi::{Baseline, BaselineGuard};
use eno_schemas::{Applied, DeviceInfo, Drift, FabricDesired, Failure, Rejection, Rollback, Text};
use futures::Stream;
use tokio::sync::watch;

use crate::observe::observe;
use crate::plan::{Plan, SkippedPorts, drift, plan};
use crate::render::operations;
use crate::view::View;

/// Maximum plans of one reconcile. Other clients or refusals of the switch may invalidate a plan.
const MAX_PLANS: usize = 8;

/// Time limits of a device.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Until an unresponsive device counts as unreachable.
    pub connect: Duration,
    /// For the reply to a request.
    pub request: Duration,
    /// For ovs-vswitchd to apply the database's configuration.
    pub apply: Duration,
    /// Silence after which the device is probed (`echo`). After twice this the connection is closed.
    pub keep_alive: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(5),
            request: Duration::from_secs(10),
            apply: Duration::from_secs(10),
            keep_alive: Duration::from_secs(5),
        }
    }
}

/// Why the device is not known to be in the desired state.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeviceError {
    /// The database is unreachable or refuses a request.
    #[error("Open vSwitch: {0}")]
    Database(#[from] Error),
    /// The database answers, but the configuration is not applied.
    #[error(transparent)]
    Config(#[from] ConfigError),
}

impl DeviceError {
    /// True when the device did not answer, so that nothing is known to be wrong.
    pub fn unreachable(&self) -> bool {
        match self {
            Self::Database(error) => error.unreachable(),
            Self::Config(error) => error.unreachable(),
        }
    }

    /// The failure for a report.
    pub fn failure(&self) -> Failure {
        let retryable = match self {
            Self::Database(error) => error.retry_helps(),
            Self::Config(_) => true,
        };
        Failure { reason: self.to_string().into(), retryable, unreachable: self.unreachable() }
    }
}

/// An Open vSwitch. Its database is monitored for the lifetime of this value, across reconnects.
pub struct Device {
    client: Client,
    mirror: Mirror,
    limits: Limits,
    baseline: watch::Sender<Baseline<ObservedState>>,
}

/// The state that [`Device::changed`] compares with.
#[derive(Debug)]
struct ObservedState {
    desired: FabricDesired,
    skipped: SkippedPorts,
    plan: Plan,
    applied: Applied,
    port_errors: Vec<Rejection>,
}

impl Device {
    /// Starts connecting, within the current tokio runtime.
    pub fn new(endpoint: Endpoint, limits: Limits) -> Self {
        let options = Options {
            connection_wait: limits.connect,
            connect_timeout: limits.connect,
            request_timeout: limits.request,
            probe_interval: limits.keep_alive,
            // At least one connection attempt fits into each request's time limit.
            max_backoff: limits.connect / 4,
            ..Options::default()
        };
        let client = Client::new(endpoint, options);
        let mirror = client.mirror(DATABASE, View::request());
        Self { client, mirror, limits, baseline: watch::Sender::new(Baseline::Unset) }
    }

    /// Reconciles the device and reads back its state. It writes nothing when nothing differs, or once
    /// `is_current` returns false. `None`: a newer command came before any change. The future may be dropped and
    /// repeated at any point.
    pub async fn reconcile(
        &self,
        desired: &FabricDesired,
        convergence: Convergence,
        is_current: impl Fn() -> bool,
    ) -> Result<Option<Converged>, DeviceError> {
        let mut guard = BaselineGuard::start(&self.baseline);
        let (converged, observed) = self.converge(desired, convergence, is_current).await?.unzip();
        guard.next = observed.map_or(Baseline::Unset, |observed| Baseline::Observed(Arc::new(observed)));
        Ok(converged)
    }

    /// Data about the device, as far as it was ever reached.
    pub fn info(&self) -> DeviceInfo {
        let root = self.mirror.read(Root::read);
        let model = root.map(|root| match root.version {
            Some(version) => format!("Open vSwitch {version}"),
            None => "Open vSwitch".to_owned(),
        });
        DeviceInfo {
            model: model.map(Text::from),
            rollback: Some(Rollback::None),
            change_notifications: Some(true),
            ..DeviceInfo::default()
        }
    }

    /// Notifies that the device deviates from the last reconcile's observation, or lost its connection; after
    /// a failed reconcile, that a retry may succeed. Notifies once per reconcile.
    pub fn changed(&self) -> impl Stream<Item = ()> + Send + 'static + use<> {
        let watch = ChangeWatch {
            changes: self.mirror.changes(),
            baseline: self.baseline.subscribe(),
            notified: false,
        };
        futures::stream::unfold(watch, |mut watch| async move {
            watch.next_deviation().await?;
            Some(((), watch))
        })
    }

    async fn converge(
        &self,
        desired: &FabricDesired,
        mut convergence: Convergence,
        is_current: impl Fn() -> bool,
    ) -> Result<Option<(Converged, ObservedState)>, DeviceError> {
        // After the echo's reply, the mirror has all earlier updates of the database.
        self.client.echo().await?;
        let mut skipped = SkippedPorts::new();
        let mut reason = "the plan never came to an end".to_owned();
        for _ in 0..MAX_PLANS {
            self.mirror.current().await?;
            let view = self.mirror.read(View::read);
            let Some(root) = view.root.clone() else { return Err(self.not_initialised()) };
            let plan = plan(&view, desired, &skipped);
            convergence.first_plan(|was_verified| drift(&plan, &view, was_verified));
            if plan.changes.is_empty() || convergence.leaves_drift() {
                if root.cur_cfg < root.next_cfg {
                    self.wait_until_applied(root.next_cfg).await?;
                    continue;
                }
                let drift_stays = !plan.changes.is_empty()
                    || (desired.device.drift == Drift::Report && !plan.lost.is_empty());
                let (applied, port_errors) = observe(&view, desired, &plan);
                let rejected = plan.rejected.iter().chain(&port_errors).cloned().collect();
                let more = |more| format!("{more} more ports were changed by another hand");
                let notes = plan.notes.iter().cloned();
                let converged = convergence.end(applied.clone(), rejected, notes, drift_stays, more);
                let desired = desired.clone();
                return Ok(Some((converged, ObservedState { desired, skipped, plan, applied, port_errors })));
            }
            if !is_current() && !convergence.has_changed() {
                return Ok(None);
            }
            let operations = operations(&plan, &view, desired);
            let changes = operations.iter().map(|(_, operation)| operation.clone());
            let comment = format!("eno: cluster {}", desired.cluster);
            match open_vswitch::change(&self.client, root.uuid, changes, comment).await {
                Ok(Some(config)) => {
                    let (added, removed) = count_vlan_changes(&plan, &view);
                    convergence.count(added, removed);
                    self.wait_until_applied(config).await?;
                }
                Ok(None) => return Err(self.not_initialised()),
                // The mirror shows the conflicting change, which the next plan starts from.
                Err(Error::Failed { failed, .. }) if failed.retry_helps() => reason = failed.to_string(),
                Err(Error::Failed { operation, failed }) => {
                    let row = failed.index.and_then(|index| operations.get(index)?.0);
                    match row.and_then(|row| view.ports.get(&row)) {
                        Some(port) => drop(skipped.insert(port.name.clone(), failed.to_string())),
                        None => return Err(Error::Failed { operation, failed }.into()),
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
        Err(ConfigError::Contended { endpoint: self.endpoint(), reason }.into())
    }

    /// Waits until ovs-vswitchd has applied this configuration.
    async fn wait_until_applied(&self, config: i64) -> Result<(), DeviceError> {
        let limit = self.limits.apply;
        if open_vswitch::wait_applied(&self.mirror, config, limit).await? {
            return Ok(());
        }
        Err(ConfigError::NotApplied { endpoint: self.endpoint(), limit }.into())
    }

    fn endpoint(&self) -> String {
        self.client.endpoint().to_string()
    }

    fn not_initialised(&self) -> DeviceError {
        ConfigError::NotInitialised { endpoint: self.endpoint() }.into()
    }
}

/// Number of VLANs on ports that a plan adds and removes.
fn count_vlan_changes(plan: &Plan, view: &View) -> (usize, usize) {
    let each = |(uuid, change): (&Uuid, &crate::plan::PortChange)| {
        let (added, removed) = change.difference(view.ports.get(uuid)?);
        Some((added.len(), removed.len()))
    };
    plan.changes.iter().filter_map(each).fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1))
}

struct ChangeWatch {
    changes: Changes,
    baseline: watch::Receiver<Baseline<ObservedState>>,
    /// The deviation from the baseline was notified.
    notified: bool,
}

impl ChangeWatch {
    /// Waits for a change that deviates from the baseline. Ends with its [`Device`].
    async fn next_deviation(&mut self) -> Option<()> {
        loop {
            let device_changed = tokio::select! {
                changed = self.changes.next() => {
                    changed?;
                    true
                }
                changed = self.baseline.changed() => {
                    changed.ok()?;
                    self.notified = false;
                    false
                }
            };
            if !self.notified && self.deviates(device_changed) {
                self.notified = true;
                return Some(());
            }
        }
    }

    fn deviates(&self, device_changed: bool) -> bool {
        let state = self.changes.state();
        match (&*self.baseline.borrow(), &state) {
            (Baseline::Unset, _) => false,
            (Baseline::Failed, state) => device_changed && *state == MirrorState::Current,
            (Baseline::Observed(found), MirrorState::Current) => {
                let view = self.changes.read(View::read);
                let plan = plan(&view, &found.desired, &found.skipped);
                let (applied, port_errors) = observe(&view, &found.desired, &plan);
                plan != found.plan || applied != found.applied || port_errors != found.port_errors
            }
            (Baseline::Observed(_), _) => true,
        }
    }
}
