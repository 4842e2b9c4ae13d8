//! Failover between two engines after exit, crash and pause of the leader, with work in flight.

use std::time::{Duration, Instant};

use eno_control_plane::NatsUser;
use eno_tests::{Networks, Receiver, System, until, with_new_sandbox};

use crate::lanes::ha::processes::{is_ready, leads, pause, resume, until_quiet, write_versions};
use crate::lanes::ha::{AFTER_DEATH, serialize_tests};

const ENGINES: [&str; 2] = ["engine", "engine-2"];
/// Maximum time from the leader's exit until the standby is synced.
const AFTER_LEAVING: Duration = Duration::from_secs(2);
const COUNT: u16 = 40;

async fn leader(system: &System) -> [&'static str; 2] {
    let mut found = ENGINES;
    until("a leader", async || {
        for (candidate, other) in [(ENGINES[0], ENGINES[1]), (ENGINES[1], ENGINES[0])] {
            if leads(system, candidate).await {
                found = [candidate, other];
                return true;
            }
        }
        false
    })
    .await;
    found
}

/// Disturbs the leader while networks are created; the standby must lead and be synced within the time.
async fn until_failover(system: &System, within: Duration, disturb: impl AsyncFn(&str)) -> [&'static str; 2] {
    let [old, new] = leader(system).await;
    until("a second engine", async || is_ready(system, new).await).await;
    let began = Instant::now();
    disturb(old).await;
    until("the next leader", async || leads(system, new).await).await;
    // A leader that is ready has seen all objects.
    until("the next leader is in step", async || is_ready(system, new).await).await;
    let took = began.elapsed();
    eprintln!("{new} followed {old} after {:.2} s", took.as_secs_f64());
    assert!(took < within, "{new} followed {old} after {took:?}");
    [old, new]
}

#[test]
fn standby_engine_takes_over_after_exit_and_crash_without_loss() {
    let _guard = serialize_tests();
    with_new_sandbox(async |system| {
        system.sandbox.add(eno_parts::ENGINE, ENGINES[1]).await.expect("a second engine");
        system.create_connection_point("leave").await;
        let receiver = Receiver::start().await;
        let (first, second) = (
            Networks::new("leave", "left", 1000, (COUNT, COUNT), &receiver),
            Networks::new("leave", "died", 1100, (COUNT, COUNT), &receiver),
        );

        let ([old, _], ()) = tokio::join!(
            async {
                first.until_created(system).await;
                until_failover(system, AFTER_LEAVING, async |leader| {
                    system.sandbox.stop_child(leader).await.expect("a leader that leaves");
                })
                .await
            },
            first.apply(system),
        );
        first.ready(system, &receiver).await;
        system.sandbox.start_child(old).await.expect("the engine again");

        let ([old, _], ()) = tokio::join!(
            async {
                second.until_created(system).await;
                until_failover(system, AFTER_DEATH, async |leader| {
                    system.sandbox.kill_child(leader).await.expect("a leader that dies");
                })
                .await
            },
            async {
                second.apply(system).await;
                first.delete(system, &receiver).await;
            },
        );
        second.ready(system, &receiver).await;
        system.sandbox.start_child(old).await.expect("the engine again");
        second.delete(system, &receiver).await;
        first.assert_callbacks(&receiver);
        second.assert_callbacks(&receiver);
    });
}

#[test]
fn paused_leader_writes_nothing_after_it_resumes() {
    let _guard = serialize_tests();
    with_new_sandbox(async |system| {
        system.sandbox.add(eno_parts::ENGINE, ENGINES[1]).await.expect("a second engine");
        let jetstream = system.nats(NatsUser::Admin).await;
        system.create_connection_point("pause").await;
        let receiver = Receiver::start().await;
        let mut before: Option<Networks> = None;
        let mut all = Vec::new();
        for (round, first) in [("one", 1000), ("two", 1100)] {
            let networks = Networks::new("pause", round, first, (COUNT, COUNT), &receiver);
            // The leader is creating some networks and deleting others.
            let ([old, new], (), ()) = tokio::join!(
                async {
                    networks.until_created(system).await;
                    until_failover(system, AFTER_DEATH, async |leader| pause(system, leader)).await
                },
                networks.apply(system),
                async {
                    if let Some(before) = &before {
                        before.delete(system, &receiver).await;
                    }
                },
            );
            networks.ready(system, &receiver).await;
            let then = until_quiet(system, &jetstream).await;
            resume(system, old);
            until("it stands by", async || !leads(system, old).await && is_ready(system, old).await).await;
            let now = until_quiet(system, &jetstream).await;
            assert_eq!(then, now, "{old} wrote when it went on in round {round}");
            assert!(leads(system, new).await, "{new} leads on");
            all.extend(before.replace(networks));
        }
        if let Some(last_message) = before {
            last_message.delete(system, &receiver).await;
            all.push(last_message);
        }
        for networks in &all {
            networks.assert_callbacks(&receiver);
        }
        assert!(!write_versions(system, &jetstream).await.keys().any(|name| name.starts_with("L2Service")));
    });
}
