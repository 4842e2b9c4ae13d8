//! The example's objects and their phases in the API server.

use std::collections::BTreeMap;
use std::time::Instant;

use eno_nbi_crds::GROUP;
use futures::stream::{SelectAll, Stream};
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{ApiResource, DynamicObject};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt as _};
use serde_json::Value;

use crate::sandbox;
use eno::apply::{ApplyError, name_of, resource_of};

/// `Kind [namespace/]name`.
pub(super) fn title(object: &DynamicObject) -> String {
    let kind = object.types.as_ref().map_or("", |types| types.kind.as_str());
    format!("{kind} {}", name_of(object))
}

/// Whether it is of the operator's API group, and so has a phase.
pub(super) fn is_of_api_group(object: &DynamicObject) -> bool {
    let version = object.types.as_ref().map_or("", |types| types.api_version.as_str());
    version.split_once('/').is_some_and(|(group, _)| group == GROUP)
}

/// Sets the CallbackURL.
pub(super) fn set_callback(object: &mut DynamicObject, url: &str) {
    if is_of_api_group(object)
        && let Some(spec) = object.data.get_mut("spec").and_then(Value::as_object_mut)
    {
        spec.insert("CallbackURL".to_owned(), Value::from(url));
    }
}

/// Whether the stored object is part of the sandbox's fabric, which the example only references.
pub(super) fn is_of_fabric(object: &DynamicObject) -> bool {
    object.managed_fields().iter().any(|entry| entry.manager.as_deref() == Some(sandbox::MANAGER))
}

/// The object without fields: applied, it releases all fields that were applied before.
pub(super) fn without_fields(object: &DynamicObject) -> DynamicObject {
    let metadata = ObjectMeta {
        name: object.metadata.name.clone(),
        namespace: object.metadata.namespace.clone(),
        ..ObjectMeta::default()
    };
    DynamicObject { types: object.types.clone(), metadata, data: Value::Object(serde_json::Map::new()) }
}

/// The state of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum State {
    /// The object exists; the phase is empty before the engine has seen it.
    Present { phase: String, message: String },
    /// The object does not exist.
    Gone,
}

impl State {
    pub(super) fn phase(&self) -> &str {
        match self {
            Self::Present { phase, .. } => phase,
            Self::Gone => "gone",
        }
    }

    fn of(object: &DynamicObject) -> Self {
        let status = |field: &str| {
            let text = object.data.get("status").and_then(|status| status.get(field)).and_then(Value::as_str);
            text.unwrap_or_default().to_owned()
        };
        Self::Present { phase: status("phase"), message: status("message") }
    }
}

/// Watches the example's objects for changes.
pub(super) struct Follower {
    events: SelectAll<futures::stream::BoxStream<'static, Result<(String, State), watcher::Error>>>,
    states: BTreeMap<String, State>,
}

/// A change of one object.
pub(super) struct Change {
    pub(super) at: Instant,
    pub(super) object: String,
    pub(super) state: State,
}

impl Follower {
    /// Watches those objects that are of the operator's API group.
    pub(super) fn new(client: &Client, objects: &[DynamicObject]) -> Result<Self, ApplyError> {
        let of_api_group = || objects.iter().filter(|object| is_of_api_group(object));
        let kinds = of_api_group().map(resource_of).collect::<Result<Vec<_>, _>>()?;
        let kinds: BTreeMap<_, _> = kinds.into_iter().map(|kind| (kind.kind.clone(), kind)).collect();
        let streams = kinds.into_values().map(|kind| follow(client, kind).boxed());
        let states = of_api_group().map(|object| (title(object), State::Gone)).collect();
        Ok(Self { events: futures::stream::select_all(streams), states })
    }

    /// The next change of an object's phase or message; pending when there is none.
    pub(super) async fn next(&mut self) -> Result<Change, watcher::Error> {
        loop {
            let Some((object, state)) = self.events.try_next().await? else {
                return std::future::pending().await;
            };
            if let Some(known) = self.states.get_mut(&object).filter(|known| **known != state) {
                known.clone_from(&state);
                return Ok(Change { at: Instant::now(), object, state });
            }
        }
    }

    /// Reads the present states without reporting them.
    pub(super) async fn sync(&mut self) -> Result<(), watcher::Error> {
        while self.states.values().any(|state| *state == State::Gone) {
            self.next().await?;
        }
        Ok(())
    }

    /// The states of all objects.
    pub(super) fn states(&self) -> &BTreeMap<String, State> {
        &self.states
    }
}

fn follow(
    client: &Client,
    kind: ApiResource,
) -> impl Stream<Item = Result<(String, State), watcher::Error>> + Send + use<> {
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &kind);
    watcher(api, watcher::Config::default()).default_backoff().try_filter_map(move |event| {
        let title = |object: &DynamicObject| format!("{} {}", kind.kind, name_of(object));
        let change = match event {
            watcher::Event::Apply(object) | watcher::Event::InitApply(object) => {
                Some((title(&object), State::of(&object)))
            }
            watcher::Event::Delete(object) => Some((title(&object), State::Gone)),
            watcher::Event::Init | watcher::Event::InitDone => None,
        };
        futures::future::ok(change)
    })
}
