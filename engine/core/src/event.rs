//! What comes into the core and what goes out of it.

use std::collections::BTreeSet;
use std::time::Duration;

use eno_schemas::{Desired, Generation, Phase, Report};

use crate::spec::{Invalid, Spec};
use crate::{Key, Labels, Name, Pod, PodView, Status, Target};

/// An error that may pass counts as lasting when it has stood for so long.
pub const STALLED_AFTER: Duration = Duration::from_mins(1);

/// Something that happened in the world.
#[derive(Debug)]
pub enum Event {
    /// An object is there, new or changed.
    Object(Box<Object>),
    /// An object is gone.
    ObjectGone(Key),
    /// A node is there.
    Node {
        /// Its name.
        name: Name,
        /// Its labels, without those that the engine puts there itself.
        labels: Labels,
        /// Its condition `Ready` holds: who is not ready is not waited for.
        ready: bool,
    },
    /// A node is gone.
    NodeGone(Name),
    /// A namespace is there, with its labels.
    Namespace(Name, Labels),
    /// A namespace is gone.
    NamespaceGone(Name),
    /// An unfinished pod is there, new or changed.
    Pod(Box<Pod>),
    /// A pod is finished or gone.
    PodGone(Name),
    /// A driver reported on a target.
    Report(Target, Box<Report>),
    /// A command for this target was found on NATS at the start.
    StoredCommand(Target, Box<Desired>),
    /// This generation is commanded of the target, or is about to be.
    CommandIssued(Target, Generation),
    /// The drivers that are alive; one that works on one target only, as `<driver>/<target>`.
    Drivers(BTreeSet<Name>),
    /// The drivers that can hold a change of a switch until a transaction is decided.
    DriversThatHold(BTreeSet<Name>),
    /// A switch had not answered when the deadline of its transaction came, or its driver says nothing and it is to be
    /// told more all the same: it takes part in no transaction until it has done something by itself.
    MissedDeadline(Name),
    /// A switch holds its change of a transaction that is open, and left out something that was to change
    /// ([`crate::Engine::rejects_planned_change`]).
    ChangeRefused(Name, Box<Report>),
    /// The time that [`Effect::Retry`] asked for is over; with its attempt.
    RetryDue(Key, u32),
    /// The time that [`Effect::Await`] asked for is over.
    AwaitElapsed(Key),
    /// The time that [`Effect::Deadline`] asked for is over.
    DeadlineExceeded {
        /// Whose.
        key: Key,
        /// As the effect has it.
        since: Name,
    },
    /// The pods of a PodConfig's sample Deployment are refused, in these words.
    SampleRefused(Key, Name),
    /// The status of the object is written with all leases up to [`Status::leased`]: now they may be acted on.
    StatusWritten(Key, u64),
}

/// A custom resource, as far as the core needs it.
#[allow(clippy::struct_excessive_bools, reason = "facts of an object, independent of each other")]
#[derive(Clone, Debug)]
pub struct Object {
    /// What it is called.
    pub key: Key,
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
    /// It carries the annotation `eno.k8s.io/forget: "true"`.
    pub forget: bool,
    /// It was made by the engine (an L2BridgeDomain of a service).
    pub generated: bool,
    /// What has no effect in `Opts` of a ConnectionPoint, in words.
    pub unknown_opts: Option<Name>,
    /// Its spec, parsed.
    pub spec: Result<Spec, Invalid>,
    /// Its status: looked at only when the object is first seen, since nobody else writes it.
    pub status: Option<Status>,
}

/// Something to be done. Effects of one object are carried out in their order.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Put our finalizer on the object.
    AddFinalizer(Key),
    /// The phase changed: write the outbox, then the status.
    Transition {
        /// Whose.
        key: Key,
        /// The phase before.
        previous: Option<Phase>,
        /// The status now.
        status: Box<Status>,
    },
    /// The status changed but not its phase: write it.
    Status {
        /// Whose.
        key: Key,
        /// The status now.
        status: Box<Status>,
    },
    /// The object names something that is not there: send [`Event::AwaitElapsed`] in a second. Objects that are applied
    /// together arrive in any order, so until then it is pending and not in error.
    Await(Key),
    /// The object is in an error that may pass: send [`Event::DeadlineExceeded`] when [`STALLED_AFTER`] has passed since
    /// that began.
    Deadline {
        /// Whose.
        key: Key,
        /// When the error began, RFC 3339.
        since: Name,
    },
    /// A switch refused the network, which is withheld now: send [`Event::RetryDue`] after a while, which is to be the
    /// longer the more attempts there were.
    Retry {
        /// The network.
        network: Key,
        /// Counts its attempts, from 1.
        attempt: u32,
    },
    /// All is clean: take our finalizer off the object.
    RemoveFinalizer(Key),
    /// What is wanted of the target changed: publish [`crate::Engine::desired`] when its turn has come.
    Publish(Target),
    /// The target is gone and its emptiness confirmed: purge its subjects.
    Forget(Target),
    /// Make, change or (`None`) delete the L2BridgeDomain of a service.
    BridgeDomain {
        /// The service's name, which is the bridge domain's.
        service: Name,
        /// What it says.
        spec: Option<crate::spec::BridgeDomainSpec>,
    },
    /// Write, or (`None`) delete, the PodNetwork of a pod, which is called as the pod and owned by it.
    PodNetwork {
        /// The pod's namespace.
        namespace: Name,
        /// The pod's name.
        name: Name,
        /// The pod's uid.
        uid: Name,
        /// What it says.
        view: Option<Box<PodView>>,
    },
    /// Say on the Node object what is there: nothing else of ours stays on it.
    LabelNode {
        /// The node.
        node: Name,
        /// The ConnectionPoints whose path is there: each a label.
        points: BTreeSet<Name>,
        /// The Open vSwitch bridges that are there: each an extended resource.
        bridges: BTreeSet<Name>,
    },
    /// Make the sample Deployment of a PodConfig; it goes with its owner.
    SampleDeployment {
        /// The PodConfig.
        owner: Key,
        /// The Deployment's name.
        name: Name,
    },
}

/// What the core needs to know of its configuration.
#[derive(Clone, Debug)]
pub struct Config {
    /// Identifies the cluster on devices: 1 to 8 characters of `[a-z0-9]`.
    pub cluster: String,
    /// The cluster's uid, which tells it from another one with the same identifier; `None`: not known.
    pub cluster_uid: Option<String>,
    /// Make an L2BridgeDomain per L2Service in use.
    pub bridge_domains: bool,
    /// The nodes have agents: they are commanded and waited for.
    pub nodes: bool,
}
