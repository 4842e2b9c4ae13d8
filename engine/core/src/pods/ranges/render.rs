//! The commands of nodes about a Subnet, and the leases in its status.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use eno_schemas::{NodeAddresses, PodAddress};
use ipnet::IpNet;

use super::Leasing;
use super::plan::Plan;
use crate::node::Nodes;
use crate::pods::Pods;
use crate::pods::ipam::blocks::Stage;
use crate::pods::ipam::{Ipam, PoolKey};
use crate::{FixedAddress, Name, NodeBlocks};

/// Maximum bytes of a Subnet's leases in its status. The API server takes no object of more than 1.5 MiB.
pub(super) const MAX_LEASE_BYTES: usize = 1 << 20;
/// Bytes of a block in a status.
pub(super) const BLOCK_BYTES: usize = r#""ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff/128","#.len();
/// Bytes of a node in a status without its name and blocks.
pub(super) const NODE_BYTES: usize = r#"{"node":"","blocks":[]},"#.len();
/// Bytes of an address of a pod in a status without names.
pub(super) const FIXED_BYTES: usize =
    r#"{"address":,"namespace":"","pod":"","node":""},"#.len() + BLOCK_BYTES;

/// The leases of a Subnet in its status.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Listed {
    pub nodes: Vec<NodeBlocks>,
    pub fixed: Vec<FixedAddress>,
}

impl Listed {
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty() && self.fixed.is_empty()
    }
}

/// The leases of a Subnet, as its status lists them. The same addresses are the same text, however they came about.
pub(super) fn listed(ipam: &Ipam, pool: &PoolKey, leasing: &Leasing) -> Listed {
    let mut nodes: BTreeMap<&Name, Vec<IpNet>> = BTreeMap::new();
    for (net, block) in ipam.blocks(pool) {
        nodes.entry(&block.node).or_default().push(*net);
    }
    let nodes = nodes.into_iter();
    let nodes = nodes.map(|(node, nets)| NodeBlocks { node: node.clone(), blocks: IpNet::aggregate(&nets) });
    let mut fixed: Vec<_> = leasing.fixed.iter().collect();
    // The next leader gives up the same ones first.
    fixed.sort_by_key(|(address, fixed)| (fixed.order, **address));
    let fixed = fixed.into_iter().map(|(address, fixed)| FixedAddress {
        address: *address,
        namespace: fixed.namespace.clone(),
        pod: fixed.pod.clone(),
        node: fixed.node.clone(),
    });
    Listed { nodes: nodes.collect(), fixed: fixed.collect() }
}

/// Bytes of the leases of a Subnet in its status, or slightly more.
pub(super) fn stored_size(ipam: &Ipam, pool: &PoolKey, leasing: &Leasing) -> usize {
    let nodes: BTreeSet<&Name> = ipam.blocks(pool).map(|(_, block)| &block.node).collect();
    let nodes = nodes.into_iter().map(|node| NODE_BYTES + node.len()).sum::<usize>();
    let fixed = leasing.fixed.values();
    let fixed =
        fixed.map(|own| FIXED_BYTES + own.namespace.len() + own.pod.len() + own.node.len()).sum::<usize>();
    nodes + fixed + ipam.blocks(pool).count() * BLOCK_BYTES
}

impl Plan<'_> {
    /// The commands about the Subnet, by node.
    pub fn commands(&self) -> BTreeMap<Name, NodeAddresses> {
        let Some(spec) = self.spec.filter(|_| self.source.is_some()) else { return BTreeMap::new() };
        let mut given: BTreeMap<&Name, (Vec<IpNet>, Vec<PodAddress>)> = BTreeMap::new();
        // A node with pods can tell that they wait.
        for (node, _) in self.shares.iter().filter(|(_, share)| !share.pods.is_empty()) {
            given.entry(node).or_default();
        }
        for (net, block) in self.ipam.blocks(&self.pool).filter(|(_, block)| block.stage == Stage::Given) {
            given.entry(&block.node).or_default().0.push(*net);
        }
        for (address, fixed) in
            self.leasing.fixed.iter().filter(|(_, fixed)| fixed.stage == Some(Stage::Given))
        {
            let (namespace, pod) = (fixed.namespace.to_string(), fixed.pod.to_string());
            given.entry(&fixed.node).or_default().1.push(PodAddress { address: *address, namespace, pod });
        }
        let given = given.into_iter().filter(|(node, _)| self.nodes.node(node).is_some());
        let commands = given.map(|(node, (blocks, fixed))| {
            let mut excluded: Vec<IpAddr> = blocks.iter().flat_map(|net| self.excluded_in(net)).collect();
            excluded.sort_unstable();
            excluded.dedup();
            let blocks = IpNet::aggregate(&blocks);
            let own = NodeAddresses { network: spec.network, blocks, excluded, fixed, sticky: spec.sticky };
            (node.clone(), own)
        });
        commands.collect()
    }
}

/// Sets the commands of nodes about a Subnet.
pub(super) fn command(
    nodes: &mut Nodes,
    name: &Name,
    leasing: &mut Leasing,
    commands: BTreeMap<Name, NodeAddresses>,
) {
    let now: BTreeSet<Name> = commands.keys().cloned().collect();
    for node in leasing.commanded.difference(&now) {
        nodes.want_addresses(node, name, None);
    }
    for (node, own) in commands {
        nodes.want_addresses(&node, name, Some(own));
    }
    leasing.commanded = now;
}

impl Pods {
    /// The leases of a Subnet, for its status.
    pub(crate) fn listed(&self, name: &Name) -> (Vec<NodeBlocks>, Vec<FixedAddress>) {
        let Some(leasing) = self.ranges.subnets.get(name) else { return Default::default() };
        let Listed { nodes, fixed } = listed(&self.ipam, &PoolKey::Subnet(name.clone()), leasing);
        (nodes, fixed)
    }
}
