//! The BGP sessions of OpenConfig: `/network-instances/network-instance[name]/protocols/protocol/bgp/neighbors/
//! neighbor[neighbor-address]/state` (openconfig-bgp-neighbor, openconfig/public).

use eno_schemas::BgpError;

use super::{NETWORK_INSTANCE, scope};
use crate::bgp_sessions::{Entry, FoundSessions, Picker, WantedSessions, error_of, state};
use crate::dialect::ParseError;
use crate::operation::Operation;
use crate::text::Text;
use crate::xml::{Step, walk};

/// The path of a neighbour.
const NEIGHBOR: &str = "network-instances/network-instance/protocols/protocol/bgp/neighbors/neighbor";

/// Requests the state of all neighbours of all VRFs: some devices answer only the first of several keys in a filter.
pub(super) fn request() -> Text {
    let messages =
        "<last-notification-time/><last-notification-error-code/><last-notification-error-subcode/>";
    let filter = format!(
        "<network-instances xmlns=\"{NETWORK_INSTANCE}\"><network-instance><name/><protocols><protocol><identifier/>\
         <name/><bgp><neighbors><neighbor><neighbor-address/><state><peer-group/><session-state/><last-established/>\
         <messages><sent>{messages}</sent><received>{messages}</received></messages></state><afi-safis><afi-safi><afi-safi-name/><state>\
         <prefixes><received/></prefixes></state></afi-safi></afi-safis></neighbor></neighbors></bgp>\
         </protocol></protocols></network-instance></network-instances>"
    );
    Operation::Get { filter: &filter }.xml()
}

/// A NOTIFICATION: its time, code and subcode.
#[derive(Default)]
struct Notification {
    time: u64,
    code: String,
    subcode: String,
}

pub(super) fn parse(reply: &Text, wanted: &WantedSessions) -> Result<FoundSessions, ParseError> {
    let (mut picker, mut entry, mut vrf) = (Picker::new(wanted), Entry::default(), String::new());
    // Sent and received.
    let mut notifications = <[Notification; 2]>::default();
    walk(reply, scope, |step| {
        match step {
            Step::Enter("network-instances/network-instance") => vrf.clear(),
            Step::Enter(NEIGHBOR) => {
                entry = Entry { vrf: vrf.clone(), ..Entry::default() };
                notifications = Default::default();
            }
            Step::Enter(_) => {}
            Step::Leave("network-instances/network-instance/name", text) => text.clone_into(&mut vrf),
            Step::Leave(NEIGHBOR, _) => {
                entry.last_error = last(&notifications);
                picker.entry(std::mem::take(&mut entry))?;
            }
            Step::Leave(path, text) => match path.strip_prefix(NEIGHBOR).unwrap_or_default() {
                "/neighbor-address" => entry.address = text.parse().ok(),
                "/state/peer-group" => text.clone_into(&mut entry.group),
                "/state/session-state" => entry.state = state(text),
                "/state/last-established" => entry.since = text.parse().ok().and_then(time),
                "/afi-safis/afi-safi/state/prefixes/received" => {
                    entry.prefixes = entry.prefixes.saturating_add(text.parse().unwrap_or(0));
                }
                other => {
                    let sent = other.strip_prefix("/state/messages/sent/").map(|leaf| (0, leaf));
                    let received = || other.strip_prefix("/state/messages/received/").map(|leaf| (1, leaf));
                    let Some((at, leaf)) = sent.or_else(received) else { return Ok(()) };
                    let of: &mut Notification = &mut notifications[at];
                    match leaf {
                        "last-notification-time" => of.time = text.parse().unwrap_or(0),
                        "last-notification-error-code" => text.clone_into(&mut of.code),
                        "last-notification-error-subcode" => text.clone_into(&mut of.subcode),
                        _ => {}
                    }
                }
            },
        }
        Ok(())
    })?;
    Ok(picker.finish())
}

/// A time in nanoseconds since 1970, as RFC 3339.
fn time(nanos: i128) -> Option<eno_schemas::Text> {
    let time = jiff::Timestamp::from_nanosecond(nanos).ok().filter(|_| nanos > 0)?;
    Some(time.round(jiff::Unit::Second).ok()?.to_string().into())
}

/// The later one. Of two at one time, the one that was received.
fn last(notifications: &[Notification; 2]) -> Option<BgpError> {
    let named = notifications.iter().zip([false, true]).filter_map(|(one, received)| {
        let (code, subcode) = error_of(&one.code, &one.subcode)?;
        Some((one.time, BgpError { code, subcode, received }))
    });
    named.max_by_key(|(time, error)| (*time, error.received)).map(|(_, error)| error)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use eno_schemas::{BgpSession, BgpState, Device};

    use super::*;

    fn wanted() -> WantedSessions {
        let mut desired = eno_conformance::fabrics::desired("c1", Device::new("gw"), "", &[]);
        desired.vrfs = vec![crate::plan::test_states::vrf_with_group("blue", "red")];
        WantedSessions::of(&desired, &desired.carried_out())
    }

    const PREFIXES: &str = "<afi-safis><afi-safi><state><prefixes><received>3</received></prefixes></state></afi-safi>\
                            <afi-safi><state><prefixes><received>4</received><sent>9</sent></prefixes></state></afi-safi>\
                            </afi-safis>";

    fn neighbor(address: &str, state: &str) -> String {
        format!(
            "<neighbor><neighbor-address>{address}</neighbor-address><state>{state}</state>{}</neighbor>",
            if address == "192.0.2.11" { PREFIXES } else { "" }
        )
    }

    #[test]
    fn sessions_of_ours_are_found() {
        let sent = "<last-notification-time>2000</last-notification-time><last-notification-error-code>t:CEASE\
                    </last-notification-error-code><last-notification-error-subcode>t:MAX_NUM_PREFIXES_REACHED\
                    </last-notification-error-subcode>";
        let received = "<last-notification-time>1000</last-notification-time><last-notification-error-code>\
                        t:OPEN_MESSAGE_ERROR</last-notification-error-code>";
        let neighbors = [
            neighbor(
                "192.0.2.11",
                "<session-state>ESTABLISHED</session-state><last-established>1893456000500000000</last-established>",
            ),
            neighbor(
                "2001:DB8::11",
                &format!(
                    "<session-state>ACTIVE</session-state><last-established>1</last-established><messages><sent>{sent}\
                     </sent><received>{received}</received></messages>"
                ),
            ),
            // Neither a neighbour of ours nor of our group.
            neighbor("192.0.2.99", "<session-state>IDLE</session-state><peer-group>other</peer-group>"),
            neighbor(
                "198.51.100.7",
                "<session-state>IDLE</session-state><peer-group>eno-c1-red</peer-group>",
            ),
            neighbor("192.0.2.12", "<session-state>UP</session-state>"),
        ];
        let reply = format!(
            "<rpc-reply xmlns=\"urn:ietf:params:xml:ns:netconf:base:1.0\"><data><network-instances \
             xmlns=\"{NETWORK_INSTANCE}\"><network-instance><name>blue</name><protocols><protocol><bgp><neighbors>{0}\
             </neighbors></bgp></protocol></protocols></network-instance><network-instance><name>green</name><protocols>\
             <protocol><bgp><neighbors>{0}</neighbors></bgp></protocol></protocols></network-instance>\
             </network-instances></data></rpc-reply>",
            neighbors.concat()
        );
        let FoundSessions { sessions: found, prefixes, .. } =
            parse(&reply.as_str().into(), &wanted()).unwrap();
        assert_eq!(prefixes.into_values().sum::<u64>(), 7);
        let session = |address: &str, state| BgpSession {
            address: address.parse().unwrap(),
            state,
            since: None,
            last_error: None,
        };
        let expected = [
            BgpSession {
                since: Some("2030-01-01T00:00:01Z".into()),
                ..session("192.0.2.11", BgpState::Established)
            },
            session("198.51.100.7", BgpState::Idle),
            BgpSession {
                last_error: Some(BgpError { code: 6, subcode: 1, received: false }),
                ..session("2001:db8::11", BgpState::Active)
            },
        ];
        assert_eq!(found, BTreeMap::from([("BGPSessionGroup/red".to_owned(), expected.to_vec())]));
    }
}
