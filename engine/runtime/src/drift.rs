//! What differs on switches from what should be there, and since when that is known. Pure.

use std::collections::{BTreeSet, HashMap};

use eno_core::Name;
use eno_schemas::Report;

/// The kind of notes that tell of drift.
pub const DRIFT: &str = "Drift";

/// The differences on each switch, as last reported.
#[derive(Debug, Default)]
pub struct Drifts(HashMap<Name, BTreeSet<String>>);

impl Drifts {
    /// Takes in a report; the differences that were not there at the one before.
    pub fn take(&mut self, name: &Name, report: &Report) -> Vec<String> {
        let notes = report.notes.iter().filter(|note| note.kind == DRIFT);
        let found: BTreeSet<String> = notes.map(|note| note.message.clone()).collect();
        let before = self.0.remove(name).unwrap_or_default();
        let new = found.difference(&before).cloned().collect();
        if !found.is_empty() {
            self.0.insert(name.clone(), found);
        }
        new
    }
}

#[cfg(test)]
mod tests {
    use eno_schemas::{Generation, Item, Note, Outcome};

    use super::*;

    fn report(drifts: &[&str]) -> Report {
        let note = |kind: &str, message: &str| Note {
            kind: kind.into(),
            item: Item::TARGET,
            message: message.into(),
        };
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

    #[test]
    fn a_difference_is_told_once_for_as_long_as_it_is_there() {
        let (mut drifts, leaf) = (Drifts::default(), Name::from("leaf1"));
        assert_eq!(drifts.take(&leaf, &report(&["a"])), ["a"]);
        assert_eq!(drifts.take(&leaf, &report(&["a", "b"])), ["b"]);
        assert!(drifts.take(&leaf, &report(&["a", "b"])).is_empty());
        assert_eq!(drifts.take(&"leaf2".into(), &report(&["a"])), ["a"]);
        // It was repaired, and is there again.
        assert!(drifts.take(&leaf, &report(&[])).is_empty());
        assert_eq!(drifts.take(&leaf, &report(&["a"])), ["a"]);
    }
}
