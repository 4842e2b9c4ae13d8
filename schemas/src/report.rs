//! What a driver tells the engine.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{AppliedLink, AppliedNetwork, Generation, PortBefore, VlanId, VlanSet};

/// What a driver did about a command and what it has read back, kept as the last message of its subject in
/// `ENO_RESULTS`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// The driver.
    pub driver: String,
    /// The target.
    pub target: String,
    /// The process that worked on it.
    pub instance: String,
    /// The command that this is about.
    pub generation: Generation,
    /// RFC 3339.
    pub at: String,
    /// How it ended.
    pub outcome: Outcome,
    /// What is there of ours, as last read back; absent: not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub applied: Option<Applied>,
    /// Items that were left out while the rest was applied.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rejected: Vec<Rejection>,
    /// What the admin should know though nothing failed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<Note>,
    /// What the device said of itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<DeviceInfo>,
    /// The last change of the device; absent: none was made for this command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub change: Option<ChangeReport>,
}

/// How a command ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "status", rename_all = "lowercase")]
pub enum Outcome {
    /// All but the rejected items is there, as read back.
    Applied,
    /// All but the rejected items is there, as read back, and can still be taken back: the transaction waits for its
    /// decision. `applied` says what is there while it is held.
    Held,
    /// The transaction was aborted, and the device is as it was before. Nothing is done until the next command.
    #[serde(rename = "rolled-back")]
    RolledBack {
        /// Why, in words.
        reason: String,
    },
    /// Nothing of this generation could be done.
    Failed(Failure),
    /// Still at it.
    Progress {
        /// What is being done.
        message: String,
    },
}

/// Why nothing could be done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Failure {
    /// In words, with the operation and the device's own error.
    pub reason: String,
    /// The driver tries again by itself.
    pub retryable: bool,
    /// The target did not answer: unreachable is not wrong.
    #[serde(default)]
    pub unreachable: bool,
}

/// What is there of ours.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Applied {
    /// On a switch.
    Fabric {
        /// The VLANs named as ours.
        vlans: VlanSet,
        /// For each listed port the VLANs of ours that it carries; ports that carry none may be left out. An
        /// open trunk counts as carrying what is wanted on it.
        ports: BTreeMap<String, VlanSet>,
        /// For each listed port that switches, all that it carries, ours and foreign.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        carried: BTreeMap<String, Carried>,
        /// The listed ports that are trunks with a list on which there are VLANs of ours, and those that were while
        /// VLANs of ours are wanted there. The engine says it again in the next command, as
        /// [`FabricPort::closed`](crate::FabricPort). Absent: the driver knows without being told.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        closed: Option<BTreeSet<String>>,
        /// What listed ports were like before they carried VLANs of ours, where that is to be restored. The engine says
        /// it again in the next command, as [`FabricPort::before`](crate::FabricPort).
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        before: BTreeMap<String, PortBefore>,
    },
    /// A NetworkAttachmentDefinition.
    Nad {
        /// It exists and is ours.
        present: bool,
    },
    /// On a node.
    Node {
        /// The networks of the host, by name; those that are not there, or not as wanted, may be left out.
        networks: BTreeMap<String, AppliedNetwork>,
        /// The interfaces of pods, by the pod's uid and the interface's id; only those that are as wanted.
        pods: BTreeMap<String, BTreeMap<String, AppliedLink>>,
    },
}

/// All that a port carries.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Carried {
    /// Tagged VLANs.
    #[serde(skip_serializing_if = "VlanSet::is_empty")]
    pub tagged: VlanSet,
    /// The VLAN of untagged frames: the native VLAN of a trunk, or the VLAN of an access port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub untagged: Option<VlanId>,
    /// A trunk without a list, which carries every VLAN.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub open: bool,
}

/// One thing of a command: a VLAN, a port, a VLAN on a port, a pod, an interface of a pod, or (all absent) the target
/// as a whole. On a node, a port is the name of a network of the host.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Item {
    /// The VLAN.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vlan: Option<VlanId>,
    /// The port, as the command names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<String>,
    /// The uid of the pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<String>,
    /// The id of the pod's interface.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<String>,
}

impl Item {
    /// The target as a whole.
    pub const TARGET: Self = Self { vlan: None, port: None, pod: None, link: None };

    /// A VLAN, wherever it is wanted on the target.
    pub fn vlan(vid: VlanId) -> Self {
        Self { vlan: Some(vid), ..Self::TARGET }
    }

    /// A port and all that is wanted on it.
    pub fn port(name: impl Into<String>) -> Self {
        Self { port: Some(name.into()), ..Self::TARGET }
    }

    /// One VLAN on one port.
    pub fn port_vlan(name: impl Into<String>, vid: VlanId) -> Self {
        Self { vlan: Some(vid), port: Some(name.into()), ..Self::TARGET }
    }

    /// A pod and all that it is given.
    pub fn pod(uid: impl Into<String>) -> Self {
        Self { pod: Some(uid.into()), ..Self::TARGET }
    }

    /// One interface of a pod.
    pub fn link(uid: impl Into<String>, id: impl Into<String>) -> Self {
        Self { pod: Some(uid.into()), link: Some(id.into()), ..Self::TARGET }
    }

    /// True when this item covers `vid` on `port`.
    pub fn covers(&self, vid: VlanId, port: &str) -> bool {
        self.pod.is_none()
            && self.vlan.is_none_or(|own| own == vid)
            && self.port.as_deref().is_none_or(|own| own == port)
    }

    /// True when this item covers the interface `link` of the pod `uid`.
    pub fn covers_link(&self, uid: &str, link: &str) -> bool {
        self.vlan.is_none()
            && self.port.is_none()
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
        match (&self.vlan, &self.port) {
            (Some(vid), Some(port)) => write!(f, "VLAN {vid} on port {port}"),
            (Some(vid), None) => write!(f, "VLAN {vid}"),
            (None, Some(port)) => write!(f, "port {port}"),
            (None, None) => f.write_str("the target"),
        }
    }
}

/// An item that was left out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Rejection {
    /// Which.
    #[serde(flatten)]
    pub item: Item,
    /// The device's own words, or ours where the driver refused.
    pub reason: String,
    /// The driver tries again by itself.
    pub retryable: bool,
    /// What has it did not answer: nothing is known of the item, and what was there may work as it did.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unreachable: bool,
}

/// The kind of notes about VLANs that are off the lists of others while they are ours.
pub const VLAN_TAKEN_OFF: &str = "VlanTakenOff";

/// Something that the admin should know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Note {
    /// A condition type in CamelCase, such as `OpenTrunk`, `Drift` or `NoConfirmedCommit`. Of `Drift` there is one for
    /// each difference, up to a bound, which says what was found in place of what should be there.
    pub kind: String,
    /// What it is about.
    #[serde(default)]
    pub item: Item,
    /// In words.
    pub message: String,
}

/// What a device said of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceInfo {
    /// The dialect in use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dialect: Option<String>,
    /// What it can do, in the protocol's short names, such as `candidate` or `confirmed-commit:1.1`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub capabilities: Vec<String>,
    /// `SHA256:…` of the host key that it showed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_key_fingerprint: Option<String>,
    /// Make, model or software, as far as it tells.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// How a change of it can be taken back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rollback: Option<Rollback>,
    /// Seconds after which the driver reads it again though nothing was heard of it; absent: it doesn't.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub audit_interval: Option<u32>,
    /// It tells the driver of changes by others; absent: that is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub change_notifications: Option<bool>,
}

/// How a change of a device can be taken back after it took effect. Only a device that can do it takes part in a
/// [`Transaction`](crate::Transaction).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Rollback {
    /// The device does it by itself after a while unless it is told otherwise, and whoever knows the name of the
    /// change can confirm or cancel it (RFC 6241, confirmed commit 1.1 with persist).
    Persistent,
    /// The device does it by itself after a while, or when the session ends (RFC 4741, confirmed commit 1.0).
    Session,
    /// It can't be taken back.
    None,
}

/// A change that was made on a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ChangeReport {
    /// The transaction that it was a part of; absent: it was made by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transaction: Option<String>,
    /// When it was confirmed, RFC 3339.
    pub at: String,
    /// From the first request to the last answer, without the time that it was held, in milliseconds.
    pub took_ms: u64,
    /// VLANs, and VLANs on ports, that were made.
    pub added: u32,
    /// VLANs, and VLANs on ports, that were taken away.
    pub removed: u32,
}
