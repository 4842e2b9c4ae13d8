//! What the role of `deploy/rbac-install` equals. Its header, install.md and SECURITY.md say the same.

use k8s_openapi::api::authorization::v1::SelfSubjectAccessReview;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::api::PostParams;

use super::*;

async fn may_do_everything(client: &Client) -> bool {
    let review: SelfSubjectAccessReview = serde_json::from_value(
        json!({"spec": {"resourceAttributes": {"verb": "*", "group": "*", "resource": "*"}}}),
    )
    .expect("a review");
    let reviews: Api<SelfSubjectAccessReview> = Api::all(client.clone());
    let answer = reviews.create(&PostParams::default(), &review).await.expect("an answer");
    answer.status.is_some_and(|status| status.allowed)
}

/// It reads the operator's Secrets alone. A role that it may write, with the rights to everything, and its binding give
/// it all others: two commands.
#[tokio::test]
async fn installer_role_reads_other_secrets_only_after_it_made_itself_cluster_admin() {
    let Cluster { _directory, home: _, control_plane, admin, client } = cluster().await;
    assert!(!may_do_everything(&client).await);

    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "of-others", "namespace": "default"},
        "stringData": {"password": "p"}});
    apply(&admin, "test", secret).await;
    for (namespace, name) in [("default", "of-others"), (SYSTEM, "eno-people"), ("eno-devices", "leaf1")] {
        let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
        let refused = secrets.get(name).await.expect_err("no right to this Secret").to_string();
        assert!(refused.contains("cannot get resource \"secrets\""), "{refused}");
        let refused = secrets.list(&ListParams::default()).await.expect_err("no right to all Secrets");
        assert!(refused.to_string().contains("cannot list resource \"secrets\""), "{refused}");
    }

    let role = |name: &str| -> ClusterRole {
        let rules = json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]);
        serde_json::from_value(json!({"metadata": {"name": name}, "rules": rules})).expect("a role")
    };
    let binding = |name: &str| -> ClusterRoleBinding {
        let group = "rbac.authorization.k8s.io";
        let subject = json!({"apiGroup": group, "kind": "User", "name": "installer"});
        serde_json::from_value(json!({"metadata": {"generateName": "a-"}, "subjects": [subject],
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": name}}))
        .expect("a binding")
    };
    let roles: Api<ClusterRole> = Api::all(client.clone());
    let bindings: Api<ClusterRoleBinding> = Api::all(client.clone());
    let params = PostParams::default();
    // Only the names of the operator's roles permit it.
    let refused = roles.create(&params, &role("another")).await.expect_err("no escalation by other names");
    assert!(
        refused.to_string().contains("attempting to grant RBAC permissions not currently held"),
        "{refused}"
    );
    bindings.create(&params, &binding("cluster-admin")).await.expect_err("no binding of other roles");
    assert!(!may_do_everything(&client).await);

    let role = eno::apply::dynamic(&role("eno-viewer")).expect("a role");
    eno::apply::apply(&client, MANAGER, &role).await.expect("a role");
    bindings.create(&params, &binding("eno-viewer")).await.expect("a binding");
    until_true(async || may_do_everything(&client).await).await;
    assert_eq!(data(&client, "default", "of-others").await["password"], "p");
    control_plane.stop().await;
}

/// Waits for a condition of the authorizer, whose caches follow the roles.
async fn until_true(condition: impl AsyncFn() -> bool) {
    let mut tick = interval(Duration::from_millis(50));
    let waiting = async {
        while !condition().await {
            tick.tick().await;
        }
    };
    tokio::time::timeout(WAIT, waiting).await.expect("it becomes true");
}
