//! Open vSwitch as the fabric: the imported configuration of the reference implementation's plugin, alone and behind
//! NETCONF switches.

use eno_nbi_crds::{
    ConnectionPoint, FabricDevice, L2Service, L2ServiceAttachment, NodePool, Phase, manifest,
};
use eno_tests::{OpenVswitch, System, attachment, between_leaves, service, with_shared_sandbox};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::e2e::create_connection_point;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/e2e/manifests/ovs_plugin");
/// The nodes of the plugin's lab, each with its pool.
const NODES: [(&str, &str); 2] = [("master0", "ovs-pool"), ("node0", "virtio-pool")];
/// The ports of the NICs of the ConnectionPoint `cp-virtio`.
const VIRTIO: [&str; 4] = ["vport13", "vport14", "vport15", "vport16"];
/// The port of the NIC of `cp-br-trunk`.
const TRUNK: &str = "vport7";
/// The port of `br-fabric` with a cable to `leaf1`, and that cable's other end.
const UPLINK: &str = "uplink";
const LEAF: (&str, &str) = ("leaf1", "Ethernet20");

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Link {
    switch_name: String,
    switch_port: String,
}

/// The links of the plugin's ConfigMap.
fn links() -> Vec<Link> {
    let text = include_str!("manifests/ovs_plugin/fabricConf.yaml");
    let config_map: Value = serde_saphyr::from_str(text).expect("YAML");
    serde_saphyr::from_str(config_map["data"]["links"].as_str().expect("links")).expect("a list of links")
}

/// The VLANs of every port of the plugin's lab that carries any.
async fn vlans_by_port(switch: &OpenVswitch) -> Vec<(String, Vec<u16>)> {
    let mut found = Vec::new();
    for port in links().into_iter().map(|link| link.switch_port).chain([UPLINK.to_owned()]) {
        let vlans = switch.vlans(&port).await;
        if !vlans.is_empty() {
            found.push((port, vlans));
        }
    }
    found
}

fn on(ports: &[&str], vlans: &[u16]) -> Vec<(String, Vec<u16>)> {
    ports.iter().map(|port| ((*port).to_owned(), vlans.to_vec())).collect()
}

/// The output of `eno import` for the plugin's configuration.
async fn imported(system: &System, address: &str) -> String {
    let files = ["fabricConf.yaml", "poolConf.yaml"].map(|name| format!("{FOLDER}/{name}"));
    let output = system.eno(&["import", "ovs-plugin", &files[0], &files[1], "--address", address], "").await;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// The imported manifests with a cable from `br-fabric` to a leaf.
fn with_uplink(imported: &str) -> String {
    let mut documents: Vec<Value> = serde_saphyr::from_multiple(imported).expect("YAML");
    let bridge = documents.iter_mut().find(|document| document["metadata"]["name"] == "br-fabric");
    let ports = bridge.and_then(|bridge| bridge["spec"]["Ports"].as_array_mut()).expect("its ports");
    ports.push(json!({"Name": UPLINK, "Device": LEAF.0, "Port": LEAF.1}));
    documents.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n---\n")
}

/// A manifest that adds ports to the sandbox's FabricDevice of the leaf.
fn leaf_with_ports(ports: &Value) -> String {
    manifest("FabricDevice", LEAF.0, json!({"Ports": ports})).to_string()
}

#[test]
#[ignore = "needs root: Open vSwitch"]
fn imported_reference_lab_works_as_a_fabric() {
    with_shared_sandbox(async |system| {
        let switch = OpenVswitch::start().await;
        let ports = links().into_iter().map(|link| (link.switch_name, link.switch_port));
        switch.add_closed_ports(ports.chain([("br-fabric".to_owned(), UPLINK.to_owned())])).await;
        let node = |(name, pool)| {
            format!(
                "{{apiVersion: v1, kind: Node, metadata: {{name: {name}, labels: {{node-pool: {pool}}}}}}}"
            )
        };
        let nodes = format!("\n---\n{}", NODES.map(node).join("\n---\n"));
        system.apply(&nodes).await;
        let imported = imported(system, &switch.address()).await;
        system.apply(&imported).await;
        for bridge in ["br-admin", "br-public", "br-mgmt", "br-neutron", "br-fabric"] {
            let device: FabricDevice = system.becomes(bridge, Phase::Ready).await;
            let status = device.status.unwrap_or_default();
            assert_eq!(status.model.as_deref(), Some("Open vSwitch 3.1.0"), "{bridge}");
        }
        for (_, pool) in NODES {
            system.becomes::<NodePool>(pool, Phase::Ready).await;
        }
        for name in ["cp-br-trunk", "cp-br-data", "cp-virtio"] {
            system.becomes::<ConnectionPoint>(name, Phase::Ready).await;
        }
        system.namespace("ovsfab").await;
        assert_eq!(vlans_by_port(&switch).await, []);

        check_bridge_alone(system, &switch).await;
        check_bridge_behind_switches(system, &switch, &imported).await;

        system.delete(&[&*imported, &*nodes].concat()).await;
    });
}

/// Creates and deletes a network between nodes on the bridge.
async fn check_bridge_alone(system: &System, switch: &OpenVswitch) {
    let network = [
        service("ovsfab-a", 470, ""),
        attachment("ovsfab", "bridge", "cp-br-trunk", "ovsfab-a", "VlanType: access"),
        attachment("ovsfab", "device", "cp-virtio", "ovsfab-a", "VlanType: trunk"),
    ]
    .concat();
    system.apply(&network).await;
    for name in ["ovsfab/bridge", "ovsfab/device"] {
        system.becomes::<L2ServiceAttachment>(name, Phase::Ready).await;
    }
    assert_eq!(vlans_by_port(switch).await, on(&[&[TRUNK], &VIRTIO[..]].concat(), &[470]));
    let (_, bridge) = system.nad("ovsfab/bridge", |config| !config.is_null()).await;
    assert_eq!((&bridge["bridge"], &bridge["vlan"]), (&json!("br-trunk"), &json!(470)));
    system.delete(&network).await;
    assert_eq!(vlans_by_port(switch).await, []);
}

/// Creates a network between a node on the bridge and one on a leaf. The bridge can't roll a change back, so it is
/// changed only after the switches.
async fn check_bridge_behind_switches(system: &System, switch: &OpenVswitch, imported: &str) {
    create_connection_point(system, "ovsmixed", &["node3"]).await;
    system.apply(&leaf_with_ports(&json!([{"Name": LEAF.1, "Device": "br-fabric", "Port": UPLINK}]))).await;
    system.apply(&with_uplink(imported)).await;
    for device in [LEAF.0, "br-fabric"] {
        system.becomes::<FabricDevice>(device, Phase::Ready).await;
    }
    let lab = [
        service("ovsfab-b", 471, ""),
        attachment("ovsfab", "lab", "cp-virtio", "ovsfab-b", "VlanType: trunk"),
    ]
    .concat();
    system.apply_until_ready::<L2ServiceAttachment>(&lab, "ovsfab/lab").await;
    let before = switch.configurations().await;
    let refusal = json!({"kind": "reject-edit", "vlan": 471, "message": "VLAN 471 is for the voice"});
    system.fault("leaf2", refusal).await;
    let edge = attachment("ovsfab", "edge", "ovsmixed", "ovsfab-b", "VlanType: access");
    system.apply(&edge).await;
    let refused = (Phase::Error, &["FabricDevice leaf2", "for the voice"]);
    system.becomes::<L2Service>("ovsfab-b", refused).await;
    assert_eq!(vlans_by_port(switch).await, on(&VIRTIO, &[471]));
    assert_eq!(switch.configurations().await, before, "the bridge was changed though a switch refuses");
    system.fault("leaf2", json!({"kind": "clear"})).await;

    system.becomes::<L2Service>("ovsfab-b", Phase::Ready).await;
    for name in ["ovsfab/edge", "ovsfab/lab"] {
        system.becomes::<L2ServiceAttachment>(name, Phase::Ready).await;
    }
    let mut on_switches = between_leaves();
    on_switches.extend([LEAF, ("leaf2", "Ethernet1")]);
    system.assert_vlan_on(471, &on_switches).await;
    assert_eq!(vlans_by_port(switch).await, on(&[&VIRTIO[..], &[UPLINK]].concat(), &[471]));
    assert_eq!(switch.configurations().await, before + 1, "the bridge was changed once");

    system.delete_with_vlans(&[lab, edge].concat(), [471]).await;
    assert_eq!(vlans_by_port(switch).await, []);
    // The cable goes first, since it would lead nowhere.
    system.apply_until_ready::<FabricDevice>(&leaf_with_ports(&json!([])), LEAF.0).await;
}
