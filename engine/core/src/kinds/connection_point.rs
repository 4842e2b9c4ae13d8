//! ConnectionPoint: where pods connect.

use eno_schemas::{CniName, InterfaceType, OvsDatapath, VerifyBetween, VerifyMode};
use serde::{Deserialize, Serialize};

use super::{Described, Facts, Kind, Name, Path, Reference, Selector};

/// A point where pods connect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct ConnectionPointSpec {
    /// In order of preference.
    #[serde(rename = "SupportedCnis")]
    pub cnis: Vec<SupportedCni>,
    /// The nodes; absent: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_pool: Option<Name>,
    /// The NICs of the nodes that lead to the fabric.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub interfaces: Vec<String>,
    /// The namespaces whose trunks may see every VLAN here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trunk_namespaces: Option<Selector>,
    /// Its probes.
    #[serde(default, skip_serializing_if = "Verify::is_default")]
    pub verify: Verify,
}

/// Probes on the VLANs of a ConnectionPoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Verify {
    /// What follows from them.
    pub mode: VerifyMode,
    /// Between whom they go.
    pub between: VerifyBetween,
    /// Seconds from one probe of a VLAN to the next.
    pub interval: u32,
}

impl Default for Verify {
    fn default() -> Self {
        Self { mode: VerifyMode::default(), between: VerifyBetween::default(), interval: 600 }
    }
}

impl Verify {
    #[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

impl Described for ConnectionPointSpec {
    const FACTS: Facts =
        Facts { path: Path::Point, planned_when_hindered: true, admits_trunks: true, ..Facts::DEFAULT };
    const REFERENCES: &'static [Reference<Self>] =
        &[Reference::checked_by_part("NodePool", Kind::NodePool, |spec| spec.node_pool.iter().collect())];
}

/// A CNI plugin that a ConnectionPoint offers, with the options that it needs.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct SupportedCni {
    /// The types of pod interfaces; at least one.
    #[serde(rename = "SupportedInterfaceTypes")]
    pub interfaces: Vec<InterfaceType>,
    /// The plugin and its options.
    pub plugin: Plugin,
    /// `MTU` of its options, in bytes: for attachments without one of their own.
    #[serde(default, rename = "MTU", skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
}

/// A CNI plugin and the options that it needs.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", rename_all_fields = "PascalCase", tag = "Name")]
pub enum Plugin {
    /// `BridgeName`; `SocketFile` where OVSDB is not at its usual place.
    Ovs {
        /// The OVS bridge.
        bridge_name: String,
        /// The OVSDB socket.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        socket_file: Option<String>,
        /// `Datapath`: `system` or `netdev`, where it is not as the nodes are configured.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        datapath: Option<OvsDatapath>,
        /// `Patch`: another Open vSwitch bridge of the nodes that it is joined to.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        patch: Option<String>,
        /// `PoolName`: the device plugin's resource for pods' devices, where the switch is offloaded to a NIC.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pool_name: Option<String>,
    },
    /// `BridgeName`.
    Bridge {
        /// The Linux bridge.
        bridge_name: String,
    },
    /// `Master`.
    Macvlan {
        /// The parent interface.
        master: String,
    },
    /// `Master`.
    Ipvlan {
        /// The parent interface.
        master: String,
    },
    /// `Master`.
    Vlan {
        /// The parent interface.
        master: String,
    },
    /// `PoolName`.
    HostDevice {
        /// The device plugin's resource.
        pool_name: String,
    },
    /// `PoolName`.
    Sriov {
        /// The device plugin's resource.
        pool_name: String,
    },
    /// `BridgeName`; `Engine` and `IfType` where they are not ovs-dpdk and vhostuser.
    Userspace {
        /// The bridge of the user-space switch.
        bridge_name: String,
        /// `ovs-dpdk` or `vpp`.
        engine: String,
        /// `vhostuser` or `memif`.
        if_type: String,
    },
}

impl Plugin {
    /// Which plugin it is.
    pub fn name(&self) -> CniName {
        match self {
            Self::Ovs { .. } => CniName::Ovs,
            Self::Bridge { .. } => CniName::Bridge,
            Self::Macvlan { .. } => CniName::Macvlan,
            Self::Ipvlan { .. } => CniName::Ipvlan,
            Self::Vlan { .. } => CniName::Vlan,
            Self::HostDevice { .. } => CniName::HostDevice,
            Self::Sriov { .. } => CniName::Sriov,
            Self::Userspace { .. } => CniName::Userspace,
        }
    }

    /// The bridge on the nodes that all of the plugin's pods share, if there is one.
    pub fn bridge(&self) -> Option<&str> {
        match self {
            Self::Ovs { bridge_name, .. }
            | Self::Bridge { bridge_name }
            | Self::Userspace { bridge_name, .. } => Some(bridge_name),
            _ => None,
        }
    }

    /// The NIC in its options.
    pub fn master(&self) -> Option<&str> {
        match self {
            Self::Macvlan { master } | Self::Ipvlan { master } | Self::Vlan { master } => Some(master),
            _ => None,
        }
    }
}
