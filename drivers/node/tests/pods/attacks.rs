//! Pods with NET_ADMIN in their own network namespace, which make, move, rename and mark interfaces there and in nested
//! namespaces. Nothing outside of the pod changes.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Stdio};

use eno_driver_node::netlink::{Kind, Link, Namespace, Netlink, PROTOCOL, Snapshot};
use eno_driver_node::pods::ownership;
use eno_driver_node::pods::ownership::GROUP;
use eno_schemas::{Item, LinkKind, PodLink};
use proptest::prelude::*;

use crate::pods::common::*;

/// Runs `ip` in a namespace. True: it succeeded.
pub async fn try_ip(namespace: &Namespace, line: &str) -> bool {
    let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
    let run = move || Command::new("ip").args(words).output().expect("ip");
    namespace.run(run).await.unwrap().status.success()
}

pub async fn ip(namespace: &Namespace, line: &str) {
    assert!(try_ip(namespace, line).await, "ip {line}");
}

/// A name of a namespace for `ip`, which this process holds open.
pub fn path(namespace: &Namespace) -> String {
    format!("/proc/{}/fd/{}", std::process::id(), namespace.fd())
}

/// The mark of a pod's interface.
fn mark(uid: &str, id: &str) -> String {
    ownership::altname(CLUSTER, uid, id)
}

/// An interface that shares one of the host: of the kind `macvlan` or `ipvlan`.
fn shared(kind: &str, address: &str) -> PodLink {
    let master = "parent0".to_owned();
    let kind = if kind == "macvlan" { LinkKind::Macvlan { master } } else { LinkKind::Ipvlan { master } };
    PodLink { addresses: vec![address.parse().unwrap()], ..link("net1", kind) }
}

/// A node with a bridge of the primary CNI, `cni0`, and two pods whose `eth0` are its ports: `a`, which attacks, and `v`.
/// Both get `net1` of ENO. Besides, `a` has the namespace `nested` in it.
struct Attacked {
    node: Node,
    a: Namespace,
    v: Namespace,
    nested: Namespace,
    /// Keeps the user namespace of `a`, if it has one.
    _user: Option<User>,
}

/// Whether a pod has a user namespace of its own (`hostUsers: false`).
#[derive(Clone, Copy, Debug, PartialEq)]
enum Users {
    Host,
    Own,
}

/// A process in a user namespace with a network namespace of its own. It ends with this.
struct User(std::process::Child);

impl User {
    fn new() -> (Self, Namespace) {
        let words = ["--user", "--map-root-user", "--net", "sh", "-c", "echo made; read end"];
        let mut unshare = Command::new("unshare");
        let mut child =
            unshare.args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("unshare");
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let namespace = Namespace::open(format!("/proc/{}/ns/net", child.id()).as_ref()).unwrap();
        (Self(child), namespace)
    }
}

impl Drop for User {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

impl Attacked {
    async fn new(users: Users, link: impl Fn(&str) -> PodLink) -> Self {
        let mut node = Node::new().await;
        node.add_parent().await;
        ip(&node.host, "link set veth0 up").await;
        ip(&node.host, "link add cni0 type bridge").await;
        let (mut a, v) = (node.run_pod("a", 101).await, node.run_pod("v", 102).await);
        let mut user = None;
        if users == Users::Own {
            let (process, namespace) = User::new();
            ip(&namespace, "link set lo up").await;
            node.set_sandbox("a", namespace.clone(), Some(101));
            (user, a) = (Some(process), namespace);
        }
        for (uid, pod) in [("a", &a), ("v", &v)] {
            let line =
                format!("link add cali-{uid} master cni0 type veth peer name eth0 netns {}", path(pod));
            ip(&node.host, &line).await;
            ip(&node.host, &format!("link set cali-{uid} up")).await;
        }
        node.want("a", vec![link("10.9.0.2/24")]);
        node.want("v", vec![link("10.9.0.3/24")]);
        node.settle().await;
        Self { node, a, v, nested: Namespace::create().unwrap(), _user: user }
    }

    /// What the attacker must not change: interfaces of the host other than its own, and the other pod.
    async fn outside(&self) -> (Vec<Link>, Snapshot) {
        let mut host = stable_snapshot(&self.node.host).await.links;
        host.retain(|link| {
            let owner = link.alias.as_deref().and_then(|alias| ownership::read_alias(CLUSTER, alias));
            owner.is_none_or(|(uid, _)| uid != "a") && link.name != "cali-a"
        });
        // The kernel gives a bridge the lowest MAC address of its ports.
        for link in host.iter_mut().filter(|link| matches!(link.kind, Kind::Bridge { .. })) {
            link.mac = None;
        }
        (host, stable_snapshot(&self.v).await)
    }

    /// Reconciles, also after a restart of the agent, without the pod's links and with them again. Nothing outside of the
    /// attacking pod differs.
    async fn assert_nothing_outside_changes(&mut self, what: &str) {
        let before = self.outside().await;
        let links = self.node.desired.pods["a"].links.clone();
        for wanted in [links.clone(), Vec::new(), links] {
            self.node.desired.pods.get_mut("a").unwrap().links = wanted;
            for _ in 0..2 {
                self.node.reconcile().await;
                let (host, pod) = self.outside().await;
                let changed: Vec<_> = host.iter().filter(|link| !before.0.contains(link)).collect();
                assert!(changed.is_empty() && host.len() == before.0.len(), "{what}: {changed:#?}");
                assert!(pod == before.1, "{what}: {pod:#?}");
                self.node.restart();
            }
        }
    }

    /// Makes a veth pair in the pod whose indexes are those of `net1` and of an interface of the host, moves its other end
    /// to the nested namespace, and gives it the mark of `net1`.
    async fn forge_pair(&self, host_index: u32, own: u32) {
        ip(&self.a, &format!("link add fk index {own} type veth peer name p index {host_index}")).await;
        ip(&self.a, &format!("link set p netns {}", path(&self.nested))).await;
        ip(&self.a, &format!("link set fk group {GROUP}")).await;
        ip(&self.a, &format!("link property add dev fk altname {}", mark("a", "net1"))).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: makes network namespaces"]
async fn pod_that_forges_the_index_of_a_peer_takes_over_no_interface_of_the_host() {
    for (users, is_routed) in [(Users::Host, false), (Users::Host, true), (Users::Own, false)] {
        forge_the_index_of_a_peer(users, is_routed).await;
    }
}

/// `is_routed`: the primary CNI routes to its ends, as Calico and Cilium do; otherwise they are ports of `cni0`.
async fn forge_the_index_of_a_peer(users: Users, is_routed: bool) {
    let mut all = Attacked::new(users, |address| bridged("net1", address)).await;
    if is_routed {
        ip(&all.node.host, "link set cali-v nomaster").await;
    }
    let end = named(&all.v, "eth0").await.parent.unwrap();
    // The index that the host's end of the other pod's interface names.
    let index_there = named(&all.node.host, "cali-v").await.parent.unwrap();
    for name in ["cali-v", "cni0", "parent0"] {
        let host_index = named(&all.node.host, name).await.index;
        ip(&all.a, "link del net1").await;
        let own = if name == "cali-v" { index_there + 40 } else { 50 };
        all.forge_pair(host_index, own).await;
        all.assert_nothing_outside_changes(name).await;
        // The pod has its interface again, on the host.
        let found = all.node.settle().await;
        assert_eq!(all.node.host_end(&found, "a").await.alias, Some(ownership::alias(CLUSTER, "a", "net1")));
    }
    // The index of its own interface is what the other's end names as its peer.
    ip(&all.a, "link del net1").await;
    ip(&all.a, "link del eth0").await;
    all.forge_pair(end, index_there).await;
    all.assert_nothing_outside_changes("both indexes").await;
    all.node.settle().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: makes network namespaces"]
async fn pod_that_forges_the_index_of_a_parent_gets_its_interface_on_the_host_again() {
    for kind in ["macvlan", "ipvlan"] {
        if kernel_lacks(&[kind]).await {
            continue;
        }
        let mut all = Attacked::new(Users::Host, |address| shared(kind, address)).await;
        let parent = named(&all.node.host, "parent0").await.index;
        let mode = if kind == "macvlan" { "bridge" } else { "l2" };
        ip(&all.nested, &format!("link add p index {parent} type veth peer name pp")).await;
        ip(&all.a, "link del net1").await;
        let made = format!("link add fk link p netns {} type {kind} mode {mode}", path(&all.a));
        ip(&all.nested, &made).await;
        ip(&all.a, &format!("link set fk group {GROUP}")).await;
        ip(&all.a, &format!("link property add dev fk altname {}", mark("a", "net1"))).await;
        all.assert_nothing_outside_changes(kind).await;
        all.node.settle().await;
        assert!(reaches(&all.a, &all.v, "10.9.0.3").await, "{kind}");
    }
}

/// The names of the interfaces in a namespace that share one of the host.
async fn on_parent(namespace: &Namespace) -> Vec<String> {
    let links = stable_snapshot(namespace).await.links;
    let shares = |link: &Link| matches!(link.kind, Kind::Macvlan { .. } | Kind::Ipvlan { .. });
    let mut names: Vec<String> = links.into_iter().filter(shares).map(|link| link.name).collect();
    names.sort();
    names
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: makes network namespaces"]
async fn interfaces_that_a_pod_made_on_that_of_eno_end_with_it() {
    let (host, own) = (Users::Host, Users::Own);
    for (kind, users, deletes_first) in
        [("macvlan", host, false), ("macvlan", host, true), ("macvlan", own, false), ("ipvlan", host, false)]
    {
        if kernel_lacks(&[kind]).await {
            continue;
        }
        let mut all = Attacked::new(users, |address| shared(kind, address)).await;
        // Another pod, which a third party connects to this one, is no nested namespace.
        std::os::unix::fs::symlink(path(&all.v), all.node.folder.path().join("v")).unwrap();
        ip(&all.a, &format!("link add to-v type veth peer name to-a netns {}", path(&all.v))).await;
        let derived = format!("link add own link net1 type {kind}");
        ip(&all.a, &derived).await;
        ip(&all.a, &format!("link set own netns {}", path(&all.nested))).await;
        ip(&all.a, &derived).await;
        all.node.settle().await;
        assert_eq!(on_parent(&all.a).await, ["net1", "own"], "{kind}");
        if deletes_first {
            ip(&all.a, "link del net1").await;
        } else {
            ip(&all.a, &format!("link set net1 netns {}", path(&all.nested))).await;
        }
        all.node.desired.pods.remove("a");
        all.node.settle().await;
        assert_eq!(on_parent(&all.a).await, [""; 0], "{kind}");
        assert_eq!(on_parent(&all.nested).await, [""; 0], "{kind}");
        assert_eq!(on_parent(&all.v).await, ["net1"], "{kind}");
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: makes network namespaces"]
async fn interface_of_another_hand_on_the_same_parent_is_kept() {
    let (mut node, pod) = Node::with_pod().await;
    node.add_parent().await;
    ip(&node.host, &format!("link add mv0 link parent0 netns {} type macvlan", path(&pod))).await;
    node.want("a", vec![shared("macvlan", "10.9.0.2/24")]);
    let rejected = node.reconcile().await.rejected;
    assert!(rejected[0].reason.contains("the pod's interface mv0 is on the same interface"), "{rejected:?}");
    node.desired.pods.remove("a");
    node.settle().await;
    assert_eq!(on_parent(&pod).await, ["mv0"]);
}

/// What a pod does with its interfaces.
#[derive(Clone, Debug)]
enum Act {
    /// Makes a veth pair with chosen indexes; the other end is moved.
    Pair { own: Index, peer: Index },
    /// Makes an interface of another kind, on the interface with that index where it needs one.
    Make(&'static str, Index),
    /// Changes an interface, by its place in the list.
    Change(usize, &'static str),
    /// Marks an interface as that of a link of a pod.
    Mark(usize, &'static str),
    /// Moves an interface to the nested namespace, or back.
    Move(usize, bool),
}

/// An index that the pod chooses: that of an interface elsewhere, by its place there.
#[derive(Clone, Copy, Debug)]
enum Index {
    Host(usize),
    Pod(usize),
    NamedByHost(usize),
}

fn index() -> impl Strategy<Value = Index> {
    (0..3_u8, 0..12_usize).prop_map(|(place, at)| match place {
        0 => Index::Host(at),
        1 => Index::Pod(at),
        _ => Index::NamedByHost(at),
    })
}

fn act() -> impl Strategy<Value = Act> {
    let change = prop::sample::select(vec![
        "group 6647407",
        "group 6647408",
        "group 0",
        "alias eno:t1:v:net1",
        "alias eno:t1:a:net1",
        "name net1",
        "name eth9",
        "mtu 1200",
        "up",
        "down",
        "address 02:00:00:00:00:07",
    ]);
    let kind = prop::sample::select(vec!["veth", "bridge", "macvlan", "ipvlan", "vlan"]);
    let uid = prop::sample::select(vec!["a", "v"]);
    prop_oneof![
        3 => (index(), index()).prop_map(|(own, peer)| Act::Pair { own, peer }),
        1 => (kind, index()).prop_map(|(kind, index)| Act::Make(kind, index)),
        3 => (0..8_usize, change).prop_map(|(at, change)| Act::Change(at, change)),
        3 => (0..8_usize, uid).prop_map(|(at, uid)| Act::Mark(at, uid)),
        1 => (0..8_usize, any::<bool>()).prop_map(|(at, back)| Act::Move(at, back)),
    ]
}

impl Attacked {
    async fn index(&self, index: Index) -> u32 {
        let host = snapshot(&self.node.host).await.links;
        let pod = snapshot(&self.a).await.links;
        let indexes: Vec<u32> = match index {
            Index::Host(_) => host.iter().map(|link| link.index).collect(),
            Index::Pod(_) => pod.iter().map(|link| link.index).collect(),
            Index::NamedByHost(_) => host.iter().filter_map(|link| link.parent).collect(),
        };
        let (Index::Host(at) | Index::Pod(at) | Index::NamedByHost(at)) = index;
        indexes[at % indexes.len()]
    }

    /// Does it as far as the kernel lets it.
    async fn act(&self, act: &Act, at: usize) {
        let pod = snapshot(&self.a).await.links;
        let nth = |at: usize| pod[at % pod.len()].name.clone();
        match act {
            Act::Pair { own, peer } => {
                let (own, peer) = (self.index(*own).await, self.index(*peer).await);
                // It takes the place of an interface that has that index.
                if let Some(taken) = pod.iter().find(|link| link.index == own) {
                    try_ip(&self.a, &format!("link del {}", taken.name)).await;
                }
                let nested = path(&self.nested);
                let line = format!(
                    "link add f{at} index {own} type veth peer name q{at} index {peer} netns {nested}"
                );
                try_ip(&self.a, &line).await;
            }
            Act::Make(kind, index) => {
                let index = self.index(*index).await;
                let id = if *kind == "vlan" { "id 7" } else { "" };
                match *kind {
                    "veth" | "bridge" => {
                        try_ip(&self.nested, &format!("link add d{at} index {index} type {kind}")).await;
                    }
                    _ => {
                        let nested = snapshot(&self.nested).await.links;
                        let Some(lower) = nested.last() else { return };
                        let line = format!(
                            "link add m{at} link {} netns {} type {kind} {id}",
                            lower.name,
                            path(&self.a)
                        );
                        try_ip(&self.nested, &line).await;
                    }
                }
            }
            Act::Change(which, change) => {
                try_ip(&self.a, &format!("link set {} {change}", nth(*which))).await;
            }
            Act::Mark(which, uid) => {
                for link in &pod {
                    try_ip(
                        &self.a,
                        &format!("link property del dev {} altname {}", link.name, mark(uid, "net1")),
                    )
                    .await;
                }
                let line = format!("link property add dev {} altname {}", nth(*which), mark(uid, "net1"));
                try_ip(&self.a, &line).await;
            }
            Act::Move(which, true) => {
                let nested = snapshot(&self.nested).await.links;
                let name = &nested[which % nested.len()].name;
                try_ip(&self.nested, &format!("link set {name} netns {}", path(&self.a))).await;
            }
            Act::Move(which, false) => {
                try_ip(&self.a, &format!("link set {} netns {}", nth(*which), path(&self.nested))).await;
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 40, failure_persistence: None, ..ProptestConfig::with_cases(12) })]
    /// Whatever a pod makes, moves, renames or marks in its own and nested namespaces, nothing outside of it changes.
    #[test]
    #[ignore = "needs root: makes network namespaces"]
    fn nothing_that_a_pod_does_changes_anything_outside_of_it(acts in prop::collection::vec(act(), 1..10),
        users in prop::sample::select(vec![Users::Host, Users::Own])) {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            let mut all = Attacked::new(users, |address| bridged("net1", address)).await;
            for (at, act) in acts.iter().enumerate() {
                all.act(act, at).await;
            }
            all.assert_nothing_outside_changes(&format!("{acts:?}")).await;
        });
    }
}

/// Runs commands of `ip` in a namespace, all by one process.
async fn ip_batch(namespace: &Namespace, lines: impl Iterator<Item = String>) {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    for line in lines {
        writeln!(file, "{line}").unwrap();
    }
    let run = move || Command::new("ip").arg("-force").arg("-batch").arg(file.path()).output().expect("ip");
    namespace.run(run).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: makes network namespaces"]
async fn routes_of_a_pod_are_not_read() {
    let all = Attacked::new(Users::Host, |address| bridged("net1", address)).await;
    let many = 50_000_u32;
    let prefix = |at: u32| format!("{}/32", std::net::Ipv4Addr::from(0x1400_0000 + at));
    ip_batch(&all.a, (0..many).map(|at| format!("route add {} dev net1 proto bgp", prefix(at)))).await;
    ip(&all.a, "route add 30.0.0.0/8 dev net1 proto 101").await;
    let read = |netlink: &mut Netlink| Ok((netlink.routes()?.len(), netlink.routes_of(PROTOCOL)?));
    let (whole, ours) = in_namespace(&all.a, read).await;
    assert!(whole > many as usize, "{whole}");
    let [stray] = &ours[..] else { panic!("{ours:?}") };
    assert_eq!(stray.prefix.to_string(), "30.0.0.0/8");
    // A pod with a full table of the Internet is a pod like others.
    let mut wanted = bridged("net1", "10.9.0.2/24");
    wanted.routes = vec![route("40.0.0.0/8", Some("10.9.0.1"), None)];
    let mut node = all.node;
    node.settle_links("a", vec![wanted]).await;
    let ours = in_namespace(&all.a, |netlink| netlink.routes_of(PROTOCOL)).await;
    assert_eq!(ours.iter().map(|route| route.prefix.to_string()).collect::<Vec<_>>(), ["40.0.0.0/8"]);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: makes network namespaces"]
async fn alternative_names_of_a_pod_hide_no_mark() {
    let mut all = Attacked::new(Users::Host, |address| bridged("net1", address)).await;
    let before = named(&all.a, "net1").await.index;
    // As many as the kernel takes.
    let name = |at: usize| format!("link property add dev net1 altname {at:0>120}");
    ip_batch(&all.a, (0..600).map(name)).await;
    assert!(named(&all.a, "net1").await.altnames.len() > 400);
    for _ in 0..2 {
        all.node.settle().await;
        all.node.restart();
    }
    assert_eq!(named(&all.a, "net1").await.index, before);
    all.node.desired.pods.remove("a");
    all.node.settle().await;
    assert!(snapshot(&all.a).await.named("net1").is_none());
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: makes network namespaces"]
async fn pod_with_too_many_interfaces_is_refused_alone() {
    let mut all = Attacked::new(Users::Host, |address| bridged("net1", address)).await;
    ip_batch(&all.a, (1..3000).map(|at| format!("link add x{at} type veth peer name y{at}"))).await;
    let before = all.outside().await;
    all.node.run_pod("c", 103).await;
    all.node.want("c", vec![bridged("net1", "10.9.0.4/24")]);
    let done = all.node.reconcile().await;
    let [refused] = &done.rejected[..] else { panic!("{:?}", done.rejected) };
    assert_eq!((&refused.item, refused.retryable), (&Item::pod("a"), true));
    assert!(refused.reason.contains("list interfaces: there is more than 4 MiB"), "{}", refused.reason);
    assert_eq!((done.pods["v"].len(), done.pods["c"].len()), (1, 1));
    // Its host end is known by the host's own marks.
    assert_eq!(all.node.host_ends().await.len(), 3);
    all.node.desired.pods.remove("a");
    all.node.desired.pods.remove("c");
    all.node.reconcile().await;
    assert!(all.outside().await == before);
    assert_eq!(all.node.host_ends().await.len(), 1);
}
