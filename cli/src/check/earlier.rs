//! An earlier installation, complete or half-finished.

use super::{Check, Fact, Name, Problem, listed};

/// A part of an installation that may be there already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Such as `Namespace eno-system`.
    pub name: String,
    /// How it is.
    pub state: PartState,
}

/// How a part of an installation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartState {
    /// It does not exist.
    Absent,
    /// It exists.
    Present,
    /// It is being deleted.
    Ending,
}

/// The check of earlier installations.
pub fn judge(parts: &Fact<Vec<Part>>) -> Check {
    let name = Name::EarlierInstallation;
    let parts = match parts {
        Ok(parts) => parts,
        Err(unread) => return Check::unread(name, "", unread),
    };
    let of = |state| {
        let of_state = parts.iter().filter(move |part| part.state == state);
        of_state.map(|part| part.name.as_str()).collect::<Vec<_>>()
    };
    let (absent, present, ending) = (of(PartState::Absent), of(PartState::Present), of(PartState::Ending));
    let subject = format!("{} of {} parts exist", present.len() + ending.len(), parts.len());
    if !ending.is_empty() {
        let what = format!("being deleted: {}", listed(ending));
        let remedy =
            "wait until it is gone; objects with finalizers hold it up: kubectl get eno -A shows them";
        return Check::failed(name, subject, Problem::new(what, remedy));
    }
    if present.is_empty() {
        return Check::ok(name, "none");
    }
    if absent.is_empty() {
        return Check::ok(name, "complete; eno install upgrades it");
    }
    let what =
        format!("a half-finished installation: there is {}, and no {}", listed(present), listed(absent));
    let remedy = "run eno install again, which completes it";
    Check::warning(name, subject, Problem::new(what, remedy))
}

#[cfg(test)]
mod tests {
    use super::super::tests::assert_outcome;
    use super::*;

    #[test]
    fn half_finished_installations_are_reported() {
        use PartState::{Absent, Ending, Present};
        for (states, expected) in [
            ([Absent, Absent], "ok"),
            ([Present, Present], "ok"),
            ([Present, Absent], "warning: there is Namespace eno-system, and no Deployment eno-engine"),
            ([Ending, Absent], "failed: being deleted: Namespace eno-system"),
        ] {
            let names = ["Namespace eno-system", "Deployment eno-engine"];
            let parts = names.into_iter().zip(states).map(|(name, state)| Part { name: name.into(), state });
            assert_outcome(&judge(&Ok(parts.collect())), expected);
        }
    }
}
