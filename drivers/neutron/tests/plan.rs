//! Situations in which the plan decides something.

use eno_driver_neutron::observe::observe;
use eno_driver_neutron::plan::{Refusals, plan};
use eno_driver_neutron::request::Request;
use eno_driver_neutron::view::View;
use eno_schemas::{AddressPair, Applied, FabricDesired, FabricPort, Item};
use serde_json::json;

use crate::world::{
    PHYSICAL, converge, desired, foreign, mark, network, placed, port, sub_port, tenant, trunks, vid,
};

fn paths(requests: &[Request]) -> Vec<String> {
    let http = requests.iter().map(Request::http);
    http.map(|http| format!("{} {}", http.method, http.path)).collect()
}

/// The item and reason of the only rejection.
#[track_caller]
fn rejection(view: &View, desired: &FabricDesired) -> (Item, String) {
    let planned = plan(view, desired, &mark(), &Refusals::default());
    assert_eq!(planned.rejected.len(), 1, "{:?}", planned.rejected);
    assert!(planned.requests.is_empty(), "{:?}", planned.requests);
    let rejection = planned.rejected.into_iter().next().unwrap();
    (rejection.item, rejection.reason.to_string())
}

#[test]
fn each_kind_of_resource_is_made_by_one_request() {
    let mut view = trunks(&["t1", "t2"]);
    let desired = desired(&[("t1", "100-102"), ("t2", "100"), (PHYSICAL, "100-103")]);
    let (_, requests) = converge(&mut view, &desired);
    assert_eq!(
        paths(&requests),
        ["POST networks", "POST ports", "PUT trunks/id-t1/add_subports", "PUT trunks/id-t2/add_subports"]
    );
    assert_eq!((view.networks.len(), view.ports.len()), (4, 4));
    let network = requests[0].http().body.unwrap()["networks"][0].clone();
    assert_eq!(
        network,
        json!({
            "name": "eno-c1-100",
            "description": "ENO cluster c1, FabricDevice vim1",
            "provider:network_type": "vlan",
            "provider:physical_network": PHYSICAL,
            "provider:segmentation_id": 100,
            "port_security_enabled": false,
        })
    );
    let (_, requests) = converge(&mut view, &crate::world::desired(&[("t1", "101"), ("t2", "")]));
    assert_eq!(
        paths(&requests)[..2],
        ["PUT trunks/id-t1/remove_subports".to_owned(), "PUT trunks/id-t2/remove_subports".to_owned()]
    );
    assert_eq!((view.networks.len(), view.ports.len()), (1, 1));
}

#[test]
fn tenant_networks_have_no_provider_attributes() {
    let mut view = trunks(&["t1"]);
    let (_, requests) = converge(&mut view, &tenant(&[("t1", "100")]));
    let body = requests[0].http().body.unwrap().to_string();
    assert!(!body.contains("provider:"), "{body}");
}

#[test]
fn foreign_network_is_refused_until_adopted_or_offered() {
    let mut view = trunks(&["t1"]);
    network(&mut view, "n", "blue", "", Some(100));
    let mut wanted = desired(&[("t1", "100")]);
    let (item, reason) = rejection(&view, &wanted);
    assert_eq!(item, Item::vlan(vid(100)));
    assert!(reason.contains("that of network blue (n), which is not ours"), "{reason}");
    assert!(reason.contains("give the network the tag eno-vlan-100"), "{reason}");

    let mut offered = view.clone();
    offered.networks.get_mut("n").unwrap().tags.insert("eno-vlan-100".into());
    let before = foreign(&offered);
    converge(&mut offered, &wanted);
    assert_eq!(placed(&offered)["t1"].to_string(), "100");
    assert_eq!(foreign(&offered).networks, before.networks, "an offered network stays as it is");
    converge(&mut offered, &desired(&[("t1", "")]));
    assert_eq!(foreign(&offered), offered);
    assert_eq!(offered.networks, before.networks);

    wanted.device.adopt = "100".parse().unwrap();
    converge(&mut view, &wanted);
    assert_eq!(view.networks["n"].name, "eno-c1-100");
    assert_eq!(placed(&view)["t1"].to_string(), "100");
}

#[test]
fn offers_of_other_projects_need_trust() {
    let mut view = trunks(&["t1"]);
    network(&mut view, "n", "trap", "", None);
    let offered = view.networks.get_mut("n").unwrap();
    offered.tags.insert("eno-vlan-100".into());
    offered.project_id = "other".into();
    let mut wanted = desired(&[("t1", "100")]);
    let mut untouched = view.clone();
    converge(&mut untouched, &wanted);
    assert_eq!(untouched.networks.len(), 2, "a network of ours is made");
    wanted.device.neutron.as_mut().unwrap().trusted_projects = vec!["other".into()];
    converge(&mut view, &wanted);
    assert_eq!(view.networks.len(), 1);
    assert_eq!(placed(&view)["t1"].to_string(), "100");
}

#[test]
fn ports_are_made_anew_for_port_security() {
    let mut view = trunks(&["t1"]);
    let mut wanted = desired(&[("t1", "100")]);
    converge(&mut view, &wanted);
    view.ports.values_mut().next().unwrap().port_security_enabled = Some(false);
    let former = view.ports.keys().next().unwrap().clone();
    port(&mut view, "parent-t1", "nic", "", "any");
    wanted.device.neutron.as_mut().unwrap().port_security = true;
    converge(&mut view, &wanted);
    assert!(!view.ports.contains_key(&former));
    assert_eq!(placed(&view)["t1"].to_string(), "100");
    let (_, requests) = converge(&mut view, &wanted);
    assert!(requests.is_empty(), "{requests:?}");
}

#[test]
fn two_offers_of_a_vlan_are_refused() {
    let mut view = trunks(&["t1"]);
    for id in ["n1", "n2"] {
        network(&mut view, id, "any", "", None);
        view.networks.get_mut(id).unwrap().tags.insert("eno-vlan-100".into());
    }
    let (_, reason) = rejection(&view, &desired(&[("t1", "100")]));
    assert_eq!(reason, "networks n1 and n2 both have the tag eno-vlan-100: take it off all but one");
}

#[test]
fn network_of_another_cluster_is_never_adopted() {
    let mut view = trunks(&["t1"]);
    network(&mut view, "n", "eno-c2-100", "ENO cluster c2, FabricDevice vim1", Some(100));
    let mut wanted = desired(&[("t1", "100")]);
    wanted.device.adopt = "100".parse().unwrap();
    let (_, reason) = rejection(&view, &wanted);
    assert!(reason.contains("belongs to another cluster"), "{reason}");
}

#[test]
fn foreign_sub_port_is_refused_until_adopted() {
    let mut view = trunks(&["t1", "t2"]);
    let mark = mark();
    network(&mut view, "n", &mark.name(vid(100)), mark.description(), Some(100));
    network(&mut view, "other", "blue", "", Some(200));
    port(&mut view, "p", "by-hand", "", "n");
    sub_port(&mut view, "t1", "p", 100);
    let mut wanted = desired(&[("t1", "100"), ("t2", "")]);
    let (item, reason) = rejection(&view, &wanted);
    assert_eq!(item, Item::port_vlan("t1", vid(100)));
    assert!(reason.contains("is port by-hand (p), which is not ours: take it off the trunk"), "{reason}");

    wanted.device.adopt = "100".parse().unwrap();
    let mut adopted = view.clone();
    converge(&mut adopted, &wanted);
    assert_eq!(adopted.ports["p"].name, "eno-c1-100");

    view.ports.get_mut("p").unwrap().network_id = "other".into();
    let (_, reason) = rejection(&view, &wanted);
    assert!(reason.contains("on network other, and VLAN 100 is that of network n"), "{reason}");
}

#[test]
fn ports_that_left_the_spec_lose_their_sub_ports() {
    let mut view = trunks(&["t1"]);
    converge(&mut view, &desired(&[("t1", "100")]));
    let mut leaving = desired(&[("t1 (leaving)", "")]);
    leaving.ports[0].lag = Some("t1".into());
    converge(&mut view, &leaving);
    assert_eq!(foreign(&view), view);
    assert!(view.trunks["id-t1"].sub_ports.is_empty());
}

#[test]
fn unknown_trunk_is_rejected_with_the_reason_of_the_read() {
    let mut view = trunks(&["t1"]);
    view.unresolved.insert("t9".into(), "port t9 is the parent of no trunk".into());
    let wanted = desired(&[("t1", "100"), ("t9", "100")]);
    let (last, _) = converge(&mut view, &wanted);
    assert_eq!(placed(&view)["t1"].to_string(), "100", "the rest goes on");
    assert_eq!(last.rejected.len(), 1);
    assert_eq!(last.rejected[0].item, Item::port("t9"));
    assert_eq!(last.rejected[0].reason, "port t9 is the parent of no trunk");
}

#[test]
fn changed_attributes_are_restored() {
    let mut view = trunks(&["t1"]);
    let mut wanted = desired(&[("t1", "100")]);
    wanted.device.neutron.as_mut().unwrap().mtu = Some(1400);
    converge(&mut view, &wanted);
    let network = view.networks.values_mut().next().unwrap();
    (network.admin_state_up, network.mtu, network.port_security_enabled) = (false, Some(1500), Some(true));
    view.ports.values_mut().next().unwrap().port_security_enabled = Some(true);
    let (_, requests) = converge(&mut view, &wanted);
    let bodies: Vec<String> =
        requests.iter().map(|request| request.http().body.unwrap().to_string()).collect();
    assert_eq!(
        bodies,
        [
            r#"{"network":{"admin_state_up":true,"mtu":1400,"port_security_enabled":false}}"#,
            r#"{"port":{"port_security_enabled":false,"security_groups":[]}}"#,
        ]
    );
}

#[test]
fn ports_with_port_security_have_the_address_of_the_parent() {
    let mut view = trunks(&["t1", "t2"]);
    port(&mut view, "parent-t1", "nic", "", "any");
    port(&mut view, "parent-t2", "nic", "", "any");
    let mut wanted = desired(&[("t1", "100")]);
    let settings = wanted.device.neutron.as_mut().unwrap();
    settings.port_security = true;
    settings.allowed_address_pairs = vec![AddressPair { ip: "10.0.0.0/24".into(), mac: None }];
    wanted.ports.push(FabricPort::new("t2", "100".parse().unwrap()));
    let (_, requests) = converge(&mut view, &wanted);
    let new = requests[1].http().body.unwrap()["ports"].clone();
    assert_eq!(new[0]["mac_address"], "fa:16:3e:parent-t1");
    assert_eq!(new[1]["mac_address"], "fa:16:3e:parent-t2");
    assert_eq!(new[0]["allowed_address_pairs"], json!([{ "ip_address": "10.0.0.0/24" }]));
    for trunk in ["t1", "t2"] {
        let sub = &view.trunks[&format!("id-{trunk}")].sub_ports[0];
        assert_eq!(view.ports[&sub.port_id].mac_address, format!("fa:16:3e:parent-{trunk}"));
    }
    assert!(requests[0].http().body.unwrap()["networks"][0].get("port_security_enabled").is_none());
}

#[test]
fn port_without_the_address_of_the_parent_is_made_anew_after_the_old_one_went() {
    let mut view = trunks(&["t1"]);
    port(&mut view, "parent-t1", "nic", "", "any");
    let mut wanted = desired(&[("t1", "100")]);
    wanted.device.neutron.as_mut().unwrap().port_security = true;
    converge(&mut view, &wanted);
    let port = view.ports.values_mut().find(|port| port.name == "eno-c1-100").unwrap();
    port.port_security_enabled = Some(false);
    let (_, requests) = converge(&mut view, &wanted);
    let done: Vec<String> =
        paths(&requests).into_iter().map(|path| path.split('/').next().unwrap().to_owned()).collect();
    assert_eq!(done, ["PUT trunks", "DELETE ports", "POST ports", "PUT trunks"]);
}

#[test]
fn disabled_trunk_is_left_alone() {
    let mut view = trunks(&["t1", "t2"]);
    let wanted = desired(&[("t1", "100"), ("t2", "100")]);
    converge(&mut view, &desired(&[("t1", "101"), ("t2", "")]));
    view.trunks.get_mut("id-t1").unwrap().admin_state_up = false;
    let (last, requests) = converge(&mut view, &wanted);
    assert!(paths(&requests).iter().all(|path| !path.contains("id-t1")), "{requests:?}");
    let items: Vec<&Item> = last.rejected.iter().map(|rejection| &rejection.item).collect();
    assert_eq!(items, [&Item::port_vlan("t1", vid(100)), &Item::port_vlan("t1", vid(101))]);
    assert!(last.rejected.iter().all(|rejection| rejection.reason.contains("trunk set --enable id-t1")));
    assert_eq!(placed(&view)["t2"].to_string(), "100", "the rest goes on");
}

#[test]
fn network_of_another_project_is_foreign_whatever_its_name_is() {
    let mut view = trunks(&["t1"]);
    let mark = mark();
    network(&mut view, "n", &mark.name(vid(100)), mark.description(), Some(100));
    view.networks.get_mut("n").unwrap().project_id = "other".into();
    let mut wanted = desired(&[("t1", "100")]);
    wanted.device.adopt = "100".parse().unwrap();
    let (_, reason) = rejection(&view, &wanted);
    assert!(reason.contains("which is another project's"), "{reason}");
}

#[test]
fn tenant_networks_are_replaced_after_a_change_to_provider() {
    let mut view = trunks(&["t1"]);
    converge(&mut view, &tenant(&[("t1", "100")]));
    // The credential can't see what its networks are.
    assert!(view.networks.values().all(|network| network.network_type.is_none()));
    converge(&mut view, &desired(&[("t1", "100")]));
    let types: Vec<_> = view.networks.values().map(|network| network.network_type.as_deref()).collect();
    assert_eq!(types, [Some("vlan")]);
}

#[test]
fn renamed_entry_of_a_trunk_leaves_with_nothing() {
    let mut view = trunks(&["t1"]);
    converge(&mut view, &desired(&[("t1", "100")]));
    // The same trunk is listed by its id now.
    view.trunk_of.insert("id-t1".into(), "id-t1".into());
    let mut renamed = desired(&[("id-t1", "100"), ("t1 (leaving)", "")]);
    renamed.ports[1].lag = Some("t1".into());
    let (last, requests) = converge(&mut view, &renamed);
    assert!(requests.is_empty(), "{requests:?}");
    let Applied::Fabric { ports, .. } = observe(&view, &renamed, &mark(), &last) else { panic!() };
    assert_eq!(ports.keys().collect::<Vec<_>>(), ["id-t1"]);
}

#[test]
fn many_rejections_for_one_reason_are_short() {
    let view = trunks(&[]);
    let names: Vec<String> = (0..200).map(|number| format!("t{number}")).collect();
    let mut desired = desired(&[]);
    desired.ports = names.iter().map(|name| FabricPort::new(name, "100".parse().unwrap())).collect();
    let mut view = view;
    for name in &names {
        view.unresolved.insert(name.clone(), "the same long reason".repeat(10));
    }
    let planned = plan(&view, &desired, &mark(), &Refusals::default());
    assert_eq!(planned.rejected.len(), 200);
    assert_eq!(planned.rejected.last().unwrap().reason, "as port t0");
}

#[test]
fn trunk_that_is_not_active_is_noted() {
    let mut view = trunks(&["t1"]);
    view.trunks.get_mut("id-t1").unwrap().status = "DOWN".into();
    let (last, _) = converge(&mut view, &desired(&[("t1", "100")]));
    assert_eq!(last.notes.len(), 1);
    assert_eq!((last.notes[0].kind.as_str(), &last.notes[0].item), ("TrunkNotActive", &Item::port("t1")));
    assert!(last.rejected.is_empty());
}
