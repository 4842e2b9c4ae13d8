//! Objects that name what the engine has not seen. It may be on its way, since objects that are applied together come in
//! any order, and watches may lag or be stuck: that it is not there is said only when the API server says so too.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use eno_core::{Event, Key};
use futures::{StreamExt as _, stream};

use super::Leader;
use crate::api;
use crate::mailbox::{Input, post};

/// Objects that are applied together have all arrived after so long.
const REFERENCE_TIMEOUT: Duration = Duration::from_secs(1);
/// So many are asked for at once.
const MAX_CONCURRENT_READS: usize = 16;

impl Leader {
    /// What the object names has some time to arrive.
    pub(super) fn wait_for_references(&mut self, key: Key) {
        self.reference_waits.push_back((Instant::now() + REFERENCE_TIMEOUT, key));
    }

    /// Looks for what has not arrived in time.
    pub(super) fn check_references(&mut self) {
        let now = Instant::now();
        let mut stop_all: Vec<(Key, BTreeSet<Key>)> = Vec::new();
        while let Some((_, key)) = self.reference_waits.pop_front_if(|(until, _)| *until <= now) {
            let missing = self.engine.missing(&key);
            if missing.is_empty() {
                self.engine.handle(Event::AwaitElapsed(key));
            } else {
                stop_all.push((key, missing));
            }
        }
        if stop_all.is_empty() {
            return;
        }
        let (client, mailbox) = (self.context.client.clone(), self.mailbox.clone());
        self.publishing.spawn(async move {
            // Many may name the same.
            let missing: BTreeSet<Key> = stop_all.iter().flat_map(|(_, missing)| missing).cloned().collect();
            let existing: BTreeSet<Key> = stream::iter(missing)
                .map(|key| {
                    let client = client.clone();
                    async move { api::may_exist(&client, &key).await.then_some(key) }
                })
                .buffer_unordered(MAX_CONCURRENT_READS)
                .filter_map(std::future::ready)
                .collect()
                .await;
            for (key, missing) in stop_all {
                let arrives = !missing.is_disjoint(&existing);
                let input = if arrives {
                    Input::ReferenceExists(key)
                } else {
                    Input::Event(Event::AwaitElapsed(key))
                };
                if !post(&mailbox, input).await {
                    break;
                }
            }
            Ok(())
        });
    }
}
