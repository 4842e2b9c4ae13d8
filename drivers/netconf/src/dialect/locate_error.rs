//! Finds the part of a change that an `<rpc-error>` is about.

use eno_schemas::VlanId;

use crate::plan::{ChangeUnit, Changes};
use crate::reply::RpcError;

/// The keys of a dialect's paths, as local names.
pub(super) struct Keys {
    /// List keys and leaf-lists with a VID, or a range `x..y`.
    pub(super) vlan: &'static [&'static str],
    /// The list key with an interface name.
    pub(super) interface: &'static str,
}

/// Locates by the [error path](RpcError::location) first, then by the words of `error-message`.
pub(super) fn locate_error(error: &RpcError, changes: &Changes, keys: &Keys) -> Option<ChangeUnit> {
    let mut named = Named::default();
    for (key, value) in predicates(error.location().unwrap_or_default()) {
        if keys.vlan.contains(&key) {
            named.some_of_range = value.contains("..");
            named.vid = value.parse().ok().filter(|vid| changes.vlans().contains(*vid)).or(named.vid);
        } else if key == keys.interface && changes.ports.contains_key(value) {
            named.interface = Some(value.to_owned());
        }
    }
    locate_named_error(named, error, changes, |_| None)
}

/// The names in an `error-path`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Named {
    pub(super) interface: Option<String>,
    pub(super) vid: Option<VlanId>,
    /// The path names several VLANs.
    pub(super) some_of_range: bool,
}

/// Locates by the names in the path, and by the words of `error-message`: VIDs after `VLAN`, interface names, and
/// words that `known` maps to either.
pub(super) fn locate_named_error(
    named: Named,
    error: &RpcError,
    changes: &Changes,
    known: impl Fn(&str) -> Option<Named>,
) -> Option<ChangeUnit> {
    let touched = changes.vlans();
    let Named { mut interface, mut vid, some_of_range } = named;
    let message = error.message.as_deref().unwrap_or_default();
    let words =
        || message.split(|c: char| c.is_whitespace() || "\"'`,;:()<>=".contains(c)).filter(|w| !w.is_empty());
    if interface.is_none() && vid.is_none() {
        for found in words().filter_map(|word| known(word.trim_end_matches('.'))) {
            interface = interface.or(found.interface);
            vid = vid.or(found.vid);
        }
    }
    if vid.is_none() {
        let vlan_words = words().zip(words().skip(1)).filter(|(word, _)| is_vlan_word(word));
        let named = vlan_words.filter_map(|(_, next)| next.trim_end_matches('.').parse().ok());
        vid = named.into_iter().find(|vid: &VlanId| touched.contains(*vid));
    }
    if vid.is_none() && some_of_range {
        return None;
    }
    if interface.is_none() && error.location().is_none_or(|path| predicates(path).is_empty()) {
        interface = words()
            .map(|word| word.trim_end_matches('.'))
            .find(|word| changes.ports.contains_key(*word))
            .map(str::to_owned);
    }
    match (interface, vid) {
        (Some(name), Some(vid)) => {
            let change = changes.ports.get(&name)?;
            let current = change.add.contains(vid) || change.remove.contains(vid);
            Some(if current { ChangeUnit::PortVlan(name, vid) } else { ChangeUnit::Vlan(vid) })
        }
        (Some(name), None) => Some(ChangeUnit::Port(name)),
        (None, Some(vid)) => Some(ChangeUnit::Vlan(vid)),
        (None, None) => None,
    }
}

fn is_vlan_word(word: &str) -> bool {
    ["vlan", "vlan-id", "vid"].iter().any(|known| word.eq_ignore_ascii_case(known))
}

/// The `[key='value']` pairs of an instance identifier (RFC 7950 section 9.13), keys as local names. `.` gets the
/// name of its node.
pub(super) fn predicates(path: &str) -> Vec<(&str, &str)> {
    let local = |name: &'_ str| name.rfind(':').map_or(0, |at| at + 1);
    let mut found = Vec::new();
    let (mut rest, mut node) = (path, "");
    while let Some(at) = rest.find(['[', '/']) {
        let before = &rest[..at];
        if !before.is_empty() {
            node = &before[local(before)..];
        }
        let slash = rest[at..].starts_with('/');
        rest = &rest[at + 1..];
        if slash {
            continue;
        }
        let Some((key, after)) = rest.split_once('=') else { break };
        let Some(quote) = after.trim_start().chars().next().filter(|c| "'\"".contains(*c)) else { break };
        let Some((value, after)) = after.trim_start()[1..].split_once(quote) else { break };
        let key = key.trim();
        found.push((if key == "." { node } else { &key[local(key)..] }, value));
        rest = after.trim_start().strip_prefix(']').unwrap_or(after);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::PortChange;
    use crate::plan::test_states::vid;

    fn located(path: Option<&str>, message: &str) -> Option<ChangeUnit> {
        let mut changes = Changes::default();
        changes.create.insert(vid(100), "n".into());
        let port = PortChange { add: [vid(100), vid(200)].into_iter().collect(), ..PortChange::default() };
        changes.ports.insert("Ethernet1/1".into(), port);
        let error =
            RpcError { path: path.map(str::to_owned), message: Some(message.into()), ..RpcError::default() };
        locate_error(&error, &changes, &Keys { vlan: &["vlan-id", "trunk-vlans"], interface: "name" })
    }

    #[test]
    fn error_path_or_message_locates_the_item() {
        let on_port = Some(ChangeUnit::PortVlan("Ethernet1/1".into(), vid(200)));
        let port = Some(ChangeUnit::Port("Ethernet1/1".into()));
        let vlan = Some(ChangeUnit::Vlan(vid(100)));
        let root = "/oc-if:interfaces/oc-if:interface[oc-if:name='Ethernet1/1']";
        for (path, message, expected) in [
            (
                Some("/n:network-instances/n:network-instance[n:name=\"default\"]/n:vlan[n:vlan-id='100']/x"),
                "",
                &vlan,
            ),
            (Some(root), "", &port),
            (Some(&*format!("{root}/v:config/v:trunk-vlans[.='200']")), "", &on_port),
            (Some(&*format!("{root}/v:config/v:trunk-vlans[.='200..210']")), "", &None),
            (Some(&*format!("{root}/v:config/v:trunk-vlans[.='190..210']")), "VLAN 200: no", &on_port),
            (Some(root), "VLAN 200 is reserved", &on_port),
            (None, "Vlan '100' is reserved.", &vlan),
            (None, "Ethernet1/1: no such port", &port),
            (None, "vlan 200 can't be used on Ethernet1/1.", &on_port),
            (None, "VLAN 300 is reserved", &None),
            (Some("/a[b"), "no", &None),
            (None, "100 errors", &None),
            (None, &*format!("no room (path \"{root}/v:config/v:trunk-vlans[.='200']\")"), &on_port),
            (None, &*format!("no room (path \"{root}/v:config/v:trunk-vlans[.='190..210']\")"), &None),
            (
                None,
                "no room for /n:network-instance[name='default']/vlans/vlan[vlan-id='100']/config/name",
                &vlan,
            ),
        ] {
            assert_eq!(located(path, message), *expected, "{path:?} {message}");
        }
    }
}
