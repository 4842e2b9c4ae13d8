//! Routing policies of Junos: `policy-options` (junos-qfx-conf-policy-options).

use std::collections::BTreeSet;
use std::net::IpAddr;

use ipnet::IpNet;

use super::{REVISION, ROOTS, TEXT};
use crate::dialect::accessors::module;
use crate::dialect::bgp::{PolicyResult, PolicyRule, PrefixRange, RouteSource, is_community};
use crate::dialect::cursor::Cursor;
use crate::dialect::routing::IP_PREFIX;
use crate::model::schema::{Definition, Module};
use crate::model::tree::Container;
use crate::model::value::{StringRule, Type, Value};

pub(super) static POLICY_MODULE: Module = module(
    "junos-qfx-conf-policy-options",
    "jc-policy-options",
    "http://yang.juniper.net/junos-qfx/conf/policy-options",
    REVISION,
);

/// A community as a pair of numbers, or a well-known one. Others, such as regular expressions, are not simulated.
static MEMBER: StringRule = StringRule {
    length: (3, 32),
    matches: |text| is_community(text) || well_known(text).is_some(),
    expected: "a community such as 65000:100",
};

/// The well-known communities, and what FRR calls them.
const WELL_KNOWN: [(&str, &str); 3] =
    [("no-export", "no-export"), ("no-advertise", "no-advertise"), ("no-export-subconfed", "local-AS")];

const PREFIX: Type = Type::Restricted(&IP_PREFIX);

const fn container(name: &'static str, children: &'static [Definition]) -> Definition {
    Definition::container(name, &POLICY_MODULE, children)
}

const fn list(name: &'static str, keys: usize, children: &'static [Definition]) -> Definition {
    Definition::list(name, &POLICY_MODULE, keys, children)
}

const fn leaf(name: &'static str, ty: Type) -> Definition {
    Definition::leaf(name, &POLICY_MODULE, ty)
}

/// Content of `policy-options`.
pub(super) const POLICY_OPTIONS: &[Definition] = &[
    list("prefix-list", 1, PREFIX_LIST),
    list("policy-statement", 1, STATEMENT),
    list("community", 1, COMMUNITY),
    list("as-list", 1, AS_LIST),
];

const PREFIX_LIST: &[Definition] = &[leaf("name", TEXT), list("prefix-list-item", 1, PREFIX_LIST_ITEM)];

const PREFIX_LIST_ITEM: &[Definition] = &[leaf("name", PREFIX)];

const COMMUNITY: &[Definition] =
    &[leaf("name", TEXT), Definition::leaf_list("members", &POLICY_MODULE, Type::Restricted(&MEMBER))];

const AS_LIST: &[Definition] = &[leaf("name", TEXT), Definition::leaf_list("members", &POLICY_MODULE, TEXT)];

const STATEMENT: &[Definition] =
    &[leaf("name", TEXT), list("term", 1, TERM), container("from", FROM), container("then", THEN)];

/// Ordered by the user.
const TERM: &[Definition] = &[
    leaf("name", TEXT),
    container("from", FROM),
    container("then", THEN),
    Definition::place(&POLICY_MODULE),
];

const FROM: &[Definition] = &[
    leaf("family", Type::Enum(&["inet", "inet6"])),
    Definition::leaf_list(
        "protocol",
        &POLICY_MODULE,
        Type::Enum(&["bgp", "direct", "local", "static", "aggregate"]),
    ),
    list("route-filter", 3, ROUTE_FILTER),
    list("prefix-list", 1, NAMED_LIST),
    list("prefix-list-filter", 3, LIST_FILTER),
];

const ROUTE_FILTER: &[Definition] = &[
    leaf("address", PREFIX),
    leaf("choice-ident", Type::Enum(&["exact", "longer", "orlonger", "upto", "prefix-length-range"])),
    leaf("choice-value", TEXT),
];

const NAMED_LIST: &[Definition] = &[leaf("name", TEXT)];

const LIST_FILTER: &[Definition] = &[
    leaf("list_name", TEXT),
    leaf("choice-ident", Type::Enum(&["exact", "longer", "orlonger"])),
    leaf("choice-value", TEXT),
];

const THEN: &[Definition] = &[
    list("community", 3, THEN_COMMUNITY),
    leaf("next", Type::Enum(&["term"])),
    leaf("accept", Type::Empty).in_case("accept_reject", "accept"),
    leaf("reject", Type::Empty).in_case("accept_reject", "reject"),
];

const THEN_COMMUNITY: &[Definition] = &[
    leaf("choice-ident", Type::Enum(&["set", "add"])),
    leaf("choice-value", TEXT),
    leaf("community-name", TEXT),
];

/// What FRR calls a well-known community.
fn well_known(text: &str) -> Option<&'static str> {
    WELL_KNOWN.iter().find(|(known, _)| *known == text).map(|(_, frr)| *frr)
}

/// `policy-options` of a configuration.
pub(super) fn options(config: &Container) -> Option<Cursor<'_>> {
    Cursor::new(config, ROOTS).below(&["configuration", "policy-options"])
}

/// The terms of a policy with their names; the last one, without a name, is the policy itself.
pub(super) fn terms(policy: Cursor<'_>) -> impl Iterator<Item = (Option<&str>, Cursor<'_>)> {
    policy.named(&["term"]).map(|(name, term)| (Some(name), term)).chain([(None, policy)])
}

/// The prefix lists that a term names.
pub(super) fn named_lists(term: Cursor<'_>) -> impl Iterator<Item = &str> {
    let plain = term.named(&["from", "prefix-list"]).map(|(name, _)| name);
    plain.chain(term.named(&["from", "prefix-list-filter"]).map(|(name, _)| name))
}

/// The communities that a term names.
pub(super) fn named_communities(term: Cursor<'_>) -> impl Iterator<Item = &str> {
    term.list(&["then", "community"]).filter_map(|(key, _)| key[2].text())
}

/// The prefixes of a filter; `None` if its value is not one of its kind.
pub(super) fn filter(prefix: &str, kind: &Value, value: &str) -> Option<PrefixRange> {
    let prefix: IpNet = prefix.parse().ok()?;
    let (own, longest) = (prefix.prefix_len(), prefix.max_prefix_len());
    let length = |text: &str| text.strip_prefix('/').unwrap_or(text).parse::<u8>().ok();
    let (min, max) = if kind.is("longer") {
        (own.saturating_add(1), longest)
    } else if kind.is("orlonger") {
        (own, longest)
    } else if kind.is("upto") {
        (own, length(value)?)
    } else if kind.is("prefix-length-range") {
        let (min, max) = value.split_once('-')?;
        (length(min)?, length(max)?)
    } else {
        (own, own)
    };
    PrefixRange::within(prefix, min, max)
}

/// The rules of the policies of these names, one after the other, and then those of `default`.
pub(super) fn rules(config: &Container, names: &[&str], default: Vec<PolicyRule>) -> Vec<PolicyRule> {
    let mut rules = Vec::new();
    if let Some(options) = options(config) {
        for name in names {
            let policy = options.entry(&["policy-statement"], name);
            rules.extend(policy.into_iter().flat_map(terms).filter_map(|(_, term)| rule(options, term)));
        }
    }
    rules.extend(default);
    rules
}

/// What Junos does with routes that no policy decides: it takes all, and announces those of BGP.
pub(super) fn default(is_import: bool) -> Vec<PolicyRule> {
    let sources = if is_import { BTreeSet::new() } else { [RouteSource::Bgp].into() };
    let accept = PolicyRule { sources, ..PolicyRule::all(PolicyResult::Accept) };
    vec![accept, PolicyRule::all(PolicyResult::Reject)]
}

/// The rule of a term; `None` if it does nothing.
fn rule(options: Cursor<'_>, term: Cursor<'_>) -> Option<PolicyRule> {
    let then = term.below(&["then"])?;
    let mut rule = PolicyRule::all(if then.leaf(&["accept"]).is_some() {
        PolicyResult::Accept
    } else if then.leaf(&["reject"]).is_some() {
        PolicyResult::Reject
    } else {
        PolicyResult::Continue
    });
    for (key, _) in then.list(&["community"]) {
        rule.replaces_communities |= key[0].is("set");
        let members = options.entry(&["community"], key[2].text()?);
        let members = members.into_iter().flat_map(|community| community.values(&["members"]));
        let frr = |text: &str| well_known(text).map_or_else(|| text.to_owned(), str::to_owned);
        rule.communities.extend(members.filter_map(Value::text).map(frr));
    }
    if let Some(from) = term.below(&["from"]) {
        rule.sources = from.values(&["protocol"]).map(source).collect();
        rule.prefixes = prefixes(options, from);
    }
    Some(rule)
}

fn source(protocol: &Value) -> RouteSource {
    if protocol.is("bgp") {
        RouteSource::Bgp
    } else if protocol.is("direct") || protocol.is("local") {
        RouteSource::Connected
    } else {
        RouteSource::Static
    }
}

/// The prefixes of all filters of a term; `None` if it has none.
fn prefixes(options: Cursor<'_>, from: Cursor<'_>) -> Option<Vec<PrefixRange>> {
    let items = |list: &str| {
        let list = options.entry(&["prefix-list"], list);
        list.into_iter().flat_map(|list| list.named(&["prefix-list-item"])).map(|(prefix, _)| prefix)
    };
    let mut ranges = Vec::new();
    let mut is_limited = false;
    for (key, _) in from.list(&["route-filter"]) {
        is_limited = true;
        ranges.extend(filter(key[0].text()?, &key[1], key[2].text()?));
    }
    let exact = Value::Keyword("exact");
    for (name, _) in from.named(&["prefix-list"]) {
        is_limited = true;
        ranges.extend(items(name).filter_map(|prefix| filter(prefix, &exact, "")));
    }
    for (key, _) in from.list(&["prefix-list-filter"]) {
        is_limited = true;
        ranges.extend(items(key[0].text()?).filter_map(|prefix| filter(prefix, &key[1], "")));
    }
    let family = from.leaf(&["family"]);
    let is_of_family = |address: IpAddr| match family {
        Some(family) => address.is_ipv4() == family.is("inet"),
        None => true,
    };
    if is_limited {
        ranges.retain(|range| is_of_family(range.prefix.addr()));
        return Some(ranges);
    }
    let whole = ["0.0.0.0/0", "::/0"].into_iter().filter_map(|text| text.parse::<IpNet>().ok());
    let of_family = whole.filter(|net| is_of_family(net.addr())).map(PrefixRange::or_longer);
    family.map(|_| of_family.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn route_filters_match_ranges_of_lengths() {
        let of = |kind, value| {
            filter("10.0.0.0/8", &Value::Keyword(kind), value).map(|range| (range.min, range.max))
        };
        assert_eq!(of("exact", ""), Some((8, 8)));
        assert_eq!(of("longer", ""), Some((9, 32)));
        assert_eq!(of("orlonger", ""), Some((8, 32)));
        assert_eq!(of("upto", "/24"), Some((8, 24)));
        assert_eq!(of("prefix-length-range", "/24-/32"), Some((24, 32)));
        for (kind, value) in [("upto", "/33"), ("upto", ""), ("prefix-length-range", "/24")] {
            assert_eq!(of(kind, value), None, "{kind} {value}");
        }
    }
}
