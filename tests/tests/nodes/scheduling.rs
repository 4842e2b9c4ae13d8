//! Node labels and extended resources of networks, and their effect on the scheduler.

use eno_nbi_crds::ConnectionPoint;
use eno_tests::{deployment, with_shared_nodes};
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::runtime::watcher;
use serde_json::json;

use crate::nodes::hot_plug::network;

#[test]
#[ignore = "needs root: real nodes"]
fn pod_is_scheduled_once_its_node_has_the_network() {
    with_shared_nodes(async |system| {
        system.apply("{apiVersion: v1, kind: Namespace, metadata: {name: marks}}").await;
        let mut waiting: serde_json::Value =
            serde_json::from_str(&deployment("marks", "cnf", 1, &json!({}))).expect("JSON");
        let pod = &mut waiting["spec"]["template"]["spec"];
        pod["nodeSelector"] = json!({ "cp.eno.k8s.io/marks": "ready" });
        let resource = "ovs-cni.network.kubevirt.io/br-data";
        pod["containers"][0]["resources"] =
            json!({ "requests": { resource: "1" }, "limits": { resource: "1" } });
        let waiting = waiting.to_string();
        system.apply(&waiting).await;
        let pods = system.pods("marks");
        let config = watcher::Config::default().labels("app=cnf");
        let unscheduled = |pod: &k8s_openapi::api::core::v1::Pod| {
            let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
            conditions.clone().any(|one| one.type_ == "PodScheduled" && one.status == "False")
        };
        system.until(pods, config, "a pod that waits", |all| all.values().any(unscheduled)).await;

        let network = network("marks", 130);
        system.apply_until_ready::<ConnectionPoint>(&network, "marks").await;
        system.running("marks", "app=cnf", 1).await;

        system.delete(&waiting).await;
        system.delete(&network).await;
        let nodes: Api<Node> = Api::all(system.sandbox.client());
        let is_labelled =
            |node: &Node| node.metadata.labels.iter().flatten().any(|(key, _)| key == "cp.eno.k8s.io/marks");
        system
            .until(nodes, watcher::Config::default(), "nodes without the mark", |all| {
                !all.values().any(is_labelled)
            })
            .await;
    });
}
