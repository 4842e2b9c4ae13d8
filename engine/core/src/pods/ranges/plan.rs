//! The plan of a Subnet's leases: what nodes hold, what they need, and what they give back.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use eno_schemas::{
    AppliedAddresses, Ipam as IpamKind, NodeAddresses, PodAddress, Pool, WaitingPod, has_ordinal,
};
use ipnet::IpNet;

use super::restore::Reports;
use super::users::{User, Users};
use super::{Leasing, render};
use crate::kinds::{Spec, SubnetSpec};
use crate::node::Nodes;
use crate::node::target::NodeTarget;
use crate::pods::Context;
use crate::pods::ipam::blocks::{Block, Stage, size};
use crate::pods::ipam::{Ipam, PoolKey, Source};
use crate::store::Store;
use crate::{Key, Kind, Name};

/// Maximum addresses of a block when it is leased.
const MAX_BLOCK: u128 = 256;
/// Maximum addresses of a Subnet that a node has.
pub(super) const MAX_OF_NODE: u128 = 4096;
/// A block is at most this part of what would be free for each node.
const SHARE: u128 = 4;

/// Plans one Subnet.
pub(super) struct Plan<'a> {
    pub store: &'a Store,
    pub nodes: &'a Nodes,
    pub users: &'a Users,
    pub ipam: &'a mut Ipam,
    pub leasing: &'a mut Leasing,
    pub name: &'a Name,
    pub pool: PoolKey,
    pub now: Duration,
    /// The Subnet as it is realised, if that is there.
    pub spec: Option<&'a SubnetSpec>,
    /// What may be leased. `None`: nothing, as the Subnet has another Ipam or is gone.
    pub source: Option<Source>,
    /// The nodes where something of it is.
    pub shares: BTreeMap<Name, Share<'a>>,
    /// Bytes of the leases in the status, or slightly more.
    pub bytes: usize,
    /// A part of the list got a revision that is to be written.
    pub is_unwritten: bool,
}

/// What a node needs and has.
#[derive(Default)]
pub(super) struct Share<'a> {
    /// The node; `None`: it is gone.
    pub target: Option<&'a NodeTarget>,
    /// Its last report.
    pub report: Option<&'a AppliedAddresses>,
    /// Its agent is alive.
    pub is_alive: bool,
    /// The pods that are bound to it.
    pub pods: Vec<&'a User>,
}

/// What a plan leads to.
pub(super) struct Planned {
    /// The command about the Subnet for each node that has one.
    pub commands: BTreeMap<Name, NodeAddresses>,
    /// An address is free for running pods of attachments that wait.
    pub feeds: bool,
    /// The Subnet has the Ipam eno.
    pub is_eno: bool,
    /// Something is left to be planned.
    pub is_left: bool,
}

impl<'a> Share<'a> {
    /// The pods that have addresses of a network, by its last report.
    pub fn used_in(&self, net: &IpNet) -> &'a [PodAddress] {
        let used = self.report.map_or(&[][..], |report| &report.used);
        let start = used.partition_point(|one| one.address < net.network());
        let end = used.partition_point(|one| one.address <= net.broadcast());
        &used[start..end.max(start)]
    }

    /// The pod that has an address.
    pub fn user_of(&self, address: IpAddr) -> Option<&'a PodAddress> {
        self.used_in(&IpNet::from(address)).first()
    }

    /// The pods that wait for any address.
    pub fn waiting(&self, is_sticky: bool) -> impl Iterator<Item = &'a WaitingPod> {
        let waiting = self.report.map_or(&[][..], |report| &report.waiting);
        waiting.iter().filter(move |pod| !is_fixed(pod, is_sticky))
    }

    /// Its pods that need an address of a block and have none.
    pub fn lacking(&self, is_sticky: bool) -> u128 {
        let used = self.report.map_or(0, |report| report.used.len());
        let pods = self.pods.iter().filter(|user| !(is_sticky && has_ordinal(&user.name))).count();
        pods.saturating_sub(used) as u128
    }
}

/// True of a pod that waits for an address of its own.
pub(super) fn is_fixed(pod: &WaitingPod, is_sticky: bool) -> bool {
    pod.address.is_some() || (is_sticky && has_ordinal(&pod.pod))
}

/// The addresses of a Subnet that are leased: AllocationPool or all, without those of next hops and gateways.
pub(crate) fn source(store: &Store, name: &Name, subnet: &SubnetSpec) -> Source {
    let network = subnet.network;
    let whole = Pool { start: network.network(), end: network.broadcast() };
    let ranges = if subnet.allocation_pool.is_empty() { vec![whole] } else { subnet.allocation_pool.clone() };
    let next_hops = store.routes_of(subnet).into_iter().map(|route| route.next_hop);
    let next_hops = next_hops.filter(|hop| network.contains(hop));
    Source::Ranges { network, ranges, excluded: next_hops.chain(store.routed_addresses(name)).collect() }
}

impl<'a> Plan<'a> {
    pub fn new(
        cx: &'a Context<'_>,
        users: &'a Users,
        ipam: &'a mut Ipam,
        leasing: &'a mut Leasing,
        name: &'a Name,
    ) -> Self {
        let (store, nodes) = (cx.store, &*cx.nodes);
        let key = Key::cluster(Kind::Subnet, name);
        let spec = store.effective(&key, Spec::subnet);
        let is_finalized = store.get(&key).is_some_and(|record| record.finalized);
        let leased = spec.filter(|spec| spec.ipam == IpamKind::Eno && is_finalized);
        let mut plan = Self {
            store,
            nodes,
            users,
            ipam,
            leasing,
            name,
            pool: PoolKey::Subnet(name.clone()),
            now: cx.now,
            spec,
            source: leased.map(|spec| source(store, name, spec)),
            shares: BTreeMap::new(),
            bytes: 0,
            is_unwritten: false,
        };
        plan.bytes = render::stored_size(plan.ipam, &plan.pool, plan.leasing);
        plan.collect_shares();
        plan
    }

    fn collect_shares(&mut self) {
        let (name, users) = (self.name, self.users);
        let mut shares: BTreeMap<Name, Share<'a>> = BTreeMap::new();
        for (_, block) in self.ipam.blocks(&self.pool) {
            shares.entry(block.node.clone()).or_default();
        }
        let others = self.leasing.fixed.values().map(|fixed| &fixed.node).chain(&self.leasing.commanded);
        for node in others.chain(self.nodes.observed_addresses(name).map(|(node, _)| node)) {
            shares.entry(node.clone()).or_default();
        }
        for user in users.of(&self.leasing.attachments) {
            if let Some(node) = &user.node {
                shares.entry(node.clone()).or_default().pods.push(user);
            }
        }
        for (node, share) in &mut shares {
            share.target = self.nodes.node(node);
            share.report = share.target.and_then(|target| target.observed_addresses(name));
            share.is_alive = self.nodes.is_alive(node);
        }
        self.shares = shares;
    }

    /// Takes reports that nodes do not know yet.
    pub fn read_reports(&mut self, reports: &'a Reports) {
        for (node, share) in &mut self.shares {
            share.report = share.report.or_else(|| reports.get(node)?.get(self.name));
        }
    }

    /// Works out what the nodes are commanded to have.
    pub fn run(&mut self) -> Planned {
        let before = render::listed(self.ipam, &self.pool, self.leasing);
        self.leasing.awaited.clear();
        self.leasing.wake = None;
        self.leasing.findings = super::Findings::default();
        self.settle_blocks();
        self.settle_fixed();
        self.settle_attached();
        self.take_found();
        self.withdraw_unoffered();
        self.withdraw_unneeded();
        let wanted = self.serve_fixed();
        let mut feeds = false;
        if self.source.is_some() {
            self.serve_waiting();
            feeds = self.free() > 0 && !self.leasing.starved.is_empty();
            if !feeds {
                self.serve_ahead();
            }
            feeds |= self.take_back(wanted);
        }
        self.note_awaited();
        self.ipam.join_blocks(&self.pool);
        let listed = render::listed(self.ipam, &self.pool, self.leasing);
        if self.is_unwritten || listed != before {
            self.leasing.revision += 1;
        }
        self.leasing.findings.conflicts.dedup();
        Planned {
            commands: self.commands(),
            feeds,
            is_eno: self.source.is_some(),
            is_left: self.source.is_some() || !listed.is_empty() || !self.leasing.commanded.is_empty(),
        }
    }

    /// The blocks, to be changed meanwhile.
    pub fn blocks(&self) -> Vec<(IpNet, Block)> {
        self.ipam.blocks(&self.pool).map(|(net, block)| (*net, block.clone())).collect()
    }

    /// The revision that the present changes have.
    pub fn next_revision(&self) -> u64 {
        self.leasing.revision + 1
    }

    /// The stage of what is taken back from now on.
    pub fn taken(&self) -> Stage {
        // The command without it has a higher version.
        Stage::Taken { version: self.nodes.version() + 1, since: self.now }
    }

    pub fn is_sticky(&self) -> bool {
        self.spec.is_some_and(|spec| spec.sticky)
    }

    /// Plans again at that time.
    pub fn wake_at(&mut self, at: Duration) {
        self.leasing.wake = Some(self.leasing.wake.map_or(at, |wake| wake.min(at)));
    }

    /// The number of addresses that nobody has.
    pub fn free(&self) -> u128 {
        let free = self.source.as_ref().map(|source| self.ipam.free(&self.pool, source));
        free.into_iter()
            .flatten()
            .fold(0, |all, (first, last)| all.saturating_add((last - first).saturating_add(1)))
    }

    /// The unused addresses of each node, by its last report and what is leased to it since; and all that it has.
    pub fn unused(&self) -> BTreeMap<Name, (u128, u128)> {
        let mut unused: BTreeMap<Name, (u128, u128)> = BTreeMap::new();
        for (net, block) in self.ipam.blocks(&self.pool) {
            let entry = unused.entry(block.node.clone()).or_default();
            entry.1 = entry.1.saturating_add(size(net));
            if !matches!(block.stage, Stage::Taken { .. }) {
                entry.0 = entry.0.saturating_add(self.unused_in(net, &block.node));
            }
        }
        unused
    }

    /// The addresses of a node's block that no pod has and that are not excluded.
    pub fn unused_in(&self, net: &IpNet, node: &Name) -> u128 {
        let used = self.shares.get(node).map_or(&[][..], |share| share.used_in(net));
        let excluded =
            self.excluded_in(net).filter(|address| used.iter().all(|one| one.address != *address)).count();
        size(net).saturating_sub((used.len() + excluded) as u128)
    }

    /// The addresses of next hops and gateways in a network.
    pub fn excluded_in<'b>(&'b self, net: &'b IpNet) -> impl Iterator<Item = IpAddr> + 'b {
        let excluded = self.source.as_ref().map_or(&[][..], Source::excluded);
        excluded.iter().copied().filter(|address| net.contains(address))
    }

    /// Leases blocks to nodes where pods wait, one after the other.
    fn serve_waiting(&mut self) {
        let is_sticky = self.is_sticky();
        let needs = self.shares.iter().filter(|(_, share)| share.target.is_some());
        let needs = needs.map(|(node, share)| (node.clone(), share.waiting(is_sticky).count() as u128));
        let needs: Vec<_> = needs.filter(|(_, need)| *need > 0).collect();
        self.serve(needs);
    }

    /// Leases blocks to nodes with pods, so that each has an address for the next one.
    fn serve_ahead(&mut self) {
        let is_sticky = self.is_sticky();
        let with_pods = |share: &Share<'_>| {
            let has_pods =
                !share.pods.is_empty() || share.report.is_some_and(|report| !report.used.is_empty());
            share.target.is_some() && has_pods
        };
        let needs = self.shares.iter().filter(|(_, share)| with_pods(share));
        let needs = needs.map(|(node, share)| (node.clone(), share.lacking(is_sticky).max(1)));
        self.serve(needs.collect());
    }

    /// Leases blocks until each of these nodes has that many unused addresses, or nothing is free.
    fn serve(&mut self, mut needs: Vec<(Name, u128)>) {
        let mut unused = self.unused();
        let mut quota = None;
        while !needs.is_empty() {
            let mut served = Vec::new();
            for (node, need) in needs {
                let (free, all) = unused.entry(node.clone()).or_default();
                if *free >= need || *all >= MAX_OF_NODE || !self.has_room(&node) {
                    continue;
                }
                let most = *quota.get_or_insert_with(|| self.quota());
                let Some(leased) = self.lease_block(&node, most.min(MAX_OF_NODE - *all)) else { return };
                (*free, *all) = (*free + leased, *all + leased);
                served.push((node, need));
            }
            needs = served;
            quota = None;
        }
    }

    fn lease_block(&mut self, node: &Name, most: u128) -> Option<u128> {
        let block = Block { node: node.clone(), stage: Stage::Leased(self.next_revision()) };
        let most = 1 << most.max(1).ilog2();
        let net = self.ipam.take_block(&self.pool, self.source.as_ref()?, most, block)?;
        self.bytes += render::BLOCK_BYTES;
        self.is_unwritten = true;
        Some(size(&net))
    }

    /// Maximum addresses of a block that is leased now.
    fn quota(&self) -> u128 {
        let attachments = self.leasing.attachments.iter();
        let points: BTreeSet<&Name> = attachments
            .filter_map(|key| Some(&self.store.effective(key, Spec::attachment)?.connection_point))
            .collect();
        let nodes: Vec<_> = points.into_iter().map(|point| self.nodes.nodes_of(point)).collect();
        let count = if let [only] = &nodes[..] {
            only.len()
        } else {
            nodes.iter().flat_map(|nodes| nodes.iter()).collect::<BTreeSet<_>>().len()
        };
        (self.free() / (SHARE * count.max(1) as u128)).clamp(1, MAX_BLOCK)
    }

    /// True when the status has room for another block of a node.
    pub fn has_room(&self, node: &Name) -> bool {
        self.bytes + render::BLOCK_BYTES + render::NODE_BYTES + node.len() <= render::MAX_LEASE_BYTES
    }
}
