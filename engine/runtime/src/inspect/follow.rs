//! Follows the operator's objects by watches.

use std::collections::BTreeSet;

use eno_core::{Key, Kind};
use futures::stream::{self, BoxStream};
use futures::{Stream, StreamExt as _};
use kube::Client;
use kube::api::{Api, DynamicObject};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};

use super::forecast::ClusterState;
use crate::api;
use crate::watch::ingest;

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
        let resource = api::resource(kind);
        let objects: Api<DynamicObject> = match world.scope_of(kind) {
            ListScope::Cluster => Api::all_with(client.clone(), &resource),
            ListScope::Namespace => Api::namespaced_with(client.clone(), namespace, &resource),
            ListScope::Nothing => return None,
        };
        let mut config = watcher::Config::default();
        if let Some(key) = only {
            config = config.fields(&format!("metadata.name={}", key.name));
        }
        let is_wanted = |key: &&Key| key.kind == kind && only.is_none_or(|only| only == *key);
        let mut watch = Watch::new(kind);
        watch.known = world.keys().filter(is_wanted).cloned().collect();
        let only = only.cloned();
        let events = watcher(objects, config).default_backoff();
        let changes = events.flat_map(move |event| stream::iter(watch.changes(event)));
        let changes = changes.filter(move |change| {
            let is_other = match change {
                ObjectChange::Is(key, _) | ObjectChange::Gone(key) => {
                    only.as_ref().is_some_and(|only| only != key)
                }
                ObjectChange::Failed(..) => false,
            };
            std::future::ready(!is_other)
        });
        Some(changes.boxed())
    });
    stream::select_all(streams.collect::<Vec<BoxStream<'static, ObjectChange>>>())
}

/// A watch of one kind.
struct Watch {
    kind: Kind,
    /// The objects that exist.
    known: BTreeSet<Key>,
    /// Those of them that the present list has shown so far.
    listed: BTreeSet<Key>,
    /// The last event was a failure.
    failed: bool,
}

impl Watch {
    fn new(kind: Kind) -> Self {
        Self { kind, known: BTreeSet::new(), listed: BTreeSet::new(), failed: false }
    }

    /// The changes that an event shows. A list that follows a broken watch has no event for what was deleted meanwhile.
    fn changes(&mut self, event: watcher::Result<Event<DynamicObject>>) -> Vec<ObjectChange> {
        let event = match event {
            Ok(event) => event,
            // The watcher tries again after each failure. The first one is reported.
            Err(error) => {
                let is_new = !std::mem::replace(&mut self.failed, true);
                return is_new
                    .then(|| ObjectChange::Failed(self.kind, error.to_string()))
                    .into_iter()
                    .collect();
            }
        };
        match event {
            Event::Init => {
                self.listed.clear();
                Vec::new()
            }
            Event::InitDone => {
                self.failed = false;
                let before = std::mem::replace(&mut self.known, std::mem::take(&mut self.listed));
                before.difference(&self.known).cloned().map(ObjectChange::Gone).collect()
            }
            Event::InitApply(object) | Event::Apply(object) => {
                self.failed = false;
                let Some(key) = ingest::key(self.kind, &object.metadata) else { return Vec::new() };
                self.listed.insert(key.clone());
                self.known.insert(key.clone());
                vec![ObjectChange::Is(key, Box::new(object))]
            }
            Event::Delete(object) => {
                let Some(key) = ingest::key(self.kind, &object.metadata) else { return Vec::new() };
                self.known.remove(&key);
                vec![ObjectChange::Gone(key)]
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

    fn shown(changes: Vec<ObjectChange>) -> Vec<String> {
        let text = |change| match change {
            ObjectChange::Is(key, _) => format!("is {key}"),
            ObjectChange::Gone(key) => format!("gone {key}"),
            ObjectChange::Failed(kind, _) => format!("failed {kind}"),
        };
        changes.into_iter().map(text).collect()
    }

    #[test]
    fn list_after_a_broken_watch_shows_what_is_gone() {
        let mut watch = Watch::new(Kind::L2Service);
        let mut event = |event| shown(watch.changes(event));
        assert_eq!(event(Ok(Event::Apply(service("a")))), ["is L2Service/a"]);
        assert_eq!(event(Ok(Event::Apply(service("b")))), ["is L2Service/b"]);
        let broken = || Err(watcher::Error::NoResourceVersion);
        assert_eq!(event(broken()), ["failed L2Service"]);
        assert!(event(broken()).is_empty(), "a failure is reported once");
        assert!(event(Ok(Event::Init)).is_empty());
        assert_eq!(event(Ok(Event::InitApply(service("b")))), ["is L2Service/b"]);
        assert_eq!(event(Ok(Event::InitDone)), ["gone L2Service/a"]);
        assert_eq!(event(Ok(Event::Delete(service("b")))), ["gone L2Service/b"]);
    }
}
