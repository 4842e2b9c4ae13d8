//! Unchanged targets. They cause no publish, so no acknowledgement wakes the targets that wait behind them.

use super::*;

/// A schedule of a new leader in which these targets are already commanded and dirty.
fn restarted_schedule(targets: &[Target], now: Duration) -> Schedule {
    let mut schedule = Schedule::new(3);
    for target in targets {
        let generation = Generation { term: 2, sequence: 1, hash: "same".into() };
        let stored = Stored {
            driver: "netconf".into(),
            generation: Some(generation),
            unconfirmed: false,
            sequence: 1,
        };
        schedule.load_stored(target.clone(), stored);
        schedule.mark_dirty(target.clone(), now);
    }
    schedule
}

fn nads(count: usize) -> Vec<Target> {
    let namespace = |n: usize| format!("ns{}", n % 7);
    (0..count).map(|n| Target::Nad(namespace(n).into(), format!("{n:05}").into())).collect()
}

/// Issues all ready commands at one point in time, as the engine does; returns the targets with a new command.
fn issue_all_ready(
    schedule: &mut Schedule,
    now: Duration,
    groups: fn(&[Name]) -> Vec<TransactionGroup>,
    hash: impl Fn(&Target) -> &'static str,
) -> Vec<Target> {
    let mut published = Vec::new();
    for _ in 0..1000 {
        let ReadyCommands { single, joint, next, .. } = schedule.ready(now, groups);
        for target in single.into_iter().chain(joint.into_iter().flatten()) {
            let command = schedule.issue_if_changed(&target, &"netconf".into(), hash(&target).into(), now);
            published.extend(command.map(|_| target));
        }
        if next.is_none_or(|next| next > now) {
            return published;
        }
    }
    panic!("the gate asks again without end");
}

#[test]
fn ten_thousand_unchanged_targets_settle_at_once() {
    let now = Duration::from_secs(100);
    let mut schedule = restarted_schedule(&nads(10_000), now);
    assert_eq!(issue_all_ready(&mut schedule, now, ungrouped, |_| "same"), []);
    assert_eq!(schedule.counts(), (0, 0));
}

#[test]
fn changed_target_behind_unchanged_ones_is_published_at_once() {
    let now = Duration::from_secs(100);
    let mut targets = nads(300);
    let changed = Target::Nad("ns0".into(), "behind".into());
    targets.push(changed.clone());
    let mut schedule = restarted_schedule(&targets, now);
    let hash = |target: &Target| {
        if matches!(target, Target::Nad(_, name) if &**name == "behind") { "new" } else { "same" }
    };
    assert_eq!(issue_all_ready(&mut schedule, now, ungrouped, hash), [changed]);
}

#[test]
fn changed_switch_behind_unchanged_group_is_published_at_once() {
    let now = Duration::from_secs(100);
    let mut schedule = restarted_schedule(&[switch("leaf1"), switch("leaf2"), switch("plain1")], now);
    let hash = |target: &Target| if *target == switch("plain1") { "new" } else { "same" };
    assert_eq!(issue_all_ready(&mut schedule, now, connected, hash), [switch("plain1")]);
}

#[test]
fn publishes_beyond_limit_wait_for_confirmation() {
    let now = Duration::from_secs(100);
    let mut schedule = restarted_schedule(&nads(1000), now);
    let first = issue_all_ready(&mut schedule, now, ungrouped, |_| "new");
    assert_eq!(first.len(), MAX_PUBLISHING);
    schedule.confirm_published(&first[0], &Generation { term: 3, sequence: 1, hash: "new".into() }, 2, now);
    assert_eq!(issue_all_ready(&mut schedule, now, ungrouped, |_| "new").len(), 1);
}
