//! What the kernel tells of interfaces of its own accord.

use std::collections::BTreeMap;

use rtnetlink::packet_core::{DecodeError, NetlinkMessage, NetlinkPayload};
use rtnetlink::packet_route::link::{AfSpecBridge, BridgeVlanInfo, BridgeVlanInfoFlags, LinkAttribute};
use rtnetlink::packet_route::{AddressFamily, RouteNetlinkMessage};

use super::decode::new_link;
use super::socket::decode;
use super::{Link, PortVlan, PortsVlans};

/// `RTM_NEWLINK`, `RTM_DELLINK` and `RTM_SETLINK`.
const NEW_LINK: u16 = 16;
const DELETED_LINK: u16 = 17;
const SET_LINK: u16 = 19;
/// `ifi_family` and `ifi_index` of `struct ifinfomsg`, behind `struct nlmsghdr`.
const FAMILY: usize = 16;
const INDEX: usize = 20;

/// What was told of interfaces, by their index.
#[derive(Debug, Default)]
pub(super) struct Told {
    /// It is like that now, or gone.
    pub links: BTreeMap<u32, Option<Link>>,
    /// Of ports, as [`Netlink::port_vlans`](super::Netlink::port_vlans) has them.
    pub vlans: PortsVlans,
}

/// The last message of each interface, and of each port: all of them are whole.
#[derive(Debug, Default)]
pub(super) struct Last(BTreeMap<About, Vec<u8>>);

impl Last {
    /// Keeps it if it is about an interface, or about one of those `ports`.
    pub fn keep(&mut self, message: &[u8], ports: impl Fn(u32) -> bool) {
        let about = match about(message) {
            Some(About::Port(index)) if !ports(index) => return,
            Some(about) => about,
            None => return,
        };
        let kept = self.0.entry(about).or_default();
        kept.clear();
        kept.extend_from_slice(message);
    }

    /// What can't be decoded is left out.
    pub fn decode(self) -> Told {
        let mut told = Told::default();
        for (about, message) in self.0 {
            match about {
                About::Link(index) => told.links.extend(link(&message).map(|link| (index, link))),
                About::Port(index) => told.vlans.extend(vlans(&message).map(|vlans| (index, vlans))),
            }
        }
        told
    }
}

/// What a message is about that the kernel sends of its own accord: an interface, by its index, or (`AF_BRIDGE`) what an
/// interface is to the bridge that it is a port of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum About {
    Link(u32),
    Port(u32),
}

fn about(message: &[u8]) -> Option<About> {
    let index = message.get(INDEX..INDEX + 4)?.try_into().map(u32::from_ne_bytes).ok()?;
    match (AddressFamily::from(*message.get(FAMILY)?), message_type(message)?) {
        (AddressFamily::Unspec, NEW_LINK | DELETED_LINK) => Some(About::Link(index)),
        (AddressFamily::Bridge, NEW_LINK | DELETED_LINK | SET_LINK) => Some(About::Port(index)),
        _ => None,
    }
}

/// What a message about an interface tells: it is like that now, or there is none of that index any more.
fn link(message: &[u8]) -> Result<Option<Link>, DecodeError> {
    if message_type(message) == Some(DELETED_LINK) {
        return Ok(None);
    }
    Ok(match decode(message)?.payload {
        NetlinkPayload::InnerMessage(message) => new_link(message),
        _ => None,
    })
}

/// The VLANs that a port has after what a message about it tells, ascending. A VLAN that is added or taken away by
/// `RTM_NEWVLAN` or `RTM_DELVLAN` is told of as `RTM_SETLINK` or `RTM_DELLINK` (`br_vlan_rtm_process_one`). Nothing
/// where it can't be decoded.
fn vlans(message: &[u8]) -> Option<Vec<PortVlan>> {
    let NetlinkPayload::InnerMessage(message) = NetlinkMessage::deserialize(message).ok()?.payload else {
        return None;
    };
    let (RouteNetlinkMessage::NewLink(message)
    | RouteNetlinkMessage::SetLink(message)
    | RouteNetlinkMessage::DelLink(message)) = message
    else {
        return None;
    };
    let specs = message.attributes.into_iter().filter_map(|attribute| match attribute {
        LinkAttribute::AfSpecBridge(specs) => Some(specs),
        _ => None,
    });
    let mut found = Vec::new();
    let mut begun = None;
    for spec in specs.flatten() {
        let AfSpecBridge::VlanInfo(BridgeVlanInfo { flags, vid: last }) = spec else { continue };
        let first = begun.take().unwrap_or(last);
        if flags.contains(BridgeVlanInfoFlags::RangeBegin) {
            begun = Some(last);
            continue;
        }
        let pvid = flags.contains(BridgeVlanInfoFlags::Pvid);
        let untagged = flags.contains(BridgeVlanInfoFlags::Untagged);
        found.extend((first..=last).map(|vid| PortVlan { vid, pvid, untagged }));
    }
    found.sort_unstable();
    Some(found)
}

fn message_type(message: &[u8]) -> Option<u16> {
    message.get(4..6)?.try_into().map(u16::from_ne_bytes).ok()
}

#[cfg(test)]
mod tests {
    use rtnetlink::packet_route::link::LinkMessage;

    use super::*;

    fn bytes(message: RouteNetlinkMessage) -> Vec<u8> {
        let mut message = NetlinkMessage::from(message);
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        bytes
    }

    fn told(message: RouteNetlinkMessage) -> Option<Vec<PortVlan>> {
        let bytes = bytes(message);
        assert_eq!(about(&bytes), Some(About::Port(7)));
        super::vlans(&bytes)
    }

    #[test]
    fn the_last_word_counts_and_what_is_not_understood_does_not() {
        let link = |index, name: &str| {
            let mut message = LinkMessage::default();
            message.header.index = index;
            message.attributes.push(LinkAttribute::IfName(name.to_owned()));
            message
        };
        let mut odd = bytes(RouteNetlinkMessage::NewLink(link(3, "c")));
        let end = odd.len();
        odd[end - 8..end - 6].copy_from_slice(&[255, 255]);
        let mut last = Last::default();
        for message in [
            bytes(RouteNetlinkMessage::NewLink(link(1, "a"))),
            bytes(RouteNetlinkMessage::NewLink(link(2, "b"))),
            odd,
            bytes(RouteNetlinkMessage::NewLink(link(1, "d"))),
            bytes(RouteNetlinkMessage::DelLink(link(2, "b"))),
        ] {
            last.keep(&message, |_| false);
        }
        let told = last.decode();
        let names =
            told.links.iter().map(|(index, link)| (*index, link.as_ref().map(|link| link.name.as_str())));
        assert_eq!(names.collect::<Vec<_>>(), [(1, Some("d")), (2, None)]);
    }

    #[test]
    fn vlans_of_a_port_are_told() {
        let mut port = LinkMessage::default();
        port.header.interface_family = AddressFamily::Bridge;
        port.header.index = 7;
        assert_eq!(told(RouteNetlinkMessage::NewLink(port.clone())), Some(Vec::new()));
        let info = |flags, vid| AfSpecBridge::VlanInfo(BridgeVlanInfo { flags, vid });
        let (begin, end) = (BridgeVlanInfoFlags::RangeBegin, BridgeVlanInfoFlags::RangeEnd);
        let untagged = BridgeVlanInfoFlags::Untagged;
        let infos = vec![
            info(begin, 30),
            info(end, 32),
            info(BridgeVlanInfoFlags::Pvid | untagged, 9),
            info(begin | untagged, 11),
            info(end | untagged, 12),
        ];
        port.attributes.push(LinkAttribute::AfSpecBridge(infos));
        let expected = [
            (9, true, true),
            (11, false, true),
            (12, false, true),
            (30, false, false),
            (31, false, false),
            (32, false, false),
        ];
        let expected = Some(expected.map(|(vid, pvid, untagged)| PortVlan { vid, pvid, untagged }).to_vec());
        assert_eq!(told(RouteNetlinkMessage::NewLink(port.clone())), expected);
        assert_eq!(told(RouteNetlinkMessage::SetLink(port.clone())), expected);
        assert_eq!(told(RouteNetlinkMessage::DelLink(port)), expected);
        assert_eq!(super::vlans(&[]), None);
    }
}
