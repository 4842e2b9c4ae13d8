//! From values and Secrets to the objects of the operator. Pure: nothing is read here.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{
    ConfigMap, Container, EnvVar, EnvVarSource, LocalObjectReference, PodTemplateSpec, Secret,
    SecretKeySelector,
};
use k8s_openapi::api::networking::v1::{IPBlock, NetworkPolicyPeer, NetworkPolicySpec};
use kube::ResourceExt as _;
use kube::api::{DynamicObject, ObjectMeta};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::secrets::{self, Data, Secrets};
use super::values::{Datapath, PullPolicy, Replicas, Values};
use crate::apply::{ApplyError, dynamic};

/// The operator with one NATS server, as `kubectl kustomize deploy` renders it.
const OPERATOR: &str = include_str!("../../../deploy/rendered/operator.yaml");
/// The operator with three NATS servers, as `kubectl kustomize deploy/nats-cluster-install` renders it.
const OPERATOR_NATS_CLUSTER: &str = include_str!("../../../deploy/rendered/operator-nats-cluster.yaml");
/// The admission policies that set finalizers.
const ADMISSION: &str = include_str!("../../../deploy/admission/finalizer.yaml");
/// The definition of NetworkAttachmentDefinitions.
const NAD_DEFINITION: &str = include_str!("../../../deploy/nad-crd/network-attachment-definitions.yaml");

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
/// The name of the StatefulSet, the Service, the Secrets and the ConfigMap of NATS.
pub const NATS: &str = "eno-nats";
/// The name of the Secrets with certificates of NATS.
pub const NATS_TLS: &str = "eno-nats-tls";
/// The name of the Secret with certificates of agents' metrics.
pub const METRICS_TLS: &str = "eno-metrics-tls";
/// The label of all objects of the operator, and its value.
pub const PART_OF: (&str, &str) = ("app.kubernetes.io/part-of", "eno");
/// The annotation of pods with a hash of the configuration that they read when they start.
const CONFIG_HASH: &str = "eno.k8s.io/config-hash";
/// The network of a NetworkPolicy's peer that stands for the nodes.
const ANY_ADDRESS: &str = "0.0.0.0/0";

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
    /// Admission policies, NetworkPolicies and PodDisruptionBudgets.
    Policies,
    /// Issuers and Certificates of cert-manager.
    Certificates,
    /// Secrets and ConfigMaps.
    Configuration,
    /// NATS.
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
    let operator = match values.nats.replicas {
        Replicas::One => OPERATOR,
        Replicas::Three => OPERATOR_NATS_CLUSTER,
    };
    let mut objects = parse(operator)?;
    if values.admission {
        objects.extend(parse(ADMISSION)?);
    }
    if values.nad_definition {
        objects.extend(parse(NAD_DEFINITION)?);
    }
    for object in &mut objects {
        match object.types.as_ref().map_or("", |types| types.kind.as_str()) {
            "ConfigMap" if object.data["data"].get("nats.conf").is_some() => {
                nats_configuration(object, secrets)?;
            }
            "ConfigMap" => environment(object, values),
            "NetworkPolicy" => node_networks(object, values)?,
            _ => {}
        }
    }
    let configuration: BTreeMap<String, Value> = objects
        .iter()
        .filter(|object| Stage::of(object) == Stage::Configuration)
        .map(|object| (object.name_any(), object.data["data"].clone()))
        .collect();
    for object in &mut objects {
        match object.types.as_ref().map_or("", |types| types.kind.as_str()) {
            "StatefulSet" => nats_servers(object, values, secrets, &configuration)?,
            "Deployment" => part(object, values, secrets, &configuration)?,
            "DaemonSet" => agents(object, values, secrets)?,
            _ => {}
        }
    }
    objects.extend(secret_objects(values, secrets)?);
    if values.cert_manager {
        objects.extend(certificates(values));
    }
    objects.sort_by_key(Stage::of);
    Ok(objects)
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

/// What the engine and the drivers read from their environment.
fn environment(object: &mut DynamicObject, values: &Values) {
    let list = |entries: Vec<String>| Some(entries.join(",")).filter(|text| !text.is_empty());
    let set = |is_set: bool| is_set.then(|| "true".to_owned());
    let text = |value: &Option<_>| value.as_ref().map(ToString::to_string);
    let variables: [(&str, Option<String>); 8] = [
        ("ENO_CLUSTER_ID", values.cluster_id.as_ref().map(ToString::to_string)),
        ("ENO_CALLBACK_ALLOW", list(values.callback_allow.iter().map(ToString::to_string).collect())),
        ("ENO_CALLBACK_DENY", list(values.callback_deny.iter().map(ToString::to_string).collect())),
        ("ENO_CALLBACK_HTTPS_ONLY", set(values.callback_https_only)),
        ("ENO_CALLBACK_PROXY", text(&values.callback_proxy)),
        ("ENO_BRIDGE_DOMAINS", set(values.bridge_domains)),
        ("ENO_SAMPLE_IMAGE", values.sample_image.as_ref().map(ToString::to_string)),
        ("ENO_LOG", Some(values.log.to_string())),
    ];
    for (name, value) in variables {
        if let Some(value) = value {
            object.data["data"][name] = Value::String(value);
        }
    }
}

/// Peers of NetworkPolicies that stand for nodes get the nodes' networks.
fn node_networks(object: &mut DynamicObject, values: &Values) -> Result<(), RenderError> {
    if values.node_cidrs.is_empty() {
        return Ok(());
    }
    let is_any =
        |peer: &NetworkPolicyPeer| peer.ip_block.as_ref().is_some_and(|block| block.cidr == ANY_ADDRESS);
    let nodes = || {
        values.node_cidrs.iter().map(|network| NetworkPolicyPeer {
            ip_block: Some(IPBlock { cidr: network.to_string(), except: None }),
            ..NetworkPolicyPeer::default()
        })
    };
    change(object, "/spec", |spec: &mut NetworkPolicySpec| {
        for rule in spec.ingress.iter_mut().flatten() {
            if let Some(from) = &mut rule.from
                && from.iter().any(is_any)
            {
                from.retain(|peer| !is_any(peer));
                from.extend(nodes());
            }
        }
        Ok(())
    })
}

/// A second key per user is valid while keys are rotated.
fn nats_configuration(object: &mut DynamicObject, secrets: &Secrets) -> Result<(), RenderError> {
    let users: Vec<_> =
        secrets::users().filter(|user| secrets.nats.contains_key(&next_public(user))).collect();
    if users.is_empty() {
        return Ok(());
    }
    let name = format!("ConfigMap {}", object.name_any());
    let text = object.data["data"]["authorization.conf"].as_str().unwrap_or_default();
    let text =
        with_second_keys(text, &users).map_err(|problem| RenderError::Object { object: name, problem })?;
    object.data["data"]["authorization.conf"] = Value::String(text);
    Ok(())
}

/// The key of the Secret with a user's second public key.
pub fn next_public(user: &str) -> String {
    format!("{user}.next.pub")
}

fn variable(user: &str) -> String {
    format!("{}_NKEY", user.replace('-', "_").to_uppercase())
}

fn second_variable(user: &str) -> String {
    format!("{}_NEXT", variable(user))
}

/// Repeats the block of each user in an authorization for NATS, with the variable of its second key.
fn with_second_keys(text: &str, users: &[&str]) -> Result<String, String> {
    let mut text = text.to_owned();
    for user in users {
        let key = format!("nkey: ${}", variable(user));
        let is_end = |rest: &str| !rest.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
        let mut places = text.match_indices(&key).filter(|(at, _)| is_end(&text[at + key.len()..]));
        let (Some((at, _)), None) = (places.next(), places.next()) else {
            return Err(format!("authorization.conf does not have {key} once"));
        };
        let start =
            text[..at].rfind('{').ok_or_else(|| format!("authorization.conf: {key} is in no block"))?;
        let mut depth = 0_usize;
        let length = text[start..]
            .char_indices()
            .find(|(_, c)| {
                match c {
                    '{' => depth += 1,
                    '}' => depth -= 1,
                    _ => {}
                }
                depth == 0
            })
            .map(|(length, _)| length + 1)
            .ok_or_else(|| format!("authorization.conf: the block of {key} does not end"))?;
        let block = text[start..start + length].replace(&key, &format!("nkey: ${}", second_variable(user)));
        text.insert_str(start + length, &format!("\n    {block}"));
    }
    Ok(text)
}

/// Changes that all pods get.
fn pods(template: &mut PodTemplateSpec, values: &Values, hash: &str, image: &str) -> Result<(), String> {
    let annotations = template.metadata.get_or_insert_default().annotations.get_or_insert_default();
    annotations.insert(CONFIG_HASH.to_owned(), hash.to_owned());
    let spec = template.spec.as_mut().ok_or("the pods have no spec")?;
    if !values.image_pull_secrets.is_empty() {
        let secrets = values.image_pull_secrets.iter();
        spec.image_pull_secrets =
            Some(secrets.map(|name| LocalObjectReference { name: name.to_string() }).collect());
    }
    for container in spec.init_containers.iter_mut().flatten().chain(&mut spec.containers) {
        container.image = Some(image.to_owned());
        let policy = match values.image_pull_policy {
            PullPolicy::Always => "Always",
            PullPolicy::IfNotPresent => "IfNotPresent",
            PullPolicy::Never => "Never",
        };
        container.image_pull_policy = Some(policy.to_owned());
    }
    Ok(())
}

fn container<'a>(template: &'a mut PodTemplateSpec, name: &str) -> Result<&'a mut Container, String> {
    let containers = template.spec.iter_mut().flat_map(|spec| &mut spec.containers);
    containers.into_iter().find(|one| one.name == name).ok_or_else(|| format!("no container {name}"))
}

/// Sets an environment variable, which replaces one of the same name.
fn set_variable(container: &mut Container, name: &str, value: String) {
    let variables = container.env.get_or_insert_default();
    variables.retain(|variable| variable.name != name);
    variables.push(EnvVar { name: name.to_owned(), value: Some(value), value_from: None });
}

fn nats_servers(
    object: &mut DynamicObject,
    values: &Values,
    secrets: &Secrets,
    configuration: &BTreeMap<String, Value>,
) -> Result<(), RenderError> {
    // Sorted, so that a rotation that exchanges a user's two keys restarts no server.
    let mut keys: Vec<_> = secrets
        .nats
        .iter()
        .filter(|(key, _)| key.rsplit('.').next() == Some("pub"))
        .map(|(_, key)| key)
        .collect();
    keys.sort();
    let text =
        configuration.iter().filter(|(name, _)| name.starts_with(NATS)).map(|(_, data)| data.to_string());
    let mut parts: Vec<Vec<u8>> = text.map(String::into_bytes).collect();
    parts.extend(keys.into_iter().cloned());
    parts.extend(secrets.nats.get(secrets::ROUTE_PASSWORD).cloned());
    parts.extend([secrets::CA, secrets::CERT].iter().filter_map(|key| secrets.tls.get(*key).cloned()));
    let hash = hash(&parts);
    change(object, "/spec/template", |template: &mut PodTemplateSpec| {
        pods(template, values, &hash, &values.nats_image.to_string())?;
        let nats = container(template, "nats")?;
        for user in secrets::users().filter(|user| secrets.nats.contains_key(&next_public(user))) {
            nats.env.get_or_insert_default().push(EnvVar {
                name: second_variable(user),
                value: None,
                value_from: Some(EnvVarSource {
                    secret_key_ref: Some(SecretKeySelector {
                        name: NATS.to_owned(),
                        key: next_public(user),
                        optional: None,
                    }),
                    ..EnvVarSource::default()
                }),
            });
        }
        let limits = nats.resources.get_or_insert_default().limits.get_or_insert_default();
        limits.insert("memory".to_owned(), quantity(&values.nats.memory_limit));
        Ok(())
    })?;
    change(object, "/spec/volumeClaimTemplates/0/spec", |claim: &mut Value| {
        claim["resources"]["requests"]["storage"] = json!(values.nats.storage_size);
        if let Some(class) = &values.nats.storage_class {
            claim["storageClassName"] = json!(class);
        }
        Ok(())
    })
}

fn quantity(value: &super::values::Quantity) -> k8s_openapi::apimachinery::pkg::api::resource::Quantity {
    k8s_openapi::apimachinery::pkg::api::resource::Quantity(value.to_string())
}

/// The engine or a driver.
fn part(
    object: &mut DynamicObject,
    values: &Values,
    secrets: &Secrets,
    configuration: &BTreeMap<String, Value>,
) -> Result<(), RenderError> {
    let name = object.name_any();
    let user = name.strip_prefix("eno-").unwrap_or(&name).to_owned();
    let environment =
        configuration.iter().filter(|(name, _)| !name.starts_with(NATS)).map(|(_, data)| data.to_string());
    let mut parts: Vec<Vec<u8>> = environment.map(String::into_bytes).collect();
    parts.extend(secrets.nats.get(&format!("{user}.pub")).cloned());
    parts.extend(secrets.tls.get(secrets::CA).cloned());
    let hash = hash(&parts);
    change(object, "/spec/template", |template: &mut PodTemplateSpec| {
        pods(template, values, &hash, &values.image.to_string())
    })
}

fn agents(object: &mut DynamicObject, values: &Values, secrets: &Secrets) -> Result<(), RenderError> {
    let parts: Vec<Vec<u8>> = [
        secrets.nats.get("agent.pub"),
        secrets.agent_tls.get(secrets::CA),
        secrets.metrics.get(secrets::CA),
        secrets.metrics.get(secrets::CERT),
    ]
    .into_iter()
    .flatten()
    .cloned()
    .collect();
    let hash = hash(&parts);
    change(object, "/spec/template", |template: &mut PodTemplateSpec| {
        pods(template, values, &hash, &values.image.to_string())?;
        let agent = container(template, "agent")?;
        set_variable(agent, "ENO_LOG", values.log.to_string());
        if !values.agent.allow_interfaces.is_empty() {
            let names: Vec<_> = values.agent.allow_interfaces.iter().map(ToString::to_string).collect();
            set_variable(agent, "ENO_ALLOW_INTERFACES", names.join(","));
        }
        if values.agent.ovs_datapath == Datapath::Netdev {
            set_variable(agent, "ENO_OVS_DATAPATH", "netdev".to_owned());
        }
        for (name, value) in &values.agent.env {
            set_variable(agent, &name.to_string(), value.to_string());
        }
        let resolver = container(template, "cri-resolver")?;
        set_variable(resolver, "ENO_LOG", values.log.to_string());
        for mount in resolver.volume_mounts.iter_mut().flatten().filter(|mount| mount.name == "runtime") {
            mount.mount_path = values.runtime_directory.to_string();
        }
        let spec = template.spec.as_mut().ok_or("the pods have no spec")?;
        for volume in spec.volumes.iter_mut().flatten() {
            let directory = match volume.name.as_str() {
                "runtime" => &values.runtime_directory,
                "openvswitch" => &values.openvswitch_directory,
                _ => continue,
            };
            if let Some(path) = &mut volume.host_path {
                path.path = directory.to_string();
            }
        }
        Ok(())
    })
}

/// The Secrets that are not empty. cert-manager writes the certificate of NATS itself.
fn secret_objects(values: &Values, secrets: &Secrets) -> Result<Vec<DynamicObject>, RenderError> {
    let tls = if values.cert_manager { &Data::new() } else { &secrets.tls };
    let all: [(&str, &str, &Data); 5] = [
        (SYSTEM, NATS, &secrets.nats),
        (SYSTEM, NATS_TLS, tls),
        (NODE, NATS, &secrets.agent),
        (NODE, NATS_TLS, &secrets.agent_tls),
        (NODE, METRICS_TLS, &secrets.metrics),
    ];
    let made = all.into_iter().filter(|(_, _, data)| !data.is_empty()).map(|(namespace, name, data)| {
        dynamic(&Secret {
            metadata: metadata(namespace, name),
            data: Some(data.iter().map(|(key, value)| (key.clone(), ByteString(value.clone()))).collect()),
            ..Secret::default()
        })
    });
    Ok(made.collect::<Result<_, _>>()?)
}

/// The authority and the certificate of NATS, for cert-manager.
fn certificates(values: &Values) -> Vec<DynamicObject> {
    let object = |kind: &str, name: &str, spec: Value| {
        let (label, value) = PART_OF;
        let object = json!({
            "apiVersion": "cert-manager.io/v1",
            "kind": kind,
            "metadata": {"name": name, "namespace": SYSTEM, "labels": {label: value}},
            "spec": spec,
        });
        serde_json::from_value(object).ok()
    };
    let names: Vec<_> = secrets::NATS_NAMES.to_vec();
    let issuer = |name: &str| json!({"kind": "Issuer", "name": name});
    let (ca, key) =
        (format!("{NATS}-ca"), json!({"algorithm": "ECDSA", "size": 256, "rotationPolicy": "Always"}));
    // Values have no further choice about certificates.
    let _ = values;
    [
        object("Issuer", "eno-self-signed", json!({"selfSigned": {}})),
        object(
            "Certificate",
            &ca,
            json!({
                "isCA": true, "commonName": "ENO NATS authority", "secretName": ca, "duration": "87600h",
                "privateKey": key, "issuerRef": issuer("eno-self-signed"),
            }),
        ),
        object("Issuer", &ca, json!({"ca": {"secretName": ca}})),
        object(
            "Certificate",
            NATS_TLS,
            json!({
                "commonName": NATS, "dnsNames": names, "secretName": NATS_TLS, "duration": "8760h",
                "renewBefore": "1440h", "usages": ["digital signature", "server auth", "client auth"],
                "privateKey": key, "issuerRef": issuer(&ca),
            }),
        ),
    ]
    .into_iter()
    .flatten()
    .collect()
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

    use super::*;

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
             openvswitchDirectory: /var/run/ovs\nsampleImage: busybox:1\nlog: debug\nadmission: true\n\
             nadDefinition: true\nnodeMetrics: true\n\
             agent: {allowInterfaces: [eth1, eth2], ovsDatapath: netdev, env: {ENO_OVSDB: 'tcp:127.0.0.1:6640'}}",
        );
        let environment = objects
            .iter()
            .find(|object| object.data["data"].get("ENO_NATS_URL").is_some())
            .map(|object| &object.data["data"])
            .expect("the environment");
        for (name, value) in [
            ("ENO_CLUSTER_ID", "lab1"),
            ("ENO_CALLBACK_DENY", "10.244.0.0/16,10.96.0.0/12"),
            ("ENO_SAMPLE_IMAGE", "busybox:1"),
            ("ENO_LOG", "debug"),
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
            r#"{"name":"ENO_ALLOW_INTERFACES","value":"eth1,eth2"}"#,
            r#"{"name":"ENO_OVS_DATAPATH","value":"netdev"}"#,
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
        assert_eq!(before.len(), 6);
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
        assert_eq!(
            changed(&id, &secrets),
            ["eno-driver-nad", "eno-driver-netconf", "eno-driver-ovs-fabric", "eno-engine"]
        );
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
    fn second_keys_have_the_same_permissions() {
        let text = "users: [\n {\n  nkey: $ENGINE_NKEY\n  permissions: { publish: [\"a\"] }\n }\n { nkey: $ADMIN_NKEY }\n]";
        assert_eq!(
            with_second_keys(text, &["engine", "admin"]).expect("text"),
            "users: [\n {\n  nkey: $ENGINE_NKEY\n  permissions: { publish: [\"a\"] }\n }\n    {\n  nkey: $ENGINE_NKEY_NEXT\n  \
             permissions: { publish: [\"a\"] }\n }\n { nkey: $ADMIN_NKEY }\n    { nkey: $ADMIN_NKEY_NEXT }\n]"
        );
        assert!(with_second_keys(text, &["agent"]).is_err());
    }

    #[test]
    fn node_networks_replace_any_address() {
        let policy = json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "p"},
            "spec": {"podSelector": {}, "ingress": [{"from": [{"ipBlock": {"cidr": "0.0.0.0/0"}}, {"podSelector": {}}]}]}});
        let mut object: DynamicObject = serde_json::from_value(policy).expect("a policy");
        node_networks(&mut object, &Values::default()).expect("unchanged");
        assert_eq!(object.data["spec"]["ingress"][0]["from"][0]["ipBlock"]["cidr"], "0.0.0.0/0");
        node_networks(&mut object, &Values::parse("nodeCIDRs: [10.1.0.0/16, 10.2.0.0/16]").expect("values"))
            .expect("changed");
        assert_eq!(
            object.data["spec"]["ingress"][0]["from"],
            json!([{"podSelector": {}}, {"ipBlock": {"cidr": "10.1.0.0/16"}}, {"ipBlock": {"cidr": "10.2.0.0/16"}}])
        );
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
