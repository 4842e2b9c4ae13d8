//! The commit check of BGP groups and routing policies.

use std::collections::BTreeSet;

use super::checks::refused;
use super::vrf::instances;
use super::{bgp, policy};
use crate::dialect::accessors::text_value;
use crate::dialect::cursor::Cursor;
use crate::model::path::Path;
use crate::model::tree::Container;
use crate::model::value::Value;
use crate::netconf::error::RpcError;

/// Returns the errors of all groups and policies. `root` is the path of `configuration`.
pub(super) fn check(config: &Container, root: &Path<'_>, errors: &mut Vec<RpcError>) {
    let options = policy::options(config);
    let names = |list: &'static str| -> BTreeSet<&str> {
        options.into_iter().flat_map(|options| options.named(&[list])).map(|(name, _)| name).collect()
    };
    let policies = names("policy-statement");
    if let Some(options) = options {
        let (lists, communities) = (names("prefix-list"), names("community"));
        let at = root.child("policy-options");
        for (name, policy) in options.named(&["policy-statement"]) {
            let key = [text_value(name)];
            let path = at.child_entry("policy-statement", &key);
            check_policy(policy, &lists, &communities, &path, errors);
        }
    }
    let list = root.child("routing-instances");
    for (name, instance) in instances(config) {
        let key = [text_value(name)];
        let path = list.child_entry("instance", &key);
        let protocols = path.child("protocols");
        let path = protocols.child("bgp");
        let has_as = bgp::autonomous_system(instance).is_some();
        for (name, group) in bgp::groups(instance) {
            let key = [text_value(name)];
            let path = path.child_entry("group", &key);
            check_group(name, group, has_as, &path, errors);
            check_policies(group, &policies, &path, errors);
            let as_list = group.text(&["peer-as-list"]);
            if let Some(as_list) = as_list.filter(|as_list| !names("as-list").contains(as_list)) {
                errors.push(
                    refused(&path, format!("as-list {as_list} is not defined")).info("bad-element", as_list),
                );
            }
            for (key, neighbor) in group.list(&["neighbor"]) {
                check_policies(neighbor, &policies, &path.child_entry("neighbor", key), errors);
            }
        }
    }
}

fn check_group(name: &str, group: Cursor<'_>, has_as: bool, path: &Path<'_>, errors: &mut Vec<RpcError>) {
    let group_as = group.leaf(&["peer-as"]).is_some();
    let external = group.is(&["type"], "external");
    for (key, neighbor) in group.list(&["neighbor"]) {
        let path = path.child_entry("neighbor", key);
        if external && !group_as && neighbor.leaf(&["peer-as"]).is_none() {
            let message = format!(
                "Error in neighbor {} of group {name}: peer AS number must be configured for an external peer",
                key[0]
            );
            errors.push(refused(&path, message).info("bad-element", "peer-as"));
        }
        if !has_as && bgp::local_as(group).or_else(|| bgp::local_as(neighbor)).is_none() {
            let message = format!(
                "Error in neighbor {} of group {name}: must define a local autonomous system when enabling BGP",
                key[0]
            );
            errors.push(refused(&path, message).info("bad-element", "autonomous-system"));
        }
    }
    let is_dynamic = group.values(&["allow"]).next().is_some();
    if is_dynamic && external && !group_as && group.leaf(&["peer-as-list"]).is_none() {
        let message = format!("Error in group {name}: peer-as or peer-as-list must be configured with allow");
        errors.push(refused(path, message).info("bad-element", "allow"));
    }
    let hold: Option<u16> = group.number(&["hold-time"]);
    if hold.is_some_and(|hold| (1..3).contains(&hold)) {
        errors.push(refused(path, "hold-time is 0 or at least 3 seconds").info("bad-element", "hold-time"));
    }
}

fn check_policies(
    holder: Cursor<'_>,
    policies: &BTreeSet<&str>,
    path: &Path<'_>,
    errors: &mut Vec<RpcError>,
) {
    let named = holder.values(&["import"]).chain(holder.values(&["export"])).filter_map(Value::text);
    for name in named.filter(|name| !policies.contains(name)) {
        let message = format!("Policy error: Policy {name} referenced but not defined");
        errors.push(refused(path, message).info("bad-element", name));
    }
}

fn check_policy(
    policy: Cursor<'_>,
    lists: &BTreeSet<&str>,
    communities: &BTreeSet<&str>,
    path: &Path<'_>,
    errors: &mut Vec<RpcError>,
) {
    for (name, term) in policy::terms(policy) {
        let key = [text_value(name.unwrap_or_default())];
        let of_term = path.child_entry("term", &key);
        let path = if name.is_some() { &of_term } else { path };
        for list in policy::named_lists(term).filter(|list| !lists.contains(list)) {
            let message = format!("Policy error: prefix-list {list} referenced but not defined");
            errors.push(refused(path, message).info("bad-element", list));
        }
        for community in policy::named_communities(term).filter(|name| !communities.contains(name)) {
            let message = format!("Policy error: community {community} referenced but not defined");
            errors.push(refused(path, message).info("bad-element", community));
        }
        for (key, _) in term.list(&["from", "route-filter"]) {
            let (prefix, value) = (key[0].text().unwrap_or_default(), key[2].text().unwrap_or_default());
            if policy::filter(prefix, &key[1], value).is_none() {
                let message = format!("route-filter {prefix} {} {value} matches no prefixes", key[1]);
                errors.push(refused(path, message).info("bad-element", "route-filter"));
            }
        }
    }
}
