//! Reads a data tree by the names of its nodes.

use crate::model::schema::{Definitions, position};
use crate::model::tree::{self, Container, Key};
use crate::model::value::Value;

/// A container or list entry with the definitions of its children.
///
/// All methods panic if the schema lacks a name, which is a programming error.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cursor<'a> {
    /// The node.
    pub(super) node: &'a Container,
    /// Its children.
    pub(super) definitions: Definitions,
}

impl<'a> Cursor<'a> {
    /// A node with the definitions of its children.
    pub(super) fn new(node: &'a Container, definitions: Definitions) -> Self {
        Self { node, definitions }
    }

    /// The container below these names.
    pub(super) fn below(self, path: &[&str]) -> Option<Self> {
        path.iter().try_fold(self, |at, name| {
            let position = position(at.definitions, name);
            Some(Self::new(at.node.container(position)?, at.definitions[position].children()))
        })
    }

    fn above(self, path: &[&str]) -> Option<(Self, usize)> {
        let (name, above) = path.split_last()?;
        let above = self.below(above)?;
        Some((above, position(above.definitions, name)))
    }

    /// The value of the leaf below these names.
    pub(super) fn leaf(self, path: &[&str]) -> Option<&'a Value> {
        let (above, at) = self.above(path)?;
        above.node.leaf(at)
    }

    /// Its text, if it is a string.
    pub(super) fn text(self, path: &[&str]) -> Option<&'a str> {
        self.leaf(path)?.text()
    }

    /// Its number.
    pub(super) fn number<T: TryFrom<u64>>(self, path: &[&str]) -> Option<T> {
        T::try_from(self.leaf(path)?.number()?).ok()
    }

    /// Whether it has this enumeration, boolean or identity value.
    pub(super) fn is(self, path: &[&str], value: &str) -> bool {
        self.leaf(path).is_some_and(|leaf| leaf.is(value))
    }

    /// The values of the leaf-list below these names.
    pub(super) fn values(self, path: &[&str]) -> impl Iterator<Item = &'a Value> + use<'a> {
        self.above(path).and_then(|(above, at)| above.node.leaf_list(at)).into_iter().flatten()
    }

    /// The entries of the list below these names, in their order.
    pub(super) fn list(self, path: &[&str]) -> impl Iterator<Item = (&'a Key, Self)> + use<'a> {
        let list = self
            .above(path)
            .and_then(|(above, at)| Some((above.node.list(at)?, above.definitions[at].children())));
        list.into_iter().flat_map(|(entries, children)| {
            tree::in_order(entries, children)
                .into_iter()
                .map(move |(key, entry)| (key, Self::new(entry, children)))
        })
    }

    /// The entries of the list below these names whose first key is text, in their order.
    pub(super) fn named(self, path: &[&str]) -> impl Iterator<Item = (&'a str, Self)> + use<'a> {
        self.list(path).filter_map(|(key, entry)| Some((key.first()?.text()?, entry)))
    }

    /// The entry of this name of the list below these names.
    pub(super) fn entry(self, path: &[&str], name: &str) -> Option<Self> {
        let (above, at) = self.above(path)?;
        let entry = above.node.list(at)?.get(&[Value::Text(name.into())][..])?;
        Some(Self::new(entry, above.definitions[at].children()))
    }
}
