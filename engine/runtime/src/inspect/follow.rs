//! Follows the operator's objects by watches.

use eno_core::{Key, Kind};
use futures::stream::{self, BoxStream};
use futures::{Stream, StreamExt as _, future};
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
    /// The object as it is now, and once at the start of its watch.
    Is(Key, Box<DynamicObject>),
    /// The object is deleted.
    Gone(Key),
    /// A watch of this kind failed, and is tried again.
    Failed(Kind, String),
}

/// The changes of all objects that `world` could list. `namespace`: where the kinds are watched that can be listed there
/// alone. The stream has no end.
pub fn changes(
    client: &Client,
    namespace: &str,
    world: &ClusterState,
) -> impl Stream<Item = ObjectChange> + use<> {
    let streams = Kind::ALL.into_iter().filter_map(|kind| {
        let resource = api::resource(kind);
        let objects: Api<DynamicObject> = match world.scope_of(kind) {
            ListScope::Cluster => Api::all_with(client.clone(), &resource),
            ListScope::Namespace => Api::namespaced_with(client.clone(), namespace, &resource),
            ListScope::Nothing => return None,
        };
        let events = watcher(objects, watcher::Config::default()).default_backoff();
        let changes = events.filter_map(move |event| future::ready(change(kind, event)));
        Some(changes.boxed())
    });
    stream::select_all(streams.collect::<Vec<BoxStream<'static, ObjectChange>>>())
}

fn change(kind: Kind, event: watcher::Result<Event<DynamicObject>>) -> Option<ObjectChange> {
    match event {
        Ok(Event::Apply(object) | Event::InitApply(object)) => {
            Some(ObjectChange::Is(ingest::key(kind, &object.metadata)?, Box::new(object)))
        }
        Ok(Event::Delete(object)) => Some(ObjectChange::Gone(ingest::key(kind, &object.metadata)?)),
        Ok(Event::Init | Event::InitDone) => None,
        Err(error) => Some(ObjectChange::Failed(kind, error.to_string())),
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
