//! What a sandbox is started with.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use eno_control_plane::parts::Parts;
use eno_simulator::Topology;

use super::Role;
use crate::programs::{self, ProgramError};

/// Told what is done, a line at a time.
pub type Report = Arc<dyn Fn(&str) + Send + Sync>;

/// As what the agents run, and the resolvers beside them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum AgentsAs {
    /// As processes of the sandbox, with the capabilities that `deploy/agent` gives them.
    #[default]
    Processes,
    /// As the pods of `deploy/agent`, with an image that is made on the spot of the programs beside `eno`.
    Pods,
}

/// The ways on which a process reaches the others, where they are not the usual ones: something stands between.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ways {
    /// The kubeconfig that it is given.
    pub kubeconfig: Option<PathBuf>,
    /// The URL of NATS that it is given.
    pub nats_url: Option<String>,
    /// It is not told what identifies the cluster.
    pub no_cluster_id: bool,
}

/// What to start.
#[allow(clippy::struct_excessive_bools, reason = "what runs and what does not, independent of each other")]
#[derive(Clone)]
pub struct SandboxOptions {
    /// Holds everything; made when it isn't there.
    pub dir: PathBuf,
    /// The fabric to simulate.
    pub topology: Topology,
    /// Where the control plane's programs come from.
    pub parts: Parts,
    /// The `eno` program that is run for the engine, the drivers and the simulator.
    pub eno: PathBuf,
    /// How many of the topology's machines are nodes that run pods, the first ones; this needs root. The others are
    /// not there then. 0: no node runs pods, but there is a Node object for each machine.
    pub nodes: usize,
    /// Whether the agents run on the nodes.
    pub agents: bool,
    /// As what the agents run.
    pub agents_as: AgentsAs,
    /// What the agents may use as masters and parents of pods' interfaces, besides what they make themselves.
    pub agent_interfaces: Vec<String>,
    /// Further names of images, tags not counted, for which the nodes get the one that is made on the spot.
    pub image_aliases: Vec<String>,
    /// Whether the engine runs. Without it, nothing acts on the objects.
    pub engine: bool,
    /// Whether the drivers run.
    pub drivers: bool,
    /// Further arguments of the engine.
    pub engine_arguments: Vec<OsString>,
    /// What the operator's processes log, as their `--log` has it; `None`: what they log by themselves.
    pub log: Option<String>,
    /// Whether the API server writes down every request.
    pub audit: bool,
    /// The identifier in the names of VLANs, at most 8 characters of `[a-z0-9]`.
    pub cluster_id: String,
    /// How long the fabric and the operator may take to be ready, the control plane not counted.
    pub ready_timeout: Duration,
    /// Told what is done.
    pub report: Report,
}

impl SandboxOptions {
    /// The default: a leaf–spine of four switches with four nodes, the engine and all drivers, and nothing told.
    pub fn new(dir: impl Into<PathBuf>, parts: Parts) -> Result<Self, ProgramError> {
        Ok(Self {
            dir: dir.into(),
            topology: Topology::leaf_spine(2, 2, 4),
            parts,
            eno: programs::eno()?,
            nodes: 0,
            agents: true,
            agents_as: AgentsAs::default(),
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

    /// Whether agents tell the engine of nodes.
    pub(super) fn has_agents(&self) -> bool {
        self.nodes > 0 && self.agents
    }

    /// Whether agents are processes of ours.
    pub(super) fn has_agent_processes(&self) -> bool {
        self.has_agents() && self.agents_as == AgentsAs::Processes
    }

    /// Whether agents are pods.
    pub(super) fn has_agent_pods(&self) -> bool {
        self.has_agents() && self.agents_as == AgentsAs::Pods
    }

    pub(super) fn runs(&self, role: Role) -> bool {
        match role {
            Role::Engine => self.engine,
            Role::DriverNetconf | Role::DriverOvsFabric | Role::DriverNad => self.drivers,
        }
    }

    pub(super) fn arguments(&self, role: Role) -> Vec<OsString> {
        match role {
            Role::Engine => self.engine_arguments.clone(),
            Role::DriverNetconf | Role::DriverOvsFabric | Role::DriverNad => Vec::new(),
        }
    }
}

impl fmt::Debug for SandboxOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A topology may hold passwords.
        f.debug_struct("SandboxOptions").field("dir", &self.dir).finish_non_exhaustive()
    }
}
