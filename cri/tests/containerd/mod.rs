//! The resolver and its client with a real containerd and real pods.

mod cri;
mod node;

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use cri::Network;
use eno_cri::{Reason, Resolved};
use futures::future::join_all;
use node::Node;

const A: &str = "aaaaaaaa-0000-4000-8000-000000000001";
const B: &str = "bbbbbbbb-0000-4000-8000-000000000002";

#[tokio::test]
#[ignore = "needs root: containerd"]
async fn each_pod_resolves_to_its_own_namespace() {
    let node = Node::start().await;
    let resolver = node.resolver();
    let client = resolver.client();
    let reason =
        async |uid: &str, container: Option<&str>| client.resolve(uid, container).await.unwrap_err().reason();
    assert_eq!(reason(A, None).await, Some(Reason::NotFound), "not there yet");

    let a = node.cri.run(A, Network::Pod, 0).await;
    let b = node.cri.run(B, Network::Pod, 0).await;
    let seen = client.resolve(A, None).await.unwrap();
    assert!(seen.path.starts_with("/run/netns"), "{seen:?}");
    let of_process = |pid: Option<u32>| node.inode(&PathBuf::from(format!("/proc/{}/ns/net", pid.unwrap())));
    assert_eq!(seen.inode, of_process(seen.pid));
    assert_eq!(seen.inode, node.inode(&seen.path));
    let other = client.resolve(B, None).await.unwrap();
    assert_ne!((seen.inode, seen.pid, &seen.path), (other.inode, other.pid, &other.path));
    assert_eq!(other.inode, of_process(other.pid));

    // A container's PID is returned only while it runs, and only for its pod.
    let container = node.cri.create(&a).await;
    assert_eq!(reason(A, Some(&container)).await, Some(Reason::NotRunning), "created");
    node.cri.start(&container).await;
    let with = client.resolve(A, Some(&format!("containerd://{container}"))).await.unwrap();
    assert_ne!(with.pid, seen.pid);
    assert_eq!(of_process(with.pid), seen.inode);
    assert_eq!(with, Resolved { pid: with.pid, ..seen.clone() });
    assert_eq!(reason(B, Some(&container)).await, Some(Reason::NotRunning), "of another pod");
    assert_eq!(reason(A, Some(&container[..12])).await, Some(Reason::NotRunning), "a mere beginning");
    assert_eq!(reason(A, Some("ffff")).await, Some(Reason::NotRunning), "unknown");

    // A recreated sandbox.
    let again = node.cri.run(A, Network::Pod, 1).await;
    let newest = client.resolve(A, None).await.unwrap();
    assert_ne!(newest.inode, seen.inode);
    assert_eq!(reason(A, Some(&container)).await, Some(Reason::NotRunning), "of the sandbox before");
    node.cri.stop(&again).await;
    assert_eq!(client.resolve(A, None).await.unwrap(), seen, "the one that is ready");

    // The sandbox is stopped, then removed.
    node.cri.stop(&a).await;
    assert_eq!(reason(A, None).await, Some(Reason::NotFound));
    for sandbox in [a, again] {
        node.cri.remove(sandbox).await;
    }
    assert_eq!(reason(A, None).await, Some(Reason::NotFound));
    node.cri.stop(&b).await;
    node.cri.remove(b).await;
}

#[tokio::test]
#[ignore = "needs root: containerd"]
async fn host_network_pod_is_refused() {
    let node = Node::start().await;
    let resolver = node.resolver();
    let sandbox = node.cri.run(A, Network::Node, 0).await;
    let error = resolver.client().resolve(A, None).await.unwrap_err();
    assert_eq!((error.reason(), error.retryable()), (Some(Reason::HostNetwork), false), "{error}");
    node.cri.stop(&sandbox).await;
    node.cri.remove(sandbox).await;
}

#[tokio::test]
#[ignore = "needs root: containerd"]
async fn resolver_survives_containerd_restart() {
    let mut node = Node::start().await;
    let mut resolver = node.resolver();
    let client = resolver.client();
    let sandbox = node.cri.run(A, Network::Pod, 0).await;
    let before = client.resolve(A, None).await.unwrap();
    for _ in 0..2 {
        node.kill_containerd();
        let error = client.resolve(A, None).await.unwrap_err();
        assert_eq!((error.reason(), error.retryable()), (Some(Reason::Unavailable), true), "{error}");
        node.start_containerd().await;
        assert_eq!(client.resolve(A, None).await.unwrap(), before);
    }
    // The resolver may restart as well.
    assert!(resolver.terminate().success());
    let error = client.resolve(A, None).await.unwrap_err();
    assert!(error.retryable() && error.reason().is_none(), "{error}");
    let resolver = node.resolver();
    assert_eq!(resolver.client().resolve(A, None).await.unwrap(), before);
    node.cri.stop(&sandbox).await;
    node.cri.remove(sandbox).await;
}

#[tokio::test]
#[ignore = "needs root: containerd"]
async fn two_hundred_concurrent_requests_are_answered() {
    const REQUESTS: usize = 200;
    let node = Node::start().await;
    let resolver = node.resolver();
    let client = resolver.client();
    let uids: Vec<String> = (0..4).map(|n| format!("cccccccc-0000-4000-8000-00000000000{n}")).collect();
    let sandboxes = join_all(uids.iter().map(|uid| node.cri.run(uid, Network::Pod, 0))).await;
    let mut rounds = Vec::new();
    for _ in 0..5 {
        let begin = Instant::now();
        let requests = uids.iter().cycle().take(REQUESTS).map(|uid| client.resolve(uid, None));
        let answers = join_all(requests).await;
        rounds.push(begin.elapsed());
        let mut inodes: HashMap<u64, usize> = HashMap::new();
        for answer in answers {
            *inodes.entry(answer.unwrap().inode).or_default() += 1;
        }
        assert_eq!(inodes.into_values().collect::<Vec<_>>(), [REQUESTS / 4; 4]);
    }
    let fastest = rounds.iter().min().copied().unwrap_or_default();
    assert!(fastest < Duration::from_millis(250), "one after the other? {rounds:?}");
    eprintln!("{REQUESTS} pods resolved at once in {rounds:?}");
    for sandbox in sandboxes {
        node.cri.stop(&sandbox).await;
        node.cri.remove(sandbox).await;
    }
}
