//! Tests of all dialects, and what the tests of each share.

use std::collections::BTreeMap;

use super::accessors::merge_xml;
use super::*;
use crate::netconf::error::Tag;

pub(super) fn hardware(dialect: &Dialect) -> Hardware {
    let ports: Vec<String> = (1..=4).map(dialect.port_name).collect();
    let lag = match dialect.name {
        "openconfig" => "Port-Channel1",
        "junos" => "ae0",
        "nxos" => "po1",
        _ => "lag1",
    };
    let lags = BTreeMap::from([(lag.to_owned(), ports[2..].to_vec())]);
    Hardware { ports, lags, mac: [2, 0, 0, 1, 0, 0], strict_references: false }
}

fn by_hand(dialect: &'static Dialect, config: &Container, hardware: &Hardware, edit: &HandEdit) -> Container {
    let xml = (dialect.hand_edit_xml)(edit, config, hardware);
    let config = merge_xml(dialect.roots, config, &xml);
    assert_eq!((dialect.check)(&config, hardware), [], "{}: {xml}", dialect.name);
    config
}

fn vlans(text: &str) -> VlanSet {
    text.parse().expect("VLANs")
}

#[test]
fn factory_configuration_of_every_dialect_is_valid() {
    for dialect in Dialect::ALL {
        let hardware = hardware(dialect);
        let config = (dialect.factory)(&hardware);
        assert_eq!((dialect.check)(&config, &hardware), [], "{}", dialect.name);
        let view = (dialect.view)(&config, &hardware);
        let lag = hardware.lags.keys().next().expect("one");
        for port in &hardware.ports[2..] {
            assert_eq!(view.ports[port].lag.as_ref(), Some(lag), "{}", dialect.name);
        }
        assert!(view.ports.contains_key(lag), "{}", dialect.name);
        assert!(!view.ports.values().any(|port| port.open_trunk || port.disabled), "{}", dialect.name);
        // State data conforms to the schema.
        let mut out = String::new();
        (dialect.operational)(&config, &hardware).write_xml(dialect.roots, "", &mut out);
        assert!(out.len() > 100);
    }
}

/// The same hand edits have the same effect in every dialect.
#[test]
fn hand_edits_have_the_same_effect_in_every_dialect() {
    for dialect in Dialect::ALL {
        let name = dialect.name;
        let hardware = hardware(dialect);
        let (port, other) = (&hardware.ports[0], &hardware.ports[1]);
        let config = (dialect.factory)(&hardware);
        let trunk = |port: &str| HandEdit {
            port: Some(port.to_owned()),
            mode: Some(PortMode::Trunk),
            vlans: vlans("100-102,200"),
            native: Some(200),
            define_vlans: [100, 101, 102, 200].map(|id| (id, format!("v{id}"))).into(),
            ..HandEdit::default()
        };
        let lag = hardware.lags.keys().next().expect("one");
        let mut config = by_hand(dialect, &config, &hardware, &trunk(port));
        for port in [other, lag] {
            config = by_hand(dialect, &config, &hardware, &trunk(port));
        }
        let view = (dialect.view)(&config, &hardware);
        for port in [port, other, lag] {
            let port = &view.ports[port];
            assert_eq!(port.mode, Some(PortMode::Trunk), "{name}");
            assert_eq!(
                (port.vlans.to_string(), port.native),
                ("100-102,200".to_owned(), Some(200)),
                "{name}"
            );
        }
        assert_eq!(view.vlans[&101], VlanView { name: Some("v101".to_owned()), status: "ACTIVE".to_owned() });

        let remove = HandEdit { port: Some(port.clone()), remove_vlans: vlans("101"), ..HandEdit::default() };
        let config = by_hand(dialect, &config, &hardware, &remove);
        let view = (dialect.view)(&config, &hardware);
        assert_eq!(view.ports[port].vlans.to_string(), "100,102,200", "{name}");
        assert_eq!(view.ports[other].vlans.to_string(), "100-102,200", "{name}: another port is as it was");

        let access = HandEdit {
            port: Some(port.clone()),
            mode: Some(PortMode::Access),
            access: Some(100),
            ..HandEdit::default()
        };
        let config = by_hand(dialect, &config, &hardware, &access);
        let view = (dialect.view)(&config, &hardware);
        assert_eq!(view.ports[port].mode, Some(PortMode::Access), "{name}");
        assert_eq!(view.ports[port].access, Some(100), "{name}");
        assert_eq!(view.ports[port].vlans.to_string(), "100", "{name}");

        let undefine = HandEdit { remove_vlans: vlans("100"), ..HandEdit::default() };
        let config = by_hand(dialect, &config, &hardware, &undefine);
        let view = (dialect.view)(&config, &hardware);
        assert!(!view.vlans.contains_key(&100), "{name}");
        assert!(view.ports[port].vlans.is_empty(), "{name}: what isn't defined isn't carried");

        let clear = HandEdit { port: Some(other.clone()), clear: true, ..HandEdit::default() };
        let config = by_hand(dialect, &config, &hardware, &clear);
        assert!(!(dialect.view)(&config, &hardware).ports[other].vlans.contains(102), "{name}");
    }
}

/// The validation errors after merging `xml` into the factory configuration: tag, error-path and message.
pub(super) fn refused(dialect: &'static Dialect, xml: &str) -> Vec<(Tag, String, String)> {
    let hardware = hardware(dialect);
    let config = merge_xml(dialect.roots, &(dialect.factory)(&hardware), xml);
    (dialect.check)(&config, &hardware)
        .into_iter()
        .map(|error| (error.tag, error.path.map(|path| path.text).unwrap_or_default(), error.message))
        .collect()
}

/// Checks cases: what is tried, the XML, and a text of the expected error; without it, the XML is accepted.
pub(super) fn assert_refused(dialect: &'static Dialect, cases: &[(&str, String, Option<&str>)]) {
    for (what, xml, expected) in cases {
        let errors = refused(dialect, xml);
        match expected {
            None => assert_eq!(errors, [], "{what}: {xml}"),
            Some(text) => {
                assert!(errors.iter().any(|(_, _, message)| message.contains(text)), "{what}: {errors:?}");
            }
        }
    }
}
