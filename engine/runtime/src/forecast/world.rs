//! What the watches would tell, read once.

use std::collections::BTreeMap;

use eno_core::{Event, Key, Kind, Name};
use futures::TryStreamExt as _;
use futures::stream::FuturesUnordered;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, DynamicObject, ListParams};
use kube::core::PartialObjectMeta;
use kube::{Client, ResourceExt as _};

use crate::seen::{self, SlimNode, SlimPod};
use crate::{api, ingest, marks};

/// Objects per answer.
const PAGE: u32 = 500;

/// The cluster could not be read. A retry may help where the API server did not answer.
#[derive(Debug, thiserror::Error)]
#[error("listing {what}: {source}")]
pub struct ReadError {
    what: String,
    source: Box<kube::Error>,
}

/// A cluster as its API server shows it.
#[derive(Clone, Debug, Default)]
pub struct World {
    objects: BTreeMap<Key, DynamicObject>,
    nodes: Vec<SlimNode>,
    namespaces: Vec<PartialObjectMeta<Namespace>>,
    pods: Vec<SlimPod>,
}

impl World {
    /// Reads all kinds that the engine watches.
    pub async fn read(client: &Client) -> Result<Self, ReadError> {
        let kinds: FuturesUnordered<_> = Kind::ALL
            .into_iter()
            .map(|kind| async move {
                let objects: Api<DynamicObject> = Api::all_with(client.clone(), &api::resource(kind));
                Ok::<_, ReadError>((kind, list(&objects, kind.as_str(), ListParams::default()).await?))
            })
            .collect();
        let unfinished = ListParams::default().fields("status.phase!=Succeeded,status.phase!=Failed");
        let nodes = Api::all_with(client.clone(), &seen::nodes());
        let pods = Api::all_with(client.clone(), &seen::pods());
        let (kinds, nodes, namespaces, pods) = futures::try_join!(
            kinds.try_collect::<Vec<_>>(),
            list(&nodes, "nodes", ListParams::default()),
            namespaces(client),
            list(&pods, "pods", unfinished),
        )?;
        let mut objects = BTreeMap::new();
        for (kind, found) in kinds {
            objects.extend(
                found.into_iter().filter_map(|object| Some((ingest::key(kind, &object.metadata)?, object))),
            );
        }
        Ok(Self { objects, nodes, namespaces, pods })
    }

    /// An object as the API server holds it.
    pub fn object(&self, key: &Key) -> Option<&DynamicObject> {
        self.objects.get(key)
    }

    /// The names of all objects.
    pub fn keys(&self) -> impl Iterator<Item = &Key> {
        self.objects.keys()
    }

    /// Agents have marked nodes, so that nodes are commanded and waited for.
    pub(super) fn has_agents(&self) -> bool {
        self.nodes.iter().any(|node| {
            node.metadata.labels.iter().flatten().any(|(label, _)| label.starts_with(marks::LABEL_PREFIX))
        })
    }

    pub(super) fn node_names(&self) -> impl Iterator<Item = &str> {
        self.nodes.iter().filter_map(|node| node.metadata.name.as_deref())
    }

    /// What the core is told of it but for the custom resources.
    pub(super) fn surroundings(&self) -> Vec<Event> {
        let nodes = self.nodes.iter().filter_map(|node| {
            let (labels, ready) = seen::node(node);
            Some(Event::Node { name: node.metadata.name.as_deref()?.into(), labels, ready })
        });
        let namespaces = self.namespaces.iter().map(|namespace| {
            Event::Namespace(Name::from(namespace.name_any()), ingest::labels(&namespace.metadata))
        });
        let pods = self.pods.iter().filter_map(|pod| {
            let uid = Name::from(pod.metadata.uid.as_deref()?);
            Some(Event::Pod(Box::new(seen::pod(uid, pod))))
        });
        nodes.chain(namespaces).chain(pods).collect()
    }

    pub(super) fn objects(&self) -> impl Iterator<Item = (&Key, &DynamicObject)> {
        self.objects.iter()
    }
}

async fn namespaces(client: &Client) -> Result<Vec<PartialObjectMeta<Namespace>>, ReadError> {
    let namespaces = Api::<Namespace>::all(client.clone());
    let list = namespaces.list_metadata(&ListParams::default()).await;
    list.map(|list| list.items)
        .map_err(|source| ReadError { what: "namespaces".into(), source: Box::new(source) })
}

async fn list<K>(objects: &Api<K>, what: &str, params: ListParams) -> Result<Vec<K>, ReadError>
where
    K: Clone + serde::de::DeserializeOwned + std::fmt::Debug,
{
    let mut found = Vec::new();
    let mut params = params.limit(PAGE);
    loop {
        let page = objects.list(&params).await;
        let page = page.map_err(|source| ReadError { what: what.to_owned(), source: Box::new(source) })?;
        found.extend(page.items);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(found),
        }
    }
}

/// What a custom resource of ours is called; `None`: it is none of ours, or has no name.
pub fn key_of(object: &DynamicObject) -> Option<Key> {
    let types = object.types.as_ref()?;
    let kind = api::kind(&types.kind).filter(|kind| api::api_version(*kind) == types.api_version)?;
    ingest::key(kind, &object.metadata)
}
