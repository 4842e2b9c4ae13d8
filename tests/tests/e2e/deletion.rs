//! Objects in use are deleted only after their last user.

use std::collections::BTreeMap;

use eno_nbi_crds::{L2Service, L2ServiceAttachment, Phase, Subnet};
use eno_tests::{Ports, Receiver, access, service, subnet, with_shared_sandbox};
use kube::Resource as _;
use kube::runtime::watcher;

use crate::e2e::create_namespace_and_point;

/// A pod that no kubelet runs, with the networks annotation.
fn pod(namespace: &str, name: &str, networks: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: {namespace}, annotations: \
         {{k8s.v1.cni.cncf.io/networks: '{networks}'}}}}\nspec: {{containers: [{{name: main, image: none}}]}}"
    )
}

#[test]
fn service_deletion_waits_for_its_attachment() {
    with_shared_sandbox(async |system| {
        create_namespace_and_point(system, "used", &["node3"]).await;
        system.apply(&subnet("used", "10.30.0.0", "")).await;
        let receiver = Receiver::start().await;
        let network = service("used-a", 300, &format!("Subnets: [used], CallbackURL: '{}'", receiver.url()));
        let user = access("used", "a", "used-a");
        system.apply_until_ready::<L2ServiceAttachment>(&[&*network, &*user].concat(), "used/a").await;
        system.becomes::<L2Service>("used-a", Phase::Ready).await;

        system.request_deletion(&network).await;
        system
            .becomes::<L2Service>(
                "used-a",
                (Phase::Terminating, &["in use by", "L2ServiceAttachment used/a"]),
            )
            .await;
        system.assert_vlan_on(300, &Ports::from([("leaf2", "Ethernet1")])).await;
        system.becomes::<L2ServiceAttachment>("used/a", Phase::Ready).await;

        let newcomer = access("used", "b", "used-a");
        system.apply(&newcomer).await;
        let refused = (Phase::Error, &["L2Services[0]", "used-a", "being deleted"]);
        system.becomes::<L2ServiceAttachment>("used/b", refused).await;

        system.request_deletion(&[user, newcomer].concat()).await;
        system.none_left::<L2ServiceAttachment>("used").await;
        system.none_left::<L2Service>("used").await;
        system.until_without([300]).await;
        receiver.until(&["L2Service used-a".to_owned()], "deleted").await;
        // The Subnet is unused now, and its creator may still want it.
        let subnet_left: Subnet = system.becomes("used", Phase::Ready).await;
        assert!(subnet_left.meta().deletion_timestamp.is_none());
        system.delete(&subnet("used", "10.30.0.0", "")).await;
    });
}

#[test]
fn attachment_deletion_waits_for_its_pods() {
    with_shared_sandbox(async |system| {
        create_namespace_and_point(system, "pods", &["node3"]).await;
        let network = service("pods-a", 301, "");
        let used = access("pods", "a", "pods-a");
        system.apply_until_ready::<L2ServiceAttachment>(&[&*network, &*used].concat(), "pods/a").await;
        let pods = [pod("pods", "short", "a@net1"), pod("pods", "list", r#"[{"name": "a"}]"#)];
        system.apply(&pods.join("\n---\n")).await;

        system.request_deletion(&used).await;
        let waits = (Phase::Terminating, &["in use by pod"]);
        system.becomes::<L2ServiceAttachment>("pods/a", waits).await;
        system.delete(&pods[0]).await;
        let waits = (Phase::Terminating, &["in use by pod list"]);
        system.becomes::<L2ServiceAttachment>("pods/a", waits).await;
        system.nad("pods/a", |config| config["vlan"] == 301).await;
        system.assert_vlan_on(301, &Ports::from([("leaf2", "Ethernet1")])).await;

        system.request_deletion(&pods[1]).await;
        system.none_left::<L2ServiceAttachment>("pods").await;
        system.until(system.nads("pods"), watcher::Config::default(), "no NAD", BTreeMap::is_empty).await;
        system.until_without([301]).await;
        system.becomes::<L2Service>("pods-a", Phase::Ready).await;
        system.delete(&network).await;
    });
}

#[test]
fn namespace_deletion_removes_pods_attachments_and_vlans() {
    with_shared_sandbox(async |system| {
        create_namespace_and_point(system, "whole", &["node3"]).await;
        let network = service("whole-a", 302, "");
        let used = access("whole", "a", "whole-a");
        system.apply_until_ready::<L2ServiceAttachment>(&[&*network, &*used].concat(), "whole/a").await;
        system.apply(&pod("whole", "user", "whole/a")).await;
        system.request_deletion("{apiVersion: v1, kind: Namespace, metadata: {name: whole}}").await;
        system.namespace_gone("whole").await;
        system.until_without([302]).await;
        system.becomes::<L2Service>("whole-a", Phase::Ready).await;
        system.delete(&network).await;
    });
}
