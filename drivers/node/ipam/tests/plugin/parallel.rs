//! Many pods at once.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{Node, answer, config, start};
use crate::common::ranges;

/// 50 pods start and go, three times, with as many addresses: each gets one, and no two the same.
#[test]
fn parallel_pods_get_different_addresses() {
    let node = Node::with(&ranges(&["10.0.0.0/27", "10.0.0.64/28", "10.0.0.128/31"]));
    let config = config("0.3.1", &["storage"]);
    for round in 0..3 {
        let call = |command: &'static str| {
            let start = |at| start(node.command(command, &format!("c{round}-{at}")), &config.to_string());
            (0..50).map(start).collect::<Vec<_>>().into_iter().map(answer)
        };
        let given: BTreeSet<String> = call("ADD")
            .map(|answer| {
                answer.expect("an address")["ips"][0]["address"].as_str().expect("an address").to_owned()
            })
            .collect();
        assert_eq!((given.len(), node.leases("storage").len()), (50, 50));
        assert!(call("DEL").all(|answer| answer == Ok(Value::Null)));
        assert_eq!((node.leases("storage"), node.waiting("storage")), (Vec::new(), Vec::new()));
    }
}
