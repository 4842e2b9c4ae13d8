//! The state of the cluster, read once instead of watched.

use std::collections::BTreeMap;
use std::fmt;

use eno_core::{Event, Key, Kind, Name};
use futures::TryStreamExt as _;
use futures::stream::FuturesUnordered;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, DynamicObject, ListParams};
use kube::core::PartialObjectMeta;
use kube::{Client, ResourceExt as _};

use crate::api;
use crate::inspect::follow::ListScope;
use crate::nodes::node_labels;
use crate::watch::ingest;
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

impl fmt::Display for Unlisted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.except {
            Some(namespace) => write!(f, "{} outside namespace {namespace}", self.what),
            None => f.write_str(&self.what),
        }
    }
}

/// The listed objects, and what could not be listed of them.
type Listed<K> = (Vec<K>, Option<Unlisted>);

/// A cluster, as its API server shows it.
#[derive(Clone, Debug, Default)]
pub struct ClusterState {
    objects: BTreeMap<Key, DynamicObject>,
    nodes: Vec<SlimNode>,
    namespaces: Vec<PartialObjectMeta<Namespace>>,
    pods: Vec<SlimPod>,
    left_out: Vec<Unlisted>,
}

impl ClusterState {
    /// Lists all kinds that the engine watches, as far as the user may. A kind that the user may not list in the whole
    /// cluster is listed in `namespace`.
    pub async fn read(client: &Client, namespace: &str) -> Result<Self, ReadError> {
        let kinds: FuturesUnordered<_> = Kind::ALL
            .into_iter()
            .map(|kind| async move {
                let resource = api::resource(kind);
                let all: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
                let inside = super::is_namespaced(kind)
                    .then(|| Api::namespaced_with(client.clone(), namespace, &resource));
                let what = Unlisted { what: resource.plural, kind: Some(kind), except: None };
                let found = find(all, inside, namespace, what, ListParams::default()).await?;
                Ok::<_, ReadError>((kind, found))
            })
            .collect();
        let unfinished = ListParams::default().fields("status.phase!=Succeeded,status.phase!=Failed");
        let of = |what: &str| Unlisted { what: what.into(), kind: None, except: None };
        let nodes = Api::all_with(client.clone(), &slim_objects::nodes());
        let pods = Api::all_with(client.clone(), &slim_objects::pods());
        let pods_inside = Some(Api::namespaced_with(client.clone(), namespace, &slim_objects::pods()));
        let (kinds, (nodes, no_nodes), (namespaces, no_namespaces), (pods, no_pods)) = futures::try_join!(
            kinds.try_collect::<Vec<_>>(),
            find(nodes, None, namespace, of(NODES), ListParams::default()),
            namespaces(client, of(NAMESPACES)),
            find(pods, pods_inside, namespace, of(PODS), unfinished),
        )?;
        let mut cluster = Self { nodes, namespaces, pods, ..Self::default() };
        for (kind, (found, left_out)) in kinds {
            let keyed =
                found.into_iter().filter_map(|object| Some((ingest::key(kind, &object.metadata)?, object)));
            cluster.objects.extend(keyed);
            cluster.left_out.extend(left_out);
        }
        if cluster.left_out.iter().filter(|left| left.except.is_none()).count() == Kind::ALL.len() {
            return Err(ReadError::Nothing(namespace.to_owned()));
        }
        cluster.left_out.sort_by(|a, b| a.what.cmp(&b.what));
        cluster.left_out.extend([no_namespaces, no_nodes, no_pods].into_iter().flatten());
        Ok(cluster)
    }

    /// The resources that could not be listed.
    pub fn left_out(&self) -> &[Unlisted] {
        &self.left_out
    }

    /// Where the objects of a kind could be listed.
    pub fn scope_of(&self, kind: Kind) -> ListScope {
        match self.left_out.iter().find(|left| left.kind == Some(kind)) {
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
        let other = |kind: Kind| matches!(kind, Kind::Bridge | Kind::PodNetworkConfig | Kind::PodConfig);
        self.left_out.iter().all(|left| left.kind.map_or(left.what == PODS, other))
    }

    pub(super) fn knows_nodes(&self) -> bool {
        self.left_out.iter().all(|left| left.what != NODES)
    }

    pub(super) fn knows_namespaces(&self) -> bool {
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

    /// True when agents run: nodes carry their labels, and are commanded and waited for.
    pub(super) fn has_agents(&self) -> bool {
        self.nodes.iter().any(|node| {
            node.metadata
                .labels
                .iter()
                .flatten()
                .any(|(label, _)| label.starts_with(node_labels::LABEL_PREFIX))
        })
    }

    pub(super) fn node_names(&self) -> impl Iterator<Item = &str> {
        self.nodes.iter().filter_map(|node| node.metadata.name.as_deref())
    }

    /// Events for the core about all objects other than the custom resources.
    pub(super) fn other_events(&self) -> Vec<Event> {
        let nodes = self.nodes.iter().filter_map(|node| {
            let (labels, ready) = slim_objects::node(node);
            Some(Event::Node { name: node.metadata.name.as_deref()?.into(), labels, ready })
        });
        let namespaces = self.namespaces.iter().map(|namespace| {
            Event::Namespace(Name::from(namespace.name_any()), ingest::labels(&namespace.metadata))
        });
        let pods = self.pods.iter().filter_map(|pod| {
            let uid = Name::from(pod.metadata.uid.as_deref()?);
            Some(Event::Pod(Box::new(slim_objects::pod(uid, pod))))
        });
        nodes.chain(namespaces).chain(pods).collect()
    }

    pub(super) fn objects(&self) -> impl Iterator<Item = (&Key, &DynamicObject)> {
        self.objects.iter()
    }
}

async fn namespaces(
    client: &Client,
    what: Unlisted,
) -> Result<Listed<PartialObjectMeta<Namespace>>, ReadError> {
    let namespaces = Api::<Namespace>::all(client.clone());
    match namespaces.list_metadata(&ListParams::default()).await {
        Ok(list) => Ok((list.items, None)),
        Err(source) => {
            let error = ReadError::Listing { what: what.what.clone(), source: Box::new(source) };
            if error.is_forbidden() { Ok((Vec::new(), Some(what))) } else { Err(error) }
        }
    }
}

/// Lists all objects, or those in the namespace without the right to list all.
async fn find<K>(
    all: Api<K>,
    inside: Option<Api<K>>,
    namespace: &str,
    what: Unlisted,
    params: ListParams,
) -> Result<Listed<K>, ReadError>
where
    K: Clone + serde::de::DeserializeOwned + std::fmt::Debug,
{
    match list(&all, &what.what, params.clone()).await {
        Err(error) if error.is_forbidden() => {}
        result => return Ok((result?, None)),
    }
    let Some(inside) = inside else { return Ok((Vec::new(), Some(what))) };
    match list(&inside, &what.what, params).await {
        Err(error) if error.is_forbidden() => Ok((Vec::new(), Some(what))),
        result => Ok((result?, Some(Unlisted { except: Some(namespace.into()), ..what }))),
    }
}

async fn list<K>(objects: &Api<K>, what: &str, params: ListParams) -> Result<Vec<K>, ReadError>
where
    K: Clone + serde::de::DeserializeOwned + std::fmt::Debug,
{
    let mut found = Vec::new();
    let mut params = params.limit(PAGE_SIZE);
    loop {
        let page = objects.list(&params).await;
        let page =
            page.map_err(|source| ReadError::Listing { what: what.to_owned(), source: Box::new(source) })?;
        found.extend(page.items);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(found),
        }
    }
}

/// Key of one of the operator's custom resources; `None`: it is of another kind or has no name.
pub fn key_of(object: &DynamicObject) -> Option<Key> {
    let types = object.types.as_ref()?;
    let kind = api::kind(&types.kind).filter(|kind| api::api_version(*kind) == types.api_version)?;
    ingest::key(kind, &object.metadata)
}
