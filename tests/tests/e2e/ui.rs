//! The pages of `eno ui` in a browser: each draws itself, and shows a change at once.

use eno_nbi_crds::{L2Service, L2ServiceAttachment, Phase};
use eno_tests::browser::{ConsoleOptions, run_scenario};
use eno_tests::{access, service, with_shared_sandbox};
use serde_json::{Value, json};

use crate::e2e::connectivity::Target;
use crate::e2e::create_namespace_and_point;

#[test]
fn browser_draws_each_page_and_a_change_arrives() {
    with_shared_sandbox(async |system| {
        create_namespace_and_point(system, "uismoke", &["node1", "node3"]).await;
        let network =
            [service("uismoke-a", 3730, "PhysicalNW: [dc-gw]"), access("uismoke", "a", "uismoke-a")].concat();
        system.apply_until_ready::<L2ServiceAttachment>(&network, "uismoke/a").await;
        let lost = json!({ "from": "node1", "to": "node3", "vlan": 3730, "outcome": "lost" });
        let answer = json!({ "nonce": "n", "complete": true, "results": [lost] });
        Target("L2ServiceAttachment", "uismoke/a").write(system, json!({ "verification": answer })).await;
        let more = service("uismoke-new", 3731, "PhysicalNW: [island-gw]");
        let console = system.console(&ConsoleOptions::default()).await;
        let input = json!({ "object": "L2ServiceAttachment/uismoke/a", "changed": "uismoke-new" });
        run_scenario(&console, "smoke", &input, async |step| {
            assert_eq!(step, "change");
            system.apply(&more).await;
            Value::Null
        })
        .await;
        console.stop().await;
        system.becomes::<L2Service>("uismoke-new", Phase::Ready).await;
        system.delete_with_vlans(&[network, more].concat(), [3730, 3731]).await;
    });
}
