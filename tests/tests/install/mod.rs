//! `eno install` and `eno rotate` on a real API server. No pod runs: the tests write the statuses of workloads in place of their
//! controllers, and renew the Lease in place of an engine.

mod at_once;
pub mod helm;
mod installer_rights;
mod shared_key;
mod uninstall;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use eno::install::context::ContextStore;
use eno::install::installer::{Change, InstallError, VERSION, dry_run};
use eno::install::rotator::{Notes, RotateError, Rotated, rotate};
use eno::install::values::Replicas;
use eno::install::{Installed, MANAGER, Values, install, plan, render};
use eno_control_plane::parts::{Part, Parts};
use eno_control_plane::{ControlPlane, ControlPlaneOptions};
use futures::StreamExt as _;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};
use tempfile::TempDir;
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

/// What Kustomize renders, without the hashes in the names of ConfigMaps.
async fn kubectl_kustomize(arguments: &[&str]) -> Vec<DynamicObject> {
    let parts = Parts::from_env().expect("a place for the control plane's programs");
    let kubectl = parts.get(Part::Kubectl).await.expect("kubectl");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let output = Command::new(kubectl).current_dir(root).arg("kustomize").args(arguments).output();
    let output = output.expect("kubectl runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let hash = regex::Regex::new(r"(?m)(name: eno(?:-nats)?)-[bcdfghkmt2456789]{10}$").expect("valid");
    render::parse(&hash.replace_all(&String::from_utf8_lossy(&output.stdout), "$1")).expect("objects")
}

async fn apply(client: &Client, manager: &str, object: Value) -> DynamicObject {
    let object: DynamicObject = serde_json::from_value(object).expect("an object");
    eno::apply::apply(client, manager, &object).await.expect("applied")
}

/// Has every workload ready as soon as it is changed, until dropped.
async fn run_workloads(client: Client) {
    let agents = run_kind(client.clone(), "DaemonSet", "eno-node");
    tokio::join!(
        run_kind(client.clone(), "Deployment", SYSTEM),
        run_kind(client, "StatefulSet", SYSTEM),
        agents
    );
}

async fn run_kind(client: Client, kind: &str, namespace: &str) {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("apps", "v1", kind));
    let api: Api<DynamicObject> = Api::namespaced_with(client, namespace, &resource);
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
        let _ = api.patch_status(&object.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await;
    }
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
    let workloads = Box::pin(run_workloads(admin.clone()));
    installed_while(client, admin, home, values, (WAIT, workloads)).await
}

/// Installs while workloads run, and waits for them for a time.
async fn installed_while(
    client: &Client,
    admin: &Client,
    home: &Path,
    values: &str,
    (patience, workloads): (Duration, impl Future<Output = ()>),
) -> Result<Installed, InstallError> {
    let values = Values::parse(values).expect("valid values");
    let planned = Box::pin(plan(client, &values)).await?;
    let context = ContextStore::at(home).cluster("test");
    let report = |line: &str| eprintln!("{line}");
    tokio::select! {
        result = Box::pin(install(client, &values, planned, Some(&context), patience, &report)) => result,
        () = workloads => panic!("the watch ended"),
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

/// What `eno install` carries is what Kustomize makes of `deploy/`, but for the hashes in the names of ConfigMaps and the
/// versions of the definitions.
#[tokio::test]
async fn rendered_manifests_are_current() {
    for (replicas, folder) in [(Replicas::One, "deploy"), (Replicas::Three, "deploy/nats-cluster-install")] {
        let arguments = ["--load-restrictor", "LoadRestrictionsNone", folder];
        let rendered = kubectl_kustomize(&arguments).await;
        let mut rendered: Vec<Value> = rendered.iter().map(|object| json!(object)).collect();
        for object in rendered.iter_mut().filter(|object| object["kind"] == "CustomResourceDefinition") {
            object["metadata"]["annotations"][render::VERSION_ANNOTATION] = json!(VERSION);
        }
        let carried = render::operator(replicas).expect("objects");
        let by_id = |objects: &[Value]| -> BTreeMap<String, Value> {
            objects.iter().map(|object| (render::id(object).join("/"), object.clone())).collect()
        };
        let (carried, rendered) = (by_id(&carried), by_id(&rendered));
        assert_eq!(carried.keys().collect::<Vec<_>>(), rendered.keys().collect::<Vec<_>>(), "{folder}");
        for (id, object) in &rendered {
            assert_eq!(carried[id], *object, "{id} is stale for {folder}: run make crds");
        }
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
        "create secrets eno-nats-tls in eno-node",
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

/// A user with the role of `deploy/rbac-install`, on a cluster with a default StorageClass.
async fn installer(control_plane: &ControlPlane, admin: &Client) -> Client {
    for object in kubectl_kustomize(&["deploy/rbac-install"]).await {
        eno::apply::apply(admin, "test", &object).await.expect("the role");
    }
    apply(
        admin,
        "test",
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": {"name": "installer"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "eno-installer"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "installer"}]}),
    )
    .await;
    let class = json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "provisioner": "none",
        "metadata": {"name": "standard", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}});
    apply(admin, "test", class).await;
    let classes: Api<StorageClass> = Api::all(admin.clone());
    classes.get("standard").await.expect("the StorageClass");
    control_plane.client_for("installer", None).await.expect("a client")
}

/// A cluster, and who may install.
struct Cluster {
    _directory: TempDir,
    /// What `eno install` leaves on the disk.
    home: TempDir,
    control_plane: ControlPlane,
    admin: Client,
    /// As [`installer`].
    client: Client,
}

async fn cluster() -> Cluster {
    let (directory, home) =
        (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory"));
    let control_plane = control_plane(directory.path()).await;
    let admin = control_plane.client().await.expect("a client");
    let client = installer(&control_plane, &admin).await;
    Cluster { _directory: directory, home, control_plane, admin, client }
}

/// The whole life as the user with the role of `deploy/rbac-install`.
#[tokio::test]
async fn installer_role_installs_repeats_upgrades_and_prunes() {
    let Cluster { _directory, home, control_plane, admin, client } = cluster().await;

    let values = "nadDefinition: true\nadmission: true\nnodeMetrics: true";
    let before = changes(&client, values).await;
    assert_eq!(before.keys().collect::<Vec<_>>(), [&Change::Create], "{before:?}");
    let first = installed(&client, &admin, home.path(), values).await.expect("installed");
    assert!(!first.was_upgrade && first.made.len() == 4, "{first:?}");
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

/// Rotates while the controllers of these kinds run, with their namespaces.
async fn rotated(
    client: &Client,
    admin: &Client,
    home: &Path,
    what: Rotated,
    running: &[(&str, &str)],
) -> Result<Notes, RotateError> {
    let context = ContextStore::at(home).cluster("test");
    let report = |line: &str| eprintln!("{line}");
    let patience = if running.len() == CONTROLLERS.len() { WAIT } else { Duration::from_secs(12) };
    let kinds = running.iter().map(|(kind, namespace)| run_kind(admin.clone(), kind, namespace));
    let controllers = futures::future::join_all(kinds);
    let pending = std::future::pending::<()>();
    tokio::select! {
        result = Box::pin(rotate(client, what, &context, patience, &report)) => result,
        _ = async { tokio::join!(controllers, pending) } => panic!("the watches ended"),
        () = Box::pin(lead(admin.clone())) => panic!("the renewals ended"),
    }
}

const NATS: (&str, &str) = ("StatefulSet", SYSTEM);
const ENGINE: (&str, &str) = ("Deployment", SYSTEM);
const AGENTS: (&str, &str) = ("DaemonSet", "eno-node");
const ALL: [(&str, &str); 3] = [NATS, ENGINE, AGENTS];

/// The data of a Secret as texts.
async fn data(client: &Client, namespace: &str, name: &str) -> BTreeMap<String, String> {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let data = secrets.get(name).await.expect("a Secret").data.unwrap_or_default();
    data.into_iter().map(|(key, value)| (key, String::from_utf8(value.0).expect("a text"))).collect()
}

/// The key that all agents of an earlier version share is accepted until all agents are of this version.
#[tokio::test]
async fn upgrade_drops_the_shared_key_of_agents_when_none_uses_it() {
    let Cluster { _directory, home, control_plane, admin, client } = cluster().await;
    let values = "nadDefinition: true";
    installed(&client, &admin, home.path(), values).await.expect("installed");
    let maps: Api<ConfigMap> = Api::namespaced(admin.clone(), SYSTEM);
    let secrets: Api<Secret> = Api::namespaced(admin.clone(), "eno-node");
    let sets = ApiResource::from_gvk(&GroupVersionKind::gvk("apps", "v1", "StatefulSet"));
    let sets: Api<DynamicObject> = Api::namespaced_with(admin.clone(), SYSTEM, &sets);
    let accepts_shared_key = async || {
        let map = maps.get("eno-nats").await.expect("a ConfigMap").data.expect("its data");
        let is_accepted = map["authorization.conf"].contains("$AGENT_NKEY");
        let servers = sets.get("eno-nats").await.expect("a StatefulSet").data.to_string();
        assert_eq!(servers.contains("AGENT_NKEY"), is_accepted);
        is_accepted
    };
    assert!(!accepts_shared_key().await);

    // The Secrets of an earlier version.
    let new = data(&admin, SYSTEM, "eno-nats").await;
    let mut earlier = new.clone();
    earlier.insert("agent.pub".to_owned(), "U".to_owned());
    let of_agents = BTreeMap::from([("agent.seed".to_owned(), "SU".to_owned())]);
    for (namespace, texts) in [(SYSTEM, earlier), ("eno-node", of_agents)] {
        let texts: BTreeMap<_, _> =
            texts.into_iter().map(|(key, text)| (key, ByteString(text.into_bytes()))).collect();
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "data": texts,
            "metadata": {"name": "eno-nats", "namespace": namespace,
                "labels": {"app.kubernetes.io/part-of": "eno"}}});
        apply(&admin, MANAGER, secret).await;
    }
    // The agents do not get ready.
    let others = async {
        tokio::join!(
            run_kind(admin.clone(), "Deployment", SYSTEM),
            run_kind(admin.clone(), "StatefulSet", SYSTEM),
        );
    };
    let agents: Api<DynamicObject> = Api::namespaced_with(
        admin.clone(),
        "eno-node",
        &ApiResource::from_gvk(&GroupVersionKind::gvk("apps", "v1", "DaemonSet")),
    );
    let waiting = Patch::Merge(json!({"status": {"observedGeneration": 0}}));
    agents.patch_status("eno-agent", &PatchParams::default(), &waiting).await.expect("patched");
    let patience = (Duration::from_secs(5), others);
    let late = Box::pin(installed_while(&client, &admin, home.path(), values, patience)).await;
    let error = late.expect_err("the agents are late").to_string();
    assert!(error.contains("eno-agent"), "{error}");
    assert!(accepts_shared_key().await);
    secrets.get("eno-nats").await.expect("agents of the earlier version restart with it");

    installed(&client, &admin, home.path(), values).await.expect("upgraded");
    assert!(!accepts_shared_key().await);
    assert_eq!(data(&admin, SYSTEM, "eno-nats").await, new);
    assert!(secrets.get_opt("eno-nats").await.expect("an answer").is_none());
    let after = changes(&client, values).await;
    assert_eq!(after.keys().collect::<Vec<_>>(), [&Change::Keep], "{after:?}");
    control_plane.stop().await;
}

/// A rotation that is interrupted at each part goes on, also after an upgrade, with the rights of the installer.
#[tokio::test]
async fn installer_role_rotates_keys_and_goes_on_after_interruptions() {
    let Cluster { _directory, home, control_plane, admin, client } = cluster().await;
    let keys = async |running: &[(&str, &str)]| {
        rotated(&client, &admin, home.path(), Rotated::NatsKeys, running).await
    };
    let error = keys(&ALL).await.expect_err("nothing is installed").to_string();
    assert!(error.contains("has not installed ENO on this cluster; run eno install"), "{error}");
    let values = "nadDefinition: true";
    installed(&client, &admin, home.path(), values).await.expect("installed");
    let nobody = control_plane.client_for("nobody", None).await.expect("a client");
    let refused = rotated(&nobody, &admin, home.path(), Rotated::NatsKeys, &ALL).await;
    let error = refused.expect_err("no permission").to_string();
    assert!(
        error.contains("you may not") && error.contains("patch secrets eno-nats-tls in eno-node"),
        "{error}"
    );

    let nats = data(&admin, SYSTEM, "eno-nats").await;
    let disk = || ContextStore::at(home.path()).cluster("test").read().expect("files");
    let disk_before = disk();

    // NATS does not get ready: both keys of each user are there, and the parts have the old seeds.
    let error = keys(&[]).await.expect_err("NATS does not follow").to_string();
    let expected = "adding the new keys to NATS: eno-nats did not become ready in time";
    assert!(error.contains(expected) && error.contains("run eno rotate nats-keys again"), "{error}");
    let added = data(&admin, SYSTEM, "eno-nats").await;
    for user in eno::install::secrets::users() {
        let (public, next) = (format!("{user}.pub"), format!("{user}.next.pub"));
        assert_eq!(added[&public], nats[&public]);
        assert_ne!(added[&next], nats[&public]);
    }
    // The engine will find the next keys of logins beside those that the servers use.
    for key in ["engine.seed", "issuer.pub", "issuer.seed", "answerer.seed"] {
        assert_eq!(added[key], nats[key], "{key}");
    }
    assert!(added.contains_key("issuer.next.seed") && added.contains_key("answerer.next.seed"));
    assert!(!added.contains_key("inspect.next.seed"), "seeds of people are in the cluster");
    assert_eq!(disk()["inspect.seed"], disk_before["inspect.seed"]);
    let second = disk()["inspect.next.seed"].clone();

    // The engine does not get ready: the parts get the new seeds, and NATS has both keys.
    let error = keys(&[NATS]).await.expect_err("the engine does not follow").to_string();
    assert!(error.contains("giving the new keys") && error.contains("eno-engine"), "{error}");
    let used = data(&admin, SYSTEM, "eno-nats").await;
    for user in eno::install::secrets::users() {
        assert_eq!(used[&format!("{user}.pub")], added[&format!("{user}.next.pub")]);
        assert_eq!(used[&format!("{user}.next.pub")], added[&format!("{user}.pub")]);
    }
    assert_eq!(used["issuer.pub"], added["issuer.pub"]);
    assert_eq!((disk().get("inspect.next.seed"), &disk()["inspect.seed"]), (None, &second));

    // An upgrade between keeps both keys, and the rotation ends.
    installed(&client, &admin, home.path(), values).await.expect("upgraded");
    assert_eq!(data(&admin, SYSTEM, "eno-nats").await, used);
    let notes = keys(&ALL).await.expect("rotated");
    assert!(notes.len() == 1 && notes[0].contains("give them inspect.seed and admin.seed"), "{notes:?}");
    let ended = data(&admin, SYSTEM, "eno-nats").await;
    assert_eq!(ended.keys().collect::<Vec<_>>(), nats.keys().collect::<Vec<_>>());
    for (key, value) in &nats {
        assert_ne!(&ended[key], value, "{key}");
    }
    assert_eq!(ended["engine.pub"], added["engine.next.pub"]);
    assert_eq!(ended["issuer.seed"], added["issuer.next.seed"]);
    let after = changes(&client, values).await;
    assert_eq!(after.keys().collect::<Vec<_>>(), [&Change::Keep], "{after:?}");

    let maps: Api<ConfigMap> = Api::namespaced(admin.clone(), SYSTEM);
    for (patch, expected) in [
        (
            json!({"phase": "installing"}),
            "the last eno install did not come to its end; run eno install first",
        ),
        (json!({"version": "0.0.1"}), "the cluster has ENO 0.0.1, and this program is"),
    ] {
        let patch = Patch::Merge(json!({"data": patch}));
        maps.patch("eno-install", &PatchParams::default(), &patch).await.expect("patched");
        let error = keys(&ALL).await.expect_err("refused").to_string();
        assert!(error.contains(expected), "{error}");
    }
    control_plane.stop().await;
}

#[tokio::test]
async fn certificates_are_rotated_and_scrapers_are_waited_for() {
    let Cluster { _directory, home, control_plane, admin, client } = cluster().await;
    let certificates = async |running: &[(&str, &str)]| {
        rotated(&client, &admin, home.path(), Rotated::Certificates, running).await
    };
    let values = "nadDefinition: true\nnodeMetrics: true";
    installed(&client, &admin, home.path(), values).await.expect("installed");
    let tls = async || data(&admin, SYSTEM, "eno-nats-tls").await;
    let metrics = async || data(&admin, "eno-node", "eno-metrics-tls").await;
    let disk = || ContextStore::at(home.path()).cluster("test").read().expect("files");
    let (old, old_metrics, old_disk) = (tls().await, metrics().await, disk());

    let error = certificates(&[NATS, ENGINE]).await.expect_err("the agents do not follow").to_string();
    let expected =
        "trusting the new certificate authority beside the old one: eno-agent did not become ready";
    assert!(error.contains(expected) && error.contains("run eno rotate certificates again"), "{error}");
    let both = tls().await;
    assert_eq!(both["ca.crt"], format!("{}{}", old["ca.crt"], both["ca.next.crt"]));
    assert_eq!((&both["tls.crt"], &both["tls.key"]), (&old["tls.crt"], &old["tls.key"]));
    assert_eq!(
        (&data(&admin, "eno-node", "eno-nats-tls").await["ca.crt"], &disk()["ca.crt"]),
        (&both["ca.crt"], &both["ca.crt"])
    );

    let notes = certificates(&ALL).await.expect("rotated");
    let new = tls().await;
    assert_eq!((&new["ca.crt"], &new["tls.crt"]), (&both["ca.next.crt"], &both["tls.next.crt"]));
    assert_eq!(new.keys().collect::<Vec<_>>(), old.keys().collect::<Vec<_>>());
    assert_eq!(
        (&data(&admin, "eno-node", "eno-nats-tls").await["ca.crt"], &disk()["ca.crt"]),
        (&new["ca.crt"], &new["ca.crt"])
    );
    // The agents trust both authorities of scrapers, until Prometheus has the new files.
    assert!(
        notes.len() == 2 && notes[1].contains("to Prometheus, and then run eno rotate certificates again"),
        "{notes:?}"
    );
    let both = metrics().await;
    assert_eq!(both["ca.crt"], format!("{}{}", old_metrics["ca.crt"], both["ca.next.crt"]));
    assert_eq!(both["tls.crt"], old_metrics["tls.crt"]);
    assert_eq!(disk()["metrics-ca.crt"], both["ca.crt"]);
    assert_ne!(disk()["scraper.key"], old_disk["scraper.key"]);
    let after = changes(&client, values).await;
    assert_eq!(after.keys().collect::<Vec<_>>(), [&Change::Keep], "{after:?}");

    let notes = certificates(&ALL).await.expect("ended");
    assert_eq!((notes, tls().await), (Notes::new(), new), "the certificate of NATS is rotated once");
    let ended = metrics().await;
    assert_eq!((&ended["ca.crt"], &ended["tls.crt"]), (&both["ca.next.crt"], &both["tls.next.crt"]));
    assert_eq!((ended.len(), &disk()["metrics-ca.crt"]), (3, &ended["ca.crt"]));

    let maps: Api<ConfigMap> = Api::namespaced(admin.clone(), SYSTEM);
    let patch = Patch::Merge(json!({"data": {"values.yaml": "certManager: true"}}));
    maps.patch("eno-install", &PatchParams::default(), &patch).await.expect("patched");
    let error = certificates(&ALL).await.expect_err("refused").to_string();
    assert!(error.contains("cmctl renew eno-nats-tls -n eno-system"), "{error}");
    control_plane.stop().await;
}
