//! Packets of full size.

use eno_conformance::soon;
use eno_driver_node::netlink::Namespace;

use super::fixture::*;
use crate::agent::process::agent;
use crate::ovs::fixture as ovs;

impl World {
    /// Sets the MTU of the fabric's port to the second node.
    fn narrow(&self, mtu: &str) {
        self.fabric.ip(&["link", "set", "p2", "mtu", mtu]);
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: network namespaces and ovs-vswitchd"]
async fn full_size_passes_and_a_narrow_link_is_found_until_it_is_mended() {
    let mut world = World::ring().await;
    world.command_both(|node| of_size(1500, ring(node, "10-11"))).await;
    world.both(|found| found.passed == vlans("10-11")).await;

    world.narrow("1400");
    // Small packets pass: only who is asked for it sends others.
    let again = |mtu: Option<u16>| {
        move |node| {
            let mut probes = ring(node, "10-11");
            probes.paths[0].revision = format!("{mtu:?}");
            probes.paths[0].mtu = mtu;
            probes
        }
    };
    world.command_both(again(None)).await;
    world.both(|found| found.passed == vlans("10-11")).await;
    world.command_both(again(Some(1400))).await;
    world.both(|found| found.passed == vlans("10-11")).await;
    world.command_both(again(Some(1500))).await;
    world
        .both(|found| found.too_big == vlans("10-11") && found.passed.is_empty() && found.lost.is_empty())
        .await;
    world.narrow("1500");
    world.both(|found| found.passed == vlans("10-11") && found.too_big.is_empty()).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: network namespaces and ovs-vswitchd"]
async fn packets_larger_than_any_port_are_too_big() {
    let mut world = World::ring().await;
    world.command_both(|node| of_size(65_535, ring(node, "10"))).await;
    world.both(|found| found.too_big == vlans("10")).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: network namespaces and ovs-vswitchd"]
async fn node_that_does_not_probe_by_full_size_makes_no_verdict() {
    let mut world = World::ring().await;
    world.command(0, vec![of_size(1500, ring(0, "10"))]).await;
    world.command(1, vec![ring(1, "10")]).await;
    let reason = "the agent of node node2 does not answer packets of full size here";
    // Before it has its command, that agent does not answer at all.
    let found =
        world.results(0, |found| found.unasked.iter().any(|unasked| *unasked.reason == *reason)).await;
    assert!(found.passed.is_empty() && found.too_big.is_empty(), "{found:?}");
    world.results(1, |found| found.passed == vlans("10")).await;
    world.command(1, vec![of_size(1500, ring(1, "10"))]).await;
    world.both(|found| found.passed == vlans("10")).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: network namespaces and ovs-vswitchd"]
async fn ports_of_probes_change_no_mtu() {
    let mut world = World::ring().await;
    world.command_ring("10").await;
    world.both(|found| found.passed == vlans("10")).await;
    assert_eq!(world.nodes[0].mtu(NETWORK).await, 1500);
    // Larger packets are asked for: the bridge and its NIC stay as they are, and their ports hold them.
    world.command_both(|node| of_size(9500, ring(node, "10"))).await;
    world.both(|found| found.too_big == vlans("10")).await;
    assert_eq!(world.nodes[0].mtu(NETWORK).await, 1500);
    for node in &world.nodes {
        assert_eq!(node.mtu("eth1").await, 1500);
        assert!(node.ends().await.iter().all(|end| end.mtu >= 9500));
    }
    // Nor do they keep the bridge from a larger one, which its NIC gives it.
    for port in ["p1", "p2"] {
        world.fabric.ip(&["link", "set", port, "mtu", "9000"]);
    }
    world.uplink_mtu = Some(9000);
    world.command_both(|node| of_size(9500, ring(node, "10"))).await;
    let grown = async { while world.nodes[0].mtu(NETWORK).await != 9000 {} };
    soon("the bridge has the MTU of its NIC", grown).await;
    world.command_both(|node| of_size(9000, ring(node, "10"))).await;
    world.both(|found| found.passed == vlans("10")).await;
    assert_eq!(world.nodes[0].mtu(NETWORK).await, 9000);
}

#[test]
#[ignore = "needs root: network namespaces and ovs-vswitchd"]
fn program_with_two_capabilities_asks_by_full_size_and_leaves_nothing() {
    let nodes: Vec<ovs::Node> = (0..2).map(|_| ovs::Node::start()).collect();
    let node = Namespace::open(&nodes[0].namespace()).unwrap();
    // Sockets and children of this thread are in the first node's namespace, and so is NATS.
    let inside = std::thread::spawn(move || {
        node.enter().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(check_program(nodes));
    });
    inside.join().unwrap();
}

async fn check_program(nodes: Vec<ovs::Node>) {
    let mut world = World::of(nodes).await;
    world.start_agent(1).await;
    let folder = tempfile::tempdir().unwrap();
    let database = world.nodes[0].switch.database.path("db.sock");
    let mut program =
        agent(&world.server.args().nats_url, &database, folder.path(), &folder.path().join("no-ipam"));
    let mut program = program.args(["--ovs-datapath", "netdev"]).spawn().unwrap();
    world.command_both(|node| of_size(1500, ring(node, "10"))).await;
    world.both(|found| found.passed == vlans("10")).await;
    world.narrow("1400");
    world.command_both(|node| of_size(1499, ring(node, "10"))).await;
    world.both(|found| found.too_big == vlans("10")).await;
    program.kill().unwrap();
    program.wait().unwrap();
    let gone = async { while !world.nodes[0].ends().await.is_empty() {} };
    soon("no interface is left", gone).await;
}
