//! Addresses of ENO's own, from the Subnet to the CNI plugin. The test calls the plugin as a CNI plugin for interfaces
//! does, and annotates pods as Multus' users do.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use eno_nbi_crds::{ConnectionPoint, L2ServiceAttachment, Subnet};
use eno_tests::{
    System, access, connection_point, deployment, object, service, unchecked_namespace, with_shared_nodes,
};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

/// A service with a Subnet of 14 hosts, of which the gateway has one.
fn network() -> String {
    let subnet = "Type: v4, Ipam: eno, Address: 10.146.0.0, Mask: 28, Routes: [own]";
    [
        unchecked_namespace("own"),
        connection_point("own", "br-data", "Interfaces: [eth1]"),
        object("Route", "name: own", "Prefix: 10.147.0.0, Mask: 16, NextHop: 10.146.0.1"),
        object("Subnet", "name: own", subnet),
        service("own", 146, "Subnets: [own]"),
    ]
    .concat()
}

/// Calls the plugin on a pod's node. Returns the address that the pod has then.
async fn add(system: &System, name: &str, pod: &Pod) -> Ipv4Addr {
    let (node, namespace) = system.network_namespace(pod).await;
    let plugin = eno::programs::find_program("eno-ipam").expect("the plugin");
    let config =
        json!({ "cniVersion": "1.0.0", "name": "own", "ipam": { "type": "eno-ipam", "pools": ["own"] } });
    let call = format!(
        "CNI_COMMAND=ADD CNI_CONTAINERID={name} CNI_IFNAME=net1 CNI_NETNS=/run/netns/{namespace} CNI_PATH=/opt/cni/bin \
         CNI_ARGS='IgnoreUnknown=1;K8S_POD_NAMESPACE=own;K8S_POD_NAME={name}' {} <<'END'\n{config}\nEND",
        plugin.display()
    );
    let answer = system.on_node(&node, &["sh", "-c", &call]).await;
    let answer: Value = serde_json::from_str(&answer).unwrap_or_else(|error| panic!("{error}: {answer}"));
    let address = answer["ips"][0]["address"].as_str().unwrap_or_else(|| panic!("{answer:#}"));
    address.strip_suffix("/28").and_then(|address| address.parse().ok()).expect("an address of the Subnet")
}

/// True when a block, such as 10.146.0.4/30, contains the address.
fn contains(block: &str, address: Ipv4Addr) -> bool {
    let (first, length) = block.split_once('/').expect("a block");
    let first: Ipv4Addr = first.parse().expect("an address");
    (first.to_bits() ^ address.to_bits()).leading_zeros() >= length.parse().expect("a length")
}

#[test]
#[ignore = "needs root: real nodes"]
fn pods_that_start_and_pods_that_run_get_addresses_of_one_list() {
    with_shared_nodes(async |system| {
        let network = network();
        system.apply_until_ready::<ConnectionPoint>(&network, "own").await;
        let attachment = access("own", "a", "own");
        system.apply_until_ready::<L2ServiceAttachment>(&attachment, "own/a").await;
        let cnf = deployment("own", "cnf", 3, &json!({}));
        system.apply(&cnf).await;
        let pods = system.running("own", "app=cnf", 3).await;
        let mut pods = pods.into_iter();
        let running = pods.next().expect("a pod").0;
        let networks = json!({ "metadata": { "annotations": { "k8s.v1.cni.cncf.io/networks": "a" } } });

        let mut had: Vec<Ipv4Addr> = Vec::new();
        for (name, pod) in pods {
            let patched =
                system.pods("own").patch(&name, &PatchParams::default(), &Patch::Merge(&networks)).await;
            patched.unwrap_or_else(|error| panic!("annotating {name}: {error}"));
            // It waits until the node has a range.
            let address = add(system, &name, &pod).await;
            assert_eq!(add(system, &name, &pod).await, address, "the same for the same sandbox");
            had.push(address);
            let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).expect("a node");
            let subnet = system
                .until_one("own", "ranges", |subnet: &Subnet| {
                    let status = subnet.status.as_ref();
                    status.is_some_and(|status| status.node_addresses.iter().any(|own| own.node == node))
                })
                .await;
            let ranges = subnet.status.map(|status| status.node_addresses).unwrap_or_default();
            let own = ranges.iter().find(|own| own.node == node).expect("ranges of the node");
            assert!(own.blocks.iter().any(|block| contains(block, address)), "{address} is of {ranges:?}");
        }

        system.label("own", &running, "attach.eno.k8s.io/a", Some("")).await;
        let given = system
            .until_one("own/a", "leases", |attachment: &L2ServiceAttachment| {
                attachment.status.as_ref().is_some_and(|status| !status.addresses.is_empty())
            })
            .await;
        let given = given.status.map(|status| status.addresses).unwrap_or_default();
        let lease = given[0].addresses[0].strip_suffix("/28").expect("an address of the Subnet");
        had.push(lease.parse().expect("an address"));
        let distinct: BTreeSet<&Ipv4Addr> = had.iter().collect();
        assert_eq!(distinct.len(), 3, "{had:?}");
        let gateway: Ipv4Addr = "10.146.0.1".parse().expect("an address");
        assert!(!had.contains(&gateway), "{had:?}");

        // The sandboxes go without a call of the plugin: the agents find that out.
        system.delete(&cnf).await;
        system.running("own", "app=cnf", 0).await;
        system.delete(&attachment).await;
        system.delete(&network).await;
    });
}
