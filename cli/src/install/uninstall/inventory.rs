//! Reads what of the operator is in a cluster.

use std::collections::BTreeSet;
use std::time::Duration;

use eno_engine::forecast::{ClusterState, Kind, Part, ReadError as ListError};
use eno_engine::resource;
use futures::future::try_join_all;
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, PersistentVolumeClaim, Pod, Secret};
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::{Api, Client, ResourceExt};
use serde_json::Value;
use tokio::time::Instant;

use super::removal::{Inventory, Objects, Request};
use super::{CONCURRENCY, Removal, UninstallError, is_awaited};
use crate::apply::{api_of, nad_resource, name_of, resource_of};
use crate::install::cluster::{self, ReadError, failed, is_missing};
use crate::install::installer::{self, kind, ours};
use crate::install::render::{self, DEVICES, SYSTEM};
use crate::install::requirements::Permission;
use crate::install::secrets::Secrets;

/// How long the Lease of a leading engine may stay without a renewal. An engine renews it every 2 s.
const LEADER_PATIENCE: Duration = Duration::from_secs(10);

pub(super) async fn read(client: &Client, request: &Request) -> Result<Removal, UninstallError> {
    let values = cluster::record(client).await?.map(|record| record.values);
    let defines_nads = values.as_ref().is_some_and(|values| values.nad_definition);
    let manifests = render::objects(&values.unwrap_or_default(), &Secrets::default())?;
    let missing = cluster::missing_of(client, needed_permissions(&manifests, request)).await?;
    if !missing.is_empty() {
        let inventory = Inventory { missing_permissions: missing, ..Inventory::default() };
        return Ok(Removal { inventory, operator: Vec::new(), kinds: Vec::new() });
    }
    let mut operator = present(client, manifests).await?;
    let names: BTreeSet<_> = operator.iter().map(id).collect();
    operator.extend(ours(client).await?.into_iter().filter(|object| !names.contains(&id(object))));
    let nads = if defines_nads { nads(client).await? } else { None };
    let (kinds, cluster) = objects(client).await?;
    let leader = if request.objects == Objects::Remove && cluster.keys().next().is_some() {
        Box::pin(installer::leader(client, Instant::now() + LEADER_PATIENCE)).await.ok()
    } else {
        None
    };
    let mut inventory = Inventory {
        cluster,
        operator: Vec::new(),
        logins: logins(client).await?,
        claims: claims(client).await?,
        nads,
        leader,
        missing_permissions: Vec::new(),
    };
    if inventory.remaining_nads(request).is_none_or(|count| count > 0) {
        operator.retain(|object| object.name_any() != nad_definition());
    }
    inventory.operator =
        operator.iter().map(|object| format!("{} {}", kind(object), name_of(object))).collect();
    Ok(Removal { inventory, operator, kinds })
}

fn id(object: &DynamicObject) -> (String, String) {
    (kind(object).to_owned(), name_of(object))
}

/// What an uninstall needs.
pub fn needed_permissions(manifests: &[DynamicObject], request: &Request) -> BTreeSet<Permission> {
    let mut needed = BTreeSet::new();
    let mut need = |verbs: &[&'static str], resource: &ApiResource, subresource: &str, namespace: &str| {
        for verb in verbs {
            needed.insert(Permission {
                verb,
                group: resource.group.clone(),
                resource: format!("{}{subresource}", resource.plural),
                namespace: namespace.to_owned(),
                name: String::new(),
            });
        }
    };
    for object in manifests {
        let Ok(resource) = resource_of(object) else { continue };
        let namespace = object.metadata.namespace.as_deref().unwrap_or_default();
        need(&["get", "list", "delete"], &resource, "", namespace);
        if is_awaited(object) {
            need(&["watch"], &resource, "", namespace);
        }
    }
    for kind in Kind::ALL {
        need(&["list"], &resource(kind), "", "");
        if request.objects != Objects::Keep {
            need(&["watch", "delete"], &resource(kind), "", "");
        }
        if request.objects == Objects::Abandon || kind == Kind::FabricDevice {
            need(&["patch"], &resource(kind), "", "");
        }
    }
    let node = ApiResource::erase::<Node>(&());
    need(&["list"], &node, "", "");
    if request.objects != Objects::Keep {
        need(&["patch"], &node, "", "");
        need(&["patch"], &node, "/status", "");
    }
    need(&["list"], &ApiResource::erase::<Pod>(&()), "", "");
    need(&["list"], &ApiResource::erase::<PersistentVolumeClaim>(&()), "", SYSTEM);
    need(&["get", "list", "watch"], &ApiResource::erase::<Lease>(&()), "", SYSTEM);
    needed
}

/// Those of these objects that exist.
async fn present(client: &Client, objects: Vec<DynamicObject>) -> Result<Vec<DynamicObject>, ReadError> {
    let found = stream::iter(objects).map(async |object| {
        let Ok(api) = api_of(client, &object) else { return Ok(None) };
        match api.get_metadata_opt(&object.name_any()).await {
            Err(error) if is_missing(&error) => Ok(None),
            found => {
                let found =
                    found.map_err(failed(format!("reading {} {}", kind(&object), name_of(&object))))?;
                Ok::<_, ReadError>(found.map(|_| object))
            }
        }
    });
    found.buffered(CONCURRENCY).try_filter_map(async |object| Ok(object)).try_collect().await
}

/// Number of NetworkAttachmentDefinitions; `None`: they are not defined.
async fn nads(client: &Client) -> Result<Option<usize>, ReadError> {
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &nad_resource());
    match api.list_metadata(&ListParams::default()).await {
        Err(error) if is_missing(&error) => Ok(None),
        listed => Ok(Some(listed.map_err(failed("listing NetworkAttachmentDefinitions"))?.items.len())),
    }
}

fn nad_definition() -> String {
    let resource = nad_resource();
    format!("{}.{}", resource.plural, resource.group)
}

/// The kinds of ENO that are defined, and their objects. An object that is being deleted counts as if it were not.
async fn objects(client: &Client) -> Result<(Vec<Kind>, ClusterState), UninstallError> {
    let read = Part::all().map(async |part| {
        let mut values: Vec<(Part, Value)> = Vec::new();
        let visit = |mut value: Value| {
            if let Some(metadata) = value["metadata"].as_object_mut() {
                metadata.remove("deletionTimestamp");
            }
            values.push((part, value));
        };
        match part.list(client, SYSTEM, visit).await {
            Err(ListError::Listing { source, .. }) if is_missing(&source) => Ok(None),
            Err(error) => Err(error),
            Ok(_) => Ok(Some((part, values))),
        }
    });
    let read: Vec<_> = try_join_all(read).await?.into_iter().flatten().collect();
    let kinds = read.iter().filter_map(|(part, _)| match part {
        Part::Objects(kind) => Some(*kind),
        Part::Nodes | Part::Namespaces | Part::Pods => None,
    });
    let kinds = kinds.collect();
    let values = read.into_iter().flat_map(|(_, values)| values);
    Ok((kinds, ClusterState::stored(values, Vec::new(), SYSTEM)?))
}

/// The Secrets of the namespace of logins; `None`: the caller may not list them. None of them is the installation's.
async fn logins(client: &Client) -> Result<Option<Vec<String>>, ReadError> {
    let api: Api<Secret> = Api::namespaced(client.clone(), DEVICES);
    let listed = match api.list_metadata(&ListParams::default()).await {
        Err(kube::Error::Api(status)) if status.is_forbidden() => return Ok(None),
        listed => listed.map_err(failed(format!("listing Secrets of namespace {DEVICES}")))?,
    };
    Ok(Some(listed.items.iter().map(ResourceExt::name_any).collect()))
}

async fn claims(client: &Client) -> Result<Vec<String>, ReadError> {
    let api: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), SYSTEM);
    let listed = api.list_metadata(&ListParams::default()).await;
    let listed = listed.map_err(failed(format!("listing PersistentVolumeClaims of namespace {SYSTEM}")))?;
    Ok(listed.items.iter().map(ResourceExt::name_any).collect())
}
