//! The identifier of the cluster in the names of its VLANs on devices. It has to stay the same: the engine would not
//! recognise VLANs under another identifier as its own.

use std::collections::BTreeMap;
use std::time::Duration;

use eno_core::Kind;
use eno_sbi::nats::{Connection, ensure_streams};
use eno_schemas::Desired;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, DynamicObject, ListParams};
use kube::{Client, ResourceExt as _};
use sha2::{Digest as _, Sha256};
use tracing::warn;

use crate::api;
use crate::commands::drivers;
use crate::metrics::Metrics;
use crate::status::convert::CLUSTER_ID;

/// Delay between two attempts.
const RETRY_DELAY: Duration = Duration::from_secs(1);
/// The identifier that manifests set for every cluster before engines stored one.
const LEGACY_ID: &str = "k8s";

/// Sources of the identifier.
pub struct Sources<'a> {
    /// Client of the API server.
    pub client: &'a Client,
    /// Connection to NATS.
    pub connection: &'a Connection,
    /// Metrics; unreadable messages are counted.
    pub metrics: &'a Metrics,
    /// The identifier from the flags.
    pub configured: Option<&'a str>,
}

/// A cluster, as devices identify it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cluster {
    /// 1 to 8 characters of a-z and 0-9.
    pub id: String,
    /// Uid of the namespace kube-system; `None`: the engine may not read it.
    pub uid: Option<String>,
}

/// Identifiers that were found in use.
#[derive(Clone, Debug, Default)]
struct ExistingIds {
    /// For each FabricDevice with a status: the identifier in it.
    devices: Vec<Option<String>>,
    /// The identifier in each command on NATS.
    commands: Vec<String>,
}

impl Sources<'_> {
    /// Returns the configured identifier, else the one that the Lease stores, else the one in use on devices, else one
    /// derived from the cluster's uid. Waits for the API server and NATS.
    pub async fn find(&self, kept: Option<&str>) -> Cluster {
        let kept = kept.filter(|kept| match parse(kept) {
            Ok(_) => true,
            Err(error) => {
                warn!(kept, error, "the cluster ID in the Lease is not used");
                false
            }
        });
        if let (Some(kept), Some(configured)) = (kept, self.configured.filter(|id| kept != Some(id))) {
            warn!(
                kept,
                configured, "the cluster ID was changed: VLANs under the former one are left as they are"
            );
        }
        let known = self.configured.or(kept).map(str::to_owned);
        let uid = self.uid(known.is_some()).await;
        let id = match known {
            Some(id) => id,
            None => choose(&self.existing_ids().await, uid.as_deref().unwrap_or_default()),
        };
        Cluster { id, uid }
    }

    async fn uid(&self, is_known: bool) -> Option<String> {
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        loop {
            match namespaces.get_metadata("kube-system").await {
                Ok(namespace) => return namespace.uid(),
                Err(kube::Error::Api(status)) if is_known && status.code == 403 => {
                    warn!(
                        "the namespace kube-system may not be read: other clusters with this cluster ID go unnoticed"
                    );
                    return None;
                }
                Err(error) => warn!(%error, "the namespace kube-system can't be read, trying again"),
            }
            tokio::time::sleep(RETRY_DELAY).await;
        }
    }

    async fn existing_ids(&self) -> ExistingIds {
        loop {
            match tokio::try_join!(self.devices(), self.commands()) {
                Ok((devices, commands)) => return ExistingIds { devices, commands },
                Err(error) => warn!(%error, "the cluster ID of before can't be looked for, trying again"),
            }
            tokio::time::sleep(RETRY_DELAY).await;
        }
    }

    async fn devices(&self) -> Result<Vec<Option<String>>, async_nats::Error> {
        let devices: Api<DynamicObject> =
            Api::all_with(self.client.clone(), &api::resource(Kind::FabricDevice));
        let devices = devices.list(&ListParams::default()).await?;
        let id = |device: &DynamicObject| {
            let status = device.data.get("status")?;
            status.get("phase")?;
            Some(status.get(CLUSTER_ID).and_then(|id| id.as_str()).map(str::to_owned))
        };
        Ok(devices.iter().filter_map(id).collect())
    }

    async fn commands(&self) -> Result<Vec<String>, async_nats::Error> {
        ensure_streams(&self.connection.jetstream, self.connection.replicas).await?;
        let commands = drivers::commands(self.connection, self.metrics).await?.commands;
        let id = |desired| match desired {
            Desired::Fabric(desired) => Some(desired.cluster),
            Desired::Node(desired) => Some(desired.cluster),
            Desired::Nad(_) | Desired::Speaker(_) => None,
        };
        Ok(commands.into_iter().filter_map(|stored| id(stored.command?.desired)).collect())
    }
}

fn choose(found: &ExistingIds, uid: &str) -> String {
    let devices = most_frequent(found.devices.iter().flatten());
    if let Some(id) = devices.or_else(|| most_frequent(&found.commands)) {
        return id;
    }
    if found.devices.is_empty() {
        return short(uid);
    }
    warn!(id = LEGACY_ID, "FabricDevices were served before, and nothing tells under which cluster ID");
    LEGACY_ID.to_owned()
}

fn most_frequent<'a>(ids: impl IntoIterator<Item = &'a String>) -> Option<String> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for id in ids.into_iter().filter_map(|id| parse(id).ok()) {
        *counts.entry(id).or_default() += 1;
    }
    counts.into_iter().max_by_key(|(_, count)| *count).map(|(id, _)| id)
}

/// Validates an identifier.
pub fn parse(text: &str) -> Result<String, String> {
    let good = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    if (1..=8).contains(&text.len()) && text.bytes().all(good) {
        Ok(text.to_owned())
    } else {
        Err("must have 1 to 8 characters of a-z and 0-9".to_owned())
    }
}

/// Derives 8 characters of `[a-z0-9]` from a uid.
fn short(uid: &str) -> String {
    const ALPHABET: &[u8; 36] = b"abcdefghijklmnopqrstuvwxyz0123456789";
    let digit = |byte: &u8| char::from(ALPHABET[usize::from(*byte) % ALPHABET.len()]);
    Sha256::digest(uid.as_bytes()).iter().take(8).map(digit).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const UID: &str = "5b2e3c3e-7e49-4c0e-9a37-4fbe4a1a4e61";

    #[test]
    fn short_id_derives_from_uid() {
        let id = short(UID);
        assert_eq!(id, short(UID));
        assert_ne!(id, short("5b2e3c3e-7e49-4c0e-9a37-4fbe4a1a4e62"));
        assert_eq!(parse(&id).as_deref(), Ok(id.as_str()));
        assert_eq!(id.len(), 8);
    }

    #[test]
    fn existing_cluster_id_is_kept_by_frequency() {
        let ids = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect::<Vec<_>>();
        let found = |devices: &[&str], commands: &[&str]| ExistingIds {
            devices: ids(devices).into_iter().map(|id| Some(id).filter(|id| !id.is_empty())).collect(),
            commands: ids(commands),
        };
        for (devices, commands, expected) in [
            (&[][..], &[][..], short(UID)),
            (&["lab", ""], &["k8s"], "lab".into()),
            (&["a", "b", "b"], &[], "b".into()),
            (&["", ""], &["k8s", "k8s", "x"], "k8s".into()),
            // From the command of a node.
            (&[], &["lab"], "lab".into()),
            (&[], &["NOT ONE"], short(UID)),
            (&[""], &[], LEGACY_ID.into()),
        ] {
            assert_eq!(choose(&found(devices, commands), UID), expected, "{devices:?} {commands:?}");
        }
    }
}
