//! VRFs and routed interfaces: for each dialect that has them, one edit reaches the desired state, a second plan is empty,
//! and the removal of all leaves the device as it was.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::net::IpAddr;
use std::sync::Arc;

use eno_driver_netconf::dialect::Dialect;
use eno_driver_netconf::dialect::junos::QFX;
use eno_driver_netconf::dialect::openconfig::OpenConfig;
use eno_driver_netconf::dialect::srlinux::SrLinux;
use eno_driver_netconf::plan::{Exclusions, ObservedConfig, Routing, applied, plan, with_new_port_memory};
use eno_schemas::{
    Applied, Device, DeviceRole, FabricDesired, FabricPort, FabricVlan, FabricVrf, Item, RoutedInterface,
    VlanSet, VrfRoute,
};
use proptest::prelude::*;

use crate::common::{vid, with_port_memory};
use crate::properties::device::{self, Model, Node};
use crate::properties::{EMPTY_INVENTORY, check};

/// The ports of the router, and the VIDs of random states.
const PORTS: [&str; 2] = ["a", "b"];
const VIDS: std::ops::Range<u16> = 1..6;
/// A VID that only others use.
const FOREIGN_VID: u16 = 900;

/// A VRF of others on a device.
#[derive(Clone, Debug)]
pub struct ForeignVrf {
    /// Whether it has the name and the values of the VRF that a command may want.
    pub is_wanted: bool,
    /// Whether it has a static route of others.
    pub has_route: bool,
    /// Which settings of others it has around its static routes, one bit for each.
    pub settings: u8,
}

impl ForeignVrf {
    /// The setting `number`, if it is there.
    fn setting<'a>(&self, number: u8, text: &'a str) -> &'a str {
        if self.settings & (1 << number) == 0 { "" } else { text }
    }
}

/// A device before our first VRF.
#[derive(Clone, Debug)]
pub struct Foreign {
    /// VRFs by name.
    pub vrfs: BTreeMap<String, ForeignVrf>,
    /// VIDs with an interface of others: on a switch beside the VLAN, on a router on port `a`.
    pub interfaces: BTreeSet<u16>,
    /// The role of the device.
    pub is_router: bool,
    /// Ports take frames with tags by a setting that the driver does not make, where the dialect has one.
    pub is_flexible: bool,
}

/// A dialect with VRFs, its model, and how a device of others looks.
pub struct Subject {
    pub dialect: &'static dyn Dialect,
    pub model: &'static Model,
    pub device: fn(&Foreign) -> String,
    /// A VRF has one target in each direction.
    pub one_target: bool,
}

fn values(name: &str, one_target: bool) -> FabricVrf {
    let number = u32::from(name.as_bytes()[0]);
    let is_local = name == "z";
    let target = |part: u32| format!("65000:{}", number * 10 + part);
    let targets: Vec<String> = if one_target { vec![target(1)] } else { vec![target(1), target(2)] };
    FabricVrf {
        name: name.to_owned(),
        owner: format!("VRF/{name}"),
        route_distinguisher: (!is_local).then(|| target(0)),
        import_targets: if is_local { Vec::new() } else { targets },
        export_targets: if is_local { Vec::new() } else { vec![target(1)] },
        bgp: Vec::new(),
    }
}

/// How a VLAN is led into a VRF.
#[derive(Clone, Debug)]
pub struct Led {
    pub vrf: String,
    pub port: usize,
    pub addresses: BTreeSet<(bool, u8)>,
    pub mtu: Option<u32>,
    pub routes: BTreeMap<u8, Option<u8>>,
}

prop_compose! {
    pub fn any_led()(
        vrf in "[xyz]",
        port in 0..PORTS.len(),
        addresses in prop::collection::btree_set((any::<bool>(), 1_u8..4), 1..3),
        mtu in prop::option::of(1400_u32..1500),
        routes in prop::collection::btree_map(0_u8..3, prop::option::of(1_u8..9), 0..2),
    ) -> Led {
        Led { vrf, port, addresses, mtu, routes }
    }
}

/// The address `host` of the network of a VLAN.
fn address(id: u16, is_v6: bool, host: u8) -> IpAddr {
    let text = if is_v6 { format!("2001:db8:{id}::{host}") } else { format!("192.0.{id}.{host}") };
    text.parse().unwrap()
}

fn routed(id: u16, led: &Led) -> RoutedInterface {
    // An address of each family at most.
    let hosts: BTreeMap<bool, u8> = led.addresses.iter().copied().collect();
    let net = |(is_v6, host): (&bool, &u8)| {
        format!("{}/{}", address(id, *is_v6, *host), if *is_v6 { 64 } else { 24 }).parse().unwrap()
    };
    let (is_v6, _) = hosts.first_key_value().unwrap();
    let route = |(number, preference): (&u8, &Option<u8>)| VrfRoute {
        prefix: if *is_v6 { format!("2001:db8:f{number}::/48") } else { format!("10.{number}.0.0/16") }
            .parse()
            .unwrap(),
        next_hop: address(id, *is_v6, 200),
        preference: *preference,
    };
    RoutedInterface {
        vrf: led.vrf.clone(),
        owner: format!("VRFAttachment/{id}"),
        addresses: hosts.iter().map(net).collect(),
        mtu: led.mtu,
        routes: led.routes.iter().map(route).collect(),
    }
}

/// The desired state with these VLANs and VRFs.
pub fn desired(
    vlans: &BTreeMap<u16, Led>,
    vrfs: &BTreeSet<String>,
    is_router: bool,
    one_target: bool,
) -> FabricDesired {
    let role = if is_router { DeviceRole::Router } else { DeviceRole::Switch };
    let on = |port: usize| -> VlanSet {
        vlans.iter().filter(|(_, led)| led.port == port).map(|(id, _)| vid(*id)).collect()
    };
    // Of routes to one prefix in a VRF only the first is wanted: some dialects have no more.
    let mut prefixes = BTreeSet::new();
    let mut first = |routed: &mut RoutedInterface| {
        routed.routes.retain(|route| prefixes.insert((routed.vrf.clone(), route.prefix)));
    };
    let vlan = |(id, led): (&u16, &Led)| {
        let mut routed = routed(*id, led);
        first(&mut routed);
        FabricVlan { routed: Some(Arc::new(routed)), ..FabricVlan::new(vid(*id), vec![]) }
    };
    FabricDesired {
        cluster: "c1".into(),
        cluster_uid: None,
        device: Device { role, ..Device::new("") },
        vrfs: vrfs.iter().map(|name| values(name, one_target)).collect(),
        lookup: None,
        vlans: vlans.iter().map(vlan).collect(),
        ports: PORTS.iter().enumerate().map(|(at, name)| FabricPort::new(*name, on(at))).collect(),
    }
}

pub fn any_foreign() -> impl Strategy<Value = Foreign> {
    let vrf = (prop::bool::weighted(0.7), any::<bool>(), 0_u8..16)
        .prop_map(|(is_wanted, has_route, settings)| ForeignVrf { is_wanted, has_route, settings });
    let vrfs = prop::collection::btree_map("[wx]", vrf, 0..2);
    let interfaces = prop::collection::btree_set(prop_oneof![VIDS, Just(FOREIGN_VID)], 0..3);
    (vrfs, interfaces, any::<bool>(), any::<bool>()).prop_map(|(vrfs, interfaces, is_router, is_flexible)| {
        Foreign { vrfs, interfaces, is_router, is_flexible }
    })
}

fn any_state() -> impl Strategy<Value = (BTreeMap<u16, Led>, BTreeSet<String>)> {
    (
        prop::collection::btree_map(VIDS, any_led(), 0..5),
        prop_oneof![
            2 => Just(["x", "y", "z"].map(str::to_owned).into_iter().collect()),
            1 => prop::collection::btree_set("[xyz]", 0..3)
        ],
    )
}

impl Subject {
    pub fn parse(&self, nodes: &[Node]) -> ObservedConfig {
        let reply = device::reply(nodes);
        let mut observed =
            self.dialect.parse(&reply.clone().into(), &EMPTY_INVENTORY).expect("it reads VLANs");
        observed.vlans.settle("c1");
        let reply = reply.into();
        let mut routing =
            self.dialect.routing().expect("it has VRFs").parse_routing(&reply).expect("it reads VRFs");
        let bgp = self.dialect.bgp().expect("it has BGP").parse_bgp(&reply, "c1");
        routing.bgp = Some(bgp.expect("it reads BGP"));
        observed.routing = Routing::Read(Box::new(routing));
        observed
    }

    /// Applies a desired state in one edit. Also returns the report.
    pub fn apply(
        &self,
        nodes: &[Node],
        desired: &FabricDesired,
    ) -> Result<(Vec<Node>, Applied), TestCaseError> {
        let before = self.parse(nodes);
        let planned = plan(&before, desired, &Exclusions::default());
        let edit = self.dialect.render(&before, &planned.changes).to_string();
        let after_nodes = device::apply(nodes, &edit, self.model);
        let after = self.parse(&after_nodes);
        let again = plan(&after, desired, &Exclusions::default());
        prop_assert!(again.changes.is_empty(), "{:?} is left to do after {}", again.changes, edit);
        let report = applied(&after, &with_new_port_memory(desired, &planned));
        let Applied::Fabric { vrfs, routed, vlans, ports, bgp, .. } = &report else { unreachable!() };
        // A group is rejected with its VRF, which may be there all the same.
        for (vrf, group) in desired.vrfs.iter().flat_map(|vrf| vrf.bgp.iter().map(move |group| (vrf, group)))
        {
            let items = [Item::vrf(&vrf.name), Item::bgp(&vrf.name, &group.owner)];
            let refused = planned.rejected.iter().any(|one| items.contains(&one.item));
            prop_assert_ne!(
                bgp.contains_key(&group.owner),
                refused,
                "{}: {:?}",
                group.owner,
                planned.rejected
            );
        }
        let is_rejected = |item: &Item| planned.rejected.iter().any(|one| one.item == *item);
        for vrf in &desired.vrfs {
            prop_assert_ne!(vrfs.contains(&vrf.name), is_rejected(&Item::vrf(&vrf.name)), "VRF {}", vrf.name);
        }
        for vlan in &desired.vlans {
            let led = vlan.routed.as_ref().expect("it is led into a VRF");
            let refused = is_rejected(&Item::vrf(&led.vrf)) || is_rejected(&Item::routed(&led.vrf, vlan.vid));
            prop_assert_ne!(routed.contains(vlan.vid), refused, "VLAN {}: {:?}", vlan.vid, planned.rejected);
            prop_assert!(refused || vlans.contains(vlan.vid));
            let port = desired.ports.iter().find(|port| port.vlans.contains(vlan.vid)).expect("a port");
            let is_on_port = ports.get(&port.name).is_some_and(|on| on.contains(vlan.vid));
            prop_assert!(refused || is_on_port, "VLAN {} on {}", vlan.vid, port.name);
        }
        Ok((after_nodes, report))
    }

    /// Checks histories that end without a VRF.
    pub fn check(&self) {
        check((any_foreign(), prop::collection::vec(any_state(), 1..4)), |(foreign, states)| {
            let start = Node::read(&(self.device)(&foreign));
            let (mut nodes, mut memory) = (start.clone(), None);
            let nothing = (BTreeMap::new(), BTreeSet::new());
            for (vlans, vrfs) in states.iter().chain([&nothing]) {
                let mut desired = desired(vlans, vrfs, foreign.is_router, self.one_target);
                if let Some(applied) = &memory {
                    desired = with_port_memory(desired, applied);
                }
                let (after, applied) = self.apply(&nodes, &desired)?;
                (nodes, memory) = (after, Some(applied));
                if foreign.is_router {
                    let is_switched = !self.parse(&nodes).vlans.ours("c1").is_empty();
                    prop_assert!(!is_switched, "a router has a VLAN");
                }
            }
            let (end, start) = (device::canonical(&nodes, self.model), device::canonical(&start, self.model));
            prop_assert!(start == end, "was\n{}is\n{}", device::text(&start), device::text(&end));
            Ok(())
        });
    }

    /// Compares the edit of one VRF with one VLAN on an empty device, in lines, with one that was checked against the
    /// model by hand.
    fn check_edit(&self, is_router: bool, golden: &str) {
        let led = Led {
            vrf: "x".into(),
            port: 0,
            addresses: [(false, 1), (true, 1)].into(),
            mtu: Some(1400),
            routes: [(0, Some(5))].into(),
        };
        let (vrfs, interfaces) = (BTreeMap::new(), BTreeSet::new());
        let foreign = Foreign { vrfs, interfaces, is_router, is_flexible: false };
        let observed = self.parse(&Node::read(&(self.device)(&foreign)));
        let desired = desired(&[(5, led)].into(), &["x".to_owned()].into(), is_router, self.one_target);
        let planned = plan(&observed, &desired, &Exclusions::default());
        assert_eq!(planned.rejected, []);
        let edit = self.dialect.render(&observed, &planned.changes).to_string().replace("><", ">\n<");
        assert_eq!(edit, golden.trim_end(), "{edit}");
    }
}

pub const OPENCONFIG: Subject = Subject {
    dialect: &OpenConfig,
    model: &Model {
        lists: &[
            ("vlans/vlan", &["vlan-id"]),
            ("interfaces/interface", &["name|id"]),
            ("network-instance", &["name"]),
            ("subinterfaces/subinterface", &["index"]),
            ("address", &["ip"]),
            ("table-connection", &["src-protocol", "dst-protocol", "address-family"]),
            ("protocol", &["identifier", "name"]),
            ("static", &["prefix"]),
            ("next-hops/next-hop", &["index"]),
            ("peer-groups/peer-group", &["peer-group-name"]),
            ("neighbors/neighbor", &["neighbor-address"]),
            ("dynamic-neighbor-prefix", &["prefix"]),
            ("afi-safis/afi-safi", &["afi-safi-name"]),
            ("prefix-sets/prefix-set", &["name"]),
            ("prefixes/prefix", &["ip-prefix", "masklength-range"]),
            ("policy-definition", &["name"]),
            ("statement", &["name"]),
        ],
        leaf_lists: &[
            "trunk-vlans",
            "import-route-target",
            "export-route-target",
            "import-policy",
            "export-policy",
            "config/communities",
        ],
        choices: &[],
        presence: &[],
        ranges: &[("trunk-vlans", "..")],
    },
    device: openconfig,
    one_target: false,
};

/// The protocols of a VRF of others.
fn openconfig_protocols(vrf: &ForeignVrf) -> String {
    let protocol = |identifier: &str, name: &str, config: &str, content: &str| {
        let key = format!("<identifier>oc-pol-types:{identifier}</identifier><name>{name}</name>");
        format!("<protocol>{key}<config>{key}{config}</config>{content}</protocol>")
    };
    let route = "<static><prefix>10.0.0.0/16</prefix><config><prefix>10.0.0.0/16</prefix></config><next-hops><next-hop>\
                 <index>0</index><config><index>0</index><next-hop>198.51.100.1</next-hop></config></next-hop>\
                 </next-hops></static>";
    let tag = "<static><prefix>10.1.0.0/16</prefix><config><prefix>10.1.0.0/16</prefix><set-tag>7</set-tag></config>\
               </static>";
    let routes = format!(
        "<static-routes>{}{}</static-routes>",
        if vrf.has_route { route } else { "" },
        vrf.setting(0, tag)
    );
    let bgp = protocol("BGP", "65000", "", "");
    // One with the name and the content of ours can't be told from ours.
    let disabled = vrf.setting(1, "<enabled>false</enabled>");
    let name = if disabled.is_empty() { "static" } else { "DEFAULT" };
    let statics = protocol("STATIC", name, disabled, &routes);
    let is_there = vrf.has_route || vrf.settings & 0b1011 != 0;
    format!("<protocols>{}{}</protocols>", vrf.setting(2, &bgp), if is_there { &statics } else { "" })
}

fn openconfig(foreign: &Foreign) -> String {
    let mut xml = String::from(
        "<network-instances xmlns=\"http://openconfig.net/yang/network-instance\"><network-instance>\
         <name>main</name><config><name>main</name><type>x:DEFAULT_INSTANCE</type></config></network-instance>",
    );
    for (name, vrf) in &foreign.vrfs {
        let values = values(name, false);
        let distinguisher =
            if vrf.is_wanted { values.route_distinguisher.unwrap() } else { "1:1".to_owned() };
        let targets = |leaf: &str, targets: &[String]| {
            targets.iter().fold(String::new(), |all, target| all + &format!("<{leaf}>{target}</{leaf}>"))
        };
        write!(
            xml,
            "<network-instance><name>{name}</name><config><name>{name}</name><type>x:L3VRF</type>\
             <description>mine</description><route-distinguisher>{distinguisher}</route-distinguisher></config>\
             <inter-instance-policies><import-export-policy><config>{}{}</config></import-export-policy>\
             </inter-instance-policies>",
            targets("import-route-target", &values.import_targets),
            targets("export-route-target", &values.export_targets)
        )
        .unwrap();
        xml.push_str(&openconfig_protocols(vrf));
        xml.push_str("</network-instance>");
    }
    xml.push_str("</network-instances><interfaces xmlns=\"http://openconfig.net/yang/interfaces\">");
    for name in PORTS {
        write!(
            xml,
            "<interface><name>{name}</name><config><name>{name}</name><type>i:ethernetCsmacd</type></config>"
        )
        .unwrap();
        if name == "a" && foreign.is_router && !foreign.interfaces.is_empty() {
            xml.push_str("<subinterfaces>");
            for id in &foreign.interfaces {
                write!(
                    xml,
                    "<subinterface><index>{id}</index><config><index>{id}</index></config>\
                     <vlan xmlns=\"http://openconfig.net/yang/vlan\"><match><single-tagged><config>\
                     <vlan-id>{id}</vlan-id></config></single-tagged></match></vlan></subinterface>"
                )
                .unwrap();
            }
            xml.push_str("</subinterfaces>");
        }
        xml.push_str("</interface>");
    }
    for id in foreign.interfaces.iter().filter(|_| !foreign.is_router) {
        write!(
            xml,
            "<interface><name>Vlan{id}</name><config><name>Vlan{id}</name><description>mine</description></config>\
             <routed-vlan xmlns=\"http://openconfig.net/yang/vlan\"><config><vlan>{id}</vlan></config></routed-vlan>\
             </interface>"
        )
        .unwrap();
    }
    xml + "</interfaces>"
}

#[test]
fn openconfig_makes_and_removes_vrfs() {
    OPENCONFIG.check();
}

#[test]
fn openconfig_renders_the_model() {
    OPENCONFIG.check_edit(true, include_str!("golden/openconfig-router.xml"));
    OPENCONFIG.check_edit(false, include_str!("golden/openconfig-switch.xml"));
}

pub const JUNOS: Subject = Subject {
    dialect: &QFX,
    model: &Model {
        lists: &[
            ("vlans/vlan", &["name"]),
            ("interface", &["name"]),
            ("unit", &["name"]),
            ("inet/address", &["name"]),
            ("inet6/address", &["name"]),
            ("instance", &["name"]),
            ("route", &["name"]),
            ("rib", &["name"]),
            ("bgp/group", &["name"]),
            ("group/neighbor", &["name"]),
            ("policy-statement", &["name"]),
            ("term", &["name"]),
            ("route-filter", &["address", "choice-ident"]),
            ("policy-options/community", &["name"]),
            ("then/community", &["choice-ident", "community-name"]),
        ],
        leaf_lists: &["members", "next-hop", "group/import", "group/export", "allow"],
        choices: &[],
        presence: &[
            "interface",
            "unit",
            "ethernet-switching",
            "vlan-tagging",
            "flexible-vlan-tagging",
            "vrf-table-label",
            "auto-export",
            "no-readvertise",
            "accept",
            "reject",
            "unicast",
            "teardown",
        ],
        ranges: &[("members", "-")],
    },
    device: junos,
    one_target: true,
};

/// The routing options of a VRF of others.
fn junos_options(name: &str, vrf: &ForeignVrf) -> String {
    let other_rib = format!(
        "<rib><name>{name}.inet6.2</name><static><route><name>2001:db8:f0::/48</name>\
         <next-hop>2001:db8:1::200</next-hop></route></static></rib>"
    );
    let own_rib = format!(
        "<rib><name>{name}.inet6.0</name><aggregate><route><name>2001:db8::/32</name></route></aggregate></rib>"
    );
    let route = "<route><name>10.0.0.0/16</name><next-hop>198.51.100.1</next-hop></route>";
    format!(
        "<routing-options>{}{}{}<static>{}{}{}</static></routing-options>",
        vrf.setting(0, "<router-id>192.0.2.250</router-id><auto-export/>"),
        vrf.setting(1, &other_rib),
        vrf.setting(2, &own_rib),
        vrf.setting(2, "<defaults><no-readvertise/></defaults>"),
        vrf.setting(3, "<route inactive=\"inactive\"><name>10.7.0.0/16</name></route>"),
        if vrf.has_route { route } else { "" },
    )
}

fn junos(foreign: &Foreign) -> String {
    let namespace = |part: &str| format!("http://yang.juniper.net/junos-qfx/conf/{part}");
    let mut xml = format!(
        "<configuration xmlns=\"{}\"><routing-instances xmlns=\"{}\">",
        namespace("root"),
        namespace("routing-instances")
    );
    for (name, vrf) in &foreign.vrfs {
        let values = values(name, true);
        let distinguisher =
            if vrf.is_wanted { values.route_distinguisher.unwrap() } else { "1:1".to_owned() };
        let target = &values.import_targets[0];
        write!(
            xml,
            "<instance><name>{name}</name><instance-type>vrf</instance-type><description>mine</description>\
             <interface><name>lo0.0</name></interface>\
             <route-distinguisher><rd-type>{distinguisher}</rd-type></route-distinguisher>\
             <vrf-target><community>target:{target}</community></vrf-target>"
        )
        .unwrap();
        xml.push_str(&junos_options(name, vrf));
        xml.push_str("</instance>");
    }
    write!(xml, "</routing-instances><interfaces xmlns=\"{}\">", namespace("interfaces")).unwrap();
    for name in PORTS {
        write!(xml, "<interface><name>{name}</name><description>mine</description>").unwrap();
        if name == "a" && foreign.is_router && !foreign.interfaces.is_empty() {
            xml.push_str(if foreign.is_flexible { "<flexible-vlan-tagging/>" } else { "<vlan-tagging/>" });
            for id in &foreign.interfaces {
                write!(xml, "<unit><name>{id}</name><vlan-id>{id}</vlan-id></unit>").unwrap();
            }
        }
        if name == "b" && foreign.is_flexible {
            xml.push_str("<flexible-vlan-tagging/>");
        }
        xml.push_str("</interface>");
    }
    let irbs = foreign.interfaces.iter().filter(|_| !foreign.is_router);
    if irbs.clone().count() > 0 {
        xml.push_str("<interface><name>irb</name>");
        for id in irbs.clone() {
            write!(
                xml,
                "<unit><name>{id}</name><family><inet><address><name>10.9.{0}.1/24</name></address></inet>\
                 </family></unit>",
                id % 256
            )
            .unwrap();
        }
        xml.push_str("</interface>");
    }
    write!(xml, "</interfaces><vlans xmlns=\"{}\">", namespace("vlans")).unwrap();
    for id in irbs.filter(|id| **id == FOREIGN_VID) {
        write!(
            xml,
            "<vlan><name>mine</name><vlan-id>{id}</vlan-id><l3-interface>irb.{id}</l3-interface></vlan>"
        )
        .unwrap();
    }
    xml + "</vlans></configuration>"
}

#[test]
fn junos_makes_and_removes_vrfs() {
    JUNOS.check();
}

#[test]
fn junos_renders_the_model() {
    JUNOS.check_edit(true, include_str!("golden/junos-router.xml"));
    JUNOS.check_edit(false, include_str!("golden/junos-switch.xml"));
}

pub const SRLINUX: Subject = Subject {
    dialect: &SrLinux,
    model: &Model {
        lists: &[
            ("interface", &["name"]),
            ("network-instance", &["name"]),
            ("subinterface", &["index"]),
            ("address", &["ip-prefix"]),
            ("bgp-instance", &["id"]),
            ("route", &["prefix"]),
            ("group", &["name|group-name"]),
            ("nexthop", &["index"]),
            ("bgp/neighbor", &["peer-address"]),
            ("accept/match", &["prefix"]),
            ("afi-safi", &["afi-safi-name"]),
            ("routing-policy/prefix-set", &["name"]),
            ("prefix-set/prefix", &["ip-prefix", "mask-length-range"]),
            ("community-set", &["name"]),
            ("routing-policy/policy", &["name"]),
            ("statement", &["name"]),
        ],
        leaf_lists: &["import-policy", "export-policy", "member", "allowed-peer-as"],
        choices: &[],
        presence: &["untagged", "static-routes", "next-hop-groups", "protocols/bgp"],
        ranges: &[],
    },
    device: srlinux,
    one_target: true,
};

fn srlinux(foreign: &Foreign) -> String {
    const INTERFACES: &str = "urn:nokia.com:srlinux:chassis:interfaces";
    const NETWORK_INSTANCE: &str = "urn:nokia.com:srlinux:net-inst:network-instance";
    let mut xml = String::new();
    for (name, vrf) in &foreign.vrfs {
        let values = values(name, true);
        let distinguisher =
            if vrf.is_wanted { values.route_distinguisher.unwrap() } else { "1:1".to_owned() };
        let target = &values.import_targets[0];
        write!(
            xml,
            "<network-instance xmlns=\"{NETWORK_INSTANCE}\"><name>{name}</name><type>x:ip-vrf</type>\
             <description>mine</description><protocols><bgp-vpn xmlns=\"urn:nokia.com:srlinux:bgp:bgp-vpn\">\
             <bgp-instance><id>1</id><route-distinguisher><rd>{distinguisher}</rd></route-distinguisher><route-target>\
             <export-rt>target:{target}</export-rt><import-rt>target:{target}</import-rt></route-target></bgp-instance>\
             </bgp-vpn></protocols>"
        )
        .unwrap();
        if vrf.has_route {
            xml.push_str(
                "<static-routes xmlns=\"urn:nokia.com:srlinux:static-route:static-routes\"><route>\
                 <prefix>10.0.0.0/16</prefix><next-hop-group>mine</next-hop-group></route>\
                 <route><prefix>10.7.0.0/16</prefix><next-hop-group>mine</next-hop-group></route></static-routes>\
                 <next-hop-groups xmlns=\"urn:nokia.com:srlinux:static-route:next-hop-groups\"><group>\
                 <name>mine</name><nexthop><index>1</index><ip-address>198.51.100.1</ip-address></nexthop></group>\
                 </next-hop-groups>",
            );
        }
        xml.push_str("</network-instance>");
    }
    let tag = |id: u16| {
        format!(
            "<vlan xmlns=\"urn:nokia.com:srlinux:chassis:interfaces-vlans\"><encap><single-tagged>\
             <vlan-id>{id}</vlan-id></single-tagged></encap></vlan>"
        )
    };
    for name in PORTS {
        write!(xml, "<interface xmlns=\"{INTERFACES}\"><name>{name}</name><description>mine</description>")
            .unwrap();
        if name == "a" && foreign.is_router && !foreign.interfaces.is_empty() {
            xml.push_str(
                "<vlan-tagging xmlns=\"urn:nokia.com:srlinux:chassis:interfaces-vlans\">true</vlan-tagging>",
            );
            for id in &foreign.interfaces {
                write!(
                    xml,
                    "<subinterface><index>{id}</index><type>x:routed</type>{}</subinterface>",
                    tag(*id)
                )
                .unwrap();
            }
        }
        xml.push_str("</interface>");
    }
    let irbs = foreign.interfaces.iter().filter(|_| !foreign.is_router);
    if irbs.clone().count() > 0 {
        write!(xml, "<interface xmlns=\"{INTERFACES}\"><name>irb1</name>").unwrap();
        for id in irbs {
            write!(xml, "<subinterface><index>{id}</index><description>mine</description></subinterface>")
                .unwrap();
        }
        xml.push_str("</interface>");
    }
    xml
}

#[test]
fn srlinux_makes_and_removes_vrfs() {
    SRLINUX.check();
}

#[test]
fn srlinux_renders_the_model() {
    SRLINUX.check_edit(true, include_str!("golden/srlinux-router.xml"));
    SRLINUX.check_edit(false, include_str!("golden/srlinux-switch.xml"));
}
