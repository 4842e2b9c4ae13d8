//! The cluster as it is, and what drivers report, in a core that is asked for paths. Nothing is written.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub use eno_core::kinds::LeadsTo;
use eno_core::kinds::Spec;
use eno_core::{
    Answers, ConditionType, Config, Event, Key, Name, Object, Observer, Reported, Target, instance_of,
};
pub use eno_core::{Hop, HopState, Part, PodId, Tier, Wait};
use eno_schemas::{
    Desired, DriverHello, FabricDesired, Failure, Generation, NadDesired, NodeDesired, Outcome, Report,
    RoutedInterface, VlanId,
};
use kube::api::DynamicObject;

use super::forecast::ClusterState;
use crate::commands::drivers::{self, NODE_DRIVER};
use crate::watch::ingest;

/// Identifier of the cluster in a core that only answers. Only drivers would see it, and none gets a command.
pub(super) const CLUSTER: &str = "plan";
/// Constant time; no evaluation depends on it.
pub(super) const NOW: &str = "1970-01-01T00:00:00Z";
const NAD_DRIVER: &str = "nad";

/// A core with the objects of a cluster and the last reports of drivers. The states of hops follow as in the engine.
#[derive(Debug)]
pub struct Observation(Observer<Reported>);

/// The current desired state of all targets.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DesiredState {
    /// By FabricDevice: the driver, and the desired VLANs and ports with the objects that request them.
    pub switches: BTreeMap<String, (String, FabricDesired)>,
    /// The desired NetworkAttachmentDefinitions, by `<namespace>/<name>`.
    pub network_attachment_definitions: BTreeMap<String, NadDesired>,
    /// The names of the objects of BGP speakers.
    pub speaker_peers: BTreeSet<String>,
    /// The nodes with a desired state, by name.
    pub nodes: BTreeMap<String, NodeDesired>,
}

impl Observation {
    /// The objects of a cluster, without reports. Of a switch, its status tells that it does not answer.
    pub fn new(cluster: &ClusterState) -> Self {
        let mut observer = feed(cluster, Reported::default());
        let silent: Vec<(Target, Report)> = observer.objects().values().filter_map(silent_switch).collect();
        for (target, report) in silent {
            observer.report(&target, report.into());
        }
        observer.run();
        Self(observer)
    }

    /// Takes in the last reports that it does not know yet, each with the driver and the target of its subject. What a
    /// report says of itself doesn't count: NATS lets a driver write on its own subjects only.
    pub fn catch_up<'a>(&mut self, reports: impl IntoIterator<Item = (&'a str, &'a str, &'a Arc<Report>)>) {
        for (driver, target, report) in reports {
            let target = drivers::target(driver, target);
            if report.driver != driver {
                continue;
            }
            let known = self.0.answers().get(&target);
            if !known.is_some_and(|known| Arc::ptr_eq(known, report) || known == report) {
                self.0.report(&target, Arc::clone(report));
            }
        }
        self.0.run();
    }

    /// Takes in which processes of drivers are alive. Before, all count as alive.
    pub fn set_drivers<'a>(&mut self, alive: impl IntoIterator<Item = &'a DriverHello>) {
        let names = alive.into_iter().flat_map(|hello| {
            let instance = hello.target.as_ref().map(|target| instance_of(&hello.driver, target));
            [Some(Name::from(hello.driver.as_str())), instance]
        });
        self.0.handle(Event::Drivers(names.flatten().collect()));
        self.0.run();
    }

    /// The path of an object, as the engine evaluates it.
    pub fn path(&self, key: &Key) -> Vec<Hop<'_>> {
        self.0.engine().path(key)
    }

    /// The hops by which the services of an attachment are led into VRFs.
    pub fn ways_into_vrfs(&self, attachment: &Key) -> Vec<Hop<'_>> {
        self.0.engine().ways_into_vrfs(attachment)
    }

    /// The ports of a switch that carry VLANs, or only `vlan`, each with the worst state.
    pub fn ports(&self, device: &str, vlan: Option<VlanId>) -> Vec<Hop<'_>> {
        self.0.engine().ports(&device.into(), vlan)
    }

    /// The driver of a switch; empty: there is no such switch.
    pub fn driver_of(&self, device: &str) -> &str {
        self.0.observed().desired.get(&Target::Fabric(device.into())).map_or("", |command| &command.driver)
    }

    /// The interface by which a device is to lead a VLAN into a VRF.
    pub fn routed(&self, device: &str, vlan: VlanId) -> Option<&RoutedInterface> {
        let command = self.0.observed().desired.get(&Target::Fabric(device.into()))?;
        let Desired::Fabric(fabric) = &*command.desired else { return None };
        fabric.vlans.get(vlan)?.routed.as_deref()
    }

    /// The desired state of all targets.
    pub fn desired(&self) -> DesiredState {
        let mut state = DesiredState::default();
        for (target, command) in &self.0.observed().desired {
            match &*command.desired {
                Desired::Fabric(fabric) => {
                    state.switches.insert(target.to_string(), (command.driver.to_string(), fabric.clone()));
                }
                Desired::Nad(nad) if nad.attachment.is_some() => {
                    state.network_attachment_definitions.insert(target.to_string(), nad.clone());
                }
                Desired::Nad(_) => {}
                Desired::Speaker(speaker) => {
                    let sessions = speaker.sessions.iter();
                    state.speaker_peers.extend(sessions.flat_map(|one| one.peers.keys().cloned()));
                }
                Desired::Node(node) => drop(state.nodes.insert(target.to_string(), node.clone())),
            }
        }
        state
    }
}

/// The report that a switch does not answer, as its status tells.
fn silent_switch(device: &Object) -> Option<(Target, Report)> {
    let Ok(Spec::Device(spec)) = &device.spec else { return None };
    let mut conditions = device.status.as_ref()?.conditions.iter();
    let silent = conditions.find(|one| one.kind == ConditionType::Reachable && !one.holds)?;
    let failure = Failure { reason: silent.message.clone().into(), retryable: true, unreachable: true };
    let generation = Generation { term: 1, sequence: 0, hash: String::new() };
    let report = Report {
        outcome: Outcome::Failed(failure),
        ..Report::new((&*spec.driver, &*device.key.name), generation, (CLUSTER, NOW))
    };
    Some((Target::Fabric(device.key.name.clone()), report))
}

/// A core with the objects of a cluster. All drivers are alive.
pub(super) fn feed<A: Answers>(cluster: &ClusterState, answers: A) -> Observer<A> {
    let agents = cluster.has_agents();
    let observes = !A::CARRIED_OUT;
    let config = Config {
        cluster: CLUSTER.into(),
        cluster_uid: None,
        bridge_domains: false,
        nodes: agents,
        verify: true,
        observes,
    };
    let mut observer = Observer::new(config, answers);
    let objects: Vec<Object> = cluster.objects().map(|(key, source)| object(key, source, cluster)).collect();
    let drivers = objects.iter().filter_map(|object| match &object.spec {
        Ok(Spec::Device(spec)) => Some(spec.driver.clone()),
        _ => None,
    });
    let nodes = cluster.node_names().map(|node| instance_of(NODE_DRIVER, node));
    let mut drivers: BTreeSet<Name> = drivers.chain(nodes.filter(|_| agents)).collect();
    drivers.insert(NAD_DRIVER.into());
    observer.handle(Event::Drivers(drivers));
    let objects = objects.into_iter().map(|object| Event::Object(Box::new(object)));
    cluster.other_events().into_iter().chain(objects).for_each(|event| observer.handle(event));
    observer
}

/// An object in the core's form. Without the right to read namespaces, every namespace counts as allowed.
pub(super) fn object(key: &Key, source: &DynamicObject, cluster: &ClusterState) -> Object {
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
