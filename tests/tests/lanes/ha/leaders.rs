//! Of two engines one leads. It leaves, dies, or is stopped for a while, with work under way.

use std::time::{Duration, Instant};

use eno::sandbox::Role;
use eno_tests::{Receiver, System, own};

use crate::lanes::ha::networks::Networks;
use crate::lanes::ha::parts::{is_ready, jetstream, leads, pause, quiet, resume, until, written};
use crate::lanes::ha::{AFTER_DEATH, turn};

const ENGINES: [&str; 2] = ["engine", "engine-2"];
/// A successor of one that leaves is at work within this time.
const AFTER_LEAVING: Duration = Duration::from_secs(2);
const COUNT: u16 = 40;

async fn leader(system: &System) -> [&'static str; 2] {
    let mut found = ENGINES;
    until("a leader", async || {
        for (who, other) in [(ENGINES[0], ENGINES[1]), (ENGINES[1], ENGINES[0])] {
            if leads(system, who).await {
                found = [who, other];
                return true;
            }
        }
        false
    })
    .await;
    found
}

/// Something befalls the leader while networks are made; the other one leads within the time.
async fn follows(system: &System, within: Duration, befall: impl AsyncFn(&str)) -> [&'static str; 2] {
    let [old, new] = leader(system).await;
    until("a second engine", async || is_ready(system, new).await).await;
    let began = Instant::now();
    befall(old).await;
    until("the next leader", async || leads(system, new).await).await;
    // It leads and has seen all: what it does first comes right after.
    until("the next leader is in step", async || is_ready(system, new).await).await;
    let took = began.elapsed();
    eprintln!("{new} followed {old} after {:.2} s", took.as_secs_f64());
    assert!(took < within, "{new} followed {old} after {took:?}");
    [old, new]
}

#[test]
fn a_leader_that_leaves_or_dies_is_followed_and_nothing_is_lost() {
    let _turn = turn();
    own(
        |_| (),
        async |system| {
            system.sandbox.add(Role::Engine, ENGINES[1]).await.expect("a second engine");
            system.point("leave").await;
            let receiver = Receiver::start().await;
            let (first, second) = (
                Networks::new("leave", "left", 1000, COUNT, &receiver),
                Networks::new("leave", "died", 1100, COUNT, &receiver),
            );

            let ([old, _], ()) = tokio::join!(
                async {
                    first.under_way(system).await;
                    follows(system, AFTER_LEAVING, async |leader| {
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
                    second.under_way(system).await;
                    follows(system, AFTER_DEATH, async |leader| {
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
        },
    );
}

#[test]
fn a_leader_that_is_stopped_for_a_while_does_no_harm_when_it_goes_on() {
    let _turn = turn();
    own(
        |_| (),
        async |system| {
            system.sandbox.add(Role::Engine, ENGINES[1]).await.expect("a second engine");
            let jetstream = jetstream(system).await;
            system.point("pause").await;
            let receiver = Receiver::start().await;
            let mut before: Option<Networks> = None;
            let mut all = Vec::new();
            for (round, first) in [("one", 1000), ("two", 1100)] {
                let networks = Networks::new("pause", round, first, COUNT, &receiver);
                // It is in the middle of making some and of taking others away.
                let ([old, new], (), ()) = tokio::join!(
                    async {
                        networks.under_way(system).await;
                        follows(system, AFTER_DEATH, async |leader| pause(system, leader)).await
                    },
                    networks.apply(system),
                    async {
                        if let Some(before) = &before {
                            before.delete(system, &receiver).await;
                        }
                    },
                );
                networks.ready(system, &receiver).await;
                let then = quiet(system, &jetstream).await;
                resume(system, old);
                until("it stands by", async || !leads(system, old).await && is_ready(system, old).await)
                    .await;
                let now = quiet(system, &jetstream).await;
                assert_eq!(then, now, "{old} wrote when it went on in round {round}");
                assert!(leads(system, new).await, "{new} leads on");
                all.extend(before.replace(networks));
            }
            if let Some(last) = before {
                last.delete(system, &receiver).await;
                all.push(last);
            }
            for networks in &all {
                networks.assert_callbacks(&receiver);
            }
            assert!(!written(system, &jetstream).await.keys().any(|name| name.starts_with("L2Service")));
        },
    );
}
