//! A data tree. Subtrees are shared (copy on write), so that a candidate is a cheap clone of running.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;

use crate::model::path::Path;
use crate::model::schema::{self, Definition, Definitions, Kind};
use crate::model::value::{IdentityRef, Value};
use crate::netconf::xml::{push_attribute, push_text};

/// The key values of a list entry, in schema order.
pub type Key = Arc<[Value]>;
/// The entries of a list.
pub type Entries = BTreeMap<Key, Arc<Container>>;

/// The content of a container or list entry: child nodes by their position in the schema.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Container {
    /// In schema order. A configuration has hundreds of thousands of containers; maps would be several times as large.
    nodes: Vec<(u8, Node)>,
}

/// The data of one schema node. Empty containers, lists and leaf-lists are not stored: in RFC 7950 they are
/// equivalent to absent ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Node {
    /// A non-empty container.
    Container(Arc<Container>),
    /// A presence container; it may be empty.
    Presence(Arc<Container>),
    /// A list with at least one entry.
    List(Arc<Entries>),
    /// A leaf.
    Leaf(Value),
    /// A leaf-list with at least one value.
    LeafList(Arc<BTreeSet<Value>>),
}

impl Node {
    fn is_empty(&self) -> bool {
        match self {
            Node::Container(container) => container.nodes.is_empty(),
            Node::List(entries) => entries.is_empty(),
            Node::Leaf(_) | Node::Presence(_) => false,
            Node::LeafList(values) => values.is_empty(),
        }
    }
}

impl Container {
    /// Whether it has no child nodes.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    fn find(&self, at: usize) -> Result<usize, usize> {
        self.nodes.binary_search_by_key(&at, |(position, _)| usize::from(*position))
    }

    /// The node at a schema position.
    pub fn get(&self, at: usize) -> Option<&Node> {
        self.find(at).ok().map(|index| &self.nodes[index].1)
    }

    fn get_mut(&mut self, at: usize) -> Option<&mut Node> {
        self.find(at).ok().map(|index| &mut self.nodes[index].1)
    }

    /// Sets the node at a schema position; an empty node removes it.
    pub fn set(&mut self, at: usize, node: Node) {
        match self.find(at) {
            Ok(index) if node.is_empty() => {
                self.nodes.remove(index);
            }
            Ok(index) => self.nodes[index].1 = node,
            Err(_) if node.is_empty() => {}
            // No container of any schema has more than 256 children.
            Err(index) => {
                self.nodes.reserve_exact(1);
                self.nodes.insert(index, (u8::try_from(at).unwrap_or(u8::MAX), node));
            }
        }
    }

    /// Removes the node at a schema position.
    pub fn remove(&mut self, at: usize) -> Option<Node> {
        self.find(at).ok().map(|index| self.nodes.remove(index).1)
    }

    /// The child nodes with their schema positions.
    pub fn nodes(&self) -> impl Iterator<Item = (usize, &Node)> {
        self.nodes.iter().map(|(at, node)| (usize::from(*at), node))
    }

    /// The container at a schema position.
    pub fn container(&self, at: usize) -> Option<&Container> {
        match self.get(at) {
            Some(Node::Container(container) | Node::Presence(container)) => Some(container),
            _ => None,
        }
    }

    /// The entries of the list at a schema position.
    pub fn list(&self, at: usize) -> Option<&Entries> {
        match self.get(at) {
            Some(Node::List(entries)) => Some(entries),
            _ => None,
        }
    }

    /// The value of the leaf at a schema position.
    pub fn leaf(&self, at: usize) -> Option<&Value> {
        match self.get(at) {
            Some(Node::Leaf(value)) => Some(value),
            _ => None,
        }
    }

    /// The values of the leaf-list at a schema position.
    pub fn leaf_list(&self, at: usize) -> Option<&BTreeSet<Value>> {
        match self.get(at) {
            Some(Node::LeafList(values)) => Some(values),
            _ => None,
        }
    }

    /// Modifies the container at a schema position. It is created if absent and removed if empty afterwards.
    pub fn modify_container<R>(&mut self, at: usize, modify: impl FnOnce(&mut Container) -> R) -> R {
        let mut inner = match self.remove(at) {
            Some(Node::Container(container)) => container,
            _ => Arc::default(),
        };
        let result = modify(Arc::make_mut(&mut inner));
        self.set(at, Node::Container(inner));
        result
    }

    /// Modifies the presence container at a schema position. It is created if absent.
    pub fn modify_presence<R>(&mut self, at: usize, modify: impl FnOnce(&mut Container) -> R) -> R {
        let mut inner = match self.remove(at) {
            Some(Node::Presence(container)) => container,
            _ => Arc::default(),
        };
        let result = modify(Arc::make_mut(&mut inner));
        self.set(at, Node::Presence(inner));
        result
    }

    /// Modifies the list at a schema position. It is created if absent and removed if empty afterwards.
    pub fn modify_list<R>(&mut self, at: usize, modify: impl FnOnce(&mut Entries) -> R) -> R {
        let mut entries = match self.remove(at) {
            Some(Node::List(entries)) => entries,
            _ => Arc::default(),
        };
        let result = modify(Arc::make_mut(&mut entries));
        self.set(at, Node::List(entries));
        result
    }

    /// Modifies the leaf-list at a schema position. It is created if absent and removed if empty afterwards.
    pub fn modify_leaf_list<R>(&mut self, at: usize, modify: impl FnOnce(&mut BTreeSet<Value>) -> R) -> R {
        let mut values = match self.remove(at) {
            Some(Node::LeafList(values)) => values,
            _ => Arc::default(),
        };
        let result = modify(Arc::make_mut(&mut values));
        self.set(at, Node::LeafList(values));
        result
    }

    /// Adds all nodes of `other`, which is another part of the same data tree.
    pub fn merge(&mut self, other: &Container) {
        for (at, node) in other.nodes() {
            match (self.get_mut(at), node) {
                (Some(Node::Container(mine)), Node::Container(theirs))
                | (Some(Node::Presence(mine)), Node::Presence(theirs)) => {
                    if !Arc::ptr_eq(mine, theirs) {
                        Arc::make_mut(mine).merge(theirs);
                    }
                }
                (Some(Node::List(mine)), Node::List(theirs)) => {
                    if Arc::ptr_eq(mine, theirs) {
                        continue;
                    }
                    let mine = Arc::make_mut(mine);
                    for (key, entry) in theirs.iter() {
                        match mine.get_mut(key) {
                            Some(known) if Arc::ptr_eq(known, entry) => {}
                            Some(known) => Arc::make_mut(known).merge(entry),
                            None => {
                                mine.insert(key.clone(), Arc::clone(entry));
                            }
                        }
                    }
                }
                (Some(Node::LeafList(mine)), Node::LeafList(theirs)) => {
                    Arc::make_mut(mine).extend(theirs.iter().cloned());
                }
                _ => self.set(at, node.clone()),
            }
        }
    }

    /// Returns a copy without `subtree` (node names from the root, joined with slashes).
    #[must_use]
    pub fn without_subtree(&self, definitions: Definitions, subtree: &str) -> Container {
        let mut rest = self.clone();
        let (name, below) = subtree.split_once('/').unwrap_or((subtree, ""));
        for (at, definition) in definitions.iter().enumerate().filter(|(_, d)| d.name == name) {
            if below.is_empty() {
                rest.remove(at);
                continue;
            }
            let children = definition.children();
            match rest.get_mut(at) {
                Some(Node::Container(container) | Node::Presence(container)) => {
                    *container = Arc::new(container.without_subtree(children, below));
                }
                Some(Node::List(entries)) => {
                    let part = entries
                        .iter()
                        .map(|(k, e)| (k.clone(), Arc::new(e.without_subtree(children, below))));
                    *entries = Arc::new(part.collect());
                }
                _ => {}
            }
        }
        rest
    }

    /// Returns a copy in which each `state` container has the values of the sibling `config`, as `<get>` returns it.
    #[must_use]
    pub fn with_state(&self, definitions: Definitions) -> Container {
        let mut whole = self.clone();
        for (at, definition) in definitions.iter().enumerate() {
            match (&definition.kind, whole.get_mut(at)) {
                (
                    Kind::Container(children) | Kind::Presence(children),
                    Some(Node::Container(container) | Node::Presence(container)),
                ) => {
                    *container = Arc::new(container.with_state(children));
                }
                (Kind::List { children, .. }, Some(Node::List(entries))) => {
                    *entries = Arc::new(
                        entries.iter().map(|(k, e)| (k.clone(), Arc::new(e.with_state(children)))).collect(),
                    );
                }
                (Kind::Mirror(_), _) => {
                    if let Some(config) = at.checked_sub(1).and_then(|config| self.get(config)) {
                        whole.set(at, config.clone());
                    }
                }
                _ => {}
            }
        }
        whole
    }

    /// Appends the content as XML. `outer` is the default namespace of the surrounding element.
    pub fn write_xml(&self, definitions: Definitions, outer: &str, out: &mut String) {
        for (at, node) in self.nodes() {
            let definition = &definitions[at];
            match node {
                Node::Container(container) | Node::Presence(container) => {
                    write_container(definition, container, outer, out);
                }
                Node::List(entries) => {
                    for (_, entry) in in_order(entries, definition.children()) {
                        write_container(definition, entry, outer, out);
                    }
                }
                Node::Leaf(_) if definition.is_place() => {}
                Node::Leaf(value) => write_value(definition, value, outer, out),
                Node::LeafList(values) => {
                    for value in values.iter() {
                        write_value(definition, value, outer, out);
                    }
                }
            }
        }
    }
}

/// The entries of a list in their order: that of the user if the list has one, else that of their keys.
pub fn in_order(entries: &Entries, children: Definitions) -> Vec<(&Key, &Arc<Container>)> {
    let mut entries: Vec<_> = entries.iter().collect();
    if let Some(at) = schema::place(children) {
        entries.sort_by_key(|(_, entry)| entry.leaf(at).and_then(Value::number));
    }
    entries
}

/// Appends one container or list entry as an element.
pub fn write_container(definition: &Definition, container: &Container, outer: &str, out: &mut String) {
    open(definition, outer, out);
    if container.is_empty() {
        out.push_str("/>");
        return;
    }
    out.push('>');
    container.write_xml(definition.children(), definition.module.namespace, out);
    close(definition, out);
}

fn open(definition: &Definition, outer: &str, out: &mut String) {
    out.push('<');
    out.push_str(definition.name);
    if definition.module.namespace != outer {
        push_attribute(out, "xmlns", definition.module.namespace);
    }
}

fn close(definition: &Definition, out: &mut String) {
    out.push_str("</");
    out.push_str(definition.name);
    out.push('>');
}

/// Appends one leaf, or one value of a leaf-list, as an element.
pub fn write_value(definition: &Definition, value: &Value, outer: &str, out: &mut String) {
    open(definition, outer, out);
    match value {
        Value::Identity(IdentityRef(identity)) => {
            push_attribute(out, &format!("xmlns:{}", identity.module.prefix), identity.module.namespace);
        }
        Value::Keyword("") => {
            out.push_str("/>");
            return;
        }
        _ => {}
    }
    out.push('>');
    match value {
        Value::Text(text) => push_text(out, text),
        Value::Keyword(word) => out.push_str(word),
        // Writing to a String can't fail.
        other => drop(write!(out, "{other}")),
    }
    close(definition, out);
}

/// The change of a data node between two configurations. As text: the `operation` of notifications.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr)]
pub enum Change {
    /// The node was created.
    #[strum(serialize = "create")]
    Created,
    /// The value of the leaf changed.
    #[strum(serialize = "replace")]
    Replaced,
    /// The node was deleted.
    #[strum(serialize = "delete")]
    Deleted,
}

/// The new content of a changed data node.
#[derive(Debug, Clone, Copy)]
pub enum NewContent<'a> {
    /// The node was deleted.
    None,
    /// A list entry or a presence container.
    Container(&'a Container),
    /// A leaf or a value of a leaf-list.
    Value(&'a Value),
}

/// Calls `report` for each difference from `before` to `after`: the topmost created and deleted nodes, and
/// changed leaves.
pub fn differences(
    before: &Container,
    after: &Container,
    definitions: Definitions,
    parent: Option<&Path<'_>>,
    report: &mut impl FnMut(&Path<'_>, Change, NewContent<'_>),
) {
    for (at, definition) in definitions.iter().enumerate() {
        let (old, new) = (before.get(at), after.get(at));
        match old.or(new) {
            None => {}
            Some(Node::Presence(_)) if old.is_none() || new.is_none() => {
                let path = Path::node(parent, definition);
                match after.container(at) {
                    Some(container) => report(&path, Change::Created, NewContent::Container(container)),
                    None => report(&path, Change::Deleted, NewContent::None),
                }
            }
            Some(Node::Container(_) | Node::Presence(_)) => {
                let nothing = Container::default();
                let (old, new) =
                    (before.container(at).unwrap_or(&nothing), after.container(at).unwrap_or(&nothing));
                if !std::ptr::eq(old, new) {
                    let path = Path::node(parent, definition);
                    differences(old, new, definition.children(), Some(&path), report);
                }
            }
            Some(Node::List(_)) => {
                let nothing = Entries::new();
                let (old, new) = (before.list(at).unwrap_or(&nothing), after.list(at).unwrap_or(&nothing));
                if !std::ptr::eq(old, new) {
                    list_differences(old, new, definition, parent, report);
                }
            }
            Some(Node::LeafList(_)) => {
                let nothing = BTreeSet::new();
                let (old, new) =
                    (before.leaf_list(at).unwrap_or(&nothing), after.leaf_list(at).unwrap_or(&nothing));
                for value in old.difference(new) {
                    report(&Path::value(parent, definition, value), Change::Deleted, NewContent::None);
                }
                for value in new.difference(old) {
                    report(
                        &Path::value(parent, definition, value),
                        Change::Created,
                        NewContent::Value(value),
                    );
                }
            }
            Some(Node::Leaf(_)) if definition.is_place() => {}
            Some(Node::Leaf(_)) => {
                let path = Path::node(parent, definition);
                match (before.leaf(at), after.leaf(at)) {
                    (None, Some(value)) => report(&path, Change::Created, NewContent::Value(value)),
                    (Some(_), None) => report(&path, Change::Deleted, NewContent::None),
                    (old, Some(value)) if old != Some(value) => {
                        report(&path, Change::Replaced, NewContent::Value(value));
                    }
                    _ => {}
                }
            }
        }
    }
}

fn list_differences(
    old: &Entries,
    new: &Entries,
    definition: &'static Definition,
    parent: Option<&Path<'_>>,
    report: &mut impl FnMut(&Path<'_>, Change, NewContent<'_>),
) {
    // Both are sorted, so no key is looked up.
    let mut created = Vec::new();
    let mut after = new.iter().peekable();
    for (key, entry) in old {
        while let Some(new) = after.next_if(|(other, _)| !Arc::ptr_eq(other, key) && *other < key) {
            created.push(new);
        }
        let path = Path::entry(parent, definition, key);
        match after.next_if(|(other, _)| Arc::ptr_eq(other, key) || *other == key) {
            None => report(&path, Change::Deleted, NewContent::None),
            Some((_, entry_after)) if Arc::ptr_eq(entry, entry_after) => {}
            Some((_, entry_after)) => {
                differences(entry, entry_after, definition.children(), Some(&path), report);
            }
        }
    }
    for (key, entry) in created.into_iter().chain(after) {
        report(&Path::entry(parent, definition, key), Change::Created, NewContent::Container(entry));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialect::OPENCONFIG;
    use crate::model::edit::{self, OnError, Operation};
    use crate::netconf::xml;

    /// The configuration with interfaces of these names and states.
    fn interfaces(names: &[(&str, bool)]) -> Container {
        let entry = |(name, enabled): &(&str, bool)| {
            format!(
                "<interface><name>{name}</name><config><name>{name}</name><enabled>{enabled}</enabled></config>\
                 </interface>"
            )
        };
        let entries: String = names.iter().map(entry).collect();
        let xml = format!(
            "<config><interfaces xmlns=\"http://openconfig.net/yang/interfaces\">{entries}</interfaces></config>"
        );
        let document = xml::parse(xml.as_bytes()).expect("well-formed");
        let edits = edit::parse(OPENCONFIG.roots, &document.root.children).expect("well-typed");
        let mut config = Container::default();
        edit::apply(&mut config, &edits, Operation::Merge, OnError::Stop).expect("it applies");
        config
    }

    #[test]
    fn differences_of_lists_are_found_anywhere_in_them() {
        let before = interfaces(&[("b", true), ("d", true), ("f", true), ("h", true)]);
        let after = interfaces(&[("a", true), ("c", true), ("d", false), ("h", true), ("i", true)]);
        let mut found = Vec::new();
        differences(&before, &after, OPENCONFIG.roots, None, &mut |path, change, _| {
            let text = path.identifier().text;
            let (_, name) = text.split_once("[oc-if:name='").expect("an interface");
            found.push((name.split_once('\'').expect("a name").0.to_owned(), change));
        });
        let expected = [
            ("b", Change::Deleted),
            ("d", Change::Replaced),
            ("f", Change::Deleted),
            ("a", Change::Created),
            ("c", Change::Created),
            ("i", Change::Created),
        ];
        assert_eq!(found, expected.map(|(name, change)| (name.to_owned(), change)));
        differences(&after, &after, OPENCONFIG.roots, None, &mut |path, _, _| {
            panic!("{}", path.identifier().text);
        });
    }
}
