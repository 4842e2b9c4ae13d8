//! The effective switching state of a switch, independent of its dialect.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::dialect::bgp::BgpView;

/// The effective switching state of one switch.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct View {
    /// The VLANs that exist, by id.
    pub vlans: BTreeMap<u16, VlanView>,
    /// All ports and link aggregations, by name, configured or not.
    pub ports: BTreeMap<String, PortView>,
    /// The VRFs, by name; not the default instance.
    #[serde(default)]
    pub vrfs: BTreeMap<String, VrfView>,
    /// The BGP instances of VRFs, by the name of the VRF.
    #[serde(default)]
    pub bgp: BTreeMap<String, BgpView>,
}

impl View {
    /// Whether the VLAN exists and is not suspended.
    pub fn is_active(&self, vlan: u16) -> bool {
        self.vlans.get(&vlan).is_some_and(|vlan| vlan.status == "ACTIVE")
    }
}

/// One VLAN.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VlanView {
    /// Its name, if it has one.
    pub name: Option<String>,
    /// `ACTIVE` or `SUSPENDED`.
    pub status: String,
}

/// One port.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PortView {
    /// `trunk` or `access`; null for a port that doesn't switch.
    pub mode: Option<PortMode>,
    /// The VLANs that the port carries: listed, defined and not suspended.
    pub vlans: VlanSet,
    /// The VLANs that its configuration lists.
    pub configured: VlanSet,
    /// The VLAN of untagged frames on a trunk.
    pub native: Option<u16>,
    /// The VLAN of an access port.
    pub access: Option<u16>,
    /// Whether it is a trunk without a VLAN list, which carries all VLANs.
    pub open_trunk: bool,
    /// The link aggregation of which the port is a member.
    pub lag: Option<String>,
    /// Whether the configuration disables the port.
    #[serde(default)]
    pub disabled: bool,
}

/// One VRF: a routing instance with its interfaces and static routes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VrfView {
    /// Its description.
    pub description: Option<String>,
    /// Its route distinguisher.
    pub route_distinguisher: Option<String>,
    /// The route targets that it imports, without a prefix such as `target:`, in ascending order.
    pub import_targets: Vec<String>,
    /// The route targets that its routes leave with.
    pub export_targets: Vec<String>,
    /// The routes that BGP exports with these targets, of `connected` and `static`.
    pub exports: BTreeSet<String>,
    /// Its interfaces, by name.
    pub interfaces: BTreeMap<String, RoutedView>,
    /// Its static routes, ascending by prefix and next hop.
    pub routes: Vec<RouteView>,
}

/// An interface of a VRF.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RoutedView {
    /// The port or link aggregation of a sub-interface; null for an IRB interface.
    pub port: Option<String>,
    /// The VLAN of its tag, or of the IRB interface; null for an untagged interface.
    pub vlan: Option<u16>,
    /// Its description.
    pub description: Option<String>,
    /// Its addresses with the prefix lengths of their networks, in ascending order.
    pub addresses: Vec<IpNet>,
    /// Bytes of an IP packet; null for the device's default.
    pub mtu: Option<u16>,
    /// Whether the configuration disables it.
    pub disabled: bool,
}

/// A static route.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RouteView {
    /// The destination.
    pub prefix: IpNet,
    /// The next hop.
    pub next_hop: IpAddr,
    /// Of several routes to a prefix the lowest counts; null for the device's default.
    pub preference: Option<u32>,
}

/// How a port treats tags.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PortMode {
    /// Tagged frames of several VLANs.
    Trunk,
    /// Untagged frames of one VLAN.
    Access,
}

/// A change that an operator makes at the console of a switch, in terms of ports and VLANs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct HandEdit {
    /// The port that `mode`, `vlans`, `native`, `access`, `clear` and `removeVlans` concern.
    pub port: Option<String>,
    /// The new mode.
    pub mode: Option<PortMode>,
    /// VLANs to add to the trunk list.
    pub vlans: VlanSet,
    /// VLANs to remove from the trunk list or, without a port, from the switch.
    pub remove_vlans: VlanSet,
    /// The new native VLAN.
    pub native: Option<u16>,
    /// The new access VLAN.
    pub access: Option<u16>,
    /// Whether to remove all VLAN configuration of the port.
    pub clear: bool,
    /// Names of the VLANs to define, by id.
    pub define_vlans: BTreeMap<u16, String>,
}

/// A set of VLAN ids, written `10-20,30`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VlanSet(BTreeSet<u16>);

/// The text is not a list of VLAN ids.
#[derive(Debug, thiserror::Error)]
#[error("\"{0}\" is not a list of VLAN ids such as 10-20,30")]
pub struct VlanSetError(String);

impl VlanSet {
    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the set contains `id`.
    pub fn contains(&self, id: u16) -> bool {
        self.0.contains(&id)
    }

    /// The ids in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = u16> {
        self.0.iter().copied()
    }

    /// The ids that both sets contain.
    #[must_use]
    pub fn intersection(&self, other: &VlanSet) -> VlanSet {
        VlanSet(self.0.intersection(&other.0).copied().collect())
    }

    /// The ids as inclusive ranges.
    pub fn ranges(&self) -> Vec<(u16, u16)> {
        let mut ranges: Vec<(u16, u16)> = Vec::new();
        for id in self.iter() {
            match ranges.last_mut() {
                Some((_, high)) if *high + 1 == id => *high = id,
                _ => ranges.push((id, id)),
            }
        }
        ranges
    }
}

impl FromIterator<u16> for VlanSet {
    fn from_iter<T: IntoIterator<Item = u16>>(ids: T) -> Self {
        Self(ids.into_iter().collect())
    }
}

impl fmt::Display for VlanSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, (low, high)) in self.ranges().into_iter().enumerate() {
            if n > 0 {
                f.write_str(",")?;
            }
            if low == high { write!(f, "{low}")? } else { write!(f, "{low}-{high}")? }
        }
        Ok(())
    }
}

impl std::str::FromStr for VlanSet {
    type Err = VlanSetError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bad = || VlanSetError(text.to_owned());
        let mut ids = BTreeSet::new();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let (low, high) = part.split_once('-').unwrap_or((part, part));
            let low: u16 = low.trim().parse().map_err(|_| bad())?;
            let high: u16 = high.trim().parse().map_err(|_| bad())?;
            if low == 0 || low > high || high > 4094 {
                return Err(bad());
            }
            ids.extend(low..=high);
        }
        Ok(Self(ids))
    }
}

impl Serialize for VlanSet {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for VlanSet {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vlan_set_round_trips_as_ranges() {
        for (text, written) in [("", ""), ("30,10-12", "10-12,30"), ("1,2,3,5", "1-3,5"), (" 4094 ", "4094")]
        {
            let set: VlanSet = text.parse().expect(text);
            assert_eq!(set.to_string(), written);
        }
        for bad in ["0", "4095", "20-10", "x", "1-", "1..3", "-5"] {
            assert!(bad.parse::<VlanSet>().is_err(), "{bad}");
        }
    }
}
