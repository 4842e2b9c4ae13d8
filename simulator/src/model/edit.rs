//! `<edit-config>`: parses the content of `<config>` against the schema and applies it.
//!
//! [`parse`] reports all errors of the edit itself: unknown names, invalid values, missing keys. So every [`Edit`] is
//! well-typed. [`apply`] reports only errors that depend on the configuration: data that exists or is missing
//! (RFC 6241 section 7.2).

mod affected_nodes;

use std::collections::HashSet;

use crate::model::path::Path;
use crate::model::schema::{self, Definition, Definitions, Kind};
use crate::model::tree::{Container, Key, Node};
use crate::model::value::{Type, Value};
use crate::netconf::error::{RpcError, Tag};
use crate::netconf::xml::{Element, NETCONF};

pub use affected_nodes::{nodes_in_subtree, nodes_naming_vlan};

/// The `operation` attribute of a node, or `default-operation` (RFC 6241 section 7.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Merge with the existing data.
    Merge,
    /// Replace the existing data.
    Replace,
    /// Create; existing data is an error.
    Create,
    /// Delete; missing data is an error.
    Delete,
    /// Delete; missing data is ignored.
    Remove,
    /// Leave the node unchanged and descend to its children (`default-operation` `none`).
    None,
}

impl Operation {
    /// Parses the `operation` attribute, which has no value `none`.
    fn from_attribute(text: &str) -> Option<Self> {
        Some(match text {
            "merge" => Self::Merge,
            "replace" => Self::Replace,
            "create" => Self::Create,
            "delete" => Self::Delete,
            "remove" => Self::Remove,
            _ => return None,
        })
    }
}

/// The behaviour after an edit of one node failed (`error-option`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnError {
    /// `stop-on-error`: skip the remaining edits and keep the applied ones.
    Stop,
    /// `continue-on-error`: apply the remaining edits.
    Continue,
    /// `rollback-on-error`: undo the applied edits.
    Rollback,
}

/// One well-typed node of an edit, with its children.
#[derive(Debug, Clone)]
pub struct Edit {
    at: usize,
    definition: &'static Definition,
    operation: Option<Operation>,
    body: Body,
}

#[derive(Debug, Clone)]
enum Body {
    Container(Vec<Edit>),
    Entry {
        key: Key,
        children: Vec<Edit>,
    },
    /// `None` only for `delete` and `remove`, which need no value.
    Leaf(Option<Value>),
    LeafListValue(Value),
}

/// Parses the children of `<config>`.
pub fn parse(definitions: Definitions, elements: &[Element]) -> Result<Vec<Edit>, Vec<RpcError>> {
    let mut errors = Vec::new();
    let namespaces = namespaces(definitions);
    let edits = parse_children(definitions, &[], elements, None, &namespaces, &mut errors);
    if errors.is_empty() { Ok(edits) } else { Err(errors) }
}

/// Whether an edit removes a leaf without its value.
pub fn removes_without_value(edits: &[Edit]) -> bool {
    edits.iter().any(|edit| match &edit.body {
        Body::Container(children) | Body::Entry { children, .. } => removes_without_value(children),
        Body::Leaf(value) => value.is_none(),
        Body::LeafListValue(_) => false,
    })
}

/// Changes the names of VLANs: the leaves `name` within lists `vlan`.
pub fn change_vlan_names(edits: &mut [Edit], change: &impl Fn(&str) -> String) {
    for edit in edits {
        match &mut edit.body {
            Body::Entry { children, .. } if edit.definition.name == "vlan" => {
                change_names(children, change);
            }
            Body::Container(children) | Body::Entry { children, .. } => change_vlan_names(children, change),
            Body::Leaf(_) | Body::LeafListValue(_) => {}
        }
    }
}

fn change_names(edits: &mut [Edit], change: &impl Fn(&str) -> String) {
    for edit in edits {
        match &mut edit.body {
            Body::Container(children) => change_names(children, change),
            Body::Leaf(Some(Value::Text(name))) if edit.definition.name == "name" => {
                *name = change(name).into();
            }
            Body::Entry { .. } | Body::Leaf(_) | Body::LeafListValue(_) => {}
        }
    }
}

fn namespaces(definitions: Definitions) -> HashSet<&'static str> {
    let mut found = HashSet::new();
    let mut open = vec![definitions];
    while let Some(definitions) = open.pop() {
        for definition in definitions {
            found.insert(definition.module.namespace);
            open.push(definition.children());
        }
    }
    found
}

/// Parses child elements. The `keys` of a list entry are skipped: the caller has parsed them.
fn parse_children(
    definitions: Definitions,
    keys: Definitions,
    elements: &[Element],
    parent: Option<&Path<'_>>,
    namespaces: &HashSet<&'static str>,
    errors: &mut Vec<RpcError>,
) -> Vec<Edit> {
    let mut edits = Vec::with_capacity(elements.len());
    for element in elements {
        if keys.iter().any(|key| element.is(key.module.namespace, key.name)) {
            continue;
        }
        let found = if element.namespace.is_empty() {
            None
        } else {
            schema::find(definitions, &element.namespace, &element.name)
        };
        match found {
            Some((at, definition)) if definition.config => {
                edits.extend(parse_node(at, definition, element, parent, namespaces, errors));
            }
            Some((_, definition)) => errors.push(
                RpcError::application(
                    Tag::UnknownElement,
                    format!("{} is state, not configuration", definition.name),
                )
                .at(&Path::node(parent, definition))
                .info("bad-element", definition.name),
            ),
            None if !namespaces.contains(&*element.namespace) => errors.push(at_parent(
                RpcError::application(
                    Tag::UnknownNamespace,
                    format!("namespace \"{}\" of {} is not supported", element.namespace, element.name),
                )
                .info("bad-element", &*element.name)
                .info("bad-namespace", &*element.namespace),
                parent,
            )),
            None => errors.push(at_parent(
                RpcError::application(
                    Tag::UnknownElement,
                    format!("{{{}}}{} is not in the model here", element.namespace, element.name),
                )
                .info("bad-element", &*element.name),
                parent,
            )),
        }
    }
    edits
}

fn at_parent(error: RpcError, parent: Option<&Path<'_>>) -> RpcError {
    match parent {
        Some(parent) => error.at(parent),
        None => error,
    }
}

fn parse_node(
    at: usize,
    definition: &'static Definition,
    element: &Element,
    parent: Option<&Path<'_>>,
    namespaces: &HashSet<&'static str>,
    errors: &mut Vec<RpcError>,
) -> Option<Edit> {
    let path = Path::node(parent, definition);
    let operation = match parse_operation(element) {
        Ok(operation) => operation,
        Err(error) => {
            errors.push(error.at(&path));
            return None;
        }
    };
    let removes = matches!(operation, Some(Operation::Delete | Operation::Remove));
    let body = match definition.kind {
        Kind::Container(children) | Kind::Presence(children) => {
            if !has_no_text(element, &path, errors) {
                return None;
            }
            Body::Container(parse_children(children, &[], &element.children, Some(&path), namespaces, errors))
        }
        Kind::List { children, .. } => {
            if !has_no_text(element, &path, errors) {
                return None;
            }
            let key = parse_key(definition, element, &path, errors)?;
            let path = Path::entry(parent, definition, &key);
            let keys = definition.keys();
            let children = parse_children(children, keys, &element.children, Some(&path), namespaces, errors);
            Body::Entry { key, children }
        }
        Kind::Leaf(_) if removes && element.text.trim().is_empty() => Body::Leaf(None),
        Kind::Leaf(ty) => Body::Leaf(Some(parse_value(ty, element, &path, errors)?)),
        Kind::LeafList(ty) => Body::LeafListValue(parse_value(ty, element, &path, errors)?),
        Kind::Mirror(_) => return None,
    };
    Some(Edit { at, definition, operation, body })
}

fn parse_operation(element: &Element) -> Result<Option<Operation>, RpcError> {
    for attribute in &element.attributes {
        if &*attribute.namespace != NETCONF || &*attribute.name != "operation" {
            return Err(RpcError::protocol(
                Tag::UnknownAttribute,
                format!("attribute {{{}}}{} is not understood", attribute.namespace, attribute.name),
            )
            .info("bad-attribute", &*attribute.name)
            .info("bad-element", &*element.name));
        }
    }
    match element.attribute(NETCONF, "operation") {
        None => Ok(None),
        Some(text) => Operation::from_attribute(text).map(Some).ok_or_else(|| {
            RpcError::protocol(Tag::BadAttribute, format!("\"{text}\" is not an operation"))
                .info("bad-attribute", "operation")
                .info("bad-element", &*element.name)
        }),
    }
}

fn has_no_text(element: &Element, path: &Path<'_>, errors: &mut Vec<RpcError>) -> bool {
    let blank = element.text.trim().is_empty();
    if !blank {
        errors.push(
            RpcError::application(Tag::BadElement, format!("{} holds elements, not text", element.name))
                .at(path)
                .info("bad-element", &*element.name),
        );
    }
    blank
}

fn parse_key(
    definition: &'static Definition,
    element: &Element,
    path: &Path<'_>,
    errors: &mut Vec<RpcError>,
) -> Option<Key> {
    let mut key = Vec::with_capacity(definition.keys().len());
    for leaf in definition.keys() {
        let Kind::Leaf(ty) = leaf.kind else { return None };
        let Some(child) = element.child(leaf.module.namespace, leaf.name) else {
            errors.push(
                RpcError::application(
                    Tag::MissingElement,
                    format!("an entry of {} lacks its key {}", definition.name, leaf.name),
                )
                .at(path)
                .info("bad-element", leaf.name),
            );
            return None;
        };
        key.push(parse_value(ty, child, &Path::node(Some(path), leaf), errors)?);
    }
    Some(key.into())
}

fn parse_value(ty: Type, element: &Element, path: &Path<'_>, errors: &mut Vec<RpcError>) -> Option<Value> {
    let problem = match element.children.first() {
        Some(child) => format!("holds the element {} where a value belongs", child.name),
        None => match ty.parse(element) {
            Ok(value) => return Some(value),
            Err(problem) => problem,
        },
    };
    errors.push(
        RpcError::application(
            Tag::InvalidValue,
            format!("invalid value \"{}\" of {}: {problem}", element.text.trim(), element.name),
        )
        .at(path)
        .info("bad-element", &*element.name),
    );
    None
}

/// Applies an edit. On errors, `on_error` decides the resulting content of `target`.
pub fn apply(
    target: &mut Container,
    edits: &[Edit],
    default: Operation,
    on_error: OnError,
) -> Result<(), Vec<RpcError>> {
    let before = (on_error == OnError::Rollback).then(|| target.clone());
    let mut applier = Applier { on_error, errors: Vec::new() };
    if default == Operation::Replace {
        // The edit replaces the whole datastore (RFC 6241 section 7.2).
        *target = Container::default();
    }
    applier.apply_children(target, edits, default, None);
    if applier.errors.is_empty() {
        return Ok(());
    }
    if let Some(before) = before {
        *target = before;
    }
    Err(applier.errors)
}

struct Applier {
    on_error: OnError,
    errors: Vec<RpcError>,
}

impl Applier {
    fn stopped(&self) -> bool {
        !self.errors.is_empty() && self.on_error != OnError::Continue
    }

    fn report_exists(&mut self, path: &Path<'_>) {
        self.errors
            .push(RpcError::application(Tag::DataExists, "what is to be created exists already").at(path));
    }

    fn report_missing(&mut self, path: &Path<'_>) {
        self.errors
            .push(RpcError::application(Tag::DataMissing, "what is to be changed does not exist").at(path));
    }

    fn apply_children(
        &mut self,
        target: &mut Container,
        edits: &[Edit],
        inherited: Operation,
        parent: Option<&Path<'_>>,
    ) {
        // Apply adjacent entries of one list together, so that the list is copied at most once.
        let mut rest = edits;
        while let Some(first) = rest.first() {
            if self.stopped() {
                return;
            }
            let run_length = rest.iter().take_while(|edit| edit.at == first.at).count();
            let (run, others) = rest.split_at(run_length);
            rest = others;
            Self::remove_other_cases(target, run, inherited, parent.map_or(&[], Path::children));
            match first.body {
                Body::Entry { .. } => target.modify_list(first.at, |entries| {
                    for edit in run {
                        if !self.stopped() {
                            self.apply_entry(entries, edit, inherited, parent);
                        }
                    }
                }),
                _ => {
                    for edit in run {
                        if !self.stopped() {
                            self.apply_node(target, edit, inherited, parent);
                        }
                    }
                }
            }
        }
    }

    /// Removes the nodes of other cases of a choice when `run`, the edits of one node, creates data in one case
    /// (RFC 7950 section 7.9).
    fn remove_other_cases(target: &mut Container, run: &[Edit], inherited: Operation, siblings: Definitions) {
        let Some(first) = run.first().filter(|first| first.definition.case.is_some()) else { return };
        let creates = |edit: &Edit| {
            use Operation::{Create, Merge, Replace};
            matches!(edit.operation.unwrap_or(inherited), Create | Merge | Replace)
        };
        if run.iter().any(creates) {
            for (at, sibling) in siblings.iter().enumerate() {
                if sibling.excludes(first.definition) {
                    target.remove(at);
                }
            }
        }
    }

    fn apply_entry(
        &mut self,
        entries: &mut crate::model::tree::Entries,
        edit: &Edit,
        inherited: Operation,
        parent: Option<&Path<'_>>,
    ) {
        let Body::Entry { key, children } = &edit.body else { return };
        let path = Path::entry(parent, edit.definition, key);
        let operation = edit.operation.unwrap_or(inherited);
        let place = schema::place(edit.definition.children());
        let mut known_place = None;
        let below = match operation {
            Operation::Delete | Operation::Remove => {
                if entries.remove(key).is_none() && operation == Operation::Delete {
                    self.report_missing(&path);
                }
                return;
            }
            Operation::Create if entries.contains_key(key) => return self.report_exists(&path),
            Operation::None if !entries.contains_key(key) => return self.report_missing(&path),
            Operation::Replace | Operation::Create => {
                known_place = entries.remove(key).and_then(|entry| entry.leaf(place?).cloned());
                Operation::Merge
            }
            Operation::Merge | Operation::None => operation,
        };
        // A new entry is the last one (RFC 7950 section 7.8.6).
        let places = entries.values().filter_map(|entry| entry.leaf(place?)?.number());
        let place = place.map(|at| {
            let last = || Value::Uint(places.max().map_or(0, |last| last.saturating_add(1)));
            (at, known_place.unwrap_or_else(last))
        });
        let entry = entries.entry(key.clone()).or_insert_with(|| {
            let mut entry = Container::default();
            for (at, value) in key.iter().enumerate() {
                entry.set(at, Node::Leaf(value.clone()));
            }
            if let Some((at, place)) = place {
                entry.set(at, Node::Leaf(place));
            }
            std::sync::Arc::new(entry)
        });
        self.apply_children(std::sync::Arc::make_mut(entry), children, below, Some(&path));
    }

    fn apply_container(
        &mut self,
        target: &mut Container,
        edit: &Edit,
        children: &[Edit],
        below: Operation,
        path: &Path<'_>,
    ) {
        let applier = |c: &mut Container| self.apply_children(c, children, below, Some(path));
        if path.is_presence() {
            target.modify_presence(edit.at, applier);
        } else {
            target.modify_container(edit.at, applier);
        }
    }

    fn apply_node(
        &mut self,
        target: &mut Container,
        edit: &Edit,
        inherited: Operation,
        parent: Option<&Path<'_>>,
    ) {
        let operation = edit.operation.unwrap_or(inherited);
        let path = Path::node(parent, edit.definition);
        match &edit.body {
            Body::Container(children) => match operation {
                Operation::Delete | Operation::Remove => {
                    if target.remove(edit.at).is_none() && operation == Operation::Delete {
                        self.report_missing(&path);
                    }
                }
                Operation::Create if target.get(edit.at).is_some() => self.report_exists(&path),
                Operation::Replace | Operation::Create => {
                    target.remove(edit.at);
                    self.apply_container(target, edit, children, Operation::Merge, &path);
                }
                Operation::None if path.is_presence() && target.get(edit.at).is_none() => {
                    self.report_missing(&path);
                }
                Operation::Merge | Operation::None => {
                    self.apply_container(target, edit, children, operation, &path);
                }
            },
            Body::Leaf(value) => match (operation, value) {
                (Operation::Delete, _) => {
                    if target.remove(edit.at).is_none() {
                        self.report_missing(&path);
                    }
                }
                (Operation::Remove, _) => {
                    target.remove(edit.at);
                }
                (Operation::Create, _) if target.get(edit.at).is_some() => self.report_exists(&path),
                (Operation::Merge | Operation::Replace | Operation::Create, Some(value)) => {
                    target.set(edit.at, Node::Leaf(value.clone()));
                }
                (Operation::None, _) if target.get(edit.at).is_none() => self.report_missing(&path),
                (_, _) => {}
            },
            Body::LeafListValue(value) => {
                let path = Path::value(parent, edit.definition, value);
                target.modify_leaf_list(edit.at, |values| match operation {
                    Operation::Delete => {
                        if !values.remove(value) {
                            self.report_missing(&path);
                        }
                    }
                    Operation::Remove => {
                        values.remove(value);
                    }
                    Operation::Create if values.contains(value) => self.report_exists(&path),
                    Operation::None if !values.contains(value) => self.report_missing(&path),
                    Operation::Merge | Operation::Replace | Operation::Create => {
                        values.insert(value.clone());
                    }
                    Operation::None => {}
                });
            }
            Body::Entry { .. } => {}
        }
    }
}

#[cfg(test)]
mod tests;
