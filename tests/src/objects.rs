//! Applies, awaits and deletes objects on the API server.

use std::collections::BTreeMap;
use std::fmt::Debug;

use eno::apply::nad_resource;
use eno_nbi_crds::{ConnectionPoint, EnoResource, Phase, manifest};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::runtime::watcher;
use kube::{Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::{System, TIMEOUT, connection_point, object};

const MANAGER: &str = "e2e";

/// The expected status of an object.
#[derive(Debug, Clone, Copy)]
pub struct ExpectedStatus<'a> {
    /// The expected phase.
    pub phase: Phase,
    /// Texts that its message must contain.
    pub message_parts: &'a [&'a str],
}

impl ExpectedStatus<'_> {
    fn met<K: EnoResource>(&self, object: &K) -> bool {
        let generation = object.meta().generation;
        object.status().is_some_and(|status| {
            let message = status.message.as_deref().unwrap_or_default();
            status.phase == Some(self.phase)
                && status.observed_generation == generation
                && self.message_parts.iter().all(|part| message.contains(part))
        })
    }
}

impl From<Phase> for ExpectedStatus<'static> {
    fn from(phase: Phase) -> Self {
        Self { phase, message_parts: &[] }
    }
}

/// A phase, and texts that the message must contain.
impl<'a> From<(Phase, &'a [&'a str])> for ExpectedStatus<'a> {
    fn from((phase, message_parts): (Phase, &'a [&'a str])) -> Self {
        Self { phase, message_parts }
    }
}

impl<'a, const N: usize> From<(Phase, &'a [&'a str; N])> for ExpectedStatus<'a> {
    fn from((phase, message_parts): (Phase, &'a [&'a str; N])) -> Self {
        Self { phase, message_parts }
    }
}

fn parse(yaml: &str) -> Vec<DynamicObject> {
    serde_saphyr::from_multiple(yaml).unwrap_or_else(|error| panic!("{error} in:\n{yaml}"))
}

/// The full name of an object: `[namespace/]name`.
fn full_name(object: &impl Resource) -> String {
    let name = object.name_any();
    object.namespace().map_or(name.clone(), |namespace| format!("{namespace}/{name}"))
}

impl System {
    /// The API of all objects of a kind.
    pub fn all<K: Resource<DynamicType = ()>>(&self) -> Api<K> {
        Api::all(self.client.clone())
    }

    fn api_of(&self, object: &DynamicObject) -> Api<DynamicObject> {
        let types = object.types.as_ref().expect("apiVersion and kind");
        let gvk = GroupVersionKind::try_from(types).expect("an apiVersion");
        let resource = match &*gvk.kind {
            "NetworkAttachmentDefinition" => nad_resource(),
            _ => ApiResource::from_gvk(&gvk),
        };
        match &object.metadata.namespace {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &resource),
            None => Api::all_with(self.client.clone(), &resource),
        }
    }

    /// Applies all documents of a YAML text as a user would, in no order.
    pub async fn apply(&self, yaml: &str) {
        if let Err(error) = self.try_apply(yaml).await {
            panic!("{error}\nin:\n{yaml}");
        }
    }

    /// Applies all documents of a YAML text, and waits until one of these objects is ready.
    pub async fn apply_until_ready<K>(&self, yaml: &str, name: &str) -> K
    where
        K: EnoResource + Clone + Debug + DeserializeOwned + serde::Serialize + Send + 'static,
    {
        self.apply(yaml).await;
        self.becomes(name, Phase::Ready).await
    }

    async fn try_apply(&self, yaml: &str) -> Result<(), kube::Error> {
        let params = PatchParams::apply(MANAGER).force();
        stream::iter(parse(yaml))
            .map(Ok)
            .try_for_each_concurrent(16, async |object| {
                let api = self.api_of(&object);
                api.patch(&object.name_any(), &params, &Patch::Apply(&object)).await.map(drop)
            })
            .await
    }

    /// Applies one document that the API server must refuse; returns the error message.
    pub async fn refused(&self, yaml: &str) -> String {
        match self.try_apply(yaml).await {
            Err(kube::Error::Api(status)) => status.message.clone(),
            Err(error) => panic!("{error}"),
            Ok(()) => panic!("it was not refused:\n{yaml}"),
        }
    }

    /// Merges a patch into an object.
    pub async fn patch(&self, kind: &str, name: &str, patch: Value) {
        let object = match kind {
            "Node" | "Namespace" => json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name}}),
            _ => manifest(kind, name, ()),
        };
        let object: DynamicObject = serde_json::from_value(object).expect("an object");
        let (api, params) = (self.api_of(&object), PatchParams::default());
        let patched = api.patch(&object.name_any(), &params, &Patch::Merge(&patch)).await;
        patched.unwrap_or_else(|error| panic!("patching {kind} {name}: {error}"));
    }

    /// Creates a namespace, and a NodePool and a ConnectionPoint of the same name with a node on each leaf.
    pub async fn create_connection_point(&self, name: &str) {
        self.namespace(name).await;
        for node in ["node1", "node3"] {
            let label = json!({"metadata": {"labels": {(format!("pool-{name}")): "yes"}}});
            self.patch("Node", node, label).await;
        }
        self.create_pool_and_point(name, "eth1").await;
    }

    /// Creates a NodePool of the nodes with the label `pool-<name>: 'yes'`, and a ConnectionPoint with the bridge `br0` on
    /// these NICs, which are separated by commas.
    pub async fn create_pool_and_point(&self, name: &str, interfaces: &str) {
        let selector = format!("NodeSelector: {{matchLabels: {{pool-{name}: 'yes'}}}}");
        let pool = object("NodePool", &format!("name: {name}"), &selector);
        let more = format!("NodePool: {name}, Interfaces: [{interfaces}]");
        self.apply(&[pool, connection_point(name, "br0", &more)].concat()).await;
        self.becomes::<ConnectionPoint>(name, Phase::Ready).await;
    }

    /// Creates a namespace, and waits until pods can be created in it.
    pub async fn namespace(&self, name: &str) {
        self.apply(&format!("{{apiVersion: v1, kind: Namespace, metadata: {{name: {name}}}}}")).await;
        let accounts: Api<k8s_openapi::api::core::v1::ServiceAccount> =
            Api::namespaced(self.client.clone(), name);
        self.until(accounts, watcher::Config::default(), "a service account", |all| !all.is_empty()).await;
    }

    /// Requests the deletion of all documents of a YAML text, in no order, without waiting.
    pub async fn request_deletion(&self, yaml: &str) {
        let deletions = stream::iter(parse(yaml)).map(Ok).try_for_each_concurrent(16, async |object| {
            match self.api_of(&object).delete(&object.name_any(), &DeleteParams::background()).await {
                Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
                result => result.map(drop),
            }
        });
        deletions.await.unwrap_or_else(|error| panic!("deleting: {error}"));
    }

    /// Deletes all documents of a YAML text and waits until they are gone.
    pub async fn delete(&self, yaml: &str) {
        self.request_deletion(yaml).await;
        for object in parse(yaml) {
            let name = object.name_any();
            let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
            let kind = object.types.as_ref().map(|types| types.kind.clone()).unwrap_or_default();
            self.until(self.api_of(&object), config, &format!("{kind} {name} gone"), BTreeMap::is_empty)
                .await;
        }
    }

    /// Waits until `good` accepts the objects of a watch.
    pub async fn until<K>(
        &self,
        api: Api<K>,
        config: watcher::Config,
        what: &str,
        mut good: impl FnMut(&BTreeMap<String, K>) -> bool,
    ) -> BTreeMap<String, K>
    where
        K: Resource + Clone + Debug + DeserializeOwned + serde::Serialize + Send + 'static,
    {
        let mut objects = BTreeMap::new();
        let waiting = async {
            let mut events = std::pin::pin!(watcher(api, config));
            let mut complete = false;
            while let Some(event) = events.next().await {
                match event {
                    Ok(watcher::Event::Init) => {
                        complete = false;
                        objects.clear();
                    }
                    Ok(watcher::Event::InitApply(object) | watcher::Event::Apply(object)) => {
                        objects.insert(full_name(&object), object);
                    }
                    Ok(watcher::Event::InitDone) => complete = true,
                    Ok(watcher::Event::Delete(object)) => drop(objects.remove(&full_name(&object))),
                    // The watcher retries by itself.
                    Err(_) => {}
                }
                if complete && good(&objects) {
                    break;
                }
            }
        };
        if timeout(TIMEOUT, waiting).await.is_err() {
            let shown = objects.iter().map(|(name, object)| {
                let status = serde_json::to_value(object).map(|object| object["status"].to_string());
                format!("\n  {name}: {}", status.unwrap_or_default())
            });
            panic!(
                "{what}: not seen; there are {} objects:{}",
                objects.len(),
                shown.take(20).collect::<String>()
            );
        }
        objects
    }

    /// Waits until one object's status is as expected for its current spec.
    pub async fn becomes<'a, K>(&self, name: &str, wanted: impl Into<ExpectedStatus<'a>>) -> K
    where
        K: EnoResource + Clone + Debug + DeserializeOwned + serde::Serialize + Send + 'static,
    {
        let wanted = wanted.into();
        self.until_one(name, &format!("{wanted:?}"), |object| wanted.met(object)).await
    }

    /// Waits until `good` accepts an object, `[namespace/]name`.
    pub async fn until_one<K>(&self, name: &str, what: &str, good: impl Fn(&K) -> bool) -> K
    where
        K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + serde::Serialize + Send + 'static,
    {
        let fields = match name.split_once('/') {
            Some((namespace, name)) => format!("metadata.name={name},metadata.namespace={namespace}"),
            None => format!("metadata.name={name}"),
        };
        let what = format!("{} {name}: {what}", K::kind(&()));
        let config = watcher::Config::default().fields(&fields);
        let mut found = self.until(self.all::<K>(), config, &what, |all| all.values().any(&good)).await;
        found.pop_first().expect("the object").1
    }

    /// Waits until all objects of a kind with the label `test` of this value have this phase.
    pub async fn all_become<K>(&self, test: &str, count: usize, phase: Phase)
    where
        K: EnoResource + Clone + Debug + DeserializeOwned + serde::Serialize + Send + 'static,
    {
        let what = format!("{count} {}s of {test} {phase}", K::kind(&()));
        let wanted = ExpectedStatus::from(phase);
        let config = watcher::Config::default().labels(&format!("test={test}"));
        self.until(self.all::<K>(), config, &what, |all| {
            all.values().filter(|object| wanted.met(*object)).count() == count
        })
        .await;
    }

    /// Waits until no object of a kind with the label `test` of this value is left.
    pub async fn none_left<K>(&self, test: &str)
    where
        K: EnoResource + Clone + Debug + DeserializeOwned + serde::Serialize + Send + 'static,
    {
        let config = watcher::Config::default().labels(&format!("test={test}"));
        self.until(self.all::<K>(), config, &format!("no {} of {test}", K::kind(&())), BTreeMap::is_empty)
            .await;
    }

    /// Waits until a namespace is gone.
    pub async fn namespace_gone(&self, name: &str) {
        let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
        self.until(self.all::<Namespace>(), config, &format!("namespace {name} gone"), BTreeMap::is_empty)
            .await;
    }

    /// The NetworkAttachmentDefinitions of a namespace.
    pub fn nads(&self, namespace: &str) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), namespace, &nad_resource())
    }

    /// Waits until `good` accepts the NetworkAttachmentDefinition's configuration; returns the object and its
    /// configuration.
    pub async fn nad(&self, name: &str, mut good: impl FnMut(&Value) -> bool) -> (DynamicObject, Value) {
        let (namespace, plain) = name.split_once('/').expect("namespace/name");
        let config = watcher::Config::default().fields(&format!("metadata.name={plain}"));
        let what = format!("NetworkAttachmentDefinition {name}");
        let seen = |all: &BTreeMap<String, DynamicObject>| all.values().any(|nad| good(&configuration(nad)));
        let mut found = self.until(self.nads(namespace), config, &what, seen).await;
        let nad = found.pop_first().expect("the object").1;
        let configuration = configuration(&nad);
        (nad, configuration)
    }
}

/// The CNI configuration in a NetworkAttachmentDefinition.
fn configuration(nad: &DynamicObject) -> Value {
    let text = nad.data.pointer("/spec/config").and_then(Value::as_str).unwrap_or_default();
    serde_json::from_str(text).unwrap_or_default()
}
