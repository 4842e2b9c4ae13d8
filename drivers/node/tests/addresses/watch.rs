//! What the plugin does is reported, the agent's own changes are not.

use std::pin::pin;
use std::time::Duration;

use eno_driver_node::addresses::Addresses;
use futures::{Stream, StreamExt as _};

use super::fixture::{Commanded, Node, commanded};

/// Maximum time until a change is noticed; virtual machines are slow.
const TIMEOUT: Duration = Duration::from_secs(20);
/// Time without any notification that proves silence.
const QUIET: Duration = Duration::from_millis(1200);
const NETWORK: &str = "192.0.2.0/24";

async fn is_quiet(changed: &mut (impl Stream<Item = ()> + Unpin)) -> bool {
    tokio::time::timeout(QUIET, changed.next()).await.is_err()
}

/// Waits for a change and reconciles.
async fn notices(
    agent: &Addresses,
    changed: &mut (impl Stream<Item = ()> + Unpin),
    wanted: &Commanded,
    what: &str,
) {
    tokio::time::timeout(TIMEOUT, changed.next()).await.expect(what);
    agent.reconcile(wanted).await.unwrap();
    assert!(is_quiet(changed).await, "woken after {what}");
}

#[tokio::test]
#[ignore = "needs root: network namespaces"]
async fn what_the_plugin_does_is_noticed() {
    let node = Node::new();
    let agent = node.addresses();
    let mut changed = pin!(agent.changed());
    assert!(is_quiet(&mut changed).await, "nothing is commanded yet");
    let wanted = commanded("blue", NETWORK, &["192.0.2.16/31"]);
    agent.reconcile(&wanted).await.unwrap();
    assert!(is_quiet(&mut changed).await, "woken by its own changes");

    let sandboxes: Vec<_> = (0..3).map(|pod| node.sandbox(&format!("c{pod}"))).collect();
    node.add("blue", &sandboxes[0]).unwrap();
    notices(&agent, &mut changed, &wanted, "a lease").await;
    node.add("blue", &sandboxes[1]).unwrap();
    notices(&agent, &mut changed, &wanted, "the last address").await;
    assert_eq!(node.add("blue", &sandboxes[2]), None);
    notices(&agent, &mut changed, &wanted, "a pod that waits").await;
    node.del("blue", &sandboxes[0]);
    notices(&agent, &mut changed, &wanted, "a release").await;
    // The plugin makes the pool of a Subnet that is not commanded yet.
    node.add("red", &sandboxes[0]);
    notices(&agent, &mut changed, &wanted, "a pod of an unknown Subnet").await;
    std::fs::remove_file(node.ipam().join("blue/ranges.json")).unwrap();
    notices(&agent, &mut changed, &wanted, "a file that somebody removed").await;
    assert!(node.ipam().join("blue/ranges.json").exists());
    // A failure that stays is no change.
    std::fs::write(node.ipam().join("blue/leases/c9.net1"), "{").unwrap();
    notices(&agent, &mut changed, &wanted, "a damaged file").await;
}

#[tokio::test]
#[ignore = "needs root: network namespaces"]
async fn burst_of_pods_gives_few_reports() {
    let node = Node::new();
    let agent = node.addresses();
    let mut changed = pin!(agent.changed());
    assert!(is_quiet(&mut changed).await);
    let wanted = commanded("blue", NETWORK, &["192.0.2.0/24"]);
    agent.reconcile(&wanted).await.unwrap();
    let sandbox = node.sandbox("c");
    let give = std::thread::spawn(move || {
        let mut sandbox = sandbox;
        for pod in 0..200 {
            sandbox.name = format!("c{pod}");
            node.add("blue", &sandbox).unwrap();
        }
        // Without its namespace, the sandbox would be garbage.
        (node, sandbox)
    });
    let (mut reports, begun) = (0, std::time::Instant::now());
    loop {
        tokio::time::timeout(TIMEOUT, changed.next()).await.expect("a report");
        reports += 1;
        if agent.reconcile(&wanted).await.unwrap()["blue"].used.len() == 200 {
            break;
        }
    }
    // At most one in half a second.
    let most = 2 + begun.elapsed().as_millis() / 500;
    assert!(reports <= most, "{reports} reports in {:?}", begun.elapsed());
    give.join().unwrap();
}
