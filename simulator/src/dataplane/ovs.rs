//! The private Open vSwitch: ovsdb-server and ovs-vswitchd with files of their own, in the namespace's namespace.

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

/// What the database socket and the control socket are called in the directory.
const DB_SOCKET: &str = "db.sock";
const CONTROL_SOCKET: &str = "vswitchd.ctl";

/// How long the database may take to listen, and a change to be in force, both in seconds.
const TIMEOUT_SECONDS: u64 = 20;

/// The first two of its addresses' six bytes, locally administered.
const ADDRESS_PREFIX: &str = "02:e0";

/// The two daemons. Dropped, it ends them.
#[derive(Debug)]
pub(super) struct Ovs {
    directory: PathBuf,
    // Dropped first: it would complain about a database that is gone.
    vswitchd: Option<Daemon>,
    ovsdb_server: Option<Daemon>,
}

impl Ovs {
    /// Starts both on an empty database.
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

    /// Whether both run.
    pub(super) fn is_running(&mut self) -> bool {
        let runs = |daemon: &mut Option<Daemon>| {
            daemon.as_mut().is_some_and(|daemon| daemon.exit_status().is_none())
        };
        runs(&mut self.ovsdb_server) && runs(&mut self.vswitchd)
    }

    /// Starts those that don't run.
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

    /// Makes all bridges and ports, and waits until they are there.
    pub(super) async fn create_bridges(
        &self,
        namespace: &NetworkNamespace,
        plan: &Plan,
        config: impl Fn(&str) -> PortConfig,
    ) -> Result<(), DataPlaneError> {
        let mut args = Arguments::new(&["init"]);
        args.command(&["set", "Open_vSwitch", "."]).add(&[
            // By default each CPU gets several: for traffic that isn't there.
            "other_config:n-handler-threads=1",
            "other_config:n-revalidator-threads=1",
            // The least, in ms: how long frames may be treated by what was configured before.
            "other_config:max-revalidator=100",
        ]);
        for bridge in &plan.bridges {
            let [high, low] = u16::try_from(bridge.number).unwrap_or(u16::MAX).to_be_bytes();
            args.command(&["add-br", &bridge.name]);
            args.command(&["set", "Bridge", &bridge.name, "datapath_type=netdev", "rstp_enable=true"]).add(
                &[
                    &format!("other_config:hwaddr=\"{ADDRESS_PREFIX}:00:00:{high:02x}:{low:02x}\""),
                    &format!("other_config:rstp-priority={}", bridge.priority),
                    // The least that IEEE 802.1D allows: links fail on command here, and nobody likes to wait.
                    "other_config:rstp-hello-time=1",
                    "other_config:rstp-max-age=6",
                    "other_config:rstp-forward-delay=4",
                    &format!("external_ids:switch={}", ovsdb_string(&bridge.switch)),
                ],
            );
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
        // ovs-vsctl says so and succeeds: the database has what it was told.
        if output.contains("Error detected") {
            let command = "ovs-vsctl".to_owned();
            return Err(DataPlaneError::Failed { command, status: "not set up".to_owned(), errors: output });
        }
        Ok(())
    }

    /// Changes ports, all in one transaction, and waits until that is in force.
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

    async fn vsctl(&self, namespace: &NetworkNamespace, args: &Arguments) -> Result<String, DataPlaneError> {
        let (timeout, database) =
            (format!("--timeout={TIMEOUT_SECONDS}"), format!("--db={}", self.database()));
        let mut all = vec![timeout.as_str(), &database];
        all.extend(args.0.iter().map(String::as_str));
        namespace.run("ovs-vsctl", &all).await
    }

    /// What RSTP does.
    pub(super) async fn rstp(&self) -> Result<RstpState, DataPlaneError> {
        self.call("rstp/show").await.map(|text| rstp::parse(&text))
    }

    /// Waits until no frame is treated by what was configured before.
    pub(super) async fn wait_for_revalidation(&self) -> Result<(), DataPlaneError> {
        self.call("revalidator/wait").await.map(drop)
    }

    async fn call(&self, method: &str) -> Result<String, DataPlaneError> {
        unixctl::call(&self.directory, CONTROL_SOCKET, method).await.map_err(|error| DataPlaneError::Daemon {
            program: VSWITCHD,
            problem: format!("does not answer {method}: {error}"),
            log: self.log(VSWITCHD),
        })
    }

    fn database(&self) -> String {
        format!("unix:{}", self.directory.join(DB_SOCKET).display())
    }

    fn log(&self, program: &str) -> PathBuf {
        self.directory.join(format!("{program}.log"))
    }
}

/// The directory, without what an earlier run left in it but logs.
fn prepare_directory(directory: &Path) -> Result<PathBuf, DataPlaneError> {
    let failed = |source| DataPlaneError::State { path: directory.to_owned(), source };
    fs::create_dir_all(directory).map_err(failed)?;
    // The daemons would take a relative path for one below a directory of theirs.
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

/// A string of OVSDB, whatever is in it.
fn ovsdb_string(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Commands for ovs-vsctl, which makes one transaction of them.
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
