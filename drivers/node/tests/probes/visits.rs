//! What the agent of another node may have this one do, and what others find there.

use std::io::ErrorKind;
use std::net::{Ipv6Addr, SocketAddrV6, TcpStream, UdpSocket};
use std::time::Duration;

use eno_conformance::soon;
use eno_driver_node::netlink::Netlink;
use eno_schemas::{Subject, Visit, decode, encode, probe_mac};
use futures::StreamExt as _;

use super::fixture::*;
use crate::host::common::Net;

/// Sends visits to the first node, as the agent of another one.
struct Other {
    client: async_nats::Client,
    answers: async_nats::Subscriber,
    name: &'static str,
}

impl Other {
    async fn new(world: &World, name: &'static str) -> Self {
        let client = world.engine.connection.client.clone();
        let subject = Subject::Visit { to: name.into(), from: "node1".into() }.to_string();
        let answers = client.subscribe(subject).await.unwrap();
        Self { client, answers, name }
    }

    /// The next visit that the first node asks for.
    async fn asked(&mut self) -> Visit {
        let asked = async {
            loop {
                let message = self.answers.next().await.unwrap();
                let visit: Visit = decode(&message.payload).unwrap();
                if visit.there.is_none() {
                    return visit;
                }
            }
        };
        soon("a visit that is asked for", asked).await
    }

    /// Says that this node is on all VLANs of a visit.
    async fn confirm(&self, visit: Visit) {
        let subject = Subject::Visit { to: "node1".into(), from: self.name.into() }.to_string();
        let visit = Visit { there: Some(visit.vlans.clone()), ..visit };
        self.client.publish(subject, encode(&visit).unwrap().into()).await.unwrap();
    }

    async fn send(&self, id: u64, set: &str) {
        self.send_echo(id, set, "").await;
    }

    async fn send_echo(&self, id: u64, set: &str, echo: &str) {
        let subject = Subject::Visit { to: "node1".into(), from: self.name.into() }.to_string();
        let visit = Visit {
            point: POINT.into(),
            network: NETWORK.into(),
            id,
            vlans: vlans(set),
            echo: vlans(echo),
            there: None,
            ports: None,
        };
        self.client.publish(subject, encode(&visit).unwrap().into()).await.unwrap();
    }

    /// Where the first node is, as it answers to the visit with this number.
    async fn answer(&mut self, id: u64) -> String {
        self.answer_with_echo(id).await.0
    }

    /// The same, and where it answers echo requests.
    async fn answer_with_echo(&mut self, id: u64) -> (String, String) {
        let (visit, there) = self.whole_answer(id).await;
        (there, visit.echo.to_string())
    }

    /// The number of the first node's ports.
    async fn answer_with_number(&mut self, id: u64) -> u64 {
        self.whole_answer(id).await.0.ports.expect("a number")
    }

    async fn whole_answer(&mut self, id: u64) -> (Visit, String) {
        let answered = async {
            loop {
                let message = self.answers.next().await.unwrap();
                let visit: Visit = decode(&message.payload).unwrap();
                // Others are requests of its own.
                if let Some(there) = &visit.there {
                    assert_eq!(visit.id, id);
                    let there = there.to_string();
                    return (visit, there);
                }
            }
        };
        soon("an answer", answered).await
    }
}

/// True when the address is asked for and answered, with that MAC address.
fn is_there(net: &Net, address: Ipv6Addr) -> bool {
    let _ = net.run("ping", &["-c", "1", "-W", "1", "-I", "eth0", &address.to_string()]);
    let expected = mac_text(probe_mac(CLUSTER, "node1", POINT));
    net.ip("-6 neigh show dev eth0").lines().any(|line| {
        line.contains(&address.to_string()) && line.contains(&expected) && !line.contains("FAILED")
    })
}

fn mac_text(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

/// True when the address answers an echo request in a packet of 1,500 bytes.
fn answers_echo(net: &Net, address: Ipv6Addr) -> bool {
    let args = ["-c", "3", "-i", "0.2", "-W", "1", "-M", "do", "-s", "1452", "-I", "eth0"];
    match net.run("ping", &[&args[..], &[&address.to_string()]].concat()) {
        Ok(_) => true,
        Err(error) => {
            assert!(error.contains("100% packet loss"), "{error}");
            false
        }
    }
}

/// Checks that the first node answers neither TCP nor UDP on a VLAN.
async fn check_silence(net: &Net, target: Ipv6Addr) {
    let index = net.0.run(|| Netlink::open()?.index_of("eth0")).await.unwrap().unwrap();
    let tried = net
        .0
        .run(move || {
            let to = SocketAddrV6::new(target, 22, 0, index);
            let tcp = TcpStream::connect_timeout(&to.into(), Duration::from_secs(1));
            let udp = UdpSocket::bind("[::]:0").unwrap();
            udp.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
            udp.connect(SocketAddrV6::new(target, 53, 0, index)).unwrap();
            udp.send(b"x").unwrap();
            (tcp.unwrap_err().kind(), udp.recv(&mut [0; 8]).unwrap_err().kind())
        })
        .await
        .unwrap();
    assert_eq!(tried.0, ErrorKind::TimedOut);
    assert!(matches!(tried.1, ErrorKind::WouldBlock | ErrorKind::TimedOut), "{:?}", tried.1);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: network namespaces and ovs-vswitchd"]
async fn visited_port_answers_for_its_link_address_only() {
    let mut world = World::new(1).await;
    world.start_agent(0).await;
    let scanner = world.host("scan", 10, &["fe80::99/64"]);
    let mut other = Other::new(&world, "node2").await;
    world.command(0, vec![ring(0, "10-12")]).await;
    world.reported(0).await;
    other.send(1, "10,99").await;
    assert_eq!(other.answer(1).await, "10");
    let target = address(10);
    let found = async { while !is_there(&scanner, target) {} };
    soon("it answers for its address", found).await;
    let pinged = scanner.run("ping", &["-c", "2", "-i", "0.2", "-W", "1", "-I", "eth0", &target.to_string()]);
    assert!(pinged.unwrap_err().contains("100% packet loss"));
    // Nor does it say that an address is not its own.
    scanner.ip("-6 route add 2001:db8::/64 dev eth0");
    let mac = mac_text(probe_mac(CLUSTER, "node1", POINT));
    scanner.ip(&format!("-6 neigh add 2001:db8::9 lladdr {mac} dev eth0"));
    let pinged = scanner.run("ping", &["-c", "2", "-i", "0.2", "-W", "1", "2001:db8::9"]).unwrap_err();
    assert!(pinged.contains("100% packet loss") && !pinged.contains("nreachable"), "{pinged}");
    check_silence(&scanner, target).await;

    // The next visit ends this one, and its own time does.
    other.send(2, "11").await;
    assert_eq!(other.answer(2).await, "11");
    let left = async { while world.nodes[0].ends().await.iter().filter(|end| end.carrier).count() > 1 {} };
    soon("it leaves VLAN 10", left).await;
    scanner.ip("-6 neigh flush dev eth0");
    assert!(!is_there(&scanner, target));
    let left = async { while world.nodes[0].ends().await.iter().any(|end| end.carrier) {} };
    soon("it leaves VLAN 11", left).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: network namespaces and ovs-vswitchd"]
async fn visited_port_answers_echo_only_while_it_is_asked_to() {
    let mut world = World::new(1).await;
    world.start_agent(0).await;
    let scanner = world.host("scan", 10, &["fe80::99/64"]);
    let mut other = Other::new(&world, "node2").await;
    let mut probes = of_size(1500, ring(0, "10"));
    probes.paths.extend(ring(0, "11").paths);
    world.command(0, vec![probes]).await;
    world.reported(0).await;
    let target = address(10);
    other.send(1, "10").await;
    assert_eq!(other.answer_with_echo(1).await, ("10".to_owned(), String::new()));
    let found = async { while !is_there(&scanner, target) {} };
    soon("it answers for its address", found).await;
    assert!(!answers_echo(&scanner, target), "nobody asked for it");

    // This node probes VLAN 11 by small packets only.
    other.send_echo(2, "10-11", "10-12").await;
    assert_eq!(other.answer_with_echo(2).await, ("10-11".to_owned(), "10".to_owned()));
    assert!(answers_echo(&scanner, target));
    check_silence(&scanner, target).await;
    let all = scanner.run("ping", &["-c", "2", "-i", "0.2", "-W", "1", "-I", "eth0", "ff02::1"]);
    let all = all.unwrap_or_else(|failure| failure);
    assert!(!all.contains(&target.to_string()), "it answers no multicast: {all}");

    other.send_echo(3, "10-11", "11").await;
    assert_eq!(other.answer_with_echo(3).await, ("10-11".to_owned(), String::new()));
    assert!(!answers_echo(&scanner, target), "this visit does not ask for it");

    // Ports fail, and are made anew: by this visit, or by a question of the node itself before it.
    other.send_echo(4, "10", "10").await;
    assert_eq!(other.answer_with_echo(4).await.1, "10");
    for end in world.nodes[0].ends().await {
        world.nodes[0].switch.ip(&["link", "del", &end.name]);
    }
    other.send_echo(5, "11-12", "").await;
    other.answer(5).await;
    other.send_echo(6, "10", "").await;
    assert_eq!(other.answer(6).await, "10");
    let found = async { while !is_there(&scanner, target) {} };
    soon("it answers for its address", found).await;
    assert!(!answers_echo(&scanner, target), "the visit ended with its port");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: network namespaces and ovs-vswitchd"]
async fn answer_tells_whether_ports_are_the_same() {
    let mut world = World::new(1).await;
    world.start_agent(0).await;
    let mut other = Other::new(&world, "node2").await;
    world.command(0, vec![ring(0, "10-11")]).await;
    world.reported(0).await;
    other.send(1, "10").await;
    let first = other.answer_with_number(1).await;
    other.send(2, "10-11").await;
    assert_eq!(other.answer_with_number(2).await, first);
    // The command that removes them and the one that has them made anew.
    world.command(0, Vec::new()).await;
    let gone = async { while !world.nodes[0].ends().await.is_empty() {} };
    soon("its ports are gone", gone).await;
    world.command(0, vec![ring(0, "10-11")]).await;
    world.reported(0).await;
    other.send(3, "10").await;
    assert_ne!(other.answer_with_number(3).await, first);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: network namespaces and ovs-vswitchd"]
async fn only_the_previous_node_is_answered_and_no_visit_takes_more_than_half_of_the_ports() {
    let mut world = World::new(1).await;
    world.start_agent(0).await;
    let (mut other, mut stranger) = (Other::new(&world, "node2").await, Other::new(&world, "node9").await);
    world.command(0, vec![ring(0, "1-40")]).await;
    world.reported(0).await;
    stranger.send(1, "1-40").await;
    other.send(2, "1-40").await;
    assert_eq!(other.answer(2).await.parse::<eno_schemas::VlanSet>().unwrap().len(), 10);
    other.send(3, "31-40").await;
    assert_eq!(other.answer(3).await, "31-40");
    assert!(world.nodes[0].ends().await.len() <= 20);
    // The stranger's came first, and nothing was answered to it.
    let silence = tokio::time::timeout(Duration::from_millis(1), stranger.answers.next());
    assert!(silence.await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: network namespaces and ovs-vswitchd"]
async fn agent_that_leaves_while_it_is_asked_loses_no_vlan() {
    let mut world = World::new(1).await;
    world.start_agent(0).await;
    let mut other = Other::new(&world, "node2").await;
    world.command(0, vec![ring(0, "10")]).await;
    // It is there, and is killed before it is asked.
    let visit = other.asked().await;
    other.confirm(visit).await;
    let found = world.results(0, |found| !found.unasked.is_empty() || !found.lost.is_empty()).await;
    assert!(found.lost.is_empty(), "{found:?}");
    // It stays, and does not answer.
    let stays = tokio::spawn(async move {
        loop {
            let visit = other.asked().await;
            other.confirm(visit).await;
        }
    });
    world.results(0, |found| found.lost == vlans("10")).await;
    stays.abort();
}
