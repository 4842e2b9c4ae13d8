//! Commands: the desired state of targets, sent by the engine to drivers.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use sha2::{Digest, Sha256};

use crate::{FabricDesired, NadDesired, NodeDesired, PayloadKind, SpeakerDesired, Tree};

/// The complete desired state of one target, kept as the last message of its subject in `ENO_COMMANDS`.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Command {
    /// The driver that the command is for.
    pub driver: String,
    /// The target: the name of a FabricDevice, `<namespace>/<name>` of a NAD, or the name of a Node.
    pub target: String,
    /// The generation of this command.
    pub generation: Generation,
    /// The desired state.
    pub desired: Desired,
    /// Set when several targets change together or not at all.
    pub transaction: Option<Transaction>,
}

impl Command {
    /// The command of this term and sequence, outside of a transaction.
    pub fn new(
        driver: impl Into<String>,
        target: impl Into<String>,
        (term, sequence): (u64, u64),
        desired: Desired,
    ) -> Self {
        let generation = Generation { term, sequence, hash: desired.hash() };
        Self { driver: driver.into(), target: target.into(), generation, desired, transaction: None }
    }
}

/// Orders the commands of a target and identifies their content. A driver never acts on a generation that is
/// older than the newest it has seen.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Generation {
    /// Number of leadership terms of the engine.
    pub term: u64,
    /// Number of the command within its term.
    pub sequence: u64,
    /// [`Desired::hash`].
    pub hash: String,
}

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}-{}", self.term, self.sequence, self.hash.get(..8).unwrap_or(&self.hash))
    }
}

/// The desired state, by the kind of target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Desired {
    /// A switch.
    Fabric(FabricDesired),
    /// A NetworkAttachmentDefinition.
    Nad(NadDesired),
    /// A node.
    Node(NodeDesired),
    /// What BGP speakers know of a BGPSessionGroup.
    Speaker(SpeakerDesired),
}

impl Desired {
    /// Of a switch the hash of the root part of its [`Tree`]. Otherwise SHA-256 over the JSON form, the first 16 bytes
    /// in hexadecimal. Equal states have equal hashes in every process of a version.
    pub fn hash(&self) -> String {
        if let Self::Fabric(desired) = self {
            return Tree::of(desired).root().to_string();
        }
        let json = serde_json::to_vec(self).unwrap_or_default();
        Sha256::digest(json)
            .iter()
            .take(16)
            .fold(String::with_capacity(32), |hash, byte| hash + &format!("{byte:02x}"))
    }

    /// The kind of target.
    pub fn kind(&self) -> PayloadKind {
        match self {
            Self::Fabric(_) => PayloadKind::Fabric,
            Self::Nad(_) => PayloadKind::Nad,
            Self::Node(_) => PayloadKind::Node,
            Self::Speaker(_) => PayloadKind::Speaker,
        }
    }
}

/// A change of several targets that is confirmed on all or rolled back on all.
///
/// A command that opens one (no decision yet) has its driver make the change so that it can still be rolled
/// back, verify it, report [`Outcome::Held`](crate::Outcome::Held) and wait. The decision comes as the next
/// command of the target: the same desired state, the same transaction, with `decision`. Any other newer
/// command, and the deadline, mean [`Decision::Abort`]. A target whose device can't hold a change takes no
/// part: it is commanded without a transaction, once the others are confirmed.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Transaction {
    /// The transaction's id.
    pub id: String,
    /// All of its targets.
    pub participants: Vec<String>,
    /// RFC 3339, by the engine's clock: each participant rolls back by itself when no decision has come by then.
    /// Drivers use it only if `decideWithinMs` is absent, as in commands of earlier engines.
    pub deadline: String,
    /// Milliseconds until the deadline, from the time at which NATS stored the command. So no clock of the engine
    /// matters. A driver subtracts the age of the message, by the clock of NATS. An engine allows 30 s.
    #[schemars(range(max = Self::MAX_DECIDE_WITHIN_MS))]
    pub decide_within_ms: Option<u64>,
    /// The decision; absent: none yet.
    pub decision: Option<Decision>,
}

impl Transaction {
    /// Maximum of [`Self::decide_within_ms`]: a driver holds a change for no longer.
    pub const MAX_DECIDE_WITHIN_MS: u64 = 300_000;
}

/// How a transaction ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Decision {
    /// Every participant has verified: the held change is confirmed. A driver that holds nothing, since it
    /// was restarted in between, makes the change.
    Confirm,
    /// The held change is rolled back, and nothing is done until the next command.
    Abort,
}
