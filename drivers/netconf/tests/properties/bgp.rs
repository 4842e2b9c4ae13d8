//! BGP groups in VRFs: for each dialect that has them, one edit reaches the desired state, a second plan is empty, what
//! others have stays, and the removal of all leaves the device as it was.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use eno_driver_netconf::plan::{Exclusions, Password, Passwords, Plan, Routing, plan};
use eno_schemas::{Applied, Bfd, BgpGroup, FabricDesired, Item};
use ipnet::IpNet;
use proptest::prelude::*;

use crate::common::with_port_memory;
use crate::properties::check;
use crate::properties::device::{self, Node};
use crate::properties::routing::{
    Foreign, ForeignVrf, JUNOS, Led, OPENCONFIG, SRLINUX, Subject, any_foreign, any_led, desired,
};

/// The owner of a group by its number.
fn owner(number: u8) -> String {
    format!("BGPSessionGroup/g{number}")
}

fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

/// The address of a worker.
fn worker(is_v6: bool, host: u8) -> IpAddr {
    if is_v6 { format!("2001:db8:1::{host}") } else { format!("10.1.0.{host}") }.parse().unwrap()
}

prop_compose! {
    fn any_group()(
        vrf in "[xy]",
        local_as in prop_oneof![3 => Just(64512_u32), 1 => Just(64600)],
        neighbours in prop::collection::btree_set((any::<bool>(), 1_u8..5), 0..4),
        networks in prop::collection::btree_set(prop_oneof![Just("10.2.0.0/16"), Just("2001:db8:2::/64")], 0..2),
        hold_time in prop_oneof![Just(90_u16), Just(9)],
        options in any::<[bool; 3]>(),
        accept in prop::collection::btree_set(prop_oneof![Just("203.0.113.0/24"), Just("2001:db8:9::/48"), Just("192.0.2.7/32")], 1..3),
        announce in prop::collection::btree_set(prop_oneof![Just("0.0.0.0/0"), Just("::/0")], 0..2),
        communities in prop::collection::btree_set(prop_oneof![Just("65000:1"), Just("65000:2")], 0..3),
    ) -> (String, BgpGroup) {
        let [bfd, graceful_restart, maximum] = options;
        let nets = |texts: BTreeSet<&str>| texts.into_iter().map(net).collect::<BTreeSet<IpNet>>().into_iter().collect();
        let neighbours: BTreeSet<IpAddr> = neighbours.into_iter().map(|(is_v6, host)| worker(is_v6, host)).collect();
        (vrf, BgpGroup {
            owner: String::new(),
            local_as,
            peer_as: 64513,
            neighbours: neighbours.into_iter().collect(),
            dynamic_neighbours: nets(networks),
            hold_time,
            keepalive_time: hold_time / 3,
            bfd: bfd.then_some(Bfd { receive_interval: 300, transmit_interval: 400, detect_multiplier: 3 }),
            graceful_restart: graceful_restart.then_some(120),
            password: None,
            maximum_prefixes: maximum.then_some(100),
            accept: nets(accept),
            announce: nets(announce),
            communities: communities.into_iter().map(str::to_owned).collect(),
        })
    }
}

type Groups = BTreeMap<u8, (String, BgpGroup)>;

fn any_state() -> impl Strategy<Value = (BTreeMap<u16, Led>, Groups)> {
    let groups = prop::collection::btree_map(0_u8..3, any_group(), 0..3);
    (prop::collection::btree_map(1_u16..4, any_led(), 0..3), groups)
}

/// The desired state with these groups in their VRFs.
fn with_groups(mut desired: FabricDesired, groups: &Groups) -> FabricDesired {
    for (number, (vrf, group)) in groups {
        let vrf = desired.vrfs.iter_mut().find(|own| own.name == *vrf).expect("a VRF");
        vrf.bgp.push(BgpGroup { owner: owner(*number), ..group.clone() });
    }
    desired
}

/// BGP of others in a VRF: an instance with an AS, and a group with a neighbour.
#[derive(Clone, Debug)]
struct ForeignBgp {
    has_our_as: bool,
    has_neighbour: bool,
}

fn any_foreign_bgp() -> impl Strategy<Value = ForeignBgp> {
    let any = (any::<bool>(), any::<bool>());
    // A bare instance with our AS can't be told from ours.
    any.prop_map(|(our_as, neighbour)| ForeignBgp {
        has_our_as: our_as && neighbour,
        has_neighbour: neighbour,
    })
}

impl ForeignBgp {
    fn number(&self) -> u32 {
        if self.has_our_as { 64512 } else { 65000 }
    }
}

/// A dialect, and how others write BGP in a VRF, and policies.
struct BgpSubject {
    subject: Subject,
    foreign: fn(vrf: &str, bgp: &ForeignBgp) -> String,
    policies: &'static str,
}

impl BgpSubject {
    fn start(&self, foreign: &Foreign, bgp: Option<&ForeignBgp>) -> Vec<Node> {
        let mut nodes = Node::read(&(self.subject.device)(foreign));
        if let Some(bgp) = bgp {
            for vrf in foreign.vrfs.keys() {
                nodes = device::apply(&nodes, &(self.foreign)(vrf, bgp), self.subject.model);
            }
        }
        device::apply(&nodes, self.policies, self.subject.model)
    }

    /// Checks histories that end without a group.
    fn check(&self) {
        let histories = prop::collection::vec(any_state(), 1..4);
        let foreign = (any_foreign(), prop::option::of(any_foreign_bgp()));
        check((foreign, histories), |((foreign, bgp), states)| {
            let start = self.start(&foreign, bgp.as_ref());
            let (mut nodes, mut memory) = (start.clone(), None);
            let nothing = (BTreeMap::new(), Groups::new());
            for (at, (vlans, groups)) in states.iter().chain([&nothing]).enumerate() {
                let vrfs =
                    ["x", "y", "z"].map(str::to_owned).into_iter().filter(|_| at < states.len()).collect();
                let wanted = desired(vlans, &vrfs, foreign.is_router, self.subject.one_target);
                let mut wanted = with_groups(wanted, groups);
                if let Some(applied) = &memory {
                    wanted = with_port_memory(wanted, applied);
                }
                let (after, applied) = self.subject.apply(&nodes, &wanted)?;
                (nodes, memory) = (after, Some(applied));
            }
            let canonical = |nodes: &[Node]| device::canonical(nodes, self.subject.model);
            let (end, start) = (canonical(&nodes), canonical(&start));
            prop_assert!(start == end, "was\n{}is\n{}", device::text(&start), device::text(&end));
            Ok(())
        });
    }

    /// A VRF of ours with VLAN 3, on a switch, with a group.
    fn one(&self, change: impl FnOnce(&mut BgpGroup)) -> FabricDesired {
        let led = Led {
            vrf: "x".into(),
            port: 0,
            addresses: [(false, 1), (true, 1)].into(),
            mtu: None,
            routes: BTreeMap::new(),
        };
        let wanted = desired(&[(3, led)].into(), &["x".to_owned()].into(), false, self.subject.one_target);
        let mut group = BgpGroup {
            owner: owner(1),
            local_as: 64512,
            peer_as: 64513,
            neighbours: vec![worker(false, 1), worker(true, 1)],
            dynamic_neighbours: vec![net("10.2.0.0/16")],
            hold_time: 9,
            keepalive_time: 3,
            bfd: None,
            graceful_restart: Some(120),
            password: None,
            maximum_prefixes: Some(100),
            accept: vec![net("192.0.2.7/32"), net("203.0.113.0/24"), net("2001:db8:9::/48")],
            announce: vec![net("0.0.0.0/0")],
            communities: vec!["65000:1".into()],
        };
        change(&mut group);
        with_groups(wanted, &[(1, ("x".to_owned(), group))].into())
    }

    fn empty(&self) -> Vec<Node> {
        let (vrfs, interfaces) = (BTreeMap::new(), BTreeSet::new());
        self.start(&Foreign { vrfs, interfaces, is_router: false, is_flexible: false }, None)
    }

    fn plan(&self, nodes: &[Node], wanted: &FabricDesired) -> Plan {
        plan(&self.subject.parse(nodes), wanted, &Exclusions::default())
    }

    fn rendered(&self, nodes: &[Node], wanted: &FabricDesired) -> String {
        let observed = self.subject.parse(nodes);
        let planned = plan(&observed, wanted, &Exclusions::default());
        assert_eq!(planned.rejected, []);
        self.subject.dialect.render(&observed, &planned.changes).to_string()
    }

    /// Compares the edit of one group in an existing VRF, in lines, with one that was checked against the model by hand.
    fn check_edit(&self, golden: &str) {
        let mut wanted = self.one(|group| {
            let bfd = Bfd { receive_interval: 300, transmit_interval: 400, detect_multiplier: 5 };
            group.bfd = Some(bfd).filter(|_| self.subject.dialect.name() != "srlinux");
        });
        let groups = std::mem::take(&mut wanted.vrfs[0].bgp);
        let (nodes, _) = self.subject.apply(&self.empty(), &wanted).unwrap();
        wanted.vrfs[0].bgp = groups;
        let edit = self.rendered(&nodes, &wanted).replace("><", ">\n<");
        assert_eq!(edit, golden.trim_end(), "{edit}");
    }

    /// A neighbour of others with an address of ours is named, and all stays as it is.
    fn check_foreign_neighbour(&self) {
        let mut vrfs = BTreeMap::new();
        vrfs.insert("x".to_owned(), ForeignVrf { is_wanted: true, has_route: false, settings: 0 });
        let foreign = Foreign { vrfs, interfaces: BTreeSet::new(), is_router: false, is_flexible: false };
        let bgp = ForeignBgp { has_our_as: false, has_neighbour: true };
        let start = self.start(&foreign, Some(&bgp));
        let planned = self.plan(&start, &self.one(|_| ()));
        let reasons: Vec<_> = planned.rejected.iter().map(|one| (one.item.clone(), &*one.reason)).collect();
        let reason = "VRF x has a neighbour 10.1.0.1 already that is not ENO's";
        assert_eq!(reasons, [(Item::bgp("x", "BGPSessionGroup/g1"), reason)]);
        assert_eq!(planned.changes.routing.bgp.groups, BTreeMap::new());
        // Another address is none of theirs, and the AS is that of the neighbours only.
        let other = self.one(|group| group.neighbours = vec![worker(false, 2)]);
        let edit = self.rendered(&start, &other);
        assert!(edit.contains(">64512<") && !edit.contains("65000<"), "{edit}");
    }

    /// What somebody changes in a group is written again, and nothing else.
    fn check_drift(&self, edits: &[&str]) {
        let wanted = self.one(|_| ());
        let (made, applied) = self.subject.apply(&self.empty(), &wanted).unwrap();
        let wanted = with_port_memory(wanted, &applied);
        assert!(self.plan(&made, &wanted).changes.is_empty());
        for edit in edits {
            let changed = device::apply(&made, edit, self.subject.model);
            assert_ne!(
                device::canonical(&changed, self.subject.model),
                device::canonical(&made, self.subject.model)
            );
            let planned = self.plan(&changed, &wanted);
            let units: Vec<_> = planned.changes.units().into_iter().collect();
            assert_eq!(format!("{units:?}"), "[Bgp(\"eno-c1-g1\")]", "{edit}");
            let (repaired, applied) = self.subject.apply(&changed, &wanted).unwrap();
            let Applied::Fabric { bgp, .. } = applied else { unreachable!() };
            assert!(bgp.contains_key(&owner(1)));
            let canonical = |nodes: &[Node]| device::text(&device::canonical(nodes, self.subject.model));
            assert_eq!(canonical(&repaired), canonical(&made), "{edit}");
        }
    }

    /// A password is written once, and again when it changes. It is in no `Debug`, and goes with the wish for one.
    fn check_password(&self) {
        let wanted = self.one(|group| group.password = Some("bgp".into()));
        let planned = |nodes: &[Node], text: &str, is_unwritten: bool| {
            let mut observed = self.subject.parse(nodes);
            let Routing::Read(read) = &mut observed.routing else { unreachable!() };
            let password = Password { text: text.to_owned().into(), is_unwritten };
            read.bgp.as_mut().unwrap().passwords = Passwords([(owner(1), Ok(password))].into());
            let planned = plan(&observed, &wanted, &Exclusions::default());
            assert!(!format!("{planned:?} {observed:?}").contains("s3cret"));
            (self.subject.dialect.render(&observed, &planned.changes).to_string(), planned)
        };
        let (edit, first) = planned(&self.empty(), "s3cret&1", true);
        assert_eq!((first.rejected, edit.matches("s3cret&amp;1").count()), (vec![], 1), "{edit}");
        let made = device::apply(&self.empty(), &edit, self.subject.model);
        // The device shows it otherwise.
        let shown = device::reply(&made).replace("s3cret&amp;1", "$9$abc");
        let shown = Node::read(&shown)[0].children[0].children.clone();
        let bgp = |planned: Plan| planned.changes.routing.bgp;
        assert!(bgp(planned(&shown, "s3cret&1", false).1).is_empty());
        let (edit, again) = planned(&shown, "s3cret&2", true);
        assert!(edit.contains("s3cret&amp;2"));
        assert_eq!(again.changes.routing.bgp.groups["eno-c1-g1"].set.len(), 1);
        let without = self.one(|_| ());
        let edit = self.rendered(&shown, &without);
        assert!(edit.contains("replace") && !edit.contains("s3cret"), "{edit}");
        // A password that can't be read leaves all as it is.
        let mut observed = self.subject.parse(&self.empty());
        if let Routing::Read(read) = &mut observed.routing {
            read.bgp.as_mut().unwrap().passwords =
                Passwords([(owner(1), Err("no Secret".to_owned()))].into());
        }
        let refused = plan(&observed, &wanted, &Exclusions::default());
        assert_eq!(&*refused.rejected[0].reason, "no Secret");
        assert!(refused.changes.routing.bgp.is_empty());
    }
}

const OPENCONFIG_BGP: BgpSubject = BgpSubject {
    subject: OPENCONFIG,
    foreign: |vrf, bgp| {
        let neighbours = "<neighbors><neighbor><neighbor-address>10.1.0.1</neighbor-address><config><neighbor-address>\
             10.1.0.1</neighbor-address><peer-group>mine</peer-group></config></neighbor></neighbors><peer-groups>\
             <peer-group><peer-group-name>mine</peer-group-name></peer-group></peer-groups>";
        let key = "<identifier>oc-pol-types:BGP</identifier><name>main</name>";
        format!(
            "<network-instances xmlns=\"http://openconfig.net/yang/network-instance\"><network-instance><name>{vrf}</name>\
             <protocols><protocol>{key}<config>{key}</config><bgp><global><config><as>{}</as></config></global>{}</bgp>\
             </protocol></protocols></network-instance></network-instances>",
            bgp.number(),
            if bgp.has_neighbour { neighbours } else { "" }
        )
    },
    policies: "<routing-policy xmlns=\"http://openconfig.net/yang/routing-policy\"><defined-sets><prefix-sets><prefix-set>\
               <name>mine</name></prefix-set></prefix-sets></defined-sets><policy-definitions><policy-definition>\
               <name>eno-c2-g1-import</name></policy-definition></policy-definitions></routing-policy>",
};

const JUNOS_BGP: BgpSubject = BgpSubject {
    subject: JUNOS,
    foreign: |vrf, bgp| {
        let group = "<protocols><bgp><group><name>mine</name><neighbor><name>10.1.0.1</name></neighbor></group></bgp>\
                     </protocols>";
        format!(
            "<configuration xmlns=\"http://yang.juniper.net/junos-qfx/conf/root\"><routing-instances \
             xmlns=\"http://yang.juniper.net/junos-qfx/conf/routing-instances\"><instance><name>{vrf}</name><routing-options>\
             <autonomous-system><as-number>{}</as-number></autonomous-system></routing-options>{}</instance>\
             </routing-instances></configuration>",
            bgp.number(),
            if bgp.has_neighbour { group } else { "" }
        )
    },
    policies: "<configuration xmlns=\"http://yang.juniper.net/junos-qfx/conf/root\"><policy-options \
               xmlns=\"http://yang.juniper.net/junos-qfx/conf/policy-options\"><policy-statement><name>mine</name>\
               </policy-statement><community><name>eno-c2-g1</name><members>1:1</members></community></policy-options>\
               </configuration>",
};

const SRLINUX_BGP: BgpSubject = BgpSubject {
    subject: SRLINUX,
    foreign: |vrf, bgp| {
        let neighbours = "<group><group-name>mine</group-name></group><neighbor><peer-address>10.1.0.1</peer-address>\
                          <peer-group>mine</peer-group></neighbor>";
        format!(
            "<network-instance xmlns=\"urn:nokia.com:srlinux:net-inst:network-instance\"><name>{vrf}</name><protocols><bgp \
             xmlns=\"urn:nokia.com:srlinux:bgp:bgp\"><autonomous-system>{}</autonomous-system><router-id>192.0.2.250\
             </router-id>{}</bgp></protocols></network-instance>",
            bgp.number(),
            if bgp.has_neighbour { neighbours } else { "" }
        )
    },
    policies: "<routing-policy xmlns=\"urn:nokia.com:srlinux:plcy:routing-policy\"><prefix-set><name>mine</name></prefix-set>\
               <policy><name>eno-c2-g1-import</name></policy></routing-policy>",
};

#[test]
fn openconfig_makes_and_removes_groups() {
    OPENCONFIG_BGP.check();
}

#[test]
fn junos_makes_and_removes_groups() {
    JUNOS_BGP.check();
}

#[test]
fn srlinux_makes_and_removes_groups() {
    SRLINUX_BGP.check();
}

#[test]
fn groups_are_rendered_as_the_models_have_them() {
    OPENCONFIG_BGP.check_edit(include_str!("golden/openconfig-bgp.xml"));
    JUNOS_BGP.check_edit(include_str!("golden/junos-bgp.xml"));
    SRLINUX_BGP.check_edit(include_str!("golden/srlinux-bgp.xml"));
}

#[test]
fn neighbours_of_others_are_left_and_named() {
    for subject in [OPENCONFIG_BGP, JUNOS_BGP, SRLINUX_BGP] {
        subject.check_foreign_neighbour();
    }
}

#[test]
fn passwords_are_written_once_and_never_shown() {
    for subject in [OPENCONFIG_BGP, JUNOS_BGP, SRLINUX_BGP] {
        subject.check_password();
    }
}

#[test]
fn changes_by_others_in_a_group_are_found() {
    let in_protocol = |content: &str| {
        format!(
            "<network-instances xmlns=\"http://openconfig.net/yang/network-instance\"><network-instance><name>x</name>\
             <protocols><protocol><identifier>oc-pol-types:BGP</identifier><name>BGP</name><bgp>{content}</bgp></protocol>\
             </protocols></network-instance></network-instances>"
        )
    };
    let policy = |content: &str| {
        format!(
            "<routing-policy xmlns=\"http://openconfig.net/yang/routing-policy\">{content}</routing-policy>"
        )
    };
    let edits = [
        // The neighbour is shut down, gets another AS, is away, and one is added.
        in_protocol(
            "<neighbors><neighbor><neighbor-address>10.1.0.1</neighbor-address><config><enabled>false</enabled></config>\
             </neighbor></neighbors>",
        ),
        in_protocol(
            "<neighbors><neighbor><neighbor-address>10.1.0.1</neighbor-address><config><peer-as>7</peer-as></config>\
             </neighbor></neighbors>",
        ),
        in_protocol(
            "<neighbors><neighbor nc:operation=\"remove\"><neighbor-address>10.1.0.1</neighbor-address></neighbor></neighbors>",
        ),
        in_protocol(
            "<neighbors><neighbor><neighbor-address>10.1.0.77</neighbor-address><config><peer-group>eno-c1-g1</peer-group>\
             </config></neighbor></neighbors>",
        ),
        in_protocol("<global><config><as>7</as></config></global>"),
        // All is accepted.
        in_protocol(
            "<peer-groups><peer-group><peer-group-name>eno-c1-g1</peer-group-name><apply-policy><config>\
             <default-import-policy>ACCEPT_ROUTE</default-import-policy></config></apply-policy></peer-group></peer-groups>",
        ),
        policy(
            "<defined-sets><prefix-sets><prefix-set><name>eno-c1-g1-accept-ipv4</name><prefixes><prefix><ip-prefix>0.0.0.0/0\
             </ip-prefix><masklength-range>0..32</masklength-range></prefix></prefixes></prefix-set></prefix-sets>\
             </defined-sets>",
        ),
        policy(
            "<policy-definitions><policy-definition><name>eno-c1-g1-import</name><statements><statement><name>all</name>\
             <actions><config><policy-result>ACCEPT_ROUTE</policy-result></config></actions></statement></statements>\
             </policy-definition></policy-definitions>",
        ),
        policy(
            "<policy-definitions><policy-definition nc:operation=\"remove\"><name>eno-c1-g1-export</name>\
             </policy-definition></policy-definitions>",
        ),
    ];
    OPENCONFIG_BGP.check_drift(&edits.each_ref().map(String::as_str));
    let in_group = |content: &str| {
        format!(
            "<configuration xmlns=\"http://yang.juniper.net/junos-qfx/conf/root\"><routing-instances \
             xmlns=\"http://yang.juniper.net/junos-qfx/conf/routing-instances\"><instance><name>x</name><protocols><bgp>\
             {content}</bgp></protocols></instance></routing-instances></configuration>"
        )
    };
    JUNOS_BGP.check_drift(&[
        &in_group("<group><name>eno-c1-g1</name><peer-as>7</peer-as></group>"),
        &in_group("<group><name>eno-c1-g1</name><neighbor><name>10.1.0.77</name></neighbor></group>"),
        &in_group("<group inactive=\"inactive\"><name>eno-c1-g1</name></group>"),
        "<configuration xmlns=\"http://yang.juniper.net/junos-qfx/conf/root\"><policy-options \
         xmlns=\"http://yang.juniper.net/junos-qfx/conf/policy-options\"><policy-statement><name>eno-c1-g1-import</name><term>\
         <name>all</name><then><accept/></then></term></policy-statement></policy-options></configuration>",
    ]);
    SRLINUX_BGP.check_drift(&[
        "<network-instance xmlns=\"urn:nokia.com:srlinux:net-inst:network-instance\"><name>x</name><protocols><bgp \
         xmlns=\"urn:nokia.com:srlinux:bgp:bgp\"><group><group-name>eno-c1-g1</group-name><admin-state>disable</admin-state>\
         </group></bgp></protocols></network-instance>",
        "<routing-policy xmlns=\"urn:nokia.com:srlinux:plcy:routing-policy\"><policy><name>eno-c1-g1-export</name>\
         <default-action><policy-result>accept</policy-result></default-action></policy></routing-policy>",
    ]);
}
