//! The program, with its two capabilities only, probes and is killed.

use std::process::Child;

use eno_conformance::{Engine, NatsServer, soon};
use eno_driver_node::netlink::{Namespace, Netlink};
use eno_driver_node::probes::GROUP;
use eno_schemas::{Applied, Command, Desired, HostNetwork, NetworkProbes, NodeDesired, Report, Uplink};

use super::fixture::{CLUSTER, NETWORK, gateway, mac, ring, vlans};
use crate::agent::process::agent;
use crate::host::common::Net;
use crate::ovs::fixture as ovs;

#[test]
#[ignore = "needs root: network namespaces and ovs-vswitchd"]
fn killed_program_leaves_no_interface_and_its_successor_goes_on() {
    let switch = ovs::Node::start();
    let node = Namespace::open(&switch.namespace()).unwrap();
    // Sockets and children of this thread are in the node's namespace.
    let inside = std::thread::spawn(move || {
        node.enter().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(check(switch, node));
    });
    inside.join().unwrap();
}

async fn check(mut switch: ovs::Node, node: Namespace) {
    // The fabric is another bridge of the same Open vSwitch.
    switch.cable("eth1", "p1");
    let gateway_path = switch.bare_pod("gw");
    let namespace = gateway_path.file_name().unwrap().to_str().unwrap().to_owned();
    switch.ip(&["link", "add", "gw", "type", "veth", "peer", "name", "eth0", "netns", &namespace]);
    switch.ip(&["link", "set", "gw", "up"]);
    let net = Net(Namespace::open(&gateway_path).unwrap());
    net.ip("address add 192.0.2.1/24 dev eth0");
    net.ip("link set eth0 up");
    let database = &switch.database;
    database.vsctl(&["add-br", "sw", "--", "set", "bridge", "sw", "datapath_type=netdev"]);
    database.vsctl(&["add-port", "sw", "p1", "--", "add-port", "sw", "gw", "tag=10"]);

    let server = NatsServer::start().await;
    let engine = Engine::new(&server).await;
    let folder = tempfile::tempdir().unwrap();
    let start = || -> Child {
        let ipam = folder.path().join("no-ipam");
        let mut command = agent(&server.args().nats_url, &database.path("db.sock"), folder.path(), &ipam);
        command.args(["--ovs-datapath", "netdev"]).spawn().unwrap()
    };
    let ends = async || {
        let links = node.run(|| Netlink::open()?.links()).await.unwrap().unwrap();
        links.into_iter().filter(|link| link.group == GROUP).count()
    };
    let rows = || database.vsctl(&["--bare", "--columns=name", "find", "port"]).matches("enop").count();

    let mut agent = start();
    engine.command(&command(1, true)).await;
    let answered = |sequence: u64| {
        let expected = mac(&net, "eth0");
        move |report: &Report| {
            let Some(Applied::Node { probes, .. }) = &report.applied else { return false };
            let macs = probes.iter().flat_map(|found| &found.gateways).flat_map(|one| &one.macs);
            report.generation.sequence == sequence && macs.eq([&expected])
        }
    };
    engine.report("node", "node1", answered(1)).await;
    assert_eq!((ends().await, rows()), (1, 1));
    agent.kill().unwrap();
    agent.wait().unwrap();
    let gone = async { while ends().await > 0 {} };
    soon("no interface is left", gone).await;
    assert_eq!(rows(), 1);

    agent = start();
    engine.command(&command(2, true)).await;
    engine.report("node", "node1", answered(2)).await;
    agent.kill().unwrap();
    agent.wait().unwrap();
    agent = start();
    engine.apply(&command(3, false)).await;
    assert_eq!(rows(), 0);
    agent.kill().unwrap();
    agent.wait().unwrap();
}

fn command(sequence: u64, probed: bool) -> Command {
    let uplink = Some(Uplink { interfaces: vec!["eth1".to_owned()], mtu: None });
    let bridge = HostNetwork::Ovs { datapath: None, uplink, patch: None, vlans: vlans("10") };
    let probes = NetworkProbes {
        next: None,
        previous: None,
        gateways: vec![gateway("192.0.2.1", "10")],
        ..ring(0, "10")
    };
    let desired = NodeDesired {
        cluster: CLUSTER.to_owned(),
        networks: [(NETWORK.to_owned(), bridge)].into(),
        probes: if probed { vec![probes] } else { Vec::new() },
        ..NodeDesired::default()
    };
    Command::new("node", "node1", (1, sequence), Desired::Node(desired))
}
