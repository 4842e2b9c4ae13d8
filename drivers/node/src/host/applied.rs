//! The reported state of the host's networks, computed from the observed state. Pure.

use std::collections::BTreeMap;

use eno_schemas::{AppliedNetwork, HostNetwork, NodeDesired, Uplink, VlanSet};

use super::guard::{self, Refusal};
use super::interface::requested_mtu;
use super::plan::ItemRef;
use super::state::State;

/// The networks that are as desired, by name; networks in `refused` are left out. A network that lacks some VLANs is
/// reported with the others. A bridge without an uplink is reported with all its VLANs: it carries them among its pods.
pub fn applied(
    desired: &NodeDesired,
    state: &State,
    refused: &BTreeMap<ItemRef, Refusal>,
) -> BTreeMap<String, AppliedNetwork> {
    let is_applied = |item: &ItemRef| !refused.contains_key(item);
    desired
        .networks
        .iter()
        .filter(|(name, _)| is_applied(&ItemRef::Network((*name).clone())))
        .map(|(name, network)| {
            let found = match network {
                HostNetwork::Ovs { uplink, .. } => AppliedNetwork {
                    vlans: VlanSet::EMPTY,
                    mtu: uplink.as_ref().and_then(|uplink| uplink_mtu(state, uplink)),
                },
                HostNetwork::Bridge { uplink: None, vlans, mtu } => {
                    AppliedNetwork { vlans: vlans.clone(), mtu: mtu.and_then(|_| mtu_of(state, name)) }
                }
                HostNetwork::Bridge { uplink: Some(uplink), mtu, .. } => {
                    let port = uplink_port(name, uplink);
                    let vlans =
                        state.named(&port).map_or(VlanSet::EMPTY, |port| state.uplink_vlans(port.index).0);
                    AppliedNetwork { vlans, mtu: mtu.or(uplink.mtu).and_then(|_| mtu_of(state, &port)) }
                }
                HostNetwork::Master { vlans, mtu, .. } => AppliedNetwork {
                    vlans: vlans
                        .iter()
                        .filter(|vlan| is_applied(&ItemRef::Vlan(name.clone(), *vlan)))
                        .filter(|vlan| {
                            guard::subinterface(name, *vlan).is_ok_and(|name| state.named(&name).is_some())
                        })
                        .collect(),
                    mtu: mtu.and_then(|_| mtu_of(state, name)),
                },
                HostNetwork::Interface { network, vlan, mtu, .. } => AppliedNetwork {
                    vlans: [*vlan].into_iter().collect(),
                    mtu: requested_mtu(&desired.networks, network, *mtu).and_then(|_| mtu_of(state, name)),
                },
                HostNetwork::PodBridge { mtu, .. } => {
                    AppliedNetwork { vlans: VlanSet::EMPTY, mtu: mtu.and_then(|_| mtu_of(state, name)) }
                }
            };
            (name.clone(), found)
        })
        .collect()
}

/// The name of the interface that connects a bridge to the fabric: its only NIC, or its bond.
fn uplink_port(bridge: &str, uplink: &Uplink) -> String {
    match uplink.interfaces.as_slice() {
        [nic] => nic.clone(),
        _ => Uplink::bond_name(bridge),
    }
}

/// The smallest MTU of the uplink's NICs, in bytes, if the uplink asks for an MTU.
fn uplink_mtu(state: &State, uplink: &Uplink) -> Option<u32> {
    uplink.mtu?;
    uplink.interfaces.iter().filter_map(|name| mtu_of(state, name)).min()
}

fn mtu_of(state: &State, name: &str) -> Option<u32> {
    state.named(name).map(|link| link.mtu)
}
