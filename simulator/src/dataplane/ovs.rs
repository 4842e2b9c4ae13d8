//! The private Open vSwitch: ovsdb-server and ovs-vswitchd with their own files, in the data plane's namespace.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::dataplane::DataPlaneError;
use crate::dataplane::namespace::{Daemon, NetworkNamespace};
use crate::dataplane::plan::{Peer, Plan};
use crate::dataplane::port_config::PortConfig;
use crate::dataplane::rstp::{self, RstpState};
use crate::dataplane::unixctl;

const OVSDB_SERVER: &str = "ovsdb-server";
const VSWITCHD: &str = "ovs-vswitchd";

/// File names of the database socket and the control socket.
const DB_SOCKET: &str = "db.sock";
pub(super) const CONTROL_SOCKET: &str = "vswitchd.ctl";

/// Timeout in seconds for the database to listen and for ovs-vswitchd to apply a change.
const TIMEOUT_SECONDS: u64 = 20;

/// The first two of the six bytes of bridge MAC addresses, locally administered.
const ADDRESS_PREFIX: &str = "02:e0";

/// The two daemons; dropping this kills them.
#[derive(Debug)]
pub(super) struct Ovs {
    directory: PathBuf,
    // Dropped before ovsdb-server: otherwise it would log a lost database.
    vswitchd: Option<Daemon>,
    ovsdb_server: Option<Daemon>,
}

impl Ovs {
    /// Starts both daemons on an empty database.
    pub(super) async fn start(
        namespace: &NetworkNamespace,
        directory: &Path,
    ) -> Result<Self, DataPlaneError> {
        let directory = prepare_directory(directory)?;
        let db = directory.join("conf.db");
        namespace.run("ovsdb-tool", &["create", &db.to_string_lossy()]).await?;
        let mut ovs = Self { directory, vswitchd: None, ovsdb_server: None };
        ovs.restart(namespace).await?;
        Ok(ovs)
    }

    /// The absolute path of the directory.
    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Whether both daemons run.
    pub(super) fn is_running(&mut self) -> bool {
        let runs = |daemon: &mut Option<Daemon>| {
            daemon.as_mut().is_some_and(|daemon| daemon.exit_status().is_none())
        };
        runs(&mut self.ovsdb_server) && runs(&mut self.vswitchd)
    }

    /// Starts the daemons that don't run.
    pub(super) async fn restart(&mut self, namespace: &NetworkNamespace) -> Result<(), DataPlaneError> {
        for program in [OVSDB_SERVER, VSWITCHD] {
            let daemon = if program == OVSDB_SERVER { &mut self.ovsdb_server } else { &mut self.vswitchd };
            match daemon.as_mut().map(Daemon::exit_status) {
                Some(None) => continue,
                Some(Some(status)) => {
                    let log = self.log(program);
                    tracing::warn!(program, status, log = %log.display(), "ended, and is started again");
                }
                None => {}
            }
            let daemon = self.launch(namespace, program).await?;
            if program == OVSDB_SERVER {
                self.ovsdb_server = Some(daemon);
                self.wait_for_database().await?;
            } else {
                self.vswitchd = Some(daemon);
            }
        }
        Ok(())
    }

    async fn launch(
        &self,
        namespace: &NetworkNamespace,
        program: &'static str,
    ) -> Result<Daemon, DataPlaneError> {
        let path = |name: &str| self.directory.join(name).to_string_lossy().into_owned();
        let args = if program == OVSDB_SERVER {
            vec![
                format!("--remote=punix:{}", path(DB_SOCKET)),
                format!("--unixctl={}", path("ovsdb-server.ctl")),
                path("conf.db"),
            ]
        } else {
            vec![format!("--unixctl={}", path(CONTROL_SOCKET)), self.database()]
        };
        let directories = ["OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR", "OVS_SYSCONFDIR"];
        let envs = directories.map(|name| (name, self.directory.clone()));
        let log = self.log(program);
        let file = File::options()
            .create(true)
            .append(true)
            .open(&log)
            .map_err(|source| DataPlaneError::State { path: log, source })?;
        namespace.spawn(program, &args, &envs, file).await
    }

    async fn wait_for_database(&mut self) -> Result<(), DataPlaneError> {
        let deadline = Instant::now() + Duration::from_secs(TIMEOUT_SECONDS);
        let problem = loop {
            if unixctl::connect(&self.directory, DB_SOCKET).await.is_ok() {
                return Ok(());
            }
            if let Some(status) = self.ovsdb_server.as_mut().and_then(Daemon::exit_status) {
                break format!("ended ({status})");
            }
            if Instant::now() > deadline {
                break format!("does not listen after {TIMEOUT_SECONDS} s");
            }
            sleep(Duration::from_millis(10)).await;
        };
        Err(DataPlaneError::Daemon { program: OVSDB_SERVER, problem, log: self.log(OVSDB_SERVER) })
    }

    /// Creates all bridges and ports, and waits until ovs-vswitchd has applied them.
    pub(super) async fn create_bridges(
        &self,
        namespace: &NetworkNamespace,
        plan: &Plan,
        config: impl Fn(&str) -> PortConfig,
    ) -> Result<(), DataPlaneError> {
        let mut args = Arguments::new(&["init"]);
        args.command(&["set", "Open_vSwitch", "."]).add(&[
            // The default is several threads per CPU, which the small load here doesn't need.
            "other_config:n-handler-threads=1",
            "other_config:n-revalidator-threads=1",
            // The minimum, in ms: after a change, frames may match old flows for so long.
            "other_config:max-revalidator=100",
        ]);
        for bridge in &plan.bridges {
            let [high, low] = u16::try_from(bridge.number).unwrap_or(u16::MAX).to_be_bytes();
            args.command(&["add-br", &bridge.name]);
            args.command(&["set", "Bridge", &bridge.name, "datapath_type=netdev", "rstp_enable=true"]).add(
                &[
                    &format!("other_config:hwaddr=\"{ADDRESS_PREFIX}:00:00:{high:02x}:{low:02x}\""),
                    &format!("other_config:rstp-priority={}", bridge.priority),
                    // The minima of IEEE 802.1D, for fast convergence.
                    "other_config:rstp-hello-time=1",
                    "other_config:rstp-max-age=6",
                    "other_config:rstp-forward-delay=4",
                    &format!("external_ids:switch={}", ovsdb_string(&bridge.switch)),
                ],
            );
            let [vrf_bridge, uplink, downlink] =
                [bridge.vrf_bridge(), bridge.vrf_uplink(), bridge.vrf_downlink()];
            args.command(&["add-br", &vrf_bridge]);
            args.command(&["set", "Bridge", &vrf_bridge, "datapath_type=netdev"]);
            args.command(&["add-port", &bridge.name, &downlink]);
            args.command(&["set", "Port", &downlink, "other_config:rstp-port-admin-edge=true"]);
            args.command(&["add-port", &vrf_bridge, &uplink]);
        }
        for (bridge, port) in plan.ports() {
            args.command(&["add-port", &bridge.name, &port.interface]);
            args.command(&["set", "Port", &port.interface]).add(&config(&port.interface).columns());
            args.add(&[
                &format!("other_config:rstp-port-num={}", port.number.clamp(1, 4095)),
                &format!("external_ids:port={}", ovsdb_string(&port.name)),
            ]);
            if matches!(port.peer, Peer::Outside { .. }) {
                args.add(&["other_config:rstp-port-admin-edge=true"]);
            }
        }
        let output = self.vsctl(namespace, &args).await?;
        // ovs-vsctl exits with 0 although ovs-vswitchd failed, because the database was written.
        if output.contains("Error detected") {
            let command = "ovs-vsctl".to_owned();
            return Err(DataPlaneError::Failed { command, status: "not set up".to_owned(), errors: output });
        }
        Ok(())
    }

    /// Changes ports in one transaction and waits until ovs-vswitchd has applied it.
    pub(super) async fn change_ports<'a>(
        &self,
        namespace: &NetworkNamespace,
        changes: impl IntoIterator<Item = (&'a str, &'a PortConfig)>,
    ) -> Result<(), DataPlaneError> {
        let mut args = Arguments::new(&[]);
        for (interface, config) in changes {
            args.command(&["set", "Port", interface]).add(&config.columns());
        }
        self.vsctl(namespace, &args).await.map(drop)
    }

    /// Adds ports of untagged frames, each with its interface and its VLAN, and waits until ovs-vswitchd has applied
    /// it.
    pub(super) async fn add_access_ports(
        &self,
        namespace: &NetworkNamespace,
        bridge: &str,
        ports: &[(String, u16)],
    ) -> Result<(), DataPlaneError> {
        if ports.is_empty() {
            return Ok(());
        }
        let mut args = Arguments::new(&[]);
        for (interface, vlan) in ports {
            args.command(&["--may-exist", "add-port", bridge, interface]);
            args.command(&["set", "Port", interface, "vlan_mode=access", &format!("tag={vlan}")]);
        }
        self.vsctl(namespace, &args).await.map(drop)
    }

    /// Removes ports and waits until ovs-vswitchd has applied it.
    pub(super) async fn remove_ports(
        &self,
        namespace: &NetworkNamespace,
        bridge: &str,
        interfaces: &[String],
    ) -> Result<(), DataPlaneError> {
        let mut args = Arguments::new(&[]);
        for interface in interfaces {
            args.command(&["--if-exists", "del-port", bridge, interface]);
        }
        self.vsctl(namespace, &args).await.map(drop)
    }

    async fn vsctl(&self, namespace: &NetworkNamespace, args: &Arguments) -> Result<String, DataPlaneError> {
        let (timeout, database) =
            (format!("--timeout={TIMEOUT_SECONDS}"), format!("--db={}", self.database()));
        let mut all = vec![timeout.as_str(), &database];
        all.extend(args.0.iter().map(String::as_str));
        namespace.run("ovs-vsctl", &all).await
    }

    /// The current RSTP state.
    pub(super) async fn rstp(&self) -> Result<RstpState, DataPlaneError> {
        self.call("rstp/show").await.map(|text| rstp::parse(&text))
    }

    /// Waits until no frame matches flows of the previous configuration.
    pub(super) async fn wait_for_revalidation(&self) -> Result<(), DataPlaneError> {
        self.call("revalidator/wait").await.map(drop)
    }

    async fn call(&self, method: &str) -> Result<String, DataPlaneError> {
        unixctl::call(&self.directory, CONTROL_SOCKET, method, &[]).await.map_err(|error| {
            DataPlaneError::Daemon {
                program: VSWITCHD,
                problem: format!("does not answer {method}: {error}"),
                log: self.log(VSWITCHD),
            }
        })
    }

    fn database(&self) -> String {
        format!("unix:{}", self.directory.join(DB_SOCKET).display())
    }

    fn log(&self, program: &str) -> PathBuf {
        self.directory.join(format!("{program}.log"))
    }
}

/// Creates the directory and deletes the files of an earlier run except logs. Returns its absolute path.
fn prepare_directory(directory: &Path) -> Result<PathBuf, DataPlaneError> {
    let failed = |source| DataPlaneError::State { path: directory.to_owned(), source };
    fs::create_dir_all(directory).map_err(failed)?;
    // The daemons resolve relative paths against directories of their own.
    let directory = directory.canonicalize().map_err(failed)?;
    for name in ["conf.db", ".conf.db.~lock~", DB_SOCKET, CONTROL_SOCKET, "ovsdb-server.ctl"] {
        match fs::remove_file(directory.join(name)) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                return Err(DataPlaneError::State { path: directory.join(name), source });
            }
            _ => {}
        }
    }
    Ok(directory)
}

/// Quotes a string for OVSDB.
fn ovsdb_string(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Arguments of ovs-vsctl: commands of one transaction.
#[derive(Debug)]
struct Arguments(Vec<String>);

impl Arguments {
    fn new(first: &[&str]) -> Self {
        Self(first.iter().map(|&arg| arg.to_owned()).collect())
    }

    fn command(&mut self, command: &[&str]) -> &mut Self {
        self.0.push("--".to_owned());
        self.add(command)
    }

    fn add(&mut self, args: &[impl AsRef<str>]) -> &mut Self {
        self.0.extend(args.iter().map(|arg| arg.as_ref().to_owned()));
        self
    }
}
