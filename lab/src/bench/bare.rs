//! The baseline: a client that makes the same writes without an operator.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use kube::Api;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};

use super::counters::{self, Cpu, cpu_since};
use super::load::{Apis, EVERYWHERE, NAMESPACE, SERVICES, base, each, name};
use crate::sandbox::Sandbox;
use eno::apply::{apply_all, nad_resource};

/// The cost of the baseline.
pub(super) struct Bare {
    /// Time to create all pairs and make the operator's writes.
    pub(super) creating: Duration,
    /// Time to delete everything.
    pub(super) deleting: Duration,
    pub(super) creating_cpu: Cpu,
    pub(super) deleting_cpu: Cpu,
}

/// Creates `size` pairs, and makes `writes` further writes like the operator: NetworkAttachmentDefinitions and
/// statuses, in turns. Then deletes everything, and removes the finalizers.
pub(super) async fn run(
    sandbox: &Sandbox,
    size: usize,
    writes: u64,
    concurrency: usize,
) -> anyhow::Result<Bare> {
    let client = sandbox.client();
    apply_all(&client, "eno-bench", &base(&[EVERYWHERE])?).await?;
    let apis = Apis::new(&client);
    let nads: Api<DynamicObject> = Api::namespaced_with(client, NAMESPACE, &nad_resource());
    let writes = usize::try_from(writes).context("too many writes")?;
    let before = counters::cpu(sandbox)?;
    let started = Instant::now();
    each(0..size, concurrency, |index| {
        let (apis, nads) = (&apis, &nads);
        async move {
            apis.create(index).await?;
            let writes_of_pair = writes / size + usize::from(index < writes % size);
            for round in 0..writes_of_pair {
                write(apis, nads, index, round).await.context("a write of the operator's kind")?;
            }
            Ok(())
        }
    })
    .await?;
    let creating = started.elapsed();
    let between = counters::cpu(sandbox)?;
    let started = Instant::now();
    each(0..size, concurrency, |index| delete(&apis, &nads, index)).await?;
    let deleting = started.elapsed();
    let deleting_cpu = cpu_since(counters::cpu(sandbox)?, &between);
    Ok(Bare { creating, deleting, creating_cpu: cpu_since(between, &before), deleting_cpu })
}

/// Deletes a pair and the objects written for it.
async fn delete(apis: &Apis, nads: &Api<DynamicObject>, index: usize) -> anyhow::Result<()> {
    let (name, params) = (name(index), PatchParams::default());
    let no_finalizers = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
    apis.delete(index).await?;
    match nads.delete(&name, &DeleteParams::background()).await {
        // With fewer writes than pairs, some have no definition.
        Err(kube::Error::Api(status)) if status.is_not_found() => {}
        result => drop(result.context("deleting a NetworkAttachmentDefinition")?),
    }
    let taken_off = apis.attachments.patch_metadata(&name, &params, &no_finalizers).await;
    taken_off.context("taking a finalizer off")?;
    if index < SERVICES {
        apis.services
            .patch_metadata(&name, &params, &no_finalizers)
            .await
            .context("taking a finalizer off")?;
    }
    Ok(())
}

async fn write(apis: &Apis, nads: &Api<DynamicObject>, index: usize, round: usize) -> kube::Result<()> {
    let (name, service) = (name(index), name(index % SERVICES));
    let params = PatchParams::apply("eno-bench").force();
    match round % 3 {
        0 => {
            let config = format!(
                r#"{{"cniVersion":"0.3.1","name":"{name}","type":"ovs","vlan":2,"bridge":"br-bench"}}"#
            );
            let nad = json!({
                "apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
                "metadata": {"name": name}, "spec": {"config": config},
            });
            nads.patch(&name, &params, &Patch::Apply(nad)).await.map(drop)
        }
        1 => {
            let status = status("L2ServiceAttachment", &name, round);
            apis.attachments.patch_status(&name, &params, &Patch::Apply(status)).await.map(drop)
        }
        _ => {
            let status = status("L2Service", &service, round);
            apis.services.patch_status(&service, &params, &Patch::Apply(status)).await.map(drop)
        }
    }
}

fn status(kind: &str, name: &str, round: usize) -> Value {
    json!({
        "apiVersion": "eno.k8s.io/v1alpha1", "kind": kind, "metadata": {"name": name},
        "status": {"phase": "ready", "message": "", "observedGeneration": 1, "transitions": round},
    })
}
