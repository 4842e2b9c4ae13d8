//! The watches of workloads whose pod templates name NetworkAttachmentDefinitions. They tell of those without pods.

use std::collections::BTreeMap;
use std::time::Duration;

use eno_core::{Name, Uses, Workload};
use eno_queue::Backoff;
use eno_sbi::random;
use kube::api::{ApiResource, Object, ObjectMeta};
use kube::runtime::utils::ResetTimerBackoff;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

use crate::watch::networks;

/// The longest delay between tries to watch, for example where KubeVirt is not installed.
const MAX_DELAY: Duration = Duration::from_mins(5);
/// The delays between tries.
const BACKOFF: Backoff = Backoff::new(Duration::from_secs(1), MAX_DELAY).with_jitter(0.75, 1.0);

/// A workload, reduced to what decides which networks its pods will use.
pub type SlimWorkload = Object<Spec, Option<Status>>;

/// A kind of workloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WorkloadKind {
    /// Of Kubernetes.
    Deployment,
    /// Of Kubernetes.
    StatefulSet,
    /// Of Kubernetes.
    CronJob,
    /// Of KubeVirt.
    VirtualMachine,
}

impl WorkloadKind {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Deployment, Self::StatefulSet, Self::CronJob, Self::VirtualMachine];

    /// The name of the kind.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Deployment => "Deployment",
            Self::StatefulSet => "StatefulSet",
            Self::CronJob => "CronJob",
            Self::VirtualMachine => "VirtualMachine",
        }
    }

    /// Its resource.
    pub fn resource(self) -> ApiResource {
        let (group, plural) = match self {
            Self::Deployment => ("apps", "deployments"),
            Self::StatefulSet => ("apps", "statefulsets"),
            Self::CronJob => ("batch", "cronjobs"),
            Self::VirtualMachine => ("kubevirt.io", "virtualmachines"),
        };
        ApiResource {
            group: group.into(),
            version: "v1".into(),
            api_version: format!("{group}/v1"),
            kind: self.as_str().into(),
            plural: plural.into(),
        }
    }

    /// The workload in the core's form.
    pub fn id(self, workload: &SlimWorkload) -> Option<Workload> {
        let ObjectMeta { namespace, name, .. } = &workload.metadata;
        Some(Workload {
            kind: self.as_str(),
            namespace: namespace.as_deref()?.into(),
            name: name.as_deref()?.into(),
        })
    }

    /// The NetworkAttachmentDefinitions that its pods will use; none while it has pods. `multus`: the namespace of
    /// Multus. A template that ENO can't read names none.
    pub fn named(self, workload: &SlimWorkload, multus: &str) -> Vec<(Name, Name)> {
        let (Some(namespace), spec) = (workload.metadata.namespace.as_deref(), &workload.spec) else {
            return Vec::new();
        };
        let status = workload.status.iter().flatten().next();
        let (stopped, template) = match self {
            Self::Deployment | Self::StatefulSet => (spec.replicas == Some(0), &spec.template),
            // Between two runs it has no pods.
            Self::CronJob => {
                let is_running = status.is_some_and(|status| status.active.iter().flatten().next().is_some());
                (!is_running, &spec.job_template.spec.template)
            }
            Self::VirtualMachine => {
                let is_off = spec.running == Some(false) || spec.run_strategy.as_deref() == Some("Halted");
                let printable = status.and_then(|status| status.printable_status.as_deref());
                (is_off || printable == Some("Stopped"), &spec.template)
            }
        };
        if !stopped {
            return Vec::new();
        }
        let Template { metadata, spec } = template;
        let (annotations, labels) = (metadata.annotations.as_ref(), metadata.labels.as_ref());
        let Uses::Named(named) = networks::used(namespace, annotations, labels, multus) else {
            return Vec::new();
        };
        // A name without a namespace is in that of the machine, also for its first network.
        let machine = spec.networks.iter().flatten().filter_map(|network| network.multus.as_ref());
        let machine = machine.take(networks::MAX_NETWORKS).map(|multus| {
            let (namespace, name) =
                multus.network_name.split_once('/').unwrap_or((namespace, &multus.network_name));
            (namespace.trim().into(), name.trim().into())
        });
        named.into_iter().chain(machine).collect()
    }
}

/// When a watch that failed is tried again. An API server without the kind gets few requests.
pub fn backoff() -> impl kube::runtime::utils::Backoff {
    // A new try alone is no success.
    ResetTimerBackoff::new(Delays(0), MAX_DELAY * 2)
}

/// The delays after failures, whose number it has.
struct Delays(u32);

impl Iterator for Delays {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        self.0 = self.0.saturating_add(1);
        Some(BACKOFF.delay(self.0, random()))
    }
}

impl kube::runtime::utils::Backoff for Delays {
    fn reset(&mut self) {
        self.0 = 0;
    }
}

/// The fields of a workload's spec that are read.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Spec {
    replicas: Option<i64>,
    running: Option<bool>,
    run_strategy: Option<String>,
    template: Template,
    job_template: JobTemplate,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct JobTemplate {
    spec: JobSpec,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct JobSpec {
    template: Template,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Template {
    metadata: TemplateMeta,
    spec: TemplateSpec,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct TemplateMeta {
    annotations: Option<BTreeMap<String, String>>,
    labels: Option<BTreeMap<String, String>>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct TemplateSpec {
    networks: Option<Vec<Network>>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Network {
    multus: Option<MultusNetwork>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct MultusNetwork {
    network_name: String,
}

/// The fields of a workload's status that are read.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Status {
    printable_status: Option<String>,
    /// The running Jobs of a CronJob.
    #[serde(skip_serializing)]
    active: Option<Vec<IgnoredAny>>,
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// What a workload of the namespace `ns` names, as `namespace/name`.
    fn named(kind: WorkloadKind, spec: &Value, status: &Value) -> Vec<String> {
        let value = json!({ "metadata": { "name": "w", "namespace": "ns" }, "spec": spec, "status": status });
        let workload: SlimWorkload = serde_json::from_value(value).unwrap();
        let id = kind.id(&workload).unwrap();
        assert_eq!((id.kind, &*id.namespace, &*id.name), (kind.as_str(), "ns", "w"));
        let named = kind.named(&workload, networks::MULTUS_NAMESPACE);
        named.iter().map(|(namespace, name)| format!("{namespace}/{name}")).collect()
    }

    fn template() -> Value {
        json!({
            "metadata": {
                "annotations": { "k8s.v1.cni.cncf.io/networks": "a, other/b", "v1.multus-cni.io/default-network": "c" },
                "labels": { "attach.eno.k8s.io/d": "" },
            },
            "spec": { "containers": [{ "name": "x", "env": [{ "name": "A", "value": "b" }] }] },
        })
    }

    const TEMPLATE: [&str; 4] = ["kube-system/c", "ns/a", "ns/d", "other/b"];

    #[test]
    fn workloads_scaled_to_zero_count() {
        for kind in [WorkloadKind::Deployment, WorkloadKind::StatefulSet] {
            assert_eq!(named(kind, &json!({ "replicas": 0, "template": template() }), &json!({})), TEMPLATE);
            for replicas in [json!(1), Value::Null] {
                let spec = json!({ "replicas": replicas, "template": template() });
                assert!(named(kind, &spec, &json!({})).is_empty(), "{replicas}");
            }
            assert!(named(kind, &json!({ "replicas": 0, "template": {} }), &json!({})).is_empty());
        }
        let spec = json!({ "schedule": "@daily", "jobTemplate": { "spec": { "template": template() } } });
        assert_eq!(named(WorkloadKind::CronJob, &spec, &json!({})), TEMPLATE);
        let running = json!({ "active": [{ "kind": "Job", "name": "j" }] });
        assert!(named(WorkloadKind::CronJob, &spec, &running).is_empty());
    }

    #[test]
    fn stopped_machines_count() {
        let spec = |extra: &Value| {
            let mut spec = json!({ "template": { "spec": { "networks": [
                { "name": "default", "pod": {} },
                { "name": "x", "multus": { "networkName": "a" } },
                { "name": "y", "multus": { "networkName": "other/b", "default": true } },
            ] } } });
            spec.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
            spec
        };
        for (extra, status, counts) in [
            (json!({ "runStrategy": "Halted" }), json!({}), true),
            (json!({ "running": false }), Value::Null, true),
            (json!({ "running": true }), json!({ "printableStatus": "Running" }), false),
            (json!({ "runStrategy": "Always" }), json!({}), false),
            (json!({ "runStrategy": "RerunOnFailure" }), json!({ "printableStatus": "Starting" }), false),
            (json!({ "runStrategy": "Manual" }), json!({ "printableStatus": "Stopped" }), true),
        ] {
            let expected: &[&str] = if counts { &["ns/a", "other/b"] } else { &[] };
            assert_eq!(named(WorkloadKind::VirtualMachine, &spec(&extra), &status), expected, "{extra}");
        }
    }

    #[test]
    fn template_that_is_not_understood_names_nothing() {
        // Half of a surrogate pair.
        let annotations = json!({ "k8s.v1.cni.cncf.io/networks": r#"[{"name": "\ud800"}]"# });
        let spec = json!({ "replicas": 0, "template": { "metadata": { "annotations": annotations } } });
        assert!(named(WorkloadKind::Deployment, &spec, &json!({})).is_empty());
    }
}
