//! Writes new keys and certificates, also when several installations run at once: each Secret is that of one of them,
//! and the others take it over.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;

use super::cluster::{ReadError, failed};
use super::context::ClusterContext;
use super::installer::InstallError;
use super::render::{self, METRICS_TLS, NATS, NATS_TLS, NODE, SYSTEM};
use super::secrets::{Completed, Data, Files, PEOPLE, Secrets, complete, fitting, secret_of};
use super::values::Values;
use super::{MANAGER, keys};
use crate::apply::{ApplyError, api_of, name_of};

/// The field manager of Secrets without data. It owns no field.
const CREATOR: &str = "eno-creator";
/// Maximum number of rounds: others write each Secret a few times at most.
const MAX_ROUNDS: usize = 64;

/// Who keeps the files of people.
#[derive(Clone, Copy)]
pub enum Keeper<'a> {
    /// The admin's disk.
    Disk(&'a ClusterContext),
    /// Secrets of the cluster, for an installation by Helm.
    Cluster,
    /// Nobody.
    Nobody,
}

impl Keeper<'_> {
    /// The field manager of the Secrets that are written.
    fn manager(self) -> &'static str {
        match self {
            Self::Disk(_) | Self::Nobody => MANAGER,
            Self::Cluster => keys::MANAGER,
        }
    }

    /// Keeps files until it is known whether the cluster accepts them.
    async fn stage(self, client: &Client, files: &Files) -> Result<(), InstallError> {
        match self {
            Self::Disk(context) => Ok(context.stage(files)?),
            Self::Cluster => keys::stage(client, files).await,
            Self::Nobody => Ok(()),
        }
    }

    /// What was staged, also by tries that did not come to their end.
    async fn staged(self, client: &Client) -> Result<Vec<Files>, InstallError> {
        match self {
            Self::Disk(context) => Ok(context.staged()?),
            Self::Cluster => keys::staged(client).await,
            Self::Nobody => Ok(Vec::new()),
        }
    }

    /// Keeps files that the cluster accepts, and drops what was staged.
    async fn keep(self, client: &Client, files: &Files) -> Result<(), InstallError> {
        match self {
            Self::Disk(context) => {
                context.write(files)?;
                Ok(context.remove_staged()?)
            }
            Self::Cluster => keys::keep(client, files).await,
            Self::Nobody => Ok(()),
        }
    }
}

/// Completes the Secrets of the cluster. What is for people only is kept before the cluster accepts it.
pub async fn claim(client: &Client, values: &Values, keeper: Keeper<'_>) -> Result<Completed, InstallError> {
    let mut made = Vec::new();
    let mut staged = Vec::new();
    for _ in 0..MAX_ROUNDS {
        let stored = stored(client).await?;
        let mut completed = complete(&secrets_of(&stored), values, Timestamp::now())?;
        let Some((secret, version)) = outdated(&stored, values, &completed, keeper)? else {
            let kept = keeper.staged(client).await?;
            for files in staged.iter().chain(&kept) {
                completed.files.0.extend(fitting(files, &completed.secrets).0);
            }
            keeper.keep(client, &completed.files).await?;
            return Ok(Completed { made, ..completed });
        };
        keeper.stage(client, &completed.files).await?;
        staged.push(completed.files);
        if write(client, keeper.manager(), &secret, version).await? {
            let name = name_of(&secret);
            made.extend(completed.made.into_iter().filter(|what| secret_of(what) == name));
        }
    }
    Err(InstallError::Late {
        what: "the Secrets with keys of NATS".to_owned(),
        why: ", since something changes them again and again".to_owned(),
    })
}

/// The Secrets that are there, by namespace and name.
type Stored = BTreeMap<(&'static str, &'static str), Secret>;

async fn stored(client: &Client) -> Result<Stored, ReadError> {
    let names = [(SYSTEM, NATS), (SYSTEM, NATS_TLS), (NODE, NATS), (NODE, NATS_TLS), (NODE, METRICS_TLS)];
    let mut stored = Stored::new();
    for (namespace, name) in names {
        let api: Api<Secret> = Api::namespaced(client.clone(), namespace);
        let found = api.get_opt(name).await.map_err(failed(format!("reading Secret {namespace}/{name}")))?;
        stored.extend(found.map(|found| ((namespace, name), found)));
    }
    Ok(stored)
}

fn secrets_of(stored: &Stored) -> Secrets {
    let data = |namespace, name| -> Data {
        let data = stored.get(&(namespace, name)).and_then(|secret| secret.data.as_ref());
        data.into_iter().flatten().map(|(key, value)| (key.clone(), value.0.clone())).collect()
    };
    Secrets {
        nats: data(SYSTEM, NATS),
        agent: data(NODE, NATS),
        tls: data(SYSTEM, NATS_TLS),
        agent_tls: data(NODE, NATS_TLS),
        metrics: data(NODE, METRICS_TLS),
    }
}

/// The first Secret that is not as it has to be, with the version that was read; `None`: all are.
fn outdated(
    stored: &Stored,
    values: &Values,
    completed: &Completed,
    keeper: Keeper<'_>,
) -> Result<Option<(DynamicObject, Option<String>)>, InstallError> {
    // The Job of the Helm chart leaves complete Secrets as they are, whoever wrote them.
    let is_ours = |secret: &Secret| {
        matches!(keeper, Keeper::Cluster)
            || secret.managed_fields().iter().any(|entry| entry.manager.as_deref() == Some(MANAGER))
    };
    for secret in render::secret_objects(values, &completed.secrets)? {
        let (namespace, name) = (secret.namespace().unwrap_or_default(), secret.name_any());
        let found = stored.get(&(namespace.as_str(), name.as_str()));
        let is_same = |found: &Secret| {
            is_ours(found) && serde_json::to_value(&found.data).is_ok_and(|data| data == secret.data["data"])
        };
        if !found.is_some_and(is_same) {
            return Ok(Some((secret, found.and_then(kube::ResourceExt::resource_version))));
        }
    }
    Ok(None)
}

/// Writes a Secret unless somebody has changed it since that version, or created it. False: somebody has.
async fn write(
    client: &Client,
    manager: &str,
    secret: &DynamicObject,
    version: Option<String>,
) -> Result<bool, InstallError> {
    let name = secret.name_any();
    let version = match version {
        Some(version) => Some(version),
        None => match created(client, &secret.namespace().unwrap_or_default(), &name).await? {
            empty if empty.data.is_none() => empty.resource_version(),
            _ => return Ok(false),
        },
    };
    let mut secret = secret.clone();
    secret.metadata.resource_version = version;
    let params = PatchParams::apply(manager).force();
    match api_of(client, &secret)?.patch(&name, &params, &Patch::Apply(&secret)).await {
        Err(kube::Error::Api(status)) if [404, 409].contains(&status.code) => Ok(false),
        Err(cause) => Err(ApplyError::Refused {
            kind: "Secret".to_owned(),
            name: name_of(&secret),
            cause: Box::new(cause),
        }
        .into()),
        Ok(_) => Ok(true),
    }
}

/// A Secret as it is, or without data if there was none.
///
/// It is applied without a field, since RBAC can't limit POST to names.
pub async fn created(client: &Client, namespace: &str, name: &str) -> Result<Secret, ReadError> {
    let api: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let empty = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}});
    let created = api.patch(name, &PatchParams::apply(CREATOR), &Patch::Apply(&empty)).await;
    created.map_err(failed(format!("creating Secret {namespace}/{name}")))
}

/// What to tell an admin whose disk lacks seeds of people that the cluster accepts; `None`: it has all.
pub fn missing_seeds(
    context: &ClusterContext,
    completed: &Completed,
) -> Result<Option<String>, InstallError> {
    let fitting = fitting(&Files(context.read()?), &completed.secrets);
    let is_missing = |name: &&String| !fitting.0.contains_key(*name);
    let seeds: Vec<String> = PEOPLE.iter().map(|user| format!("{user}.seed")).collect();
    let missing: Vec<&str> = seeds.iter().filter(is_missing).map(String::as_str).collect();
    Ok((!missing.is_empty()).then(|| {
        format!(
            "NATS does not accept what {} has as {}: another installation made these keys; get the files from its \
             admin, or make new ones: eno rotate nats-keys",
            context.directory().display(),
            missing.join(" and ")
        )
    }))
}
