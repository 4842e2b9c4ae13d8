//! Plans what is to be written for one BGPSessionGroup. Pure.

use eno_schemas::SpeakerDesired;
use kube::core::DynamicObject;

use crate::metallb::{Kind, Wanted, group_of, wanted};

/// A write.
#[derive(Debug, PartialEq)]
pub enum Step {
    /// Creates an object; `uid`: changes the one with this uid.
    Apply {
        /// As it is to be.
        wanted: Wanted,
        /// That of the object which is there.
        uid: Option<String>,
    },
    /// Deletes an object.
    Delete {
        /// Its kind.
        kind: Kind,
        /// Its name.
        name: String,
        /// Its uid.
        uid: String,
    },
}

/// Plans for a group. `observed`: all objects of each kind in the namespace.
///
/// # Errors
///
/// What an object of somebody else hinders, with the remedy.
pub fn plan(
    group: &SpeakerDesired,
    namespace: &str,
    observed: &[(Kind, Vec<DynamicObject>)],
) -> Result<Vec<Step>, String> {
    let all = group.sessions.as_ref().map(|sessions| wanted(sessions, namespace)).unwrap_or_default();
    let objects =
        || observed.iter().flat_map(|(kind, objects)| objects.iter().map(move |object| (*kind, object)));
    let is_ours = |object: &DynamicObject| group_of(object) == Some(group.name.as_str());
    let mut steps = Vec::new();
    for one in &all {
        let mut of_kind = objects().filter(|(kind, _)| *kind == one.kind).map(|(_, object)| object);
        let there = of_kind.clone().find(|object| object.metadata.name.as_deref() == Some(&*one.name));
        if there.is_some_and(|object| !is_ours(object)) {
            return Err(format!(
                "the name is taken: the {} {namespace}/{} is not of this BGPSessionGroup; delete it or rename it",
                one.kind.as_str(),
                one.name
            ));
        }
        let address = one.spec.get("peerAddress");
        let equal = of_kind.find(|object| {
            let foreign = object.data.get("spec");
            address.is_some()
                && group_of(object).is_none()
                && foreign.and_then(|spec| spec.get("peerAddress")) == address
        });
        if let Some(equal) = equal {
            return Err(format!(
                "the BGPPeer {namespace}/{} of somebody else has the address {} too: a node would have two sessions; delete it",
                equal.metadata.name.as_deref().unwrap_or_default(),
                address.and_then(|address| address.as_str()).unwrap_or_default()
            ));
        }
        if !there.is_some_and(|object| one.is_met(group, object)) {
            let uid = there.and_then(|object| object.metadata.uid.clone());
            steps.push(Step::Apply { wanted: one.clone(), uid });
        }
    }
    // A profile is named until its peers are gone.
    let mut others: Vec<(Kind, &DynamicObject)> = objects().filter(|(_, object)| is_ours(object)).collect();
    others.sort_by_key(|(kind, _)| std::cmp::Reverse(*kind));
    for (kind, object) in others {
        let name = object.metadata.name.clone().unwrap_or_default();
        if !all.iter().any(|one| one.kind == kind && one.name == name) {
            steps.push(Step::Delete { kind, name, uid: object.metadata.uid.clone().unwrap_or_default() });
        }
    }
    Ok(steps)
}
