//! End-to-end tests through the Kubernetes API: a real control plane, the engine and the drivers as processes of
//! their own with the rights of `deploy/`, and simulated switches. They share one sandbox; each minds its own names,
//! namespaces and VLAN IDs.

mod asking;
mod bad_devices;
mod bad_input;
mod bridge_domains;
mod callbacks;
mod changes;
mod conflicts;
mod crashes;
mod deleting;
mod fabric;
mod idle;
mod main_path;
mod ovs_fabric;
mod reference;
mod revoked;
mod roles;
mod trunks;
mod ways;

use eno_nbi_crds::{ConnectionPoint, Phase};
use eno_tests::System;
use serde_json::json;

/// The document of an L2Service; `more` is the rest of its spec.
fn service(name: &str, vid: u16, more: &str) -> String {
    let test = name.split('-').next().unwrap_or_default();
    format!(
        "\n---\napiVersion: eno.k8s.io/v1alpha1\nkind: L2Service\nmetadata: {{name: {name}, labels: {{test: {test}}}}}\n\
         spec: {{SegmentationID: {vid}, {more}}}"
    )
}

/// The document of an L2ServiceAttachment; `more` is the rest of its spec, VlanType at least.
fn attachment(namespace: &str, name: &str, point: &str, services: &str, more: &str) -> String {
    let test = namespace.split('-').next().unwrap_or_default();
    format!(
        "\n---\napiVersion: eno.k8s.io/v1alpha1\nkind: L2ServiceAttachment\nmetadata: {{name: {name}, namespace: \
         {namespace}, labels: {{test: {test}}}}}\nspec: {{ConnectionPoint: {point}, L2Services: [{services}], {more}}}"
    )
}

/// A NodePool and a ConnectionPoint of one name, with these nodes and the OVS bridge `br0`.
async fn point(system: &System, name: &str, nodes: &[&str]) {
    point_on(system, name, nodes, "eth1").await;
}

/// The same with the NICs under the bridge, separated by commas.
async fn point_on(system: &System, name: &str, nodes: &[&str], interfaces: &str) {
    for node in nodes {
        join(system, name, node).await;
    }
    let yaml = format!(
        "apiVersion: eno.k8s.io/v1alpha1\nkind: NodePool\nmetadata: {{name: {name}}}\nspec: {{NodeSelector: \
         {{matchLabels: {{pool-{name}: 'yes'}}}}}}\n---\napiVersion: eno.k8s.io/v1alpha1\nkind: \
         ConnectionPoint\nmetadata: {{name: {name}}}\nspec: {{NodePool: {name}, Interfaces: [{interfaces}], SupportedCnis: \
         [{{Name: ovs, SupportedInterfaceTypes: [kernel], Opts: '{{\"BridgeName\": \"br0\"}}'}}]}}"
    );
    system.apply(&yaml).await;
    system.becomes::<ConnectionPoint>(name, Phase::Ready).await;
}

/// Makes a node one of a pool's.
async fn join(system: &System, pool: &str, node: &str) {
    system.patch("Node", node, json!({"metadata": {"labels": {(format!("pool-{pool}")): "yes"}}})).await;
}

/// Takes a node out of a pool.
async fn leave(system: &System, pool: &str, node: &str) {
    system.patch("Node", node, json!({"metadata": {"labels": {(format!("pool-{pool}")): null}}})).await;
}
