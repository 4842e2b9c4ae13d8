//! The nodes that run pods: their selection from the topology, their cables, and the operator's processes on them.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;

use eno_control_plane::NodesOptions;
use eno_control_plane::node::{CONTAINERD_SOCKET, Machine, Node, NodeImage, Nodes, OVSDB_SOCKET, Service};
use eno_simulator::Topology;
use serde::{Deserialize, Serialize};

use super::wait::{self, Deadline};
use super::{Sandbox, SandboxError, SandboxOptions, agent_pods, agent_tokens, in_cluster, openstack};
use crate::manifests::NAMESPACE;
use eno::programs;

pub use eno_control_plane::node::TEST_IMAGE;

/// The port of an agent's `/metrics`, `/healthz` and `/readyz` at its node's address.
const AGENT_PORT: u16 = 9465;
/// The path of the resolver's socket inside a node.
const RESOLVER_SOCKET: &str = "/run/eno/cri.sock";
/// The folder of addresses inside a node.
const ADDRESSES: &str = "/var/lib/eno/ipam";
/// The capabilities of the agent, as in the DaemonSet of `deploy/`.
const AGENT_CAPABILITIES: &str = "-all,+net_admin,+sys_admin";
const NO_CAPABILITIES: &str = "-all";

/// A node that runs pods.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeInfo {
    /// Its name.
    pub name: String,
    /// The first process of its namespaces.
    pub pid: u32,
    /// Its network namespace; valid while it runs.
    pub netns: PathBuf,
    /// Its address on the network of the nodes.
    pub address: Ipv4Addr,
    /// The addresses of its pods' primary interfaces.
    pub pods: String,
}

impl From<&Node> for NodeInfo {
    fn from(node: &Node) -> Self {
        Self {
            name: node.name().to_owned(),
            pid: node.machine().pid(),
            netns: node.machine().network_namespace(),
            address: node.address(),
            pods: node.pods().to_string(),
        }
    }
}

/// A process on a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NodeProcess {
    Service(Service),
    /// `eno-cri-resolver`.
    Resolver,
    /// `eno agent`.
    Agent,
}

impl NodeProcess {
    pub(super) const OPERATOR: [Self; 2] = [Self::Resolver, Self::Agent];

    fn name(self) -> &'static str {
        match self {
            Self::Service(service) => service.name(),
            Self::Resolver => "resolver",
            Self::Agent => "agent",
        }
    }

    pub(super) fn child(self, machine: &str) -> String {
        format!("{machine}-{}", self.name())
    }
}

/// The options of the nodes: the first machines of the topology, and its networks as gateways.
pub(super) async fn options(options: &SandboxOptions) -> Result<Option<NodesOptions>, SandboxError> {
    if options.nodes == 0 {
        return if options.in_cluster.is_some() { Err(SandboxError::NoNodes) } else { Ok(None) };
    }
    let nodes = &options.topology.nodes;
    if nodes.len() < options.nodes {
        return Err(SandboxError::TooManyNodes { wanted: options.nodes, there: nodes.len() });
    }
    let holder = options.eno.with_file_name("eno-sandbox-node");
    if !holder.is_file() {
        return Err(SandboxError::NoHolder { path: holder });
    }
    let names = nodes.iter().take(options.nodes).map(|node| node.name.clone()).collect();
    let mut made = NodesOptions::new(holder, names);
    for network in &options.topology.physical_networks {
        if !made.gateways.contains(&network.name) {
            made.gateways.push(network.name.clone());
        }
    }
    if options.openstack {
        made.gateways.extend([openstack::HYPERVISOR, openstack::GATEWAY].map(str::to_owned));
    }
    made.aliases.extend(options.image_aliases.iter().cloned());
    if options.has_agent_pods() {
        made.images.push(NodeImage::Programs(agent_pods::image()?));
    }
    made.services = options.services;
    if let Some(in_cluster) = &options.in_cluster {
        made.services = true;
        made.images.extend(in_cluster::images(in_cluster, &options.parts).await?);
    }
    Ok(Some(made))
}

/// The cables between switches and machines in the format of the simulator's option `--wire`:
/// `SWITCH/PORT=NAMESPACE:INTERFACE`.
pub(super) fn wires(topology: &Topology, nodes: &Nodes) -> Vec<String> {
    let wire = |switch: &str, port: &str, machine: &Machine, interface: &str| {
        format!("{switch}/{port}={}:{interface}", machine.network_namespace().display())
    };
    let mut wires = Vec::new();
    for node in &topology.nodes {
        if let Some(machine) = nodes.machine(&node.name) {
            let interfaces = node.interfaces.iter();
            wires.extend(interfaces.map(|nic| wire(&nic.switch, &nic.port, machine, &nic.name)));
        }
    }
    let mut count: BTreeMap<&str, usize> = BTreeMap::new();
    for network in &topology.physical_networks {
        if let Some(machine) = nodes.machine(&network.name) {
            let number = count.entry(&network.name).or_default();
            *number += 1;
            wires.push(wire(&network.switch, &network.port, machine, &format!("eth{number}")));
        }
    }
    wires
}

/// The machine and the process on it that a child's name stands for.
pub(super) fn find<'a>(sandbox: &'a Sandbox, child: &str) -> Option<(&'a str, NodeProcess)> {
    let nodes = sandbox.control_plane.nodes()?;
    let operator = || NodeProcess::OPERATOR.into_iter().filter(|_| sandbox.options.has_agent_processes());
    let all = || Service::ALL.map(NodeProcess::Service).into_iter().chain(operator());
    let names = nodes.all().iter().map(Node::name).chain(nodes.gateways().iter().map(Machine::name));
    names
        .flat_map(|machine| all().map(move |what| (machine, what)))
        .find(|(machine, what)| what.child(machine) == child)
}

/// Starts or restarts a process on a machine, and waits until it is ready.
pub(super) async fn start(
    sandbox: &Sandbox,
    machine: &str,
    what: NodeProcess,
    deadline: Deadline,
) -> Result<(), SandboxError> {
    let child = what.child(machine);
    let supervisor = sandbox.control_plane.supervisor();
    let unknown = || SandboxError::NoSuchChild(child.clone());
    let nodes = sandbox.control_plane.nodes().ok_or_else(unknown)?;
    let node = || nodes.get(machine).ok_or_else(unknown);
    match what {
        NodeProcess::Service(service) => {
            let started = nodes.start_service(supervisor, machine, service);
            deadline.wait(&child, async { started.await.map_err(SandboxError::Node) }).await
        }
        NodeProcess::Resolver => {
            supervisor.spawn(&child, resolver(node()?)?).await?;
            Ok(())
        }
        NodeProcess::Agent => {
            let token = agent_tokens::write(sandbox, machine).await?;
            supervisor.spawn(&child, agent(sandbox, node()?, &token)?).await?;
            let url = format!("{}/readyz", agent_url(node()?));
            wait::http(&sandbox.http, &format!("the readiness of {child}"), &url, deadline, |_| true).await
        }
    }
}

/// Starts the resolver and the agent of every node; `since` is the start of the sandbox (seconds since 1970).
pub(super) async fn start_operator(
    sandbox: &Sandbox,
    since: i64,
    deadline: Deadline,
) -> Result<(), SandboxError> {
    if sandbox.options.has_agent_pods() {
        return agent_pods::start(sandbox, since, deadline).await;
    }
    agent_tokens::prepare(sandbox).await?;
    let names = sandbox.control_plane.nodes().into_iter().flat_map(Nodes::all).map(Node::name);
    let started = names.map(|name| async move {
        for what in NodeProcess::OPERATOR {
            start(sandbox, name, what, deadline).await?;
        }
        Ok::<_, SandboxError>(())
    });
    futures::future::try_join_all(started).await?;
    Ok(())
}

/// The names of the operator's processes on nodes, agents first.
pub(super) fn operator_children(nodes: &Nodes) -> impl Iterator<Item = String> {
    nodes
        .all()
        .iter()
        .flat_map(|node| NodeProcess::OPERATOR.into_iter().rev().map(|what| what.child(node.name())))
}

/// The base URL of the agent's `/metrics`, `/healthz` and `/readyz`.
pub(super) fn agent_url(node: &Node) -> String {
    format!("http://{}:{AGENT_PORT}", node.address())
}

/// The beginning of a command on a node that restricts the following program to these capabilities.
fn confined(node: &Node, capabilities: &str) -> Command {
    let mut command = node.machine().command("setpriv");
    command.args(["--bounding-set", capabilities, "--inh-caps", capabilities, "--no-new-privs", "--"]);
    command
}

fn resolver(node: &Node) -> Result<Command, SandboxError> {
    let socket = node.machine().inside(RESOLVER_SOCKET);
    if let Some(directory) = socket.parent() {
        std::fs::create_dir_all(directory).map_err(SandboxError::file("making the directory", directory))?;
    }
    let mut command = confined(node, NO_CAPABILITIES);
    command.arg(programs::find_program("eno-cri-resolver")?);
    command.env("ENO_CRI_SOCKET", RESOLVER_SOCKET).env("ENO_CRI_RUNTIME", CONTAINERD_SOCKET);
    Ok(command)
}

fn agent(sandbox: &Sandbox, node: &Node, token: &Path) -> Result<Command, SandboxError> {
    let nats = sandbox.control_plane.nats();
    let addresses = node.machine().inside(ADDRESSES);
    std::fs::create_dir_all(&addresses).map_err(SandboxError::file("making the directory", &addresses))?;
    let mut command = confined(node, AGENT_CAPABILITIES);
    command
        .arg(programs::find_program("eno-driver-node")?)
        .env("ENO_NODE", node.name())
        .env("ENO_INSTANCE", node.name())
        .env("ENO_NATS_URL", &nats.url)
        .env("ENO_NATS_CREDENTIALS", token)
        .env("ENO_NAMESPACE", NAMESPACE)
        .env("ENO_LISTEN", format!("{}:{AGENT_PORT}", node.address()))
        .env("ENO_OVSDB", format!("unix:{OVSDB_SOCKET}"))
        // The user space datapath needs no kernel module and works on every machine.
        .env("ENO_OVS_DATAPATH", "netdev")
        .env("ENO_CRI_SOCKET", RESOLVER_SOCKET)
        .env("ENO_IPAM_DIR", ADDRESSES)
        .env("ENO_ALLOW_INTERFACES", sandbox.options.agent_interfaces.join(","))
        .env_remove("ENO_KUBECONFIG")
        .env_remove("KUBECONFIG");
    command.envs(sandbox.options.log.iter().map(|filter| ("ENO_LOG", filter)));
    Ok(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_processes_are_named_after_their_node() {
        assert_eq!(NodeProcess::Agent.child("node1"), "node1-agent");
        assert_eq!(NodeProcess::Service(Service::Kubelet).child("node1"), "node1-kubelet");
    }
}
