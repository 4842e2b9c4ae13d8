//! A private Open vSwitch: a real ovsdb-server, and ovs-vswitchd with dummy interfaces.

use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::Duration;

use eno_conformance::ovs_database::{OvsDatabase, end, output, program};
use eno_conformance::{fabrics, until};
use eno_driver_ovs_fabric::credentials::Credentials;
use eno_driver_ovs_fabric::device::Limits;
use eno_driver_ovs_fabric::driver::{Options, OvsFabricDriver};
use eno_sbi::Reconciled;
use eno_schemas::{Device, FabricDesired};
use tempfile::TempDir;

pub use eno_conformance::fabrics::{applied, on};

pub const CLUSTER: &str = "c1";
pub const TARGET: &str = "ovs1";

/// The transport between the driver and ovsdb-server.
#[derive(Clone, Copy, Debug)]
pub enum Transport {
    Unix,
    Tcp,
    Tls,
}

/// An Open vSwitch with a bridge `br-fabric` whose ports are `p1` to `p4`: `p1` is a trunk of the foreign VLAN 5, `p2`
/// is closed, `p3` an access port of VLAN 6, and `p4` an open trunk.
pub struct Switch {
    /// Its directory also has the certificates.
    database: OvsDatabase,
    /// The driver's transport.
    transport: Transport,
    /// The TCP port of ovsdb-server.
    port: u16,
    /// The network namespace of ovs-vswitchd with real interfaces; absent: dummy interfaces.
    namespace: Option<String>,
    /// The ovs-vswitchd process.
    daemon: Option<Child>,
}

impl Switch {
    pub fn start() -> Self {
        Self::reached_by(Transport::Unix)
    }

    pub fn reached_by(transport: Transport) -> Self {
        let switch = Self::without_bridge(transport, None);
        switch.vsctl_and_wait(
            "add-br br-fabric -- set Bridge br-fabric datapath_type=dummy \
             -- add-port br-fabric p1 trunks=5 -- add-port br-fabric p2 trunks=4095 \
             -- add-port br-fabric p3 tag=6 -- add-port br-fabric p4",
        );
        switch
    }

    pub fn without_bridge(transport: Transport, namespace: Option<String>) -> Self {
        let dir = TempDir::with_prefix("eno-fabric-").unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut options = vec![format!("--remote={}", listener(transport, dir.path(), port))];
        if let Transport::Tls = transport {
            crate::switch::tls::issue_all(dir.path());
            let file = |option: &str, name: &str| format!("--{option}={}", dir.path().join(name).display());
            options.push(file("private-key", "server.key"));
            options.push(file("certificate", "server.pem"));
            options.push(file("ca-cert", "ca.pem"));
        }
        let database = OvsDatabase::start(dir, options);
        let mut switch = Self { database, transport, port, namespace, daemon: None };
        switch.await_listener();
        switch.vsctl("set Open_vSwitch . ovs_version=3.1.0");
        switch.start_daemon();
        switch
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.database.path(name)
    }

    pub fn start_server(&mut self) {
        self.database.resume();
        self.await_listener();
    }

    fn await_listener(&self) {
        until("ovsdb-server listens to the driver", || match self.transport {
            Transport::Unix => UnixStream::connect(self.path("driver.sock")).is_ok(),
            Transport::Tcp | Transport::Tls => TcpStream::connect(("127.0.0.1", self.port)).is_ok(),
        });
    }

    pub fn stop_server(&mut self) {
        self.database.kill();
    }

    pub fn start_daemon(&mut self) {
        let mut command = self.database.daemon("ovs-vswitchd", self.namespace.as_deref());
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

    /// The driver's address of the device.
    pub fn address(&self) -> String {
        match self.transport {
            Transport::Unix => format!("unix:{}", self.path("driver.sock").display()),
            Transport::Tcp => format!("tcp:127.0.0.1:{}", self.port),
            Transport::Tls => format!("ssl:127.0.0.1:{}", self.port),
        }
    }

    /// Makes the device reachable or unreachable for the driver.
    pub fn set_reachable(&self, reachable: bool) {
        let what = if reachable { "add-remote" } else { "remove-remote" };
        let control = self.path("db.ctl").display().to_string();
        output(program("ovs-appctl").args([
            "-t",
            &control,
            &format!("ovsdb-server/{what}"),
            &listener(self.transport, self.database.dir(), self.port),
        ]));
    }

    /// Runs ovs-vsctl as an administrator.
    pub fn vsctl(&self, args: &str) -> String {
        self.run_vsctl(&["--no-wait"], args)
    }

    /// Runs ovs-vsctl and waits until ovs-vswitchd has applied the change.
    pub fn vsctl_and_wait(&self, args: &str) -> String {
        self.run_vsctl(&[], args)
    }

    fn run_vsctl(&self, options: &[&str], args: &str) -> String {
        self.database.vsctl(&options.iter().copied().chain(args.split_whitespace()).collect::<Vec<_>>())
    }

    /// A column of a port, as ovs-vsctl writes it.
    pub fn get(&self, port: &str, column: &str) -> String {
        self.vsctl(&format!("get Port {port} {column}"))
    }

    /// All VLAN settings of a port, and its foreign labels.
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

    pub fn driver(&self) -> OvsFabricDriver {
        let limits = Limits { connect: Duration::from_millis(700), ..Limits::default() };
        let credentials = Credentials { directory: Some(self.path("credentials")) };
        OvsFabricDriver::new(Options { credentials, limits })
    }

    /// A desired state: VLANs by port.
    pub fn desired(&self, ports: &[(&str, &str)]) -> FabricDesired {
        let credential = matches!(self.transport, Transport::Tls).then(|| "ovs".to_owned());
        fabrics::desired(CLUSTER, Device { credential, ..Device::new(self.address()) }, "", ports)
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        self.stop_daemon();
    }
}

/// The `--remote` of ovsdb-server for the driver.
fn listener(transport: Transport, dir: &Path, port: u16) -> String {
    match transport {
        Transport::Unix => format!("punix:{}", dir.join("driver.sock").display()),
        Transport::Tcp => format!("ptcp:{port}:127.0.0.1"),
        Transport::Tls => format!("pssl:{port}:127.0.0.1"),
    }
}

/// Runs one reconcile.
pub async fn reconcile(driver: &OvsFabricDriver, desired: &FabricDesired) -> Reconciled {
    fabrics::reconcile(driver, TARGET, desired.clone()).await
}

/// The directory of a credential.
pub fn credential(dir: &Path) -> PathBuf {
    dir.join("credentials").join("ovs")
}
