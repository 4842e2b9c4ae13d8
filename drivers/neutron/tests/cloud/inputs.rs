//! Wrong input: each has its message, and the rest goes on.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use axum::http::StatusCode;
use eno_conformance::fabrics::failed;
use eno_sbi::Driver as _;
use eno_schemas::{Item, Outcome};
use futures::{FutureExt as _, StreamExt as _};
use rcgen::generate_simple_self_signed;
use serde_json::{Value, json};

use crate::cloud::fixture::{Cloud, PHYSICAL, Role, TARGET, applied, port_of, reconcile, vid};
use crate::cloud::proxy::{Fault, Proxy};

/// The message of a failed login with these changes of the Secret.
async fn login_failure(cloud: &Cloud, change: impl FnOnce(&mut BTreeMap<&'static str, String>)) -> String {
    let mut values = cloud.login();
    change(&mut values);
    cloud.write_secret(&values);
    let reconciled = reconcile(&cloud.driver(), &cloud.desired(&[("t1", &[0]), (PHYSICAL, &[0])])).await;
    let (reason, retryable, unreachable) = failed(&reconciled);
    assert!(retryable && !unreachable, "{reconciled:?}");
    reason.to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_logins_name_the_secret_and_no_password() {
    let cloud = Cloud::new(Role::Admin).await;
    let reason = login_failure(&cloud, |values| drop(values.insert("password", "wr0ng".into()))).await;
    assert!(reason.contains("refuses the credential \"vim\""), "{reason}");
    assert!(reason.contains("Check user, password, project and domains"), "{reason}");
    assert!(!reason.contains("wr0ng"), "{reason}");
    let reason = login_failure(&cloud, |values| drop(values.remove("password"))).await;
    assert_eq!(reason, "credential \"vim\" lacks application_credential_secret or password");
    let reason = login_failure(&cloud, |values| drop(values.insert("region_name", "Mars".into()))).await;
    assert!(reason.contains("no public endpoint of the service network in region Mars"), "{reason}");
    let reason = login_failure(&cloud, |values| drop(values.insert("ca.crt", "no PEM".into()))).await;
    assert!(reason.contains("ca.crt of credential \"vim\" has no PEM certificates"), "{reason}");
    // Once it is right, the next try succeeds.
    cloud.write_secret(&cloud.login());
    applied(&reconcile(&cloud.driver(), &cloud.desired(&[("t1", &[0]), (PHYSICAL, &[0])])).await);
}

/// The Secret gets an application credential with these further attributes; returns its path in Keystone.
async fn use_application_credential(cloud: &Cloud, attributes: Value) -> String {
    let mut body = json!({ "name": "driver" });
    body.as_object_mut().unwrap().extend(attributes.as_object().unwrap().clone());
    let path = format!("/v3/users/{}/application_credentials", cloud.account.user_id);
    let made = cloud.client.post(&path, json!({ "application_credential": body })).await.unwrap();
    let key = |name: &str| made["application_credential"][name].as_str().unwrap().to_owned();
    cloud.write_secret(&BTreeMap::from([
        ("application_credential_id", key("id")),
        ("application_credential_secret", key("secret")),
    ]));
    format!("{path}/{}", key("id"))
}

#[tokio::test(flavor = "multi_thread")]
async fn application_credential_works_until_it_is_deleted() {
    let cloud = Cloud::new(Role::Admin).await;
    let path = use_application_credential(&cloud, json!({})).await;
    let desired = cloud.desired(&[("t1", &[0]), (PHYSICAL, &[0])]);
    applied(&reconcile(&cloud.driver(), &desired).await);
    cloud.client.delete(&path).await.unwrap();
    // Neutron keeps what it knows of a token for some minutes, so this is the next process.
    let reconciled = reconcile(&cloud.driver(), &desired).await;
    let (reason, retryable, unreachable) = failed(&reconciled);
    assert!(reason.contains("it may be wrong, expired or deleted"), "{reason}");
    assert!(retryable && !unreachable);
    assert_eq!(cloud.placed("t1").await.len(), 1, "what is there stays");
}

#[tokio::test(flavor = "multi_thread")]
async fn expired_application_credential_is_named() {
    let cloud = Cloud::new(Role::Admin).await;
    let at = jiff::Timestamp::now() + Duration::from_secs(5);
    let at = at.strftime("%Y-%m-%dT%H:%M:%S.000000").to_string();
    use_application_credential(&cloud, json!({ "expires_at": at })).await;
    let desired = cloud.desired(&[("t1", &[0]), (PHYSICAL, &[0])]);
    let expired = async {
        loop {
            let reconciled = reconcile(&cloud.driver(), &desired).await;
            if matches!(reconciled.outcome, Outcome::Failed(_)) {
                break failed(&reconciled).0.to_owned();
            }
        }
    };
    let reason = eno_conformance::soon("the expiry", Box::pin(expired)).await;
    assert!(reason.contains("it may be wrong, expired or deleted"), "{reason}");
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_trunks_and_ports_are_rejected_and_the_rest_goes_on() {
    let cloud = Cloud::new(Role::Admin).await;
    let network = cloud.list("networks?name=management").await[0]["id"].clone();
    let lone = cloud.post("port", json!({ "name": "lone", "network_id": network })).await;
    for _ in 0..2 {
        cloud.post("port", json!({ "name": "twin", "network_id": network })).await;
    }
    let desired =
        cloud.desired(&[("t1", &[0]), ("t9", &[0]), ("lone", &[0]), ("twin", &[0]), (PHYSICAL, &[0])]);
    let reconciled = reconcile(&cloud.driver(), &desired).await;
    let reasons: BTreeMap<String, &str> = reconciled
        .rejected
        .iter()
        .map(|rejection| (rejection.item.port.clone().unwrap(), rejection.reason.as_str()))
        .collect();
    assert!(reasons["t9"].contains("neither a trunk nor a port t9"), "{reasons:?}");
    assert!(
        reasons["lone"].contains(&format!("openstack network trunk create --parent-port {lone}")),
        "{reasons:?}"
    );
    assert!(reasons["twin"].contains("several ports have the name twin"), "{reasons:?}");
    assert_eq!(reasons.len(), 3);
    assert_eq!(cloud.placed("t1").await, BTreeSet::from([cloud.vlan(0)]));
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_physical_network_is_rejected_by_two_requests() {
    let cloud = Cloud::new(Role::Admin).await;
    let mut desired = cloud.desired(&[("t1", &[0, 1, 2, 3]), (PHYSICAL, &[0, 1, 2, 3])]);
    desired.device.neutron.as_mut().unwrap().physical_network = Some("nowhere".into());
    port_of(&mut desired, PHYSICAL).name = "nowhere".into();
    desired.ports.sort_by(|one, other| one.name.cmp(&other.name));
    let reconciled = reconcile(&cloud.driver(), &desired).await;
    assert_eq!(reconciled.rejected.len(), 4, "{:?}", reconciled.rejected);
    let reason = &reconciled.rejected[0].reason;
    assert!(
        reason.contains("'nowhere' unknown") && reason.contains("Set Neutron.PhysicalNetwork"),
        "{reason}"
    );
    assert_eq!(cloud.proxy.writes(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn used_up_quota_is_rejected_in_words_of_neutron() {
    let cloud = Cloud::new(Role::Admin).await;
    // The management network, and two of ours.
    cloud.set_networks(3).await;
    let items: Vec<usize> = (0..12).collect();
    let desired = cloud.desired(&[("t1", &items), (PHYSICAL, &items)]);
    let reconciled = reconcile(&cloud.driver(), &desired).await;
    assert_eq!(cloud.placed("t1").await.len(), 2, "the rest goes on");
    assert_eq!(reconciled.rejected.len(), 10);
    for rejection in &reconciled.rejected {
        assert!(rejection.reason.contains("Quota exceeded for resources: ['network']"), "{rejection:?}");
        assert!(rejection.reason.contains("raises the project's quota"), "{rejection:?}");
    }
    cloud.set_networks(-1).await;
    applied(&reconcile(&cloud.driver(), &desired).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn vlan_in_use_is_rejected_until_adopted() {
    let cloud = Cloud::new(Role::Admin).await;
    let network = json!({
        "name": "theirs",
        "port_security_enabled": false,
        "provider:network_type": "vlan",
        "provider:physical_network": PHYSICAL,
        "provider:segmentation_id": cloud.vlan(0),
    });
    let id = cloud.post("network", network).await;
    let mut desired = cloud.desired(&[("t1", &[0, 1]), (PHYSICAL, &[0, 1])]);
    let driver = cloud.driver();
    let reconciled = reconcile(&driver, &desired).await;
    assert_eq!(reconciled.rejected.len(), 1);
    assert_eq!(reconciled.rejected[0].item, Item::vlan(vid(cloud.vlan(0))));
    let reason = &reconciled.rejected[0].reason;
    assert!(reason.contains(&format!("that of network theirs ({id}), which is not ours")), "{reason}");
    desired.device.adopt = [vid(cloud.vlan(0))].into_iter().collect();
    applied(&reconcile(&driver, &desired).await);
    let found = cloud.admin().get(&format!("/v2.0/networks/{id}")).await.unwrap();
    assert_eq!(found["network"]["name"], format!("eno-c{}-{}", cloud.first_vlan, cloud.vlan(0)));
}

#[tokio::test(flavor = "multi_thread")]
async fn vlan_outside_of_the_range_is_made_where_neutron_allows_it() {
    let cloud = Cloud::new(Role::Admin).await;
    let mut desired = cloud.desired(&[("t1", &[]), (PHYSICAL, &[])]);
    let outside = vid(3000 + cloud.first_vlan);
    for port in &mut desired.ports {
        port.vlans.insert(outside);
    }
    let vlan = eno_schemas::FabricVlan::new(outside, vec!["L2Service/s".into()]);
    desired.vlans = [vlan].into_iter().collect();
    applied(&reconcile(&cloud.driver(), &desired).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn trunk_that_is_deleted_is_rejected_and_leaves_no_ports() {
    let cloud = Cloud::new(Role::Admin).await;
    let driver = cloud.driver();
    applied(&reconcile(&driver, &cloud.desired(&[("t1", &[0]), ("t2", &[0]), (PHYSICAL, &[0])])).await);
    let trunk = cloud.trunk("t2").await;
    cloud.client.delete(&format!("/v2.0/trunks/{trunk}")).await.unwrap();
    // A change on the view from before the deletion.
    let desired = cloud.desired(&[("t1", &[0, 1]), ("t2", &[0, 1]), (PHYSICAL, &[0, 1])]);
    let reconciled = reconcile(&driver, &desired).await;
    assert_eq!(reconciled.rejected.len(), 1, "{:?}", reconciled.rejected);
    assert_eq!(reconciled.rejected[0].item, Item::port("t2"));
    assert_eq!(cloud.placed("t1").await.len(), 2);
    let ports = cloud.list("ports").await;
    let ours = ports.iter().filter(|port| port["name"].as_str().unwrap().starts_with("eno-"));
    assert_eq!(ours.count(), 2, "those of t2 are deleted");
}

#[tokio::test(flavor = "multi_thread")]
async fn sub_port_of_others_is_rejected_on_its_port() {
    let cloud = Cloud::new(Role::Admin).await;
    let network = cloud.list("networks?name=management").await[0]["id"].clone();
    let port = cloud.post("port", json!({ "name": "by-hand", "network_id": network })).await;
    let trunk = cloud.trunk("t1").await;
    let add = async |port: &str, vlan: u16| {
        let sub = json!({ "port_id": port, "segmentation_type": "vlan", "segmentation_id": vlan });
        let body = json!({ "sub_ports": [sub] });
        cloud.client.put(&format!("/v2.0/trunks/{trunk}/add_subports"), body).await.unwrap();
    };
    let driver = cloud.driver();
    applied(&reconcile(&driver, &cloud.desired(&[("t1", &[1]), (PHYSICAL, &[1])])).await);
    // It is added after the driver's last read.
    add(&port, cloud.vlan(0)).await;
    let desired = cloud.desired(&[("t1", &[0, 1]), ("t2", &[0]), (PHYSICAL, &[0, 1])]);
    let reconciled = reconcile(&driver, &desired).await;
    assert_eq!(reconciled.rejected.len(), 1, "{:?}", reconciled.rejected);
    assert_eq!(reconciled.rejected[0].item, Item::port_vlan("t1", vid(cloud.vlan(0))));
    let reason = &reconciled.rejected[0].reason;
    assert!(reason.contains(&format!("is port by-hand ({port}), which is not ours")), "{reason}");
    assert_eq!(cloud.placed("t2").await.len(), 1, "the rest goes on");
}

#[tokio::test(flavor = "multi_thread")]
async fn sub_port_in_the_place_of_ours_is_named() {
    let cloud = Cloud::new(Role::Admin).await;
    let driver = cloud.driver();
    applied(&reconcile(&driver, &cloud.desired(&[("t1", &[1]), (PHYSICAL, &[1])])).await);
    let network = cloud.list("networks?name=management").await[0]["id"].clone();
    let port = cloud.post("port", json!({ "name": "by-hand", "network_id": network })).await;
    let ours = &cloud.list("trunks?name=t1").await[0]["sub_ports"][0]["port_id"];
    let trunk = cloud.trunk("t1").await;
    let change = async |action: &str, sub_port: Value| {
        let path = format!("/v2.0/trunks/{trunk}/{action}_subports");
        cloud.client.put(&path, json!({ "sub_ports": [sub_port] })).await.unwrap();
    };
    change("remove", json!({ "port_id": ours })).await;
    let theirs = json!({ "port_id": port, "segmentation_type": "vlan", "segmentation_id": cloud.vlan(1) });
    change("add", theirs).await;
    // A change on the view from before shows the new sub-port.
    let reconciled = reconcile(&driver, &cloud.desired(&[("t1", &[0, 1]), (PHYSICAL, &[0, 1])])).await;
    assert_eq!(reconciled.rejected.len(), 1, "{:?}", reconciled.rejected);
    assert_eq!(reconciled.rejected[0].item, Item::port_vlan("t1", vid(cloud.vlan(1))));
    let reason = &reconciled.rejected[0].reason;
    assert!(reason.contains(&format!("is port by-hand ({port}), which is not ours")), "{reason}");
    assert_eq!(cloud.placed("t1").await, BTreeSet::from([cloud.vlan(0)]), "the rest goes on");
}

#[tokio::test(flavor = "multi_thread")]
async fn trunk_that_is_made_again_is_seen_before_the_audit() {
    let cloud = Cloud::new(Role::Admin).await;
    let driver = cloud.driver_that_looks(Duration::from_millis(100));
    let desired = cloud.desired(&[("t1", &[0]), ("t2", &[0]), (PHYSICAL, &[0])]);
    applied(&reconcile(&driver, &desired).await);
    cloud.proxy.take_seen();
    let mut changed = std::pin::pin!(driver.changed());
    let looks = async {
        while cloud.proxy.take_seen().is_empty() {
            assert!(changed.next().now_or_never().is_none(), "nothing changed");
            tokio::task::yield_now().await;
        }
    };
    eno_conformance::soon("a look", Box::pin(looks)).await;
    cloud.make_trunk_again("t2").await;
    let seen = eno_conformance::soon("the change", Box::pin(changed.next())).await;
    assert_eq!(seen.as_deref(), Some(TARGET));
    applied(&reconcile(&driver, &desired).await);
    assert_eq!(cloud.placed("t2").await, BTreeSet::from([cloud.vlan(0)]));
}

#[tokio::test(flavor = "multi_thread")]
async fn disabled_trunk_is_rejected_with_the_remedy() {
    let cloud = Cloud::new(Role::Admin).await;
    let trunk = cloud.trunk("t1").await;
    let disable = json!({ "trunk": { "admin_state_up": false } });
    cloud.client.put(&format!("/v2.0/trunks/{trunk}"), disable).await.unwrap();
    let desired = cloud.desired(&[("t1", &[0, 1]), ("t2", &[0]), (PHYSICAL, &[0, 1])]);
    let reconciled = reconcile(&cloud.driver(), &desired).await;
    assert_eq!(reconciled.rejected.len(), 2, "{:?}", reconciled.rejected);
    assert!(reconciled.rejected.iter().all(|rejection| rejection.reason.contains("trunk set --enable")));
    let writes = cloud.proxy.writes();
    reconcile(&cloud.driver(), &desired).await;
    assert_eq!(cloud.proxy.writes(), writes, "an audit changes nothing");
    assert_eq!(cloud.placed("t2").await.len(), 1, "the rest goes on");
}

#[tokio::test(flavor = "multi_thread")]
async fn network_with_foreign_ports_stays_with_the_reason() {
    let cloud = Cloud::new(Role::Admin).await;
    let driver = cloud.driver();
    applied(&reconcile(&driver, &cloud.desired(&[("t1", &[0]), (PHYSICAL, &[0])])).await);
    let name = format!("eno-c{}-{}", cloud.first_vlan, cloud.vlan(0));
    let network = cloud.list(&format!("networks?name={name}")).await[0]["id"].clone();
    let port = cloud.post("port", json!({ "name": "guest", "network_id": network })).await;
    let none = cloud.desired(&[("t1", &[]), (PHYSICAL, &[])]);
    let reconciled = reconcile(&driver, &none).await;
    assert_eq!(reconciled.rejected.len(), 1, "{:?}", reconciled.rejected);
    let reason = &reconciled.rejected[0].reason;
    assert!(reason.contains("NetworkInUse") && reason.contains("taken their ports off"), "{reason}");
    cloud.client.delete(&format!("/v2.0/ports/{port}")).await.unwrap();
    applied(&reconcile(&driver, &none).await);
    assert!(cloud.list(&format!("networks?name={name}")).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_of_unknown_authorities_are_refused() {
    let cloud = Cloud::new(Role::Admin).await;
    let certificate = generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let (keystone, neutron) = cloud.addresses();
    let proxy = Proxy::start_with_tls(keystone, neutron, &certificate).await;
    let mut desired = cloud.desired(&[("t1", &[0]), (PHYSICAL, &[0])]);
    desired.device.address = proxy.keystone();
    cloud.list_device(&proxy.keystone());
    let reconciled = reconcile(&cloud.driver(), &desired).await;
    let (reason, retryable, unreachable) = failed(&reconciled);
    assert!(reason.contains("showed a certificate that is not accepted"), "{reason}");
    assert!(reason.contains("ca.crt of the Secret vim"), "{reason}");
    assert!(retryable && !unreachable);
    assert_eq!(proxy.take_seen(), [], "no credential was sent");

    let mut values = cloud.login();
    values.insert("ca.crt", certificate.cert.pem());
    cloud.write_secret(&values);
    cloud.list_device(&proxy.keystone());
    applied(&reconcile(&cloud.driver(), &desired).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_that_are_not_the_api_are_named() {
    let cloud = Cloud::new(Role::Admin).await;
    let desired = cloud.desired(&[("t1", &[0]), (PHYSICAL, &[0])]);
    let html = || Fault::Answer(StatusCode::OK, &[("content-type", "text/html")], "<html>sign in</html>");
    for part in ["/auth/tokens", "/networks"] {
        cloud.proxy.set_faults(move |_, path| path.contains(part).then(html));
        let reconciled = reconcile(&cloud.driver(), &desired).await;
        let (reason, retryable, _) = failed(&reconciled);
        assert!(reason.contains("answered 200 OK with text/html: a proxy or another server"), "{reason}");
        assert!(retryable);
    }
    let json = &[("content-type", "application/json")];
    let unknown =
        r#"{"NeutronError": {"type": "HTTPNotFound", "message": "The resource could not be found."}}"#;
    cloud.proxy.set_faults(move |_, path| {
        path.contains("/trunks").then_some(Fault::Answer(StatusCode::NOT_FOUND, json, unknown))
    });
    let reconciled = reconcile(&cloud.driver(), &desired).await;
    let (reason, ..) = failed(&reconciled);
    assert!(
        reason.contains("has no trunks: an admin of the cloud enables the service plugin trunk"),
        "{reason}"
    );
    // A load balancer without servers.
    let gone = || {
        Fault::Answer(
            StatusCode::BAD_GATEWAY,
            &[("retry-after", "60"), ("content-type", "text/html")],
            "<html>",
        )
    };
    cloud.proxy.set_faults(move |_, path| path.contains("/networks").then(gone));
    let reconciled = reconcile(&cloud.driver(), &desired).await;
    let (reason, retryable, unreachable) = failed(&reconciled);
    assert!(reason.contains("502 Bad Gateway"), "{reason}");
    assert!(retryable && unreachable);
    cloud.proxy.clear_faults();
    applied(&reconcile(&cloud.driver(), &desired).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn catalogue_without_neutron_is_named() {
    let cloud = Cloud::new(Role::Admin).await;
    let token: Value = json!({ "token": {
        "issued_at": "2026-01-01T00:00:00.000000Z", "expires_at": "2100-01-01T00:00:00.000000Z", "project": { "id": "i", "name": "workers" },
        "catalog": [{ "type": "identity", "endpoints": [] }],
    } });
    let token: &'static str = token.to_string().leak();
    let headers: &[(&str, &str)] = &[("content-type", "application/json"), ("x-subject-token", "t")];
    cloud.proxy.set_faults(move |_, path| {
        path.ends_with("/auth/tokens").then_some(Fault::Answer(StatusCode::CREATED, headers, token))
    });
    let reconciled = reconcile(&cloud.driver(), &cloud.desired(&[("t1", &[0])])).await;
    let (reason, ..) = failed(&reconciled);
    assert!(reason.contains("catalogue of project workers has no service of type network"), "{reason}");
}
