//! Reconciles one Open vSwitch: plan, transact, wait until ovs-vswitchd has applied it, observe.

use std::sync::Arc;
use std::time::Duration;

use eno_ovsdb::{
    Changes, Client, Condition, Endpoint, Error, Mirror, MirrorState, Mutation, Operation, Options,
    Transaction,
};
use futures::Stream;
use tokio::sync::{Mutex, watch};

use super::daemon::{Daemon, DaemonError};
use super::observe::observe;
use super::plan::{Plan, plan};
use super::view::View;
use super::{Datapath, OvsApplied, OvsDesired};

const DATABASE: &str = "Open_vSwitch";

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
    /// The database is empty: Open vSwitch was never started on it.
    #[error("Open vSwitch at {endpoint} is not initialised (ovs-vsctl init)")]
    NotInitialised {
        /// The database's address, such as `unix:/run/openvswitch/db.sock`.
        endpoint: String,
    },
    /// ovs-vswitchd did not apply the database in time.
    #[error("Open vSwitch at {endpoint}: ovs-vswitchd did not take its configuration within {} s", limit.as_secs())]
    NotApplied {
        /// The database's address, such as `unix:/run/openvswitch/db.sock`.
        endpoint: String,
        /// The time limit.
        limit: Duration,
    },
    /// The database answers, but ovs-vswitchd does not run.
    #[error("Open vSwitch at {endpoint}: {error}")]
    Daemon {
        /// The database's address, such as `unix:/run/openvswitch/db.sock`.
        endpoint: String,
        /// The reason.
        error: DaemonError,
    },
    /// Other processes keep changing the same rows.
    #[error("Open vSwitch at {endpoint} is being changed by others: {reason}")]
    Contended {
        /// The database's address, such as `unix:/run/openvswitch/db.sock`.
        endpoint: String,
        /// The last failure.
        reason: String,
    },
}

impl OvsError {
    /// True when a retry may succeed.
    pub fn retryable(&self) -> bool {
        match self {
            Self::Database { error, .. } => error.retry_helps(),
            Self::NotInitialised { .. }
            | Self::NotApplied { .. }
            | Self::Daemon { .. }
            | Self::Contended { .. } => true,
        }
    }

    /// True when the database or ovs-vswitchd does not answer. Existing bridges may go on working then.
    pub fn unreachable(&self) -> bool {
        match self {
            Self::Database { error, .. } => {
                matches!(error, Error::NotSent { .. } | Error::Unknown { .. } | Error::TimedOut { .. })
            }
            Self::NotInitialised { .. } | Self::NotApplied { .. } | Self::Daemon { .. } => true,
            Self::Contended { .. } => false,
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
    /// The result of the last reconcile.
    last: watch::Sender<LastReconcile>,
}

/// The result of the last reconcile, with which [`Ovs::changed`] compares.
#[derive(Clone, Debug)]
enum LastReconcile {
    /// There was no reconcile yet, or one is in progress.
    Unknown,
    /// The reconcile failed: any change may be a reason to retry.
    Failed,
    /// The desired and the observed state of the reconcile.
    Done(Arc<(OvsDesired, OvsApplied)>),
}

impl Ovs {
    /// Starts to connect, in the current tokio runtime. `default`: the datapath of bridges that name none.
    pub fn new(endpoint: Endpoint, default: Datapath) -> Self {
        let options = Options {
            connection_wait: Duration::from_secs(2),
            max_backoff: Duration::from_millis(500),
            ..Options::default()
        };
        let daemon = Daemon::of(&endpoint);
        let client = Client::new(endpoint, options);
        let mirror = client.mirror(DATABASE, View::request());
        let last = watch::Sender::new(LastReconcile::Unknown);
        Self { client, mirror, default, daemon, reconcile_lock: Mutex::new(()), last }
    }

    /// Brings Open vSwitch to the desired state and returns the observed one. Writes nothing when nothing differs. The
    /// future may be dropped at any point.
    pub async fn reconcile(&self, desired: &OvsDesired) -> Result<OvsApplied, OvsError> {
        let _guard = self.reconcile_lock.lock().await;
        // This remains the result if the future is dropped.
        let mut guard = ResultGuard { last: &self.last, result: LastReconcile::Failed };
        self.last.send_replace(LastReconcile::Unknown);
        let applied = self.converge(desired).await?;
        guard.result = LastReconcile::Done(Arc::new((desired.clone(), applied.clone())));
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
                return Err(OvsError::NotInitialised { endpoint: self.endpoint() });
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
            match self.transact(&plan, root.uuid).await {
                Ok(Some(config)) => self.wait_applied(config).await?,
                Ok(None) => return Err(OvsError::NotInitialised { endpoint: self.endpoint() }),
                // The mirror has the concurrent change: the next plan starts from there.
                Err(Error::Failed { failed, .. }) => reason = failed.to_string(),
                Err(error) => return Err(self.failed(error)),
            }
        }
        Err(OvsError::Contended { endpoint: self.endpoint(), reason })
    }

    /// Executes the plan in one transaction, and returns its `next_cfg`.
    async fn transact(&self, plan: &Plan, root: eno_ovsdb::Uuid) -> Result<Option<i64>, Error> {
        let mut transaction: Transaction = plan.operations.iter().cloned().collect();
        let root = || [Condition::uuid(root)];
        transaction.push(Operation::mutate(DATABASE, root(), [Mutation::add("next_cfg", 1)]));
        let select = transaction.push(Operation::select(DATABASE, root(), ["next_cfg"]));
        transaction.push(Operation::Comment("eno".into()));
        let outcome = self.client.transact(DATABASE, &transaction).await?;
        Ok(outcome.rows(select).first().and_then(|row| row.get("next_cfg")?.as_integer()))
    }

    /// Waits until ovs-vswitchd has applied this configuration (`cur_cfg`).
    async fn wait_applied(&self, config: i64) -> Result<(), OvsError> {
        let done = self.mirror.wait_for(|replica| {
            let (_, row) = replica.table(DATABASE).next()?;
            (row.get("cur_cfg")?.as_integer()? >= config).then_some(())
        });
        match tokio::time::timeout(APPLY_TIMEOUT, done).await {
            Ok(done) => done.map_err(|error| self.failed(error)),
            Err(_) => match self.mirror.state() {
                MirrorState::Current => {
                    self.daemon.check().await.map_err(|error| self.daemon_error(error))?;
                    Err(OvsError::NotApplied { endpoint: self.endpoint(), limit: APPLY_TIMEOUT })
                }
                // The mirror has the error.
                _ => self.mirror.current().await.map_err(|error| self.failed(error)),
            },
        }
    }

    fn endpoint(&self) -> String {
        self.client.endpoint().to_string()
    }

    fn daemon_error(&self, error: DaemonError) -> OvsError {
        OvsError::Daemon { endpoint: self.endpoint(), error }
    }

    fn failed(&self, error: Error) -> OvsError {
        OvsError::Database { endpoint: self.endpoint(), error }
    }
}

/// Stores the result of a reconcile when that ends, also when its future is dropped.
struct ResultGuard<'a> {
    last: &'a watch::Sender<LastReconcile>,
    result: LastReconcile,
}

impl Drop for ResultGuard<'_> {
    fn drop(&mut self) {
        self.last.send_replace(self.result.clone());
    }
}

struct DriftWatch {
    changes: Changes,
    last: watch::Receiver<LastReconcile>,
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
                    if matches!(*self.last.borrow(), LastReconcile::Failed) && self.changes.state() == MirrorState::Current {
                        return Some(());
                    }
                }
                changed = self.last.changed() => changed.ok()?,
                changed = self.ended.changed() => changed.ok()?,
            }
            let last = self.last.borrow().clone();
            if let (LastReconcile::Done(result), MirrorState::Current) = (last, self.changes.state()) {
                if *self.ended.borrow() {
                    return Some(());
                }
                let (desired, applied) = &*result;
                let view = self.changes.read(View::read);
                let plan = plan(desired, self.default, &view);
                if !plan.operations.is_empty() || observe(desired, &view, &plan) != *applied {
                    return Some(());
                }
            }
        }
    }
}
