//! One device: plan, transact, wait until the switch has it, read back, and watch.

use std::sync::Arc;
use std::time::{Duration, Instant};

use eno_ovsdb::{
    Changes, Client, Condition, Endpoint, Error, Mirror, MirrorState, Mutation, Operation, Options,
    Transaction, Uuid,
};
use eno_schemas::{
    Applied, ChangeReport, DeviceInfo, Drift, FabricDesired, Failure, Note, Rejection, Rollback,
};
use futures::Stream;
use tokio::sync::watch;

use crate::observe::observe;
use crate::plan::{LeftOut, Plan, drift, plan};
use crate::render::{Operations, operations};
use crate::view::{DATABASE, Root, View};

/// How often the plan may change under our hands, by others or by what the switch says to it.
const ROUNDS: usize = 8;

/// Of how many ports a report tells the drift.
const MOST_NOTES: usize = 32;

/// How long things may take.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Until a device that does not answer counts as unreachable.
    pub connect: Duration,
    /// For the reply to a request.
    pub request: Duration,
    /// For ovs-vswitchd to do what the database says.
    pub apply: Duration,
    /// After which silence a device is asked for a sign of life (`echo`); after twice this it is given up.
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

/// Why the state of a device is not known to be the wanted one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeviceError {
    /// The database can't be reached, or refuses.
    #[error("Open vSwitch: {0}")]
    Database(#[from] Error),
    /// The database is new: Open vSwitch has not been started on it.
    #[error("Open vSwitch at {endpoint} is not initialised (ovs-vsctl init)")]
    NotInitialised {
        /// As in `tcp:192.0.2.1:6640`.
        endpoint: String,
    },
    /// It is in the database and not in the switch.
    #[error("Open vSwitch at {endpoint}: ovs-vswitchd did not take its configuration within {} s", limit.as_secs())]
    NotApplied {
        /// As in `tcp:192.0.2.1:6640`.
        endpoint: String,
        /// How long it was waited for.
        limit: Duration,
    },
    /// Others change the same all the time.
    #[error("Open vSwitch at {endpoint} is being changed by others: {reason}")]
    Contended {
        /// As in `tcp:192.0.2.1:6640`.
        endpoint: String,
        /// How it was noticed.
        reason: String,
    },
}

impl DeviceError {
    /// It did not answer; it is not known to be wrong.
    pub fn unreachable(&self) -> bool {
        match self {
            Self::Database(error) => {
                matches!(error, Error::NotSent { .. } | Error::Unknown { .. } | Error::TimedOut { .. })
            }
            Self::NotInitialised { .. } | Self::NotApplied { .. } => true,
            Self::Contended { .. } => false,
        }
    }

    /// As a report has it.
    pub fn failure(&self) -> Failure {
        let retryable = match self {
            Self::Database(error) => error.retry_helps(),
            Self::NotInitialised { .. } | Self::NotApplied { .. } | Self::Contended { .. } => true,
        };
        Failure { reason: self.to_string(), retryable, unreachable: self.unreachable() }
    }
}

/// How [`Device::reconcile`] ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Ended {
    /// A newer command came before anything was changed.
    Superseded,
    /// All is there that can be.
    Done(Box<Done>),
}

/// What was done and is there.
#[derive(Clone, Debug, PartialEq)]
pub struct Done {
    /// What is there, as read back.
    pub applied: Applied,
    /// What could not be done.
    pub rejected: Vec<Rejection>,
    /// What the admin should know.
    pub notes: Vec<Note>,
    /// Something is not as wanted and was left so, as the FabricDevice says.
    pub drift_stays: bool,
    /// What was changed.
    pub change: Option<ChangeReport>,
}

/// An Open vSwitch. Its database is watched for as long as this lives, over reconnections.
pub struct Device {
    client: Client,
    mirror: Mirror,
    limits: Limits,
    known: watch::Sender<Known>,
}

/// What [`Device::changed`] compares with.
#[derive(Clone, Debug)]
enum Known {
    /// Nothing was asked for yet, or a reconcile is under way.
    Nothing,
    /// A reconcile failed: any change may be what it waits for.
    Failed,
    /// A reconcile found this.
    Found(Arc<Found>),
}

#[derive(Debug)]
struct Found {
    desired: FabricDesired,
    left_out: LeftOut,
    plan: Plan,
    applied: Applied,
    faults: Vec<Rejection>,
}

impl Device {
    /// Starts to connect, within the present tokio runtime.
    pub fn new(endpoint: Endpoint, limits: Limits) -> Self {
        let options = Options {
            patience: limits.connect,
            connect_timeout: limits.connect,
            request_timeout: limits.request,
            probe_interval: limits.keep_alive,
            // There is a try within each request's patience.
            max_backoff: limits.connect / 4,
            ..Options::default()
        };
        let client = Client::new(endpoint, options);
        let mirror = client.mirror(DATABASE, View::request());
        Self { client, mirror, limits, known: watch::Sender::new(Known::Nothing) }
    }

    /// Brings the device to the desired state and tells what is there then. Nothing is written when nothing differs,
    /// or once `is_current` is false. `was_verified`: all of it was there before, so that a difference is drift. It may
    /// be dropped and repeated at any point.
    pub async fn reconcile(
        &self,
        desired: &FabricDesired,
        was_verified: bool,
        is_current: impl Fn() -> bool,
    ) -> Result<Ended, DeviceError> {
        // Unless it gets to its end.
        let mut outcome = Outcome { known: &self.known, known_then: Known::Failed };
        self.known.send_replace(Known::Nothing);
        let ended = self.bring(desired, was_verified, is_current).await?;
        Ok(match ended {
            None => {
                outcome.known_then = Known::Nothing;
                Ended::Superseded
            }
            Some((done, found)) => {
                outcome.known_then = Known::Found(Arc::new(found));
                Ended::Done(Box::new(done))
            }
        })
    }

    /// What the device says of itself, as far as it was ever reached.
    pub fn info(&self) -> DeviceInfo {
        let root = self.mirror.read(View::root);
        let model = root.map(|root| match root.version {
            Some(version) => format!("Open vSwitch {version}"),
            None => "Open vSwitch".to_owned(),
        });
        DeviceInfo {
            model,
            rollback: Some(Rollback::None),
            change_notifications: Some(true),
            ..DeviceInfo::default()
        }
    }

    /// Tells when what [`reconcile`](Self::reconcile) found last is not so any more, once until the next one: by another
    /// hand, or since the connection was lost; and after one that failed, when it may succeed.
    pub fn changed(&self) -> impl Stream<Item = ()> + Send + 'static + use<> {
        let watch = Watch { changes: self.mirror.changes(), known: self.known.subscribe(), told: false };
        futures::stream::unfold(watch, |mut watch| async move {
            watch.deviation().await?;
            Some(((), watch))
        })
    }

    async fn bring(
        &self,
        desired: &FabricDesired,
        was_verified: bool,
        is_current: impl Fn() -> bool,
    ) -> Result<Option<(Done, Found)>, DeviceError> {
        let started = Instant::now();
        // Everything that the database had to tell before its answer is in the mirror then.
        self.client.echo().await?;
        let mut left_out = LeftOut::new();
        let mut drifted: Option<Vec<Note>> = None;
        let mut counts: Option<(usize, usize)> = None;
        let mut reason = "the plan never came to an end".to_owned();
        for _ in 0..ROUNDS {
            self.mirror.current().await?;
            let view = self.mirror.read(View::read);
            let Some(root) = view.root.clone() else { return Err(self.not_initialised()) };
            let plan = plan(&view, desired, &left_out);
            let notes = drifted.get_or_insert_with(|| drift(&plan, &view, was_verified));
            let stays = was_verified && desired.device.drift == Drift::Report && counts.is_none();
            if plan.changes.is_empty() || stays {
                if root.cur_cfg < root.next_cfg {
                    self.applied(root.next_cfg).await?;
                    continue;
                }
                let drift_stays = !plan.changes.is_empty()
                    || (desired.device.drift == Drift::Report && !plan.lost.is_empty());
                let (applied, faults) = observe(&view, desired, &plan);
                let done = Done {
                    applied: applied.clone(),
                    rejected: plan.rejected.iter().chain(&faults).cloned().collect(),
                    notes: plan.notes.iter().cloned().chain(bounded(notes)).collect(),
                    drift_stays,
                    change: counts.map(|counts| change_report(started, counts)),
                };
                let desired = desired.clone();
                return Ok(Some((done, Found { desired, left_out, plan, applied, faults })));
            }
            if !is_current() && counts.is_none() {
                return Ok(None);
            }
            let operations = operations(&plan, &view, desired);
            match self.transact(&operations, &root, &desired.cluster).await {
                Ok(Some(config)) => {
                    let (added, removed) = size(&plan, &view);
                    let (before_added, before_removed) = counts.unwrap_or_default();
                    counts = Some((before_added + added, before_removed + removed));
                    self.applied(config).await?;
                }
                Ok(None) => return Err(self.not_initialised()),
                // The mirror shows what came between: the next plan starts from there.
                Err(Error::Failed { failed, .. }) if failed.retry_helps() => reason = failed.to_string(),
                Err(Error::Failed { operation, failed }) => {
                    let row = failed.index.and_then(|index| operations.get(index)?.0);
                    match row.and_then(|row| view.ports.get(&row)) {
                        Some(port) => drop(left_out.insert(port.name.clone(), failed.to_string())),
                        None => return Err(Error::Failed { operation, failed }.into()),
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
        Err(DeviceError::Contended { endpoint: self.endpoint(), reason })
    }

    /// Does the operations in one transaction and gives its `next_cfg`.
    async fn transact(
        &self,
        operations: &Operations,
        root: &Root,
        cluster: &str,
    ) -> Result<Option<i64>, Error> {
        let mut transaction: Transaction =
            operations.iter().map(|(_, operation)| operation.clone()).collect();
        let root = || [Condition::uuid(root.uuid)];
        transaction.push(Operation::mutate(DATABASE, root(), [Mutation::add("next_cfg", 1)]));
        let select = transaction.push(Operation::select(DATABASE, root(), ["next_cfg"]));
        transaction.push(Operation::Comment(format!("eno: cluster {cluster}")));
        let outcome = self.client.transact(DATABASE, &transaction).await?;
        Ok(outcome.rows(select).first().and_then(|row| row.get("next_cfg")?.as_integer()))
    }

    /// Waits until ovs-vswitchd has done this configuration.
    async fn applied(&self, config: i64) -> Result<(), DeviceError> {
        let limit = self.limits.apply;
        let done = self.mirror.wait_for(|replica| {
            let root = View::root(replica)?;
            (root.cur_cfg >= config).then_some(())
        });
        match tokio::time::timeout(limit, done).await {
            Ok(done) => Ok(done?),
            Err(_) => match self.mirror.state() {
                MirrorState::Current => Err(DeviceError::NotApplied { endpoint: self.endpoint(), limit }),
                // It says why.
                _ => Ok(self.mirror.current().await?),
            },
        }
    }

    fn endpoint(&self) -> String {
        self.client.endpoint().to_string()
    }

    fn not_initialised(&self) -> DeviceError {
        DeviceError::NotInitialised { endpoint: self.endpoint() }
    }
}

/// How many VLANs on ports a plan adds and removes.
fn size(plan: &Plan, view: &View) -> (usize, usize) {
    let each = |(uuid, change): (&Uuid, &crate::plan::PortChange)| {
        let (added, removed) = change.difference(view.ports.get(uuid)?);
        Some((added.len(), removed.len()))
    };
    plan.changes.iter().filter_map(each).fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1))
}

fn change_report(started: Instant, (added, removed): (usize, usize)) -> ChangeReport {
    ChangeReport {
        transaction: None,
        at: jiff::Timestamp::now().to_string(),
        took_ms: u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX),
        added: u32::try_from(added).unwrap_or(u32::MAX),
        removed: u32::try_from(removed).unwrap_or(u32::MAX),
    }
}

/// So many of them, and how many there are more.
fn bounded(notes: &[Note]) -> Vec<Note> {
    let mut some: Vec<Note> = notes.iter().take(MOST_NOTES).cloned().collect();
    if let Some(more) = notes.len().checked_sub(MOST_NOTES).filter(|more| *more > 0) {
        some.push(Note {
            kind: "Drift".into(),
            item: eno_schemas::Item::TARGET,
            message: format!("{more} more ports were changed by another hand"),
        });
    }
    some
}

/// Sets what is known when a reconcile ends, also by being dropped.
struct Outcome<'a> {
    known: &'a watch::Sender<Known>,
    known_then: Known,
}

impl Drop for Outcome<'_> {
    fn drop(&mut self) {
        self.known.send_replace(self.known_then.clone());
    }
}

struct Watch {
    changes: Changes,
    known: watch::Receiver<Known>,
    /// A deviation of what is known was told.
    told: bool,
}

impl Watch {
    /// Waits for a change after which something is not as it was found. Ends with its [`Device`].
    async fn deviation(&mut self) -> Option<()> {
        loop {
            let by_device = tokio::select! {
                changed = self.changes.next() => {
                    changed?;
                    true
                }
                changed = self.known.changed() => {
                    changed.ok()?;
                    self.told = false;
                    false
                }
            };
            if !self.told && self.deviates(by_device) {
                self.told = true;
                return Some(());
            }
        }
    }

    fn deviates(&self, by_device: bool) -> bool {
        let state = self.changes.state();
        match (&*self.known.borrow(), &state) {
            (Known::Nothing, _) => false,
            (Known::Failed, state) => by_device && *state == MirrorState::Current,
            (Known::Found(found), MirrorState::Current) => {
                let view = self.changes.read(View::read);
                let plan = plan(&view, &found.desired, &found.left_out);
                let (applied, faults) = observe(&view, &found.desired, &plan);
                plan != found.plan || applied != found.applied || faults != found.faults
            }
            (Known::Found(_), _) => true,
        }
    }
}
