//! The program in a namespace that acts as its node, with the capabilities `CAP_NET_ADMIN` and `CAP_SYS_ADMIN` only.

use std::path::Path;
use std::process::{self, Stdio};
use std::time::Duration;

use eno_conformance::{Engine, NatsServer};
use eno_schemas::{Applied, Command, Desired, DriverHello, HostNetwork, decode, subject};
use futures::StreamExt as _;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::host::common::{Net, desired};

/// Maximum memory of the program in KiB, without the pages of its file: a build with little optimisation has three times
/// as much code.
const MAX_MEMORY: u64 = 6 * 1024;

/// The command of the program. `ovsdb`: the socket of Open vSwitch's database; `namespaces`: the folder of pods'
/// namespaces; `ipam`: the folder of addresses.
pub fn agent(nats_url: &str, ovsdb: &Path, namespaces: &Path, ipam: &Path) -> process::Command {
    let mut command = process::Command::new("setpriv");
    command
        .args(["--bounding-set=-all,+net_admin,+sys_admin", "--inh-caps=-all", "--no-new-privs", "--"])
        .arg(env!("CARGO_BIN_EXE_eno-driver-node"))
        .args(["--node", "node1", "--instance", "node1", "--nats-url", nats_url])
        .arg("--ovsdb")
        .arg(format!("unix:{}", ovsdb.display()))
        .arg("--namespaces")
        .arg(namespaces)
        .arg("--ipam-dir")
        .arg(ipam)
        .stdout(Stdio::null());
    command
}

#[test]
#[ignore = "needs root: network namespaces"]
fn agent_works_with_two_capabilities_and_bounded_memory() {
    let node = Net::new();
    let namespace = node.0.clone();
    // Sockets and children of this thread are in the node's namespace.
    let inside = std::thread::spawn(move || {
        namespace.enter().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(run_agent(node));
    });
    inside.join().unwrap();
}

async fn run_agent(node: Net) {
    let server = NatsServer::start().await;
    let engine = Engine::new(&server).await;
    let before = node.restorable_state();
    let folder = tempfile::tempdir().unwrap();
    let ovsdb = folder.path().join("no-ovsdb");
    let command = agent(&server.args().nats_url, &ovsdb, folder.path(), &folder.path().join("no-ipam"));
    let mut agent = tokio::process::Command::from(command).kill_on_drop(true).spawn().unwrap();
    let pid = agent.id().unwrap();

    let drivers = engine.connection.jetstream.get_key_value(subject::DRIVERS).await.unwrap();
    let mut hello = drivers.watch_with_history(subject::key("node", "node1")).await.unwrap();
    let entry = tokio::time::timeout(Duration::from_secs(20), hello.next()).await.unwrap().unwrap().unwrap();
    assert_eq!(decode::<DriverHello>(&entry.value).unwrap().target.as_deref(), Some("node1"));

    let command = |sequence, desired| Command::new("node", "node1", (1, sequence), Desired::Node(desired));
    let pods = HostNetwork::PodBridge { addresses: vec!["10.66.0.1/24".parse().unwrap()], mtu: None };
    let report = engine.apply(&command(1, desired([("pods", pods)]))).await;
    assert!(report.rejected.is_empty(), "{:?}", report.rejected);
    let Some(Applied::Node { networks, .. }) = &report.applied else { panic!("{report:?}") };
    assert!(networks.contains_key("pods"));

    node.ip("link del pods");
    let repaired = engine.report("node", "node1", |report| !report.notes.is_empty()).await;
    assert_eq!(repaired.notes[0].kind, "Repaired", "{:?}", repaired.notes);
    assert!(node.ip_works("link show pods"));

    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let number = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().to_owned()
    };
    // CAP_NET_ADMIN is 12 and CAP_SYS_ADMIN 21.
    assert_eq!(u64::from_str_radix(&number("CapEff"), 16).unwrap(), 1 << 12 | 1 << 21);
    let [most, of_file]: [u64; 2] = ["VmHWM", "RssFile"].map(|name| number(name).parse().unwrap());
    let memory = most - of_file;
    println!("the agent had at most {memory} KiB in memory");
    assert!(memory < MAX_MEMORY, "{memory} KiB in memory");

    engine.apply(&command(2, desired([]))).await;
    assert_eq!(node.restorable_state(), before, "something is left over");
    kill(Pid::from_raw(i32::try_from(pid).unwrap()), Signal::SIGTERM).unwrap();
    let ended = tokio::time::timeout(Duration::from_secs(20), agent.wait()).await.unwrap().unwrap();
    assert!(ended.success(), "{ended}");
}
