//! The images that `make image` wrote: other tools read them, and the operator runs with them.

use std::path::{Path, PathBuf};
use std::process::Command;

use eno_lab::sandbox::{InCluster, OperatorImages};
use eno_tests::with_own_sandbox;
use serde_json::Value;

use super::in_cluster;
use crate::nodes::in_cluster::main_path;

/// The images, and the first program of each.
const IMAGES: [(&str, &str); 2] = [("eno", "usr/local/bin/eno"), ("eno-nats", "usr/local/bin/nats-server")];

fn images() -> PathBuf {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/image");
    assert!(directory.join("eno/index.json").is_file(), "there are no images: run make image");
    directory.canonicalize().expect("a directory")
}

/// Runs a program, and returns its output.
fn output(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap_or_else(|e| panic!("{program}: {e}"));
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {error}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Unpacks the archive of an image. Returns its root directory.
fn unpack(images: &Path, dir: &Path, name: &str) -> PathBuf {
    let archive = format!("oci-archive:{}", images.join(format!("{name}.tar")).display());
    // umoci takes layouts only, and the archive has the same image as the layout.
    let layout = dir.join(name);
    output("skopeo", &["copy", "--quiet", &archive, &format!("oci:{}:copied", layout.display())]);
    let bundle = dir.join(format!("{name}-bundle"));
    let image = format!("{}:copied", layout.display());
    output("umoci", &["unpack", "--rootless", "--image", &image, &bundle.to_string_lossy()]);
    bundle.join("rootfs")
}

#[test]
fn skopeo_and_umoci_read_the_images_of_the_release() {
    let (images, dir) = (images(), tempfile::tempdir().expect("a directory"));
    for (name, program) in IMAGES {
        let archive = format!("oci-archive:{}", images.join(format!("{name}.tar")).display());
        let inspected: Value = serde_json::from_str(&output("skopeo", &["inspect", &archive])).expect("JSON");
        let revision = inspected["Labels"]["org.opencontainers.image.revision"].as_str().unwrap_or_default();
        assert_eq!(revision.chars().take_while(char::is_ascii_hexdigit).count(), 40, "{inspected}");

        let beside = output("skopeo", &["inspect", &format!("oci:{}", images.join(name).display())]);
        let beside: Value = serde_json::from_str(&beside).expect("JSON");
        assert_eq!(beside["Digest"], inspected["Digest"]);
        let program = unpack(&images, dir.path(), name).join(program);
        let version = output(&program.to_string_lossy(), &["--version"]);
        assert!(name != "eno" || version.contains(revision), "{version} of {revision}");
    }
}

#[test]
#[ignore = "needs root: real nodes"]
fn operator_of_the_release_images_connects_pods() {
    let (directory, dir) = (images(), tempfile::tempdir().expect("a directory"));
    let [(name, program), _] = IMAGES;
    // The version of `eno` has to be that of the image's drivers.
    let program = unpack(&directory, dir.path(), name).join(program);
    let images = OperatorImages::Layouts(directory);
    with_own_sandbox(
        |options| in_cluster(options, 2, InCluster { images, ..InCluster::default() }),
        async |system| {
            system.use_program(program);
            main_path(system, 13).await;
        },
    );
}
