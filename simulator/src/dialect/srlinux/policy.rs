//! Routing policies of SR Linux: srl_nokia-routing-policy 24.7.

use std::collections::BTreeSet;

use ipnet::IpNet;

use super::bgp::{AFI_SAFI, COMMON};
use super::vrf::GROUP_NAME;
use super::{REVISION, ROOTS};
use crate::dialect::accessors::module;
use crate::dialect::bgp::{PolicyResult, PolicyRule, PrefixRange, RouteSource, is_community};
use crate::dialect::cursor::Cursor;
use crate::dialect::routing::IP_PREFIX;
use crate::model::schema::{Definition, Identity, Module};
use crate::model::tree::Container;
use crate::model::value::{StringRule, Type, Value};

pub(super) static ROUTING_POLICY: Module =
    module("srl_nokia-routing-policy", "srl_rpol", "urn:nokia.com:srlinux:plcy:routing-policy", REVISION);

/// `mask-length-range`.
static LENGTHS: StringRule = StringRule {
    length: (4, 8),
    matches: |text| text == "exact" || lengths(text).is_some(),
    expected: "exact or a range of prefix lengths such as 24..32",
};
/// `bgp-std-community-type` and `bgp-std-community-well-known-type`.
static MEMBER: StringRule = StringRule {
    length: (3, 32),
    matches: |text| is_community(text) || well_known(text).is_some(),
    expected: "a community such as 65000:100",
};

/// The well-known communities, and what FRR calls them.
const WELL_KNOWN: [(&str, &str); 3] =
    [("no-export", "no-export"), ("no-advertise", "no-advertise"), ("no-export-subconfed", "local-AS")];

static BGP: Identity = Identity { module: &COMMON, name: "bgp" };
static LOCAL: Identity = Identity { module: &COMMON, name: "local" };
static STATIC: Identity = Identity { module: &COMMON, name: "static" };

const PROTOCOL: Type = Type::Identity(&[&BGP, &LOCAL, &STATIC]);
const NAME: Type = Type::Restricted(&GROUP_NAME);

const fn container(name: &'static str, children: &'static [Definition]) -> Definition {
    Definition::container(name, &ROUTING_POLICY, children)
}

const fn list(name: &'static str, keys: usize, children: &'static [Definition]) -> Definition {
    Definition::list(name, &ROUTING_POLICY, keys, children)
}

const fn leaf(name: &'static str, ty: Type) -> Definition {
    Definition::leaf(name, &ROUTING_POLICY, ty)
}

/// Content of `routing-policy`.
pub(super) const POLICY: &[Definition] = &[
    list("prefix-set", 1, PREFIX_SET),
    list("community-set", 1, COMMUNITY_SET),
    list("policy", 1, DEFINITION),
];

const PREFIX_SET: &[Definition] = &[leaf("name", NAME), list("prefix", 2, PREFIX)];

const PREFIX: &[Definition] =
    &[leaf("ip-prefix", Type::Restricted(&IP_PREFIX)), leaf("mask-length-range", Type::Restricted(&LENGTHS))];

const COMMUNITY_SET: &[Definition] =
    &[leaf("name", NAME), Definition::leaf_list("member", &ROUTING_POLICY, Type::Restricted(&MEMBER))];

const DEFINITION: &[Definition] =
    &[leaf("name", NAME), container("default-action", DEFAULT_ACTION), list("statement", 1, STATEMENT)];

const DEFAULT_ACTION: &[Definition] =
    &[leaf("policy-result", Type::Enum(&["accept", "reject", "next-policy"])), container("bgp", ACTION_BGP)];

/// Ordered by the user.
const STATEMENT: &[Definition] = &[
    leaf("name", NAME),
    container("match", MATCH),
    container("action", ACTION),
    Definition::place(&ROUTING_POLICY),
];

const MATCH: &[Definition] = &[
    leaf("prefix-set", NAME),
    Definition::leaf_list("family", &ROUTING_POLICY, AFI_SAFI),
    leaf("protocol", PROTOCOL),
];

const ACTION: &[Definition] = &[
    leaf("policy-result", Type::Enum(&["accept", "reject", "next-statement"])),
    container("bgp", ACTION_BGP),
];

const ACTION_BGP: &[Definition] = &[container("communities", COMMUNITIES)];

const COMMUNITIES: &[Definition] = &[leaf("add", NAME), leaf("replace", NAME)];

/// The bounds of `24..32`.
fn lengths(text: &str) -> Option<(u8, u8)> {
    let (low, high) = text.split_once("..")?;
    let number = |text: &str| text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok()).flatten();
    Some((number(low)?, number(high)?))
}

/// What FRR calls a well-known community.
fn well_known(text: &str) -> Option<&'static str> {
    WELL_KNOWN.iter().find(|(known, _)| *known == text).map(|(_, frr)| *frr)
}

/// `routing-policy` of a configuration.
pub(super) fn policies(config: &Container) -> Option<Cursor<'_>> {
    Cursor::new(config, ROOTS).below(&["routing-policy"])
}

/// The prefixes of an entry of a prefix set; `None` if there are none of these lengths.
pub(super) fn prefix_range(prefix: &str, range: &str) -> Option<PrefixRange> {
    let prefix: IpNet = prefix.parse().ok()?;
    match lengths(range) {
        None => Some(PrefixRange::exact(prefix)),
        Some((min, max)) => PrefixRange::within(prefix, min, max),
    }
}

/// The community sets that an action names.
pub(super) fn community_sets(action: Cursor<'_>) -> impl Iterator<Item = &str> {
    let communities = action.below(&["bgp", "communities"]);
    ["add", "replace"].into_iter().filter_map(move |leaf| communities?.text(&[leaf]))
}

/// The rules of the policies of these names, one after the other, and then those of `default`.
pub(super) fn rules(config: &Container, names: &[&str], default: Vec<PolicyRule>) -> Vec<PolicyRule> {
    let mut rules = Vec::new();
    if let Some(policies) = policies(config) {
        for policy in names.iter().filter_map(|name| policies.entry(&["policy"], name)) {
            rules.extend(policy.named(&["statement"]).map(|(_, statement)| rule(policies, statement)));
            if let Some(action) = policy.below(&["default-action"]) {
                rules.push(acting(policies, action));
            }
        }
    }
    rules.extend(default);
    rules
}

/// What is done with routes that no policy decides. Without a rejection, all are taken, and those of BGP announced.
pub(super) fn default(rejects: bool, is_import: bool) -> Vec<PolicyRule> {
    let sources = if is_import { BTreeSet::new() } else { [RouteSource::Bgp].into() };
    let accept = (!rejects).then(|| PolicyRule { sources, ..PolicyRule::all(PolicyResult::Accept) });
    accept.into_iter().chain([PolicyRule::all(PolicyResult::Reject)]).collect()
}

/// The rule of an action without conditions.
fn acting(policies: Cursor<'_>, action: Cursor<'_>) -> PolicyRule {
    let mut rule = PolicyRule::all(match action.leaf(&["policy-result"]) {
        Some(result) if result.is("accept") => PolicyResult::Accept,
        Some(result) if result.is("reject") => PolicyResult::Reject,
        _ => PolicyResult::Continue,
    });
    let sets = community_sets(action).filter_map(|set| policies.entry(&["community-set"], set));
    let frr = |text: &str| well_known(text).map_or_else(|| text.to_owned(), str::to_owned);
    rule.communities =
        sets.flat_map(|set| set.values(&["member"])).filter_map(Value::text).map(frr).collect();
    rule.replaces_communities = action.leaf(&["bgp", "communities", "replace"]).is_some();
    rule
}

fn rule(policies: Cursor<'_>, statement: Cursor<'_>) -> PolicyRule {
    let mut rule = match statement.below(&["action"]) {
        Some(action) => acting(policies, action),
        None => PolicyRule::all(PolicyResult::Continue),
    };
    if let Some(set) = statement.text(&["match", "prefix-set"]) {
        let set = policies.entry(&["prefix-set"], set);
        let prefixes = set.into_iter().flat_map(|set| set.list(&["prefix"]));
        rule.prefixes =
            Some(prefixes.filter_map(|(key, _)| prefix_range(key[0].text()?, key[1].text()?)).collect());
    }
    let families: Vec<&Value> = statement.values(&["match", "family"]).collect();
    if rule.prefixes.is_none() && !families.is_empty() {
        let any = |family, net: &str| {
            let named = families.iter().any(|value| value.is(family));
            named.then(|| net.parse().ok().map(PrefixRange::or_longer)).flatten()
        };
        let both = [any("ipv4-unicast", "0.0.0.0/0"), any("ipv6-unicast", "::/0")];
        rule.prefixes = Some(both.into_iter().flatten().collect());
    }
    rule.sources = match statement.leaf(&["match", "protocol"]) {
        Some(protocol) if protocol.is("bgp") => [RouteSource::Bgp].into(),
        Some(protocol) if protocol.is("static") => [RouteSource::Static].into(),
        Some(_) => [RouteSource::Connected].into(),
        None => BTreeSet::new(),
    };
    rule
}
