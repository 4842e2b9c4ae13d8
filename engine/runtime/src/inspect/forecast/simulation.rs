//! The core with simulated drivers that carry out every command at once.

use std::collections::BTreeSet;

use eno_core::kinds::Spec;
use eno_core::{
    Answers, ConditionType, Event, Key, Kind, Object, Observed, Observer, Participant, Status, Target,
};
use eno_schemas::{Applied, AppliedLink, Desired, Generation, Phase, Report};
use kube::api::DynamicObject;

use super::ClusterState;
use crate::inspect::observation::{CLUSTER, NOW, feed, object};

/// A run of the core.
pub(super) struct Simulation(Observer<Simulated>);

/// Drivers that carry out every command at once.
struct Simulated {
    /// Switches that are unreachable at present: they confirm nothing.
    unreachable: BTreeSet<Target>,
}

/// A dependency of an object that could not be read.
pub(super) struct UnreadDependency {
    /// The object references it; otherwise only the nodes of its path are unknown.
    pub is_direct: bool,
    /// Text for the user.
    pub message: String,
}

impl Simulation {
    /// Runs the core up to the current state of the cluster.
    pub fn new(cluster: &ClusterState) -> Self {
        let mut unreachable = BTreeSet::new();
        for (key, source) in cluster.objects().filter(|(key, _)| key.kind == Kind::FabricDevice) {
            let status = object(key, source, cluster).status;
            let fails = |status: &Status| status.phase == Some(Phase::Error) || reports_unreachable(status);
            if status.is_some_and(|status| fails(&status)) {
                unreachable.insert(Target::Fabric(key.name.clone()));
            }
        }
        Self(feed(cluster, Simulated { unreachable }))
    }

    /// Applies an object.
    pub fn apply(&mut self, key: &Key, source: &DynamicObject, cluster: &ClusterState) {
        let mut object = object(key, source, cluster);
        if let Some(there) = self.0.objects().get(key) {
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
        self.0.handle(Event::Object(Box::new(object)));
    }

    /// Deletes an object.
    pub fn delete(&mut self, key: &Key) {
        let Some(object) = self.0.objects().get(key) else { return };
        self.0.handle(if object.finalized {
            Event::Object(Box::new(Object { deleting: true, ..object.clone() }))
        } else {
            Event::ObjectGone(key.clone())
        });
    }

    /// An object that this object references, directly or indirectly, and that could not be read.
    pub fn unread_dependency(&self, key: &Key, cluster: &ClusterState) -> Option<UnreadDependency> {
        // References between kinds have no cycles.
        let mut next = vec![key.clone()];
        while let Some(key) = next.pop() {
            match self.0.objects().get(&key) {
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
            Kind::L2Service => self.0.objects().values().any(attaches),
            _ => false,
        }
    }

    /// Carries out everything, and returns the resulting state.
    pub fn run(&mut self) -> Observed {
        self.0.run();
        self.0.observed().clone()
    }

    /// Switches that confirm nothing at present.
    pub fn unreachable(&self) -> &BTreeSet<Target> {
        &self.0.answers().unreachable
    }
}

impl Answers for Simulated {
    const CARRIED_OUT: bool = true;

    fn answer(&self, participant: &Participant) -> Option<Report> {
        let Participant { target, driver, desired, hash, .. } = participant;
        let applied = match &**desired {
            _ if self.unreachable.contains(target) => return None,
            Desired::Fabric(fabric) => fabric.carried_out(),
            Desired::Nad(nad) => Applied::Nad { present: nad.attachment.is_some() },
            Desired::Speaker(speaker) => Applied::Speaker { present: speaker.sessions.is_some() },
            Desired::Node(node) => node.carried_out(|_, link| AppliedLink {
                // The PID of the container is not known.
                host_name: None,
                mtu: link.mtu.unwrap_or_default(),
                ..link.carried_out("<PID>")
            }),
        };
        let generation = Generation { term: 1, sequence: 0, hash: hash.clone() };
        Some(Report {
            applied: Some(applied),
            ..Report::new((&**driver, target.to_string()), generation, (CLUSTER, NOW))
        })
    }
}

fn reports_unreachable(status: &Status) -> bool {
    status.conditions.iter().any(|condition| condition.kind == ConditionType::Reachable && !condition.holds)
}
