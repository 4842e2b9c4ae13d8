//! Another cluster with the same cluster ID: its switch keeps what is to go, and no object is gone before that is.

use eno_core::{Key, Kind, Target};
use eno_schemas::{Desired, Item, Note, Outcome, Phase};

#[allow(clippy::wildcard_imports, reason = "the words that worlds are told in")]
use crate::world::*;

const WORDS: &str = "another cluster uses the cluster ID lab, too";

fn leaf1() -> Target {
    Target::Fabric("leaf1".into())
}

fn attached() -> Key {
    Key::namespaced(Kind::L2ServiceAttachment, &"ns".into(), &"a".into())
}

/// leaf1 notes a clash and does what it is to do, but it still has all that it had: `kept`.
fn keeps(w: &mut World, kept: &Desired) {
    let note = Note { kind: "ClusterIDClash".into(), item: Item::TARGET, message: WORDS.into() };
    w.notes.insert(leaf1(), vec![note]);
    w.silent.insert(leaf1());
    let applied = match kept {
        Desired::Fabric(fabric) => eno_schemas::Applied::Fabric {
            vlans: fabric.vlans.iter().map(|vlan| vlan.vid).collect(),
            ports: fabric.ports.iter().map(|port| (port.name.clone(), port.vlans.clone())).collect(),
            carried: std::collections::BTreeMap::new(),
            closed: None,
            before: [].into(),
        },
        _ => panic!("no switch"),
    };
    let hash = w.commands[&leaf1()].hash();
    w.report(&leaf1(), hash, Outcome::Applied, Some(applied), Vec::new());
    w.settle();
}

/// The clash ends: leaf1 does what it was told last.
fn ends(w: &mut World) {
    w.notes.clear();
    w.silent.clear();
    let last = w.commands[&leaf1()].clone();
    w.pending.insert(leaf1(), last);
    w.settle();
}

#[test]
fn what_is_kept_is_not_gone() {
    for whole in [false, true] {
        let mut w = World::leaf_spine();
        let s = w.apply(service("s", 100, &["dc"]));
        w.apply(attachment("a", &["s"], "cp"));
        w.settle();
        let kept = w.commands[&leaf1()].clone();
        w.silent.insert(leaf1());
        w.delete(&attached());
        if whole {
            w.delete(&s);
        }
        w.settle();
        keeps(&mut w, &kept);
        assert_eq!(w.phase(&attached()), Phase::Terminating, "{whole}");
        assert!(w.message(&attached()).contains(WORDS), "{}", w.message(&attached()));
        // However often it is reported.
        keeps(&mut w, &kept);
        assert_eq!(w.phase(&attached()), Phase::Terminating, "{whole}");
        ends(&mut w);
        assert_eq!(w.phases[&attached()].last(), Some(&Phase::Deleted), "{whole}");
    }
}

#[test]
fn what_is_wanted_waits_for_no_clash() {
    let mut w = World::leaf_spine();
    let s = w.apply(service("s", 100, &["dc"]));
    w.apply(attachment("a", &["s"], "cp"));
    w.silent.insert(leaf1());
    w.settle();
    let made = w.commands[&leaf1()].clone();
    keeps(&mut w, &made);
    assert_eq!((w.phase(&s), w.phase(&attached())), (Phase::Ready, Phase::Ready));
}

#[test]
fn a_device_that_is_not_given_back_says_why() {
    let mut w = World::leaf_spine();
    w.apply(service("s", 100, &["dc"]));
    w.apply(attachment("a", &["s"], "cp"));
    w.settle();
    let kept = w.commands[&leaf1()].clone();
    w.silent.insert(leaf1());
    let device = Key::cluster(Kind::FabricDevice, &"leaf1".into());
    w.delete(&attached());
    w.delete(&device);
    w.settle();
    keeps(&mut w, &kept);
    assert_eq!(w.phase(&device), Phase::Terminating);
    assert!(w.message(&device).contains(WORDS), "{}", w.message(&device));
}
