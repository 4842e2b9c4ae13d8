//! Watches the BGP sessions of a command: their state is part of each report, and a look every few seconds finds what
//! changed since.
//!
//! A look reads nothing but sessions, of a device that nobody uses at that moment. A change makes the host of targets
//! reconcile the device again, so a report goes out only then. A look whose session broke finds nothing: the next
//! reconcile reads again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use eno_fabric_driver::Targets;
use eno_sbi::{AuditSchedule, Reconciled};
use eno_schemas::{Applied, FabricDesired, Item, NO_BGP_STATE, Note};
use futures::{Stream, StreamExt as _, stream};
use tracing::debug;

use super::{Device, OpenSession, PrefixMetrics};
use crate::bgp_sessions::{FoundSessions, Sessions, WantedSessions, reported};
use crate::session::{CallError, Session as _};

/// How much longer the interval of looks is while all sessions stay established.
const ESTABLISHED_FACTOR: u32 = 6;
/// Maximum devices that are looked at at a time. One that hangs does not hold up the others.
const MAX_LOOKS: usize = 64;

/// The looks at the sessions of all devices.
#[derive(Clone, Debug)]
pub(super) struct Looks {
    schedule: Arc<AuditSchedule>,
    interval: Duration,
    prefixes: PrefixMetrics,
}

/// The sessions of the last report of a device.
pub(super) struct KnownSessions {
    wanted: WantedSessions,
    sessions: Sessions,
    /// Since when all of them are established, as far as they were read.
    established_since: Option<Instant>,
}

impl Looks {
    /// None yet. `interval`: the mean time between two looks at a device while one of its sessions is not established.
    pub(super) fn new(interval: Duration, prefixes: PrefixMetrics) -> Self {
        Self { schedule: Arc::default(), interval, prefixes }
    }

    /// No look at this device any more.
    pub(super) fn forget(&self, target: &str) {
        self.schedule.forget(target);
        self.prefixes.set(target, &BTreeMap::new());
    }

    /// `established_since`: since when all sessions are established. One that ends at once is seen soon.
    fn record(&self, target: &str, established_since: Option<Instant>) {
        let are_stable = established_since.is_some_and(|since| since.elapsed() >= self.interval);
        let interval = self.interval * if are_stable { ESTABLISHED_FACTOR } else { 1 };
        self.schedule.record_read(target, interval);
    }

    /// The devices of which a session changed.
    pub(super) fn changed(
        self,
        targets: Arc<Targets<Device>>,
    ) -> impl Stream<Item = String> + Send + 'static + use<> {
        let schedule = Arc::clone(&self.schedule);
        let due = stream::unfold(schedule, async |schedule| Some((schedule.next().await, schedule)));
        let looked = due.map(move |target| {
            let (looks, targets) = (self.clone(), Arc::clone(&targets));
            async move { looks.finds_a_change(&targets, &target).await.then_some(target) }
        });
        looked.buffer_unordered(MAX_LOOKS).filter_map(std::future::ready)
    }

    async fn finds_a_change(&self, targets: &Targets<Device>, target: &str) -> bool {
        // A device that is being reconciled is read anyway.
        let Some(device) = targets.idle(target) else { return false };
        let (Some(open_session), Some(known)) = (&device.open_session, &device.bgp_sessions) else {
            return false;
        };
        match read(open_session, &known.wanted).await {
            Ok(Ok(found)) => {
                self.prefixes.set(target, &found.prefixes);
                let are_established = known.wanted.are_established(&found.sessions);
                self.record(target, known.established_since.filter(|_| are_established));
                reported(&found.sessions) != reported(&known.sessions)
            }
            Ok(Err(reason)) => {
                debug!(target, reason, "no state of BGP sessions");
                false
            }
            Err(error) => {
                debug!(target, %error, "no state of BGP sessions");
                false
            }
        }
    }
}

impl Device {
    /// Puts the sessions into the report on a state that was read back. Returns false when the session with the device is
    /// of no further use.
    pub(super) async fn read_sessions(
        &mut self,
        looks: &Looks,
        target: &str,
        open_session: &OpenSession,
        desired: &FabricDesired,
        reconciled: &mut Reconciled,
    ) -> bool {
        let Some(applied) = &mut reconciled.applied else { return true };
        let wanted = WantedSessions::of(desired, applied);
        if wanted.is_empty() {
            self.bgp_sessions = None;
            looks.forget(target);
            return true;
        }
        let known = self.bgp_sessions.as_ref();
        let was_established = known.and_then(|known| known.established_since);
        let (sessions, is_of_use) = match read(open_session, &wanted).await {
            Ok(Ok(found)) => {
                looks.prefixes.set(target, &found.prefixes);
                (found.sessions, true)
            }
            Ok(Err(reason)) => {
                reconciled.notes.push(Note::new(NO_BGP_STATE, Item::TARGET, reason));
                (Sessions::new(), true)
            }
            Err(_) => (self.bgp_sessions.take().map(|known| known.sessions).unwrap_or_default(), false),
        };
        if let Applied::Fabric { bgp, .. } = applied {
            for (owner, of) in &sessions {
                if let Some(group) = bgp.get_mut(owner) {
                    group.clone_from(of);
                }
            }
        }
        let are_established = wanted.are_established(&sessions);
        let established_since = are_established.then(|| was_established.unwrap_or_else(Instant::now));
        looks.record(target, established_since);
        self.bgp_sessions = Some(KnownSessions { wanted, sessions, established_since });
        is_of_use
    }
}

/// Reads the sessions; the inner error is the reason why the device can't tell. An error: the session is of no further
/// use.
async fn read(
    open_session: &OpenSession,
    wanted: &WantedSessions,
) -> Result<Result<FoundSessions, String>, CallError> {
    let dialect = open_session.dialect;
    let Some(bgp) = dialect.bgp() else {
        return Ok(Err(format!("the dialect {} reads no BGP sessions", dialect.name())));
    };
    let reply = match open_session.session.call(bgp.sessions_request()).await {
        Err(refused @ CallError::Refused { .. }) => return Ok(Err(refused.to_string())),
        reply => reply?,
    };
    let found = bgp.parse_sessions(&reply, wanted);
    Ok(found.map_err(|error| format!("its BGP sessions can't be read: {error}")))
}
