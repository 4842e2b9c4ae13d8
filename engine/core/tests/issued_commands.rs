//! Commands that the engine issues when the schedule says that they may be published.

use std::time::Duration;

use eno_core::{Event, Moment, StreamEvent, Target};

use crate::world::*;

#[test]
fn changed_targets_are_commanded_once_with_their_desired_state() {
    let mut w = World::leaf_spine();
    w.settle();
    w.restart();
    let leaf = Target::Fabric("leaf1".into());
    let moment = |elapsed| Moment {
        at: "2026-01-01T00:00:00Z".into(),
        elapsed,
        deadline: "2026-01-01T00:00:30Z".into(),
    };
    let now = Duration::from_secs(1);
    w.engine.reconcile(&moment(now));
    // NATS lost all commands: each target is commanded again.
    w.engine.handle(Event::Stream(StreamEvent::StreamsLost));
    let issued = w.engine.reconcile(&moment(now));
    let found = issued.commands.iter().find(|(participant, _)| participant.target == leaf);
    let (participant, command) = found.unwrap();
    let desired = w.engine.desired(&leaf);
    assert_eq!(Some((participant.driver.clone(), participant.desired.clone())), desired);
    assert_eq!(command.generation.hash, participant.hash);
    assert_eq!((issued.waiting, issued.outstanding), (0, issued.commands.len()));
    for (sequence, (participant, command)) in (1..).zip(&issued.commands) {
        let (target, generation) = (participant.target.clone(), command.generation.clone());
        w.engine.handle(Event::Stream(StreamEvent::Published(target, generation, sequence)));
    }
    let again = w.engine.reconcile(&moment(now + Duration::from_mins(1)));
    assert!(again.commands.is_empty(), "{again:?}");
}
