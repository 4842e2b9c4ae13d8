//! Interfaces of the host for BGP sessions: what they let in from gateways and other hosts of their VLAN, and what they
//! change on the node.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use eno_driver_node::addresses::Addresses;
use eno_driver_node::driver::{NodeDriver, Switch};
use eno_driver_node::host::state::Installation;
use eno_driver_node::host::{Host, ownership};
use eno_driver_node::netlink::{Namespace, Netlink, Request};
use eno_driver_node::pods::{Options, Pods};
use eno_sbi::{Driver as _, Reconciled, Work};
use eno_schemas::{
    Applied, AppliedNetwork, Command, Desired, HostNetwork, Item, NodeDesired, OvsDatapath, VlanId,
};
use futures::StreamExt as _;

use crate::agent::conformance::{NoPods, probes};
use crate::host::common::{Net, desired, kernel_lacks};
use crate::host::uplinks::assert_converges_after_kills;
use crate::ovs::fixture as ovs;

const NAME: &str = "eno-bgp";
/// Maximum time until what is expected happens; virtual machines are slow.
const TIMEOUT: Duration = Duration::from_secs(20);
/// Time without an answer that proves silence. A connection is tried again after one second.
const SILENCE: Duration = Duration::from_millis(1500);
/// Time without any notification that proves silence.
const QUIET: Duration = Duration::from_millis(700);
/// Addresses of the interface and of its gateway.
const OWN: [&str; 2] = ["10.9.0.2", "fd09::2"];
const GATEWAY: [&str; 2] = ["10.9.0.1", "fd09::1"];
/// A service of the cluster, in a prefix.
const SERVICE: [&str; 2] = ["203.0.113.7", "2001:db8:7::7"];
/// Addresses of a client behind the gateway.
const CLIENT: [&str; 2] = ["198.51.100.9", "2001:db8:9::9"];
/// What is done to connections as kube-proxy does: a service and a node port lead to a pod, and another port of the
/// service to a pod with the network of its node.
const FIREWALL: &str = "table inet proxy { chain pre { type nat hook prerouting priority dstnat;
    ip daddr 203.0.113.7 tcp dport 80 dnat ip to 10.244.1.2:80
    ip6 daddr 2001:db8:7::7 tcp dport 80 dnat ip6 to [fd44::2]:80
    ip daddr 203.0.113.7 tcp dport 81 dnat ip to 192.0.2.1:8080
    ip6 daddr 2001:db8:7::7 tcp dport 81 dnat ip6 to [2001:db8:1::1]:8080
    fib daddr type local meta nfproto ipv4 tcp dport 30080 dnat ip to 10.244.1.2:80
    fib daddr type local meta nfproto ipv6 tcp dport 30080 dnat ip6 to [fd44::2]:80
    }
}\n";

fn interface(network: &str, vlan: u16) -> HostNetwork {
    HostNetwork::Interface {
        network: network.to_owned(),
        vlan: VlanId::new(vlan).unwrap(),
        addresses: ["10.9.0.2/24", "fd09::2/64"].map(|net| net.parse().unwrap()).to_vec(),
        gateways: GATEWAY.map(|ip| ip.parse().unwrap()).to_vec(),
        prefixes: ["203.0.113.0/28", "2001:db8:7::/64"].map(|net| net.parse().unwrap()).to_vec(),
        symmetric: false,
        mtu: Some(1450),
    }
}

/// As [`interface`], with answers to its gateways.
fn with_return_path(network: &str, vlan: u16) -> HostNetwork {
    let mut wanted = interface(network, vlan);
    if let HostNetwork::Interface { symmetric, .. } = &mut wanted {
        *symmetric = true;
    }
    wanted
}

fn ovs_bridge() -> HostNetwork {
    let (datapath, vlans) = (Some(OvsDatapath::Netdev), "10,20".parse().unwrap());
    HostNetwork::Ovs { datapath, uplink: None, patch: None, vlans }
}

fn at(ip: &str, port: u16) -> SocketAddr {
    (ip.parse::<IpAddr>().unwrap(), port).into()
}

/// Runs something in a namespace.
fn inside<T: Send + 'static>(net: &Net, work: impl FnOnce() -> T + Send + 'static) -> T {
    let namespace = net.0.clone();
    let run = move || {
        namespace.enter().unwrap();
        work()
    };
    std::thread::spawn(run).join().unwrap()
}

fn delete_filter(net: &Net, index: u32) {
    let request = Request::delete_ingress_program(NAME, index);
    inside(net, move || Netlink::open().unwrap().execute(request).unwrap());
}

fn listen(net: &Net, at: SocketAddr) -> TcpListener {
    inside(net, move || TcpListener::bind(at).unwrap())
}

fn udp(net: &Net, at: SocketAddr) -> UdpSocket {
    inside(net, move || UdpSocket::bind(at).unwrap())
}

/// Connects, again and again until it works: ports, neighbours and routes may need a moment.
#[track_caller]
fn assert_reached(from: &Net, to: SocketAddr) -> TcpStream {
    let begun = Instant::now();
    loop {
        match inside(from, move || TcpStream::connect_timeout(&to, SILENCE)) {
            Ok(stream) => return stream,
            Err(error) => assert!(begun.elapsed() < TIMEOUT, "{to} is not reached: {error}"),
        }
    }
}

/// Nothing answers at these addresses, not even a refusal. They are tried at once.
#[track_caller]
fn assert_silent(from: &Net, to: &[SocketAddr]) {
    let attempts: Vec<_> = to
        .iter()
        .map(|to| {
            let (namespace, to) = (from.0.clone(), *to);
            std::thread::spawn(move || {
                namespace.enter().unwrap();
                (to, TcpStream::connect_timeout(&to, SILENCE).map(drop).map_err(|error| error.kind()))
            })
        })
        .collect();
    for attempt in attempts {
        let (to, answer) = attempt.join().unwrap();
        assert_eq!(answer, Err(ErrorKind::TimedOut), "{to} answered");
    }
}

/// A node, a gateway and another host on a VLAN, and a pod behind the node. The node reaches all else by another leg of the
/// gateway, which forwards.
struct Lab {
    node: Net,
    gateway: Net,
    other: Net,
    pod: Net,
}

impl Lab {
    /// `gw` and `host` are the ends of the gateway and the other host on the node, to be brought to the VLAN.
    fn new(node: Net) -> Self {
        let lab = Self { node, gateway: Net::new(), other: Net::new(), pod: Net::new() };
        let Self { node, gateway, other, pod } = &lab;
        for (end, net, peer) in [
            ("gw", gateway, "eth0"),
            ("host", other, "eth0"),
            ("hpod", pod, "eth0"),
            ("eth0", gateway, "eth1"),
        ] {
            node.nic(end, net, peer);
            node.ip(&format!("link set {end} addrgenmode none"));
            node.ip(&format!("link set {end} up"));
            net.ip(&format!("link set {peer} up"));
        }
        for (net, end, [v4, v6]) in [
            (gateway, "eth0", ["10.9.0.1/24", "fd09::1/64"]),
            (other, "eth0", ["10.9.0.3/24", "fd09::3/64"]),
            (node, "eth0", ["192.0.2.1/24", "2001:db8:1::1/64"]),
            (gateway, "eth1", ["192.0.2.254/24", "2001:db8:1::254/64"]),
            (node, "hpod", ["10.244.1.1/24", "fd44::1/64"]),
            (pod, "eth0", ["10.244.1.2/24", "fd44::2/64"]),
        ] {
            net.ip(&format!("address add {v4} dev {end}"));
            net.ip(&format!("address add {v6} dev {end} nodad"));
        }
        // Without these the node could not ask for neighbours of what it forwards.
        for end in ["eth0", "hpod"] {
            node.ip(&format!("address add fe80::1/64 dev {end} nodad"));
        }
        for (net, [v4, v6]) in [(node, ["192.0.2.254", "2001:db8:1::254"]), (pod, ["10.244.1.1", "fd44::1"])]
        {
            net.ip(&format!("route add default via {v4}"));
            net.ip(&format!("route add default via {v6}"));
        }
        let forward =
            "echo 1 > /proc/sys/net/ipv4/ip_forward; echo 1 > /proc/sys/net/ipv6/conf/all/forwarding";
        let strict = "for of in all default; do echo 1 > /proc/sys/net/ipv4/conf/$of/rp_filter; done";
        node.run("sh", &["-c", &format!("{forward}; {strict}")]).unwrap();
        gateway.run("sh", &["-c", forward]).unwrap();
        // What is behind the node is to be reached by the VLAN. The node's answers to others go by its main table.
        for net in [gateway, other] {
            for to in ["203.0.113.0/28", "203.0.113.16/32", "192.0.2.1/32", "10.244.1.2/32"] {
                net.ip(&format!("route replace {to} via {}", OWN[0]));
            }
            for to in ["2001:db8:7::/64", "2001:db8:8::/64", "2001:db8:1::1/128", "fd44::2/128"] {
                net.ip(&format!("route replace {to} via {}", OWN[1]));
            }
        }
        // The node does not answer its ARP.
        let mac = ownership::interface_mac("test", "", NAME).map(|byte| format!("{byte:02x}")).join(":");
        for own in OWN {
            other.ip(&format!("neigh replace {own} lladdr {mac} dev eth0 nud permanent"));
        }
        lab
    }

    /// What must never change on the node: as [`Net::foreign_state`], foreign rules, and sysctls of other interfaces.
    fn untouched(&self) -> String {
        let mut all = self.node.foreign_state();
        if let Some((before, from)) = all.split_once("table inet eno {")
            && let Some((_, after)) = from.split_once("\n}\n")
        {
            all = format!("{before}{after}");
        }
        let rules = self.node.ip("rule show") + &self.node.ip("-6 rule show");
        all.extend(rules.lines().filter(|line| !line.starts_with("20101:")));
        let of_others = "cd /proc/sys/net; for of in all default lo eth0 hpod gw host; do
            grep -r . ipv4/conf/$of ipv6/conf/$of; done 2> /dev/null; true";
        let sysctls = self.node.run("sh", &["-c", of_others]).unwrap();
        assert!(sysctls.contains("ipv6/conf/hpod/accept_ra"), "{sysctls}");
        let mut sysctls: Vec<&str> = sysctls.lines().collect();
        sysctls.sort_unstable();
        all + &sysctls.join("\n")
    }

    /// Only sessions with the gateway come in, and the node opens them without naming its address.
    fn assert_guarded(&self) {
        let Self { node, gateway, other, .. } = self;
        let _listeners = [22, 179, 10250].map(|port| listen(node, at("::", port)));
        for (own, gate) in OWN.into_iter().zip(GATEWAY) {
            assert_reached(gateway, at(own, 179));
            let listener = listen(gateway, at(gate, 179));
            assert_reached(node, at(gate, 179));
            assert_eq!(listener.accept().unwrap().1.ip().to_string(), own);
            let sender = udp(gateway, at(gate, 50_000));
            let [dns, bfd] = [53, 3784].map(|port| udp(node, at(own, port)));
            bfd.set_read_timeout(Some(TIMEOUT)).unwrap();
            dns.set_nonblocking(true).unwrap();
            sender.send_to(b"dns", at(own, 53)).unwrap();
            sender.send_to(b"hello", at(own, 3784)).unwrap();
            let mut buffer = [0; 9];
            assert_eq!(bfd.recv(&mut buffer).unwrap(), 5);
            // It was sent before.
            assert_eq!(dns.recv(&mut buffer).unwrap_err().kind(), ErrorKind::WouldBlock, "{own}");
        }
        let own = |ports: &[u16]| -> Vec<SocketAddr> {
            OWN.iter().flat_map(|own| ports.iter().map(|port| at(own, *port))).collect()
        };
        // The node's own address elsewhere, a pod, and what is in no prefix.
        let beyond = [
            at("192.0.2.1", 22),
            at("192.0.2.1", 10250),
            at("2001:db8:1::1", 10250),
            at("192.0.2.1", 179),
            at("10.244.1.2", 80),
            at("fd44::2", 80),
            at("203.0.113.16", 80),
            at("2001:db8:8::1", 80),
        ];
        assert_silent(gateway, &[own(&[22, 10250, 30080]), beyond.to_vec()].concat());
        assert_silent(other, &[own(&[22, 179, 10250, 30080]), beyond.to_vec()].concat());
    }
}

/// A node with Open vSwitch in user space, and its agent.
struct Agent {
    switch: ovs::Node,
    _folder: tempfile::TempDir,
    host: Host,
    driver: NodeDriver<NoPods>,
}

/// True in the virtual machine, which has no Open vSwitch. These tests need nothing that the machine's kernel lacks.
fn lacks_open_vswitch() -> bool {
    std::env::var_os("ENO_VM_LANE").is_some()
}

impl Agent {
    fn new() -> Self {
        let switch = ovs::Node::start();
        let namespace = Namespace::open(&switch.namespace()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let options = Options {
            host: namespace.clone(),
            audit: Duration::ZERO,
            allowed_masters: BTreeSet::new(),
            ovs_datapath: OvsDatapath::Netdev,
            proc_sys_net: "/proc/sys/net".into(),
            namespaces: folder.path().to_owned(),
        };
        let database = Arc::new(Switch::new(switch.database.ovs(), Some(switch.database.path("db.sock"))));
        let host = Host::new(namespace.clone(), Installation::default());
        let probes = probes("node1", &namespace, &database);
        let addresses = Addresses::new(folder.path().join("no-ipam"), folder.path());
        let pods = Pods::new(NoPods, options);
        let driver = NodeDriver::new("node1", addresses, host.clone(), pods, database, probes);
        Self { switch, _folder: folder, host, driver }
    }

    fn node(&self) -> Net {
        Net(Namespace::open(&self.switch.namespace()).unwrap())
    }

    async fn reconcile(&self, desired: NodeDesired) -> Reconciled {
        let command = Command::new("node", "node1", (1, 1), Desired::Node(desired));
        self.driver.reconcile(Work::alone(command)).await
    }

    /// The networks as applied. Nothing is refused, and nothing is written a second time.
    async fn settle(&self, desired: NodeDesired) -> BTreeMap<String, AppliedNetwork> {
        let done = self.reconcile(desired.clone()).await;
        assert!(done.rejected.is_empty(), "{:?}", done.rejected);
        let writes = self.host.writes();
        let again = self.reconcile(desired).await;
        assert_eq!((self.host.writes(), &again.applied), (writes, &done.applied));
        let Some(Applied::Node { networks, .. }) = done.applied else { panic!("{done:?}") };
        networks
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: network namespaces and ovs-vswitchd"]
async fn gateway_and_hosts_of_the_vlan_reach_sessions_and_services_only() {
    if lacks_open_vswitch() {
        return;
    }
    let mut agent = Agent::new();
    let lab = Lab::new(agent.node());
    // Open vSwitch in user space passes packets on as they are.
    for net in [&lab.gateway, &lab.other] {
        net.run("ethtool", &["-K", "eth0", "tx", "off"]).unwrap();
    }
    lab.node.run("nft", &[FIREWALL]).unwrap();
    agent.settle(desired([("br1", ovs_bridge())])).await;
    for end in ["gw", "host"] {
        agent.switch.database.vsctl(&["add-port", "br1", end, "tag=10"]);
    }
    let untouched = lab.untouched();
    let wanted = desired([("br1", ovs_bridge()), (NAME, interface("br1", 10))]);
    // The administrator's ports are open by the time that this is.
    let applied = agent.settle(wanted.clone()).await;
    let expected = AppliedNetwork { vlans: "10".parse().unwrap(), mtu: Some(1450) };
    assert_eq!(applied[NAME], expected);
    assert_eq!(lab.untouched(), untouched);
    lab.assert_guarded();
    let _listener = listen(&lab.pod, at("::", 80));
    for service in SERVICE {
        assert_reached(&lab.gateway, at(service, 80));
        assert_reached(&lab.other, at(service, 80));
    }
    // The control: without the filter, all of it would be reached.
    let index = lab.node.ip(&format!("-o link show {NAME}"));
    let index: u32 = index.split(':').next().unwrap().parse().unwrap();
    delete_filter(&lab.node, index);
    let _listener = listen(&lab.node, at("::", 10250));
    for to in [at(OWN[0], 10250), at(OWN[0], 30080), at(OWN[1], 10250), at("10.244.1.2", 80)] {
        assert_reached(&lab.gateway, to);
        assert_reached(&lab.other, to);
    }
    let repaired = agent.reconcile(wanted.clone()).await;
    assert!(repaired.notes[0].message.contains("another filter"), "{:?}", repaired.notes);
    assert_silent(&lab.other, &[at(OWN[0], 10250), at(OWN[1], 10250)]);

    // Open vSwitch ends and comes back: the interface stays.
    agent.switch.kill();
    agent.switch.resume();
    let _bgp = listen(&lab.node, at("::", 179));
    for own in OWN {
        assert_reached(&lab.gateway, at(own, 179));
    }
    // Another VLAN, without the gateway.
    agent.settle(desired([("br1", ovs_bridge()), (NAME, interface("br1", 20))])).await;
    assert_silent(&lab.gateway, &OWN.map(|own| at(own, 179)));
}

/// Answers of pods, and of pods with the network of their node, leave by the interface although the node has no other way
/// to the client. The filter stays as strict as without.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: network namespaces and ovs-vswitchd"]
async fn answers_leave_to_the_gateway() {
    if lacks_open_vswitch() {
        return;
    }
    let agent = Agent::new();
    let lab = Lab::new(agent.node());
    for net in [&lab.gateway, &lab.other] {
        net.run("ethtool", &["-K", "eth0", "tx", "off"]).unwrap();
    }
    lab.node.run("nft", &[FIREWALL]).unwrap();
    agent.settle(desired([("br1", ovs_bridge())])).await;
    for end in ["gw", "host"] {
        agent.switch.database.vsctl(&["add-port", "br1", end, "tag=10"]);
    }
    // The other way of the node ends.
    lab.gateway.ip("link set eth1 down");
    let before = lab.node.restorable_state();
    let untouched = lab.untouched();
    let plain = desired([("br1", ovs_bridge()), (NAME, interface("br1", 10))]);
    let wanted = desired([("br1", ovs_bridge()), (NAME, with_return_path("br1", 10))]);
    agent.settle(plain.clone()).await;
    for (own, client) in OWN.into_iter().zip(CLIENT) {
        lab.gateway.ip(&format!("address add {client} dev lo"));
        for prefix in ["203.0.113.0/28", "2001:db8:7::/64"] {
            if prefix.contains(':') == own.contains(':') {
                lab.gateway.ip(&format!("route replace {prefix} via {own} src {client}"));
            }
        }
    }
    let _listeners = [listen(&lab.pod, at("::", 80)), listen(&lab.node, at("::", 8080))];
    let services: Vec<SocketAddr> = SERVICE.iter().flat_map(|ip| [at(ip, 80), at(ip, 81)]).collect();
    // What the gateway itself sends from that address would make it ask by ARP from there.
    let mac = ownership::interface_mac("test", "", NAME).map(|byte| format!("{byte:02x}")).join(":");
    for own in OWN {
        lab.gateway.ip(&format!("neigh replace {own} lladdr {mac} dev eth0 nud permanent"));
    }
    assert_silent(&lab.gateway, &services);
    agent.settle(wanted.clone()).await;
    for service in &services {
        assert_reached(&lab.gateway, *service);
    }
    lab.assert_guarded();
    let untouched_with = lab.untouched();
    assert!(untouched_with.contains("table inet proxy"), "{untouched_with}");
    assert_eq!(untouched_with, untouched);
    // A pod's own connections are not led to the gateway.
    let listener = listen(&lab.gateway, at("198.51.100.9", 443));
    let own = inside(&lab.pod, || TcpStream::connect_timeout(&at(CLIENT[0], 443), SILENCE));
    assert!(own.is_err(), "{own:?} {listener:?}");

    agent.settle(plain).await;
    assert_silent(&lab.gateway, &services);
    agent.settle(desired([("br1", ovs_bridge())])).await;
    assert_eq!(lab.node.restorable_state(), before);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: network namespaces and ovs-vswitchd"]
async fn interface_leaves_nothing_behind() {
    if lacks_open_vswitch() {
        return;
    }
    let agent = Agent::new();
    let node = agent.node();
    agent.settle(desired([("br1", ovs_bridge())])).await;
    let (before, rows) = (node.restorable_state(), agent.switch.database.all_rows().await);
    let wanted = desired([("br1", ovs_bridge()), (NAME, with_return_path("br1", 10))]);
    agent.settle(wanted.clone()).await;
    assert_ne!(node.restorable_state(), before);
    agent.settle(desired([("br1", ovs_bridge())])).await;
    assert_eq!(node.restorable_state(), before);
    let without_uuids = |mut rows: Vec<eno_ovsdb::Row>| {
        for row in &mut rows {
            row.retain(|column, _| column != "ports" && column != "interfaces");
        }
        rows
    };
    assert_eq!(without_uuids(agent.switch.database.all_rows().await), without_uuids(rows));

    // Somebody else's port keeps its place, and the interface names it.
    let port = ownership::port(NAME);
    agent.switch.database.vsctl(&["add-port", "br1", &port]);
    let done = agent.reconcile(wanted).await;
    let [rejection] = done.rejected.as_slice() else { panic!("{:?}", done.rejected) };
    assert_eq!(rejection.item, Item::port(NAME));
    assert!(rejection.reason.contains(&port) && rejection.retryable, "{rejection:?}");
    let Some(Applied::Node { networks, .. }) = done.applied else { panic!("{done:?}") };
    assert_eq!(networks.keys().collect::<Vec<_>>(), ["br1"]);
}

/// What another hand does to the interface, and what is said of it.
type Drift = (&'static str, Box<dyn Fn(&Net, u32)>);

fn by_ip(said: &'static str, words: &'static str) -> Drift {
    let run = move |node: &Net, index: u32| {
        node.ip(&words.replace("TABLE", &ownership::table(index).to_string()));
    };
    (said, Box::new(run))
}

#[tokio::test]
#[ignore = "needs root: network namespaces"]
async fn drift_of_an_interface_is_notified_and_repaired() {
    let node = Net::new();
    node.ip("link add foreign type bridge");
    let host = Host::new(node.0.clone(), Installation::default());
    let wanted = desired([("br1", ovs_bridge()), (NAME, with_return_path("br1", 10))]);
    let mut changed = pin!(host.changed());
    // It subscribes, and nothing is desired yet.
    assert!(tokio::time::timeout(QUIET, changed.next()).await.is_err());
    let (applied, _) = host.reconcile(&wanted, || true).await.unwrap();
    assert!(applied.refused.is_empty(), "{:?}", applied.refused);
    let mut index = applied.state.named(NAME).unwrap().index;
    let filter = |node: &Net, index| delete_filter(node, index);
    // The kernel does not notify of it; what comes next is the occasion.
    let sysctl = |node: &Net, _| {
        let write = format!("echo 0 > /proc/sys/net/ipv4/conf/{NAME}/arp_ignore");
        node.run("sh", &["-c", &write]).unwrap();
        node.ip("address add 198.51.100.1/24 dev foreign");
    };
    let chain = |node: &Net, _| {
        node.run("nft", &["flush chain inet eno eno-bgp-own"]).unwrap();
        node.ip("address add 198.51.100.2/24 dev foreign");
    };
    for (said, change) in [
        by_ip("the address 10.9.0.2/24", "address del 10.9.0.2/24 dev eno-bgp"),
        by_ip("the address 10.7.0.1/24", "address add 10.7.0.1/24 dev eno-bgp"),
        by_ip("the rule to 10.9.0.1/32", "rule del to 10.9.0.1 iif lo priority 20101"),
        by_ip("the rule to fd09::1/128", "-6 rule del to fd09::1 iif lo priority 20101"),
        by_ip("the route to 10.9.0.0/24", "route del 10.9.0.0/24 table TABLE"),
        by_ip("had a route to 10.8.0.0/24", "route add 10.8.0.0/24 dev eno-bgp table TABLE"),
        by_ip("another MAC address", "link set eno-bgp address 02:00:00:00:00:09"),
        by_ip("eno-bgp was down", "link set eno-bgp down"),
        by_ip("an MTU of 1300", "link set eno-bgp mtu 1300"),
        ("another filter", Box::new(filter)),
        ("arp_ignore of eno-bgp was 0", Box::new(sysctl)),
        ("connections by eno-bgp were not marked", Box::new(chain)),
        by_ip("the rule for the mark 0x1/0x3f", "rule del fwmark 0x1/0x3f priority 20101"),
        by_ip("the route to ::/0", "-6 route del default table TABLE"),
        by_ip("the interface eno-bgp was missing", "link del eno-bgp"),
    ] {
        // ENO's own changes are not notified.
        assert!(tokio::time::timeout(QUIET, changed.next()).await.is_err(), "woken before: {said}");
        change(&node, index);
        tokio::time::timeout(TIMEOUT, changed.next()).await.expect(said);
        let (applied, notes) = host.reconcile(&wanted, || true).await.unwrap();
        assert!(applied.refused.is_empty(), "{:?}", applied.refused);
        let [note] = notes.as_slice() else { panic!("{said}: {notes:?}") };
        assert_eq!((note.kind.as_str(), note.item.port.as_deref()), ("Repaired", Some(NAME)));
        assert!(note.message.contains(said), "{said}: {}", note.message);
        index = applied.state.named(NAME).unwrap().index;
        let program = inside(&node, move || Netlink::open().unwrap().ingress_program(index).unwrap());
        assert!(program.is_set(), "{said}");
    }
}

#[test]
#[ignore = "needs root: network namespaces"]
fn interface_converges_after_kill_at_any_change() {
    let wanted = desired([("br1", ovs_bridge()), (NAME, with_return_path("br1", 10))]);
    let mut changed = interface("br2", 20);
    if let HostNetwork::Interface { addresses, gateways, mtu, .. } = &mut changed {
        (*addresses, *gateways) = (vec!["10.8.0.2/24".parse().unwrap()], vec!["10.8.0.1".parse().unwrap()]);
        *mtu = None;
    }
    let other = desired([("br2", ovs_bridge()), (NAME, changed), ("eno-more", with_return_path("br2", 20))]);
    assert_converges_after_kills(&wanted, &other);
}

#[test]
#[ignore = "needs root: network namespaces"]
fn interface_on_a_linux_bridge_is_guarded() {
    if kernel_lacks(&["filtering"]) {
        return;
    }
    let lab = Lab::new(Net::new());
    let bridge = || HostNetwork::Bridge { uplink: None, vlans: "10,20".parse().unwrap(), mtu: None };
    let reconcile = |wanted: &NodeDesired| {
        let (applied, _) = lab.node.reconcile(wanted);
        assert!(applied.refused.is_empty(), "{:?}", applied.refused);
        let (again, writes) = lab.node.reconcile(wanted);
        assert_eq!(writes, 0, "{:?}", again.changed);
        applied
    };
    reconcile(&desired([("br1", bridge())]));
    for end in ["gw", "host"] {
        lab.node.ip(&format!("link set {end} master br1"));
        lab.node.run("bridge", &["vlan", "add", "dev", end, "vid", "10", "pvid", "untagged"]).unwrap();
    }
    let (untouched, before) = (lab.untouched(), lab.node.restorable_state());
    let applied = reconcile(&desired([("br1", bridge()), (NAME, interface("br1", 10))]));
    assert_eq!(applied.networks[NAME].vlans.to_string(), "10");
    assert_eq!(lab.untouched(), untouched);
    lab.assert_guarded();
    reconcile(&desired([("br1", bridge()), (NAME, interface("br1", 20))]));
    let _bgp = listen(&lab.node, at("::", 179));
    assert_silent(&lab.gateway, &OWN.map(|own| at(own, 179)));
    reconcile(&desired([("br1", bridge())]));
    assert_eq!(lab.node.restorable_state(), before);
}

#[test]
#[ignore = "needs root: network namespaces"]
fn interface_of_a_master_is_guarded() {
    if kernel_lacks(&["vlan"]) {
        return;
    }
    let (node, gateway) = (Net::new(), Net::new());
    node.nic("eth1", &gateway, "port1");
    gateway.ip("link set port1 up");
    gateway.ip("link add link port1 name port1.10 type vlan id 10");
    gateway.ip("link set port1.10 up");
    gateway.ip("address add 10.9.0.1/24 dev port1.10");
    gateway.ip("address add fd09::1/64 dev port1.10 nodad");
    let before = node.restorable_state();
    let master = || HostNetwork::Master { bond: vec![], vlans: "10".parse().unwrap(), mtu: None };
    let (applied, _) = node.reconcile(&desired([("eth1", master()), (NAME, interface("eth1", 10))]));
    assert!(applied.refused.is_empty(), "{:?}", applied.refused);
    assert_eq!(applied.networks[NAME].mtu, Some(1450));
    let _listeners = [22, 179].map(|port| listen(&node, at("::", port)));
    for own in OWN {
        assert_reached(&gateway, at(own, 179));
    }
    assert_silent(&gateway, &OWN.map(|own| at(own, 22)));
    node.reconcile(&desired([]));
    assert_eq!(node.restorable_state(), before);
}
