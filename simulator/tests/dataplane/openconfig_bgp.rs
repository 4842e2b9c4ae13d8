//! BGP of OpenConfig as XML.

use std::fmt::Write as _;
use std::net::IpAddr;

const BGP_TYPES: &str = "http://openconfig.net/yang/bgp-types";
const BGP_POLICY: &str = "http://openconfig.net/yang/bgp-policy";

/// The namespaces that the XML uses, as attributes.
pub const NAMESPACES: &str = "xmlns=\"http://openconfig.net/yang/network-instance\" \
    xmlns:pol=\"http://openconfig.net/yang/policy-types\" xmlns:types=\"http://openconfig.net/yang/bgp-types\" \
    xmlns:nc=\"urn:ietf:params:xml:ns:netconf:base:1.0\"";

/// A leaf.
pub fn leaf(name: &str, value: impl std::fmt::Display) -> String {
    format!("<{name}>{value}</{name}>")
}

/// The BGP instance of a VRF, with further content of `bgp` after `global`.
pub fn instance(vrf: &str, global: &str, content: &str) -> String {
    let keys = "<identifier>pol:BGP</identifier><name>BGP</name>";
    format!(
        "<network-instances {NAMESPACES}><network-instance><name>{vrf}</name><protocols><protocol>{keys}<config>{keys}\
         </config><bgp><global>{global}</global>{content}</bgp></protocol></protocols></network-instance>\
         </network-instances>"
    )
}

/// Global content with an AS.
pub fn global(asn: u32) -> String {
    format!("<config><as>{asn}</as></config>")
}

/// A neighbour with its leaves of `config` and further content.
pub fn neighbor(address: &str, config: &str, content: &str) -> String {
    format!(
        "<neighbor><neighbor-address>{address}</neighbor-address><config><neighbor-address>{address}\
         </neighbor-address>{config}</config>{content}</neighbor>"
    )
}

/// `timers`, in seconds.
pub fn timers(hold: u16, keepalive: u16) -> String {
    let times = leaf("hold-time", hold) + &leaf("keepalive-interval", keepalive);
    format!("<timers><config>{times}<connect-retry>1</connect-retry></config></timers>")
}

/// `afi-safis` with the family of an address, and perhaps a maximum of prefixes.
pub fn family(of: &str, maximum: Option<u32>) -> String {
    let ipv4 = of.contains('.');
    let (name, unicast) =
        if ipv4 { ("IPV4_UNICAST", "ipv4-unicast") } else { ("IPV6_UNICAST", "ipv6-unicast") };
    let limit = maximum.map(|number| {
        let config = leaf("config", leaf("max-prefixes", number));
        leaf(unicast, leaf("prefix-limit", config))
    });
    let name = format!("<afi-safi-name xmlns:t=\"{BGP_TYPES}\">t:{name}</afi-safi-name>");
    format!(
        "<afi-safis><afi-safi>{name}<config>{name}<enabled>true</enabled></config>{}</afi-safi></afi-safis>",
        limit.unwrap_or_default()
    )
}

/// `apply-policy` with the policies `take` and `announce`.
pub const APPLY: &str = "<apply-policy><config><import-policy>take</import-policy>\
    <export-policy>announce</export-policy></config></apply-policy>";

/// The policies `take`, which takes these networks and what is in them and gives it a community, and `announce`, which
/// announces these prefixes.
pub fn policies(take: &[&str], announce: &[&str]) -> String {
    let set = |name: &str, prefixes: &[&str], exact: bool| {
        let mut all = String::new();
        for prefix in prefixes {
            let (address, length) = prefix.split_once('/').expect("a prefix length");
            let longest = if address.parse::<IpAddr>().expect("an address").is_ipv4() { 32 } else { 128 };
            let range = if exact { "exact".to_owned() } else { format!("{length}..{longest}") };
            let keys = leaf("ip-prefix", prefix) + &leaf("masklength-range", range);
            let _ = write!(all, "<prefix>{keys}<config>{keys}</config></prefix>");
        }
        let name = leaf("name", name);
        format!("<prefix-set>{name}<config>{name}</config><prefixes>{all}</prefixes></prefix-set>")
    };
    let statement = |name: &str, set: Option<&str>, result: &str, more: &str| {
        let conditions = set.map(|set| {
            let config = leaf("config", leaf("prefix-set", set));
            leaf("conditions", leaf("match-prefix-set", config))
        });
        let name = leaf("name", name);
        format!(
            "<statement>{name}<config>{name}</config>{}<actions><config>{}</config>{more}</actions></statement>",
            conditions.unwrap_or_default(),
            leaf("policy-result", result)
        )
    };
    let definition = |name: &str, statements: String| {
        let name = leaf("name", name);
        format!(
            "<policy-definition>{name}<config>{name}</config><statements nc:operation=\"replace\">{statements}\
             </statements></policy-definition>"
        )
    };
    let community = format!(
        "<bgp-actions xmlns=\"{BGP_POLICY}\"><set-community><config><method>INLINE</method><options>ADD</options>\
         </config><inline><config><communities>65000:100</communities></config></inline></set-community></bgp-actions>"
    );
    // The name of the last statement would sort it before the first one.
    let taking = statement("take", Some("taken"), "ACCEPT_ROUTE", &community)
        + &statement("reject", None, "REJECT_ROUTE", "");
    let announcing = statement("announce", Some("announced"), "ACCEPT_ROUTE", "")
        + &statement("a-rest", None, "REJECT_ROUTE", "");
    format!(
        "<routing-policy xmlns=\"http://openconfig.net/yang/routing-policy\" \
         xmlns:nc=\"urn:ietf:params:xml:ns:netconf:base:1.0\"><defined-sets><prefix-sets nc:operation=\"replace\">\
         {}{}</prefix-sets></defined-sets><policy-definitions>{}{}</policy-definitions></routing-policy>",
        set("taken", take, false),
        set("announced", announce, true),
        definition("take", taking),
        definition("announce", announcing)
    )
}

/// The filter for a neighbour of a VRF.
pub fn filter(vrf: &str, address: &str) -> String {
    format!(
        "<network-instances xmlns=\"http://openconfig.net/yang/network-instance\"><network-instance><name>{vrf}</name>\
         <protocols><protocol><bgp><neighbors><neighbor><neighbor-address>{address}</neighbor-address></neighbor>\
         </neighbors></bgp></protocol></protocols></network-instance></network-instances>"
    )
}
