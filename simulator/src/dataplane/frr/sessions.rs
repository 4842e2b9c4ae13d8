//! Reads the sessions of a VRF from bgpd: `show bgp neighbors json`.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Deserialize;

use super::{BGPD, directory_of, vty};
use crate::bgp_sessions::{BgpSession, BgpState, Messages, Notification, Prefixes, Sessions};
use crate::dataplane::plan::Bridge;

/// The command that shows all neighbours.
pub(super) const SHOW: &str = "show bgp neighbors json";

/// Cease/Connection Collision Resolution (RFC 4486): of two connections of one neighbour the second is closed. It says
/// nothing of the session, and would hide the error of the first.
const COLLISION: (u8, u8) = (6, 7);

/// Reads the sessions of a switch.
#[derive(Debug)]
pub(crate) struct BgpReader {
    /// The directory of the data plane.
    directory: PathBuf,
    /// The bridge of the switch.
    bridge: String,
    /// What was read last of each neighbour, by VRF. bgpd forgets a NOTIFICATION with the next connection, and its times
    /// vary by a second.
    known: Mutex<BTreeMap<(String, IpAddr), BgpSession>>,
}

impl BgpReader {
    /// The reader of a switch.
    pub(in crate::dataplane) fn new(directory: PathBuf, bridge: &Bridge) -> Self {
        Self { directory, bridge: bridge.name.clone(), known: Mutex::default() }
    }

    /// The sessions of VRFs. One that has no data plane has none.
    pub(crate) async fn read(&self, vrfs: impl Iterator<Item = &String>) -> io::Result<Sessions> {
        let mut sessions = Sessions::new();
        for vrf in vrfs {
            let directory = directory_of(&self.directory, &self.bridge, vrf);
            match vty::run(&directory, BGPD, &[SHOW.to_owned()]).await {
                Ok(shown) => {
                    let shown = shown.first().map(String::as_str).unwrap_or_default();
                    sessions.insert(vrf.clone(), parse(shown, now())?);
                }
                // It is stopped, or not yet started.
                Err(error)
                    if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => {
                }
                Err(error) => return Err(error),
            }
        }
        self.remember(&mut sessions);
        Ok(sessions)
    }

    fn remember(&self, sessions: &mut Sessions) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let mut present = BTreeMap::new();
        for (vrf, sessions) in sessions {
            for session in sessions {
                let key = (vrf.clone(), session.address);
                if let Some(before) = known.get(&key) {
                    keep(session, before);
                }
                present.insert(key, session.clone());
            }
        }
        *known = present;
    }
}

/// Keeps what has not changed since before.
fn keep(session: &mut BgpSession, before: &BgpSession) {
    let counts = |session: &BgpSession| (session.state, session.established, session.dropped);
    if counts(session) == counts(before) && session.changed.is_some() {
        session.changed = before.changed.or(session.changed);
    }
    let Some(last) = before.last_notification else { return };
    let is_same = |now: Notification| {
        let what = |n: Notification| (n.code, n.subcode, n.received);
        what(now) == what(last) && now.at.abs_diff(last.at) <= 1
    };
    if session.last_notification.is_none_or(is_same) {
        session.last_notification = Some(last);
    }
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Neighbour {
    remote_as: u32,
    local_as: u32,
    bgp_state: String,
    peer_subnet_range_group: Option<String>,
    remote_router_id: Option<Ipv4Addr>,
    local_router_id: Option<Ipv4Addr>,
    bgp_timer_up_established_epoch: Option<u64>,
    #[serde(default)]
    bgp_timer_hold_time_msecs: u64,
    #[serde(default)]
    bgp_timer_keep_alive_interval_msecs: u64,
    #[serde(default)]
    message_stats: MessageStats,
    #[serde(default)]
    address_family_info: FamilyInfo,
    #[serde(default)]
    connections_established: u64,
    #[serde(default)]
    connections_dropped: u64,
    #[serde(default)]
    last_reset_timer_msecs: u64,
    last_error_code_subcode: Option<String>,
    #[serde(default)]
    last_reset_due_to: String,
    #[serde(default)]
    prefixes_config_exceed_max: bool,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct MessageStats {
    notifications_sent: u64,
    notifications_recv: u64,
    updates_sent: u64,
    updates_recv: u64,
    total_sent: u64,
    total_recv: u64,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct FamilyInfo {
    ipv4_unicast: Option<Counters>,
    ipv6_unicast: Option<Counters>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Counters {
    accepted_prefix_counter: u64,
    sent_prefix_counter: u64,
}

/// The neighbours that announced too many prefixes.
pub(super) fn exceeded(shown: &str) -> BTreeSet<String> {
    let all: BTreeMap<String, Neighbour> = serde_json::from_str(shown).unwrap_or_default();
    all.into_iter()
        .filter(|(_, neighbour)| neighbour.prefixes_config_exceed_max)
        .map(|(name, _)| name)
        .collect()
}

/// The sessions in the reply of bgpd at a time in seconds since 1970.
fn parse(shown: &str, now: u64) -> io::Result<Vec<BgpSession>> {
    let all: BTreeMap<IpAddr, Neighbour> = serde_json::from_str(shown)?;
    Ok(all.into_iter().map(|(address, neighbour)| neighbour.session(address, now)).collect())
}

impl Neighbour {
    fn session(self, address: IpAddr, now: u64) -> BgpSession {
        let state = match self.bgp_state.as_str() {
            "Connect" => BgpState::Connect,
            "Active" => BgpState::Active,
            "OpenSent" => BgpState::OpenSent,
            "OpenConfirm" => BgpState::OpenConfirm,
            "Established" => BgpState::Established,
            // `Clearing` and `Deleted` are further ones of FRR.
            _ => BgpState::Idle,
        };
        let reset = now.saturating_sub(self.last_reset_timer_msecs / 1000);
        let seconds = |milliseconds: u64| u16::try_from(milliseconds / 1000).unwrap_or(u16::MAX);
        let known = |id: Option<Ipv4Addr>| id.filter(|id| !id.is_unspecified());
        let last = self.last_error_code_subcode.as_deref().and_then(code).filter(|code| *code != COLLISION);
        let prefixes = |counters: Option<Counters>| {
            counters.map(|c| Prefixes { accepted: c.accepted_prefix_counter, sent: c.sent_prefix_counter })
        };
        BgpSession {
            address,
            // That of the configuration has another name.
            group: None,
            dynamic: self.peer_subnet_range_group.is_some(),
            state,
            peer_as: Some(self.remote_as).filter(|asn| *asn != 0),
            local_as: self.local_as,
            ids: [known(self.local_router_id), known(self.remote_router_id)],
            changed: match state {
                BgpState::Established => self.bgp_timer_up_established_epoch,
                _ => (self.connections_dropped > 0).then_some(reset),
            },
            established: self.connections_established,
            dropped: self.connections_dropped,
            sent: Messages {
                all: self.message_stats.total_sent,
                updates: self.message_stats.updates_sent,
                notifications: self.message_stats.notifications_sent,
            },
            received: Messages {
                all: self.message_stats.total_recv,
                updates: self.message_stats.updates_recv,
                notifications: self.message_stats.notifications_recv,
            },
            last_notification: last.map(|(code, subcode)| Notification {
                code,
                subcode,
                received: self.last_reset_due_to.contains("received"),
                at: reset,
            }),
            hold_time: seconds(self.bgp_timer_hold_time_msecs),
            keepalive_time: seconds(self.bgp_timer_keep_alive_interval_msecs),
            prefixes: [self.address_family_info.ipv4_unicast, self.address_family_info.ipv6_unicast]
                .map(prefixes),
        }
    }
}

/// The code and the subcode in `0202`.
fn code(text: &str) -> Option<(u8, u8)> {
    let (code, subcode) = text.split_at_checked(2)?;
    let number = |text| u8::from_str_radix(text, 16).ok();
    Some((number(code)?, number(subcode)?)).filter(|(code, _)| *code > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataplane::plan::Plan;
    use crate::topology::Topology;

    /// Output of FRR 8.4.4, abridged.
    const SHOWN: &str = r#"{
  "10.7.0.1":{"remoteAs":65001,"localAs":65000,
    "peerSubnetRangeGroup":"10.7.0.0/24","remoteRouterId":"10.7.0.1","localRouterId":"10.7.0.254",
    "bgpState":"Established","bgpTimerUpEstablishedEpoch":1795916882,"bgpTimerHoldTimeMsecs":9000,
    "bgpTimerKeepAliveIntervalMsecs":3000,
    "messageStats":{"notificationsSent":0,"notificationsRecv":0,"updatesSent":2,"updatesRecv":1,"totalSent":5,
    "totalRecv":4},
    "addressFamilyInfo":{"ipv4Unicast":{"acceptedPrefixCounter":2,"sentPrefixCounter":1}},
    "connectionsEstablished":1,"connectionsDropped":0,"lastResetTimerMsecs":2000,
    "lastResetDueTo":"Waiting for peer OPEN"},
  "2001:db8:7::1":{"remoteAs":65001,"localAs":65000,"remoteRouterId":"0.0.0.0","localRouterId":"10.7.0.254",
    "bgpState":"Idle","bgpTimerHoldTimeMsecs":180000,"messageStats":{"notificationsSent":1},
    "addressFamilyInfo":{"ipv6Unicast":{"acceptedPrefixCounter":0}},"connectionsEstablished":1,
    "connectionsDropped":1,"lastResetTimerMsecs":3000,"lastErrorCodeSubcode":"0601",
    "lastResetDueTo":"BGP Notification send","prefixesConfigExceedMax":true}}"#;

    #[test]
    fn sessions_are_read_from_bgpd() {
        let sessions = parse(SHOWN, 1_795_916_890).expect("its reply");
        let [up, down] = &sessions[..] else { panic!("{sessions:?}") };
        assert_eq!((up.state, up.dynamic, up.uptime(1_795_916_890)), (BgpState::Established, true, Some(8)));
        assert_eq!(up.prefixes, [Some(Prefixes { accepted: 2, sent: 1 }), None]);
        assert_eq!((up.hold_time, up.last_notification), (9, None));
        assert_eq!((down.state, down.dynamic, down.uptime(0)), (BgpState::Idle, false, None));
        let cease = Notification { code: 6, subcode: 1, received: false, at: 1_795_916_887 };
        assert_eq!((down.last_notification, down.changed), (Some(cease), Some(1_795_916_887)));
        assert_eq!(down.ids, [Some(Ipv4Addr::new(10, 7, 0, 254)), None]);
        assert_eq!(exceeded(SHOWN), ["2001:db8:7::1".to_owned()].into());
        assert!(parse("{}", 0).expect("no neighbours").is_empty());
        assert!(parse("% no", 0).is_err());
    }

    #[test]
    fn codes_are_hexadecimal_and_collisions_no_errors() {
        assert_eq!(
            [code("0202"), code("060a"), code("0000"), code("x"), code("é2")],
            [Some((2, 2)), Some((6, 10)), None, None, None]
        );
        let collided = SHOWN.replace("0601", "0607");
        assert!(parse(&collided, 0).expect("its reply").iter().all(|s| s.last_notification.is_none()));
    }

    #[test]
    fn what_was_read_is_remembered_while_the_neighbour_exists() {
        let plan = Plan::new(&Topology::leaf_spine(1, 1, 1), &[]).expect("it fits");
        let reader = BgpReader::new(PathBuf::new(), &plan.bridges[0]);
        let look = |shown: &str| {
            let mut sessions: Sessions = [("blue".to_owned(), parse(shown, 9).expect("a reply"))].into();
            reader.remember(&mut sessions);
            sessions["blue"].iter().find_map(|session| session.last_notification).map(|last| last.code)
        };
        assert_eq!(look(SHOWN), Some(6));
        let later = SHOWN.replace("lastErrorCodeSubcode", "other");
        assert_eq!(look(&later), Some(6));
        assert_eq!(look("{}"), None);
        assert_eq!(look(&later), None);

        let [before, mut after, mut again] = [8, 9, 9].map(|now| {
            let sessions = parse(SHOWN, 1_795_916_882 + now).expect("a reply");
            sessions.into_iter().next_back().expect("two")
        });
        keep(&mut after, &before);
        assert_eq!((after.changed, after.last_notification), (before.changed, before.last_notification));
        again.dropped += 1;
        keep(&mut again, &before);
        assert_ne!(again.changed, before.changed);
    }
}
