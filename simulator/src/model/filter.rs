//! Subtree filters (RFC 6241 section 6).

use std::sync::Arc;

use crate::model::schema::{self, Definition, Definitions, Kind};
use crate::model::tree::{Container, Entries, Key, Node};
use crate::model::value::Value;
use crate::netconf::xml::Element;

/// Selects the part of `data` that the children of `<filter>` select. An empty filter selects nothing.
pub fn select(data: &Container, definitions: Definitions, filter: &[Element]) -> Container {
    let mut selected = Container::default();
    for element in filter {
        for (at, definition) in matching_definitions(definitions, element) {
            if let Some(part) = select_node(data, at, definition, element) {
                let mut single_node = Container::default();
                single_node.set(at, part);
                selected.merge(&single_node);
            }
        }
    }
    selected
}

/// The schema nodes that a filter element selects. An element without a namespace matches any namespace (section
/// 6.2.1). An element with attributes matches nothing (6.2.2): the data has no attributes.
fn matching_definitions(
    definitions: Definitions,
    element: &Element,
) -> impl Iterator<Item = (usize, &'static Definition)> {
    definitions.iter().enumerate().filter(move |(_, d)| {
        element.attributes.is_empty()
            && d.name == &*element.name
            && (element.namespace.is_empty() || d.module.namespace == &*element.namespace)
    })
}

/// Drops all but the first of several siblings of one name that contain content matches (fault injection).
pub fn keep_first_siblings(filter: &mut Vec<Element>) {
    let mut seen = std::collections::BTreeSet::new();
    let holds_content =
        |element: &Element| element.children.iter().any(|child| !child.text.trim().is_empty());
    filter.retain(|element| !holds_content(element) || seen.insert(element.name.clone()));
    for element in filter {
        keep_first_siblings(&mut element.children);
    }
}

fn select_node(
    data: &Container,
    at: usize,
    definition: &'static Definition,
    filter: &Element,
) -> Option<Node> {
    let node = data.get(at)?;
    let is_selection = filter.children.is_empty() && filter.text.trim().is_empty();
    match node {
        Node::Container(container) => {
            if is_selection {
                return Some(node.clone());
            }
            let part = select_siblings(container, definition, filter)?;
            Some(Node::Container(part)).filter(|_| filter.text.trim().is_empty())
        }
        Node::Presence(container) => {
            if is_selection {
                return Some(node.clone());
            }
            let part = select_siblings(container, definition, filter)?;
            Some(Node::Presence(part)).filter(|_| filter.text.trim().is_empty())
        }
        Node::List(entries) => {
            if is_selection {
                return Some(node.clone());
            }
            if !filter.text.trim().is_empty() {
                return None;
            }
            let mut part = Entries::new();
            for (key, entry) in candidate_entries(entries, definition, filter) {
                if let Some(selected) = select_siblings(entry, definition, filter) {
                    part.insert(key.clone(), selected);
                }
            }
            (!part.is_empty()).then(|| Node::List(Arc::new(part)))
        }
        Node::Leaf(value) => {
            (is_selection || content_matches(definition, filter, value)).then(|| node.clone())
        }
        Node::LeafList(values) => {
            if is_selection {
                return Some(node.clone());
            }
            let same: std::collections::BTreeSet<Value> =
                values.iter().filter(|value| content_matches(definition, filter, value)).cloned().collect();
            (!same.is_empty()).then(|| Node::LeafList(Arc::new(same)))
        }
    }
}

/// The list entries that can match: one if the filter has content matches for all keys, else all.
fn candidate_entries<'a>(
    entries: &'a Entries,
    definition: &'static Definition,
    filter: &Element,
) -> Box<dyn Iterator<Item = (&'a Key, &'a Arc<Container>)> + 'a> {
    let key: Option<Vec<Value>> = definition
        .keys()
        .iter()
        .map(|leaf| {
            let child = filter.children.iter().find(|c| {
                &*c.name == leaf.name && (c.namespace.is_empty() || &*c.namespace == leaf.module.namespace)
            })?;
            match leaf.kind {
                Kind::Leaf(ty) if !child.text.trim().is_empty() => ty.parse(child).ok(),
                _ => None,
            }
        })
        .collect();
    match key {
        Some(key) => Box::new(entries.get_key_value(key.as_slice()).into_iter()),
        None => Box::new(entries.iter()),
    }
}

/// Selects from a sibling set (sections 6.2.3 to 6.2.5). All content matches must hold. Content matches alone select
/// the whole set; otherwise the other elements select, and the keys of the list are included.
fn select_siblings(
    data: &Arc<Container>,
    definition: &'static Definition,
    filter: &Element,
) -> Option<Arc<Container>> {
    let children = definition.children();
    let (matches, others): (Vec<&Element>, Vec<&Element>) =
        filter.children.iter().partition(|c| c.children.is_empty() && !c.text.trim().is_empty());
    for element in &matches {
        let holds = matching_definitions(children, element).any(|(at, d)| match data.get(at) {
            Some(Node::Leaf(value)) => content_matches(d, element, value),
            Some(Node::LeafList(values)) => values.iter().any(|value| content_matches(d, element, value)),
            _ => false,
        });
        if !holds {
            return None;
        }
    }
    if others.is_empty() {
        return Some(Arc::clone(data));
    }
    let mut part = Container::default();
    let mut found = false;
    for element in others {
        for (at, d) in matching_definitions(children, element) {
            if let Some(node) = select_node(data, at, d, element) {
                let mut single_node = Container::default();
                single_node.set(at, node);
                part.merge(&single_node);
                found = true;
            }
        }
    }
    for element in &matches {
        for (at, d) in matching_definitions(children, element) {
            if let Some(node) = select_node(data, at, d, element) {
                let mut single_node = Container::default();
                single_node.set(at, node);
                part.merge(&single_node);
            }
        }
    }
    if !found && matches.is_empty() {
        return None;
    }
    for at in (0..definition.keys().len()).chain(schema::place(children)) {
        if let Some(key) = data.get(at) {
            part.set(at, key.clone());
        }
    }
    Some(Arc::new(part))
}

fn content_matches(definition: &Definition, filter: &Element, value: &Value) -> bool {
    match definition.kind {
        Kind::Leaf(ty) | Kind::LeafList(ty) => {
            ty.parse(filter).is_ok_and(|wanted| wanted == *value)
                || (value.text().is_some_and(|text| text == filter.text.trim()))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialect::{Hardware, OPENCONFIG};
    use crate::netconf::xml;

    fn selected(filter: &str) -> String {
        let hardware = Hardware { ports: vec!["e1".to_owned(), "e2".to_owned()], ..Hardware::default() };
        let config = (OPENCONFIG.factory)(&hardware);
        let doc = xml::parse(format!("<filter>{filter}</filter>").as_bytes()).expect("well-formed");
        let mut out = String::new();
        select(&config, OPENCONFIG.roots, &doc.root.children).write_xml(OPENCONFIG.roots, "", &mut out);
        out
    }

    fn interfaces(inner: &str) -> String {
        format!("<interfaces xmlns=\"http://openconfig.net/yang/interfaces\">{inner}</interfaces>")
    }

    fn e1(inner: &str) -> String {
        interfaces(&format!("<interface><name>e1</name>{inner}</interface>"))
    }

    #[test]
    fn subtree_filter_selects_per_rfc_6241_section_6() {
        let nothing = String::new;
        let enabled = "<config><enabled>true</enabled></config>";
        let cases = [
            ("an empty filter", nothing(), nothing()),
            ("another namespace", "<interfaces xmlns=\"urn:x\"/>".to_owned(), nothing()),
            ("content match and selection", e1("<config><enabled/></config>"), e1(enabled)),
            (
                "content matches alone, which select their siblings",
                e1("<config><enabled>true</enabled></config>"),
                selected(&e1("<config/>")),
            ),
            ("a failing inner content match", e1("<config><enabled>false</enabled></config>"), e1("")),
            ("a failing key match", interfaces("<interface><name>e3</name></interface>"), nothing()),
            (
                "a selected key",
                interfaces("<interface><name/></interface>"),
                interfaces("<interface><name>e1</name></interface><interface><name>e2</name></interface>"),
            ),
            ("the same twice", e1("<config><enabled/></config>").repeat(2), e1(enabled)),
            (
                "two parts of one entry",
                e1("<config><enabled/></config>") + &e1("<config><name/></config>"),
                e1("<config><name>e1</name><enabled>true</enabled></config>"),
            ),
            ("an attribute that no data has", interfaces("<interface x=\"1\"/>"), nothing()),
            ("a child of a leaf", e1("<config><name><x/></name></config>"), e1("")),
        ];
        for (what, filter, expected) in cases {
            assert_eq!(selected(&filter), expected, "{what}");
        }
        let whole = selected(&interfaces(""));
        assert_eq!(
            selected(&interfaces("<interface><name>e1</name></interface>")).matches("<interface>").count(),
            1
        );
        assert_eq!(selected("<interfaces/>"), whole, "no namespace is a wildcard");
        assert_eq!(whole.matches("<interface>").count(), 2);
    }
}
