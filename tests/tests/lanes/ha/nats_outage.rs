//! NATS hangs or crashes: probes and metrics report it, and the sandbox restarts it.

use std::process::Command;

use eno_nbi_crds::L2Service;
use eno_tests::{System, service, until, with_new_sandbox};

use crate::lanes::ha::processes::{is_ready, pause, resume};
use crate::lanes::ha::serialize_tests;

const NATS: &str = "nats-server";
/// The processes, each with the gauge of its connection.
const PARTS: [(&str, &str); 5] = [
    ("engine", "eno_engine_nats_connected"),
    ("driver-netconf", "eno_driver_nats_connected"),
    ("driver-ovs-fabric", "eno_driver_nats_connected"),
    ("driver-neutron", "eno_driver_nats_connected"),
    ("driver-nad", "eno_driver_nats_connected"),
];

/// Waits until every process reports whether NATS answers, and checks that it is alive.
async fn until_all_report(system: &System, answers: bool) {
    for (part, gauge) in PARTS {
        until(&format!("{part}: NATS answers: {answers}"), async || {
            let is_reported =
                system.metric(part, gauge).await.as_deref() == Some(if answers { "1" } else { "0" });
            is_reported && is_ready(system, part).await == answers
        })
        .await;
        let url = format!("{}/healthz", system.sandbox.url(part).expect("its address"));
        let alive = system.http.get(url).send().await.expect("an answer");
        assert!(alive.status().is_success(), "{part}: {alive:?}");
    }
}

async fn assert_service_becomes_ready(system: &System, vid: u16) {
    let name = format!("silent-{vid}");
    system.apply_until_ready::<L2Service>(&service(&name, vid, "PhysicalNW: [dc-gw]"), &name).await;
}

#[test]
fn nats_outage_is_reported_by_probes_and_recovered() {
    let _guard = serialize_tests();
    with_new_sandbox(async |system| {
        until_all_report(system, true).await;
        pause(system, NATS);
        until_all_report(system, false).await;
        resume(system, NATS);
        until_all_report(system, true).await;
        assert_service_becomes_ready(system, 1000).await;

        // The sandbox restarts it after a crash.
        let died = async {
            let pid = system.sandbox.pid(NATS).expect("it runs").to_string();
            let killed = Command::new("kill").args(["-KILL", &pid]).status().expect("kill");
            assert!(killed.success());
            let runs = || system.sandbox.pid(NATS).map(|pid| pid.to_string());
            until("another nats-server", async || runs().is_some_and(|now| now != pid)).await;
            until_all_report(system, true).await;
            assert_service_becomes_ready(system, 1001).await;
        };
        tokio::select! {
            ended = system.sandbox.supervise() => panic!("{ended}"),
            () = died => {}
        }
    });
}
