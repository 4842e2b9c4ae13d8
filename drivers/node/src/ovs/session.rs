//! The database of one Open vSwitch: plan, transact, wait until the switch has it, read back.

use std::sync::Arc;
use std::time::Duration;

use eno_ovsdb::{
    Changes, Client, Condition, Endpoint, Error, Mirror, MirrorState, Mutation, Operation, Options,
    Transaction,
};
use futures::Stream;
use tokio::sync::{Mutex, watch};

use super::daemon::{Daemon, Silence};
use super::observe::observe;
use super::plan::{Plan, plan};
use super::view::View;
use super::{Datapath, OvsApplied, OvsDesired};

const DATABASE: &str = "Open_vSwitch";

/// How long ovs-vswitchd may take to do what the database says.
const APPLY: Duration = Duration::from_secs(10);

/// How often the plan may change under our hands, by others or by what the switch says to it.
const ROUNDS: usize = 8;

/// Why the state of Open vSwitch is not known to be the wanted one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OvsError {
    /// The database can't be reached, or refuses.
    #[error("Open vSwitch at {endpoint}: {error}")]
    Database {
        /// As in `unix:/run/openvswitch/db.sock`.
        endpoint: String,
        /// What happened.
        error: Error,
    },
    /// The database is new: Open vSwitch has not been started on it.
    #[error("Open vSwitch at {endpoint} is not initialised (ovs-vsctl init)")]
    NotInitialised {
        /// As in `unix:/run/openvswitch/db.sock`.
        endpoint: String,
    },
    /// It is in the database and not in the switch.
    #[error("Open vSwitch at {endpoint}: ovs-vswitchd did not take its configuration within {} s", limit.as_secs())]
    NotApplied {
        /// As in `unix:/run/openvswitch/db.sock`.
        endpoint: String,
        /// How long it was waited for.
        limit: Duration,
    },
    /// The database is there, and what it says is not done.
    #[error("Open vSwitch at {endpoint}: {silence}")]
    Silent {
        /// As in `unix:/run/openvswitch/db.sock`.
        endpoint: String,
        /// How it was noticed.
        silence: Silence,
    },
    /// Others change the same all the time.
    #[error("Open vSwitch at {endpoint} is being changed by others: {reason}")]
    Contended {
        /// As in `unix:/run/openvswitch/db.sock`.
        endpoint: String,
        /// How it was noticed.
        reason: String,
    },
}

impl OvsError {
    /// May it pass by itself?
    pub fn retryable(&self) -> bool {
        match self {
            Self::Database { error, .. } => error.retry_helps(),
            Self::NotInitialised { .. }
            | Self::NotApplied { .. }
            | Self::Silent { .. }
            | Self::Contended { .. } => true,
        }
    }

    /// True when database or switch don't answer, so that what is there may work as it did.
    pub fn unreachable(&self) -> bool {
        match self {
            Self::Database { error, .. } => {
                matches!(error, Error::NotSent { .. } | Error::Unknown { .. } | Error::TimedOut { .. })
            }
            Self::NotInitialised { .. } | Self::NotApplied { .. } | Self::Silent { .. } => true,
            Self::Contended { .. } => false,
        }
    }
}

/// One Open vSwitch. Its database is watched for as long as this lives.
pub struct Ovs {
    client: Client,
    mirror: Mirror,
    default: Datapath,
    daemon: Daemon,
    /// One reconcile at a time.
    turn: Mutex<()>,
    known: watch::Sender<Known>,
}

/// What [`Ovs::changed`] compares with.
#[derive(Clone, Debug)]
enum Known {
    /// Nothing was asked for yet, or a reconcile is under way.
    Nothing,
    /// A reconcile failed: any change may be what it waits for.
    Failed,
    /// A reconcile found this.
    Done(Arc<(OvsDesired, OvsApplied)>),
}

impl Ovs {
    /// Starts to connect, within the present tokio runtime. `default` is for bridges that don't say.
    pub fn new(endpoint: Endpoint, default: Datapath) -> Self {
        let options = Options {
            connection_wait: Duration::from_secs(2),
            max_backoff: Duration::from_millis(500),
            ..Options::default()
        };
        let daemon = Daemon::of(&endpoint);
        let client = Client::new(endpoint, options);
        let mirror = client.mirror(DATABASE, View::request());
        let known = watch::Sender::new(Known::Nothing);
        Self { client, mirror, default, daemon, turn: Mutex::new(()), known }
    }

    /// Brings Open vSwitch to the desired state and tells what is there then. Nothing is written when nothing
    /// differs. It may be dropped and repeated at any point.
    pub async fn reconcile(&self, desired: &OvsDesired) -> Result<OvsApplied, OvsError> {
        let _turn = self.turn.lock().await;
        // Unless it gets to its end.
        let mut outcome = Outcome { known: &self.known, found: Known::Failed };
        self.known.send_replace(Known::Nothing);
        let applied = self.bring(desired).await?;
        outcome.found = Known::Done(Arc::new((desired.clone(), applied.clone())));
        Ok(applied)
    }

    /// Tells when what [`reconcile`](Self::reconcile) found last is not so any more, by another hand or since an
    /// interface came or went, or ovs-vswitchd ended; and after one that failed, when anything changed.
    pub fn changed(&self) -> impl Stream<Item = ()> + Send + 'static + use<> {
        let watch = Watch {
            changes: self.mirror.changes(),
            known: self.known.subscribe(),
            ended: self.daemon.ended(),
            default: self.default,
        };
        futures::stream::unfold(watch, |mut watch| async move {
            watch.deviation().await?;
            Some(((), watch))
        })
    }

    async fn bring(&self, desired: &OvsDesired) -> Result<OvsApplied, OvsError> {
        // Everything that the database had to tell before its answer is in the mirror then.
        self.client.echo().await.map_err(|error| self.failed(error))?;
        let mut reason = "the plan never came to an end".to_owned();
        for _ in 0..ROUNDS {
            self.mirror.current().await.map_err(|error| self.failed(error))?;
            let view = self.mirror.read(View::read);
            let Some(root) = &view.root else {
                return Err(OvsError::NotInitialised { endpoint: self.endpoint() });
            };
            let plan = plan(desired, self.default, &view);
            if plan.operations.is_empty() {
                if root.cur_cfg < root.next_cfg {
                    self.applied(root.next_cfg).await?;
                    continue;
                }
                if desired.bridges.is_empty() && desired.ports.is_empty() {
                    self.daemon.ignore();
                } else {
                    self.daemon.answers().await.map_err(|silence| self.silent(silence))?;
                }
                return Ok(observe(desired, &view, &plan));
            }
            match self.transact(&plan, root.uuid).await {
                Ok(Some(config)) => self.applied(config).await?,
                Ok(None) => return Err(OvsError::NotInitialised { endpoint: self.endpoint() }),
                // The mirror shows what came between: the next plan starts from there.
                Err(Error::Failed { failed, .. }) => reason = failed.to_string(),
                Err(error) => return Err(self.failed(error)),
            }
        }
        Err(OvsError::Contended { endpoint: self.endpoint(), reason })
    }

    /// Does the plan in one transaction and gives its `next_cfg`.
    async fn transact(&self, plan: &Plan, root: eno_ovsdb::Uuid) -> Result<Option<i64>, Error> {
        let mut transaction: Transaction = plan.operations.iter().cloned().collect();
        let root = || [Condition::uuid(root)];
        transaction.push(Operation::mutate(DATABASE, root(), [Mutation::add("next_cfg", 1)]));
        let select = transaction.push(Operation::select(DATABASE, root(), ["next_cfg"]));
        transaction.push(Operation::Comment("eno".into()));
        let outcome = self.client.transact(DATABASE, &transaction).await?;
        Ok(outcome.rows(select).first().and_then(|row| row.get("next_cfg")?.as_integer()))
    }

    /// Waits until ovs-vswitchd has done this configuration.
    async fn applied(&self, config: i64) -> Result<(), OvsError> {
        let done = self.mirror.wait_for(|replica| {
            let (_, row) = replica.table(DATABASE).next()?;
            (row.get("cur_cfg")?.as_integer()? >= config).then_some(())
        });
        match tokio::time::timeout(APPLY, done).await {
            Ok(done) => done.map_err(|error| self.failed(error)),
            Err(_) => match self.mirror.state() {
                MirrorState::Current => {
                    self.daemon.answers().await.map_err(|silence| self.silent(silence))?;
                    Err(OvsError::NotApplied { endpoint: self.endpoint(), limit: APPLY })
                }
                // It says why.
                _ => self.mirror.current().await.map_err(|error| self.failed(error)),
            },
        }
    }

    fn endpoint(&self) -> String {
        self.client.endpoint().to_string()
    }

    fn silent(&self, silence: Silence) -> OvsError {
        OvsError::Silent { endpoint: self.endpoint(), silence }
    }

    fn failed(&self, error: Error) -> OvsError {
        OvsError::Database { endpoint: self.endpoint(), error }
    }
}

/// Sets what is known when a reconcile ends, also by being dropped.
struct Outcome<'a> {
    known: &'a watch::Sender<Known>,
    found: Known,
}

impl Drop for Outcome<'_> {
    fn drop(&mut self) {
        self.known.send_replace(self.found.clone());
    }
}

struct Watch {
    changes: Changes,
    known: watch::Receiver<Known>,
    ended: watch::Receiver<bool>,
    default: Datapath,
}

impl Watch {
    /// Waits for a change after which something is not as it was found. Ends with its [`Ovs`].
    async fn deviation(&mut self) -> Option<()> {
        loop {
            tokio::select! {
                changed = self.changes.next() => {
                    changed?;
                    if matches!(*self.known.borrow(), Known::Failed) && self.changes.state() == MirrorState::Current {
                        return Some(());
                    }
                }
                changed = self.known.changed() => changed.ok()?,
                changed = self.ended.changed() => changed.ok()?,
            }
            let known = self.known.borrow().clone();
            if let (Known::Done(found), MirrorState::Current) = (known, self.changes.state()) {
                if *self.ended.borrow() {
                    return Some(());
                }
                let (desired, applied) = &*found;
                let view = self.changes.read(View::read);
                let plan = plan(desired, self.default, &view);
                if !plan.operations.is_empty() || observe(desired, &view, &plan) != *applied {
                    return Some(());
                }
            }
        }
    }
}
