//! The state of the cluster, read once instead of watched. It can be stored part by part, and made of its parts again.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use eno_core::{Event, Key, Kind, Name, Pod, Uses};
use eno_schemas::Text;
use futures::TryStreamExt as _;
use futures::stream::FuturesUnordered;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, DynamicObject, ListParams};
use kube::core::{PartialObjectMeta, Selector, SelectorExt as _};
use kube::{Client, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::api;
use crate::inspect::follow::{ClusterChange, ListScope};
use crate::nodes::node_labels;
use crate::watch::ingest;
use crate::watch::networks::MULTUS_NAMESPACE;
use crate::watch::slim_objects::{self, SlimNode, SlimPod};

/// Objects per page of a list.
const PAGE_SIZE: u32 = 500;
const NODES: &str = "nodes";
const NAMESPACES: &str = "namespaces";
const PODS: &str = "pods";

/// The cluster could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The API server did not answer, or refused for a reason other than missing rights. A retry may help.
    #[error("listing {what}: {source}")]
    Listing {
        /// The listed resource, in the plural.
        what: String,
        /// Error of the client.
        source: Box<kube::Error>,
    },
    /// The user has no rights. A retry can't help.
    #[error(
        "bind ClusterRole eno-viewer: you may list none of the operator's kinds, neither in the whole cluster nor in namespace {0}"
    )]
    Nothing(String),
}

/// Stored objects don't make a cluster.
#[derive(Debug, thiserror::Error)]
pub enum StoredError {
    /// An object is not of its type.
    #[error("one of the stored {what} is not valid: {source}")]
    Object {
        /// The resource, in the plural.
        what: String,
        /// Error of the parser.
        source: serde_json::Error,
    },
    /// Nothing was read when they were stored.
    #[error(transparent)]
    Read(#[from] ReadError),
}

impl ReadError {
    fn is_forbidden(&self) -> bool {
        matches!(self, Self::Listing { source, .. }
            if matches!(&**source, kube::Error::Api(status) if status.code == 403))
    }
}

/// Objects that the user may not list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unlisted {
    /// In the plural.
    what: String,
    kind: Option<Kind>,
    /// The namespace in which they could be listed.
    except: Option<Name>,
}

impl Unlisted {
    /// The namespace in which they could be listed.
    pub fn namespace(&self) -> Option<&str> {
        self.except.as_deref()
    }
}

impl fmt::Display for Unlisted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.except {
            Some(namespace) => write!(f, "{} outside namespace {namespace}", self.what),
            None => f.write_str(&self.what),
        }
    }
}

/// One list of which a [`ClusterState`] consists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// The objects of one of the operator's kinds.
    Objects(Kind),
    /// The nodes.
    Nodes,
    /// The metadata of the namespaces.
    Namespaces,
    /// The pods that have not ended, with the fields that the operator reads.
    Pods,
}

impl Part {
    /// All parts.
    pub fn all() -> impl Iterator<Item = Self> {
        Kind::ALL.into_iter().map(Self::Objects).chain([Self::Nodes, Self::Namespaces, Self::Pods])
    }

    /// The name of the resource, in the plural.
    pub fn name(self) -> String {
        match self {
            Self::Objects(kind) => api::resource(kind).plural,
            Self::Nodes => NODES.to_owned(),
            Self::Namespaces => NAMESPACES.to_owned(),
            Self::Pods => PODS.to_owned(),
        }
    }

    /// What is not known of it; `except`: but for this namespace.
    pub fn unlisted(self, except: Option<&str>) -> Unlisted {
        let kind = match self {
            Self::Objects(kind) => Some(kind),
            Self::Nodes | Self::Namespaces | Self::Pods => None,
        };
        Unlisted { what: self.name(), kind, except: except.map(Name::from) }
    }

    /// Lists the part as far as the user may, and visits each object. Objects that can't be listed in the whole cluster
    /// are listed in `namespace`. It returns what could not be listed.
    pub async fn list(
        self,
        client: &Client,
        namespace: &str,
        mut visit: impl FnMut(Value),
    ) -> Result<Option<Unlisted>, ReadError> {
        match self {
            Self::Objects(kind) => objects(client, namespace, kind, to_value(&mut visit)).await,
            Self::Nodes => nodes(client, namespace, to_value(&mut visit)).await,
            Self::Namespaces => namespaces(client, to_value(&mut visit)).await,
            Self::Pods => pods(client, namespace, to_value(&mut visit)).await,
        }
    }
}

/// A visitor that gets an object as JSON. All types of objects here can be written as JSON.
fn to_value<K: Serialize>(visit: &mut impl FnMut(Value)) -> impl FnMut(K) {
    |object| serde_json::to_value(object).into_iter().for_each(&mut *visit)
}

/// A cluster, as its API server shows it.
#[derive(Clone, Debug, Default)]
pub struct ClusterState {
    objects: BTreeMap<Key, DynamicObject>,
    /// By name.
    nodes: BTreeMap<Name, SlimNode>,
    /// By name.
    namespaces: BTreeMap<Name, PartialObjectMeta<Namespace>>,
    /// By uid.
    pods: BTreeMap<Name, SlimPod>,
    left_out: Vec<Unlisted>,
}

/// A pod that has not ended.
#[derive(Clone, Debug)]
pub struct PodInfo<'a> {
    /// Its metadata.
    pub metadata: &'a ObjectMeta,
    /// The node on which it runs; absent: none yet.
    pub node: Option<Name>,
    /// The NetworkAttachmentDefinitions that it uses.
    pub uses: Uses,
}

impl PodInfo<'_> {
    /// Its uid; empty: it has none.
    pub fn uid(&self) -> &str {
        self.metadata.uid.as_deref().unwrap_or_default()
    }

    /// Its namespace.
    pub fn namespace(&self) -> &str {
        self.metadata.namespace.as_deref().unwrap_or_default()
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }
}

impl ClusterState {
    /// Lists all kinds that the engine watches, as far as the user may. A kind that the user may not list in the whole
    /// cluster is listed in `namespace`.
    pub async fn read(client: &Client, namespace: &str) -> Result<Self, ReadError> {
        let kinds: FuturesUnordered<_> = Kind::ALL
            .into_iter()
            .map(|kind| async move {
                let mut found = Vec::new();
                let left_out = objects(client, namespace, kind, |object| found.push(object)).await?;
                Ok::<_, ReadError>((kind, found, left_out))
            })
            .collect();
        let mut cluster = Self::default();
        let Self { nodes: all_nodes, namespaces: all_namespaces, pods: all_pods, .. } = &mut cluster;
        let (kinds, no_nodes, no_namespaces, no_pods) = futures::try_join!(
            kinds.try_collect::<Vec<_>>(),
            nodes(client, namespace, |node| insert_named(all_nodes, node)),
            namespaces(client, |namespace| insert_named(all_namespaces, namespace)),
            pods(client, namespace, |pod| insert_pod(all_pods, pod)),
        )?;
        let mut left_out = Vec::new();
        for (kind, found, unlisted) in kinds {
            for object in found {
                cluster.insert(kind, object);
            }
            left_out.extend(unlisted);
        }
        left_out.extend([no_namespaces, no_nodes, no_pods].into_iter().flatten());
        cluster.leave_out(left_out, namespace)
    }

    /// A cluster of which nothing is known.
    pub fn unknown() -> Self {
        Self { left_out: Part::all().map(|part| part.unlisted(None)).collect(), ..Self::default() }
    }

    /// The cluster of stored objects, as [`Part::list`] gave them. `left_out`: what it returned. `namespace`: that of the
    /// user who listed them. An error of the conversion names no object: the caller knows it.
    pub fn stored(
        objects: impl IntoIterator<Item = (Part, Value)>,
        left_out: Vec<Unlisted>,
        namespace: &str,
    ) -> Result<Self, StoredError> {
        let mut cluster = Self::default();
        for (part, value) in objects {
            match part {
                Part::Objects(kind) => cluster.insert(kind, parse(part, value)?),
                Part::Nodes => insert_named(&mut cluster.nodes, parse(part, value)?),
                Part::Namespaces => insert_named(&mut cluster.namespaces, parse(part, value)?),
                Part::Pods => insert_pod(&mut cluster.pods, parse(part, value)?),
            }
        }
        Ok(cluster.leave_out(left_out, namespace)?)
    }

    fn insert(&mut self, kind: Kind, mut object: DynamicObject) {
        clean(&mut object);
        if let Some(key) = ingest::key(kind, &object.metadata) {
            self.objects.insert(key, object);
        }
    }

    /// Makes a change that was watched. False: it changes nothing that is read, as when a watch lists everything again.
    pub fn apply(&mut self, change: ClusterChange) -> bool {
        match change {
            ClusterChange::Object(key, mut object) => {
                object.as_deref_mut().into_iter().for_each(clean);
                let is_same = |a: &DynamicObject, b: &DynamicObject| {
                    a.metadata.resource_version.is_some()
                        && a.metadata.resource_version == b.metadata.resource_version
                };
                set(&mut self.objects, key, object, is_same)
            }
            // A node reports its state every few seconds.
            ClusterChange::Node(name, node) => {
                set(&mut self.nodes, name, node, |a, b| slim_objects::node(a) == slim_objects::node(b))
            }
            ClusterChange::Namespace(name, namespace) => {
                set(&mut self.namespaces, name, namespace, |a, b| a.metadata.labels == b.metadata.labels)
            }
            ClusterChange::Pod(uid, pod) => {
                let id = uid.clone();
                let is_same = |a: &SlimPod, b: &SlimPod| {
                    a.metadata.annotations == b.metadata.annotations && core_pod(&id, a) == core_pod(&id, b)
                };
                set(&mut self.pods, uid, pod, is_same)
            }
        }
    }

    fn leave_out(mut self, mut left_out: Vec<Unlisted>, namespace: &str) -> Result<Self, ReadError> {
        let whole_kinds = left_out.iter().filter(|left| left.kind.is_some() && left.except.is_none());
        if whole_kinds.count() == Kind::ALL.len() {
            return Err(ReadError::Nothing(namespace.to_owned()));
        }
        // Kinds by their names, then the others in this order.
        let others = [NAMESPACES, NODES, PODS];
        left_out.sort_by_key(|left| {
            let other = others.iter().position(|other| left.kind.is_none() && left.what == *other);
            (other, left.what.clone())
        });
        self.left_out = left_out;
        Ok(self)
    }

    /// The resources that could not be listed.
    pub fn left_out(&self) -> &[Unlisted] {
        &self.left_out
    }

    /// Where the objects of a kind could be listed.
    pub fn scope_of(&self, kind: Kind) -> ListScope {
        self.scope(|left| left.kind == Some(kind))
    }

    fn scope(&self, is_about: impl Fn(&Unlisted) -> bool) -> ListScope {
        match self.left_out.iter().find(|left| is_about(left)) {
            None => ListScope::Cluster,
            Some(Unlisted { except: Some(_), .. }) => ListScope::Namespace,
            Some(Unlisted { except: None, .. }) => ListScope::Nothing,
        }
    }

    /// True when the object may exist although it was not listed.
    pub fn may_miss(&self, key: &Key) -> bool {
        let read = |left: &Unlisted| left.except.is_some() && left.except.as_deref() == key.namespace();
        self.left_out.iter().any(|left| left.kind == Some(key.kind) && !read(left))
    }

    /// True when everything that the desired state of switches depends on was listed.
    pub fn decides_switches(&self) -> bool {
        self.left_out.iter().all(|left| left.kind.map_or(left.what == PODS, Kind::is_for_pods))
    }

    /// True when every object of the operator's kinds was listed.
    pub fn lists_all_kinds(&self) -> bool {
        self.left_out.iter().all(|left| left.kind.is_none())
    }

    /// True when nothing was left out.
    pub fn lists_everything(&self) -> bool {
        self.left_out.is_empty()
    }

    /// Where pods could be listed.
    pub fn scope_of_pods(&self) -> ListScope {
        self.scope(|left| left.what == PODS)
    }

    pub(crate) fn knows_nodes(&self) -> bool {
        self.left_out.iter().all(|left| left.what != NODES)
    }

    pub(crate) fn knows_namespaces(&self) -> bool {
        self.left_out.iter().all(|left| left.what != NAMESPACES)
    }

    /// An object as the API server holds it.
    pub fn object(&self, key: &Key) -> Option<&DynamicObject> {
        self.objects.get(key)
    }

    /// The keys of all objects.
    pub fn keys(&self) -> impl Iterator<Item = &Key> {
        self.objects.keys()
    }

    /// The pods that have not ended, by uid.
    pub fn pods(&self) -> impl Iterator<Item = PodInfo<'_>> {
        self.pods.iter().map(|(uid, pod)| {
            let core = core_pod(uid, pod);
            PodInfo { metadata: &pod.metadata, node: core.node, uses: core.uses }
        })
    }

    /// The nodes by name, and whether each is ready.
    pub fn nodes(&self) -> impl Iterator<Item = (&str, bool)> {
        self.nodes.iter().map(|(name, node)| (&**name, slim_objects::node(node).1))
    }

    /// True when there is a node of this name.
    pub fn has_node(&self, name: &str) -> bool {
        self.nodes.contains_key(name)
    }

    /// The names of the nodes with labels that a selector matches; `None`: nodes could not be listed.
    pub fn nodes_of(&self, selector: &Selector) -> Option<BTreeSet<String>> {
        let empty = BTreeMap::new();
        let matches = |node: &&SlimNode| selector.matches(node.metadata.labels.as_ref().unwrap_or(&empty));
        let matching = self.nodes.values().filter(matches);
        self.knows_nodes().then(|| matching.map(ResourceExt::name_any).collect())
    }

    /// What the user may list, without any object.
    #[must_use]
    pub fn scope_only(&self) -> Self {
        Self { left_out: self.left_out.clone(), ..Self::default() }
    }

    /// True when agents run: nodes carry their labels, and are commanded and waited for.
    pub fn has_agents(&self) -> bool {
        self.nodes.values().any(|node| {
            node.metadata
                .labels
                .iter()
                .flatten()
                .any(|(label, _)| label.starts_with(node_labels::LABEL_PREFIX))
        })
    }

    pub(crate) fn namespaces(&self) -> impl Iterator<Item = Name> {
        self.namespaces.keys().cloned()
    }

    pub(in crate::inspect) fn node_names(&self) -> impl Iterator<Item = &str> {
        self.nodes.keys().map(|name| &**name)
    }

    /// Events for the core about all objects other than the custom resources.
    pub(in crate::inspect) fn other_events(&self) -> Vec<Event> {
        let nodes = self.nodes.iter().map(|(name, node)| {
            let (labels, ready) = slim_objects::node(node);
            Event::Node { name: name.clone(), labels, ready }
        });
        let namespaces = self
            .namespaces
            .iter()
            .map(|(name, namespace)| Event::Namespace(name.clone(), ingest::labels(&namespace.metadata)));
        let pods = self.pods.iter().map(|(uid, pod)| Event::Pod(Box::new(core_pod(uid, pod))));
        nodes.chain(namespaces).chain(pods).collect()
    }

    pub(in crate::inspect) fn objects(&self) -> impl Iterator<Item = (&Key, &DynamicObject)> {
        self.objects.iter()
    }
}

/// A pod in the core's form. The namespace of Multus is the usual one: the user names no other.
fn core_pod(uid: &Name, pod: &SlimPod) -> Pod {
    slim_objects::pod(uid.clone(), pod, MULTUS_NAMESPACE)
}

async fn objects(
    client: &Client,
    namespace: &str,
    kind: Kind,
    visit: impl FnMut(DynamicObject),
) -> Result<Option<Unlisted>, ReadError> {
    let resource = api::resource(kind);
    let all: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    let inside =
        super::is_namespaced(kind).then(|| Api::namespaced_with(client.clone(), namespace, &resource));
    find(all, inside, Part::Objects(kind), namespace, ListParams::default(), visit).await
}

async fn nodes(
    client: &Client,
    namespace: &str,
    visit: impl FnMut(SlimNode),
) -> Result<Option<Unlisted>, ReadError> {
    let nodes = Api::all_with(client.clone(), &slim_objects::nodes());
    find(nodes, None, Part::Nodes, namespace, ListParams::default(), visit).await
}

async fn pods(
    client: &Client,
    namespace: &str,
    visit: impl FnMut(SlimPod),
) -> Result<Option<Unlisted>, ReadError> {
    let resource = slim_objects::pods();
    let unfinished = ListParams::default().fields("status.phase!=Succeeded,status.phase!=Failed");
    let all = Api::all_with(client.clone(), &resource);
    let inside = Some(Api::namespaced_with(client.clone(), namespace, &resource));
    find(all, inside, Part::Pods, namespace, unfinished, visit).await
}

async fn namespaces(
    client: &Client,
    visit: impl FnMut(PartialObjectMeta<Namespace>),
) -> Result<Option<Unlisted>, ReadError> {
    let namespaces = Api::<Namespace>::all(client.clone());
    match namespaces.list_metadata(&ListParams::default()).await {
        Ok(list) => {
            list.items.into_iter().for_each(visit);
            Ok(None)
        }
        Err(source) => {
            let error = ReadError::Listing { what: NAMESPACES.into(), source: Box::new(source) };
            if error.is_forbidden() { Ok(Some(Part::Namespaces.unlisted(None))) } else { Err(error) }
        }
    }
}

/// Lists all objects, or those in the namespace without the right to list all.
async fn find<K>(
    all: Api<K>,
    inside: Option<Api<K>>,
    part: Part,
    namespace: &str,
    params: ListParams,
    mut visit: impl FnMut(K),
) -> Result<Option<Unlisted>, ReadError>
where
    K: Clone + DeserializeOwned + fmt::Debug,
{
    match list(&all, part, params.clone(), &mut visit).await {
        Err(error) if error.is_forbidden() => {}
        result => return result.map(|()| None),
    }
    let Some(inside) = inside else { return Ok(Some(part.unlisted(None))) };
    match list(&inside, part, params, &mut visit).await {
        Err(error) if error.is_forbidden() => Ok(Some(part.unlisted(None))),
        result => result.map(|()| Some(part.unlisted(Some(namespace)))),
    }
}

async fn list<K>(
    objects: &Api<K>,
    part: Part,
    params: ListParams,
    visit: &mut impl FnMut(K),
) -> Result<(), ReadError>
where
    K: Clone + DeserializeOwned + fmt::Debug,
{
    let mut params = params.limit(PAGE_SIZE);
    loop {
        let page = objects.list(&params).await;
        let page =
            page.map_err(|source| ReadError::Listing { what: part.name(), source: Box::new(source) })?;
        page.items.into_iter().for_each(&mut *visit);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(()),
        }
    }
}

fn insert_named<K: ResourceExt>(all: &mut BTreeMap<Name, K>, object: K) {
    all.insert(object.name_any().into(), object);
}

fn insert_pod(all: &mut BTreeMap<Name, SlimPod>, pod: SlimPod) {
    if let Some(uid) = pod.metadata.uid.as_deref().map(Name::from) {
        all.insert(uid, pod);
    }
}

/// Sets or removes an object. False: nothing that is read of it changes.
fn set<I: Ord, K>(
    all: &mut BTreeMap<I, K>,
    id: I,
    object: Option<Box<K>>,
    is_same: impl Fn(&K, &K) -> bool,
) -> bool {
    let Some(object) = object else { return all.remove(&id).is_some() };
    let changes = !all.get(&id).is_some_and(|before| is_same(before, &object));
    all.insert(id, *object);
    changes
}

fn parse<K: DeserializeOwned>(part: Part, value: Value) -> Result<K, StoredError> {
    serde_json::from_value(value).map_err(|source| StoredError::Object { what: part.name(), source })
}

/// Key of one of the operator's custom resources; `None`: it is of another kind or has no name.
pub fn key_of(object: &DynamicObject) -> Option<Key> {
    let types = object.types.as_ref()?;
    let kind = Kind::of_name(&types.kind).filter(|kind| api::api_version(*kind) == types.api_version)?;
    ingest::key(kind, &object.metadata)
}

/// Cleans the texts of an object's status: other clients can write it too, and it may be of an older engine.
pub(crate) fn clean(object: &mut DynamicObject) {
    object.data.get_mut("status").into_iter().for_each(Text::clean);
}
