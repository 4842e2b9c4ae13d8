//! Switches that can't be managed: each FabricDevice's status names the reason.

use eno_nbi_crds::{FabricDevice, L2Service, Phase};
use eno_tests::{System, object, service, with_shared_sandbox};
use serde_json::json;

/// A valid host key that belongs to no switch.
const OTHER_KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJMXq/W7J9mWGj3go/22VwcynD1DYjx5KTAJBhpQg0fH";

fn device(name: &str, address: &str, more: &str) -> String {
    object("FabricDevice", &format!("name: {name}"), &format!("Address: '{address}'{more}"))
}

/// Applies a device, waits for the expected status, and deletes it without cleaning the switch up.
async fn apply_and_forget(
    system: &System,
    name: &str,
    yaml: &str,
    phase: Phase,
    message_parts: &[&str],
) -> FabricDevice {
    system.apply(yaml).await;
    let found = system.becomes::<FabricDevice>(name, (phase, message_parts)).await;
    let forget = json!({"metadata": {"annotations": {(eno_nbi_crds::FORGET_ANNOTATION): "true"}}});
    system.patch("FabricDevice", name, forget).await;
    system.delete(yaml).await;
    found
}

#[test]
fn device_with_wrong_or_unpinned_host_key_is_in_error() {
    with_shared_sandbox(async |system| {
        let island = system.sandbox.switch("island").expect("the switch");
        let address = island.netconf.to_string();
        let login = ", Credentials: {SecretName: fabric-island}";
        let wrong = device("wrong-key", &address, &format!("{login}, HostKey: '{OTHER_KEY}'"));
        apply_and_forget(system, "wrong-key", &wrong, Phase::Error, &["host key", "HostKey", "SHA256:"])
            .await;
        let none = device("no-key", &address, login);
        let found = apply_and_forget(
            system,
            "no-key",
            &none,
            Phase::Error,
            &["SHA256:", "accept it", "HostKey", "ssh-ed25519"],
        )
        .await;
        let fingerprint = found.status.and_then(|status| status.host_key_fingerprint);
        assert!(fingerprint.is_some_and(|text| text.starts_with("SHA256:")));
    });
}

#[test]
fn device_that_refuses_the_login_is_in_error() {
    with_shared_sandbox(async |system| {
        let island = system.sandbox.switch("island").expect("the switch");
        let secret = "apiVersion: v1\nkind: Secret\nmetadata: {name: wrong-password, namespace: eno-devices}\nstringData: \
                      {username: admin, password: not-this-one}";
        system.apply(secret).await;
        let key = format!(", HostKey: '{}'", island.host_key);
        let address = island.netconf.to_string();
        let with_secret = |secret: &str| format!("{key}, Credentials: {{SecretName: {secret}}}");
        let wrong = device("wrong-password", &address, &with_secret("wrong-password"));
        let found = apply_and_forget(
            system,
            "wrong-password",
            &wrong,
            Phase::Error,
            &["refuses the login", "wrong-password"],
        )
        .await;
        let message = found.status.and_then(|status| status.message).unwrap_or_default();
        assert!(!message.contains("not-this-one"), "a secret in {message:?}");
        let missing = device("no-secret", &address, &with_secret("nosuch"));
        apply_and_forget(system, "no-secret", &missing, Phase::Error, &["nosuch"]).await;
        system.delete(secret).await;
    });
}

#[test]
fn unreachable_device_and_missing_driver_leave_device_pending() {
    with_shared_sandbox(async |system| {
        let more = format!(", HostKey: '{OTHER_KEY}', Credentials: {{SecretName: fabric-island}}");
        let away = device("away", "127.0.0.1:1", &more);
        apply_and_forget(system, "away", &away, Phase::Pending, &["127.0.0.1:1", "can't be reached"]).await;
        let nodriver = device("nodriver", "192.0.2.1", ", Driver: nosuch");
        apply_and_forget(system, "nodriver", &nodriver, Phase::Pending, &["driver nosuch is not running"])
            .await;
    });
}

#[test]
fn device_without_the_dialect_is_in_error() {
    with_shared_sandbox(async |system| {
        let island = system.sandbox.switch("island").expect("the switch");
        let more = format!(
            ", Dialect: klingon, HostKey: '{}', Credentials: {{SecretName: fabric-island}}",
            island.host_key
        );
        let foreign = device("klingon", &island.netconf.to_string(), &more);
        apply_and_forget(system, "klingon", &foreign, Phase::Error, &["klingon", "openconfig"]).await;
    });
}

#[test]
fn unknown_device_port_fails_only_its_service() {
    with_shared_sandbox(async |system| {
        let address = system.sandbox.switch("island").expect("the switch").netconf.to_string();
        let network = object("PhysicalNetwork", "name: noport", "SegmentationIDs: ['1-4094']");
        system.apply(&network).await;
        // These ports extend the sandbox's own FabricDevice under another field manager.
        let port = device("island", &address, ", Ports: [{Name: Ethernet999, PhysicalNW: noport}]");
        system.apply(&port).await;
        let bad = service("noport-a", 440, "PhysicalNW: [noport]");
        system.apply(&bad).await;
        let refused = (Phase::Error, &["FabricDevice island", "VLAN 440", "Ethernet999"]);
        system.becomes::<L2Service>("noport-a", refused).await;
        let good = service("noport-b", 441, "PhysicalNW: [island-gw]");
        system.apply_until_ready::<L2Service>(&good, "noport-b").await;
        system.delete(&[bad, good].concat()).await;
        system.apply_until_ready::<FabricDevice>(&device("island", &address, ""), "island").await;
        system.delete(&network).await;
    });
}
