//! Refused links, which leave nothing behind.

use std::time::Duration;

use eno_driver_node::host::ownership::OriginalSettings;
use eno_driver_node::netlink::{Namespace, Netlink, Request};
use eno_schemas::{
    HostNetwork, Item, LinkKind, LinkName, Master, Parent, PodLink, PodRoute, PortVlans, Rejection, VlanId,
    VlanSet,
};
use futures::StreamExt as _;

use crate::pods::common::*;

/// Reconciles a link that has to be refused, and returns its rejection. Pod and host are unchanged, and another pod
/// gets its link.
async fn refused(node: &mut Node, pod: &Namespace, link: PodLink) -> Rejection {
    let before = snapshot(pod).await.links;
    let id = link.id.clone();
    drop(node.run_pod("other", 9).await);
    node.want("other", vec![bridged("net9", "10.9.0.99/24")]);
    node.want("a", vec![link]);
    let mut done = node.reconcile().await;
    assert_eq!(done.pods["other"].len(), 1);
    assert_eq!(done.pods["a"].len(), 0);
    assert_eq!(done.rejected.len(), 1, "{:?}", done.rejected);
    let rejection = done.rejected.remove(0);
    assert_eq!(rejection.item, Item::link("a", id));
    assert_eq!(snapshot(pod).await.links, before);
    assert_eq!(node.host_ends().await.len(), 1);
    rejection
}

async fn setup() -> (Node, Namespace) {
    let mut node = Node::new().await;
    let pod = node.run_pod("a", 123_456).await;
    in_namespace(&pod, |netlink| {
        netlink.execute(Request::add_link("eth0", bare("eth0", "bridge")))?;
        let index = netlink.link_named("eth0")?.unwrap().index;
        netlink.execute(Request::add_address("eth0", index, "10.244.0.9/24".parse().unwrap()))
    })
    .await;
    (node, pod)
}

macro_rules! refuses {
    ($($test:ident: $link:expr => $retryable:literal, $words:literal;)*) => {$(
        #[tokio::test(flavor = "multi_thread")]
        #[ignore = "needs root: makes network namespaces"]
        async fn $test() {
            let (mut node, pod) = setup().await;
            let rejection = refused(&mut node, &pod, $link).await;
            assert!(rejection.reason.contains($words), "{}", rejection.reason);
            assert_eq!(rejection.retryable, $retryable, "{}", rejection.reason);
        }
    )*};
}

fn with(change: impl FnOnce(&mut PodLink)) -> PodLink {
    let mut link = bridged("net1", "10.9.0.2/24");
    change(&mut link);
    link
}

fn on(bridge: &str) -> LinkKind {
    LinkKind::Veth { master: Some(Master::Bridge { bridge: bridge.to_owned(), vlans: None }) }
}

refuses! {
    taken_name_is_refused: with(|link| link.name = LinkName::Fixed("eth0".into())) => true, "already, which is not ours";
    too_long_name_is_refused: with(|link| link.name = LinkName::Fixed("sixteen-letters-".into())) => false, "15 are possible";
    too_long_host_end_name_is_refused: with(|link| link.name = LinkName::WithPid("ninelette".into())) => false, "15 are possible";
    reserved_name_is_refused: with(|link| link.name = LinkName::Fixed("all".into())) => false, "can't be the name";
    unknown_bridge_is_refused: with(|link| link.kind = on("docker0")) => false, "no network of this node";
    parent_not_on_allow_list_is_refused: link("net1", LinkKind::Macvlan { master: "eth9".into() }) => false, "list of allowed";
    unsafe_sysctl_is_refused: with(|link| { link.sysctls.insert("ipv4/conf/route_localnet".into(), "1".into()); }) => false, "not on the list";
    taken_address_is_refused: with(|link| link.addresses.push("10.244.0.9/32".parse().unwrap())) => true, "on eth0";
    impossible_mtu_is_refused: with(|link| link.mtu = Some(70_000)) => false, "make interface";
    multicast_mac_is_refused: with(|link| link.mac = Some("01:00:5e:00:00:01".into())) => false, "MAC address of one";
    missing_parent_in_pod_is_refused: link("net1", LinkKind::Vlan { parent: Parent::Pod("eth7".into()), vlan: VlanId::new(5).unwrap() }) => true, "no interface eth7";
    missing_parent_link_is_refused: link("net1", LinkKind::Vlan { parent: Parent::Link("x".into()), vlan: VlanId::new(5).unwrap() }) => false, "no interface x";
    route_with_foreign_source_is_refused: with(|link| link.routes = vec![PodRoute { prefix: "10.50.0.0/16".parse().unwrap(), next_hop: None, table: None, metric: None, source: Some("192.0.2.77".parse().unwrap()) }]) => false, "add route 10.50.0.0/16";
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: makes network namespaces"]
async fn rolled_back_changes_are_not_notified() {
    let (mut node, _) = setup().await;
    node.audit(Duration::MAX);
    let source = Some("192.0.2.77".parse().unwrap());
    let prefix = "10.50.0.0/16".parse().unwrap();
    let route = PodRoute { prefix, next_hop: None, table: None, metric: None, source };
    node.want("a", vec![with(|link| link.routes = vec![route])]);
    let mut changed = std::pin::pin!(node.pods.changed());
    let mut notified = 0;
    for _ in 0..10 {
        assert_eq!(node.reconcile().await.rejected.len(), 1);
        notified +=
            usize::from(tokio::time::timeout(Duration::from_millis(300), changed.next()).await.is_ok());
    }
    // Some notifications come late, such as those of the bridge that got a port.
    assert!(notified < 5, "{notified}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: makes network namespaces"]
async fn refused_pods_do_not_prevent_audits() {
    let (mut node, _) = setup().await;
    let b = node.run_pod("b", 7).await;
    node.want("a", vec![with(|link| link.name = LinkName::Fixed("all".into()))]);
    node.want("later", vec![bridged("net1", "10.9.0.8/24")]);
    node.want("b", vec![with_sysctl(bridged("net1", "10.9.0.9/24"), "ipv4/conf/rp_filter", "2")]);
    assert_eq!(node.reconcile().await.rejected.len(), 2);
    b.run(|| std::fs::write("/proc/sys/net/ipv4/conf/net1/rp_filter", "1").unwrap()).await.unwrap();
    let done = node.reconcile().await;
    assert_eq!((done.rejected.len(), done.notes.len()), (2, 1), "{done:?}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: makes network namespaces"]
async fn macvlan_on_bridge_with_addresses_is_refused() {
    let (mut node, pod) = setup().await;
    let address = "10.9.0.1/24".parse().unwrap();
    let network = HostNetwork::PodBridge { addresses: vec![address], mtu: None };
    node.desired.networks.insert(BRIDGE.to_owned(), network);
    node.on_host(move |netlink| {
        let index = netlink.link_named(BRIDGE)?.unwrap().index;
        netlink.execute(Request::add_address_alone(BRIDGE, index, address))
    })
    .await;
    let macvlan = link("net1", LinkKind::Macvlan { master: BRIDGE.to_owned() });
    let rejection = refused(&mut node, &pod, macvlan).await;
    assert!(!rejection.retryable, "{}", rejection.reason);
    assert!(rejection.reason.ends_with("make it a veth with master br-data"), "{}", rejection.reason);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: makes network namespaces"]
async fn missing_bridge_is_refused_until_it_appears() {
    let (mut node, pod) = setup().await;
    let network = node.desired.networks[BRIDGE].clone();
    node.desired.networks.insert("br-late".to_owned(), network);
    let rejection = refused(&mut node, &pod, with(|link| link.kind = on("br-late"))).await;
    assert!(rejection.retryable && rejection.reason.contains("no bridge br-late"), "{rejection:?}");
    node.on_host(|netlink| netlink.execute(Request::add_link("br-late", made("br-late", "bridge")))).await;
    node.settle().await;
}

/// All kinds of links that can be attached to an interface of the host.
fn kinds_on(name: &str) -> [LinkKind; 5] {
    let vlans = Some(PortVlans::Access(VlanId::new(5).unwrap()));
    [
        on(name),
        LinkKind::Veth { master: Some(Master::Bridge { bridge: name.to_owned(), vlans }) },
        LinkKind::Macvlan { master: name.to_owned() },
        LinkKind::Ipvlan { master: name.to_owned() },
        LinkKind::Vlan { parent: Parent::Host(name.to_owned()), vlan: VlanId::new(5).unwrap() },
    ]
}

/// A desired network with the name of a foreign interface does not make the interface ENO's.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: makes network namespaces"]
async fn links_on_foreign_interfaces_are_refused() {
    let (mut node, pod) = setup().await;
    let vlans: VlanSet = "7".parse().unwrap();
    let networks = [
        ("cni0", HostNetwork::PodBridge { addresses: Vec::new(), mtu: None }),
        ("br-hand", HostNetwork::Bridge { uplink: None, vlans: vlans.clone(), mtu: None }),
        ("eth9", HostNetwork::PodBridge { addresses: Vec::new(), mtu: None }),
        ("eth8", HostNetwork::Master { bond: Vec::new(), vlans, mtu: None }),
    ];
    let mut foreign: Vec<&str> = networks.iter().map(|(name, _)| *name).collect();
    foreign.push("eth8.7");
    let made = foreign.clone();
    node.on_host(move |netlink| {
        for name in made {
            let kind = if name.starts_with("eth") { "veth" } else { "bridge" };
            netlink.execute(Request::add_link(name, bare(name, kind)))?;
        }
        // The mark of a NIC in use does not allow its use as a pod bridge.
        let index = netlink.link_named("eth9")?.unwrap().index;
        let original =
            OriginalSettings { mtu: 1500, up: false, address_generation: None }.altname(CLUSTER, index);
        netlink.execute(Request::add_altname("eth9", index, &original))
    })
    .await;
    node.desired.networks.extend(networks.map(|(name, network)| (name.to_owned(), network)));
    let before = node.on_host(Netlink::links).await;
    for name in foreign {
        for kind in kinds_on(name) {
            let what = format!("{kind:?}");
            node.want("a", vec![link("net1", kind)]);
            let rejected = node.reconcile().await.rejected;
            let reasons: Vec<&str> = rejected.iter().map(|rejection| rejection.reason.as_str()).collect();
            let expected = ["was not made by ENO", "no network of this node"];
            assert!(
                reasons.len() == 1 && expected.iter().any(|words| reasons[0].contains(words)),
                "{what}: {reasons:?}"
            );
            assert_eq!(node.on_host(Netlink::links).await, before, "{what}");
            assert!(snapshot(&pod).await.named("net1").is_none(), "{what}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: makes network namespaces"]
async fn parent_with_node_address_is_refused() {
    let (mut node, pod) = setup().await;
    node.allow("parent0");
    node.on_host(|netlink| {
        netlink.execute(Request::add_link("parent0", bare("parent0", "veth")))?;
        let index = netlink.link_named("parent0")?.unwrap().index;
        netlink.execute(Request::add_address("parent0", index, "192.0.2.1/24".parse().unwrap()))
    })
    .await;
    node.want("a", vec![link("net1", LinkKind::Macvlan { master: "parent0".to_owned() })]);
    let rejected = node.reconcile().await.rejected;
    assert!(rejected[0].reason.contains("carries an address of the node"), "{rejected:?}");
    assert!(snapshot(&pod).await.named("net1").is_none());
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: makes network namespaces"]
async fn host_network_pod_is_refused() {
    let (mut node, _) = setup().await;
    node.set_sandbox("h", node.host.clone(), Some(1));
    node.want("h", vec![bridged("net1", "10.9.0.2/24")]);
    let done = node.reconcile().await;
    assert_eq!(done.rejected[0].item, Item::pod("h"));
    assert!(!done.rejected[0].retryable && done.rejected[0].reason.contains("the node itself"));
    assert!(node.host_ends().await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: makes network namespaces"]
async fn pod_is_rejected_until_it_runs() {
    let (mut node, _) = setup().await;
    node.want("later", vec![bridged("net1", "10.9.0.2/24")]);
    let done = node.reconcile().await;
    assert_eq!((done.rejected[0].item.clone(), done.rejected[0].retryable), (Item::pod("later"), true));
    drop(node.run_pod("later", 5).await);
    node.settle().await;
}
