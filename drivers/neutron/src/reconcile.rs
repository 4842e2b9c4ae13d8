//! Reconciles one project of OpenStack: read, plan, request, read back.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use eno_fabric_driver::{Converged, Convergence};
use eno_sbi::Work;
use eno_schemas::{DeviceInfo, FabricDesired, Item, NetworkType, Note, Preview, Rejection, Rollback};
use futures::stream::{self, StreamExt as _};
use http::StatusCode;
use serde_json::{Value, json};
use tracing::debug;

use crate::drift::drift_notes;
use crate::error::ApiError;
use crate::http::{Answered, Api, Waits};
use crate::mark::Mark;
use crate::observe::observe;
use crate::plan::{Plan, Refusals, plan};
use crate::read::{Changed, read, read_back};
use crate::remedy::{is_about_all, reason};
use crate::request::{Kind, Request};
use crate::view::{Id, View};

/// Maximum reads of one reconcile. Other clients may invalidate a plan.
const MAX_READS: usize = 8;
/// Maximum plans between two reads. Each has requests that depend on those of the plan before.
const MAX_STAGES: usize = 8;
/// Requests at a time.
const CONCURRENT: usize = 4;
/// Refusals of single things with the same words after which the rest of a request counts as refused, too.
const MAX_SAME_REFUSALS: usize = 4;
/// Times that something may be gone, or changed, since it was read. After more it counts as refused.
const MAX_STALE: u32 = 2;
/// The time for requests. What is left then is reported as not done yet, and the next reconcile continues.
const TIME_LIMIT: Duration = Duration::from_mins(5);

/// The end of a reconcile: everything that Neutron accepts is applied.
#[derive(Debug)]
pub struct Reconcile {
    /// The result.
    pub converged: Converged,
    /// What was read back.
    pub view: View,
    /// All was read in this reconcile, and not only what it changed.
    pub all_read: bool,
    /// Neutron refused something for a missing right.
    pub is_denied: bool,
}

/// Reconciles, and reads back. It writes nothing when nothing differs, or once a newer command comes. The future may
/// be dropped and repeated at any point.
///
/// `known`: a view that was read after the last change and within the audit interval. The change is planned on it, and
/// what it changes is read back. Neutron refuses what doesn't fit; then all is read.
///
/// `None`: a newer command came. What was requested until then stays, and the next command continues from it.
pub async fn reconcile(
    api: &Api,
    desired: &FabricDesired,
    mark: &Mark,
    known: Option<View>,
    convergence: Convergence,
    work: &Work,
) -> Result<Option<Reconcile>, ApiError> {
    let mut run = Run::new(api, work, convergence);
    let known_view = known.filter(|view| plan(view, desired, mark, &Refusals::default()).rejected.is_empty());
    let mut all_read = known_view.is_none();
    let mut is_read = all_read;
    let mut view = match known_view {
        Some(view) => view,
        None => read(api, desired, mark).await?,
    };
    for _ in 0..MAX_READS {
        let planned = plan(&view, desired, mark, &run.refusals);
        run.convergence.first_plan(
            |was_verified| {
                if was_verified { drift_notes(&planned, &view) } else { Vec::new() }
            },
        );
        let stays = run.convergence.leaves_drift() && !planned.requests.is_empty();
        if is_read && (planned.requests.is_empty() || stays || run.is_late()) {
            let applied = observe(&view, desired, mark, &planned);
            let late = planned.requests.iter().filter(|_| !stays).flat_map(not_done_yet);
            let rejected = planned.rejected.into_iter().chain(late).collect();
            let notes = planned.notes.into_iter().filter(|note| !run.changed_trunk(note, &view));
            let notes: Vec<Note> = notes.collect();
            let more = |more| format!("{more} more differences");
            let converged = run.convergence.end(applied, rejected, notes, stays, more);
            return Ok(Some(Reconcile { converged, view, all_read, is_denied: run.is_denied }));
        }
        if !work.is_current() {
            return Ok(None);
        }
        let ended = run.apply(&mut view, planned, desired, mark).await?;
        if matches!(ended, StagesEnd::Superseded) {
            return Ok(None);
        }
        let changed = std::mem::take(&mut run.changed);
        // Neutron may refuse what the known view doesn't show.
        let is_outdated = matches!(ended, StagesEnd::Stale) || (!is_read && !run.refusals.is_empty());
        view = if is_outdated {
            run.refusals = Refusals::default();
            all_read = true;
            read(api, desired, mark).await?
        } else {
            read_back(api, desired, mark, view, &changed).await?
        };
        is_read = true;
    }
    Err(ApiError::Contended)
}

/// What [`reconcile`] would request, as JSON of method, path and body.
pub async fn preview(api: &Api, desired: &FabricDesired, mark: &Mark) -> Result<Preview, ApiError> {
    let mut view = read(api, desired, mark).await?;
    let (mut edits, mut rejected, mut notes) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..MAX_STAGES {
        let planned = plan(&view, desired, mark, &Refusals::default());
        (rejected, notes) = (planned.rejected, planned.notes);
        if planned.requests.is_empty() {
            break;
        }
        for request in planned.requests {
            let http = request.http();
            let mut edit = json!({ "method": http.method.as_str(), "path": format!("/v2.0/{}", http.path) });
            if let Some(if_match) = http.if_match {
                edit["if-match"] = if_match.into();
            }
            if let Some(body) = http.body {
                edit["body"] = body;
            }
            edits.push(edit.to_string());
            if let Err(error) = request.predict(&mut view) {
                debug!(%error, "a prediction is not of the expected form");
            }
        }
    }
    Ok(Preview { edits, rejected, notes, ..Preview::default() })
}

/// Data that hold for every project.
pub fn device_info(desired: &FabricDesired, audit_interval: Duration) -> DeviceInfo {
    let settings = desired.device.neutron.as_ref();
    let tenant = settings.is_some_and(|settings| settings.network_type == NetworkType::Tenant);
    DeviceInfo {
        model: Some(if tenant { "OpenStack Neutron, tenant networks" } else { "OpenStack Neutron" }.into()),
        rollback: Some(Rollback::None),
        audit_interval: Some(u32::try_from(audit_interval.as_secs()).unwrap_or(u32::MAX)),
        change_notifications: Some(false),
        ..DeviceInfo::default()
    }
}

/// How the stages between two reads ended.
enum StagesEnd {
    /// All requests that could be made in time were made.
    Complete,
    /// Something is not as it was read.
    Stale,
    /// A newer command came.
    Superseded,
}

/// Why the requests of a stage end.
enum Stop {
    /// Something is not as it was read.
    Stale,
    /// A newer command came, or the time is over.
    NotMade,
    /// The effect is not known, or a retry may help.
    Failed(ApiError),
}

/// The state of one reconcile.
struct Run<'a> {
    api: &'a Api,
    work: &'a Work,
    started: Instant,
    refusals: Refusals,
    /// What was changed since the last read.
    changed: Changed,
    /// The trunks that were changed: Neutron sets their status anew.
    trunks: BTreeSet<Id>,
    convergence: Convergence,
    waits: Waits,
    stale: u32,
    is_denied: bool,
}

impl<'a> Run<'a> {
    fn new(api: &'a Api, work: &'a Work, convergence: Convergence) -> Self {
        Self {
            api,
            work,
            convergence,
            started: Instant::now(),
            refusals: Refusals::default(),
            changed: Changed::default(),
            trunks: BTreeSet::new(),
            waits: Waits::default(),
            stale: 0,
            is_denied: false,
        }
    }

    fn is_late(&self) -> bool {
        self.started.elapsed() > TIME_LIMIT
    }

    /// True for a note about the status of a trunk that this reconcile changed.
    fn changed_trunk(&self, note: &Note, view: &View) -> bool {
        let trunk = note.item.port.as_ref().and_then(|name| view.trunk_of.get(name));
        note.kind == "TrunkNotActive" && trunk.is_some_and(|trunk| self.trunks.contains(trunk))
    }

    /// Makes the requests of a plan and of those that follow from it.
    async fn apply(
        &mut self,
        view: &mut View,
        mut planned: Plan,
        desired: &FabricDesired,
        mark: &Mark,
    ) -> Result<StagesEnd, ApiError> {
        for _ in 0..MAX_STAGES {
            let count = planned.requests.len();
            if count == 0 || self.is_late() {
                return Ok(StagesEnd::Complete);
            }
            if let Some(first) = planned.requests.first().filter(|_| count > 1) {
                self.work.progress(format!("{count} requests to Neutron, the first to {first}"));
            }
            // They are independent of each other. All are awaited, so that none is left without a known effect.
            let run = &*self;
            let answered: Vec<(Request, Result<Answered, Stop>)> = stream::iter(planned.requests)
                .map(|request| async move {
                    let answer = run.make(&request).await;
                    (request, answer)
                })
                .buffer_unordered(CONCURRENT)
                .collect()
                .await;
            let (mut stale, mut not_made, mut failed) = (false, false, None);
            for (request, answer) in answered {
                match self.settle(view, request, answer).await {
                    Ok(()) => {}
                    Err(Stop::Stale) => stale = true,
                    Err(Stop::NotMade) => not_made = true,
                    Err(Stop::Failed(error)) => failed = Some(error),
                }
            }
            if let Some(error) = failed {
                self.waits.wait_after(error).await?;
                stale = true;
            }
            if !self.work.is_current() {
                return Ok(StagesEnd::Superseded);
            }
            if stale {
                self.stale += 1;
                return Ok(StagesEnd::Stale);
            }
            if not_made {
                return Ok(StagesEnd::Complete);
            }
            planned = plan(view, desired, mark, &self.refusals);
        }
        Ok(StagesEnd::Complete)
    }

    /// Makes one request, unless a newer command came or the time is over.
    async fn make(&self, request: &Request) -> Result<Answered, Stop> {
        if !self.work.is_current() || self.is_late() {
            return Err(Stop::NotMade);
        }
        self.api.change(&request.to_string(), &request.http()).await.map_err(Stop::Failed)
    }

    /// Writes an answer into the view, or records a refusal. A request about several things is halved until the refused
    /// ones are known.
    async fn settle(
        &mut self,
        view: &mut View,
        request: Request,
        answer: Result<Answered, Stop>,
    ) -> Result<(), Stop> {
        let mut pending = vec![(request, Some(answer))];
        // The reason for which all that follows is refused, too.
        let mut of_all: Option<String> = None;
        let mut same: BTreeMap<String, usize> = BTreeMap::new();
        while let Some((request, answer)) = pending.pop() {
            if let Some(reason) = &of_all {
                self.refusals.record(&request, reason);
                continue;
            }
            let answer = match answer {
                Some(answer) => answer,
                None => self.make(&request).await,
            };
            let refusal = match answer {
                Ok(answer) => {
                    self.applied(view, &request, answer.into_content())?;
                    continue;
                }
                // Neutron refuses a new token, too: the credential lacks a right that has nothing to do with the items.
                Err(Stop::Failed(ApiError::Refused { refusal, .. }))
                    if !refusal.is_temporary() && refusal.status != StatusCode::UNAUTHORIZED =>
                {
                    refusal
                }
                Err(stop) => return Err(stop),
            };
            self.is_denied |= refusal.status == StatusCode::FORBIDDEN;
            if refusal.status == StatusCode::NOT_FOUND && matches!(request, Request::Delete { .. }) {
                self.applied(view, &request, Value::Null)?;
            } else if refusal.is_stale() && self.stale < MAX_STALE {
                debug!(%request, %refusal, "something was changed by another hand");
                return Err(Stop::Stale);
            } else if let Some([first, second]) =
                request.split().filter(|_| !is_about_all(&request, &refusal))
            {
                pending.push((second, None));
                pending.push((first, None));
            } else if matches!(refusal.kind.as_str(), "TrunkPortInUse" | "PortInUseAsSubPort") {
                self.refusals.record_elsewhere(&request);
            } else {
                let reason = reason(&request, &refusal);
                debug!(%request, reason, "refused");
                self.refusals.record(&request, &reason);
                let count = same.entry(reason.clone()).or_default();
                *count += 1;
                let is_same = *count >= MAX_SAME_REFUSALS && refusal.status != StatusCode::FORBIDDEN;
                if is_same || refusal.kind == "OverQuota" {
                    of_all = Some(reason);
                }
            }
        }
        Ok(())
    }

    fn applied(&mut self, view: &mut View, request: &Request, answer: Value) -> Result<(), Stop> {
        match request.apply(view, answer) {
            Ok(ids) => self.changed.add(request, ids),
            Err(error) => {
                debug!(%request, %error, "an unexpected answer");
                return Err(Stop::Stale);
            }
        }
        if let Request::AddSubPorts { trunk, .. } | Request::RemoveSubPorts { trunk, .. } = request {
            self.trunks.insert(trunk.clone());
        }
        let (added, removed) = match request {
            Request::CreateNetworks(_) | Request::AddSubPorts { .. } => (request.count(), 0),
            Request::RemoveSubPorts { .. } => (0, request.count()),
            Request::Delete { resource } if resource.kind == Kind::Network => (0, 1),
            Request::CreatePorts(_) | Request::Update { .. } | Request::Delete { .. } => (0, 0),
        };
        self.convergence.count(added, removed);
        Ok(())
    }
}

/// What a request is about, as not done yet.
fn not_done_yet(request: &Request) -> Vec<Rejection> {
    let late = |vid| Rejection {
        item: Item::vlan(vid),
        reason: "Neutron has not been asked for it yet: ENO goes on".into(),
        retryable: true,
        unreachable: false,
    };
    request.vlans().iter().map(late).collect()
}
