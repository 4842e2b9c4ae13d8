//! Objects that name what the engine has not seen. It may be on its way, since objects that are applied together come in
//! any order, and watches may lag or be stuck: that it is not there is said only when the API server says so too.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use eno_core::{Event, Key};
use futures::{StreamExt as _, stream};

use super::Throne;
use crate::api;
use crate::mailbox::{Input, post};

/// Objects that are applied together have all arrived after so long.
const ARRIVAL: Duration = Duration::from_secs(1);
/// So many are asked for at once.
const QUESTIONS: usize = 16;

impl Throne {
    /// What the object names has some time to arrive.
    pub(super) fn wait_for_arrivals(&mut self, key: Key) {
        self.waits.push_back((Instant::now() + ARRIVAL, key));
    }

    /// Looks for what has not arrived in time.
    pub(super) fn end_waits(&mut self) {
        let now = Instant::now();
        let mut over: Vec<(Key, BTreeSet<Key>)> = Vec::new();
        while let Some((_, key)) = self.waits.pop_front_if(|(until, _)| *until <= now) {
            let missing = self.engine.missing_references(&key);
            if missing.is_empty() {
                self.engine.handle(Event::AwaitElapsed(key));
            } else {
                over.push((key, missing));
            }
        }
        if over.is_empty() {
            return;
        }
        let (client, mailbox) = (self.realm.client.clone(), self.mailbox.clone());
        self.publishing.spawn(async move {
            // Many may name the same.
            let missing: BTreeSet<Key> = over.iter().flat_map(|(_, missing)| missing).cloned().collect();
            let there: BTreeSet<Key> = stream::iter(missing)
                .map(|key| {
                    let client = client.clone();
                    async move { api::may_be_there(&client, &key).await.then_some(key) }
                })
                .buffer_unordered(QUESTIONS)
                .filter_map(std::future::ready)
                .collect()
                .await;
            for (key, missing) in over {
                let arrives = !missing.is_disjoint(&there);
                let input =
                    if arrives { Input::Arriving(key) } else { Input::World(Event::AwaitElapsed(key)) };
                if !post(&mailbox, input).await {
                    break;
                }
            }
            Ok(())
        });
    }
}
