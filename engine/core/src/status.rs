//! What a client sees of an object.

use std::sync::Arc;

use eno_schemas::{DeviceInfo, Phase, VlanId};

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
    /// What a device said of itself.
    pub device: Option<DeviceInfo>,
    /// The pods that it gives something to, by name.
    pub pods: Vec<PodEntry>,
    /// The bridges that it made, of a Bridge: the nodes where it is.
    pub nodes: Vec<Name>,
    /// Counts the changes of leases in `pods`, for [`crate::Event::Recorded`]. Not written down.
    pub leased: u64,
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
