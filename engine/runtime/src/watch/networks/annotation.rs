//! Reads an annotation as Multus does (`parsePodNetworkAnnotation` in its `pkg/k8sclient`).

use serde::de::IgnoredAny;

use super::Names;
use super::element::{Element, Fields, Unread};

/// Maximum length of an interface's name in bytes.
const MAX_INTERFACE_LEN: usize = 15;

/// What Multus makes of an annotation.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It takes it.
    Accepted {
        /// The named NADs.
        names: Names,
        /// How many elements the annotation has.
        elements: usize,
    },
    /// It refuses it, and with it the pod.
    Refused,
    /// It may take it, but this reader can't read it. With the reason.
    Unclear(String),
}

/// Reads an annotation. A name without a namespace is in `default`.
pub(super) fn read(text: &str, default: &str) -> Verdict {
    if text.is_empty() {
        return Verdict::Refused;
    }
    let mut names = Names::default();
    let mut elements = 0;
    if text.contains(['[', '{', '"']) {
        let list: Vec<Option<Fields<'_>>> = match serde_json::from_str(text) {
            Ok(list) => list,
            Err(error) => match Unread::of(&error) {
                Unread::Unclear(why) if serde_json::from_str::<IgnoredAny>(text).is_ok() => {
                    return Verdict::Unclear(why);
                }
                Unread::Unclear(_) | Unread::Refused => return Verdict::Refused,
            },
        };
        for fields in list {
            // Multus panics at null, and the pod does not start.
            let Some(fields) = fields else { return Verdict::Refused };
            match Element::read(&fields) {
                Ok(Element { namespace, name }) => {
                    names.add(if namespace.is_empty() { default } else { &namespace }, &name);
                }
                Err(Unread::Refused) => return Verdict::Refused,
                Err(Unread::Unclear(why)) => return Verdict::Unclear(why),
            }
            elements += 1;
        }
    } else {
        for item in text.split(',') {
            let Some((namespace, name)) = short_form(item.trim()) else { return Verdict::Refused };
            names.add(if namespace.is_empty() { default } else { namespace }, name);
            elements += 1;
        }
    }
    Verdict::Accepted { names, elements }
}

/// Namespace and name of `[<namespace>/]<name>[@<interface>]`; `None`: Multus refuses it.
fn short_form(item: &str) -> Option<(&str, &str)> {
    let (namespace, rest) = item.split_once('/').unwrap_or(("", item));
    let (name, interface) = rest.split_once('@').unwrap_or((rest, ""));
    let (namespace, name, interface) = (namespace.trim(), name.trim(), interface.trim());
    let is_interface = interface.len() <= MAX_INTERFACE_LEN
        && !interface.contains(['@', '/', ' ', '\t', '\n', '\u{b}', '\u{c}', '\r']);
    (is_label(namespace) && is_label(name) && is_interface).then_some((namespace, name))
}

/// True for nothing, and for letters of a to z, digits and inner hyphens.
fn is_label(text: &str) -> bool {
    text.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-'))
        && !text.starts_with('-')
        && !text.ends_with('-')
}
