//! Validates BGP and routing policies: `when`, `leafref` and `mandatory` of the models, and what devices refuse.

use std::collections::BTreeSet;

use super::checks::key_leafref;
use super::{INSTANCE, ROOTS, bgp, instances, policy};
use crate::dialect::accessors::{child, list, text_value};
use crate::dialect::cursor::Cursor;
use crate::dialect::violations::{invalid, missing_instance, missing_leaf, refused, unmet_when};
use crate::model::path::Path;
use crate::model::schema::position;
use crate::model::tree::{Container, Node};
use crate::model::value::Value;
use crate::netconf::error::RpcError;

/// Returns all errors of policies and BGP instances.
pub(super) fn check(config: &Container, errors: &mut Vec<RpcError>) {
    let mut names = Names::default();
    if let Some(policies) = policy::policies(config) {
        let path = Path::node(None, &ROOTS[position(ROOTS, "routing-policy")]);
        names = Names::new(policies);
        names.check_keys(policies.node, &path, errors);
        check_prefixes(policies, &path, errors);
        names.check_statements(policies, &path, errors);
    }
    let root = Path::node(None, &ROOTS[position(ROOTS, "network-instances")]);
    for (name, instance) in instances(config) {
        let key = [text_value(name)];
        let path = root.child_entry("network-instance", &key);
        let path = path.child("protocols");
        let protocols = child(instance, INSTANCE, "protocols");
        let mut first: Option<&[Value]> = None;
        for (key, protocol) in list(protocols, path.children(), "protocol").into_iter().flatten() {
            let path = path.child_entry("protocol", key);
            let Some(bgp) = child(protocol, path.children(), "bgp") else { continue };
            if !key[0].is("BGP") {
                errors.push(unmet_when(&path, "bgp", "./config/identifier = 'oc-pol-types:BGP'"));
            } else if let Some([_, first, ..]) = first.replace(key) {
                let message = format!("{first} is the BGP instance already; there can be only one");
                errors.push(refused(&path, message));
            }
            let path = path.child("bgp");
            let cursor = Cursor::new(bgp, bgp::BGP);
            if cursor.leaf(&["global", "config", "as"]).is_none() {
                let global = path.child("global");
                errors.push(missing_leaf(&global.child("config"), "as"));
            }
            names.groups =
                cursor.named(&["peer-groups", "peer-group"]).map(|(name, _)| name.to_owned()).collect();
            names.check_keys(bgp, &path, errors);
        }
    }
}

/// The names that leafrefs lead to.
#[derive(Default)]
struct Names {
    policies: BTreeSet<String>,
    prefix_sets: BTreeSet<String>,
    community_sets: BTreeSet<String>,
    groups: BTreeSet<String>,
}

impl Names {
    fn new(policies: Cursor<'_>) -> Self {
        let names = |path: &[&str]| policies.named(path).map(|(name, _)| name.to_owned()).collect();
        Self {
            policies: names(&["policy-definitions", "policy-definition"]),
            prefix_sets: names(&["defined-sets", "prefix-sets", "prefix-set"]),
            community_sets: names(&["defined-sets", "bgp-defined-sets", "community-sets", "community-set"]),
            groups: BTreeSet::new(),
        }
    }

    /// Checks all lists and references below a node.
    fn check_keys(&self, node: &Container, path: &Path<'_>, errors: &mut Vec<RpcError>) {
        let definitions = path.children();
        for (at, child) in node.nodes() {
            let definition = &definitions[at];
            match child {
                Node::Container(container) => {
                    let path = Path::node(Some(path), definition);
                    match definition.name {
                        "apply-policy" => self.check_policies(container, &path, errors),
                        "timers" => check_timers(container, &path, errors),
                        "config" => self.check_group(container, &path, errors),
                        _ => {}
                    }
                    self.check_keys(container, &path, errors);
                }
                Node::List(entries) => {
                    for (key, entry) in entries.iter() {
                        let path = Path::entry(Some(path), definition, key);
                        let config = path.child("config");
                        key_leafref(key, entry, path.children(), config.children(), &path, errors);
                        self.check_keys(entry, &path, errors);
                    }
                }
                Node::Presence(_) | Node::Leaf(_) | Node::LeafList(_) => {}
            }
        }
    }

    fn check_policies(&self, apply: &Container, path: &Path<'_>, errors: &mut Vec<RpcError>) {
        for leaf in ["import-policy", "export-policy"] {
            let named = Cursor::new(apply, path.children()).values(&["config", leaf]);
            for value in named.filter(|value| !self.policies.contains(value.text().unwrap_or_default())) {
                let config = path.child("config");
                let path = Path::value(Some(&config), config.child(leaf).definition(), value);
                errors.push(missing_instance(&path, format!("there is no policy-definition {value}")));
            }
        }
    }

    fn check_group(&self, config: &Container, path: &Path<'_>, errors: &mut Vec<RpcError>) {
        if !path.children().iter().any(|definition| definition.name == "peer-group") {
            return;
        }
        let group = Cursor::new(config, path.children()).text(&["peer-group"]);
        if let Some(group) = group.filter(|group| !self.groups.contains(*group)) {
            errors
                .push(missing_instance(&path.child("peer-group"), format!("there is no peer-group {group}")));
        }
    }

    fn check_statements(&self, policies: Cursor<'_>, path: &Path<'_>, errors: &mut Vec<RpcError>) {
        let definitions = path.child("policy-definitions");
        for (key, definition) in policies.list(&["policy-definitions", "policy-definition"]) {
            let path = definitions.child_entry("policy-definition", key);
            let list = path.child("statements");
            for (key, statement) in definition.list(&["statements", "statement"]) {
                let path = list.child_entry("statement", key);
                let set = policy::prefix_set(statement);
                if let Some(set) = set.filter(|set| !self.prefix_sets.contains(*set)) {
                    let conditions = path.child("conditions");
                    let at = conditions.child("match-prefix-set");
                    let at = at.child("config");
                    errors.push(missing_instance(
                        &at.child("prefix-set"),
                        format!("there is no prefix-set {set}"),
                    ));
                }
                for set in policy::community_sets(statement) {
                    if !self.community_sets.contains(set) {
                        let actions = path.child("actions");
                        let at = actions.child("bgp-actions");
                        let at = at.child("set-community");
                        let message = format!("there is no community-set {set}");
                        errors.push(missing_instance(&at.child("reference"), message));
                    }
                }
            }
        }
    }
}

/// A range of prefix lengths starts at the length of its prefix or later, and a set has the families of its mode.
fn check_prefixes(policies: Cursor<'_>, path: &Path<'_>, errors: &mut Vec<RpcError>) {
    let (sets, all) =
        (path.child("defined-sets"), policies.list(&["defined-sets", "prefix-sets", "prefix-set"]));
    let sets = sets.child("prefix-sets");
    for (key, set) in all {
        let path = sets.child_entry("prefix-set", key);
        let list = path.child("prefixes");
        for (key, _) in set.list(&["prefixes", "prefix"]) {
            let path = list.child_entry("prefix", key);
            let (prefix, range) = (key[0].text().unwrap_or_default(), key[1].text().unwrap_or_default());
            if policy::prefix_range(prefix, range).is_none() {
                errors.push(invalid(&path, format!("{prefix} has no prefixes of the lengths {range}")));
            }
            let other = if prefix.contains(':') { "IPV4" } else { "IPV6" };
            if set.is(&["config", "mode"], other) {
                errors.push(invalid(&path, format!("{prefix} is not of the mode {other} of its prefix-set")));
            }
        }
    }
}

/// The hold time is 0 or at least 3 seconds (RFC 4271, section 4.2).
fn check_timers(timers: &Container, path: &Path<'_>, errors: &mut Vec<RpcError>) {
    let timers = Cursor::new(timers, path.children());
    let config = path.child("config");
    let hold: Option<u16> = timers.number(&["config", "hold-time"]);
    if hold.is_some_and(|hold| (1..3).contains(&hold)) {
        errors.push(invalid(&config.child("hold-time"), "hold-time is 0 or at least 3 seconds"));
    }
    let keepalive: Option<u16> = timers.number(&["config", "keepalive-interval"]);
    if hold.zip(keepalive).is_some_and(|(hold, keepalive)| hold > 0 && keepalive >= hold) {
        let message = "keepalive-interval is not shorter than hold-time";
        errors.push(invalid(&config.child("keepalive-interval"), message));
    }
}

#[cfg(test)]
mod tests {
    use crate::dialect::OPENCONFIG;
    use crate::dialect::tests::assert_refused;

    fn protocol(identifier: &str, name: &str, bgp: &str) -> String {
        let keys = format!(
            "<identifier xmlns:p=\"http://openconfig.net/yang/policy-types\">p:{identifier}</identifier>\
             <name>{name}</name>"
        );
        format!("<protocol>{keys}<config>{keys}</config><bgp>{bgp}</bgp></protocol>")
    }

    fn blue(protocols: &str) -> String {
        format!(
            "<network-instances xmlns=\"http://openconfig.net/yang/network-instance\"><network-instance><name>blue</name>\
             <config><name>blue</name><type xmlns:t=\"http://openconfig.net/yang/network-instance-types\">t:L3VRF</type>\
             </config><protocols>{protocols}</protocols></network-instance></network-instances>"
        )
    }

    fn prefix_set(mode: &str, prefix: &str, range: &str) -> String {
        let keys = format!("<ip-prefix>{prefix}</ip-prefix><masklength-range>{range}</masklength-range>");
        format!(
            "<routing-policy xmlns=\"http://openconfig.net/yang/routing-policy\"><defined-sets><prefix-sets><prefix-set>\
             <name>s</name><config><name>s</name><mode>{mode}</mode></config><prefixes><prefix>{keys}<config>{keys}\
             </config></prefix></prefixes></prefix-set></prefix-sets></defined-sets></routing-policy>"
        )
    }

    #[test]
    fn openconfig_refuses_invalid_bgp() {
        let asn = "<global><config><as>65000</as></config></global>";
        let neighbor = |content: &str| {
            format!(
                "{asn}<neighbors><neighbor><neighbor-address>10.7.0.1</neighbor-address>{content}</neighbor></neighbors>"
            )
        };
        let config = |leaves: &str| {
            neighbor(&format!("<config><neighbor-address>10.7.0.1</neighbor-address>{leaves}</config>"))
        };
        let timers = |hold: u16, keepalive: u16| {
            neighbor(&format!(
                "<config><neighbor-address>10.7.0.1</neighbor-address></config><timers><config><hold-time>{hold}\
                 </hold-time><keepalive-interval>{keepalive}</keepalive-interval></config></timers>"
            ))
        };
        let bgp = |content: &str| blue(&protocol("BGP", "B", content));
        let cases = [
            ("accepted", bgp(&config("<peer-as>65001</peer-as>")), None),
            ("accepted", bgp(&timers(9, 3)) + &prefix_set("IPV4", "10.0.0.0/8", "8..32"), None),
            ("accepted", bgp(&timers(0, 30)), None),
            ("no AS", bgp("<neighbors/><peer-groups/><global><afi-safis/></global>"), None),
            ("no AS", bgp(&neighbor("").replace(asn, "")), Some("as is mandatory")),
            ("another protocol", blue(&protocol("STATIC", "B", asn)), Some("of bgp is not satisfied")),
            (
                "two instances",
                blue(&(protocol("BGP", "A", asn) + &protocol("BGP", "B", asn))),
                Some("A is the BGP instance already"),
            ),
            ("no leaf for the key", bgp(&neighbor("<timers/>")), Some("neighbor-address is a leafref")),
            ("no group", bgp(&config("<peer-group>g</peer-group>")), Some("no peer-group g")),
            ("a short hold time", bgp(&timers(2, 1)), Some("at least 3 seconds")),
            ("a long interval", bgp(&timers(9, 9)), Some("not shorter than hold-time")),
            ("no such lengths", prefix_set("IPV4", "10.0.0.0/8", "4..8"), Some("lengths 4..8")),
            ("the other family", prefix_set("IPV6", "10.0.0.0/8", "exact"), Some("mode IPV6")),
        ];
        assert_refused(&OPENCONFIG, &cases);
    }
}
