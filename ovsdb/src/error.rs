//! What can go wrong.

use std::time::Duration;

use crate::outcome::{Failed, Refusal};
use crate::value::Malformed;

/// Why there is no connection. Another one may work.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConnectionError {
    /// It could not be made.
    #[error("can't connect to {endpoint}: {reason}")]
    Connect {
        /// As in `unix:/run/openvswitch/db.sock`.
        endpoint: String,
        /// What the system said.
        reason: String,
    },
    /// The server or the network ended it.
    #[error("the connection to {endpoint} ended: {reason}")]
    Ended {
        /// As in `tcp:[::1]:6640`.
        endpoint: String,
        /// What the system said.
        reason: String,
    },
    /// The server was silent, also to `echo`.
    #[error("{endpoint} is silent for {} s", limit.as_secs_f32())]
    Stalled {
        /// As in `tcp:[::1]:6640`.
        endpoint: String,
        /// How long it may be silent.
        limit: Duration,
    },
    /// What came is not OVSDB.
    #[error("{endpoint} breaks the protocol: {reason}")]
    Protocol {
        /// As in `tcp:[::1]:6640`.
        endpoint: String,
        /// What was wrong.
        reason: String,
    },
    /// The [`Client`](crate::Client) was dropped.
    #[error("the client of {endpoint} was closed")]
    Closed {
        /// As in `tcp:[::1]:6640`.
        endpoint: String,
    },
}

/// Why a request gave no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// It was not sent: nothing happened.
    #[error("{operation} was not sent: {cause}")]
    NotSent {
        /// The method, and the database where there is one.
        operation: String,
        /// What keeps the connection from being there.
        cause: ConnectionError,
    },
    /// The connection was lost before the reply came.
    #[error("unknown whether {operation} was done: {cause}")]
    Unknown {
        /// The method, and the database where there is one.
        operation: String,
        /// What became of the connection.
        cause: ConnectionError,
    },
    /// The reply didn't come in time.
    #[error("unknown whether {operation} was done: no reply from {endpoint} within {} s", limit.as_secs_f32())]
    TimedOut {
        /// The method, and the database where there is one.
        operation: String,
        /// As in `tcp:[::1]:6640`.
        endpoint: String,
        /// How long it was waited for.
        limit: Duration,
    },
    /// The server refused the request as a whole.
    #[error("{operation} was refused: {refusal}")]
    Refused {
        /// The method, and the database where there is one.
        operation: String,
        /// Why.
        refusal: Refusal,
    },
    /// One operation of a transaction failed, and with it all.
    #[error("{operation} was refused: {failed}")]
    Failed {
        /// The method and the database.
        operation: String,
        /// Which one, and why.
        failed: Failed,
    },
    /// The reply has another shape than RFC 7047 says. A transaction was done.
    #[error("the reply to {operation} is wrong: {malformed}")]
    Malformed {
        /// The method, and the database where there is one.
        operation: String,
        /// What was wrong.
        malformed: Malformed,
    },
    /// This client has or asked for a lock of this name already, which the protocol doesn't allow twice.
    #[error("lock {name:?} is in use by this client")]
    LockInUse {
        /// Of the lock.
        name: String,
    },
    /// A lock's name is an `<id>`: letters, digits and underscores, no digit first.
    #[error("{name:?} can't be the name of a lock")]
    LockName {
        /// As it was given.
        name: String,
    },
}

impl Error {
    /// May the same come through later, or after planning it anew on what is there by then? When
    /// [`may_have_happened`](Self::may_have_happened), look at what is there before.
    pub fn retry_helps(&self) -> bool {
        match self {
            Self::NotSent { .. } | Self::Unknown { .. } | Self::TimedOut { .. } => true,
            Self::Refused { refusal, .. } => refusal.cause.retry_helps(),
            Self::Failed { failed, .. } => failed.retry_helps(),
            Self::Malformed { .. } | Self::LockInUse { .. } | Self::LockName { .. } => false,
        }
    }

    /// May the server have done it all the same?
    pub fn may_have_happened(&self) -> bool {
        match self {
            Self::Unknown { .. } | Self::TimedOut { .. } | Self::Malformed { .. } => true,
            Self::NotSent { .. }
            | Self::Refused { .. }
            | Self::Failed { .. }
            | Self::LockInUse { .. }
            | Self::LockName { .. } => false,
        }
    }
}
