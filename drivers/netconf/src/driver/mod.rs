//! The driver: one session per device, kept open between commands.

mod lookup;
mod open_session;
mod passwords;
mod prefix_metrics;
mod sessions;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::hash::RandomState;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use eno_device_secrets::SecretSource;
use eno_fabric_driver::desired::Content;
use eno_fabric_driver::{Changes, FabricDevices, FabricDriver, Targets, audit_interval};
use eno_sbi::{BGP, DYNAMIC_NEIGHBOURS, HOLD, Intent, LOOKUPS, Reconciled, VRFS, Work};
use eno_schemas::{
    Applied, Command, FabricDesired, FabricPort, Generation, Outcome, PortBefore, Preview, Report, VlanSet,
};
use futures::Stream;
use tokio::sync::Semaphore;
use tracing::{debug, warn};

use crate::dialect::Dialects;
use crate::driver::lookup::Answer;
use crate::driver::open_session::OpenSession;
use crate::driver::passwords::Written;
pub use crate::driver::prefix_metrics::PrefixMetrics;
use crate::driver::sessions::{KnownSessions, Looks};
use crate::pacing::ReconnectPacer;
use crate::plan::{ClashDetector, reported_vlans, with_reported_ports};
use crate::session::Session as _;
use crate::ssh::Limits;
use crate::transaction::drift::{self, KnownDeviations, Wanted};
use crate::transaction::{RunContext, Transaction, TransactionError};

/// The name of the driver.
const NAME: &str = "netconf";
/// Maximum concurrent connection attempts. Each may take a timeout to fail.
const MAX_CONNECTS: usize = 256;
/// Maximum further attempts to devices that did not answer last time.
const MAX_CONNECTS_TO_LOST: usize = 64;

/// Maximum time for a reply of a device that exceeded the configured time.
const MAX_RPC_LIMIT: Duration = Duration::from_mins(5);

/// The configuration of the driver.
#[derive(Clone, Debug)]
pub struct Options {
    /// The dialects of devices.
    pub dialects: Dialects,
    /// The source of credentials.
    pub credentials: SecretSource,
    /// The timeouts of a session.
    pub limits: Limits,
    /// The confirm-timeout: the device rolls back a commit that is not confirmed in time.
    pub confirm_timeout: Duration,
    /// The mean interval between reads of a device without notifications; it varies by a quarter. `AuditInterval` of
    /// a FabricDevice takes precedence.
    pub audit_interval: Duration,
    /// The mean interval between reads of the BGP sessions of a device while one is not established; six times that
    /// otherwise.
    pub session_interval: Duration,
    /// The metrics of prefixes.
    pub prefixes: PrefixMetrics,
}

/// Configures switches over NETCONF.
pub type NetconfDriver = FabricDriver<Switches>;

/// The switches.
pub struct Switches {
    /// The configuration.
    options: Options,
    /// Permits for connections to devices that answered last time, or are new.
    connecting: Semaphore,
    /// Permits for connections to devices that did not answer.
    connecting_to_lost: Semaphore,
    /// The delays after lost sessions.
    reconnects: Arc<ReconnectPacer>,
    /// Tells the host of targets to reconcile again.
    changes: Changes,
    /// The looks at BGP sessions.
    looks: Looks,
    /// Hashes passwords. No other process has the same.
    hasher: RandomState,
}

/// The cached state of a device. Losing it costs a read.
#[derive(Default)]
pub struct Device {
    open_session: Option<OpenSession>,
    /// The last verification.
    verified: Option<Verified>,
    /// Whether anything of ours was there at the last read of VRFs in this session; `None`: there was no such read.
    own_routing: Option<bool>,
    /// The same of BGP.
    own_bgp: Option<bool>,
    /// All VLANs that were ours at the last report that names any state.
    own_before: VlanSet,
    /// The device did not answer the last connection attempt.
    lost: bool,
    /// The last request got no reply, and the device may still carry it out.
    interrupted: bool,
    /// The session-ids of the last session and of the one before.
    sessions: [Option<u32>; 2],
    /// The time that the device gets for each reply, after one took longer than the configured time.
    rpc_limit: Option<Duration>,
    /// The detector of clashes of the cluster identifier.
    clash_detector: Option<Arc<ClashDetector>>,
    /// The port memory of the last report.
    prior_state: ReportedPriorState,
    /// The answer to the last lookup.
    answer: Option<Answer>,
    /// The BGP sessions of the last report.
    bgp_sessions: Option<KnownSessions>,
    /// The passwords of BGP groups that this process has written.
    written: Written,
}

/// A verified command.
struct Verified {
    /// Its generation.
    generation: Generation,
    /// The content of its desired state.
    content: Content,
    /// The VLANs that it wants.
    wanted: Wanted,
    /// The deviations from it.
    deviations: KnownDeviations,
}

/// The port memory of the last report. The next command may have been made without it.
#[derive(Default)]
struct ReportedPriorState {
    address: String,
    /// By port and LAG.
    ports: BTreeMap<(String, Option<String>), PortBefore>,
}

impl ReportedPriorState {
    fn of(desired: &FabricDesired, reconciled: &Reconciled) -> Option<Self> {
        let Some(Applied::Fabric { before, .. }) = &reconciled.applied else { return None };
        let known = |port: &FabricPort| {
            Some(((port.name.clone(), port.lag.clone()), before.get(&port.name)?.clone()))
        };
        Some(Self {
            address: desired.device.address.clone(),
            ports: desired.ports.iter().filter_map(known).collect(),
        })
    }

    /// The desired state completed by the port memory of the same interfaces of the same device.
    fn complete<'a>(&self, mut desired: Cow<'a, FabricDesired>) -> Cow<'a, FabricDesired> {
        let unknown = |port: &FabricPort| {
            let known = self.ports.get(&(port.name.clone(), port.lag.clone()));
            known.filter(|_| port.before.is_none() && self.address == desired.device.address).cloned()
        };
        let missing: Vec<Option<PortBefore>> = desired.ports.iter().map(unknown).collect();
        if missing.iter().any(Option::is_some) {
            for (port, before) in desired.to_mut().ports.iter_mut().zip(missing) {
                port.before = port.before.take().or(before);
            }
        }
        desired
    }
}

/// The time for replies of a device that exceeded `limit`.
fn more_time(limit: Duration) -> Duration {
    (limit * 2).min(MAX_RPC_LIMIT).max(limit)
}

impl Device {
    /// Remembers the session before this one. Its locks may outlive it.
    fn note_session(&mut self, open_session: &OpenSession) {
        let id = open_session.session.hello().session_id();
        if self.sessions[0] != id {
            self.sessions = [id, self.sessions[0]];
        }
    }

    /// The clash detector, initialised from the last report of another process.
    fn clash_detector(&mut self, desired: &FabricDesired, reported: Option<&Report>) -> Arc<ClashDetector> {
        let restored = || {
            let clash_detector = ClashDetector::default();
            clash_detector.restore_from_report(&desired.cluster, reported);
            Arc::new(clash_detector)
        };
        Arc::clone(self.clash_detector.get_or_insert_with(restored))
    }
}

impl FabricDevices for Switches {
    const NAME: &'static str = NAME;
    const CONFIGURES: &'static str = "switches";
    type Options = Options;
    type State = Device;

    fn new(options: Options, changes: Changes) -> Self {
        Self {
            reconnects: Arc::default(),
            connecting: Semaphore::new(MAX_CONNECTS),
            connecting_to_lost: Semaphore::new(MAX_CONNECTS_TO_LOST),
            looks: Looks::new(options.session_interval, options.prefixes.clone()),
            hasher: RandomState::new(),
            options,
            changes,
        }
    }

    fn capabilities(&self) -> Vec<String> {
        let dialects = self.options.dialects.iter().map(|dialect| format!("dialect:{}", dialect.name()));
        let all = [BGP, DYNAMIC_NEIGHBOURS, HOLD, LOOKUPS, VRFS].map(str::to_owned);
        all.into_iter().chain(dialects).collect()
    }

    async fn reconcile(&self, device: &mut Device, work: &Work, desired: &FabricDesired) -> Reconciled {
        let target = &work.command.target;
        let generation = &work.command.generation;
        let desired =
            &*device.prior_state.complete(with_reported_ports(desired, generation, work.reported()));
        // The uid tells clusters apart, and is no configuration.
        let content = Content::of(FabricDesired { cluster_uid: None, ..desired.clone() });
        let verified = device.verified.as_ref();
        let same = verified.filter(|verified| verified.content == content);
        let verified_other_command = same.is_none() && verified.is_some();
        let known = same
            .map(|same| same.deviations.clone())
            .or_else(|| known_deviations_of_last_report(work, &content, verified));
        let verified_other_command = verified_other_command && known.is_none();
        let known = known.or_else(|| {
            // Without repair, a command does not restore what others changed.
            let report = || KnownDeviations::after_report(work.reported()?, desired);
            let is_left = desired.device.drift == eno_schemas::Drift::Report;
            is_left.then(|| match verified {
                Some(other) => other.deviations.after_change(&other.wanted, desired),
                None => report(),
            })?
        });
        if let Some(applied) = work.reported().and_then(|report| report.applied.as_ref()) {
            device.own_before = reported_vlans(applied);
        }
        let clash_detector = device.clash_detector(desired, work.reported());
        // Boxed, since each reconcile holds this future.
        let reading = self.options.credentials.clone();
        let passwords = Box::pin(device.written.read(&reading, &self.hasher, target, desired)).await;
        let mut intent = work.intent();
        let (mut reconnected, mut applied_again) = (false, false);
        loop {
            // The session is taken out while in use. If this future is dropped, the session closes and the device
            // releases its locks.
            let reusable = device.open_session.take().filter(|open_session| open_session.fits(desired));
            let reused = reusable.is_some();
            let mut open_session = if let Some(open_session) = reusable {
                open_session
            } else {
                let limits = self.limits(device);
                let connecting = Box::pin(self.connect(target, desired, device.lost, limits));
                match work.await_connection(connecting).await {
                    Ok(open_session) => open_session,
                    Err(failed) => {
                        device.lost = is_unreachable(&failed);
                        return *failed;
                    }
                }
            };
            device.lost = false;
            device.note_session(&open_session);
            let baseline = open_session.take_baseline();
            let info = self.info(&open_session, &desired.device);
            let persist_id = format!("eno-{}-{target}", desired.cluster);
            if open_session.fresh {
                (device.own_routing, device.own_bgp) = (None, None);
            }
            let transaction = Transaction {
                session: &open_session.session,
                dialect: open_session.dialect,
                profile: open_session.profile,
                work,
                desired,
                persist_id: &persist_id,
                confirm_timeout: self.options.confirm_timeout
                    + self.limits(device).rpc.saturating_sub(self.options.limits.rpc),
                intent: &intent,
                device: &info,
                own_before: &device.own_before,
                read_baseline: Mutex::default(),
                clash_detector: &clash_detector,
                own_routing: Mutex::new(device.own_routing),
                own_bgp: Mutex::new(device.own_bgp),
                passwords: &passwords.passwords,
                running_lock: Mutex::default(),
            };
            let context = RunContext {
                may_be_pending: open_session.fresh,
                interrupted: device.interrupted,
                earlier_session: device.sessions[1],
                known: known.as_ref(),
                verified_other_command,
                baseline: baseline.as_ref(),
            };
            if open_session.fresh {
                clash_detector.session_started();
            }
            let result = Box::pin(transaction.run(context)).await;
            clash_detector.command_ended(confirmed(&result));
            device.own_routing = transaction.own_routing.into_inner().unwrap_or_else(PoisonError::into_inner);
            device.own_bgp = transaction.own_bgp.into_inner().unwrap_or_else(PoisonError::into_inner);
            let read = transaction.read_baseline.into_inner().unwrap_or_else(PoisonError::into_inner);
            let error = match result {
                Ok(mut reconciled) => {
                    if !matches!(reconciled.outcome, Outcome::Progress { .. }) {
                        (open_session.fresh, device.interrupted) = (false, false);
                    }
                    let kept = read.filter(|_| reconciled.outcome == Outcome::Applied);
                    open_session.keep_baseline(kept);
                    self.changes.record_read(target, self.audit_interval(&desired.device));
                    if let Some(prior_state) = ReportedPriorState::of(desired, &reconciled) {
                        device.prior_state = prior_state;
                    }
                    if let Some(applied) = &reconciled.applied {
                        device.own_before = reported_vlans(applied);
                    }
                    if reconciled.outcome == Outcome::Applied {
                        let items = drift::items(&reconciled.rejected, &reconciled.notes);
                        device.verified = Some(Verified {
                            generation: work.generation(),
                            content,
                            wanted: Wanted::of(desired),
                            deviations: KnownDeviations::of(items),
                        });
                    }
                    device.written.record(desired, &passwords, &reconciled);
                    let (looks, report) = (&self.looks, &mut reconciled);
                    if device.answer_lookup(&open_session, desired, report).await
                        && Box::pin(device.read_sessions(looks, target, &open_session, desired, report)).await
                    {
                        device.open_session = Some(open_session);
                    }
                    return reconciled;
                }
                Err(error) => error,
            };
            device.interrupted |= error.effect_is_unknown();
            let more_time = error.given_up_after().map(more_time);
            device.rpc_limit = more_time.or(device.rpc_limit);
            if matches!(error, TransactionError::ConfirmTimeoutRefused { .. }) {
                // Perhaps it refuses what slow replies have added to the time.
                device.rpc_limit = None;
            }
            match error {
                TransactionError::NotConfirmed { reason } if work.is_confirmed() && !applied_again => {
                    warn!(
                        target,
                        reason, "the device rolled back a change that is decided: applying it again"
                    );
                    applied_again = true;
                    device.open_session = Some(open_session);
                    intent = Intent::Apply;
                }
                error if error.session_ended() && (reused || (error.reply_was_lost() && !reconnected)) => {
                    reconnected = true;
                    debug!(target, %error, "the session is of no use; connecting again");
                }
                TransactionError::Aborted { reason } => {
                    // The end of the session rolls back the change.
                    open_session.close().await;
                    intent = Intent::RollBack { reason };
                }
                error => {
                    if !error.must_close_session() {
                        device.open_session = Some(open_session);
                    }
                    let mut failure = error.failure();
                    if let Some(limit) = more_time {
                        failure.reason =
                            format!("{}. The next try waits {} s", failure.reason, limit.as_secs()).into();
                    }
                    return Reconciled { device: Some(info), ..Reconciled::failed(failure) };
                }
            }
        }
    }

    async fn preview(
        &self,
        device: &tokio::sync::Mutex<Device>,
        command: &Arc<Command>,
        desired: &FabricDesired,
    ) -> Option<Preview> {
        let device = &mut *device.lock().await;
        // A session of other values stays open: who asks for a preview must not end it.
        let open_session = match device.open_session.take_if(|open_session| open_session.fits(desired)) {
            Some(open_session) => open_session,
            None => match self.connect(&command.target, desired, device.lost, self.limits(device)).await {
                Ok(open_session) => open_session,
                Err(failed) => {
                    let Reconciled { outcome, device, .. } = *failed;
                    let failure = if let Outcome::Failed(failure) = outcome { Some(failure) } else { None };
                    return Some(Preview { failure, device, ..Preview::default() });
                }
            },
        };
        // A preview leaves the detector unchanged.
        let clash_detector =
            device.clash_detector.as_ref().map(|clash_detector| clash_detector.copy()).unwrap_or_default();
        let work = Work::alone(Arc::clone(command));
        let passwords = device.written.masked(desired);
        let info = self.info(&open_session, &desired.device);
        let transaction = Transaction {
            session: &open_session.session,
            dialect: open_session.dialect,
            profile: open_session.profile,
            work: &work,
            desired,
            persist_id: "",
            confirm_timeout: self.options.confirm_timeout,
            intent: &Intent::Apply,
            device: &info,
            own_before: &device.own_before,
            read_baseline: Mutex::default(),
            clash_detector: &clash_detector,
            own_routing: Mutex::new(device.own_routing),
            own_bgp: Mutex::new(device.own_bgp),
            passwords: &passwords,
            running_lock: Mutex::default(),
        };
        let preview = match transaction.preview().await {
            Ok(preview) => {
                device.open_session.get_or_insert(open_session);
                preview
            }
            Err(error) => {
                Preview { failure: Some(error.failure()), device: Some(info), ..Preview::default() }
            }
        };
        Some(preview)
    }

    fn found_changed(&self, targets: Arc<Targets<Device>>) -> impl Stream<Item = String> + Send + 'static {
        self.looks.clone().changed(targets)
    }

    async fn forget(&self, target: &str, device: &tokio::sync::Mutex<Device>) {
        self.looks.forget(target);
        if let Some(open_session) = device.lock().await.open_session.take() {
            open_session.close().await;
        }
    }
}

impl Switches {
    /// The audit interval of a device.
    fn audit_interval(&self, device: &eno_schemas::Device) -> Duration {
        audit_interval(device, self.options.audit_interval)
    }

    /// The timeouts of a session with the device.
    fn limits(&self, device: &Device) -> Limits {
        Limits { rpc: device.rpc_limit.unwrap_or(self.options.limits.rpc), ..self.options.limits }
    }
}

/// Our VLANs after a final commit.
fn confirmed<E>(result: &Result<Reconciled, E>) -> Option<&VlanSet> {
    match result {
        Ok(Reconciled {
            outcome: Outcome::Applied, applied: Some(Applied::Fabric { vlans, .. }), ..
        }) => Some(vlans),
        _ => None,
    }
}

/// The deviations that another process reported for this content; `None`: there is no such report, or this process
/// verified another command later. The report on that one may be lost. The reported command may have been the bare
/// content, without the uid of the cluster.
fn known_deviations_of_last_report(
    work: &Work,
    content: &Content,
    verified: Option<&Verified>,
) -> Option<KnownDeviations> {
    let order = |generation: &Generation| (generation.term, generation.sequence);
    let reported = work.reported()?;
    if verified.is_some_and(|verified| order(&verified.generation) >= order(&reported.generation)) {
        return None;
    }
    let hash = &reported.generation.hash;
    let same = || work.command.generation.hash == *hash || content.hash() == *hash;
    let verified = reported.outcome == Outcome::Applied && same();
    verified.then(|| KnownDeviations::of_report(reported))
}

fn is_unreachable(failed: &Reconciled) -> bool {
    matches!(&failed.outcome, Outcome::Failed(failure) if failure.unreachable)
}
