//! Plans the requests that lead from the observed to the desired state. Pure.
//!
//! - A network or port is ours when it has our [`Mark`]. Everything else is foreign, and stays.
//! - The network of a VLAN is ours, or one that somebody offers by a tag, or a foreign one that the FabricDevice adopts.
//!   A foreign one that is not adopted is refused. If there is none, it is made.
//! - Each trunk with a VLAN has a port of ours on that network as a sub-port with the VLAN as its segmentation id. A
//!   foreign sub-port with that id is refused until it is adopted.
//! - What is ours and not needed goes: first the sub-port, then the port, then the network.
//!
//! A plan has the requests that can be made now. After them, the next plan has those that follow. So a process that
//! dies between any two of them is continued by another.

mod adoption;
mod attributes;
mod planner;
mod refusals;

use std::collections::BTreeMap;

use eno_schemas::{FabricDesired, Note, Rejection, VlanId};

use crate::mark::Mark;
use crate::request::Request;
use crate::view::{Id, View};

pub(crate) use attributes::Attributes;
pub use refusals::Refusals;

/// The requests that can be made now, and what can't be done.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// Independent of each other.
    pub requests: Vec<Request>,
    /// Desired items that are not applied.
    pub rejected: Vec<Rejection>,
    /// Messages for the administrator.
    pub notes: Vec<Note>,
    /// The network of each desired VLAN that has one.
    pub networks: BTreeMap<VlanId, Id>,
}

/// Plans the difference between the observed and the desired state.
pub fn plan(view: &View, desired: &FabricDesired, mark: &Mark, refusals: &Refusals) -> Plan {
    planner::plan(view, desired, mark, refusals)
}
