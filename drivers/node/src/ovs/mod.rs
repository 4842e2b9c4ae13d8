//! Open vSwitch on this node: bridges, their uplinks and patches, and the ports of pods.
//!
//! [`Ovs::reconcile`] takes the complete desired state and brings the database there in one transaction, waits
//! until ovs-vswitchd has it (`cur_cfg`), and tells what is there. `plan` decides and does nothing; `session`
//! speaks to the database; `daemon` knows whether ovs-vswitchd still runs.
//!
//! # What is ours
//! Bridges and ports with `external_ids:eno-cluster` of our cluster; a port also has `eno-id`, which says what it
//! is for. They are changed and removed as needed. All others belong to somebody else:
//!
//! - A bridge of the wanted name that is not ours is used and never removed; its settings stay.
//! - A port that is the wanted uplink and not ours keeps its settings but one: VLANs that are missing in its
//!   `trunks` are added, are listed in its `external_ids:eno-vlans-<cluster>`, and only these are taken out again. If it has
//!   no list, it carries all VLANs: it stays so, and [`AppliedBridge::open`] says it, unless VLANs were added to its
//!   list: then somebody emptied that, and it gets one again. If it is an access port, the wanted bridge is rejected.
//! - An interface on a port of somebody else is never moved.
//! - A bridge of ours stays as long as ports of others are on it.
//!
//! # Closed, not open
//! In Open vSwitch a trunk port without a list carries all VLANs. A list that ours would leave empty is `4095`,
//! which is no VLAN ([`CLOSED`]).

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

/// The only entry of the list of a trunk that carries nothing: reserved by IEEE 802.1Q, so never a VLAN.
pub const CLOSED: u16 = 4095;

/// All that has to be in Open vSwitch by our cluster. What is ours and not in it goes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OvsDesired {
    /// What marks ours: `external_ids:eno-cluster`.
    pub cluster: String,
    /// By name.
    pub bridges: BTreeMap<String, BridgeDesired>,
    /// By interface of the host, which is there already.
    pub ports: BTreeMap<String, PortDesired>,
}

/// A bridge.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BridgeDesired {
    /// Absent: the node's default.
    pub datapath: Option<Datapath>,
    /// What leads to the fabric.
    pub uplink: Option<UplinkDesired>,
    /// What uplink and patch carry, tagged; empty: nothing.
    pub vlans: BTreeSet<u16>,
    /// A bridge that a pair of patch ports leads to, which carry `vlans`. It is wanted as well or there.
    pub patch: Option<String>,
}

/// The uplink of a bridge: one port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UplinkDesired {
    /// What the port is called: for one interface as that, for several the bond's name.
    pub port: String,
    /// Interfaces of the host; several are a bond of which one is active.
    pub interfaces: Vec<String>,
    /// Bytes that it has to carry at least; absent: as it is.
    pub mtu: Option<u32>,
}

/// The port of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortDesired {
    /// Which is wanted as well or there.
    pub bridge: String,
    /// Whose it is: `external_ids:eno-id`.
    pub id: String,
    /// What it carries.
    pub vlans: PortVlans,
    /// Bytes that it has to carry at least; absent: as it is.
    pub mtu: Option<u32>,
}

/// What a port carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PortVlans {
    /// One VLAN, untagged.
    Access(u16),
    /// These, tagged; empty: nothing.
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
    /// As the database has it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::Netdev => "netdev",
        }
    }
}

/// What of the desired state is there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OvsApplied {
    /// Those that exist.
    pub bridges: BTreeMap<String, AppliedBridge>,
    /// Those that exist and that Open vSwitch has opened.
    pub ports: BTreeMap<String, AppliedPort>,
    /// What could not be done.
    pub rejected: Vec<Rejected>,
    /// What somebody should know and nothing fails for.
    pub notes: Vec<String>,
}

/// A bridge that is there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AppliedBridge {
    /// We made it.
    pub owned: bool,
    /// Of the wanted VLANs those that get through its uplink and patch; all of them if it has neither.
    pub vlans: BTreeSet<u16>,
    /// Its uplink belongs to somebody else and has no list: it carries every VLAN.
    pub open: bool,
    /// Bytes that get through its uplink.
    pub mtu: Option<u32>,
}

/// A port that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppliedPort {
    /// What it is on.
    pub bridge: String,
    /// What it carries.
    pub vlans: PortVlans,
    /// Bytes.
    pub mtu: Option<u32>,
}

/// Something that could not be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejected {
    /// What.
    pub item: Item,
    /// Why, with the remedy where there is one.
    pub reason: String,
    /// It may pass by itself.
    pub retryable: bool,
}

/// What a [`Rejected`] is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Item {
    /// A bridge with its uplink and patch, by name.
    Bridge(String),
    /// The port of a pod, by interface.
    Port(String),
}
