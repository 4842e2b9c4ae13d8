//! Drained nodes, evicted pods, and NATS on another node.

use std::collections::BTreeSet;

use eno_tests::{System, deployment, poll_within};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use serde_json::json;

use super::load::under_load;
use super::pods::{cordon, drain, evict, leader, node_of, operator, until_settled};
use super::{PATIENCE, with_operator_in_pods};
use crate::nodes::hot_plug::addresses;

#[test]
#[ignore = "needs root: real nodes"]
fn drained_nodes_interrupt_nothing() {
    with_operator_in_pods(async |system| {
        let nodes: Vec<_> = system.sandbox.nodes().into_iter().map(|node| node.name).collect();
        let figures = under_load(system, "drain", async || {
            // This pod has to move, and gets its network on each node.
            let mover = deployment("drain", "mover", 1, &json!({ "attach.eno.k8s.io/oam": "net1" }));
            system.apply(&mover).await;
            let first = node_of(&leader(system).await);
            let (leading, others): (Vec<_>, Vec<_>) = nodes.iter().partition(|node| **node == first);
            for node in [leading, others].concat() {
                drain(system, node).await;
                until_settled(system).await;
                let left = operator(system).await;
                assert!(left.iter().all(|pod| node_of(pod) != *node), "{node} is not drained");
                until_mover_talks(system, nodes.len()).await;
                cordon(system, node, false).await;
            }
            system.delete(&mover).await;
        })
        .await;
        assert!(!figures.without_leader.is_empty(), "the leader moved");
        figures.assert_leaders_follow();
    });
}

/// Waits until the pod that moves reaches another one.
async fn until_mover_talks(system: &System, talking: usize) {
    let mover = system.running("drain", "app=mover", 1).await.pop_first().expect("the pod").0;
    let leases = addresses(system, "drain/oam", talking + 1).await;
    let other = leases.iter().find(|(pod, _)| *pod != mover).expect("a pod that talks");
    system.pings("drain", &mover, &other.1[0], true).await;
}

#[test]
#[ignore = "needs root: real nodes"]
fn evicted_pods_interrupt_nothing() {
    with_operator_in_pods(async |system| {
        let figures = under_load(system, "evicted", async || {
            let before = operator(system).await;
            assert_eq!(before.len(), 13);
            for pod in &before {
                evict(system, pod).await;
                until_settled(system).await;
            }
            let uids = |pods: &[Pod]| pods.iter().filter_map(Pod::uid).collect::<BTreeSet<_>>();
            assert!(uids(&before).is_disjoint(&uids(&operator(system).await)), "a pod was not replaced");
        })
        .await;
        figures.assert_leaders_follow();
    });
}

#[test]
#[ignore = "needs root: real nodes"]
fn nats_on_another_node_has_its_data() {
    with_operator_in_pods(async |system| {
        under_load(system, "moved", async || {
            // There and back.
            for _ in 0..2 {
                let before = system.pods("eno-system").get("eno-nats-0").await.expect("NATS");
                let node = node_of(&before);
                cordon(system, &node, true).await;
                evict(system, &before).await;
                let moved = poll_within(PATIENCE, async || {
                    let pod = system.pods("eno-system").get_opt("eno-nats-0").await.expect("NATS")?;
                    pod.spec?.node_name
                });
                assert_ne!(moved.await.as_ref(), Some(&node), "NATS is on another node");
                until_settled(system).await;
                cordon(system, &node, false).await;
            }
        })
        .await;
    });
}
