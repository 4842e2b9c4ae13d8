//! What the generator writes is what is committed.

use std::path::Path;
use std::process::Command;

#[test]
fn deploy_is_not_stale() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let output = Command::new(env!("CARGO_BIN_EXE_eno-deploy"))
        .arg("--check")
        .arg(directory)
        .output()
        .expect("eno-deploy runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
