//! The status of an object, as clients see it.

pub mod addresses;
pub mod bgp;
pub mod condition;
pub mod evaluation;
pub mod hop;
pub mod inputs;
pub mod pods;
pub mod whole;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use eno_schemas::{ChangeOutcome, ChangeReport, DeviceInfo, Phase, PortBefore, ProbeOutcome, Text, VlanId};

use crate::kinds::Spec;
use crate::{Condition, FixedAddress, Name, NodeBlocks, PodEntry};

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
    /// The blocks of a Subnet that nodes have, by the names of these.
    pub node_addresses: Vec<NodeBlocks>,
    /// The addresses of a Subnet that are those of single pods. Those that nobody needs come first.
    pub fixed_addresses: Vec<FixedAddress>,
    /// The nodes of a BGPSessionGroup with their addresses.
    pub workers: Vec<bgp::Worker>,
    /// The sessions of a BGPSessionGroup.
    pub sessions: Option<bgp::Sessions>,
    /// The names of the speaker's objects for the gateways of a BGPSessionGroup.
    pub speaker_peers: Vec<String>,
    /// The revision of the leases in `workers`, `pods`, `node_addresses` and `fixed_addresses`, for [`crate::Event::StatusWritten`]. It is not written.
    pub leased: u64,
    /// The answer to the last request for new probes that was carried out.
    pub verification: Option<Verification>,
    /// The hash of the inputs of a ready object: a new leader compares it. `None`: it is not ready, or waits for
    /// nothing, or an older engine wrote the status.
    pub ready_inputs: Option<u64>,
}

/// The answer to a request for new probes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verification {
    /// The nonce of the request.
    pub nonce: Name,
    /// What was found. What failed comes first.
    pub results: Vec<VerificationResult>,
    /// How many results are left out.
    pub left_out: usize,
}

impl Verification {
    /// Maximum length of [`Self::results`].
    pub const MAX_RESULTS: usize = 64;
}

/// What a probe found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerificationResult {
    /// The node that asked.
    pub from: Name,
    /// The node, or the address of the gateway, that was asked.
    pub to: Option<Name>,
    /// The VLAN.
    pub vlan: VlanId,
    /// The VLAN on which the asked node was, where that is another one.
    pub other: Option<VlanId>,
    /// What came of it.
    pub outcome: ProbeOutcome,
    /// The MAC addresses that answered for a gateway.
    pub macs: BTreeSet<String>,
    /// Why the node was not asked.
    pub reason: Option<Text>,
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

/// The part of a placement that a status carries while the network is rejected or moves to another VLAN.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlacementStatus {
    /// Where it was confirmed, or the part of that which a withheld network keeps.
    pub confirmed: Option<Confirmed>,
    /// The VLAN that it is to have.
    pub desired: Option<VlanId>,
    /// The switch that rejected it, and whether the same request may succeed later.
    pub rejected_by: Option<(Name, bool)>,
}

/// Where a network was confirmed. The ports have their names, which outlive a change of the topology.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Confirmed {
    /// Its VLAN.
    pub vlan: VlanId,
    /// By switch: the ports that carry it. Empty while reports of switches tell them.
    pub ports: BTreeMap<Name, BTreeSet<Name>>,
}
