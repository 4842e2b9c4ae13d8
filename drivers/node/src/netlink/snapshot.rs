//! What is there in a namespace, as plain values.

use std::net::IpAddr;

use ipnet::IpNet;

use super::PROTOCOL;

/// All that counts of a namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Ascending by index.
    pub links: Vec<Link>,
    /// Of all interfaces.
    pub addresses: Vec<Address>,
    /// Unicast routes of all tables but `local`.
    pub routes: Vec<Route>,
    /// Of both families.
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
    /// `IFLA_MTU`.
    pub mtu: u32,
    /// `IFLA_MAX_MTU`; 0: any.
    pub max_mtu: u32,
    /// `IFLA_INET6_ADDR_GEN_MODE`; absent where it has no IPv6.
    pub address_generation: Option<u8>,
    /// `IFLA_ADDRESS`, where it is an Ethernet address.
    pub mac: Option<[u8; 6]>,
    /// `IFLA_IFALIAS`.
    pub alias: Option<String>,
    /// `IFLA_ALT_IFNAME`.
    pub altnames: Vec<String>,
    /// `IFLA_GROUP`.
    pub group: u32,
    /// `IFLA_MASTER`.
    pub master: Option<u32>,
    /// `IFLA_LINK`: what it is made on, or the other end of the pair.
    pub parent: Option<u32>,
    /// `IFLA_LINK_NETNSID`: the parent is in another namespace.
    pub parent_namespace: Option<i32>,
}

/// What an interface is, with what can't be changed of it.
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
        /// Who may open it.
        owner: Option<u32>,
        /// Which group may.
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
    /// Another one.
    Other(String),
}

/// A `vxlan` or `geneve` interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overlay {
    /// 24 bits.
    pub vni: u32,
    /// The other end.
    pub remote: Option<IpAddr>,
    /// Its own address.
    pub local: Option<IpAddr>,
    /// UDP.
    pub port: u16,
}

/// A `gre`, `gretap` or `ipip` interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tunnel {
    /// The other end.
    pub remote: Option<IpAddr>,
    /// Its own address.
    pub local: Option<IpAddr>,
    /// In both directions.
    pub key: Option<u32>,
    /// 0: inherited.
    pub ttl: u8,
}

/// An address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// Of its interface.
    pub index: u32,
    /// With the prefix length of its network.
    pub net: IpNet,
    /// `IFA_PROTO`; 0: not said.
    pub protocol: u8,
    /// Made by someone, not learnt by the kernel from a router.
    pub permanent: bool,
}

/// A unicast route; one with several next hops is there once for each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// `RTA_TABLE`.
    pub table: u32,
    /// `RTA_DST`.
    pub prefix: IpNet,
    /// `RTA_GATEWAY`.
    pub gateway: Option<IpAddr>,
    /// `RTA_OIF`, or that of the next hop.
    pub index: Option<u32>,
    /// `RTA_PRIORITY`; 0: none.
    pub metric: u32,
    /// `RTA_PREFSRC`.
    pub source: Option<IpAddr>,
    /// `rtm_protocol`.
    pub protocol: u8,
}

/// A rule that leads to a table.
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
    /// `FRA_PROTOCOL`.
    pub protocol: u8,
}

impl Snapshot {
    /// The interface called that.
    pub fn named(&self, name: &str) -> Option<&Link> {
        self.links.iter().find(|link| link.name == name)
    }

    /// The interface of that index.
    pub fn link(&self, index: u32) -> Option<&Link> {
        self.links.iter().find(|link| link.index == index)
    }

    /// A route or a rule is ours.
    pub fn has_routing_of_ours(&self) -> bool {
        self.routes.iter().any(|route| route.protocol == PROTOCOL)
            || self.rules.iter().any(|rule| rule.protocol == PROTOCOL)
    }
}
