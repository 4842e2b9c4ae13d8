//! The schema as a table: the part of YANG (RFC 7950) that decides what an edit may contain.
//!
//! A dialect is a `static` tree of [`Definition`]s. What YANG says in `when`, `must` and `leafref` is code,
//! in the dialect's own checks.

use crate::model::value::Type;

/// A YANG module: names are qualified by it.
#[derive(Debug, PartialEq, Eq)]
pub struct Module {
    /// Its name, such as `openconfig-vlan`.
    pub name: &'static str,
    /// Its own prefix, such as `oc-vlan`.
    pub prefix: &'static str,
    /// Its XML namespace.
    pub namespace: &'static str,
    /// Its revision date.
    pub revision: &'static str,
}

/// An identity, the value of an identityref.
#[derive(Debug, PartialEq, Eq)]
pub struct Identity {
    /// Where it is defined.
    pub module: &'static Module,
    /// Its name.
    pub name: &'static str,
}

/// What kind of node a definition describes.
#[derive(Debug, Clone, Copy)]
pub enum Kind {
    /// A non-presence container.
    Container(&'static [Definition]),
    /// A container that means something by being there, even empty.
    Presence(&'static [Definition]),
    /// A list; the first `keys` of its children are its keys, in order.
    List {
        /// How many keys it has.
        keys: usize,
        /// Its children, keys first.
        children: &'static [Definition],
    },
    /// A leaf.
    Leaf(Type),
    /// A leaf-list ordered by the system.
    LeafList(Type),
    /// The OpenConfig `state` container whose applied values mirror the sibling `config`, the
    /// definition before it.
    Mirror(&'static [Definition]),
}

/// One schema node.
#[derive(Debug, Clone, Copy)]
pub struct Definition {
    /// Its name.
    pub name: &'static str,
    /// The module it is from, which gives its namespace.
    pub module: &'static Module,
    /// What it is.
    pub kind: Kind,
    /// Whether it can be configured; else it is seen by `<get>` only.
    pub config: bool,
    /// Its `choice` and `case`: of the cases of one choice among siblings, only one exists at a time.
    pub case: Option<(&'static str, &'static str)>,
}

impl Definition {
    /// A container.
    pub const fn container(
        name: &'static str,
        module: &'static Module,
        children: &'static [Definition],
    ) -> Self {
        Self { name, module, kind: Kind::Container(children), config: true, case: None }
    }

    /// A presence container.
    pub const fn presence(
        name: &'static str,
        module: &'static Module,
        children: &'static [Definition],
    ) -> Self {
        Self { name, module, kind: Kind::Presence(children), config: true, case: None }
    }

    /// A container that only `<get>` shows.
    pub const fn state_container(
        name: &'static str,
        module: &'static Module,
        children: &'static [Definition],
    ) -> Self {
        Self { name, module, kind: Kind::Container(children), config: false, case: None }
    }

    /// A leaf-list that only `<get>` shows.
    pub const fn state_leaf_list(name: &'static str, module: &'static Module, ty: Type) -> Self {
        Self { name, module, kind: Kind::LeafList(ty), config: false, case: None }
    }

    /// The same, in a case of a choice.
    #[must_use]
    pub const fn in_case(mut self, choice: &'static str, case: &'static str) -> Self {
        self.case = Some((choice, case));
        self
    }

    /// Whether both can't exist at once: they are in different cases of one choice.
    pub fn excludes(&self, other: &Definition) -> bool {
        match (self.case, other.case) {
            (Some((choice, case)), Some((other_choice, other_case))) => {
                choice == other_choice && case != other_case
            }
            _ => false,
        }
    }

    /// A list whose first `keys` children are its keys.
    pub const fn list(
        name: &'static str,
        module: &'static Module,
        keys: usize,
        children: &'static [Definition],
    ) -> Self {
        Self { name, module, kind: Kind::List { keys, children }, config: true, case: None }
    }

    /// A leaf.
    pub const fn leaf(name: &'static str, module: &'static Module, ty: Type) -> Self {
        Self { name, module, kind: Kind::Leaf(ty), config: true, case: None }
    }

    /// A leaf-list.
    pub const fn leaf_list(name: &'static str, module: &'static Module, ty: Type) -> Self {
        Self { name, module, kind: Kind::LeafList(ty), config: true, case: None }
    }

    /// A leaf that only `<get>` shows.
    pub const fn state_leaf(name: &'static str, module: &'static Module, ty: Type) -> Self {
        Self { name, module, kind: Kind::Leaf(ty), config: false, case: None }
    }

    /// The `state` beside a `config` that has the same children.
    pub const fn mirror(module: &'static Module, children: &'static [Definition]) -> Self {
        Self { name: "state", module, kind: Kind::Mirror(children), config: false, case: None }
    }

    /// Its children; none for leaves.
    pub fn children(&self) -> &'static [Definition] {
        match self.kind {
            Kind::Container(children)
            | Kind::Presence(children)
            | Kind::List { children, .. }
            | Kind::Mirror(children) => children,
            Kind::Leaf(_) | Kind::LeafList(_) => &[],
        }
    }

    /// The definitions of its keys; none unless it is a list.
    pub fn keys(&self) -> &'static [Definition] {
        match self.kind {
            Kind::List { keys, children } => &children[..keys],
            _ => &[],
        }
    }
}

/// The child `{namespace}name` and its position; an empty namespace stands for any.
pub fn find(
    definitions: &'static [Definition],
    namespace: &str,
    name: &str,
) -> Option<(usize, &'static Definition)> {
    definitions
        .iter()
        .enumerate()
        .find(|(_, d)| d.name == name && (namespace.is_empty() || d.module.namespace == namespace))
}

/// The position of a child by its name alone, for code that knows the schema.
///
/// # Panics
/// When there is none: the code and the table disagree.
pub fn position(definitions: &'static [Definition], name: &str) -> usize {
    match definitions.iter().position(|d| d.name == name) {
        Some(at) => at,
        None => panic!("the schema has no {name} here"),
    }
}
