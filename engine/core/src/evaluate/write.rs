//! Writes the status of an object: it is built, compared with the last one, and emitted if it differs.

use eno_schemas::{DeviceInfo, Phase, VlanId};

use crate::evaluate::{Evaluator, Finding, stalled};
use crate::nad::pools::AddressPool;
use crate::status::bgp::{Sessions, Worker};
use crate::status::evaluation::{Awaited, Evaluation, Verified};
use crate::store::record::Record;
use crate::vlan::vid_of;
use crate::work::Work;
use crate::{
    About, Condition, ConditionReason, ConditionState, ConditionType, Effect, FixedAddress, Key, Kind,
    LastTransaction, Name, NodeBlocks, NoticeKind, PlacementStatus, PodEntry, PortMemory, Status,
    Verification,
};

/// What a status shows of the parts of the engine, beside the phase and the conditions.
#[derive(Debug, Default)]
pub(crate) struct Facts {
    /// The L2Service whose name the pool of addresses has.
    address_pool: Option<Name>,
    /// The connection points of a service.
    connection_points: Vec<Name>,
    /// The switch ports that lead to a PhysicalNetwork.
    switch_ports: Vec<String>,
    /// Of a device.
    device: Option<DeviceFacts>,
    /// The VLAN that a network has and is leaving, or keeps.
    former_vlan: Option<VlanId>,
    /// Where a network is confirmed and where it is to be, while that differs.
    placement: Option<PlacementStatus>,
    /// The pods that it gives something to.
    pods: Vec<PodEntry>,
    /// The nodes that have the bridge of a Bridge.
    nodes: Vec<Name>,
    /// The blocks of a Subnet that nodes have.
    node_addresses: Vec<NodeBlocks>,
    /// The addresses of a Subnet that are those of single pods.
    fixed_addresses: Vec<FixedAddress>,
    /// The nodes of a BGPSessionGroup.
    workers: Vec<Worker>,
    /// The sessions of a BGPSessionGroup.
    sessions: Option<Sessions>,
    /// The names of the speaker's objects for its gateways.
    speaker_peers: Vec<String>,
    /// The revision of the leases.
    leased: u64,
    /// The answer to its request for new probes.
    verification: Option<Verification>,
}

/// What a status shows of a device.
#[derive(Debug)]
struct DeviceFacts {
    /// The identifier of the cluster on it.
    cluster: Name,
    /// Its vendor, model and capabilities.
    info: Option<DeviceInfo>,
    /// Its last change.
    last_transaction: Option<LastTransaction>,
    /// What drivers reported of its ports.
    port_memory: PortMemory,
    /// The number of VLANs, VRFs and routed interfaces by which it differs from its desired state.
    pending_changes: u32,
}

impl Evaluator<'_> {
    /// Collects what the status of an object shows.
    pub fn facts(&self, key: &Key) -> Facts {
        let points = self.fabric.points_of(key).filter(|_| key.kind == Kind::L2Service);
        let device = self.fabric.device(&key.name).filter(|_| key.kind == Kind::FabricDevice);
        let subnet = Some(&key.name).filter(|_| key.kind == Kind::Subnet);
        let leases = subnet.map(|name| self.pods.pods.listed(name));
        let (node_addresses, fixed_addresses) = leases.unwrap_or_default();
        Facts {
            node_addresses,
            fixed_addresses,
            address_pool: self.nad.pool(key).and_then(AddressPool::service).cloned(),
            connection_points: points.cloned().collect(),
            switch_ports: self.switch_ports(key),
            device: device.map(|device| DeviceFacts {
                cluster: self.config.cluster.as_str().into(),
                info: device.info.clone(),
                last_transaction: device.last_transaction.clone(),
                port_memory: device.port_memory(),
                pending_changes: device.pending_count(),
            }),
            former_vlan: self.fabric.former_vlan(self.store, key),
            placement: self.fabric.placement_status(self.store, key),
            pods: self.pods.entries(key),
            nodes: self.pods.nodes_with(key),
            workers: self.groups.listed(key),
            sessions: self.sessions(key),
            speaker_peers: self.groups.speaker_peers(key),
            leased: self.pods.pods.lease_revision(key).max(self.groups.lease_revision(key)),
            verification: self.verification(key),
        }
    }

    /// The switch ports that lead to a PhysicalNetwork.
    fn switch_ports(&self, key: &Key) -> Vec<String> {
        let ports =
            self.fabric.topology().network_ports(&key.name).filter(|_| key.kind == Kind::PhysicalNetwork);
        let named = ports.into_iter().flatten().flat_map(|(device, indices)| {
            let names = self.fabric.topology().port_names(device);
            indices.iter().filter_map(move |i| Some(format!("{device}:{}", names.get(usize::from(*i))?)))
        });
        named.collect()
    }
}

/// Requests our finalizer, or its removal from an object that is reported as deleted. Returns true when the object has
/// a status to be evaluated.
pub(crate) fn handle_finalizer(record: &mut Record, key: &Key, work: &mut Work) -> bool {
    if !record.finalized {
        if !record.deleting && !record.finalizer_requested {
            record.finalizer_requested = true;
            work.effects.push(Effect::AddFinalizer(key.clone()));
        }
        return false;
    }
    // Deleted is the last phase of an object.
    let is_gone = record.status.phase == Some(Phase::Deleted);
    if is_gone {
        request_finalizer_removal(record, key, work);
    }
    !is_gone
}

/// Requests the removal of our finalizer, once: everything of the object is confirmed to be gone.
fn request_finalizer_removal(record: &mut Record, key: &Key, work: &mut Work) {
    if !record.finalizer_requested {
        record.finalizer_requested = true;
        work.effects.push(Effect::RemoveFinalizer(key.clone()));
    }
}

/// Writes the state of an object. Its phases are `pending` first, and `terminating` before `deleted`.
pub(crate) fn write(
    record: &mut Record,
    key: &Key,
    finding: &Finding,
    facts: &Facts,
    now: &Name,
    work: &mut Work,
) {
    let interim = match (record.status.phase, finding.phase) {
        (Some(Phase::Terminating), Phase::Deleted) => None,
        (_, Phase::Deleted) => Some(Phase::Terminating),
        (None, Phase::Ready | Phase::Error) => Some(Phase::Pending),
        _ => None,
    };
    if let Some(phase) = interim {
        let interim = Finding::new(phase, "", Evaluation::default());
        emit(record, key, &interim, facts, now, work);
    }
    emit(record, key, finding, facts, now, work);
    stalled::start_deadline(record, key, work);
    if finding.phase == Phase::Deleted {
        request_finalizer_removal(record, key, work);
    }
}

/// Builds the status, and emits an effect if it changed.
fn emit(record: &mut Record, key: &Key, finding: &Finding, facts: &Facts, now: &Name, work: &mut Work) {
    let status = build(record, finding, facts, now);
    // A change of the inputs alone is not written: it goes with the next change.
    record.status.ready_inputs = status.ready_inputs;
    let last = &record.status;
    // The number of pending changes is written with other changes, and when it becomes 0.
    let uncounted = |status: &Status| Status { pending_changes: None, ..status.clone() };
    let only_counted =
        || status.pending_changes.is_some_and(|count| count > 0) && uncounted(&status) == uncounted(last);
    if status == *last || only_counted() {
        return;
    }
    let previous = last.phase;
    announce(key, last, &status, work);
    record.status = status;
    if previous == Some(finding.phase) {
        work.effects.push(Effect::Status { key: key.clone(), status: Box::new(record.status.clone()) });
    } else {
        record.status.transitions += 1;
        let status = Box::new(record.status.clone());
        work.effects.push(Effect::Transition { key: key.clone(), previous, status });
    }
}

/// Announces that packets are lost, or pass again.
fn announce(key: &Key, last: &Status, now: &Status, work: &mut Work) {
    let of = |status: &Status| {
        let verified = status.conditions.iter().find(|one| one.kind == ConditionType::Verified);
        verified.filter(|one| !one.reason.is_unknown()).map(|one| (one.holds, one.message.clone()))
    };
    let (was, is) = (of(last), of(now));
    let kind = match (&was, &is) {
        (Some((false, _)), Some((true, _))) => NoticeKind::PacketsPass,
        (Some((true, _)) | None, Some((false, _))) => NoticeKind::PacketsLost,
        _ => return,
    };
    let messages = is.into_iter().map(|(_, message)| message.into()).collect();
    work.effects.push(Effect::Notice { about: About::Object(key.clone()), kind, messages });
}

/// The status that an object has now.
fn build(
    record: &Record,
    Finding { phase, message, evaluation, .. }: &Finding,
    facts: &Facts,
    now: &Name,
) -> Status {
    let last = &record.status;
    let deleting = record.deleting;
    let device = facts.device.as_ref();
    // Until a new VLAN is confirmed, the former one is granted: the next leader has to know its owner.
    let granted_id = facts
        .former_vlan
        .filter(|_| *phase != Phase::Ready)
        .or_else(|| record.effective.as_deref().and_then(vid_of))
        .or(last.granted_id.filter(|_| deleting));
    Status {
        phase: Some(*phase),
        message: message.clone(),
        observed_generation: record.generation,
        conditions: conditions(record, *phase, message, evaluation, now),
        transitions: last.transitions,
        granted_id,
        placement: facts.placement.clone().filter(|_| !matches!(phase, Phase::Ready | Phase::Deleted)),
        realized: record.effective.clone().or_else(|| last.realized.clone().filter(|_| deleting)),
        address_pool: facts.address_pool.clone(),
        connection_points: facts.connection_points.clone(),
        switch_ports: facts.switch_ports.clone(),
        cluster: device.map(|device| device.cluster.clone()),
        device: device.and_then(|device| device.info.clone()),
        last_transaction: device
            .and_then(|device| device.last_transaction.clone())
            .or_else(|| last.last_transaction.clone()),
        port_memory: device.map_or(&last.port_memory, |device| &device.port_memory).clone(),
        pending_changes: device.map(|device| device.pending_changes),
        pods: facts.pods.clone(),
        nodes: facts.nodes.clone(),
        node_addresses: facts.node_addresses.clone(),
        fixed_addresses: facts.fixed_addresses.clone(),
        workers: facts.workers.clone(),
        sessions: facts.sessions.clone(),
        speaker_peers: facts.speaker_peers.clone(),
        leased: facts.leased,
        verification: facts.verification.clone(),
        ready_inputs: evaluation.inputs.filter(|_| *phase == Phase::Ready),
    }
}

/// The conditions that an object has now.
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
        Phase::Error => evaluation.cause.unwrap_or_default().into(),
        Phase::Terminating => ConditionReason::Terminating,
        Phase::Deleted => ConditionReason::Deleted,
    };
    let mut all = evaluation.conditions.clone();
    for (kind, hindered) in &evaluation.parts {
        all.push(part_condition(*kind, hindered.clone().filter(|_| phase != Phase::Ready)));
    }
    all.push(ConditionState::new(ConditionType::Ready, phase == Phase::Ready, reason, message));
    let unreachable = evaluation.unreachable.as_ref().map(|message| (ConditionReason::Unreachable, message));
    let verified = verified(last, record.generation, phase, evaluation);
    let failed = verified.as_ref().filter(|verified| verified.fails()).map(|verified| &verified.state);
    let lost = failed.map(|state| (state.reason, &state.message));
    let drifted = || Some((ConditionReason::Drift, evaluation.drifted.as_ref()?));
    let degraded = unreachable.or(lost).or_else(drifted);
    if let Some((reason, message)) = degraded.filter(|_| phase == Phase::Ready) {
        all.push(ConditionState::new(ConditionType::Degraded, true, reason, message.as_str()));
    }
    all.extend(verified.map(|verified| verified.state));
    let conditions = all.into_iter().map(|ConditionState { kind, holds, reason, message }| {
        let is_same = |condition: &&Condition| {
            condition.kind == kind
                && condition.holds == holds
                && condition.reason.is_unknown() == reason.is_unknown()
        };
        let before = last.conditions.iter().find(is_same);
        let since = before.map_or_else(|| now.clone(), |condition| condition.since.clone());
        Condition { kind, holds, reason, message, since }
    });
    let stalled = (phase == Phase::Error)
        .then(|| stalled::condition(record, reason, message, evaluation.permanent, now));
    let mut conditions: Vec<Condition> = conditions.chain(stalled).collect();
    conditions.sort_by_key(|condition| condition.kind);
    conditions
}

/// What probes tell of an object. A verdict on a ready object stays until the next one, unless it is on an earlier path.
fn verified(last: &Status, generation: i64, phase: Phase, evaluation: &Evaluation) -> Option<Verified> {
    let now = evaluation.verified.as_ref()?;
    let was_ready = last.phase == Some(Phase::Ready) && last.observed_generation == generation;
    let stays = now.awaits == Some(Awaited::Answers) && was_ready && phase == Phase::Ready;
    let mut before = last.conditions.iter().filter(|_| stays);
    let before = before.find(|one| one.kind == ConditionType::Verified && !one.reason.is_unknown());
    let before = before.map(|before| Verified::new(before.holds, before.reason, &*before.message));
    Some(before.unwrap_or_else(|| now.clone()))
}

/// The condition of a part of a path. `hindered`: whether it was refused, and the message.
pub(super) fn part_condition(kind: ConditionType, hindered: Option<(bool, String)>) -> ConditionState {
    match hindered {
        None => ConditionState::new(kind, true, ConditionReason::Confirmed, ""),
        Some((true, message)) => ConditionState::new(kind, false, ConditionReason::Refused, message),
        Some((false, message)) => ConditionState::new(kind, false, ConditionReason::Waiting, message),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::store::fixture::{key, store};

    #[test]
    fn new_object_is_pending_first_and_an_unchanged_status_is_not_written() {
        let network = key(Kind::PhysicalNetwork, "dc");
        let mut store = store([(Kind::PhysicalNetwork, "dc", json!({}))]);
        let record = store.get_mut(&network).expect("it is there");
        let ready = Finding::new(Phase::Ready, "", Evaluation::default());
        let (facts, mut work) = (Facts::default(), Work::default());
        for effects in [2, 0] {
            write(record, &network, &ready, &facts, &"2026-01-02T03:04:05Z".into(), &mut work);
            assert_eq!(std::mem::take(&mut work.effects).len(), effects);
        }
        assert_eq!((record.status.phase, record.status.transitions), (Some(Phase::Ready), 2));
        let gone = Finding::new(Phase::Deleted, "", Evaluation::default());
        write(record, &network, &gone, &facts, &"2026-01-02T03:04:06Z".into(), &mut work);
        let kinds = work.effects.iter().map(|effect| match effect {
            Effect::Transition { status, .. } => status.phase,
            _ => None,
        });
        assert_eq!(kinds.collect::<Vec<_>>(), [Some(Phase::Terminating), Some(Phase::Deleted), None]);
        assert!(matches!(work.effects[2], Effect::RemoveFinalizer(_)));
    }
}
