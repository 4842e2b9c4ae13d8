//! The output of commands that need no cluster.

use std::process::{Command, Stdio};

#[test]
fn closed_output_ends_a_command_silently() {
    let eno = eno::programs::eno().expect("the program: cargo build --workspace --bins");
    let mut command = Command::new(eno);
    command.args(["completion", "bash"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("eno starts");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("an end");
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
}
