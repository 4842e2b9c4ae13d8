//! Converts the core's status of an object to JSON. Pure.

mod read;

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use eno_core::kinds::Spec;
use eno_core::{Kind, LastTransaction, LinkEntry, Name, PlacementStatus, PodEntry, PortMemory, Status};
use eno_nbi_crds as crds;
use eno_schemas::{DeviceInfo, Phase, PortBefore, Text, VlanId};
use serde::Serialize;
use serde_json::{Map, Value, json};

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
/// Maximum addresses in an entry of leases. A link with more, while some of them are taken back, has several entries.
const MAX_LEASED: usize = 16;
/// The number of entries that lists leave out, by their names.
const LEFT_OUT: &str = "leftOut";
/// Maximum names that a column shows.
const MAX_COLUMN_NAMES: usize = 16;

/// The `status` of an object. Empty fields are omitted, so the result is also the body of a server-side apply.
pub fn to_json(kind: Kind, status: &Status) -> Value {
    let mut fields = Map::new();
    if let Some(phase) = status.phase {
        fields.insert("phase".into(), phase_text(kind, phase));
    }
    if !status.message.is_empty() {
        fields.insert("message".into(), message(&status.message).into());
    }
    fields.insert("observedGeneration".into(), status.observed_generation.into());
    if !status.conditions.is_empty() {
        let conditions = status.conditions.iter().map(|condition| {
            json!({
                "type": condition.kind.as_ref(),
                "status": if condition.holds { "True" } else { "False" },
                "reason": condition.reason.as_ref(),
                "message": message(&condition.message),
                "lastTransitionTime": &*condition.since,
                "observedGeneration": status.observed_generation,
            })
        });
        fields.insert("conditions".into(), conditions.collect());
    }
    fields.insert("transitions".into(), status.transitions.into());
    if let Some(id) = status.granted_id {
        fields.insert("grantedID".into(), id.get().into());
    }
    if let Some(placement) = &status.placement {
        put(&mut fields, "placement", &placement_of(placement));
    }
    if let Some(realized) = status.realized.as_deref() {
        put(&mut fields, "realized", realized);
    }
    if let Some(service) = &status.address_pool {
        fields.insert("addressPool".into(), (**service).into());
    }
    let points = status.connection_points.iter().map(|name| &**name);
    put_list(&mut fields, "connectionPoints", first_entries(points, MAX_NAMES, MAX_LIST_BYTES));
    let ports = status.switch_ports.iter();
    put_list(&mut fields, "switchPorts", first_entries(ports, MAX_NAMES, MAX_LIST_BYTES));
    if let Some(cluster) = &status.cluster {
        fields.insert(CLUSTER_ID.into(), (**cluster).into());
    }
    if let Some(device) = &status.device {
        let (device, left_out) = bounded(device.clone());
        if let Ok(Value::Object(device)) = serde_json::to_value(device) {
            fields.extend(device);
        }
        note_left_out(&mut fields, "capabilities", left_out);
    }
    if let Some(last) = &status.last_transaction {
        put(&mut fields, "lastTransaction", &last_transaction(last));
    }
    let PortMemory { closed, before, leaving } = &status.port_memory;
    for (field, ports) in [("closedPorts", closed), ("leavingPorts", leaving)] {
        if !ports.is_empty() {
            fields.insert(field.into(), ports.iter().map(|name| Value::from(&**name)).collect());
        }
    }
    if !before.is_empty() {
        put(&mut fields, "portsBefore", &before.iter().map(port_before).collect::<Vec<_>>());
    }
    if let Some(count) = status.pending_changes {
        fields.insert("pendingChanges".into(), count.into());
    }
    if !status.pods.is_empty() {
        let field = if kind == Kind::PodNetworkConfig { "PodNetworkConfigs" } else { "podConfigurations" };
        put_list(&mut fields, field, configurations(kind, &status.pods));
        let leases: Vec<_> = status.pods.iter().flat_map(leases).collect();
        if !leases.is_empty() {
            put(&mut fields, "addresses", &leases);
        }
    }
    if let Some(inputs) = status.ready_inputs {
        fields.insert(READY_INPUTS.into(), format!("{inputs:016x}").into());
    }
    let bridges = bridges(status);
    put_list(&mut fields, "bridgeConfigs", first_entries(bridges.iter(), MAX_ENTRIES, MAX_LIST_BYTES));
    for (field, names) in columns(status) {
        fields.insert(field.into(), names.into());
    }
    Value::Object(fields)
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

/// Texts for kubectl's columns. A column shows one text; of a list it would show only the first element.
fn columns(status: &Status) -> impl Iterator<Item = (&'static str, String)> {
    let (cnis, links, pods) = match status.realized.as_deref() {
        Some(Spec::ConnectionPoint(spec)) => {
            (joined(spec.cnis.iter().map(|cni| cni.plugin.name().as_str())), None, None)
        }
        Some(Spec::PodLinks(spec)) => {
            let links = joined(spec.links.iter().map(|link| &*link.name));
            (None, links, joined(status.pods.iter().map(|pod| &*pod.name)))
        }
        _ => (None, None, None),
    };
    [(CNIS, cnis), (LINKS, links), ("pods", pods)]
        .into_iter()
        .filter_map(|(field, names)| Some((field, names?)))
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

/// Adds a list to the fields, if it has entries, and how many entries it leaves out.
fn put_list<T: Serialize>(fields: &mut Map<String, Value>, name: &str, (shown, left_out): (Vec<T>, usize)) {
    if !shown.is_empty() {
        put(fields, name, &shown);
    }
    note_left_out(fields, name, left_out);
}

fn note_left_out(fields: &mut Map<String, Value>, name: &str, left_out: usize) {
    if left_out > 0 {
        fields.entry(LEFT_OUT).or_insert_with(|| json!({}))[name] = left_out.into();
    }
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

fn last_transaction(last: &LastTransaction) -> crds::LastTransaction {
    let LastTransaction { change, outcome } = last;
    crds::LastTransaction {
        id: change.transaction.clone(),
        at: change.at.clone(),
        took_ms: i64::try_from(change.took_ms).unwrap_or(i64::MAX),
        added: change.added.into(),
        removed: change.removed.into(),
        outcome: *outcome,
    }
}

fn put(fields: &mut Map<String, Value>, name: &str, value: &impl Serialize) {
    // All serialised types have string keys.
    if let Ok(value) = serde_json::to_value(value) {
        fields.insert(name.into(), value);
    }
}

/// The kinds for running pods have phase texts of their own.
fn phase_text(kind: Kind, phase: Phase) -> Value {
    match (kind, phase) {
        (Kind::Bridge | Kind::PodNetworkConfig | Kind::PodConfig, Phase::Pending) => "configuring".into(),
        (Kind::Bridge | Kind::PodNetworkConfig | Kind::PodConfig, Phase::Ready) => "configured".into(),
        _ => phase.to_string().into(),
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
        config_list: pod.links.iter().map(|entry| link(kind, entry)).collect(),
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
