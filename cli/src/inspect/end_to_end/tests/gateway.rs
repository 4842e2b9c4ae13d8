//! A network that is led into a VRF, as each command shows it.

use eno_engine::forecast::{Action, Change, RoutedForecast, forecast, key_of};
use eno_schemas::{Item, Rejection, VlanSet};
use serde_json::json;

use super::*;
use crate::inspect::blame::{Line, blame, routed_states};
use crate::inspect::history::targets;
use crate::inspect::path::{VrfHop, vrf_hops};
use crate::sysdump::redact;

/// The VLAN that is led in.
fn vid() -> VlanId {
    VlanId::new(100).expect("a VLAN ID")
}

fn routed_key() -> Key {
    Key::cluster(Kind::VRFAttachment, &"va".into())
}

fn vrf_key() -> Key {
    Key::cluster(Kind::VRF, &"v".into())
}

/// The attachment of the pods.
fn attachment_key() -> Key {
    Key::namespaced(Kind::L2ServiceAttachment, &"ns".into(), &"x".into())
}

/// Leads the network into the VRF `v` at a device.
fn vrf_attachment(device: &str) -> (Listed, Value) {
    let interface = json!({ "Device": device, "Addresses": ["10.1.0.1/24"] });
    let spec = json!({ "VRF": "v", "L2Service": "net", "Interfaces": [interface], "MTU": 8000 });
    object(Kind::VRFAttachment, "va", &spec)
}

/// The fabric with the router `gw` at `leaf2`. Both have the VRF `v`; only pods of `node1` use the network.
fn gateway() -> Vec<(Listed, Value)> {
    let is_other = |(_, value): &(Listed, Value)| {
        !["leaf2", "net", "gw"].contains(&value["metadata"]["name"].as_str().unwrap_or_default())
    };
    let mut objects: Vec<_> = fabric().into_iter().filter(is_other).collect();
    let ports = json!([
        { "Name": "1", "Node": "node2", "Interface": "eth1" },
        { "Name": "47", "Device": "gw", "Port": "e1" },
        { "Name": "49", "Device": "spine1", "Port": "2" },
    ]);
    let (listed, mut router) =
        device("gw", &json!([{ "Name": "e1", "Device": "leaf2", "Port": "47", "Lag": "ae0" }]));
    router["spec"]["Role"] = json!("Router");
    let devices = json!([
        { "Name": "gw", "RouteDistinguisher": "65000:1" },
        { "Name": "leaf2", "RouteDistinguisher": "65000:2" },
    ]);
    objects.extend([
        device("leaf2", &ports),
        (listed, router),
        object(
            Kind::Subnet,
            "sn",
            &json!({ "Type": "v4", "Ipam": "whereabouts", "Address": "10.1.0.0", "Mask": 24 }),
        ),
        object(Kind::L2Service, "net", &json!({ "SegmentationID": 100, "Subnets": ["sn"] })),
        object(Kind::VRF, "v", &json!({ "Devices": devices, "ImportTargets": ["65000:7"] })),
        point("p", "a", "ovs", &json!({ "BridgeName": "br" })),
        attachment("x", "p"),
    ]);
    objects
}

/// The same, where the network is led into the VRF at a device, and all is done.
fn led_in(device: &str) -> Cluster {
    let mut cluster = Cluster::new([gateway(), vec![vrf_attachment(device)]].concat());
    cluster.confirm();
    cluster
}

impl Cluster {
    fn observation(&self) -> Observation {
        let mut observation = Observation::new(&self.world);
        observation.catch_up(self.reports.iter());
        observation
    }

    /// A device refuses something.
    fn refuse(&mut self, device: &str, item: Item) {
        let mut report = Report::clone(self.reports.get("netconf", device).expect("a report"));
        let Some(Applied::Fabric { vrfs, routed, .. }) = &mut report.applied else { unreachable!() };
        vrfs.retain(|_| item.vlan.is_some());
        *routed = VlanSet::EMPTY;
        report.rejected = vec![Rejection::permanent(item, "no")];
        self.reports.set("netconf", device, Some(report.into()));
    }

    fn last_hop(&self, key: &Key) -> Hop {
        self.path(key).hops.pop().expect("a hop")
    }

    fn links(&self, key: &Key) -> Vec<String> {
        let links = self.path(key).links.into_iter();
        links.map(|link| format!("{} > {} {}", link.from, link.to, link.state.as_str())).collect()
    }

    fn blame(&self, device: &str, port: &str) -> Vec<Line> {
        let observation = self.observation();
        let (_, fabric) = &observation.desired().switches[device];
        let states = routed_states(&observation, &self.reports, (device, fabric), port);
        blame(fabric, port, None, &states)
    }
}

#[test]
fn path_ends_at_the_interface_of_the_vrf() {
    for (device, detail, ways) in [
        (
            "gw",
            "gw ae0",
            &["switch:leaf2 > routed:gw:100 confirmed", "switch:leaf2 > switch:spine1 confirmed"][..],
        ),
        ("leaf2", "leaf2 IRB", &["switch:spine1 > routed:leaf2:100 confirmed"]),
    ] {
        let cluster = led_in(device);
        for key in [attachment_key(), routed_key(), Key::cluster(Kind::L2Service, &"net".into())] {
            let hop = cluster.last_hop(&key);
            assert_eq!((hop.tier, &*hop.label, &*hop.detail), (Tier::Gateways, "VRF v", detail), "{key}");
            assert_eq!((hop.state, hop.mtu), (State::Confirmed, Some(8000)), "{key}");
            assert_eq!(hop.addresses, ["10.1.0.1/24"], "{key}");
            let links = cluster.links(&key);
            for way in ways {
                assert!(links.iter().any(|link| link == way), "{key}: {way} in {links:?}");
            }
        }
    }
}

#[test]
fn interface_at_the_leaf_of_the_pods_is_next_to_their_port() {
    let mut objects = [gateway(), vec![vrf_attachment("leaf2"), attachment("y", "q")]].concat();
    objects.push(point("q", "b", "ovs", &json!({ "BridgeName": "br" })));
    let mut cluster = Cluster::new(objects);
    cluster.confirm();
    let key = Key::namespaced(Kind::L2ServiceAttachment, &"ns".into(), &"y".into());
    let way = "port:leaf2:1 > routed:leaf2:100 confirmed".to_owned();
    assert!(cluster.links(&key).contains(&way), "{:?}", cluster.links(&key));
    // The leaf of the other ConnectionPoint is not on the way of these pods.
    assert!(cluster.path(&key).hops.iter().all(|hop| !hop.id.contains("leaf1")));
}

#[test]
fn router_at_a_leaf_with_pods_is_reached_from_other_leaves() {
    let mut objects = [gateway(), vec![vrf_attachment("gw"), attachment("y", "q")]].concat();
    objects.push(point("q", "b", "ovs", &json!({ "BridgeName": "br" })));
    let mut cluster = Cluster::new(objects);
    cluster.confirm();
    let links = cluster.links(&Key::cluster(Kind::L2Service, &"net".into()));
    for way in ["port:leaf2:1 > routed:gw:100 confirmed", "switch:spine1 > routed:gw:100 confirmed"] {
        assert!(links.iter().any(|link| link == way), "{way} in {links:?}");
    }
}

#[test]
fn vrf_is_on_each_of_its_devices() {
    let cluster = led_in("gw");
    let hops = cluster.path(&vrf_key()).hops.into_iter();
    let hops = hops.map(|hop| format!("{} {} {}", hop.id, hop.state.as_str(), hop.vlans));
    assert_eq!(hops.collect::<Vec<_>>(), ["vrf:gw:v confirmed 100", "vrf:leaf2:v confirmed "]);
    let device = Key::cluster(Kind::FabricDevice, &"gw".into());
    assert_eq!(cluster.last_hop(&device).id, "vrf:gw:v");
    assert!(cluster.links(&device).contains(&"switch:gw > vrf:gw:v confirmed".into()));
}

#[test]
fn states_of_vrfs_are_those_of_the_core() {
    for (item, of_vrf) in [(Item::vrf("v"), State::Refused), (Item::routed("v", vid()), State::Confirmed)] {
        let mut cluster = led_in("gw");
        cluster.refuse("gw", item);
        let hop = cluster.last_hop(&routed_key());
        assert_eq!((hop.state, &*hop.message), (State::Refused, "no"));
        assert_eq!(cluster.path(&vrf_key()).hops[0].state, of_vrf);
        assert_eq!(cluster.hops("x")[3], "port:leaf1:1 confirmed");
    }
    let mut cluster = led_in("gw");
    cluster.reports.set("netconf", "gw", None);
    assert_eq!(cluster.last_hop(&routed_key()).state, State::Waiting);
}

#[test]
fn vlan_that_two_ports_of_a_router_lead_to_is_refused_there() {
    let mut objects = [gateway(), vec![vrf_attachment("gw")]].concat();
    for (_, value) in &mut objects {
        let more = match value["metadata"]["name"].as_str() {
            Some("leaf2") => json!({ "Name": "46", "Device": "gw", "Port": "e2" }),
            Some("gw") => json!({ "Name": "e2", "Device": "leaf2", "Port": "46" }),
            _ => continue,
        };
        value["spec"]["Ports"].as_array_mut().expect("ports").push(more);
    }
    let mut cluster = Cluster::new(objects);
    cluster.confirm();
    let path = cluster.path(&routed_key());
    let hop = path.hops.iter().find(|hop| hop.id == "switch:gw").expect("the router");
    assert_eq!(hop.state, State::Refused);
    assert!(hop.message.contains("both lead to the service's fabric"), "{}", hop.message);
}

#[test]
fn status_has_the_vrfs_and_addresses() {
    let mut cluster = led_in("gw");
    cluster.refuse("gw", Item::routed("v", vid()));
    let hops = |key| vrf_hops(&cluster.observation(), &cluster.reports, &key);
    let of_vrf = |device: &str| VrfHop {
        device: device.into(),
        vrf: "v".into(),
        vlan: None,
        addresses: Vec::new(),
        state: State::Confirmed,
        message: String::new(),
    };
    let routed = VrfHop {
        vlan: Some(vid()),
        addresses: vec!["10.1.0.1/24".into()],
        state: State::Refused,
        message: "no".into(),
        ..of_vrf("gw")
    };
    for key in [routed_key(), attachment_key()] {
        assert_eq!(hops(key), std::slice::from_ref(&routed));
    }
    assert_eq!(hops(vrf_key()), [of_vrf("gw"), of_vrf("leaf2")]);
}

#[test]
fn blame_names_the_vrf_of_a_sub_interface() {
    let mut cluster = led_in("gw");
    let line = Line {
        vlan: vid(),
        wanted_by: vec!["L2Service/net".into(), "VRFAttachment/va".into()],
        vrf: Some("v".into()),
        addresses: vec!["10.1.0.1/24".into()],
        note: None,
    };
    assert_eq!(cluster.blame("gw", "e1"), std::slice::from_ref(&line));
    cluster.refuse("gw", Item::routed("v", vid()));
    assert_eq!(cluster.blame("gw", "e1"), [Line { note: Some("refused: no".into()), ..line }]);
    // The ports of a switch only carry the VLAN.
    let [of_leaf] = &led_in("leaf2").blame("leaf2", "49")[..] else { panic!("one VLAN") };
    assert_eq!((&of_leaf.vrf, &of_leaf.wanted_by[..]), (&None, &["L2Service/net".to_owned()][..]));
}

#[test]
fn history_of_a_vrf_is_that_of_its_devices() {
    let cluster = led_in("gw");
    let switches = cluster.observation().desired().switches;
    let fabric = Fabric { switches, incomplete: BTreeSet::new() };
    let devices = |key: &Key| {
        let targets = targets(&cluster.world, &fabric, key).into_iter();
        targets.map(|(_, target)| target).collect::<Vec<_>>()
    };
    assert_eq!(devices(&vrf_key()), ["gw", "leaf2"]);
    assert_eq!(devices(&routed_key()), ["gw", "leaf1", "leaf2", "spine1"]);
    let gone = Key::cluster(Kind::VRF, &"gone".into());
    assert_eq!(devices(&gone).len(), 4, "its devices are not known any more");
}

#[test]
fn plan_tells_what_is_led_into_vrfs() {
    let cluster = Cluster::new(gateway().into_iter().filter(|(_, value)| value["kind"] != "VRF"));
    let added = gateway().into_iter().filter(|(_, value)| value["kind"] == "VRF");
    let applied = added.chain([vrf_attachment("gw")]).map(|(_, value)| {
        let object = serde_json::from_value(value).expect("an object");
        Change::Apply(key_of(&object).expect("a kind"), Box::new(object))
    });
    let forecast = forecast(&cluster.world, &applied.collect::<Vec<_>>());
    let changes = forecast.switches.iter().map(|switch| (&*switch.name, &switch.vrfs, &switch.routed));
    let vrfs = BTreeMap::from([("v".to_owned(), Action::Create)]);
    let addresses = vec!["10.1.0.1/24".into()];
    let routed = RoutedForecast { act: Action::Create, vrf: "v".into(), addresses };
    let (routed, nothing) = (BTreeMap::from([(vid(), routed)]), BTreeMap::new());
    let none = BTreeMap::new();
    let expected = [
        ("gw", &vrfs, &routed),
        ("leaf1", &none, &nothing),
        ("leaf2", &vrfs, &nothing),
        ("spine1", &none, &nothing),
    ];
    assert_eq!(changes.collect::<Vec<_>>(), expected);
    let gateway = &forecast.switches[0];
    assert!(gateway.make.is_empty(), "a router has sub-interfaces and no VLANs");
    assert_eq!(gateway.ports["e1"].add.to_string(), "100");
}

#[test]
fn dump_keeps_vrfs_whole() {
    for (_, value) in gateway().into_iter().chain([vrf_attachment("gw")]) {
        let object: kube::api::DynamicObject = serde_json::from_value(value).expect("an object");
        let kept = redact::object(&object).expect("an object");
        assert_eq!(kept.data["spec"], object.data["spec"]);
    }
}
