//! Which parts of commands NATS stores, which of them a command names, and what follows: what to publish before a head,
//! what to publish again, and what to purge. Without IO. Times are since the beginning of the leadership.
//!
//! A part is named by its content, so a copy that is stored twice or late does no harm. The ledger knows the copies by
//! their sequences, and a purge deletes the copy of its sequence alone. A part that is named again while a purge is
//! under way counts as not stored. It is published again, and the purge does not touch the new copy.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use eno_core::{Name, Target};
use eno_schemas::{Desired, PartHash, Tree};

/// For how long no command names a part before it is purged. A driver that reads an older head has a newer one by then.
pub const PART_GRACE: Duration = Duration::from_secs(30);
/// Maximum purges under way.
const MAX_PURGES: usize = 128;
/// Maximum heads of a target of which it is not known whether NATS stored them.
const MAX_PENDING: usize = 4;
/// Delay before parts are published again after a failure.
const RETRY_DELAY: Duration = Duration::from_millis(500);

/// A switch, and the driver in the subjects of its parts.
pub type Place = (Target, Name);

/// The sequences of stored parts.
pub type Sequences = BTreeMap<Place, BTreeMap<PartHash, u64>>;

/// The desired state of a switch, and its tree.
#[derive(Clone, Debug)]
pub struct SwitchState {
    tree: Arc<Tree>,
    desired: Arc<Desired>,
}

impl SwitchState {
    /// `tree`: that of the state, which is a switch's.
    pub fn new(desired: Arc<Desired>, tree: Arc<Tree>) -> Self {
        Self { tree, desired }
    }

    /// The hash of its root part.
    pub fn root(&self) -> PartHash {
        self.tree.root()
    }

    /// The payload of one of its parts. `None`: it has no such part.
    pub fn payload(&self, part: PartHash) -> Option<Vec<u8>> {
        match &*self.desired {
            Desired::Fabric(fabric) => self.tree.payload(fabric, part),
            Desired::Nad(_) | Desired::Node(_) | Desired::Speaker(_) => None,
        }
    }

    fn names(&self, part: PartHash) -> bool {
        self.tree.parts().any(|one| one == part)
    }
}

/// Something that happened to the parts on NATS.
#[derive(Debug)]
pub enum PartsEvent {
    /// NATS lost the stream of the parts, which was recreated empty.
    StreamLost,
    /// All parts are about to be read.
    ReadingBegins,
    /// All parts were read: these are stored.
    Read(Sequences),
    /// A part was stored at this sequence, as the stream shows.
    Stored(Place, PartHash, u64),
    /// Parts were published before a head, and stored at these sequences.
    Published(Place, Vec<(PartHash, u64)>),
    /// NATS stored a command: a head with this root, or (`None`) a whole command.
    CommandStored(Place, Option<PartHash>),
    /// The publication of a command failed. It may be stored nevertheless.
    CommandNotStored(Place),
    /// Parts were published again, and stored at these sequences; false: that failed for one of them.
    Resent(Place, Vec<(PartHash, u64)>, bool),
    /// A purge has ended; false: it failed.
    Purged(Purge, bool),
    /// All messages about a target on the subjects of this driver are purged.
    Forgotten(Place),
}

impl PartsEvent {
    /// The messages about a target on the subjects of this driver were purged, or that failed. Parts that are left are
    /// without a command.
    pub fn forgotten(place: Place, done: bool) -> Self {
        if done { Self::Forgotten(place) } else { Self::CommandStored(place, None) }
    }
}

/// Parts that have to be published again.
#[derive(Clone, Debug)]
pub struct Resend {
    /// Of this switch.
    pub place: Place,
    /// The state that has them.
    pub state: SwitchState,
    /// The parts.
    pub parts: Vec<PartHash>,
}

/// The copy of a part that has to be purged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Purge {
    /// Of this switch.
    pub place: Place,
    /// The part.
    pub part: PartHash,
    /// The sequence of the copy.
    pub sequence: u64,
}

/// Which parts are stored, and which are needed. What it keeps is bounded by what the stream holds.
#[derive(Debug, Default)]
pub struct Ledger {
    places: BTreeMap<Place, PlaceParts>,
    /// Stored parts that no command names, and since when.
    unnamed: BTreeSet<(Duration, Place, PartHash)>,
    /// Copies that are being purged, or were during a reading, which may have seen them.
    purging: BTreeMap<(Place, PartHash), u64>,
    /// Those of them whose purge has ended.
    ended_purges: Vec<(Place, PartHash)>,
    /// Switches whose stored head may lack parts, and the time before which none is published again.
    suspect: BTreeMap<Place, Duration>,
    /// Number of readings that began so far.
    readings: u64,
    /// The last reading has not ended.
    is_reading: bool,
}

#[derive(Debug, Default)]
struct PlaceParts {
    stored: BTreeMap<PartHash, StoredPart>,
    /// What the stored head names; `None`: the stored command is whole, or there is none.
    head: Option<SwitchState>,
    /// Heads of which it is not known whether NATS stored them, the newest last.
    pending: Vec<SwitchState>,
    /// A head is being published with its parts, since this number of readings.
    publishing: Option<u64>,
    /// Parts are being published again, since this number of readings.
    resending: Option<u64>,
}

#[derive(Debug)]
struct StoredPart {
    sequence: u64,
    /// The number of readings that had begun when this was known.
    reading: u64,
    /// Since when no command names it.
    unnamed: Option<Duration>,
    /// A driver did not find it there, or it was purged meanwhile: it has to be published again if a command names it.
    is_lacking: bool,
}

impl PlaceParts {
    fn states(&self) -> impl Iterator<Item = &SwitchState> {
        self.head.iter().chain(&self.pending)
    }

    fn names(&self, part: PartHash) -> bool {
        self.states().any(|state| state.names(part))
    }

    /// True if a driver finds the part.
    fn has(&self, part: PartHash) -> bool {
        self.stored.get(&part).is_some_and(|stored| !stored.is_lacking)
    }

    /// Nothing of the switch is being published.
    fn is_free(&self) -> bool {
        self.publishing.is_none() && self.resending.is_none()
    }

    fn is_empty(&self) -> bool {
        self.stored.is_empty() && self.head.is_none() && self.pending.is_empty() && self.is_free()
    }
}

impl Ledger {
    /// Before this leadership, NATS stored a head of this state.
    pub fn restore_head(&mut self, place: Place, state: SwitchState) {
        self.places.entry(place).or_default().head = Some(state);
    }

    /// Takes in what happened.
    pub fn on_event(&mut self, event: PartsEvent, now: Duration) {
        match event {
            PartsEvent::StreamLost => self.stream_lost(now),
            PartsEvent::ReadingBegins => {
                self.readings += 1;
                self.is_reading = true;
                self.drop_ended_purges();
            }
            PartsEvent::Read(stored) => {
                self.is_reading = false;
                self.replace_stored(&stored, now);
                self.drop_ended_purges();
            }
            PartsEvent::Stored(place, part, sequence) => self.insert(&place, part, sequence, now),
            PartsEvent::Published(place, parts) => {
                let since = self.places.get(&place).and_then(|parts| parts.publishing);
                self.acknowledged(&place, parts, since, now);
            }
            PartsEvent::CommandStored(place, root) => self.command_stored(&place, root, now),
            PartsEvent::CommandNotStored(place) => {
                if let Some(parts) = self.places.get_mut(&place) {
                    parts.publishing = None;
                }
            }
            PartsEvent::Resent(place, parts, done) => {
                let since = self.places.get_mut(&place).and_then(|parts| parts.resending.take());
                self.acknowledged(&place, parts, since, now);
                if !done {
                    self.suspect.insert(place, now + RETRY_DELAY);
                }
            }
            PartsEvent::Purged(Purge { place, part, sequence }, done) => {
                self.ended_purges.push((place.clone(), part));
                if !self.is_reading {
                    self.drop_ended_purges();
                }
                if !done && !self.is_stored(&place, part) {
                    self.insert(&place, part, sequence, now);
                }
            }
            PartsEvent::Forgotten(place) => self.forget(&place),
        }
    }

    /// NATS lost the stream of the parts.
    pub fn stream_lost(&mut self, now: Duration) {
        self.readings += 1;
        self.replace_stored(&Sequences::new(), now);
    }

    /// A head of this state is about to be published. Returns the parts that have to be stored before.
    pub fn publish(&mut self, place: &Place, state: &SwitchState, now: Duration) -> Vec<PartHash> {
        let is_suspect = self.suspect.contains_key(place);
        let parts = self.places.entry(place.clone()).or_default();
        let all_of_head_are_stored = !is_suspect && parts.resending.is_none();
        let mut missing = match parts.head.as_ref().filter(|_| all_of_head_are_stored) {
            Some(head) => state.tree.difference(&head.tree).0,
            None => state.tree.parts().collect(),
        };
        missing.retain(|part| match parts.stored.get_mut(part) {
            Some(stored) => {
                if let Some(since) = stored.unnamed.take() {
                    self.unnamed.remove(&(since, place.clone(), *part));
                }
                stored.is_lacking
            }
            None => true,
        });
        parts.pending.retain(|pending| pending.root() != state.root());
        parts.pending.push(state.clone());
        parts.publishing = Some(self.readings);
        if parts.pending.len() > MAX_PENDING {
            let dropped = parts.pending.remove(0);
            let kept: BTreeSet<PartHash> = parts.states().flat_map(|state| state.tree.parts()).collect();
            let left = dropped.tree.parts().filter(|part| !kept.contains(part)).collect();
            self.mark_unnamed(place, left, now);
        }
        missing
    }

    /// A driver lacks these parts of a head with this root. They count as not stored if the head is the last one.
    pub fn lacking(&mut self, place: &Place, root: PartHash, lacking: &[PartHash], now: Duration) {
        let Some(parts) = self.places.get_mut(place) else { return };
        let Some(state) = parts.states().find(|state| state.root() == root).cloned() else { return };
        for part in lacking.iter().filter(|part| state.names(**part)) {
            if let Some(stored) = parts.stored.get_mut(part) {
                stored.is_lacking = true;
            }
            self.suspect.entry(place.clone()).or_insert(now);
        }
    }

    /// The parts that have to be published again now: a stored head names them, and NATS does not store them. Switches
    /// whose next head is being published are left to a later call.
    pub fn resends(&mut self, now: Duration) -> Vec<Resend> {
        let mut resends = Vec::new();
        if self.is_reading {
            return resends;
        }
        let readings = self.readings;
        self.suspect.retain(|place, not_before| {
            let Some(parts) = self.places.get_mut(place) else { return false };
            if !parts.is_free() || *not_before > now {
                return true;
            }
            let Some(state) = parts.head.clone() else { return false };
            let lacking: Vec<PartHash> = state.tree.parts().filter(|part| !parts.has(*part)).collect();
            if !lacking.is_empty() {
                parts.resending = Some(readings);
                resends.push(Resend { place: place.clone(), state, parts: lacking });
            }
            false
        });
        resends
    }

    /// The copies that have to be purged now. Each counts as not stored from now on.
    pub fn purges(&mut self, now: Duration) -> Vec<Purge> {
        let mut purges = Vec::new();
        while self.may_purge()
            && self.unnamed.first().is_some_and(|(since, ..)| *since + PART_GRACE <= now)
            && let Some((_, place, part)) = self.unnamed.pop_first()
        {
            let Some(parts) = self.places.get_mut(&place) else { continue };
            let Some(StoredPart { sequence, .. }) = parts.stored.remove(&part) else { continue };
            if parts.is_empty() {
                self.places.remove(&place);
            }
            self.purging.insert((place.clone(), part), sequence);
            purges.push(Purge { place, part, sequence });
        }
        purges
    }

    /// When there may be something to purge or to publish again, if nothing happens before.
    pub fn next(&self) -> Option<Duration> {
        let purge = self.unnamed.first().filter(|_| self.may_purge()).map(|(since, ..)| *since + PART_GRACE);
        let is_free = |place: &Place| self.places.get(place).is_none_or(PlaceParts::is_free);
        let suspect = self.suspect.iter().filter(|(place, _)| !self.is_reading && is_free(place));
        purge.into_iter().chain(suspect.map(|(_, not_before)| *not_before)).min()
    }

    /// True if the last command of the switch may be a head with this root.
    pub fn is_head(&self, place: &Place, root: &str) -> bool {
        let parts = self.places.get(place);
        parts.is_some_and(|parts| parts.states().any(|state| state.root().to_string() == root))
    }

    /// The switches whose last command may be a head.
    pub fn heads(&self) -> impl Iterator<Item = &Place> {
        self.places.iter().filter(|(_, parts)| parts.states().next().is_some()).map(|(place, _)| place)
    }

    /// What a reading shows is not older than a purge.
    fn may_purge(&self) -> bool {
        !self.is_reading && self.purging.len() < MAX_PURGES
    }

    fn drop_ended_purges(&mut self) {
        for ended in self.ended_purges.drain(..) {
            self.purging.remove(&ended);
        }
    }

    fn is_stored(&self, place: &Place, part: PartHash) -> bool {
        self.places.get(place).is_some_and(|parts| parts.stored.contains_key(&part))
    }

    /// NATS acknowledged parts whose publication had begun after this number of readings. A part that it acknowledged
    /// before the last reading may be lost since, and the reading tells.
    fn acknowledged(
        &mut self,
        place: &Place,
        parts: Vec<(PartHash, u64)>,
        since: Option<u64>,
        now: Duration,
    ) {
        if since != Some(self.readings) {
            self.suspect.entry(place.clone()).or_insert(now);
            return;
        }
        for (part, sequence) in parts {
            self.insert(place, part, sequence, now);
        }
    }

    /// A copy of a part is stored.
    fn insert(&mut self, place: &Place, part: PartHash, sequence: u64, now: Duration) {
        let purged = self.purging.get(&(place.clone(), part));
        let is_lacking = purged.is_some_and(|purged| sequence <= *purged);
        let parts = self.places.entry(place.clone()).or_default();
        let reading = self.readings;
        if let Some(stored) = parts.stored.get_mut(&part) {
            stored.is_lacking &= sequence <= stored.sequence;
            stored.sequence = stored.sequence.max(sequence);
            stored.reading = reading;
            return;
        }
        let unnamed = (!parts.names(part)).then_some(now);
        self.unnamed.extend(unnamed.map(|since| (since, place.clone(), part)));
        parts.stored.insert(part, StoredPart { sequence, reading, unnamed, is_lacking });
    }

    /// All parts were read. What was stored after the reading began may be missing in `found`.
    fn replace_stored(&mut self, found: &Sequences, now: Duration) {
        let reading = self.readings;
        let none = BTreeMap::new();
        for (place, parts) in &mut self.places {
            let found = found.get(place).unwrap_or(&none);
            parts.stored.retain(|part, stored| {
                if stored.reading == reading {
                    return true;
                }
                // The sequences of a restored stream are lower.
                let sequence = found.get(part).copied();
                stored.sequence = sequence.unwrap_or(stored.sequence);
                if let (None, Some(since)) = (sequence, stored.unnamed) {
                    self.unnamed.remove(&(since, place.clone(), *part));
                }
                sequence.is_some()
            });
            if parts.head.is_some() {
                self.suspect.entry(place.clone()).or_insert(now);
            }
        }
        for (place, parts) in found {
            for (part, sequence) in parts {
                if !self.is_stored(place, *part) {
                    self.insert(place, *part, *sequence, now);
                }
            }
        }
        self.places.retain(|_, parts| !parts.is_empty());
    }

    fn command_stored(&mut self, place: &Place, root: Option<PartHash>, now: Duration) {
        let Some(parts) = self.places.get_mut(place) else { return };
        parts.publishing = None;
        let former: Vec<SwitchState> = parts.head.take().into_iter().chain(parts.pending.drain(..)).collect();
        parts.head = former.iter().find(|state| Some(state.root()) == root).cloned();
        let left = former.iter().flat_map(|state| match &parts.head {
            Some(head) => state.tree.difference(&head.tree).0,
            None => state.tree.parts().collect(),
        });
        let left = left.collect();
        self.mark_unnamed(place, left, now);
    }

    /// No command names these parts any more.
    fn mark_unnamed(&mut self, place: &Place, left: Vec<PartHash>, since: Duration) {
        let Some(parts) = self.places.get_mut(place) else { return };
        for part in left {
            if let Some(stored) = parts.stored.get_mut(&part)
                && stored.unnamed.is_none()
            {
                stored.unnamed = Some(since);
                self.unnamed.insert((since, place.clone(), part));
            }
        }
    }

    fn forget(&mut self, place: &Place) {
        if let Some(parts) = self.places.remove(place) {
            for (part, stored) in parts.stored {
                if let Some(since) = stored.unnamed {
                    self.unnamed.remove(&(since, place.clone(), part));
                }
            }
        }
        self.suspect.remove(place);
    }
}

#[cfg(test)]
mod tests;
