//! The effect of manifests, as `eno plan` answers. Nothing is applied.

use std::time::Duration;

use anyhow::Context as _;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use eno_engine::trace::Messages;
use eno_schemas::Preview;
use serde::Deserialize;

use super::{Answer, ApiError};
use crate::inspect::manifests;
use crate::inspect::path::HIDDEN;
use crate::inspect::plan::{self, Plan, indented};
use crate::ui::App;

/// How long the API server and the drivers may take together.
const LIMIT: Duration = Duration::from_mins(2);

#[derive(Deserialize)]
pub(super) struct Asked {
    manifests: String,
    #[serde(default)]
    delete: bool,
    namespace: Option<String>,
}

pub(super) async fn plan(State(app): State<App>, Json(asked): Json<Asked>) -> Answer<Plan> {
    let objects = manifests::of_text(&asked.manifests).map_err(|error| {
        ApiError::new(StatusCode::BAD_REQUEST, format!("{error:#}"), "Give manifests in YAML or JSON.")
    })?;
    if objects.is_empty() {
        return Err(ApiError::new(
            StatusCode::BAD_REQUEST,
            "There is no object.",
            "Paste or drop manifests of the operator's kinds.",
        ));
    }
    let namespace = asked.namespace.filter(|name| !name.is_empty()).unwrap_or_else(|| app.namespace.clone());
    let nats = match app.messages() {
        Some(Messages::Nats(connection)) => Some(connection),
        _ => None,
    };
    let planning = async {
        // The state that watches keep may be behind what the user has just applied.
        let world = app.source.cluster_state(&namespace).await?;
        let sees_texts = world.lists_all_kinds();
        let mut plan =
            plan::plan(&app.source, nats.as_deref(), &world, &namespace, objects, asked.delete).await?;
        for switch in &mut plan.previews {
            let preview = &mut switch.preview;
            preview.edits.iter_mut().for_each(|edit| *edit = indented(edit));
            if !sees_texts {
                hide_texts(preview);
            }
        }
        anyhow::Ok(plan)
    };
    match tokio::time::timeout(LIMIT, planning).await.context("asking took longer than 2 minutes") {
        Ok(plan) => Ok(Json(plan?)),
        Err(error) => Err(ApiError::new(
            StatusCode::GATEWAY_TIMEOUT,
            error.to_string(),
            "Try again once the API server and NATS answer.",
        )),
    }
}

/// Leaves out what may name objects that the viewer may not list: edits are of the whole switch, and texts of anything.
pub(super) fn hide_texts(preview: &mut Preview) {
    preview.edits.clear();
    preview.notes.clear();
    preview.rejected.iter_mut().for_each(|rejection| rejection.reason = HIDDEN.into());
    if let Some(failure) = &mut preview.failure {
        failure.reason = HIDDEN.into();
    }
}
