//! Interfaces of VLANs on a trunk of a running pod. The test makes the trunk and writes the annotation as the CNI plugin
//! and Multus do.

use eno_nbi_crds::{ConnectionPoint, L2ServiceAttachment, Phase, PodInterface};
use eno_tests::{
    System, connection_point, deployment, poll, service, subnet, unchecked_namespace, with_shared_nodes,
};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams};
use serde_json::json;

/// Two services with addresses for running pods.
fn network() -> String {
    let pool = |third| format!("HotPlugPool: [{{Start: 10.{third}.0.10, End: 10.{third}.0.19}}]");
    [
        unchecked_namespace("trunks"),
        connection_point("trunks", "br-data", "Interfaces: [eth1]"),
        subnet("trunks-a", "10.143.0.0", &pool(143)),
        subnet("trunks-b", "10.144.0.0", &pool(144)),
        service("trunks-a", 143, "Subnets: [trunks-a]"),
        service("trunks-b", 144, "Subnets: [trunks-b]"),
    ]
    .concat()
}

/// Makes `net1` in a pod, a port of the bridge on its node.
async fn plug(system: &System, pod: &Pod) {
    let (node, namespace) = system.network_namespace(pod).await;
    for line in [
        &format!("ip link add trunk0 type veth peer name net1 netns {namespace}"),
        "ovs-vsctl add-port br-data trunk0 trunks=143,144",
        "ip link set trunk0 up",
        &format!("ip -n {namespace} link set net1 up"),
    ] {
        system.on_node(&node, &line.split(' ').collect::<Vec<_>>()).await;
    }
}

/// Writes what the pod asks for, and what Multus says of it.
async fn annotate(system: &System, pod: &str, interface: Option<&str>) {
    let status = json!([
        { "name": "cluster", "interface": "eth0", "default": true },
        { "name": "trunks/both", "interface": interface, "dns": {} },
    ]);
    let patch = Patch::Merge(json!({ "metadata": { "annotations": {
        "k8s.v1.cni.cncf.io/networks": "both@net1",
        "k8s.v1.cni.cncf.io/network-status": status.to_string(),
    } } }));
    let patched = system.pods("trunks").patch(pod, &PatchParams::default(), &patch).await;
    patched.unwrap_or_else(|error| panic!("annotating {pod}: {error}"));
}

#[test]
#[ignore = "needs root: real nodes"]
fn trunk_that_multus_made_gets_interfaces_with_addresses() {
    with_shared_nodes(async |system| {
        let network = network();
        system.apply_until_ready::<ConnectionPoint>(&network, "trunks").await;
        let both = "VlanType: selectivetrunk, SubInterfaces: true";
        let both = eno_tests::attachment("trunks", "both", "trunks", "trunks-a, trunks-b", both);
        system.apply_until_ready::<L2ServiceAttachment>(&both, "trunks/both").await;
        let cnf = deployment("trunks", "cnf", 1, &json!({}));
        system.apply(&cnf).await;
        let (name, pod) = system.running("trunks", "app=cnf", 1).await.into_iter().next().expect("a pod");

        // Without an interface the kernel has nothing to make VLANs on.
        annotate(system, &name, None).await;
        let refused = |interfaces: &[PodInterface]| interfaces.iter().any(|one| one.kind == "refused");
        let view = system.pod_network("trunks", &name, refused).await;
        assert!(view[0].message.as_deref().is_some_and(|text| text.contains("as with DPDK")), "{view:?}");
        let events =
            kube::Api::<k8s_openapi::api::core::v1::Event>::namespaced(system.sandbox.client(), "trunks");
        let told = poll(async || {
            let all = events.list(&kube::api::ListParams::default()).await.ok()?;
            all.items.iter().any(|event| event.reason.as_deref() == Some("NotAttached")).then_some(())
        });
        told.await.expect("an Event on the pod");

        plug(system, &pod).await;
        annotate(system, &name, Some("net1")).await;
        // A kernel without 802.1Q says so for each of them.
        let is_settled = |one: &PodInterface| {
            one.name.is_some() || one.message.as_deref().is_some_and(|text| text.contains("net1.14"))
        };
        let made = |interfaces: &[PodInterface]| interfaces.len() == 2 && interfaces.iter().all(is_settled);
        let view = system.pod_network("trunks", &name, made).await;
        let leases = system
            .until_one("trunks/both", "leases", |attachment: &L2ServiceAttachment| {
                attachment.status.as_ref().is_some_and(|status| status.addresses.len() == 2)
            })
            .await;
        let leases = leases.status.map(|status| status.addresses).unwrap_or_default();
        let links: Vec<(&str, &str)> =
            leases.iter().map(|lease| (lease.link.as_str(), lease.addresses[0].as_str())).collect();
        assert_eq!(links, [("trunks-a@net1", "10.143.0.10/24"), ("trunks-b@net1", "10.144.0.10/24")]);
        for (interface, (_, address)) in view.iter().zip(links) {
            let Some(interface) = &interface.name else { continue };
            assert!(system.interfaces("trunks", &name).await[interface].contains(address), "{interface}");
        }

        // The attachment waits for the pod.
        system.request_deletion(&both).await;
        system.becomes::<L2ServiceAttachment>("trunks/both", Phase::Terminating).await;
        system.delete(&cnf).await;
        system.running("trunks", "app=cnf", 0).await;
        system.delete(&both).await;
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).expect("a node");
        system.on_node(&node, &["ovs-vsctl", "--if-exists", "del-port", "trunk0"]).await;
        system.delete(&network).await;
    });
}
