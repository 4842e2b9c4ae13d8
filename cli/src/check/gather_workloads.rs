//! Reads the facts about the operator's pods.

use eno_parts::{Workload, WorkloadKind};
use futures::future::join_all;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, StatefulSet};
use k8s_openapi::api::core::v1::{Event, PersistentVolumeClaim, Pod, PodTemplateSpec};
use kube::Api;
use kube::api::{ListParams, LogParams};

use super::gather::Gather;
use super::workloads::{self, WorkloadFact};
use super::{Fact, Unread};
use crate::install::render::SHARED_AGENT_KEY;

/// Number of the last lines of a container that are shown.
const LAST_LINES: i64 = 3;

impl Gather {
    /// How a workload is; `None`: it does not exist.
    pub(crate) async fn workload(&self, workload: &Workload) -> Fact<Option<WorkloadFact>> {
        let (namespace, name) = (workload.namespace, workload.name);
        let found = match workload.kind {
            WorkloadKind::Deployment => {
                self.get("Deployment", self.inside(namespace), name).await?.map(|found| of_deployment(&found))
            }
            WorkloadKind::StatefulSet => self
                .get("StatefulSet", self.inside(namespace), name)
                .await?
                .map(|found| of_stateful_set(&found)),
            WorkloadKind::DaemonSet => {
                self.get("DaemonSet", self.inside(namespace), name).await?.map(|found| of_daemon_set(&found))
            }
        };
        let Some(mut fact) = found else { return Ok(None) };
        let selector = ListParams::default().labels(&format!("app.kubernetes.io/name={name}"));
        match self.list("pods", self.inside::<Pod>(namespace), selector).await {
            Ok(pods) => fact.pods = pods,
            Err(Unread::Forbidden(message) | Unread::Failed(message)) => fact.pods_unread = Some(message),
        }
        if fact.ready < fact.desired {
            Box::pin(self.explain(workload, &mut fact)).await;
        }
        Ok(Some(fact))
    }

    /// Adds what explains unready pods. What can't be read is left out.
    async fn explain(&self, workload: &Workload, fact: &mut WorkloadFact) {
        let namespace = workload.namespace;
        let claims =
            self.list("claims", self.inside::<PersistentVolumeClaim>(namespace), ListParams::default());
        let kind = workload.kind.as_str();
        let of_workload =
            format!("involvedObject.kind={kind},involvedObject.name={},type=Warning", workload.name);
        let events = async |fields: &str| {
            let params = ListParams::default().fields(fields);
            let events = self.list("Events", self.inside::<Event>(namespace), params).await;
            let mut events = events.unwrap_or_default();
            events.sort_by_key(|event| event.last_timestamp.as_ref().map(|time| time.0));
            events
        };
        let pods: Api<Pod> = self.inside(namespace);
        let lines = workloads::crashed(&fact.pods).into_iter().map(async |(pod, container)| {
            let params = LogParams {
                container: Some(container.clone()),
                previous: true,
                tail_lines: Some(LAST_LINES),
                ..LogParams::default()
            };
            let text = self.read("reading a log", pods.logs(&pod, &params)).await.ok()?;
            Some(((pod, container), text))
        });
        let (claims, of_workload, of_pods, lines) = tokio::join!(
            claims,
            events(&of_workload),
            events("involvedObject.kind=Pod,type=Warning"),
            join_all(lines)
        );
        fact.claims = claims.unwrap_or_default();
        fact.last_lines = lines.into_iter().flatten().collect();
        fact.events = of_workload.into_iter().filter_map(|event| event.message).collect();
        let named = |event: Event| Some((event.involved_object.name?, event.message?));
        fact.pod_events = of_pods.into_iter().filter_map(named).collect();
    }
}

pub(super) fn images(template: &PodTemplateSpec) -> Vec<String> {
    let containers = template.spec.iter().flat_map(|spec| &spec.containers);
    containers.filter_map(|container| container.image.clone()).collect()
}

fn of_deployment(found: &Deployment) -> WorkloadFact {
    let spec = found.spec.as_ref();
    let status = found.status.clone().unwrap_or_default();
    let failures = status.conditions.iter().flatten().filter(|condition| {
        condition.type_ == "ReplicaFailure" && condition.status == "True"
            || condition.type_ == "Progressing" && condition.status == "False"
    });
    WorkloadFact {
        desired: spec.and_then(|spec| spec.replicas).unwrap_or(1),
        ready: status.ready_replicas.unwrap_or_default(),
        updated: status.updated_replicas.unwrap_or_default(),
        is_observed: status.observed_generation == found.metadata.generation,
        failures: failures.filter_map(|condition| condition.message.clone()).collect(),
        images: spec.map(|spec| images(&spec.template)).unwrap_or_default(),
        ..WorkloadFact::default()
    }
}

fn of_stateful_set(found: &StatefulSet) -> WorkloadFact {
    let spec = found.spec.as_ref();
    let status = found.status.clone().unwrap_or_default();
    WorkloadFact {
        desired: spec.and_then(|spec| spec.replicas).unwrap_or(1),
        ready: status.ready_replicas.unwrap_or_default(),
        updated: status.updated_replicas.unwrap_or_default(),
        is_observed: status.observed_generation == found.metadata.generation,
        images: spec.map(|spec| images(&spec.template)).unwrap_or_default(),
        accepts_shared_agent_key: spec.is_some_and(|spec| has_variable(&spec.template, SHARED_AGENT_KEY)),
        ..WorkloadFact::default()
    }
}

fn has_variable(template: &PodTemplateSpec, name: &str) -> bool {
    let containers = template.spec.iter().flat_map(|spec| &spec.containers);
    containers.flat_map(|container| container.env.iter().flatten()).any(|variable| variable.name == name)
}

fn of_daemon_set(found: &DaemonSet) -> WorkloadFact {
    let status = found.status.clone().unwrap_or_default();
    WorkloadFact {
        desired: status.desired_number_scheduled,
        ready: status.number_ready,
        updated: status.updated_number_scheduled.unwrap_or_default(),
        is_observed: status.observed_generation == found.metadata.generation,
        images: found.spec.as_ref().map(|spec| images(&spec.template)).unwrap_or_default(),
        ..WorkloadFact::default()
    }
}
