//! L2ServiceAttachment: services at a connection point.

use eno_schemas::{CniName, InterfaceType, VlanType};
use serde::{Deserialize, Serialize};

use super::{Described, Facts, Kind, Name, Path, Reference, Selector, SupportedCni, Users};

/// Services at a connection point.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct AttachmentSpec {
    /// The services: at least one, exactly one for access.
    #[serde(rename = "L2Services")]
    pub services: Vec<Name>,
    /// The ConnectionPoint.
    pub connection_point: Name,
    /// The type of the pod's interface.
    #[serde(rename = "PodInterfaceType")]
    pub interface: InterfaceType,
    /// How the pod sees the VLANs.
    pub vlan_type: VlanType,
    /// The requested CNI plugin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub implementation: Option<CniName>,
    /// The MTU in bytes.
    #[serde(default, rename = "MTU", skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    /// The other namespaces whose pods may use it; absent: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usable_from: Option<Selector>,
    /// Only leased addresses leave a pod. Then it is for running pods only.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub anti_spoof: bool,
    /// Pods that Multus gave the interface to get one for each VLAN on it. Not with [`VlanType::Access`] or `anti_spoof`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sub_interfaces: bool,
}

impl Described for AttachmentSpec {
    const FACTS: Facts = Facts {
        path: Path::Networks,
        users: Users::Pods,
        needs_networks: true,
        gives_to_pods: true,
        ..Facts::DEFAULT
    };
    const REFERENCES: &'static [Reference<Self>] = &[
        Reference::checked_by_part("L2Services", Kind::L2Service, |spec| spec.services.iter().collect()),
        Reference::new("ConnectionPoint", Kind::ConnectionPoint, |spec| vec![&spec.connection_point]),
    ];
}

impl AttachmentSpec {
    /// The MTU of the pod's interface where `chosen` makes it.
    pub fn mtu(&self, chosen: &SupportedCni) -> Option<u32> {
        self.mtu.or(chosen.mtu)
    }
}
