//! The objects of MetalLB, as the driver writes them with its own role, under its policy.

use eno_driver_bgp_speaker::metallb::{Kind, advertisements};
use eno_sbi::Reconciled;
use eno_schemas::{ANNOUNCED_TO_ALL, Applied};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::core::DynamicObject;
use serde_json::{Value, json};

use crate::cluster::{Cluster, NAMESPACE, failure, reconcile, rejection, sessions};

const PEER: &str = "eno-10-9-0-254";
const OTHER: &str = "eno-2001-db8--fe";

fn done(present: bool) -> Reconciled {
    Reconciled::applied(Applied::Speaker { present })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn groups_become_peers_of_metallb() {
    let cluster = Cluster::start().await;
    missing_definitions_are_named(&cluster).await;
    definitions_that_refuse_as_numbers_are_named(&cluster).await;
    peers_are_made_repaired_and_removed(&cluster).await;
    objects_of_others_stay(&cluster).await;
    passwords_need_their_secret(&cluster).await;
    advertisements_to_all_are_told(&cluster).await;
    policy_protects_objects_of_others(&cluster).await;
    cluster.stop().await;
}

async fn missing_definitions_are_named(cluster: &Cluster) {
    let (driver, _) = cluster.driver().await;
    let missing = failure(reconcile(&driver, "early", Some(sessions(&["10.9.0.254"]))).await);
    assert!(missing.retryable && missing.unreachable, "{missing:?}");
    assert!(missing.reason.contains("install MetalLB"), "{missing:?}");
    assert_eq!(reconcile(&driver, "early", None).await, done(false), "there is nothing to remove");
}

async fn definitions_that_refuse_as_numbers_are_named(cluster: &Cluster) {
    cluster.install_metallb("int32").await;
    let (driver, mut changes) = cluster.driver().await;
    let refused = rejection(&reconcile(&driver, "old", Some(sessions(&["10.9.0.254"]))).await);
    assert!(refused.contains("install the CustomResourceDefinitions of MetalLB v0.16.2"), "{refused}");
    cluster.install_metallb("int64").await;
    changes.of("old").await;
    assert_eq!(reconcile(&driver, "old", None).await, done(false));
}

async fn peers_are_made_repaired_and_removed(cluster: &Cluster) {
    let (driver, mut changes) = cluster.driver().await;
    let both = sessions(&["10.9.0.254", "2001:db8::fe"]);
    assert_eq!(reconcile(&driver, "pool", Some(both.clone())).await, done(true));
    assert_eq!(cluster.names(Kind::BgpPeer).await, [PEER, OTHER]);
    assert_eq!(cluster.names(Kind::BfdProfile).await, [PEER, OTHER]);
    let peers = cluster.objects(Kind::BgpPeer);
    let peer = peers.get(PEER).await.expect("the peer");
    let expected = json!({
        "myASN": 4_200_000_000_u32, "peerASN": 65000, "peerAddress": "10.9.0.254", "peerPort": 179,
        "holdTime": "90s", "bfdProfile": PEER, "disableMP": false,
        "dualStackAddressFamily": false,
        "nodeSelectors": [{ "matchExpressions": [
            { "key": "kubernetes.io/hostname", "operator": "In", "values": ["node1", "node2"] }
        ] }],
    });
    assert_eq!(peer.data["spec"], expected);
    let owner = &peer.metadata.owner_references.as_ref().expect("an owner")[0];
    assert_eq!((&*owner.kind, &*owner.name), ("BGPSessionGroup", "pool"));
    let profile = cluster.objects(Kind::BfdProfile).get(PEER).await.expect("the profile");
    assert_eq!(profile.data["spec"]["receiveInterval"], 300);

    // Nothing is written twice.
    assert_eq!(reconcile(&driver, "pool", Some(both.clone())).await, done(true));
    let again = peers.get(PEER).await.expect("the peer");
    assert_eq!(again.metadata.resource_version, peer.metadata.resource_version);

    // What others change is repaired. A field that another writer adds, and that changes the session, is named.
    let by_hand = PatchParams { field_manager: Some("by-hand".into()), ..PatchParams::default() };
    let edit = async |spec: Value| {
        let patch = Patch::Merge(json!({ "spec": spec }));
        peers.patch(PEER, &by_hand, &patch).await.expect("an edit");
    };
    edit(json!({ "holdTime": "9s" })).await;
    changes.of("pool").await;
    assert_eq!(reconcile(&driver, "pool", Some(both.clone())).await, done(true));
    assert_eq!(peers.get(PEER).await.expect("the peer").data["spec"], expected);
    edit(json!({ "password": "by-hand" })).await;
    let other = failure(reconcile(&driver, "pool", Some(both.clone())).await);
    assert!(other.retryable && other.reason.contains(PEER), "{other:?}");
    assert!(!other.reason.contains("by-hand"), "{other:?}");
    edit(json!({ "password": null })).await;

    // A gateway goes, then BFD, then the group.
    let mut one = sessions(&["10.9.0.254"]);
    assert_eq!(reconcile(&driver, "pool", Some(one.clone())).await, done(true));
    assert_eq!(cluster.names(Kind::BgpPeer).await, [PEER]);
    (one.bfd, one.keepalive_time) = (None, 20);
    assert_eq!(reconcile(&driver, "pool", Some(one)).await, done(true));
    assert_eq!(cluster.names(Kind::BfdProfile).await, [""; 0]);
    let peer = peers.get(PEER).await.expect("the peer");
    assert!(peer.data["spec"].get("bfdProfile").is_none());
    assert_eq!(peer.data["spec"]["keepaliveTime"], "20s");
    assert_eq!(reconcile(&driver, "pool", None).await, done(false));
    assert_eq!(cluster.names(Kind::BgpPeer).await, [""; 0]);
}

async fn objects_of_others_stay(cluster: &Cluster) {
    let (driver, mut changes) = cluster.driver().await;
    let spec = |address: &str| json!({ "myASN": 1, "peerASN": 2, "peerAddress": address });
    for (name, address, expected) in [
        (PEER, "192.0.2.1", "the name is taken"),
        ("theirs", "10.9.0.254", "of somebody else has the address"),
    ] {
        cluster.create_foreign(Kind::BgpPeer, name, spec(address)).await;
        let refused = rejection(&reconcile(&driver, "pool", Some(sessions(&["10.9.0.254"]))).await);
        assert!(refused.contains(expected), "{refused}");
        assert_eq!(reconcile(&driver, "pool", None).await, done(false));
        let theirs = cluster.objects(Kind::BgpPeer);
        assert_eq!(theirs.get(name).await.expect("it stays").data["spec"]["peerAddress"], address);
        theirs.delete(name, &DeleteParams::default()).await.expect("it goes");
        changes.of("pool").await;
    }
    assert_eq!(reconcile(&driver, "pool", Some(sessions(&["10.9.0.254"]))).await, done(true));
    // Another group has an equal name for its gateway.
    let refused = rejection(&reconcile(&driver, "other", Some(sessions(&["10.9.0.254"]))).await);
    assert!(refused.contains("the name is taken"), "{refused}");
    assert_eq!(reconcile(&driver, "pool", None).await, done(false));
}

async fn passwords_need_their_secret(cluster: &Cluster) {
    let (driver, _) = cluster.driver().await;
    let with_password = || {
        let mut sessions = sessions(&["10.9.0.254"]);
        sessions.password = Some("of-the-pool".to_owned());
        sessions
    };
    let forbidden = failure(reconcile(&driver, "pool", Some(with_password())).await);
    assert!(forbidden.retryable && forbidden.reason.contains("create a Role there"), "{forbidden:?}");
    let rbac = "rbac.authorization.k8s.io/v1";
    let named = json!({ "name": "of-the-pool", "namespace": NAMESPACE });
    let rule = json!({ "apiGroups": [""], "resources": ["secrets"], "resourceNames": ["of-the-pool"], "verbs": ["get"] });
    cluster.apply(&json!({ "apiVersion": rbac, "kind": "Role", "metadata": named, "rules": [rule] })).await;
    let role = json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "of-the-pool" });
    let account =
        json!({ "kind": "ServiceAccount", "name": "eno-driver-bgp-speaker", "namespace": "eno-system" });
    let binding = json!({
        "apiVersion": rbac, "kind": "RoleBinding", "metadata": named, "roleRef": role, "subjects": [account],
    });
    cluster.apply(&binding).await;
    let may_read = async {
        loop {
            let missing = failure(reconcile(&driver, "pool", Some(with_password())).await);
            if missing.reason.contains("does not exist") {
                return missing;
            }
        }
    };
    assert!(may_read.await.unreachable);
    let secret = |type_: &str| {
        json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": named, "type": type_, "stringData": { "password": "p" },
        })
    };
    cluster.apply(&secret("Opaque")).await;
    let wrong = failure(reconcile(&driver, "pool", Some(with_password())).await);
    assert!(wrong.reason.contains("is not of the type kubernetes.io/basic-auth"), "{wrong:?}");
    assert_eq!(cluster.names(Kind::BgpPeer).await, [""; 0], "MetalLB would drop its configuration");
    let secrets: Api<k8s_openapi::api::core::v1::Secret> = Api::namespaced(cluster.admin.clone(), NAMESPACE);
    secrets.delete("of-the-pool", &DeleteParams::default()).await.expect("it goes");
    cluster.apply(&secret("kubernetes.io/basic-auth")).await;
    assert_eq!(reconcile(&driver, "pool", Some(with_password())).await, done(true));
    let peer = cluster.objects(Kind::BgpPeer).get(PEER).await.expect("the peer");
    assert_eq!(peer.data["spec"]["passwordSecret"], json!({ "name": "of-the-pool", "namespace": NAMESPACE }));
    assert_eq!(reconcile(&driver, "pool", None).await, done(false));
}

async fn advertisements_to_all_are_told(cluster: &Cluster) {
    let (driver, mut changes) = cluster.driver().await;
    let group = || Some(sessions(&["10.9.0.254"]));
    let advertisement = |spec: Value| {
        json!({
            "apiVersion": "metallb.io/v1beta1", "kind": "BGPAdvertisement",
            "metadata": { "name": "services", "namespace": NAMESPACE }, "spec": spec,
        })
    };
    assert_eq!(reconcile(&driver, "pool", group()).await, done(true));
    cluster.apply(&advertisement(json!({ "ipAddressPools": ["pool"] }))).await;
    changes.of("pool").await;
    let notified = reconcile(&driver, "pool", group()).await;
    let [note] = notified.notes.as_slice() else { panic!("{notified:?}") };
    assert_eq!(note.kind, ANNOUNCED_TO_ALL);
    assert!(note.message.contains("BGPAdvertisement metallb-system/services names no peers"), "{note:?}");
    cluster.apply(&advertisement(json!({ "ipAddressPools": ["pool"], "peers": [PEER] }))).await;
    assert_eq!(reconcile(&driver, "pool", group()).await, done(true));
    cluster.of(&advertisements()).delete("services", &DeleteParams::default()).await.expect("it goes");
    assert_eq!(reconcile(&driver, "pool", None).await, done(false));
}

async fn policy_protects_objects_of_others(cluster: &Cluster) {
    cluster
        .create_foreign(
            Kind::BgpPeer,
            "theirs",
            json!({ "myASN": 1, "peerASN": 2, "peerAddress": "192.0.2.1" }),
        )
        .await;
    let resource = Kind::BgpPeer.resource();
    let api: Api<DynamicObject> = Api::namespaced_with(cluster.driver_client().await, NAMESPACE, &resource);
    let refused = |error: kube::Error| {
        let text = error.to_string();
        assert!(text.contains("may write objects of BGPSessionGroups only"), "{text}");
    };
    refused(api.delete("theirs", &DeleteParams::default()).await.expect_err("a foreign object"));
    let patch = Patch::Merge(json!({ "spec": { "peerASN": 3 } }));
    refused(api.patch("theirs", &PatchParams::default(), &patch).await.expect_err("a foreign object"));
    let object = json!({
        "apiVersion": resource.api_version, "kind": resource.kind, "metadata": { "name": "unmarked" },
        "spec": { "myASN": 1, "peerASN": 2, "peerAddress": "192.0.2.2" },
    });
    let object = serde_json::from_value(object).expect("an object");
    refused(api.create(&PostParams::default(), &object).await.expect_err("an object without a group"));
}
