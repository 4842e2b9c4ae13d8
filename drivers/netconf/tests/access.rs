//! Host keys and logins.

use std::sync::Arc;

use eno_sbi::Driver;
use eno_schemas::{Device, FabricDesired};
use eno_simulator::HostKeyKind;
use russh::keys::ssh_key::LineEnding;
use russh::keys::{Algorithm, EcdsaCurve, HashAlg, PrivateKey, PublicKey};

use crate::common::{Bench, applied_vlans, command, failed};

#[tokio::test]
async fn unknown_or_wrong_host_key_receives_no_credential() {
    let bench = Bench::start(|_| ()).await;
    let leaf = bench.switch("leaf1");
    let shown = bench.info("leaf1").host_key.clone();
    let other = bench.info("leaf2").host_key.clone();
    let print =
        |line: &str| PublicKey::from_openssh(line).expect("a key").fingerprint(HashAlg::Sha256).to_string();

    let mut desired = bench.desired("leaf1", "100", &["Ethernet1"]);
    desired.device.host_key = None;
    bench.list_device("leaf1", &desired.device);
    let refused = bench.reconcile("leaf1", desired.clone()).await;
    let (reason, retryable, unreachable) = failed(&refused);
    let plain = shown.split_whitespace().take(2).collect::<Vec<_>>().join(" ");
    assert!(
        reason.contains(&print(&shown)) && reason.contains(&plain) && reason.contains("HostKey"),
        "{reason}"
    );
    assert!(!retryable && !unreachable);
    assert_eq!(refused.device.unwrap().host_key_fingerprint, Some(print(&shown).into()));

    desired.device.host_key = Some(other.clone());
    bench.list_device("leaf1", &desired.device);
    let refused = bench.reconcile("leaf1", desired.clone()).await;
    let (reason, retryable, _) = failed(&refused);
    assert!(reason.contains(&print(&shown)) && reason.contains(&print(&other)), "{reason}");
    assert!(!retryable);

    desired.device.host_key = Some("ssh-ed25519 rubbish".into());
    bench.list_device("leaf1", &desired.device);
    let refused = bench.reconcile("leaf1", desired.clone()).await;
    assert!(failed(&refused).0.contains("not an OpenSSH public key line"), "{refused:?}");
    let stats = leaf.stats();
    assert_eq!((stats.auth_failures, stats.sessions_opened), (0, 0));

    desired.device.host_key = Some(format!("{plain} a comment"));
    bench.list_device("leaf1", &desired.device);
    assert_eq!(applied_vlans(&bench.reconcile("leaf1", desired).await).0, "100");
}

/// How a forged command for leaf1 may have the device reached.
fn forged_devices(bench: &Bench) -> [Device; 5] {
    let (own, other) = (bench.device("leaf1"), bench.device("leaf2"));
    [
        Device { host_key: None, ..own.clone() },
        Device { credential: own.credential.clone(), ..other.clone() },
        Device { address: other.address.clone(), ..own.clone() },
        Device { host_key: other.host_key.clone(), ..own.clone() },
        Device { credential: other.credential.clone(), ..own },
    ]
}

#[tokio::test]
async fn forged_command_or_preview_causes_no_login() {
    let mut bench = Bench::start(|_| ()).await;
    let logins = |bench: &Bench| {
        ["leaf1", "leaf2"].map(|name| {
            let stats = bench.switch(name).stats();
            (stats.auth_failures, stats.sessions_opened)
        })
    };
    let desired =
        |bench: &Bench, device| FabricDesired { device, ..bench.desired("leaf1", "200", &["Ethernet1"]) };
    bench.apply("leaf1", "100", &["Ethernet1"]).await;
    let before = logins(&bench);
    for device in forged_devices(&bench) {
        let forged = command("leaf1", desired(&bench, device.clone()));
        let preview = bench.driver.preview(Arc::new(forged)).await.expect("a preview");
        let failure = preview.failure.expect("a failure");
        assert!(failure.reason.starts_with("no login: ") && failure.retryable, "{failure:?} {device:?}");
        assert_eq!(logins(&bench), before, "{device:?}");
    }
    // The previews left the session as it is.
    assert_eq!(applied_vlans(&bench.apply("leaf1", "101", &["Ethernet1"]).await).0, "101");
    assert_eq!(logins(&bench), before);

    for _ in 0..2 {
        for device in forged_devices(&bench) {
            let reconciled = bench.reconcile("leaf1", desired(&bench, device.clone())).await;
            let (reason, retryable, unreachable) = failed(&reconciled);
            assert!(reason.starts_with("no login: "), "{reason} {device:?}");
            assert!(retryable && !unreachable);
            assert_eq!(logins(&bench), before, "{device:?}");
        }
        bench.restart_driver();
    }
    assert_eq!(applied_vlans(&bench.apply("leaf1", "100", &["Ethernet1"]).await).0, "100");
}

#[tokio::test]
async fn refused_login_names_credential_and_recovers() {
    let bench = Bench::start(|_| ()).await;
    let password = bench.credentials.path().join("leaf1/password");
    let right = std::fs::read_to_string(&password).unwrap();
    std::fs::write(&password, "wrong-pa55word").unwrap();
    let desired = bench.desired("leaf1", "100", &["Ethernet1"]);
    let refused = bench.reconcile("leaf1", desired.clone()).await;
    let (reason, retryable, unreachable) = failed(&refused);
    assert!(reason.contains("credential \"leaf1\"") && !reason.contains("wrong-pa55word"), "{reason}");
    assert!(retryable && !unreachable);
    std::fs::write(&password, right).unwrap();
    assert_eq!(applied_vlans(&bench.reconcile("leaf1", desired).await).0, "100");
}

#[tokio::test]
async fn every_host_key_type_can_be_pinned() {
    let bench = Bench::start(|topology| {
        topology.switches[0].host_key = HostKeyKind::EcdsaP256;
        topology.switches[1].host_key = HostKeyKind::Rsa;
    })
    .await;
    let mut kinds = std::collections::BTreeSet::new();
    for name in bench.fabric.info().iter().map(|info| info.name.clone()) {
        let reconciled = bench.apply(&name, "100", &["Ethernet1"]).await;
        assert_eq!(applied_vlans(&reconciled).0, "100", "{name} {}", bench.info(&name).host_key);
        kinds.insert(bench.info(&name).host_key.split(' ').next().unwrap_or_default().to_owned());
    }
    let kinds: Vec<_> = kinds.iter().map(String::as_str).collect();
    assert_eq!(kinds, ["ecdsa-sha2-nistp256", "ssh-ed25519", "ssh-rsa"]);
}

#[tokio::test]
async fn private_key_authenticates() {
    let key = |algorithm| PrivateKey::random(&mut rand::rng(), algorithm).expect("a key");
    let keys = [key(Algorithm::Ed25519), key(Algorithm::Ecdsa { curve: EcdsaCurve::NistP384 })];
    let bench = Bench::start(|topology| {
        for (switch, key) in topology.switches.iter_mut().zip(&keys) {
            switch.authorized_keys = vec![key.public_key().to_openssh().expect("a line")];
        }
    })
    .await;
    let names: Vec<String> = bench.fabric.info().iter().map(|info| info.name.clone()).collect();
    for (name, key) in names.iter().zip(&keys) {
        let directory = bench.credentials.path().join(name);
        std::fs::remove_file(directory.join("password")).unwrap();
        let desired = bench.desired(name, "100", &["Ethernet1"]);

        std::fs::write(
            directory.join("ssh-privatekey"),
            "-----BEGIN RUBBISH-----\nAAAA\n-----END RUBBISH-----\n",
        )
        .unwrap();
        let refused = bench.reconcile(name, desired.clone()).await;
        assert!(failed(&refused).0.contains("ssh-privatekey of credential"), "{refused:?}");

        let pem = key.to_openssh(LineEnding::LF).unwrap();
        std::fs::write(directory.join("ssh-privatekey"), pem.as_bytes()).unwrap();
        assert_eq!(applied_vlans(&bench.reconcile(name, desired).await).0, "100", "{}", key.algorithm());
    }
}

#[tokio::test]
async fn unknown_dialect_is_reported() {
    let bench = Bench::start(|_| ()).await;
    let mut desired = bench.desired("leaf1", "100", &["Ethernet1"]);
    desired.device.dialect = Some("klingon".into());
    let refused = bench.reconcile("leaf1", desired).await;
    let (reason, retryable, _) = failed(&refused);
    assert!(reason.contains("klingon") && reason.contains("openconfig"), "{reason}");
    assert!(!retryable);
}

#[tokio::test]
async fn refused_subsystem_is_reported_at_once() {
    let bench = Bench::start(|_| ()).await;
    bench.switch("leaf1").inject(eno_simulator::Fault::NoSubsystem {});
    // The limit for a hello is 10 s.
    let refused =
        tokio::time::timeout(std::time::Duration::from_secs(5), bench.apply("leaf1", "100", &["Ethernet1"]));
    let refused = refused.await.expect("it does not wait for a hello");
    let (reason, retryable, unreachable) = failed(&refused);
    assert!(reason.contains("refuses the subsystem netconf"), "{reason}");
    assert!(retryable && !unreachable);
}
