//! What nodes hold: what they have given back is free, and what they have beyond their leases is taken into the list.

use std::net::IpAddr;

use eno_schemas::{AppliedAddresses, PodAddress};
use ipnet::IpNet;

use super::GONE_AFTER;
use super::plan::{MAX_OF_NODE, Plan};
use super::render::BLOCK_BYTES;
use crate::Name;
use crate::pods::ipam::blocks::{Block, Stage, aligned, gaps, size, span};
use crate::pods::ipam::{Source, hosts, number};

impl Plan<'_> {
    /// Moves blocks on: those that are written are given, and those that their node does not hold any more are free.
    pub fn settle_blocks(&mut self) {
        let shares = &self.shares;
        self.leasing.gone.retain(|node, _| shares.get(node).is_some_and(|share| share.target.is_none()));
        for (net, block) in self.blocks() {
            if self.is_gone_for_good(&block.node) {
                self.ipam.release_part(&self.pool, &net);
                continue;
            }
            match block.stage {
                Stage::Leased(revision) if revision <= self.leasing.written => {
                    self.ipam.set_stage(&self.pool, &net, Stage::Given);
                }
                Stage::Taken { version, .. } if self.has_confirmed(&block.node, version) => {
                    self.settle_taken(&net, &block.node);
                }
                Stage::Leased(_) | Stage::Given | Stage::Taken { .. } => {}
            }
        }
    }

    /// True of a node that is missed for long, on which no pod is that uses the Subnet.
    pub fn is_gone_for_good(&mut self, node: &Name) -> bool {
        let Some(share) = self.shares.get(node).filter(|share| share.target.is_none()) else { return false };
        let has_pods = !share.pods.is_empty();
        let since = *self.leasing.gone.entry(node.clone()).or_insert(self.now);
        let until = since + GONE_AFTER;
        if until > self.now {
            self.wake_at(until);
            return false;
        }
        !has_pods
    }

    /// True when the node has reported on the state of that version.
    pub fn has_confirmed(&self, node: &Name, version: u64) -> bool {
        let target = self.shares.get(node).and_then(|share| share.target);
        target.is_some_and(|target| target.has_confirmed_addresses(self.name, version))
    }

    /// The part of a block that its node still holds, because of pods, stays. The rest is free.
    fn settle_taken(&mut self, net: &IpNet, node: &Name) {
        let kept: Vec<IpNet> = self.held_in(node, net);
        for part in gaps(span(net), kept.iter().map(span)).into_iter().flat_map(|range| aligned(range, net)) {
            self.ipam.release_part(&self.pool, &part);
        }
        for part in kept {
            if self.unoffered(&part).is_empty() {
                self.ipam.set_stage(&self.pool, &part, Stage::Given);
            }
        }
    }

    /// The parts of a network that a node holds, ascending.
    fn held_in(&self, node: &Name, net: &IpNet) -> Vec<IpNet> {
        let report = self.shares.get(node).and_then(|share| share.report);
        let held = report.map_or(&[][..], |report| &report.held).iter();
        held.filter_map(
            |held| if net.contains(held) { Some(*held) } else { held.contains(net).then_some(*net) },
        )
        .collect()
    }

    /// True when a node holds an address.
    pub fn holds(&self, node: &Name, address: IpAddr) -> bool {
        !self.held_in(node, &IpNet::from(address)).is_empty()
    }

    /// The parts of a network that may not be leased, apart from next hops and gateways.
    pub fn unoffered(&self, net: &IpNet) -> Vec<IpNet> {
        let offered = self.source.as_ref().map(Source::spans).unwrap_or_default();
        gaps(span(net), offered.into_iter()).into_iter().flat_map(|range| aligned(range, net)).collect()
    }

    /// Takes what nodes hold beyond their leases into the list. What pods have comes first.
    pub fn take_found(&mut self) {
        let reports = self.shares.iter().filter_map(|(node, share)| Some((node.clone(), share.report?)));
        let reports: Vec<(Name, &AppliedAddresses)> = reports.collect();
        for (node, report) in &reports {
            for used in &report.used {
                self.take_used(node, used);
            }
        }
        for (node, report) in &reports {
            for net in &report.held {
                self.take_held(node, net);
            }
        }
    }

    pub fn take_held(&mut self, node: &Name, net: &IpNet) {
        let Some(network) = self.spec.map(|spec| spec.network) else { return };
        let is_own = self.ipam.block_of(&self.pool, net.network());
        if is_own.is_some_and(|(own, block)| own.contains(net) && block.node == *node) {
            return;
        }
        let ((first, last), (start, end)) = (hosts(&network), span(net));
        let range = (first.max(start), last.min(end));
        if range.0 > range.1 || net.addr().is_ipv4() != network.addr().is_ipv4() {
            return;
        }
        let own = self.ipam.blocks(&self.pool).filter(|(_, block)| block.node == *node);
        let all = own.fold(range.1 - range.0, |all, (net, _)| all.saturating_add(size(net)));
        if all >= MAX_OF_NODE || !self.has_room(node) {
            return;
        }
        let block = Block { node: node.clone(), stage: Stage::Given };
        for part in aligned(range, &network) {
            self.bytes += self.ipam.claim(&self.pool, &part, &block).len() * BLOCK_BYTES;
        }
    }

    /// A pod has an address. Who has the lease of it without a pod loses it.
    fn take_used(&mut self, node: &Name, used: &PodAddress) {
        let address = used.address;
        let part = IpNet::from(address);
        if !self.is_host(address) {
            return;
        }
        if let Some((_, block)) = self.ipam.block_of(&self.pool, address) {
            let (owner, stage) = (block.node.clone(), block.stage);
            if owner == *node {
                return;
            }
            let other = self.shares.get(&owner).and_then(|share| share.user_of(address));
            match (other, stage) {
                (Some(other), _) => self.note_conflict(used, node, &pod_on(other, &owner)),
                (None, Stage::Leased(_)) => {
                    self.ipam.release_part(&self.pool, &part);
                    self.take_held(node, &part);
                }
                (None, Stage::Given) => self.ipam.set_stage(&self.pool, &part, self.taken()),
                (None, Stage::Taken { .. }) => {}
            }
        } else if let Some(fixed) = self.leasing.fixed.get_mut(&address) {
            let is_its = (&*fixed.namespace, &*fixed.pod) == (used.namespace.as_str(), used.pod.as_str());
            if is_its && fixed.stage.is_none() {
                (fixed.node, fixed.stage) = (node.clone(), Some(Stage::Given));
            } else if !is_its || fixed.node != *node {
                let other = format!("Pod {}/{} on Node {}", fixed.namespace, fixed.pod, fixed.node);
                self.note_conflict(used, node, &other);
            }
        } else if let Some(holder) = self.ipam.holder(&self.pool, address) {
            let other = format!("{} {}", holder.0.kind, holder.1);
            self.note_conflict(used, node, &other);
        } else {
            self.take_held(node, &part);
        }
    }

    fn note_conflict(&mut self, used: &PodAddress, node: &Name, other: &str) {
        let message = format!("{} and {other} have {}", pod_on(used, node), used.address);
        self.leasing.findings.conflicts.push(message);
    }

    /// True of an address that an interface in the Subnet may have.
    pub fn is_host(&self, address: IpAddr) -> bool {
        self.spec.is_some_and(|spec| {
            let (first, last) = hosts(&spec.network);
            spec.network.contains(&address) && (first..=last).contains(&number(address))
        })
    }
}

/// A pod of a node, as text.
pub(super) fn pod_on(pod: &PodAddress, node: &Name) -> String {
    format!("Pod {}/{} on Node {node}", pod.namespace, pod.pod)
}
