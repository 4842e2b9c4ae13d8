//! References to objects that no watch has shown yet. Such an object may be on its way: manifests are applied in any
//! order, and watches may lag. A reference counts as missing only when the API server confirms it.

use std::collections::BTreeSet;

use eno_core::{Event, Key};
use futures::{StreamExt as _, stream};

use super::Leader;
use crate::api;
use crate::watch::mailbox::{Input, post};

/// Maximum concurrent reads of the API server.
const MAX_CONCURRENT_READS: usize = 16;

impl Leader {
    /// Checks references of these objects, which did not arrive in time, on the API server.
    pub(super) fn check_references(&mut self, waiting: Vec<Key>) {
        let mut expired: Vec<(Key, BTreeSet<Key>)> = Vec::new();
        for key in waiting {
            let missing = self.engine.missing_references(&key);
            if missing.is_empty() {
                self.engine.handle(Event::AwaitElapsed(key));
            } else {
                expired.push((key, missing));
            }
        }
        if expired.is_empty() {
            return;
        }
        let (client, mailbox) = (self.context.client.clone(), self.outputs.mailbox.clone());
        self.publishing.spawn(async move {
            // Several objects may have the same reference.
            let missing: BTreeSet<Key> = expired.iter().flat_map(|(_, missing)| missing).cloned().collect();
            let existing: BTreeSet<Key> = stream::iter(missing)
                .map(|key| {
                    let client = client.clone();
                    async move { api::may_exist(&client, &key).await.then_some(key) }
                })
                .buffer_unordered(MAX_CONCURRENT_READS)
                .filter_map(std::future::ready)
                .collect()
                .await;
            for (key, missing) in expired {
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
        });
    }
}
