//! Fairness between a namespace with very many attachments and one with a single attachment.

use std::time::Instant;

use eno_nbi_crds::{L2Service, L2ServiceAttachment, Phase};
use eno_tests::{attachment, connection_point, service, with_new_sandbox};
use kube::api::{Api, ListParams};

/// Attachments in the flooding namespace: a fifth of the unit tests' number, enough to fill the queues.
const FLOOD_SIZE: usize = 2000;

/// The flood exists before the engine starts, so the engine sees all of it first. The other namespace comes last in the
/// alphabet.
#[test]
fn attachment_is_not_delayed_by_a_flood_in_another_namespace() {
    with_new_sandbox(async |system| {
        for namespace in ["flood", "zone"] {
            system.namespace(namespace).await;
        }
        let network = [service("flood", 800, ""), connection_point("flood", "br0", "")].concat();
        system.apply_until_ready::<L2Service>(&network, "flood").await;
        system.sandbox.stop_child("engine").await.expect("an engine that runs");
        let one =
            |namespace: &str, name: &str| attachment(namespace, name, "flood", "flood", "VlanType: access");
        for hundred in 0..FLOOD_SIZE / 100 {
            let names = (0..100).map(|n| one("flood", &format!("a{}", hundred * 100 + n)));
            system.apply(&names.collect::<String>()).await;
        }
        system.apply(&one("zone", "one")).await;
        let began = Instant::now();
        system.sandbox.start_child("engine").await.expect("an engine");
        system.becomes::<L2ServiceAttachment>("zone/one", Phase::Ready).await;
        let single = began.elapsed();
        let all: Api<L2ServiceAttachment> = Api::namespaced(system.sandbox.client(), "flood");
        let list = all.list(&ListParams::default()).await.expect("a list");
        let ready = |single: &&L2ServiceAttachment| {
            single.status.as_ref().is_some_and(|status| status.phase == Some(Phase::Ready))
        };
        let ready_before = list.iter().filter(ready).count();
        system.all_become::<L2ServiceAttachment>("flood", FLOOD_SIZE, Phase::Ready).await;
        let all = began.elapsed();
        println!(
            "the one was ready after {single:?}, when {ready_before} of {FLOOD_SIZE} were; all of them after {all:?}"
        );
        assert!(ready_before < FLOOD_SIZE / 2, "{ready_before} of {FLOOD_SIZE} came first");
    });
}
