//! VRFAttachment: an L2Service in a VRF.

use eno_schemas::VrfRoute;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::{Described, Facts, Kind, Name, Path, Reference};

/// An L2Service in a VRF.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct VrfAttachmentSpec {
    /// The VRF.
    #[serde(rename = "VRF")]
    pub vrf: Name,
    /// The service.
    #[serde(rename = "L2Service")]
    pub service: Name,
    /// At least one, each device once.
    pub interfaces: Vec<VrfInterface>,
    /// Ascending, each once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub static_routes: Vec<VrfRoute>,
    /// Bytes of an IP packet.
    #[serde(default, rename = "MTU", skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
}

/// A routed interface of the service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct VrfInterface {
    /// The FabricDevice, which becomes an end of the service.
    pub device: Name,
    /// Its addresses with the prefix lengths of their networks, ascending, each once; at least one.
    pub addresses: Vec<IpNet>,
}

impl Described for VrfAttachmentSpec {
    const FACTS: Facts = Facts { path: Path::Networks, needs_networks: true, ..Facts::DEFAULT };
    const REFERENCES: &'static [Reference<Self>] = &[
        Reference::new("VRF", Kind::VRF, |spec| vec![&spec.vrf]),
        Reference::new("L2Service", Kind::L2Service, |spec| vec![&spec.service]),
        Reference::new("Interfaces[].Device", Kind::FabricDevice, |spec| spec.devices().collect()),
    ];
}

impl VrfAttachmentSpec {
    /// The devices by which the service is led in.
    pub fn devices(&self) -> impl Iterator<Item = &Name> {
        self.interfaces.iter().map(|interface| &interface.device)
    }

    /// The addresses of all interfaces.
    pub fn addresses(&self) -> impl Iterator<Item = &IpNet> {
        self.interfaces.iter().flat_map(|interface| &interface.addresses)
    }
}
