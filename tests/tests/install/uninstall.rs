//! `eno uninstall` on a real API server.

use std::path::Path;
use std::time::Duration;

use eno::install::context::ContextStore;
use eno::install::uninstall::removal::{Objects, Request};
use eno::install::uninstall::{self, UninstallError};
use kube::api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client, ResourceExt};
use serde_json::json;

use super::{Cluster, WAIT, apply, cluster, installed};

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

/// Without an engine nothing is removed, unless the objects are kept or abandoned. Nothing else stays.
#[tokio::test]
async fn uninstall_without_an_engine_is_refused_keeps_or_abandons() {
    let Cluster { _directory, home, control_plane, admin, client } = cluster().await;
    let values = "nadDefinition: true\nnodeMetrics: true";
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
    assert!(kept.len() == 18 && kept.iter().all(is_expected), "{kept:?}");
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
