//! The driver: carries out plans at the API server.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use eno_sbi::{Driver, Identity, Reconciled, Work};
use eno_schemas::{Applied, Desired, Failure, Item, NadDesired, PayloadKind, Rejection};
use futures::{Stream, StreamExt, stream};
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions, ValidationDirective};
use kube::core::DynamicObject;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use serde_json::Value;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::api_error::CallError;
use crate::cache::{LastOutcome, NadCache, WatchState};
use crate::codec;
use crate::object::{ContentHash, DesiredNad, Guard, ObservedNad, resource};
use crate::plan::{Plan, plan};

/// The field manager of all writes.
pub const FIELD_MANAGER: &str = "eno-driver-nad";
/// Maximum concurrent API calls: the API server is not faster with more.
const CONCURRENT_CALLS: usize = 32;
/// Time limit of one API call.
const CALL_TIMEOUT: Duration = Duration::from_secs(15);
/// Time that a reconcile waits for the first listing, and for finalizers of others.
const WAIT_TIMEOUT: Duration = Duration::from_secs(10);
/// Number of plans that other writers may invalidate before the target is retried later.
const MAX_ATTEMPTS: usize = 4;

/// The driver `nad`. Dropping it ends its watch.
pub struct NadDriver {
    client: Client,
    cache: Arc<NadCache>,
    calls: Semaphore,
    changed: Mutex<Option<mpsc::UnboundedReceiver<String>>>,
    _watch: DropGuard,
}

/// The result of a reconcile.
enum ReconcileEnd {
    Present(ContentHash),
    Absent,
    /// Rejected with a reason. `present`: our object exists and stays as it is.
    Rejected {
        reason: String,
        present: bool,
    },
}

impl NadDriver {
    /// Starts the watch. Needs a tokio runtime; returns before the first listing.
    pub fn new(client: Client) -> Self {
        let (changed_sender, changed) = mpsc::unbounded_channel();
        let cache = Arc::new(NadCache::new(changed_sender));
        let stop = CancellationToken::new();
        tokio::spawn(stop.clone().run_until_cancelled_owned(run_watch(client.clone(), Arc::clone(&cache))));
        Self {
            client,
            cache,
            calls: Semaphore::new(CONCURRENT_CALLS),
            changed: Mutex::new(Some(changed)),
            _watch: stop.drop_guard(),
        }
    }

    /// Follows the state of the watch, for probes.
    pub fn watch(&self) -> watch::Receiver<WatchState> {
        self.cache.watch()
    }

    /// Plans and applies until the object is as desired. `seen` is the last known object, before and after
    /// each step.
    async fn converge(
        &self,
        work: &Work,
        target: &str,
        desired: &NadDesired,
        seen: &mut Option<ObservedNad>,
    ) -> Result<ReconcileEnd, Failure> {
        *seen = self.current_state(target, desired).await?;
        let wanted =
            match desired.attachment.as_ref().map(|attachment| codec::render(&desired.name, attachment)) {
                None => None,
                Some(Ok(rendered)) => Some(DesiredNad::new(desired, rendered)),
                Some(Err(unsupported)) => {
                    let present = seen.as_ref().is_some_and(|seen| seen.belongs_to(&desired.owner.uid));
                    return Ok(ReconcileEnd::Rejected { reason: unsupported.to_string(), present });
                }
            };
        let api = self.api(&desired.namespace);
        for _ in 0..MAX_ATTEMPTS {
            let next = plan(&desired.owner.uid, wanted.as_ref(), seen.as_ref());
            if matches!(next, Plan::Create(_) | Plan::Update(..) | Plan::Delete(_)) && !work.is_current() {
                return Err(Failure::retryable("a newer command came"));
            }
            match next {
                Plan::Keep(content) => return Ok(ReconcileEnd::Present(content)),
                Plan::Absent => return Ok(ReconcileEnd::Absent),
                Plan::Refuse { holder } => {
                    let reason = format!(
                        "the name is taken: the NetworkAttachmentDefinition {target} belongs to {holder}; \
                         delete it or give the attachment another name"
                    );
                    return Ok(ReconcileEnd::Rejected { reason, present: false });
                }
                Plan::Create(wanted) => match self.apply(&api, target, wanted, Guard::Absent).await {
                    Ok(written) => *seen = Some(written),
                    Err(error) if error.is_conflict() => {
                        *seen = self.read(&api, target, &desired.name).await?;
                    }
                    Err(error) => return Err((&error).into()),
                },
                Plan::Update(wanted, there) => {
                    match self.apply(&api, target, wanted, Guard::Uid(&there.uid)).await {
                        Ok(written) => *seen = Some(written),
                        Err(error) if error.is_conflict() || error.is_not_found() => {
                            *seen = self.read(&api, target, &desired.name).await?;
                        }
                        Err(error) => return Err((&error).into()),
                    }
                }
                Plan::Delete(there) => match self.delete(&api, target, &desired.name, &there.uid).await {
                    Ok(left) => *seen = left,
                    Err(error) if error.is_conflict() => {
                        *seen = self.read(&api, target, &desired.name).await?;
                    }
                    Err(error) => return Err((&error).into()),
                },
                Plan::AwaitGone(there) => *seen = self.await_gone(target, there).await?,
            }
        }
        Err(Failure::retryable(format!(
            "another writer or an admission webhook changes {target} again and again"
        )))
    }

    /// The object from the cache while the watch is synced, otherwise from a read.
    async fn current_state(
        &self,
        target: &str,
        desired: &NadDesired,
    ) -> Result<Option<ObservedNad>, Failure> {
        let mut watch = self.cache.watch();
        let started =
            tokio::time::timeout(WAIT_TIMEOUT, watch.wait_for(|state| *state != WatchState::Starting)).await;
        if started.is_ok_and(|state| state.is_ok_and(|state| *state == WatchState::Synced)) {
            Ok(self.cache.seen(target))
        } else {
            self.read(&self.api(&desired.namespace), target, &desired.name).await
        }
    }

    async fn read(
        &self,
        api: &Api<DynamicObject>,
        target: &str,
        name: &str,
    ) -> Result<Option<ObservedNad>, Failure> {
        match self.call("reading the NetworkAttachmentDefinition", api.get(name)).await {
            Ok(object) => {
                let seen = ObservedNad::of(&object);
                self.cache.update_from_response(target, seen.clone());
                Ok(Some(seen))
            }
            Err(error) if error.is_not_found() || error.is_namespace_gone() => {
                self.cache.remove_from_response(target);
                Ok(None)
            }
            Err(error) => Err((&error).into()),
        }
    }

    async fn apply(
        &self,
        api: &Api<DynamicObject>,
        target: &str,
        wanted: &DesiredNad,
        guard: Guard<'_>,
    ) -> Result<ObservedNad, CallError> {
        let parameters = PatchParams {
            force: guard != Guard::Absent,
            // The field validation would cost the API server a second parse, and a NAD's schema is known.
            field_validation: Some(ValidationDirective::Ignore),
            ..PatchParams::apply(FIELD_MANAGER)
        };
        let name = wanted.name();
        let patch = Patch::Apply(wanted.apply(guard));
        let mut object = self
            .call("applying the NetworkAttachmentDefinition", api.patch(name, &parameters, &patch))
            .await?;
        if let Some(patch) = wanted.without_foreign_resource_name(&object) {
            let parameters =
                PatchParams { field_manager: Some(FIELD_MANAGER.into()), ..PatchParams::default() };
            let patch: Patch<Value> = Patch::Merge(patch);
            object = self
                .call("patching the NetworkAttachmentDefinition", api.patch(name, &parameters, &patch))
                .await?;
        }
        let seen = ObservedNad::of(&object);
        self.cache.update_from_response(target, seen.clone());
        Ok(seen)
    }

    /// Returns `None` when the object is gone, which the API server reports only after it left its store. An
    /// object with finalizers is returned.
    async fn delete(
        &self,
        api: &Api<DynamicObject>,
        target: &str,
        name: &str,
        uid: &str,
    ) -> Result<Option<ObservedNad>, CallError> {
        let preconditions = Preconditions { uid: Some(uid.to_owned()), resource_version: None };
        let parameters = DeleteParams::background().preconditions(preconditions);
        match self.call("deleting the NetworkAttachmentDefinition", api.delete(name, &parameters)).await {
            Ok(either) => Ok(either.left().map(|object| {
                let seen = ObservedNad::of(&object);
                self.cache.update_from_response(target, seen.clone());
                seen
            })),
            Err(error) if error.is_not_found() || error.is_namespace_gone() => Ok(None),
            Err(error) => Err(error),
        }
        .inspect(|left| {
            if left.is_none() {
                self.cache.remove_from_response(target);
            }
        })
    }

    /// Waits for the watch to see the deletion of the object with this uid. Returns the object that replaced
    /// it.
    async fn await_gone(&self, target: &str, deleted: &ObservedNad) -> Result<Option<ObservedNad>, Failure> {
        let mut events = self.cache.events();
        let gone = async {
            loop {
                match self.cache.seen(target) {
                    Some(seen) if seen.uid == deleted.uid => {}
                    other => return other,
                }
                // The sender lives as long as the cache.
                let _ = events.changed().await;
            }
        };
        tokio::time::timeout(WAIT_TIMEOUT, gone).await.map_err(|_| Failure {
            reason: format!(
                "the NetworkAttachmentDefinition {target} is deleted and waits for its finalizers: {}",
                deleted.finalizers.as_deref().unwrap_or_default()
            )
            .into(),
            // The watch notifies its end; without a watch only a retry helps.
            retryable: *self.cache.watch().borrow() != WatchState::Synced,
            unreachable: false,
        })
    }

    async fn call<T>(
        &self,
        operation: &'static str,
        call: impl Future<Output = Result<T, kube::Error>>,
    ) -> Result<T, CallError> {
        // The semaphore is never closed.
        let _permit = self.calls.acquire().await.ok();
        tokio::time::timeout(CALL_TIMEOUT, call)
            .await
            .map_err(|_| CallError::Timeout { operation, seconds: CALL_TIMEOUT.as_secs() })?
            .map_err(|source| CallError::Api { operation, source })
    }

    fn api(&self, namespace: &str) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), namespace, &resource())
    }
}

impl Driver for NadDriver {
    fn identity(&self) -> Identity {
        Identity {
            name: "nad".into(),
            kinds: vec![PayloadKind::Nad],
            capabilities: codec::PLUGINS.iter().copied().map(String::from).collect(),
        }
    }

    async fn reconcile(&self, work: Work) -> Reconciled {
        let command = Arc::clone(&work.command);
        let target = command.target.as_str();
        let Desired::Nad(desired) = &command.desired else {
            return wrong(format!("the driver nad makes no {:?} targets", command.desired.kind()));
        };
        if target != format!("{}/{}", desired.namespace, desired.name) {
            return wrong(format!("target {target} is not {}/{}", desired.namespace, desired.name));
        }
        self.cache.start_reconcile(target);
        let mut seen = self.cache.seen(target);
        let end = self.converge(&work, target, desired, &mut seen).await;
        let version = seen.map_or(0, |seen| seen.version);
        self.cache.finish_reconcile(
            target,
            match &end {
                Ok(ReconcileEnd::Present(content)) => LastOutcome::Present(*content),
                Ok(ReconcileEnd::Absent | ReconcileEnd::Rejected { .. }) => LastOutcome::Settled(version),
                Err(_) => LastOutcome::Failed(version),
            },
        );
        match end {
            Ok(ReconcileEnd::Present(_)) => Reconciled::applied(Applied::Nad { present: true }),
            Ok(ReconcileEnd::Absent) => Reconciled::applied(Applied::Nad { present: false }),
            Ok(ReconcileEnd::Rejected { reason, present }) => Reconciled {
                // The watch notifies when another try may help.
                rejected: vec![Rejection::permanent(Item::TARGET, reason)],
                ..Reconciled::applied(Applied::Nad { present })
            },
            Err(failure) => Reconciled::failed(failure),
        }
    }

    fn changed(&self) -> impl Stream<Item = String> + Send + 'static {
        let changed = self.changed.lock().unwrap_or_else(PoisonError::into_inner).take();
        stream::unfold(changed, |changed| async move {
            let mut changed = changed?;
            changed.recv().await.map(|target| (target, Some(changed)))
        })
    }

    async fn forget(&self, target: &str) {
        self.cache.forget(target);
    }
}

/// The outcome of a command that no retry helps.
fn wrong(reason: String) -> Reconciled {
    Reconciled::failed(Failure::permanent(reason))
}

/// Follows the cluster and updates the cache. Never ends.
async fn run_watch(client: Client, cache: Arc<NadCache>) {
    let api = Api::<DynamicObject>::all_with(client, &resource());
    let mut events = watcher(api, watcher::Config::default()).default_backoff().boxed();
    while let Some(event) = events.next().await {
        match event {
            Ok(watcher::Event::Init) => cache.start_listing(),
            Ok(watcher::Event::InitApply(object)) => {
                cache.add_listed(&target_of(&object), ObservedNad::of(&object));
            }
            Ok(watcher::Event::InitDone) => cache.finish_listing(),
            Ok(watcher::Event::Apply(object)) => {
                cache.update_from_watch(&target_of(&object), ObservedNad::of(&object));
                cache.watch_resumed();
            }
            Ok(watcher::Event::Delete(object)) => {
                cache.remove_from_watch(&target_of(&object), ObservedNad::of(&object).version);
                cache.watch_resumed();
            }
            Err(error) => {
                tracing::warn!(%error, "the watch on NetworkAttachmentDefinitions is tried again");
                cache.watch_failed();
            }
        }
    }
}

fn target_of(object: &DynamicObject) -> String {
    format!("{}/{}", object.namespace().unwrap_or_default(), object.name_any())
}
