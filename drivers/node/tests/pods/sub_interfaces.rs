//! Interfaces of VLANs on an interface that other software makes in a pod, as a CNI plugin that Multus starts does.

use std::time::{Duration, Instant};

use eno_driver_node::netlink::{Kind, Namespace, Netlink, Request};
use eno_schemas::{Carrier, LinkKind, Parent, PodLink, VlanId};
use futures::{Stream, StreamExt as _};
use rtnetlink::packet_route::link::LinkAttribute;

use crate::pods::attacks::{ip, path};
use crate::pods::common::*;

/// The number of VLANs on one pod.
const VLANS: u16 = 200;

fn vlan(parent: &str, vid: u16) -> PodLink {
    let (id, kind) = (format!("{parent}.{vid}"), Parent::Pod(parent.to_owned()));
    let kind = LinkKind::Vlan { parent: kind, vlan: VlanId::new(vid).unwrap() };
    let address = format!("10.{}.{}.2/24", 100 + vid / 250, vid % 250);
    PodLink { addresses: vec![address.parse().unwrap()], ..link(&id, kind) }
}

fn vlans() -> Vec<PodLink> {
    (100..100 + VLANS).map(|vid| vlan("net1", vid)).collect()
}

/// Makes the interface `name` of a pod, whose other end is a port of the bridge, as the plugin `bridge` does.
async fn plug(node: &Node, pod: &Namespace, name: &str, bridge: &str) {
    let (end, pod) = (format!("host-{name}"), path(pod));
    let line =
        format!("link add {end} master {bridge} mtu 1400 type veth peer name {name} mtu 1400 netns {pod}");
    ip(&node.host, &line).await;
    ip(&node.host, &format!("link set {end} up")).await;
}

async fn until(node: &Node, changed: &mut (impl Stream<Item = ()> + Unpin), what: &str, done: bool) {
    let waiting = async {
        while node.reconcile().await.rejected.is_empty() != done {
            changed.next().await;
        }
    };
    tokio::time::timeout(Duration::from_mins(1), waiting).await.expect(what);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: makes network namespaces"]
async fn interfaces_of_vlans_follow_the_one_that_they_are_on() {
    if kernel_lacks(&["vlan"]).await {
        return;
    }
    let (mut node, pod) = Node::with_pod().await;
    node.audit(Duration::from_mins(10));
    node.want("a", vlans());
    let rejected = node.reconcile().await.rejected;
    assert_eq!(rejected.len(), usize::from(VLANS));
    assert!(rejected.iter().all(|one| one.retryable && one.reason.contains("has no interface net1")));
    let mut changed = std::pin::pin!(node.pods.changed());
    plug(&node, &pod, "net1", BRIDGE).await;
    in_namespace(&pod, |netlink| set_up(netlink, "net1")).await;
    let (begun, cpu) = (Instant::now(), cpu_time());
    until(&node, &mut changed, "all VLANs", true).await;
    let (took, cpu) = (begun.elapsed(), cpu_time().saturating_sub(cpu));
    eprintln!(
        "{VLANS} VLANs have addresses {took:?} after their interface is there, with {cpu:?} of CPU time"
    );
    let all = snapshot(&pod).await;
    let parent = all.named("net1").unwrap();
    for vid in 100..100 + VLANS {
        let name = format!("net1.{vid}");
        let found = all.named(&name).unwrap();
        assert_eq!((&found.kind, found.parent), (&Kind::Vlan { vid }, Some(parent.index)));
        assert_eq!((found.mtu, found.up, addresses(&all, &name).len()), (1400, true, 1));
    }
    // An agent that is started again changes nothing, and a single VLAN comes and goes.
    node.restart();
    node.settle().await;
    assert_eq!(stable_snapshot(&pod).await.links.len(), all.links.len());
    let mut wanted = vlans();
    wanted.push(vlan("net1", 3000));
    node.settle_links("a", wanted).await;
    node.settle_links("a", vlans()).await;
    assert!(snapshot(&pod).await.named("net1.3000").is_none());
    // With another name of their interface, and without it, they go. With it they are made again.
    let mut changed = std::pin::pin!(node.pods.changed());
    ip(&pod, "link set net1 down").await;
    ip(&pod, "link set net1 name other").await;
    until(&node, &mut changed, "no VLAN", false).await;
    assert_eq!(ours(&snapshot(&pod).await), Vec::<&str>::new());
    ip(&pod, "link set other name net1").await;
    ip(&pod, "link set net1 up").await;
    until(&node, &mut changed, "all VLANs again", true).await;
    ip(&node.host, "link del host-net1").await;
    until(&node, &mut changed, "no interface", false).await;
    plug(&node, &pod, "net1", BRIDGE).await;
    ip(&pod, "link set net1 up").await;
    until(&node, &mut changed, "all VLANs of the new interface", true).await;
}

/// The CPU time of this process, in ticks of 10 ms (`/proc/self/stat`, fields 14 and 15).
fn cpu_time() -> Duration {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields = text.rsplit_once(") ").unwrap().1.split(' ').skip(11).take(2);
    let ticks = fields.map(|field| field.parse::<u64>().unwrap()).sum::<u64>();
    Duration::from_millis(10 * ticks)
}

fn set_up(netlink: &mut Netlink, name: &str) -> Result<(), eno_driver_node::netlink::NetlinkError> {
    let index = netlink.link_named(name)?.unwrap().index;
    netlink.execute(Request::set(name, index, "MTU", vec![LinkAttribute::Mtu(1400)]))?;
    netlink.execute(Request::set_up(name, index, true))
}

/// Who may patch a pod may name any interface of it.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: makes network namespaces"]
async fn no_vlan_is_made_on_an_interface_that_leads_elsewhere() {
    let (mut node, pod) = Node::with_pod().await;
    node.add_parent().await;
    ip(&node.host, "link add cni0 type bridge").await;
    ip(&node.host, "link add other0 type veth peer name other1").await;
    plug(&node, &pod, "eth0", "cni0").await;
    plug(&node, &pod, "net1", BRIDGE).await;
    let to = path(&pod);
    ip(&node.host, &format!("link add routed type veth peer name net2 netns {to}")).await;
    for (name, lower) in [("net3", "parent0"), ("net4", "other0")] {
        ip(&node.host, &format!("link add link {lower} name {name} netns {to} type macvlan mode bridge"))
            .await;
    }
    ip(&pod, "link add net5 type bridge").await;
    // A pair in the pod whose indexes are those of an end on the host.
    let index = named(&node.host, "host-net1").await.index;
    ip(&pod, &format!("link add net6 type veth peer name net7 index {index}")).await;
    for name in ["eth0", "net1", "net2", "net3", "net4", "net5", "net6"] {
        ip(&pod, &format!("link set {name} up")).await;
    }
    let bridge = Carrier::Bridge(BRIDGE.to_owned());
    let ovs = Carrier::Ovs("br-ovs".to_owned());
    let master = Carrier::Master("parent0".to_owned());
    for (carrier, fits) in [
        (&bridge, &["net1"][..]),
        // A port of Open vSwitch in user space has no master, as an end that the host routes to.
        (&ovs, &["net2"]),
        (&master, &["net3"]),
        (&Carrier::Device, &["net5", "net6"]),
        (&Carrier::Bridge("absent".to_owned()), &[]),
    ] {
        for parent in ["eth0", "net1", "net2", "net3", "net4", "net5", "net6"] {
            let wanted = PodLink { parent_leads_to: Some(carrier.clone()), ..vlan(parent, 100) };
            node.want("a", vec![wanted]);
            let rejected = node.reconcile().await.rejected;
            let elsewhere = rejected.iter().any(|one| one.reason.contains("does not lead to"));
            // A kernel without VLANs refuses the others.
            assert_eq!(!elsewhere, fits.contains(&parent), "{parent} {carrier:?}: {rejected:?}");
            if elsewhere {
                assert!(snapshot(&pod).await.named(&format!("{parent}.100")).is_none());
            }
        }
    }
}

/// The parent comes after the desired state: nobody has to ask again.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: makes network namespaces"]
async fn interface_that_comes_later_is_noticed() {
    let (mut node, pod) = Node::with_pod().await;
    node.audit(Duration::from_mins(10));
    node.want("a", vec![vlan("net1", 100)]);
    assert!(node.reconcile().await.rejected[0].reason.contains("has no interface net1"));
    let mut changed = std::pin::pin!(node.pods.changed());
    plug(&node, &pod, "net1", BRIDGE).await;
    ip(&pod, "link set net1 up").await;
    let noticed = async {
        while node.reconcile().await.rejected.iter().any(|one| one.reason.contains("has no interface")) {
            changed.next().await;
        }
    };
    tokio::time::timeout(Duration::from_mins(1), noticed).await.expect("a notification");
}
