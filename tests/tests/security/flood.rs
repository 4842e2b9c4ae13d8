//! A tenant with very many attachments, beside one with a single one.

use std::time::Instant;

use eno_nbi_crds::{L2Service, L2ServiceAttachment, Phase};
use eno_tests::own;
use kube::api::{Api, ListParams};

/// A fifth of what the unit tests of the queues have: enough for them to be full for a while.
const MANY: usize = 2000;

fn attachment(namespace: &str, name: &str) -> String {
    format!(
        "\n---\napiVersion: eno.k8s.io/v1alpha1\nkind: L2ServiceAttachment\nmetadata: {{name: {name}, namespace: \
         {namespace}, labels: {{test: {namespace}}}}}\nspec: {{ConnectionPoint: flood, L2Services: [flood], VlanType: \
         access}}"
    )
}

/// The flood is there before an engine is, so that all of it is to be done at once and first; the namespace of the
/// other one comes last in the alphabet.
#[test]
fn a_flood_of_one_namespace_keeps_no_other_waiting() {
    own(
        |_| (),
        async |system| {
            for namespace in ["flood", "zone"] {
                system.namespace(namespace).await;
            }
            let network = "
{apiVersion: eno.k8s.io/v1alpha1, kind: L2Service, metadata: {name: flood}, spec: {SegmentationID: 800}}
---
apiVersion: eno.k8s.io/v1alpha1
kind: ConnectionPoint
metadata: {name: flood}
spec: {SupportedCnis: [{Name: ovs, SupportedInterfaceTypes: [kernel], Opts: '{\"BridgeName\": \"br0\"}'}]}
";
            system.apply(network).await;
            system.becomes::<L2Service>("flood", Phase::Ready).await;
            system.sandbox.stop_child("engine").await.expect("an engine that runs");
            for hundred in 0..MANY / 100 {
                let names = (0..100).map(|n| attachment("flood", &format!("a{}", hundred * 100 + n)));
                system.apply(&names.collect::<String>()).await;
            }
            system.apply(&attachment("zone", "one")).await;
            let began = Instant::now();
            system.sandbox.start_child("engine").await.expect("an engine");
            system.becomes::<L2ServiceAttachment>("zone/one", Phase::Ready).await;
            let one = began.elapsed();
            let all: Api<L2ServiceAttachment> = Api::namespaced(system.sandbox.client(), "flood");
            let list = all.list(&ListParams::default()).await.expect("a list");
            let ready = |one: &&L2ServiceAttachment| {
                one.status.as_ref().is_some_and(|status| status.phase == Some(Phase::Ready))
            };
            let before = list.iter().filter(ready).count();
            system.all_become::<L2ServiceAttachment>("flood", MANY, Phase::Ready).await;
            let all = began.elapsed();
            println!(
                "the one was ready after {one:?}, when {before} of {MANY} were; all of them after {all:?}"
            );
            assert!(before < MANY / 2, "{before} of {MANY} came first");
        },
    );
}
