//! Properties over random histories of nodes and pods. No address is leased twice, nodes get no state for absent pods,
//! and ready objects are applied. A new engine finds nothing to do, and deleted objects leave nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use eno_core::kinds::Spec;
use eno_core::{Attached, Event, Key, Kind, Object, Target, Uses};
use eno_schemas::{
    Desired, HostNetwork, Item, LinkKind, NodeDesired, Parent, Phase, Pool, Rejection, VlanId, VlanType,
};
use ipnet::IpNet;
use proptest::prelude::*;

use crate::edits::{edit_attachment, edit_point, edit_subnet};
use crate::world::*;
#[derive(Clone, Debug)]
enum Step {
    Attachment { name: u8, services: Vec<u8>, point: u8, sub_interfaces: bool },
    Config { name: u8, links: Vec<(u8, u8)> },
    Bridge { name: u8, cidr: Option<u8> },
    Delete(u8),
    Pod { name: u8, node: u8, runs: bool, labels: u8, attached: u8 },
    PodGone(u8),
    Node { name: u8, in_pool: bool, ready: bool },
    NodeGone(u8),
    Silence(u8),
    EndSilence,
    Refuse { node: u8, what: u8 },
    Lose { node: u8, service: u8 },
    Probe { lossless: bool },
    DelayStatusWrites,
    FlushStatusWrites,
    Settle,
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    let links = proptest::collection::vec((0u8..3, 0u8..4), 0..3);
    prop_oneof![
        2 => (0u8..3, proptest::collection::vec(0u8..3, 1..3), 0u8..2, any::<bool>()).prop_map(
            |(name, services, point, sub_interfaces)| Step::Attachment { name, services, point, sub_interfaces }
        ),
        4 => (0u8..3, links).prop_map(|(name, links)| Step::Config { name, links }),
        1 => (0u8..3, proptest::option::of(0u8..4)).prop_map(|(name, cidr)| Step::Bridge { name, cidr }),
        3 => (0u8..9).prop_map(Step::Delete),
        8 => (0u8..8, 1u8..5, any::<bool>(), any::<u8>(), prop_oneof![Just(0), 0u8..16])
            .prop_map(|(name, node, runs, labels, attached)| Step::Pod { name, node, runs, labels, attached }),
        2 => (0u8..8).prop_map(Step::PodGone),
        1 => (1u8..5, any::<bool>(), any::<bool>())
            .prop_map(|(name, in_pool, ready)| Step::Node { name, in_pool, ready }),
        1 => (1u8..5).prop_map(Step::NodeGone),
        1 => (1u8..5).prop_map(Step::Silence),
        1 => Just(Step::EndSilence),
        1 => (1u8..5, 0u8..5).prop_map(|(node, what)| Step::Refuse { node, what }),
        1 => (1u8..5, 0u8..3).prop_map(|(node, service)| Step::Lose { node, service }),
        1 => any::<bool>().prop_map(|lossless| Step::Probe { lossless }),
        1 => Just(Step::DelayStatusWrites),
        1 => Just(Step::FlushStatusWrites),
        4 => Just(Step::Settle),
        1 => Just(Step::Restart),
    ]
}

struct History {
    world: World,
    /// The node number of each pod.
    pod_nodes: BTreeMap<u8, u8>,
    created_pods: u32,
    clock: i64,
}

/// The holder of each address of a pool.
type Holders = BTreeMap<(String, IpAddr), String>;

fn hold(holders: &mut Holders, pool: &str, addresses: &[IpNet], holder: &str) {
    for address in addresses {
        let before = holders.insert((pool.to_owned(), address.addr()), holder.to_owned());
        assert_eq!(before, None, "{holder} has {address}, too");
    }
}

impl History {
    fn new() -> Self {
        let mut world = World::with_agents();
        world.apply(edit_point(&connection_point("other", Some("pool")), |spec| spec.interfaces.clear()));
        let range = Pool { start: "10.1.0.10".parse().unwrap(), end: "10.1.0.12".parse().unwrap() };
        world.apply(edit_subnet(&subnet("sn", "10.1.0.0/24"), |spec| spec.hot_plug_pool = vec![range]));
        for (i, subnets) in [&["sn"] as &[&str], &["sn"], &[]].into_iter().enumerate() {
            let vid = 100 + u16::try_from(i).unwrap();
            world.apply(with_subnets(&service(&format!("s{i}"), vid, &[]), subnets));
        }
        world.settle();
        Self { world, pod_nodes: BTreeMap::new(), created_pods: 0, clock: 1000 }
    }

    fn apply(&mut self, object: Object) {
        if self.world.objects.get(&object.key).is_some_and(|object| object.deleting) {
            return;
        }
        self.clock += 1;
        if !self.world.objects.contains_key(&object.key) {
            self.world.phases.remove(&object.key);
            self.world.statuses.remove(&object.key);
        }
        self.world.apply(created(object, self.clock));
    }

    fn run_step(&mut self, step: &Step) {
        match step {
            Step::Attachment { name, services, point, sub_interfaces } => {
                let names: Vec<String> = services.iter().map(|name| format!("s{name}")).collect();
                let names: Vec<&str> = names.iter().map(String::as_str).collect();
                let point = ["cp", "other"][usize::from(*point)];
                let attachment = attachment(&format!("a{name}"), &names, point);
                self.apply(edit_attachment(&attachment, |spec| {
                    spec.sub_interfaces = *sub_interfaces && spec.vlan_type != VlanType::Access;
                }));
            }
            Step::Config { name, links } => {
                const CIDRS: [&str; 4] = ["10.9.0.0/29", "10.9.0.0/24", "10.8.0.0/30", "fd00::/64"];
                let mut seen = BTreeSet::new();
                let links = links.iter().filter(|(link, _)| seen.insert(*link));
                let links = links.map(|(link, cidr)| {
                    veth(&format!("l{link}"), &format!("pb{link}"), CIDRS[usize::from(*cidr)])
                });
                self.apply(pod_config(&format!("c{name}"), links.collect()));
            }
            Step::Bridge { name, cidr } => {
                const CIDRS: [&str; 4] = ["10.9.0.0/29", "10.7.0.0/28", "10.8.0.0/16", "fd01::/120"];
                let cidrs: Vec<&str> = cidr.iter().map(|cidr| CIDRS[usize::from(*cidr)]).collect();
                self.apply(bridge(&format!("b{name}"), &format!("pb{name}"), &cidrs));
            }
            Step::Delete(n) => {
                let (kind, prefix) = match n / 3 {
                    0 => (Kind::L2ServiceAttachment, "a"),
                    1 => (Kind::PodConfig, "c"),
                    _ => (Kind::Bridge, "b"),
                };
                let key = Key::namespaced(kind, &to_name("ns"), &to_name(&format!("{prefix}{}", n % 3)));
                if self.world.objects.contains_key(&key) {
                    self.world.delete(&key);
                }
            }
            Step::Pod { name, node, runs, labels, attached } => {
                self.pod((*name, *node, *runs), *labels, *attached);
            }
            Step::PodGone(name) => {
                if self.pod_nodes.remove(name).is_some() {
                    let uids: Vec<_> = self
                        .world
                        .pods
                        .values()
                        .filter(|pod| *pod.name == *format!("p{name}"))
                        .map(|pod| pod.uid.clone())
                        .collect();
                    for uid in uids {
                        self.world.remove_pod(&uid);
                    }
                }
            }
            Step::Node { name, in_pool, ready } => {
                self.world.apply_node(&format!("node{name}"), *in_pool, *ready);
            }
            Step::NodeGone(name) => self.world.remove_node(&format!("node{name}")),
            Step::Silence(n) => {
                self.world.silent.insert(Target::Node(format!("node{n}").into()));
            }
            Step::EndSilence => self.world.silent.clear(),
            Step::Refuse { node, what } => {
                let item = match what {
                    0 => Item::TARGET,
                    1 | 4 => Item::port("br-cp"),
                    2 => Item::port("pb0"),
                    _ => Item { link: Some("PodConfig/c0/l0".into()), ..Item::TARGET },
                };
                let (reason, retryable) = ("no".into(), *what == 2);
                let rejection = Rejection { item, reason, retryable, unreachable: *what == 4 };
                self.world.rejections.insert(Target::Node(format!("node{node}").into()), vec![rejection]);
            }
            Step::Lose { node, service } => {
                let vid = VlanId::new(100 + u16::from(*service)).unwrap();
                self.world.probing.lost.insert((format!("node{node}").into(), vid));
            }
            Step::Probe { lossless } => {
                if *lossless {
                    self.world.probing.lost.clear();
                }
                self.world.probe();
            }
            Step::DelayStatusWrites => {
                self.world.delayed_status_writes.get_or_insert_default();
            }
            Step::FlushStatusWrites => self.flush_status_writes(),
            Step::Settle => {
                self.world.settle();
                self.check();
            }
            Step::Restart => {
                self.flush_status_writes();
                self.world.settle();
                self.world.restart();
            }
        }
    }

    fn flush_status_writes(&mut self) {
        for (key, count) in self.world.delayed_status_writes.take().into_iter().flatten() {
            self.world.engine.handle(Event::StatusWritten(key, count));
        }
    }

    /// `attached`: the attachments by which Multus made interfaces; from bit 3 on one that has no name.
    fn pod(&mut self, (name, node, runs): (u8, u8, bool), labels: u8, attached: u8) {
        if !self.pod_nodes.contains_key(&name) {
            self.created_pods += 1;
        }
        let node = *self.pod_nodes.entry(name).or_insert(node);
        let pod_name = format!("p{name}");
        let known = self.world.pods.values().find(|pod| *pod.name == *pod_name).cloned();
        let config = format!("c{}", labels % 4);
        // The fourth PodConfig does not exist.
        let mut pod_labels: Vec<(String, &str)> = Vec::new();
        if labels % 4 < 3 {
            pod_labels.push(("podconfig".into(), &config));
        }
        for i in 0..3 {
            if labels >> (4 + i) & 1 == 1 {
                pod_labels.push((format!("attach.eno.k8s.io/a{i}"), ["", "data"][usize::from(labels >> 7)]));
            }
        }
        let pod_labels: Vec<(&str, &str)> =
            pod_labels.iter().map(|(label, value)| (label.as_str(), *value)).collect();
        let mut pod = pod(&pod_name, &format!("node{node}"), &pod_labels);
        let of = |n: u8| Attached {
            nad: ("ns".into(), format!("a{n}").into()),
            interface: (attached & 8 == 0 || n > 0).then(|| format!("net{n}").into()),
            addresses: Vec::new(),
        };
        pod.attached = (0..3).filter(|n| attached >> n & 1 == 1).map(of).collect();
        pod.uses = Uses::Named(pod.attached.iter().map(|own| own.nad.clone()).collect());
        pod.uid = known
            .as_ref()
            .map_or_else(|| format!("uid-{pod_name}-{}", self.created_pods).into(), |pod| pod.uid.clone());
        if !runs {
            pod.container = known.and_then(|pod| pod.container);
        }
        self.world.apply_pod(pod);
    }

    fn node_states(&self) -> impl Iterator<Item = (String, &NodeDesired)> {
        self.world.applied.iter().filter_map(|(target, desired)| match desired {
            Desired::Node(desired) => Some((target.to_string(), desired)),
            _ => None,
        })
    }

    /// Invariants of a settled world.
    fn check(&self) {
        self.check_addresses();
        self.world.assert_transitions_are_legal();
        self.world.assert_paths_agree();
        self.world.assert_observer_agrees();
        self.world.assert_lost_packets_were_reported();
        for (name, desired) in self.node_states() {
            if self.world.silent.contains(&Target::Node(name.as_str().into())) {
                continue;
            }
            for (uid, pod) in &desired.pods {
                let known = self.world.pods.get(uid.as_str());
                assert!(
                    known.is_some_and(|pod| pod.node.as_deref() == Some(name.as_str())),
                    "{name} has state for the absent pod {}",
                    pod.name
                );
            }
            // A lease that is not written yet holds a pod's command back.
            if self.world.delayed_status_writes.is_none() {
                self.check_parents(desired);
            }
            for (bridge, network) in &desired.networks {
                if matches!(network, HostNetwork::PodBridge { .. }) {
                    let master = |link: &eno_schemas::PodLink| {
                        serde_json::to_string(&link.kind).unwrap().contains(&format!("\"{bridge}\""))
                    };
                    let used = desired.pods.values().any(|pod| pod.links.iter().any(master));
                    assert!(used, "{name} has a bridge {bridge} without a pod");
                }
            }
        }
    }

    /// No interface of a VLAN is on another one in the pod than Multus made for it.
    fn check_parents(&self, desired: &NodeDesired) {
        for (uid, pod) in &desired.pods {
            for link in &pod.links {
                let LinkKind::Vlan { parent: Parent::Pod(parent), .. } = &link.kind else { continue };
                let mut attached = self.world.pods[uid.as_str()].attached.iter();
                assert!(attached.any(|own| own.interface.as_deref() == Some(parent)), "{link:?}");
            }
        }
    }

    /// No address of a bridge or Subnet is leased to two pods, or applied to two pods.
    fn check_addresses(&self) {
        let mut recorded = Holders::new();
        let existing = self.world.statuses.iter().filter(|(key, _)| self.world.objects.contains_key(*key));
        for (key, status) in existing {
            for entry in &status.pods {
                for (link, leases) in &entry.leases {
                    // Each link name stands for one bridge.
                    let pool = if key.kind == Kind::PodConfig { link } else { "sn" };
                    hold(&mut recorded, pool, leases, &format!("{key} {} {link}", entry.uid));
                }
            }
        }
        let mut applied = Holders::new();
        for (name, desired) in self.node_states() {
            for (uid, pod) in
                desired.pods.iter().filter(|(uid, _)| self.world.pods.contains_key(uid.as_str()))
            {
                for link in &pod.links {
                    let of_config = link.id.strip_prefix("PodConfig/");
                    let pool = of_config.map_or("sn", |id| id.split('/').next_back().unwrap());
                    hold(&mut applied, pool, &link.addresses, &format!("{name} {uid} {}", link.id));
                }
            }
        }
    }

    fn run(steps: &[Step]) -> Self {
        let mut history = Self::new();
        for step in steps {
            history.run_step(step);
        }
        history.flush_status_writes();
        history.world.silent.clear();
        history.world.rejections.clear();
        history.world.settle();
        // The agents retry what they rejected.
        let nodes = history.world.applied.keys().filter(|target| matches!(target, Target::Node(_)));
        for node in nodes.cloned().collect::<Vec<_>>() {
            history.world.run_driver_again(&node);
        }
        history.check();
        history.check_ready();
        history
    }

    /// No object is pending, and ready objects are applied on each ready node.
    fn check_ready(&self) {
        for (key, status) in &self.world.statuses {
            let Some(object) = self.world.objects.get(key) else { continue };
            assert_ne!(status.phase, Some(Phase::Pending), "{key}: {}", status.message);
            if status.phase != Some(Phase::Ready) {
                continue;
            }
            match &object.spec {
                Ok(Spec::Attachment(spec)) => {
                    for (name, (labels, ready)) in &self.world.nodes {
                        if !ready || labels.is_empty() {
                            continue;
                        }
                        let Some(Desired::Node(desired)) =
                            self.world.applied.get(&Target::Node(name.clone()))
                        else {
                            panic!("{name} has no state")
                        };
                        let network = &desired.networks[&format!("br-{}", spec.connection_point)];
                        let HostNetwork::Ovs { vlans, .. } = network else { panic!("{network:?}") };
                        for service in &spec.services {
                            let vid = self.world.statuses[&Key::cluster(Kind::L2Service, service)].granted_id;
                            assert!(vid.is_some_and(|vid| vlans.contains(vid)), "{key} on {name}");
                        }
                    }
                }
                Ok(Spec::PodLinks(spec)) => {
                    for pod in self.world.pods.values() {
                        let node = pod.node.clone().unwrap();
                        let label = pod.labels.get("podconfig");
                        let is_node_ready = self.world.nodes.get(&node).is_some_and(|(_, ready)| *ready);
                        if label != Some(&key.name) || pod.container.is_none() || !is_node_ready {
                            continue;
                        }
                        let entry = status.pods.iter().find(|entry| entry.uid == pod.uid).unwrap();
                        assert_eq!(entry.links.len(), spec.links.len(), "{key}: {entry:?}");
                        assert_eq!(entry.problem, None);
                    }
                }
                _ => {}
            }
        }
    }

    fn delete_all(&mut self) {
        for uid in self.world.pods.keys().cloned().collect::<Vec<_>>() {
            let labelled = self.world.pods[&uid].clone();
            // Some pods lose their labels, and the others are deleted.
            if uid.len() % 2 == 0 {
                self.world.apply_pod(eno_core::Pod {
                    labels: BTreeMap::new(),
                    uses: Uses::default(),
                    attached: Vec::new(),
                    ..labelled
                });
            } else {
                self.world.remove_pod(&uid);
            }
        }
        let is_ours = |key: &&Key| key.namespace() == Some("ns");
        let ours: Vec<Key> = self.world.objects.keys().filter(is_ours).cloned().collect();
        for key in ours {
            self.world.delete(&key);
        }
        self.world.settle();
        self.check();
        let left: Vec<_> = self
            .world
            .objects
            .keys()
            .filter(is_ours)
            .map(|key| (key.clone(), self.world.message(key).to_owned()))
            .collect();
        assert!(left.is_empty(), "{left:?}");
        for (name, desired) in self.node_states() {
            assert!(desired.pods.is_empty(), "{name}: {:?}", desired.pods);
            for (network, pod_labels) in &desired.networks {
                match pod_labels {
                    HostNetwork::Ovs { vlans, .. } | HostNetwork::Master { vlans, .. } => {
                        assert!(vlans.is_empty(), "{name}: {network}: {vlans}");
                    }
                    _ => panic!("{name}: {network} is left"),
                }
            }
        }
        assert!(self.world.pod_networks.is_empty());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn invariants_hold_for_random_node_and_pod_histories(steps in proptest::collection::vec(step(), 1..80)) {
        let mut history = History::run(&steps);
        history.delete_all();
    }

    #[test]
    fn new_engine_finds_nothing_to_do(steps in proptest::collection::vec(step(), 1..80)) {
        History::run(&steps).restart_changes_nothing();
    }
}

impl History {
    /// A new engine finds nothing to do, and everything can be deleted.
    fn restart_changes_nothing(&mut self) {
        // Nobody knows what is in the pods of a node that is away.
        let is_away =
            |pod: &&eno_core::Pod| pod.node.as_ref().is_some_and(|node| !self.world.nodes.contains_key(node));
        let away: Vec<eno_core::Pod> = self.world.pods.values().filter(is_away).cloned().collect();
        let names: Vec<&str> = away.iter().map(|pod| &*pod.name).collect();
        let networks = |w: &World| {
            let mut networks = w.pod_networks.clone();
            networks.retain(|uid, _| away.iter().all(|pod| pod.uid != *uid));
            networks
        };
        let (statuses, published) = (self.world.statuses.clone(), self.world.published);
        let (node_labels, pod_networks) = (self.world.node_labels.clone(), networks(&self.world));
        let paths = self.world.paths();
        self.world.restart_and_settle();
        assert_eq!((self.world.published, self.world.paths()), (published, paths));
        for (key, status) in &statuses {
            let now = without_links_of(&self.world.statuses[key], &names);
            assert_eq!(now, without_links_of(status, &names), "{key}");
        }
        assert_eq!((&self.world.node_labels, networks(&self.world)), (&node_labels, pod_networks));
        self.delete_all();
    }
}

#[test]
fn pod_that_lost_its_interface_before_a_restart_has_no_name_of_it() {
    let attachment = Step::Attachment { name: 0, services: vec![2], point: 0, sub_interfaces: false };
    let pod = Step::Pod { name: 0, node: 3, runs: true, labels: 16, attached: 0 };
    let leaves = Step::Node { name: 3, in_pool: false, ready: false };
    let steps = [attachment, pod, Step::Settle, Step::Silence(3), leaves, Step::Restart];
    History::run(&steps).restart_changes_nothing();
}

/// The results of a node were missing when the engine started, and nothing is probed any more.
#[test]
fn lookup_of_a_former_engine_goes_with_what_it_is_for() {
    let attachment = || Step::Attachment { name: 1, services: vec![0], point: 0, sub_interfaces: false };
    let steps = [
        attachment(),
        attachment(),
        Step::Lose { node: 1, service: 0 },
        Step::Node { name: 2, in_pool: true, ready: false },
        Step::Restart,
        Step::NodeGone(1),
        Step::Settle,
        Step::Delete(1),
    ];
    History::run(&steps).restart_changes_nothing();
}

/// A node that never was ready is at another switch. Nobody asks it, so its switch is not asked either.
#[test]
fn losses_do_not_concern_the_switch_of_a_node_that_does_not_probe() {
    let attachment =
        |name, service| Step::Attachment { name, services: vec![service], point: 0, sub_interfaces: false };
    let steps = [
        Step::Node { name: 3, in_pool: false, ready: false },
        attachment(0, 2),
        attachment(0, 2),
        Step::Lose { node: 2, service: 2 },
        attachment(1, 0),
        Step::Node { name: 4, in_pool: true, ready: false },
        Step::Config { name: 0, links: vec![] },
    ];
    History::run(&steps).restart_changes_nothing();
}
