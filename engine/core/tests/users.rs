//! Whose pods keep an attachment from being deleted.

use eno_core::spec::Spec;
use eno_core::{Event, Key, Labels, Pod, Selector};
use eno_schemas::Phase;

#[allow(clippy::wildcard_imports, reason = "the words that worlds are told in")]
use crate::world::*;

const DELETABLE: &str =
    "pod other/p of another namespace uses its NetworkAttachmentDefinition without UsableFrom";

/// A pod of the namespace `other` that uses `ns/a`.
fn foreign(name: &str) -> Pod {
    Pod { namespace: "other".into(), ..user(name, &["a"]) }
}

fn label(w: &mut World, friend: bool) {
    let labels = friend.then(|| ("friend".to_owned(), "yes".to_owned()));
    w.engine.handle(Event::Namespace("other".into(), labels.into_iter().collect::<Labels>()));
}

/// A ready attachment `ns/a`, usable from namespaces with the label `friend`, or from none.
fn world(usable: bool) -> (World, Key) {
    let mut w = World::leaf_spine();
    label(&mut w, true);
    w.apply(service("s", 100, &[]));
    let a = w.apply(respec(&attachment("a", &["s"], "cp"), |spec| {
        let Spec::Attachment(spec) = spec else { unreachable!() };
        let text = r#"[{"key":"friend","operator":"Exists"}]"#;
        spec.usable_from = usable.then(|| serde_json::from_str::<Selector>(text).unwrap());
    }));
    w.settle();
    (w, a)
}

fn foreign_pods(w: &World, key: &Key) -> Option<String> {
    let found = w.statuses[key].conditions.iter().find(|condition| condition.kind == "ForeignPods");
    found.map(|condition| condition.message.clone())
}

#[test]
fn pods_of_other_namespaces_hold_nothing_but_are_named() {
    let (mut w, a) = world(false);
    w.pod(foreign("p"));
    w.settle();
    assert!(foreign_pods(&w, &a).unwrap().starts_with(DELETABLE), "{:?}", foreign_pods(&w, &a));
    w.pod(foreign("q"));
    w.pod_gone("uid-p");
    w.pod_gone("uid-q");
    w.settle();
    assert_eq!(foreign_pods(&w, &a), None);
    w.pod(foreign("p"));
    w.delete(&a);
    w.settle();
    assert!(!w.objects.contains_key(&a), "{}", w.message(&a));
    assert_eq!(w.nad("ns", "a"), None);
}

#[test]
fn those_it_is_usable_from_hold_it_while_they_have_the_label() {
    let (mut w, a) = world(true);
    w.pod(foreign("p"));
    w.settle();
    assert_eq!(foreign_pods(&w, &a), None);
    w.delete(&a);
    w.settle();
    assert_eq!((w.phase(&a), w.message(&a)), (Phase::Terminating, "in use by pod other/p"));
    assert!(w.nad("ns", "a").is_some());
    label(&mut w, false);
    w.settle();
    assert!(!w.objects.contains_key(&a), "{}", w.message(&a));
}

#[test]
fn its_own_pods_come_first() {
    let (mut w, a) = world(true);
    w.pod(foreign("b"));
    w.pod(user("c", &["a"]));
    w.delete(&a);
    w.settle();
    assert_eq!(w.message(&a), "in use by pod c and 1 more");
}
