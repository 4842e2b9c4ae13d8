//! The agents as pods of `deploy/agent`. Only the address of NATS, Open vSwitch's datapath and the
//! directory of CNI plugins differ, and the image is built on the spot.

use std::collections::BTreeMap;
use std::pin::pin;

use eno_control_plane::node::{CNI_BIN, ProgramsImage};
use futures::TryStreamExt as _;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use kube::api::DynamicObject;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use super::wait::{self, Deadline};
use super::{MANAGER, Sandbox, SandboxError};
use crate::manifests::{self, AGENT_NAMESPACE};
use eno::apply::apply;
use eno::programs;

/// The image name in the manifests.
const IMAGE: &str = "eno:dev";
/// The programs of the image that the agent's pods run.
const PROGRAMS: [&str; 4] = ["eno", "eno-driver-node", "eno-cri-resolver", "eno-ipam"];
/// The label selector of the pods.
const LABELS: &str = "app.kubernetes.io/name=eno-agent";
/// The container that gets the settings.
const CONTAINER: &str = "agent";
/// The volume with the CNI plugins.
const PLUGINS: &str = "cni";

/// The image for the nodes.
pub(super) fn image() -> Result<ProgramsImage, SandboxError> {
    let programs = PROGRAMS.map(programs::find_program).into_iter().collect::<Result<_, _>>()?;
    Ok(ProgramsImage { name: IMAGE.to_owned(), programs })
}

/// Applies the manifests, and waits for a ready pod on every node that was started after `since` (seconds since 1970).
pub(super) async fn start(sandbox: &Sandbox, since: i64, deadline: Deadline) -> Result<(), SandboxError> {
    let client = sandbox.client();
    let settings = BTreeMap::from([
        ("ENO_NATS_URL", sandbox.control_plane.nats().url.clone()),
        // The user space datapath needs no kernel module and works on every machine.
        ("ENO_OVS_DATAPATH", "netdev".to_owned()),
        ("ENO_ALLOW_INTERFACES", sandbox.options.agent_interfaces.join(",")),
    ]);
    // The Namespace comes first, in the order of `kubectl apply -k`.
    for mut object in manifests::agent()? {
        set_environment(&mut object, &settings);
        set_plugins_directory(&mut object, CNI_BIN);
        apply(&client, MANAGER, &object).await?;
    }
    wait_until_ready(sandbox, since, deadline).await
}

/// Sets environment variables of the agent's container, if the object has it.
fn set_environment(object: &mut DynamicObject, settings: &BTreeMap<&str, String>) {
    let containers = object.data.pointer_mut("/spec/template/spec/containers").and_then(Value::as_array_mut);
    let agent = containers.into_iter().flatten().find(|container| container["name"] == CONTAINER);
    let Some(variables) = agent.and_then(|agent| agent["env"].as_array_mut()) else { return };
    for (name, value) in settings {
        variables.retain(|variable| variable["name"] != *name);
        variables.push(json!({ "name": name, "value": value }));
    }
}

/// Sets the directory of CNI plugins on the nodes, if the object has it.
fn set_plugins_directory(object: &mut DynamicObject, directory: &str) {
    let volumes = object.data.pointer_mut("/spec/template/spec/volumes").and_then(Value::as_array_mut);
    for volume in volumes.into_iter().flatten().filter(|volume| volume["name"] == PLUGINS) {
        volume["hostPath"]["path"] = json!(directory);
    }
}

async fn wait_until_ready(sandbox: &Sandbox, since: i64, deadline: Deadline) -> Result<(), SandboxError> {
    let mut waiting: BTreeMap<String, String> =
        sandbox.nodes().into_iter().map(|node| (node.name, "without a pod".to_owned())).collect();
    let watched = |source| SandboxError::Watch { what: "the agents' pods", source: Box::new(source) };
    let pods: Api<Pod> = Api::namespaced(sandbox.client(), AGENT_NAMESPACE);
    let config = watcher::Config::default().labels(LABELS);
    let mut events = pin!(watcher(pods, config).default_backoff().applied_objects());
    while !waiting.is_empty() {
        let Some(event) = deadline.next(events.try_next()).await else {
            return Err(deadline.late("the agents' pods", wait::format_waiting(&waiting)));
        };
        let Some(pod) = event.map_err(watched)? else { break };
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_default();
        match pod_readiness(&pod, since) {
            Ok(()) => drop(waiting.remove(&node)),
            Err(reason) => {
                if let Some(before) = waiting.get_mut(&node) {
                    *before = format!("not ready: pod {}: {reason}", pod.name_any());
                }
            }
        }
    }
    Ok(())
}

/// Whether all containers of a pod are ready and were started after `since`; else the reason.
fn pod_readiness(pod: &Pod, since: i64) -> Result<(), String> {
    let statuses = pod.status.as_ref().and_then(|status| status.container_statuses.as_deref()).unwrap_or(&[]);
    if statuses.is_empty() {
        return Err("it has no containers yet".to_owned());
    }
    let fresh = |status: &ContainerStatus| {
        let running = status.state.as_ref().and_then(|state| state.running.as_ref());
        let started = running.and_then(|running| running.started_at.as_ref());
        status.ready && started.is_some_and(|time| time.0.as_second() >= since)
    };
    match statuses.iter().find(|status| !fresh(status)) {
        None => Ok(()),
        Some(status) => Err(format!("container {}: {}", status.name, why_not_ready(status))),
    }
}

fn why_not_ready(status: &ContainerStatus) -> String {
    let waiting = status.state.as_ref().and_then(|state| state.waiting.as_ref());
    let why = waiting.map(|waiting| {
        let parts = [waiting.reason.as_deref(), waiting.message.as_deref()];
        parts.into_iter().flatten().collect::<Vec<_>>().join(": ")
    });
    why.unwrap_or_else(|| "it is not ready".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agent_manifest_differs_only_in_its_settings() {
        let manifests = manifests::agent().expect("manifests");
        let mut changed = manifests.clone();
        let url = "nats://192.0.2.1:4222".to_owned();
        let settings = BTreeMap::from([("ENO_NATS_URL", url.clone()), ("ENO_NEW", "x".to_owned())]);
        for object in &mut changed {
            set_environment(object, &settings);
            set_plugins_directory(object, "/somewhere");
        }
        let changed_objects: Vec<_> =
            manifests.iter().zip(&changed).filter(|(one, other)| one != other).collect();
        let [(before, after)] = changed_objects[..] else { panic!("{changed_objects:?}") };
        let pointer = "/spec/template/spec/containers/0/env";
        let after_variables = after.data.pointer(pointer).and_then(Value::as_array).expect("variables");
        let is_set = |name, value: &str| after_variables.contains(&json!({ "name": name, "value": value }));
        assert!(is_set("ENO_NATS_URL", &url) && is_set("ENO_NEW", "x"), "{after_variables:?}");
        let count = before.data.pointer(pointer).and_then(Value::as_array).map_or(0, Vec::len);
        assert_eq!(after_variables.len(), count + 1);
        let mut restored = after.clone();
        *restored.data.pointer_mut(pointer).expect("variables") =
            before.data.pointer(pointer).cloned().expect("variables");
        let text = serde_json::to_string(&restored).expect("JSON");
        assert_eq!(text.matches("\"/somewhere\"").count(), 1, "{text}");
        set_plugins_directory(&mut restored, "/opt/cni/bin");
        assert_eq!(&restored, before);
    }

    #[test]
    fn agent_manifests_run_programs_of_the_image() {
        let text = serde_json::to_string(&manifests::agent().expect("manifests")).expect("JSON");
        assert!(
            text.contains(&format!("\"image\":\"{IMAGE}\""))
                && text.contains("/usr/local/bin/eno-cri-resolver")
                && text.contains("/usr/local/bin/eno-ipam")
        );
    }
}
