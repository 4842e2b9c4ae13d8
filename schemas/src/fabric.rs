//! The desired state of one switch.

use std::borrow::Cow;
use std::collections::btree_map::{self, BTreeMap};
use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;
use std::sync::Arc;
use std::{iter, slice};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::ser::SerializeStruct as _;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::{DeviceRole, Drift, FabricVrf, NetworkType, RoutedInterface, VlanError, VlanId, VlanSet};

/// The complete desired state of one switch, as far as it is ours: every VLAN that we make there and every port
/// that a FabricDevice lists. VLANs and ports that are not named here are not ours and are left alone.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FabricDesired {
    /// Identifies the cluster on the device, at most 8 characters of `[a-z0-9]`; see [`vlan_name`].
    #[schemars(regex(pattern = r"^[a-z0-9]{1,8}$"))]
    pub cluster: String,
    /// The uid of the cluster, which tells it from another cluster with the same identifier; absent: not known.
    #[schemars(length(min = 1, max = 64))]
    pub cluster_uid: Option<String>,
    /// How the device is reached.
    pub device: Device,
    /// The VRFs that are to exist, ascending by `name`, each once. Only drivers that announce `vrfs` get any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub vrfs: Vec<FabricVrf>,
    /// The VLANs that are to exist, ascending by `vid`, each once.
    pub vlans: FabricVlans,
    /// All listed ports, ascending by `name`, each once; also those that carry nothing.
    pub ports: Vec<FabricPort>,
    /// Asks for the ports of the MAC addresses of probes; another value asks again. Only drivers that
    /// announce `lookups` are asked. Absent: nothing is asked.
    #[schemars(length(min = 1, max = 64))]
    pub lookup: Option<String>,
}

/// How a switch is reached.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Device {
    /// `host:port`, or whatever the driver takes for an address.
    pub address: String,
    /// The dialect to speak; absent: chosen by what the device announces.
    pub dialect: Option<String>,
    /// The name of a credential that the driver reads itself; never the credential.
    pub credential: Option<String>,
    /// The host key to accept, an OpenSSH public key line; absent: the driver refuses to connect.
    pub host_key: Option<String>,
    /// The drift policy.
    #[serde(default)]
    pub drift: Drift,
    /// Seconds after which a driver without change notifications reads the device again; absent: the driver's
    /// choice.
    pub audit_interval: Option<NonZeroU32>,
    /// VLANs that exist there under another name and are adopted when they are desired: they get our name.
    #[serde(default, skip_serializing_if = "VlanSet::is_empty")]
    pub adopt: VlanSet,
    /// What it does with VLANs.
    #[serde(default, skip_serializing_if = "DeviceRole::is_switch")]
    pub role: DeviceRole,
    /// VRFs that exist there with another distinguisher or other targets, and that get ours, ascending.
    #[serde(default, rename = "adoptVRFs", skip_serializing_if = "Vec::is_empty")]
    pub adopt_vrfs: Vec<String>,
    /// How the driver `neutron` makes networks and ports; absent: by its defaults. No other driver reads it.
    pub neutron: Option<NeutronSettings>,
}

impl Device {
    /// A device at this address, with the default policies.
    pub fn new(address: impl Into<String>) -> Self {
        Self {
            address: address.into(),
            dialect: None,
            credential: None,
            host_key: None,
            drift: Drift::default(),
            audit_interval: None,
            adopt: VlanSet::EMPTY,
            role: DeviceRole::default(),
            adopt_vrfs: Vec::new(),
            neutron: None,
        }
    }
}

/// How networks and ports of OpenStack are made for VLANs.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NeutronSettings {
    /// Neutron's name of the physical network with the VLANs. The port of this name is that physical network;
    /// every other port is a trunk.
    pub physical_network: Option<String>,
    /// What a network is on the wire.
    pub network_type: NetworkType,
    /// Ports accept the addresses of the trunk's parent port and of `allowed_address_pairs` only.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub port_security: bool,
    /// The further addresses that ports with port security accept.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allowed_address_pairs: Vec<AddressPair>,
    /// The MTU of networks in bytes; absent: Neutron's choice.
    pub mtu: Option<u32>,
    /// The ids of further projects whose networks are used when they are tagged for a VLAN.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub trusted_projects: Vec<String>,
}

/// An entry of `allowed_address_pairs` of a port in Neutron.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AddressPair {
    /// An address or a network with its prefix length.
    pub ip: String,
    /// Absent: the port's own.
    pub mac: Option<String>,
}

/// A VLAN that is to exist on a switch, under the name [`vlan_name`]. On the wire a text, `100 L2Service/blue`: there
/// are thousands of them in a command. One that is led into a VRF is an object, `{"vlan": "100 L2Service/blue",
/// "routed": …}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FabricVlan {
    /// The identifier.
    pub vid: VlanId,
    /// The objects that need it, as `<kind>/[<namespace>/]<name>`, ascending.
    pub owners: Vec<String>,
    /// How it is led into a VRF; absent: it is not.
    pub routed: Option<Arc<RoutedInterface>>,
}

impl FabricVlan {
    /// A VLAN that is led into no VRF.
    pub fn new(vid: VlanId, owners: Vec<String>) -> Self {
        Self { vid, owners, routed: None }
    }
}

impl fmt::Display for FabricVlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.vid)?;
        self.owners.iter().try_for_each(|owner| write!(f, " {owner}"))
    }
}

impl FromStr for FabricVlan {
    type Err = VlanError;
    fn from_str(text: &str) -> Result<Self, VlanError> {
        let mut parts = text.split(' ');
        let vid = parts.next().unwrap_or_default().parse()?;
        Ok(Self::new(vid, parts.map(str::to_owned).collect()))
    }
}

/// A [`FabricVlan`] on the wire.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
enum WireVlan {
    Text(VlanText),
    Routed { vlan: VlanText, routed: RoutedInterface },
}

/// The text of a [`FabricVlan`].
#[derive(Serialize, Deserialize)]
#[serde(transparent)]
struct VlanText(String);

impl JsonSchema for VlanText {
    fn schema_name() -> Cow<'static, str> {
        "VlanText".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "pattern": "^[0-9]{1,4}( [^ ]+)*$",
            "description": "A VLAN identifier, and the objects that want it, as <kind>/[<namespace>/]<name>, ascending."
        })
    }
}

impl Serialize for FabricVlan {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Some(routed) = &self.routed else { return serializer.collect_str(self) };
        let mut fields = serializer.serialize_struct("FabricVlan", 2)?;
        fields.serialize_field("vlan", &self.to_string())?;
        fields.serialize_field("routed", &**routed)?;
        fields.end()
    }
}

impl<'de> Deserialize<'de> for FabricVlan {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (VlanText(text), routed) = match WireVlan::deserialize(deserializer)? {
            WireVlan::Text(text) => (text, None),
            WireVlan::Routed { vlan, routed } => (vlan, Some(Arc::new(routed))),
        };
        let vlan: Self = text.parse().map_err(serde::de::Error::custom)?;
        Ok(Self { routed, ..vlan })
    }
}

impl JsonSchema for FabricVlan {
    fn schema_name() -> Cow<'static, str> {
        "FabricVlan".into()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        WireVlan::json_schema(generator)
    }
}

/// VLANs, ascending by VID, each once. On the wire a list.
///
/// It has a block for each 16 VIDs of which one is there, and the key of a block is VID >> 4. Clones share the blocks, so
/// a clone, and a comparison with a clone, cost little.
#[derive(Clone, Default, Eq)]
pub struct FabricVlans(BTreeMap<u8, Arc<[FabricVlan]>>);

impl FabricVlans {
    /// No VLANs.
    pub fn new() -> Self {
        Self::default()
    }

    /// The VLANs, ascending.
    pub fn iter(&self) -> <&Self as IntoIterator>::IntoIter {
        self.into_iter()
    }

    /// The VLAN with this VID.
    pub fn get(&self, vid: VlanId) -> Option<&FabricVlan> {
        let block = self.0.get(&vid.block())?;
        Some(&block[block.binary_search_by_key(&vid, |vlan| vlan.vid).ok()?])
    }

    /// All VIDs.
    pub fn vids(&self) -> VlanSet {
        let mut vids = VlanSet::EMPTY;
        for block in self.0.values() {
            match &block[..] {
                // Of a full block the ends say all.
                [first, .., last] if block.len() == 16 => vids.insert_range(first.vid, last.vid),
                some => vids.extend(some.iter().map(|vlan| vlan.vid)),
            }
        }
        vids
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.values().map(|block| block.len()).sum()
    }

    /// True when there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Leaves out the VLANs for which `keep` is false. A block without such a VLAN stays shared.
    pub fn retain(&mut self, mut keep: impl FnMut(&FabricVlan) -> bool) {
        self.0.retain(|_, block| {
            let kept: Vec<bool> = block.iter().map(&mut keep).collect();
            if kept.contains(&false) {
                let left = block.iter().zip(kept).filter(|(_, keep)| *keep);
                *block = left.map(|(vlan, _)| vlan.clone()).collect();
            }
            !block.is_empty()
        });
    }

    /// The block with this key, never an empty one.
    pub fn block(&self, key: u8) -> Option<&Arc<[FabricVlan]>> {
        self.0.get(&key)
    }

    /// Replaces the block with this key; `None`, or an empty one, takes it out. VLANs of other blocks are left out, and
    /// of several with the same VID all but the last.
    pub fn set_block(&mut self, key: u8, vlans: impl Into<Option<Arc<[FabricVlan]>>>) {
        let vlans: Option<Arc<[FabricVlan]>> = vlans.into();
        let is_block = |vlans: &[FabricVlan]| {
            vlans.iter().all(|vlan| vlan.vid.block() == key) && vlans.is_sorted_by(|a, b| a.vid < b.vid)
        };
        let vlans = match vlans {
            Some(vlans) if !is_block(&vlans) => {
                let all: Self = vlans.iter().filter(|vlan| vlan.vid.block() == key).cloned().collect();
                all.block(key).cloned()
            }
            vlans => vlans.filter(|vlans| !vlans.is_empty()),
        };
        match vlans {
            Some(vlans) => self.0.insert(key, vlans),
            None => self.0.remove(&key),
        };
    }

    /// The VIDs of VLANs that are only in one of both, or that have other owners. A shared block costs nothing.
    pub fn changed_since(&self, before: &Self) -> VlanSet {
        let mut changed = VlanSet::EMPTY;
        for (key, block) in &self.0 {
            let former = before.0.get(key);
            if former.is_some_and(|former| Arc::ptr_eq(former, block)) {
                continue;
            }
            let former = former.map_or(&[][..], |former| former);
            let only = |some: &[FabricVlan], others: &[FabricVlan]| -> Vec<VlanId> {
                some.iter().filter(|vlan| !others.contains(vlan)).map(|vlan| vlan.vid).collect()
            };
            changed.extend(only(block, former));
            changed.extend(only(former, block));
        }
        let gone = before.0.iter().filter(|(key, _)| !self.0.contains_key(key));
        changed.extend(gone.flat_map(|(_, block)| block.iter().map(|vlan| vlan.vid)));
        changed
    }
}

impl PartialEq for FabricVlans {
    fn eq(&self, other: &Self) -> bool {
        let mut blocks = self.0.iter().zip(&other.0);
        self.0.len() == other.0.len()
            && blocks.all(|((key, block), (other_key, other))| {
                key == other_key && (Arc::ptr_eq(block, other) || block == other)
            })
    }
}

impl fmt::Debug for FabricVlans {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self).finish()
    }
}

impl<'a> IntoIterator for &'a FabricVlans {
    type Item = &'a FabricVlan;
    type IntoIter = iter::FlatMap<
        btree_map::Values<'a, u8, Arc<[FabricVlan]>>,
        slice::Iter<'a, FabricVlan>,
        fn(&'a Arc<[FabricVlan]>) -> slice::Iter<'a, FabricVlan>,
    >;

    fn into_iter(self) -> Self::IntoIter {
        self.0.values().flat_map(|block| block.iter())
    }
}

/// In any order. Of several with the same VID the last counts.
impl FromIterator<FabricVlan> for FabricVlans {
    fn from_iter<I: IntoIterator<Item = FabricVlan>>(vlans: I) -> Self {
        let mut all = Self::new();
        all.extend(vlans);
        all
    }
}

/// Of several with the same VID the last counts.
impl Extend<FabricVlan> for FabricVlans {
    fn extend<I: IntoIterator<Item = FabricVlan>>(&mut self, vlans: I) {
        let mut blocks: BTreeMap<u8, BTreeMap<VlanId, FabricVlan>> = BTreeMap::new();
        for vlan in vlans {
            blocks.entry(vlan.vid.block()).or_default().insert(vlan.vid, vlan);
        }
        for (key, mut block) in blocks {
            for vlan in self.0.get(&key).into_iter().flat_map(|block| block.iter()) {
                block.entry(vlan.vid).or_insert_with(|| vlan.clone());
            }
            self.0.insert(key, block.into_values().collect());
        }
    }
}

impl Serialize for FabricVlans {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self)
    }
}

impl<'de> Deserialize<'de> for FabricVlans {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let vlans = Vec::<FabricVlan>::deserialize(deserializer)?;
        if let Some([_, late]) = vlans.array_windows().find(|[a, b]| a.vid >= b.vid) {
            let error = format!("VLAN {} is not above the VLAN before it in the list", late.vid);
            return Err(serde::de::Error::custom(error));
        }
        Ok(vlans.into_iter().collect())
    }
}

impl JsonSchema for FabricVlans {
    fn schema_name() -> Cow<'static, str> {
        Vec::<FabricVlan>::schema_name()
    }
    fn inline_schema() -> bool {
        Vec::<FabricVlan>::inline_schema()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        Vec::<FabricVlan>::json_schema(generator)
    }
}

/// A port of a switch and the tagged VLANs of ours that it is to carry.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FabricPort {
    /// The device's name of the port.
    pub name: String,
    /// The LAG that it is a member of: that is configured instead.
    pub lag: Option<String>,
    /// Whether a foreign access port may be turned into a trunk.
    #[serde(default)]
    pub mode: PortMode,
    /// The tagged VLANs, all of them in [`FabricDesired::vlans`].
    pub vlans: VlanSet,
    /// A driver reported the port in [`Applied::Fabric::closed`](crate::Applied): if it carries every VLAN
    /// now, its list was emptied externally.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub closed: bool,
    /// The state that a driver reported in [`Applied::Fabric::before`](crate::Applied).
    pub before: Option<PortBefore>,
}

impl FabricPort {
    /// A port with these VLANs. It is no member of a LAG, and nothing is remembered of it.
    pub fn new(name: impl Into<String>, vlans: VlanSet) -> Self {
        Self { name: name.into(), lag: None, mode: PortMode::Keep, vlans, closed: false, before: None }
    }
}

/// The state of a port before it carried a VLAN of ours. It is restored when the port carries none any more.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PortBefore {
    /// It was a trunk.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub trunk: bool,
    /// Settings that a VLAN of ours changes, by the driver's names for them. One that is absent was not set.
    /// Absent altogether: not known.
    #[schemars(schema_with = "settings_schema")]
    pub settings: Option<BTreeMap<String, String>>,
    /// The VLANs of its list that became ours later. They are on the list again once they are not ours any
    /// more.
    #[serde(skip_serializing_if = "VlanSet::is_empty")]
    pub vlans: VlanSet,
}

fn settings_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "maxProperties": PortBefore::MAX_SETTINGS,
        "additionalProperties": { "type": "string", "maxLength": PortBefore::MAX_SETTING_CHARS },
    })
}

impl PortBefore {
    /// Maximum number of settings.
    pub const MAX_SETTINGS: usize = 16;
    /// Maximum characters of a setting's value.
    pub const MAX_SETTING_CHARS: usize = 4096;
}

/// What may be done to a port that is in access mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PortMode {
    /// A foreign access port is refused.
    #[default]
    Keep,
    /// It is made a trunk.
    Trunk,
}

/// The name of a VLAN of ours: `eno-<cluster>-<vid>`. It identifies our VLANs on a device without further
/// records.
pub fn vlan_name(cluster: &str, vid: VlanId) -> String {
    format!("eno-{cluster}-{vid}")
}

/// True when `name` is [`vlan_name`] of this VLAN.
pub fn is_vlan_name(name: &str, cluster: &str, vid: VlanId) -> bool {
    parse_vlan_name(name) == Some((cluster, vid))
}

/// The cluster and the VLAN of a [`vlan_name`].
pub fn parse_vlan_name(name: &str) -> Option<(&str, VlanId)> {
    let (cluster, vid) = name.strip_prefix("eno-")?.rsplit_once('-')?;
    let is_exact = !cluster.is_empty() && !vid.starts_with(['0', '+']);
    Some((cluster, VlanId::new(vid.parse().ok()?).ok()?)).filter(|_| is_exact)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn fabric_vlan_round_trips_as_text() {
        for text in ["100", "100 L2Service/a", "4094 L2BridgeDomain/b L2Service/a"] {
            let vlan: FabricVlan = text.parse().unwrap();
            assert_eq!(vlan.to_string(), text);
            assert_eq!(vlan.owners.len(), text.split(' ').count() - 1);
        }
        assert!("x L2Service/a".parse::<FabricVlan>().is_err());
    }

    proptest! {
        #[test]
        fn vlan_names_are_recognised(
            cluster in "[a-z0-9]{1,3}", vid in 1u16..=4094, other in 1u16..=4094, name in "eno-[a-z0-9]{0,3}-[+0]?[0-9]{0,5}",
        ) {
            let vid = VlanId::new(vid).unwrap();
            let made = vlan_name(&cluster, vid);
            prop_assert!(is_vlan_name(&made, &cluster, vid));
            prop_assert_eq!(is_vlan_name(&name, &cluster, vid), name == made);
            prop_assert_eq!(is_vlan_name(&made, &cluster, VlanId::new(other).unwrap()), other == vid.get());
        }
    }
}
