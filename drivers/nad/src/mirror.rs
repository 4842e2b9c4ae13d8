//! What is known of all NetworkAttachmentDefinitions, and what each target was left at.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::{mpsc, watch};

use crate::object::{Content, Seen};

/// Whether the watch can be believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watch {
    /// The first listing isn't complete yet.
    Starting,
    /// What is here is what is there, but for what is under way.
    Synced,
    /// The watch failed, and is tried again. That it goes on where it stopped is known by its next event.
    Broken,
}

/// What a reconciliation left a target at. What differs from it was done by another hand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Left {
    /// Being worked on: looked at when that is done.
    Working,
    /// There, saying this.
    Present(Content),
    /// Not as wanted, and nothing of ours to change, while it stays at this version: someone else's, say. 0: nothing
    /// is there.
    Other(u64),
    /// It failed. A change from this version may help, and so may the watch when it goes on.
    Unsettled(u64),
}

#[derive(Default)]
struct Entry {
    /// The newest version heard of, whether by the watch or by an answer.
    version: u64,
    seen: Option<Seen>,
    /// `None`: no target of ours.
    left: Option<Left>,
}

impl Entry {
    /// Something happened that a reconciliation should look at.
    fn differs(&self) -> bool {
        let version = self.seen.as_ref().map_or(0, |seen| seen.version);
        match (&self.left, &self.seen) {
            (None | Some(Left::Working), _) => false,
            (Some(Left::Present(content)), Some(seen)) => {
                seen.content != *content || seen.finalizers.is_some()
            }
            (Some(Left::Present(_)), None) => true,
            (Some(Left::Other(left) | Left::Unsettled(left)), _) => version != *left,
        }
    }
}

struct Inner {
    entries: HashMap<String, Entry>,
    listing: HashSet<String>,
}

/// Shared by the watch and the reconciliations.
pub struct Mirror {
    inner: Mutex<Inner>,
    watch: watch::Sender<Watch>,
    /// Sent to on every event, so that one can wait for an object to go.
    events: watch::Sender<()>,
    changed: mpsc::UnboundedSender<String>,
}

impl Mirror {
    /// An empty mirror that tells `changed` of targets to reconcile again.
    pub fn new(changed: mpsc::UnboundedSender<String>) -> Self {
        Self {
            inner: Mutex::new(Inner { entries: HashMap::new(), listing: HashSet::new() }),
            watch: watch::Sender::new(Watch::Starting),
            events: watch::Sender::new(()),
            changed,
        }
    }

    /// Follows the state of the watch.
    pub fn watch(&self) -> watch::Receiver<Watch> {
        self.watch.subscribe()
    }

    /// Wakes on every event from now on.
    pub fn events(&self) -> watch::Receiver<()> {
        self.events.subscribe()
    }

    /// What was last seen under a name.
    pub fn seen(&self, target: &str) -> Option<Seen> {
        self.lock().entries.get(target).and_then(|entry| entry.seen.clone())
    }

    /// A reconciliation begins.
    pub fn work_on(&self, target: &str) {
        self.lock().entries.entry(target.to_owned()).or_default().left = Some(Left::Working);
    }

    /// A reconciliation is over. What another hand did meanwhile is told at once.
    pub fn leave(&self, target: &str, left: Left) {
        let mut inner = self.lock();
        let entry = inner.entries.entry(target.to_owned()).or_default();
        entry.left = Some(left);
        if entry.differs() {
            self.tell(target);
        }
    }

    /// The target is none of ours any more.
    pub fn forget(&self, target: &str) {
        let mut inner = self.lock();
        if let Some(entry) = inner.entries.get_mut(target) {
            entry.left = None;
            if entry.seen.is_none() {
                inner.entries.remove(target);
            }
        }
    }

    /// The API server answered a read or a write of ours: this is there. Older than what is known: ignored.
    pub fn answered(&self, target: &str, seen: Seen) {
        self.update(target, seen.version, Some(seen), false);
    }

    /// The API server answered that nothing of that name is there.
    pub fn answered_gone(&self, target: &str) {
        let mut inner = self.lock();
        if let Some(entry) = inner.entries.get_mut(target) {
            entry.seen = None;
        }
    }

    /// The watch saw an object.
    pub fn observed(&self, target: &str, seen: Seen) {
        self.update(target, seen.version, Some(seen), true);
    }

    /// The watch saw an object go.
    pub fn observed_gone(&self, target: &str, version: u64) {
        self.update(target, version, None, true);
    }

    /// A listing begins.
    pub fn listing(&self) {
        self.lock().listing.clear();
    }

    /// An object of a listing.
    pub fn listed(&self, target: &str, seen: Seen) {
        self.lock().listing.insert(target.to_owned());
        self.observed(target, seen);
    }

    /// A listing is complete: what it didn't have is gone, and what failed may be tried again.
    pub fn listing_done(&self) {
        let mut inner = self.lock();
        let Inner { entries, listing } = &mut *inner;
        let was_broken = *self.watch.borrow() != Watch::Synced;
        for (target, entry) in entries.iter_mut() {
            if !listing.contains(target) {
                // Also what was written after the listing was made: the watch brings it back.
                *entry = Entry { left: entry.left.take(), ..Entry::default() };
            }
            if entry.differs() || (was_broken && matches!(entry.left, Some(Left::Unsettled(_)))) {
                self.tell(target);
            }
        }
        entries.retain(|_, entry| entry.seen.is_some() || entry.left.is_some());
        *listing = HashSet::new();
        drop(inner);
        self.watch.send_replace(Watch::Synced);
        self.events.send_replace(());
    }

    /// The watch failed.
    pub fn broken(&self) {
        self.watch.send_replace(Watch::Broken);
    }

    /// The watch goes on: what failed may be tried again.
    pub fn resumed(&self) {
        if self.watch.send_if_modified(|watch| std::mem::replace(watch, Watch::Synced) != Watch::Synced) {
            for (target, entry) in &self.lock().entries {
                if matches!(entry.left, Some(Left::Unsettled(_))) {
                    self.tell(target);
                }
            }
        }
    }

    fn update(&self, target: &str, version: u64, seen: Option<Seen>, by_watch: bool) {
        let mut inner = self.lock();
        let entry = inner.entries.entry(target.to_owned()).or_default();
        // The watch repeats what an answer said before; 0 can't be compared.
        if version == 0 || version > entry.version || (version == entry.version && !by_watch) {
            entry.version = version;
            entry.seen = seen;
            if by_watch && entry.differs() {
                self.tell(target);
            }
        }
        if entry.seen.is_none() && entry.left.is_none() {
            inner.entries.remove(target);
        }
        drop(inner);
        self.events.send_replace(());
    }

    fn tell(&self, target: &str) {
        // Without a host nobody listens.
        let _ = self.changed.send(target.to_owned());
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Nothing that runs under the lock leaves it half done.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::core::DynamicObject;
    use serde_json::json;

    fn seen(version: u64, config: &str) -> Seen {
        let object: DynamicObject = serde_json::from_value(json!({
            "apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
            "metadata": { "name": "net", "uid": "1", "resourceVersion": version.to_string() },
            "spec": { "config": config },
        }))
        .unwrap();
        Seen::of(&object)
    }

    struct Fixture {
        mirror: Mirror,
        told: mpsc::UnboundedReceiver<String>,
    }

    impl Fixture {
        fn new() -> Self {
            let (tell, told) = mpsc::unbounded_channel();
            let mirror = Mirror::new(tell);
            mirror.listing();
            mirror.listing_done();
            Self { mirror, told }
        }

        fn told(&mut self) -> usize {
            std::iter::from_fn(|| self.told.try_recv().ok()).count()
        }
    }

    /// Telling of a state that nobody changed would make the host work without end.
    #[test]
    fn what_was_left_is_not_told() {
        let mut fixture = Fixture::new();
        fixture.mirror.observed("t", seen(5, "a"));
        for left in [Left::Present(seen(5, "a").content), Left::Other(5), Left::Unsettled(5), Left::Working] {
            fixture.mirror.work_on("t");
            fixture.mirror.leave("t", left.clone());
            fixture.mirror.observed("t", seen(5, "a"));
            assert_eq!(fixture.told(), 0, "{left:?}");
        }
        for left in [Left::Other(0), Left::Unsettled(0)] {
            fixture.mirror.leave("absent", left.clone());
            assert_eq!(fixture.told(), 0, "{left:?}");
        }
    }

    #[test]
    fn what_another_hand_did_is_told() {
        for left in [Left::Present(seen(5, "a").content), Left::Other(5), Left::Unsettled(5)] {
            // After the work, and during it.
            for during in [false, true] {
                for gone in [false, true] {
                    let mut fixture = Fixture::new();
                    fixture.mirror.observed("t", seen(5, "a"));
                    fixture.mirror.work_on("t");
                    if !during {
                        fixture.mirror.leave("t", left.clone());
                    }
                    if gone {
                        fixture.mirror.observed_gone("t", 6);
                    } else {
                        fixture.mirror.observed("t", seen(6, "b"));
                    }
                    if during {
                        assert_eq!(fixture.told(), 0);
                        fixture.mirror.leave("t", left.clone());
                    }
                    assert_eq!(fixture.told(), 1, "{left:?} during: {during} gone: {gone}");
                    fixture.mirror.forget("t");
                    fixture.mirror.observed("t", seen(7, "c"));
                    assert_eq!(fixture.told(), 0);
                }
            }
        }
    }

    #[test]
    fn older_words_are_ignored() {
        let fixture = Fixture::new();
        fixture.mirror.work_on("t");
        fixture.mirror.answered("t", seen(7, "ours"));
        fixture.mirror.observed("t", seen(6, "before"));
        fixture.mirror.observed_gone("t", 6);
        assert_eq!(fixture.mirror.seen("t"), Some(seen(7, "ours")));
        fixture.mirror.observed_gone("t", 8);
        fixture.mirror.answered("t", seen(7, "ours"));
        assert_eq!(fixture.mirror.seen("t"), None);
    }

    #[test]
    fn a_listing_replaces_what_was_known() {
        let mut fixture = Fixture::new();
        for target in ["kept", "gone", "failed"] {
            fixture.mirror.observed(target, seen(5, "a"));
        }
        fixture.mirror.leave("kept", Left::Present(seen(5, "a").content));
        fixture.mirror.leave("gone", Left::Present(seen(5, "a").content));
        fixture.mirror.leave("failed", Left::Unsettled(5));
        fixture.mirror.broken();
        fixture.mirror.listing();
        fixture.mirror.listed("kept", seen(5, "a"));
        fixture.mirror.listed("failed", seen(5, "a"));
        assert_eq!(fixture.told(), 0);
        fixture.mirror.listing_done();
        let mut told: Vec<String> = std::iter::from_fn(|| fixture.told.try_recv().ok()).collect();
        told.sort();
        assert_eq!(told, ["failed", "gone"]);
        assert_eq!(*fixture.mirror.watch().borrow(), Watch::Synced);
    }
}
