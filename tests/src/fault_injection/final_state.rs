//! The final state of a stage on every layer, with the run's name replaced.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use kube::ResourceExt as _;
use kube::api::{Api, ApiResource, DynamicObject, ListParams};
use kube::core::GroupVersionKind;
use serde_json::{Value, json};

use super::scenario::{KINDS, NAMESPACE, objects};
use crate::{Callback, Receiver, System};

/// The state of each object, NetworkAttachmentDefinition and switch, by kind and name.
pub(super) type FinalState = BTreeMap<String, Value>;

/// The placeholder of a run's name.
const RUN: &str = "RUN";

/// Reads objects with their statuses, NetworkAttachmentDefinitions, and the switches' running configurations.
pub(super) async fn found(system: &System, run: &str) -> FinalState {
    let mut found = FinalState::new();
    let ours = ListParams::default().labels(&format!("run={run}"));
    for kind in KINDS {
        let gvk = GroupVersionKind::gvk("eno.k8s.io", "v1alpha1", kind);
        let api: Api<DynamicObject> = Api::all_with(system.sandbox.client(), &ApiResource::from_gvk(&gvk));
        for object in api.list(&ours).await.expect("the API server itself is well") {
            found.insert(format!("{kind} {}", object.name_any()), status(&object));
        }
    }
    let nads = system.nads(NAMESPACE).list(&ListParams::default()).await;
    for nad in nads.expect("the API server itself is well") {
        let owners: Vec<_> = nad.owner_references().iter().map(|owner| owner.name.clone()).collect();
        let name = format!("NetworkAttachmentDefinition {}", nad.name_any());
        let mut annotations = nad.annotations().clone();
        annotations.remove("eno.k8s.io/attachment-uid");
        found.insert(name, json!({"owners": owners, "annotations": annotations, "spec": nad.data["spec"]}));
    }
    for switch in system.sandbox.switches() {
        let view = system.view(&switch.name).await;
        let ports: BTreeMap<_, _> =
            view.ports.iter().map(|(name, port)| (name, serde_json::to_value(port).expect("JSON"))).collect();
        let vlans: BTreeMap<_, _> = view.vlans.iter().map(|(id, vlan)| (id.to_string(), vlan)).collect();
        let state = json!({"vlans": vlans, "ports": ports, "vrfs": view.vrfs});
        found.insert(format!("switch {}", switch.name), state);
    }
    let text = serde_json::to_string(&found).expect("JSON").replace(run, RUN);
    serde_json::from_str(&text).expect("JSON")
}

/// A status without the fields that differ between runs.
fn status(object: &DynamicObject) -> Value {
    let mut status = object.data.get("status").cloned().unwrap_or_default();
    let current = status["observedGeneration"].as_i64() == object.metadata.generation;
    if let Some(fields) = status.as_object_mut() {
        for field in ["observedGeneration", "transitions", "lastTransaction", "readyInputs"] {
            fields.remove(field);
        }
        if let Some(conditions) = fields.get_mut("conditions").and_then(Value::as_array_mut) {
            // The duration of an error differs.
            conditions.retain(|condition| condition["type"] != "Stalled");
            for condition in conditions.iter_mut().filter_map(Value::as_object_mut) {
                condition.remove("lastTransitionTime");
                condition.remove("observedGeneration");
            }
        }
    }
    json!({
        "current": current,
        "deleted": object.metadata.deletion_timestamp.is_some(),
        "finalizers": object.finalizers(),
        "status": status,
    })
}

/// A state without the records of ports before our first VLAN. A driver that dies between the confirmation and its report
/// loses them.
pub(super) fn without_ports_before(mut state: FinalState) -> FinalState {
    for object in state.values_mut() {
        if let Some(status) = object.get_mut("status").and_then(Value::as_object_mut) {
            status.remove("portsBefore");
        }
    }
    state
}

/// The number of transitions in each object's status.
pub(super) async fn transitions(system: &System, run: &str) -> BTreeMap<String, u64> {
    let ours = ListParams::default().labels(&format!("run={run}"));
    let mut all = BTreeMap::new();
    for kind in KINDS {
        let gvk = GroupVersionKind::gvk("eno.k8s.io", "v1alpha1", kind);
        let api: Api<DynamicObject> = Api::all_with(system.sandbox.client(), &ApiResource::from_gvk(&gvk));
        for object in api.list(&ours).await.expect("the API server itself is well") {
            let count =
                object.data.pointer("/status/transitions").and_then(Value::as_u64).unwrap_or_default();
            let name = object.name_any();
            let name = object.namespace().map_or(name.clone(), |namespace| format!("{namespace}/{name}"));
            all.insert(format!("{kind} {name}"), count);
        }
    }
    all
}

/// The phases in the callbacks of each object of a run, in order; an error names a missing callback.
pub(super) fn callbacks(receiver: &Receiver, run: &str) -> Result<BTreeMap<String, Vec<String>>, String> {
    let mut all = BTreeMap::new();
    for object in objects(run) {
        let callbacks = receiver.of(&object);
        let numbers: Vec<_> = callbacks.iter().map(|callback| callback.transition).collect();
        let complete: Vec<_> = (1..=callbacks.len() as u64).collect();
        let phases: Vec<_> = callbacks.into_iter().map(phase).collect();
        if numbers != complete {
            return Err(format!("the callbacks of {object} came as {numbers:?}: {phases:?}"));
        }
        all.insert(object.replace(run, RUN), phases);
    }
    Ok(all)
}

/// The phase of a callback, with the message of an error.
fn phase(callback: Callback) -> String {
    match callback.body.pointer("/status/message").and_then(Value::as_str) {
        Some(message) if callback.phase == "error" => format!("error: {message}"),
        _ => callback.phase,
    }
}

/// A text with the differences of two states; empty when they are equal.
pub(super) fn difference<T: PartialEq + std::fmt::Debug>(
    wanted: &BTreeMap<String, T>,
    found: &BTreeMap<String, T>,
) -> String {
    let mut text = String::new();
    for name in wanted.keys().chain(found.keys().filter(|name| !wanted.contains_key(*name))) {
        let (wanted, found) = (wanted.get(name), found.get(name));
        if wanted != found {
            let _ = write!(text, "\n  {name}\n    undisturbed {wanted:?}\n    here        {found:?}");
        }
    }
    text
}
