//! A fabric of four dialects: changes that all switches or none of them make, and failures of switches.

use eno_nbi_crds::{ChangeOutcome, FabricDevice, L2Service, L2ServiceAttachment, Phase};
use eno_simulator::{ConfirmedCommit, HandEdit, NodeInterface, Topology};
use eno_tests::{ExpectedStatus, Ports, System, access, service, with_own_sandbox};
use k8s_openapi::api::events::v1::Event;
use kube::runtime::watcher;
use serde_json::json;

use crate::e2e::{create_connection_point_on, create_namespace_and_point};

const SWITCHES: [(&str, &str); 4] =
    [("leaf1", "openconfig"), ("leaf2", "junos"), ("spine1", "srlinux"), ("spine2", "ieee8021q")];

/// Runs a test on two leaves and two spines of four dialects, with a node on each leaf and `dc-gw` on `leaf2`.
fn with_mixed_fabric<F: AsyncFnOnce(&System)>(test: F) {
    let makes = SWITCHES.map(|(_, make)| make);
    with_own_sandbox(
        |options| options.topology = Topology::leaf_spine_of(2, 2, 2, &makes),
        async |system| {
            create_namespace_and_point(system, "mix", &["node1", "node2"]).await;
            test(system).await;
        },
    );
}

/// The ports of a service between both nodes.
fn ports() -> Ports<'static> {
    Ports::from([
        ("leaf1", "Ethernet1"),
        ("leaf1", "Ethernet49"),
        ("leaf1", "Ethernet50"),
        ("leaf2", "xe-0/0/1"),
        ("leaf2", "xe-0/0/49"),
        ("leaf2", "xe-0/0/50"),
        ("spine1", "ethernet-1/1"),
        ("spine1", "ethernet-1/2"),
        ("spine2", "eth1"),
        ("spine2", "eth2"),
    ])
}

/// The manifests of a service between both nodes.
fn service_between_nodes(vid: u16) -> String {
    let name = format!("mix-{vid}");
    service(&name, vid, "") + &access("mix", &format!("a{vid}"), &name)
}

async fn becomes<'a>(system: &System, vid: u16, wanted: impl Into<ExpectedStatus<'a>>) {
    system.becomes::<L2ServiceAttachment>(&format!("mix/a{vid}"), wanted).await;
}

/// Waits until a switch has a VLAN, or until it lacks it.
async fn until_vlan_presence(system: &System, switch: &str, vid: u16, present: bool) {
    let what = format!("VLAN {vid}: {present}");
    system.until_view(switch, &what, |view| view.vlans.contains_key(&vid) == present).await;
}

fn condition(device: &FabricDevice, kind: &str) -> Option<(String, String)> {
    let conditions = &device.status.as_ref()?.conditions;
    let found = conditions.iter().find(|condition| condition.type_ == kind)?;
    Some((found.status.clone(), found.message.clone()))
}

#[test]
fn service_over_four_dialects_is_configured_and_removed() {
    with_mixed_fabric(async |system| {
        let network = service_between_nodes(500);
        system.apply(&network).await;
        becomes(system, 500, Phase::Ready).await;
        system.becomes::<L2Service>("mix-500", Phase::Ready).await;
        system.assert_vlan_on(500, &ports()).await;
        let mut transactions = Vec::new();
        for (switch, make) in SWITCHES {
            let device = system.until_one(switch, "its last transaction", |device: &FabricDevice| {
                let last = device.status.as_ref().and_then(|status| status.last_transaction.as_ref());
                last.is_some_and(|last| last.added > 0)
            });
            let device = device.await;
            assert_eq!(condition(&device, "Reachable").map(|(status, _)| status).as_deref(), Some("True"));
            assert_eq!(condition(&device, "Drift").map(|(status, _)| status).as_deref(), Some("False"));
            let status = device.status.unwrap_or_default();
            assert_eq!(status.dialect.as_deref(), Some(make));
            assert_eq!(status.rollback.as_deref(), Some("persistent"));
            assert!(status.host_key_fingerprint.is_some_and(|text| text.starts_with("SHA256:")));
            let last = status.last_transaction.unwrap_or_default();
            assert_eq!(last.outcome, ChangeOutcome::Confirmed);
            transactions.push(last.id);
        }
        assert!(transactions[0].is_some() && transactions.iter().all(|id| *id == transactions[0]));
        system.delete_with_vlans(&network, [500]).await;
    });
}

/// A node's bond ends on a port of `leaf1`, and on a port of `leaf2` that is a member of a LAG there.
#[test]
fn bond_across_two_switches_carries_the_vlan_on_both() {
    let mut topology = Topology::leaf_spine_of(2, 1, 2, &["openconfig", "junos", "srlinux"]);
    let bonded = &mut topology.nodes[0];
    bonded.interfaces.push(NodeInterface {
        name: "eth2".to_owned(),
        switch: "leaf2".to_owned(),
        port: "xe-0/0/7".to_owned(),
    });
    topology.switches[1].lags = [("ae7".to_owned(), vec!["xe-0/0/7".to_owned()])].into();
    with_own_sandbox(
        |options| options.topology = topology,
        async |system| {
            system.namespace("mix").await;
            create_connection_point_on(system, "mix", &["node1"], "eth1, eth2").await;
            let network = service_between_nodes(520);
            system.apply(&network).await;
            becomes(system, 520, Phase::Ready).await;
            let mut ports = Ports::from([("leaf1", "Ethernet1"), ("leaf2", "ae7")]);
            ports.extend([("leaf1", "Ethernet49"), ("leaf2", "xe-0/0/49")]);
            ports.extend([("spine1", "ethernet-1/1"), ("spine1", "ethernet-1/2")]);
            system.assert_vlan_on(520, &ports).await;
            system.delete_with_vlans(&network, [520]).await;
        },
    );
}

#[test]
fn rejected_change_is_on_no_switch_and_the_others_converge() {
    with_mixed_fabric(async |system| {
        let refusal =
            json!({"kind": "reject-edit", "vlan": 502, "at": "commit", "message": "no room for it"});
        system.fault("spine1", refusal).await;
        let network = [501, 502, 503].map(service_between_nodes).concat();
        system.apply(&network).await;
        becomes(system, 502, (Phase::Error, &["spine1", "no room for it"])).await;
        for vid in [501, 503] {
            becomes(system, vid, Phase::Ready).await;
            system.assert_vlan_on(vid, &ports()).await;
        }
        assert!(system.ports_of(502).await.is_empty(), "VLAN 502 is on no switch");
        // The switch accepts the change again.
        system.fault("spine1", json!({"kind": "clear"})).await;
        becomes(system, 502, Phase::Ready).await;
        system.assert_vlan_on(502, &ports()).await;
        system.delete_with_vlans(&network, 501..=503).await;
    });
}

#[test]
fn unreachable_spine_blocks_no_other_switch_and_catches_up() {
    with_mixed_fabric(async |system| {
        system.fault("spine1", json!({"kind": "unreachable"})).await;
        system
            .until_one("spine1", "not reachable", |device: &FabricDevice| {
                condition(device, "Reachable").is_some_and(|(status, _)| status == "False")
            })
            .await;
        let network = service_between_nodes(510);
        system.apply(&network).await;
        becomes(system, 510, (Phase::Pending, &["spine1"])).await;
        for switch in ["leaf1", "leaf2", "spine2"] {
            until_vlan_presence(system, switch, 510, true).await;
            system.until_confirmed(switch).await;
        }
        assert!(!system.view("spine1").await.vlans.contains_key(&510));
        system.fault("spine1", json!({"kind": "clear"})).await;
        becomes(system, 510, Phase::Ready).await;
        system.assert_vlan_on(510, &ports()).await;
        system.delete_with_vlans(&network, [510]).await;
    });
}

#[test]
fn switch_lost_before_confirmation_rolls_back_the_others() {
    with_mixed_fabric(async |system| {
        // A slow switch keeps the confirmed commits of the others pending.
        system.fault("spine1", json!({"kind": "slow", "ms": 700})).await;
        let network = service_between_nodes(520);
        system.apply(&network).await;
        for switch in ["leaf1", "leaf2"] {
            until_vlan_presence(system, switch, 520, true).await;
            assert!(system.is_pending(switch).await, "{switch} holds the change");
        }
        system.fault("leaf2", json!({"kind": "unreachable"})).await;
        until_vlan_presence(system, "leaf1", 520, false).await;
        system.fault("spine1", json!({"kind": "clear"})).await;
        becomes(system, 520, (Phase::Pending, &["leaf2"])).await;
        system.fault("leaf2", json!({"kind": "clear"})).await;
        becomes(system, 520, Phase::Ready).await;
        system.assert_vlan_on(520, &ports()).await;
        for (switch, _) in SWITCHES {
            system.until_confirmed(switch).await;
        }
        system.delete_with_vlans(&network, [520]).await;
    });
}

/// A commit that confirms without a persist-id also succeeds after the switch rolled back.
#[test]
fn switch_that_rolled_back_while_held_gets_the_vlan_before_ready() {
    let mut topology = Topology::leaf_spine_of(2, 1, 2, &["openconfig", "openconfig", "junos"]);
    let capabilities = &mut topology.switches[0].capabilities;
    capabilities.confirmed_commit = ConfirmedCommit::V1_0;
    // Nothing but the read after the confirmation shows the rollback.
    (capabilities.notifications, capabilities.yang_push) = (false, false);
    with_own_sandbox(
        |options| options.topology = topology,
        async |system| {
            create_namespace_and_point(system, "mix", &["node1", "node2"]).await;
            system
                .until_one("leaf1", "its rollback", |device: &FabricDevice| {
                    let status = device.status.as_ref();
                    status.and_then(|status| status.rollback.as_deref()) == Some("session")
                })
                .await;
            // The switch rolls back by itself while another one still works on its part.
            system.fault("leaf1", json!({"kind": "confirm-timeout", "ms": 1500})).await;
            let slow = json!({"kind": "slow", "operation": "edit-config", "ms": 6000, "times": 1});
            system.fault("spine1", slow).await;
            let network = service_between_nodes(521);
            system.apply(&network).await;
            until_vlan_presence(system, "leaf1", 521, true).await;
            until_vlan_presence(system, "leaf1", 521, false).await;
            system.fault("leaf1", json!({"kind": "clear"})).await;
            becomes(system, 521, Phase::Ready).await;
            let leaf = system.view("leaf1").await;
            assert!(leaf.vlans.contains_key(&521), "ready without the VLAN");
            assert!(leaf.ports["Ethernet1"].vlans.contains(521));
            system.until_confirmed("leaf1").await;
            system.delete_with_vlans(&network, [521]).await;
        },
    );
}

#[test]
fn pending_commits_converge_after_a_driver_crash() {
    with_mixed_fabric(async |system| {
        system.fault("spine1", json!({"kind": "slow", "ms": 700})).await;
        let network = service_between_nodes(530);
        system.apply(&network).await;
        for switch in ["leaf1", "leaf2"] {
            until_vlan_presence(system, switch, 530, true).await;
            assert!(system.is_pending(switch).await, "{switch} holds the change");
        }
        system.sandbox.kill_child("driver-netconf").await.expect("a child to kill");
        system.fault("spine1", json!({"kind": "clear"})).await;
        system.sandbox.start_child("driver-netconf").await.expect("the child again");
        becomes(system, 530, Phase::Ready).await;
        system.assert_vlan_on(530, &ports()).await;
        for (switch, _) in SWITCHES {
            system.until_confirmed(switch).await;
        }
        system.delete_with_vlans(&network, [530]).await;
    });
}

#[test]
fn foreign_vlan_is_adopted_and_drift_is_reported_or_repaired() {
    with_mixed_fabric(async |system| {
        let define = HandEdit { define_vlans: [(540, "cameras".to_owned())].into(), ..HandEdit::default() };
        system.edit_manually("spine2", &define).await;
        let network = [540, 541].map(service_between_nodes).concat();
        system.apply(&network).await;
        let refused = (Phase::Error, &["spine2", "cameras", "not ours"]);
        becomes(system, 540, refused).await;
        becomes(system, 541, Phase::Ready).await;
        for switch in ["leaf1", "leaf2", "spine1"] {
            assert!(!system.view(switch).await.vlans.contains_key(&540), "VLAN 540 on {switch}");
        }
        let adopted = system.eno(&["adopt", "spine2", "540"], "").await;
        assert!(adopted.status.success(), "{adopted:?}");
        becomes(system, 540, Phase::Ready).await;
        system.assert_vlan_on(540, &ports()).await;

        let away = HandEdit {
            port: Some("xe-0/0/49".to_owned()),
            remove_vlans: [541].into_iter().collect(),
            ..HandEdit::default()
        };
        system.patch("FabricDevice", "leaf2", json!({"spec": {"Drift": "Report"}})).await;
        system.becomes::<FabricDevice>("leaf2", Phase::Ready).await;
        system.edit_manually("leaf2", &away).await;
        system
            .until_one("leaf2", "drift", |device: &FabricDevice| {
                condition(device, "Drift").is_some_and(|(status, message)| {
                    status == "True" && message.contains("541") && message.contains("xe-0/0/49")
                })
            })
            .await;
        assert!(!system.view("leaf2").await.ports["xe-0/0/49"].vlans.contains(541), "it is left as it is");
        let reports_drift = |event: &Event| {
            let about = event.regarding.as_ref().and_then(|object| object.name.as_deref());
            let note = event.note.as_deref().unwrap_or_default();
            about == Some("leaf2") && note.contains("541") && note.contains("xe-0/0/49")
        };
        let drift = watcher::Config::default().fields("reason=Drift");
        let what = "an Event with the difference";
        system.until::<Event>(system.all(), drift, what, |all| all.values().any(reports_drift)).await;
        system.patch("FabricDevice", "leaf2", json!({"spec": {"Drift": "Repair"}})).await;
        system.until_view("leaf2", "repaired", |view| view.ports["xe-0/0/49"].vlans.contains(541)).await;
        system
            .until_one("leaf2", "no drift", |device: &FabricDevice| {
                condition(device, "Drift").is_some_and(|(status, _)| status == "False")
            })
            .await;
        becomes(system, 541, Phase::Ready).await;
        system.delete_with_vlans(&network, [540, 541]).await;
    });
}
