//! The last stage: evaluates the phase and the status of an object.

use std::collections::BTreeSet;

use eno_schemas::{Phase, VlanId};

use crate::fabric::device::{DeviceTarget, HopState};
use crate::fabric::topology::Ports;
use crate::nad::target::NadState;
use crate::spec::{AttachmentSpec, Cause, Spec};
use crate::{Condition, ConditionReason, ConditionState, ConditionType, Effect, Key, Kind, Name, Status};

use crate::engine::{Engine, NAD_DRIVER};
use crate::status::inputs::Inputs;
use crate::store::record::Record;

/// Maximum switch ports of a PhysicalNetwork in its status.
const MAX_SWITCH_PORTS: usize = 1024;

/// The findings about an object, from which its phase and conditions follow.
#[derive(Debug, Default)]
pub(crate) struct Evaluation {
    /// The cause, if the spec can't be used.
    pub cause: Option<Cause>,
    /// The message of the target or check that refused it.
    pub refused: Option<String>,
    /// The error stays until the spec changes.
    pub permanent: bool,
    /// The message about the first hop that is not confirmed yet.
    pub waiting: Option<String>,
    /// The node of the first hop that is not confirmed yet.
    pub waits_on: Option<Name>,
    /// The message about a target that does not answer.
    pub unreachable: Option<String>,
    /// The message about drift on a switch port that is only reported.
    pub drifted: Option<String>,
    /// The hash of its inputs: a ready object goes back to pending only when it changes. `None` for objects that wait
    /// for nothing, and for those that are as ready as what they wait for.
    pub inputs: Option<u64>,
    /// Its endpoints can't reach each other.
    pub gap: bool,
    /// Further conditions.
    pub conditions: Vec<ConditionState>,
    /// The parts of its path, each with its condition type and what hinders it: whether it was refused, and the
    /// message.
    pub hops: Vec<(ConditionType, Option<(bool, String)>)>,
    /// The message when the object is gone, such as what may be left on nodes that are not ready.
    pub final_message: String,
}

impl Evaluation {
    /// The evaluation of a spec that can't be used.
    fn invalid(cause: Cause) -> Self {
        Self { cause: Some(cause), permanent: cause == Cause::Spec, ..Self::default() }
    }

    /// Refuses it with a transient error.
    pub fn refuse(&mut self, message: String) {
        self.reject(message, true);
    }

    /// Refuses it. `transient`: the error may pass while the spec stays as it is. The first message stays.
    pub fn reject(&mut self, message: String, transient: bool) {
        if self.refused.is_none() {
            (self.refused, self.permanent) = (Some(message), !transient);
        }
    }

    pub fn wait(&mut self, message: String) {
        self.wait_with(|| message);
    }

    /// Waits; the message is made only if it is the first.
    fn wait_with(&mut self, message: impl FnOnce() -> String) {
        self.waiting.get_or_insert_with(message);
    }

    /// Waits for a node. The object is evaluated again when the node reports.
    pub fn wait_for(&mut self, node: &Name, message: impl FnOnce() -> String) {
        if self.waits_on.is_none() {
            self.waits_on = Some(node.clone());
        }
        if self.waiting.is_none() {
            self.waiting = Some(message());
        }
    }

    /// Adds the findings about one part of the path.
    fn add_hop(&mut self, kind: ConditionType, part: Self) {
        let hindered = part.refused.clone().map(|message| (true, message));
        self.hops.push((kind, hindered.or_else(|| part.waiting.clone().map(|message| (false, message)))));
        part.refused.into_iter().for_each(|message| self.reject(message, !part.permanent));
        part.waiting.into_iter().for_each(|message| self.wait(message));
        self.waits_on = self.waits_on.take().or(part.waits_on);
        self.unreachable = self.unreachable.take().or(part.unreachable);
        self.drifted = self.drifted.take().or(part.drifted);
    }
}

impl Engine {
    /// Evaluates the status of one object and emits what changed.
    pub(crate) fn evaluate(&mut self, key: &Key, now: &Name) {
        let Some(record) = self.store.records.get(key) else { return };
        if !record.finalized {
            if !record.deleting && !record.finalizer_requested {
                self.work.effects.push(Effect::AddFinalizer(key.clone()));
                self.store
                    .records
                    .get_mut(key)
                    .into_iter()
                    .for_each(|record| record.finalizer_requested = true);
            }
            return;
        }
        let before = record.status.phase;
        if before == Some(Phase::Deleted) {
            // Deleted is the last phase of an object.
            return self.request_finalizer_removal(key);
        }
        let (phase, message, mut evaluation) = if record.deleting {
            self.evaluate_deleting(key)
        } else if let Some(problem) = &record.problem {
            (
                if record.incomplete { Phase::Pending } else { Phase::Error },
                problem.to_string(),
                Evaluation::invalid(problem.cause),
            )
        } else {
            self.evaluate_active(key)
        };
        self.note_unknown_opts(key, &mut evaluation);
        if before.is_none() && !matches!(phase, Phase::Pending | Phase::Terminating | Phase::Deleted) {
            self.update_status(key, Phase::Pending, String::new(), &Evaluation::default(), now);
        }
        if phase == Phase::Deleted && before != Some(Phase::Terminating) {
            self.update_status(key, Phase::Terminating, String::new(), &Evaluation::default(), now);
        }
        self.update_status(key, phase, message, &evaluation, now);
        self.start_deadline(key);
        if let Some(node) = &evaluation.waits_on {
            self.node.wait(node, key);
        }
        if phase == Phase::Deleted {
            self.release_claims(key);
            self.request_finalizer_removal(key);
        }
    }

    /// Frees what the object held. Others may ask for it before the API server reports that the object is gone.
    fn release_claims(&mut self, key: &Key) {
        if matches!(key.kind, Kind::L2Service | Kind::L2BridgeDomain) {
            self.vlan.claim_queue.insert(key.clone());
        }
        self.update_bridge_index(key);
    }

    /// Requests the removal of our finalizer, once: everything of the object is confirmed to be gone.
    fn request_finalizer_removal(&mut self, key: &Key) {
        let Some(record) = self.store.records.get_mut(key).filter(|record| !record.finalizer_requested)
        else {
            return;
        };
        record.finalizer_requested = true;
        self.work.effects.push(Effect::RemoveFinalizer(key.clone()));
    }

    /// Evaluates a valid object that is not being deleted.
    fn evaluate_active(&self, key: &Key) -> (Phase, String, Evaluation) {
        let evaluation = self.evaluate_path(key);
        let Some(record) = self.store.records.get(key) else {
            return (Phase::Pending, String::new(), evaluation);
        };
        if let Some(refused) = &evaluation.refused {
            return (Phase::Error, refused.clone(), evaluation);
        }
        // A configuration is as ready as its pods. Any other object stays ready while its inputs stay the same.
        let sticky = !matches!(key.kind, Kind::PodNetworkConfig | Kind::PodConfig);
        let was_ready = record.status.phase == Some(Phase::Ready) && sticky;
        // A status without inputs is from an older engine: then its observed generation decides.
        let same = match record.status.ready_inputs {
            None => record.status.observed_generation == record.generation && !evaluation.gap,
            before => before == evaluation.inputs,
        };
        match &evaluation.waiting {
            Some(_) if was_ready && same => (Phase::Ready, String::new(), evaluation),
            Some(waiting) => (Phase::Pending, waiting.clone(), evaluation),
            None => (Phase::Ready, String::new(), evaluation),
        }
    }

    fn evaluate_path(&self, key: &Key) -> Evaluation {
        let mut evaluation = Evaluation::default();
        let mut inputs = Inputs::default();
        match key.kind {
            Kind::Route | Kind::Subnet | Kind::NodePool | Kind::PhysicalNetwork => return evaluation,
            Kind::PodNetworkConfig | Kind::PodConfig => {
                self.evaluate_pods(key, &mut evaluation);
                return evaluation;
            }
            Kind::Bridge => self.evaluate_bridge(key, &mut evaluation, &mut inputs),
            Kind::ConnectionPoint => self.evaluate_point_on_hosts(key, &mut evaluation, &mut inputs),
            Kind::FabricDevice => self.evaluate_device(key, &mut evaluation, &mut inputs),
            Kind::L2Service | Kind::L2BridgeDomain | Kind::L2ServiceAttachment => {
                let mut fabric = Evaluation::default();
                for (network, vid, ports) in self.paths(key) {
                    inputs.add(&vid);
                    if let Some(service) = self.effective(&network, Spec::service) {
                        inputs.add(&service.physical_networks);
                    }
                    // Without a gap the hash is the same as that of engines that knew no gaps.
                    if let Some(gap) = self.gap_message(key, &network) {
                        inputs.add(&gap);
                        evaluation.gap = true;
                        fabric.wait(gap);
                    }
                    self.evaluate_network(key, &network, vid, &ports, &mut fabric);
                }
                let mut nodes = Evaluation::default();
                self.evaluate_hosts(key, &mut nodes, &mut inputs);
                evaluation.add_hop(ConditionType::FabricReady, fabric);
                evaluation.add_hop(ConditionType::NodesReady, nodes);
            }
        }
        if key.kind == Kind::L2ServiceAttachment {
            if let Some(spec) = self.effective(key, Spec::attachment) {
                // `UsableFrom` does not change what its own pods have.
                inputs.add(&AttachmentSpec { usable_from: None, ..spec.clone() });
                if self.fabric.points.get(&spec.connection_point).is_none_or(|point| point.ports.is_empty()) {
                    let message =
                        format!("no FabricDevice has ports of ConnectionPoint {}", spec.connection_point);
                    evaluation.conditions.push(ConditionState::new(
                        ConditionType::FabricManaged,
                        false,
                        ConditionReason::NoFabricDevice,
                        message,
                    ));
                }
                self.note_addresses(key, spec, &mut evaluation);
                self.note_trunk(spec, &mut evaluation);
                self.note_foreign_pods(key, &mut evaluation);
            }
            let mut nad = Evaluation::default();
            self.evaluate_nad(key, &mut nad, &mut inputs);
            evaluation.add_hop(ConditionType::NadReady, nad);
            self.evaluate_pods(key, &mut evaluation);
            evaluation.hops.retain(|(kind, _)| self.config.nodes || *kind != ConditionType::NodesReady);
        } else {
            evaluation.hops.clear();
        }
        evaluation.inputs = Some(inputs.finish());
        evaluation
    }

    /// Evaluates the ports of a network that matter to an object. Of a network with a refusal, the confirmed ports
    /// are evaluated as usual, and the others are refused.
    fn evaluate_network(
        &self,
        key: &Key,
        network: &Key,
        vid: VlanId,
        ports: &Ports,
        evaluation: &mut Evaluation,
    ) {
        let Some(refusal) = self.refusal(network) else { return self.evaluate_ports(vid, ports, evaluation) };
        let (mut confirmed, mut rest) = (Ports::new(), Ports::new());
        for (name, indices) in ports {
            let names = self.fabric.topology.port_names(name);
            let stays = |index: &u16| {
                let port = names.get(usize::from(*index)).map_or("", |port| port);
                refusal.confirmed_on(vid, name, port)
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
        let own = key == network && refusal.is_withheld();
        if own || more.refused.is_some() || more.waiting.is_some() {
            evaluation.reject(refusal.message.clone(), refusal.retryable);
        }
        self.evaluate_ports(vid, &confirmed, evaluation);
    }

    fn evaluate_ports(&self, vid: VlanId, ports: &Ports, evaluation: &mut Evaluation) {
        for (name, indices) in ports {
            let Some(device) = self.fabric.devices.get(name) else { continue };
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

    fn waits_for(&self, driver: &Name) -> String {
        if self.schedule.live_drivers.contains(driver) {
            "is not confirmed yet".into()
        } else {
            format!("waits: driver {driver} is not running")
        }
    }

    fn evaluate_nad(&self, key: &Key, evaluation: &mut Evaluation, inputs: &mut Inputs) {
        let Some(nad) = self.nad.targets.get(key) else {
            return evaluation.wait("its NetworkAttachmentDefinition is not planned yet".into());
        };
        inputs.add(nad.inputs());
        match nad.hop() {
            NadState::Confirmed => {}
            NadState::Refused { reason, retryable } => {
                evaluation.reject(format!("NetworkAttachmentDefinition: {reason}"), retryable);
            }
            NadState::Waiting => {
                evaluation
                    .wait(format!("NetworkAttachmentDefinition {}", self.waits_for(&NAD_DRIVER.into())));
            }
        }
    }

    fn evaluate_device(&self, key: &Key, evaluation: &mut Evaluation, inputs: &mut Inputs) {
        let Some(device) = self.fabric.devices.get(&key.name) else {
            return evaluation.wait("not looked at yet".into());
        };
        if let Some(conflict) = self.fabric.topology.conflict(&key.name) {
            evaluation.refuse(conflict.to_owned());
        }
        match &device.failure {
            Some(failure) if failure.unreachable => {
                evaluation.unreachable = Some(failure.reason.clone());
                evaluation.wait(failure.reason.clone());
            }
            Some(failure) => evaluation.reject(failure.reason.clone(), failure.retryable),
            None => {}
        }
        if let Some(refusal) = device.refusals().next() {
            evaluation.reject(format!("{}: {}", refusal.item, refusal.reason), refusal.retryable);
        }
        if !device.is_known() {
            evaluation.wait(format!("the device {}", self.waits_for(&device.driver)));
        }
        evaluation.conditions.append(&mut device.conditions());
        inputs.add(&device.driver);
    }

    /// Evaluates an object that is being deleted.
    fn evaluate_deleting(&self, key: &Key) -> (Phase, String, Evaluation) {
        let mut evaluation = Evaluation::default();
        if let Some(user) = self.blocking_user(key) {
            return (Phase::Terminating, format!("in use by {user}"), evaluation);
        }
        let remains = self.remains(key).or_else(|| self.remains_on_hosts(key, &mut evaluation));
        match remains.or_else(|| self.remains_in_pods(key, &mut evaluation)) {
            Some(remains) => (Phase::Terminating, remains, evaluation),
            None => (Phase::Deleted, std::mem::take(&mut evaluation.final_message), evaluation),
        }
    }

    /// The first thing on switches, or the NAD, that is not confirmed to be gone.
    fn remains(&self, key: &Key) -> Option<String> {
        let record = self.store.records.get(key)?;
        if key.kind == Kind::FabricDevice {
            let device = self.fabric.devices.get(&key.name).filter(|_| !record.forget)?;
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
        if let Some(refusal) = networks
            .iter()
            .filter_map(|network| self.refusal(network))
            .find(|refusal| refusal.keeps_surplus())
        {
            return Some(format!("its VLANs can't be removed yet: {}", refusal.message));
        }
        for name in &record.cleanup_devices {
            let Some(device) = self.fabric.devices.get(name) else { continue };
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
        match self.nad.targets.get(key).map(crate::nad::target::NadTarget::hop) {
            Some(NadState::Waiting) => Some(format!(
                "the removal of its NetworkAttachmentDefinition {}",
                self.waits_for(&NAD_DRIVER.into())
            )),
            Some(NadState::Refused { reason, .. }) => Some(format!("NetworkAttachmentDefinition: {reason}")),
            Some(NadState::Confirmed) | None => None,
        }
    }

    /// The switch ports that lead to a PhysicalNetwork.
    fn switch_ports(&self, key: &Key) -> Vec<String> {
        let ports =
            self.fabric.topology.network_ports(&key.name).filter(|_| key.kind == Kind::PhysicalNetwork);
        let named = ports.into_iter().flatten().flat_map(|(device, indices)| {
            let names = self.fabric.topology.port_names(device);
            indices.iter().filter_map(move |i| Some(format!("{device}:{}", names.get(usize::from(*i))?)))
        });
        named.take(MAX_SWITCH_PORTS).collect()
    }

    /// Builds the status and emits an effect if it changed.
    fn update_status(
        &mut self,
        key: &Key,
        phase: Phase,
        message: String,
        evaluation: &Evaluation,
        now: &Name,
    ) {
        let points: Vec<Name> = match self.fabric.networks.get(key) {
            Some(network) if key.kind == Kind::L2Service => network.points.keys().cloned().collect(),
            _ => Vec::new(),
        };
        let device = self.fabric.devices.get(&key.name).filter(|_| key.kind == Kind::FabricDevice);
        let pending_changes = device.map(DeviceTarget::pending_count);
        let last_transaction = device.and_then(|device| device.last_transaction.clone());
        let port_memory = device.map(DeviceTarget::port_memory);
        let cluster = device.map(|_| Name::from(self.config.cluster.as_str()));
        let device = device.and_then(|device| device.info.clone());
        let former = self.former_vlan(key).filter(|_| phase != Phase::Ready);
        let (pods, nodes) = (self.pod_entries(key), self.nodes_with(key));
        let switch_ports = self.switch_ports(key);
        let leased = self.pods.lease_revision(key);
        let Some(record) = self.store.records.get_mut(key) else { return };
        let last = &record.status;
        let conditions = conditions(record, phase, &message, evaluation, now);
        let effective = record.effective.as_deref();
        // Until a new VLAN is confirmed, the former one is granted: the next leader has to know its owner.
        let granted_id = former
            .or_else(|| effective.and_then(crate::fabric::planner::vid_of))
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
            switch_ports,
            cluster,
            device,
            last_transaction: last_transaction.or_else(|| last.last_transaction.clone()),
            port_memory: port_memory.unwrap_or_else(|| last.port_memory.clone()),
            pending_changes,
            pods,
            nodes,
            leased,
            ready_inputs: evaluation.inputs.filter(|_| phase == Phase::Ready),
        };
        // A change of the inputs alone is not written: it goes with the next change.
        record.status.ready_inputs = status.ready_inputs;
        let last = &record.status;
        // The number of pending changes is written with other changes, and when it becomes 0.
        let uncounted = |status: &Status| Status { pending_changes: None, ..status.clone() };
        let only_counted =
            || pending_changes.is_some_and(|count| count > 0) && uncounted(&status) == uncounted(last);
        if status == *last || only_counted() {
            return;
        }
        let previous = last.phase;
        record.status = status;
        if previous == Some(phase) {
            self.work
                .effects
                .push(Effect::Status { key: key.clone(), status: Box::new(record.status.clone()) });
        } else {
            record.status.transitions += 1;
            let status = Box::new(record.status.clone());
            self.work.effects.push(Effect::Transition { key: key.clone(), previous, status });
        }
    }
}

fn conditions(
    record: &Record,
    phase: Phase,
    message: &str,
    evaluation: &Evaluation,
    now: &Name,
) -> Vec<Condition> {
    let last = &record.status;
    let reason = match phase {
        Phase::Ready => ConditionReason::Confirmed,
        Phase::Pending => ConditionReason::Waiting,
        Phase::Error if evaluation.refused.is_some() => ConditionReason::Refused,
        Phase::Error => evaluation.cause.unwrap_or_default().reason(),
        Phase::Terminating => ConditionReason::Terminating,
        Phase::Deleted => ConditionReason::Deleted,
    };
    let mut all = evaluation.conditions.clone();
    for (kind, hindered) in &evaluation.hops {
        all.push(match hindered.as_ref().filter(|_| phase != Phase::Ready) {
            None => ConditionState::new(*kind, true, ConditionReason::Confirmed, ""),
            Some((refused, message)) => {
                let reason = if *refused { ConditionReason::Refused } else { ConditionReason::Waiting };
                ConditionState::new(*kind, false, reason, message.as_str())
            }
        });
    }
    all.push(ConditionState::new(ConditionType::Ready, phase == Phase::Ready, reason, message));
    let unreachable = evaluation.unreachable.as_ref().map(|message| (ConditionReason::Unreachable, message));
    let degraded = unreachable.or_else(|| Some((ConditionReason::Drift, evaluation.drifted.as_ref()?)));
    if let Some((reason, message)) = degraded.filter(|_| phase == Phase::Ready) {
        all.push(ConditionState::new(ConditionType::Degraded, true, reason, message.as_str()));
    }
    let conditions = all.into_iter().map(|ConditionState { kind, holds, reason, message }| {
        let before =
            last.conditions.iter().find(|condition| condition.kind == kind && condition.holds == holds);
        let since = before.map_or_else(|| now.clone(), |condition| condition.since.clone());
        Condition { kind, holds, reason, message, since }
    });
    let stalled = (phase == Phase::Error)
        .then(|| crate::status::stalled::condition(record, reason, message, evaluation.permanent, now));
    let mut conditions: Vec<Condition> = conditions.chain(stalled).collect();
    conditions.sort_by_key(|condition| condition.kind);
    conditions
}
