//! Starts the four programs in a directory, in the order in which they need each other.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http::Request;
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::TcpStream;

use crate::directory::{Directory, DirectoryError, write_private};
use crate::kubeconfig::{file_name, kubeconfig};
use crate::nats::{AUTHORIZATION, NatsInfo, NatsKeyError, NatsUser, nats_keys};
use crate::node::{Node, NodeError, Nodes, NodesOptions};
use crate::parts::{Part, Parts, PartsError};
use crate::pki::{self, Authority, PkiError};
use crate::ports::Ports;
use crate::programs::{self, AuditFiles, Files};
use crate::supervisor::{Exited, SuperviseError, Supervisor};

/// How long a start may take on a machine that is busy with other things.
const START_TIMEOUT: Duration = Duration::from_mins(3);
/// Between two looks at something that has no way to tell.
const POLL: Duration = Duration::from_millis(20);
/// A picked port can be taken by another process before the program listens on it.
const ATTEMPTS: usize = 3;

/// A control plane can't be started or used.
#[derive(Debug, thiserror::Error)]
pub enum ControlPlaneError {
    /// A program can't be had.
    #[error(transparent)]
    Parts(#[from] PartsError),
    /// The directory.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    /// Keys and certificates.
    #[error(transparent)]
    Pki(#[from] PkiError),
    /// A child can't be started.
    #[error(transparent)]
    Supervise(#[from] SuperviseError),
    /// No free port.
    #[error("picking a port: {0}")]
    Ports(#[source] std::io::Error),
    /// A node.
    #[error(transparent)]
    Node(#[from] NodeError),
    /// A key of a NATS user.
    #[error(transparent)]
    NatsKey(#[from] NatsKeyError),
    /// A program ended while it was waited for.
    #[error("{0}")]
    Exited(Exited),
    /// A start took too long; a retry can help on a machine that is less busy.
    #[error("{waited_for} after {} s; see the logs in {}", START_TIMEOUT.as_secs(), logs.display())]
    NotReady {
        /// What did not come.
        waited_for: &'static str,
        /// Where to look.
        logs: PathBuf,
    },
    /// A client of the API can't be made.
    #[error("making a client from {}: {source}", path.display())]
    Client {
        /// The kubeconfig.
        path: PathBuf,
        /// Why.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// What to start.
#[derive(Debug, Clone)]
pub struct ControlPlaneOptions {
    /// Holds everything; made when it isn't there. Used again, it is the same cluster with its data.
    pub dir: PathBuf,
    /// Where the programs are.
    pub parts: Parts,
    /// Controllers of kube-controller-manager that don't run.
    pub disabled_controllers: Vec<String>,
    /// Nodes that run pods, which needs root; `None`: no node, and nothing that a node needs.
    pub nodes: Option<NodesOptions>,
    /// Whether the API server writes down who asked it for what: a line of JSON for each request, an
    /// `audit.k8s.io/v1` Event without bodies, in [`ControlPlane::audit_log`].
    pub audit: bool,
}

impl ControlPlaneOptions {
    /// Without nodes, and so without the controller that waits for nodes' heartbeats.
    pub fn new(dir: impl Into<PathBuf>, parts: Parts) -> Self {
        Self {
            dir: dir.into(),
            parts,
            disabled_controllers: vec!["node-lifecycle-controller".to_owned()],
            nodes: None,
            audit: false,
        }
    }

    /// With nodes that run pods, and with all controllers.
    #[must_use]
    pub fn with_nodes(self, nodes: NodesOptions) -> Self {
        Self { nodes: Some(nodes), disabled_controllers: Vec::new(), ..self }
    }
}

/// A running control plane. [`ControlPlane::stop`] ends it in order; dropped, its children are killed.
#[derive(Debug)]
pub struct ControlPlane {
    // Before the directory: a child is gone before another may have its data.
    supervisor: Supervisor,
    nodes: Option<Nodes>,
    server: String,
    kubeconfig: PathBuf,
    nats: NatsInfo,
    directory: Directory,
}

impl ControlPlane {
    /// Gets the programs, starts them, and returns when the API is ready, the namespaces that every cluster
    /// has are there with their service accounts, and JetStream is on.
    pub async fn start(options: ControlPlaneOptions) -> Result<Self, ControlPlaneError> {
        let directory = Directory::open(&options.dir)?;
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
        let mut last = control_plane.directory.read_json(PORTS);
        for attempt in 1.. {
            let ports = Ports::pick(address, last).map_err(ControlPlaneError::Ports)?;
            let started = control_plane.run(&programs, &options, ports).await;
            match started {
                Ok(()) => break,
                Err(ControlPlaneError::Exited(exited)) if port_was_taken(&exited) && attempt < ATTEMPTS => {
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
        if let Err(error) = Box::pin(control_plane.run_nodes()).await {
            control_plane.supervisor.stop().await;
            return Err(error);
        }
        Ok(control_plane)
    }

    /// The nodes as machines, with their network, which is the API server's too.
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
            () = tokio::time::sleep(START_TIMEOUT) => Err(self.late("the nodes have no namespaces")),
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

    /// What runs on the nodes; they are not waited for.
    async fn run_nodes(&self) -> Result<(), ControlPlaneError> {
        let Some(nodes) = &self.nodes else { return Ok(()) };
        for node in nodes.all() {
            self.configure(nodes, node)?;
        }
        tokio::select! {
            biased;
            exited = self.supervisor.exited() => Err(ControlPlaneError::Exited(exited)),
            started = nodes.start(&self.supervisor) => Ok(started?),
            () = tokio::time::sleep(START_TIMEOUT) => Err(self.late("containerd or Open vSwitch does not listen")),
        }
    }

    /// Writes what the programs of a node read.
    fn configure(&self, nodes: &Nodes, node: &Node) -> Result<(), ControlPlaneError> {
        let authority = self.authority()?;
        let names = [node.name().to_owned(), node.address().to_string()];
        let certificate = authority.server(&self.directory.join("pki"), node.name(), &names)?;
        let user = format!("system:node:{}", node.name());
        let kubeconfig = self.kubeconfig_for(&user, Some("system:nodes"))?;
        Ok(nodes.configure(node, &authority.path, &certificate, &kubeconfig)?)
    }

    /// Makes the machine of this name anew, which has ended, and starts what runs on it. Its namespaces are others then,
    /// and nothing of its files and pods is left.
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
            () = tokio::time::sleep(START_TIMEOUT) => Err(self.late("a machine does not come up again")),
        }
    }

    async fn run(
        &mut self,
        programs: &Programs,
        options: &ControlPlaneOptions,
        ports: Ports,
    ) -> Result<(), ControlPlaneError> {
        self.directory.write_json(PORTS, &ports)?;
        self.server = format!("https://{}:{}", self.address(), ports.api_server);
        self.nats.url = format!("nats://{}:{}", self.address(), ports.nats);
        let files = self.write_files(options.audit)?;

        let (configuration, users) = self.write_nats_configuration()?;
        self.spawn(Part::Etcd, programs::etcd(&programs.etcd, &files, ports)).await?;
        let nats = programs::nats(&programs.nats, &files, &configuration, ports, &users);
        self.spawn(Part::NatsServer, nats).await?;
        self.wait("etcd does not listen", listens(ports.etcd)).await?;
        self.spawn(Part::KubeApiserver, programs::api_server(&programs.api_server, &files, ports)).await?;
        self.wait("nats-server has no JetStream", has_jetstream(self.address(), ports.nats)).await?;
        // The manager asks once a second whether the API is there: it finds it ready at once.
        let client = self.client().await?;
        self.wait("kube-apiserver is not ready", answers_ready(&client)).await?;
        let manager =
            programs::controller_manager(&programs.controller_manager, &files, &options.disabled_controllers);
        self.spawn(Part::KubeControllerManager, manager).await?;
        if let Some(scheduler) = &programs.scheduler {
            self.spawn(Part::KubeScheduler, programs::scheduler(scheduler, &files)).await?;
        }
        self.wait("there are no default namespaces", has_defaults(&client)).await
    }

    /// The directory, as an absolute path.
    pub fn dir(&self) -> &Path {
        self.directory.path()
    }

    /// Where the API server writes down requests, if it was told to.
    pub fn audit_log(&self) -> PathBuf {
        self.directory.join("logs/audit.json")
    }

    /// The nodes, when there are any.
    pub fn nodes(&self) -> Option<&Nodes> {
        self.nodes.as_ref()
    }

    /// Where the API server and NATS listen: on loopback, with nodes on their network.
    pub fn address(&self) -> Ipv4Addr {
        self.nodes.as_ref().map_or(Ipv4Addr::LOCALHOST, Nodes::machine_address)
    }

    /// `https://ADDRESS:PORT`.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// The administrator's kubeconfig (group `system:masters`).
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// A kubeconfig of another user, who may do what RBAC grants to the user, the group and to anyone that is
    /// authenticated. The user `system:serviceaccount:NAMESPACE:NAME` is the subject of bindings to that
    /// service account. Returns the path of the file, which only its owner can read.
    pub fn kubeconfig_for(&self, user: &str, group: Option<&str>) -> Result<PathBuf, ControlPlaneError> {
        let name = file_name(&group.map_or_else(|| user.to_owned(), |group| format!("{user}@{group}")));
        self.write_kubeconfig(&Path::new("kubeconfigs").join(name), user, group)
    }

    /// A client with the administrator's rights.
    pub async fn client(&self) -> Result<Client, ControlPlaneError> {
        client_from(self.kubeconfig()).await
    }

    /// A client with another user's rights.
    pub async fn client_for(&self, user: &str, group: Option<&str>) -> Result<Client, ControlPlaneError> {
        client_from(&self.kubeconfig_for(user, group)?).await
    }

    /// How to reach NATS.
    pub fn nats(&self) -> &NatsInfo {
        &self.nats
    }

    /// Holds the children; run further ones by it that are to stop before these.
    pub fn supervisor(&self) -> &Supervisor {
        &self.supervisor
    }

    /// The next child that ended by itself.
    pub async fn exited(&self) -> Exited {
        self.supervisor.exited().await
    }

    /// Stops all children, the last one started first. The directory stays.
    pub async fn stop(self) {
        self.supervisor.stop().await;
    }

    async fn spawn(&self, part: Part, command: std::process::Command) -> Result<(), ControlPlaneError> {
        Ok(self.supervisor.spawn(part.program(), command).await?)
    }

    /// Waits for a condition, unless a child ends meanwhile.
    async fn wait(
        &self,
        waited_for: &'static str,
        condition: impl Future<Output = ()>,
    ) -> Result<(), ControlPlaneError> {
        tokio::select! {
            biased;
            exited = self.supervisor.exited() => Err(ControlPlaneError::Exited(exited)),
            () = condition => Ok(()),
            () = tokio::time::sleep(START_TIMEOUT) => Err(self.late(waited_for)),
        }
    }

    fn late(&self, waited_for: &'static str) -> ControlPlaneError {
        ControlPlaneError::NotReady { waited_for, logs: self.directory.join("logs") }
    }

    /// Stops the programs of the control plane; the machines of the nodes stay.
    async fn stop_programs(&self) {
        let further = [Part::KubeScheduler];
        for part in Part::CONTROL_PLANE.into_iter().chain(further).rev() {
            // An error says that it does not run.
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

    /// Keeps the users' keys, and writes what nats-server must know of them.
    fn write_nats_configuration(&self) -> Result<(PathBuf, Vec<(NatsUser, String)>), ControlPlaneError> {
        let configuration = self.directory.join("nats/nats.conf");
        write_private(&configuration, AUTHORIZATION)?;
        Ok((configuration, nats_keys(&self.nats.directory)?))
    }
}

const PORTS: &str = "ports.json";

/// Every request, when it was answered; of a watch, when it began.
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
            // The short ones first: what is wrong with building shows early.
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

async fn until<F: Future<Output = bool>>(mut holds: impl FnMut() -> F) {
    while !holds().await {
        tokio::time::sleep(POLL).await;
    }
}

async fn listens(port: u16) {
    until(|| async move { TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.is_ok() }).await;
}

/// A NATS server greets with what it can do, and listens after its JetStream is up.
async fn has_jetstream(address: Ipv4Addr, port: u16) {
    until(|| async move {
        let Ok(stream) = TcpStream::connect((address, port)).await else { return false };
        let mut greeting = String::new();
        let read = BufReader::new(stream).read_line(&mut greeting).await;
        read.is_ok() && greeting.contains("\"jetstream\":true")
    })
    .await;
}

async fn answers_ready(client: &Client) {
    until(|| async {
        match Request::get("/readyz").body(Vec::new()) {
            Ok(request) => client.request_text(request).await.is_ok_and(|answer| answer == "ok"),
            Err(_) => false,
        }
    })
    .await;
}

/// The default namespaces, and a service account that the controllers made: so those work.
async fn has_defaults(client: &Client) {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), "default");
    until(|| async {
        let (default, system, account) = tokio::join!(
            namespaces.get_opt("default"),
            namespaces.get_opt("kube-system"),
            accounts.get_opt("default")
        );
        matches!((default, system, account), (Ok(Some(_)), Ok(Some(_)), Ok(Some(_))))
    })
    .await;
}
