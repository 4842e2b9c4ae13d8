//! Server-sent events: that something changed. Browsers read the answers again.

use std::convert::Infallible;

use axum::extract::State;
use axum::response::Sse;
use axum::response::sse::{Event, KeepAlive};
use futures::{Stream, StreamExt as _, stream};
use serde::Serialize;
use tokio::sync::broadcast::error::RecvError;

use crate::ui::App;
use crate::ui::state::StateEvent;

/// The events of a browser: first the revision and what can be reached, then each change.
pub(super) async fn events(State(app): State<App>) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let changes = app.events.subscribe();
    let sources = app.sources.subscribe();
    let first = StateEvent { revision: app.state().revision, ..StateEvent::default() };
    let first_sources = app.sources.borrow().clone();
    let states = stream::unfold((app, changes), async |(app, mut changes)| {
        let event = match changes.recv().await {
            Ok(event) => event,
            // It has to read everything again.
            Err(RecvError::Lagged(_)) => {
                StateEvent { revision: app.state().revision, ..StateEvent::default() }
            }
            Err(RecvError::Closed) => return None,
        };
        Some((named("state", &event), (app, changes)))
    });
    let sources = stream::unfold(sources, async |mut sources| {
        sources.changed().await.ok()?;
        let event = named("sources", &*sources.borrow_and_update());
        Some((event, sources))
    });
    let first = stream::iter([named("state", &first), named("sources", &first_sources)]);
    let all = first.chain(stream::select(states.boxed(), sources.boxed()));
    Sse::new(all.map(Ok)).keep_alive(KeepAlive::default())
}

fn named(name: &str, data: &impl Serialize) -> Event {
    // The data are plain texts and numbers, which can be written.
    Event::default().event(name).json_data(data).unwrap_or_default()
}
