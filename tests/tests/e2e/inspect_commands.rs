//! `eno plan`, `status`, `trace` and `blame`: the predicted, the present and the past state.

use eno_nbi_crds::{L2ServiceAttachment, Phase};
use eno_tests::{attachment, service, with_shared_sandbox};
use serde_json::{Value, json};

use crate::e2e::create_connection_point;

fn find<'a>(list: &'a Value, field: &str, value: &str) -> &'a Value {
    let found = list.as_array().expect("a list").iter().find(|one| one[field] == value);
    found.unwrap_or_else(|| panic!("no {field} {value} in {list:#}"))
}

#[test]
fn plan_predicts_what_apply_does() {
    with_shared_sandbox(async |system| {
        system.namespace("ask").await;
        create_connection_point(system, "ask", &["node1", "node3"]).await;
        let network =
            [service("ask-a", 240, ""), attachment("ask", "a", "ask", "ask-a", "VlanType: access")].concat();

        let plan = system.eno_json(&["plan", "-f", "-"], &network, 0).await;
        assert_eq!(find(&plan["objects"], "kind", "L2Service")["act"], "create");
        let attached = find(&plan["objects"], "kind", "L2ServiceAttachment");
        assert_eq!((&attached["act"], &attached["after"]["phase"]), (&json!("create"), &json!("ready")));
        let leaf = find(&plan["switches"], "name", "leaf1");
        assert_eq!((&leaf["make"], &leaf["ports"]["Ethernet1"]["add"]), (&json!("240"), &json!("240")));
        assert_eq!(find(&plan["networkAttachmentDefinitions"], "namespace", "ask")["act"], "create");
        let edits = system.eno(&["plan", "-f", "-", "-o", "xml"], &network).await;
        let edits = String::from_utf8(edits.stdout).expect("UTF-8");
        assert!(edits.contains("<vlan-id>240</vlan-id>") && edits.contains("<!-- leaf2 -->"), "{edits}");
        // A plan changes nothing.
        assert!(system.ports_of(240).await.is_empty());

        system.apply(&network).await;
        system.becomes::<L2ServiceAttachment>("ask/a", Phase::Ready).await;
        let again = system.eno_json(&["plan", "-f", "-"], &network, 0).await;
        assert_eq!(again["switches"], json!([]), "what is there needs nothing: {again:#}");

        let status = system.eno_json(&["status", "l2sa/a", "-n", "ask"], "", 0).await;
        assert_eq!(status["phase"], "ready");
        let hop = find(&status["switches"], "switch", "leaf1");
        assert_eq!((&hop["state"], &hop["vlans"]), (&json!("confirmed"), &json!("240")));
        assert!(hop["ports"].as_array().is_some_and(|ports| ports.contains(&json!("Ethernet1"))), "{hop:#}");

        let blame = system.eno_json(&["blame", "leaf1", "Ethernet1"], "", 0).await;
        let line = blame["vlans"].as_array().expect("a list").iter().find(|line| line["vlan"] == 240);
        assert_eq!(line.expect("VLAN 240")["wantedBy"], json!(["L2Service/ask-a"]));

        let deletion = system.eno_json(&["plan", "--delete", "-f", "-"], &network, 0).await;
        assert_eq!(find(&deletion["switches"], "name", "leaf1")["delete"], "240");
        assert!(find(&deletion["objects"], "kind", "L2ServiceAttachment")["after"].is_null());

        system.delete(&network).await;
        system.until_without([240]).await;
        let trace = system.eno_json(&["trace", "l2sa/a", "-n", "ask"], "", 0).await;
        let phases: Vec<&str> = trace["entries"]
            .as_array()
            .expect("a list")
            .iter()
            .filter(|entry| entry["what"] == "phase")
            .filter_map(|entry| entry["text"].as_str()?.split(':').next())
            .collect();
        assert!(phases.starts_with(&["pending", "ready", "terminating"]), "{trace:#}");
    });
}

#[test]
fn plan_reports_conflicts_and_schema_errors() {
    with_shared_sandbox(async |system| {
        system.namespace("askbad").await;
        create_connection_point(system, "askbad", &["node1"]).await;
        let first_service = [
            service("askbad-a", 241, ""),
            attachment("askbad", "a", "askbad", "askbad-a", "VlanType: access"),
        ]
        .concat();
        system.apply(&first_service).await;
        system.becomes::<L2ServiceAttachment>("askbad/a", Phase::Ready).await;

        let same_vlan = [
            service("askbad-b", 241, ""),
            attachment("askbad", "b", "askbad", "askbad-b", "VlanType: access"),
        ]
        .concat();
        let plan = system.eno_json(&["plan", "-f", "-"], &same_vlan, 2).await;
        let service_b = find(&plan["objects"], "name", "askbad-b");
        assert_eq!(service_b["after"]["phase"], "error");
        assert!(
            service_b["after"]["message"].as_str().is_some_and(|text| text.contains("askbad-a")),
            "{plan:#}"
        );

        let nonsense = service("askbad-c", 5000, "");
        let plan = system.eno_json(&["plan", "-f", "-"], &nonsense, 2).await;
        assert!(
            plan["refused"][0]["reason"].as_str().is_some_and(|text| text.contains("SegmentationID")),
            "{plan:#}"
        );

        let foreign = system.eno(&["status", "l2s/nobody"], "").await;
        assert_eq!(foreign.status.code(), Some(1));
        assert!(String::from_utf8_lossy(&foreign.stderr).contains("L2Service/nobody does not exist"));
        system.delete(&first_service).await;
        system.until_without([241]).await;
    });
}
