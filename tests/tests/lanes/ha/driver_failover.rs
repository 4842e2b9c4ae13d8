//! Failover between two instances of a driver: each target has one owner at a time.

use std::time::{Duration, Instant};

use eno_control_plane::NatsUser;
use eno_parts::Part;
use eno_tests::{Networks, Receiver, until, with_new_sandbox};

use crate::lanes::ha::processes::{cpu_ticks, owner, pause, resume, until_quiet};
use crate::lanes::ha::serialize_tests;

/// Time until a takeover after a crash: ownership expires 15 s after its last renewal, and a standby checks every 2.5
/// s.
const AFTER_DEATH: Duration = Duration::from_secs(20);
const AFTER_LEAVING: Duration = Duration::from_secs(2);

/// Each driver, its second instance, its name, and one of its targets.
const DRIVERS: [(&Part, &str, &str, &str); 2] = [
    (eno_parts::DRIVER_NETCONF, "driver-netconf-2", "netconf", "leaf1"),
    (eno_parts::DRIVER_NAD, "driver-nad-2", "nad", "_"),
];

#[test]
fn standby_driver_takes_over_after_crash_exit_and_pause() {
    let _guard = serialize_tests();
    with_new_sandbox(async |system| {
        let jetstream = system.nats(NatsUser::Admin).await;
        for (part, second, ..) in DRIVERS {
            system.sandbox.add(part, second).await.expect("a second instance");
        }
        system.create_connection_point("drivers").await;
        let receiver = Receiver::start().await;
        let mut vid = 1000;
        let mut change = |test: &str| {
            vid += 10;
            Networks::new("drivers", test, vid, (3, 3), &receiver)
        };
        let until_owned_by = async |instances: [&str; 2]| {
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
        let (firsts, seconds) = (DRIVERS.map(|(part, ..)| part.name), DRIVERS.map(|(_, second, ..)| second));
        until_owned_by(firsts).await;

        // An idle driver uses next to no CPU.
        until_quiet(system, &jetstream).await;
        let (before, began) = (firsts.map(|name| cpu_ticks(system, name)), Instant::now());
        until_quiet(system, &jetstream).await;
        let limit = began.elapsed().as_millis() / 10 / 10;
        for (name, before) in firsts.iter().zip(before) {
            let used = cpu_ticks(system, name) - before;
            assert!(
                u128::from(used) < limit,
                "{name} was busy for {used} hundredths of a second, of 10 times {limit}"
            );
        }

        // The first instances crash.
        let began = Instant::now();
        for name in firsts {
            system.sandbox.kill_child(name).await.expect("an instance to kill");
        }
        let networks = change("dead");
        networks.apply(system).await;
        until_owned_by(seconds).await;
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

        // The second instances exit.
        let began = Instant::now();
        for name in seconds {
            system.sandbox.stop_child(name).await.expect("an instance that leaves");
        }
        until_owned_by(firsts).await;
        let took = began.elapsed();
        eprintln!("taken over {:.2} s after leaving", took.as_secs_f64());
        assert!(took < AFTER_LEAVING, "{took:?}");
        for name in seconds {
            system.sandbox.start_child(name).await.expect("the instance again");
        }
        networks.delete(system, &receiver).await;

        // The first instances are paused during their work and resumed after the others have done it.
        let networks = change("paused");
        networks.apply(system).await;
        until_quiet(system, &jetstream).await;
        let began = Instant::now();
        for name in firsts {
            pause(system, name);
        }
        let more = change("more");
        more.apply(system).await;
        until_owned_by(seconds).await;
        let took = began.elapsed();
        more.ready(system, &receiver).await;
        eprintln!(
            "taken over {:.1} s after a stop, done after {:.1} s",
            took.as_secs_f64(),
            began.elapsed().as_secs_f64()
        );
        assert!(took < AFTER_DEATH, "{took:?}");
        let then = until_quiet(system, &jetstream).await;
        for name in firsts {
            resume(system, name);
        }
        assert_eq!(until_quiet(system, &jetstream).await, then, "who went on has written");
        until_owned_by(seconds).await;
        networks.delete(system, &receiver).await;
        more.delete(system, &receiver).await;
        assert_eq!(current_owners(&jetstream).await, seconds.map(|name| Some(name.to_owned())));
        more.assert_callbacks(&receiver);
        for child in firsts.into_iter().chain(seconds) {
            let log = system.sandbox.info().processes.into_iter().find(|process| process.name == child);
            let log = std::fs::read_to_string(log.expect("a child").log).expect("its log");
            assert!(!log.contains("is locked by"), "{child} met another session that edits");
        }
    });
}

async fn current_owners(jetstream: &async_nats::jetstream::Context) -> [Option<String>; 2] {
    let [(_, _, netconf, leaf), (_, _, nad, all)] = DRIVERS;
    [owner(jetstream, netconf, leaf).await, owner(jetstream, nad, all).await]
}
