//! Offloads of interfaces, by generic netlink (linux/ethtool_netlink.h), which `rtnetlink` does not support.

use rtnetlink::sys::protocols::NETLINK_GENERIC;

use super::socket::{attribute, next_attribute};
use super::{Netlink, NetlinkError};

/// `NLM_F_REQUEST | NLM_F_ACK`.
const FLAGS: u16 = 0x5;
/// Bytes of `struct nlmsghdr` and `struct genlmsghdr`.
const LENGTH: usize = 20;
/// `NLA_F_NESTED`.
const NESTED: u16 = 0x8000;
/// `GENL_ID_CTRL`, `CTRL_CMD_GETFAMILY`, `CTRL_ATTR_FAMILY_ID`, `CTRL_ATTR_FAMILY_NAME`.
const CONTROL: u16 = 16;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;
/// `ETHTOOL_MSG_FEATURES_GET`, `ETHTOOL_MSG_FEATURES_SET`.
const GET_FEATURES: u8 = 11;
const SET_FEATURES: u8 = 12;
/// `ETHTOOL_A_FEATURES_HEADER`, `ETHTOOL_A_FEATURES_WANTED`, `ETHTOOL_A_FEATURES_ACTIVE`.
const HEADER: u16 = 1;
const WANTED: u16 = 3;
const ACTIVE: u16 = 4;
/// `ETHTOOL_A_HEADER_DEV_INDEX`.
const INDEX: u16 = 1;
/// `ETHTOOL_A_BITSET_BITS`, `ETHTOOL_A_BITSET_BITS_BIT`, `ETHTOOL_A_BITSET_BIT_NAME`.
const BITS: u16 = 3;
const BIT: u16 = 1;
const NAME: u16 = 2;

/// Checksums of TCP and UDP that are left to who takes the packet.
const CHECKSUM: &[u8] = b"tx-checksum-ip-generic\0";

/// A socket of generic netlink in one namespace, with the number of the family `ethtool`.
#[derive(Debug)]
pub struct Ethtool {
    netlink: Netlink,
    family: u16,
}

impl Ethtool {
    /// Opens a socket in the calling thread's namespace.
    pub fn open() -> Result<Self, NetlinkError> {
        let mut netlink = Netlink::open_protocol(NETLINK_GENERIC)?;
        let operation = "find ethtool in the kernel";
        let mut found: Vec<u16> = Vec::new();
        let mut request = message(CONTROL, GET_FAMILY, &nla(FAMILY_NAME, b"ethtool\0"));
        netlink.dump_raw(operation, &mut request, &mut found, |found, answer| {
            let id = attribute(answer.get(LENGTH..).unwrap_or_default(), FAMILY_ID);
            found.extend(id.and_then(|id| id.try_into().ok()).map(u16::from_ne_bytes));
        })?;
        let family = found.first().copied().ok_or_else(|| NetlinkError::Malformed {
            operation: operation.to_owned(),
            message: "it has no number".to_owned(),
        })?;
        Ok(Self { netlink, family })
    }

    /// True if the interface leaves checksums of what it sends to who takes the packet.
    pub fn leaves_checksums(&mut self, index: u32) -> Result<bool, NetlinkError> {
        let mut request = message(self.family, GET_FEATURES, &device(index));
        let mut found = Vec::new();
        self.netlink.dump_raw(
            "look at the offloads of an interface",
            &mut request,
            &mut found,
            |found, answer| {
                let answer = answer.get(LENGTH..).unwrap_or_default();
                let mut bits =
                    attribute(answer, ACTIVE).and_then(|set| attribute(set, BITS)).unwrap_or_default();
                while let Some((_, bit, rest)) = next_attribute(bits) {
                    found.push(attribute(bit, NAME) == Some(CHECKSUM));
                    bits = rest;
                }
            },
        )?;
        Ok(found.contains(&true))
    }

    /// Has the kernel compute the checksums of what an interface sends; `name`: the interface, for errors.
    pub fn compute_checksums(&mut self, name: &str, index: u32) -> Result<(), NetlinkError> {
        // A listed bit without a value is switched off, and one that is not listed stays.
        let off = nla(BITS | NESTED, &nla(BIT | NESTED, &nla(NAME, CHECKSUM)));
        let body = [device(index), nla(WANTED | NESTED, &off)].concat();
        let mut request = message(self.family, SET_FEATURES, &body);
        let operation = format!("switch the checksum offload of {name} off");
        self.netlink.dump_raw(&operation, &mut request, &mut Vec::<()>::new(), |_, _| {})
    }
}

fn device(index: u32) -> Vec<u8> {
    nla(HEADER | NESTED, &nla(INDEX, &index.to_ne_bytes()))
}

/// An attribute.
fn nla(kind: u16, value: &[u8]) -> Vec<u8> {
    let length = u16::try_from(4 + value.len()).unwrap_or(u16::MAX);
    let mut bytes = [&length.to_ne_bytes()[..], &kind.to_ne_bytes(), value].concat();
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

fn message(family: u16, command: u8, attributes: &[u8]) -> Vec<u8> {
    let length = u32::try_from(LENGTH + attributes.len()).unwrap_or(u32::MAX);
    let mut bytes = length.to_ne_bytes().to_vec();
    bytes.extend(family.to_ne_bytes());
    bytes.extend(FLAGS.to_ne_bytes());
    bytes.extend([0; 8]);
    bytes.extend([command, 1, 0, 0]);
    bytes.extend(attributes);
    bytes
}
