//! A service is not ready while no switch port leads to its PhysicalNetwork.

use eno_nbi_crds::{FabricDevice, L2Service, L2ServiceAttachment, Phase, PhysicalNetwork};
use eno_tests::{Ports, access, object, service, with_shared_sandbox};
use serde_json::json;

use crate::e2e::create_namespace_and_point;

const MESSAGE: &str = "PhysicalNetwork way-gw: no switch port leads there";

/// A manifest that adds ports to the sandbox's FabricDevice of `spine2`.
fn spine_with_ports(ports: &str) -> String {
    object("FabricDevice", "name: spine2", &format!("Ports: [{ports}]"))
}

#[test]
fn service_stays_pending_until_a_switch_port_leads_to_its_network() {
    with_shared_sandbox(async |system| {
        let outside = object("PhysicalNetwork", "name: way-gw", "SegmentationIDs: ['1-4094']");
        system.apply(&outside).await;
        create_namespace_and_point(system, "way", &["node3"]).await;
        let network = [service("way-a", 480, "PhysicalNW: [way-gw]"), access("way", "a", "way-a")].concat();
        let plan = system.eno_json(&["plan", "-f", "-"], &network, 0).await;
        for object in plan["objects"].as_array().expect("a list") {
            assert_eq!(object["after"], json!({"phase": "pending", "message": MESSAGE}), "{object:#}");
        }
        system.apply(&network).await;
        let wanted = || (Phase::Pending, &[MESSAGE]);
        system.becomes::<L2Service>("way-a", wanted()).await;
        system.becomes::<L2ServiceAttachment>("way/a", wanted()).await;

        system.patch("PhysicalNetwork", "way-gw", json!({"spec": {"Unmanaged": true}})).await;
        system.becomes::<L2Service>("way-a", Phase::Ready).await;
        system.becomes::<L2ServiceAttachment>("way/a", Phase::Ready).await;
        system.patch("PhysicalNetwork", "way-gw", json!({"spec": {"Unmanaged": null}})).await;
        system.becomes::<L2Service>("way-a", wanted()).await;

        system
            .apply_until_ready::<L2Service>(
                &spine_with_ports("{Name: Ethernet32, PhysicalNW: way-gw}"),
                "way-a",
            )
            .await;
        system.becomes::<L2ServiceAttachment>("way/a", Phase::Ready).await;
        let path = [
            ("leaf2", "Ethernet1"),
            ("leaf2", "Ethernet50"),
            ("spine2", "Ethernet2"),
            ("spine2", "Ethernet32"),
        ];
        system.assert_vlan_on(480, &Ports::from(path)).await;
        let shown = |network: &PhysicalNetwork| {
            network.status.as_ref().is_some_and(|status| status.switch_ports == ["spine2:Ethernet32"])
        };
        system.until_one("way-gw", "its switch ports", shown).await;

        system.delete_with_vlans(&network, [480]).await;
        system.apply_until_ready::<FabricDevice>(&spine_with_ports(""), "spine2").await;
        system.delete(&outside).await;
    });
}
