//! From values and Secrets to the objects of the operator. Pure: nothing is read here.

mod edits;
mod manifests;
mod second_keys;

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Container, PodTemplateSpec, Secret};
use kube::ResourceExt as _;
use kube::api::{DynamicObject, ObjectMeta};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

pub use edits::{Content, EDITS, Edit, Form, replace_any_address};
pub use manifests::{Manifest, OPTIONAL, id, operator};
pub use second_keys::{SHARED_AGENT_KEY, next_public, with_shared_key};

use super::secrets::{self, Data, Secrets};
use super::values::{Replicas, Values};
use crate::apply::{ApplyError, dynamic};

/// The namespace of the operator.
pub const SYSTEM: &str = "eno-system";
/// The namespace of the agents.
pub const NODE: &str = "eno-node";
/// The namespace of the switches' logins.
pub const DEVICES: &str = "eno-devices";
/// The namespaces of the operator.
pub const NAMESPACES: [&str; 3] = [SYSTEM, DEVICES, NODE];

/// The name of the ConfigMap that records an installation.
pub const RECORD: &str = "eno-install";
/// The name of the ConfigMap with the environment of the engine and the drivers.
pub const ENVIRONMENT: &str = "eno";
/// The name of the StatefulSet, the Service, the Secrets and the ConfigMap of NATS.
pub const NATS: &str = "eno-nats";
/// The name of the Secrets with certificates of NATS.
pub const NATS_TLS: &str = "eno-nats-tls";
/// The name of the Secret with certificates of agents' metrics.
pub const METRICS_TLS: &str = "eno-metrics-tls";
/// The names of all Secrets that an installation writes, so that nobody needs rights on others.
pub const SECRETS: [&str; 3] = [NATS, NATS_TLS, METRICS_TLS];
/// The label of all objects of the operator, and its value.
pub const PART_OF: (&str, &str) = ("app.kubernetes.io/part-of", "eno");
/// The annotation of pods with a hash of the configuration that they read when they start.
pub const CONFIG_HASH: &str = "eno.k8s.io/config-hash";
/// The annotation of definitions with the version of ENO that they belong to.
pub const VERSION_ANNOTATION: &str = "eno.k8s.io/version";

/// The embedded manifests don't have the expected form, which is a bug of the build.
#[derive(Debug, thiserror::Error)]
pub enum RenderError {
    /// A manifest is not YAML of Kubernetes objects.
    #[error("reading the embedded manifests: {0}")]
    Manifest(#[source] Box<serde_saphyr::Error>),
    /// An object lacks a part.
    #[error("the embedded manifests: {object}: {problem}")]
    Object {
        /// Kind and name.
        object: String,
        /// What is wrong.
        problem: String,
    },
    /// An object can't be converted.
    #[error(transparent)]
    Convert(#[from] ApplyError),
}

/// In which order objects are applied. Later ones need earlier ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    /// Namespaces.
    Namespaces,
    /// CustomResourceDefinitions.
    Definitions,
    /// Service accounts, roles and bindings.
    Access,
    /// Admission policies, NetworkPolicies, PodDisruptionBudgets, and what the Prometheus operator reads.
    Policies,
    /// Issuers and Certificates of cert-manager.
    Certificates,
    /// Secrets and ConfigMaps.
    Configuration,
    /// Services, and NATS.
    Nats,
    /// The engine.
    Engine,
    /// The drivers.
    Drivers,
    /// The agents.
    Agents,
}

impl Stage {
    /// The stages in which pods start.
    pub const PARTS: [Self; 4] = [Self::Nats, Self::Engine, Self::Drivers, Self::Agents];

    /// The stage of an object.
    pub fn of(object: &DynamicObject) -> Self {
        let kind = object.types.as_ref().map_or("", |types| types.kind.as_str());
        match kind {
            "Namespace" => Self::Namespaces,
            "CustomResourceDefinition" => Self::Definitions,
            "ServiceAccount" | "ClusterRole" | "ClusterRoleBinding" | "Role" | "RoleBinding" => Self::Access,
            "Issuer" | "Certificate" => Self::Certificates,
            "Secret" | "ConfigMap" => Self::Configuration,
            "Service" | "StatefulSet" => Self::Nats,
            "Deployment" if object.name_any() == "eno-engine" => Self::Engine,
            "Deployment" => Self::Drivers,
            "DaemonSet" => Self::Agents,
            _ => Self::Policies,
        }
    }
}

/// All objects of the operator, in the order in which they are applied. Two calls with the same arguments return equal
/// objects.
pub fn objects(values: &Values, secrets: &Secrets) -> Result<Vec<DynamicObject>, RenderError> {
    let invalid = |error: serde_json::Error| RenderError::Object {
        object: "the values".to_owned(),
        problem: error.to_string(),
    };
    let chosen = serde_json::to_value(values).map_err(invalid)?;
    let mut objects = Vec::new();
    let wanted = OPTIONAL.iter().filter(|manifest| manifest.is_wanted(&chosen));
    for mut object in operator(values.nats.replicas)?
        .into_iter()
        .chain(wanted.map(Manifest::objects).collect::<Result<Vec<_>, _>>()?.into_iter().flatten())
    {
        for edit in EDITS {
            edit.apply(&mut object, &chosen);
        }
        objects.push(serde_json::from_value::<DynamicObject>(object).map_err(invalid)?);
    }
    let nats = configuration(&mut objects, NATS)?;
    second_keys::add(nats, secrets)?;
    let nats_data = nats.data["data"].clone();
    let environment = configuration(&mut objects, ENVIRONMENT)?.data["data"].clone();
    for object in &mut objects {
        match object.types.as_ref().map_or("", |types| types.kind.as_str()) {
            "StatefulSet" => {
                set_hash(object, &nats_hash(&nats_data, secrets))?;
                second_keys::add_variables(object, secrets)?;
            }
            "Deployment" => set_hash(object, &part_hash(&object.name_any(), &environment, secrets))?,
            "DaemonSet" => set_hash(object, &agent_hash(secrets))?,
            _ => {}
        }
    }
    objects.extend(secret_objects(values, secrets)?);
    objects.sort_by_key(Stage::of);
    Ok(objects)
}

/// A ConfigMap of the operator.
fn configuration<'a>(
    objects: &'a mut [DynamicObject],
    name: &str,
) -> Result<&'a mut DynamicObject, RenderError> {
    let is_it = |object: &&mut DynamicObject| {
        object.name_any() == name && object.types.as_ref().is_some_and(|types| types.kind == "ConfigMap")
    };
    objects.iter_mut().find(is_it).ok_or_else(|| RenderError::Object {
        object: format!("ConfigMap {name}"),
        problem: "it is missing".to_owned(),
    })
}

/// The ConfigMap that records an installation.
pub fn record(values: &Values, version: &str, is_complete: bool) -> Result<DynamicObject, RenderError> {
    let values = values.to_yaml().map_err(|error| RenderError::Object {
        object: format!("ConfigMap {RECORD}"),
        problem: error.to_string(),
    })?;
    let phase = if is_complete { "installed" } else { "installing" };
    Ok(dynamic(&ConfigMap {
        metadata: metadata(SYSTEM, RECORD),
        data: Some(BTreeMap::from(
            [("phase", phase), ("values.yaml", &values), ("version", version)]
                .map(|(key, value)| (key.to_owned(), value.to_owned())),
        )),
        ..ConfigMap::default()
    })?)
}

/// Reads objects of a manifest.
pub fn parse(yaml: &str) -> Result<Vec<DynamicObject>, RenderError> {
    serde_saphyr::from_multiple(yaml).map_err(|error| RenderError::Manifest(Box::new(error)))
}

/// The PersistentVolumeClaims of the NATS servers.
pub fn claims(replicas: Replicas) -> impl Iterator<Item = String> {
    (0..u8::from(replicas)).map(|index| format!("data-{NATS}-{index}"))
}

fn metadata(namespace: &str, name: &str) -> ObjectMeta {
    let (label, value) = PART_OF;
    ObjectMeta {
        name: Some(name.to_owned()),
        namespace: Some(namespace.to_owned()),
        labels: Some(BTreeMap::from([(label.to_owned(), value.to_owned())])),
        ..ObjectMeta::default()
    }
}

/// Changes a part of an object as a typed value.
fn change<T: Serialize + DeserializeOwned>(
    object: &mut DynamicObject,
    pointer: &str,
    edit: impl FnOnce(&mut T) -> Result<(), String>,
) -> Result<(), RenderError> {
    let name = format!(
        "{} {}",
        object.types.as_ref().map_or("", |types| types.kind.as_str()),
        object.metadata.name.as_deref().unwrap_or_default()
    );
    let failed = |problem: String| RenderError::Object { object: name.clone(), problem };
    let place = object.data.pointer_mut(pointer).ok_or_else(|| failed(format!("{pointer} is missing")))?;
    let mut value: T =
        serde_json::from_value(place.take()).map_err(|error| failed(format!("{pointer}: {error}")))?;
    edit(&mut value).map_err(failed)?;
    *place = serde_json::to_value(value).map_err(|error| failed(format!("{pointer}: {error}")))?;
    Ok(())
}

fn container<'a>(template: &'a mut PodTemplateSpec, name: &str) -> Result<&'a mut Container, String> {
    let containers = template.spec.iter_mut().flat_map(|spec| &mut spec.containers);
    containers.into_iter().find(|one| one.name == name).ok_or_else(|| format!("no container {name}"))
}

fn set_hash(object: &mut DynamicObject, hash: &str) -> Result<(), RenderError> {
    change(object, "/spec/template/metadata", |metadata: &mut ObjectMeta| {
        let annotations = metadata.annotations.get_or_insert_default();
        annotations.insert(CONFIG_HASH.to_owned(), hash.to_owned());
        Ok(())
    })
}

fn nats_hash(configuration: &Value, secrets: &Secrets) -> String {
    // Sorted, so that a rotation that exchanges a user's two keys restarts no server.
    let mut keys: Vec<_> = secrets
        .nats
        .iter()
        .filter(|(key, _)| key.rsplit('.').next() == Some("pub"))
        .map(|(_, key)| key)
        .collect();
    keys.sort();
    let mut parts = vec![configuration.to_string().into_bytes()];
    parts.extend(keys.into_iter().cloned());
    parts.extend(secrets.nats.get(secrets::ROUTE_PASSWORD).cloned());
    parts.extend([secrets::CA, secrets::CERT].iter().filter_map(|key| secrets.tls.get(*key).cloned()));
    hash(&parts)
}

/// Of the engine or a driver.
fn part_hash(name: &str, environment: &Value, secrets: &Secrets) -> String {
    let user = name.strip_prefix("eno-").unwrap_or(name);
    let mut parts = vec![environment.to_string().into_bytes()];
    parts.extend(secrets.nats.get(&format!("{user}.pub")).cloned());
    parts.extend(secrets.tls.get(secrets::CA).cloned());
    hash(&parts)
}

fn agent_hash(secrets: &Secrets) -> String {
    let parts: Vec<Vec<u8>> = [
        secrets.agent_tls.get(secrets::CA),
        secrets.metrics.get(secrets::CA),
        secrets.metrics.get(secrets::CERT),
    ]
    .into_iter()
    .flatten()
    .cloned()
    .collect();
    hash(&parts)
}

/// The Secrets that are not empty. cert-manager writes the certificate of NATS itself.
pub(super) fn secret_objects(values: &Values, secrets: &Secrets) -> Result<Vec<DynamicObject>, RenderError> {
    let tls = if values.cert_manager { &Data::new() } else { &secrets.tls };
    let all: [(&str, &str, &Data); 5] = [
        (SYSTEM, NATS, &secrets.nats),
        (SYSTEM, NATS_TLS, tls),
        (NODE, NATS, &secrets.agent),
        (NODE, NATS_TLS, &secrets.agent_tls),
        (NODE, METRICS_TLS, &secrets.metrics),
    ];
    let made = all.into_iter().filter(|(_, _, data)| !data.is_empty());
    Ok(made.map(|(namespace, name, data)| secret(namespace, name, data)).collect::<Result<_, _>>()?)
}

/// A Secret of the operator.
pub(super) fn secret(namespace: &str, name: &str, data: &Data) -> Result<DynamicObject, ApplyError> {
    dynamic(&Secret {
        metadata: metadata(namespace, name),
        data: Some(data.iter().map(|(key, value)| (key.clone(), ByteString(value.clone()))).collect()),
        ..Secret::default()
    })
}

fn hash(parts: &[Vec<u8>]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(u64::try_from(part.len()).unwrap_or_default().to_be_bytes());
        hash.update(part);
    }
    let hash = hash.finalize();
    let short: [u8; 8] = std::array::from_fn(|index| hash[index]);
    format!("{:016x}", u64::from_be_bytes(short))
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use serde_json::json;

    use super::*;
    use crate::install::values::OWN_VARIABLES;

    fn rendered(values: &str) -> Vec<DynamicObject> {
        let values = Values::parse(values).expect("valid values");
        let now = "2026-11-24T12:00:00Z".parse::<Timestamp>().expect("a time");
        let secrets = secrets::complete(&Secrets::default(), &values, now).expect("made").secrets;
        objects(&values, &secrets).expect("objects")
    }

    fn find<'a>(objects: &'a [DynamicObject], kind: &str, name: &str) -> &'a Value {
        objects
            .iter()
            .find(|object| {
                object.types.as_ref().is_some_and(|types| types.kind == kind)
                    && object.name_any().starts_with(name)
            })
            .map_or_else(|| panic!("no {kind} {name}"), |object| &object.data)
    }

    #[test]
    fn values_reach_the_objects() {
        let objects = rendered(
            "image: r/eno:v1\nnatsImage: r/nats:v1\nimagePullPolicy: Never\nimagePullSecrets: [pull]\n\
             nats: {replicas: 3, storageClass: fast, storageSize: 9Gi, memoryLimit: 1Gi}\nclusterID: lab1\n\
             callbackDeny: [10.244.0.0/16, 10.96.0.0/12]\nruntimeDirectory: /run/crio\n\
             openvswitchDirectory: /var/run/ovs\ncniDirectory: /usr/libexec/cni\nsampleImage: busybox:1\nmultusNamespace: multus\nmetallbNamespace: lb\nlog: debug\nadmission: true\n\
             nadDefinition: true\nnodeMetrics: true\nverify: false\n\
             agent: {allowInterfaces: [eth1, eth2], ovsDatapath: netdev, returnPathMask: '0x3000', \
             env: {ENO_OVSDB: 'tcp:127.0.0.1:6640'}}",
        );
        let environment = |objects: &[DynamicObject]| {
            let mut data = objects.iter().map(|object| object.data["data"].clone());
            data.find(|data| data.get("ENO_NATS_URL").is_some()).expect("the environment")
        };
        assert_eq!(environment(&rendered("verify: true")).get("ENO_VERIFY"), None, "it is the default");
        let environment = environment(&objects);
        for (name, value) in [
            ("ENO_CLUSTER_ID", "lab1"),
            ("ENO_CALLBACK_DENY", "10.244.0.0/16,10.96.0.0/12"),
            ("ENO_SAMPLE_IMAGE", "busybox:1"),
            ("ENO_MULTUS_NAMESPACE", "multus"),
            ("ENO_METALLB_NAMESPACE", "lb"),
            ("ENO_LOG", "debug"),
            ("ENO_VERIFY", "false"),
            ("ENO_NATS_REPLICAS", "3"),
        ] {
            assert_eq!(environment[name], value, "{name}");
        }
        let nats = &find(&objects, "StatefulSet", "eno-nats")["spec"];
        let claim = &nats["volumeClaimTemplates"][0]["spec"];
        assert_eq!(
            (&claim["storageClassName"], &claim["resources"]["requests"]["storage"]),
            (&json!("fast"), &json!("9Gi"))
        );
        let pods = &nats["template"]["spec"];
        assert_eq!((&nats["replicas"], &pods["imagePullSecrets"]), (&json!(3), &json!([{"name": "pull"}])));
        let server = &pods["containers"][0];
        assert_eq!((&server["image"], &server["imagePullPolicy"]), (&json!("r/nats:v1"), &json!("Never")));
        assert_eq!(server["resources"]["limits"]["memory"], "1Gi");
        let agents = find(&objects, "DaemonSet", "eno-agent")["spec"]["template"]["spec"].to_string();
        for text in [
            r#""image":"r/eno:v1""#,
            r#"{"hostPath":{"path":"/run/crio"},"name":"runtime"}"#,
            r#"{"mountPath":"/run/crio","mountPropagation":"HostToContainer","name":"runtime","readOnly":true}"#,
            r#""path":"/var/run/ovs""#,
            r#"{"hostPath":{"path":"/usr/libexec/cni","type":"DirectoryOrCreate"},"name":"cni"}"#,
            r#""image":"r/eno:v1","imagePullPolicy":"Never","name":"cni-plugin""#,
            r#"{"name":"ENO_ALLOW_INTERFACES","value":"eth1,eth2"}"#,
            r#"{"name":"ENO_OVS_DATAPATH","value":"netdev"}"#,
            r#"{"name":"ENO_RETURN_PATH_MASK","value":"0x3000"}"#,
            r#"{"name":"ENO_OVSDB","value":"tcp:127.0.0.1:6640"}"#,
        ] {
            assert!(agents.contains(text), "{text} is not in {agents}");
        }
        find(&objects, "MutatingAdmissionPolicy", "eno-finalizer");
        find(&objects, "CustomResourceDefinition", "network-attachment-definitions");
        find(&objects, "Secret", "eno-metrics-tls");
    }

    #[test]
    fn pods_restart_only_when_what_they_read_changes() {
        let now = "2026-11-24T12:00:00Z".parse::<Timestamp>().expect("a time");
        let values = Values::default();
        let secrets = secrets::complete(&Secrets::default(), &values, now).expect("made").secrets;
        let hashes = |values: &Values, secrets: &Secrets| -> BTreeMap<String, String> {
            let objects = objects(values, secrets).expect("objects");
            let hash = |object: &DynamicObject| {
                let hash =
                    object.data.pointer("/spec/template/metadata/annotations")?.get(CONFIG_HASH)?.as_str()?;
                Some((object.name_any(), hash.to_owned()))
            };
            objects.iter().filter_map(hash).collect()
        };
        let before = hashes(&values, &secrets);
        assert_eq!(before.len(), eno_parts::workloads().count());
        let changed = |values: &Values, secrets: &Secrets| -> Vec<String> {
            let after = hashes(values, secrets);
            before
                .iter()
                .filter(|(name, hash)| after[*name] != **hash)
                .map(|(name, _)| name.clone())
                .collect()
        };
        assert_eq!(changed(&values, &secrets), [""; 0]);
        let id = Values::parse("clusterID: x").expect("values");
        let deployments =
            eno_parts::workloads().filter(|one| one.kind == eno_parts::WorkloadKind::Deployment);
        let mut deployments: Vec<&str> = deployments.map(|one| one.name).collect();
        deployments.sort_unstable();
        assert_eq!(changed(&id, &secrets), deployments);
        let mut key = secrets.clone();
        key.nats.insert("engine.pub".into(), b"UX".to_vec());
        assert_eq!(changed(&values, &key), ["eno-engine", "eno-nats"]);
        let mut certificate = secrets.clone();
        certificate.tls.insert(secrets::CERT.into(), b"new".to_vec());
        assert_eq!(changed(&values, &certificate), ["eno-nats"]);
        let mut agent = secrets.clone();
        agent.agent_tls.insert(secrets::CA.into(), b"new".to_vec());
        assert_eq!(changed(&values, &agent), ["eno-agent"]);
        // Exchanged keys of a user: both are valid before and after.
        let mut two = secrets.clone();
        two.nats.insert(next_public("engine"), b"UX".to_vec());
        let mut exchanged = two.clone();
        exchanged.nats.insert(next_public("engine"), two.nats["engine.pub"].clone());
        exchanged.nats.insert("engine.pub".into(), b"UX".to_vec());
        assert_eq!(hashes(&values, &two)["eno-nats"], hashes(&values, &exchanged)["eno-nats"]);
        assert_ne!(hashes(&values, &two)["eno-engine"], hashes(&values, &exchanged)["eno-engine"]);
    }

    #[test]
    fn further_variables_of_agents_replace_none() {
        let objects = rendered("");
        let agents = &find(&objects, "DaemonSet", "eno-agent")["spec"]["template"]["spec"]["containers"];
        let agent = agents.as_array().into_iter().flatten().find(|one| one["name"] == "agent");
        let variables = agent.and_then(|agent| agent["env"].as_array()).expect("variables");
        for name in variables.iter().map(|one| one["name"].as_str().expect("a name")) {
            assert!(OWN_VARIABLES.contains(&name), "{name}");
        }
    }

    #[test]
    fn monitoring_is_there_if_values_ask_for_it() {
        let names = |values: &str| -> Vec<String> {
            let is_theirs = |object: &&DynamicObject| {
                ["PodMonitor", "PrometheusRule"]
                    .contains(&object.types.as_ref().map_or("", |types| types.kind.as_str()))
                    || object.name_any() == "eno-dashboard"
            };
            rendered(values).iter().filter(is_theirs).map(kube::ResourceExt::name_any).collect()
        };
        assert_eq!(names(""), [""; 0]);
        let all = "monitoring: {podMonitors: true, rules: true, dashboard: true, labels: {release: p}}";
        assert_eq!(names(all), ["eno", "eno", "eno-dashboard"]);
        assert_eq!(names(&format!("nodeMetrics: true\n{all}")), ["eno", "eno-agent", "eno", "eno-dashboard"]);
        let objects = rendered(all);
        let labelled = objects.iter().filter(|object| object.labels().get("release").is_some());
        assert_eq!(labelled.count(), 2);
    }

    #[test]
    fn every_object_is_labelled_and_namespaces_come_first() {
        let objects = rendered("certManager: true\nadmission: true");
        for object in &objects {
            assert_eq!(
                object.labels().get(PART_OF.0).map(String::as_str),
                Some(PART_OF.1),
                "{}",
                object.name_any()
            );
        }
        let stages: Vec<_> = objects.iter().map(Stage::of).collect();
        assert!(
            stages.is_sorted() && stages[0] == Stage::Namespaces && stages.last() == Some(&Stage::Agents)
        );
        assert_eq!(stages.iter().filter(|stage| **stage == Stage::Certificates).count(), 4);
    }
}
