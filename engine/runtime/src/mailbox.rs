//! What the one task that owns the core is told.

use std::collections::BTreeMap;
use std::sync::Arc;

use eno_core::{Event, Key, Name, Object, Target};
use eno_schemas::{Generation, Report};
use tokio::sync::mpsc;

use crate::objects::StoredObject;

/// Who has to tell all that there is before anything is decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Source {
    /// The watch of one kind.
    Kind(eno_core::Kind),
    /// The watch of the nodes.
    Nodes,
    /// The watch of the namespaces.
    Namespaces,
    /// The watch of the pods.
    Pods,
    /// The reports on NATS.
    Reports,
    /// The drivers' presence.
    Drivers,
}

impl Source {
    /// All of them.
    pub fn all() -> impl Iterator<Item = Self> {
        let others = [Self::Nodes, Self::Namespaces, Self::Pods, Self::Reports, Self::Drivers];
        eno_core::Kind::ALL.into_iter().map(Self::Kind).chain(others)
    }

    /// For logs and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Kind(kind) => kind.as_str(),
            Self::Nodes => "Node",
            Self::Namespaces => "Namespace",
            Self::Pods => "Pod",
            Self::Reports => "reports",
            Self::Drivers => "drivers",
        }
    }
}

/// One message.
#[derive(Debug)]
pub enum Input {
    /// A custom resource is there, new or changed.
    Object(Box<Object>, Arc<StoredObject>),
    /// A custom resource is gone.
    ObjectGone(Key),
    /// Anything else about the world.
    Event(Event),
    /// A driver reported.
    Report(Target, Name, Box<Report>),
    /// The last report of this driver on the target can't be read.
    ReportUnreadable(Target, Name),
    /// What this object names is on the API server, and no watch has told of it yet.
    ReferenceExists(Key),
    /// This source has told all that there is.
    Synced(Source),
    /// A command was taken by NATS, at this sequence.
    Published(Target, Generation, u64),
    /// A command was not taken; the sequence that its subject has, where that is known.
    NotPublished(Target, Option<u64>),
    /// The words of a target that is gone are off NATS, or that failed.
    TargetRemoved(Target),
    /// The commands that NATS holds, each with its sequence, read after the connection was made anew.
    StoredSequences(BTreeMap<Target, u64>),
    /// NATS lost streams and has them again, empty.
    StreamsLost {
        /// The outbox is among them.
        outbox: bool,
    },
}

/// The way to the task that owns the core. Whoever fills it waits when it is full.
pub type Mailbox = mpsc::Sender<Input>;

/// Puts a message in; false: nobody reads any more.
pub async fn post(mailbox: &Mailbox, input: Input) -> bool {
    mailbox.send(input).await.is_ok()
}
