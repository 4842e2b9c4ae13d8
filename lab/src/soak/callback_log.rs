//! Checks the callbacks of each object: ordered, without gaps, and as recent as its status. Pure.

use std::collections::BTreeMap;

use crate::receiver::Callback;

/// All objects with callbacks, by uid.
#[derive(Debug, Default)]
pub(super) struct CallbackLog {
    objects: BTreeMap<String, Object>,
    /// Number of repeated callbacks.
    pub(super) repeated: u64,
    violations: Vec<String>,
}

#[derive(Debug, Default)]
struct Object {
    name: String,
    /// The ids in the order of the transitions, the first for transition 1.
    ids: Vec<String>,
    phase: String,
}

/// An existing object, with the number and phase of the transition in its status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LiveObject {
    pub(super) name: String,
    pub(super) transitions: u64,
    pub(super) phase: String,
}

impl CallbackLog {
    /// Records callbacks in the order of arrival.
    pub(super) fn record(&mut self, callbacks: impl IntoIterator<Item = Callback>) {
        for callback in callbacks {
            self.record_one(callback);
        }
    }

    fn record_one(&mut self, callback: Callback) {
        let Callback { id, transition, object: name, uid, phase, .. } = callback;
        let object = self.objects.entry(uid).or_default();
        if object.ids.contains(&id) {
            self.repeated += 1;
            return;
        }
        let next = object.ids.len() as u64 + 1;
        if transition != next {
            self.violations.push(format!("{name}: callback {transition} ({phase}) came instead of {next}"));
        }
        object.name = name;
        object.phase = phase;
        object.ids.push(id);
    }

    /// Callbacks that came out of order, kept for good.
    pub(super) fn violations(&self) -> &[String] {
        &self.violations
    }

    /// The objects whose callbacks are behind their status.
    pub(super) fn missing(&self, live_objects: &BTreeMap<String, LiveObject>) -> Vec<String> {
        let mut missing = Vec::new();
        for (uid, object_now) in live_objects {
            let (number, phase) = self
                .objects
                .get(uid)
                .map_or((0, "nothing"), |object| (object.ids.len() as u64, object.phase.as_str()));
            // The engine does not rewrite an equal status for the number alone.
            if number < object_now.transitions || phase != object_now.phase {
                missing.push(format!(
                    "{}: callback {number} says {phase}, its status {} of transition {}",
                    object_now.name, object_now.phase, object_now.transitions
                ));
            }
        }
        let gone = self.objects.iter().filter(|(uid, _)| !live_objects.contains_key(*uid));
        let unreported = gone.filter(|(_, object)| object.phase != "deleted");
        missing.extend(
            unreported.map(|(_, object)| {
                format!("{} is gone, its last callback says {}", object.name, object.phase)
            }),
        );
        missing
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    fn callback(transition: u64, phase: &str) -> Callback {
        Callback {
            at: Instant::now(),
            id: format!("u-{transition}"),
            transition,
            object: "L2Service a".to_owned(),
            uid: "u".to_owned(),
            phase: phase.to_owned(),
            body: serde_json::Value::Null,
        }
    }

    fn live_objects(transitions: u64, phase: &str) -> BTreeMap<String, LiveObject> {
        let name = "L2Service a".to_owned();
        BTreeMap::from([("u".to_owned(), LiveObject { name, transitions, phase: phase.to_owned() })])
    }

    #[test]
    fn repeated_callbacks_are_dropped_and_the_final_one_is_awaited() {
        let mut callback_log = CallbackLog::default();
        callback_log.record([
            callback(1, "pending"),
            callback(1, "pending"),
            callback(2, "ready"),
            callback(1, "pending"),
        ]);
        assert_eq!((callback_log.repeated, callback_log.violations()), (2, &[][..]));
        assert!(callback_log.missing(&live_objects(2, "ready")).is_empty());
        assert_eq!(callback_log.missing(&live_objects(3, "error")).len(), 1);
        assert_eq!(callback_log.missing(&live_objects(3, "ready")).len(), 1);
        assert!(callback_log.missing(&live_objects(1, "ready")).is_empty());
        assert_eq!(
            callback_log.missing(&BTreeMap::new()),
            ["L2Service a is gone, its last callback says ready"]
        );
        callback_log.record([callback(3, "terminating"), callback(4, "deleted")]);
        assert!(callback_log.missing(&BTreeMap::new()).is_empty());
    }

    #[test]
    fn callback_gaps_and_reordering_are_found() {
        let mut callback_log = CallbackLog::default();
        callback_log.record([callback(1, "pending"), callback(3, "error")]);
        assert_eq!(callback_log.violations(), ["L2Service a: callback 3 (error) came instead of 2"]);
    }

    #[test]
    fn object_without_callbacks_is_reported_missing() {
        assert_eq!(
            CallbackLog::default().missing(&live_objects(1, "pending")),
            ["L2Service a: callback 0 says nothing, its status pending of transition 1"]
        );
    }
}
