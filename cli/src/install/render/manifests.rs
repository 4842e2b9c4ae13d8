//! The embedded manifests.

use kube::ResourceExt;
use serde_json::{Value, json};

use super::{PART_OF, RenderError, SYSTEM, VERSION_ANNOTATION};
use crate::install::installer::VERSION;
use crate::install::values::Replicas;

/// The operator with one NATS server, without its definitions, as `kubectl kustomize deploy` renders it.
const OPERATOR: &str = include_str!("../../../../deploy/rendered/operator.yaml");
/// The objects that differ with three NATS servers, as `kubectl kustomize deploy/nats-cluster-install` renders them.
const NATS_CLUSTER: &str = include_str!("../../../../deploy/rendered/nats-cluster.yaml");
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

/// The objects that every installation has, without the edits.
pub fn operator(replicas: Replicas) -> Result<Vec<Value>, RenderError> {
    let mut objects = parse(OPERATOR)?;
    if replicas == Replicas::Three {
        for object in parse(NATS_CLUSTER)? {
            if let Some(same) = objects.iter_mut().find(|other| id(other) == id(&object)) {
                *same = object;
            } else {
                let last = objects.iter().rposition(|other| other["kind"] == object["kind"]);
                objects.insert(last.map_or(0, |last| last + 1), object);
            }
        }
    }
    let mut definitions = eno_nbi_crds::crds();
    definitions.sort_by_key(ResourceExt::name_any);
    for definition in definitions {
        let invalid = |error: serde_json::Error| RenderError::Object {
            object: "a CustomResourceDefinition".to_owned(),
            problem: error.to_string(),
        };
        let mut definition = serde_json::to_value(definition).map_err(invalid)?;
        shorten_numbers(&mut definition);
        definition["metadata"]["annotations"][VERSION_ANNOTATION] = Value::String(VERSION.to_owned());
        objects.push(definition);
    }
    Ok(objects)
}

/// Writes whole numbers without a fraction, as Kustomize does.
fn shorten_numbers(value: &mut Value) {
    match value {
        Value::Array(values) => values.iter_mut().for_each(shorten_numbers),
        Value::Object(map) => map.values_mut().for_each(shorten_numbers),
        Value::Number(number) => {
            if let Some(whole) =
                number.to_string().strip_suffix(".0").and_then(|text| text.parse::<i64>().ok())
            {
                *number = whole.into();
            }
        }
        _ => {}
    }
}

/// Kind, namespace and name of an object.
pub fn id(object: &Value) -> [&str; 3] {
    let metadata = &object["metadata"];
    [&object["kind"], &metadata["namespace"], &metadata["name"]].map(|part| part.as_str().unwrap_or_default())
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
