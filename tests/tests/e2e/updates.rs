//! Changes of applied objects, which reach switches and NetworkAttachmentDefinitions.

use std::time::Duration;

use eno_nbi_crds::{L2BridgeDomain, L2Service, L2ServiceAttachment, Phase, Subnet};
use eno_tests::{Ports, access, attachment, object, service, subnet, with_shared_sandbox};
use serde_json::json;

use crate::e2e::{
    add_node_to_pool, create_connection_point, create_namespace_and_point, remove_node_from_pool,
};

#[test]
fn vlan_follows_nodes_that_join_and_leave_a_pool() {
    with_shared_sandbox(async |system| {
        create_namespace_and_point(system, "join", &["node1"]).await;
        let network = [service("join-a", 220, ""), access("join", "a", "join-a")].concat();
        system.apply_until_ready::<L2ServiceAttachment>(&network, "join/a").await;
        system.assert_vlan_on(220, &Ports::from([("leaf1", "Ethernet1")])).await;
        add_node_to_pool(system, "join", "node2").await;
        system
            .until_view("leaf1", "VLAN 220 for node2", |view| view.ports["Ethernet2"].vlans.contains(220))
            .await;
        remove_node_from_pool(system, "join", "node1").await;
        system
            .until_view("leaf1", "VLAN 220 away from node1", |view| {
                !view.ports["Ethernet1"].configured.contains(220)
            })
            .await;
        system.becomes::<L2ServiceAttachment>("join/a", Phase::Ready).await;
        system.assert_vlan_on(220, &Ports::from([("leaf1", "Ethernet2")])).await;
        system.delete_with_vlans(&network, [220]).await;
    });
}

#[test]
fn attachment_applies_an_added_and_a_removed_service() {
    with_shared_sandbox(async |system| {
        create_namespace_and_point(system, "more", &["node2"]).await;
        system.apply(&[service("more-a", 221, ""), service("more-b", 222, "")].concat()).await;
        let with = |services: &str| attachment("more", "a", "more", services, "VlanType: selectivetrunk");
        system.apply_until_ready::<L2ServiceAttachment>(&with("more-a"), "more/a").await;
        assert!(system.ports_of(222).await.is_empty());
        system.apply(&with("more-a, more-b")).await;
        system.nad("more/a", |config| config["trunk"].to_string().contains("222")).await;
        system.becomes::<L2ServiceAttachment>("more/a", Phase::Ready).await;
        for vid in [221, 222] {
            system.assert_vlan_on(vid, &Ports::from([("leaf1", "Ethernet2")])).await;
        }
        system.apply(&with("more-b")).await;
        system.until_without([221]).await;
        system
            .delete(&[with("more-b"), service("more-a", 221, ""), service("more-b", 222, "")].concat())
            .await;
        system.until_without([222]).await;
    });
}

#[test]
fn changed_subnet_updates_the_network_attachment_definition() {
    with_shared_sandbox(async |system| {
        create_namespace_and_point(system, "sub", &["node2"]).await;
        let subnet = |address: &str| subnet("sub", address, "");
        system.apply_until_ready::<Subnet>(&subnet("10.23.1.0"), "sub").await;
        let network = [service("sub-a", 223, "Subnets: [sub]"), access("sub", "a", "sub-a")].concat();
        system.apply(&network).await;
        system.nad("sub/a", |config| config["ipam"].to_string().contains("10.23.1.0/24")).await;
        system.apply(&subnet("10.23.2.0")).await;
        system.nad("sub/a", |config| config["ipam"].to_string().contains("10.23.2.0/24")).await;
        system.becomes::<L2ServiceAttachment>("sub/a", Phase::Ready).await;
        system.delete(&network).await;
        system.delete(&subnet("10.23.2.0")).await;
    });
}

#[test]
fn service_moves_to_another_physical_network() {
    with_shared_sandbox(async |system| {
        let here = service("phys-a", 224, "PhysicalNW: [dc-gw]");
        system.apply_until_ready::<L2Service>(&here, "phys-a").await;
        system.assert_vlan_on(224, &Ports::from([("leaf2", "Ethernet48")])).await;
        system.patch("L2Service", "phys-a", json!({"spec": {"PhysicalNW": ["island-gw"]}})).await;
        system.until_view("leaf2", "VLAN 224 gone", |view| !view.vlans.contains_key(&224)).await;
        system.becomes::<L2Service>("phys-a", Phase::Ready).await;
        system.assert_vlan_on(224, &Ports::from([("island", "Ethernet48")])).await;
        system.delete_with_vlans(&here, [224]).await;
    });
}

#[test]
fn user_made_bridge_domain_is_configured_on_switches() {
    with_shared_sandbox(async |system| {
        create_connection_point(system, "hand", &["node3", "node4"]).await;
        let domain = object("L2BridgeDomain", "name: hand", "Vlan: 225, ConnectionPoints: [hand]");
        system.apply(&domain).await;
        let found: L2BridgeDomain = system.becomes("hand", Phase::Ready).await;
        assert_eq!(found.status.and_then(|status| status.granted_id), Some(225));
        system.assert_vlan_on(225, &Ports::from([("leaf2", "Ethernet1"), ("leaf2", "Ethernet2")])).await;
        system.delete_with_vlans(&domain, [225]).await;
    });
}

#[test]
fn manual_removal_of_a_managed_vlan_is_repaired() {
    with_shared_sandbox(async |system| {
        let network = service("drift-a", 226, "PhysicalNW: [island-gw]");
        system.apply_until_ready::<L2Service>(&network, "drift-a").await;
        let away =
            eno_simulator::HandEdit { remove_vlans: [226].into_iter().collect(), ..Default::default() };
        system.edit_manually("island", &away).await;
        // The device notifies the driver of the edit; a device without notifications is audited now and then.
        let back = |view: &eno_simulator::View| view.ports["Ethernet48"].vlans.contains(226);
        let repaired = system.until_view("island", "VLAN 226 back", back);
        tokio::time::timeout(Duration::from_secs(30), repaired).await.expect("it is repaired soon");
        system.delete_with_vlans(&network, [226]).await;
    });
}
