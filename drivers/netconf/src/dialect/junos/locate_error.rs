//! Locates the unit of a change that a Junos error is about.
//!
//! `error-path` is no instance identifier but the words of the configuration mode, such as `[edit interfaces xe-0/0/1
//! unit 0 family ethernet-switching vlan]`; `bad-element` is a word or a statement, such as `vlan-id 4094`.

use eno_schemas::VlanId;

use crate::plan::{ChangeUnit, Changes, ObservedConfig};
use crate::reply::RpcError;

/// Searches path, bad element and message, in this order.
pub(super) fn locate_error(
    error: &RpcError,
    observed: &ObservedConfig,
    changes: &Changes,
) -> Option<ChangeUnit> {
    let texts = [error.path.as_deref(), error.info("bad-element"), error.message.as_deref()];
    let (mut port, mut vid) = (None, None);
    for text in texts.into_iter().flatten() {
        let words: Vec<&str> = text
            .split(|c: char| c.is_whitespace() || "[]\"'`,;:()<>=".contains(c))
            .map(|word| word.trim_end_matches('.'))
            .filter(|word| !word.is_empty())
            .collect();
        port = port.or_else(|| words.iter().find_map(|word| interface(word, changes)));
        vid = vid.or_else(|| {
            let named = words.iter().find_map(|word| named(word, observed, changes));
            named.or_else(|| numbered(&words, changes))
        });
    }
    match (port, vid) {
        (Some(name), Some(vid)) => {
            let change = changes.ports.get(name)?;
            let current = change.add.contains(vid) || change.remove.contains(vid);
            Some(if current { ChangeUnit::PortVlan(name.to_owned(), vid) } else { ChangeUnit::Vlan(vid) })
        }
        (Some(name), None) => Some(ChangeUnit::Port(name.to_owned())),
        (None, Some(vid)) => Some(ChangeUnit::Vlan(vid)),
        (None, None) => None,
    }
}

/// An interface that is changed, by its name or that of its unit.
fn interface<'a>(word: &str, changes: &'a Changes) -> Option<&'a str> {
    let name = word.strip_suffix(".0").unwrap_or(word);
    changes.ports.get_key_value(name).map(|(name, _)| name.as_str())
}

/// A VLAN that is made or deleted, by its name.
fn named(word: &str, observed: &ObservedConfig, changes: &Changes) -> Option<VlanId> {
    let made = changes.create.iter().find(|(_, name)| *name == word).map(|(vid, _)| *vid);
    made.or_else(|| {
        let called = |vid: &VlanId| observed.vlans.name(*vid).as_deref() == Some(word);
        changes.delete.iter().find(called)
    })
}

/// A VID after a keyword. A range is ignored, since it does not tell which of its VIDs is refused.
fn numbered(words: &[&str], changes: &Changes) -> Option<VlanId> {
    let touched = changes.vlans();
    let after_keyword = words.iter().zip(words.iter().skip(1)).filter(|(word, _)| {
        ["vlan", "vlan-id", "vlans", "members", "vid"].iter().any(|known| word.eq_ignore_ascii_case(known))
    });
    let mut after_keyword = after_keyword.filter_map(|(_, next)| next.parse().ok());
    after_keyword.find(|vid| touched.contains(*vid))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::test_states::vid;
    use crate::plan::{ObservedVlan, PortChange};

    #[test]
    fn error_message_locates_the_item() {
        let mut changes = Changes::default();
        changes.create.insert(vid(100), "eno-c1-100".into());
        changes.delete.insert(vid(300));
        let port = PortChange { add: [vid(100), vid(200)].into_iter().collect(), ..PortChange::default() };
        changes.ports.insert("xe-0/0/1".into(), port);
        let mut observed = ObservedConfig::default();
        let gone = ObservedVlan { name: Some("eno-c1-300".into()), active: true, rename_blocker: None };
        observed.vlans.insert(vid(300), gone);
        let port = Some(ChangeUnit::Port("xe-0/0/1".into()));
        let on_port = |id| Some(ChangeUnit::PortVlan("xe-0/0/1".into(), vid(id)));
        let vlan = |id| Some(ChangeUnit::Vlan(vid(id)));
        for (path, element, message, expected) in [
            (
                Some("[edit interfaces xe-0/0/1 unit 0 family ethernet-switching vlan]"),
                Some("members"),
                "",
                port.clone(),
            ),
            (
                Some("[edit interfaces xe-0/0/1 unit 0 family ethernet-switching]"),
                Some("vlan members 200"),
                "no",
                on_port(200),
            ),
            (Some("[edit vlans eno-c1-100]"), Some("vlan-id 100"), "duplicate vlan-id", vlan(100)),
            (None, None, "vlan eno-c1-300 is used by vstp", vlan(300)),
            (None, None, "\nVLAN-ID 100 is reserved\n", vlan(100)),
            (None, None, "interface xe-0/0/1.0: vlan 200 not found", on_port(200)),
            (None, None, "configuration check-out failed", None),
            (Some("[edit vlans someone-else]"), Some("vlan-id"), "", None),
            (Some("[edit interfaces xe-0/0/1 unit 0]"), None, "members 190-210: too many", port),
        ] {
            let error = RpcError {
                path: path.map(str::to_owned),
                message: Some(message.into()),
                info: element.into_iter().map(|element| ("bad-element".into(), element.into())).collect(),
                ..RpcError::default()
            };
            assert_eq!(locate_error(&error, &observed, &changes), expected, "{path:?} {element:?} {message}");
        }
    }
}
