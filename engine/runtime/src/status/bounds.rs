//! Bounds the size of transitions and of lists in statuses. Pure.

use std::collections::BTreeMap;

use eno_schemas::{LeftOut, Transition};
use serde::Serialize;
use serde_json::{Map, Value};

/// Maximum bytes of the names and values of an object's annotations.
const MAX_ANNOTATIONS: usize = 16 * 1024;
/// Maximum names of annotations in a transition.
const MAX_NAMES: usize = 64;
/// The fields that are left out of a transition that is too large, until it fits.
const FIELDS: [&str; 4] = ["metadata.labels", "metadata.annotations", "spec", "status"];
/// The field of the status, in [`LeftOut::fields`].
pub const STATUS: &str = "status";

/// The first entries of a list that are within these bounds, and how many others there are.
pub fn first_entries<T: Serialize>(
    items: impl ExactSizeIterator<Item = T>,
    max: usize,
    max_bytes: usize,
) -> (Vec<T>, usize) {
    let total = items.len();
    let mut bytes = 0;
    let fits = |item: &T| {
        bytes += serde_json::to_vec(item).map_or(0, |text| text.len() + 1);
        bytes < max_bytes
    };
    let shown: Vec<T> = items.take(max).take_while(fits).collect();
    let left_out = total - shown.len();
    (shown, left_out)
}

/// Removes the largest annotations until the others are within the bound. Returns their names.
pub fn bound_annotations(annotations: &mut BTreeMap<String, String>) -> Option<LeftOut> {
    let size = |(name, value): (&String, &String)| name.len() + value.len();
    let mut total: usize = annotations.iter().map(size).sum();
    let mut names = Vec::new();
    while total > MAX_ANNOTATIONS {
        let Some((name, value)) = annotations.iter().max_by_key(|one| size(*one)) else { break };
        let name = name.clone();
        total -= name.len() + value.len();
        annotations.remove(&name);
        names.push(name);
    }
    if names.is_empty() {
        return None;
    }
    names.sort_unstable();
    let more = names.len().saturating_sub(MAX_NAMES);
    names.truncate(MAX_NAMES);
    let more_annotations = u64::try_from(more).ok().filter(|more| *more > 0);
    Some(LeftOut { annotations: names, more_annotations, ..LeftOut::default() })
}

/// Removes fields of a transition's object until it has at most `max` bytes, and names them. Returns its size.
pub fn bound_size(transition: &mut Transition, max: usize) -> usize {
    let mut bytes = size(transition);
    for field in FIELDS {
        if bytes <= max {
            break;
        }
        if remove(&mut transition.object, field) {
            transition.left_out.get_or_insert_default().fields.push(field.into());
            bytes = size(transition);
        }
    }
    bytes
}

fn size(transition: &Transition) -> usize {
    // Only its object varies in size, which is JSON already.
    serde_json::to_vec(transition).map_or(0, |text| text.len())
}

/// Removes a field of an object. Of the spec it leaves what tells where callbacks go. True: the object had it.
fn remove(object: &mut Value, field: &str) -> bool {
    let (parent, field) = match field.split_once('.') {
        Some((parent, field)) => (object.get_mut(parent), field),
        None => (Some(object), field),
    };
    let Some(parent) = parent.and_then(Value::as_object_mut) else { return false };
    let Some(removed) = parent.remove(field) else { return false };
    if let Value::Object(spec) = removed
        && field == "spec"
    {
        let callbacks: Map<_, _> =
            spec.into_iter().filter(|(name, _)| name.starts_with("Callback")).collect();
        parent.insert(field.into(), callbacks.into());
    }
    true
}

#[cfg(test)]
mod tests {
    use eno_schemas::Phase;
    use serde_json::json;

    use super::*;

    fn annotations(sizes: &[(&str, usize)]) -> BTreeMap<String, String> {
        sizes.iter().map(|(name, size)| ((*name).to_owned(), "x".repeat(*size))).collect()
    }

    #[test]
    fn large_annotations_are_left_out_and_named() {
        let mut small = annotations(&[("a", 8000), ("b", 8000)]);
        assert_eq!(bound_annotations(&mut small), None);
        let mut large = annotations(&[("a", 8000), ("huge", 200_000), ("b", 8000), ("big", 20_000)]);
        let left_out = bound_annotations(&mut large).unwrap();
        assert_eq!(left_out.annotations, ["big", "huge"]);
        assert_eq!(large.keys().collect::<Vec<_>>(), ["a", "b"]);
    }

    #[test]
    fn names_of_annotations_are_bounded_too() {
        let names: Vec<String> = (0..200).map(|n| format!("{n:0>300}")).collect();
        let mut many = names.iter().map(|name| (name.clone(), String::new())).collect();
        let left_out = bound_annotations(&mut many).unwrap();
        assert_eq!(many.len(), MAX_ANNOTATIONS / 300);
        assert_eq!(left_out.annotations.len(), MAX_NAMES);
        assert_eq!(left_out.more_annotations, Some((200 - MAX_ANNOTATIONS / 300 - MAX_NAMES) as u64));
    }

    #[test]
    fn transition_is_cut_until_it_fits_and_says_so() {
        let transition = |labels: usize, spec: usize| Transition {
            id: "u-1".into(),
            uid: "u".into(),
            counter: 1,
            kind: "L2Service".into(),
            namespace: None,
            name: "a".into(),
            previous: None,
            phase: Phase::Ready,
            at: "2026-01-02T03:04:05.000Z".into(),
            object: json!({
                "metadata": { "name": "a", "labels": { "l": "x".repeat(labels) } },
                "spec": { "CallbackURL": "http://x/", "Description": "x".repeat(spec) },
                "status": { "phase": "ready" },
            }),
            left_out: None,
        };
        let fields = |labels, spec| {
            let mut cut = transition(labels, spec);
            let bytes = bound_size(&mut cut, 1000);
            assert!(bytes <= 1000, "{bytes}");
            assert_eq!(cut.object["spec"]["CallbackURL"], "http://x/");
            assert_eq!(cut.object["status"]["phase"], "ready");
            cut.left_out.map(|left_out| left_out.fields)
        };
        assert_eq!(fields(10, 10), None);
        assert_eq!(fields(2000, 10), Some(vec!["metadata.labels".to_owned()]));
        assert_eq!(fields(10, 2000), Some(vec!["metadata.labels".to_owned(), "spec".to_owned()]));
    }
}
