//! From custom resources to switches, NetworkAttachmentDefinitions and callbacks, and the removal of all of it.

use std::collections::BTreeMap;

use eno_nbi_crds::{FINALIZER, L2Service, L2ServiceAttachment, Phase, Subnet};
use eno_simulator::{HandEdit, PortMode};
use eno_tests::{Ports, Receiver, System, attachment, between_leaves, service, with_shared_sandbox};
use kube::ResourceExt as _;
use kube::runtime::watcher;
use serde_json::{Value, json};

/// The ports of a service between `node1`, `node3` and the gateway; both spines are on the path.
fn leaf_to_leaf() -> Ports<'static> {
    let ends = [("leaf1", "Ethernet1"), ("leaf2", "Ethernet1"), ("leaf2", "Ethernet48")];
    between_leaves().into_iter().chain(ends).collect()
}

const CONNECTION_POINTS: &str = include_str!("manifests/main_path.yaml");

fn services(callback: &str) -> String {
    let with_callback = |more: &str| format!("CallbackURL: '{callback}'{more}");
    [
        service("main-100", 100, &with_callback(", PhysicalNW: [dc-gw], Subnets: [main-v4, main-v6]")),
        service("main-101", 101, &with_callback(", PhysicalNW: [dc-gw]")),
        service("main-102", 102, &with_callback(", PhysicalNW: [dc-gw]")),
        service("main-103", 103, &with_callback("")),
    ]
    .concat()
}

fn attachments(callback: &str) -> String {
    let new_attachment = |name: &str, vlan_type: &str, point: &str, services: &str| {
        let more = format!("VlanType: {vlan_type}, CallbackURL: '{callback}'");
        attachment("main", name, point, services, &more)
    };
    [
        new_attachment("access", "access", "main-ovs", "main-100"),
        new_attachment("selective", "selectivetrunk", "main-ovs", "main-101, main-102"),
        new_attachment("trunk", "trunk", "main-vf", "main-103"),
    ]
    .concat()
}

#[test]
fn networks_reach_switches_pods_and_callbacks_and_are_removed() {
    with_shared_sandbox(async |system| {
        let foreign = Foreign::configure(system).await;
        system.apply("{apiVersion: v1, kind: Namespace, metadata: {name: main}}").await;
        for node in ["node1", "node3"] {
            system.patch("Node", node, json!({"metadata": {"labels": {"main": "yes"}}})).await;
        }
        let receiver = Receiver::start().await;
        // A reference to a missing object is an error until the object exists, so objects are applied in steps.
        system.apply(CONNECTION_POINTS).await;
        for name in ["main-v4", "main-v6"] {
            system.becomes::<Subnet>(name, Phase::Ready).await;
        }
        let services = services(receiver.url());
        system.apply(&services).await;

        for vid in 100..=103 {
            let service: L2Service = system.becomes(&format!("main-{vid}"), Phase::Ready).await;
            assert!(service.finalizers().iter().any(|finalizer| finalizer == FINALIZER));
            assert_eq!(service.status.and_then(|status| status.granted_id), Some(vid));
        }
        let attachments = attachments(receiver.url());
        system.apply(&attachments).await;
        for name in ["access", "selective", "trunk"] {
            system.becomes::<L2ServiceAttachment>(&format!("main/{name}"), Phase::Ready).await;
        }
        let leaf_to_leaf = leaf_to_leaf();
        for vid in 100..=102 {
            system.assert_vlan_on(vid, &leaf_to_leaf).await;
        }
        let mut without_gateway = leaf_to_leaf.clone();
        without_gateway.remove(&("leaf2", "Ethernet48"));
        system.assert_vlan_on(103, &without_gateway).await;
        foreign.assert_untouched(system).await;

        assert_pod_networks(system).await;

        let objects: Vec<String> = (100..=103)
            .map(|vid| format!("L2Service main-{vid}"))
            .chain(["access", "selective", "trunk"].map(|name| format!("L2ServiceAttachment main/{name}")))
            .collect();
        receiver.until(&objects, "ready").await;

        system
            .delete_with_vlans(&[&*services, &*attachments, "\n---\n", CONNECTION_POINTS].concat(), 100..=103)
            .await;
        system.until(system.nads("main"), watcher::Config::default(), "no NAD", BTreeMap::is_empty).await;
        foreign.assert_untouched(system).await;
        receiver.until(&objects, "deleted").await;
        for object in &objects {
            assert_callbacks(&receiver, object);
        }
    });
}

async fn assert_pod_networks(system: &System) {
    let (nad, access) = system.nad("main/access", |config| !config.is_null()).await;
    let owner = nad.owner_references().first().map(|owner| (owner.kind.as_str(), owner.name.as_str()));
    assert_eq!(owner, Some(("L2ServiceAttachment", "access")));
    assert_eq!(nad.annotations()["k8s.v1.cni.cncf.io/resourceName"], "ovs-cni.network.kubevirt.io/br-main");
    assert_eq!(
        (&access["type"], &access["bridge"], &access["vlan"]),
        (&json!("ovs"), &json!("br-main"), &json!(100))
    );
    let text = access.to_string();
    for expected in
        ["whereabouts", "10.10.13.10", "2001:db8:13::/64", "30.30.13.0/24", "10.10.13.1", "cnf.example.com"]
    {
        assert!(text.contains(expected), "{expected} in {text}");
    }
    let (_, selective) = system.nad("main/selective", |config| !config.is_null()).await;
    assert_eq!(vlans_of(&selective["trunk"]), [101, 102], "{selective}");
    assert_eq!(selective.get("vlan"), None, "a tag beside a trunk is dropped by ovs-cni");
    let (nad, trunk) = system.nad("main/trunk", |config| !config.is_null()).await;
    assert_eq!(trunk["type"], "host-device");
    assert_eq!(nad.annotations()["k8s.v1.cni.cncf.io/resourceName"], "intel.com/main_pool");
}

/// The VLANs of `[{"id": 10}, {"minID": 11, "maxID": 14}]`.
fn vlans_of(trunk: &Value) -> Vec<u64> {
    let entries = trunk.as_array().map(Vec::as_slice).unwrap_or_default();
    let of = |entry: &Value| match (entry["id"].as_u64(), entry["minID"].as_u64(), entry["maxID"].as_u64()) {
        (Some(id), ..) => (id..=id).collect::<Vec<_>>(),
        (None, Some(first), Some(last)) => (first..=last).collect(),
        _ => vec![],
    };
    entries.iter().flat_map(of).collect()
}

/// Checks that each phase from pending to deleted was posted once, numbered, and with the whole object.
fn assert_callbacks(receiver: &Receiver, object: &str) {
    let callbacks = receiver.of(object);
    let phases: Vec<_> = callbacks.iter().map(|callback| callback.phase.as_str()).collect();
    assert_eq!(phases, ["pending", "ready", "terminating", "deleted"], "{object}");
    let numbers: Vec<_> = callbacks.iter().map(|callback| callback.transition).collect();
    assert_eq!(numbers, [1, 2, 3, 4], "{object}");
    for callback in callbacks {
        let body = &callback.body;
        assert_eq!(body["apiVersion"], "eno.k8s.io/v1alpha1");
        assert!(body["metadata"]["uid"].is_string(), "{body}");
        assert!(body["metadata"].get("managedFields").is_none(), "{body}");
        assert!(body["spec"].is_object(), "{body}");
        assert_eq!(body["status"]["transitions"].as_u64(), Some(callback.transition), "{body}");
        let uid = body["metadata"]["uid"].as_str().unwrap_or_default();
        assert_eq!(callback.id, format!("{uid}-{}", callback.transition));
    }
}

/// Foreign configuration: VLAN 3000 on a trunk that the operator uses as well, and an access port outside its fabric.
struct Foreign;

impl Foreign {
    async fn configure(system: &System) -> Self {
        let trunk = HandEdit {
            port: Some("Ethernet1".to_owned()),
            mode: Some(PortMode::Trunk),
            vlans: [3000].into_iter().collect(),
            native: Some(1),
            define_vlans: [
                (1, "default".to_owned()),
                (3000, "customer".to_owned()),
                (3001, "printers".to_owned()),
            ]
            .into(),
            ..HandEdit::default()
        };
        system.edit_manually("leaf1", &trunk).await;
        let access = HandEdit {
            port: Some("Ethernet10".to_owned()),
            mode: Some(PortMode::Access),
            access: Some(3001),
            ..HandEdit::default()
        };
        system.edit_manually("leaf1", &access).await;
        Self
    }

    async fn assert_untouched(&self, system: &System) {
        let view = system.view("leaf1").await;
        let name = |vid: u16| view.vlans.get(&vid).and_then(|vlan| vlan.name.as_deref());
        assert_eq!((name(1), name(3000), name(3001)), (Some("default"), Some("customer"), Some("printers")));
        let trunk = &view.ports["Ethernet1"];
        assert!(trunk.vlans.contains(3000), "{trunk:?}");
        assert_eq!((trunk.mode, trunk.native, trunk.open_trunk), (Some(PortMode::Trunk), Some(1), false));
        let access = &view.ports["Ethernet10"];
        assert_eq!((access.mode, access.access), (Some(PortMode::Access), Some(3001)));
    }
}
