//! `eno-driver-node`, the daemon that `eno agent` runs: the driver of its node.

use std::net::IpAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use eno_driver_node::addresses::Addresses;
use eno_driver_node::driver::{NodeDriver, Switch};
use eno_driver_node::host::Host;
use eno_driver_node::host::state::Installation;
use eno_driver_node::netlink::Namespace;
use eno_driver_node::ovs::{Datapath, Ovs};
use eno_driver_node::pods::{Options, Pods};
use eno_driver_node::probes::{ProbeMetrics, Probes};
use eno_ovsdb::Endpoint;
use eno_sbi::{DriverAbout, Ownership, driver_main};
use eno_schemas::{MarkMask, OvsDatapath};
use ipnet::IpNet;

const ABOUT: DriverAbout = DriverAbout {
    program: "eno-driver-node",
    description: "Realises the networks of a node, and what its running pods are given",
    version: eno_sbi::VERSION,
    ownership: Ownership::PerTarget,
    // Long work runs on threads of its own, and the allocator keeps memory for each runtime thread.
    threads: NonZeroUsize::new(1),
};

/// Interval of audits, which read all pods whether or not they were notified as changed.
const AUDIT: Duration = Duration::from_mins(1);

#[derive(Debug, clap::Args)]
struct Args {
    /// The name of this node, as Kubernetes calls it
    #[arg(long, env = "ENO_NODE", value_name = "NAME")]
    node: String,
    /// Where Open vSwitch's database listens: unix:PATH or tcp:HOST:PORT
    #[arg(long, env = "ENO_OVSDB", value_name = "ADDRESS", default_value = "unix:/run/openvswitch/db.sock")]
    ovsdb: String,
    /// The datapath of Open vSwitch bridges that ask for none in particular
    #[arg(long, env = "ENO_OVS_DATAPATH", value_name = "TYPE", default_value = "system")]
    ovs_datapath: DatapathType,
    /// The socket of eno-cri-resolver
    #[arg(long, env = "ENO_CRI_SOCKET", value_name = "SOCKET", default_value = eno_cri::DEFAULT_SOCKET)]
    cri_resolver: PathBuf,
    /// An interface of this host that pods' interfaces may be made on, besides those that ENO made; may be repeated
    #[arg(long, env = "ENO_ALLOW_INTERFACES", value_name = "NAME", value_delimiter = ',')]
    allow_interface: Vec<String>,
    /// A network of the cluster, such as that of its services or pods, that no bridge of pods may overlap; may be repeated
    #[arg(long, env = "ENO_RESERVED_NETWORKS", value_name = "CIDR", value_delimiter = ',')]
    reserved_network: Vec<IpNet>,
    /// The API server in the cluster, as every pod has it, which may be a name: no bridge of pods may have its address
    #[arg(long, env = "KUBERNETES_SERVICE_HOST", value_name = "ADDRESS", hide = true)]
    api_server: Option<String>,
    /// Adjacent bits of marks of packets and connections on which nobody else on the nodes depends: ENO leads answers to
    /// gateways by them, for as many BGPSessionGroups on a node as they have values
    #[arg(long, env = "ENO_RETURN_PATH_MASK", value_name = "BITS", default_value_t)]
    return_path_mask: MarkMask,
    /// Where /proc/sys/net is mounted writable
    #[arg(long, env = "ENO_PROC_SYS", value_name = "DIR", default_value = "/proc/sys/net")]
    proc_sys: PathBuf,
    /// Where container runtimes keep the network namespaces of pods
    #[arg(long, env = "ENO_NAMESPACES", value_name = "DIR", default_value = "/run/netns")]
    namespaces: PathBuf,
    /// The folder of addresses that pods get when they start, which the CNI plugin eno-ipam has, too
    #[arg(long, env = "ENO_IPAM_DIR", value_name = "DIR", default_value = "/var/lib/eno/ipam")]
    ipam_dir: PathBuf,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum DatapathType {
    /// In the kernel, by its module
    System,
    /// In user space
    Netdev,
}

impl Args {
    fn driver(self, metrics: ProbeMetrics) -> anyhow::Result<NodeDriver<eno_cri::Client>> {
        let host = Namespace::current()?;
        let endpoint: Endpoint = self.ovsdb.parse()?;
        let socket = self.ovsdb.strip_prefix("unix:").map(PathBuf::from);
        let (datapath, ovs_datapath) = match self.ovs_datapath {
            DatapathType::System => (Datapath::System, OvsDatapath::System),
            DatapathType::Netdev => (Datapath::Netdev, OvsDatapath::Netdev),
        };
        let addresses = Addresses::new(self.ipam_dir, &self.namespaces);
        let api_server = self.api_server.and_then(|host| host.parse::<IpAddr>().ok()).map(IpNet::from);
        let installation = Installation {
            node: self.node.clone(),
            reserved: self.reserved_network.into_iter().chain(api_server).collect(),
            ovs_datapath,
            return_path_mask: self.return_path_mask,
            proc_sys_net: self.proc_sys.clone(),
        };
        let options = Options {
            host: host.clone(),
            audit: AUDIT,
            allowed_masters: self.allow_interface.into_iter().collect(),
            ovs_datapath,
            proc_sys_net: self.proc_sys.clone(),
            namespaces: self.namespaces,
        };
        let pods = Pods::new(eno_cri::Client::new(self.cri_resolver), options);
        let switch = Arc::new(Switch::new(Ovs::new(endpoint, datapath), socket));
        let probes = Probes::start(&self.node, host.clone(), self.proc_sys, Arc::clone(&switch), metrics);
        Ok(NodeDriver::new(self.node, addresses, Host::new(host, installation), pods, switch, probes))
    }
}

fn main() -> ExitCode {
    driver_main(ABOUT, async |args: Args, registry| {
        let metrics = ProbeMetrics::default();
        metrics.register(registry);
        args.driver(metrics)
    })
}
