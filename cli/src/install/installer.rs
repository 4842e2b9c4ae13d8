//! Applies the operator to a cluster, part by part, and waits for each.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::OnceLock;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, StatefulSet};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, TypeMeta};
use kube::core::GroupVersionKind;
use kube::runtime::wait::{self, Condition, await_condition, conditions};
use kube::{Api, Client, ResourceExt as _};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::time::{Instant, interval_at, timeout_at};

use super::MANAGER;
use super::claims::{Keeper, claim, missing_seeds};
use super::cluster::{self, ReadError, failed, is_missing};
use super::context::{ClusterContext, ContextError};
use super::render::{
    self, NAMESPACES, NATS, NATS_TLS, NODE, PART_OF, RECORD, RenderError, SECRETS, SYSTEM, Stage,
};
use super::requirements::{Refusal, refusals};
use super::rollout::Workload;
use super::secrets::{CA, Completed, Data, SecretError, Secrets, complete};
use super::values::Values;
use crate::apply::{ApplyError, api_of, apply, apply_all, name_of};
use crate::check::Gather;
use crate::check::workloads;

/// The version that is recorded in the cluster.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
/// How long a part may take before its problem is reported.
const PATIENCE: Duration = Duration::from_secs(10);

/// The parts in the order in which they start: each needs those before it.
pub(super) const PARTS: [&[Stage]; 3] = [&[Stage::Nats], &[Stage::Engine], &[Stage::Drivers, Stage::Agents]];
/// The annotation of Secrets that cert-manager has written.
const CERTIFICATE: &str = "cert-manager.io/certificate-name";
/// The Lease of the engines' leader election.
const LEASE: &str = "eno-engine";
/// The kinds that are deleted when the manifests have them no more: group, kind, and whether it has namespaces. Not among
/// them are kinds whose deletion would delete what others made.
const PRUNED: [(&str, &str, bool); 21] = [
    ("", "ServiceAccount", true),
    ("", "ConfigMap", true),
    ("", "Secret", true),
    ("", "Service", true),
    ("apps", "Deployment", true),
    ("apps", "StatefulSet", true),
    ("apps", "DaemonSet", true),
    ("policy", "PodDisruptionBudget", true),
    ("networking.k8s.io", "NetworkPolicy", true),
    ("rbac.authorization.k8s.io", "Role", true),
    ("rbac.authorization.k8s.io", "RoleBinding", true),
    ("rbac.authorization.k8s.io", "ClusterRole", false),
    ("rbac.authorization.k8s.io", "ClusterRoleBinding", false),
    ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy", false),
    ("admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding", false),
    ("admissionregistration.k8s.io", "MutatingAdmissionPolicy", false),
    ("admissionregistration.k8s.io", "MutatingAdmissionPolicyBinding", false),
    ("cert-manager.io", "Issuer", true),
    ("cert-manager.io", "Certificate", true),
    ("monitoring.coreos.com", "PodMonitor", true),
    ("monitoring.coreos.com", "PrometheusRule", true),
];

/// The operator can't be installed.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// The cluster or the caller lacks something. Nothing was changed.
    #[error("nothing was changed:{}", list(.0))]
    Refused(Vec<Refusal>),
    /// A read failed; a retry can help.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// An object was not applied; running it again goes on.
    #[error(transparent)]
    Apply(#[from] ApplyError),
    /// The embedded manifests are invalid, which is a bug of the build.
    #[error(transparent)]
    Render(#[from] RenderError),
    /// A key or certificate can't be made or read.
    #[error(transparent)]
    Secrets(#[from] SecretError),
    /// The admin's context can't be written.
    #[error(transparent)]
    Context(#[from] ContextError),
    /// A part did not become ready in time; running it again goes on.
    #[error(
        "{what} did not become ready in time{why}; when that is repaired, run eno install again: it goes on"
    )]
    Late {
        /// What was waited for.
        what: String,
        /// The problem, if one is known.
        why: String,
    },
    /// A wait failed.
    #[error("waiting for {what}: {cause}")]
    Wait {
        /// What was waited for.
        what: String,
        /// The cause.
        cause: wait::Error,
    },
}

pub(super) fn list(refusals: &[Refusal]) -> String {
    let lines: Vec<_> = refusals.iter().map(ToString::to_string).collect();
    format!("\n  {}", lines.join("\n  "))
}

/// What happens to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Change {
    /// It is created.
    Create,
    /// It is changed.
    Change,
    /// It stays as it is.
    Keep,
    /// It is of an earlier version, and is deleted.
    Prune,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Create => "create",
            Self::Change => "change",
            Self::Keep => "keep",
            Self::Prune => "delete",
        })
    }
}

/// A planned installation.
#[derive(Debug)]
pub struct Plan {
    /// The objects, in the order in which they are applied.
    pub objects: Vec<DynamicObject>,
    /// Objects of an earlier version that are deleted.
    pub pruned: Vec<DynamicObject>,
    /// Keys and certificates, made or kept.
    completed: Completed,
    /// Whether an earlier installation is there.
    pub is_upgrade: bool,
}

/// What was installed.
#[derive(Debug)]
pub struct Installed {
    /// Whether it was an upgrade.
    pub was_upgrade: bool,
    /// Keys and certificates that were made, for people.
    pub made: Vec<&'static str>,
}

/// The objects of a first installation, with new keys and certificates.
pub fn first_objects(values: &Values) -> Result<Vec<DynamicObject>, InstallError> {
    let new = complete(&Secrets::default(), values, Timestamp::now())?;
    Ok(render::objects(values, &new.secrets)?)
}

/// Reads the cluster, and plans what to apply. Refuses what can't work.
pub async fn plan(client: &Client, values: &Values) -> Result<Plan, InstallError> {
    let facts = Box::pin(cluster::facts(client, &first_objects(values)?)).await?;
    let refused = refusals(&facts, values, VERSION);
    if !refused.is_empty() {
        return Err(InstallError::Refused(refused));
    }
    let completed = complete(&cluster::secrets(client).await?, values, Timestamp::now())?;
    let objects = render::objects(values, &completed.secrets)?;
    let pruned = outdated(client, &objects).await?;
    Ok(Plan { objects, pruned, completed, is_upgrade: facts.record.is_some() })
}

/// What would happen to each object, as the API server answers to a dry run.
pub async fn dry_run(client: &Client, plan: &Plan) -> Result<Vec<(Change, DynamicObject)>, InstallError> {
    let mut changes = Vec::new();
    let params = PatchParams { dry_run: true, ..PatchParams::apply(MANAGER).force() };
    for object in &plan.objects {
        let api = api_of(client, object)?;
        let name = object.name_any();
        let before = match api.get_opt(&name).await {
            // Its kind is not defined yet.
            Err(error) if is_missing(&error) => None,
            found => found.map_err(failed(format!("reading {}", name_of(object))))?,
        };
        let change = match before {
            None => Change::Create,
            Some(before) => {
                let after = api.patch(&name, &params, &Patch::Apply(object)).await;
                let after = after.map_err(|cause| ApplyError::Refused {
                    kind: kind(object).to_owned(),
                    name: name_of(object),
                    cause: Box::new(cause),
                })?;
                if is_same(&before, &after) { Change::Keep } else { Change::Change }
            }
        };
        changes.push((change, object.clone()));
    }
    changes.extend(plan.pruned.iter().map(|object| (Change::Prune, object.clone())));
    Ok(changes)
}

/// Whether two states of an object differ in nothing that people wrote.
fn is_same(before: &DynamicObject, after: &DynamicObject) -> bool {
    before.data == after.data
        && before.metadata.labels == after.metadata.labels
        && before.metadata.annotations == after.metadata.annotations
}

/// Installs or upgrades. `report` receives a line per step. The context receives what is for the admin's disk only.
pub async fn install(
    client: &Client,
    values: &Values,
    mut plan: Plan,
    context: Option<&ClusterContext>,
    patience: Duration,
    report: &(dyn Fn(&str) + Send + Sync),
) -> Result<Installed, InstallError> {
    let deadline = Instant::now() + patience;
    let of = |plan: &Plan, stage: Stage| -> Vec<DynamicObject> {
        plan.objects.iter().filter(|object| Stage::of(object) == stage).cloned().collect()
    };
    apply_all(client, MANAGER, &of(&plan, Stage::Namespaces)).await?;
    apply(client, MANAGER, &render::record(values, VERSION, false)?).await?;
    let definitions = of(&plan, Stage::Definitions);
    apply_all(client, MANAGER, &definitions).await?;
    established(client, &definitions, deadline).await?;
    report(&format!("{} definitions of kinds", definitions.len()));
    for stage in [Stage::Access, Stage::Policies] {
        apply_all(client, MANAGER, &of(&plan, stage)).await?;
    }
    report("roles and policies");
    if values.cert_manager {
        apply_all(client, MANAGER, &of(&plan, Stage::Certificates)).await?;
        certificate(client, deadline).await?;
    }
    let keeper = context.map_or(Keeper::Nobody, Keeper::Disk);
    plan.completed = claim(client, values, keeper).await?;
    plan.objects = render::objects(values, &plan.completed.secrets)?;
    let mut configuration = of(&plan, Stage::Configuration);
    configuration.retain(|object| kind(object) != "Secret");
    apply_all(client, MANAGER, &configuration).await?;
    report(&match plan.completed.made.as_slice() {
        [] => "configuration; keys and certificates are kept".to_owned(),
        made => format!("configuration; made: {}", made.join(", ")),
    });
    if let Some(context) = context
        && let Some(missing) = missing_seeds(context, &plan.completed)?
    {
        report(&missing);
    }
    roll_out(client, &plan.objects, &PARTS, deadline, report).await?;
    drop_shared_agent_key(client, values, &plan, deadline, report).await?;
    for object in &plan.pruned {
        delete(client, object).await?;
        report(&format!("deleted {} {} of an earlier version", kind(object), name_of(object)));
    }
    apply(client, MANAGER, &render::record(values, VERSION, true)?).await?;
    Ok(Installed { was_upgrade: plan.is_upgrade, made: plan.completed.made })
}

/// Has NATS refuse the key that agents of an earlier version shared, once all agents use tokens.
async fn drop_shared_agent_key(
    client: &Client,
    values: &Values,
    plan: &Plan,
    deadline: Instant,
    report: &(dyn Fn(&str) + Send + Sync),
) -> Result<(), InstallError> {
    let mut secrets = plan.completed.secrets.clone();
    if !secrets.has_shared_agent_key() {
        return Ok(());
    }
    let dropped = secrets.drop_shared_agent_key();
    let objects = render::objects(values, &secrets)?;
    let configuration: Vec<_> =
        objects.iter().filter(|object| kind(object) == "ConfigMap").cloned().collect();
    apply_all(client, MANAGER, &configuration).await?;
    // The servers need the old key of the Secret until they are replaced.
    roll_out(client, &objects, &[&[Stage::Nats]], deadline, report).await?;
    // Not applied without these keys: what somebody else applied too would stay.
    let nothing: BTreeMap<_, _> = dropped.into_iter().map(|key| (key, Value::Null)).collect();
    let api: Api<Secret> = Api::namespaced(client.clone(), SYSTEM);
    let patch = Patch::Merge(json!({ "data": nothing }));
    let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
    api.patch(NATS, &params, &patch)
        .await
        .map_err(failed(format!("removing the agents' key from Secret {SYSTEM}/{NATS}")))?;
    delete(client, &render::secret(NODE, NATS, &Data::new())?).await?;
    report("NATS refuses the key that all agents shared");
    Ok(())
}

/// Applies the parts of these stages, one group after the other, and waits until each is ready.
pub(super) async fn roll_out(
    client: &Client,
    objects: &[DynamicObject],
    groups: &[&[Stage]],
    deadline: Instant,
    report: &(dyn Fn(&str) + Send + Sync),
) -> Result<(), InstallError> {
    for stages in groups {
        let of_group = |object: &&DynamicObject| stages.contains(&Stage::of(object));
        let objects: Vec<_> = objects.iter().filter(of_group).cloned().collect();
        apply_all(client, MANAGER, &objects).await?;
        let parts = objects.iter().map(|object| ready(client, object, deadline, report));
        futures::future::try_join_all(parts).await?;
        if stages.contains(&Stage::Engine) {
            report(&format!("engine: {} leads", leader(client, deadline).await?));
        }
    }
    Ok(())
}

pub(super) fn kind(object: &DynamicObject) -> &str {
    object.types.as_ref().map_or("", |types| types.kind.as_str())
}

/// The objects that an earlier installation applied and that are not among these.
async fn outdated(client: &Client, objects: &[DynamicObject]) -> Result<Vec<DynamicObject>, InstallError> {
    let id = |object: &DynamicObject| (kind(object).to_owned(), name_of(object));
    let wanted: BTreeSet<_> = objects.iter().map(id).collect();
    let mut found = ours(client).await?;
    // cert-manager may have taken over the certificate.
    found.retain(|object| {
        ![RECORD, NATS_TLS].contains(&object.name_any().as_str()) && !wanted.contains(&id(object))
    });
    Ok(found)
}

/// The objects of the pruned kinds that an installation applied.
pub(super) async fn ours(client: &Client) -> Result<Vec<DynamicObject>, ReadError> {
    let params = ListParams::default().labels(&format!("{}={}", PART_OF.0, PART_OF.1));
    let mut ours = Vec::new();
    for (group, kind, is_namespaced) in PRUNED {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind));
        let is_optional =
            ["cert-manager.io", "monitoring.coreos.com"].contains(&group) || kind.starts_with("Mutating");
        let apis: Vec<Api<DynamicObject>> = if is_namespaced {
            let of = |namespace: &&str| Api::namespaced_with(client.clone(), namespace, &resource);
            NAMESPACES.iter().map(of).collect()
        } else {
            vec![Api::all_with(client.clone(), &resource)]
        };
        // Secrets by name, so that nobody needs rights on others.
        let lists = match kind {
            "Secret" => SECRETS.map(|name| params.clone().fields(&format!("metadata.name={name}"))).to_vec(),
            _ => vec![params.clone()],
        };
        for (api, params) in apis.iter().flat_map(|api| lists.iter().map(move |params| (api, params))) {
            let listed = match api.list(params).await {
                // Not every cluster has this kind, and not everybody may read it.
                Err(error) if is_missing(&error) => continue,
                Err(kube::Error::Api(status)) if status.is_forbidden() && is_optional => continue,
                listed => listed.map_err(failed(format!("listing {}", resource.plural)))?,
            };
            let is_ours = |object: &DynamicObject| {
                object.managed_fields().iter().any(|entry| entry.manager.as_deref() == Some(MANAGER))
            };
            ours.extend(listed.items.into_iter().filter(is_ours).map(|mut object| {
                object.types =
                    Some(TypeMeta { api_version: resource.api_version.clone(), kind: resource.kind.clone() });
                object
            }));
        }
    }
    Ok(ours)
}

async fn delete(client: &Client, object: &DynamicObject) -> Result<(), InstallError> {
    match api_of(client, object)?.delete(&object.name_any(), &DeleteParams::default()).await {
        Err(error) if is_missing(&error) => Ok(()),
        deleted => {
            deleted.map_err(failed(format!("deleting {} {}", kind(object), name_of(object))))?;
            Ok(())
        }
    }
}

async fn established(
    client: &Client,
    definitions: &[DynamicObject],
    deadline: Instant,
) -> Result<(), InstallError> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    for definition in definitions {
        let name = definition.name_any();
        let what = format!("CustomResourceDefinition {name}");
        until(api.clone(), &name, &what, conditions::is_crd_established(), deadline).await?;
    }
    Ok(())
}

/// Waits for the certificate that cert-manager makes.
pub(super) async fn certificate(client: &Client, deadline: Instant) -> Result<(), InstallError> {
    let api: Api<Secret> = Api::namespaced(client.clone(), SYSTEM);
    let is_made = |secret: Option<&Secret>| {
        secret.is_some_and(|secret| {
            secret.annotations().contains_key(CERTIFICATE)
                && secret.data.as_ref().is_some_and(|data| data.contains_key(CA))
        })
    };
    let what = format!("cert-manager's Certificate {SYSTEM}/{NATS_TLS}");
    until(api, NATS_TLS, &what, is_made, deadline).await
}

pub(super) async fn until<K>(
    api: Api<K>,
    name: &str,
    what: &str,
    condition: impl Condition<K>,
    deadline: Instant,
) -> Result<(), InstallError>
where
    K: Clone + fmt::Debug + DeserializeOwned + kube::Resource + Send + 'static,
{
    match timeout_at(deadline, await_condition(api, name, condition)).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(cause)) => Err(InstallError::Wait { what: what.to_owned(), cause }),
        Err(_) => Err(InstallError::Late { what: what.to_owned(), why: String::new() }),
    }
}

/// Waits until an engine renews its Lease, and returns its name. Clocks are not compared: they may differ.
pub(super) async fn leader(client: &Client, deadline: Instant) -> Result<String, InstallError> {
    let api: Api<Lease> = Api::namespaced(client.clone(), SYSTEM);
    let holder = |lease: &Lease| {
        let holder = lease.spec.as_ref().and_then(|spec| spec.holder_identity.clone());
        holder.filter(|holder| !holder.is_empty())
    };
    let first = OnceLock::new();
    let is_renewed = |lease: Option<&Lease>| {
        lease.is_some_and(|lease| {
            holder(lease).is_some()
                && first.get_or_init(|| lease.resource_version()) != &lease.resource_version()
        })
    };
    let what = || format!("an engine that leads, by the Lease {SYSTEM}/{LEASE}");
    match timeout_at(deadline, await_condition(api, LEASE, is_renewed)).await {
        Ok(Ok(lease)) => Ok(lease.as_ref().and_then(holder).unwrap_or_default()),
        Ok(Err(cause)) => Err(InstallError::Wait { what: what(), cause }),
        Err(_) => Err(InstallError::Late {
            what: what(),
            why: ": read the log, kubectl -n eno-system logs deployment/eno-engine".to_owned(),
        }),
    }
}

/// Waits for a workload, and reports what is wrong with it if it takes long. Other objects are ready at once.
async fn ready(
    client: &Client,
    object: &DynamicObject,
    deadline: Instant,
    report: &(dyn Fn(&str) + Send + Sync),
) -> Result<(), InstallError> {
    let (name, namespace) = (object.name_any(), object.namespace().unwrap_or_default());
    match kind(object) {
        "Deployment" => {
            let api: Api<Deployment> = Api::namespaced(client.clone(), &namespace);
            Box::pin(workload_ready(client, api, &name, deadline, report)).await
        }
        "StatefulSet" => {
            let api: Api<StatefulSet> = Api::namespaced(client.clone(), &namespace);
            Box::pin(workload_ready(client, api, &name, deadline, report)).await
        }
        "DaemonSet" => {
            let api: Api<DaemonSet> = Api::namespaced(client.clone(), &namespace);
            Box::pin(workload_ready(client, api, &name, deadline, report)).await
        }
        _ => Ok(()),
    }
}

async fn workload_ready<K>(
    client: &Client,
    api: Api<K>,
    name: &str,
    deadline: Instant,
    report: &(dyn Fn(&str) + Send + Sync),
) -> Result<(), InstallError>
where
    K: Clone + fmt::Debug + DeserializeOwned + kube::Resource + Send + 'static,
    for<'a> Workload: From<&'a K>,
{
    let is_ready = |object: Option<&K>| object.is_some_and(|object| Workload::from(object).is_ready());
    let mut waiting = std::pin::pin!(timeout_at(deadline, await_condition(api.clone(), name, is_ready)));
    let mut tick = interval_at(Instant::now() + PATIENCE, PATIENCE);
    let mut reported = String::new();
    loop {
        tokio::select! {
            result = &mut waiting => return match result {
                Ok(Ok(object)) => {
                    if let Some(workload) = object.as_ref().map(Workload::from) {
                        report(&format!("{}: {} of {} ready", workload.part, workload.ready, workload.desired));
                    }
                    Ok(())
                }
                Ok(Err(cause)) => Err(InstallError::Wait { what: name.to_owned(), cause }),
                Err(_) => {
                    let why = trouble(client, name).await;
                    Err(InstallError::Late { what: name.to_owned(), why: why.map(|why| format!(": {why}")).unwrap_or_default() })
                }
            },
            _ = tick.tick() => {
                if let Some(why) = trouble(client, name).await && why != reported {
                    report(&format!("{name} is not ready: {why}"));
                    reported = why;
                }
            }
        }
    }
}

/// What keeps a workload from being ready, as far as it can be read.
async fn trouble(client: &Client, name: &str) -> Option<String> {
    let workload = eno_parts::workloads().find(|workload| workload.name == name)?;
    let fact = Gather::new(client.clone(), PATIENCE).workload(workload).await.ok()??;
    workloads::causes(workload, &fact).first().map(|cause| format!("{}; {}", cause.what, cause.remedy))
}
