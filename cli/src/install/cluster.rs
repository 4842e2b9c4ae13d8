//! Reads what an installation has to know of a cluster.

use std::collections::BTreeSet;

use eno_nbi_crds::L2Service;
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, PersistentVolumeClaim, Secret};
use k8s_openapi::api::storage::v1 as storage;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DynamicObject, ListParams, PostParams};
use kube::{Api, Client, CustomResourceExt as _, ResourceExt as _};

use super::render::{
    METRICS_TLS, NAMESPACES, NATS, NATS_TLS, NODE, RECORD, SYSTEM, VERSION_ANNOTATION, claims,
};
use super::requirements::{Facts, Permission, Record, StorageClass};
use super::secrets::{Data, Secrets};
use super::values::{Replicas, Values};
use crate::apply::{reason, resource_of};

/// Maximum concurrent requests.
const CONCURRENCY: usize = 16;
const DEFAULT_CLASS: &str = "storageclass.kubernetes.io/is-default-class";

/// The API server refused a request, or was unreachable.
#[derive(Debug, thiserror::Error)]
#[error("{operation}: {}", reason(cause))]
pub struct ReadError {
    operation: String,
    cause: Box<kube::Error>,
}

pub(super) fn failed(operation: impl Into<String>) -> impl FnOnce(kube::Error) -> ReadError {
    let operation = operation.into();
    move |cause| ReadError { operation, cause: Box::new(cause) }
}

/// Whether the API server has no such object or kind. Its answer about an unknown group is no Status, so only the code
/// tells.
pub(crate) fn is_missing(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404)
}

/// The uid of the namespace kube-system, which identifies a cluster.
pub async fn uid(client: &Client) -> Result<String, ReadError> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let namespace = namespaces.get("kube-system").await.map_err(failed("reading namespace kube-system"))?;
    Ok(namespace.uid().unwrap_or_default())
}

/// Reads all facts. `objects` are those that shall be applied.
pub async fn facts(client: &Client, objects: &[DynamicObject]) -> Result<Facts, ReadError> {
    let version = async {
        let info = client.apiserver_version().await.map_err(failed("reading the version of Kubernetes"))?;
        let number = |text: &str| text.trim_end_matches(|c: char| !c.is_ascii_digit()).parse().ok();
        Ok(number(&info.major).zip(number(&info.minor)))
    };
    let (
        version,
        storage_classes,
        has_volume,
        record,
        terminating,
        has_nad_definition,
        has_cert_manager,
        has_prometheus_operator,
        definitions,
        missing,
    ) = tokio::try_join!(
        version,
        storage_classes(client),
        has_volume(client),
        record(client),
        terminating(client),
        serves(client, "k8s.cni.cncf.io/v1"),
        serves(client, "cert-manager.io/v1"),
        serves(client, "monitoring.coreos.com/v1"),
        definitions(client),
        missing_permissions(client, objects),
    )?;
    Ok(Facts {
        version,
        storage_classes,
        has_volume,
        record,
        terminating,
        has_nad_definition,
        has_cert_manager,
        has_prometheus_operator,
        definitions,
        missing_permissions: missing,
    })
}

/// The StorageClasses; `None`: they may not be listed.
async fn storage_classes(client: &Client) -> Result<Option<Vec<StorageClass>>, ReadError> {
    let api: Api<storage::StorageClass> = Api::all(client.clone());
    match api.list(&ListParams::default()).await {
        Err(kube::Error::Api(status)) if status.is_forbidden() => Ok(None),
        listed => {
            let listed = listed.map_err(failed("listing StorageClasses"))?;
            let class = |class: storage::StorageClass| StorageClass {
                is_default: class.annotations().get(DEFAULT_CLASS).is_some_and(|value| value == "true"),
                name: class.name_any(),
            };
            Ok(Some(listed.items.into_iter().map(class).collect()))
        }
    }
}

async fn has_volume(client: &Client) -> Result<bool, ReadError> {
    let api: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), SYSTEM);
    let name = claims(Replicas::One).next().unwrap_or_default();
    let claim = readable(api.get_metadata_opt(&name).await);
    let claim = claim.map_err(failed(format!("reading PersistentVolumeClaim {SYSTEM}/{name}")))?;
    Ok(claim.flatten().is_some())
}

/// The operator's namespaces that are being deleted.
async fn terminating(client: &Client) -> Result<Vec<String>, ReadError> {
    let api: Api<Namespace> = Api::all(client.clone());
    let mut terminating = Vec::new();
    for name in NAMESPACES {
        let found = readable(api.get_metadata_opt(name).await);
        let found = found.map_err(failed(format!("reading namespace {name}")))?.flatten();
        if found.is_some_and(|namespace| namespace.metadata.deletion_timestamp.is_some()) {
            terminating.push(name.to_owned());
        }
    }
    Ok(terminating)
}

/// `None` if the caller may not read it. The check of permissions reports that.
fn readable<T>(result: kube::Result<T>) -> kube::Result<Option<T>> {
    match result {
        Err(kube::Error::Api(status)) if status.is_forbidden() => Ok(None),
        result => result.map(Some),
    }
}

/// The record of an earlier installation. `None` also if the caller may not read it.
pub async fn record(client: &Client) -> Result<Option<Record>, ReadError> {
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), SYSTEM);
    let found = readable(api.get_opt(RECORD).await);
    let found = found.map_err(failed(format!("reading ConfigMap {SYSTEM}/{RECORD}")))?;
    Ok(found.flatten().map(|map| {
        let data = map.data.unwrap_or_default();
        let text = |key: &str| data.get(key).cloned().unwrap_or_default();
        let (values, unread) = match Values::parse(&text("values.yaml")) {
            Ok(values) => (values, None),
            Err(error) => (Values::default(), Some(error)),
        };
        Record {
            version: text("version"),
            values,
            unread,
            is_complete: text("phase") == "installed",
            release: data.get("release").cloned(),
        }
    }))
}

/// The version of ENO that the definitions of kinds belong to. `None`: they are not there, do not say it, or the caller
/// may not read them.
async fn definitions(client: &Client) -> Result<Option<String>, ReadError> {
    let name = L2Service::crd_name();
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let found = readable(api.get_metadata_opt(name).await);
    let found = found.map_err(failed(format!("reading CustomResourceDefinition {name}")))?;
    Ok(found.flatten().and_then(|definition| definition.annotations().get(VERSION_ANNOTATION).cloned()))
}

/// Whether the API server serves a group and version.
async fn serves(client: &Client, group_version: &str) -> Result<bool, ReadError> {
    match client.list_api_group_resources(group_version).await {
        Err(error) if is_missing(&error) => Ok(false),
        answer => answer.map(|_| true).map_err(failed(format!("reading what {group_version} has"))),
    }
}

/// What the caller may not do of what applying, pruning and watching these objects needs.
pub async fn missing_permissions(
    client: &Client,
    objects: &[DynamicObject],
) -> Result<Vec<Permission>, ReadError> {
    missing_of(client, needed_permissions(objects)).await
}

/// Those of these rights that the caller lacks.
pub(super) async fn missing_of(
    client: &Client,
    needed: BTreeSet<Permission>,
) -> Result<Vec<Permission>, ReadError> {
    let everything = Permission {
        verb: "*",
        group: "*".to_owned(),
        resource: "*".to_owned(),
        namespace: String::new(),
        name: String::new(),
    };
    if may(client, &everything).await? {
        return Ok(Vec::new());
    }
    let refused = stream::iter(needed)
        .map(|permission| async move { Ok::<_, ReadError>((may(client, &permission).await?, permission)) })
        .buffered(CONCURRENCY)
        .try_collect::<Vec<_>>()
        .await?;
    Ok(refused.into_iter().filter(|(allowed, _)| !allowed).map(|(_, permission)| permission).collect())
}

/// What applying, pruning and watching these objects needs.
pub fn needed_permissions(objects: &[DynamicObject]) -> BTreeSet<Permission> {
    let mut needed = BTreeSet::new();
    let mut need = |verb, group: &str, resource: &str, namespace: &str, name: &str| {
        needed.insert(Permission {
            verb,
            group: group.to_owned(),
            resource: resource.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        });
    };
    for object in objects {
        let Ok(resource) = resource_of(object) else { continue };
        let namespace = object.metadata.namespace.as_deref().unwrap_or_default();
        let name = if resource.plural == "secrets" { object.name_any() } else { String::new() };
        for verb in ["get", "list", "create", "patch", "delete"] {
            need(verb, &resource.group, &resource.plural, namespace, &name);
        }
        let is_watched = ["deployments", "statefulsets", "daemonsets", "customresourcedefinitions"];
        if is_watched.contains(&resource.plural.as_str()) {
            need("watch", &resource.group, &resource.plural, namespace, "");
        }
        // A role may have rights that the caller lacks.
        if ["clusterroles", "roles"].contains(&resource.plural.as_str()) {
            need("escalate", &resource.group, &resource.plural, namespace, &object.name_any());
        }
        if ["clusterrolebindings", "rolebindings"].contains(&resource.plural.as_str()) {
            let role = |field: &str| object.data["roleRef"][field].as_str().unwrap_or_default();
            let plural = if role("kind") == "Role" { "roles" } else { "clusterroles" };
            need("bind", &resource.group, plural, namespace, role("name"));
        }
    }
    for namespace in [SYSTEM, NODE] {
        for resource in ["pods", "persistentvolumeclaims"] {
            need("list", "", resource, namespace, "");
        }
        need("list", "events.k8s.io", "events", namespace, "");
    }
    need("get", "", "persistentvolumeclaims", SYSTEM, "");
    for verb in ["get", "list", "watch"] {
        need(verb, "coordination.k8s.io", "leases", SYSTEM, "");
    }
    needed
}

async fn may(client: &Client, permission: &Permission) -> Result<bool, ReadError> {
    let some = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    let review = SelfSubjectAccessReview {
        spec: SelfSubjectAccessReviewSpec {
            resource_attributes: Some(ResourceAttributes {
                verb: some(permission.verb),
                group: some(&permission.group),
                resource: some(&permission.resource),
                namespace: some(&permission.namespace),
                name: some(&permission.name),
                ..ResourceAttributes::default()
            }),
            ..SelfSubjectAccessReviewSpec::default()
        },
        ..SelfSubjectAccessReview::default()
    };
    let api: Api<SelfSubjectAccessReview> = Api::all(client.clone());
    let answer = api.create(&PostParams::default(), &review).await;
    let answer = answer.map_err(failed("asking for the permissions of this user"))?;
    Ok(answer.status.is_some_and(|status| status.allowed))
}

/// The Secrets of an earlier installation.
pub async fn secrets(client: &Client) -> Result<Secrets, ReadError> {
    let (nats, tls, agent, agent_tls, metrics) = tokio::try_join!(
        secret(client, SYSTEM, NATS),
        secret(client, SYSTEM, NATS_TLS),
        secret(client, NODE, NATS),
        secret(client, NODE, NATS_TLS),
        secret(client, NODE, METRICS_TLS),
    )?;
    Ok(Secrets { nats, agent, tls, agent_tls, metrics })
}

/// The data of a Secret; empty: there is none.
pub(super) async fn secret(client: &Client, namespace: &str, name: &str) -> Result<Data, ReadError> {
    let api: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let found = api.get_opt(name).await.map_err(failed(format!("reading Secret {namespace}/{name}")))?;
    let data = found.and_then(|secret| secret.data).unwrap_or_default();
    Ok(data.into_iter().map(|(key, value)| (key, value.0)).collect())
}
