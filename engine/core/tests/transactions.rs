//! Changes of several switches: on all or on none.

mod world;

use std::collections::{BTreeMap, BTreeSet};

use eno_core::spec::{LeadsTo, NodePoolSpec, Spec};
use eno_core::{Event, Key, Kind, Labels, Name, Selector};
use eno_schemas::{Phase, VlanId};
use proptest::prelude::*;
#[allow(clippy::wildcard_imports, reason = "the words that worlds are told in")]
use world::*;

/// A leaf–spine fabric with a connection point on each side.
fn sides() -> World {
    let mut w = World::together();
    w.settle();
    for (side, nodes) in [("left", ["node1", "node2"]), ("right", ["node3", "node4"])] {
        for node in nodes {
            let labels = Labels::from([("side".into(), side.into())]);
            w.nodes.insert(node.into(), (labels.clone(), true));
            w.engine.handle(Event::Node { name: node.into(), labels, ready: true });
        }
        let selector = format!(r#"[{{"key":"side","operator":"In","values":["{side}"]}}]"#);
        let node_selector = serde_json::from_str::<Selector>(&selector).unwrap();
        w.apply(object(Kind::NodePool, side, Spec::NodePool(NodePoolSpec { node_selector })));
        w.apply(point(side, Some(side)));
    }
    w.settle();
    w.fab().outcomes.clear();
    w.fab().participants.clear();
    w
}

const RIGHT: [&str; 3] = ["leaf2:e1", "leaf2:e2", "leaf2:gw"];

#[test]
fn a_change_of_several_switches_is_one_transaction() {
    let mut w = sides();
    let s = w.apply(service("s", 100, &["dc"]));
    let a = w.apply(attachment("a", &["s"], "left"));
    w.settle();
    assert_eq!((w.phase(&s), w.phase(&a)), (Phase::Ready, Phase::Ready));
    assert_eq!((w.fab().outcomes.clone(), w.fab().participants.clone()), (vec!["confirmed"], vec![4]));
    // One switch alone needs none.
    w.apply(service("t", 200, &["dc"]));
    w.settle();
    assert_eq!(w.carriers(200), ["leaf2:gw"]);
    assert_eq!(w.fab().outcomes.len(), 1);
}

#[test]
fn what_one_switch_refuses_is_on_none_and_the_rest_goes_on() {
    let mut w = sides();
    w.refuse("spine1", 150, true);
    let mut services = Vec::new();
    for vid in 100..300 {
        services.push(w.apply(service(&format!("s{vid}"), vid, &["dc"])));
        w.apply(attachment(&format!("a{vid}"), &[&format!("s{vid}")], "left"));
    }
    w.settle();
    assert_eq!(w.fab().outcomes, ["refused", "confirmed"]);
    for (vid, key) in (100..300).zip(&services) {
        if vid == 150 {
            assert_eq!((w.phase(key), w.carriers(vid)), (Phase::Error, Vec::<String>::new()));
            assert_eq!(w.message(key), "FabricDevice spine1: VLAN 150: resource exhausted");
        } else {
            assert_eq!((w.phase(key), w.carriers(vid).len()), (Phase::Ready, 11), "{vid}");
        }
    }
    // With every further try it is waited for longer, and its phase is no other meanwhile.
    let phases = w.phases[&services[50]].clone();
    assert_eq!(w.fab().retries, [(services[50].clone(), 1)]);
    w.retry();
    w.settle();
    assert_eq!(w.fab().retries, [(services[50].clone(), 2)]);
    assert_eq!(w.phases[&services[50]], phases);
    w.refuse("spine1", 150, false);
    w.retry();
    w.settle();
    assert_eq!((w.phase(&services[50]), w.carriers(150).len()), (Phase::Ready, 11));
}

#[test]
fn what_is_realised_stays_when_more_is_refused() {
    let mut w = sides();
    let s = w.apply(service("s", 100, &["dc"]));
    let right = w.apply(attachment("right", &["s"], "right"));
    w.settle();
    assert_eq!(w.carriers(100), RIGHT);
    w.refuse("leaf1", 100, true);
    let left = w.apply(attachment("left", &["s"], "left"));
    w.settle();
    assert_eq!(w.carriers(100), RIGHT);
    assert_eq!((w.phase(&right), w.phase(&left), w.phase(&s)), (Phase::Ready, Phase::Error, Phase::Error));
    // What is given up meanwhile goes all the same.
    w.delete(&right);
    w.settle();
    assert_eq!(w.carriers(100), ["leaf2:gw"]);
    // A change of the spec is a new try, and so is giving up what was refused.
    w.delete(&left);
    w.settle();
    assert_eq!((w.phase(&s), w.carriers(100)), (Phase::Ready, vec!["leaf2:gw".to_owned()]));
}

#[test]
fn a_vlan_that_is_refused_leaves_the_former_one() {
    let mut w = sides();
    let s = w.apply(service("s", 100, &["dc"]));
    w.apply(attachment("a", &["s"], "left"));
    w.settle();
    w.refuse("spine2", 200, true);
    w.apply(service("s", 200, &["dc"]));
    w.settle();
    assert_eq!((w.carriers(100).len(), w.carriers(200).len(), w.phase(&s)), (11, 0, Phase::Error));
    // Nobody gets what it keeps.
    let other = w.apply(service("other", 100, &["dc"]));
    w.settle();
    assert_eq!(w.phase(&other), Phase::Error);
    w.refuse("spine2", 200, false);
    w.retry();
    w.settle();
    assert_eq!((w.carriers(200).len(), w.phase(&s), w.phase(&other)), (11, Phase::Ready, Phase::Ready));
    assert_eq!(w.carriers(100), ["leaf2:gw"]);
}

#[test]
fn a_dead_spine_does_not_stop_others() {
    let mut w = sides();
    w.kill("spine1");
    let s = w.apply(service("s", 100, &["dc"]));
    let a = w.apply(attachment("a", &["s"], "left"));
    w.settle();
    assert_eq!(w.fab().outcomes, ["failed", "confirmed"]);
    assert_eq!(w.carriers(100).len(), 9);
    assert_eq!(w.phase(&s), Phase::Pending);
    assert!(w.message(&a).contains("FabricDevice spine1"), "{}", w.message(&a));
    w.apply(service("t", 101, &["dc"]));
    w.apply(attachment("b", &["t"], "left"));
    w.settle();
    assert_eq!(w.fab().outcomes, ["failed", "confirmed", "confirmed"], "it is known by now");
    w.revive("spine1");
    w.settle();
    assert_eq!((w.phase(&s), w.phase(&a), w.carriers(100).len()), (Phase::Ready, Phase::Ready, 11));
    w.apply(service("u", 102, &["dc"]));
    w.apply(attachment("c", &["u"], "left"));
    w.settle();
    assert_eq!(w.fab().participants.last(), Some(&4));
}

#[test]
fn who_is_silent_takes_no_part_until_it_has_done_something() {
    let mut w = sides();
    w.fab().silent.insert("leaf1".into());
    let s = w.apply(service("s", 100, &["dc"]));
    w.apply(attachment("a", &["s"], "left"));
    w.settle();
    assert_eq!(
        (w.fab().outcomes.clone(), w.fab().participants.clone()),
        (vec!["late", "confirmed"], vec![4, 3])
    );
    assert_eq!(w.phase(&s), Phase::Pending);
    w.fab().silent.clear();
    w.settle();
    assert_eq!((w.phase(&s), w.carriers(100).len()), (Phase::Ready, 11));
}

#[test]
fn who_cannot_hold_a_change_follows() {
    let mut w = World::together();
    w.fab().plain.insert("spine2".into());
    w.settle();
    // It says so with its first report.
    w.apply(service("first", 99, &["dc"]));
    w.apply(attachment("first", &["first"], "cp"));
    w.settle();
    w.fab().participants.clear();
    let s = w.apply(service("s", 100, &["dc"]));
    w.apply(attachment("a", &["s"], "cp"));
    w.settle();
    assert_eq!((w.fab().participants.clone(), w.phase(&s)), (vec![3], Phase::Ready));
    w.refuse("leaf1", 200, true);
    w.apply(service("t", 200, &["dc"]));
    w.apply(attachment("b", &["t"], "cp"));
    w.settle();
    assert!(w.carriers(200).is_empty());
}

#[test]
fn a_new_engine_says_again_what_was_open() {
    let mut w = sides();
    let s = w.apply(service("s", 100, &["dc"]));
    w.settle();
    w.fab().silent.insert("leaf1".into());
    w.apply(attachment("a", &["s"], "left"));
    // Until the others hold their change.
    while w.carriers(100).len() < 7 {
        w.step();
    }
    w.restart_together();
    w.fab().silent.clear();
    w.settle();
    assert_eq!((w.phase(&s), w.carriers(100).len()), (Phase::Ready, 11));
}

#[test]
fn a_new_engine_keeps_what_is_realised_when_more_is_refused() {
    let mut w = sides();
    let s = w.apply(service("s", 100, &["dc"]));
    w.apply(attachment("right", &["s"], "right"));
    w.settle();
    w.refuse("leaf1", 100, true);
    w.apply(attachment("left", &["s"], "left"));
    while w.carriers(100).len() < 7 {
        w.step();
    }
    w.restart_together();
    w.settle();
    assert_eq!((w.carriers(100), w.phase(&s)), (RIGHT.map(str::to_owned).to_vec(), Phase::Error));
    // The next one tries again, and meanwhile it is in error as before.
    let phases = w.phases[&s].clone();
    w.restart_together();
    w.settle();
    assert_eq!((w.carriers(100), &w.phases[&s]), (RIGHT.map(str::to_owned).to_vec(), &phases));
    w.refuse("leaf1", 100, false);
    w.retry();
    w.settle();
    assert_eq!((w.carriers(100).len(), w.phase(&s)), (13, Phase::Ready));
}

#[test]
fn a_new_engine_goes_back_to_the_former_vlan() {
    let mut w = sides();
    let s = w.apply(service("s", 100, &["dc"]));
    w.apply(attachment("a", &["s"], "left"));
    w.settle();
    // The new VLAN is refused, or the former one is not given up.
    for refused in [200, 100] {
        w.refuse("spine2", refused, true);
        w.apply(service("s", 200, &["dc"]));
        while w.carriers(200).len() < 7 {
            w.step();
        }
        w.restart_together();
        w.settle();
        assert_eq!((w.carriers(100).len(), w.carriers(200).len(), w.phase(&s)), (11, 0, Phase::Error));
        assert_eq!(w.statuses[&s].granted_id, VlanId::new(100).ok(), "it is what it has");
        w.refuse("spine2", refused, false);
        w.apply(service("s", 100, &["dc"]));
        w.settle();
        assert_eq!((w.carriers(100).len(), w.carriers(200).len(), w.phase(&s)), (11, 0, Phase::Ready));
    }
}

#[test]
fn what_is_deleted_is_taken_from_all_or_from_none() {
    let mut w = sides();
    let node = |name: &str| LeadsTo::Node { node: name.into(), interface: "eth1".into() };
    let up = |spine: &str| LeadsTo::Device { device: spine.into(), port: "leaf1".into() };
    let gateway = LeadsTo::PhysicalNetwork("dc".into());
    let ports = [
        ("e1", node("node1")),
        ("e2", node("node2")),
        ("gw", gateway),
        ("u1", up("spine1")),
        ("u2", up("spine2")),
    ];
    w.apply(device("leaf1", &ports));
    w.settle();
    let s = w.apply(service("s", 100, &["dc"]));
    w.settle();
    assert_eq!((w.phase(&s), w.carriers(100).len()), (Phase::Ready, 10));
    w.refuse("spine1", 100, true);
    w.delete(&s);
    w.settle();
    let stays = |w: &World| {
        assert_eq!((w.phase(&s), w.carriers(100).len()), (Phase::Terminating, 10));
        let words = "its VLANs can't be removed yet: FabricDevice spine1: VLAN 100: resource exhausted";
        assert_eq!(w.message(&s), words);
    };
    stays(&w);
    w.retry();
    w.settle();
    stays(&w);
    // Nobody gets its VLAN, and the next engine knows no other.
    let other = w.apply(service("other", 100, &["dc"]));
    w.settle();
    assert_eq!(w.phase(&other), Phase::Error);
    w.restart_together();
    w.settle();
    stays(&w);
    // It all ends when the refusal does.
    w.refuse("spine1", 100, false);
    w.retry();
    w.settle();
    assert!(!w.objects.contains_key(&s));
    assert_eq!((w.phase(&other), w.carriers(100).len()), (Phase::Ready, 10));
}

#[test]
fn each_part_of_the_fabric_decides_for_itself() {
    let mut w = sides();
    let labels = Labels::from([("side".into(), "left".into())]);
    for node in ["node5", "node6"] {
        w.nodes.insert(node.into(), (labels.clone(), true));
        w.engine.handle(Event::Node { name: node.into(), labels: labels.clone(), ready: true });
    }
    let down = |node: &str| LeadsTo::Node { node: node.into(), interface: "eth1".into() };
    let up = LeadsTo::Device { device: "west2".into(), port: "u1".into() };
    w.apply(device("west1", &[("e1", down("node5")), ("u1", up)]));
    w.apply(device("west2", &[("e1", down("node6"))]));
    w.settle();
    w.refuse("west2", 100, true);
    let s = w.apply(service("s", 100, &["dc"]));
    w.apply(attachment("a", &["s"], "left"));
    w.settle();
    let west = |w: &World| w.carriers(100).iter().filter(|port| port.starts_with("west")).count();
    assert_eq!(
        (w.fab().participants.clone(), w.fab().outcomes.clone()),
        (vec![4, 2], vec!["confirmed", "refused"])
    );
    assert_eq!((w.carriers(100).len(), west(&w), w.phase(&s)), (11, 0, Phase::Error));
    w.refuse("west2", 100, false);
    w.retry();
    w.settle();
    assert_eq!((w.carriers(100).len(), west(&w), w.phase(&s)), (15, 4, Phase::Ready));
}

#[test]
fn a_new_engine_learns_from_a_dead_switch_what_it_has_once_it_is_back() {
    let mut w = sides();
    let s = w.apply(service("s", 100, &["dc"]));
    w.settle();
    w.kill("leaf1");
    w.apply(attachment("a", &["s"], "left"));
    while w.fab().participants.is_empty() {
        w.step();
    }
    w.restart_together();
    w.refuse("spine1", 100, true);
    w.settle();
    assert_eq!((w.carriers(100), w.phase(&s)), (vec!["leaf2:gw".to_owned()], Phase::Error));
    w.revive("leaf1");
    w.settle();
    assert_eq!((w.carriers(100), w.phase(&s)), (vec!["leaf2:gw".to_owned()], Phase::Error));
    w.refuse("spine1", 100, false);
    w.retry();
    w.settle();
    assert_eq!((w.carriers(100).len(), w.phase(&s)), (11, Phase::Ready));
}

#[test]
fn who_refuses_what_others_have_decided_is_not_asked_without_end() {
    let mut w = sides();
    let s = w.apply(service("s", 100, &["dc"]));
    w.apply(attachment("a", &["s"], "left"));
    w.settle();
    // The leaves confirm the new VLAN while both spines are away, which the next engine finds at the former one.
    w.fab().silent.extend(["spine1", "spine2"].map(Name::from));
    w.fab().outcomes.clear();
    w.apply(service("s", 101, &["dc"]));
    while w.fab().outcomes != ["late", "confirmed"] {
        w.step();
    }
    w.restart_together();
    w.fab().silent.clear();
    w.refuse("spine1", 100, true);
    w.settle();
    assert_eq!((w.phase(&s), w.carriers(101).len()), (Phase::Error, 7));
    w.refuse("spine1", 100, false);
    w.retry();
    w.settle();
    assert_eq!((w.phase(&s), w.carriers(100).len(), w.carriers(101).len()), (Phase::Ready, 0, 11));
}

#[test]
fn who_is_away_learns_of_what_was_decided() {
    use Step::{Attach, Detach, Listen, Renumber, Restart, Retry, Settle, Silence};
    let refuse = |device, service, odd| Step::Refuse { device, service, odd, refuses: true };
    let attach = Attach { service: 0, left: true };
    // A new engine is told what a silent switch said last, which is not about its last command.
    let unanswered = [
        Silence(0),
        attach.clone(),
        Settle,
        refuse(1, 0, false),
        Detach { service: 0, left: true },
        Restart,
        Listen,
        Settle,
    ];
    // One falls silent when the others confirm, and what follows is refused.
    let unconfirmed = [
        attach.clone(),
        Step::Some(5),
        Silence(0),
        Renumber { service: 0, odd: true, gateway: true },
        refuse(1, 0, true),
        Step::Some(11),
        Listen,
        refuse(1, 2, false),
        attach,
        Settle,
        Retry,
    ];
    // The new engine finds a change of all of them undecided, and half of them are silent.
    let attach = Attach { service: 2, left: true };
    let undecided = [
        attach,
        refuse(0, 2, false),
        Silence(0),
        Silence(1),
        Step::Some(3),
        Restart,
        Step::Some(3),
        Listen,
        Settle,
    ];
    for steps in [&unanswered[..], &unconfirmed, &undecided] {
        let mut history = History::new();
        for step in steps {
            history.take(step);
        }
        history.heal();
    }
}

#[test]
fn who_is_slow_follows_until_it_is_quick_again() {
    let mut w = sides();
    for name in DEVICES {
        w.fab().took.insert(name.into(), if name == "spine1" { 2500 } else { 400 });
    }
    let mut attach = |vid: u16| {
        let s = w.apply(service(&format!("s{vid}"), vid, &["dc"]));
        w.apply(attachment(&format!("a{vid}"), &[&format!("s{vid}")], "left"));
        w.settle();
        assert_eq!((w.phase(&s), w.carriers(vid).len()), (Phase::Ready, 11));
        let took = w.fab().participants.last().copied();
        w.fab().took.insert("spine1".into(), if vid == 101 { 300 } else { 2500 });
        took
    };
    // Its first change shows it; the second goes without it, and was a quick one.
    assert_eq!([100, 101, 102, 103].map(&mut attach), [Some(4), Some(3), Some(3), Some(4)]);
}

#[derive(Clone, Debug)]
enum Step {
    Renumber { service: u8, odd: bool, gateway: bool },
    Attach { service: u8, left: bool },
    Detach { service: u8, left: bool },
    Refuse { device: u8, service: u8, odd: bool, refuses: bool },
    Kill(u8),
    Revive(u8),
    Silence(u8),
    Listen,
    Retry,
    Restart,
    Some(u8),
    Settle,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => (0u8..3, any::<bool>(), any::<bool>())
            .prop_map(|(service, odd, gateway)| Step::Renumber { service, odd, gateway }),
        4 => (0u8..3, any::<bool>()).prop_map(|(service, left)| Step::Attach { service, left }),
        2 => (0u8..3, any::<bool>()).prop_map(|(service, left)| Step::Detach { service, left }),
        3 => (0u8..4, 0u8..3, any::<bool>(), any::<bool>())
            .prop_map(|(device, service, odd, refuses)| Step::Refuse { device, service, odd, refuses }),
        1 => (0u8..4).prop_map(Step::Kill),
        1 => (0u8..4).prop_map(Step::Revive),
        1 => (0u8..4).prop_map(Step::Silence),
        1 => Just(Step::Listen),
        1 => Just(Step::Retry),
        1 => Just(Step::Restart),
        3 => (1u8..12).prop_map(Step::Some),
        4 => Just(Step::Settle),
    ]
}

const DEVICES: [&str; 4] = ["leaf1", "leaf2", "spine1", "spine2"];

fn vid(service: u8, odd: bool) -> u16 {
    100 + u16::from(service) * 10 + u16::from(odd)
}

fn vids() -> impl Iterator<Item = VlanId> {
    (0..3).flat_map(|service| [vid(service, false), vid(service, true)]).map(|vid| VlanId::new(vid).unwrap())
}

/// For each VLAN and switch the ports that carry it.
type Placement = BTreeMap<VlanId, BTreeMap<&'static str, BTreeSet<String>>>;

fn placement(w: &World) -> Placement {
    let of = |vid| {
        let on = |name: &'static str| (name, placed(w.real(&name.into()), vid).1);
        (vid, DEVICES.map(on).into_iter().collect())
    };
    vids().map(of).collect()
}

struct History {
    w: World,
    /// What is wanted, and was.
    wanted: Vec<Placement>,
    /// What was there when all was last quiet, and how much had been wanted by then.
    was: Placement,
    then: usize,
    clock: i64,
}

impl History {
    fn new() -> Self {
        let mut w = sides();
        for name in 0..3 {
            w.apply(service(&format!("s{name}"), vid(name, false), &["dc"]));
        }
        w.settle();
        let was = placement(&w);
        let mut history = Self { w, wanted: Vec::new(), was, then: 0, clock: 1000 };
        history.look();
        history
    }

    /// What is wanted now is what there would be if nothing ever failed.
    fn look(&mut self) {
        let mut ideal = World::leaf_spine();
        for (name, (labels, ready)) in &self.w.nodes {
            ideal.engine.handle(Event::Node { name: name.clone(), labels: labels.clone(), ready: *ready });
        }
        for object in self.w.objects.values().filter(|object| !object.deleting) {
            let mut object = object.clone();
            object.finalized = false;
            ideal.objects.remove(&object.key);
            ideal.apply(object);
        }
        ideal.settle();
        let now = placement(&ideal);
        if self.wanted.last() != Some(&now) {
            self.wanted.push(now);
        }
    }

    fn take(&mut self, step: &Step) {
        let device = |n: &u8| DEVICES[usize::from(*n)];
        match step {
            Step::Renumber { service: name, odd, gateway } => {
                let networks: &[&str] = if *gateway { &["dc"] } else { &[] };
                self.w.apply(service(&format!("s{name}"), vid(*name, *odd), networks));
                self.look();
            }
            Step::Attach { service, left } => {
                let point = if *left { "left" } else { "right" };
                let name = format!("a{service}-{point}");
                let key = Key::namespaced(Kind::L2ServiceAttachment, &arc("ns"), &arc(&name));
                if !self.w.objects.contains_key(&key) {
                    self.clock += 1;
                    self.w.phases.remove(&key);
                    self.w.statuses.remove(&key);
                    self.w.apply(created(attachment(&name, &[&format!("s{service}")], point), self.clock));
                    self.look();
                }
            }
            Step::Detach { service, left } => {
                let point = if *left { "left" } else { "right" };
                let name = format!("a{service}-{point}");
                let key = Key::namespaced(Kind::L2ServiceAttachment, &arc("ns"), &arc(&name));
                if self.w.objects.get(&key).is_some_and(|object| !object.deleting) {
                    self.w.delete(&key);
                    self.look();
                }
            }
            Step::Refuse { device: n, service, odd, refuses } => {
                self.w.refuse(device(n), vid(*service, *odd), *refuses);
            }
            Step::Kill(n) => {
                self.w.fab().was_away.insert(device(n).into());
                self.w.kill(device(n));
            }
            Step::Revive(n) => self.w.revive(device(n)),
            Step::Restart => self.w.restart_together(),
            Step::Silence(n) => {
                self.w.fab().was_away.insert(device(n).into());
                self.w.fab().silent.insert(device(n).into());
            }
            Step::Listen => self.w.fab().silent.clear(),
            Step::Retry => self.w.retry(),
            Step::Some(count) => {
                for _ in 0..*count {
                    self.w.step();
                }
            }
            Step::Settle => {
                self.w.settle();
                self.check();
            }
        }
    }

    /// All is quiet: nothing is mixed, and what was there and is still wanted is there.
    fn check(&mut self) {
        let there = placement(&self.w);
        let fab = self.w.switches.as_ref().unwrap();
        let away: BTreeSet<&Name> = fab.dead.iter().chain(&fab.silent).collect();
        let now = self.wanted.last().unwrap();
        for (vid, devices) in &there {
            let counts = |name: &str| {
                let name = Name::from(name);
                !away.contains(&name) && !fab.refused_alone.contains(&(name, *vid))
            };
            let is = |want: &dyn Fn(&str) -> BTreeSet<String>| {
                devices.iter().all(|(name, ports)| !counts(name) || *ports == want(name))
            };
            let whole = is(&|_| BTreeSet::new())
                || self.wanted.iter().any(|then| {
                    is(&|name| then[vid][name].clone()) || is(&|name| &then[vid][name] & &now[vid][name])
                });
            assert!(whole, "VLAN {vid} is mixed: {devices:?}, wanted {:?}", now[vid]);
            for (name, ports) in devices {
                let kept = self.wanted[self.then..]
                    .iter()
                    .fold(self.was[vid][name].clone(), |kept, wanted| &kept & &wanted[vid][name]);
                assert!(ports.is_superset(&kept), "VLAN {vid} lost {kept:?} on {name}: {ports:?}");
            }
        }
        let away = away.into_iter().cloned().collect();
        self.w.fab().was_away = away;
        self.was = there;
        self.then = self.wanted.len() - 1;
    }

    /// All faults end: all is as it is wanted.
    fn heal(&mut self) {
        self.w.fab().silent.clear();
        for name in DEVICES {
            self.w.revive(name);
        }
        self.w.settle();
        for name in DEVICES {
            for vid in vids() {
                self.w.refuse(name, vid.get(), false);
            }
        }
        self.w.settle();
        let mut tries = 0;
        while !self.w.fab().retries.is_empty() {
            self.w.retry();
            self.w.settle();
            tries += 1;
            assert!(tries < 10, "it is refused again and again");
        }
        let now = self.wanted.last().unwrap();
        assert_eq!(&placement(&self.w), now);
        for (key, object) in &self.w.objects {
            assert!(!object.deleting, "{key} is still there");
            if matches!(key.kind, Kind::L2Service | Kind::L2ServiceAttachment | Kind::FabricDevice) {
                assert_eq!((self.w.phase(key), self.w.message(key)), (Phase::Ready, ""), "{key}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// `PROPTEST_CASES` says how many histories. A new engine comes only once all is quiet when a switch was away since
    /// then, as it does not know what the others have decided without it.
    #[test]
    fn on_all_or_on_none_whatever_fails(steps in proptest::collection::vec(step(), 1..40)) {
        let mut history = History::new();
        for step in &steps {
            if matches!(step, Step::Restart) && !history.w.fab().was_away.is_empty() {
                history.w.settle();
            }
            history.take(step);
        }
        history.heal();
    }
}
