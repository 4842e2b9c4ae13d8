//! Takes the operator away: the objects while an engine runs, then the operator, then its kinds.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use eno_engine::forecast::{ClusterState, Kind, Part, ReadError as ListError, StoredError};
use eno_engine::{finalizer, resource, unmark_nodes};
use futures::future::try_join_all;
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, PersistentVolumeClaim, Pod, Secret};
use kube::api::{
    ApiResource, DeleteParams, DynamicObject, ListParams, PartialObjectMeta, Patch, PatchParams,
};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::wait::conditions;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};
use tokio::time::{Instant, timeout_at};

use super::cluster::{self, ReadError, failed, is_missing};
use super::context::{ClusterContext, ContextError};
use super::installer::{self, InstallError, kind, ours, until};
use super::removal::{Inventory, Objects, Request, refusals};
use super::render::{self, DEVICES, RenderError, SYSTEM, Stage};
use super::requirements::{Permission, Refusal};
use super::secrets::Secrets;
use crate::apply::{ApplyError, api_of, nad_resource, name_of, resource_of};

/// How long the Lease of a leading engine may stay without a renewal. An engine renews it every 2 s.
const LEADER_PATIENCE: Duration = Duration::from_secs(10);
/// Maximum concurrent requests.
const CONCURRENCY: usize = 16;
/// Maximum number of objects in an error.
const MAX_OBJECTS: usize = 5;
/// The annotation that lets a FabricDevice go without cleanup.
const FORGET: &str = eno_nbi_crds::FORGET_ANNOTATION;

/// The operator can't be taken away.
#[derive(Debug, thiserror::Error)]
pub enum UninstallError {
    /// Something has to be decided or repaired first. Nothing was removed.
    #[error("nothing was removed:{}", installer::list(.0))]
    Refused(Vec<Refusal>),
    /// A read or a deletion failed; running it again goes on.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// Objects of ENO can't be listed; a retry may help.
    #[error(transparent)]
    List(#[from] ListError),
    /// The objects of the cluster don't have the form that this version knows.
    #[error(transparent)]
    Stored(#[from] StoredError),
    /// The embedded manifests are invalid, which is a bug of the build.
    #[error(transparent)]
    Render(#[from] RenderError),
    /// An object has no type.
    #[error(transparent)]
    Apply(#[from] ApplyError),
    /// The operator's objects can't be listed or waited for; running it again goes on.
    #[error(transparent)]
    Install(#[from] InstallError),
    /// The admin's context can't be removed.
    #[error(transparent)]
    Context(#[from] ContextError),
    /// Objects are still there at the end of the time; running it again goes on.
    #[error("{} not gone in time: {}; when that is repaired, run eno uninstall again: it goes on", .0.len(), .0.iter().take(MAX_OBJECTS).cloned().collect::<Vec<_>>().join("; "))]
    Late(Vec<String>),
}

/// A planned removal.
#[derive(Debug)]
pub struct Removal {
    /// What was read.
    pub inventory: Inventory,
    /// The operator's objects.
    operator: Vec<DynamicObject>,
    /// The kinds of ENO that are defined.
    kinds: Vec<Kind>,
}

/// Reads the cluster, and plans what to remove. Refuses what would leave something behind without its being asked for.
pub async fn plan(client: &Client, request: &Request) -> Result<Removal, UninstallError> {
    let removal = read(client, request).await?;
    let refused = refusals(&removal.inventory, request);
    if refused.is_empty() { Ok(removal) } else { Err(UninstallError::Refused(refused)) }
}

async fn read(client: &Client, request: &Request) -> Result<Removal, UninstallError> {
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
    if nads.is_none_or(|count| count > 0) {
        operator.retain(|object| object.name_any() != nad_definition());
    }
    let (kinds, cluster) = objects(client).await?;
    let leader = if request.objects == Objects::Remove && cluster.keys().next().is_some() {
        Box::pin(installer::leader(client, Instant::now() + LEADER_PATIENCE)).await.ok()
    } else {
        None
    };
    let inventory = Inventory {
        cluster,
        operator: operator.iter().map(|object| format!("{} {}", kind(object), name_of(object))).collect(),
        logins: logins(client).await?,
        claims: claims(client).await?,
        nads,
        leader,
        missing_permissions: Vec::new(),
    };
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
    need(&["list"], &ApiResource::erase::<Secret>(&()), "", DEVICES);
    need(&["list"], &ApiResource::erase::<PersistentVolumeClaim>(&()), "", SYSTEM);
    need(&["get", "list", "watch"], &ApiResource::erase::<Lease>(&()), "", SYSTEM);
    needed
}

/// Whether the removal waits until an object is gone.
fn is_awaited(object: &DynamicObject) -> bool {
    matches!(
        Stage::of(object),
        Stage::Namespaces | Stage::Definitions | Stage::Engine | Stage::Drivers | Stage::Agents
    ) || kind(object) == "StatefulSet"
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

/// The Secrets of the namespace of logins. None of them is the installation's.
async fn logins(client: &Client) -> Result<Vec<String>, ReadError> {
    let api: Api<Secret> = Api::namespaced(client.clone(), DEVICES);
    let listed = api.list_metadata(&ListParams::default()).await;
    let listed = listed.map_err(failed(format!("listing Secrets of namespace {DEVICES}")))?;
    Ok(listed.items.iter().map(|secret| secret.name_any()).collect())
}

async fn claims(client: &Client) -> Result<Vec<String>, ReadError> {
    let api: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), SYSTEM);
    let listed = api.list_metadata(&ListParams::default()).await;
    let listed = listed.map_err(failed(format!("listing PersistentVolumeClaims of namespace {SYSTEM}")))?;
    Ok(listed.items.iter().map(|claim| claim.name_any()).collect())
}

/// Removes what was planned. `report` receives a line per step.
pub async fn uninstall(
    client: &Client,
    request: &Request,
    removal: &Removal,
    context: Option<&ClusterContext>,
    patience: Duration,
    report: &(dyn Fn(&str) + Send + Sync),
) -> Result<(), UninstallError> {
    let deadline = Instant::now() + patience;
    let of = |wanted: &dyn Fn(&DynamicObject) -> bool| -> Vec<&DynamicObject> {
        removal.operator.iter().filter(|object| wanted(object)).collect()
    };
    if request.objects == Objects::Remove {
        clean(client, request, removal, deadline, report).await?;
    }
    // No engine and no agent changes anything from here on.
    let workloads = of(&|object| is_awaited(object) && Stage::of(object) > Stage::Policies);
    delete_all(client, &workloads, deadline).await?;
    report("engine, drivers, agents and NATS are gone");
    let is_policy = |object: &DynamicObject| Stage::of(object) == Stage::Policies;
    delete_all(client, &of(&is_policy), deadline).await?;
    if request.objects == Objects::Abandon {
        let kinds: Vec<_> = removal.kinds.iter().copied().map(|kind| (kind, None)).collect();
        strip_finalizers(client, &removal.kinds).await?;
        gone(client, &kinds, deadline, report).await?;
    }
    if request.objects != Objects::Keep {
        let nodes = unmark_nodes(client.clone()).await.map_err(failed("unmarking nodes"))?;
        if !nodes.is_empty() {
            report(&format!("removed labels and extended resources of {}", nodes.join(", ")));
        }
    }
    let is_kept = |object: &DynamicObject| {
        let (stage, name) = (Stage::of(object), object.name_any());
        let is_objects = stage == Stage::Definitions || name == DEVICES;
        request.objects == Objects::Keep && is_objects
    };
    let is_last = |object: &DynamicObject| Stage::of(object) == Stage::Namespaces;
    delete_all(client, &of(&|object| !is_last(object) && !is_kept(object)), deadline).await?;
    report("roles, configuration and definitions are gone");
    delete_all(client, &of(&|object| is_last(object) && !is_kept(object)), deadline).await?;
    report("namespaces are gone");
    if let Some(context) = context {
        context.remove()?;
    }
    Ok(())
}

/// Has the engine remove all objects. Switches and networks outside of them go last: others name them.
async fn clean(
    client: &Client,
    request: &Request,
    removal: &Removal,
    deadline: Instant,
    report: &(dyn Fn(&str) + Send + Sync),
) -> Result<(), UninstallError> {
    let devices: Api<DynamicObject> = Api::all_with(client.clone(), &resource(Kind::FabricDevice));
    let params = PatchParams { field_manager: Some(super::MANAGER.into()), ..PatchParams::default() };
    for name in &request.forget {
        let patch = json!({"metadata": {"annotations": {FORGET: "true"}}});
        let patched = devices.patch_metadata(name, &params, &Patch::Merge(patch)).await;
        patched.map_err(failed(format!("annotating FabricDevice {name}")))?;
    }
    let is_first = |kind: &Kind| ![Kind::FabricDevice, Kind::PhysicalNetwork].contains(kind);
    let (first, last): (Vec<_>, Vec<_>) = removal.kinds.iter().copied().partition(is_first);
    let mut first: Vec<_> = first.into_iter().map(|kind| (kind, None)).collect();
    // Networks wait for these switches.
    if !request.forget.is_empty() && last.contains(&Kind::FabricDevice) {
        first.push((Kind::FabricDevice, Some(&request.forget)));
    }
    gone(client, &first, deadline, report).await?;
    let last: Vec<_> = last.into_iter().map(|kind| (kind, None)).collect();
    gone(client, &last, deadline, report).await
}

/// Deletes all objects of these kinds, or those of these names, and waits until they are gone. Objects that come
/// meanwhile are deleted too.
async fn gone(
    client: &Client,
    kinds: &[(Kind, Option<&BTreeSet<String>>)],
    deadline: Instant,
    report: &(dyn Fn(&str) + Send + Sync),
) -> Result<(), UninstallError> {
    let waits = kinds.iter().map(async |(kind, names)| {
        let wait = objects_gone(client, *kind, *names);
        let count = timeout_at(deadline, wait).await.ok().transpose()?;
        if let Some(count) = count.filter(|count| *count > 0) {
            report(&format!("{count} {kind} gone"));
        }
        Ok::<_, UninstallError>(count.is_none().then_some((*kind, *names)))
    });
    let late: Vec<_> = try_join_all(waits).await?.into_iter().flatten().collect();
    if late.is_empty() {
        return Ok(());
    }
    let mut remaining = Vec::new();
    for (kind, names) in late {
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource(kind));
        let listed = api.list(&ListParams::default()).await.map_err(failed(format!("listing {kind}s")))?;
        let applies = |object: &DynamicObject| names.is_none_or(|names| names.contains(&object.name_any()));
        remaining.extend(listed.items.iter().filter(|object| applies(object)).map(|object| {
            let message = object.data.pointer("/status/message").and_then(Value::as_str);
            format!("{kind} {}: {}", name_of(object), message.unwrap_or("no engine has looked at it"))
        }));
    }
    if remaining.is_empty() { Ok(()) } else { Err(UninstallError::Late(remaining)) }
}

/// Deletes the objects of a kind and returns their number when they are gone.
async fn objects_gone(
    client: &Client,
    kind: Kind,
    names: Option<&BTreeSet<String>>,
) -> Result<usize, UninstallError> {
    let api: Api<PartialObjectMeta<DynamicObject>> = Api::all_with(client.clone(), &resource(kind));
    let mut events = std::pin::pin!(watcher(api, watcher::Config::default()).default_backoff());
    let mut present: BTreeMap<String, bool> = BTreeMap::new();
    let mut seen = BTreeSet::new();
    let mut is_complete = false;
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Init) => {
                present.clear();
                is_complete = false;
            }
            Ok(Event::InitApply(object) | Event::Apply(object)) => {
                let applies = names.is_none_or(|names| names.contains(&object.name_any()));
                if applies {
                    let is_going = object.metadata.deletion_timestamp.is_some();
                    seen.insert(key(&object));
                    present.insert(key(&object), is_going);
                }
            }
            Ok(Event::Delete(object)) => drop(present.remove(&key(&object))),
            Ok(Event::InitDone) => is_complete = true,
            // The watch starts again by itself; the caller has the deadline.
            Err(_) => continue,
        }
        if !is_complete {
            continue;
        }
        if present.is_empty() {
            break;
        }
        let to_delete: Vec<String> =
            present.iter().filter(|(_, is_going)| !**is_going).map(|(key, _)| key.clone()).collect();
        let deletions = to_delete.iter().map(async |key| {
            let (namespace, name) = key.split_once('/').unwrap_or_default();
            let api: Api<DynamicObject> = if namespace.is_empty() {
                Api::all_with(client.clone(), &resource(kind))
            } else {
                Api::namespaced_with(client.clone(), namespace, &resource(kind))
            };
            match api.delete(name, &DeleteParams::default()).await {
                Err(error) if !is_missing(&error) => {
                    Err(failed(format!("deleting {kind} {}", key.trim_start_matches('/')))(error))
                }
                _ => Ok(()),
            }
        });
        stream::iter(deletions).buffer_unordered(CONCURRENCY).try_collect::<()>().await?;
        for key in to_delete {
            present.insert(key, true);
        }
    }
    Ok(seen.len())
}

fn key(object: &PartialObjectMeta<DynamicObject>) -> String {
    format!("{}/{}", object.namespace().unwrap_or_default(), object.name_any())
}

/// Takes ENO's finalizers from all objects: no engine will clean up.
async fn strip_finalizers(client: &Client, kinds: &[Kind]) -> Result<(), UninstallError> {
    for kind in kinds {
        let resource = resource(*kind);
        let all: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
        let listed = all.list_metadata(&ListParams::default()).await;
        let listed = listed.map_err(failed(format!("listing {kind}s")))?;
        let ours = listed
            .items
            .iter()
            .filter(|object| object.finalizers().iter().any(|one| one == finalizer(*kind)));
        let patches = ours.map(async |object| {
            let api: Api<DynamicObject> = match object.namespace() {
                Some(namespace) => Api::namespaced_with(client.clone(), &namespace, &resource),
                None => all.clone(),
            };
            let others: Vec<_> = object.finalizers().iter().filter(|one| *one != finalizer(*kind)).collect();
            let patch = json!({"metadata": {
                "finalizers": others, "resourceVersion": object.metadata.resource_version,
            }});
            match api.patch_metadata(&object.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await
            {
                Err(error) if is_missing(&error) => Ok(()),
                patched => {
                    patched
                        .map_err(failed(format!("taking the finalizer from {kind} {}", object.name_any())))?;
                    Ok::<_, ReadError>(())
                }
            }
        });
        stream::iter(patches).buffer_unordered(CONCURRENCY).try_collect::<()>().await?;
    }
    Ok(())
}

/// Deletes objects, and waits for those that take a while.
async fn delete_all(
    client: &Client,
    objects: &[&DynamicObject],
    deadline: Instant,
) -> Result<(), UninstallError> {
    let deletions = objects.iter().map(async |object| {
        let api = api_of(client, object)?;
        let name = object.name_any();
        let found = match api.delete(&name, &DeleteParams::foreground()).await {
            Err(error) if is_missing(&error) => return Ok(()),
            deleted => deleted.map_err(failed(format!("deleting {} {}", kind(object), name_of(object))))?,
        };
        if let Some(uid) = found.left().and_then(|found| found.uid()).filter(|_| is_awaited(object)) {
            let what = format!("the end of {} {}", kind(object), name_of(object));
            match until(api.clone(), &name, &what, conditions::is_deleted(&uid), deadline).await {
                Err(InstallError::Late { .. }) => {
                    let why = why_present(&api, &name).await;
                    return Err(UninstallError::Late(vec![format!(
                        "{} {}{why}",
                        kind(object),
                        name_of(object)
                    )]));
                }
                result => result?,
            }
        }
        Ok(())
    });
    stream::iter(deletions).buffer_unordered(CONCURRENCY).try_collect().await
}

/// Why an object is still there, as its conditions say.
async fn why_present(api: &Api<DynamicObject>, name: &str) -> String {
    let found = api.get(name).await.ok();
    let conditions = found.as_ref().and_then(|found| found.data.pointer("/status/conditions")?.as_array());
    let holds = |condition: &&Value| condition["status"] == "True" && condition["message"].is_string();
    let messages = conditions.into_iter().flatten().filter(holds);
    messages.map(|condition| format!(": {}", condition["message"].as_str().unwrap_or_default())).collect()
}
