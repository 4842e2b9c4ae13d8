//! Commands that the engine issues when the schedule says that they may be published.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use eno_core::{Event, Moment, StreamEvent, Target};
use eno_schemas::{Desired, FabricVlans};

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

/// The VLANs that each switch is commanded.
fn commanded(w: &World) -> BTreeMap<Target, FabricVlans> {
    let vlans = w.commands.iter().filter_map(|(target, desired)| Some((target, &as_fabric(desired)?.vlans)));
    vlans.map(|(target, vlans)| (target.clone(), vlans.clone())).collect()
}

#[test]
fn change_of_one_vlan_shares_all_other_blocks_with_the_command_before() {
    for there in [20, 400] {
        let mut w = World::with_transactions();
        w.apply(service("s", 901, &["dc"]));
        w.apply(attachment("a", &["s"], "cp"));
        (0..there).for_each(|index| _ = w.apply(service(&format!("t{index}"), 10 + index, &["dc"])));
        w.settle();
        let before = commanded(&w);
        w.apply(service("u", 903, &["dc"]));
        w.apply(attachment("b", &["u"], "cp"));
        w.settle();
        let after = commanded(&w);
        assert_eq!(after.len(), 4);
        for (target, vlans) in &after {
            let shares = |block: &u8| match (vlans.block(*block), before[target].block(*block)) {
                (Some(now), Some(before)) => Arc::ptr_eq(now, before),
                (now, before) => now == before,
            };
            let changed: Vec<u8> = (0..=u8::MAX).filter(|block| !shares(block)).collect();
            assert_eq!(changed, [u8::try_from(903 >> 4).unwrap()], "{target} with {there} VLANs");
        }
    }
}

#[test]
fn transaction_keeps_one_state_of_each_switch() {
    let mut w = World::with_transactions();
    w.settle();
    w.apply(service("s", 100, &["dc"]));
    w.apply(attachment("a", &["s"], "cp"));
    let mut states: BTreeMap<Target, Vec<Arc<Desired>>> = BTreeMap::new();
    while let Some(commands) = w.step_with_commands() {
        for (participant, pending) in
            commands.into_iter().filter(|(_, pending)| pending.transaction.is_some())
        {
            let tree = pending.tree.expect("it is of a switch");
            assert_eq!(tree.root().to_string(), pending.generation.hash);
            states.entry(participant.target).or_default().push(participant.desired);
        }
    }
    assert_eq!(states.len(), 4);
    for (target, states) in states {
        assert!(states.len() >= 2, "{target}: a change and its decision");
        assert!(states.chunks(2).all(|pair| pair.len() < 2 || Arc::ptr_eq(&pair[0], &pair[1])), "{target}");
    }
}
