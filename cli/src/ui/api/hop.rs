//! The exact configuration of a hop.

use axum::Json;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use eno_engine::forecast::{Key, Kind};
use eno_engine::trace::Messages;
use eno_schemas::{Applied, FabricDesired, FabricPort, FabricVlan, Preview, VlanId, VlanSet};
use kube::Api;
use kube::api::DynamicObject;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{Answer, ApiError, Missing, commands, key_of, missing, not_found};
use crate::apply::nad_resource;
use crate::inspect::blame::{Line, blame, routed_states};
use crate::inspect::end_to_end::{self, Hop, Part};
use crate::inspect::path::NODE_DRIVER;
use crate::inspect::plan::{indented, preview};
use crate::inspect::source::Source;
use crate::inspect::status::{Condition, conditions};
use crate::ui::{App, state};

#[derive(Deserialize)]
pub(super) struct Asked {
    object: String,
    id: String,
}

#[derive(Serialize)]
pub(super) struct HopDetail {
    hop: Hop,
    facts: Vec<Fact>,
    configurations: Vec<Configuration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    blame: Option<Vec<Line>>,
    conditions: Vec<Condition>,
    commands: Vec<String>,
    missing: Vec<Missing>,
}

#[derive(Serialize)]
struct Fact {
    name: &'static str,
    value: String,
}

#[derive(Serialize)]
struct Configuration {
    title: String,
    language: &'static str,
    text: String,
}

impl Configuration {
    fn json(title: impl Into<String>, value: &impl Serialize) -> Self {
        let text = serde_json::to_string_pretty(value).unwrap_or_default();
        Self { title: title.into(), language: "json", text }
    }

    fn edit(title: String, edit: &str) -> Self {
        let language = if edit.starts_with('<') {
            "xml"
        } else if edit.starts_with(['{', '[']) {
            "json"
        } else {
            "text"
        };
        Self { title, language, text: indented(edit) }
    }
}

impl HopDetail {
    fn fact(&mut self, name: &'static str, value: impl Into<String>) {
        let value = value.into();
        if !value.is_empty() {
            self.facts.push(Fact { name, value });
        }
    }

    /// Adds the command that shows the status of an owner, `KIND/NAME` of this kind, if it is another object.
    fn status_of(&mut self, app: &App, kind: Kind, owner: &str) {
        let Some((_, name)) = owner.split_once('/') else { return };
        let command = commands::about(app, "status", &Key::cluster(kind, &name.into()));
        if !self.commands.contains(&command) {
            self.commands.push(command);
        }
    }
}

/// What has to be asked of others, besides the state.
enum Question {
    Nothing,
    /// What the driver of a switch would send to it.
    Edits {
        driver: String,
        switch: String,
        desired: Box<FabricDesired>,
    },
    /// A NetworkAttachmentDefinition.
    Nad {
        namespace: String,
        name: String,
    },
}

pub(super) async fn hop(State(app): State<App>, Query(asked): Query<Asked>) -> Answer<HopDetail> {
    let (mut detail, question) = known(&app, &asked)?;
    if let Question::Nad { namespace, name } = question {
        nad(&app, &mut detail, &namespace, &name).await;
    }
    Ok(Json(detail))
}

/// What the driver of a hop's switch would send.
#[derive(Default, Serialize)]
pub(super) struct Edits {
    /// The driver would send these now.
    now: Vec<Configuration>,
    /// The driver would send these to take away what is there.
    removal: Vec<Configuration>,
    missing: Vec<Missing>,
}

/// Asks the driver, which reads the switch. So pages ask once, and not at each change.
pub(super) async fn edits(State(app): State<App>, Query(asked): Query<Asked>) -> Answer<Edits> {
    let (detail, question) = known(&app, &asked)?;
    let Question::Edits { driver, switch, desired } = question else { return Ok(Json(Edits::default())) };
    let missing = |why: String, fix: &str| {
        let missing = Missing::new(format!("What driver {driver} would send to {switch}"), why, fix);
        Ok(Json(Edits { missing: vec![missing], ..Edits::default() }))
    };
    let Some(Messages::Nats(nats)) = app.messages() else {
        return missing(
            "Only the driver of the switch knows it, and it is asked over NATS.".into(),
            "Run eno ui on the cluster, with --nats-url and --nats-credentials.",
        );
    };
    let again = "Try again once the driver and the switch answer.";
    if !app.state().world.lists_all_kinds() {
        return missing(
            "An edit is about the whole switch, and so about objects that you may not list.".into(),
            "Ask a cluster admin for ClusterRole eno-viewer.",
        );
    }
    let without = without(&desired, &detail.hop);
    let now = match preview(&nats, &driver, &switch, *desired).await {
        Err(error) => return missing(error.to_string(), again),
        Ok(Preview { failure: Some(failure), .. }) => return missing(failure.reason.into(), again),
        Ok(now) => now,
    };
    let removal = match preview(&nats, &driver, &switch, without).await {
        Ok(removal) if now.edits.is_empty() => removal.edits,
        _ => Vec::new(),
    };
    let texts = |edits: Vec<String>, title: &str| {
        edits.iter().map(|edit| Configuration::edit(title.to_owned(), edit)).collect()
    };
    let title = format!("The edit that would take VLAN {} away; it is not sent", detail.hop.vlans);
    Ok(Json(Edits {
        now: texts(now.edits, "The edit that the driver would send now"),
        removal: texts(removal, &title),
        missing: Vec::new(),
    }))
}

fn known(app: &App, asked: &Asked) -> Result<(HopDetail, Question), ApiError> {
    let key = key_of(&asked.object)?;
    let state = app.state();
    let world = &state.world;
    let object = world.object(&key).ok_or_else(|| not_found(world, &key))?;
    let path = end_to_end::path(state.inputs(&state.observation()), &key);
    let hop = path.hops.into_iter().find(|hop| hop.id == asked.id).ok_or_else(|| {
        ApiError::new(
            StatusCode::NOT_FOUND,
            format!("{key} has no hop {} any more.", asked.id),
            "Choose another one.",
        )
    })?;
    let part = hop.part.clone();
    let mut detail = HopDetail {
        facts: Vec::new(),
        configurations: Vec::new(),
        blame: None,
        conditions: conditions(object),
        commands: vec![commands::about(app, "status", &key)],
        missing: missing(app, world, &state.reports),
        hop,
    };
    detail.fact("VLANs of the path", detail.hop.vlans.to_string());
    if let Some(mtu) = detail.hop.mtu {
        detail.fact("MTU", format!("{mtu} bytes"));
    }
    detail.fact("Addresses", detail.hop.addresses.join(", "));
    let question = match part {
        Part::Port((switch, port)) => port_detail(app, &state, &mut detail, &switch, &port),
        Part::Switch(switch) => switch_detail(app, &state, &mut detail, &switch),
        Part::Vrf(device, vrf) => vrf_detail(app, &state, &mut detail, &device, &vrf),
        Part::Routed(device, vlan) => routed_detail(app, &state, &mut detail, &device, vlan),
        Part::Network(node, name) => network_detail(&state, &mut detail, &node, &name),
        Part::Link(node, uid, id) => link_detail(&state, &mut detail, &node, &uid, &id),
        Part::Pod(uid) | Part::Attached(uid, _) => pod_detail(app, &state, &mut detail, &uid),
        Part::Elsewhere => Question::Nothing,
        Part::Nad(name) => {
            if let Some(desired) = state.desired.network_attachment_definitions.get(&name) {
                detail.configurations.push(Configuration::json("Desired", desired));
            }
            match name.split_once('/') {
                Some((namespace, name)) => Question::Nad { namespace: namespace.into(), name: name.into() },
                None => Question::Nothing,
            }
        }
    };
    Ok((detail, question))
}

/// The desired state of one port only, or of the whole switch: what else is desired stays out of it.
fn desired_json(desired: &FabricDesired, port: Option<&str>, vlans: &VlanSet) -> Value {
    let of_path = |vlan: &&FabricVlan| vlans.contains(vlan.vid);
    let own: Vec<_> = desired.vlans.iter().filter(of_path).collect();
    let ports = desired.ports.iter().filter(|one| port.is_none_or(|port| port == one.name));
    let ports = ports.map(|one| FabricPort { vlans: one.vlans.intersection(vlans), ..one.clone() });
    let ports: Vec<_> = ports.filter(|one| !one.vlans.is_empty()).collect();
    json!({ "vlans": own, "ports": ports })
}

fn port_detail(
    app: &App,
    state: &state::State,
    detail: &mut HopDetail,
    switch: &str,
    port: &str,
) -> Question {
    let Some((driver, desired)) = state.fabric.switches.get(switch) else { return Question::Nothing };
    detail.fact("Switch", switch);
    detail.fact("Port", port);
    detail.fact("Driver", driver);
    if let Some(lag) = desired.ports.iter().find(|one| one.name == port).and_then(|port| port.lag.as_deref())
    {
        detail.fact("LAG", lag);
    }
    detail.commands.push(commands::eno(app, &["blame", switch, port]));
    let vlans = detail.hop.vlans.clone();
    detail.configurations.push(Configuration::json("Desired", &desired_json(desired, Some(port), &vlans)));
    let applied = state.reports.get(driver, switch).and_then(|report| report.applied.as_ref());
    let carried = match applied {
        Some(Applied::Fabric { carried, ports, .. }) => {
            let found = carried.get(port);
            let observed = json!({ "ours": ports.get(port), "carried": found });
            detail.configurations.push(Configuration::json("Observed", &observed));
            found
        }
        _ => None,
    };
    let states = routed_states(&state.observation(), &state.reports, (switch, desired), port);
    detail.blame = Some(blame(desired, port, carried, &states));
    edits_question(state, switch)
}

fn switch_detail(app: &App, state: &state::State, detail: &mut HopDetail, switch: &str) -> Question {
    let Some((driver, desired)) = state.fabric.switches.get(switch) else { return Question::Nothing };
    detail.fact("Switch", switch);
    detail.fact("Driver", driver);
    let device = Key::cluster(Kind::FabricDevice, &switch.into());
    if let Some(object) = state.world.object(&device) {
        detail.conditions = conditions(object);
        let text = |path: &str| object.data.pointer(path).and_then(Value::as_str).unwrap_or_default();
        detail.fact("Model", text("/status/model"));
        detail.fact("Dialect", text("/status/dialect"));
    }
    detail.commands.push(commands::about(app, "status", &device));
    detail.commands.push(commands::about(app, "trace", &device));
    let vlans = detail.hop.vlans.clone();
    detail.configurations.push(Configuration::json("Desired", &desired_json(desired, None, &vlans)));
    edits_question(state, switch)
}

fn vrf_detail(app: &App, state: &state::State, detail: &mut HopDetail, device: &str, vrf: &str) -> Question {
    let Some((driver, desired)) = state.fabric.switches.get(device) else { return Question::Nothing };
    detail.fact("Driver", driver);
    let Some(vrf) = desired.vrfs.iter().find(|one| one.name == vrf) else { return Question::Nothing };
    detail.fact("Route distinguisher", vrf.route_distinguisher.clone().unwrap_or_default());
    detail.fact("Import targets", vrf.import_targets.join(", "));
    detail.fact("Export targets", vrf.export_targets.join(", "));
    detail.status_of(app, Kind::VRF, &vrf.owner);
    detail.configurations.push(Configuration::json("Desired", vrf));
    Question::Nothing
}

fn routed_detail(
    app: &App,
    state: &state::State,
    detail: &mut HopDetail,
    device: &str,
    vlan: VlanId,
) -> Question {
    let Some((driver, desired)) = state.fabric.switches.get(device) else { return Question::Nothing };
    detail.fact("Driver", driver);
    let routed = desired.vlans.get(vlan).and_then(|vlan| vlan.routed.as_deref());
    let Some(routed) = routed else { return Question::Nothing };
    detail.fact("Wanted by", &routed.owner);
    let routes = routed.routes.iter().map(|route| format!("{} by {}", route.prefix, route.next_hop));
    detail.fact("Static routes", routes.collect::<Vec<_>>().join(", "));
    detail.status_of(app, Kind::VRFAttachment, &routed.owner);
    detail.configurations.push(Configuration::json("Desired", routed));
    edits_question(state, device)
}

fn edits_question(state: &state::State, switch: &str) -> Question {
    match state.fabric.switches.get(switch) {
        Some((driver, desired)) if !state.fabric.incomplete.contains(switch) => Question::Edits {
            driver: driver.clone(),
            switch: switch.to_owned(),
            desired: Box::new(desired.clone()),
        },
        _ => Question::Nothing,
    }
}

fn network_detail(state: &state::State, detail: &mut HopDetail, node: &str, name: &str) -> Question {
    detail.fact("Node", node);
    detail.fact("Network of the host", name);
    if let Some(desired) = state.desired.nodes.get(node).and_then(|node| node.networks.get(name)) {
        detail.configurations.push(Configuration::json("Desired", desired));
    }
    // A node may be known by the port of a switch only.
    if !state.world.has_node(node) {
        return Question::Nothing;
    }
    if let Some(Applied::Node { networks, .. }) =
        state.reports.get(NODE_DRIVER, node).and_then(|report| report.applied.as_ref())
    {
        detail.configurations.push(Configuration::json("Observed", &networks.get(name)));
    }
    Question::Nothing
}

fn link_detail(state: &state::State, detail: &mut HopDetail, node: &str, uid: &str, id: &str) -> Question {
    detail.fact("Node", node);
    let pod = state.desired.nodes.get(node).and_then(|node| node.pods.get(uid));
    if let Some(pod) = pod {
        detail.fact("Pod", format!("{}/{}", pod.namespace, pod.name));
        let link = pod.links.iter().find(|link| link.id == id);
        detail.configurations.extend(link.map(|link| Configuration::json("Desired", link)));
    }
    if let Some(Applied::Node { pods, .. }) =
        state.reports.get(NODE_DRIVER, node).and_then(|report| report.applied.as_ref())
    {
        let observed = pods.get(uid).and_then(|links| links.get(id));
        if let Some(mac) = observed.and_then(|observed| observed.mac.as_ref()) {
            detail.fact("MAC", mac);
        }
        detail.configurations.push(Configuration::json("Observed", &observed));
    }
    Question::Nothing
}

fn pod_detail(app: &App, state: &state::State, detail: &mut HopDetail, uid: &str) -> Question {
    let Some(pod) = state.world.pods().find(|pod| pod.uid() == uid) else { return Question::Nothing };
    detail.fact("Pod", format!("{}/{}", pod.namespace(), pod.name()));
    detail.fact("Node", pod.node.as_deref().unwrap_or_default());
    detail.commands.extend(commands::kubectl_get(app, "pod", Some(pod.namespace()), pod.name()));
    for (title, annotation) in [
        ("Networks that the pod asks Multus for", "k8s.v1.cni.cncf.io/networks"),
        ("Networks that Multus has attached", "k8s.v1.cni.cncf.io/network-status"),
    ] {
        let text = pod.metadata.annotations.as_ref().and_then(|all| all.get(annotation));
        detail.configurations.extend(text.map(|text| Configuration::edit(title.into(), text.trim())));
    }
    Question::Nothing
}

/// The desired state without the VLANs of a hop.
fn without(desired: &FabricDesired, hop: &Hop) -> FabricDesired {
    let mut without = desired.clone();
    if let (Part::Routed(_, vlan), true) = (&hop.part, desired.device.role.is_switch()) {
        // The VLAN stays without it.
        let vlan = desired.vlans.get(*vlan).map(|vlan| FabricVlan { routed: None, ..vlan.clone() });
        without.vlans.extend(vlan);
        return without;
    }
    let is_own = |port: &str| match &hop.part {
        Part::Port((_, own)) => own == port,
        _ => true,
    };
    for port in without.ports.iter_mut().filter(|port| is_own(&port.name)) {
        port.vlans = port.vlans.difference(&hop.vlans);
    }
    let used: VlanSet = without.ports.iter().fold(VlanSet::EMPTY, |all, port| all.union(&port.vlans));
    without.vlans.retain(|vlan| !hop.vlans.contains(vlan.vid) || used.contains(vlan.vid));
    without
}

/// Adds a NetworkAttachmentDefinition as the API server holds it.
async fn nad(app: &App, detail: &mut HopDetail, namespace: &str, name: &str) {
    let Source::Live(client) = &app.source else { return };
    detail.commands.extend(commands::kubectl_get(app, "net-attach-def", Some(namespace), name));
    let nads: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &nad_resource());
    match nads.get_opt(name).await {
        Ok(Some(nad)) => {
            let config = nad.data.pointer("/spec/config").and_then(Value::as_str).unwrap_or_default();
            let title = "CNI configuration of the NetworkAttachmentDefinition";
            detail.configurations.push(Configuration::edit(title.into(), config));
        }
        Ok(None) => detail.fact("NetworkAttachmentDefinition", "it does not exist"),
        Err(error) => detail.missing.push(Missing::new(
            "The NetworkAttachmentDefinition",
            crate::apply::reason(&error),
            "Ask a cluster admin for the right to get network-attachment-definitions there.",
        )),
    }
}
