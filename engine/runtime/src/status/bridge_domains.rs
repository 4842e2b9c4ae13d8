//! Maintains an L2BridgeDomain for each L2Service in use, for fabric plugins that watch them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use eno_core::kinds::BridgeDomainSpec;
use eno_core::{Key, Kind, Name};
use kube::Client;
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, Preconditions};
use serde_json::json;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::api;
use crate::metrics::Metrics;
use crate::nodes::reconcile_queue::{self, QueueOptions};
use crate::watch::ingest::MANAGED_BY;

/// A service and the desired spec of its bridge domain; `None`: it is to be deleted.
pub type DesiredBridgeDomain = (Name, Option<BridgeDomainSpec>);

/// Reconciles bridge domains until `stop`.
pub async fn run(
    client: Client,
    desired: mpsc::UnboundedReceiver<DesiredBridgeDomain>,
    metrics: Arc<Metrics>,
    stop: CancellationToken,
) {
    let domains: Api<DynamicObject> = Api::all_with(client, &api::resource(Kind::L2BridgeDomain));
    let options = QueueOptions { what: "bridge-domain", concurrency: 1, delay: Duration::ZERO };
    reconcile_queue::run(
        options,
        desired,
        &metrics,
        stop,
        |_| "",
        |service, spec| {
            let domains = domains.clone();
            async move { reconcile(&domains, &service, spec.as_ref()).await }
        },
    )
    .await;
}

async fn reconcile(
    domains: &Api<DynamicObject>,
    name: &Name,
    spec: Option<&BridgeDomainSpec>,
) -> Result<(), kube::Error> {
    let found = domains.get_metadata_opt(name).await?;
    let (label, value) = MANAGED_BY;
    let is_managed = |labels: &Option<BTreeMap<String, String>>| {
        labels.as_ref().and_then(|labels| labels.get(label)).is_some_and(|found| found == value)
    };
    let foreign = found.as_ref().is_some_and(|found| !is_managed(&found.metadata.labels));
    if foreign {
        // Written by a user: an input that the engine never changes.
        return Ok(());
    }
    let Some(spec) = spec else {
        let Some(found) = found.filter(|found| found.metadata.deletion_timestamp.is_none()) else {
            return Ok(());
        };
        let preconditions = Preconditions { uid: found.metadata.uid, resource_version: None };
        let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        return match domains.delete(name, &params).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
            Err(error) => Err(error),
        };
    };
    let key = Key::cluster(Kind::L2BridgeDomain, name);
    let body = json!({
        "apiVersion": api::api_version(key.kind),
        "kind": key.kind.as_str(),
        "metadata": { "name": &**name, "labels": { label: value } },
        "spec": spec,
    });
    domains.patch(name, &PatchParams::apply(api::MANAGER).force(), &Patch::Apply(body)).await?;
    Ok(())
}
