//! Kinds of interfaces: the kind that the kernel is to show, the messages that make it, and its comparison with the
//! observed one.

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

/// The kind that the kernel shows of such an interface.
fn observable(wanted: &LinkKind) -> Kind {
    let tunnel = |tunnel: &eno_schemas::Tunnel| Tunnel {
        remote: Some(tunnel.remote.into()),
        local: tunnel.local.map(IpAddr::from),
        key: tunnel.key,
        ttl: tunnel.ttl.unwrap_or_default(),
    };
    match wanted {
        LinkKind::Veth { .. } => Kind::Veth,
        LinkKind::Macvlan { .. } => Kind::Macvlan { bridge: true },
        LinkKind::Ipvlan { .. } => Kind::Ipvlan { l2: true },
        LinkKind::Vlan { vlan, .. } => Kind::Vlan { vid: vlan.get() },
        LinkKind::Bridge {} => Kind::Bridge { vlan_filtering: false, default_pvid: 1 },
        LinkKind::Dummy {} => Kind::Dummy,
        LinkKind::Vrf { table } => Kind::Vrf { table: *table },
        LinkKind::Vxlan { vni, remote, local, port } => Kind::Vxlan(Overlay {
            vni: *vni,
            remote: *remote,
            local: *local,
            port: port.unwrap_or(VXLAN_PORT),
        }),
        LinkKind::Geneve { vni, remote, port } => Kind::Geneve(Overlay {
            vni: *vni,
            remote: Some(*remote),
            local: None,
            port: port.unwrap_or(GENEVE_PORT),
        }),
        LinkKind::Gre(found) => Kind::Gre(tunnel(found)),
        LinkKind::Gretap(found) => Kind::Gretap(tunnel(found)),
        LinkKind::Ipip(found) => Kind::Ipip(tunnel(found)),
        LinkKind::Tun(device) => Kind::Tun { tap: false, owner: device.owner, group: device.group },
        LinkKind::Tap(device) => Kind::Tun { tap: true, owner: device.owner, group: device.group },
    }
}

/// True when an observed interface has the desired kind and all attributes of it that can't be changed. The lower
/// interface is not compared.
pub fn matches(wanted: &LinkKind, found: &Kind) -> bool {
    match (observable(wanted), found) {
        // The attributes of a bridge can be changed, and belong to the pod's processes.
        (Kind::Bridge { .. }, Kind::Bridge { .. }) => true,
        (wanted, found) => wanted == *found,
    }
}

/// `IFLA_LINKINFO` of a new interface; empty for veth, which needs a peer, and for TUN and TAP, which RTM_NEWLINK does
/// not make.
pub fn info(wanted: &LinkKind) -> Vec<LinkInfo> {
    let (name, data) = match observable(wanted) {
        Kind::Macvlan { .. } => {
            (InfoKind::MacVlan, Some(InfoData::MacVlan(vec![InfoMacVlan::Mode(MacVlanMode::Bridge)])))
        }
        Kind::Ipvlan { .. } => {
            (InfoKind::IpVlan, Some(InfoData::IpVlan(vec![InfoIpVlan::Mode(IpVlanMode::L2)])))
        }
        Kind::Vlan { vid } => {
            let data = vec![InfoVlan::Id(vid), InfoVlan::Protocol(VlanProtocol::Ieee8021Q)];
            (InfoKind::Vlan, Some(InfoData::Vlan(data)))
        }
        Kind::Bridge { .. } => (InfoKind::Bridge, None),
        Kind::Dummy => (InfoKind::Dummy, None),
        Kind::Vrf { table } => (InfoKind::Vrf, Some(InfoData::Vrf(vec![InfoVrf::TableId(table)]))),
        Kind::Vxlan(overlay) => {
            let mut data = vec![InfoVxlan::Id(overlay.vni), InfoVxlan::Port(overlay.port)];
            data.extend(overlay.remote.map(|ip| match ip {
                IpAddr::V4(ip) => InfoVxlan::Group(ip),
                IpAddr::V6(ip) => InfoVxlan::Group6(ip),
            }));
            data.extend(overlay.local.map(|ip| match ip {
                IpAddr::V4(ip) => InfoVxlan::Local(ip),
                IpAddr::V6(ip) => InfoVxlan::Local6(ip),
            }));
            (InfoKind::Vxlan, Some(InfoData::Vxlan(data)))
        }
        Kind::Geneve(overlay) => {
            let mut data = vec![InfoGeneve::Id(overlay.vni), InfoGeneve::Port(overlay.port)];
            data.extend(overlay.remote.map(|ip| match ip {
                IpAddr::V4(ip) => InfoGeneve::Remote(ip),
                IpAddr::V6(ip) => InfoGeneve::Remote6(ip),
            }));
            (InfoKind::Geneve, Some(InfoData::Geneve(data)))
        }
        Kind::Gre(tunnel) => (InfoKind::GreTun, Some(InfoData::GreTun(gre(&tunnel)))),
        Kind::Gretap(tunnel) => (InfoKind::GreTap, Some(InfoData::GreTap(gre(&tunnel)))),
        Kind::Ipip(tunnel) => {
            let mut data = vec![InfoIpTunnel::PMtuDisc(true), InfoIpTunnel::Ttl(tunnel.ttl)];
            data.extend(tunnel.remote.map(InfoIpTunnel::Remote));
            data.extend(tunnel.local.map(InfoIpTunnel::Local));
            (InfoKind::IpIp, Some(InfoData::IpTunnel(data)))
        }
        _ => return Vec::new(),
    };
    let mut info = vec![LinkInfo::Kind(name)];
    info.extend(data.map(LinkInfo::Data));
    info
}

fn gre(tunnel: &Tunnel) -> Vec<InfoGre> {
    let v4 = |ip: Option<IpAddr>| match ip {
        Some(IpAddr::V4(ip)) => Some(ip),
        _ => None,
    };
    let mut data = vec![InfoGre::PathMTUDiscovery(true), InfoGre::Ttl(tunnel.ttl)];
    data.extend(v4(tunnel.remote).map(InfoGre::Remote));
    data.extend(v4(tunnel.local).map(InfoGre::Local));
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

/// A message that makes an interface in the group [`GROUP`].
pub fn new_link_message(name: &str, mtu: Option<u32>) -> LinkMessage {
    let mut new_link_message = LinkMessage::default();
    new_link_message.attributes.push(LinkAttribute::IfName(name.to_owned()));
    new_link_message.attributes.push(LinkAttribute::Group(GROUP));
    new_link_message.attributes.extend(mtu.map(LinkAttribute::Mtu));
    new_link_message
}
