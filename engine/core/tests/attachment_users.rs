//! Pods that block the deletion of an attachment.

use eno_core::{Event, Key, Labels, Pod, Selector, Uses, Workload};
use eno_schemas::Phase;

use crate::edits::edit_attachment;
use crate::world::*;

const DELETABLE: &str =
    "pod other/p of another namespace uses its NetworkAttachmentDefinition without UsableFrom";

/// A pod in the namespace `other` that uses `ns/a`.
fn foreign_pod(name: &str) -> Pod {
    Pod { namespace: "other".into(), ..pod_using(name, &["a"]) }
}

fn label_namespace(w: &mut World, friend: bool) {
    let labels = friend.then(|| ("friend".to_owned(), "yes".to_owned()));
    w.engine.handle(Event::Namespace("other".into(), labels.into_iter().collect::<Labels>()));
}

/// A ready attachment `ns/a`; `usable`: from namespaces with the label `friend`.
fn ready_attachment(usable: bool) -> (World, Key) {
    let mut w = World::leaf_spine();
    label_namespace(&mut w, true);
    w.apply(service("s", 100, &[]));
    let a = w.apply_and_settle(edit_attachment(&attachment("a", &["s"], "cp"), |spec| {
        let text = r#"[{"key":"friend","operator":"Exists"}]"#;
        spec.usable_from = usable.then(|| serde_json::from_str::<Selector>(text).unwrap());
    }));
    (w, a)
}

fn foreign_pods_message(w: &World, key: &Key) -> Option<String> {
    condition(&w.statuses[key], "ForeignPods").map(|condition| condition.message.clone())
}

#[test]
fn foreign_pods_do_not_block_deletion_but_are_a_condition() {
    let (mut w, a) = ready_attachment(false);
    w.apply_pod_and_settle(foreign_pod("p"));
    let message = foreign_pods_message(&w, &a).unwrap();
    assert!(message.starts_with(DELETABLE), "{message}");
    w.apply_pod(foreign_pod("q"));
    w.remove_pod("uid-p");
    w.remove_pod_and_settle("uid-q");
    assert_eq!(foreign_pods_message(&w, &a), None);
    w.apply_pod(foreign_pod("p"));
    w.delete_and_settle(&a);
    assert!(!w.objects.contains_key(&a), "{}", w.message(&a));
    assert_eq!(w.nad("ns", "a"), None);
}

#[test]
fn permitted_foreign_pods_block_deletion() {
    let (mut w, a) = ready_attachment(true);
    w.apply_pod_and_settle(foreign_pod("p"));
    assert_eq!(foreign_pods_message(&w, &a), None);
    w.delete_and_settle(&a);
    assert_eq!((w.phase(&a), w.message(&a)), (Phase::Terminating, "in use by pod other/p"));
    assert!(w.nad("ns", "a").is_some());
    label_namespace(&mut w, false);
    w.settle();
    assert!(!w.objects.contains_key(&a), "{}", w.message(&a));
}

#[test]
fn own_pods_are_named_before_foreign_pods() {
    let (mut w, a) = ready_attachment(true);
    w.apply_pod(foreign_pod("b"));
    w.apply_pod(pod_using("c", &["a"]));
    w.delete_and_settle(&a);
    assert_eq!(w.message(&a), "in use by pod c and 1 more");
}

/// A pod in a namespace that uses any attachment that it may use.
fn unclear_pod(namespace: &str, name: &str) -> Pod {
    Pod { namespace: namespace.into(), uses: Uses::Any("why".into()), ..pod_using(name, &[]) }
}

#[test]
fn pod_with_unclear_uses_blocks_what_it_may_use() {
    for (namespace, usable, blocks) in [("ns", false, true), ("other", true, true), ("other", false, false)] {
        let (mut w, a) = ready_attachment(usable);
        w.apply_pod(unclear_pod(namespace, "p"));
        // A further version of the pod is no news.
        w.apply_pod_and_settle(unclear_pod(namespace, "p"));
        let [(pod, reason)] = &w.unclear_uses[..] else { panic!("{:?}", w.unclear_uses) };
        assert!(&**pod == "p" && reason.starts_with("why. While it exists"), "{reason}");
        assert_eq!(foreign_pods_message(&w, &a), None);
        w.delete_and_settle(&a);
        assert_eq!(w.objects.contains_key(&a), blocks, "{namespace}: {}", w.message(&a));
        if blocks {
            let pod = if namespace == "ns" { "pod p" } else { "pod other/p" };
            assert_eq!(w.message(&a), format!("in use by {pod}"));
            w.apply_pod_and_settle(Pod { uses: Uses::default(), ..unclear_pod(namespace, "p") });
            assert!(!w.objects.contains_key(&a), "{}", w.message(&a));
        }
    }
}

#[test]
fn pod_whose_uses_become_unclear_still_blocks() {
    let (mut w, a) = ready_attachment(true);
    w.apply_pod(pod_using("p", &["a"]));
    w.delete_and_settle(&a);
    w.apply_pod_and_settle(unclear_pod("ns", "p"));
    assert_eq!((w.phase(&a), w.message(&a)), (Phase::Terminating, "in use by pod p"));
    w.apply_pod_and_settle(unclear_pod("other", "q"));
    assert_eq!(w.message(&a), "in use by pod p and 1 more");
    w.remove_pod_and_settle("uid-p");
    assert_eq!(w.message(&a), "in use by pod other/q");
    label_namespace(&mut w, false);
    w.settle();
    assert!(!w.objects.contains_key(&a), "{}", w.message(&a));
}

/// A workload of a namespace, and what its template names.
fn stopped(w: &mut World, namespace: &str, name: &str, nads: &[(&str, &str)]) {
    let workload = Workload { kind: "Deployment", namespace: namespace.into(), name: name.into() };
    let nads = nads.iter().map(|(namespace, name)| ((*namespace).into(), (*name).into())).collect();
    w.engine.handle(Event::Stopped(workload, nads));
    w.settle();
}

/// The message of the condition on workloads without pods, up to what is the same for all.
fn templates_message(w: &World, key: &Key) -> Option<String> {
    let condition = condition(&w.statuses[key], "UsedByTemplates")?;
    assert!(condition.holds);
    Some(condition.message.split(" names its").next().unwrap_or_default().to_owned())
}

#[test]
fn templates_of_workloads_without_pods_do_not_block_deletion_but_are_a_condition() {
    let (mut w, a) = ready_attachment(false);
    stopped(&mut w, "ns", "d", &[("ns", "a"), ("ns", "none")]);
    assert_eq!(templates_message(&w, &a).unwrap(), "the template of Deployment d");
    assert_eq!(w.phase(&a), Phase::Ready);
    stopped(&mut w, "ns", "e", &[("ns", "a")]);
    assert_eq!(templates_message(&w, &a).unwrap(), "the template of Deployment d and 1 more");
    stopped(&mut w, "ns", "d", &[("ns", "none")]);
    assert_eq!(templates_message(&w, &a).unwrap(), "the template of Deployment e");
    stopped(&mut w, "ns", "e", &[]);
    assert_eq!(templates_message(&w, &a), None);
    stopped(&mut w, "ns", "e", &[("ns", "a")]);
    w.delete_and_settle(&a);
    assert!(!w.objects.contains_key(&a), "{}", w.message(&a));
}

#[test]
fn templates_of_other_namespaces_count_where_their_pods_may_use_the_attachment() {
    let (mut w, a) = ready_attachment(true);
    stopped(&mut w, "other", "d", &[("ns", "a")]);
    assert_eq!(templates_message(&w, &a).unwrap(), "the template of Deployment other/d");
    label_namespace(&mut w, false);
    w.settle();
    assert_eq!(templates_message(&w, &a), None);
    label_namespace(&mut w, true);
    w.settle();
    assert!(templates_message(&w, &a).is_some());
}

#[test]
fn template_that_is_seen_before_the_attachment_counts() {
    let mut w = World::leaf_spine();
    stopped(&mut w, "ns", "d", &[("ns", "a")]);
    w.apply(service("s", 100, &[]));
    let a = w.apply_and_settle(attachment("a", &["s"], "cp"));
    assert_eq!(templates_message(&w, &a).unwrap(), "the template of Deployment d");
}
