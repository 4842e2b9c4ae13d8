//! The state of BGP sessions, and the error codes of openconfig-bgp-errors.

use std::sync::Arc;

use super::bgp::{BGP_TYPES, FAMILY, NEIGHBOR, NEIGHBORS};
use super::{INSTANCE, ROOTS, vrf};
use crate::bgp_sessions::{BgpSession, BgpState, Messages, Notification, Sessions};
use crate::dialect::accessors::{modify, set_below, text_value};
use crate::model::schema::{Identity, position};
use crate::model::tree::{Container, Node};
use crate::model::value::{IdentityRef, Type, Value};

/// Defines identities of openconfig-bgp-types and tables of them: by number, from 0 on.
macro_rules! identities {
    ($($table:ident: $($name:ident)*;)*) => {
        $($(static $name: Identity = Identity { module: &BGP_TYPES, name: stringify!($name) };)*)*
        $(static $table: &[&Identity] = &[$(&$name),*];)*
    };
}

// RFC 4271, section 4.5 and 6; RFC 4486. What openconfig-bgp-errors lacks is `UNSPECIFIC`.
identities! {
    UNKNOWN: UNSPECIFIC;
    CODES: MESSAGE_HEADER_ERROR OPEN_MESSAGE_ERROR UPDATE_MESSAGE_ERROR HOLD_TIMER_EXPIRED
        FINITE_STATE_MACHINE_ERROR CEASE ROUTE_REFRESH_MESSAGE_ERROR;
    HEADER: CONNECTION_NOT_SYNCHRONIZED BAD_MESSAGE_LENGTH BAD_MESSAGE_TYPE;
    OPEN: UNSUPPORTED_VERSION_NUMBER BAD_PEER_AS BAD_BGP_IDENTIFIER UNSUPPORTED_OPTIONAL_PARAMETER;
    OPEN_FROM_6: UNACCEPTABLE_HOLD_TIME UNSUPPORTED_CAPABILITY;
    UPDATE: MALFORMED_ATTRIBUTE_LIST UNRECOGNIZED_WELL_KNOWN_ATTRIBUTE MISSING_WELL_KNOWN_ATTRIBUTE
        ATTRIBUTE_FLAGS_ERROR ATTRIBUTE_LENGTH_ERROR INVALID_ORIGIN_ATTRIBUTE;
    UPDATE_FROM_8: INVALID_NEXT_HOP_ATTRIBUTE OPTIONAL_ATTRIBUTE_ERROR INVALID_NETWORK_FIELD MALFORMED_AS_PATH;
    STATE_MACHINE: RECEIVE_UNEXPECTED_MESSAGE_OPENSENT RECEIVE_UNEXPECTED_MESSAGE_OPENCONFIRM
        RECEIVE_UNEXPECTED_MESSAGE_ESTABLISHED;
    CEASE_SUBCODES: MAX_NUM_PREFIXES_REACHED ADMINISTRATIVE_SHUTDOWN PEER_DE_CONFIGURED ADMINISTRATIVE_RESET
        CONNECTION_REJECTED OTHER_CONFIG_CHANGE CONN_COLLISION_RESOLUTION OUT_OF_RESOURCES;
}

/// `last-notification-error-code`, which is state only: no edit has a value of it.
pub(super) const ERROR_CODE: Type = Type::Identity(&[]);
/// `last-notification-error-subcode`.
pub(super) const ERROR_SUBCODE: Type = Type::Identity(&[]);

/// The identities of an error code and its subcode; no code is unknown to the model.
fn error(code: u8, subcode: u8) -> [Option<&'static Identity>; 2] {
    let numbered = |table: &[&'static Identity], first: u8, number: u8| {
        table.get(usize::from(number.checked_sub(first)?)).copied()
    };
    let sub = match (code, subcode) {
        (1, _) => numbered(HEADER, 1, subcode),
        (2, 6..) => numbered(OPEN_FROM_6, 6, subcode),
        (2, _) => numbered(OPEN, 1, subcode),
        (3, 8..) => numbered(UPDATE_FROM_8, 8, subcode),
        (3, _) => numbered(UPDATE, 1, subcode),
        (5, _) => numbered(STATE_MACHINE, 1, subcode),
        (6, _) => numbered(CEASE_SUBCODES, 1, subcode),
        _ => None,
    };
    [numbered(CODES, 1, code), sub.or(UNKNOWN.first().copied())]
}

/// Adds the sessions to the network instances of their VRFs.
pub(super) fn add(data: &mut Container, sessions: &Sessions) {
    modify(data, ROOTS, &["network-instances"], |instances, definitions| {
        instances.modify_list(position(definitions, "network-instance"), |instances| {
            for (key, instance) in instances.iter_mut() {
                let name = key.first().and_then(Value::text).unwrap_or_default();
                let Some(sessions) = sessions.get(name).filter(|sessions| !sessions.is_empty()) else {
                    continue;
                };
                add_to_instance(Arc::make_mut(instance), sessions);
            }
        });
    });
}

fn add_to_instance(instance: &mut Container, sessions: &[BgpSession]) {
    modify(instance, INSTANCE, &["protocols"], |protocols, definitions| {
        protocols.modify_list(position(definitions, "protocol"), |protocols| {
            let bgp = protocols.iter_mut().find(|(key, _)| key[0].is("BGP"));
            let Some((_, protocol)) = bgp else { return };
            let protocol = Arc::make_mut(protocol);
            modify(protocol, vrf::PROTOCOL_ENTRY, &["bgp"], |bgp, definitions| {
                let id = sessions.iter().find_map(|session| session.ids[0]);
                if let Some(id) = id {
                    let id = text_value(&id.to_string());
                    set_below(bgp, definitions, &["global", "state", "router-id"], id);
                }
                modify(bgp, definitions, &["neighbors"], |neighbors, _| {
                    neighbors.modify_list(position(NEIGHBORS, "neighbor"), |neighbors| {
                        for session in sessions {
                            let address = text_value(&session.address.to_string());
                            // The key as it is written in the configuration.
                            let known = |key: &&crate::model::tree::Key| {
                                key[0].text().is_some_and(|text| text.parse() == Ok(session.address))
                            };
                            let key = neighbors.keys().find(known).cloned();
                            let key = key.unwrap_or_else(|| [address].into());
                            add_session(
                                Arc::make_mut(neighbors.entry(key.clone()).or_default()),
                                &key[0],
                                session,
                            );
                        }
                    });
                });
            });
        });
    });
}

fn add_session(neighbor: &mut Container, address: &Value, session: &BgpSession) {
    let mut set = |path: &[&str], value: Value| set_below(neighbor, NEIGHBOR, path, value);
    set(&["neighbor-address"], address.clone());
    set(&["state", "neighbor-address"], address.clone());
    if session.dynamic {
        set(&["state", "dynamically-configured"], Value::Keyword("true"));
        if let Some(group) = &session.group {
            set(&["state", "peer-group"], text_value(group));
        }
    }
    let state = match session.state {
        BgpState::Idle => "IDLE",
        BgpState::Connect => "CONNECT",
        BgpState::Active => "ACTIVE",
        BgpState::OpenSent => "OPENSENT",
        BgpState::OpenConfirm => "OPENCONFIRM",
        BgpState::Established => "ESTABLISHED",
    };
    set(&["state", "session-state"], Value::Keyword(state));
    set(&["state", "local-as"], Value::Uint(session.local_as.into()));
    if let Some(peer_as) = session.peer_as {
        set(&["state", "peer-as"], Value::Uint(peer_as.into()));
    }
    if let Some(changed) = session.changed {
        set(&["state", "last-established"], nanoseconds(changed));
    }
    set(&["state", "established-transitions"], Value::Uint(session.established));
    for (direction, messages, is_received) in
        [("sent", session.sent, false), ("received", session.received, true)]
    {
        let notification = session.last_notification.filter(|last| last.received == is_received);
        for (name, value) in counters(messages, notification) {
            set(&["state", "messages", direction, name], value);
        }
    }
    let families = [("IPV4_UNICAST", session.prefixes[0]), ("IPV6_UNICAST", session.prefixes[1])];
    for (name, prefixes) in families {
        let Some(prefixes) = prefixes else { continue };
        let Type::Identity(names) = super::policy::AFI_SAFI else { continue };
        let Some(identity) = names.iter().find(|identity| identity.name == name) else { continue };
        let key = Value::Identity(IdentityRef(identity));
        let active = if session.state == BgpState::Established { "true" } else { "false" };
        modify(neighbor, NEIGHBOR, &["afi-safis"], |families, definitions| {
            families.modify_list(position(definitions, "afi-safi"), |families| {
                let family = Arc::make_mut(families.entry([key.clone()].into()).or_default());
                family.set(0, Node::Leaf(key.clone()));
                let mut set = |path: &[&str], value| set_below(family, FAMILY, path, value);
                set(&["state", "afi-safi-name"], key.clone());
                set(&["state", "active"], Value::Keyword(active));
                // What the import policy lets through is installed.
                for (name, number) in [
                    ("received", prefixes.accepted),
                    ("sent", prefixes.sent),
                    ("installed", prefixes.accepted),
                ] {
                    set(&["state", "prefixes", name], Value::Uint(number));
                }
            });
        });
    }
}

fn counters(messages: Messages, last: Option<Notification>) -> Vec<(&'static str, Value)> {
    let mut counters = vec![
        ("UPDATE", Value::Uint(messages.updates)),
        ("NOTIFICATION", Value::Uint(messages.notifications)),
    ];
    if let Some(last) = last {
        counters.push(("last-notification-time", nanoseconds(last.at)));
        let names = ["last-notification-error-code", "last-notification-error-subcode"];
        for (name, identity) in names.into_iter().zip(error(last.code, last.subcode)) {
            counters.extend(identity.map(|identity| (name, Value::Identity(IdentityRef(identity)))));
        }
    }
    counters
}

fn nanoseconds(seconds: u64) -> Value {
    Value::Uint(seconds.saturating_mul(1_000_000_000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_the_numbers_of_the_rfc() {
        for (code, subcode, expected) in [
            (2, 2, "OPEN_MESSAGE_ERROR BAD_PEER_AS"),
            (2, 5, "OPEN_MESSAGE_ERROR UNSPECIFIC"),
            (2, 6, "OPEN_MESSAGE_ERROR UNACCEPTABLE_HOLD_TIME"),
            (3, 8, "UPDATE_MESSAGE_ERROR INVALID_NEXT_HOP_ATTRIBUTE"),
            (4, 0, "HOLD_TIMER_EXPIRED UNSPECIFIC"),
            (6, 1, "CEASE MAX_NUM_PREFIXES_REACHED"),
            (6, 3, "CEASE PEER_DE_CONFIGURED"),
            (6, 10, "CEASE UNSPECIFIC"),
        ] {
            let names: Vec<_> = error(code, subcode).into_iter().flatten().map(|i| i.name).collect();
            assert_eq!(names.join(" "), expected, "{code}/{subcode}");
        }
        assert_eq!(error(0, 0)[0], None);
    }
}
