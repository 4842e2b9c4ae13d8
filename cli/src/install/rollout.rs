//! How far the rollout of a part of the operator is. Pure judgements of objects that were read before.

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, StatefulSet};
use kube::ResourceExt as _;

/// A workload and how far it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workload {
    /// Such as `engine`, for people.
    pub part: String,
    /// The label `app.kubernetes.io/name` of its pods.
    pub name: String,
    /// Pods that there should be.
    pub desired: i32,
    /// Pods that are ready and have the current template.
    pub ready: i32,
    /// Whether the controller has seen the current template, and no pod of another one is left.
    pub is_current: bool,
}

impl Workload {
    /// Whether all pods are ready.
    pub fn is_ready(&self) -> bool {
        self.is_current && self.ready >= self.desired
    }
}

impl From<&Deployment> for Workload {
    fn from(deployment: &Deployment) -> Self {
        let name = deployment.name_any();
        let desired = deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
        let status = deployment.status.clone().unwrap_or_default();
        let updated = status.updated_replicas.unwrap_or(0);
        let seen = status.observed_generation >= deployment.metadata.generation;
        Self {
            part: part(&name),
            desired,
            ready: if seen { updated.min(status.available_replicas.unwrap_or(0)) } else { 0 },
            is_current: seen && status.replicas.unwrap_or(0) == updated && updated >= desired,
            name,
        }
    }
}

impl From<&StatefulSet> for Workload {
    fn from(set: &StatefulSet) -> Self {
        let name = set.name_any();
        let desired = set.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
        let status = set.status.clone().unwrap_or_default();
        let seen = status.observed_generation >= set.metadata.generation;
        let is_current = seen && status.current_revision == status.update_revision;
        Self {
            part: part(&name),
            name,
            desired,
            ready: if is_current { status.ready_replicas.unwrap_or(0) } else { 0 },
            is_current,
        }
    }
}

impl From<&DaemonSet> for Workload {
    fn from(set: &DaemonSet) -> Self {
        let name = set.name_any();
        let status = set.status.clone().unwrap_or_default();
        let seen = status.observed_generation >= set.metadata.generation;
        let desired = status.desired_number_scheduled;
        let updated = status.updated_number_scheduled.unwrap_or(0);
        Self {
            part: "agents".to_owned(),
            name,
            desired,
            ready: if seen { status.number_ready.min(updated) } else { 0 },
            is_current: seen && updated >= desired,
        }
    }
}

fn part(name: &str) -> String {
    match name.strip_prefix("eno-").unwrap_or(name) {
        "nats" => "NATS".to_owned(),
        other => other
            .strip_prefix("driver-")
            .map_or_else(|| other.to_owned(), |driver| format!("driver {driver}")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn workloads_are_ready_with_current_pods_only() {
        let deployment = |generation: i64, replicas: i32, updated: i32, available: i32| -> Workload {
            let value = json!({"metadata": {"name": "eno-driver-nad", "generation": 2}, "spec": {"replicas": 2, "selector": {}, "template": {}},
                "status": {"observedGeneration": generation, "replicas": replicas, "updatedReplicas": updated, "availableReplicas": available}});
            (&serde_json::from_value::<Deployment>(value).expect("a Deployment")).into()
        };
        assert_eq!(deployment(2, 2, 2, 2).part, "driver nad");
        for (generation, replicas, updated, available, expected) in [
            (2, 2, 2, 2, true),
            (1, 2, 2, 2, false),
            (2, 3, 2, 2, false),
            (2, 2, 1, 2, false),
            (2, 2, 2, 1, false),
        ] {
            let is_ready = deployment(generation, replicas, updated, available).is_ready();
            assert_eq!(is_ready, expected, "{generation} {replicas} {updated} {available}");
        }
        let set = |current: &str, ready: i32| -> Workload {
            let value = json!({"metadata": {"name": "eno-nats", "generation": 1}, "spec": {"replicas": 1, "selector": {}, "template": {}},
                "status": {"observedGeneration": 1, "replicas": 1, "readyReplicas": ready, "currentRevision": current, "updateRevision": "b"}});
            (&serde_json::from_value::<StatefulSet>(value).expect("a StatefulSet")).into()
        };
        assert!(set("b", 1).is_ready() && !set("a", 1).is_ready() && !set("b", 0).is_ready());
        let daemons = |desired: i32, updated: i32, ready: i32| -> Workload {
            let value = json!({"metadata": {"name": "eno-agent", "generation": 1}, "spec": {"selector": {}, "template": {}},
                "status": {"observedGeneration": 1, "desiredNumberScheduled": desired, "updatedNumberScheduled": updated,
                    "numberReady": ready, "currentNumberScheduled": desired, "numberMisscheduled": 0}});
            (&serde_json::from_value::<DaemonSet>(value).expect("a DaemonSet")).into()
        };
        assert!(
            daemons(2, 2, 2).is_ready()
                && !daemons(2, 1, 2).is_ready()
                && !daemons(2, 2, 1).is_ready()
                && daemons(0, 0, 0).is_ready()
        );
    }
}
