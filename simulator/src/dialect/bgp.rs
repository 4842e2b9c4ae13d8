//! BGP in VRFs: the effective configuration, independent of the dialect, and types of its leaves.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::model::value::{StringRule, Type};

/// A number of an autonomous system.
pub(super) const AS_NUMBER: Type = Type::Uint(1, 4_294_967_295);

/// A password of TCP MD5 signatures (RFC 2385). Linux takes at most 80 bytes, and FRR no spaces.
pub(super) static PASSWORD: StringRule = StringRule {
    length: (1, 80),
    matches: |text| text.bytes().all(|b| b.is_ascii_graphic()),
    expected: "a password of visible ASCII characters",
};

/// A community of the form `65000:100` (RFC 1997).
pub(super) fn is_community(text: &str) -> bool {
    let number = |text: &str| {
        let plain = text == "0" || (!text.starts_with('0') && text.bytes().all(|b| b.is_ascii_digit()));
        plain && text.parse::<u16>().is_ok()
    };
    text.split_once(':').is_some_and(|(high, low)| number(high) && number(low))
}

/// The BGP instance of a VRF.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BgpView {
    /// Its AS.
    #[serde(rename = "as")]
    pub asn: u32,
    /// Its BGP identifier; null: the device takes one itself.
    pub router_id: Option<Ipv4Addr>,
    /// The neighbours, by address.
    pub neighbours: BTreeMap<IpAddr, BgpNeighbourView>,
    /// The networks whose hosts may open a session.
    pub dynamic_neighbours: BTreeMap<IpNet, BgpNeighbourView>,
}

/// A neighbour, with what it has of its group.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BgpNeighbourView {
    /// The name of its group.
    pub group: Option<String>,
    /// Its AS; null: any other than that of the device.
    pub peer_as: Option<u32>,
    /// The AS of the device in this session; null: that of the instance.
    pub local_as: Option<u32>,
    /// Whether the configuration disables it.
    pub disabled: bool,
    /// Whether the device only waits for it.
    pub passive: bool,
    /// The password, which is shown in the running configuration only.
    #[serde(skip)]
    pub password: Option<String>,
    /// Seconds.
    pub hold_time: u16,
    /// Seconds between two KEEPALIVE messages.
    pub keepalive_time: u16,
    /// Seconds between two attempts to connect; null: the device's default.
    pub connect_retry: Option<u16>,
    /// BFD; null: none.
    pub bfd: Option<BfdView>,
    /// Graceful restart; null: none.
    pub graceful_restart: Option<GracefulRestartView>,
    /// IPv4 unicast; null: not enabled.
    pub ipv4: Option<BgpFamilyView>,
    /// IPv6 unicast; null: not enabled.
    pub ipv6: Option<BgpFamilyView>,
}

/// Timers of BFD (RFC 5880).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BfdView {
    /// Milliseconds.
    pub transmit_interval: u32,
    /// Milliseconds.
    pub receive_interval: u32,
    /// The session is down after this many packets are missing.
    pub detect_multiplier: u8,
}

/// Graceful restart (RFC 4724).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GracefulRestartView {
    /// Seconds that the device takes to restart.
    pub restart_time: Option<u16>,
    /// Seconds for which routes stay at most.
    pub stale_time: Option<u16>,
    /// Whether it only helps the neighbour to restart.
    pub helper_only: bool,
}

/// An address family of a neighbour.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BgpFamilyView {
    /// The maximum of prefixes; null: none.
    pub maximum_prefixes: Option<MaximumPrefixes>,
    /// What is taken. A route that no rule decides is not.
    pub import: Vec<PolicyRule>,
    /// What is announced. A route that no rule decides is not.
    pub export: Vec<PolicyRule>,
}

/// A maximum of prefixes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MaximumPrefixes {
    /// The number.
    pub number: u32,
    /// Whether prefixes count that the import policy drops.
    pub received: bool,
    /// Whether the session stays up.
    pub warning_only: bool,
    /// Seconds until the session may come up again; null: the device's default.
    pub restart: Option<u32>,
}

/// A rule of a policy. All its conditions must hold.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PolicyRule {
    /// The prefixes that it matches; null: all.
    pub prefixes: Option<Vec<PrefixRange>>,
    /// Whether it matches all prefixes but those.
    pub except: bool,
    /// The origins that it matches; empty: all.
    pub sources: BTreeSet<RouteSource>,
    /// The communities that it gives to the route, in the form of FRR.
    pub communities: BTreeSet<String>,
    /// Whether these replace the communities of the route.
    pub replaces_communities: bool,
    /// What happens then.
    pub result: PolicyResult,
}

impl PolicyRule {
    /// The rule that decides all routes.
    pub(crate) fn all(result: PolicyResult) -> Self {
        Self {
            prefixes: None,
            except: false,
            sources: BTreeSet::new(),
            communities: BTreeSet::new(),
            replaces_communities: false,
            result,
        }
    }
}

/// Prefixes within a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PrefixRange {
    /// The network.
    pub prefix: IpNet,
    /// The shortest prefix length.
    pub min: u8,
    /// The longest prefix length.
    pub max: u8,
}

impl PrefixRange {
    /// The prefix itself.
    pub(super) fn exact(prefix: IpNet) -> Self {
        Self { prefix: prefix.trunc(), min: prefix.prefix_len(), max: prefix.prefix_len() }
    }

    /// Prefixes of these lengths within the network; `None` if there are none.
    pub(super) fn within(prefix: IpNet, min: u8, max: u8) -> Option<Self> {
        let possible = prefix.prefix_len() <= min && min <= max && max <= prefix.max_prefix_len();
        possible.then(|| Self { prefix: prefix.trunc(), min, max })
    }

    /// All prefixes within the network.
    pub(super) fn or_longer(prefix: IpNet) -> Self {
        Self { max: prefix.max_prefix_len(), ..Self::exact(prefix) }
    }
}

/// Where a route comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RouteSource {
    /// An interface of the VRF.
    Connected,
    /// A static route.
    Static,
    /// A neighbour.
    Bgp,
}

/// What a rule does with a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PolicyResult {
    /// It is taken or announced.
    Accept,
    /// It is not.
    Reject,
    /// The next rule decides.
    Continue,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn communities_are_two_numbers_of_16_bits() {
        for good in ["65000:100", "0:0", "65535:65535"] {
            assert!(is_community(good), "{good}");
        }
        for bad in ["", "65000", "65536:1", "1:65536", "01:1", "1:", "a:b", "1:2:3", "+1:2"] {
            assert!(!is_community(bad), "{bad}");
        }
    }

    #[test]
    fn prefix_ranges_lie_within_their_network() {
        let net: IpNet = "10.1.2.3/16".parse().expect("a network");
        let range = PrefixRange::within(net, 24, 32).expect("possible");
        assert_eq!((range.prefix.to_string().as_str(), range.min, range.max), ("10.1.0.0/16", 24, 32));
        for (min, max) in [(8, 24), (24, 16), (16, 33)] {
            assert_eq!(PrefixRange::within(net, min, max), None, "{min}..{max}");
        }
        assert_eq!(PrefixRange::or_longer(net), PrefixRange::within(net, 16, 32).expect("possible"));
    }
}
