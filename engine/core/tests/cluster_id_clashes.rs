//! Clashes of cluster IDs: a switch keeps VLANs that another cluster may own, and their objects stay Terminating.

use eno_schemas::{FabricDesired, Item, Note, Phase};

use crate::fixtures::{device_key, ready_world, switch};
use crate::world::*;

const CLASH_MESSAGE: &str = "another cluster uses the cluster ID lab, too";

/// leaf1 reports its last command as applied, with the note of a clash and the former state `kept`.
fn report_clash(w: &mut World, kept: &FabricDesired) {
    let note = Note { kind: "ClusterIDClash".into(), item: Item::TARGET, message: CLASH_MESSAGE.into() };
    w.notes.insert(switch("leaf1"), vec![note]);
    w.silent.insert(switch("leaf1"));
    w.report_applied("leaf1", kept.carried_out());
}

/// Ends the clash: leaf1 executes its last command.
fn end_clash(w: &mut World) {
    w.notes.clear();
    w.silent.clear();
    w.run_driver_again(&switch("leaf1"));
}

#[test]
fn clash_blocks_deletion_until_it_ends() {
    for whole in [false, true] {
        let (mut w, s, a) = ready_world();
        let kept = w.commanded_fabric("leaf1").clone();
        w.silent.insert(switch("leaf1"));
        w.delete(&a);
        if whole {
            w.delete(&s);
        }
        w.settle();
        report_clash(&mut w, &kept);
        assert_eq!(w.phase(&a), Phase::Terminating, "{whole}");
        assert!(w.message(&a).contains(CLASH_MESSAGE), "{}", w.message(&a));
        // A repeated report changes nothing.
        report_clash(&mut w, &kept);
        assert_eq!(w.phase(&a), Phase::Terminating, "{whole}");
        end_clash(&mut w);
        assert_eq!(w.phases[&a].last(), Some(&Phase::Deleted), "{whole}");
    }
}

#[test]
fn clash_does_not_block_creation() {
    let mut w = World::leaf_spine();
    let s = w.apply(service("s", 100, &["dc"]));
    let a = w.apply(attachment("a", &["s"], "cp"));
    w.silent.insert(switch("leaf1"));
    w.settle();
    let made = w.commanded_fabric("leaf1").clone();
    report_clash(&mut w, &made);
    assert_eq!((w.phase(&s), w.phase(&a)), (Phase::Ready, Phase::Ready));
}

#[test]
fn device_deletion_blocked_by_a_clash_names_it() {
    let (mut w, _, a) = ready_world();
    let kept = w.commanded_fabric("leaf1").clone();
    w.silent.insert(switch("leaf1"));
    let device = device_key("leaf1");
    w.delete(&a);
    w.delete_and_settle(&device);
    report_clash(&mut w, &kept);
    w.assert_message_contains(&device, Phase::Terminating, CLASH_MESSAGE);
}
