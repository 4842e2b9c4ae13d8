//! Properties of plans for arbitrary switches and desired states.

use std::collections::{BTreeMap, BTreeSet};

use eno_driver_ovs_fabric::observe::observe;
use eno_driver_ovs_fabric::plan::{ModeChange, Plan, SkippedPorts, plan};
use eno_driver_ovs_fabric::record::{AccessMode, Record};
use eno_driver_ovs_fabric::render::operations;
use eno_driver_ovs_fabric::trunks::{CLOSED, Trunks};
use eno_driver_ovs_fabric::view::{Interface, Mode, Port, View};
use eno_ovsdb::{Operation, Uuid};
use eno_schemas::{
    Applied, Device, Drift, FabricDesired, FabricPort, FabricVlan, FabricVlans, PortMode, VlanId, VlanSet,
};
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;
use serde_json::{Value as Json, json};

const CLUSTER: &str = "c";

/// Tag, list and labels of a port, without ours.
type Foreign = (Option<u16>, BTreeSet<u16>, BTreeMap<String, String>);

/// The foreign configuration: everything but our entries of `external_ids`, our VLANs, and the modes of ports
/// that may become trunks.
fn foreign(view: &View, ours: &VlanSet) -> BTreeMap<String, Foreign> {
    let of = |port: &Port| {
        let is_ours = |vlan: u16| VlanId::new(vlan).is_ok_and(|vlan| ours.contains(vlan));
        let trunks = port.trunks.iter().filter(|vlan| !is_ours(*vlan) && *vlan != CLOSED).collect();
        let ids = port.external_ids.iter().filter(|(key, _)| !key.starts_with("eno-c-"));
        (
            port.name.clone(),
            (port.tag, trunks, ids.map(|(key, value)| (key.clone(), value.clone())).collect()),
        )
    };
    view.ports.values().map(of).collect()
}

/// Applies a plan as the database would.
fn apply(view: &View, plan: &Plan) -> View {
    let mut view = view.clone();
    for (uuid, change) in &plan.changes {
        let port = view.ports.get_mut(uuid).expect("a port that is there");
        port.trunks.clone_from(&change.trunks);
        match change.mode {
            ModeChange::Keep => {}
            ModeChange::Trunk => port.vlan_mode = Some("trunk".into()),
            ModeChange::Restore(AccessMode::Implied) => port.vlan_mode = None,
            ModeChange::Restore(AccessMode::Named) => port.vlan_mode = Some("access".into()),
        }
        for (key, value) in change.record.entries(CLUSTER) {
            match value {
                Some(value) => drop(port.external_ids.insert(key, value)),
                None => drop(port.external_ids.remove(&key)),
            }
        }
    }
    view
}

/// The atoms of a value in JSON: an atom, or a set of them.
fn atoms(value: &Json) -> BTreeSet<String> {
    match value.as_array().map(Vec::as_slice) {
        Some([kind, Json::Array(atoms)]) if kind == "set" => atoms.iter().map(Json::to_string).collect(),
        _ => [value.to_string()].into(),
    }
}

/// The atoms of a column of a port.
fn column(uuid: Uuid, port: &Port, column: &str) -> BTreeSet<String> {
    let text = |text: &String| Json::from(text.as_str()).to_string();
    match column {
        "_uuid" => [json!(["uuid", uuid.to_string()]).to_string()].into(),
        "name" => [text(&port.name)].into(),
        "trunks" => port.trunks.iter().map(|number| number.to_string()).collect(),
        "tag" => port.tag.iter().map(ToString::to_string).collect(),
        "vlan_mode" => port.vlan_mode.iter().map(text).collect(),
        other => panic!("column {other}"),
    }
}

/// Carries out the operations on ports as the database would, except for `external_ids`. `None`: an operation fails.
fn transact(view: &View, operations: impl IntoIterator<Item = Operation>) -> Option<View> {
    let mut view = view.clone();
    for operation in operations {
        let operation = serde_json::to_value(&operation).expect("JSON");
        let meets = |uuid: Uuid, port: &Port, condition: &Json| {
            let there = column(uuid, port, condition[0].as_str().expect("a column"));
            match condition[1].as_str() {
                Some("==") => there == atoms(&condition[2]),
                Some("includes") => atoms(&condition[2]).is_subset(&there),
                other => panic!("function {other:?}"),
            }
        };
        let conditions = operation["where"].as_array().expect("conditions");
        let selected = view
            .ports
            .iter_mut()
            .filter(|(uuid, port)| conditions.iter().all(|one| meets(**uuid, port, one)));
        match operation["op"].as_str() {
            Some("wait") => {
                let columns: Vec<&str> =
                    operation["columns"].as_array()?.iter().filter_map(Json::as_str).collect();
                let there: BTreeSet<Vec<_>> = selected
                    .map(|(uuid, port)| columns.iter().map(|of| column(*uuid, port, of)).collect())
                    .collect();
                let rows = operation["rows"].as_array()?.iter();
                if there != rows.map(|row| columns.iter().map(|of| atoms(&row[*of])).collect()).collect() {
                    return None;
                }
            }
            Some("update") => selected.for_each(|(_, port)| {
                port.vlan_mode = operation["row"]["vlan_mode"].as_str().map(str::to_owned);
            }),
            Some("mutate") => selected.for_each(|(_, port)| {
                for mutation in operation["mutations"].as_array().expect("mutations") {
                    let numbers = atoms(&mutation[2]);
                    let numbers: Trunks = numbers.iter().filter_map(|number| number.parse().ok()).collect();
                    match (mutation[0].as_str(), mutation[1].as_str()) {
                        (Some("trunks"), Some("insert")) => port.trunks = port.trunks.union(&numbers),
                        (Some("trunks"), Some("delete")) => port.trunks = port.trunks.difference(&numbers),
                        (of, _) => assert_eq!(of, Some("external_ids")),
                    }
                }
            }),
            other => panic!("operation {other:?}"),
        }
    }
    Some(view)
}

fn vlan() -> impl Strategy<Value = u16> {
    1u16..12
}

fn vlans() -> impl Strategy<Value = VlanSet> {
    prop::collection::btree_set(vlan(), 0..5)
        .prop_map(|set| set.into_iter().filter_map(|vlan| VlanId::new(vlan).ok()).collect())
}

/// A port that was configured externally, or by two clusters and externally.
fn any_port() -> impl Strategy<Value = Port> {
    let number = prop_oneof![8 => vlan(), 1 => Just(0), 1 => Just(CLOSED)];
    let list = || prop::collection::btree_set(number.clone(), 0..5).prop_map(Trunks::from_iter);
    let mode = prop::sample::select(vec![
        None,
        None,
        None,
        Some("trunk"),
        Some("access"),
        Some("native-tagged"),
        Some("native-untagged"),
        Some("dot1q-tunnel"),
    ]);
    let before = prop::sample::select(vec![None, None, Some(AccessMode::Implied), Some(AccessMode::Named)]);
    let record = (any::<bool>(), list(), before)
        .prop_map(|(any, vlans, before)| if any { Record { vlans, before } } else { Record::default() });
    let tag = prop::option::weighted(0.3, vlan());
    (mode, tag, list(), record, prop::option::weighted(0.2, list())).prop_map(
        |(mode, tag, trunks, record, others)| {
            let mut external_ids = BTreeMap::from([("note".to_owned(), "mine".to_owned())]);
            external_ids
                .extend(record.entries(CLUSTER).into_iter().filter_map(|(key, value)| Some((key, value?))));
            if let Some(vlans) = others {
                let entries = Record { vlans, before: None }.entries("d");
                external_ids.extend(entries.into_iter().filter_map(|(key, value)| Some((key, value?))));
            }
            Port { tag, trunks, vlan_mode: mode.map(str::to_owned), external_ids, ..Port::default() }
        },
    )
}

fn any_view() -> impl Strategy<Value = View> {
    prop::collection::vec(any_port(), 1..6).prop_map(|ports| {
        let mut view = View::default();
        for (number, mut port) in ports.into_iter().enumerate() {
            let (row, interface) =
                (Uuid::from_u128(number as u128 + 1), Uuid::from_u128(number as u128 + 100));
            port.name = format!("p{number}");
            port.interfaces.insert(interface);
            view.interfaces.insert(interface, Interface { name: format!("e{number}"), error: None });
            view.bridges.entry(format!("br{}", number % 2)).or_default().insert(row);
            view.ports.insert(row, port);
        }
        view
    })
}

/// Ports 0 to 3 by their names or their interfaces'; some do not exist.
fn any_desired() -> impl Strategy<Value = FabricDesired> {
    let port = (prop::bool::weighted(0.2), prop::bool::weighted(0.4), vlans());
    let drift = prop::sample::select(vec![Drift::Repair, Drift::Repair, Drift::Report]);
    (prop::collection::vec(port, 4), vlans(), drift).prop_map(|(ports, adopt, drift)| {
        let ports: Vec<FabricPort> = ports
            .into_iter()
            .enumerate()
            .map(|(number, (member, trunk, vlans))| FabricPort {
                mode: if trunk { PortMode::Trunk } else { PortMode::Keep },
                ..FabricPort::new(format!("{}{number}", if member { "e" } else { "p" }), vlans)
            })
            .collect();
        let all = ports.iter().fold(VlanSet::EMPTY, |all, port| all.union(&port.vlans));
        FabricDesired {
            cluster: CLUSTER.into(),
            cluster_uid: None,
            vrfs: Vec::new(),
            lookup: None,
            device: Device { drift, adopt, ..Device::new("unix:/db.sock") },
            vlans: all.iter().map(|vid| FabricVlan::new(vid, vec!["L2Service/s".into()])).collect(),
            ports,
        }
    })
}

fn is_listed(desired: &FabricDesired, port: &Port) -> bool {
    desired.ports.iter().any(|listed| listed.name[1..] == port.name[1..])
}

/// Its record has VLANs of ours.
fn is_remembered(port: &Port) -> bool {
    !Record::read(&port.external_ids, CLUSTER).vlans.vlans().is_empty()
}

fn nothing(desired: &FabricDesired) -> FabricDesired {
    let mut nothing = desired.clone();
    nothing.vlans = FabricVlans::new();
    nothing.ports.iter_mut().for_each(|port| port.vlans = VlanSet::EMPTY);
    nothing
}

/// All VLANs of our cluster on any port, and all that it may adopt.
fn ours(view: &View, desired: &FabricDesired) -> VlanSet {
    let recorded = view.ports.values().map(|port| Record::read(&port.external_ids, CLUSTER).vlans);
    let recorded = recorded.fold(VlanSet::EMPTY, |all, vlans| all.union(vlans.vlans()));
    desired.vlans.iter().fold(recorded, |all, vlan| all.union(&[vlan.vid].into_iter().collect()))
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct("tests/properties.proptest-regressions"))),
        ..ProptestConfig::default()
    })]

    #[test]
    fn plan_converges_in_one_apply(view in any_view(), desired in any_desired()) {
        let first = plan(&view, &desired, &SkippedPorts::new());
        let after = apply(&view, &first);
        let second = plan(&after, &desired, &SkippedPorts::new());
        prop_assert!(second.changes.is_empty(), "{first:#?} then {second:#?}");
    }

    #[test]
    fn desired_vlans_are_present_unless_refused(view in any_view(), desired in any_desired()) {
        let first = plan(&view, &desired, &SkippedPorts::new());
        let after = apply(&view, &first);
        let second = plan(&after, &desired, &SkippedPorts::new());
        let (Applied::Fabric { ports, .. }, faults) = observe(&after, &desired, &second) else { unreachable!() };
        prop_assert!(faults.is_empty());
        for port in &desired.ports {
            let there = ports.get(&port.name).cloned().unwrap_or_default();
            for vlan in port.vlans.iter() {
                let refused = second.rejected.iter().any(|rejection| rejection.item.covers(vlan, &port.name));
                let not_restored = desired.device.drift == Drift::Report && !second.lost.is_empty();
                prop_assert!(refused || not_restored || there.contains(vlan), "VLAN {vlan} on {}: {second:#?}", port.name);
            }
            let extra = there.difference(&port.vlans);
            let held = after.ports.values().find(|there| there.name[1..] == port.name[1..]);
            let Some(held) = held else { continue };
            let kept: VlanSet = extra.iter().filter(|vlan| {
                let tag = held.tag == Some(vlan.get());
                let others = held.external_ids.contains_key("eno-d-vlans");
                !tag && !others
            }).collect();
            prop_assert!(kept.is_empty(), "{} carries {kept} of ours: {after:#?}", port.name);
        }
    }

    #[test]
    fn foreign_vlans_are_preserved(view in any_view(), desired in any_desired()) {
        let ours = ours(&view, &desired);
        let after = apply(&view, &plan(&view, &desired, &SkippedPorts::new()));
        prop_assert_eq!(foreign(&after, &ours), foreign(&view, &ours));
        for (uuid, port) in &view.ports {
            let listed = desired.ports.iter().any(|listed| listed.name[1..] == port.name[1..]);
            if !listed {
                prop_assert_eq!(&after.ports[uuid], port);
            }
            let may = desired.ports.iter().any(|listed| listed.name[1..] == port.name[1..] && listed.mode == PortMode::Trunk);
            let before = Record::read(&port.external_ids, CLUSTER).before.is_some();
            if !may && !before {
                prop_assert_eq!(&after.ports[uuid].vlan_mode, &port.vlan_mode);
            }
        }
    }

    #[test]
    fn ports_are_never_opened_and_closed_only_after_foreign_emptying(view in any_view(), desired in any_desired()) {
        let mut now = view.clone();
        for desired in [&desired, &nothing(&desired)] {
            let next = apply(&now, &plan(&now, desired, &SkippedPorts::new()));
            for (uuid, port) in &now.ports {
                let close = is_listed(desired, port) && is_remembered(port) && desired.device.drift == Drift::Repair;
                let opens = port.is_open() && !close;
                prop_assert_eq!(next.ports[uuid].is_open(), opens, "{:?} became {:?}", port, &next.ports[uuid]);
            }
            now = next;
        }
    }

    /// Others change lists, tags and modes between the plan and its transaction.
    #[test]
    fn outdated_plans_open_and_close_no_trunk(
        view in any_view(),
        desired in any_desired(),
        others in prop::collection::vec(prop::option::weighted(0.4, (any_port(), 0u8..4)), 6),
    ) {
        let first = plan(&view, &desired, &SkippedPorts::new());
        let transaction = || operations(&first, &view, &desired).into_iter().map(|(_, operation)| operation);
        let unchanged = transact(&view, transaction());
        prop_assert!(unchanged.is_some(), "a plan that is not outdated is carried out");
        let expected = apply(&view, &first);
        for (uuid, port) in &unchanged.unwrap().ports {
            let planned = &expected.ports[uuid];
            prop_assert_eq!((&port.trunks, &port.vlan_mode), (&planned.trunks, &planned.vlan_mode));
        }
        let mut now = view.clone();
        for (port, other) in now.ports.values_mut().zip(others) {
            match other {
                Some((_, 0)) => port.trunks = Trunks::EMPTY,
                Some((other, 1)) => port.trunks = port.trunks.difference(&other.trunks),
                Some((other, 2)) => port.trunks = port.trunks.union(&other.trunks),
                Some((other, _)) => (port.tag, port.vlan_mode) = (other.tag, other.vlan_mode),
                None => {}
            }
        }
        let Some(next) = transact(&now, transaction()) else { return Ok(()) };
        for (uuid, port) in &now.ports {
            let close = is_listed(&desired, port) && is_remembered(port) && desired.device.drift == Drift::Repair;
            let opens = port.is_open() && !(close && view.ports[uuid].is_open());
            prop_assert_eq!(next.ports[uuid].is_open(), opens, "{:?} became {:?}", port, &next.ports[uuid]);
            // What others have put on a list stays there.
            let foreign = port.trunks.difference(&view.ports[uuid].trunks);
            let stays = foreign.difference(&expected.ports[uuid].trunks);
            prop_assert!(stays.difference(&next.ports[uuid].trunks).is_empty());
        }
    }

    #[test]
    fn externally_emptied_port_is_restored_except_foreign_vlans(view in any_view(), desired in any_desired()) {
        let mut desired = desired;
        desired.device.drift = Drift::Repair;
        let there = apply(&view, &plan(&view, &desired, &SkippedPorts::new()));
        let mut emptied = there.clone();
        emptied.ports.values_mut().for_each(|port| port.trunks = Trunks::EMPTY);
        let again = apply(&emptied, &plan(&emptied, &desired, &SkippedPorts::new()));
        for (uuid, was) in &there.ports {
            let is = &again.ports[uuid];
            if !matches!(was.mode(), Mode::Trunk { .. }) || !is_listed(&desired, was) || !is_remembered(was) {
                continue;
            }
            prop_assert!(!is.is_open(), "{was:?} became {is:?}");
            let of_ours = |port: &Port| -> BTreeSet<u16> {
                let recorded = Record::read(&port.external_ids, CLUSTER).vlans;
                let of_ours = port.trunks.vlans().intersection(recorded.vlans());
                of_ours.iter().map(VlanId::get).filter(|vlan| port.tag != Some(*vlan)).collect()
            };
            prop_assert!(of_ours(was).is_subset(&of_ours(is)), "{was:?} became {is:?}");
        }
        let more = plan(&again, &desired, &SkippedPorts::new()).changes;
        prop_assert!(more.is_empty(), "{more:#?}");
    }

    #[test]
    fn empty_desired_state_restores_the_original_switch(view in any_view(), desired in any_desired()) {
        // A switch without any cluster's configuration.
        let mut fresh = view;
        for port in fresh.ports.values_mut() {
            port.external_ids.retain(|key, _| !key.starts_with("eno-"));
        }
        let mut desired = desired;
        desired.device.adopt = VlanSet::EMPTY;
        let there = apply(&fresh, &plan(&fresh, &desired, &SkippedPorts::new()));
        let left = apply(&there, &plan(&there, &nothing(&desired), &SkippedPorts::new()));
        prop_assert_eq!(left, fresh);
    }

    #[test]
    fn vlan_belongs_to_at_most_one_cluster(view in any_view(), desired in any_desired()) {
        let plan = plan(&view, &desired, &SkippedPorts::new());
        for (uuid, change) in &plan.changes {
            let bridge = view.bridges.values().find(|ports| ports.contains(uuid)).unwrap();
            let recorded = |cluster: &str| {
                let records = bridge.iter().map(|uuid| Record::read(&view.ports[uuid].external_ids, cluster));
                records.fold(Trunks::EMPTY, |all, record| all.union(&record.vlans))
            };
            let (mine, theirs) = (recorded(CLUSTER), recorded("d"));
            let new = change.record.vlans.difference(&mine);
            prop_assert!(new.vlans().intersection(theirs.vlans()).is_empty(), "{:?}", change);
        }
    }

    #[test]
    fn access_ports_without_trunk_mode_keep_their_mode(view in any_view(), desired in any_desired()) {
        let after = apply(&view, &plan(&view, &desired, &SkippedPorts::new()));
        for (uuid, port) in &view.ports {
            let may = desired.ports.iter().any(|listed| listed.name[1..] == port.name[1..] && listed.mode == PortMode::Trunk);
            if matches!(port.mode(), Mode::Access(_)) && !may {
                prop_assert_eq!(after.ports[uuid].mode(), port.mode());
            }
        }
    }
}
