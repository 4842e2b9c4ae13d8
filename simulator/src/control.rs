//! The control API (HTTP): tests and demonstrations observe the switches and disturb them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::dataplane::{DataPlane, DataPlaneStatus};
use crate::dialect::{HandEdit, View};
use crate::faults::Fault;
use crate::switch::{Boot, HandEditError, Stats, Switch};

/// Maximum time that a long-poll request waits for a change before it answers with the current state.
const LONG_POLL: Duration = Duration::from_secs(30);

#[derive(Clone)]
struct Shared {
    switches: Arc<BTreeMap<String, Arc<Switch>>>,
    version: watch::Sender<u64>,
    data_plane: Option<Arc<DataPlane>>,
}

/// Returns the routes of the control API.
pub fn router(
    switches: BTreeMap<String, Arc<Switch>>,
    version: watch::Sender<u64>,
    data_plane: Option<Arc<DataPlane>>,
) -> Router {
    Router::new()
        .route("/switches", get(list))
        .route("/events", get(events))
        .route("/dataplane", get(show_data_plane))
        .route("/switches/{name}", get(show))
        .route("/switches/{name}/running", get(running))
        .route("/switches/{name}/running.xml", get(running_xml))
        .route("/switches/{name}/stats", get(stats))
        .route("/switches/{name}/faults", get(faults).post(add_fault).delete(clear_faults))
        .route("/switches/{name}/reboot", post(reboot))
        .route("/switches/{name}/edit", post(edit))
        .route("/switches/{name}/backup", post(back_up))
        .route("/switches/{name}/restore", post(restore))
        .route("/switches/{name}/replace", post(replace))
        .with_state(Shared { switches: Arc::new(switches), version, data_plane })
}

/// The summary of one switch, as `GET /switches/{name}` answers it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Summary {
    name: String,
    dialect: &'static str,
    /// Version of the running datastore; increases with every change.
    version: u64,
    reachable: bool,
    /// Whether a confirmed commit awaits its confirmation.
    pending_confirmation: bool,
    faults: Vec<Fault>,
    stats: Stats,
}

#[derive(Debug, Serialize)]
struct Running {
    version: u64,
    #[serde(flatten)]
    view: View,
}

#[derive(Debug, Serialize)]
struct Versions {
    version: u64,
    switches: BTreeMap<String, u64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Since {
    since: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Awaited {
    ready: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Reboot {
    load: Boot,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Backup {
    name: String,
    #[serde(default)]
    reboot: bool,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Replace {
    new_host_key: bool,
}

impl Default for Replace {
    fn default() -> Self {
        Self { new_host_key: true }
    }
}

/// An error response: status code and message.
struct Refused(StatusCode, String);

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        (self.0, Json(serde_json::json!({ "error": self.1 }))).into_response()
    }
}

impl From<HandEditError> for Refused {
    fn from(error: HandEditError) -> Self {
        Self(StatusCode::UNPROCESSABLE_ENTITY, error.to_string())
    }
}

impl Shared {
    fn find(&self, name: &str) -> Result<&Arc<Switch>, Refused> {
        self.switches
            .get(name)
            .ok_or_else(|| Refused(StatusCode::NOT_FOUND, format!("there is no switch {name}")))
    }
}

fn summary(switch: &Switch) -> Summary {
    Summary {
        name: switch.name.clone(),
        dialect: switch.dialect.name,
        version: *switch.version().borrow(),
        reachable: switch.reachable(),
        pending_confirmation: switch.is_pending(),
        faults: switch.faults(),
        stats: switch.stats(),
    }
}

fn body<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, Refused> {
    serde_json::from_str(text).map_err(|error| Refused(StatusCode::BAD_REQUEST, error.to_string()))
}

/// Waits until the version exceeds `since`, at most [`LONG_POLL`].
async fn newer(mut version: watch::Receiver<u64>, since: Option<u64>) {
    if let Some(since) = since {
        // After a timeout the caller gets the current state.
        let _ = tokio::time::timeout(LONG_POLL, version.wait_for(|version| *version > since)).await;
    }
}

async fn list(State(shared): State<Shared>) -> Json<Vec<Summary>> {
    Json(shared.switches.values().map(|switch| summary(switch)).collect())
}

async fn events(State(shared): State<Shared>, Query(query): Query<Since>) -> Json<Versions> {
    newer(shared.version.subscribe(), query.since).await;
    let version = *shared.version.borrow();
    let switches = shared.switches.iter().map(|(name, s)| (name.clone(), *s.version().borrow())).collect();
    Json(Versions { version, switches })
}

async fn show_data_plane(
    State(shared): State<Shared>,
    Query(query): Query<Awaited>,
) -> Result<Json<DataPlaneStatus>, Refused> {
    let none = || Refused(StatusCode::NOT_FOUND, "there is no data plane".to_owned());
    let data_plane = shared.data_plane.ok_or_else(none)?;
    if query.ready {
        // After a timeout the caller gets the current state.
        let _ = tokio::time::timeout(LONG_POLL, data_plane.settled()).await;
    }
    Ok(Json(data_plane.status()))
}

async fn show(State(shared): State<Shared>, Path(name): Path<String>) -> Result<Json<Summary>, Refused> {
    Ok(Json(summary(shared.find(&name)?)))
}

async fn running(
    State(shared): State<Shared>,
    Path(name): Path<String>,
    Query(query): Query<Since>,
) -> Result<Json<Running>, Refused> {
    let switch = shared.find(&name)?;
    newer(switch.version(), query.since).await;
    // Read the version before the state: a change in between is then reported twice instead of missed.
    let version = *switch.version().borrow();
    Ok(Json(Running { version, view: switch.view() }))
}

async fn running_xml(State(shared): State<Shared>, Path(name): Path<String>) -> Result<Response, Refused> {
    let xml = shared.find(&name)?.running_xml();
    Ok(([(header::CONTENT_TYPE, "application/xml")], xml).into_response())
}

async fn stats(State(shared): State<Shared>, Path(name): Path<String>) -> Result<Json<Stats>, Refused> {
    Ok(Json(shared.find(&name)?.stats()))
}

async fn faults(State(shared): State<Shared>, Path(name): Path<String>) -> Result<Json<Vec<Fault>>, Refused> {
    Ok(Json(shared.find(&name)?.faults()))
}

async fn add_fault(
    State(shared): State<Shared>,
    Path(name): Path<String>,
    text: String,
) -> Result<Json<Vec<Fault>>, Refused> {
    let switch = shared.find(&name)?;
    switch.inject(body(&text)?);
    Ok(Json(switch.faults()))
}

async fn clear_faults(State(shared): State<Shared>, Path(name): Path<String>) -> Result<StatusCode, Refused> {
    shared.find(&name)?.inject(Fault::Clear {});
    Ok(StatusCode::NO_CONTENT)
}

async fn reboot(
    State(shared): State<Shared>,
    Path(name): Path<String>,
    text: String,
) -> Result<StatusCode, Refused> {
    let request: Reboot = if text.trim().is_empty() { Reboot::default() } else { body(&text)? };
    shared.find(&name)?.reboot(request.load);
    Ok(StatusCode::NO_CONTENT)
}

async fn edit(
    State(shared): State<Shared>,
    Path(name): Path<String>,
    headers: HeaderMap,
    text: String,
) -> Result<StatusCode, Refused> {
    let switch = shared.find(&name)?;
    let content_type =
        headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if content_type.contains("xml") || text.trim_start().starts_with('<') {
        switch.edit_by_hand(&text)?;
    } else {
        switch.change_by_hand(&body::<HandEdit>(&text)?)?;
    }
    Ok(StatusCode::NO_CONTENT)
}

async fn back_up(
    State(shared): State<Shared>,
    Path(name): Path<String>,
    text: String,
) -> Result<StatusCode, Refused> {
    shared.find(&name)?.back_up(&body::<Backup>(&text)?.name);
    Ok(StatusCode::NO_CONTENT)
}

async fn restore(
    State(shared): State<Shared>,
    Path(name): Path<String>,
    text: String,
) -> Result<StatusCode, Refused> {
    let backup: Backup = body(&text)?;
    let restored = shared.find(&name)?.restore(&backup.name, backup.reboot);
    restored.map_err(|error| Refused(StatusCode::NOT_FOUND, error.to_string()))?;
    Ok(StatusCode::NO_CONTENT)
}

async fn replace(
    State(shared): State<Shared>,
    Path(name): Path<String>,
    text: String,
) -> Result<Json<serde_json::Value>, Refused> {
    let request: Replace = if text.trim().is_empty() { Replace::default() } else { body(&text)? };
    let key = shared.find(&name)?.replace(request.new_host_key);
    let key = key.map_err(|error| Refused(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
    Ok(Json(serde_json::json!({ "hostKey": key })))
}
