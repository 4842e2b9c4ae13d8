//! An Open vSwitch of a test's own: a real ovsdb-server, and ovs-vswitchd with dummy interfaces.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use tempfile::TempDir;
use tokio::process::{Child, Command};

/// Where Debian's openvswitch-common puts it.
const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";

/// Ends with its value.
pub struct OpenVswitch {
    // Dropped in this order: the directory outlives those that write in it.
    _daemon: Child,
    _server: Child,
    dir: TempDir,
}

impl OpenVswitch {
    /// One without bridges, to be reached by a unix socket alone.
    pub async fn start() -> Self {
        let dir = TempDir::with_prefix("eno-ovs-").expect("a temporary directory");
        let path = |name: &str| dir.path().join(name);
        said(program(dir.path(), "ovsdb-tool").arg("create").arg(path("db")).arg(SCHEMA)).await;
        let server = program(dir.path(), "ovsdb-server")
            .args(["--no-chdir", "-vconsole:off"])
            .arg(path("db"))
            .arg(format!("--remote=punix:{}", path("db.sock").display()))
            .arg(format!("--unixctl={}", path("db.ctl").display()))
            .spawn()
            .expect("ovsdb-server is needed (Debian: openvswitch-switch)");
        said(&mut vsctl(dir.path(), "--no-wait init -- set Open_vSwitch . ovs_version=3.1.0")).await;
        let daemon = program(dir.path(), "ovs-vswitchd")
            .args(["--no-chdir", "-vconsole:off", "--enable-dummy=override"])
            .arg(format!("unix:{}", path("db.sock").display()))
            .arg(format!("--unixctl={}", path("switch.ctl").display()))
            .spawn()
            .expect("ovs-vswitchd is needed (Debian: openvswitch-switch)");
        Self { _daemon: daemon, _server: server, dir }
    }

    fn socket(&self) -> PathBuf {
        self.dir.path().join("db.sock")
    }

    /// As a FabricDevice names it.
    pub fn address(&self) -> String {
        format!("unix:{}", self.socket().display())
    }

    /// What an administrator does by hand; done when ovs-vswitchd has done it.
    pub async fn by_hand(&self, words: &str) -> String {
        said(&mut vsctl(self.dir.path(), words)).await
    }

    /// Adds ports that carry no VLAN to bridges that are made where they are missing: `(bridge, port)`.
    pub async fn add_closed_ports(&self, ports: impl IntoIterator<Item = (String, String)>) {
        let mut words = Vec::new();
        for (bridge, port) in ports {
            words.push(format!(
                "--may-exist add-br {bridge} -- set Bridge {bridge} datapath_type=dummy \
                 -- add-port {bridge} {port} trunks=4095"
            ));
        }
        self.by_hand(&format!("-- {}", words.join(" -- "))).await;
    }

    /// The VLANs that a port carries: what its `trunks` list; panics where the list is empty, which is all VLANs.
    pub async fn vlans(&self, port: &str) -> Vec<u16> {
        let list = self.by_hand(&format!("get Port {port} trunks")).await;
        assert_ne!(list, "[]", "port {port} is open");
        let numbers = list.split(|char: char| !char.is_ascii_digit()).filter_map(|vlan| vlan.parse().ok());
        // 4095 is no VLAN: it closes a list that would be empty.
        numbers.filter(|vlan| *vlan != 4095).collect()
    }

    /// How many configurations the database has seen: unchanged, nobody changed anything.
    pub async fn configurations(&self) -> u64 {
        let count = said(&mut vsctl(self.dir.path(), "--no-wait get Open_vSwitch . next_cfg")).await;
        count.parse().expect("a number")
    }
}

fn vsctl(dir: &Path, words: &str) -> Command {
    let mut command = program(dir, "ovs-vsctl");
    command.arg("--retry").arg("--timeout=60").arg(format!("--db=unix:{}", dir.join("db.sock").display()));
    command.args(words.split_whitespace());
    command
}

fn program(dir: &Path, name: &str) -> Command {
    let mut command = Command::new(name);
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{path}:/usr/sbin:/sbin"));
    command.env("OVS_RUNDIR", dir).env("OVS_LOGDIR", dir);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
    command
}

async fn said(command: &mut Command) -> String {
    let output = command.stdout(Stdio::piped()).stderr(Stdio::piped()).output().await;
    let output = output.unwrap_or_else(|error| panic!("{command:?}: {error} (Debian: openvswitch-switch)"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}
