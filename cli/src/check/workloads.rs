//! The operator's pods: whether they run, and if not, why.

use std::collections::{BTreeMap, BTreeSet};

use eno_parts::{Workload, WorkloadKind};
use k8s_openapi::api::core::v1::{ContainerStatus, PersistentVolumeClaim, Pod};

use super::{Check, Fact, Name, Problem, Unread, listed};

/// How a workload is.
#[derive(Clone, Debug, Default)]
pub struct WorkloadFact {
    /// Number of pods that there should be.
    pub desired: i32,
    /// Number of pods that are ready.
    pub ready: i32,
    /// Number of pods of the current template.
    pub updated: i32,
    /// Whether its controller has seen the current spec.
    pub is_observed: bool,
    /// The images of its template.
    pub images: Vec<String>,
    /// Whether it is NATS that accepts the key which all agents of an earlier version share.
    pub accepts_shared_agent_key: bool,
    /// Messages of its conditions that report failures, such as refused pods.
    pub failures: Vec<String>,
    /// Messages of its Events of the type Warning, the newest last.
    pub events: Vec<String>,
    /// The newest Event of the type Warning of each pod, by the pod's name.
    pub pod_events: BTreeMap<String, String>,
    /// Its pods.
    pub pods: Vec<Pod>,
    /// The claims for volumes in its namespace.
    pub claims: Vec<PersistentVolumeClaim>,
    /// The last lines of containers that ended with an error, by pod and container.
    pub last_lines: BTreeMap<(String, String), String>,
    /// Whether its pods could be read.
    pub pods_unread: Option<String>,
}

/// The check of one workload; `None`: it does not exist.
pub fn judge(workload: &Workload, fact: &Fact<Option<WorkloadFact>>) -> Check {
    let name = Name::Workload;
    let subject = workload.full_name();
    let fact = match fact {
        Ok(Some(fact)) => fact,
        Ok(None) => {
            return Check::failed(name, subject, Problem::new("it does not exist", "run eno install"));
        }
        Err(unread) => return Check::unread(name, subject, unread),
    };
    let subject = format!("{subject}: {} of {} pods ready", fact.ready, fact.desired);
    if fact.desired == 0 {
        let (what, remedy) = match workload.kind {
            WorkloadKind::DaemonSet => {
                ("no node takes its pods", "look at the node selector and the nodes' taints")
            }
            _ => ("it is scaled to no pods", "scale it up"),
        };
        return Check::warning(name, subject, Problem::new(what, remedy));
    }
    let is_current = fact.is_observed && fact.updated >= fact.desired;
    if fact.ready >= fact.desired {
        if is_current && fact.accepts_shared_agent_key {
            let what = "it accepts the key that all agents of an earlier version share";
            let remedy =
                "when the agents are of this version, run eno install again; with Helm see the how-to";
            return Check::warning(name, subject, Problem::new(what, remedy));
        }
        if is_current {
            return Check::ok(name, subject);
        }
        let problems = causes(workload, fact);
        let problem = problems.into_iter().next().unwrap_or_else(|| {
            Problem::new("a rolling update is under way", "wait until it has ended, and check again")
        });
        let what =
            format!("{} of {} pods are of the new version: {}", fact.updated, fact.desired, problem.what);
        return Check::warning(name, subject, Problem::new(what, problem.remedy));
    }
    let problems = causes(workload, fact);
    let what: BTreeSet<&str> = problems.iter().map(|problem| problem.what.as_str()).collect();
    let remedies: BTreeSet<&str> = problems.iter().map(|problem| problem.remedy.as_str()).collect();
    if problems.is_empty() {
        let what = match &fact.pods_unread {
            Some(why) => format!("its pods are not ready, and can't be looked at: {why}"),
            None => "its pods are not ready yet".to_owned(),
        };
        let remedy = format!("look at them: kubectl -n {} describe pods", workload.namespace);
        return Check::failed(name, subject, Problem::new(what, remedy));
    }
    let remedies: Vec<&str> = remedies.into_iter().collect();
    Check::failed(name, subject, Problem::new(listed(what), remedies.join("; ")))
}

/// Why pods are not ready, the most telling reason first.
pub fn causes(workload: &Workload, fact: &WorkloadFact) -> Vec<Problem> {
    let mut found: Vec<Problem> = fact
        .pods
        .iter()
        .filter(|pod| pod.metadata.deletion_timestamp.is_none() && !is_ready(pod))
        .filter_map(|pod| cause(pod, workload, fact))
        .collect();
    if found.is_empty() {
        let messages = fact.failures.iter().chain(fact.events.last());
        let remedy =
            "the message names what refuses the pods: an admission policy, a quota or a missing account";
        found.extend(messages.map(|message| Problem::new(message, remedy)));
    }
    found
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// Why a pod is not ready.
fn cause(pod: &Pod, workload: &Workload, fact: &WorkloadFact) -> Option<Problem> {
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let status = pod.status.as_ref()?;
    let conditions = status.conditions.iter().flatten();
    let unscheduled = conditions.clone().find(|one| {
        one.type_ == "PodScheduled" && one.status == "False" && one.reason.as_deref() == Some("Unschedulable")
    });
    if let Some(condition) = unscheduled {
        return Some(pending_claim(pod, fact).unwrap_or_else(|| {
            let message = condition.message.as_deref().unwrap_or("no node takes it");
            let what = format!("pod {name} is on no node: {message}");
            Problem::new(what, "free CPU and memory on the nodes, or add a node")
        }));
    }
    let containers = status.init_container_statuses.iter().flatten();
    let containers = containers.chain(status.container_statuses.iter().flatten());
    let found = containers.filter(|container| !container.ready).find_map(|container| {
        let last_line = fact.last_lines.get(&(name.to_owned(), container.name.clone()));
        container_cause(name, container, workload, last_line.map(String::as_str))
    });
    let by_event = || {
        let message = fact.pod_events.get(name)?;
        let remedy = "create the Secret, volume or account that the message names: eno install does";
        Some(Problem::new(format!("pod {name} can't start: {message}"), remedy))
    };
    found.or_else(by_event).or_else(|| {
        let reason = status.reason.as_deref()?;
        let message = status.message.as_deref().unwrap_or_default();
        let remedy = format!("look at it: kubectl -n {} describe pod {name}", workload.namespace);
        Some(Problem::new(format!("pod {name}: {reason}: {message}"), remedy))
    })
}

fn pending_claim(pod: &Pod, fact: &WorkloadFact) -> Option<Problem> {
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    let claims: Vec<&str> = volumes
        .into_iter()
        .filter_map(|volume| volume.persistent_volume_claim.as_ref().map(|claim| claim.claim_name.as_str()))
        .collect();
    let is_pending = |claim: &&PersistentVolumeClaim| {
        claim.metadata.name.as_deref().is_some_and(|name| claims.contains(&name))
            && claim.status.as_ref().and_then(|status| status.phase.as_deref()) != Some("Bound")
    };
    let claim = fact.claims.iter().find(is_pending)?;
    let name = claim.metadata.name.as_deref().unwrap_or_default();
    let class = claim.spec.as_ref().and_then(|spec| spec.storage_class_name.as_deref());
    let what = match class {
        Some(class) => format!("PersistentVolumeClaim {name} has no volume yet from StorageClass {class}"),
        None => format!("PersistentVolumeClaim {name} names no StorageClass, and there is no default one"),
    };
    Some(Problem::new(
        what,
        "see that its StorageClass has a provisioner that runs, or name another in nats.storageClass",
    ))
}

fn container_cause(
    pod: &str,
    container: &ContainerStatus,
    workload: &Workload,
    last_line: Option<&str>,
) -> Option<Problem> {
    let namespace = workload.namespace;
    let name = &container.name;
    let state = container.state.as_ref();
    let waiting = state.and_then(|state| state.waiting.as_ref());
    let reason = waiting.and_then(|waiting| waiting.reason.as_deref());
    let message = waiting.and_then(|waiting| waiting.message.as_deref()).unwrap_or_default();
    match reason {
        Some("ErrImagePull" | "ImagePullBackOff" | "InvalidImageName" | "ErrImageNeverPull") => {
            let what = format!("pod {pod} can't pull the image {}: {message}", container.image);
            let remedy =
                "correct the value image or natsImage, or name the registry's Secret in imagePullSecrets";
            return Some(Problem::new(what, remedy));
        }
        Some("CreateContainerConfigError") => {
            let what = format!("pod {pod} lacks its configuration: {message}");
            let remedy = "create the Secret or key that is named: eno install does";
            return Some(Problem::new(what, remedy));
        }
        Some("CreateContainerError" | "RunContainerError") => {
            let what = format!("container {name} of pod {pod} can't be started: {message}");
            let remedy = format!("look at it: kubectl -n {namespace} describe pod {pod}");
            return Some(Problem::new(what, remedy));
        }
        _ => {}
    }
    let last = container.last_state.as_ref().and_then(|state| state.terminated.as_ref());
    let ended = state.and_then(|state| state.terminated.as_ref()).or(last);
    let Some(ended) = ended.filter(|ended| ended.exit_code != 0) else {
        let is_waiting_to_be_ready = state.is_some_and(|state| state.running.is_some());
        return is_waiting_to_be_ready.then(|| {
            let what = format!("container {name} of pod {pod} runs and is not ready");
            let remedy = format!("see what it waits for: kubectl -n {namespace} logs {pod} -c {name}");
            Problem::new(what, remedy)
        });
    };
    if ended.reason.as_deref() == Some("OOMKilled") {
        let what = format!("container {name} of pod {pod} needs more memory than its limit");
        return Some(Problem::new(what, "raise its memory limit"));
    }
    let output = [last_line, ended.message.as_deref(), ended.reason.as_deref()];
    let output =
        output.into_iter().flatten().map(str::trim).find(|text| !text.is_empty()).unwrap_or("nothing");
    let what = format!(
        "container {name} of pod {pod} has ended {} times, at last with exit code {}: {output}",
        container.restart_count, ended.exit_code
    );
    let remedy =
        format!("remove the cause that it names: kubectl -n {namespace} logs {pod} -c {name} --previous");
    Some(Problem::new(what, remedy))
}

/// The pods and containers whose last lines are worth reading: they ended with an error and are not ready.
pub fn crashed(pods: &[Pod]) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for pod in pods {
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        let statuses = pod.status.iter().flat_map(|status| {
            status.init_container_statuses.iter().flatten().chain(status.container_statuses.iter().flatten())
        });
        for container in statuses.filter(|container| !container.ready) {
            let last = container.last_state.as_ref().and_then(|state| state.terminated.as_ref());
            if last.is_some_and(|last| last.exit_code != 0) {
                found.push((name.to_owned(), container.name.clone()));
            }
        }
    }
    found
}

/// The nodes with a ready pod, for the check of agents without NATS.
pub fn nodes_of_ready_pods(fact: &Fact<Option<WorkloadFact>>) -> Fact<BTreeSet<String>> {
    match fact {
        Ok(Some(WorkloadFact { pods_unread: Some(why), .. })) => Err(Unread::Forbidden(why.clone())),
        Ok(fact) => {
            let ready = fact.iter().flat_map(|fact| &fact.pods).filter(|pod| is_ready(pod));
            Ok(ready.filter_map(|pod| pod.spec.as_ref()?.node_name.clone()).collect())
        }
        Err(unread) => Err(unread.clone()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::tests::{assert_outcome, object};
    use super::*;

    fn fact(ready: i32, pods: Vec<Value>) -> WorkloadFact {
        let pods = pods.into_iter().map(object).collect();
        WorkloadFact { desired: 2, ready, updated: 2, is_observed: true, pods, ..WorkloadFact::default() }
    }

    fn pod(status: &Value) -> Value {
        json!({
            "metadata": {"name": "p"},
            "spec": {"containers": [], "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data-p"}}]},
            "status": status,
        })
    }

    fn container(state: &Value, last: &Value) -> Value {
        pod(&json!({"containerStatuses": [{
            "name": "eno", "image": "eno:v1", "imageID": "", "ready": false, "restartCount": 4,
            "state": state, "lastState": last,
        }]}))
    }

    fn waiting(reason: &str, message: &str) -> Value {
        container(&json!({"waiting": {"reason": reason, "message": message}}), &json!({}))
    }

    fn crash(reason: &str) -> Value {
        let back_off = json!({"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}});
        container(&back_off, &json!({"terminated": {"exitCode": 1, "reason": reason}}))
    }

    fn unscheduled() -> Value {
        pod(&json!({"conditions": [{
            "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "Insufficient cpu",
        }]}))
    }

    #[test]
    fn causes_of_unready_pods_are_named() {
        let engine = eno_parts::ENGINE.workload.as_ref().expect("a workload");
        let with_lines = |pods| {
            let lines = [(("p".to_owned(), "eno".to_owned()), "Error: no seed\n".to_owned())].into();
            WorkloadFact { last_lines: lines, ..fact(1, pods) }
        };
        let claim = |name: &str, class: Value| {
            let claim = json!({
                "metadata": {"name": name}, "spec": {"storageClassName": class}, "status": {"phase": "Pending"},
            });
            WorkloadFact { claims: vec![object(claim)], ..fact(1, vec![unscheduled()]) }
        };
        let mounting = WorkloadFact {
            pod_events: BTreeMap::from([("p".to_owned(), "secret \"eno-nats\" not found".to_owned())]),
            ..fact(1, vec![waiting("ContainerCreating", "")])
        };
        let running = container(&json!({"running": {}}), &json!({}));
        let refused = "pods \"p\" is forbidden: violates PodSecurity".to_owned();
        for (fact, expected) in [
            (fact(2, vec![]), "ok"),
            (
                WorkloadFact { accepts_shared_agent_key: true, ..fact(2, vec![]) },
                "warning: it accepts the key that all agents of an earlier version share",
            ),
            (
                fact(1, vec![waiting("ImagePullBackOff", "not found")]),
                "failed: can't pull the image eno:v1|not found",
            ),
            (
                fact(1, vec![waiting("CreateContainerConfigError", "secret eno-nats")]),
                "failed: secret eno-nats",
            ),
            (
                fact(1, vec![waiting("CreateContainerError", "no such file")]),
                "failed: can't be started: no such file",
            ),
            (with_lines(vec![crash("Error")]), "failed: ended 4 times|exit code 1: Error: no seed"),
            (fact(1, vec![crash("Error")]), "failed: exit code 1: Error"),
            (fact(1, vec![crash("OOMKilled")]), "failed: more memory than its limit"),
            (fact(1, vec![unscheduled()]), "failed: pod p is on no node: Insufficient cpu"),
            (claim("data-p", "fast".into()), "failed: data-p has no volume yet from StorageClass fast"),
            (claim("data-p", Value::Null), "failed: data-p names no StorageClass"),
            (claim("data-q", Value::Null), "failed: Insufficient cpu"),
            (fact(1, vec![running]), "failed: runs and is not ready"),
            (fact(1, vec![pod(&json!({"reason": "Evicted", "message": "disk"}))]), "failed: Evicted: disk"),
            (mounting, "failed: pod p can't start: secret \"eno-nats\" not found"),
            (fact(0, vec![]), "failed: not ready yet"),
            (
                WorkloadFact { failures: vec![refused.clone()], ..fact(0, vec![]) },
                "failed: violates PodSecurity",
            ),
            (WorkloadFact { events: vec![refused], ..fact(0, vec![]) }, "failed: violates PodSecurity"),
            (WorkloadFact { pods_unread: Some("list pods".into()), ..fact(0, vec![]) }, "failed: list pods"),
            (WorkloadFact { updated: 1, ..fact(2, vec![]) }, "warning: 1 of 2 pods are of the new version"),
            (WorkloadFact { is_observed: false, ..fact(2, vec![]) }, "warning: rolling update"),
            (WorkloadFact { desired: 0, ..fact(0, vec![]) }, "warning: scaled to no pods"),
        ] {
            assert_outcome(&judge(engine, &Ok(Some(fact))), expected);
        }
        assert_outcome(&judge(engine, &Ok(None)), "failed: it does not exist");
        assert_outcome(
            &judge(engine, &Err(Unread::Forbidden("get deployments".into()))),
            "skipped: get deployments",
        );
    }

    #[test]
    fn crashed_containers_are_found() {
        let pods: Vec<Pod> =
            [crash("Error"), waiting("ImagePullBackOff", "")].into_iter().map(object).collect();
        assert_eq!(crashed(&pods), [("p".to_owned(), "eno".to_owned())]);
    }
}
