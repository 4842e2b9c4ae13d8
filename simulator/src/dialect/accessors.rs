//! Accessors of data nodes by their schema names, and helpers that build configurations from XML.

use std::collections::BTreeMap;

use crate::dialect::{Hardware, PortView, VlanSet, VlanView};
use crate::model::edit::{self, OnError, Operation};
use crate::model::schema::{Definitions, Module, position};
use crate::model::tree::{Container, Entries, Node};
use crate::model::value::{Value, vid_ranges};
use crate::netconf::xml;

/// Defines a YANG module.
pub(super) const fn module(
    name: &'static str,
    prefix: &'static str,
    namespace: &'static str,
    revision: &'static str,
) -> Module {
    Module { name, prefix, namespace, revision }
}

/// The value of a leaf.
pub(super) fn leaf<'a>(container: &'a Container, definitions: Definitions, name: &str) -> Option<&'a Value> {
    container.leaf(position(definitions, name))
}

/// The text of a leaf of type string.
pub(super) fn text<'a>(container: &'a Container, definitions: Definitions, name: &str) -> Option<&'a str> {
    leaf(container, definitions, name).and_then(Value::text)
}

/// Whether a leaf has this enumeration, boolean or identity value.
pub(super) fn leaf_is(container: &Container, definitions: Definitions, name: &str, value: &str) -> bool {
    leaf(container, definitions, name).is_some_and(|v| v.is(value))
}

/// A child container.
pub(super) fn child<'a>(
    container: &'a Container,
    definitions: Definitions,
    name: &str,
) -> Option<&'a Container> {
    container.container(position(definitions, name))
}

/// The entries of a list, with the text of their first key.
pub(super) fn entries<'a>(
    container: Option<&'a Container>,
    definitions: Definitions,
    name: &str,
) -> impl Iterator<Item = (&'a str, &'a Container)> + use<'a> {
    list(container, definitions, name)
        .into_iter()
        .flatten()
        .map(|(key, entry)| (key.first().and_then(Value::text).unwrap_or_default(), &**entry))
}

/// A child list.
pub(super) fn list<'a>(
    container: Option<&'a Container>,
    definitions: Definitions,
    name: &str,
) -> Option<&'a Entries> {
    container.and_then(|container| container.list(position(definitions, name)))
}

/// Sets a leaf.
pub(super) fn set_leaf(container: &mut Container, definitions: Definitions, name: &str, value: Value) {
    container.set(position(definitions, name), Node::Leaf(value));
}

/// Modifies the container below these names, which is created if absent and removed if empty afterwards.
pub(super) fn modify<R>(
    container: &mut Container,
    definitions: Definitions,
    path: &[&str],
    change: impl FnOnce(&mut Container, Definitions) -> R,
) -> R {
    let Some((name, rest)) = path.split_first() else { return change(container, definitions) };
    let at = position(definitions, name);
    container.modify_container(at, |child| modify(child, definitions[at].children(), rest, change))
}

/// Sets the leaf below these names.
pub(super) fn set_below(container: &mut Container, definitions: Definitions, path: &[&str], value: Value) {
    let Some((name, above)) = path.split_last() else { return };
    modify(container, definitions, above, |container, definitions| {
        set_leaf(container, definitions, name, value);
    });
}

/// Converts text into a string value.
pub(super) fn text_value(text: &str) -> Value {
    Value::Text(text.into())
}

/// The VLAN ids in text such as `1,10-100`; none if the text is invalid.
pub(super) fn vlan_set(text: &str) -> VlanSet {
    vid_ranges(text).into_iter().flatten().flat_map(|(low, high)| low..=high).collect()
}

/// The views of all physical ports, without their configuration.
pub(super) fn bare_ports(hardware: &Hardware) -> BTreeMap<String, PortView> {
    hardware.ports.iter().map(|port| (port.clone(), PortView::default())).collect()
}

/// The VLANs that are active.
pub(super) fn active(vlans: &BTreeMap<u16, VlanView>) -> VlanSet {
    vlans.iter().filter(|(_, vlan)| vlan.status == "ACTIVE").map(|(id, _)| *id).collect()
}

/// Escapes text for XML.
pub(super) fn xml_escaped(text: &str) -> String {
    let mut out = String::new();
    xml::push_text(&mut out, text);
    out
}

/// Parses XML into a configuration.
///
/// # Panics
/// If the XML does not conform to the schema, which is a programming error.
pub(super) fn parse_configuration(definitions: Definitions, xml: &str) -> Container {
    let mut config = Container::default();
    if let Err(problem) = merge(definitions, &mut config, xml) {
        panic!("the schema does not have it: {problem}");
    }
    config
}

/// Merges XML into a configuration without validation.
fn merge(definitions: Definitions, config: &mut Container, xml: &str) -> Result<(), String> {
    let document = xml::parse(format!("<config>{xml}</config>").as_bytes()).map_err(|e| e.to_string())?;
    let edits = edit::parse(definitions, &document.root.children).map_err(|e| format!("{e:?}"))?;
    edit::apply(config, &edits, Operation::Merge, OnError::Stop).map_err(|e| format!("{e:?}"))?;
    Ok(())
}

/// Returns a configuration with XML merged into it without validation, for tests of dialects.
#[cfg(test)]
pub(super) fn merge_xml(definitions: Definitions, config: &Container, xml: &str) -> Container {
    let mut config = config.clone();
    merge(definitions, &mut config, xml).expect("well-formed and well-typed");
    config
}
