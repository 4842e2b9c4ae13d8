//! The pods of the operator: where they run, their eviction, and whether they are all ready again.

use eno::install::rollout::Workload;
use eno_parts::WorkloadKind;
use eno_tests::{System, poll_within};
use futures::future::join_all;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, StatefulSet};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, EvictParams, ListParams};
use kube::{Client, ResourceExt as _};
use serde_json::json;

use super::PATIENCE;

/// The namespace of NATS, the engine and the drivers.
pub const SYSTEM: &str = "eno-system";

/// The operator's pods in [`SYSTEM`].
pub async fn operator(system: &System) -> Vec<Pod> {
    let params = ListParams::default().labels("app.kubernetes.io/part-of=eno");
    system.pods(SYSTEM).list(&params).await.expect("the pods of the operator").items
}

/// The node of a pod.
pub fn node_of(pod: &Pod) -> String {
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
    node.unwrap_or_else(|| panic!("{} is on no node", pod.name_any()))
}

/// The process that leads, as the Lease names it: the name of its pod, and more.
pub async fn holder(system: &System) -> Option<String> {
    let leases: Api<Lease> = Api::namespaced(system.sandbox.client(), SYSTEM);
    leases.get("eno-engine").await.expect("the Lease").spec?.holder_identity
}

/// The pod of the engine that leads.
pub async fn leader(system: &System) -> Pod {
    let found = poll_within(PATIENCE, async || {
        let holder = holder(system).await?;
        operator(system).await.into_iter().find(|pod| holder.starts_with(&format!("{}-", pod.name_any())))
    });
    found.await.expect("a leader")
}

/// Evicts a pod as soon as the PodDisruptionBudgets allow it, and waits until it is gone.
pub async fn evict(system: &System, pod: &Pod) {
    let (namespace, name) = (pod.namespace().unwrap_or_default(), pod.name_any());
    let pods = system.pods(&namespace);
    let evicted = poll_within(PATIENCE, async || match pods.evict(&name, &EvictParams::default()).await {
        Ok(_) => Some(()),
        Err(kube::Error::Api(status)) if status.code == 429 => None,
        Err(error) => panic!("evicting {namespace}/{name}: {error}"),
    });
    assert!(evicted.await.is_some(), "{namespace}/{name} may not be evicted");
    until_gone(system, pod).await;
}

/// Waits until a pod is gone. A StatefulSet gives its name to another pod.
pub async fn until_gone(system: &System, pod: &Pod) {
    let (namespace, name) = (pod.namespace().unwrap_or_default(), pod.name_any());
    let pods = system.pods(&namespace);
    let gone = poll_within(PATIENCE, async || {
        let now = pods.get_opt(&name).await.expect("a pod, or none");
        (now.and_then(|now| now.uid()) != pod.uid()).then_some(())
    });
    assert!(gone.await.is_some(), "{namespace}/{name} is not gone");
}

/// Marks a node unschedulable, or schedulable again.
pub async fn cordon(system: &System, node: &str, is_cordoned: bool) {
    system.patch("Node", node, json!({"spec": {"unschedulable": is_cordoned}})).await;
}

/// Cordons a node, and evicts all its pods except those of DaemonSets, as `kubectl drain` does.
pub async fn drain(system: &System, node: &str) {
    cordon(system, node, true).await;
    let params = ListParams::default().fields(&format!("spec.nodeName={node}"));
    let pods = system.all::<Pod>().list(&params).await.expect("the pods of the node");
    let is_of_daemon_set = |pod: &Pod| pod.owner_references().iter().any(|owner| owner.kind == "DaemonSet");
    let evictions = pods.items.iter().filter(|pod| !is_of_daemon_set(pod)).map(|pod| evict(system, pod));
    assert!(!join_all(evictions).await.is_empty(), "{node} has pods");
}

/// Waits until all pods of the operator are ready, and none is ending.
pub async fn until_settled(system: &System) {
    let mut last = Vec::new();
    let settled = poll_within(PATIENCE, async || {
        last = unsettled(system).await;
        last.is_empty().then_some(())
    });
    assert!(settled.await.is_some(), "not ready: {last:?}");
}

/// The workloads that are not ready, and the pods that are ending.
async fn unsettled(system: &System) -> Vec<String> {
    let mut unsettled = Vec::new();
    for workload in eno_parts::workloads() {
        let (client, namespace, name) = (system.sandbox.client(), workload.namespace, workload.name);
        let now = match workload.kind {
            WorkloadKind::Deployment => read::<Deployment>(client, namespace, name).await,
            WorkloadKind::StatefulSet => read::<StatefulSet>(client, namespace, name).await,
            WorkloadKind::DaemonSet => read::<DaemonSet>(client, namespace, name).await,
        };
        if !now.is_ready() {
            unsettled.push(format!("{name}: {} of {}", now.ready, now.desired));
        }
    }
    let pods = operator(system).await;
    let ending = pods.iter().filter(|pod| pod.metadata.deletion_timestamp.is_some());
    unsettled.extend(ending.map(kube::ResourceExt::name_any));
    unsettled
}

async fn read<K>(client: Client, namespace: &str, name: &str) -> Workload
where
    K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + serde::de::DeserializeOwned,
    for<'a> Workload: From<&'a K>,
{
    let api: Api<K> = Api::namespaced(client, namespace);
    Workload::from(&api.get(name).await.unwrap_or_else(|error| panic!("reading {name}: {error}")))
}
