//! A machine (node or gateway): its namespaces, files and programs.

use std::ffi::OsString;
use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::configuration::{CONTAINERD_SOCKET, OVSDB_SOCKET};
use super::namespace_holder::{self, PRIVATE_DIRECTORIES};
use super::programs::Programs;
use super::{NodeError, POLL_INTERVAL};
use crate::programs::flag;
use crate::supervisor::Supervisor;

pub(super) const KUBELET_CONFIGURATION: &str = "/var/lib/kubelet/config.yaml";
pub(super) const KUBELET_KUBECONFIG: &str = "/var/lib/kubelet/kubeconfig";
pub(super) const PROXY_CONFIGURATION: &str = "/var/lib/kube-proxy/config.yaml";
pub(super) const PROXY_KUBECONFIG: &str = "/var/lib/kube-proxy/kubeconfig";
pub(super) const CONTAINERD_CONFIGURATION: &str = "/var/lib/containerd.toml";
const DATABASE: &str = "/run/openvswitch/conf.db";

/// A daemon on a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Service {
    /// ovsdb-server, the configuration database of Open vSwitch.
    Ovsdb,
    /// ovs-vswitchd.
    Vswitchd,
    /// containerd, the container runtime.
    Containerd,
    /// kubelet.
    Kubelet,
    /// kube-proxy, on nodes of clusters with Services.
    KubeProxy,
}

impl Service {
    /// All services in start order.
    pub const ALL: [Self; 5] =
        [Self::Ovsdb, Self::Vswitchd, Self::Containerd, Self::Kubelet, Self::KubeProxy];

    /// The suffix of its process name, after the machine's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ovsdb => "ovsdb",
            Self::Vswitchd => "vswitchd",
            Self::Containerd => "containerd",
            Self::Kubelet => "kubelet",
            Self::KubeProxy => "kube-proxy",
        }
    }

    pub(super) const fn is_for_pods(self) -> bool {
        matches!(self, Self::Containerd | Self::Kubelet | Self::KubeProxy)
    }

    /// Path of its socket inside the machine; it listens when it is ready.
    pub(super) const fn socket(self) -> Option<&'static str> {
        match self {
            Self::Ovsdb => Some(OVSDB_SOCKET),
            Self::Containerd => Some(CONTAINERD_SOCKET),
            Self::Vswitchd | Self::Kubelet | Self::KubeProxy => None,
        }
    }
}

/// The namespaces of a machine, held by a holder process. All clones are the same machine.
#[derive(Debug, Clone)]
pub struct Machine {
    name: String,
    root: PathBuf,
    /// Process id of `init`; it changes with each start.
    pid: Arc<AtomicU32>,
    holder: PathBuf,
    cgroup: Option<String>,
}

impl Machine {
    /// Starts the holder, whose process has the machine's name, and waits for the namespaces.
    pub(super) async fn start(
        holder: &Path,
        directory: PathBuf,
        name: String,
        cgroup: Option<String>,
        supervisor: &Supervisor,
    ) -> Result<Self, NodeError> {
        let (root, pid, holder) = (directory.join(&name), Arc::default(), holder.to_owned());
        let machine = Self { name, root, pid, holder, cgroup };
        machine.restart(supervisor).await?;
        Ok(machine)
    }

    /// Starts an ended machine again, with new namespaces and empty directories.
    pub(super) async fn restart(&self, supervisor: &Supervisor) -> Result<(), NodeError> {
        fs::create_dir_all(&self.root).map_err(NodeError::file("making the directory", &self.root))?;
        let pid_file = self.root.join(namespace_holder::PID_FILE);
        // Delete the file of an earlier run, to wait for the new one.
        match fs::remove_file(&pid_file) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(NodeError::file("removing", &pid_file)(error));
            }
            _ => {}
        }
        let mut command = Command::new(&self.holder);
        command.args(["hold", "--forward", "--hostname", &self.name]).arg("--root").arg(&self.root);
        if let Some(cgroup) = &self.cgroup {
            command.arg("--cgroup").arg(cgroup);
        }
        supervisor.spawn_with_cleanup(&self.name, command).await?;
        let pid = loop {
            match fs::read_to_string(&pid_file) {
                Ok(text) => break text.trim().parse().unwrap_or_default(),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                    tokio::time::sleep(POLL_INTERVAL).await;
                }
                Err(error) => return Err(NodeError::file("reading", &pid_file)(error)),
            }
        };
        self.pid.store(pid, Ordering::Relaxed);
        Ok(())
    }

    /// Whether its namespaces exist.
    pub fn is_up(&self) -> bool {
        self.network_namespace().exists()
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Process id of `init`, as seen from the host.
    pub fn pid(&self) -> u32 {
        self.pid.load(Ordering::Relaxed)
    }

    /// Path of its network namespace.
    pub fn network_namespace(&self) -> PathBuf {
        format!("/proc/{}/ns/net", self.pid()).into()
    }

    /// Translates a path inside the machine into one on the host, through `/proc`, mounts included. It is short enough
    /// for socket addresses.
    pub fn inside(&self, path: impl AsRef<Path>) -> PathBuf {
        let root = PathBuf::from(format!("/proc/{}/root", self.pid()));
        root.join(path.as_ref().strip_prefix("/").unwrap_or(path.as_ref()))
    }

    /// Translates a path inside the machine into one on the host that exists even before the machine runs, if it is
    /// below
    /// a private directory.
    pub(super) fn host_path(&self, path: &str) -> PathBuf {
        let private = PRIVATE_DIRECTORIES
            .iter()
            .find_map(|(name, target)| Some((name, Path::new(path).strip_prefix(target).ok()?)));
        private.map_or_else(|| self.inside(path), |(name, rest)| self.root.join(name).join(rest))
    }

    /// The process name of a service on this machine.
    pub fn child(&self, service: Service) -> String {
        format!("{}-{}", self.name, service.name())
    }

    /// Returns a command that runs a program on this machine. The caller can add arguments.
    pub fn command(&self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new(&self.holder);
        command.arg("run").arg("--pid").arg(self.pid().to_string()).arg("--").arg(program.as_ref());
        command.env("PATH", super::programs::path());
        command
    }

    /// Returns the host process id of the program that a process of [`Self::command`] runs; `None` if it has ended.
    pub fn program_of(process: u32) -> Option<u32> {
        let children = fs::read_to_string(format!("/proc/{process}/task/{process}/children")).ok()?;
        children.split_whitespace().next()?.parse().ok()
    }
}

/// Creates an empty database of Open vSwitch.
pub(super) async fn create_ovs_database(machine: &Machine, programs: &Programs) -> Result<(), NodeError> {
    let database = machine.host_path(DATABASE);
    if let Some(directory) = database.parent() {
        fs::create_dir_all(directory).map_err(NodeError::file("making the directory", directory))?;
    }
    let insert = r#"["Open_vSwitch", {"op": "insert", "table": "Open_vSwitch", "row": {}}]"#;
    let create: [&Path; 3] = [Path::new("create"), &database, &programs.ovs_schema];
    let transact: [&Path; 3] = [Path::new("transact"), &database, Path::new(insert)];
    for arguments in [create, transact] {
        let mut tool = tokio::process::Command::new(&programs.ovsdb_tool);
        tool.args(arguments).stdin(Stdio::null()).kill_on_drop(true);
        let output = tool.output().await.map_err(NodeError::file("running", &programs.ovsdb_tool))?;
        if !output.status.success() {
            let message = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            return Err(NodeError::Program { program: programs.ovsdb_tool.display().to_string(), message });
        }
    }
    Ok(())
}

/// Adds rules of nftables on a machine.
pub(super) async fn add_rules(machine: &Machine, rules: &str) -> Result<(), NodeError> {
    let mut nft = machine.command("nft");
    nft.arg(rules).stdin(Stdio::null());
    let output = tokio::process::Command::from(nft).kill_on_drop(true).output().await;
    let output = output.map_err(NodeError::file("running", Path::new("nft")))?;
    if output.status.success() {
        return Ok(());
    }
    let message = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(NodeError::Program { program: "nft".to_owned(), message })
}

pub(super) fn ovsdb(machine: &Machine, programs: &Programs) -> Command {
    let mut command = machine.command(&programs.ovsdb_server);
    command.arg(DATABASE).arg(flag("remote", format!("punix:{OVSDB_SOCKET}")));
    // ovs-appctl and ovs-vsctl find the daemon by its pid file.
    command.args(["--pidfile", "--no-chdir", "-vconsole:warn", "-vsyslog:off"]);
    command
}

pub(super) fn vswitchd(machine: &Machine, programs: &Programs) -> Command {
    let mut command = machine.command(&programs.ovs_vswitchd);
    command.arg(format!("unix:{OVSDB_SOCKET}"));
    command.args(["--pidfile", "--no-chdir", "-vconsole:warn", "-vsyslog:off"]);
    command
}

pub(super) fn containerd(machine: &Machine, programs: &Programs) -> Command {
    let mut command = machine.command(&programs.containerd);
    command.args([flag("config", CONTAINERD_CONFIGURATION), "--log-level=warn".into()]);
    command
}

pub(super) fn kubelet(machine: &Machine, kubelet: &Path, address: Ipv4Addr) -> Command {
    let mut command = machine.command(kubelet);
    let flags: [OsString; 5] = [
        flag("config", KUBELET_CONFIGURATION),
        flag("kubeconfig", KUBELET_KUBECONFIG),
        flag("hostname-override", machine.name()),
        flag("node-ip", address.to_string()),
        flag("root-dir", "/var/lib/kubelet"),
    ];
    command.args(flags);
    command
}

pub(super) fn kube_proxy(machine: &Machine, program: &Path) -> Command {
    let mut command = machine.command(program);
    command.arg(flag("config", PROXY_CONFIGURATION));
    command
}
