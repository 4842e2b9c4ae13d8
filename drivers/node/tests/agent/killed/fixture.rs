//! A node with Open vSwitch, NICs and pods, its desired states, and its state as observed from outside.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use eno_conformance::{Engine, NatsServer};
use eno_cri::protocol::{Reason, Refusal, Request, Response};
use eno_driver_node::host::ownership;
use eno_driver_node::netlink::Namespace;
use eno_schemas::{
    Applied, Desired, HostNetwork, LinkKind, LinkName, Master, NodeAddresses, NodeDesired, NodePod, PodLink,
    PodRule, PortVlans, PrimaryLink, Report, TunDevice, Uplink,
};
use ipnet::IpNet;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinHandle;

use super::STAGES;
use crate::agent::process::agent;
use crate::host::common::{Net, desired};
use crate::ovs::fixture as ovs_fixture;
use crate::pods::common::{link, route};

/// One line for each observed object, without values that differ between runs.
pub type State = BTreeSet<String>;

/// Prefix of desired MAC addresses; others are random.
const MAC: &str = "02:00:00:00:00:";

/// Uids of the pods.
const PODS: [&str; 2] = ["aa", "bb"];

/// The reported state without random MAC addresses, which differ between runs.
pub fn without_random_macs(mut applied: Applied) -> Applied {
    if let Applied::Node { pods, .. } = &mut applied {
        for link in pods.values_mut().flat_map(BTreeMap::values_mut) {
            link.mac.take_if(|mac| !mac.starts_with(MAC));
        }
    }
    applied
}

/// The desired states, one after the other.
pub fn stages() -> [NodeDesired; STAGES.len()] {
    let bridge = |uplink: Option<&str>, patch: Option<&str>, vlans: &str| HostNetwork::Ovs {
        datapath: None,
        uplink: uplink.map(|nic| Uplink { interfaces: vec![nic.to_owned()], mtu: Some(1600) }),
        patch: patch.map(str::to_owned),
        vlans: vlans.parse().unwrap(),
    };
    let local = |mtu| HostNetwork::PodBridge { addresses: vec!["10.66.0.1/24".parse().unwrap()], mtu };
    let mut first = desired([
        ("br1", bridge(Some("nic1"), None, "10,20")),
        ("br2", bridge(None, Some("br1"), "10")),
        ("local", local(None)),
        ("eno-a", sessions("br1", 10, 1)),
        ("eno-b", sessions("br1", 20, 2)),
    ]);
    let tap = link("tap0", LinkKind::Tap(TunDevice { owner: Some(7), group: None }));
    let access = on_ovs("net2", "br1", PortVlans::Access("10".parse().unwrap()));
    first.pods.insert("aa".to_owned(), pod(vec![routed(), access, tap], Some(1400)));
    first.pods.insert("bb".to_owned(), pod(vec![on_bridge("net1", "10.66.0.3/24")], None));
    let mut second = desired([
        ("br1", bridge(Some("nic1"), None, "20-22")),
        ("br3", bridge(Some("nic2"), None, "30")),
        ("local", local(Some(1450))),
        ("eno-a", sessions("br3", 30, 3)),
    ]);
    let inner = link("inner", LinkKind::Bridge {});
    let mut trunk = on_ovs("net2", "br1", PortVlans::Trunk("20-21".parse().unwrap()));
    trunk.member_of = Some("inner".to_owned());
    let other = on_ovs("net3", "br3", PortVlans::Access("30".parse().unwrap()));
    second.pods.insert("aa".to_owned(), pod(vec![rerouted(), inner, trunk, other], Some(1300)));
    first.addresses = [addresses("blue", "192.0.2.0/28"), addresses("red", "198.51.100.8/32")].into();
    second.addresses = [addresses("blue", "192.0.2.0/29"), addresses("green", "203.0.113.0/30")].into();
    let bridges = NodeDesired { pods: BTreeMap::new(), ..second.clone() };
    [first, second.clone(), bridges, second, desired([])]
}

/// An interface for BGP sessions.
fn sessions(network: &str, vlan: u16, number: u8) -> HostNetwork {
    let net = |text: String| text.parse().unwrap();
    HostNetwork::Interface {
        network: network.to_owned(),
        vlan: vlan.to_string().parse().unwrap(),
        addresses: vec![net(format!("10.9.{number}.2/24")), net(format!("fd09:{number}::2/64"))],
        gateways: vec![
            format!("10.9.{number}.1").parse().unwrap(),
            format!("fd09:{number}::1").parse().unwrap(),
        ],
        prefixes: vec![net(format!("203.0.{number}.0/28"))],
        symmetric: true,
        mtu: None,
    }
}

fn addresses(subnet: &str, block: &str) -> (String, NodeAddresses) {
    let block: IpNet = block.parse().unwrap();
    let network = IpNet::new(block.addr(), 24).unwrap().trunc();
    let (excluded, fixed) = (Vec::new(), Vec::new());
    (subnet.to_owned(), NodeAddresses { network, blocks: vec![block], excluded, fixed, sticky: false })
}

fn pod(links: Vec<PodLink>, mtu: Option<u32>) -> NodePod {
    let primary = |mtu| PrimaryLink {
        id: "primary".to_owned(),
        revision: "1".to_owned(),
        name: "eth0".to_owned(),
        mtu,
    };
    NodePod {
        namespace: "default".to_owned(),
        name: "pod".to_owned(),
        container: "containerd://c0".to_owned(),
        links,
        primary: mtu.map(primary),
    }
}

fn on_bridge(id: &str, address: &str) -> PodLink {
    let master = Master::Bridge { bridge: "local".to_owned(), vlans: None };
    PodLink { addresses: vec![address.parse().unwrap()], ..link(id, LinkKind::Veth { master: Some(master) }) }
}

fn on_ovs(id: &str, bridge: &str, vlans: PortVlans) -> PodLink {
    link(id, LinkKind::Veth { master: Some(Master::Ovs { bridge: bridge.to_owned(), vlans }) })
}

/// A link with all settings of an interface.
fn routed() -> PodLink {
    let mut link = on_bridge("net1", "10.66.0.2/24");
    link.addresses.push("fd00:66::2/64".parse().unwrap());
    link.mac = Some("02:00:00:00:00:01".to_owned());
    link.alias = Some("first".to_owned());
    link.mtu = Some(1400);
    link.routes = vec![
        route("10.77.0.0/16", Some("10.66.0.1"), None),
        route("10.78.0.0/16", Some("10.66.0.1"), Some(100)),
    ];
    let from = Some("10.66.0.2/32".parse().unwrap());
    link.rules = vec![PodRule { table: 100, priority: 1000, from, to: None }];
    link.sysctls.insert("ipv4/conf/rp_filter".to_owned(), "2".to_owned());
    link
}

/// The same link with all settings changed.
fn rerouted() -> PodLink {
    let mut link = on_bridge("net1", "10.66.0.12/24");
    "2".clone_into(&mut link.revision);
    link.name = LinkName::Fixed("data".to_owned());
    link.mac = Some("02:00:00:00:00:02".to_owned());
    link.mtu = Some(1300);
    link.routes = vec![route("10.79.0.0/16", Some("10.66.0.1"), None)];
    link.sysctls.insert("ipv4/conf/rp_filter".to_owned(), "1".to_owned());
    link.sysctls.insert("ipv4/neigh/gc_stale_time".to_owned(), "77".to_owned());
    link
}

pub struct TestNode {
    /// The Open vSwitch of the node.
    switch: ovs_fixture::Node,
    /// The network namespace of the node.
    node: Net,
    /// The network namespaces of the pods.
    pods: Vec<Net>,
    _fabric: Net,
    /// The NATS server.
    server: NatsServer,
    /// The engine that commands the agent.
    engine: Engine,
    /// The files of the agent.
    folder: tempfile::TempDir,
    /// The resolver of pods to namespaces.
    resolver: JoinHandle<()>,
}

impl TestNode {
    /// Starts the node's Open vSwitch, and moves the calling thread to the node's namespace.
    pub fn enter() -> ovs_fixture::Node {
        let switch = ovs_fixture::Node::start();
        Namespace::open(&switch.namespace()).unwrap().enter().unwrap();
        switch
    }

    pub async fn start(mut switch: ovs_fixture::Node) -> Self {
        let (node, fabric) = (Net(Namespace::current().unwrap()), Net::new());
        for (nic, peer) in [("nic1", "peer1"), ("nic2", "peer2")] {
            node.nic(nic, &fabric, peer);
        }
        let folder = tempfile::tempdir().unwrap();
        for name in ["netns", "ipam"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
        }
        let mut pods = Vec::new();
        for uid in PODS {
            let namespace = switch.bare_pod(uid);
            let pod = Net(Namespace::open(&namespace).unwrap());
            pod.ip("link add eth0 type veth peer name other");
            pod.ip("link set eth0 up");
            std::os::unix::fs::symlink(namespace, folder.path().join("netns").join(uid)).unwrap();
            pods.push(pod);
        }
        let server = NatsServer::start().await;
        let engine = Engine::new(&server).await;
        let listener = UnixListener::bind(folder.path().join("cri.sock")).unwrap();
        let resolver = tokio::spawn(resolve(listener, folder.path().join("netns")));
        Self { switch, node, pods, _fabric: fabric, server, engine, folder, resolver }
    }

    /// The command of the program; `database`: the socket of Open vSwitch's database.
    pub fn agent(&self, database: &Path) -> Command {
        let mut command =
            agent(&self.server.args().nats_url, database, &self.folder.path().join("netns"), &self.ipam());
        command.arg("--cri-resolver").arg(self.folder.path().join("cri.sock"));
        command.args(["--ovs-datapath", "netdev"]);
        command
    }

    /// The folder of addresses.
    fn ipam(&self) -> PathBuf {
        self.folder.path().join("ipam")
    }

    pub fn database(&self) -> PathBuf {
        self.beside_the_database("db.sock")
    }

    pub fn beside_the_database(&self, name: &str) -> PathBuf {
        self.switch.database.path(name)
    }

    pub async fn command(&self, sequence: u64, desired: NodeDesired) {
        let command = eno_schemas::Command::new("node", "node1", (1, sequence), Desired::Node(desired));
        self.engine.command(&command).await;
    }

    pub async fn report(&self, done: impl FnMut(&Report) -> bool) -> Report {
        self.engine.report("node", "node1", done).await
    }

    /// The observed state of the kernel, on the node and in the pods, of Open vSwitch, and of the files of addresses.
    pub async fn state(&self) -> State {
        let mut state = State::new();
        for (whose, net) in ["node"].iter().chain(&PODS).zip([&self.node].into_iter().chain(&self.pods)) {
            state.extend(kernel_state(net).into_iter().map(|line| format!("{whose}: {line}")));
        }
        let database = &self.switch.database;
        for mut row in database.all_rows().await {
            // UUIDs of rows differ between runs.
            row.retain(|column, _| !matches!(column.as_str(), "ports" | "interfaces"));
            state.insert(format!("{row:?}"));
        }
        for bridge in database.vsctl(&["list-br"]).lines() {
            let ports = database.vsctl(&["list-ports", bridge]).replace('\n', " ");
            state.insert(format!("ports of {bridge}: {ports}"));
        }
        state.extend(pools(&self.ipam()));
        state
    }
}

impl Drop for TestNode {
    fn drop(&mut self) {
        self.resolver.abort();
    }
}

/// What the plugin may give from each pool.
fn pools(folder: &Path) -> Vec<String> {
    let pools = std::fs::read_dir(folder).unwrap().map(|pool| {
        let pool = pool.unwrap().path();
        // It may be half-made, or about to vanish.
        let ranges = std::fs::read_to_string(pool.join("ranges.json"));
        format!("{}: {ranges:?}", pool.file_name().unwrap().display())
    });
    pools.collect()
}

/// Interfaces, addresses, routes, rules and sysctls of a namespace.
fn kernel_state(net: &Net) -> Vec<String> {
    let list = |arguments: &str| -> Vec<Value> { serde_json::from_str(&net.ip(arguments)).unwrap() };
    let mut state = Vec::new();
    let mut tables = BTreeMap::new();
    for mut link in list("-j -d address show") {
        let name = link["ifname"].as_str().unwrap().to_owned();
        let index = u32::try_from(link["ifindex"].as_u64().unwrap()).unwrap();
        tables.insert(ownership::table(index).to_string(), name.clone());
        let up = link["flags"].as_array().is_some_and(|flags| flags.contains(&"UP".into()));
        // Other MAC addresses are random.
        let mac = link["address"].as_str().filter(|mac| mac.starts_with(MAC)).map(str::to_owned);
        for altname in link["altnames"].as_array_mut().into_iter().flatten() {
            if let Some((before, _)) = altname.as_str().and_then(|altname| altname.split_once(".was.mac.")) {
                *altname = format!("{before}.was.mac").into();
            }
        }
        let kind = link["linkinfo"]["info_kind"].take();
        let mut attributes = Vec::new();
        for key in ["mtu", "master", "group", "ifalias", "altnames"] {
            attributes.push(link[key].take());
        }
        state.push(format!("{name} {kind} up={up} mac={mac:?} {}", Value::from(attributes)));
        for address in link["addr_info"].as_array().into_iter().flatten() {
            // Link-local addresses appear with a delay.
            if address["scope"] != "link" {
                state.push(format!("{name} {}/{}", address["local"], address["prefixlen"]));
            }
        }
        let filter = net.run("tc", &["filter", "show", "dev", &name, "ingress"]);
        state.extend(filter.map(|filter| format!("{name} filter {filter}")));
        for setting in ["ipv4/conf/IF/rp_filter", "ipv6/conf/IF/autoconf", "ipv4/neigh/IF/gc_stale_time"] {
            let path = format!("/proc/sys/net/{}", setting.replace("IF", &name));
            // The interface may be deleted meanwhile.
            state.extend(net.run("cat", &[&path]).map(|value| format!("{path} {value}")));
        }
    }
    for family in ["-4", "-6"] {
        for what in ["route show table all", "rule show"] {
            for mut one in list(&format!("-j {family} {what}")) {
                // The table of a pod bridge contains its index, which differs between runs.
                if let Some(whose) = one["table"].as_str().and_then(|table| tables.get(table)) {
                    one["table"] = format!("of {whose}").into();
                }
                // The flags depend on the carrier.
                one.as_object_mut().unwrap().remove("flags");
                if one["protocol"] != "kernel" {
                    state.push(format!("{what} {family} {one}"));
                }
            }
        }
    }
    state
}

/// Answers like `eno-cri-resolver`; the folder contains pods' namespaces, by uid.
async fn resolve(listener: UnixListener, folder: PathBuf) {
    while let Ok((stream, _)) = listener.accept().await {
        tokio::spawn(answer(stream, folder.clone()));
    }
}

async fn answer(stream: UnixStream, folder: PathBuf) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    let mut line = String::new();
    while stream.read_line(&mut line).await? > 0 {
        let question: Request = serde_json::from_str(&line)?;
        let path = folder.join(question.pod.as_str());
        let answer = match std::fs::metadata(&path) {
            Ok(file) => Response::Resolved(eno_cri::Resolved {
                path: path.canonicalize()?,
                inode: file.ino(),
                device: file.dev(),
                pid: Some(1),
            }),
            Err(error) => Response::Refused(Refusal::new(Reason::NotFound, error)),
        };
        let mut bytes = serde_json::to_vec(&answer)?;
        bytes.push(b'\n');
        stream.write_all(&bytes).await?;
        line.clear();
    }
    Ok(())
}

/// A running program, which is killed when this is dropped.
pub struct AgentProcess(Child);

impl AgentProcess {
    pub fn start(mut command: Command) -> Self {
        Self(command.spawn().unwrap())
    }
}

impl Drop for AgentProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
