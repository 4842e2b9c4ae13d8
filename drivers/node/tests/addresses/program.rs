//! The program, with its two capabilities only, is killed while pods start.

use std::path::Path;
use std::process::{self, Stdio};

use eno_conformance::{Engine, NatsServer};
use eno_schemas::{Applied, AppliedAddresses, Command, Desired, NodeDesired, Report};

use super::fixture::{Commanded, Node, commanded, nets, used};
use crate::agent::process::agent;
use crate::host::common::Net;

#[test]
#[ignore = "needs root: network namespaces"]
fn addresses_are_reported_by_each_agent_that_starts() {
    let net = Net::new();
    // Sockets and children of this thread are in the node's namespace.
    let inside = std::thread::spawn(move || {
        net.0.enter().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(check());
    });
    inside.join().unwrap();
}

async fn check() {
    let node = Node::new();
    let server = NatsServer::start().await;
    let engine = Engine::new(&server).await;
    let start = || {
        let ovsdb = node.ipam().with_file_name("no-ovsdb");
        let command = agent(&server.args().nats_url, &ovsdb, &node.namespaces(), &node.ipam());
        tokio::process::Command::from(command).kill_on_drop(true).spawn().unwrap()
    };
    let reported = async |sequence: u64, expected: &dyn Fn(&AppliedAddresses) -> bool| {
        let mut found = AppliedAddresses::default();
        let done = |report: &Report| {
            let Some(Applied::Node { addresses, .. }) = &report.applied else { return false };
            found = addresses.get("blue").cloned().unwrap_or_default();
            report.generation.sequence == sequence && expected(&found)
        };
        engine.report("node", "node1", done).await;
        found
    };
    let block = |block| commanded("blue", "192.0.2.0/24", &[block]);
    let mut program = start();
    engine.command(&command(1, block("192.0.2.16/30"))).await;
    reported(1, &|found| found.held == nets(&["192.0.2.16/30"])).await;
    let pods: Vec<_> = (0..4).map(|pod| node.sandbox(&format!("c{pod}"))).collect();
    let first = node.plugin("ADD", "blue", &pods[0]).unwrap();
    reported(1, &|found| used(found) == [first]).await;

    program.kill().await.unwrap();
    let second = node.plugin("ADD", "blue", &pods[1]).unwrap();
    program = start();
    reported(1, &|found| used(found) == [first, second]).await;
    program.kill().await.unwrap();
    engine.command(&command(2, block("192.0.2.18/31"))).await;
    node.plugin("DEL", "blue", &pods[0]);
    program = start();
    let found = reported(2, &|found| used(found) == [second]).await;
    assert_eq!(found.held, nets(&["192.0.2.17/32", "192.0.2.18/31"]));
    // Its sandbox ended without DEL while no agent ran.
    program.kill().await.unwrap();
    std::fs::remove_file(&pods[1].path).unwrap();
    let _program = start();
    let found = reported(2, &|found| found.used.is_empty()).await;
    assert_eq!(found.held, nets(&["192.0.2.18/31"]));
}

fn command(sequence: u64, addresses: Commanded) -> Command {
    let desired = NodeDesired { cluster: "test".to_owned(), addresses, ..NodeDesired::default() };
    Command::new("node", "node1", (1, sequence), Desired::Node(desired))
}

#[test]
fn installed_plugin_is_the_program_itself() {
    let folder = tempfile::tempdir().unwrap();
    let program = Path::new(env!("CARGO_BIN_EXE_eno-driver-node")).with_file_name("eno-ipam");
    let install = |folder: &Path| {
        process::Command::new(&program).arg("install").arg(folder).output().expect("cargo build -p eno-ipam")
    };
    // Twice: at each start of the agent's pod.
    for _ in 0..2 {
        assert!(install(folder.path()).status.success());
    }
    let installed = folder.path().join("eno-ipam");
    assert!(std::fs::read(&installed).unwrap() == std::fs::read(&program).unwrap());
    let version =
        process::Command::new(&installed).env("CNI_COMMAND", "VERSION").stdin(Stdio::null()).output();
    assert!(version.unwrap().status.success());
    let failed = install(&folder.path().join("missing"));
    assert!(!failed.status.success() && String::from_utf8_lossy(&failed.stderr).contains("missing"));
}
