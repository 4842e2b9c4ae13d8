//! The core with simulated drivers that carry out every command at once.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use eno_core::spec::Spec;
use eno_core::{
    ConditionType, Config, Effect, Engine, Event, Key, Kind, Moment, Name, Object, Participant,
    PendingCommand, PodView, Status, StreamEvent, Target,
};
use eno_schemas::{
    Applied, AppliedLink, AppliedNetwork, Desired, HostNetwork, LinkName, NodeDesired, Outcome, Phase,
    Report, VlanSet,
};
use kube::api::DynamicObject;

use super::ClusterState;
use crate::watch::ingest;

/// Identifier of the cluster in the simulation. Only drivers would see it, and none gets a command.
const CLUSTER: &str = "plan";
/// Constant time; no evaluation depends on it.
const NOW: &str = "1970-01-01T00:00:00Z";

/// A run of the core.
pub(super) struct Simulation {
    /// The core.
    engine: Engine,
    /// All objects, as the core knows them.
    objects: BTreeMap<Key, Object>,
    /// State after the effects so far.
    current: Snapshot,
    /// Switches that are unreachable at present: they confirm nothing.
    unreachable: BTreeSet<Target>,
    /// The virtual time. It passes when nothing else can happen.
    elapsed: Duration,
}

/// A dependency of an object that could not be read.
pub(super) struct UnreadDependency {
    /// The object references it; otherwise only the nodes of its path are unknown.
    pub is_direct: bool,
    /// Text for the user.
    pub message: String,
}

/// The state when no effects are left.
#[derive(Clone, Default)]
pub(super) struct Snapshot {
    pub statuses: BTreeMap<Key, Status>,
    pub desired: BTreeMap<Target, (Name, Desired)>,
    /// By uid of the pod: namespace, name and interfaces.
    pub pods: BTreeMap<Name, (Name, Name, PodView)>,
    /// Switches that confirm nothing at present.
    pub unreachable: BTreeSet<Target>,
}

impl Simulation {
    /// Runs the core up to the current state of the cluster.
    pub fn new(cluster: &ClusterState) -> Self {
        let agents = cluster.has_agents();
        let config =
            Config { cluster: CLUSTER.into(), cluster_uid: None, bridge_domains: false, nodes: agents };
        let mut engine = Engine::new(config, 1);
        let mut drivers: BTreeSet<Name> = BTreeSet::from(["nad".into()]);
        let nodes = cluster.node_names().map(|node| Name::from(format!("node/{node}")));
        drivers.extend(nodes.filter(|_| agents));
        let mut objects = BTreeMap::new();
        let mut unreachable = BTreeSet::new();
        for (key, source) in cluster.objects() {
            let object = object(key, source, cluster);
            if key.kind == Kind::FabricDevice {
                let driver = source.data.pointer("/spec/Driver").and_then(serde_json::Value::as_str);
                drivers.insert(driver.unwrap_or("netconf").into());
                let answers = object.status.as_ref().is_none_or(|status| {
                    !matches!(status.phase, Some(Phase::Error)) && !reports_unreachable(status)
                });
                if !answers {
                    unreachable.insert(Target::Fabric(key.name.clone()));
                }
            }
            objects.insert(key.clone(), object);
        }
        engine.handle(Event::Drivers(drivers));
        for event in cluster.other_events() {
            engine.handle(event);
        }
        for object in objects.values() {
            engine.handle(Event::Object(Box::new(object.clone())));
        }
        let statuses = objects.iter().filter_map(|(key, object)| Some((key.clone(), object.status.clone()?)));
        let current = Snapshot {
            statuses: statuses.collect(),
            unreachable: unreachable.clone(),
            ..Snapshot::default()
        };
        Self { engine, objects, current, unreachable, elapsed: Duration::ZERO }
    }

    /// Applies an object.
    pub fn apply(&mut self, key: &Key, source: &DynamicObject, cluster: &ClusterState) {
        let mut object = object(key, source, cluster);
        if let Some(there) = self.objects.get(key) {
            // Applying keeps the finalizer, which another field manager owns.
            object.finalized = there.finalized;
        }
        if object.uid.is_empty() {
            object.uid = format!("new-{key}").into();
        }
        if object.created == 0 {
            // New objects are younger than all others.
            object.created = i64::MAX;
        }
        self.objects.insert(key.clone(), object.clone());
        self.engine.handle(Event::Object(Box::new(object)));
    }

    /// Deletes an object.
    pub fn delete(&mut self, key: &Key) {
        let Some(object) = self.objects.get_mut(key) else { return };
        if !object.finalized {
            self.objects.remove(key);
            return self.engine.handle(Event::ObjectGone(key.clone()));
        }
        object.deleting = true;
        let object = object.clone();
        self.engine.handle(Event::Object(Box::new(object)));
    }

    /// An object that this object references, directly or indirectly, and that could not be read.
    pub fn unread_dependency(&self, key: &Key, cluster: &ClusterState) -> Option<UnreadDependency> {
        // References between kinds have no cycles.
        let mut next = vec![key.clone()];
        while let Some(key) = next.pop() {
            match self.objects.get(&key) {
                Some(object) => next.extend(object.spec.iter().flat_map(Spec::references)),
                None if cluster.may_miss(&key) => {
                    return Some(UnreadDependency {
                        is_direct: true,
                        message: format!("{key} could not be read"),
                    });
                }
                None => {}
            }
        }
        if cluster.knows_nodes() || !self.reaches_nodes(key) {
            return None;
        }
        Some(UnreadDependency { is_direct: false, message: "the nodes of its path could not be read".into() })
    }

    /// True for objects that are realised on the nodes of a ConnectionPoint.
    fn reaches_nodes(&self, key: &Key) -> bool {
        let attaches = |object: &Object| {
            let spec = object.spec.as_ref().ok().and_then(Spec::attachment);
            spec.is_some_and(|spec| spec.services.contains(&key.name))
        };
        match key.kind {
            Kind::L2ServiceAttachment | Kind::L2BridgeDomain => true,
            Kind::L2Service => self.objects.values().any(attaches),
            _ => false,
        }
    }

    /// Carries out all effects, and returns the resulting state.
    pub fn snapshot(&mut self) -> Snapshot {
        loop {
            let moment = Moment { at: NOW.into(), elapsed: self.elapsed, deadline: NOW.into() };
            let reconciled = self.engine.reconcile(&moment);
            if reconciled.is_idle() {
                let Some(next) = reconciled.next else { return self.current.clone() };
                self.elapsed = self.elapsed.max(next);
            }
            for effect in reconciled.effects {
                self.apply_effect(effect);
            }
            for (target, driver) in reconciled.removed {
                self.current.desired.remove(&target);
                self.engine.handle(Event::Stream(StreamEvent::TargetRemoved(target, driver)));
            }
            for (participant, command) in reconciled.commands {
                self.confirm(participant, command);
            }
        }
    }

    fn apply_effect(&mut self, effect: Effect) {
        match effect {
            Effect::AddFinalizer(key) => {
                let Some(object) = self.objects.get_mut(&key) else { return };
                object.finalized = true;
                let object = object.clone();
                self.engine.handle(Event::Object(Box::new(object)));
            }
            Effect::RemoveFinalizer(key) => {
                self.objects.remove(&key);
                self.engine.handle(Event::ObjectGone(key));
            }
            Effect::Transition { key, status, .. } | Effect::Status { key, status } => {
                let leased = status.leased;
                self.current.statuses.insert(key.clone(), *status);
                self.engine.handle(Event::StatusWritten(key, leased));
            }
            Effect::Await(key) => self.engine.handle(Event::AwaitElapsed(key)),
            Effect::PodNetwork { namespace, name, uid, view } => match view {
                Some(view) => drop(self.current.pods.insert(uid, (namespace, name, *view))),
                None => drop(self.current.pods.remove(&uid)),
            },
            // Other effects only write to Kubernetes.
            _ => {}
        }
    }

    /// Simulates the driver: it carries the command out, unless its switch is unreachable.
    fn confirm(&mut self, participant: Participant, command: PendingCommand) {
        let Participant { target, driver, desired, .. } = participant;
        let generation = command.generation;
        let stored = StreamEvent::Published(target.clone(), generation.clone(), generation.sequence);
        self.engine.handle(Event::Stream(stored));
        let applied = match &desired {
            Desired::Fabric(fabric) => Applied::Fabric {
                vlans: fabric.vlans.iter().map(|vlan| vlan.vid).collect(),
                ports: fabric.ports.iter().map(|port| (port.name.clone(), port.vlans.clone())).collect(),
                carried: BTreeMap::new(),
                closed: None,
                before: BTreeMap::new(),
            },
            Desired::Nad(nad) => Applied::Nad { present: nad.attachment.is_some() },
            Desired::Node(node) => on_node(node),
        };
        self.current.desired.insert(target.clone(), (driver.clone(), desired));
        if self.unreachable.contains(&target) {
            return;
        }
        let report = Report {
            driver: driver.to_string(),
            target: target.to_string(),
            instance: CLUSTER.into(),
            generation,
            at: NOW.into(),
            outcome: Outcome::Applied,
            applied: Some(applied),
            rejected: Vec::new(),
            notes: Vec::new(),
            device: None,
            change: None,
        };
        self.engine.handle(Event::Report(target, Box::new(report)));
    }
}

/// An object in the core's form. Without the right to read namespaces, every namespace counts as allowed.
fn object(key: &Key, source: &DynamicObject, cluster: &ClusterState) -> Object {
    let mut object = ingest::object(key.clone(), source);
    if !cluster.knows_namespaces() {
        match &mut object.spec {
            Ok(Spec::PhysicalNetwork(spec)) => spec.namespaces = None,
            Ok(Spec::Service(spec)) => spec.namespaces = None,
            _ => {}
        }
    }
    object
}

fn reports_unreachable(status: &Status) -> bool {
    status.conditions.iter().any(|condition| condition.kind == ConditionType::Reachable && !condition.holds)
}

/// The report of an agent that carried out everything.
fn on_node(node: &NodeDesired) -> Applied {
    let networks = node.networks.iter().map(|(name, network)| {
        let (vlans, mtu) = match network {
            HostNetwork::Ovs { vlans, uplink, .. } => (vlans, uplink.as_ref().and_then(|uplink| uplink.mtu)),
            HostNetwork::Bridge { vlans, mtu, .. } | HostNetwork::Master { vlans, mtu, .. } => (vlans, *mtu),
            HostNetwork::PodBridge { mtu, .. } => (&VlanSet::EMPTY, *mtu),
        };
        (name.clone(), AppliedNetwork { vlans: vlans.clone(), mtu })
    });
    let pods = node.pods.iter().map(|(uid, pod)| {
        let links = pod.links.iter().map(|link| {
            // The PID of the container is not known.
            let name = match &link.name {
                LinkName::Fixed(name) => name.clone(),
                LinkName::WithPid(name) => format!("{name}<PID>"),
            };
            let found = AppliedLink {
                revision: link.revision.clone(),
                name,
                mtu: link.mtu.unwrap_or_default(),
                path: None,
                mac: link.mac.clone(),
                addresses: link.addresses.clone(),
                host_name: None,
            };
            (link.id.clone(), found)
        });
        let primary = pod.primary.iter().map(|primary| {
            let (revision, name) = (primary.revision.clone(), primary.name.clone());
            (primary.id.clone(), AppliedLink { revision, name, mtu: primary.mtu, ..AppliedLink::default() })
        });
        (uid.clone(), links.chain(primary).collect())
    });
    Applied::Node { networks: networks.collect(), pods: pods.collect() }
}
