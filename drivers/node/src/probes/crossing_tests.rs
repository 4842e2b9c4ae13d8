use eno_schemas::ProbedPath;

use super::super::schedule::{Next, Outcome, Schedule, Verdict};
use super::*;

const INTERVAL: Duration = Duration::from_mins(10);

/// A change of what is wanted.
type Change<'a> = &'a dyn Fn(&mut NetworkProbes);

fn pair(vlan: u16, other: u16) -> CrossedVlans {
    let [vlan, other] = [vlan, other].map(|id| VlanId::new(id).unwrap());
    CrossedVlans { vlan, other }
}

/// VLANs 1 to 100 with these pairs.
fn probes(crossed: &[(u16, u16)]) -> NetworkProbes {
    let path = |revision: &str, vlans: &str| ProbedPath {
        revision: revision.into(),
        vlans: vlans.parse().unwrap(),
        mtu: None,
    };
    NetworkProbes {
        point: "cp".into(),
        network: "br0".into(),
        next: Some("node2".into()),
        previous: Some("node3".into()),
        paths: vec![path("a", "1"), path("b", "2"), path("c", "3-100")],
        gateways: Vec::new(),
        crossed: crossed.iter().map(|(vlan, other)| pair(*vlan, *other)).collect(),
        interval: 600,
    }
}

/// Records results of all VLANs that are due.
fn record_vlans(schedule: &mut Schedule, now: Instant) {
    while let Next::Probe(batch) = schedule.next(now) {
        let outcome = Outcome { next: Some(Verdict::Passed), ..Outcome::default() };
        let found = batch.vlans.keys().map(|vlan| (*vlan, outcome.clone())).collect();
        schedule.record(&batch, found, now, 0.5);
    }
}

fn crossing(schedule: &Schedule, now: Instant) -> Crossing {
    match schedule.next(now) {
        Next::Cross(crossing) => crossing,
        other => panic!("{other:?}"),
    }
}

/// Records the same for all pairs that are due, and returns these.
fn record_all(schedule: &mut Schedule, leaks: bool, now: Instant) -> Vec<CrossedVlans> {
    let mut all = Vec::new();
    while let Next::Cross(crossing) = schedule.next(now) {
        let found = crossing.pairs.keys().map(|pair| (*pair, leaks)).collect();
        schedule.record_crossing(&crossing, &found, now, 0.5);
        all.extend(crossing.pairs.into_keys());
    }
    all.sort_unstable();
    all
}

/// A schedule with these pairs whose VLANs have results.
fn schedule(probes: &NetworkProbes, now: Instant) -> Schedule {
    let mut schedule = Schedule::default();
    schedule.want(vec![probes.clone()], now);
    record_vlans(&mut schedule, now);
    schedule
}

#[test]
fn pairs_are_asked_about_once_both_vlans_carry_packets() {
    let (mut schedule, now) = (Schedule::default(), Instant::now());
    let only = |vlans: &str| {
        let mut only = probes(&[(1, 2)]);
        only.paths.retain(|path| vlans.contains(&path.revision));
        only
    };
    schedule.want(vec![only("a")], now);
    record_vlans(&mut schedule, now);
    assert!(matches!(schedule.next(now), Next::Wait(_)), "VLAN 2 is not probed");
    schedule.want(vec![only("ab")], now);
    assert!(matches!(schedule.next(now), Next::Probe(_)));
    record_vlans(&mut schedule, now);
    assert_eq!(crossing(&schedule, now).next_node(), Some("node2"));
    assert_eq!(record_all(&mut schedule, true, now), [pair(1, 2)]);
    let found = &schedule.results()[0];
    assert_eq!((&found.leaking[..], found.isolated.len()), (&[pair(1, 2)][..], 0));
    let later = now + INTERVAL;
    record_vlans(&mut schedule, later);
    assert_eq!(record_all(&mut schedule, false, later), [pair(1, 2)]);
    let found = &schedule.results()[0];
    assert_eq!((&found.isolated[..], found.leaking.len()), (&[pair(1, 2)][..], 0));
    schedule.want(Vec::new(), now);
    assert_eq!(schedule.next(later + INTERVAL), Next::Wait(None));
}

#[test]
fn pairs_have_results_only_while_both_vlans_carry_packets() {
    let now = Instant::now();
    let cases = [
        (Some(Verdict::TooBig), true),
        (Some(Verdict::Lost), false),
        (Some(Verdict::Unasked("it is away".into())), false),
    ];
    for (next, carries) in cases {
        for crossed in [(1, 2), (2, 1)] {
            let mut schedule = schedule(&probes(&[crossed, (3, 4)]), now);
            let all = [pair(crossed.0, crossed.1), pair(3, 4)];
            let left = if carries { &all[..] } else { &all[1..] };
            let mut record = |next: &Option<Verdict>, now| {
                while let Next::Probe(batch) = schedule.next(now) {
                    let outcome = |vlan: VlanId| Outcome {
                        next: if vlan.get() == 1 { next.clone() } else { Some(Verdict::Passed) },
                        ..Outcome::default()
                    };
                    let found = batch.vlans.keys().map(|vlan| (*vlan, outcome(*vlan))).collect();
                    schedule.record(&batch, found, now, 0.5);
                }
                let results = schedule.results().remove(0).isolated;
                (results, record_all(&mut schedule, false, now))
            };
            assert_eq!(record(&Some(Verdict::Passed), now).1, all, "{next:?}");
            let later = now + INTERVAL;
            assert_eq!(record(&next, later), (left.to_vec(), left.to_vec()), "{next:?}");
            // It carries packets again, and is asked about at once.
            let (_, again) = record(&Some(Verdict::Passed), later + Duration::from_secs(30));
            assert_eq!(again.contains(&all[0]), !carries, "{next:?}");
        }
    }
}

#[test]
fn pairs_of_a_doubted_vlan_are_not_asked_about() {
    let now = Instant::now();
    let mut wanted = probes(&[(1, 2)]);
    wanted.paths.truncate(2);
    let mut schedule = schedule(&wanted, now);
    record_all(&mut schedule, false, now);
    // The pair has waited longer than the VLAN that is asked once more.
    let later = now + INTERVAL + Duration::from_secs(1);
    let Next::Probe(batch) = schedule.next(later) else { panic!() };
    let outcome = |next| Outcome { next: Some(next), ..Outcome::default() };
    let found = [(1, outcome(Verdict::Lost)), (2, outcome(Verdict::Passed))];
    let found = found.map(|(id, outcome)| (VlanId::new(id).unwrap(), outcome));
    schedule.record(&batch, found.into(), later, 0.5);
    assert!(matches!(schedule.next(later), Next::Probe(_)));
}

#[test]
fn what_could_not_be_asked_is_asked_again_with_back_off_and_its_result_stays() {
    let mut now = Instant::now();
    let mut schedule = schedule(&probes(&[(1, 2)]), now);
    let all = crossing(&schedule, now);
    assert!(schedule.record_crossing(&all, &[(pair(1, 2), false)].into(), now, 0.5));
    assert!(!schedule.record_crossing(&all, &[(pair(1, 2), false)].into(), now, 0.5), "nothing has changed");
    for seconds in [1, 2, 4, 8, 16, 30, 30] {
        assert!(!schedule.record_crossing(&all, &BTreeMap::new(), now, 0.5));
        let after = Duration::from_secs(seconds);
        assert_eq!(schedule.next(now), Next::Wait(Some(now + after)), "{seconds}");
        now += after;
        assert_eq!(crossing(&schedule, now), all);
    }
    assert_eq!(schedule.results()[0].isolated, [pair(1, 2)]);
}

#[test]
fn results_end_with_their_question() {
    let first = probes(&[(1, 2), (2, 1), (3, 4)]);
    let cases: [(Change<'_>, &[CrossedVlans], &[CrossedVlans]); 6] = [
        (&|_| {}, &[pair(1, 2), pair(2, 1), pair(3, 4)], &[]),
        (&|probes| probes.next = Some("node4".into()), &[], &[pair(1, 2), pair(2, 1), pair(3, 4)]),
        (&|probes| probes.paths[1].revision = "d".into(), &[pair(3, 4)], &[pair(1, 2), pair(2, 1)]),
        (&|probes| probes.crossed.retain(|one| *one != pair(1, 2)), &[pair(2, 1), pair(3, 4)], &[]),
        (&|probes| probes.next = None, &[], &[]),
        (&|probes| drop(probes.paths.pop()), &[pair(1, 2), pair(2, 1)], &[]),
    ];
    for (at, (change, left, again)) in cases.into_iter().enumerate() {
        let now = Instant::now();
        let mut schedule = schedule(&first, now);
        record_all(&mut schedule, false, now);
        let mut second = first.clone();
        change(&mut second);
        schedule.want(vec![second], now);
        assert_eq!(schedule.results()[0].isolated, left, "case {at}");
        record_vlans(&mut schedule, now);
        assert_eq!(record_all(&mut schedule, false, now), again, "case {at}");
    }
}

#[test]
fn batches_are_bounded_and_ask_for_each_address_once() {
    let all: Vec<(u16, u16)> = (1..=50).flat_map(|vlan| [(vlan, vlan + 50), (vlan + 50, vlan)]).collect();
    let wanted = probes(&[&[(7, 7), (1, 3), (2, 3), (4, 3)][..], &all].concat());
    let now = Instant::now();
    let mut schedule = schedule(&wanted, now);
    let mut count = 0;
    while let Next::Cross(crossing) = schedule.next(now) {
        let (_, others) = crossing.sides();
        assert!(crossing.pairs.len() <= MAX_BATCH && others.len() == crossing.pairs.len());
        let found = crossing.pairs.keys().map(|pair| (*pair, false)).collect();
        schedule.record_crossing(&crossing, &found, now, 0.5);
        count += crossing.pairs.len();
    }
    assert_eq!(count, CrossedVlans::MAX - 1, "one VLAN is no pair");
}

#[test]
fn outdated_results_are_not_recorded() {
    let now = Instant::now();
    let mut schedule = schedule(&probes(&[(1, 2)]), now);
    let all = crossing(&schedule, now);
    let mut other = probes(&[(1, 2)]);
    other.paths[0].revision = "d".into();
    schedule.want(vec![other], now);
    assert!(!schedule.record_crossing(&all, &[(pair(1, 2), true)].into(), now, 0.5));
    assert!(schedule.results()[0].leaking.is_empty());
}
