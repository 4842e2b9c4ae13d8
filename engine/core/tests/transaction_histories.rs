//! Properties over random histories of transactions: a change is on all switches or on none, whatever fails.

use std::collections::{BTreeMap, BTreeSet};

use eno_core::{Event, Kind, Name, Object, Target};
use eno_schemas::{Phase, VlanId};
use proptest::prelude::*;

use crate::fixtures::{attachment_key, switch};
use crate::world::*;
#[derive(Clone, Debug)]
enum Step {
    Renumber { service: u8, odd: bool, gateway: bool },
    Attach { service: u8, left: bool },
    Detach { service: u8, left: bool },
    Refuse { device: u8, service: u8, odd: bool, refuses: bool },
    Kill(u8),
    Revive(u8),
    Silence(u8),
    EndSilence,
    Retry,
    Restart,
    RunSteps(u8),
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
        1 => Just(Step::EndSilence),
        1 => Just(Step::Retry),
        1 => Just(Step::Restart),
        3 => (1u8..12).prop_map(Step::RunSteps),
        4 => Just(Step::Settle),
    ]
}

fn vid(service: u8, odd: bool) -> u16 {
    100 + u16::from(service) * 10 + u16::from(odd)
}

fn vids() -> impl Iterator<Item = VlanId> {
    (0..3).flat_map(|service| [vid(service, false), vid(service, true)]).map(|vid| VlanId::new(vid).unwrap())
}

/// The ports that carry each VLAN on each switch.
type Placement = BTreeMap<VlanId, BTreeMap<&'static str, BTreeSet<String>>>;

fn placement(w: &World) -> Placement {
    let of = |vid| {
        let on = |name: &'static str| (name, vlan_placement(w.actual(&name.into()), vid).1);
        (vid, DEVICES.map(on).into_iter().collect())
    };
    vids().map(of).collect()
}

struct History {
    w: World,
    /// All desired placements, the present one last.
    desired: Vec<Placement>,
    /// The placement at the last check, and the index of the desired placement at that time.
    last_placement: Placement,
    last_desired_index: usize,
    clock: i64,
}

impl History {
    fn new() -> Self {
        let mut w = split_fabric();
        for name in 0..3 {
            w.apply(service(&format!("s{name}"), vid(name, false), &["dc"]));
        }
        w.settle();
        let last_placement = placement(&w);
        let mut history = Self { w, desired: Vec::new(), last_placement, last_desired_index: 0, clock: 1000 };
        history.record_desired();
        history
    }

    /// Records the desired placement. An engine plans an object only when that has its finalizer, and may command others
    /// before. So the placement without such objects is a desired one as well.
    fn record_desired(&mut self) {
        let live = || self.w.objects.values().filter(|object| !object.deleting);
        let planned = live()
            .any(|object| !object.finalized)
            .then(|| self.ideal_placement(live().filter(|object| object.finalized)));
        let all = self.ideal_placement(live());
        for present in planned.into_iter().chain([all]) {
            if self.desired.last() != Some(&present) {
                self.desired.push(present);
            }
        }
    }

    /// The placement in a world with these objects in which nothing fails.
    fn ideal_placement<'a>(&self, objects: impl Iterator<Item = &'a Object>) -> Placement {
        let mut ideal = World::leaf_spine();
        for (name, (labels, ready)) in &self.w.nodes {
            ideal.engine.handle(Event::Node { name: name.clone(), labels: labels.clone(), ready: *ready });
        }
        for object in objects {
            let mut object = object.clone();
            object.finalized = false;
            ideal.objects.remove(&object.key);
            ideal.apply(object);
        }
        ideal.settle();
        placement(&ideal)
    }

    fn run_step(&mut self, step: &Step) {
        let device = |n: &u8| DEVICES[usize::from(*n)];
        match step {
            Step::Renumber { service: name, odd, gateway } => {
                let networks: &[&str] = if *gateway { &["dc"] } else { &[] };
                self.w.apply(service(&format!("s{name}"), vid(*name, *odd), networks));
                self.record_desired();
            }
            Step::Attach { service, left } => {
                let point = if *left { "left" } else { "right" };
                let name = format!("a{service}-{point}");
                let key = attachment_key(&name);
                if !self.w.objects.contains_key(&key) {
                    self.clock += 1;
                    self.w.phases.remove(&key);
                    self.w.statuses.remove(&key);
                    self.w.apply(created(attachment(&name, &[&format!("s{service}")], point), self.clock));
                    self.record_desired();
                }
            }
            Step::Detach { service, left } => {
                let point = if *left { "left" } else { "right" };
                let name = format!("a{service}-{point}");
                let key = attachment_key(&name);
                if self.w.objects.get(&key).is_some_and(|object| !object.deleting) {
                    self.w.delete(&key);
                    self.record_desired();
                }
            }
            Step::Refuse { device: n, service, odd, refuses } => {
                self.w.set_refusal(device(n), vid(*service, *odd), *refuses);
            }
            Step::Kill(n) => {
                self.w.drivers.unreachable_since_check.insert(device(n).into());
                self.w.kill(device(n));
            }
            Step::Revive(n) => self.w.revive(device(n)),
            Step::Restart => self.w.restart(),
            Step::Silence(n) => {
                self.w.drivers.unreachable_since_check.insert(device(n).into());
                self.w.silent.insert(switch(device(n)));
            }
            Step::EndSilence => self.w.silent.clear(),
            Step::Retry => self.w.elapse_backoff(),
            Step::RunSteps(count) => {
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

    /// Invariants of a quiescent world: no change is on some switches only, and no port loses a VLAN that is still
    /// desired.
    fn check(&mut self) {
        self.w.assert_paths_agree();
        self.w.assert_observer_agrees();
        let actual = placement(&self.w);
        let switches = &self.w.drivers;
        let silent = self.w.silent.iter().filter_map(|target| match target {
            Target::Fabric(name) => Some(name),
            Target::Nad(..) | Target::Node(_) | Target::Speaker(_) => None,
        });
        let unreachable: BTreeSet<&Name> = switches.dead.iter().chain(silent).collect();
        let present = self.desired.last().unwrap();
        for (vid, devices) in &actual {
            let is_comparable = |name: &str| {
                let name = Name::from(name);
                !unreachable.contains(&name) && !switches.refused_outside_transaction.contains(&(name, *vid))
            };
            let matches = |expected: &dyn Fn(&str) -> BTreeSet<String>| {
                devices.iter().all(|(name, ports)| !is_comparable(name) || *ports == expected(name))
            };
            let is_atomic = matches(&|_| BTreeSet::new())
                || self.desired.iter().any(|earlier| {
                    matches(&|name| earlier[vid][name].clone())
                        || matches(&|name| &earlier[vid][name] & &present[vid][name])
                });
            assert!(is_atomic, "VLAN {vid} is mixed: {devices:?}, desired {:?}", present[vid]);
            for (name, ports) in devices {
                let kept = self.desired[self.last_desired_index..]
                    .iter()
                    .fold(self.last_placement[vid][name].clone(), |kept, desired| {
                        &kept & &desired[vid][name]
                    });
                assert!(ports.is_superset(&kept), "VLAN {vid} lost {kept:?} on {name}: {ports:?}");
            }
        }
        let unreachable = unreachable.into_iter().cloned().collect();
        self.w.drivers.unreachable_since_check = unreachable;
        self.last_placement = actual;
        self.last_desired_index = self.desired.len() - 1;
    }

    /// Ends all faults and checks that the desired placement is applied.
    fn recover(&mut self) {
        self.w.silent.clear();
        for name in DEVICES {
            self.w.revive(name);
        }
        self.w.settle();
        for name in DEVICES {
            for vid in vids() {
                self.w.set_refusal(name, vid.get(), false);
            }
        }
        self.w.settle();
        let mut retries = 0;
        while !self.w.retries.is_empty() {
            self.w.elapse_backoff_and_settle();
            retries += 1;
            assert!(retries < 10, "a network is refused again and again");
        }
        let present = self.desired.last().unwrap();
        assert_eq!(&placement(&self.w), present);
        for (key, object) in &self.w.objects {
            assert!(!object.deleting, "{key} is not deleted");
            if matches!(key.kind, Kind::L2Service | Kind::L2ServiceAttachment | Kind::FabricDevice) {
                assert_eq!((self.w.phase(key), self.w.message(key)), (Phase::Ready, ""), "{key}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// `PROPTEST_CASES` is the number of histories. If a switch was unreachable, the world settles before a restart,
    /// because a new engine does not know decisions made without that switch.
    #[test]
    fn every_change_is_on_all_switches_or_none(steps in proptest::collection::vec(step(), 1..40)) {
        let mut history = History::new();
        for step in &steps {
            if matches!(step, Step::Restart) && !history.w.drivers.unreachable_since_check.is_empty() {
                history.w.settle();
            }
            history.run_step(step);
        }
        history.recover();
    }
}

#[test]
fn unreachable_switch_catches_up_with_decided_transactions() {
    use Step::{Attach, Detach, EndSilence, Renumber, Restart, Retry, Settle, Silence};
    let refuse = |device, service, odd| Step::Refuse { device, service, odd, refuses: true };
    let attach = Attach { service: 0, left: true };
    // The last report of a silent switch is older than its last command when a new engine reads it.
    let unanswered = [
        Silence(0),
        attach.clone(),
        Settle,
        refuse(1, 0, false),
        Detach { service: 0, left: true },
        Restart,
        EndSilence,
        Settle,
    ];
    // A switch falls silent when the others confirm, and the next change is refused.
    let unconfirmed = [
        attach.clone(),
        Step::RunSteps(5),
        Silence(0),
        Renumber { service: 0, odd: true, gateway: true },
        refuse(1, 0, true),
        Step::RunSteps(11),
        EndSilence,
        refuse(1, 2, false),
        attach,
        Settle,
        Retry,
    ];
    // A new engine finds an undecided transaction of four switches, two of which are silent.
    let attach = Attach { service: 2, left: true };
    let undecided = [
        attach,
        refuse(0, 2, false),
        Silence(0),
        Silence(1),
        Step::RunSteps(3),
        Restart,
        Step::RunSteps(3),
        EndSilence,
        Settle,
    ];
    for steps in [&unanswered[..], &unconfirmed, &undecided] {
        let mut history = History::new();
        for step in steps {
            history.run_step(step);
        }
        history.recover();
    }
}

/// An attachment gets its finalizer after its service was moved to another VLAN, and a switch refuses the path.
#[test]
fn service_keeps_the_vlan_that_was_confirmed_before_its_attachment_was_planned() {
    use Step::{Attach, EndSilence, Renumber, Restart, Settle, Silence};
    let attach = |service, left| Attach { service, left };
    let renumber = Renumber { service: 1, odd: true, gateway: true };
    let refuse = Step::Refuse { device: 2, service: 1, odd: true, refuses: true };
    // A new engine delays no command.
    let restarted = vec![attach(1, true), renumber.clone(), refuse.clone(), Restart, Settle];
    let attached = [&[attach(1, false), Settle], &restarted[..]].concat();
    // The switch had no command for some time.
    let idle = vec![
        Silence(3),
        attach(0, true),
        Settle,
        EndSilence,
        Settle,
        attach(1, true),
        renumber,
        refuse,
        Settle,
    ];
    for (steps, kept) in [
        (restarted, &["leaf2:gw"][..]),
        (attached, &["leaf2:e1", "leaf2:e2", "leaf2:gw"]),
        (idle, &["leaf2:gw"]),
    ] {
        let mut history = History::new();
        for step in &steps {
            history.run_step(step);
        }
        assert_eq!(history.w.carrying_ports(111), kept, "{steps:?}");
        history.recover();
    }
}

#[test]
fn observer_knows_that_a_refused_network_keeps_only_what_is_still_wanted() {
    use Step::{Attach, Detach, Refuse, Settle};
    let refuse = Refuse { device: 0, service: 1, odd: false, refuses: true };
    let right = Attach { service: 1, left: false };
    let moved = [Detach { service: 1, left: false }, Attach { service: 1, left: true }];
    let mut history = History::new();
    for step in [&[refuse, right, Settle], &moved[..], &[Settle]].concat() {
        history.run_step(&step);
    }
}
