//! Starts the programs of a control plane in a directory, in the order of their dependencies.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http::Request;
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::TcpStream;

use crate::directory::{Directory, DirectoryError, Kind, write_private};
use crate::kubeconfig::{file_name, kubeconfig};
use crate::nats::{AUTHORIZATION, LIMITS, NatsInfo, NatsKey, NatsKeyError, nats_keys};
use crate::node::{Node, NodeError, Nodes, NodesOptions};
use crate::parts::{Part, Parts, PartsError};
use crate::pki::{self, Authority, PkiError};
use crate::ports::Ports;
use crate::programs::{self, AuditFiles, Files};
use crate::supervisor::{Exited, SuperviseError, Supervisor};

/// Timeout of each step of a start; generous for busy machines.
const START_TIMEOUT: Duration = Duration::from_mins(3);
/// Poll interval for conditions without notification.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Maximum start attempts. Another process can take a picked port before the program binds it.
const MAX_START_ATTEMPTS: usize = 3;

/// A control plane can't be started or used.
#[derive(Debug, thiserror::Error)]
pub enum ControlPlaneError {
    /// A program can't be obtained.
    #[error(transparent)]
    Parts(#[from] PartsError),
    /// The directory can't be used.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    /// A key or certificate can't be created.
    #[error(transparent)]
    Pki(#[from] PkiError),
    /// A child process can't be started.
    #[error(transparent)]
    Supervise(#[from] SuperviseError),
    /// No port is free.
    #[error("picking a port: {0}")]
    Ports(#[source] std::io::Error),
    /// A node can't be started.
    #[error(transparent)]
    Node(#[from] NodeError),
    /// The key of a NATS user can't be used.
    #[error(transparent)]
    NatsKey(#[from] NatsKeyError),
    /// A program exited during the start.
    #[error("{0}")]
    Exited(Exited),
    /// A start took too long; a retry can help on a machine that is less busy.
    #[error("{waited_for} after {} s; see the logs in {}", START_TIMEOUT.as_secs(), logs.display())]
    NotReady {
        /// The condition that did not occur.
        waited_for: &'static str,
        /// Directory of the logs.
        logs: PathBuf,
    },
    /// A client of the API can't be created.
    #[error("making a client from {}: {source}", path.display())]
    Client {
        /// The kubeconfig.
        path: PathBuf,
        /// The cause.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// Options of a control plane.
#[derive(Debug, Clone)]
pub struct ControlPlaneOptions {
    /// Directory with all state; created if absent. A start with an existing directory resumes the same cluster.
    pub dir: PathBuf,
    /// Finds or builds the programs.
    pub parts: Parts,
    /// Disabled controllers of kube-controller-manager.
    pub disabled_controllers: Vec<String>,
    /// Nodes that run pods, which need root; `None` for a control plane without nodes and scheduler.
    pub nodes: Option<NodesOptions>,
    /// Whether the API server writes an audit log ([`ControlPlane::audit_log`]): a JSON line per request, an
    /// `audit.k8s.io/v1` Event without bodies.
    pub audit: bool,
}

impl ControlPlaneOptions {
    /// Creates options without nodes, and without the node lifecycle controller.
    pub fn new(dir: impl Into<PathBuf>, parts: Parts) -> Self {
        Self {
            dir: dir.into(),
            parts,
            disabled_controllers: vec!["node-lifecycle-controller".to_owned()],
            nodes: None,
            audit: false,
        }
    }

    /// Adds nodes that run pods, and enables all controllers.
    #[must_use]
    pub fn with_nodes(self, nodes: NodesOptions) -> Self {
        Self { nodes: Some(nodes), disabled_controllers: Vec::new(), ..self }
    }
}

/// A running control plane. [`ControlPlane::stop`] stops it in order; dropping it kills its child processes.
#[derive(Debug)]
pub struct ControlPlane {
    /// The child processes. Dropped before the directory, so that they end before its lock is released.
    supervisor: Supervisor,
    /// The nodes, if any.
    nodes: Option<Nodes>,
    /// URL of the API server.
    server: String,
    /// Path of the administrator's kubeconfig.
    kubeconfig: PathBuf,
    /// How to connect to NATS.
    nats: NatsInfo,
    /// The locked directory with all state.
    directory: Directory,
}

impl ControlPlane {
    /// Obtains the programs and starts them. Returns when the API is ready, the default namespaces and service accounts
    /// exist, and JetStream is enabled. Nodes may not be ready yet.
    pub async fn start(options: ControlPlaneOptions) -> Result<Self, ControlPlaneError> {
        let directory = Directory::open(&options.dir, Kind::ControlPlane)?;
        if let Some(nodes) = &options.nodes {
            nodes.check()?;
        }
        let programs = Programs::get(&options).await?;
        let mut control_plane = Self {
            supervisor: Supervisor::new(directory.join("logs"))?,
            nodes: None,
            server: String::new(),
            kubeconfig: directory.join("kubeconfig"),
            nats: NatsInfo { url: String::new(), directory: directory.join("nats") },
            directory,
        };
        if let Some(nodes) = &options.nodes {
            Box::pin(control_plane.prepare_nodes(nodes, &options.parts)).await?;
        }
        let address = control_plane.address();
        let mut last = control_plane.directory.read_json(PORTS_FILE);
        for attempt in 1.. {
            let ports = Ports::pick(address, last).map_err(ControlPlaneError::Ports)?;
            // Boxed to keep the callers' futures small.
            let started = Box::pin(control_plane.start_programs(&programs, &options, ports)).await;
            match started {
                Ok(()) => break,
                Err(ControlPlaneError::Exited(exited))
                    if port_was_taken(&exited) && attempt < MAX_START_ATTEMPTS =>
                {
                    tracing::warn!(child = exited.name, "its port was taken; trying others");
                    control_plane.stop_programs().await;
                    last = None;
                }
                Err(error) => {
                    control_plane.supervisor.stop().await;
                    return Err(error);
                }
            }
        }
        if let Err(error) = Box::pin(control_plane.start_nodes()).await {
            control_plane.supervisor.stop().await;
            return Err(error);
        }
        Ok(control_plane)
    }

    /// Creates the machines of the nodes and their network, on which the API server listens.
    async fn prepare_nodes(
        &mut self,
        options: &NodesOptions,
        parts: &Parts,
    ) -> Result<(), ControlPlaneError> {
        let preparing = Nodes::prepare(options, parts, &self.supervisor, &self.directory);
        let prepared = tokio::select! {
            biased;
            exited = self.supervisor.exited() => Err(ControlPlaneError::Exited(exited)),
            nodes = preparing => nodes.map_err(ControlPlaneError::Node),
            () = tokio::time::sleep(START_TIMEOUT) => Err(self.not_ready("the nodes have no namespaces")),
        };
        match prepared {
            Ok(nodes) => self.nodes = Some(nodes),
            Err(error) => {
                self.supervisor.stop().await;
                return Err(error);
            }
        }
        Ok(())
    }

    /// Starts the programs of the nodes, without waiting for ready nodes.
    async fn start_nodes(&self) -> Result<(), ControlPlaneError> {
        let Some(nodes) = &self.nodes else { return Ok(()) };
        for node in nodes.all() {
            self.configure(nodes, node)?;
        }
        tokio::select! {
            biased;
            exited = self.supervisor.exited() => Err(ControlPlaneError::Exited(exited)),
            started = nodes.start(&self.supervisor) => Ok(started?),
            () = tokio::time::sleep(START_TIMEOUT) => Err(self.not_ready("containerd or Open vSwitch does not listen")),
        }
    }

    /// Writes the certificates, the kubeconfig and the configuration of a node.
    fn configure(&self, nodes: &Nodes, node: &Node) -> Result<(), ControlPlaneError> {
        let authority = self.authority()?;
        let names = [node.name().to_owned(), node.address().to_string()];
        let certificate = authority.server(&self.directory.join("pki"), node.name(), &names)?;
        let user = format!("system:node:{}", node.name());
        let kubeconfig = self.kubeconfig_for(&user, Some("system:nodes"))?;
        let proxy = self.kubeconfig_for("system:kube-proxy", None)?;
        Ok(nodes.configure(node, &authority.path, &certificate, &kubeconfig, &proxy)?)
    }

    /// Recreates a machine that has ended, with new namespaces and empty directories, and starts its programs.
    pub async fn restart_machine(&self, name: &str) -> Result<(), ControlPlaneError> {
        let unknown = || ControlPlaneError::Node(NodeError::Unknown { name: name.to_owned() });
        let nodes = self.nodes.as_ref().ok_or_else(unknown)?;
        let machine = nodes.machine(name).ok_or_else(unknown)?;
        let restarting = async {
            nodes.restart(&self.supervisor, machine).await?;
            if let Some(node) = nodes.get(name) {
                self.configure(nodes, node)?;
            }
            Ok(nodes.start_services(&self.supervisor, machine).await?)
        };
        tokio::select! {
            restarted = restarting => restarted,
            () = tokio::time::sleep(START_TIMEOUT) => Err(self.not_ready("a machine does not come up again")),
        }
    }

    async fn start_programs(
        &mut self,
        programs: &Programs,
        options: &ControlPlaneOptions,
        ports: Ports,
    ) -> Result<(), ControlPlaneError> {
        self.directory.write_json(PORTS_FILE, &ports)?;
        self.server = format!("https://{}:{}", self.address(), ports.api_server);
        self.nats.url = format!("nats://{}:{}", self.address(), ports.nats);
        let files = self.write_files(options.audit)?;

        let (configuration, users) = self.write_nats_configuration()?;
        self.spawn(Part::Etcd, programs::etcd(&programs.etcd, &files, ports)).await?;
        let nats = programs::nats(&programs.nats, &files, &configuration, ports, &users);
        self.spawn(Part::NatsServer, nats).await?;
        self.wait_for("etcd does not listen", until_listening(ports.etcd)).await?;
        self.spawn(Part::KubeApiserver, programs::api_server(&programs.api_server, &files, ports)).await?;
        self.wait_for("nats-server has no JetStream", until_jetstream_is_enabled(self.address(), ports.nats))
            .await?;
        // The controller manager polls the API once a second; started later, it finds the API ready at once.
        let client = self.client().await?;
        self.wait_for("kube-apiserver is not ready", until_api_is_ready(&client)).await?;
        let manager =
            programs::controller_manager(&programs.controller_manager, &files, &options.disabled_controllers);
        self.spawn(Part::KubeControllerManager, manager).await?;
        if let Some(scheduler) = &programs.scheduler {
            self.spawn(Part::KubeScheduler, programs::scheduler(scheduler, &files)).await?;
        }
        self.wait_for("there are no default namespaces", until_default_namespaces_exist(&client)).await
    }

    /// Absolute path of the directory.
    pub fn dir(&self) -> &Path {
        self.directory.path()
    }

    /// Path of the audit log, if enabled.
    pub fn audit_log(&self) -> PathBuf {
        self.directory.join("logs/audit.json")
    }

    /// The nodes, if any.
    pub fn nodes(&self) -> Option<&Nodes> {
        self.nodes.as_ref()
    }

    /// Listen address of the API server and NATS: loopback, or with nodes an address on their network.
    pub fn address(&self) -> Ipv4Addr {
        self.nodes.as_ref().map_or(Ipv4Addr::LOCALHOST, Nodes::machine_address)
    }

    /// URL of the API server: `https://ADDRESS:PORT`.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// Path of the administrator's kubeconfig (group `system:masters`).
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Writes a kubeconfig of another user and returns its path. The user has the RBAC rights of the user, the group
    /// and `system:authenticated`. For a service account, use `system:serviceaccount:NAMESPACE:NAME`. Only the owner
    /// can read the file.
    pub fn kubeconfig_for(&self, user: &str, group: Option<&str>) -> Result<PathBuf, ControlPlaneError> {
        let name = file_name(&group.map_or_else(|| user.to_owned(), |group| format!("{user}@{group}")));
        self.write_kubeconfig(&Path::new("kubeconfigs").join(name), user, group)
    }

    /// Creates a client with the administrator's rights.
    pub async fn client(&self) -> Result<Client, ControlPlaneError> {
        client_from(self.kubeconfig()).await
    }

    /// Creates a client with another user's rights.
    pub async fn client_for(&self, user: &str, group: Option<&str>) -> Result<Client, ControlPlaneError> {
        client_from(&self.kubeconfig_for(user, group)?).await
    }

    /// How to connect to NATS.
    pub fn nats(&self) -> &NatsInfo {
        &self.nats
    }

    /// The supervisor of the child processes. Children that are started with it later stop before those of the control
    /// plane.
    pub fn supervisor(&self) -> &Supervisor {
        &self.supervisor
    }

    /// Waits for the next child process that exits unexpectedly.
    pub async fn exited(&self) -> Exited {
        self.supervisor.exited().await
    }

    /// Stops all child processes in reverse order of their start. The directory remains.
    pub async fn stop(self) {
        if self.nodes.as_ref().is_some_and(Nodes::have_services) {
            // It would wait for its clients in pods, which end with their nodes. Etcd has all that it acknowledged.
            let _ = self.supervisor.kill_child(Part::KubeApiserver.program()).await;
        }
        self.supervisor.stop().await;
    }

    async fn spawn(&self, part: Part, command: std::process::Command) -> Result<(), ControlPlaneError> {
        Ok(self.supervisor.spawn(part.program(), command).await?)
    }

    /// Waits for a condition. Fails if a child process exits or after [`START_TIMEOUT`].
    async fn wait_for(
        &self,
        waited_for: &'static str,
        condition: impl Future<Output = ()>,
    ) -> Result<(), ControlPlaneError> {
        tokio::select! {
            biased;
            exited = self.supervisor.exited() => Err(ControlPlaneError::Exited(exited)),
            () = condition => Ok(()),
            () = tokio::time::sleep(START_TIMEOUT) => Err(self.not_ready(waited_for)),
        }
    }

    fn not_ready(&self, waited_for: &'static str) -> ControlPlaneError {
        ControlPlaneError::NotReady { waited_for, logs: self.directory.join("logs") }
    }

    /// Stops the programs of the control plane and keeps the machines of the nodes.
    async fn stop_programs(&self) {
        let further = [Part::KubeScheduler];
        for part in Part::CONTROL_PLANE.into_iter().chain(further).rev() {
            // Fails only if it does not run.
            let _ = self.supervisor.stop_child(part.program()).await;
        }
    }

    fn write_files(&self, audit: bool) -> Result<Files, ControlPlaneError> {
        let pki = self.directory.join("pki");
        let etcd_authority = Authority::open(&pki, "etcd-ca")?;
        let authority = self.authority()?;
        self.write_kubeconfig(Path::new("kubeconfig"), "admin", Some("system:masters"))?;
        let kubelet_client = match &self.nodes {
            Some(_) => Some(authority.client_files(&pki, "kubelet-client", Some("system:masters"))?),
            None => None,
        };
        let audit = if audit {
            let policy = self.directory.write_json(Path::new("audit-policy.json"), &audit_policy())?;
            Some(AuditFiles { policy, log: self.audit_log() })
        } else {
            None
        };
        Ok(Files {
            address: self.address(),
            audit,
            kubelet_client,
            services: self.nodes.as_ref().is_some_and(Nodes::have_services),
            scheduler_kubeconfig: self.kubeconfig_for("system:kube-scheduler", None)?,
            etcd_server: etcd_authority.server(&pki, "etcd-server", &[])?,
            etcd_client: etcd_authority.client_files(&pki, "etcd-client", None)?,
            api_server: authority.server(&pki, "kube-apiserver", &[self.address().to_string()])?,
            service_accounts: pki::service_account_key(&pki)?,
            controller_manager_kubeconfig: self.kubeconfig_for("system:kube-controller-manager", None)?,
            etcd_authority: etcd_authority.path,
            authority: authority.path,
            etcd: self.directory.join("etcd"),
            flex_volume_plugins: self.directory.join("flex-volume-plugins"),
            nats: self.directory.join("nats/jetstream"),
        })
    }

    fn authority(&self) -> Result<Authority, PkiError> {
        Authority::open(&self.directory.join("pki"), "ca")
    }

    fn write_kubeconfig(
        &self,
        name: &Path,
        user: &str,
        group: Option<&str>,
    ) -> Result<PathBuf, ControlPlaneError> {
        let authority = self.authority()?;
        let client = authority.client(user, group)?;
        Ok(self.directory.write_json(name, &kubeconfig(&self.server, &authority, user, &client))?)
    }

    /// Creates missing keys of the NATS users and writes the configuration of nats-server.
    fn write_nats_configuration(&self) -> Result<(PathBuf, Vec<(NatsKey, String)>), ControlPlaneError> {
        let configuration = self.directory.join("nats/nats.conf");
        write_private(&configuration, &format!("{LIMITS}{AUTHORIZATION}"))?;
        Ok((configuration, nats_keys(&self.nats.directory)?))
    }
}

const PORTS_FILE: &str = "ports.json";

/// An audit policy that logs each request after its response, and watches when they start.
fn audit_policy() -> serde_json::Value {
    serde_json::json!({
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [{ "level": "Metadata" }],
    })
}

struct Programs {
    etcd: PathBuf,
    api_server: PathBuf,
    controller_manager: PathBuf,
    nats: PathBuf,
    scheduler: Option<PathBuf>,
}

impl Programs {
    async fn get(options: &ControlPlaneOptions) -> Result<Self, PartsError> {
        let parts = &options.parts;
        Ok(Self {
            // Small builds first, so that build problems show early.
            nats: parts.get(Part::NatsServer).await?,
            etcd: parts.get(Part::Etcd).await?,
            api_server: parts.get(Part::KubeApiserver).await?,
            controller_manager: parts.get(Part::KubeControllerManager).await?,
            scheduler: match options.nodes {
                Some(_) => Some(parts.get(Part::KubeScheduler).await?),
                None => None,
            },
        })
    }
}

async fn client_from(path: &Path) -> Result<Client, ControlPlaneError> {
    let failed = |source: Box<dyn std::error::Error + Send + Sync>| ControlPlaneError::Client {
        path: path.to_owned(),
        source,
    };
    let read = Kubeconfig::read_from(path).map_err(|error| failed(error.into()))?;
    let config = Config::from_custom_kubeconfig(read, &KubeConfigOptions::default())
        .await
        .map_err(|error| failed(error.into()))?;
    Client::try_from(config).map_err(|error| failed(error.into()))
}

fn port_was_taken(exited: &Exited) -> bool {
    exited.log_tail.contains("address already in use")
}

async fn poll_until<F: Future<Output = bool>>(mut holds: impl FnMut() -> F) {
    while !holds().await {
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

async fn until_listening(port: u16) {
    poll_until(|| async move { TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.is_ok() }).await;
}

/// Waits until the INFO message of nats-server announces JetStream.
async fn until_jetstream_is_enabled(address: Ipv4Addr, port: u16) {
    poll_until(|| async move {
        let Ok(stream) = TcpStream::connect((address, port)).await else { return false };
        let mut greeting = String::new();
        let read = BufReader::new(stream).read_line(&mut greeting).await;
        read.is_ok() && greeting.contains("\"jetstream\":true")
    })
    .await;
}

async fn until_api_is_ready(client: &Client) {
    poll_until(|| async {
        match Request::get("/readyz").body(Vec::new()) {
            Ok(request) => client.request_text(request).await.is_ok_and(|answer| answer == "ok"),
            Err(_) => false,
        }
    })
    .await;
}

/// Waits for the default namespaces, and for a service account as proof that controllers work.
async fn until_default_namespaces_exist(client: &Client) {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), "default");
    poll_until(|| async {
        let (default, system, account) = tokio::join!(
            namespaces.get_opt("default"),
            namespaces.get_opt("kube-system"),
            accounts.get_opt("default")
        );
        matches!((default, system, account), (Ok(Some(_)), Ok(Some(_)), Ok(Some(_))))
    })
    .await;
}
