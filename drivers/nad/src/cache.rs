//! A cache of all NetworkAttachmentDefinitions, filled by a watch, and the last outcome of each target.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::{mpsc, watch};

use crate::object::{ContentHash, ObservedNad};

/// State of the watch that fills the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchState {
    /// The first listing is not complete yet.
    Starting,
    /// The cache follows the API server, but for events in flight.
    Synced,
    /// The watch failed and is retried. Its next event shows that it continues without a gap.
    Broken,
}

/// The outcome of a target's last reconcile. An object that differs from it was changed externally.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LastOutcome {
    /// The reconcile is running. Changes are evaluated when it ends.
    InProgress,
    /// The object exists with this content.
    Present(ContentHash),
    /// Nothing to do while the object stays at this resource version, such as for a foreign object. 0: it
    /// does not exist.
    Settled(u64),
    /// The reconcile failed at this resource version. Another version may help, and so may a resumed watch.
    Failed(u64),
}

#[derive(Default)]
struct Entry {
    /// The newest resource version known, from the watch or from a response.
    version: u64,
    seen: Option<ObservedNad>,
    /// `None`: no target of this driver.
    outcome: Option<LastOutcome>,
}

impl Entry {
    /// True when the object changed since the last reconcile.
    fn needs_reconcile(&self) -> bool {
        let version = self.seen.as_ref().map_or(0, |seen| seen.version);
        match (&self.outcome, &self.seen) {
            (None | Some(LastOutcome::InProgress), _) => false,
            (Some(LastOutcome::Present(content)), Some(seen)) => {
                seen.content != *content || seen.finalizers.is_some()
            }
            (Some(LastOutcome::Present(_)), None) => true,
            (Some(LastOutcome::Settled(at) | LastOutcome::Failed(at)), _) => version != *at,
        }
    }
}

struct Inner {
    entries: HashMap<String, Entry>,
    listing: HashSet<String>,
}

/// Shared by the watch and the reconciles.
pub struct NadCache {
    inner: Mutex<Inner>,
    watch: watch::Sender<WatchState>,
    /// Notified on every event, for waiting until an object is gone.
    events: watch::Sender<()>,
    changed: mpsc::UnboundedSender<String>,
}

impl NadCache {
    /// An empty cache that sends targets to reconcile again to `changed`.
    pub fn new(changed: mpsc::UnboundedSender<String>) -> Self {
        Self {
            inner: Mutex::new(Inner { entries: HashMap::new(), listing: HashSet::new() }),
            watch: watch::Sender::new(WatchState::Starting),
            events: watch::Sender::new(()),
            changed,
        }
    }

    /// Follows the state of the watch.
    pub fn watch(&self) -> watch::Receiver<WatchState> {
        self.watch.subscribe()
    }

    /// Follows the events of the watch.
    pub fn events(&self) -> watch::Receiver<()> {
        self.events.subscribe()
    }

    /// The last known object of a target.
    pub fn seen(&self, target: &str) -> Option<ObservedNad> {
        self.lock().entries.get(target).and_then(|entry| entry.seen.clone())
    }

    /// Records that a reconcile begins.
    pub fn start_reconcile(&self, target: &str) {
        self.lock().entries.entry(target.to_owned()).or_default().outcome = Some(LastOutcome::InProgress);
    }

    /// Records the outcome of a reconcile. External changes meanwhile are notified at once.
    pub fn finish_reconcile(&self, target: &str, outcome: LastOutcome) {
        let mut inner = self.lock();
        let entry = inner.entries.entry(target.to_owned()).or_default();
        entry.outcome = Some(outcome);
        if entry.needs_reconcile() {
            self.notify_changed(target);
        }
    }

    /// Drops a target.
    pub fn forget(&self, target: &str) {
        let mut inner = self.lock();
        if let Some(entry) = inner.entries.get_mut(target) {
            entry.outcome = None;
            if entry.seen.is_none() {
                inner.entries.remove(target);
            }
        }
    }

    /// Records an object from a response to a read or write of the driver. An older version is ignored.
    pub fn update_from_response(&self, target: &str, seen: ObservedNad) {
        self.update(target, seen.version, Some(seen), false);
    }

    /// Records a response that the object does not exist.
    pub fn remove_from_response(&self, target: &str) {
        let mut inner = self.lock();
        if let Some(entry) = inner.entries.get_mut(target) {
            entry.seen = None;
        }
    }

    /// Records an object from the watch.
    pub fn update_from_watch(&self, target: &str, seen: ObservedNad) {
        self.update(target, seen.version, Some(seen), true);
    }

    /// Records a deletion from the watch.
    pub fn remove_from_watch(&self, target: &str, version: u64) {
        self.update(target, version, None, true);
    }

    /// Begins a listing.
    pub fn start_listing(&self) {
        self.lock().listing.clear();
    }

    /// Records an object of a listing.
    pub fn add_listed(&self, target: &str, seen: ObservedNad) {
        self.lock().listing.insert(target.to_owned());
        self.update_from_watch(target, seen);
    }

    /// Completes a listing: objects that it lacked are gone, and failed targets may be retried.
    pub fn finish_listing(&self) {
        let mut inner = self.lock();
        let Inner { entries, listing } = &mut *inner;
        let was_broken = *self.watch.borrow() != WatchState::Synced;
        for (target, entry) in entries.iter_mut() {
            if !listing.contains(target) {
                // Also drops what was written after the listing was made; the watch adds it again.
                *entry = Entry { outcome: entry.outcome.take(), ..Entry::default() };
            }
            if entry.needs_reconcile()
                || (was_broken && matches!(entry.outcome, Some(LastOutcome::Failed(_))))
            {
                self.notify_changed(target);
            }
        }
        entries.retain(|_, entry| entry.seen.is_some() || entry.outcome.is_some());
        *listing = HashSet::new();
        drop(inner);
        self.watch.send_replace(WatchState::Synced);
        self.events.send_replace(());
    }

    /// Records that the watch failed.
    pub fn watch_failed(&self) {
        self.watch.send_replace(WatchState::Broken);
    }

    /// Records that the watch continues: failed targets may be retried.
    pub fn watch_resumed(&self) {
        if self
            .watch
            .send_if_modified(|watch| std::mem::replace(watch, WatchState::Synced) != WatchState::Synced)
        {
            for (target, entry) in &self.lock().entries {
                if matches!(entry.outcome, Some(LastOutcome::Failed(_))) {
                    self.notify_changed(target);
                }
            }
        }
    }

    fn update(&self, target: &str, version: u64, seen: Option<ObservedNad>, by_watch: bool) {
        let mut inner = self.lock();
        let entry = inner.entries.entry(target.to_owned()).or_default();
        // The watch repeats versions that a response had already; version 0 can't be compared.
        if version == 0 || version > entry.version || (version == entry.version && !by_watch) {
            entry.version = version;
            entry.seen = seen;
            if by_watch && entry.needs_reconcile() {
                self.notify_changed(target);
            }
        }
        if entry.seen.is_none() && entry.outcome.is_none() {
            inner.entries.remove(target);
        }
        drop(inner);
        self.events.send_replace(());
    }

    fn notify_changed(&self, target: &str) {
        // The receiver is missing without a host.
        let _ = self.changed.send(target.to_owned());
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // No code under the lock leaves it in an inconsistent state.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::core::DynamicObject;
    use serde_json::json;

    fn seen(version: u64, config: &str) -> ObservedNad {
        let object: DynamicObject = serde_json::from_value(json!({
            "apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
            "metadata": { "name": "net", "uid": "1", "resourceVersion": version.to_string() },
            "spec": { "config": config },
        }))
        .unwrap();
        ObservedNad::of(&object)
    }

    struct Fixture {
        cache: NadCache,
        changes: mpsc::UnboundedReceiver<String>,
    }

    impl Fixture {
        fn new() -> Self {
            let (sender, changes) = mpsc::unbounded_channel();
            let cache = NadCache::new(sender);
            cache.start_listing();
            cache.finish_listing();
            Self { cache, changes }
        }

        fn changes(&mut self) -> usize {
            std::iter::from_fn(|| self.changes.try_recv().ok()).count()
        }
    }

    /// Notifying unchanged objects would make the host reconcile for ever.
    #[test]
    fn own_writes_trigger_no_reconcile() {
        let mut fixture = Fixture::new();
        fixture.cache.update_from_watch("t", seen(5, "a"));
        for left in [
            LastOutcome::Present(seen(5, "a").content),
            LastOutcome::Settled(5),
            LastOutcome::Failed(5),
            LastOutcome::InProgress,
        ] {
            fixture.cache.start_reconcile("t");
            fixture.cache.finish_reconcile("t", left.clone());
            fixture.cache.update_from_watch("t", seen(5, "a"));
            assert_eq!(fixture.changes(), 0, "{left:?}");
        }
        for left in [LastOutcome::Settled(0), LastOutcome::Failed(0)] {
            fixture.cache.finish_reconcile("absent", left.clone());
            assert_eq!(fixture.changes(), 0, "{left:?}");
        }
    }

    #[test]
    fn foreign_writes_trigger_a_reconcile() {
        for left in
            [LastOutcome::Present(seen(5, "a").content), LastOutcome::Settled(5), LastOutcome::Failed(5)]
        {
            // After the reconcile, and during it.
            for during in [false, true] {
                for gone in [false, true] {
                    let mut fixture = Fixture::new();
                    fixture.cache.update_from_watch("t", seen(5, "a"));
                    fixture.cache.start_reconcile("t");
                    if !during {
                        fixture.cache.finish_reconcile("t", left.clone());
                    }
                    if gone {
                        fixture.cache.remove_from_watch("t", 6);
                    } else {
                        fixture.cache.update_from_watch("t", seen(6, "b"));
                    }
                    if during {
                        assert_eq!(fixture.changes(), 0);
                        fixture.cache.finish_reconcile("t", left.clone());
                    }
                    assert_eq!(fixture.changes(), 1, "{left:?} during: {during} gone: {gone}");
                    fixture.cache.forget("t");
                    fixture.cache.update_from_watch("t", seen(7, "c"));
                    assert_eq!(fixture.changes(), 0);
                }
            }
        }
    }

    #[test]
    fn stale_events_are_ignored() {
        let fixture = Fixture::new();
        fixture.cache.start_reconcile("t");
        fixture.cache.update_from_response("t", seen(7, "ours"));
        fixture.cache.update_from_watch("t", seen(6, "before"));
        fixture.cache.remove_from_watch("t", 6);
        assert_eq!(fixture.cache.seen("t"), Some(seen(7, "ours")));
        fixture.cache.remove_from_watch("t", 8);
        fixture.cache.update_from_response("t", seen(7, "ours"));
        assert_eq!(fixture.cache.seen("t"), None);
    }

    #[test]
    fn relist_replaces_known_objects() {
        let mut fixture = Fixture::new();
        for target in ["kept", "gone", "failed"] {
            fixture.cache.update_from_watch(target, seen(5, "a"));
        }
        fixture.cache.finish_reconcile("kept", LastOutcome::Present(seen(5, "a").content));
        fixture.cache.finish_reconcile("gone", LastOutcome::Present(seen(5, "a").content));
        fixture.cache.finish_reconcile("failed", LastOutcome::Failed(5));
        fixture.cache.watch_failed();
        fixture.cache.start_listing();
        fixture.cache.add_listed("kept", seen(5, "a"));
        fixture.cache.add_listed("failed", seen(5, "a"));
        assert_eq!(fixture.changes(), 0);
        fixture.cache.finish_listing();
        let mut changes: Vec<String> = std::iter::from_fn(|| fixture.changes.try_recv().ok()).collect();
        changes.sort();
        assert_eq!(changes, ["failed", "gone"]);
        assert_eq!(*fixture.cache.watch().borrow(), WatchState::Synced);
    }
}
