//! A node with a folder of addresses, and sandboxes with network namespaces.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::net::IpAddr;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use eno_driver_node::addresses::Addresses;
use eno_driver_node::netlink::Namespace;
use eno_ipam::{Netns, PoolDir, Requester, Root, Taken};
use eno_schemas::{AppliedAddresses, NodeAddresses, PodAddress};
use ipnet::IpNet;
use serde_json::Value;

pub type Commanded = BTreeMap<String, NodeAddresses>;

pub struct Node {
    folder: tempfile::TempDir,
}

/// The sandbox of a pod. Its namespace ends with it, its path stays.
pub struct Sandbox {
    pub name: String,
    pub path: PathBuf,
    namespace: Namespace,
}

impl Node {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["ipam", "netns"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        Self { folder }
    }

    pub fn ipam(&self) -> PathBuf {
        self.folder.path().join("ipam")
    }

    pub fn namespaces(&self) -> PathBuf {
        self.folder.path().join("netns")
    }

    /// An agent that starts.
    pub fn addresses(&self) -> Addresses {
        Addresses::new(self.ipam(), self.namespaces())
    }

    pub fn pool(&self, subnet: &str) -> PoolDir {
        Root::new(self.ipam()).pool(subnet).unwrap()
    }

    /// A sandbox with an empty network namespace, as that of a pod with DPDK is.
    pub fn sandbox(&self, name: &str) -> Sandbox {
        let sandbox = Sandbox {
            name: name.to_owned(),
            path: self.namespaces().join(name),
            namespace: Namespace::create().expect("a network namespace: root is needed"),
        };
        sandbox.mount(&sandbox.path);
        sandbox
    }

    /// Asks for an address once, by the library of the plugin.
    pub fn add(&self, subnet: &str, sandbox: &Sandbox) -> Option<IpAddr> {
        let who = Requester {
            container: sandbox.name.clone(),
            ifname: "net1".to_owned(),
            namespace: "default".to_owned(),
            pod: format!("pod-of-{}", sandbox.name),
            wanted: Vec::new(),
            netns: sandbox.netns(),
        };
        match self.pool(subnet).lock().unwrap().take(&who).unwrap() {
            Taken::Lease(net) => Some(net.addr()),
            Taken::Wait(_) => None,
        }
    }

    /// Runs the plugin as a container runtime does: the address of ADD.
    pub fn plugin(&self, command: &str, subnet: &str, sandbox: &Sandbox) -> Option<IpAddr> {
        let config = serde_json::json!({
            "cniVersion": "1.0.0", "name": "net", "type": "macvlan", "ipam": {"type": "eno-ipam", "pools": [subnet]},
        });
        let program = Path::new(env!("CARGO_BIN_EXE_eno-driver-node")).with_file_name("eno-ipam");
        assert!(program.exists(), "{} is missing: cargo build -p eno-ipam", program.display());
        let mut plugin = Command::new(program)
            .env("ENO_IPAM_DIR", self.ipam())
            .env("CNI_COMMAND", command)
            .env("CNI_CONTAINERID", &sandbox.name)
            .env("CNI_NETNS", &sandbox.path)
            .env("CNI_IFNAME", "net1")
            .env("CNI_ARGS", format!("K8S_POD_NAMESPACE=default;K8S_POD_NAME=pod-of-{}", sandbox.name))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        plugin.stdin.take().unwrap().write_all(config.to_string().as_bytes()).unwrap();
        let output = plugin.wait_with_output().unwrap();
        let answer: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        assert!(output.status.success(), "{command} of {}: {answer}", sandbox.name);
        let address: IpNet = answer["ips"][0]["address"].as_str()?.parse().unwrap();
        Some(address.addr())
    }

    pub fn del(&self, subnet: &str, sandbox: &Sandbox) -> bool {
        self.pool(subnet).lock().unwrap().release(&sandbox.name, "net1").unwrap()
    }
}

impl Sandbox {
    pub fn netns(&self) -> Netns {
        Netns::at(self.path.to_str().unwrap()).unwrap()
    }

    /// Makes a path lead to its namespace.
    pub fn mount(&self, path: &Path) {
        let _ = fs::remove_file(path);
        symlink(format!("/proc/{}/fd/{}", std::process::id(), self.namespace.fd()), path).unwrap();
    }
}

pub fn addresses(network: &str, blocks: &[&str]) -> NodeAddresses {
    NodeAddresses {
        network: network.parse().unwrap(),
        blocks: nets(blocks),
        excluded: Vec::new(),
        fixed: Vec::new(),
        sticky: false,
    }
}

pub fn commanded(subnet: &str, network: &str, blocks: &[&str]) -> Commanded {
    [(subnet.to_owned(), addresses(network, blocks))].into()
}

pub fn nets(nets: &[&str]) -> Vec<IpNet> {
    nets.iter().map(|net| net.parse().unwrap()).collect()
}

/// The addresses in use, ascending.
pub fn used(applied: &AppliedAddresses) -> Vec<IpAddr> {
    applied.used.iter().map(|PodAddress { address, .. }| *address).collect()
}

pub fn holds(applied: Option<&AppliedAddresses>, address: IpAddr) -> bool {
    applied.is_some_and(|applied| applied.held.iter().any(|range| range.contains(&address)))
}
