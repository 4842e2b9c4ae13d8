//! What a client sees of an object.

use std::collections::BTreeMap;
use std::sync::Arc;

use eno_schemas::{ChangeReport, DeviceInfo, Phase, PortBefore, VlanId};

use crate::spec::Spec;
use crate::{Name, PodEntry};

/// The status of an object, as the runtime writes it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Status {
    /// `None`: nothing has been said yet.
    pub phase: Option<Phase>,
    /// In words; the hop that is not, when one is not.
    pub message: String,
    /// `metadata.generation` that this is about.
    pub observed_generation: i64,
    /// Sorted by type.
    pub conditions: Vec<Condition>,
    /// Counts the phase changes.
    pub transitions: u64,
    /// The VLAN that the object holds.
    pub granted_id: Option<VlanId>,
    /// Its last valid inputs; as JSON they are read back by [`Spec::from_json`].
    pub realized: Option<Arc<Spec>>,
    /// The connection points of a service.
    pub connection_points: Vec<Name>,
    /// The switch ports that lead to a PhysicalNetwork, as `<FabricDevice>:<port>`.
    pub switch_ports: Vec<String>,
    /// Identifies the cluster on a device.
    pub cluster: Option<Name>,
    /// What a device said of itself.
    pub device: Option<DeviceInfo>,
    /// The last change of a device.
    pub last_transaction: Option<LastTransaction>,
    /// What drivers reported of a device's ports and are told again.
    pub port_memory: PortMemory,
    /// How many VLANs, and VLANs on ports, a device does not have as they are wanted; as of the last other news.
    pub pending_changes: Option<u32>,
    /// The pods that it gives something to, by name.
    pub pods: Vec<PodEntry>,
    /// The bridges that it made, of a Bridge: the nodes where it is.
    pub nodes: Vec<Name>,
    /// Counts the changes of leases in `pods`, for [`crate::Event::StatusWritten`]. Not written down.
    pub leased: u64,
    /// What it is made of when it is ready: an engine that starts tells by it whether that has changed. `None`: it is not
    /// ready, or waits for nothing, or who said that it is did not say this.
    pub ready_inputs: Option<u64>,
}

/// What drivers reported of ports, for the next command and the next engine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PortMemory {
    /// The ports that are trunks of ours and have a list, or had one that somebody emptied.
    pub closed: Vec<Name>,
    /// What ports and LAGs were like before they carried VLANs of ours.
    pub before: BTreeMap<Name, PortBefore>,
    /// Ports and LAGs that the spec does not list any more, until none of ours is on them.
    pub leaving: Vec<Name>,
}

/// The last change of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastTransaction {
    /// What the driver said of it.
    pub change: ChangeReport,
    /// How it ended.
    pub outcome: ChangeOutcome,
}

/// How a change of a device ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeOutcome {
    /// It is there.
    Confirmed,
    /// It was taken back.
    RolledBack,
}

/// One condition of a status, as `metav1.Condition`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// In CamelCase.
    pub kind: &'static str,
    /// Whether it holds.
    pub holds: bool,
    /// In CamelCase.
    pub reason: &'static str,
    /// In words.
    pub message: String,
    /// Since when, RFC 3339.
    pub since: Name,
}
