//! The state of each object.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::nad::pools::AddressPool;
use crate::spec::{AttachmentSpec, Invalid, Spec};
use crate::vlan::Seniority;
use crate::{Key, Name, Object, Status};

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
    /// The realised spec whose demands are counted in [`crate::fabric::network::Network::points`].
    pub counted: Option<Arc<Spec>>,
    /// The wanted spec whose demands are counted in [`crate::fabric::network::Network::requested`].
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
    /// The pool of addresses of an attachment.
    pub pool: AddressPool,
    /// The L2Service whose pool that is.
    pub pool_service: Option<Name>,
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
            pool: former_pool(&status),
            pool_service: former_attachment(&status).and_then(|spec| spec.services.first().cloned()),
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

/// The pool that an attachment had under a former leader.
fn former_pool(status: &Status) -> AddressPool {
    match (&status.address_pool, former_attachment(status)) {
        (Some(service), _) => AddressPool::Named(service.clone()),
        (None, Some(_)) => AddressPool::Default,
        (None, None) => AddressPool::None,
    }
}

fn former_attachment(status: &Status) -> Option<&AttachmentSpec> {
    status.realized.as_deref()?.attachment()
}
