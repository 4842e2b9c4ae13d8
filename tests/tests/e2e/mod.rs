//! End-to-end tests through the Kubernetes API, with a real control plane and simulated switches. The engine and the
//! drivers are processes with the rights of `deploy/`. The tests share one sandbox; each uses its own names, namespaces
//! and VLAN IDs.

mod bad_devices;
mod bad_input;
mod bridge_domains;
mod callbacks;
mod check;
mod connectivity;
mod deletion;
mod fabric;
mod gateway;
mod idle;
mod inspect_commands;
mod main_path;
mod openstack;
mod ovs_fabric;
mod process_crashes;
mod reference_manifests;
mod revoked;
mod roles;
mod sysdump;
mod templates;
mod trunk_isolation;
mod ui;
mod ui_requests;
mod ui_visibility;
mod unreachable_networks;
mod updates;
mod vlan_conflicts;

use eno_tests::System;
use serde_json::json;

/// Creates a NodePool and a ConnectionPoint of one name with these nodes and the OVS bridge `br0`.
async fn create_connection_point(system: &System, name: &str, nodes: &[&str]) {
    create_connection_point_on(system, name, nodes, "eth1").await;
}

/// Creates a namespace, and a NodePool and a ConnectionPoint of its name.
async fn create_namespace_and_point(system: &System, name: &str, nodes: &[&str]) {
    system.namespace(name).await;
    create_connection_point(system, name, nodes).await;
}

/// Like [`create_connection_point`], with the bridge's NICs separated by commas.
async fn create_connection_point_on(system: &System, name: &str, nodes: &[&str], interfaces: &str) {
    for node in nodes {
        add_node_to_pool(system, name, node).await;
    }
    system.create_pool_and_point(name, interfaces).await;
}

/// Adds a node to a pool.
async fn add_node_to_pool(system: &System, pool: &str, node: &str) {
    system.patch("Node", node, json!({"metadata": {"labels": {(format!("pool-{pool}")): "yes"}}})).await;
}

/// Removes a node from a pool.
async fn remove_node_from_pool(system: &System, pool: &str, node: &str) {
    system.patch("Node", node, json!({"metadata": {"labels": {(format!("pool-{pool}")): null}}})).await;
}
