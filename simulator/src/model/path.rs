//! Paths of instances, kept as a chain on the stack and written out only for an error.

use std::fmt::Write as _;

use crate::model::schema::{Definition, Module};
use crate::model::value::Value;

/// A place in a configuration, linked to its parent.
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

    /// Written out.
    pub fn instance(&self) -> InstancePath {
        let mut steps = vec![self];
        while let Some(parent) = steps.last().and_then(|step| step.parent) {
            steps.push(parent);
        }
        let mut path = InstancePath { text: String::new(), modules: Vec::new() };
        for step in steps.into_iter().rev() {
            let module = step.definition.module;
            if !path.modules.contains(&module) {
                path.modules.push(module);
            }
            // Writing to a String can't fail.
            let _ = write!(path.text, "/{}:{}", module.prefix, step.definition.name);
            match step.predicate {
                Predicate::None => {}
                Predicate::Keys(keys) => {
                    for (key, value) in step.definition.keys().iter().zip(keys) {
                        let _ = write!(
                            path.text,
                            "[{}:{}={}]",
                            key.module.prefix,
                            key.name,
                            literal(&value.to_string())
                        );
                    }
                }
                Predicate::Value(value) => {
                    let _ = write!(path.text, "[.={}]", literal(&value.to_string()));
                }
            }
        }
        path
    }
}

/// An absolute XPath of an instance: `/oc-if:interfaces/oc-if:interface[oc-if:name='Ethernet1']`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstancePath {
    /// The expression.
    pub text: String,
    /// The modules whose prefixes it uses.
    pub modules: Vec<&'static Module>,
}

/// An XPath string literal. XPath 1.0 knows no escapes: text with both quotes loses the single ones.
fn literal(text: &str) -> String {
    match (text.contains('\''), text.contains('"')) {
        (false, _) => format!("'{text}'"),
        (true, false) => format!("\"{text}\""),
        (true, true) => format!("'{}'", text.replace('\'', "")),
    }
}
