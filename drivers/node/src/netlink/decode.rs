//! Decodes rtnetlink messages into the values of a [`Snapshot`].

use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::RawFd;

use ipnet::IpNet;
use rtnetlink::packet_core::Nla as _;
use rtnetlink::packet_route::address::{AddressAttribute, AddressFlags, AddressHeaderFlags, AddressMessage};
use rtnetlink::packet_route::link::{
    AfSpecInet6, AfSpecUnspec, BondMode, InfoBond, InfoBridge, InfoData, InfoGeneve, InfoGre, InfoIpTunnel,
    InfoIpVlan, InfoKind, InfoMacVlan, InfoTun, InfoVlan, InfoVrf, InfoVxlan, IpVlanMode, LinkAttribute,
    LinkExtentMask, LinkFlags, LinkInfo, LinkLayerType, LinkMessage, MacVlanMode, Prop,
};
use rtnetlink::packet_route::nsid::{NsidAttribute, NsidMessage};
use rtnetlink::packet_route::route::{RouteAddress, RouteAttribute, RouteMessage, RouteType};
use rtnetlink::packet_route::rule::{RuleAction, RuleAttribute, RuleMessage};
use rtnetlink::packet_route::{AddressFamily, RouteNetlinkMessage};

use super::snapshot::{Address, Kind, Link, Overlay, Route, Rule, Snapshot, Tunnel};
use super::{Netlink, NetlinkError};

/// `RT_TABLE_LOCAL`.
const TABLE_LOCAL: u32 = 255;

impl Netlink {
    /// Reads the whole namespace. It takes several dumps, so changes in between may show in one and not in another.
    pub fn snapshot(&mut self) -> Result<Snapshot, NetlinkError> {
        Ok(Snapshot {
            links: self.links()?,
            addresses: self.addresses()?,
            routes: self.routes()?,
            rules: self.rules()?,
        })
    }

    /// All interfaces, ascending by index.
    pub fn links(&mut self) -> Result<Vec<Link>, NetlinkError> {
        let mut links =
            self.dump("list interfaces", &RouteNetlinkMessage::GetLink(link_request()), new_link)?;
        links.sort_by_key(|link| link.index);
        Ok(links)
    }

    /// The interfaces of another namespace, which this one has a number for ([`Self::numbered_namespaces`]).
    pub fn links_in(&mut self, number: i32) -> Result<Vec<Link>, NetlinkError> {
        let mut message = link_request();
        message.attributes.push(LinkAttribute::IfNetnsId(number));
        self.dump("list interfaces of a nested namespace", &RouteNetlinkMessage::GetLink(message), new_link)
    }

    /// The numbers of the other namespaces that this one has a number for.
    pub fn numbered_namespaces(&mut self) -> Result<Vec<i32>, NetlinkError> {
        let all = RouteNetlinkMessage::GetNsId(NsidMessage::default());
        self.dump("list namespaces", &all, |message| match message {
            RouteNetlinkMessage::NewNsId(found) => number(&found),
            _ => None,
        })
    }

    /// The interface with that index, if it exists.
    pub fn link(&mut self, index: u32) -> Result<Option<Link>, NetlinkError> {
        let mut message = link_request();
        message.header.index = index;
        self.one_link(message)
    }

    /// The interface with that name, if it exists.
    pub fn link_named(&mut self, name: &str) -> Result<Option<Link>, NetlinkError> {
        let mut message = link_request();
        message.attributes.push(LinkAttribute::IfName(name.to_owned()));
        self.one_link(message)
    }

    fn one_link(&mut self, message: LinkMessage) -> Result<Option<Link>, NetlinkError> {
        match self.get("look at an interface", RouteNetlinkMessage::GetLink(message)) {
            Ok(found) => Ok(found.and_then(new_link)),
            Err(error) if error.errno() == Some(nix::errno::Errno::ENODEV) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The number that this namespace has for another one (`RTM_GETNSID`): what [`Link::parent_namespace`] says. `None`:
    /// it has none, so no interface here has its parent there. `other`: a descriptor of the other namespace.
    pub fn namespace_number(&mut self, other: RawFd) -> Result<Option<i32>, NetlinkError> {
        let Ok(descriptor) = u32::try_from(other) else { return Ok(None) };
        let mut message = NsidMessage::default();
        message.attributes.push(NsidAttribute::Fd(descriptor));
        let answer = self.get("look at a namespace", RouteNetlinkMessage::GetNsId(message))?;
        let Some(RouteNetlinkMessage::NewNsId(found)) = answer else { return Ok(None) };
        Ok(number(&found))
    }

    /// The addresses of all interfaces.
    pub fn addresses(&mut self) -> Result<Vec<Address>, NetlinkError> {
        let all = RouteNetlinkMessage::GetAddress(AddressMessage::default());
        self.dump("list addresses", &all, |message| match message {
            RouteNetlinkMessage::NewAddress(message) => address(&message),
            _ => None,
        })
    }

    /// The routes of all tables but `local`: the unicast ones, and those that drop packets.
    pub fn routes(&mut self) -> Result<Vec<Route>, NetlinkError> {
        let all = RouteNetlinkMessage::GetRoute(RouteMessage::default());
        self.dump("list routes", &all, |message| match message {
            RouteNetlinkMessage::NewRoute(message) => routes(&message),
            _ => Vec::new(),
        })
    }

    /// The unicast routes of all tables but `local` that have this `rtm_protocol`. The kernel leaves out the others.
    pub fn routes_of(&mut self, protocol: u8) -> Result<Vec<Route>, NetlinkError> {
        let mut found = Vec::new();
        for family in [AddressFamily::Inet, AddressFamily::Inet6] {
            let mut request = RouteMessage::default();
            request.header.address_family = family;
            request.header.protocol = protocol.into();
            let request = RouteNetlinkMessage::GetRoute(request);
            found.extend(self.dump("list routes", &request, |message| match message {
                RouteNetlinkMessage::NewRoute(message) if message.header.kind == RouteType::Unicast => {
                    routes(&message)
                }
                _ => Vec::new(),
            })?);
        }
        // Kernels without IPv6 answer with the routes of all families.
        found.retain(|route| route.protocol == protocol);
        Ok(found)
    }

    /// The interface over which the kernel would send to an address; `None`: it has no route.
    pub fn route_to(&mut self, address: IpAddr) -> Result<Option<u32>, NetlinkError> {
        let (family, destination, length) = match address {
            IpAddr::V4(ip) => (AddressFamily::Inet, RouteAddress::Inet(ip), 32),
            IpAddr::V6(ip) => (AddressFamily::Inet6, RouteAddress::Inet6(ip), 128),
        };
        let mut request = RouteMessage::default();
        request.header.address_family = family;
        request.header.destination_prefix_length = length;
        request.attributes.push(RouteAttribute::Destination(destination));
        match self.get("look for a route", RouteNetlinkMessage::GetRoute(request)) {
            Ok(Some(RouteNetlinkMessage::NewRoute(message))) => {
                Ok(find(&message.attributes, |attribute| match attribute {
                    RouteAttribute::Oif(index) => Some(*index),
                    _ => None,
                }))
            }
            Err(NetlinkError::Refused { .. }) | Ok(_) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The policy rules that look up a table (`FR_ACT_TO_TBL`).
    pub fn rules(&mut self) -> Result<Vec<Rule>, NetlinkError> {
        let all = RouteNetlinkMessage::GetRule(RuleMessage::default());
        self.dump("list rules", &all, |message| match message {
            RouteNetlinkMessage::NewRule(message) => rule(&message),
            _ => None,
        })
    }
}

/// A request for interfaces without statistics, which are half of an interface's message and not used.
fn link_request() -> LinkMessage {
    let mut message = LinkMessage::default();
    message.attributes.push(LinkAttribute::ExtMask(vec![LinkExtentMask::SkipStats]));
    message
}

pub(super) fn new_link(message: RouteNetlinkMessage) -> Option<Link> {
    match message {
        RouteNetlinkMessage::NewLink(message) => Some(link(message)),
        _ => None,
    }
}

fn link(message: LinkMessage) -> Link {
    let is_loopback = message.header.link_layer_type == LinkLayerType::Loopback;
    let mut link = Link::new(message.header.index, if is_loopback { Kind::Loopback } else { Kind::Device });
    link.up = message.header.flags.contains(LinkFlags::Up);
    link.carrier = message.header.flags.contains(LinkFlags::LowerUp);
    for attribute in message.attributes {
        match attribute {
            LinkAttribute::IfName(name) => link.name = name,
            LinkAttribute::Mtu(mtu) => link.mtu = mtu,
            LinkAttribute::MaxMtu(mtu) => link.max_mtu = mtu,
            LinkAttribute::AfSpecUnspec(families) => link.address_generation = address_generation(&families),
            LinkAttribute::Address(bytes) => link.mac = bytes.try_into().ok(),
            LinkAttribute::IfAlias(alias) => link.alias = Some(alias),
            LinkAttribute::Group(group) => link.group = group,
            LinkAttribute::Controller(index) => link.master = Some(index).filter(|index| *index != 0),
            LinkAttribute::Link(index) => link.parent = Some(index).filter(|index| *index != 0),
            LinkAttribute::LinkNetNsId(id) => link.parent_namespace = Some(id),
            LinkAttribute::PropList(properties) => {
                link.altnames = properties
                    .into_iter()
                    .filter_map(|property| match property {
                        Prop::AltIfName(name) => Some(name),
                        _ => None,
                    })
                    .collect();
            }
            LinkAttribute::LinkInfo(infos) => {
                if let Some(found) = kind(infos) {
                    link.kind = found;
                }
            }
            _ => {}
        }
    }
    link
}

fn address_generation(families: &[AfSpecUnspec]) -> Option<u8> {
    families.iter().find_map(|family| {
        let AfSpecUnspec::Inet6(settings) = family else { return None };
        find(settings, |setting| match setting {
            AfSpecInet6::AddrGenMode(mode) => Some(u8::from(mode)),
            _ => None,
        })
    })
}

/// The kind by `IFLA_LINKINFO`; `None`: that names no kind.
fn kind(infos: Vec<LinkInfo>) -> Option<Kind> {
    let mut name = None;
    let mut data = None;
    for info in infos {
        match info {
            LinkInfo::Kind(kind) => name = Some(kind),
            LinkInfo::Data(found) => data = Some(found),
            _ => {}
        }
    }
    Some(match (name?, data) {
        (InfoKind::Veth, _) => Kind::Veth,
        (InfoKind::Dummy, _) => Kind::Dummy,
        (InfoKind::Bond, Some(InfoData::Bond(data))) => {
            Kind::Bond { active_backup: data.contains(&InfoBond::Mode(BondMode::ActiveBackup)) }
        }
        (InfoKind::Bridge, Some(InfoData::Bridge(data))) => Kind::Bridge {
            vlan_filtering: data.iter().any(|info| matches!(info, InfoBridge::VlanFiltering(true))),
            default_pvid: find(&data, |info| match info {
                InfoBridge::VlanDefaultPvid(vid) => Some(*vid),
                _ => None,
            })
            .unwrap_or_default(),
        },
        (InfoKind::MacVlan, Some(InfoData::MacVlan(data))) => {
            Kind::Macvlan { bridge: data.contains(&InfoMacVlan::Mode(MacVlanMode::Bridge)) }
        }
        (InfoKind::IpVlan, Some(InfoData::IpVlan(data))) => {
            Kind::Ipvlan { l2: data.contains(&InfoIpVlan::Mode(IpVlanMode::L2)) }
        }
        (InfoKind::Vlan, Some(InfoData::Vlan(data))) => Kind::Vlan {
            vid: find(&data, |info| match info {
                InfoVlan::Id(vid) => Some(*vid),
                _ => None,
            })
            .unwrap_or_default(),
        },
        (InfoKind::Vxlan, Some(InfoData::Vxlan(data))) => Kind::Vxlan(vxlan(&data)),
        (InfoKind::Geneve, Some(InfoData::Geneve(data))) => Kind::Geneve(geneve(&data)),
        (InfoKind::GreTun, Some(InfoData::GreTun(data))) => Kind::Gre(gre(&data)),
        (InfoKind::GreTap, Some(InfoData::GreTap(data))) => Kind::Gretap(gre(&data)),
        (InfoKind::IpIp, Some(InfoData::IpTunnel(data))) => Kind::Ipip(ipip(&data)),
        (InfoKind::Tun, Some(InfoData::Tun(data))) => tun(&data),
        (InfoKind::Vrf, Some(InfoData::Vrf(data))) => Kind::Vrf {
            table: find(&data, |info| match info {
                InfoVrf::TableId(table) => Some(*table),
                _ => None,
            })
            .unwrap_or_default(),
        },
        (other, _) => Kind::Other(other.to_string()),
    })
}

/// The number in an answer to `RTM_GETNSID`; `None`: the namespace has none.
fn number(message: &NsidMessage) -> Option<i32> {
    let number = find(&message.attributes, |attribute| match attribute {
        NsidAttribute::Id(number) => Some(*number),
        _ => None,
    });
    number.filter(|number| *number >= 0)
}

fn find<I, T>(data: &[I], pick: impl FnMut(&I) -> Option<T>) -> Option<T> {
    data.iter().find_map(pick)
}

fn vxlan(data: &[InfoVxlan]) -> Overlay {
    let mut found = Overlay::default();
    for info in data {
        match info {
            InfoVxlan::Id(vni) => found.vni = *vni,
            InfoVxlan::Group(ip) => found.remote = specified((*ip).into()),
            InfoVxlan::Group6(ip) => found.remote = specified((*ip).into()),
            InfoVxlan::Local(ip) => found.local = specified((*ip).into()),
            InfoVxlan::Local6(ip) => found.local = specified((*ip).into()),
            InfoVxlan::Port(port) => found.port = *port,
            _ => {}
        }
    }
    found
}

fn geneve(data: &[InfoGeneve]) -> Overlay {
    let mut found = Overlay::default();
    for info in data {
        match info {
            InfoGeneve::Id(vni) => found.vni = *vni,
            InfoGeneve::Remote(ip) => found.remote = specified((*ip).into()),
            InfoGeneve::Remote6(ip) => found.remote = specified((*ip).into()),
            InfoGeneve::Port(port) => found.port = *port,
            _ => {}
        }
    }
    found
}

fn gre(data: &[InfoGre]) -> Tunnel {
    let mut found = Tunnel::default();
    let mut keyed = false;
    for info in data {
        match info {
            InfoGre::Remote(ip) => found.remote = specified((*ip).into()),
            InfoGre::Local(ip) => found.local = specified((*ip).into()),
            InfoGre::Ttl(ttl) => found.ttl = *ttl,
            InfoGre::OFlags(flags) => {
                keyed = flags.contains(rtnetlink::packet_route::link::GreIOFlags::Key);
            }
            InfoGre::OKey(key) => found.key = Some(*key),
            _ => {}
        }
    }
    found.key = found.key.filter(|_| keyed);
    found
}

fn ipip(data: &[InfoIpTunnel]) -> Tunnel {
    let mut found = Tunnel::default();
    for info in data {
        match info {
            InfoIpTunnel::Remote(ip) => found.remote = specified(*ip),
            InfoIpTunnel::Local(ip) => found.local = specified(*ip),
            InfoIpTunnel::Ttl(ttl) => found.ttl = *ttl,
            _ => {}
        }
    }
    found
}

/// `IFLA_TUN_OWNER`, `IFLA_TUN_GROUP`, `IFLA_TUN_TYPE` (1: TUN, 2: TAP).
fn tun(data: &[InfoTun]) -> Kind {
    let value = |wanted: u16| {
        data.iter().find_map(|info| {
            let InfoTun::Other(nla) = info else { return None };
            let mut bytes = vec![0; nla.value_len()];
            nla.emit_value(&mut bytes);
            (nla.kind() == wanted).then_some(bytes)
        })
    };
    let u32_value = |wanted| value(wanted).and_then(|bytes| bytes.try_into().ok()).map(u32::from_ne_bytes);
    Kind::Tun {
        tap: value(3).is_some_and(|kind| kind.first() == Some(&2)),
        owner: u32_value(1),
        group: u32_value(2),
    }
}

fn specified(ip: IpAddr) -> Option<IpAddr> {
    Some(ip).filter(|ip| !ip.is_unspecified())
}

fn address(message: &AddressMessage) -> Option<Address> {
    let mut remote = None;
    let mut local = None;
    let mut protocol = 0;
    let mut permanent = message.header.flags.contains(AddressHeaderFlags::Permanent);
    for attribute in &message.attributes {
        match attribute {
            AddressAttribute::Address(ip) => remote = Some(*ip),
            AddressAttribute::Local(ip) => local = Some(*ip),
            AddressAttribute::Protocol(found) => protocol = (*found).into(),
            AddressAttribute::Flags(flags) => permanent = flags.contains(AddressFlags::Permanent),
            _ => {}
        }
    }
    // On a point-to-point interface IFA_ADDRESS is the peer's address.
    let net = IpNet::new(local.or(remote)?, message.header.prefix_len).ok()?;
    Some(Address { index: message.header.index, net, protocol, permanent })
}

/// The route, once for each next hop.
fn routes(message: &RouteMessage) -> Vec<Route> {
    let Some(route) = route(message) else { return Vec::new() };
    let hops = find(&message.attributes, |attribute| match attribute {
        RouteAttribute::MultiPath(hops) => Some(hops.clone()),
        _ => None,
    });
    match hops {
        Some(hops) => {
            hops.iter().map(|hop| Route { index: Some(hop.interface_index), ..route.clone() }).collect()
        }
        None => vec![route],
    }
}

fn route(message: &RouteMessage) -> Option<Route> {
    let v6 = match message.header.address_family {
        AddressFamily::Inet => false,
        AddressFamily::Inet6 => true,
        _ => return None,
    };
    // The others deliver to this namespace, or are of multicast.
    if !matches!(
        message.header.kind,
        RouteType::Unicast
            | RouteType::BlackHole
            | RouteType::Unreachable
            | RouteType::Prohibit
            | RouteType::Throw
    ) {
        return None;
    }
    let mut destination = None;
    let mut route = Route {
        table: message.header.table.into(),
        prefix: IpNet::default(),
        gateway: None,
        index: None,
        metric: 0,
        source: None,
        protocol: message.header.protocol.into(),
    };
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Table(table) => route.table = *table,
            RouteAttribute::Destination(found) => destination = ip(found),
            RouteAttribute::Gateway(found) => route.gateway = ip(found),
            RouteAttribute::PrefSource(found) => route.source = ip(found),
            RouteAttribute::Oif(index) => route.index = Some(*index),
            RouteAttribute::Priority(metric) => route.metric = *metric,
            _ => {}
        }
    }
    let destination = destination.unwrap_or_else(|| unspecified(v6));
    route.prefix = IpNet::new(destination, message.header.destination_prefix_length).ok()?;
    (route.table != TABLE_LOCAL).then_some(route)
}

fn rule(message: &RuleMessage) -> Option<Rule> {
    let v6 = match message.header.family {
        AddressFamily::Inet => false,
        AddressFamily::Inet6 => true,
        _ => return None,
    };
    if message.header.action != RuleAction::ToTable {
        return None;
    }
    let table = message.header.table.into();
    let mut rule =
        Rule { v6, priority: 0, table, from: None, to: None, input: None, mark: None, protocol: 0 };
    let mut mask = u32::MAX;
    for attribute in &message.attributes {
        match attribute {
            RuleAttribute::Priority(priority) => rule.priority = *priority,
            RuleAttribute::Table(table) => rule.table = *table,
            RuleAttribute::Source(ip) => rule.from = IpNet::new(*ip, message.header.src_len).ok(),
            RuleAttribute::Destination(ip) => rule.to = IpNet::new(*ip, message.header.dst_len).ok(),
            RuleAttribute::Iifname(name) => rule.input = Some(name.clone()),
            RuleAttribute::FwMark(mark) if *mark != 0 => rule.mark = Some((*mark, 0)),
            RuleAttribute::FwMask(bits) => mask = *bits,
            RuleAttribute::Protocol(protocol) => rule.protocol = (*protocol).into(),
            _ => {}
        }
    }
    rule.mark = rule.mark.map(|(mark, _)| (mark, mask));
    Some(rule)
}

fn ip(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(ip) => Some((*ip).into()),
        RouteAddress::Inet6(ip) => Some((*ip).into()),
        _ => None,
    }
}

fn unspecified(v6: bool) -> IpAddr {
    if v6 { std::net::Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() }
}
