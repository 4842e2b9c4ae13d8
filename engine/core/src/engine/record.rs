//! What is remembered of each object, each network and each connection point.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use eno_schemas::VlanId;

use crate::hosts::Demand;
use crate::ids::{Seniority, VlanScope};
use crate::spec::{Invalid, Spec};
use crate::topology::Ports;
use crate::{Key, Name, Object, Status};

use super::fabric_transaction::Refusal;
use super::gaps::Gap;
use super::hosts::HostCleanup;

/// One custom resource.
#[allow(clippy::struct_excessive_bools, reason = "facts of an object, independent of each other")]
#[derive(Debug)]
pub struct Record {
    pub uid: Name,
    pub generation: i64,
    pub created: i64,
    pub deleting: bool,
    pub finalized: bool,
    pub forget: bool,
    pub generated: bool,
    /// [`Object::unknown_opts`].
    pub unknown_opts: Option<Name>,
    /// What the manifest says.
    pub spec: Result<Arc<Spec>, Invalid>,
    /// What is realised: the spec when it is valid in all that it depends on, else the last that was.
    pub effective: Option<Arc<Spec>>,
    /// What the networks of the attachment have been told of it: `effective`, once that is so.
    pub counted: Option<Arc<Spec>>,
    /// What is asked of the networks, likewise.
    pub requested: Option<Arc<Spec>>,
    /// What stands in the way of the spec.
    pub problem: Option<Invalid>,
    /// The problem may be only that something has not arrived yet.
    pub incomplete: bool,
    /// It was waited for what has not arrived.
    pub await_elapsed: bool,
    /// When it, or what it depends on, last changed in a way that others see; 0: not looked at yet.
    pub version: u64,
    /// The objects that it names, as the index of referrers has them.
    pub indexed_references: BTreeSet<Key>,
    /// The devices that it gave something back on.
    pub cleanup_devices: BTreeSet<Name>,
    /// What it wants of the hosts of nodes, as they were told.
    pub host_demands: Vec<Demand>,
    /// The bridges of pods that it names, as the index of those has them.
    pub bridges: BTreeSet<String>,
    /// The sample Deployment that was asked for.
    pub requested_sample: Option<Name>,
    /// Why its pods are refused.
    pub sample_refused: Option<Name>,
    /// What it gave up on nodes.
    pub host_cleanups: Vec<HostCleanup>,
    /// As last emitted.
    pub status: Status,
    /// The finalizer was asked for, on or off.
    pub finalizer_requested: bool,
    /// Of an error that may pass: since when it stands, and whether its deadline is over.
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
            host_demands: Vec::new(),
            bridges: BTreeSet::new(),
            requested_sample: None,
            sample_refused: None,
            host_cleanups: Vec::new(),
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

    /// The objects that it names, by its spec or by what is still realised.
    pub fn references(&self) -> BTreeSet<Key> {
        let spec = self.spec.as_ref().ok();
        spec.into_iter().chain(&self.effective).flat_map(|spec| spec.references()).collect()
    }
}

/// Something with a VLAN: an L2Service, or an L2BridgeDomain written by hand.
#[derive(Debug, Default)]
pub struct Network {
    /// Connection points where it is realised, with the number of objects that want it there.
    pub points: BTreeMap<Name, u32>,
    /// Connection points where it is asked for, likewise.
    pub requested: BTreeMap<Name, u32>,
    /// What is planned: the VLAN and the ports that carry it.
    pub planned: Option<(VlanId, Arc<Ports>)>,
    /// What a switch refused of it.
    pub refusal: Option<Refusal>,
    /// The VLANs that it claims.
    pub claimed: BTreeSet<VlanId>,
    /// Why its ends can't reach each other.
    pub gap: Option<Gap>,
}

impl Network {
    /// Counts `delta` users more or less at a connection point; true when it appears or disappears there.
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
    /// Where VLAN IDs must be unique for it.
    pub scopes: BTreeSet<VlanScope>,
    /// What has no switch port though others have one: nodes of its pool, and NICs of nodes.
    pub missing: Vec<(Name, Option<String>)>,
    /// Pods can be attached on more than one node.
    pub has_several_nodes: bool,
}
