//! The replies to `<get-bgp-neighbor-information>` and `<get-bgp-summary-information>`.

use std::fmt::Write as _;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::bgp_sessions::{BgpQuery, BgpSession, BgpState, Prefixes, Sessions};
use crate::dialect::accessors::xml_escaped;

const NEIGHBOR: &str = "get-bgp-neighbor-information";
const SUMMARY: &str = "get-bgp-summary-information";

/// The names of the operations.
pub(super) const OPERATIONS: &[&str] = &[NEIGHBOR, SUMMARY];

const OPEN: &str = "<bgp-information xmlns=\"http://xml.juniper.net/junos/23.4R1/junos-routing\" \
    xmlns:junos=\"http://xml.juniper.net/junos/23.4R1/junos\">";

/// The names of error codes, from 1 on.
const ERRORS: [&str; 7] = [
    "Message Header Error",
    "Open Message Error",
    "Update Message Error",
    "Hold Timer Expired Error",
    "Finite State Machine Error",
    "Cease",
    "Route Refresh Message Error",
];

// Writing to a String can't fail; hence the discarded results below.

/// Writes the reply.
pub(super) fn write(query: &BgpQuery, sessions: &Sessions) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let chosen = sessions.iter().filter(|(vrf, _)| query.instance.as_ref().is_none_or(|name| name == *vrf));
    let chosen: Vec<_> = chosen
        .flat_map(|(vrf, sessions)| sessions.iter().map(move |session| (vrf.as_str(), session)))
        .filter(|(_, session)| {
            let address = session.address.to_string();
            query.neighbour.as_ref().is_none_or(|neighbour| *neighbour == address)
        })
        .collect();
    let mut out = OPEN.to_owned();
    if query.operation == SUMMARY {
        let down = chosen.iter().filter(|(_, session)| session.state != BgpState::Established).count();
        let _ =
            write!(out, "<peer-count>{}</peer-count><down-peer-count>{down}</down-peer-count>", chosen.len());
    }
    for (vrf, session) in chosen {
        if query.operation == SUMMARY {
            write_summary(vrf, session, now, &mut out);
        } else {
            write_neighbor(vrf, session, &mut out);
        }
    }
    out + "</bgp-information>"
}

fn write_summary(vrf: &str, session: &BgpSession, now: u64, out: &mut String) {
    let elapsed = session.changed.map_or(0, |changed| now.saturating_sub(changed));
    let _ = write!(
        out,
        "<bgp-peer junos:style=\"terse\"><peer-address>{}</peer-address>{}<input-messages>{}</input-messages>\
         <output-messages>{}</output-messages><route-queue-count>0</route-queue-count>\
         <flap-count>{}</flap-count><elapsed-time junos:seconds=\"{elapsed}\">{}</elapsed-time>\
         <peer-state>{}</peer-state>",
        session.address,
        peer_as(session),
        session.received.all,
        session.sent.all,
        session.dropped,
        duration(elapsed),
        state(session.state)
    );
    write_ribs(vrf, session, out);
    out.push_str("</bgp-peer>");
}

fn write_neighbor(vrf: &str, session: &BgpSession, out: &mut String) {
    let is_up = session.state == BgpState::Established;
    let (vrf_name, port) = (xml_escaped(vrf), if is_up { "+179" } else { "" });
    let _ = write!(
        out,
        "<bgp-peer junos:style=\"detail\"><peer-address>{}{port}</peer-address>{}<local-as>{}</local-as>",
        session.address,
        peer_as(session),
        session.local_as
    );
    if let Some(group) = &session.group {
        let _ = write!(out, "<peer-group>{}</peer-group>", xml_escaped(group));
    }
    let kind = if session.peer_as == Some(session.local_as) { "Internal" } else { "External" };
    let last = session.last_notification;
    let error = last.map_or("None", |last| {
        ERRORS.get(usize::from(last.code.saturating_sub(1))).copied().unwrap_or("None")
    });
    let _ = write!(
        out,
        "<peer-cfg-rti>{vrf_name}</peer-cfg-rti><peer-fwd-rti>{vrf_name}</peer-fwd-rti>\
         <peer-type>{kind}</peer-type><peer-state>{}</peer-state><last-error>{error}</last-error>\
         <flap-count>{}</flap-count>",
        state(session.state),
        session.dropped
    );
    if last.is_some() {
        let (sent, received) = (session.sent.notifications, session.received.notifications);
        let _ = write!(
            out,
            "<bgp-error><name>{error}</name><send-count>{sent}</send-count>\
             <receive-count>{received}</receive-count></bgp-error>"
        );
    }
    let [own_id, peer_id] = session.ids;
    for (name, id) in [("peer-id", peer_id), ("local-id", own_id)] {
        if let Some(id) = id {
            let _ = write!(out, "<{name}>{id}</{name}>");
        }
    }
    if is_up {
        let _ = write!(
            out,
            "<active-holdtime>{}</active-holdtime><keepalive-interval>{}</keepalive-interval>",
            session.hold_time, session.keepalive_time
        );
    }
    write_ribs(vrf, session, out);
    let _ = write!(
        out,
        "<input-messages>{}</input-messages><input-updates>{}</input-updates>\
         <output-messages>{}</output-messages><output-updates>{}</output-updates></bgp-peer>",
        session.received.all, session.received.updates, session.sent.all, session.sent.updates
    );
}

/// The tables of an established session.
fn write_ribs(vrf: &str, session: &BgpSession, out: &mut String) {
    if session.state != BgpState::Established {
        return;
    }
    for (table, prefixes) in [("inet.0", session.prefixes[0]), ("inet6.0", session.prefixes[1])] {
        let Some(Prefixes { accepted, sent }) = prefixes else { continue };
        let _ = write!(
            out,
            "<bgp-rib><name>{}.{table}</name><active-prefix-count>{accepted}</active-prefix-count>\
             <received-prefix-count>{accepted}</received-prefix-count>\
             <accepted-prefix-count>{accepted}</accepted-prefix-count>\
             <suppressed-prefix-count>0</suppressed-prefix-count>\
             <advertised-prefix-count>{sent}</advertised-prefix-count></bgp-rib>",
            xml_escaped(vrf)
        );
    }
}

fn peer_as(session: &BgpSession) -> String {
    session.peer_as.map(|asn| format!("<peer-as>{asn}</peer-as>")).unwrap_or_default()
}

fn state(state: BgpState) -> &'static str {
    match state {
        BgpState::Idle => "Idle",
        BgpState::Connect => "Connect",
        BgpState::Active => "Active",
        BgpState::OpenSent => "OpenSent",
        BgpState::OpenConfirm => "OpenConfirm",
        BgpState::Established => "Established",
    }
}

/// Seconds as Junos writes them: `13`, `4:05`, `2:00:00`, `1d 2:03`.
fn duration(seconds: u64) -> String {
    let (days, hours, minutes, rest) =
        (seconds / 86400, seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => rest.to_string(),
        (0, 0, _) => format!("{minutes}:{rest:02}"),
        (0, ..) => format!("{hours}:{minutes:02}:{rest:02}"),
        _ => format!("{days}d {hours}:{minutes:02}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_written_as_junos_does() {
        for (seconds, expected) in
            [(0, "0"), (13, "13"), (245, "4:05"), (7200, "2:00:00"), (93_780, "1d 2:03")]
        {
            assert_eq!(duration(seconds), expected);
        }
    }
}
