//! BGP sessions between nodes and VRFs: the addresses of nodes, their interfaces, and the sessions on devices.
//!
//! An address is leased, and written to the status of its BGPSessionGroup, before a node or a device is commanded with it.
//! It is released when the node has confirmed that its interface is gone.

mod leases;
mod plan;
mod speaker;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use sha2::{Digest as _, Sha256};

use crate::fabric::Fabric;
use crate::kinds::Family;
use crate::pods::{Context, Lease, Pods};
use crate::status::Status;
use crate::status::bgp::Worker;
use crate::{Key, Kind, Name};

pub(crate) use plan::{gateways, nodes_of};
pub(crate) use speaker::SPEAKER_DRIVER;
use speaker::SpeakerTarget;

/// All BGPSessionGroups with nodes.
#[derive(Debug, Default)]
pub struct Groups {
    by_key: BTreeMap<Key, Group>,
    /// Groups whose leases are to be restored from their status.
    restore_queue: BTreeMap<Key, Vec<Worker>>,
    /// Groups to be planned.
    queue: BTreeSet<Key>,
    /// By the name of a group: what speakers know of it.
    speakers: BTreeMap<Name, SpeakerTarget>,
}

/// A BGPSessionGroup.
#[derive(Debug, Default)]
struct Group {
    /// The name of its interface on nodes.
    interface: String,
    /// The nodes with addresses.
    workers: BTreeMap<Name, Leases>,
    /// The revision of the leases: counts their changes.
    revision: u64,
    /// The last revision that is written to the status.
    written: u64,
    /// A node without addresses, and why.
    problem: Option<(Name, String)>,
    /// When it is planned again.
    wake: Option<Duration>,
}

/// The addresses of a node.
#[derive(Debug, Default)]
struct Leases {
    /// One of each family that it has.
    own: BTreeMap<Family, Lease>,
    /// Former ones. They are released when the node has confirmed.
    retiring: Vec<Lease>,
    /// The revision of the last change.
    revision: u64,
    /// The version of the nodes without the retiring ones. `None`: its interface is as it was.
    retired_at: Option<u64>,
    /// The node is gone since then.
    gone: Option<Duration>,
}

/// The parts that are changed beside the groups.
pub(crate) struct Parts<'a, 'b> {
    pub cx: &'a mut Context<'b>,
    pub pods: &'a mut Pods,
    pub fabric: &'a mut Fabric,
}

/// The name of a group's interface on nodes, at most 15 bytes.
fn interface_name(group: &str) -> String {
    let digest = Sha256::digest(group.as_bytes());
    digest.iter().take(5).fold("eno-".to_owned(), |name, byte| name + &format!("{byte:02x}"))
}

impl Groups {
    /// A group is new, with the status that it was found with.
    pub(crate) fn add_object(&mut self, key: &Key, status: &Status) {
        if key.kind != Kind::BGPSessionGroup {
            return;
        }
        if let Some(group) = self.by_key.get_mut(key) {
            // One of the same name was there before: its leases have to be written to the new status.
            group.revision += 1;
            group.workers.values_mut().for_each(|worker| worker.revision = group.revision);
        } else if !status.workers.is_empty() {
            self.restore_queue.insert(key.clone(), status.workers.clone());
        }
        self.queue.insert(key.clone());
    }

    /// An object was validated, or is gone: groups may have other nodes, gateways or addresses.
    pub(crate) fn follow_object(&mut self, key: &Key) {
        match key.kind {
            Kind::BGPSessionGroup => drop(self.queue.insert(key.clone())),
            Kind::Subnet
            | Kind::Route
            | Kind::VRF
            | Kind::ConnectionPoint
            | Kind::L2Service
            | Kind::VRFAttachment => self.touch_all(),
            _ => {}
        }
    }

    /// A node reported: it may have lost its interface.
    pub(crate) fn node_reported(&mut self, node: &Name) {
        let is_awaited =
            |group: &Group| group.workers.get(node).is_some_and(|leases| !leases.retiring.is_empty());
        let awaited = self.by_key.iter().filter(|(_, group)| is_awaited(group));
        self.queue.extend(awaited.map(|(key, _)| key.clone()));
    }

    /// A node came, went or has other labels, or addresses were released.
    pub(crate) fn touch_all(&mut self) {
        self.queue.extend(self.by_key.keys().cloned());
    }

    /// Queues the groups whose time has come.
    pub(crate) fn wake(&mut self, now: Duration) {
        for (key, group) in &mut self.by_key {
            if group.wake.take_if(|wake| *wake <= now).is_some() {
                self.queue.insert(key.clone());
            }
        }
    }

    /// When [`Self::wake`] has something to do.
    pub(crate) fn next_wake(&self) -> Option<Duration> {
        self.by_key.values().filter_map(|group| group.wake).min()
    }

    /// The status of a group is written with its leases up to the revision `count`.
    pub(crate) fn leases_written(&mut self, key: &Key, count: u64) {
        if let Some(group) = self.by_key.get_mut(key).filter(|group| group.written < count) {
            group.written = count;
            self.queue.insert(key.clone());
        }
    }

    /// The revision of the leases that a group's status shows.
    pub(crate) fn lease_revision(&self, key: &Key) -> u64 {
        self.by_key.get(key).map_or(0, |group| group.revision)
    }

    /// The nodes of a group with their addresses, also those that they lose, for its status.
    pub(crate) fn listed(&self, key: &Key) -> Vec<Worker> {
        let workers = self.by_key.get(key).into_iter().flat_map(|group| &group.workers);
        let listed = workers.map(|(node, leases)| Worker {
            node: node.clone(),
            addresses: leases.own.values().chain(&leases.retiring).map(|lease| lease.address).collect(),
        });
        listed.collect()
    }

    /// The nodes that are to have sessions, each with its addresses. Those whose addresses are not written yet are left out.
    pub(crate) fn workers(&self, key: &Key) -> impl Iterator<Item = (&Name, Vec<ipnet::IpNet>)> {
        let group = self.by_key.get(key);
        group.into_iter().flat_map(|group| {
            let workers = group.workers.iter().filter(|(_, leases)| leases.is_usable(group.written));
            workers.map(|(node, leases)| (node, leases.own.values().map(|lease| lease.address).collect()))
        })
    }

    /// The name of a group's interface on nodes.
    pub(crate) fn interface(&self, key: &Key) -> &str {
        self.by_key.get(key).map_or("", |group| &group.interface)
    }

    /// A node of a group without addresses, and why.
    pub(crate) fn problem(&self, key: &Key) -> Option<(&Name, &str)> {
        self.by_key.get(key)?.problem.as_ref().map(|(node, problem)| (node, problem.as_str()))
    }

    /// A node that may still have the interface of a group which is being deleted.
    pub(crate) fn remaining_node(&self, key: &Key) -> Option<&Name> {
        self.by_key.get(key)?.workers.keys().next()
    }

    /// Restores leases, before any new lease. Returns false when there is nothing to do.
    pub(crate) fn restore_next(&mut self, parts: &mut Parts<'_, '_>) -> bool {
        let Some((key, workers)) = self.restore_queue.pop_first() else { return false };
        self.restore(parts, &key, &workers);
        true
    }

    /// Does one piece of work. Returns false when there is none.
    pub(crate) fn step(&mut self, parts: &mut Parts<'_, '_>) -> bool {
        let Some(key) = self.queue.pop_first() else { return false };
        self.plan(parts, &key);
        true
    }

    /// True when there is nothing to do.
    pub(crate) fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.restore_queue.is_empty()
    }
}

impl Leases {
    /// True when it has addresses, and they are written.
    fn is_usable(&self, written: u64) -> bool {
        !self.own.is_empty() && self.revision <= written
    }
}
