//! The switches' part of the path: the state of networks on switch ports, and of the switches themselves.

use std::collections::BTreeSet;

use eno_schemas::VlanId;

use crate::evaluate::{Evaluator, NetworkPath, PortsVisited};
use crate::fabric::device::DeviceTarget;
use crate::fabric::topology::Ports;
use crate::kinds::Spec;
use crate::status::evaluation::Evaluation;
use crate::status::hop::{Hop, HopState, Part};
use crate::status::inputs::Inputs;
use crate::{ConditionReason, ConditionType, Key, Kind, Name};

impl<'a> Evaluator<'a> {
    /// Visits the ports of a network that matter to an object. Of a network that a switch rejects, the ports where it is
    /// confirmed are visited as usual. The others have the state of the rejection.
    pub(super) fn visit_network(
        &self,
        key: &Key,
        path: &NetworkPath,
        visited: PortsVisited,
        visit: &mut dyn FnMut(Hop<'a>),
    ) {
        let NetworkPath { network, vid, ports, .. } = path;
        let placement = self.fabric.placements.get(network);
        let Some((placement, rejection)) = placement.and_then(|one| Some((one, one.rejected_by.as_ref()?)))
        else {
            return self.visit_ports(*vid, ports, visited, visit);
        };
        let reason = rejection.message.as_str();
        let rejected = if rejection.unreachable {
            HopState::Unreachable { reason, was_confirmed: false }
        } else {
            HopState::Refused { reason, retryable: rejection.retryable }
        };
        let mut hops = Vec::new();
        let mut is_rejected = key == network && rejection.is_withheld();
        self.visit_ports(*vid, ports, PortsVisited::All, &mut |mut hop| {
            if let Part::Port { device, port, .. } = hop.part
                && !placement.confirmed_on(*vid, device, port)
                && hop.state != HopState::Confirmed
            {
                is_rejected = true;
                hop.state = rejected.clone();
            }
            hops.push(hop);
        });
        if is_rejected {
            visit(Hop { part: Part::Change(rejection.device.as_ref()), state: rejected });
        }
        hops.into_iter().for_each(visit);
    }

    fn visit_ports(
        &self,
        vlan: VlanId,
        ports: &Ports,
        visited: PortsVisited,
        visit: &mut dyn FnMut(Hop<'a>),
    ) {
        for (name, indices) in ports {
            let Some((name, device)) = self.fabric.named_device(name) else { continue };
            let mut hop = |index: u16| visit(self.port_hop(name, device, vlan, index));
            match device.states(vlan, indices).filter(|_| visited == PortsVisited::Deciding) {
                Some(first_of_each) => first_of_each.into_iter().flatten().for_each(&mut hop),
                None => indices.iter().copied().for_each(&mut hop),
            }
        }
    }

    /// A VLAN on a port.
    pub fn port_hop(&self, name: &'a Name, device: &'a DeviceTarget, vlan: VlanId, index: u16) -> Hop<'a> {
        let port = device.ports.get(usize::from(index)).map_or("", |port| &port.name);
        let leads_to = self.fabric.topology().leads_to(name, index);
        let state = device.hop(vlan, index).waiting_for(|| self.wait(&device.driver));
        Hop { part: Part::Port { device: name, port, vlan, leads_to }, state }
    }

    /// Visits a switch itself.
    pub(super) fn visit_device(&self, key: &Key, visit: &mut dyn FnMut(Hop<'a>)) {
        let Some(Key { name, .. }) = self.store.key(key) else { return };
        let part = Part::Device(name);
        let Some(device) = self.fabric.device(name) else {
            return visit(Hop::missing(part, "not looked at yet"));
        };
        if let Some(reason) = self.fabric.topology().conflict(name) {
            visit(Hop { part, state: HopState::Refused { reason, retryable: true } });
        }
        let own = device.own_hop().waiting_for(|| self.wait(&device.driver));
        visit(Hop { part, state: own });
        for refusal in device.refusals() {
            let state = HopState::of_report([refusal], false, None);
            visit(Hop { part: Part::Item(name, &refusal.item), state });
        }
    }

    /// Adds the conditions of a switch.
    pub(super) fn note_device(&self, key: &Key, evaluation: &mut Evaluation, inputs: &mut Inputs) {
        let Some(device) = self.fabric.device(&key.name) else { return };
        device.note_conditions(evaluation);
        self.note_miswired(&key.name, device, evaluation);
        if let Some(skew) = self.schedule.skewed_drivers.get(&device.driver) {
            evaluation.note(ConditionType::ClockSkew, true, ConditionReason::ClocksDiffer, &**skew);
        }
        inputs.add(&device.driver);
    }

    /// The first thing on switches that is not confirmed to be gone.
    pub fn remains_on_switches(&self, key: &Key, evaluation: &mut Evaluation) -> Option<String> {
        let record = self.store.get(key)?;
        if key.kind == Kind::FabricDevice {
            let device = self.fabric.device(&key.name).filter(|_| !record.forget)?;
            if device.is_empty() {
                return None;
            }
            let forget = "annotate it with eno.k8s.io/forget=true to let it go without";
            return Some(match (&device.failure, device.clash()) {
                (Some(failure), _) => {
                    format!("it can't be given back what is ours: {}; {forget}", failure.reason)
                }
                (None, Some(clash)) => format!("what is ours is not taken off: {clash}; {forget}"),
                (None, None) => {
                    format!("removing what is ours from the device ({})", self.wait(&device.driver))
                }
            });
        }
        if key.kind == Kind::VRF {
            return self.remains_of_vrf(key, evaluation);
        }
        let service = |name: &Name| Key::cluster(Kind::L2Service, name);
        let networks: BTreeSet<Key> = match record.spec.as_deref() {
            Ok(Spec::Attachment(spec)) => spec.services.iter().map(service).collect(),
            Ok(Spec::VrfAttachment(spec)) => BTreeSet::from([service(&spec.service)]),
            Ok(Spec::BgpSessionGroup(spec)) => BTreeSet::from([service(&spec.service)]),
            _ => BTreeSet::from([key.clone()]),
        };
        if let Some(rejection) = networks
            .iter()
            .filter(|network| self.fabric.keeps_surplus(network))
            .find_map(|network| self.fabric.rejection(network))
        {
            return Some(format!("its VLANs can't be removed yet: {}", rejection.message));
        }
        for name in self.fabric.placements.left(key) {
            let Some(device) = self.fabric.device(name) else { continue };
            if networks.iter().any(|network| !device.is_gone(network)) {
                evaluation.awaited = Some(name.clone());
                let failure = device.failure.as_ref().map(|failure| failure.reason.as_str());
                return Some(match failure.or(device.clash()) {
                    Some(why) => format!("FabricDevice {name}: its VLANs can't be removed yet: {why}"),
                    None => {
                        format!("FabricDevice {name}: the removal of its VLANs {}", self.wait(&device.driver))
                    }
                });
            }
        }
        None
    }
}
