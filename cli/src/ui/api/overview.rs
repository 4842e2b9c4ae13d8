//! The first page: what is not ready, and the state of devices, nodes, drivers and callbacks.

use std::collections::{BTreeMap, BTreeSet};

use axum::Json;
use axum::extract::State;
use eno_engine::callbacks::Undelivered;
use eno_engine::forecast::{Key, Kind};
use eno_engine::observation::{Hop, HopState, Part};
use eno_schemas::Outcome;
use serde::Serialize;
use serde_json::Value;

use super::{Missing, commands, missing};
use crate::inspect::output::name;
use crate::inspect::path::{NODE_DRIVER, State as Progress, failing_switches};
use crate::inspect::remedy::{Stage, remedy, stage};
use crate::inspect::status::{Condition, Row, conditions, is_settled, row};
use crate::ui::App;
use crate::ui::state;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Overview {
    not_ready: Vec<NotReady>,
    counts: Vec<Count>,
    devices: Vec<Device>,
    nodes: Vec<Node>,
    drivers: Vec<DriverProcess>,
    #[serde(skip_serializing_if = "Option::is_none")]
    callbacks: Option<Vec<Callback>>,
    missing: Vec<Missing>,
}

#[derive(Serialize)]
struct NotReady {
    #[serde(flatten)]
    row: Row,
    /// It is ready, and a part of its path fails now.
    degraded: bool,
    hop: Stage,
    devices: Vec<String>,
    reason: String,
    remedy: &'static str,
    command: String,
}

#[derive(Serialize)]
struct Count {
    kind: &'static str,
    phases: BTreeMap<String, usize>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Device {
    name: String,
    driver: String,
    phase: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    reachable: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    drift: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    open_trunk: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pending: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_transaction: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    message: String,
}

#[derive(Serialize)]
struct Node {
    name: String,
    ready: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<Progress>,
    #[serde(skip_serializing_if = "String::is_empty")]
    message: String,
    networks: usize,
    links: usize,
}

#[derive(Serialize)]
struct DriverProcess {
    driver: String,
    instance: String,
    /// `None`: the viewer may not know of all.
    #[serde(skip_serializing_if = "Option::is_none")]
    targets: Option<usize>,
    version: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Callback {
    object: String,
    counter: u64,
    attempts: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_try: Option<String>,
    error: String,
}

pub(super) async fn overview(State(app): State<App>) -> Json<Overview> {
    let state = app.state();
    let world = &state.world;
    let mut counts: BTreeMap<Kind, BTreeMap<String, usize>> = BTreeMap::new();
    let mut unready = Vec::new();
    let mut devices = Vec::new();
    for key in world.keys() {
        let Some(object) = world.object(key) else { continue };
        let row = row(key, object);
        *counts.entry(key.kind).or_default().entry(row.phase.clone()).or_default() += 1;
        if key.kind == Kind::FabricDevice {
            devices.push(device(key, object, &row));
        }
        let conditions = conditions(object);
        if !is_settled(&row.phase) || degradation(&conditions).is_some() {
            unready.push((key, conditions, row));
        }
    }
    let observation = state.observation();
    let not_ready = unready.into_iter().map(|(key, conditions, mut row)| {
        let (stage, mut reason) = stage(key.kind, &conditions);
        let degraded = is_settled(&row.phase);
        if let Some(condition) = degradation(&conditions).filter(|_| degraded) {
            row.message.clone_from(&condition.message);
            row.since.clone_from(&condition.since);
            reason.clone_from(&condition.reason);
        }
        let remedy = remedy(stage, &reason);
        let devices = match stage {
            Stage::Device => vec![key.name.to_string()],
            Stage::Fabric => failing_switches(&observation, &state.reports, key).into_iter().collect(),
            _ => Vec::new(),
        };
        NotReady {
            row,
            degraded,
            hop: stage,
            devices,
            remedy,
            reason,
            command: commands::about(&app, "status", key),
        }
    });
    let callbacks = state
        .undelivered
        .as_ref()
        .map(|all| all.values().filter(|one| state::may_know(world, one)).map(callback).collect());
    Json(Overview {
        not_ready: not_ready.collect(),
        counts: counts.into_iter().map(|(kind, phases)| Count { kind: kind.as_str(), phases }).collect(),
        devices,
        nodes: world.nodes().map(|(name, ready)| node(&state, name, ready)).collect(),
        drivers: drivers(&state),
        callbacks,
        missing: missing(&app, world, &state.reports),
    })
}

/// The condition that tells of a failure of an object that is ready.
fn degradation(conditions: &[Condition]) -> Option<&Condition> {
    let is_failure = |one: &&Condition| match one.kind.as_str() {
        "Degraded" => one.status == "True",
        "Reachable" => one.status == "False",
        _ => false,
    };
    conditions.iter().find(is_failure)
}

fn device(key: &Key, object: &kube::api::DynamicObject, row: &Row) -> Device {
    let text = |path: &str| object.data.pointer(path).and_then(Value::as_str).map(str::to_owned);
    let conditions = conditions(object);
    let find = |kind: &str| conditions.iter().find(|condition| condition.kind == kind);
    let holding = |kind: &str| find(kind).filter(|one| one.status == "True").map(|one| one.message.clone());
    Device {
        name: key.name.to_string(),
        driver: text("/spec/Driver").unwrap_or_else(|| "netconf".into()),
        phase: row.phase.clone(),
        reachable: find("Reachable").map(|condition| condition.status == "True"),
        drift: holding("Drift"),
        open_trunk: holding("OpenTrunk"),
        pending: object.data.pointer("/status/pendingChanges").and_then(Value::as_u64),
        last_transaction: object.data.pointer("/status/lastTransaction").cloned(),
        model: text("/status/model"),
        message: row.message.clone(),
    }
}

fn node(state: &state::State, name: &str, ready: bool) -> Node {
    let desired = state.desired.nodes.get(name);
    let report = state.reports.get(NODE_DRIVER, name);
    let progress = report.map(|report| {
        let (is_applied, failure) = match &report.outcome {
            Outcome::Applied => (true, None),
            Outcome::Failed(failure) => (false, Some(failure)),
            _ => (false, None),
        };
        let hop =
            Hop { part: Part::Agents, state: HopState::of_report(&report.rejected, is_applied, failure) };
        state.reports.verdict(NODE_DRIVER, name, &hop)
    });
    let (progress, message) = progress.map_or((None, String::new()), |(one, text)| (Some(one), text));
    Node {
        name: name.to_owned(),
        ready,
        state: progress,
        message,
        networks: desired.map_or(0, |desired| desired.networks.len()),
        links: desired.map_or(0, |desired| desired.pods.values().map(|pod| pod.links.len()).sum()),
    }
}

/// The processes of drivers. Their names are those of pods: who may not list pods sees a number.
fn drivers(state: &state::State) -> Vec<DriverProcess> {
    let nodes: BTreeSet<&str> = state.world.nodes().map(|(name, _)| name).collect();
    let names_pods = state.world.lists_everything();
    let counts = state.world.lists_all_kinds();
    let mut targets: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for (_, _, report) in state.reports.iter() {
        *targets.entry((&report.driver, &report.instance)).or_default() += 1;
    }
    let mut numbers: BTreeMap<&str, usize> = BTreeMap::new();
    let visible = state.drivers.values().filter(|hello| match &hello.target {
        Some(target) => nodes.contains(target.as_str()),
        None => true,
    });
    let rows = visible.map(|hello| {
        let number = numbers.entry(&hello.driver).or_default();
        *number += 1;
        let instance = match &hello.target {
            Some(target) => target.clone(),
            None if names_pods => hello.instance.clone(),
            None => number.to_string(),
        };
        let targets = targets.get(&(hello.driver.as_str(), hello.instance.as_str())).copied();
        DriverProcess {
            driver: hello.driver.clone(),
            instance,
            targets: counts.then(|| targets.unwrap_or_default()),
            version: hello.version.clone(),
        }
    });
    rows.collect()
}

fn callback(one: &Undelivered) -> Callback {
    Callback {
        object: name(&one.kind, one.namespace.as_deref(), &one.name),
        counter: one.counter,
        attempts: one.attempts,
        next_try: one.next_try_at(),
        error: one.error.clone(),
    }
}
