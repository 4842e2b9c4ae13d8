//! Writes of a former leader that arrive after the next leader has taken over, made here by the test. They take effect
//! where the new leader has not written since, and the new leader overwrites them.

use async_nats::HeaderMap;
use async_nats::jetstream::Context;
use eno_control_plane::NatsUser;
use eno_nbi_crds::{L2Service, Phase};
use eno_tests::{Networks, Receiver, System, until, with_new_sandbox};
use kube::ResourceExt as _;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::lanes::ha::processes::{leads, until_quiet};
use crate::lanes::ha::serialize_tests;

/// The last message of a subject, with its sequence number.
async fn last_message(jetstream: &Context, stream: &str, subject: &str) -> (u64, Value) {
    let stream = jetstream.get_stream(stream).await.expect("a stream");
    let message = stream.get_last_raw_message_by_subject(subject).await.expect("a message");
    (message.sequence, serde_json::from_slice(&message.payload).expect("JSON"))
}

/// Publishes a message after the last one of its subject, as a delayed write would arrive.
async fn publish_late(jetstream: &Context, subject: &str, after: u64, message: &Value) -> u64 {
    let mut headers = HeaderMap::new();
    headers.insert("Nats-Expected-Last-Subject-Sequence", after.to_string());
    let sent = jetstream.publish_with_headers(subject.to_owned(), headers, message.to_string().into()).await;
    sent.expect("it is sent").await.expect("it is stored").sequence
}

#[test]
fn late_writes_of_a_former_leader_are_overwritten() {
    let _guard = serialize_tests();
    with_new_sandbox(async |system| {
        let jetstream = system.nats(NatsUser::Admin).await;
        system.create_connection_point("late").await;
        let receiver = Receiver::start().await;
        let networks = Networks::new("late", "late", 1000, (2, 2), &receiver);
        networks.apply(system).await;
        networks.ready(system, &receiver).await;
        until_quiet(system, &jetstream).await;
        // The next leader finds nothing to write.
        system.sandbox.stop_child("engine").await.expect("a leader that leaves");
        system.sandbox.start_child("engine").await.expect("the next leader");
        until("the next leader", async || leads(system, "engine").await).await;
        until_quiet(system, &jetstream).await;

        check_late_status(system).await;
        check_late_command(system, &jetstream).await;
        check_late_transition(system, &jetstream).await;
        networks.ready(system, &receiver).await;
        networks.delete(system, &receiver).await;
        networks.assert_callbacks(&receiver);
    });
}

async fn check_late_status(system: &System) {
    let api = system.all::<L2Service>();
    let before = api.get_status("late-0").await.expect("the service");
    let late = json!({
        "apiVersion": "eno.k8s.io/v1alpha1", "kind": "L2Service",
        "metadata": {"name": "late-0", "uid": before.uid()},
        "status": {"phase": "error", "message": "overtaken", "observedGeneration": 1, "transitions": 2},
    });
    let params = PatchParams::apply("eno-engine").force();
    let write_versions =
        api.patch_status("late-0", &params, &Patch::Apply(late)).await.expect("it is written");
    assert_eq!(write_versions.status.expect("a status").phase, Some(Phase::Error));
    let after = system.becomes::<L2Service>("late-0", Phase::Ready).await;
    let content = |service: &L2Service| serde_json::to_value(&service.status).expect("JSON");
    assert_eq!(content(&after), content(&before));
}

async fn check_late_command(system: &System, jetstream: &Context) {
    let subject = "eno.v1.command.netconf.leaf1";
    let sequence = last_message(jetstream, "ENO_COMMANDS", subject).await.0;
    // The former leader is of a version without commands in parts.
    let mut command = system.command("leaf1").await;
    let term = command["generation"]["term"].as_u64().expect("a term");
    // A VLAN that no object requests.
    let vlans = command["desired"]["vlans"].as_array_mut().expect("VLANs");
    vlans.push(json!("3000 L2Service/gone"));
    command["generation"]["sequence"] = json!(command["generation"]["sequence"].as_u64().expect("one") + 1);
    command["generation"]["hash"] = json!("0123456789abcdef0123456789abcdef");
    command.as_object_mut().expect("an object").remove("transaction");
    let arrived = publish_late(jetstream, subject, sequence, &command).await;
    let mut now = (arrived, command);
    until("the command of the leader", async || {
        now = last_message(jetstream, "ENO_COMMANDS", subject).await;
        now.0 > arrived
    })
    .await;
    assert!(now.1["generation"]["term"].as_u64() > Some(term), "{}", now.1);
    let wanted = now.1["generation"].clone();
    until("its report", async || {
        let report = last_message(jetstream, "ENO_RESULTS", "eno.v1.result.netconf.leaf1").await.1;
        report["generation"] == wanted && report["outcome"]["status"] == "applied"
    })
    .await;
    system.until_without([3000]).await;
}

async fn check_late_transition(system: &System, jetstream: &Context) {
    let subject = "eno.v1.transition.L2Service._.late-1";
    let (sequence, mut entry) = last_message(jetstream, "ENO_TRANSITIONS", subject).await;
    let counter = entry["counter"].as_u64().expect("a number") + 1;
    entry["counter"] = json!(counter);
    entry["id"] = json!(format!("{}-{counter}", entry["uid"].as_str().expect("a uid")));
    entry["previous"] = entry["phase"].clone();
    entry["phase"] = json!("error");
    entry["object"]["status"]["phase"] = json!("error");
    entry["object"]["status"]["transitions"] = json!(counter);
    publish_late(jetstream, subject, sequence, &entry).await;
    // The leader finds it when it publishes the next transition.
    system.patch("L2Service", "late-1", json!({"spec": {"SegmentationID": 1010}})).await;
    system.until_without([1001]).await;
    system.becomes::<L2Service>("late-1", Phase::Ready).await;
    system.patch("L2Service", "late-1", json!({"spec": {"SegmentationID": 1001}})).await;
    system.until_without([1010]).await;
    system.becomes::<L2Service>("late-1", Phase::Ready).await;
}
