//! Converts the core's status of an object to that of its custom resource. Pure.

mod read;

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use eno_core::kinds::Spec;
use eno_core::{
    Condition, FixedAddress, Kind, LastTransaction, LinkEntry, Name, NodeBlocks, PlacementStatus, PodEntry,
    PortMemory, Session, Sessions, Status, Verification, VerificationResult, Worker,
};
use eno_nbi_crds as crds;
use eno_schemas::{DeviceInfo, GatewayAnswer, Phase, PortBefore, Text, VlanId};
use serde_json::{Value, json};

pub use read::{is_observed, read};

use crate::status::bounds::first_entries;

/// [`Status::ready_inputs`], in hexadecimal.
const READY_INPUTS: &str = "readyInputs";
/// [`Status::cluster`].
pub const CLUSTER_ID: &str = "clusterID";
/// Column with the CNI plugins of a ConnectionPoint.
const CNIS: &str = "cnis";
/// Column with the interfaces of a configuration.
const LINKS: &str = "links";
/// Maximum confirmed ports of a network.
const MAX_CONFIRMED_PORTS: usize = 4096;
/// Maximum bytes of the message of an object, and of a condition.
const MAX_MESSAGE_LEN: usize = 8192;
/// Maximum bytes of a pod's message.
const MAX_POD_MESSAGE_LEN: usize = 4000;
/// Maximum length of the reason in a result of a probe.
const MAX_REASON_LEN: usize = 1024;
/// Maximum capabilities of a device.
const MAX_CAPABILITIES: usize = 256;
/// Maximum names of ConnectionPoints and of switch ports.
const MAX_NAMES: usize = 1024;
/// Maximum pods, and nodes of a bridge.
const MAX_ENTRIES: usize = 10_000;
/// Maximum bytes of a list that nothing is decided by. With 1 MiB of leases an object stays below the 1.5 MiB that the
/// API server takes.
const MAX_LIST_BYTES: usize = 192 * 1024;
/// Maximum bytes of an interface in the list of a pod.
const MAX_LINK_LEN: usize = 2000;
/// Maximum interfaces in the entry of a pod; its PodNetwork has more.
const MAX_LINKS: usize = 256;
/// Maximum addresses in an entry of leases. A link with more, while some of them are taken back, has several entries.
const MAX_LEASED: usize = 16;
/// Maximum names that a column shows.
const MAX_COLUMN_NAMES: usize = 16;

/// The `status` of an object. Empty fields are omitted, so the result is also the body of a server-side apply.
pub fn to_json(kind: Kind, status: &Status) -> Value {
    let json = if kind.is_for_pods() {
        // They have phases of their own.
        serde_json::to_value(resource_status::<crds::ConfigPhase>(kind, status))
    } else {
        serde_json::to_value(resource_status::<Phase>(kind, status))
    };
    // All serialised types have string keys.
    json.unwrap_or_default()
}

/// The status of the custom resource.
fn resource_status<P: From<Phase>>(kind: Kind, status: &Status) -> crds::Status<P> {
    let mut left_out = BTreeMap::new();
    let names = status.connection_points.iter().map(|name| &**name);
    let points = first_entries(names, MAX_NAMES, MAX_LIST_BYTES);
    let ports = first_entries(status.switch_ports.iter(), MAX_NAMES, MAX_LIST_BYTES);
    let peers = first_entries(status.speaker_peers.iter(), MAX_NAMES, MAX_LIST_BYTES);
    let bridges = first_entries(bridges(status).into_iter(), MAX_ENTRIES, MAX_LIST_BYTES);
    let (device, more) = bounded(status.device.clone().unwrap_or_default());
    let capabilities = (device.capabilities, more);
    let (configs, network_configs) = match kind {
        Kind::PodNetworkConfig => ((Vec::new(), 0), configurations(kind, &status.pods)),
        _ => (configurations(kind, &status.pods), (Vec::new(), 0)),
    };
    let PortMemory { closed, before, leaving } = &status.port_memory;
    let (cnis, links, pods) = columns(status);
    let sessions = status.sessions.as_ref();
    if let Some(Sessions { listed, all, .. }) = sessions.filter(|one| one.all > one.listed.len()) {
        left_out.insert("sessions".to_owned(), number(all - listed.len()));
    }
    crds::Status {
        phase: status.phase.map(P::from),
        message: (!status.message.is_empty()).then(|| message(&status.message)),
        observed_generation: Some(status.observed_generation),
        conditions: status.conditions.iter().map(|one| condition(one, status.observed_generation)).collect(),
        transitions: Some(number(status.transitions)),
        realized: status.realized.as_deref().and_then(|spec| serde_json::to_value(spec).ok()),
        ready_inputs: status.ready_inputs.map(|inputs| format!("{inputs:016x}")),
        cnis,
        granted_id: status.granted_id.map(VlanId::get),
        placement: status.placement.as_ref().map(placement_of),
        address_pool: status.address_pool.as_deref().map(str::to_owned),
        connection_points: texts(shown(points, "connectionPoints", &mut left_out)),
        switch_ports: texts(shown(ports, "switchPorts", &mut left_out)),
        verification: status.verification.as_ref().map(verification),
        cluster_id: status.cluster.as_deref().map(str::to_owned),
        dialect: device.dialect.map(String::from),
        capabilities: texts(shown(capabilities, "capabilities", &mut left_out)),
        host_key_fingerprint: device.host_key_fingerprint.map(String::from),
        model: device.model.map(String::from),
        rollback: device.rollback.and_then(|rollback| Some(json!(rollback).as_str()?.to_owned())),
        audit_interval: device.audit_interval.map(i64::from),
        change_notifications: device.change_notifications,
        last_transaction: status.last_transaction.as_ref().map(last_transaction),
        closed_ports: texts(closed),
        leaving_ports: texts(leaving),
        ports_before: before.iter().map(port_before).collect(),
        pending_changes: status.pending_changes.map(i64::from),
        pod_configurations: shown(configs, "podConfigurations", &mut left_out),
        pod_network_configs: shown(network_configs, "PodNetworkConfigs", &mut left_out),
        bridge_configs: shown(bridges, "bridgeConfigs", &mut left_out),
        addresses: status.pods.iter().flat_map(leases).collect(),
        node_addresses: status.node_addresses.iter().map(node_blocks).collect(),
        fixed_addresses: status.fixed_addresses.iter().map(fixed_address).collect(),
        workers: status.workers.iter().map(worker).collect(),
        sessions: sessions.iter().flat_map(|sessions| &sessions.listed).map(session).collect(),
        all_sessions: sessions.map(|sessions| number(sessions.all)),
        established_sessions: sessions.map(|sessions| number(sessions.established)),
        speaker_peers: texts(shown(peers, "speakerPeers", &mut left_out)),
        left_out,
        links,
        pods,
    }
}

fn worker(worker: &Worker) -> crds::BgpWorker {
    crds::BgpWorker { node: worker.node.to_string(), addresses: texts(&worker.addresses) }
}

fn session(session: &Session) -> crds::BgpSession {
    crds::BgpSession {
        node: session.node.to_string(),
        device: session.device.to_string(),
        address: session.address.to_string(),
        state: session.state.and_then(|state| Some(json!(state).as_str()?.to_owned())),
        since: session.since.as_ref().map(ToString::to_string),
        last_error: session.last_error.as_deref().map(|text| Text::at_most(text, MAX_REASON_LEN).to_string()),
    }
}

/// The entries of a list that are shown. Notes how many others it has.
fn shown<T>((shown, others): (Vec<T>, usize), list: &str, left_out: &mut BTreeMap<String, i64>) -> Vec<T> {
    if others > 0 {
        left_out.insert(list.to_owned(), number(others));
    }
    shown
}

fn condition(condition: &Condition, observed_generation: i64) -> crds::Condition {
    crds::Condition {
        type_: condition.kind.as_ref().to_owned(),
        status: match condition.holds {
            _ if condition.reason.is_unknown() => "Unknown",
            true => "True",
            false => "False",
        }
        .to_owned(),
        reason: condition.reason.as_ref().to_owned(),
        message: message(&condition.message),
        last_transition_time: condition.since.to_string(),
        observed_generation: Some(observed_generation),
    }
}

fn texts<T: ToString>(items: impl IntoIterator<Item = T>) -> Vec<String> {
    items.into_iter().map(|item| item.to_string()).collect()
}

/// The number, at most the largest that a field holds.
fn number(count: impl TryInto<i64>) -> i64 {
    count.try_into().unwrap_or(i64::MAX)
}

/// True of a status without a field that this engine writes although the object did not change: the text of a column,
/// or the generation of conditions.
pub fn is_outdated(kind: Kind, status: &Value) -> bool {
    let column = match kind {
        Kind::ConnectionPoint => Some(CNIS),
        Kind::PodConfig | Kind::PodNetworkConfig => Some(LINKS),
        _ => None,
    };
    let realized = status.get("realized").is_some();
    let lacks = |column| realized && status.get(column).is_none();
    let mut conditions = status["conditions"].as_array().into_iter().flatten();
    column.is_some_and(lacks)
        || conditions
            .any(|condition| !is_beside_core(condition) && condition.get("observedGeneration").is_none())
}

/// True of a condition of another field manager.
fn is_beside_core(condition: &Value) -> bool {
    condition["type"].as_str().is_some_and(|kind| crds::CONDITIONS_BESIDE_CORE.contains(&kind))
}

/// True of a status that says that NATS did not store a change of phase.
pub fn is_unrecorded(status: &Value) -> bool {
    let mut conditions = status["conditions"].as_array().into_iter().flatten();
    conditions.any(|condition| condition["type"] == crds::RECORDED)
}

/// Texts for kubectl's columns `cnis`, `links` and `pods`. A column shows one text; of a list it would show only the
/// first element.
fn columns(status: &Status) -> (Option<String>, Option<String>, Option<String>) {
    match status.realized.as_deref() {
        Some(Spec::ConnectionPoint(spec)) => {
            (joined(spec.cnis.iter().map(|cni| cni.plugin.name().as_str())), None, None)
        }
        Some(Spec::PodLinks(spec)) => {
            let links = joined(spec.links.iter().map(|link| &*link.name));
            (None, links, joined(status.pods.iter().map(|pod| &*pod.name)))
        }
        _ => (None, None, None),
    }
}

/// The names joined, at most [`MAX_COLUMN_NAMES`]; `None`: there are none.
pub fn joined<N: std::fmt::Display>(names: impl IntoIterator<Item = N>) -> Option<String> {
    let mut names = names.into_iter();
    let shown: Vec<String> = names.by_ref().take(MAX_COLUMN_NAMES).map(|name| name.to_string()).collect();
    let more = names.count();
    let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
    (!shown.is_empty()).then(|| format!("{}{rest}", shown.join(", ")))
}

/// A message within the bound of its field.
fn message(text: &str) -> String {
    Text::at_most(text, MAX_MESSAGE_LEN).into()
}

/// What a device said of itself, within the bounds of the fields, and how many capabilities that leaves out.
/// Capabilities are a set.
fn bounded(device: DeviceInfo) -> (DeviceInfo, usize) {
    let cut = |text: Text, max| Text::at_most(&text, max);
    let capabilities: BTreeSet<Text> = device.capabilities.iter().map(|one| cut(one.clone(), 256)).collect();
    let is_bounded =
        capabilities.len() == device.capabilities.len() && capabilities.len() <= MAX_CAPABILITIES;
    let left_out = capabilities.len().saturating_sub(MAX_CAPABILITIES);
    let device = DeviceInfo {
        dialect: device.dialect.map(|text| cut(text, 63)),
        capabilities: if is_bounded {
            device.capabilities.into_iter().map(|one| cut(one, 256)).collect()
        } else {
            capabilities.into_iter().take(MAX_CAPABILITIES).collect()
        },
        host_key_fingerprint: device.host_key_fingerprint.map(|text| cut(text, 256)),
        model: device.model.map(|text| cut(text, 1024)),
        ..device
    };
    (device, left_out)
}

fn port_before((name, before): (&Name, &PortBefore)) -> crds::PortBefore {
    crds::PortBefore {
        name: name.to_string(),
        trunk: before.trunk,
        settings: before.settings.clone(),
        vlans: (!before.vlans.is_empty()).then(|| before.vlans.to_string()),
    }
}

fn placement_of(placement: &PlacementStatus) -> crds::Placement {
    let confirmed = placement.confirmed.as_ref();
    let ports = confirmed.into_iter().flat_map(|confirmed| &confirmed.ports);
    let ports: Vec<String> = ports
        .flat_map(|(device, ports)| ports.iter().map(move |port| format!("{device}:{port}")))
        .take(MAX_CONFIRMED_PORTS + 1)
        .collect();
    crds::Placement {
        confirmed_id: confirmed.map(|confirmed| confirmed.vlan.get()),
        // A part of them would be wrong: the reports of switches tell.
        confirmed_ports: if ports.len() > MAX_CONFIRMED_PORTS { Vec::new() } else { ports },
        desired_id: placement.desired.map(VlanId::get),
        rejected_by: placement.rejected_by.as_ref().map(|(device, _)| device.to_string()),
        retryable: placement.rejected_by.as_ref().map(|(_, retryable)| *retryable),
    }
}

fn verification(verification: &Verification) -> crds::Verification {
    let result = |result: &VerificationResult| crds::VerificationResult {
        from: result.from.to_string(),
        to: result.to.as_deref().map(str::to_owned),
        vlan: result.vlan.get(),
        other: result.other.map(VlanId::get),
        outcome: result.outcome,
        macs: texts(result.macs.iter().take(GatewayAnswer::MAX_MACS)),
        reason: result.reason.as_ref().map(|reason| Text::at_most(reason, MAX_REASON_LEN).into()),
    };
    crds::Verification {
        nonce: verification.nonce.to_string(),
        complete: true,
        results: verification.results.iter().map(result).collect(),
        left_out: Some(number(verification.left_out)).filter(|left_out| *left_out > 0),
    }
}

fn last_transaction(last: &LastTransaction) -> crds::LastTransaction {
    let LastTransaction { change, outcome } = last;
    crds::LastTransaction {
        id: change.transaction.clone(),
        at: change.at.clone(),
        took_ms: number(change.took_ms),
        added: change.added.into(),
        removed: change.removed.into(),
        outcome: *outcome,
    }
}

/// The pods that there is room for, and how many others there are. Without room for all, those that lack something come
/// first.
fn configurations(kind: Kind, pods: &[PodEntry]) -> (Vec<crds::PodConfiguration>, usize) {
    let of = |pods: &[&PodEntry]| {
        first_entries(pods.iter().map(|pod| configuration(kind, pod)), MAX_ENTRIES, MAX_LIST_BYTES)
    };
    let mut pods: Vec<&PodEntry> = pods.iter().collect();
    let (shown, left_out) = of(&pods);
    if left_out == 0 {
        return (shown, 0);
    }
    pods.sort_by_key(|pod| pod.problem.is_none());
    of(&pods)
}

fn configuration(kind: Kind, pod: &PodEntry) -> crds::PodConfiguration {
    let problem = pod.problem.as_ref().map(|problem| Text::at_most(problem, MAX_POD_MESSAGE_LEN).into());
    crds::PodConfiguration {
        pod_name: pod.name.to_string(),
        config_list: pod.links.iter().take(MAX_LINKS).map(|entry| link(kind, entry)).collect(),
        message: problem,
    }
}

/// An interface in the text format of the PodConfig and PodNetworkConfig documentation.
fn link(kind: Kind, entry: &LinkEntry) -> String {
    let LinkEntry { link, name, host_name, bridge, mtu, addresses, .. } = entry;
    // The name of a created interface contains the PID; an equal name is an existing interface.
    if kind == Kind::PodNetworkConfig && **link == *name {
        return format!("MTU: {mtu}");
    }
    let mut fields = vec![format!("podVethName:{name}")];
    if !addresses.is_empty() {
        let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
        fields.push(format!("podIPAddr:{}", addresses.join(",")));
    }
    fields.extend(host_name.as_ref().map(|host_name| format!("peerVethName:{host_name}")));
    fields.extend(bridge.as_ref().map(|bridge| format!("bridge:{bridge}")));
    Text::at_most(&format!("{{{}}}", fields.join(" ")), MAX_LINK_LEN).into()
}

/// The first entry of a pod has the name of an attachment's interface.
fn leases(pod: &PodEntry) -> impl Iterator<Item = crds::Lease> {
    let entries = pod.leases.iter().flat_map(|(link, addresses)| {
        let rest = addresses.chunks(MAX_LEASED).skip(1);
        let first = addresses.get(..addresses.len().min(MAX_LEASED)).unwrap_or_default();
        std::iter::once(first).chain(rest).map(move |addresses| (link, addresses))
    });
    let interfaces = pod.ifname.iter().cloned().map(Some).chain(std::iter::repeat(None));
    entries.zip(interfaces).map(|((link, addresses), interface)| crds::Lease {
        pod: pod.name.to_string(),
        uid: pod.uid.to_string(),
        link: link.to_string(),
        interface,
        addresses: addresses.iter().map(ToString::to_string).collect(),
    })
}

fn node_blocks(own: &NodeBlocks) -> crds::NodeBlocks {
    crds::NodeBlocks { node: own.node.to_string(), blocks: texts(&own.blocks) }
}

fn fixed_address(own: &FixedAddress) -> crds::FixedAddress {
    crds::FixedAddress {
        address: own.address.to_string(),
        namespace: own.namespace.to_string(),
        pod: own.pod.to_string(),
        node: own.node.to_string(),
    }
}

/// A bridge on each of its nodes; [`bridge_node`] parses the node.
fn bridges(status: &Status) -> Vec<String> {
    let bridge = match status.realized.as_deref() {
        Some(Spec::Bridge(spec)) => {
            let cidrs: Vec<String> = spec.cidrs.iter().map(ToString::to_string).collect();
            let cidrs = if cidrs.is_empty() { String::new() } else { format!(" cidr:{}", cidrs.join(",")) };
            format!(" bridge:{}{cidrs}", spec.name)
        }
        _ => String::new(),
    };
    status.nodes.iter().map(|node| format!("{{node:{node}{bridge}}}")).collect()
}

/// The node of an entry of `bridgeConfigs`.
fn bridge_node(text: &str) -> Option<&str> {
    let rest = text.strip_prefix("{node:")?;
    rest.split([' ', '}']).next().filter(|node| !node.is_empty())
}

/// Hash of the content of a status; statuses with the same hash need one write. It omits the number of transitions,
/// condition times and the inputs of a ready object, which change whenever an object leaves a phase and returns to it.
/// The outbox has them.
pub fn content(kind: Kind, status: &Status) -> u64 {
    content_of(to_json(kind, status))
}

/// The same hash of a status that the API server holds.
pub fn content_of(mut status: Value) -> u64 {
    if let Some(fields) = status.as_object_mut() {
        fields.remove("transitions");
        fields.remove(READY_INPUTS);
        if let Some(conditions) = fields.get_mut("conditions").and_then(Value::as_array_mut) {
            conditions.retain(|condition| !is_beside_core(condition));
            for condition in conditions.iter_mut().filter_map(Value::as_object_mut) {
                condition.remove("lastTransitionTime");
            }
            if conditions.is_empty() {
                fields.remove("conditions");
            }
        }
    }
    let mut hasher = DefaultHasher::new();
    // The map is sorted by field name.
    status.to_string().hash(&mut hasher);
    hasher.finish()
}

/// True for phases that often pass within moments: the outbox gets them at once, the status only if they last.
pub fn is_transient(phase: Option<Phase>) -> bool {
    matches!(phase, Some(Phase::Pending | Phase::Terminating))
}

/// The id of a transition, the same for each attempt to publish it.
pub fn transition_id(uid: &str, counter: u64) -> String {
    format!("{uid}-{counter}")
}

#[cfg(test)]
mod tests;
