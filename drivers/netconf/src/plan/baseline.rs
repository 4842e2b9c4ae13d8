//! A device as a session last read it. With that, a change reads only the VLANs and the interfaces that it affects.

use std::collections::BTreeSet;

use eno_fabric_driver::desired::desired_vlans;
use eno_schemas::{FabricDesired, VlanSet};

use super::{Exclusions, ObservedConfig, interfaces, plan};
use crate::memory::Counter;

/// Maximum VLANs that are read one by one. A larger change reads all VLANs.
const MAX_SINGLE_VLANS: usize = 256;

/// All VLANs of a device and the listed interfaces, as they were read.
#[derive(Clone, Debug)]
pub struct Baseline {
    cluster: String,
    known: ObservedConfig,
    /// The device returned more than one entry for a filter with several names.
    answers_several_names: bool,
}

/// What of a device a change has to read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unsettled<'a> {
    /// The VLANs that differ from the desired state, or may differ.
    pub vlans: VlanSet,
    /// The interfaces that the change affects, and those that were not read before.
    pub interfaces: BTreeSet<&'a str>,
}

impl Baseline {
    /// The baseline of a complete read. Interfaces are in it while the memory for what is read of devices suffices.
    pub fn of(observed: &ObservedConfig, desired: &FabricDesired, answers_several_names: bool) -> Self {
        let mut vlans = observed.vlans.clone();
        vlans.settle(&desired.cluster);
        let mut known =
            ObservedConfig { vlans, empty_opens: observed.empty_opens, ..ObservedConfig::default() };
        // While VLANs are contested the plan removes nothing, so it does not tell which interfaces a change affects.
        if observed.contested.is_empty() {
            let mut kept = Counter::default();
            for (name, port) in
                interfaces(desired).iter().filter_map(|name| observed.ports.get_key_value(*name))
            {
                port.count(name, &mut kept);
                if kept.check().is_err() {
                    known.ports.clear();
                    kept = Counter::default();
                    break;
                }
                known.ports.insert(name.clone(), port.clone());
            }
            known.memory = kept.into();
        }
        Self { cluster: desired.cluster.clone(), known, answers_several_names }
    }

    /// Keeps only these interfaces.
    pub fn retain_interfaces(&mut self, keep: impl Fn(&str) -> bool) {
        self.known.ports.retain(|name, _| keep(name));
    }

    /// Whether the device returned more than one entry for a filter with several names.
    pub fn answers_several_names(&self) -> bool {
        self.answers_several_names
    }

    /// What has to be read for the desired state. `own_before`: all VLANs that were ours at the last report. `None`:
    /// all has to be read, since the VLANs are too many or the device returns only one.
    pub fn unsettled<'a>(&self, desired: &'a FabricDesired, own_before: &VlanSet) -> Option<Unsettled<'a>> {
        if desired.cluster != self.cluster {
            return None;
        }
        let (desired_vlans, settled) = (desired_vlans(desired), self.known.vlans.settled(&self.cluster));
        let changed = desired_vlans.difference(settled).union(&settled.difference(&desired_vlans));
        let vlans = changed.union(&self.known.vlans.unsettled(&self.cluster));
        let limit = if self.answers_several_names { MAX_SINGLE_VLANS } else { 1 };
        if vlans.len() > limit {
            return None;
        }
        let mut interfaces = interfaces(desired);
        let mut known = self.known.clone();
        known.deleted_by_others = own_before.difference(&known.vlans.vids());
        let planned = plan(&known, desired, &Exclusions::default());
        interfaces.retain(|name| {
            let is_affected = planned.changes.ports.contains_key(*name) || planned.before.contains_key(*name);
            is_affected || !known.ports.contains_key(*name)
        });
        Some(Unsettled { vlans, interfaces })
    }

    /// Adds all that was not `read` to the observed state.
    pub fn complete(&self, observed: &mut ObservedConfig, read: &Unsettled<'_>) {
        observed.vlans.complete(&self.known.vlans, &read.vlans);
        for (name, port) in
            self.known.ports.iter().filter(|(name, _)| !read.interfaces.contains(name.as_str()))
        {
            observed.ports.entry(name.clone()).or_insert_with(|| port.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::plan::observed_vlans::tests::any_vlans;
    use crate::plan::test_states::{desired, set, vid};
    use crate::plan::{Mode, ObservedPort, Plan, Setting};

    fn planned(observed: &ObservedConfig, desired: &FabricDesired) -> Plan {
        plan(observed, desired, &Exclusions::default())
    }

    prop_compose! {
        fn any_set()(ids in prop::collection::btree_set(1u16..40, 0..20)) -> VlanSet {
            ids.into_iter().map(vid).collect()
        }
    }

    prop_compose! {
        fn any_port()(
            mode in prop_oneof![1 => Just(None), 1 => Just(Some(Mode::Access)), 4 => Just(Some(Mode::Trunk))],
            tagged in any_set(),
            native in prop::option::weighted(0.2, 1u16..40),
            open in prop::bool::weighted(0.1),
        ) -> ObservedPort {
            let tagged = if open { VlanSet::EMPTY } else { tagged };
            ObservedPort {
                configured: true,
                mode,
                tagged: tagged.into(),
                native: native.map(vid),
                open,
                settings: [("mode", Setting::of(mode.map(|_| "x"), true))].into(),
                ..ObservedPort::default()
            }
        }
    }

    prop_compose! {
        fn any_observed()(vlans in any_vlans(), ports in prop::collection::btree_map("[a-d]", any_port(), 0..4)) -> ObservedConfig {
            ObservedConfig { vlans, ports, empty_opens: true, ..ObservedConfig::default() }
        }
    }

    prop_compose! {
        fn any_desired()(vlans in any_set(), ports in prop::collection::btree_map("[a-e]", (any_set(), any::<bool>()), 0..5)) -> FabricDesired {
            let on_ports: Vec<(String, String)> = ports.iter().map(|(name, (on, _))| (name.clone(), on.intersection(&vlans).to_string())).collect();
            let on_ports: Vec<(&str, &str)> = on_ports.iter().map(|(name, on)| (name.as_str(), on.as_str())).collect();
            let mut desired = desired(&vlans.to_string(), &on_ports);
            for (port, (_, closed)) in desired.ports.iter_mut().zip(ports.values()) {
                port.closed = *closed;
            }
            desired
        }
    }

    /// The part of a device that is read.
    fn part(observed: &ObservedConfig, read: &Unsettled<'_>) -> ObservedConfig {
        let vlans = observed.vlans.iter().filter(|(vid, _)| read.vlans.contains(*vid));
        let mut part = ObservedConfig {
            vlans: vlans.map(|(vid, vlan)| (vid, vlan.into_owned())).collect(),
            ..observed.clone()
        };
        part.ports.retain(|name, _| read.interfaces.contains(name.as_str()));
        part
    }

    proptest! {
        /// Reading only what is unsettled and completing it gives the same result as reading all.
        #[test]
        fn baseline_completes_to_the_full_state(observed in any_observed(), before in any_desired(), desired in any_desired()) {
            let baseline = Baseline::of(&observed, &before, true);
            let read = baseline.unsettled(&desired, &VlanSet::EMPTY).unwrap();
            let mut now = part(&observed, &read);
            baseline.complete(&mut now, &read);
            let all = |vlans: &super::super::ObservedVlans| vlans.iter().map(|(vid, vlan)| (vid, vlan.into_owned())).collect::<Vec<_>>();
            prop_assert_eq!(all(&now.vlans), all(&observed.vlans));
            for name in interfaces(&desired) {
                prop_assert_eq!(now.ports.get(name), observed.ports.get(name));
            }
        }

        /// The plan changes only what is unsettled, and remembers no other interface.
        #[test]
        fn unsettled_part_covers_all_changes(observed in any_observed(), before in any_desired(), desired in any_desired(), deleted in any_set()) {
            let own_before = ours(&observed).union(&deleted);
            let read = Baseline::of(&observed, &before, true).unsettled(&desired, &own_before).unwrap();
            let deleted_by_others = own_before.difference(&observed.vlans.vids());
            let Plan { changes, before, .. } = planned(&ObservedConfig { deleted_by_others, ..observed }, &desired);
            prop_assert!(changes.on_device().is_subset(&read.vlans));
            prop_assert!(changes.ports.keys().chain(before.keys()).all(|name| read.interfaces.contains(name.as_str())));
        }
    }

    fn ours(observed: &ObservedConfig) -> VlanSet {
        super::super::ours(observed, "c")
    }

    #[test]
    fn many_changes_read_all_vlans() {
        let unsettled = |baseline: &Baseline, desired: &FabricDesired| {
            baseline.unsettled(desired, &VlanSet::EMPTY).map(|unsettled| unsettled.vlans)
        };
        let empty = ObservedConfig::default();
        let baseline = Baseline::of(&empty, &desired("", &[]), true);
        assert_eq!(unsettled(&baseline, &desired("1-257", &[])), None);
        assert_eq!(unsettled(&baseline, &desired("1-256", &[])), Some(set("1-256")));
        let one = Baseline::of(&empty, &desired("", &[]), false);
        assert_eq!(unsettled(&one, &desired("5-6", &[])), None);
        assert_eq!(unsettled(&one, &desired("5", &[])), Some(set("5")));
        let other = FabricDesired { cluster: "d".into(), ..desired("5", &[]) };
        assert_eq!(unsettled(&baseline, &other), None);
    }

    #[test]
    fn only_affected_and_unknown_interfaces_are_read() {
        let port = |vlans: &str| ObservedPort {
            configured: true,
            mode: Some(Mode::Trunk),
            tagged: set(vlans).into(),
            ..ObservedPort::default()
        };
        let observed = ObservedConfig {
            vlans: crate::plan::test_states::own_vlans("10-11"),
            ports: [("a".to_owned(), port("10-11")), ("b".to_owned(), port("10"))].into(),
            empty_opens: true,
            ..ObservedConfig::default()
        };
        let before = desired("10-11", &[("a", "10-11"), ("b", "10"), ("gone", "")]);
        let mut baseline = Baseline::of(&observed, &before, true);
        let read = |baseline: &Baseline, desired: &FabricDesired| {
            let unsettled = baseline.unsettled(desired, &set("10-11")).unwrap();
            (unsettled.vlans.to_string(), unsettled.interfaces.into_iter().collect::<Vec<_>>().join(" "))
        };
        let more = desired("10-12", &[("a", "10-11"), ("b", "10,12"), ("gone", ""), ("new", "")]);
        assert_eq!(read(&baseline, &more), ("12".into(), "b gone new".into()));
        baseline.retain_interfaces(|name| name != "a");
        assert_eq!(read(&baseline, &before), (String::new(), "a gone".into()));
        let contested = ObservedConfig { contested: set("11"), ..observed };
        assert_eq!(read(&Baseline::of(&contested, &before, true), &before).1, "a b gone");
    }
}
