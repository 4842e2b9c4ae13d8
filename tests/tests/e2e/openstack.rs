//! Trunks of OpenStack as the fabric: real Keystone and Neutron, without VMs behind the trunks.

use eno_nbi_crds::{FabricDevice, L2Service, L2ServiceAttachment, Phase};
use eno_tests::{
    PHYSICAL_NETWORK, Placed, System, access, service, with_exclusive_openstack, with_shared_openstack,
};
use serde_json::{Value, json};

use crate::e2e::create_namespace_and_point;

/// The FabricDevice.
const DEVICE: &str = "openstack";
/// What a service needs to reach the physical network.
const UPLINK: &str = "PhysicalNW: [cloud-gw]";

async fn patch_device(system: &System, spec: Value) {
    system.patch("FabricDevice", DEVICE, json!({ "spec": spec })).await;
}

#[test]
fn network_is_ready_when_neutron_has_it() {
    with_shared_openstack(async |system| {
        create_namespace_and_point(system, "vms", &["vm1", "vm2"]).await;
        let network = [service("vms-a", 600, UPLINK), access("vms", "a", "vms-a")].concat();
        let edits = system.eno(&["plan", "-f", "-", "-o", "xml"], &network).await;
        let edits = String::from_utf8(edits.stdout).expect("UTF-8");
        let requests = [
            "\"path\": \"/v2.0/networks\"",
            "\n        \"provider:segmentation_id\": 600",
            "\"path\": \"/v2.0/ports\"",
            "/add_subports\"",
            "\n        \"segmentation_id\": 600",
        ];
        for text in [&["<!-- openstack -->"], &requests[..]].concat() {
            assert!(edits.contains(text), "{text} in {edits}");
        }
        assert_eq!(system.placed(600).await, Placed::default());

        let servers = system.cloud().server().supervisor();
        servers.pause_child("neutron").expect("a process");
        system.apply(&network).await;
        system.becomes::<L2ServiceAttachment>("vms/a", Phase::Pending).await;
        system.becomes::<L2Service>("vms-a", Phase::Pending).await;
        servers.resume_child("neutron").expect("a process");
        system.becomes::<L2ServiceAttachment>("vms/a", Phase::Ready).await;
        system.becomes::<L2Service>("vms-a", Phase::Ready).await;
        assert_eq!(system.placed(600).await, Placed::on(&["vm1-trunk", "vm2-trunk"]));
        let (_, nad) = system.nad("vms/a", |config| !config.is_null()).await;
        assert_eq!(nad["vlan"], 600);

        // Without an attachment, no trunk has the VLAN.
        system.delete(&access("vms", "a", "vms-a")).await;
        system.becomes::<L2Service>("vms-a", Phase::Ready).await;
        assert_eq!(system.placed(600).await, Placed::on(&[]));
        system.delete(&network).await;
        assert_eq!(system.placed(600).await, Placed::default());
    });
}

#[test]
fn foreign_network_with_the_vlan_is_an_error_until_it_is_adopted() {
    with_exclusive_openstack(async |system| {
        create_namespace_and_point(system, "taken", &["vm1"]).await;
        let foreign = json!({
            "name": "voice", "provider:network_type": "vlan", "provider:segmentation_id": 610,
            "provider:physical_network": PHYSICAL_NETWORK,
        });
        let foreign = system.create_in_neutron("network", foreign).await;
        let network = [service("taken-a", 610, UPLINK), access("taken", "a", "taken-a")].concat();
        system.apply(&network).await;
        let refused = (Phase::Error, &["FabricDevice openstack", "VLAN 610", "voice", &foreign]);
        system.becomes::<L2Service>("taken-a", refused).await;
        system.becomes::<L2ServiceAttachment>("taken/a", refused).await;
        assert_eq!(system.placed(610).await, Placed::default());

        patch_device(system, json!({ "Adopt": "610" })).await;
        system.becomes::<L2Service>("taken-a", Phase::Ready).await;
        system.becomes::<L2ServiceAttachment>("taken/a", Phase::Ready).await;
        assert_eq!(system.placed(610).await, Placed::on(&["vm1-trunk"]));

        system.delete(&network).await;
        assert_eq!(system.neutron("networks?provider:segmentation_id=610").await, [] as [Value; 0]);
        patch_device(system, json!({ "Adopt": null })).await;
        system.becomes::<FabricDevice>(DEVICE, Phase::Ready).await;
        system.assert_neutron_is_clean().await;
    });
}

#[test]
fn attachment_names_a_deleted_trunk_until_it_is_there_again() {
    with_exclusive_openstack(async |system| {
        create_namespace_and_point(system, "gone", &["vm1", "vm2"]).await;
        let network = [service("gone-a", 620, UPLINK), access("gone", "a", "gone-a")].concat();
        system.apply_until_ready::<L2ServiceAttachment>(&network, "gone/a").await;
        let trunk = system.trunk("vm2-trunk").await;
        system.delete_in_neutron("trunk", trunk["id"].as_str().expect("an id")).await;
        // The driver finds it when it reads again, at the latest after this time.
        patch_device(system, json!({ "AuditInterval": 10 })).await;
        let missing = (Phase::Error, &["FabricDevice openstack", "vm2-trunk"]);
        system.becomes::<L2ServiceAttachment>("gone/a", missing).await;
        assert_eq!(system.placed(620).await.trunks, Placed::on(&["vm1-trunk"]).trunks);

        let again = json!({ "name": "vm2-trunk", "port_id": trunk["port_id"] });
        system.create_in_neutron("trunk", again).await;
        system.becomes::<L2ServiceAttachment>("gone/a", Phase::Ready).await;
        assert_eq!(system.placed(620).await, Placed::on(&["vm1-trunk", "vm2-trunk"]));
        patch_device(system, json!({ "AuditInterval": null })).await;
        system.delete(&network).await;
        system.assert_neutron_is_clean().await;
    });
}

#[test]
fn refused_password_stops_no_other_device() {
    with_exclusive_openstack(async |system| {
        create_namespace_and_point(system, "login", &["vm1"]).await;
        create_namespace_and_point(system, "others", &["node1"]).await;
        let account = system.cloud().account();
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": { "name": "wrong-password", "namespace": "eno-devices" },
            "stringData": {
                "username": account.user, "password": "wrong", "user_domain_name": account.user_domain,
                "project_name": account.project, "project_domain_name": account.project_domain,
            },
        });
        system.apply(&secret.to_string()).await;
        patch_device(system, json!({ "Credentials": { "SecretName": "wrong-password" } })).await;
        let refused = &["refuses the credential", "wrong-password"];
        system.becomes::<FabricDevice>(DEVICE, (Phase::Error, refused)).await;

        let of_vm = [service("login-a", 630, UPLINK), access("login", "a", "login-a")].concat();
        let of_node =
            [service("others-a", 631, "PhysicalNW: [dc-gw]"), access("others", "a", "others-a")].concat();
        system.apply(&[&*of_vm, &*of_node].concat()).await;
        let stopped = (Phase::Error, &["FabricDevice openstack", "refuses the credential"]);
        system.becomes::<L2ServiceAttachment>("login/a", stopped).await;
        system.becomes::<L2ServiceAttachment>("others/a", Phase::Ready).await;
        system.becomes::<L2Service>("others-a", Phase::Ready).await;

        patch_device(system, json!({ "Credentials": { "SecretName": DEVICE } })).await;
        system.becomes::<L2ServiceAttachment>("login/a", Phase::Ready).await;
        assert_eq!(system.placed(630).await, Placed::on(&["vm1-trunk"]));
        system.delete(&of_vm).await;
        system.delete_with_vlans(&of_node, [631]).await;
        system.delete(&secret.to_string()).await;
        system.assert_neutron_is_clean().await;
    });
}
