//! Targets that are found unchanged. Nothing is published about them, so no answer wakes those that wait behind them.

use super::*;

/// A new engine's gate, which finds these targets commanded already.
fn begun(targets: &[Target], now: Instant) -> Gate {
    let mut gate = Gate::new(3);
    for target in targets {
        let generation = Generation { term: 2, sequence: 1, hash: "same".into() };
        let held =
            Held { driver: "netconf".into(), generation: Some(generation), unconfirmed: false, sequence: 1 };
        gate.found(target.clone(), held);
        gate.changed(target.clone(), now);
    }
    gate
}

fn nads(count: usize) -> Vec<Target> {
    let namespace = |n: usize| format!("ns{}", n % 7);
    (0..count).map(|n| Target::Nad(namespace(n).into(), format!("{n:05}").into())).collect()
}

/// Takes turns as the engine does while no time passes; the targets that have something to publish.
fn take_turns(
    gate: &mut Gate,
    now: Instant,
    groups: fn(&[Name]) -> Vec<TransactionGroup>,
    hash: impl Fn(&Target) -> &'static str,
) -> Vec<Target> {
    let mut published = Vec::new();
    for _ in 0..1000 {
        let Due { alone, together, next, .. } = gate.due(now, groups);
        for target in alone.into_iter().chain(together.into_iter().flatten()) {
            let turn = gate.take(&target, &"netconf".into(), hash(&target).into(), now);
            published.extend(turn.map(|_| target));
        }
        if next.is_none_or(|next| next > now) {
            return published;
        }
    }
    panic!("the gate asks again without end");
}

#[test]
fn ten_thousand_are_settled_without_time_passing() {
    let now = Instant::now();
    let mut gate = begun(&nads(10_000), now);
    assert_eq!(take_turns(&mut gate, now, apart, |_| "same"), []);
    assert_eq!(gate.counts(), (0, 0));
}

#[test]
fn a_changed_target_behind_them_goes_at_once() {
    let now = Instant::now();
    let mut targets = nads(300);
    let changed = Target::Nad("ns0".into(), "behind".into());
    targets.push(changed.clone());
    let mut gate = begun(&targets, now);
    let hash = |target: &Target| {
        if matches!(target, Target::Nad(_, name) if &**name == "behind") { "new" } else { "same" }
    };
    assert_eq!(take_turns(&mut gate, now, apart, hash), [changed]);
}

#[test]
fn a_switch_that_follows_them_goes_at_once() {
    let now = Instant::now();
    let mut gate = begun(&[switch("leaf1"), switch("leaf2"), switch("plain1")], now);
    let hash = |target: &Target| if *target == switch("plain1") { "new" } else { "same" };
    assert_eq!(take_turns(&mut gate, now, connected, hash), [switch("plain1")]);
}

#[test]
fn what_finds_no_room_waits_for_nats() {
    let now = Instant::now();
    let mut gate = begun(&nads(1000), now);
    let first = take_turns(&mut gate, now, apart, |_| "new");
    assert_eq!(first.len(), PUBLISHING);
    gate.published(&first[0], &Generation { term: 3, sequence: 1, hash: "new".into() }, 2, now);
    assert_eq!(take_turns(&mut gate, now, apart, |_| "new").len(), 1);
}
