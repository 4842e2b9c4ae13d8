//! What a world says of its pods, and of its objects' conditions.

use eno_core::{Condition, Key, PodEntry, Status, Target};
use eno_schemas::{Desired, NodeDesired, NodePod};

use super::World;

pub fn node(name: &str) -> Target {
    Target::Node(name.into())
}

pub fn on_node(w: &World, name: &str) -> NodeDesired {
    match w.targets.get(&node(name)) {
        Some(Desired::Node(desired)) => desired.clone(),
        _ => panic!("{name} has no state"),
    }
}

pub fn given(w: &World, node: &str, pod: &str) -> Option<NodePod> {
    on_node(w, node).pods.get(&format!("uid-{pod}")).cloned()
}

pub fn addresses(w: &World, node: &str, pod: &str) -> Vec<String> {
    let pod = given(w, node, pod).unwrap_or_else(|| panic!("{pod} is given nothing"));
    pod.links.iter().flat_map(|link| link.addresses.iter().map(ToString::to_string)).collect()
}

pub fn entry<'a>(w: &'a World, key: &Key, pod: &str) -> &'a PodEntry {
    entry_of(w, key, pod).unwrap()
}

pub fn entry_of<'a>(w: &'a World, key: &Key, pod: &str) -> Option<&'a PodEntry> {
    w.statuses[key].pods.iter().find(|entry| &*entry.name == pod)
}

pub fn condition<'a>(status: &'a Status, kind: &str) -> Option<&'a Condition> {
    status.conditions.iter().find(|condition| condition.kind == kind)
}
