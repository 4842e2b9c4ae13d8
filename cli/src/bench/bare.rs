//! The client to compare with: it makes the same writes and nothing else happens.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use kube::Api;
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use serde_json::{Value, json};

use super::load::{Apis, EVERYWHERE, NAMESPACE, base, each, name};
use crate::apply::apply_all;
use crate::sandbox::Sandbox;

/// Creates `size` pairs, and makes `writes` further writes as the operator would: a NetworkAttachmentDefinition and
/// a status of each object, again and again.
pub(super) async fn run(
    sandbox: &Sandbox,
    size: usize,
    writes: u64,
    concurrency: usize,
) -> anyhow::Result<Duration> {
    let client = sandbox.client();
    apply_all(&client, "eno-bench", &base(&[EVERYWHERE])?).await?;
    let apis = Apis::new(&client);
    let gvk = GroupVersionKind::gvk("k8s.cni.cncf.io", "v1", "NetworkAttachmentDefinition");
    let resource = ApiResource::from_gvk_with_plural(&gvk, "network-attachment-definitions");
    let nads: Api<DynamicObject> = Api::namespaced_with(client, NAMESPACE, &resource);
    let writes = usize::try_from(writes).context("too many writes")?;
    let started = Instant::now();
    each(0..size, concurrency, |index| {
        let (apis, nads) = (&apis, &nads);
        async move {
            apis.create(index).await?;
            let own = writes / size + usize::from(index < writes % size);
            for turn in 0..own {
                write(apis, nads, index, turn).await.context("a write of the operator's kind")?;
            }
            Ok(())
        }
    })
    .await?;
    Ok(started.elapsed())
}

async fn write(apis: &Apis, nads: &Api<DynamicObject>, index: usize, turn: usize) -> kube::Result<()> {
    let name = name(index);
    let params = PatchParams::apply("eno-bench").force();
    match turn % 3 {
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
            let status = status("L2ServiceAttachment", &name, turn);
            apis.attachments.patch_status(&name, &params, &Patch::Apply(status)).await.map(drop)
        }
        _ => {
            let status = status("L2Service", &name, turn);
            apis.services.patch_status(&name, &params, &Patch::Apply(status)).await.map(drop)
        }
    }
}

fn status(kind: &str, name: &str, turn: usize) -> Value {
    json!({
        "apiVersion": "eno.k8s.io/v1alpha1", "kind": kind, "metadata": {"name": name},
        "status": {"phase": "ready", "message": "", "observedGeneration": 1, "transitions": turn},
    })
}
