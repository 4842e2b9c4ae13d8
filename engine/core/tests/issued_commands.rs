//! Commands that the engine issues when the schedule says that they may be published.

use std::time::Duration;

use eno_core::{Moment, Target};

#[allow(clippy::wildcard_imports, reason = "the tests use most of the simulated cluster")]
use crate::world::*;

#[test]
fn changed_targets_are_commanded_once_with_their_desired_state() {
    let mut w = World::leaf_spine();
    w.settle();
    let (leaf, gone) = (Target::Fabric("leaf1".into()), Target::Fabric("gone".into()));
    let now = Duration::from_secs(1);
    for target in [&leaf, &gone] {
        w.engine.schedule_mut().mark_dirty(target.clone(), now);
    }
    let moment = |elapsed| Moment {
        at: "2026-01-01T00:00:00Z".into(),
        elapsed,
        deadline: "2026-01-01T00:00:30Z".into(),
    };
    let issued = w.engine.reconcile(&moment(now));
    let [(participant, command)] = &issued.commands[..] else { panic!("{issued:?}") };
    let desired = w.engine.desired(&leaf);
    assert_eq!(Some((participant.driver.clone(), participant.desired.clone())), desired);
    assert_eq!((command.generation.sequence, &command.generation.hash), (1, &participant.hash));
    assert_eq!(w.engine.schedule().counts(), (0, 1), "a target without a desired state is dropped");
    let generation = command.generation.clone();
    let schedule = w.engine.schedule_mut();
    schedule.confirm_published(&leaf, &generation, 1, now);
    let later = now + Duration::from_mins(1);
    schedule.mark_dirty(leaf.clone(), later);
    let issued = w.engine.reconcile(&moment(later));
    assert_eq!((issued.commands.len(), issued.unchanged), (0, 1), "it is commanded already");
}
