//! Options of a sandbox.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use eno_control_plane::parts::Parts;
use eno_simulator::Topology;

use eno::programs::{self, ProgramError};
use eno_parts::Part;

/// Receives progress messages, one line each.
pub type Report = Arc<dyn Fn(&str) + Send + Sync>;

/// How the agents and their resolvers run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum AgentMode {
    /// As processes of the sandbox, with the capabilities of `deploy/agent`.
    #[default]
    Processes,
    /// As the pods of `deploy/agent`, with an image built from the programs beside `eno`.
    Pods,
}

/// Where the images of the operator come from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum OperatorImages {
    /// Built from the programs beside `eno` and the part nats-server.
    #[default]
    Programs,
    /// The layouts `eno` and `eno-nats` in the directory that `make image` writes.
    Layouts(PathBuf),
}

/// An operator that runs as the pods of `deploy/`, on a cluster with Services, names and volumes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InCluster {
    /// Its images.
    pub images: OperatorImages,
    /// The directory with the programs of an earlier version. The sandbox installs that version, by its own `eno install`
    /// if it has one. The images of `images` are there for an upgrade.
    pub earlier: Option<PathBuf>,
    /// Values of the installation that differ from the sandbox's, by their names in a values file.
    pub values: BTreeMap<String, serde_json::Value>,
}

/// What differs for a process, such as the endpoints of proxies.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProcessOverrides {
    /// Another kubeconfig.
    pub kubeconfig: Option<PathBuf>,
    /// Another URL of NATS.
    pub nats_url: Option<String>,
    /// Leave out `ENO_CLUSTER_ID`.
    pub no_cluster_id: bool,
    /// Further arguments.
    pub arguments: Vec<OsString>,
}

/// Options of a sandbox.
#[allow(clippy::struct_excessive_bools, reason = "what runs and what does not, independent of each other")]
#[derive(Clone)]
pub struct SandboxOptions {
    /// The directory of all files; created if missing.
    pub dir: PathBuf,
    /// The fabric to simulate.
    pub topology: Topology,
    /// The source of the control plane's programs.
    pub parts: Parts,
    /// The `eno` program of the engine, the drivers and the simulator.
    pub eno: PathBuf,
    /// Number of machines that are nodes with pods, from the first on; needs root. The other machines then don't exist.
    /// 0: no node runs pods, but each machine has a Node object.
    pub nodes: usize,
    /// Whether the agents run on the nodes.
    pub agents: bool,
    /// How the agents run.
    pub agent_mode: AgentMode,
    /// Whether Services work on nodes with pods.
    pub services: bool,
    /// Run the engine, the drivers, the agents and NATS as pods; needs nodes. `engine`: whether they are installed.
    pub in_cluster: Option<InCluster>,
    /// Whether Keystone and Neutron run. The nodes that run pods then are VMs, whose NICs are trunks of Neutron and not on
    /// the simulated fabric. Without such nodes, there are Node objects of two VMs.
    pub openstack: bool,
    /// Additional interfaces that the agents may use as masters and parents of pods' interfaces.
    pub agent_interfaces: Vec<String>,
    /// Further image names, without tags, for which the nodes get the test image.
    pub image_aliases: Vec<String>,
    /// Whether the engine runs. Without it, nothing acts on the objects.
    pub engine: bool,
    /// Whether the drivers run.
    pub drivers: bool,
    /// Further arguments of the engine.
    pub engine_arguments: Vec<OsString>,
    /// The log filter of the operator's processes, as for `--log`; `None`: their default.
    pub log: Option<String>,
    /// Whether the API server writes an audit log.
    pub audit: bool,
    /// The identifier in the names of VLANs, at most 8 characters of `[a-z0-9]`.
    pub cluster_id: String,
    /// Maximum time until the fabric and the operator are ready, without the control plane.
    pub ready_timeout: Duration,
    /// Receives progress messages.
    pub report: Report,
}

/// Two leaves, two spines, this number of nodes and the network `dc-gw`. The router `gw1` hangs on `leaf2`.
pub fn topology(nodes: usize) -> Topology {
    let mut topology = Topology::leaf_spine(2, 2, nodes);
    topology.add_router("gw1", "openconfig", &["leaf2"]);
    topology
}

impl SandboxOptions {
    /// The defaults: the [`topology`] of four nodes, the engine and all drivers, and no progress
    /// messages.
    pub fn new(dir: impl Into<PathBuf>, parts: Parts) -> Result<Self, ProgramError> {
        Ok(Self {
            dir: dir.into(),
            topology: topology(4),
            parts,
            eno: programs::eno()?,
            nodes: 0,
            agents: true,
            agent_mode: AgentMode::default(),
            services: false,
            in_cluster: None,
            openstack: false,
            agent_interfaces: Vec::new(),
            image_aliases: Vec::new(),
            engine: true,
            drivers: true,
            engine_arguments: Vec::new(),
            log: None,
            audit: false,
            cluster_id: "sandbox".to_owned(),
            ready_timeout: Duration::from_mins(2),
            report: Arc::new(|_| ()),
        })
    }

    /// Whether the sandbox runs agents.
    pub(super) fn has_agents(&self) -> bool {
        self.nodes > 0 && self.agents && self.in_cluster.is_none()
    }

    /// Whether agents are processes of the sandbox.
    pub(super) fn has_agent_processes(&self) -> bool {
        self.has_agents() && self.agent_mode == AgentMode::Processes
    }

    /// Whether agents are pods.
    pub(super) fn has_agent_pods(&self) -> bool {
        self.has_agents() && self.agent_mode == AgentMode::Pods
    }

    /// The parts of the operator that are processes, in start order: the engine is the last.
    pub(super) fn processes(&self) -> impl Iterator<Item = &'static Part> {
        let own = eno_parts::ALL.into_iter().filter(|part| part.sandbox && self.in_cluster.is_none());
        let drivers = own.clone().filter(|part| self.drivers && part.driver.is_some());
        drivers.chain(own.filter(|part| self.engine && part.driver.is_none()))
    }

    pub(super) fn arguments(&self, part: &Part) -> Vec<OsString> {
        if part == eno_parts::ENGINE { self.engine_arguments.clone() } else { Vec::new() }
    }
}

impl fmt::Debug for SandboxOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The topology may contain passwords.
        f.debug_struct("SandboxOptions").field("dir", &self.dir).finish_non_exhaustive()
    }
}
