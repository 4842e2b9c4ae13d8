//! Keys and certificates of an installation by Helm. A pod makes them, so those of people are in the cluster too.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;
use tokio::time::Instant;

use super::claims::{Keeper, claim, created};
use super::cluster::{self, failed};
use super::context::ClusterContext;
use super::installer::{InstallError, certificate};
use super::render::{NODE, SYSTEM};
use super::secrets::{CA, CERT, Data, Files, KEY, METRICS_CA, user_key};
use super::values::Values;

/// The field manager of what `eno keys make` writes.
pub const MANAGER: &str = "eno-keys";
/// The Secret of the files for people, in eno-system.
pub const PEOPLE: &str = "eno-people";
/// The Secret by which the Prometheus operator scrapes agents, in eno-node.
const SCRAPER: &str = "eno-scraper";
/// The prefix of keys in the Secret of people, whose values are files that may fit the Secrets of NATS, as JSON.
const STAGED: &str = "staged-";

/// Makes the Secrets that are missing, and keeps those that are there. Returns what was made, for people. With
/// cert-manager it waits until that has made the certificate of NATS.
pub async fn make(
    client: &Client,
    values: &Values,
    patience: Duration,
) -> Result<Vec<&'static str>, InstallError> {
    if values.cert_manager {
        certificate(client, Instant::now() + patience).await?;
    }
    Ok(claim(client, values, Keeper::Cluster).await?.made)
}

/// Keeps files beside those of people until it is known whether the cluster accepts them.
pub(super) async fn stage(client: &Client, files: &Files) -> Result<(), InstallError> {
    // A random name.
    let name = format!("{STAGED}{}", user_key()?.public);
    let staged = (name, Some(json!(files.0).to_string().into_bytes()));
    created(client, SYSTEM, PEOPLE).await?;
    patch(client, SYSTEM, PEOPLE, [staged]).await
}

/// What was staged, also by tries that did not come to their end.
pub(super) async fn staged(client: &Client) -> Result<Vec<Files>, InstallError> {
    let data = cluster::secret(client, SYSTEM, PEOPLE).await?;
    let staged = data.iter().filter(|(name, _)| name.starts_with(STAGED));
    Ok(staged.filter_map(|(_, text)| Some(Files(serde_json::from_slice(text).ok()?))).collect())
}

/// Keeps files of people, and drops what was staged.
pub(super) async fn keep(client: &Client, files: &Files) -> Result<(), InstallError> {
    let (people, scraper) = for_people(files);
    for (namespace, name, files) in [(SYSTEM, PEOPLE, people), (NODE, SCRAPER, scraper)] {
        if files.is_empty() {
            continue;
        }
        let stored = created(client, namespace, name).await?.data.unwrap_or_default();
        let staged = stored.keys().filter(|name| name.starts_with(STAGED)).map(|name| (name.clone(), None));
        let is_new =
            |(name, text): &(String, Vec<u8>)| stored.get(name).is_none_or(|stored| stored.0 != *text);
        let new = files.into_iter().filter(is_new).map(|(name, text)| (name, Some(text)));
        patch(client, namespace, name, staged.chain(new)).await?;
    }
    Ok(())
}

/// Changes these keys of a Secret, and no others. `None` removes a key.
async fn patch(
    client: &Client,
    namespace: &str,
    name: &str,
    changes: impl IntoIterator<Item = (String, Option<Vec<u8>>)>,
) -> Result<(), InstallError> {
    let data: BTreeMap<_, _> = changes.into_iter().map(|(name, text)| (name, text.map(ByteString))).collect();
    if data.is_empty() {
        return Ok(());
    }
    let api: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
    let patched = api.patch(name, &params, &Patch::Merge(json!({ "data": data }))).await;
    patched.map_err(failed(format!("writing Secret {namespace}/{name}")))?;
    Ok(())
}

/// The data of the Secret of people, and of that of the Prometheus operator.
fn for_people(files: &Files) -> (Data, Data) {
    let scraper = [(METRICS_CA, CA), ("scraper.crt", CERT), ("scraper.key", KEY)];
    let scraper = scraper
        .into_iter()
        .filter_map(|(file, key)| Some((key.to_owned(), files.0.get(file)?.clone().into_bytes())))
        .collect();
    let people = files.0.iter().map(|(name, text)| (name.clone(), text.clone().into_bytes())).collect();
    (people, scraper)
}

/// Writes the files of people to the admin's disk. Returns their names; empty: the cluster has none.
pub async fn fetch(client: &Client, context: &ClusterContext) -> Result<Vec<String>, InstallError> {
    let data = cluster::secret(client, SYSTEM, PEOPLE).await?;
    let files: BTreeMap<String, String> = data
        .into_iter()
        .filter(|(name, _)| !name.starts_with(STAGED))
        .map(|(name, text)| (name, String::from_utf8_lossy(&text).into_owned()))
        .collect();
    let names = files.keys().cloned().collect();
    context.write(&Files(files))?;
    Ok(names)
}
