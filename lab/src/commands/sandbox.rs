//! `eno sandbox`: a sandbox in the foreground.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, bail};
use eno_control_plane::parts::Parts;
use eno_simulator::Topology;
use tokio_util::sync::CancellationToken;

use crate::sandbox::{self, InCluster, OperatorImages, Sandbox, SandboxOptions};

/// Runs everything on this machine until it is stopped.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  eno sandbox --dir /tmp/eno
  eno sandbox --dir /tmp/eno --nodes 2
  eno sandbox --dir /tmp/eno --nodes 2 --in-cluster
  eno sandbox --dir /tmp/eno --openstack")]
pub(super) struct SandboxArgs {
    /// Where everything is kept; used again, it is the same cluster and the same switches.
    #[arg(long)]
    dir: PathBuf,
    /// The fabric to simulate, YAML or JSON; a leaf–spine of 4 switches with 4 nodes, or with `--nodes` that many, when
    /// absent.
    #[arg(long)]
    topology: Option<PathBuf>,
    /// Run this many of the topology's nodes, the first ones, for real: each with a kubelet, containerd and Open vSwitch,
    /// in namespaces of its own, wired to the fabric. Needs root.
    #[arg(long, default_value_t = 0)]
    nodes: usize,
    /// With --nodes: a further image name, without tag, for which pods get the image made on the spot (busybox).
    /// May be repeated.
    #[arg(long = "alias-image", value_name = "NAME")]
    alias_images: Vec<String>,
    /// Run NATS, the engine, the drivers and the agents as pods, installed as `eno install` does it. Services, names and
    /// volumes work as on any cluster. Needs --nodes.
    #[arg(long)]
    in_cluster: bool,
    /// With --in-cluster: the directory that `make image` wrote. Without it, the images contain the programs beside eno.
    #[arg(long, value_name = "DIR", requires = "in_cluster")]
    images: Option<PathBuf>,
    /// Run Keystone and Neutron of OpenStack, with a trunk for the NIC of each VM, and a FabricDevice for them. The VMs are
    /// the nodes of --nodes, whose NICs then are not wired to the fabric; without --nodes, vm1 and vm2, which run no pods.
    #[arg(long, conflicts_with = "in_cluster")]
    openstack: bool,
    /// Start neither the engine nor the drivers, for running them by hand.
    #[arg(long)]
    bare: bool,
}

pub(super) async fn run(args: SandboxArgs, stop: CancellationToken) -> anyhow::Result<()> {
    let mut options = SandboxOptions::new(&args.dir, Parts::from_env()?)?;
    if let Some(path) = &args.topology {
        options.topology = topology(path)?;
    } else if args.nodes > 0 {
        options.topology = sandbox::topology(args.nodes);
    }
    options.nodes = args.nodes;
    options.openstack = args.openstack;
    options.image_aliases = args.alias_images;
    options.agents = !args.bare;
    options.engine = !args.bare;
    options.drivers = !args.bare;
    options.in_cluster = args.in_cluster.then(|| InCluster {
        images: args.images.map_or(OperatorImages::Programs, OperatorImages::Layouts),
        ..InCluster::default()
    });
    options.report = Arc::new(|line| eprintln!("{line}"));
    let sandbox = tokio::select! {
        sandbox = Sandbox::start(options) => sandbox?,
        // Dropping the future kills the children.
        () = stop.cancelled() => return Ok(()),
    };
    print_help(&sandbox);
    eno::outln!("ready");
    let ended = tokio::select! {
        ended = sandbox.supervise() => Some(ended),
        () = stop.cancelled() => None,
    };
    eprintln!("stopping");
    sandbox.stop().await;
    match ended {
        Some(ended) => bail!("{ended}"),
        None => Ok(()),
    }
}

/// Reads a topology file.
pub(super) fn topology(path: &Path) -> anyhow::Result<Topology> {
    let text = std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    Topology::parse(&text).with_context(|| path.display().to_string())
}

/// Prints how to use a running sandbox.
pub(super) fn print_help(sandbox: &Sandbox) {
    let info = sandbox.info();
    eno::outln!("Kubernetes: export KUBECONFIG={}", info.kubeconfig.display());
    eno::outln!("            kubectl get eno -A");
    if let Some(contexts) = &info.contexts {
        eno::outln!("NATS:       export ENO_HOME={}", contexts.display());
    } else {
        eno::outln!("NATS:       export ENO_NATS_URL={}", info.nats_url);
        eno::outln!("            export ENO_NATS_CREDENTIALS={}", info.nats_credentials.display());
    }
    eno::outln!("Switches:   {}", info.fabric.display());
    if let Some(openstack) = &info.openstack {
        eno::outln!("OpenStack:  . {}  ({})", openstack.openrc.display(), openstack.auth_url);
    }
    for process in &info.processes {
        if let Some(metrics) = &process.metrics {
            eno::outln!("Metrics:    {metrics}  ({})", process.name);
        }
    }
    for node in &info.nodes {
        eno::outln!("Node:       {} {}  (nsenter -t {} -a)", node.name, node.address, node.pid);
    }
    eno::outln!("Logs:       {}", sandbox.dir().join("logs").display());
}
