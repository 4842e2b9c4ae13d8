//! Of two instances of a driver, each target is worked on by one at a time.

use std::time::{Duration, Instant};

use eno::sandbox::Role;
use eno_tests::{Receiver, own};

use crate::lanes::ha::networks::Networks;
use crate::lanes::ha::parts::{busy, jetstream, owner, pause, quiet, resume, until};
use crate::lanes::ha::turn;

/// What is owned ends 15 s after its last renewal; who waits looks every 2.5 s.
const AFTER_DEATH: Duration = Duration::from_secs(20);
const AFTER_LEAVING: Duration = Duration::from_secs(2);

/// The role, its second instance, and something that it works on.
const DRIVERS: [(Role, &str, &str, &str); 2] = [
    (Role::DriverNetconf, "driver-netconf-2", "netconf", "leaf1"),
    (Role::DriverNad, "driver-nad-2", "nad", "_"),
];

#[test]
fn who_dies_leaves_or_is_stopped_is_followed_by_another_instance() {
    let _turn = turn();
    own(
        |_| (),
        async |system| {
            let jetstream = jetstream(system).await;
            for (role, second, ..) in DRIVERS {
                system.sandbox.add(role, second).await.expect("a second instance");
            }
            system.point("drivers").await;
            let receiver = Receiver::start().await;
            let mut vid = 1000;
            let mut change = |test: &str| {
                vid += 10;
                Networks::new("drivers", test, vid, 3, &receiver)
            };
            let works_on = async |instances: [&str; 2]| {
                let took = until("the next owners", async || {
                    for ((_, _, driver, target), instance) in DRIVERS.iter().zip(instances) {
                        if owner(&jetstream, driver, target).await.as_deref() != Some(instance) {
                            return false;
                        }
                    }
                    true
                });
                took.await
            };
            let (firsts, seconds) =
                (DRIVERS.map(|(role, ..)| role.name()), DRIVERS.map(|(_, second, ..)| second));
            works_on(firsts).await;

            // Who has nothing to do does nothing.
            quiet(system, &jetstream).await;
            let (before, began) = (firsts.map(|name| busy(system, name)), Instant::now());
            quiet(system, &jetstream).await;
            let limit = began.elapsed().as_millis() / 10 / 10;
            for (name, before) in firsts.iter().zip(before) {
                let used = busy(system, name) - before;
                assert!(
                    u128::from(used) < limit,
                    "{name} was busy for {used} hundredths of a second, of 10 times {limit}"
                );
            }

            // They die.
            let began = Instant::now();
            for name in firsts {
                system.sandbox.kill_child(name).await.expect("an instance to kill");
            }
            let networks = change("dead");
            networks.apply(system).await;
            works_on(seconds).await;
            let took = began.elapsed();
            networks.ready(system, &receiver).await;
            eprintln!(
                "taken over {:.1} s after a death, done after {:.1} s",
                took.as_secs_f64(),
                began.elapsed().as_secs_f64()
            );
            assert!(took < AFTER_DEATH, "{took:?}");
            for name in firsts {
                system.sandbox.start_child(name).await.expect("the instance again");
            }

            // They leave.
            let began = Instant::now();
            for name in seconds {
                system.sandbox.stop_child(name).await.expect("an instance that leaves");
            }
            works_on(firsts).await;
            let took = began.elapsed();
            eprintln!("taken over {:.2} s after leaving", took.as_secs_f64());
            assert!(took < AFTER_LEAVING, "{took:?}");
            for name in seconds {
                system.sandbox.start_child(name).await.expect("the instance again");
            }
            networks.delete(system, &receiver).await;

            // They are stopped in the middle of the work, and go on when others have done it.
            let networks = change("paused");
            networks.apply(system).await;
            quiet(system, &jetstream).await;
            let began = Instant::now();
            for name in firsts {
                pause(system, name);
            }
            let more = change("more");
            more.apply(system).await;
            works_on(seconds).await;
            let took = began.elapsed();
            more.ready(system, &receiver).await;
            eprintln!(
                "taken over {:.1} s after a stop, done after {:.1} s",
                took.as_secs_f64(),
                began.elapsed().as_secs_f64()
            );
            assert!(took < AFTER_DEATH, "{took:?}");
            let then = quiet(system, &jetstream).await;
            for name in firsts {
                resume(system, name);
            }
            assert_eq!(quiet(system, &jetstream).await, then, "who went on has written");
            works_on(seconds).await;
            networks.delete(system, &receiver).await;
            more.delete(system, &receiver).await;
            assert_eq!(quiet_owners(&jetstream).await, seconds.map(|name| Some(name.to_owned())));
            more.assert_callbacks(&receiver);
            for child in firsts.into_iter().chain(seconds) {
                let log = system.sandbox.info().processes.into_iter().find(|process| process.name == child);
                let log = std::fs::read_to_string(log.expect("a child").log).expect("its log");
                assert!(!log.contains("is locked by"), "{child} met another session that edits");
            }
        },
    );
}

async fn quiet_owners(jetstream: &async_nats::jetstream::Context) -> [Option<String>; 2] {
    let [(_, _, netconf, leaf), (_, _, nad, all)] = DRIVERS;
    [owner(jetstream, netconf, leaf).await, owner(jetstream, nad, all).await]
}
