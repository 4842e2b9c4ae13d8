//! What a driver reads back that has carried out everything: for simulated drivers.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;

use crate::{
    Applied, AppliedAddresses, AppliedLink, AppliedNetwork, BgpGroup, BgpSession, BgpState, FabricDesired,
    GatewayAnswer, HostNetwork, LinkName, NetworkProbes, NodeAddresses, NodeDesired, PodLink, PrimaryLink,
    ProbeResults, ProbedGateway, VlanSet,
};

/// The MTU of an interface for which none is requested.
const DEFAULT_MTU: u32 = 1500;
/// The MAC address of gateways.
const GATEWAY_MAC: &str = "02:00:00:00:00:01";

impl FabricDesired {
    /// The state of a switch that has all of it.
    pub fn carried_out(&self) -> Applied {
        Applied::Fabric {
            vlans: self.vlans.iter().map(|vlan| vlan.vid).collect(),
            ports: self.ports.iter().map(|port| (port.name.clone(), port.vlans.clone())).collect(),
            carried: BTreeMap::new(),
            closed: None,
            before: BTreeMap::new(),
            vrfs: self.vrfs.iter().map(|vrf| vrf.name.clone()).collect(),
            routed: self.vlans.iter().filter(|vlan| vlan.routed.is_some()).map(|vlan| vlan.vid).collect(),
            lookup: None,
            bgp: self.vrfs.iter().flat_map(|vrf| &vrf.bgp).map(BgpGroup::carried_out).collect(),
        }
    }
}

impl BgpGroup {
    /// The owner, and its sessions where all workers answer.
    fn carried_out(&self) -> (String, Vec<BgpSession>) {
        let session = |address: &IpAddr| BgpSession {
            address: *address,
            state: BgpState::Established,
            since: None,
            last_error: None,
        };
        (self.owner.clone(), self.neighbours.iter().map(session).collect())
    }
}

impl NodeDesired {
    /// The state of a node that has all of it. `link`: the state of an interface, by the uid of its pod.
    pub fn carried_out(&self, link: impl Fn(&str, &PodLink) -> AppliedLink) -> Applied {
        let networks = self.networks.iter().map(|(name, network)| (name.clone(), network.carried_out()));
        let pods = self.pods.iter().map(|(uid, pod)| {
            let links = pod.links.iter().map(|one| (one.id.clone(), link(uid, one)));
            let primary = pod.primary.iter().map(|one| (one.id.clone(), one.carried_out()));
            (uid.clone(), links.chain(primary).collect())
        });
        let probes = self.probes.iter().map(NetworkProbes::carried_out).collect();
        let addresses = self.addresses.iter().map(|(subnet, own)| (subnet.clone(), own.carried_out()));
        Applied::Node {
            networks: networks.collect(),
            pods: pods.collect(),
            probes,
            addresses: addresses.collect(),
        }
    }
}

impl NodeAddresses {
    /// The state of a node that has all of it, and no pod with an address.
    pub fn carried_out(&self) -> AppliedAddresses {
        let fixed = self.fixed.iter().map(|own| IpNet::from(own.address));
        let mut held: Vec<IpNet> = self.blocks.iter().copied().chain(fixed).collect();
        held.sort_unstable();
        AppliedAddresses { held, ..AppliedAddresses::default() }
    }
}

impl NetworkProbes {
    /// The VLANs that are probed.
    pub fn vlans(&self) -> VlanSet {
        self.paths.iter().fold(VlanSet::EMPTY, |all, path| all.union(&path.vlans))
    }

    /// The results where everything answers.
    pub fn carried_out(&self) -> ProbeResults {
        let answer = |gateway: &ProbedGateway| GatewayAnswer {
            address: gateway.address,
            macs: [GATEWAY_MAC.to_owned()].into(),
            vlans: gateway.vlans.clone(),
        };
        ProbeResults {
            point: self.point.clone(),
            network: self.network.clone(),
            passed: if self.next.is_some() { self.vlans() } else { VlanSet::EMPTY },
            isolated: if self.next.is_some() { self.crossed.clone() } else { Vec::new() },
            gateways: self.gateways.iter().map(answer).collect(),
            ..ProbeResults::default()
        }
    }
}

impl HostNetwork {
    /// The state of a network that has all of it.
    pub fn carried_out(&self) -> AppliedNetwork {
        let (vlans, mtu) = match self {
            Self::Ovs { vlans, uplink, .. } => (vlans, uplink.as_ref().and_then(|uplink| uplink.mtu)),
            Self::Bridge { vlans, mtu, .. } | Self::Master { vlans, mtu, .. } => (vlans, *mtu),
            Self::PodBridge { mtu, .. } => (&VlanSet::EMPTY, *mtu),
            Self::Interface { vlan, mtu, .. } => (&VlanSet::from_iter([*vlan]), *mtu),
        };
        AppliedNetwork { vlans: vlans.clone(), mtu }
    }
}

impl PodLink {
    /// The state of an interface that has all of it. `pid`: of the pod's container.
    pub fn carried_out(&self, pid: &str) -> AppliedLink {
        let (name, host_name) = match &self.name {
            LinkName::Fixed(name) => (name.clone(), None),
            LinkName::WithPid(name) => (format!("{name}{pid}"), Some(format!("h{name}{pid}"))),
        };
        AppliedLink {
            revision: self.revision.clone(),
            name,
            host_name,
            mac: self.mac.clone(),
            mtu: self.mtu.unwrap_or(DEFAULT_MTU),
            path: None,
            addresses: self.addresses.clone(),
        }
    }
}

impl PrimaryLink {
    /// The state of a primary interface that has all of it.
    pub fn carried_out(&self) -> AppliedLink {
        let (revision, name) = (self.revision.clone(), self.name.clone());
        AppliedLink { revision, name, mtu: self.mtu, ..AppliedLink::default() }
    }
}
