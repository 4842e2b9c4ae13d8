//! Properties over random histories of BGPSessionGroups: nodes that come, go and are silent, two groups with equal gateways
//! on the same nodes, Subnets that shrink, engines that are killed. No two nodes of a Subnet have one address, no address is
//! commanded before the status says so, each session has a node, a new engine finds nothing to do, and deleted groups leave
//! nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use eno_core::{Key, Kind, Name, Target};
use eno_schemas::{Desired, HostNetwork, Ipam, Phase, Pool, SpeakerDesired};
use ipnet::IpNet;
use proptest::prelude::*;

use crate::edits::{edit_group, edit_subnet};
use crate::fixtures::switch;
use crate::world::*;

const NODES: [&str; 4] = ["node1", "node2", "node3", "node4"];
const GATEWAY: &str = "leaf2";

#[derive(Clone, Debug)]
enum Step {
    /// The group `g<name>`, which has a VRF, a service and a Subnet of its own. All have the gateway 10.1.0.1.
    Group(u8),
    Delete(u8),
    Node {
        node: u8,
        pool: bool,
        ready: bool,
    },
    NodeGone(u8),
    /// The Subnet of a group has this many addresses for nodes.
    Addresses {
        group: u8,
        number: u8,
    },
    SilentNode(u8),
    SilentGateway,
    SilentSpeaker,
    EndSilence,
    Delay,
    Flush,
    Crash,
    Restart,
    Pass(u8),
    RunSteps(u8),
    Settle,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0u8..2).prop_map(Step::Group),
        3 => (0u8..2).prop_map(Step::Delete),
        6 => (0u8..4, any::<bool>(), any::<bool>()).prop_map(|(node, pool, ready)| Step::Node { node, pool, ready }),
        2 => (0u8..4).prop_map(Step::NodeGone),
        2 => (0u8..2, 1u8..6).prop_map(|(group, number)| Step::Addresses { group, number }),
        2 => (0u8..4).prop_map(Step::SilentNode),
        1 => Just(Step::SilentGateway),
        1 => Just(Step::SilentSpeaker),
        2 => Just(Step::EndSilence),
        1 => Just(Step::Delay),
        2 => Just(Step::Flush),
        1 => Just(Step::Crash),
        1 => Just(Step::Restart),
        1 => (0u8..3).prop_map(Step::Pass),
        2 => (1u8..12).prop_map(Step::RunSteps),
        6 => Just(Step::Settle),
    ]
}

fn key_of(group: u8) -> Key {
    Key::cluster(Kind::BGPSessionGroup, &to_name(&format!("g{group}")))
}

struct History {
    w: World,
    clock: i64,
    /// How many addresses each Subnet has for nodes.
    numbers: [u8; 2],
    /// When each node went that is gone.
    gone: BTreeMap<&'static str, Duration>,
}

impl History {
    fn new() -> Self {
        let mut history =
            Self { w: World::with_agents(), clock: 1000, numbers: [5; 2], gone: BTreeMap::new() };
        for group in 0..2 {
            history.apply_subnet(group, 5);
            let (service_name, vrf_name) = (format!("s{group}"), format!("v{group}"));
            history.w.apply(with_subnets(
                &service(&service_name, 100 + u16::from(group), &[]),
                &[&subnet_of(group)],
            ));
            history.w.apply(vrf(&vrf_name, &[GATEWAY]));
            let into =
                vrf_attachment(&format!("a{group}"), &vrf_name, &service_name, GATEWAY, &["10.1.0.1/29"]);
            history.w.apply(into);
        }
        history.w.settle();
        history
    }

    fn apply_subnet(&mut self, group: u8, number: u8) {
        self.numbers[usize::from(group)] = number;
        let range = Pool { start: "10.1.0.2".parse().unwrap(), end: [10, 1, 0, 1 + number].into() };
        self.w.apply(edit_subnet(&subnet(&subnet_of(group), "10.1.0.0/29"), |spec| {
            (spec.ipam, spec.allocation_pool) = (Ipam::Eno, vec![range]);
        }));
    }

    fn run_step(&mut self, step: &Step) {
        match step {
            Step::Group(name) => {
                let known = self.w.objects.get(&key_of(*name));
                if known.is_none() {
                    let key = key_of(*name);
                    self.w.phases.remove(&key);
                    self.w.statuses.remove(&key);
                    self.w.durable.remove(&key);
                    self.clock += 1;
                    let (vrf, service) = (format!("v{name}"), format!("s{name}"));
                    let group = bgp_session_group(&format!("g{name}"), &vrf, &service, "cp");
                    let group = edit_group(&group, |spec| {
                        spec.speaker = (*name == 1).then_some(eno_schemas::Speaker::MetalLB);
                    });
                    self.w.apply(created(group, self.clock));
                }
            }
            Step::Delete(name) => {
                if self.w.objects.get(&key_of(*name)).is_some_and(|object| !object.deleting) {
                    self.w.delete(&key_of(*name));
                }
            }
            Step::Node { node, pool, ready } => {
                self.gone.remove(NODES[usize::from(*node)]);
                self.w.apply_node(NODES[usize::from(*node)], *pool, *ready);
            }
            Step::NodeGone(node) => {
                let node = NODES[usize::from(*node)];
                if self.w.nodes.contains_key(node) {
                    self.w.remove_node(node);
                    self.gone.insert(node, self.w.elapsed());
                }
            }
            Step::Addresses { group, number } => self.apply_subnet(*group, *number),
            Step::SilentNode(node) => _ = self.w.silent.insert(node_target(NODES[usize::from(*node)])),
            Step::SilentGateway => _ = self.w.silent.insert(switch(GATEWAY)),
            Step::SilentSpeaker => _ = self.w.silent.insert(Target::Speaker("g1".into())),
            Step::EndSilence => self.w.silent.clear(),
            Step::Delay => drop(self.w.delayed_status_writes.get_or_insert_default()),
            Step::Flush => self.w.flush_status_writes(),
            Step::Crash => self.w.crash(),
            Step::Restart => {
                self.w.flush_status_writes();
                self.w.restart();
            }
            Step::Pass(time) => self.w.pass(Duration::from_secs([2, 600, 3700][usize::from(*time)])),
            Step::RunSteps(count) => {
                for _ in 0..*count {
                    self.w.step();
                }
            }
            Step::Settle => {
                self.w.settle();
                self.w.assert_paths_agree();
            }
        }
        self.check_addresses();
        let is_left = !self.speaker_nodes(1).is_empty() && !self.w.objects.contains_key(&key_of(1));
        assert!(!is_left, "g1 is gone before its speaker knows");
    }

    /// The nodes with which a speaker has sessions of a group.
    fn speaker_nodes(&self, group: u8) -> BTreeSet<String> {
        match self.w.applied.get(&Target::Speaker(key_of(group).name)) {
            Some(Desired::Speaker(SpeakerDesired { sessions: Some(sessions), .. })) => {
                sessions.hostnames.clone()
            }
            _ => BTreeSet::new(),
        }
    }

    /// The interfaces of a group on nodes: the addresses by node. Those of a node that is gone for long count no more.
    fn interfaces(&self, group: u8) -> BTreeMap<&'static str, Vec<IpNet>> {
        let is_long_gone = |node: &str| {
            self.gone.get(node).is_some_and(|since| self.w.elapsed() >= *since + Duration::from_mins(59))
        };
        let vid = 100 + u16::from(group);
        let on = |node: &str| {
            let networks =
                find_applied_node(&self.w, node).map(|node| node.networks.clone()).unwrap_or_default();
            let own = networks.into_values().filter_map(|network| match network {
                HostNetwork::Interface { vlan, addresses, .. } if vlan.get() == vid => Some(addresses),
                _ => None,
            });
            own.flatten().collect::<Vec<IpNet>>()
        };
        let nodes = NODES.into_iter().filter(|node| !is_long_gone(node));
        nodes.map(|node| (node, on(node))).filter(|(_, addresses)| !addresses.is_empty()).collect()
    }

    /// No two nodes have one address in a VLAN, while their group is there.
    fn check_addresses(&self) {
        for group in (0..2).filter(|group| self.w.objects.contains_key(&key_of(*group))) {
            let mut holders: BTreeMap<IpNet, &str> = BTreeMap::new();
            for (node, addresses) in self.interfaces(group) {
                for address in addresses {
                    let other = holders.insert(address, node);
                    assert_eq!(other, None, "g{group}: {address} on {node} too");
                }
            }
        }
    }

    fn run(steps: &[Step]) -> Self {
        let mut history = Self::new();
        for step in steps {
            history.run_step(step);
        }
        history.w.silent.clear();
        history.w.flush_status_writes();
        history.w.elapse_backoff_and_settle();
        history.check();
        history
    }

    fn check(&self) {
        self.check_addresses();
        self.w.assert_paths_agree();
        self.w.assert_observer_agrees();
        self.w.assert_transitions_are_legal();
        let fabric = self.w.actual(&GATEWAY.into()).unwrap();
        for group in 0..2 {
            let key = key_of(group);
            let own = fabric.vrfs.iter().flat_map(|vrf| &vrf.bgp).filter(|own| own.owner == key.to_string());
            let neighbours: BTreeSet<_> = own.flat_map(|own| own.neighbours.iter().copied()).collect();
            let nodes = |name: &&str| self.w.nodes.get(*name).is_some_and(|(labels, _)| !labels.is_empty());
            let interfaces = self.interfaces(group);
            let present = interfaces.iter().filter(|(node, _)| self.w.nodes.contains_key(**node));
            let (names, addresses): (BTreeSet<String>, Vec<&Vec<IpNet>>) =
                present.map(|(node, own)| ((*node).to_owned(), own)).unzip();
            let addresses: BTreeSet<_> = addresses.into_iter().flatten().map(IpNet::addr).collect();
            assert_eq!(neighbours, addresses, "{key}: each neighbour is a node");
            assert_eq!(self.speaker_nodes(group), if group == 1 { names } else { BTreeSet::new() }, "{key}");
            let Some(status) = self.w.statuses.get(&key).filter(|_| self.w.objects.contains_key(&key)) else {
                assert!(neighbours.is_empty());
                continue;
            };
            let leased: BTreeSet<_> =
                status.workers.iter().flat_map(|own| own.addresses.iter().map(IpNet::addr)).collect();
            let mut pool = (2..2 + self.numbers[usize::from(group)]).map(|host| [10, 1, 0, host].into());
            let is_full = pool.all(|address| leased.contains(&address));
            if status.phase == Some(Phase::Ready) && !is_full {
                // A node that the other group has is named by the condition Degraded.
                let others = self.interfaces(1 - group);
                let lacks = |node: &&str| !interfaces.contains_key(*node) && !others.contains_key(*node);
                let lacking = NODES.into_iter().filter(nodes).find(lacks);
                assert_eq!(lacking, None, "{key}: {}", self.w.message(&key));
            }
            let listed: BTreeSet<Name> = status.workers.iter().map(|worker| worker.node.clone()).collect();
            for node in interfaces.keys() {
                assert!(listed.contains(*node), "{key}: {node} is not in {listed:?}");
            }
        }
    }

    fn delete_all(&mut self) {
        for group in 0..2 {
            if self.w.objects.get(&key_of(group)).is_some_and(|object| !object.deleting) {
                self.w.delete(&key_of(group));
            }
        }
        self.w.settle();
        for group in 0..2 {
            assert!(!self.w.objects.contains_key(&key_of(group)), "{}", self.w.message(&key_of(group)));
            for node in self.interfaces(group).keys() {
                assert!(!self.w.nodes.contains_key(*node), "{node} has an interface of g{group}");
            }
        }
        let fabric = self.w.actual(&GATEWAY.into()).unwrap();
        assert!(fabric.vrfs.iter().all(|vrf| vrf.bgp.is_empty()));
        // No lease keeps a Subnet.
        for group in 0..2 {
            let [into, vrf, service] = [(Kind::VRFAttachment, "a"), (Kind::VRF, "v"), (Kind::L2Service, "s")]
                .map(|(kind, name)| Key::cluster(kind, &to_name(&format!("{name}{group}"))));
            for key in [into, vrf, service, Key::cluster(Kind::Subnet, &to_name(&subnet_of(group)))] {
                self.w.delete_and_settle(&key);
                assert!(!self.w.objects.contains_key(&key), "{key}: {}", self.w.message(&key));
            }
        }
    }
}

fn subnet_of(group: u8) -> String {
    format!("sn{group}")
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn deleted_groups_leave_nothing(steps in proptest::collection::vec(step(), 1..60)) {
        History::run(&steps).delete_all();
    }

    #[test]
    fn new_engine_finds_nothing_to_do_for_groups(steps in proptest::collection::vec(step(), 1..60)) {
        let mut history = History::run(&steps);
        let (statuses, published, paths) =
            (history.w.statuses.clone(), history.w.published, history.w.paths());
        history.w.restart_and_settle();
        prop_assert_eq!(history.w.published, published);
        prop_assert_eq!(history.w.paths(), paths);
        for (key, status) in &statuses {
            prop_assert_eq!(&history.w.statuses[key], status, "{}", key);
        }
    }
}
