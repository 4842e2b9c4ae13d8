//! Strips unused attributes from a message about an interface before it is decoded. The settings of IPv4, IPv6 and the
//! bridge port are most of such a message.

use super::socket::{attribute, next_attribute};

/// `RTM_NEWLINK`.
const NEW_LINK: u16 = 16;
/// `struct nlmsghdr` and `struct ifinfomsg`.
const HEADERS_LEN: usize = 32;

/// The type of an attribute that is kept. Its nested attributes are kept if they are listed; an empty list keeps all.
struct Keep(u16, &'static [Keep]);

/// The attributes of an interface that are kept (linux/if_link.h).
const INTERFACE_ATTRIBUTES: &[Keep] = &interface_attributes(&[Keep(1, &[]), Keep(2, &[])]);

/// The attributes of a bridge that are kept. Of its many settings: IFLA_BR_VLAN_FILTERING, IFLA_BR_VLAN_DEFAULT_PVID.
const BRIDGE_ATTRIBUTES: &[Keep] =
    &interface_attributes(&[Keep(1, &[]), Keep(2, &[Keep(7, &[]), Keep(39, &[])])]);

/// `info`: what is kept in IFLA_LINKINFO (IFLA_INFO_KIND, IFLA_INFO_DATA).
const fn interface_attributes(info: &'static [Keep]) -> [Keep; 12] {
    [
        Keep(1, &[]),   // IFLA_ADDRESS
        Keep(3, &[]),   // IFLA_IFNAME
        Keep(4, &[]),   // IFLA_MTU
        Keep(5, &[]),   // IFLA_LINK
        Keep(10, &[]),  // IFLA_MASTER
        Keep(18, info), // IFLA_LINKINFO
        Keep(20, &[]),  // IFLA_IFALIAS
        // IFLA_AF_SPEC: AF_INET6: IFLA_INET6_ADDR_GEN_MODE
        Keep(26, &[Keep(10, &[Keep(8, &[])])]),
        Keep(27, &[]), // IFLA_GROUP
        Keep(37, &[]), // IFLA_LINK_NETNSID
        Keep(51, &[]), // IFLA_MAX_MTU
        Keep(52, &[]), // IFLA_PROP_LIST
    ]
}

/// The message with its header and the kept attributes; `None`: it is no `RTM_NEWLINK`, or malformed.
pub(super) fn strip_attributes(message: &[u8]) -> Option<Vec<u8>> {
    let kind = message.get(4..6).and_then(|field| field.try_into().ok()).map(u16::from_ne_bytes);
    if kind != Some(NEW_LINK) {
        return None;
    }
    let mut stripped = Vec::with_capacity(512);
    stripped.extend_from_slice(message.get(..HEADERS_LEN)?);
    let attributes = message.get(HEADERS_LEN..)?;
    let bridge = attribute(attributes, 18).and_then(|info| attribute(info, 1)) == Some(b"bridge\0");
    copy(attributes, if bridge { BRIDGE_ATTRIBUTES } else { INTERFACE_ATTRIBUTES }, &mut stripped)?;
    let length = u32::try_from(stripped.len()).ok()?;
    stripped.get_mut(..4)?.copy_from_slice(&length.to_ne_bytes());
    Some(stripped)
}

fn copy(mut attributes: &[u8], kept: &[Keep], into: &mut Vec<u8>) -> Option<()> {
    while let Some((kind, value, rest)) = next_attribute(attributes) {
        if let Some(Keep(_, inside)) = kept.iter().find(|keep| keep.0 == kind) {
            let start = into.len();
            // The attribute's header, with the flags of its type.
            into.extend_from_slice(attributes.get(..4)?);
            if inside.is_empty() {
                into.extend_from_slice(value);
            } else {
                copy(value, inside, into)?;
            }
            let length = u16::try_from(into.len() - start).ok()?;
            into.get_mut(start..start + 2)?.copy_from_slice(&length.to_ne_bytes());
            into.resize(into.len().next_multiple_of(4), 0);
        }
        attributes = rest;
    }
    attributes.is_empty().then_some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `NLA_F_NESTED`.
    const NESTED: u16 = 0x8000;

    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let mut bytes = u16::try_from(4 + value.len()).unwrap().to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    fn message(kind: u16, attributes: &[u8]) -> Vec<u8> {
        let mut bytes = u32::try_from(HEADERS_LEN + attributes.len()).unwrap().to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.resize(HEADERS_LEN, 7);
        bytes.extend(attributes);
        bytes
    }

    #[test]
    fn used_attributes_are_kept() {
        let kind = attribute(1, b"veth\0");
        let mode = attribute(8, &[1]);
        let kept = [
            attribute(3, b"net1\0"),
            attribute(NESTED + 18, &kind),
            attribute(26, &attribute(10, &mode)),
            attribute(27, &[1, 2, 3, 4]),
        ]
        .concat();
        let whole = [
            attribute(3, b"net1\0"),
            attribute(7, &[1; 100]),
            attribute(NESTED + 18, &[kind, attribute(5, &[2; 60])].concat()),
            attribute(
                26,
                &[attribute(2, &[3; 132]), attribute(10, &[attribute(2, &[4; 9]), mode].concat())].concat(),
            ),
            attribute(27, &[1, 2, 3, 4]),
        ]
        .concat();
        assert_eq!(strip_attributes(&message(NEW_LINK, &whole)), Some(message(NEW_LINK, &kept)));
        assert_eq!(strip_attributes(&message(NEW_LINK, &kept)), Some(message(NEW_LINK, &kept)));
    }

    #[test]
    fn bridge_keeps_vlan_settings_only() {
        let kind = attribute(1, b"bridge\0");
        let settings = [attribute(7, &[1]), attribute(39, &[5, 0])].concat();
        let whole = [attribute(1, &[0; 4]), settings.clone(), attribute(43, &[9; 8])].concat();
        let with =
            |data: &[u8]| attribute(NESTED + 18, &[kind.clone(), attribute(NESTED + 2, data)].concat());
        assert_eq!(
            strip_attributes(&message(NEW_LINK, &with(&whole))),
            Some(message(NEW_LINK, &with(&settings)))
        );
    }

    #[test]
    fn other_and_malformed_messages_are_not_stripped() {
        assert_eq!(strip_attributes(&message(20, &attribute(3, b"net1\0"))), None);
        assert_eq!(strip_attributes(&[]), None);
        assert_eq!(strip_attributes(&message(NEW_LINK, &[255, 255, 3, 0])), None);
        assert_eq!(strip_attributes(&message(NEW_LINK, &[8, 0])), None);
    }
}
