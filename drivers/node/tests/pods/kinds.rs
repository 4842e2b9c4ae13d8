//! Every kind of interface, in real namespaces.

use std::net::{IpAddr, Ipv4Addr};

use eno_driver_node::netlink::{self, Kind, Link, Namespace, Netlink, Overlay};
use eno_schemas::{LinkKind, LinkName, Parent, PodLink, PortVlans, TunDevice, Tunnel, VlanId};

use crate::pods::common::*;

/// Checks the lifecycle of a link: it is made; a restarted agent recognises it and changes nothing; MTU and alias are
/// changed in place; it is deleted. Returns its first state.
async fn check_lifecycle(
    node: &mut Node,
    pod: &Namespace,
    uid: &str,
    wanted: Vec<PodLink>,
    id: &str,
) -> Link {
    node.want(uid, wanted);
    let first = node.settle().await;
    let name = applied(&first, uid, id).name.clone();
    let link = named(pod, &name).await;

    let before = (stable_snapshot(pod).await, stable_snapshot(&node.host).await);
    node.restart();
    assert_eq!(node.settle().await.pods, first.pods);
    assert_eq!(
        (stable_snapshot(pod).await, stable_snapshot(&node.host).await),
        before,
        "another process changed something"
    );

    let kept = (link.index, link.mac, link.name.clone());
    let changed =
        node.desired.pods.get_mut(uid).unwrap().links.iter_mut().find(|link| link.id == id).unwrap();
    changed.alias = Some("blue".to_owned());
    changed.mtu = Some(1300);
    node.settle().await;
    let after = named(pod, &name).await;
    assert_eq!((after.index, after.mac, after.name.clone()), kept);
    assert_eq!((after.mtu, after.alias.as_deref()), (1300, Some("blue")));

    node.desired.pods.get_mut(uid).unwrap().links.retain(|link| link.id != id);
    node.settle().await;
    assert!(snapshot(pod).await.named(&name).is_none());
    link
}

/// One test for each kind with nothing to check but its lifecycle and the kind that the kernel shows.
macro_rules! kinds {
    ($($test:ident: $needs:expr, $link:expr => $kind:expr;)*) => {$(
        #[tokio::test(flavor = "multi_thread")]
        #[ignore = "needs root: makes network namespaces"]
        async fn $test() {
            if kernel_lacks(&$needs).await {
                return;
            }
            let (mut node, pod) = Node::with_pod().await;
            node.add_parent().await;
            let wanted: PodLink = $link;
            let id = wanted.id.clone();
            let found = check_lifecycle(&mut node, &pod, "a", vec![wanted], &id).await;
            assert_eq!(found.kind, $kind);
        }
    )*};
}

const REMOTE: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 7);
const LOCAL: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 2);

fn tunnel(key: Option<u32>) -> Tunnel {
    Tunnel { remote: REMOTE, local: Some(LOCAL), key, ttl: Some(64) }
}

fn observed(key: Option<u32>) -> netlink::Tunnel {
    netlink::Tunnel { remote: Some(REMOTE.into()), local: Some(LOCAL.into()), key, ttl: 64 }
}

fn addressed(link: PodLink, address: &str) -> PodLink {
    PodLink { addresses: vec![address.parse().unwrap()], ..link }
}

kinds! {
    ipvlan_is_made_changed_and_deleted: ["ipvlan"], link("iv0", LinkKind::Ipvlan { master: "parent0".into() }) => Kind::Ipvlan { l2: true };
    dummy_is_made_changed_and_deleted: ["dummy"], link("d0", LinkKind::Dummy {}) => Kind::Dummy;
    geneve_is_made_changed_and_deleted: ["geneve"], link("gnv0", LinkKind::Geneve { vni: 12, remote: REMOTE.into(), port: None }) => Kind::Geneve(Overlay { vni: 12, remote: Some(REMOTE.into()), local: None, port: 6081 });
    gre_is_made_changed_and_deleted: ["gre"], addressed(link("tun-gre", LinkKind::Gre(tunnel(Some(77)))), "192.0.2.1/31") => Kind::Gre(observed(Some(77)));
    gretap_is_made_changed_and_deleted: ["gretap"], link("tap-gre", LinkKind::Gretap(tunnel(None))) => Kind::Gretap(observed(None));
    ipip_is_made_changed_and_deleted: ["ipip"], link("ii0", LinkKind::Ipip(tunnel(None))) => Kind::Ipip(observed(None));
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: makes network namespaces"]
async fn veth_is_made_changed_and_deleted() {
    let (mut node, pod) = Node::with_pod().await;
    let mut wanted = bridged("net1", "10.9.0.2/24");
    wanted.mac = Some("02:00:00:00:00:17".to_owned());
    let link = check_lifecycle(&mut node, &pod, "a", vec![wanted], "net1").await;
    assert_eq!(link.mac, Some([2, 0, 0, 0, 0, 0x17]));
    assert!(node.host_ends().await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: makes network namespaces"]
async fn macvlan_is_made_changed_and_deleted() {
    let (mut node, pod) = Node::with_pod().await;
    let index = node.add_parent().await;
    let macvlan = LinkKind::Macvlan { master: "parent0".to_owned() };
    let wanted = addressed(link("mv0", macvlan), "10.8.0.2/28");
    let found = check_lifecycle(&mut node, &pod, "a", vec![wanted], "mv0").await;
    assert_eq!(found.kind, Kind::Macvlan { bridge: true });
    assert_eq!(found.parent, Some(index));
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: makes network namespaces"]
async fn vlan_on_host_pod_and_link_is_made_changed_and_deleted() {
    if kernel_lacks(&["vlan"]).await {
        return;
    }
    let (mut node, pod) = Node::with_pod().await;
    node.add_parent().await;
    // A VLAN interface can't be up while its lower interface is down.
    in_namespace(&pod, |netlink| add_up(netlink, "eth0", bare("eth0", "veth"))).await;
    let vlan = |id: &str, parent, vid| link(id, LinkKind::Vlan { parent, vlan: VlanId::new(vid).unwrap() });
    let wanted = vec![
        vlan("v-host", Parent::Host("parent0".to_owned()), 10),
        vlan("v-pod", Parent::Pod("eth0".to_owned()), 11),
        bridged("net1", "10.9.0.2/24"),
        vlan("v-link", Parent::Link("net1".to_owned()), 12),
    ];
    for (id, vid) in [("v-link", 12), ("v-pod", 11), ("v-host", 10)] {
        let mut links = wanted.clone();
        links.retain(|link| link.id == id || link.id == "net1");
        let found = check_lifecycle(&mut node, &pod, "a", links, id).await;
        assert_eq!(found.kind, Kind::Vlan { vid });
    }
    // When the lower interface is replaced, the VLAN interface is replaced, too.
    node.settle_links("a", wanted).await;
    node.desired.pods.get_mut("a").unwrap().links[2].kind = LinkKind::Tap(TunDevice::default());
    node.settle().await;
    let all = snapshot(&pod).await;
    assert_eq!(all.named("v-link").unwrap().parent, Some(all.named("net1").unwrap().index));
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: makes network namespaces"]
async fn bridge_with_member_is_made_changed_and_deleted() {
    let (mut node, pod) = Node::with_pod().await;
    let bridge = addressed(link("br0", LinkKind::Bridge {}), "10.9.0.2/24");
    let member = PodLink {
        member_of: Some("br0".to_owned()),
        addresses: Vec::new(),
        ..bridged("port0", "10.9.0.9/24")
    };
    node.settle_links("a", vec![bridge.clone(), member.clone()]).await;
    let all = snapshot(&pod).await;
    assert_eq!(all.named("port0").unwrap().master, Some(all.named("br0").unwrap().index));
    node.desired.pods.get_mut("a").unwrap().links[1].member_of = None;
    node.settle().await;
    assert_eq!(named(&pod, "port0").await.master, None);
    // Without its bridge the member is rejected.
    node.want("a", vec![member]);
    let refused = node.reconcile().await.rejected;
    assert!(refused[0].reason.contains("no interface br0"), "{refused:?}");
    assert!(snapshot(&pod).await.named("br0").is_none());
    check_lifecycle(&mut node, &pod, "a", vec![bridge], "br0").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: makes network namespaces"]
async fn vrf_with_member_and_routes_is_made_changed_and_deleted() {
    if kernel_lacks(&["vrf"]).await {
        return;
    }
    let (mut node, pod) = Node::with_pod().await;
    let vrf = link("red", LinkKind::Vrf { table: 1001 });
    let mut member = bridged("net1", "10.9.0.2/24");
    member.member_of = Some("red".to_owned());
    member.routes = vec![route("0.0.0.0/0", Some("10.9.0.1"), Some(1001))];
    node.settle_links("a", vec![vrf.clone(), member]).await;
    let all = snapshot(&pod).await;
    assert_eq!(all.named("red").unwrap().kind, Kind::Vrf { table: 1001 });
    assert_eq!(all.named("net1").unwrap().master, Some(all.named("red").unwrap().index));
    assert!(all.routes.iter().any(|route| route.table == 1001 && route.gateway.is_some()));
    check_lifecycle(&mut node, &pod, "a", vec![vrf], "red").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: makes network namespaces"]
async fn vxlan_is_made_replaced_and_deleted() {
    let (mut node, pod) = Node::with_pod().await;
    let remote: IpAddr = "10.9.0.7".parse().unwrap();
    let kind = LinkKind::Vxlan { vni: 4096, remote: Some(remote), local: None, port: None };
    let found = check_lifecycle(&mut node, &pod, "a", vec![link("vx0", kind)], "vx0").await;
    assert_eq!(found.kind, Kind::Vxlan(Overlay { vni: 4096, remote: Some(remote), local: None, port: 4789 }));
    // Attributes that can't be changed replace the interface.
    let v6 = |vni| LinkKind::Vxlan {
        vni,
        remote: Some("fd00::7".parse().unwrap()),
        local: None,
        port: Some(8472),
    };
    node.settle_links("a", vec![link("vx0", v6(1))]).await;
    let first = named(&pod, "vx0").await;
    node.first_link().kind = v6(2);
    node.settle().await;
    let second = named(&pod, "vx0").await;
    assert_ne!(first.index, second.index);
    assert!(matches!(second.kind, Kind::Vxlan(Overlay { vni: 2, port: 8472, .. })));
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: makes network namespaces"]
async fn tun_and_tap_are_made_changed_and_deleted() {
    let (mut node, pod) = Node::with_pod().await;
    let device = TunDevice { owner: Some(1000), group: Some(2000) };
    let mut tap = link("tap0", LinkKind::Tap(device.clone()));
    tap.mac = Some("02:00:00:00:00:18".to_owned());
    let found = check_lifecycle(&mut node, &pod, "a", vec![tap], "tap0").await;
    assert_eq!(found.kind, Kind::Tun { tap: true, owner: Some(1000), group: Some(2000) });
    assert_eq!(found.mac, Some([2, 0, 0, 0, 0, 0x18]));
    let mut tun = link("t", LinkKind::Tun(TunDevice::default()));
    tun.name = LinkName::WithPid("tun".to_owned());
    tun.addresses = vec!["192.0.2.2/32".parse().unwrap()];
    let found = check_lifecycle(&mut node, &pod, "a", vec![tun], "t").await;
    assert_eq!(found.name, "tun101");
    assert_eq!(found.kind, Kind::Tun { tap: false, owner: None, group: None });
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: makes network namespaces"]
async fn bridge_ports_carry_exactly_their_vlans() {
    if kernel_lacks(&["vlan"]).await {
        return;
    }
    let mut node = Node::new().await;
    node.add_vlan_bridge().await;
    let access = |vid| PortVlans::Access(VlanId::new(vid).unwrap());
    let (a, b) = (node.run_pod("a", 1).await, node.run_pod("b", 2).await);
    node.want("a", vec![port("net1", "10.7.0.1/24", access(10))]);
    node.want(
        "b",
        vec![
            port("net1", "10.7.0.2/24", access(10)),
            port("net2", "10.6.0.2/24", PortVlans::Trunk(trunk("10-4000"))),
        ],
    );
    let done = node.settle().await;
    assert!(reaches(&a, &b, "10.7.0.2").await);
    let host = node.host.clone();
    let vlans = |name: String| {
        in_namespace(&host, move |netlink: &mut Netlink| {
            let index = netlink.link_named(&name)?.unwrap().index;
            netlink.port_vlans(index)
        })
    };
    let end = applied(&done, "a", "net1").host_name.clone().unwrap();
    let found = vlans(end.clone()).await;
    assert_eq!(
        found.iter().map(|vlan| (vlan.vid, vlan.pvid, vlan.untagged)).collect::<Vec<_>>(),
        [(10, true, true)]
    );
    let found = vlans(applied(&done, "b", "net2").host_name.clone().unwrap()).await;
    assert_eq!(found.len(), 3991);
    assert!(found.iter().all(|vlan| !vlan.pvid && !vlan.untagged));
    // VLANs are changed in place, and an empty trunk carries none.
    let before = named(&a, "net1").await;
    node.settle_links("a", vec![port("net1", "10.7.0.1/24", access(20))]).await;
    assert_eq!(named(&a, "net1").await.index, before.index);
    assert!(!reaches(&a, &b, "10.7.0.2").await);
    node.settle_links("a", vec![port("net1", "10.7.0.1/24", PortVlans::Trunk(trunk("")))]).await;
    assert_eq!(vlans(end).await, []);
}
