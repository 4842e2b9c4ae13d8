//! What happened in the last 7 days, as `eno trace` answers, with the Events of Kubernetes.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use eno_engine::forecast::{Key, Kind, is_namespaced};
use eno_engine::trace::{self, Messages};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use serde::{Deserialize, Serialize};

use super::{Answer, ApiError, Missing, commands, key_of, missing, not_found};
use crate::inspect::events::{About, events};
use crate::inspect::history::{CONCURRENT_READS, Subject, Whose, of_namespace, of_object, targets};
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
enum Of {
    Object(Subject),
    /// A namespace, and whose history of it, by kind.
    Namespace(String, BTreeMap<&'static str, Whose>),
}

pub(super) async fn timeline(State(app): State<App>, Query(asked): Query<Asked>) -> Answer<Timeline> {
    let key = match &asked {
        Asked { object: Some(object), .. } => Some(key_of(object)?),
        Asked { device: Some(device), .. } => Some(Key::cluster(Kind::FabricDevice, &device.as_str().into())),
        _ => None,
    };
    let (of, scope, mut missing) = {
        let state = app.state();
        let world = &state.world;
        let of = match (key, asked.namespace) {
            (Some(key), _) if world.may_miss(&key) => return Err(not_found(world, &key)),
            (Some(key), _) => Of::Object(Subject {
                targets: targets(world, &state.fabric, &key),
                whose: Whose::of(world, key.kind),
                sees_texts: world.lists_all_kinds(),
                key,
            }),
            (None, Some(namespace)) => {
                let probe = |kind| Key::namespaced(kind, &namespace.as_str().into(), &"".into());
                let may_list = |kind: &Kind| is_namespaced(*kind) && !world.may_miss(&probe(*kind));
                let kinds = Kind::ALL.into_iter().filter(may_list);
                let kinds = kinds.map(|kind| (kind.as_str(), Whose::of(world, kind))).collect();
                Of::Namespace(namespace, kinds)
            }
            (None, None) => {
                return Err(ApiError::new(
                    StatusCode::BAD_REQUEST,
                    "No object, device or namespace is named.",
                    "Choose one of them.",
                ));
            }
        };
        (of, world.scope_only(), missing(&app, world, &state.reports))
    };
    let mut entries = match app.messages() {
        Some(messages) => of_messages(&messages, &of).await?,
        None => Vec::new(),
    };
    let (about, command) = match of {
        Of::Object(Subject { key, .. }) => {
            let command = commands::about(&app, "trace", &key);
            (About::Object(key), command)
        }
        Of::Namespace(namespace, _) => {
            let command = commands::eno(&app, &["status", "-n", &namespace]);
            (About::Namespace(namespace), command)
        }
    };
    match events(&app.source, &scope, &about).await {
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
    Ok(Json(Timeline { entries, cut_to, commands: vec![command], missing }))
}

async fn of_messages(messages: &Messages, of: &Of) -> anyhow::Result<Vec<Entry>> {
    let subject = match of {
        Of::Object(subject) => subject,
        Of::Namespace(namespace, kinds) => return of_namespace(messages, namespace, kinds).await,
    };
    let mut entries = of_object(messages, subject).await?;
    let commands: Vec<_> = stream::iter(subject.targets.clone())
        .map(|(driver, target)| async move {
            let command = trace::timed_command(messages, &driver, &target).await?;
            anyhow::Ok((format!("{driver} {target}"), command))
        })
        .buffered(CONCURRENT_READS)
        .try_collect()
        .await?;
    for (target, command) in commands {
        if let Some((command, at)) = command.filter(|(_, at)| !at.is_empty()) {
            let text = format!("the last command, {}", command.generation);
            entries.push(Entry::new(&at, EntryKind::Command, target.clone(), target, &text));
        }
    }
    Ok(entries)
}
