//! The lifecycle of pods and of their links.

use std::collections::BTreeSet;
use std::time::Duration;

use eno_driver_node::netlink::{Namespace, Request};
use eno_driver_node::pods::ownership::stable_name;
use eno_driver_node::pods::{Options, Pods, PodsApplied, Resolve, Sandbox, Unresolved};
use eno_schemas::{LinkKind, LinkName, PodLink, PodRoute, PodRule, TunDevice};
use rtnetlink::packet_route::link::LinkAttribute;

use crate::pods::common::*;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: makes network namespaces"]
async fn pods_on_a_bridge_reach_each_other_and_restart_changes_nothing() {
    let (mut node, a) = Node::with_pod().await;
    let b = node.run_pod("b", 102).await;
    node.want("a", vec![bridged("net1", "10.9.0.2/24")]);
    let done = node.settle_links("b", vec![bridged("net1", "10.9.0.3/24")]).await;
    assert!(done.notes.is_empty());
    assert!(reaches(&a, &b, "10.9.0.3").await);
    let link = named(&a, "net1").await;
    assert!(link.up);
    let reported = applied(&done, "a", "net1");
    assert_eq!((reported.mtu, &reported.name[..]), (1500, "net1"));
    assert_eq!(node.host_ends().await.len(), 2);
    // Neither a second reconcile nor a restarted agent changes anything.
    let before = (stable_snapshot(&a).await, stable_snapshot(&node.host).await);
    node.restart();
    assert_eq!(node.settle().await.pods, done.pods);
    assert_eq!(before, (stable_snapshot(&a).await, stable_snapshot(&node.host).await));
    node.desired.pods.clear();
    assert_eq!(node.reconcile().await, PodsApplied::default());
    assert!(node.host_ends().await.is_empty());
    assert!(ours(&snapshot(&a).await).is_empty());
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: makes network namespaces"]
async fn link_settings_are_changed_in_place() {
    let (mut node, pod) = Node::with_pod().await;
    let mut wanted = bridged("net1", "10.9.0.2/24");
    wanted.routes = vec![route("10.50.0.0/16", Some("10.9.0.1"), None)];
    wanted.sysctls = [("ipv4/conf/rp_filter".to_owned(), "2".to_owned())].into();
    node.settle_links("a", vec![wanted]).await;
    let before = named(&pod, "net1").await;
    let link = node.first_link();
    link.addresses =
        vec!["10.9.0.4/25".parse().unwrap(), "10.9.0.5/32".parse().unwrap(), "fd00:9::2/64".parse().unwrap()];
    link.routes = vec![
        route("10.50.0.0/16", Some("10.9.0.9"), None),
        route("0.0.0.0/0", Some("192.0.2.1"), Some(100)),
        PodRoute { source: Some("10.9.0.5".parse().unwrap()), ..route("10.51.0.0/16", None, Some(100)) },
        route("fd00:50::/32", Some("fd00:9::1"), None),
        PodRoute { metric: Some(50), ..route("::/0", Some("fd00:9::1"), None) },
    ];
    link.rules = vec![
        PodRule { table: 100, priority: 1000, from: Some("10.9.0.5/32".parse().unwrap()), to: None },
        PodRule { table: 100, priority: 1001, from: None, to: None },
    ];
    link.mtu = Some(9000);
    link.alias = Some("data".to_owned());
    link.mac = Some("02:00:00:00:00:99".to_owned());
    link.sysctls = [
        ("ipv4/conf/rp_filter".to_owned(), "1".to_owned()),
        ("ipv4/neigh/gc_stale_time".to_owned(), "77".to_owned()),
    ]
    .into();
    let done = node.settle().await;
    let all = snapshot(&pod).await;
    let after = all.named("net1").unwrap();
    assert_eq!((after.index, &after.name), (before.index, &before.name));
    assert_eq!(after.mac, Some([2, 0, 0, 0, 0, 0x99]));
    assert_eq!(after.mtu, 9000);
    assert_eq!(
        addresses(&all, "net1"),
        ["10.9.0.4/25", "10.9.0.5/32", "fd00:9::2/64"].map(str::to_owned).into()
    );
    let ours: Vec<_> = all.routes.iter().filter(|route| route.protocol == 101).collect();
    assert_eq!(ours.len(), 5, "{ours:?}");
    let mut rules: Vec<_> =
        all.rules.iter().filter(|rule| rule.protocol == 101).map(|rule| (rule.v6, rule.priority)).collect();
    rules.sort_unstable();
    assert_eq!(rules, [(false, 1000), (false, 1001), (true, 1001)]);
    assert_eq!(node.host_end(&done, "a").await.mtu, 9000);
    assert_eq!(sysctl(&pod, "ipv4/conf/net1/rp_filter").await, "1");
    assert_eq!(sysctl(&pod, "ipv4/neigh/net1/gc_stale_time").await, "77");
    // Down and up again, with its routes.
    node.first_link().up = false;
    node.settle().await;
    assert!(!named(&pod, "net1").await.up);
    node.first_link().up = true;
    node.settle().await;
    assert_eq!(snapshot(&pod).await.routes.iter().filter(|route| route.protocol == 101).count(), 5);
    // Settings that are not desired any more get the kernel's defaults.
    let link = node.first_link();
    (link.mtu, link.alias) = (None, None);
    let done = node.settle().await;
    let plain = named(&pod, "net1").await;
    assert_eq!((plain.index, plain.mtu, plain.alias), (after.index, 1500, None));
    assert_eq!(node.host_end(&done, "a").await.mtu, 1500);
    // Everything of ENO is deleted, and foreign interfaces stay.
    in_namespace(&pod, |netlink| netlink.execute(Request::add_link("mine", bare("mine", "bridge")))).await;
    node.desired.pods.clear();
    assert_eq!(node.reconcile().await.rejected, []);
    let all = snapshot(&pod).await;
    assert!(all.named("mine").is_some() && all.named("net1").is_none());
    assert!(all.rules.iter().all(|rule| rule.protocol != 101));
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: makes network namespaces"]
async fn undesired_rules_are_deleted_in_all_cases() {
    let ours =
        async |pod: &Namespace| snapshot(pod).await.rules.iter().filter(|rule| rule.protocol == 101).count();
    let rule = PodRule { table: 100, priority: 1000, from: None, to: None };
    let with = |rules: &[PodRule]| PodLink {
        addresses: vec!["10.9.0.2/24".parse().unwrap()],
        rules: rules.to_vec(),
        ..link("br0", LinkKind::Bridge {})
    };
    let cases = [
        "without its interface",
        "and in another life",
        "and by one that was not asked for it first",
        "and by one that did not find the pod first",
    ];
    for case in cases {
        let (mut node, pod) = Node::with_pod().await;
        node.settle_links("a", vec![with(std::slice::from_ref(&rule))]).await;
        if case == "and by one that was not asked for it first" {
            node.restart();
            node.desired.pods.clear();
            node.settle().await;
        } else {
            let index = named(&pod, "br0").await.index;
            in_namespace(&pod, move |netlink| netlink.execute(Request::delete_link("br0", index))).await;
        }
        if case == "and in another life" {
            node.restart();
        }
        assert_eq!(ours(&pod).await, 1, "{case}");
        node.want("a", vec![with(&[])]);
        if case == "and by one that did not find the pod first" {
            node.audit(Duration::MAX);
            node.end_pod("a");
            assert_eq!(node.reconcile().await.rejected.len(), 1);
            node.set_sandbox("a", pod.clone(), Some(101));
        }
        node.settle().await;
        assert_eq!(ours(&pod).await, 0, "{case}");
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: makes network namespaces"]
async fn taken_host_end_name_refuses_only_that_pod() {
    let (mut node, _) = Node::with_pod().await;
    let b = node.run_pod("b", 102).await;
    node.settle_links("a", vec![bridged("net1", "10.9.0.2/24")]).await;
    let name = stable_name("b", "net1");
    let other = name.clone();
    let index = node
        .on_host(move |netlink| {
            netlink.execute(Request::add_link("other", bare("other", "bridge")))?;
            let index = netlink.link_named("other")?.unwrap().index;
            netlink.execute(Request::add_altname("other", index, &other))?;
            Ok(index)
        })
        .await;
    let before = named(&node.host, "other").await;
    node.want("b", vec![bridged("net1", "10.9.0.3/24")]);
    // Alternative names are not checked beforehand: the kernel refuses the first attempt.
    for why in ["File exists", "already"] {
        let done = node.reconcile().await;
        let [rejection] = &done.rejected[..] else { panic!("{:?}", done.rejected) };
        assert!(rejection.retryable && rejection.reason.contains(why), "{}", rejection.reason);
        assert_eq!((ours(&snapshot(&b).await).len(), node.host_ends().await.len()), (0, 1));
        if why == "File exists" {
            assert_eq!(named(&node.host, "other").await, before);
            let taken = name.clone();
            node.on_host(move |netlink| {
                netlink.execute(Request::delete_altname("other", index, &taken))?;
                netlink.execute(Request::set("other", index, "name", vec![LinkAttribute::IfName(taken)]))
            })
            .await;
        }
    }
    node.on_host(move |netlink| netlink.execute(Request::delete_link(&name, index))).await;
    node.settle().await;
    assert_eq!(node.host_ends().await.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: makes network namespaces"]
async fn addresses_of_one_network_are_replaced() {
    let (mut node, pod) = Node::with_pod().await;
    let mut wanted = bridged("net1", "10.9.0.2/24");
    wanted.addresses.push("10.9.0.3/24".parse().unwrap());
    wanted.routes = vec![route("10.8.0.0/16", Some("10.9.0.1"), None)];
    node.settle_links("a", vec![wanted.clone()]).await;
    // The primary address is deleted, with which the kernel deletes the secondary ones; and the route changes.
    wanted.addresses = ["10.9.0.3/24", "10.9.0.4/24"].map(|net| net.parse().unwrap()).to_vec();
    wanted.routes = vec![route("10.7.0.0/16", Some("10.9.0.1"), None)];
    node.settle_links("a", vec![wanted]).await;
    let all = snapshot(&pod).await;
    assert_eq!(addresses(&all, "net1"), ["10.9.0.3/24", "10.9.0.4/24"].map(str::to_owned).into());
    let ours = all.routes.iter().filter(|route| route.protocol == 101);
    assert_eq!(ours.map(|route| route.prefix.to_string()).collect::<Vec<_>>(), ["10.7.0.0/16"]);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: makes network namespaces"]
async fn address_moves_from_deleted_to_new_interface() {
    let (mut node, pod) = Node::with_pod().await;
    let bridge =
        |id| PodLink { addresses: vec!["10.9.0.2/24".parse().unwrap()], ..link(id, LinkKind::Bridge {}) };
    node.settle_links("a", vec![bridge("net1")]).await;
    node.settle_links("a", vec![bridge("net2")]).await;
    assert_eq!(ours(&snapshot(&pod).await), ["net2"]);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: makes network namespaces"]
async fn renamed_link_keeps_its_interface() {
    let (mut node, pod) = Node::with_pod().await;
    node.settle_links("a", vec![bridged("net1", "10.9.0.2/24")]).await;
    let before = named(&pod, "net1").await;
    node.first_link().name = LinkName::Fixed("data".to_owned());
    node.settle().await;
    let after = named(&pod, "data").await;
    assert_eq!((after.index, after.mac, after.up), (before.index, before.mac, true));
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: makes network namespaces"]
async fn pid_names_stay_for_the_lifetime_of_the_sandbox() {
    let mut node = Node::new().await;
    let pod = node.run_pod("a", 4711).await;
    let mut wanted = bridged("net1", "10.9.0.2/24");
    wanted.name = LinkName::WithPid("pn".to_owned());
    let done = node.settle_links("a", vec![wanted]).await;
    let reported = applied(&done, "a", "net1");
    assert_eq!((&reported.name[..], reported.host_name.as_deref()), ("pn4711", Some("hpn4711")));
    // Its first container is restarted.
    node.set_sandbox("a", pod.clone(), Some(4800));
    node.desired.pods.get_mut("a").unwrap().container = "containerd://other".to_owned();
    for restarted in [false, true] {
        if restarted {
            node.restart();
        }
        assert_eq!(applied(&node.settle().await, "a", "net1").name, "pn4711");
    }
    assert_eq!(node.host_ends().await, ["hpn4711"]);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: makes network namespaces"]
async fn primary_interface_mtu_is_restored() {
    let (mut node, pod) = Node::with_pod().await;
    in_namespace(&pod, |netlink| netlink.execute(Request::add_link("eth0", bare("eth0", "veth")))).await;
    node.want("a", Vec::new()).primary = Some(primary(1400));
    let done = node.settle().await;
    assert_eq!(applied(&done, "a", "p").mtu, 1400);
    node.restart();
    node.want("a", Vec::new()).primary = Some(primary(1300));
    node.settle().await;
    assert_eq!(named(&pod, "eth0").await.mtu, 1300);
    node.restart();
    node.settle_links("a", Vec::new()).await;
    let eth0 = named(&pod, "eth0").await;
    assert_eq!((eth0.mtu, eth0.altnames), (1500, Vec::<String>::new()));
    // An impossible MTU is refused and changes nothing.
    node.want("a", Vec::new()).primary = Some(primary(100_000));
    assert!(node.reconcile().await.rejected[0].reason.contains("MTU"));
    assert_eq!(named(&pod, "eth0").await.mtu, 1500);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: makes network namespaces"]
async fn pods_undesired_during_agent_downtime_are_cleaned_up() {
    let (mut node, a) = Node::with_pod().await;
    let b = node.run_pod("b", 2).await;
    in_namespace(&a, |netlink| netlink.execute(Request::add_link("eth0", bare("eth0", "veth")))).await;
    node.want("a", vec![link("tap0", LinkKind::Tap(TunDevice::default()))]).primary = Some(primary(1400));
    node.settle_links("b", vec![link("tap0", LinkKind::Tap(TunDevice::default()))]).await;
    for (name, pod) in [("cni-a", &a), ("cni-b", &b)] {
        std::os::unix::fs::symlink(pod.path(), node.folder.path().join(name)).unwrap();
    }
    std::fs::write(node.folder.path().join("no-namespace"), "").unwrap();
    node.restart();
    // b is a pod of another node, whose own agent is responsible for it.
    node.end_pod("b");
    node.desired.pods.clear();
    assert_eq!(node.reconcile().await.rejected, []);
    let left = snapshot(&a).await;
    assert!(left.named("tap0").is_none());
    assert_eq!((left.named("eth0").unwrap().mtu, left.named("eth0").unwrap().altnames.len()), (1500, 0));
    assert!(snapshot(&b).await.named("tap0").is_some());
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: makes network namespaces"]
async fn ended_pod_delays_no_other_and_leaves_nothing() {
    let mut node = Node::new().await;
    for uid in ["a", "b", "c"] {
        drop(node.run_pod(uid, 1).await);
        let last = uid.as_bytes()[0];
        node.want(uid, vec![bridged("net1", &format!("10.9.0.{last}/24"))]);
    }
    node.settle().await;
    assert_eq!(node.host_ends().await.len(), 3);
    // Two pods end.
    node.end_pod("a");
    node.end_pod("b");
    let done = node.reconcile().await;
    assert_eq!(
        done.rejected.iter().map(|r| (r.item.pod.as_deref(), r.retryable)).collect::<Vec<_>>(),
        [(Some("a"), true), (Some("b"), true)]
    );
    assert_eq!(done.pods.keys().collect::<Vec<_>>(), ["c"]);
    node.desired.pods.remove("a");
    node.desired.pods.remove("b");
    assert_eq!(node.reconcile().await.rejected, []);
    let gone = tokio::time::timeout(Duration::from_secs(20), async {
        while node.host_ends().await.len() != 1 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    gone.await.expect("the namespaces of pods that ended are kept alive");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: makes network namespaces"]
async fn replaced_namespace_is_refused() {
    let (mut node, old) = Node::with_pod().await;
    let path = node.folder.path().join("cni-a");
    let other = Namespace::create().unwrap();
    std::os::unix::fs::symlink(old.path(), &path).unwrap();
    node.want("a", vec![bridged("net1", "10.9.0.2/24")]);
    let stale = StaleResolver { sandbox: Sandbox { path: path.clone(), id: old.id(), pid: Some(1) } };
    std::fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink(other.path(), &path).unwrap();
    let options = Options {
        host: node.host.clone(),
        audit: Duration::ZERO,
        allowed_masters: BTreeSet::new(),
        ovs_datapath: eno_schemas::OvsDatapath::System,
        proc_sys_net: "/proc/sys/net".into(),
        namespaces: "/nonexistent".into(),
    };
    let done = Pods::new(stale, options).reconcile(&node.desired).await;
    assert!(done.rejected[0].reason.contains("another network namespace"), "{done:?}");
    assert!(done.rejected[0].retryable);
    assert!(ours(&snapshot(&other).await).is_empty());
    assert!(node.host_ends().await.is_empty());
}

/// A resolver with an outdated answer.
struct StaleResolver {
    sandbox: Sandbox,
}

impl Resolve for StaleResolver {
    async fn resolve(&self, _: &str, _: Option<&str>) -> Result<Sandbox, Unresolved> {
        Ok(self.sandbox.clone())
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: makes network namespaces"]
async fn new_sandbox_gets_the_links_of_the_old_one() {
    let (mut node, old) = Node::with_pod().await;
    node.settle_links("a", vec![bridged("net1", "10.9.0.2/24")]).await;
    let new = node.run_pod("a", 2).await;
    node.desired.pods.get_mut("a").unwrap().container = "containerd://new".to_owned();
    node.settle().await;
    assert!(snapshot(&new).await.named("net1").is_some());
    assert!(snapshot(&old).await.named("net1").is_none());
    assert_eq!(node.host_ends().await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: makes network namespaces"]
async fn two_hundred_pods_converge_in_one_reconcile() {
    let mut node = Node::new().await;
    let mut pods = Vec::new();
    for at in 0..200 {
        let uid = format!("pod-{at}");
        pods.push(node.run_pod(&uid, 1000 + at).await);
        node.want(&uid, vec![bridged("net1", &format!("10.9.{}.{}/16", at / 100, at % 100 + 1))]);
    }
    node.settle().await;
    assert!(reaches(&pods[0], &pods[199], "10.9.1.100").await);
    assert_eq!(node.host_ends().await.len(), 200);
    // Reconciles that are dropped at any time do no harm.
    node.desired.pods.clear();
    for millis in [1, 3, 9] {
        drop(tokio::time::timeout(Duration::from_millis(millis), node.reconcile()).await);
    }
    assert_eq!(node.reconcile().await.rejected, []);
    assert!(node.host_ends().await.is_empty());
}
