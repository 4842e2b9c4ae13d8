//! `eno install` on a real API server. No pod runs: the tests write the statuses of workloads in place of their
//! controllers, and renew the Lease in place of an engine.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use eno::install::context::ContextStore;
use eno::install::installer::{Change, InstallError, dry_run};
use eno::install::uninstall::removal::{Objects, Request};
use eno::install::uninstall::{self, UninstallError};
use eno::install::{Installed, MANAGER, Values, install, plan, render};
use eno_control_plane::parts::{Part, Parts};
use eno_control_plane::{ControlPlane, ControlPlaneOptions};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use tokio::time::interval;

const SYSTEM: &str = "eno-system";
const WAIT: Duration = Duration::from_mins(1);

/// The controllers in whose place the test writes statuses.
const CONTROLLERS: [&str; 3] = ["deployment-controller", "statefulset-controller", "daemonset-controller"];

async fn control_plane(directory: &Path) -> ControlPlane {
    let parts = Parts::from_env().expect("a place for the control plane's programs");
    let mut options = ControlPlaneOptions::new(directory, parts);
    options.disabled_controllers.extend(CONTROLLERS.map(str::to_owned));
    ControlPlane::start(options).await.expect("a control plane")
}

async fn kubectl_kustomize(arguments: &[&str]) -> Vec<DynamicObject> {
    let parts = Parts::from_env().expect("a place for the control plane's programs");
    let kubectl = parts.get(Part::Kubectl).await.expect("kubectl");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let output = Command::new(kubectl).current_dir(root).arg("kustomize").args(arguments).output();
    let output = output.expect("kubectl runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    render::parse(&String::from_utf8_lossy(&output.stdout)).expect("objects")
}

async fn apply(client: &Client, manager: &str, object: Value) -> DynamicObject {
    let object: DynamicObject = serde_json::from_value(object).expect("an object");
    eno::apply::apply(client, manager, &object).await.expect("applied")
}

/// Has every workload ready as soon as it is changed, until dropped.
async fn run_workloads(client: Client) {
    let of = |kind: &'static str, namespace: &'static str| {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("apps", "v1", kind));
        let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource);
        async move {
            let watched = watcher(api.clone(), watcher::Config::default());
            let mut objects = std::pin::pin!(watched.default_backoff().applied_objects());
            while let Some(object) = objects.next().await {
                let Ok(object) = object else { continue };
                let generation = json!(object.metadata.generation);
                if object.data["status"]["observedGeneration"] == generation {
                    continue;
                }
                let replicas = &object.data["spec"]["replicas"];
                let status = match kind {
                    "DaemonSet" => json!({"currentNumberScheduled": 2, "desiredNumberScheduled": 2,
                        "numberMisscheduled": 0, "numberReady": 2, "updatedNumberScheduled": 2}),
                    _ => json!({"replicas": replicas, "readyReplicas": replicas, "updatedReplicas": replicas,
                        "availableReplicas": replicas}),
                };
                let mut patch = json!({"status": status});
                patch["status"]["observedGeneration"] = generation;
                // The object may be gone meanwhile.
                let _ =
                    api.patch_status(&object.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await;
            }
        }
    };
    tokio::join!(of("Deployment", SYSTEM), of("StatefulSet", SYSTEM), of("DaemonSet", "eno-node"));
}

/// Renews the Lease of engines, once their namespace exists.
async fn lead(client: Client) {
    let mut tick = interval(Duration::from_millis(200));
    for renewal in 0_u32.. {
        tick.tick().await;
        let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": "eno-engine", "namespace": SYSTEM},
            "spec": {"holderIdentity": "engine-a", "leaseTransitions": renewal, "leaseDurationSeconds": 10}});
        let lease: DynamicObject = serde_json::from_value(lease).expect("a Lease");
        // There is no namespace at first.
        let _ = eno::apply::apply(&client, "engine", &lease).await;
    }
}

async fn installed(
    client: &Client,
    admin: &Client,
    home: &Path,
    values: &str,
) -> Result<Installed, InstallError> {
    let values = Values::parse(values).expect("valid values");
    let planned = Box::pin(plan(client, &values)).await?;
    let context = ContextStore::at(home).cluster("test");
    let report = |line: &str| eprintln!("{line}");
    tokio::select! {
        result = Box::pin(install(client, &values, planned, Some(&context), WAIT, &report)) => result,
        () = Box::pin(run_workloads(admin.clone())) => panic!("the watch ended"),
        () = Box::pin(lead(admin.clone())) => panic!("the renewals ended"),
    }
}

async fn changes(client: &Client, values: &str) -> BTreeMap<Change, Vec<String>> {
    let values = Values::parse(values).expect("valid values");
    let planned = plan(client, &values).await.expect("a plan");
    let mut changes: BTreeMap<Change, Vec<String>> = BTreeMap::new();
    for (change, object) in dry_run(client, &planned).await.expect("a dry run") {
        let kind = object.types.as_ref().map_or("", |types| types.kind.as_str());
        changes.entry(change).or_default().push(format!("{kind} {}", object.name_any()));
    }
    changes
}

async fn refusal(client: &Client, values: &str) -> String {
    let values = Values::parse(values).expect("valid values");
    match plan(client, &values).await {
        Err(InstallError::Refused(refusals)) => {
            refusals.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
        }
        other => panic!("no refusal: {other:?}"),
    }
}

#[tokio::test]
async fn rendered_manifests_are_current() {
    for (file, arguments) in [
        ("operator.yaml", &["deploy"][..]),
        (
            "operator-nats-cluster.yaml",
            &["--load-restrictor", "LoadRestrictionsNone", "deploy/nats-cluster-install"],
        ),
    ] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/rendered").join(file);
        let text = std::fs::read_to_string(&path).expect(file);
        let committed = render::parse(&text).expect(file);
        assert_eq!(committed, kubectl_kustomize(arguments).await, "{file} is stale: run make crds");
    }
}

#[tokio::test]
async fn refusals_name_all_that_is_missing_and_change_nothing() {
    let directory = tempfile::tempdir().expect("a directory");
    let control_plane = control_plane(directory.path()).await;
    let client = control_plane.client().await.expect("a client");
    let text = refusal(&client, "certManager: true").await;
    for expected in ["no default StorageClass", "cert-manager is not in the cluster", "install Multus"] {
        assert!(text.contains(expected), "{text} lacks {expected:?}");
    }
    let nobody = control_plane.client_for("nobody", None).await.expect("a client");
    let text = refusal(&nobody, "nadDefinition: true").await;
    for expected in [
        "patch customresourcedefinitions.apiextensions.k8s.io",
        "create secrets in eno-node",
        "escalate clusterroles.rbac.authorization.k8s.io eno-engine",
        "bind clusterroles.rbac.authorization.k8s.io eno-engine",
        "list pods in eno-system",
        "have a cluster admin bind the ClusterRole eno-installer",
    ] {
        assert!(text.contains(expected), "{text} lacks {expected:?}");
    }
    let namespaces: Api<Namespace> = Api::all(client);
    let names: Vec<_> = namespaces.list(&ListParams::default()).await.expect("namespaces").items;
    assert!(names.iter().all(|namespace| !namespace.name_any().starts_with("eno-")), "{names:?}");
    control_plane.stop().await;
}

/// The whole life as the user with the role of `deploy/rbac-install`.
#[tokio::test]
async fn installer_role_installs_repeats_upgrades_and_prunes() {
    let directory = tempfile::tempdir().expect("a directory");
    let home = tempfile::tempdir().expect("a directory");
    let control_plane = control_plane(directory.path()).await;
    let admin = control_plane.client().await.expect("a client");
    let class = json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "provisioner": "none",
        "metadata": {"name": "standard", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}});
    apply(&admin, "test", class).await;
    let classes: Api<StorageClass> = Api::all(admin.clone());
    classes.get("standard").await.expect("the StorageClass");
    let client = installer(&control_plane).await;

    let values = "nadDefinition: true\nadmission: true\nnodeMetrics: true";
    let before = changes(&client, values).await;
    assert_eq!(before.keys().collect::<Vec<_>>(), [&Change::Create], "{before:?}");
    let first = installed(&client, &admin, home.path(), values).await.expect("installed");
    assert!(!first.was_upgrade && first.made.len() == 3, "{first:?}");
    let after = changes(&client, values).await;
    assert_eq!(after.keys().collect::<Vec<_>>(), [&Change::Keep], "{after:?}");

    // A repeated installation keeps the keys.
    let secrets: Api<Secret> = Api::namespaced(admin.clone(), SYSTEM);
    let keys = secrets.get("eno-nats").await.expect("keys").data;
    let again = installed(&client, &admin, home.path(), values).await.expect("installed again");
    assert!(again.was_upgrade && again.made.is_empty(), "{again:?}");
    assert_eq!(secrets.get("eno-nats").await.expect("keys").data, keys);

    // What an earlier version applied goes; what others made with the same label stays.
    let old = |name: &str| {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": SYSTEM,
            "labels": {"app.kubernetes.io/part-of": "eno"}}, "data": {"a": "b"}})
    };
    apply(&admin, MANAGER, old("of-an-earlier-version")).await;
    apply(&admin, "somebody", old("of-somebody")).await;
    let without = "nadDefinition: true\nclusterID: lab1";
    let planned = changes(&client, without).await;
    let pruned = &planned[&Change::Prune];
    for expected in
        ["ConfigMap of-an-earlier-version", "MutatingAdmissionPolicy eno-finalizer", "Secret eno-metrics-tls"]
    {
        assert!(pruned.iter().any(|object| object == expected), "{pruned:?} lacks {expected}");
    }
    assert!(planned[&Change::Change].iter().any(|object| object == "Deployment eno-engine"), "{planned:?}");
    installed(&client, &admin, home.path(), without).await.expect("upgraded");
    let maps: Api<ConfigMap> = Api::namespaced(admin.clone(), SYSTEM);
    assert!(maps.get_opt("of-an-earlier-version").await.expect("an answer").is_none());
    maps.get("of-somebody").await.expect("somebody's ConfigMap");

    // Values that can't change, and a downgrade.
    let text = refusal(&client, "nadDefinition: true\nnats: {replicas: 3}").await;
    assert!(text.contains("nats.replicas can't be changed"), "{text}");
    let newer = json!({"data": {"version": "99.0.0"}});
    maps.patch("eno-install", &PatchParams::default(), &Patch::Merge(newer)).await.expect("patched");
    let text = refusal(&client, without).await;
    assert!(text.contains("newer than this program"), "{text}");
    control_plane.stop().await;
}

/// A try that ended early is finished by the next one, with the keys that are there.
#[tokio::test]
async fn half_installed_operator_is_finished_by_running_it_again() {
    let directory = tempfile::tempdir().expect("a directory");
    let home = tempfile::tempdir().expect("a directory");
    let control_plane = control_plane(directory.path()).await;
    let client = control_plane.client().await.expect("a client");
    let class = json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "provisioner": "none",
        "metadata": {"name": "fast"}});
    apply(&client, "test", class).await;
    let text = "nadDefinition: true\nnats: {storageClass: fast}";
    let values = Values::parse(text).expect("values");
    let planned = plan(&client, &values).await.expect("a plan");
    let context = ContextStore::at(home.path()).cluster("test");
    let patience = Duration::from_secs(5);
    let late =
        install(&client, &values, planned, Some(&context), patience, &|line| eprintln!("{line}")).await;
    let error = late.expect_err("no pod runs").to_string();
    assert!(error.contains("eno-nats") && error.contains("run eno install again"), "{error}");
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), SYSTEM);
    let phase = |map: ConfigMap| map.data.expect("data")["phase"].clone();
    assert_eq!(phase(maps.get("eno-install").await.expect("a record")), "installing");
    let seed = context.file("inspect.seed").map(|path| std::fs::read_to_string(path).expect("a seed"));
    installed(&client, &client, home.path(), text).await.expect("installed");
    assert_eq!(phase(maps.get("eno-install").await.expect("a record")), "installed");
    assert_eq!(context.file("inspect.seed").map(|path| std::fs::read_to_string(path).expect("a seed")), seed);
    control_plane.stop().await;
}

/// The objects of a cluster that are of ENO, as `Kind name`.
async fn left(client: &Client) -> Vec<String> {
    let kinds = [
        ("", "v1", "Namespace"),
        ("apiextensions.k8s.io", "v1", "CustomResourceDefinition"),
        ("rbac.authorization.k8s.io", "v1", "ClusterRole"),
        ("rbac.authorization.k8s.io", "v1", "ClusterRoleBinding"),
        ("admissionregistration.k8s.io", "v1", "ValidatingAdmissionPolicy"),
        ("admissionregistration.k8s.io", "v1", "ValidatingAdmissionPolicyBinding"),
        ("admissionregistration.k8s.io", "v1", "MutatingAdmissionPolicy"),
        ("admissionregistration.k8s.io", "v1", "MutatingAdmissionPolicyBinding"),
    ];
    let mut left = Vec::new();
    for (group, version, kind) in kinds {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
        let listed = api.list_metadata(&ListParams::default()).await.expect("a list").items;
        let is_ours = |name: &str| {
            ["eno-", "network-attachment-"].iter().any(|start| name.starts_with(start))
                || [".eno.k8s.io", ".opdev.io"].iter().any(|end| name.ends_with(end))
        };
        let names = listed.iter().map(ResourceExt::name_any).filter(|name| is_ours(name));
        // The role of who installs is not of the installation.
        left.extend(names.filter(|name| name != "eno-installer").map(|name| format!("{kind} {name}")));
    }
    left
}

fn request(objects: Objects, forget: &[&str]) -> Request {
    Request { objects, forget: forget.iter().map(|name| (*name).to_owned()).collect() }
}

async fn removed(client: &Client, home: &Path, request: &Request) -> Result<(), UninstallError> {
    let removal = Box::pin(uninstall::plan(client, request)).await?;
    let context = ContextStore::at(home).cluster("test");
    let report = |line: &str| eprintln!("{line}");
    Box::pin(uninstall::uninstall(client, request, &removal, Some(&context), WAIT, &report)).await
}

/// Binds the role of `deploy/rbac-install` to a user, and returns the user's client.
async fn installer(control_plane: &ControlPlane) -> Client {
    let admin = control_plane.client().await.expect("a client");
    for object in kubectl_kustomize(&["deploy/rbac-install"]).await {
        eno::apply::apply(&admin, "test", &object).await.expect("the role");
    }
    apply(
        &admin,
        "test",
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": {"name": "installer"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "eno-installer"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "installer"}]}),
    )
    .await;
    control_plane.client_for("installer", None).await.expect("a client")
}

/// Without an engine nothing is removed, unless the objects are kept or abandoned. Nothing else stays.
#[tokio::test]
async fn uninstall_without_an_engine_is_refused_keeps_or_abandons() {
    let directory = tempfile::tempdir().expect("a directory");
    let home = tempfile::tempdir().expect("a directory");
    let control_plane = control_plane(directory.path()).await;
    let admin = control_plane.client().await.expect("a client");
    let class = json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "provisioner": "none",
        "metadata": {"name": "fast"}});
    apply(&admin, "test", class).await;
    let client = installer(&control_plane).await;
    let values = "nadDefinition: true\nnodeMetrics: true\nnats: {storageClass: fast}";
    let remove = request(Objects::Remove, &[]);
    let nobody = control_plane.client_for("nobody", None).await.expect("a client");
    let error = removed(&nobody, home.path(), &remove).await.expect_err("no rights").to_string();
    for expected in ["nothing was removed", "delete namespaces", "patch nodes/status", "eno-installer"] {
        assert!(error.contains(expected), "{error} lacks {expected:?}");
    }
    let nothing = uninstall::plan(&client, &remove).await.expect("a plan");
    assert!(nothing.inventory.is_empty());

    installed(&client, &admin, home.path(), values).await.expect("installed");
    let network = json!({"apiVersion": "eno.k8s.io/v1alpha1", "kind": "L2Service",
        "metadata": {"name": "blue", "finalizers": ["eno.k8s.io/engine", "example.org/other"]},
        "spec": {"SegmentationID": 100}});
    apply(&admin, "test", network).await;
    let error = removed(&client, home.path(), &remove).await.expect_err("no engine leads").to_string();
    assert!(
        error.contains("nothing was removed") && error.contains("no engine leads, and 1 objects"),
        "{error}"
    );

    removed(&client, home.path(), &request(Objects::Keep, &[])).await.expect("removed without the objects");
    let kept = left(&admin).await;
    let is_expected =
        |one: &String| one.starts_with("CustomResourceDefinition") || one == "Namespace eno-devices";
    assert!(kept.len() == 15 && kept.iter().all(is_expected), "{kept:?}");
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("eno.k8s.io", "v1alpha1", "L2Service"));
    let networks: Api<DynamicObject> = Api::all_with(admin.clone(), &resource);
    let blue = networks.get("blue").await.expect("the object");
    assert!(blue.metadata.deletion_timestamp.is_none() && !home.path().join("clusters/test").exists());

    installed(&client, &admin, home.path(), values).await.expect("installed again");
    // Somebody else's finalizer keeps the object. The run that goes on after it needs no engine.
    let abandon = request(Objects::Abandon, &[]);
    let removal = Box::pin(uninstall::plan(&client, &abandon)).await.expect("a plan");
    let patience = Duration::from_secs(15);
    let report = |line: &str| eprintln!("{line}");
    let late = Box::pin(uninstall::uninstall(&client, &abandon, &removal, None, patience, &report)).await;
    let error = late.expect_err("an object stays").to_string();
    assert!(error.contains("L2Service blue") && error.contains("run eno uninstall again"), "{error}");
    let blue = networks.get("blue").await.expect("the object");
    assert_eq!(blue.finalizers(), ["example.org/other"]);
    let none = json!({"metadata": {"finalizers": null}});
    networks.patch("blue", &PatchParams::default(), &Patch::Merge(none)).await.expect("patched");
    removed(&client, home.path(), &abandon).await.expect("removed");
    assert_eq!(left(&admin).await, Vec::<String>::new());
    control_plane.stop().await;
}
