//! What tells from the kernel alone which interfaces are ours, and what a NIC that is not was like before.
//!
//! - An interface that we made is in the group [`group`]. `IFLA_GROUP` is the one mark that an interface can be born
//!   with; so a process that is killed leaves nothing behind that the next one does not know as its own.
//! - Its alias, [`alias`], says the same to people.
//! - A NIC that is not ours but is used gets an alternative name, [`Was`], before anything else is done to it. The
//!   name carries what is to come back when its last user has gone. An alias of its own is left to its admin.

use std::fmt;

use sha2::{Digest as _, Sha256};

use crate::netlink::Link;

/// The top byte of the numbers of our routing tables; the others are the index of the bridge that a table is for.
const TABLE: u32 = 0x6500_0000;

/// The routing table of a pod bridge.
pub fn table(bridge: u32) -> u32 {
    TABLE | (bridge & 0x00ff_ffff)
}

/// True of the numbers that [`table`] gives.
pub fn is_table(table: u32) -> bool {
    table & 0xff00_0000 == TABLE
}

/// `IFLA_GROUP` of the interfaces that a cluster's networks are made of; it fits into 31 bits, as `ip` wants it.
pub fn group(cluster: &str) -> u32 {
    let bytes = digest(&[b"host network", cluster.as_bytes()]);
    0x4000_0000 | (u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) & 0x3fff_ffff)
}

/// `IFLA_IFALIAS` of an interface of a network.
pub fn alias(cluster: &str, network: &str) -> String {
    format!("eno:{cluster}:{network}")
}

/// `IFLA_ADDRESS` of a pod bridge: always the same, so that what pods have learnt stays right whichever come and go.
pub fn mac(cluster: &str, bridge: &str) -> [u8; 6] {
    let bytes = digest(&[b"bridge", cluster.as_bytes(), bridge.as_bytes()]);
    // Locally administered, one station.
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

/// True of names that [`Was::written`] gives, for any cluster.
pub fn is_written(name: &str) -> bool {
    name.starts_with("eno-") && name.contains("-was-")
}

/// What a NIC was like before it was used, written as an alternative name of it such as
/// `eno-lab1-was-1500-up-0-7`. The last number is the NIC's index: two interfaces can't share a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Was {
    /// Bytes.
    pub mtu: u32,
    /// Administratively up.
    pub up: bool,
    /// As [`Link::address_generation`].
    pub address_generation: Option<u8>,
}

impl Was {
    /// What it is like now.
    pub fn now(link: &Link) -> Self {
        Self { mtu: link.mtu, up: link.up, address_generation: link.address_generation }
    }

    /// What was written down about it, if anything, and the name in which it was.
    pub fn of<'a>(link: &'a Link, cluster: &str) -> Option<(Self, &'a str)> {
        link.altnames.iter().find_map(|name| Some((Self::parse(name, cluster)?, name.as_str())))
    }

    /// The alternative name that says it.
    pub fn written(self, cluster: &str, index: u32) -> String {
        let up = if self.up { "up" } else { "down" };
        let generation = Generation(self.address_generation);
        format!("eno-{cluster}-was-{}-{up}-{generation}-{index}", self.mtu)
    }

    fn parse(name: &str, cluster: &str) -> Option<Self> {
        let rest = name.strip_prefix("eno-")?.strip_prefix(cluster)?.strip_prefix("-was-")?;
        let mut words = rest.split('-');
        let mtu = words.next()?.parse().ok()?;
        let up = match words.next()? {
            "up" => true,
            "down" => false,
            _ => return None,
        };
        let address_generation = match words.next()? {
            "x" => None,
            number => Some(number.parse().ok()?),
        };
        words.next()?.parse::<u32>().ok()?;
        words.next().is_none().then_some(Self { mtu, up, address_generation })
    }
}

struct Generation(Option<u8>);

impl fmt::Display for Generation {
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
    fn what_was_comes_back() {
        for address_generation in [None, Some(0), Some(3)] {
            for up in [true, false] {
                let was = Was { mtu: 9000, up, address_generation };
                let name = was.written("lab1", 7);
                assert!(name.len() < 128, "{name}");
                assert_eq!(Was::parse(&name, "lab1"), Some(was));
                assert_eq!(Was::parse(&name, "lab"), None);
            }
        }
        assert_eq!(Was::parse("eno-lab1-was-1500-up-0-7-9", "lab1"), None);
        assert_eq!(Was::parse("enp0s3", "lab1"), None);
    }

    #[test]
    fn groups_and_tables_stay_in_their_range() {
        assert_ne!(group("a"), group("b"));
        assert!(i32::try_from(group("lab1")).is_ok());
        assert!(is_table(table(7)) && table(7) != table(8) && !is_table(254));
        assert_eq!(mac("a", "b")[0] & 0x03, 0x02);
    }
}
