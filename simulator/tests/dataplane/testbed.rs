//! The testbed: a fabric with two leaves and a host on each.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use eno_simulator::{
    DataPlane, DataPlaneOptions, DataPlaneStatus, Fabric, FabricError, FabricOptions, HandEdit, PortMode,
    PortWire, Topology,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::dataplane::host::{Host, succeed};

/// Timeout for RSTP to converge.
pub const TIMEOUT: Duration = Duration::from_mins(1);

/// A fabric with `node1` on `leaf1` and `node2` on `leaf2`, each with an address of one subnet on `eth1`.
pub struct Testbed {
    pub fabric: Fabric,
    pub node1: Host,
    pub node2: Host,
    pub dir: tempfile::TempDir,
}

/// The address of `node2`.
pub const NODE2: &str = "10.7.0.2";

impl Testbed {
    pub async fn new(spines: usize) -> Self {
        Self::on(&Topology::leaf_spine(2, spines, 2)).await
    }

    /// A testbed that carries VLAN 100 between its hosts.
    pub async fn carrying_vlan_100(spines: usize) -> Self {
        let testbed = Self::new(spines).await;
        testbed.carry_vlans(&[100]).await;
        testbed.put_hosts_into_vlan_100().await;
        testbed
    }

    /// Makes the ports of both hosts access ports of VLAN 100.
    pub async fn put_hosts_into_vlan_100(&self) {
        for leaf in ["leaf1", "leaf2"] {
            self.hand_edit(leaf, &access("Ethernet1", 100)).await;
        }
    }

    pub async fn on(topology: &Topology) -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let (node1, node2) = (Host::new(), Host::new());
        let fabric = start(topology, dir.path(), &wires(&node1, &node2)).await.expect("the fabric starts");
        node1.address("10.7.0.1/24");
        node2.address("10.7.0.2/24");
        let testbed = Self { fabric, node1, node2, dir };
        testbed.settled().await;
        testbed
    }

    pub fn data_plane(&self) -> &Arc<DataPlane> {
        self.fabric.data_plane().expect("it was asked for")
    }

    pub async fn settled(&self) {
        let settled = tokio::time::timeout(TIMEOUT, self.data_plane().settled()).await;
        settled.unwrap_or_else(|_| panic!("not settled: {:?}", self.data_plane().status()));
    }

    /// Applies a hand edit to a switch and waits for the data plane.
    pub async fn hand_edit(&self, switch: &str, edit: &HandEdit) {
        let found = self.fabric.switch(switch).expect(switch);
        found.change_by_hand(edit).unwrap_or_else(|error| panic!("{switch}: {error}"));
        self.settled().await;
    }

    /// Merges XML into running of a switch and waits for the data plane.
    pub async fn merge_xml(&self, switch: &str, xml: &str) {
        let found = self.fabric.switch(switch).expect(switch);
        found.edit_xml_by_hand(xml).unwrap_or_else(|error| panic!("{switch}: {error}"));
        self.settled().await;
    }

    /// Configures VLANs on every switch and every link between them.
    pub async fn carry_vlans(&self, vlans: &[u16]) {
        for switch in self.fabric.switches() {
            switch.change_by_hand(&define(vlans)).expect("VLANs can be defined");
        }
        for (switch, bridge) in self.data_plane().status().switches {
            let links = bridge.ports.into_iter().filter(|(_, port)| port.link.is_some());
            for (port, _) in links {
                let found = self.fabric.switch(&switch).expect("a switch of the fabric");
                found.change_by_hand(&trunk(&port, vlans)).expect("the port exists");
            }
        }
        self.settled().await;
    }

    /// The spine and its port at the other end of the root port of `leaf2`.
    pub fn active_spine(&self) -> (String, String) {
        let status = self.data_plane().status();
        let mut uplinks = status.switches["leaf2"].ports.values();
        let active = uplinks.find(|port| port.role.as_deref() == Some("root")).expect("a root port");
        let link = active.link.clone().expect("hosts are no roots");
        (link.switch, link.port)
    }

    /// Queries the control API.
    pub async fn get_status(&self, path: &str) -> DataPlaneStatus {
        let url = self.fabric.control_url();
        let address = url.strip_prefix("http://").expect("plain HTTP");
        let mut stream = tokio::net::TcpStream::connect(address).await.expect("it listens");
        let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("it answers");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
        assert!(head.starts_with("HTTP/1.1 200"), "{answer}");
        serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {body}"))
    }

    /// Commits over NETCONF with ncclient. With `confirmed`, it is a confirmed commit with this timeout in seconds.
    pub async fn commit(&self, python: &Path, switch: &str, config: String, confirmed: Option<u32>) {
        let more = confirmed.map(|seconds| seconds.to_string());
        self.netconf(python, "commit.py", switch, config, more).await;
    }

    /// Reads state over NETCONF with ncclient.
    pub async fn get(&self, python: &Path, switch: &str, filter: &str) -> String {
        self.netconf(python, "get.py", switch, filter.to_owned(), None).await
    }

    /// Asks a switch over NETCONF until its answer matches a regular expression (see `until.py`), and returns it.
    pub async fn until(&self, python: &Path, switch: &str, question: &str, expression: &str) -> String {
        self.netconf(python, "until.py", switch, question.to_owned(), Some(expression.to_owned())).await
    }

    /// Runs a script on a switch, with this input, and returns its output.
    async fn netconf(
        &self,
        python: &Path,
        script: &str,
        switch: &str,
        input: String,
        more: Option<String>,
    ) -> String {
        let info = self.fabric.info().iter().find(|info| info.name == switch).expect(switch).clone();
        let mut command = Command::new(python);
        command.arg(format!("{}/tests/dataplane/{script}", env!("CARGO_MANIFEST_DIR")));
        command.args([info.netconf.port().to_string(), info.password]);
        command.args(more);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let run = move || {
            let mut child = command.spawn().expect("python runs");
            child.stdin.take().expect("a pipe").write_all(input.as_bytes()).expect("it reads");
            child.wait_with_output().expect("it was started")
        };
        let output = tokio::task::spawn_blocking(run).await.expect("it was waited for");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

/// `eth1` of each host on the first port of its leaf.
pub fn wires(node1: &Host, node2: &Host) -> Vec<PortWire> {
    [("leaf1", node1), ("leaf2", node2)]
        .into_iter()
        .map(|(leaf, host)| PortWire {
            switch: leaf.to_owned(),
            port: "Ethernet1".to_owned(),
            netns: Some(host.netns()),
            interface: "eth1".to_owned(),
        })
        .collect()
}

pub async fn start(topology: &Topology, dir: &Path, wires: &[PortWire]) -> Result<Fabric, FabricError> {
    let data_plane = DataPlaneOptions { directory: dir.join("dataplane"), wires: wires.to_vec() };
    Fabric::start(topology, FabricOptions { data_plane: Some(data_plane), ..FabricOptions::default() }).await
}

pub fn trunk(port: &str, vlans: &[u16]) -> HandEdit {
    HandEdit {
        port: Some(port.to_owned()),
        mode: Some(PortMode::Trunk),
        vlans: vlans.iter().copied().collect(),
        ..HandEdit::default()
    }
}

/// Removes a VLAN from a port or, without one, from the switch.
pub fn without_vlan(port: Option<&str>, vlan: u16) -> HandEdit {
    let remove_vlans = [vlan].into_iter().collect();
    HandEdit { port: port.map(str::to_owned), remove_vlans, ..HandEdit::default() }
}

/// Defines VLANs of a switch.
pub fn define(vlans: &[u16]) -> HandEdit {
    let define_vlans = vlans.iter().map(|&id| (id, format!("v{id}"))).collect();
    HandEdit { define_vlans, ..HandEdit::default() }
}

pub fn access(port: &str, vlan: u16) -> HandEdit {
    HandEdit {
        port: Some(port.to_owned()),
        mode: Some(PortMode::Access),
        access: Some(vlan),
        ..define(&[vlan])
    }
}

/// The XML of an interface with this content of `<config>`.
pub fn interface(port: &str, content: &str) -> String {
    format!(
        "<interfaces xmlns=\"http://openconfig.net/yang/interfaces\"><interface><name>{port}</name>\
         <config>{content}</config></interface></interfaces>"
    )
}

/// The daemons of BGP whose working directory is in this directory: `(pid, program)`, ascending by program.
pub fn bgp_daemons(dir: &Path) -> Vec<(u32, String)> {
    let mut daemons = Vec::new();
    for entry in std::fs::read_dir("/proc").expect("it is mounted").flatten() {
        let pid = entry.file_name().to_str().and_then(|name| name.parse().ok());
        // A process may end meanwhile.
        let (Some(pid), Ok(cwd), Ok(program)) =
            (pid, entry.path().join("cwd").read_link(), entry.path().join("exe").read_link())
        else {
            continue;
        };
        let name = program.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
        if cwd.starts_with(dir) && program.starts_with("/usr/lib/frr") {
            daemons.push((pid, name));
        }
    }
    daemons.sort_by(|a: &(u32, String), b| a.1.cmp(&b.1));
    daemons
}

/// The Open vSwitch daemons whose command line contains this directory: `(pid, program)`.
pub fn daemons(dir: &Path) -> Vec<(u32, String)> {
    let path = dir.to_string_lossy().into_owned();
    let listed = succeed(Command::new("ps").args(["-eo", "pid=,args="]));
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    let ours = listed.lines().filter(|line| line.contains(&path)).filter_map(|line| {
        let mut words = line.split_whitespace();
        let (pid, program) = (words.next()?.parse().ok()?, words.next()?);
        let name = program.rsplit('/').next()?;
        name.starts_with("ovs").then(|| (pid, name.to_owned()))
    });
    ours.collect()
}
