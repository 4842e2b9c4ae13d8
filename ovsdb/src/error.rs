//! Errors of connections and requests.

use std::time::Duration;

use crate::outcome::{Failed, Refusal};
use crate::value::Malformed;

/// Why there is no connection. A new connection may work.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConnectionError {
    /// The connection could not be made.
    #[error("can't connect to {endpoint}: {reason}")]
    Connect {
        /// As in `unix:/run/openvswitch/db.sock`.
        endpoint: String,
        /// The system's error.
        reason: String,
    },
    /// The server or the network closed the connection.
    #[error("the connection to {endpoint} ended: {reason}")]
    Ended {
        /// As in `tcp:[::1]:6640`.
        endpoint: String,
        /// The system's error.
        reason: String,
    },
    /// The server was silent and did not answer `echo`.
    #[error("{endpoint} is silent for {} s", limit.as_secs_f32())]
    Stalled {
        /// As in `tcp:[::1]:6640`.
        endpoint: String,
        /// The limit of the silence.
        limit: Duration,
    },
    /// The server sent something other than OVSDB.
    #[error("{endpoint} breaks the protocol: {reason}")]
    Protocol {
        /// As in `tcp:[::1]:6640`.
        endpoint: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The server sent more than is read or kept, so the client closed the connection.
    #[error("{endpoint} sends too much: {reason}")]
    TooLarge {
        /// As in `tcp:[::1]:6640`.
        endpoint: String,
        /// What is too large, and the limit.
        reason: String,
    },
    /// The [`Client`](crate::Client) was dropped.
    #[error("the client of {endpoint} was closed")]
    Closed {
        /// As in `tcp:[::1]:6640`.
        endpoint: String,
    },
}

/// Why a request has no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The request was not sent, so nothing happened.
    #[error("{operation} was not sent: {cause}")]
    NotSent {
        /// The method, and the database where there is one.
        operation: String,
        /// Why there is no connection.
        cause: ConnectionError,
    },
    /// The connection was lost before the reply.
    #[error("unknown whether {operation} was done: {cause}")]
    Unknown {
        /// The method, and the database where there is one.
        operation: String,
        /// How the connection ended.
        cause: ConnectionError,
    },
    /// The reply did not come in time.
    #[error("unknown whether {operation} was done: no reply from {endpoint} within {} s", limit.as_secs_f32())]
    TimedOut {
        /// The method, and the database where there is one.
        operation: String,
        /// As in `tcp:[::1]:6640`.
        endpoint: String,
        /// The time limit.
        limit: Duration,
    },
    /// The server refused the whole request.
    #[error("{operation} was refused: {refusal}")]
    Refused {
        /// The method, and the database where there is one.
        operation: String,
        /// The server's error.
        refusal: Refusal,
    },
    /// An operation of the transaction failed, and with it the whole transaction.
    #[error("{operation} was refused: {failed}")]
    Failed {
        /// The method and the database.
        operation: String,
        /// The operation and the error.
        failed: Failed,
    },
    /// The reply breaks RFC 7047. A transaction was committed.
    #[error("the reply to {operation} is wrong: {malformed}")]
    Malformed {
        /// The method, and the database where there is one.
        operation: String,
        /// What is wrong.
        malformed: Malformed,
    },
}

impl Error {
    /// True when a retry, or a new plan for the current state, may succeed. Read the state first after
    /// [`Unknown`](Self::Unknown), [`TimedOut`](Self::TimedOut) and [`Malformed`](Self::Malformed): the server may have
    /// run the request.
    pub fn retry_helps(&self) -> bool {
        match self {
            Self::NotSent { .. } | Self::Unknown { .. } | Self::TimedOut { .. } => true,
            Self::Refused { refusal, .. } => refusal.cause.retry_helps(),
            Self::Failed { failed, .. } => failed.retry_helps(),
            Self::Malformed { .. } => false,
        }
    }

    /// True when the server did not answer, so that nothing is known to be wrong with the request.
    pub fn unreachable(&self) -> bool {
        match self {
            Self::NotSent { cause, .. } | Self::Unknown { cause, .. } => {
                !matches!(cause, ConnectionError::TooLarge { .. })
            }
            Self::TimedOut { .. } => true,
            _ => false,
        }
    }
}
