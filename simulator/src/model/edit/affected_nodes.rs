//! Finds the data nodes that an edit affects, for injected faults.

use super::{Body, Edit, Operation};
use crate::model::path::{InstanceIdentifier, Path};
use crate::model::schema::Definition;

/// Returns the topmost nodes of an edit that change `subtree` (node names from the root, joined with slashes):
/// the nodes at its path, or ancestors with `delete`, `remove` or `replace`.
pub fn nodes_in_subtree(edits: &[Edit], subtree: &str, default: Operation) -> Vec<InstanceIdentifier> {
    let names: Vec<&str> = subtree.trim_matches('/').split('/').collect();
    let mut found = Vec::new();
    collect_in_subtree(edits, &names, default, None, &mut found);
    found
}

fn collect_in_subtree(
    edits: &[Edit],
    names: &[&str],
    inherited: Operation,
    parent: Option<&Path<'_>>,
    found: &mut Vec<InstanceIdentifier>,
) {
    let Some((name, rest)) = names.split_first() else { return };
    for edit in edits.iter().filter(|edit| edit.definition.name == *name) {
        let operation = edit.operation.unwrap_or(inherited);
        let takes = matches!(operation, Operation::Delete | Operation::Remove | Operation::Replace);
        let (path, children): (_, &[Edit]) = match &edit.body {
            Body::Entry { key, children } => (Path::entry(parent, edit.definition, key), children),
            Body::Container(children) => (Path::node(parent, edit.definition), children),
            _ => (Path::node(parent, edit.definition), &[]),
        };
        if rest.is_empty() || takes {
            found.push(path.identifier());
        } else {
            collect_in_subtree(children, rest, operation, Some(&path), found);
        }
    }
}

/// Returns the nodes of an edit that name a VLAN: list entries and leaves for VLANs, whose value is the id or a
/// range that contains it.
pub fn nodes_naming_vlan(edits: &[Edit], vlan: u16) -> Vec<InstanceIdentifier> {
    let mut found = Vec::new();
    collect_naming_vlan(edits, vlan, None, &mut found);
    found
}

fn collect_naming_vlan(
    edits: &[Edit],
    vlan: u16,
    parent: Option<&Path<'_>>,
    found: &mut Vec<InstanceIdentifier>,
) {
    for edit in edits {
        let names_a_vlan = |definition: &Definition| {
            let name = definition.name.to_ascii_lowercase();
            name.contains("vlan") || matches!(&*name, "vid" | "vids" | "pvid" | "members" | "fabencap")
        };
        match &edit.body {
            Body::Container(children) => {
                collect_naming_vlan(children, vlan, Some(&Path::node(parent, edit.definition)), found);
            }
            Body::Entry { key, children } => {
                let path = Path::entry(parent, edit.definition, key);
                let mut keys = edit.definition.keys().iter().zip(key.iter());
                if keys.any(|(d, value)| names_a_vlan(d) && value.names_vlan(vlan)) {
                    found.push(path.identifier());
                } else {
                    collect_naming_vlan(children, vlan, Some(&path), found);
                }
            }
            Body::Leaf(Some(value)) => {
                if names_a_vlan(edit.definition) && value.names_vlan(vlan) {
                    found.push(Path::node(parent, edit.definition).identifier());
                }
            }
            Body::LeafListValue(value) => {
                if names_a_vlan(edit.definition) && value.names_vlan(vlan) {
                    found.push(Path::value(parent, edit.definition, value).identifier());
                }
            }
            Body::Leaf(None) => {}
        }
    }
}
