//! Notifications (RFC 5277) with the events of RFC 6470.

use std::fmt::Write as _;

use crate::datastores::SessionId;
use crate::model::path::InstanceIdentifier;
use crate::model::tree::Change;
use crate::netconf::rpc::NOTIFICATION;
use crate::netconf::xml::push_element;

const EVENTS: &str = "urn:ietf:params:xml:ns:yang:ietf-netconf-notifications";

/// An event of the stream NETCONF.
#[derive(Debug)]
pub enum Event {
    /// `netconf-config-change` of running.
    ConfigChange(Vec<(InstanceIdentifier, Change)>),
    /// `netconf-session-start`.
    SessionStart,
    /// `netconf-session-end`.
    SessionEnd,
    /// `netconf-confirmed-commit`: start, cancel, timeout, extend or complete.
    Confirm(&'static str),
}

/// The originator of an event.
#[derive(Debug)]
pub enum Origin {
    /// A NETCONF session.
    Session {
        /// Its number.
        id: SessionId,
        /// Its user.
        username: String,
        /// Its address.
        peer: String,
    },
    /// The switch, or an operator at its console.
    Server,
}

/// Formats the `<notification>` message.
pub fn write(event: &Event, origin: &Origin) -> String {
    let name = match event {
        Event::ConfigChange(_) => "netconf-config-change",
        Event::SessionStart => "netconf-session-start",
        Event::SessionEnd => "netconf-session-end",
        Event::Confirm(_) => "netconf-confirmed-commit",
    };
    let mut out = format!(
        "<notification xmlns=\"{NOTIFICATION}\"><eventTime>{}</eventTime><{name} xmlns=\"{EVENTS}\">",
        jiff::Timestamp::now()
    );
    match event {
        Event::ConfigChange(edits) => {
            out.push_str("<changed-by>");
            write_origin(origin, &mut out, true);
            out.push_str("</changed-by><datastore>running</datastore>");
            for (path, change) in edits {
                out.push_str("<edit><target");
                path.push_xpath(&mut out);
                let operation: &str = change.into();
                // Writing to a String can't fail.
                let _ = write!(out, "</target><operation>{operation}</operation></edit>");
            }
        }
        Event::SessionStart => write_origin(origin, &mut out, false),
        Event::SessionEnd => {
            write_origin(origin, &mut out, false);
            out.push_str("<termination-reason>other</termination-reason>");
        }
        Event::Confirm(what) => {
            // RFC 6470: a timeout has no originator.
            if *what != "timeout" {
                write_origin(origin, &mut out, false);
            }
            let _ = write!(out, "<confirm-event>{what}</confirm-event>");
        }
    }
    let _ = write!(out, "</{name}></notification>");
    out
}

fn write_origin(origin: &Origin, out: &mut String, choice: bool) {
    match origin {
        Origin::Session { id, username, peer } => {
            push_element(out, "username", username);
            let _ = write!(out, "<session-id>{id}</session-id>");
            push_element(out, "source-host", peer);
        }
        Origin::Server if choice => out.push_str("<server/>"),
        Origin::Server => {}
    }
}
