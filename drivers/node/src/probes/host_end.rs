//! The ends of ports on the host: how they are made, and how they come to a VLAN.

use eno_schemas::{HostNetwork, VlanId};
use rtnetlink::packet_route::link::{
    AfSpecInet6, AfSpecUnspec, In6AddrGenMode, InfoData, InfoKind, InfoMacVlan, InfoVeth, LinkAttribute,
    LinkFlags, LinkInfo, LinkMessage, MacVlanMode,
};

use super::ProbeError;
use crate::host::interface::network_mtu;
use crate::host::{guard, ownership};
use crate::netlink::{Kind, Namespace, Netlink, PortVlan, Request};
use crate::pods::ownership::DELETION_GROUP;

/// `IFLA_GROUP` of the interfaces of probes, both ends. No other part of the agent touches them.
pub const GROUP: u32 = DELETION_GROUP + 1;

/// The least MTU of a port, in bytes: that of jumbo frames. A bridge has the least MTU of its ports, so a smaller one
/// would change what the bridge has, or keep it from growing.
const LARGE: u32 = 9216;

/// How the VLANs of a network are reached. Ports are made anew when it changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reach {
    /// The kind of the network.
    pub kind: ReachKind,
    /// The MTU that ports have at least, in bytes.
    mtu: u32,
}

/// A kind of network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReachKind {
    /// A bridge of Open vSwitch.
    Ovs,
    /// A Linux bridge.
    Bridge,
    /// A NIC with VLAN subinterfaces.
    Master,
}

impl Reach {
    /// `None`: a network without connection to the fabric. `asked`: the bytes of the largest packets that are sent.
    pub fn of(network: &HostNetwork, asked: Option<u16>) -> Option<Self> {
        let kind = match network {
            HostNetwork::Ovs { .. } => ReachKind::Ovs,
            HostNetwork::Bridge { .. } => ReachKind::Bridge,
            HostNetwork::Master { .. } => ReachKind::Master,
            HostNetwork::PodBridge { .. } | HostNetwork::Interface { .. } => return None,
        };
        Some(Self {
            kind,
            mtu: network_mtu(network).max(asked.map(u32::from)).unwrap_or_default().max(LARGE),
        })
    }
}

/// An end on the host that is to be made, or moved to another VLAN.
pub struct Job {
    /// The number of the port.
    pub number: usize,
    /// The VLAN.
    pub vlan: VlanId,
    /// The name of the port's ends.
    pub name: String,
    /// The index of the end on the host; absent: it is to be made.
    pub host: Option<u32>,
    /// True when the port has been made.
    pub made: bool,
}

/// A network of the host, on a thread in the host's namespace.
pub struct Network {
    /// The cluster.
    pub cluster: String,
    /// The name of the network.
    pub name: String,
    /// How it is reached.
    pub reach: Reach,
    /// The MAC address of probes.
    pub mac: [u8; 6],
    /// The namespace of probes.
    pub namespace: Namespace,
}

impl Network {
    /// Makes the end on the host if it is missing, and brings it to its VLAN. Returns its index, if there is one; or why
    /// this VLAN can't be reached.
    pub fn connect(
        &self,
        netlink: &mut Netlink,
        job: &Job,
    ) -> Result<Result<Option<u32>, String>, ProbeError> {
        if self.reach.kind == ReachKind::Master {
            return self.macvlan(netlink, job).map(|made| made.map(|()| None));
        }
        let host = match job.host.filter(|_| job.made) {
            Some(host) => host,
            None => self.pair(netlink, job)?,
        };
        if self.reach.kind == ReachKind::Bridge {
            move_on_bridge(netlink, &job.name, host, job.vlan)?;
        }
        Ok(Ok(Some(host)))
    }

    /// Makes a pair of interfaces. Returns the index of the end on the host.
    fn pair(&self, netlink: &mut Netlink, job: &Job) -> Result<u32, ProbeError> {
        free_name(netlink, &job.name)?;
        let bridge = netlink.link_named(&self.name)?;
        let mut message = new_link(&job.name);
        if self.reach.kind == ReachKind::Bridge {
            let ours = |link: &&crate::netlink::Link| {
                link.group == ownership::group(&self.cluster)
                    && matches!(link.kind, Kind::Bridge { vlan_filtering: true, .. })
            };
            let bridge = bridge.as_ref().filter(ours).ok_or_else(|| {
                ProbeError::Other(format!("the host has no bridge {} of ENO that filters VLANs", self.name))
            })?;
            message.attributes.push(LinkAttribute::Controller(bridge.index));
        }
        let mtu = LinkAttribute::Mtu(bridge.map_or(0, |bridge| bridge.mtu).max(self.reach.mtu));
        let mut peer = self.inner(&job.name);
        peer.attributes.push(mtu.clone());
        message.attributes.extend([
            mtu,
            LinkAttribute::LinkInfo(vec![
                LinkInfo::Kind(InfoKind::Veth),
                LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(peer))),
            ]),
        ]);
        netlink.execute(Request::add_link(&job.name, message))?;
        let index = netlink.index_of(&job.name)?;
        // It gets no link-local address, so the host can't be reached over it. Its peer is down, so it has none yet.
        let mut message = LinkMessage::default();
        message.header.index = index;
        message.header.flags = LinkFlags::Up;
        message.header.change_mask = LinkFlags::Up;
        let none = AfSpecUnspec::Inet6(vec![AfSpecInet6::AddrGenMode(In6AddrGenMode::None)]);
        message.attributes.extend([
            LinkAttribute::IfAlias(ownership::alias(&self.cluster, &self.name)),
            LinkAttribute::AfSpecUnspec(vec![none]),
        ]);
        netlink.execute(Request::set_link(format!("finish the end {} of a pair", job.name), message))?;
        Ok(index)
    }

    /// Makes a macvlan on the subinterface of a VLAN. It has that interface's MTU, which no macvlan may exceed.
    fn macvlan(&self, netlink: &mut Netlink, job: &Job) -> Result<Result<(), String>, ProbeError> {
        let name = match guard::subinterface(&self.name, job.vlan) {
            Ok(name) => name,
            Err(refusal) => return Ok(Err(refusal.to_string())),
        };
        let ours = |link: &crate::netlink::Link| {
            link.group == ownership::group(&self.cluster) && link.kind == (Kind::Vlan { vid: job.vlan.get() })
        };
        let Some(lower) = netlink.link_named(&name)?.filter(ours) else {
            return Ok(Err(format!("the host has no interface {name} of ENO")));
        };
        let mut message = self.inner(&job.name);
        message.attributes.extend([
            LinkAttribute::Link(lower.index),
            LinkAttribute::LinkInfo(vec![
                LinkInfo::Kind(InfoKind::MacVlan),
                LinkInfo::Data(InfoData::MacVlan(vec![InfoMacVlan::Mode(MacVlanMode::Bridge)])),
            ]),
        ]);
        Ok(netlink.execute(Request::add_link(&job.name, message)).map_err(|error| error.to_string()))
    }

    /// An interface in the namespace of probes.
    fn inner(&self, name: &str) -> LinkMessage {
        let mut message = new_link(name);
        message
            .attributes
            .extend([LinkAttribute::Address(self.mac.to_vec()), LinkAttribute::NetNsFd(self.namespace.fd())]);
        message
    }
}

fn new_link(name: &str) -> LinkMessage {
    let mut message = LinkMessage::default();
    message.attributes.extend([
        LinkAttribute::IfName(name.to_owned()),
        LinkAttribute::Group(GROUP),
        LinkAttribute::NumTxQueues(1),
        LinkAttribute::NumRxQueues(1),
    ]);
    message
}

/// Deletes an interface of probes that has this name: the namespace of an agent that was killed may not have ended yet.
fn free_name(netlink: &mut Netlink, name: &str) -> Result<(), ProbeError> {
    match netlink.link_named(name)? {
        Some(link) if link.group == GROUP => Ok(netlink.execute(Request::delete_link(name, link.index))?),
        Some(_) => Err(ProbeError::Other(format!("the host has an interface {name} already"))),
        None => Ok(()),
    }
}

/// Brings a port of a Linux bridge to one VLAN, untagged.
fn move_on_bridge(netlink: &mut Netlink, name: &str, port: u32, vlan: VlanId) -> Result<(), ProbeError> {
    let wanted = PortVlan { vid: vlan.get(), pvid: true, untagged: true };
    let found = netlink.port_vlans(port)?;
    let others: Vec<PortVlan> = found.iter().filter(|found| found.vid != wanted.vid).copied().collect();
    if !others.is_empty() {
        netlink.execute(Request::delete_port_vlans(name, port, &others))?;
    }
    if !found.contains(&wanted) {
        netlink.execute(Request::add_port_vlans(name, port, &[wanted]))?;
    }
    Ok(())
}
