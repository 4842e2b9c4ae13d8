//! Schema tables: the part of YANG (RFC 7950) that decides which nodes and values an edit may contain.
//!
//! A dialect is a `static` tree of [`Definition`]s. The checks of the dialect implement `when`, `must` and `leafref`
//! in code.

use crate::model::value::Type;

/// A YANG module. Its name is unique.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Module {
    /// Its name, such as `openconfig-vlan`.
    pub name: &'static str,
    /// Its prefix, such as `oc-vlan`.
    pub prefix: &'static str,
    /// Its XML namespace.
    pub namespace: &'static str,
    /// Its revision date.
    pub revision: &'static str,
}

/// An identity, the value of an identityref.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Identity {
    /// The module that defines it.
    pub module: &'static Module,
    /// Its name.
    pub name: &'static str,
}

/// The kind of a schema node.
#[derive(Debug, Clone, Copy)]
pub enum Kind {
    /// A non-presence container.
    Container(Definitions),
    /// A presence container (RFC 7950 section 7.5.1).
    Presence(Definitions),
    /// A list; the first `keys` of its children are its keys, in order.
    List {
        /// Number of keys.
        keys: usize,
        /// Its children, keys first.
        children: Definitions,
    },
    /// A leaf.
    Leaf(Type),
    /// A leaf-list ordered by the system.
    LeafList(Type),
    /// The OpenConfig `state` container, whose values mirror the sibling `config`. The definition of `config`
    /// precedes it.
    Mirror(Definitions),
}

/// Sibling schema nodes. Data is stored by their positions.
pub type Definitions = &'static [Definition];

/// One schema node.
#[derive(Debug, Clone, Copy)]
pub struct Definition {
    /// Its name.
    pub name: &'static str,
    /// The module that defines it and determines its namespace.
    pub module: &'static Module,
    /// Its kind, with the children or the type.
    pub kind: Kind,
    /// Whether it is configuration; state data appears in `<get>` only.
    pub config: bool,
    /// Its `choice` and `case`. Only one case of a choice can exist at a time.
    pub case: Option<(&'static str, &'static str)>,
}

impl Definition {
    /// A container.
    pub const fn container(name: &'static str, module: &'static Module, children: Definitions) -> Self {
        Self { name, module, kind: Kind::Container(children), config: true, case: None }
    }

    /// A presence container.
    pub const fn presence(name: &'static str, module: &'static Module, children: Definitions) -> Self {
        Self { name, module, kind: Kind::Presence(children), config: true, case: None }
    }

    /// A leaf-list of state data.
    pub const fn state_leaf_list(name: &'static str, module: &'static Module, ty: Type) -> Self {
        Self { name, module, kind: Kind::LeafList(ty), config: false, case: None }
    }

    /// Puts the node into a case of a choice.
    #[must_use]
    pub const fn in_case(mut self, choice: &'static str, case: &'static str) -> Self {
        self.case = Some((choice, case));
        self
    }

    /// Makes the node, with all that it contains, state data.
    #[must_use]
    pub const fn state_data(mut self) -> Self {
        self.config = false;
        self
    }

    /// Whether both nodes are in different cases of one choice, and so can't exist together.
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
        children: Definitions,
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

    /// A leaf of state data.
    pub const fn state_leaf(name: &'static str, module: &'static Module, ty: Type) -> Self {
        Self { name, module, kind: Kind::Leaf(ty), config: false, case: None }
    }

    /// The `state` container beside a `config` container with the same children.
    pub const fn mirror(module: &'static Module, children: Definitions) -> Self {
        Self { name: "state", module, kind: Kind::Mirror(children), config: false, case: None }
    }

    /// The last child of a list that is ordered by the user (RFC 7950 section 7.7.1): the place of an entry. It has no
    /// name, so no edit and no filter can name it, and it is not written.
    pub const fn place(module: &'static Module) -> Self {
        Self::leaf("", module, Type::Uint(0, u64::MAX))
    }

    /// Whether it is [`Definition::place`].
    pub fn is_place(&self) -> bool {
        self.name.is_empty()
    }

    /// The child definitions; none for leaves.
    pub fn children(&self) -> Definitions {
        match self.kind {
            Kind::Container(children)
            | Kind::Presence(children)
            | Kind::List { children, .. }
            | Kind::Mirror(children) => children,
            Kind::Leaf(_) | Kind::LeafList(_) => &[],
        }
    }

    /// The definitions of the keys; none unless it is a list.
    pub fn keys(&self) -> Definitions {
        match self.kind {
            Kind::List { keys, children } => &children[..keys],
            _ => &[],
        }
    }
}

/// The position of [`Definition::place`] in an entry of a list that is ordered by the user.
pub fn place(definitions: Definitions) -> Option<usize> {
    definitions.last().filter(|last| last.is_place()).map(|_| definitions.len() - 1)
}

/// Finds the child `{namespace}name` and its position. An empty namespace matches any.
pub fn find(definitions: Definitions, namespace: &str, name: &str) -> Option<(usize, &'static Definition)> {
    definitions
        .iter()
        .enumerate()
        .find(|(_, d)| d.name == name && (namespace.is_empty() || d.module.namespace == namespace))
}

/// Returns the position of a child by its name.
///
/// # Panics
/// If the schema has no such child, which is a programming error.
pub fn position(definitions: Definitions, name: &str) -> usize {
    match definitions.iter().position(|d| d.name == name) {
        Some(at) => at,
        None => panic!("the schema has no {name} here"),
    }
}
