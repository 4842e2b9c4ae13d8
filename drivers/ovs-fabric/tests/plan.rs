//! Table tests of plans for one port.

use std::collections::BTreeMap;

use eno_conformance::fabrics;
use eno_driver_ovs_fabric::ownership::VlanOwnership;
use eno_driver_ovs_fabric::plan::{ModeChange, SkippedPorts, drift, plan};
use eno_driver_ovs_fabric::trunks::{CLOSED, Trunks};
use eno_driver_ovs_fabric::view::{Interface, Port, View};
use eno_ovsdb::Uuid;
use eno_schemas::{Device, Drift, FabricDesired, PortMode, VlanSet};

const ROW: Uuid = Uuid::from_u128(1);
const OTHER: Uuid = Uuid::from_u128(2);

fn list(text: &str) -> Trunks {
    text.split(',').filter(|part| !part.is_empty()).map(|vlan| vlan.parse().unwrap()).collect()
}

fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn port(
    name: &str,
    mode: Option<&str>,
    tag: Option<u16>,
    trunks: &str,
    external_ids: &[(&str, &str)],
) -> Port {
    Port {
        name: name.into(),
        tag,
        trunks: list(trunks),
        vlan_mode: mode.map(str::to_owned),
        external_ids: labels(external_ids),
        ..Port::default()
    }
}

fn view(one: Port, other: Option<Port>) -> View {
    let mut view = View::default();
    for (row, port) in [(ROW, Some(one)), (OTHER, other)] {
        let Some(mut port) = port else { continue };
        let interface = Uuid::from_u128(row.as_u128() + 100);
        view.interfaces.insert(interface, Interface { name: port.name.clone(), error: None });
        port.interfaces.insert(interface);
        view.ports.insert(row, port);
        view.bridges.entry("br".into()).or_default().insert(row);
    }
    view
}

fn desired(vlans: &str, mode: PortMode) -> FabricDesired {
    let mut desired = fabrics::desired("c", Device::new("unix:/db.sock"), "", &[("p", vlans)]);
    desired.ports[0].mode = mode;
    desired
}

/// The port's planned list, mode and record; `None` when it is unchanged.
fn becomes(view: &View, desired: &FabricDesired) -> Option<(String, ModeChange, String)> {
    let plan = plan(view, desired, &SkippedPorts::new());
    let change = plan.changes.get(&ROW)?;
    let record: Vec<String> = change.record.entries("c").into_iter().filter_map(|(_, value)| value).collect();
    Some((change.trunks.to_string(), change.mode, record.join(" ")))
}

#[test]
fn trunk_vlans_are_added_and_removed() {
    let own_record = |vlans| [("eno-c-vlans", vlans)];
    for (trunks, record, wanted, expected) in [
        ("5", "", "", None),
        ("5", "", "10", Some(("5,10", "10"))),
        ("5,10", "10", "10", None),
        ("5,10", "10", "", Some(("5", ""))),
        ("5,10,11", "10-11", "11-12", Some(("5,11-12", "11-12"))),
        // Removed externally.
        ("5", "10", "10", Some(("5,10", "10"))),
        ("5", "10", "", Some(("5", ""))),
        // The last VLAN's removal closes the list, and the next VLAN opens it.
        ("10", "10", "", Some(("4095", "4095"))),
        ("4095", "4095", "", None),
        ("4095", "4095", "10", Some(("10", "10"))),
        ("5,4095", "4095", "", Some(("5", ""))),
        // Closed by others.
        ("4095", "", "10", Some(("10,4095", "10"))),
        ("10,4095", "10", "", Some(("4095", ""))),
        // Untagged frames.
        ("0", "", "10", Some(("0,10", "10"))),
        // Open.
        ("", "", "", None),
        ("", "", "10", None),
        // Opened externally while it had no VLAN of ours.
        ("", "4095", "", Some(("", ""))),
        ("", "4095", "10", Some(("", ""))),
        // Emptied externally.
        ("", "10", "10", Some(("10", "10"))),
        ("", "10-11", "10", Some(("10", "10"))),
        ("", "10", "11", Some(("11", "11"))),
        ("", "10", "", Some(("4095", "4095"))),
    ] {
        let external_ids = own_record(record);
        let view =
            view(port("p", None, None, trunks, if record.is_empty() { &[] } else { &external_ids }), None);
        let expected = expected.map(|(list, record)| (list.to_owned(), ModeChange::Keep, record.to_owned()));
        assert_eq!(
            becomes(&view, &desired(wanted, PortMode::Keep)),
            expected,
            "{trunks:?} {record:?} {wanted:?}"
        );
    }
}

#[test]
fn emptied_trunk_is_only_reported_with_drift_report() {
    let mut desired = desired("10-11", PortMode::Keep);
    desired.device.drift = Drift::Report;
    let there = view(port("p", None, None, "", &[("eno-c-vlans", "10")]), None);
    let found = plan(&there, &desired, &SkippedPorts::new());
    assert!(found.changes.is_empty() && found.notes.is_empty(), "{found:?}");
    let notes = drift(&found, &there, false);
    assert!(notes.len() == 1 && notes[0].message.contains("its trunks were emptied"), "{notes:?}");
}

#[test]
fn access_ports_become_trunks_and_are_restored() {
    use eno_driver_ovs_fabric::record::AccessMode::{Implied, Named};
    type ExternalIds = &'static [(&'static str, &'static str)];
    type Becomes = Option<(&'static str, ModeChange, &'static str)>;
    type Row = (Option<&'static str>, &'static str, ExternalIds, &'static str, PortMode, Becomes);
    let rows: [Row; 11] = [
        (None, "", &[], "", PortMode::Keep, None),
        (None, "", &[], "10", PortMode::Keep, None),
        (None, "", &[], "", PortMode::Trunk, None),
        (None, "", &[], "10", PortMode::Trunk, Some(("10", ModeChange::Trunk, "10 implied"))),
        (Some("access"), "", &[], "10", PortMode::Trunk, Some(("10", ModeChange::Trunk, "10 access"))),
        // As a trunk it would carry a VLAN that it did not carry.
        (None, "7", &[], "10", PortMode::Trunk, None),
        // It stays a trunk while it has VLANs of ours.
        (
            Some("trunk"),
            "10",
            &[("eno-c-vlans", "10"), ("eno-c-before", "implied")],
            "",
            PortMode::Trunk,
            Some(("", ModeChange::Restore(Implied), "")),
        ),
        (
            Some("trunk"),
            "10",
            &[("eno-c-vlans", "10"), ("eno-c-before", "access")],
            "",
            PortMode::Keep,
            Some(("", ModeChange::Restore(Named), "")),
        ),
        // Another user needs the trunk.
        (
            Some("trunk"),
            "7,10",
            &[("eno-c-vlans", "10"), ("eno-c-before", "access")],
            "",
            PortMode::Trunk,
            Some(("7", ModeChange::Keep, "")),
        ),
        // It was made an access port again.
        (
            None,
            "10",
            &[("eno-c-vlans", "10"), ("eno-c-before", "implied")],
            "10",
            PortMode::Trunk,
            Some(("10", ModeChange::Trunk, "10 implied")),
        ),
        // Our port was a trunk, and must not become an open one when its tag is removed.
        (None, "10", &[("eno-c-vlans", "10")], "", PortMode::Keep, Some(("4095", ModeChange::Keep, "4095"))),
    ];
    for (mode, trunks, external_ids, wanted, may, expected) in rows {
        let view = view(port("p", mode, Some(5), trunks, external_ids), None);
        let expected = expected.map(|(list, mode, record)| (list.to_owned(), mode, record.to_owned()));
        assert_eq!(
            becomes(&view, &desired(wanted, may)),
            expected,
            "{mode:?} {trunks:?} {external_ids:?} {wanted:?}"
        );
    }
}

#[test]
fn refusals_carry_their_reason() {
    let other = |tag, trunks, external_ids: &[(&str, &str)]| Some(port("q", None, tag, trunks, external_ids));
    for (mode, tag, other, wanted, expected) in [
        (None, Some(5), None, "10", "set Mode: trunk"),
        (Some("dot1q-tunnel"), Some(5), None, "10", "dot1q-tunnel"),
        (Some("native-untagged"), Some(10), None, "10", "in use on bridge br (port p)"),
        (None, None, other(Some(10), "", &[]), "10", "in use on bridge br (port q)"),
        (None, None, other(None, "10", &[]), "10", "or have it adopted"),
        (None, None, other(None, "10", &[("eno-d-vlans", "10")]), "10", "belongs to cluster d (port q)"),
    ] {
        let view = view(port("p", mode, tag, "7", &[]), other);
        let plan = plan(&view, &desired(wanted, PortMode::Keep), &SkippedPorts::new());
        assert!(plan.changes.is_empty(), "{plan:?}");
        assert_eq!(plan.rejected.len(), 1, "{plan:?}");
        assert!(plan.rejected[0].reason.contains(expected), "{plan:?}");
    }
    let mut native = desired("10", PortMode::Keep);
    native.device.adopt = "10".parse().unwrap();
    let found = plan(
        &view(port("p", Some("native-tagged"), Some(10), "7", &[]), None),
        &native,
        &SkippedPorts::new(),
    );
    assert!(found.rejected[0].reason.contains("the native VLAN of p"), "{found:?}");
}

#[test]
fn rejected_port_is_unchanged_and_reports_its_reason() {
    let view = view(port("p", None, None, "5", &[]), None);
    let skipped = SkippedPorts::from([("p".into(), "permission error".into())]);
    let found = plan(&view, &desired("10", PortMode::Keep), &skipped);
    assert!(found.changes.is_empty());
    assert_eq!(found.rejected[0].reason, "permission error");
}

#[test]
fn vlan_is_owned_across_its_whole_bridge() {
    let view = view(
        port("p", None, None, "10,11", &[]),
        Some(port("q", None, None, "10", &[("eno-c-vlans", "10")])),
    );
    assert_eq!(
        becomes(&view, &desired("", PortMode::Keep)),
        Some(("11".into(), ModeChange::Keep, String::new()))
    );
    assert_eq!(
        becomes(&view, &desired("10", PortMode::Keep)),
        Some(("10-11".into(), ModeChange::Keep, "10".into()))
    );
    let ownership = VlanOwnership::of(&view, &view.bridges["br"], "c", None);
    assert_eq!(ownership.ours.to_string(), "10");
    assert!(!ownership.ours.iter().any(|vlan| vlan.get() == CLOSED));
}

#[test]
fn duplicate_cluster_identifier_is_reported_and_removes_nothing() {
    let mut wanted = desired("11", PortMode::Keep);
    wanted.cluster_uid = Some("a".into());
    let on_bridge = |uids| {
        let own_record = port("p", None, None, "5,10", &[("eno-c-vlans", "10"), ("eno-c-uids", "a")]);
        let other = port("q", None, None, "10,12", &[("eno-c-vlans", "10,12"), ("eno-c-uids", uids)]);
        view(own_record, Some(other))
    };
    let alone = on_bridge("a");
    assert_eq!(becomes(&alone, &wanted), Some(("5,11".into(), ModeChange::Keep, "11".into())));
    assert_eq!(plan(&alone, &wanted, &SkippedPorts::new()).notes, []);

    let shared = on_bridge("a b");
    assert_eq!(becomes(&shared, &wanted), Some(("5,10-11".into(), ModeChange::Keep, "10-11".into())));
    let notes = plan(&shared, &wanted, &SkippedPorts::new()).notes;
    assert_eq!(notes.len(), 1, "{notes:?}");
    assert_eq!(notes[0].kind, "ClusterIDClash");
    for part in ["uid b", "port q of bridge br", "eno-c-uids", "ENO_CLUSTER_ID"] {
        assert!(notes[0].message.contains(part), "{}", notes[0].message);
    }
    // No VLAN of ours is desired any more.
    wanted.ports[0].vlans = VlanSet::EMPTY;
    assert_eq!(becomes(&shared, &wanted), None);
}
