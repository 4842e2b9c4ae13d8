//! The program that guards an interface of the host for BGP sessions ([`HostNetwork::Interface`]). Pure.
//!
//! It judges what comes in by the interface, before netfilter and before the kernel's own protocols. These pass:
//!
//! - ARP (RFC 826) from a gateway's address; neighbour solicitations for an own address and advertisements of a gateway's
//!   (RFC 4861); queries for multicast listeners (RFC 2710), without which a switch that snoops stops solicitations.
//! - From a gateway to an own address: BGP (RFC 4271), BFD (RFC 5881, RFC 5883), errors of ICMP and ICMPv6. From the port
//!   of BGP no connection can be opened, only answered.
//! - Packets to one of the prefixes, unless they are for an own address, or one by which the kernel means its network.
//!
//! All else is dropped: what has a tag, fragments, options and extension headers to an own address, and short frames.
//!
//! [`HostNetwork::Interface`]: eno_schemas::HostNetwork::Interface

use std::net::IpAddr;

use ipnet::IpNet;

use crate::netlink::program::{
    AND, ARP, ARP_SENDER, Code, DROP, ETHER_TYPE, HOP_BY_HOP, ICMPV6, IPV4, IPV6, LOAD_BYTE, LOAD_HALF,
    ND_TARGET, NEIGHBOUR_ADVERTISEMENT, NEIGHBOUR_SOLICITATION, PASS, PAYLOAD, V4_SOURCE, V6_NEXT_HEADER,
    V6_PAYLOAD, V6_SOURCE, VLAN_TAG_PRESENT, demand, demand_arp, demand_length, end, end_if_any, if_equal,
    if_in, instruction, load,
};
use crate::netlink::{Instruction, MAX_INSTRUCTIONS};

const V4_DESTINATION: u32 = PAYLOAD + 16;
const V4_PAYLOAD: u32 = PAYLOAD + 20;
const V6_DESTINATION: u32 = PAYLOAD + 24;
/// Bytes of ARP, of neighbour discovery, and of a TCP header.
const ARP_LENGTH: u32 = 28;
const ND_LENGTH: u32 = ND_TARGET + 16;
const TCP_LENGTH: u32 = 20;

const ICMP: u32 = 1;
const TCP: u32 = 6;
const UDP: u32 = 17;
/// The port of BGP.
const BGP: u32 = 179;
/// The ports of BFD: control and echo of one hop, control of several.
const BFD: [u32; 3] = [3784, 3785, 4784];
/// SYN and ACK among the flags of TCP.
const SYN: u32 = 0x02;
const SYN_AND_ACK: u32 = 0x12;
/// Destination unreachable, time exceeded, parameter problem (RFC 792).
const ICMP_ERRORS: [u32; 3] = [3, 11, 12];
/// Destination unreachable, packet too big, time exceeded, parameter problem (RFC 4443).
const ICMPV6_ERRORS: [u32; 4] = [1, 2, 3, 4];
/// Router solicitations and advertisements, redirects.
const OF_ROUTERS: [u32; 3] = [133, 134, 137];
/// A query (RFC 2710) behind a header of eight bytes, which says that ICMPv6 follows.
const LISTENER_QUERY: u32 = 130;
const ICMPV6_BEHIND_EIGHT: u32 = 0x3a00;

/// What is known of one family.
struct Family {
    own: Vec<IpNet>,
    /// Addresses by which the kernel means all of a network, or any router in it.
    of_networks: Vec<IpNet>,
    gateways: Vec<IpNet>,
    prefixes: Vec<IpNet>,
}

impl Family {
    fn new(v6: bool, addresses: &[IpNet], gateways: &[IpAddr], prefixes: &[IpNet]) -> Self {
        let of_family = |net: &IpNet| net.addr().is_ipv6() == v6;
        let own = addresses.iter().filter(|net| of_family(net));
        let with_others = own.clone().filter(|net| net.prefix_len() + 1 < net.max_prefix_len());
        Self {
            own: own.clone().map(|net| net.addr().into()).collect(),
            of_networks: with_others
                .flat_map(|net| [Some(net.network()), Some(net.broadcast()).filter(|_| !v6)])
                .flatten()
                .map(IpNet::from)
                .collect(),
            gateways: gateways.iter().copied().map(IpNet::from).filter(of_family).collect(),
            prefixes: prefixes.iter().copied().filter(of_family).collect(),
        }
    }

    fn arp(&self) -> Code {
        let from_gateway = if_in(ARP_SENDER, &self.gateways, end(PASS));
        [demand_length(PAYLOAD + ARP_LENGTH), demand_arp(), from_gateway, end(DROP)].concat()
    }

    fn v4(&self) -> Code {
        let errors = errors(ICMP_ERRORS, V4_PAYLOAD, V4_SOURCE - PAYLOAD, V4_PAYLOAD - PAYLOAD, &self.own);
        let of_sessions = transport(PAYLOAD + 9, V4_PAYLOAD, ICMP, errors);
        let own = [
            // Version 4, and no options.
            load(LOAD_BYTE, PAYLOAD),
            demand(0x45),
            // No fragment: neither more of them nor an offset.
            load(LOAD_HALF, PAYLOAD + 6),
            vec![instruction(AND, 0x3fff)],
            demand(0),
            if_in(V4_SOURCE, &self.gateways, of_sessions),
            end(DROP),
        ];
        [demand_length(V4_PAYLOAD), self.by_destination(V4_DESTINATION, own.concat())].concat()
    }

    fn v6(&self) -> Code {
        let target = |known: &[IpNet]| {
            let target = V6_PAYLOAD + ND_TARGET;
            [demand_length(V6_PAYLOAD + ND_LENGTH), if_in(target, known, end(PASS)), end(DROP)].concat()
        };
        let discovery = [
            demand_length(V6_PAYLOAD + 4),
            load(LOAD_BYTE, V6_PAYLOAD),
            if_equal(NEIGHBOUR_SOLICITATION, target(&self.own)),
            if_equal(NEIGHBOUR_ADVERTISEMENT, target(&self.gateways)),
            end_if_any(&OF_ROUTERS, DROP),
        ];
        let query = [load(LOAD_BYTE, V6_PAYLOAD + 8), end_if_any(&[LISTENER_QUERY], PASS)];
        let behind_options = [
            demand_length(V6_PAYLOAD + 8 + 4),
            load(LOAD_HALF, V6_PAYLOAD),
            if_equal(ICMPV6_BEHIND_EIGHT, query.concat()),
            load(LOAD_BYTE, V6_NEXT_HEADER),
        ];
        // An extension header is none of the protocols of sessions.
        let errors = errors(ICMPV6_ERRORS, V6_PAYLOAD, V6_SOURCE - PAYLOAD, V6_PAYLOAD - PAYLOAD, &self.own);
        let of_sessions = transport(V6_NEXT_HEADER, V6_PAYLOAD, ICMPV6, errors);
        let own = [if_in(V6_SOURCE, &self.gateways, of_sessions), end(DROP)];
        [
            demand_length(V6_PAYLOAD),
            load(LOAD_BYTE, V6_NEXT_HEADER),
            if_equal(HOP_BY_HOP, behind_options.concat()),
            if_equal(ICMPV6, discovery.concat()),
            self.by_destination(V6_DESTINATION, own.concat()),
        ]
        .concat()
    }

    fn by_destination(&self, offset: u32, own: Code) -> Code {
        [
            if_in(offset, &self.own, own),
            if_in(offset, &self.of_networks, end(DROP)),
            if_in(offset, &self.prefixes, end(PASS)),
            end(DROP),
        ]
        .concat()
    }
}

/// Errors about packets that an own address sent. The kernel finds what an error is about by the packet that it quotes:
/// others are not for a host of the VLAN to change. `payload`: the offset of the ICMP header; `source`, `length`: of the
/// quoted IP header.
fn errors<const N: usize>(kinds: [u32; N], payload: u32, source: u32, length: u32, own: &[IpNet]) -> Code {
    let quoted = payload + 8;
    let of_own = [if_in(quoted + source, own, end(PASS)), end(DROP)].concat();
    let any = kinds.into_iter().flat_map(|kind| if_equal(kind, of_own.clone()));
    let any: Code = any.collect();
    [demand_length(quoted + length), load(LOAD_BYTE, payload), any, end(DROP)].concat()
}

/// What gateways may send to an own address. `protocol`: the offset of the next header; `payload`: of what follows.
fn transport(protocol: u32, payload: u32, icmp: u32, errors: Code) -> Code {
    let (source, destination, flags) = (payload, payload + 2, payload + 13);
    let tcp = [
        demand_length(payload + TCP_LENGTH),
        load(LOAD_HALF, destination),
        end_if_any(&[BGP], PASS),
        load(LOAD_HALF, source),
        demand(BGP),
        load(LOAD_BYTE, flags),
        vec![instruction(AND, SYN_AND_ACK)],
        end_if_any(&[SYN], DROP),
        end(PASS),
    ];
    let udp = [demand_length(payload + 8), load(LOAD_HALF, destination), end_if_any(&BFD, PASS), end(DROP)];
    [
        load(LOAD_BYTE, protocol),
        if_equal(TCP, tcp.concat()),
        if_equal(UDP, udp.concat()),
        if_equal(icmp, errors),
        end(DROP),
    ]
    .concat()
}

/// The program of an interface with these own addresses; `None`: it would be longer than the kernel takes, with some
/// 800 prefixes of IPv4 or 300 of IPv6.
pub fn program(addresses: &[IpNet], gateways: &[IpAddr], prefixes: &[IpNet]) -> Option<Vec<Instruction>> {
    let [v4, v6] = [false, true].map(|v6| Family::new(v6, addresses, gateways, prefixes));
    let code = [
        demand_length(PAYLOAD),
        load(LOAD_BYTE, VLAN_TAG_PRESENT),
        demand(0),
        load(LOAD_HALF, ETHER_TYPE),
        if_equal(ARP, v4.arp()),
        if_equal(IPV4, v4.v4()),
        if_equal(IPV6, v6.v6()),
        end(DROP),
    ]
    .concat();
    (code.len() <= MAX_INSTRUCTIONS).then_some(code)
}

#[cfg(test)]
#[path = "session_filter_tests.rs"]
mod tests;
