//! Pods of `deploy/` under the Pod Security Standard `restricted`, which all but the agent's must meet.

use std::collections::BTreeSet;
use std::path::Path;

use eno_control_plane::parts::{Part, Parts};
use eno_tests::{System, with_shared_sandbox};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DynamicObject, PostParams};
use serde_json::{Value, json};

use crate::security::service_accounts::parts;

const AGENT: &str = "eno-agent";

/// The objects of a folder of `deploy/`, as `kubectl apply -k` applies them.
pub async fn rendered(folder: &str) -> Vec<DynamicObject> {
    let parts = Parts::from_env().expect("a place for the control plane's programs");
    let kubectl = parts.get(Part::Kubectl).await.expect("kubectl");
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(folder);
    let output = tokio::process::Command::new(kubectl).arg("kustomize").arg(&folder).output().await;
    let output = output.expect("kubectl runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_saphyr::from_multiple(&String::from_utf8_lossy(&output.stdout)).expect("objects")
}

/// The pods of a folder's workloads: workload name, namespace and pod template.
async fn pods(folder: &str) -> Vec<(String, String, Value)> {
    let all = rendered(folder).await.into_iter();
    all.filter_map(|object| {
        let mut template = object.data.pointer("/spec/template")?.clone();
        // A StatefulSet's pods have a volume for each claim.
        let claims = object.data.pointer("/spec/volumeClaimTemplates").and_then(Value::as_array);
        for claim in claims.into_iter().flatten() {
            let name = &claim["metadata"]["name"];
            let volume = json!({ "name": name, "persistentVolumeClaim": { "claimName": name } });
            template["spec"]["volumes"].as_array_mut()?.push(volume);
        }
        Some((object.metadata.name?, object.metadata.namespace?, template))
    })
    .collect()
}

/// The API server's answer to a dry-run creation of a pod in a namespace.
async fn admitted(system: &System, namespace: &str, template: &Value) -> Result<(), String> {
    let mut pod = template.clone();
    pod["metadata"]["generateName"] = json!("tried-");
    let pod: Pod = serde_json::from_value(pod).expect("a pod");
    let pods: Api<Pod> = Api::namespaced(system.sandbox.client(), namespace);
    let params = PostParams { dry_run: true, ..PostParams::default() };
    match pods.create(&params, &pod).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) => Err(status.message.clone()),
        Err(error) => panic!("{error}"),
    }
}

/// Creates the namespace and the account of the agents without their DaemonSet.
async fn prepare(system: &System) {
    for object in rendered("deploy/agent").await {
        let kind = object.types.as_ref().map(|types| types.kind.as_str()).unwrap_or_default();
        if matches!(kind, "Namespace" | "ServiceAccount") {
            system.apply(&serde_json::to_string(&object).expect("JSON")).await;
        }
    }
}

#[test]
fn all_pods_except_the_agent_meet_pod_security_restricted() {
    with_shared_sandbox(async |system| {
        prepare(system).await;
        let all = [pods("deploy").await, pods("deploy/nats-cluster").await].concat();
        let names: BTreeSet<&str> = all.iter().map(|(name, ..)| name.as_str()).collect();
        assert_eq!(names, eno_parts::workloads().map(|workload| workload.name).collect());
        for (name, namespace, template) in &all {
            let answer = admitted(system, namespace, template).await;
            assert_eq!(answer, Ok(()), "{name} in {namespace}");
            if name == AGENT {
                continue;
            }
            assert_eq!(namespace, "eno-system");
            // Each of these settings matters: without it, the namespace refuses the pod.
            let weaker = [
                ("/spec/securityContext/runAsNonRoot", "runAsNonRoot"),
                ("/spec/securityContext/seccompProfile", "seccompProfile"),
                ("/spec/containers/0/securityContext/allowPrivilegeEscalation", "allowPrivilegeEscalation"),
                ("/spec/containers/0/securityContext/capabilities", "capabilities"),
            ];
            for (pointer, part) in weaker {
                let mut template = template.clone();
                *template.pointer_mut(pointer).unwrap_or_else(|| panic!("{name}: {pointer}")) = Value::Null;
                let answer = admitted(system, namespace, &template).await;
                let refused = answer.as_ref().is_err_and(|answer| {
                    answer.contains("violates PodSecurity \"restricted") && answer.contains(part)
                });
                assert!(refused, "{name} without {pointer}: {answer:?}");
            }
        }
    });
}

/// Restrictions beyond the Pod Security Standard.
#[test]
fn pods_have_least_privilege() {
    with_shared_sandbox(async |_| {
        for (name, _, template) in [pods("deploy").await, pods("deploy/nats-cluster").await].concat() {
            let spec = &template["spec"];
            let containers = spec["containers"].as_array().expect("containers");
            let first = spec["initContainers"].as_array().map_or(&[][..], Vec::as_slice);
            for container in containers.iter().chain(first) {
                let context = &container["securityContext"];
                assert_eq!(context["readOnlyRootFilesystem"], true, "{name}");
                assert_ne!(context["privileged"], true, "{name}");
                assert_eq!(context["capabilities"]["drop"], json!(["ALL"]), "{name}");
                assert!(container["resources"]["limits"]["memory"].is_string(), "{name}");
                let image = container["image"].as_str().unwrap_or_default();
                assert!(!image.ends_with(":latest") && image.contains(':'), "{name}: {image}");
            }
            // Only pods that use the API server have a token.
            let uses_api = parts().any(|part| part.account.name == name && part.rights.is_some());
            assert_eq!(spec["automountServiceAccountToken"] == false, !uses_api, "{name}");
            let volumes = spec["volumes"].as_array().cloned().unwrap_or_default();
            let host: BTreeSet<_> =
                volumes.iter().filter_map(|volume| volume["hostPath"]["path"].as_str()).collect();
            let capabilities: Vec<_> = containers
                .iter()
                .map(|container| container["securityContext"]["capabilities"]["add"].clone())
                .collect();
            if name == AGENT {
                let paths = [
                    "/dev/net/tun",
                    "/opt/cni/bin",
                    "/proc/sys/net",
                    "/run/containerd",
                    "/run/netns",
                    "/run/openvswitch",
                    "/var/lib/eno/ipam",
                ];
                assert_eq!(host, BTreeSet::from(paths));
                // Who writes CNI plugins is root on the node: that container has nothing else, and ends.
                let mounts = |container: &Value| -> Vec<String> {
                    let mounts = container["volumeMounts"].as_array().into_iter().flatten();
                    mounts.filter_map(|mount| mount["name"].as_str().map(str::to_owned)).collect()
                };
                let [plugin] = first else { panic!("{first:?}") };
                assert_eq!((mounts(plugin), &plugin["env"]), (vec!["cni".to_owned()], &Value::Null));
                assert_eq!(plugin["securityContext"]["capabilities"]["add"], Value::Null);
                assert_eq!(plugin["restartPolicy"], Value::Null);
                assert!(containers.iter().all(|container| !mounts(container).contains(&"cni".to_owned())));
                let has_pools = |container: &&Value| mounts(container).contains(&"ipam".to_owned());
                assert_eq!(
                    containers.iter().filter(has_pools).map(|one| &one["name"]).collect::<Vec<_>>(),
                    ["agent"]
                );
                assert_eq!(capabilities, [json!(["NET_ADMIN", "SYS_ADMIN"]), Value::Null]);
                let more = ["hostPID", "hostIPC"].map(|key| spec[key].clone());
                assert_eq!(more, [Value::Null, Value::Null]);
                assert_eq!(spec["securityContext"]["seccompProfile"]["type"], "RuntimeDefault");
            } else {
                assert!(host.is_empty() && first.is_empty(), "{name}: {host:?}");
                assert!(capabilities.iter().all(Value::is_null), "{name}: {capabilities:?}");
                let more = ["hostNetwork", "hostPID", "hostIPC"].map(|key| spec[key].clone());
                assert_eq!(more, [Value::Null, Value::Null, Value::Null], "{name}");
            }
        }
    });
}

/// The agent's pod is refused in the other pods' namespace: its own is the one exception, and holds no other pod.
#[test]
fn agent_pod_is_refused_outside_its_namespace() {
    with_shared_sandbox(async |system| {
        prepare(system).await;
        for (name, namespace, mut template) in pods("deploy").await {
            assert_eq!(namespace == "eno-node", name == AGENT, "{name}");
            if name == AGENT {
                template["spec"]["serviceAccountName"] = json!("default");
                let answer = admitted(system, "eno-system", &template).await;
                let message_parts = ["hostNetwork", "hostPath", "runAsNonRoot", "NET_ADMIN"];
                let all = answer
                    .as_ref()
                    .is_err_and(|answer| message_parts.iter().all(|part| answer.contains(part)));
                assert!(all, "{answer:?}");
            }
        }
    });
}
