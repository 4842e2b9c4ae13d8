//! Converts custom resources to the core's objects: parse, don't validate. Text that can't be converted gives an
//! [`Invalid`], which names the field and the remedy. Pure.

mod bgp;
mod connection_point;
mod device;
mod link;
mod pod_links;
mod simple_kinds;
mod subnet;
mod sysctl;
mod vrf;

use eno_core::kinds::{Cause, Invalid, Spec};
use eno_core::{Key, Kind, Labels, Name, Object, Operator, Requirement, Selector, VerifyRequest};
use eno_nbi_crds as crds;
use eno_schemas::VlanId;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::api::{DynamicObject, ObjectMeta};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::api;
use crate::status::convert;

/// Label of L2BridgeDomains that the engine created, in contrast to those of users.
pub const MANAGED_BY: (&str, &str) = ("app.kubernetes.io/managed-by", "eno");

/// The key of a custom resource; `None` without a name, which no API server sends.
pub fn key(kind: Kind, meta: &ObjectMeta) -> Option<Key> {
    let name = Name::from(meta.name.as_deref()?);
    Some(match meta.namespace.as_deref() {
        Some(namespace) => Key::namespaced(kind, &Name::from(namespace), &name),
        None => Key::cluster(kind, &name),
    })
}

/// Converts a custom resource of `kind`.
pub fn object(key: Key, source: &DynamicObject) -> Object {
    let meta = &source.metadata;
    let kind = key.kind;
    let mut parsed = spec(kind, source.data.get("spec").unwrap_or(&Value::Null));
    if let Ok(Spec::Device(device)) = &parsed
        && let Err(invalid) = device::no_link_to_itself(&key.name, device)
    {
        parsed = Err(invalid);
    }
    let unknown_opts = match kind {
        Kind::ConnectionPoint => connection_point::unknown_opts(&source.data["spec"]),
        _ => None,
    };
    let has = |pairs: &Option<std::collections::BTreeMap<String, String>>, (key, value): (&str, &str)| {
        pairs.as_ref().and_then(|pairs| pairs.get(key)).is_some_and(|found| found == value)
    };
    Object {
        uid: Name::from(meta.uid.as_deref().unwrap_or_default()),
        generation: meta.generation.unwrap_or_default(),
        created: meta.creation_timestamp.as_ref().map_or(0, |time| time.0.as_second()),
        deleting: meta.deletion_timestamp.is_some(),
        finalized: meta
            .finalizers
            .as_ref()
            .is_some_and(|all| all.iter().any(|one| one == api::finalizer(kind))),
        forget: has(&meta.annotations, (crds::FORGET_ANNOTATION, "true")),
        verify: verify(&key, meta),
        labels: if kind == Kind::L2Service { labels(meta) } else { Labels::new() },
        generated: kind == Kind::L2BridgeDomain && has(&meta.labels, MANAGED_BY),
        unknown_opts: unknown_opts.map(Name::from),
        spec: parsed,
        status: source.data.get("status").and_then(|value| convert::read(kind, value)),
        key,
    }
}

/// The request of an object for new probes. Any other value of the annotation has no effect.
fn verify(key: &Key, meta: &ObjectMeta) -> Option<VerifyRequest> {
    if !matches!(key.kind, Kind::L2ServiceAttachment | Kind::L2Service | Kind::ConnectionPoint) {
        return None;
    }
    let text = meta.annotations.as_ref()?.get(crds::VERIFY_ANNOTATION)?;
    let crds::VerifyRequest { nonce, mtu, isolation_from } = crds::VerifyRequest::parse(text)?;
    let isolation_from = match isolation_from {
        Some(text) => Some(other_object(key, &text)?),
        None => None,
    };
    Some(VerifyRequest { nonce: nonce.into(), mtu, isolation_from })
}

/// Another L2Service or L2ServiceAttachment of the same kind, by `NAME` or `NAMESPACE/NAME`. `None`: the text names none.
fn other_object(key: &Key, text: &str) -> Option<Key> {
    let (namespace, name) = match (key.kind, text.split_once('/')) {
        (Kind::L2Service | Kind::L2ServiceAttachment, None) => (&*key.namespace, text),
        (Kind::L2ServiceAttachment, Some(both)) => both,
        _ => return None,
    };
    let is_name = |text: &str, max| {
        let is_good =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.');
        (1..=max).contains(&text.len()) && text.bytes().all(is_good)
    };
    let is_good = is_name(name, 253) && (key.namespace.is_empty() || is_name(namespace, 63));
    let other = Key { kind: key.kind, namespace: namespace.into(), name: name.into() };
    Some(other).filter(|other| is_good && other != key)
}

/// Converts the spec of a custom resource of `kind`, as the manifest has it.
pub fn spec(kind: Kind, value: &Value) -> Result<Spec, Invalid> {
    if let Some(url) = value.get("CallbackURL").and_then(Value::as_str) {
        callback_url(url)?;
    }
    Ok(match kind {
        Kind::Route => Spec::Route(subnet::route(&read(value)?)?),
        Kind::Subnet => Spec::Subnet(subnet::subnet(read(value)?)?),
        Kind::NodePool => Spec::NodePool(simple_kinds::node_pool(&read(value)?)?),
        Kind::PhysicalNetwork => Spec::PhysicalNetwork(simple_kinds::physical_network(&read(value)?)?),
        Kind::FabricDevice => Spec::Device(device::device(read(value)?)?),
        Kind::ConnectionPoint => Spec::ConnectionPoint(connection_point::connection_point(read(value)?)?),
        Kind::L2Service => Spec::Service(simple_kinds::service(&read(value)?)?),
        Kind::L2BridgeDomain => Spec::BridgeDomain(simple_kinds::bridge_domain(&read(value)?)?),
        Kind::L2ServiceAttachment => Spec::Attachment(simple_kinds::attachment(&read(value)?)?),
        Kind::VRF => Spec::Vrf(vrf::vrf(&read(value)?)?),
        Kind::VRFAttachment => Spec::VrfAttachment(vrf::attachment(&read(value)?)?),
        Kind::BGPSessionGroup => Spec::BgpSessionGroup(bgp::session_group(&read(value)?)?),
        Kind::Bridge => Spec::Bridge(pod_links::bridge(read(value)?)?),
        Kind::PodNetworkConfig => Spec::PodLinks(pod_links::pod_network_config(read(value)?)?),
        Kind::PodConfig => Spec::PodLinks(pod_links::pod_config(read(value)?)?),
    })
}

/// Deserialises a manifest. The API server has checked its types, unless its CRDs are older than the engine.
fn read<T: DeserializeOwned>(value: &Value) -> Result<T, Invalid> {
    T::deserialize(value).map_err(|error| Invalid {
        field: "spec".into(),
        problem: format!("does not fit the schema: {error}"),
        cause: Cause::Spec,
    })
}

fn callback_url(text: &str) -> Result<(), Invalid> {
    let good = reqwest::Url::parse(text).is_ok_and(|url| {
        matches!(url.scheme(), "http" | "https")
            && url.host_str().is_some_and(|host| !host.is_empty())
            && url.username().is_empty()
            && url.password().is_none()
    });
    if good {
        return Ok(());
    }
    // The text is not shown: it may contain a password.
    let problem = "must be an absolute http or https URL with a host and without user info, such as \
                   https://nfvo.example.com/eno";
    Err(Invalid::new("CallbackURL", problem))
}

fn vlan(field: &str, id: u16) -> Result<VlanId, Invalid> {
    VlanId::new(id).map_err(|_| Invalid::new(field, format!("{id} is not a VLAN ID; use one from 1 to 4094")))
}

/// Names of other objects without duplicates.
fn names(field: &str, names: &[String]) -> Result<Vec<Name>, Invalid> {
    let mut known = std::collections::BTreeSet::new();
    if let Some(double) = names.iter().find(|name| !known.insert(*name)) {
        return Err(Invalid::new(field, format!("{double} is named twice; name it once")));
    }
    Ok(names.iter().map(|name| Name::from(name.as_str())).collect())
}

/// The name of a network interface or bridge: what Linux accepts (`dev_valid_name`, shorter than IFNAMSIZ), without
/// characters that have a meaning elsewhere.
fn interface_name(field: &str, name: &str) -> Result<(), Invalid> {
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-');
    let first = name.as_bytes().first().is_some_and(u8::is_ascii_alphanumeric);
    if name.len() > 15 {
        let problem = format!("{name:?} has {} bytes; an interface name has at most 15", name.len());
        return Err(Invalid::new(field, problem));
    }
    if !first || !name.bytes().all(inner) {
        let problem = format!(
            "{name:?} is not an interface name; begin with a letter or digit and use letters, digits, '_', '.' and '-'"
        );
        return Err(Invalid::new(field, problem));
    }
    Ok(())
}

/// A Kubernetes label selector; `matchLabels` come first.
fn selector(field: &str, source: &LabelSelector) -> Result<Selector, Invalid> {
    let mut all = Vec::new();
    for (key, value) in source.match_labels.iter().flatten() {
        all.push(Requirement { key: key.clone(), operator: Operator::In, values: vec![value.clone()] });
    }
    for (index, expression) in source.match_expressions.iter().flatten().enumerate() {
        let values = expression.values.clone().unwrap_or_default();
        let at = |leaf: &str| format!("{field}.matchExpressions[{index}].{leaf}");
        let operator = match expression.operator.as_str() {
            "In" => Operator::In,
            "NotIn" => Operator::NotIn,
            "Exists" => Operator::Exists,
            "DoesNotExist" => Operator::DoesNotExist,
            other => {
                let problem = format!("{other:?} is unknown; use In, NotIn, Exists or DoesNotExist");
                return Err(Invalid::new(at("operator"), problem));
            }
        };
        if matches!(operator, Operator::In | Operator::NotIn) == values.is_empty() {
            let problem = "needs at least one value with In and NotIn, and none with Exists and DoesNotExist";
            return Err(Invalid::new(at("values"), problem));
        }
        all.push(Requirement { key: expression.key.clone(), operator, values });
    }
    Ok(Selector(all))
}

fn optional_selector(field: &str, source: Option<&LabelSelector>) -> Result<Option<Selector>, Invalid> {
    source.map(|source| selector(field, source)).transpose()
}

/// The labels of an object.
pub fn labels(meta: &ObjectMeta) -> Labels {
    meta.labels.clone().unwrap_or_default()
}

#[cfg(test)]
mod tests;
