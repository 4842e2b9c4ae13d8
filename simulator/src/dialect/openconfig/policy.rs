//! Routing policies of OpenConfig: openconfig-routing-policy and openconfig-bgp-policy.

use std::collections::BTreeSet;

use ipnet::IpNet;

use super::{ROOTS, TEXT, bgp::BGP_TYPES, vrf};
use crate::dialect::accessors::module;
use crate::dialect::bgp::{PolicyResult, PolicyRule, PrefixRange, RouteSource, is_community};
use crate::dialect::cursor::Cursor;
use crate::dialect::routing::IP_PREFIX;
use crate::model::schema::{Definition, Identity, Module};
use crate::model::tree::Container;
use crate::model::value::{StringRule, Type, Value};

pub(super) static ROUTING_POLICY: Module =
    module("openconfig-routing-policy", "oc-rpol", "http://openconfig.net/yang/routing-policy", "2024-11-26");
pub(super) static BGP_POLICY: Module =
    module("openconfig-bgp-policy", "oc-bgp-pol", "http://openconfig.net/yang/bgp-policy", "2024-11-26");

/// `masklength-range`.
static LENGTHS: StringRule = StringRule {
    length: (4, 8),
    matches: |text| text == "exact" || lengths(text).is_some(),
    expected: "exact or a range of prefix lengths such as 24..32",
};
/// `bgp-std-community-type` as a pair, or the identity of a well-known community without its prefix.
static COMMUNITY: StringRule = StringRule {
    length: (1, 64),
    matches: |text| is_community(text) || well_known(text).is_some(),
    expected: "a community such as 65000:100",
};

/// The identities of `BGP_WELL_KNOWN_STD_COMMUNITY`, and what FRR calls them.
const WELL_KNOWN: [(&str, &str); 4] = [
    ("NO_EXPORT", "no-export"),
    ("NO_ADVERTISE", "no-advertise"),
    ("NO_EXPORT_SUBCONFED", "local-AS"),
    ("GRACEFUL_SHUTDOWN", "graceful-shutdown"),
];

static IPV4_UNICAST: Identity = Identity { module: &BGP_TYPES, name: "IPV4_UNICAST" };
static IPV6_UNICAST: Identity = Identity { module: &BGP_TYPES, name: "IPV6_UNICAST" };
/// `afi-safi-name`.
pub(super) const AFI_SAFI: Type = Type::Identity(&[&IPV4_UNICAST, &IPV6_UNICAST]);

const MATCH_OPTIONS: Type = Type::Enum(&["ANY", "INVERT"]);

const fn container(name: &'static str, children: &'static [Definition]) -> Definition {
    Definition::container(name, &ROUTING_POLICY, children)
}

const fn mirror(children: &'static [Definition]) -> Definition {
    Definition::mirror(&ROUTING_POLICY, children)
}

const fn leaf(name: &'static str, ty: Type) -> Definition {
    Definition::leaf(name, &ROUTING_POLICY, ty)
}

const fn bgp_container(name: &'static str, children: &'static [Definition]) -> Definition {
    Definition::container(name, &BGP_POLICY, children)
}

/// Content of `routing-policy`.
pub(super) const POLICY: &[Definition] =
    &[container("defined-sets", DEFINED_SETS), container("policy-definitions", POLICY_DEFINITIONS)];

const DEFINED_SETS: &[Definition] =
    &[container("prefix-sets", PREFIX_SETS), bgp_container("bgp-defined-sets", BGP_SETS)];

const PREFIX_SETS: &[Definition] = &[Definition::list("prefix-set", &ROUTING_POLICY, 1, PREFIX_SET)];

const PREFIX_SET: &[Definition] = &[
    leaf("name", TEXT),
    container("config", PREFIX_SET_CONFIG),
    mirror(PREFIX_SET_CONFIG),
    container("prefixes", PREFIXES),
];

const PREFIX_SET_CONFIG: &[Definition] =
    &[leaf("name", TEXT), leaf("mode", Type::Enum(&["IPV4", "IPV6", "MIXED"]))];

const PREFIXES: &[Definition] = &[Definition::list("prefix", &ROUTING_POLICY, 2, PREFIX)];

const PREFIX: &[Definition] = &[
    leaf("ip-prefix", Type::Restricted(&IP_PREFIX)),
    leaf("masklength-range", Type::Restricted(&LENGTHS)),
    container("config", PREFIX_CONFIG),
    mirror(PREFIX_CONFIG),
];

const PREFIX_CONFIG: &[Definition] =
    &[leaf("ip-prefix", Type::Restricted(&IP_PREFIX)), leaf("masklength-range", Type::Restricted(&LENGTHS))];

const BGP_SETS: &[Definition] = &[bgp_container("community-sets", COMMUNITY_SETS)];

const COMMUNITY_SETS: &[Definition] = &[Definition::list("community-set", &BGP_POLICY, 1, COMMUNITY_SET)];

const COMMUNITY_SET: &[Definition] = &[
    Definition::leaf("community-set-name", &BGP_POLICY, TEXT),
    bgp_container("config", COMMUNITY_SET_CONFIG),
    Definition::mirror(&BGP_POLICY, COMMUNITY_SET_CONFIG),
];

const COMMUNITY_SET_CONFIG: &[Definition] = &[
    Definition::leaf("community-set-name", &BGP_POLICY, TEXT),
    Definition::leaf_list("community-member", &BGP_POLICY, Type::Restricted(&COMMUNITY)),
    Definition::leaf("match-set-options", &BGP_POLICY, Type::Enum(&["ANY", "ALL", "INVERT"])),
];

const POLICY_DEFINITIONS: &[Definition] =
    &[Definition::list("policy-definition", &ROUTING_POLICY, 1, POLICY_DEFINITION)];

const POLICY_DEFINITION: &[Definition] = &[
    leaf("name", TEXT),
    container("config", NAME_CONFIG),
    mirror(NAME_CONFIG),
    container("statements", STATEMENTS),
];

const NAME_CONFIG: &[Definition] = &[leaf("name", TEXT)];

/// Ordered by the user.
const STATEMENTS: &[Definition] = &[Definition::list("statement", &ROUTING_POLICY, 1, STATEMENT)];

const STATEMENT: &[Definition] = &[
    leaf("name", TEXT),
    container("config", NAME_CONFIG),
    mirror(NAME_CONFIG),
    container("conditions", CONDITIONS),
    container("actions", ACTIONS),
    Definition::place(&ROUTING_POLICY),
];

const CONDITIONS: &[Definition] = &[
    container("config", CONDITIONS_CONFIG),
    mirror(CONDITIONS_CONFIG),
    container("match-prefix-set", MATCH_PREFIX_SET),
    bgp_container("bgp-conditions", BGP_CONDITIONS),
];

const CONDITIONS_CONFIG: &[Definition] = &[leaf("install-protocol-eq", vrf::PROTOCOL)];

const MATCH_PREFIX_SET: &[Definition] =
    &[container("config", MATCH_PREFIX_SET_CONFIG), mirror(MATCH_PREFIX_SET_CONFIG)];

const MATCH_PREFIX_SET_CONFIG: &[Definition] =
    &[leaf("prefix-set", TEXT), leaf("match-set-options", MATCH_OPTIONS)];

const BGP_CONDITIONS: &[Definition] =
    &[bgp_container("config", BGP_CONDITIONS_CONFIG), Definition::mirror(&BGP_POLICY, BGP_CONDITIONS_CONFIG)];

const BGP_CONDITIONS_CONFIG: &[Definition] = &[Definition::leaf_list("afi-safi-in", &BGP_POLICY, AFI_SAFI)];

const ACTIONS: &[Definition] =
    &[container("config", ACTIONS_CONFIG), mirror(ACTIONS_CONFIG), bgp_container("bgp-actions", BGP_ACTIONS)];

const ACTIONS_CONFIG: &[Definition] =
    &[leaf("policy-result", Type::Enum(&["ACCEPT_ROUTE", "REJECT_ROUTE", "NEXT_STATEMENT"]))];

const BGP_ACTIONS: &[Definition] = &[bgp_container("set-community", SET_COMMUNITY)];

const SET_COMMUNITY: &[Definition] = &[
    bgp_container("config", SET_COMMUNITY_CONFIG),
    Definition::mirror(&BGP_POLICY, SET_COMMUNITY_CONFIG),
    bgp_container("inline", INLINE),
    bgp_container("reference", REFERENCE),
];

const SET_COMMUNITY_CONFIG: &[Definition] = &[
    Definition::leaf("method", &BGP_POLICY, Type::Enum(&["INLINE", "REFERENCE"])),
    Definition::leaf("options", &BGP_POLICY, Type::Enum(&["ADD", "REPLACE"])),
];

const INLINE: &[Definition] =
    &[bgp_container("config", INLINE_CONFIG), Definition::mirror(&BGP_POLICY, INLINE_CONFIG)];

const INLINE_CONFIG: &[Definition] =
    &[Definition::leaf_list("communities", &BGP_POLICY, Type::Restricted(&COMMUNITY))];

const REFERENCE: &[Definition] =
    &[bgp_container("config", REFERENCE_CONFIG), Definition::mirror(&BGP_POLICY, REFERENCE_CONFIG)];

const REFERENCE_CONFIG: &[Definition] = &[
    Definition::leaf_list("community-set-refs", &BGP_POLICY, TEXT),
    Definition::leaf("community-set-ref", &BGP_POLICY, TEXT),
];

/// The bounds of `24..32`.
fn lengths(text: &str) -> Option<(u8, u8)> {
    let (low, high) = text.split_once("..")?;
    let number = |text: &str| text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok()).flatten();
    Some((number(low)?, number(high)?))
}

/// What FRR calls a well-known community.
fn well_known(text: &str) -> Option<&'static str> {
    let name = text.rsplit(':').next().unwrap_or(text);
    WELL_KNOWN.iter().find(|(known, _)| *known == name).map(|(_, frr)| *frr)
}

/// `routing-policy` of a configuration.
pub(super) fn policies(config: &Container) -> Option<Cursor<'_>> {
    Cursor::new(config, ROOTS).below(&["routing-policy"])
}

/// The prefix set of a statement.
pub(super) fn prefix_set(statement: Cursor<'_>) -> Option<&str> {
    statement.text(&["conditions", "match-prefix-set", "config", "prefix-set"])
}

/// The community sets that a statement sets.
pub(super) fn community_sets(statement: Cursor<'_>) -> BTreeSet<&str> {
    let reference = statement.below(&["actions", "bgp-actions", "set-community", "reference", "config"]);
    let Some(reference) = reference else { return BTreeSet::new() };
    let many = reference.values(&["community-set-refs"]).filter_map(Value::text);
    many.chain(reference.text(&["community-set-ref"])).collect()
}

/// The prefixes of an entry of a prefix set; `None` if there are none of these lengths.
pub(super) fn prefix_range(prefix: &str, range: &str) -> Option<PrefixRange> {
    let prefix: IpNet = prefix.parse().ok()?;
    match lengths(range) {
        None => Some(PrefixRange::exact(prefix)),
        Some((min, max)) => PrefixRange::within(prefix, min, max),
    }
}

/// The rules of the policies of these names, one after the other; at the end `default` decides.
pub(super) fn rules(config: &Container, names: &[&str], default: PolicyResult) -> Vec<PolicyRule> {
    let mut rules = Vec::new();
    if let Some(policies) = policies(config) {
        for name in names {
            let definition = policies.entry(&["policy-definitions", "policy-definition"], name);
            for (_, statement) in
                definition.into_iter().flat_map(|definition| definition.named(&["statements", "statement"]))
            {
                rules.push(rule(policies, statement));
            }
        }
    }
    rules.push(PolicyRule::all(default));
    rules
}

fn rule(policies: Cursor<'_>, statement: Cursor<'_>) -> PolicyRule {
    let mut rule = PolicyRule::all(match statement.leaf(&["actions", "config", "policy-result"]) {
        Some(result) if result.is("ACCEPT_ROUTE") => PolicyResult::Accept,
        Some(result) if result.is("REJECT_ROUTE") => PolicyResult::Reject,
        _ => PolicyResult::Continue,
    });
    if let Some(set) = prefix_set(statement) {
        let set = policies.entry(&["defined-sets", "prefix-sets", "prefix-set"], set);
        let prefixes = set.into_iter().flat_map(|set| set.list(&["prefixes", "prefix"]));
        let ranges = prefixes.filter_map(|(key, _)| prefix_range(key[0].text()?, key[1].text()?));
        rule.prefixes = Some(ranges.collect());
        let option = &["conditions", "match-prefix-set", "config", "match-set-options"];
        rule.except = statement.is(option, "INVERT");
    }
    let families: Vec<_> =
        statement.values(&["conditions", "bgp-conditions", "config", "afi-safi-in"]).collect();
    if rule.prefixes.is_none() && !families.is_empty() {
        let any = |family, net: &str| {
            let named = families.iter().any(|value| value.is(family));
            named.then(|| net.parse().ok().map(PrefixRange::or_longer)).flatten()
        };
        let both = [any("IPV4_UNICAST", "0.0.0.0/0"), any("IPV6_UNICAST", "::/0")];
        rule.prefixes = Some(both.into_iter().flatten().collect());
    }
    rule.sources = match statement.leaf(&["conditions", "config", "install-protocol-eq"]) {
        Some(protocol) if protocol.is("BGP") => [RouteSource::Bgp].into(),
        Some(protocol) if protocol.is("STATIC") => [RouteSource::Static].into(),
        Some(_) => [RouteSource::Connected].into(),
        None => BTreeSet::new(),
    };
    if let Some(action) = statement.below(&["actions", "bgp-actions", "set-community"]) {
        let path = ["defined-sets", "bgp-defined-sets", "community-sets", "community-set"];
        let sets = community_sets(statement).into_iter().filter_map(|set| policies.entry(&path, set));
        let referenced = sets.flat_map(|set| set.values(&["config", "community-member"]));
        let all = action.values(&["inline", "config", "communities"]).chain(referenced);
        let frr = |text: &str| well_known(text).map_or_else(|| text.to_owned(), str::to_owned);
        rule.communities = all.filter_map(Value::text).map(frr).collect();
        rule.replaces_communities = action.is(&["config", "options"], "REPLACE");
    }
    rule
}
