//! What callbacks told of each object: in order, without a gap, and up to what its status says. Pure.

use std::collections::BTreeMap;

use crate::receiver::Callback;

/// All objects that were told of, by uid.
#[derive(Debug, Default)]
pub(super) struct CallbackLog {
    objects: BTreeMap<String, Object>,
    /// Callbacks that came again.
    pub(super) repeated: u64,
    wrong: Vec<String>,
}

#[derive(Debug, Default)]
struct Object {
    name: String,
    /// The ids in the order of the transitions: the first is that of number 1.
    ids: Vec<String>,
    phase: String,
}

/// An object that is there, as its status numbers and calls what it has told at least.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Living {
    pub(super) name: String,
    pub(super) transitions: u64,
    pub(super) phase: String,
}

impl CallbackLog {
    /// Takes in callbacks in the order in which they came.
    pub(super) fn take(&mut self, callbacks: impl IntoIterator<Item = Callback>) {
        for callback in callbacks {
            self.take_one(callback);
        }
    }

    fn take_one(&mut self, callback: Callback) {
        let Callback { id, transition, object: name, uid, phase, .. } = callback;
        let object = self.objects.entry(uid).or_default();
        if object.ids.contains(&id) {
            self.repeated += 1;
            return;
        }
        let next = object.ids.len() as u64 + 1;
        if transition != next {
            self.wrong.push(format!("{name}: callback {transition} ({phase}) came instead of {next}"));
        }
        object.name = name;
        object.phase = phase;
        object.ids.push(id);
    }

    /// What came in a wrong order. It stays wrong.
    pub(super) fn wrong(&self) -> &[String] {
        &self.wrong
    }

    /// Of which objects something is still to be told.
    pub(super) fn missing(&self, living: &BTreeMap<String, Living>) -> Vec<String> {
        let mut missing = Vec::new();
        for (uid, now) in living {
            let (number, phase) = self
                .objects
                .get(uid)
                .map_or((0, "nothing"), |object| (object.ids.len() as u64, object.phase.as_str()));
            // A status that says the same as before is not written again for the number alone.
            if number < now.transitions || phase != now.phase {
                missing.push(format!(
                    "{}: callback {number} says {phase}, its status {} of transition {}",
                    now.name, now.phase, now.transitions
                ));
            }
        }
        let gone = self.objects.iter().filter(|(uid, _)| !living.contains_key(*uid));
        let untold = gone.filter(|(_, object)| object.phase != "deleted");
        missing.extend(
            untold.map(|(_, object)| {
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
        }
    }

    fn living(transitions: u64, phase: &str) -> BTreeMap<String, Living> {
        let name = "L2Service a".to_owned();
        BTreeMap::from([("u".to_owned(), Living { name, transitions, phase: phase.to_owned() })])
    }

    #[test]
    fn repeats_are_dropped_and_the_end_is_waited_for() {
        let mut callback_log = CallbackLog::default();
        callback_log.take([
            callback(1, "pending"),
            callback(1, "pending"),
            callback(2, "ready"),
            callback(1, "pending"),
        ]);
        assert_eq!((callback_log.repeated, callback_log.wrong()), (2, &[][..]));
        assert!(callback_log.missing(&living(2, "ready")).is_empty());
        assert_eq!(callback_log.missing(&living(3, "error")).len(), 1);
        assert_eq!(callback_log.missing(&living(3, "ready")).len(), 1);
        assert!(callback_log.missing(&living(1, "ready")).is_empty());
        assert_eq!(
            callback_log.missing(&BTreeMap::new()),
            ["L2Service a is gone, its last callback says ready"]
        );
        callback_log.take([callback(3, "terminating"), callback(4, "deleted")]);
        assert!(callback_log.missing(&BTreeMap::new()).is_empty());
    }

    #[test]
    fn gaps_and_a_wrong_order_are_seen() {
        let mut callback_log = CallbackLog::default();
        callback_log.take([callback(1, "pending"), callback(3, "error")]);
        assert_eq!(callback_log.wrong(), ["L2Service a: callback 3 (error) came instead of 2"]);
    }

    #[test]
    fn who_was_never_told_of_is_missing() {
        assert_eq!(
            CallbackLog::default().missing(&living(1, "pending")),
            ["L2Service a: callback 0 says nothing, its status pending of transition 1"]
        );
    }
}
