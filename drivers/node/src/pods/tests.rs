//! Convergence of a pod when the agent is stopped after any step and started again without its cache.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use eno_schemas::{
    HostNetwork, LinkKind, LinkName, Master, NodeDesired, NodePod, OvsDatapath, PodLink, PodRoute, PodRule,
    PrimaryLink, TunDevice,
};
use rtnetlink::packet_route::link::{InfoKind, LinkAttribute, LinkInfo, LinkMessage};

use super::host::{Host, HostView};
use super::plan::{DesiredPod, Observed, Step};
use super::session::{Kernel, Outcome, PodError, ReadScope, Sockets, converge};
use crate::netlink::{Namespace, Netlink, Request, Snapshot};

const CLUSTER: &str = "t1";

/// A kernel that fails after a number of steps, as for an agent that is killed.
struct InterruptedKernel<K> {
    inner: K,
    left: usize,
}

impl<'a, K: Kernel<'a>> Kernel<'a> for InterruptedKernel<K> {
    fn read(&mut self, pod_desired: &DesiredPod<'_>, at: ReadScope) -> Result<Observed<'a>, PodError> {
        if self.left == 0 { Err(killed()) } else { self.inner.read(pod_desired, at) }
    }

    fn apply(&mut self, steps: &[Step]) -> Vec<Result<(), PodError>> {
        let done = steps.len().min(self.left);
        self.left -= done;
        let mut results = self.inner.apply(&steps[..done]);
        results.resize_with(steps.len(), || Err(killed()));
        results
    }
}

fn killed() -> PodError {
    PodError::Tun { name: String::new(), message: "killed".to_owned() }
}

struct TestNode {
    host: Namespace,
    pod: Namespace,
    desired: NodeDesired,
}

impl TestNode {
    async fn new() -> Self {
        let (host, pod) = (Namespace::create().unwrap(), Namespace::create().unwrap());
        bridge(&host, "br0").await;
        bridge(&pod, "eth0").await;
        let network = HostNetwork::PodBridge { addresses: Vec::new(), mtu: None };
        let desired = NodeDesired {
            cluster: CLUSTER.to_owned(),
            networks: BTreeMap::from([("br0".to_owned(), network)]),
            ..NodeDesired::default()
        };
        Self { host, pod, desired }
    }

    /// Runs the agent on the pod; it is killed after `steps`.
    async fn run_agent(&self, pod_desired: &NodePod, steps: usize) -> Result<Outcome, PodError> {
        let (pod, desired, pod_desired) = (self.pod.clone(), self.desired.clone(), pod_desired.clone());
        let runtime = tokio::runtime::Handle::current();
        let run = move || {
            let found = Netlink::open()?.snapshot()?;
            let links = Arc::new(found.links.iter().cloned().collect());
            let host = Host::new(links, &found, &desired, &BTreeSet::new(), OvsDatapath::System);
            let options = super::Options {
                host: Namespace::current()?,
                allowed_masters: BTreeSet::new(),
                ovs_datapath: OvsDatapath::System,
                proc_sys_net: "/proc/sys/net".into(),
                audit: std::time::Duration::ZERO,
                namespaces: PathBuf::new(),
            };
            let view = HostView::new(&host);
            let inner = Sockets::open(Netlink::open()?, pod, view, &options, runtime, None, false)?;
            let pod_desired = DesiredPod {
                cluster: CLUSTER,
                uid: "0-1",
                pid: Some(42),
                pod: &pod_desired,
                open_ports: &BTreeSet::new(),
                granted: &BTreeSet::new(),
            };
            converge(&mut InterruptedKernel { inner, left: steps }, &pod_desired)
        };
        self.host.run(run).await.unwrap()
    }

    /// The state of both namespaces, without indexes and other values that depend on the order of changes.
    async fn state(&self) -> BTreeSet<String> {
        let read = || Netlink::open().unwrap().snapshot().unwrap();
        let (host, pod): (Snapshot, Snapshot) =
            (self.host.run(read).await.unwrap(), self.pod.run(read).await.unwrap());
        let mut state = BTreeSet::new();
        for (place, all) in [("host", &host), ("pod", &pod)] {
            let name =
                |index: Option<u32>| index.and_then(|index| all.link(index)).map(|link| link.name.clone());
            for link in &all.links {
                let master = name(link.master);
                // MAC addresses are random.
                let known = |name: &String| name.split_inclusive(".was.mac.").next().map(str::to_owned);
                let names: Vec<String> = link.altnames.iter().filter_map(known).collect();
                let kind = &link.kind;
                state.insert(format!(
                    "{place} {} {kind:?} {master:?} {} {} {names:?} {:?} {}",
                    link.name, link.mtu, link.up, link.alias, link.group
                ));
            }
            for address in all.addresses.iter().filter(|address| !address.net.to_string().starts_with("fe80"))
            {
                state.insert(format!("{place} {:?} {}", name(Some(address.index)), address.net));
            }
            for route in all.routes.iter().filter(|route| route.protocol == crate::netlink::PROTOCOL) {
                state.insert(format!("{place} {:?} {} {:?}", name(route.index), route.prefix, route.gateway));
            }
            state.extend(
                all.rules
                    .iter()
                    .filter(|rule| rule.protocol == crate::netlink::PROTOCOL)
                    .map(|rule| format!("{place} {rule:?}")),
            );
        }
        state
    }
}

async fn bridge(namespace: &Namespace, name: &'static str) {
    let make = move || {
        let mut message = LinkMessage::default();
        message.attributes.push(LinkAttribute::IfName(name.to_owned()));
        message.attributes.push(LinkAttribute::Group(crate::host::ownership::group(CLUSTER)));
        message.attributes.push(LinkAttribute::LinkInfo(vec![LinkInfo::Kind(InfoKind::Bridge)]));
        let mut netlink = Netlink::open().unwrap();
        netlink.execute(Request::add_link(name, message)).unwrap();
        let index = netlink.link_named(name).unwrap().unwrap().index;
        netlink.execute(Request::set_up(name, index, true)).unwrap();
    };
    namespace.run(make).await.unwrap();
}

fn link(id: &str, kind: LinkKind) -> PodLink {
    PodLink {
        id: id.to_owned(),
        revision: "1".to_owned(),
        name: LinkName::WithPid(id.to_owned()),
        kind,
        member_of: None,
        mtu: Some(1400),
        mac: None,
        alias: Some("user's".to_owned()),
        addresses: Vec::new(),
        routes: Vec::new(),
        rules: Vec::new(),
        sysctls: BTreeMap::new(),
        up: true,
        anti_spoof: false,
        parent_leads_to: None,
    }
}

/// A pod with nearly every setting.
fn full_pod() -> NodePod {
    let mut pair = link(
        "net",
        LinkKind::Veth { master: Some(Master::Bridge { bridge: "br0".to_owned(), vlans: None }) },
    );
    pair.addresses = vec!["10.9.0.2/24".parse().unwrap(), "fd00:9::2/64".parse().unwrap()];
    pair.routes = vec![PodRoute {
        prefix: "0.0.0.0/0".parse().unwrap(),
        next_hop: Some("10.9.0.1".parse().unwrap()),
        table: Some(100),
        metric: None,
        source: None,
    }];
    pair.rules =
        vec![PodRule { table: 100, priority: 9, from: Some("10.9.0.2/32".parse().unwrap()), to: None }];
    pair.sysctls = [("ipv4/conf/rp_filter".to_owned(), "2".to_owned())].into();
    pair.mac = Some("02:00:00:00:00:05".to_owned());
    let mut member = link(
        "vx",
        LinkKind::Vxlan { vni: 5, remote: Some("10.9.0.9".parse().unwrap()), local: None, port: None },
    );
    member.member_of = Some("br".to_owned());
    let tap = link("tap", LinkKind::Tap(TunDevice::default()));
    let mut bridge = link("br", LinkKind::Bridge {});
    bridge.addresses = vec!["10.8.0.1/24".parse().unwrap()];
    NodePod {
        namespace: "default".to_owned(),
        name: "a".to_owned(),
        container: "containerd://1".to_owned(),
        links: vec![bridge, pair, member, tap],
        primary: Some(PrimaryLink {
            id: "p".to_owned(),
            revision: "1".to_owned(),
            name: "eth0".to_owned(),
            mtu: 1300,
        }),
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: makes network namespaces"]
async fn pod_converges_after_kill_at_any_step() {
    let (all, empty_pod) = (full_pod(), super::empty_pod());
    let node = TestNode::new().await;
    let empty = node.state().await;
    let outcome = node.run_agent(&all, usize::MAX).await.unwrap();
    assert_eq!((outcome.refused.len(), outcome.pod), (0, None));
    assert_eq!(outcome.applied.len(), 5);
    let full = node.state().await;
    let steps = outcome.steps;
    assert!(steps > 25, "{steps}");
    assert_eq!(node.run_agent(&all, 1).await.unwrap().steps, 0, "what is done is done");
    let undoing = node.run_agent(&empty_pod, usize::MAX).await.unwrap().steps;
    assert_eq!(node.state().await, empty);
    for killed_after in 1..=steps {
        for then in [&all, &empty_pod] {
            let node = TestNode::new().await;
            assert!(node.run_agent(&all, killed_after).await.is_err());
            let outcome = node.run_agent(then, usize::MAX).await.unwrap();
            assert_eq!((outcome.refused.len(), outcome.pod), (0, None), "killed after {killed_after}");
            let expected = if then.links.is_empty() { &empty } else { &full };
            assert_eq!(node.state().await, *expected, "killed after {killed_after}");
        }
    }
    for killed_after in 1..=undoing {
        for then in [&all, &empty_pod] {
            let node = TestNode::new().await;
            node.run_agent(&all, usize::MAX).await.unwrap();
            assert!(node.run_agent(&empty_pod, killed_after).await.is_err());
            node.run_agent(then, usize::MAX).await.unwrap();
            let expected = if then.links.is_empty() { &empty } else { &full };
            assert_eq!(node.state().await, *expected, "killed while undoing after {killed_after}");
        }
    }
}
