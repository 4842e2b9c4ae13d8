//! `eno revoked`: pods that have a network without the permission to use it, and the removal of that network.

use eno_tests::{System, poll, until, with_shared_sandbox};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::events::v1;
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, PostParams};
use kube::runtime::watcher;
use serde_json::{Value, json};

const NAMESPACE: &str = "revoked";
const LABEL: &str = "attach.eno.k8s.io/oam";

/// The manifests of a service account that may use attachments.
fn account(name: &str) -> String {
    format!(
        "\n---\n{{apiVersion: v1, kind: ServiceAccount, metadata: {{name: {name}, namespace: {NAMESPACE}}}}}\n---\n\
         {{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {{name: {name}, namespace: {NAMESPACE}}}, \
         roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: eno-attachment-user}}, \
         subjects: [{{kind: ServiceAccount, name: {name}, namespace: {NAMESPACE}}}]}}"
    )
}

/// A pod of that service account with a label that names an attachment.
fn pod(name: &str) -> Pod {
    let pod = json!({
        "metadata": { "name": name, "labels": { "app": "cnf", (LABEL): "net1" } },
        "spec": { "serviceAccountName": name, "containers": [{ "name": "c", "image": "nothing.invalid/c" }] },
    });
    serde_json::from_value(pod).expect("a pod")
}

async fn revoked(system: &System, more: &[&str]) -> Value {
    let arguments = [&["revoked", "-n", NAMESPACE][..], more].concat();
    system.eno_json(&arguments, "", 0).await["revoked"].clone()
}

#[test]
fn revoked_pod_is_listed_and_loses_its_network() {
    with_shared_sandbox(async |system| {
        system.namespace(NAMESPACE).await;
        let client = system.sandbox.client();
        let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
        for name in ["keeps", "loses"] {
            system.apply(&account(name)).await;
            // The API server's admission knows a new account and its permission a moment later.
            poll(async || pods.create(&PostParams::default(), &pod(name)).await.ok())
                .await
                .expect("a pod is taken");
        }
        until("all may", async || revoked(system, &[]).await == json!([])).await;
        let bindings: Api<RoleBinding> = Api::namespaced(client.clone(), NAMESPACE);
        bindings.delete("loses", &DeleteParams::default()).await.expect("it goes");
        let found = poll(async || {
            let found = revoked(system, &[]).await;
            (found != json!([])).then_some(found)
        })
        .await
        .expect("it is seen");
        let uses = json!(["L2ServiceAttachment/oam"]);
        let expected =
            json!([{ "namespace": NAMESPACE, "pod": "loses", "serviceAccount": "loses", "uses": uses }]);
        assert_eq!(found, expected);
        let labels = async |name: &str| pods.get(name).await.expect("a pod").labels().clone();
        assert!(labels("loses").await.contains_key(LABEL), "who only looks changes nothing");

        assert_eq!(revoked(system, &["--end"]).await, expected);
        assert_eq!(labels("loses").await.into_keys().collect::<Vec<_>>(), ["app"]);
        assert!(labels("keeps").await.contains_key(LABEL));
        let events: Api<v1::Event> = Api::namespaced(client, NAMESPACE);
        let is_about_revocation = |event: &v1::Event| {
            let about = event.regarding.as_ref().and_then(|pod| pod.name.as_deref());
            event.reason.as_deref() == Some("UseRevoked") && about == Some("loses")
        };
        system
            .until(events, watcher::Config::default(), "an Event", |all| {
                all.values().any(is_about_revocation)
            })
            .await;
        assert_eq!(revoked(system, &[]).await, json!([]));
        for name in ["keeps", "loses"] {
            let now = DeleteParams::default().grace_period(0);
            pods.delete(name, &now).await.expect("it goes");
        }
    });
}
