//! Starts and stops real Keystone and Neutron servers. The first run downloads them, which takes a minute.

use std::fs;
use std::path::Path;

use eno_control_plane::DirectoryError;
use eno_control_plane::openstack::{
    OpenStack, OpenStackClient, OpenStackError, OpenStackOptions, PHYSICAL_NETWORKS, Release,
};
use eno_control_plane::parts::Parts;
use serde_json::{Value, json};

use crate::control_plane::{assert_children_end_with, children_of, ready_owner};

fn options(dir: &Path) -> OpenStackOptions {
    OpenStackOptions::new(dir, Parts::from_env().unwrap())
}

fn vlan_network(name: &str, vlan: u16) -> Value {
    json!({ "network": {
        "name": name,
        "provider:network_type": "vlan",
        "provider:physical_network": PHYSICAL_NETWORKS[0].0,
        "provider:segmentation_id": vlan,
    } })
}

async fn port(client: &OpenStackClient, network: &Value) -> Value {
    let port = json!({ "port": { "network_id": network["network"]["id"], "port_security_enabled": false } });
    client.post("/v2.0/ports", port).await.unwrap()["port"]["id"].clone()
}

/// The status and the type of the error that Neutron answered.
fn refusal<T: std::fmt::Debug>(answer: Result<T, OpenStackError>) -> (u16, String) {
    match answer {
        Err(OpenStackError::Refused { status, body, .. }) => {
            let body: Value = serde_json::from_str(&body).unwrap_or_default();
            (status.as_u16(), body["NeutronError"]["type"].as_str().unwrap_or_default().to_owned())
        }
        other => panic!("not refused: {other:?}"),
    }
}

/// Creates networks, ports and a trunk, and is refused what Neutron refuses.
async fn use_networks(openstack: &OpenStack) {
    let admin = openstack.client();
    let made = admin.post("/v2.0/networks", vlan_network("one", 100)).await.unwrap();
    let taken = admin.post("/v2.0/networks", vlan_network("two", 100)).await;
    assert_eq!(refusal(taken), (409, "VlanIdInUse".to_owned()));
    let trunk = json!({ "trunk": { "port_id": port(admin, &made).await } });
    let trunk = admin.post("/v2.0/trunks", trunk).await.unwrap()["trunk"]["id"].clone();
    let sub_port = json!({ "sub_ports": [
        { "port_id": port(admin, &made).await, "segmentation_type": "vlan", "segmentation_id": 7 },
    ] });
    let path = format!("/v2.0/trunks/{}/add_subports", trunk.as_str().unwrap());
    admin.put(&path, sub_port).await.unwrap();

    let tenant = openstack.create_project("tenant").await.unwrap();
    let member = openstack.client_for(&tenant).unwrap();
    let provider = member.post("/v2.0/networks", vlan_network("three", 101)).await;
    assert_eq!(refusal(provider), (403, "PolicyNotAuthorized".to_owned()));
    let found = member.get("/v2.0/networks").await.unwrap();
    assert_eq!(found["networks"], json!([]));
    openstack.set_quota(&tenant.project_id, &[("network", 1)]).await.unwrap();
    let plain = || json!({ "network": { "name": "plain" } });
    let network = member.post("/v2.0/networks", plain()).await.unwrap();
    assert_eq!(refusal(member.post("/v2.0/networks", plain()).await), (409, "OverQuota".to_owned()));
    let id = network["network"]["id"].as_str().unwrap();
    member.delete(&format!("/v2.0/networks/{id}")).await.unwrap();
}

/// Logs in with an application credential and returns the interfaces of a service's endpoints with their URLs.
async fn endpoints(openstack: &OpenStack, kind: &str) -> Vec<(String, String)> {
    let credential = openstack.create_application_credential(openstack.admin(), kind).await.unwrap();
    let body = json!({ "auth": { "identity": {
        "methods": ["application_credential"],
        "application_credential": { "id": credential.id, "secret": credential.secret },
    } } });
    // The path needs no token, and the client adds one, which Keystone ignores.
    let token = openstack.client().post("/v3/auth/tokens", body).await.unwrap();
    let services = token["token"]["catalog"].as_array().unwrap();
    let service = services.iter().find(|service| service["type"] == kind).unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let mut found: Vec<_> = service["endpoints"]
        .as_array()
        .unwrap()
        .iter()
        .map(|endpoint| (text(&endpoint["interface"]), text(&endpoint["url"])))
        .collect();
    found.sort();
    found
}

#[tokio::test]
async fn instance_has_catalogue_policies_and_quotas_and_is_resumed() {
    let dir = tempfile::tempdir().unwrap();
    let first =
        OpenStack::start(OpenStackOptions { page_limit: Some(1), ..options(dir.path()) }).await.unwrap();
    for (kind, url) in [("identity", first.auth_url()), ("network", first.network_url())] {
        let both = ["internal", "public"].map(|interface| (interface.to_owned(), url.to_owned()));
        assert_eq!(endpoints(&first, kind).await, both);
    }
    use_networks(&first).await;
    let refused = OpenStack::start(options(dir.path())).await.unwrap_err();
    assert!(matches!(refused, OpenStackError::Directory(DirectoryError::InUse { .. })), "{refused}");
    let (auth_url, network_url) = (first.auth_url().to_owned(), first.network_url().to_owned());

    // A killed server that starts again has its objects.
    first.supervisor().kill_child("neutron").await.unwrap();
    first.supervisor().respawn("neutron").await.unwrap();
    first.until_ready().await.unwrap();
    let page = first.client().get("/v2.0/ports?fields=id").await.unwrap();
    assert_eq!(page["ports"].as_array().unwrap().len(), 1, "the page limit is 1");
    first.stop().await;

    let second = OpenStack::start(options(dir.path())).await.unwrap();
    assert_eq!((second.auth_url(), second.network_url()), (auth_url.as_str(), network_url.as_str()));
    let networks = second.client().get("/v2.0/networks?fields=name").await.unwrap();
    assert_eq!(networks["networks"], json!([{ "name": "one" }]));
    let tenant = second.create_project("tenant").await.unwrap();
    assert_eq!(second.create_project("tenant").await.unwrap(), tenant, "an existing one is used");
    second.stop().await;
}

#[tokio::test]
async fn two_instances_run_concurrently_with_separate_objects() {
    let parent = tempfile::tempdir().unwrap();
    let (one, two) = (parent.path().join("one"), parent.path().join("two"));
    let (one, two) = tokio::join!(OpenStack::start(options(&one)), OpenStack::start(options(&two)));
    let (one, two) = (one.unwrap(), two.unwrap());
    one.client().post("/v2.0/networks", vlan_network("only-here", 100)).await.unwrap();
    assert_eq!(two.client().get("/v2.0/networks").await.unwrap()["networks"], json!([]));
    tokio::join!(one.stop(), two.stop());
}

#[tokio::test]
async fn no_server_outlives_an_owner_that_is_killed() {
    let dir = tempfile::tempdir().unwrap();
    let owner = ready_owner(env!("CARGO_BIN_EXE_eno-openstack"), &[], &dir.path().join("openstack")).await;
    let children = children_of(owner.id().unwrap());
    let named = |pid: &u32| fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap().contains("serve.py");
    assert!(children.iter().all(named), "{children:?}");
    assert_children_end_with(owner, 2).await;
}

mod lanes {
    use super::*;

    #[tokio::test]
    async fn release_of_debian_runs() {
        let dir = tempfile::tempdir().unwrap();
        let options = OpenStackOptions { release: Release::Debian, ..options(dir.path()) };
        let openstack = OpenStack::start(options).await.unwrap();
        use_networks(&openstack).await;
        openstack.stop().await;
    }
}
