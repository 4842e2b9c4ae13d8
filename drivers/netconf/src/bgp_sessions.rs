//! The state of the BGP sessions of a command, picked from what a device says of all. Pure.

use std::collections::BTreeMap;
use std::net::IpAddr;

use eno_sbi::TooLarge;
use eno_schemas::{Applied, BgpError, BgpSession, BgpState, FabricDesired, Text};

use crate::memory::{Counter, Kept};
use crate::plan::group_name;

/// Maximum sessions of a device. The first ones stay.
const MAX_SESSIONS: usize = 4096;

/// The sessions by owner, ascending by address.
pub type Sessions = BTreeMap<String, Vec<BgpSession>>;

/// The sessions that a command wants.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WantedSessions {
    /// The owners by VRF and address.
    neighbours: BTreeMap<(String, IpAddr), String>,
    /// The owners of groups of which any host of a network may be a neighbour, by VRF and the name on the device.
    groups: BTreeMap<(String, String), String>,
}

impl WantedSessions {
    /// The sessions of the groups that are there as desired.
    pub fn of(desired: &FabricDesired, applied: &Applied) -> Self {
        let mut wanted = Self::default();
        let Applied::Fabric { bgp, .. } = applied else { return wanted };
        for vrf in &desired.vrfs {
            for group in vrf.bgp.iter().filter(|group| bgp.contains_key(&group.owner)) {
                for address in &group.neighbours {
                    wanted.neighbours.insert((vrf.name.clone(), *address), group.owner.clone());
                }
                if !group.dynamic_neighbours.is_empty() {
                    let name = group_name(&desired.cluster, &group.owner);
                    wanted.groups.insert((vrf.name.clone(), name), group.owner.clone());
                }
            }
        }
        wanted
    }

    /// None is wanted.
    pub fn is_empty(&self) -> bool {
        self.neighbours.is_empty() && self.groups.is_empty()
    }

    /// Whether each neighbour that the command names is established, and some neighbour of each group of a network.
    pub fn are_established(&self, sessions: &Sessions) -> bool {
        let established: usize = sessions.values().flatten().filter(|session| is_up(session)).count();
        let all: usize = sessions.values().map(Vec::len).sum();
        let is_met = |owner: &String| sessions.get(owner).is_some_and(|of| !of.is_empty());
        established == all
            && all >= self.neighbours.len().min(MAX_SESSIONS)
            && self.groups.values().all(is_met)
    }
}

fn is_up(session: &BgpSession) -> bool {
    session.state == BgpState::Established
}

/// What of the sessions is worth a report: which are there, which are established, and the last error. A session that is
/// not established changes its state every few seconds.
pub fn reported(sessions: &Sessions) -> Vec<(&String, IpAddr, bool, Option<BgpError>)> {
    let all = sessions.iter().flat_map(|(owner, of)| of.iter().map(move |session| (owner, session)));
    all.map(|(owner, one)| (owner, one.address, is_up(one), one.last_error)).collect()
}

/// A session while it is read.
#[derive(Debug, Default)]
pub(crate) struct Entry {
    /// The VRF.
    pub(crate) vrf: String,
    /// The neighbour.
    pub(crate) address: Option<IpAddr>,
    /// Its group.
    pub(crate) group: String,
    /// Its state.
    pub(crate) state: Option<BgpState>,
    /// Since when it has the state, RFC 3339.
    pub(crate) since: Option<Text>,
    /// The last NOTIFICATION.
    pub(crate) last_error: Option<BgpError>,
    /// Prefixes that the neighbour announces, of all families.
    pub(crate) prefixes: u64,
}

/// Picks the sessions that are wanted.
#[derive(Debug)]
pub(crate) struct Picker<'a> {
    wanted: &'a WantedSessions,
    found: BTreeMap<(String, IpAddr), BgpSession>,
    prefixes: BTreeMap<String, u64>,
    kept: Counter,
}

impl<'a> Picker<'a> {
    /// Nothing is picked yet.
    pub(crate) fn new(wanted: &'a WantedSessions) -> Self {
        Self { wanted, found: BTreeMap::new(), prefixes: BTreeMap::new(), kept: Counter::default() }
    }

    /// Keeps the session if it is wanted.
    pub(crate) fn entry(&mut self, entry: Entry) -> Result<(), TooLarge> {
        let Entry { vrf, address, group, state, since, last_error, prefixes } = entry;
        let (Some(address), Some(state)) = (address, state) else { return Ok(()) };
        let by_address = self.wanted.neighbours.get(&(vrf.clone(), address));
        let Some(owner) = by_address.or_else(|| self.wanted.groups.get(&(vrf, group))) else { return Ok(()) };
        // One entry for each group of a command.
        let all = self.prefixes.entry(owner.clone()).or_default();
        *all = all.saturating_add(prefixes);
        let since = since.filter(|_| state == BgpState::Established);
        let bytes = size_of::<BgpSession>() + owner.len() + since.as_ref().map_or(0, |since| since.len());
        let session = BgpSession { address, state, since, last_error };
        if self.found.insert((owner.clone(), address), session).is_none() {
            if self.found.len() > MAX_SESSIONS {
                self.found.pop_last();
            } else {
                self.kept.entry(bytes);
            }
        }
        self.kept.check()
    }

    /// What was picked.
    pub(crate) fn finish(self) -> FoundSessions {
        let mut sessions = Sessions::new();
        for ((owner, _), session) in self.found {
            sessions.entry(owner).or_default().push(session);
        }
        FoundSessions { sessions, prefixes: self.prefixes, memory: self.kept.into() }
    }
}

/// What a device says of sessions.
#[derive(Debug, Default)]
pub struct FoundSessions {
    /// The sessions.
    pub sessions: Sessions,
    /// The prefixes that the neighbours announce, by owner.
    pub prefixes: BTreeMap<String, u64>,
    /// The memory that they take.
    pub memory: Kept,
}

/// The state by its name in any spelling: `ESTABLISHED`, `openconfirm`, `OpenSent`, `open-sent`.
pub(crate) fn state(text: &str) -> Option<BgpState> {
    let letters = text.chars().filter(char::is_ascii_alphabetic).map(|letter| letter.to_ascii_lowercase());
    Some(match letters.collect::<String>().as_str() {
        "idle" => BgpState::Idle,
        "connect" => BgpState::Connect,
        "active" => BgpState::Active,
        "opensent" => BgpState::OpenSent,
        "openconfirm" => BgpState::OpenConfirm,
        "established" => BgpState::Established,
        _ => return None,
    })
}

/// The names of one thing.
type Names = &'static [&'static str];

/// The names of error codes, and of their subcodes from 1 on (RFC 4271, section 4.5; RFC 4486 for Cease), in lower case
/// without anything between the words. Devices differ in some words.
const ERRORS: [(u8, Names, &[Names]); 6] = [
    (
        1,
        &["messageheadererror"],
        &[&["connectionnotsynchronized"], &["badmessagelength"], &["badmessagetype"]],
    ),
    (
        2,
        &["openmessageerror"],
        &[
            &["unsupportedversionnumber", "unsupportedversion"],
            &["badpeeras", "badpeerasnumber"],
            &["badbgpidentifier"],
            &["unsupportedoptionalparameter"],
            &["authenticationfailure"],
            &["unacceptableholdtime"],
            &["unsupportedcapability"],
        ],
    ),
    (
        3,
        &["updatemessageerror"],
        &[
            &["malformedattributelist"],
            &["unrecognizedwellknownattribute"],
            &["missingwellknownattribute"],
            &["attributeflagserror"],
            &["attributelengtherror"],
            &["invalidoriginattribute"],
            &["asroutingloop"],
            &["invalidnexthopattribute"],
            &["optionalattributeerror"],
            &["invalidnetworkfield"],
            &["malformedaspath"],
        ],
    ),
    (4, &["holdtimerexpired", "holdtimerexpirederror"], &[]),
    (5, &["finitestatemachineerror", "fsmerror"], &[]),
    (
        6,
        &["cease"],
        &[
            &["maxnumprefixesreached", "maximumnumberofprefixesreached", "maxprefixesreached"],
            &["administrativeshutdown", "administrativelyshutdown"],
            &["peerdeconfigured", "peerunconfigured"],
            &["administrativereset", "administrativelyreset"],
            &["connectionrejected"],
            &["otherconfigchange", "otherconfigurationchange"],
            &["conncollisionresolution", "connectioncollisionresolution"],
            &["outofresources"],
        ],
    ),
];

/// The code and the subcode of these names, or numbers. A subcode that is not known is 0.
pub(crate) fn error_of(code: &str, subcode: &str) -> Option<(u8, u8)> {
    let plain = |text: &str| -> String {
        let name = text.rsplit(':').next().unwrap_or(text);
        name.chars().filter(char::is_ascii_alphanumeric).map(|letter| letter.to_ascii_lowercase()).collect()
    };
    let (code, subcode) = (plain(code), plain(subcode));
    if let Ok(code) = code.parse() {
        return (code > 0).then(|| (code, subcode.parse().unwrap_or(0)));
    }
    let (number, _, subcodes) = ERRORS.iter().find(|(_, names, _)| names.contains(&code.as_str()))?;
    let named = (1..).zip(subcodes.iter()).find(|(_, names)| names.contains(&subcode.as_str()));
    Some((*number, named.map_or_else(|| subcode.parse().unwrap_or(0), |(subcode, _)| subcode)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_states_and_errors_are_read_in_any_spelling() {
        for (text, expected) in [
            ("ESTABLISHED", Some(BgpState::Established)),
            ("OpenConfirm", Some(BgpState::OpenConfirm)),
            ("open-sent", Some(BgpState::OpenSent)),
            ("up", None),
        ] {
            assert_eq!(state(text), expected, "{text}");
        }
        for (code, subcode, expected) in [
            ("oc-bgp-types:OPEN_MESSAGE_ERROR", "x:BAD_PEER_AS", Some((2, 2))),
            ("Cease", "Maximum Number of Prefixes Reached", Some((6, 1))),
            ("HOLD_TIMER_EXPIRED", "", Some((4, 0))),
            ("6", "5", Some((6, 5))),
            ("0", "0", None),
            ("", "", None),
            ("unknown", "", None),
        ] {
            assert_eq!(error_of(code, subcode), expected, "{code} {subcode}");
        }
    }

    #[test]
    fn group_of_a_network_waits_for_a_neighbour() {
        let groups = BTreeMap::from([(("blue".to_owned(), "g".to_owned()), "o".to_owned())]);
        let wanted = WantedSessions { neighbours: BTreeMap::new(), groups };
        assert!(!wanted.are_established(&Sessions::new()));
    }

    #[test]
    fn sessions_are_bounded() {
        let address = |number: u32| IpAddr::V4(number.into());
        let neighbours = (0..5000).map(|number| (("blue".to_owned(), address(number)), "o".to_owned()));
        let wanted = WantedSessions { neighbours: neighbours.collect(), groups: BTreeMap::new() };
        let mut picker = Picker::new(&wanted);
        for number in (0..5001).rev() {
            let entry = Entry {
                vrf: "blue".into(),
                address: Some(address(number)),
                state: Some(BgpState::Active),
                since: Some("2030-01-01T00:00:00Z".into()),
                ..Entry::default()
            };
            picker.entry(entry).unwrap();
        }
        let found = picker.finish().sessions;
        assert_eq!((found["o"].len(), found["o"][0].address), (MAX_SESSIONS, address(0)));
        assert_eq!(found["o"][0].since, None);
        assert!(!wanted.are_established(&found));
    }
}
