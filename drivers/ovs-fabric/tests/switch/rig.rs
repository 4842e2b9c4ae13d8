//! A private Open vSwitch: a real ovsdb-server, and ovs-vswitchd with dummy interfaces.

use std::collections::BTreeMap;
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use eno_driver_ovs_fabric::credentials::Credentials;
use eno_driver_ovs_fabric::device::Limits;
use eno_driver_ovs_fabric::driver::{Options, OvsFabricDriver};
use eno_sbi::{Driver, Newest, Reconciled, Work};
use eno_schemas::{
    Applied, Desired, Device, FabricDesired, FabricPort, FabricVlan, Generation, Outcome, PortMode, VlanSet,
};
use tempfile::TempDir;

pub const CLUSTER: &str = "c1";
pub const TARGET: &str = "ovs1";

/// Where the driver gets in.
#[derive(Clone, Copy, Debug)]
pub enum Way {
    Unix,
    Tcp,
    Tls,
}

/// An Open vSwitch with a bridge `br-fabric` whose ports are `p1` to `p4`: `p1` is a trunk of the foreign VLAN 5, `p2`
/// is closed, `p3` an access port of VLAN 6, and `p4` an open trunk.
pub struct Switch {
    dir: TempDir,
    way: Way,
    port: u16,
    /// Where ovs-vswitchd runs with the interfaces that are there; absent: with dummies.
    namespace: Option<String>,
    server: Option<Child>,
    daemon: Option<Child>,
}

impl Switch {
    pub fn start() -> Self {
        Self::reached_by(Way::Unix)
    }

    pub fn reached_by(way: Way) -> Self {
        let switch = Self::without_bridge(way, None);
        switch.vsctl_and_wait(
            "add-br br-fabric -- set Bridge br-fabric datapath_type=dummy \
             -- add-port br-fabric p1 trunks=5 -- add-port br-fabric p2 trunks=4095 \
             -- add-port br-fabric p3 tag=6 -- add-port br-fabric p4",
        );
        switch
    }

    pub fn without_bridge(way: Way, namespace: Option<String>) -> Self {
        let dir = TempDir::with_prefix("eno-fabric-").unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut switch = Self { dir, way, port, namespace, server: None, daemon: None };
        let created = program("ovsdb-tool")
            .arg("create")
            .arg(switch.path("db"))
            .arg("/usr/share/openvswitch/vswitch.ovsschema")
            .status()
            .expect("ovsdb-tool is needed (Debian: openvswitch-switch)");
        assert!(created.success());
        if let Way::Tls = way {
            crate::switch::tls::issue_all(switch.dir.path());
        }
        switch.start_server();
        switch.vsctl("init -- set Open_vSwitch . ovs_version=3.1.0");
        switch.start_daemon();
        switch
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn start_server(&mut self) {
        let path = |name: &str| self.path(name).display().to_string();
        let mut command = self.command("ovsdb-server", &["--no-chdir", "-vconsole:off"]);
        command.arg(self.path("db"));
        command
            .args([format!("--remote=punix:{}", path("db.sock")), format!("--unixctl={}", path("db.ctl"))]);
        command.arg(format!("--remote={}", self.listener()));
        if let Way::Tls = self.way {
            command.arg(format!("--private-key={}", path("server.key")));
            command.arg(format!("--certificate={}", path("server.pem")));
            command.arg(format!("--ca-cert={}", path("ca.pem")));
        }
        self.server = Some(command.spawn().expect("ovsdb-server is needed (Debian: openvswitch-switch)"));
        until("ovsdb-server listens", || {
            UnixStream::connect(self.path("db.sock")).is_ok()
                && match self.way {
                    Way::Unix => UnixStream::connect(self.path("driver.sock")).is_ok(),
                    Way::Tcp | Way::Tls => TcpStream::connect(("127.0.0.1", self.port)).is_ok(),
                }
        });
    }

    pub fn stop_server(&mut self) {
        end(self.server.take());
    }

    pub fn start_daemon(&mut self) {
        let mut command = match &self.namespace {
            // `ip` becomes the daemon.
            Some(namespace) => self.command("ip", &["netns", "exec", namespace, "ovs-vswitchd"]),
            None => self.command("ovs-vswitchd", &[]),
        };
        command.args(["--no-chdir", "-vconsole:off"]);
        command.arg(format!("unix:{}", self.path("db.sock").display()));
        command.arg(format!("--unixctl={}", self.path("switch.ctl").display()));
        if self.namespace.is_none() {
            command.arg("--enable-dummy=override");
        }
        self.daemon = Some(command.spawn().unwrap());
    }

    pub fn stop_daemon(&mut self) {
        end(self.daemon.take());
    }

    /// What ovsdb-server listens at for the driver.
    fn listener(&self) -> String {
        match self.way {
            Way::Unix => format!("punix:{}", self.path("driver.sock").display()),
            Way::Tcp => format!("ptcp:{}:127.0.0.1", self.port),
            Way::Tls => format!("pssl:{}:127.0.0.1", self.port),
        }
    }

    /// How the driver gets in.
    pub fn address(&self) -> String {
        match self.way {
            Way::Unix => format!("unix:{}", self.path("driver.sock").display()),
            Way::Tcp => format!("tcp:127.0.0.1:{}", self.port),
            Way::Tls => format!("ssl:127.0.0.1:{}", self.port),
        }
    }

    /// Whether the driver gets in.
    pub fn set_reachable(&self, reachable: bool) {
        let what = if reachable { "add-remote" } else { "remove-remote" };
        let control = self.path("db.ctl").display().to_string();
        said(program("ovs-appctl").args(["-t", &control, &format!("ovsdb-server/{what}"), &self.listener()]));
    }

    /// What an administrator does by hand.
    pub fn vsctl(&self, words: &str) -> String {
        self.run_vsctl(&["--no-wait"], words)
    }

    /// The same, once the switch has it.
    pub fn vsctl_and_wait(&self, words: &str) -> String {
        self.run_vsctl(&[], words)
    }

    fn run_vsctl(&self, options: &[&str], words: &str) -> String {
        let remote = format!("--db=unix:{}", self.path("db.sock").display());
        let words = words.split_whitespace();
        said(program("ovs-vsctl").args(["--timeout=30", &remote]).args(options).args(words))
    }

    /// A column of a port, as ovs-vsctl writes it.
    pub fn get(&self, port: &str, column: &str) -> String {
        self.vsctl(&format!("get Port {port} {column}"))
    }

    /// All settings of a port that matter for VLANs, and those of its labels that are not ours.
    pub fn settings(&self, port: &str) -> String {
        let ids = self.get(port, "external_ids");
        format!(
            "{} {} {} {ids}",
            self.get(port, "tag"),
            self.get(port, "trunks"),
            self.get(port, "vlan_mode")
        )
    }

    /// The VLANs on the list of a port.
    pub fn trunks(&self, port: &str) -> Vec<u16> {
        let list = self.get(port, "trunks");
        list.split(|char: char| !char.is_ascii_digit()).filter_map(|vlan| vlan.parse().ok()).collect()
    }

    pub fn next_cfg(&self) -> u64 {
        self.vsctl("get Open_vSwitch . next_cfg").parse().unwrap()
    }

    fn command(&self, name: &str, words: &[&str]) -> Command {
        let mut command = program(name);
        command.args(words);
        command.env("OVS_RUNDIR", self.dir.path()).env("OVS_LOGDIR", self.dir.path());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command
    }

    pub fn driver(&self) -> OvsFabricDriver {
        let limits = Limits { connect: Duration::from_millis(700), ..Limits::default() };
        let credentials = Credentials { directory: Some(self.path("credentials")) };
        OvsFabricDriver::new(Options { credentials, limits })
    }

    /// What is wanted: VLANs by port.
    pub fn desired(&self, ports: &[(&str, &str)]) -> FabricDesired {
        let credential = matches!(self.way, Way::Tls).then(|| "ovs".to_owned());
        desired(&self.address(), credential, ports)
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        self.stop_daemon();
        self.stop_server();
    }
}

fn desired(address: &str, credential: Option<String>, ports: &[(&str, &str)]) -> FabricDesired {
    let mut listed: Vec<FabricPort> = ports
        .iter()
        .map(|(name, vlans)| FabricPort {
            name: (*name).into(),
            lag: None,
            mode: PortMode::Keep,
            vlans: vlans.parse().unwrap(),
            closed: false,
            before: None,
        })
        .collect();
    listed.sort_by(|one, other| one.name.cmp(&other.name));
    let all = listed.iter().fold(VlanSet::EMPTY, |all, port| all.union(&port.vlans));
    FabricDesired {
        cluster: CLUSTER.into(),
        cluster_uid: None,
        device: Device {
            address: address.into(),
            dialect: None,
            credential,
            host_key: None,
            drift: eno_schemas::Drift::Repair,
            audit_interval: None,
            adopt: VlanSet::EMPTY,
        },
        vlans: all.iter().map(|vid| FabricVlan { vid, owners: vec![format!("L2Service/s{vid}")] }).collect(),
        ports: listed,
    }
}

/// Has the driver do it.
pub async fn reconcile(driver: &OvsFabricDriver, desired: &FabricDesired) -> Reconciled {
    let desired = Desired::Fabric(desired.clone());
    let generation = Generation { term: 1, sequence: 1, hash: desired.hash() };
    let command = eno_schemas::Command {
        driver: "ovs-fabric".into(),
        target: TARGET.into(),
        generation,
        desired,
        transaction: None,
    };
    let command = Arc::new(command);
    let (_newest, seen) = tokio::sync::watch::channel(Newest::Command(Arc::clone(&command)));
    let (progress, _messages) = tokio::sync::mpsc::channel(16);
    driver.reconcile(Work::new(command, seen, progress)).await
}

/// The same, where it has to end well.
#[track_caller]
pub fn applied(reconciled: &Reconciled) -> BTreeMap<String, String> {
    assert_eq!(reconciled.outcome, Outcome::Applied, "{reconciled:?}");
    match &reconciled.applied {
        Some(Applied::Fabric { ports, .. }) => {
            ports.iter().map(|(port, vlans)| (port.clone(), vlans.to_string())).collect()
        }
        other => panic!("{other:?}"),
    }
}

pub fn on(ports: &[(&str, &str)]) -> BTreeMap<String, String> {
    ports.iter().map(|(port, vlans)| ((*port).to_owned(), (*vlans).to_owned())).collect()
}

/// What must happen, within the time that a busy machine needs.
pub async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    let limit = Duration::from_secs(30);
    tokio::time::timeout(limit, future).await.unwrap_or_else(|late| panic!("{what} did not happen: {late}"))
}

pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !holds() {
        assert!(Instant::now() < deadline, "{what}: not within 30 s");
        std::thread::yield_now();
    }
}

pub fn end(child: Option<Child>) {
    if let Some(mut child) = child {
        // It may have ended by itself.
        let _ = child.kill();
        let _ = child.wait();
    }
}

pub fn program(name: &str) -> Command {
    let mut command = Command::new(name);
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{path}:/usr/sbin:/sbin"));
    command
}

pub fn said(command: &mut Command) -> String {
    let Output { status, stdout, stderr } = command.output().unwrap();
    assert!(status.success(), "{command:?}: {}", String::from_utf8_lossy(&stderr));
    String::from_utf8_lossy(&stdout).trim().to_owned()
}

/// Where a credential is.
pub fn credential(dir: &Path) -> PathBuf {
    dir.join("credentials").join("ovs")
}
