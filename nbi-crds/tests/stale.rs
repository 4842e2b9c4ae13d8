//! The CRDs in `deploy/crds` match the types, and Argo CD's health checks in `deploy/gitops` cover their
//! kinds.

use std::{path::Path, process::Command};

#[test]
fn deploy_crds_is_not_stale() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let output = Command::new(env!("CARGO_BIN_EXE_eno-crds"))
        .arg("--check")
        .arg(directory)
        .output()
        .expect("eno-crds runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
