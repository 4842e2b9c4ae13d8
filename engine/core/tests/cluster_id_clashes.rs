//! Clashes of cluster IDs: a switch keeps VLANs that another cluster may own, and their objects stay Terminating.

use eno_core::{Key, Kind, Target};
use eno_schemas::{Desired, Item, Note, Outcome, Phase};

#[allow(clippy::wildcard_imports, reason = "the tests use most of the simulated cluster")]
use crate::world::*;

const CLASH_MESSAGE: &str = "another cluster uses the cluster ID lab, too";

fn leaf1() -> Target {
    Target::Fabric("leaf1".into())
}

fn attachment_key() -> Key {
    Key::namespaced(Kind::L2ServiceAttachment, &"ns".into(), &"a".into())
}

/// leaf1 reports its last command as applied, with the note of a clash and the former state `kept`.
fn report_clash(w: &mut World, kept: &Desired) {
    let note = Note { kind: "ClusterIDClash".into(), item: Item::TARGET, message: CLASH_MESSAGE.into() };
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

/// Ends the clash: leaf1 executes its last command.
fn end_clash(w: &mut World) {
    w.notes.clear();
    w.silent.clear();
    let last = w.commands[&leaf1()].clone();
    w.pending.insert(leaf1(), last);
    w.settle();
}

#[test]
fn clash_blocks_deletion_until_it_ends() {
    for whole in [false, true] {
        let mut w = World::leaf_spine();
        let s = w.apply(service("s", 100, &["dc"]));
        w.apply(attachment("a", &["s"], "cp"));
        w.settle();
        let kept = w.commands[&leaf1()].clone();
        w.silent.insert(leaf1());
        w.delete(&attachment_key());
        if whole {
            w.delete(&s);
        }
        w.settle();
        report_clash(&mut w, &kept);
        assert_eq!(w.phase(&attachment_key()), Phase::Terminating, "{whole}");
        assert!(w.message(&attachment_key()).contains(CLASH_MESSAGE), "{}", w.message(&attachment_key()));
        // A repeated report changes nothing.
        report_clash(&mut w, &kept);
        assert_eq!(w.phase(&attachment_key()), Phase::Terminating, "{whole}");
        end_clash(&mut w);
        assert_eq!(w.phases[&attachment_key()].last(), Some(&Phase::Deleted), "{whole}");
    }
}

#[test]
fn clash_does_not_block_creation() {
    let mut w = World::leaf_spine();
    let s = w.apply(service("s", 100, &["dc"]));
    w.apply(attachment("a", &["s"], "cp"));
    w.silent.insert(leaf1());
    w.settle();
    let made = w.commands[&leaf1()].clone();
    report_clash(&mut w, &made);
    assert_eq!((w.phase(&s), w.phase(&attachment_key())), (Phase::Ready, Phase::Ready));
}

#[test]
fn device_deletion_blocked_by_a_clash_names_it() {
    let mut w = World::leaf_spine();
    w.apply(service("s", 100, &["dc"]));
    w.apply(attachment("a", &["s"], "cp"));
    w.settle();
    let kept = w.commands[&leaf1()].clone();
    w.silent.insert(leaf1());
    let device = Key::cluster(Kind::FabricDevice, &"leaf1".into());
    w.delete(&attachment_key());
    w.delete(&device);
    w.settle();
    report_clash(&mut w, &kept);
    assert_eq!(w.phase(&device), Phase::Terminating);
    assert!(w.message(&device).contains(CLASH_MESSAGE), "{}", w.message(&device));
}
