//! The same BGP instance in every dialect that has BGP.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::accessors::merge_xml;
use super::tests::{assert_refused, hardware};
use super::*;
use crate::bgp_sessions::{self, BgpQuery, Sessions, Shown};
use crate::model::tree::Container;

/// XML of BGP in one dialect: `session` has the VRF `blue` with the AS 65000 and the neighbour 10.7.0.1 of the AS 65001
/// with all settings, and the policies `take` and `announce`.
struct BgpXml {
    dialect: &'static str,
    /// The VRF with this text in the place of the neighbour's import policy.
    vrf: fn(import: &str) -> String,
    /// The policies, with this text in the place of the prefix set that `take` names.
    policies: fn(set: &str) -> String,
    /// The VRF whose neighbours of 10.7.0.0/24 come by themselves.
    dynamic: fn() -> String,
}

const OC_NI: &str = "http://openconfig.net/yang/network-instance";
const OC_POLICY: &str = "http://openconfig.net/yang/routing-policy";
const OC_BGP_POLICY: &str = "http://openconfig.net/yang/bgp-policy";

fn openconfig_bgp(global: &str, content: &str) -> String {
    let keys =
        "<identifier xmlns:p=\"http://openconfig.net/yang/policy-types\">p:BGP</identifier><name>B</name>";
    format!(
        "<network-instances xmlns=\"{OC_NI}\"><network-instance><name>blue</name><config><name>blue</name><type \
         xmlns:t=\"http://openconfig.net/yang/network-instance-types\">t:L3VRF</type></config><protocols><protocol>\
         {keys}<config>{keys}</config><bgp><global><config><as>65000</as></config>{global}</global>{content}</bgp>\
         </protocol></protocols></network-instance></network-instances>"
    )
}

/// A group with all settings.
fn openconfig_group(import: &str) -> String {
    let family =
        "<afi-safi-name xmlns:t=\"http://openconfig.net/yang/bgp-types\">t:IPV4_UNICAST</afi-safi-name>";
    format!(
        "<peer-groups><peer-group><peer-group-name>g</peer-group-name><config><peer-group-name>g</peer-group-name>\
         <peer-as>65001</peer-as><local-as>64999</local-as><auth-password>secret</auth-password></config><timers>\
         <config><hold-time>9</hold-time><keepalive-interval>3</keepalive-interval></config></timers><apply-policy>\
         <config><import-policy>{import}</import-policy><export-policy>announce</export-policy></config></apply-policy>\
         <afi-safis><afi-safi>{family}<config>{family}<enabled>true</enabled></config><ipv4-unicast><prefix-limit>\
         <config><max-prefixes>10</max-prefixes></config></prefix-limit></ipv4-unicast></afi-safi></afi-safis>\
         <enable-bfd><config><enabled>true</enabled><desired-minimum-tx-interval>300000</desired-minimum-tx-interval>\
         <required-minimum-receive>300000</required-minimum-receive><detection-multiplier>4</detection-multiplier>\
         </config></enable-bfd></peer-group></peer-groups>"
    )
}

fn openconfig_vrf(import: &str) -> String {
    let neighbor = "<neighbors><neighbor><neighbor-address>10.7.0.1</neighbor-address><config>\
        <neighbor-address>10.7.0.1</neighbor-address><peer-group>g</peer-group></config></neighbor></neighbors>";
    openconfig_bgp("", &(openconfig_group(import) + neighbor))
}

fn openconfig_dynamic() -> String {
    let global = "<dynamic-neighbor-prefixes><dynamic-neighbor-prefix><prefix>10.7.0.0/24</prefix><config>\
        <prefix>10.7.0.0/24</prefix><peer-group>g</peer-group></config></dynamic-neighbor-prefix>\
        </dynamic-neighbor-prefixes>";
    openconfig_bgp(global, &openconfig_group("take"))
}

fn openconfig_policies(set: &str) -> String {
    let prefix_set = |name: &str, prefix: &str, range: &str| {
        format!(
            "<prefix-set><name>{name}</name><config><name>{name}</name></config><prefixes><prefix>\
             <ip-prefix>{prefix}</ip-prefix><masklength-range>{range}</masklength-range><config>\
             <ip-prefix>{prefix}</ip-prefix><masklength-range>{range}</masklength-range></config></prefix></prefixes>\
             </prefix-set>"
        )
    };
    let policy = |name: &str, set: &str, action: &str| {
        format!(
            "<policy-definition><name>{name}</name><config><name>{name}</name></config><statements><statement>\
             <name>those</name><config><name>those</name></config><conditions><match-prefix-set><config>\
             <prefix-set>{set}</prefix-set></config></match-prefix-set></conditions><actions><config>\
             <policy-result>ACCEPT_ROUTE</policy-result></config>{action}</actions></statement><statement>\
             <name>rest</name><config><name>rest</name></config><actions><config>\
             <policy-result>REJECT_ROUTE</policy-result></config></actions></statement></statements></policy-definition>"
        )
    };
    let community = format!(
        "<bgp-actions xmlns=\"{OC_BGP_POLICY}\"><set-community><config><method>REFERENCE</method>\
         <options>ADD</options></config><reference><config><community-set-refs>c</community-set-refs></config>\
         </reference></set-community></bgp-actions>"
    );
    format!(
        "<routing-policy xmlns=\"{OC_POLICY}\"><defined-sets><prefix-sets>{}{}</prefix-sets>\
         <bgp-defined-sets xmlns=\"{OC_BGP_POLICY}\"><community-sets><community-set><community-set-name>c\
         </community-set-name><config><community-set-name>c</community-set-name><community-member>65000:100\
         </community-member></config></community-set></community-sets></bgp-defined-sets></defined-sets>\
         <policy-definitions>{}{}</policy-definitions></routing-policy>",
        prefix_set("taken", "10.20.0.0/16", "16..32"),
        prefix_set("announced", "198.51.100.0/24", "exact"),
        policy("take", set, &community),
        policy("announce", "announced", "")
    )
}

const JC: &str = "http://yang.juniper.net/junos-qfx/conf";

fn junos_instance(group: &str, import: &str) -> String {
    format!(
        "<configuration xmlns=\"{JC}/root\"><routing-instances xmlns=\"{JC}/routing-instances\"><instance>\
         <name>blue</name><instance-type>virtual-router</instance-type><routing-options><autonomous-system>\
         <as-number>65000</as-number></autonomous-system></routing-options><protocols><bgp><group><name>g</name>\
         <type>external</type><hold-time>9</hold-time><import>{import}</import><export>announce</export><family><inet>\
         <unicast><accepted-prefix-limit><maximum>10</maximum><teardown/></accepted-prefix-limit></unicast></inet>\
         </family><authentication-key>secret</authentication-key><peer-as>65001</peer-as><local-as>\
         <as-number>64999</as-number></local-as><bfd-liveness-detection><minimum-interval>300</minimum-interval>\
         <multiplier>4</multiplier></bfd-liveness-detection>{group}</group></bgp></protocols></instance>\
         </routing-instances></configuration>"
    )
}

fn junos_vrf(import: &str) -> String {
    junos_instance("<neighbor><name>10.7.0.1</name></neighbor>", import)
}

fn junos_dynamic() -> String {
    junos_instance("<allow>10.7.0.0/24</allow>", "take")
}

fn junos_policies(list: &str) -> String {
    let policy = |name: &str, from: &str, then: &str| {
        format!(
            "<policy-statement><name>{name}</name><term><name>those</name><from>{from}</from><then>{then}<accept/>\
             </then></term><then><reject/></then></policy-statement>"
        )
    };
    let community = "<community><choice-ident>add</choice-ident><choice-value/><community-name>c</community-name>\
        </community>";
    let from = format!(
        "<prefix-list-filter><list_name>{list}</list_name><choice-ident>orlonger</choice-ident><choice-value/>\
         </prefix-list-filter>"
    );
    let exact = "<route-filter><address>198.51.100.0/24</address><choice-ident>exact</choice-ident><choice-value/>\
        </route-filter>";
    format!(
        "<configuration xmlns=\"{JC}/root\"><policy-options xmlns=\"{JC}/policy-options\"><prefix-list>\
         <name>taken</name><prefix-list-item><name>10.20.0.0/16</name></prefix-list-item></prefix-list>{}{}<community>\
         <name>c</name><members>65000:100</members></community></policy-options></configuration>",
        policy("take", &from, community),
        policy("announce", exact, "")
    )
}

const SRL: &str = "urn:nokia.com:srlinux";

fn srlinux_instance(content: &str, import: &str) -> String {
    let family = format!("<afi-safi-name xmlns:c=\"{SRL}:general:common\">c:ipv4-unicast</afi-safi-name>");
    format!(
        "<interface xmlns=\"{SRL}:chassis:interfaces\"><name>ethernet-1/1</name>\
         <vlan-tagging xmlns=\"{SRL}:chassis:interfaces-vlans\">true</vlan-tagging><subinterface><index>100</index><type \
         xmlns:t=\"{SRL}:chassis:interfaces\">t:routed</type><ipv4><admin-state>enable</admin-state><address>\
         <ip-prefix>10.7.0.254/24</ip-prefix></address></ipv4></subinterface></interface>\
         <bfd xmlns=\"{SRL}:bfd:bfd\"><subinterface><id>ethernet-1/1.100</id><admin-state>enable</admin-state>\
         <desired-minimum-transmit-interval>300000</desired-minimum-transmit-interval>\
         <required-minimum-receive>300000</required-minimum-receive><detection-multiplier>4</detection-multiplier>\
         </subinterface></bfd><network-instance xmlns=\"{SRL}:net-inst:network-instance\"><name>blue</name><type \
         xmlns:t=\"{SRL}:net-inst:network-instance\">t:ip-vrf</type><interface><name>ethernet-1/1.100</name></interface>\
         <protocols><bgp xmlns=\"{SRL}:bgp:bgp\"><autonomous-system>65000</autonomous-system>\
         <router-id>10.7.0.254</router-id><afi-safi>{family}<admin-state>enable</admin-state></afi-safi><group>\
         <group-name>g</group-name><import-policy>{import}</import-policy><export-policy>announce</export-policy>\
         <peer-as>65001</peer-as><authentication><password>secret</password></authentication><failure-detection>\
         <enable-bfd>true</enable-bfd></failure-detection><afi-safi>{family}<ipv4-unicast><prefix-limit-received>\
         <max-received-routes>10</max-received-routes></prefix-limit-received></ipv4-unicast></afi-safi><local-as>\
         <as-number>64999</as-number></local-as><timers><hold-time>9</hold-time>\
         <keepalive-interval>3</keepalive-interval></timers></group>{content}</bgp></protocols></network-instance>"
    )
}

fn srlinux_vrf(import: &str) -> String {
    let neighbor = "<neighbor><peer-address>10.7.0.1</peer-address><peer-group>g</peer-group></neighbor>";
    srlinux_instance(neighbor, import)
}

fn srlinux_dynamic() -> String {
    let accept = "<dynamic-neighbors><accept><match><prefix>10.7.0.0/24</prefix><allowed-peer-as>65001</allowed-peer-as>\
        <peer-group>g</peer-group></match></accept></dynamic-neighbors>";
    srlinux_instance(accept, "take")
}

fn srlinux_policies(set: &str) -> String {
    let prefix_set = |name: &str, prefix: &str, range: &str| {
        format!(
            "<prefix-set><name>{name}</name><prefix><ip-prefix>{prefix}</ip-prefix>\
             <mask-length-range>{range}</mask-length-range></prefix></prefix-set>"
        )
    };
    let policy = |name: &str, set: &str, action: &str| {
        format!(
            "<policy><name>{name}</name><default-action><policy-result>reject</policy-result></default-action>\
             <statement><name>those</name><match><prefix-set>{set}</prefix-set></match><action>\
             <policy-result>accept</policy-result>{action}</action></statement></policy>"
        )
    };
    format!(
        "<routing-policy xmlns=\"{SRL}:plcy:routing-policy\">{}{}<community-set><name>c</name><member>65000:100</member>\
         </community-set>{}{}</routing-policy>",
        prefix_set("taken", "10.20.0.0/16", "16..32"),
        prefix_set("announced", "198.51.100.0/24", "exact"),
        policy("take", set, "<bgp><communities><add>c</add></communities></bgp>"),
        policy("announce", "announced", "")
    )
}

const ALL: [BgpXml; 3] = [
    BgpXml {
        dialect: "openconfig",
        vrf: openconfig_vrf,
        policies: openconfig_policies,
        dynamic: openconfig_dynamic,
    },
    BgpXml { dialect: "junos", vrf: junos_vrf, policies: junos_policies, dynamic: junos_dynamic },
    BgpXml { dialect: "srlinux", vrf: srlinux_vrf, policies: srlinux_policies, dynamic: srlinux_dynamic },
];

fn configured(dialect: &'static Dialect, xml: &str) -> Container {
    let hardware = hardware(dialect);
    let config = merge_xml(dialect.roots, &(dialect.factory)(&hardware), xml);
    assert_eq!((dialect.check)(&config, &hardware), [], "{}", dialect.name);
    config
}

fn blue(dialect: &'static Dialect, config: &Container) -> BgpView {
    let view = (dialect.view)(config, &hardware(dialect));
    view.bgp.get("blue").cloned().unwrap_or_else(|| panic!("{}: no BGP", dialect.name))
}

/// The communities that a route gets, if the rules let it through.
fn passes(rules: &[PolicyRule], prefix: &str, source: RouteSource) -> Option<Vec<String>> {
    let prefix: ipnet::IpNet = prefix.parse().expect(prefix);
    let is_in = |range: &PrefixRange| {
        range.prefix.contains(&prefix) && (range.min..=range.max).contains(&prefix.prefix_len())
    };
    let mut communities = BTreeSet::new();
    for rule in rules {
        let matches = rule.prefixes.as_ref().is_none_or(|ranges| ranges.iter().any(is_in) != rule.except);
        if !matches || !(rule.sources.is_empty() || rule.sources.contains(&source)) {
            continue;
        }
        communities.extend(rule.communities.iter().cloned());
        match rule.result {
            PolicyResult::Accept => return Some(communities.into_iter().collect()),
            PolicyResult::Reject => return None,
            PolicyResult::Continue => {}
        }
    }
    None
}

#[test]
fn sessions_are_the_same_in_every_dialect() {
    for BgpXml { dialect, vrf, policies, dynamic } in ALL {
        let dialect = Dialect::named(dialect).expect(dialect);
        let name = dialect.name;
        let bgp = blue(dialect, &configured(dialect, &(policies("taken") + &vrf("take"))));
        assert_eq!(bgp.asn, 65000, "{name}");
        let address: IpAddr = "10.7.0.1".parse().expect("an address");
        let BgpNeighbourView { ipv4, .. } = &bgp.neighbours[&address];
        let family = ipv4.clone().unwrap_or_else(|| panic!("{name}: no family"));
        let expected = BgpNeighbourView {
            group: Some("g".to_owned()),
            peer_as: Some(65001),
            local_as: Some(64999),
            password: Some("secret".to_owned()),
            hold_time: 9,
            keepalive_time: 3,
            bfd: Some(BfdView { transmit_interval: 300, receive_interval: 300, detect_multiplier: 4 }),
            ipv4: Some(family.clone()),
            ..BgpNeighbourView::default()
        };
        assert_eq!(bgp.neighbours[&address], expected, "{name}");
        let maximum = family.maximum_prefixes.expect("a maximum");
        assert_eq!((maximum.number, maximum.warning_only), (10, false), "{name}");
        // SR Linux counts what it receives.
        assert_eq!(maximum.received, name == "srlinux");
        let taken = |prefix| passes(&family.import, prefix, RouteSource::Bgp);
        let marked = Some(vec!["65000:100".to_owned()]);
        assert_eq!([taken("10.20.0.0/16"), taken("10.20.0.1/32")], [marked.clone(), marked], "{name}");
        assert_eq!(
            [taken("10.0.0.0/8"), taken("172.16.0.0/24"), taken("::/0")],
            [None, None, None],
            "{name}"
        );
        let announced = |prefix, source| passes(&family.export, prefix, source);
        for source in [RouteSource::Connected, RouteSource::Static, RouteSource::Bgp] {
            assert_eq!(announced("198.51.100.0/24", source), Some(Vec::new()), "{name}");
            assert_eq!(announced("198.51.100.1/32", source), None, "{name}");
            assert_eq!(announced("10.7.0.0/24", source), None, "{name}");
        }

        let bgp = blue(dialect, &configured(dialect, &(policies("taken") + &dynamic())));
        let network = "10.7.0.0/24".parse().expect("a network");
        assert!(bgp.neighbours.is_empty(), "{name}");
        let neighbour = &bgp.dynamic_neighbours[&network];
        assert_eq!(
            (neighbour.peer_as, neighbour.password.as_deref()),
            (Some(65001), Some("secret")),
            "{name}"
        );
    }
}

#[test]
fn policies_and_sets_that_do_not_exist_are_refused() {
    for BgpXml { dialect, vrf, policies, .. } in ALL {
        let dialect = Dialect::named(dialect).expect(dialect);
        let cases = [
            ("accepted", policies("taken") + &vrf("take"), None),
            ("no import policy", policies("taken") + &vrf("nothing"), Some("nothing")),
            ("no policies", vrf("take"), Some("take")),
            ("no set", policies("nowhere") + &vrf("take"), Some("nowhere")),
        ];
        assert_refused(dialect, &cases);
    }
}

#[test]
fn sessions_wait_for_their_neighbours_without_a_data_plane() {
    for BgpXml { dialect, vrf, policies, .. } in ALL {
        let dialect = Dialect::named(dialect).expect(dialect);
        let config = configured(dialect, &(policies("taken") + &vrf("take")));
        let support = dialect.bgp.expect("it has BGP");
        let sessions = bgp_sessions::complete(&(support.instances)(&config), &Sessions::new(), false);
        let shown = match support.shown {
            Shown::State(add) => {
                let mut data = (dialect.operational)(&config, &hardware(dialect));
                add(&mut data, &sessions);
                let mut out = String::new();
                data.write_xml(dialect.roots, "", &mut out);
                out
            }
            Shown::Operations(names, write) => {
                let of = |instance: &str| BgpQuery {
                    operation: names[0],
                    instance: Some(instance.to_owned()),
                    neighbour: None,
                };
                assert!(!write(&of("red"), &sessions).contains("10.7.0.1"));
                write(&of("blue"), &sessions)
            }
        };
        let state = ["<session-state>ACTIVE<", "<peer-state>Active<", "<session-state>active<"];
        assert!(shown.contains("10.7.0.1") && state.iter().any(|state| shown.contains(state)), "{shown}");
    }
}
