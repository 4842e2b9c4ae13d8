//! Validates BGP and routing policies: leafrefs and `mandatory` of the models.

use std::collections::BTreeSet;

use super::bgp::bgp;
use super::checks::must_violation;
use super::{ROOTS, instances, policy};
use crate::dialect::accessors::text_value;
use crate::dialect::cursor::Cursor;
use crate::dialect::violations::{invalid, missing_instance, missing_leaf};
use crate::model::path::Path;
use crate::model::schema::position;
use crate::model::tree::Container;
use crate::model::value::Value;
use crate::netconf::error::RpcError;

/// Returns all errors of policies and BGP instances.
pub(super) fn check(config: &Container, errors: &mut Vec<RpcError>) {
    let policies = policy::policies(config);
    let names = |list: &'static str| -> BTreeSet<&str> {
        policies.into_iter().flat_map(|policies| policies.named(&[list])).map(|(name, _)| name).collect()
    };
    if let Some(policies) = policies {
        let path = Path::node(None, &ROOTS[position(ROOTS, "routing-policy")]);
        check_policies(policies, &names("prefix-set"), &names("community-set"), &path, errors);
    }
    let defined = names("policy");
    for (name, instance) in instances(config) {
        let Some(bgp) = bgp(instance) else { continue };
        let key = [text_value(name)];
        let path = Path::entry(None, &ROOTS[position(ROOTS, "network-instance")], &key);
        let path = path.child("protocols");
        check_instance(bgp, &defined, &path.child("bgp"), errors);
    }
}

fn check_instance(bgp: Cursor<'_>, defined: &BTreeSet<&str>, path: &Path<'_>, errors: &mut Vec<RpcError>) {
    for leaf in ["autonomous-system", "router-id"] {
        if bgp.leaf(&[leaf]).is_none() {
            errors.push(missing_leaf(path, leaf));
        }
    }
    check_references(bgp, defined, path, errors);
    let groups: BTreeSet<&str> = bgp.named(&["group"]).map(|(name, _)| name).collect();
    for (key, group) in bgp.list(&["group"]) {
        check_references(group, defined, &path.child_entry("group", key), errors);
    }
    let mut check_group = |holder: Cursor<'_>, path: &Path<'_>| match holder.text(&["peer-group"]) {
        None => errors.push(missing_leaf(path, "peer-group")),
        Some(group) if !groups.contains(group) => {
            errors.push(missing_instance(&path.child("peer-group"), format!("group {group} does not exist")));
        }
        Some(_) => {}
    };
    let dynamic = path.child("dynamic-neighbors");
    let accept = dynamic.child("accept");
    for (key, entry) in bgp.list(&["dynamic-neighbors", "accept", "match"]) {
        check_group(entry, &accept.child_entry("match", key));
    }
    for (key, neighbor) in bgp.list(&["neighbor"]) {
        check_group(neighbor, &path.child_entry("neighbor", key));
    }
    for (key, neighbor) in bgp.list(&["neighbor"]) {
        let path = path.child_entry("neighbor", key);
        check_references(neighbor, defined, &path, errors);
        let group = neighbor.text(&["peer-group"]).and_then(|name| bgp.entry(&["group"], name));
        let layers = [Some(neighbor), group, Some(bgp)];
        let enabled = |name| {
            let family = |layer: Cursor<'_>| {
                let mut families = layer.list(&["afi-safi"]);
                families
                    .find(|(key, _)| key[0].is(name))?
                    .1
                    .leaf(&["admin-state"])
                    .map(|state| state.is("enable"))
            };
            layers.into_iter().flatten().find_map(family).unwrap_or_default()
        };
        if !enabled("ipv4-unicast") && !enabled("ipv6-unicast") && !neighbor.is(&["admin-state"], "disable") {
            let message = "One of the address families must be enabled.";
            errors.push(must_violation(&path.child("admin-state"), message));
        }
    }
}

/// Checks the policies that an instance, a group or a neighbour names, itself and in its families.
fn check_references(
    holder: Cursor<'_>,
    defined: &BTreeSet<&str>,
    path: &Path<'_>,
    errors: &mut Vec<RpcError>,
) {
    let mut check = |holder: Cursor<'_>, path: &Path<'_>| {
        for leaf in ["import-policy", "export-policy"] {
            let unknown = |value: &&Value| !value.text().is_some_and(|name| defined.contains(name));
            for value in holder.values(&[leaf]).filter(unknown) {
                let path = Path::value(Some(path), path.child(leaf).definition(), value);
                errors.push(missing_instance(&path, format!("policy {value} does not exist")));
            }
        }
    };
    check(holder, path);
    for (key, family) in holder.list(&["afi-safi"]) {
        check(family, &path.child_entry("afi-safi", key));
    }
}

fn check_policies(
    policies: Cursor<'_>,
    prefix_sets: &BTreeSet<&str>,
    community_sets: &BTreeSet<&str>,
    path: &Path<'_>,
    errors: &mut Vec<RpcError>,
) {
    for (key, set) in policies.list(&["prefix-set"]) {
        let path = path.child_entry("prefix-set", key);
        for (key, _) in set.list(&["prefix"]) {
            let (prefix, range) = (key[0].text().unwrap_or_default(), key[1].text().unwrap_or_default());
            if policy::prefix_range(prefix, range).is_none() {
                let message = format!("{prefix} has no prefixes of the lengths {range}");
                errors.push(invalid(&path.child_entry("prefix", key), message));
            }
        }
    }
    for (key, policy) in policies.list(&["policy"]) {
        let path = path.child_entry("policy", key);
        for (key, statement) in policy.list(&["statement"]) {
            let path = path.child_entry("statement", key);
            let set = statement.text(&["match", "prefix-set"]);
            if let Some(set) = set.filter(|set| !prefix_sets.contains(set)) {
                let message = format!("prefix-set {set} does not exist");
                errors.push(missing_instance(&path.child("match").child("prefix-set"), message));
            }
            let action = statement.below(&["action"]);
            let sets = action.into_iter().flat_map(policy::community_sets);
            for set in sets.filter(|set| !community_sets.contains(set)) {
                let message = format!("community-set {set} does not exist");
                errors.push(missing_instance(&path.child("action").child("bgp"), message));
            }
        }
    }
}
