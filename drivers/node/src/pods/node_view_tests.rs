//! Notifications, and what has to be read after them.

use super::super::{Refusal, empty_pod};
use super::*;
use crate::netlink::{Kind, NamespaceId, PortVlan};

const INTERVAL: Duration = Duration::from_mins(1);

/// A node whose clock the test moves.
struct Node {
    view: NodeView,
    desired: NodeDesired,
    now: Instant,
    /// CPU time of each read.
    took: Duration,
    /// The pod without a subscription, by uid.
    unwatched: Option<&'static str>,
}

fn pod(revision: &str) -> NodePod {
    NodePod { name: revision.to_owned(), ..empty_pod() }
}

fn failed() -> Outcome {
    Outcome { pod: Some(Refusal::temporary("no")), ..Outcome::default() }
}

fn link(index: u32, alias: Option<&str>) -> Link {
    Link { up: true, carrier: true, alias: alias.map(str::to_owned), ..Link::new(index, Kind::Veth) }
}

fn notified(link: Link) -> Notifications {
    Notifications { links: [(link.index, Some(link))].into(), ..Notifications::default() }
}

impl Node {
    /// A node with these pods, all as desired. Interface 7 is the host end of the first one.
    fn settled(pods: &[&str]) -> Self {
        let desired = NodeDesired {
            cluster: "t1".to_owned(),
            pods: pods.iter().map(|uid| ((*uid).to_owned(), pod("1"))).collect(),
            ..NodeDesired::default()
        };
        let mut node = Self {
            view: NodeView::default(),
            desired,
            now: Instant::now(),
            took: Duration::ZERO,
            unwatched: None,
        };
        let _ = node.reconcile();
        assert_eq!(node.reconcile(), (None, vec![]));
        node
    }

    /// Does what a reconcile does, with success. Returns what had to be read.
    fn reconcile(&mut self) -> (Option<AuditReason>, Vec<(String, ReadReason)>) {
        self.reconcile_until(|_| true)
    }

    /// As [`Self::reconcile`], with failures of the pods that `succeeds` does not accept.
    fn reconcile_until(
        &mut self,
        succeeds: impl Fn(&str) -> bool,
    ) -> (Option<AuditReason>, Vec<(String, ReadReason)>) {
        let unwatched = self.unwatched;
        let reads = self.view.start(&self.desired, self.now, INTERVAL, |uid| unwatched != Some(uid));
        if reads.audit.is_some() {
            let ends = self.desired.pods.keys().next().map(|uid| format!("eno:t1:{uid}:net1"));
            self.view.host_listed("t1", vec![link(1, None), link(7, ends.as_deref())]);
        }
        let mut read = Vec::new();
        for PodRead { uid, reason, .. } in self.view.pods_to_read(&self.desired, &reads) {
            self.view.pod_starts(&uid);
            let sandbox = Sandbox { path: "/".into(), id: NamespaceId { device: 1, inode: 1 }, pid: None };
            let namespace = Some(PodNamespace { sandbox, container: String::new() });
            let wanted = self.desired.pods.get(&uid);
            let outcome = if succeeds(&uid) { Outcome::default() } else { failed() };
            let last = LastRead { pod: wanted.cloned().unwrap_or_else(empty_pod), outcome };
            self.view.record(&uid, wanted.is_some(), namespace, last, (self.now, self.took));
            read.push((uid, reason));
        }
        self.view.finish(&reads, self.now);
        (reads.audit, read)
    }

    fn pod_reads(&mut self) -> Vec<(String, ReadReason)> {
        let (audit, read) = self.reconcile();
        assert_eq!(audit, None);
        read
    }
}

fn reads<const N: usize>(reads: [(&str, ReadReason); N]) -> Vec<(String, ReadReason)> {
    reads.map(|(uid, reason)| (uid.to_owned(), reason)).to_vec()
}

fn audit(reason: AuditReason, pods: &[&str]) -> (Option<AuditReason>, Vec<(String, ReadReason)>) {
    (Some(reason), pods.iter().map(|uid| ((*uid).to_owned(), ReadReason::Audit(reason))).collect())
}

#[test]
fn first_reconcile_reads_all() {
    let mut node = Node::settled(&[]);
    node.view = NodeView::default();
    node.desired.pods.insert("a".to_owned(), pod("1"));
    assert!(node.view.host_links().is_none());
    assert_eq!(node.reconcile(), audit(AuditReason::HostUnknown, &["a"]));
    assert!(node.view.host_links().is_some());
    assert_eq!(node.reconcile(), (None, vec![]));
}

#[test]
fn notification_of_a_pod_reads_this_pod_once() {
    let mut node = Node::settled(&["a", "b"]);
    node.view.pod_notified("b");
    assert_eq!(node.pod_reads(), reads([("b", ReadReason::Notified)]));
    assert_eq!(node.pod_reads(), []);
}

#[test]
fn notification_of_a_host_end_reads_its_pod() {
    let mut node = Node::settled(&["a", "b"]);
    let end = link(7, Some("eno:t1:a:net1"));
    // Neither a change of the carrier nor one of a foreign interface concerns a pod.
    let carrier = Link { carrier: false, ..end.clone() };
    assert!(!node.view.host_notified(notified(carrier)));
    assert!(!node.view.host_notified(notified(Link { mtu: 9000, ..link(1, None) })));
    assert!(!node.view.host_notified(notified(link(9, Some("eno:t2:a:net1")))));
    assert_eq!(node.pod_reads(), []);
    assert!(node.view.host_notified(notified(Link { up: false, ..end.clone() })));
    assert_eq!(node.pod_reads(), reads([("a", ReadReason::Notified)]));
    let deleted = Notifications { links: [(7, None)].into(), ..Notifications::default() };
    assert!(node.view.host_notified(deleted));
    assert!(node.view.host_links().unwrap().get(7).is_none());
    assert_eq!(node.pod_reads(), reads([("a", ReadReason::Notified)]));
    // What a reconcile has read is no news.
    let mtu = Link { mtu: 1400, ..end };
    node.view.host_read([(7, Some(mtu.clone()))], PortsVlans::new());
    assert!(!node.view.host_notified(notified(mtu)));
    assert_eq!(node.pod_reads(), []);
}

#[test]
fn notification_of_tracked_vlans_reads_the_pod() {
    let mut node = Node::settled(&["a"]);
    let vlan = |vid| vec![PortVlan { vid, pvid: true, untagged: true }];
    let news = |vid| Notifications { vlans: [(7, vlan(vid))].into(), ..Notifications::default() };
    assert!(!node.view.tracks_vlans(7) && !node.view.host_notified(news(5)));
    let end = link(7, Some("eno:t1:a:net1"));
    node.view.host_read([(7, Some(end))], [(7, vlan(5))].into());
    assert!(node.view.tracks_vlans(7) && !node.view.host_notified(news(5)));
    assert!(node.view.host_notified(news(6)));
    assert_eq!(node.pod_reads(), reads([("a", ReadReason::Notified)]));
}

#[test]
fn lost_notifications_of_the_host_read_all() {
    let mut node = Node::settled(&["a", "b"]);
    node.view.host_lost();
    assert!(node.view.host_links().is_none());
    assert_eq!(node.reconcile(), audit(AuditReason::HostUnknown, &["a", "b"]));
    assert_eq!(node.reconcile(), (None, vec![]));
}

#[test]
fn ended_subscription_reads_the_pod() {
    let mut node = Node::settled(&["a", "b"]);
    node.unwatched = Some("b");
    assert_eq!(node.pod_reads(), reads([("b", ReadReason::Unwatched)]));
    node.unwatched = None;
    assert_eq!(node.pod_reads(), []);
}

#[test]
fn changed_desired_state_reads_changed_pods_only() {
    let mut node = Node::settled(&["a", "b", "c"]);
    // The next audit is due, but the desired state is just changing.
    node.now += INTERVAL;
    node.desired.pods.insert("b".to_owned(), pod("2"));
    node.desired.pods.insert("d".to_owned(), pod("1"));
    node.desired.pods.remove("c");
    let expected = [("c", ReadReason::Undesired), ("b", ReadReason::NotAsDesired), ("d", ReadReason::New)];
    assert_eq!(node.pod_reads(), reads(expected));
    assert_eq!(node.reconcile(), audit(AuditReason::Interval, &["a", "b", "d"]));
    node.now += INTERVAL.saturating_sub(Duration::from_millis(1));
    assert_eq!(node.pod_reads(), []);
}

#[test]
fn failed_pods_are_read_until_they_are_as_desired() {
    let mut node = Node::settled(&["a", "b"]);
    node.desired.pods.remove("a");
    node.desired.pods.insert("b".to_owned(), pod("2"));
    let changed = reads([("a", ReadReason::Undesired), ("b", ReadReason::NotAsDesired)]);
    assert_eq!(node.reconcile_until(|_| false), (None, changed.clone()));
    // A pod that fails again and again does not put off audits.
    node.now += INTERVAL;
    let all = audit(AuditReason::Interval, &["a", "b"]);
    assert_eq!(node.reconcile_until(|_| false), all);
    assert_eq!(node.reconcile(), (None, changed));
    assert_eq!(node.pod_reads(), []);
}

#[test]
fn changed_networks_read_all() {
    let mut node = Node::settled(&["a"]);
    let network = HostNetwork::PodBridge { addresses: Vec::new(), mtu: None };
    node.desired.networks.insert("br0".to_owned(), network);
    assert_eq!(node.reconcile(), audit(AuditReason::Networks, &["a"]));
    assert_eq!(node.pod_reads(), []);
}

#[test]
fn pod_whose_reads_take_much_time_is_postponed() {
    let mut node = Node::settled(&["a", "b"]);
    // Some reads at once are not too much.
    let part = CPU_BURST / 4;
    for _ in 0..4 {
        node.took = part;
        node.view.pod_notified("a");
        assert_eq!(node.pod_reads(), reads([("a", ReadReason::Notified)]));
    }
    for succeeds in [true, false] {
        node.took = part;
        node.view.pod_notified("a");
        assert_eq!(node.reconcile_until(|_| succeeds), (None, reads([("a", ReadReason::Notified)])));
        node.took = Duration::ZERO;
        node.view.pod_notified("a");
        node.view.pod_notified("b");
        assert!(!node.view.is_postponed_due(node.now));
        // Its last outcome is reported meanwhile.
        let started = node.view.start(&node.desired, node.now, INTERVAL, |_| true);
        assert_eq!(started.skipped["a"].outcome.is_complete(), succeeds);
        node.view.finish(&started, node.now);
        assert_eq!(node.pod_reads(), reads([("b", ReadReason::Notified)]));
        node.now += CPU_SHARE * part;
        assert!(node.view.is_postponed_due(node.now));
        let again = if succeeds { ReadReason::Notified } else { ReadReason::NotAsDesired };
        assert_eq!(node.pod_reads(), reads([("a", again)]));
    }
    // What is desired now is not postponed; what has to be removed is, once that was tried.
    node.took = part;
    node.view.pod_notified("a");
    assert_eq!(node.pod_reads(), reads([("a", ReadReason::Notified)]));
    node.desired.pods.insert("a".to_owned(), pod("2"));
    assert_eq!(node.pod_reads(), reads([("a", ReadReason::NotAsDesired)]));
    node.desired.pods.remove("a");
    for tried in [reads([("a", ReadReason::Undesired)]), vec![], vec![]] {
        assert_eq!(node.reconcile_until(|_| false), (None, tried));
    }
}

#[test]
fn dropped_reconcile_reads_all() {
    let mut node = Node::settled(&["a", "b"]);
    node.view.pod_notified("a");
    let dropped = node.view.start(&node.desired, node.now, INTERVAL, |_| true);
    assert_eq!(dropped.audit, None);
    let read = node.view.pods_to_read(&node.desired, &dropped);
    assert_eq!(read.len(), 1);
    assert_eq!(node.reconcile(), audit(AuditReason::Unfinished, &["a", "b"]));
    assert_eq!(node.pod_reads(), []);
}

#[test]
fn notification_during_the_work_on_a_pod_is_kept() {
    let mut node = Node::settled(&["a"]);
    node.desired.pods.insert("a".to_owned(), pod("2"));
    let started = node.view.start(&node.desired, node.now, INTERVAL, |_| true);
    let [read] = &node.view.pods_to_read(&node.desired, &started)[..] else { panic!("one pod") };
    node.view.pod_starts("a");
    node.view.pod_notified("a");
    let last = LastRead { pod: pod("2"), outcome: Outcome::default() };
    node.view.record("a", true, read.namespace.clone(), last, (node.now, Duration::ZERO));
    node.view.finish(&started, node.now);
    assert_eq!(node.pod_reads(), reads([("a", ReadReason::Notified)]));
}
