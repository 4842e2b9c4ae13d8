//! VRFs that forward: sub-interfaces of a router and IRB interfaces of a switch.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use eno_simulator::{Topology, VrfStatus};

use crate::dataplane::host::{Host, succeed};
use crate::dataplane::testbed::{Testbed, access, trunk};

/// The addresses of the host behind each VRF.
const OUTSIDE: [&str; 2] = ["198.51.100.1", "2001:db8:ffff::1"];

const INTERFACES: &str = "http://openconfig.net/yang/interfaces";
const INSTANCES: &str = "http://openconfig.net/yang/network-instance";

/// The addresses below a sub-interface or a routed VLAN.
fn addresses(texts: &[&str]) -> String {
    let address = |text: &&str| {
        let (ip, length) = text.split_once('/').expect("a prefix length");
        let family = if ip.parse::<IpAddr>().expect("an address").is_ipv4() { "ipv4" } else { "ipv6" };
        format!(
            "<{family} xmlns=\"http://openconfig.net/yang/interfaces/ip\"><addresses><address><ip>{ip}</ip><config>\
             <ip>{ip}</ip><prefix-length>{length}</prefix-length></config></address></addresses></{family}>"
        )
    };
    texts.iter().map(address).collect()
}

/// A sub-interface of Ethernet1, replaced if it exists.
pub fn subinterface(vlan: u16, texts: &[&str]) -> String {
    format!(
        "<interfaces xmlns=\"{INTERFACES}\" xmlns:nc=\"urn:ietf:params:xml:ns:netconf:base:1.0\"><interface>\
         <name>Ethernet1</name><subinterfaces><subinterface nc:operation=\"replace\"><index>{vlan}</index><config>\
         <index>{vlan}</index></config><vlan xmlns=\"http://openconfig.net/yang/vlan\"><match><single-tagged><config>\
         <vlan-id>{vlan}</vlan-id></config></single-tagged></match></vlan>{}</subinterface></subinterfaces></interface>\
         </interfaces>",
        addresses(texts)
    )
}

/// An IRB interface.
fn irb(vlan: u16, texts: &[&str]) -> String {
    format!(
        "<interfaces xmlns=\"{INTERFACES}\"><interface><name>Vlan{vlan}</name><config><name>Vlan{vlan}</name><type \
         xmlns:t=\"urn:ietf:params:xml:ns:yang:iana-if-type\">t:l3ipvlan</type></config><routed-vlan \
         xmlns=\"http://openconfig.net/yang/vlan\"><config><vlan>{vlan}</vlan></config>{}</routed-vlan></interface>\
         </interfaces>",
        addresses(texts)
    )
}

/// A VRF with further content.
pub fn instance(name: &str, content: &str) -> String {
    format!(
        "<network-instances xmlns=\"{INSTANCES}\"><network-instance><name>{name}</name><config><name>{name}</name><type \
         xmlns:t=\"http://openconfig.net/yang/network-instance-types\">t:L3VRF</type></config>{content}\
         </network-instance></network-instances>"
    )
}

/// The content of a VRF with this member.
pub fn member(interface: &str, index: Option<u16>) -> String {
    let sub = index.map(|index| format!("<subinterface>{index}</subinterface>")).unwrap_or_default();
    let id = format!("{interface}.{}", index.unwrap_or_default());
    format!(
        "<interfaces><interface><id>{id}</id><config><id>{id}</id><interface>{interface}</interface>{sub}</config>\
         </interface></interfaces>"
    )
}

/// The content of a VRF with this static route.
pub fn route(prefix: &str, next_hop: &str) -> String {
    let keys = "<identifier xmlns:p=\"http://openconfig.net/yang/policy-types\">p:STATIC</identifier><name>DEFAULT</name>";
    format!(
        "<protocols><protocol>{keys}<config>{keys}</config><static-routes><static><prefix>{prefix}</prefix><config>\
         <prefix>{prefix}</prefix></config><next-hops><next-hop><index>1</index><config><index>1</index><next-hop>\
         {next_hop}</next-hop></config></next-hop></next-hops></static></static-routes></protocol></protocols>"
    )
}

pub const NO_VRF: &str = "<network-instances xmlns=\"http://openconfig.net/yang/network-instance\" \
    xmlns:nc=\"urn:ietf:params:xml:ns:netconf:base:1.0\"><network-instance nc:operation=\"remove\"><name>blue</name>\
    </network-instance></network-instances>";

/// A fabric with a router `gw1` at the spine; node1 is in VLAN 100, node2 in VLAN 200.
pub async fn testbed() -> Testbed {
    testbed_of("openconfig").await
}

/// The same with a router of this dialect.
pub async fn testbed_of(dialect: &str) -> Testbed {
    let mut topology = Topology::leaf_spine(2, 1, 2);
    topology.add_router("gw1", dialect, &["spine1"]);
    let testbed = Testbed::on(&topology).await;
    for (switch, ports) in [
        ("leaf1", &["Ethernet49"][..]),
        ("leaf2", &["Ethernet49"]),
        ("spine1", &["Ethernet1", "Ethernet2", "Ethernet32"]),
    ] {
        for port in ports {
            let edit = eno_simulator::HandEdit {
                define_vlans: [100, 200].map(|id| (id, format!("v{id}"))).into(),
                ..trunk(port, &[100, 200])
            };
            testbed.fabric.switch(switch).expect(switch).change_by_hand(&edit).expect("the port exists");
        }
    }
    testbed.hand_edit("leaf1", &access("Ethernet1", 100)).await;
    testbed.hand_edit("leaf2", &access("Ethernet1", 200)).await;
    testbed
}

pub fn vrf(testbed: &Testbed, switch: &str, name: &str) -> Option<VrfStatus> {
    testbed.data_plane().status().switches[switch].vrfs.get(name).cloned()
}

/// Sets the addresses of a host anew, and its default gateways.
pub fn readdress(host: &Host, addresses: &[&str], gateways: &[&str]) {
    succeed(host.command("ip").args(["address", "flush", "dev", "eth1", "scope", "global"]));
    for address in addresses {
        succeed(host.command("ip").args(["address", "add", address, "dev", "eth1", "nodad"]));
    }
    for gateway in gateways {
        succeed(host.command("ip").args(["route", "add", "default", "via", gateway]));
    }
}

/// Pings once in a namespace, and waits for a second.
fn pings_once(netns: &Path, address: &str) -> bool {
    pings_within(netns, address, "1")
}

/// Pings once in a namespace, and waits for so many seconds.
fn pings_within(netns: &Path, address: &str, wait: &str) -> bool {
    let mut ping = Command::new("nsenter");
    ping.arg(format!("--net={}", netns.display())).args(["ping", "-n", "-c", "1", "-W", wait, address]);
    ping.output().expect("ping runs").status.success()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: makes network namespaces"]
async fn host_pings_the_host_behind_its_vrf_only() {
    let testbed = testbed().await;
    // Both VRFs have the same prefixes.
    let routed = ["10.7.0.254/24", "2001:db8:7::fe/64"];
    for (name, vlan) in [("blue", 100), ("red", 200)] {
        let xml = subinterface(vlan, &routed) + &instance(name, &member("Ethernet1", Some(vlan)));
        testbed.merge_xml("gw1", &xml).await;
    }
    readdress(&testbed.node1, &["10.7.0.1/24", "2001:db8:7::1/64"], &["10.7.0.254", "2001:db8:7::fe"]);
    readdress(&testbed.node2, &["10.7.0.2/24", "2001:db8:7::2/64"], &["10.7.0.254", "2001:db8:7::fe"]);
    for address in OUTSIDE {
        assert!(testbed.node1.reaches(address), "{address}");
        assert!(testbed.node2.reaches(address), "{address}");
    }
    assert!(!testbed.node1.pings("10.7.0.2"), "the other VRF has the same prefix");
    let [blue, red] = ["blue", "red"].map(|name| vrf(&testbed, "gw1", name).expect("it has an interface"));
    assert!(pings_once(&blue.host.netns, "10.7.0.1") && !pings_once(&blue.host.netns, "10.7.0.2"));
    assert!(pings_once(&red.host.netns, "10.7.0.2") && !pings_once(&red.host.netns, "10.7.0.1"));

    // A removed VRF leaves nothing.
    let namespaces =
        |vrf: &VrfStatus| [&vrf.netns, &vrf.host.netns].map(|path| std::fs::read_link(path).ok());
    let blue_namespaces = namespaces(&blue);
    testbed.merge_xml("gw1", NO_VRF).await;
    assert_eq!(vrf(&testbed, "gw1", "blue"), None);
    assert!(!testbed.node1.pings(OUTSIDE[0]) && testbed.node2.reaches(OUTSIDE[0]));
    let netns = testbed.data_plane().netns().to_owned();
    let mut links = Command::new("nsenter");
    let links = succeed(links.arg(format!("--net={}", netns.display())).args(["ip", "-br", "link"]));
    let links = String::from_utf8_lossy(&links.stdout).into_owned();
    assert!(links.contains("v200") && !links.contains("v100"), "{links}");
    // Other files may have the numbers of the closed ones.
    let gone = |before: &[Option<PathBuf>; 2], vrf| {
        before.iter().zip(namespaces(vrf)).all(|(before, after)| before.is_some() && *before != after)
    };
    assert!(gone(&blue_namespaces, &blue), "its namespaces are there");
    let red_namespaces = namespaces(&red);
    testbed.fabric.shutdown().await;
    assert!(gone(&red_namespaces, &red), "the namespaces survive the fabric");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: makes network namespaces"]
async fn changed_address_is_answered_within_a_second() {
    let testbed = testbed().await;
    let xml = subinterface(100, &["10.7.0.254/24"]) + &instance("blue", &member("Ethernet1", Some(100)));
    testbed.merge_xml("gw1", &xml).await;
    let netns = testbed.node1.netns();
    assert!(testbed.node1.reaches("10.7.0.254"));
    for address in ["10.7.0.253", "10.7.0.252"] {
        let began = Instant::now();
        let router = testbed.fabric.switch("gw1").expect("gw1");
        router.edit_xml_by_hand(&subinterface(100, &[&format!("{address}/24")])).expect("valid");
        while !pings_within(&netns, address, "0.2") {
            assert!(began.elapsed() < Duration::from_secs(5), "{address} does not answer");
        }
        let took = began.elapsed();
        assert!(took < Duration::from_secs(1), "{took:?}");
    }
    testbed.settled().await;
    assert!(!testbed.node1.pings("10.7.0.254"), "the old address is gone");
    testbed.fabric.shutdown().await;
}

/// The MAC address that node1 takes for an address.
fn neighbour(testbed: &Testbed, address: &str) -> String {
    let shown = succeed(testbed.node1.command("ip").args(["neighbour", "show", address]));
    String::from_utf8_lossy(&shown.stdout).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: makes network namespaces"]
async fn new_address_is_announced_to_hosts_that_knew_another_owner() {
    let testbed = testbed().await;
    let stale = "02:00:00:00:00:99";
    readdress(&testbed.node1, &["10.7.0.1/24", "2001:db8:7::1/64"], &[]);
    let addresses = ["10.7.0.254", "2001:db8:7::fe"];
    for address in addresses {
        let entry = ["neighbour", "replace", address, "lladdr", stale, "dev", "eth1", "nud", "stale"];
        succeed(testbed.node1.command("ip").args(entry));
    }
    let routed = ["10.7.0.254/24", "2001:db8:7::fe/64"];
    let xml = subinterface(100, &routed) + &instance("blue", &member("Ethernet1", Some(100)));
    testbed.merge_xml("gw1", &xml).await;
    for address in addresses {
        let began = Instant::now();
        while neighbour(&testbed, address).contains(stale) {
            assert!(began.elapsed() < Duration::from_secs(1), "{}", neighbour(&testbed, address));
        }
        assert!(neighbour(&testbed, address).contains("02:e2:"), "{}", neighbour(&testbed, address));
    }
    testbed.fabric.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: makes network namespaces"]
async fn static_route_leads_to_an_address_behind_a_host() {
    let testbed = testbed().await;
    let xml = subinterface(100, &["10.7.0.254/24"]) + &instance("blue", &member("Ethernet1", Some(100)));
    testbed.merge_xml("gw1", &xml).await;
    readdress(&testbed.node1, &["10.7.0.1/24", "192.0.2.1/32"], &["10.7.0.254"]);
    let blue = vrf(&testbed, "gw1", "blue").expect("it has an interface");
    assert!(!pings_once(&blue.host.netns, "192.0.2.1"));
    testbed.merge_xml("gw1", &instance("blue", &route("192.0.2.0/24", "10.7.0.1"))).await;
    assert!(pings_once(&blue.host.netns, "192.0.2.1"));
    // The route stays when the address of the interface changes within its network.
    testbed.merge_xml("gw1", &subinterface(100, &["10.7.0.253/24"])).await;
    readdress(&testbed.node1, &["10.7.0.1/24", "192.0.2.1/32"], &["10.7.0.253"]);
    assert!(pings_once(&blue.host.netns, "192.0.2.1"));
    testbed.fabric.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: makes network namespaces"]
async fn switch_routes_a_vlan_by_its_irb_interface() {
    let testbed = testbed().await;
    let xml = irb(100, &["10.7.0.254/24"]) + &instance("blue", &member("Vlan100", None));
    testbed.merge_xml("leaf2", &xml).await;
    readdress(&testbed.node1, &["10.7.0.1/24"], &["10.7.0.254"]);
    assert!(testbed.node1.reaches(OUTSIDE[0]));
    testbed.hand_edit("leaf2", &access("Ethernet1", 100)).await;
    assert!(testbed.node1.reaches("10.7.0.2"), "the VLAN is switched, too");
    testbed.fabric.shutdown().await;
}
