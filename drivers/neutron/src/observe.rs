//! The observed part of a desired state.

use std::collections::{BTreeMap, HashMap};

use eno_schemas::{Applied, Carried, FabricDesired, VlanId, VlanSet};

use crate::mark::Mark;
use crate::plan::{Attributes, Plan, listed_name};
use crate::view::{SubPort, View};

/// The observed state for a report. `plan` is the plan for this view.
pub fn observe(view: &View, desired: &FabricDesired, mark: &Mark, plan: &Plan) -> Applied {
    let attributes = Attributes::new(desired, mark, None);
    let ours = |port: &str| -> Option<(VlanId, &str)> {
        let port = view.ports.get(port)?;
        Some((view.own_port(port, mark)?, &port.network_id))
    };
    // A VLAN that is not desired any more is still there with any network of ours.
    let network_of = |vid: VlanId| plan.networks.get(&vid).map(String::as_str);
    let mut of_trunk: HashMap<&str, VlanSet> = HashMap::new();
    for trunk in view.trunks.values() {
        let in_place = trunk.sub_ports.iter().filter_map(|sub| {
            let (vid, network) = ours(&sub.port_id)?;
            let right_network = network_of(vid).is_none_or(|chosen| chosen == network);
            (sub.vid() == Some(vid) && right_network).then_some(vid)
        });
        of_trunk.insert(&trunk.id, in_place.collect());
    }
    // Networks of ours, and those of others that ports of ours are on.
    let own_networks = view.networks.values().filter_map(|network| view.own_network(network, mark));
    let ports = view.ports.keys().filter_map(|port| Some(ours(port)?.0));
    let mut vlans: VlanSet = own_networks.chain(ports).collect();
    let on_ports = desired.ports.iter().fold(VlanSet::EMPTY, |all, port| all.union(&port.vlans));
    let left = vlans.difference(&on_ports);
    let mut wanted: HashMap<&str, VlanSet> = HashMap::new();
    for port in &desired.ports {
        if let Some(trunk) = view.trunk_of.get(listed_name(port)) {
            let all = wanted.entry(trunk).or_default();
            *all = all.union(&port.vlans);
        }
    }
    let (mut by_port, mut carried) = (BTreeMap::new(), BTreeMap::new());
    for port in &desired.ports {
        let name = listed_name(port);
        let of_ours = if attributes.physical_network() == Some(name) {
            // An offered network is there without anything of ours. A network that only trunks need does not count.
            let there = port.vlans.iter().filter(|vid| plan.networks.contains_key(vid)).collect();
            vlans = vlans.union(&there);
            let there = there.union(&left);
            carried.insert(port.name.clone(), Carried { tagged: there.clone(), ..Carried::default() });
            there
        } else {
            let Some(trunk) = view.trunk_of.get(name).and_then(|id| view.trunks.get(id)) else { continue };
            let tagged = trunk.sub_ports.iter().filter_map(SubPort::vid).collect();
            carried.insert(port.name.clone(), Carried { tagged, ..Carried::default() });
            let there = of_trunk.get(trunk.id.as_str()).cloned().unwrap_or_default();
            // A trunk may be listed by several names. What others of them want is not of a name without VLANs.
            let others = wanted.get(trunk.id.as_str()).filter(|_| port.vlans.is_empty());
            there.difference(others.unwrap_or(&VlanSet::EMPTY))
        };
        if !of_ours.is_empty() {
            by_port.insert(port.name.clone(), of_ours);
        }
    }
    // A VLAN without a listed port needs no network.
    vlans.extend(desired.vlans.iter().map(|vlan| vlan.vid).filter(|vid| !on_ports.contains(*vid)));
    Applied::Fabric { vlans, ports: by_port, carried, closed: None, before: BTreeMap::new() }
}
