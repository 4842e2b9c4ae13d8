//! The program `eno-ipam`, called as container runtimes call it.

mod cnitool;
mod killed;
mod parallel;
mod protocol;
mod waiting;

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use eno_ipam::{Lease, PoolDir, Root, Waiting};
use eno_schemas::NodeAddresses;
use serde_json::{Value, json};
use tempfile::TempDir;

/// A folder of pools, and one of sandboxes: files that stand for their namespaces.
pub struct Node {
    folder: TempDir,
}

impl Node {
    pub fn new() -> Self {
        let folder = TempDir::new().expect("a folder");
        fs::create_dir(folder.path().join("sandboxes")).expect("a folder");
        Self { folder }
    }

    /// A node with one pool, `storage`.
    pub fn with(ranges: &NodeAddresses) -> Self {
        let node = Self::new();
        node.give("storage", Some(ranges));
        node
    }

    pub fn root(&self) -> PathBuf {
        self.folder.path().join("ipam")
    }

    pub fn pool(&self, subnet: &str) -> PoolDir {
        Root::new(self.root()).pool(subnet).expect("a pool")
    }

    pub fn give(&self, subnet: &str, ranges: Option<&NodeAddresses>) {
        self.pool(subnet).lock().expect("a lock").set_ranges(ranges).expect("ranges");
    }

    pub fn leases(&self, subnet: &str) -> Vec<Lease> {
        self.pool(subnet).lock().expect("a lock").leases().expect("leases")
    }

    pub fn waiting(&self, subnet: &str) -> Vec<Waiting> {
        self.pool(subnet).lock().expect("a lock").waiting().expect("who waits")
    }

    pub fn sandbox(&self, container: &str) -> PathBuf {
        self.folder.path().join("sandboxes").join(container)
    }

    /// The program with the environment of the interface `net1` of the pod `apps/<container>`, whose sandbox is made.
    pub fn command(&self, command: &str, container: &str) -> Command {
        let sandbox = self.sandbox(container);
        if command == "ADD" && !sandbox.exists() {
            fs::write(&sandbox, "").expect("a sandbox");
        }
        let mut program = Command::new(env!("CARGO_BIN_EXE_eno-ipam"));
        program.env_clear().env("ENO_IPAM_DIR", self.root());
        program.envs([("CNI_COMMAND", command), ("CNI_CONTAINERID", container), ("CNI_IFNAME", "net1")]);
        program.env("CNI_NETNS", sandbox).env("CNI_PATH", "/opt/cni/bin");
        let pod = format!("IgnoreUnknown=1;K8S_POD_NAMESPACE=apps;K8S_POD_NAME={container};K8S_POD_UID=1");
        program.env("CNI_ARGS", pod);
        program
    }

    /// Calls the program, and returns what it says.
    pub fn call(&self, command: &str, container: &str, config: &Value) -> Result<Value, Value> {
        answer(start(self.command(command, container), &config.to_string()))
    }

    /// The addresses that ADD gives.
    pub fn add(&self, container: &str, config: &Value) -> Result<Vec<String>, Value> {
        let answer = self.call("ADD", container, config)?;
        let ips = answer["ips"].as_array().expect("ips").iter();
        Ok(ips.map(|ip| ip["address"].as_str().expect("an address").to_owned()).collect())
    }
}

/// A configuration as the driver of NADs renders it.
pub fn config(version: &str, pools: &[&str]) -> Value {
    json!({ "cniVersion": version, "name": "net", "type": "bridge", "ipam": { "type": "eno-ipam", "pools": pools } })
}

/// Starts the program with its configuration.
pub fn start(mut program: Command, config: &str) -> Child {
    program.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = program.spawn().expect("the program");
    // It stops to read what is too long.
    let _ = child.stdin.take().expect("its input").write_all(config.as_bytes());
    child
}

/// What the program says when it has ended: an answer, or an error as CNI has it. Nothing on stderr.
pub fn answer(child: Child) -> Result<Value, Value> {
    let output = child.wait_with_output().expect("the program");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    let text = String::from_utf8(output.stdout).expect("text");
    let answer = if text.is_empty() { Value::Null } else { serde_json::from_str(&text).expect("JSON") };
    if output.status.success() { Ok(answer) } else { Err(answer) }
}

/// Waits until something is so.
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let late = Instant::now() + Duration::from_mins(1);
    while !is_so() {
        assert!(Instant::now() < late, "{what} in 60 s");
        std::thread::sleep(Duration::from_millis(5));
    }
}
