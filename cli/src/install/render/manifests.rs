//! The embedded manifests.

use serde_json::{Value, json};

use super::{PART_OF, RenderError, SYSTEM, VERSION_ANNOTATION};
use crate::install::installer::VERSION;
use crate::install::values::Replicas;

/// The operator with one NATS server, as `kubectl kustomize deploy` renders it.
const OPERATOR: &str = include_str!("../../../../deploy/rendered/operator.yaml");
/// The operator with three NATS servers, as `kubectl kustomize deploy/nats-cluster-install` renders it.
const OPERATOR_NATS_CLUSTER: &str = include_str!("../../../../deploy/rendered/operator-nats-cluster.yaml");
/// What the Prometheus operator scrapes.
const POD_MONITORS: &str = include_str!("../../../../deploy/monitoring/pod-monitors.yaml");
/// The dashboard for Grafana.
const DASHBOARD: &str = include_str!("../../../../deploy/monitoring/dashboard.json");

/// Objects that are there only if values ask for them.
#[derive(Debug)]
pub struct Manifest {
    /// Its name, which is also that of its file in the Helm chart.
    pub name: &'static str,
    /// The paths of the values, all of which have to be true.
    pub values: &'static [&'static str],
    source: Source,
}

#[derive(Debug)]
enum Source {
    Yaml(&'static str),
    /// The object of this name.
    Object(&'static str, &'static str),
    Dashboard,
}

/// All objects that only some installations have.
pub const OPTIONAL: &[Manifest] = &[
    Manifest {
        name: "admission",
        values: &["admission"],
        source: Source::Yaml(include_str!("../../../../deploy/admission/finalizer.yaml")),
    },
    Manifest {
        name: "nad-definition",
        values: &["nadDefinition"],
        source: Source::Yaml(include_str!("../../../../deploy/nad-crd/network-attachment-definitions.yaml")),
    },
    Manifest {
        name: "certificates",
        values: &["certManager"],
        source: Source::Yaml(include_str!("../../../../deploy/cert-manager/certificates.yaml")),
    },
    Manifest {
        name: "pod-monitor",
        values: &["monitoring.podMonitors"],
        source: Source::Object(POD_MONITORS, "eno"),
    },
    Manifest {
        name: "agent-pod-monitor",
        values: &["monitoring.podMonitors", "nodeMetrics"],
        source: Source::Object(POD_MONITORS, "eno-agent"),
    },
    Manifest {
        name: "rules",
        values: &["monitoring.rules"],
        source: Source::Yaml(include_str!("../../../../deploy/monitoring/rules.yaml")),
    },
    Manifest { name: "dashboard", values: &["monitoring.dashboard"], source: Source::Dashboard },
];

impl Manifest {
    /// Its objects, without the edits.
    pub fn objects(&self) -> Result<Vec<Value>, RenderError> {
        match self.source {
            Source::Yaml(text) => parse(text),
            Source::Object(text, name) => {
                let mut objects = parse(text)?;
                objects.retain(|object| object["metadata"]["name"] == name);
                Ok(objects)
            }
            Source::Dashboard => Ok(vec![dashboard()]),
        }
    }

    pub(super) fn is_wanted(&self, values: &Value) -> bool {
        let is_true = |path: &&str| {
            values.pointer(&format!("/{}", path.replace('.', "/"))).and_then(Value::as_bool) == Some(true)
        };
        self.values.iter().all(is_true)
    }
}

/// The objects that every installation has, without the edits. ConfigMaps have their names without the hash that
/// Kustomize adds.
pub fn operator(replicas: Replicas) -> Result<Vec<Value>, RenderError> {
    /// A dash and the hash.
    const SUFFIX: usize = 11;
    let text = match replicas {
        Replicas::One => OPERATOR,
        Replicas::Three => OPERATOR_NATS_CLUSTER,
    };
    let names: Vec<String> = parse(text)?
        .iter()
        .filter(|object| object["kind"] == "ConfigMap")
        .filter_map(|object| object["metadata"]["name"].as_str().map(str::to_owned))
        .collect();
    let mut text = text.to_owned();
    for name in names {
        let plain = &name[..name.len().saturating_sub(SUFFIX)];
        text = text.replace(&format!("name: {name}\n"), &format!("name: {plain}\n"));
    }
    let mut objects = parse(&text)?;
    for object in objects.iter_mut().filter(|object| object["kind"] == "CustomResourceDefinition") {
        object["metadata"]["annotations"][VERSION_ANNOTATION] = Value::String(VERSION.to_owned());
    }
    Ok(objects)
}

/// Reads objects of a manifest.
fn parse(yaml: &str) -> Result<Vec<Value>, RenderError> {
    serde_saphyr::from_multiple(yaml).map_err(|error| RenderError::Manifest(Box::new(error)))
}

/// The ConfigMap of the dashboard, as the sidecar of Grafana finds it.
fn dashboard() -> Value {
    let (part_of, eno) = PART_OF;
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": "eno-dashboard",
            "namespace": SYSTEM,
            "labels": {part_of: eno, "grafana_dashboard": "1"},
        },
        "data": {"eno.json": DASHBOARD},
    })
}
