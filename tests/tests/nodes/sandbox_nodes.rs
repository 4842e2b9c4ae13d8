//! What the sandbox's nodes offer to users' experiments.

use eno_tests::{deployment, with_shared_nodes};
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::watcher;
use serde_json::{Value, json};

#[test]
#[ignore = "needs root: real nodes"]
fn unprivileged_pod_can_ping() {
    with_shared_nodes(async |system| {
        let namespace = "{apiVersion: v1, kind: Namespace, metadata: {name: pinging, labels: \
                         {pod-security.kubernetes.io/enforce: restricted}}}";
        system.apply(namespace).await;
        let cnf = deployment("pinging", "cnf", 2, &json!({}));
        system.apply(&cnf).await;
        let pods = system.running("pinging", "app=cnf", 2).await;
        let addresses: Vec<String> =
            pods.values().filter_map(|pod| pod.status.as_ref()?.pod_ip.clone()).collect();
        assert_eq!(addresses.len(), 2, "{pods:?}");
        for pod in pods.keys() {
            for address in addresses.iter().map(String::as_str).chain(["::1"]) {
                let output = system.sandbox.exec("pinging", pod, &["ping", "-c", "1", address]).await;
                let output = output.expect("a program in the pod");
                assert!(output.success(), "{pod} to {address}: {output:?}");
            }
        }
        system.delete(&cnf).await;
        system.delete(namespace).await;
    });
}

/// A kubelet's default backoff is 10, 20 and 40 s between these restarts.
#[test]
#[ignore = "needs root: real nodes"]
fn failing_container_is_restarted_without_long_backoff() {
    with_shared_nodes(async |system| {
        let namespace = "{apiVersion: v1, kind: Namespace, metadata: {name: failing}}";
        system.apply(namespace).await;
        let mut cnf: Value =
            serde_json::from_str(&deployment("failing", "cnf", 1, &json!({}))).expect("JSON");
        let pod = &mut cnf["spec"]["template"]["spec"];
        pod["volumes"] = json!([{ "name": "state", "emptyDir": {} }]);
        let container = &mut pod["containers"][0];
        container["volumeMounts"] = json!([{ "name": "state", "mountPath": "/state" }]);
        let script = "echo >>/state/starts; test $(wc -l </state/starts) -gt 4 || exit 1; exec sleep 1000000";
        container["command"] = json!(["sh", "-c", script]);
        let cnf = cnf.to_string();
        system.apply(&cnf).await;
        let runs = |pod: &Pod| {
            let statuses = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
            statuses.into_iter().any(|container| container.ready && container.restart_count == 4)
        };
        let config = watcher::Config::default().labels("app=cnf");
        system
            .until(system.pods("failing"), config, "a pod that was restarted 4 times", |all| {
                all.values().any(runs)
            })
            .await;
        system.delete(&cnf).await;
        system.delete(namespace).await;
    });
}
