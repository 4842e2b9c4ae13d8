//! Loss of streams, store and server with a thousand attachments.

use std::path::PathBuf;

use eno_control_plane::NatsUser;
use eno_tests::{Networks, Receiver, System, with_new_sandbox};

use super::versions;

const SERVICES: u16 = 20;
const ATTACHMENTS: u16 = 1000;
const STREAMS: [&str; 9] = [
    "ENO_COMMANDS",
    "ENO_PARTS",
    "ENO_RESULTS",
    "ENO_TRANSITIONS",
    "ENO_HISTORY",
    "ENO_DEAD_LETTERS",
    "KV_ENO_DRIVERS",
    "KV_ENO_OWNERS",
    "KV_ENO_CALLBACKS",
];

/// Creates the networks of a test, and runs `lose` meanwhile.
async fn create(system: &System, test: &str, receiver: &Receiver, lose: impl AsyncFnOnce()) -> Networks {
    system.create_connection_point(test).await;
    let networks = Networks::new(test, test, 1000, (SERVICES, ATTACHMENTS), receiver);
    tokio::join!(networks.apply(system), async {
        networks.until_created(system).await;
        lose().await;
    });
    networks.ready(system, receiver).await;
    networks
}

/// Runs `lose` while attachments are created, when nothing is to do, and while they are deleted.
async fn assert_survives(system: &System, test: &str, lose: impl AsyncFn()) {
    let receiver = Receiver::start().await;
    let networks = create(system, test, &receiver, &lose).await;

    // When idle, no switch is changed, and every callback is posted once more.
    let before = versions(system).await;
    receiver.forget();
    lose().await;
    networks.ready(system, &receiver).await;
    assert_eq!(versions(system).await, before, "a switch was configured anew");

    tokio::join!(networks.request_deletion(system), async {
        networks.until_deleting(system).await;
        lose().await;
    });
    networks.gone(system).await;
}

#[test]
fn networks_survive_deletion_of_every_stream() {
    with_new_sandbox(async |system| {
        let jetstream = system.nats(NatsUser::Admin).await;
        assert_survives(system, "streams", async || {
            for stream in STREAMS {
                jetstream.delete_stream(stream).await.expect("a stream to delete");
            }
        })
        .await;
    });
}

#[test]
fn networks_survive_loss_of_the_jetstream_store() {
    with_new_sandbox(async |system| {
        let store: PathBuf = system.sandbox.control_plane().dir().join("nats/jetstream");
        assert_survives(system, "store", async || {
            let wipe = || std::fs::remove_dir_all(&store).expect("a store to remove");
            system.restart_part_after("nats-server", wipe).await;
        })
        .await;
    });
}

#[test]
fn networks_and_callbacks_survive_a_server_crash() {
    with_new_sandbox(async |system| {
        let receiver = Receiver::start().await;
        let crash = async || system.restart_part("nats-server").await;
        let networks = create(system, "server", &receiver, crash).await;
        networks.assert_callbacks(&receiver);
    });
}
