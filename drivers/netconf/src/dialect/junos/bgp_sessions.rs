//! The BGP sessions of Junos: the reply to `<get-bgp-neighbor-information>`, as `show bgp neighbor | display xml` shows
//! it, of all routing instances. It names errors without their subcodes, and tells who sent them by counts. It does not
//! say since when a session is established.

use eno_schemas::BgpError;

use crate::bgp_sessions::{Entry, FoundSessions, Picker, WantedSessions, error_of, state};
use crate::dialect::ParseError;
use crate::text::Text;
use crate::xml::{Scope, Step, walk};

const PEER: &str = "bgp-peer";

/// The name of an error, and how often it was sent and received.
#[derive(Default)]
struct Counts {
    name: String,
    sent: u64,
    received: u64,
}

pub(super) fn parse(reply: &Text, wanted: &WantedSessions) -> Result<FoundSessions, ParseError> {
    let (mut picker, mut entry) = (Picker::new(wanted), Entry::default());
    let (mut last_error, mut counts, mut errors) = (String::new(), Counts::default(), Vec::new());
    walk(
        reply,
        |_| Scope::Known,
        |step| {
            match step {
                Step::Enter(path) => match name(path) {
                    PEER => (entry, last_error, errors) = Default::default(),
                    "bgp-error" => counts = Counts::default(),
                    _ => {}
                },
                Step::Leave(path, text) => match name(path) {
                    PEER => {
                        entry.last_error = error(&last_error, &errors);
                        picker.entry(std::mem::take(&mut entry))?;
                    }
                    // `192.0.2.11+179`.
                    "peer-address" => {
                        entry.address = text.split('+').next().and_then(|address| address.parse().ok());
                    }
                    "peer-cfg-rti" => text.clone_into(&mut entry.vrf),
                    "peer-group" => text.clone_into(&mut entry.group),
                    "peer-state" => entry.state = state(text),
                    "received-prefix-count" => {
                        entry.prefixes = entry.prefixes.saturating_add(text.parse().unwrap_or(0));
                    }
                    "last-error" => text.clone_into(&mut last_error),
                    "bgp-error" if errors.len() < MAX_ERRORS => errors.push(std::mem::take(&mut counts)),
                    "name" if path.ends_with("bgp-error/name") => text.clone_into(&mut counts.name),
                    "send-count" => counts.sent = text.parse().unwrap_or(0),
                    "receive-count" => counts.received = text.parse().unwrap_or(0),
                    _ => {}
                },
            }
            Ok(())
        },
    )?;
    Ok(picker.finish())
}

/// Maximum errors of a neighbour. There are six codes.
const MAX_ERRORS: usize = 16;

/// The last name of a path.
fn name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

fn error(last: &str, errors: &[Counts]) -> Option<BgpError> {
    let (code, subcode) = error_of(last, "")?;
    let counts = errors.iter().find(|counts| counts.name == last);
    let received = counts.is_some_and(|counts| counts.received > 0 && counts.sent == 0);
    Some(BgpError { code, subcode, received })
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
        let peer = |address: &str, vrf: &str, rest: &str| {
            format!(
                "<bgp-peer><peer-address>{address}</peer-address><peer-as>64513</peer-as><peer-cfg-rti>{vrf}</peer-cfg-rti>\
                 {rest}</bgp-peer>"
            )
        };
        let peers = [
            peer(
                "192.0.2.11+179",
                "blue",
                "<peer-state>Established</peer-state><last-error>None</last-error><bgp-rib><received-prefix-count>3\
                 </received-prefix-count></bgp-rib><bgp-rib><received-prefix-count>4</received-prefix-count></bgp-rib>",
            ),
            peer(
                "2001:db8::11",
                "blue",
                "<peer-state>Active</peer-state><last-error>Open Message Error</last-error><bgp-error><name>Open Message \
                 Error</name><send-count>0</send-count><receive-count>3</receive-count></bgp-error>",
            ),
            peer("192.0.2.11", "green", "<peer-state>Idle</peer-state>"),
            peer(
                "198.51.100.3+41000",
                "blue",
                "<peer-group>eno-c1-red</peer-group><peer-state>OpenSent</peer-state>",
            ),
        ];
        let reply = format!(
            "<rpc-reply xmlns=\"urn:ietf:params:xml:ns:netconf:base:1.0\"><bgp-information \
             xmlns=\"http://xml.juniper.net/junos/23.2R2/junos-routing\">{}</bgp-information></rpc-reply>",
            peers.concat()
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
            session("192.0.2.11", BgpState::Established),
            session("198.51.100.3", BgpState::OpenSent),
            BgpSession {
                last_error: Some(BgpError { code: 2, subcode: 0, received: true }),
                ..session("2001:db8::11", BgpState::Active)
            },
        ];
        assert_eq!(found, BTreeMap::from([("BGPSessionGroup/red".to_owned(), expected.to_vec())]));
    }
}
