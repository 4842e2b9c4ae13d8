//! BGP of gateways that speak Junos and SR Linux.

use crate::dataplane::bgp::{interpreter, routes, worker};
use crate::dataplane::gateway::{readdress, testbed_of};
use crate::dataplane::teardown::eventually;
use crate::dataplane::testbed::Testbed;

const CONFIGURATION: &str = "http://yang.juniper.net/junos-qfx/conf";

/// The Junos configuration with this content of the group and this content of `policy-options`.
fn junos(group: &str, policies: &str) -> String {
    format!(
        "<configuration xmlns=\"{CONFIGURATION}/root\"><interfaces xmlns=\"{CONFIGURATION}/interfaces\"><interface>\
         <name>xe-0/0/1</name><vlan-tagging/><unit><name>100</name><vlan-id>100</vlan-id><family><inet><address>\
         <name>10.7.0.254/24</name></address></inet></family></unit></interface></interfaces>\
         <policy-options xmlns=\"{CONFIGURATION}/policy-options\">{policies}</policy-options>\
         <routing-instances xmlns=\"{CONFIGURATION}/routing-instances\"><instance><name>blue</name>\
         <instance-type>virtual-router</instance-type><routing-options><autonomous-system><as-number>65000</as-number>\
         </autonomous-system></routing-options><interface><name>xe-0/0/1.100</name></interface><protocols><bgp><group>\
         <name>workers</name>{group}</group></bgp></protocols></instance></routing-instances></configuration>"
    )
}

/// A policy of Junos that lets the prefixes of a route filter through and nothing else.
fn junos_policy(name: &str, prefix: &str, kind: &str, then: &str) -> String {
    format!(
        "<policy-statement><name>{name}</name><term><name>those</name><from><route-filter><address>{prefix}</address>\
         <choice-ident>{kind}</choice-ident><choice-value/></route-filter></from><then>{then}<accept/></then></term>\
         <term><name>rest</name><then><reject/></then></term></policy-statement>"
    )
}

/// An operation of Junos that shows something.
fn operation(name: &str, content: &str) -> String {
    format!("<{name} xmlns=\"urn:ietf:params:xml:ns:netconf:base:1.0\">{content}</{name}>")
}

async fn gateway(dialect: &str) -> Testbed {
    let testbed = testbed_of(dialect).await;
    readdress(&testbed.node1, &["10.7.0.1/24"], &["10.7.0.254"]);
    testbed
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root and FRR: makes network namespaces"]
async fn junos_speaks_bgp_in_a_routing_instance() {
    let (testbed, python) = (gateway("junos").await, interpreter().await);
    let community = "<community><choice-ident>add</choice-ident><choice-value/><community-name>workers\
        </community-name></community>";
    let policies = junos_policy("take", "10.20.0.0/16", "orlonger", community)
        + &junos_policy("announce", "198.51.100.0/24", "exact", "")
        + "<community><name>workers</name><members>65000:100</members></community>";
    let group = |peer_as| {
        format!(
            "<type>external</type><hold-time>9</hold-time><import>take</import><export>announce</export>\
             <family><inet><unicast><accepted-prefix-limit><maximum>1</maximum><teardown/></accepted-prefix-limit>\
             </unicast></inet></family><authentication-key>secret</authentication-key><neighbor><name>10.7.0.1</name>\
             <peer-as>{peer_as}</peer-as></neighbor>"
        )
    };
    testbed.merge_xml("gw1", &junos(&group(65009), &policies)).await;
    let prefixes = ["10.20.0.1/32", "172.16.0.0/24"];
    let worker = worker(&testbed.node1, 65000, &["password secret"], &prefixes);
    let question = operation("get-bgp-neighbor-information", "<instance>blue</instance>");
    let mismatch = "<peer-state>(Idle|Active|Connect|OpenSent)</peer-state><last-error>Open Message Error<";
    testbed.until(&python, "gw1", &question, mismatch).await;
    testbed.merge_xml("gw1", &junos(&group(65001), "")).await;
    let up = "<peer-address>10.7.0.1\\+179<.*<peer-state>Established<.*<name>blue.inet.0</name>\
        <active-prefix-count>1<.*<advertised-prefix-count>1<";
    testbed.until(&python, "gw1", &question, up).await;
    eventually("it is not announced", || worker.learnt("ipv4") == ["198.51.100.0/24"]).await;
    eventually("there is no route", || routes(&testbed, "-4", "10.20.0.1").contains("10.7.0.1")).await;
    assert_eq!(routes(&testbed, "-4", "172.16.0.0/24"), "");
    let question = operation("get-bgp-summary-information", "");
    let summary = testbed.until(&python, "gw1", &question, "<elapsed-time junos:seconds=\"\\d+\">").await;
    assert!(summary.contains("<down-peer-count>0<"), "{summary}");

    // The maximum counts what is taken.
    worker.configure(&["router bgp 65001", "address-family ipv4 unicast", "network 10.20.0.2/32"]);
    let question = operation("get-bgp-neighbor-information", "<neighbor-address>10.7.0.1</neighbor-address>");
    testbed.until(&python, "gw1", &question, "<peer-state>Idle</peer-state><last-error>Cease<").await;
    testbed.fabric.shutdown().await;
}

/// The SR Linux configuration with this content of `bgp`.
fn srlinux(bgp: &str) -> String {
    let (interfaces, vlans) =
        ("urn:nokia.com:srlinux:chassis:interfaces", "urn:nokia.com:srlinux:chassis:interfaces-vlans");
    let instance = "urn:nokia.com:srlinux:net-inst:network-instance";
    format!(
        "<interface xmlns=\"{interfaces}\"><name>ethernet-1/1</name><vlan-tagging xmlns=\"{vlans}\">true</vlan-tagging>\
         <subinterface><index>100</index><type xmlns:t=\"{interfaces}\">t:routed</type><ipv4>\
         <admin-state>enable</admin-state><address><ip-prefix>10.7.0.254/24</ip-prefix></address></ipv4>\
         <vlan xmlns=\"{vlans}\"><encap><single-tagged><vlan-id>100</vlan-id></single-tagged></encap></vlan>\
         </subinterface></interface><network-instance xmlns=\"{instance}\"><name>blue</name>\
         <type xmlns:t=\"{instance}\">t:ip-vrf</type><interface><name>ethernet-1/1.100</name></interface><protocols>\
         <bgp xmlns=\"urn:nokia.com:srlinux:bgp:bgp\">{bgp}</bgp></protocols></network-instance>"
    )
}

/// The policies of SR Linux: `take` what is in 10.20.0.0/16, and `announce` the network behind the VRF.
fn srlinux_policies() -> String {
    let policy = |name: &str, prefix: &str, range: &str, community: &str| {
        format!(
            "<prefix-set><name>{name}</name><prefix><ip-prefix>{prefix}</ip-prefix>\
             <mask-length-range>{range}</mask-length-range></prefix></prefix-set><policy><name>{name}</name>\
             <default-action><policy-result>reject</policy-result></default-action><statement><name>those</name>\
             <match><prefix-set>{name}</prefix-set></match><action><policy-result>accept</policy-result>{community}\
             </action></statement></policy>"
        )
    };
    let community = "<bgp><communities><add>workers</add></communities></bgp>";
    format!(
        "<routing-policy xmlns=\"urn:nokia.com:srlinux:plcy:routing-policy\"><community-set><name>workers</name>\
         <member>65000:100</member></community-set>{}{}</routing-policy>",
        policy("take", "10.20.0.0/16", "16..32", community),
        policy("announce", "198.51.100.0/24", "exact", "")
    )
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root and FRR: makes network namespaces"]
async fn srlinux_speaks_bgp_in_an_ip_vrf() {
    let (testbed, python) = (gateway("srlinux").await, interpreter().await);
    let family =
        "<afi-safi-name xmlns:c=\"urn:nokia.com:srlinux:general:common\">c:ipv4-unicast</afi-safi-name>";
    let bgp = |peer_as: u32, maximum: u32| {
        srlinux(&format!(
            "<autonomous-system>64999</autonomous-system><router-id>10.7.0.254</router-id><afi-safi>{family}\
             <admin-state>enable</admin-state></afi-safi><group><group-name>workers</group-name>\
             <import-policy>take</import-policy><export-policy>announce</export-policy><peer-as>{peer_as}</peer-as>\
             <authentication><password>secret</password></authentication><failure-detection>\
             <enable-bfd>true</enable-bfd></failure-detection><local-as><as-number>65000</as-number></local-as>\
             <timers><hold-time>9</hold-time><keepalive-interval>3</keepalive-interval>\
             <connect-retry>1</connect-retry></timers><afi-safi>{family}<ipv4-unicast><prefix-limit-received>\
             <max-received-routes>{maximum}</max-received-routes></prefix-limit-received></ipv4-unicast></afi-safi>\
             </group><neighbor><peer-address>10.7.0.1</peer-address><peer-group>workers</peer-group></neighbor>"
        ))
    };
    let bfd = "<bfd xmlns=\"urn:nokia.com:srlinux:bfd:bfd\"><subinterface><id>ethernet-1/1.100</id>\
        <admin-state>enable</admin-state><desired-minimum-transmit-interval>300000</desired-minimum-transmit-interval>\
        <required-minimum-receive>300000</required-minimum-receive></subinterface></bfd>";
    testbed.merge_xml("gw1", &(srlinux_policies() + bfd + &bgp(65009, 5))).await;
    let prefixes = ["10.20.0.1/32", "172.16.0.0/24"];
    let worker = worker(&testbed.node1, 65000, &["password secret", "bfd 3 300 300"], &prefixes);
    let question = "<network-instance xmlns=\"urn:nokia.com:srlinux:net-inst:network-instance\"><name>blue</name>\
        <protocols><bgp xmlns=\"urn:nokia.com:srlinux:bgp:bgp\"><neighbor><peer-address>10.7.0.1</peer-address>\
        </neighbor></bgp></protocols></network-instance>";
    let mismatch =
        "last-notification-error-code>Open Message Error<.*last-notification-error-subcode>Bad Peer As<";
    testbed.until(&python, "gw1", question, mismatch).await;
    testbed.merge_xml("gw1", &bgp(65001, 5)).await;
    let up = "<received-routes>1<.*<sent-routes>1<.*<session-state>established<.*<last-established>20\\d\\d-";
    testbed.until(&python, "gw1", question, up).await;
    eventually("it is not announced", || worker.learnt("ipv4") == ["198.51.100.0/24"]).await;
    eventually("there is no route", || routes(&testbed, "-4", "10.20.0.1").contains("10.7.0.1")).await;
    assert_eq!(routes(&testbed, "-4", "172.16.0.0/24"), "");
    eventually("BFD does not come up", || {
        worker.show("bfdd", "show bfd peers json").contains("\"status\":\"up\"")
    })
    .await;

    // The maximum counts what is received, taken or not.
    testbed.merge_xml("gw1", &bgp(65001, 1)).await;
    let maximum = "<session-state>idle<.*last-notification-error-subcode>Maximum Number of Prefixes Reached<";
    testbed.until(&python, "gw1", question, maximum).await;
    testbed.fabric.shutdown().await;
}
