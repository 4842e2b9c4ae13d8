//! BGP sessions of a switch: what its data plane knows of them, or what its configuration says alone.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use crate::dialect::{BgpNeighbourView, BgpView};

/// The sessions of a switch, by the name of the VRF.
pub type Sessions = BTreeMap<String, Vec<BgpSession>>;

/// The state of a session (RFC 4271, section 8.2.2).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum BgpState {
    /// It is not begun.
    #[default]
    Idle,
    /// TCP connects.
    Connect,
    /// The device waits for TCP.
    Active,
    /// An OPEN is sent.
    OpenSent,
    /// An OPEN is received.
    OpenConfirm,
    /// Routes are exchanged.
    Established,
}

/// A session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BgpSession {
    /// The neighbour's address.
    pub address: IpAddr,
    /// The name of its group.
    pub group: Option<String>,
    /// Whether the neighbour came by itself.
    pub dynamic: bool,
    /// Its state.
    pub state: BgpState,
    /// The neighbour's AS.
    pub peer_as: Option<u32>,
    /// The AS of the device in this session.
    pub local_as: u32,
    /// The BGP identifiers of the device and of the neighbour.
    pub ids: [Option<Ipv4Addr>; 2],
    /// Seconds since 1970 of the last change to or from Established.
    pub changed: Option<u64>,
    /// How often it was established.
    pub established: u64,
    /// How often it ended.
    pub dropped: u64,
    /// What the device sent.
    pub sent: Messages,
    /// What the device received.
    pub received: Messages,
    /// The last NOTIFICATION.
    pub last_notification: Option<Notification>,
    /// Seconds; the negotiated ones of an established session.
    pub hold_time: u16,
    /// Seconds between two KEEPALIVE messages.
    pub keepalive_time: u16,
    /// Prefixes of IPv4 and IPv6, if the family is enabled.
    pub prefixes: [Option<Prefixes>; 2],
}

/// Numbers of messages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Messages {
    /// All messages.
    pub all: u64,
    /// UPDATE messages.
    pub updates: u64,
    /// NOTIFICATION messages.
    pub notifications: u64,
}

/// A NOTIFICATION (RFC 4271, section 4.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Notification {
    /// The error code.
    pub code: u8,
    /// The subcode.
    pub subcode: u8,
    /// Whether the neighbour sent it.
    pub received: bool,
    /// Seconds since 1970.
    pub at: u64,
}

/// Numbers of prefixes of one family.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Prefixes {
    /// What the import policy let through.
    pub accepted: u64,
    /// What was announced.
    pub sent: u64,
}

impl BgpSession {
    /// The session of a configured neighbour about which nothing else is known.
    pub fn configured(bgp: &BgpView, address: IpAddr, neighbour: &BgpNeighbourView, state: BgpState) -> Self {
        Self {
            address,
            group: neighbour.group.clone(),
            dynamic: false,
            state: if neighbour.disabled { BgpState::Idle } else { state },
            peer_as: neighbour.peer_as,
            local_as: neighbour.local_as.unwrap_or(bgp.asn),
            ids: [bgp.router_id, None],
            changed: None,
            established: 0,
            dropped: 0,
            sent: Messages::default(),
            received: Messages::default(),
            last_notification: None,
            hold_time: neighbour.hold_time,
            keepalive_time: neighbour.keepalive_time,
            prefixes: [&neighbour.ipv4, &neighbour.ipv6]
                .map(|family| family.as_ref().map(|_| Prefixes::default())),
        }
    }

    /// Seconds since the session changed to its state, if it is established.
    pub fn uptime(&self, now: u64) -> Option<u64> {
        let established = self.state == BgpState::Established;
        established.then_some(self.changed).flatten().map(|since| now.saturating_sub(since))
    }
}

/// The sessions of all configured neighbours, without those that `known` has. Without a data plane, devices wait for
/// their neighbours; with one, no VRF without interfaces reaches any.
pub fn complete(instances: &BTreeMap<String, BgpView>, known: &Sessions, data_plane: bool) -> Sessions {
    let state = if data_plane { BgpState::Idle } else { BgpState::Active };
    let of_vrf = |(name, bgp): (&String, &BgpView)| {
        let known = known.get(name).map(Vec::as_slice).unwrap_or_default();
        let is_known = |address: &IpAddr| known.iter().any(|session| session.address == *address);
        let unknown = bgp
            .neighbours
            .iter()
            .filter(|(address, _)| !is_known(address))
            .map(|(address, neighbour)| BgpSession::configured(bgp, *address, neighbour, state));
        // A neighbour that was removed after the last look is gone.
        let present =
            |session: &&BgpSession| session.dynamic || bgp.neighbours.contains_key(&session.address);
        let with_group = |session: &BgpSession| {
            let networks = bgp.dynamic_neighbours.iter().filter(|(net, _)| net.contains(&session.address));
            let network = networks.max_by_key(|(net, _)| net.prefix_len()).map(|(_, neighbour)| neighbour);
            let neighbour = bgp.neighbours.get(&session.address).or(network);
            let group = neighbour.and_then(|neighbour| neighbour.group.clone());
            BgpSession { group, ..session.clone() }
        };
        let known = known.iter().filter(present).map(with_group);
        let mut sessions: Vec<BgpSession> = known.chain(unknown).collect();
        sessions.sort_by_key(|session| session.address);
        (name.clone(), sessions)
    };
    instances.iter().map(of_vrf).collect()
}

/// How a dialect has BGP.
#[derive(Debug, Clone, Copy)]
pub struct BgpSupport {
    /// The BGP instances of VRFs of a configuration, by the name of the VRF.
    pub instances: fn(&crate::model::tree::Container) -> BTreeMap<String, BgpView>,
    /// How it shows its sessions.
    pub shown: Shown,
}

/// How a dialect shows its sessions.
#[derive(Debug, Clone, Copy)]
pub enum Shown {
    /// As state data of `<get>`, which this adds.
    State(fn(&mut crate::model::tree::Container, &Sessions)),
    /// As the replies to operations of these names, which this writes.
    Operations(&'static [&'static str], fn(&BgpQuery, &Sessions) -> String),
}

/// An operation that shows sessions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BgpQuery {
    /// Its name.
    pub operation: &'static str,
    /// Only the sessions of this VRF.
    pub instance: Option<String>,
    /// Only the session with this neighbour.
    pub neighbour: Option<String>,
}

impl BgpSupport {
    /// The operations that show the sessions.
    pub fn operations(self) -> &'static [&'static str] {
        match self.shown {
            Shown::State(_) => &[],
            Shown::Operations(names, _) => names,
        }
    }

    /// Whether an operation shows the sessions.
    pub fn shows(&self, operation: &str) -> bool {
        match self.shown {
            Shown::State(_) => operation == "get",
            Shown::Operations(..) => self.operations().contains(&operation),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_of_all_configured_neighbours_are_shown_and_no_others() {
        let address = |text: &str| text.parse::<IpAddr>().expect(text);
        let neighbour = BgpNeighbourView { hold_time: 90, ..BgpNeighbourView::default() };
        let disabled = BgpNeighbourView { disabled: true, ..neighbour.clone() };
        let neighbours = [("10.7.0.1", &neighbour), ("10.7.0.2", &neighbour), ("10.7.0.3", &disabled)];
        let grouped = BgpNeighbourView { group: Some("workers".to_owned()), ..neighbour.clone() };
        let bgp = BgpView {
            asn: 65000,
            neighbours: neighbours.map(|(text, own)| (address(text), own.clone())).into(),
            dynamic_neighbours: [("10.7.0.0/24".parse().expect("a network"), grouped)].into(),
            ..BgpView::default()
        };
        let instances: BTreeMap<_, _> = [("blue".to_owned(), bgp.clone())].into();
        let known = |text, dynamic| BgpSession {
            dynamic,
            ..BgpSession::configured(&bgp, address(text), &neighbour, BgpState::Established)
        };
        let known = vec![known("10.7.0.2", false), known("10.7.0.9", true), known("10.7.0.8", false)];
        let states = |data_plane| {
            let all = complete(&instances, &[("blue".to_owned(), known.clone())].into(), data_plane);
            let groups: Vec<_> = all["blue"].iter().map(|session| session.group.as_deref()).collect();
            assert_eq!(groups, [None, None, None, Some("workers")]);
            all["blue"].iter().map(|session| (session.address, session.state)).collect::<Vec<_>>()
        };
        let expected = |first| {
            [
                (address("10.7.0.1"), first),
                (address("10.7.0.2"), BgpState::Established),
                (address("10.7.0.3"), BgpState::Idle),
                (address("10.7.0.9"), BgpState::Established),
            ]
        };
        assert_eq!(states(false), expected(BgpState::Active));
        assert_eq!(states(true), expected(BgpState::Idle));
    }
}
