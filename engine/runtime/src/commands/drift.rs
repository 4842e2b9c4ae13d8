//! Finds notes in reports that are new since the previous report of the switch. Pure.

use std::collections::{BTreeSet, HashMap};

use eno_core::Name;
use eno_schemas::{Drift, Report, Text};

/// Kind of the notes about drift.
pub const DRIFT: &str = "Drift";

/// The notes of one kind in the last report of each switch.
#[derive(Debug)]
pub struct NoteTracker {
    kind: &'static str,
    last: HashMap<Name, BTreeSet<Text>>,
}

impl NoteTracker {
    /// Tracks notes of one kind.
    pub fn new(kind: &'static str) -> Self {
        Self { kind, last: HashMap::new() }
    }

    /// Takes a report and returns the notes that the previous report did not have. A switch with the policy `Repair`
    /// reports a change together with the drift that it removed, so those notes are not kept.
    pub fn new_notes(&mut self, name: &Name, report: &Report, policy: Drift) -> Vec<Text> {
        let notes = report.notes.iter().filter(|note| note.kind == self.kind);
        let found: BTreeSet<Text> = notes.map(|note| note.message.clone()).collect();
        let before = self.last.remove(name).unwrap_or_default();
        if policy == Drift::Repair && report.change.is_some() {
            return found.into_iter().collect();
        }
        let new = found.difference(&before).cloned().collect();
        if !found.is_empty() {
            self.last.insert(name.clone(), found);
        }
        new
    }
}

#[cfg(test)]
mod tests {
    use eno_schemas::{ChangeReport, Generation, Item, Note, Outcome};

    use super::*;

    fn note(kind: &str, message: &str) -> Note {
        Note { kind: kind.into(), item: Item::TARGET, message: message.into() }
    }

    fn report(drifts: &[&str]) -> Report {
        Report {
            driver: "netconf".into(),
            target: "leaf1".into(),
            instance: "i".into(),
            generation: Generation { term: 1, sequence: 1, hash: "a".into() },
            at: "2026-01-01T00:00:00Z".into(),
            outcome: Outcome::Applied,
            applied: None,
            rejected: Vec::new(),
            notes: drifts
                .iter()
                .map(|message| note(DRIFT, message))
                .chain([note("OpenTrunk", "x")])
                .collect(),
            device: None,
            change: None,
        }
    }

    fn changed(drifts: &[&str]) -> Report {
        let at = "2026-01-01T00:00:00Z".into();
        let change = ChangeReport { transaction: None, at, took_ms: 5, added: 1, removed: 0 };
        Report { change: Some(change), ..report(drifts) }
    }

    #[test]
    fn persisting_drift_is_reported_once() {
        let (mut drifts, leaf) = (NoteTracker::new(DRIFT), Name::from("leaf1"));
        let mut take = |name: &Name, report: Report| drifts.new_notes(name, &report, Drift::Report);
        assert_eq!(take(&leaf, report(&["a"])), ["a"]);
        assert_eq!(take(&leaf, report(&["a", "b"])), ["b"]);
        assert!(take(&leaf, report(&["a", "b"])).is_empty());
        assert!(take(&leaf, changed(&["a", "b"])).is_empty(), "the change was another one");
        assert_eq!(take(&"leaf2".into(), report(&["a"])), ["a"]);
        // The drift was removed by a user and comes back.
        assert!(take(&leaf, report(&[])).is_empty());
        assert_eq!(take(&leaf, report(&["a"])), ["a"]);
    }

    #[test]
    fn tracker_ignores_notes_of_other_kinds() {
        let leaf = Name::from("leaf1");
        let mut taken_off = NoteTracker::new(eno_schemas::VLAN_TAKEN_OFF);
        let mut report = report(&["a"]);
        assert!(taken_off.new_notes(&leaf, &report, Drift::Report).is_empty());
        report.notes.push(note(eno_schemas::VLAN_TAKEN_OFF, "b"));
        assert_eq!(taken_off.new_notes(&leaf, &report, Drift::Report), ["b"]);
        assert!(taken_off.new_notes(&leaf, &report, Drift::Report).is_empty());
    }

    #[test]
    fn repaired_drift_is_reported_on_each_recurrence() {
        let (mut drifts, leaf) = (NoteTracker::new(DRIFT), Name::from("leaf1"));
        let mut take = |report: Report| drifts.new_notes(&leaf, &report, Drift::Repair);
        for _ in 0..2 {
            assert_eq!(take(changed(&["a"])), ["a"]);
        }
        // Drift that could not be repaired stays.
        assert_eq!(take(report(&["a"])), ["a"]);
        assert!(take(report(&["a"])).is_empty());
    }
}
