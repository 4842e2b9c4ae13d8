//! The BGP sessions of SR Linux: the operational leaves of `/network-instance[name]/protocols/bgp/neighbor[peer-address]`
//! (srl_nokia-bgp 24.7, nokia/srlinux-yang-models).

use eno_schemas::BgpError;
use jiff::Timestamp;

use super::{NETWORK_INSTANCE, scope};
use crate::bgp_sessions::{Entry, FoundSessions, Picker, WantedSessions, error_of, state};
use crate::dialect::ParseError;
use crate::operation::Operation;
use crate::text::Text;
use crate::xml::{Step, walk};

/// The path of a neighbour.
const NEIGHBOR: &str = "network-instance/protocols/bgp/neighbor";

/// Requests the state of all neighbours of all VRFs. `bgp`: the namespace of BGP.
pub(super) fn request(bgp: &str) -> Text {
    let messages =
        "<last-notification-time/><last-notification-error-code/><last-notification-error-subcode/>";
    let filter = format!(
        "<network-instance xmlns=\"{NETWORK_INSTANCE}\"><name/><protocols><bgp xmlns=\"{bgp}\"><neighbor><peer-address/>\
         <peer-group/><session-state/><last-established/><sent-messages>{messages}</sent-messages><received-messages>\
         {messages}</received-messages><afi-safi><afi-safi-name/><received-routes/></afi-safi></neighbor></bgp></protocols></network-instance>"
    );
    Operation::Get { filter: &filter }.xml()
}

/// A NOTIFICATION: its time, code and subcode.
#[derive(Default)]
struct Notification {
    time: Option<Timestamp>,
    code: String,
    subcode: String,
}

pub(super) fn parse(reply: &Text, wanted: &WantedSessions) -> Result<FoundSessions, ParseError> {
    let (mut picker, mut entry, mut vrf) = (Picker::new(wanted), Entry::default(), String::new());
    // Sent and received.
    let mut notifications = <[Notification; 2]>::default();
    walk(reply, scope, |step| {
        match step {
            Step::Enter("network-instance") => vrf.clear(),
            Step::Enter(NEIGHBOR) => {
                entry = Entry { vrf: vrf.clone(), ..Entry::default() };
                notifications = Default::default();
            }
            Step::Enter(_) => {}
            Step::Leave("network-instance/name", text) => text.clone_into(&mut vrf),
            Step::Leave(NEIGHBOR, _) => {
                entry.last_error = last(&notifications);
                picker.entry(std::mem::take(&mut entry))?;
            }
            Step::Leave(path, text) => match path.strip_prefix(NEIGHBOR).unwrap_or_default() {
                "/peer-address" => entry.address = text.parse().ok(),
                "/peer-group" => text.clone_into(&mut entry.group),
                "/session-state" => entry.state = state(text),
                "/last-established" => {
                    entry.since = text.parse::<Timestamp>().ok().map(|time| time.to_string().into());
                }
                "/afi-safi/received-routes" => {
                    entry.prefixes = entry.prefixes.saturating_add(text.parse().unwrap_or(0));
                }
                other => {
                    let sent = other.strip_prefix("/sent-messages/").map(|leaf| (0, leaf));
                    let received = || other.strip_prefix("/received-messages/").map(|leaf| (1, leaf));
                    let Some((at, leaf)) = sent.or_else(received) else { return Ok(()) };
                    let of: &mut Notification = &mut notifications[at];
                    match leaf {
                        "last-notification-time" => of.time = text.parse().ok(),
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

    #[test]
    fn sessions_of_ours_are_found() {
        let mut desired = eno_conformance::fabrics::desired("c1", Device::new("gw"), "", &[]);
        desired.vrfs = vec![crate::plan::test_states::vrf_with_group("blue", "red")];
        let wanted = WantedSessions::of(&desired, &desired.carried_out());
        let neighbor = |address: &str, rest: &str| {
            format!("<neighbor><peer-address>{address}</peer-address>{rest}</neighbor>")
        };
        let error = |list: &str, time: &str, code: &str, subcode: &str| {
            format!(
                "<{list}><last-notification-time>{time}</last-notification-time><last-notification-error-code>{code}\
                 </last-notification-error-code><last-notification-error-subcode>{subcode}\
                 </last-notification-error-subcode></{list}>"
            )
        };
        let errors = error("sent-messages", "2030-01-01T00:00:00.000Z", "Cease", "Administrative Reset")
            + &error("received-messages", "2030-01-01T00:00:01.000Z", "Open Message Error", "Bad Peer As");
        let neighbors = [
            neighbor(
                "192.0.2.11",
                "<session-state>established</session-state><last-established>2030-01-01T00:00:00Z</last-established>\
                 <afi-safi><received-routes>3</received-routes></afi-safi><afi-safi><received-routes>4</received-routes>\
                 <sent-routes>9</sent-routes></afi-safi>",
            ),
            neighbor("2001:db8::11", &format!("<session-state>active</session-state>{errors}")),
            neighbor("203.0.113.9", "<session-state>idle</session-state>"),
        ];
        let reply = format!(
            "<rpc-reply xmlns=\"urn:ietf:params:xml:ns:netconf:base:1.0\"><data><network-instance \
             xmlns=\"{NETWORK_INSTANCE}\"><name>blue</name><protocols><bgp xmlns=\"urn:nokia.com:srlinux:bgp:bgp\">{}</bgp>\
             </protocols></network-instance></data></rpc-reply>",
            neighbors.concat()
        );
        let FoundSessions { sessions: found, prefixes, .. } = parse(&reply.as_str().into(), &wanted).unwrap();
        assert_eq!(prefixes.into_values().sum::<u64>(), 7);
        let session = |address: &str, state| BgpSession {
            address: address.parse().unwrap(),
            state,
            since: None,
            last_error: None,
        };
        let expected = [
            BgpSession {
                since: Some("2030-01-01T00:00:00Z".into()),
                ..session("192.0.2.11", BgpState::Established)
            },
            BgpSession {
                last_error: Some(BgpError { code: 2, subcode: 2, received: true }),
                ..session("2001:db8::11", BgpState::Active)
            },
        ];
        assert_eq!(found, BTreeMap::from([("BGPSessionGroup/red".to_owned(), expected.to_vec())]));
    }
}
