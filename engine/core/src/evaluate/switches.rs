//! The switches' part of the path: the state of networks on switch ports, and of the switches themselves.

use std::collections::BTreeSet;

use eno_schemas::VlanId;

use crate::evaluate::Evaluator;
use crate::fabric::device::HopState;
use crate::fabric::topology::Ports;
use crate::status::evaluation::Evaluation;
use crate::status::inputs::Inputs;
use crate::{ConditionReason, ConditionState, ConditionType, Key, Kind};

impl Evaluator<'_> {
    /// Evaluates the ports of a network that matter to an object. Of a rejected network, the confirmed ports
    /// are evaluated as usual, and the others are refused.
    pub fn evaluate_network(
        &self,
        key: &Key,
        network: &Key,
        vid: VlanId,
        ports: &Ports,
        evaluation: &mut Evaluation,
    ) {
        let placement = self.fabric.placements.get(network);
        let Some((placement, rejection)) = placement.and_then(|one| Some((one, one.rejected_by.as_ref()?)))
        else {
            return self.evaluate_ports(vid, ports, evaluation);
        };
        let (mut confirmed, mut rest) = (Ports::new(), Ports::new());
        for (name, indices) in ports {
            let names = self.fabric.topology().port_names(name);
            let stays = |index: &u16| {
                let port = names.get(usize::from(*index)).map_or("", |port| port);
                placement.confirmed_on(vid, name, port)
            };
            let (own, others): (Vec<u16>, Vec<u16>) = indices.iter().copied().partition(stays);
            for (part, indices) in [(&mut confirmed, own), (&mut rest, others)] {
                if !indices.is_empty() {
                    part.insert(name.clone(), indices.into());
                }
            }
        }
        let mut more = Evaluation::default();
        self.evaluate_ports(vid, &rest, &mut more);
        let own = key == network && rejection.is_withheld();
        if own || more.refused.is_some() || more.waiting.is_some() {
            evaluation.reject(rejection.message.clone(), rejection.retryable);
        }
        self.evaluate_ports(vid, &confirmed, evaluation);
    }

    fn evaluate_ports(&self, vid: VlanId, ports: &Ports, evaluation: &mut Evaluation) {
        for (name, indices) in ports {
            let Some(device) = self.fabric.device(name) else { continue };
            if let Some(failure) = device.failure.as_ref().filter(|failure| failure.unreachable) {
                evaluation.unreachable.get_or_insert(format!("FabricDevice {name}: {}", failure.reason));
            }
            if evaluation.waiting.is_some() && device.only_waits(vid) {
                continue;
            }
            for index in indices.iter() {
                let port = device.ports.get(usize::from(*index)).map_or("", |port| &port.name);
                let hop = || format!("FabricDevice {name}: VLAN {vid} on port {port}");
                match device.hop(vid, *index) {
                    HopState::Confirmed => {}
                    HopState::Refused { reason, retryable } => {
                        evaluation.reject(format!("{}: {reason}", hop()), retryable);
                    }
                    HopState::Unreachable(reason) => {
                        evaluation.wait_with(|| format!("{} waits: {reason}", hop()));
                    }
                    HopState::Waiting if device.leaves_drift() => {
                        let message =
                            format!("{} was changed by another hand; with Drift: Report it stays so", hop());
                        evaluation.drifted.get_or_insert_with(|| message.clone());
                        evaluation.wait(message);
                    }
                    HopState::Waiting => {
                        evaluation.wait_with(|| format!("{} {}", hop(), self.waits_for(&device.driver)));
                    }
                }
            }
        }
    }

    /// Evaluates a switch.
    pub fn evaluate_device(&self, key: &Key, evaluation: &mut Evaluation, inputs: &mut Inputs) {
        let Some(device) = self.fabric.device(&key.name) else {
            return evaluation.wait("not looked at yet".into());
        };
        if let Some(conflict) = self.fabric.topology().conflict(&key.name) {
            evaluation.refuse(conflict.to_owned());
        }
        match &device.failure {
            Some(failure) if failure.unreachable => {
                evaluation.unreachable = Some(failure.reason.to_string());
                evaluation.wait(failure.reason.to_string());
            }
            Some(failure) => evaluation.reject(failure.reason.to_string(), failure.retryable),
            None => {}
        }
        if let Some(refusal) = device.refusals().next() {
            evaluation.reject(format!("{}: {}", refusal.item, refusal.reason), refusal.retryable);
        }
        if !device.is_known() {
            evaluation.wait(format!("the device {}", self.waits_for(&device.driver)));
        }
        evaluation.conditions.append(&mut device.conditions());
        if let Some(skew) = self.schedule.skewed_drivers.get(&device.driver) {
            evaluation.conditions.push(ConditionState::new(
                ConditionType::ClockSkew,
                true,
                ConditionReason::ClocksDiffer,
                &**skew,
            ));
        }
        inputs.add(&device.driver);
    }

    /// The first thing on switches that is not confirmed to be gone.
    pub fn remains_on_switches(&self, key: &Key) -> Option<String> {
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
                    format!("removing what is ours from the device ({})", self.waits_for(&device.driver))
                }
            });
        }
        let networks: BTreeSet<Key> = match record.spec.as_ref().ok().and_then(|spec| spec.attachment()) {
            Some(spec) => spec.services.iter().map(|name| Key::cluster(Kind::L2Service, name)).collect(),
            None => BTreeSet::from([key.clone()]),
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
                return Some(match (&device.failure, device.clash()) {
                    (Some(failure), _) => {
                        format!("FabricDevice {name}: its VLANs can't be removed yet: {}", failure.reason)
                    }
                    (None, Some(clash)) => {
                        format!("FabricDevice {name}: its VLANs can't be removed yet: {clash}")
                    }
                    (None, None) => format!(
                        "FabricDevice {name}: the removal of its VLANs {}",
                        self.waits_for(&device.driver)
                    ),
                });
            }
        }
        None
    }
}
