//! A small namespace-aware XML tree for NETCONF messages.
//!
//! Document type declarations are refused (RFC 6241 section 3), so entities can't expand. Nesting is limited.

use std::fmt::Write as _;
use std::sync::Arc;

use quick_xml::escape::resolve_predefined_entity;
use quick_xml::events::{BytesStart, Event};
use quick_xml::{Reader, XmlVersion};

/// The namespace of NETCONF's own elements and of the `operation` attribute.
pub const NETCONF: &str = "urn:ietf:params:xml:ns:netconf:base:1.0";
const XML_NAMESPACE: &str = "http://www.w3.org/XML/1998/namespace";
const MAX_DEPTH: usize = 64;

/// A message is not XML that NETCONF allows.
#[derive(Debug, thiserror::Error)]
pub enum XmlError {
    /// The bytes are not UTF-8.
    #[error("the message is not UTF-8")]
    Encoding(#[from] std::str::Utf8Error),
    /// The message is not well-formed.
    #[error("the message is not well-formed XML: {0}")]
    Syntax(#[from] quick_xml::Error),
    /// An attribute is malformed.
    #[error("the message is not well-formed XML: {0}")]
    Attribute(#[from] quick_xml::events::attributes::AttrError),
    /// A namespace prefix is not declared.
    #[error("the namespace prefix {0} is not declared")]
    Prefix(String),
    /// A character is not allowed in XML 1.0.
    #[error("the message contains a character that XML does not allow")]
    Character,
    /// An entity is not one of the five that XML predefines.
    #[error("the entity &{0}; is not defined")]
    Entity(String),
    /// The message has a document type declaration, which RFC 6241 forbids.
    #[error("a document type declaration is not allowed")]
    Doctype,
    /// Elements are nested too deeply.
    #[error("elements are nested more than {MAX_DEPTH} deep")]
    Depth,
    /// The message has no root element, several, or text outside of it.
    #[error("the message is not a single element")]
    Root,
}

/// The namespace prefixes in scope at an element. Children share the bindings of their parents.
#[derive(Debug, Clone, Default)]
struct Scope(Option<Arc<Binding>>);

#[derive(Debug)]
struct Binding {
    prefix: Box<str>,
    namespace: Arc<str>,
    outer: Scope,
}

impl Scope {
    fn bind(&self, prefix: &str, namespace: Arc<str>) -> Self {
        Self(Some(Arc::new(Binding { prefix: prefix.into(), namespace, outer: self.clone() })))
    }

    fn find(&self, prefix: &str) -> Option<Arc<str>> {
        let mut scope = self;
        while let Some(binding) = &scope.0 {
            if &*binding.prefix == prefix {
                return Some(Arc::clone(&binding.namespace));
            }
            scope = &binding.outer;
        }
        match prefix {
            "" => Some(Arc::from("")),
            "xml" => Some(Arc::from(XML_NAMESPACE)),
            _ => None,
        }
    }
}

/// An attribute that is not a namespace declaration.
#[derive(Debug, Clone)]
pub struct Attribute {
    /// Its namespace; empty for none.
    pub namespace: Arc<str>,
    /// Its local name.
    pub name: Box<str>,
    /// Its unescaped value.
    pub value: String,
}

/// One element with resolved names.
#[derive(Debug, Clone)]
pub struct Element {
    /// Its namespace; empty for none.
    pub namespace: Arc<str>,
    /// Its local name.
    pub name: Box<str>,
    /// Its attributes without namespace declarations.
    pub attributes: Vec<Attribute>,
    /// Child elements in order.
    pub children: Vec<Element>,
    /// Its concatenated character data, without that of its children.
    pub text: String,
    /// The namespace prefixes in scope.
    scope: Scope,
}

impl Element {
    /// Whether this is `{namespace}name`.
    pub fn is(&self, namespace: &str, name: &str) -> bool {
        &*self.name == name && &*self.namespace == namespace
    }

    /// The first child `{namespace}name`.
    pub fn child(&self, namespace: &str, name: &str) -> Option<&Element> {
        self.children.iter().find(|child| child.is(namespace, name))
    }

    /// The text of the first child `{namespace}name`, trimmed.
    pub fn child_text(&self, namespace: &str, name: &str) -> Option<&str> {
        self.child(namespace, name).map(|child| child.text.trim())
    }

    /// The attribute `{namespace}name`.
    pub fn attribute(&self, namespace: &str, name: &str) -> Option<&str> {
        self.attributes
            .iter()
            .find(|attribute| &*attribute.name == name && &*attribute.namespace == namespace)
            .map(|attribute| attribute.value.as_str())
    }

    /// The namespace of a prefix at this element, for values that are qualified names.
    pub fn namespace_of(&self, prefix: &str) -> Option<Arc<str>> {
        self.scope.find(prefix)
    }
}

/// A parsed message.
#[derive(Debug)]
pub struct Document {
    /// Its root element.
    pub root: Element,
    /// The attributes of the root except a default namespace, formatted for the reply.
    pub root_attributes: String,
}

/// Parses one message.
pub fn parse(message: &[u8]) -> Result<Document, XmlError> {
    let text = std::str::from_utf8(message)?;
    if text.chars().any(|c| !allowed(c)) {
        return Err(XmlError::Character);
    }
    let mut reader = Reader::from_str(text.trim_start());
    reader.config_mut().expand_empty_elements = true;
    let mut open: Vec<Element> = Vec::new();
    let mut root: Option<Element> = None;
    let mut root_attributes = String::new();
    loop {
        match reader.read_event()? {
            Event::Start(start) => {
                if open.is_empty() && root.is_some() {
                    return Err(XmlError::Root);
                }
                if open.len() == MAX_DEPTH {
                    return Err(XmlError::Depth);
                }
                if open.is_empty() {
                    root_attributes = repeatable_attributes(&start)?;
                }
                let scope = open.last().map(|e| e.scope.clone()).unwrap_or_default();
                open.push(element(&start, scope)?);
            }
            Event::End(_) => {
                let done = open.pop().ok_or(XmlError::Root)?;
                match open.last_mut() {
                    Some(parent) => parent.children.push(done),
                    None => root = Some(done),
                }
            }
            Event::Text(chars) => add_text(&mut open, &chars.xml10_content())?,
            Event::CData(chars) => add_text(&mut open, &chars.xml10_content())?,
            Event::GeneralRef(reference) => {
                let text = match reference.resolve_char_ref()? {
                    Some(c) if allowed(c) => c.to_string(),
                    Some(_) => return Err(XmlError::Character),
                    None => {
                        let name = reference.xml10_content();
                        resolve_predefined_entity(&name)
                            .ok_or_else(|| XmlError::Entity(name.to_string()))?
                            .to_owned()
                    }
                };
                add_text(&mut open, &text)?;
            }
            Event::DocType(_) => return Err(XmlError::Doctype),
            Event::Eof => break,
            Event::Empty(_) | Event::Comment(_) | Event::Decl(_) | Event::PI(_) => {}
        }
    }
    match root {
        Some(root) if open.is_empty() => Ok(Document { root, root_attributes }),
        _ => Err(XmlError::Root),
    }
}

fn element(start: &BytesStart<'_>, outer: Scope) -> Result<Element, XmlError> {
    let mut scope = outer;
    let mut plain = Vec::new();
    for attribute in start.attributes() {
        let attribute = attribute?;
        let value = attribute.normalized_value(XmlVersion::Implicit1_0)?;
        match attribute.key.0.split_once(':') {
            None if attribute.key.0 == "xmlns" => scope = scope.bind("", Arc::from(&*value)),
            Some(("xmlns", prefix)) => scope = scope.bind(prefix, Arc::from(&*value)),
            _ => plain.push((attribute.key.0, value.into_owned())),
        }
    }
    let resolve = |qualified: &str, default: bool| -> Result<(Arc<str>, Box<str>), XmlError> {
        let (prefix, local) = qualified.split_once(':').unwrap_or(("", qualified));
        if prefix.is_empty() && !default {
            return Ok((Arc::from(""), local.into()));
        }
        let namespace = scope.find(prefix).ok_or_else(|| XmlError::Prefix(prefix.to_owned()))?;
        Ok((namespace, local.into()))
    };
    let (namespace, name) = resolve(start.name().0, true)?;
    let attributes = plain
        .into_iter()
        .map(|(key, value)| {
            let (namespace, name) = resolve(key, false)?;
            Ok(Attribute { namespace, name, value })
        })
        .collect::<Result<_, XmlError>>()?;
    Ok(Element { namespace, name, attributes, children: Vec::new(), text: String::new(), scope })
}

fn repeatable_attributes(start: &BytesStart<'_>) -> Result<String, XmlError> {
    let mut written = String::new();
    for attribute in start.attributes() {
        let attribute = attribute?;
        if attribute.key.0 != "xmlns" {
            let value = attribute.normalized_value(XmlVersion::Implicit1_0)?;
            push_attribute(&mut written, attribute.key.0, &value);
        }
    }
    Ok(written)
}

fn add_text(open: &mut [Element], text: &str) -> Result<(), XmlError> {
    match open.last_mut() {
        Some(element) => element.text.push_str(text),
        None if text.trim().is_empty() => {}
        None => return Err(XmlError::Root),
    }
    Ok(())
}

fn allowed(c: char) -> bool {
    matches!(c, '\t' | '\n' | '\r' | ' '..='\u{fffd}' | '\u{10000}'..)
}

/// Appends text with `<`, `>` and `&` escaped.
pub fn push_text(out: &mut String, text: &str) {
    out.push_str(&quick_xml::escape::partial_escape(text));
}

/// Appends an element with text, in the default namespace.
pub fn push_element(out: &mut String, name: &str, text: &str) {
    // Writing to a String can't fail.
    let _ = write!(out, "<{name}>{}</{name}>", quick_xml::escape::partial_escape(text));
}

/// Appends ` name="value"`, escaped.
pub fn push_attribute(out: &mut String, name: &str, value: &str) {
    let value = quick_xml::escape::escape(value);
    let value = value.replace('\n', "&#10;").replace('\t', "&#9;").replace('\r', "&#13;");
    // Writing to a String can't fail.
    let _ = write!(out, " {name}=\"{value}\"");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parse_resolves_namespaces_of_any_prefix() {
        let doc = parse(
            br#"<?xml version="1.0"?><a:rpc xmlns:a="urn:a" xmlns="urn:d" a:op="x" id="1">
                <b><c xmlns="" xmlns:a="urn:other"><a:d>t&amp;&#65;<![CDATA[<]]></a:d></c></b></a:rpc>"#,
        )
        .expect("well-formed");
        assert!(doc.root.is("urn:a", "rpc"));
        assert_eq!(doc.root.attribute("urn:a", "op"), Some("x"));
        assert_eq!(doc.root.attribute("", "id"), Some("1"));
        let b = doc.root.child("urn:d", "b").expect("b");
        let c = b.child("", "c").expect("c");
        assert_eq!(c.child_text("urn:other", "d"), Some("t&A<"));
        assert_eq!(doc.root_attributes, r#" xmlns:a="urn:a" a:op="x" id="1""#);
    }

    #[test]
    fn parse_refuses_invalid_xml_without_panic() {
        let deep = "<a>".repeat(MAX_DEPTH + 1);
        let cases: &[&[u8]] = &[
            b"",
            b"text",
            b"<a>",
            b"</a>",
            b"<a></b>",
            b"<a/><b/>",
            b"<a/>text",
            b"<a x='1' x='2'/>",
            b"<p:a/>",
            b"<a>&nope;</a>",
            b"<a>&#0;</a>",
            b"<a>\x01</a>",
            b"<a>\xff</a>",
            b"<!DOCTYPE a [<!ENTITY b 'c'>]><a>&b;</a>",
            deep.as_bytes(),
        ];
        for case in cases {
            assert!(parse(case).is_err(), "{:?}", String::from_utf8_lossy(case));
        }
    }
}
