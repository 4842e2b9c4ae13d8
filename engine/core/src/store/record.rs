//! The state of each object.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::kinds::{Invalid, Spec};
use crate::{Key, Labels, Name, Object, Status, VerifyRequest};

/// The precedence of objects that hold nothing: creation time in Unix seconds, then uid. The lower one wins.
pub type Seniority = (i64, Name);

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
    /// [`Object::verify`].
    pub verify: Option<VerifyRequest>,
    /// The engine made it (the L2BridgeDomain of a service).
    pub generated: bool,
    /// [`Object::labels`].
    pub labels: Labels,
    /// [`Object::unknown_opts`].
    pub unknown_opts: Option<Name>,
    /// The spec of the manifest.
    pub spec: Result<Arc<Spec>, Invalid>,
    /// The spec that is realised: the manifest's when it is valid in all that it depends on, else the last valid one.
    pub effective: Option<Arc<Spec>>,
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
    /// The switch that its last evaluation found first to be not as wanted, if there is one.
    pub awaited: Option<Name>,
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
            verify: object.verify,
            generated: object.generated,
            labels: object.labels,
            unknown_opts: object.unknown_opts,
            spec: object.spec.map(Arc::new),
            effective: status.realized.clone(),
            problem: None,
            incomplete: false,
            await_elapsed: status.phase.is_some(),
            version: 0,
            indexed_references: BTreeSet::new(),
            awaited: None,
            status,
            finalizer_requested: false,
            deadline: None,
        };
        (object.key, record)
    }

    /// True when its request for new probes has no answer yet.
    pub fn is_verifying(&self) -> bool {
        let answered = self.status.verification.as_ref().map(|verification| &verification.nonce);
        self.verify.as_ref().is_some_and(|request| Some(&request.nonce) != answered)
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
