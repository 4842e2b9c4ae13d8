//! Everything that can change later does.

use std::time::Duration;

use eno_nbi_crds::{L2BridgeDomain, L2Service, L2ServiceAttachment, Phase, Subnet};
use eno_tests::{Ports, shared};
use serde_json::json;

use crate::e2e::{attachment, join, leave, point, service};

#[test]
fn nodes_join_and_leave_a_pool() {
    shared(async |system| {
        system.namespace("join").await;
        point(system, "join", &["node1"]).await;
        let network =
            [service("join-a", 220, ""), attachment("join", "a", "join", "join-a", "VlanType: access")]
                .concat();
        system.apply(&network).await;
        system.becomes::<L2ServiceAttachment>("join/a", Phase::Ready).await;
        system.assert_vlan_on(220, &Ports::from([("leaf1", "Ethernet1")])).await;
        join(system, "join", "node2").await;
        system
            .until_view("leaf1", "VLAN 220 for node2", |view| view.ports["Ethernet2"].vlans.contains(220))
            .await;
        leave(system, "join", "node1").await;
        system
            .until_view("leaf1", "VLAN 220 away from node1", |view| {
                !view.ports["Ethernet1"].configured.contains(220)
            })
            .await;
        system.becomes::<L2ServiceAttachment>("join/a", Phase::Ready).await;
        system.assert_vlan_on(220, &Ports::from([("leaf1", "Ethernet2")])).await;
        system.delete(&network).await;
        system.until_without([220]).await;
    });
}

#[test]
fn an_attachment_takes_one_more_service() {
    shared(async |system| {
        system.namespace("more").await;
        point(system, "more", &["node2"]).await;
        system.apply(&[service("more-a", 221, ""), service("more-b", 222, "")].concat()).await;
        let with = |services: &str| attachment("more", "a", "more", services, "VlanType: selectivetrunk");
        system.apply(&with("more-a")).await;
        system.becomes::<L2ServiceAttachment>("more/a", Phase::Ready).await;
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
fn a_changed_subnet_reaches_the_pods_network() {
    shared(async |system| {
        system.namespace("sub").await;
        point(system, "sub", &["node2"]).await;
        let subnet = |address: &str| {
            format!(
                "apiVersion: eno.k8s.io/v1alpha1\nkind: Subnet\nmetadata: {{name: sub}}\nspec: {{Type: v4, Ipam: \
                 whereabouts, Address: {address}, Mask: 24}}"
            )
        };
        system.apply(&subnet("10.23.1.0")).await;
        system.becomes::<Subnet>("sub", Phase::Ready).await;
        let network = [
            service("sub-a", 223, "Subnets: [sub]"),
            attachment("sub", "a", "sub", "sub-a", "VlanType: access"),
        ]
        .concat();
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
fn a_service_moves_to_another_physical_network() {
    shared(async |system| {
        let here = service("phys-a", 224, "PhysicalNW: [dc-gw]");
        system.apply(&here).await;
        system.becomes::<L2Service>("phys-a", Phase::Ready).await;
        system.assert_vlan_on(224, &Ports::from([("leaf2", "Ethernet48")])).await;
        system.patch("L2Service", "phys-a", json!({"spec": {"PhysicalNW": ["island-gw"]}})).await;
        system.until_view("leaf2", "VLAN 224 gone", |view| !view.vlans.contains_key(&224)).await;
        system.becomes::<L2Service>("phys-a", Phase::Ready).await;
        system.assert_vlan_on(224, &Ports::from([("island", "Ethernet48")])).await;
        system.delete(&here).await;
        system.until_without([224]).await;
    });
}

#[test]
fn a_bridge_domain_by_hand_is_an_input() {
    shared(async |system| {
        point(system, "hand", &["node3", "node4"]).await;
        let domain = "apiVersion: eno.k8s.io/v1alpha1\nkind: L2BridgeDomain\nmetadata: {name: hand}\nspec: {Vlan: 225, \
                      ConnectionPoints: [hand]}";
        system.apply(domain).await;
        let found: L2BridgeDomain = system.becomes("hand", Phase::Ready).await;
        assert_eq!(found.status.and_then(|status| status.granted_id), Some(225));
        system.assert_vlan_on(225, &Ports::from([("leaf2", "Ethernet1"), ("leaf2", "Ethernet2")])).await;
        system.delete(domain).await;
        system.until_without([225]).await;
    });
}

#[test]
fn a_change_by_hand_to_what_is_ours_is_repaired() {
    shared(async |system| {
        let network = service("drift-a", 226, "PhysicalNW: [island-gw]");
        system.apply(&network).await;
        system.becomes::<L2Service>("drift-a", Phase::Ready).await;
        let away =
            eno_simulator::HandEdit { remove_vlans: [226].into_iter().collect(), ..Default::default() };
        system.by_hand("island", &away).await;
        // The device notifies of it; without that it is found by looking now and then.
        let back = |view: &eno_simulator::View| view.ports["Ethernet48"].vlans.contains(226);
        let repaired = system.until_view("island", "VLAN 226 back", back);
        tokio::time::timeout(Duration::from_secs(30), repaired).await.expect("it is repaired soon");
        system.delete(&network).await;
        system.until_without([226]).await;
    });
}
