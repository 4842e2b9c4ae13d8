//! L2BridgeDomains for fabric plugins that watch them, one per L2Service in use.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use eno_core::spec::BridgeDomainSpec;
use eno_core::{Key, Kind, Name};
use kube::Client;
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, Preconditions};
use serde_json::json;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::api;
use crate::ingest::MANAGED_BY;
use crate::metrics::Metrics;

/// What is wanted of a service's bridge domain; `None`: that it is not there.
pub type Wanted = (Name, Option<BridgeDomainSpec>);

const PAUSE: Duration = Duration::from_secs(2);

/// Brings them to what is wanted until `stop`; only the latest of each service counts.
pub async fn run(
    client: Client,
    mut wanted: mpsc::UnboundedReceiver<Wanted>,
    metrics: Arc<Metrics>,
    stop: CancellationToken,
) {
    let domains: Api<DynamicObject> = Api::all_with(client, &api::resource(Kind::L2BridgeDomain));
    let mut todo: BTreeMap<Name, Option<BridgeDomainSpec>> = BTreeMap::new();
    loop {
        while let Ok((name, spec)) = wanted.try_recv() {
            todo.insert(name, spec);
        }
        let Some((name, spec)) = todo.pop_first() else {
            let next = tokio::select! {
                next = wanted.recv() => next,
                () = stop.cancelled() => None,
            };
            let Some((name, spec)) = next else { return };
            todo.insert(name, spec);
            continue;
        };
        let result = tokio::select! {
            result = bring(&domains, &name, spec.as_ref()) => result,
            () = stop.cancelled() => return,
        };
        match result {
            Ok(()) => metrics.write("bridge-domain", "done"),
            Err(error) => {
                metrics.write("bridge-domain", "retry");
                warn!(service = &*name, %error, "the L2BridgeDomain was not written, trying again");
                todo.entry(name).or_insert(spec);
                tokio::select! {
                    () = tokio::time::sleep(PAUSE) => {}
                    () = stop.cancelled() => return,
                }
            }
        }
    }
}

async fn bring(
    domains: &Api<DynamicObject>,
    name: &Name,
    spec: Option<&BridgeDomainSpec>,
) -> Result<(), kube::Error> {
    let found = domains.get_metadata_opt(name).await?;
    let (label, value) = MANAGED_BY;
    let ours = |labels: &Option<BTreeMap<String, String>>| {
        labels.as_ref().and_then(|labels| labels.get(label)).is_some_and(|found| found == value)
    };
    let foreign = found.as_ref().is_some_and(|found| !ours(&found.metadata.labels));
    if foreign {
        // Written by hand: an input, which is never touched.
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
        "apiVersion": api::api_version(),
        "kind": key.kind.as_str(),
        "metadata": { "name": &**name, "labels": { label: value } },
        "spec": spec,
    });
    domains.patch(name, &PatchParams::apply(api::MANAGER).force(), &Patch::Apply(body)).await?;
    Ok(())
}
