//! Open vSwitch on this node: bridges, their uplinks and patches, and the ports of pods.
//!
//! [`Ovs::reconcile`] takes the complete desired state. It changes the database in one transaction, waits until
//! ovs-vswitchd has applied it (`cur_cfg`), and returns the observed state. `plan` is pure; `session` talks to the
//! database; `daemon` checks that ovs-vswitchd runs.
//!
//! # Ownership
//! Bridges and ports with `external_ids:eno-cluster` of the cluster are ENO's. A port also has `eno-id`, which names
//! its purpose. ENO changes and deletes them as needed. All other bridges and ports are foreign:
//!
//! - A foreign bridge with the desired name is used and never deleted; its settings stay.
//! - A foreign port that is the desired uplink keeps its settings but one. ENO adds missing VLANs to its `trunks`,
//!   records them in `external_ids:eno-vlans-<cluster>`, and removes only these again.
//! - A foreign uplink with empty `trunks` carries all VLANs. It stays so, and [`AppliedBridge::open`] reports it. If
//!   ENO's record shows that the list was not empty before, the list is filled again.
//! - A foreign access port is no uplink: the desired bridge is rejected.
//! - An interface on a foreign port is never moved.
//! - A bridge of ENO stays as long as foreign ports are on it.
//!
//! # Closed trunks
//! In Open vSwitch a trunk port with empty `trunks` carries all VLANs. So ENO writes `4095`, which is no VLAN, instead
//! of an empty list ([`CLOSED`]).

use std::collections::{BTreeMap, BTreeSet};

mod adopt;
mod daemon;
mod desired;
mod observe;
mod plan;
mod session;
mod view;

pub use daemon::DaemonError;
pub use session::{Ovs, OvsError};

/// The only entry in `trunks` of a port that carries no VLAN. IEEE 802.1Q reserves the number, so it is never a VLAN.
pub const CLOSED: u16 = 4095;

/// The desired state of Open vSwitch. Bridges and ports of the cluster that are not in it are deleted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OvsDesired {
    /// The cluster's name: `external_ids:eno-cluster`.
    pub cluster: String,
    /// Bridges by name.
    pub bridges: BTreeMap<String, BridgeDesired>,
    /// Ports of pods, by the name of the host's interface, which must exist.
    pub ports: BTreeMap<String, PortDesired>,
}

/// A desired bridge.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BridgeDesired {
    /// Absent: the node's default.
    pub datapath: Option<Datapath>,
    /// The port that connects it to the fabric.
    pub uplink: Option<UplinkDesired>,
    /// VLANs that uplink and patch carry, tagged; empty: none.
    pub vlans: BTreeSet<u16>,
    /// Another bridge to connect to by a pair of patch ports, which carry `vlans`. It must be desired or exist.
    pub patch: Option<String>,
}

/// The uplink of a bridge: one port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UplinkDesired {
    /// Name of the port: that of its only interface, or of the bond.
    pub port: String,
    /// Interfaces of the host; several form an active-backup bond.
    pub interfaces: Vec<String>,
    /// Minimum MTU in bytes; absent: unchanged.
    pub mtu: Option<u32>,
}

/// A desired port of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortDesired {
    /// Name of the bridge, which must be desired or exist.
    pub bridge: String,
    /// Its purpose: `external_ids:eno-id`.
    pub id: String,
    /// VLANs that it carries.
    pub vlans: PortVlans,
    /// Minimum MTU in bytes; absent: unchanged.
    pub mtu: Option<u32>,
}

/// VLANs of a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PortVlans {
    /// One VLAN, untagged.
    Access(u16),
    /// These VLANs, tagged; empty: none.
    Trunk(BTreeSet<u16>),
}

/// `datapath_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Datapath {
    /// In the kernel, by its module.
    System,
    /// In user space.
    Netdev,
}

impl Datapath {
    /// The value in the database.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::Netdev => "netdev",
        }
    }
}

/// The observed part of the desired state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OvsApplied {
    /// Bridges that exist, by name.
    pub bridges: BTreeMap<String, AppliedBridge>,
    /// Ports that exist and that Open vSwitch has opened, by interface.
    pub ports: BTreeMap<String, AppliedPort>,
    /// Items that could not be realised.
    pub rejected: Vec<Rejected>,
    /// Messages for administrators that are no failures.
    pub notes: Vec<String>,
}

/// An observed bridge.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AppliedBridge {
    /// True when ENO made it.
    pub owned: bool,
    /// Desired VLANs that its uplink and patch carry; all desired VLANs if it has neither.
    pub vlans: BTreeSet<u16>,
    /// True when its uplink is foreign and has empty `trunks`, so that it carries every VLAN.
    pub open: bool,
    /// MTU of its uplink in bytes.
    pub mtu: Option<u32>,
}

/// An observed port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppliedPort {
    /// Name of its bridge.
    pub bridge: String,
    /// VLANs that it carries.
    pub vlans: PortVlans,
    /// MTU in bytes.
    pub mtu: Option<u32>,
}

/// An item that could not be realised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejected {
    /// The item.
    pub item: Item,
    /// The reason, with a remedy where there is one.
    pub reason: String,
    /// True when a retry may succeed.
    pub retryable: bool,
}

/// The item of a [`Rejected`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Item {
    /// A bridge with its uplink and patch, by name.
    Bridge(String),
    /// The port of a pod, by interface.
    Port(String),
}
