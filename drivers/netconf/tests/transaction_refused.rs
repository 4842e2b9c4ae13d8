//! Changes that the device refuses as a whole or in part.

use std::collections::BTreeSet;
use std::time::Instant;

use eno_sbi::Reconciled;
use eno_schemas::{Item, Outcome, PortMode};
use eno_simulator::{Fault, OddErrors, RejectEdit, Stage, Switch, Topology};

use crate::common::{Bench, applied_vlans, calls, failed, items, on_switch, set, vid};

#[tokio::test]
async fn one_refused_vlan_of_a_thousand_is_rejected_alone() {
    let with_path =
        RejectEdit { vlan: Some(1500), message: Some("no room for it".into()), ..RejectEdit::default() };
    let no_path = RejectEdit { without_path: true, message: Some("no".into()), ..with_path.clone() };
    for (what, fault, limit) in [
        ("named at edit", with_path.clone(), 20),
        ("named at validate", RejectEdit { at: Stage::Validate, ..with_path.clone() }, 20),
        ("named at commit", RejectEdit { at: Stage::Commit, ..with_path }, 24),
        ("not named", no_path.clone(), 110),
        ("not named at commit", RejectEdit { at: Stage::Commit, ..no_path }, 160),
    ] {
        let bench = Bench::start(|_| ()).await;
        let leaf = bench.switch("leaf1");
        leaf.inject(Fault::RejectEdit(fault));
        let start = Instant::now();
        let made = bench.apply("leaf1", "1001-2000", &["Ethernet1", "Ethernet2"]).await;
        println!("refused, {what}: {} requests, {:?}", calls(leaf), start.elapsed());
        assert_eq!(applied_vlans(&made).0, "1001-1499,1501-2000", "{what}");
        assert!(items(&made).iter().all(|item| item.vlan == Some(vid(1500))), "{what}: {:?}", made.rejected);
        assert!(!made.rejected.is_empty() && !made.wants_retry());
        assert!(made.rejected[0].reason.contains("no"), "{:?}", made.rejected);
        assert!(calls(leaf) <= limit, "{what}: {:?}", leaf.stats().rpcs);
        // Two cancels for the commit of an earlier session, and one for each refused commit, which may be pending
        // nevertheless.
        let cancelled = leaf.stats().rpcs["cancel-commit"];
        assert_eq!(cancelled > 2, what.ends_with("at commit"), "{what}: {cancelled}");
        assert_eq!(on_switch(leaf, "Ethernet2").1, "1001-1499,1501-2000");
    }
}

#[tokio::test]
async fn refused_port_is_rejected_alone() {
    let bench = Bench::start(|_| ()).await;
    let leaf = bench.switch("leaf1");
    leaf.inject(Fault::RejectEdit(RejectEdit {
        contains: Some("<name>Ethernet3</name>".into()),
        message: Some("broken".into()),
        without_path: true,
        ..RejectEdit::default()
    }));
    let ports = ["Ethernet1", "Ethernet2", "Ethernet3", "Ethernet4", "Ethernet5"];
    let made = bench.apply("leaf1", "100-120", &ports).await;
    assert_eq!(items(&made), [Item::port("Ethernet3")].into());
    assert_eq!(applied_vlans(&made).1.len(), 4);
}

/// A refusal that names the container of a port, as a `must` of a list does.
fn refuse_port(port: &str, edit: RejectEdit) -> Fault {
    let message = format!("no room (path \"/oc-if:interfaces/interface[name='{port}']/ethernet\")");
    Fault::RejectEdit(RejectEdit { message: Some(message), without_path: true, ..edit })
}

#[tokio::test]
async fn refused_vlan_keeps_other_vlans_and_removals_of_its_port() {
    for at in [Stage::Edit, Stage::Validate, Stage::Commit] {
        let bench = Bench::start(|_| ()).await;
        let leaf = bench.switch("leaf1");
        let ports = |of_first| [("Ethernet1", of_first), ("Ethernet2", "100-110")];
        let state = |of_first| bench.desired_ports("leaf1", "100-149,200-210", &ports(of_first));
        assert_eq!(applied_vlans(&bench.reconcile("leaf1", state("200-210")).await).0, "100-149,200-210");
        leaf.inject(refuse_port("Ethernet1", RejectEdit { vlan: Some(130), at, ..RejectEdit::default() }));
        let made = bench.reconcile("leaf1", state("100-149")).await;
        assert_eq!(applied_vlans(&made).1["Ethernet1"], "100-129,131-149", "{at:?}");
        assert_eq!(items(&made), [Item::port_vlan("Ethernet1", vid(130))].into(), "{at:?}");
        assert_eq!(on_switch(leaf, "Ethernet1").1, "100-129,131-149");
    }
}

/// A port that carries other VLANs keeps them, so the rejection names the refused VLANs.
#[tokio::test]
async fn only_new_vlan_of_a_port_is_rejected_by_its_vid() {
    for at in [Stage::Edit, Stage::Validate, Stage::Commit] {
        for new in ["105", "105-107"] {
            let bench = Bench::start(|_| ()).await;
            let leaf = bench.switch("leaf1");
            let state = |more: &str| {
                let vlans = format!("100,{more}");
                bench.desired_ports("leaf1", &vlans, &[("Ethernet1", &vlans), ("Ethernet2", "100")])
            };
            bench.reconcile("leaf1", state("101")).await;
            let contains = Some("<name>Ethernet1</name>".to_owned());
            leaf.inject(refuse_port("Ethernet1", RejectEdit { contains, at, ..RejectEdit::default() }));
            let made = bench.reconcile("leaf1", state(&format!("101,{new}"))).await;
            let refused: BTreeSet<Item> =
                set(new).iter().map(|vid| Item::port_vlan("Ethernet1", vid)).collect();
            assert_eq!(items(&made), refused, "{at:?}");
            assert_eq!(applied_vlans(&made).1["Ethernet1"], "100-101");
        }
    }
}

#[tokio::test]
async fn refused_confirm_timeout_is_not_reported_as_refused_vlans() {
    let bench = Bench::start(|_| ()).await;
    bench.switch("leaf1").inject(Fault::MaxConfirmTimeout { seconds: 30 });
    let refused = bench.apply("leaf1", "100-105", &["Ethernet1"]).await;
    let (reason, retryable, unreachable) = failed(&refused);
    assert!(reason.contains("--confirm-timeout") && reason.contains("at most 30 s"), "{reason}");
    assert!(!retryable && !unreachable && refused.rejected.is_empty(), "{refused:?}");
    assert!(!bench.switch("leaf1").is_pending());
}

#[tokio::test]
async fn removals_succeed_where_additions_are_refused() {
    let bench = Bench::start(|_| ()).await;
    let leaf = bench.switch("leaf1");
    let state = |of_first| bench.desired_ports("leaf1", "100-149,200-210", &[("Ethernet1", of_first)]);
    bench.reconcile("leaf1", state("200-210")).await;
    let added = Some("<trunk-vlans>1".to_owned());
    leaf.inject(refuse_port("Ethernet1", RejectEdit { contains: added, ..RejectEdit::default() }));
    let made = bench.reconcile("leaf1", state("100-149")).await;
    assert_eq!(applied_vlans(&made).1, [].into());
    assert_eq!(on_switch(leaf, "Ethernet1").1, "");
    assert_eq!(made.rejected.len(), 50, "{:?}", made.rejected);
}

#[tokio::test]
async fn each_of_few_refused_items_is_rejected() {
    let mut rejected = Vec::new();
    for (contains, at) in
        [("<interface>", Stage::Edit), ("<interface>", Stage::Commit), ("<vlan>", Stage::Validate)]
    {
        let bench = Bench::start(|_| ()).await;
        let leaf = bench.switch("leaf1");
        leaf.inject(Fault::RejectEdit(RejectEdit {
            contains: Some(contains.into()),
            message: Some("out of everything".into()),
            without_path: true,
            at,
            ..RejectEdit::default()
        }));
        let desired = bench.desired("leaf1", "100-102", &["Ethernet1", "Ethernet2", "Ethernet3"]);
        let made = bench.reconcile("leaf1", desired).await;
        assert_eq!(made.outcome, Outcome::Applied, "{contains} {at:?}: {made:?}");
        assert!(made.rejected.iter().all(|r| r.reason.contains("out of everything")), "{:?}", made.rejected);
        assert!(!made.wants_retry());
        let items: Vec<String> = made
            .rejected
            .iter()
            .map(|r| format!("{:?} {:?}", r.item.vlan.map(eno_schemas::VlanId::get), r.item.port))
            .collect();
        rejected.push((on_switch(leaf, "Ethernet1"), items));
    }
    let ports = ["Ethernet1", "Ethernet2", "Ethernet3"].map(|name| format!("None Some({name:?})")).to_vec();
    let vlans = [100, 101, 102].map(|vid| format!("Some({vid}) None")).to_vec();
    let current = ("100-102".to_owned(), String::new());
    assert_eq!(rejected[..2], [(current.clone(), ports.clone()), (current, ports)]);
    assert_eq!(rejected[2], ((String::new(), String::new()), vlans));
}

#[tokio::test]
async fn device_that_refuses_everything_fails_without_retry() {
    let bench = Bench::start(|_| ()).await;
    let leaf = bench.switch("leaf1");
    leaf.inject(Fault::RejectEdit(RejectEdit {
        contains: Some("network-instances".into()),
        message: Some("read only today".into()),
        without_path: true,
        ..RejectEdit::default()
    }));
    let refused = bench.apply("leaf1", "100-199", &["Ethernet1"]).await;
    let (reason, retryable, unreachable) = failed(&refused);
    assert!(reason.contains("read only today") && !retryable && !unreachable, "{reason}");
    assert!(leaf.view().vlans.is_empty());
}

/// A leaf of one dialect, and its first two ports.
struct Leaf {
    bench: Bench,
    ports: [String; 2],
}

impl Leaf {
    /// A leaf with VLAN 10 on both ports.
    async fn start(dialect: &str) -> Self {
        let bench = Bench::with(&Topology::leaf_spine_of(1, 1, 2, &[dialect])).await;
        let ports: Vec<String> = bench.switch("leaf1").view().ports.keys().take(2).cloned().collect();
        let leaf = Self { bench, ports: [ports[0].clone(), ports[1].clone()] };
        assert_eq!(applied_vlans(&leaf.apply("10", 2).await).0, "10");
        leaf
    }

    /// Applies these VLANs on the first ports.
    async fn apply(&self, vlans: &str, ports: usize) -> Reconciled {
        let ports: Vec<&str> = self.ports[..ports].iter().map(String::as_str).collect();
        let mut desired = self.bench.desired("leaf1", vlans, &ports);
        desired.ports.iter_mut().for_each(|port| port.mode = PortMode::Trunk);
        Box::pin(self.bench.reconcile("leaf1", desired)).await
    }

    fn switch(&self) -> &Switch {
        self.bench.switch("leaf1")
    }

    /// Our VLANs, and those of a port without VLAN 1 of the factory configuration.
    fn on_port(&self, port: usize) -> (String, String) {
        let (vlans, on_port) = on_switch(self.switch(), &self.ports[port]);
        (vlans, set(&on_port).difference(&set("1")).to_string())
    }
}

#[tokio::test]
async fn nested_errors_are_refusals() {
    for (at, unclosed) in [(Stage::Commit, false), (Stage::Commit, true), (Stage::Validate, false)] {
        let leaf = Leaf::start("junos").await;
        leaf.switch().inject(Fault::RejectEdit(RejectEdit {
            vlan: Some(666),
            message: Some("vlan-id 666 is reserved".into()),
            without_path: true,
            at,
            ..RejectEdit::default()
        }));
        leaf.switch().inject(Fault::OddErrors(OddErrors { nested: true, unclosed, untagged: true }));
        let made = leaf.apply("20,666", 2).await;
        assert_eq!(applied_vlans(&made).0, "20", "{at:?}: {made:?}");
        assert_eq!(leaf.on_port(0), ("20".to_owned(), "20".to_owned()));
        assert_eq!(items(&made), [Item::vlan(vid(666))].into());
        assert!(made.rejected[0].reason.contains("vlan-id 666 is reserved"), "{:?}", made.rejected);
    }
}

#[tokio::test]
async fn lock_denied_by_a_message_only_is_tried_again() {
    for dialect in ["openconfig", "junos"] {
        let leaf = Leaf::start(dialect).await;
        leaf.switch().inject(Fault::Locked { datastore: None, session: 4000 });
        leaf.switch().inject(Fault::OddErrors(OddErrors { untagged: true, ..OddErrors::default() }));
        let denied = leaf.apply("20", 1).await;
        let (reason, retryable, unreachable) = failed(&denied);
        assert!(reason.contains("is locked by") && reason.contains("it is locked"), "{reason}");
        assert!(!reason.contains(": :") && retryable && !unreachable, "{reason}");
        leaf.switch().inject(Fault::Clear {});
        assert_eq!(applied_vlans(&leaf.apply("20", 1).await).0, "20");
    }
}

#[tokio::test]
async fn lock_of_running_is_optional_and_that_of_the_candidate_is_not() {
    let leaf = Leaf::start("openconfig").await;
    let unsupported = |datastore: &str| Fault::LockUnsupported { datastore: datastore.to_owned() };
    leaf.switch().inject(unsupported("running"));
    let made = leaf.apply("20", 1).await;
    assert_eq!(applied_vlans(&made).0, "20");
    let notes: Vec<&str> = made.notes.iter().map(|note| note.kind.as_str()).collect();
    assert_eq!(notes, ["NoRunningLock"]);
    assert!(made.notes[0].message.contains("running"), "{:?}", made.notes);
    assert!(!leaf.switch().is_pending());
    leaf.switch().inject(Fault::Clear {});
    assert!(leaf.apply("21", 1).await.notes.is_empty());
    leaf.switch().inject(unsupported("candidate"));
    let refused = leaf.apply("20", 1).await;
    assert!(failed(&refused).0.contains("candidate has no locks"), "{refused:?}");
    assert_eq!(leaf.on_port(0).0, "21");
}

#[tokio::test]
async fn removals_are_made_where_no_vlan_can_be_created() {
    let leaf = Leaf::start("openconfig").await;
    leaf.switch().inject(Fault::RejectEdit(RejectEdit {
        contains: Some("<status>ACTIVE".into()),
        message: Some("the table is full".into()),
        without_path: true,
        ..RejectEdit::default()
    }));
    let made = leaf.apply("100-199", 1).await;
    assert_eq!(applied_vlans(&made), (String::new(), [].into()));
    assert_eq!(leaf.on_port(1), (String::new(), String::new()));
    assert_eq!(made.rejected.len(), 100);
    assert!(made.rejected.iter().all(|rejection| rejection.reason.contains("the table is full")));
}

#[tokio::test]
async fn filters_are_read_root_by_root_where_one_root_is_allowed() {
    for dialect in ["openconfig", "ieee8021q"] {
        let leaf = Leaf::start(dialect).await;
        leaf.switch().inject(Fault::OneRootPerFilter {});
        for vlans in ["20-22", "21", ""] {
            let made = leaf.apply(vlans, 1).await;
            assert_eq!(applied_vlans(&made).0, vlans, "{dialect}");
            assert_eq!(leaf.on_port(0), (vlans.to_owned(), vlans.to_owned()), "{dialect}");
        }
    }
}

#[tokio::test]
async fn removed_leaves_are_sent_with_their_value() {
    for dialect in ["openconfig", "nxos", "srlinux", "ieee8021q"] {
        let leaf = Leaf::start(dialect).await;
        leaf.switch().inject(Fault::RemoveNeedsValue {});
        let made = leaf.apply("", 2).await;
        assert_eq!(applied_vlans(&made).0, "", "{dialect}: {made:?}");
        assert_eq!(items(&made), [].into(), "{dialect}");
        assert_eq!(leaf.on_port(0), (String::new(), String::new()), "{dialect}");
    }
}

#[tokio::test]
async fn vlan_that_keeps_the_change_from_reading_back_is_rejected_alone() {
    let leaf = Leaf::start("openconfig").await;
    leaf.switch().inject(Fault::IgnoreEdit { contains: Some("<vlan-id>666<".into()), times: None });
    let made = leaf.apply("20-25,666", 2).await;
    assert_eq!(applied_vlans(&made).0, "20-25");
    assert_eq!(items(&made), [Item::vlan(vid(666))].into());
    assert!(made.rejected[0].reason.contains("does not show it"), "{:?}", made.rejected);
    assert_eq!(leaf.on_port(1), ("20-25".to_owned(), "20-25".to_owned()));
    assert!(!leaf.switch().is_pending());
}
