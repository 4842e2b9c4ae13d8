//! The Events of Kubernetes about the operator's objects.

use anyhow::Context as _;
use eno_engine::forecast::{ClusterState, Key, is_namespaced, kind};
use k8s_openapi::api::core::v1::Event;
use kube::Api;
use kube::api::ListParams;

use super::source::Source;
use super::timeline::{Entry, EntryKind};

/// What Events are about.
pub(crate) enum About {
    /// One object.
    Object(Key),
    /// All of the operator's objects in a namespace.
    Namespace(String),
}

impl About {
    fn covers(&self, key: &Key) -> bool {
        match self {
            Self::Object(own) => own == key,
            Self::Namespace(namespace) => key.namespace() == Some(namespace),
        }
    }
}

/// The Events about objects that the viewer may list.
pub(crate) async fn events(
    source: &Source,
    world: &ClusterState,
    about: &About,
) -> anyhow::Result<Vec<Entry>> {
    let events = match source {
        Source::Dump(dump) => dump.events()?,
        Source::Live(client) => {
            let namespace = match about {
                // Events about objects without a namespace are in this one.
                About::Object(key) => key.namespace().unwrap_or("default"),
                About::Namespace(namespace) => namespace,
            };
            let mut params = ListParams::default();
            if let About::Object(key) = about {
                params = params
                    .fields(&format!("involvedObject.kind={},involvedObject.name={}", key.kind, key.name));
            }
            let events: Api<Event> = Api::namespaced(client.clone(), namespace);
            events.list(&params).await.with_context(|| format!("listing events in {namespace}"))?.items
        }
    };
    let entries = events.iter().filter_map(|event| {
        let key = key_of(event)?;
        (about.covers(&key) && !world.may_miss(&key)).then(|| of_event(event, &key))
    });
    Ok(entries.collect())
}

/// The object of the operator that an Event is about.
fn key_of(event: &Event) -> Option<Key> {
    let object = &event.involved_object;
    let kind = kind(object.kind.as_deref()?)?;
    let name = object.name.as_deref()?.into();
    Some(match object.namespace.as_deref() {
        Some(namespace) if is_namespaced(kind) => Key::namespaced(kind, &namespace.into(), &name),
        _ => Key::cluster(kind, &name),
    })
}

fn of_event(event: &Event, key: &Key) -> Entry {
    let at = event.last_timestamp.as_ref().map(|time| time.0.to_string());
    let at = at.or_else(|| event.event_time.as_ref().map(|time| time.0.to_string()));
    let at = at.or_else(|| event.metadata.creation_timestamp.as_ref().map(|time| time.0.to_string()));
    let reason = event.reason.clone().unwrap_or_default();
    let text = event.message.clone().unwrap_or_default();
    Entry {
        failed: event.type_.as_deref() == Some("Warning"),
        ..Entry::new(&at.unwrap_or_default(), EntryKind::Event, key.to_string(), reason, &text)
    }
}
