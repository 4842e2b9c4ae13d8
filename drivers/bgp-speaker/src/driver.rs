//! The driver: carries out plans at the API server.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use eno_sbi::{Driver, Identity, Reconciled, Work};
use eno_schemas::{
    ANNOUNCED_TO_ALL, Applied, Desired, Failure, Item, Note, PayloadKind, Rejection, SpeakerDesired,
};
use futures::{Stream, StreamExt, stream};
use kube::api::{DeleteParams, GetParams, ListParams, Patch, PatchParams, Preconditions};
use kube::core::{ApiResource, DynamicObject, Request};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};
use serde::Deserialize;
use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::api_error::CallError;
use crate::metallb::{self, Kind, Wanted, announced_to_all, group_of};
use crate::plan::{Step, plan};

/// The field manager of all writes.
pub const FIELD_MANAGER: &str = "eno-driver-bgp-speaker";
/// Time limit of one API call.
const CALL_TIMEOUT: Duration = Duration::from_secs(15);
/// The type of Secrets that MetalLB reads passwords of.
const SECRET_TYPE: &str = "kubernetes.io/basic-auth";

/// The driver `bgp-speaker`. Dropping it ends its watches.
pub struct SpeakerDriver {
    client: Client,
    namespace: String,
    known: Arc<Known>,
    changed: Mutex<Option<mpsc::UnboundedReceiver<String>>>,
    _watches: DropGuard,
}

/// The groups that have objects, and where their changes are notified.
struct Known {
    groups: Mutex<BTreeSet<String>>,
    changed: mpsc::UnboundedSender<String>,
}

/// A Secret without its content.
#[derive(Deserialize)]
struct SecretType {
    #[serde(rename = "type")]
    type_: Option<String>,
}

impl SpeakerDriver {
    /// Starts the watches. Needs a tokio runtime.
    pub fn new(client: Client, metallb_namespace: String) -> Self {
        let (sender, changed) = mpsc::unbounded_channel();
        let known = Arc::new(Known { groups: Mutex::default(), changed: sender });
        let stop = CancellationToken::new();
        for resource in Kind::ALL.map(Kind::resource).into_iter().chain([metallb::advertisements()]) {
            let api = Api::namespaced_with(client.clone(), &metallb_namespace, &resource);
            let watch = run_watch(api, resource, Arc::clone(&known));
            tokio::spawn(stop.clone().run_until_cancelled_owned(watch));
        }
        Self {
            client,
            namespace: metallb_namespace,
            known,
            changed: Mutex::new(Some(changed)),
            _watches: stop.drop_guard(),
        }
    }

    /// Brings the objects of a group to their desired state. `Err`: the failure.
    async fn converge(&self, work: &Work, group: &SpeakerDesired) -> Result<Vec<Note>, Failure> {
        if let Some(secret) = group.sessions.as_ref().and_then(|sessions| sessions.password.as_deref()) {
            self.check_secret(secret).await?;
        }
        let mut observed = Vec::new();
        for kind in Kind::ALL {
            match self.list(&kind.resource()).await {
                Ok(objects) => observed.push((kind, objects)),
                // Without MetalLB there is nothing to remove.
                Err(error) if error.is_not_found() && group.sessions.is_none() => {}
                Err(error) => return Err(error.into()),
            }
        }
        for step in plan(group, &self.namespace, &observed).map_err(Failure::permanent)? {
            if !work.is_current() {
                return Err(Failure::retryable("a newer command came"));
            }
            match step {
                Step::Apply { wanted, uid } => self.apply(group, &wanted, uid.as_deref()).await?,
                Step::Delete { kind, name, uid } => self.delete(kind, &name, uid).await?,
            }
        }
        if group.sessions.is_none() {
            return Ok(Vec::new());
        }
        let advertisements = self.list(&metallb::advertisements()).await?;
        let to_all = announced_to_all(&advertisements);
        let note = to_all.first().map(|first| {
            let message = format!(
                "BGPAdvertisement {}/{first} names no peers, so MetalLB announces its addresses by this BGPSessionGroup too; give \
                 each BGPAdvertisement its peers",
                self.namespace
            );
            Note::new(ANNOUNCED_TO_ALL, Item::TARGET, message)
        });
        Ok(note.into_iter().collect())
    }

    /// MetalLB drops its whole configuration when a BGPPeer names a Secret that it can't use.
    async fn check_secret(&self, name: &str) -> Result<(), Failure> {
        let request = Request::new(format!("/api/v1/namespaces/{}/secrets", self.namespace));
        let request = request.get(name, &GetParams::default()).map_err(|error| {
            Failure::permanent(format!("the name of Secret {name:?} makes no request: {error}"))
        })?;
        let secret = format!("Secret {}/{name}", self.namespace);
        let found: Result<SecretType, CallError> =
            self.call(format!("reading the type of {secret}"), self.client.request(request)).await;
        match found {
            Ok(found) if found.type_.as_deref() == Some(SECRET_TYPE) => Ok(()),
            Ok(_) => Err(Failure::retryable(format!("{secret} is not of the type {SECRET_TYPE}"))),
            Err(error) if error.is_not_found() => Err(Failure {
                unreachable: true,
                ..Failure::retryable(format!(
                    "{secret} does not exist; create it with the type {SECRET_TYPE}"
                ))
            }),
            Err(error) if error.code() == 403 => Err(Failure::retryable(format!(
                "the driver may not read {secret}; create a Role there with the verb get on this Secret, and bind it to the \
                 ServiceAccount eno-driver-bgp-speaker of eno-system"
            ))),
            Err(error) => Err(error.into()),
        }
    }

    async fn list(&self, resource: &ApiResource) -> Result<Vec<DynamicObject>, CallError> {
        let api = self.api(resource);
        let operation = format!("listing the {}s in the namespace {}", resource.kind, self.namespace);
        self.call(operation, api.list(&ListParams::default())).await.map(|list| list.items)
    }

    async fn apply(&self, group: &SpeakerDesired, wanted: &Wanted, uid: Option<&str>) -> Result<(), Failure> {
        let api = self.api(&wanted.kind.resource());
        let what = format!("{} {}/{}", wanted.kind.as_str(), self.namespace, wanted.name);
        let parameters = PatchParams { force: uid.is_some(), ..PatchParams::apply(FIELD_MANAGER) };
        let manifest = Patch::Apply(wanted.manifest(group, uid));
        let written =
            self.call(format!("applying the {what}"), api.patch(&wanted.name, &parameters, &manifest));
        if wanted.is_met(group, &written.await?) {
            return Ok(());
        }
        Err(Failure::retryable(format!(
            "another writer or an admission webhook sets other fields of the {what}"
        )))
    }

    async fn delete(&self, kind: Kind, name: &str, uid: String) -> Result<(), Failure> {
        let api = self.api(&kind.resource());
        let what = format!("{} {}/{name}", kind.as_str(), self.namespace);
        let preconditions = Preconditions { uid: Some(uid), resource_version: None };
        let parameters = DeleteParams::background().preconditions(preconditions);
        match self.call(format!("deleting the {what}"), api.delete(name, &parameters)).await {
            Ok(either) if either.is_left() => {
                Err(Failure::retryable(format!("the {what} is deleted and waits for its finalizers")))
            }
            Ok(_) => Ok(()),
            Err(error) if error.is_not_found() => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    async fn call<T>(
        &self,
        operation: String,
        call: impl Future<Output = Result<T, kube::Error>>,
    ) -> Result<T, CallError> {
        match tokio::time::timeout(CALL_TIMEOUT, call).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(source)) => Err(CallError::new(operation, Some(source))),
            Err(_) => Err(CallError::new(operation, None)),
        }
    }

    fn api(&self, resource: &ApiResource) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), &self.namespace, resource)
    }
}

impl Driver for SpeakerDriver {
    fn identity(&self) -> Identity {
        Identity {
            name: "bgp-speaker".into(),
            kinds: vec![PayloadKind::Speaker],
            capabilities: vec![eno_schemas::Speaker::MetalLB.to_string()],
        }
    }

    async fn reconcile(&self, work: Work) -> Reconciled {
        let command = Arc::clone(&work.command);
        let Desired::Speaker(group) = &command.desired else {
            let kind = command.desired.kind();
            return Reconciled::failed(Failure::permanent(format!(
                "the driver bgp-speaker makes no {kind:?} targets"
            )));
        };
        if command.target != group.name {
            let reason = format!("target {} is not {}", command.target, group.name);
            return Reconciled::failed(Failure::permanent(reason));
        }
        self.known.groups().insert(group.name.clone());
        match self.converge(&work, group).await {
            Ok(notes) => {
                let applied = Applied::Speaker { present: group.sessions.is_some() };
                Reconciled { notes, ..Reconciled::applied(applied) }
            }
            // The host tries again what is rejected, since the obstacle may go.
            Err(Failure { reason, retryable: false, .. }) => Reconciled {
                rejected: vec![Rejection::permanent(Item::TARGET, reason)],
                ..Reconciled::applied(Applied::Speaker { present: false })
            },
            Err(failure) => Reconciled::failed(failure),
        }
    }

    fn changed(&self) -> impl Stream<Item = String> + Send + 'static {
        let changed = self.changed.lock().unwrap_or_else(PoisonError::into_inner).take();
        stream::unfold(changed, |changed| async move {
            let mut changed = changed?;
            changed.recv().await.map(|group| (group, Some(changed)))
        })
    }

    async fn forget(&self, target: &str) {
        self.known.groups().remove(target);
    }
}

impl Known {
    fn groups(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.groups.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notifies that the objects of a group changed; `None`: those of any group may have.
    fn notify(&self, group: Option<&str>) {
        let groups = self.groups();
        let concerned = groups.iter().filter(|name| group.is_none_or(|group| group == *name));
        for name in concerned {
            // The receiver is missing without a host.
            let _ = self.changed.send(name.clone());
        }
    }
}

/// Follows the objects of a kind. Never ends.
async fn run_watch(api: Api<DynamicObject>, resource: ApiResource, known: Arc<Known>) {
    let mut events = watcher(api, watcher::Config::default()).default_backoff().boxed();
    while let Some(event) = events.next().await {
        match event {
            Ok(watcher::Event::Init | watcher::Event::InitApply(_)) => {}
            // Also when the definition comes.
            Ok(watcher::Event::InitDone) => known.notify(None),
            Ok(watcher::Event::Apply(object) | watcher::Event::Delete(object)) => {
                known.notify(group_of(&object));
            }
            Err(error) => tracing::debug!(%error, kind = resource.kind, "the watch is tried again"),
        }
    }
}
