use std::net::{Ipv4Addr, Ipv6Addr};

use super::*;
use crate::netlink::program::interpreter::passes;

const GATEWAY: &str = "10.9.0.1";
const OWN: &str = "10.9.0.2";
const GATEWAY6: &str = "fd09::1";
const OWN6: &str = "fd09::2";
const ACK: u8 = 0x10;

fn nets(nets: &[&str]) -> Vec<IpNet> {
    nets.iter().map(|net| net.parse().unwrap()).collect()
}

/// The own addresses are in prefixes, too.
fn guarded() -> Vec<Instruction> {
    let gateways = ["10.9.0.1", "10.9.0.254", "fd09::1"].map(|ip| ip.parse().unwrap());
    let prefixes = nets(&["10.9.0.0/24", "203.0.113.0/28", "fd09::/64", "2001:db8:7::/48"]);
    program(&nets(&["10.9.0.2/24", "fd09::2/64"]), &gateways, &prefixes).unwrap()
}

fn frame(ether_type: u32, payload: &[u8]) -> Vec<u8> {
    [&[2; 12][..], &u16::try_from(ether_type).unwrap().to_be_bytes(), payload].concat()
}

fn ip4(ip: &str) -> [u8; 4] {
    ip.parse::<Ipv4Addr>().unwrap().octets()
}

fn ip6(ip: &str) -> [u8; 16] {
    ip.parse::<Ipv6Addr>().unwrap().octets()
}

fn arp(kind: u8, sender: &str, target: &str) -> Vec<u8> {
    frame(ARP, &[&[0, 1, 8, 0, 6, 4, 0, kind][..], &[2; 6], &ip4(sender), &[0; 6], &ip4(target)].concat())
}

/// A packet of either family.
fn packet(protocol: u8, source: &str, destination: &str, payload: &[u8]) -> Vec<u8> {
    if source.contains(':') {
        let header = [&[0x60, 0, 0, 0, 0, 0, protocol, 64][..], &ip6(source), &ip6(destination)].concat();
        return frame(IPV6, &[&header, payload].concat());
    }
    let header = [&[0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, protocol, 0, 0][..], &ip4(source), &ip4(destination)];
    frame(IPV4, &[&header.concat(), payload].concat())
}

fn tcp(source: u16, destination: u16, flags: u8) -> Vec<u8> {
    let mut header = vec![0; 20];
    header[..2].copy_from_slice(&source.to_be_bytes());
    header[2..4].copy_from_slice(&destination.to_be_bytes());
    header[13] = flags;
    header
}

fn udp(destination: u16) -> Vec<u8> {
    [&50000_u16.to_be_bytes()[..], &destination.to_be_bytes(), &[0; 4]].concat()
}

fn icmp(kind: u8) -> Vec<u8> {
    vec![kind, 0, 0, 0, 0, 0, 0, 0]
}

/// An ICMP error about a packet from this address.
fn error_about(kind: u8, source: &str) -> Vec<u8> {
    let quoted = packet(6, source, source, &tcp(179, 40000, ACK));
    [&icmp(kind)[..], &quoted[14..]].concat()
}

fn discovery(kind: u8, source: &str, target: &str) -> Vec<u8> {
    packet(58, source, "ff02::1:ff00:2", &[&[kind, 0, 0, 0, 0, 0, 0, 0][..], &ip6(target)].concat())
}

#[track_caller]
fn assert_verdicts(cases: impl IntoIterator<Item = (bool, String, Vec<u8>)>) {
    let program = guarded();
    for (expected, what, frame) in cases {
        assert_eq!(passes(&program, None, &frame), expected, "{what}");
        assert!(!passes(&program, Some(0), &frame) && !passes(&program, Some(7), &frame), "{what}, tagged");
        if !expected {
            // No part of a frame passes, either.
            let part = (0..frame.len()).find(|length| passes(&program, None, &frame[..*length]));
            assert_eq!(part, None, "{what}");
        }
    }
}

fn named<const N: usize>(cases: [(bool, &str, Vec<u8>); N]) -> [(bool, String, Vec<u8>); N] {
    cases.map(|(expected, what, frame)| (expected, what.to_owned(), frame))
}

#[test]
fn only_sessions_with_gateways_reach_own_addresses() {
    for (gateway, own, other) in [(GATEWAY, OWN, "10.9.0.3"), (GATEWAY6, OWN6, "fd09::3")] {
        let (error, echo, redirect) = if own.contains(':') { (58, 128, 137) } else { (1, 8, 5) };
        let errors: &[u8] = if own.contains(':') { &[1, 2, 3, 4] } else { &[3, 11, 12] };
        let from = |source: &str, protocol: u8, payload: Vec<u8>| packet(protocol, source, own, &payload);
        let [syn, both] = [SYN, SYN_AND_ACK].map(|flags| u8::try_from(flags).unwrap());
        let cases = [
            (true, "BGP", from(gateway, 6, tcp(40000, 179, syn))),
            (true, "an answer of BGP", from(gateway, 6, tcp(179, 40000, both))),
            (true, "data of BGP", from(gateway, 6, tcp(179, 40000, ACK))),
            (false, "a connection from the port of BGP", from(gateway, 6, tcp(179, 10250, syn))),
            (false, "a kubelet", from(gateway, 6, tcp(40000, 10250, syn))),
            (false, "data of another connection", from(gateway, 6, tcp(40000, 22, ACK))),
            (false, "a short TCP header", from(gateway, 6, tcp(179, 40000, ACK)[..12].to_vec())),
            (false, "BGP of another", from(other, 6, tcp(40000, 179, syn))),
            (false, "an answer of another", from(other, 6, tcp(179, 40000, ACK))),
            (true, "BFD", from(gateway, 17, udp(3784))),
            (true, "BFD echo", from(gateway, 17, udp(3785))),
            (true, "BFD over several hops", from(gateway, 17, udp(4784))),
            (false, "DNS", from(gateway, 17, udp(53))),
            (false, "BFD of another", from(other, 17, udp(3784))),
            (false, "an echo request", from(gateway, error, icmp(echo))),
            (false, "a redirect", from(gateway, error, icmp(redirect))),
            (false, "an error of another", from(other, error, error_about(errors[0], own))),
            (
                false,
                "an error about a packet of another",
                from(gateway, error, error_about(errors[0], other)),
            ),
            (false, "an error about nothing", from(gateway, error, icmp(errors[0]))),
            (false, "SCTP", from(gateway, 132, tcp(179, 179, 0))),
        ];
        assert_verdicts(cases.map(|(expected, what, frame)| (expected, format!("{what} to {own}"), frame)));
        let error = |kind: &u8| {
            (true, format!("error {kind} to {own}"), from(gateway, error, error_about(*kind, own)))
        };
        assert_verdicts(errors.iter().map(error));
    }
    let mut options = packet(6, GATEWAY, OWN, &[&[1; 4][..], &tcp(40000, 179, 2)].concat());
    options[14] = 0x46;
    let fragment = |flags: u8, offset: u8| {
        let mut frame = packet(6, GATEWAY, OWN, &tcp(40000, 179, 2));
        frame[20..22].copy_from_slice(&[flags, offset]);
        frame
    };
    let behind = |header: [u8; 8]| [&header[..], &tcp(40000, 179, 2)].concat();
    assert_verdicts(named([
        (false, "IPv4 options", options),
        (true, "no fragment", fragment(0x40, 0)),
        (false, "a first fragment", fragment(0x20, 0)),
        (false, "a later fragment", fragment(0, 1)),
        (false, "a fragment of IPv6", packet(44, GATEWAY6, OWN6, &behind([6, 0, 0, 0, 0, 0, 0, 1]))),
        (
            false,
            "BGP behind hop-by-hop options",
            packet(0, GATEWAY6, OWN6, &behind([6, 0, 1, 4, 0, 0, 0, 0])),
        ),
        (false, "BGP behind a routing header", packet(43, GATEWAY6, OWN6, &behind([6, 0, 0, 0, 0, 0, 0, 0]))),
        (
            false,
            "BGP behind destination options",
            packet(60, GATEWAY6, OWN6, &behind([6, 0, 1, 4, 0, 0, 0, 0])),
        ),
    ]));
}

#[test]
fn neighbours_are_found_and_nothing_else_is_learnt() {
    let local = "fe80::1";
    let hop_by_hop = |next: u8, kind: u8| {
        let rest = [&[next, 0, 5, 2, 0, 0, 1, 0][..], &[kind, 0, 0, 0], &[0; 20]].concat();
        packet(0, local, "ff02::1", &rest)
    };
    assert_verdicts(named([
        (true, "a gateway's request", arp(1, GATEWAY, OWN)),
        (true, "a gateway's answer", arp(2, GATEWAY, OWN)),
        (true, "another gateway's announcement", arp(1, "10.9.0.254", "10.9.0.254")),
        (false, "a request of another", arp(1, "10.9.0.3", OWN)),
        (false, "a probe", arp(1, "0.0.0.0", OWN)),
        (false, "an announcement of the own address", arp(1, OWN, OWN)),
        (false, "ARP of other lengths", frame(ARP, &[&[0, 1, 8, 0, 6, 6, 0, 1][..], &[0; 20]].concat())),
        (true, "a solicitation", discovery(135, local, OWN6)),
        (true, "a solicitation from a global address", discovery(135, GATEWAY6, OWN6)),
        (true, "detection of the own address", discovery(135, "::", OWN6)),
        (false, "a solicitation for another", discovery(135, local, "fd09::3")),
        (false, "a solicitation for the anycast address", discovery(135, local, "fd09::")),
        (true, "an advertisement", discovery(136, local, GATEWAY6)),
        (false, "an advertisement of another", discovery(136, GATEWAY6, "fd09::3")),
        (false, "an advertisement of the own address", discovery(136, local, OWN6)),
        (false, "a solicitation for a link-local address", discovery(135, GATEWAY6, "fe80::2")),
        (false, "BGP to a link-local address", packet(6, GATEWAY6, "fe80::2", &tcp(40000, 179, 2))),
        (false, "a router advertisement", discovery(134, local, OWN6)),
        (false, "a redirect", discovery(137, local, GATEWAY6)),
        (true, "a query for listeners", hop_by_hop(58, 130)),
        (false, "a report of listeners", hop_by_hop(58, 143)),
        (false, "a router advertisement behind options", hop_by_hop(58, 134)),
        (false, "UDP behind options", hop_by_hop(17, 130)),
    ]));
}

#[test]
fn packets_to_prefixes_pass_but_not_to_own_networks() {
    let to = |destination: &str| packet(6, "192.0.2.99", destination, &tcp(40000, 443, 2));
    let to6 = |destination: &str| packet(6, "2001:db8:99::1", destination, &tcp(40000, 443, 2));
    let mut fragment = to("203.0.113.7");
    fragment[20] = 0x20;
    assert_verdicts(named([
        (true, "a prefix", to("203.0.113.7")),
        (true, "a fragment to a prefix", fragment),
        (true, "a neighbour that a prefix has", to("10.9.0.3")),
        (false, "the own address that a prefix has", to(OWN)),
        (false, "the broadcast address that a prefix has", to("10.9.0.255")),
        (false, "the network that a prefix has", to("10.9.0.0")),
        (false, "an address behind a prefix", to("203.0.113.16")),
        (false, "an address of the node", to("192.0.2.1")),
        (false, "all hosts", to("255.255.255.255")),
        (false, "a multicast group", to("224.0.0.5")),
        (true, "a prefix of IPv6", to6("2001:db8:7:ffff::1")),
        (
            true,
            "an extension header to it",
            packet(60, GATEWAY6, "2001:db8:7::1", &[6, 0, 1, 4, 0, 0, 0, 0, 0, 0, 0, 0]),
        ),
        (true, "an echo request to it", packet(58, GATEWAY6, "2001:db8:7::1", &icmp(128))),
        (false, "a router advertisement to it", packet(58, GATEWAY6, "2001:db8:7::1", &icmp(134))),
        (false, "the own address of IPv6", to6(OWN6)),
        (false, "the anycast address", to6("fd09::")),
        (false, "an address behind it", to6("2001:db8:8::1")),
        (false, "a multicast group of IPv6", to6("ff02::1")),
        (false, "LLDP", frame(0x88cc, &[0; 60])),
        (false, "a tag in the frame", frame(0x8100, &[&[0, 7, 8, 0][..], &[0; 60]].concat())),
    ]));
}

#[test]
fn what_exceeds_the_kernel_is_refused() {
    let prefixes = |many: u32| -> Vec<IpNet> {
        (0..many).map(|n| IpNet::new(Ipv4Addr::from(0xcb00_0000 + (n << 8)).into(), 24).unwrap()).collect()
    };
    let own = nets(&["10.9.0.2/24"]);
    assert!(program(&own, &[], &prefixes(800)).is_some());
    assert!(program(&own, &[], &prefixes(1100)).is_none());
}
