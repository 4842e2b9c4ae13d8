//! Ownership marks on interfaces of the host, stored in the kernel alone, and the original settings of NICs in use.
//!
//! - An interface that ENO makes is in the group [`group`]. `IFLA_GROUP` can be set in the request that makes the
//!   interface. So an agent that is killed leaves no interface that its successor does not recognise.
//! - Its alias, [`alias`], states the owner for people.
//! - A NIC of the node that ENO uses gets an alternative name, [`OriginalSettings`], before anything else of it is
//!   changed. The name records the settings to restore when no network uses the NIC any more. The NIC's alias is not
//!   changed.

use std::fmt;

use sha2::{Digest as _, Sha256};

use crate::netlink::Link;

/// How the names of interfaces for BGP sessions begin.
pub const INTERFACE_PREFIX: &str = "eno-";

/// The top byte of the numbers of ENO's routing tables. The other bytes are the index of the interface.
const TABLE_PREFIX: u32 = 0x6500_0000;

/// The number of the routing table of a pod bridge or an interface for BGP sessions; `index`: that of it.
pub fn table(index: u32) -> u32 {
    TABLE_PREFIX | (index & 0x00ff_ffff)
}

/// True for numbers that [`table`] gives.
pub fn is_table(table: u32) -> bool {
    table & 0xff00_0000 == TABLE_PREFIX
}

/// `IFLA_GROUP` of the host interfaces that ENO makes for a cluster. It fits into 31 bits, as iproute2 demands.
pub fn group(cluster: &str) -> u32 {
    let bytes = digest(&[b"host network", cluster.as_bytes()]);
    0x4000_0000 | (u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) & 0x3fff_ffff)
}

/// `IFLA_IFALIAS` of the interfaces that ENO makes for a network.
pub fn alias(cluster: &str, network: &str) -> String {
    format!("eno:{cluster}:{network}")
}

/// `IFLA_ADDRESS` of a pod bridge. It is derived from the name, so that pods' neighbour entries stay valid when ports
/// come and go or the bridge is made again.
pub fn mac(cluster: &str, bridge: &str) -> [u8; 6] {
    locally_administered(digest(&[b"bridge", cluster.as_bytes(), bridge.as_bytes()]))
}

/// `IFLA_ADDRESS` of an interface for BGP sessions. Its neighbours keep it when it is made again.
pub fn interface_mac(cluster: &str, node: &str, interface: &str) -> [u8; 6] {
    let parts = [b"interface", cluster.as_bytes(), node.as_bytes(), interface.as_bytes()];
    locally_administered(digest(&parts))
}

/// The name of the port by which an interface for BGP sessions is on a bridge: 15 bytes that no other part of the agent
/// gives.
pub fn port(interface: &str) -> String {
    let bytes = digest(&[b"port", interface.as_bytes()]);
    bytes.iter().take(4).fold("enoport".to_owned(), |name, byte| name + &format!("{byte:02x}"))
}

/// A unicast MAC address that no manufacturer gives.
fn locally_administered(bytes: [u8; 32]) -> [u8; 6] {
    [bytes[0] & 0xfc | 0x02, bytes[1], bytes[2], bytes[3], bytes[4], bytes[5]]
}

fn digest(parts: &[&[u8]]) -> [u8; 32] {
    let mut digest = Sha256::new();
    for part in parts {
        digest.update(part);
        digest.update([0]);
    }
    digest.finalize().into()
}

/// True for names that [`OriginalSettings::altname`] gives, for any cluster.
pub fn is_original_altname(name: &str) -> bool {
    name.starts_with("eno-") && name.contains("-was-")
}

/// The settings of a NIC before ENO used it. They are recorded in an alternative name of the NIC, such as
/// `eno-lab1-was-1500-up-0-7`. The last number is the NIC's index, since alternative names are unique.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OriginalSettings {
    /// MTU in bytes.
    pub mtu: u32,
    /// True when it was administratively up.
    pub up: bool,
    /// As [`Link::address_generation`].
    pub address_generation: Option<u8>,
}

impl OriginalSettings {
    /// The settings that a NIC has at present.
    pub fn current(link: &Link) -> Self {
        Self { mtu: link.mtu, up: link.up, address_generation: link.address_generation }
    }

    /// The settings recorded on a NIC, with the alternative name that records them.
    pub fn recorded<'a>(link: &'a Link, cluster: &str) -> Option<(Self, &'a str)> {
        link.altnames.iter().find_map(|name| Some((Self::parse(name, cluster)?, name.as_str())))
    }

    /// The alternative name that records the settings; `index`: the NIC's.
    pub fn altname(self, cluster: &str, index: u32) -> String {
        let up = if self.up { "up" } else { "down" };
        let generation = AddressGeneration(self.address_generation);
        format!("eno-{cluster}-was-{}-{up}-{generation}-{index}", self.mtu)
    }

    fn parse(name: &str, cluster: &str) -> Option<Self> {
        let rest = name.strip_prefix("eno-")?.strip_prefix(cluster)?.strip_prefix("-was-")?;
        let mut fields = rest.split('-');
        let mtu = fields.next()?.parse().ok()?;
        let up = match fields.next()? {
            "up" => true,
            "down" => false,
            _ => return None,
        };
        let address_generation = match fields.next()? {
            "x" => None,
            number => Some(number.parse().ok()?),
        };
        fields.next()?.parse::<u32>().ok()?;
        fields.next().is_none().then_some(Self { mtu, up, address_generation })
    }
}

struct AddressGeneration(Option<u8>);

impl fmt::Display for AddressGeneration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(mode) => mode.fmt(f),
            None => f.write_str("x"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn original_settings_round_trip_through_altname() {
        for address_generation in [None, Some(0), Some(3)] {
            for up in [true, false] {
                let original = OriginalSettings { mtu: 9000, up, address_generation };
                let name = original.altname("lab1", 7);
                assert!(name.len() < 128, "{name}");
                assert_eq!(OriginalSettings::parse(&name, "lab1"), Some(original));
                assert_eq!(OriginalSettings::parse(&name, "lab"), None);
            }
        }
        assert_eq!(OriginalSettings::parse("eno-lab1-was-1500-up-0-7-9", "lab1"), None);
        assert_eq!(OriginalSettings::parse("enp0s3", "lab1"), None);
    }

    #[test]
    fn groups_tables_and_macs_are_in_range() {
        assert_ne!(group("a"), group("b"));
        assert!(i32::try_from(group("lab1")).is_ok());
        assert!(is_table(table(7)) && table(7) != table(8) && !is_table(254));
        assert_eq!(mac("a", "b")[0] & 0x03, 0x02);
        assert_ne!(interface_mac("a", "b", "eno-x"), interface_mac("a", "c", "eno-x"));
        assert_eq!(port("eno-bgp").len(), 15);
    }
}
