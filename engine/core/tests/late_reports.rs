//! Late reports on an older command with the same hash as the present one, with another command in between.

use eno_core::{Event, Key, Target};
use eno_schemas::{Applied, Desired, Phase, Report};

use crate::fixtures::switch;
use crate::world::*;

/// The report on the target's present command.
fn answer(w: &mut World, target: &Target) -> Report {
    w.settle();
    let command = w.command(target);
    let applied = match &command.desired {
        Desired::Fabric(fabric) => fabric.carried_out(),
        Desired::Nad(nad) => Applied::Nad { present: nad.attachment.is_some() },
        Desired::Node(_) | Desired::Speaker(_) => panic!("there are no agents"),
    };
    Report {
        applied: Some(applied),
        ..Report::new((command.driver, command.target), command.generation, ("i", "2026-01-01T00:00:00Z"))
    }
}

fn receive(w: &mut World, target: &Target, report: &Report) {
    w.engine.handle(Event::Report(target.clone(), Box::new(report.clone())));
    w.settle();
}

fn assert_late_report_is_ignored(w: &mut World, target: &Target, of: &Key, change: impl Fn(&mut World, u16)) {
    w.silent.insert(target.clone());
    change(w, 101);
    let first = answer(w, target);
    change(w, 102);
    w.settle();
    change(w, 101);
    let third = answer(w, target);
    assert_eq!(first.generation.hash, third.generation.hash);
    receive(w, target, &first);
    assert_eq!(w.phase(of), Phase::Pending, "the second command may be applied");
    receive(w, target, &third);
    assert_eq!(w.phase(of), Phase::Ready);
    // The same command with a newer generation, of a new leader.
    w.nats.lose_streams();
    w.restart();
    let fourth = answer(w, target);
    receive(w, target, &third);
    receive(w, target, &fourth);
    assert_eq!(w.phase(of), Phase::Ready);
}

#[test]
fn late_report_of_a_switch_is_ignored() {
    let mut w = World::leaf_spine();
    let s = w.apply_and_settle(service("s", 100, &["dc"]));
    assert_late_report_is_ignored(&mut w, &switch("leaf2"), &s, |w, vid| {
        w.apply(service("s", vid, &["dc"]));
    });
}

#[test]
fn late_report_of_a_nad_is_ignored() {
    let mut w = World::leaf_spine();
    w.apply(service("s", 100, &[]));
    let a = w.apply_and_settle(attachment("a", &["s"], "cp"));
    assert_late_report_is_ignored(&mut w, &Target::Nad("ns".into(), "a".into()), &a, |w, vid| {
        w.apply(service("s", vid, &[]));
    });
}
