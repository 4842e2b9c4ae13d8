//! The condition Stalled and the reasons of the condition Ready.

use eno_core::kinds::{Cause, Invalid};
use eno_core::{ConditionReason, Event, Key, Kind, Name};
use eno_schemas::{CniName, Failure, InterfaceType, Item, Outcome, Phase, Rejection, VlanType};
use serde_json::json;

use crate::edits::edit_attachment;
use crate::fixtures::{device_key, rejection, switch, vid};
use crate::world::*;

const START: &str = "2026-01-01T00:00:00Z";
const LATER: &str = "2026-01-01T00:01:00Z";

/// The reason of the condition Ready, and whether the condition Stalled holds.
fn reason_and_stalled<'a>(w: &'a World, key: &Key) -> (&'a str, Option<bool>) {
    let status = &w.statuses[key];
    let ready = condition(status, "Ready").unwrap();
    assert!(!ready.holds, "{key} is ready");
    (ready.reason.as_ref(), condition(status, "Stalled").map(|stalled| stalled.holds))
}

/// A minute passes, and all deadlines are exceeded.
fn minute_passes(w: &mut World) {
    w.now = LATER.into();
    for (key, since) in std::mem::take(&mut w.deadlines) {
        w.engine.handle(Event::DeadlineExceeded { key, since });
    }
    w.settle();
}

#[test]
fn invalid_spec_is_stalled_immediately() {
    let mut w = World::leaf_spine();
    w.apply(service("s", 100, &[]));
    w.apply(service("t", 101, &[]));
    let unreadable = Err(Invalid::new("Address", "no address"));
    let unreadable = eno_core::Object { spec: unreadable, ..subnet("sn", "10.0.0.0/24") };
    let mut cases = vec![unreadable];
    let attach = |name: &str, services: &[&str], change: fn(&mut eno_core::kinds::AttachmentSpec)| {
        edit_attachment(&attachment(name, services, "cp"), change)
    };
    cases.push(attach("two", &["s", "t"], |spec| spec.vlan_type = VlanType::Access));
    cases.push(attach("twice", &["s", "s"], |_| {}));
    cases.push(attach("nobody", &["s", "t"], |spec| spec.interface = InterfaceType::Dpdk));
    cases.push(attach("ipvlan", &["s"], |spec| {
        (spec.vlan_type, spec.implementation) = (VlanType::Trunk, Some(CniName::Ipvlan));
    }));
    for object in cases {
        let key = w.apply_and_settle(object);
        assert_eq!(reason_and_stalled(&w, &key), ("Invalid", Some(true)), "{key}: {}", w.message(&key));
    }
    assert!(w.deadlines.is_empty());
}

#[test]
fn recoverable_error_is_stalled_after_a_minute() {
    let closed = json!([{ "key": "a", "operator": "Exists", "values": [] }]);
    let mut w = World::with_agents();
    w.apply(object(Kind::PhysicalNetwork, "closed", json!({ "Namespaces": closed })));
    w.apply(service("s", 100, &["dc"]));
    w.apply(service("inside", 101, &["closed"]));
    w.apply(with_subnets(&service("broken", 102, &[]), &["nope"]));
    let leaving = w.apply(service("leaving", 103, &[]));
    w.apply(attachment("holds", &["leaving"], "cp"));
    w.apply_and_settle(bridge("first", "pb0", &[]));
    w.delete_and_settle(&leaving);
    let dpdk =
        edit_attachment(&attachment("dpdk", &["s"], "cp"), |spec| spec.interface = InterfaceType::Dpdk);
    for (object, cause) in [
        (attachment("a1", &["nope"], "cp"), Cause::ReferenceNotFound),
        (attachment("a2", &["broken"], "cp"), Cause::ReferenceNotReady),
        (attachment("a3", &["leaving"], "cp"), Cause::ReferenceTerminating),
        (service("same", 100, &["dc"]), Cause::IdConflict),
        (bridge("second", "pb0", &[]), Cause::NameConflict),
        (service("outside", 5, &["dc"]), Cause::NotPermitted),
        (attachment("a4", &["inside"], "cp"), Cause::NotPermitted),
        (dpdk, Cause::Incompatible),
    ] {
        let reason = ConditionReason::from(cause);
        w.now = START.into();
        let key = w.apply_and_settle(object);
        assert_eq!(
            reason_and_stalled(&w, &key),
            (reason.as_ref(), Some(false)),
            "{key}: {}",
            w.message(&key)
        );
        assert!(w.deadlines.contains(&(key.clone(), START.into())), "{key}");
        minute_passes(&mut w);
        assert_eq!(reason_and_stalled(&w, &key), (reason.as_ref(), Some(true)), "{key}");
        assert_eq!(&*condition(&w.statuses[&key], "Stalled").unwrap().since, LATER);
        assert_eq!(w.phases[&key], [Phase::Pending, Phase::Error], "Stalled is not a transition");
    }
}

#[test]
fn recovered_error_is_not_stalled() {
    let mut w = World::leaf_spine();
    let a = w.apply_and_settle(attachment("a", &["s"], "cp"));
    minute_passes(&mut w);
    assert_eq!(reason_and_stalled(&w, &a), ("ReferenceNotFound", Some(true)));
    w.silent.insert(switch("leaf1"));
    w.apply_and_settle(service("s", 100, &["dc"]));
    assert_eq!(reason_and_stalled(&w, &a), ("Waiting", None));
    w.end_silence();
    assert_eq!((w.phase(&a), condition(&w.statuses[&a], "Stalled")), (Phase::Ready, None));
}

#[test]
fn pending_object_is_never_stalled() {
    let mut w = World::leaf_spine();
    w.awaits_never_elapse = true;
    w.silent.insert(switch("leaf2"));
    let early = w.apply(attachment("early", &["nope"], "cp"));
    let s = w.apply_and_settle(service("s", 100, &["dc"]));
    minute_passes(&mut w);
    assert_eq!(reason_and_stalled(&w, &early), ("Waiting", None));
    assert_eq!(reason_and_stalled(&w, &s), ("Waiting", None));
}

#[test]
fn new_error_restarts_the_deadline() {
    let mut w = World::leaf_spine();
    let s = w.apply_and_settle(with_subnets(&service("s", 100, &[]), &["one", "two"]));
    let first = w.deadlines.pop().unwrap();
    w.now = "2026-01-01T00:00:59Z".into();
    w.apply_and_settle(subnet("one", "10.0.0.0/24"));
    assert!(w.message(&s).contains("Subnet two"), "{}", w.message(&s));
    // The deadline of the first error does not count for the second.
    w.engine.handle(Event::DeadlineExceeded { key: first.0, since: first.1 });
    w.settle();
    assert_eq!(reason_and_stalled(&w, &s), ("ReferenceNotFound", Some(false)));
    assert_eq!(w.deadlines, [(s.clone(), w.now.as_str().into())]);
    // The deadline of a former generation does not count either.
    w.now = "2026-01-01T00:01:30Z".into();
    let edited = w.objects[&s].clone();
    w.apply_and_settle(edited);
    let last = w.deadlines.pop().unwrap();
    assert_eq!((&*last.1, w.statuses[&s].observed_generation), (w.now.as_str(), 2));
    minute_passes(&mut w);
    assert_eq!(reason_and_stalled(&w, &s), ("ReferenceNotFound", Some(false)));
    w.deadlines.push(last);
    minute_passes(&mut w);
    assert_eq!(reason_and_stalled(&w, &s), ("ReferenceNotFound", Some(true)));
}

#[test]
fn restart_keeps_the_deadline() {
    let mut w = World::leaf_spine();
    let s = w.apply_and_settle(with_subnets(&service("s", 100, &[]), &["nope"]));
    w.now = "2026-01-01T00:00:30Z".into();
    w.restart();
    let before = w.statuses.clone();
    w.settle();
    assert_eq!(w.statuses, before);
    assert_eq!(w.deadlines, [(s.clone(), START.into())]);
    minute_passes(&mut w);
    assert_eq!(reason_and_stalled(&w, &s), ("ReferenceNotFound", Some(true)));
    w.restart();
    let before = w.statuses.clone();
    w.settle();
    assert_eq!((&w.statuses, &w.deadlines), (&before, &Vec::<(Key, Name)>::new()));
    // Without the condition, as from an older engine, a new engine starts the deadline.
    w.statuses.get_mut(&s).unwrap().conditions.retain(|condition| condition.kind.as_ref() != "Stalled");
    w.restart_and_settle();
    assert_eq!(w.deadlines, [(s, LATER.into())]);
}

#[test]
fn permanent_rejection_is_stalled_immediately() {
    let leaf1 = switch("leaf1");
    for (item, retryable) in [true, false]
        .into_iter()
        .flat_map(|retryable| [(Item::vlan(vid(100)), retryable), (Item::TARGET, retryable)])
    {
        let mut w = World::leaf_spine();
        w.rejections.insert(leaf1.clone(), vec![Rejection { retryable, ..rejection(item.clone(), "no") }]);
        w.apply(service("s", 100, &["dc"]));
        let a = w.apply_and_settle(attachment("a", &["s"], "cp"));
        assert_eq!(reason_and_stalled(&w, &a), ("Refused", Some(!retryable)), "{item}: {}", w.message(&a));
        minute_passes(&mut w);
        assert_eq!(reason_and_stalled(&w, &a), ("Refused", Some(true)), "{item}");
        w.restart_and_settle();
        assert_eq!(reason_and_stalled(&w, &a), ("Refused", Some(true)), "{item}");
    }
}

#[test]
fn permanent_device_failure_stalls_only_the_device() {
    let mut w = World::leaf_spine();
    let leaf1 = switch("leaf1");
    w.silent.insert(leaf1.clone());
    w.apply(service("s", 100, &["dc"]));
    let a = w.apply_and_settle(attachment("a", &["s"], "cp"));
    for retryable in [true, false] {
        let failure = Failure { reason: format!("{retryable}").into(), retryable, unreachable: false };
        w.report(&leaf1, Outcome::Failed(failure), None, Vec::new());
        w.settle();
        let device = device_key("leaf1");
        assert_eq!(reason_and_stalled(&w, &device), ("Refused", Some(!retryable)));
        // The attachment recovers with the device, without a spec change.
        assert_eq!(reason_and_stalled(&w, &a), ("Refused", Some(false)));
    }
}
