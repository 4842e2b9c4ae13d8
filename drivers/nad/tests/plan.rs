//! The plan for each observed state of a NetworkAttachmentDefinition.

use eno_driver_nad::codec::Rendered;
use eno_driver_nad::object::{DesiredNad, Guard, ObservedNad};
use eno_driver_nad::plan::{Plan, plan};
use eno_schemas::{NadDesired, NadOwner};
use kube::core::DynamicObject;
use serde_json::{Value, json};

const OWNER: &str = "attachment-1";

fn wanted_by(uid: &str, resource_name: Option<&str>) -> DesiredNad {
    let desired = NadDesired {
        namespace: "ns".into(),
        name: "net".into(),
        owner: NadOwner { uid: uid.into() },
        attachment: None,
    };
    DesiredNad::new(&desired, Rendered { config: "{}".into(), resource_name: resource_name.map(Into::into) })
}

fn wanted() -> DesiredNad {
    wanted_by(OWNER, Some("pool"))
}

/// The object that the API server stores for an apply.
fn applied(wanted: &DesiredNad) -> Value {
    let mut object = wanted.apply(Guard::Absent);
    object["metadata"]["uid"] = json!("nad-1");
    object["metadata"]["resourceVersion"] = json!("7");
    object
}

fn seen(object: Value) -> ObservedNad {
    ObservedNad::of(&serde_json::from_value::<DynamicObject>(object).expect("an object"))
}

fn changed(change: impl FnOnce(&mut Value)) -> ObservedNad {
    let mut object = applied(&wanted());
    change(&mut object);
    seen(object)
}

fn attachment_reference(uid: &str) -> Value {
    json!([{
        "apiVersion": "eno.k8s.io/v1alpha1", "kind": "L2ServiceAttachment", "name": "net", "uid": uid,
        "controller": true, "blockOwnerDeletion": false,
    }])
}

#[test]
fn missing_nad_is_created_or_left_absent() {
    let wanted = wanted();
    assert_eq!(plan(OWNER, Some(&wanted), None), Plan::Create(&wanted));
    assert_eq!(plan(OWNER, None, None), Plan::Absent);
}

#[test]
fn matching_own_nad_is_left_unchanged() {
    let (wanted, seen) = (wanted(), changed(|_| ()));
    assert_eq!(seen.version, 7);
    assert_eq!(plan(OWNER, Some(&wanted), Some(&seen)), Plan::Keep(wanted.content()));
    assert_eq!(plan(OWNER, None, Some(&seen)), Plan::Delete(&seen));
    // Additions of others are kept.
    let seen = changed(|object| {
        object["metadata"]["labels"]["team"] = json!("a");
        object["metadata"]["annotations"]["note"] = json!("b");
    });
    assert_eq!(plan(OWNER, Some(&wanted), Some(&seen)), Plan::Keep(wanted.content()));
}

#[test]
fn drifted_own_nad_is_reapplied() {
    let changes: [fn(&mut Value); 8] = [
        |object| object["spec"]["config"] = json!("{ }"),
        |object| object["spec"] = json!({}),
        |object| drop(object.as_object_mut().map(|object| object.remove("spec"))),
        |object| object["metadata"]["annotations"]["k8s.v1.cni.cncf.io/resourceName"] = json!("other"),
        |object| object["metadata"]["annotations"] = json!({}),
        |object| object["metadata"]["labels"] = json!({}),
        |object| object["metadata"]["ownerReferences"] = json!([]),
        |object| object["metadata"]["ownerReferences"][0]["blockOwnerDeletion"] = json!(true),
    ];
    let wanted = wanted();
    for (at, change) in changes.into_iter().enumerate() {
        let seen = changed(change);
        assert_eq!(plan(OWNER, Some(&wanted), Some(&seen)), Plan::Update(&wanted, &seen), "change {at}");
        assert_eq!(plan(OWNER, None, Some(&seen)), Plan::Delete(&seen), "change {at}");
    }
}

#[test]
fn reference_implementation_nad_of_same_attachment_is_adopted() {
    let seen = seen(json!({
        "apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
        "metadata": { "name": "net", "namespace": "ns", "uid": "nad-1", "resourceVersion": "7",
                      "ownerReferences": attachment_reference(OWNER) },
        "spec": { "config": "{}" },
    }));
    let wanted = wanted();
    assert_eq!(plan(OWNER, Some(&wanted), Some(&seen)), Plan::Update(&wanted, &seen));
    assert_eq!(plan(OWNER, None, Some(&seen)), Plan::Delete(&seen));
}

#[test]
fn nad_of_a_recreated_attachment_is_adopted() {
    let (old, new) = (wanted_by("attachment-0", Some("pool")), wanted());
    let left = seen(applied(&old));
    assert_eq!(plan(OWNER, Some(&new), Some(&left)), Plan::Update(&new, &left));
    // A NAD with another attachment's uid is deleted with that attachment.
    assert_eq!(plan(OWNER, None, Some(&left)), Plan::Absent);
    // Without our label nothing identifies it as ours.
    let mut object = applied(&old);
    object["metadata"]["labels"] = json!({});
    assert!(
        matches!(plan(OWNER, Some(&new), Some(&seen(object))), Plan::Refuse { holder } if holder.contains("attachment-0"))
    );
}

#[test]
fn foreign_nads_are_refused_and_kept() {
    let wanted = wanted();
    let foreign = |metadata: Value| {
        let mut object = json!({
            "apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
            "metadata": { "name": "net", "namespace": "ns", "uid": "nad-1", "resourceVersion": "7" },
            "spec": { "config": "{}" },
        });
        if let (Some(to), Value::Object(from)) = (object["metadata"].as_object_mut(), metadata) {
            to.extend(from);
        }
        seen(object)
    };
    let other_kind = json!([{ "apiVersion": "eno.k8s.io.evil.example/v1", "kind": "L2ServiceAttachment", "name": "net",
                              "uid": OWNER, "controller": true }]);
    let other_name = json!([{ "apiVersion": "eno.k8s.io/v1alpha1", "kind": "L2ServiceAttachment", "name": "another",
                              "uid": OWNER, "controller": true }]);
    let sriov = json!([{ "apiVersion": "sriovnetwork.openshift.io/v1", "kind": "SriovNetwork", "name": "fast",
                         "uid": "x", "controller": true }]);
    let label = json!({ "app.kubernetes.io/managed-by": "eno" });
    for (metadata, holder) in [
        (json!({}), "an unknown writer"),
        (json!({ "managedFields": [{ "manager": "kubectl-create" }] }), "field manager kubectl-create"),
        (
            json!({ "labels": { "app.kubernetes.io/managed-by": "Helm" } }),
            "Helm (by its label app.kubernetes.io/managed-by)",
        ),
        (json!({ "ownerReferences": sriov }), "SriovNetwork fast"),
        // Our label and uid do not outweigh another controller.
        (
            json!({ "ownerReferences": sriov, "labels": label,
                 "annotations": { "eno.k8s.io/attachment-uid": OWNER } }),
            "SriovNetwork fast",
        ),
        (json!({ "ownerReferences": other_kind, "labels": label }), "L2ServiceAttachment net"),
        (json!({ "ownerReferences": other_name, "labels": label }), "L2ServiceAttachment another"),
        (
            json!({ "labels": label, "annotations": { "eno.k8s.io/attachment-uid": "attachment-0" } }),
            "an L2ServiceAttachment with the uid attachment-0",
        ),
    ] {
        let seen = foreign(metadata);
        assert_eq!(plan(OWNER, Some(&wanted), Some(&seen)), Plan::Refuse { holder: holder.into() });
        assert_eq!(plan(OWNER, None, Some(&seen)), Plan::Absent);
    }
}

#[test]
fn terminating_nad_is_awaited() {
    let seen = changed(|object| {
        object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        object["metadata"]["finalizers"] = json!(["example.com/a", "example.com/b"]);
    });
    assert_eq!(seen.finalizers.as_deref(), Some("example.com/a, example.com/b"));
    assert_eq!(plan(OWNER, Some(&wanted()), Some(&seen)), Plan::AwaitGone(&seen));
    assert_eq!(plan(OWNER, None, Some(&seen)), Plan::AwaitGone(&seen));
}

#[test]
fn writes_carry_uid_and_resource_version_guards() {
    let wanted = wanted();
    assert_eq!(wanted.apply(Guard::Absent)["metadata"]["resourceVersion"], json!("1"));
    assert_eq!(wanted.apply(Guard::Uid("nad-1"))["metadata"]["uid"], json!("nad-1"));
    let mut with = applied(&wanted);
    with["metadata"]["annotations"]["k8s.v1.cni.cncf.io/resourceName"] = json!("left over");
    let with: DynamicObject = serde_json::from_value(with).expect("an object");
    assert_eq!(wanted.without_foreign_resource_name(&with), None);
    let patch = wanted_by(OWNER, None).without_foreign_resource_name(&with).expect("a patch");
    assert_eq!(patch["metadata"]["annotations"], json!({ "k8s.v1.cni.cncf.io/resourceName": null }));
    assert_eq!(patch["metadata"]["uid"], json!("nad-1"));
}
