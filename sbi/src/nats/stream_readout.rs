//! Detection of messages that a server read out of a stream.

use async_nats::HeaderMap;
use async_nats::header::NATS_STREAM;

/// True for a message that a server read out of a stream and sent on.
///
/// A server answers a stream read to any reply subject. A client without permission to publish on a subject
/// could so have the server publish there, with a payload that it stored in a stream of its own. The server
/// marks such messages with this header, which authorised publishers never set.
pub fn is_stream_readout(headers: Option<&HeaderMap>) -> bool {
    headers.is_some_and(|headers| headers.get(NATS_STREAM).is_some())
}
