//! Netlink notifications about interfaces (`RTNLGRP_LINK`).

use std::collections::BTreeMap;

use rtnetlink::packet_core::{DecodeError, NetlinkMessage, NetlinkPayload};
use rtnetlink::packet_route::link::{AfSpecBridge, BridgeVlanInfo, BridgeVlanInfoFlags, LinkAttribute};
use rtnetlink::packet_route::{AddressFamily, RouteNetlinkMessage};

use super::decode::new_link;
use super::socket::decode;
use super::{Link, PortVlan, PortsVlans};

/// `RTM_NEWLINK`, `RTM_DELLINK` and `RTM_SETLINK`.
const NEW_LINK: u16 = 16;
const DEL_LINK: u16 = 17;
const SET_LINK: u16 = 19;
/// `ifi_family` and `ifi_index` of `struct ifinfomsg`, behind `struct nlmsghdr`.
const FAMILY_OFFSET: usize = 16;
const INDEX_OFFSET: usize = 20;

/// The latest state of each notified interface, by its index.
#[derive(Debug, Default)]
pub struct Notifications {
    /// `None`: the interface was deleted.
    pub links: BTreeMap<u32, Option<Link>>,
    /// VLANs of bridge ports, in the form of [`Netlink::port_vlans`](super::Netlink::port_vlans).
    pub vlans: PortsVlans,
}

/// The latest message about each interface and each bridge port. A later message replaces an earlier one: each carries
/// the complete state.
#[derive(Debug, Default)]
pub(super) struct LatestNotifications(BTreeMap<Subject, Vec<u8>>);

impl LatestNotifications {
    /// Keeps a message about an interface, or about a bridge port that `ports` accepts by its index.
    pub fn keep(&mut self, message: &[u8], ports: impl Fn(u32) -> bool) {
        let subject = match subject(message) {
            Some(Subject::Port(index)) if !ports(index) => return,
            Some(subject) => subject,
            None => return,
        };
        let kept = self.0.entry(subject).or_default();
        kept.clear();
        kept.extend_from_slice(message);
    }

    /// Decodes the kept messages. Messages that can't be decoded are left out.
    pub fn decode(self) -> Notifications {
        let mut notifications = Notifications::default();
        for (subject, message) in self.0 {
            match subject {
                Subject::Link(index) => {
                    notifications.links.extend(link_state(&message).map(|link| (index, link)));
                }
                Subject::Port(index) => {
                    notifications.vlans.extend(vlans(&message).map(|vlans| (index, vlans)));
                }
            }
        }
        notifications
    }
}

/// The subject of a notification, by the interface's index: the interface itself, or (`AF_BRIDGE`) its role as a
/// bridge port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Subject {
    Link(u32),
    Port(u32),
}

fn subject(message: &[u8]) -> Option<Subject> {
    let index = message.get(INDEX_OFFSET..INDEX_OFFSET + 4)?.try_into().map(u32::from_ne_bytes).ok()?;
    match (AddressFamily::from(*message.get(FAMILY_OFFSET)?), message_type(message)?) {
        (AddressFamily::Unspec, NEW_LINK | DEL_LINK) => Some(Subject::Link(index)),
        (AddressFamily::Bridge, NEW_LINK | DEL_LINK | SET_LINK) => Some(Subject::Port(index)),
        _ => None,
    }
}

/// The state of the interface that a message carries; `None`: the interface was deleted.
fn link_state(message: &[u8]) -> Result<Option<Link>, DecodeError> {
    if message_type(message) == Some(DEL_LINK) {
        return Ok(None);
    }
    Ok(match decode(message)?.payload {
        NetlinkPayload::InnerMessage(message) => new_link(message),
        _ => None,
    })
}

/// The VLANs of a port after the change that the message notifies, ascending. The kernel notifies `RTM_NEWVLAN` and
/// `RTM_DELVLAN` as `RTM_SETLINK` and `RTM_DELLINK` (`br_vlan_rtm_process_one`). `None`: it can't be decoded.
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
    let mut range_start = None;
    for spec in specs.flatten() {
        let AfSpecBridge::VlanInfo(BridgeVlanInfo { flags, vid: last }) = spec else { continue };
        let first = range_start.take().unwrap_or(last);
        if flags.contains(BridgeVlanInfoFlags::RangeBegin) {
            range_start = Some(last);
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

    fn port_vlans_of(message: RouteNetlinkMessage) -> Option<Vec<PortVlan>> {
        let bytes = bytes(message);
        assert_eq!(subject(&bytes), Some(Subject::Port(7)));
        super::vlans(&bytes)
    }

    #[test]
    fn latest_notification_wins_and_undecodable_ones_are_skipped() {
        let link = |index, name: &str| {
            let mut message = LinkMessage::default();
            message.header.index = index;
            message.attributes.push(LinkAttribute::IfName(name.to_owned()));
            message
        };
        let mut odd = bytes(RouteNetlinkMessage::NewLink(link(3, "c")));
        let end = odd.len();
        odd[end - 8..end - 6].copy_from_slice(&[255, 255]);
        let mut latest = LatestNotifications::default();
        for message in [
            bytes(RouteNetlinkMessage::NewLink(link(1, "a"))),
            bytes(RouteNetlinkMessage::NewLink(link(2, "b"))),
            odd,
            bytes(RouteNetlinkMessage::NewLink(link(1, "d"))),
            bytes(RouteNetlinkMessage::DelLink(link(2, "b"))),
        ] {
            latest.keep(&message, |_| false);
        }
        let notifications = latest.decode();
        let names = notifications
            .links
            .iter()
            .map(|(index, link)| (*index, link.as_ref().map(|link| link.name.as_str())));
        assert_eq!(names.collect::<Vec<_>>(), [(1, Some("d")), (2, None)]);
    }

    #[test]
    fn port_notification_yields_vlans() {
        let mut port = LinkMessage::default();
        port.header.interface_family = AddressFamily::Bridge;
        port.header.index = 7;
        assert_eq!(port_vlans_of(RouteNetlinkMessage::NewLink(port.clone())), Some(Vec::new()));
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
        assert_eq!(port_vlans_of(RouteNetlinkMessage::NewLink(port.clone())), expected);
        assert_eq!(port_vlans_of(RouteNetlinkMessage::SetLink(port.clone())), expected);
        assert_eq!(port_vlans_of(RouteNetlinkMessage::DelLink(port)), expected);
        assert_eq!(super::vlans(&[]), None);
    }
}
