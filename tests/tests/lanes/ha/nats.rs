//! NATS does not answer, or dies: probes and metrics say so, and it is started again.

use std::process::Command;

use eno_nbi_crds::{L2Service, Phase};
use eno_tests::{System, own};

use crate::lanes::ha::parts::{is_ready, metric, pause, resume, until};
use crate::lanes::ha::turn;

const NATS: &str = "nats-server";
/// What runs, and its gauge.
const PARTS: [(&str, &str); 4] = [
    ("engine", "eno_engine_nats_connected"),
    ("driver-netconf", "eno_driver_nats_connected"),
    ("driver-ovs-fabric", "eno_driver_nats_connected"),
    ("driver-nad", "eno_driver_nats_connected"),
];

/// Waits until every part says whether NATS answers it, and that it is alive.
async fn until_all_say(system: &System, answers: bool) {
    for (part, gauge) in PARTS {
        until(&format!("{part}: NATS answers: {answers}"), async || {
            let says = metric(system, part, gauge).await.as_deref() == Some(if answers { "1" } else { "0" });
            says && is_ready(system, part).await == answers
        })
        .await;
        let url = format!("{}/healthz", system.sandbox.url(part).expect("its address"));
        let alive = system.http.get(url).send().await.expect("an answer");
        assert!(alive.status().is_success(), "{part}: {alive:?}");
    }
}

async fn works(system: &System, vid: u16) {
    let service = format!(
        "apiVersion: eno.k8s.io/v1alpha1\nkind: L2Service\nmetadata: {{name: silent-{vid}}}\nspec: {{SegmentationID: \
         {vid}, PhysicalNW: [dc-gw]}}"
    );
    system.apply(&service).await;
    system.becomes::<L2Service>(&format!("silent-{vid}"), Phase::Ready).await;
}

#[test]
fn nats_that_is_silent_or_dead_is_noticed_and_comes_back() {
    let _turn = turn();
    own(
        |_| (),
        async |system| {
            until_all_say(system, true).await;
            pause(system, NATS);
            until_all_say(system, false).await;
            resume(system, NATS);
            until_all_say(system, true).await;
            works(system, 1000).await;

            // The sandbox starts it again when it dies.
            let died = async {
                let pid = system.sandbox.pid(NATS).expect("it runs").to_string();
                let killed = Command::new("kill").args(["-KILL", &pid]).status().expect("kill");
                assert!(killed.success());
                let runs = || system.sandbox.pid(NATS).map(|pid| pid.to_string());
                until("another nats-server", async || runs().is_some_and(|now| now != pid)).await;
                until_all_say(system, true).await;
                works(system, 1001).await;
            };
            tokio::select! {
                ended = system.sandbox.supervise() => panic!("{ended}"),
                () = died => {}
            }
        },
    );
}
