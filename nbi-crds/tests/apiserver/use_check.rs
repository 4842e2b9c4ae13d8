//! Permissions to use and to change configurations.

use k8s_openapi::api::{
    apps::v1::Deployment,
    authorization::v1::ResourceAttributes,
    core::v1::{Namespace, Node, Pod, ServiceAccount},
    rbac::v1::RoleBinding,
};
use kube::{
    Api, Client, Config,
    api::{Patch, PatchParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{access_becomes, eventually};

fn read<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("an object")
}

fn pod_spec() -> Value {
    json!({ "serviceAccountName": "cnf", "containers": [{ "name": "c", "image": "nothing.invalid/c:1" }] })
}

fn pod(name: &str, labels: &Value) -> Pod {
    read(json!({ "metadata": { "name": name, "labels": labels }, "spec": pod_spec() }))
}

async fn tenant(client: &Client, name: &str, labels: Value) {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let namespace = read(json!({ "metadata": { "name": name, "labels": labels } }));
    namespaces.create(&PostParams::default(), &namespace).await.expect("a namespace");
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), name);
    for account in ["cnf", "default"] {
        let account: ServiceAccount = read(json!({ "metadata": { "name": account } }));
        // The controller manager creates the account called default.
        match accounts.create(&PostParams::default(), &account).await {
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            other => drop(other.expect("a service account")),
        }
    }
}

async fn bind(client: &Client, namespace: &str, role: &str) {
    let bindings: Api<RoleBinding> = Api::namespaced(client.clone(), namespace);
    let binding = read(json!({
        "metadata": { "name": role },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role },
        "subjects": [{ "kind": "ServiceAccount", "name": "cnf", "namespace": namespace }],
    }));
    bindings.create(&PostParams::default(), &binding).await.expect("a role binding");
}

fn refusal<T>(result: Result<T, kube::Error>) -> Option<String> {
    match result {
        Err(kube::Error::Api(status)) if status.code == 403 => Some(status.message.clone()),
        _ => None,
    }
}

/// A pod, alone or of a Deployment, may have a label that names a configuration only with the permission to
/// use it.
pub async fn configuration_label_requires_use_permission(client: &Client) {
    tenant(client, "tenant-a", json!({})).await;
    tenant(client, "lab", json!({ "eno.k8s.io/use-check": "off" })).await;
    let pods: Api<Pod> = Api::namespaced(client.clone(), "tenant-a");
    let lab: Api<Pod> = Api::namespaced(client.clone(), "lab");
    let real = PostParams::default();
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    let cases = [
        (json!({ "podconfig": "pc" }), "eno-podconfig-user", "may not use PodConfig pc"),
        (
            json!({ "podNetworkConfig": "pnc" }),
            "eno-podnetworkconfig-user",
            "may not use PodNetworkConfig pnc",
        ),
        (
            json!({ "attach.eno.k8s.io/oam": "net1" }),
            "eno-attachment-user",
            "may not use L2ServiceAttachment oam, which a label attach.eno.k8s.io/",
        ),
    ];
    for (labels, role, expected) in &cases {
        // The policy takes effect some time after it was applied.
        eventually("the policy refuses", || async {
            refusal(pods.create(&dry, &pod("refused", labels)).await)
                .is_some_and(|message| message.contains(expected) && message.contains(role))
        })
        .await;
        lab.create(&dry, &pod("taken", labels)).await.expect("no check in this namespace");
    }
    let plain = pod("plain", &json!({ "app": "cnf" }));
    pods.create(&real, &plain).await.expect("a pod that names nothing");
    let label = |labels: &Value| Patch::Merge(json!({ "metadata": { "labels": labels } }));
    let params = PatchParams::default();
    for (labels, _, expected) in &cases {
        let message = refusal(pods.patch("plain", &params, &label(labels)).await);
        assert!(message.is_some_and(|message| message.contains(expected)), "a label is added: {labels}");
    }

    let deployments: Api<Deployment> = Api::namespaced(client.clone(), "tenant-a");
    let deployment = read(json!({
        "metadata": { "name": "cnf" },
        "spec": {
            "replicas": 1,
            "selector": { "matchLabels": { "podconfig": "pc" } },
            "template": { "metadata": { "labels": { "podconfig": "pc" } }, "spec": pod_spec() },
        },
    }));
    deployments.create(&real, &deployment).await.expect("a Deployment");
    eventually("the Deployment says that its pods are refused", || async {
        let deployment = deployments.get("cnf").await.expect("the Deployment");
        deployment.status.and_then(|status| status.conditions).into_iter().flatten().any(|condition| {
            condition.type_ == "ReplicaFailure"
                && condition.message.is_some_and(|message| message.contains("may not use PodConfig pc"))
        })
    })
    .await;

    for (labels, role, _) in &cases {
        bind(client, "tenant-a", role).await;
        eventually("the pod with the right", || async {
            pods.create(&dry, &pod("taken", labels)).await.is_ok()
        })
        .await;
        pods.patch("plain", &params, &label(labels)).await.expect("a label is added with the right to it");
    }
    eventually("the Deployment's pod", || async {
        let deployment = deployments.get("cnf").await.expect("the Deployment");
        deployment.status.is_some_and(|status| status.replicas == Some(1))
    })
    .await;

    let bindings: Api<RoleBinding> = Api::namespaced(client.clone(), "tenant-a");
    bindings
        .delete("eno-podconfig-user", &kube::api::DeleteParams::default())
        .await
        .expect("the right is taken");
    eventually("the right is gone", || async {
        refusal(pods.create(&dry, &pod("refused", &json!({ "podconfig": "pc" }))).await).is_some()
    })
    .await;
    pods.patch("plain", &params, &label(&json!({ "other": "label" }))).await.expect("what it has it keeps");
    assert!(refusal(pods.patch("plain", &params, &label(&json!({ "podconfig": "other" }))).await).is_some());
}

/// A tenant with the role `admin` of its namespace can read configurations and change none.
pub async fn tenants_can_read_and_not_change_configurations(client: &Client) {
    tenant(client, "tenant-b", json!({})).await;
    bind(client, "tenant-b", "admin").await;
    let resources = [
        ("podconfig.opdev.io", "podconfigs"),
        ("podnetwork.opdev.io", "podnetworkconfigs"),
        ("podnetwork.opdev.io", "bridges"),
        ("eno.k8s.io", "podnetworks"),
    ];
    let verbs = [
        ("get", true),
        ("watch", true),
        ("create", false),
        ("patch", false),
        ("delete", false),
        ("use", false),
    ];
    for (group, resource) in resources {
        for (verb, allowed) in verbs {
            let attributes = ResourceAttributes {
                verb: Some(verb.into()),
                group: Some(group.into()),
                resource: Some(resource.into()),
                namespace: Some("tenant-b".into()),
                ..ResourceAttributes::default()
            };
            let user = "system:serviceaccount:tenant-b:cnf".to_owned();
            let what = format!("tenant {verb} {resource}: {allowed}");
            access_becomes(client, user, attributes, allowed, &what).await;
        }
    }
}

/// The engine may patch only the labels and extended resources of Nodes.
pub async fn engine_patches_only_labels_and_extended_resources_of_nodes(
    client: &Client,
    kubeconfig: &std::path::Path,
) {
    let kubeconfig = Kubeconfig::read_from(kubeconfig).expect("the kubeconfig");
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .expect("a configuration");
    config.auth_info.impersonate = Some("system:serviceaccount:eno-system:eno-engine".into());
    let engine: Api<Node> = Api::all(Client::try_from(config).expect("a client"));
    let nodes: Api<Node> = Api::all(client.clone());
    let node = read(json!({ "metadata": { "name": "marked", "labels": { "a": "b" } } }));
    nodes.create(&PostParams::default(), &node).await.expect("a node");
    let params = PatchParams::default();
    let merge = |patch: Value| Patch::Merge(patch);
    eventually("a label of another kind is refused", || async {
        let patch = merge(json!({ "metadata": { "labels": { "a": "c" } } }));
        refusal(engine.patch("marked", &params, &patch).await).is_some()
    })
    .await;
    for wrong in [
        json!({ "metadata": { "labels": { "a": null } } }),
        json!({ "metadata": { "annotations": { "a": "c" } } }),
        json!({ "spec": { "unschedulable": true } }),
    ] {
        assert!(refusal(engine.patch("marked", &params, &merge(wrong.clone())).await).is_some(), "{wrong}");
    }
    let label = json!({ "metadata": { "labels": { "cp.eno.k8s.io/cp": "ready" } } });
    engine.patch("marked", &params, &merge(label)).await.expect("its own label");
    let gone = json!({ "metadata": { "labels": { "cp.eno.k8s.io/cp": null } } });
    engine.patch("marked", &params, &merge(gone)).await.expect("its own label");
    for (resource, taken) in [("ovs-cni.network.kubevirt.io/br-data", true), ("cpu", false)] {
        let capacity = merge(json!({ "status": { "capacity": { resource: "1k" } } }));
        let result = engine.patch_status("marked", &params, &capacity).await;
        assert_eq!(result.is_ok(), taken, "{resource}: {result:?}");
    }
}
