//! The plugin gives addresses while the agent changes what it may give.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use super::fixture::{Commanded, Node, Sandbox, commanded, holds};

const NETWORK: &str = "192.0.2.0/24";
/// Pods that start and end all the time.
const PODS: usize = 4;
/// Changes of the command.
const CHANGES: usize = 70;
/// What is commanded in turn: smaller, other, none, not commanded.
const BLOCKS: [&[&str]; 6] = [
    &["192.0.2.16/29"],
    &["192.0.2.16/31"],
    &["192.0.2.20/31", "192.0.2.32/30"],
    &[],
    &["192.0.2.17/32"],
    &["192.0.2.0/26"],
];

fn command(change: usize) -> Commanded {
    match change % 7 {
        6 => Commanded::new(),
        at => commanded("blue", NETWORK, BLOCKS[at]),
    }
}

/// Whether any address may be given.
fn gives(change: usize) -> bool {
    !matches!(change % 7, 3 | 6)
}

/// Runs the plugin for a pod that starts and ends, until `stop`.
fn churn(node: &Node, sandbox: &Sandbox, stop: &AtomicBool, given: &AtomicUsize) {
    while !stop.load(Ordering::Relaxed) {
        node.plugin("ADD", "blue", sandbox).unwrap();
        given.fetch_add(1, Ordering::Relaxed);
        node.plugin("DEL", "blue", sandbox);
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: network namespaces"]
async fn no_address_is_given_that_the_last_report_lacks() {
    let node = Arc::new(Node::new());
    let (stop, given) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let plugins: Vec<_> = (0..PODS)
        .map(|pod| {
            let (node, stop, given) = (Arc::clone(&node), Arc::clone(&stop), Arc::clone(&given));
            let sandbox = node.sandbox(&format!("c{pod}"));
            std::thread::spawn(move || churn(&node, &sandbox, &stop, &given))
        })
        .collect();
    for change in 0..CHANGES {
        let applied = node.addresses().reconcile(&command(change)).await.unwrap();
        let before = given.load(Ordering::Relaxed);
        let mut looks = 0;
        while looks < 20 || (gives(change) && given.load(Ordering::Relaxed) < before + PODS) {
            let leases = node.pool("blue").lock().unwrap().leases().unwrap();
            for lease in leases {
                let address = lease.address;
                assert!(holds(applied.get("blue"), address), "{address} after change {change}: {applied:?}");
            }
            looks += 1;
        }
    }
    stop.store(true, Ordering::Relaxed);
    node.addresses().reconcile(&command(0)).await.unwrap();
    for plugin in plugins {
        plugin.join().unwrap();
    }
    assert!(node.addresses().reconcile(&Commanded::new()).await.unwrap().is_empty());
}

#[tokio::test]
#[ignore = "needs root: network namespaces"]
async fn older_command_is_never_written_after_a_newer_one() {
    let node = Node::new();
    let agent = node.addresses();
    for round in 0..20 {
        let [older, newer] = [round, round + 1].map(command);
        let pool = node.pool("blue");
        let plugin = pool.lock().unwrap();
        // It is given up while its thread waits for the plugin.
        let given_up = tokio::time::timeout(Duration::from_millis(20), agent.reconcile(&older)).await;
        assert!(given_up.is_err());
        let next = tokio::spawn({
            let (agent, newer) = (agent.clone(), newer.clone());
            async move { agent.reconcile(&newer).await.unwrap() }
        });
        drop(plugin);
        next.await.unwrap();
        let written = pool.lock().unwrap().ranges().unwrap();
        assert_eq!(written.as_ref(), newer.get("blue"), "round {round}");
    }
}
