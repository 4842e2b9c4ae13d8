//! Several services that request one VLAN ID.

use eno_nbi_crds::{L2Service, L2ServiceAttachment, Phase};
use eno_tests::{Ports, access, service, with_exclusive_sandbox, with_shared_sandbox};
use serde_json::json;

use crate::e2e::create_namespace_and_point;

const FABRIC: [&str; 5] = ["leaf1", "leaf2", "spine1", "spine2", "island"];
const ISLAND: [(&str, &str); 1] = [("island", "Ethernet48")];

#[test]
fn holder_keeps_its_vlan_id_until_it_is_deleted() {
    with_shared_sandbox(async |system| {
        let (holder, second) = (
            service("ids-holder", 200, "PhysicalNW: [island-gw]"),
            service("ids-second", 200, "PhysicalNW: [island-gw]"),
        );
        system.apply_until_ready::<L2Service>(&holder, "ids-holder").await;
        system.apply(&second).await;
        system
            .becomes::<L2Service>("ids-second", (Phase::Error, &["SegmentationID", "200", "ids-holder"]))
            .await;
        system.becomes::<L2Service>("ids-holder", Phase::Ready).await;
        system.delete(&holder).await;
        let now: L2Service = system.becomes("ids-second", Phase::Ready).await;
        assert_eq!(now.status.and_then(|status| status.granted_id), Some(200));
        system.assert_vlan_on(200, &Ports::from(ISLAND)).await;
        system.delete_with_vlans(&second, [200]).await;
    });
}

#[test]
fn older_object_does_not_take_a_held_vlan_id() {
    with_shared_sandbox(async |system| {
        let older = service("ids-older", 201, "PhysicalNW: [island-gw]");
        system.apply_until_ready::<L2Service>(&older, "ids-older").await;
        let younger = service("ids-younger", 202, "PhysicalNW: [island-gw]");
        system.apply_until_ready::<L2Service>(&younger, "ids-younger").await;

        system.patch("L2Service", "ids-older", json!({"spec": {"SegmentationID": 202}})).await;
        let refused = (Phase::Error, &["202", "ids-younger"]);
        system.becomes::<L2Service>("ids-older", refused).await;
        // The service that holds the VLAN keeps it.
        system.assert_vlan_on(201, &Ports::from(ISLAND)).await;

        system.delete(&younger).await;
        system.becomes::<L2Service>("ids-older", Phase::Ready).await;
        system.until_without([201]).await;
        system.assert_vlan_on(202, &Ports::from(ISLAND)).await;
        system.delete(&older).await;
    });
}

#[test]
fn vlan_id_change_takes_one_transaction_per_switch() {
    with_exclusive_sandbox(async |system| {
        create_namespace_and_point(system, "move", &["node1", "node4"]).await;
        let network = service("move-a", 210, "PhysicalNW: [dc-gw]");
        system.apply(&network).await;
        system.apply_until_ready::<L2ServiceAttachment>(&access("move", "a", "move-a"), "move/a").await;
        system.becomes::<L2Service>("move-a", Phase::Ready).await;

        let mut before = Vec::new();
        for switch in FABRIC {
            before.push(system.transactions(switch).await);
        }
        let ports = system.ports_of(210).await;
        system.patch("L2Service", "move-a", json!({"spec": {"SegmentationID": 211}})).await;
        system.nad("move/a", |config| config["vlan"] == 211).await;
        system.until_without([210]).await;
        let service: L2Service = system.becomes("move-a", Phase::Ready).await;
        assert_eq!(service.status.and_then(|status| status.granted_id), Some(211));
        system.becomes::<L2ServiceAttachment>("move/a", Phase::Ready).await;
        assert_eq!(system.ports_of(211).await, ports);
        let mut made = Vec::new();
        for (switch, before) in FABRIC.into_iter().zip(before) {
            made.push((switch, system.transactions(switch).await - before));
        }
        let wanted = [("leaf1", 1), ("leaf2", 1), ("spine1", 1), ("spine2", 1), ("island", 0)];
        assert_eq!(made, wanted, "transactions for the move");

        system.delete_with_vlans(&[access("move", "a", "move-a"), network].concat(), [211]).await;
    });
}
