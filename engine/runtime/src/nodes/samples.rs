//! Creates the sample Deployment of a PodConfig: two unprivileged pods that show its effect.

use std::sync::Arc;
use std::time::Duration;

use eno_core::{Event, Key, Name};
use k8s_openapi::api::apps::v1::Deployment;
use kube::Client;
use kube::api::{Api, PostParams};
use kube::runtime::events::EventType;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::api;
use crate::metrics::Metrics;
use crate::nodes::reconcile_queue::{self, QueueOptions};
use crate::status::events::{self, Events};
use crate::watch::ingest::MANAGED_BY;
use crate::watch::mailbox::Input;

/// The PodConfig; its uid and the name of its Deployment.
pub type DesiredSample = (Key, (Name, Name));

/// Maximum polls of a Deployment, [`POLL_INTERVAL`] apart: Kubernetes creates its pods, or reports why not, within
/// moments. The engine may `get` a Deployment but not watch all of them.
const MAX_POLLS: u32 = 30;
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum characters of a refusal that are passed on.
const MAX_REFUSAL_CHARS: usize = 512;

/// Creates Deployments until `stop`. An existing one stays unchanged, since users may have scaled it.
pub async fn run(
    client: Client,
    image: Option<Arc<str>>,
    desired: mpsc::UnboundedReceiver<DesiredSample>,
    mailbox: mpsc::Sender<Input>,
    events: Events,
    metrics: Arc<Metrics>,
    stop: CancellationToken,
) {
    let options = QueueOptions { what: "sample", concurrency: 4, delay: Duration::ZERO };
    reconcile_queue::run(
        options,
        desired,
        &metrics,
        stop,
        |owner| &owner.namespace,
        |owner, (uid, name)| {
            create_once(client.clone(), image.clone(), mailbox.clone(), events.clone(), owner, uid, name)
        },
    )
    .await;
}

async fn create_once(
    client: Client,
    image: Option<Arc<str>>,
    mailbox: mpsc::Sender<Input>,
    events: Events,
    owner: Key,
    uid: Name,
    name: Name,
) -> Result<(), kube::Error> {
    let warn = |reason: &str, note: String| {
        events.publish(events::object_ref(&owner, &uid), EventType::Warning, reason, "MakeSample", &note);
    };
    let deployments: Api<Deployment> = Api::namespaced(client, &owner.namespace);
    if let Some(found) = deployments.get_metadata_opt(&name).await? {
        let owners = found.metadata.owner_references.unwrap_or_default();
        if !owners.iter().any(|one| one.uid == *uid) {
            warn(
                "SampleNotMade",
                format!(
                    "the Deployment {name} is there already and is not this PodConfig's; choose another spec.sampleDeployment.name"
                ),
            );
            return Ok(());
        }
    } else if !create(&deployments, image, &warn, &owner, &uid, &name).await? {
        return Ok(());
    }
    if let Some(refusal) = refusal(&deployments, &name).await? {
        let message = format!("the pods of the Deployment {name} are refused: {refusal}");
        warn("SamplePodsRefused", message.clone());
        // The receiver has ended if this process no longer leads.
        let _ = mailbox.send(Input::Event(Event::SampleRefused(owner, message.as_str().into()))).await;
    }
    Ok(())
}

/// True when it was created; false when it was refused.
async fn create(
    deployments: &Api<Deployment>,
    image: Option<Arc<str>>,
    warn: &impl Fn(&str, String),
    owner: &Key,
    uid: &Name,
    name: &Name,
) -> Result<bool, kube::Error> {
    let Some(image) = image else {
        warn(
            "SampleNotMade",
            "no image for sample Deployments is configured; start the engine with --sample-image".into(),
        );
        return Ok(false);
    };
    let body: Deployment =
        serde_json::from_value(deployment(owner, uid, name, &image)).map_err(kube::Error::SerdeError)?;
    match deployments.create(&PostParams::default(), &body).await {
        Ok(_) => Ok(true),
        // A refusal by quota or policy is reported and not retried.
        Err(kube::Error::Api(answer)) if matches!(answer.code, 400 | 403 | 404 | 422) => {
            warn("SampleNotMade", format!("the Deployment {name} was refused: {}", answer.message));
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// Why Kubernetes does not create the pods of a Deployment.
async fn refusal(deployments: &Api<Deployment>, name: &str) -> Result<Option<String>, kube::Error> {
    for _ in 0..MAX_POLLS {
        let Some(found) = deployments.get_opt(name).await? else { return Ok(None) };
        let status = found.status.unwrap_or_default();
        if status.replicas.is_some_and(|pods| pods > 0) {
            return Ok(None);
        }
        let mut conditions = status.conditions.into_iter().flatten();
        if let Some(failure) = conditions.find(|one| one.type_ == "ReplicaFailure" && one.status == "True") {
            return Ok(Some(failure.message.unwrap_or_default().chars().take(MAX_REFUSAL_CHARS).collect()));
        }
        sleep(POLL_INTERVAL).await;
    }
    Ok(None)
}

/// The Deployment passes the Pod Security Standard `restricted`.
fn deployment(owner: &Key, uid: &str, name: &str, image: &str) -> Value {
    let labels = json!({ eno_nbi_crds::PODCONFIG_LABEL: &*owner.name });
    // A shell that runs as PID 1 ignores signals without a trap.
    let script = "trap 'exit 0' TERM INT; while :; do sleep 30 & wait $!; done";
    let (managed_by, eno) = MANAGED_BY;
    json!({
        "metadata": {
            "name": name,
            "labels": { managed_by: eno, eno_nbi_crds::PODCONFIG_LABEL: &*owner.name },
            "ownerReferences": [{
                "apiVersion": api::api_version(owner.kind),
                "kind": owner.kind.as_str(),
                "name": &*owner.name,
                "uid": uid,
                "controller": true,
            }],
        },
        "spec": {
            "replicas": 2,
            "selector": { "matchLabels": labels },
            "template": {
                "metadata": { "labels": labels },
                "spec": {
                    "automountServiceAccountToken": false,
                    "terminationGracePeriodSeconds": 5,
                    "securityContext": {
                        "runAsNonRoot": true,
                        "runAsUser": 65532,
                        "runAsGroup": 65532,
                        "seccompProfile": { "type": "RuntimeDefault" },
                    },
                    "containers": [{
                        "name": "cnf-example",
                        "image": image,
                        "imagePullPolicy": "IfNotPresent",
                        "command": ["/bin/sh", "-c", script],
                        "securityContext": {
                            "allowPrivilegeEscalation": false,
                            "readOnlyRootFilesystem": true,
                            "capabilities": { "drop": ["ALL"] },
                        },
                        "resources": {
                            "requests": { "cpu": "10m", "memory": "16Mi" },
                            "limits": { "memory": "64Mi" },
                        },
                    }],
                },
            },
        },
    })
}

#[cfg(test)]
mod tests {
    use eno_core::Kind;

    use super::*;

    #[test]
    fn sample_pods_carry_podconfig_label_and_run_restricted() {
        let owner = Key::namespaced(Kind::PodConfig, &"cnf-test".into(), &"podconfig-sample-a".into());
        let made = deployment(&owner, "u", "cnf-example-a", "image:1");
        let typed: Deployment = serde_json::from_value(made.clone()).unwrap();
        assert_eq!(
            serde_json::to_value(&typed).unwrap()["spec"]["template"]["spec"],
            made["spec"]["template"]["spec"]
        );
        assert_eq!(
            made["spec"]["template"]["metadata"]["labels"],
            json!({ "podconfig": "podconfig-sample-a" })
        );
        assert_eq!(made["metadata"]["ownerReferences"][0]["apiVersion"], "podconfig.opdev.io/v1alpha1");
    }
}
