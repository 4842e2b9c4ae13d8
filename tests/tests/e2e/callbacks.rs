//! Callbacks that the engine posts with the rights that it has in a cluster.

use std::sync::Arc;

use axum::Router;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use eno_nbi_crds::{CALLBACK_DELIVERED, L2Service, L2ServiceAttachment, Phase};
use eno_tests::{System, attachment, service, with_shared_sandbox};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::e2e::create_namespace_and_point;

type ReceivedHeaders = Arc<watch::Sender<Vec<HeaderMap>>>;

/// Starts an endpoint that accepts callbacks, records their headers, and passes the endpoint test.
async fn endpoint() -> (String, ReceivedHeaders) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a loopback port");
    let url = format!("http://{}/callbacks", listener.local_addr().expect("its address"));
    let seen = ReceivedHeaders::new(watch::Sender::new(Vec::new()));
    let sink = Arc::clone(&seen);
    let take = post(async move |headers: HeaderMap| {
        sink.send_modify(|seen| seen.push(headers));
        StatusCode::NO_CONTENT
    });
    let router = Router::new().route("/callbacks", take.get(async || StatusCode::NO_CONTENT));
    tokio::spawn(async move { axum::serve(listener, router).await });
    (url, seen)
}

/// The Secret `eno-callback` of a namespace.
fn secret(namespace: &str) -> String {
    let key = "AQEB".repeat(10) + "AQE=";
    format!(
        "\n---\napiVersion: v1\nkind: Secret\nmetadata: {{name: eno-callback, namespace: {namespace}}}\nstringData: {{key: \
         whsec_{key}}}"
    )
}

async fn until_callback_condition(system: &System, name: &str, status: &str, reason: &str) -> String {
    let condition = |service: &L2Service| {
        let all = service.status.iter().flat_map(|status| &status.conditions);
        let mut all = all.filter(|condition| condition.type_ == CALLBACK_DELIVERED);
        all.find(|condition| condition.status == status && condition.reason == reason)
            .map(|condition| condition.message.clone())
    };
    let what = format!("{CALLBACK_DELIVERED} is {status}");
    let service = system.until_one(name, &what, |one| condition(one).is_some()).await;
    condition(&service).expect("the condition")
}

#[test]
fn callbacks_are_signed_with_the_key_of_the_objects_namespace() {
    with_shared_sandbox(async |system| {
        let (url, seen) = endpoint().await;
        create_namespace_and_point(system, "sign", &["node1"]).await;
        let callback = format!("CallbackURL: '{url}', CallbackSecret: {{Name: eno-callback}}");
        let network = [
            secret("sign"),
            service("sign-a", 440, ""),
            attachment("sign", "a", "sign", "sign-a", &format!("VlanType: access, {callback}")),
        ]
        .concat();
        system.apply_until_ready::<L2ServiceAttachment>(&network, "sign/a").await;
        let tests: [&[&str]; 2] = [&[], &["--endpoint"]];
        for more in tests {
            let arguments = [&["callbacks", "test", "l2sa/a", "-n", "sign"], more].concat();
            assert_eq!(system.eno_json(&arguments, "", 0).await["delivered"], 1);
        }
        let mut changes = seen.subscribe();
        let tested =
            changes.wait_for(|seen| seen.iter().any(|headers| headers.contains_key("eno-test"))).await;
        let all = tested.expect("the sender lives").clone();
        for headers in all {
            let signature = headers.get("webhook-signature").and_then(|value| value.to_str().ok());
            assert!(signature.is_some_and(|text| text.starts_with("v1,")), "{headers:?}");
        }
        system.delete_with_vlans(&network, [440]).await;
    });
}

#[test]
fn undeliverable_callback_is_dead_lettered_and_can_be_retried() {
    with_shared_sandbox(async |system| {
        let (url, seen) = endpoint().await;
        let network = service("undelivered-a", 441, "CallbackURL: 'http://169.254.169.254/latest/meta-data'");
        system.apply(&network).await;
        let message = until_callback_condition(system, "undelivered-a", "False", "GivenUp").await;
        assert!(message.contains("the address 169.254.169.254 is refused"), "{message}");
        system.becomes::<L2Service>("undelivered-a", Phase::Ready).await;
        let listed = system.eno_json(&["callbacks", "list"], "", 0).await;
        let count_of_service = |list: &Value| {
            let all = list.as_array().expect("a list").iter();
            all.filter(|one| one["name"] == "undelivered-a" || one["transition"]["name"] == "undelivered-a")
                .count()
        };
        assert_eq!(count_of_service(&listed["undelivered"]), 1, "{listed:#}");
        let before = count_of_service(&listed["deadLetters"]);
        assert!(before >= 1, "{listed:#}");

        system.patch("L2Service", "undelivered-a", json!({"spec": {"CallbackURL": url}})).await;
        let retry = ["callbacks", "retry", "l2s/undelivered-a"];
        let mut answer = system.eno_json(&retry, "", 0).await;
        assert!(answer["delivered"].as_u64().is_some_and(|delivered| delivered >= 1), "{answer:#}");
        until_callback_condition(system, "undelivered-a", "True", "Delivered").await;
        answer = system.eno_json(&retry, "", 0).await;
        assert_eq!((&answer["delivered"], &answer["dead"]), (&json!(0), &json!(0)));
        let ids: Vec<_> = seen.borrow().iter().map(|headers| headers["webhook-id"].clone()).collect();
        assert!(ids.len() >= before, "{ids:?}");
        let listed = system.eno_json(&["callbacks", "list"], "", 0).await;
        assert_eq!(count_of_service(&listed["deadLetters"]), 0, "{listed:#}");
        system.delete(&network).await;
    });
}
