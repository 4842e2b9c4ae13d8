//! A simulated cluster for tests: the engine, its objects, and drivers that apply, reject or ignore commands.

#![allow(
    dead_code,
    unused_imports,
    clippy::wildcard_imports,
    reason = "each test file uses a part of it, and it names most of both crates"
)]

mod addresses;
mod builders;
mod drivers;
mod probing;
mod queries;
mod sessions;
mod split_fabric;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use eno_core::kinds::*;
use eno_core::{
    About, Config, Effect, Engine, Event, Key, Kind, Labels, Moment, Name, NoticeKind, Object, Participant,
    PendingCommand, Pod, PodView, Reconciled, Selector, Status, Target,
};
use eno_schemas::*;
use serde_json::json;

use crate::nats::Nats;
pub use addresses::*;
pub use builders::*;
pub use drivers::*;
pub use probing::*;
pub use queries::*;
pub use sessions::*;
pub use split_fabric::*;

/// A simulated cluster: the engine, the Kubernetes objects, NATS, and the drivers with the state that they applied. Its
/// time is virtual, and passes when nothing else can happen.
pub struct World {
    /// The engine under test.
    pub engine: Engine,
    /// The objects in the API server.
    pub objects: BTreeMap<Key, Object>,
    /// The last status of each object, as it is written.
    pub statuses: BTreeMap<Key, Status>,
    /// The objects whose status the present engine wrote. What it read lacks the interfaces of pods.
    written: BTreeSet<Key>,
    /// All phases of each object, in order.
    pub phases: BTreeMap<Key, Vec<Phase>>,
    /// The desired state that each driver applied last.
    pub applied: BTreeMap<Target, Desired>,
    /// The last command of each target.
    pub commands: BTreeMap<Target, Desired>,
    /// The L2BridgeDomains that the engine generated; `None`: deleted.
    pub bridge_domains: BTreeMap<Name, Option<BridgeDomainSpec>>,
    /// The pods that came to use any attachment, with the reason.
    pub unclear_uses: Vec<(Name, String)>,
    /// The other Kubernetes Events: the object, what happened and the details.
    pub notices: Vec<(About, NoticeKind, String)>,
    /// Number of commands published.
    pub published: usize,
    /// Targets whose drivers do not answer.
    pub silent: BTreeSet<Target>,
    /// Targets whose drivers work, and whose reports are late.
    pub muted: BTreeSet<Target>,
    /// The messages that NATS stores.
    pub nats: Nats,
    /// The drivers.
    pub drivers: Drivers,
    /// The rejections by the driver of each target, besides the VLANs that a switch refuses.
    pub rejections: BTreeMap<Target, Vec<Rejection>>,
    /// Path MTUs below the requested MTU, by the ids of pod interfaces.
    pub path_mtus: BTreeMap<String, PathMtu>,
    /// Where probes of agents are lost.
    pub probing: Probing,
    /// How BGP speakers of nodes answer.
    pub speakers: Speakers,
    /// The ports of switches in which the cables of nodes are, unless it is that of the FabricDevice.
    pub cables: BTreeMap<Name, (Name, String)>,
    /// By switch: its answer to the last lookup. It is asked once for each revision.
    pub answers: BTreeMap<Name, Lookup>,
    /// The drivers that answer lookups.
    pub drivers_with_lookups: BTreeSet<Name>,
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
    /// What the agents and plugins of nodes have on disk.
    pub files: BTreeMap<Name, NodeFiles>,
    /// The pods that wait for an address, each with the time since when.
    pub waiting_since: BTreeMap<String, Duration>,
    /// The longest time that a pod waited for its address.
    pub longest_wait: Duration,
    /// By Subnet and BGPSessionGroup: its status as far as the engine knows that it is written.
    pub durable: BTreeMap<Key, Status>,
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
    /// The switches can hold a change, so that changes of several switches are transactions.
    pub transactions: bool,
    /// The retries that the engine requested, with their attempts.
    pub retries: Vec<(Key, u32)>,
    /// The outcome of each transaction: `confirmed`, `refused`, `failed` or `late`.
    pub outcomes: Vec<&'static str>,
    /// Number of participants of each transaction, at its opening.
    pub participant_counts: Vec<usize>,
    /// The virtual time.
    elapsed: Duration,
    /// The time at which the present engine began to lead.
    leading_since: Duration,
    /// The present engine's term.
    term: u64,
}

impl Default for World {
    fn default() -> Self {
        Self::new(false, false)
    }
}

const NODES: [&str; 4] = ["node1", "node2", "node3", "node4"];

impl World {
    pub fn new(bridge_domains: bool, agents: bool) -> Self {
        let config = Config {
            cluster: "lab".into(),
            cluster_uid: None,
            bridge_domains,
            nodes: agents,
            verify: true,
            observes: false,
        };
        let mut engine = Engine::new(config, 1);
        engine.handle(Event::DriversWithLookups(BTreeSet::from(["netconf".into()])));
        engine.handle(Event::Drivers(live_drivers(std::iter::empty())));
        Self {
            engine,
            objects: BTreeMap::new(),
            statuses: BTreeMap::new(),
            written: BTreeSet::new(),
            phases: BTreeMap::new(),
            applied: BTreeMap::new(),
            commands: BTreeMap::new(),
            bridge_domains: BTreeMap::new(),
            unclear_uses: Vec::new(),
            notices: Vec::new(),
            published: 0,
            silent: BTreeSet::new(),
            muted: BTreeSet::new(),
            nats: Nats::default(),
            drivers: Drivers::default(),
            notes: BTreeMap::new(),
            path_mtus: BTreeMap::new(),
            probing: Probing::default(),
            speakers: Speakers::default(),
            cables: BTreeMap::new(),
            answers: BTreeMap::new(),
            drivers_with_lookups: BTreeSet::from(["netconf".into()]),
            rejections: BTreeMap::new(),
            awaits_never_elapse: false,
            agents,
            nodes: BTreeMap::new(),
            node_labels: BTreeMap::new(),
            files: BTreeMap::new(),
            waiting_since: BTreeMap::new(),
            longest_wait: Duration::ZERO,
            durable: BTreeMap::new(),
            pods: BTreeMap::new(),
            pod_networks: BTreeMap::new(),
            samples: Vec::new(),
            now: "2026-01-01T00:00:00Z".into(),
            deadlines: Vec::new(),
            delayed_status_writes: None,
            delayed_deletions: None,
            transactions: false,
            retries: Vec::new(),
            outcomes: Vec::new(),
            participant_counts: Vec::new(),
            elapsed: Duration::ZERO,
            leading_since: Duration::ZERO,
            term: 1,
        }
    }

    /// [`Self::leaf_spine`] with transactions.
    pub fn with_transactions() -> Self {
        let mut world = Self { transactions: true, ..Self::default() };
        world.engine.handle(Event::HoldCapableDrivers(BTreeSet::from(["netconf".into()])));
        world.apply_leaf_spine();
        world
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
        self.apply(object(Kind::PhysicalNetwork, "dc", json!({ "SegmentationIDs": "10-999" })));
        self.apply(node_pool("pool", "pool", &["a"]));
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

    /// Lets the engine reconcile, and then one driver answer, or time pass. False: the system is quiescent.
    pub fn step(&mut self) -> bool {
        self.step_with_commands().is_some()
    }

    /// The same. Returns the commands that the engine issued; `None`: the system is quiescent.
    pub fn step_with_commands(&mut self) -> Option<Vec<(Participant, PendingCommand)>> {
        let reconciled = self.reconcile();
        // Nothing waits for a time that is far away.
        let next = reconciled.next.map(|next| self.leading_since + next);
        let next = next.filter(|next| *next <= self.elapsed + Duration::from_mins(1));
        let is_idle = reconciled.is_idle();
        self.assert_probed_paths_are_confirmed(&reconciled.commands);
        let commands = reconciled.commands.clone();
        self.carry_out(reconciled);
        (!is_idle || self.run_one_driver(next)).then_some(commands)
    }

    /// Lets one driver answer, or else time pass until `next` at most. False: neither.
    fn run_one_driver(&mut self, next: Option<Duration>) -> bool {
        if let Some(target) = self.next_target() {
            self.run_driver(&target);
            return true;
        }
        let Some(next) = next.into_iter().chain(self.next_rollback()).min() else { return false };
        self.elapsed = self.elapsed.max(next);
        self.roll_back_overdue();
        true
    }

    /// Lets the engine work out what follows from all events.
    pub fn reconcile(&mut self) -> Reconciled {
        let elapsed = self.elapsed.saturating_sub(self.leading_since);
        let deadline = "2026-01-01T00:00:30Z".into();
        self.engine.reconcile(&Moment { at: self.now.clone(), elapsed, deadline })
    }

    /// Carries out what the engine decided.
    fn carry_out(&mut self, reconciled: Reconciled) {
        let Reconciled { effects, commands, removed, decided, .. } = reconciled;
        self.outcomes.extend(decided.iter().map(|decided| decided.outcome));
        let opened = commands.iter().filter_map(|(_, pending)| pending.transaction.as_ref());
        let opened: BTreeMap<_, _> = opened
            .filter(|transaction| transaction.decision.is_none())
            .map(|transaction| (transaction.id.clone(), transaction.participants.len()))
            .collect();
        self.participant_counts.extend(opened.into_values());
        for effect in effects {
            self.apply_effect(effect);
        }
        for (target, driver) in removed {
            self.purge(target, driver);
        }
        for (participant, pending) in commands {
            self.publish(participant, pending);
        }
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
                let written = Status { leased: 0, ..(*status).clone() };
                let is_same = self.statuses.get(&key) == Some(&written) && self.written.contains(&key);
                assert!(!is_same || status.leased > 0, "{key}: a status write without a change");
                self.write_status(key, *status);
            }
            Effect::Retry { network, attempt } => self.retries.push((network, attempt)),
            Effect::Await(key) => {
                if !self.awaits_never_elapse {
                    self.engine.handle(Event::AwaitElapsed(key));
                }
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
            Effect::Notice {
                about: About::Pod { name, .. },
                kind: NoticeKind::NetworksUnclear,
                messages,
            } => {
                self.unclear_uses.push((name, messages.join("; ")));
            }
            Effect::Notice { about, kind, messages } => self.notices.push((about, kind, messages.join("; "))),
            Effect::Deadline { key, since } => self.deadlines.push((key, since)),
        }
    }

    /// Writes the status and confirms the write to the engine.
    fn write_status(&mut self, key: Key, status: Status) {
        assert_conditions_consistent(&key, &status);
        let leased = status.leased;
        self.written.insert(key.clone());
        self.statuses.insert(key.clone(), Status { leased: 0, ..status });
        match &mut self.delayed_status_writes {
            Some(later) => later.push((key, leased)),
            None => self.confirm_status(key, leased),
        }
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
            Desired::Fabric(_) | Desired::Node(_) | Desired::Speaker(_) => None,
        }
    }

    /// Replaces the engine with a new one that knows only the contents of Kubernetes and NATS.
    pub fn restart(&mut self) {
        self.term += 1;
        self.leading_since = self.elapsed;
        let mut engine = Engine::new(self.config(false), self.term);
        if self.transactions {
            engine.handle(Event::HoldCapableDrivers(BTreeSet::from(["netconf".into()])));
        }
        self.watched().into_iter().chain(self.nats.events()).for_each(|event| engine.handle(event));
        self.written.clear();
        self.node_labels.clear();
        self.pod_networks.clear();
        self.deadlines.clear();
        self.retries.clear();
        self.engine = engine;
    }

    /// Time passes.
    pub fn pass(&mut self, time: Duration) {
        self.elapsed += time;
        self.settle();
    }

    /// The virtual time.
    pub fn elapsed(&self) -> Duration {
        self.elapsed
    }

    /// How a later engine is configured.
    pub fn config(&self, observes: bool) -> Config {
        let nodes = self.agents;
        Config {
            cluster: "lab".into(),
            cluster_uid: None,
            bridge_domains: false,
            nodes,
            verify: true,
            observes,
        }
    }

    /// The contents of Kubernetes as a new engine reads them, and the drivers.
    pub fn watched(&self) -> Vec<Event> {
        let nodes = self.nodes.clone().into_iter();
        let nodes = nodes.map(|(name, (labels, ready))| Event::Node { name, labels, ready });
        let pods = self.pods.values().map(|pod| Event::Pod(Box::new(pod.clone())));
        // The reverse order, because the order of events must not matter.
        let objects = self.objects.iter().rev().map(|(key, object)| {
            let status = self.statuses.get(key).map(as_read);
            Event::Object(Box::new(Object { status, ..object.clone() }))
        });
        let lookups = Event::DriversWithLookups(self.drivers_with_lookups.clone());
        let drivers =
            [lookups, Event::Drivers(live_drivers(self.nodes.keys().chain(self.files.keys())))].into_iter();
        drivers.chain(nodes).chain(pods).chain(objects).collect()
    }
}

/// The drivers and the agents of these nodes.
fn live_drivers<'a>(nodes: impl Iterator<Item = &'a Name>) -> BTreeSet<Name> {
    let agents = NODES.into_iter().chain(nodes.map(|node| &**node));
    let agents = agents.map(|node| Name::from(format!("node/{node}")));
    ["netconf", "nad", "bgp-speaker"].map(Name::from).into_iter().chain(agents).collect()
}

/// What a new engine reads of a status: of pods only what was written before a node got it.
fn as_read(status: &Status) -> Status {
    let mut status = status.clone();
    status.pods.retain(|pod| !pod.leases.is_empty());
    for pod in &mut status.pods {
        (pod.links, pod.problem) = (Vec::new(), None);
    }
    status
}

fn applied_by_node(
    node: &NodeDesired,
    rejected: &[Rejection],
    path_mtus: &BTreeMap<String, PathMtu>,
    probes: Vec<ProbeResults>,
    addresses: BTreeMap<String, AppliedAddresses>,
) -> Applied {
    let networks = node.networks.iter().filter_map(|(name, network)| {
        if rejected.iter().any(|r| r.item == Item::TARGET || r.item == Item::port(name.as_str())) {
            return None;
        }
        let AppliedNetwork { vlans, mtu } = network.carried_out();
        let vlans = vlans.iter().filter(|vid| !rejected.iter().any(|r| r.item.covers(*vid, name))).collect();
        Some((name.clone(), AppliedNetwork { vlans, mtu }))
    });
    let pods = node.pods.iter().map(|(uid, pod)| {
        let refused = |id: &str| rejected.iter().any(|r| r.item.covers_link(uid, id));
        let links = pod.links.iter().map(|link| (&link.id, link.carried_out("77")));
        let all = links.chain(pod.primary.iter().map(|primary| (&primary.id, primary.carried_out())));
        let found = all
            .filter(|(id, _)| !refused(id))
            .map(|(id, link)| (id.clone(), AppliedLink { path: path_mtus.get(id).cloned(), ..link }));
        (uid.clone(), found.collect())
    });
    Applied::Node { networks: networks.collect(), pods: pods.collect(), probes, addresses }
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
        fabric.vlans.iter().is_sorted_by_key(|vlan| vlan.vid)
            && fabric.ports.is_sorted_by(|a, b| a.name < b.name)
    );
}
