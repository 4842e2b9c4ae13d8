//! Runs the pytest suite in `tests/ncclient`, with an independent NETCONF client, against switches with different
//! capabilities.

use std::path::Path;
use std::process::Command;

use eno_simulator::{Fabric, FabricOptions, Topology};
use russh::keys::ssh_key::LineEnding;
use russh::keys::{Algorithm, PrivateKey};

use crate::common::python;

#[tokio::test(flavor = "multi_thread")]
async fn ncclient_suite_passes_against_simulated_switches() {
    let crate_dir = Path::new(env!("CARGO_MANIFEST_DIR"));
    let python = tokio::task::spawn_blocking(|| python(crate_dir)).await.expect("the environment is there");

    let dir = tempfile::tempdir().expect("a temporary directory");
    let key = PrivateKey::random(&mut rand::rng(), Algorithm::Ed25519).expect("a key");
    let key_file = dir.path().join("id_ed25519");
    key.write_openssh_file(&key_file, LineEnding::LF).expect("the key can be written");

    let text = std::fs::read_to_string(crate_dir.join("tests/ncclient/topology.yaml")).expect("the topology");
    let mut topology = Topology::parse(&text).expect("a valid topology");
    let public = key.public_key().to_openssh().expect("a key line");
    for switch in &mut topology.switches {
        switch.authorized_keys = vec![public.clone()];
    }
    let fabric = Fabric::start(
        &topology,
        FabricOptions { state_dir: Some(dir.path().join("fabric")), control: None, data_plane: None },
    )
    .await
    .expect("the fabric starts");
    let fabric_file = dir.path().join("fabric.json");
    std::fs::write(&fabric_file, serde_json::to_vec(fabric.info()).expect("JSON")).expect("fabric.json");

    let status = tokio::task::spawn_blocking(move || {
        Command::new(python)
            .args(["-m", "pytest", "-q", "-p", "no:cacheprovider", "--durations=5"])
            .arg(crate_dir.join("tests/ncclient"))
            .env("FABRIC_JSON", fabric_file)
            .env("SSH_KEY", key_file)
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .status()
    })
    .await
    .expect("pytest was waited for")
    .expect("pytest can be started");
    fabric.shutdown().await;
    assert!(status.success(), "pytest failed: {status}");
}
