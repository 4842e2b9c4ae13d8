//! The path of one object.

use std::collections::BTreeSet;

use axum::Json;
use axum::extract::{Query, State};
use eno_engine::forecast::{ClusterState, Key, Kind};
use eno_engine::observation::Tier;
use eno_nbi_crds::Verification;
use kube::api::DynamicObject;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Answer, Missing, commands, key_of, missing, not_found};
use crate::inspect::end_to_end::{self, Hop, Link};
use crate::inspect::path::networks;
use crate::inspect::status::{Condition, Row, conditions, row};
use crate::ui::App;

#[derive(Deserialize)]
pub(super) struct Asked {
    object: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Path {
    object: Row,
    conditions: Vec<Condition>,
    /// The answer to the last request for new probes.
    #[serde(skip_serializing_if = "Option::is_none")]
    verification: Option<Verification>,
    /// The command that asks for new probes.
    #[serde(skip_serializing_if = "Option::is_none")]
    test: Option<String>,
    networks: Vec<Network>,
    hops: Vec<Hop>,
    links: Vec<Link>,
    hidden: Vec<Tier>,
    references: Vec<String>,
    referenced_by: Vec<String>,
    commands: Vec<String>,
    missing: Vec<Missing>,
}

#[derive(Serialize)]
struct Network {
    object: String,
    vlan: u64,
    phase: String,
    subnets: Vec<String>,
}

pub(super) async fn path(State(app): State<App>, Query(Asked { object }): Query<Asked>) -> Answer<Path> {
    let key = key_of(&object)?;
    let state = app.state();
    let world = &state.world;
    let source = world.object(&key).ok_or_else(|| not_found(world, &key))?;
    let end_to_end::Path { hops, links } = end_to_end::path(state.inputs(&state.observation()), &key);
    let resource = eno_engine::resource(key.kind);
    let mut commands = vec![commands::about(&app, "status", &key), commands::about(&app, "trace", &key)];
    let resource = format!("{}.{}", resource.plural, resource.group);
    commands.extend(commands::kubectl_get(&app, &resource, key.namespace(), &key.name));
    if key.kind == Kind::FabricDevice {
        commands.push(commands::eno(&app, &["blame", &key.name, "PORT"]));
    }
    Ok(Json(Path {
        object: row(&key, source),
        conditions: conditions(source),
        verification: verification(source),
        test: commands::connectivity_test(&app, &key),
        networks: networks_of(world, &key),
        hops,
        links,
        hidden: end_to_end::hidden_tiers(world),
        references: references(world, &key).into_iter().collect(),
        referenced_by: referenced_by(world, &key),
        commands,
        missing: missing(&app, world, &state.reports),
    }))
}

/// What agents found when somebody asked for new probes.
fn verification(object: &DynamicObject) -> Option<Verification> {
    Verification::deserialize(object.data.pointer("/status/verification")?).ok()
}

/// The networks that an object is or attaches to, as far as the viewer may read them.
fn networks_of(world: &ClusterState, key: &Key) -> Vec<Network> {
    let found = networks(world, key).into_iter().filter_map(|network| {
        let key = Key::of_network(&network)?;
        let object = world.object(&key)?;
        let spec = |field: &str| object.data.pointer(&format!("/spec/{field}"));
        let vlan = spec("SegmentationID").or_else(|| spec("Vlan")).and_then(Value::as_u64);
        let subnets = spec("Subnets").and_then(Value::as_array).into_iter().flatten();
        let subnets = subnets.filter_map(Value::as_str).map(|subnet| subnet_text(world, subnet));
        Some(Network {
            vlan: vlan.unwrap_or_default(),
            phase: row(&key, object).phase,
            subnets: subnets.collect(),
            object: network,
        })
    });
    found.collect()
}

/// A Subnet with its network.
fn subnet_text(world: &ClusterState, name: &str) -> String {
    let subnet = world.object(&Key::cluster(Kind::Subnet, &name.into()));
    let field = |field: &str| subnet?.data.pointer(&format!("/spec/{field}"));
    match (field("Address").and_then(Value::as_str), field("Mask").and_then(Value::as_u64)) {
        (Some(address), Some(mask)) => format!("{name} ({address}/{mask})"),
        _ => name.to_owned(),
    }
}

/// The objects that an object names and that the viewer may read.
fn references(world: &ClusterState, key: &Key) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let Some(spec) = world.object(key).and_then(|object| object.data.get("spec")) else { return found };
    for (field, kind) in key.kind.reference_fields() {
        let keys = names_at(spec, field).into_iter().map(|name| Key::cluster(kind, &name.into()));
        found.extend(keys.filter(|other| world.object(other).is_some()).map(|other| other.to_string()));
    }
    found
}

/// The texts of a field as in [`Kind::reference_fields`].
fn names_at<'a>(spec: &'a Value, field: &str) -> Vec<&'a str> {
    let texts = |value: &'a Value| match value {
        Value::String(text) => vec![text.as_str()],
        Value::Array(all) => all.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    match field.split_once("[].") {
        None => spec.get(field).map(texts).unwrap_or_default(),
        Some((list, field)) => {
            let elements = spec.get(list).and_then(Value::as_array).into_iter().flatten();
            elements.filter_map(|element| element.get(field)).flat_map(texts).collect()
        }
    }
}

/// The objects that name an object and that the viewer may read.
fn referenced_by(world: &ClusterState, key: &Key) -> Vec<String> {
    let own = key.to_string();
    let naming = world.keys().filter(|other| *other != key && references(world, other).contains(&own));
    naming.map(ToString::to_string).collect()
}
