//! Pods that wait for an address.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{Node, answer, config, start, until};
use crate::common::{fixed, ranges};

fn ips(answer: &Result<Value, Value>) -> &Value {
    &answer.as_ref().expect("addresses")["ips"][0]["address"]
}

#[test]
fn pod_waits_for_ranges_and_released_addresses() {
    let node = Node::new();
    let config = config("1.0.0", &["storage"]);
    let start_pod = |container: &str| {
        let child = start(node.command("ADD", container), &config.to_string());
        until("the pod waits", || node.waiting("storage").iter().any(|waiting| waiting.pod == container));
        child
    };
    let one = start_pod("one");
    node.give("storage", Some(&ranges(&["10.0.0.4/32"])));
    assert_eq!(ips(&answer(one)), "10.0.0.4/24");

    let two = start_pod("two");
    node.call("DEL", "one", &config).expect("an answer");
    assert_eq!(ips(&answer(two)), "10.0.0.4/24");

    // Without a file that changes: the sandbox that has the address goes.
    let three = start_pod("three");
    std::fs::remove_file(node.sandbox("two")).expect("a sandbox");
    assert_eq!(ips(&answer(three)), "10.0.0.4/24");
    assert_eq!(node.waiting("storage"), []);
}

#[test]
fn pod_waits_for_the_address_that_is_fixed_for_it() {
    let mut given = ranges(&["10.0.0.4/30"]);
    given.sticky = true;
    let node = Node::with(&given);
    let mut config = config("1.0.0", &["storage"]);
    let sticky = start(node.command("ADD", "db-0"), &config.to_string());
    config["runtimeConfig"] = json!({ "ips": ["10.0.0.30/24"] });
    let wanted = start(node.command("ADD", "web"), &config.to_string());
    until("both wait", || node.waiting("storage").len() == 2);
    let waiting: Vec<_> = node
        .waiting("storage")
        .into_iter()
        .map(|one| (one.pod, one.address.map(|at| at.to_string())))
        .collect();
    assert_eq!(waiting, [("db-0".into(), None), ("web".into(), Some("10.0.0.30".into()))]);
    given.fixed = vec![fixed("10.0.0.30", "web"), fixed("10.0.0.40", "db-0")];
    node.give("storage", Some(&given));
    assert_eq!(
        (ips(&answer(sticky)), ips(&answer(wanted))),
        (&json!("10.0.0.40/24"), &json!("10.0.0.30/24"))
    );
}

/// Each of these waits 20 s, all at once.
#[test]
fn add_fails_with_the_reason_and_leaves_nothing() {
    let mut given = ranges(&["10.0.0.4/30"]);
    given.excluded = vec!["10.0.0.5".parse().expect("an address")];
    given.fixed = vec![fixed("10.0.0.30", "other")];
    given.sticky = true;
    let node = Node::with(&given);
    node.give("full", Some(&ranges(&["2001:db8::/128"])));
    node.add("other", &config("1.0.0", &["full"])).expect("an address");
    let begun = Instant::now();
    let children: Vec<_> = [
        ("a", &["storage", "full"][..], json!(null), "Subnet full: no address is free on this node"),
        ("b", &["unknown", "storage"], json!(null), "Subnet unknown: this node has no addresses of it yet"),
        (
            "db-0",
            &["storage"],
            json!(null),
            "Subnet storage: the address of a pod with an ordinal is fixed by the engine",
        ),
        ("c", &["storage"], json!(["10.0.0.5"]), "Subnet storage: 10.0.0.5 is a next hop or a gateway"),
        ("d", &["storage"], json!(["10.0.0.30"]), "Subnet storage: 10.0.0.30 is fixed for pod apps/other"),
        ("e", &["storage"], json!(["10.0.0.99"]), "Subnet storage: 10.0.0.99 is not leased to this node"),
        ("f", &["full"], json!(["2001:db8::"]), "Subnet full: 2001:db8:: is the address of pod apps/other"),
    ]
    .into_iter()
    .map(|(container, pools, ips, says)| {
        let mut config = config("1.0.0", pools);
        config["runtimeConfig"] = json!({ "ips": ips });
        (start(node.command("ADD", container), &config.to_string()), container, says)
    })
    .collect();
    let all_wait = || {
        let waiting: usize =
            ["storage", "full", "unknown"].map(|subnet| node.waiting(subnet).len()).iter().sum();
        // The first two have an address of the other family.
        (waiting, node.leases("storage").len()) == (7, 2)
    };
    until("all wait", all_wait);
    for (child, container, says) in children {
        let error = answer(child).expect_err("an error");
        assert_eq!(error["code"], 11, "{container}: {error}");
        assert_eq!(error["msg"], format!("pod apps/{container} has no address after 20 s"));
        assert!(error["details"].as_str().expect("details").starts_with(says), "{container}: {error}");
    }
    assert!(begun.elapsed() >= Duration::from_secs(20));
    for subnet in ["storage", "unknown"] {
        assert_eq!(node.leases(subnet), [], "{subnet}");
        assert_eq!(node.waiting(subnet), [], "{subnet}");
    }
    assert_eq!((node.leases("full").len(), node.waiting("full").len()), (1, 0));
}
