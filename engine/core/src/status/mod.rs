//! The status of an object, as clients see it.

pub mod condition;
pub mod evaluate;
pub mod evaluation;
pub mod inputs;
mod notes;
pub mod stalled;
mod switches;
pub mod write;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use eno_schemas::{ChangeOutcome, ChangeReport, DeviceInfo, Phase, PortBefore, VlanId};

use crate::fabric::placement::PlacementStatus;
use crate::spec::Spec;
use crate::{Condition, Key, Name, PodEntry};

/// The objects whose status is to be evaluated.
#[derive(Debug, Default)]
pub struct Statuses {
    /// Objects whose status is to be evaluated.
    queue: BTreeSet<Key>,
    /// Objects that were given up while switches may still carry their VLANs. Evaluated after each switch report.
    removing: BTreeSet<Key>,
}

impl Statuses {
    /// Adds objects to the queue, and takes them out of `keys`.
    pub fn request(&mut self, keys: &mut BTreeSet<Key>) {
        self.queue.extend(std::mem::take(keys));
    }

    /// Takes the next object out of the queue.
    pub fn pop(&mut self) -> Option<Key> {
        self.queue.pop_first()
    }

    /// True when nothing is to be evaluated.
    pub fn is_idle(&self) -> bool {
        self.queue.is_empty()
    }

    /// Evaluates an object after each report of a switch, since switches may still carry its VLANs.
    pub fn follow_removal(&mut self, key: &Key) {
        self.removing.insert(key.clone());
    }

    /// A switch reported.
    pub fn reevaluate_removed(&mut self) {
        self.queue.extend(self.removing.iter().cloned());
    }

    /// Forgets an object that is gone.
    pub fn forget(&mut self, key: &Key) {
        self.queue.remove(key);
        self.removing.remove(key);
    }
}

/// The status of an object, as the runtime writes it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Status {
    /// `None`: no status yet.
    pub phase: Option<Phase>,
    /// A message for people; it names the hop that is not confirmed.
    pub message: String,
    /// The `metadata.generation` that this status is about.
    pub observed_generation: i64,
    /// Sorted by type.
    pub conditions: Vec<Condition>,
    /// Counts the phase changes.
    pub transitions: u64,
    /// The VLAN that the object holds.
    pub granted_id: Option<VlanId>,
    /// Where a network is confirmed and where it is to be, while a switch rejects it or it moves to another VLAN.
    pub placement: Option<PlacementStatus>,
    /// The last valid spec. [`Spec::from_json`] reads it back.
    pub realized: Option<Arc<Spec>>,
    /// The L2Service whose name an attachment's pool of addresses has; `None`: the IPAM plugin chooses the pool.
    pub address_pool: Option<Name>,
    /// The connection points of a service.
    pub connection_points: Vec<Name>,
    /// The switch ports that lead to a PhysicalNetwork, as `<FabricDevice>:<port>`.
    pub switch_ports: Vec<String>,
    /// The identifier of the cluster on a device.
    pub cluster: Option<Name>,
    /// Vendor, model and capabilities of a device.
    pub device: Option<DeviceInfo>,
    /// The last change of a device.
    pub last_transaction: Option<LastTransaction>,
    /// The memory that drivers reported of a device's ports, for later commands.
    pub port_memory: PortMemory,
    /// The number of VLANs, and of VLANs on ports, by which a device differs from its desired state, as of the last
    /// other change.
    pub pending_changes: Option<u32>,
    /// The pods that it gives something to, sorted by name.
    pub pods: Vec<PodEntry>,
    /// The nodes that have the bridge of a Bridge.
    pub nodes: Vec<Name>,
    /// The revision of the leases in `pods`, for [`crate::Event::StatusWritten`]. It is not written.
    pub leased: u64,
    /// The hash of the inputs of a ready object: a new leader compares it. `None`: it is not ready, or waits for
    /// nothing, or an older engine wrote the status.
    pub ready_inputs: Option<u64>,
}

/// The memory that drivers reported of ports, for later commands and the next leader.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PortMemory {
    /// The trunks of ours that have a VLAN list, or whose list somebody emptied.
    pub closed: Vec<Name>,
    /// The configuration of ports and LAGs before they carried VLANs of ours.
    pub before: BTreeMap<Name, PortBefore>,
    /// Ports and LAGs that left the spec and still carry VLANs of ours.
    pub leaving: Vec<Name>,
}

/// The last change of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastTransaction {
    /// The driver's report of it.
    pub change: ChangeReport,
    /// How it ended.
    pub outcome: ChangeOutcome,
}
