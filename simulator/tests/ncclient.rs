//! A foreign client has to find a faithful device: runs the pytest suite in `tests/ncclient` against a
//! fabric of switches with different capabilities.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use eno_simulator::{Fabric, FabricOptions, Topology};
use russh::keys::ssh_key::LineEnding;
use russh::keys::{Algorithm, PrivateKey};

/// What is installed into the virtual environment; a change makes a new one.
const REQUIREMENTS: &str = "tests/ncclient/requirements.txt";

fn run(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(
        output.status.success(),
        "{command:?} failed:\n{}\n{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

/// The interpreter of a virtual environment with ncclient and pytest, made once under the target directory.
fn python(crate_dir: &Path) -> PathBuf {
    // target/tmp, which Cargo makes for integration tests.
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("target/tmp has a parent");
    let venv = target.join("venv-ncclient");
    let lock = File::create(target.join("venv-ncclient.lock")).expect("the lock file can be made");
    lock.lock().expect("the lock file can be locked");
    let requirements = std::fs::read(crate_dir.join(REQUIREMENTS)).expect("requirements.txt is there");
    let stamp = venv.join("installed-requirements.txt");
    let python = venv.join("bin/python");
    if std::fs::read(&stamp).is_ok_and(|installed| installed == requirements) {
        return python;
    }
    run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&venv));
    run(Command::new(&python)
        .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r"])
        .arg(crate_dir.join(REQUIREMENTS)));
    std::fs::write(&stamp, requirements).expect("the stamp can be written");
    python
}

#[tokio::test(flavor = "multi_thread")]
async fn ncclient_finds_a_faithful_device() {
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
    let fabric =
        Fabric::start(&topology, FabricOptions { state_dir: Some(dir.path().join("fabric")), control: None })
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
