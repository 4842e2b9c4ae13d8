//! Scenarios of the driver.

use std::time::Instant;

use eno_driver_nad::codec::render;
use eno_driver_nad::object::{ATTACHMENT_UID, DesiredNad, Guard, MANAGED_BY, RESOURCE_NAME};
use eno_driver_nad::{NadDriver, object};
use eno_schemas::{Desired, Generation, NadVlans, VlanSet};
use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, PropagationPolicy};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::runtime::conditions::is_deleted;
use kube::runtime::wait::await_condition;
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use crate::api::cluster::{
    Cluster, command, done, failure, macvlan, ovs, reconcile, reconcile_with_newest, refused,
};
use crate::common::{NAD_CRD, TIMEOUT};

fn config(nad: &DynamicObject) -> Value {
    let text = nad.data["spec"]["config"].as_str().expect("a configuration");
    serde_json::from_str(text).expect("JSON")
}

pub async fn missing_crd_is_retried_until_installed(cluster: &Cluster) {
    cluster.namespace("early").await;
    let (driver, mut changes) = cluster.driver().await;
    let wanted = command("early", "net", "uid-1", Some(ovs(13)));
    let failed = failure(reconcile(&driver, &wanted).await);
    assert!(failed.retryable && !failed.unreachable, "{failed:?}");
    assert!(failed.reason.contains(object::CRD) && failed.reason.contains("Multus"), "{}", failed.reason);
    cluster.install(NAD_CRD).await;
    changes.of("early/net").await;
    done(&reconcile(&driver, &wanted).await, true);
}

pub async fn nad_is_created_updated_and_deleted(cluster: &Cluster) {
    cluster.namespace("life").await;
    let (driver, _changes) = cluster.driver().await;
    done(&reconcile(&driver, &command("life", "net", "uid-1", Some(ovs(13)))).await, true);
    let made = cluster.get("life", "net").await.expect("the NAD");
    assert_eq!(
        config(&made),
        json!({ "cniVersion": "0.3.1", "name": "net", "type": "ovs", "vlan": 13, "bridge": "br-data" })
    );
    assert_eq!(made.annotations()[RESOURCE_NAME], "ovs-cni.network.kubevirt.io/br-data");
    assert_eq!(made.labels()[MANAGED_BY], "eno");
    let owner = serde_json::to_value(made.owner_references()).expect("JSON");
    assert_eq!(
        owner,
        json!([{ "apiVersion": "eno.k8s.io/v1alpha1", "kind": "L2ServiceAttachment", "name": "net",
                               "uid": "uid-1", "controller": true, "blockOwnerDeletion": false }])
    );
    assert_eq!(made.metadata.generation, Some(1), "one write");

    // Nothing differs, so nothing is written, by this process or the next.
    done(&reconcile(&driver, &command("life", "net", "uid-1", Some(ovs(13)))).await, true);
    let (next, _changes) = cluster.driver().await;
    done(&reconcile(&next, &command("life", "net", "uid-1", Some(ovs(13)))).await, true);
    let kept = cluster.get("life", "net").await.expect("the NAD");
    assert_eq!(kept.resource_version(), made.resource_version());

    // The manifest is the whole state: fields that are not desired any more are removed.
    done(&reconcile(&driver, &command("life", "net", "uid-1", Some(macvlan()))).await, true);
    let changed = cluster.get("life", "net").await.expect("the NAD");
    assert_eq!(config(&changed)["type"], "macvlan");
    assert!(!changed.annotations().contains_key(RESOURCE_NAME));
    assert_eq!(changed.uid(), made.uid());

    // The attachment was recreated under its old name.
    done(&reconcile(&driver, &command("life", "net", "uid-2", Some(macvlan()))).await, true);
    let taken = cluster.get("life", "net").await.expect("the NAD");
    assert_eq!(
        taken.owner_references().iter().map(|owner| owner.uid.as_str()).collect::<Vec<_>>(),
        ["uid-2"]
    );
    assert_eq!(taken.annotations()[ATTACHMENT_UID], "uid-2");

    // The deletion of the old attachment does not delete the new one's NAD.
    done(&reconcile(&driver, &command("life", "net", "uid-1", None)).await, false);
    assert!(cluster.get("life", "net").await.is_some());
    done(&reconcile(&driver, &command("life", "net", "uid-2", None)).await, false);
    assert!(cluster.get("life", "net").await.is_none());
    done(&reconcile(&driver, &command("life", "net", "uid-2", None)).await, false);
}

pub async fn drift_is_detected_and_repaired(cluster: &Cluster) {
    cluster.namespace("drift").await;
    let (driver, mut changes) = cluster.driver().await;
    let wanted = command("drift", "net", "uid-1", Some(ovs(13)));
    done(&reconcile(&driver, &wanted).await, true);
    for patch in [
        json!({ "spec": { "config": "{}" } }),
        json!({ "metadata": { "annotations": { RESOURCE_NAME: "other" } } }),
        json!({ "metadata": { "labels": null } }),
        json!({ "metadata": { "ownerReferences": null } }),
    ] {
        cluster.edit("drift", "net", patch).await;
        changes.of("drift/net").await;
        done(&reconcile(&driver, &wanted).await, true);
        let repaired = cluster.get("drift", "net").await.expect("the NAD");
        assert_eq!(config(&repaired)["vlan"], 13);
        assert_eq!(repaired.annotations()[RESOURCE_NAME], "ovs-cni.network.kubevirt.io/br-data");
        assert_eq!(repaired.labels()[MANAGED_BY], "eno");
        assert_eq!(repaired.owner_references().len(), 1);
    }
    cluster.nads("drift").delete("net", &DeleteParams::default()).await.expect("deleting the NAD");
    changes.of("drift/net").await;
    done(&reconcile(&driver, &wanted).await, true);
    assert!(cluster.get("drift", "net").await.is_some());

    // After `forget` the target is not notified any more: the next notification is of another target.
    eno_sbi::Driver::forget(&driver, "drift/net").await;
    done(&reconcile(&driver, &command("drift", "other", "uid-2", Some(ovs(14)))).await, true);
    cluster.edit("drift", "net", json!({ "spec": { "config": "{}" } })).await;
    cluster.edit("drift", "other", json!({ "spec": { "config": "{}" } })).await;
    assert_eq!(changes.next().await, "drift/other");
}

pub async fn foreign_nad_is_preserved(cluster: &Cluster) {
    cluster.namespace("foreign").await;
    let (driver, mut changes) = cluster.driver().await;
    let wanted = command("foreign", "net", "uid-1", Some(ovs(13)));
    let foreign = cluster.nad_by_hand("foreign", "net", &json!({}), &json!({ "config": "{}" })).await;
    let reason = refused(&reconcile(&driver, &wanted).await, false);
    assert!(reason.contains("foreign/net") && reason.contains("field manager by-hand"), "{reason}");
    done(&reconcile(&driver, &command("foreign", "net", "uid-1", None)).await, false);
    let kept = cluster.get("foreign", "net").await.expect("the foreign NAD");
    assert_eq!(kept.resource_version(), foreign.resource_version());

    // Retried without a command, as soon as the name is free.
    refused(&reconcile(&driver, &wanted).await, false);
    cluster.nads("foreign").delete("net", &DeleteParams::default()).await.expect("deleting the NAD");
    changes.of("foreign/net").await;
    done(&reconcile(&driver, &wanted).await, true);
}

pub async fn writes_are_guarded_against_races(cluster: &Cluster) {
    cluster.namespace("race").await;
    let wanted = match command("race", "net", "uid-1", Some(ovs(13))).desired {
        Desired::Nad(desired) => DesiredNad::new(&desired, render("net", &ovs(13)).expect("a configuration")),
        Desired::Fabric(_) | Desired::Node(_) | Desired::Speaker(_) => unreachable!("a NAD was asked for"),
    };
    let nads = cluster.nads("race");
    // A NAD without managed fields conflicts with nothing; only the guard protects it.
    let foreign = cluster.nad_by_hand("race", "net", &json!({}), &json!({})).await;
    let apply = PatchParams::apply("racer");
    let conflict = nads.patch("net", &apply, &Patch::Apply(wanted.apply(Guard::Absent))).await;
    assert!(matches!(&conflict, Err(kube::Error::Api(status)) if status.code == 409), "{conflict:?}");
    let other =
        nads.patch("net", &apply.clone().force(), &Patch::Apply(wanted.apply(Guard::Uid("gone")))).await;
    assert!(matches!(&other, Err(kube::Error::Api(status)) if status.code == 422), "{other:?}");
    let kept = cluster.get("race", "net").await.expect("the foreign NAD");
    assert_eq!(kept.resource_version(), foreign.resource_version());
    nads.delete("net", &DeleteParams::default()).await.expect("deleting the NAD");
    let gone = nads.patch("net", &apply.force(), &Patch::Apply(wanted.apply(Guard::Uid("gone")))).await;
    assert!(matches!(&gone, Err(kube::Error::Api(status)) if status.code == 409), "{gone:?}");
    assert!(cluster.get("race", "net").await.is_none());
}

pub async fn reference_nad_is_adopted(cluster: &Cluster) {
    cluster.namespace("adopt").await;
    let (driver, _changes) = cluster.driver().await;
    let owner = json!([{ "apiVersion": "eno.k8s.io/v1alpha1", "kind": "L2ServiceAttachment", "name": "net",
                         "uid": "uid-1", "controller": true, "blockOwnerDeletion": true }]);
    let metadata = json!({ "ownerReferences": owner, "annotations": { RESOURCE_NAME: "old" } });
    let old = cluster.nad_by_hand("adopt", "net", &metadata, &json!({ "config": "{}" })).await;
    done(&reconcile(&driver, &command("adopt", "net", "uid-1", Some(macvlan()))).await, true);
    let adopted = cluster.get("adopt", "net").await.expect("the NAD");
    assert_eq!(adopted.uid(), old.uid());
    assert_eq!(config(&adopted)["type"], "macvlan");
    assert!(!adopted.annotations().contains_key(RESOURCE_NAME));
    assert_eq!(adopted.owner_references()[0].block_owner_deletion, Some(false));
}

pub async fn finalizers_of_others_are_awaited(cluster: &Cluster) {
    cluster.namespace("held").await;
    let (driver, mut changes) = cluster.driver().await;
    done(&reconcile(&driver, &command("held", "net", "uid-1", Some(ovs(13)))).await, true);
    cluster.edit("held", "net", json!({ "metadata": { "finalizers": ["example.com/hold"] } })).await;
    let release = json!({ "metadata": { "finalizers": null } });

    // A NAD that still exists is not reported as absent.
    let held = failure(reconcile(&driver, &command("held", "net", "uid-1", None)).await);
    assert!(!held.retryable && held.reason.contains("example.com/hold"), "{held:?}");
    cluster.edit("held", "net", release.clone()).await;
    changes.of("held/net").await;
    done(&reconcile(&driver, &command("held", "net", "uid-1", None)).await, false);

    // Desired again while the old object is being deleted: the driver waits for its end.
    done(&reconcile(&driver, &command("held", "net", "uid-1", Some(ovs(13)))).await, true);
    cluster.edit("held", "net", json!({ "metadata": { "finalizers": ["example.com/hold"] } })).await;
    let old = cluster.get("held", "net").await.expect("the NAD").uid();
    cluster.nads("held").delete("net", &DeleteParams::default()).await.expect("deleting the NAD");
    changes.of("held/net").await;
    let again = command("held", "net", "uid-1", Some(ovs(13)));
    let (reconciled, _) = tokio::join!(reconcile(&driver, &again), cluster.edit("held", "net", release));
    done(&reconciled, true);
    assert_ne!(cluster.get("held", "net").await.expect("a new NAD").uid(), old);
}

pub async fn unsupported_attachment_keeps_existing_nad(cluster: &Cluster) {
    cluster.namespace("impossible").await;
    let (driver, _changes) = cluster.driver().await;
    let mut selective = ovs(13);
    selective.vlans = NadVlans::Selective(VlanSet::EMPTY);
    let bad = command("impossible", "net", "uid-1", Some(selective));
    let reason = refused(&reconcile(&driver, &bad).await, false);
    assert!(reason.contains("would pass all VLANs"), "{reason}");
    done(&reconcile(&driver, &command("impossible", "net", "uid-1", Some(ovs(13)))).await, true);
    refused(&reconcile(&driver, &bad).await, true);
    assert_eq!(config(&cluster.get("impossible", "net").await.expect("the NAD"))["vlan"], 13);
}

pub async fn superseded_command_writes_nothing(cluster: &Cluster) {
    cluster.namespace("older").await;
    let (driver, _changes) = cluster.driver().await;
    let older = command("older", "net", "uid-1", Some(ovs(13)));
    let newest = Generation { sequence: 2, ..older.generation.clone() };
    let failed = failure(reconcile_with_newest(&driver, &older, newest).await);
    assert!(failed.reason.contains("newer"), "{failed:?}");
    assert!(cluster.get("older", "net").await.is_none());
}

pub async fn missing_and_terminating_namespaces_are_handled(cluster: &Cluster) {
    let (driver, _changes) = cluster.driver().await;
    let failed = failure(reconcile(&driver, &command("nowhere", "net", "uid-1", Some(ovs(13)))).await);
    assert!(!failed.retryable && failed.reason.contains("nowhere"), "{failed:?}");
    done(&reconcile(&driver, &command("nowhere", "net", "uid-1", None)).await, false);

    cluster.namespace("ending").await;
    done(&reconcile(&driver, &command("ending", "net", "uid-1", Some(ovs(13)))).await, true);
    // A finalizer keeps the terminating namespace.
    let hold = json!({ "finalizers": ["example.com/hold"] });
    cluster.nad_by_hand("ending", "holder", &hold, &json!({})).await;
    let namespaces: Api<Namespace> = Api::all(cluster.admin.clone());
    let uid = namespaces.get("ending").await.expect("the namespace").uid().expect("its uid");
    namespaces.delete("ending", &DeleteParams::default()).await.expect("deleting the namespace");
    let nad = cluster.nads("ending").get_opt("net").await.expect("getting the NAD");
    if let Some(nad) = nad {
        let uid = nad.uid().expect("a uid");
        let gone = await_condition(cluster.nads("ending"), "net", is_deleted(&uid));
        tokio::time::timeout(TIMEOUT, gone).await.expect("the NAD goes with its namespace").expect("a watch");
    }
    let (fresh, _changes) = cluster.driver().await;
    let failed = failure(reconcile(&fresh, &command("ending", "net", "uid-1", Some(ovs(13)))).await);
    assert!(!failed.retryable && failed.reason.contains("being terminated"), "{failed:?}");
    done(&reconcile(&fresh, &command("ending", "net", "uid-1", None)).await, false);
    cluster.edit("ending", "holder", json!({ "metadata": { "finalizers": null } })).await;
    let gone = await_condition(namespaces, "ending", is_deleted(&uid));
    tokio::time::timeout(TIMEOUT, gone).await.expect("the namespace ends").expect("a watch");
}

pub async fn forbidden_calls_are_reported(cluster: &Cluster) {
    cluster.namespace("forbidden").await;
    let driver = NadDriver::new(cluster.nobody().await);
    let failed = failure(reconcile(&driver, &command("forbidden", "net", "uid-1", Some(ovs(13)))).await);
    assert!(!failed.retryable && !failed.unreachable && failed.reason.contains("forbidden"), "{failed:?}");
}

pub async fn nad_is_collected_with_its_attachment(cluster: &Cluster) {
    cluster.namespace("collected").await;
    let (driver, mut changes) = cluster.driver().await;
    let gvk = GroupVersionKind::gvk("eno.k8s.io", "v1alpha1", "L2ServiceAttachment");
    let attachments: Api<DynamicObject> =
        Api::namespaced_with(cluster.admin.clone(), "collected", &ApiResource::from_gvk(&gvk));
    let nads = cluster.nads("collected");
    let make = async |name: &str, metadata: Value| {
        let mut attachment = json!({
            "apiVersion": "eno.k8s.io/v1alpha1", "kind": "L2ServiceAttachment", "metadata": metadata,
            "spec": { "L2Services": ["s"], "ConnectionPoint": "c", "VlanType": "access" },
        });
        attachment["metadata"]["name"] = json!(name);
        let attachment = serde_json::from_value(attachment).expect("an attachment");
        attachments.create(&PostParams::default(), &attachment).await.expect("creating an attachment")
    };

    // The collector discovers new kinds twice a minute. It knows both kinds when it has collected an orphan
    // of each.
    let orphan = json!({ "ownerReferences": [
        { "apiVersion": "v1", "kind": "ConfigMap", "name": "none", "uid": "none" },
    ] });
    cluster.nad_by_hand("collected", "orphan", &orphan, &json!({})).await;
    make("orphan", orphan).await;
    for api in [&nads, &attachments] {
        let gone = await_condition(api.clone(), "orphan", |object: Option<&DynamicObject>| object.is_none());
        tokio::time::timeout(3 * TIMEOUT, gone).await.expect("the collector takes orphans").expect("a watch");
    }

    let uid = make("net", json!({ "finalizers": ["example.com/in-use"] })).await.uid().expect("a uid");
    let wanted = command("collected", "net", &uid, Some(ovs(13)));
    done(&reconcile(&driver, &wanted).await, true);

    // In use: a foreground deletion keeps the attachment. Its NAD, if collected, is created again and kept.
    let in_use = async {
        let foreground = DeleteParams {
            propagation_policy: Some(PropagationPolicy::Foreground),
            ..DeleteParams::default()
        };
        attachments.delete("net", &foreground).await.expect("deleting the attachment");
        let unblocked = |attachment: Option<&DynamicObject>| {
            attachment
                .is_some_and(|attachment| !attachment.finalizers().iter().any(|f| f == "foregroundDeletion"))
        };
        let solid = await_condition(attachments.clone(), "net", unblocked);
        tokio::time::timeout(TIMEOUT, solid).await.expect("the deletion isn't blocked").expect("a watch");
        let there = await_condition(nads.clone(), "net", |nad: Option<&DynamicObject>| nad.is_some());
        tokio::time::timeout(TIMEOUT, there).await.expect("the NAD is there").expect("a watch");
    };
    let host = async {
        loop {
            changes.any().await;
            done(&reconcile(&driver, &wanted).await, true);
        }
    };
    tokio::select! {
        () = in_use => {}
        () = host => {}
    }

    // No longer in use: both are deleted.
    let release = json!({ "metadata": { "finalizers": null } });
    attachments.patch("net", &PatchParams::default(), &Patch::Merge(release)).await.expect("releasing it");
    for api in [nads, attachments] {
        let gone = await_condition(api, "net", |object: Option<&DynamicObject>| object.is_none());
        tokio::time::timeout(TIMEOUT, gone).await.expect("both go").expect("a watch");
    }
}

pub async fn many_targets_reconcile_concurrently(cluster: &Cluster) {
    const MANY: u16 = 500;
    cluster.namespace("many").await;
    let (driver, _changes) = cluster.driver().await;
    for present in [true, false] {
        let start = Instant::now();
        stream::iter(0..MANY)
            .for_each_concurrent(128, |number| {
                let attachment = present.then(|| ovs(number % 4000 + 1));
                let command = command("many", &format!("net-{number}"), &format!("uid-{number}"), attachment);
                let driver = &driver;
                async move { done(&reconcile(driver, &command).await, present) }
            })
            .await;
        println!("{MANY} NADs {}: {:?}", if present { "made" } else { "removed" }, start.elapsed());
        let there =
            cluster.nads("many").list_metadata(&kube::api::ListParams::default()).await.expect("a list");
        assert_eq!(there.items.len(), if present { usize::from(MANY) } else { 0 });
    }
}
