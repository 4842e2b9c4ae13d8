//! What nodes give back: what the Subnet does not offer, what they don't need, and unused addresses that others need.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;

use super::PATIENCE;
use super::plan::Plan;
use super::share::Share;
use crate::Name;
use crate::pods::ipam::blocks::{Block, Stage, aligned, gaps, size, span};
use crate::pods::ipam::{address, number};

impl Plan<'_> {
    /// Takes back what the Subnet does not offer.
    pub fn withdraw_unoffered(&mut self) {
        for (net, block) in self.blocks() {
            for part in self.unoffered(&net) {
                self.take_part(&part, &block);
            }
        }
    }

    /// Takes back all blocks of nodes without a pod that uses the Subnet.
    pub fn withdraw_unneeded(&mut self) {
        for (net, block) in self.blocks() {
            if self.shares.get(&block.node).is_some_and(|share| !needs_some(share)) {
                self.take_part(&net, &block);
            }
        }
    }

    fn take_part(&mut self, part: &IpNet, block: &Block) {
        match block.stage {
            Stage::Leased(_) => self.ipam.release_part(&self.pool, part),
            Stage::Given => self.ipam.set_stage(&self.pool, part, self.taken()),
            Stage::Taken { .. } => {}
        }
    }

    /// Takes unused addresses back from the nodes that have most of them, as many as are needed elsewhere. `without`: pods
    /// that wait for an address of their own, whichever. Returns true when something is free now.
    pub fn take_back(&mut self, without: u128) -> bool {
        let mut lacking = self.lacking(without);
        let mut is_awaited = false;
        for (net, block) in self.blocks() {
            let Stage::Taken { since, .. } = block.stage else { continue };
            let answers =
                self.shares.get(&block.node).is_some_and(|share| share.target.is_some() && share.is_alive);
            if lacking > 0 && answers && self.now < since + PATIENCE {
                is_awaited = true;
                lacking = lacking.saturating_sub(self.unused_in(&net, &block.node));
                self.wake_at(since + PATIENCE);
            }
        }
        let mut spare = self.spare();
        while lacking > 0
            && let Some((node, unused)) = spare.iter().max_by_key(|(_, unused)| **unused)
            && let Some(part) = self.part_of(node, *unused)
        {
            let node = node.clone();
            self.ipam.set_stage(&self.pool, &part, self.taken());
            is_awaited = true;
            self.wake_at(self.now + PATIENCE);
            lacking = lacking.saturating_sub(size(&part));
            let left = spare.get(&node).map_or(0, |unused| unused.saturating_sub(size(&part)));
            if left > 0 {
                spare.insert(node, left)
            } else {
                spare.remove(&node)
            };
        }
        let is_freed = self.give_up_kept(&mut lacking);
        if lacking > 0 && !is_awaited && !is_freed {
            self.leasing.findings.none_left = Some(self.first_waiting());
        }
        is_freed
    }

    /// The number of pods that wait for an address that nobody gets them.
    fn lacking(&self, without: u128) -> u128 {
        let (unused, is_sticky) = (self.unused(), self.is_sticky());
        let lacks = self.shares.iter().filter(|(_, share)| share.target.is_some()).map(|(node, share)| {
            let waiting = share.waiting(is_sticky).count() as u128;
            waiting.saturating_sub(unused.get(node).map_or(0, |(unused, _)| *unused))
        });
        let all = lacks.sum::<u128>() + without + self.leasing.starved.len() as u128;
        all.saturating_sub(self.free())
    }

    /// The unused addresses of the nodes that can give some back.
    fn spare(&self) -> BTreeMap<Name, u128> {
        let is_sticky = self.is_sticky();
        let can_give = |share: &Share<'_>| {
            share.is_alive
                && share.report.is_some_and(|report| report.unread.is_none())
                && share.waiting(is_sticky).next().is_none()
        };
        let mut spare = BTreeMap::new();
        for (net, block) in self.ipam.blocks(&self.pool).filter(|(_, block)| block.stage == Stage::Given) {
            let unused = self.unused_in(net, &block.node);
            if unused > 0 && self.shares.get(&block.node).is_some_and(can_give) {
                *spare.entry(block.node.clone()).or_default() += unused;
            }
        }
        spare
    }

    /// The largest unused part of a node's blocks, at most half of its unused addresses.
    fn part_of(&self, node: &Name, unused: u128) -> Option<IpNet> {
        let most: u128 = 1 << unused.div_ceil(2).max(1).ilog2();
        let own = self.ipam.blocks(&self.pool);
        let own = own.filter(|(_, block)| block.node == *node && block.stage == Stage::Given);
        let parts = own.flat_map(|(net, _)| {
            let used = self.shares.get(node).map_or(&[][..], |share| share.used_in(net));
            let single = |address: IpAddr| (number(address), number(address));
            let mut taken: Vec<_> = used.iter().map(|one| single(one.address)).collect();
            taken.extend(self.excluded_in(net).map(single));
            taken.sort_unstable();
            gaps(span(net), taken.into_iter())
                .into_iter()
                .flat_map(|range| aligned(range, net))
                .collect::<Vec<_>>()
        });
        let parts = parts.filter_map(|part| {
            let size = size(&part).min(most);
            let last = span(&part).1;
            aligned((last - (size - 1), last), &IpNet::new(address(last, &part), part.max_prefix_len()).ok()?)
                .next()
        });
        parts.max_by_key(|part| (size(part), *part))
    }

    /// Addresses that are kept for pods that are gone are given up, the oldest first.
    fn give_up_kept(&mut self, lacking: &mut u128) -> bool {
        let kept = self.leasing.fixed.iter().filter(|(_, fixed)| fixed.stage.is_none());
        let mut kept: Vec<_> = kept.map(|(address, fixed)| (fixed.order, *address)).collect();
        kept.sort_unstable();
        kept.truncate(usize::try_from(*lacking).unwrap_or(usize::MAX));
        for (_, address) in &kept {
            self.leasing.fixed.remove(address);
            self.ipam.release(&self.pool, *address);
            *lacking -= 1;
        }
        !kept.is_empty()
    }

    /// Notes the nodes whose reports may free something.
    pub fn note_awaited(&mut self) {
        let is_taken = |stage: Stage| matches!(stage, Stage::Taken { .. });
        let blocks = self.ipam.blocks(&self.pool).filter(|(_, block)| is_taken(block.stage));
        let fixed = self.leasing.fixed.values().filter(|fixed| fixed.stage.is_some_and(is_taken));
        self.leasing.awaited = blocks
            .map(|(_, block)| block.node.clone())
            .chain(fixed.map(|fixed| fixed.node.clone()))
            .collect();
    }

    fn first_waiting(&self) -> String {
        let waiting = self.shares.iter().flat_map(|(node, share)| {
            let waiting = share.report.map_or(&[][..], |report| &report.waiting).iter();
            waiting.filter(|pod| pod.address.is_none()).map(move |pod| (node, pod))
        });
        let waiting: Vec<_> = waiting.collect();
        let count = waiting.len() + self.leasing.starved.len();
        let first = match waiting.first() {
            Some((node, pod)) => format!("Pod {}/{} on Node {node}", pod.namespace, pod.pod),
            None => "a running pod".into(),
        };
        crate::name::and_more(&first, count)
    }
}

/// True of a node with a pod that uses the Subnet, and of one that is gone.
fn needs_some(share: &Share<'_>) -> bool {
    let reported = share.report.is_some_and(|report| !report.used.is_empty() || !report.waiting.is_empty());
    share.target.is_none() || !share.pods.is_empty() || reported
}
