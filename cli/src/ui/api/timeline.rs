//! What happened in the last 7 days, as `eno trace` answers, with the Events of Kubernetes.

use axum::Json;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use eno_engine::forecast::{ClusterState, Key, Kind};
use eno_engine::trace::{self, Messages};
use serde::{Deserialize, Serialize};

use super::{Answer, ApiError, Missing, commands, key_of, missing, not_found};
use crate::inspect::events::{About, events};
use crate::inspect::history::{of_namespace, of_object, targets};
use crate::inspect::path::Fabric;
use crate::inspect::timeline::{Entry, EntryKind};
use crate::ui::App;

/// The newest entries that an answer has.
const MAX_ENTRIES: usize = 5_000;

#[derive(Deserialize)]
pub(super) struct Asked {
    object: Option<String>,
    device: Option<String>,
    namespace: Option<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Timeline {
    entries: Vec<Entry>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cut_to: Option<usize>,
    commands: Vec<String>,
    missing: Vec<Missing>,
}

/// What a time line is of.
enum Subject {
    Object(Key),
    Namespace(String),
}

pub(super) async fn timeline(State(app): State<App>, Query(asked): Query<Asked>) -> Answer<Timeline> {
    let subject = match asked {
        Asked { object: Some(object), .. } => Subject::Object(key_of(&object)?),
        Asked { device: Some(device), .. } => {
            Subject::Object(Key::cluster(Kind::FabricDevice, &device.as_str().into()))
        }
        Asked { namespace: Some(namespace), .. } => Subject::Namespace(namespace),
        _ => {
            return Err(ApiError::new(
                StatusCode::BAD_REQUEST,
                "No object, device or namespace is named.",
                "Choose one of them.",
            ));
        }
    };
    // The state is copied, since reading takes a while.
    let (world, fabric, mut missing) = {
        let state = app.state();
        (state.world.clone(), state.fabric.clone(), missing(&app, &state.world, &state.reports))
    };
    if let Subject::Object(key) = &subject
        && world.may_miss(key)
    {
        return Err(not_found(&world, key));
    }
    let mut entries = match app.messages() {
        Some(messages) => of_messages(&world, &fabric, &messages, &subject).await?,
        None => Vec::new(),
    };
    let about = match &subject {
        Subject::Object(key) => About::Object(key.clone()),
        Subject::Namespace(namespace) => About::Namespace(namespace.clone()),
    };
    match events(&app.source, &world, &about).await {
        Ok(found) => entries.extend(found),
        Err(error) => missing.push(Missing::new(
            "Events of Kubernetes",
            format!("{error:#}"),
            "Ask a cluster admin for the right to list events there.",
        )),
    }
    entries.sort();
    let cut_to = (entries.len() > MAX_ENTRIES).then_some(MAX_ENTRIES);
    entries.drain(..entries.len().saturating_sub(MAX_ENTRIES));
    let commands = match &subject {
        Subject::Object(key) => vec![commands::about(&app, "trace", key)],
        Subject::Namespace(namespace) => vec![commands::eno(&app, &["status", "-n", namespace])],
    };
    Ok(Json(Timeline { entries, cut_to, commands, missing }))
}

async fn of_messages(
    world: &ClusterState,
    fabric: &Fabric,
    messages: &Messages,
    subject: &Subject,
) -> anyhow::Result<Vec<Entry>> {
    let key = match subject {
        Subject::Object(key) => key,
        Subject::Namespace(namespace) => return of_namespace(world, messages, namespace).await,
    };
    let mut entries = of_object(world, fabric, messages, key).await?;
    for (driver, target) in targets(world, fabric, key) {
        let Some((command, at)) = trace::timed_command(messages, &driver, &target).await? else { continue };
        if !at.is_empty() {
            let target = format!("{driver} {target}");
            let text = format!("the last command, {}", command.generation);
            entries.push(Entry::new(&at, EntryKind::Command, target.clone(), target, text));
        }
    }
    Ok(entries)
}
