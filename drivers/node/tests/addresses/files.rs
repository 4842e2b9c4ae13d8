//! What the agent writes and reports.

use std::fs;
use std::net::IpAddr;

use eno_schemas::{AppliedAddresses, PodAddress, WaitingPod};

use super::fixture::{Commanded, Node, addresses, commanded, holds, nets, used};

const NETWORK: &str = "192.0.2.0/24";

fn ip(last: u8) -> IpAddr {
    IpAddr::from([192, 0, 2, last])
}

#[tokio::test]
#[ignore = "needs root: network namespaces"]
async fn pods_get_addresses_while_no_agent_runs() {
    let node = Node::new();
    let wanted = commanded("blue", NETWORK, &["192.0.2.16/30"]);
    let applied = node.addresses().reconcile(&wanted).await.unwrap();
    assert_eq!(
        applied["blue"],
        AppliedAddresses { held: nets(&["192.0.2.16/30"]), ..AppliedAddresses::default() }
    );
    // The agent is gone.
    let sandboxes: Vec<_> = (0..5).map(|pod| node.sandbox(&format!("c{pod}"))).collect();
    let given: Vec<_> = sandboxes.iter().map(|sandbox| node.add("blue", sandbox)).collect();
    assert_eq!(given, [Some(ip(16)), Some(ip(17)), Some(ip(18)), Some(ip(19)), None]);

    let applied = node.addresses().reconcile(&wanted).await.unwrap();
    let pod = |pod: u8| PodAddress {
        address: ip(16 + pod),
        namespace: "default".to_owned(),
        pod: format!("pod-of-c{pod}"),
    };
    let waits = WaitingPod { namespace: "default".to_owned(), pod: "pod-of-c4".to_owned(), address: None };
    let expected = AppliedAddresses {
        held: nets(&["192.0.2.16/30"]),
        used: (0..4).map(pod).collect(),
        waiting: vec![waits],
        unread: None,
    };
    assert_eq!(applied["blue"], expected);
    // Without a change nothing is written.
    let written = || node.ipam().join("blue/ranges.json").metadata().unwrap().modified().unwrap();
    let before = written();
    assert_eq!(node.addresses().reconcile(&wanted).await.unwrap(), applied);
    assert_eq!(written(), before);
}

#[tokio::test]
#[ignore = "needs root: network namespaces"]
async fn smaller_blocks_take_no_address_from_a_pod() {
    let node = Node::new();
    let agent = node.addresses();
    agent.reconcile(&commanded("blue", NETWORK, &["192.0.2.16/30"])).await.unwrap();
    let sandboxes: Vec<_> = (0..4).map(|pod| node.sandbox(&format!("c{pod}"))).collect();
    assert_eq!(node.add("blue", &sandboxes[0]), Some(ip(16)));
    assert_eq!(node.add("blue", &sandboxes[1]), Some(ip(17)));
    node.del("blue", &sandboxes[0]);

    let mut less = commanded("blue", NETWORK, &["192.0.2.18/31"]);
    let own = PodAddress { address: ip(40), namespace: "default".to_owned(), pod: "pod-of-c3".to_owned() };
    less.get_mut("blue").unwrap().fixed = vec![own];
    let applied = &agent.reconcile(&less).await.unwrap()["blue"];
    assert_eq!(applied.held, nets(&["192.0.2.17/32", "192.0.2.18/31", "192.0.2.40/32"]));
    assert_eq!(used(applied), [ip(17)]);
    // The first two go on from the new block, and 16 is given no more.
    let given = [0, 2].map(|pod| node.add("blue", &sandboxes[pod]).unwrap());
    assert_eq!(given, [ip(18), ip(19)]);
    assert_eq!(node.add("blue", &sandboxes[3]), Some(ip(40)));
    // DEL gives back what is not commanded any more.
    node.del("blue", &sandboxes[1]);
    let applied = &agent.reconcile(&less).await.unwrap()["blue"];
    assert_eq!(applied.held, nets(&["192.0.2.18/31", "192.0.2.40/32"]));
    assert_eq!(used(applied), [ip(18), ip(19), ip(40)]);
}

#[tokio::test]
#[ignore = "needs root: network namespaces"]
async fn leases_outlive_their_subnet_until_they_are_released() {
    let node = Node::new();
    let agent = node.addresses();
    let both: Commanded = [
        ("blue".to_owned(), addresses(NETWORK, &["192.0.2.16/30"])),
        ("red".to_owned(), addresses("2001:db8::/64", &["2001:db8::10/126"])),
    ]
    .into();
    agent.reconcile(&both).await.unwrap();
    let sandbox = node.sandbox("c0");
    node.add("blue", &sandbox).unwrap();
    assert_eq!(node.add("red", &sandbox), Some("2001:db8::10".parse().unwrap()));

    let applied = agent.reconcile(&Commanded::new()).await.unwrap();
    let held: Vec<_> = applied.iter().map(|(subnet, applied)| (&**subnet, &*applied.held)).collect();
    assert_eq!(held, [("blue", &*nets(&["192.0.2.16/32"])), ("red", &*nets(&["2001:db8::10/128"]))]);
    // A pod that comes late waits, and nobody forgets it.
    let late = node.sandbox("c1");
    assert_eq!(node.add("blue", &late), None);
    node.del("red", &sandbox);
    node.del("blue", &sandbox);
    let applied = agent.reconcile(&Commanded::new()).await.unwrap();
    assert_eq!(applied.keys().collect::<Vec<_>>(), ["blue"]);
    assert_eq!((applied["blue"].held.len(), applied["blue"].waiting.len()), (0, 1));
    node.del("blue", &late);
    assert!(agent.reconcile(&Commanded::new()).await.unwrap().is_empty());
    assert_eq!(fs::read_dir(node.ipam()).unwrap().count(), 0, "no pool is left");
}

#[tokio::test]
#[ignore = "needs root: network namespaces"]
async fn garbage_is_what_has_no_namespace_any_more() {
    let node = Node::new();
    let agent = node.addresses();
    let wanted = commanded("blue", NETWORK, &["192.0.2.16/29"]);
    agent.reconcile(&wanted).await.unwrap();
    // Each is another case; all are empty namespaces, as DPDK leaves them.
    let [alive, gone, replaced, unmounted, mut elsewhere] =
        ["alive", "gone", "replaced", "unmounted", "elsewhere"].map(|name| node.sandbox(name));
    elsewhere.path = node.ipam().with_file_name("outside");
    elsewhere.mount(&elsewhere.path);
    let given = [&alive, &gone, &replaced, &unmounted, &elsewhere].map(|one| node.add("blue", one).unwrap());
    let more: Vec<_> = (0..4).map(|pod| node.sandbox(&format!("more{pod}"))).collect();
    for sandbox in &more {
        node.add("blue", sandbox);
    }
    let applied = agent.reconcile(&wanted).await.unwrap();
    assert_eq!((applied["blue"].used.len(), applied["blue"].waiting.len()), (8, 1));

    fs::remove_file(&gone.path).unwrap();
    let another = node.sandbox("another");
    another.mount(&replaced.path);
    // A file without a namespace: its mount may be one that the agent does not see.
    fs::remove_file(&unmounted.path).unwrap();
    fs::write(&unmounted.path, "").unwrap();
    // The agent sees no such folder.
    fs::remove_file(&elsewhere.path).unwrap();
    fs::remove_file(&more[3].path).unwrap();
    let applied = &agent.reconcile(&wanted).await.unwrap()["blue"];
    let left: Vec<_> = applied.used.iter().map(|own| own.pod.trim_start_matches("pod-of-")).collect();
    assert_eq!(left, ["alive", "unmounted", "elsewhere", "more0", "more1", "more2"]);
    assert!(applied.waiting.is_empty(), "who waited is gone");
    assert_eq!(applied.held, nets(&["192.0.2.16/29"]));
    assert!(holds(Some(applied), given[1]));
    assert_eq!(node.add("blue", &node.sandbox("new")), Some(given[1]));
}

#[tokio::test]
#[ignore = "needs root: network namespaces"]
async fn report_of_many_that_wait_is_bounded() {
    let node = Node::new();
    let mut sandbox = node.sandbox("c");
    for pod in 0..AppliedAddresses::MAX_WAITING + 9 {
        sandbox.name = format!("c{pod:03}");
        assert_eq!(node.add("blue", &sandbox), None);
    }
    let applied = node.addresses().reconcile(&commanded("blue", NETWORK, &[])).await.unwrap();
    let waiting = &applied["blue"].waiting;
    assert_eq!(waiting.len(), AppliedAddresses::MAX_WAITING);
    assert_eq!((&*waiting[0].pod, &*waiting[255].pod), ("pod-of-c000", "pod-of-c255"));
}
