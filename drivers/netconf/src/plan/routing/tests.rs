use std::sync::Arc;

use eno_schemas::{Device, FabricVlan, VrfRoute};

use super::*;
use crate::plan::test_states::{desired as switch, own_vlans, set, vid};
use crate::plan::{ObservedPort, plan};

fn vrf(name: &str, distinguisher: Option<&str>, target: &str) -> FabricVrf {
    FabricVrf {
        name: name.into(),
        owner: format!("VRF/{name}"),
        route_distinguisher: distinguisher.map(str::to_owned),
        import_targets: vec![target.into()],
        export_targets: vec![target.into()],
        bgp: Vec::new(),
    }
}

/// VLAN 5, on port `p`, in VRF `blue`.
fn desired(role: DeviceRole) -> FabricDesired {
    let routed = RoutedInterface {
        vrf: "blue".into(),
        owner: "VRFAttachment/a".into(),
        addresses: vec!["192.0.2.1/24".parse().unwrap()],
        mtu: None,
        routes: vec![VrfRoute {
            prefix: "10.0.0.0/8".parse().unwrap(),
            next_hop: "192.0.2.9".parse().unwrap(),
            preference: None,
        }],
    };
    FabricDesired {
        device: Device { role, ..Device::new("") },
        vrfs: vec![vrf("blue", Some("1:1"), "1:2")],
        vlans: [FabricVlan { routed: Some(Arc::new(routed)), ..FabricVlan::new(vid(5), vec![]) }]
            .into_iter()
            .collect(),
        ..switch("5", &[("p", "5"), ("q", "")])
    }
}

fn observed(routing: ObservedRouting) -> ObservedConfig {
    let port = || ObservedPort { configured: true, ..ObservedPort::default() };
    ObservedConfig {
        vlans: own_vlans("5"),
        ports: [("p".to_owned(), port()), ("q".to_owned(), port())].into(),
        routing: Routing::Read(Box::new(routing)),
        ..ObservedConfig::default()
    }
}

fn planned(routing: ObservedRouting, desired: &FabricDesired) -> RoutingPlan {
    plan_routing(&observed(routing), desired, &Exclusions::default(), &set("5"))
}

fn reasons(plan: &RoutingPlan) -> Vec<String> {
    plan.rejected.iter().map(|rejection| format!("{}: {}", rejection.item, rejection.reason)).collect()
}

fn foreign_vrf(distinguisher: &str) -> ObservedRouting {
    let vrf = ObservedVrf {
        is_vrf: true,
        description: Some("mine".into()),
        route_distinguisher: Some(distinguisher.into()),
        import_targets: ["1:2".to_owned()].into(),
        export_targets: ["1:2".to_owned()].into(),
        exports: Some(false),
        ..ObservedVrf::default()
    };
    ObservedRouting { vrfs: [("blue".to_owned(), vrf)].into(), ..ObservedRouting::default() }
}

/// The state after [`desired`] on a switch.
fn made() -> ObservedRouting {
    let mut routing = foreign_vrf("1:1");
    let id = RoutedId::irb(vid(5));
    let blue = routing.vrfs.get_mut("blue").unwrap();
    blue.description = Some("eno-c blue".into());
    blue.exports = Some(true);
    blue.interfaces.insert(id.clone(), "Vlan5".into());
    let prefix = "10.0.0.0/8".parse().unwrap();
    blue.routes.insert((prefix, "192.0.2.9".parse().unwrap()), ObservedRoute::default());
    blue.next_hops.insert(prefix, 1);
    let interface = ObservedInterface {
        description: Some("eno-c-5".into()),
        addresses: ["192.0.2.1/24".parse().unwrap()].into(),
        mtus: [None, None],
        fits: true,
    };
    routing.interfaces.insert(id, interface);
    routing
}

#[test]
fn device_that_is_as_desired_needs_no_change() {
    let plan = planned(made(), &desired(DeviceRole::Switch));
    assert_eq!(plan.changes, RoutingChanges::default());
    assert_eq!((plan.vrfs.len(), plan.routed), (1, set("5")));
}

#[test]
fn foreign_vrf_is_used_only_while_its_values_are_desired() {
    let mut desired = desired(DeviceRole::Switch);
    let plan = planned(foreign_vrf("1:1"), &desired);
    assert!(plan.changes.vrfs.is_empty() && plan.changes.routed[&vid(5)].join.is_some());
    let plan = planned(foreign_vrf("9:9"), &desired);
    assert!(plan.changes.is_empty());
    assert_eq!(
        reasons(&plan),
        [
            "VRF blue: VRF blue exists on the device and is not ours, with distinguisher 9:9 instead of 1:1: change \
             the VRF here or there, or name it in AdoptVRFs of the FabricDevice"
        ]
    );
    desired.device.adopt_vrfs = vec!["blue".into()];
    let plan = planned(foreign_vrf("9:9"), &desired);
    assert!(
        matches!(&plan.changes.vrfs["blue"], VrfChange::Set { description, .. } if description == "eno-c blue")
    );
    assert_eq!(reasons(&plan), [""; 0]);
    let mut other = foreign_vrf("1:1");
    other.vrfs.get_mut("blue").unwrap().is_vrf = false;
    assert!(reasons(&planned(other, &desired))[0].ends_with("is no VRF: choose another DeviceName"));
}

#[test]
fn policy_of_others_is_neither_compared_nor_changed() {
    let desired = desired(DeviceRole::Switch);
    let mut ours = made();
    ours.vrfs.get_mut("blue").unwrap().policies = [true, true];
    assert!(planned(ours, &desired).changes.is_empty());
    let mut theirs = foreign_vrf("1:1");
    let blue = theirs.vrfs.get_mut("blue").unwrap();
    (blue.policies, blue.import_targets) = ([true, false], BTreeSet::new());
    let plan = planned(theirs.clone(), &desired);
    assert_eq!((reasons(&plan), plan.vrfs.len()), (Vec::new(), 1));
    theirs.vrfs.get_mut("blue").unwrap().export_targets = BTreeSet::new();
    let refused = reasons(&planned(theirs, &desired));
    assert!(refused[0].contains("is not ours, with export targets none instead of 1:2:"), "{refused:?}");
}

#[test]
fn vlan_of_a_refused_vrf_leaves_another_vrf() {
    let mut desired = desired(DeviceRole::Switch);
    let mut routing = made();
    let blue = routing.vrfs["blue"].clone();
    routing.vrfs.insert("red".into(), ObservedVrf { description: Some("eno-c red".into()), ..blue });
    let refused = routing.vrfs.get_mut("blue").unwrap();
    (refused.description, refused.route_distinguisher) = (None, Some("9:9".into()));
    (refused.interfaces, refused.routes, refused.next_hops) = Default::default();
    desired.vrfs.push(FabricVrf { import_targets: vec!["1:2".into()], ..vrf("red", Some("1:1"), "1:2") });
    let plan = planned(routing.clone(), &desired);
    assert!(reasons(&plan)[0].starts_with("VRF blue: VRF blue exists on the device and is not ours"));
    let change = &plan.changes.routed[&vid(5)];
    let id = RoutedId::irb(vid(5));
    assert_eq!((&change.remove, &change.leave), (&[id.clone()].into(), &[("red".into(), id)].into()));
    assert_eq!(change.remove_routes.len(), 1);
    // Where it is to be, it stays.
    let red = routing.vrfs.remove("red").unwrap();
    let blue = routing.vrfs.get_mut("blue").unwrap();
    (blue.interfaces, blue.routes, blue.next_hops) = (red.interfaces, red.routes, red.next_hops);
    assert!(planned(routing, &desired).changes.routed.is_empty());
}

#[test]
fn interface_of_others_stays() {
    let mut routing = foreign_vrf("1:1");
    let foreign = ObservedInterface {
        description: Some("mine".into()),
        addresses: ["192.0.2.1/24".parse().unwrap()].into(),
        ..ObservedInterface::default()
    };
    routing.interfaces.insert(RoutedId::irb(vid(5)), foreign);
    let plan = planned(routing, &desired(DeviceRole::Switch));
    assert!(plan.changes.is_empty());
    assert_eq!(
        reasons(&plan),
        [
            "VLAN 5 in VRF blue: the interface of VLAN 5 exists on the device \"mine\" (192.0.2.1/24) and is not ours: \
             delete it there"
        ]
    );
}

#[test]
fn router_leads_a_vlan_by_one_port() {
    let mut desired = desired(DeviceRole::Router);
    let plan = planned(foreign_vrf("1:1"), &desired);
    assert_eq!(plan.changes.routed[&vid(5)].set.as_ref().unwrap().id, RoutedId::on("p", vid(5)));
    desired.ports[1].vlans = set("5");
    assert_eq!(
        reasons(&planned(foreign_vrf("1:1"), &desired)),
        [
            "VLAN 5 in VRF blue: both p and q of the router lead to the VLAN: make them one LAG, or take one out of the \
             FabricDevice"
        ]
    );
    desired.ports.iter_mut().for_each(|port| port.lag = Some("p".into()));
    assert_eq!(reasons(&planned(foreign_vrf("1:1"), &desired)), [""; 0]);
    desired.vlans.extend([FabricVlan::new(vid(6), vec![])]);
    desired.ports[0].vlans = set("5-6");
    assert_eq!(
        reasons(&planned(foreign_vrf("1:1"), &desired)),
        ["VLAN 6: the device is a router, and the VLAN is led into no VRF"]
    );
}

#[test]
fn untagged_port_of_a_router_is_never_converted() {
    let mut routing = foreign_vrf("1:1");
    let mut parent = ObservedParent { untagged: true, ..ObservedParent::default() };
    routing.parents.insert("p".into(), parent);
    let desired = desired(DeviceRole::Router);
    let plan = planned(routing.clone(), &desired);
    assert!(
        plan.changes.is_empty()
            && reasons(&plan)[0].starts_with("VLAN 5 in VRF blue: p is used without tags")
    );
    parent.tagged = true;
    routing.parents.insert("p".into(), parent);
    assert_eq!(reasons(&planned(routing, &desired)), [""; 0]);
}

#[test]
fn router_switches_no_vlan() {
    let desired = desired(DeviceRole::Router);
    let config = ObservedConfig { vlans: own_vlans(""), ..observed(foreign_vrf("1:1")) };
    let changes = plan(&config, &desired, &Exclusions::default()).changes;
    assert!(changes.switches_nothing() && !changes.routing.is_empty());
}

#[test]
fn vrf_of_ours_with_interfaces_of_others_stays() {
    let mut desired = desired(DeviceRole::Switch);
    (desired.vrfs, desired.vlans) = (Vec::new(), FabricVlans::new());
    let plan = planned(made(), &desired);
    assert!(plan.changes.removes("blue") && plan.changes.routed[&vid(5)].remove.len() == 1);
    let mut routing = made();
    routing.vrfs.get_mut("blue").unwrap().has_others = true;
    let plan = planned(routing, &desired);
    assert!(!plan.changes.removes("blue"));
    assert_eq!(
        plan.notes[0].message.to_string(),
        "VRF blue is not removed: interfaces or settings of others are in it"
    );
    // What is there belongs to another cluster, perhaps.
    let contested = ObservedConfig { contested: set("7"), ..observed(made()) };
    assert!(plan_routing(&contested, &desired, &Exclusions::default(), &set("")).changes.is_empty());
}

#[test]
fn route_of_others_to_the_same_prefix_is_refused_where_there_is_one() {
    let mut routing = made();
    let blue = routing.vrfs.get_mut("blue").unwrap();
    let (prefix, foreign) = ("10.0.0.0/8".parse().unwrap(), "198.51.100.1".parse().unwrap());
    blue.routes = [((prefix, foreign), ObservedRoute::default())].into();
    let plan = planned(routing.clone(), &desired(DeviceRole::Switch));
    assert_eq!(plan.changes.routed[&vid(5)].add_routes.len(), 1);
    routing.one_route = true;
    let plan = planned(routing, &desired(DeviceRole::Switch));
    assert!(plan.changes.is_empty() && plan.routed.is_empty());
    assert_eq!(
        reasons(&plan),
        ["VLAN 5 in VRF blue: the device has a route to 10.0.0.0/8 in VRF blue that is not ours"]
    );
}

#[test]
fn excluded_units_stay() {
    let desired = desired(DeviceRole::Switch);
    for (unit, item) in [
        (ChangeUnit::Vrf("blue".into()), Item::vrf("blue")),
        (ChangeUnit::Routed(vid(5)), Item::routed("blue", vid(5))),
    ] {
        let mut excluded = Exclusions::default();
        excluded.add(unit.clone(), "no");
        let plan = plan_routing(&observed(ObservedRouting::default()), &desired, &excluded, &set("5"));
        assert!(
            !plan.changes.units().any(|changed| changed == unit || changed == ChangeUnit::Routed(vid(5)))
        );
        assert_eq!(plan.rejected, [Rejection::permanent(item, "no")]);
    }
}

#[test]
fn dialect_without_vrfs_refuses_them_alone() {
    let config = ObservedConfig { routing: Routing::Unknown("nxos"), ..observed(ObservedRouting::default()) };
    let plan = plan(&config, &desired(DeviceRole::Switch), &Exclusions::default());
    let reason = "ENO knows no VRFs of devices with the dialect nxos";
    let items = [Item::vrf("blue"), Item::routed("blue", vid(5))];
    assert_eq!(plan.rejected, items.map(|item| Rejection::permanent(item, reason)));
    assert_eq!(plan.changes.ports.keys().collect::<Vec<_>>(), ["p"]);
}
