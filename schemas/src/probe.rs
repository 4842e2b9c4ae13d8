//! Probes: what agents ask on VLANs to learn whether packets pass, and what answered.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv6Addr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use sha2::{Digest as _, Sha256};

use crate::{Text, VlanId, VlanSet};

/// The probes of a node on the VLANs of one connection point, through one network of the host.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NetworkProbes {
    /// The connection point.
    pub point: String,
    /// The network: a key of [`NodeDesired::networks`](crate::NodeDesired::networks).
    pub network: String,
    /// The node that is asked; absent: none, only gateways are asked.
    pub next: Option<String>,
    /// The node whose agent asks this one; absent: none.
    pub previous: Option<String>,
    /// The VLANs, by the path that they take. Each VLAN is in one entry.
    pub paths: Vec<ProbedPath>,
    /// The gateways that are asked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gateways: Vec<ProbedGateway>,
    /// The VLANs on which the next node must not answer for its address of another VLAN.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = CrossedVlans::MAX))]
    pub crossed: Vec<CrossedVlans>,
    /// Seconds from one probe of a VLAN to the next, as long as nothing changes.
    #[schemars(range(min = 1))]
    pub interval: u32,
}

/// VLANs whose path is the same.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProbedPath {
    /// Identifies the content of the path: VLANs that come to another one are probed at once.
    pub revision: String,
    /// The VLANs.
    pub vlans: VlanSet,
    /// Bytes of an IPv6 packet that must reach the next node too, asked by an ICMPv6 echo request (RFC 4443, 4.1). Absent:
    /// only small packets are sent.
    #[schemars(range(min = 1280, max = 65535))]
    pub mtu: Option<u16>,
}

/// Two VLANs that should be isolated from each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CrossedVlans {
    /// The VLAN on which a node asks, one of those of [`NetworkProbes::paths`].
    pub vlan: VlanId,
    /// The VLAN on which the next node answers, another one of them.
    pub other: VlanId,
}

impl CrossedVlans {
    /// Maximum length of [`NetworkProbes::crossed`].
    pub const MAX: usize = 64;
}

/// A gateway that is asked on some VLANs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProbedGateway {
    /// Its address.
    pub address: IpAddr,
    /// The VLANs, a part of those of [`NetworkProbes::paths`].
    pub vlans: VlanSet,
}

/// The results of [`NetworkProbes`]. A VLAN without a result was not probed yet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ProbeResults {
    /// The connection point.
    pub point: String,
    /// The network.
    pub network: String,
    /// The VLANs on which the next node answered.
    #[serde(skip_serializing_if = "VlanSet::is_empty")]
    pub passed: VlanSet,
    /// The VLANs on which the next node did not answer, although its agent was there.
    #[serde(skip_serializing_if = "VlanSet::is_empty")]
    pub lost: VlanSet,
    /// The VLANs on which the next node answered, but not to a packet of [`ProbedPath::mtu`]. None of them is in
    /// [`Self::passed`].
    #[serde(skip_serializing_if = "VlanSet::is_empty")]
    pub too_big: VlanSet,
    /// Of [`NetworkProbes::crossed`]: where the next node did not answer, although its agent was on the other VLAN.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = CrossedVlans::MAX))]
    pub isolated: Vec<CrossedVlans>,
    /// Of [`NetworkProbes::crossed`]: where the next node answered.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = CrossedVlans::MAX))]
    pub leaking: Vec<CrossedVlans>,
    /// The answers of gateways.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gateways: Vec<GatewayAnswer>,
    /// The VLANs on which the next node could not be asked.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unasked: Vec<Unasked>,
}

/// Who answered for the address of a gateway.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GatewayAnswer {
    /// The address.
    pub address: IpAddr,
    /// The MAC addresses that answered: six bytes in hexadecimal with colons, lower case. Empty: nobody did.
    #[schemars(length(max = Self::MAX_MACS), inner(regex(pattern = "^([0-9a-f]{2}:){5}[0-9a-f]{2}$")))]
    pub macs: BTreeSet<String>,
    /// The VLANs on which these answered.
    pub vlans: VlanSet,
}

impl GatewayAnswer {
    /// Maximum length of [`Self::macs`].
    pub const MAX_MACS: usize = 4;
}

/// VLANs on which the next node could not be asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Unasked {
    /// Why, as a message.
    pub reason: Text,
    /// The VLANs.
    pub vlans: VlanSet,
}

/// A message from the agent of one node to that of another, `eno.v1.visit.<to>.<from>`. Before an agent asks the next
/// node on VLANs, that node's agent goes there.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Visit {
    /// The connection point.
    #[schemars(length(max = 253))]
    pub point: String,
    /// The network of the host.
    #[schemars(length(max = 15))]
    pub network: String,
    /// The number of the request. The answer repeats it.
    pub id: u64,
    /// The VLANs that are to be visited.
    pub vlans: VlanSet,
    /// Of these, the VLANs on which echo requests are to be answered; in an answer, those on which they are.
    #[serde(default, skip_serializing_if = "VlanSet::is_empty")]
    pub echo: VlanSet,
    /// Of an answer: those of them that are visited now. Absent: it is a request.
    pub there: Option<VlanSet>,
    /// Of an answer: a number of the ports there, which are other ones when the number differs. Absent: the agent does not
    /// say it.
    pub ports: Option<u64>,
}

/// The MAC address of the probes of a node at a connection point: locally administered, unicast, and always the same. It
/// begins with [`probe_mac_prefix`].
pub fn probe_mac(cluster: &str, node: &str, point: &str) -> [u8; 6] {
    let ([first, second], digest) = (probe_mac_prefix(cluster), digest(&[cluster, node, point]));
    [first, second, digest[0], digest[1], digest[2], digest[3]]
}

/// The first bytes of the MAC addresses of a cluster's probes. Others may have them too.
pub fn probe_mac_prefix(cluster: &str) -> [u8; 2] {
    let digest = digest(&[cluster]);
    [digest[0] & 0xfc | 0x02, digest[1]]
}

/// The link-local address for which the agent of a node answers on a VLAN of a connection point (RFC 4291, 2.5.6). No two
/// clusters, nodes or VLANs have the same one, but by a chance of 2⁻⁶⁴.
pub fn probe_address(cluster: &str, node: &str, point: &str, vlan: VlanId) -> Ipv6Addr {
    let digest = digest(&[cluster, node, point, &vlan.to_string()]);
    let mut bytes = [0; 16];
    (bytes[0], bytes[1]) = (0xfe, 0x80);
    bytes[8..].copy_from_slice(&digest[..8]);
    bytes.into()
}

fn digest(parts: &[&str]) -> [u8; 32] {
    let mut hash = Sha256::new_with_prefix("eno-probe");
    for part in parts {
        hash.update(u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
        hash.update(part);
    }
    hash.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_stable_and_differ_in_each_part() {
        let vlan = |id| VlanId::new(id).expect("a VLAN ID");
        let address = probe_address("lab1", "node1", "cp", vlan(10));
        assert_eq!(address, probe_address("lab1", "node1", "cp", vlan(10)));
        assert!(address.is_unicast_link_local() && address.segments()[1..4] == [0, 0, 0]);
        for other in [
            probe_address("lab2", "node1", "cp", vlan(10)),
            probe_address("lab1", "node2", "cp", vlan(10)),
            probe_address("lab1", "node1", "cp2", vlan(10)),
            probe_address("lab1", "node1", "cp", vlan(11)),
            probe_address("lab1", "node1c", "p", vlan(10)),
        ] {
            assert_ne!(other, address);
        }
        let mac = probe_mac("lab1", "node1", "cp");
        assert_eq!(mac[..2], probe_mac_prefix("lab1"));
        assert_eq!((mac[0] & 3, mac), (2, probe_mac("lab1", "node1", "cp")));
        assert_ne!(mac, probe_mac("lab1", "node2", "cp"));
    }
}
