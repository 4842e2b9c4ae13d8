//! The Helm chart: what it renders, and what it does with other installations.

use std::collections::BTreeMap;
use std::path::Path;

use eno::install::context::ContextStore;
use eno::install::secrets::Secrets;
use eno::install::{Values, keys, render};
use eno_control_plane::parts::Part;
use eno_tests::Helm;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret, ServiceAccount};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use super::{SYSTEM, WAIT, control_plane, data, installed, kubectl_kustomize, refusal};

/// Values that change all that values can change.
const ALL: &str = "
image: registry.example.com:5000/eno:v1
natsImage: registry.example.com/eno-nats@sha256:0123
imagePullPolicy: Never
imagePullSecrets: [one, two]
nats: {replicas: 3, storageClass: fast, storageSize: 9Gi, memoryLimit: 1Gi}
clusterID: '007'
callbackAllow: [hooks.example.com]
callbackDeny: [10.244.0.0/16, 10.96.0.0/12]
callbackHttpsOnly: true
callbackProxy: http://proxy.example.com:3128
bridgeDomains: true
verify: false
nodeCIDRs: [10.1.0.0/16, 'fd00::/8']
runtimeDirectory: /run/crio
openvswitchDirectory: /var/run/openvswitch
cniDirectory: /usr/libexec/cni
sampleImage: busybox:1
multusNamespace: multus
metallbNamespace: lb
log: 'info,eno_engine=debug'
nodeSelector: {node-role.kubernetes.io/infra: 'true', '1.10': 'on'}
tolerations: [{key: infra, operator: Exists}, {effect: NoExecute, key: a, value: b}]
agent: {allowInterfaces: [eth1, eth2.5], ovsDatapath: netdev, returnPathMask: '0x3000', env: {ENO_OVSDB: 'tcp:127.0.0.1:6640', ENO_X: 'true'}}
nodeMetrics: true
certManager: true
admission: true
nadDefinition: true
monitoring: {podMonitors: true, rules: true, dashboard: true, labels: {release: prometheus}}
";

/// Kind, namespace and name of an object.
type Id = (String, String, String);

/// Objects by their identity, without what Helm, Kustomize or ENO add for their own use.
fn comparable(objects: Vec<DynamicObject>) -> BTreeMap<Id, Value> {
    let strip = |mut object: DynamicObject| {
        object.metadata.annotations = None;
        if let Some(pod) = object.data.pointer_mut("/spec/template/metadata") {
            pod.as_object_mut().expect("metadata").remove("annotations");
        }
        let kind = object.types.clone().expect("a type").kind;
        let id = (kind, object.namespace().unwrap_or_default(), object.name_any());
        (id, serde_json::to_value(object).expect("an object"))
    };
    objects.into_iter().map(strip).collect()
}

/// What `helm template` renders, without the objects that only the chart has.
async fn rendered(helm: &Helm, values: &str) -> BTreeMap<Id, Value> {
    let file = helm.values(values);
    let arguments = ["template", "eno", &helm.chart(), "--values", &file, "--kube-version", "1.36.0"];
    let text = helm.run(&arguments).await.unwrap_or_else(|error| panic!("{values}: {error}"));
    let mut objects = comparable(render::parse(&text).expect("objects"));
    let own = objects.extract_if(.., |(kind, _, name), _| {
        name.starts_with("eno-keys") || (kind == "ConfigMap" && name == "eno-install")
    });
    assert_eq!(own.count(), 7, "a Job with its account, two roles and their bindings; the record");
    objects
}

/// The chart renders object for object what `eno install` applies, and with the defaults what Kustomize renders.
pub async fn chart_renders_what_eno_install_applies(part: Part) {
    let helm = Helm::new(part, Path::new("/nonexistent")).await;
    let namespace = ("Namespace".to_owned(), String::new(), SYSTEM.to_owned());
    for values in ["", "nats: {replicas: 3}", "monitoring: {podMonitors: true, dashboard: true}", ALL] {
        let parsed = Values::parse(values).expect("values");
        let mut expected = comparable(render::objects(&parsed, &Secrets::default()).expect("objects"));
        expected.remove(&namespace).expect("the namespace, which Helm makes");
        assert_equal(&rendered(&helm, values).await, &expected, values);
    }
    let mut kustomized = Vec::new();
    for object in kubectl_kustomize(&["deploy"]).await {
        let mut value = json!(object);
        add_defaults(&mut value);
        kustomized.push(serde_json::from_value(value).expect("an object"));
    }
    let mut expected = comparable(kustomized);
    expected.remove(&namespace).expect("the namespace");
    assert_equal(&rendered(&helm, "").await, &expected, "Kustomize");
}

/// Adds what the manifests leave to the defaults of the programs and of the API server, and values do not.
fn add_defaults(object: &mut Value) {
    if object["data"].get("ENO_NATS_URL").is_some() {
        object["data"]["ENO_LOG"] = json!("info");
    }
    let first = object.pointer_mut("/spec/template/spec/initContainers").and_then(Value::as_array_mut);
    for container in first.into_iter().flatten() {
        container["imagePullPolicy"] = json!("IfNotPresent");
    }
    let containers = object.pointer_mut("/spec/template/spec/containers").and_then(Value::as_array_mut);
    for container in containers.into_iter().flatten() {
        container["imagePullPolicy"] = json!("IfNotPresent");
        let variables = match container["name"].as_str() {
            // Metrics are a value.
            Some("agent") => {
                let variables = container["env"].as_array_mut().expect("variables");
                let of_metrics = ["ENO_METRICS_LISTEN", "ENO_TLS_CERT", "ENO_TLS_KEY", "ENO_TLS_CLIENT_CA"];
                variables.retain(|variable| of_metrics.iter().all(|name| variable["name"] != *name));
                &[("ENO_LOG", "info"), ("ENO_OVS_DATAPATH", "system"), ("ENO_RETURN_PATH_MASK", "0x3f")][..]
            }
            Some("cri-resolver") => &[("ENO_LOG", "info")],
            _ => continue,
        };
        let mut all = container["env"].as_array().cloned().unwrap_or_default();
        all.extend(variables.iter().map(|(name, value)| json!({"name": name, "value": value})));
        container["env"] = Value::Array(all);
    }
}

fn assert_equal(found: &BTreeMap<Id, Value>, expected: &BTreeMap<Id, Value>, what: &str) {
    assert_eq!(found.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>(), "{what}");
    for (id, object) in found {
        assert_eq!(*object, expected[id], "{what}: {id:?}");
    }
}

#[tokio::test]
async fn chart_is_what_eno_install_applies() {
    chart_renders_what_eno_install_applies(Part::Helm).await;
}

#[tokio::test]
async fn wrong_values_of_the_chart_are_refused_with_their_path() {
    let helm = Helm::new(Part::Helm, Path::new("/nonexistent")).await;
    for (values, expected) in [
        ("images: a", "additional properties 'images' not allowed"),
        ("nats: {replica: 3}", "at '/nats': additional properties 'replica' not allowed"),
        ("monitoring: {x: 1}", "at '/monitoring': additional properties 'x' not allowed"),
        ("nats: {replicas: 2}", "at '/nats/replicas': value must be one of 1, 3"),
        ("nats: {storageSize: 5}", "at '/nats/storageSize': got number, want string"),
        ("clusterID: Site-A", "at '/clusterID'"),
        ("agent: {env: {PATH: x}}", "at '/agent/env': additional properties 'PATH' not allowed"),
        ("agent: {env: {ENO_NODE: x}}", "at '/agent/env/ENO_NODE'"),
        ("image: null", "missing property 'image'"),
    ] {
        let file = helm.values(values);
        let error = helm.run(&["template", "eno", &helm.chart(), "--values", &file]).await.expect_err(values);
        assert!(error.contains(expected), "{values}: {error}");
    }
}

/// The values of the examples for Flux and Argo CD.
#[test]
fn examples_for_gitops_have_valid_values() {
    for (file, kind, pointer) in [
        ("flux.yaml", "HelmRelease", "/spec/values"),
        ("argocd.yaml", "Application", "/spec/source/helm/valuesObject"),
    ] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/gitops").join(file);
        let text = std::fs::read_to_string(path).expect(file);
        let objects: Vec<Value> = serde_saphyr::from_multiple(&text).expect(file);
        let object = objects.iter().find(|object| object["kind"] == kind).expect(kind);
        let values = object.pointer(pointer).expect("values");
        Values::parse(&values.to_string()).expect(file);
        // Other images than those of the chart would not follow its version.
        assert!(values.get("image").is_none() && values.get("natsImage").is_none(), "{file}");
    }
}

/// On a real API server: Helm and `eno install` refuse each other's installations or take them over.
#[tokio::test]
async fn helm_and_eno_install_know_of_each_other() {
    let directory = tempfile::tempdir().expect("a directory");
    let home = tempfile::tempdir().expect("a directory");
    let control_plane = control_plane(directory.path()).await;
    let admin = control_plane.client().await.expect("a client");
    let class = json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "provisioner": "none",
        "metadata": {"name": "standard", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}});
    super::apply(&admin, "test", class).await;
    let helm = Helm::new(Part::Helm, control_plane.kubeconfig()).await;
    let values = "nadDefinition: true\nnodeMetrics: true";
    let file = helm.values(values);
    let chart = helm.chart();
    let install = ["install", "eno", &chart, "--values", &file, "--create-namespace"];
    // Fields that eno install wrote before stay its own, too, so Helm 4 has to insist.
    let upgrade = ["upgrade", "eno", &chart, "--values", &file, "--force-conflicts"];
    let refused = async |arguments: &[&str], expected: &str| {
        let error = helm.run(arguments).await.expect_err(expected);
        assert!(error.contains(expected), "{error} lacks {expected:?}");
    };

    // Over an installation of eno install: refused, or taken over with its keys.
    installed(&admin, &admin, home.path(), values).await.expect("installed");
    let keys_before = data(&admin, SYSTEM, "eno-nats").await;
    refused(
        &install,
        "eno install has installed ENO 0.1.0 in this cluster; upgrade it with eno install, or take it over",
    )
    .await;
    let mut take_over = install.to_vec();
    take_over.extend(["--take-ownership", "--force-conflicts", "--set", "takeOver=true"]);
    // Not while two keys of a user are valid: the chart knows one.
    let secrets: Api<Secret> = Api::namespaced(admin.clone(), SYSTEM);
    let second = |key: Value| Patch::Merge(json!({"data": {"engine.next.pub": key}}));
    let manager = PatchParams::default();
    secrets.patch("eno-nats", &manager, &second(json!("VVg="))).await.expect("patched");
    refused(&take_over, "eno rotate has not come to its end; run it again").await;
    secrets.patch("eno-nats", &manager, &second(Value::Null)).await.expect("patched");
    helm.run(&take_over).await.expect("taken over");
    assert_eq!(data(&admin, SYSTEM, "eno-nats").await, keys_before);
    let text = refusal(&admin, values).await;
    assert!(
        text.starts_with(
            "the Helm release eno has installed ENO in this cluster; upgrade it with helm upgrade"
        ),
        "{text}"
    );

    // The account of the chart's Job may do what it has to, and no more.
    let account = "system:serviceaccount:eno-system:eno-keys";
    let job = control_plane.client_for(account, Some("system:serviceaccounts")).await.expect("a client");
    let parsed = Values::parse(values).expect("values");
    let made = keys::make(&job, &parsed, WAIT).await.expect("kept");
    assert_eq!(made, [""; 0]);
    // The Secret of a version without this driver gets its key, and the other keys stay.
    let lacking = json!({"data": {"driver-neutron.seed": null, "driver-neutron.pub": null}});
    secrets.patch("eno-nats", &manager, &Patch::Merge(lacking)).await.expect("patched");
    let made = keys::make(&job, &parsed, WAIT).await.expect("made");
    assert_eq!(made, ["the keys of NATS users"]);
    let completed = data(&admin, SYSTEM, "eno-nats").await;
    assert_eq!(completed.keys().collect::<Vec<_>>(), keys_before.keys().collect::<Vec<_>>());
    let changed = keys_before.iter().filter(|(key, value)| completed[*key] != **value);
    let changed: Vec<_> = changed.map(|(key, _)| key.as_str()).collect();
    assert_eq!(changed, ["driver-neutron.pub", "driver-neutron.seed"]);
    for (namespace, names) in
        [(SYSTEM, &["eno-nats", "eno-nats-tls"][..]), ("eno-node", &["eno-metrics-tls"])]
    {
        let api: Api<Secret> = Api::namespaced(admin.clone(), namespace);
        for name in names {
            api.delete(name, &DeleteParams::default()).await.expect("deleted");
        }
    }
    let made = keys::make(&job, &parsed, WAIT).await.expect("made");
    assert_eq!(made.len(), 4, "{made:?}");
    assert_ne!(data(&admin, SYSTEM, "eno-nats").await, keys_before);
    let people = data(&admin, SYSTEM, keys::PEOPLE).await;
    assert!(people["inspect.seed"].starts_with("SU") && people.contains_key("ca.crt"), "{:?}", people.keys());
    assert_eq!(data(&admin, "eno-node", "eno-scraper").await.len(), 3);
    let of_job: Api<Secret> = Api::namespaced(job.clone(), "eno-devices");
    assert!(of_job.get_opt("leaf1").await.is_err(), "the Job may read logins of switches");
    let context = ContextStore::at(home.path()).cluster("fetched");
    let names = keys::fetch(&admin, &context).await.expect("fetched");
    assert!(names.contains(&"inspect.seed".to_owned()) && context.file("ca.crt").is_some(), "{names:?}");

    // Objects that were deleted by hand come back.
    let deployments: Api<Deployment> = Api::namespaced(admin.clone(), SYSTEM);
    let accounts: Api<ServiceAccount> = Api::namespaced(admin.clone(), SYSTEM);
    deployments.delete("eno-engine", &DeleteParams::default()).await.expect("deleted");
    accounts.delete("eno-engine", &DeleteParams::default()).await.expect("deleted");
    helm.run(&upgrade).await.expect("upgraded");
    deployments.get("eno-engine").await.expect("the engine");
    accounts.get("eno-engine").await.expect("its account");

    // What can't change, another release, and other versions.
    let mut larger = upgrade.to_vec();
    larger.extend(["--set", "nats.storageSize=9Gi"]);
    refused(&larger, "nats.storageSize can't be changed after the installation; set it back to 5Gi").await;
    refused(
        &["install", "another", &chart, "--values", &file],
        "the release eno has installed ENO in this cluster already",
    )
    .await;
    helm.write_chart("0.0.9");
    refused(&upgrade, "the cluster has ENO 0.1.0, which is newer than this chart, 0.0.9").await;
    helm.write_chart("0.3.0");
    refused(&upgrade, "the cluster has ENO 0.1.0; this chart, 0.3.0, can't upgrade it in one step").await;
    helm.write_chart("0.2.0");
    helm.run(&upgrade).await.expect("upgraded");
    helm.run(&["uninstall", "eno"]).await.expect("uninstalled");
    // The definitions, the namespaces and the keys stay. An older version would lose fields.
    helm.write_chart("0.1.0");
    refused(&install, "the definitions of kinds in the cluster are those of ENO 0.2.0, which is newer than this chart, 0.1.0").await;
    let text = refusal(&admin, values).await;
    assert!(text.contains("those of ENO 0.2.0, which is newer than this program"), "{text}");
    let namespaces: Api<Namespace> = Api::all(admin.clone());
    for name in ["eno-system", "eno-node", "eno-devices"] {
        namespaces.get(name).await.expect(name);
    }
    data(&admin, SYSTEM, "eno-nats").await;

    // eno install takes over what Helm has left.
    let definitions: Api<CustomResourceDefinition> = Api::all(admin.clone());
    let older = Patch::Merge(json!({"metadata": {"annotations": {"eno.k8s.io/version": "0.1.0"}}}));
    definitions.patch("l2services.eno.k8s.io", &PatchParams::default(), &older).await.expect("patched");
    installed(&admin, &admin, home.path(), values).await.expect("installed");
    let maps: Api<ConfigMap> = Api::namespaced(admin.clone(), SYSTEM);
    maps.get("eno-install").await.expect("a record");
    control_plane.stop().await;
}
