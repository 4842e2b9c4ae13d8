//! The Deployments of drivers and their rights.

use eno_parts::{Account, Part, Resources, Rights, Workload, WorkloadKind};
use serde_json::{Value, json};

use crate::{Error, Files, HEADER, yaml};

/// The API group of roles.
const RBAC: &str = "rbac.authorization.k8s.io";
/// The namespace of the Secrets that FabricDevices name.
const DEVICES: &str = "eno-devices";

/// A driver that runs as a Deployment.
struct Driver {
    name: &'static str,
    part: &'static Part,
    workload: &'static Workload,
    resources: &'static Resources,
}

/// The drivers with a Deployment.
fn all() -> Result<Vec<Driver>, Error> {
    let mut drivers = Vec::new();
    for part in eno_parts::ALL {
        let (Some(driver), Some(workload)) = (part.driver, &part.workload) else { continue };
        if workload.kind != WorkloadKind::Deployment {
            continue;
        }
        let problem = "a driver with a Deployment needs `resources`";
        let resources = part.resources.as_ref().ok_or(Error::Part { part: part.name, problem })?;
        drivers.push(Driver { name: driver, part, workload, resources });
    }
    Ok(drivers)
}

/// The drivers with a Deployment, each with its workload.
pub fn workloads() -> Result<Vec<(&'static str, &'static Workload)>, Error> {
    Ok(all()?.into_iter().map(|driver| (driver.name, driver.workload)).collect())
}

/// The files that contain nothing else.
pub fn files() -> Result<Files, Error> {
    let drivers = all()?;
    let manager = drivers.iter().flat_map(|driver| [driver.deployment(), driver.budget()]);
    let rights = drivers.iter().flat_map(Driver::access);
    Ok(Files::from([
        file("deploy/manager/drivers.yaml", "", manager)?,
        file(
            "deploy/rbac/drivers.yaml",
            "# A driver with passwords gets the Secrets that FabricDevices name, one by one. It gets the FabricDevice before\n\
             # each login, and logs in only as that says. It has no access to eno-system, which holds the nkeys of the other\n\
             # parts. A driver without rights connects only to NATS and to its devices.\n",
            rights,
        )?,
    ]))
}

fn file(name: &str, comment: &str, objects: impl Iterator<Item = Value>) -> Result<(String, String), Error> {
    let texts: Vec<_> = objects.map(|object| yaml(name, &object)).collect::<Result<_, _>>()?;
    Ok((name.to_owned(), format!("{HEADER}{comment}{}", texts.join("---\n"))))
}

fn labels() -> Value {
    json!({"app.kubernetes.io/part-of": "eno"})
}

impl Driver {
    fn labels(&self) -> Value {
        json!({"app.kubernetes.io/part-of": "eno", "app.kubernetes.io/name": self.workload.name})
    }

    fn selector(&self) -> Value {
        json!({"matchLabels": {"app.kubernetes.io/name": self.workload.name}})
    }

    fn deployment(&self) -> Value {
        let Self { name, part, workload, resources } = self;
        // On two nodes in two zones, if the cluster has them.
        let spread = ["kubernetes.io/hostname", "topology.kubernetes.io/zone"].map(|key| {
            json!({
                "maxSkew": 1,
                "topologyKey": key,
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": self.selector(),
                "matchLabelKeys": ["pod-template-hash"],
            })
        });
        let mut environment =
            vec![json!({"name": "ENO_NATS_CREDENTIALS", "value": "/run/secrets/eno-nats/seed"})];
        match part.rights {
            Some(Rights::Devices) => {
                environment.push(json!({"name": "ENO_CREDENTIALS_NAMESPACE", "value": DEVICES}));
            }
            Some(Rights::Own) => {}
            None => environment.push(json!({"name": "ENO_CREDENTIALS_DIR", "value": "/run/secrets/devices"})),
        }
        let mut pod = json!({
            "serviceAccountName": part.account.name,
            "nodeSelector": {"kubernetes.io/os": "linux"},
            "terminationGracePeriodSeconds": 30,
            "topologySpreadConstraints": spread,
            "securityContext": {
                "runAsNonRoot": true,
                "runAsUser": 65532,
                "runAsGroup": 65532,
                "fsGroup": 65532,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [{
                "name": "eno",
                "image": "eno:dev",
                "args": ["driver", name],
                "envFrom": [{"configMapRef": {"name": "eno"}}],
                "env": environment,
                "ports": [{"name": "http", "containerPort": 8080}],
                "readinessProbe": {"httpGet": {"path": "/readyz", "port": "http"}},
                "livenessProbe": {"httpGet": {"path": "/healthz", "port": "http"}, "periodSeconds": 30},
                "resources": {
                    "requests": {"cpu": resources.cpu, "memory": resources.memory},
                    "limits": {"memory": resources.memory_limit},
                },
                "securityContext": {
                    "allowPrivilegeEscalation": false,
                    "readOnlyRootFilesystem": true,
                    "capabilities": {"drop": ["ALL"]},
                },
                "volumeMounts": [{"name": "nats", "mountPath": "/run/secrets/eno-nats", "readOnly": true}],
            }],
            "volumes": [{
                "name": "nats",
                "secret": {
                    "secretName": "eno-nats",
                    "defaultMode": 0o440,
                    "items": [{"key": format!("{}.seed", part.name), "path": "seed"}],
                },
            }],
        });
        if part.rights.is_none() {
            pod["automountServiceAccountToken"] = json!(false);
        }
        json!({
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": workload.name, "labels": self.labels()},
            "spec": {
                "replicas": 2,
                "selector": self.selector(),
                "template": {"metadata": {"labels": self.labels()}, "spec": pod},
            },
        })
    }

    /// One of the two processes stays while nodes are drained. `maxUnavailable` lets a Deployment with a single replica
    /// be drained.
    fn budget(&self) -> Value {
        json!({
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": self.workload.name, "labels": labels()},
            "spec": {"maxUnavailable": 1, "selector": self.selector()},
        })
    }

    /// The account and its rights, unless the driver has rights like no other.
    fn access(&self) -> Vec<Value> {
        let Account { namespace, name } = self.part.account;
        let mut account = json!({
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": name, "namespace": namespace, "labels": labels()},
        });
        let grant = |prefix: &str, rule: Value| {
            let kind = |suffix: &str| format!("{prefix}{suffix}");
            let mut metadata = json!({"name": name, "labels": labels()});
            if prefix.is_empty() {
                metadata["namespace"] = json!(DEVICES);
            }
            [
                json!({
                    "apiVersion": format!("{RBAC}/v1"),
                    "kind": kind("Role"),
                    "metadata": &metadata,
                    "rules": [rule],
                }),
                json!({
                    "apiVersion": format!("{RBAC}/v1"),
                    "kind": kind("RoleBinding"),
                    "metadata": &metadata,
                    "roleRef": {"apiGroup": RBAC, "kind": kind("Role"), "name": name},
                    "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
                }),
            ]
        };
        match self.part.rights {
            Some(Rights::Own) => return Vec::new(),
            None => {
                account["automountServiceAccountToken"] = json!(false);
                return vec![account];
            }
            Some(Rights::Devices) => {}
        }
        let secrets = grant("", json!({"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}));
        let devices = grant(
            "Cluster",
            json!({"apiGroups": ["eno.k8s.io"], "resources": ["fabricdevices"], "verbs": ["get"]}),
        );
        [account].into_iter().chain(secrets).chain(devices).collect()
    }
}
