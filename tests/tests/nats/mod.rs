//! Loss of what NATS stores, under load and when idle: the engine restores everything from Kubernetes.
//! `malformed_messages` covers messages that can't be parsed.

mod lanes;
mod malformed_messages;

use std::collections::BTreeMap;

use async_nats::ConnectOptions;
use async_nats::jetstream::{self, Context};
use eno_control_plane::NatsUser;
use eno_nbi_crds::{FabricDevice, Phase};
use eno_tests::{System, TIMEOUT, with_own_sandbox};

/// A connection to NATS with the credentials of one part.
async fn nats(system: &System, user: NatsUser) -> Context {
    let info = system.sandbox.control_plane().nats();
    let seed = std::fs::read_to_string(info.seed_of(user)).expect("a seed");
    let connection = ConnectOptions::with_nkey(seed.trim().to_owned())
        .custom_inbox_prefix(format!("_INBOX_eno-{}", user.name()))
        .connect(&info.url)
        .await;
    jetstream::new(connection.expect("a connection"))
}

/// The number of changes of each switch.
async fn versions(system: &System) -> BTreeMap<String, u64> {
    let mut versions = BTreeMap::new();
    for info in system.sandbox.switches() {
        let running =
            eno::switch::running(&system.http, info).await.expect("the control API of the simulator");
        versions.insert(info.name.clone(), running.version);
    }
    versions
}

/// A killed server may lose the last message of a subject along with the one before it.
#[test]
fn lost_command_is_republished_without_a_switch_change() {
    with_own_sandbox(
        |_| (),
        async |system| {
            system.create_connection_point("commands").await;
            let jetstream = nats(system, NatsUser::Admin).await;
            let commands = jetstream.get_stream("ENO_COMMANDS").await.expect("a stream");
            let lost = "eno.v1.command.netconf.leaf1";
            assert!(commands.get_last_raw_message_by_subject(lost).await.is_ok());
            commands.purge().filter(lost).await.expect("it is taken out");
            let before = versions(system).await;
            system.restart_part("nats-server").await;
            let republished = async {
                while commands.get_last_raw_message_by_subject(lost).await.is_err() {
                    tokio::task::yield_now().await;
                }
            };
            tokio::time::timeout(TIMEOUT, republished).await.expect("it is published again");
            system.becomes::<FabricDevice>("leaf1", Phase::Ready).await;
            assert_eq!(versions(system).await, before, "a switch was configured anew");
        },
    );
}
