//! The whole operator as the pods that `eno install` makes: NATS on its volume, two engines, drivers and agents, with
//! Services and names as on any cluster.

use eno_lab::sandbox::{InCluster, SandboxOptions};
use eno_nbi_crds::{L2Service, Phase};
use eno_tests::{Receiver, System, deployment, object, two_nodes, with_own_sandbox};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Namespace;
use kube::runtime::watcher;
use serde_json::json;

use crate::nodes::hot_plug::{addresses, attachment, network};

/// A sandbox with two nodes whose operator runs in pods.
fn in_cluster(options: &mut SandboxOptions) {
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
        every_check_passes(system).await;
        pods_are_restricted(system).await;

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

        system.delete(&cnf).await;
        system.delete(&oam).await;
        system.delete(&network).await;
        system.until_without([VID]).await;
        receiver.until(&[format!("L2Service {NAME}")], "deleted").await;
        every_check_passes(system).await;
    });
}

/// `eno check` finds nothing wrong.
async fn every_check_passes(system: &System) {
    let report = system.eno_json(&["check"], "", 0).await;
    let checks = report["checks"].as_array().expect("checks");
    let failed: Vec<_> = checks.iter().filter(|check| check["outcome"] == "failed").collect();
    assert!(failed.is_empty() && checks.len() > 15, "{report}");
    let skipped: Vec<_> = checks.iter().filter(|check| check["outcome"] == "skipped").collect();
    assert!(skipped.is_empty(), "{skipped:?}");
}

/// The namespace of the operator has the Pod Security level `restricted`, and its pods were admitted.
async fn pods_are_restricted(system: &System) {
    let namespaces = system.all::<Namespace>();
    let namespace = namespaces.get("eno-system").await.expect("the namespace");
    let labels = namespace.metadata.labels.unwrap_or_default();
    assert_eq!(labels.get("pod-security.kubernetes.io/enforce").map(String::as_str), Some("restricted"));
    let config = watcher::Config::default().labels("app.kubernetes.io/part-of=eno");
    let all = system.until(system.pods("eno-system"), config, "nine pods", |all| all.len() == 9).await;
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
    let config = config.replace("eno.k8s.io/v1alpha1", "podconfig.opdev.io/v1alpha1");
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
