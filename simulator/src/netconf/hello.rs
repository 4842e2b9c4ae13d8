//! The `<hello>` exchange (RFC 6241 section 8.1).

use std::fmt::Write as _;

use crate::dialect::Dialect;
use crate::netconf::framing::Framing;
use crate::netconf::push;
use crate::netconf::xml::{self, NETCONF, XmlError};
use crate::topology::{Capabilities, ConfirmedCommit};

const BASE_1_0: &str = "urn:ietf:params:netconf:base:1.0";
const BASE_1_1: &str = "urn:ietf:params:netconf:base:1.1";

/// The client's `<hello>` is invalid; the session ends.
#[derive(Debug, thiserror::Error)]
pub enum HelloError {
    /// The message is not valid XML.
    #[error(transparent)]
    Xml(#[from] XmlError),
    /// The message is not a `<hello>`.
    #[error("the first message is not a <hello>")]
    NotHello,
    /// It contains a session-id, which only a server may send.
    #[error("a client's <hello> must not contain a session-id")]
    SessionId,
    /// The peers have no base version in common.
    #[error("no common base version")]
    NoCommonBase,
}

/// Returns the capability URIs of a switch.
pub fn capabilities(capabilities: &Capabilities, dialect: &Dialect) -> Vec<String> {
    let mut uris = Vec::new();
    let mut add = |present: bool, uri: &str| {
        if present {
            uris.push(uri.to_owned());
        }
    };
    add(capabilities.base_1_0, BASE_1_0);
    add(capabilities.base_1_1, BASE_1_1);
    let capability = |name: &str| format!("urn:ietf:params:netconf:capability:{name}");
    add(capabilities.writable_running, &capability("writable-running:1.0"));
    add(capabilities.candidate, &capability("candidate:1.0"));
    match capabilities.confirmed_commit {
        ConfirmedCommit::None => {}
        ConfirmedCommit::V1_0 => add(true, &capability("confirmed-commit:1.0")),
        ConfirmedCommit::V1_1 => add(true, &capability("confirmed-commit:1.1")),
    }
    add(capabilities.rollback_on_error, &capability("rollback-on-error:1.0"));
    add(capabilities.validate && capabilities.base_1_0, &capability("validate:1.0"));
    add(capabilities.validate && capabilities.base_1_1, &capability("validate:1.1"));
    add(capabilities.startup, &capability("startup:1.0"));
    add(capabilities.notifications, &capability("notification:1.0"));
    add(capabilities.notifications, &capability("interleave:1.0"));
    if capabilities.yang_push {
        uris.extend(push::MODULES.iter().map(|uri| (*uri).to_owned()));
    }
    for module in dialect.modules {
        uris.push(format!("{}?module={}&revision={}", module.namespace, module.name, module.revision));
    }
    uris.extend(dialect.capability_uris.iter().map(|uri| (*uri).to_owned()));
    uris
}

/// Formats the `<hello>` of the server.
pub fn write(uris: &[String], session: u32) -> String {
    let mut out =
        format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<hello xmlns=\"{NETCONF}\"><capabilities>");
    for uri in uris {
        xml::push_element(&mut out, "capability", uri);
    }
    // Writing to a String can't fail.
    let _ = write!(out, "</capabilities><session-id>{session}</session-id></hello>");
    out
}

/// Parses the client's `<hello>` and returns the framing of the following messages.
pub fn read(message: &[u8], capabilities: &Capabilities) -> Result<Framing, HelloError> {
    let hello = xml::parse(message)?.root;
    if !hello.is(NETCONF, "hello") {
        return Err(HelloError::NotHello);
    }
    if hello.child(NETCONF, "session-id").is_some() {
        return Err(HelloError::SessionId);
    }
    let client_announces = |uri: &str| {
        hello.child(NETCONF, "capabilities").is_some_and(|list| {
            list.children.iter().any(|c| c.is(NETCONF, "capability") && c.text.trim() == uri)
        })
    };
    if capabilities.base_1_1 && client_announces(BASE_1_1) {
        Ok(Framing::Chunked)
    } else if capabilities.base_1_0 && client_announces(BASE_1_0) {
        Ok(Framing::EndOfMessage)
    } else {
        Err(HelloError::NoCommonBase)
    }
}
