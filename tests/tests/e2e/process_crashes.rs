//! Crashes of the engine, the drivers and NATS while objects are created.

use eno_tests::{Networks, Receiver, System, with_exclusive_sandbox};

/// Creates `count` services with an attachment each, and runs `disturb` once some of them exist. All of them must be
/// created and deleted nevertheless, with every callback.
async fn assert_survives(system: &System, test: &str, first: u16, count: u16, disturb: impl AsyncFnOnce()) {
    system.create_connection_point(test).await;
    let receiver = Receiver::start().await;
    let networks = Networks::new(test, test, first, (count, count), &receiver);
    let disturbing = async {
        networks.until_created(system).await;
        disturb().await;
    };
    tokio::join!(networks.apply(system), disturbing);
    networks.ready(system, &receiver).await;
    networks.delete(system, &receiver).await;
    networks.assert_callbacks(&receiver);
}

async fn kill_and_start(system: &System, child: &str) {
    system.sandbox.kill_child(child).await.expect("a child to kill");
    system.sandbox.start_child(child).await.expect("the child again");
}

#[test]
fn networks_and_callbacks_survive_an_engine_crash() {
    with_exclusive_sandbox(async |system| {
        assert_survives(system, "killengine", 1000, 100, async || kill_and_start(system, "engine").await)
            .await;
    });
}

#[test]
fn networks_and_callbacks_survive_driver_crashes() {
    with_exclusive_sandbox(async |system| {
        assert_survives(system, "killdrivers", 1200, 30, async || {
            tokio::join!(kill_and_start(system, "driver-netconf"), kill_and_start(system, "driver-nad"));
        })
        .await;
    });
}

#[test]
fn networks_and_callbacks_survive_a_nats_crash() {
    with_exclusive_sandbox(async |system| {
        assert_survives(system, "killnats", 1300, 30, async || system.restart_part("nats-server").await)
            .await;
    });
}
