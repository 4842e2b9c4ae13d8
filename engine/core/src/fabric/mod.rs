//! The switches: their graph, the placement of networks on them, and their transactions.

pub mod changes;
pub mod device;
pub mod gaps;
pub mod planner;
pub mod topology;
pub mod transaction;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use eno_schemas::VlanId;

use crate::spec::BridgeDomainSpec;
use crate::store::record::{Network, Point};
use crate::{Key, Name};

use device::DeviceTarget;
use topology::{Ports, Topology};

/// The switches and the networks on them.
#[derive(Debug, Default)]
pub struct Fabric {
    /// The graph of the switches.
    pub topology: Topology,
    /// A FabricDevice changed: `topology` is built anew.
    pub topology_dirty: bool,
    /// A FabricDevice exists that is not being deleted.
    pub has_devices: bool,
    /// The ConnectionPoints as the fabric sees them.
    pub points: HashMap<Name, Point>,
    /// The switch ports between endpoints. Cleared when `points` or `topology` change.
    pub path_cache: RefCell<HashMap<planner::Endpoints, Arc<Ports>>>,
    /// The state of each L2Service and hand-written L2BridgeDomain.
    pub networks: HashMap<Key, Network>,
    /// By L2Service: the L2BridgeDomain that the engine has written for it.
    pub bridge_domains: HashMap<Name, BridgeDomainSpec>,
    /// The switches.
    pub devices: BTreeMap<Name, DeviceTarget>,
    /// Orders the changes of all switches; grows with each state that is handed out ([`changes`]).
    pub change_count: u64,
    /// The networks with a [`Network::refusal`].
    pub refused_networks: BTreeSet<Key>,
    /// Networks that move to another VLAN: the VLANs involved, until every switch has confirmed.
    pub pending_vlan_changes: HashMap<Key, BTreeSet<VlanId>>,
    /// Networks to be planned onto switch ports.
    pub queue: BTreeSet<Key>,
}
