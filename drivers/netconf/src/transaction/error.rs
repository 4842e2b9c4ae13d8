//! Errors of a transaction.

use std::time::Duration;

use eno_sbi::TooLarge;
use eno_schemas::Failure;

use crate::dialect::ParseError;
use crate::reply::RpcErrors;
use crate::session::{CallError, SessionError};
use crate::xml::XmlError;

/// The reason why a transaction failed.
#[derive(Debug, thiserror::Error)]
pub enum TransactionError {
    /// A request failed.
    #[error("{0}")]
    Call(#[from] CallError),
    /// The reply does not follow the device's model.
    #[error("the device's configuration does not follow its model: {0}")]
    Parse(ParseError),
    /// More would be kept of the reply than is allowed. The session has to be closed.
    #[error("the session was ended, since the device sends too much: {0}")]
    TooLarge(#[from] TooLarge),
    /// Another session holds the lock.
    #[error("the {datastore} configuration is locked by {holder}")]
    Locked {
        /// Which datastore.
        datastore: &'static str,
        /// The session that holds it.
        holder: String,
    },
    /// The device refused the request as a whole.
    #[error("{operation} was refused: {errors}")]
    Refused {
        /// The XML element of the request.
        operation: String,
        /// The device's errors.
        errors: RpcErrors,
        /// A retry can help.
        retryable: bool,
    },
    /// The device refused a parameter of the confirmed commit, and no part of the configuration.
    #[error("the device refuses the time until an unconfirmed commit ends (see --confirm-timeout): {errors}")]
    ConfirmTimeoutRefused {
        /// The device's errors.
        errors: RpcErrors,
    },
    /// For some time after an accepted commit, all or nearly all of the change was missing.
    #[error(
        "the device accepted the change, which does not read back; it was taken back as far as it can be"
    )]
    NotReadBack,
    /// The pending commit was gone at confirmation, or its change after it: its timeout had passed, or somebody
    /// cancelled it.
    #[error("the device did not confirm the change: {reason}")]
    NotConfirmed {
        /// The device's errors, or what was read.
        reason: String,
    },
    /// The connection was lost while the change was held, or before the decision reached the device. The device rolls
    /// back by itself.
    #[error("the device was lost while the change waited for the decision of its transaction: {reason}")]
    LostWhileHeld {
        /// The symptom.
        reason: String,
    },
    /// The held change ends with its session, and the session has to be closed.
    #[error("{reason}")]
    Aborted {
        /// The reason of the abort.
        reason: String,
    },
    /// The device has no confirmed commit, so it can't take part in a transaction.
    #[error(
        "the device can't take back a change, and so can't take part in a transaction over several devices"
    )]
    CannotHold,
}

impl From<ParseError> for TransactionError {
    fn from(error: ParseError) -> Self {
        match error {
            ParseError::Xml(XmlError::TooLarge(error)) => Self::TooLarge(error),
            error => Self::Parse(error),
        }
    }
}

impl TransactionError {
    /// A retry of the same command can help.
    pub fn retryable(&self) -> bool {
        match self {
            // A device may show a change late.
            Self::NotReadBack
            // Its configuration, or that of others, may become smaller.
            | Self::TooLarge(_)
            | Self::Call(CallError::Session(_))
            | Self::Locked { .. }
            | Self::NotConfirmed { .. }
            | Self::LostWhileHeld { .. }
            | Self::Aborted { .. } => true,
            Self::Call(CallError::Refused { errors, .. }) => errors.are_retryable(),
            Self::Refused { retryable, .. } => *retryable,
            Self::Parse(_) | Self::ConfirmTimeoutRefused { .. } | Self::CannotHold => false,
        }
    }

    /// The session is closed, and the same request may succeed in another one.
    pub fn session_ended(&self) -> bool {
        matches!(self, Self::Call(CallError::Session(_))) && !self.is_too_large()
    }

    /// This side closed the session.
    fn is_too_large(&self) -> bool {
        matches!(self, Self::Call(CallError::Session(SessionError::TooLarge(_))))
    }

    /// The device answers other requests. A new session shows the effect of this one.
    pub fn reply_was_lost(&self) -> bool {
        matches!(self, Self::Call(error) if error.is_lost())
    }

    /// The time after which a request that changes the device was given up.
    pub fn given_up_after(&self) -> Option<Duration> {
        const CHANGING: [&str; 4] = ["<commit>", "<edit-config>", "<validate>", "<copy-config>"];
        match self {
            Self::Call(CallError::Session(SessionError::TimedOut { operation, limit })) => {
                CHANGING.contains(&operation.as_str()).then_some(*limit)
            }
            _ => None,
        }
    }

    /// The device did not answer.
    pub fn unreachable(&self) -> bool {
        let lost = matches!(self, Self::Call(CallError::Session(_)) | Self::LostWhileHeld { .. });
        lost && !self.is_too_large()
    }

    /// No reply was read, and the device may still carry out the request.
    pub fn effect_is_unknown(&self) -> bool {
        self.unreachable() || self.is_too_large()
    }

    /// The same error after the decision arrived. The next work on the command handles it.
    pub(super) fn after_decision(self) -> Self {
        match self {
            Self::Call(CallError::Session(error)) => Self::LostWhileHeld { reason: error.to_string() },
            other => other,
        }
    }

    /// No further request may be sent in this session.
    pub(super) fn session_is_unusable(&self) -> bool {
        self.effect_is_unknown() || matches!(self, Self::Aborted { .. })
    }

    /// The session has to be closed so that the device releases its locks.
    pub fn must_close_session(&self) -> bool {
        !matches!(self, Self::Locked { .. } | Self::CannotHold)
    }

    /// The failure for the report.
    pub fn failure(&self) -> Failure {
        Failure {
            reason: self.to_string().into(),
            retryable: self.retryable(),
            unreachable: self.unreachable(),
        }
    }
}
