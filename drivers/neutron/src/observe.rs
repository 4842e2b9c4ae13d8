//! The observed part of a desired state.

use std::collections::HashMap;

use eno_fabric_driver::desired::{listed_name, ports_by, vlans_of};
use eno_fabric_driver::report::Observation;
use eno_schemas::{Applied, Carried, FabricDesired, FabricPort, VlanId, VlanSet};

use crate::mark::Mark;
use crate::plan::{Attributes, Plan};
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
    let vlans: VlanSet = own_networks.chain(ports).collect();
    let left = vlans.difference(&vlans_of(&desired.ports));
    let trunk_of = |port: &FabricPort| view.trunks.get(view.trunk_of.get(listed_name(port))?);
    let listed = ports_by(desired, |port| Some(trunk_of(port)?.id.as_str()));
    let mut observation = Observation::new(vlans);
    for port in &desired.ports {
        if attributes.physical_network() == Some(listed_name(port)) {
            // An offered network is there without anything of ours. A network that only trunks need does not count.
            let there = port.vlans.iter().filter(|vid| plan.networks.contains_key(vid)).collect();
            let there = left.union(&there);
            observation.add(port, Carried { tagged: there.clone(), ..Carried::default() }, &there, &[]);
        } else if let Some(trunk) = trunk_of(port) {
            let tagged = trunk.sub_ports.iter().filter_map(SubPort::vid).collect();
            let id = trunk.id.as_str();
            let ours = of_trunk.get(id).cloned().unwrap_or_default();
            let listed = listed.get(id).map(Vec::as_slice).unwrap_or_default();
            observation.add(port, Carried { tagged, ..Carried::default() }, &ours, listed);
        }
    }
    observation.applied(desired)
}
