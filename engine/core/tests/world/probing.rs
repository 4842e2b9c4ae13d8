//! What agents of a [`World`] find when they probe.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use eno_core::ConditionReason;
use eno_core::kinds::{LeadsTo, Spec};
use eno_core::{ConditionType, Key, Kind, Name, Participant, PendingCommand, Target};
use eno_schemas::{
    Applied, CrossedVlans, Desired, FabricDesired, GatewayAnswer, Lookup, NetworkProbes, NodeDesired,
    Outcome, ProbeResults, Station, Unasked, VlanId, VlanSet, probe_mac,
};

use super::World;

/// Where probes of agents are lost. By default all of them pass.
#[derive(Clone, Debug, Default)]
pub struct Probing {
    /// The VLANs on which a node does not reach the next one.
    pub lost: BTreeSet<(Name, VlanId)>,
    /// The VLANs on which a node reaches the next one with packets of at most this size.
    pub narrow: BTreeMap<(Name, VlanId), u16>,
    /// Pairs of VLANs between which nodes reach the next one.
    pub leaking: BTreeSet<(VlanId, VlanId)>,
    /// Gateways that do not answer.
    pub silent: BTreeSet<IpAddr>,
    /// The MAC addresses of gateways; without an entry, `02:00:00:00:00:01`.
    pub macs: BTreeMap<IpAddr, BTreeSet<String>>,
    /// Nodes that can't ask, with the reason.
    pub unable: BTreeMap<Name, String>,
    /// Nodes that have not probed yet, or whose agents are older.
    pub absent: BTreeSet<Name>,
}

impl Probing {
    /// What the agent of a node finds.
    pub fn results(&self, target: &Target, node: &NodeDesired) -> Vec<ProbeResults> {
        let Target::Node(name) = target else { return Vec::new() };
        let probes = node.probes.iter().filter(|_| !self.absent.contains(name));
        probes.map(|probes| self.result(name, probes)).collect()
    }

    fn result(&self, node: &Name, probes: &NetworkProbes) -> ProbeResults {
        let mut found = probes.carried_out();
        if let Some(reason) = self.unable.get(node) {
            let vlans = std::mem::take(&mut found.passed);
            let unasked = vec![Unasked { reason: reason.into(), vlans }];
            return ProbeResults { unasked, gateways: Vec::new(), isolated: Vec::new(), ..found };
        }
        let lost = self.lost.iter().filter(|(name, _)| name == node).map(|(_, vid)| *vid);
        found.lost = lost.collect::<VlanSet>().intersection(&found.passed);
        found.passed = found.passed.difference(&found.lost);
        let fits = |vid: VlanId| {
            let mtu = probes.paths.iter().find(|path| path.vlans.contains(vid)).and_then(|path| path.mtu);
            let most = self.narrow.get(&(node.clone(), vid));
            mtu.is_none_or(|mtu| most.is_none_or(|most| mtu <= *most))
        };
        found.too_big = found.passed.iter().filter(|vid| !fits(*vid)).collect();
        found.passed = found.passed.difference(&found.too_big);
        let is_leaking = |pair: &CrossedVlans| self.leaking.contains(&(pair.vlan, pair.other));
        (found.leaking, found.isolated) = found.isolated.into_iter().partition(is_leaking);
        for GatewayAnswer { address, macs, .. } in &mut found.gateways {
            if self.silent.contains(address) {
                macs.clear();
            } else if let Some(own) = self.macs.get(address) {
                macs.clone_from(own);
            }
        }
        found
    }
}

impl World {
    /// All agents probe again, and report what they find.
    pub fn probe(&mut self) {
        let nodes = self.applied.keys().filter(|target| matches!(target, Target::Node(_)));
        for target in nodes.cloned().collect::<Vec<_>>() {
            if self.unexecuted(&target).is_none() && !self.silent.contains(&target) {
                self.report_probes(&target);
            }
        }
        self.settle();
    }

    /// The agent of a node reports what it finds.
    fn report_probes(&mut self, target: &Target) {
        let command = self.command(target);
        let rejected = self.rejections.get(target).cloned().unwrap_or_default();
        self.send_report(target, &command, Outcome::Applied, rejected);
    }

    /// Changes what agents find, and lets them probe.
    pub fn probe_with(&mut self, change: impl FnOnce(&mut Probing)) {
        change(&mut self.probing);
        self.probe();
    }

    /// A switch reads its MAC table if it is asked anew.
    pub(super) fn look_up(&mut self, target: &Target) {
        let Target::Fabric(name) = target else { return };
        let Some(state) = self.actual(name) else { return };
        let known = self.answers.get(name).map(|answer| &answer.revision);
        match &state.lookup {
            asked if asked.as_ref() == known => {}
            Some(revision) => {
                let answer = Lookup { revision: revision.clone(), stations: self.stations(name, state) };
                self.answers.insert(name.clone(), answer);
            }
            None => drop(self.answers.remove(name)),
        }
    }

    /// The answer to the lookup of a switch.
    pub(super) fn answer(&self, target: &Target) -> Option<Lookup> {
        let Target::Fabric(name) = target else { return None };
        self.answers.get(name).cloned()
    }

    /// The probes that a switch has learnt: on the port of each node's cable, and of nodes elsewhere on a link.
    fn stations(&self, switch: &Name, state: &FabricDesired) -> Vec<Station> {
        let spec = |key: &Key| match self.objects.get(key).and_then(|object| object.spec.as_ref().ok()) {
            Some(Spec::Device(spec)) => Some(spec.clone()),
            _ => None,
        };
        let devices = self.objects.keys().filter_map(|key| Some((&key.name, spec(key)?))).collect::<Vec<_>>();
        let (mut stations, mut uplink) = (BTreeSet::new(), None);
        let mut listed: BTreeMap<Name, (Name, String)> = BTreeMap::new();
        for (device, port) in
            devices.iter().flat_map(|(device, spec)| spec.ports.iter().map(move |port| (*device, port)))
        {
            match &port.leads_to {
                LeadsTo::Node { node, .. } => {
                    drop(listed.insert(node.clone(), (device.clone(), port.name.to_string())));
                }
                LeadsTo::Device { .. } if device == switch => uplink = Some(port.name.to_string()),
                _ => {}
            }
        }
        listed.extend(self.cables.clone());
        for (node, (device, port)) in listed {
            let port = if device == *switch { Some(port) } else { uplink.clone() };
            let Some(port) = port else { continue };
            let carried = state.ports.iter().find(|one| one.name == port).map(|port| &port.vlans);
            for probes in self.probes_of(&node) {
                let mac = probe_mac("lab", &node, &probes.point).map(|byte| format!("{byte:02x}")).join(":");
                for vlan in carried
                    .into_iter()
                    .flat_map(|vlans| vlans.intersection(&probes.vlans()).iter().collect::<Vec<_>>())
                {
                    stations.insert(Station { mac: mac.clone(), vlan, port: port.clone() });
                }
            }
        }
        stations.into_iter().collect()
    }

    /// No VLAN is probed whose path is not confirmed.
    pub(super) fn assert_probed_paths_are_confirmed(&self, commands: &[(Participant, PendingCommand)]) {
        for (Participant { target, .. }, _) in commands {
            let desired = self.engine.desired(target);
            let Some(Desired::Node(node)) = desired.as_ref().map(|(_, desired)| &**desired) else { continue };
            for probes in &node.probes {
                let vlans = probes.vlans();
                let confirmed = self.confirmed_vlans(&probes.point, &vlans);
                assert_eq!(confirmed, vlans, "{target}: {}", probes.point);
            }
        }
    }

    /// Those of these VLANs that an attachment has at a connection point whose path is confirmed.
    fn confirmed_vlans(&self, point: &str, vlans: &VlanSet) -> VlanSet {
        let is_on_path = |kind| matches!(kind, ConditionType::FabricReady | ConditionType::NodesReady);
        let is_confirmed = |key: &Key| {
            let path = self.engine.path(key);
            path.iter().filter(|hop| is_on_path(hop.part.condition())).all(|hop| hop.state.is_there())
        };
        let attachments = self.objects.iter().filter_map(|(key, object)| match &object.spec {
            Ok(Spec::Attachment(_)) => Some(key),
            _ => None,
        });
        let confirmed = attachments.filter(|key| is_confirmed(key)).filter_map(|key| {
            let realized = self.engine.status(key)?.realized.clone()?;
            let spec = realized.attachment()?;
            if *spec.connection_point != *point {
                return None;
            }
            let services = spec.services.iter().map(|name| Key::cluster(Kind::L2Service, name));
            let granted = services.filter_map(|service| self.engine.status(&service)?.realized.clone());
            Some(granted.filter_map(|realized| Some(realized.service()?.vid)).collect::<VlanSet>())
        });
        confirmed.fold(VlanSet::EMPTY, |all, own| all.union(&own)).intersection(vlans)
    }

    /// Where packets count as lost, an agent found so in its last report, or nothing is probed now. Everything is settled.
    pub fn assert_lost_packets_were_reported(&self) {
        let lost = self.objects.keys().filter_map(|key| Some((key, self.statuses.get(key)?)));
        let lost = lost.filter(|(key, status)| {
            let mut conditions = status.conditions.iter();
            key.kind == Kind::L2ServiceAttachment
                && conditions
                    .any(|one| one.kind == ConditionType::Verified && one.reason == ConditionReason::Lost)
        });
        for (key, status) in lost {
            let node =
                |target: &Target| matches!(target, Target::Node(_)).then(|| self.nats.report(target, "node"));
            let reports = self.applied.keys().filter_map(|target| node(target)?);
            let mut found = reports.filter_map(|report| match &report.applied {
                Some(Applied::Node { probes, .. }) => Some(probes),
                _ => None,
            });
            let is_reported = found.any(|probes| probes.iter().any(|probes| !probes.lost.is_empty()));
            let spec = status.realized.as_deref().and_then(Spec::attachment);
            let point = spec.map(|spec| &spec.connection_point);
            let is_probed = self.nodes.keys().any(|node| {
                self.probes_of(node).iter().any(|probes| point.is_some_and(|point| *probes.point == **point))
            });
            assert!(is_reported || !is_probed, "{key}: {:?}", status.conditions);
        }
    }

    /// The probes that a node was commanded last.
    pub fn probes_of(&self, node: &str) -> Vec<NetworkProbes> {
        match self.applied.get(&Target::Node(node.into())) {
            Some(Desired::Node(desired)) => desired.probes.clone(),
            _ => Vec::new(),
        }
    }
}
