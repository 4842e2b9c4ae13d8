//! Probes: the VLANs that agents probe, and what they found.
//!
//! Attachments request the VLANs whose path is confirmed. What agents found is counted by VLAN, so that a report costs
//! only what it changes.

mod counting;
mod findings;
mod gate;
mod network;
mod requests;
mod rings;
mod tally;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use eno_schemas::{ProbeResults, VlanId};

use crate::{Key, Name, VerifyRequest};

pub(in crate::node) use findings::bounded;
use network::Probed;
pub(crate) use tally::Tally;

/// Maximum of gateways that are asked on a VLAN.
pub(crate) const MAX_GATEWAYS: usize = 8;

/// The results of a node, by connection point and network.
pub(in crate::node) type Results = BTreeMap<(Name, String), Arc<ProbeResults>>;

/// What is probed for an attachment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProbeRequest {
    /// The connection point.
    pub point: Name,
    /// The network's name on the host.
    pub network: String,
    /// Its services.
    pub services: BTreeSet<Key>,
    /// The VLANs. None while its path is not confirmed, or when it can't be probed.
    pub vlans: BTreeMap<VlanId, ProbedVlan>,
    /// Why it can't be probed.
    pub hindrance: Option<String>,
}

/// A VLAN that is probed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProbedVlan {
    /// The service with the VLAN.
    pub service: Key,
    /// Identifies the path.
    pub revision: u32,
    /// The gateways that are asked.
    pub gateways: BTreeSet<IpAddr>,
    /// Bytes of the packets that the attachment wants to pass.
    pub mtu: u16,
    /// The objects that ask for new probes, each with its request.
    pub asked: BTreeMap<Key, VerifyRequest>,
}

/// What is requested and was found.
#[derive(Debug, Default)]
pub(in crate::node) struct Probes {
    /// What each attachment requests.
    requests: HashMap<Key, ProbeRequest>,
    /// By connection point: the attachments whose path is not confirmed.
    waiting: BTreeMap<Name, BTreeSet<Key>>,
    /// By connection point and network.
    pub(in crate::node) networks: BTreeMap<Name, BTreeMap<String, Probed>>,
    /// The nodes whose agents are alive.
    alive: BTreeSet<Name>,
    /// The nodes whose agents say that they do not probe.
    without_visits: BTreeSet<Name>,
    /// The objects that ask for new probes and have no answer yet.
    pub(in crate::node) verifying: BTreeSet<Key>,
}
