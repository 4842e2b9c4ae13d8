//! Reports: the results of drivers, read by the engine.

use std::collections::{BTreeMap, BTreeSet};
use std::{fmt, io};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::{
    AppliedAddresses, AppliedLink, AppliedNetwork, BgpSession, Generation, PartHash, PortBefore,
    ProbeResults, Text, VlanId, VlanSet,
};

/// What a driver did about a command and what it has read back, kept as the last message of its subject in
/// `ENO_RESULTS`.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// The driver.
    pub driver: String,
    /// The target.
    pub target: String,
    /// The process that worked on it.
    pub instance: String,
    /// The generation of the command.
    pub generation: Generation,
    /// RFC 3339.
    pub at: String,
    /// How it ended.
    pub outcome: Outcome,
    /// Our configuration on the target, as last read back; absent: not known. A copy in the history, and a report of work
    /// in progress or of a held change, have none.
    pub applied: Option<Applied>,
    /// Items that were rejected while the rest was applied.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rejected: Vec<Rejection>,
    /// Messages for the administrator although nothing failed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<Note>,
    /// Data that the device gave about itself.
    pub device: Option<DeviceInfo>,
    /// The last change of the device; absent: none was made for this command.
    pub change: Option<ChangeReport>,
    /// The parts of the command for which the driver waits; the engine sends them again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = Self::MAX_LACKING))]
    pub lacking: Vec<PartHash>,
}

/// Bytes of the text of each item in a report that is too large.
const SHORT: usize = 160;

/// The kind of the note that counts what a report leaves out.
const LEFT_OUT: &str = "LeftOut";

impl Report {
    /// Maximum length of [`Self::lacking`].
    pub const MAX_LACKING: usize = 64;

    /// The report that a command was carried out, without a state that was read back.
    pub fn new(
        (driver, target): (impl Into<String>, impl Into<String>),
        generation: Generation,
        (instance, at): (impl Into<String>, impl Into<String>),
    ) -> Self {
        Self {
            driver: driver.into(),
            target: target.into(),
            instance: instance.into(),
            generation,
            at: at.into(),
            outcome: Outcome::Applied,
            applied: None,
            rejected: Vec::new(),
            notes: Vec::new(),
            device: None,
            change: None,
            lacking: Vec::new(),
        }
    }

    /// A copy for the history: without the state, and without what the device said of itself.
    #[must_use]
    pub fn without_state(&self) -> Self {
        Self {
            driver: self.driver.clone(),
            target: self.target.clone(),
            instance: self.instance.clone(),
            generation: self.generation.clone(),
            at: self.at.clone(),
            outcome: self.outcome.clone(),
            applied: None,
            rejected: self.rejected.clone(),
            notes: self.notes.clone(),
            device: None,
            change: self.change.clone(),
            lacking: self.lacking.clone(),
        }
    }

    /// Cuts the texts of items, and then leaves out items, until the report has at most `max` bytes of JSON. A note
    /// counts those that are left out. A state that is too large itself stays.
    pub fn bound(&mut self, max: usize) {
        if size(self) <= max {
            return;
        }
        self.rejected.iter_mut().for_each(|one| one.reason = Text::at_most(&one.reason, SHORT));
        self.notes.iter_mut().for_each(|one| one.message = Text::at_most(&one.message, SHORT));
        let whole = size(self);
        if whole <= max {
            return;
        }
        let (rejected, notes) = (std::mem::take(&mut self.rejected), std::mem::take(&mut self.notes));
        let counts = (rejected.len(), notes.len());
        // The note that counts needs some room.
        let mut room = max.saturating_sub(size(self) + 2 * SHORT);
        self.rejected = fitting(rejected, &mut room);
        self.notes = fitting(notes, &mut room);
        let message = format!(
            "{} rejected items and {} notes are left out, as the report is too large",
            counts.0 - self.rejected.len(),
            counts.1 - self.notes.len()
        );
        self.notes.push(Note::new(LEFT_OUT, Item::TARGET, message));
    }
}

/// Bytes of a value as JSON.
fn size(value: &impl Serialize) -> usize {
    let mut count = Count(0);
    serde_json::to_writer(&mut count, value).map_or(0, |()| count.0)
}

/// Counts the bytes that are written.
struct Count(usize);

impl io::Write for Count {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The first items that fit into `room`.
fn fitting<T: Serialize>(items: Vec<T>, room: &mut usize) -> Vec<T> {
    let fits = |item: &T| {
        let left = room.checked_sub(size(item) + 1);
        *room = left.unwrap_or_default();
        left.is_some()
    };
    items.into_iter().take_while(fits).collect()
}

/// How a command ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "status", rename_all = "lowercase")]
pub enum Outcome {
    /// All items but the rejected ones are applied, as read back.
    Applied,
    /// All items but the rejected ones are applied, as read back, and can still be rolled back: the
    /// transaction waits for its decision.
    Held,
    /// The transaction was aborted, and the device is in its previous state. Nothing is done until the next
    /// command.
    #[serde(rename = "rolled-back")]
    RolledBack {
        /// Why, as a message.
        reason: Text,
    },
    /// The command failed as a whole.
    Failed(Failure),
    /// The driver is still working.
    Progress {
        /// The current step.
        message: Text,
    },
}

/// Why a command failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Failure {
    /// A message with the operation and the device's own error.
    pub reason: Text,
    /// The driver retries by itself.
    pub retryable: bool,
    /// The target did not answer, so that nothing is known to be wrong with the command.
    #[serde(default)]
    pub unreachable: bool,
}

impl Failure {
    /// No retry helps.
    pub fn permanent(reason: impl Into<Text>) -> Self {
        Self { reason: reason.into(), retryable: false, unreachable: false }
    }

    /// A retry may help.
    pub fn retryable(reason: impl Into<Text>) -> Self {
        Self { retryable: true, ..Self::permanent(reason) }
    }
}

/// Our configuration on a target.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Applied {
    /// On a switch.
    Fabric {
        /// The VLANs with our name.
        vlans: VlanSet,
        /// For each listed port the VLANs of ours that it carries; ports without any may be omitted. An open
        /// trunk counts as carrying its desired VLANs.
        ports: BTreeMap<String, VlanSet>,
        /// For each listed port that switches, all VLANs that it carries, ours and foreign.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        carried: BTreeMap<String, Carried>,
        /// The listed ports that are trunks with a list with VLANs of ours, and those that were while VLANs
        /// of ours are desired there. The engine returns it in the next command, as
        /// [`FabricPort::closed`](crate::FabricPort). Absent: the driver needs no such record.
        closed: Option<BTreeSet<String>>,
        /// The state of listed ports before they carried VLANs of ours, where it is to be restored. The
        /// engine returns it in the next command, as [`FabricPort::before`](crate::FabricPort).
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        before: BTreeMap<String, PortBefore>,
        /// The VRFs of the command that are there as desired.
        #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
        vrfs: BTreeSet<String>,
        /// The VLANs whose routed interface is there as desired, with its routes. A VLAN with a routed interface of ours
        /// is among `vlans` too.
        #[serde(default, skip_serializing_if = "VlanSet::is_empty")]
        routed: VlanSet,
        /// By the `owner` of a [`BgpGroup`](crate::BgpGroup) that is there as desired: the sessions that the device knows of
        /// it, ascending by address.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        bgp: BTreeMap<String, Vec<BgpSession>>,
        /// The answer to [`FabricDesired::lookup`](crate::FabricDesired::lookup); absent: nothing was asked.
        lookup: Option<Lookup>,
    },
    /// A NetworkAttachmentDefinition.
    Nad {
        /// It exists and is ours.
        present: bool,
    },
    /// What a BGP speaker knows of a BGPSessionGroup.
    Speaker {
        /// Its objects exist and are ours.
        present: bool,
    },
    /// On a node.
    Node {
        /// The networks of the host, by name; missing or deviating ones may be omitted.
        networks: BTreeMap<String, AppliedNetwork>,
        /// The interfaces of pods, by the pod's uid and the interface's id; only those in their desired
        /// state.
        pods: BTreeMap<String, BTreeMap<String, AppliedLink>>,
        /// What the probes of the command found, in its order.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        probes: Vec<ProbeResults>,
        /// The addresses of the command's Subnets, and of those of which a pod still has some, by the Subnet's name.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        addresses: BTreeMap<String, AppliedAddresses>,
    },
}

/// On which ports a switch has learnt the MAC addresses of probes. Without stations and with a note of the kind
/// [`NO_MAC_TABLE`], it could not be asked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Lookup {
    /// The value of [`FabricDesired::lookup`](crate::FabricDesired::lookup) that it answers.
    #[schemars(length(min = 1, max = 64))]
    pub revision: String,
    /// What was learnt, ascending.
    #[schemars(length(max = Self::MAX_STATIONS))]
    pub stations: Vec<Station>,
}

impl Lookup {
    /// Maximum length of [`Self::stations`]. The first ones stay.
    pub const MAX_STATIONS: usize = 4096;
}

/// A MAC address that a switch has learnt.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Station {
    /// The address, which begins with [`probe_mac_prefix`](crate::probe_mac_prefix): six bytes in hexadecimal with colons,
    /// lower case.
    #[schemars(regex(pattern = r"^([0-9a-f]{2}:){5}[0-9a-f]{2}$"))]
    pub mac: String,
    /// The VLAN.
    pub vlan: VlanId,
    /// The listed port. What a LAG has learnt is a station of each listed member.
    pub port: String,
}

/// All VLANs that a port carries.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Carried {
    /// Tagged VLANs.
    #[serde(skip_serializing_if = "VlanSet::is_empty")]
    pub tagged: VlanSet,
    /// The VLAN of untagged frames: the native VLAN of a trunk, or the VLAN of an access port.
    pub untagged: Option<VlanId>,
    /// A trunk without a list, which carries every VLAN.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub open: bool,
}

/// An item of a command: a VLAN, a port, a VLAN on a port, a VRF, BGP sessions in a VRF, a pod, an interface of a pod, or
/// (all absent) the target as a whole. On a node, a port is the name of a network of the host.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Item {
    /// The VLAN.
    pub vlan: Option<VlanId>,
    /// The port, as the command names it.
    pub port: Option<String>,
    /// The VRF, as the device names it, with all VLANs that are led into it.
    pub vrf: Option<String>,
    /// The owner of BGP sessions in the VRF, and nothing else of it. Of sessions that are not wanted any more, their name on
    /// the device.
    pub bgp: Option<String>,
    /// The uid of the pod.
    pub pod: Option<String>,
    /// The id of the pod's interface.
    pub link: Option<String>,
}

impl Item {
    /// The target as a whole.
    pub const TARGET: Self = Self { vlan: None, port: None, vrf: None, bgp: None, pod: None, link: None };

    /// A VLAN, wherever it is desired on the target.
    pub fn vlan(vid: VlanId) -> Self {
        Self { vlan: Some(vid), ..Self::TARGET }
    }

    /// A port and everything desired on it.
    pub fn port(name: impl Into<String>) -> Self {
        Self { port: Some(name.into()), ..Self::TARGET }
    }

    /// One VLAN on one port.
    pub fn port_vlan(name: impl Into<String>, vid: VlanId) -> Self {
        Self { vlan: Some(vid), port: Some(name.into()), ..Self::TARGET }
    }

    /// A VRF and everything that is led into it.
    pub fn vrf(name: impl Into<String>) -> Self {
        Self { vrf: Some(name.into()), ..Self::TARGET }
    }

    /// The BGP sessions of an owner in a VRF.
    pub fn bgp(vrf: impl Into<String>, owner: impl Into<String>) -> Self {
        Self { bgp: Some(owner.into()), ..Self::vrf(vrf) }
    }

    /// The routed interface of a VLAN, in this VRF.
    pub fn routed(vrf: impl Into<String>, vid: VlanId) -> Self {
        Self { vlan: Some(vid), ..Self::vrf(vrf) }
    }

    /// A pod and all of its interfaces.
    pub fn pod(uid: impl Into<String>) -> Self {
        Self { pod: Some(uid.into()), ..Self::TARGET }
    }

    /// One interface of a pod.
    pub fn link(uid: impl Into<String>, id: impl Into<String>) -> Self {
        Self { pod: Some(uid.into()), link: Some(id.into()), ..Self::TARGET }
    }

    /// True when this item covers `vid` on `port`. A VRF covers no port: its VLANs are switched without it.
    pub fn covers(&self, vid: VlanId, port: &str) -> bool {
        self.pod.is_none()
            && self.vrf.is_none()
            && self.vlan.is_none_or(|own| own == vid)
            && self.port.as_deref().is_none_or(|own| own == port)
    }

    /// True when this item covers the interface `link` of the pod `uid`.
    pub fn covers_link(&self, uid: &str, link: &str) -> bool {
        self.vlan.is_none()
            && self.port.is_none()
            && self.vrf.is_none()
            && self.pod.as_deref().is_none_or(|own| own == uid)
            && self.link.as_deref().is_none_or(|own| own == link)
    }
}

impl fmt::Display for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.pod, &self.link) {
            (Some(pod), Some(link)) => return write!(f, "interface {link} of pod {pod}"),
            (Some(pod), None) => return write!(f, "pod {pod}"),
            (None, _) => {}
        }
        if let (Some(vrf), Some(owner)) = (&self.vrf, &self.bgp) {
            return write!(f, "BGP sessions of {owner} in VRF {vrf}");
        }
        match (&self.vrf, &self.vlan) {
            (Some(vrf), Some(vid)) => return write!(f, "VLAN {vid} in VRF {vrf}"),
            (Some(vrf), None) => return write!(f, "VRF {vrf}"),
            (None, _) => {}
        }
        match (&self.vlan, &self.port) {
            (Some(vid), Some(port)) => write!(f, "VLAN {vid} on port {port}"),
            (Some(vid), None) => write!(f, "VLAN {vid}"),
            (None, Some(port)) => write!(f, "port {port}"),
            (None, None) => f.write_str("the target"),
        }
    }
}

/// A rejected item.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Rejection {
    /// The item.
    #[serde(flatten)]
    pub item: Item,
    /// The device's own error, or the driver's reason.
    pub reason: Text,
    /// The driver retries by itself.
    pub retryable: bool,
    /// The device of the item did not answer: its state is not known, and may still be the previous one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unreachable: bool,
}

impl Rejection {
    /// No retry helps.
    pub fn permanent(item: Item, reason: impl Into<Text>) -> Self {
        Self { item, reason: reason.into(), retryable: false, unreachable: false }
    }
}

/// The kind of notes about foreign VLANs that are removed from port lists while they are ours.
pub const VLAN_TAKEN_OFF: &str = "VlanTakenOff";

/// The kind of the note that a switch can't be asked for the ports of probes.
pub const NO_MAC_TABLE: &str = "NoMacTable";

/// The kind of the note that a switch can't be asked for the state of its BGP sessions.
pub const NO_BGP_STATE: &str = "NoBGPState";

/// A message for the administrator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Note {
    /// A condition type in CamelCase, such as `OpenTrunk`, `Drift` or `NoConfirmedCommit`. There is one
    /// `Drift` note per difference, up to a limit, with the observed and the desired state.
    pub kind: String,
    /// The item that it is about.
    #[serde(default)]
    pub item: Item,
    /// The message.
    pub message: Text,
}

impl Note {
    /// A note on an item.
    pub fn new(kind: impl Into<String>, item: Item, message: impl Into<Text>) -> Self {
        Self { kind: kind.into(), item, message: message.into() }
    }
}

/// Data that a device gave about itself.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceInfo {
    /// The dialect in use.
    pub dialect: Option<Text>,
    /// Its capabilities, in the protocol's short names, such as `candidate` or `confirmed-commit:1.1`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub capabilities: Vec<Text>,
    /// `SHA256:…` fingerprint of its host key.
    pub host_key_fingerprint: Option<Text>,
    /// Make, model or software, as far as it is known.
    pub model: Option<Text>,
    /// How a change of it can be rolled back.
    pub rollback: Option<Rollback>,
    /// Seconds after which the driver reads it again without a notification; absent: never.
    pub audit_interval: Option<u32>,
    /// It notifies the driver of external changes; absent: not known.
    pub change_notifications: Option<bool>,
}

/// How a change of a device can be rolled back after it took effect. Only a device that supports it takes
/// part in a [`Transaction`](crate::Transaction).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Rollback {
    /// The device rolls back by itself after a timeout unless the change is confirmed, and any session that
    /// knows the change's id can confirm or cancel it (RFC 6241, confirmed commit 1.1 with persist).
    Persistent,
    /// The device rolls back by itself after a timeout, or when the session ends (RFC 4741, confirmed commit
    /// 1.0).
    Session,
    /// It can't be rolled back.
    None,
}

/// A change that was made on a device.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ChangeReport {
    /// The transaction that it was a part of; absent: none.
    pub transaction: Option<String>,
    /// When it was confirmed, RFC 3339.
    pub at: String,
    /// Milliseconds from the first request to the last reply, without the time of a hold.
    pub took_ms: u64,
    /// VLANs, and VLANs on ports, that were added.
    pub added: u32,
    /// VLANs, and VLANs on ports, that were removed.
    pub removed: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(reason: &str, items: u16) -> Report {
        let items = || (1..=items).map(|vid| Item::vlan(VlanId::new(vid).unwrap()));
        let generation = Generation { term: 1, sequence: 1, hash: "h".into() };
        Report {
            rejected: items().map(|item| Rejection::permanent(item, reason)).collect(),
            notes: items().map(|item| Note::new("Drift", item, reason)).collect(),
            ..Report::new(("netconf", "leaf1"), generation, ("a", "2030-01-01T00:00:00Z"))
        }
    }

    #[test]
    fn report_of_any_number_of_items_fits() {
        let small = report("no", 3);
        let mut same = small.clone();
        same.bound(10_000);
        assert_eq!(same, small);
        // Shorter texts suffice.
        let mut short = report(&"x".repeat(3000), 10);
        short.bound(10_000);
        assert!(size(&short) <= 10_000);
        assert_eq!((short.rejected.len(), short.notes.len()), (10, 10));
        assert!(short.rejected[0].reason.ends_with('…'));
        let mut many = report(&"x".repeat(3000), 4000);
        many.bound(100_000);
        assert!(size(&many) <= 100_000);
        let left_out = (4000 - many.rejected.len(), 4000 + 1 - many.notes.len());
        let last = many.notes.last().unwrap();
        assert_eq!(last.kind, "LeftOut");
        assert!(last.message.starts_with(&format!("{} rejected items and {} notes", left_out.0, left_out.1)));
        assert_eq!(many.rejected[0].item, Item::vlan(VlanId::new(1).unwrap()));
    }
}
