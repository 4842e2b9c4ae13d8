//! A tenant's ResourceQuota on attachments.

use std::collections::BTreeMap;
use std::time::Duration;

use eno_nbi_crds::{L2Service, L2ServiceAttachment, Phase};
use eno_tests::{PATIENCE, System, shared};
use k8s_openapi::api::core::v1::ResourceQuota;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use serde_json::json;
use tokio::time::{interval, timeout};

/// Between two looks at what has no common way to tell.
const LOOK: Duration = Duration::from_millis(200);
const KEY: &str = "count/l2serviceattachments.eno.k8s.io";

const NETWORK: &str = "
apiVersion: eno.k8s.io/v1alpha1
kind: L2Service
metadata: {name: quota}
spec: {SegmentationID: 810}
---
apiVersion: eno.k8s.io/v1alpha1
kind: ConnectionPoint
metadata: {name: quota}
spec: {SupportedCnis: [{Name: ovs, SupportedInterfaceTypes: [kernel], Opts: '{\"BridgeName\": \"br0\"}'}]}
";

fn attachment(name: &str) -> L2ServiceAttachment {
    let text = format!(
        "{{apiVersion: eno.k8s.io/v1alpha1, kind: L2ServiceAttachment, metadata: {{name: {name}}}, spec: \
         {{ConnectionPoint: quota, L2Services: [quota], VlanType: access}}}}"
    );
    serde_saphyr::from_str(&text).expect("an attachment")
}

/// What the API server answers when it refuses: the status code and its words.
type Refusal = (u16, String);

async fn make(attachments: &Api<L2ServiceAttachment>, name: &str, dry_run: bool) -> Result<(), Refusal> {
    let params = PostParams { dry_run, ..PostParams::default() };
    match attachments.create(&params, &attachment(name)).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) => Err((status.code, status.message.clone())),
        Err(error) => panic!("{error}"),
    }
}

fn exceeded(name: &str, limit: u8) -> Refusal {
    let words = format!("requested: {KEY}=1, used: {KEY}={limit}, limited: {KEY}={limit}");
    (403, format!("l2serviceattachments.eno.k8s.io \"{name}\" is forbidden: exceeded quota: eno, {words}"))
}

/// Limits how many a namespace may have, and waits until the controller manager has counted those that it has. It learns
/// of kinds that came after it twice a minute, and counts for a quota when the limits change; so there is another limit,
/// which does.
async fn limit(system: &System, namespace: &str, count: u8) {
    let quotas: Api<ResourceQuota> = Api::namespaced(system.sandbox.client(), namespace);
    let (mut looks, mut spares) = (interval(LOOK), 1..);
    let mut wanted = None;
    let counted = async {
        loop {
            looks.tick().await;
            let status = quotas.get_opt("eno").await.expect("an answer").and_then(|quota| quota.status);
            let (hard, used) = status.map(|status| (status.hard, status.used)).unwrap_or_default();
            if wanted.is_some() && hard != wanted {
                continue;
            }
            if wanted.is_some() && used.is_some_and(|used| used.contains_key(KEY)) {
                return;
            }
            let spare = spares.next().unwrap_or(1_u32);
            let limits = [(KEY, count.to_string()), ("count/podtemplates", spare.to_string())];
            let limits: BTreeMap<_, _> = limits.map(|(key, limit)| (key.to_owned(), Quantity(limit))).into();
            let quota = json!({
                "apiVersion": "v1",
                "kind": "ResourceQuota",
                "metadata": { "name": "eno", "namespace": namespace },
                "spec": { "hard": limits },
            });
            system.apply(&quota.to_string()).await;
            wanted = Some(limits);
        }
    };
    timeout(4 * PATIENCE, counted).await.expect("a quota that is worked out");
}

/// Tries until the answer is what is wanted: the API server hears of what is counted a little later.
async fn answers(
    attachments: &Api<L2ServiceAttachment>,
    name: &str,
    dry_run: bool,
    wanted: Result<(), Refusal>,
) {
    let mut looks = interval(LOOK);
    let mut last = None;
    let trying = async {
        while last.as_ref() != Some(&wanted) {
            looks.tick().await;
            last = Some(make(attachments, name, dry_run).await);
        }
    };
    let met = timeout(PATIENCE, trying).await;
    assert!(met.is_ok(), "{name}: {last:?} in place of {wanted:?}");
}

#[test]
fn a_quota_holds_its_namespace_back_and_no_other() {
    shared(async |system| {
        let of = |namespace| Api::<L2ServiceAttachment>::namespaced(system.sandbox.client(), namespace);
        let (held, free) = (of("quota-held"), of("quota-free"));
        system.namespace("quota-held").await;
        system.namespace("quota-free").await;
        system.apply(NETWORK).await;
        system.becomes::<L2Service>("quota", Phase::Ready).await;
        limit(system, "quota-held", 0).await;
        answers(&held, "a", true, Err(exceeded("a", 0))).await;

        limit(system, "quota-held", 2).await;
        answers(&held, "a", false, Ok(())).await;
        assert_eq!(make(&held, "b", false).await, Ok(()));
        assert_eq!(make(&held, "c", false).await, Err(exceeded("c", 2)));
        for name in ["a", "b"] {
            system.becomes::<L2ServiceAttachment>(&format!("quota-held/{name}"), Phase::Ready).await;
        }
        for name in ["a", "b", "c"] {
            assert_eq!(make(&free, name, false).await, Ok(()), "{name}");
            system.becomes::<L2ServiceAttachment>(&format!("quota-free/{name}"), Phase::Ready).await;
        }

        // What is gone makes room.
        held.delete("a", &DeleteParams::default()).await.expect("it goes");
        answers(&held, "c", false, Ok(())).await;
        system.becomes::<L2ServiceAttachment>("quota-held/c", Phase::Ready).await;

        for attachments in [&held, &free] {
            let (how, which) = (DeleteParams::default(), ListParams::default());
            attachments.delete_collection(&how, &which).await.expect("they go");
        }
        system.delete(NETWORK).await;
    });
}
