//! The manifests of `deploy/` have what the facts about the parts say. The messages name what is missing.

use std::collections::BTreeSet;
use std::path::Path;

use eno_parts::{Part, Workload, WorkloadKind};
use serde_json::{Value, json};

/// The text of a file of `deploy/`.
fn text(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The objects of folders of `deploy/`, of the files that their kustomizations list.
fn objects(folders: &[&str]) -> Vec<Value> {
    let of_folder = |folder: &&str| {
        let kustomization: Value =
            serde_saphyr::from_str(&text(&format!("{folder}/kustomization.yaml"))).expect("a kustomization");
        let files = kustomization["resources"].as_array().expect("resources").clone();
        let of_file = |file: &Value| text(&format!("{folder}/{}", file.as_str().expect("a file")));
        files.iter().flat_map(|file| of_yaml(&of_file(file))).collect::<Vec<_>>()
    };
    folders.iter().flat_map(of_folder).collect()
}

fn of_yaml(text: &str) -> Vec<Value> {
    serde_saphyr::from_multiple(text).expect("objects")
}

/// The object of this kind and name, which must be in a file or folder.
fn find<'a>(objects: &'a [Value], place: &str, kind: &str, name: &str) -> &'a Value {
    let is_it = |object: &&Value| object["kind"] == kind && object["metadata"]["name"] == name;
    objects.iter().find(is_it).unwrap_or_else(|| panic!("deploy/{place} has no {kind} {name}"))
}

fn pod(workload: &Value) -> &Value {
    &workload["spec"]["template"]["spec"]
}

/// The parts with a Deployment: the engine and the drivers.
fn deployed() -> impl Iterator<Item = (&'static Part, &'static Workload)> {
    let all = eno_parts::ALL.into_iter().filter_map(|part| Some((part, part.workload.as_ref()?)));
    all.filter(|(_, workload)| workload.kind == WorkloadKind::Deployment)
}

#[test]
fn deployments_have_two_replicas_and_a_disruption_budget() {
    let objects = objects(&["manager"]);
    for (_, workload) in deployed() {
        let name = workload.name;
        let spec = &find(&objects, "manager", "Deployment", name)["spec"];
        let own = json!({ "matchLabels": { "app.kubernetes.io/name": name } });
        assert_eq!((&spec["replicas"], &spec["selector"]), (&json!(2), &own), "{name}");
        let spread = spec["template"]["spec"]["topologySpreadConstraints"].as_array().expect(name);
        let keys: Vec<_> = spread.iter().map(|one| &one["topologyKey"]).collect();
        assert_eq!(keys, ["kubernetes.io/hostname", "topology.kubernetes.io/zone"], "{name}");
        for one in spread {
            // A cluster with a single node runs both replicas on it.
            assert_eq!((&one["labelSelector"], &one["whenUnsatisfiable"]), (&own, &json!("ScheduleAnyway")));
        }
        // `maxUnavailable` lets a Deployment with a single replica be drained.
        let budget = find(&objects, "manager", "PodDisruptionBudget", name);
        assert_eq!(budget["spec"], json!({ "maxUnavailable": 1, "selector": own }), "{name}");
    }
}

#[test]
fn workloads_are_those_of_the_manifests() {
    let mut found = BTreeSet::new();
    for object in objects(&["nats", "manager", "agent"]) {
        let (kind, name) = (object["kind"].as_str().expect("a kind"), &object["metadata"]["name"]);
        if ["Deployment", "StatefulSet", "DaemonSet"].contains(&kind) {
            let label = object.pointer("/spec/template/metadata/labels/app.kubernetes.io~1name");
            assert_eq!(label, Some(name));
            found.insert(format!("{kind} {}", name.as_str().expect("a name")));
        }
    }
    let facts = eno_parts::workloads().map(|one| format!("{} {}", one.kind.as_str(), one.name));
    assert_eq!(found, facts.collect(), "deploy/ on the left, the files part.toml on the right");
}

#[test]
fn deployments_fit_the_facts() {
    let manager = objects(&["manager"]);
    for (part, workload) in deployed() {
        let name = workload.name;
        let deployment = find(&manager, "manager", "Deployment", name);
        let container = &pod(deployment)["containers"][0];
        assert_eq!(container["args"], json!(part.arguments()), "{name}: args");
        assert_eq!(pod(deployment)["serviceAccountName"], part.account.name, "{name}");
        for (probe, path) in [("readinessProbe", "/readyz"), ("livenessProbe", "/healthz")] {
            assert_eq!(container[probe]["httpGet"], json!({"path": path, "port": "http"}), "{name}: {probe}");
        }
        let seed = json!([{"key": format!("{}.seed", part.name), "path": "seed"}]);
        let volumes = pod(deployment)["volumes"].as_array().expect("volumes");
        assert_eq!(
            volumes.iter().any(|volume| volume["secret"]["items"] == seed),
            part.nats_key,
            "{name}: a seed"
        );
    }
}

#[test]
fn accounts_have_the_rights_of_the_facts() {
    let access = objects(&["rbac", "agent"]);
    for part in eno_parts::ALL.into_iter().filter(|part| part.account.name != "default") {
        let name = part.account.name;
        let account = find(&access, "rbac", "ServiceAccount", name);
        assert_eq!(account["metadata"]["namespace"], part.account.namespace, "{name}");
        let has_token = account["automountServiceAccountToken"] != false;
        assert_eq!(has_token, part.rights.is_some(), "{name}: automountServiceAccountToken");
    }
}

#[test]
fn each_part_is_monitored() {
    let services = of_yaml(&text("monitoring/services.yaml"));
    for workload in eno_parts::workloads().filter(|one| one.kind != WorkloadKind::StatefulSet) {
        let service = find(&services, "monitoring/services.yaml", "Service", workload.name);
        assert_eq!(service["metadata"]["namespace"], workload.namespace, "{}", workload.name);
        assert_eq!(service["spec"]["selector"], json!({"app.kubernetes.io/name": workload.name}));
    }
}
