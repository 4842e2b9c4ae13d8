//! The policy that puts the engine's finalizer on objects as they are created.
//!
//! For some seconds after its start or a new CustomResourceDefinition, an API server refuses objects to which a
//! MutatingAdmissionPolicy applies. It has not read their schema yet. So the policy is bound only once it works for a
//! probe object; until then the engine writes the finalizer.

use std::sync::Arc;
use std::time::Duration;

use kube::api::{DeleteParams, DynamicObject, PostParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;

use super::{MANAGER, SandboxError};
use crate::manifests;
use eno::apply::{api_of, apply};

/// The name of the probe object, and the prefix of the policies that apply only to it.
const PROBE: &str = "eno-sandbox-probe";
/// The name of another probe object, to which those policies don't apply.
const BOUND: &str = "eno-sandbox-bound";
const INTERVAL: Duration = Duration::from_millis(500);

/// Removes the binding of an earlier start.
pub(super) async fn unbind(client: &Client) -> Result<(), SandboxError> {
    for object in manifests::admission()? {
        delete(client, &object).await?;
    }
    Ok(())
}

/// Binds the policy once it works, and waits until it applies to all objects. An API server applies a new policy about
/// a second later; until then the engine writes each finalizer itself.
async fn bind(client: &Client) -> Result<(), SandboxError> {
    let policy = manifests::admission()?;
    let probe: Vec<DynamicObject> = policy.iter().map(only_for_probe).collect();
    for object in &probe {
        apply(client, MANAGER, object).await?;
    }
    until_finalizer_is_set(client, PROBE).await;
    for object in &probe {
        delete(client, object).await?;
    }
    for object in &policy {
        apply(client, MANAGER, object).await?;
    }
    until_finalizer_is_set(client, BOUND).await;
    Ok(())
}

/// Like [`bind`], for a background task.
pub(super) async fn bind_in_background(client: Client, report: Arc<dyn Fn(&str) + Send + Sync>) {
    if let Err(error) = bind(&client).await {
        report(&format!(
            "the admission policy is not bound, the engine puts finalizers on by itself: {error}"
        ));
    }
}

fn only_for_probe(object: &DynamicObject) -> DynamicObject {
    let mut object = object.clone();
    let probe = |name: &str| format!("{PROBE}-{name}");
    object.metadata.name = object.metadata.name.as_deref().map(probe);
    if let Some(name) = object.data.pointer_mut("/spec/policyName") {
        *name = probe(name.as_str().unwrap_or_default()).into();
    }
    if let Some(rule) = object.data.pointer_mut("/spec/matchConstraints/resourceRules/0") {
        rule["resourceNames"] = json!([PROBE]);
    }
    object
}

/// Waits until a dry-run creation of an object with this name gets the finalizer.
async fn until_finalizer_is_set(client: &Client, name: &str) {
    let route = eno_nbi_crds::Route::new(
        name,
        eno_nbi_crds::RouteSpec {
            prefix: "192.0.2.0".to_owned(),
            mask: 24,
            next_hop: "192.0.2.1".to_owned(),
            callbacks: eno_nbi_crds::Callbacks::default(),
        },
    );
    let routes: Api<eno_nbi_crds::Route> = Api::all(client.clone());
    let params = PostParams { dry_run: true, ..PostParams::default() };
    let is_finalizer = |one: &String| one == eno_nbi_crds::FINALIZER;
    while !routes.create(&params, &route).await.is_ok_and(|route| route.finalizers().iter().any(is_finalizer))
    {
        tokio::time::sleep(INTERVAL).await;
    }
}

async fn delete(client: &Client, object: &DynamicObject) -> Result<(), SandboxError> {
    let name = object.metadata.name.as_deref().unwrap_or_default();
    match api_of(client, object)?.delete(name, &DeleteParams::default()).await {
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        result => result.map(drop).map_err(SandboxError::kubernetes(format!("deleting {name}"))),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_admission_policy_gets_its_own_probe() {
        let policy = manifests::admission().expect("valid manifests");
        let probe: Vec<DynamicObject> = policy.iter().map(only_for_probe).collect();
        let named = |object: &DynamicObject| {
            (object.types.clone().map(|types| types.kind), object.metadata.name.clone())
        };
        let names: BTreeSet<_> = probe.iter().chain(&policy).map(named).collect();
        assert_eq!(names.len(), 2 * policy.len());
        for object in &probe {
            let Some(bound) = object.data.pointer("/spec/policyName").and_then(|name| name.as_str()) else {
                continue;
            };
            let policy = (Some("MutatingAdmissionPolicy".to_owned()), Some(bound.to_owned()));
            assert!(names.contains(&policy), "{bound} is not there");
        }
    }
}
