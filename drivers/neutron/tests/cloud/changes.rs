//! What changes in Neutron, and by how many requests.

use std::collections::BTreeSet;

use eno_conformance::fabrics;
use eno_sbi::Driver;
use eno_schemas::{
    AddressPair, Applied, Command, Desired, Drift, FabricDesired, NetworkType, NeutronSettings,
};
use serde_json::{Value, json};

use crate::cloud::fixture::{Cloud, PHYSICAL, Role, TARGET, applied, post, reconcile, vid};
use crate::cloud::proxy::Seen;

/// The requests without logins, as `METHOD path`. Further pages are left out: an administrator of the cloud sees the
/// trunks of other tests too.
fn to_neutron(seen: &[Seen]) -> Vec<String> {
    let path = |path: &str| {
        path.strip_prefix("/network/v2.0/").map(|path| path.split('?').next().unwrap().to_owned())
    };
    let seen = seen.iter().filter(|(_, url)| !url.contains("marker="));
    seen.filter_map(|(method, url)| Some(format!("{method} {}", path(url)?))).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn further_vlan_takes_six_requests_and_an_audit_five() {
    let cloud = Cloud::new(Role::Admin).await;
    let driver = cloud.driver();
    let first: &[usize] = &[0, 1, 2];
    applied(&reconcile(&driver, &cloud.desired(&[("t1", first), ("t2", &[0]), (PHYSICAL, first)])).await);

    cloud.proxy.take_seen();
    let more: &[usize] = &[0, 1, 2, 3];
    let desired = cloud.desired(&[("t1", more), ("t2", &[0]), (PHYSICAL, more)]);
    let reconciled = reconcile(&driver, &desired).await;
    assert_eq!(applied(&reconciled)["t1"], format!("{}-{}", cloud.vlan(0), cloud.vlan(3)));
    let change = reconciled.change.unwrap();
    assert_eq!((change.added, change.removed), (2, 0), "a network and a sub-port");
    let requests = to_neutron(&cloud.proxy.take_seen());
    let trunk = cloud.trunk("t1").await;
    let writes =
        ["POST networks".to_owned(), "POST ports".to_owned(), format!("PUT trunks/{trunk}/add_subports")];
    assert_eq!(requests[..3], writes);
    let reads: BTreeSet<&str> = requests[3..].iter().map(String::as_str).collect();
    assert_eq!(reads, BTreeSet::from(["GET networks", "GET ports", "GET trunks"]));
    assert_eq!(requests.len(), 6);

    // The same command again is an audit.
    applied(&reconcile(&driver, &desired).await);
    let audit = to_neutron(&cloud.proxy.take_seen());
    assert_eq!(audit.len(), 5, "{audit:?}");
    assert!(audit.iter().all(|request| request.starts_with("GET ")), "{audit:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn networks_get_the_mtu_that_trunks_accept() {
    let cloud = Cloud::new(Role::Admin).await;
    let mut desired = cloud.desired(&[("t1", &[0, 1, 2]), (PHYSICAL, &[0, 1, 2])]);
    applied(&reconcile(&cloud.driver(), &desired).await);
    let mtus = async || -> BTreeSet<u64> {
        let networks = cloud.list("networks").await;
        let ours = networks.iter().filter(|network| network["name"].as_str().unwrap().starts_with("eno-"));
        ours.map(|network| network["mtu"].as_u64().unwrap()).collect()
    };
    assert_eq!(mtus().await, BTreeSet::from([1450]), "that of the management network");
    desired.device.neutron.as_mut().unwrap().mtu = Some(1400);
    applied(&reconcile(&cloud.driver(), &desired).await);
    assert_eq!(mtus().await, BTreeSet::from([1400]));
}

#[tokio::test(flavor = "multi_thread")]
async fn all_pages_of_lists_are_read() {
    let cloud = Cloud::new(Role::Admin).await;
    cloud.proxy.set_page(2);
    let items: &[usize] = &[0, 1, 2, 3, 4];
    let desired = cloud.desired(&[("t1", items), ("t2", items), (PHYSICAL, items)]);
    applied(&reconcile(&cloud.driver(), &desired).await);
    let writes = cloud.proxy.writes();
    applied(&reconcile(&cloud.driver(), &desired).await);
    assert_eq!(cloud.proxy.writes(), writes);
}

#[tokio::test(flavor = "multi_thread")]
async fn preview_shows_the_requests_and_makes_none() {
    let cloud = Cloud::new(Role::Admin).await;
    let mut desired = cloud.desired(&[("t1", &[0]), (PHYSICAL, &[0])]);
    // Neutron's own choice is known only after the first network.
    desired.device.neutron.as_mut().unwrap().mtu = Some(1450);
    let command = Command::new("neutron", TARGET, (1, 1), Desired::Fabric(desired.clone()));
    let driver = cloud.driver();
    let preview = driver.preview(command.into()).await.unwrap();
    assert_eq!((preview.failure, preview.rejected.len()), (None, 0));
    let edits: Vec<Value> = preview.edits.iter().map(|edit| serde_json::from_str(edit).unwrap()).collect();
    assert_eq!(edits[0]["method"], "POST");
    assert_eq!(edits[0]["path"], "/v2.0/networks");
    assert_eq!(edits[0]["body"]["networks"][0]["provider:segmentation_id"], cloud.vlan(0));
    assert_eq!(edits.last().unwrap()["body"]["sub_ports"][0]["segmentation_id"], cloud.vlan(0));
    assert_eq!(cloud.proxy.writes(), 0);
    applied(&reconcile(&driver, &desired).await);
    assert_eq!(cloud.proxy.writes(), u64::try_from(edits.len()).unwrap(), "what was shown is what was done");
}

#[tokio::test(flavor = "multi_thread")]
async fn drift_is_repaired_or_reported() {
    let cloud = Cloud::new(Role::Admin).await;
    let mut desired = cloud.desired(&[("t1", &[0, 1]), (PHYSICAL, &[0, 1])]);
    let driver = cloud.driver();
    applied(&reconcile(&driver, &desired).await);
    let trunk = cloud.trunk("t1").await;
    let take_off = async || {
        let ports = cloud.list("ports").await;
        let name = format!("eno-c{}-{}", cloud.first_vlan, cloud.vlan(0));
        let port = ports.iter().find(|port| port["name"] == name).unwrap()["id"].clone();
        let body = json!({ "sub_ports": [{ "port_id": port }] });
        cloud.client.put(&format!("/v2.0/trunks/{trunk}/remove_subports"), body).await.unwrap();
    };
    take_off().await;
    let reconciled = reconcile(&driver, &desired).await;
    applied(&reconciled);
    let drift = reconciled.notes.iter().find(|note| note.kind == "Drift").unwrap();
    assert!(
        drift.message.contains(&format!("had lost the sub-ports of VLANs {}", cloud.vlan(0))),
        "{drift:?}"
    );
    assert_eq!(cloud.placed("t1").await.len(), 2);

    desired.device.drift = Drift::Report;
    applied(&reconcile(&driver, &desired).await);
    take_off().await;
    let reconciled = reconcile(&driver, &desired).await;
    assert_eq!(applied(&reconciled)["t1"], cloud.vlan(1).to_string());
    assert!(reconciled.notes.iter().any(|note| note.kind == "Drift"));
    assert_eq!(cloud.placed("t1").await.len(), 1, "it is left");
}

#[tokio::test(flavor = "multi_thread")]
async fn member_uses_offered_networks_and_leaves_them() {
    let cloud = Cloud::new(Role::Member).await;
    let mut desired = cloud.desired(&[("t1", &[0, 1]), (PHYSICAL, &[0, 1])]);
    let driver = cloud.driver();
    let reconciled = reconcile(&driver, &desired).await;
    let reason = &reconciled.rejected[0].reason;
    assert!(reason.contains("create_network:provider:network_type"), "{reason}");
    assert!(reason.contains("in this project with the tag eno-vlan-<ID>"), "{reason}");
    assert_eq!(reconciled.rejected.len(), 2);

    let admin = cloud.admin();
    let admin_project = json!(cloud.admin_project());
    for item in [0, 1] {
        let network = json!({
            "name": format!("offered-{}", cloud.vlan(item)),
            "provider:network_type": "vlan",
            "provider:physical_network": PHYSICAL,
            "provider:segmentation_id": cloud.vlan(item),
            "mtu": 1450,
            // The first is the project's own.
            "project_id": if item == 0 { json!(cloud.account.project_id) } else { admin_project.clone() },
        });
        let network = post(&admin, "network", network).await;
        let tag = format!("eno-vlan-{}", cloud.vlan(item));
        admin
            .put(&format!("/v2.0/networks/{network}/tags"), json!({ "tags": [tag, "other"] }))
            .await
            .unwrap();
        let share = json!({ "rbac_policy": {
            "action": "access_as_shared", "object_type": "network", "object_id": network,
            "target_tenant": cloud.account.project_id,
        } });
        admin.post("/v2.0/rbac-policies", share).await.unwrap();
    }
    // The second network is shared by another project.
    let reconciled = reconcile(&driver, &desired).await;
    assert_eq!(cloud.placed("t1").await, BTreeSet::from([cloud.vlan(0)]));
    assert_eq!(reconciled.rejected.len(), 1, "{:?}", reconciled.rejected);
    desired.device.neutron.as_mut().unwrap().trusted_projects = vec![admin_project.as_str().unwrap().into()];
    // The second network has port security, which only its owner may turn off.
    let reconciled = reconcile(&driver, &desired).await;
    assert_eq!(cloud.placed("t1").await, BTreeSet::from([cloud.vlan(0)]));
    assert_eq!(reconciled.rejected.len(), 1, "{:?}", reconciled.rejected);
    let reason = &reconciled.rejected[0].reason;
    assert!(reason.contains("they turn off the network's port security"), "{reason}");
    let second = admin.get(&format!("/v2.0/networks?name=offered-{}", cloud.vlan(1))).await.unwrap();
    let second = second["networks"][0]["id"].as_str().unwrap().to_owned();
    let open = json!({ "network": { "port_security_enabled": false } });
    admin.put(&format!("/v2.0/networks/{second}"), open).await.unwrap();
    applied(&reconcile(&driver, &desired).await);
    assert_eq!(cloud.placed("t1").await.len(), 2);

    applied(&reconcile(&driver, &cloud.desired(&[("t1", &[]), (PHYSICAL, &[])])).await);
    let left = admin.get(&format!("/v2.0/networks?name=offered-{}", cloud.vlan(1))).await.unwrap();
    assert_eq!(left["networks"][0]["tags"].as_array().unwrap().len(), 2);
    assert!(cloud.list("ports").await.iter().all(|port| !port["name"].as_str().unwrap().starts_with("eno-")));
}

#[tokio::test(flavor = "multi_thread")]
async fn member_gets_tenant_networks() {
    let cloud = Cloud::new(Role::Member).await;
    let mut desired = cloud.desired(&[("t1", &[0, 1]), ("t2", &[1])]);
    desired.device.neutron =
        Some(NeutronSettings { network_type: NetworkType::Tenant, ..NeutronSettings::default() });
    let reconciled = reconcile(&cloud.driver(), &desired).await;
    let on = applied(&reconciled);
    assert_eq!(
        (on["t1"].clone(), on["t2"].clone()),
        (format!("{}-{}", cloud.vlan(0), cloud.vlan(1)), cloud.vlan(1).to_string())
    );
    assert_eq!(cloud.list("networks").await.len(), 3, "two and the management network");
}

#[tokio::test(flavor = "multi_thread")]
async fn ports_with_port_security_accept_listed_addresses() {
    let cloud = Cloud::new(Role::Admin).await;
    let mut desired = cloud.desired(&[("t1", &[0]), (PHYSICAL, &[0])]);
    let settings = desired.device.neutron.as_mut().unwrap();
    settings.port_security = true;
    settings.allowed_address_pairs = vec![AddressPair { ip: "10.0.0.0/24".into(), mac: None }];
    applied(&reconcile(&cloud.driver(), &desired).await);
    let ports = cloud.list("ports").await;
    let ours = ports.iter().find(|port| port["name"].as_str().unwrap().starts_with("eno-")).unwrap();
    let parent = ports.iter().find(|port| port["name"] == "t1-nic").unwrap();
    assert_eq!(
        (&ours["port_security_enabled"], &ours["mac_address"]),
        (&json!(true), &parent["mac_address"])
    );
    assert_eq!(ours["allowed_address_pairs"][0]["ip_address"], "10.0.0.0/24");
    let writes = cloud.proxy.writes();
    applied(&reconcile(&cloud.driver(), &desired).await);
    assert_eq!(cloud.proxy.writes(), writes);

    let settings = desired.device.neutron.as_mut().unwrap();
    (settings.port_security, settings.allowed_address_pairs) = (false, Vec::new());
    applied(&reconcile(&cloud.driver(), &desired).await);
    let ports = cloud.list("ports").await;
    let ours = ports.iter().find(|port| port["name"].as_str().unwrap().starts_with("eno-")).unwrap();
    assert_eq!((&ours["port_security_enabled"], &ours["allowed_address_pairs"]), (&json!(false), &json!([])));
}

#[tokio::test(flavor = "multi_thread")]
async fn clusters_and_devices_share_a_project() {
    let cloud = Cloud::new(Role::Admin).await;
    let one = cloud.desired(&[("t1", &[0]), (PHYSICAL, &[0])]);
    let (driver, other_driver) = (cloud.driver(), cloud.driver());
    applied(&reconcile(&driver, &one).await);

    // Another cluster.
    let mut other = cloud.desired(&[("t2", &[0, 1]), (PHYSICAL, &[0, 1])]);
    other.cluster = format!("d{}", cloud.first_vlan);
    let reconciled = reconcile(&other_driver, &other).await;
    assert_eq!(reconciled.rejected.len(), 1, "{:?}", reconciled.rejected);
    assert!(
        reconciled.rejected[0].reason.contains("belongs to another cluster"),
        "{:?}",
        reconciled.rejected
    );
    let Some(Applied::Fabric { ports, .. }) = &reconciled.applied else { panic!() };
    assert_eq!(ports["t2"], [vid(cloud.vlan(1))].into_iter().collect());

    // Another FabricDevice of the first cluster.
    let second = cloud.desired(&[("t2", &[2]), (PHYSICAL, &[2])]);
    applied(&fabrics::reconcile(&driver, "vim2", second).await);
    applied(&reconcile(&driver, &cloud.desired(&[("t1", &[]), (PHYSICAL, &[])])).await);
    let mut names: Vec<String> = cloud
        .list("networks")
        .await
        .iter()
        .map(|network| network["name"].as_str().unwrap().to_owned())
        .collect();
    names.retain(|name| name != "management");
    names.sort();
    let expected = [
        format!("eno-c{}-{}", cloud.first_vlan, cloud.vlan(2)),
        format!("eno-d{}-{}", cloud.first_vlan, cloud.vlan(1)),
    ];
    assert_eq!(names, expected);
}

/// A command that is applied in part is no drift of the one before it.
#[tokio::test(flavor = "multi_thread")]
async fn return_to_an_earlier_state_is_no_drift() {
    let cloud = Cloud::new(Role::Admin).await;
    let with_report = |mut desired: FabricDesired| {
        desired.device.drift = Drift::Report;
        desired
    };
    let first = with_report(cloud.desired(&[("t1", &[0]), (PHYSICAL, &[0])]));
    let second = with_report(cloud.desired(&[("t1", &[0, 1]), ("t9", &[1]), (PHYSICAL, &[0, 1])]));
    let driver = cloud.driver();
    applied(&reconcile(&driver, &first).await);
    assert_eq!(reconcile(&driver, &second).await.rejected.len(), 1);
    assert_eq!(cloud.placed("t1").await.len(), 2);
    let reconciled = reconcile(&driver, &first).await;
    assert!(reconciled.notes.iter().all(|note| note.kind != "Drift"), "{:?}", reconciled.notes);
    assert_eq!(cloud.placed("t1").await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn sub_port_on_an_unlisted_trunk_is_left_and_another_is_made() {
    let cloud = Cloud::new(Role::Admin).await;
    let driver = cloud.driver();
    applied(&reconcile(&driver, &cloud.desired(&[("t1", &[0]), ("t2", &[0]), (PHYSICAL, &[0])])).await);
    // The list lacks t2, which still has a sub-port of ours.
    let desired = cloud.desired(&[("t1", &[0]), (PHYSICAL, &[0])]);
    applied(&reconcile(&driver, &desired).await);
    assert_eq!(cloud.placed("t2").await.len(), 1);
    let trunk = cloud.trunk("t1").await;
    let port = cloud.list(&format!("trunks?id={trunk}")).await[0]["sub_ports"][0]["port_id"].clone();
    let body = json!({ "sub_ports": [{ "port_id": port }] });
    cloud.client.put(&format!("/v2.0/trunks/{trunk}/remove_subports"), body).await.unwrap();
    cloud.client.delete(&format!("/v2.0/ports/{}", port.as_str().unwrap())).await.unwrap();
    applied(&reconcile(&driver, &desired).await);
    assert_eq!(cloud.placed("t1").await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn parent_ports_stand_for_their_trunks() {
    let cloud = Cloud::new(Role::Admin).await;
    let trunk = cloud.trunk("t2").await;
    let desired = cloud.desired(&[("t1-nic", &[0]), (&trunk, &[0, 1]), (PHYSICAL, &[0, 1])]);
    let on = applied(&reconcile(&cloud.driver(), &desired).await);
    assert_eq!(on["t1-nic"], cloud.vlan(0).to_string());
    assert_eq!(cloud.placed("t2").await.len(), 2);
}
