//! Kubernetes Events for repairs that agents report. Pure.

use eno_core::{Key, Kind, Name};
use eno_schemas::{NodeDesired, Report};
use k8s_openapi::api::core::v1::ObjectReference;

use crate::api;
use crate::status::events;
use crate::watch::objects::Objects;

/// Kind of the notes about repairs.
const REPAIRED: &str = "Repaired";

/// True when the report has repairs.
pub fn has_repairs(report: &Report) -> bool {
    report.notes.iter().any(|note| note.kind == REPAIRED)
}

/// The repairs in a report with the object of each Event: the object that requested the interface, else the pod, else
/// the Node. `desired`: the desired state of the node.
pub fn repair_events<'a>(
    node: &Name,
    desired: Option<&NodeDesired>,
    objects: &Objects,
    report: &'a Report,
) -> Vec<(ObjectReference, &'a str)> {
    let notes = report.notes.iter().filter(|note| note.kind == REPAIRED);
    let repairs = notes.map(|note| {
        let pod = note.item.pod.as_ref().and_then(|uid| Some((uid, desired?.pods.get(uid)?)));
        let Some((uid, pod)) = pod else { return (events::node_ref(node), note.message.as_str()) };
        let owner = note.item.link.as_deref().and_then(owner_of).and_then(|(kind, name)| {
            let key = Key::namespaced(kind, &pod.namespace.as_str().into(), &name.into());
            let uid = &objects.get(&key)?.uid;
            Some(events::object_ref(&key, uid))
        });
        let object = owner.unwrap_or_else(|| events::pod_ref(&pod.namespace, &pod.name, uid));
        (object, note.message.as_str())
    });
    repairs.collect()
}

/// Kind and name of the object that requested an interface, from the interface's id `<kind>/<object>/<link>`.
fn owner_of(link: &str) -> Option<(Kind, &str)> {
    let (kind, rest) = link.split_once('/')?;
    let (name, _) = rest.split_once('/')?;
    Some((api::kind(kind)?, name))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use eno_schemas::{Generation, Item, NodePod, Note, Outcome};
    use kube::api::DynamicObject;

    use super::*;
    use crate::watch::objects::StoredObject;

    #[test]
    fn repair_events_refer_to_object_pod_or_node() {
        let key = Key::namespaced(Kind::PodConfig, &"ns".into(), &"pc".into());
        let mut object = DynamicObject::new("pc", &api::resource(Kind::PodConfig));
        object.metadata.uid = Some("o".into());
        let mut objects = Objects::default();
        objects.put(key.clone(), Arc::new(StoredObject::new(&key, object)));
        let pod = NodePod {
            namespace: "ns".into(),
            name: "p".into(),
            container: "containerd://a".into(),
            links: vec![],
            primary: None,
        };
        let desired = NodeDesired { pods: [("u".to_owned(), pod)].into(), ..NodeDesired::default() };
        let note = |kind: &str, item| Note { kind: kind.into(), item, message: "m".into() };
        let report = Report {
            driver: "node".into(),
            target: "worker1".into(),
            instance: "1".into(),
            generation: Generation { term: 1, sequence: 1, hash: String::new() },
            at: "2026-01-01T00:00:00Z".into(),
            outcome: Outcome::Applied,
            applied: None,
            rejected: vec![],
            notes: vec![
                note("Repaired", Item::link("u", "PodConfig/pc/pc0")),
                note("Repaired", Item::link("u", "PodConfig/gone/pc0")),
                note("Repaired", Item::port("br-data")),
                note("Repaired", Item::pod("another")),
                note("Stale", Item::port("br-data")),
            ],
            device: None,
            change: None,
        };
        assert!(has_repairs(&report));
        let events_of = repair_events(&"worker1".into(), Some(&desired), &objects, &report);
        let events_of: Vec<_> =
            events_of.iter().map(|(object, _)| (object.kind.as_deref(), object.name.as_deref())).collect();
        let of = |kind, name| (Some(kind), Some(name));
        assert_eq!(
            events_of,
            [of("PodConfig", "pc"), of("Pod", "p"), of("Node", "worker1"), of("Node", "worker1")]
        );
    }

    #[test]
    fn interface_id_yields_owner() {
        assert_eq!(owner_of("PodConfig/pc/pc0"), Some((Kind::PodConfig, "pc")));
        assert_eq!(owner_of("L2ServiceAttachment/a/a/s"), Some((Kind::L2ServiceAttachment, "a")));
        assert_eq!(owner_of("eth0"), None);
        assert_eq!(owner_of("Other/a/b"), None);
    }
}
