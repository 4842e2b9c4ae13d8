//! Rules that decide whether ENO may use an interface of the host, so that the node's own connectivity stays intact.

use std::net::IpAddr;

use eno_schemas::{MarkMask, VlanId};
use ipnet::IpNet;

use super::ownership;
use super::state::{State, kind_name};
use crate::netlink::{Kind, Link};

/// Maximum bytes of an interface name (`IFNAMSIZ` without the final zero).
const MAX_NAME_LEN: usize = 15;

/// Name prefixes of interfaces that belong to common cluster networks (primary CNIs).
const PRIMARY_PREFIXES: [&str; 13] = [
    "cni",
    "flannel",
    "cilium",
    "lxc",
    "cali",
    "vxlan.calico",
    "tunl",
    "weave",
    "vxlan-6784",
    "kube-",
    "docker",
    "antrea",
    "ovn-k8s",
];

/// Why an item of the desired state is not realised.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The name is not valid for an interface.
    #[error(
        "{name:?} can't be the name of an interface: it takes 1 to 15 printable characters other than / and :"
    )]
    Name {
        /// The interface.
        name: String,
    },
    /// The name of a VLAN subinterface would be too long.
    #[error("the VLAN subinterface {name} would have a name of {} characters, and 15 are the most; give {master} a shorter one", name.len())]
    SubinterfaceName {
        /// Its name.
        name: String,
        /// The interface that it would be made on.
        master: String,
    },
    /// There is no interface of that name.
    #[error("the node has no interface {name}")]
    Missing {
        /// The interface.
        name: String,
    },
    /// An interface that ENO did not make has the name.
    #[error(
        "there is an interface {name} ({kind}) already that ENO did not make; delete it, or choose another name"
    )]
    Foreign {
        /// The interface.
        name: String,
        /// Its kind.
        kind: String,
    },
    /// An interface of this kind can't be an uplink.
    #[error("{name} is a {kind}; name a NIC")]
    Kind {
        /// The interface.
        name: String,
        /// Its kind.
        kind: String,
    },
    /// The interface carries an address of the node.
    #[error("{name} carries the address {address} of the node; name a NIC without addresses")]
    Address {
        /// The interface.
        name: String,
        /// One of the addresses.
        address: IpNet,
    },
    /// The node's own traffic is routed over the interface.
    #[error("{name} carries {} of the node's main table; name a NIC without routes", route(prefix))]
    Route {
        /// The interface.
        name: String,
        /// The prefix of one of the routes.
        prefix: IpNet,
    },
    /// The interface is a member of a bridge or bond that ENO did not make.
    #[error("{name} is a member of {master} ({kind}), which ENO did not make; take it out of there first")]
    Member {
        /// The interface.
        name: String,
        /// The bridge or bond that it is a member of.
        master: String,
        /// The kind of that.
        kind: String,
    },
    /// The interface belongs to the cluster's primary network.
    #[error("{name} belongs to the cluster's own network; name another NIC")]
    Primary {
        /// The interface.
        name: String,
    },
    /// ENO made the interface for a network or a pod.
    #[error("{name} was made by ENO for something else; name a NIC")]
    Ours {
        /// The interface.
        name: String,
    },
    /// An interface on top of this one must be left alone.
    #[error("{name} is what {upper} is on: {reason}")]
    Upper {
        /// The interface.
        name: String,
        /// The interface on top of it.
        upper: String,
        /// Why that must be left alone.
        reason: Box<Refusal>,
    },
    /// Two networks ask for the same NIC.
    #[error("{name} is used by the network {other} already; a NIC can be part of one only")]
    Taken {
        /// The interface.
        name: String,
        /// The other network.
        other: String,
    },
    /// The requested MTU exceeds the interface's maximum.
    #[error("an MTU of {requested} is asked of {name}, and {maximum} is the most that it can")]
    Mtu {
        /// The interface.
        name: String,
        /// Requested MTU in bytes.
        requested: u32,
        /// The interface's maximum MTU in bytes.
        maximum: u32,
    },
    /// The address is in use on another interface or network.
    #[error("the address {address} is that of {other} already")]
    AddressTaken {
        /// The address.
        address: IpNet,
        /// The interface or network that has it.
        other: String,
    },
    /// The address lies in a network that the node reaches over another interface.
    #[error("{address} is within {prefix}, which the node reaches on {other}; choose another network")]
    Overlap {
        /// The address.
        address: IpNet,
        /// The prefix of the overlapping route.
        prefix: IpNet,
        /// The interface of that route.
        other: String,
    },
    /// The address lies in a network that is no network of hosts.
    #[error("{address} is in {network}, which is for {purpose}; choose another network")]
    Special {
        /// The address.
        address: IpNet,
        /// The network.
        network: String,
        /// Its purpose.
        purpose: String,
    },
    /// The address lies in a network that the installation reserves.
    #[error(
        "{address} is in {reserved}, which this installation reserves for the cluster (--reserved-network); choose another network"
    )]
    Reserved {
        /// The address.
        address: IpNet,
        /// The reserved network.
        reserved: IpNet,
    },
    /// A bridge of ENO would take a name of the node's infrastructure.
    #[error("{name} is a name that the node's own interfaces have; choose another name")]
    NodeName {
        /// The name.
        name: String,
    },
    /// The interface is neither ENO's nor on the allow list.
    #[error(
        "{name} was not made by ENO and is not on this node's list of allowed interfaces (--allow-interface)"
    )]
    NotAllowed {
        /// The interface.
        name: String,
    },
    /// The name is not that of an interface for BGP sessions.
    #[error("{name:?} can't be the name of an interface for BGP sessions: it takes eno- and more")]
    SessionInterfaceName {
        /// The name.
        name: String,
    },
    /// No network of the node has the VLAN.
    #[error("{network} is no network of this node with the VLAN {vlan}")]
    NoVlan {
        /// The network.
        network: String,
        /// The VLAN.
        vlan: VlanId,
    },
    /// The gateway is not a neighbour.
    #[error("the gateway {gateway} is in no network of the interface's addresses, or one of these itself")]
    Gateway {
        /// The gateway.
        gateway: IpAddr,
    },
    /// The prefix would make something of the node reachable.
    #[error("packets to {prefix} would reach {inside}, which the node has on {other}; choose other prefixes")]
    Opened {
        /// The prefix.
        prefix: IpNet,
        /// The address or network that it shares addresses with.
        inside: IpNet,
        /// The interface that has it.
        other: String,
    },
    /// The filter would exceed the kernel's limit.
    #[error("{name} has more gateways and prefixes than one filter can check; join prefixes")]
    FilterLength {
        /// The interface.
        name: String,
    },
    /// Connections are not tracked by the kernel.
    #[error(
        "ReturnPath Symmetric is not supported on this node: {name} shows the data plane of {data_plane} in eBPF, whose answers \
         have no marks of the kernel's connection tracking; set ReturnPath to None"
    )]
    Ebpf {
        /// The interface that shows it.
        name: &'static str,
        /// The data plane.
        data_plane: &'static str,
    },
    /// Each mark is another interface's.
    #[error(
        "all marks of {mask} lead answers back by other interfaces; widen agent.returnPathMask (--return-path-mask)"
    )]
    Marks {
        /// The bits of marks.
        mask: MarkMask,
    },
    /// The network that the item belongs to was refused.
    #[error("the network {network} is not there: {reason}")]
    Network {
        /// The network's name.
        network: String,
        /// Why it was refused.
        reason: Box<Refusal>,
    },
    /// The kernel refused a request.
    #[error("{message}")]
    Failed {
        /// The operation and the kernel's message.
        message: String,
        /// True when a retry may succeed.
        retryable: bool,
    },
    /// The interface differs again after every change: another process changes it too.
    #[error("someone else keeps changing it: {difference}")]
    Unstable {
        /// The remaining difference.
        difference: String,
    },
}

fn route(prefix: &IpNet) -> String {
    if prefix.prefix_len() == 0 { "the default route".to_owned() } else { format!("the route to {prefix}") }
}

impl Refusal {
    /// True when the cause is on the node, so that it may pass while the desired state stays the same.
    pub fn retryable(&self) -> bool {
        match self {
            Self::Name { .. }
            | Self::Special { .. }
            | Self::Reserved { .. }
            | Self::NodeName { .. }
            | Self::SessionInterfaceName { .. }
            | Self::NoVlan { .. }
            | Self::Gateway { .. }
            | Self::FilterLength { .. }
            | Self::SubinterfaceName { .. }
            | Self::Taken { .. }
            | Self::NotAllowed { .. } => false,
            Self::Failed { retryable, .. } => *retryable,
            Self::Upper { reason, .. } | Self::Network { reason, .. } => reason.retryable(),
            _ => true,
        }
    }
}

/// Checks an interface name: valid for the kernel (`dev_valid_name`) and printable ASCII.
pub fn name(name: &str) -> Result<(), Refusal> {
    let fine = (1..=MAX_NAME_LEN).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'/' && byte != b':')
        && !matches!(name, "." | "..");
    if fine { Ok(()) } else { Err(Refusal::Name { name: name.to_owned() }) }
}

/// The name of the subinterface of a VLAN: `<master>.<vlan>`.
pub fn subinterface(master: &str, vlan: VlanId) -> Result<String, Refusal> {
    let name = format!("{master}.{vlan}");
    if name.len() <= MAX_NAME_LEN {
        Ok(name)
    } else {
        Err(Refusal::SubinterfaceName { name, master: master.to_owned() })
    }
}

/// The purpose of a NIC.
#[derive(Clone, Copy, Debug)]
pub struct NicUse {
    /// [`super::ownership::group`] of the cluster.
    pub group: u32,
    /// It is to be, or is, a port of Open vSwitch.
    pub ovs: bool,
}

/// Checks that a NIC may be used as an uplink, as a member of a bond or as a master. Returns the NIC.
pub fn nic<'a>(state: &'a State, name: &str, usage: NicUse) -> Result<&'a Link, Refusal> {
    self::name(name)?;
    let link = state.named(name).ok_or_else(|| Refusal::Missing { name: name.to_owned() })?;
    if matches!(
        link.kind,
        Kind::Loopback
            | Kind::Bridge { .. }
            | Kind::Vxlan(_)
            | Kind::Geneve(_)
            | Kind::Gre(_)
            | Kind::Ipip(_)
            | Kind::Vrf { .. }
    ) {
        return Err(Refusal::Kind { name: link.name.clone(), kind: kind_name(&link.kind).to_owned() });
    }
    if link.group == usage.group {
        return Err(Refusal::Ours { name: link.name.clone() });
    }
    if let Some(master) = link.master {
        let found = state.snapshot.link(master);
        let ours = found.is_some_and(|found| found.group == usage.group);
        let ovs =
            found.is_some_and(|found| matches!(&found.kind, Kind::Other(kind) if kind == "openvswitch"));
        let allowed = ours || (ovs && usage.ovs);
        if !allowed {
            return Err(Refusal::Member {
                name: link.name.clone(),
                master: state.name(master),
                kind: found.map_or("unknown", |found| kind_name(&found.kind)).to_owned(),
            });
        }
    }
    check_unused(state, link)?;
    for upper in state.uppers(link.index).filter(|upper| upper.group != usage.group) {
        if let Err(reason) = check_unused(state, upper) {
            return Err(Refusal::Upper {
                name: link.name.clone(),
                upper: upper.name.clone(),
                reason: Box::new(reason),
            });
        }
    }
    Ok(link)
}

/// Checks that the node itself does not use the interface: no address, no route, not of the primary CNI.
pub fn check_unused(state: &State, link: &Link) -> Result<(), Refusal> {
    let name = || link.name.clone();
    if PRIMARY_PREFIXES.iter().any(|prefix| link.name.starts_with(prefix)) {
        return Err(Refusal::Primary { name: name() });
    }
    if let Some(route) =
        state.main_routes_of(link.index).find(|route| !is_link_local_or_multicast(&route.prefix))
    {
        return Err(Refusal::Route { name: name(), prefix: route.prefix });
    }
    if let Some(address) =
        state.addresses_of(link.index).find(|address| !is_link_local_or_multicast(&address.net))
    {
        return Err(Refusal::Address { name: name(), address: address.net });
    }
    Ok(())
}

/// Networks that nothing of ENO on the host may overlap, each with what it is for.
const SPECIAL_NETWORKS: [(&str, &str); 10] = [
    ("0.0.0.0/8", "this network"),
    ("127.0.0.0/8", "loopback"),
    ("169.254.0.0/16", "link-local addresses"),
    ("224.0.0.0/4", "multicast"),
    ("240.0.0.0/4", "future use and broadcast"),
    ("::/127", "loopback"),
    ("::ffff:0:0/96", "IPv4 addresses"),
    ("64:ff9b::/96", "translated IPv4 addresses"),
    ("fe80::/10", "link-local addresses"),
    ("ff00::/8", "multicast"),
];

fn overlap(a: &IpNet, b: &IpNet) -> bool {
    a.contains(&b.network()) || b.contains(&a.network())
}

/// Checks that a network is one of hosts, and not reserved by the installation.
fn free_network(state: &State, address: IpNet) -> Result<(), Refusal> {
    let special =
        SPECIAL_NETWORKS.iter().find(|(net, _)| net.parse().is_ok_and(|net| overlap(&net, &address)));
    if let Some((net, purpose)) = special {
        return Err(Refusal::Special { address, network: (*net).to_owned(), purpose: (*purpose).to_owned() });
    }
    match state.installation.reserved.iter().find(|reserved| overlap(reserved, &address)) {
        Some(reserved) => Err(Refusal::Reserved { address, reserved: *reserved }),
        None => Ok(()),
    }
}

/// Checks that an interface of ENO may have an address. The node answers for it, and for nothing that it reaches
/// elsewhere: an address of its own, a network that it has any route to but the default, the networks that the
/// installation reserves. `own`: the index of the interface, if it exists. `group`: that of ENO's own ones, whose networks
/// may overlap.
pub fn own_address(state: &State, own: Option<u32>, group: u32, address: IpNet) -> Result<(), Refusal> {
    free_network(state, address)?;
    let ours = |index: u32| state.snapshot.link(index).is_some_and(|link| link.group == group);
    let mut others = state.snapshot.addresses.iter().filter(|found| Some(found.index) != own);
    if let Some(found) = others.clone().find(|found| found.net.addr() == address.addr()) {
        return Err(Refusal::AddressTaken { address, other: state.name(found.index) });
    }
    let reached = |found: &&crate::netlink::Route| {
        !ownership::is_table(found.table)
            && (found.index.is_none() || found.index != own)
            && found.prefix.prefix_len() > 0
            && overlap(&found.prefix, &address)
    };
    if let Some(found) = state.snapshot.routes.iter().find(reached) {
        let other = found.index.map_or_else(|| "another interface".to_owned(), |index| state.name(index));
        return Err(Refusal::Overlap { address, prefix: found.prefix, other });
    }
    if let Some(found) = others.find(|found| address.contains(&found.net.addr()) && !ours(found.index)) {
        let other = state.name(found.index);
        return Err(Refusal::Overlap { address, prefix: found.net.addr().into(), other });
    }
    Ok(())
}

/// The interface of kube-proxy that has the addresses of services as its own.
const SERVICES: &str = "kube-ipvs0";

/// Checks that packets from a VLAN to a prefix reach services, and nothing that the node has elsewhere: an address, a
/// network that it has a route to, the networks that the installation reserves. `own`: the index of the interface by
/// which they come.
pub fn opened_prefix(state: &State, own: Option<u32>, prefix: IpNet) -> Result<(), Refusal> {
    free_network(state, prefix)?;
    let is_other = |index: u32| Some(index) != own && state.name(index) != SERVICES;
    let opened = |inside: IpNet, index: u32| Refusal::Opened { prefix, inside, other: state.name(index) };
    let mut addresses = state.snapshot.addresses.iter().filter(|found| is_other(found.index));
    if let Some(found) = addresses.find(|found| prefix.contains(&found.net.addr())) {
        return Err(opened(found.net, found.index));
    }
    // Routes without an interface, or to the loopback one, drop packets.
    let leads_on = |index: u32| {
        is_other(index) && state.snapshot.link(index).is_none_or(|link| link.kind != Kind::Loopback)
    };
    let mut routes = state.snapshot.routes.iter().filter_map(|found| {
        let index = found.index.filter(|index| leads_on(*index))?;
        let is_inside = found.prefix.prefix_len() > 0 && overlap(&prefix, &found.prefix);
        (is_inside && !ownership::is_table(found.table)).then_some((found.prefix, index))
    });
    routes.next().map_or(Ok(()), |(inside, index)| Err(opened(inside, index)))
}

/// Checks the name of an interface for BGP sessions.
pub fn session_interface_name(name: &str) -> Result<(), Refusal> {
    self::name(name)?;
    match name.strip_prefix(ownership::INTERFACE_PREFIX) {
        Some(rest) if !rest.is_empty() => Ok(()),
        _ => Err(Refusal::SessionInterfaceName { name: name.to_owned() }),
    }
}

/// Checks that a bridge that ENO makes takes no name of the node's infrastructure, present or to come.
pub fn bridge_name(name: &str) -> Result<(), Refusal> {
    self::name(name)?;
    if is_name_of_node(name) {
        return Err(Refusal::NodeName { name: name.to_owned() });
    }
    Ok(())
}

/// True for names that NICs, ends of veth pairs, and bridges of primary CNIs and runtimes commonly have.
fn is_name_of_node(name: &str) -> bool {
    const WHOLE: [&str; 5] = ["lo", "nodelocaldns", "br-int", "br-ex", "br-tun"];
    const NUMBERED: [&str; 8] = ["eth", "bond", "wlan", "wg", "virbr", "podman", "cbr", "ib"];
    // The names of udev: Ethernet, InfiniBand, WLAN and WWAN, by firmware, slot, place or MAC address.
    const PLACED: [&str; 4] = ["en", "ib", "wl", "ww"];
    let is_numbered = |rest: &str| rest.is_empty() || rest.starts_with(|first: char| first.is_ascii_digit());
    let is_placed = |rest: &str| {
        let place = rest.strip_prefix(['o', 's', 'p', 'P']);
        place.is_some_and(|place| place.starts_with(|first: char| first.is_ascii_digit()))
            || rest
                .strip_prefix('x')
                .is_some_and(|mac| mac.starts_with(|first: char| first.is_ascii_hexdigit()))
    };
    WHOLE.contains(&name)
        || name.starts_with("veth")
        || PRIMARY_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
        || NUMBERED.iter().filter_map(|prefix| name.strip_prefix(prefix)).any(is_numbered)
        || PLACED.iter().filter_map(|prefix| name.strip_prefix(prefix)).any(is_placed)
}

/// True for IPv6 link-local and multicast networks, which the kernel gives to every interface.
fn is_link_local_or_multicast(net: &IpNet) -> bool {
    match net {
        IpNet::V4(_) => false,
        IpNet::V6(net) => {
            net.prefix_len() > 0 && (net.addr().is_unicast_link_local() || net.addr().is_multicast())
        }
    }
}

#[cfg(test)]
#[path = "guard_tests.rs"]
pub(super) mod tests;
