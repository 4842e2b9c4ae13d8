//! What must be left alone: the rules by which an interface of the host may be used, or not.

use eno_schemas::VlanId;
use ipnet::IpNet;

use super::state::{State, kind_name};
use crate::netlink::{Kind, Link};

/// `IFNAMSIZ` without its final zero.
const NAME_LENGTH: usize = 15;

/// Interfaces that belong to common cluster networks, by how their names begin.
const PRIMARY: [&str; 13] = [
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

/// Why something is not done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// A name that no interface can have.
    #[error(
        "{name:?} can't be the name of an interface: it takes 1 to 15 printable characters other than / and :"
    )]
    Name {
        /// Which.
        name: String,
    },
    /// A VLAN subinterface would be called more than an interface can be.
    #[error("the VLAN subinterface {name} would have a name of {} characters, and 15 are the most; give {master} a shorter one", name.len())]
    SubinterfaceName {
        /// Its name.
        name: String,
        /// What it would be on.
        master: String,
    },
    /// No NIC of that name.
    #[error("the node has no interface {name}")]
    Missing {
        /// Which.
        name: String,
    },
    /// The name is taken by something else.
    #[error(
        "there is an interface {name} ({kind}) already that ENO did not make; delete it, or choose another name"
    )]
    Foreign {
        /// Which.
        name: String,
        /// What it is.
        kind: String,
    },
    /// It is of a kind that leads nowhere.
    #[error("{name} is a {kind}; name a NIC")]
    Kind {
        /// Which.
        name: String,
        /// What it is.
        kind: String,
    },
    /// It carries an address of the node.
    #[error("{name} carries the address {address} of the node; name a NIC without addresses")]
    Address {
        /// Which.
        name: String,
        /// One of them.
        address: IpNet,
    },
    /// The node's own traffic takes it.
    #[error("{name} carries {} of the node's main table; name a NIC without routes", route(prefix))]
    Route {
        /// Which.
        name: String,
        /// One of them.
        prefix: IpNet,
    },
    /// It is part of something else.
    #[error("{name} is a member of {master} ({kind}), which ENO did not make; take it out of there first")]
    Member {
        /// Which.
        name: String,
        /// Of what.
        master: String,
        /// What that is.
        kind: String,
    },
    /// It belongs to the cluster's own network.
    #[error("{name} belongs to the cluster's own network; name another NIC")]
    Primary {
        /// Which.
        name: String,
    },
    /// It is something that was made for a network or pod.
    #[error("{name} was made by ENO for something else; name a NIC")]
    Ours {
        /// Which.
        name: String,
    },
    /// Something on it must be left alone.
    #[error("{name} is what {upper} is on: {reason}")]
    Upper {
        /// Which.
        name: String,
        /// What is on it.
        upper: String,
        /// Why that matters.
        reason: Box<Refusal>,
    },
    /// Two networks want it.
    #[error("{name} is used by the network {other} already; a NIC can be part of one only")]
    Taken {
        /// Which.
        name: String,
        /// The other one.
        other: String,
    },
    /// It can't carry packets of that length.
    #[error("an MTU of {asked} is asked of {name}, and {most} is the most that it can")]
    Mtu {
        /// Which.
        name: String,
        /// Bytes.
        asked: u32,
        /// Bytes.
        most: u32,
    },
    /// An address that is in use.
    #[error("the address {address} is that of {other} already")]
    AddressTaken {
        /// Which.
        address: IpNet,
        /// By which interface or network.
        other: String,
    },
    /// A network that the node reaches by another interface.
    #[error("{address} is within {prefix}, which the node reaches on {other}; choose another network")]
    Overlap {
        /// Which.
        address: IpNet,
        /// The network there.
        prefix: IpNet,
        /// The interface there.
        other: String,
    },
    /// Nobody allowed it.
    #[error(
        "{name} was not made by ENO and is not on this node's list of allowed interfaces (--allow-interface)"
    )]
    NotAllowed {
        /// Which.
        name: String,
    },
    /// The network that it is for was refused.
    #[error("the network {network} is not there: {reason}")]
    Network {
        /// Which.
        network: String,
        /// Why.
        reason: Box<Refusal>,
    },
    /// The kernel did not do it.
    #[error("{message}")]
    Failed {
        /// The operation and the kernel's words.
        message: String,
        /// Another try may help.
        retryable: bool,
    },
    /// What is done does not stay so.
    #[error("someone else keeps changing it: {difference}")]
    Restless {
        /// What differs still.
        difference: String,
    },
}

fn route(prefix: &IpNet) -> String {
    if prefix.prefix_len() == 0 { "the default route".to_owned() } else { format!("the route to {prefix}") }
}

impl Refusal {
    /// It may pass without anybody changing what is asked for: what stands in the way is on the node.
    pub fn retryable(&self) -> bool {
        match self {
            Self::Name { .. }
            | Self::SubinterfaceName { .. }
            | Self::Taken { .. }
            | Self::NotAllowed { .. } => false,
            Self::Failed { retryable, .. } => *retryable,
            Self::Upper { reason, .. } | Self::Network { reason, .. } => reason.retryable(),
            _ => true,
        }
    }
}

/// A name that the kernel takes (`dev_valid_name`) and that is no trouble elsewhere.
pub fn name(name: &str) -> Result<(), Refusal> {
    let fine = (1..=NAME_LENGTH).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'/' && byte != b':')
        && !matches!(name, "." | "..");
    if fine { Ok(()) } else { Err(Refusal::Name { name: name.to_owned() }) }
}

/// What the subinterface of a VLAN is called.
pub fn subinterface(master: &str, vlan: VlanId) -> Result<String, Refusal> {
    let name = format!("{master}.{vlan}");
    if name.len() <= NAME_LENGTH {
        Ok(name)
    } else {
        Err(Refusal::SubinterfaceName { name, master: master.to_owned() })
    }
}

/// Who uses a NIC, apart from nobody.
#[derive(Clone, Copy, Debug)]
pub struct User {
    /// [`super::mark::group`] of the cluster.
    pub group: u32,
    /// Open vSwitch is to have it, or has it.
    pub ovs: bool,
}

/// Whether a NIC may be an uplink, a member of a bond or a master.
pub fn nic<'a>(state: &'a State, name: &str, user: User) -> Result<&'a Link, Refusal> {
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
    if link.group == user.group {
        return Err(Refusal::Ours { name: link.name.clone() });
    }
    if let Some(master) = link.master {
        let found = state.snapshot.link(master);
        let ours = found.is_some_and(|found| found.group == user.group);
        let ovs =
            found.is_some_and(|found| matches!(&found.kind, Kind::Other(kind) if kind == "openvswitch"));
        let allowed = ours || (ovs && user.ovs);
        if !allowed {
            return Err(Refusal::Member {
                name: link.name.clone(),
                master: state.name(master),
                kind: found.map_or("unknown", |found| kind_name(&found.kind)).to_owned(),
            });
        }
    }
    unused(state, link)?;
    for upper in state.uppers(link.index).filter(|upper| upper.group != user.group) {
        if let Err(reason) = unused(state, upper) {
            return Err(Refusal::Upper {
                name: link.name.clone(),
                upper: upper.name.clone(),
                reason: Box::new(reason),
            });
        }
    }
    Ok(link)
}

/// Whether the node itself does without this interface: no address, no route, not of the primary CNI.
pub fn unused(state: &State, link: &Link) -> Result<(), Refusal> {
    let name = || link.name.clone();
    if PRIMARY.iter().any(|prefix| link.name.starts_with(prefix)) {
        return Err(Refusal::Primary { name: name() });
    }
    if let Some(route) = state.main_routes_of(link.index).find(|route| !is_of_the_link(&route.prefix)) {
        return Err(Refusal::Route { name: name(), prefix: route.prefix });
    }
    if let Some(address) = state.addresses_of(link.index).find(|address| !is_of_the_link(&address.net)) {
        return Err(Refusal::Address { name: name(), address: address.net });
    }
    Ok(())
}

/// Whether a pod bridge may have an address: not one of the node's, and not in a network that the node reaches
/// otherwise. `own` is the bridge, if it is there.
pub fn bridge_address(state: &State, own: Option<u32>, address: IpNet) -> Result<(), Refusal> {
    let taken =
        |found: &&crate::netlink::Address| Some(found.index) != own && found.net.addr() == address.addr();
    if let Some(found) = state.snapshot.addresses.iter().find(taken) {
        return Err(Refusal::AddressTaken { address, other: state.name(found.index) });
    }
    let overlaps = |found: &&crate::netlink::Route| {
        found.table == super::state::MAIN
            && found.index != own
            && found.gateway.is_none()
            && found.prefix.prefix_len() > 0
            && !is_of_the_link(&found.prefix)
            && (found.prefix.contains(&address.addr()) || address.contains(&found.prefix.network()))
    };
    if let Some(found) = state.snapshot.routes.iter().find(overlaps) {
        let other = found.index.map_or_else(|| "another interface".to_owned(), |index| state.name(index));
        return Err(Refusal::Overlap { address, prefix: found.prefix, other });
    }
    Ok(())
}

/// Link-local and multicast networks of IPv6: every interface has them, by the kernel.
fn is_of_the_link(net: &IpNet) -> bool {
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
