//! Cables in other ports than FabricDevices say, by where switches have learnt the MAC addresses of probes.

use std::collections::BTreeSet;

use crate::evaluate::Evaluator;
use crate::fabric::device::DeviceTarget;
use crate::fabric::topology::Topology;
use crate::kinds::LeadsTo;
use crate::status::evaluation::Evaluation;
use crate::{ConditionReason, ConditionType, Name};

/// Maximum of cables that the message names.
const MAX_NAMED: usize = 3;

impl Evaluator<'_> {
    /// Notes nodes that a switch has learnt on a port that leads elsewhere.
    pub(super) fn note_miswired(&self, name: &Name, device: &DeviceTarget, evaluation: &mut Evaluation) {
        let mut found: BTreeSet<(&Name, &Name, u16)> = BTreeSet::new();
        for station in device.stations() {
            let owner = self.hosts.nodes.owner_of_mac(&self.config.cluster, &station.mac);
            let port = device.ports.binary_search_by(|port| port.name.cmp(&station.port));
            let index = port.ok().and_then(|index| u16::try_from(index).ok());
            if let (Some((node, point)), Some(index)) = (owner, index) {
                found.insert((node, point, index));
            }
        }
        let messages =
            found.into_iter().filter_map(|(node, point, index)| self.describe(name, node, point, index));
        let messages: BTreeSet<String> = messages.collect();
        if messages.is_empty() {
            return;
        }
        let more = messages.len().saturating_sub(MAX_NAMED);
        let more = (more > 0).then(|| format!("and {more} more"));
        let message = messages.into_iter().take(MAX_NAMED).chain(more).collect::<Vec<_>>().join("; ");
        evaluation.note(ConditionType::Miswired, true, ConditionReason::OtherPort, message);
    }

    /// What is wrong about a node on a port of a switch; `None`: nothing, or nobody says where the node is.
    fn describe(&self, device: &Name, node: &Name, point: &Name, index: u16) -> Option<String> {
        let topology = self.fabric.topology();
        let expected = topology.node_ports(node, &[]);
        let there = topology.leads_to(device, index)?;
        let there = match there {
            LeadsTo::Node { node: other, interface } if other != node => format!("{other} {interface}"),
            LeadsTo::PhysicalNetwork(network) if is_only_way(topology, device, network) => {
                let is_joined = |other: &Name| topology.component(other) == topology.component(device);
                // From another fabric, its packets come through the network.
                expected.keys().any(is_joined).then(|| network.to_string())?
            }
            _ => return None,
        };
        let of_point = self.fabric.point(point).map(|point| &point.ports);
        let is_of_point = |device: &Name, index: u16| {
            of_point.and_then(|ports| ports.get(device)).is_some_and(|indices| indices.contains(&index))
        };
        let expected =
            expected.iter().flat_map(|(device, indices)| indices.iter().map(move |index| (device, *index)));
        let (other, expected) = expected
            .min_by_key(|(other, index)| (!is_of_point(other, *index), *other != device, *other, *index))?;
        let Some(LeadsTo::Node { interface, .. }) = topology.leads_to(other, expected) else { return None };
        let port = |device: &Name, index: u16| topology.port_names(device).get(usize::from(index)).cloned();
        let (seen, expected) = (port(device, index)?, port(other, expected)?);
        let whose = if other == device { "Ports".to_owned() } else { format!("FabricDevice {other}") };
        Some(format!("{node} {interface} is in {seen}, and {whose} says {expected} ({seen}: {there})"))
    }
}

/// True when no other port leads to a network than one of this device.
fn is_only_way(topology: &Topology, device: &Name, network: &Name) -> bool {
    let ports = topology.network_ports(network);
    ports.is_some_and(|ports| ports.len() == 1 && ports.get(device).is_some_and(|indices| indices.len() == 1))
}
