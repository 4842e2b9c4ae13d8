//! The program killed at each system call that writes: no address is given twice, and none is lost.

mod tracer;

use std::collections::BTreeSet;
use std::fs;

use serde_json::Value;

use self::tracer::{End, Timing, kill_at};
use super::{Node, config};
use crate::common::ranges;

/// What happens after the program was killed.
#[derive(Clone, Copy, Debug)]
enum Then {
    /// The runtime gives up the sandbox.
    Del,
    /// It repeats the command.
    Again,
    /// The sandbox goes without DEL.
    Gone,
}

/// A node with two addresses of each family, of which one pod has one each.
fn node() -> Node {
    let node = Node::with(&ranges(&["10.0.0.4/31"]));
    node.give("storage6", Some(&ranges(&["2001:db8::4/127"])));
    node.add("other", &both()).expect("addresses");
    node
}

fn both() -> Value {
    config("1.0.0", &["storage", "storage6"])
}

/// Kills the command of the pod `one` on a node that `prepare` made, at each system call, and calls `check` afterwards.
fn killed_at_each(
    command: &str,
    config: &Value,
    prepare: impl Fn() -> Node,
    check: impl Fn(&Node, &str),
) -> BTreeSet<String> {
    let mut calls = BTreeSet::new();
    for timing in [Timing::Before, Timing::After] {
        for number in 0.. {
            let node = prepare();
            let end = kill_at(&node.command(command, "one"), &config.to_string(), number, timing);
            let addresses: Vec<_> =
                ["storage", "storage6"].into_iter().flat_map(|subnet| node.leases(subnet)).collect();
            let different: BTreeSet<_> = addresses.iter().map(|lease| lease.address).collect();
            assert_eq!(different.len(), addresses.len(), "{addresses:?}");
            let End::Killed(call) = end else { break };
            check(&node, &format!("killed {timing:?} {number}, {call}"));
            calls.insert(call);
        }
    }
    calls
}

/// The second address of each family is free for another pod, once.
fn assert_free(node: &Node, at: &str) {
    let second = ["10.0.0.5/24", "2001:db8::5/64"].map(String::from);
    assert_eq!(node.add("two", &both()), Ok(second.to_vec()), "{at}");
    assert_eq!(
        node.add("other", &both()),
        Ok(["10.0.0.4/24", "2001:db8::4/64"].map(String::from).to_vec()),
        "{at}"
    );
    for subnet in ["storage", "storage6"] {
        let pods: Vec<_> = node.leases(subnet).into_iter().map(|lease| lease.pod).collect();
        assert_eq!((pods, node.waiting(subnet)), (vec!["other".into(), "two".into()], Vec::new()), "{at}");
    }
}

#[test]
fn killed_add_neither_doubles_nor_loses_addresses() {
    for then in [Then::Del, Then::Again, Then::Gone] {
        let calls = killed_at_each("ADD", &both(), node, |node, at| {
            match then {
                Then::Del => assert_eq!(node.call("DEL", "one", &both()), Ok(Value::Null), "{at}"),
                Then::Again => {
                    let added = node.add("one", &both());
                    assert_eq!(
                        added,
                        Ok(["10.0.0.5/24", "2001:db8::5/64"].map(String::from).to_vec()),
                        "{at}"
                    );
                    node.call("DEL", "one", &both()).expect("an answer");
                }
                Then::Gone => fs::remove_file(node.sandbox("one")).expect("a sandbox"),
            }
            assert_free(node, at);
        });
        assert!(
            ["openat", "write", "fsync", "renameat"].into_iter().all(|call| calls.contains(call)),
            "{calls:?}"
        );
    }
}

#[test]
fn killed_del_neither_doubles_nor_loses_addresses() {
    let prepare = || {
        let node = node();
        node.add("one", &both()).expect("addresses");
        node
    };
    for then in [Then::Again, Then::Gone] {
        let calls = killed_at_each("DEL", &both(), prepare, |node, at| {
            match then {
                Then::Gone => fs::remove_file(node.sandbox("one")).expect("a sandbox"),
                _ => assert_eq!(node.call("DEL", "one", &both()), Ok(Value::Null), "{at}"),
            }
            assert_free(node, at);
        });
        assert!(calls.contains("unlinkat"), "{calls:?}");
    }
}

/// As it writes down that it waits, which needs no address, on a node that has no files yet.
#[test]
fn killed_wait_leaves_nothing_after_del() {
    let config = config("1.0.0", &["storage"]);
    let calls = killed_at_each("ADD", &config, Node::new, |node, at| {
        assert_eq!(node.call("DEL", "one", &config), Ok(Value::Null), "{at}");
        assert_eq!((node.leases("storage"), node.waiting("storage")), (Vec::new(), Vec::new()), "{at}");
        node.give("storage", Some(&ranges(&["10.0.0.4/32"])));
        assert_eq!(node.add("two", &config), Ok(vec!["10.0.0.4/24".into()]), "{at}");
    });
    assert!(calls.contains("mkdirat") && calls.contains("renameat"), "{calls:?}");
}
