//! The state of ports before they carried our VLANs. The device does not tell who created an empty unit, set a mode,
//! or took a VLAN off a list. So reports carry this state, as they carry [closed trunks](super::closed_trunks), and
//! the engine repeats it in the next command.

use std::borrow::Cow;
use std::collections::BTreeMap;

use eno_fabric_driver::desired::{desired_vlans, listed_name};
use eno_schemas::{FabricDesired, FabricPort, PortBefore, VlanId, VlanSet};

use super::{Mode, ObservedConfig, ObservedPort, Plan, members, ours};

/// The name of the native VLAN setting, in dialects where the mode depends on it.
pub const NATIVE: &str = "native";
/// Marks a native VLAN that was on the list.
const NATIVE_LISTED: &str = "native-listed";

/// The port memory of an interface, which its ports share.
pub(super) fn prior_state_of<'a>(ports: &[&'a FabricPort]) -> Option<&'a PortBefore> {
    ports.iter().find_map(|port| port.before.as_ref())
}

/// True for an access port, unless it is a former trunk that inherits this mode since it lost its own.
pub(super) fn is_access(current: &ObservedPort, before: Option<&PortBefore>) -> bool {
    let lost_its_mode = current.access_by_inheritance && before.is_some_and(|before| before.trunk);
    current.mode == Some(Mode::Access) && !lost_its_mode
}

/// The VLANs to restore on the interface's list because they are not desired any more.
pub(super) fn restored_vlans(
    before: Option<&PortBefore>,
    current: &ObservedPort,
    desired_vlans: &VlanSet,
) -> VlanSet {
    let has_list = !is_access(current, before) && current.unfit.is_none();
    match before.filter(|_| has_list) {
        Some(before) => before.vlans.difference(desired_vlans).difference(&current.taken_vlans()),
        None => VlanSet::EMPTY,
    }
}

/// The new port memory of an interface, if it exceeds `before`. `new_vlans`: VLANs that the change creates. `is_changed`:
/// the change affects the interface.
pub(super) fn port_memory(
    current: &ObservedPort,
    before: Option<&PortBefore>,
    ours: &VlanSet,
    new_vlans: &VlanSet,
    is_changed: bool,
) -> Option<PortBefore> {
    let own = current.tagged().difference(&current.taken_vlans()).difference(&current.inherited);
    let mut lost = if current.open { VlanSet::EMPTY } else { own.intersection(new_vlans) };
    if let Some(placeholder) = before.and_then(|before| placeholder_native(current, before)) {
        lost.remove(placeholder);
    }
    let mut now = before.cloned().unwrap_or_default();
    now.vlans = now.vlans.union(&lost);
    let untouched = own.intersection(ours).is_empty();
    if now.settings.is_none() && untouched && (is_changed || !lost.is_empty()) {
        now.trunk = current.mode == Some(Mode::Trunk);
        now.settings = current_settings(current);
    }
    (Some(&now) != before && now != PortBefore::default()).then_some(now)
}

/// The current settings; `None`: they exceed the bounds of the port memory.
fn current_settings(current: &ObservedPort) -> Option<BTreeMap<String, String>> {
    let set = current.settings.iter().filter_map(|(name, setting)| Some((name, setting.value.as_ref()?)));
    let mut set: BTreeMap<String, String> =
        set.map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
    if current.native.is_some_and(|native| current.tagged().contains(native)) {
        set.insert(NATIVE_LISTED.to_owned(), String::new());
    }
    let short = set.values().all(|value| value.chars().count() <= PortBefore::MAX_SETTING_CHARS);
    (short && set.len() <= PortBefore::MAX_SETTINGS).then_some(set)
}

/// The settings that have our values and had others, with the values to restore; `None`: unset.
pub(super) fn to_restore(
    current: &ObservedPort,
    settings: &BTreeMap<String, String>,
) -> BTreeMap<&'static str, Option<String>> {
    let ours = current.settings.iter().filter(|(_, setting)| setting.ours);
    let differ = ours.filter(|(name, setting)| setting.value.as_ref() != settings.get(**name));
    differ.map(|(name, _)| (*name, settings.get(*name).cloned())).collect()
}

/// Whether the port was a trunk, and its settings. `None`: they are unknown, or somebody else has since set a native
/// VLAN that needs our mode.
pub(super) fn known_prior_state<'a>(
    current: &ObservedPort,
    before: &'a PortBefore,
) -> Option<(bool, &'a BTreeMap<String, String>)> {
    let settings = before.settings.as_ref()?;
    let native = current.settings.get(NATIVE).and_then(|native| native.value.as_ref());
    (native.is_none() || native == settings.get(NATIVE)).then_some((before.trunk, settings))
}

/// The native VLAN, if it is on the list of a former trunk only as a placeholder.
pub(super) fn placeholder_native(current: &ObservedPort, before: &PortBefore) -> Option<VlanId> {
    let (_, settings) = known_prior_state(current, before).filter(|(trunk, _)| *trunk)?;
    let placeholder = current.native.filter(|_| !settings.contains_key(NATIVE_LISTED));
    placeholder.filter(|native| current.tagged().contains(*native))
}

/// The desired state with the port memory of the plan.
pub fn with_new_port_memory<'a>(desired: &'a FabricDesired, plan: &Plan) -> Cow<'a, FabricDesired> {
    if plan.before.is_empty() {
        return Cow::Borrowed(desired);
    }
    let mut desired = desired.clone();
    for port in &mut desired.ports {
        if let Some(before) = plan.before.get(listed_name(port)) {
            port.before = Some(before.clone());
        }
    }
    Cow::Owned(desired)
}

/// The port memory that is still needed, by port. It is needed while the port has or gets VLANs of ours, and until
/// its former state is restored.
pub(super) fn still_needed(
    observed: &ObservedConfig,
    desired: &FabricDesired,
) -> BTreeMap<String, PortBefore> {
    let ours = ours(observed, &desired.cluster);
    let desired_vlans = desired_vlans(desired);
    let mut all = BTreeMap::new();
    for (name, ports) in members(desired) {
        let Some(before) = prior_state_of(&ports) else { continue };
        let needed = match observed.ports.get(name) {
            Some(current) => {
                let is_wanted = ports.iter().any(|port| !port.vlans.is_empty());
                still_needed_on(current, before, is_wanted, &ours, &desired_vlans)
            }
            None => before.clone(),
        };
        if needed != PortBefore::default() {
            all.extend(ports.iter().map(|port| (port.name.clone(), needed.clone())));
        }
    }
    all
}

fn still_needed_on(
    current: &ObservedPort,
    before: &PortBefore,
    is_wanted: bool,
    ours: &VlanSet,
    desired_vlans: &VlanSet,
) -> PortBefore {
    let tagged = current.tagged();
    let own = tagged.difference(&current.inherited);
    let not_yet = if current.open {
        VlanSet::EMPTY
    } else {
        restored_vlans(Some(before), current, desired_vlans).difference(&own)
    };
    let is_needed =
        |vid: &VlanId| desired_vlans.contains(*vid) || ours.contains(*vid) || not_yet.contains(*vid);
    let vlans: VlanSet = before.vlans.iter().filter(is_needed).collect();
    let has_ours = !tagged.intersection(ours).difference(&current.taken_vlans()).is_empty();
    let differs = || {
        known_prior_state(current, before).is_some_and(|(trunk, settings)| {
            let empty = own.is_empty() && !current.open && !trunk;
            empty && !to_restore(current, settings).is_empty()
        })
    };
    if has_ours || is_wanted || !vlans.is_empty() || differs() {
        PortBefore { vlans, ..before.clone() }
    } else {
        PortBefore::default()
    }
}

#[cfg(test)]
mod tests {
    use eno_schemas::{Item, VLAN_TAKEN_OFF};

    use super::*;
    use crate::plan::test_states::{own_vlans, set};
    use crate::plan::{Changes, Exclusions, ModeChange, Setting, plan};

    /// `ports`: name, VLANs, and port memory.
    fn desired(vlans: &str, ports: &[(&str, &str, Option<PortBefore>)]) -> FabricDesired {
        let of_ports: Vec<(&str, &str)> = ports.iter().map(|(name, vlans, _)| (*name, *vlans)).collect();
        let mut desired = crate::plan::test_states::desired(vlans, &of_ports);
        for (port, (_, _, before)) in desired.ports.iter_mut().zip(ports) {
            port.before.clone_from(before);
        }
        desired
    }

    /// `vlans` are ours. `e1` is a trunk with `list`, or no trunk if `list` is empty.
    fn observed(vlans: &str, list: &str) -> ObservedConfig {
        let mode = (!list.is_empty()).then_some(Mode::Trunk);
        let value = mode.map(|_| "trunk");
        let port = ObservedPort {
            configured: true,
            mode,
            tagged: set(list).into(),
            settings: [("mode", Setting::of(value, true)), ("other", Setting::of(Some("x"), false))].into(),
            ..ObservedPort::default()
        };
        ObservedConfig {
            vlans: own_vlans(vlans),
            ports: [("e1".to_owned(), port)].into(),
            empty_opens: true,
            ..ObservedConfig::default()
        }
    }

    fn before(trunk: bool, settings: &[(&str, &str)], vlans: &str) -> PortBefore {
        let settings = settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        PortBefore { trunk, settings: Some(settings.collect()), vlans: set(vlans) }
    }

    fn planned(observed: &ObservedConfig, desired: &FabricDesired) -> Plan {
        plan(observed, desired, &Exclusions::default())
    }

    /// Neither is the state before ENO restored, nor the mode set, nor a removal reported that was not made.
    #[test]
    fn port_that_is_not_understood_is_not_written() {
        let mut observed = observed("20,30", "7,20,30");
        let port = observed.ports.get_mut("e1").unwrap();
        (port.mode, port.unread, port.unfit) = (None, true, Some("has another mode".into()));
        let desired = desired("30", &[("e1", "30", Some(before(false, &[("mode", "access")], "")))]);
        let plan = planned(&observed, &desired);
        assert_eq!(plan.changes.ports, BTreeMap::new());
        let rejected: Vec<&Item> = plan.rejected.iter().map(|one| &one.item).collect();
        assert!(rejected.contains(&&Item::port("e1")), "{rejected:?}");
        assert!(
            rejected.contains(&&Item::port_vlan("e1", crate::plan::test_states::vid(20))),
            "{rejected:?}"
        );
    }

    #[test]
    fn port_memory_is_taken_with_the_first_vlan_only() {
        let first = planned(&observed("", ""), &desired("100", &[("e1", "100", None)]));
        assert_eq!(first.before["e1"], before(false, &[("other", "x")], ""));
        // The port that reports it has the memory.
        let then = desired("100-101", &[("e1", "100-101", Some(first.before["e1"].clone()))]);
        assert_eq!(planned(&observed("100", "100"), &then).before, [].into());
        // With our VLANs on it, the former state is unknown.
        let late = desired("100-101", &[("e1", "100-101", None)]);
        assert_eq!(planned(&observed("100", "100"), &late).before, [].into());
        // An unchanged port gets no memory.
        assert_eq!(planned(&observed("", "7"), &desired("100", &[("e1", "", None)])).before, [].into());
    }

    #[test]
    fn foreign_change_after_port_memory_is_preserved() {
        let none = desired("", &[("e1", "", Some(before(false, &[("other", "y")], "")))]);
        let change = &planned(&observed("100", "100"), &none).changes.ports["e1"];
        assert_eq!((&change.restore, change.mode), (&[("mode", None)].into(), ModeChange::Keep));
        // A trunk that others use meanwhile is not given up.
        let change = &planned(&observed("100", "7,100"), &none).changes.ports["e1"];
        assert_eq!((&change.restore, change.mode), (&[].into(), ModeChange::Keep));
        // A restored port needs no change and no memory.
        let done = observed("", "");
        assert_eq!(planned(&done, &none).changes, Changes::default());
        assert_eq!(still_needed(&done, &none), [].into());
    }

    #[test]
    fn vlan_taken_off_a_foreign_list_is_restored() {
        let elsewhere = desired("3005", &[("e1", "", None), ("e2", "3005", None)]);
        let first = planned(&observed("", "3000-3010"), &elsewhere);
        assert_eq!(first.changes.ports["e1"].remove, set("3005"));
        let note = first.notes.iter().find(|note| note.kind == VLAN_TAKEN_OFF).expect("a note");
        assert!(note.item == Item::port("e1") && note.message.contains("3005"), "{note:?}");
        let known = first.before["e1"].clone();
        assert_eq!(known, before(true, &[("mode", "trunk"), ("other", "x")], "3005"));

        let current = observed("3005", "3000-3004,3006-3010");
        let same = with_new_port_memory(&elsewhere, &first).into_owned();
        let again = planned(&current, &same);
        assert_eq!(again.changes, Changes::default());
        assert!(again.notes.iter().any(|note| note.kind == VLAN_TAKEN_OFF));
        assert_eq!(still_needed(&current, &same)["e1"], known);

        let none = desired("", &[("e1", "", Some(known)), ("e2", "", None)]);
        let last = planned(&current, &none);
        assert_eq!((&last.changes.ports["e1"].add, &last.changes.delete), (&set("3005"), &set("3005")));
        assert!(!last.notes.iter().any(|note| note.kind == VLAN_TAKEN_OFF));
        assert_eq!(still_needed(&observed("", "3000-3010"), &none), [].into());
        // The memory stays until the VLAN is restored.
        assert!(still_needed(&current, &none).contains_key("e1"));
    }

    #[test]
    fn list_with_unresolved_members_keeps_the_trunk_mode() {
        let mut observed = observed("", "100");
        observed.ports.get_mut("e1").unwrap().has_unresolved_members = true;
        let elsewhere = desired("100", &[("e1", "", None), ("e2", "100", None)]);
        let change = &planned(&observed, &elsewhere).changes.ports["e1"];
        assert_eq!((&change.remove, change.mode), (&set("100"), ModeChange::Keep));
    }

    /// An otherwise empty list would carry every VLAN, so the port is no trunk until its VLAN is back.
    #[test]
    fn trunk_of_a_single_taken_vlan_stays_closed() {
        let elsewhere = desired("100", &[("e1", "", None), ("e2", "100", None)]);
        let first = planned(&observed("", "100"), &elsewhere);
        assert_eq!(first.changes.ports["e1"].mode, ModeChange::Drop);
        let known = first.before["e1"].clone();
        let mut current = observed("100", "");
        let kept = desired("100", &[("e1", "", Some(known.clone())), ("e2", "100", None)]);
        assert_eq!(planned(&current, &kept).changes, Changes::default());
        let none = desired("", &[("e1", "", Some(known)), ("e2", "", None)]);
        let back = &planned(&current, &none).changes.ports["e1"];
        assert_eq!((&back.add, back.mode), (&set("100"), ModeChange::Trunk));
        // The VLAN is not restored on a port that somebody else made an access port.
        current.ports.get_mut("e1").unwrap().mode = Some(Mode::Access);
        assert!(!planned(&current, &none).changes.ports.contains_key("e1"));
        assert_eq!(still_needed(&current, &kept)["e1"].vlans, set("100"));
    }

    #[test]
    fn oversized_settings_are_not_remembered() {
        let mut current = observed("", "");
        let long = "x".repeat(PortBefore::MAX_SETTING_CHARS + 1);
        current.ports.get_mut("e1").unwrap().settings.insert("other", Setting::of(Some(&long), false));
        let first = planned(&current, &desired("100", &[("e1", "100", None)]));
        assert_eq!(first.before, [].into());
    }
}
