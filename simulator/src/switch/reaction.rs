//! What a switch answers to a session.

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::datastores::SessionId;
use crate::netconf::error::RpcError;

/// What follows from an operation.
#[derive(Debug)]
pub struct Reaction {
    /// What the client is told; `None` when the connection is lost.
    pub reply: Option<Reply>,
    /// Whether the session ends after that.
    pub last: bool,
    /// Whether the session says nothing more, and stays open.
    pub silent: bool,
}

impl Reaction {
    /// A reply, and the session goes on.
    pub fn reply(reply: Reply) -> Self {
        Self { reply: Some(reply), last: false, silent: false }
    }

    /// The connection is lost.
    pub fn lost() -> Self {
        Self { reply: None, last: true, silent: false }
    }
}

/// The content of an `<rpc-reply>`.
#[derive(Debug)]
pub enum Reply {
    /// `<ok/>`.
    Ok,
    /// `<data>` with this XML in it.
    Data(String),
    /// This XML.
    Content(String),
    /// `<rpc-error>`s.
    Errors(Vec<RpcError>),
}

/// A session's ends that the transport needs.
#[derive(Debug)]
pub struct Opened {
    /// Its number.
    pub session: SessionId,
    /// Cancelled when it has to end.
    pub end: CancellationToken,
    /// Messages that the switch sends by itself.
    pub outgoing: mpsc::UnboundedReceiver<String>,
}
