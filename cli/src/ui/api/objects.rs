//! All objects.

use axum::Json;
use axum::extract::State;
use serde::Serialize;

use super::{Missing, missing};
use crate::inspect::status::{Row, row};
use crate::ui::App;

#[derive(Serialize)]
pub(super) struct Objects {
    objects: Vec<Row>,
    missing: Vec<Missing>,
}

pub(super) async fn objects(State(app): State<App>) -> Json<Objects> {
    let state = app.state();
    let rows = state.world.keys().filter_map(|key| Some(row(key, state.world.object(key)?)));
    Json(Objects { objects: rows.collect(), missing: missing(&app, &state.world, &state.reports) })
}
