//! `<rpc-reply>`, `<rpc-error>` and `<notification>`.

use std::fmt;

use quick_xml::events::Event;
use quick_xml::name::ResolveResult;
use quick_xml::reader::{NsReader, Reader};

use crate::text::{Text, excerpt};
use crate::xml::{MAX_DEPTH, NETCONF, XmlError, push_characters, push_reference};

const NOTIFICATION: &str = "urn:ietf:params:xml:ns:netconf:notification:1.0";
/// Maximum characters of a part of an error. The parts reach statuses.
const MAX_TEXT: usize = 600;
/// Bytes of a text that an excerpt is made of.
const LONGEST_TEXT: usize = 64 << 10;
/// Maximum errors of a reply, bytes of their texts, and leaves of one `error-info`.
const MAX_ERRORS: usize = 2000;
const MAX_BYTES: usize = 4 << 20;
const MAX_INFO: usize = 16;
/// Number of the last errors that a further one is compared with.
const COMPARED: usize = 8;

/// One `<rpc-error>` of severity error (RFC 6241 section 4.3). Its texts are excerpts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RpcError {
    /// `error-tag`, such as `lock-denied`; empty where the device sent none.
    pub tag: String,
    /// `error-app-tag`, such as `must-violation`.
    pub app_tag: Option<String>,
    /// `error-path`, as the device wrote it.
    pub path: Option<String>,
    /// `error-message`.
    pub message: Option<String>,
    /// The leaves of `error-info`: name and content.
    pub info: Vec<(String, String)>,
}

impl RpcError {
    /// The `error-path`, or else the first instance identifier with keys in `error-message`, where servers built on
    /// libyang put it.
    pub fn location(&self) -> Option<&str> {
        self.path.as_deref().or_else(|| instance_identifier(self.message.as_deref()?))
    }

    /// The bytes of its texts.
    fn bytes(&self) -> usize {
        let texts = [Some(&self.tag), self.app_tag.as_ref(), self.path.as_ref(), self.message.as_ref()];
        let info = self.info.iter().flat_map(|(name, value)| [name, value]);
        texts.into_iter().flatten().chain(info).map(String::len).sum()
    }

    /// A leaf of `error-info`.
    pub fn info(&self, name: &str) -> Option<&str> {
        self.info.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_str())
    }
}

impl fmt::Display for RpcError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.tag.as_str(), &self.message) {
            ("", None) => f.write_str("no reason")?,
            ("", Some(message)) => f.write_str(message)?,
            (tag, None) => f.write_str(tag)?,
            (tag, Some(message)) => write!(f, "{tag}: {message}")?,
        }
        if let Some(path) = &self.path {
            write!(f, " (at {path})")?;
        }
        let shown =
            self.info.iter().filter(|(name, _)| matches!(name.as_str(), "bad-element" | "bad-attribute"));
        for (name, value) in shown {
            write!(f, " ({name} {value})")?;
        }
        Ok(())
    }
}

/// The first word of the form `/a:b[c='d']/e`. The brackets may contain anything.
fn instance_identifier(text: &str) -> Option<&str> {
    let starts = text.char_indices().zip(std::iter::once(' ').chain(text.chars()));
    let starts =
        starts.filter(|((_, c), before)| *c == '/' && (before.is_whitespace() || "\"'(`:".contains(*before)));
    starts.into_iter().find_map(|((at, _), _)| {
        let word = &text[at..];
        let (mut quote, mut keys, mut inside) = (None, false, false);
        let end = word.find(|c: char| {
            match (quote, c) {
                (Some(open), c) if c == open => quote = None,
                (Some(_), _) => {}
                (None, '\'' | '"') if inside => quote = Some(c),
                (None, '[') => (inside, keys) = (true, true),
                (None, ']') => inside = false,
                (None, c) => return !inside && (c.is_whitespace() || "\"'`),;".contains(c)),
            }
            false
        });
        (keys && !inside).then(|| &word[..end.unwrap_or(word.len())])
    })
}

/// All errors of one reply, at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RpcErrors(pub Vec<RpcError>);

impl RpcErrors {
    /// The first error with this tag.
    pub fn tagged(&self, tag: &str) -> Option<&RpcError> {
        self.0.iter().find(|error| error.tag == tag)
    }
}

impl fmt::Display for RpcErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, error) in self.0.iter().take(3).enumerate() {
            write!(f, "{}{error}", if at > 0 { "; " } else { "" })?;
        }
        match self.0.len().checked_sub(3) {
            Some(more) if more > 0 => write!(f, "; and {more} more"),
            _ => Ok(()),
        }
    }
}

impl std::error::Error for RpcErrors {}

/// The kind of a message.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Message {
    /// The reply to the request of this id. A device that could not read the request may omit it.
    Reply(Option<u64>),
    /// An event.
    Notification,
}

/// Reads only the root element. Some devices omit the namespace of a reply.
pub(crate) fn classify(xml: &Text) -> Option<Message> {
    let mut reader = NsReader::from_reader(xml.reader());
    reader.config_mut().allow_dangling_amp = true;
    let mut buffer = Vec::new();
    loop {
        buffer.clear();
        reader.get_mut().next_event();
        let (namespace, event) = reader.read_resolved_event_into(&mut buffer).ok()?;
        let tag = match event {
            Event::Start(tag) | Event::Empty(tag) => tag,
            Event::Eof => return None,
            _ => continue,
        };
        let namespace = match namespace {
            ResolveResult::Bound(namespace) => namespace.into_inner(),
            ResolveResult::Unbound | ResolveResult::Unknown(_) => NETCONF,
        };
        return match (namespace, tag.local_name().into_inner()) {
            (NETCONF, "rpc-reply") => {
                let id = tag.try_get_attribute("message-id").ok().flatten();
                Some(Message::Reply(id.and_then(|id| id.value.trim().parse().ok())))
            }
            (NOTIFICATION, "notification") => Some(Message::Notification),
            _ => None,
        };
    }
}

/// All errors of a reply, without warnings. Devices nest them in elements of their own, and leave some of these
/// unclosed. So an `<rpc-error>` counts wherever it stands outside `<data>`, and the end of an element ends all
/// elements in it. Of a reply that can't be read to its end, the errors up to there are returned.
pub(crate) fn errors(xml: &Text) -> Result<Vec<RpcError>, XmlError> {
    if !xml.contains("rpc-error") {
        return Ok(Vec::new());
    }
    let mut reader = Reader::from_reader(xml.reader());
    let config = reader.config_mut();
    config.expand_empty_elements = true;
    config.allow_dangling_amp = true;
    config.allow_unmatched_ends = true;
    config.check_end_names = false;
    let mut errors = Errors::default();
    let mut text = String::new();
    let mut buffer = Vec::new();
    loop {
        buffer.clear();
        reader.get_mut().next_event();
        match reader.read_event_into(&mut buffer) {
            Ok(Event::Start(_)) if errors.open.len() >= MAX_DEPTH => {
                errors.finish();
                return if errors.found.is_empty() { Err(XmlError::too_deep()) } else { Ok(errors.found) };
            }
            Ok(Event::Start(tag)) => {
                text.clear();
                errors.enter(tag.local_name().into_inner());
            }
            Ok(Event::End(tag)) => {
                errors.leave(tag.local_name().into_inner(), text.trim());
                text.clear();
            }
            // The start of a text is enough for an excerpt.
            Ok(Event::Text(_) | Event::CData(_) | Event::GeneralRef(_)) if text.len() > LONGEST_TEXT => {}
            Ok(Event::Text(part)) => push_characters(&mut text, &part.xml10_content()),
            Ok(Event::CData(part)) => push_characters(&mut text, &part.xml10_content()),
            Ok(Event::GeneralRef(reference)) => push_reference(&mut text, &reference),
            Ok(Event::Eof) => break,
            Ok(_) => {}
            Err(error) => {
                errors.finish();
                return if errors.found.is_empty() { Err(error.into()) } else { Ok(errors.found) };
            }
        }
    }
    errors.finish();
    Ok(errors.found)
}

/// Collects the errors of a reply.
#[derive(Default)]
struct Errors {
    found: Vec<RpcError>,
    /// The bytes of their texts.
    bytes: usize,
    /// The local names of the open elements.
    open: Vec<String>,
    /// The open `<rpc-error>`: its place in `open`, its content, and whether it is a warning.
    current: Option<(usize, RpcError, bool)>,
}

impl Errors {
    fn enter(&mut self, name: &str) {
        let in_data = matches!(&*self.open, [reply, data, ..] if reply == "rpc-reply" && data == "data");
        if name == "rpc-error" && !in_data {
            self.finish();
            self.current = Some((self.open.len(), RpcError::default(), false));
        }
        self.open.push(name.to_owned());
    }

    /// An element ends, with the text since the last tag. Unclosed elements in it end with it.
    fn leave(&mut self, name: &str, text: &str) {
        let Some(at) = self.open.iter().rposition(|open| open == name) else { return };
        if let Some((start, error, warning)) = &mut self.current {
            if !text.is_empty() {
                set_leaf(error, warning, self.open.get(*start + 1..).unwrap_or_default(), text);
            }
            if at <= *start {
                self.finish();
            }
        }
        self.open.truncate(at);
    }

    /// The open error is complete.
    fn finish(&mut self) {
        let Some((_, error, false)) = self.current.take() else { return };
        // Several engines of one device report the same.
        let is_new = !self.found.iter().rev().take(COMPARED).any(|one| *one == error);
        let bytes = self.bytes + error.bytes();
        if self.found.len() < MAX_ERRORS && bytes < MAX_BYTES && is_new {
            self.bytes = bytes;
            self.found.push(error);
        }
    }
}

/// Sets the leaf of an error at this path.
fn set_leaf(error: &mut RpcError, warning: &mut bool, path: &[String], text: &str) {
    let short = || excerpt(text, MAX_TEXT);
    match path.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["error-tag"] => error.tag = short(),
        ["error-app-tag"] => error.app_tag = Some(short()),
        ["error-severity"] => *warning = text == "warning",
        ["error-path"] => error.path = Some(short()),
        ["error-message"] => error.message = Some(short()),
        ["error-info", .., name] if error.info.len() < MAX_INFO => {
            error.info.push((excerpt(name, MAX_TEXT), short()));
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_errors_are_kept() {
        let xml = r#"<?xml version="1.0"?><rpc-reply xmlns="urn:ietf:params:xml:ns:netconf:base:1.0" message-id="12">
            <rpc-error><error-type>application</error-type><error-tag>invalid-value</error-tag><error-severity>error</error-severity>
              <error-path xmlns:v="v">/v:vlan[v:vlan-id='5']</error-path><error-message xml:lang="en">no &lt;room&gt;</error-message>
              <error-info><bad-element>vlan</bad-element></error-info></rpc-error>
            <rpc-error><error-tag>x</error-tag><error-severity>warning</error-severity></rpc-error>
            <rpc-error><error-tag>lock-denied</error-tag><error-severity>error</error-severity><error-info><session-id>9</session-id></error-info></rpc-error>
            </rpc-reply>"#;
        assert_eq!(classify(&xml.into()), Some(Message::Reply(Some(12))));
        let errors = RpcErrors(errors(&xml.into()).unwrap());
        assert_eq!(errors.0.len(), 2);
        assert_eq!(errors.tagged("lock-denied").unwrap().info("session-id"), Some("9"));
        assert_eq!(
            errors.to_string(),
            "invalid-value: no <room> (at /v:vlan[v:vlan-id='5']) (bad-element vlan); lock-denied"
        );
    }

    #[test]
    fn error_path_in_message_is_parsed() {
        let location = |path: Option<&str>, message: &str| {
            let (path, message) = (path.map(str::to_owned), Some(message.to_owned()));
            RpcError { path, message, ..RpcError::default() }.location().map(str::to_owned)
        };
        let at = "/oc-if:interfaces/interface[name='Ethernet 1/1 (a)']/config";
        assert_eq!(location(None, &format!("Not satisfied. (path \"{at}\")")).as_deref(), Some(at));
        assert_eq!(
            location(None, &format!("no room on 1/2 for {at}: full")).as_deref(),
            Some(&*format!("{at}:"))
        );
        assert_eq!(location(None, "no room for /a:b[c=\"'\"]").as_deref(), Some("/a:b[c=\"'\"]"));
        assert_eq!(location(Some("/x"), at).as_deref(), Some("/x"));
        for none in ["", "Ethernet1/1[0] /", "see /etc/eno", "/a[b"] {
            assert_eq!(location(None, none), None, "{none}");
        }
    }

    /// Millions of elements that are never closed take neither memory nor time.
    #[test]
    fn deep_replies_are_not_read_to_their_end() {
        let error = "<rpc-error><error-message>no</error-message></rpc-error>";
        let deep = "<a>".repeat(2_000_000) + &"</b>".repeat(2_000_000);
        let read = |content: String| errors(&format!("<rpc-reply>{content}</rpc-reply>").as_str().into());
        assert!(read(format!("{deep}{error}")).is_err());
        assert_eq!(read(format!("{error}{deep}")).unwrap().len(), 1);
    }

    fn messages(content: &str) -> Vec<String> {
        let xml = format!("<rpc-reply xmlns='{NETCONF}' message-id='1'>{content}</rpc-reply>");
        errors(&xml.into()).unwrap().into_iter().filter_map(|error| error.message).collect()
    }

    #[test]
    fn nested_errors_are_found() {
        let error = |severity: &str, message: &str| {
            format!(
                "<rpc-error><error-severity>{severity}</error-severity><error-message>\n{message}\n</error-message>\
                 </rpc-error>"
            )
        };
        let (reserved, other, warning) =
            (error("error", "vlan-id 666 is reserved"), error("error", "no room"), error("warning", "old"));
        let engine = |name: &str, content: &str| {
            format!("<routing-engine><name>{name}</name>{content}</routing-engine>")
        };
        let unclosed = |name: &str, content: &str| format!("<routing-engine><name>{name}</name>{content}");
        for (content, expected) in [
            (
                format!("<commit-results>{}</commit-results>", engine("fpc0", &reserved)),
                &["vlan-id 666 is reserved"][..],
            ),
            (
                format!(
                    "<commit-results>{}{}</commit-results><ok/>",
                    engine("fpc0", &reserved),
                    engine("fpc1", &other)
                ),
                &["vlan-id 666 is reserved", "no room"],
            ),
            // Each engine reports the same.
            (
                format!(
                    "<commit-results>{}{}</commit-results>",
                    engine("fpc0", &reserved),
                    engine("fpc1", &reserved)
                ),
                &["vlan-id 666 is reserved"],
            ),
            (
                format!(
                    "<load-configuration-results>{other}<load-error-count>1</load-error-count></load-configuration-results>"
                ),
                &["no room"],
            ),
            (
                format!(
                    "<commit-results>{}</commit-results>",
                    engine("fpc0", &(warning.clone() + "<commit-success/>"))
                ),
                &[],
            ),
            (format!("<commit-results>{}</commit-results><ok/>", unclosed("fpc0", &warning)), &[]),
            (
                format!(
                    "<commit-results>{}{}</commit-results>",
                    unclosed("fpc0", &warning),
                    unclosed("fpc1", &reserved)
                ),
                &["vlan-id 666 is reserved"],
            ),
            (format!("<commit-results>{}", unclosed("fpc0", &reserved)), &["vlan-id 666 is reserved"]),
            ("<x><rpc-error><error-message>R&D: no &nbsp;way".to_owned(), &["R&D: no \u{fffd}way"]),
            (format!("{reserved}<a b=>< /c></d>"), &["vlan-id 666 is reserved"]),
        ] {
            assert_eq!(messages(&content), expected, "{content}");
        }
        // What is cut off in the middle of a tag.
        let cut = format!("<rpc-reply><commit-results>{reserved}<routing-engine");
        assert_eq!(errors(&cut.into()).unwrap().len(), 1);
    }

    #[test]
    fn texts_of_errors_are_bounded() {
        let long = "no\n\t room ".repeat(10_000);
        let found = errors(
            &format!(
                "<rpc-reply><rpc-error><error-tag>{long}</error-tag><error-path>{long}</error-path><error-message>{long}\
                 </error-message><error-info><bad-element>{long}</bad-element></error-info></rpc-error></rpc-reply>"
            )
            .into(),
        );
        let shown = RpcErrors(found.unwrap()).to_string();
        assert!(shown.len() < 3000 && shown.starts_with("no room no room"), "{}", shown.len());
        assert!(!shown.contains('\n'));
        let many = "<rpc-error/><rpc-error><error-tag>a</error-tag></rpc-error>".repeat(3000);
        assert_eq!(errors(&format!("<rpc-reply>{many}</rpc-reply>").into()).unwrap().len(), 2);
    }

    #[test]
    fn error_without_tag_is_shown_by_its_message() {
        let shown = |content: &str| {
            let xml = format!("<rpc-reply><rpc-error>{content}</rpc-error></rpc-reply>");
            RpcErrors(errors(&xml.into()).unwrap()).to_string()
        };
        assert_eq!(shown("<error-message>database locked by bob</error-message>"), "database locked by bob");
        assert_eq!(shown("<error-severity>error</error-severity>"), "no reason");
    }

    #[test]
    fn error_words_in_data_are_not_errors() {
        let xml = "<rpc-reply xmlns='urn:ietf:params:xml:ns:netconf:base:1.0' message-id='1'><data><rpc-error/></data></rpc-reply>";
        assert_eq!(errors(&xml.into()), Ok(vec![]));
    }

    #[test]
    fn notification_is_distinguished_from_reply() {
        let xml = "<notification xmlns='urn:ietf:params:xml:ns:netconf:notification:1.0'><eventTime/></notification>";
        assert_eq!(classify(&xml.into()), Some(Message::Notification));
        assert_eq!(classify(&"<rpc-reply message-id=' 4 '/>".into()), Some(Message::Reply(Some(4))));
        assert_eq!(classify(&"<rpc-reply xmlns='other'/>".into()), None);
        assert_eq!(classify(&"garbage".into()), None);
    }
}
