//! The desired state of one node: the networks of its host, and what its pods are given at run time.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{VlanId, VlanSet};

/// Everything of ours on one node. What is ours there and not named here goes away.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeDesired {
    /// Identifies the cluster in marks: 1 to 8 characters of `[a-z0-9]`.
    pub cluster: String,
    /// The networks of the host, by the name of the bridge or NIC that each is about.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub networks: BTreeMap<String, HostNetwork>,
    /// The pods that are given something, by `metadata.uid`. Only pods whose first container runs.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub pods: BTreeMap<String, NodePod>,
}

/// A network of the host. The name that it goes by is its key in [`NodeDesired::networks`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "kebab-case", rename_all_fields = "camelCase")]
pub enum HostNetwork {
    /// An Open vSwitch bridge.
    Ovs {
        /// `datapath_type`; absent: as the node is configured.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        datapath: Option<OvsDatapath>,
        /// What leads from it to the fabric; absent: only to the pods of this node.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        uplink: Option<Uplink>,
        /// Another Open vSwitch bridge that it is joined to by a pair of patch ports, which carry `vlans`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        patch: Option<String>,
        /// What the uplink and the patch carry, tagged; empty: nothing, not everything.
        vlans: VlanSet,
    },
    /// A Linux bridge that filters VLANs.
    Bridge {
        /// What leads from it to the fabric; absent: only to the pods of this node.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        uplink: Option<Uplink>,
        /// What the uplink carries, tagged; empty: nothing.
        vlans: VlanSet,
        /// Bytes, of the bridge; at least this is asked of the uplink.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mtu: Option<u32>,
    },
    /// A NIC (or a bond of that name) with VLAN subinterfaces `<name>.<vid>`, which are masters of pods' interfaces.
    Master {
        /// The NICs that it is a bond of; empty: it is a NIC itself and is there already.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        bond: Vec<String>,
        /// The subinterfaces.
        vlans: VlanSet,
        /// Bytes; at least this is asked of the NIC, and it is what the subinterfaces get.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mtu: Option<u32>,
    },
    /// A Linux bridge that only pods of this node are on.
    PodBridge {
        /// Its own addresses: reachable from its pods, and no route to them in the host's main table.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        #[schemars(with = "Vec<String>")]
        addresses: Vec<IpNet>,
        /// Bytes.
        #[serde(default, skip_serializing_if = "Option::is_none")]
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

/// What leads from a bridge to the fabric.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Uplink {
    /// NICs of the node, ascending; several form one bond, called [`Uplink::bond_name`].
    #[schemars(length(min = 1, max = 16))]
    pub interfaces: Vec<String>,
    /// Bytes that it has to carry at least; absent: it is left as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
}

impl Uplink {
    /// What the bond of a bridge is called: at most 15 bytes, the same at every call.
    pub fn bond_name(bridge: &str) -> String {
        use sha2::{Digest as _, Sha256};
        let digest = Sha256::digest(bridge.as_bytes());
        digest.iter().take(4).fold("enobond".to_owned(), |name, byte| name + &format!("{byte:02x}"))
    }
}

/// A running pod and all that it is given.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodePod {
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// `status.containerStatuses[].containerID` of its first container, such as `containerd://4b…`. It is another
    /// one after a restart, upon which the pod's network namespace is looked up anew.
    pub container: String,
    /// Its interfaces; an interface that another one is made on comes before that one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<PodLink>,
    /// A change of the interface that the cluster's own network gave it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub primary: Option<PrimaryLink>,
}

/// A change of a pod's primary interface; what was there before comes back when it goes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PrimaryLink {
    /// As for [`PodLink::id`].
    pub id: String,
    /// As for [`PodLink::revision`].
    pub revision: String,
    /// Its name in the pod, `eth0`.
    pub name: String,
    /// Bytes.
    pub mtu: u32,
}

/// An interface in a pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodLink {
    /// Tells it from the others of its pod, for as long as it is wanted there.
    pub id: String,
    /// Names the content: reports say which one they found.
    pub revision: String,
    /// What it is called in the pod.
    pub name: LinkName,
    /// What it is.
    pub kind: LinkKind,
    /// `id` of the bridge or VRF of this pod that it is a member of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member_of: Option<String>,
    /// Bytes; absent: the kernel's choice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    /// Six bytes in hexadecimal with colons, lower case; absent: the kernel's choice, which is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<String>,
    /// `ifalias`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alias: Option<String>,
    /// With the prefix length of their network.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<String>")]
    pub addresses: Vec<IpNet>,
    /// Routes out of this interface.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<PodRoute>,
    /// Rules that choose the table of a route.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<PodRule>,
    /// Below `/proc/sys/net/{ipv4,ipv6}/{conf,neigh}/<interface>`, such as `ipv4/conf/rp_filter`; only those of
    /// [`crate::safe_sysctls`].
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub sysctls: BTreeMap<String, String>,
    /// Administratively up.
    pub up: bool,
}

/// What an interface is called.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LinkName {
    /// That.
    Fixed(String),
    /// `<name><PID>` in the pod and `h<name><PID>` on the host, with the PID of the pod's first container when the
    /// interface was made; it stays so for as long as the pod's sandbox lives.
    WithPid(String),
}

/// What an interface is, as `ip link add type …` calls it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "lowercase", rename_all_fields = "camelCase")]
pub enum LinkKind {
    /// One end of a pair; the other is on the host.
    Veth {
        /// What the host's end is a port of; absent: of nothing.
        #[serde(default, skip_serializing_if = "Option::is_none")]
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
        /// What it is a VLAN of.
        parent: Parent,
        /// Which.
        vlan: VlanId,
    },
    /// A bridge inside the pod.
    Bridge {},
    /// RFC 7348. Its packets leave by the pod's routes.
    Vxlan {
        /// 24 bits.
        #[schemars(range(max = 16_777_215))]
        vni: u32,
        /// The other end, or a multicast group; absent: learnt.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        remote: Option<IpAddr>,
        /// Its own address.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        local: Option<IpAddr>,
        /// UDP; absent: 4789.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        port: Option<u16>,
    },
    /// RFC 8926. Its packets leave by the pod's routes.
    Geneve {
        /// 24 bits.
        #[schemars(range(max = 16_777_215))]
        vni: u32,
        /// The other end.
        remote: IpAddr,
        /// UDP; absent: 6081.
        #[serde(default, skip_serializing_if = "Option::is_none")]
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
    /// It drops what it is given.
    Dummy {},
    /// A routing table with interfaces of its own.
    Vrf {
        /// The table; not 0, 253, 254 or 255.
        table: u32,
    },
}

/// A point-to-point tunnel over IPv4.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Tunnel {
    /// The other end.
    pub remote: std::net::Ipv4Addr,
    /// Its own address; absent: by the route.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local: Option<std::net::Ipv4Addr>,
    /// The GRE key in both directions; not for ipip.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<u32>,
    /// Absent: inherited from the packet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl: Option<u8>,
}

/// A TUN or TAP device, persistent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct TunDevice {
    /// The user who may open it; absent: anyone with the privilege.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<u32>,
    /// The group that may open it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<u32>,
}

/// What the host's end of a pair is a port of. Both must be in [`NodeDesired::networks`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "kebab-case", rename_all_fields = "camelCase")]
pub enum Master {
    /// A port of an Open vSwitch bridge.
    Ovs {
        /// The bridge.
        bridge: String,
        /// Which VLANs.
        vlans: PortVlans,
    },
    /// A port of a Linux bridge.
    Bridge {
        /// The bridge.
        bridge: String,
        /// Which VLANs; absent: the bridge has none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
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

/// Which VLANs a pod's port carries.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PortVlans {
    /// One, untagged in the pod.
    Access(VlanId),
    /// These, tagged in the pod; empty: none.
    Trunk(VlanSet),
}

/// What a VLAN interface is a VLAN of.
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodRoute {
    /// `dst`; of length 0: the default route.
    #[schemars(with = "String")]
    pub prefix: IpNet,
    /// `via`; absent: on the link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_hop: Option<IpAddr>,
    /// The table; absent: main.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table: Option<u32>,
    /// `metric`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metric: Option<u32>,
    /// `src`, the preferred source address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<IpAddr>,
}

/// A rule that chooses the table of a route (`ip rule`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodRule {
    /// The table that is looked up.
    pub table: u32,
    /// 1 to 32765, lower comes first.
    #[schemars(range(min = 1, max = 32765))]
    pub priority: u32,
    /// Packets from here; absent: from anywhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub from: Option<IpNet>,
    /// Packets to there; absent: to anywhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub to: Option<IpNet>,
}

/// What was found of a [`HostNetwork`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AppliedNetwork {
    /// The VLANs that its uplink carries, or that it has subinterfaces for.
    #[serde(default)]
    pub vlans: VlanSet,
    /// Bytes that get through its uplink, where something was asked of that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
}

/// What was found of a [`PodLink`] or [`PrimaryLink`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AppliedLink {
    /// That of the wanted one.
    pub revision: String,
    /// What it is called in the pod.
    pub name: String,
    /// What the other end of the pair is called on the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_name: Option<String>,
    /// Six bytes in hexadecimal with colons; absent: it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<String>,
    /// Bytes.
    pub mtu: u32,
    /// What carries less than is asked of it; absent: nothing that the agent sees, or nothing is asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<PathMtu>,
    /// Those that were wanted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<String>")]
    pub addresses: Vec<IpNet>,
}

/// The interface on the way from a pod that carries the least.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PathMtu {
    /// What it is called, on the host or in the pod.
    pub interface: String,
    /// Its MTU in bytes.
    pub mtu: u32,
    /// Bytes of these that a tunnel puts around each packet.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub overhead: u32,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}
