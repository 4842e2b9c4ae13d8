//! The VRFs on devices, and what leads services into them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;

use crate::evaluate::{Evaluator, NetworkPath, PortsVisited};
use crate::fabric::placement::Placement;
use crate::kinds::{Spec, VrfAttachmentSpec, VrfSpec};
use crate::status::evaluation::Evaluation;
use crate::status::hop::{Hop, HopState, Part};
use crate::{ConditionReason, ConditionType, Key, Kind, Name};

impl<'a> Evaluator<'a> {
    /// Visits a VRF on each of its devices.
    pub(super) fn visit_vrf(&self, key: &Key, visit: &mut dyn FnMut(Hop<'a>)) {
        let (Some(Key { name, .. }), Some(spec)) =
            (self.store.key(key), self.store.effective(key, Spec::vrf))
        else {
            return;
        };
        for one in &spec.devices {
            let part = Part::Vrf { device: &one.name, vrf: spec.device_name(name) };
            let Some(device) = self.fabric.device(&one.name) else {
                visit(Hop::missing(part, format!("FabricDevice {} is not looked at yet", one.name)));
                continue;
            };
            let state = device.vrf_hop(name).waiting_for(|| self.wait(&device.driver));
            visit(Hop { part, state });
        }
    }

    /// The name on devices of the VRF that a service is led into.
    pub(super) fn vrf_name(&self, spec: &'a VrfAttachmentSpec) -> &'a str {
        let vrf = self.store.effective(&Key::cluster(Kind::VRF, &spec.vrf), Spec::vrf);
        vrf.map_or(&*spec.vrf, |vrf| vrf.device_name(&spec.vrf))
    }

    /// Visits what leads a service into a VRF on the devices of a VRFAttachment.
    pub(super) fn visit_routed(&self, key: &Key, networks: &[NetworkPath], visit: &mut dyn FnMut(Hop<'a>)) {
        let Some(spec) = self.store.effective(key, Spec::vrf_attachment) else { return };
        let vrf = self.vrf_name(spec);
        if networks.is_empty() {
            visit(Hop::missing(Part::Link, format!("L2Service {} is not placed yet", spec.service)));
        }
        for NetworkPath { network, vid, .. } in networks {
            let placement = self.fabric.placements.get(network);
            for name in spec.devices() {
                if let Some(reason) = self.fabric.unled(network, name) {
                    let state = HopState::Refused { reason, retryable: true };
                    visit(Hop { part: Part::Device(name), state });
                    continue;
                }
                let part = Part::Routed { device: name, vrf, vlan: *vid };
                let Some(device) = self.fabric.device(name) else {
                    visit(Hop::missing(part, format!("FabricDevice {name} is not looked at yet")));
                    continue;
                };
                let state = device.routed_hop(*vid, vrf).waiting_for(|| self.wait(&device.driver));
                let withheld = placement.filter(|one| one.routed.get(name) != one.desired_routed.get(name));
                visit(Hop { part, state: withheld.and_then(rejected_state).unwrap_or(state) });
            }
        }
    }

    /// Visits what leads the services of an attachment into VRFs: the ports from its ends to the devices, and the
    /// interfaces there.
    pub fn visit_ways_into_vrfs(&self, key: &Key, visit: &mut dyn FnMut(Hop<'a>)) {
        let Some(spec) = self.store.effective(key, Spec::attachment) else { return };
        for service in spec.services.iter().map(|name| Key::cluster(Kind::L2Service, name)) {
            for (routed, into) in self.store.vrf_attachments_of(&service) {
                let point = std::iter::once(&spec.connection_point);
                let path = self.fabric.path_into_vrf(self.store, into, point);
                let Some((network, vid, ports)) = path else { continue };
                let path = NetworkPath { network, vid, ports, gap: None };
                self.visit_network(routed, &path, PortsVisited::All, visit);
                self.visit_routed(routed, &[path], visit);
            }
        }
    }

    /// Why a VRF is not confirmed to be gone.
    pub(super) fn remains_of_vrf(&self, key: &Key, evaluation: &mut Evaluation) -> Option<String> {
        let (name, device) = self.fabric.device_with_remains_of(key)?;
        evaluation.awaited = Some(name.clone());
        let failure = device.failure.as_ref().map(|failure| failure.reason.as_str());
        Some(match failure.or(device.clash()).or(device.refused_vrf_removal(&key.name)) {
            Some(why) => format!("FabricDevice {name}: the VRF can't be removed yet: {why}"),
            None => format!("FabricDevice {name}: the removal of the VRF {}", self.wait(&device.driver)),
        })
    }

    /// Adds the condition SharedDistinguisher when two devices or VRFs have one route distinguisher.
    pub(super) fn note_shared_distinguisher(&self, key: &Key, spec: &VrfSpec, evaluation: &mut Evaluation) {
        let mut others: BTreeMap<&str, (&Name, &Name)> = BTreeMap::new();
        for (other, record) in self.store.of_kind(Kind::VRF).filter(|(other, _)| *other != key) {
            for one in
                record.effective.as_deref().and_then(Spec::vrf).into_iter().flat_map(|spec| &spec.devices)
            {
                let Some(distinguisher) = &one.route_distinguisher else { continue };
                let first = others.entry(distinguisher).or_insert((&other.name, &one.name));
                *first = (*first).min((&other.name, &one.name));
            }
        }
        let shared = spec.devices.iter().enumerate().find_map(|(index, one)| {
            let distinguisher = one.route_distinguisher.as_ref()?;
            let mut before = spec.devices[..index].iter();
            let twin = before.find(|twin| twin.route_distinguisher.as_ref() == Some(distinguisher));
            let twin = twin.map(|twin| format!("on {} and {}", twin.name, one.name));
            let other = others.get(distinguisher.as_str());
            let other =
                || other.map(|(vrf, device)| format!("on {}, and VRF {vrf} has it on {device}", one.name));
            Some((distinguisher, twin.or_else(other)?))
        });
        if let Some((distinguisher, whose)) = shared {
            let message = format!(
                "{distinguisher} is the RouteDistinguisher {whose}: a route reflector may hide one of two paths; give each \
                 device and VRF one of its own"
            );
            evaluation.note(ConditionType::SharedDistinguisher, true, ConditionReason::Shared, message);
        }
    }

    /// Adds the condition NextHopAnswers when a Route of a Subnet names an address that no VRFAttachment of a service with
    /// the Subnet has, though it has some and no PhysicalNW.
    pub(super) fn note_next_hops(&self, key: &Key, evaluation: &mut Evaluation) {
        let Some(subnet) = self.store.subnet(&key.name) else { return };
        let mut found = None;
        for user in self.store.referrers(key).filter(|user| user.kind == Kind::L2Service) {
            let Some(service) = self.store.effective(user, Spec::service) else { continue };
            if !service.physical_networks.is_empty() {
                continue;
            }
            let interfaces = self.store.vrf_attachments_of(user).flat_map(|(_, spec)| spec.addresses());
            let addresses: BTreeSet<IpAddr> = interfaces.map(IpNet::addr).collect();
            if addresses.is_empty() {
                continue;
            }
            for name in &subnet.routes {
                let Some(hop) = self.store.route(name).map(|route| route.next_hop) else { continue };
                let (reason, problem) = if matches!(hop, IpAddr::V6(hop) if hop.is_unicast_link_local()) {
                    let problem = "it is link-local, and which of these a device has is not known";
                    (ConditionReason::LinkLocal, problem)
                } else if addresses.contains(&hop) {
                    continue;
                } else {
                    let problem = "no VRFAttachment of the service has it; change NextHop to an address of one, or give it to one";
                    (ConditionReason::NoInterface, problem)
                };
                let message = format!("NextHop {hop} of Route {name} in L2Service {}: {problem}", user.name);
                // What is known to be wrong comes before what is not known.
                if found.as_ref().is_none_or(|(former, _)| {
                    *former == ConditionReason::LinkLocal && reason == ConditionReason::NoInterface
                }) {
                    found = Some((reason, message));
                }
            }
        }
        if let Some((reason, message)) = found {
            evaluation.note(ConditionType::NextHopAnswers, false, reason, message);
        }
    }
}

/// The state of what a withheld network lacks.
fn rejected_state(placement: &Placement) -> Option<HopState<'_>> {
    let rejection = placement.rejected_by.as_ref()?;
    let reason = rejection.message.as_str();
    Some(if rejection.unreachable {
        HopState::Unreachable { reason, was_confirmed: false }
    } else {
        HopState::Refused { reason, retryable: rejection.retryable }
    })
}
