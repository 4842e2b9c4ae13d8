//! The addresses of a Subnet with [`Ipam::Eno`](crate::Ipam): what a node may give to its pods, and what they have.

use std::net::IpAddr;

use ipnet::IpNet;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::Text;

/// What a node may give of one Subnet. A pod keeps an address that the node may not give any more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeAddresses {
    /// The network, for the prefix length.
    #[schemars(with = "String")]
    pub network: IpNet,
    /// The ranges that are leased to the node, each a power of two: `10.0.0.16/28`. Ascending and disjoint.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<String>")]
    pub blocks: Vec<IpNet>,
    /// Addresses that no pod gets, although a block contains them. Ascending.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub excluded: Vec<IpAddr>,
    /// Addresses for these pods alone, ascending. No block contains them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fixed: Vec<PodAddress>,
    /// A pod whose name [has an ordinal](has_ordinal) gets only an address of `fixed`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sticky: bool,
}

/// An address of a pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodAddress {
    /// The address.
    pub address: IpAddr,
    /// `metadata.namespace` of the pod.
    pub namespace: String,
    /// `metadata.name` of the pod.
    pub pod: String,
}

/// What a node has of one Subnet.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AppliedAddresses {
    /// All that the node may give or that a pod of it has: the blocks of the command, its fixed addresses, and single
    /// addresses that pods have outside of both. Ascending and disjoint. What is not in it is free.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<String>")]
    pub held: Vec<IpNet>,
    /// The addresses that pods have, ascending.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub used: Vec<PodAddress>,
    /// The pods that wait for an address, in the order of namespace and name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = Self::MAX_WAITING))]
    pub waiting: Vec<WaitingPod>,
    /// The file that can't be read or written, and what helps; absent: there is none. While it is there, the node may hold
    /// more than `held`, and nothing is free.
    pub unread: Option<Text>,
}

impl AppliedAddresses {
    /// Maximum length of [`Self::waiting`]. The first ones stay.
    pub const MAX_WAITING: usize = 256;
}

/// A pod that waits for an address.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WaitingPod {
    /// `metadata.namespace` of the pod.
    pub namespace: String,
    /// `metadata.name` of the pod.
    pub pod: String,
    /// The address that it asks for (`ips` of `k8s.v1.cni.cncf.io/networks`); absent: any.
    pub address: Option<IpAddr>,
}

/// True for names like those of a StatefulSet's pods, which end with `-` and a number.
pub fn has_ordinal(pod: &str) -> bool {
    pod.rsplit_once('-').is_some_and(|(set, ordinal)| {
        !set.is_empty() && !ordinal.is_empty() && ordinal.bytes().all(|byte| byte.is_ascii_digit())
    })
}

#[cfg(test)]
mod tests {
    use super::has_ordinal;

    #[test]
    fn pods_of_stateful_sets_have_an_ordinal() {
        for (name, expected) in [
            ("db-0", true),
            ("a-b-12", true),
            ("db", false),
            ("db-", false),
            ("-0", false),
            ("db-0a", false),
            ("0", false),
        ] {
            assert_eq!(has_ordinal(name), expected, "{name}");
        }
    }
}
