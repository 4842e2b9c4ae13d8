//! All objects of ENO, and their callbacks.

use std::collections::BTreeMap;

use eno_schemas::Phase;

use super::{Check, Fact, Name, Problem, count, listed};

/// An object, as far as it matters here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectFact {
    /// Its kind.
    pub kind: String,
    /// `KIND/[NAMESPACE/]NAME`.
    pub name: String,
    /// Its phase; empty: the engine has not seen it.
    pub phase: String,
    /// The message of its condition `CallbackDelivered`, if that is false.
    pub undelivered: Option<String>,
}

/// The check of phases, by kind.
pub fn judge_errors(objects: &Fact<Vec<ObjectFact>>, left_out: &[String]) -> Check {
    let name = Name::ObjectErrors;
    let objects = match objects {
        Ok(objects) => objects,
        Err(unread) => return Check::unread(name, "", unread),
    };
    let of = |phase: Phase| objects.iter().filter(move |object| object.phase == phase.as_str());
    let not_read =
        if left_out.is_empty() { String::new() } else { format!(", without {}", listed(left_out)) };
    let subject = format!("{}, {} ready{not_read}", count(objects.len(), "object"), of(Phase::Ready).count());
    let mut by_kind: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for object in of(Phase::Error) {
        by_kind.entry(&object.kind).or_default().push(&object.name);
    }
    if by_kind.is_empty() {
        return Check::ok(name, subject);
    }
    let kinds = by_kind.iter().map(|(kind, names)| format!("{} {kind} ({})", names.len(), listed(names)));
    let what = format!("in error: {}", listed(kinds));
    Check::warning(name, subject, Problem::new(what, "see their messages: eno status"))
}

/// What NATS knows of callbacks.
#[derive(Clone, Debug, Default)]
pub struct CallbackFacts {
    /// Objects with a callback that was not taken, with the last error.
    pub undelivered: Vec<(String, String)>,
    /// Number of callbacks that were given up.
    pub dead_letters: usize,
}

/// The check of callbacks, by what NATS knows, else by the conditions of the objects.
pub fn judge_callbacks(callbacks: Option<&Fact<CallbackFacts>>, objects: &Fact<Vec<ObjectFact>>) -> Check {
    let name = Name::Callbacks;
    let by_conditions = || {
        objects.as_ref().map_err(Clone::clone).map(|objects| CallbackFacts {
            undelivered: objects
                .iter()
                .filter_map(|object| Some((object.name.clone(), object.undelivered.clone()?)))
                .collect(),
            dead_letters: 0,
        })
    };
    let facts = match callbacks.map_or_else(by_conditions, Clone::clone) {
        Ok(facts) => facts,
        Err(unread) => return Check::unread(name, "", &unread),
    };
    let subject = format!("{} undelivered, {} given up", facts.undelivered.len(), facts.dead_letters);
    let mut what = Vec::new();
    if !facts.undelivered.is_empty() {
        let objects = facts.undelivered.iter().map(|(object, error)| format!("{object}: {error}"));
        what.push(format!("not delivered: {}", listed(objects)));
    }
    if facts.dead_letters > 0 {
        what.push(format!("{} given up", count(facts.dead_letters, "callback")));
    }
    if what.is_empty() {
        return Check::ok(name, subject);
    }
    let remedy = "repair the receiver, then eno callbacks list and eno callbacks retry";
    Check::warning(name, subject, Problem::new(what.join("; "), remedy))
}

#[cfg(test)]
mod tests {
    use super::super::Unread;
    use super::super::tests::assert_outcome;
    use super::*;

    fn object(kind: &str, phase: &str, undelivered: Option<&str>) -> ObjectFact {
        let name = format!("{kind}/a");
        ObjectFact {
            kind: kind.into(),
            name,
            phase: phase.into(),
            undelivered: undelivered.map(str::to_owned),
        }
    }

    #[test]
    fn objects_in_error_are_counted_by_kind() {
        for (objects, expected) in [
            (vec![object("Subnet", "ready", None), object("L2Service", "pending", None)], "ok"),
            (
                vec![object("Subnet", "error", None), object("L2Service", "error", None)],
                "warning: 1 L2Service (L2Service/a), 1 Subnet (Subnet/a)",
            ),
        ] {
            assert_outcome(&judge_errors(&Ok(objects), &[]), expected);
        }
        let partial = judge_errors(&Ok(Vec::new()), &["routes".to_owned()]);
        assert!(partial.subject.contains("without routes"), "{partial:?}");
        assert_outcome(&judge_errors(&Err(Unread::Forbidden("none".into())), &[]), "skipped: none");
    }

    #[test]
    fn callbacks_come_from_nats_or_from_conditions() {
        let facts = |undelivered: &[&str], dead_letters| {
            let undelivered = undelivered.iter().map(|one| ((*one).to_owned(), "refused".to_owned()));
            Ok(CallbackFacts { undelivered: undelivered.collect(), dead_letters })
        };
        let none = Ok(Vec::new());
        let objects = Ok(vec![object("Subnet", "ready", Some("connection refused"))]);
        for (callbacks, objects, expected) in [
            (Some(facts(&[], 0)), &objects, "ok"),
            (Some(facts(&["L2Service/a"], 0)), &none, "warning: L2Service/a: refused"),
            (Some(facts(&[], 2)), &none, "warning: 2 callbacks given up"),
            (None, &none, "ok"),
            (None, &objects, "warning: Subnet/a: connection refused"),
        ] {
            assert_outcome(&judge_callbacks(callbacks.as_ref(), objects), expected);
        }
    }
}
