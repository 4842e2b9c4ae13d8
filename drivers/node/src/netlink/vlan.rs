//! VLANs of bridge ports (`RTM_GETVLAN`, linux/if_bridge.h), which `rtnetlink` does not support.

use std::collections::BTreeMap;

use super::socket::{attribute, next_attribute};
use super::{Netlink, NetlinkError};

const RTM_GETVLAN: u16 = 114;
const AF_BRIDGE: u8 = 7;
/// `NLM_F_REQUEST | NLM_F_DUMP`.
const FLAGS: u16 = 0x301;
/// Bytes of `struct nlmsghdr` and `struct br_vlan_msg`.
const LENGTH: u32 = 24;
const ENTRY: u16 = 1;
const ENTRY_INFO: u16 = 1;
const ENTRY_RANGE: u16 = 2;
const INFO_PVID: u16 = 1 << 1;
const INFO_UNTAGGED: u16 = 1 << 2;

/// One VLAN of a port of a VLAN-filtering bridge (`struct bridge_vlan_info`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortVlan {
    /// 1 to 4094.
    pub vid: u16,
    /// Untagged ingress frames belong to this VLAN (`BRIDGE_VLAN_INFO_PVID`).
    pub pvid: bool,
    /// Egress frames leave untagged (`BRIDGE_VLAN_INFO_UNTAGGED`).
    pub untagged: bool,
}

/// VLANs of ports, by the index of the port.
pub type PortsVlans = BTreeMap<u32, Vec<PortVlan>>;

impl Netlink {
    /// The VLANs of the port (or bridge) `index`, ascending.
    pub fn port_vlans(&mut self, index: u32) -> Result<Vec<PortVlan>, NetlinkError> {
        let mut request = Vec::with_capacity(LENGTH as usize);
        request.extend(LENGTH.to_ne_bytes());
        request.extend(RTM_GETVLAN.to_ne_bytes());
        request.extend(FLAGS.to_ne_bytes());
        request.extend([0; 8]);
        request.extend([AF_BRIDGE, 0, 0, 0]);
        request.extend(index.to_ne_bytes());
        let mut found = Vec::new();
        self.dump_raw("list the VLANs of a bridge port", &mut request, &mut found, |found, message| {
            let mut rest = message.get(LENGTH as usize..).unwrap_or_default();
            while let Some((kind, entry, after)) = next_attribute(rest) {
                if kind == ENTRY {
                    found.extend(vlans(entry));
                }
                rest = after;
            }
        })?;
        found.sort_unstable();
        Ok(found)
    }
}

/// The VLANs of one BRIDGE_VLANDB_ENTRY.
fn vlans(entry: &[u8]) -> Vec<PortVlan> {
    let u16_at = |bytes: &[u8], at: usize| {
        bytes.get(at..at + 2).and_then(|b| b.try_into().ok()).map(u16::from_ne_bytes)
    };
    let Some(info) = attribute(entry, ENTRY_INFO) else { return Vec::new() };
    let (Some(flags), Some(first)) = (u16_at(info, 0), u16_at(info, 2)) else { return Vec::new() };
    let last = attribute(entry, ENTRY_RANGE).and_then(|range| u16_at(range, 0)).unwrap_or(first);
    (first..=last)
        .map(|vid| PortVlan { vid, pvid: flags & INFO_PVID != 0, untagged: flags & INFO_UNTAGGED != 0 })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vlan_range_entry_is_expanded() {
        let mut entry = vec![8, 0, 1, 0];
        entry.extend(INFO_UNTAGGED.to_ne_bytes());
        entry.extend(10_u16.to_ne_bytes());
        entry.extend([6, 0, 2, 0]);
        entry.extend(12_u16.to_ne_bytes());
        entry.extend([0, 0]);
        let found = vlans(&entry);
        assert_eq!(found.iter().map(|vlan| vlan.vid).collect::<Vec<_>>(), [10, 11, 12]);
        assert!(found.iter().all(|vlan| vlan.untagged && !vlan.pvid));
        assert!(vlans(&[]).is_empty());
        assert!(vlans(&[255, 255, 1, 0]).is_empty());
    }
}
