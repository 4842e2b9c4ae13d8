//! Verdicts about VLANs and gateways.

use eno_schemas::NetworkProbes;

use super::fixture::*;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: network namespaces and ovs-vswitchd"]
async fn vlans_pass_that_the_fabric_carries_and_others_are_lost() {
    let mut world = World::ring().await;
    world.set_fabric(&["set", "port", "p2", "trunks=10"]);
    world.command_ring("10-11").await;
    for node in 0..2 {
        let found = world.results(node, |found| !found.passed.is_empty() && !found.lost.is_empty()).await;
        assert_eq!((found.passed.to_string(), found.lost.to_string()), ("10".to_owned(), "11".to_owned()));
        assert_eq!((found.point.as_str(), found.network.as_str()), (POINT, NETWORK));
    }
    world.set_fabric(&["set", "port", "p2", "trunks=10,11"]);
    for node in 0..2 {
        world.results(node, |found| found.passed == vlans("10-11")).await;
    }
    // Nothing is asked anew of what passes: a cut is seen once the path is another one.
    world.set_fabric(&["set", "port", "p2", "trunks=11"]);
    let mut cut = ring(0, "10-11");
    cut.paths[0].revision = "2".to_owned();
    world.command(0, vec![cut]).await;
    let found = world.results(0, |found| !found.lost.is_empty()).await;
    assert_eq!((found.passed.to_string(), found.lost.to_string()), ("11".to_owned(), "10".to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: network namespaces and ovs-vswitchd"]
async fn gateways_show_who_answers() {
    let mut world = World::new(1).await;
    world.start_agent(0).await;
    let strict = world.host("gw1", 10, &["192.0.2.1/24", "2001:db8::1/64"]);
    strict.run("sysctl", &["-w", "net.ipv4.conf.all.arp_ignore=2"]).unwrap();
    let twins = [world.host("gw2", 10, &["192.0.2.7/24"]), world.host("gw3", 10, &["192.0.2.7/24"])];
    let probes = NetworkProbes {
        next: None,
        previous: None,
        gateways: vec![
            gateway("192.0.2.1", "10-11"),
            gateway("192.0.2.7", "10"),
            gateway("192.0.2.9", "10"),
            gateway("2001:db8::1", "10"),
        ],
        ..ring(0, "10-11")
    };
    world.command(0, vec![probes]).await;
    let found = world.results(0, |found| found.gateways.len() == 5).await;
    assert!(found.passed.is_empty() && found.lost.is_empty() && found.unasked.is_empty(), "{found:?}");
    let answers: Vec<(String, Vec<String>, String)> = found
        .gateways
        .iter()
        .map(|one| (one.address.to_string(), one.macs.iter().cloned().collect(), one.vlans.to_string()))
        .collect();
    let mut both = twins.map(|twin| mac(&twin, "eth0")).to_vec();
    both.sort();
    let strict = vec![mac(&strict, "eth0")];
    let expected = [
        ("192.0.2.1", vec![], "11"),
        ("192.0.2.1", strict.clone(), "10"),
        ("192.0.2.7", both, "10"),
        ("192.0.2.9", vec![], "10"),
        ("2001:db8::1", strict, "10"),
    ];
    let expected = expected.map(|(address, macs, set)| (address.to_owned(), macs, set.to_owned()));
    assert_eq!(answers, expected);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: network namespaces and ovs-vswitchd"]
async fn agent_that_does_not_run_makes_no_verdict() {
    let mut world = World::new(2).await;
    world.start_agent(0).await;
    world.command_ring("10").await;
    let found = world.results(0, |found| !found.unasked.is_empty()).await;
    assert_eq!(found.unasked[0].reason.to_string(), "the agent of node node2 does not answer");
    assert_eq!((found.unasked[0].vlans.to_string().as_str(), found.lost.is_empty()), ("10", true));
    world.start_agent(1).await;
    world.results(0, |found| found.passed == vlans("10")).await;
    world.results(1, |found| found.passed == vlans("10")).await;
}
