//! Keys and certificates of an installation by Helm. A pod makes them, so those of people are in the cluster too.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use kube::Client;
use kube::api::DynamicObject;
use tokio::time::Instant;

use super::cluster;
use super::context::ClusterContext;
use super::installer::{InstallError, certificate};
use super::render::{self, NODE, SYSTEM};
use super::secrets::{CA, CERT, Data, Files, KEY, METRICS_CA, complete};
use super::values::Values;
use crate::apply::{apply, name_of};

/// The field manager of what `eno keys make` applies.
const MANAGER: &str = "eno-keys";
/// The Secret of the files for people, in eno-system.
pub const PEOPLE: &str = "eno-people";
/// The Secret by which the Prometheus operator scrapes agents, in eno-node.
const SCRAPER: &str = "eno-scraper";

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
    let before = cluster::secrets(client).await?;
    let completed = complete(&before, values, Timestamp::now())?;
    // People's files first: their public keys make no others.
    let (people, scraper) = for_people(completed.files);
    for (namespace, name, made) in [(SYSTEM, PEOPLE, people), (NODE, SCRAPER, scraper)] {
        if made.is_empty() {
            continue;
        }
        let mut data = cluster::secret(client, namespace, name).await?;
        data.extend(made);
        apply(client, MANAGER, &render::secret(namespace, name, &data)?).await?;
    }
    let unchanged: Vec<DynamicObject> = render::secret_objects(values, &before)?;
    for secret in render::secret_objects(values, &completed.secrets)? {
        let is_same = |other: &DynamicObject| name_of(other) == name_of(&secret) && other.data == secret.data;
        if !unchanged.iter().any(is_same) {
            apply(client, MANAGER, &secret).await?;
        }
    }
    Ok(completed.made)
}

/// The data of the Secret of people, and of that of the Prometheus operator.
fn for_people(files: Files) -> (Data, Data) {
    let scraper = [(METRICS_CA, CA), ("scraper.crt", CERT), ("scraper.key", KEY)];
    let scraper = scraper
        .into_iter()
        .filter_map(|(file, key)| Some((key.to_owned(), files.0.get(file)?.clone().into_bytes())))
        .collect();
    let people = files.0.into_iter().map(|(name, text)| (name, text.into_bytes())).collect();
    (people, scraper)
}

/// Writes the files of people to the admin's disk. Returns their names; empty: the cluster has none.
pub async fn fetch(client: &Client, context: &ClusterContext) -> Result<Vec<String>, InstallError> {
    let data = cluster::secret(client, SYSTEM, PEOPLE).await?;
    let files: BTreeMap<String, String> =
        data.into_iter().map(|(name, text)| (name, String::from_utf8_lossy(&text).into_owned())).collect();
    let names = files.keys().cloned().collect();
    context.write(&Files(files))?;
    Ok(names)
}
