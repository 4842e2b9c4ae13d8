//! The program, where it needs no cluster.

mod import;

use std::process::{Command, Stdio};

#[test]
fn closed_output_ends_a_command_silently() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_eno"));
    command.args(["completion", "bash"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("eno starts");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("an end");
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
}
