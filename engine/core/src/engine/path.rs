//! The path of an object, as its phase and conditions are evaluated.

use eno_schemas::VlanId;

use super::Engine;
use crate::evaluate::PortsVisited;
use crate::status::hop::{Aspect, Hop, Part};
use crate::{Key, Name};

impl Engine {
    /// The hops of the path of an object, from pods to the gateway, each with its state. The phase and the conditions
    /// of the object follow from the same states. An object without a path has no hops, and so has what an object that
    /// is being deleted has given up.
    ///
    /// Hops of one tier are in the order in which they are evaluated: the first that is not confirmed is in the
    /// message of the object.
    pub fn path(&self, key: &Key) -> Vec<Hop<'_>> {
        let evaluator = self.evaluator();
        let mut hops = Vec::new();
        evaluator.visit_hops(key, &evaluator.networks(key), PortsVisited::All, &mut |hop| {
            // The agent makes the NICs of a network part of it.
            if let Part::Network { node, network, aspect: Aspect::Whole, .. } = hop.part {
                let nics = self.node.nics_of(network);
                hops.extend(
                    nics.map(|nic| Hop { part: Part::Nic { node, network, nic }, state: hop.state.clone() }),
                );
            }
            hops.push(hop);
        });
        hops.sort_by_key(|hop| hop.part.tier());
        hops
    }

    /// The hops by which the services of an attachment are led into VRFs, from its ends to the devices. Its phase does not
    /// depend on them, but that of the VRFAttachments does.
    pub fn ways_into_vrfs(&self, attachment: &Key) -> Vec<Hop<'_>> {
        let mut hops = Vec::new();
        self.evaluator().visit_ways_into_vrfs(attachment, &mut |hop| hops.push(hop));
        hops
    }

    /// The ports of a switch that carry VLANs of ours, each once: with the VLAN whose state is the worst there. `only`:
    /// those that carry this VLAN, with its state.
    pub fn ports(&self, device: &Name, only: Option<VlanId>) -> Vec<Hop<'_>> {
        let Some((name, device)) = self.fabric.named_device(device) else { return Vec::new() };
        let evaluator = self.evaluator();
        let ports = device.worst_on_ports(only).into_iter();
        ports.map(|(index, vlan)| evaluator.port_hop(name, device, vlan, index)).collect()
    }
}
