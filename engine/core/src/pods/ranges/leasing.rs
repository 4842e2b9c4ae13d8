//! The leases of one Subnet, beside its blocks.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use crate::pods::ipam::blocks::Stage;
use crate::{Key, Name};

/// The leases of one Subnet, beside its blocks.
#[derive(Debug, Default)]
pub(super) struct Leasing {
    /// The access attachments that give addresses of it.
    pub attachments: BTreeSet<Key>,
    /// The revision of the leases: counts their changes.
    pub revision: u64,
    /// The last revision that is written to the status.
    pub written: u64,
    /// The addresses of single pods.
    pub fixed: BTreeMap<IpAddr, Fixed>,
    /// Counts the uses of [`Fixed::order`].
    pub order: u64,
    /// The addresses that pods have otherwise, each with the pod as text.
    pub attached: BTreeMap<IpAddr, Name>,
    /// When a pod was first seen with an address that its node has and does not report.
    pub unreported: BTreeMap<(IpAddr, Name), Duration>,
    /// The nodes that are gone, with the time since when they are missed.
    pub gone: BTreeMap<Name, Duration>,
    /// Running pods of attachments that wait for an address.
    pub starved: BTreeSet<(Key, Name)>,
    /// The nodes that have a command about it.
    pub commanded: BTreeSet<Name>,
    /// The nodes whose next report may free something.
    pub awaited: BTreeSet<Name>,
    /// When it is planned again.
    pub wake: Option<Duration>,
    /// What its status tells.
    pub findings: Findings,
}

/// An address of one pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fixed {
    pub namespace: Name,
    pub pod: Name,
    /// Where the pod is, or was.
    pub node: Name,
    /// How far the node has it; `None`: it is kept for the pod.
    pub stage: Option<Stage>,
    /// Ascends with the last change.
    pub order: u64,
}

/// What the status of a Subnet tells of its addresses, as text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Findings {
    /// Two pods have one address.
    pub conflicts: Vec<String>,
    /// Pods ask for addresses that they can't get.
    pub refused: Vec<String>,
    /// Pods wait, and nothing is free.
    pub none_left: Option<String>,
}
