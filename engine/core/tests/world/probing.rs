//! What agents of a [`World`] find when they probe.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use eno_core::{Name, Target};
use eno_schemas::{Desired, GatewayAnswer, NodeDesired, Outcome, ProbeResults, Unasked, VlanId, VlanSet};

use super::World;

/// Where probes of agents are lost. By default all of them pass.
#[derive(Clone, Debug, Default)]
pub struct Probing {
    /// The VLANs on which a node does not reach the next one.
    pub lost: BTreeSet<(Name, VlanId)>,
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
        probes.map(|probes| self.result(name, probes.carried_out())).collect()
    }

    fn result(&self, node: &Name, mut found: ProbeResults) -> ProbeResults {
        if let Some(reason) = self.unable.get(node) {
            let vlans = std::mem::take(&mut found.passed);
            let unasked = vec![Unasked { reason: reason.into(), vlans }];
            return ProbeResults { unasked, gateways: Vec::new(), ..found };
        }
        let lost = self.lost.iter().filter(|(name, _)| name == node).map(|(_, vid)| *vid);
        found.lost = lost.collect::<VlanSet>().intersection(&found.passed);
        found.passed = found.passed.difference(&found.lost);
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

    /// The probes that a node was told last.
    pub fn probes_of(&self, node: &str) -> Vec<eno_schemas::NetworkProbes> {
        match self.applied.get(&Target::Node(node.into())) {
            Some(Desired::Node(desired)) => desired.probes.clone(),
            _ => Vec::new(),
        }
    }
}
