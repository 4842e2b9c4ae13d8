//! Files that can't be used, and a folder that is missing.

use std::fs;
use std::os::unix::fs::symlink;

use eno_schemas::AppliedAddresses;

use super::fixture::{Commanded, Node, addresses, nets};

fn two() -> Commanded {
    [
        ("blue".to_owned(), addresses("192.0.2.0/24", &["192.0.2.16/30"])),
        ("red".to_owned(), addresses("198.51.100.0/24", &["198.51.100.16/30"])),
    ]
    .into()
}

/// The report of a pool that can't be read, if it names this.
fn unread<'a>(applied: &'a AppliedAddresses, names: &str) -> &'a str {
    let unread = applied.unread.as_deref().expect("a problem");
    assert!(unread.contains(names), "{unread}");
    unread
}

#[tokio::test]
#[ignore = "needs root: network namespaces"]
async fn damaged_file_is_named_and_disturbs_no_other_pool() {
    let node = Node::new();
    let agent = node.addresses();
    agent.reconcile(&two()).await.unwrap();
    let (one, other) = (node.sandbox("c0"), node.sandbox("c1"));
    let given = node.add("blue", &one).unwrap();
    node.add("red", &other).unwrap();
    let leases = node.ipam().join("blue/leases");
    let damages: [&dyn Fn(&std::path::Path); 3] = [
        &|path| fs::write(path, "{").unwrap(),
        &|path| fs::write(path, vec![b' '; 1 << 20]).unwrap(),
        &|path| symlink("/etc/hostname", path).unwrap(),
    ];
    for damage in damages {
        let path = leases.join("c9.net1");
        damage(&path);
        let applied = agent.reconcile(&two()).await.unwrap();
        unread(&applied["blue"], "blue/leases/c9.net1");
        // What is commanded is held all the same.
        assert_eq!(applied["blue"].held, nets(&["192.0.2.16/30"]));
        assert_eq!((&applied["red"].unread, applied["red"].used.len()), (&None, 1));
        fs::remove_file(&path).unwrap();
        let applied = agent.reconcile(&two()).await.unwrap();
        assert_eq!((&applied["blue"].unread, applied["blue"].used[0].address), (&None, given));
    }
    // The command is known: it is written again.
    for content in ["", "{", "[]"] {
        fs::write(node.ipam().join("blue/ranges.json"), content).unwrap();
        let applied = agent.reconcile(&two()).await.unwrap();
        assert_eq!(applied["blue"].unread, None);
        assert_eq!(node.pool("blue").lock().unwrap().ranges().unwrap().as_ref(), two().get("blue"));
    }
}

#[tokio::test]
async fn pool_that_is_no_folder_is_named() {
    let node = Node::new();
    fs::write(node.ipam().join("blue"), "").unwrap();
    let applied = node.addresses().reconcile(&two()).await.unwrap();
    unread(&applied["blue"], "ipam/blue");
    assert_eq!(applied["blue"].held, nets(&["192.0.2.16/30"]));
    assert_eq!(applied["red"].unread, None);
}

#[tokio::test]
async fn missing_folder_is_told_and_not_made() {
    let node = Node::new();
    fs::remove_dir(node.ipam()).unwrap();
    let agent = node.addresses();
    assert!(agent.reconcile(&Commanded::new()).await.unwrap().is_empty());
    let applied = agent.reconcile(&two()).await.unwrap();
    assert_eq!(applied.len(), 2);
    assert!(unread(&applied["red"], "ipam").contains("deploy/agent mounts it"));
    assert!(!node.ipam().exists());
}

#[tokio::test]
async fn name_that_is_no_folder_reaches_no_other_file() {
    let node = Node::new();
    let wanted = [("../escape".to_owned(), addresses("192.0.2.0/24", &["192.0.2.16/30"]))].into();
    let applied = node.addresses().reconcile(&wanted).await.unwrap();
    unread(&applied["../escape"], "../escape");
    assert!(!node.ipam().with_file_name("escape").exists());
}
