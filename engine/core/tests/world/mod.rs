//! A world for tests: objects by a few words, drivers that confirm what they are told, or refuse it.

#![allow(
    dead_code,
    unused_imports,
    clippy::wildcard_imports,
    reason = "each test file uses its part of it, and it names most of both crates"
)]

mod fabric;
mod look;
mod sides;
mod words;

use std::collections::{BTreeMap, BTreeSet};

use eno_core::spec::*;
use eno_core::{
    Config, Effect, Engine, Event, Key, Kind, Labels, Name, Object, Pod, PodView, Selector, Status, Target,
};
use eno_schemas::*;

pub use fabric::*;
pub use look::*;
pub use sides::*;
pub use words::*;

/// An engine, its drivers and what they hold.
pub struct World {
    pub engine: Engine,
    pub objects: BTreeMap<Key, Object>,
    pub statuses: BTreeMap<Key, Status>,
    pub phases: BTreeMap<Key, Vec<Phase>>,
    /// What the drivers have done.
    pub targets: BTreeMap<Target, Desired>,
    /// The last command of each target.
    pub commands: BTreeMap<Target, Desired>,
    pub bridge_domains: BTreeMap<Name, Option<BridgeDomainSpec>>,
    pub published: usize,
    /// Devices and NADs that don't answer.
    pub silent: BTreeSet<Target>,
    pub pending: BTreeMap<Target, Desired>,
    pub rejections: BTreeMap<Target, Vec<Rejection>>,
    /// What carries less than is asked of the interfaces of pods, by their ids.
    pub paths: BTreeMap<String, PathMtu>,
    /// What drivers note.
    pub notes: BTreeMap<Target, Vec<Note>>,
    /// What is not there is waited for without end.
    pub patient: bool,
    /// The nodes have agents.
    pub agents: bool,
    /// The nodes, with their labels and whether they are ready.
    pub nodes: BTreeMap<Name, (Labels, bool)>,
    /// What the Node objects were told to say.
    pub marks: BTreeMap<Name, (BTreeSet<Name>, BTreeSet<Name>)>,
    pub pods: BTreeMap<Name, Pod>,
    /// The PodNetworks, by pod.
    pub views: BTreeMap<Name, PodView>,
    pub samples: Vec<Name>,
    /// What time it is, RFC 3339.
    pub now: String,
    /// The deadlines that were asked for, with the time that they count from.
    pub deadlines: Vec<(Key, Name)>,
    /// Statuses are not written, until they are.
    pub unrecorded: Option<Vec<(Key, u64)>>,
    /// Objects that are gone without that the engine has seen it, if that is not seen at once.
    pub unseen: Option<Vec<Key>>,
    /// Changes of several switches are transactions.
    pub switches: Option<Switches>,
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
            targets: BTreeMap::new(),
            commands: BTreeMap::new(),
            bridge_domains: BTreeMap::new(),
            published: 0,
            silent: BTreeSet::new(),
            pending: BTreeMap::new(),
            notes: BTreeMap::new(),
            paths: BTreeMap::new(),
            rejections: BTreeMap::new(),
            patient: false,
            agents,
            nodes: BTreeMap::new(),
            marks: BTreeMap::new(),
            pods: BTreeMap::new(),
            views: BTreeMap::new(),
            samples: Vec::new(),
            now: "2026-01-01T00:00:00Z".into(),
            deadlines: Vec::new(),
            unrecorded: None,
            unseen: None,
            switches: None,
            sequence: 0,
        }
    }

    fn drivers() -> BTreeSet<Name> {
        let agents = NODES.map(|node| Name::from(format!("node/{node}")));
        ["netconf", "nad"].map(Name::from).into_iter().chain(agents).collect()
    }

    /// As [`Self::leaf_spine`], with an agent on each node.
    pub fn with_agents() -> Self {
        let mut world = Self::new(false, true);
        world.fabric();
        world
    }

    pub fn node(&mut self, name: &str, pool: bool, ready: bool) {
        let labels = if pool { Labels::from([("pool".into(), "a".into())]) } else { Labels::new() };
        self.nodes.insert(name.into(), (labels.clone(), ready));
        self.engine.handle(Event::Node { name: name.into(), labels, ready });
    }

    pub fn node_gone(&mut self, name: &str) {
        self.nodes.remove(name);
        self.marks.remove(name);
        self.engine.handle(Event::NodeGone(name.into()));
    }

    pub fn pod(&mut self, pod: Pod) {
        self.pods.insert(pod.uid.clone(), pod.clone());
        self.engine.handle(Event::Pod(Box::new(pod)));
    }

    pub fn pod_gone(&mut self, uid: &str) {
        self.pods.remove(uid);
        self.engine.handle(Event::PodGone(uid.into()));
    }

    /// Two leaves with two nodes each, two spines, a gateway behind leaf2, a pool of all nodes, an ovs and a
    /// macvlan connection point.
    pub fn leaf_spine() -> Self {
        let mut world = Self::default();
        world.fabric();
        world
    }

    pub fn fabric(&mut self) {
        for (leaf, nodes) in [("leaf1", ["node1", "node2"]), ("leaf2", ["node3", "node4"])] {
            let mut ports: Vec<(&str, LeadsTo)> = Vec::new();
            for (port, name) in ["e1", "e2"].iter().zip(nodes) {
                self.node(name, true, true);
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
        self.apply(point("cp", Some("pool")));
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

    /// Settles, lets the drivers answer, and so on until nothing happens any more.
    pub fn settle(&mut self) {
        let mut steps = 0;
        while self.step() {
            steps += 1;
            assert!(steps < 10_000, "it never comes to rest");
        }
    }

    /// Settles, and lets one thing happen; false: nothing is left to happen.
    pub fn step(&mut self) -> bool {
        let effects = self.engine.settle(&self.now);
        for effect in effects {
            self.carry_out(effect);
        }
        let answer = self.pending.keys().find(|target| !self.silent.contains(target)).cloned();
        if let Some(target) = answer {
            self.answer(&target);
            return true;
        }
        self.engine.is_unsettled() || (self.switches.is_some() && self.fabric_step())
    }

    fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::AddFinalizer(key) => {
                let object = self.objects.get_mut(&key).unwrap();
                object.finalized = true;
                let object = object.clone();
                self.engine.handle(Event::Object(Box::new(object)));
            }
            Effect::RemoveFinalizer(key) => {
                self.objects.remove(&key);
                match &mut self.unseen {
                    Some(later) => later.push(key),
                    None => self.engine.handle(Event::ObjectGone(key)),
                }
            }
            Effect::Transition { key, previous, status } => {
                let phases = self.phases.entry(key.clone()).or_default();
                assert_eq!(previous, phases.last().copied(), "{key}");
                phases.push(status.phase.unwrap());
                self.record(key, *status);
            }
            Effect::Status { key, status } => {
                assert_ne!(self.statuses.get(&key), Some(&*status), "{key}: a status that says nothing new");
                self.record(key, *status);
            }
            Effect::Publish(Target::Fabric(name)) if self.switches.is_some() => self.fabric_changed(&name),
            Effect::Retry { network, attempt } => {
                if let Some(switches) = &mut self.switches {
                    switches.retries.push((network, attempt));
                }
            }
            Effect::Publish(target) => {
                let Some((_, desired)) = self.engine.desired(&target) else { return };
                if self.commands.get(&target) != Some(&desired) {
                    self.published += 1;
                    self.commands.insert(target.clone(), desired.clone());
                    self.pending.insert(target, desired);
                }
            }
            Effect::Await(key) => {
                if !self.patient {
                    self.engine.handle(Event::AwaitElapsed(key));
                }
            }
            Effect::Forget(target) => {
                if let (Target::Fabric(name), Some(_)) = (&target, &self.switches) {
                    self.fabric_forgotten(name);
                }
                self.targets.remove(&target);
                self.commands.remove(&target);
                self.pending.remove(&target);
            }
            Effect::BridgeDomain { service, spec } => {
                self.bridge_domains.insert(service, spec);
            }
            Effect::LabelNode { node, points, bridges } => {
                let said = (points, bridges);
                assert_ne!(self.marks.get(&node), Some(&said), "{node}: a mark that says nothing new");
                self.marks.insert(node, said);
            }
            Effect::PodNetwork { uid, view, .. } => match view {
                Some(view) => {
                    assert_ne!(self.views.get(&uid), Some(&*view), "{uid}: a view that says nothing new");
                    self.views.insert(uid, *view);
                }
                None => assert!(self.views.remove(&uid).is_some(), "{uid}: had no view"),
            },
            Effect::SampleDeployment { name, .. } => self.samples.push(name),
            Effect::Deadline { key, since } => self.deadlines.push((key, since)),
        }
    }

    /// The status is written, and that is told.
    fn record(&mut self, key: Key, status: Status) {
        check_conditions(&key, &status);
        let leased = status.leased;
        self.statuses.insert(key.clone(), status);
        match &mut self.unrecorded {
            Some(later) => later.push((key, leased)),
            None => self.engine.handle(Event::StatusWritten(key, leased)),
        }
    }

    /// The driver does what it was told and reports it.
    pub fn answer(&mut self, target: &Target) {
        let desired = self.pending.remove(target).unwrap();
        let rejected = self.rejections.get(target).cloned().unwrap_or_default();
        let applied = match &desired {
            Desired::Fabric(fabric) => {
                check_fabric(fabric);
                let refused = |vid, port: &str| rejected.iter().any(|r| r.item.covers(vid, port));
                let carried = |port: &FabricPort| {
                    let vlans = port.vlans.iter().filter(|vid| !refused(*vid, &port.name));
                    (port.name.clone(), vlans.collect())
                };
                let ports = fabric.ports.iter().map(carried).collect();
                Applied::Fabric {
                    vlans: fabric
                        .vlans
                        .iter()
                        .map(|vlan| vlan.vid)
                        .filter(|vid| !refused(*vid, ""))
                        .collect(),
                    closed: Some(closed(&ports)),
                    before: before(&fabric.ports),
                    ports,
                    carried: BTreeMap::new(),
                }
            }
            Desired::Nad(nad) => Applied::Nad { present: nad.attachment.is_some() },
            Desired::Node(node) => apply_node(node, &rejected, &self.paths),
        };
        self.report(target, desired.hash(), Outcome::Applied, Some(applied), rejected);
        self.targets.insert(target.clone(), desired);
    }

    pub fn unreachable(&mut self, target: &Target) {
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
    pub fn carriers(&self, vid: u16) -> Vec<String> {
        let vid = VlanId::new(vid).unwrap();
        let mut all = Vec::new();
        for (target, desired) in &self.targets {
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
        match self.targets.get(&Target::Nad(namespace.into(), name.into()))? {
            Desired::Nad(nad) => nad.attachment.clone(),
            Desired::Fabric(_) | Desired::Node(_) => None,
        }
    }

    /// A new engine that knows only what Kubernetes and NATS hold.
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
        self.marks.clear();
        self.views.clear();
        self.deadlines.clear();
        // In an order of no use to anyone.
        for object in objects.values().rev() {
            engine.handle(Event::Object(Box::new(object.clone())));
        }
        self.engine = engine;
        for (target, desired) in self.commands.clone() {
            self.engine.handle(Event::StoredCommand(target, Box::new(desired)));
        }
        for (target, desired) in self.targets.clone() {
            let unanswered = self.pending.insert(target.clone(), desired);
            self.answer(&target);
            self.pending.extend(unanswered.map(|desired| (target, desired)));
        }
    }
}

fn apply_node(node: &NodeDesired, rejected: &[Rejection], paths: &BTreeMap<String, PathMtu>) -> Applied {
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
                path: paths.get(&link.id).cloned(),
                addresses: link.addresses.clone(),
            };
            (link.id.clone(), found)
        });
        let primary = pod.primary.iter().filter(|primary| !refused(&primary.id)).map(|primary| {
            let (revision, name) = (primary.revision.clone(), primary.name.clone());
            let path = paths.get(&primary.id).cloned();
            let found = AppliedLink { revision, name, mtu: primary.mtu, path, ..AppliedLink::default() };
            (primary.id.clone(), found)
        });
        (uid.clone(), links.chain(primary).collect())
    });
    Applied::Node { networks: networks.collect(), pods: pods.collect() }
}

/// Ready is as the phase is, and only what is in error can be stalled.
fn check_conditions(key: &Key, status: &Status) {
    let kinds: Vec<&str> = status.conditions.iter().map(|condition| condition.kind).collect();
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

fn check_fabric(fabric: &FabricDesired) {
    let known: VlanSet = fabric.vlans.iter().map(|vlan| vlan.vid).collect();
    for port in &fabric.ports {
        assert!(port.vlans.is_subset(&known), "port {} carries VLANs that do not exist", port.name);
    }
    assert!(
        fabric.vlans.is_sorted_by_key(|vlan| vlan.vid) && fabric.ports.is_sorted_by(|a, b| a.name < b.name)
    );
}
