//! Settings that are not desired any more are restored to their original values, also by a restarted agent.

use std::collections::{BTreeMap, BTreeSet};

use eno_driver_node::netlink::{Namespace, Netlink, Request};
use eno_schemas::{HostNetwork, LinkKind, LinkName, Master, PodLink, PodRule, TunDevice, safe_sysctls};

use crate::pods::common::*;

const OTHER_BRIDGE: &str = "br-other";

type Change = Box<dyn Fn(&mut PodLink)>;

/// A setting of an interface.
struct Setting {
    what: &'static str,
    set: Change,
    /// Sets another value; `None`: there is no other value.
    change: Option<Change>,
    /// True when only veth pairs have the setting.
    veth_only: bool,
}

fn setting(
    what: &'static str,
    set: impl Fn(&mut PodLink) + 'static,
    change: impl Fn(&mut PodLink) + 'static,
) -> Setting {
    Setting { what, set: Box::new(set), change: Some(Box::new(change)), veth_only: false }
}

fn sysctl(what: &'static str, key: &'static str, [first, second]: [&'static str; 2]) -> Setting {
    setting(what, move |link| sysctl_of(link, key, first), move |link| sysctl_of(link, key, second))
}

fn of_pairs(setting: Setting) -> Setting {
    Setting { veth_only: true, ..setting }
}

fn settings() -> Vec<Setting> {
    vec![
        setting("alias", |link| link.alias = Some("blue".into()), |link| link.alias = Some("red".into())),
        setting(
            "MAC address",
            |link| link.mac = Some("02:00:00:00:00:01".into()),
            |link| link.mac = Some("02:00:00:00:00:02".into()),
        ),
        setting("MTU", |link| link.mtu = Some(1400), |link| link.mtu = Some(1300)),
        sysctl("sysctl of IPv4", "ipv4/conf/arp_announce", ["1", "2"]),
        sysctl("sysctl of IPv6", "ipv6/conf/hop_limit", ["77", "78"]),
        sysctl("sysctl of neighbours", "ipv4/neigh/gc_stale_time", ["77", "78"]),
        setting(
            "several sysctls",
            |link| {
                sysctl_of(link, "ipv4/conf/rp_filter", "1");
                sysctl_of(link, "ipv4/conf/arp_ignore", "1");
                sysctl_of(link, "ipv6/neigh/mcast_solicit", "4");
            },
            |link| sysctl_of(link, "ipv4/conf/rp_filter", "2"),
        ),
        setting("address", |link| address(link, "10.9.0.9/24"), |link| address(link, "10.8.0.9/16")),
        setting("IPv6 address", |link| address(link, "fd00:9::9/64"), |link| address(link, "fd00:8::9/64")),
        setting(
            "route",
            |link| link.routes.push(route("10.50.0.0/16", Some("10.9.0.1"), None)),
            |link| link.routes.push(route("10.50.0.0/16", Some("10.9.0.7"), None)),
        ),
        setting(
            "route of a table",
            |link| link.routes.push(route("0.0.0.0/0", Some("10.9.0.1"), Some(100))),
            |link| link.routes.push(route("10.51.0.0/16", None, Some(101))),
        ),
        setting("rule", |link| rule(link, 1000), |link| rule(link, 1001)),
        setting(
            "name",
            |link| link.name = LinkName::Fixed("data".into()),
            |link| link.name = LinkName::Fixed("other".into()),
        ),
        Setting { what: "down", set: Box::new(|link| link.up = false), change: None, veth_only: false },
        of_pairs(setting(
            "master",
            |link| link.kind = LinkKind::Veth { master: None },
            |link| {
                let master = Master::Bridge { bridge: OTHER_BRIDGE.into(), vlans: None };
                link.kind = LinkKind::Veth { master: Some(master) };
            },
        )),
        of_pairs(setting(
            "membership",
            |link| link.member_of = Some("br0".into()),
            |link| link.member_of = Some("br1".into()),
        )),
    ]
}

fn sysctl_of(link: &mut PodLink, key: &str, value: &str) {
    link.sysctls.insert(key.into(), value.into());
}

fn address(link: &mut PodLink, net: &str) {
    link.addresses.push(net.parse().unwrap());
}

fn rule(link: &mut PodLink, priority: u32) {
    link.rules.push(PodRule { table: 100, priority, from: None, to: None });
}

fn kinds() -> Vec<PodLink> {
    let addressed = |kind| PodLink { addresses: vec!["10.9.0.2/24".parse().unwrap()], ..link("net1", kind) };
    let remote = Some("192.0.2.9".parse().unwrap());
    vec![
        bridged("net1", "10.9.0.2/24"),
        addressed(LinkKind::Macvlan { master: "parent0".into() }),
        addressed(LinkKind::Vxlan { vni: 5, remote, local: None, port: None }),
        addressed(LinkKind::Bridge {}),
        addressed(LinkKind::Tap(TunDevice::default())),
    ]
}

/// The state of all settings, without indexes.
#[derive(Debug, PartialEq)]
struct Observed {
    /// The link attributes.
    link: String,
    /// The MAC address.
    mac: Option<[u8; 6]>,
    /// The addresses with their prefix lengths.
    addresses: BTreeSet<String>,
    /// The routes of all tables.
    routes: BTreeSet<String>,
    /// The policy rules.
    rules: BTreeSet<String>,
    /// The interface sysctls, by name.
    sysctls: BTreeMap<String, String>,
    /// The attributes of the host end of a veth pair.
    end: Option<String>,
}

struct TestNode {
    node: Node,
    pod: Namespace,
}

impl TestNode {
    async fn new() -> Self {
        let mut node = Node::new().await;
        node.add_parent().await;
        let add = |netlink: &mut Netlink| {
            netlink.execute(Request::add_link(OTHER_BRIDGE, made(OTHER_BRIDGE, "bridge")))
        };
        node.on_host(add).await;
        let network = HostNetwork::PodBridge { addresses: Vec::new(), mtu: None };
        node.desired.networks.insert(OTHER_BRIDGE.into(), network);
        let pod = node.run_pod("a", 101).await;
        // IPv6 is disabled by default, so that only interfaces with a desired IPv6 address have it.
        let write = || std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1").unwrap();
        pod.run(write).await.unwrap();
        Self { node, pod }
    }

    /// Reconciles these links by a restarted agent.
    async fn reconcile_links(&mut self, links: Vec<PodLink>) {
        let bridges = ["br0", "br1"].map(|id| link(id, LinkKind::Bridge {}));
        self.node.restart();
        self.node.want("a", bridges.into_iter().chain(links).collect());
        self.node.settle().await;
    }

    /// Changes a sysctl that is not desired, as a foreign process would.
    async fn change_by_hand(&self) {
        let write = || std::fs::write("/proc/sys/net/ipv4/conf/net1/log_martians", "1").unwrap();
        self.pod.run(write).await.unwrap();
    }

    async fn observe(&self) -> Observed {
        let done = self.node.settle().await;
        let reported = applied(&done, "a", "net1");
        let all = snapshot(&self.pod).await;
        let link = all.named(&reported.name).unwrap();
        let name = |index: Option<u32>| index.and_then(|index| all.link(index)).map(|link| &link.name);
        let routes = all.routes.iter().filter(|route| route.index == Some(link.index));
        let routes = routes.filter(|route| route.prefix.addr().is_ipv4());
        let sysctls = self.sysctls(&link.name).await;
        let end = match reported.host_name.clone() {
            Some(name) => {
                let host = snapshot(&self.node.host).await;
                let end = host.named(&name).unwrap();
                let master = end.master.and_then(|index| host.link(index)).map(|link| &link.name);
                Some(format!("{} {} {} {master:?} {:?} {}", end.name, end.mtu, end.up, end.alias, end.group))
            }
            None => None,
        };
        Observed {
            link: format!(
                "{} {:?} {} {} {:?} {:?} {} {:?}",
                link.name,
                link.kind,
                link.mtu,
                link.up,
                link.alias,
                link.altnames,
                link.group,
                name(link.master)
            ),
            mac: link.mac,
            addresses: addresses(&all, &link.name),
            routes: routes
                .map(|route| {
                    let (via, source) = (route.gateway, route.source);
                    format!("{} {via:?} {source:?} {} {}", route.prefix, route.table, route.protocol)
                })
                .collect(),
            rules: all.rules.iter().map(|rule| format!("{rule:?}")).collect(),
            sysctls,
            end,
        }
    }

    /// The values of all safe sysctls but those that ENO sets for announcements.
    async fn sysctls(&self, interface: &str) -> BTreeMap<String, String> {
        let interface = interface.to_owned();
        let read = move || {
            let mut found = BTreeMap::new();
            for (family, group) in [("ipv4", "conf"), ("ipv4", "neigh"), ("ipv6", "conf"), ("ipv6", "neigh")]
            {
                for key in safe_sysctls(family, group).unwrap_or_default() {
                    let path = format!("/proc/sys/net/{family}/{group}/{interface}/{key}");
                    if let Ok(value) = std::fs::read_to_string(path)
                        && !key.ends_with("_notify")
                    {
                        found.insert(format!("{family}/{group}/{key}"), value);
                    }
                }
            }
            found
        };
        self.pod.run(read).await.unwrap()
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: makes network namespaces"]
async fn settings_no_longer_desired_are_restored() {
    for plain in kinds() {
        let mut node = TestNode::new().await;
        node.reconcile_links(vec![plain.clone()]).await;
        node.change_by_hand().await;
        let mut before = node.observe().await;
        let is_pair = matches!(plain.kind, LinkKind::Veth { .. });
        for setting in settings().into_iter().filter(|setting| is_pair || !setting.veth_only) {
            let case = format!("{} of {:?}", setting.what, plain.kind);
            let with = |change: &dyn Fn(&mut PodLink)| {
                let mut link = plain.clone();
                change(&mut link);
                link
            };
            node.reconcile_links(vec![with(&setting.set)]).await;
            let first = node.observe().await;
            assert_ne!(first, before, "{case}: not set");
            if let Some(change) = setting.change {
                node.reconcile_links(vec![with(&change)]).await;
                let second = node.observe().await;
                assert!(second != first && second != before, "{case}: not changed");
            }
            node.reconcile_links(vec![plain.clone()]).await;
            assert_eq!(node.observe().await, before, "{case}: not as it was");
            // The same for an interface that was made with the setting.
            node.reconcile_links(Vec::new()).await;
            node.reconcile_links(vec![with(&setting.set)]).await;
            node.reconcile_links(vec![plain.clone()]).await;
            node.change_by_hand().await;
            let after = node.observe().await;
            assert_ne!(after.mac, Some([2, 0, 0, 0, 0, 1]), "{case}");
            // Each interface has another random MAC address.
            before.mac = after.mac;
            assert_eq!(after, before, "{case}: not as others are");
        }
    }
}
