//! Switches that can't be managed: each says why on its FabricDevice.

use eno_nbi_crds::{FabricDevice, L2Service, Phase};
use eno_tests::{System, Wanted, shared};
use serde_json::json;

use crate::e2e::service;

/// A valid key that is no switch's.
const OTHER_KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJMXq/W7J9mWGj3go/22VwcynD1DYjx5KTAJBhpQg0fH";

fn device(name: &str, address: &str, more: &str) -> String {
    format!(
        "apiVersion: eno.k8s.io/v1alpha1\nkind: FabricDevice\nmetadata: {{name: {name}}}\nspec: {{Address: '{address}'{more}}}"
    )
}

/// Applies a device, sees what becomes of it, and lets it go without cleaning it up.
async fn tried(system: &System, name: &str, yaml: &str, phase: Phase, words: &[&str]) -> FabricDevice {
    system.apply(yaml).await;
    let found = system.becomes::<FabricDevice>(name, Wanted { phase, words }).await;
    let forget = json!({"metadata": {"annotations": {(eno_nbi_crds::FORGET_ANNOTATION): "true"}}});
    system.patch("FabricDevice", name, forget).await;
    system.delete(yaml).await;
    found
}

#[test]
fn a_device_that_shows_another_host_key_or_has_none_pinned() {
    shared(async |system| {
        let island = system.sandbox.switch("island").expect("the switch");
        let address = island.netconf.to_string();
        let login = ", Credentials: {SecretName: fabric-island}";
        let wrong = device("wrong-key", &address, &format!("{login}, HostKey: '{OTHER_KEY}'"));
        tried(system, "wrong-key", &wrong, Phase::Error, &["host key", "HostKey", "SHA256:"]).await;
        let none = device("no-key", &address, login);
        let found =
            tried(system, "no-key", &none, Phase::Error, &["SHA256:", "accept it", "HostKey", "ssh-ed25519"])
                .await;
        let fingerprint = found.status.and_then(|status| status.host_key_fingerprint);
        assert!(fingerprint.is_some_and(|text| text.starts_with("SHA256:")));
    });
}

#[test]
fn a_device_that_refuses_the_login() {
    shared(async |system| {
        let island = system.sandbox.switch("island").expect("the switch");
        let secret = "apiVersion: v1\nkind: Secret\nmetadata: {name: wrong-password, namespace: eno-devices}\nstringData: \
                      {username: admin, password: not-this-one}";
        system.apply(secret).await;
        let key = format!(", HostKey: '{}'", island.host_key);
        let address = island.netconf.to_string();
        let with = |secret: &str| format!("{key}, Credentials: {{SecretName: {secret}}}");
        let wrong = device("wrong-password", &address, &with("wrong-password"));
        let found =
            tried(system, "wrong-password", &wrong, Phase::Error, &["refuses the login", "wrong-password"])
                .await;
        let message = found.status.and_then(|status| status.message).unwrap_or_default();
        assert!(!message.contains("not-this-one"), "a secret in {message:?}");
        let missing = device("no-secret", &address, &with("nosuch"));
        tried(system, "no-secret", &missing, Phase::Error, &["nosuch"]).await;
        system.delete(secret).await;
    });
}

#[test]
fn a_device_that_does_not_answer_or_whose_driver_does_not_run() {
    shared(async |system| {
        let more = format!(", HostKey: '{OTHER_KEY}', Credentials: {{SecretName: fabric-island}}");
        let away = device("away", "127.0.0.1:1", &more);
        tried(system, "away", &away, Phase::Pending, &["127.0.0.1:1", "can't be reached"]).await;
        let nodriver = device("nodriver", "192.0.2.1", ", Driver: nosuch");
        tried(system, "nodriver", &nodriver, Phase::Pending, &["driver nosuch is not running"]).await;
    });
}

#[test]
fn a_device_that_does_not_speak_the_dialect() {
    shared(async |system| {
        let island = system.sandbox.switch("island").expect("the switch");
        let more = format!(
            ", Dialect: klingon, HostKey: '{}', Credentials: {{SecretName: fabric-island}}",
            island.host_key
        );
        let foreign = device("klingon", &island.netconf.to_string(), &more);
        tried(system, "klingon", &foreign, Phase::Error, &["klingon", "openconfig"]).await;
    });
}

#[test]
fn a_port_that_the_device_does_not_have() {
    shared(async |system| {
        let address = system.sandbox.switch("island").expect("the switch").netconf.to_string();
        let network = "{apiVersion: eno.k8s.io/v1alpha1, kind: PhysicalNetwork, metadata: {name: noport}, spec: \
                       {SegmentationIDs: ['1-4094']}}";
        system.apply(network).await;
        // Further ports of the sandbox's own FabricDevice, under another field manager.
        let port = device("island", &address, ", Ports: [{Name: Ethernet999, PhysicalNW: noport}]");
        system.apply(&port).await;
        let bad = service("noport-a", 440, "PhysicalNW: [noport]");
        system.apply(&bad).await;
        let words = &["FabricDevice island", "VLAN 440", "Ethernet999"][..];
        system.becomes::<L2Service>("noport-a", Wanted { phase: Phase::Error, words }).await;
        let good = service("noport-b", 441, "PhysicalNW: [island-gw]");
        system.apply(&good).await;
        system.becomes::<L2Service>("noport-b", Phase::Ready).await;
        system.delete(&[bad, good].concat()).await;
        system.apply(&device("island", &address, "")).await;
        system.becomes::<FabricDevice>("island", Phase::Ready).await;
        system.delete(network).await;
    });
}
