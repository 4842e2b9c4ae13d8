//! The desired state of one node: the networks of its host, and the configuration of its pods at run time.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::{NetworkProbes, NodeAddresses, VlanId, VlanSet};

/// The complete configuration of ours on one node. The driver removes all other state of ours.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeDesired {
    /// Identifies the cluster in ownership marks: 1 to 8 characters of `[a-z0-9]`.
    pub cluster: String,
    /// The networks of the host, by the name of their bridge or NIC.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub networks: BTreeMap<String, HostNetwork>,
    /// The pods with interfaces of ours, by `metadata.uid`. Only pods whose first container runs.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub pods: BTreeMap<String, NodePod>,
    /// What is asked on VLANs to learn whether packets pass, in the order of connection point and network, each pair
    /// once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub probes: Vec<NetworkProbes>,
    /// The addresses that pods get when they start, by the name of the Subnet.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub addresses: BTreeMap<String, NodeAddresses>,
}

/// A network of the host. Its name is its key in [`NodeDesired::networks`].
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "kebab-case", rename_all_fields = "camelCase")]
pub enum HostNetwork {
    /// An Open vSwitch bridge.
    Ovs {
        /// `datapath_type`; absent: as the node is configured.
        datapath: Option<OvsDatapath>,
        /// Its connection to the fabric; absent: it connects only pods of this node.
        uplink: Option<Uplink>,
        /// Another Open vSwitch bridge, joined by a pair of patch ports that carry `vlans`.
        patch: Option<String>,
        /// The tagged VLANs of the uplink and the patch; empty: none, not all.
        vlans: VlanSet,
    },
    /// A Linux bridge that filters VLANs.
    Bridge {
        /// Its connection to the fabric; absent: it connects only pods of this node.
        uplink: Option<Uplink>,
        /// The tagged VLANs of the uplink; empty: none.
        vlans: VlanSet,
        /// The MTU of the bridge in bytes, and the minimum MTU of the uplink.
        mtu: Option<u32>,
    },
    /// A NIC (or a bond of that name) with VLAN subinterfaces `<name>.<vid>`, which are masters of pods' interfaces.
    Master {
        /// The NICs of the bond; empty: it is an existing NIC.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        bond: Vec<String>,
        /// The subinterfaces.
        vlans: VlanSet,
        /// The minimum MTU of the NIC in bytes, and the MTU of the subinterfaces.
        mtu: Option<u32>,
    },
    /// A Linux bridge that connects only pods of this node.
    PodBridge {
        /// Its own addresses. Pods on it reach them; the host's main table gets no route to them.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        #[schemars(with = "Vec<String>")]
        addresses: Vec<IpNet>,
        /// The MTU in bytes.
        mtu: Option<u32>,
    },
    /// An interface of the host in one VLAN of another network, for BGP sessions with gateways. The host's main table gets no
    /// route by it. It takes nothing but what these sessions need, and packets to the prefixes that they announce.
    Interface {
        /// The network, another key in [`NodeDesired::networks`] that is no pod bridge.
        network: String,
        /// The VLAN, one of that network.
        vlan: VlanId,
        /// Its own addresses with the prefix lengths of their networks, ascending, each once.
        #[schemars(with = "Vec<String>")]
        addresses: Vec<IpNet>,
        /// The gateways, addresses in the networks of `addresses`, ascending, each once.
        gateways: Vec<IpAddr>,
        /// The prefixes to which it takes packets, ascending, each once.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        #[schemars(with = "Vec<String>")]
        prefixes: Vec<IpNet>,
        /// Answers to what came in by it leave by it, to the first gateway of their family, also those of pods.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        symmetric: bool,
        /// The MTU in bytes; absent: the network's.
        mtu: Option<u32>,
    },
}

/// `datapath_type` of an Open vSwitch bridge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OvsDatapath {
    /// In the kernel, by its module.
    System,
    /// In user space.
    Netdev,
}

/// The connection of a bridge to the fabric.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Uplink {
    /// NICs of the node, ascending; several form one bond, called [`Uplink::bond_name`].
    #[schemars(length(min = 1, max = 16))]
    pub interfaces: Vec<String>,
    /// The minimum MTU in bytes; absent: the MTU is not changed.
    pub mtu: Option<u32>,
}

impl Uplink {
    /// The name of a bridge's bond: at most 15 bytes, the same at every call.
    pub fn bond_name(bridge: &str) -> String {
        use sha2::{Digest as _, Sha256};
        let digest = Sha256::digest(bridge.as_bytes());
        digest.iter().take(4).fold("enobond".to_owned(), |name, byte| name + &format!("{byte:02x}"))
    }
}

/// A running pod and its interfaces.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodePod {
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// `status.containerStatuses[].containerID` of its first container, such as `containerd://4b…`. It changes with a
    /// restart, after which the driver resolves the pod's network namespace again.
    pub container: String,
    /// Its interfaces. An interface follows those that it is made on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<PodLink>,
    /// A change of the primary interface, which the cluster's network made.
    pub primary: Option<PrimaryLink>,
}

/// A change of a pod's primary interface. Its removal restores the former state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PrimaryLink {
    /// As for [`PodLink::id`].
    pub id: String,
    /// As for [`PodLink::revision`].
    pub revision: String,
    /// Its name in the pod, `eth0`.
    pub name: String,
    /// The MTU in bytes.
    pub mtu: u32,
}

/// An interface in a pod.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodLink {
    /// Identifies the interface within its pod for its lifetime.
    pub id: String,
    /// Identifies the content. Reports repeat it.
    pub revision: String,
    /// The name in the pod.
    pub name: LinkName,
    /// The type of the interface.
    pub kind: LinkKind,
    /// `id` of its bridge or VRF in this pod.
    pub member_of: Option<String>,
    /// The MTU in bytes; absent: the kernel's choice.
    pub mtu: Option<u32>,
    /// The MAC address: six bytes in hexadecimal with colons, lower case; absent: the kernel's choice, which is kept.
    pub mac: Option<String>,
    /// `ifalias`.
    pub alias: Option<String>,
    /// The addresses with their prefix lengths.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<String>")]
    pub addresses: Vec<IpNet>,
    /// Routes out of this interface.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<PodRoute>,
    /// Rules that choose the table of a route.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<PodRule>,
    /// Sysctls below `/proc/sys/net/{ipv4,ipv6}/{conf,neigh}/<interface>`, such as `ipv4/conf/rp_filter`; only those
    /// of [`crate::safe_sysctls`].
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub sysctls: BTreeMap<String, String>,
    /// Administratively up.
    pub up: bool,
    /// Only frames from `mac` and with own addresses leave the pod: `addresses`, and those of its VLANs (`vlan` links on
    /// it). For veth with `mac`. The link is refused where that can't be enforced.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub anti_spoof: bool,
    /// Where its parent ([`Parent::Pod`]) leads to on the host: on another one it is not made. Absent: anywhere.
    pub parent_leads_to: Option<Carrier>,
}

/// Where an interface in a pod that other software made leads to on the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Carrier {
    /// Its other end is a port of this Linux bridge.
    Bridge(String),
    /// Its other end is a port of this Open vSwitch bridge.
    Ovs(String),
    /// It is a macvlan on this interface of the host.
    Master(String),
    /// It is a device of its own, with nothing on the host.
    Device,
}

/// The name of an interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LinkName {
    /// This name.
    Fixed(String),
    /// `<name><PID>` in the pod and `h<name><PID>` on the host, with the PID of the pod's first container at
    /// creation. It stays for the life of the pod's sandbox.
    WithPid(String),
}

/// The type of an interface, as `ip link add type …` calls it.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "lowercase", rename_all_fields = "camelCase")]
pub enum LinkKind {
    /// One end of a pair; the other is on the host.
    Veth {
        /// The bridge of the host's end; absent: none.
        master: Option<Master>,
    },
    /// macvlan in bridge mode.
    Macvlan {
        /// An interface of the host.
        master: String,
    },
    /// ipvlan in l2 mode.
    Ipvlan {
        /// An interface of the host.
        master: String,
    },
    /// A VLAN of another interface.
    Vlan {
        /// The parent interface.
        parent: Parent,
        /// The VLAN ID.
        vlan: VlanId,
    },
    /// A bridge inside the pod.
    Bridge {},
    /// RFC 7348. Its packets leave by the pod's routes.
    Vxlan {
        /// 24 bits.
        #[schemars(range(max = 16_777_215))]
        vni: u32,
        /// The remote address, or a multicast group; absent: learnt.
        remote: Option<IpAddr>,
        /// Its own address.
        local: Option<IpAddr>,
        /// UDP; absent: 4789.
        port: Option<u16>,
    },
    /// RFC 8926. Its packets leave by the pod's routes.
    Geneve {
        /// 24 bits.
        #[schemars(range(max = 16_777_215))]
        vni: u32,
        /// The remote address.
        remote: IpAddr,
        /// UDP; absent: 6081.
        port: Option<u16>,
    },
    /// RFC 2784, IP in GRE in IPv4.
    Gre(Tunnel),
    /// RFC 2784, Ethernet in GRE in IPv4.
    Gretap(Tunnel),
    /// RFC 2003.
    Ipip(Tunnel),
    /// A TUN device that a process of the pod may open.
    Tun(TunDevice),
    /// A TAP device that a process of the pod may open.
    Tap(TunDevice),
    /// It drops all packets.
    Dummy {},
    /// A routing table with interfaces of its own.
    Vrf {
        /// The number of the table; not 0, 253, 254 or 255.
        table: u32,
    },
}

/// A point-to-point tunnel over IPv4.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Tunnel {
    /// The remote address.
    pub remote: std::net::Ipv4Addr,
    /// Its own address; absent: by the route.
    pub local: Option<std::net::Ipv4Addr>,
    /// The GRE key in both directions; not for ipip.
    pub key: Option<u32>,
    /// The TTL; absent: inherited from the packet.
    pub ttl: Option<u8>,
}

/// A TUN or TAP device, persistent.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct TunDevice {
    /// The user with permission to open it; absent: anyone with the privilege.
    pub owner: Option<u32>,
    /// The group with permission to open it.
    pub group: Option<u32>,
}

/// The bridge of the host's end of a pair. It must be in [`NodeDesired::networks`].
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "kebab-case", rename_all_fields = "camelCase")]
pub enum Master {
    /// A port of an Open vSwitch bridge.
    Ovs {
        /// The bridge.
        bridge: String,
        /// The VLANs of the port.
        vlans: PortVlans,
    },
    /// A port of a Linux bridge.
    Bridge {
        /// The bridge.
        bridge: String,
        /// The VLANs of the port; absent: the bridge has none.
        vlans: Option<PortVlans>,
    },
}

impl Master {
    /// The bridge.
    pub fn bridge(&self) -> &str {
        match self {
            Self::Ovs { bridge, .. } | Self::Bridge { bridge, .. } => bridge,
        }
    }
}

/// The VLANs of a pod's port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PortVlans {
    /// One VLAN, untagged in the pod.
    Access(VlanId),
    /// VLANs that are tagged in the pod; empty: none.
    Trunk(VlanSet),
}

/// The parent of a VLAN interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Parent {
    /// [`PodLink::id`] of another interface of ours in the pod.
    Link(String),
    /// An interface in the pod, by name, such as `eth0`.
    Pod(String),
    /// An interface of the host.
    Host(String),
}

/// A route out of an interface of a pod.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodRoute {
    /// `dst`; of length 0: the default route.
    #[schemars(with = "String")]
    pub prefix: IpNet,
    /// `via`; absent: on the link.
    pub next_hop: Option<IpAddr>,
    /// The table; absent: main.
    pub table: Option<u32>,
    /// `metric`.
    pub metric: Option<u32>,
    /// `src`, the preferred source address.
    pub source: Option<IpAddr>,
}

/// A rule that chooses the table of a route (`ip rule`).
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodRule {
    /// The table that is looked up.
    pub table: u32,
    /// The priority, 1 to 32765; a lower one comes first.
    #[schemars(range(min = 1, max = 32765))]
    pub priority: u32,
    /// The source prefix; absent: any.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub from: Option<IpNet>,
    /// The destination prefix; absent: any.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub to: Option<IpNet>,
}

/// The observed state of a [`HostNetwork`].
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AppliedNetwork {
    /// The VLANs that its uplink carries, or that it has subinterfaces for.
    #[serde(default)]
    pub vlans: VlanSet,
    /// The MTU of its uplink in bytes, if one was requested.
    pub mtu: Option<u32>,
}

/// The observed state of a [`PodLink`] or [`PrimaryLink`].
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AppliedLink {
    /// The revision of the desired interface.
    pub revision: String,
    /// The name in the pod.
    pub name: String,
    /// The name of the host's end of the pair.
    pub host_name: Option<String>,
    /// The MAC address: six bytes in hexadecimal with colons; absent: it has none.
    pub mac: Option<String>,
    /// The MTU in bytes.
    pub mtu: u32,
    /// The link with a smaller MTU than requested; absent: the agent sees none, or none was requested.
    pub path: Option<PathMtu>,
    /// The desired addresses that it has.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<String>")]
    pub addresses: Vec<IpNet>,
}

/// The interface with the smallest MTU on the path from a pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PathMtu {
    /// The name on the host or in the pod.
    pub interface: String,
    /// Its MTU in bytes.
    pub mtu: u32,
    /// The tunnel overhead in bytes.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub overhead: u32,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}
