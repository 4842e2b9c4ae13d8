//! Nodes with an agent each, on one NATS server, and a fabric between them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv6Addr;
use std::sync::Arc;
use std::time::Duration;

use eno_conformance::ovs_database::OvsDatabase;
use eno_conformance::{Engine, NatsServer, RunningHost};
use eno_driver_node::addresses::Addresses;
use eno_driver_node::driver::{NodeDriver, Switch};
use eno_driver_node::host::Host;
use eno_driver_node::host::state::Installation;
use eno_driver_node::netlink::{Link, Namespace, Netlink};
use eno_driver_node::pods::{Options, Pods};
use eno_driver_node::probes::GROUP;
use eno_sbi::host::{HostOptions, Ownership};
use eno_schemas::{
    Applied, Command, Desired, HostNetwork, NetworkProbes, NodeDesired, OvsDatapath, ProbeResults,
    ProbedGateway, ProbedPath, Uplink, VlanId, VlanSet, probe_address,
};

use crate::agent::conformance::{NoPods, probes};
use crate::host::common::Net;
use crate::ovs::fixture as ovs;

pub const CLUSTER: &str = "t1";
pub const POINT: &str = "cp-data";
pub const NETWORK: &str = "br0";

pub struct World {
    pub server: NatsServer,
    pub engine: Engine,
    /// The switch between the nodes, a bridge `sw`.
    pub fabric: ovs::Node,
    pub nodes: Vec<Node>,
    /// The cluster of the nodes.
    pub cluster: &'static str,
    /// The MTU that is commanded for uplinks.
    pub uplink_mtu: Option<u32>,
    sequence: u64,
    pub folder: tempfile::TempDir,
}

pub struct Node {
    pub switch: ovs::Node,
    agent: Option<RunningHost>,
    /// The number of its last command.
    commanded: u64,
}

/// The name of a node.
pub fn name(node: usize) -> String {
    format!("node{}", node + 1)
}

pub fn vlans(text: &str) -> VlanSet {
    text.parse().unwrap()
}

/// The probes of a node on these VLANs, in a ring of two nodes.
pub fn ring(node: usize, set: &str) -> NetworkProbes {
    NetworkProbes {
        point: POINT.to_owned(),
        network: NETWORK.to_owned(),
        next: Some(name(1 - node)),
        previous: Some(name(1 - node)),
        paths: vec![ProbedPath { revision: "1".to_owned(), vlans: vlans(set), mtu: None }],
        gateways: Vec::new(),
        crossed: Vec::new(),
        interval: 600,
    }
}

/// These probes with packets of that size.
pub fn of_size(mtu: u16, mut probes: NetworkProbes) -> NetworkProbes {
    for path in &mut probes.paths {
        path.mtu = Some(mtu);
    }
    probes
}

/// The address of the first node on a VLAN.
pub fn address(vlan: u16) -> Ipv6Addr {
    probe_address(CLUSTER, "node1", POINT, VlanId::new(vlan).unwrap())
}

pub fn gateway(address: &str, set: &str) -> ProbedGateway {
    ProbedGateway { address: address.parse().unwrap(), vlans: vlans(set) }
}

impl World {
    /// That many nodes without agents. The fabric lets all VLANs through.
    pub async fn new(nodes: usize) -> Self {
        Self::of((0..nodes).map(|_| ovs::Node::start()).collect()).await
    }

    /// The same of these nodes.
    pub async fn of(nodes: Vec<ovs::Node>) -> Self {
        let server = NatsServer::start().await;
        let engine = Engine::new(&server).await;
        let fabric = ovs::Node::start();
        let mut world = Self {
            server,
            engine,
            fabric,
            nodes: Vec::new(),
            cluster: CLUSTER,
            uplink_mtu: None,
            sequence: 0,
            folder: tempfile::tempdir().unwrap(),
        };
        world.set_fabric(&["add-br", "sw", "--", "set", "bridge", "sw", "datapath_type=netdev"]);
        for (node, switch) in nodes.into_iter().enumerate() {
            let port = format!("p{}", node + 1);
            let fabric = world.fabric.namespace();
            let fabric = fabric.file_name().unwrap().to_str().unwrap();
            switch.ip(&["link", "add", "eth1", "type", "veth", "peer", "name", &port, "netns", fabric]);
            world.fabric.ip(&["link", "set", &port, "up"]);
            world.set_fabric(&["add-port", "sw", &port]);
            world.nodes.push(Node { switch, agent: None, commanded: 0 });
        }
        world
    }

    /// Joins the fabrics of two clusters.
    pub fn join(&self, other: &Self) {
        let namespace = other.fabric.namespace();
        let namespace = namespace.file_name().unwrap().to_str().unwrap();
        self.fabric
            .ip(&["link", "add", "other", "type", "veth", "peer", "name", "other", "netns", namespace]);
        for world in [self, other] {
            world.fabric.ip(&["link", "set", "other", "up"]);
            world.set_fabric(&["add-port", "sw", "other"]);
        }
    }

    /// Changes the fabric, and waits until its switch has done so.
    pub fn set_fabric(&self, args: &[&str]) {
        OvsDatabase::vsctl(&self.fabric.database, args);
    }

    /// Two nodes with agents.
    pub async fn ring() -> Self {
        let mut world = Self::new(2).await;
        for node in 0..2 {
            world.start_agent(node).await;
        }
        world
    }

    pub async fn start_agent(&mut self, node: usize) {
        let namespace = self.nodes[node].namespace();
        let options = Options {
            host: namespace.clone(),
            audit: Duration::from_hours(1),
            allowed_masters: BTreeSet::new(),
            ovs_datapath: OvsDatapath::Netdev,
            proc_sys_net: "/proc/sys/net".into(),
            namespaces: self.folder.path().to_owned(),
        };
        let database = &self.nodes[node].switch.database;
        let switch = Arc::new(Switch::new(database.ovs(), Some(database.path("db.sock"))));
        let probes = probes(&name(node), &namespace, &switch);
        let host = Host::new(namespace, Installation::default());
        let addresses = Addresses::new(self.folder.path().join("no-ipam"), self.folder.path());
        let driver = NodeDriver::new(name(node), addresses, host, Pods::new(NoPods, options), switch, probes);
        let connection = self.server.connect("eno-driver").await;
        let mut options = HostOptions::new(connection, Ownership::PerTarget, "0");
        options.instance = name(node);
        self.nodes[node].agent = Some(RunningHost::start(driver, options));
    }

    /// Ends an agent as if its process were killed.
    pub async fn kill_agent(&mut self, node: usize) {
        self.nodes[node].agent.take().unwrap().kill().await;
    }

    /// Commands a node to probe.
    pub async fn command(&mut self, node: usize, probes: Vec<NetworkProbes>) {
        let of = |probes: &NetworkProbes| {
            probes.paths.iter().fold(VlanSet::EMPTY, |all, path| all.union(&path.vlans))
        };
        let carried = probes.iter().fold(VlanSet::EMPTY, |all, probes| all.union(&of(probes)));
        let bridge = HostNetwork::Ovs {
            datapath: None,
            uplink: Some(Uplink { interfaces: vec!["eth1".to_owned()], mtu: self.uplink_mtu }),
            patch: None,
            vlans: carried,
        };
        self.command_networks(node, BTreeMap::from([(NETWORK.to_owned(), bridge)]), probes).await;
    }

    pub async fn command_networks(
        &mut self,
        node: usize,
        networks: BTreeMap<String, HostNetwork>,
        probes: Vec<NetworkProbes>,
    ) {
        self.sequence += 1;
        self.nodes[node].commanded = self.sequence;
        let cluster = self.cluster.to_owned();
        let desired = NodeDesired { cluster, networks, probes, ..NodeDesired::default() };
        let command = Command::new("node", name(node), (1, self.sequence), Desired::Node(desired));
        self.engine.command(&command).await;
    }

    /// Commands both nodes of a ring.
    pub async fn command_ring(&mut self, set: &str) {
        self.command_both(|node| ring(node, set)).await;
    }

    /// Commands both nodes.
    pub async fn command_both(&mut self, probes: impl Fn(usize) -> NetworkProbes) {
        for node in 0..2 {
            self.command(node, vec![probes(node)]).await;
        }
    }

    /// Waits until the results of both nodes are as expected.
    pub async fn both(&self, expected: impl Fn(&ProbeResults) -> bool) {
        for node in 0..2 {
            self.results(node, &expected).await;
        }
    }

    /// The first results of a node since its last command, for its only place, that are as expected.
    pub async fn results(
        &self,
        node: usize,
        mut expected: impl FnMut(&ProbeResults) -> bool,
    ) -> ProbeResults {
        let mut found = None;
        let reported = |report: &eno_schemas::Report| {
            let Some(Applied::Node { probes, .. }) = &report.applied else { return false };
            found = probes.first().cloned().filter(&mut expected);
            found.is_some() && report.generation.sequence >= self.nodes[node].commanded
        };
        self.engine.report("node", &name(node), reported).await;
        found.unwrap()
    }

    /// The first report about the last command.
    pub async fn reported(&self, node: usize) -> eno_schemas::Report {
        self.engine.report("node", &name(node), |report| report.generation.sequence == self.sequence).await
    }

    /// A host on an untagged port of the fabric, with its interface `eth0`.
    pub fn host(&mut self, name: &str, vlan: u16, addresses: &[&str]) -> Net {
        let path = self.fabric.bare_pod(name);
        let net = Net(Namespace::open(&path).unwrap());
        let namespace = path.file_name().unwrap().to_str().unwrap();
        self.fabric.ip(&["link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", namespace]);
        self.fabric.ip(&["link", "set", name, "up"]);
        for address in addresses {
            let nodad = if address.contains(':') { "nodad" } else { "" };
            net.ip(&format!("address add {address} dev eth0 {nodad}"));
        }
        net.ip("link set eth0 up");
        self.set_fabric(&["add-port", "sw", name, &format!("tag={vlan}")]);
        net
    }
}

impl Node {
    pub fn namespace(&self) -> Namespace {
        Namespace::open(&self.switch.namespace()).unwrap()
    }

    /// The ends of probes on the host.
    pub async fn ends(&self) -> Vec<Link> {
        let links = self.namespace().run(|| Netlink::open()?.links()).await.unwrap().unwrap();
        links.into_iter().filter(|link| link.group == GROUP).collect()
    }

    /// The MTU of an interface.
    pub async fn mtu(&self, name: &'static str) -> u32 {
        let link = self.namespace().run(move || Netlink::open()?.link_named(name)).await.unwrap();
        link.unwrap().unwrap().mtu
    }

    /// The ports of probes in the database of Open vSwitch.
    pub fn rows(&self) -> Vec<String> {
        let rows = self.switch.database.vsctl(&["--bare", "--columns=name", "find", "port"]);
        rows.lines().filter(|name| name.starts_with("enop")).map(str::to_owned).collect()
    }
}

/// The MAC address of an interface, as text.
pub fn mac(net: &Net, interface: &str) -> String {
    let links: serde_json::Value =
        serde_json::from_str(&net.ip(&format!("-j link show {interface}"))).unwrap();
    links[0]["address"].as_str().unwrap().to_owned()
}
