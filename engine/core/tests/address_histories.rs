//! Properties over random histories of pods that get addresses from their nodes: nodes that go and come back, lost
//! commands, engines that are killed, a Subnet that is created again. No address is given twice while a pod has it
//! ([`World::start_pod`]), no address is commanded before the status says so, and in the end no pod waits while an address
//! is free. A new engine finds nothing to do.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use eno_core::{Key, Kind, Name, Object, Target};
use eno_schemas::Pool;
use proptest::prelude::*;

use crate::edits::edit_subnet;
use crate::world::*;

const NODES: [&str; 3] = ["node0", "node1", "node2"];

#[derive(Clone, Debug)]
enum Step {
    /// A pod is bound to a node.
    Bind {
        pod: u8,
        node: u8,
    },
    /// Its plugin asks for an address, for this one.
    Add {
        pod: u8,
        asked: Option<u8>,
    },
    /// Its plugin gives the address back.
    Del(u8),
    /// The pod is gone from the API server.
    Gone(u8),
    NodeGone(u8),
    NodeBack(u8),
    Silence(u8),
    /// Its reports are late.
    Mute(u8),
    EndSilence,
    LoseCommand(u8),
    Delay,
    Flush,
    Crash,
    Restart,
    Recreate,
    Spec(u8),
    Pass(u8),
    Settle,
}

fn step() -> impl Strategy<Value = Step> {
    let asked = prop_oneof![6 => Just(None), 1 => (0u8..16).prop_map(Some)];
    prop_oneof![
        8 => (0u8..14, 0u8..3).prop_map(|(pod, node)| Step::Bind { pod, node }),
        12 => (0u8..14, asked).prop_map(|(pod, asked)| Step::Add { pod, asked }),
        4 => (0u8..14).prop_map(Step::Del),
        4 => (0u8..14).prop_map(Step::Gone),
        1 => (0u8..3).prop_map(Step::NodeGone),
        2 => (0u8..3).prop_map(Step::NodeBack),
        1 => (0u8..3).prop_map(Step::Silence),
        1 => (0u8..3).prop_map(Step::Mute),
        2 => Just(Step::EndSilence),
        1 => (0u8..3).prop_map(Step::LoseCommand),
        1 => Just(Step::Delay),
        1 => Just(Step::Flush),
        1 => Just(Step::Crash),
        1 => Just(Step::Restart),
        1 => Just(Step::Recreate),
        1 => (0u8..4).prop_map(Step::Spec),
        1 => (0u8..3).prop_map(Step::Pass),
        6 => Just(Step::Settle),
    ]
}

struct History {
    world: World,
    /// The node of each pod that is bound.
    nodes: BTreeMap<String, &'static str>,
    created: u32,
    is_sticky: bool,
    /// When each node went that is gone.
    gone: BTreeMap<&'static str, Duration>,
}

/// The first ten are pods of a Deployment, the others of a StatefulSet.
fn name_of(pod: u8) -> String {
    if pod < 10 { format!("p{pod}x") } else { format!("db-{}", pod - 10) }
}

fn subnet_key() -> Key {
    Key::cluster(Kind::Subnet, &"sn".into())
}

impl History {
    fn new(is_sticky: bool) -> Self {
        let mut world = World::with_addresses("10.0.0.0/28", NODES.len());
        world.apply(route("out", "10.0.0.1"));
        let mut history =
            Self { world, nodes: BTreeMap::new(), created: 0, is_sticky, gone: BTreeMap::new() };
        history.world.apply_and_settle(history.subnet(0));
        history
    }

    fn subnet(&self, spec: u8) -> Object {
        let pool = |first: &str, last: &str| {
            vec![Pool { start: first.parse().unwrap(), end: last.parse().unwrap() }]
        };
        edit_subnet(&eno_subnet("sn", "10.0.0.0/28"), |subnet| {
            subnet.sticky = self.is_sticky;
            subnet.routes = vec!["out".into()];
            match spec {
                1 => subnet.allocation_pool = pool("10.0.0.4", "10.0.0.11"),
                2 => subnet.allocation_pool = pool("10.0.0.2", "10.0.0.7"),
                _ => {}
            }
        })
    }

    /// The pods that a node has, in its files.
    fn on(&self, node: &str) -> BTreeSet<String> {
        let Some(files) = self.world.files.get(node) else { return BTreeSet::new() };
        let used = files.used.get("sn").into_iter().flat_map(|pods| pods.keys());
        used.chain(files.waiting.get("sn").into_iter().flat_map(|pods| pods.keys())).cloned().collect()
    }

    fn is_whole(&self) -> bool {
        self.world.nodes.len() == NODES.len() && self.world.delayed_status_writes.is_none()
    }

    fn run_step(&mut self, step: &Step) {
        match step {
            Step::Bind { pod, node } => {
                let (pod, node) = (name_of(*pod), NODES[usize::from(*node)]);
                // A pod of that name may still be on another node.
                if !self.nodes.contains_key(&pod) && self.world.nodes.contains_key(node) {
                    self.created += 1;
                    let bound = pod_on(&pod, node, &["a"]);
                    let uid: Name = format!("uid-{pod}-{}", self.created).into();
                    self.world.apply_pod(eno_core::Pod { uid, ..bound });
                    self.nodes.insert(pod, node);
                }
            }
            Step::Add { pod, asked } => {
                let pod = name_of(*pod);
                let Some(node) = self.nodes.get(&pod).copied() else { return };
                let elsewhere = NODES.iter().any(|other| *other != node && self.on(other).contains(&pod));
                if !self.on(node).contains(&pod) && !elsewhere {
                    let asked = asked.map(|at| format!("10.0.0.{at}"));
                    self.world.start_pod(node, &pod, asked.as_deref());
                }
            }
            Step::Del(pod) => {
                let pod = name_of(*pod);
                for node in NODES {
                    if self.on(node).contains(&pod) {
                        self.world.stop_pod(node, &pod);
                    }
                }
            }
            Step::Gone(pod) => {
                let pod = name_of(*pod);
                if self.nodes.remove(&pod).is_some() {
                    self.end_dead_pods(Duration::ZERO);
                    let uids =
                        self.world.pods.values().filter(|one| *one.name == *pod).map(|one| one.uid.clone());
                    for uid in uids.collect::<Vec<_>>() {
                        self.world.remove_pod(&uid);
                    }
                }
            }
            Step::NodeGone(node) => {
                let node = NODES[usize::from(*node)];
                // Until a new status is written, only nodes know what they have. Nobody asks one that is gone.
                if self.world.nodes.contains_key(node) && self.world.durable.contains_key(&subnet_key()) {
                    self.world.remove_node(node);
                    self.gone.insert(node, self.world.elapsed());
                }
            }
            Step::NodeBack(node) => {
                self.gone.remove(NODES[usize::from(*node)]);
                self.world.apply_node(NODES[usize::from(*node)], true, true);
            }
            Step::Silence(node) => {
                self.world.silent.insert(Target::Node(NODES[usize::from(*node)].into()));
            }
            Step::Mute(node) => {
                self.world.muted.insert(Target::Node(NODES[usize::from(*node)].into()));
            }
            Step::EndSilence => self.end_silence(),
            Step::LoseCommand(node) => self.world.lose_command(NODES[usize::from(*node)]),
            Step::Delay => drop(self.world.delayed_status_writes.get_or_insert_default()),
            Step::Flush => self.world.flush_status_writes(),
            Step::Crash => self.world.crash(),
            Step::Restart => {
                self.world.flush_status_writes();
                self.world.restart();
            }
            Step::Recreate => self.recreate(),
            Step::Spec(spec) => drop(self.world.apply(self.subnet(*spec))),
            Step::Pass(hours) => {
                let time = Duration::from_secs([2, 600, 3700][usize::from(*hours)]);
                self.end_dead_pods(time);
                self.world.pass(time);
            }
            Step::Settle => self.world.settle(),
        }
    }

    /// Somebody removes the Subnet with its status, and creates it again.
    fn recreate(&mut self) {
        self.world.settle();
        // What is only in the status is lost.
        if self.is_whole() && self.world.silent.is_empty() && self.world.muted.is_empty() {
            let key = subnet_key();
            self.world.objects.remove(&key);
            self.world.statuses.remove(&key);
            self.world.phases.remove(&key);
            self.world.durable.remove(&key);
            self.world.engine.handle(eno_core::Event::ObjectGone(key));
            self.created += 1;
            self.world.apply(created(self.subnet(0), i64::from(self.created)));
        }
    }

    /// A node that is gone for long is switched off, if no pod is bound to it.
    fn end_dead_pods(&mut self, soon: Duration) {
        let long = Duration::from_mins(50);
        let dead = self.gone.iter().filter(|(_, since)| self.world.elapsed() + soon >= **since + long);
        for node in dead.map(|(node, _)| *node).collect::<Vec<_>>() {
            for pod in self.on(node).into_iter().filter(|pod| self.nodes.get(pod) != Some(&node)) {
                self.world.stop_pod(node, &pod);
            }
        }
    }

    fn end_silence(&mut self) {
        self.world.silent.clear();
        self.world.muted.clear();
        for node in NODES {
            self.world.report_files(&node.into());
        }
    }

    fn run(is_sticky: bool, steps: &[Step]) -> Self {
        let mut history = Self::new(is_sticky);
        for step in steps {
            history.run_step(step);
        }
        history.world.flush_status_writes();
        history.end_silence();
        history.world.settle();
        history.world.pass(Duration::from_secs(20));
        history.check();
        history
    }

    /// No pod waits for any address while one is free.
    fn check(&self) {
        let files = || self.world.files.iter();
        let used: BTreeSet<_> = files()
            .filter_map(|(_, files)| files.used.get("sn"))
            .flat_map(|pods| pods.values().copied())
            .collect();
        let has_ordinal = |pod: &str| self.is_sticky && eno_schemas::has_ordinal(pod);
        let waits =
            files().filter(|(node, _)| self.world.nodes.contains_key(*node)).find_map(|(node, files)| {
                let own = files.waiting.get("sn")?;
                let pod = own.iter().find(|(pod, asked)| asked.is_none() && !has_ordinal(pod))?;
                Some((node.clone(), pod.0.clone()))
            });
        let Some((node, pod)) = waits else { return };
        let is_away = |node: &Name| !self.world.nodes.contains_key(node);
        let status = &self.world.statuses[&subnet_key()];
        let away =
            status.node_addresses.iter().filter(|own| is_away(&own.node)).flat_map(|own| own.blocks.iter());
        let away: Vec<_> = away.collect();
        let Ok(eno_core::kinds::Spec::Subnet(spec)) = &self.world.objects[&subnet_key()].spec else {
            panic!("no Subnet")
        };
        let offered = |address: &std::net::IpAddr| {
            let pools = &spec.allocation_pool;
            pools.is_empty() || pools.iter().any(|pool| (pool.start..=pool.end).contains(address))
        };
        let free: Vec<String> = (2..15u8)
            .map(|at| std::net::IpAddr::from([10, 0, 0, at]))
            .filter(|address| offered(address) && !used.contains(address))
            .filter(|address| !away.iter().any(|net| net.contains(address)))
            // Those of single pods, which wait, end, or are on a node that is away.
            .filter(|address| status.fixed_addresses.iter().all(|own| own.address != *address))
            .map(|address| address.to_string())
            .collect();
        assert!(free.is_empty(), "{pod} on {node} waits while {free:?} is free: {:?}", self.world.blocks());
    }

    fn restart_changes_nothing(&mut self) {
        let (published, statuses) = (self.world.published, self.world.statuses.clone());
        self.world.restart_and_settle();
        assert_eq!(self.world.published, published);
        for (key, status) in &statuses {
            assert_eq!(&self.world.statuses[key], status, "{key}");
        }
    }

    /// Nothing keeps the Subnet once its pods are gone.
    fn delete_all(&mut self) {
        for node in NODES {
            self.world.apply_node(node, true, true);
        }
        for pod in (0..14).map(name_of) {
            for node in NODES {
                self.world.stop_pod(node, &pod);
            }
            let uids = self.world.pods.values().filter(|one| *one.name == *pod).map(|one| one.uid.clone());
            for uid in uids.collect::<Vec<_>>() {
                self.world.remove_pod(&uid);
            }
        }
        self.world.settle();
        assert_eq!(self.world.blocks(), Vec::<String>::new());
        let attachment = Key::namespaced(Kind::L2ServiceAttachment, &"ns".into(), &"a".into());
        for key in [attachment, Key::cluster(Kind::L2Service, &"s".into()), subnet_key()] {
            self.world.delete_and_settle(&key);
            assert!(!self.world.objects.contains_key(&key), "{key}: {}", self.world.message(&key));
        }
        for node in NODES {
            assert!(applied_node(&self.world, node).addresses.is_empty(), "{node}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_address_is_given_twice_and_none_is_lost(is_sticky: bool, steps in proptest::collection::vec(step(), 1..120)) {
        History::run(is_sticky, &steps).delete_all();
    }

    #[test]
    fn new_engine_finds_nothing_to_do_with_addresses(
        is_sticky: bool, steps in proptest::collection::vec(step(), 1..120),
    ) {
        let mut history = History::run(is_sticky, &steps);
        history.restart_changes_nothing();
        history.delete_all();
    }
}

/// The state that the node reported before is commanded again, while its report on another one is late.
#[test]
fn no_address_is_given_twice_while_a_report_is_late() {
    let steps = [
        Step::Mute(0),
        Step::Bind { pod: 0, node: 0 },
        Step::Settle,
        Step::Add { pod: 0, asked: None },
        Step::Gone(0),
        Step::Pass(1),
        Step::Bind { pod: 1, node: 1 },
        Step::Settle,
        Step::Add { pod: 1, asked: None },
    ];
    History::run(false, &steps).delete_all();
}

/// A pod ends before the status of the Subnet, which was created again, has the pod's own address.
#[test]
fn address_of_a_pod_is_not_commanded_before_the_new_status_has_it() {
    let steps = [
        Step::Bind { pod: 10, node: 0 },
        Step::Add { pod: 10, asked: None },
        Step::Recreate,
        Step::Delay,
        Step::Del(10),
        Step::Pass(0),
    ];
    History::run(true, &steps).delete_all();
}

/// The node of a pod is gone, and another node has the pod of that name now: it waits, also for a new engine.
#[test]
fn address_on_a_node_that_is_gone_moves_with_no_new_engine() {
    let steps = [
        Step::Bind { pod: 12, node: 0 },
        Step::Add { pod: 12, asked: None },
        Step::Pass(0),
        Step::NodeGone(0),
        Step::Gone(12),
        Step::Bind { pod: 12, node: 1 },
        Step::Del(12),
        Step::Add { pod: 12, asked: None },
    ];
    let mut history = History::run(true, &steps);
    history.restart_changes_nothing();
    history.delete_all();
}
