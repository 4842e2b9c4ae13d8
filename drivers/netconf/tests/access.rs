//! Host keys and logins.

mod common;

use std::time::Duration;

use common::{Bench, failed, there};
use eno_driver_netconf::ssh::Limits;
use russh::keys::{Algorithm, EcdsaCurve, HashAlg, PrivateKey};

fn key(algorithm: Algorithm) -> PrivateKey {
    PrivateKey::random(&mut russh::keys::ssh_key::rand_core::UnwrapErr(Os), algorithm).expect("a key")
}

/// The system's randomness, as the key library wants it.
struct Os;

#[tokio::test]
async fn an_unknown_or_wrong_host_key_gets_no_credential() {
    let bench = Bench::start(|_| ()).await;
    let leaf = bench.switch("leaf1");
    let shown = bench.info("leaf1").host_key.clone();
    let other = bench.info("leaf2").host_key.clone();
    let print = |line: &str| {
        russh::keys::PublicKey::from_openssh(line).expect("a key").fingerprint(HashAlg::Sha256).to_string()
    };

    let mut desired = bench.desired("leaf1", "100", &["Ethernet1"]);
    desired.device.host_key = None;
    let refused = bench.reconcile("leaf1", desired.clone()).await;
    let (reason, retryable, unreachable) = failed(&refused);
    let plain = shown.split_whitespace().take(2).collect::<Vec<_>>().join(" ");
    assert!(reason.contains(&print(&shown)) && reason.contains(&plain) && reason.contains("HostKey"), "{reason}");
    assert!(!retryable && !unreachable);
    assert_eq!(refused.device.unwrap().host_key_fingerprint, Some(print(&shown)));

    desired.device.host_key = Some(other.clone());
    let refused = bench.reconcile("leaf1", desired.clone()).await;
    let (reason, retryable, _) = failed(&refused);
    assert!(reason.contains(&print(&shown)) && reason.contains(&print(&other)), "{reason}");
    assert!(!retryable);

    desired.device.host_key = Some("ssh-ed25519 rubbish".into());
    let refused = bench.reconcile("leaf1", desired.clone()).await;
    assert!(failed(&refused).0.contains("not an OpenSSH public key line"), "{refused:?}");
    let stats = leaf.stats();
    assert_eq!((stats.auth_failures, stats.sessions_opened), (0, 0));

    desired.device.host_key = Some(format!("{plain} a comment"));
    assert_eq!(there(&bench.reconcile("leaf1", desired).await).0, "100");
}

#[tokio::test]
async fn a_refused_login_names_the_credential_and_passes_once_it_is_right() {
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
    assert_eq!(there(&bench.reconcile("leaf1", desired).await).0, "100");
}
