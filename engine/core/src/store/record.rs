//! The state of each object, each network and each connection point.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use eno_schemas::VlanId;

use crate::fabric::topology::Ports;
use crate::spec::{Invalid, Spec};
use crate::vlan::{Seniority, VlanScope};
use crate::{Key, Name, Object, Status};

use crate::fabric::gaps::Gap;
use crate::fabric::transaction::Refusal;

/// One custom resource.
#[allow(clippy::struct_excessive_bools, reason = "facts of an object, independent of each other")]
#[derive(Debug)]
pub struct Record {
    /// `metadata.uid`.
    pub uid: Name,
    /// `metadata.generation`.
    pub generation: i64,
    /// `metadata.creationTimestamp`, Unix seconds.
    pub created: i64,
    /// It has a deletionTimestamp.
    pub deleting: bool,
    /// It carries our finalizer.
    pub finalized: bool,
    /// [`Object::forget`].
    pub forget: bool,
    /// The engine made it (the L2BridgeDomain of a service).
    pub generated: bool,
    /// [`Object::unknown_opts`].
    pub unknown_opts: Option<Name>,
    /// The spec of the manifest.
    pub spec: Result<Arc<Spec>, Invalid>,
    /// The spec that is realised: the manifest's when it is valid in all that it depends on, else the last valid one.
    pub effective: Option<Arc<Spec>>,
    /// The realised spec whose demands are counted in [`Network::points`].
    pub counted: Option<Arc<Spec>>,
    /// The wanted spec whose demands are counted in [`Network::requested`].
    pub requested: Option<Arc<Spec>>,
    /// Why the spec can't be realised.
    pub problem: Option<Invalid>,
    /// The problem may only be that a referenced object has not arrived yet.
    pub incomplete: bool,
    /// The time of [`crate::Effect::Await`] is over.
    pub await_elapsed: bool,
    /// The engine's version when it, or what it depends on, last changed for others. 0: not validated yet.
    pub version: u64,
    /// The references of the object that the index of referrers has.
    pub indexed_references: BTreeSet<Key>,
    /// The switches that may still carry VLANs of it that were removed.
    pub cleanup_devices: BTreeSet<Name>,
    /// The status as last emitted.
    pub status: Status,
    /// An effect that adds or removes the finalizer was emitted.
    pub finalizer_requested: bool,
    /// Of a transient error: when it began, and whether its deadline is over.
    pub deadline: Option<(Name, bool)>,
}

impl Record {
    pub fn new(object: Object) -> (Key, Self) {
        let status = object.status.unwrap_or_default();
        let record = Self {
            uid: object.uid,
            generation: object.generation,
            created: object.created,
            deleting: object.deleting,
            finalized: object.finalized,
            forget: object.forget,
            generated: object.generated,
            unknown_opts: object.unknown_opts,
            spec: object.spec.map(Arc::new),
            effective: status.realized.clone(),
            counted: None,
            requested: None,
            problem: None,
            incomplete: false,
            await_elapsed: status.phase.is_some(),
            version: 0,
            indexed_references: BTreeSet::new(),
            cleanup_devices: BTreeSet::new(),
            status,
            finalizer_requested: false,
            deadline: None,
        };
        (object.key, record)
    }

    pub fn seniority(&self) -> Seniority {
        (self.created, self.uid.clone())
    }

    /// The spec, unless it is invalid or the object is being deleted.
    pub fn wanted(&self) -> Option<&Arc<Spec>> {
        self.spec.as_ref().ok().filter(|_| !self.deleting)
    }

    /// The objects that the manifest's spec or the realised spec names.
    pub fn references(&self) -> BTreeSet<Key> {
        let spec = self.spec.as_ref().ok();
        spec.into_iter().chain(&self.effective).flat_map(|spec| spec.references()).collect()
    }
}

/// Something with a VLAN: an L2Service, or an L2BridgeDomain written by hand.
#[derive(Debug, Default)]
pub struct Network {
    /// Connection points where it is realised, each with the number of users.
    pub points: BTreeMap<Name, u32>,
    /// Connection points where it is requested, each with the number of users.
    pub requested: BTreeMap<Name, u32>,
    /// The plan: the VLAN, and the ports that carry it.
    pub planned: Option<(VlanId, Arc<Ports>)>,
    /// The refusal by a switch.
    pub refusal: Option<Refusal>,
    /// The VLANs that it claims.
    pub claimed: BTreeSet<VlanId>,
    /// Why its endpoints can't reach each other.
    pub gap: Option<Gap>,
}

impl Network {
    /// Counts one user more or less at a connection point. Returns true when the point appears or disappears.
    pub fn count(points: &mut BTreeMap<Name, u32>, point: &Name, more: bool) -> bool {
        let users = points.entry(point.clone()).or_default();
        *users = if more { *users + 1 } else { users.saturating_sub(1) };
        let (now, edge) = (*users, u32::from(more));
        if now == 0 {
            points.remove(point);
        }
        now == edge
    }
}

/// A connection point as the fabric sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Point {
    /// The switch ports of its nodes.
    pub ports: Ports,
    /// The scopes in which its VLAN IDs are unique.
    pub scopes: BTreeSet<VlanScope>,
    /// The end without a switch port, while others have one: a node of its pool, or a NIC of a node.
    pub missing: Vec<(Name, Option<String>)>,
    /// Pods can be attached on more than one node.
    pub has_several_nodes: bool,
}
