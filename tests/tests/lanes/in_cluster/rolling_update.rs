//! `eno install` upgrades an operator that an earlier commit's programs run.

use std::path::{Path, PathBuf};
use std::process::Command;

use eno_lab::sandbox::InCluster;
use eno_tests::{System, with_own_sandbox};
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;

use super::in_cluster;
use super::load::under_load;

#[test]
#[ignore = "needs root: real nodes"]
fn upgrade_under_load_interrupts_nothing() {
    let earlier = Some(earlier_programs());
    with_own_sandbox(
        |options| in_cluster(options, 2, InCluster { earlier, ..InCluster::default() }),
        async |system| {
            let (earlier, all) = earlier_images(system).await;
            assert!(earlier > 0 && earlier == all, "{earlier} of {all} pods run the earlier version");
            let file = system.sandbox.dir().join("values.yaml");
            std::fs::write(&file, system.sandbox.values()).expect("a values file");
            let figures = under_load(system, "upgrade", async || {
                let output = system.eno(&["install", "--values", &file.to_string_lossy()], "").await;
                let error = String::from_utf8_lossy(&output.stderr);
                assert!(output.status.success(), "{error}");
            })
            .await;
            assert_eq!(earlier_images(system).await.0, 0, "no pod runs the earlier version");
            assert!(!figures.without_leader.is_empty(), "another engine leads");
            figures.assert_leaders_follow();
        },
    );
}

/// The number of the operator's pods that run an image of the earlier version, and of all of them. The earlier version may
/// have other parts.
async fn earlier_images(system: &System) -> (usize, usize) {
    let params = ListParams::default().labels("app.kubernetes.io/part-of=eno");
    let pods = system.all::<Pod>().list(&params).await.expect("the pods of the operator");
    let is_earlier = |pod: &&Pod| {
        let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
        containers
            .into_iter()
            .any(|container| container.image.as_deref().is_some_and(|image| image.contains("-earlier:")))
    };
    (pods.items.iter().filter(is_earlier).count(), pods.items.len())
}

/// The directory of the programs of the commit in `ENO_UPGRADE_FROM`; by default, of the commit at which this branch left
/// `main`, or on `main` the one before this. They are built once, in `target/upgrade-from`.
fn earlier_programs() -> PathBuf {
    let named = std::env::var("ENO_UPGRADE_FROM").ok().filter(|commit| !commit.is_empty());
    let commit = named.unwrap_or_else(earlier_commit);
    let commit = git(&["rev-parse", "--verify", &format!("{commit}^{{commit}}")])
        .unwrap_or_else(|error| panic!("ENO_UPGRADE_FROM names a commit of this repository: {error}"));
    let place = workspace().join("target/upgrade-from");
    let (built, source, programs) = (place.join("built"), place.join("source"), place.join("target/debug"));
    if std::fs::read_to_string(&built).is_ok_and(|built| built == commit) {
        return programs;
    }
    // Of another commit, or none.
    for remove in [std::fs::remove_file(&built), std::fs::remove_dir_all(&source)] {
        assert!(remove.is_ok() || remove.is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound));
    }
    std::fs::create_dir_all(&source).expect("a directory for the sources");
    let archive = place.join("source.tar");
    git(&["archive", "--output", &archive.to_string_lossy(), &commit]).expect("the sources");
    let file = std::fs::File::open(&archive).expect("the sources");
    let mut archive = tar::Archive::new(file);
    // Cargo takes sources that are older than its artefacts for compiled.
    archive.set_preserve_mtime(false);
    archive.unpack(&source).expect("the sources");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo)
        .args(["build", "--workspace", "--bins", "--locked"])
        .current_dir(&source)
        .env("CARGO_TARGET_DIR", place.join("target"))
        .status()
        .expect("cargo");
    assert!(status.success(), "the programs of {commit} are not built: {status}");
    std::fs::write(&built, &commit).expect("a note of the commit");
    programs
}

fn earlier_commit() -> String {
    let head = git(&["rev-parse", "HEAD"]).expect("a checkout with git");
    ["origin/main", "main"]
        .iter()
        .find_map(|branch| git(&["merge-base", "HEAD", branch]).ok())
        .filter(|base| *base != head)
        .unwrap_or_else(|| "HEAD~1".to_owned())
}

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().expect("the workspace")
}

fn git(arguments: &[&str]) -> Result<String, String> {
    let output = Command::new("git").args(arguments).current_dir(workspace()).output().expect("git");
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned());
    }
    Err(format!("git {arguments:?}: {}", String::from_utf8_lossy(&output.stderr).trim()))
}
