//! The driver: plans carried out at the API server.

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

use crate::codec;
use crate::failure::CallError;
use crate::mirror::{Left, Mirror, Watch};
use crate::object::{Content, Guard, Seen, Wanted, resource};
use crate::plan::{Plan, plan};

/// The field manager of all that we write.
pub const FIELD_MANAGER: &str = "eno-driver-nad";
/// How many calls are under way at once: the API server is not faster with more.
const CONCURRENT_CALLS: usize = 32;
/// How long one call may take.
const CALL_TIMEOUT: Duration = Duration::from_secs(15);
/// How long a reconciliation waits for the first listing, and for finalizers of others.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often a plan may be overtaken by another writer before the host is asked to try again later.
const ATTEMPTS: usize = 4;

/// The driver `nad`. Dropping it ends its watch.
pub struct NadDriver {
    client: Client,
    mirror: Arc<Mirror>,
    calls: Semaphore,
    changed: Mutex<Option<mpsc::UnboundedReceiver<String>>>,
    _watch: DropGuard,
}

/// Where a reconciliation ended.
enum End {
    Present(Content),
    Absent,
    /// With a reason. `present`: what there is of ours stays as it was.
    Rejected {
        reason: String,
        present: bool,
    },
}

impl NadDriver {
    /// Starts watching. Needs a tokio runtime; returns before anything is known of the cluster.
    pub fn new(client: Client) -> Self {
        let (tell, changed) = mpsc::unbounded_channel();
        let mirror = Arc::new(Mirror::new(tell));
        let stop = CancellationToken::new();
        tokio::spawn(stop.clone().run_until_cancelled_owned(observe(client.clone(), Arc::clone(&mirror))));
        Self {
            client,
            mirror,
            calls: Semaphore::new(CONCURRENT_CALLS),
            changed: Mutex::new(Some(changed)),
            _watch: stop.drop_guard(),
        }
    }

    /// Whether what is there is known without asking: for probes.
    pub fn watch(&self) -> watch::Receiver<Watch> {
        self.mirror.watch()
    }

    /// `seen`: what is there, as far as the work has come; at first what was there before it.
    async fn bring(
        &self,
        work: &Work,
        target: &str,
        desired: &NadDesired,
        seen: &mut Option<Seen>,
    ) -> Result<End, Failure> {
        *seen = self.see(target, desired).await?;
        let wanted =
            match desired.attachment.as_ref().map(|attachment| codec::render(&desired.name, attachment)) {
                None => None,
                Some(Ok(rendered)) => Some(Wanted::new(desired, rendered)),
                Some(Err(impossible)) => {
                    let present = seen.as_ref().is_some_and(|seen| seen.belongs_to(&desired.owner.uid));
                    return Ok(End::Rejected { reason: impossible.to_string(), present });
                }
            };
        let api = self.api(&desired.namespace);
        for _ in 0..ATTEMPTS {
            let next = plan(&desired.owner.uid, wanted.as_ref(), seen.as_ref());
            if matches!(next, Plan::Create(_) | Plan::Update(..) | Plan::Delete(_)) && !work.is_current() {
                return Err(retry_later("a newer command came".into()));
            }
            match next {
                Plan::Keep(content) => return Ok(End::Present(content)),
                Plan::Absent => return Ok(End::Absent),
                Plan::Refuse { holder } => {
                    let reason = format!(
                        "the name is taken: the NetworkAttachmentDefinition {target} belongs to {holder}; \
                         delete it or give the attachment another name"
                    );
                    return Ok(End::Rejected { reason, present: false });
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
        Err(retry_later(format!("another writer or an admission webhook changes {target} again and again")))
    }

    /// What is there: from the watch while it works, else read.
    async fn see(&self, target: &str, desired: &NadDesired) -> Result<Option<Seen>, Failure> {
        let mut watch = self.mirror.watch();
        let started = tokio::time::timeout(PATIENCE, watch.wait_for(|state| *state != Watch::Starting)).await;
        if started.is_ok_and(|state| state.is_ok_and(|state| *state == Watch::Synced)) {
            Ok(self.mirror.seen(target))
        } else {
            self.read(&self.api(&desired.namespace), target, &desired.name).await
        }
    }

    async fn read(
        &self,
        api: &Api<DynamicObject>,
        target: &str,
        name: &str,
    ) -> Result<Option<Seen>, Failure> {
        match self.call("reading the NetworkAttachmentDefinition", api.get(name)).await {
            Ok(object) => {
                let seen = Seen::of(&object);
                self.mirror.answered(target, seen.clone());
                Ok(Some(seen))
            }
            Err(error) if error.is_not_found() || error.is_namespace_gone() => {
                self.mirror.answered_gone(target);
                Ok(None)
            }
            Err(error) => Err((&error).into()),
        }
    }

    async fn apply(
        &self,
        api: &Api<DynamicObject>,
        target: &str,
        wanted: &Wanted,
        guard: Guard<'_>,
    ) -> Result<Seen, CallError> {
        let parameters = PatchParams {
            force: guard != Guard::Absent,
            // Looking for unknown fields takes the API server a second parse, and a NAD's schema is known.
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
        let seen = Seen::of(&object);
        self.mirror.answered(target, seen.clone());
        Ok(seen)
    }

    /// `None`: it is gone. The API server says so only after the object left its store; one with finalizers it
    /// hands back.
    async fn delete(
        &self,
        api: &Api<DynamicObject>,
        target: &str,
        name: &str,
        uid: &str,
    ) -> Result<Option<Seen>, CallError> {
        let preconditions = Preconditions { uid: Some(uid.to_owned()), resource_version: None };
        let parameters = DeleteParams::background().preconditions(preconditions);
        match self.call("deleting the NetworkAttachmentDefinition", api.delete(name, &parameters)).await {
            Ok(either) => Ok(either.left().map(|object| {
                let seen = Seen::of(&object);
                self.mirror.answered(target, seen.clone());
                seen
            })),
            Err(error) if error.is_not_found() || error.is_namespace_gone() => Ok(None),
            Err(error) => Err(error),
        }
        .inspect(|left| {
            if left.is_none() {
                self.mirror.answered_gone(target);
            }
        })
    }

    /// Waits for the watch to see the object with this uid go; what is there instead then.
    async fn await_gone(&self, target: &str, deleted: &Seen) -> Result<Option<Seen>, Failure> {
        let mut events = self.mirror.events();
        let gone = async {
            loop {
                match self.mirror.seen(target) {
                    Some(seen) if seen.uid == deleted.uid => {}
                    other => return other,
                }
                // The sender lives as long as the mirror.
                let _ = events.changed().await;
            }
        };
        tokio::time::timeout(PATIENCE, gone).await.map_err(|_| Failure {
            reason: format!(
                "the NetworkAttachmentDefinition {target} is deleted and waits for its finalizers: {}",
                deleted.finalizers.as_deref().unwrap_or_default()
            ),
            // The watch wakes us when it goes; without a watch only trying again helps.
            retryable: *self.mirror.watch().borrow() != Watch::Synced,
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
            capabilities: ["ovs", "bridge", "macvlan", "ipvlan", "vlan", "host-device", "sriov", "userspace"]
                .map(String::from)
                .to_vec(),
        }
    }

    async fn reconcile(&self, work: Work) -> Reconciled {
        let command = Arc::clone(&work.command);
        let target = command.target.as_str();
        let Desired::Nad(desired) = &command.desired else {
            return Reconciled::failed(Failure {
                reason: format!("the driver nad makes no {:?} targets", command.desired.kind()),
                retryable: false,
                unreachable: false,
            });
        };
        if target != format!("{}/{}", desired.namespace, desired.name) {
            return Reconciled::failed(Failure {
                reason: format!("target {target} is not {}/{}", desired.namespace, desired.name),
                retryable: false,
                unreachable: false,
            });
        }
        self.mirror.work_on(target);
        let mut seen = self.mirror.seen(target);
        let end = self.bring(&work, target, desired, &mut seen).await;
        let version = seen.map_or(0, |seen| seen.version);
        self.mirror.leave(
            target,
            match &end {
                Ok(End::Present(content)) => Left::Present(*content),
                Ok(End::Absent | End::Rejected { .. }) => Left::Other(version),
                Err(_) => Left::Unsettled(version),
            },
        );
        match end {
            Ok(End::Present(_)) => Reconciled::applied(Applied::Nad { present: true }),
            Ok(End::Absent) => Reconciled::applied(Applied::Nad { present: false }),
            Ok(End::Rejected { reason, present }) => Reconciled {
                // The watch says when another try may help.
                rejected: vec![Rejection {
                    item: Item::TARGET,
                    reason,
                    retryable: false,
                    unreachable: false,
                }],
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
        self.mirror.forget(target);
    }
}

fn retry_later(reason: String) -> Failure {
    Failure { reason, retryable: true, unreachable: false }
}

/// Keeps the mirror true to the cluster, for ever.
async fn observe(client: Client, mirror: Arc<Mirror>) {
    let api = Api::<DynamicObject>::all_with(client, &resource());
    let mut events = watcher(api, watcher::Config::default()).default_backoff().boxed();
    while let Some(event) = events.next().await {
        match event {
            Ok(watcher::Event::Init) => mirror.listing(),
            Ok(watcher::Event::InitApply(object)) => mirror.listed(&target_of(&object), Seen::of(&object)),
            Ok(watcher::Event::InitDone) => mirror.listing_done(),
            Ok(watcher::Event::Apply(object)) => {
                mirror.observed(&target_of(&object), Seen::of(&object));
                mirror.resumed();
            }
            Ok(watcher::Event::Delete(object)) => {
                mirror.observed_gone(&target_of(&object), Seen::of(&object).version);
                mirror.resumed();
            }
            Err(error) => {
                tracing::warn!(%error, "the watch on NetworkAttachmentDefinitions is tried again");
                mirror.broken();
            }
        }
    }
}

fn target_of(object: &DynamicObject) -> String {
    format!("{}/{}", object.namespace().unwrap_or_default(), object.name_any())
}
