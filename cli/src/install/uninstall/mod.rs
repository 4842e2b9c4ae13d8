//! `eno uninstall` takes the operator away: the objects while an engine runs, then the operator, then its kinds.

mod inventory;
pub mod removal;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use eno_engine::forecast::{Kind, ReadError as ListError, StoredError};
use eno_engine::{finalizer, resource, unmark_nodes};
use futures::future::try_join_all;
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use kube::api::{DeleteParams, DynamicObject, ListParams, PartialObjectMeta, Patch, PatchParams};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::wait::conditions;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};
use tokio::time::{Instant, timeout_at};

use self::removal::{Inventory, Objects, Request, refusals};
use super::cluster::{ReadError, failed, is_missing};
use super::context::{ClusterContext, ContextError};
use super::installer::{self, InstallError, kind, until};
use super::render::{RenderError, Stage};
use super::requirements::Refusal;
use crate::apply::{ApplyError, api_of, name_of};

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
    let removal = inventory::read(client, request).await?;
    let refused = refusals(&removal.inventory, request);
    if refused.is_empty() { Ok(removal) } else { Err(UninstallError::Refused(refused)) }
}

/// Whether the removal waits until an object is gone.
fn is_awaited(object: &DynamicObject) -> bool {
    matches!(
        Stage::of(object),
        Stage::Namespaces | Stage::Definitions | Stage::Engine | Stage::Drivers | Stage::Agents
    ) || kind(object) == "StatefulSet"
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
        request.objects == Objects::Keep && removal::belongs_to_objects(kind(object), &object.name_any())
    };
    let is_last = |object: &DynamicObject| Stage::of(object) == Stage::Namespaces;
    delete_all(client, &of(&|object| !is_last(object) && !is_kept(object)), deadline).await?;
    report(if request.objects == Objects::Keep {
        "roles and configuration are gone"
    } else {
        "roles, configuration and definitions are gone"
    });
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
    let holds = |condition: &&Value| condition["status"] == "True";
    let messages = conditions.into_iter().flatten().filter(holds);
    let messages: Vec<_> = messages.filter_map(|condition| condition["message"].as_str()).collect();
    if messages.is_empty() { String::new() } else { format!(": {}", messages.join(", ")) }
}
