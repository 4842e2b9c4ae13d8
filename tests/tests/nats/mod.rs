//! What NATS holds is lost while there is much to do, and while there is nothing to do: everything comes back from
//! Kubernetes, and only there. And what stands there may be no word of anybody's (`poison`).

mod lanes;
mod poison;

use std::collections::BTreeMap;

use async_nats::ConnectOptions;
use async_nats::jetstream::{self, Context};
use eno_control_plane::NatsUser;
use eno_nbi_crds::{FabricDevice, Phase};
use eno_tests::{PATIENCE, System, own};

/// NATS as a part may use it.
async fn nats(system: &System, user: NatsUser) -> Context {
    let info = system.sandbox.control_plane().nats();
    let seed = std::fs::read_to_string(info.seed_of(user)).expect("a seed");
    let connection = ConnectOptions::with_nkey(seed.trim().to_owned())
        .custom_inbox_prefix(format!("_INBOX_eno-{}", user.name()))
        .connect(&info.url)
        .await;
    jetstream::new(connection.expect("a connection"))
}

/// The count of changes of each switch.
async fn versions(system: &System) -> BTreeMap<String, u64> {
    let mut versions = BTreeMap::new();
    for info in system.sandbox.switches() {
        let running =
            eno::switch::running(&system.http, info).await.expect("the control API of the simulator");
        versions.insert(info.name.clone(), running.version);
    }
    versions
}

/// A server that is killed may lose the last message of a subject along with the one before it.
#[test]
fn commands_are_lost_with_the_server() {
    own(
        |_| (),
        async |system| {
            system.point("commands").await;
            let jetstream = nats(system, NatsUser::Admin).await;
            let commands = jetstream.get_stream("ENO_COMMANDS").await.expect("a stream");
            let lost = "eno.v1.command.netconf.leaf1";
            assert!(commands.get_last_raw_message_by_subject(lost).await.is_ok());
            commands.purge().filter(lost).await.expect("it is taken out");
            let before = versions(system).await;
            system.restart_part("nats-server").await;
            let back = async {
                while commands.get_last_raw_message_by_subject(lost).await.is_err() {
                    tokio::task::yield_now().await;
                }
            };
            tokio::time::timeout(PATIENCE, back).await.expect("it is said again");
            system.becomes::<FabricDevice>("leaf1", Phase::Ready).await;
            assert_eq!(versions(system).await, before, "a switch was configured anew");
        },
    );
}
