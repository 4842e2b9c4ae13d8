//! BGP sessions between nodes and devices: their states, and what hinders them in words.

use std::borrow::Cow;
use std::collections::HashMap;
use std::net::IpAddr;

use eno_schemas::{BgpError, BgpSession, BgpState};
use ipnet::IpNet;

use crate::bgp::{SPEAKER_DRIVER, gateways};
use crate::evaluate::Evaluator;
use crate::kinds::{BgpSessionGroupSpec, Spec};
use crate::pods::state::NO_AGENTS;
use crate::status::bgp::{Session, Sessions};
use crate::status::evaluation::Evaluation;
use crate::status::hop::{Aspect, Hop, HopState, Part};
use crate::{ConditionReason, ConditionType, Key, Kind, Name};

/// NOTIFICATION codes and subcodes (RFC 4271, section 4.5; RFC 4486).
const BAD_PEER_AS: (u8, u8) = (2, 2);
const BAD_ROUTER_ID: (u8, u8) = (2, 3);
const HOLD_TIMER: u8 = 4;
const MAXIMUM_PREFIXES: (u8, u8) = (6, 1);

/// A session that is to be.
struct Expected<'a> {
    node: &'a Name,
    worker: IpAddr,
    device: &'a Name,
    gateway: IpAddr,
    /// As the device knows it.
    found: Option<&'a BgpSession>,
}

impl<'a> Evaluator<'a> {
    /// Visits the interfaces of nodes, the sessions on devices as configuration, and each session of a ready node.
    pub(super) fn visit_sessions(&self, key: &Key, visit: &mut dyn FnMut(Hop<'a>)) {
        let Some((key, spec)) = self.session_group(key) else { return };
        if !self.config.nodes {
            return visit(Hop::missing(Part::Agents, NO_AGENTS));
        }
        let name = self.groups.interface(key);
        if let Some((node, problem)) = self.groups.problem(key) {
            let part = Part::Network { node, noun: "interface", network: name, aspect: Aspect::Whole };
            visit(Hop::missing(part, format!("Node {node}: {problem}")));
        }
        if self.groups.problem(key).is_none() && self.groups.workers(key).next().is_none() {
            let why = if self.groups.listed(key).is_empty() {
                "no node takes part"
            } else {
                "its addresses are being written down"
            };
            visit(Hop::missing(Part::Link, why));
        }
        for (node, _) in self.groups.workers(key) {
            let Some((node, target)) = self.hosts.nodes.ready_node(node) else { continue };
            let state = target.network_hop(name, None, None, target.bridge_since(name));
            let part = Part::Network { node, noun: "interface", network: name, aspect: Aspect::Whole };
            visit(self.hosts.hop(node, part, state));
        }
        if let Some(state) = self.groups.speaker_hop(key) {
            visit(Hop { part: Part::Speaker, state: state.waiting_for(|| self.wait(SPEAKER_DRIVER)) });
        }
        let vrf = self.store.effective(&Key::cluster(Kind::VRF, &spec.vrf), Spec::vrf);
        let vrf = vrf.map_or(&*spec.vrf, |vrf| vrf.device_name(&spec.vrf));
        let mut devices: Vec<&Name> = gateways(self.store, spec).map(|(device, _)| device).collect();
        devices.dedup();
        if devices.is_empty() {
            let message = format!("no VRFAttachment leads L2Service {} into VRF {}", spec.service, spec.vrf);
            visit(Hop::missing(Part::Link, message));
        }
        for name in devices {
            let part = Part::Vrf { device: name, vrf };
            let Some(device) = self.fabric.device(name) else {
                visit(Hop::missing(part, format!("FabricDevice {name} is not looked at yet")));
                continue;
            };
            visit(Hop {
                part,
                state: device.sessions_hop(key, vrf).waiting_for(|| self.wait(&device.driver)),
            });
        }
        for one in self.expected_sessions(key, spec) {
            if self.hosts.nodes.ready_node(one.node).is_none() {
                continue;
            }
            let part = Part::Session { node: one.node, device: one.device, address: one.gateway };
            visit(match one.hindrance(spec) {
                None => Hop { part, state: HopState::Confirmed },
                Some(why) => Hop::missing(part, format!("{part}: {why}")),
            });
        }
    }

    /// The sessions of a group, for its status.
    pub(super) fn sessions(&self, key: &Key) -> Option<Sessions> {
        let (key, spec) = self.session_group(key)?;
        let session = |one: Expected<'_>| Session {
            is_established: one.is_established(),
            node: one.node.clone(),
            device: one.device.clone(),
            address: one.gateway,
            state: one.found.map(|found| found.state),
            since: one.found.and_then(|found| found.since.clone()),
            last_error: one.hindrance(spec).map(Cow::into_owned),
        };
        let mut listed: Vec<Session> = self.expected_sessions(key, spec).into_iter().map(session).collect();
        let all = listed.len();
        let established = listed.iter().filter(|one| one.is_established).count();
        listed.sort_unstable();
        listed.truncate(Sessions::MAX_LISTED);
        Some(Sessions { listed, all, established })
    }

    /// Adds the condition AnnouncedToAll when the driver of speakers reports it.
    pub(super) fn note_speaker(&self, key: &Key, evaluation: &mut Evaluation) {
        let kind = ConditionType::AnnouncedToAll;
        if let Some(note) = self.groups.speaker_notes(key).find(|note| note.kind == kind.as_ref()) {
            evaluation.note(kind, true, ConditionReason::ReportedByDriver, note.message.as_str());
        }
    }

    /// The first thing that is not confirmed to be gone of a group which is being deleted.
    pub(super) fn remains_of_sessions(&self, key: &Key, evaluation: &mut Evaluation) -> Option<String> {
        if key.kind != Kind::BGPSessionGroup {
            return None;
        }
        if let Some((name, device)) = self.fabric.device_with_sessions_of(key) {
            evaluation.awaited = Some(name.clone());
            let failure = device.failure.as_ref().map(|failure| failure.reason.as_str());
            return Some(match failure {
                Some(why) => format!("FabricDevice {name}: its BGP sessions can't be removed yet: {why}"),
                None => format!(
                    "FabricDevice {name}: the removal of its BGP sessions {}",
                    self.wait(&device.driver)
                ),
            });
        }
        if let Some(state) = self.groups.speaker_hop(key) {
            let state = state.waiting_for(|| self.wait(SPEAKER_DRIVER));
            let hop = Hop { part: Part::Speaker, state };
            return Some(format!("its removal from {}", hop.message().unwrap_or_default()));
        }
        let node = self.groups.remaining_node(key)?;
        evaluation.waits_on = Some(node.clone());
        Some(format!("Node {node}: the removal of its interface {}", self.hosts.wait(node)))
    }

    fn session_group(&self, key: &Key) -> Option<(&'a Key, &'a BgpSessionGroupSpec)> {
        let key = self.store.key(key).filter(|key| key.kind == Kind::BGPSessionGroup)?;
        Some((key, self.store.effective(key, Spec::bgp_session_group)?))
    }

    /// All sessions that are to be: of each worker with each gateway in its networks.
    fn expected_sessions(&self, key: &'a Key, spec: &'a BgpSessionGroupSpec) -> Vec<Expected<'a>> {
        let mut all = Vec::new();
        for (device, gateway) in gateways(self.store, spec) {
            let gateway = gateway.addr();
            let known =
                self.fabric.device(device).and_then(|device| device.sessions(key)).unwrap_or_default();
            let known: HashMap<IpAddr, &BgpSession> =
                known.iter().map(|session| (session.address, session)).collect();
            for (node, addresses) in self.groups.workers(key) {
                let own = addresses.iter().filter(|address| address.contains(&gateway)).map(IpNet::addr);
                all.extend(own.map(|worker| {
                    let found = known.get(&worker).copied();
                    Expected { node, worker, device, gateway, found }
                }));
            }
        }
        all
    }
}

impl Expected<'_> {
    fn is_established(&self) -> bool {
        self.found.is_some_and(|found| found.state == BgpState::Established)
    }

    /// Why the session is not established, in words.
    fn hindrance(&self, spec: &BgpSessionGroupSpec) -> Option<Cow<'static, str>> {
        let (worker, gateway) = (self.worker, self.gateway);
        let unconnected = || -> Cow<'static, str> {
            let or = if spec.device_secret.is_some() { ", or its password is another one" } else { "" };
            format!("no connection: no speaker with peer {gateway} answers on {worker}{or}").into()
        };
        let Some(found) = self.found else {
            // A device knows no neighbour of a network before that connects.
            return Some(if spec.by_prefix {
                unconnected()
            } else {
                "the device does not know it yet".into()
            });
        };
        if self.is_established() {
            return None;
        }
        Some(match found.last_error {
            Some(BgpError { code, subcode, received }) if (code, subcode) == BAD_PEER_AS => {
                let (who, is) =
                    if received { ("the node", spec.peer_asn) } else { ("the device", spec.local_asn) };
                format!("{who} refuses the AS of the other side (0202): give the speaker of the node LocalASN {} and the \
                         peer AS {}, not another for {is}", spec.local_asn, spec.peer_asn).into()
            }
            Some(BgpError { code, subcode, received }) if (code, subcode) == BAD_ROUTER_ID => {
                let (who, whose) = if received { ("the node", "device") } else { ("the device", "speaker") };
                format!("{who} refuses the router ID of the other side (0203): it is 0.0.0.0 or its own; give the {whose} \
                         another").into()
            }
            Some(BgpError { code, subcode, .. }) if (code, subcode) == MAXIMUM_PREFIXES => {
                let most = spec.maximum_prefixes.unwrap_or_default();
                format!("the node announces more than {most} prefixes (0601); raise MaximumPrefixes, or announce less").into()
            }
            Some(BgpError { code, received, .. }) if code == HOLD_TIMER => {
                let who = if received { "the node" } else { "the device" };
                format!("{who} heard nothing for the HoldTime (0400); it tries again").into()
            }
            Some(BgpError { code, subcode, received }) => {
                let who = if received { "the node" } else { "the device" };
                format!("{who} ended it with the NOTIFICATION {code:02}{subcode:02} (RFC 4271, section 4.5)")
                    .into()
            }
            None if found.state >= BgpState::OpenSent => {
                "the other side has not answered its OPEN yet".into()
            }
            None => unconnected(),
        })
    }
}
