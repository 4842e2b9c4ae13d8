//! What nodes hold of the addresses of Subnets with Ipam eno, as the statuses of Subnets and the reports of agents tell.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use eno_engine::forecast::{ClusterState, Key, Kind};
use eno_schemas::{Applied, AppliedAddresses};
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::path::{NODE_DRIVER, Reports};

/// What a node holds of a Subnet with Ipam eno.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct NodeShare {
    /// The name of the node; absent: the viewer may not list it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// The ranges that are leased to it.
    pub blocks: Vec<IpNet>,
    /// How many addresses they have; absent if they are more than 64 bits can count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// How many of them pods have, by the report of its agent; without it, as far as pods are known to have them.
    pub used: u64,
    /// How many of its pods wait for an address; absent: no report of its agent is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting: Option<usize>,
}

/// An address that is for one pod alone, also while that is gone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct FixedAddress {
    /// The address.
    pub address: IpAddr,
    /// The pod, as `Pod/NAMESPACE/NAME`; absent: the viewer may not list all pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod: Option<String>,
}

/// An entry of `status.nodeAddresses` of a Subnet.
#[derive(Deserialize)]
struct NodeAddresses {
    node: String,
    #[serde(default)]
    blocks: Vec<IpNet>,
}

/// An entry of `status.fixedAddresses` of a Subnet.
#[derive(Deserialize)]
struct FixedFor {
    address: IpAddr,
    namespace: String,
    pod: String,
}

/// The nodes that hold addresses of any Subnet.
pub(crate) fn holders(world: &ClusterState) -> BTreeSet<String> {
    let subnets = world.keys().filter(|key| key.kind == Kind::Subnet);
    subnets
        .flat_map(|key| listed::<NodeAddresses>(world, &key.name, "nodeAddresses"))
        .map(|one| one.node)
        .collect()
}

/// The shares of a Subnet by node. `known`: the addresses of it that pods are known to have.
pub(crate) fn shares(
    world: &ClusterState,
    subnet: &str,
    known: &BTreeSet<IpAddr>,
    reports: &Reports,
) -> Vec<NodeShare> {
    let mut blocks: BTreeMap<String, Vec<IpNet>> = BTreeMap::new();
    for one in listed::<NodeAddresses>(world, subnet, "nodeAddresses") {
        blocks.entry(one.node).or_default().extend(one.blocks);
    }
    let shares = blocks.into_iter().map(|(node, blocks)| {
        let is_inside = |address: &IpAddr| blocks.iter().any(|block| block.contains(address));
        let reported = reported(reports, &node, subnet);
        let used = match reported {
            Some(own) => own.used.iter().filter(|used| is_inside(&used.address)).count(),
            None => known.iter().filter(|address| is_inside(address)).count(),
        };
        let size = blocks.iter().map(length).try_fold(0u64, |all, one| all.checked_add(one?));
        let waiting = reported.map(|own| own.waiting.len());
        // The status of a Subnet may name what its viewer may not list.
        let node = Some(node).filter(|node| world.lists_everything() || world.has_node(node));
        NodeShare { size, used: u64::try_from(used).unwrap_or(u64::MAX), waiting, node, blocks }
    });
    shares.collect()
}

/// The addresses of a Subnet that are for one pod each.
pub(crate) fn fixed(world: &ClusterState, subnet: &str) -> Vec<FixedAddress> {
    let all = listed::<FixedFor>(world, subnet, "fixedAddresses").into_iter();
    let named = |one: FixedFor| FixedAddress {
        address: one.address,
        pod: world.lists_everything().then(|| format!("Pod/{}/{}", one.namespace, one.pod)),
    };
    all.map(named).collect()
}

/// A list in the status of a Subnet, without the entries that can't be read.
fn listed<T: serde::de::DeserializeOwned>(world: &ClusterState, subnet: &str, field: &str) -> Vec<T> {
    let object = world.object(&Key::cluster(Kind::Subnet, &subnet.into()));
    let entries = object.and_then(|object| object.data.get("status")?.get(field)?.as_array());
    entries.into_iter().flatten().filter_map(|entry| T::deserialize(entry).ok()).collect()
}

/// What the agent of a node says of a Subnet. A report without it tells that it has nothing.
fn reported<'a>(reports: &'a Reports, node: &str, subnet: &str) -> Option<&'a AppliedAddresses> {
    match &reports.get(NODE_DRIVER, node)?.applied {
        Some(Applied::Node { addresses, .. }) => addresses.get(subnet),
        _ => None,
    }
}

/// The number of addresses of a block; `None`: more than 64 bits can count.
fn length(block: &IpNet) -> Option<u64> {
    1u64.checked_shl(u32::from(block.max_prefix_len() - block.prefix_len()))
}

#[cfg(test)]
mod tests {
    use eno_engine::forecast::Part as Listed;
    use eno_nbi_crds::manifest;
    use eno_schemas::{Generation, PodAddress, Report, WaitingPod};
    use serde_json::{Value, json};

    use super::*;

    fn world(status: &Value, nodes: &[&str]) -> ClusterState {
        let spec = json!({ "Ipam": "eno", "Address": "10.0.0.0", "Mask": 24, "Type": "v4" });
        let mut subnet = manifest("Subnet", "sn", &spec);
        subnet["status"] = status.clone();
        let nodes = nodes.iter().map(|name| {
            (Listed::Nodes, json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": name }, "spec": {}, "status": {} }))
        });
        let objects = std::iter::once((Listed::Objects(Kind::Subnet), subnet)).chain(nodes);
        ClusterState::stored(objects, Vec::new(), "ns").expect("a cluster")
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn shares_count_what_agents_report_or_what_is_known() {
        let world = world(
            &json!({
                "nodeAddresses": [
                    { "node": "node1", "blocks": ["10.0.0.16/28", "10.0.0.32/32"] },
                    { "node": "node2", "blocks": ["10.0.0.48/29"] },
                    { "node": 7 },
                ],
                "fixedAddresses": [{ "address": "10.0.0.9", "namespace": "ns", "pod": "db-0", "node": "node1" }],
            }),
            &["node1", "node2"],
        );
        assert_eq!(holders(&world), ["node1", "node2"].map(str::to_owned).into());
        let known = ["10.0.0.17", "10.0.0.50", "10.0.0.9"].map(ip).into();
        let counted = |reports: &Reports| -> Vec<(Option<u64>, u64, Option<usize>)> {
            let shares = shares(&world, "sn", &known, reports).into_iter();
            shares.map(|share| (share.size, share.used, share.waiting)).collect()
        };
        assert_eq!(counted(&Reports::unknown()), [(Some(17), 1, None), (Some(8), 1, None)]);
        let used =
            |address: &str| PodAddress { address: ip(address), namespace: "ns".into(), pod: "p".into() };
        let own = AppliedAddresses {
            used: vec![used("10.0.0.9"), used("10.0.0.18"), used("10.0.0.32")],
            waiting: vec![WaitingPod { namespace: "ns".into(), pod: "q".into(), address: None }],
            ..AppliedAddresses::default()
        };
        let generation = Generation { term: 1, sequence: 1, hash: String::new() };
        let mut report = Report::new((NODE_DRIVER, "node1"), generation, ("lab", "1970-01-01T00:00:00Z"));
        report.applied = Some(Applied::Node {
            networks: BTreeMap::new(),
            pods: BTreeMap::new(),
            probes: Vec::new(),
            addresses: [("sn".to_owned(), own)].into(),
        });
        let mut reports = Reports::new(BTreeMap::new(), &world);
        reports.set(NODE_DRIVER, "node1", Some(report.into()));
        assert_eq!(counted(&reports), [(Some(17), 2, Some(1)), (Some(8), 1, None)]);
        let fixed = fixed(&world, "sn");
        assert_eq!(fixed, [FixedAddress { address: ip("10.0.0.9"), pod: Some("Pod/ns/db-0".into()) }]);
        assert!(shares(&world, "other", &known, &reports).is_empty());
    }

    #[test]
    fn length_of_a_block_is_bounded() {
        for (block, expected) in [("10.0.0.0/24", Some(256)), ("fd00::1/128", Some(1)), ("fd00::/64", None)] {
            assert_eq!(length(&block.parse().expect("a block")), expected, "{block}");
        }
    }
}
