//! The answers, as JSON. `console/src/api.ts` has their types.

mod addresses;
mod commands;
mod events;
mod fabric;
mod hop;
mod objects;
mod overview;
mod path;
mod plan;
mod timeline;

use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::{StatusCode, Uri, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use eno_engine::forecast::{Key, Kind, is_namespaced};
use serde::Serialize;

use super::{App, assets};
use crate::inspect::path::Reports;
use crate::inspect::source::Source;

/// The longest manifests, in bytes.
const MAX_BODY: usize = 8 << 20;

/// All pages and answers.
pub(super) fn router() -> Router<App> {
    Router::new()
        .route("/api/session", get(session))
        .route("/api/events", get(events::events))
        .route("/api/objects", get(objects::objects))
        .route("/api/overview", get(overview::overview))
        .route("/api/path", get(path::path))
        .route("/api/hop", get(hop::hop))
        .route("/api/edits", get(hop::edits))
        .route("/api/fabric", get(fabric::fabric))
        .route("/api/fabric/link", get(fabric::link))
        .route("/api/fabric/vlans", get(fabric::vlans))
        .route("/api/fabric/vlan", get(fabric::vlan))
        .route("/api/timeline", get(timeline::timeline))
        .route("/api/plan", post(plan::plan))
        .route("/api/addresses", get(addresses::addresses))
        .route("/api/address", get(addresses::address))
        .fallback(async |uri: Uri| assets::file(uri.path()))
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .layer(middleware::from_fn(as_api_error))
}

/// Gives refusals of the framework the form of all errors.
async fn as_api_error(request: Request, next: Next) -> Response {
    let is_api = request.uri().path().starts_with("/api/");
    let response = next.run(request).await;
    let status = response.status();
    let is_json = response.headers().get(header::CONTENT_TYPE).is_some_and(|kind| kind == "application/json");
    if !is_api || is_json || !(status.is_client_error() || status.is_server_error()) {
        return response;
    }
    let fix = match status {
        StatusCode::PAYLOAD_TOO_LARGE => "Give fewer manifests at once: at most 8 MiB.",
        StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED => "console/src/api.ts has all requests.",
        _ => "Correct the request: console/src/api.ts has its form.",
    };
    let text = axum::body::to_bytes(response.into_body(), MAX_BODY).await.unwrap_or_default();
    ApiError::new(status, String::from_utf8_lossy(&text), fix).into_response()
}

/// Something that an answer lacks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Missing {
    what: String,
    why: String,
    fix: String,
}

impl Missing {
    fn new(what: impl Into<String>, why: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { what: what.into(), why: why.into(), fix: fix.into() }
    }
}

/// Why there is no answer.
#[derive(Debug)]
pub(super) struct ApiError {
    status: StatusCode,
    error: String,
    fix: String,
}

impl ApiError {
    fn new(status: StatusCode, error: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { status, error: error.into(), fix: fix.into() }
    }
}

impl From<anyhow::Error> for ApiError {
    fn from(error: anyhow::Error) -> Self {
        Self::new(
            StatusCode::BAD_GATEWAY,
            format!("{error:#}"),
            "Try again; eno check shows what does not answer.",
        )
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        #[derive(Serialize)]
        struct Body {
            error: String,
            fix: String,
        }
        (self.status, Json(Body { error: self.error, fix: self.fix })).into_response()
    }
}

/// An answer.
type Answer<T> = Result<Json<T>, ApiError>;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Session {
    version: &'static str,
    source: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    as_of: Option<String>,
    namespace: String,
    has_messages: bool,
    options: String,
    missing: Vec<Missing>,
}

async fn session(State(app): State<App>) -> Json<Session> {
    let as_of = match &app.source {
        Source::Dump(dump) => Some(dump.made_at().to_string()),
        Source::Live(_) => None,
    };
    let state = app.state();
    Json(Session {
        version: eno_program::VERSION,
        source: app.place.clone(),
        as_of,
        namespace: app.namespace.clone(),
        has_messages: app.messages().is_some(),
        options: commands::options(&app),
        missing: missing(&app, &state.world, &state.reports),
    })
}

/// What every answer lacks.
fn missing(app: &App, world: &eno_engine::forecast::ClusterState, reports: &Reports) -> Vec<Missing> {
    let mut missing: Vec<Missing> = Vec::new();
    let left_out: Vec<String> = world.left_out().iter().map(ToString::to_string).collect();
    if !left_out.is_empty() {
        missing.push(Missing::new(
            left_out.join(", "),
            "You may not list them.",
            "Ask a cluster admin for ClusterRole eno-viewer, and for a role that lists pods.",
        ));
    }
    if !reports.are_known() {
        missing.push(match (&app.source, &app.sources.borrow().nats) {
            (Source::Dump(_), _) => Missing::new(
                "What drivers report, and the history",
                "The dump has no messages of NATS.",
                "Make a dump with --nats-url and --nats-credentials.",
            ),
            (Source::Live(_), Some(error)) => {
                Missing::new("What drivers report, and the history", error.clone(), "Check NATS: eno check.")
            }
            (Source::Live(_), None) => Missing::new(
                "What drivers report, and the history",
                "NATS is not asked: no URL of it is known.",
                "Run eno ui with --nats-url and --nats-credentials.",
            ),
        });
    } else if !reports.have_texts() {
        missing.push(Missing::new(
            "Texts of drivers",
            "They may name objects that you may not list.",
            "Ask a cluster admin for ClusterRole eno-viewer.",
        ));
    }
    let not_watched = app.not_watched.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if !not_watched.is_empty() {
        missing.push(Missing::new(
            format!("Changes of {}", not_watched.iter().cloned().collect::<Vec<_>>().join(", ")),
            "The API server lets you list them and not watch them.",
            "Ask a cluster admin for the verb watch, or run eno ui again.",
        ));
    }
    missing
}

/// Parses `KIND/NAME` or `KIND/NAMESPACE/NAME`, as answers write objects.
fn key_of(text: &str) -> Result<Key, ApiError> {
    let invalid = |why: String| {
        ApiError::new(StatusCode::BAD_REQUEST, why, "Name an object as KIND/NAME or KIND/NAMESPACE/NAME.")
    };
    let mut parts = text.splitn(3, '/');
    let kind = parts.next().and_then(eno_engine::forecast::kind);
    let kind: Kind = kind.ok_or_else(|| invalid(format!("The operator has no kind of {text:?}.")))?;
    match (is_namespaced(kind), parts.next(), parts.next()) {
        (true, Some(namespace), Some(name)) if !name.is_empty() => {
            Ok(Key::namespaced(kind, &namespace.into(), &name.into()))
        }
        (false, Some(name), None) if !name.is_empty() => Ok(Key::cluster(kind, &name.into())),
        (true, ..) => Err(invalid(format!("{text:?} lacks a namespace or a name."))),
        (false, ..) => Err(invalid(format!("{text:?} is no object: a {kind} has no namespace."))),
    }
}

/// The error for an object that is not in the world.
fn not_found(world: &eno_engine::forecast::ClusterState, key: &Key) -> ApiError {
    if world.may_miss(key) {
        return ApiError::new(
            StatusCode::FORBIDDEN,
            format!("{key} may exist, and you may not read it."),
            "Ask a cluster admin for ClusterRole eno-viewer.",
        );
    }
    ApiError::new(
        StatusCode::NOT_FOUND,
        format!("{key} does not exist."),
        "Look at its time line for when it went, or choose another one.",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_have_the_form_that_answers_give_them() {
        for (text, expected) in [
            ("L2Service/a", Some("L2Service/a")),
            ("L2ServiceAttachment/ns/a.b", Some("L2ServiceAttachment/ns/a.b")),
            ("L2ServiceAttachment/a", None),
            ("L2Service/ns/a", None),
            ("Pod/ns/a", None),
            ("L2Service/", None),
            ("", None),
        ] {
            assert_eq!(key_of(text).ok().map(|key| key.to_string()).as_deref(), expected, "{text}");
        }
    }
}
