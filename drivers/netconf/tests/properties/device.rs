//! A device as a tree of XML that follows the model's lists, leaf-lists and choices.

use std::fmt::Write as _;

use quick_xml::events::Event;
use quick_xml::name::ResolveResult;
use quick_xml::reader::NsReader;

const NETCONF: &str = "urn:ietf:params:xml:ns:netconf:base:1.0";

/// The part of a YANG model that edits depend on. Nodes are named by their last element, or by `parent/element` where
/// that is ambiguous.
#[derive(Clone, Copy, Debug)]
pub struct Model {
    /// Lists and their keys; `name|id` where one of two lists of that name has the one key and one the other.
    pub lists: &'static [(&'static str, &'static [&'static str])],
    /// Leaf-lists.
    pub leaf_lists: &'static [&'static str],
    /// Siblings of which at most one can exist: the cases of a choice.
    pub choices: &'static [&'static [&'static str]],
    /// Nodes that are significant without content.
    pub presence: &'static [&'static str],
    /// Leaf-lists of VIDs, and the separator of their ranges.
    pub ranges: &'static [(&'static str, &'static str)],
}

/// An element.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Node {
    /// Its namespace.
    namespace: String,
    /// Its local name.
    pub name: String,
    /// Its text.
    pub text: String,
    /// `nc:operation`, in an edit.
    operation: Option<String>,
    /// Junos: the element is deactivated; in an edit, whether it is to be.
    inactive: Option<bool>,
    /// Its child elements.
    pub children: Vec<Node>,
}

impl Node {
    /// The elements of `xml`.
    pub fn read(xml: &str) -> Vec<Self> {
        let mut reader = NsReader::from_str(xml);
        reader.config_mut().expand_empty_elements = true;
        let mut stack = vec![Self::default()];
        loop {
            match reader.read_resolved_event().expect("well-formed") {
                (ResolveResult::Bound(namespace), Event::Start(tag)) => {
                    let operation = tag.try_get_attribute("nc:operation").expect("attributes");
                    let has_attribute =
                        |name: &str| tag.try_get_attribute(name).expect("attributes").is_some();
                    let inactive = has_attribute("inactive").then_some(true);
                    stack.push(Self {
                        inactive: inactive
                            .or((has_attribute("active") || has_attribute("jcmd:active")).then_some(false)),
                        namespace: namespace.into_inner().to_owned(),
                        name: tag.local_name().into_inner().to_owned(),
                        operation: operation.map(|operation| operation.value.to_string()),
                        ..Self::default()
                    });
                }
                (_, Event::End(_)) => {
                    let node = stack.pop().expect("an element");
                    stack.last_mut().expect("a parent").children.push(node);
                }
                (_, Event::Text(text)) => stack.last_mut().expect("an element").text.push_str(&text),
                (_, Event::GeneralRef(name)) => {
                    let text = quick_xml::escape::resolve_predefined_entity(&name).expect("a known entity");
                    stack.last_mut().expect("an element").text.push_str(text);
                }
                (_, Event::Eof) => return stack.pop().expect("the root").children,
                (_, other) => panic!("{other:?}"),
            }
        }
    }

    /// The first child of this name.
    pub fn child(&self, name: &str) -> Option<&Self> {
        self.children.iter().find(|child| child.name == name)
    }

    fn is(&self, parent: &str, named: &str) -> bool {
        match named.split_once('/') {
            Some((above, name)) => above == parent && name == self.name,
            None => named == self.name,
        }
    }

    /// The identity of the node among its siblings.
    fn key(&self, parent: &str, model: &Model) -> Vec<&str> {
        let mut key = vec![self.name.as_str()];
        if let Some((_, keys)) = model.lists.iter().find(|(list, _)| self.is(parent, list)) {
            key.extend(keys.iter().map(|key| {
                let child = key.split('|').find_map(|key| self.child(key));
                child.map_or_else(|| panic!("{} without {key}", self.name), |child| child.text.as_str())
            }));
        } else if model.leaf_lists.iter().any(|list| self.is(parent, list)) {
            key.push(&self.text);
        }
        key
    }

    /// Whether the two are different cases of one choice.
    fn excludes(&self, other: &Self, parent: &str, model: &Model) -> bool {
        let case = |node: &Self, cases: &[&str]| cases.iter().position(|case| node.is(parent, case));
        model.choices.iter().any(|cases| match (case(self, cases), case(other, cases)) {
            (Some(own), Some(others)) => own != others,
            _ => false,
        })
    }

    /// Applies the edits of a `<config>` that merges.
    pub fn apply(into: &mut Vec<Self>, edits: &[Self], parent: &str, model: &Model) {
        for edit in edits {
            let key = edit.key(parent, model);
            let at = into.iter().position(|own| own.key(parent, model) == key);
            match (at, edit.operation.as_deref()) {
                (Some(at), Some("remove" | "delete")) => drop(into.remove(at)),
                (None, Some("remove")) => {}
                (at, None | Some("replace")) => {
                    let at = match (at, &edit.operation) {
                        (Some(at), None) => at,
                        (at, _) => {
                            at.map(|at| into.remove(at));
                            into.retain(|own| !edit.excludes(own, parent, model));
                            let new = Self { children: Vec::new(), operation: None, ..edit.clone() };
                            into.push(new);
                            into.len() - 1
                        }
                    };
                    into[at].text.clone_from(&edit.text);
                    into[at].inactive = edit.inactive.or(into[at].inactive);
                    Self::apply(&mut into[at].children, &edit.children, &edit.name, model);
                }
                (None, Some("delete")) => panic!("{} is not there to be deleted: {key:?}", edit.name),
                (_, Some(other)) => panic!("operation {other}"),
            }
        }
    }

    fn write(nodes: &[Self], out: &mut String) {
        for node in nodes {
            let inactive = if node.inactive == Some(true) { " inactive=\"inactive\"" } else { "" };
            write!(out, "<{} xmlns=\"{}\"{inactive}>", node.name, node.namespace).unwrap();
            out.push_str(&quick_xml::escape::escape(node.text.as_str()));
            Self::write(&node.children, out);
            write!(out, "</{}>", node.name).unwrap();
        }
    }
}

impl Node {
    fn canonical(mut self, parent: &str, model: &Model) -> Vec<Self> {
        let range = model.ranges.iter().find(|(leaf, _)| *leaf == self.name);
        if let Some((_, between)) = range {
            let (first, last) = self.text.split_once(between).unwrap_or((&self.text, &self.text));
            if let (Ok(first), Ok(last)) = (first.parse::<u16>(), last.parse::<u16>()) {
                return (first..=last).map(|id| Self { text: id.to_string(), ..self.clone() }).collect();
            }
        }
        self.children = canonical_children(&self.children, &self.name, model);
        let is_empty = self.children.is_empty() && self.text.is_empty();
        let presence = model.presence.iter().any(|named| self.is(parent, named));
        if is_empty && !presence { Vec::new() } else { vec![self] }
    }
}

fn canonical_children(nodes: &[Node], parent: &str, model: &Model) -> Vec<Node> {
    let mut all: Vec<Node> = nodes.iter().flat_map(|node| node.clone().canonical(parent, model)).collect();
    let key = |node: &Node| node.key(parent, model).join("\n") + "\n" + &node.text;
    all.sort_by_key(key);
    all.dedup_by_key(|node| key(node));
    all
}

/// The canonical form: lists sorted, VIDs one by one, without empty containers.
pub fn canonical(nodes: &[Node], model: &Model) -> Vec<Node> {
    canonical_children(nodes, "", model)
}

/// The text of a tree, for messages.
pub fn text(nodes: &[Node]) -> String {
    let mut xml = String::new();
    Node::write(nodes, &mut xml);
    xml.replace('>', ">\n")
}

/// The reply to a `<get-config>` of the whole tree.
pub fn reply(nodes: &[Node]) -> String {
    let mut xml = format!("<rpc-reply xmlns=\"{NETCONF}\"><data>");
    Node::write(nodes, &mut xml);
    xml + "</data></rpc-reply>"
}

/// The tree after an `<edit-config>` that merges.
pub fn apply(nodes: &[Node], edit: &str, model: &Model) -> Vec<Node> {
    let config = format!("<config xmlns=\"c\" xmlns:nc=\"{NETCONF}\">{edit}</config>");
    let mut nodes = nodes.to_vec();
    Node::apply(&mut nodes, &Node::read(&config)[0].children, "", model);
    nodes
}
