//! What is told of the host's networks, from what was read back. Pure.

use std::collections::BTreeMap;

use eno_schemas::{AppliedNetwork, HostNetwork, NodeDesired, Uplink, VlanSet};

use super::guard::{self, Refusal};
use super::plan::Spot;
use super::state::State;

/// The networks that are there and as wanted. `refused` are not; of one that is there but for some VLANs, the others
/// are told. A bridge without an uplink carries its VLANs among its pods, and all of them are told.
pub fn applied(
    desired: &NodeDesired,
    state: &State,
    refused: &BTreeMap<Spot, Refusal>,
) -> BTreeMap<String, AppliedNetwork> {
    let fine = |spot: &Spot| !refused.contains_key(spot);
    desired
        .networks
        .iter()
        .filter(|(name, _)| fine(&Spot::Network((*name).clone())))
        .map(|(name, network)| {
            let found = match network {
                HostNetwork::Ovs { uplink, .. } => AppliedNetwork {
                    vlans: VlanSet::EMPTY,
                    mtu: uplink.as_ref().and_then(|uplink| nics(state, uplink)),
                },
                HostNetwork::Bridge { uplink: None, vlans, mtu } => {
                    AppliedNetwork { vlans: vlans.clone(), mtu: mtu.and_then(|_| mtu_of(state, name)) }
                }
                HostNetwork::Bridge { uplink: Some(uplink), mtu, .. } => {
                    let port = port(name, uplink);
                    let vlans =
                        state.named(&port).map_or(VlanSet::EMPTY, |port| state.uplink_vlans(port.index).0);
                    AppliedNetwork { vlans, mtu: mtu.or(uplink.mtu).and_then(|_| mtu_of(state, &port)) }
                }
                HostNetwork::Master { vlans, mtu, .. } => AppliedNetwork {
                    vlans: vlans
                        .iter()
                        .filter(|vlan| fine(&Spot::Vlan(name.clone(), *vlan)))
                        .filter(|vlan| {
                            guard::subinterface(name, *vlan).is_ok_and(|name| state.named(&name).is_some())
                        })
                        .collect(),
                    mtu: mtu.and_then(|_| mtu_of(state, name)),
                },
                HostNetwork::PodBridge { mtu, .. } => {
                    AppliedNetwork { vlans: VlanSet::EMPTY, mtu: mtu.and_then(|_| mtu_of(state, name)) }
                }
            };
            (name.clone(), found)
        })
        .collect()
}

/// The one interface by which a bridge reaches the fabric.
fn port(bridge: &str, uplink: &Uplink) -> String {
    match uplink.interfaces.as_slice() {
        [nic] => nic.clone(),
        _ => Uplink::bond_name(bridge),
    }
}

fn nics(state: &State, uplink: &Uplink) -> Option<u32> {
    uplink.mtu?;
    uplink.interfaces.iter().filter_map(|name| mtu_of(state, name)).min()
}

fn mtu_of(state: &State, name: &str) -> Option<u32> {
    state.named(name).map(|link| link.mtu)
}
