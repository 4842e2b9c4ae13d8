//! Why a transaction comes to nothing.

use eno_schemas::Failure;

use crate::dialect::ParseError;
use crate::reply::RpcErrors;
use crate::session::CallError;

/// Why a transaction came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum TransactionError {
    /// A request failed.
    #[error("{0}")]
    Call(#[from] CallError),
    /// The device's configuration can't be read.
    #[error("the device's configuration does not follow its model: {0}")]
    Parse(#[from] ParseError),
    /// Another session holds the lock.
    #[error("the {datastore} configuration is locked by {holder}")]
    Locked {
        /// Which datastore.
        datastore: &'static str,
        /// The session that holds it.
        holder: String,
    },
    /// The device refuses, and not because of single items.
    #[error("{operation} was refused: {errors}")]
    Refused {
        /// The request's element.
        operation: String,
        /// The device's words.
        errors: RpcErrors,
        /// It may pass.
        retryable: bool,
    },
    /// Nothing, or little, of an accepted change was there afterwards.
    #[error(
        "the device accepted the change, which does not read back; it was taken back as far as it can be"
    )]
    NotReadBack,
    /// The change was gone when it was to be confirmed: its time was over, or another hand took it back.
    #[error("the device did not confirm the change: {errors}")]
    NotConfirmed {
        /// The device's words.
        errors: RpcErrors,
    },
    /// The device was lost while a change was held, or before it heard of the decision; it takes the change back by
    /// itself.
    #[error("the device was lost while the change waited for the decision of its transaction: {reason}")]
    LostWhileHeld {
        /// How that showed.
        reason: String,
    },
    /// What is held ends with the session alone, and is to end.
    #[error("{reason}")]
    Aborted {
        /// Why, in words.
        reason: String,
    },
    /// The device can't take back a change, and so can't wait for others.
    #[error(
        "the device can't take back a change, and so can't take part in a transaction over several devices"
    )]
    CannotHold,
}

impl TransactionError {
    /// Another try by itself may help.
    pub fn retryable(&self) -> bool {
        match self {
            Self::Call(CallError::Session(_))
            | Self::Locked { .. }
            | Self::NotConfirmed { .. }
            | Self::LostWhileHeld { .. }
            | Self::Aborted { .. } => true,
            Self::Call(CallError::Refused { errors, .. }) => is_transient(errors),
            Self::Refused { retryable, .. } => *retryable,
            Self::Parse(_) | Self::NotReadBack | Self::CannotHold => false,
        }
    }

    /// The session is of no use any more.
    pub fn session_ended(&self) -> bool {
        matches!(self, Self::Call(CallError::Session(_)))
    }

    /// The device answers, but not this request: what became of it shows when it is read in another session.
    pub fn reply_was_lost(&self) -> bool {
        matches!(self, Self::Call(error) if error.is_lost())
    }

    /// The device did not answer.
    pub fn unreachable(&self) -> bool {
        matches!(self, Self::Call(CallError::Session(_)) | Self::LostWhileHeld { .. })
    }

    /// The same, after the decision of a transaction was heard: the work on its command is over, and what is left is
    /// for the work on the decision.
    pub(super) fn after_decision(self) -> Self {
        match self {
            Self::Call(CallError::Session(error)) => Self::LostWhileHeld { reason: error.to_string() },
            other => other,
        }
    }

    /// Nothing more is said in this session.
    pub(super) fn session_is_unusable(&self) -> bool {
        self.unreachable() || matches!(self, Self::Aborted { .. })
    }

    /// The session has to go, so that the device lets go of what it holds for it.
    pub fn must_close_session(&self) -> bool {
        !matches!(self, Self::Locked { .. } | Self::CannotHold)
    }

    /// As a report has it.
    pub fn failure(&self) -> Failure {
        Failure { reason: self.to_string(), retryable: self.retryable(), unreachable: self.unreachable() }
    }
}

/// Errors that speak of the moment and not of the request.
pub(super) fn is_transient(errors: &RpcErrors) -> bool {
    ["in-use", "lock-denied", "resource-denied"].iter().any(|tag| errors.tagged(tag).is_some())
}
