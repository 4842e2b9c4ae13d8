//! The program that lets only a pod's own addresses out of its interface. Pure.
//!
//! It runs on the host's end of the pair, which the pod can't reach ([`netlink::filter`](crate::netlink)). It judges a
//! frame by its Ethernet header, and by ARP, IPv4, IPv6 and neighbour discovery (RFC 826, 791, 8200, 4861). A frame
//! passes if all of these are the interface's own: the Ethernet source, the sender of ARP, the source of IP, and the
//! target of a neighbour advertisement. Besides, these pass: a probe for an own address that has no sender yet (RFC 5227,
//! RFC 4862), and reports of multicast listeners (RFC 3810). Router advertisements and redirects don't.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use eno_schemas::VlanId;
use ipnet::IpNet;

use super::check::Refusal;
use crate::netlink::program::{
    AND, ARP, ARP_SENDER, Code, DROP, ETHER_TYPE, HOP_BY_HOP, ICMPV6, IPV4, IPV6, LOAD_BYTE, LOAD_HALF,
    LOAD_WORD, ND_TARGET, NEIGHBOUR_ADVERTISEMENT, NEIGHBOUR_SOLICITATION, PASS, PAYLOAD, V4_SOURCE,
    V6_NEXT_HEADER, V6_PAYLOAD, V6_SOURCE, VLAN_TAG, VLAN_TAG_PRESENT, demand, demand_arp, end, end_if_any,
    if_equal, if_in, instruction, load,
};
use crate::netlink::{Instruction, MAX_INSTRUCTIONS};

/// The Ethernet source.
const SOURCE: u32 = 6;

/// IPv6 extension headers that others may follow: hop-by-hop options, routing, fragment, authentication, destination
/// options, mobility, HIP, shim6.
const EXTENSIONS: [u32; 8] = [0, 43, 44, 51, 60, 135, 139, 140];
const FRAGMENT: u32 = 44;
/// Types of ICMPv6.
const MULTICAST_LISTENER: [u32; 4] = [130, 131, 132, 143];
const ROUTER_SOLICITATION: u32 = 133;
/// Router advertisements and redirects.
const OF_ROUTERS: [u32; 2] = [134, 137];
const NEIGHBOUR_DISCOVERY: [u32; 5] = [133, 134, 135, 136, 137];

fn word(bytes: [u8; 4]) -> u32 {
    u32::from_be_bytes(bytes)
}

/// Drops the frame unless the six bytes at an offset are this MAC address.
fn own_mac(offset: u32, mac: [u8; 6]) -> Code {
    [
        load(LOAD_WORD, offset),
        demand(word([mac[0], mac[1], mac[2], mac[3]])),
        load(LOAD_HALF, offset + 4),
        demand(word([0, 0, mac[4], mac[5]])),
    ]
    .concat()
}

/// The link-local address that the kernel derives from a MAC address (RFC 4291, appendix A).
pub fn link_local(mac: [u8; 6]) -> Ipv6Addr {
    let pair = |first: u8, second: u8| u16::from_be_bytes([first, second]);
    let identifier = [pair(mac[0] ^ 2, mac[1]), pair(mac[2], 0xff), pair(0xfe, mac[3]), pair(mac[4], mac[5])];
    Ipv6Addr::new(0xfe80, 0, 0, 0, identifier[0], identifier[1], identifier[2], identifier[3])
}

/// The own addresses of an interface, or of one of its VLANs.
struct Own {
    mac: [u8; 6],
    v4: Vec<u32>,
    v6: Vec<IpNet>,
}

impl Own {
    fn new(mac: [u8; 6], addresses: &[IpNet]) -> Self {
        let mut own = Self { mac, v4: Vec::new(), v6: Vec::new() };
        for address in addresses {
            match address.addr() {
                IpAddr::V4(ip) => own.v4.push(word(ip.octets())),
                IpAddr::V6(ip) => own.v6.push(IpAddr::V6(ip).into()),
            }
        }
        if !own.v6.is_empty() {
            own.v6.push(IpAddr::V6(link_local(mac)).into());
        }
        own
    }

    /// What follows the check of the Ethernet source.
    fn payload(&self) -> Code {
        [
            load(LOAD_HALF, ETHER_TYPE),
            if_equal(ARP, self.arp()),
            if_equal(IPV4, [load(LOAD_WORD, V4_SOURCE), end_if_any(&self.v4, PASS), end(DROP)].concat()),
            if_equal(IPV6, self.v6()),
            // A second tag.
            end_if_any(&[0x8100, 0x88a8, 0x9100], DROP),
            end(PASS),
        ]
        .concat()
    }

    fn arp(&self) -> Code {
        let probe = [load(LOAD_WORD, PAYLOAD + 24), end_if_any(&self.v4, PASS), end(DROP)];
        [
            demand_arp(),
            own_mac(PAYLOAD + 8, self.mac),
            load(LOAD_WORD, ARP_SENDER),
            end_if_any(&self.v4, PASS),
            if_equal(word(Ipv4Addr::UNSPECIFIED.octets()), probe.concat()),
            end(DROP),
        ]
        .concat()
    }

    /// The source comes first: a load behind the end of a frame ends the program, and the frame passes.
    fn v6(&self) -> Code {
        [
            if_in(V6_SOURCE, &self.v6, self.v6_of_own_source()),
            if_in(V6_SOURCE, &[IpAddr::V6(Ipv6Addr::UNSPECIFIED).into()], self.v6_without_source()),
            end(DROP),
        ]
        .concat()
    }

    /// For a target of neighbour discovery.
    fn own_target(&self) -> Code {
        [if_in(V6_PAYLOAD + ND_TARGET, &self.v6, end(PASS)), end(DROP)].concat()
    }

    fn v6_of_own_source(&self) -> Code {
        let of_icmp = [
            load(LOAD_BYTE, V6_PAYLOAD),
            if_equal(NEIGHBOUR_ADVERTISEMENT, self.own_target()),
            end_if_any(&OF_ROUTERS, DROP),
            end(PASS),
        ]
        .concat();
        let mut code = load(LOAD_BYTE, V6_NEXT_HEADER);
        code.extend(if_equal(ICMPV6, of_icmp));
        for header in EXTENSIONS {
            // Hosts ignore neighbour discovery in fragments (RFC 6980), but not all do.
            let of_icmp = match header {
                HOP_BY_HOP => listener_report(),
                FRAGMENT => {
                    [load(LOAD_BYTE, V6_PAYLOAD + 8), end_if_any(&NEIGHBOUR_DISCOVERY, DROP), end(PASS)]
                        .concat()
                }
                _ => end(DROP),
            };
            let next = load(LOAD_BYTE, V6_PAYLOAD);
            let rest = [next, if_equal(ICMPV6, of_icmp), end_if_any(&EXTENSIONS, DROP), end(PASS)].concat();
            code.extend(if_equal(header, rest));
        }
        code.extend(end(PASS));
        code
    }

    /// Duplicate address detection, router solicitations and reports of listeners.
    fn v6_without_source(&self) -> Code {
        let of_icmp = [
            load(LOAD_BYTE, V6_PAYLOAD),
            if_equal(NEIGHBOUR_SOLICITATION, self.own_target()),
            end_if_any(&[ROUTER_SOLICITATION], PASS),
            end(DROP),
        ]
        .concat();
        let hop_by_hop =
            [load(LOAD_BYTE, V6_PAYLOAD), if_equal(ICMPV6, listener_report()), end(DROP)].concat();
        [
            load(LOAD_BYTE, V6_NEXT_HEADER),
            if_equal(ICMPV6, of_icmp),
            if_equal(HOP_BY_HOP, hop_by_hop),
            end(DROP),
        ]
        .concat()
    }
}

/// Of ICMPv6 behind hop-by-hop options of eight bytes, only reports of multicast listeners pass.
fn listener_report() -> Code {
    [
        load(LOAD_BYTE, V6_PAYLOAD + 1),
        demand(0),
        load(LOAD_BYTE, V6_PAYLOAD + 8),
        end_if_any(&MULTICAST_LISTENER, PASS),
        end(DROP),
    ]
    .concat()
}

/// The program for an interface with this MAC address. `untagged`: its own addresses; `tagged`: those of its VLANs. Each
/// other VLAN is dropped. Refused when the kernel's limit is exceeded, by some 30 VLANs.
pub fn program(
    mac: [u8; 6],
    untagged: &[IpNet],
    tagged: &BTreeMap<VlanId, Vec<IpNet>>,
) -> Result<Vec<Instruction>, Refusal> {
    let mut code = own_mac(SOURCE, mac);
    code.extend(load(LOAD_BYTE, VLAN_TAG_PRESENT));
    code.extend(if_equal(0, Own::new(mac, untagged).payload()));
    code.extend(load(LOAD_HALF, VLAN_TAG));
    code.push(instruction(AND, 0x0fff));
    for (vid, addresses) in tagged {
        code.extend(if_equal(vid.get().into(), Own::new(mac, addresses).payload()));
    }
    code.extend(end(DROP));
    if code.len() > MAX_INSTRUCTIONS {
        return Err(Refusal::permanent(
            "AntiSpoof can't check that many VLANs and addresses on one interface",
        ));
    }
    Ok(code)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::program::interpreter::passes;

    const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
    const OTHER: [u8; 6] = [2, 0, 0, 0, 0, 2];

    fn frame(mac: [u8; 6], ether_type: u16, payload: &[u8]) -> Vec<u8> {
        [&[255; 6], &mac[..], &ether_type.to_be_bytes(), payload].concat()
    }

    fn arp(mac: [u8; 6], sender_mac: [u8; 6], sender: &str, target: &str) -> Vec<u8> {
        let ip = |text: &str| text.parse::<Ipv4Addr>().unwrap().octets();
        let payload =
            [&[0, 1, 8, 0, 6, 4, 0, 1][..], &sender_mac, &ip(sender), &[0; 6], &ip(target)].concat();
        frame(mac, 0x0806, &payload)
    }

    fn v4(mac: [u8; 6], source: &str) -> Vec<u8> {
        let source = source.parse::<Ipv4Addr>().unwrap().octets();
        frame(mac, 0x0800, &[&[0x45; 12][..], &source, &[10, 9, 0, 9], &[0; 8]].concat())
    }

    /// A packet of IPv6; `rest` follows its header.
    fn v6(source: &str, next: u8, rest: &[u8]) -> Vec<u8> {
        let ip = |text: &str| text.parse::<Ipv6Addr>().unwrap().octets();
        let header = [0x60, 0, 0, 0, 0, 0, next, 255];
        frame(MAC, 0x86dd, &[&header[..], &ip(source), &ip("ff02::1"), rest].concat())
    }

    fn discovery(kind: u8, target: &str) -> Vec<u8> {
        [&[kind, 0, 0, 0, 0, 0, 0, 0][..], &target.parse::<Ipv6Addr>().unwrap().octets()].concat()
    }

    fn own() -> Vec<IpNet> {
        ["10.9.0.2/24", "10.9.0.3/24", "fd00::2/64"].map(|net| net.parse().unwrap()).to_vec()
    }

    #[test]
    fn only_own_addresses_pass() {
        let program = program(MAC, &own(), &BTreeMap::new()).unwrap();
        let behind = |header: &[u8], rest: &[u8]| [header, rest].concat();
        let hop_by_hop = |next: u8| [next, 0, 5, 2, 0, 0, 1, 0];
        let (none, local, mine, other) = ("::", "fe80::ff:fe00:1", "fd00::2", "fd00::9");
        for (expected, what, frame) in [
            (true, "ARP", arp(MAC, MAC, "10.9.0.2", "10.9.0.9")),
            (true, "ARP of the second address", arp(MAC, MAC, "10.9.0.3", "10.9.0.9")),
            (true, "a probe for an own address", arp(MAC, MAC, "0.0.0.0", "10.9.0.2")),
            (false, "a probe for another's", arp(MAC, MAC, "0.0.0.0", "10.9.0.9")),
            (false, "ARP of another's address", arp(MAC, MAC, "10.9.0.9", "10.9.0.9")),
            (false, "ARP for another's MAC", arp(MAC, OTHER, "10.9.0.2", "10.9.0.9")),
            (false, "ARP from another's MAC", arp(OTHER, MAC, "10.9.0.2", "10.9.0.9")),
            (false, "ARP of other lengths", frame(MAC, 0x0806, &[0, 1, 8, 0, 6, 6, 0, 1, 0, 0, 0, 0])),
            (true, "IPv4", v4(MAC, "10.9.0.3")),
            (false, "IPv4 of another", v4(MAC, "10.9.0.4")),
            (false, "IPv4 from another's MAC", v4(OTHER, "10.9.0.2")),
            (false, "IPv4 without a source", v4(MAC, "0.0.0.0")),
            (true, "UDP in IPv6", v6(mine, 17, &[0; 8])),
            (true, "UDP of the link-local address", v6(local, 17, &[0; 8])),
            (false, "UDP of another", v6(other, 17, &[0; 8])),
            (false, "UDP without a source", v6(none, 17, &[0; 8])),
            (true, "an echo request", v6(mine, 58, &[128, 0, 0, 0])),
            (true, "a solicitation", v6(mine, 58, &discovery(135, other))),
            (true, "detection of an own address", v6(none, 58, &discovery(135, mine))),
            (true, "detection of the link-local address", v6(none, 58, &discovery(135, local))),
            (false, "detection of another's address", v6(none, 58, &discovery(135, other))),
            (true, "an advertisement", v6(mine, 58, &discovery(136, mine))),
            (true, "an advertisement by another own address", v6(local, 58, &discovery(136, mine))),
            (false, "an advertisement of another's address", v6(mine, 58, &discovery(136, other))),
            (false, "an advertisement by another", v6(other, 58, &discovery(136, mine))),
            (false, "an advertisement without a source", v6(none, 58, &discovery(136, mine))),
            (true, "a router solicitation", v6(none, 58, &[133, 0, 0, 0])),
            (false, "a router advertisement", v6(local, 58, &[134, 0, 0, 0])),
            (false, "a redirect", v6(local, 58, &discovery(137, mine))),
            (true, "a listener's report", v6(local, 0, &behind(&hop_by_hop(58), &[143, 0, 0, 0]))),
            (true, "a first listener's report", v6(none, 0, &behind(&hop_by_hop(58), &[143, 0, 0, 0]))),
            (
                false,
                "an advertisement behind options",
                v6(mine, 0, &behind(&hop_by_hop(58), &discovery(136, other))),
            ),
            (false, "one behind longer options", v6(mine, 0, &behind(&[58, 1], &[0; 40]))),
            (false, "one behind destination options", v6(mine, 60, &behind(&hop_by_hop(58), &[136; 24]))),
            (false, "one behind two headers", v6(mine, 0, &behind(&hop_by_hop(60), &hop_by_hop(58)))),
            (true, "UDP behind options", v6(mine, 0, &behind(&hop_by_hop(17), &[0; 8]))),
            (true, "a part of an echo", v6(mine, 44, &behind(&[58, 0, 0, 1, 0, 0, 0, 7], &[128, 0, 0, 0]))),
            (
                false,
                "an advertisement in a fragment",
                v6(mine, 44, &behind(&[58, 0, 0, 0, 0, 0, 0, 7], &[136; 24])),
            ),
            (false, "an empty fragment of another", v6(other, 44, &[58, 0, 0, 0, 0, 0, 0, 7])),
            (true, "LLDP", frame(MAC, 0x88cc, &[0; 30])),
            (false, "LLDP from another's MAC", frame(OTHER, 0x88cc, &[0; 30])),
            (false, "a tag in the frame", frame(MAC, 0x8100, &[0, 7, 8, 0])),
        ] {
            assert_eq!(passes(&program, None, &frame), expected, "{what}");
            assert!(!passes(&program, Some(7), &frame), "{what}, tagged");
        }
    }

    #[test]
    fn each_vlan_has_its_own_addresses() {
        let vlan = |vid: u16| VlanId::new(vid).unwrap();
        let addresses = |text: &str| vec![text.parse().unwrap()];
        let tagged = [(vlan(7), addresses("10.7.0.2/24")), (vlan(8), addresses("fd08::2/64"))].into();
        let program = program(MAC, &[], &tagged).unwrap();
        let seven = v4(MAC, "10.7.0.2");
        let passing = |tag: Option<u16>, frame: &[u8]| passes(&program, tag, frame);
        // The priority is no part of the VLAN.
        assert!(passing(Some(7), &seven) && passing(Some(0xe007), &seven));
        assert!(!passing(Some(8), &seven) && !passing(Some(9), &seven) && !passing(None, &seven));
        assert!(passing(Some(8), &v6("fd08::2", 17, &[0; 8])));
        assert!(passing(None, &frame(MAC, 0x88cc, &[0; 30])));
    }

    #[test]
    fn what_exceeds_the_kernel_is_refused() {
        let both = |vid: u16| {
            [format!("10.0.0.{vid}/24"), format!("fd00::{vid}/64")].map(|net| net.parse().unwrap())
        };
        let vlans =
            |many: u16| (1..=many).map(|vid| (VlanId::new(vid).unwrap(), both(vid).to_vec())).collect();
        assert!(program(MAC, &[], &vlans(10)).is_ok());
        assert!(!program(MAC, &[], &vlans(200)).unwrap_err().retryable);
    }
}
