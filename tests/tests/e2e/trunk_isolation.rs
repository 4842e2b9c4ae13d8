//! An open trunk excludes VLANs of services that are closed to the trunk's namespace.

use eno_nbi_crds::{L2ServiceAttachment, Phase};
use eno_tests::{attachment, service, with_shared_sandbox};
use kube::api::ListParams;
use serde_json::{Value, json};

use crate::e2e::create_connection_point;

#[test]
fn open_trunk_and_restricted_service_exclude_each_other() {
    with_shared_sandbox(async |system| {
        system.namespace("trk-a").await;
        system.namespace("trk-b").await;
        create_connection_point(system, "trk", &["node3"]).await;
        let first = [
            service("trk-open", 481, ""),
            service("trk-closed", 482, "Namespaces: {matchLabels: {kubernetes.io/metadata.name: trk-b}}"),
            attachment("trk-a", "t", "trk", "trk-open", "VlanType: trunk"),
        ]
        .concat();
        let second = attachment("trk-b", "b", "trk", "trk-closed", "VlanType: access");
        let refused = || (Phase::Error, &["namespace trk-a", "TrunkNamespaces"]);
        system.apply(&first).await;
        system.becomes::<L2ServiceAttachment>("trk-a/t", Phase::Ready).await;
        system.apply(&second).await;
        system.becomes::<L2ServiceAttachment>("trk-b/b", refused()).await;

        let consent = |selector: Value| json!({ "spec": { "TrunkNamespaces": selector } });
        let own = json!({ "matchLabels": { "kubernetes.io/metadata.name": "trk-a" } });
        system.patch("ConnectionPoint", "trk", consent(own)).await;
        system.becomes::<L2ServiceAttachment>("trk-b/b", Phase::Ready).await;
        system.nad("trk-b/b", |config| !config.is_null()).await;

        // Both are realised, so the older one stays. Two of the same second have the order of their uids.
        let of_operator = ListParams::default().labels("test=trk");
        let mut both = system.all::<L2ServiceAttachment>().list(&of_operator).await.expect("a list").items;
        both.sort_by_key(|one| (one.metadata.creation_timestamp.clone(), one.metadata.uid.clone()));
        let names = both.iter().map(|one| {
            let part = |text: &Option<String>| text.clone().unwrap_or_default();
            format!("{}/{}", part(&one.metadata.namespace), part(&one.metadata.name))
        });
        let [older, younger] = &*names.collect::<Vec<_>>() else { panic!("two attachments") };
        system.patch("ConnectionPoint", "trk", consent(Value::Null)).await;
        system.becomes::<L2ServiceAttachment>(younger, refused()).await;
        let nads = system.nads(younger.split('/').next().unwrap_or_default());
        system
            .until(
                nads,
                kube::runtime::watcher::Config::default(),
                "no definition",
                std::collections::BTreeMap::is_empty,
            )
            .await;
        system.becomes::<L2ServiceAttachment>(older, Phase::Ready).await;
        system.delete_with_vlans(&[first, second].concat(), [481, 482]).await;
    });
}
