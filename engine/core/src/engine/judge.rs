//! The last stage: what phase is an object in, and what does its status say?

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use eno_schemas::{Phase, VlanId};

use crate::fabric::{DeviceTarget, Hop};
use crate::nad::NadHop;
use crate::spec::Spec;
use crate::topology::Ports;
use crate::{Condition, Effect, Key, Kind, Name, Status};

use super::{Engine, NAD_DRIVER};

/// What is found out about an object that is valid.
#[derive(Debug, Default)]
struct Verdict {
    /// A target refused it, in these words.
    refused: Option<String>,
    /// The first hop that is not yet.
    waiting: Option<String>,
    /// A target of it does not answer.
    unreachable: Option<String>,
    /// What it is made of: a ready object goes back to pending only when that changes.
    inputs: u64,
    /// What the admin should know.
    notes: Vec<(&'static str, bool, &'static str, String)>,
}

impl Verdict {
    fn refuse(&mut self, message: String) {
        self.refused.get_or_insert(message);
    }

    fn wait(&mut self, message: String) {
        self.waiting.get_or_insert(message);
    }
}

impl Engine {
    /// Works out the status of one object and says what changed.
    pub(super) fn judge(&mut self, key: &Key, now: &Name) {
        let Some(record) = self.records.get(key) else { return };
        if !record.finalized {
            if !record.deleting && !record.finalizer_asked {
                self.effects.push(Effect::AddFinalizer(key.clone()));
                self.records.get_mut(key).into_iter().for_each(|record| record.finalizer_asked = true);
            }
            return;
        }
        let before = record.status.phase;
        let (phase, message, verdict) = if record.deleting {
            self.deleting(key)
        } else if let Some(problem) = &record.problem {
            (
                if record.incomplete { Phase::Pending } else { Phase::Error },
                problem.clone(),
                Verdict::default(),
            )
        } else {
            self.living(key)
        };
        if before.is_none() && !matches!(phase, Phase::Pending | Phase::Terminating | Phase::Deleted) {
            self.say(key, Phase::Pending, String::new(), &Verdict::default(), now);
        }
        if phase == Phase::Deleted && before != Some(Phase::Terminating) {
            self.say(key, Phase::Terminating, String::new(), &Verdict::default(), now);
        }
        self.say(key, phase, message, &verdict, now);
        let Some(record) = self.records.get_mut(key) else { return };
        match phase {
            Phase::Ready => record.ready_inputs = Some(verdict.inputs),
            Phase::Deleted if !record.finalizer_asked => {
                record.finalizer_asked = true;
                self.effects.push(Effect::RemoveFinalizer(key.clone()));
            }
            _ => {}
        }
    }

    /// An object that is valid and stays.
    fn living(&self, key: &Key) -> (Phase, String, Verdict) {
        let verdict = self.look(key);
        let Some(record) = self.records.get(key) else { return (Phase::Pending, String::new(), verdict) };
        if let Some(refused) = &verdict.refused {
            return (Phase::Error, refused.clone(), verdict);
        }
        let was_ready = record.status.phase == Some(Phase::Ready);
        // After a start all that is known of a ready object is which generation of it that was.
        let same = record
            .ready_inputs
            .map_or(record.status.observed_generation == record.generation, |i| i == verdict.inputs);
        match &verdict.waiting {
            Some(_) if was_ready && same => (Phase::Ready, String::new(), verdict),
            Some(waiting) => (Phase::Pending, waiting.clone(), verdict),
            None => (Phase::Ready, String::new(), verdict),
        }
    }

    fn look(&self, key: &Key) -> Verdict {
        let mut verdict = Verdict::default();
        let mut inputs = DefaultHasher::new();
        match key.kind {
            Kind::Route | Kind::Subnet | Kind::NodePool | Kind::PhysicalNetwork | Kind::ConnectionPoint => {}
            Kind::FabricDevice => self.look_at_device(key, &mut verdict),
            Kind::L2Service | Kind::L2BridgeDomain | Kind::L2ServiceAttachment => {
                for (network, vid, ports) in self.paths(key) {
                    vid.hash(&mut inputs);
                    if let Some(service) = self.effective(&network, Spec::service) {
                        service.physical_networks.hash(&mut inputs);
                    }
                    self.look_at_ports(vid, &ports, &mut verdict);
                }
            }
        }
        if key.kind == Kind::L2ServiceAttachment {
            if let Some(spec) = self.effective(key, Spec::attachment) {
                spec.hash(&mut inputs);
                if self.points.get(&spec.connection_point).is_none_or(|point| point.ports.is_empty()) {
                    let message =
                        format!("no FabricDevice has ports of ConnectionPoint {}", spec.connection_point);
                    verdict.notes.push(("FabricManaged", false, "NoFabricDevice", message));
                }
            }
            self.look_at_nad(key, &mut verdict, &mut inputs);
        }
        verdict.inputs = inputs.finish();
        verdict
    }

    fn look_at_ports(&self, vid: VlanId, ports: &Ports, verdict: &mut Verdict) {
        for (name, indices) in ports {
            let Some(device) = self.devices.get(name) else { continue };
            if let Some(failure) = device.failure.as_ref().filter(|failure| failure.unreachable) {
                verdict.unreachable.get_or_insert(format!("FabricDevice {name}: {}", failure.reason));
            }
            for index in indices {
                let port = device.ports.get(usize::from(*index)).map_or("", |port| &port.name);
                let hop = || format!("FabricDevice {name}: VLAN {vid} on port {port}");
                match device.hop(vid, *index) {
                    Hop::Confirmed => {}
                    Hop::Refused(reason) => verdict.refuse(format!("{}: {reason}", hop())),
                    Hop::Unreachable(reason) => verdict.wait(format!("{} waits: {reason}", hop())),
                    Hop::Waiting => verdict.wait(format!("{} {}", hop(), self.waits_for(&device.driver))),
                }
            }
        }
    }

    fn waits_for(&self, driver: &Name) -> String {
        if self.drivers.contains(driver) {
            "is not confirmed yet".into()
        } else {
            format!("waits: driver {driver} is not running")
        }
    }

    fn look_at_nad(&self, key: &Key, verdict: &mut Verdict, inputs: &mut DefaultHasher) {
        let Some(nad) = self.nads.get(key) else {
            return verdict.wait("its NetworkAttachmentDefinition is not planned yet".into());
        };
        nad.hash().hash(inputs);
        match nad.hop() {
            NadHop::Confirmed => {}
            NadHop::Refused(reason) => verdict.refuse(format!("NetworkAttachmentDefinition: {reason}")),
            NadHop::Waiting => {
                verdict.wait(format!("NetworkAttachmentDefinition {}", self.waits_for(&NAD_DRIVER.into())));
            }
        }
    }

    fn look_at_device(&self, key: &Key, verdict: &mut Verdict) {
        let Some(device) = self.devices.get(&key.name) else {
            return verdict.wait("not looked at yet".into());
        };
        if let Some(conflict) = self.topology.conflict(&key.name) {
            verdict.refuse(conflict.to_owned());
        }
        match &device.failure {
            Some(failure) if failure.unreachable => {
                verdict.unreachable = Some(failure.reason.clone());
                verdict.wait(failure.reason.clone());
            }
            Some(failure) => verdict.refuse(failure.reason.clone()),
            None => {}
        }
        if let Some(refusal) = device.refusals().next() {
            verdict.refuse(format!("{}: {}", refusal.item, refusal.reason));
        }
        if !device.is_known() {
            verdict.wait(format!("the device {}", self.waits_for(&device.driver)));
        }
        for kind in ["Drift", "NoConfirmedCommit", "OpenTrunk", "StartupNotSaved"] {
            let said: Vec<&str> =
                device.notes.iter().filter(|n| n.kind == kind).map(|n| n.message.as_str()).collect();
            if !said.is_empty() {
                verdict.notes.push((kind, true, "ReportedByDriver", said.join("; ")));
            }
        }
        let mut inputs = DefaultHasher::new();
        device.driver.hash(&mut inputs);
        verdict.inputs = inputs.finish();
    }

    /// An object that is on its way out.
    fn deleting(&self, key: &Key) -> (Phase, String, Verdict) {
        let verdict = Verdict::default();
        if let Some(user) = self.user_of(key) {
            return (Phase::Terminating, format!("in use by {user}"), verdict);
        }
        match self.remains(key) {
            Some(remains) => (Phase::Terminating, remains, verdict),
            None => (Phase::Deleted, String::new(), verdict),
        }
    }

    /// What of an object is not verifiably gone yet.
    fn remains(&self, key: &Key) -> Option<String> {
        let record = self.records.get(key)?;
        if key.kind == Kind::FabricDevice {
            let device = self.devices.get(&key.name).filter(|_| !record.forget)?;
            if device.is_empty() {
                return None;
            }
            let forget = "annotate it with eno.k8s.io/forget=true to let it go without";
            return Some(match &device.failure {
                Some(failure) => format!("it can't be given back what is ours: {}; {forget}", failure.reason),
                None => format!("removing what is ours from the device ({})", self.waits_for(&device.driver)),
            });
        }
        let networks: BTreeSet<Key> = match record.spec.as_ref().ok().and_then(|spec| spec.attachment()) {
            Some(spec) => spec.services.iter().map(|name| Key::cluster(Kind::L2Service, name)).collect(),
            None => BTreeSet::from([key.clone()]),
        };
        for name in &record.left {
            let Some(device) = self.devices.get(name) else { continue };
            if networks.iter().any(|network| !device.gone(network)) {
                return Some(match &device.failure {
                    Some(failure) => {
                        format!("FabricDevice {name}: its VLANs can't be removed yet: {}", failure.reason)
                    }
                    None => format!(
                        "FabricDevice {name}: the removal of its VLANs {}",
                        self.waits_for(&device.driver)
                    ),
                });
            }
        }
        match self.nads.get(key).map(crate::nad::NadTarget::hop) {
            Some(NadHop::Waiting) => Some(format!(
                "the removal of its NetworkAttachmentDefinition {}",
                self.waits_for(&NAD_DRIVER.into())
            )),
            Some(NadHop::Refused(reason)) => Some(format!("NetworkAttachmentDefinition: {reason}")),
            Some(NadHop::Confirmed) | None => None,
        }
    }

    /// Writes down the status and, if it says something new, has it told.
    fn say(&mut self, key: &Key, phase: Phase, message: String, verdict: &Verdict, now: &Name) {
        let points: Vec<Name> = match self.networks.get(key) {
            Some(network) if key.kind == Kind::L2Service => network.points.keys().cloned().collect(),
            _ => Vec::new(),
        };
        let device = self.devices.get(&key.name).filter(|_| key.kind == Kind::FabricDevice);
        let device = device.and_then(|device: &DeviceTarget| device.info.clone());
        let Some(record) = self.records.get_mut(key) else { return };
        let last = &record.status;
        let conditions = conditions(last, phase, &message, verdict, now);
        let granted_id = record
            .effective
            .as_deref()
            .and_then(|spec| spec.service().map(|s| s.vid).or_else(|| spec.bridge_domain().map(|d| d.vlan)))
            .or(last.granted_id.filter(|_| record.deleting));
        let status = Status {
            phase: Some(phase),
            message,
            observed_generation: record.generation,
            conditions,
            transitions: last.transitions,
            granted_id,
            realized: record.effective.clone().or_else(|| last.realized.clone().filter(|_| record.deleting)),
            connection_points: points,
            device,
        };
        if status == *last {
            return;
        }
        let previous = last.phase;
        record.status = status;
        if previous == Some(phase) {
            self.effects.push(Effect::Status { key: key.clone(), status: Box::new(record.status.clone()) });
        } else {
            record.status.transitions += 1;
            let status = Box::new(record.status.clone());
            self.effects.push(Effect::Transition { key: key.clone(), previous, status });
        }
    }
}

fn conditions(last: &Status, phase: Phase, message: &str, verdict: &Verdict, now: &Name) -> Vec<Condition> {
    let reason = match phase {
        Phase::Ready => "Confirmed",
        Phase::Pending => "Waiting",
        Phase::Error if verdict.refused.is_some() => "Refused",
        Phase::Error => "Invalid",
        Phase::Terminating => "Terminating",
        Phase::Deleted => "Deleted",
    };
    let mut said = verdict.notes.clone();
    said.push(("Ready", phase == Phase::Ready, reason, message.to_owned()));
    if let Some(unreachable) = verdict.unreachable.as_ref().filter(|_| phase == Phase::Ready) {
        said.push(("Degraded", true, "Unreachable", unreachable.clone()));
    }
    said.sort();
    said.into_iter()
        .map(|(kind, holds, reason, message)| {
            let before =
                last.conditions.iter().find(|condition| condition.kind == kind && condition.holds == holds);
            let since = before.map_or_else(|| now.clone(), |condition| condition.since.clone());
            Condition { kind, holds, reason, message, since }
        })
        .collect()
}
