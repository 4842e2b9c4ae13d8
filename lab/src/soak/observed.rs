//! Reads the state of every layer.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;

use anyhow::Context as _;
use eno_nbi_crds::{
    ConnectionPoint, EnoResource, FabricDevice, GROUP, L2BridgeDomain, L2Service, L2ServiceAttachment,
    NodePool, Status,
};
use eno_simulator::View;
use futures::future::try_join_all;
use kube::api::{Api, DynamicObject, ListParams};
use kube::{Client, ResourceExt as _};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::sandbox::Sandbox;
use crate::switch;
use eno::apply::nad_resource;

/// A custom resource.
#[derive(Debug, Clone, Default)]
pub(super) struct ObservedObject {
    pub(super) uid: String,
    /// Whether its status is of its current generation.
    pub(super) current: bool,
    pub(super) finalizers: Vec<String>,
    pub(super) deleting: bool,
    pub(super) status: Status,
}

/// A NetworkAttachmentDefinition.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct ObservedNad {
    /// The uids of its owners.
    pub(super) owners: Vec<String>,
    pub(super) config: Value,
}

/// The observed state by name; objects are named `Kind [namespace/]name`.
#[derive(Debug, Clone, Default)]
pub(super) struct ObservedState {
    pub(super) objects: BTreeMap<String, ObservedObject>,
    pub(super) nads: BTreeMap<String, ObservedNad>,
    pub(super) switches: BTreeMap<String, View>,
    /// Versions of every object and every switch, which change with each write.
    pub(super) versions: BTreeMap<String, String>,
}

/// `[namespace/]name`.
fn full_name(object: &impl kube::Resource) -> String {
    let name = object.name_any();
    object.namespace().map_or(name.clone(), |namespace| format!("{namespace}/{name}"))
}

impl ObservedState {
    /// Reads everything.
    pub(super) async fn read(sandbox: &Sandbox, http: &reqwest::Client) -> anyhow::Result<Self> {
        let client = sandbox.client();
        let mut seen = Self::default();
        let (services, attachments, points, pools, devices, domains) = tokio::try_join!(
            list::<L2Service>(&client),
            list::<L2ServiceAttachment>(&client),
            list::<ConnectionPoint>(&client),
            list::<NodePool>(&client),
            list::<FabricDevice>(&client),
            list::<L2BridgeDomain>(&client),
        )?;
        for (name, (version, object)) in
            [services, attachments, points, pools, devices, domains].into_iter().flatten()
        {
            seen.versions.insert(name.clone(), version);
            seen.objects.insert(name, object);
        }
        let nads: Api<DynamicObject> = Api::all_with(client.clone(), &nad_resource());
        for nad in nads.list(&ListParams::default()).await.context("listing NADs")? {
            let name = full_name(&nad);
            seen.versions.insert(format!("NAD {name}"), nad.resource_version().unwrap_or_default());
            let text = nad.data.pointer("/spec/config").and_then(Value::as_str).unwrap_or_default();
            let owners = nad.owner_references().iter().map(|owner| owner.uid.clone()).collect();
            seen.nads
                .insert(name, ObservedNad { owners, config: serde_json::from_str(text).unwrap_or_default() });
        }
        let running = try_join_all(sandbox.switches().iter().map(|info| async move {
            let running =
                switch::running(http, info).await.with_context(|| format!("asking {}", info.name))?;
            anyhow::Ok((info.name.clone(), running))
        }));
        for (name, running) in running.await? {
            seen.versions.insert(format!("switch {name}"), running.version.to_string());
            seen.switches.insert(name, running.view);
        }
        Ok(seen)
    }

    /// The kinds and names of objects of these kinds.
    pub(super) fn names_of(&self, kinds: &[&str]) -> BTreeSet<&str> {
        let of_kind = |name: &&str| name.split_once(' ').is_some_and(|(kind, _)| kinds.contains(&kind));
        self.objects.keys().map(String::as_str).filter(of_kind).collect()
    }
}

async fn list<K>(client: &Client) -> anyhow::Result<Vec<(String, (String, ObservedObject))>>
where
    K: EnoResource + Clone + Debug + DeserializeOwned,
{
    let kind = K::kind(&());
    let objects = Api::<K>::all(client.clone()).list(&ListParams::default()).await;
    let objects = objects.with_context(|| format!("listing {kind}s of {GROUP}"))?;
    let seen = |object: K| {
        let status = object.status().cloned().unwrap_or_default();
        let meta = object.meta();
        let seen = ObservedObject {
            uid: meta.uid.clone().unwrap_or_default(),
            current: status.observed_generation == meta.generation,
            finalizers: meta.finalizers.clone().unwrap_or_default(),
            deleting: meta.deletion_timestamp.is_some(),
            status,
        };
        let version = meta.resource_version.clone().unwrap_or_default();
        (format!("{kind} {}", full_name(&object)), (version, seen))
    };
    Ok(objects.into_iter().map(seen).collect())
}
