use eno_schemas::{ProbedGateway, ProbedPath};

use super::*;

const INTERVAL: Duration = Duration::from_mins(10);

/// A change of what is wanted.
type Change<'a> = &'a dyn Fn(&mut NetworkProbes);

fn vlans(text: &str) -> VlanSet {
    text.parse().unwrap()
}

fn vlan(id: u16) -> VlanId {
    VlanId::new(id).unwrap()
}

fn probes(paths: &[(&str, &str)]) -> NetworkProbes {
    let path = |(revision, set): &(&str, &str)| ProbedPath {
        revision: (*revision).into(),
        vlans: vlans(set),
        mtu: None,
    };
    NetworkProbes {
        point: "cp".into(),
        network: "br0".into(),
        next: Some("node2".into()),
        previous: Some("node3".into()),
        paths: paths.iter().map(path).collect(),
        gateways: Vec::new(),
        crossed: Vec::new(),
        interval: 600,
    }
}

fn gateway(address: &str, set: &str) -> ProbedGateway {
    ProbedGateway { address: address.parse().unwrap(), vlans: vlans(set) }
}

fn passed() -> Outcome {
    Outcome { next: Some(Verdict::Passed), gateways: BTreeMap::new() }
}

fn lost() -> Outcome {
    Outcome { next: Some(Verdict::Lost), gateways: BTreeMap::new() }
}

fn batch(schedule: &Schedule, now: Instant) -> Batch {
    match schedule.next(now) {
        Next::Probe(batch) => batch,
        other => panic!("{other:?}"),
    }
}

/// Records the same outcome for all VLANs that are due, and returns these.
fn record_all(schedule: &mut Schedule, outcome: &Outcome, now: Instant) -> VlanSet {
    let mut all = VlanSet::EMPTY;
    while let Next::Probe(batch) = schedule.next(now) {
        assert!(batch.vlans.len() <= MAX_BATCH);
        all = all.union(&batch.vlan_set());
        let found = batch.vlans.keys().map(|vlan| (*vlan, outcome.clone())).collect();
        schedule.record(&batch, found, now, 0.5);
    }
    all
}

#[test]
fn vlans_are_due_at_once_and_then_at_the_interval() {
    let (mut schedule, now) = (Schedule::default(), Instant::now());
    assert_eq!(schedule.next(now), Next::Wait(None));
    schedule.want(vec![probes(&[("r", "1-25")])], now);
    assert_eq!(batch(&schedule, now).vlan_set(), vlans("1-10"));
    assert_eq!(record_all(&mut schedule, &passed(), now), vlans("1-25"));
    assert_eq!(schedule.next(now), Next::Wait(Some(now + INTERVAL)));
    assert_eq!(batch(&schedule, now + INTERVAL).vlan_set(), vlans("1-10"));
    let shorter = NetworkProbes { interval: 5, ..probes(&[("r", "1-25")]) };
    schedule.want(vec![shorter], now);
    assert_eq!(schedule.next(now), Next::Wait(Some(now + Duration::from_secs(5))));
}

#[test]
fn interval_varies_by_a_tenth() {
    for (random, seconds) in [(0.0, 540), (0.5, 600), (1.0, 660_u64)] {
        let (mut schedule, now) = (Schedule::default(), Instant::now());
        schedule.want(vec![probes(&[("r", "1")])], now);
        let batch = batch(&schedule, now);
        assert!(schedule.record(&batch, [(vlan(1), passed())].into(), now, random));
        let Next::Wait(Some(due)) = schedule.next(now) else { panic!() };
        assert_eq!((due - now + Duration::from_millis(1)).as_secs(), seconds);
    }
}

#[test]
fn what_did_not_answer_is_probed_again_with_back_off() {
    let silent = Outcome { gateways: [("192.0.2.1".parse().unwrap(), BTreeSet::new())].into(), ..passed() };
    let too_big = Outcome { next: Some(Verdict::TooBig), ..passed() };
    for outcome in [lost(), too_big, Outcome::unasked("no answer"), silent] {
        let (mut schedule, mut now) = (Schedule::default(), Instant::now());
        schedule.want(vec![probes(&[("r", "1")])], now);
        for seconds in [1, 2, 4, 8, 16, 30, 30] {
            record_all(&mut schedule, &outcome, now);
            assert_eq!(
                schedule.next(now),
                Next::Wait(Some(now + Duration::from_secs(seconds))),
                "{outcome:?}"
            );
            now += Duration::from_secs(seconds);
        }
        record_all(&mut schedule, &passed(), now);
        assert_eq!(schedule.next(now), Next::Wait(Some(now + INTERVAL)));
    }
}

#[test]
fn next_node_that_did_not_answer_is_asked_once_more_before_that_counts() {
    let (mut schedule, mut now) = (Schedule::default(), Instant::now());
    schedule.want(vec![probes(&[("r", "1")])], now);
    let mut ask = |outcome: &Outcome| {
        let batch = batch(&schedule, now);
        let changed = schedule.record(&batch, [(vlan(1), outcome.clone())].into(), now, 0.5);
        let (results, next) = (schedule.results(), schedule.next(now));
        if let Next::Wait(Some(due)) = next {
            now = due;
        }
        (changed, results[0].passed.len(), results[0].lost.len(), matches!(next, Next::Probe(_)))
    };
    let left = Outcome::unasked("it has left");
    assert_eq!(ask(&lost()), (false, 0, 0, true));
    assert_eq!(ask(&left), (true, 0, 0, false));
    assert_eq!(ask(&lost()), (false, 0, 0, true));
    assert_eq!(ask(&passed()), (true, 1, 0, false));
    assert_eq!(ask(&lost()), (false, 1, 0, true), "what was found last stays");
    assert_eq!(ask(&lost()), (true, 0, 1, false));
    assert_eq!(ask(&lost()), (false, 0, 1, false), "it counts already");
    assert_eq!(ask(&passed()), (true, 1, 0, false));
    assert_eq!(ask(&lost()), (false, 1, 0, true));
    let too_big = Outcome { next: Some(Verdict::TooBig), ..passed() };
    assert_eq!(ask(&passed()), (false, 1, 0, false));
    assert_eq!(ask(&too_big), (false, 1, 0, true));
    assert_eq!(ask(&too_big), (true, 0, 0, false));
    assert_eq!(ask(&lost()), (false, 0, 0, true), "it is another verdict");
}

#[test]
fn silence_of_a_gateway_counts_once_it_comes_again() {
    let address: IpAddr = "192.0.2.1".parse().unwrap();
    let (mut schedule, mut now) = (Schedule::default(), Instant::now());
    schedule.want(vec![probes(&[("r", "1")])], now);
    let mut ask = |macs: &[&str], next: Verdict| {
        let batch = batch(&schedule, now);
        let macs = macs.iter().map(|mac| (*mac).to_owned()).collect();
        let outcome = Outcome { next: Some(next), gateways: [(address, macs)].into() };
        let changed = schedule.record(&batch, [(vlan(1), outcome)].into(), now, 0.5);
        let (results, next) = (schedule.results(), schedule.next(now));
        if let Next::Wait(Some(due)) = next {
            now = due;
        }
        let found = results[0].gateways.first().map(|gateway| gateway.macs.len());
        (changed, found, matches!(next, Next::Probe(_)))
    };
    let mac = &["02:00:00:00:00:01"];
    assert_eq!(ask(&[], Verdict::Passed), (false, None, true));
    assert_eq!(ask(mac, Verdict::Passed), (true, Some(1), false));
    assert_eq!(ask(&[], Verdict::Passed), (false, Some(1), true), "what was found last stays");
    assert_eq!(ask(&[], Verdict::Passed), (true, Some(0), false));
    assert_eq!(ask(&[], Verdict::Passed), (false, Some(0), false), "it counts already");
    assert_eq!(ask(&[], Verdict::Lost), (false, Some(0), true), "the next node does not");
    assert_eq!(ask(&[], Verdict::Lost), (true, Some(0), false));
    assert_eq!(ask(mac, Verdict::Lost), (true, Some(1), false));
    assert_eq!(ask(&[], Verdict::Lost), (false, Some(1), true));
}

#[test]
fn results_end_with_their_aim() {
    let first =
        NetworkProbes { gateways: vec![gateway("192.0.2.1", "2")], ..probes(&[("a", "1-2"), ("b", "3")]) };
    let after = |change: &dyn Fn(&mut NetworkProbes)| {
        let (mut schedule, now) = (Schedule::default(), Instant::now());
        schedule.want(vec![first.clone()], now);
        record_all(&mut schedule, &passed(), now);
        let mut second = first.clone();
        change(&mut second);
        schedule.want(vec![second], now);
        let left = schedule.results()[0].passed.clone();
        (left.to_string(), record_all(&mut schedule, &passed(), now).to_string())
    };
    let cases: [(Change<'_>, &str, &str); 7] = [
        (&|_| {}, "1-3", ""),
        (&|probes| probes.previous = None, "1-3", ""),
        (&|probes| probes.next = Some("node4".into()), "", "1-3"),
        (&|probes| probes.paths[0].revision = "c".into(), "3", "1-2"),
        (&|probes| probes.paths[0].mtu = Some(1500), "3", "1-2"),
        (&|probes| probes.gateways = vec![gateway("192.0.2.1", "1-2")], "2-3", "1"),
        (&|probes| probes.paths[0].vlans = vlans("2,9"), "2-3", "9"),
    ];
    for (at, (change, left, again)) in cases.into_iter().enumerate() {
        assert_eq!(after(change), (left.to_owned(), again.to_owned()), "case {at}");
    }
}

#[test]
fn outdated_results_are_not_recorded() {
    let (mut schedule, now) = (Schedule::default(), Instant::now());
    schedule.want(vec![probes(&[("a", "1-3")])], now);
    let batch = batch(&schedule, now);
    schedule.want(vec![probes(&[("a", "1"), ("b", "2")])], now);
    let found = || batch.vlans.keys().map(|vlan| (*vlan, passed())).collect();
    assert!(schedule.record(&batch, found(), now, 0.5));
    assert_eq!(schedule.results()[0].passed, vlans("1"));
    assert!(!schedule.record(&batch, found(), now, 0.5), "nothing has changed");
    schedule.want(Vec::new(), now);
    assert!(!schedule.record(&batch, found(), now, 0.5));
    assert_eq!((schedule.results(), schedule.next(now)), (Vec::new(), Next::Wait(None)));
}

#[test]
fn results_are_grouped_in_the_order_of_the_command() {
    let (mut schedule, now) = (Schedule::default(), Instant::now());
    let other = NetworkProbes { point: "a".into(), next: None, ..probes(&[("r", "7")]) };
    schedule.want(vec![probes(&[("r", "1-6,8")]), other], now);
    let address: IpAddr = "192.0.2.1".parse().unwrap();
    let answered = |macs: &[&str]| {
        let macs = macs.iter().map(|mac| (*mac).to_owned()).collect();
        Outcome { gateways: [(address, macs)].into(), ..passed() }
    };
    let of_batch: BTreeMap<VlanId, Outcome> = [
        (vlan(1), answered(&["02:00:00:00:00:01"])),
        (vlan(2), answered(&["02:00:00:00:00:01"])),
        (vlan(3), answered(&[])),
        (vlan(4), lost()),
        (vlan(5), Outcome::unasked("b")),
        (vlan(6), Outcome::unasked("a")),
        (vlan(8), Outcome { next: Some(Verdict::TooBig), ..passed() }),
    ]
    .into();
    while let Next::Probe(batch) = schedule.next(now) {
        let found = if batch.place.point == "cp" {
            of_batch.clone()
        } else {
            [(vlan(7), Outcome { next: None, ..answered(&["02:00:00:00:00:01"]) })].into()
        };
        schedule.record(&batch, found, now, 0.5);
    }
    let [first, second] = &schedule.results()[..] else { panic!() };
    assert_eq!((first.passed.to_string().as_str(), first.lost.to_string().as_str()), ("1-3", "4"));
    assert_eq!(first.too_big, vlans("8"));
    let answers = first.gateways.iter().map(|one| (one.macs.len(), one.vlans.to_string()));
    assert_eq!(answers.collect::<Vec<_>>(), [(0, "3".to_owned()), (1, "1-2".to_owned())]);
    let unasked = first.unasked.iter().map(|one| (one.reason.to_string(), one.vlans.to_string()));
    let expected = [("a", "6"), ("b", "5")].map(|(reason, set)| (reason.to_owned(), set.to_owned()));
    assert_eq!(unasked.collect::<Vec<_>>(), expected);
    assert_eq!((second.point.as_str(), second.passed.is_empty(), second.gateways.len()), ("a", true, 1));
}

#[test]
fn visits_are_permitted_to_the_previous_node_on_own_vlans() {
    let mut schedule = Schedule::default();
    let mut wanted = probes(&[("a", "1-3"), ("b", "7")]);
    wanted.paths[0].mtu = Some(1500);
    schedule.want(vec![wanted], Instant::now());
    let visit = |point: &str, network: &str, echo: &str| Visit {
        point: point.into(),
        network: network.into(),
        id: 1,
        vlans: vlans("2-8"),
        echo: vlans(echo),
        there: None,
        ports: None,
    };
    // Echo: only where this node is told to probe by it, and only where it goes.
    for (asked, permitted) in [("", ""), ("1-8", "2-3"), ("1,7,9", "")] {
        let permit = schedule.permitted("node3", &visit("cp", "br0", asked)).unwrap();
        assert_eq!((permit.vlans, permit.echo), (vlans("2-3,7"), vlans(permitted)), "{asked}");
    }
    for (from, point, network) in [("node2", "cp", "br0"), ("node3", "cp2", "br0"), ("node3", "cp", "br1")] {
        assert_eq!(schedule.permitted(from, &visit(point, network, "")), None, "{from} {point} {network}");
    }
}
