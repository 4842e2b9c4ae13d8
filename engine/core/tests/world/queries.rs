//! Reads applied pod state and status conditions from a [`World`].

use eno_core::{Condition, Key, PodEntry, Status, Target};
use eno_schemas::{Desired, NodeDesired, NodePod};

use super::World;

pub fn node_target(name: &str) -> Target {
    Target::Node(name.into())
}

/// The state that the agent of a node applied last.
pub fn applied_node(w: &World, name: &str) -> NodeDesired {
    find_applied_node(w, name).unwrap_or_else(|| panic!("{name} has no state")).clone()
}

pub fn find_applied_node<'a>(w: &'a World, name: &str) -> Option<&'a NodeDesired> {
    match w.applied.get(&node_target(name))? {
        Desired::Node(desired) => Some(desired),
        _ => panic!("{name} is no node"),
    }
}

/// The applied state of a pod in the namespace `ns`.
pub fn applied_pod(w: &World, node: &str, pod: &str) -> Option<NodePod> {
    applied_node(w, node).pods.get(&format!("uid-{pod}")).cloned()
}

/// The addresses on all links of a pod, in the order of the links.
pub fn pod_addresses(w: &World, node: &str, pod: &str) -> Vec<String> {
    let pod = applied_pod(w, node, pod).unwrap_or_else(|| panic!("{pod} has no applied state"));
    pod.links.iter().flat_map(|link| link.addresses.iter().map(ToString::to_string)).collect()
}

/// The status entry of a pod.
pub fn pod_entry<'a>(w: &'a World, key: &Key, pod: &str) -> &'a PodEntry {
    find_pod_entry(w, key, pod).unwrap()
}

pub fn find_pod_entry<'a>(w: &'a World, key: &Key, pod: &str) -> Option<&'a PodEntry> {
    w.statuses[key].pods.iter().find(|entry| &*entry.name == pod)
}

pub fn condition<'a>(status: &'a Status, kind: &str) -> Option<&'a Condition> {
    status.conditions.iter().find(|condition| condition.kind.as_ref() == kind)
}

/// A status without the interfaces of these pods.
pub fn without_links_of(status: &Status, pods: &[&str]) -> Status {
    let mut status = status.clone();
    for entry in status.pods.iter_mut().filter(|entry| pods.contains(&&*entry.name)) {
        entry.links.clear();
    }
    status
}
