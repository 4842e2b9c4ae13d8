//! Instance identifiers. A [`Path`] is a linked list on the stack; it is formatted only for an error.

use std::fmt::Write as _;

use crate::model::schema::{Definition, Definitions, Kind, Module, position};
use crate::model::value::Value;
use crate::netconf::xml::{push_attribute, push_text};

/// The path of a data node, linked to its parent.
#[derive(Debug, Clone, Copy)]
pub struct Path<'a> {
    parent: Option<&'a Path<'a>>,
    definition: &'static Definition,
    predicate: Predicate<'a>,
}

#[derive(Debug, Clone, Copy)]
enum Predicate<'a> {
    None,
    Keys(&'a [Value]),
    Value(&'a Value),
}

impl<'a> Path<'a> {
    /// A container or leaf below `parent`.
    pub fn node(parent: Option<&'a Path<'a>>, definition: &'static Definition) -> Self {
        Self { parent, definition, predicate: Predicate::None }
    }

    /// A list entry below `parent`.
    pub fn entry(parent: Option<&'a Path<'a>>, definition: &'static Definition, keys: &'a [Value]) -> Self {
        Self { parent, definition, predicate: Predicate::Keys(keys) }
    }

    /// One value of a leaf-list below `parent`.
    pub fn value(parent: Option<&'a Path<'a>>, definition: &'static Definition, value: &'a Value) -> Self {
        Self { parent, definition, predicate: Predicate::Value(value) }
    }

    /// The container or leaf `name` below this node.
    ///
    /// # Panics
    /// If the schema has no such child, which is a programming error.
    pub fn child(&self, name: &str) -> Path<'_> {
        Path::node(Some(self), &self.children()[position(self.children(), name)])
    }

    /// An entry of the list `name` below this node.
    ///
    /// # Panics
    /// If the schema has no such child, which is a programming error.
    pub fn child_entry<'b>(&'b self, name: &str, keys: &'b [Value]) -> Path<'b> {
        Path { predicate: Predicate::Keys(keys), ..self.child(name) }
    }

    /// The schema node.
    pub fn definition(&self) -> &'static Definition {
        self.definition
    }

    /// The child definitions of the node.
    pub fn children(&self) -> Definitions {
        self.definition.children()
    }

    /// Whether the node is a presence container.
    pub fn is_presence(&self) -> bool {
        matches!(self.definition.kind, Kind::Presence(_))
    }

    /// Formats the path.
    pub fn identifier(&self) -> InstanceIdentifier {
        let mut links = vec![self];
        while let Some(parent) = links.last().and_then(|step| step.parent) {
            links.push(parent);
        }
        let mut path = InstanceIdentifier { text: String::new(), modules: Vec::new(), steps: Vec::new() };
        for link in links.into_iter().rev() {
            let module = link.definition.module;
            if !path.modules.contains(&module) {
                path.modules.push(module);
            }
            // Writing to a String can't fail.
            let _ = write!(path.text, "/{}:{}", module.prefix, link.definition.name);
            let mut step = Step { definition: link.definition, values: Vec::new() };
            match link.predicate {
                Predicate::None => {}
                Predicate::Keys(keys) => {
                    for (key, value) in link.definition.keys().iter().zip(keys) {
                        let value = value.to_string();
                        let _ = write!(
                            path.text,
                            "[{}:{}={}]",
                            key.module.prefix,
                            key.name,
                            xpath_literal(&value)
                        );
                        step.values.push(value);
                    }
                }
                Predicate::Value(value) => {
                    let value = value.to_string();
                    let _ = write!(path.text, "[.={}]", xpath_literal(&value));
                    step.values.push(value);
                }
            }
            path.steps.push(step);
        }
        path
    }
}

/// An instance identifier: `/oc-if:interfaces/oc-if:interface[oc-if:name='Ethernet1']`.
#[derive(Debug, Clone)]
pub struct InstanceIdentifier {
    /// The XPath expression.
    pub text: String,
    /// The modules whose prefixes the expression uses.
    pub modules: Vec<&'static Module>,
    steps: Vec<Step>,
}

impl From<&Path<'_>> for InstanceIdentifier {
    fn from(path: &Path<'_>) -> Self {
        path.identifier()
    }
}

impl PartialEq for InstanceIdentifier {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text && self.modules == other.modules
    }
}

impl Eq for InstanceIdentifier {}

#[derive(Debug, Clone)]
struct Step {
    definition: &'static Definition,
    /// The keys of a list entry, or the value of a leaf-list entry.
    values: Vec<String>,
}

impl InstanceIdentifier {
    /// Appends the prefixes of the expression as attributes, `>`, and the expression as text.
    pub fn push_xpath(&self, out: &mut String) {
        for module in &self.modules {
            push_attribute(out, &format!("xmlns:{}", module.prefix), module.namespace);
        }
        out.push('>');
        push_text(out, &self.text);
    }

    /// Formats the path as Junos does: `[edit vlans v7]`, `[edit interfaces xe-0/0/1 unit 0]`.
    pub fn junos_path(&self) -> String {
        let mut out = String::from("[edit");
        // Junos omits the outermost container.
        for (above, step) in self.steps.iter().zip(&self.steps[1..]) {
            let name = step.definition.name;
            // Junos writes `vlans v7` for the entry `v7` of the list `vlan` in `vlans`.
            let omitted = !step.values.is_empty() && above.definition.name == format!("{name}s");
            for token in (!omitted).then_some(name).into_iter().chain(step.values.iter().map(String::as_str))
            {
                out.push(' ');
                out.push_str(token);
            }
        }
        out.push(']');
        out
    }

    /// Formats the path of the data resource (RFC 8040 section 3.5.3):
    /// `/openconfig-interfaces:interfaces/interface=Ethernet1`.
    pub fn resource_path(&self) -> String {
        let mut out = String::new();
        let mut module = None;
        for step in &self.steps {
            out.push('/');
            if module != Some(step.definition.module) {
                module = Some(step.definition.module);
                out.push_str(step.definition.module.name);
                out.push(':');
            }
            out.push_str(step.definition.name);
            for (at, value) in step.values.iter().enumerate() {
                out.push(if at == 0 { '=' } else { ',' });
                for byte in value.bytes() {
                    if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
                        out.push(char::from(byte));
                    } else {
                        let _ = write!(out, "%{byte:02X}");
                    }
                }
            }
        }
        out
    }

    /// The schema node of the last step.
    pub fn definition(&self) -> Option<&'static Definition> {
        self.steps.last().map(|step| step.definition)
    }
}

/// Formats an XPath string literal. XPath 1.0 has no escapes: text with both kinds of quotes loses the single ones.
fn xpath_literal(text: &str) -> String {
    match (text.contains('\''), text.contains('"')) {
        (false, _) => format!("'{text}'"),
        (true, false) => format!("\"{text}\""),
        (true, true) => format!("'{}'", text.replace('\'', "")),
    }
}
