//! Commands forged with the keys of NATS that may publish them send no password to a switch that its FabricDevice does
//! not name. `sbi/tests/permissions` shows that no other key can publish one.

use async_nats::jetstream::stream::Stream;
use eno_control_plane::NatsUser;
use eno_nbi_crds::{FabricDevice, Phase};
use eno_tests::{System, until, with_exclusive_sandbox};
use serde_json::Value;

const COMMAND: &str = "eno.v1.command.netconf.leaf1";
const RESULT: &str = "eno.v1.result.netconf.leaf1";
/// Fields of a command's device that a forger may take from another switch's command.
const FORGED: [&[&str]; 4] =
    [&["address", "hostKey"], &["address", "hostKey", "credential"], &["hostKey"], &["credential"]];

/// The last message of a subject.
async fn last(stream: &Stream, subject: &str) -> Value {
    let message = stream.get_last_raw_message_by_subject(subject).await.expect("a message");
    serde_json::from_slice(&message.payload).expect("JSON")
}

/// The logins that the switches have seen, refused ones too.
async fn logins(system: &System) -> [(u64, u64); 2] {
    let of = async |switch| {
        let stats = system.switch_stats(switch).await;
        (stats.auth_failures, stats.sessions_opened)
    };
    [of("leaf1").await, of("leaf2").await]
}

#[test]
fn no_forged_command_sends_a_password() {
    with_exclusive_sandbox(async |system| {
        for switch in ["leaf1", "leaf2"] {
            system.becomes::<FabricDevice>(switch, Phase::Ready).await;
        }
        let admin = system.nats(NatsUser::Admin).await;
        let results = admin.get_stream("ENO_RESULTS").await.expect("a stream");
        // The engine would replace the forged commands at once.
        system.sandbox.stop_child("engine").await.expect("an engine that leaves");
        let (own, other) = (system.command("leaf1").await, system.command("leaf2").await);
        let mut number = own["generation"]["sequence"].as_u64().expect("a number");
        let before = logins(system).await;
        for user in [NatsUser::Admin, NatsUser::ENGINE] {
            let client = system.nats(user).await;
            for fields in FORGED {
                number += 1;
                let mut forged = own.clone();
                forged["generation"]["sequence"] = number.into();
                forged["generation"]["hash"] = format!("forged-{number}").into();
                for field in fields {
                    forged["desired"]["device"][field] = other["desired"]["device"][field].clone();
                }
                assert_ne!(forged["desired"]["device"], own["desired"]["device"], "{fields:?}");
                let sent = client.publish(COMMAND, forged.to_string().into()).await.expect("it is sent");
                sent.await.expect("it is stored");
                until(&format!("the driver refuses {fields:?}"), async || {
                    let report = last(&results, RESULT).await;
                    let reason = report["outcome"]["reason"].as_str().unwrap_or_default();
                    report["generation"]["sequence"] == number && reason.starts_with("no login: ")
                })
                .await;
                assert_eq!(logins(system).await, before, "{fields:?}");
            }
        }
        system.sandbox.start_child("engine").await.expect("the engine again");
        system.becomes::<FabricDevice>("leaf1", Phase::Ready).await;
        until("the engine's command is the last", async || {
            system.command("leaf1").await["desired"]["device"] == own["desired"]["device"]
        })
        .await;
    });
}
