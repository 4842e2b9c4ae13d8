//! `eno check` on a sandbox in which one part after the other is broken. The operator runs there without pods, so the
//! checks of pods always fail.

use eno_control_plane::NatsUser;
use eno_nbi_crds::{FabricDevice, Phase};
use eno_tests::{System, object, until, with_new_sandbox, with_shared_sandbox};
use serde_json::{Value, json};

/// A valid host key that belongs to no switch.
const OTHER_KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJMXq/W7J9mWGj3go/22VwcynD1DYjx5KTAJBhpQg0fH";

/// The outcome of the first row of this name with these words in its subject, and all words of the row.
fn row(report: &Value, name: &str, subject: &str) -> (String, String) {
    let rows = report["checks"].as_array().expect("a list");
    let is_wanted = |row: &&Value| {
        row["name"] == name && row["subject"].as_str().is_some_and(|text| text.contains(subject))
    };
    let row = rows.iter().find(is_wanted).unwrap_or_else(|| panic!("no {name} {subject} in {report:#}"));
    (row["outcome"].as_str().expect("an outcome").to_owned(), row.to_string())
}

/// Runs `eno check`. Its exit code is 1, since the operator has no pods.
async fn check(system: &System) -> Value {
    system.eno_json(&["check"], "", 1).await
}

/// Waits until the row has this outcome and these words.
async fn until_row(system: &System, name: &str, subject: &str, outcome: &str, words: &[&str]) {
    until(&format!("{name} {subject} is {outcome}"), async || {
        let (found, text) = row(&check(system).await, name, subject);
        found == outcome && words.iter().all(|word| text.contains(word))
    })
    .await;
}

#[test]
fn working_sandbox_passes_the_checks_of_what_it_has() {
    with_shared_sandbox(async |system| {
        let report = check(system).await;
        for (name, subject) in [
            ("api-server", "https://"),
            ("kubernetes-version", "v1."),
            ("kubernetes-apis", ""),
            ("nad-definition", "v1"),
            ("pod-security", "eno-system"),
            ("api-server-clock", ""),
            ("definitions", "16"),
            ("operator-policies", ""),
            ("leader", "leads"),
            ("nats-login", "version"),
            ("streams", "9 streams on 1 server"),
            ("stream-space", ""),
            ("drivers", "driver nad"),
            ("drivers", "driver netconf"),
        ] {
            assert_eq!(row(&report, name, subject).0, "ok", "{name} {subject}: {report:#}");
        }
        for name in ["nodes", "agents", "namespaces"] {
            assert_eq!(row(&report, name, "").0, "failed", "{name}: {report:#}");
        }
        assert_eq!(row(&report, "workload", "Deployment eno-system/eno-engine").0, "failed");

        let text = system.eno(&["check"], "").await;
        let text = String::from_utf8(text.stdout).expect("UTF-8");
        assert!(text.contains("see docs/src/how-to/check.md#workload"), "{text}");
        assert!(!text.contains('\u{1b}'), "no colours without a terminal: {text}");
    });
}

#[test]
fn checks_before_an_installation_report_what_is_missing() {
    with_shared_sandbox(async |system| {
        let report = system.eno_json(&["check", "--pre"], "", 1).await;
        assert_eq!(row(&report, "permissions", "").0, "ok", "{report:#}");
        let (outcome, text) = row(&report, "storage-class", "");
        assert!(outcome == "failed" && text.contains("no default StorageClass"), "{text}");
        let (outcome, text) = row(&report, "earlier-installation", "");
        assert!(outcome == "warning" && text.contains("half-finished"), "{text}");
        assert_eq!(row(&report, "admission-policies", "").0, "ok", "{report:#}");
    });
}

#[test]
fn checks_without_rights_are_skipped_and_say_which_right() {
    with_shared_sandbox(async |system| {
        let dir = tempfile::tempdir().expect("a directory");
        let kubeconfig = system.kubeconfig_of(dir.path(), "nobody", "default").display().to_string();
        let report = system.eno_json(&["check", "--kubeconfig", &kubeconfig], "", 0).await;
        for name in ["definitions", "workload", "leader", "certificates", "nodes", "devices-reachable"] {
            let (outcome, text) = row(&report, name, "");
            assert!(outcome == "skipped" && text.contains("rights"), "{text}");
        }
        let pre = system.eno_json(&["check", "--pre", "--kubeconfig", &kubeconfig], "", 1).await;
        let (outcome, text) = row(&pre, "permissions", "");
        assert!(outcome == "failed" && text.contains("you may not "), "{text}");
    });
}

fn device(name: &str, address: &str, host_key: &str) -> String {
    let spec =
        format!("Address: '{address}', Credentials: {{SecretName: fabric-island}}, HostKey: '{host_key}'");
    object("FabricDevice", &format!("name: {name}"), &spec)
}

/// Devices that don't answer, show another host key or have no driver, each in its own row.
async fn broken_devices(system: &System) {
    let island = system.sandbox.switch("island").expect("the switch").netconf.to_string();
    let away = device("away", "127.0.0.1:1", OTHER_KEY);
    let wrong_key = device("wrong-key", &island, OTHER_KEY);
    let no_driver = object("FabricDevice", "name: nodriver", "Address: '192.0.2.1', Driver: nosuch");
    system.apply(&[away.as_str(), &wrong_key, &no_driver].concat()).await;
    system.becomes::<FabricDevice>("away", (Phase::Pending, &["can't be reached"])).await;
    system.becomes::<FabricDevice>("wrong-key", (Phase::Error, &["host key"])).await;
    system.becomes::<FabricDevice>("nodriver", (Phase::Pending, &["is not running"])).await;
    let report = check(system).await;
    for (name, subject, expected, words) in [
        ("devices-reachable", "", "failed", "away: 127.0.0.1:1"),
        ("host-keys", "", "failed", "wrong-key"),
        ("drivers", "driver nosuch", "failed", "nodriver"),
        ("drivers", "driver netconf", "ok", ""),
        ("object-errors", "", "warning", "FabricDevice/wrong-key"),
    ] {
        let (outcome, text) = row(&report, name, subject);
        assert!(outcome == expected && text.contains(words), "{name}: {text}");
    }
    let forget = json!({"metadata": {"annotations": {(eno_nbi_crds::FORGET_ANNOTATION): "true"}}});
    for name in ["away", "wrong-key", "nodriver"] {
        system.patch("FabricDevice", name, forget.clone()).await;
    }
    system.delete(&[away, wrong_key, no_driver].concat()).await;
    until_row(system, "host-keys", "", "ok", &[]).await;
}

#[test]
fn each_broken_part_fails_its_check_and_passes_again() {
    with_new_sandbox(async |system| {
        broken_devices(system).await;

        system.sandbox.stop_child("driver-netconf").await.expect("a driver to stop");
        until_row(system, "drivers", "driver netconf", "failed", &["leaf1", "is not running"]).await;
        system.sandbox.start_child("driver-netconf").await.expect("the driver again");
        until_row(system, "drivers", "driver netconf", "ok", &[]).await;

        // A killed engine does not release its Lease. The engine creates missing streams.
        system.sandbox.kill_child("engine").await.expect("an engine to kill");
        let nats = system.nats(NatsUser::Admin).await;
        nats.delete_stream("ENO_HISTORY").await.expect("a stream to delete");
        until_row(system, "streams", "", "failed", &["missing: ENO_HISTORY"]).await;
        until_row(system, "leader", "", "failed", &["renewed the Lease", "logs deployment/eno-engine"]).await;
        system.sandbox.start_child("engine").await.expect("the engine again");
        until_row(system, "leader", "", "ok", &[]).await;
        until_row(system, "streams", "", "ok", &[]).await;

        let nats = system.sandbox.kill_part("nats-server").await.expect("NATS to kill");
        until_row(system, "nats-login", "", "failed", &["--nats-credentials"]).await;
        system.sandbox.start_part(nats).await.expect("NATS again");
        until_row(system, "nats-login", "", "ok", &[]).await;
    });
}
