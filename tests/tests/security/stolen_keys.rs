//! With a stolen key of NATS, other than that of engine or admin, nobody stops the engine, and nobody's word takes the
//! place of a command, a report or a transition for longer than a moment.

use async_nats::jetstream::Context;
use eno_control_plane::NatsUser;
use eno_nbi_crds::{FabricDevice, L2Service, Phase};
use eno_tests::{System, until, with_exclusive_sandbox};
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

const COMMAND: &str = "eno.v1.command.netconf.leaf1";
const RESULT: &str = "eno.v1.result.netconf.leaf1";
const TRANSITION: &str = "eno.v1.transition.FabricDevice._.leaf1";

/// What an engine logs that could not renew its Lease in time.
const NOT_RENEWED: &str = "the Lease could not be renewed in time";

/// The terms of all Leases that have one.
async fn terms(system: &System) -> Vec<String> {
    let leases: Api<Lease> = Api::all(system.sandbox.client());
    let leases = leases.list(&ListParams::default()).await.expect("the Leases");
    leases.iter().filter_map(|lease| lease.annotations().get("eno.k8s.io/term").cloned()).collect()
}

/// The last message on a subject, with its sequence. Null: it is no JSON, or none is stored.
async fn last(jetstream: &Context, on: &str) -> (u64, Value) {
    let stream = match on {
        _ if on.starts_with("eno.v1.command.") => "ENO_COMMANDS",
        _ if on.starts_with("eno.v1.result.") => "ENO_RESULTS",
        _ => "ENO_TRANSITIONS",
    };
    let stream = jetstream.get_stream(stream).await.expect("the stream");
    match stream.get_last_raw_message_by_subject(on).await {
        Ok(message) => (message.sequence, serde_json::from_slice(&message.payload).unwrap_or_default()),
        Err(_) => (0, Value::Null),
    }
}

/// Every key but those of engine and admin writes over a command, an entry of the outbox and reports. All come back.
async fn speak_for_others(system: &System, admin: &Context) {
    let (_, report) = last(admin, RESULT).await;
    for user in NatsUser::all().filter(|user| ![NatsUser::ENGINE, NatsUser::Admin].contains(user)) {
        let own = user.driver().unwrap_or("none");
        let stolen = system.nats(user).await;
        let client = stolen.client();
        // The server's answer takes the place of a command, and of an entry of the outbox.
        let (request, body) = match user {
            NatsUser::Inspect => ("$JS.API.STREAM.INFO.ENO_RESULTS".to_owned(), String::new()),
            _ => (format!("eno.v1.history.{own}.x"), "{}".to_owned()),
        };
        let (sequence, _) = last(admin, COMMAND).await;
        for target in [COMMAND, TRANSITION] {
            client
                .publish_with_reply(request.clone(), target, body.clone().into())
                .await
                .expect("it is sent");
        }
        // The answer and the command itself follow.
        until(&format!("the command is back after {user:?}"), async || {
            let (now, command) = last(admin, COMMAND).await;
            now >= sequence + 2 && command["desired"].is_object()
        })
        .await;
        until(&format!("the outbox has its entry back after {user:?}"), async || {
            last(admin, TRANSITION).await.1["counter"].is_u64()
        })
        .await;
        if user == NatsUser::Inspect {
            // The engine answers a person nowhere else than below its own subjects.
            let asked = json!({"action": "retry", "kind": "FabricDevice", "name": "leaf1"}).to_string();
            for target in [TRANSITION, COMMAND] {
                let sent = client.publish_with_reply("eno.v1.callbacks", target, asked.clone().into());
                sent.await.expect("it is sent");
            }
            continue;
        }
        // Reports of a term that nobody has led in, on a target that does not exist and on one that does.
        let mut forged = report.clone();
        forged["driver"] = own.into();
        forged["generation"]["term"] = u64::MAX.into();
        for target in if own == "netconf" { vec!["ghost", "leaf1"] } else { vec!["ghost"] } {
            forged["target"] = target.into();
            let on = format!("eno.v1.result.{own}.{target}");
            let sent = stolen.publish(on.clone(), forged.to_string().into()).await.expect("it is sent");
            sent.await.expect("it is stored");
            until(&format!("{on} has no such report"), async || {
                let (_, report) = last(admin, &on).await;
                let is_gone = report["generation"]["term"] != u64::MAX;
                is_gone && (report.is_object() || target == "ghost")
            })
            .await;
        }
    }
}

#[test]
fn no_stolen_key_stops_the_engine_or_speaks_for_others() {
    with_exclusive_sandbox(async |system| {
        system.becomes::<FabricDevice>("leaf1", Phase::Ready).await;
        let admin = system.nats(NatsUser::Admin).await;
        let starvations = || system.engine_log().matches(NOT_RENEWED).count();
        let (mut before, mut starved) = (terms(system).await, starvations());
        speak_for_others(system, &admin).await;
        // A machine that starves the engine may take its Lease, which the engine says. Then the attack is repeated once.
        if starvations() > starved {
            (before, starved) = (terms(system).await, starvations());
            speak_for_others(system, &admin).await;
        }
        // The same engine leads on, and all is well.
        let spec = serde_json::from_value(json!({"SegmentationID": 3777})).expect("a spec");
        let service = L2Service::new("after-stolen-keys", spec);
        let services: Api<L2Service> = system.all();
        services.create(&PostParams::default(), &service).await.expect("a service");
        system.becomes::<L2Service>("after-stolen-keys", Phase::Ready).await;
        system.becomes::<FabricDevice>("leaf1", Phase::Ready).await;
        assert_eq!((terms(system).await, starvations()), (before, starved));
        services.delete("after-stolen-keys", &DeleteParams::default()).await.expect("it is deleted");
    });
}
