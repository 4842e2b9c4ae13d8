//! What probes tell: whether packets pass on the VLANs of an attachment or service.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use eno_schemas::{VerifyBetween, VerifyMode, VlanId, VlanSet, VlanType};
use ipnet::IpNet;

use crate::evaluate::{Evaluator, NetworkPath, PortsVisited};
use crate::fabric::locate::{Gateway, Probe, ProbeEnd, locate};
use crate::kinds::{AttachmentSpec, LeadsTo, Plugin, ServiceSpec, Spec, Verify, VrfAttachmentSpec, compat};
use crate::name::and_more;
use crate::node::demands::Demand;
use crate::node::probes::{MAX_GATEWAYS, ProbeRequest, ProbedVlan, Tally};
use crate::node::shape::Shape;
use crate::status::evaluation::{Evaluation, Verified};
use crate::status::hop::Part;
use crate::status::inputs::Inputs;
use crate::{ConditionReason, Key, Kind, Name};

/// Maximum of entries of a list in a message.
const MAX_LISTED: usize = 3;
/// The MTU of a network for which none is wanted.
const DEFAULT_MTU: u32 = 1500;
/// The least MTU of a link with IPv6 (RFC 8200, 5).
const MIN_MTU: u32 = 1280;
/// Why nothing is asked: the agents are older.
pub(super) const TOO_OLD: &str = "the agents of its nodes are of a version that does not probe";
/// Why nothing is asked: there is nobody.
pub(super) const NOBODY: &str = "there is no other node and no gateway to ask";
/// The beginnings of MAC addresses that several routers share (VRRP, HSRP): one of them answers.
const SHARED_MACS: [&str; 4] = ["00:00:5e:00:01:", "00:00:5e:00:02:", "00:00:0c:07:ac:", "00:00:0c:9f:f"];

/// A VLAN that is probed, where, and what was found.
struct Probed<'a> {
    point: &'a Name,
    network: &'a str,
    vid: VlanId,
    vlan: &'a ProbedVlan,
    verify: Verify,
    tally: Option<&'a Tally>,
    /// Bytes of the packets that are to pass too.
    size: Option<u16>,
}

impl Probed<'_> {
    /// The gateways that are asked.
    fn gateways(&self) -> impl Iterator<Item = (&IpAddr, &BTreeMap<BTreeSet<String>, u32>)> {
        let answers = self.tally.into_iter().flat_map(|tally| &tally.gateways);
        answers.filter(|(address, _)| {
            self.verify.between != VerifyBetween::Nodes && self.vlan.gateways.contains(address)
        })
    }

    /// True when nodes ask each other.
    fn asks_nodes(&self) -> bool {
        self.verify.between != VerifyBetween::Gateway
    }

    /// The gateways that answer nobody.
    fn silent_gateways(&self) -> impl Iterator<Item = &IpAddr> {
        let is_silent = |answers: &BTreeMap<BTreeSet<String>, u32>| answers.keys().all(BTreeSet::is_empty);
        self.gateways().filter(move |(_, answers)| is_silent(answers)).map(|(address, _)| address)
    }

    /// Packets of the MTU are lost, and small ones are not.
    fn is_too_big(&self) -> bool {
        self.size.is_some() && self.asks_nodes() && self.tally.is_some_and(|tally| tally.too_big > 0)
    }

    fn is_lost(&self) -> bool {
        let silent = |answers: &BTreeMap<BTreeSet<String>, u32>| answers.contains_key(&BTreeSet::new());
        (self.asks_nodes() && self.tally.is_some_and(|tally| tally.lost > 0))
            || self.gateways().any(|(_, answers)| silent(answers))
    }

    /// The next node answered one, if only to small packets.
    fn reaches_nodes(&self) -> bool {
        self.asks_nodes() && self.tally.is_some_and(|tally| tally.passed > 0 || tally.too_big > 0)
    }
}

impl Evaluator<'_> {
    /// How a connection point is probed. `None`: it is not.
    pub(super) fn verify(&self, point: &Name) -> Option<Verify> {
        let verify = self.store.connection_point(point)?.verify;
        (self.config.nodes && self.config.verify && verify.mode != VerifyMode::None).then_some(verify)
    }

    /// Notes what probes tell of an attachment or service. Returns what is to be probed for an attachment. `is_confirmed`:
    /// everything on its path is there.
    pub(super) fn note_verified(
        &self,
        key: &Key,
        networks: &[NetworkPath],
        is_confirmed: bool,
        evaluation: &mut Evaluation,
    ) -> Option<ProbeRequest> {
        match key.kind {
            Kind::L2ServiceAttachment => {
                let spec = self.store.effective(key, Spec::attachment)?;
                self.verify(&spec.connection_point)?;
                let request = self.probe_request(key, spec, networks, is_confirmed);
                evaluation.verified = Some(match &request.hindrance {
                    Some(why) => Verified::impossible(why),
                    None if request.vlans.is_empty() => Verified::without_path(),
                    None => self.verdict(of_request(&request)),
                });
                Some(request)
            }
            Kind::L2Service => {
                evaluation.verified = self.verdict_on_service(key);
                None
            }
            _ => None,
        }
    }

    /// Why an attachment that would be ready for the first time is not: its connection point lets it be ready only when
    /// packets pass.
    pub(super) fn awaited_probes(&self, key: &Key, evaluation: &Evaluation) -> Option<String> {
        let spec = self.store.effective(key, Spec::attachment)?;
        self.verify(&spec.connection_point).filter(|verify| verify.mode == VerifyMode::Gate)?;
        let verified = evaluation.verified.as_ref()?;
        let nodes = self.hosts.nodes;
        let mut vlans = nodes.probe_request(key).into_iter().flat_map(of_request);
        // Small packets are enough.
        let fails = verified.fails() && verified.state.reason != ConditionReason::TooBig;
        let why = if verified.awaits.is_some() || fails {
            &*verified.state.message
        } else if !vlans.all(|(of, vid, _)| nodes.is_probed_by_all(&of.point, &of.network, vid)) {
            "some nodes have not probed yet"
        } else {
            return None;
        };
        Some(format!("waits for the probes: {why}"))
    }

    /// An attachment at a probed connection point, for which nothing is probed for this reason.
    pub(super) fn hindered_probes(&self, key: &Key, why: &str) -> Option<ProbeRequest> {
        let spec = self.store.effective(key, Spec::attachment)?;
        self.verify(&spec.connection_point)?;
        Some(hindered(spec, why.to_owned()))
    }

    /// What is to be probed for an attachment.
    fn probe_request(
        &self,
        key: &Key,
        spec: &AttachmentSpec,
        networks: &[NetworkPath],
        is_confirmed: bool,
    ) -> ProbeRequest {
        let network = match self.probed_network(spec) {
            Ok(network) => network,
            Err(why) => return hindered(spec, why),
        };
        let (point, services) = (spec.connection_point.clone(), services_of(spec));
        let demand = self.hosts.demand(key).filter(|demand| demand.network == network);
        let vlans = demand.into_iter().flat_map(|demand| {
            let carried = move |path: &&NetworkPath| {
                let is_carried = demand.vids.contains(&path.vid);
                is_carried && (is_confirmed || self.is_path_confirmed(key, demand, path))
            };
            networks.iter().filter(carried).map(move |path| (path.vid, self.probed_vlan(key, demand, path)))
        });
        let vlans = vlans.collect();
        ProbeRequest { point, network, services, vlans, hindrance: None }
    }

    /// True when all on the path of a VLAN is there, but for what leads to nodes that do not probe.
    fn is_path_confirmed(&self, key: &Key, demand: &Demand, path: &NetworkPath) -> bool {
        let probes = |node: &Name| self.hosts.nodes.probes_at(&demand.point, node).is_some();
        let mut is_there = path.gap.is_none() && self.hosts.has_vlan(demand, path.vid);
        self.visit_network(key, path, PortsVisited::All, &mut |hop| {
            let is_idle = match hop.part {
                Part::Port { leads_to: Some(LeadsTo::Node { node, .. }), .. } => !probes(node),
                _ => false,
            };
            is_there &= is_idle || hop.state.is_there();
        });
        is_there
    }

    /// The network of the host through which an attachment is probed; or why it can't be.
    fn probed_network(&self, spec: &AttachmentSpec) -> Result<String, String> {
        let point = &spec.connection_point;
        let chosen = self.store.connection_point(point).and_then(|point| compat::choose(spec, point).ok());
        let Some(chosen) = chosen else { return Err("nothing makes it".into()) };
        let cni = chosen.plugin.name();
        let network = match &chosen.plugin {
            Plugin::Ovs { bridge_name, .. } | Plugin::Bridge { bridge_name } => bridge_name,
            // Agents probe by macvlan, which can't share its parent with ipvlan.
            Plugin::Macvlan { master } if spec.vlan_type == VlanType::Access => master,
            _ => {
                let vlan_type = spec.vlan_type.as_str();
                return Err(format!("agents can't probe what {} makes for {vlan_type}", cni.as_str()));
            }
        };
        match self.hosts.nodes.shape(point, network) {
            Some(Shape::Ovs { uplink, .. } | Shape::Bridge { uplink }) if uplink.is_empty() => {
                return Err(format!("{network} has no uplink"));
            }
            _ => {}
        }
        let ports = self.fabric.point(point).map(|point| &point.ports);
        let is_secured = |device: &&Name| {
            let settings = self.fabric.device(device).and_then(|device| device.access().neutron.as_ref());
            settings.is_some_and(|settings| settings.port_security)
        };
        match ports.into_iter().flatten().map(|(device, _)| device).find(is_secured) {
            Some(device) => Err(format!("FabricDevice {device}: port security drops what agents send")),
            None => Ok(network.clone()),
        }
    }

    /// A VLAN of a path that is confirmed.
    fn probed_vlan(&self, key: &Key, demand: &Demand, path: &NetworkPath) -> ProbedVlan {
        let point = &demand.point;
        let mtu = demand.mtu.unwrap_or(DEFAULT_MTU).max(MIN_MTU);
        let mut revision = Inputs::default();
        revision.add(&self.fabric.hash_of(&path.ports));
        let (mut gateways, mut withheld) = (BTreeSet::new(), BTreeSet::new());
        for (own, spec) in self.store.vrf_attachments_of(&path.network) {
            let addresses = spec.addresses().map(IpNet::addr);
            if self.is_led_in(own, spec, point) {
                revision.add(&(own.to_string(), &spec.interfaces));
                gateways.extend(addresses);
            } else {
                withheld.extend(addresses);
            }
        }
        if let Some(service) = self.store.effective(&path.network, Spec::service) {
            gateways.extend(self.next_hops(service).filter(|hop| !withheld.contains(hop)));
        }
        ProbedVlan {
            service: path.network.clone(),
            revision: u32::try_from(revision.finish() >> 32).unwrap_or_default(),
            gateways: gateways.into_iter().take(MAX_GATEWAYS).collect(),
            mtu: u16::try_from(mtu).unwrap_or(u16::MAX),
            asked: self.asked([key, &path.network, &Key::cluster(Kind::ConnectionPoint, point)]),
        }
    }

    /// The next hops in a service's Subnets.
    fn next_hops(&self, service: &ServiceSpec) -> impl Iterator<Item = IpAddr> {
        let subnets = service.subnets.iter().filter_map(|name| self.store.subnet(name));
        subnets.flat_map(|subnet| {
            let routes = subnet.routes.iter().filter_map(|name| self.store.route(name));
            routes.map(|route| route.next_hop).filter(|hop| subnet.network.contains(hop))
        })
    }

    /// True when all that leads a service into a VRF is there, from a connection point to the devices.
    fn is_led_in(&self, key: &Key, spec: &VrfAttachmentSpec, point: &Name) -> bool {
        let Some((network, vid, ports)) = self.fabric.path_into_vrf(self.store, spec, std::iter::once(point))
        else {
            return false;
        };
        let path = NetworkPath { network, vid, ports, gap: None };
        let mut is_there = spec.devices().all(|device| self.fabric.device(device).is_some());
        self.visit_network(key, &path, PortsVisited::Deciding, &mut |hop| is_there &= hop.state.is_there());
        self.visit_routed(key, &[path], &mut |hop| is_there &= hop.state.is_there());
        is_there
    }

    /// The verdict on a service: that on all of its attachments. `None`: none of them is probed.
    fn verdict_on_service(&self, service: &Key) -> Option<Verified> {
        let attachments = self.store.referrers(service).filter_map(|user| {
            let record = self.store.get(user).filter(|record| !record.deleting)?;
            let spec = record.effective.as_deref()?.attachment()?;
            self.verify(&spec.connection_point)?;
            // Without a request, it is not evaluated yet.
            spec.services.contains(&service.name).then(|| self.hosts.nodes.probe_request(user))
        });
        let attachments: Vec<Option<&ProbeRequest>> = attachments.collect();
        let first = attachments.first()?;
        let vlans = attachments.iter().flatten().copied().flat_map(of_request);
        let mut vlans = vlans.filter(|(_, _, vlan)| vlan.service == *service).peekable();
        if vlans.peek().is_some() {
            return Some(self.verdict(vlans));
        }
        let can_be =
            attachments.iter().any(|request| request.is_none_or(|request| request.hindrance.is_none()));
        Some(match first.and_then(|first| first.hindrance.as_ref()) {
            Some(why) if !can_be => Verified::impossible(why),
            _ if attachments.iter().any(Option::is_none) => Verified::awaited(),
            _ => Verified::without_path(),
        })
    }

    /// The verdict on some VLANs.
    fn verdict<'b>(
        &self,
        vlans: impl Iterator<Item = (&'b ProbeRequest, VlanId, &'b ProbedVlan)>,
    ) -> Verified {
        let mut all: BTreeMap<(&Name, &str, VlanId), Probed<'_>> = BTreeMap::new();
        for (ProbeRequest { point, network, .. }, vid, vlan) in vlans {
            let Some(verify) = self.verify(point) else { continue };
            let tally = self.hosts.nodes.tally(point, network, vid);
            let size = self.hosts.nodes.probed_size(point, network, vid);
            let probed = Probed { point, network, vid, vlan, verify, tally, size };
            all.entry((point, network, vid)).or_insert(probed);
        }
        let all: Vec<Probed<'_>> = all.into_values().collect();
        if let Some(message) = self.describe_lost(&all) {
            return Verified::new(false, ConditionReason::Lost, message);
        }
        if let Some(message) = self.describe_duplicates(&all) {
            return Verified::new(false, ConditionReason::DuplicateAddress, message);
        }
        if let Some(message) = self.describe_too_big(&all) {
            return Verified::new(false, ConditionReason::TooBig, message);
        }
        let answers = describe_answers(&all);
        if !answers.is_empty() || all.iter().any(Probed::reaches_nodes) {
            let message = if answers.is_empty() { "each node reaches the next one".into() } else { answers };
            return Verified::new(true, ConditionReason::Answered, message);
        }
        self.unknown(&all)
    }

    /// Why nothing is known of VLANs.
    fn unknown(&self, all: &[Probed<'_>]) -> Verified {
        let nodes = self.hosts.nodes;
        let asks = |one: &Probed<'_>| {
            let asks_gateways = one.verify.between != VerifyBetween::Nodes && !one.vlan.gateways.is_empty();
            asks_gateways || (one.asks_nodes() && nodes.has_ring(one.point))
        };
        if !all.iter().any(|one| nodes.has_agent(one.point))
            && all.iter().any(|one| nodes.has_agent_without_visits(one.point))
        {
            return Verified::unknown(TOO_OLD);
        }
        if !all.iter().any(asks) {
            return Verified::impossible(NOBODY);
        }
        if !all.iter().any(|one| nodes.has_agent(one.point)) {
            return Verified::unknown("no agent of its nodes is alive");
        }
        match all.iter().find_map(|one| nodes.unasked(one.point, one.network, one.vid)) {
            Some(why) => Verified::unknown(&**why),
            None => Verified::awaited(),
        }
    }

    /// The probes on a VLAN.
    fn probes(&self, probed: &Probed<'_>) -> Vec<Probe> {
        let mut probes = Vec::new();
        let gateways: BTreeMap<&IpAddr, Arc<Gateway>> = probed
            .gateways()
            .map(|(address, _)| (address, self.gateway(&probed.vlan.service, *address).into()))
            .collect();
        for (from, results) in self.hosts.nodes.results(probed.point, probed.network) {
            let mut add = |to, passed| probes.push(Probe { from: from.clone(), to, passed });
            let next = self.hosts.nodes.neighbours(probed.point, from).filter(|_| probed.asks_nodes());
            // A packet that is too big shows that small ones pass.
            let passed = results.passed.contains(probed.vid) || results.too_big.contains(probed.vid);
            if let Some((next, _)) = next.filter(|_| passed || results.lost.contains(probed.vid)) {
                add(ProbeEnd::Node(next.clone()), passed);
            }
            for answer in results.gateways.iter().filter(|one| one.vlans.contains(probed.vid)) {
                if let Some(gateway) = gateways.get(&answer.address) {
                    add(ProbeEnd::Gateway(gateway.clone()), !answer.macs.is_empty());
                }
            }
        }
        probes
    }

    /// The probes with packets of the MTU on a VLAN.
    fn probes_of_size(&self, probed: &Probed<'_>) -> Vec<Probe> {
        let nodes = self.hosts.nodes;
        let probes = nodes.results(probed.point, probed.network).filter_map(|(from, results)| {
            let passed = results.passed.contains(probed.vid);
            if !passed && !results.too_big.contains(probed.vid) {
                return None;
            }
            let (next, _) = nodes.neighbours(probed.point, from)?;
            Some(Probe { from: from.clone(), to: ProbeEnd::Node(next.clone()), passed })
        });
        probes.collect()
    }

    /// A gateway of a service.
    fn gateway(&self, service: &Key, address: IpAddr) -> Gateway {
        let attachments = self.store.vrf_attachments_of(service).flat_map(|(_, spec)| &spec.interfaces);
        let with_it = attachments.filter(|one| one.addresses.iter().any(|own| own.addr() == address));
        let devices: BTreeSet<Name> = with_it.map(|one| one.device.clone()).collect();
        let spec = self.store.effective(service, Spec::service).filter(|_| devices.is_empty());
        let networks = spec.into_iter().flat_map(|spec| &spec.physical_networks);
        let led = networks.filter_map(|network| self.fabric.topology().network_ports(network)).flatten();
        let ports = led.flat_map(|(device, indices)| indices.iter().map(|index| (device.clone(), *index)));
        let label = match devices.first() {
            Some(first) => format!("{address} at FabricDevice {}", and_more(first, devices.len())),
            None => address.to_string(),
        };
        Gateway { label, ports: ports.collect(), devices }
    }

    /// What explains the probes that were lost on VLANs, as a message. `None`: none was lost.
    fn describe_lost(&self, all: &[Probed<'_>]) -> Option<String> {
        // Probes of all connection points on a VLAN tell of the same ports.
        let mut vlans: BTreeMap<(&Key, VlanId), Vec<&Probed<'_>>> = BTreeMap::new();
        for probed in all {
            vlans.entry((&probed.vlan.service, probed.vid)).or_default().push(probed);
        }
        let names_vlan = vlans.len() > 1;
        vlans.retain(|_, probed| probed.iter().any(|one| one.is_lost()));
        let mut located: BTreeMap<String, VlanSet> = BTreeMap::new();
        for ((service, vid), probed) in vlans {
            let probes: Vec<Probe> = probed.iter().flat_map(|one| self.probes(one)).collect();
            let mut message = self.locate(service, &probes);
            // What is named may be the port behind which a gateway is.
            let silent: BTreeSet<&IpAddr> = probed.iter().flat_map(|one| one.silent_gateways()).collect();
            let silent: Vec<String> = silent.into_iter().map(ToString::to_string).collect();
            if silent.iter().any(|address| !message.contains(address)) {
                message = format!("nothing answers for {}: {message}", list(&silent));
            }
            located.entry(message).or_default().insert(vid);
        }
        by_vlan(&located, names_vlan)
    }

    /// What explains that packets of the MTU are lost on VLANs, as a message. `None`: none was lost.
    fn describe_too_big(&self, all: &[Probed<'_>]) -> Option<String> {
        let names_vlan = all.iter().any(|probed| probed.vid != all[0].vid);
        let mut vlans: BTreeMap<(&Key, VlanId, u16), Vec<Probe>> = BTreeMap::new();
        for probed in all.iter().filter(|probed| probed.is_too_big()) {
            let Some(mtu) = probed.size else { continue };
            let probes = vlans.entry((&probed.vlan.service, probed.vid, mtu)).or_default();
            probes.extend(self.probes_of_size(probed));
        }
        let mut located: BTreeMap<String, VlanSet> = BTreeMap::new();
        for ((service, vid, mtu), probes) in vlans {
            let message = format!("packets of {mtu} bytes: {}", self.locate(service, &probes));
            located.entry(message).or_default().insert(vid);
        }
        by_vlan(&located, names_vlan)
    }

    /// What explains the probes that fail on the VLAN of a service, as a message.
    fn locate(&self, service: &Key, probes: &[Probe]) -> String {
        let planned = self.fabric.placements.get(service).and_then(|one| one.planned.clone());
        let ports = planned.map(|(_, ports)| ports).unwrap_or_default();
        let suspicions = locate(self.fabric.topology(), &ports, probes);
        list(&suspicions.iter().map(ToString::to_string).collect::<Vec<_>>())
    }

    /// The addresses of gateways that several hosts have, as a message. `None`: there are none.
    fn describe_duplicates(&self, all: &[Probed<'_>]) -> Option<String> {
        let texts = all.iter().flat_map(|probed| {
            let doubled = probed.gateways().filter_map(|(address, answers)| {
                let macs: BTreeSet<&str> = answers.keys().flatten().map(String::as_str).collect();
                let is_shared = |mac: &&&str| SHARED_MACS.iter().any(|shared| mac.starts_with(shared));
                let own: Vec<String> =
                    macs.iter().filter(|mac| !is_shared(mac)).map(|mac| (*mac).to_owned()).collect();
                let is_doubled = own.len() > 1 && !self.is_anycast(&probed.vlan.service, *address);
                is_doubled.then(|| format!("{address} on VLAN {} is at {}", probed.vid, list(&own)))
            });
            doubled.collect::<Vec<_>>()
        });
        let texts: Vec<String> = texts.collect();
        (!texts.is_empty()).then(|| list(&texts))
    }

    /// Several devices have this address of a service.
    fn is_anycast(&self, service: &Key, address: IpAddr) -> bool {
        let addresses = self.store.vrf_attachments_of(service).flat_map(|(_, spec)| spec.addresses());
        addresses.filter(|one| one.addr() == address).nth(1).is_some()
    }
}

/// The request of an attachment for which nothing is probed.
fn hindered(spec: &AttachmentSpec, why: String) -> ProbeRequest {
    ProbeRequest {
        point: spec.connection_point.clone(),
        network: String::new(),
        services: services_of(spec),
        vlans: BTreeMap::new(),
        hindrance: Some(why),
    }
}

fn services_of(spec: &AttachmentSpec) -> BTreeSet<Key> {
    spec.services.iter().map(|name| Key::cluster(Kind::L2Service, name)).collect()
}

/// The VLANs of a request.
fn of_request(request: &ProbeRequest) -> impl Iterator<Item = (&ProbeRequest, VlanId, &ProbedVlan)> {
    request.vlans.iter().map(move |(vid, vlan)| (request, *vid, vlan))
}

/// Which gateways answered, and from where.
fn describe_answers(all: &[Probed<'_>]) -> String {
    let names_vlan = all.iter().any(|probed| probed.vid != all[0].vid);
    let mut texts = Vec::new();
    for probed in all {
        for (address, answers) in probed.gateways() {
            let macs: BTreeSet<&String> = answers.keys().flatten().collect();
            let macs: Vec<String> = macs.into_iter().cloned().collect();
            let vlan = if names_vlan { format!(" on VLAN {}", probed.vid) } else { String::new() };
            let text = format!("{address} answers from {}{vlan}", list(&macs));
            if !macs.is_empty() && !texts.contains(&text) {
                texts.push(text);
            }
            if texts.len() > MAX_LISTED {
                return list(&texts);
            }
        }
    }
    list(&texts)
}

/// Messages, each with its VLANs, as one.
fn by_vlan(located: &BTreeMap<String, VlanSet>, names_vlan: bool) -> Option<String> {
    let texts =
        located.iter().map(
            |(message, vlans)| {
                if names_vlan { format!("VLAN {vlans}: {message}") } else { message.clone() }
            },
        );
    let texts: Vec<String> = texts.take(MAX_LISTED + 1).collect();
    (!texts.is_empty()).then(|| list(&texts))
}

/// The first of some texts.
fn list(texts: &[String]) -> String {
    let more = if texts.len() > MAX_LISTED { " and more" } else { "" };
    format!("{}{more}", texts[..texts.len().min(MAX_LISTED)].join(", "))
}
