//! Two clusters on the same VLANs, whose nodes have the same names.

use super::fixture::*;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: network namespaces and ovs-vswitchd"]
async fn clusters_on_one_vlan_answer_for_themselves_only() {
    let mut worlds = [World::ring().await, World::ring().await];
    worlds[1].cluster = "t2";
    worlds[0].join(&worlds[1]);
    let router = worlds[0].host("gw1", 10, &["192.0.2.1/24"]);
    let probes = |node, revision: &str| {
        let mut probes = ring(node, "10");
        probes.gateways = vec![gateway("192.0.2.1", "10")];
        revision.clone_into(&mut probes.paths[0].revision);
        vec![probes]
    };
    for world in &mut worlds {
        for node in 0..2 {
            world.command(node, probes(node, "1")).await;
        }
    }
    let expected = mac(&router, "eth0");
    for world in &worlds {
        for node in 0..2 {
            let found = world.results(node, |found| !found.passed.is_empty()).await;
            let macs = found.gateways.iter().flat_map(|answer| &answer.macs);
            assert!(macs.eq([&expected]), "{found:?}");
        }
    }

    // The node of the same name in the other cluster does not answer for it.
    worlds[1].set_fabric(&["set", "port", "p2", "trunks=11"]);
    for (at, world) in worlds.iter_mut().enumerate() {
        world.command(0, probes(0, "2")).await;
        let found = world.results(0, |found| !found.passed.is_empty() || !found.lost.is_empty()).await;
        assert_eq!(found.lost.is_empty(), at == 0, "{found:?}");
    }
}
