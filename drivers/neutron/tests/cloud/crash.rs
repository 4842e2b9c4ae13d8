//! Requests and answers that are lost, refusals that pass, and tokens that end.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::http::StatusCode;
use eno_schemas::Outcome;

use crate::cloud::fixture::{Cloud, PHYSICAL, Role, applied, reconcile};
use crate::cloud::proxy::Fault;

/// Names of networks and ports of ours, with how many have them.
async fn ours(cloud: &Cloud) -> BTreeMap<String, usize> {
    let mut names = BTreeMap::new();
    for collection in ["networks", "ports"] {
        for resource in cloud.list(&format!("{collection}?fields=name")).await {
            let name = resource["name"].as_str().unwrap();
            if name.starts_with("eno-") {
                *names.entry(format!("{collection} {name}")).or_default() += 1;
            }
        }
    }
    names
}

/// A fault of the `count`th request that changes something; false once there are fewer.
fn nth_write(cloud: &Cloud, count: usize, fault: Fault) -> Arc<AtomicUsize> {
    let seen = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&seen);
    cloud.proxy.set_faults(move |method, path| {
        let is_write = method != "GET" && path.starts_with("/network/");
        (is_write && counter.fetch_add(1, Ordering::SeqCst) + 1 == count).then(|| fault.clone())
    });
    seen
}

/// The driver dies at each request in turn, before Neutron has it or after. The next process ends in the same state, and
/// nothing is left without an owner.
async fn killed_at_each_request(fault: Fault) {
    let cloud = Cloud::new(Role::Admin).await;
    let all = cloud.desired(&[("t1", &[0, 1]), ("t2", &[1]), (PHYSICAL, &[0, 1])]);
    let less = cloud.desired(&[("t1", &[1]), ("t2", &[]), (PHYSICAL, &[1])]);
    let foreign = cloud.foreign().await;
    applied(&reconcile(&cloud.driver(), &less).await);
    let (few, mut many) = (ours(&cloud).await, BTreeMap::new());
    for (desired, back) in [(&all, &less), (&less, &all)] {
        for count in 1.. {
            applied(&reconcile(&cloud.driver(), back).await);
            let seen = nth_write(&cloud, count, fault.clone());
            let reconciled = reconcile(&cloud.driver(), desired).await;
            cloud.proxy.clear_faults();
            let was_hit = seen.load(Ordering::SeqCst) >= count;
            assert_eq!(matches!(reconciled.outcome, Outcome::Failed(_)), was_hit, "{reconciled:?}");
            applied(&reconcile(&cloud.driver(), desired).await);
            assert_eq!(cloud.foreign().await, foreign);
            let found = ours(&cloud).await;
            if many.is_empty() {
                assert_eq!(found.values().sum::<usize>(), 5, "{found:?}");
                many = found.clone();
            }
            assert_eq!(
                &found,
                if std::ptr::eq(desired, &raw const all) { &many } else { &few },
                "killed at {count}"
            );
            if !was_hit {
                break;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_before_each_request() {
    killed_at_each_request(Fault::LoseRequest).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_after_each_request() {
    killed_at_each_request(Fault::LoseAnswer).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn temporary_refusals_are_waited_out() {
    let cloud = Cloud::new(Role::Admin).await;
    let desired = cloud.desired(&[("t1", &[0]), (PHYSICAL, &[0])]);
    let mut times =
        [("POST", "/networks", 503), ("POST", "/ports", 409), ("GET", "/trunks", 429)].map(|it| (it, 1));
    cloud.proxy.set_faults(move |method, path| {
        let (found, left) = times
            .iter_mut()
            .find(|((fault, part, _), left)| *left > 0 && *fault == method && path.contains(part))
            .map(|(found, left)| (*found, left))?;
        *left -= 1;
        let status = StatusCode::from_u16(found.2).unwrap();
        Some(Fault::Answer(status, &[("retry-after", "0"), ("content-type", "text/plain")], "busy"))
    });
    let answer = reconcile(&cloud.driver(), &desired).await;
    assert_eq!(answer.outcome, Outcome::Applied, "{answer:?}");
    assert_eq!(cloud.placed("t1").await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn token_that_ends_in_the_middle_is_renewed() {
    let cloud = Cloud::new(Role::Admin).await;
    let mut times = 1;
    cloud.proxy.set_faults(move |method, path| {
        if times == 0 || method != "POST" || !path.ends_with("/ports") {
            return None;
        }
        times -= 1;
        let error = r#"{"error": {"code": 401, "title": "Unauthorized", "message": "it ended"}}"#;
        Some(Fault::Answer(StatusCode::UNAUTHORIZED, &[("content-type", "application/json")], error))
    });
    applied(&reconcile(&cloud.driver(), &cloud.desired(&[("t1", &[0]), (PHYSICAL, &[0])])).await);
    let logins = cloud.proxy.take_seen().into_iter().filter(|(_, path)| path.ends_with("/auth/tokens"));
    assert_eq!(logins.count(), 2);
}
