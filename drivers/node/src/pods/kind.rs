//! Kinds of interfaces: the messages that make them, and the comparison of an observed kind with the desired one.

use std::net::IpAddr;

use eno_schemas::{LinkKind, Parent};
use rtnetlink::packet_route::link::{
    GreIOFlags, InfoData, InfoGeneve, InfoGre, InfoIpTunnel, InfoIpVlan, InfoKind, InfoMacVlan, InfoVlan,
    InfoVrf, InfoVxlan, IpVlanMode, LinkAttribute, LinkInfo, LinkMessage, MacVlanMode, VlanProtocol,
};

use super::ownership::GROUP;
use crate::netlink::{Kind, Overlay, Tunnel};

/// The default UDP port of VXLAN (RFC 7348).
const VXLAN_PORT: u16 = 4789;
/// The default UDP port of Geneve (RFC 8926).
const GENEVE_PORT: u16 = 6081;

/// The lower interface that an interface is made on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Base<'a> {
    /// The interface has no lower interface.
    Nothing,
    /// Another of ENO's interfaces in the pod, by its link's id.
    Link(&'a str),
    /// An interface in the pod, by name.
    Pod(&'a str),
    /// An interface of the host, by name.
    Host(&'a str),
}

/// The lower interface that a kind asks for.
pub fn base(kind: &LinkKind) -> Base<'_> {
    match kind {
        LinkKind::Macvlan { master } | LinkKind::Ipvlan { master } => Base::Host(master),
        LinkKind::Vlan { parent: Parent::Host(name), .. } => Base::Host(name),
        LinkKind::Vlan { parent: Parent::Pod(name), .. } => Base::Pod(name),
        LinkKind::Vlan { parent: Parent::Link(id), .. } => Base::Link(id),
        _ => Base::Nothing,
    }
}

/// `IFLA_LINKINFO` of a new interface; `None` for veth, which needs a peer, and for TUN and TAP, which RTM_NEWLINK does
/// not make.
pub fn info(kind: &LinkKind) -> Option<Vec<LinkInfo>> {
    let (name, data) = match kind {
        LinkKind::Veth { .. } | LinkKind::Tun(_) | LinkKind::Tap(_) => return None,
        LinkKind::Macvlan { .. } => {
            (InfoKind::MacVlan, Some(InfoData::MacVlan(vec![InfoMacVlan::Mode(MacVlanMode::Bridge)])))
        }
        LinkKind::Ipvlan { .. } => {
            (InfoKind::IpVlan, Some(InfoData::IpVlan(vec![InfoIpVlan::Mode(IpVlanMode::L2)])))
        }
        LinkKind::Vlan { vlan, .. } => (
            InfoKind::Vlan,
            Some(InfoData::Vlan(vec![InfoVlan::Id(vlan.get()), InfoVlan::Protocol(VlanProtocol::Ieee8021Q)])),
        ),
        LinkKind::Bridge {} => (InfoKind::Bridge, None),
        LinkKind::Dummy {} => (InfoKind::Dummy, None),
        LinkKind::Vrf { table } => (InfoKind::Vrf, Some(InfoData::Vrf(vec![InfoVrf::TableId(*table)]))),
        LinkKind::Vxlan { vni, remote, local, port } => {
            let mut data = vec![InfoVxlan::Id(*vni), InfoVxlan::Port(port.unwrap_or(VXLAN_PORT))];
            data.extend(remote.map(|ip| match ip {
                IpAddr::V4(ip) => InfoVxlan::Group(ip),
                IpAddr::V6(ip) => InfoVxlan::Group6(ip),
            }));
            data.extend(local.map(|ip| match ip {
                IpAddr::V4(ip) => InfoVxlan::Local(ip),
                IpAddr::V6(ip) => InfoVxlan::Local6(ip),
            }));
            (InfoKind::Vxlan, Some(InfoData::Vxlan(data)))
        }
        LinkKind::Geneve { vni, remote, port } => {
            let remote = match remote {
                IpAddr::V4(ip) => InfoGeneve::Remote(*ip),
                IpAddr::V6(ip) => InfoGeneve::Remote6(*ip),
            };
            let data = vec![InfoGeneve::Id(*vni), remote, InfoGeneve::Port(port.unwrap_or(GENEVE_PORT))];
            (InfoKind::Geneve, Some(InfoData::Geneve(data)))
        }
        LinkKind::Gre(tunnel) => (InfoKind::GreTun, Some(InfoData::GreTun(gre(tunnel)))),
        LinkKind::Gretap(tunnel) => (InfoKind::GreTap, Some(InfoData::GreTap(gre(tunnel)))),
        LinkKind::Ipip(tunnel) => {
            let mut data = vec![InfoIpTunnel::Remote(tunnel.remote.into()), InfoIpTunnel::PMtuDisc(true)];
            data.extend(tunnel.local.map(|ip| InfoIpTunnel::Local(ip.into())));
            data.extend(tunnel.ttl.map(InfoIpTunnel::Ttl));
            (InfoKind::IpIp, Some(InfoData::IpTunnel(data)))
        }
    };
    let mut info = vec![LinkInfo::Kind(name)];
    info.extend(data.map(LinkInfo::Data));
    Some(info)
}

fn gre(tunnel: &eno_schemas::Tunnel) -> Vec<InfoGre> {
    let mut data = vec![InfoGre::Remote(tunnel.remote), InfoGre::PathMTUDiscovery(true)];
    data.extend(tunnel.local.map(InfoGre::Local));
    data.extend(tunnel.ttl.map(InfoGre::Ttl));
    if let Some(key) = tunnel.key {
        data.extend([
            InfoGre::IFlags(GreIOFlags::Key),
            InfoGre::OFlags(GreIOFlags::Key),
            InfoGre::IKey(key),
            InfoGre::OKey(key),
        ]);
    }
    data
}

/// True when an observed interface has the desired kind and all attributes of it that can't be changed. The lower
/// interface is not compared.
pub fn matches(wanted: &LinkKind, found: &Kind) -> bool {
    match (wanted, found) {
        (LinkKind::Veth { .. }, Kind::Veth)
        | (LinkKind::Bridge {}, Kind::Bridge { .. })
        | (LinkKind::Dummy {}, Kind::Dummy)
        | (LinkKind::Macvlan { .. }, Kind::Macvlan { bridge: true })
        | (LinkKind::Ipvlan { .. }, Kind::Ipvlan { l2: true }) => true,
        (LinkKind::Vlan { vlan, .. }, Kind::Vlan { vid }) => vlan.get() == *vid,
        (LinkKind::Vrf { table }, Kind::Vrf { table: found }) => table == found,
        (LinkKind::Vxlan { vni, remote, local, port }, Kind::Vxlan(found)) => {
            *found == Overlay { vni: *vni, remote: *remote, local: *local, port: port.unwrap_or(VXLAN_PORT) }
        }
        (LinkKind::Geneve { vni, remote, port }, Kind::Geneve(found)) => {
            *found
                == Overlay {
                    vni: *vni,
                    remote: Some(*remote),
                    local: None,
                    port: port.unwrap_or(GENEVE_PORT),
                }
        }
        (LinkKind::Gre(tunnel), Kind::Gre(found))
        | (LinkKind::Gretap(tunnel), Kind::Gretap(found))
        | (LinkKind::Ipip(tunnel), Kind::Ipip(found)) => {
            let wanted = Tunnel {
                remote: Some(tunnel.remote.into()),
                local: tunnel.local.map(IpAddr::from),
                key: tunnel.key,
                ttl: tunnel.ttl.unwrap_or_default(),
            };
            *found == wanted
        }
        (LinkKind::Tun(device), Kind::Tun { tap: false, owner, group })
        | (LinkKind::Tap(device), Kind::Tun { tap: true, owner, group }) => {
            device.owner == *owner && device.group == *group
        }
        _ => false,
    }
}

/// A message that makes an interface in the group [`GROUP`].
pub fn new_link_message(name: &str, mtu: Option<u32>) -> LinkMessage {
    let mut new_link_message = LinkMessage::default();
    new_link_message.attributes.push(LinkAttribute::IfName(name.to_owned()));
    new_link_message.attributes.push(LinkAttribute::Group(GROUP));
    new_link_message.attributes.extend(mtu.map(LinkAttribute::Mtu));
    new_link_message
}
