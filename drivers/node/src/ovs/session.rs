//! Reconciles one Open vSwitch: plan, transact, wait until ovs-vswitchd has applied it, observe.

use std::sync::Arc;
use std::time::Duration;

use eno_ovsdb::open_vswitch::{self, ConfigError, DATABASE};
use eno_ovsdb::{Changes, Client, Endpoint, Error, Mirror, MirrorState, Options};
use eno_sbi::{Baseline, BaselineGuard};
use futures::Stream;
use tokio::sync::{Mutex, watch};

use super::daemon::{Daemon, DaemonError};
use super::observe::observe;
use super::plan::plan;
use super::view::View;
use super::{Datapath, OvsApplied, OvsDesired};

/// Maximum time for ovs-vswitchd to apply the database.
const APPLY_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum plans per reconcile. A plan may be outdated by others, or by what ovs-vswitchd writes to the database.
const MAX_PLANS: usize = 8;

/// Why a reconcile of Open vSwitch failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OvsError {
    /// The database can't be reached, or refuses.
    #[error("Open vSwitch at {endpoint}: {error}")]
    Database {
        /// The database's address, such as `unix:/run/openvswitch/db.sock`.
        endpoint: String,
        /// The error.
        error: Error,
    },
    /// The database answers, but ovs-vswitchd does not run.
    #[error("Open vSwitch at {endpoint}: {error}")]
    Daemon {
        /// The database's address, such as `unix:/run/openvswitch/db.sock`.
        endpoint: String,
        /// The reason.
        error: DaemonError,
    },
    /// The database answers, but the configuration is not applied.
    #[error(transparent)]
    Config(#[from] ConfigError),
}

impl OvsError {
    /// True when a retry may succeed.
    pub fn retryable(&self) -> bool {
        match self {
            Self::Database { error, .. } => error.retry_helps(),
            Self::Daemon { .. } | Self::Config(_) => true,
        }
    }

    /// True when the database or ovs-vswitchd does not answer. Existing bridges may go on working then.
    pub fn unreachable(&self) -> bool {
        match self {
            Self::Database { error, .. } => error.unreachable(),
            Self::Daemon { .. } => true,
            Self::Config(error) => error.unreachable(),
        }
    }
}

/// One Open vSwitch. Its database is mirrored for as long as this exists.
pub struct Ovs {
    /// The connection to the database.
    client: Client,
    /// The replicated tables.
    mirror: Mirror,
    /// The datapath of bridges that name none.
    default: Datapath,
    /// Liveness of ovs-vswitchd.
    daemon: Daemon,
    /// Held during a reconcile.
    reconcile_lock: Mutex<()>,
    /// The desired and the observed state of the last reconcile, with which [`Ovs::changed`] compares.
    last: watch::Sender<Baseline<(OvsDesired, OvsApplied)>>,
}

impl Ovs {
    /// Starts to connect, in the current tokio runtime. `default`: the datapath of bridges that name none.
    pub fn new(endpoint: Endpoint, default: Datapath) -> Self {
        let options = Options {
            connection_wait: Duration::from_secs(2),
            max_backoff: Duration::from_millis(500),
            // The agent's container has less memory than that of the driver of whole switches.
            max_message: 8 << 20,
            max_parsed: 40 << 20,
            max_replica: 24 << 20,
            ..Options::default()
        };
        let daemon = Daemon::of(&endpoint);
        let client = Client::new(endpoint, options);
        let mirror = client.mirror(DATABASE, View::request());
        let last = watch::Sender::new(Baseline::Unset);
        Self { client, mirror, default, daemon, reconcile_lock: Mutex::new(()), last }
    }

    /// Brings Open vSwitch to the desired state and returns the observed one. Writes nothing when nothing differs. The
    /// future may be dropped at any point.
    pub async fn reconcile(&self, desired: &OvsDesired) -> Result<OvsApplied, OvsError> {
        let _lock = self.reconcile_lock.lock().await;
        let mut guard = BaselineGuard::start(&self.last);
        let applied = self.converge(desired).await?;
        guard.next = Baseline::Observed(Arc::new((desired.clone(), applied.clone())));
        Ok(applied)
    }

    /// Yields when the observed state differs from the last [`reconcile`](Self::reconcile): by drift, by interfaces
    /// that come or go, or by the end of ovs-vswitchd. After a failed reconcile, any change yields.
    pub fn changed(&self) -> impl Stream<Item = ()> + Send + 'static + use<> {
        let watch = DriftWatch {
            changes: self.mirror.changes(),
            last: self.last.subscribe(),
            ended: self.daemon.ended(),
            default: self.default,
        };
        futures::stream::unfold(watch, |mut watch| async move {
            watch.drift().await?;
            Some(((), watch))
        })
    }

    async fn converge(&self, desired: &OvsDesired) -> Result<OvsApplied, OvsError> {
        // After the echo, the mirror has all updates that the database sent before.
        self.client.echo().await.map_err(|error| self.failed(error))?;
        let mut reason = "the plan never came to an end".to_owned();
        for _ in 0..MAX_PLANS {
            self.mirror.current().await.map_err(|error| self.failed(error))?;
            let view = self.mirror.read(View::read);
            let Some(root) = &view.root else {
                return Err(self.not_initialised());
            };
            let plan = plan(desired, self.default, &view);
            if plan.operations.is_empty() {
                if root.cur_cfg < root.next_cfg {
                    self.wait_applied(root.next_cfg).await?;
                    continue;
                }
                if desired.bridges.is_empty() && desired.ports.is_empty() {
                    self.daemon.stop_watching();
                } else {
                    self.daemon.check().await.map_err(|error| self.daemon_error(error))?;
                }
                return Ok(observe(desired, &view, &plan));
            }
            let changes = plan.operations.iter().cloned();
            match open_vswitch::change(&self.client, root.uuid, changes, "eno".to_owned()).await {
                Ok(Some(config)) => self.wait_applied(config).await?,
                Ok(None) => return Err(self.not_initialised()),
                // The mirror has the concurrent change: the next plan starts from there.
                Err(Error::Failed { failed, .. }) => reason = failed.to_string(),
                Err(error) => return Err(self.failed(error)),
            }
        }
        Err(ConfigError::Contended { endpoint: self.endpoint(), reason }.into())
    }

    /// Waits until ovs-vswitchd has applied this configuration (`cur_cfg`).
    async fn wait_applied(&self, config: i64) -> Result<(), OvsError> {
        let applied = open_vswitch::wait_applied(&self.mirror, config, APPLY_TIMEOUT).await;
        if applied.map_err(|error| self.failed(error))? {
            return Ok(());
        }
        self.daemon.check().await.map_err(|error| self.daemon_error(error))?;
        Err(ConfigError::NotApplied { endpoint: self.endpoint(), limit: APPLY_TIMEOUT }.into())
    }

    fn endpoint(&self) -> String {
        self.client.endpoint().to_string()
    }

    fn not_initialised(&self) -> OvsError {
        ConfigError::NotInitialised { endpoint: self.endpoint() }.into()
    }

    fn daemon_error(&self, error: DaemonError) -> OvsError {
        OvsError::Daemon { endpoint: self.endpoint(), error }
    }

    fn failed(&self, error: Error) -> OvsError {
        OvsError::Database { endpoint: self.endpoint(), error }
    }
}

struct DriftWatch {
    changes: Changes,
    last: watch::Receiver<Baseline<(OvsDesired, OvsApplied)>>,
    ended: watch::Receiver<bool>,
    default: Datapath,
}

impl DriftWatch {
    /// Waits until the observed state differs from the last reconcile. `None`: the [`Ovs`] was dropped.
    async fn drift(&mut self) -> Option<()> {
        loop {
            tokio::select! {
                changed = self.changes.next() => {
                    changed?;
                    if matches!(*self.last.borrow(), Baseline::Failed) && self.changes.state() == MirrorState::Current {
                        return Some(());
                    }
                }
                changed = self.last.changed() => changed.ok()?,
                changed = self.ended.changed() => changed.ok()?,
            }
            if self.differs() {
                return Some(());
            }
        }
    }

    /// True when the observed state differs from the last reconcile.
    fn differs(&self) -> bool {
        let last = self.last.borrow();
        let (Baseline::Observed(last), MirrorState::Current) = (&*last, self.changes.state()) else {
            return false;
        };
        if *self.ended.borrow() {
            return true;
        }
        let (desired, applied) = &**last;
        let view = self.changes.read(View::read);
        let plan = plan(desired, self.default, &view);
        !plan.operations.is_empty() || observe(desired, &view, &plan) != *applied
    }
}
