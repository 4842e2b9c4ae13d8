use super::*;
use crate::dialect::OPENCONFIG;
use crate::netconf::xml;

const NI: &str = "http://openconfig.net/yang/network-instance";

fn edits(xml: &str) -> Vec<Edit> {
    let text = format!("<config xmlns:nc=\"{NETCONF}\">{xml}</config>");
    parse(OPENCONFIG.roots, &xml::parse(text.as_bytes()).expect("well-formed").root.children)
        .expect("well-typed")
}

fn vlans(inner: &str) -> String {
    format!(
        "<network-instances xmlns=\"{NI}\"><network-instance><name>d</name><vlans>{inner}</vlans>\
         </network-instance></network-instances>"
    )
}

fn vlan(attributes: &str, id: u16, config: &str) -> String {
    format!("<vlan {attributes}><vlan-id>{id}</vlan-id>{config}</vlan>")
}

fn written(config: &Container) -> String {
    let mut out = String::new();
    config.write_xml(OPENCONFIG.roots, "", &mut out);
    out
}

const NAME: &str = "<config><name>new</name></config>";
const OP: &str = "nc:operation";

/// Each operation, on an existing VLAN with a name and a status, and on a missing one.
#[test]
fn edit_operations_change_existing_and_missing_entries() {
    use Tag::{DataExists, DataMissing};
    let there = vlan("", 1, "<config><name>old</name><status>ACTIVE</status></config>");
    let keyed = |config: &str| Ok(vlan("", 1, config).replace("vlan >", "vlan>"));
    let gone = Ok(String::new());
    let cases = [
        ("merge", true, keyed("<config><name>new</name><status>ACTIVE</status></config>")),
        ("merge", false, keyed(NAME)),
        ("replace", true, keyed(NAME)),
        ("replace", false, keyed(NAME)),
        ("create", true, Err(DataExists)),
        ("create", false, keyed(NAME)),
        ("delete", true, gone.clone()),
        ("delete", false, Err(DataMissing)),
        ("remove", true, gone.clone()),
        ("remove", false, gone),
    ];
    for (operation, exists, expected) in cases {
        let mut config = Container::default();
        if exists {
            apply(&mut config, &edits(&vlans(&there)), Operation::Merge, OnError::Stop).expect("applies");
        }
        let edit = edits(&vlans(&vlan(&format!("{OP}=\"{operation}\""), 1, NAME)));
        let result = apply(&mut config, &edit, Operation::Merge, OnError::Rollback);
        match (result, expected) {
            (Ok(()), Ok(entry)) => {
                let expected =
                    if entry.is_empty() { vlans("").replace("<vlans></vlans>", "") } else { vlans(&entry) };
                assert_eq!(written(&config), expected, "{operation} exists={exists}");
            }
            (Err(errors), Err(tag)) => {
                assert_eq!(errors[0].tag, tag, "{operation} exists={exists}");
                let path = errors[0].path.as_ref().expect("a path");
                assert!(path.text.ends_with("oc-netinst:vlan[oc-netinst:vlan-id='1']"), "{}", path.text);
            }
            (result, expected) => panic!("{operation} exists={exists}: {result:?}, not {expected:?}"),
        }
    }
}

#[test]
fn error_option_decides_which_edits_remain() {
    let bad = format!("{}{}{}", vlan("", 1, ""), vlan(&format!("{OP}=\"delete\""), 2, ""), vlan("", 3, ""));
    for (on_error, left) in [(OnError::Stop, "1"), (OnError::Continue, "1,3"), (OnError::Rollback, "")] {
        let mut config = Container::default();
        let errors =
            apply(&mut config, &edits(&vlans(&bad)), Operation::Merge, on_error).expect_err("2 is missing");
        assert_eq!(errors.len(), 1);
        let hardware = crate::dialect::Hardware::default();
        let ids: Vec<_> =
            (OPENCONFIG.view)(&config, &hardware).vlans.keys().map(ToString::to_string).collect();
        assert_eq!(ids.join(","), left, "{on_error:?}");
    }
}

#[test]
fn nodes_naming_vlan_finds_keys_leaves_and_ranges() {
    let port = "<interfaces xmlns=\"http://openconfig.net/yang/interfaces\"><interface><name>e1</name>\
        <ethernet xmlns=\"http://openconfig.net/yang/interfaces/ethernet\">\
        <switched-vlan xmlns=\"http://openconfig.net/yang/vlan\"><config><native-vlan>7</native-vlan>\
        <trunk-vlans>5..9</trunk-vlans><trunk-vlans>17</trunk-vlans></config></switched-vlan></ethernet>\
        </interface></interfaces>";
    let edit = edits(&format!("{}{port}", vlans(&vlan("", 7, NAME))));
    let ends: Vec<String> = nodes_naming_vlan(&edit, 7)
        .iter()
        .map(|p| p.text.rsplit('/').next().unwrap_or_default().to_owned())
        .collect();
    assert_eq!(
        ends,
        ["oc-netinst:vlan[oc-netinst:vlan-id='7']", "oc-vlan:native-vlan", "oc-vlan:trunk-vlans[.='5..9']"]
    );
    assert!(nodes_naming_vlan(&edit, 4).is_empty());
}

/// The names of the statements of a policy, as they are written.
fn statements(config: &Container) -> Vec<String> {
    let text = written(config);
    let parts = text.split("<statement><name>").skip(1);
    parts.filter_map(|part| part.split_once('<')).map(|(name, _)| name.to_owned()).collect()
}

#[test]
fn entries_of_the_user_stay_in_order() {
    let policy = |statements: &[(&str, &str)]| {
        let entry = |(name, attributes): &(&str, &str)| {
            format!("<statement {attributes}><name>{name}</name></statement>")
        };
        let statements: String = statements.iter().map(entry).collect();
        edits(&format!(
            "<routing-policy xmlns=\"http://openconfig.net/yang/routing-policy\"><policy-definitions><policy-definition>\
             <name>p</name><statements>{statements}</statements></policy-definition></policy-definitions></routing-policy>"
        ))
    };
    let mut config = Container::default();
    let mut change = |statements: &[(&str, &str)]| {
        apply(&mut config, &policy(statements), Operation::Merge, OnError::Stop).expect("it applies");
        config.clone()
    };
    assert_eq!(statements(&change(&[("z", ""), ("m", ""), ("a", "")])), ["z", "m", "a"]);
    let replaced = change(&[("m", "nc:operation=\"replace\""), ("b", "")]);
    assert_eq!(statements(&replaced), ["z", "m", "a", "b"]);
    let moved = change(&[("z", "nc:operation=\"delete\""), ("z", "")]);
    assert_eq!(statements(&moved), ["m", "a", "b", "z"]);
    // The order outlasts a filter and the file of the configuration.
    let filter = format!(
        "<config>{}</config>",
        "<routing-policy><policy-definitions><policy-definition><statements>\
        <statement><name/></statement></statements></policy-definition></policy-definitions></routing-policy>"
    );
    let filter = xml::parse(filter.as_bytes()).expect("well-formed").root.children;
    let selected = crate::model::filter::select(&moved, OPENCONFIG.roots, &filter);
    assert_eq!(statements(&selected), ["m", "a", "b", "z"]);
    let mut read = Container::default();
    apply(&mut read, &edits(&written(&moved)), Operation::Merge, OnError::Stop).expect("it applies");
    assert_eq!(statements(&read), ["m", "a", "b", "z"]);
}
