//! The control API (HTTP): tests and demonstrations observe the switches and disturb them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{FromRequestParts, Path, Query, State};
use axum::http::request::Parts;
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
struct ApiState {
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
        .with_state(ApiState { switches: Arc::new(switches), version, data_plane })
}

/// The summary of one switch, as `GET /switches/{name}` answers it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Summary {
    /// The name of the switch.
    name: String,
    /// The dialect that it simulates.
    dialect: &'static str,
    /// Version of running and of the faults of forwarding; increases with every change.
    version: u64,
    /// Whether its NETCONF port accepts connections.
    reachable: bool,
    /// Whether a confirmed commit awaits its confirmation.
    pending_confirmation: bool,
    /// The faults to come.
    faults: Vec<Fault>,
    /// Counters of sessions and requests.
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
struct SinceQuery {
    since: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ReadyQuery {
    ready: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RebootRequest {
    load: Boot,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct BackupRequest {
    name: String,
    #[serde(default)]
    reboot: bool,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct ReplaceRequest {
    new_host_key: bool,
}

impl Default for ReplaceRequest {
    fn default() -> Self {
        Self { new_host_key: true }
    }
}

/// An error response: status code and message.
struct ApiError(StatusCode, String);

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        (self.0, Json(serde_json::json!({ "error": self.1 }))).into_response()
    }
}

impl From<HandEditError> for ApiError {
    fn from(error: HandEditError) -> Self {
        Self(StatusCode::UNPROCESSABLE_ENTITY, error.to_string())
    }
}

/// The switch that the path of a request names.
struct Named(Arc<Switch>);

impl FromRequestParts<ApiState> for Named {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &ApiState) -> Result<Self, ApiError> {
        let name = Path::<String>::from_request_parts(parts, api).await;
        let Path(name) = name.map_err(|error| ApiError(error.status(), error.to_string()))?;
        let missing = || ApiError(StatusCode::NOT_FOUND, format!("there is no switch {name}"));
        api.switches.get(&name).cloned().map(Self).ok_or_else(missing)
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

fn parse_body<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, ApiError> {
    serde_json::from_str(text).map_err(|error| ApiError(StatusCode::BAD_REQUEST, error.to_string()))
}

/// The defaults apply to an empty body.
fn parse_optional_body<T: Default + serde::de::DeserializeOwned>(text: &str) -> Result<T, ApiError> {
    if text.trim().is_empty() { Ok(T::default()) } else { parse_body(text) }
}

/// Waits until the version exceeds `since`, at most [`LONG_POLL`].
async fn wait_for_newer(mut version: watch::Receiver<u64>, since: Option<u64>) {
    if let Some(since) = since {
        // After a timeout the caller gets the current state.
        let _ = tokio::time::timeout(LONG_POLL, version.wait_for(|version| *version > since)).await;
    }
}

async fn list(State(api): State<ApiState>) -> Json<Vec<Summary>> {
    Json(api.switches.values().map(|switch| summary(switch)).collect())
}

async fn events(State(api): State<ApiState>, Query(query): Query<SinceQuery>) -> Json<Versions> {
    wait_for_newer(api.version.subscribe(), query.since).await;
    let version = *api.version.borrow();
    let switches = api.switches.iter().map(|(name, s)| (name.clone(), *s.version().borrow())).collect();
    Json(Versions { version, switches })
}

async fn show_data_plane(
    State(api): State<ApiState>,
    Query(query): Query<ReadyQuery>,
) -> Result<Json<DataPlaneStatus>, ApiError> {
    let none = || ApiError(StatusCode::NOT_FOUND, "there is no data plane".to_owned());
    let data_plane = api.data_plane.ok_or_else(none)?;
    if query.ready {
        // After a timeout the caller gets the current state.
        let _ = tokio::time::timeout(LONG_POLL, data_plane.settled()).await;
    }
    Ok(Json(data_plane.status()))
}

async fn show(Named(switch): Named) -> Json<Summary> {
    Json(summary(&switch))
}

async fn running(Named(switch): Named, Query(query): Query<SinceQuery>) -> Json<Running> {
    wait_for_newer(switch.version(), query.since).await;
    // Read the version before the state: a change in between is then reported twice instead of missed.
    let version = *switch.version().borrow();
    Json(Running { version, view: switch.view() })
}

async fn running_xml(Named(switch): Named) -> Response {
    ([(header::CONTENT_TYPE, "application/xml")], switch.running_xml()).into_response()
}

async fn stats(Named(switch): Named) -> Json<Stats> {
    Json(switch.stats())
}

async fn faults(Named(switch): Named) -> Json<Vec<Fault>> {
    Json(switch.faults())
}

async fn add_fault(Named(switch): Named, text: String) -> Result<Json<Vec<Fault>>, ApiError> {
    switch.inject(parse_body(&text)?);
    Ok(Json(switch.faults()))
}

async fn clear_faults(Named(switch): Named) -> StatusCode {
    switch.inject(Fault::Clear {});
    StatusCode::NO_CONTENT
}

async fn reboot(Named(switch): Named, text: String) -> Result<StatusCode, ApiError> {
    switch.reboot(parse_optional_body::<RebootRequest>(&text)?.load);
    Ok(StatusCode::NO_CONTENT)
}

async fn edit(Named(switch): Named, headers: HeaderMap, text: String) -> Result<StatusCode, ApiError> {
    let content_type =
        headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if content_type.contains("xml") || text.trim_start().starts_with('<') {
        switch.edit_xml_by_hand(&text)?;
    } else {
        switch.change_by_hand(&parse_body::<HandEdit>(&text)?)?;
    }
    Ok(StatusCode::NO_CONTENT)
}

async fn back_up(Named(switch): Named, text: String) -> Result<StatusCode, ApiError> {
    switch.back_up(&parse_body::<BackupRequest>(&text)?.name);
    Ok(StatusCode::NO_CONTENT)
}

async fn restore(Named(switch): Named, text: String) -> Result<StatusCode, ApiError> {
    let backup: BackupRequest = parse_body(&text)?;
    let restored = switch.restore(&backup.name, backup.reboot);
    restored.map_err(|error| ApiError(StatusCode::NOT_FOUND, error.to_string()))?;
    Ok(StatusCode::NO_CONTENT)
}

async fn replace(Named(switch): Named, text: String) -> Result<Json<serde_json::Value>, ApiError> {
    let key = switch.replace(parse_optional_body::<ReplaceRequest>(&text)?.new_host_key);
    let key = key.map_err(|error| ApiError(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
    Ok(Json(serde_json::json!({ "hostKey": key })))
}
