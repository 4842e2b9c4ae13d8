//! Loss of what NATS stores, under load and when idle: the engine restores everything from Kubernetes.
//! `malformed_messages` covers messages that can't be parsed.

mod lanes;
mod malformed_messages;

use std::collections::BTreeMap;

use eno_control_plane::NatsUser;
use eno_nbi_crds::{FabricDevice, Phase};
use eno_tests::{System, until, with_new_sandbox};

/// The number of changes of each switch.
async fn versions(system: &System) -> BTreeMap<String, u64> {
    let mut versions = BTreeMap::new();
    for info in system.sandbox.switches() {
        let running =
            eno_lab::switch::running(&system.http, info).await.expect("the control API of the simulator");
        versions.insert(info.name.clone(), running.version);
    }
    versions
}

/// A killed server may lose the last message of a subject along with the one before it.
#[test]
fn lost_command_is_republished_without_a_switch_change() {
    with_new_sandbox(async |system| {
        system.create_connection_point("commands").await;
        let jetstream = system.nats(NatsUser::Admin).await;
        let commands = jetstream.get_stream("ENO_COMMANDS").await.expect("a stream");
        let lost = "eno.v1.command.netconf.leaf1";
        assert!(commands.get_last_raw_message_by_subject(lost).await.is_ok());
        commands.purge().filter(lost).await.expect("it is taken out");
        let before = versions(system).await;
        system.restart_part("nats-server").await;
        until("it is published again", async || commands.get_last_raw_message_by_subject(lost).await.is_ok())
            .await;
        system.becomes::<FabricDevice>("leaf1", Phase::Ready).await;
        assert_eq!(versions(system).await, before, "a switch was configured anew");
    });
}
