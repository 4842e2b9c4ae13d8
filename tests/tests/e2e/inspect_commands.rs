//! `eno plan`, `status`, `trace` and `blame`: the predicted, the present and the past state.

use eno_nbi_crds::L2ServiceAttachment;
use eno_tests::{access, service, with_shared_sandbox};
use serde_json::{Value, json};

use crate::e2e::create_namespace_and_point;

fn find<'a>(list: &'a Value, field: &str, value: &str) -> &'a Value {
    let found = list.as_array().expect("a list").iter().find(|one| one[field] == value);
    found.unwrap_or_else(|| panic!("no {field} {value} in {list:#}"))
}

#[test]
fn plan_predicts_what_apply_does() {
    with_shared_sandbox(async |system| {
        create_namespace_and_point(system, "ask", &["node1", "node3"]).await;
        let network = [service("ask-a", 240, ""), access("ask", "a", "ask-a")].concat();

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

        system.apply_until_ready::<L2ServiceAttachment>(&network, "ask/a").await;
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

        system.delete_with_vlans(&network, [240]).await;
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
        create_namespace_and_point(system, "askbad", &["node1"]).await;
        let first_service = [service("askbad-a", 241, ""), access("askbad", "a", "askbad-a")].concat();
        system.apply_until_ready::<L2ServiceAttachment>(&first_service, "askbad/a").await;

        let same_vlan = [service("askbad-b", 241, ""), access("askbad", "b", "askbad-b")].concat();
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
        system.delete_with_vlans(&first_service, [241]).await;
    });
}
