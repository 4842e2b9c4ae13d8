//! Streams over XML: elements as paths of local names, without a tree in memory.

use std::borrow::Cow;

use crate::text::{LONGEST_EVENT, Text, excerpt};
use eno_sbi::TooLarge;
use quick_xml::escape::{partial_escape, resolve_predefined_entity};
use quick_xml::events::{BytesRef, BytesStart, Event};
use quick_xml::name::ResolveResult;
use quick_xml::reader::NsReader;

/// The namespace of NETCONF's own elements (RFC 6241).
pub(crate) const NETCONF: &str = "urn:ietf:params:xml:ns:netconf:base:1.0";

/// Text that is not read to its end.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum XmlError {
    /// It is not well-formed XML.
    #[error("not well-formed XML: {0}")]
    Malformed(String),
    /// More would be kept of it than is allowed.
    #[error(transparent)]
    TooLarge(#[from] TooLarge),
}

impl From<quick_xml::Error> for XmlError {
    fn from(error: quick_xml::Error) -> Self {
        Self::malformed(&error.to_string())
    }
}

impl XmlError {
    fn malformed(reason: &str) -> Self {
        Self::Malformed(excerpt(reason, MAX_ERROR))
    }

    /// Its elements are nested too deeply.
    pub(crate) fn too_deep() -> Self {
        Self::malformed("its elements are nested too deeply")
    }
}

/// Maximum bytes of a tag with its attributes. Those of all open elements are kept.
const LONGEST_TAG: usize = 16 << 10;
/// Maximum depth of elements.
pub(crate) const MAX_DEPTH: usize = 256;
/// Maximum characters of the text of an error. It may have names of the document, and reaches statuses.
const MAX_ERROR: usize = 300;

/// The role of an element's namespace in [`walk`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// The element's name becomes part of the path.
    Known,
    /// The element is transparent: only its children are visited.
    Transparent,
    /// The element and its content are skipped.
    Foreign,
}

/// One step through a document.
#[derive(Debug)]
pub(crate) enum Step<'a> {
    /// An element begins; the path names it last.
    Enter(&'a str),
    /// An element ends, with the text since the last tag, trimmed: its content when it is a leaf.
    Leave(&'a str, &'a str),
}

/// Walks through `xml`. Paths are local names joined by `/`, without a leading one. An error of `visit` ends the walk.
pub(crate) fn walk(
    xml: &Text,
    scope: impl Fn(&str) -> Scope,
    visit: impl FnMut(Step<'_>) -> Result<(), TooLarge>,
) -> Result<(), XmlError> {
    walk_tags(xml, |element| scope(element.namespace), visit)
}

/// An element start, for the decision on its scope.
pub(crate) struct Element<'a> {
    /// Its namespace; empty where there is none.
    pub(crate) namespace: &'a str,
    /// The path of the element around it.
    pub(crate) within: &'a str,
    tag: &'a BytesStart<'a>,
}

impl Element<'_> {
    /// Its local name.
    pub(crate) fn name(&self) -> &str {
        self.tag.local_name().into_inner()
    }

    /// Whether an attribute with this local name has this value.
    pub(crate) fn has_attribute(&self, attribute: &str, value: &str) -> bool {
        // Without checks, which compare each attribute with all others.
        let mut attributes = self.tag.attributes();
        let mut attributes = attributes.with_checks(false).flatten();
        attributes.any(|own| own.key.local_name().into_inner() == attribute && own.value == value)
    }
}

/// Like [`walk`], with a decision by more than the namespace.
pub(crate) fn walk_tags(
    xml: &Text,
    scope: impl Fn(&Element<'_>) -> Scope,
    mut visit: impl FnMut(Step<'_>) -> Result<(), TooLarge>,
) -> Result<(), XmlError> {
    let mut reader = NsReader::from_reader(xml.reader());
    reader.config_mut().expand_empty_elements = true;
    reader.config_mut().allow_dangling_amp = true;
    let mut path = String::new();
    // For each open element the length of the path before it; `None`: a transparent element.
    let mut open: Vec<Option<usize>> = Vec::new();
    let mut skipped = 0_usize;
    let mut text = String::new();
    let mut buffer = Vec::new();
    loop {
        buffer.clear();
        reader.get_mut().next_event();
        let (namespace, event) = reader.read_resolved_event_into(&mut buffer)?;
        match event {
            Event::Start(_) if open.len() + skipped >= MAX_DEPTH => return Err(XmlError::too_deep()),
            Event::Start(tag) if tag.len() > LONGEST_TAG => {
                return Err(XmlError::malformed("a tag is longer than 16 KiB"));
            }
            Event::Start(_) if skipped > 0 => skipped += 1,
            Event::End(_) if skipped > 0 => skipped -= 1,
            Event::Start(tag) => {
                let name = tag.local_name().into_inner();
                let namespace = match namespace {
                    ResolveResult::Bound(namespace) => namespace.into_inner(),
                    // Some devices omit the namespace of their replies.
                    _ if is_envelope(open.len(), name) => NETCONF,
                    ResolveResult::Unbound | ResolveResult::Unknown(_) => "",
                };
                text.clear();
                match scope(&Element { namespace, within: &path, tag: &tag }) {
                    Scope::Foreign => skipped = 1,
                    Scope::Transparent => open.push(None),
                    Scope::Known => {
                        open.push(Some(path.len()));
                        if !path.is_empty() {
                            path.push('/');
                        }
                        path.push_str(name);
                        visit(Step::Enter(&path))?;
                    }
                }
            }
            Event::End(_) => {
                if let Some(Some(length)) = open.pop() {
                    visit(Step::Leave(&path, text.trim()))?;
                    path.truncate(length);
                }
                text.clear();
            }
            Event::Text(part) if skipped == 0 => push_characters(&mut text, &part.xml10_content()),
            Event::CData(part) if skipped == 0 => push_characters(&mut text, &part.xml10_content()),
            Event::GeneralRef(reference) if skipped == 0 => push_reference(&mut text, &reference),
            Event::DocType(_) => return Err(XmlError::malformed("a document type is not allowed")),
            Event::Eof => break,
            _ => {}
        }
        if text.len() > LONGEST_EVENT {
            return Err(XmlError::malformed("a text is longer than 1 MiB"));
        }
    }
    if open.is_empty() && skipped == 0 {
        Ok(())
    } else {
        Err(XmlError::malformed("it ends within an element"))
    }
}

/// Whether an element of this name, below so many others, is a part of a reply around its content.
fn is_envelope(depth: usize, name: &str) -> bool {
    matches!((depth, name), (0, "rpc-reply") | (1, "data"))
}

/// Appends characters. Those that XML forbids become U+FFFD.
pub(crate) fn push_characters(text: &mut String, more: &str) {
    if more.chars().all(is_character) {
        text.push_str(more);
    } else {
        text.extend(more.chars().map(or_replacement));
    }
}

/// Appends the character of a reference. An unknown entity, and a character that XML forbids, become U+FFFD: devices
/// write such references into descriptions.
pub(crate) fn push_reference(text: &mut String, reference: &BytesRef<'_>) {
    match reference.resolve_char_ref() {
        Ok(Some(character)) => text.push(or_replacement(character)),
        Ok(None) => text.push_str(resolve_predefined_entity(reference).unwrap_or("\u{fffd}")),
        Err(_) => text.push(char::REPLACEMENT_CHARACTER),
    }
}

fn or_replacement(c: char) -> char {
    if is_character(c) { c } else { char::REPLACEMENT_CHARACTER }
}

/// Escapes `text` as XML character data. `>` is escaped too, since `]]>]]>` would end a message of NETCONF 1.0.
/// Characters outside of XML become U+FFFD, so that such a name matches nothing.
pub(crate) fn escape(text: &str) -> Cow<'_, str> {
    if text.chars().all(is_character) {
        return partial_escape(text);
    }
    let text: String = text.chars().map(or_replacement).collect();
    Cow::Owned(partial_escape(&text).into_owned())
}

/// Char of XML 1.0 (section 2.2).
fn is_character(c: char) -> bool {
    match c {
        '\t' | '\n' | '\r' => true,
        '\u{fffe}' | '\u{ffff}' => false,
        _ => c >= ' ',
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(xml: &str) -> Result<Vec<String>, XmlError> {
        let mut observed = Vec::new();
        let scope = |namespace: &str| match namespace {
            "k" => Scope::Known,
            "t" => Scope::Transparent,
            _ => Scope::Foreign,
        };
        walk(&xml.into(), scope, |step| {
            observed.push(match step {
                Step::Enter(path) => format!("+{path}"),
                Step::Leave(path, text) => format!("-{path}={text}"),
            });
            Ok(())
        })?;
        Ok(observed)
    }

    #[test]
    fn elements_are_selected_by_namespace() {
        let xml = r#"<t:r xmlns:t="t"><a xmlns="k"><b> x&amp;y<![CDATA[<]]>&#65; </b><f:b xmlns:f="f"><b>no</b></f:b><c/></a></t:r>"#;
        assert_eq!(steps(xml).unwrap(), ["+a", "+a/b", "-a/b=x&y<A", "+a/c", "-a/c=", "-a="]);
    }

    /// Between two elements of ours.
    fn embedded(text: &str) -> String {
        format!("<a xmlns=\"k\"><b>{}</b><c/></a>", escape(text))
    }

    #[test]
    fn escaped_names_cannot_inject_xml() {
        let names = [
            "</b><c><d/></c><b>",
            "]]>]]><rpc xmlns=\"k\"><kill-session/></rpc>]]>]]>",
            "<![CDATA[</b>]]>",
            "&lt;&#60;&amp;",
            "<!-- --><?x?>",
            "a\0b\u{b}c\u{1f}\u{fffe}",
        ];
        for name in names {
            let xml = embedded(name);
            assert!(!xml.contains("]]>"), "{xml}");
            let expected = name.replace(['\0', '\u{b}', '\u{1f}', '\u{fffe}'], "\u{fffd}");
            assert_eq!(
                steps(&xml).unwrap(),
                ["+a", "+a/b", &format!("-a/b={expected}"), "+a/c", "-a/c=", "-a="]
            );
        }
    }

    proptest::proptest! {
        #[test]
        fn escaped_text_is_a_single_text_node(text in r"[\PC\x00-\x1f<>&\[\]'\x22!?/;#-]{0,40}") {
            let xml = embedded(&text);
            let steps = steps(&xml).unwrap();
            let names: Vec<_> = steps.iter().map(|step| step.split('=').next().unwrap_or_default()).collect();
            proptest::prop_assert_eq!(names, ["+a", "+a/b", "-a/b", "+a/c", "-a/c", "-a"]);
            proptest::prop_assert!(!escape(&text).contains(['<', '>']));
        }
    }

    #[test]
    fn malformed_xml_is_refused() {
        for bad in ["<a", "<a xmlns='k'>", "<a></b>", "<!DOCTYPE a><a/>"] {
            assert!(walk(&bad.into(), |_| Scope::Known, |_| Ok(())).is_err(), "{bad}");
        }
    }

    #[test]
    fn text_that_is_no_xml_text_is_read_with_replacements() {
        for (written, read) in [
            ("R&D", "R&D"),
            ("a & b", "a & b"),
            ("&", "&"),
            ("a&nbsp;b", "a\u{fffd}b"),
            ("a&#0;b", "a\u{fffd}b"),
            ("a&#xfffffff;b", "a\u{fffd}b"),
            ("a&#xd800;b", "a\u{fffd}b"),
            ("a&#;b", "a\u{fffd}b"),
            ("a\u{1}\u{1b}b", "a\u{fffd}\u{fffd}b"),
            ("<![CDATA[\u{8}]]>", "\u{fffd}"),
        ] {
            let xml = format!("<a xmlns='k'>{written}</a>");
            assert_eq!(steps(&xml).unwrap(), ["+a", &format!("-a={read}")], "{written}");
        }
    }

    #[test]
    fn reply_without_namespace_is_transparent() {
        let scope = |namespace: &str| match namespace {
            NETCONF => Scope::Transparent,
            "k" => Scope::Known,
            _ => Scope::Foreign,
        };
        for xml in [
            "<rpc-reply><data><a xmlns='k'/><data/></data></rpc-reply>",
            "<nc:rpc-reply><nc:data><a xmlns='k'/></nc:data></nc:rpc-reply>",
        ] {
            let mut count = 0;
            let counted = walk(&xml.into(), scope, |_| {
                count += 1;
                Ok(())
            });
            counted.unwrap();
            assert_eq!(count, 2, "{xml}");
        }
    }
}
