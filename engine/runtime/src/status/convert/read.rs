//! Reads back a status that the engine wrote, at the first sight of an object.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use eno_core::kinds::Spec;
use eno_core::{
    Condition, Confirmed, FixedAddress, Kind, LastTransaction, Name, NodeBlocks, PlacementStatus, PodEntry,
    PortMemory, Session, Sessions, Status, Verification, VerificationResult, Worker,
};
use eno_nbi_crds as crds;
use eno_schemas::{BgpState, ChangeReport, DeviceInfo, Phase, PortBefore, Text, VlanId};
use ipnet::IpNet;
use serde::Deserialize as _;
use serde_json::Value;

use super::bridge_node;

/// True when an engine wrote the status; the API server sets a default.
pub fn is_observed(status: &Value) -> bool {
    status["observedGeneration"] != crds::UNOBSERVED
}

/// The highest counter of transitions that an engine can have reached. JSON has no larger integers (RFC 8259, section
/// 6), and the next counter has to fit the field of the resource.
const MAX_TRANSITIONS: u64 = (1 << 53) - 1;

/// Converts the status of an object of `kind`. An unreadable status, or one that no engine wrote, counts as absent.
/// Only the leased addresses of pods are read; drivers report the rest.
pub fn read(kind: Kind, value: &Value) -> Option<Status> {
    if !is_observed(value) {
        return None;
    }
    let status = if kind.is_for_pods() {
        crds::ConfigStatus::deserialize(value).ok().map(|source| of_resource(kind, source))
    } else {
        <crds::Status>::deserialize(value).ok().map(|source| of_resource(kind, source))
    };
    status.filter(|status| status.transitions <= MAX_TRANSITIONS)
}

fn of_resource<P: Into<Option<Phase>>>(kind: Kind, source: crds::Status<P>) -> Status {
    let device = DeviceInfo {
        dialect: source.dialect.map(Text::from),
        capabilities: source.capabilities.into_iter().map(Text::from).collect(),
        host_key_fingerprint: source.host_key_fingerprint.map(Text::from),
        model: source.model.map(Text::from),
        rollback: source.rollback.and_then(|text| serde_json::from_value(text.into()).ok()),
        audit_interval: source.audit_interval.and_then(|seconds| u32::try_from(seconds).ok()),
        change_notifications: source.change_notifications,
    };
    Status {
        phase: source.phase.and_then(P::into),
        message: source.message.unwrap_or_default(),
        observed_generation: source.observed_generation.unwrap_or_default(),
        conditions: conditions(source.conditions),
        transitions: count(source.transitions),
        granted_id: source.granted_id.and_then(|id| VlanId::new(id).ok()),
        placement: source.placement.map(placement),
        realized: realized(kind, source.realized),
        address_pool: source.address_pool.map(Name::from),
        verification: source.verification.and_then(verification),
        cluster: source.cluster_id.map(Name::from),
        connection_points: source.connection_points.into_iter().map(Name::from).collect(),
        switch_ports: source.switch_ports,
        device: (device != DeviceInfo::default()).then_some(device),
        last_transaction: source.last_transaction.map(last_transaction),
        port_memory: port_memory(source.closed_ports, source.ports_before, source.leaving_ports),
        pending_changes: source.pending_changes.and_then(|count| u32::try_from(count).ok()),
        pods: pods(&source.addresses),
        nodes: source.bridge_configs.iter().filter_map(|text| bridge_node(text)).map(Name::from).collect(),
        node_addresses: source.node_addresses.into_iter().map(node_blocks).collect(),
        fixed_addresses: source.fixed_addresses.into_iter().filter_map(fixed_address).collect(),
        workers: source.workers.into_iter().map(worker).collect(),
        sessions: source.all_sessions.map(|all| sessions(all, source.established_sessions, source.sessions)),
        speaker_peers: source.speaker_peers,
        leased: 0,
        ready_inputs: inputs(source.ready_inputs),
    }
}

fn node_blocks(source: crds::NodeBlocks) -> NodeBlocks {
    let blocks = source.blocks.iter().filter_map(|block| block.parse::<IpNet>().ok());
    NodeBlocks { node: source.node.into(), blocks: blocks.map(|block| block.trunc()).collect() }
}

fn worker(source: crds::BgpWorker) -> Worker {
    let addresses = source.addresses.iter().filter_map(|address| address.parse().ok());
    Worker { node: source.node.into(), addresses: addresses.collect() }
}

fn sessions(all: i64, established: Option<i64>, listed: Vec<crds::BgpSession>) -> Sessions {
    let count = |count: i64| usize::try_from(count).unwrap_or_default();
    let session = |source: crds::BgpSession| {
        let state: Option<BgpState> =
            source.state.and_then(|state| serde_json::from_value(state.into()).ok());
        Some(Session {
            is_established: state == Some(BgpState::Established),
            node: source.node.into(),
            device: source.device.into(),
            address: source.address.parse().ok()?,
            state,
            since: source.since.map(Text::from),
            last_error: source.last_error,
        })
    };
    Sessions {
        listed: listed.into_iter().filter_map(session).collect(),
        all: count(all),
        established: established.map(count).unwrap_or_default(),
    }
}

fn fixed_address(source: crds::FixedAddress) -> Option<FixedAddress> {
    Some(FixedAddress {
        address: source.address.parse().ok()?,
        namespace: source.namespace.into(),
        pod: source.pod.into(),
        node: source.node.into(),
    })
}

fn port_memory(closed: Vec<String>, before: Vec<crds::PortBefore>, leaving: Vec<String>) -> PortMemory {
    let before = before.into_iter().map(|source| {
        let vlans = source.vlans.and_then(|vlans| vlans.parse().ok()).unwrap_or_default();
        (Name::from(source.name), PortBefore { trunk: source.trunk, settings: source.settings, vlans })
    });
    let names = |names: Vec<String>| names.into_iter().map(Name::from).collect();
    PortMemory { closed: names(closed), before: before.collect(), leaving: names(leaving) }
}

fn placement(source: crds::Placement) -> PlacementStatus {
    let vlan = |id: Option<u16>| id.and_then(|id| VlanId::new(id).ok());
    let mut ports: BTreeMap<Name, BTreeSet<Name>> = BTreeMap::new();
    for (device, port) in source.confirmed_ports.iter().filter_map(|port| port.split_once(':')) {
        ports.entry(device.into()).or_default().insert(port.into());
    }
    PlacementStatus {
        confirmed: vlan(source.confirmed_id).map(|vlan| Confirmed { vlan, ports }),
        desired: vlan(source.desired_id),
        rejected_by: source.rejected_by.map(|device| (device.into(), source.retryable.unwrap_or(true))),
    }
}

fn verification(source: crds::Verification) -> Option<Verification> {
    let result = |result: crds::VerificationResult| {
        Some(VerificationResult {
            from: result.from.into(),
            to: result.to.map(Name::from),
            vlan: VlanId::new(result.vlan).ok()?,
            other: result.other.map(VlanId::new).transpose().ok()?,
            outcome: result.outcome,
            macs: result.macs.into_iter().collect(),
            reason: result.reason.map(Text::from),
        })
    };
    Some(Verification {
        nonce: source.nonce.into(),
        results: source.results.into_iter().map(result).collect::<Option<_>>()?,
        left_out: source.left_out.and_then(|count| usize::try_from(count).ok()).unwrap_or_default(),
    })
}

fn last_transaction(source: crds::LastTransaction) -> LastTransaction {
    LastTransaction {
        change: ChangeReport {
            transaction: source.id,
            at: source.at,
            took_ms: count(Some(source.took_ms)),
            added: u32::try_from(source.added).unwrap_or_default(),
            removed: u32::try_from(source.removed).unwrap_or_default(),
        },
        outcome: source.outcome,
    }
}

fn conditions(source: Vec<crds::Condition>) -> Vec<Condition> {
    let own =
        source.into_iter().filter(|condition| !crds::CONDITIONS_BESIDE_CORE.contains(&&*condition.type_));
    let conditions = own.filter_map(|condition| {
        Some(Condition {
            kind: condition.type_.parse().ok()?,
            holds: condition.status == "True",
            reason: condition.reason.parse().ok()?,
            message: condition.message,
            since: condition.last_transition_time.into(),
        })
    });
    conditions.collect()
}

fn count(source: Option<i64>) -> u64 {
    source.and_then(|count| u64::try_from(count).ok()).unwrap_or_default()
}

fn realized(kind: Kind, source: Option<Value>) -> Option<Arc<Spec>> {
    source.and_then(|value| Spec::from_json(kind, value).ok()).map(Arc::new)
}

fn inputs(source: Option<String>) -> Option<u64> {
    source.and_then(|text| u64::from_str_radix(&text, 16).ok())
}

/// The pods with leased addresses; the leases of a pod are adjacent.
fn pods(leases: &[crds::Lease]) -> Vec<PodEntry> {
    let mut pods: Vec<PodEntry> = Vec::new();
    for lease in leases {
        let addresses = lease.addresses.iter().filter_map(|address| address.parse::<IpNet>().ok());
        if pods.last().is_none_or(|pod| *pod.uid != *lease.uid) {
            pods.push(PodEntry {
                name: lease.pod.as_str().into(),
                uid: lease.uid.as_str().into(),
                leases: BTreeMap::new(),
                ifname: lease.interface.clone(),
                links: Vec::new(),
                problem: None,
            });
        }
        if let Some(pod) = pods.last_mut() {
            pod.leases.entry(lease.link.as_str().into()).or_default().extend(addresses);
        }
    }
    pods
}
