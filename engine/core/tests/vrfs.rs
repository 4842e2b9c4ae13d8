//! VRFs, and services that are led into them at a border leaf or at a router.

use std::collections::BTreeSet;

use eno_core::{Effect, HopState, Key, Kind, Object, Tier};
use eno_schemas::{Applied, FabricVrf, Item, Outcome, Phase, RoutedInterface, VlanSet, VrfRoute};

use crate::edits::{edit_device, edit_routed, edit_service, edit_vrf};
use crate::fixtures::{rejection, switch, to_device, to_node, vid};
use crate::world::*;

/// The devices of the VRF `v`.
const GATEWAYS: [&str; 2] = ["leaf2", "gw"];

/// The ports that carry the VLAN of a service with an attachment at all nodes.
const PORTS: [&str; 12] = [
    "leaf1:e1",
    "leaf1:e2",
    "leaf1:u1",
    "leaf1:u2",
    "leaf2:e1",
    "leaf2:e2",
    "leaf2:u1",
    "leaf2:u2",
    "spine1:leaf1",
    "spine1:leaf2",
    "spine2:leaf1",
    "spine2:leaf2",
];

/// The keys of what [`gateway_world`] makes.
pub struct Keys {
    pub vrf: Key,
    pub routed: Key,
    pub service: Key,
    pub attachment: Key,
}

impl Keys {
    fn all(&self) -> [&Key; 4] {
        [&self.vrf, &self.routed, &self.service, &self.attachment]
    }
}

/// The router `gw` behind leaf2, the VRF `v` on it and on leaf2, and the service `s` with its attachment `a`.
pub fn add_gateway(w: &mut World) -> Keys {
    w.apply(router("gw", &[("e1", to_device("leaf2", "r1"))]));
    w.apply(subnet("sn", "10.1.0.0/24"));
    let service = w.apply(with_subnets(&service("s", 100, &[]), &["sn"]));
    let attachment = w.apply(attachment("a", &["s"], "cp"));
    let vrf = w.apply_and_settle(vrf("v", &GATEWAYS));
    Keys { vrf, routed: Key::cluster(Kind::VRFAttachment, &to_name("va")), service, attachment }
}

/// The same, with transactions, where `s` is led into `v` on a device. All are ready.
pub fn gateway_world(device: &str) -> (World, Keys) {
    let mut w = World::with_transactions();
    let keys = add_gateway(&mut w);
    w.apply_and_settle(routed_at(device));
    for key in keys.all() {
        w.assert_phase(&[key], Phase::Ready, "");
    }
    (w, keys)
}

/// The VRFAttachment `va` of [`gateway_world`].
pub fn routed_at(device: &str) -> Object {
    edit_routed(&vrf_attachment("va", "v", "s", device, &["10.1.0.1/24"]), |spec| {
        spec.mtu = Some(8000);
        spec.static_routes = vec![route_by("10.45.0.0/16", "10.1.0.7")];
    })
}

fn route_by(prefix: &str, next_hop: &str) -> VrfRoute {
    VrfRoute { prefix: prefix.parse().unwrap(), next_hop: next_hop.parse().unwrap(), preference: Some(5) }
}

fn interface(vrf: &str, addresses: &[&str]) -> RoutedInterface {
    RoutedInterface {
        vrf: vrf.into(),
        owner: "VRFAttachment/va".into(),
        addresses: addresses.iter().map(|address| address.parse().unwrap()).collect(),
        mtu: Some(8000),
        routes: vec![route_by("10.45.0.0/16", "10.1.0.7")],
    }
}

fn local_vrf(name: &str) -> FabricVrf {
    FabricVrf {
        name: name.into(),
        owner: "VRF/v".into(),
        route_distinguisher: None,
        import_targets: Vec::new(),
        export_targets: Vec::new(),
        bgp: Vec::new(),
    }
}

/// How a device is commanded to lead VLAN 100 into a VRF.
fn commanded(w: &World, device: &str) -> Option<RoutedInterface> {
    let routed = w.commanded_fabric(device).vlans.get(vid(100))?.routed.clone();
    routed.map(|routed| (*routed).clone())
}

/// The ports that carry the VLAN when it is led to a device.
fn ports_to(device: &str) -> Vec<String> {
    let more = if device == "gw" { &["gw:e1", "leaf2:r1"][..] } else { &[] };
    let all: BTreeSet<&str> = PORTS.iter().chain(more).copied().collect();
    all.into_iter().map(str::to_owned).collect()
}

fn carrying(w: &World, id: u16) -> Vec<String> {
    let mut ports = w.carrying_ports(id);
    ports.sort();
    ports
}

impl World {
    /// No device has a VRF or a VLAN of ours.
    #[track_caller]
    fn assert_nothing_is_left(&self) {
        for device in ["leaf1", "leaf2", "spine1", "spine2", "gw"] {
            let fabric = self.commanded_fabric(device);
            let ports = fabric.ports.iter().filter(|port| !port.vlans.is_empty()).count();
            assert_eq!((fabric.vrfs.len(), fabric.vlans.iter().count(), ports), (0, 0, 0), "{device}");
            assert_eq!(self.actual(&device.into()), Some(fabric), "{device}");
        }
    }

    /// A new engine finds nothing to do, and one that observes sees the same.
    #[track_caller]
    fn assert_restart_changes_nothing(&mut self) {
        self.assert_paths_agree();
        self.assert_observer_agrees();
        let (statuses, published, paths) = (self.statuses.clone(), self.published, self.paths());
        self.restart_and_settle();
        assert_eq!((self.published, self.paths()), (published, paths));
        assert_eq!(self.statuses, statuses);
    }
}

#[test]
fn service_is_led_into_a_vrf() {
    for device in GATEWAYS {
        let (mut w, keys) = gateway_world(device);
        assert_eq!(carrying(&w, 100), ports_to(device));
        assert_eq!(commanded(&w, device), Some(interface("v", &["10.1.0.1/24"])));
        for other in ["leaf1", "leaf2", "spine1", "spine2", "gw"] {
            let fabric = w.commanded_fabric(other);
            let vrfs = if GATEWAYS.contains(&other) { vec![local_vrf("v")] } else { Vec::new() };
            assert_eq!(fabric.vrfs, vrfs, "{other}");
            let routed = fabric.vlans.iter().filter(|vlan| vlan.routed.is_some()).count();
            assert_eq!(routed, usize::from(other == device), "{other}");
        }
        for path in [w.engine.path(&keys.routed), w.engine.ways_into_vrfs(&keys.attachment)] {
            let last = path.iter().filter(|hop| hop.part.tier() == Tier::Gateways);
            let last: Vec<String> = last.map(|hop| hop.part.to_string()).collect();
            assert_eq!(last, [format!("FabricDevice {device}: VLAN 100 in VRF v")]);
            assert!(path.iter().all(|hop| hop.state == HopState::Confirmed), "{path:?}");
        }
        w.assert_restart_changes_nothing();
    }
}

#[test]
fn all_switches_and_the_router_change_in_one_transaction() {
    let mut w = World::with_transactions();
    w.apply(router("gw", &[("e1", to_device("leaf2", "r1"))]));
    w.apply(subnet("sn", "10.1.0.0/24"));
    w.settle();
    w.outcomes.clear();
    w.participant_counts.clear();
    w.apply(with_subnets(&service("s", 100, &[]), &["sn"]));
    w.apply(attachment("a", &["s"], "cp"));
    w.apply(vrf("v", &["gw"]));
    w.apply_and_settle(routed_at("gw"));
    assert_eq!((w.outcomes.clone(), w.participant_counts.clone()), (vec!["confirmed"], vec![5]));
}

#[test]
fn nothing_is_ready_before_the_device_has_it() {
    for device in GATEWAYS {
        let mut w = World::with_transactions();
        let keys = add_gateway(&mut w);
        w.delete_and_settle(&keys.vrf);
        w.phases.remove(&keys.vrf);
        let target = switch(device);
        w.silent.insert(target.clone());
        w.apply(vrf("v", &[device]));
        w.apply_and_settle(routed_at(device));
        assert_eq!([&keys.vrf, &keys.routed].map(|key| w.phase(key)), [Phase::Pending; 2]);
        let full = w.commanded_fabric(device).carried_out();
        let (mut no_vrf, mut no_interface) = (full.clone(), full.clone());
        let Applied::Fabric { vrfs, routed, .. } = &mut no_vrf else { unreachable!() };
        (*vrfs, *routed) = (BTreeSet::new(), VlanSet::EMPTY);
        let Applied::Fabric { routed, .. } = &mut no_interface else { unreachable!() };
        *routed = VlanSet::EMPTY;
        let interface = format!("FabricDevice {device}: VLAN 100 in VRF v is not confirmed yet");
        let vrf = format!("FabricDevice {device}: VRF v is not confirmed yet");
        for (applied, of_vrf, of_routed) in
            [(no_vrf, &*vrf, &*interface), (no_interface, "", &interface), (full, "", "")]
        {
            w.report(&target, Outcome::Applied, Some(applied), Vec::new());
            w.settle();
            for (key, message) in [(&keys.vrf, of_vrf), (&keys.routed, of_routed)] {
                let phase = if message.is_empty() { Phase::Ready } else { Phase::Pending };
                w.assert_phase(&[key], phase, message);
            }
            w.assert_phase(&[&keys.service, &keys.attachment], Phase::Ready, "");
            w.assert_paths_agree();
        }
    }
}

#[test]
fn change_of_what_leads_in_is_a_new_command() {
    type Change = fn(&mut eno_core::kinds::VrfAttachmentSpec);
    for device in GATEWAYS {
        let (mut w, keys) = gateway_world(device);
        w.apply_and_settle(vrf("w", &GATEWAYS));
        let changes: [Change; 4] = [
            |spec| spec.interfaces[0].addresses = vec!["10.1.0.2/24".parse().unwrap()],
            |spec| spec.mtu = Some(9000),
            |spec| spec.static_routes[0] = route_by("10.46.0.0/16", "10.1.0.8"),
            |spec| spec.vrf = "w".into(),
        ];
        for (index, change) in changes.iter().enumerate() {
            let others = |w: &World| -> Vec<_> {
                let all =
                    ["leaf1", "leaf2", "spine1", "spine2", "gw"].into_iter().filter(|other| *other != device);
                all.map(|other| w.command(&switch(other)).generation).collect()
            };
            let before = (commanded(&w, device), others(&w));
            w.silent.insert(switch(device));
            w.apply_and_settle(edit_routed(&w.objects[&keys.routed], change));
            assert_ne!(commanded(&w, device), before.0, "{index}");
            assert_eq!(others(&w), before.1, "only the device is commanded");
            assert_eq!(w.phase(&keys.routed), Phase::Pending, "{index}: {}", w.message(&keys.routed));
            w.assert_phase(&[&keys.service, &keys.vrf], Phase::Ready, "");
            w.end_silence();
            assert_eq!(w.phase(&keys.routed), Phase::Ready, "{index}: {}", w.message(&keys.routed));
            assert_eq!(carrying(&w, 100), ports_to(device));
        }
        assert_eq!(commanded(&w, device).unwrap().vrf, "w");
        // Another VRF on the devices.
        w.silent.insert(switch(device));
        w.apply_and_settle(edit_vrf(&w.objects[&keys.vrf], |spec| {
            for (index, device) in spec.devices.iter_mut().enumerate() {
                device.route_distinguisher = Some(format!("65000:{index}"));
            }
            spec.export_targets = vec!["65000:9".into()];
        }));
        assert_eq!(w.phase(&keys.vrf), Phase::Pending);
        assert_eq!(w.phase(&keys.routed), Phase::Ready, "it is not in it");
        w.end_silence();
        assert_eq!(w.phase(&keys.vrf), Phase::Ready);
        assert_eq!(w.commanded_fabric(device).vrfs[0].export_targets, ["65000:9"]);
        w.assert_restart_changes_nothing();
    }
}

#[test]
fn vrf_that_is_renamed_takes_its_services_along() {
    for device in GATEWAYS {
        let (mut w, keys) = gateway_world(device);
        w.silent.insert(switch(device));
        w.apply_and_settle(edit_vrf(&w.objects[&keys.vrf], |spec| {
            spec.device_name = Some("internet".into());
        }));
        assert_eq!([&keys.vrf, &keys.routed].map(|key| w.phase(key)), [Phase::Pending; 2]);
        w.end_silence();
        w.assert_phase(&keys.all(), Phase::Ready, "");
        assert_eq!(commanded(&w, device), Some(interface("internet", &["10.1.0.1/24"])));
        assert_eq!(w.commanded_fabric(device).vrfs, [local_vrf("internet")]);
        w.assert_restart_changes_nothing();
    }
}

#[test]
fn vrf_keeps_a_device_where_a_service_is_led_into_it() {
    let (mut w, keys) = gateway_world("gw");
    w.apply_and_settle(vrf("v", &["leaf2"]));
    let message = "spec.Devices: VRFAttachment va leads L2Service s in on FabricDevice gw; keep that device until the \
                   VRFAttachment is deleted, or names another device";
    w.assert_message_contains(&keys.vrf, Phase::Error, message);
    w.assert_message_contains(&keys.routed, Phase::Error, "VRF v is in error");
    w.assert_phase(&[&keys.service, &keys.attachment], Phase::Ready, "");
    assert_eq!(w.commanded_fabric("gw").vrfs, [local_vrf("v")]);
    assert_eq!(commanded(&w, "gw"), Some(interface("v", &["10.1.0.1/24"])));
    w.assert_restart_changes_nothing();
    w.apply_and_settle(vrf("v", &["leaf2", "gw"]));
    w.apply_and_settle(routed_at("leaf2"));
    w.apply_and_settle(vrf("v", &["leaf2"]));
    w.assert_phase(&keys.all(), Phase::Ready, "");
    assert!(w.commanded_fabric("gw").vrfs.is_empty() && commanded(&w, "gw").is_none());
    assert_eq!(commanded(&w, "leaf2"), Some(interface("v", &["10.1.0.1/24"])));
}

#[test]
fn vlan_stays_for_the_pods_when_the_gateway_goes() {
    for device in GATEWAYS {
        let (mut w, keys) = gateway_world(device);
        w.silent.insert(switch(device));
        w.delete_and_settle(&keys.routed);
        assert_eq!(w.phase(&keys.routed), Phase::Terminating);
        w.assert_phase(&[&keys.vrf, &keys.service], Phase::Ready, "");
        w.restart_and_settle();
        assert_eq!(w.phase(&keys.routed), Phase::Terminating, "the device has it");
        w.end_silence();
        assert!(!w.objects.contains_key(&keys.routed), "{}", w.message(&keys.routed));
        assert_eq!((carrying(&w, 100), commanded(&w, device)), (ports_to("leaf2"), None));
        w.assert_phase(&[&keys.vrf, &keys.service, &keys.attachment], Phase::Ready, "");
        for key in [&keys.vrf, &keys.attachment, &keys.service] {
            w.delete_and_settle(key);
        }
        assert!(keys.all().iter().all(|key| !w.objects.contains_key(key)), "{:?}", w.objects.keys());
        w.assert_nothing_is_left();
    }
}

#[test]
fn vrf_in_use_stays_until_nothing_is_led_into_it() {
    for device in GATEWAYS {
        let (mut w, keys) = gateway_world(device);
        w.delete_and_settle(&keys.vrf);
        w.assert_phase(&[&keys.vrf], Phase::Terminating, "in use by VRFAttachment va");
        assert_eq!(w.phase(&keys.routed), Phase::Ready);
        assert_eq!(w.commanded_fabric(device).vrfs, [local_vrf("v")]);
        w.restart_and_settle();
        w.delete_and_settle(&keys.service);
        w.assert_message_contains(&keys.service, Phase::Terminating, "in use by");
        w.delete_and_settle(&keys.attachment);
        w.assert_phase(&[&keys.service], Phase::Terminating, "in use by VRFAttachment va");
        assert!(commanded(&w, device).is_some());
        w.silent.insert(switch(device));
        w.delete_and_settle(&keys.routed);
        w.restart_and_settle();
        assert_eq!([&keys.routed, &keys.vrf, &keys.service].map(|key| w.phase(key)), [Phase::Terminating; 3]);
        w.end_silence();
        assert!(keys.all().iter().all(|key| !w.objects.contains_key(key)), "{:?}", w.objects.keys());
        w.assert_nothing_is_left();
    }
}

#[test]
fn vrf_that_the_device_has_keeps_it_terminating() {
    let mut w = World::with_transactions();
    let keys = add_gateway(&mut w);
    w.silent.insert(switch("gw"));
    w.delete_and_settle(&keys.vrf);
    for restarted in [false, true] {
        if restarted {
            w.restart_and_settle();
        }
        w.assert_message_contains(&keys.vrf, Phase::Terminating, "FabricDevice gw: the removal of the VRF");
    }
    w.end_silence();
    assert!(!w.objects.contains_key(&keys.vrf), "{}", w.message(&keys.vrf));
    assert!(w.commanded_fabric("gw").vrfs.is_empty());
}

/// Two leaves at a router that are not joined otherwise.
#[test]
fn no_vlan_passes_through_a_router() {
    let mut w = World::with_transactions();
    w.apply(device("far", &[("e1", to_node("node9"))]));
    w.apply_labelled_node("node9", "side", "far");
    w.apply(node_pool("far", "side", &["far"]));
    w.apply(connection_point("far", Some("far")));
    w.apply(router("gw", &[("e1", to_device("leaf2", "r1")), ("e2", to_device("far", "r1"))]));
    for (name, network) in [("sn", "10.1.0.0/24"), ("other", "10.2.0.0/24")] {
        w.apply(subnet(name, network));
    }
    let near = w.apply(with_subnets(&service("s", 100, &[]), &["sn"]));
    let near_user = w.apply(attachment("a", &["s"], "cp"));
    let other = w.apply(with_subnets(&service("t", 100, &[]), &["other"]));
    let far_user = w.apply_and_settle(attachment("b", &["t"], "far"));
    w.assert_phase(&[&near, &near_user, &other, &far_user], Phase::Ready, "");
    w.apply(vrf("v", &["gw"]));
    let va = w.apply_and_settle(routed_at("gw"));
    w.assert_phase(&[&va, &near, &near_user, &other, &far_user], Phase::Ready, "");
    let mut expected = ports_to("gw");
    expected.insert(0, "far:e1".into());
    assert_eq!(carrying(&w, 100), expected, "far carries that of t to no router");
    // The router has one sub-interface of the ID.
    let vb = w.apply_and_settle(vrf_attachment("vb", "v", "t", "gw", &["10.2.0.1/24"]));
    w.assert_message_contains(&vb, Phase::Error, "100");
    w.assert_phase(&[&va, &near, &near_user, &other, &far_user], Phase::Ready, "");
    w.apply_and_settle(edit_service(&w.objects[&other], |spec| spec.vid = vid(200)));
    w.assert_phase(&[&vb, &other, &far_user], Phase::Ready, "");
    assert_eq!(carrying(&w, 200), ["far:e1", "far:r1", "gw:e2"]);
    assert_eq!(carrying(&w, 100), ports_to("gw"));
    w.assert_restart_changes_nothing();
}

#[test]
fn router_has_one_interface_to_a_fabric() {
    let (mut w, keys) = gateway_world("gw");
    let ports = [("e1", to_device("leaf2", "r1")), ("e2", to_device("leaf1", "r1"))];
    let two = router("gw", &ports);
    w.apply_and_settle(two.clone());
    w.assert_message_contains(&keys.routed, Phase::Error, "e1 and e2 of FabricDevice gw both lead");
    w.assert_message_contains(&keys.routed, Phase::Error, "make them one Lag");
    w.assert_phase(&[&keys.service, &keys.attachment, &keys.vrf], Phase::Ready, "");
    assert_eq!(carrying(&w, 100), ports_to("leaf2"));
    w.apply_and_settle(edit_device(&two, |spec| {
        spec.ports.iter_mut().for_each(|port| port.lag = Some("ae0".into()));
    }));
    w.assert_phase(&keys.all(), Phase::Ready, "");
    for port in ["leaf1:r1", "leaf2:r1"] {
        assert!(carrying(&w, 100).contains(&port.to_owned()), "{:?}", carrying(&w, 100));
    }
    w.apply_and_settle(router("gw", &[]));
    w.assert_message_contains(
        &keys.routed,
        Phase::Error,
        "no port of FabricDevice gw leads to the fabric of",
    );
    w.assert_phase(&[&keys.service, &keys.attachment, &keys.vrf], Phase::Ready, "");
    w.assert_restart_changes_nothing();
}

#[test]
fn what_the_device_rejects_of_a_vrf_hinders_no_pod() {
    for device in GATEWAYS {
        let (mut w, keys) = gateway_world(device);
        let items = [
            (Item::routed("v", vid(100)), &[&keys.routed][..]),
            (Item::vrf("v"), &[&keys.routed, &keys.vrf]),
        ];
        for (item, concerned) in items {
            w.reject(&switch(device), &[rejection(item.clone(), "it has other addresses")]);
            for key in keys.all() {
                if concerned.contains(&key) {
                    w.assert_message_contains(key, Phase::Error, "it has other addresses");
                } else {
                    w.assert_phase(&[key], Phase::Ready, "");
                }
            }
            assert_eq!(carrying(&w, 100), ports_to(device));
            w.assert_paths_agree();
            w.assert_restart_changes_nothing();
            w.reject(&switch(device), &[]);
            w.assert_phase(&keys.all(), Phase::Ready, "");
        }
    }
}

/// The rejection comes within the transaction that makes the VLAN.
#[test]
fn rejected_vrf_does_not_roll_the_vlan_back() {
    for device in GATEWAYS {
        let mut w = World::with_transactions();
        w.rejections.insert(switch(device), vec![rejection(Item::vrf("v"), "another distinguisher")]);
        let keys = add_gateway(&mut w);
        w.apply_and_settle(routed_at(device));
        for key in [&keys.routed, &keys.vrf] {
            w.assert_message_contains(key, Phase::Error, "another distinguisher");
        }
        w.assert_phase(&[&keys.service, &keys.attachment], Phase::Ready, "");
        assert_eq!(carrying(&w, 100), ports_to(device));
        // A driver rejects nothing that is not wanted.
        w.rejections.clear();
        for key in keys.all() {
            w.delete(key);
        }
        w.settle();
        assert!(keys.all().iter().all(|key| !w.objects.contains_key(key)), "{:?}", w.objects.keys());
        w.assert_nothing_is_left();
    }
}

#[test]
fn vrf_whose_removal_is_refused_stays_until_it_is_gone() {
    for device in GATEWAYS {
        let (mut w, keys) = gateway_world(device);
        w.delete_and_settle(&keys.routed);
        w.rejections.insert(switch(device), vec![rejection(Item::vrf("v"), "a rib group refers to it")]);
        w.delete_and_settle(&keys.vrf);
        w.assert_message_contains(
            &keys.vrf,
            Phase::Terminating,
            &format!("FabricDevice {device}: the VRF can't be"),
        );
        w.assert_message_contains(&keys.vrf, Phase::Terminating, "a rib group refers to it");
        w.assert_phase(&[&keys.service, &keys.attachment], Phase::Ready, "");
        w.rejections.clear();
        w.apply_and_settle(vrf("other", &[device]));
        assert!(!w.objects.contains_key(&keys.vrf), "{}", w.message(&keys.vrf));
    }
}

/// Two VRFs change their names on a device at once: the later one gets the former name of the other.
#[test]
fn vrf_that_gave_its_name_away_is_deleted() {
    let (mut w, keys) = gateway_world("gw");
    let other = w.apply_and_settle(edit_vrf(&vrf("a", &["gw"]), |spec| spec.device_name = Some("v".into())));
    w.assert_message_contains(&other, Phase::Error, "is of VRF v");
    w.delete_and_settle(&keys.routed);
    w.apply_and_settle(edit_vrf(&w.objects[&keys.vrf], |spec| spec.device_name = Some("blue".into())));
    w.assert_phase(&[&other, &keys.vrf], Phase::Ready, "");
    w.apply_and_settle(vrf_attachment("vb", "a", "s", "gw", &["10.1.0.1/24"]));
    w.delete_and_settle(&keys.vrf);
    assert!(!w.objects.contains_key(&keys.vrf), "{}", w.message(&keys.vrf));
}

/// A switch refuses the VLAN within the transaction: neither it nor the gateway gets anything.
#[test]
fn refused_vlan_is_not_led_into_the_vrf() {
    for device in GATEWAYS {
        let mut w = World::with_transactions();
        w.set_refusal("spine1", 100, true);
        let keys = add_gateway(&mut w);
        w.apply_and_settle(routed_at(device));
        for key in [&keys.routed, &keys.service, &keys.attachment] {
            w.assert_message_contains(key, Phase::Error, "FabricDevice spine1");
        }
        assert_eq!((carrying(&w, 100), commanded(&w, device)), (Vec::new(), None));
        assert_eq!(w.phase(&keys.vrf), Phase::Ready);
        w.end_refusal("spine1", 100);
        w.assert_phase(&keys.all(), Phase::Ready, "");
        assert_eq!(commanded(&w, device), Some(interface("v", &["10.1.0.1/24"])));
    }
}

/// The new VLAN is refused: the former one stays led into the VRF.
#[test]
fn refused_change_of_the_vlan_keeps_the_gateway() {
    for device in GATEWAYS {
        let (mut w, keys) = gateway_world(device);
        w.set_refusal("spine1", 101, true);
        w.apply_and_settle(edit_service(&w.objects[&keys.service], |spec| spec.vid = vid(101)));
        w.assert_message_contains(&keys.routed, Phase::Error, "FabricDevice spine1");
        assert_eq!((carrying(&w, 100), carrying(&w, 101)), (ports_to(device), Vec::new()));
        assert_eq!(commanded(&w, device), Some(interface("v", &["10.1.0.1/24"])));
        w.end_refusal("spine1", 101);
        w.assert_phase(&keys.all(), Phase::Ready, "");
        assert_eq!((carrying(&w, 101), carrying(&w, 100)), (ports_to(device), Vec::new()));
        assert_eq!(commanded(&w, device), None);
    }
}

/// The VRF of a service that nothing else leads into it: the border leaf has no port of it.
#[test]
fn service_without_pods_is_led_in_alone() {
    for device in GATEWAYS {
        let mut w = World::with_transactions();
        let keys = add_gateway(&mut w);
        w.delete_and_settle(&keys.attachment);
        w.apply_and_settle(routed_at(device));
        w.assert_phase(&[&keys.vrf, &keys.routed, &keys.service], Phase::Ready, "");
        assert_eq!(commanded(&w, device), Some(interface("v", &["10.1.0.1/24"])));
        w.assert_restart_changes_nothing();
        w.delete_and_settle(&keys.routed);
        assert!(!w.objects.contains_key(&keys.routed), "{}", w.message(&keys.routed));
        assert_eq!(commanded(&w, device), None);
        assert!(w.commanded_fabric(device).vlans.iter().next().is_none());
    }
}

#[test]
fn nothing_is_led_in_before_its_device_and_its_service_are_looked_at() {
    let objects = [
        router("gw", &[("e1", to_device("leaf2", "r1"))]),
        subnet("sn", "10.1.0.0/24"),
        with_subnets(&service("s", 100, &[]), &["sn"]),
        vrf("v", &["gw"]),
        routed_at("gw"),
    ];
    for late in ["gw", "s"] {
        let mut w = World::with_transactions();
        for mut object in objects.clone() {
            object.finalized = *object.key.name != *late;
            w.apply(object);
        }
        let effects = w.reconcile().effects;
        let led = Key::cluster(Kind::VRFAttachment, &to_name("va"));
        let phases = effects.iter().filter_map(|effect| match effect {
            Effect::Transition { key, status, .. } if *key == led => status.phase,
            _ => None,
        });
        assert_eq!(phases.collect::<Vec<_>>(), [Phase::Pending], "{late}");
    }
}
