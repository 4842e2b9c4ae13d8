//! A short `eno soak` without faults: every layer must match the model.

use std::process::Stdio;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;

/// Time for a start, two rounds and the end on a busy machine.
const TIMEOUT: Duration = Duration::from_mins(5);

fn soak(arguments: &[&str]) -> Child {
    let program = eno::programs::eno().expect("the program: cargo build --workspace --bins");
    Command::new(program)
        .arg("soak")
        .args(arguments)
        .args("--leaves 2 --spines 1 --namespaces 3 --services 12 --attachments 24".split(' '))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("the program starts")
}

#[tokio::test]
async fn short_soak_reports_no_violations() {
    let running = soak(&["--for", "20s", "--seed", "7", "--faults", "none"]);
    let output = timeout(TIMEOUT, running.wait_with_output()).await.expect("it ends").expect("its output");
    let (out, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{errors}{out}");
    for figure in ["checkpoints", "callbacks posted", "nothing wrong"] {
        assert!(out.contains(figure), "{figure} is missing in:\n{out}");
    }
}

#[tokio::test]
async fn ctrl_c_ends_a_soak_with_a_report() {
    let mut running = soak(&["--for", "1h", "--faults", "none"]);
    let mut lines = BufReader::new(running.stderr.take().expect("a pipe")).lines();
    let begun = async {
        while let Some(line) = lines.next_line().await.expect("text") {
            if line.contains("FabricDevices ready") {
                return;
            }
        }
        panic!("it ended by itself");
    };
    timeout(TIMEOUT, begun).await.expect("it starts");
    let pid = running.id().and_then(|pid| i32::try_from(pid).ok()).expect("it runs");
    kill(Pid::from_raw(pid), Signal::SIGINT).expect("a process");
    let mut out = String::new();
    let ending = async {
        running.stdout.take().expect("a pipe").read_to_string(&mut out).await.expect("text");
        running.wait().await.expect("its end")
    };
    let status = timeout(TIMEOUT, ending).await.expect("it ends");
    assert_eq!(status.code(), Some(0), "{out}");
    assert!(out.contains("stopped"), "{out}");
}
