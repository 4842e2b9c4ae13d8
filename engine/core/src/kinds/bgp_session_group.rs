//! BGPSessionGroup: BGP sessions between nodes and a VRF.

use std::net::IpAddr;

use eno_schemas::{Bfd, Speaker};
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::{Described, Facts, Kind, Name, Path, Reference, Selector};

/// BGP sessions between nodes and a VRF.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct BgpSessionGroupSpec {
    /// The VRF.
    #[serde(rename = "VRF")]
    pub vrf: Name,
    /// The service that the sessions run over.
    #[serde(rename = "L2Service")]
    pub service: Name,
    /// The ConnectionPoint whose nodes take part.
    pub connection_point: Name,
    /// The labels of the nodes that take part; absent: all of the ConnectionPoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_selector: Option<Selector>,
    /// The AS of the nodes.
    #[serde(rename = "LocalASN")]
    pub local_asn: u32,
    /// The AS of the devices as the nodes see it.
    #[serde(rename = "PeerASN")]
    pub peer_asn: u32,
    /// Ascending, each once; at least one.
    pub address_families: Vec<Family>,
    /// Seconds.
    pub hold_time: u16,
    /// Seconds, less than the hold time.
    pub keepalive_time: u16,
    /// Not with `graceful_restart`.
    #[serde(default, rename = "BFD", skip_serializing_if = "Option::is_none")]
    pub bfd: Option<Bfd>,
    /// Seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub graceful_restart: Option<u16>,
    /// The Secret with the password, for the driver of the devices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_secret: Option<Name>,
    /// The speaker on the nodes that ENO configures.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub speaker: Option<Speaker>,
    /// The Secret with the password in the namespace of the speaker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub speaker_secret: Option<Name>,
    /// The maximum that a node announces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub maximum_prefixes: Option<u32>,
    /// What devices take; ascending, each once; at least one.
    pub accept_prefixes: Vec<IpNet>,
    /// What devices announce; ascending, each once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub announce_prefixes: Vec<IpNet>,
    /// Ascending, each once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub communities: Vec<String>,
    /// Devices know the nodes by the addresses that Subnets have for them. Only with a password.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_prefix: bool,
    /// Answers to what came from the gateway leave to the gateway.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub symmetric: bool,
    /// Pods may have attachments of the service. Only with a password.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub allow_pods: bool,
}

/// An address family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// That of an address.
    pub fn of(address: IpAddr) -> Self {
        if address.is_ipv4() { Self::V4 } else { Self::V6 }
    }

    /// As a spec spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        }
    }
}

impl Described for BgpSessionGroupSpec {
    const FACTS: Facts = Facts { path: Path::Networks, needs_networks: true, ..Facts::DEFAULT };
    const REFERENCES: &'static [Reference<Self>] = &[
        Reference::new("VRF", Kind::VRF, |spec| vec![&spec.vrf]),
        Reference::new("L2Service", Kind::L2Service, |spec| vec![&spec.service]),
        Reference::new("ConnectionPoint", Kind::ConnectionPoint, |spec| vec![&spec.connection_point]),
    ];
}
