//! The results that a switch returns to a session.

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::datastores::SessionId;
use crate::netconf::error::RpcError;

/// The outcome of an operation.
#[derive(Debug)]
pub struct RpcOutcome {
    /// The reply; `None` if the connection is lost or hangs.
    pub reply: Option<Reply>,
    /// Whether the session ends afterwards.
    pub ends_session: bool,
    /// Whether the session stays open and sends nothing more.
    pub hangs: bool,
}

impl RpcOutcome {
    /// A reply after which the session continues.
    pub fn reply(reply: Reply) -> Self {
        Self { reply: Some(reply), ends_session: false, hangs: false }
    }

    /// The connection is lost.
    pub fn connection_lost() -> Self {
        Self { reply: None, ends_session: true, hangs: false }
    }
}

/// The content of an `<rpc-reply>`.
#[derive(Debug)]
pub enum Reply {
    /// `<ok/>`.
    Ok,
    /// `<data>` with this XML content.
    Data(String),
    /// Other XML content.
    Content(String),
    /// `<rpc-error>`s.
    Errors(Vec<RpcError>),
}

/// The handles of an open session that the transport needs.
#[derive(Debug)]
pub struct OpenedSession {
    /// Its session-id.
    pub session: SessionId,
    /// Cancelled when the session must end.
    pub end: CancellationToken,
    /// Notifications to send.
    pub outgoing: mpsc::UnboundedReceiver<String>,
}
