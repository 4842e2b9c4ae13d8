//! VLANs that should be isolated from each other.

use eno_schemas::{CrossedVlans, NetworkProbes, VlanId};

use super::fixture::*;

fn pair(vlan: u16, other: u16) -> CrossedVlans {
    let [vlan, other] = [vlan, other].map(|id| VlanId::new(id).unwrap());
    CrossedVlans { vlan, other }
}

/// Asks across VLANs 10 and 20 in both directions.
fn crossed(node: usize, revision: &str) -> NetworkProbes {
    let mut probes = NetworkProbes { crossed: vec![pair(10, 20), pair(20, 10)], ..ring(node, "10,20") };
    revision.clone_into(&mut probes.paths[0].revision);
    probes
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: network namespaces and ovs-vswitchd"]
async fn wire_that_joins_two_vlans_is_found() {
    let mut world = World::ring().await;
    let both = [pair(10, 20), pair(20, 10)];
    world.command_both(|node| crossed(node, "1")).await;
    world.both(|found| found.isolated == both && found.leaking.is_empty()).await;
    world.both(|found| found.passed == vlans("10,20")).await;

    world.fabric.ip(&["link", "add", "j10", "type", "veth", "peer", "name", "j20"]);
    for vlan in ["10", "20"] {
        let port = format!("j{vlan}");
        world.fabric.ip(&["link", "set", &port, "up"]);
        world.set_fabric(&["add-port", "sw", &port, &format!("tag={vlan}")]);
    }
    world.command_both(|node| crossed(node, "2")).await;
    world.both(|found| found.leaking == both && found.isolated.is_empty()).await;

    world.set_fabric(&["del-port", "sw", "j20"]);
    world.command_both(|node| crossed(node, "3")).await;
    world.both(|found| found.isolated == both && found.leaking.is_empty()).await;
    world.command_ring("10,20").await;
    world.both(|found| found.isolated.is_empty() && found.passed == vlans("10,20")).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: network namespaces and ovs-vswitchd"]
async fn agent_that_does_not_run_isolates_nothing() {
    let mut world = World::new(2).await;
    world.start_agent(0).await;
    world.command_both(|node| crossed(node, "1")).await;
    let found = world.results(0, |found| !found.unasked.is_empty()).await;
    assert!(found.isolated.is_empty() && found.leaking.is_empty(), "{found:?}");
    world.start_agent(1).await;
    world.both(|found| found.isolated == [pair(10, 20), pair(20, 10)]).await;
}
