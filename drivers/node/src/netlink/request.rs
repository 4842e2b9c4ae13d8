//! Requests that change something in the kernel.

use std::net::IpAddr;

use ipnet::IpNet;
use nix::errno::Errno;
use rtnetlink::packet_core::{NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE};
use rtnetlink::packet_route::address::{
    AddressAttribute, AddressFlags, AddressHeaderFlags, AddressMessage, AddressScope,
};
use rtnetlink::packet_route::link::{
    AfSpecBridge, BridgeVlanInfo, BridgeVlanInfoFlags, LinkAttribute, LinkFlags, LinkMessage, Prop,
};
use rtnetlink::packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteHeader, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use rtnetlink::packet_route::rule::{RuleAction, RuleAttribute, RuleMessage};
use rtnetlink::packet_route::{AddressFamily, RouteNetlinkMessage};

use super::snapshot::{Address, Route, Rule};
use super::{Instruction, NetlinkError, PROTOCOL, PortVlan, filter};

/// A change request, ready to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The operation, for errors: `add address 10.0.0.2/24 to net1`.
    pub(super) operation: String,
    pub(super) message: RouteNetlinkMessage,
    pub(super) flags: u16,
    /// An error that counts as success.
    tolerated: Option<Errno>,
}

impl Request {
    pub(super) fn new(operation: String, message: RouteNetlinkMessage, flags: u16) -> Self {
        Self { operation, message, flags, tolerated: None }
    }

    /// Makes an interface; fails with EEXIST when its name is taken. `message` comes from a builder of `rtnetlink`.
    pub fn add_link(name: &str, message: LinkMessage) -> Self {
        let flags = NLM_F_CREATE | NLM_F_EXCL;
        Self::new(format!("make interface {name}"), RouteNetlinkMessage::NewLink(message), flags)
    }

    /// Changes an interface as `message` says; `what` completes "can't …".
    pub fn set_link(what: impl Into<String>, message: LinkMessage) -> Self {
        Self::new(what.into(), RouteNetlinkMessage::SetLink(message), 0)
    }

    /// Changes attributes of an interface's kind (`IFLA_INFO_DATA`); `what` completes "can't …".
    pub fn change_link(what: impl Into<String>, message: LinkMessage) -> Self {
        Self::new(what.into(), RouteNetlinkMessage::NewLink(message), 0)
    }

    /// Changes attributes of the interface `index`, called `name`; `what` completes "can't set the … of".
    pub fn set(name: &str, index: u32, what: &str, attributes: Vec<LinkAttribute>) -> Self {
        let mut message = LinkMessage::default();
        message.header.index = index;
        message.attributes = attributes;
        Self::set_link(format!("set the {what} of {name}"), message)
    }

    /// Sets an interface up or down.
    pub fn set_up(name: &str, index: u32, up: bool) -> Self {
        let mut message = LinkMessage::default();
        message.header.index = index;
        message.header.change_mask = LinkFlags::Up;
        message.header.flags = if up { LinkFlags::Up } else { LinkFlags::empty() };
        Self::set_link(format!("set {name} {}", if up { "up" } else { "down" }), message)
    }

    /// Makes an interface a port of the interface `master`; 0: of none.
    pub fn set_master(name: &str, index: u32, master: u32) -> Self {
        Self::set(name, index, "master", vec![LinkAttribute::Controller(master)])
    }

    /// Deletes an interface. Succeeds when it does not exist.
    pub fn delete_link(name: &str, index: u32) -> Self {
        let mut message = LinkMessage::default();
        message.header.index = index;
        Self::new(format!("delete interface {name}"), RouteNetlinkMessage::DelLink(message), 0)
            .tolerating(Errno::ENODEV)
    }

    /// Deletes an interface in another namespace, which the socket's has a number for. Succeeds when it is gone already.
    pub fn delete_link_in(number: i32, name: &str, index: u32) -> Self {
        let mut message = LinkMessage::default();
        message.header.index = index;
        message.attributes.push(LinkAttribute::IfNetnsId(number));
        let operation = format!("delete interface {name} of a nested namespace");
        Self::new(operation, RouteNetlinkMessage::DelLink(message), 0).tolerating(Errno::ENODEV)
    }

    /// Deletes all interfaces of a group at once. Succeeds when there are none.
    pub fn delete_group(group: u32) -> Self {
        let mut message = LinkMessage::default();
        message.attributes.push(LinkAttribute::Group(group));
        Self::new(format!("delete the interfaces of group {group}"), RouteNetlinkMessage::DelLink(message), 0)
            .tolerating(Errno::ENODEV)
    }

    /// Makes the qdisc `clsact` of an interface, unless it has one.
    pub fn add_clsact(name: &str, index: u32) -> Self {
        let message = RouteNetlinkMessage::NewQueueDiscipline(filter::qdisc(index));
        Self::new(format!("make the qdisc clsact of {name}"), message, NLM_F_CREATE | NLM_F_EXCL)
            .tolerating(Errno::EEXIST)
    }

    /// Sets the program for packets that enter the host by an interface, in the place of an earlier one.
    pub fn set_ingress_program(name: &str, index: u32, program: &[Instruction]) -> Self {
        let message = RouteNetlinkMessage::NewTrafficFilter(filter::filter(index, Some(program)));
        Self::new(format!("set the filter of {name}"), message, NLM_F_CREATE)
    }

    /// Deletes that program.
    pub fn delete_ingress_program(name: &str, index: u32) -> Self {
        let message = RouteNetlinkMessage::DelTrafficFilter(filter::filter(index, None));
        Self::new(format!("delete the filter of {name}"), message, 0).tolerating(Errno::ENOENT)
    }

    /// Gives an interface an alternative name (`IFLA_ALT_IFNAME`).
    pub fn add_altname(name: &str, index: u32, altname: &str) -> Self {
        let flags = NLM_F_CREATE | NLM_F_EXCL;
        let message = RouteNetlinkMessage::NewLinkProp(altname_message(index, altname));
        Self::new(format!("give {name} the alternative name {altname}"), message, flags)
    }

    /// Takes an alternative name from an interface.
    pub fn delete_altname(name: &str, index: u32, altname: &str) -> Self {
        let message = RouteNetlinkMessage::DelLinkProp(altname_message(index, altname));
        Self::new(format!("take the alternative name {altname} from {name}"), message, 0)
    }

    /// Adds an address with protocol [`PROTOCOL`], usable at once (IPv6: without duplicate address detection).
    pub fn add_address(name: &str, index: u32, net: IpNet) -> Self {
        let mut message = address_message(index, net);
        let attributes = &mut message.attributes;
        attributes.push(AddressAttribute::Protocol(PROTOCOL.into()));
        match net {
            IpNet::V4(net) if net.prefix_len() <= 30 => {
                attributes.push(AddressAttribute::Broadcast(net.broadcast()));
            }
            IpNet::V4(_) => {}
            IpNet::V6(_) => {
                message.header.flags = AddressHeaderFlags::Nodad;
                attributes.push(AddressAttribute::Flags(AddressFlags::Nodad));
            }
        }
        let flags = NLM_F_CREATE | NLM_F_EXCL;
        Self::new(format!("add address {net} to {name}"), RouteNetlinkMessage::NewAddress(message), flags)
            .tolerating(Errno::EEXIST)
    }

    /// Adds an address as [`Self::add_address`] does, but without the kernel's route to its network in the main table
    /// (`IFA_F_NOPREFIXROUTE`).
    pub fn add_address_alone(name: &str, index: u32, net: IpNet) -> Self {
        let mut request = Self::add_address(name, index, net);
        if let RouteNetlinkMessage::NewAddress(message) = &mut request.message {
            message.attributes.retain(|attribute| !matches!(attribute, AddressAttribute::Flags(_)));
            let detection = if net.addr().is_ipv6() { AddressFlags::Nodad } else { AddressFlags::empty() };
            message.attributes.push(AddressAttribute::Flags(AddressFlags::Noprefixroute | detection));
        }
        request
    }

    /// Deletes an address. Succeeds when it does not exist.
    pub fn delete_address(name: &str, address: &Address) -> Self {
        let message = address_message(address.index, address.net);
        let operation = format!("delete address {} from {name}", address.net);
        Self::new(operation, RouteNetlinkMessage::DelAddress(message), 0).tolerating(Errno::EADDRNOTAVAIL)
    }

    /// Adds a route with protocol [`PROTOCOL`]. `replace`: it replaces a route with the same prefix, table and metric.
    pub fn add_route(route: &Route, on_link: bool, replace: bool) -> Self {
        let mut message = route_message(route);
        message.header.protocol = PROTOCOL.into();
        if on_link {
            message.header.flags = RouteFlags::Onlink;
        }
        let flags = NLM_F_CREATE | if replace { NLM_F_REPLACE } else { NLM_F_EXCL };
        Self::new(format!("add {}", route_description(route)), RouteNetlinkMessage::NewRoute(message), flags)
    }

    /// Deletes a route. Succeeds when it does not exist.
    pub fn delete_route(route: &Route) -> Self {
        let operation = format!("delete {}", route_description(route));
        Self::new(operation, RouteNetlinkMessage::DelRoute(route_message(route)), 0).tolerating(Errno::ESRCH)
    }

    /// Adds a policy rule with protocol [`PROTOCOL`].
    pub fn add_rule(rule: &Rule) -> Self {
        let flags = NLM_F_CREATE | NLM_F_EXCL;
        let message = RouteNetlinkMessage::NewRule(rule_message(rule, PROTOCOL));
        Self::new(
            format!("add the rule of priority {} to table {}", rule.priority, rule.table),
            message,
            flags,
        )
    }

    /// Deletes a policy rule. Succeeds when it does not exist.
    pub fn delete_rule(rule: &Rule) -> Self {
        let message = RouteNetlinkMessage::DelRule(rule_message(rule, rule.protocol));
        Self::new(
            format!("delete the rule of priority {} to table {}", rule.priority, rule.table),
            message,
            0,
        )
        .tolerating(Errno::ENOENT)
    }

    /// Adds VLANs to a bridge port, or changes their flags.
    pub fn add_port_vlans(name: &str, index: u32, vlans: &[PortVlan]) -> Self {
        Self::new(
            format!("add VLANs to bridge port {name}"),
            RouteNetlinkMessage::SetLink(vlan_message(index, vlans)),
            0,
        )
    }

    /// Takes VLANs from a bridge port.
    pub fn delete_port_vlans(name: &str, index: u32, vlans: &[PortVlan]) -> Self {
        Self::new(
            format!("take VLANs from bridge port {name}"),
            RouteNetlinkMessage::DelLink(vlan_message(index, vlans)),
            0,
        )
    }

    /// Counts `errno` as success.
    #[must_use]
    pub fn tolerating(mut self, errno: Errno) -> Self {
        self.tolerated = Some(errno);
        self
    }

    /// The operation; completes "can't …".
    pub fn operation(&self) -> &str {
        &self.operation
    }

    pub(super) fn tolerate(&self, error: NetlinkError) -> Result<(), NetlinkError> {
        if self.tolerated.is_some() && error.errno() == self.tolerated { Ok(()) } else { Err(error) }
    }
}

fn family(ip: IpAddr) -> AddressFamily {
    if ip.is_ipv6() { AddressFamily::Inet6 } else { AddressFamily::Inet }
}

fn altname_message(index: u32, altname: &str) -> LinkMessage {
    let mut message = LinkMessage::default();
    message.header.index = index;
    message.attributes.push(LinkAttribute::PropList(vec![Prop::AltIfName(altname.to_owned())]));
    message
}

fn address_message(index: u32, net: IpNet) -> AddressMessage {
    let mut message = AddressMessage::default();
    message.header.family = family(net.addr());
    message.header.prefix_len = net.prefix_len();
    message.header.index = index;
    message.header.scope = match net.addr() {
        IpAddr::V4(ip) if ip.is_link_local() => AddressScope::Link,
        IpAddr::V4(ip) if ip.is_loopback() => AddressScope::Host,
        _ => AddressScope::Universe,
    };
    message.attributes.push(AddressAttribute::Local(net.addr()));
    message.attributes.push(AddressAttribute::Address(net.addr()));
    message
}

fn route_message(route: &Route) -> RouteMessage {
    let mut message = RouteMessage::default();
    let destination = route.prefix.network();
    message.header.address_family = family(destination);
    message.header.destination_prefix_length = route.prefix.prefix_len();
    message.header.table = u8::try_from(route.table).unwrap_or(RouteHeader::RT_TABLE_UNSPEC);
    message.header.protocol = RouteProtocol::from(route.protocol);
    message.header.kind = RouteType::Unicast;
    message.header.scope = if route.gateway.is_none() && destination.is_ipv4() {
        RouteScope::Link
    } else {
        RouteScope::Universe
    };
    let attributes = &mut message.attributes;
    attributes.push(RouteAttribute::Table(route.table));
    if route.prefix.prefix_len() > 0 {
        attributes.push(RouteAttribute::Destination(RouteAddress::from(destination)));
    }
    if let Some(gateway) = route.gateway {
        attributes.push(RouteAttribute::Gateway(gateway.into()));
    }
    if let Some(source) = route.source {
        attributes.push(RouteAttribute::PrefSource(source.into()));
    }
    if let Some(index) = route.index {
        attributes.push(RouteAttribute::Oif(index));
    }
    if route.metric != 0 {
        attributes.push(RouteAttribute::Priority(route.metric));
    }
    message
}

fn route_description(route: &Route) -> String {
    let via = route.gateway.map(|gateway| format!(" via {gateway}")).unwrap_or_default();
    format!("route {}{via} in table {}", route.prefix, route.table)
}

fn rule_message(rule: &Rule, protocol: u8) -> RuleMessage {
    let mut message = RuleMessage::default();
    message.header.family = if rule.v6 { AddressFamily::Inet6 } else { AddressFamily::Inet };
    message.header.action = RuleAction::ToTable;
    message.header.table = u8::try_from(rule.table).unwrap_or(0);
    let attributes = &mut message.attributes;
    attributes.push(RuleAttribute::Table(rule.table));
    attributes.push(RuleAttribute::Priority(rule.priority));
    attributes.push(RuleAttribute::Protocol(RouteProtocol::from(protocol)));
    if let Some(from) = rule.from {
        message.header.src_len = from.prefix_len();
        attributes.push(RuleAttribute::Source(from.network()));
    }
    if let Some(to) = rule.to {
        message.header.dst_len = to.prefix_len();
        attributes.push(RuleAttribute::Destination(to.network()));
    }
    attributes.extend(rule.input.clone().map(RuleAttribute::Iifname));
    if let Some((mark, mask)) = rule.mark {
        attributes.extend([RuleAttribute::FwMark(mark), RuleAttribute::FwMask(mask)]);
    }
    message
}

/// A message with these VLANs. Consecutive VLANs with the same flags are written as ranges, so that 4,094 VLANs fit
/// into one message. The kernel takes no PVID in a range.
fn vlan_message(index: u32, vlans: &[PortVlan]) -> LinkMessage {
    let mut message = LinkMessage::default();
    message.header.interface_family = AddressFamily::Bridge;
    message.header.index = index;
    let mut infos = Vec::new();
    let mut push = |vid, flags| infos.push(AfSpecBridge::VlanInfo(BridgeVlanInfo { flags, vid }));
    for run in vlans.chunk_by(|a, b| a.vid + 1 == b.vid && a.untagged == b.untagged && !a.pvid && !b.pvid) {
        let [first, .., last] = run else {
            for vlan in run {
                push(vlan.vid, flags(*vlan));
            }
            continue;
        };
        push(first.vid, flags(*first) | BridgeVlanInfoFlags::RangeBegin);
        push(last.vid, flags(*last) | BridgeVlanInfoFlags::RangeEnd);
    }
    message.attributes.push(LinkAttribute::AfSpecBridge(infos));
    message
}

fn flags(vlan: PortVlan) -> BridgeVlanInfoFlags {
    let mut flags = BridgeVlanInfoFlags::empty();
    flags.set(BridgeVlanInfoFlags::Pvid, vlan.pvid);
    flags.set(BridgeVlanInfoFlags::Untagged, vlan.untagged);
    flags
}
