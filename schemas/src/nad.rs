//! The desired state of one NetworkAttachmentDefinition.

use std::net::IpAddr;

use ipnet::IpNet;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::{InterfaceType, Ipam, VlanId, VlanSet};

/// One NetworkAttachmentDefinition (`k8s.cni.cncf.io/v1`), described by its purpose; the driver renders its CNI
/// configuration. `attachment: None`: it must not exist.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NadDesired {
    /// Its namespace.
    pub namespace: String,
    /// Its name, which is its attachment's.
    pub name: String,
    /// The L2ServiceAttachment that owns it.
    pub owner: NadOwner,
    /// What it gives to a pod; absent: the object must be gone.
    pub attachment: Option<VlanAttachment>,
}

/// The owner reference of a NAD.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NadOwner {
    /// `metadata.uid` of the L2ServiceAttachment.
    pub uid: String,
}

/// What a NAD gives to a pod.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VlanAttachment {
    /// The plugin and its own keys.
    pub cni: Cni,
    /// Tagged or not, and which VLANs.
    pub vlans: NadVlans,
    /// `mtu`, bytes.
    pub mtu: Option<u32>,
    /// Address management, for access attachments: none, one, or one of each family.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub subnets: Vec<NadSubnet>,
    /// Keeps the addresses apart from those of attachments with other pools, where the IPAM plugin would take them for
    /// one: `network_name` of whereabouts, a part of `dataDir` of host-local. Absent: the plugin's own choice.
    #[schemars(length(min = 1, max = 128), regex(pattern = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"))]
    pub pool: Option<String>,
}

/// How the pod sees its VLANs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum NadVlans {
    /// One VLAN, untagged in the pod.
    Access(VlanId),
    /// All VLANs of the connection point, tagged.
    Trunk,
    /// Only these, tagged.
    Selective(VlanSet),
}

/// A CNI plugin with the keys that come from the connection point.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "kebab-case", rename_all_fields = "camelCase")]
pub enum Cni {
    /// ovs-cni: `bridge`.
    Ovs {
        /// The OVS bridge.
        bridge: String,
        /// `socket_file`, the OVSDB socket.
        socket_file: Option<String>,
        /// The device plugin's resource, `k8s.v1.cni.cncf.io/resourceName`; absent: the bridge's own.
        pool: Option<String>,
    },
    /// The reference `bridge` plugin.
    Bridge {
        /// The Linux bridge.
        bridge: String,
    },
    /// macvlan in bridge mode.
    Macvlan {
        /// `master`, with the VLAN subinterface already chosen for access.
        master: String,
    },
    /// ipvlan in l2 mode.
    Ipvlan {
        /// `master`, with the VLAN subinterface already chosen for access.
        master: String,
    },
    /// The reference `vlan` plugin: `master` and the access VLAN as `vlanId`.
    Vlan {
        /// `master`.
        master: String,
    },
    /// The reference `host-device` plugin; the device comes by resource name.
    HostDevice {
        /// The device plugin's resource, `k8s.v1.cni.cncf.io/resourceName`.
        pool: String,
    },
    /// sriov-cni; the virtual function comes by resource name.
    Sriov {
        /// The device plugin's resource, `k8s.v1.cni.cncf.io/resourceName`.
        pool: String,
        /// Whether the pod drives the device from user space.
        interface: InterfaceType,
    },
    /// The userspace plugin (dpdk).
    Userspace {
        /// `host.engine`: `ovs-dpdk` or `vpp`.
        engine: String,
        /// `iftype`: `vhostuser` or `memif`.
        iftype: String,
        /// `host.bridge.bridgeName`.
        bridge: String,
    },
}

/// One subnet of an access attachment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NadSubnet {
    /// Who hands out the addresses.
    pub ipam: Ipam,
    /// The Subnet's name, which is the pool of [`Ipam::Eno`]; absent with other plugins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), regex(pattern = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"))]
    pub subnet: Option<String>,
    /// The network, `10.0.0.0/24`.
    #[schemars(with = "String")]
    pub network: IpNet,
    /// The ranges that may be handed out; empty: the whole network.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pools: Vec<Pool>,
    /// Routes into the pod.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<NadRoute>,
    /// Resolver settings.
    #[serde(default, skip_serializing_if = "Dns::is_empty")]
    pub dns: Dns,
}

/// An inclusive range of addresses, `start` ≤ `end`, both in the subnet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Pool {
    /// The first.
    pub start: IpAddr,
    /// The last.
    pub end: IpAddr,
}

/// A route.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NadRoute {
    /// `dst`.
    #[schemars(with = "String")]
    pub prefix: IpNet,
    /// `gw`.
    pub next_hop: IpAddr,
}

/// CNI `dns`.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Dns {
    /// `nameservers`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nameservers: Vec<String>,
    /// `domain`.
    pub domain: Option<String>,
    /// `search`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub search: Vec<String>,
}

impl Dns {
    /// True when nothing is set.
    pub fn is_empty(&self) -> bool {
        self == &Self::default()
    }
}
