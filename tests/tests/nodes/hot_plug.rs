//! L2ServiceAttachments that a label adds to running pods.

use eno_nbi_crds::{Condition, ConnectionPoint, L2Service, L2ServiceAttachment, Phase};
use eno_tests::{
    System, connection_point, deployment, object, service, subnet, unchecked_namespace, with_shared_nodes,
};
use serde_json::json;

/// The manifests of a namespace, a bridge on all nodes, and a service with addresses for running pods.
pub fn network(name: &str, vid: u16) -> String {
    let third = vid % 250;
    let v4_pool = format!("HotPlugPool: [{{Start: 10.{third}.0.10, End: 10.{third}.0.19}}]");
    let v6 = format!(
        "Type: v6, Ipam: whereabouts, Address: 'fd00:{third}::', Mask: 64, \
         HotPlugPool: [{{Start: 'fd00:{third}::10', End: 'fd00:{third}::1f'}}]"
    );
    [
        unchecked_namespace(name),
        connection_point(name, "br-data", "Interfaces: [eth1]"),
        subnet(&format!("{name}-v4"), &format!("10.{third}.0.0"), &v4_pool),
        object("Subnet", &format!("name: {name}-v6"), &v6),
        service(name, vid, &format!("Subnets: [{name}-v4, {name}-v6]")),
    ]
    .concat()
}

/// An attachment to the service and the ConnectionPoint that have the name of its namespace.
pub fn attachment(namespace: &str, name: &str) -> String {
    eno_tests::attachment(namespace, name, namespace, namespace, "VlanType: access")
}

/// The addresses of each pod in the attachment's status.
pub async fn addresses(system: &System, name: &str, pods: usize) -> Vec<(String, Vec<String>)> {
    let complete = |attachment: &L2ServiceAttachment| {
        attachment.status.as_ref().is_some_and(|status| {
            status.phase == Some(Phase::Ready)
                && status.pod_configurations.iter().filter(|pod| !pod.config_list.is_empty()).count() == pods
        })
    };
    let attachment = system.until_one(name, &format!("{pods} pods"), complete).await;
    let leases = attachment.status.map(|status| status.addresses).unwrap_or_default();
    let bare = |address: &String| address.split('/').next().unwrap_or_default().to_owned();
    leases.into_iter().map(|lease| (lease.pod, lease.addresses.iter().map(bare).collect())).collect()
}

#[test]
#[ignore = "needs root: real nodes"]
fn pods_on_two_nodes_reach_each_other_through_two_switches() {
    with_shared_nodes(async |system| {
        let network = network("plug", 100);
        system.apply_until_ready::<ConnectionPoint>(&network, "plug").await;
        let oam = attachment("plug", "oam");
        system.apply_until_ready::<L2ServiceAttachment>(&oam, "plug/oam").await;
        let cnf = deployment("plug", "cnf", 2, &json!({}));
        system.apply(&cnf).await;
        let pods: Vec<String> = system.running("plug", "app=cnf", 2).await.into_keys().collect();
        for pod in &pods {
            assert!(!system.interfaces("plug", pod).await.contains_key("net1"), "before");
            system.label("plug", pod, "attach.eno.k8s.io/oam", Some("net1")).await;
        }

        let leases = addresses(system, "plug/oam", 2).await;
        assert_eq!(leases.len(), 2, "{leases:?}");
        for (index, (pod, own)) in leases.iter().enumerate() {
            let interfaces = system.interfaces("plug", pod).await;
            let net1 = interfaces.get("net1").unwrap_or_else(|| panic!("net1 of {pod}: {interfaces:?}"));
            assert!(own.len() == 2 && own.iter().all(|address| net1.contains(address)), "{own:?} {net1}");
            for address in &leases[1 - index].1 {
                system.pings("plug", pod, address, true).await;
            }
        }
        let (first, other) = (&leases[0].0, leases[1].1[0].clone());

        // The PodNetwork shows the pod's interface and its owner.
        let view = system.pod_network("plug", first, |interfaces| !interfaces.is_empty()).await;
        let net1 = &view[0];
        assert_eq!((&*net1.owner.kind, &*net1.owner.name), ("L2ServiceAttachment", "oam"));
        assert_eq!((net1.name.as_deref(), net1.bridge.as_deref()), (Some("net1"), Some("br-data")));

        let leaf = system.view("leaf1").await;
        assert!(leaf.ports["Ethernet1"].vlans.contains(100), "{leaf:?}");

        // A changed VLAN moves running pods; interface name and MAC stay.
        let mac = |interfaces: &std::collections::BTreeMap<String, String>| {
            interfaces["net1"].split("link/ether ").nth(1).and_then(|rest| rest.get(..17)).map(str::to_owned)
        };
        let before = mac(&system.interfaces("plug", first).await);
        system
            .apply_until_ready::<L2Service>(
                &network.replace("SegmentationID: 100", "SegmentationID: 110"),
                "plug",
            )
            .await;
        system.becomes::<L2ServiceAttachment>("plug/oam", Phase::Ready).await;
        system.pings("plug", first, &other, true).await;
        assert_eq!(mac(&system.interfaces("plug", first).await), before);

        // An attachment in use stays; without users it is deleted, and its VLAN with it.
        system.request_deletion(&oam).await;
        system.becomes::<L2ServiceAttachment>("plug/oam", Phase::Terminating).await;
        system.pings("plug", first, &other, true).await;
        for pod in &pods {
            system.label("plug", pod, "attach.eno.k8s.io/oam", None).await;
        }
        system.pings("plug", first, &other, false).await;
        system.delete(&oam).await;
        for pod in &pods {
            assert!(!system.interfaces("plug", pod).await.contains_key("net1"), "after");
        }
        system.delete(&cnf).await;
        system.delete(&network).await;
        // The bridge may have networks of other tests.
        for (node, condition) in [
            ("node1", "tag=110"),
            ("node1", "trunks{>=}110"),
            ("node2", "tag=110"),
            ("node2", "trunks{>=}110"),
        ] {
            let find = ["ovs-vsctl", "--bare", "--columns=name", "find", "Port", condition];
            system.until_on_node(node, &find, |output| output.trim().is_empty()).await;
        }
    });
}

#[test]
#[ignore = "needs root: real nodes"]
fn exhausted_subnet_is_reported_and_blocks_no_other_pod() {
    with_shared_nodes(async |system| {
        let network = network("full", 120).replace("End: 10.120.0.19", "End: 10.120.0.10");
        let network = network.replace("Subnets: [full-v4, full-v6]", "Subnets: [full-v4]");
        let oam = attachment("full", "oam");
        let cnf = deployment("full", "cnf", 2, &json!({ "attach.eno.k8s.io/oam": "" }));
        system.apply(&network).await;
        system.apply(&oam).await;
        system.apply(&cnf).await;
        // The network is ready for all pods; only the entry of the pod without an address has a message.
        let is_reported = |attachment: &L2ServiceAttachment| {
            attachment.status.as_ref().is_some_and(|status| {
                let pods = &status.pod_configurations;
                let without = |pod: &&eno_nbi_crds::PodConfiguration| {
                    let message = pod.message.as_deref().unwrap_or_default();
                    pod.config_list.is_empty()
                        && message.contains("full-v4")
                        && message.contains("HotPlugPool")
                };
                let unready = |one: &Condition| (&*one.type_, &*one.status) == ("PodsReady", "False");
                pods.len() == 2
                    && pods.iter().filter(without).count() == 1
                    && status.phase == Some(Phase::Ready)
                    && status.conditions.iter().any(unready)
            })
        };
        let attachment = system.until_one("full/oam", "one pod without", is_reported).await;
        let pods = attachment.status.map(|status| status.pod_configurations).unwrap_or_default();
        let pod_with_address = pods.iter().find(|pod| pod.message.is_none()).expect("one has the address");
        system
            .until_inside("full", &pod_with_address.pod_name, &["ip", "addr", "show", "net0"], |output| {
                output.is_some_and(|text| text.contains("10.120.0.10/24"))
            })
            .await;
        // The deletion of the pod frees its address.
        system.apply(&cnf.replace("\"replicas\":2", "\"replicas\":1")).await;
        let served = |attachment: &L2ServiceAttachment| {
            let pods = attachment.status.as_ref().map(|status| &status.pod_configurations);
            pods.is_some_and(|pods| {
                pods.len() == 1 && pods[0].message.is_none() && !pods[0].config_list.is_empty()
            })
        };
        system.until_one("full/oam", "the other pod served", served).await;
        system.delete(&cnf).await;
        system.running("full", "app=cnf", 0).await;
        system.delete(&oam).await;
        system.delete(&network).await;
    });
}

/// The nodes' Open vSwitch works in user space, where the node can't check what a pod sends.
#[test]
#[ignore = "needs root: real nodes"]
fn pod_gets_no_interface_that_anti_spoof_asks_to_check_and_the_node_cannot() {
    with_shared_nodes(async |system| {
        let network = network("guard", 125);
        let guarded =
            eno_tests::attachment("guard", "guarded", "guard", "guard", "VlanType: access, AntiSpoof: true");
        let cnf = deployment("guard", "cnf", 1, &json!({ "attach.eno.k8s.io/guarded": "net1" }));
        for manifest in [&network, &guarded, &cnf] {
            system.apply(manifest).await;
        }
        let is_refused = |attachment: &L2ServiceAttachment| {
            let conditions = attachment.status.iter().flat_map(|status| &status.conditions);
            let pods = attachment.status.iter().flat_map(|status| &status.pod_configurations);
            let named = |pod: &eno_nbi_crds::PodConfiguration| {
                pod.message.as_deref().is_some_and(|text| text.contains("AntiSpoof can't be enforced on"))
            };
            let is_unready = |one: &Condition| (&*one.type_, &*one.status) == ("PodsReady", "False");
            conditions.into_iter().any(is_unready) && pods.into_iter().any(named)
        };
        system.until_one("guard/guarded", "the refusal", is_refused).await;
        let pod = system.running("guard", "app=cnf", 1).await.into_keys().next().expect("a pod");
        assert!(!system.interfaces("guard", &pod).await.contains_key("net1"));
        let nads = system.nads("guard").list(&kube::api::ListParams::default()).await.expect("a list");
        assert!(nads.items.is_empty(), "{nads:?}");
        system.delete(&cnf).await;
        system.running("guard", "app=cnf", 0).await;
        system.delete(&guarded).await;
        system.delete(&network).await;
    });
}
