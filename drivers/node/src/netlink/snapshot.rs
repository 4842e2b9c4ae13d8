//! The observed state of a namespace, as plain values.

use std::net::IpAddr;

use ipnet::IpNet;

use super::PROTOCOL;

/// The interfaces, addresses, routes and rules of a namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Ascending by index.
    pub links: Vec<Link>,
    /// Addresses of all interfaces.
    pub addresses: Vec<Address>,
    /// Routes of all tables but `local`: unicast ones, and those that drop packets.
    pub routes: Vec<Route>,
    /// Policy rules of IPv4 and IPv6.
    pub rules: Vec<Rule>,
}

/// An interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// `ifi_index`.
    pub index: u32,
    /// `IFLA_IFNAME`.
    pub name: String,
    /// `IFLA_LINKINFO`.
    pub kind: Kind,
    /// `IFF_UP`.
    pub up: bool,
    /// `IFF_LOWER_UP`.
    pub carrier: bool,
    /// `IFLA_MTU`, in bytes.
    pub mtu: u32,
    /// `IFLA_MAX_MTU`, in bytes; 0: no limit.
    pub max_mtu: u32,
    /// `IFLA_INET6_ADDR_GEN_MODE`; absent on interfaces without IPv6.
    pub address_generation: Option<u8>,
    /// `IFLA_ADDRESS`, if it is an Ethernet address.
    pub mac: Option<[u8; 6]>,
    /// `IFLA_IFALIAS`.
    pub alias: Option<String>,
    /// `IFLA_ALT_IFNAME`.
    pub altnames: Vec<String>,
    /// `IFLA_GROUP`.
    pub group: u32,
    /// `IFLA_MASTER`.
    pub master: Option<u32>,
    /// `IFLA_LINK`: the index of its lower interface, or of its veth peer.
    pub parent: Option<u32>,
    /// `IFLA_LINK_NETNSID`: the parent is in another namespace.
    pub parent_namespace: Option<i32>,
}

impl Link {
    /// An interface without name and settings.
    pub fn new(index: u32, kind: Kind) -> Self {
        Self {
            index,
            name: String::new(),
            kind,
            up: false,
            carrier: false,
            mtu: 0,
            max_mtu: 0,
            address_generation: None,
            mac: None,
            alias: None,
            altnames: Vec::new(),
            group: 0,
            master: None,
            parent: None,
            parent_namespace: None,
        }
    }
}

/// The kind of an interface, with the attributes that can't be changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// No `IFLA_LINKINFO`: a NIC.
    Device,
    /// `lo`.
    Loopback,
    /// `veth`.
    Veth,
    /// `bridge`.
    Bridge {
        /// `IFLA_BR_VLAN_FILTERING`.
        vlan_filtering: bool,
        /// `IFLA_BR_VLAN_DEFAULT_PVID`; 0: none.
        default_pvid: u16,
    },
    /// `macvlan`.
    Macvlan {
        /// In bridge mode.
        bridge: bool,
    },
    /// `ipvlan`.
    Ipvlan {
        /// In l2 mode.
        l2: bool,
    },
    /// `vlan`, 802.1Q.
    Vlan {
        /// `IFLA_VLAN_ID`.
        vid: u16,
    },
    /// `vxlan`.
    Vxlan(Overlay),
    /// `geneve`.
    Geneve(Overlay),
    /// `gre`.
    Gre(Tunnel),
    /// `gretap`.
    Gretap(Tunnel),
    /// `ipip`.
    Ipip(Tunnel),
    /// `tun`.
    Tun {
        /// TAP rather than TUN.
        tap: bool,
        /// The UID that may open it (`IFLA_TUN_OWNER`).
        owner: Option<u32>,
        /// The GID that may open it (`IFLA_TUN_GROUP`).
        group: Option<u32>,
    },
    /// `dummy`.
    Dummy,
    /// `vrf`.
    Vrf {
        /// `IFLA_VRF_TABLE`.
        table: u32,
    },
    /// `bond`.
    Bond {
        /// `IFLA_BOND_MODE` is active-backup.
        active_backup: bool,
    },
    /// Any other kind, by its name (`IFLA_INFO_KIND`).
    Other(String),
}

/// A `vxlan` or `geneve` interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overlay {
    /// Virtual network identifier, 24 bits.
    pub vni: u32,
    /// The remote endpoint's address.
    pub remote: Option<IpAddr>,
    /// The local endpoint's address.
    pub local: Option<IpAddr>,
    /// UDP port of the remote endpoint.
    pub port: u16,
}

/// A `gre`, `gretap` or `ipip` interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tunnel {
    /// The remote endpoint's address.
    pub remote: Option<IpAddr>,
    /// The local endpoint's address.
    pub local: Option<IpAddr>,
    /// The GRE key, of both directions.
    pub key: Option<u32>,
    /// TTL; 0: inherited from the inner packet.
    pub ttl: u8,
}

/// An address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// The index of its interface.
    pub index: u32,
    /// The address with the prefix length of its network.
    pub net: IpNet,
    /// `IFA_PROTO`; 0: unspecified.
    pub protocol: u8,
    /// `IFA_F_PERMANENT`: configured, not learnt from router advertisements.
    pub permanent: bool,
}

/// A route to one next hop, or one that drops packets. A multipath route is listed once for each next hop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// `RTA_TABLE`.
    pub table: u32,
    /// `RTA_DST`.
    pub prefix: IpNet,
    /// `RTA_GATEWAY`.
    pub gateway: Option<IpAddr>,
    /// `RTA_OIF`, or the interface of the next hop.
    pub index: Option<u32>,
    /// `RTA_PRIORITY`; 0: none.
    pub metric: u32,
    /// `RTA_PREFSRC`.
    pub source: Option<IpAddr>,
    /// `rtm_protocol`.
    pub protocol: u8,
}

/// A policy rule that looks up a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// IPv6 rather than IPv4.
    pub v6: bool,
    /// `FRA_PRIORITY`.
    pub priority: u32,
    /// `FRA_TABLE`.
    pub table: u32,
    /// `FRA_SRC`.
    pub from: Option<IpNet>,
    /// `FRA_DST`.
    pub to: Option<IpNet>,
    /// `FRA_IIFNAME`: only for packets that came in by this interface; `lo`: only for those of the host itself.
    pub input: Option<String>,
    /// `FRA_FWMARK` and `FRA_FWMASK`: only for packets with this mark in these bits.
    pub mark: Option<(u32, u32)>,
    /// `FRA_PROTOCOL`.
    pub protocol: u8,
}

impl Snapshot {
    /// The interface with that name.
    pub fn named(&self, name: &str) -> Option<&Link> {
        self.links.iter().find(|link| link.name == name)
    }

    /// The interface with that index.
    pub fn link(&self, index: u32) -> Option<&Link> {
        self.links.iter().find(|link| link.index == index)
    }

    /// True when any route or rule has the protocol [`PROTOCOL`].
    pub fn has_routing_of_ours(&self) -> bool {
        self.routes.iter().any(|route| route.protocol == PROTOCOL)
            || self.rules.iter().any(|rule| rule.protocol == PROTOCOL)
    }
}
