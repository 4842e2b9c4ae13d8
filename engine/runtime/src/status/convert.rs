//! Converts the core's status of an object to JSON. Pure.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use eno_core::spec::Spec;
use eno_core::{Kind, LastTransaction, LinkEntry, Name, PodEntry, PortMemory, Status};
use eno_nbi_crds as crds;
use eno_schemas::{Phase, PortBefore};
use serde::Serialize;
use serde_json::{Map, Value, json};

/// [`Status::ready_inputs`], in hexadecimal.
const READY_INPUTS: &str = "readyInputs";
/// [`Status::cluster`].
pub const CLUSTER_ID: &str = "clusterID";
/// Column with the CNI plugins of a ConnectionPoint.
const CNIS: &str = "cnis";
/// Column with the interfaces of a configuration.
const LINKS: &str = "links";
/// Maximum bytes of a pod's message.
const MAX_MESSAGE_LEN: usize = 4000;
/// Maximum names that a column shows.
const MAX_COLUMN_NAMES: usize = 16;

/// The `status` of an object. Empty fields are omitted, so the result is also the body of a server-side apply.
pub fn to_json(kind: Kind, status: &Status) -> Value {
    let mut fields = Map::new();
    if let Some(phase) = status.phase {
        fields.insert("phase".into(), phase_text(kind, phase));
    }
    if !status.message.is_empty() {
        fields.insert("message".into(), status.message.as_str().into());
    }
    fields.insert("observedGeneration".into(), status.observed_generation.into());
    if !status.conditions.is_empty() {
        let conditions = status.conditions.iter().map(|condition| {
            json!({
                "type": condition.kind.as_ref(),
                "status": if condition.holds { "True" } else { "False" },
                "reason": condition.reason.as_ref(),
                "message": condition.message,
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
    if let Some(realized) = status.realized.as_deref() {
        put(&mut fields, "realized", realized);
    }
    if !status.connection_points.is_empty() {
        let names = status.connection_points.iter().map(|name| Value::from(&**name));
        fields.insert("connectionPoints".into(), names.collect());
    }
    if !status.switch_ports.is_empty() {
        put(&mut fields, "switchPorts", &status.switch_ports);
    }
    if let Some(cluster) = &status.cluster {
        fields.insert(CLUSTER_ID.into(), (**cluster).into());
    }
    if let Some(device) = &status.device
        && let Ok(Value::Object(device)) = serde_json::to_value(device)
    {
        fields.extend(device);
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
        let pods: Vec<_> = status.pods.iter().map(|pod| configuration(kind, pod)).collect();
        let field = if kind == Kind::PodNetworkConfig { "PodNetworkConfigs" } else { "podConfigurations" };
        put(&mut fields, field, &pods);
        let leases: Vec<_> = status.pods.iter().flat_map(leases).collect();
        if !leases.is_empty() {
            put(&mut fields, "addresses", &leases);
        }
    }
    if let Some(inputs) = status.ready_inputs {
        fields.insert(READY_INPUTS.into(), format!("{inputs:016x}").into());
    }
    if !status.nodes.is_empty() {
        put(&mut fields, "bridgeConfigs", &bridges(status));
    }
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
        || conditions.any(|condition| {
            condition["type"] != crds::CALLBACK_DELIVERED && condition.get("observedGeneration").is_none()
        })
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

fn port_before((name, before): (&Name, &PortBefore)) -> crds::PortBefore {
    crds::PortBefore {
        name: name.to_string(),
        trunk: before.trunk,
        settings: before.settings.clone(),
        vlans: (!before.vlans.is_empty()).then(|| before.vlans.to_string()),
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

fn configuration(kind: Kind, pod: &PodEntry) -> crds::PodConfiguration {
    let problem = pod.problem.as_ref().map(|problem| {
        let end = problem.floor_char_boundary(MAX_MESSAGE_LEN);
        if end < problem.len() { format!("{}…", &problem[..end]) } else { problem.clone() }
    });
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
    format!("{{{}}}", fields.join(" "))
}

fn leases(pod: &PodEntry) -> impl Iterator<Item = crds::Lease> {
    pod.leases.iter().map(|(link, addresses)| crds::Lease {
        pod: pod.name.to_string(),
        uid: pod.uid.to_string(),
        link: link.to_string(),
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
pub fn bridge_node(text: &str) -> Option<&str> {
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
            // The callback task owns this condition.
            conditions.retain(|condition| condition["type"] != crds::CALLBACK_DELIVERED);
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
mod tests {
    use std::sync::Arc;

    use eno_core::spec::{BridgeSpec, PodLinksSpec, ServiceSpec};
    use eno_core::{Condition, ConditionReason, ConditionType, Name};
    use eno_schemas::{ChangeOutcome, ChangeReport, DeviceInfo, Rollback, VlanId};

    use super::*;

    fn full() -> Status {
        let before = PortBefore {
            trunk: true,
            settings: Some([("mode".into(), "TRUNK".into())].into()),
            vlans: "3005".parse().unwrap(),
        };
        let vid = VlanId::new(10).unwrap();
        Status {
            phase: Some(Phase::Ready),
            message: "all hops confirmed".into(),
            observed_generation: 3,
            conditions: vec![Condition {
                kind: ConditionType::Ready,
                holds: true,
                reason: ConditionReason::Confirmed,
                message: String::new(),
                since: "2026-01-02T03:04:05Z".into(),
            }],
            transitions: 4,
            granted_id: Some(vid),
            realized: Some(Arc::new(Spec::Service(ServiceSpec {
                vid,
                subnets: vec!["sn".into()],
                physical_networks: vec![],
                namespaces: None,
            }))),
            connection_points: vec!["cp".into()],
            switch_ports: vec!["leaf1:eth1/0:2".into()],
            cluster: Some("lab".into()),
            device: Some(DeviceInfo {
                dialect: Some("openconfig".into()),
                model: Some("x".into()),
                rollback: Some(Rollback::Persistent),
                audit_interval: Some(60),
                change_notifications: Some(false),
                ..DeviceInfo::default()
            }),
            last_transaction: Some(LastTransaction {
                change: ChangeReport {
                    transaction: Some("3-1".into()),
                    at: "2026-01-02T03:04:05Z".into(),
                    took_ms: 12,
                    added: 3,
                    removed: 1,
                },
                outcome: ChangeOutcome::RolledBack,
            }),
            port_memory: PortMemory {
                closed: vec!["Ethernet1".into()],
                leaving: vec!["ae0".into()],
                before: [("Ethernet2".into(), before)].into(),
            },
            pending_changes: Some(0),
            ready_inputs: Some(0x2a),
            ..Status::default()
        }
    }

    #[test]
    fn written_status_is_read_back() {
        let json = to_json(Kind::L2Service, &full());
        assert_eq!(crate::watch::ingest::status(Kind::L2Service, &json), Some(full()));
        assert_eq!((&json["grantedID"], &json["clusterID"]), (&json!(10), &json!("lab")));
        assert_eq!(
            (&json["dialect"], &json["readyInputs"]),
            (&json!("openconfig"), &json!("000000000000002a"))
        );
        assert_eq!((&json["rollback"], &json["pendingChanges"]), (&json!("persistent"), &json!(0)));
        assert_eq!((&json["auditInterval"], &json["changeNotifications"]), (&json!(60), &json!(false)));
        assert_eq!(json["lastTransaction"]["outcome"], "rolled-back");
        assert_eq!((&json["closedPorts"], &json["leavingPorts"]), (&json!(["Ethernet1"]), &json!(["ae0"])));
        assert_eq!(
            json["portsBefore"],
            json!([{ "name": "Ethernet2", "trunk": true, "settings": { "mode": "TRUNK" }, "vlans": "3005" }])
        );
        assert_eq!(json["conditions"][0]["observedGeneration"], 3);
        let empty = to_json(Kind::L2Service, &Status::default());
        assert_eq!(empty, json!({ "observedGeneration": 0, "transitions": 0 }));
    }

    #[test]
    fn default_status_of_api_server_counts_as_none() {
        let mut status = json!({ "observedGeneration": crds::UNOBSERVED });
        for kind in [Kind::L2Service, Kind::PodConfig] {
            assert_eq!(crate::watch::ingest::status(kind, &status), None);
        }
        // The callback task may write its condition first.
        status["conditions"] = json!([{ "type": "CallbackDelivered", "status": "False" }]);
        assert_eq!(crate::watch::ingest::status(Kind::L2Service, &status), None);
        assert!(crate::watch::ingest::status(Kind::L2Service, &json!({ "observedGeneration": 1 })).is_some());
    }

    #[test]
    fn content_hash_ignores_counters_and_times() {
        let content = |status: &Status| content(Kind::L2Service, status);
        let mut later = full();
        later.transitions = 6;
        later.ready_inputs = None;
        later.conditions[0].since = "2026-01-02T03:04:06Z".into();
        assert_eq!(content(&full()), content(&later));
        later.message = "other".into();
        assert_ne!(content(&full()), content(&later));
        // The condition of the callback task is no content.
        let mut with_callbacks = to_json(Kind::L2Service, &full());
        let conditions = with_callbacks["conditions"].as_array_mut().unwrap();
        conditions.push(json!({ "type": "CallbackDelivered", "status": "False" }));
        assert_eq!(content_of(with_callbacks), content(&full()));
    }

    fn pods() -> Status {
        let entry = |link: &str, addresses: &[&str]| LinkEntry {
            link: link.into(),
            name: format!("{link}2841804"),
            host_name: Some(format!("h{link}2841804")),
            bridge: Some("pcbr0".into()),
            mac: Some("02:00:00:00:00:01".into()),
            mtu: 1500,
            addresses: addresses.iter().map(|address| address.parse().unwrap()).collect(),
        };
        let primary = LinkEntry { name: "eth0".into(), host_name: None, bridge: None, ..entry("eth0", &[]) };
        let leases =
            [(Name::from("pc0"), vec!["192.168.100.2/24".parse().unwrap(), "fd00::2/64".parse().unwrap()])];
        let running = PodEntry {
            name: "p".into(),
            uid: "u".into(),
            leases: leases.into(),
            links: vec![entry("pc0", &["192.168.100.2/24", "fd00::2/64"]), primary],
            problem: None,
        };
        let waiting = PodEntry {
            name: "q".into(),
            uid: "v".into(),
            leases: [].into(),
            links: vec![],
            problem: Some("no container runs".into()),
        };
        Status {
            phase: Some(Phase::Pending),
            realized: Some(Arc::new(Spec::PodLinks(PodLinksSpec::default()))),
            pods: vec![running, waiting],
            leased: 4,
            ..Status::default()
        }
    }

    #[test]
    fn pod_configurations_use_documented_text_format() {
        let json = to_json(Kind::PodNetworkConfig, &pods());
        assert_eq!(json["phase"], "configuring");
        assert_eq!((&json["pods"], json.get("links")), (&json!("p, q"), None));
        assert_eq!(
            json["PodNetworkConfigs"],
            json!([
                { "podName": "p", "configList": [
                    "{podVethName:pc02841804 podIPAddr:192.168.100.2/24,fd00::2/64 peerVethName:hpc02841804 bridge:pcbr0}",
                    "MTU: 1500",
                ] },
                { "podName": "q", "configList": [], "message": "no container runs" },
            ])
        );
        let lease =
            json!({ "pod": "p", "uid": "u", "link": "pc0", "addresses": ["192.168.100.2/24", "fd00::2/64"] });
        assert_eq!(json["addresses"], json!([lease]));
        let other = to_json(Kind::PodConfig, &Status { phase: Some(Phase::Ready), ..pods() });
        assert_eq!(other["phase"], "configured");
        assert_eq!(
            other["podConfigurations"][0]["configList"][0],
            json["PodNetworkConfigs"][0]["configList"][0]
        );
        let attachment = to_json(Kind::L2ServiceAttachment, &pods());
        assert_eq!((&attachment["phase"], &attachment["addresses"]), (&json!("pending"), &json["addresses"]));
    }

    #[test]
    fn column_lists_names_up_to_limit() {
        assert_eq!(joined::<&str>([]), None);
        assert_eq!(joined(["pc0"]).as_deref(), Some("pc0"));
        assert_eq!(joined(["pc0", "pc1"]).as_deref(), Some("pc0, pc1"));
        let text = joined(0..20).unwrap();
        assert!(text.starts_with("0, 1, ") && text.ends_with(", 15 and 4 more"), "{text}");
    }

    #[test]
    fn columns_show_realized_spec() {
        let realized = |kind, spec| {
            let spec = crate::watch::ingest::spec(kind, &spec).unwrap();
            to_json(kind, &Status { realized: Some(Arc::new(spec)), ..Status::default() })
        };
        let cni =
            |name, opts: &str| json!({ "Name": name, "SupportedInterfaceTypes": ["kernel"], "Opts": opts });
        let cnis = [cni("ovs", r#"{"BridgeName": "br"}"#), cni("macvlan", r#"{"Master": "eth1"}"#)];
        let point = realized(Kind::ConnectionPoint, json!({ "SupportedCnis": cnis }));
        assert_eq!(point["cnis"], "ovs, macvlan");
        let link = |name_field: &str, name| json!({ (name_field): name, "linkType": "dummy" });
        let links = [link("name", "a"), link("name", "b")];
        let config = realized(Kind::PodConfig, json!({ "networkAttachments": links }));
        assert_eq!((&config["links"], config.get("pods")), (&json!("a, b"), None));
        let networks = [link("networkName", "c"), link("networkName", "d")];
        let config = realized(Kind::PodNetworkConfig, json!({ "additionalNetworks": networks }));
        assert_eq!(config["links"], "c, d");
    }

    #[test]
    fn outdated_status_is_rewritten_once() {
        let cni = json!({ "Name": "bridge", "SupportedInterfaceTypes": ["kernel"], "Opts": r#"{"BridgeName": "br"}"# });
        let links = json!([{ "name": "a", "linkType": "dummy" }]);
        for (kind, spec, column) in [
            (Kind::ConnectionPoint, json!({ "SupportedCnis": [cni] }), Some(CNIS)),
            (Kind::PodConfig, json!({ "networkAttachments": links }), Some(LINKS)),
            (Kind::PodNetworkConfig, json!({ "eth0": { "mtu": 1400 } }), None),
            (Kind::NodePool, json!({ "NodeSelector": { "matchLabels": { "a": "b" } } }), None),
        ] {
            let realized = Some(Arc::new(crate::watch::ingest::spec(kind, &spec).unwrap()));
            let conditions = full().conditions;
            let phase = Some(Phase::Ready);
            let status = Status { phase, realized, conditions, observed_generation: 3, ..Status::default() };
            let now = to_json(kind, &status);
            let mut without_column = now.clone();
            let mut without_generation = now.clone();
            without_generation["conditions"][0].as_object_mut().unwrap().remove("observedGeneration");
            let mut former = vec![without_generation];
            if let Some(column) = column {
                assert!(without_column.as_object_mut().unwrap().remove(column).is_some());
                former.push(without_column);
            }
            for stored in former {
                assert!(is_outdated(kind, &stored), "{stored}");
                let written = to_json(kind, &crate::watch::ingest::status(kind, &stored).unwrap());
                assert_ne!(content_of(stored), content_of(written.clone()));
                assert_eq!(content_of(written), content_of(now.clone()));
            }
            // Reading and writing it gives the same content, so it is not written again.
            let read = crate::watch::ingest::status(kind, &now).unwrap();
            assert_eq!(content(kind, &read), content_of(now.clone()));
            let mut with_callbacks = now;
            let conditions = with_callbacks["conditions"].as_array_mut().unwrap();
            conditions.push(json!({ "type": "CallbackDelivered", "status": "False" }));
            assert_eq!(is_outdated(kind, &with_callbacks), kind == Kind::PodNetworkConfig);
        }
    }

    #[test]
    fn leases_are_read_back_without_interfaces() {
        for kind in [Kind::PodConfig, Kind::PodNetworkConfig, Kind::L2ServiceAttachment] {
            let status = Status { realized: None, ..pods() };
            let json = to_json(kind, &status);
            let read = crate::watch::ingest::status(kind, &json).unwrap();
            assert_eq!((read.phase, read.leased, read.pods.len()), (Some(Phase::Pending), 0, 1));
            let (then, now) = (&status.pods[0], &read.pods[0]);
            assert_eq!((&then.name, &then.uid, &then.leases), (&now.name, &now.uid, &now.leases));
            assert!(now.links.is_empty());
            // This difference causes no write.
            assert_eq!(content_of(json), content(kind, &status));
        }
    }

    #[test]
    fn bridge_configs_list_nodes() {
        let spec =
            BridgeSpec { name: "pcbr0".into(), cidrs: vec!["192.168.100.0/24".parse().unwrap()], mtu: None };
        let status = Status {
            phase: Some(Phase::Ready),
            nodes: vec!["worker1".into(), "worker2".into()],
            realized: Some(Arc::new(Spec::Bridge(spec))),
            ..Status::default()
        };
        let json = to_json(Kind::Bridge, &status);
        assert_eq!(json["bridgeConfigs"][0], "{node:worker1 bridge:pcbr0 cidr:192.168.100.0/24}");
        assert_eq!(crate::watch::ingest::status(Kind::Bridge, &json), Some(status));
        assert_eq!(bridge_node("{node:}"), None);
    }
}
