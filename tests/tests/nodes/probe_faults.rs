//! Faults of the fabric that no configuration shows, and what probes tell of them.

use eno_nbi_crds::{
    Condition, EnoResource, FabricDevice, L2ServiceAttachment, ProbeOutcome, VERIFY_ANNOTATION,
    VerificationResult,
};
use eno_simulator::HandEdit;
use eno_tests::System;
use serde_json::{Value, json};

use crate::nodes::probes::{NAME, assert_degraded, both, condition, network};

/// The networks of these tests, with their VLANs.
const TAKEN: (&str, u16) = ("taken", 307);
const NATIVE: (&str, u16) = ("native", 308);
/// The driver of the switches.
const DRIVER: &str = "driver-netconf";

/// The networks.
pub fn networks() -> String {
    [TAKEN, NATIVE].map(|(name, vid)| network(name, vid, NAME, None)).concat()
}

/// Makes the networks, and waits until their packets pass.
pub async fn networks_are_verified(system: &System) {
    system.apply(&networks()).await;
    for (name, _) in [TAKEN, NATIVE] {
        both(system, name, "True", &[]).await;
    }
}

/// Asks for new probes of an attachment, with further fields of the request.
async fn ask(system: &System, name: &str, nonce: &str, more: Value) {
    let mut request = json!({ "nonce": nonce });
    if let (Some(request), Value::Object(more)) = (request.as_object_mut(), more) {
        request.extend(more);
    }
    let annotations = json!({ VERIFY_ANNOTATION: request.to_string() });
    let patch = json!({ "metadata": { "annotations": annotations } });
    system.patch("L2ServiceAttachment", &format!("{NAME}/{name}"), patch).await;
}

/// Asks for new probes of an attachment, and waits for the answer.
async fn answer(system: &System, name: &str, nonce: &str, more: Value) -> Vec<VerificationResult> {
    ask(system, name, nonce, more).await;
    results(system, name, nonce).await
}

/// The answer to a request for new probes of an attachment.
async fn results(system: &System, name: &str, nonce: &str) -> Vec<VerificationResult> {
    let is_answered = |object: &L2ServiceAttachment| {
        let answer = object.status.as_ref().and_then(|status| status.verification.as_ref());
        answer.is_some_and(|answer| answer.nonce == nonce)
    };
    let what = format!("the answer {nonce}");
    let object = system.until_one(&format!("{NAME}/{name}"), &what, is_answered).await;
    object.status.and_then(|status| status.verification).map(|answer| answer.results).unwrap_or_default()
}

/// How many results have an outcome.
fn count(results: &[VerificationResult], outcome: ProbeOutcome) -> usize {
    results.iter().filter(|result| result.outcome == outcome).count()
}

/// Somebody takes a VLAN off a port by hand while nobody repairs it. The next probes name the port. Once the driver runs, it
/// puts the VLAN back.
pub async fn vlan_taken_by_hand_is_found(system: &System) {
    let (name, vid) = TAKEN;
    system.sandbox.stop_child(DRIVER).await.expect("a driver to stop");
    let port = Some("Ethernet1".to_owned());
    let edit = HandEdit { port, remove_vlans: [vid].into_iter().collect(), ..HandEdit::default() };
    system.edit_manually("leaf1", &edit).await;
    let found = answer(system, name, "taken", json!({})).await;
    assert!(count(&found, ProbeOutcome::Lost) > 0, "{found:?}");
    assert_degraded(&both(system, name, "False", &["leaf1 Ethernet1 to node1 eth1"]).await);
    system.sandbox.start_child(DRIVER).await.expect("the driver again");
    both(system, name, "True", &[]).await;
    assert!(system.view("leaf1").await.ports["Ethernet1"].vlans.contains(vid));
}

/// A port sends a VLAN untagged that its configuration has tagged. The next probes name the port.
pub async fn wrong_native_vlan_is_found(system: &System) {
    let (name, vid) = NATIVE;
    system.fault("leaf2", json!({ "kind": "native-vlan", "port": "Ethernet1", "vlan": vid })).await;
    let found = answer(system, name, "native", json!({})).await;
    assert!(count(&found, ProbeOutcome::Lost) > 0, "{found:?}");
    assert_degraded(&both(system, name, "False", &["leaf2 Ethernet1 to node3 eth1"]).await);
    system.clear_faults("leaf2").await;
    both(system, name, "True", &[]).await;
}

/// Two nodes are in each other's ports. Packets pass, and the next request for probes names both.
pub async fn swapped_cables_are_named(system: &System) {
    let (name, _) = TAKEN;
    system.fault("leaf1", json!({ "kind": "swap-cables", "ports": ["Ethernet1", "Ethernet2"] })).await;
    let found = answer(system, name, "swapped", json!({})).await;
    assert_eq!(count(&found, ProbeOutcome::Passed), found.len(), "{found:?}");
    let miswired = |object: &FabricDevice| miswired(object).is_some_and(|found| found.status == "True");
    let device = system.until_one::<FabricDevice>("leaf1", "Miswired", miswired).await;
    let message = self::miswired(&device).map(|found| found.message.clone()).unwrap_or_default();
    for node in [
        "node1 eth1 is in Ethernet2, and Ports says Ethernet1",
        "node2 eth1 is in Ethernet1, and Ports says Ethernet2",
    ] {
        assert!(message.contains(node), "{message}");
    }
    both(system, name, "True", &[]).await;

    system.clear_faults("leaf1").await;
    answer(system, name, "put-back", json!({})).await;
    let right = |object: &FabricDevice| self::miswired(object).is_none_or(|found| found.status == "False");
    system.until_one::<FabricDevice>("leaf1", "no Miswired", right).await;
}

fn miswired(device: &impl EnoResource) -> Option<&Condition> {
    condition(device, "Miswired")
}

/// A port lets small packets pass and no large ones. Small probes pass, and those of full size name the port.
pub async fn small_mtu_is_found(system: &System) {
    let (name, _) = NATIVE;
    let found = answer(system, name, "large", json!({ "mtu": true })).await;
    assert_eq!(count(&found, ProbeOutcome::Passed), found.len(), "{found:?}");
    system.fault("leaf2", json!({ "kind": "small-mtu", "port": "Ethernet1", "bytes": 1400 })).await;
    let found = answer(system, name, "small", json!({})).await;
    assert_eq!(count(&found, ProbeOutcome::Passed), found.len(), "{found:?}");
    let found = answer(system, name, "too-large", json!({ "mtu": true })).await;
    assert!(count(&found, ProbeOutcome::TooBig) > 0, "{found:?}");
    let object = both(system, name, "False", &["leaf2 Ethernet1 to node3 eth1", "1500"]).await;
    assert_eq!(
        condition(&object, "Verified").map(|verified| &*verified.reason),
        Some("TooBig"),
        "{object:?}"
    );
    assert_degraded(&object);
    system.clear_faults("leaf2").await;
    both(system, name, "True", &[]).await;
}

/// A machine behind the fabric joins two VLANs. Only the answer to a request says so.
pub async fn joined_vlans_are_found(system: &System) {
    let ((one, one_vid), (other, other_vid)) = (TAKEN, NATIVE);
    let across = async |nonce: &str| {
        let from = |name: &str| json!({ "isolationFrom": format!("{NAME}/{name}") });
        ask(system, one, nonce, from(other)).await;
        ask(system, other, nonce, from(one)).await;
        let mut found = results(system, one, nonce).await;
        found.extend(results(system, other, nonce).await);
        found.retain(|result| result.other.is_some());
        found
    };
    let found = across("apart").await;
    let expected = [(one_vid, other_vid), (other_vid, one_vid)];
    for (vlan, other) in expected {
        assert!(found.iter().any(|one| (one.vlan, one.other) == (vlan, Some(other))), "{found:?}");
    }
    assert_eq!(count(&found, ProbeOutcome::Isolated), found.len(), "{found:?}");
    for command in [
        "ip link add leak1 type veth peer name leak2",
        "ip link set leak1 up",
        "ip link set leak2 up",
        &format!("ovs-vsctl add-port gw leak1 tag={one_vid} -- add-port gw leak2 tag={other_vid}"),
    ] {
        system.on_machine("dc-gw", command).await;
    }
    let found = across("joined").await;
    assert_eq!(count(&found, ProbeOutcome::Leaking), found.len(), "{found:?}");
    for (name, _) in [TAKEN, NATIVE] {
        both(system, name, "True", &[]).await;
    }
    system.on_machine("dc-gw", "ip link set leak1 down").await;
    let found = across("apart-again").await;
    assert_eq!(count(&found, ProbeOutcome::Isolated), found.len(), "{found:?}");
}
