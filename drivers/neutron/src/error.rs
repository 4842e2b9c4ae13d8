//! Why a request to Keystone or Neutron failed.

use std::time::Duration;

use eno_device_secrets::{PermitError, SecretError};
use eno_schemas::Failure;
use http::StatusCode;

use crate::keystone::NoEndpoint;

/// Why a request had no effect, or why its effect is not known.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    /// The FabricDevice does not confirm the login. Nothing was sent to the cloud.
    #[error(transparent)]
    NotPermitted(#[from] PermitError),
    /// The Secret can't be used.
    #[error(transparent)]
    Secret(#[from] SecretError),
    /// The CA certificates of the Secret can't be used.
    #[error("ca.crt of credential {name:?} has no PEM certificates that can be used: {reason}")]
    Authorities {
        /// The Secret.
        name: String,
        /// The error of the TLS library.
        reason: String,
    },
    /// The address is no URL.
    #[error("{address} is not the URL of Keystone: {reason}")]
    Address {
        /// The address.
        address: String,
        /// The reason.
        reason: String,
    },
    /// The catalogue has no Neutron that may be used.
    #[error(transparent)]
    Catalogue(#[from] NoEndpoint),
    /// No answer came. The request may have been carried out.
    #[error("{operation}: {server} does not answer: {reason}")]
    Unreachable {
        /// The request.
        operation: String,
        /// The server.
        server: String,
        /// The reason.
        reason: String,
    },
    /// The server's certificate is not accepted.
    #[error(
        "{server} showed a certificate that is not accepted ({reason}): put the PEM certificate of its authority into \
         ca.crt of the Secret {secret}"
    )]
    Certificate {
        /// The server.
        server: String,
        /// The reason.
        reason: String,
        /// The Secret.
        secret: String,
    },
    /// Keystone refuses the login.
    #[error("Keystone at {server} refuses the credential {secret:?}: {message}. {remedy}")]
    Login {
        /// The server.
        server: String,
        /// The Secret.
        secret: String,
        /// Keystone's message.
        message: String,
        /// What helps.
        remedy: &'static str,
    },
    /// The answer is not what the API specifies.
    #[error(
        "{operation}: {server} answered {status} with {content}: a proxy or another server is at this address"
    )]
    NotTheApi {
        /// The request.
        operation: String,
        /// The server.
        server: String,
        /// The HTTP status.
        status: StatusCode,
        /// What the answer is.
        content: String,
    },
    /// The answer is larger than what is read or kept.
    #[error("{operation}: {server} sends too much: {reason}")]
    TooLarge {
        /// The request.
        operation: String,
        /// The server.
        server: String,
        /// What is too large, and the limit.
        reason: String,
    },
    /// Neutron has no trunks.
    #[error("{server} has no trunks: an admin of the cloud enables the service plugin trunk of Neutron")]
    NoTrunks {
        /// The server.
        server: String,
    },
    /// Every plan was outdated before it was carried out.
    #[error("other clients changed the same things in Neutron again and again")]
    Contended,
    /// Neutron refuses the request.
    #[error("{operation}: {refusal}")]
    Refused {
        /// The request.
        operation: String,
        /// Neutron's answer.
        refusal: Refusal,
    },
}

/// An error that Neutron answers.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message} ({kind}, {status})")]
pub struct Refusal {
    /// The HTTP status.
    pub status: StatusCode,
    /// `type` of `NeutronError`, such as `VlanIdInUse`.
    pub kind: String,
    /// Its message.
    pub message: String,
    /// When to try again, as the server asks.
    pub retry_after: Option<Duration>,
}

impl Refusal {
    /// The same request may succeed later.
    pub fn is_temporary(&self) -> bool {
        self.status.is_server_error()
            || self.status == StatusCode::TOO_MANY_REQUESTS
            || (self.status == StatusCode::CONFLICT && self.retry_after.is_some())
    }

    /// Something was changed by another hand since it was read.
    pub fn is_stale(&self) -> bool {
        matches!(self.status, StatusCode::NOT_FOUND | StatusCode::PRECONDITION_FAILED)
    }
}

impl ApiError {
    /// The failure for a report.
    pub fn failure(&self) -> Failure {
        let unreachable = match self {
            Self::Unreachable { .. } => true,
            Self::NotPermitted(error) => error.is_unavailable(),
            Self::Refused { refusal, .. } => refusal.status.is_server_error(),
            _ => false,
        };
        let retryable = !matches!(self, Self::Address { .. });
        Failure { reason: self.to_string().into(), retryable, unreachable }
    }
}
