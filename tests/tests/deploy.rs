//! The Deployments of `deploy/manager`: two replicas of each part, spread over nodes where possible, and
//! PodDisruptionBudgets.

use std::collections::BTreeMap;
use std::path::Path;

use kube::ResourceExt as _;
use kube::api::DynamicObject;
use serde_json::{Value, json};

fn objects() -> Vec<DynamicObject> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/manager");
    let text = |name: &str| std::fs::read_to_string(folder.join(name)).expect("a file of deploy/manager");
    let kustomization = text("kustomization.yaml");
    let names = kustomization.lines().filter_map(|line| line.strip_prefix("- "));
    let files = names.filter(|name| Path::new(name).extension().is_some_and(|extension| extension == "yaml"));
    files
        .flat_map(|name| {
            let all: Vec<DynamicObject> = serde_saphyr::from_multiple(&text(name)).expect(name);
            all
        })
        .collect()
}

#[test]
fn deployments_have_two_replicas_and_a_disruption_budget() {
    let all = objects();
    let of = |kind: &str| {
        let of_kind = |object: &&DynamicObject| object.types.as_ref().is_some_and(|types| types.kind == kind);
        all.iter().filter(of_kind).map(|object| (object.name_any(), &object.data["spec"])).collect()
    };
    let (deployments, budgets): (BTreeMap<_, &Value>, BTreeMap<_, &Value>) =
        (of("Deployment"), of("PodDisruptionBudget"));
    assert_eq!(deployments.len(), 5);
    assert_eq!(budgets.keys().collect::<Vec<_>>(), deployments.keys().collect::<Vec<_>>());
    for (name, spec) in deployments {
        let own = json!({"matchLabels": {"app.kubernetes.io/name": name}});
        assert_eq!((&spec["replicas"], &spec["selector"]), (&json!(2), &own), "{name}");
        let pod = &spec["template"];
        assert_eq!(pod["metadata"]["labels"]["app.kubernetes.io/name"], name);
        let spread = pod["spec"]["topologySpreadConstraints"].as_array().expect(&name);
        let keys: Vec<_> = spread.iter().map(|one| &one["topologyKey"]).collect();
        assert_eq!(keys, ["kubernetes.io/hostname", "topology.kubernetes.io/zone"], "{name}");
        for one in spread {
            // A cluster with a single node runs both replicas on it.
            assert_eq!((&one["labelSelector"], &one["whenUnsatisfiable"]), (&own, &json!("ScheduleAnyway")));
        }
        // `maxUnavailable` lets a Deployment with a single replica be drained.
        assert_eq!(*budgets[&name], json!({"maxUnavailable": 1, "selector": own}), "{name}");
    }
}
