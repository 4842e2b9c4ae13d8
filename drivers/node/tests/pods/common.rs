//! A node made of network namespaces: the machine's own network is not changed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use eno_driver_node::host::ownership::group;
use eno_driver_node::netlink::{Link, Namespace, Netlink, NetlinkError, Request, Snapshot};
use eno_driver_node::pods::ownership::GROUP;
use eno_driver_node::pods::{Options, Pods, PodsApplied, Resolve, Sandbox, Unresolved};
use eno_schemas::{
    AppliedLink, HostNetwork, LinkKind, LinkName, Master, NodeDesired, NodePod, PodLink, PodRoute, PortVlans,
    PrimaryLink, VlanSet,
};
use rtnetlink::packet_route::link::{InfoBridge, InfoData, InfoKind, LinkAttribute, LinkInfo, LinkMessage};

pub const CLUSTER: &str = "t1";
pub const BRIDGE: &str = "br-data";
pub const VLAN_BRIDGE: &str = "br-vlan";

/// True when the kernel lacks one of these kinds, so that a test can't run here. False on the virtual machine, which
/// must support all.
pub async fn kernel_lacks(kinds: &[&str]) -> bool {
    if std::env::var_os("ENO_VM_LANE").is_some() {
        return false;
    }
    let namespace = Namespace::create().unwrap();
    for kind in kinds {
        let kind = (*kind).to_owned();
        let name = kind.clone();
        let tried = namespace
            .run(move || Netlink::open()?.execute(Request::add_link("probe", bare("probe", &kind))))
            .await;
        if let Err(error) = tried.unwrap()
            && error.errno() == Some(nix::errno::Errno::EOPNOTSUPP)
        {
            eprintln!("not run here, the VM lane runs it: this kernel has no {name} interfaces");
            return true;
        }
    }
    false
}

pub fn bare(name: &str, kind: &str) -> LinkMessage {
    let mut message = LinkMessage::default();
    message.attributes.push(LinkAttribute::IfName(name.to_owned()));
    message.attributes.push(LinkAttribute::LinkInfo(vec![LinkInfo::Kind(InfoKind::Other(kind.to_owned()))]));
    message
}

/// An interface as ENO makes it for networks of the host.
pub fn made(name: &str, kind: &str) -> LinkMessage {
    let mut message = bare(name, kind);
    message.attributes.push(LinkAttribute::Group(group(CLUSTER)));
    message
}

/// Makes an interface and sets it up. Returns its index.
pub fn add_up(netlink: &mut Netlink, name: &str, message: LinkMessage) -> Result<u32, NetlinkError> {
    netlink.execute(Request::add_link(name, message))?;
    let index = netlink.link_named(name)?.unwrap().index;
    netlink.execute(Request::set_up(name, index, true))?;
    Ok(index)
}

/// Running pods by uid, with namespace and PID.
#[derive(Clone, Default)]
pub struct Runtime(Arc<Mutex<BTreeMap<String, Running>>>, Arc<AtomicBool>);

impl Runtime {
    /// Whether it answers nothing, as before its resolver has started.
    pub fn set_silent(&self, silent: bool) {
        self.1.store(silent, Ordering::Relaxed);
    }
}

type Running = (Namespace, Option<u32>);

impl Resolve for Runtime {
    async fn resolve(&self, uid: &str, _container: Option<&str>) -> Result<Sandbox, Unresolved> {
        if self.1.load(Ordering::Relaxed) {
            return Err(Unresolved { message: "no answer".to_owned(), retryable: true, gone: false });
        }
        let pods = self.0.lock().unwrap();
        let Some((namespace, pid)) = pods.get(uid) else {
            return Err(Unresolved {
                message: format!("pod {uid}: no sandbox"),
                retryable: true,
                gone: true,
            });
        };
        Ok(Sandbox { path: namespace.path(), id: namespace.id(), pid: *pid })
    }
}

pub struct Node {
    /// The network namespace of the host.
    pub host: Namespace,
    /// The sandboxes of pods.
    pub runtime: Runtime,
    /// The reconciler of pods.
    pub pods: Pods<Runtime>,
    /// The desired state of the node.
    pub desired: NodeDesired,
    /// The interfaces that pods may use as a parent.
    pub allowed: BTreeSet<String>,
    /// The interval of audits.
    pub audit: Duration,
    /// The files of the test.
    pub folder: tempfile::TempDir,
}

impl Node {
    /// A node with a pod bridge.
    pub async fn new() -> Self {
        let host = Namespace::create().unwrap();
        let runtime = Runtime::default();
        let desired = NodeDesired {
            cluster: CLUSTER.to_owned(),
            networks: BTreeMap::from([(
                BRIDGE.to_owned(),
                HostNetwork::PodBridge { addresses: Vec::new(), mtu: None },
            )]),
            ..NodeDesired::default()
        };
        let folder = tempfile::tempdir().unwrap();
        let allowed = BTreeSet::new();
        // Every reconcile with an unchanged desired state is an audit.
        let audit = Duration::ZERO;
        let pods = pods(&host, &runtime, &allowed, audit, &folder);
        let node = Self { host, runtime, pods, desired, allowed, audit, folder };
        node.on_host(|netlink| add_up(netlink, BRIDGE, made(BRIDGE, "bridge"))).await;
        node
    }

    /// A node with a running pod, `a`.
    pub async fn with_pod() -> (Self, Namespace) {
        let mut node = Self::new().await;
        let pod = node.run_pod("a", 101).await;
        (node, pod)
    }

    /// Adds an interface that pods' interfaces may be made on. Returns its index.
    pub async fn add_parent(&mut self) -> u32 {
        self.allow("parent0");
        self.on_host(|netlink| add_up(netlink, "parent0", bare("parent0", "veth"))).await
    }

    /// Adds a bridge that filters VLANs.
    pub async fn add_vlan_bridge(&mut self) {
        self.on_host(|netlink| {
            let mut message = LinkMessage::default();
            message.attributes.push(LinkAttribute::IfName(VLAN_BRIDGE.to_owned()));
            message.attributes.push(LinkAttribute::Group(group(CLUSTER)));
            message.attributes.push(LinkAttribute::LinkInfo(vec![
                LinkInfo::Kind(InfoKind::Bridge),
                LinkInfo::Data(InfoData::Bridge(vec![
                    InfoBridge::VlanFiltering(true),
                    InfoBridge::VlanDefaultPvid(1),
                ])),
            ]));
            add_up(netlink, VLAN_BRIDGE, message)
        })
        .await;
        let network = self.desired.networks[BRIDGE].clone();
        self.desired.networks.insert(VLAN_BRIDGE.to_owned(), network);
    }

    /// Restarts the agent, which loses its cache.
    pub fn restart(&mut self) {
        self.pods = pods(&self.host, &self.runtime, &self.allowed, self.audit, &self.folder);
    }

    pub fn audit(&mut self, audit: Duration) {
        self.audit = audit;
        self.restart();
    }

    pub fn allow(&mut self, name: &str) {
        self.allowed.insert(name.to_owned());
        self.restart();
    }

    /// Starts a pod, with its loopback up.
    pub async fn run_pod(&mut self, uid: &str, pid: u32) -> Namespace {
        let namespace = Namespace::create().unwrap();
        in_namespace(&namespace, |netlink| netlink.execute(Request::set_up("lo", 1, true))).await;
        self.runtime.0.lock().unwrap().insert(uid.to_owned(), (namespace.clone(), Some(pid)));
        namespace
    }

    /// Ends a pod: the runtime does not hold its namespace any more.
    pub fn end_pod(&mut self, uid: &str) {
        self.runtime.0.lock().unwrap().remove(uid);
    }

    pub fn set_sandbox(&self, uid: &str, namespace: Namespace, pid: Option<u32>) {
        self.runtime.0.lock().unwrap().insert(uid.to_owned(), (namespace, pid));
    }

    pub fn want(&mut self, uid: &str, links: Vec<PodLink>) -> &mut NodePod {
        let pod = NodePod {
            namespace: "default".to_owned(),
            name: uid.to_owned(),
            container: format!("containerd://{uid}"),
            links,
            primary: None,
        };
        self.desired.pods.insert(uid.to_owned(), pod);
        self.desired.pods.get_mut(uid).unwrap()
    }

    pub async fn reconcile(&self) -> PodsApplied {
        self.pods.reconcile(&self.desired).await
    }

    /// Reconciles, and checks that all links are as desired.
    pub async fn settle(&self) -> PodsApplied {
        let done = self.reconcile().await;
        assert_eq!(done.rejected, Vec::new());
        for (uid, pod) in &self.desired.pods {
            let wanted: BTreeSet<&String> = pod
                .links
                .iter()
                .map(|link| &link.id)
                .chain(pod.primary.iter().map(|link| &link.id))
                .collect();
            assert_eq!(done.pods[uid].keys().collect::<BTreeSet<_>>(), wanted);
        }
        done
    }

    /// Gives a pod these links, and checks that they are as desired.
    pub async fn settle_links(&mut self, uid: &str, links: Vec<PodLink>) -> PodsApplied {
        self.want(uid, links);
        self.settle().await
    }

    /// The first desired link of pod `a`.
    pub fn first_link(&mut self) -> &mut PodLink {
        &mut self.desired.pods.get_mut("a").unwrap().links[0]
    }

    /// The host's end of the link `net1` of a pod.
    pub async fn host_end(&self, done: &PodsApplied, uid: &str) -> Link {
        named(&self.host, applied(done, uid, "net1").host_name.as_deref().unwrap()).await
    }

    pub async fn on_host<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Netlink) -> Result<T, NetlinkError> + Send + 'static,
    ) -> T {
        in_namespace(&self.host, work).await
    }

    /// Names of the host ends of veth pairs.
    pub async fn host_ends(&self) -> Vec<String> {
        let links = self.on_host(Netlink::links).await;
        links.into_iter().filter(|link| link.group == GROUP).map(|link| link.name).collect()
    }
}

fn pods(
    host: &Namespace,
    runtime: &Runtime,
    allowed: &BTreeSet<String>,
    audit: Duration,
    folder: &tempfile::TempDir,
) -> Pods<Runtime> {
    let options = Options {
        host: host.clone(),
        audit,
        allowed_masters: allowed.clone(),
        ovs_datapath: eno_schemas::OvsDatapath::System,
        proc_sys_net: "/proc/sys/net".into(),
        namespaces: folder.path().to_owned(),
    };
    Pods::new(runtime.clone(), options)
}

pub async fn in_namespace<T: Send + 'static>(
    namespace: &Namespace,
    work: impl FnOnce(&mut Netlink) -> Result<T, NetlinkError> + Send + 'static,
) -> T {
    namespace.run(move || work(&mut Netlink::open().unwrap())).await.unwrap().unwrap()
}

pub async fn snapshot(namespace: &Namespace) -> Snapshot {
    in_namespace(namespace, Netlink::snapshot).await
}

/// A snapshot without values that the kernel changes with a delay.
pub async fn stable_snapshot(namespace: &Namespace) -> Snapshot {
    let mut all = snapshot(namespace).await;
    all.links.iter_mut().for_each(|link| link.carrier = false);
    all.addresses.retain(|address| !address.net.to_string().starts_with("fe80"));
    all.routes.retain(|route| !route.prefix.addr().is_ipv6());
    all
}

pub async fn named(namespace: &Namespace, name: &str) -> Link {
    snapshot(namespace).await.named(name).unwrap_or_else(|| panic!("no {name}")).clone()
}

pub async fn set_down(namespace: &Namespace, name: &str) {
    let link = named(namespace, name).await;
    in_namespace(namespace, move |netlink| netlink.execute(Request::set_up(&link.name, link.index, false)))
        .await;
}

/// The primary interface, `eth0`.
pub fn primary(mtu: u32) -> PrimaryLink {
    PrimaryLink { id: "p".to_owned(), revision: "1".to_owned(), name: "eth0".to_owned(), mtu }
}

pub fn with_sysctl(mut link: PodLink, key: &str, value: &str) -> PodLink {
    link.sysctls.insert(key.to_owned(), value.to_owned());
    link
}

pub fn link(id: &str, kind: LinkKind) -> PodLink {
    PodLink {
        id: id.to_owned(),
        revision: "r1".to_owned(),
        name: LinkName::Fixed(id.to_owned()),
        kind,
        member_of: None,
        mtu: None,
        mac: None,
        alias: None,
        addresses: Vec::new(),
        routes: Vec::new(),
        rules: Vec::new(),
        sysctls: BTreeMap::new(),
        up: true,
        anti_spoof: false,
        parent_leads_to: None,
    }
}

/// A veth link whose host end is a port of the bridge.
pub fn bridged(id: &str, address: &str) -> PodLink {
    let master = Master::Bridge { bridge: BRIDGE.to_owned(), vlans: None };
    PodLink { addresses: vec![address.parse().unwrap()], ..link(id, LinkKind::Veth { master: Some(master) }) }
}

/// A veth link whose host end is a port of the VLAN-filtering bridge.
pub fn port(id: &str, address: &str, vlans: PortVlans) -> PodLink {
    let master = Master::Bridge { bridge: VLAN_BRIDGE.to_owned(), vlans: Some(vlans) };
    PodLink { addresses: vec![address.parse().unwrap()], ..link(id, LinkKind::Veth { master: Some(master) }) }
}

/// Names of ENO's interfaces in a pod.
pub fn ours(all: &Snapshot) -> Vec<&str> {
    all.links.iter().filter(|link| link.group == GROUP).map(|link| &link.name[..]).collect()
}

pub fn addresses(snapshot: &Snapshot, name: &str) -> BTreeSet<String> {
    let index = snapshot.named(name).unwrap().index;
    let mine = snapshot.addresses.iter().filter(|address| address.index == index);
    mine.map(|address| address.net.to_string()).filter(|net| !net.starts_with("fe80")).collect()
}

/// The applied state of one link.
pub fn applied<'a>(done: &'a PodsApplied, uid: &str, id: &str) -> &'a AppliedLink {
    &done.pods[uid][id]
}

/// Sends datagrams from one namespace to an address in another; true when one arrived.
pub async fn reaches(from: &Namespace, to: &Namespace, address: &str) -> bool {
    use std::net::UdpSocket;
    use std::time::Duration;
    // A port of its own: a process that is just being started may still hold the socket of an earlier call.
    let listen = format!("{address}:0");
    // An IPv6 address can't be bound before the kernel has looked for duplicates.
    let bind = move || {
        let bound = (0..100).find_map(|attempt| match UdpSocket::bind(&listen) {
            Err(error) if attempt < 99 && error.kind() == std::io::ErrorKind::AddrNotAvailable => {
                std::thread::sleep(Duration::from_millis(50));
                None
            }
            bound => Some(bound),
        });
        bound.expect("an attempt").unwrap()
    };
    let socket = to.run(bind).await.unwrap();
    let target = socket.local_addr().unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let any = if address.contains('[') { "[::]:0" } else { "0.0.0.0:0" };
    let sender = from.run(move || UdpSocket::bind(any).unwrap()).await.unwrap();
    // A port may need a moment to forward.
    for _ in 0..20 {
        if sender.send_to(b"eno", target).is_err() {
            tokio::task::yield_now().await;
        }
        if socket.recv(&mut [0; 8]).is_ok() {
            return true;
        }
    }
    false
}

pub fn trunk(text: &str) -> VlanSet {
    text.parse().unwrap()
}

/// Reads a sysctl of a pod; `path` is below `/proc/sys/net`.
pub async fn sysctl(pod: &Namespace, path: &'static str) -> String {
    let read = move || std::fs::read_to_string(format!("/proc/sys/net/{path}")).unwrap().trim().to_owned();
    pod.run(read).await.unwrap()
}

pub fn route(prefix: &str, via: Option<&str>, table: Option<u32>) -> PodRoute {
    let next_hop = via.map(|ip| ip.parse().unwrap());
    PodRoute { prefix: prefix.parse().unwrap(), next_hop, table, metric: None, source: None }
}
