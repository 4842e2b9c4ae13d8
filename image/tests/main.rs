//! The image of a release, with stand-ins for the programs, as other tools see it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use eno_image::release::{self, About, Release};
use eno_image::{read_layout, write_archive, write_layout};
use serde_json::Value;

/// A statically linked program (Debian's busybox-static).
const STATIC: &str = "/bin/busybox";

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().expect("the workspace")
}

fn about() -> About {
    About {
        version: "1.2.3".to_owned(),
        commit: "0123abc".to_owned(),
        time: 1_700_000_000,
        target: "x86_64-unknown-linux-musl".to_owned(),
    }
}

/// Builds the image with copies of one program.
fn build(programs: &Path) -> Release {
    for name in eno_parts::programs().map(|program| program.binary) {
        fs::copy(STATIC, programs.join(name)).expect("a copy of busybox");
    }
    release::eno(programs, &workspace(), &about()).expect("an image")
}

/// Runs a program, and returns its output.
fn output(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap_or_else(|e| panic!("{program}: {e}"));
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {error}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn skopeo_and_umoci_take_layout_and_archive() {
    let dir = tempfile::tempdir().expect("a directory");
    let made = build(dir.path());
    let path = |name: &str| dir.path().join(name).display().to_string();
    write_layout(&made.image, "eno:v1", Path::new(&path("layout"))).expect("a layout");
    write_archive(&made.image, "eno:v1", Path::new(&path("eno.tar"))).expect("an archive");

    let inspected = output("skopeo", &["inspect", "--config", &format!("oci-archive:{}", path("eno.tar"))]);
    let config: Value = serde_json::from_str(&inspected).expect("JSON");
    assert_eq!(config["architecture"], "amd64");
    assert_eq!(config["created"], "2023-11-14T22:13:20Z");
    assert_eq!(config["config"]["User"], "65532:65532");
    assert_eq!(config["config"]["Entrypoint"][0], "/usr/local/bin/eno");
    assert_eq!(config["config"]["Labels"]["org.opencontainers.image.revision"], "0123abc");

    let copied = format!("oci:{}:copied", path("copy"));
    output("skopeo", &["copy", "--quiet", &format!("oci-archive:{}", path("eno.tar")), &copied]);
    let image = format!("{}:v1", path("layout"));
    output("umoci", &["unpack", "--rootless", "--image", &image, &path("bundle")]);
    let root = PathBuf::from(path("bundle/rootfs"));
    for name in eno_parts::programs().map(|program| program.binary) {
        let program = fs::read(root.join("usr/local/bin").join(name)).expect(name);
        assert_eq!(program, fs::read(STATIC).expect("busybox"), "{name}");
    }
    let read = |file: &str| fs::read_to_string(root.join(file)).expect(file);
    assert!(read("etc/ssl/certs/ca-certificates.crt").matches("BEGIN CERTIFICATE").count() > 100);
    assert!(read("usr/share/licenses/eno/LICENSE").contains("Apache License"));
    let licences = read("usr/share/licenses/eno/THIRD-PARTY");
    assert!(
        licences.contains("\ntokio 1.") && licences.contains("Permission is hereby granted"),
        "{licences}"
    );
    assert_eq!(read("usr/share/sbom/eno.cdx.json"), made.bill_of_materials);
}

#[test]
fn bill_of_materials_lists_linked_crates_with_licence_and_hash() {
    let dir = tempfile::tempdir().expect("a directory");
    let bill: Value = serde_json::from_str(&build(dir.path()).bill_of_materials).expect("JSON");
    let components = bill["components"].as_array().expect("components");
    let named = |name: &str| components.iter().find(|one| one["name"] == name);
    let tokio = named("tokio").expect("tokio");
    assert_eq!(tokio["licenses"][0]["expression"], "MIT");
    assert_eq!(tokio["hashes"][0]["content"].as_str().map(str::len), Some(64));
    // Used on the target only, by tests only, and one of the workspace.
    assert!(named("mimalloc").is_some());
    assert!(named("proptest").is_none() && named("eno-core").is_none());
    let without: Vec<_> =
        components.iter().filter(|one| one["licenses"].is_null()).map(|one| &one["name"]).collect();
    assert!(without.is_empty(), "{without:?}");
}

#[test]
fn same_programs_give_same_bytes() {
    let (one, other) = (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory"));
    let digests = [&one, &other].map(|dir| build(dir.path()).image.manifest.digest);
    assert_eq!(digests[0], digests[1]);
}

#[test]
fn dynamically_linked_program_is_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    build(dir.path());
    let this = std::env::current_exe().expect("this program");
    fs::copy(this, dir.path().join("eno-driver-nad")).expect("a copy");
    let error = release::eno(dir.path(), &workspace(), &about()).expect_err("a dynamically linked program");
    assert!(error.to_string().ends_with("eno-driver-nad is not statically linked"), "{error}");
}

#[test]
fn layout_is_read_back_and_damage_is_found() {
    let dir = tempfile::tempdir().expect("a directory");
    let made = build(dir.path()).image;
    let layout = dir.path().join("layout");
    write_layout(&made, "eno:v1", &layout).expect("a layout");
    let read = read_layout(&layout).expect("the image");
    assert_eq!((read.manifest.digest, read.layer.bytes), (made.manifest.digest, made.layer.bytes.clone()));

    let blob = layout.join("blobs").join(made.layer.digest.replace(':', "/"));
    let mut bytes = made.layer.bytes.to_vec();
    bytes[100] ^= 1;
    fs::write(&blob, bytes).expect("the damaged layer");
    let error = read_layout(&layout).expect_err("a damaged layer").to_string();
    assert!(error.contains("the content of sha256:") && error.contains("is another one"), "{error}");
    let error = read_layout(dir.path()).expect_err("no layout").to_string();
    assert!(error.starts_with("reading ") && error.contains("index.json"), "{error}");
}
