//! The leases in the status of a Subnet.

use std::net::IpAddr;

use ipnet::IpNet;

use crate::Name;

/// The blocks of a Subnet that a node has. They are written before the node gets them, and stay until it has reported
/// that it does not hold them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeBlocks {
    /// The node.
    pub node: Name,
    /// Ascending and disjoint.
    pub blocks: Vec<IpNet>,
}

/// An address that one pod has, or is to have again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FixedAddress {
    /// The address.
    pub address: IpAddr,
    /// The namespace of the pod.
    pub namespace: Name,
    /// The name of the pod.
    pub pod: Name,
    /// Where the pod is, or was.
    pub node: Name,
}
