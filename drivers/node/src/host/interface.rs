//! Interfaces of the host for BGP sessions: each is in one VLAN of another network of this node.
//!
//! - On a bridge it is one end of a pair, whose other end is a port in that VLAN. It stays when Open vSwitch ends.
//! - On a NIC with VLAN subinterfaces it is a macvlan on that of the VLAN.
//!
//! Policy rules select the interface's table for packets of the host *to gateways*, whatever their source: programs
//! that open sessions need not know it. What the host forwards finds no route by that table, but answers to what came in
//! by the interface itself (`return_path.rs`). So nothing goes from one such interface to the gateways of
//! another.
//!
//! The interface is guarded before it is up: by its filter ([`session_filter`]) and by its [`SYSCTLS`].

use std::collections::BTreeMap;
use std::net::IpAddr;

use eno_schemas::{HostNetwork, OvsDatapath, VlanId};
use ipnet::{IpNet, Ipv6Net};
use rtnetlink::packet_route::link::{
    InfoData, InfoKind, InfoVeth, LinkAttribute, LinkInfo, LinkMessage, MacVlanMode,
};
use rtnetlink::{LinkMacVlan, LinkMessageBuilder};

use super::guard::{self, Refusal};
use super::kernel::Change;
use super::nic::check_mtu;
use super::plan::{ItemRef, Planner};
use super::return_path::first_of_each_family;
use super::{ownership, session_filter};
use crate::netlink::{IngressProgram, Instruction, Kind, Link, PortVlan, Request, Rule};
use crate::pods::anti_spoof;

/// The MTU of the end on a bridge, in bytes: that of jumbo frames. A bridge has the least MTU of its ports.
const PORT_MTU: u32 = 9216;

/// Sysctls of the interface.
///
/// - It answers ARP for its own addresses only, and asks from them.
/// - `rp_filter` is loose: clients behind gateways are mostly reached by another interface. A strict check would drop
///   what they send to the prefixes.
/// - Router advertisements change nothing. The filter drops them, too.
pub const SYSCTLS: [(&str, &str); 5] = [
    ("ipv4/conf/arp_ignore", "1"),
    ("ipv4/conf/arp_announce", "2"),
    ("ipv4/conf/rp_filter", "2"),
    ("ipv6/conf/accept_ra", "0"),
    ("ipv6/conf/autoconf", "0"),
];

/// The observed settings of an interface, besides those of its link.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Its filter.
    pub program: IngressProgram,
    /// Values of [`SYSCTLS`], in that order; absent: there is none, such as without IPv6.
    pub sysctls: [Option<String>; SYSCTLS.len()],
    /// True if it leaves the checksums of what it sends to who takes the packet.
    pub leaves_checksums: bool,
}

/// A desired interface: the fields of [`HostNetwork::Interface`].
pub(super) struct Interface<'a> {
    pub(super) network: &'a str,
    pub(super) vlan: VlanId,
    pub(super) addresses: &'a [IpNet],
    pub(super) gateways: &'a [IpAddr],
    pub(super) prefixes: &'a [IpNet],
    pub(super) symmetric: bool,
    pub(super) mtu: Option<u32>,
}

/// What an interface is made on.
enum Lower<'a> {
    /// A bridge of Open vSwitch, which makes the port its own itself.
    Ovs {
        /// It passes packets on as they are, so the host must compute their checksums.
        in_user_space: bool,
    },
    /// A Linux bridge.
    Bridge(&'a Link),
    /// The subinterface of the VLAN.
    Vlan(&'a Link),
}

/// The MTU that an interface of this network is asked to have, in bytes: its own, or that of the network it is made on.
pub(super) fn requested_mtu(
    networks: &BTreeMap<String, HostNetwork>,
    network: &str,
    own: Option<u32>,
) -> Option<u32> {
    own.or_else(|| networks.get(network).and_then(network_mtu))
}

/// The MTU that a network asks for, in bytes.
pub fn network_mtu(network: &HostNetwork) -> Option<u32> {
    match network {
        HostNetwork::Ovs { uplink, .. } => uplink.as_ref().and_then(|uplink| uplink.mtu),
        HostNetwork::Bridge { uplink, mtu, .. } => (*mtu).max(uplink.as_ref().and_then(|uplink| uplink.mtu)),
        HostNetwork::Master { mtu, .. }
        | HostNetwork::PodBridge { mtu, .. }
        | HostNetwork::Interface { mtu, .. } => *mtu,
    }
}

impl<'a> Planner<'a> {
    pub(super) fn interface(&mut self, name: &str, wanted: &Interface<'_>) -> Result<(), Refusal> {
        let item = ItemRef::Network(name.to_owned());
        guard::session_interface_name(name)?;
        if wanted.symmetric {
            self.check_return_path()?;
        }
        let lower = self.lower(wanted)?;
        let found = self.state.named(name).filter(|link| link.group == self.group);
        self.check_reach(name, found.map(|link| link.index), wanted)?;
        let program = session_filter::program(wanted.addresses, wanted.gateways, wanted.prefixes)
            .ok_or_else(|| Refusal::FilterLength { name: name.to_owned() })?;
        let Some((link, port)) = self.session_link(&item, name, &lower)? else { return Ok(()) };
        let mtu = requested_mtu(self.networks, wanted.network, wanted.mtu);
        check_mtu(link, mtu)?;
        self.guard_link(&item, link, &lower, &program);
        let mut addresses = wanted.addresses.to_vec();
        if addresses.iter().any(|net| net.addr().is_ipv6()) {
            let mac = ownership::interface_mac(self.cluster, &self.state.installation.node, name);
            addresses.push(link_local(mac));
        }
        self.own_addresses(&item, link, &addresses);
        if let Some(port) = port {
            self.port(&item, port, &lower, wanted.vlan);
        }
        self.configure(&item, link, mtu);
        for gateway in wanted.gateways {
            let rule = Self::rule_of(link, gateway.is_ipv6());
            let (to, input) = (Some((*gateway).into()), Some("lo".to_owned()));
            self.own_rule(&item, Rule { to, input, ..rule });
        }
        let answered = if wanted.symmetric { wanted.gateways } else { &[] };
        self.own_routes(&item, link, wanted.addresses, first_of_each_family(answered));
        if wanted.symmetric {
            self.return_path(&item, link, answered)?;
        }
        Ok(())
    }

    /// What the interface is made on, if it is there.
    fn lower(&self, wanted: &Interface<'_>) -> Result<Lower<'a>, Refusal> {
        let (name, vlan) = (wanted.network, wanted.vlan);
        let unknown = || Refusal::NoVlan { network: name.to_owned(), vlan };
        let network = self.networks.get(name).ok_or_else(unknown)?;
        let (HostNetwork::Ovs { vlans, .. }
        | HostNetwork::Bridge { vlans, .. }
        | HostNetwork::Master { vlans, .. }) = network
        else {
            return Err(unknown());
        };
        if !vlans.contains(vlan) {
            return Err(unknown());
        }
        for item in [ItemRef::Network(name.to_owned()), ItemRef::Vlan(name.to_owned(), vlan)] {
            if let Some(reason) = self.refused.get(&item) {
                return Err(Refusal::Network { network: name.to_owned(), reason: Box::new(reason.clone()) });
            }
        }
        let existing = |name: &str, is_right_kind: &dyn Fn(&Kind) -> bool| {
            let found = self.state.named(name);
            found
                .filter(|found| found.group == self.group && is_right_kind(&found.kind))
                .ok_or_else(|| Refusal::Missing { name: name.to_owned() })
        };
        Ok(match network {
            HostNetwork::Bridge { .. } => {
                Lower::Bridge(existing(name, &|kind| matches!(kind, Kind::Bridge { .. }))?)
            }
            HostNetwork::Master { .. } => {
                let subinterface = guard::subinterface(name, vlan)?;
                Lower::Vlan(existing(&subinterface, &|kind| *kind == (Kind::Vlan { vid: vlan.get() }))?)
            }
            HostNetwork::Ovs { datapath, .. } => Lower::Ovs {
                in_user_space: datapath.unwrap_or(self.state.installation.ovs_datapath)
                    == OvsDatapath::Netdev,
            },
            HostNetwork::PodBridge { .. } | HostNetwork::Interface { .. } => return Err(unknown()),
        })
    }

    /// Checks what the interface makes reachable: from the host the gateways, and from the VLAN the prefixes.
    fn check_reach(&mut self, name: &str, own: Option<u32>, wanted: &Interface<'_>) -> Result<(), Refusal> {
        self.claim_addresses(name, own, wanted.addresses)?;
        for gateway in wanted.gateways {
            let is_near = wanted.addresses.iter().any(|net| net.contains(gateway));
            if !is_near || wanted.addresses.iter().any(|net| net.addr() == *gateway) {
                return Err(Refusal::Gateway { gateway: *gateway });
            }
            let address = IpNet::from(*gateway);
            guard::own_address(self.state, own, self.group, address)?;
            if let Some((_, other)) = self.gateways.iter().find(|(taken, _)| taken == gateway) {
                return Err(Refusal::AddressTaken { address, other: format!("a gateway of {other}") });
            }
        }
        self.gateways.extend(wanted.gateways.iter().map(|gateway| (*gateway, name.to_owned())));
        wanted.prefixes.iter().try_for_each(|prefix| guard::opened_prefix(self.state, own, *prefix))
    }

    /// The interface and its port on the bridge, if it has one. `None`: this plan makes them, the rest follows.
    fn session_link(
        &mut self,
        item: &ItemRef,
        name: &str,
        lower: &Lower<'_>,
    ) -> Result<Option<(&'a Link, Option<&'a Link>)>, Refusal> {
        let mac = ownership::interface_mac(self.cluster, &self.state.installation.node, name).to_vec();
        let (others, message) = if let Lower::Vlan(lower) = lower {
            let found = self.owned_link(item, name, |kind| *kind == (Kind::Macvlan { bridge: true }))?;
            if let Some(link) = found.filter(|link| link.parent == Some(lower.index)) {
                return Ok(Some((link, None)));
            }
            let message: LinkMessageBuilder<LinkMacVlan> =
                LinkMacVlan::new(name, lower.index, MacVlanMode::Bridge).link_group(self.group).address(mac);
            ([found, None], message.build())
        } else {
            let port_name = ownership::port(name);
            let port = self.owned_link(item, &port_name, |kind| *kind == Kind::Veth)?;
            let link = self.owned_link(item, name, |kind| *kind == Kind::Veth)?;
            if let (Some(link), Some(port)) = (link, port)
                && link.parent == Some(port.index)
                && link.parent_namespace.is_none()
            {
                return Ok(Some((link, Some(port))));
            }
            let mut message = self.end(name);
            let peer = InfoData::Veth(InfoVeth::Peer(self.end(&port_name)));
            let info = vec![LinkInfo::Kind(InfoKind::Veth), LinkInfo::Data(peer)];
            message.attributes.extend([LinkAttribute::Address(mac), LinkAttribute::LinkInfo(info)]);
            ([link, port], message)
        };
        for other in others.into_iter().flatten() {
            let difference = format!("{} did not lead to the network", other.name);
            self.step(item, Request::delete_link(&other.name, other.index), difference);
        }
        self.step(item, Request::add_link(name, message), format!("the interface {name} was missing"));
        Ok(None)
    }

    /// One end of a pair, in ENO's group from its beginning.
    fn end(&self, name: &str) -> LinkMessage {
        let mut message = LinkMessage::default();
        message.attributes.extend([LinkAttribute::IfName(name.to_owned()), LinkAttribute::Group(self.group)]);
        message
    }

    /// Plans what guards the interface, and what must not change while it is in use.
    fn guard_link(&mut self, item: &ItemRef, link: &Link, lower: &Lower<'_>, program: &[Instruction]) {
        let name = link.name.as_str();
        let default = Settings::default();
        let state = self.state;
        let settings = state.interfaces.get(&link.index).unwrap_or(&default);
        if !settings.program.is(program) {
            self.step(item, Request::add_clsact(name, link.index), format!("{name} had another filter"));
            let request = Request::set_ingress_program(name, link.index, program);
            self.step(item, request, format!("{name} had another filter"));
        }
        for ((key, value), found) in SYSCTLS.into_iter().zip(&settings.sysctls) {
            if let Some(found) = found.as_ref().filter(|found| *found != value) {
                let difference = format!("the sysctl {key} of {name} was {found}");
                self.step(item, Change::Sysctl { interface: name.to_owned(), key, value }, difference);
            }
        }
        if settings.leaves_checksums && matches!(lower, Lower::Ovs { in_user_space: true }) {
            let change = Change::ComputeChecksums { interface: name.to_owned(), index: link.index };
            self.step(item, change, format!("{name} left checksums to Open vSwitch"));
        }
        let mac = ownership::interface_mac(self.cluster, &state.installation.node, name);
        if link.mac != Some(mac) {
            let attributes = vec![LinkAttribute::Address(mac.to_vec())];
            let request = Request::set(name, link.index, "MAC address", attributes);
            self.step(item, request, format!("{name} had another MAC address"));
        }
    }

    /// Plans the end on the bridge: a port of a Linux bridge in that VLAN only.
    fn port(&mut self, item: &ItemRef, port: &Link, lower: &Lower<'_>, vlan: VlanId) {
        let bridge = if let Lower::Bridge(bridge) = lower { Some(bridge.index) } else { None };
        let of_linux = |master: &u32| {
            self.state.snapshot.link(*master).is_some_and(|found| matches!(found.kind, Kind::Bridge { .. }))
        };
        if port.master.filter(|master| bridge.is_some() || of_linux(master)) != bridge {
            let request = Request::set_master(&port.name, port.index, bridge.unwrap_or(0));
            self.step(item, request, format!("{} was a port of something else", port.name));
        } else if bridge.is_some() {
            let wanted = PortVlan { vid: vlan.get(), pvid: true, untagged: true };
            let found = self.state.vlans.get(&port.index).map(Vec::as_slice).unwrap_or_default();
            let others: Vec<PortVlan> =
                found.iter().filter(|found| found.vid != wanted.vid).copied().collect();
            if !others.is_empty() {
                let request = Request::delete_port_vlans(&port.name, port.index, &others);
                self.step(item, request, format!("{} was in other VLANs too", port.name));
            }
            if !found.contains(&wanted) {
                let request = Request::add_port_vlans(&port.name, port.index, &[wanted]);
                self.step(item, request, format!("{} was not in VLAN {vlan}", port.name));
            }
        }
        self.configure(item, port, Some(PORT_MTU));
    }
}

/// The link-local address of an interface with IPv6. The kernel needs one to ask for neighbours of what it forwards, and
/// to check those that it knows. Nobody reaches it: the filter drops what is sent there.
fn link_local(mac: [u8; 6]) -> IpNet {
    Ipv6Net::new_assert(anti_spoof::link_local(mac), 64).into()
}

#[cfg(test)]
#[path = "interface_tests.rs"]
mod tests;
