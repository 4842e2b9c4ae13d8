//! A tenant's ResourceQuota on attachments.

use std::collections::BTreeMap;
use std::time::Duration;

use eno_nbi_crds::{L2Service, L2ServiceAttachment, Phase};
use eno_tests::{System, TIMEOUT, connection_point, object, poll, service, with_shared_sandbox};
use k8s_openapi::api::core::v1::ResourceQuota;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use serde_json::json;
use tokio::time::{interval, timeout};

/// Interval of polls of conditions without a watch.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
const KEY: &str = "count/l2serviceattachments.eno.k8s.io";

fn network() -> String {
    [service("quota", 810, ""), connection_point("quota", "br0", "")].concat()
}

fn attachment(name: &str) -> L2ServiceAttachment {
    let spec = "ConnectionPoint: quota, L2Services: [quota], VlanType: access";
    let text = object("L2ServiceAttachment", &format!("name: {name}"), spec);
    serde_saphyr::from_str(&text).expect("an attachment")
}

/// The status code and message of a refusal by the API server.
type Refusal = (u16, String);

async fn create(attachments: &Api<L2ServiceAttachment>, name: &str, dry_run: bool) -> Result<(), Refusal> {
    let params = PostParams { dry_run, ..PostParams::default() };
    match attachments.create(&params, &attachment(name)).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) => Err((status.code, status.message.clone())),
        Err(error) => panic!("{error}"),
    }
}

fn quota_exceeded(name: &str, limit: u8) -> Refusal {
    let parts = format!("requested: {KEY}=1, used: {KEY}={limit}, limited: {KEY}={limit}");
    (403, format!("l2serviceattachments.eno.k8s.io \"{name}\" is forbidden: exceeded quota: eno, {parts}"))
}

/// Limits the attachments of a namespace, and waits until the controller manager has counted them. The controller
/// manager discovers new kinds twice a minute and recounts a quota when its limits change. So another, unrelated limit
/// is changed repeatedly.
async fn set_quota(system: &System, namespace: &str, count: u8) {
    let quotas: Api<ResourceQuota> = Api::namespaced(system.sandbox.client(), namespace);
    let (mut ticks, mut spares) = (interval(POLL_INTERVAL), 1..);
    let mut wanted = None;
    let counted = async {
        loop {
            ticks.tick().await;
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
    timeout(4 * TIMEOUT, counted).await.expect("a quota that is worked out");
}

/// Creates an attachment repeatedly until the answer is as expected: the API server sees a new count a little later.
async fn until_answer(
    attachments: &Api<L2ServiceAttachment>,
    name: &str,
    dry_run: bool,
    wanted: Result<(), Refusal>,
) {
    let mut last = None;
    let answered = poll(async || {
        last = Some(create(attachments, name, dry_run).await);
        (last.as_ref() == Some(&wanted)).then_some(())
    })
    .await;
    assert!(answered.is_some(), "{name}: {last:?} in place of {wanted:?}");
}

#[test]
fn quota_limits_only_its_own_namespace() {
    with_shared_sandbox(async |system| {
        let of = |namespace| Api::<L2ServiceAttachment>::namespaced(system.sandbox.client(), namespace);
        let (limited, unlimited) = (of("quota-held"), of("quota-free"));
        system.namespace("quota-held").await;
        system.namespace("quota-free").await;
        system.apply_until_ready::<L2Service>(&network(), "quota").await;
        set_quota(system, "quota-held", 0).await;
        until_answer(&limited, "a", true, Err(quota_exceeded("a", 0))).await;

        set_quota(system, "quota-held", 2).await;
        until_answer(&limited, "a", false, Ok(())).await;
        assert_eq!(create(&limited, "b", false).await, Ok(()));
        assert_eq!(create(&limited, "c", false).await, Err(quota_exceeded("c", 2)));
        for name in ["a", "b"] {
            system.becomes::<L2ServiceAttachment>(&format!("quota-held/{name}"), Phase::Ready).await;
        }
        for name in ["a", "b", "c"] {
            assert_eq!(create(&unlimited, name, false).await, Ok(()), "{name}");
            system.becomes::<L2ServiceAttachment>(&format!("quota-free/{name}"), Phase::Ready).await;
        }

        // A deletion frees quota.
        limited.delete("a", &DeleteParams::default()).await.expect("it goes");
        until_answer(&limited, "c", false, Ok(())).await;
        system.becomes::<L2ServiceAttachment>("quota-held/c", Phase::Ready).await;

        for attachments in [&limited, &unlimited] {
            let (how, which) = (DeleteParams::default(), ListParams::default());
            attachments.delete_collection(&how, &which).await.expect("they go");
        }
        system.delete(&network()).await;
    });
}
