//! Follows the operator's objects, and what else decides their desired state, by watches.

use std::collections::BTreeSet;
use std::fmt::Debug;

use eno_core::{Key, Kind, Name};
use futures::stream::{self, BoxStream};
use futures::{Stream, StreamExt as _};
use k8s_openapi::api::core::v1::Namespace;
use kube::Client;
use kube::api::{Api, DynamicObject};
use kube::core::PartialObjectMeta;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Resource, ResourceExt as _};
use serde::de::DeserializeOwned;

use super::forecast::{ClusterState, Part, clean};
use crate::api;
use crate::watch::ingest;
use crate::watch::slim_objects::{self, SlimNode, SlimPod};

/// A change of an object.
#[derive(Clone, Debug)]
pub enum ObjectChange {
    /// The object as it is now; also at the start of a watch, and when a watch starts over.
    Is(Key, Box<DynamicObject>),
    /// The object is deleted.
    Gone(Key),
    /// A watch of this kind failed, and is tried again.
    Failed(Kind, String),
}

/// A change of a [`ClusterState`]; `None`: the object is deleted, or the pod has ended.
#[derive(Clone, Debug)]
pub enum ClusterChange {
    /// Of one of the operator's objects.
    Object(Key, Option<Box<DynamicObject>>),
    /// Of a node, by its name.
    Node(Name, Option<Box<SlimNode>>),
    /// Of a namespace, by its name.
    Namespace(Name, Option<Box<PartialObjectMeta<Namespace>>>),
    /// Of a pod, by its uid.
    Pod(Name, Option<Box<SlimPod>>),
}

/// A watch of this part failed, and is tried again.
#[derive(Clone, Debug, thiserror::Error)]
#[error("watching {}: {error}", part.name())]
pub struct WatchFailed {
    /// What it watches.
    pub part: Part,
    /// Error of the client.
    pub error: String,
    /// The API server refuses it: trying again won't help until the user's rights or the CRDs change.
    pub is_refused: bool,
}

/// The changes since `world` of all objects that it could list; `only`: of this object. `namespace`: where the kinds are
/// watched that can be listed there alone. The stream has no end.
pub fn changes(
    client: &Client,
    namespace: &str,
    world: &ClusterState,
    only: Option<&Key>,
) -> impl Stream<Item = ObjectChange> + use<> {
    let kinds = Kind::ALL.into_iter().filter(|kind| only.is_none_or(|key| key.kind == *kind));
    let streams = kinds.filter_map(|kind| {
        let known = world.keys().filter(|key| key.kind == kind && only.is_none_or(|only| only == *key));
        let name = only.map(|key| &*key.name);
        let changes = objects(client, namespace, world, kind, known.cloned().collect(), name)?;
        let only = only.cloned();
        // The watcher tries again after each failure. The first one is reported.
        let mut failed = false;
        let changes = changes.filter_map(move |change| {
            let is_wanted = |key: &Key| only.as_ref().is_none_or(|only| only == key);
            let is_new = !std::mem::replace(&mut failed, matches!(change, WatchChange::Failed(_)));
            std::future::ready(match change {
                WatchChange::Is(key, object) => {
                    is_wanted(&key).then(|| ObjectChange::Is(key, Box::new(object)))
                }
                WatchChange::Gone(key) => is_wanted(&key).then_some(ObjectChange::Gone(key)),
                WatchChange::Failed(error) => is_new.then(|| ObjectChange::Failed(kind, error.to_string())),
            })
        });
        Some(changes.boxed())
    });
    stream::select_all(streams.collect::<Vec<BoxStream<'static, ObjectChange>>>())
}

/// The changes since `world` of everything that it could list. `namespace`: as for [`changes`]. The stream has no end.
pub fn cluster_changes(
    client: &Client,
    namespace: &str,
    world: &ClusterState,
) -> impl Stream<Item = Result<ClusterChange, WatchFailed>> + use<> {
    let mut streams: Vec<BoxStream<'static, Result<ClusterChange, WatchFailed>>> = Vec::new();
    for kind in Kind::ALL {
        let known = world.keys().filter(|key| key.kind == kind).cloned().collect();
        if let Some(changes) = objects(client, namespace, world, kind, known, None) {
            streams.push(of_part(Part::Objects(kind), changes, ClusterChange::Object));
        }
    }
    if world.knows_nodes() {
        let nodes: Api<SlimNode> = Api::all_with(client.clone(), &slim_objects::nodes());
        let known = world.nodes().map(|(name, _)| Name::from(name)).collect();
        let id = |node: &SlimNode| Some(Name::from(node.name_any()));
        let changes = watch(nodes, watcher::Config::default(), known, id);
        streams.push(of_part(Part::Nodes, changes, ClusterChange::Node));
    }
    if world.knows_namespaces() {
        let namespaces: Api<PartialObjectMeta<Namespace>> = Api::all(client.clone());
        let id = |namespace: &PartialObjectMeta<Namespace>| Some(Name::from(namespace.name_any()));
        let changes = watch(namespaces, watcher::Config::default(), world.namespaces().collect(), id);
        streams.push(of_part(Part::Namespaces, changes, ClusterChange::Namespace));
    }
    let resource = slim_objects::pods();
    let pods: Option<Api<SlimPod>> = match world.scope_of_pods() {
        ListScope::Cluster => Some(Api::all_with(client.clone(), &resource)),
        ListScope::Namespace => Some(Api::namespaced_with(client.clone(), namespace, &resource)),
        ListScope::Nothing => None,
    };
    if let Some(pods) = pods {
        let unfinished = watcher::Config::default().fields("status.phase!=Succeeded,status.phase!=Failed");
        let known = world.pods().map(|pod| Name::from(pod.uid())).collect();
        let id = |pod: &SlimPod| pod.metadata.uid.as_deref().map(Name::from);
        streams.push(of_part(Part::Pods, watch(pods, unfinished, known, id), ClusterChange::Pod));
    }
    stream::select_all(streams)
}

/// Watches the objects of a kind as far as `world` could list them; `None`: nowhere.
fn objects(
    client: &Client,
    namespace: &str,
    world: &ClusterState,
    kind: Kind,
    known: BTreeSet<Key>,
    name: Option<&str>,
) -> Option<impl Stream<Item = WatchChange<Key, DynamicObject>> + Send + use<>> {
    let resource = api::resource(kind);
    let objects: Api<DynamicObject> = match world.scope_of(kind) {
        ListScope::Cluster => Api::all_with(client.clone(), &resource),
        ListScope::Namespace => Api::namespaced_with(client.clone(), namespace, &resource),
        ListScope::Nothing => return None,
    };
    let mut config = watcher::Config::default();
    if let Some(name) = name {
        config = config.fields(&format!("metadata.name={name}"));
    }
    let changes = watch(objects, config, known, move |object| ingest::key(kind, &object.metadata));
    Some(changes.map(|mut change| {
        if let WatchChange::Is(_, object) = &mut change {
            clean(object);
        }
        change
    }))
}

fn watch<I, K>(
    objects: Api<K>,
    config: watcher::Config,
    known: BTreeSet<I>,
    id: impl Fn(&K) -> Option<I> + Send + 'static,
) -> impl Stream<Item = WatchChange<I, K>> + Send
where
    I: Ord + Clone + Send + 'static,
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let mut watch = Watch { id, known, listed: BTreeSet::new() };
    let events = watcher(objects, config).default_backoff();
    events.flat_map(move |event| stream::iter(watch.changes(event)))
}

fn of_part<I: Send + 'static, K: Send + 'static>(
    part: Part,
    changes: impl Stream<Item = WatchChange<I, K>> + Send + 'static,
    make: fn(I, Option<Box<K>>) -> ClusterChange,
) -> BoxStream<'static, Result<ClusterChange, WatchFailed>> {
    let changes = changes.map(move |change| match change {
        WatchChange::Is(id, object) => Ok(make(id, Some(Box::new(object)))),
        WatchChange::Gone(id) => Ok(make(id, None)),
        WatchChange::Failed(error) => {
            Err(WatchFailed { part, error: error.to_string(), is_refused: is_refused(&error) })
        }
    });
    changes.boxed()
}

fn is_refused(error: &watcher::Error) -> bool {
    match error {
        watcher::Error::InitialListFailed(kube::Error::Api(status))
        | watcher::Error::WatchStartFailed(kube::Error::Api(status))
        | watcher::Error::WatchError(status) => matches!(status.code, 403..=405),
        _ => false,
    }
}

/// A change of an object of one watch.
enum WatchChange<I, K> {
    Is(I, K),
    Gone(I),
    Failed(watcher::Error),
}

/// A watch.
struct Watch<I, F> {
    /// What identifies an object.
    id: F,
    /// The objects that exist.
    known: BTreeSet<I>,
    /// Those of them that the present list has shown so far.
    listed: BTreeSet<I>,
}

impl<I: Ord + Clone, F> Watch<I, F> {
    /// The changes that an event shows. A list that follows a broken watch has no event for what was deleted meanwhile.
    fn changes<K>(&mut self, event: watcher::Result<Event<K>>) -> Vec<WatchChange<I, K>>
    where
        F: Fn(&K) -> Option<I>,
    {
        let event = match event {
            Ok(event) => event,
            Err(error) => return vec![WatchChange::Failed(error)],
        };
        match event {
            Event::Init => {
                self.listed.clear();
                Vec::new()
            }
            Event::InitDone => {
                let before = std::mem::replace(&mut self.known, std::mem::take(&mut self.listed));
                before.difference(&self.known).cloned().map(WatchChange::Gone).collect()
            }
            Event::InitApply(object) => {
                let Some(id) = (self.id)(&object) else { return Vec::new() };
                self.listed.insert(id.clone());
                self.known.insert(id.clone());
                vec![WatchChange::Is(id, object)]
            }
            Event::Apply(object) => {
                let Some(id) = (self.id)(&object) else { return Vec::new() };
                self.known.insert(id.clone());
                vec![WatchChange::Is(id, object)]
            }
            Event::Delete(object) => {
                let Some(id) = (self.id)(&object) else { return Vec::new() };
                self.known.remove(&id);
                vec![WatchChange::Gone(id)]
            }
        }
    }
}

/// Where the objects of a kind can be listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListScope {
    /// In the whole cluster.
    Cluster,
    /// In the namespace of the reader.
    Namespace,
    /// Nowhere.
    Nothing,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(name: &str) -> DynamicObject {
        DynamicObject::new(name, &api::resource(Kind::L2Service))
    }

    fn shown(changes: Vec<WatchChange<Key, DynamicObject>>) -> Vec<String> {
        let text = |change| match change {
            WatchChange::Is(key, _) => format!("is {key}"),
            WatchChange::Gone(key) => format!("gone {key}"),
            WatchChange::Failed(_) => "failed".to_owned(),
        };
        changes.into_iter().map(text).collect()
    }

    #[test]
    fn list_after_a_broken_watch_shows_what_is_gone() {
        let id = |object: &DynamicObject| ingest::key(Kind::L2Service, &object.metadata);
        let mut watch = Watch { id, known: BTreeSet::new(), listed: BTreeSet::new() };
        let mut event = |event| shown(watch.changes(event));
        assert_eq!(event(Ok(Event::Apply(service("a")))), ["is L2Service/a"]);
        assert_eq!(event(Ok(Event::Apply(service("b")))), ["is L2Service/b"]);
        let broken = || Err(watcher::Error::NoResourceVersion);
        assert_eq!(event(broken()), ["failed"]);
        assert!(event(Ok(Event::Init)).is_empty());
        assert_eq!(event(Ok(Event::InitApply(service("b")))), ["is L2Service/b"]);
        assert_eq!(event(Ok(Event::InitDone)), ["gone L2Service/a"]);
        assert_eq!(event(Ok(Event::Delete(service("b")))), ["gone L2Service/b"]);
    }
}
