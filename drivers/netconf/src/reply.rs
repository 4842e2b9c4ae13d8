//! `<rpc-reply>`, `<rpc-error>` and `<notification>`.

use std::fmt;

use crate::text::Text;
use crate::xml::{NETCONF, Scope, Step, XmlError, walk};

const NOTIFICATION: &str = "urn:ietf:params:xml:ns:netconf:notification:1.0";

/// One `<rpc-error>` of severity error (RFC 6241 section 4.3).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RpcError {
    /// `error-tag`, such as `lock-denied`.
    pub tag: String,
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

    /// A leaf of `error-info`.
    pub fn info(&self, name: &str) -> Option<&str> {
        self.info.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_str())
    }
}

impl fmt::Display for RpcError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.tag)?;
        if let Some(message) = &self.message {
            write!(f, ": {message}")?;
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

/// Reads only the root element.
pub(crate) fn classify(xml: &Text) -> Option<Message> {
    use quick_xml::events::Event;
    use quick_xml::name::ResolveResult;
    let mut reader = quick_xml::reader::NsReader::from_reader(xml.reader());
    let mut buffer = Vec::new();
    loop {
        buffer.clear();
        match reader.read_resolved_event_into(&mut buffer).ok()? {
            (ResolveResult::Bound(namespace), Event::Start(tag) | Event::Empty(tag)) => {
                return match (namespace.into_inner(), tag.local_name().into_inner()) {
                    (NETCONF, "rpc-reply") => {
                        let id = tag.try_get_attribute("message-id").ok().flatten();
                        Some(Message::Reply(id.and_then(|id| id.value.trim().parse().ok())))
                    }
                    (NOTIFICATION, "notification") => Some(Message::Notification),
                    _ => None,
                };
            }
            (_, Event::Start(_) | Event::Empty(_) | Event::Eof) => return None,
            _ => {}
        }
    }
}

/// All errors of a reply, without warnings.
pub(crate) fn errors(xml: &Text) -> Result<Vec<RpcError>, XmlError> {
    if !xml.contains("rpc-error") {
        return Ok(Vec::new());
    }
    let mut errors = Vec::new();
    let mut error = RpcError::default();
    let mut warning = false;
    let mut data = 0_usize;
    walk(
        xml,
        |_| Scope::Known,
        |step| match step {
            Step::Enter("rpc-reply/data") => data += 1,
            Step::Leave("rpc-reply/data", _) => data -= 1,
            _ if data > 0 => {}
            Step::Enter("rpc-reply/rpc-error") => (error, warning) = (RpcError::default(), false),
            Step::Enter(_) => {}
            Step::Leave("rpc-reply/rpc-error", _) if warning => {}
            Step::Leave("rpc-reply/rpc-error", _) => errors.push(std::mem::take(&mut error)),
            Step::Leave(path, text) => match path.strip_prefix("rpc-reply/rpc-error/") {
                Some("error-tag") => text.clone_into(&mut error.tag),
                Some("error-severity") => warning = text == "warning",
                Some("error-path") => error.path = Some(text.to_owned()),
                Some("error-message") => error.message = Some(text.to_owned()),
                Some(info) if info.starts_with("error-info/") && !text.is_empty() => {
                    let name = info.rsplit('/').next().unwrap_or(info);
                    error.info.push((name.to_owned(), text.to_owned()));
                }
                _ => {}
            },
        },
    )?;
    Ok(errors)
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

    #[test]
    fn error_words_in_data_are_not_errors() {
        let xml = "<rpc-reply xmlns='urn:ietf:params:xml:ns:netconf:base:1.0' message-id='1'><data><rpc-error/></data></rpc-reply>";
        assert_eq!(errors(&xml.into()), Ok(vec![]));
    }

    #[test]
    fn notification_is_distinguished_from_reply() {
        let xml = "<notification xmlns='urn:ietf:params:xml:ns:netconf:notification:1.0'><eventTime/></notification>";
        assert_eq!(classify(&xml.into()), Some(Message::Notification));
        assert_eq!(classify(&"<rpc-reply/>".into()), None);
        assert_eq!(classify(&"garbage".into()), None);
    }
}
