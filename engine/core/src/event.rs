//! The events that come into the core, and the effects that it emits.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use eno_schemas::{Command, Generation, Phase, Report, Text};

use crate::kinds::{Invalid, Spec};
use crate::{Key, Labels, Name, PodView, Status, Target};

/// A transient error counts as stalled when it has stood for this long.
pub const STALLED_AFTER: Duration = Duration::from_mins(1);

/// Something that happened in the world.
#[derive(Debug)]
pub enum Event {
    /// The events that follow happen at this time since the beginning of the leadership.
    Time(Duration),
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
        /// Its condition `Ready` holds. Nothing waits for a node that is not ready.
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
    /// A workload has no pods, and its template names these NetworkAttachmentDefinitions by namespace and name; without
    /// any, it counts no longer.
    Stopped(Workload, Vec<(Name, Name)>),
    /// A driver reported on a target.
    Report(Target, Box<Report>),
    /// NATS answered to a command, or its streams changed.
    Stream(StreamEvent),
    /// These commands were on NATS at the start.
    StoredCommands(Vec<StoredCommand>),
    /// The drivers that are alive. A driver of a single target is `<driver>/<target>`.
    Drivers(BTreeSet<Name>),
    /// The drivers that can hold a change of a switch until a transaction is decided.
    HoldCapableDrivers(BTreeSet<Name>),
    /// The live drivers that say that they can make no VRFs.
    DriversWithoutVrfs(BTreeSet<Name>),
    /// The live drivers that say that they can make no BGP sessions, and those that know no neighbours by a network.
    DriversWithoutBgp(BTreeSet<Name>, BTreeSet<Name>),
    /// The drivers that answer lookups: on which ports switches have learnt the MAC addresses of probes.
    DriversWithLookups(BTreeSet<Name>),
    /// The nodes with a live agent that says that it does not probe.
    AgentsWithoutVisits(BTreeSet<Name>),
    /// The drivers whose clocks differ from that of the engine, and how.
    SkewedDrivers(BTreeMap<Name, Name>),
    /// The delay of [`Effect::Retry`] is over; with its attempt.
    RetryDue(Key, u32),
    /// The delay of [`Effect::Await`] is over.
    AwaitElapsed(Key),
    /// The delay of [`Effect::Deadline`] is over.
    DeadlineExceeded {
        /// The object.
        key: Key,
        /// `since` of the effect.
        since: Name,
    },
    /// The API server refuses pods of a PodConfig's sample Deployment; with its message.
    SampleRefused(Key, Name),
    /// The status of an object is written with its leases up to [`Status::leased`]: nodes may get them now.
    StatusWritten(Key, u64),
}

/// An unfinished pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    /// `metadata.uid`.
    pub uid: Name,
    /// Its namespace.
    pub namespace: Name,
    /// Its name.
    pub name: Name,
    /// The NetworkAttachmentDefinitions that it uses.
    pub uses: Uses,
    /// Its labels that choose a configuration: `podconfig`, `podNetworkConfig` and `attach.eno.k8s.io/…`.
    pub labels: BTreeMap<Name, Name>,
    /// The node that it runs on.
    pub node: Option<Name>,
    /// `spec.hostNetwork`: its network namespace is the node's own.
    pub host_network: bool,
    /// The id of its first container, once that runs.
    pub container: Option<Name>,
    /// The interfaces that Multus made for it, as it says in `k8s.v1.cni.cncf.io/network-status`.
    pub attached: Vec<Attached>,
}

/// An interface that Multus made for a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attached {
    /// The NetworkAttachmentDefinition: namespace and name.
    pub nad: (Name, Name),
    /// The name in the pod; `None`: it has none, as with DPDK.
    pub interface: Option<Name>,
    /// Its addresses.
    pub addresses: Vec<IpAddr>,
}

/// The NetworkAttachmentDefinitions that a pod uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Uses {
    /// These, by namespace and name, ascending and without duplicates.
    Named(Vec<(Name, Name)>),
    /// Any that it may use: those of its own namespace, and those whose `UsableFrom` selects it. With the reason.
    Any(Name),
}

impl Uses {
    /// Those that are known by name.
    pub fn named(&self) -> &[(Name, Name)] {
        match self {
            Self::Named(names) => names,
            Self::Any(_) => &[],
        }
    }
}

impl Pod {
    /// The interfaces that it got by Multus of a NetworkAttachmentDefinition that it asks for.
    pub(crate) fn attached_by<'a>(&'a self, key: &'a Key) -> impl Iterator<Item = &'a Attached> {
        let is_of = |own: &&Attached| (&own.nad.0, &own.nad.1) == (&key.namespace, &key.name);
        self.asked_for().filter(is_of)
    }

    /// The interfaces that it got by Multus and asks for.
    pub(crate) fn asked_for(&self) -> impl Iterator<Item = &Attached> {
        self.attached.iter().filter(|own| match &self.uses {
            Uses::Named(names) => names.contains(&own.nad),
            Uses::Any(_) => true,
        })
    }
}

impl Default for Uses {
    fn default() -> Self {
        Self::Named(Vec::new())
    }
}

/// An object that makes pods from a template.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Workload {
    /// Its kind, such as `Deployment`.
    pub kind: &'static str,
    /// Its namespace.
    pub namespace: Name,
    /// Its name.
    pub name: Name,
}

/// A command that NATS held before this engine led.
#[derive(Debug)]
pub struct StoredCommand {
    /// Its target.
    pub target: Target,
    /// The driver in its subject.
    pub driver: Name,
    /// Its sequence in the stream.
    pub sequence: u64,
    /// The command; `None`: it is unreadable.
    pub command: Option<Command>,
}

/// What NATS answers to commands, and what its streams hold of them.
#[derive(Debug)]
pub enum StreamEvent {
    /// NATS stored a command at this sequence.
    Published(Target, Generation, u64),
    /// NATS did not store a command; with the last sequence of the subject, if known.
    NotPublished(Target, Option<u64>),
    /// The messages about a target on the subjects of this driver are purged, or that failed.
    TargetRemoved(Target, Name),
    /// NATS stored a message on the command subject of a target and driver at this sequence. It may be ours.
    CommandStored(Target, Name, u64),
    /// Sequences of all commands that NATS stores, read after a reconnect.
    StoredSequences(BTreeMap<Target, u64>),
    /// NATS lost its streams, which were recreated empty.
    StreamsLost,
    /// The last report of this driver on the target is unreadable.
    ReportUnreadable(Target, Name),
    /// A process of this driver can't read the target's command as it was published.
    CommandUnread(Target, Name),
}

/// A request for new probes of an object's VLANs: its annotation `eno.k8s.io/verify`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifyRequest {
    /// Identifies the request.
    pub nonce: Name,
    /// Packets of the network's MTU are sent too.
    pub mtu: bool,
    /// Another object of the kind, whose VLANs must not be reached.
    pub isolation_from: Option<Key>,
}

impl VerifyRequest {
    /// A request for small packets on the object's own VLANs.
    pub fn new(nonce: Name) -> Self {
        Self { nonce, mtu: false, isolation_from: None }
    }
}

/// A custom resource, as far as the core needs it.
#[allow(clippy::struct_excessive_bools, reason = "facts of an object, independent of each other")]
#[derive(Clone, Debug)]
pub struct Object {
    /// Kind, namespace and name.
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
    /// The annotation `eno.k8s.io/verify`, which asks for new probes of its VLANs.
    pub verify: Option<VerifyRequest>,
    /// It was made by the engine (an L2BridgeDomain of a service).
    pub generated: bool,
    /// The labels of an L2Service, which the `Services` of VRFs select; of other kinds none.
    pub labels: Labels,
    /// Keys in `Opts` of a ConnectionPoint that have no effect, as text.
    pub unknown_opts: Option<Name>,
    /// Its spec, parsed.
    pub spec: Result<Spec, Invalid>,
    /// Its status. It is read only when the object is first seen, since nothing else writes it.
    pub status: Option<Status>,
}

/// Something that the runtime has to do. Effects of one object are carried out in order.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Put our finalizer on the object.
    AddFinalizer(Key),
    /// The phase changed: write the outbox, then the status.
    Transition {
        /// The object.
        key: Key,
        /// The phase before.
        previous: Option<Phase>,
        /// The status now.
        status: Box<Status>,
    },
    /// The status changed but not its phase: write it.
    Status {
        /// The object.
        key: Key,
        /// The status now.
        status: Box<Status>,
    },
    /// The object names something that does not exist: send [`Event::AwaitElapsed`] in a second. Objects that are
    /// applied together arrive in any order, so until then the object is pending and not in error.
    Await(Key),
    /// The object is in a transient error: send [`Event::DeadlineExceeded`] when [`STALLED_AFTER`] has passed since
    /// it began.
    Deadline {
        /// The object.
        key: Key,
        /// When the error began, RFC 3339.
        since: Name,
    },
    /// A switch refused a network, which is withheld: send [`Event::RetryDue`] after a backoff that grows with the
    /// attempts.
    Retry {
        /// The network.
        network: Key,
        /// The number of attempts, from 1.
        attempt: u32,
    },
    /// Remove our finalizer: everything of the object is gone.
    RemoveFinalizer(Key),
    /// Make, change or (`None`) delete the L2BridgeDomain of a service.
    BridgeDomain {
        /// The service's name, which is the bridge domain's.
        service: Name,
        /// Its content.
        spec: Option<crate::kinds::BridgeDomainSpec>,
    },
    /// Write, or (`None`) delete, the PodNetwork of a pod, which is called as the pod and owned by it.
    PodNetwork {
        /// The pod's namespace.
        namespace: Name,
        /// The pod's name.
        name: Name,
        /// The pod's uid.
        uid: Name,
        /// Its content.
        view: Option<Box<PodView>>,
    },
    /// Publish a Kubernetes Event.
    Notice {
        /// The object that it is about.
        about: About,
        /// What happened.
        kind: NoticeKind,
        /// The details, for people; at least one.
        messages: Vec<Text>,
    },
    /// Set our labels and extended resources on a Node object; all others of ours are removed.
    LabelNode {
        /// The node.
        node: Name,
        /// The ConnectionPoints that are ready on the node: each is a label.
        points: BTreeSet<Name>,
        /// The Open vSwitch bridges on the node: each is an extended resource.
        bridges: BTreeSet<Name>,
    },
    /// Create the sample Deployment of a PodConfig, owned by it.
    SampleDeployment {
        /// The PodConfig.
        owner: Key,
        /// The Deployment's name.
        name: Name,
    },
}

/// The object that a Kubernetes Event is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum About {
    /// A custom resource.
    Object(Key),
    /// A node.
    Node(Name),
    /// A pod.
    Pod {
        /// Its namespace.
        namespace: Name,
        /// Its name.
        name: Name,
        /// Its uid.
        uid: Name,
    },
}

/// What a Kubernetes Event tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoticeKind {
    /// A pod counts as a user of each NetworkAttachmentDefinition that it may use, from now on.
    NetworksUnclear,
    /// Configuration of ours was changed on a switch.
    Drift,
    /// VLANs were removed from the list of another owner on a switch.
    VlanTakenOff,
    /// An agent repaired something on its node.
    Repaired,
    /// Packets of an object are lost, or go to two hosts with one address.
    PacketsLost,
    /// They pass again.
    PacketsPass,
}

/// The configuration of the core.
#[allow(clippy::struct_excessive_bools, reason = "independent of each other")]
#[derive(Clone, Debug)]
pub struct Config {
    /// Identifies the cluster on devices: 1 to 8 characters of `[a-z0-9]`.
    pub cluster: String,
    /// The cluster's uid, which tells it from another cluster with the same identifier. `None`: unknown.
    pub cluster_uid: Option<String>,
    /// Write an L2BridgeDomain for each L2Service in use.
    pub bridge_domains: bool,
    /// The nodes have agents: they are commanded, and objects wait for them.
    pub nodes: bool,
    /// The agents probe whether packets pass, unless a ConnectionPoint says otherwise.
    pub verify: bool,
    /// The engine only answers questions about a cluster that another one leads. What that one withholds, it withholds
    /// too, instead of trying it again.
    pub observes: bool,
}
