//! The whole operator as the pods that `eno install` makes: NATS on its volume, two engines, drivers and agents, with
//! Services and names as on any cluster.

use std::fmt::Debug;

use eno_lab::sandbox::{InCluster, SandboxOptions};
use eno_nbi_crds::{FabricDevice, L2Service, Phase};
use eno_tests::{Receiver, System, deployment, object, two_nodes, until, with_own_sandbox};
use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Namespace, Node};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::ResourceExt as _;
use kube::api::ListParams;
use kube::runtime::watcher;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::nodes::hot_plug::{addresses, attachment, network};

/// A sandbox with two nodes whose operator runs in pods.
pub fn in_cluster(options: &mut SandboxOptions) {
    two_nodes(options);
    options.in_cluster = Some(InCluster::default());
}

/// The name of namespaces, networks and objects of this test.
const NAME: &str = "incluster";
const VID: u16 = 151;

#[test]
#[ignore = "needs root: real nodes"]
fn operator_in_pods_connects_pods_across_the_fabric() {
    with_own_sandbox(in_cluster, async |system| {
        let connected = connect(system, 13).await;
        uninstalls(system, connected).await;
    });
}

/// What is there while pods talk.
struct Connected {
    receiver: Receiver,
    network: String,
    oam: String,
    cnf: String,
}

/// Connects pods on two nodes, and deletes all again. `pods` is the number of the operator's pods in its namespace.
pub async fn main_path(system: &System, pods: usize) {
    let Connected { receiver, network, oam, cnf } = connect(system, pods).await;
    system.delete(&cnf).await;
    system.delete(&oam).await;
    system.delete(&network).await;
    system.until_without([VID]).await;
    receiver.until(&[format!("L2Service {NAME}")], "deleted").await;
    every_check_passes(system).await;
}

async fn connect(system: &System, pods: usize) -> Connected {
    every_check_passes(system).await;
    pods_are_restricted(system, pods).await;

    let receiver = Receiver::start_at(system.sandbox.control_plane().address()).await;
    let id = format!("SegmentationID: {VID},");
    let with_url = format!("{id} CallbackURL: '{}',", receiver.url());
    let network = network(NAME, VID).replace(&id, &with_url);
    system.apply(&network).await;
    let oam = attachment(NAME, "oam");
    system.apply(&oam).await;
    let cnf = deployment(NAME, "cnf", 2, &json!({ "attach.eno.k8s.io/oam": "net1" }));
    system.apply(&cnf).await;
    system.running(NAME, "app=cnf", 2).await;
    let leases = addresses(system, &format!("{NAME}/oam"), 2).await;
    let [(one, _), (_, others)] = &leases[..] else { panic!("{leases:?}") };
    system.pings(NAME, one, &others[0], true).await;
    system.becomes::<L2Service>(NAME, Phase::Ready).await;
    receiver.until(&[format!("L2Service {NAME}")], "ready").await;
    assert!(!system.ports_of(VID).await.is_empty(), "VLAN {VID} is on the switches");

    sample_deployment_runs(system).await;

    // What only NATS knows is reached through the API server.
    let trace = system.eno_json(&["trace", "l2sa/oam", "-n", NAME], "", 0).await;
    assert!(trace["entries"].as_array().is_some_and(|entries| !entries.is_empty()), "{trace}");
    Connected { receiver, network, oam, cnf }
}

/// Takes the operator away while pods use a network, and then while a switch is dead.
async fn uninstalls(system: &System, Connected { receiver, cnf, .. }: Connected) {
    every_check_passes(system).await;
    // Pods that use a network are a refusal.
    let refused = uninstall(system, &["--yes"], false).await;
    assert!(refused.contains("nothing was removed") && refused.contains("in use by"), "{refused}");
    assert!(!system.ports_of(VID).await.is_empty(), "VLAN {VID} is on the switches");
    system.delete(&cnf).await;
    let shown = uninstall(system, &["--dry-run"], true).await;
    assert!(shown.contains(&format!("removes from switch leaf1: VLANs {VID}")), "{shown}");
    // A switch that does not answer is a refusal, and is given up on purpose.
    system.fault("spine1", json!({"kind": "unreachable"})).await;
    let is_unreachable = |device: &FabricDevice| {
        let conditions = device.status.iter().flat_map(|status| &status.conditions);
        conditions.into_iter().any(|one| one.type_ == "Reachable" && one.status == "False")
    };
    system.until_one("spine1", "unreachable", is_unreachable).await;
    let refused = uninstall(system, &["--yes"], false).await;
    let keeps = format!("FabricDevice spine1 does not answer, and would keep VLANs {VID}");
    assert!(refused.contains(&keeps), "{refused}");
    let shown = uninstall(system, &["--yes", "--forget", "spine1"], true).await;
    assert!(shown.contains(&format!("leaves on switch spine1: VLANs {VID}")), "{shown}");
    let left = system.ports_of(VID).await;
    assert!(!left.is_empty() && left.iter().all(|(switch, _)| switch == "spine1"), "{left:?}");
    receiver.until(&[format!("L2Service {NAME}")], "deleted").await;
    nothing_is_left(system).await;
}

/// What `eno uninstall` prints.
pub async fn uninstall(system: &System, arguments: &[&str], succeeds: bool) -> String {
    let output = system.eno(&[&["uninstall"], arguments].concat(), "").await;
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    assert_eq!(output.status.success(), succeeds, "eno uninstall {arguments:?}: {text}");
    text
}

/// Nothing of the operator is in the API server, on the nodes or on the admin's disk.
pub async fn nothing_is_left(system: &System) {
    let is_ours = |name: &String| name.contains("eno") || name.ends_with(".opdev.io");
    let mut left: Vec<String> = Vec::new();
    left.extend(names::<Namespace>(system).await);
    left.extend(names::<CustomResourceDefinition>(system).await);
    left.extend(names::<ClusterRole>(system).await);
    left.extend(names::<ClusterRoleBinding>(system).await);
    left.extend(names::<ValidatingAdmissionPolicy>(system).await);
    left.extend(names::<ValidatingAdmissionPolicyBinding>(system).await);
    left.retain(is_ours);
    assert!(left.is_empty(), "{left:?}");
    for node in system.all::<Node>().list(&ListParams::default()).await.expect("nodes") {
        let labels = node.labels().keys().cloned();
        let status = node.status.clone().unwrap_or_default();
        let resources = status.capacity.into_iter().chain(status.allocatable).flatten().map(|(name, _)| name);
        let is_ours = |name: &String| name.starts_with("cp.eno.k8s.io/") || name.contains("ovs-cni");
        let marks: Vec<_> = labels.chain(resources).filter(is_ours).collect();
        assert!(marks.is_empty(), "{}: {marks:?}", node.name_any());
        let bridges = system.on_node(&node.name_any(), &["ovs-vsctl", "list-br"]).await;
        assert!(!bridges.contains("br-data"), "{bridges}");
    }
    let contexts = system.sandbox.info().contexts.clone().expect("the directory of contexts");
    let clusters = std::fs::read_dir(contexts.join("clusters")).expect("the directory of clusters");
    assert_eq!(clusters.count(), 0);
}

async fn names<K>(system: &System) -> Vec<String>
where
    K: kube::Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    let listed = system.all::<K>().list_metadata(&ListParams::default()).await.expect("a list");
    listed.items.iter().map(|object| format!("{} {}", K::kind(&()), object.name_any())).collect()
}

/// `eno check` finds nothing wrong.
pub async fn every_check_passes(system: &System) {
    // Helm 3 does not wait for the last pod of a DaemonSet.
    until("every check passes", async || system.eno(&["check"], "").await.status.success()).await;
    let report = system.eno_json(&["check"], "", 0).await;
    let checks = report["checks"].as_array().expect("checks");
    // The sandbox has no Multus, and receivers of callbacks on its node.
    let expected = ["multus", "callback-networks"];
    let is_wrong = |check: &&Value| {
        check["outcome"] != "ok" && check["name"].as_str().is_none_or(|name| !expected.contains(&name))
    };
    let wrong: Vec<_> = checks.iter().filter(is_wrong).collect();
    assert!(wrong.is_empty() && checks.len() > 15, "{wrong:?} of {report}");
}

/// The namespace of the operator has the Pod Security level `restricted`, and its pods were admitted.
async fn pods_are_restricted(system: &System, pods: usize) {
    let namespaces = system.all::<Namespace>();
    let namespace = namespaces.get("eno-system").await.expect("the namespace");
    let labels = namespace.metadata.labels.unwrap_or_default();
    assert_eq!(labels.get("pod-security.kubernetes.io/enforce").map(String::as_str), Some("restricted"));
    let config = watcher::Config::default().labels("app.kubernetes.io/part-of=eno");
    let what = format!("{pods} pods");
    let all = system.until(system.pods("eno-system"), config, &what, |all| all.len() == pods).await;
    for (name, pod) in all {
        let spec = pod.spec.expect("a spec");
        assert!(!spec.host_network.unwrap_or_default(), "{name}");
    }
}

/// A PodConfig's `sampleDeployment` runs with the image that the installation names.
async fn sample_deployment_runs(system: &System) {
    let name = format!("name: sample, namespace: {NAME}");
    let config =
        object("PodConfig", &name, "sampleDeployment: {create: true, name: sample}, networkAttachments: []");
    system.apply(&config).await;
    let deployments: kube::Api<Deployment> = kube::Api::namespaced(system.sandbox.client(), NAME);
    let watch = watcher::Config::default();
    let is_available = |deployment: &Deployment| {
        let status = deployment.status.as_ref();
        status.is_some_and(|status| status.available_replicas.unwrap_or_default() > 0)
    };
    system
        .until(deployments, watch, "an available sample Deployment", |all| {
            all.iter().any(|(name, deployment)| !name.ends_with("cnf") && is_available(deployment))
        })
        .await;
    system.delete(&config).await;
}
