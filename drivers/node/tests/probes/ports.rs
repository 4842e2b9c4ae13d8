//! What probes are on the host, and what is left of them.

use std::collections::BTreeMap;

use eno_conformance::soon;
use eno_driver_node::host::state::ADDR_GEN_NONE;
use tokio::task::yield_now;

use super::fixture::*;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: network namespaces and ovs-vswitchd"]
async fn many_vlans_share_few_ports_of_which_nothing_is_left() {
    let mut world = World::ring().await;
    world.command_ring("1-100").await;
    for node in 0..2 {
        world.results(node, |found| found.passed == vlans("1-100")).await;
        let ends = world.nodes[node].ends().await;
        assert!((10..=20).contains(&ends.len()), "{}", ends.len());
        assert!(ends.iter().all(|end| end.address_generation == Some(ADDR_GEN_NONE)), "{ends:?}");
        assert_eq!(world.nodes[node].rows().len(), ends.len());
    }
    // Ports go down after their use.
    for node in &world.nodes {
        let idle = async { while node.ends().await.iter().any(|end| end.carrier) {} };
        soon("all ports are down", idle).await;
    }
    // The same again writes nothing.
    let written = world.nodes[0].switch.database.next_cfg().await;
    world.command(0, vec![ring(0, "1-100")]).await;
    let report = world.reported(0).await;
    assert!(report.rejected.is_empty(), "{report:?}");
    assert_eq!(world.nodes[0].switch.database.next_cfg().await, written);

    // Killed: the interfaces go with the process, and the next one removes the rows.
    world.kill_agent(0).await;
    let gone = async { while !world.nodes[0].ends().await.is_empty() {} };
    soon("no interface is left", gone).await;
    assert!(!world.nodes[0].rows().is_empty());
    world.command(0, Vec::new()).await;
    world.start_agent(0).await;
    world.reported(0).await;
    assert_eq!(world.nodes[0].rows(), [""; 0]);

    // Not wanted any more: the other node's ports go, too.
    world.command(1, Vec::new()).await;
    let gone = async {
        while !world.nodes[1].ends().await.is_empty() || !world.nodes[1].rows().is_empty() {
            yield_now().await;
        }
    };
    soon("no port is left", gone).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: network namespaces and ovs-vswitchd"]
async fn bridge_goes_with_the_ports_of_probes_on_it() {
    let mut world = World::ring().await;
    world.command_ring("10").await;
    world.results(0, |found| found.passed == vlans("10")).await;
    world.command_networks(0, BTreeMap::new(), Vec::new()).await;
    let report = world.reported(0).await;
    assert!(report.rejected.is_empty() && report.notes.is_empty(), "{report:?}");
    assert_eq!(world.nodes[0].switch.database.vsctl(&["list-br"]), "");
    let gone = async { while !world.nodes[0].ends().await.is_empty() {} };
    soon("no interface is left", gone).await;
}
