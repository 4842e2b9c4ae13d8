//! A simulated cluster for tests: the engine, its objects, and drivers that apply, reject or ignore commands.

#![allow(
    dead_code,
    unused_imports,
    clippy::wildcard_imports,
    reason = "each test file uses a part of it, and it names most of both crates"
)]

mod builders;
mod queries;
mod split_fabric;
mod switches;

use std::collections::{BTreeMap, BTreeSet};

use eno_core::spec::*;
use eno_core::{
    Config, Effect, Engine, Event, Key, Kind, Labels, Name, Object, Pod, PodView, Selector, Status, Target,
};
use eno_schemas::*;

pub use builders::*;
pub use queries::*;
pub use split_fabric::*;
pub use switches::*;

/// A simulated cluster: the engine, the Kubernetes objects, and the drivers with the state that they applied.
pub struct World {
    /// The engine under test.
    pub engine: Engine,
    /// The objects in the API server.
    pub objects: BTreeMap<Key, Object>,
    /// The last status that the engine wrote for each object.
    pub statuses: BTreeMap<Key, Status>,
    /// All phases of each object, in order.
    pub phases: BTreeMap<Key, Vec<Phase>>,
    /// The desired state that each driver applied last.
    pub applied: BTreeMap<Target, Desired>,
    /// The last command of each target.
    pub commands: BTreeMap<Target, Desired>,
    /// The L2BridgeDomains that the engine generated; `None`: deleted.
    pub bridge_domains: BTreeMap<Name, Option<BridgeDomainSpec>>,
    /// The pods that came to use any attachment, with the reason.
    pub unclear_uses: Vec<(Name, Name)>,
    /// Number of commands published.
    pub published: usize,
    /// Targets whose drivers do not answer.
    pub silent: BTreeSet<Target>,
    /// Commands that the drivers have not executed yet.
    pub pending: BTreeMap<Target, Desired>,
    /// The rejections by the driver of each target.
    pub rejections: BTreeMap<Target, Vec<Rejection>>,
    /// Path MTUs below the requested MTU, by the ids of pod interfaces.
    pub path_mtus: BTreeMap<String, PathMtu>,
    /// The notes that drivers add to their reports.
    pub notes: BTreeMap<Target, Vec<Note>>,
    /// The time of [`Effect::Await`] never elapses.
    pub awaits_never_elapse: bool,
    /// The nodes have agents.
    pub agents: bool,
    /// The nodes, with their labels and whether they are ready.
    pub nodes: BTreeMap<Name, (Labels, bool)>,
    /// The ConnectionPoint labels and the bridge resources that the engine put on each Node object.
    pub node_labels: BTreeMap<Name, (BTreeSet<Name>, BTreeSet<Name>)>,
    /// The pods, by uid.
    pub pods: BTreeMap<Name, Pod>,
    /// The PodNetworks, by the uid of their pod.
    pub pod_networks: BTreeMap<Name, PodView>,
    /// The sample Deployments that the engine created.
    pub samples: Vec<Name>,
    /// The current time, RFC 3339.
    pub now: String,
    /// The requested deadlines, with the time that each counts from.
    pub deadlines: Vec<(Key, Name)>,
    /// If set, status writes are collected here and the engine gets no confirmation of them.
    pub delayed_status_writes: Option<Vec<(Key, u64)>>,
    /// If set, deletions are collected here and the engine gets no event of them.
    pub delayed_deletions: Option<Vec<Key>>,
    /// If set, changes of several switches are transactions.
    pub switches: Option<Switches>,
    /// The sequence of the last report.
    sequence: u64,
}

impl Default for World {
    fn default() -> Self {
        Self::new(false, false)
    }
}

const NODES: [&str; 4] = ["node1", "node2", "node3", "node4"];

impl World {
    pub fn new(bridge_domains: bool, agents: bool) -> Self {
        let mut engine =
            Engine::new(Config { cluster: "lab".into(), cluster_uid: None, bridge_domains, nodes: agents });
        engine.handle(Event::Drivers(Self::drivers()));
        Self {
            engine,
            objects: BTreeMap::new(),
            statuses: BTreeMap::new(),
            phases: BTreeMap::new(),
            applied: BTreeMap::new(),
            commands: BTreeMap::new(),
            bridge_domains: BTreeMap::new(),
            unclear_uses: Vec::new(),
            published: 0,
            silent: BTreeSet::new(),
            pending: BTreeMap::new(),
            notes: BTreeMap::new(),
            path_mtus: BTreeMap::new(),
            rejections: BTreeMap::new(),
            awaits_never_elapse: false,
            agents,
            nodes: BTreeMap::new(),
            node_labels: BTreeMap::new(),
            pods: BTreeMap::new(),
            pod_networks: BTreeMap::new(),
            samples: Vec::new(),
            now: "2026-01-01T00:00:00Z".into(),
            deadlines: Vec::new(),
            delayed_status_writes: None,
            delayed_deletions: None,
            switches: None,
            sequence: 0,
        }
    }

    fn drivers() -> BTreeSet<Name> {
        let agents = NODES.map(|node| Name::from(format!("node/{node}")));
        ["netconf", "nad"].map(Name::from).into_iter().chain(agents).collect()
    }

    /// [`Self::leaf_spine`] with an agent on each node.
    pub fn with_agents() -> Self {
        let mut world = Self::new(false, true);
        world.apply_leaf_spine();
        world
    }

    /// Creates or changes a node; `pool`: it has the label that the NodePool `pool` selects.
    pub fn apply_node(&mut self, name: &str, pool: bool, ready: bool) {
        let labels = if pool { Labels::from([("pool".into(), "a".into())]) } else { Labels::new() };
        self.nodes.insert(name.into(), (labels.clone(), ready));
        self.engine.handle(Event::Node { name: name.into(), labels, ready });
    }

    pub fn remove_node(&mut self, name: &str) {
        self.nodes.remove(name);
        self.node_labels.remove(name);
        self.engine.handle(Event::NodeGone(name.into()));
    }

    pub fn apply_pod(&mut self, pod: Pod) {
        self.pods.insert(pod.uid.clone(), pod.clone());
        self.engine.handle(Event::Pod(Box::new(pod)));
    }

    pub fn remove_pod(&mut self, uid: &str) {
        self.pods.remove(uid);
        self.engine.handle(Event::PodGone(uid.into()));
    }

    /// Two leaves with two nodes each, two spines, and a gateway port on leaf2. The NodePool `pool` has all nodes,
    /// and the ConnectionPoint `cp` offers ovs and macvlan.
    pub fn leaf_spine() -> Self {
        let mut world = Self::default();
        world.apply_leaf_spine();
        world
    }

    /// Creates the objects of [`Self::leaf_spine`].
    pub fn apply_leaf_spine(&mut self) {
        for (leaf, nodes) in [("leaf1", ["node1", "node2"]), ("leaf2", ["node3", "node4"])] {
            let mut ports: Vec<(&str, LeadsTo)> = Vec::new();
            for (port, name) in ["e1", "e2"].iter().zip(nodes) {
                self.apply_node(name, true, true);
                ports.push((port, LeadsTo::Node { node: name.into(), interface: "eth1".into() }));
            }
            for (port, spine) in [("u1", "spine1"), ("u2", "spine2")] {
                ports.push((port, LeadsTo::Device { device: spine.into(), port: leaf.into() }));
            }
            if leaf == "leaf2" {
                ports.push(("gw", LeadsTo::PhysicalNetwork("dc".into())));
            }
            self.apply(device(leaf, &ports));
        }
        self.apply(device("spine1", &[]));
        self.apply(device("spine2", &[]));
        self.apply(object(
            Kind::PhysicalNetwork,
            "dc",
            Spec::PhysicalNetwork(PhysicalNetworkSpec {
                segmentation_ids: Some("10-999".parse().unwrap()),
                ..PhysicalNetworkSpec::default()
            }),
        ));
        let selector =
            serde_json::from_str::<Selector>(r#"[{"key":"pool","operator":"In","values":["a"]}]"#).unwrap();
        self.apply(object(Kind::NodePool, "pool", Spec::NodePool(NodePoolSpec { node_selector: selector })));
        self.apply(connection_point("cp", Some("pool")));
        self.settle();
    }

    pub fn apply(&mut self, mut object: Object) -> Key {
        let key = object.key.clone();
        if let Some(before) = self.objects.get(&key) {
            object.generation = before.generation + 1;
            object.uid = before.uid.clone();
            object.created = before.created;
            object.finalized = before.finalized;
        } else {
            object.uid = format!("uid-{key}").into();
        }
        self.objects.insert(key.clone(), object.clone());
        self.engine.handle(Event::Object(Box::new(object)));
        key
    }

    pub fn delete(&mut self, key: &Key) {
        let object = self.objects.get_mut(key).unwrap();
        if !object.finalized {
            self.objects.remove(key);
            return self.engine.handle(Event::ObjectGone(key.clone()));
        }
        object.deleting = true;
        let object = object.clone();
        self.engine.handle(Event::Object(Box::new(object)));
    }

    /// Lets the engine settle and the drivers answer until the system is quiescent.
    pub fn settle(&mut self) {
        let mut steps = 0;
        while self.step() {
            steps += 1;
            assert!(steps < 10_000, "the world does not become quiescent");
        }
    }

    /// Lets the engine settle and one driver answer. False: the system is quiescent.
    pub fn step(&mut self) -> bool {
        let effects = self.engine.settle(&self.now);
        for effect in effects {
            self.apply_effect(effect);
        }
        let answer = self.pending.keys().find(|target| !self.silent.contains(target)).cloned();
        if let Some(target) = answer {
            self.run_driver(&target);
            return true;
        }
        self.engine.is_unsettled() || (self.switches.is_some() && self.step_switches())
    }

    fn apply_effect(&mut self, effect: Effect) {
        match effect {
            Effect::AddFinalizer(key) => {
                let object = self.objects.get_mut(&key).unwrap();
                object.finalized = true;
                let object = object.clone();
                self.engine.handle(Event::Object(Box::new(object)));
            }
            Effect::RemoveFinalizer(key) => {
                self.objects.remove(&key);
                match &mut self.delayed_deletions {
                    Some(later) => later.push(key),
                    None => self.engine.handle(Event::ObjectGone(key)),
                }
            }
            Effect::Transition { key, previous, status } => {
                let phases = self.phases.entry(key.clone()).or_default();
                assert_eq!(previous, phases.last().copied(), "{key}");
                phases.push(status.phase.unwrap());
                self.write_status(key, *status);
            }
            Effect::Status { key, status } => {
                assert_ne!(self.statuses.get(&key), Some(&*status), "{key}: a status write without a change");
                self.write_status(key, *status);
            }
            Effect::Publish(Target::Fabric(name)) if self.switches.is_some() => self.mark_switch_dirty(&name),
            Effect::Retry { network, attempt } => {
                if let Some(switches) = &mut self.switches {
                    switches.retries.push((network, attempt));
                }
            }
            Effect::Publish(target) => {
                let Some((_, desired, _)) = self.engine.issue(&target) else { return };
                if self.commands.get(&target) != Some(&desired) {
                    self.published += 1;
                    self.commands.insert(target.clone(), desired.clone());
                    self.pending.insert(target, desired);
                }
            }
            Effect::Await(key) => {
                if !self.awaits_never_elapse {
                    self.engine.handle(Event::AwaitElapsed(key));
                }
            }
            Effect::Forget(target) => {
                if let (Target::Fabric(name), Some(_)) = (&target, &self.switches) {
                    self.forget_switch(name);
                }
                self.applied.remove(&target);
                self.commands.remove(&target);
                self.pending.remove(&target);
            }
            Effect::BridgeDomain { service, spec } => {
                self.bridge_domains.insert(service, spec);
            }
            Effect::LabelNode { node, points, bridges } => {
                let labels = (points, bridges);
                assert_ne!(
                    self.node_labels.get(&node),
                    Some(&labels),
                    "{node}: a label write without a change"
                );
                self.node_labels.insert(node, labels);
            }
            Effect::PodNetwork { uid, view, .. } => match view {
                Some(view) => {
                    assert_ne!(
                        self.pod_networks.get(&uid),
                        Some(&*view),
                        "{uid}: a PodNetwork write without a change"
                    );
                    self.pod_networks.insert(uid, *view);
                }
                None => assert!(self.pod_networks.remove(&uid).is_some(), "{uid}: had no PodNetwork"),
            },
            Effect::SampleDeployment { name, .. } => self.samples.push(name),
            Effect::UsesAny { name, reason, .. } => self.unclear_uses.push((name, reason)),
            Effect::Deadline { key, since } => self.deadlines.push((key, since)),
        }
    }

    /// Writes the status and confirms the write to the engine.
    fn write_status(&mut self, key: Key, status: Status) {
        assert_conditions_consistent(&key, &status);
        let leased = status.leased;
        self.statuses.insert(key.clone(), status);
        match &mut self.delayed_status_writes {
            Some(later) => later.push((key, leased)),
            None => self.engine.handle(Event::StatusWritten(key, leased)),
        }
    }

    /// The driver executes the pending command and reports the result.
    pub fn run_driver(&mut self, target: &Target) {
        let desired = self.pending.remove(target).unwrap();
        let rejected = self.rejections.get(target).cloned().unwrap_or_default();
        let applied = match &desired {
            Desired::Fabric(fabric) => {
                assert_fabric_consistent(fabric);
                let refused = |vid, port: &str| rejected.iter().any(|r| r.item.covers(vid, port));
                let applied_vlans = |port: &FabricPort| {
                    let vlans = port.vlans.iter().filter(|vid| !refused(*vid, &port.name));
                    (port.name.clone(), vlans.collect())
                };
                let ports = fabric.ports.iter().map(applied_vlans).collect();
                Applied::Fabric {
                    vlans: fabric
                        .vlans
                        .iter()
                        .map(|vlan| vlan.vid)
                        .filter(|vid| !refused(*vid, ""))
                        .collect(),
                    closed: Some(closed_ports(&ports)),
                    before: before_by_port(&fabric.ports),
                    ports,
                    carried: BTreeMap::new(),
                }
            }
            Desired::Nad(nad) => Applied::Nad { present: nad.attachment.is_some() },
            Desired::Node(node) => applied_by_node(node, &rejected, &self.path_mtus),
        };
        self.report(target, desired.hash(), Outcome::Applied, Some(applied), rejected);
        self.applied.insert(target.clone(), desired);
    }

    /// Reports that the target is unreachable.
    pub fn report_unreachable(&mut self, target: &Target) {
        let failure = Failure { reason: "connect: refused".into(), retryable: true, unreachable: true };
        self.report(target, "old".into(), Outcome::Failed(failure), None, Vec::new());
    }

    pub fn report(
        &mut self,
        target: &Target,
        hash: String,
        outcome: Outcome,
        applied: Option<Applied>,
        rejected: Vec<Rejection>,
    ) {
        self.sequence += 1;
        let report = Report {
            driver: "netconf".into(),
            target: target.to_string(),
            instance: "i".into(),
            generation: Generation { term: 1, sequence: self.sequence, hash },
            at: "2026-01-01T00:00:00Z".into(),
            outcome,
            applied,
            rejected,
            notes: self.notes.get(target).cloned().unwrap_or_default(),
            device: None,
            change: None,
        };
        self.engine.handle(Event::Report(target.clone(), Box::new(report)));
    }

    pub fn phase(&self, key: &Key) -> Phase {
        self.statuses[key].phase.unwrap()
    }

    pub fn message(&self, key: &Key) -> &str {
        &self.statuses[key].message
    }

    /// The ports that carry a VLAN, as `device:port`.
    pub fn carrying_ports(&self, vid: u16) -> Vec<String> {
        let vid = VlanId::new(vid).unwrap();
        let mut all = Vec::new();
        for (target, desired) in &self.applied {
            if let Desired::Fabric(fabric) = desired {
                all.extend(
                    fabric
                        .ports
                        .iter()
                        .filter(|p| p.vlans.contains(vid))
                        .map(|p| format!("{target}:{}", p.name)),
                );
            }
        }
        all
    }

    pub fn nad(&self, namespace: &str, name: &str) -> Option<VlanAttachment> {
        match self.applied.get(&Target::Nad(namespace.into(), name.into()))? {
            Desired::Nad(nad) => nad.attachment.clone(),
            Desired::Fabric(_) | Desired::Node(_) => None,
        }
    }

    /// Replaces the engine with a new one that knows only the contents of Kubernetes and NATS.
    pub fn restart(&mut self) {
        let mut objects = self.objects.clone();
        for (key, object) in &mut objects {
            object.status = self.statuses.get(key).cloned();
        }
        let mut engine = Engine::new(Config {
            cluster: "lab".into(),
            cluster_uid: None,
            bridge_domains: false,
            nodes: self.agents,
        });
        engine.handle(Event::Drivers(Self::drivers()));
        for (name, (labels, ready)) in self.nodes.clone() {
            engine.handle(Event::Node { name, labels, ready });
        }
        for pod in self.pods.values() {
            engine.handle(Event::Pod(Box::new(pod.clone())));
        }
        self.node_labels.clear();
        self.pod_networks.clear();
        self.deadlines.clear();
        // The reverse order, because the order of events must not matter.
        for object in objects.values().rev() {
            engine.handle(Event::Object(Box::new(object.clone())));
        }
        self.engine = engine;
        self.engine.handle(stored_commands(&self.commands));
        for (target, desired) in self.applied.clone() {
            let unexecuted = self.pending.insert(target.clone(), desired);
            self.run_driver(&target);
            self.pending.extend(unexecuted.map(|desired| (target, desired)));
        }
    }
}

fn applied_by_node(
    node: &NodeDesired,
    rejected: &[Rejection],
    path_mtus: &BTreeMap<String, PathMtu>,
) -> Applied {
    let networks = node.networks.iter().filter_map(|(name, network)| {
        if rejected.iter().any(|r| r.item == Item::TARGET || r.item == Item::port(name.as_str())) {
            return None;
        }
        let (vlans, mtu) = match network {
            HostNetwork::Ovs { vlans, uplink, .. } => (vlans, uplink.as_ref().and_then(|uplink| uplink.mtu)),
            HostNetwork::Bridge { vlans, mtu, .. } | HostNetwork::Master { vlans, mtu, .. } => (vlans, *mtu),
            HostNetwork::PodBridge { mtu, .. } => (&VlanSet::EMPTY, *mtu),
        };
        let vlans = vlans.iter().filter(|vid| !rejected.iter().any(|r| r.item.covers(*vid, name))).collect();
        Some((name.clone(), AppliedNetwork { vlans, mtu }))
    });
    let pods = node.pods.iter().map(|(uid, pod)| {
        let refused = |id: &str| rejected.iter().any(|r| r.item.covers_link(uid, id));
        let links = pod.links.iter().filter(|link| !refused(&link.id)).map(|link| {
            let (name, host_name) = match &link.name {
                LinkName::Fixed(name) => (name.clone(), None),
                LinkName::WithPid(name) => (format!("{name}77"), Some(format!("h{name}77"))),
            };
            let found = AppliedLink {
                revision: link.revision.clone(),
                name,
                host_name,
                mac: link.mac.clone(),
                mtu: link.mtu.unwrap_or(1500),
                path: path_mtus.get(&link.id).cloned(),
                addresses: link.addresses.clone(),
            };
            (link.id.clone(), found)
        });
        let primary = pod.primary.iter().filter(|primary| !refused(&primary.id)).map(|primary| {
            let (revision, name) = (primary.revision.clone(), primary.name.clone());
            let path = path_mtus.get(&primary.id).cloned();
            let found = AppliedLink { revision, name, mtu: primary.mtu, path, ..AppliedLink::default() };
            (primary.id.clone(), found)
        });
        (uid.clone(), links.chain(primary).collect())
    });
    Applied::Node { networks: networks.collect(), pods: pods.collect() }
}

/// The condition Ready agrees with the phase, and only objects in error have the condition Stalled.
fn assert_conditions_consistent(key: &Key, status: &Status) {
    let kinds: Vec<&str> = status.conditions.iter().map(|condition| condition.kind.as_ref()).collect();
    assert!(kinds.is_sorted_by(|a, b| a < b), "{key}: {kinds:?}");
    let ready = condition(status, "Ready").unwrap();
    let (is_ready, is_error) = (status.phase == Some(Phase::Ready), status.phase == Some(Phase::Error));
    assert_eq!((ready.holds, &ready.message), (is_ready, &status.message), "{key}");
    let stalled = condition(status, "Stalled");
    assert_eq!(stalled.is_some(), is_error, "{key}: {stalled:?}");
    if let Some(stalled) = stalled.filter(|stalled| stalled.holds) {
        assert_eq!((stalled.reason, &stalled.message), (ready.reason, &ready.message), "{key}");
    }
}

fn assert_fabric_consistent(fabric: &FabricDesired) {
    let known: VlanSet = fabric.vlans.iter().map(|vlan| vlan.vid).collect();
    for port in &fabric.ports {
        assert!(port.vlans.is_subset(&known), "port {} carries VLANs that do not exist", port.name);
    }
    assert!(
        fabric.vlans.is_sorted_by_key(|vlan| vlan.vid) && fabric.ports.is_sorted_by(|a, b| a.name < b.name)
    );
}
