//! Converts between commands and reports on the one hand, and the desired and observed state of Open vSwitch on the
//! other. Pure.

use std::collections::{BTreeMap, BTreeSet};

use eno_schemas::{
    AppliedNetwork, HostNetwork, Item, NodeDesired, Note, OvsDatapath, Rejection, Uplink, VlanId, VlanSet,
};

use crate::host::plan::ItemRef;
use crate::host::{HostApplied, ownership};
use crate::ovs::{
    AppliedPort, BridgeDesired, Datapath, Item as OvsItem, OvsApplied, OvsDesired, PortDesired, PortVlans,
    UplinkDesired,
};
use crate::pods::{OvsPort, PodsApplied};

/// The desired state of Open vSwitch. A bridge whose uplink was refused gets none, unless its NICs are in use already:
/// a working uplink stays.
pub fn desired_ovs(
    desired: &NodeDesired,
    host: &HostApplied,
    ports: &BTreeMap<String, OvsPort>,
) -> OvsDesired {
    let bridges = desired.networks.iter().filter_map(|(name, network)| {
        let HostNetwork::Ovs { datapath, uplink, patch, vlans } = network else { return None };
        let refused = host.refused.contains_key(&ItemRef::Network(name.clone()));
        let usable = |uplink: &&Uplink| !refused || host.uses(&desired.cluster, &uplink.interfaces);
        let bridge = BridgeDesired {
            datapath: datapath.map(|datapath| match datapath {
                OvsDatapath::System => Datapath::System,
                OvsDatapath::Netdev => Datapath::Netdev,
            }),
            uplink: uplink.as_ref().filter(usable).map(|uplink| UplinkDesired {
                port: match uplink.interfaces.as_slice() {
                    [nic] => nic.clone(),
                    _ => Uplink::bond_name(name),
                },
                interfaces: uplink.interfaces.clone(),
                // The `host` part sets it, as for NICs of all kinds of bridges.
                mtu: None,
            }),
            vlans: vids(vlans),
            patch: patch.clone(),
        };
        Some((name.clone(), bridge))
    });
    let pods = ports.iter().map(|(interface, port)| {
        let vlans = match &port.vlans {
            eno_schemas::PortVlans::Access(vlan) => PortVlans::Access(vlan.get()),
            eno_schemas::PortVlans::Trunk(vlans) => PortVlans::Trunk(vids(vlans)),
        };
        let id = format!("{}/{}", port.pod, port.link);
        (interface.clone(), PortDesired { bridge: port.bridge.clone(), id, vlans, mtu: None })
    });
    let ports = pods.chain(interface_ports(desired, host)).collect();
    OvsDesired { cluster: desired.cluster.clone(), bridges: bridges.collect(), ports }
}

/// The start of [`PortDesired::id`] of the ports of interfaces for BGP sessions. The name of the interface follows.
const INTERFACE: &str = "interface/";

/// The ports by which interfaces for BGP sessions are on bridges of Open vSwitch, as far as they exist.
fn interface_ports(desired: &NodeDesired, host: &HostApplied) -> impl Iterator<Item = (String, PortDesired)> {
    let group = ownership::group(&desired.cluster);
    desired.networks.iter().filter_map(move |(name, interface)| {
        let HostNetwork::Interface { network, vlan, .. } = interface else { return None };
        let HostNetwork::Ovs { .. } = desired.networks.get(network)? else { return None };
        let port = ownership::port(name);
        host.state.named(&port).filter(|found| found.group == group)?;
        let (bridge, id) = (network.clone(), format!("{INTERFACE}{name}"));
        Some((port, PortDesired { bridge, id, vlans: PortVlans::Access(vlan.get()), mtu: None }))
    })
}

/// The interface for BGP sessions that has a port.
fn interface_of<'a>(desired: &'a OvsDesired, port: &str) -> Option<&'a str> {
    desired.ports.get(port)?.id.strip_prefix(INTERFACE)
}

/// The host ends of pods that are ports as desired.
pub fn open_ports(desired: &OvsDesired, observed: &OvsApplied) -> BTreeSet<String> {
    let as_desired = |(name, port): &(&String, &PortDesired)| {
        observed.ports.get(*name).is_some_and(|observed| is_as_desired(observed, port))
    };
    desired.ports.iter().filter(as_desired).map(|(name, _)| name.clone()).collect()
}

/// True when any bridge or port is desired.
pub fn is_any_desired(desired: &OvsDesired) -> bool {
    !desired.bridges.is_empty() || !desired.ports.is_empty()
}

/// Why bridges or ports are not realised in Open vSwitch.
#[derive(Clone, Copy, Debug)]
pub struct OvsFailure<'a> {
    /// The reason, as a message for administrators.
    pub reason: &'a str,
    /// True when a retry may succeed.
    pub retryable: bool,
    /// True when Open vSwitch did not answer, so that its state is unknown.
    pub unreachable: bool,
}

impl OvsFailure<'_> {
    fn with(&self, item: Item) -> Rejection {
        let Self { reason, retryable, unreachable } = *self;
        Rejection { item, reason: reason.into(), retryable, unreachable }
    }
}

/// The applied state and the rejections of a node, for a report.
#[derive(Debug, Default)]
pub struct NodeApplied {
    /// [`eno_schemas::Applied::Node::networks`].
    pub networks: BTreeMap<String, AppliedNetwork>,
    /// The applied state of the pods.
    pub pods: PodsApplied,
    /// Items that are not realised.
    pub rejected: Vec<Rejection>,
    /// Messages for administrators.
    pub notes: Vec<Note>,
}

impl NodeApplied {
    /// Adds the observed state of Open vSwitch; `desired`: the desired one.
    pub fn add(&mut self, desired: &OvsDesired, observed: OvsApplied) {
        for name in desired.bridges.keys() {
            let partial =
                observed.rejected.iter().any(|rejected| rejected.item == OvsItem::Bridge(name.clone()));
            match observed.bridges.get(name) {
                Some(bridge) if !partial => {
                    if let Some(network) = self.networks.get_mut(name) {
                        network.vlans = set(&bridge.vlans);
                    }
                    if bridge.open {
                        let message = format!(
                            "the uplink of {name} belongs to somebody else and has no list of VLANs: it carries all of them"
                        );
                        self.notes.push(Note::new("OpenTrunk", Item::port(name.as_str()), message));
                    }
                }
                _ => {
                    self.networks.remove(name);
                }
            }
        }
        for rejected in &observed.rejected {
            let item = match &rejected.item {
                OvsItem::Bridge(name) => Item::port(name.as_str()),
                OvsItem::Port(interface) => self.item(desired, interface).unwrap_or(Item::TARGET),
            };
            let (reason, retryable) = (rejected.reason.clone(), rejected.retryable);
            self.rejected.push(Rejection { item, reason: reason.into(), retryable, unreachable: false });
        }
        for (interface, port) in &desired.ports {
            if !observed.ports.get(interface).is_some_and(|observed| is_as_desired(observed, port)) {
                let reason = format!("Open vSwitch has not opened the port {interface}");
                let failure = OvsFailure { reason: &reason, retryable: true, unreachable: false };
                self.reject_port(desired, interface, &failure);
            }
        }
        let notes = observed.notes.into_iter();
        self.notes.extend(notes.map(|message| Note::new("OpenVSwitch", Item::TARGET, message)));
    }

    /// Adds that the reconcile of Open vSwitch failed: all its bridges and ports are rejected.
    pub fn add_failure(&mut self, desired: &OvsDesired, failure: &OvsFailure<'_>) {
        for name in desired.bridges.keys() {
            self.networks.remove(name);
            self.rejected.push(failure.with(Item::port(name.as_str())));
        }
        for interface in desired.ports.keys() {
            self.reject_port(desired, interface, failure);
        }
        if !is_any_desired(desired) {
            let reason = format!("can't see whether something is left over there: {}", failure.reason);
            self.rejected.push(OvsFailure { reason: &reason, ..*failure }.with(Item::TARGET));
        }
    }

    /// Rejects what is on a port that is not as desired: a pod's link, or an interface for BGP sessions.
    fn reject_port(&mut self, desired: &OvsDesired, port: &str, failure: &OvsFailure<'_>) {
        let Some(item) = self.item(desired, port) else { return };
        if let Some(port) = self.pods.ovs_ports.get(port)
            && let Some(links) = self.pods.pods.get_mut(&port.pod)
        {
            links.remove(&port.link);
        }
        if let Some(interface) = interface_of(desired, port) {
            self.networks.remove(interface);
        }
        if self.rejected.iter().all(|rejected| rejected.item != item) {
            self.rejected.push(failure.with(item));
        }
    }

    /// What is on a port.
    fn item(&self, desired: &OvsDesired, port: &str) -> Option<Item> {
        match self.pods.ovs_ports.get(port) {
            Some(port) => Some(Item::link(port.pod.as_str(), port.link.as_str())),
            None => interface_of(desired, port).map(Item::port),
        }
    }
}

fn is_as_desired(observed: &AppliedPort, desired: &PortDesired) -> bool {
    observed.bridge == desired.bridge && observed.vlans == desired.vlans
}

fn vids(vlans: &VlanSet) -> BTreeSet<u16> {
    vlans.iter().map(VlanId::get).collect()
}

fn set(vids: &BTreeSet<u16>) -> VlanSet {
    vids.iter().filter_map(|vid| VlanId::new(*vid).ok()).collect()
}

#[cfg(test)]
#[path = "switch_tests.rs"]
mod tests;
