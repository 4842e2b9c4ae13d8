//! The parsed specs: manifests with every text parsed to a value.
//!
//! Ingest builds them from custom resources that may be invalid ([`Invalid`]). `status.realized` holds them, too.

pub mod compat;
mod pods;

use std::fmt;
use std::net::IpAddr;

use eno_schemas::{
    CniName, Device, Dns, InterfaceType, Ipam, OvsDatapath, Pool, PortMode, VlanId, VlanSet, VlanType,
};
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::{Key, Kind, Name, Selector};

pub use pods::{BridgeSpec, PodLinkSpec, PodLinksSpec, PrimarySpec};

/// Why a spec can't be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct Invalid {
    /// The path of the field, from `spec.` on.
    pub field: String,
    /// The problem and the remedy.
    pub problem: String,
    /// The kind of the problem.
    pub cause: Cause,
}

impl Invalid {
    /// `field` is written below `spec`. The cause is [`Cause::Incompatible`].
    pub fn new(field: impl fmt::Display, problem: impl Into<String>) -> Self {
        Self { field: format!("spec.{field}"), problem: problem.into(), cause: Cause::Incompatible }
    }

    /// With this cause.
    #[must_use]
    pub fn because(self, cause: Cause) -> Self {
        Self { cause, ..self }
    }
}

/// The machine-readable cause. Every cause but [`Cause::Spec`] may pass while the spec stays the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cause {
    /// The object's own fields make it impossible: only another spec helps.
    Spec,
    /// It does not fit what it names, or what is there.
    #[default]
    Incompatible,
    /// It names an object that does not exist.
    ReferenceNotFound,
    /// It names an object that is in error.
    ReferenceNotReady,
    /// It names an object that is being deleted.
    ReferenceTerminating,
    /// Another object holds the VLAN ID.
    IdConflict,
    /// Another object holds the name.
    NameConflict,
    /// An object that it names does not allow it.
    NotPermitted,
}

/// The spec of any kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Spec {
    /// An L2ServiceAttachment's.
    Attachment(AttachmentSpec),
    /// A FabricDevice's.
    Device(DeviceSpec),
    /// A ConnectionPoint's.
    ConnectionPoint(ConnectionPointSpec),
    /// An L2BridgeDomain's.
    BridgeDomain(BridgeDomainSpec),
    /// A Subnet's.
    Subnet(SubnetSpec),
    /// A Route's.
    Route(RouteSpec),
    /// A NodePool's.
    NodePool(NodePoolSpec),
    /// An L2Service's.
    Service(ServiceSpec),
    /// A PhysicalNetwork's.
    PhysicalNetwork(PhysicalNetworkSpec),
    /// A Bridge's.
    Bridge(BridgeSpec),
    /// A PodNetworkConfig's or a PodConfig's.
    PodLinks(PodLinksSpec),
}

impl Spec {
    /// Reads back what `status.realized` holds.
    pub fn from_json(kind: Kind, value: serde_json::Value) -> serde_json::Result<Self> {
        use serde_json::from_value as read;
        Ok(match kind {
            Kind::Route => Self::Route(read(value)?),
            Kind::Subnet => Self::Subnet(read(value)?),
            Kind::NodePool => Self::NodePool(read(value)?),
            Kind::PhysicalNetwork => Self::PhysicalNetwork(read(value)?),
            Kind::FabricDevice => Self::Device(read(value)?),
            Kind::ConnectionPoint => Self::ConnectionPoint(read(value)?),
            Kind::L2Service => Self::Service(read(value)?),
            Kind::L2BridgeDomain => Self::BridgeDomain(read(value)?),
            Kind::L2ServiceAttachment => Self::Attachment(read(value)?),
            Kind::Bridge => Self::Bridge(read(value)?),
            Kind::PodNetworkConfig | Kind::PodConfig => Self::PodLinks(read(value)?),
        })
    }

    /// The objects that it names, in the order of its fields. Links between FabricDevices are not included.
    pub fn references(&self) -> Vec<Key> {
        let keys =
            |kind, names: &[Name]| names.iter().map(|name| Key::cluster(kind, name)).collect::<Vec<_>>();
        match self {
            Self::Route(_)
            | Self::NodePool(_)
            | Self::PhysicalNetwork(_)
            | Self::Bridge(_)
            | Self::PodLinks(_) => Vec::new(),
            Self::Subnet(spec) => keys(Kind::Route, &spec.routes),
            Self::ConnectionPoint(spec) => keys(Kind::NodePool, spec.node_pool.as_slice()),
            Self::BridgeDomain(spec) => keys(Kind::ConnectionPoint, &spec.connection_points),
            Self::Service(spec) => {
                let mut all = keys(Kind::Subnet, &spec.subnets);
                all.extend(keys(Kind::PhysicalNetwork, &spec.physical_networks));
                all
            }
            Self::Attachment(spec) => {
                let mut all = keys(Kind::L2Service, &spec.services);
                all.push(Key::cluster(Kind::ConnectionPoint, &spec.connection_point));
                all
            }
            Self::Device(spec) => spec
                .ports
                .iter()
                .filter_map(|port| match &port.leads_to {
                    LeadsTo::PhysicalNetwork(name) => Some(Key::cluster(Kind::PhysicalNetwork, name)),
                    LeadsTo::Node { .. } | LeadsTo::Device { .. } => None,
                })
                .collect(),
        }
    }
}

/// An L2 network.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct ServiceSpec {
    /// The VLAN ID.
    #[serde(rename = "SegmentationID")]
    pub vid: VlanId,
    /// At most one of each family.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub subnets: Vec<Name>,
    /// The PhysicalNetworks by which it leaves the fabric.
    #[serde(default, rename = "PhysicalNW", skip_serializing_if = "Vec::is_empty")]
    pub physical_networks: Vec<Name>,
    /// The namespaces whose attachments may use it. Absent: all that its PhysicalNetworks allow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespaces: Option<Selector>,
}

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
}

impl AttachmentSpec {
    /// The MTU of the pod's interface where `chosen` makes it.
    pub fn mtu(&self, chosen: &SupportedCni) -> Option<u32> {
        self.mtu.or(chosen.mtu)
    }
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
}

/// A subnet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct SubnetSpec {
    /// The IPAM plugin that hands out addresses.
    pub ipam: Ipam,
    /// The network.
    pub network: IpNet,
    /// The ranges that IPAM may hand out; each `start` ≤ `end`, inside the network.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allocation_pool: Vec<Pool>,
    /// The ranges that the engine leases from; disjoint from the others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hot_plug_pool: Vec<Pool>,
    /// Routes into the pods.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<Name>,
    /// Resolver settings.
    #[serde(default, skip_serializing_if = "Dns::is_empty")]
    pub dns: Dns,
}

/// A route.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct RouteSpec {
    /// The destination.
    pub prefix: IpNet,
    /// The next hop, of the prefix's address family.
    pub next_hop: IpAddr,
}

/// A VLAN on connection points.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct BridgeDomainSpec {
    /// The VLAN.
    pub vlan: VlanId,
    /// The ConnectionPoints.
    pub connection_points: Vec<Name>,
}

/// A set of nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct NodePoolSpec {
    /// The labels of its nodes.
    pub node_selector: Selector,
}

/// A network outside the fabric.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct PhysicalNetworkSpec {
    /// The VLANs that may be used on it; absent: all.
    #[serde(default, rename = "SegmentationIDs", skip_serializing_if = "Option::is_none")]
    pub segmentation_ids: Option<VlanSet>,
    /// The namespaces whose attachments may use it; absent: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespaces: Option<Selector>,
    /// It is wired by others: no path to it is required.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unmanaged: bool,
}

/// A switch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct DeviceSpec {
    /// The driver that configures it.
    pub driver: Name,
    /// Its endpoint and policies.
    pub device: Device,
    /// The ports that are ours to configure, each name once.
    pub ports: Vec<DevicePort>,
}

impl DeviceSpec {
    /// True when address and driver are the same: otherwise it may be another device.
    pub fn is_same_device(&self, other: &Self) -> bool {
        (&self.driver, &self.device.address) == (&other.driver, &other.device.address)
    }

    /// The LAG of a port.
    pub fn lag(&self, port: &Name) -> Option<&Name> {
        self.ports.iter().find(|listed| listed.name == *port)?.lag.as_ref()
    }
}

/// A port of a switch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct DevicePort {
    /// The device's own name for it.
    pub name: Name,
    /// Whether it may be converted from access mode.
    pub mode: PortMode,
    /// The LAG that it is a member of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lag: Option<Name>,
    /// The peer of the port.
    pub leads_to: LeadsTo,
}

/// The peer of a switch port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", rename_all_fields = "PascalCase")]
pub enum LeadsTo {
    /// A NIC of a node.
    Node {
        /// The node.
        node: Name,
        /// The NIC.
        interface: Name,
    },
    /// A network outside the fabric.
    PhysicalNetwork(Name),
    /// A port of another switch.
    Device {
        /// The other FabricDevice.
        device: Name,
        /// Its port.
        port: Name,
    },
}

macro_rules! read_as {
    ($($name:ident: $variant:ident => $type:ty),* $(,)?) => {
        impl Spec {
            $(
                #[doc = concat!("The spec, if it is a [`", stringify!($type), "`].")]
                pub fn $name(&self) -> Option<&$type> {
                    match self {
                        Self::$variant(spec) => Some(spec),
                        _ => None,
                    }
                }
            )*
        }
    };
}

read_as! {
    attachment: Attachment => AttachmentSpec,
    device: Device => DeviceSpec,
    connection_point: ConnectionPoint => ConnectionPointSpec,
    bridge_domain: BridgeDomain => BridgeDomainSpec,
    subnet: Subnet => SubnetSpec,
    route: Route => RouteSpec,
    node_pool: NodePool => NodePoolSpec,
    service: Service => ServiceSpec,
    physical_network: PhysicalNetwork => PhysicalNetworkSpec,
    bridge: Bridge => BridgeSpec,
    pod_links: PodLinks => PodLinksSpec,
}
