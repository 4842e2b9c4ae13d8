//! An Open vSwitch for one test: a real ovsdb-server, and ovs-vswitchd with dummy interfaces.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use tempfile::TempDir;
use tokio::process::{Child, Command};

/// The schema of Debian's openvswitch-common.
const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";

/// Running daemons, killed when dropped.
pub struct OpenVswitch {
    // Fields are dropped in this order, so the directory outlives the daemons that write to it.
    _daemon: Child,
    _server: Child,
    dir: TempDir,
}

impl OpenVswitch {
    /// Starts one without bridges, which listens on a unix socket only.
    pub async fn start() -> Self {
        let dir = TempDir::with_prefix("eno-ovs-").expect("a temporary directory");
        let path = |name: &str| dir.path().join(name);
        run(program(dir.path(), "ovsdb-tool").arg("create").arg(path("db")).arg(SCHEMA)).await;
        let server = program(dir.path(), "ovsdb-server")
            .args(["--no-chdir", "-vconsole:off"])
            .arg(path("db"))
            .arg(format!("--remote=punix:{}", path("db.sock").display()))
            .arg(format!("--unixctl={}", path("db.ctl").display()))
            .spawn()
            .expect("ovsdb-server is needed (Debian: openvswitch-switch)");
        run(&mut vsctl(dir.path(), "--no-wait init -- set Open_vSwitch . ovs_version=3.1.0")).await;
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

    /// Its address in a FabricDevice.
    pub fn address(&self) -> String {
        format!("unix:{}", self.socket().display())
    }

    /// Runs `ovs-vsctl` and returns its output once ovs-vswitchd has applied the change.
    pub async fn run_vsctl(&self, arguments: &str) -> String {
        run(&mut vsctl(self.dir.path(), arguments)).await
    }

    /// Adds ports without VLANs, given as `(bridge, port)`; missing bridges are created.
    pub async fn add_closed_ports(&self, ports: impl IntoIterator<Item = (String, String)>) {
        let mut arguments = Vec::new();
        for (bridge, port) in ports {
            arguments.push(format!(
                "--may-exist add-br {bridge} -- set Bridge {bridge} datapath_type=dummy \
                 -- add-port {bridge} {port} trunks=4095"
            ));
        }
        self.run_vsctl(&format!("-- {}", arguments.join(" -- "))).await;
    }

    /// The VLANs in a port's `trunks`; panics when the list is empty, which means all VLANs.
    pub async fn vlans(&self, port: &str) -> Vec<u16> {
        let list = self.run_vsctl(&format!("get Port {port} trunks")).await;
        assert_ne!(list, "[]", "port {port} is open");
        let numbers = list.split(|char: char| !char.is_ascii_digit()).filter_map(|vlan| vlan.parse().ok());
        // 4095 is no VLAN; it keeps the list from being empty.
        numbers.filter(|vlan| *vlan != 4095).collect()
    }

    /// The number of configurations in the database (`next_cfg`).
    pub async fn configurations(&self) -> u64 {
        let count = run(&mut vsctl(self.dir.path(), "--no-wait get Open_vSwitch . next_cfg")).await;
        count.parse().expect("a number")
    }
}

fn vsctl(dir: &Path, arguments: &str) -> Command {
    let mut command = program(dir, "ovs-vsctl");
    command.arg("--retry").arg("--timeout=60").arg(format!("--db=unix:{}", dir.join("db.sock").display()));
    command.args(arguments.split_whitespace());
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

async fn run(command: &mut Command) -> String {
    let output = command.stdout(Stdio::piped()).stderr(Stdio::piped()).output().await;
    let output = output.unwrap_or_else(|error| panic!("{command:?}: {error} (Debian: openvswitch-switch)"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}
