//! Between the messages and Open vSwitch: what is wanted of it, and what is told of what it has. Pure.

use std::collections::{BTreeMap, BTreeSet};

use eno_schemas::{
    AppliedNetwork, HostNetwork, Item, NodeDesired, Note, OvsDatapath, Rejection, Uplink, VlanId, VlanSet,
};

use crate::host::HostApplied;
use crate::host::plan::ItemRef;
use crate::ovs::{
    AppliedPort, BridgeDesired, Datapath, Item as OvsItem, OvsApplied, OvsDesired, PortDesired, PortVlans,
    UplinkDesired,
};
use crate::pods::{OvsPort, PodsApplied};

/// All that has to be in Open vSwitch. A bridge whose uplink may not be used goes without, unless it had been used
/// before that: what works stays.
pub fn wanted(desired: &NodeDesired, host: &HostApplied, ports: &BTreeMap<String, OvsPort>) -> OvsDesired {
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
                // The host's part sees to it, for NICs of all kinds of bridges alike.
                mtu: None,
            }),
            vlans: vids(vlans),
            patch: patch.clone(),
        };
        Some((name.clone(), bridge))
    });
    let ports = ports.iter().map(|(interface, port)| {
        let vlans = match &port.vlans {
            eno_schemas::PortVlans::Access(vlan) => PortVlans::Access(vlan.get()),
            eno_schemas::PortVlans::Trunk(vlans) => PortVlans::Trunk(vids(vlans)),
        };
        let id = format!("{}/{}", port.pod, port.link);
        (interface.clone(), PortDesired { bridge: port.bridge.clone(), id, vlans, mtu: None })
    });
    OvsDesired { cluster: desired.cluster.clone(), bridges: bridges.collect(), ports: ports.collect() }
}

/// The host ends of pods that are ports as wanted.
pub fn open_ports(wanted: &OvsDesired, found: &OvsApplied) -> BTreeSet<String> {
    let as_wanted = |(name, port): &(&String, &PortDesired)| {
        found.ports.get(*name).is_some_and(|found| is_as_desired(found, port))
    };
    wanted.ports.iter().filter(as_wanted).map(|(name, _)| name.clone()).collect()
}

/// True when something has to be in Open vSwitch.
pub fn is_wanted(desired: &OvsDesired) -> bool {
    !desired.bridges.is_empty() || !desired.ports.is_empty()
}

/// Why something is not in Open vSwitch.
#[derive(Clone, Copy, Debug)]
pub struct OvsFailure<'a> {
    /// In words.
    pub reason: &'a str,
    /// It may pass by itself.
    pub retryable: bool,
    /// Open vSwitch did not answer: nothing is known of what it has.
    pub unreachable: bool,
}

impl OvsFailure<'_> {
    fn with(&self, item: Item) -> Rejection {
        let Self { reason, retryable, unreachable } = *self;
        Rejection { item, reason: reason.to_owned(), retryable, unreachable }
    }
}

/// What is told of a node.
#[derive(Debug, Default)]
pub struct NodeApplied {
    /// [`eno_schemas::Applied::Node::networks`].
    pub networks: BTreeMap<String, AppliedNetwork>,
    /// What of the pods is there, and what is not.
    pub pods: PodsApplied,
    /// What was left out.
    pub rejected: Vec<Rejection>,
    /// What the admin should know.
    pub notes: Vec<Note>,
}

impl NodeApplied {
    /// Adds what Open vSwitch has; `wanted` is what it was asked.
    pub fn add(&mut self, wanted: &OvsDesired, found: OvsApplied) {
        for name in wanted.bridges.keys() {
            let bad = found.rejected.iter().any(|rejected| rejected.item == OvsItem::Bridge(name.clone()));
            match found.bridges.get(name) {
                Some(bridge) if !bad => {
                    if let Some(network) = self.networks.get_mut(name) {
                        network.vlans = set(&bridge.vlans);
                    }
                    if bridge.open {
                        self.notes.push(Note {
                            kind: "OpenTrunk".to_owned(),
                            item: Item::port(name.as_str()),
                            message: format!(
                                "the uplink of {name} belongs to somebody else and has no list of VLANs: it carries all of them"
                            ),
                        });
                    }
                }
                _ => {
                    self.networks.remove(name);
                }
            }
        }
        for rejected in &found.rejected {
            let item = match &rejected.item {
                OvsItem::Bridge(name) => Item::port(name.as_str()),
                OvsItem::Port(interface) => self.link(interface).unwrap_or(Item::TARGET),
            };
            let (reason, retryable) = (rejected.reason.clone(), rejected.retryable);
            self.rejected.push(Rejection { item, reason, retryable, unreachable: false });
        }
        let missing: Vec<String> = wanted
            .ports
            .iter()
            .filter(|(interface, port)| {
                !found.ports.get(*interface).is_some_and(|found| is_as_desired(found, port))
            })
            .map(|(interface, _)| interface.clone())
            .collect();
        for interface in missing {
            let reason = format!("Open vSwitch has not opened the port {interface}");
            self.reject_port(
                &interface,
                &OvsFailure { reason: &reason, retryable: true, unreachable: false },
            );
        }
        self.notes.extend(found.notes.into_iter().map(|message| Note {
            kind: "OpenVSwitch".to_owned(),
            item: Item::TARGET,
            message,
        }));
    }

    /// Adds that Open vSwitch could not be asked, or did not do it.
    pub fn add_failure(&mut self, wanted: &OvsDesired, failure: &OvsFailure<'_>) {
        for name in wanted.bridges.keys() {
            self.networks.remove(name);
            self.rejected.push(failure.with(Item::port(name.as_str())));
        }
        for interface in wanted.ports.keys() {
            self.reject_port(interface, failure);
        }
        if !is_wanted(wanted) {
            let reason = format!("can't see whether something is left over there: {}", failure.reason);
            self.rejected.push(OvsFailure { reason: &reason, ..*failure }.with(Item::TARGET));
        }
    }

    /// An interface of a pod whose other end is nowhere is not as wanted.
    fn reject_port(&mut self, interface: &str, failure: &OvsFailure<'_>) {
        let Some(port) = self.pods.ovs_ports.get(interface) else { return };
        if let Some(links) = self.pods.pods.get_mut(&port.pod) {
            links.remove(&port.link);
        }
        let item = Item::link(port.pod.as_str(), port.link.as_str());
        if self.rejected.iter().all(|rejected| rejected.item != item) {
            self.rejected.push(failure.with(item));
        }
    }

    fn link(&self, interface: &str) -> Option<Item> {
        let port = self.pods.ovs_ports.get(interface)?;
        Some(Item::link(port.pod.as_str(), port.link.as_str()))
    }
}

fn is_as_desired(found: &AppliedPort, wanted: &PortDesired) -> bool {
    found.bridge == wanted.bridge && found.vlans == wanted.vlans
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
