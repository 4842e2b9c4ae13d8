//! Neighbours: link addresses that the kernel asks for by ARP and neighbour discovery, and the rules that keep a
//! namespace silent to everything else.

use std::net::{IpAddr, Ipv6Addr};

use nix::errno::Errno;
use rtnetlink::packet_core::{NLM_F_CREATE, NLM_F_EXCL, NetlinkPayload};
use rtnetlink::packet_route::address::{AddressAttribute, AddressFlags, AddressMessage};
use rtnetlink::packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourMessage, NeighbourState,
};
use rtnetlink::packet_route::neighbour_table::{
    NeighbourTableAttribute, NeighbourTableMessage, NeighbourTableParameter,
};
use rtnetlink::packet_route::rule::{RuleAction, RuleAttribute, RuleFlags, RuleMessage, RulePortRange};
use rtnetlink::packet_route::{AddressFamily, RouteNetlinkMessage};

use super::socket::decode;
use super::{Netlink, NetlinkError, Request};

/// `RT_TABLE_LOCAL`.
const TABLE_LOCAL: u8 = 255;
/// `RT_TABLE_MAIN`.
const TABLE_MAIN: u8 = 254;
/// `IPPROTO_ICMPV6`.
const ICMPV6: u8 = 58;
/// The types of echo requests and their answers (RFC 4443, 4).
const ECHO: [u8; 2] = [128, 129];
/// How often the kernel asks before it gives up, and the milliseconds in between.
const ATTEMPTS: u32 = 3;
const ATTEMPT_INTERVAL: u64 = 1000;

/// A neighbour entry with a link address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// The index of its interface.
    pub index: u32,
    /// The neighbour's address.
    pub address: IpAddr,
    /// Its link address.
    pub mac: [u8; 6],
    /// True when it has answered a question of this host. Otherwise it was only heard, such as with a question of its own.
    pub answered: bool,
}

impl Request {
    /// Has the kernel ask who has an address (`NTF_USE`): by ARP, from 0.0.0.0 on an interface without IPv4 address; or by
    /// a neighbour solicitation from the link-local address of the interface.
    pub fn ask_neighbour(index: u32, address: IpAddr) -> Self {
        let mut message = entry(index, address);
        message.header.flags = NeighbourFlags::Use;
        Self::new(format!("ask for {address}"), RouteNetlinkMessage::NewNeighbour(message), NLM_F_CREATE)
    }

    /// Deletes a neighbour entry. Succeeds when it does not exist.
    pub fn forget_neighbour(index: u32, address: IpAddr) -> Self {
        let message = RouteNetlinkMessage::DelNeighbour(entry(index, address));
        Self::new(format!("forget {address}"), message, 0).tolerating(Errno::ENOENT)
    }

    /// Has the kernel ask whether another node has an address, as if it were to be an own one (RFC 4862, 5.4). It asks
    /// from no address, so an answer goes to all nodes. The address is an own one once the kernel has asked as often as
    /// the sysctl `dad_transmits` says: it has to be deleted before.
    pub fn ask_for_duplicate(index: u32, address: Ipv6Addr) -> Self {
        let message = RouteNetlinkMessage::NewAddress(tentative(index, address));
        Self::new(format!("ask for a duplicate of {address}"), message, NLM_F_CREATE | NLM_F_EXCL)
    }

    /// Deletes such an address. Succeeds when it does not exist.
    pub fn forget_duplicate(index: u32, address: Ipv6Addr) -> Self {
        let message = RouteNetlinkMessage::DelAddress(tentative(index, address));
        Self::new(format!("forget {address}"), message, 0).tolerating(Errno::EADDRNOTAVAIL)
    }

    /// Sets how the kernel asks on an interface, whatever the node's defaults are, and that each answer takes the place
    /// of the one before at once: so each of several that answer is notified.
    pub fn set_neighbour_times(name: &str, index: u32, v6: bool) -> Self {
        let parameters = vec![
            NeighbourTableParameter::Ifindex(index),
            NeighbourTableParameter::AppProbes(0),
            NeighbourTableParameter::McastProbes(ATTEMPTS),
            NeighbourTableParameter::RetransTime(ATTEMPT_INTERVAL),
            // The kernel reads a negative time from what is too large.
            NeighbourTableParameter::Locktime(u64::MAX),
        ];
        let table = if v6 { "ndisc_cache" } else { "arp_cache" };
        let mut message = NeighbourTableMessage::default();
        message.header.family = family(v6);
        message.attributes =
            vec![NeighbourTableAttribute::Name(table.to_owned()), NeighbourTableAttribute::Parms(parameters)];
        Self::new(format!("set the times of {name}"), RouteNetlinkMessage::SetNeighbourTable(message), 0)
    }

    /// Adds the rule that packets of IPv6 are dropped before a rule of a higher number takes them: all, or all but
    /// ICMPv6.
    pub fn drop_packets(priority: u32, but_icmpv6: bool) -> Self {
        let mut message = rule(RuleAction::Blackhole, priority);
        if but_icmpv6 {
            message.header.flags = RuleFlags::Invert;
            message.attributes.push(RuleAttribute::IpProtocol(ICMPV6.into()));
        }
        let flags = NLM_F_CREATE | NLM_F_EXCL;
        Self::new("drop packets".to_owned(), RouteNetlinkMessage::NewRule(message), flags)
    }

    /// Adds the rule that echo requests of IPv6 and their answers get a route.
    pub fn route_echo(priority: u32) -> Self {
        let mut message = rule(RuleAction::ToTable, priority);
        message.header.table = TABLE_MAIN;
        // What is the destination port elsewhere has type and code of an ICMPv6 packet here (`union flowi_uli`).
        let [start, end] = ECHO.map(|kind| u16::from_be_bytes([kind, 0]));
        message.attributes.extend([
            RuleAttribute::Table(TABLE_MAIN.into()),
            RuleAttribute::IpProtocol(ICMPV6.into()),
            RuleAttribute::DestinationPortRange(RulePortRange { start, end }),
        ]);
        let flags = NLM_F_CREATE | NLM_F_EXCL;
        Self::new("give echo a route".to_owned(), RouteNetlinkMessage::NewRule(message), flags)
    }

    /// Adds the rule of IPv6 that looks up own addresses.
    pub fn add_local_rule(priority: u32) -> Self {
        let flags = NLM_F_CREATE | NLM_F_EXCL;
        let message = RouteNetlinkMessage::NewRule(local_rule(priority));
        Self::new("add the rule of own addresses".to_owned(), message, flags)
    }

    /// Deletes that rule.
    pub fn delete_local_rule(priority: u32) -> Self {
        let message = RouteNetlinkMessage::DelRule(local_rule(priority));
        Self::new("move the rule of own addresses".to_owned(), message, 0)
    }
}

impl Netlink {
    /// The neighbour entries with a link address.
    pub fn neighbours(&mut self) -> Result<Vec<Neighbour>, NetlinkError> {
        let all = RouteNetlinkMessage::GetNeighbour(NeighbourMessage::default());
        self.dump("list neighbours", &all, |message| match message {
            RouteNetlinkMessage::NewNeighbour(message) => neighbour(&message),
            _ => None,
        })
    }
}

impl Netlink {
    /// The addresses, with the index of their interface, that another node was found to have.
    pub fn duplicates(&mut self) -> Result<Vec<(u32, IpAddr)>, NetlinkError> {
        let mut all = AddressMessage::default();
        all.header.family = AddressFamily::Inet6;
        self.dump("list addresses", &RouteNetlinkMessage::GetAddress(all), |message| match message {
            RouteNetlinkMessage::NewAddress(message) => duplicate(&message),
            _ => None,
        })
    }
}

/// The address, if another node has it.
fn duplicate(message: &AddressMessage) -> Option<(u32, IpAddr)> {
    let (mut address, mut failed) = (None, false);
    for attribute in &message.attributes {
        match attribute {
            AddressAttribute::Address(ip) => address = Some(*ip),
            AddressAttribute::Flags(flags) => failed = flags.contains(AddressFlags::Dadfailed),
            _ => {}
        }
    }
    address.filter(|_| failed).map(|address| (message.header.index, address))
}

fn tentative(index: u32, address: Ipv6Addr) -> AddressMessage {
    let mut message = AddressMessage::default();
    message.header.family = AddressFamily::Inet6;
    message.header.index = index;
    message.header.prefix_len = 128;
    message.attributes.push(AddressAttribute::Address(address.into()));
    message
}

/// What a notification says.
pub(super) fn notified(message: &[u8]) -> Option<Neighbour> {
    match decode(message).ok()?.payload {
        NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewNeighbour(message)) => neighbour(&message),
        _ => None,
    }
}

/// What an entry shows; `None`: no link address yet.
fn neighbour(message: &NeighbourMessage) -> Option<Neighbour> {
    let (mut address, mut mac) = (None, None);
    for attribute in &message.attributes {
        match attribute {
            NeighbourAttribute::Destination(NeighbourAddress::Inet(ip)) => address = Some(IpAddr::V4(*ip)),
            NeighbourAttribute::Destination(NeighbourAddress::Inet6(ip)) => address = Some(IpAddr::V6(*ip)),
            NeighbourAttribute::LinkLayerAddress(bytes) => mac = bytes.as_slice().try_into().ok(),
            _ => {}
        }
    }
    let answered = match message.header.state {
        NeighbourState::Reachable => true,
        NeighbourState::Stale | NeighbourState::Delay | NeighbourState::Probe => false,
        _ => return None,
    };
    Some(Neighbour { index: message.header.ifindex, address: address?, mac: mac?, answered })
}

fn entry(index: u32, address: IpAddr) -> NeighbourMessage {
    let mut message = NeighbourMessage::default();
    message.header.family = family(address.is_ipv6());
    message.header.ifindex = index;
    message.attributes.push(NeighbourAttribute::Destination(match address {
        IpAddr::V4(ip) => NeighbourAddress::Inet(ip),
        IpAddr::V6(ip) => NeighbourAddress::Inet6(ip),
    }));
    message
}

fn family(v6: bool) -> AddressFamily {
    if v6 { AddressFamily::Inet6 } else { AddressFamily::Inet }
}

fn rule(action: RuleAction, priority: u32) -> RuleMessage {
    let mut message = RuleMessage::default();
    message.header.family = AddressFamily::Inet6;
    message.header.action = action;
    message.attributes.push(RuleAttribute::Priority(priority));
    message
}

fn local_rule(priority: u32) -> RuleMessage {
    let mut message = rule(RuleAction::ToTable, priority);
    message.header.table = TABLE_LOCAL;
    message.attributes.push(RuleAttribute::Table(TABLE_LOCAL.into()));
    message
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn duplicates_are_told_from_addresses_that_nobody_else_has() {
        let address = Ipv6Addr::from([0xfe80, 0, 0, 0, 0, 0, 0, 1]);
        let found = |flags| {
            let mut message = tentative(7, address);
            message.attributes.push(AddressAttribute::Flags(flags));
            duplicate(&message)
        };
        assert_eq!(found(AddressFlags::Tentative | AddressFlags::Dadfailed), Some((7, address.into())));
        assert_eq!(found(AddressFlags::Tentative), None);
        assert_eq!(duplicate(&tentative(7, address)), None);
    }

    #[test]
    fn entries_show_who_was_heard_and_who_answered() {
        let address = Ipv4Addr::new(192, 0, 2, 1);
        let seen = |state, mac: Option<&[u8]>| {
            let mut message = entry(7, address.into());
            message.header.state = state;
            let mac = mac.map(<[u8]>::to_vec);
            message.attributes.extend(mac.map(NeighbourAttribute::LinkLayerAddress));
            neighbour(&message)
        };
        let mac = [2, 0, 0, 0, 0, 1];
        for (state, answered) in [
            (NeighbourState::Reachable, true),
            (NeighbourState::Stale, false),
            (NeighbourState::Delay, false),
            (NeighbourState::Probe, false),
        ] {
            let expected = Neighbour { index: 7, address: address.into(), mac, answered };
            assert_eq!(seen(state, Some(&mac)), Some(expected));
            assert_eq!((seen(state, Some(&mac[..4])), seen(state, None)), (None, None));
        }
        for state in [NeighbourState::Incomplete, NeighbourState::Failed, NeighbourState::Permanent] {
            assert_eq!(seen(state, Some(&mac)), None);
        }
    }
}
