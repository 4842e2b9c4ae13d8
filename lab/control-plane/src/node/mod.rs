//! Nodes on one host: each has its own namespaces, kubelet, containerd and Open vSwitch.
//!
//! A process ([`namespace_holder`]) holds the namespaces of a node; the node ends with it. The interface [`NODE_INTERFACE`]
//! connects it to the control plane and the other nodes. A simulated fabric can add interfaces to its network
//! namespace ([`Machine::network_namespace`]). Images come from a registry in this process.

pub mod namespace_holder;

mod cgroups;
mod configuration;
mod image;
mod machine;
mod network;
mod programs;
mod registry;

use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ipnet::Ipv4Net;
use nix::sys::statfs::{OVERLAYFS_SUPER_MAGIC, statfs};
use sha2::{Digest, Sha256};
use tokio::net::UnixStream;

use crate::directory::{Directory, write_private};
use crate::parts::{Part, Parts, PartsError};
use crate::pki::CertificateFiles;
use crate::supervisor::{SuperviseError, Supervisor};
use configuration::KubeletParameters;
use network::ClusterNetwork;
use registry::{Images, Registry};

pub use configuration::{
    CLUSTER_DOMAIN, CNI_BIN, CNI_CONFIGURATION, CONTAINERD_SOCKET, DNS_ADDRESS, OVSDB_SOCKET, POD_BRIDGE,
    POD_NETWORK,
};
pub use image::{ImageError, PAUSE as PAUSE_IMAGE, ProgramsImage, TEST as TEST_IMAGE, write_pause_archive};
pub use machine::{Machine, Service};
pub use network::{NODE_INTERFACE, NetworkError};
pub use programs::{Missing, MissingPrograms};

/// Maximum number of nodes and gateways.
pub const MAX_NODES: usize = 64;
/// Poll interval for conditions without notification.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Nodes can't be started.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// The process lacks root, which namespaces, cgroups and containers need.
    #[error("nodes need root: run it as root, or without nodes")]
    NotRoot,
    /// Programs are not installed.
    #[error(transparent)]
    Missing(#[from] MissingPrograms),
    /// A name is no host name (1 to 63 of a–z, 0–9 and `-`), is not unique, or exceeds the limit.
    #[error("{name:?} can't be a node: {why}")]
    Name {
        /// The name.
        name: String,
        /// The problem.
        why: &'static str,
    },
    /// The control plane's directory is below a private directory of nodes, which would hide it.
    #[error("nodes need a directory outside of /run, /var/lib and /var/log, which {} is not", path.display())]
    Hidden {
        /// The directory of the control plane.
        path: PathBuf,
    },
    /// A program can't be obtained.
    #[error(transparent)]
    Parts(#[from] PartsError),
    /// A child process can't be started.
    #[error(transparent)]
    Supervise(#[from] SuperviseError),
    /// The network of the nodes can't be set up.
    #[error(transparent)]
    Network(#[from] NetworkError),
    /// An image can't be built.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// The registry can't listen.
    #[error("listening for the nodes on {address}: {source}")]
    Registry {
        /// The address.
        address: Ipv4Addr,
        /// The cause.
        source: io::Error,
    },
    /// A file operation failed.
    #[error("{operation} {}: {source}", path.display())]
    File {
        /// The failed operation.
        operation: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// A short-lived program failed.
    #[error("{program} failed: {message}")]
    Program {
        /// The program.
        program: String,
        /// Its standard error.
        message: String,
    },
    /// No node or gateway has the name.
    #[error("there is no node or gateway {name}")]
    Unknown {
        /// The name.
        name: String,
    },
}

impl NodeError {
    fn file(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self + use<> {
        let path = path.to_owned();
        move |source| Self::File { operation, path, source }
    }
}

/// Whether this process runs as root, which nodes need.
pub fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

/// Options of nodes.
#[derive(Debug, Clone)]
pub struct NodesOptions {
    /// Path of the program `eno-sandbox-node`.
    pub holder: PathBuf,
    /// Host names of the nodes.
    pub names: Vec<String>,
    /// Host names of gateways: machines outside the cluster, behind a fabric, that run Open vSwitch only.
    pub gateways: Vec<String>,
    /// Image names without tags under which the registry also serves [`TEST_IMAGE`].
    pub aliases: Vec<String>,
    /// Further images.
    pub images: Vec<NodeImage>,
    /// Whether Services work: kube-proxy runs on every node, and pods reach the API server and what is outside of the
    /// cluster. The name service at [`DNS_ADDRESS`] is up to the caller.
    pub services: bool,
}

/// An image for the nodes.
#[derive(Debug, Clone)]
pub enum NodeImage {
    /// One to build.
    Programs(ProgramsImage),
    /// An OCI layout in a directory.
    Layout {
        /// Name in manifests; the tag is ignored.
        name: String,
        /// The directory.
        directory: PathBuf,
    },
}

impl NodeImage {
    /// The same image under another name.
    #[must_use]
    pub fn named(&self, name: &str) -> Self {
        let mut image = self.clone();
        match &mut image {
            Self::Programs(ProgramsImage { name: own, .. }) | Self::Layout { name: own, .. } => {
                name.clone_into(own);
            }
        }
        image
    }
}

impl NodesOptions {
    /// Creates options with these nodes and without gateways.
    pub fn new(holder: impl Into<PathBuf>, names: Vec<String>) -> Self {
        Self {
            holder: holder.into(),
            names,
            gateways: Vec::new(),
            aliases: ["nicolaka/netshoot", "busybox", "alpine"].map(str::to_owned).to_vec(),
            images: Vec::new(),
            services: false,
        }
    }

    /// Checks names, privileges and installed programs before anything is started.
    pub fn check(&self) -> Result<(), NodeError> {
        let mut seen = vec![BRIDGE_MACHINE];
        for name in self.names.iter().chain(&self.gateways) {
            let fault = |why| Err(NodeError::Name { name: name.clone(), why });
            let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
            if name.is_empty() || name.len() > 63 || !name.chars().all(allowed) || name.starts_with('-') {
                return fault("only 1 to 63 of a-z, 0-9 and '-' make a host name");
            }
            if seen.contains(&name.as_str()) {
                return fault("the name is taken");
            }
            if seen.len() > MAX_NODES {
                return fault("there are at most 64");
            }
            seen.push(name);
        }
        if !is_root() {
            return Err(NodeError::NotRoot);
        }
        programs::Programs::find()?;
        Ok(())
    }
}

/// Name of the machine that holds the bridge between the nodes. No node or gateway can have it.
const BRIDGE_MACHINE: &str = "hub";

/// A machine of the cluster, which runs pods.
#[derive(Debug)]
pub struct Node {
    machine: Machine,
    address: Ipv4Addr,
    pods: Ipv4Net,
}

impl Node {
    /// Its name, which is also that of the Node object.
    pub fn name(&self) -> &str {
        self.machine.name()
    }

    /// Its namespaces and processes.
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// Its address on the network of the nodes.
    pub fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// The subnet of its pods' primary interfaces.
    pub fn pods(&self) -> Ipv4Net {
        self.pods
    }
}

/// All nodes of a control plane.
#[derive(Debug)]
pub struct Nodes {
    /// The nodes in the order of the options.
    all: Vec<Node>,
    /// The gateways in the order of the options.
    gateways: Vec<Machine>,
    /// The network between the nodes.
    cluster_network: ClusterNetwork,
    /// The image registry.
    registry: Registry,
    /// Path of kubelet.
    kubelet: PathBuf,
    /// Path of kube-proxy, if Services work.
    proxy: Option<PathBuf>,
    /// Paths of the CNI plugins.
    plugins: Vec<PathBuf>,
    /// Paths of the installed programs.
    programs: programs::Programs,
    /// containerd's snapshotter.
    snapshotter: &'static str,
    /// Prefix of cgroups, and name of the host's interface to the nodes.
    id: String,
}

impl Nodes {
    /// Obtains the programs and images, creates the machines and connects them. Starts no services.
    pub(crate) async fn prepare(
        options: &NodesOptions,
        parts: &Parts,
        supervisor: &Supervisor,
        directory: &Directory,
    ) -> Result<Self, NodeError> {
        let dir = directory.path();
        if namespace_holder::is_hidden(dir) {
            return Err(NodeError::Hidden { path: dir.to_owned() });
        }
        let programs = programs::Programs::find()?;
        let kubelet = parts.get(Part::Kubelet).await?;
        let proxy = if options.services { Some(parts.get(Part::KubeProxy).await?) } else { None };
        let mut plugins = Vec::new();
        for part in Part::ALL.into_iter().filter(|part| part.is_plugin()) {
            plugins.push(parts.get(part).await?);
        }
        let mut images = Images::default();
        images.add(image::PAUSE, &image::pause()?);
        let (busybox, ping) = (programs.busybox.clone(), programs.ping.clone());
        let test = build_image(move || image::test(&busybox, &ping)).await?;
        images.add(TEST_IMAGE, &test);
        for alias in &options.aliases {
            images.add(alias, &test);
        }
        for wanted in options.images.clone() {
            let (name, image) = build_image(move || match wanted {
                NodeImage::Programs(wanted) => Ok((wanted.name.clone(), image::programs(&wanted)?)),
                NodeImage::Layout { name, directory } => Ok((name, eno_image::read_layout(&directory)?)),
            })
            .await?;
            images.add(&name, &image);
        }

        // Derive names and addresses from the directory, so that they are stable if free.
        let seed = Sha256::digest(dir.as_os_str().as_encoded_bytes());
        let seed = seed.iter().take(4).fold(0_u32, |seed, byte| seed << 8 | u32::from(*byte));
        let id = format!("eno{seed:08x}");
        let machine = |name: String, cgroup: bool| {
            let cgroup = cgroup.then(|| format!("{id}-{name}"));
            Machine::start(&options.holder, dir.join("nodes"), name, cgroup, supervisor)
        };
        let bridge_machine = machine(BRIDGE_MACHINE.to_owned(), false).await?;
        let cluster_network = ClusterNetwork::start(&bridge_machine.network_namespace(), &id, seed).await?;
        let machines = options.names.iter().map(|name| machine(name.clone(), true));
        let machines = futures::future::try_join_all(machines).await?;
        let gateways = options.gateways.iter().map(|name| machine(name.clone(), false));
        let gateways = futures::future::try_join_all(gateways).await?;
        let registry = Registry::start(cluster_network.subnet().machine(), images).await;
        let registry = registry
            .map_err(|source| NodeError::Registry { address: cluster_network.subnet().machine(), source })?;

        let mut nodes = Vec::new();
        for (index, machine) in (0_u8..).zip(machines) {
            let pods = Ipv4Net::new_assert(Ipv4Addr::new(10, 244, index + 1, 0), 24);
            nodes.push(Node { machine, address: cluster_network.subnet().node(index), pods });
        }
        let statfs = statfs(dir).map_err(|errno| NodeError::file("looking at", dir)(errno.into()))?;
        // overlayfs can't have an upper directory on overlayfs.
        let overlay = statfs.filesystem_type() == OVERLAYFS_SUPER_MAGIC;
        let snapshotter = if overlay { "native" } else { "overlayfs" };
        let nodes = Self {
            all: nodes,
            gateways,
            cluster_network,
            registry,
            kubelet,
            proxy,
            plugins,
            programs,
            snapshotter,
            id,
        };
        for machine in nodes.machines() {
            nodes.connect_machine(machine).await?;
        }
        Ok(nodes)
    }

    /// Connects a node to the network of the nodes. A gateway gets only its loopback interface up.
    async fn connect_machine(&self, machine: &Machine) -> Result<(), NodeError> {
        let namespace = machine.network_namespace();
        let Some(index) = self.all.iter().position(|node| node.name() == machine.name()) else {
            return Ok(network::set_loopback_up(&namespace).await?);
        };
        let others = self.all.iter().filter(|other| other.name() != machine.name());
        let mut routes: Vec<_> = others.map(|other| (other.pods, other.address)).collect();
        if self.proxy.is_some() {
            // Without a route to a Service's address, the node's own programs can't reach it.
            routes.push((Ipv4Net::default(), self.machine_address()));
        }
        let address = self.cluster_network.subnet().node(u8::try_from(index).unwrap_or_default());
        self.cluster_network.connect_node(&format!("node{index}"), &namespace, address, &routes).await?;
        if self.proxy.is_some() {
            machine::add_rules(machine, &configuration::masquerade()).await?;
        }
        Ok(())
    }

    /// Recreates and connects an ended machine. Starts no services.
    pub(crate) async fn restart(&self, supervisor: &Supervisor, machine: &Machine) -> Result<(), NodeError> {
        machine.restart(supervisor).await?;
        self.connect_machine(machine).await
    }

    /// The machines of nodes and gateways.
    pub(crate) fn machines(&self) -> impl Iterator<Item = &Machine> {
        self.all.iter().map(|node| &node.machine).chain(&self.gateways)
    }

    /// The nodes, in the order of the options.
    pub fn all(&self) -> &[Node] {
        &self.all
    }

    /// A node by its name.
    pub fn get(&self, name: &str) -> Option<&Node> {
        self.all.iter().find(|node| node.name() == name)
    }

    /// The gateways.
    pub fn gateways(&self) -> &[Machine] {
        &self.gateways
    }

    /// The machine of a node or a gateway.
    pub fn machine(&self, name: &str) -> Option<&Machine> {
        self.machines().find(|machine| machine.name() == name)
    }

    /// Whether Services work.
    pub(crate) fn have_services(&self) -> bool {
        self.proxy.is_some()
    }

    /// The address of the host on the network of the nodes.
    pub fn machine_address(&self) -> Ipv4Addr {
        self.cluster_network.subnet().machine()
    }

    /// Writes the configuration files of a node's programs and installs the CNI plugins.
    pub(crate) fn configure(
        &self,
        node: &Node,
        authority: &Path,
        certificate: &CertificateFiles,
        kubeconfig: &Path,
        proxy_kubeconfig: &Path,
    ) -> Result<(), NodeError> {
        let machine = &node.machine;
        let write = |path: &str, text: &str| {
            let path = machine.host_path(path);
            write_private(&path, text).map_err(|error| NodeError::File {
                operation: "writing",
                path,
                source: io::Error::other(error),
            })
        };
        let kubelet = configuration::kubelet(&KubeletParameters {
            address: node.address,
            cgroup: &format!("/{}-{}", self.id, node.name()),
            authority,
            certificate: &certificate.certificate,
            key: &certificate.key,
            services: self.proxy.is_some(),
        });
        write(machine::KUBELET_CONFIGURATION, &kubelet.to_string())?;
        write(machine::KUBELET_KUBECONFIG, &read(kubeconfig)?)?;
        let proxy = configuration::kube_proxy(node.name(), node.address);
        write(machine::PROXY_CONFIGURATION, &proxy.to_string())?;
        write(machine::PROXY_KUBECONFIG, &read(proxy_kubeconfig)?)?;
        write(machine::CONTAINERD_CONFIGURATION, &configuration::containerd(self.snapshotter))?;
        let registries = format!("{}/_default/hosts.toml", configuration::REGISTRY_CONFIGURATION);
        write(&registries, &configuration::registry(&self.registry.url))?;
        let network = configuration::pod_network(node.pods).to_string();
        write(&format!("{CNI_CONFIGURATION}/10-cluster.conflist"), &network)?;
        let bin = machine.host_path(CNI_BIN);
        fs::create_dir_all(&bin).map_err(NodeError::file("making the directory", &bin))?;
        for plugin in &self.plugins {
            let to = bin.join(plugin.file_name().unwrap_or_default());
            // Copy instead of linking: a private directory of the node may hide the cache.
            fs::copy(plugin, &to).map_err(NodeError::file("installing", &to))?;
        }
        Ok(())
    }

    /// Starts the services of all machines concurrently. Returns when containerd and ovsdb-server listen.
    pub(crate) async fn start(&self, supervisor: &Supervisor) -> Result<(), NodeError> {
        let started = self.machines().map(|machine| self.start_services(supervisor, machine));
        futures::future::try_join_all(started).await?;
        Ok(())
    }

    pub(crate) async fn start_services(
        &self,
        supervisor: &Supervisor,
        machine: &Machine,
    ) -> Result<(), NodeError> {
        let pods = self.get(machine.name()).is_some();
        machine::create_ovs_database(machine, &self.programs).await?;
        let runs = |service: Service| match service {
            Service::KubeProxy => pods && self.proxy.is_some(),
            other => pods || !other.is_for_pods(),
        };
        for service in Service::ALL.into_iter().filter(|service| runs(*service)) {
            self.start_service(supervisor, machine.name(), service).await?;
        }
        Ok(())
    }

    /// Starts or restarts a service of a machine. Returns when it listens.
    pub async fn start_service(
        &self,
        supervisor: &Supervisor,
        name: &str,
        service: Service,
    ) -> Result<(), NodeError> {
        let unknown = || NodeError::Unknown { name: name.to_owned() };
        let machine = self.machine(name).ok_or_else(unknown)?;
        let command = match service {
            Service::Containerd => machine::containerd(machine, &self.programs),
            Service::Ovsdb => machine::ovsdb(machine, &self.programs),
            Service::Vswitchd => machine::vswitchd(machine, &self.programs),
            Service::Kubelet => {
                let node = self.get(name).ok_or_else(unknown)?;
                machine::kubelet(machine, &self.kubelet, node.address)
            }
            Service::KubeProxy => machine::kube_proxy(machine, self.proxy.as_ref().ok_or_else(unknown)?),
        };
        let child = machine.child(service);
        supervisor.spawn(&child, command).await?;
        if let Some(socket) = service.socket() {
            let socket = machine.inside(socket);
            // One that has ended meanwhile is started again by the caller.
            while supervisor.pid(&child).is_some() && UnixStream::connect(&socket).await.is_err() {
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        }
        Ok(())
    }
}

/// Builds an image on a blocking thread; this takes about a second.
async fn build_image<T: Send + 'static>(
    make: impl FnOnce() -> Result<T, ImageError> + Send + 'static,
) -> Result<T, NodeError> {
    let built = tokio::task::spawn_blocking(make).await;
    let lost = |error: tokio::task::JoinError| NodeError::Program {
        program: "packing an image".to_owned(),
        message: error.to_string(),
    };
    Ok(built.map_err(lost)??)
}

fn read(path: &Path) -> Result<String, NodeError> {
    fs::read_to_string(path).map_err(NodeError::file("reading", path))
}
