//! The state of BGP sessions: the state leaves of srl_nokia-bgp.

use std::sync::Arc;

use super::bgp::{BGP, FAMILY, NEIGHBOR};
use super::{INSTANCE, ROOTS};
use crate::bgp_sessions::{BgpSession, BgpState, Notification, Sessions};
use crate::dialect::accessors::{modify, set_below, text_value};
use crate::model::schema::position;
use crate::model::tree::{Container, Key, Node};
use crate::model::value::{IdentityRef, Type, Value};

/// `last-notification-error-code`, from 1 on.
const CODES: [&str; 6] = [
    "Message Header Error",
    "Open Message Error",
    "Update Message Error",
    "Hold Timer Error",
    "Finite State Machine Error",
    "Cease",
];

/// `last-notification-error-subcode` of some codes, from 1 on.
fn subcodes(code: u8) -> &'static [&'static str] {
    match code {
        1 => &["Connection Not Synchronized", "Bad Message Length", "Bad Message Type"],
        2 => &[
            "Unsupported Version Number",
            "Bad Peer As",
            "Bad BGP Identifier",
            "Unsupported Optional Parameter",
            "Unspecific",
            "Unacceptable Hold Time",
            "Unsupported Capability",
        ],
        3 => &[
            "Malformed Attribute List",
            "Unrecognized Well-known Attribute",
            "Missing Well-known Attribute",
            "Attribute Flags Error",
            "Attribute Length Error",
            "Invalid ORIGIN Attribute",
            "Unspecific",
            "Invalid NEXT_HOP Attribute",
            "Optional Attribute Error",
            "Invalid Network Field",
            "Malformed AS_PATH",
        ],
        6 => &[
            "Maximum Number of Prefixes Reached",
            "Administrative Shutdown",
            "Peer De-configured",
            "Administrative Reset",
            "Connection Rejected",
            "Other Configuration Change",
            "Connection Collision Resolution",
            "Out of Resources",
            "Hard Reset",
        ],
        _ => &[],
    }
}

fn numbered(names: &[&'static str], number: u8) -> Option<&'static str> {
    names.get(usize::from(number.checked_sub(1)?)).copied()
}

/// Adds the sessions to the network instances of their VRFs.
pub(super) fn add(data: &mut Container, sessions: &Sessions) {
    data.modify_list(position(ROOTS, "network-instance"), |instances| {
        for (key, instance) in instances.iter_mut() {
            let name = key.first().and_then(Value::text).unwrap_or_default();
            let Some(sessions) = sessions.get(name).filter(|sessions| !sessions.is_empty()) else { continue };
            modify(Arc::make_mut(instance), INSTANCE, &["protocols"], |protocols, definitions| {
                protocols.modify_presence(position(definitions, "bgp"), |bgp| {
                    bgp.modify_list(position(BGP, "neighbor"), |neighbors| {
                        for session in sessions {
                            // The key as it is written in the configuration.
                            let is_same = |key: &&Key| {
                                key[0].text().is_some_and(|text| text.parse() == Ok(session.address))
                            };
                            let known = neighbors.keys().find(is_same).cloned();
                            let key =
                                known.unwrap_or_else(|| [text_value(&session.address.to_string())].into());
                            let neighbor = neighbors.entry(key.clone()).or_default();
                            add_session(Arc::make_mut(neighbor), &key[0], session);
                        }
                    });
                });
            });
        }
    });
}

fn add_session(neighbor: &mut Container, address: &Value, session: &BgpSession) {
    let mut set = |path: &[&str], value: Value| set_below(neighbor, NEIGHBOR, path, value);
    set(&["peer-address"], address.clone());
    if session.dynamic {
        if let Some(group) = &session.group {
            set(&["peer-group"], text_value(group));
        }
        if let Some(peer_as) = session.peer_as {
            set(&["peer-as"], Value::Uint(peer_as.into()));
        }
    }
    set(&["dynamic-neighbor"], Value::Keyword(if session.dynamic { "true" } else { "false" }));
    let state = match session.state {
        BgpState::Idle => "idle",
        BgpState::Connect => "connect",
        BgpState::Active => "active",
        BgpState::OpenSent => "opensent",
        BgpState::OpenConfirm => "openconfirm",
        BgpState::Established => "established",
    };
    set(&["session-state"], Value::Keyword(state));
    let is_up = session.state == BgpState::Established;
    if is_up {
        set(&["timers", "negotiated-hold-time"], Value::Uint(session.hold_time.into()));
        set(&["timers", "negotiated-keepalive-interval"], Value::Uint(session.keepalive_time.into()));
    }
    if let Some(id) = session.ids[1] {
        set(&["peer-router-id"], text_value(&id.to_string()));
    }
    if let Some(time) = session.changed.and_then(timestamp) {
        set(&["last-established"], time);
    }
    set(&["established-transitions"], Value::Uint(session.established));
    for (name, messages, is_received) in
        [("sent-messages", session.sent, false), ("received-messages", session.received, true)]
    {
        set(&[name, "total-updates"], Value::Uint(messages.updates));
        set(&[name, "total-messages"], Value::Uint(messages.all));
        set(&[name, "total-notifications"], Value::Uint(messages.notifications));
        if let Some(last) = session.last_notification.filter(|last| last.received == is_received) {
            for (leaf, value) in notification(last) {
                set(&[name, leaf], value);
            }
        }
    }
    let families = [("ipv4-unicast", session.prefixes[0]), ("ipv6-unicast", session.prefixes[1])];
    for (name, prefixes) in families {
        let Some(prefixes) = prefixes else { continue };
        let Type::Identity(names) = super::bgp::AFI_SAFI else { continue };
        let Some(identity) = names.iter().find(|identity| identity.name == name) else { continue };
        let key = Value::Identity(IdentityRef(identity));
        neighbor.modify_list(position(NEIGHBOR, "afi-safi"), |families| {
            let family = Arc::make_mut(families.entry([key.clone()].into()).or_default());
            family.set(0, Node::Leaf(key));
            let mut set = |leaf, value| set_below(family, FAMILY, &[leaf], value);
            set("oper-state", Value::Keyword(if is_up { "up" } else { "down" }));
            for (leaf, number) in [
                ("received-routes", prefixes.accepted),
                ("sent-routes", prefixes.sent),
                ("active-routes", prefixes.accepted),
            ] {
                set(leaf, Value::Uint(number));
            }
        });
    }
}

fn notification(last: Notification) -> Vec<(&'static str, Value)> {
    let code = numbered(&CODES, last.code);
    let subcode = numbered(subcodes(last.code), last.subcode).or(code.map(|_| "Unspecific"));
    [
        timestamp(last.at).map(|time| ("last-notification-time", time)),
        code.map(|code| ("last-notification-error-code", text_value(code))),
        subcode.map(|subcode| ("last-notification-error-subcode", text_value(subcode))),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// `date-and-time-delta`: a time of RFC 3339.
fn timestamp(seconds: u64) -> Option<Value> {
    let time = jiff::Timestamp::from_second(i64::try_from(seconds).ok()?).ok()?;
    Some(text_value(&time.strftime("%Y-%m-%dT%H:%M:%S.000Z").to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notifications_have_the_names_of_the_model() {
        let names = |code, subcode| {
            let last = Notification { code, subcode, received: false, at: 1_700_000_000 };
            notification(last).into_iter().map(|(_, value)| value.to_string()).collect::<Vec<_>>()
        };
        let time = "2023-11-14T22:13:20.000Z";
        assert_eq!(names(2, 2), [time, "Open Message Error", "Bad Peer As"]);
        assert_eq!(names(6, 1), [time, "Cease", "Maximum Number of Prefixes Reached"]);
        assert_eq!(names(4, 0), [time, "Hold Timer Error", "Unspecific"]);
        assert_eq!(names(9, 1), [time]);
    }
}
