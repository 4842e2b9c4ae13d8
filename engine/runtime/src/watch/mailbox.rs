//! The mailbox of the task that owns the core.

use std::collections::BTreeSet;
use std::sync::Arc;

use eno_core::{Event, Key, Kind, Name, Object, StreamEvent, Target};
use eno_schemas::Report;
use tokio::sync::mpsc;

use crate::commands::parts::PartsEvent;
use crate::watch::objects::StoredObject;
use crate::watch::templates::WorkloadKind;

/// A source whose initial state has to be complete before the core decides anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Source {
    /// The watch of one kind.
    Kind(Kind),
    /// The watch of the nodes.
    Nodes,
    /// The watch of the namespaces.
    Namespaces,
    /// The watch of the pods.
    Pods,
    /// The watch of the workloads of one kind. Without it the engine works all the same.
    Workloads(WorkloadKind),
    /// The reports on NATS.
    Reports,
    /// The drivers' presence.
    Drivers,
}

impl Source {
    /// All of them.
    pub fn all() -> impl Iterator<Item = Self> {
        let others = [Self::Nodes, Self::Namespaces, Self::Pods, Self::Reports, Self::Drivers];
        let workloads = WorkloadKind::ALL.into_iter().map(Self::Workloads);
        Kind::ALL.into_iter().map(Self::Kind).chain(others).chain(workloads)
    }

    /// For logs and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Kind(kind) => kind.as_str(),
            Self::Nodes => "Node",
            Self::Namespaces => "Namespace",
            Self::Pods => "Pod",
            Self::Workloads(kind) => kind.as_str(),
            Self::Reports => "reports",
            Self::Drivers => "drivers",
        }
    }
}

/// One message in the mailbox.
#[derive(Debug)]
pub enum Input {
    /// A custom resource was created or changed.
    Object(Box<Object>, Arc<StoredObject>),
    /// A custom resource was deleted.
    ObjectGone(Key),
    /// Any other event for the core.
    Event(Event),
    /// A report of a driver on a target.
    Report(Target, Box<Report>),
    /// A reference of this object exists on the API server, but no watch has shown it yet.
    ReferenceExists(Key),
    /// This source has delivered its initial state.
    Synced(Source),
    /// The API server does not know this kind, whose objects are unknown.
    Absent(Kind),
    /// NATS lost the outbox, which was recreated empty.
    OutboxLost,
    /// A stream has a message on a subject that names no target.
    Nameless(&'static str, String),
    /// Something happened to the parts of commands.
    Parts(PartsEvent),
    /// The drivers all of whose processes read commands in parts, as far as one lives or lived.
    DriversOfParts(BTreeSet<Name>),
}

impl From<PartsEvent> for Input {
    fn from(event: PartsEvent) -> Self {
        Self::Parts(event)
    }
}

impl From<StreamEvent> for Input {
    fn from(event: StreamEvent) -> Self {
        Self::Event(Event::Stream(event))
    }
}

/// Sender to the task that owns the core. Sending waits while the mailbox is full.
pub type Mailbox = mpsc::Sender<Input>;

/// Sends a message; false: the receiver has ended.
pub async fn post(mailbox: &Mailbox, input: impl Into<Input>) -> bool {
    mailbox.send(input.into()).await.is_ok()
}
