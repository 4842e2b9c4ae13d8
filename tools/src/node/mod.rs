//! Nodes on one machine: each has namespaces, a kubelet, containerd and Open vSwitch of its own.
//!
//! A node is held by a process ([`holder`]), with which everything of the node goes. Its interface
//! [`NODE_INTERFACE`] leads to the control plane and the other nodes; who simulates a fabric cables further ones into
//! its network namespace ([`Machine::network_namespace`]). Images come from a registry in this process.

pub mod holder;

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
use configuration::Kubelet;
use image::Image;
use network::Hub;
use registry::{Images, Registry};

pub use configuration::{CNI_BIN, CNI_CONFIGURATION, CONTAINERD_SOCKET, OVSDB_SOCKET, POD_BRIDGE};
pub use image::{ImageError, ProgramsImage, TEST as TEST_IMAGE};
pub use machine::{Machine, Service};
pub use network::{NODE_INTERFACE, NetworkError};
pub use programs::{Missing, MissingPrograms};

/// How many nodes fit into the network.
pub const MOST_NODES: usize = 64;
/// Between two looks at something that has no way to tell.
const POLL: Duration = Duration::from_millis(10);

/// A node can't be started.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// Namespaces, cgroups and containers need it.
    #[error("nodes need root: run it as root, or without nodes")]
    NotRoot,
    /// Debian packages that are not installed.
    #[error(transparent)]
    Missing(#[from] MissingPrograms),
    /// Not a host name: 1 to 63 of a–z, 0–9 and `-`, or named twice, or too many.
    #[error("{name:?} can't be a node: {why}")]
    Name {
        /// As it was given.
        name: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A directory that a node covers by its own.
    #[error("nodes need a directory outside of /run, /var/lib and /var/log, which {} is not", path.display())]
    Covered {
        /// The directory of the control plane.
        path: PathBuf,
    },
    /// A program that is built.
    #[error(transparent)]
    Parts(#[from] PartsError),
    /// A child.
    #[error(transparent)]
    Supervise(#[from] SuperviseError),
    /// The network of the nodes.
    #[error(transparent)]
    Network(#[from] NetworkError),
    /// The images.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// The registry's socket.
    #[error("listening for the nodes on {address}: {source}")]
    Registry {
        /// Where.
        address: Ipv4Addr,
        /// Why not.
        source: io::Error,
    },
    /// A file.
    #[error("{operation} {}: {source}", path.display())]
    File {
        /// What failed.
        operation: &'static str,
        /// On what.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A program that runs for a moment.
    #[error("{program} failed: {said}")]
    Program {
        /// Which.
        program: String,
        /// Its last words.
        said: String,
    },
    /// Nothing of this name.
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

/// Whether this process may have nodes.
pub fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

/// Which nodes.
#[derive(Debug, Clone)]
pub struct NodesOptions {
    /// The program `eno-sandbox-node` of this crate.
    pub holder: PathBuf,
    /// The nodes' names, which are host names.
    pub names: Vec<String>,
    /// Machines with Open vSwitch alone, outside of the cluster: what lies behind a fabric. Host names, too.
    pub gateways: Vec<String>,
    /// Names of images, tags not counted, for which the nodes get [`TEST_IMAGE`].
    pub aliases: Vec<String>,
    /// Further images that are made on the spot.
    pub images: Vec<ProgramsImage>,
}

impl NodesOptions {
    /// These nodes, and nothing else.
    pub fn new(holder: impl Into<PathBuf>, names: Vec<String>) -> Self {
        Self {
            holder: holder.into(),
            names,
            gateways: Vec::new(),
            aliases: ["nicolaka/netshoot", "busybox", "alpine"].map(str::to_owned).to_vec(),
            images: Vec::new(),
        }
    }

    /// What can be known to go wrong before anything is done.
    pub fn check(&self) -> Result<(), NodeError> {
        let mut seen = vec![HUB];
        for name in self.names.iter().chain(&self.gateways) {
            let fault = |why| Err(NodeError::Name { name: name.clone(), why });
            let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
            if name.is_empty() || name.len() > 63 || !name.chars().all(allowed) || name.starts_with('-') {
                return fault("only 1 to 63 of a-z, 0-9 and '-' make a host name");
            }
            if seen.contains(&name.as_str()) {
                return fault("the name is taken");
            }
            if seen.len() > MOST_NODES {
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

/// Holds the bridge between all of them. No other machine has this name.
const HUB: &str = "hub";

/// A machine that runs pods.
#[derive(Debug)]
pub struct Node {
    machine: Machine,
    address: Ipv4Addr,
    pods: Ipv4Net,
}

impl Node {
    /// Its name, which is that of the Node object.
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

    /// The addresses of its pods' primary interfaces.
    pub fn pods(&self) -> Ipv4Net {
        self.pods
    }
}

/// All nodes of a control plane.
#[derive(Debug)]
pub struct Nodes {
    all: Vec<Node>,
    gateways: Vec<Machine>,
    hub: Hub,
    registry: Registry,
    kubelet: PathBuf,
    plugins: Vec<PathBuf>,
    programs: programs::Programs,
    snapshotter: &'static str,
    id: String,
}

impl Nodes {
    /// Gets what nodes need, makes the machines and cables them. Nothing runs on them yet.
    pub(crate) async fn prepare(
        options: &NodesOptions,
        parts: &Parts,
        supervisor: &Supervisor,
        directory: &Directory,
    ) -> Result<Self, NodeError> {
        let dir = directory.path();
        if holder::covers(dir) {
            return Err(NodeError::Covered { path: dir.to_owned() });
        }
        let programs = programs::Programs::find()?;
        let kubelet = parts.get(Part::Kubelet).await?;
        let mut plugins = Vec::new();
        for part in Part::ALL.into_iter().filter(|part| part.is_plugin()) {
            plugins.push(parts.get(part).await?);
        }
        let mut images = Images::default();
        images.add(image::PAUSE, &Image::pause()?);
        let (busybox, ping) = (programs.busybox.clone(), programs.ping.clone());
        let test = made(move || Image::test(&busybox, &ping)).await?;
        images.add(TEST_IMAGE, &test);
        for alias in &options.aliases {
            images.add(alias, &test);
        }
        for wanted in options.images.clone() {
            let name = wanted.name.clone();
            let image = made(move || Image::programs(&wanted)).await?;
            images.add(&name, &image);
        }

        // The same directory has the same names and, where they are free, the same addresses.
        let seed = Sha256::digest(dir.as_os_str().as_encoded_bytes());
        let seed = seed.iter().take(4).fold(0_u32, |seed, byte| seed << 8 | u32::from(*byte));
        let id = format!("eno{seed:08x}");
        let machine = |name: String, cgroup: bool| {
            let cgroup = cgroup.then(|| format!("{id}-{name}"));
            Machine::start(&options.holder, dir.join("nodes"), name, cgroup, supervisor)
        };
        let hub = machine(HUB.to_owned(), false).await?;
        let hub = Hub::start(&hub.network_namespace(), &id, seed).await?;
        let machines = options.names.iter().map(|name| machine(name.clone(), true));
        let machines = futures::future::try_join_all(machines).await?;
        let gateways = options.gateways.iter().map(|name| machine(name.clone(), false));
        let gateways = futures::future::try_join_all(gateways).await?;
        let registry = Registry::start(hub.subnet().machine(), images).await;
        let registry =
            registry.map_err(|source| NodeError::Registry { address: hub.subnet().machine(), source })?;

        let mut nodes = Vec::new();
        for (index, machine) in (0_u8..).zip(machines) {
            let pods = Ipv4Net::new_assert(Ipv4Addr::new(10, 244, index + 1, 0), 24);
            nodes.push(Node { machine, address: hub.subnet().node(index), pods });
        }
        let statfs = statfs(dir).map_err(|errno| NodeError::file("looking at", dir)(errno.into()))?;
        // An overlay has no place on another one.
        let overlay = statfs.filesystem_type() == OVERLAYFS_SUPER_MAGIC;
        let snapshotter = if overlay { "native" } else { "overlayfs" };
        let nodes = Self { all: nodes, gateways, hub, registry, kubelet, plugins, programs, snapshotter, id };
        for machine in nodes.machines() {
            nodes.cable(machine).await?;
        }
        Ok(nodes)
    }

    /// Connects a machine with the network of the nodes, if it is to be on that.
    async fn cable(&self, machine: &Machine) -> Result<(), NodeError> {
        let namespace = machine.network_namespace();
        let Some(index) = self.all.iter().position(|node| node.name() == machine.name()) else {
            return Ok(network::set_loopback_up(&namespace).await?);
        };
        let others = self.all.iter().filter(|other| other.name() != machine.name());
        let others: Vec<_> = others.map(|other| (other.pods, other.address)).collect();
        let address = self.hub.subnet().node(u8::try_from(index).unwrap_or_default());
        Ok(self.hub.join(&format!("node{index}"), &namespace, address, &others).await?)
    }

    /// Makes a machine anew that has ended. Nothing runs on it then.
    pub(crate) async fn restart(&self, supervisor: &Supervisor, machine: &Machine) -> Result<(), NodeError> {
        machine.restart(supervisor).await?;
        self.cable(machine).await
    }

    /// All machines that run something.
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

    /// The machines outside of the cluster.
    pub fn gateways(&self) -> &[Machine] {
        &self.gateways
    }

    /// The machine of a node or a gateway.
    pub fn machine(&self, name: &str) -> Option<&Machine> {
        self.machines().find(|machine| machine.name() == name)
    }

    /// The address of this machine on the network of the nodes.
    pub fn machine_address(&self) -> Ipv4Addr {
        self.hub.subnet().machine()
    }

    /// Writes what a node's programs read.
    pub(crate) fn configure(
        &self,
        node: &Node,
        authority: &Path,
        certificate: &CertificateFiles,
        kubeconfig: &Path,
    ) -> Result<(), NodeError> {
        let machine = &node.machine;
        let write = |path: &str, text: &str| {
            let path = machine.outside(path);
            write_private(&path, text).map_err(|error| NodeError::File {
                operation: "writing",
                path,
                source: io::Error::other(error),
            })
        };
        let kubelet = configuration::kubelet(&Kubelet {
            address: node.address,
            cgroup: &format!("/{}-{}", self.id, node.name()),
            authority,
            certificate: &certificate.certificate,
            key: &certificate.key,
        });
        write(machine::KUBELET_CONFIGURATION, &kubelet.to_string())?;
        write(machine::KUBELET_KUBECONFIG, &read(kubeconfig)?)?;
        write(machine::CONTAINERD_CONFIGURATION, &configuration::containerd(self.snapshotter))?;
        let registries = format!("{}/_default/hosts.toml", configuration::REGISTRIES);
        write(&registries, &configuration::registry(&self.registry.url))?;
        let network = configuration::pod_network(node.pods).to_string();
        write(&format!("{CNI_CONFIGURATION}/10-cluster.conflist"), &network)?;
        let bin = machine.outside(CNI_BIN);
        fs::create_dir_all(&bin).map_err(NodeError::file("making the directory", &bin))?;
        for plugin in &self.plugins {
            let to = bin.join(plugin.file_name().unwrap_or_default());
            // Copied, as the cache may be where a node has its own directories.
            fs::copy(plugin, &to).map_err(NodeError::file("installing", &to))?;
        }
        Ok(())
    }

    /// Starts what runs on the machines, all at once, and returns when containerd and ovsdb-server listen everywhere.
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
        machine::make_database(machine, &self.programs).await?;
        for service in Service::ALL.into_iter().filter(|service| pods || !service.is_for_pods()) {
            self.start_service(supervisor, machine.name(), service).await?;
        }
        Ok(())
    }

    /// Starts a program of a machine, at first or again, and returns when it listens.
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
        };
        supervisor.spawn(&machine.child(service), command).await?;
        if let Some(socket) = service.socket() {
            let socket = machine.inside(socket);
            while UnixStream::connect(&socket).await.is_err() {
                tokio::time::sleep(POLL).await;
            }
        }
        Ok(())
    }
}

/// Makes an image of large files: a second or so.
async fn made(make: impl FnOnce() -> Result<Image, ImageError> + Send + 'static) -> Result<Image, NodeError> {
    let made = tokio::task::spawn_blocking(make).await;
    let lost = |error: tokio::task::JoinError| NodeError::Program {
        program: "packing an image".to_owned(),
        said: error.to_string(),
    };
    Ok(made.map_err(lost)??)
}

fn read(path: &Path) -> Result<String, NodeError> {
    fs::read_to_string(path).map_err(NodeError::file("reading", path))
}
