//! A NETCONF session over any byte stream: requests in flight together, replies matched by message-id.
//!
//! The crate `rustnetconf` was meant to do this and does not fit: a request borrows its session until the reply
//! is there (no pipelining), nothing is read between requests (a dropped connection or a notification shows only
//! at the next one), one `rpc-error` of several survives, its host key check can neither show an unknown key
//! nor ask for the pinned key's algorithm, and private keys come from files only. What is left after that is
//! framing and matching, which is below.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::task::AbortOnDropHandle;

use crate::framing::{Decoder, Framing};
use crate::hello::{CLIENT_HELLO, Hello};
use crate::reply::{Message, RpcErrors, classify, errors};
use crate::text::Text;
use crate::xml::NETCONF;

/// The reason why a session is unusable. A new session may work.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SessionError {
    /// The device or the network closed the session.
    #[error("the session ended: {0}")]
    Ended(String),
    /// The device did not reply in time.
    #[error("no reply to {operation} within {} s (see --rpc-timeout)", limit.as_secs())]
    TimedOut {
        /// The XML element of the request.
        operation: String,
        /// The timeout.
        limit: Duration,
    },
    /// A later request was answered and this one was not. Replies come in order (RFC 6241 section 4.5), so there will
    /// be none. Some devices lose a reply while they write a long notification.
    #[error("the reply to {operation} was lost")]
    Lost {
        /// The XML element of the request.
        operation: String,
    },
    /// The device violated the protocol.
    #[error("the device breaks the protocol: {0}")]
    Protocol(String),
}

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The device replied with errors.
    #[error("{operation} was refused: {errors}")]
    Refused {
        /// The XML element of the request.
        operation: String,
        /// All errors of the reply.
        errors: RpcErrors,
    },
    /// The session is unusable, and the effect of the request is unknown.
    #[error("{0}")]
    Session(#[from] SessionError),
}

impl CallError {
    /// The device answered later requests but not this one.
    pub(crate) fn is_lost(&self) -> bool {
        matches!(self, Self::Session(SessionError::Lost { .. }))
    }
}

/// Fraction of the reply timeout after which a probe checks whether the reply was lost.
const PROBE_FRACTION: u32 = 12;
/// Minimum delay before that probe.
const MIN_PROBE_DELAY: Duration = Duration::from_secs(1);
/// Bytes that are written before new requests are considered.
const WRITE_CHUNK: usize = 64 << 10;
/// A request that selects nothing (RFC 6241 section 6.4.2).
const PROBE: &str = "<get-config><source><running/></source><filter type=\"subtree\"/></get-config>";

/// The future of one request. It yields the whole `<rpc-reply>` without errors.
pub type Call = BoxFuture<'static, Result<Text, CallError>>;

/// A NETCONF session as a transaction uses it.
pub trait Session: Send + Sync {
    /// The device's `<hello>`.
    fn hello(&self) -> &Hello;

    /// Sends the operation, an XML element, at once and in the order of the calls; the returned future gives the
    /// outcome. Dropping the future leaves the session usable.
    fn call(&self, operation: Text) -> Call;

    /// Ready when the session has ended.
    fn ended(&self) -> BoxFuture<'static, ()>;
}

/// Called with each `<notification>`.
pub type Notified = Box<dyn Fn(&Text) + Send + Sync>;

/// A session over a byte stream. Dropping it closes the stream.
pub struct StreamSession {
    /// The device's `<hello>`.
    hello: Hello,
    /// The sender of requests.
    requests: Requests,
    /// Maximum time for each reply.
    limit: Duration,
    /// True when the session has ended.
    closed: watch::Receiver<bool>,
    _reader: AbortOnDropHandle<()>,
    _writer: AbortOnDropHandle<()>,
}

/// Requests without a reply, by message-id; after the end, its reason.
type PendingRequests = Result<BTreeMap<u64, oneshot::Sender<Result<Text, SessionError>>>, SessionError>;

/// The receiver of a reply.
type PendingReply = oneshot::Receiver<Result<Text, SessionError>>;

struct Shared {
    pending: Mutex<PendingRequests>,
    next_id: Mutex<u64>,
    /// The highest message-id that was answered.
    answered: AtomicU64,
}

/// Sends requests.
#[derive(Clone)]
struct Requests {
    shared: Arc<Shared>,
    outgoing: mpsc::UnboundedSender<(u64, Arc<Text>)>,
}

impl Requests {
    /// Sends the operation under the next message-id.
    fn send(&self, operation: &Arc<Text>) -> Result<(u64, PendingReply), SessionError> {
        let (answer, answered) = oneshot::channel();
        // The lock is held while sending, so ids are in the order on the wire.
        let mut next = self.shared.next_id.lock().unwrap_or_else(PoisonError::into_inner);
        let id = *next;
        *next += 1;
        self.shared.pending().as_mut().map_err(|error| error.clone())?.insert(id, answer);
        // If the writer is gone, the reader ends and fails all requests.
        let _ = self.outgoing.send((id, Arc::clone(operation)));
        Ok((id, answered))
    }

    /// Waits for the reply. A probe detects a lost one.
    async fn reply(
        &self,
        id: u64,
        mut answered: PendingReply,
        probe_delay: Duration,
    ) -> Result<Text, NoReply> {
        let mut probe = None;
        loop {
            let wait = if probe.is_some() { MIN_PROBE_DELAY } else { probe_delay };
            match tokio::time::timeout(wait, &mut answered).await {
                Ok(Ok(reply)) => return reply.map_err(NoReply::Ended),
                Ok(Err(_)) => return Err(NoReply::Ended(SessionError::Ended("it was closed".into()))),
                Err(_) if self.shared.answered.load(Ordering::Relaxed) > id => return Err(NoReply::Lost),
                Err(_) if probe.is_none() => {
                    probe = Some(self.send(&Arc::new(PROBE.into())).map_err(NoReply::Ended)?);
                }
                Err(_) => {}
            }
        }
    }
}

/// The reason for a missing reply.
enum NoReply {
    Ended(SessionError),
    Lost,
}

impl Shared {
    fn pending(&self) -> MutexGuard<'_, PendingRequests> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end(&self, error: &SessionError) {
        let before = std::mem::replace(&mut *self.pending(), Err(error.clone()));
        for (_, waiter) in before.into_iter().flatten() {
            // The waiting task may be gone.
            let _ = waiter.send(Err(error.clone()));
        }
    }

    fn complete(&self, id: Option<u64>, reply: Text) {
        let mut pending = self.pending();
        let Ok(map) = pending.as_mut() else { return };
        let Some(id) = id.or_else(|| map.keys().next().copied()) else { return };
        if let Some(waiter) = map.remove(&id) {
            self.answered.fetch_max(id, Ordering::Relaxed);
            let _ = waiter.send(Ok(reply));
        }
    }
}

impl StreamSession {
    /// Exchanges the `<hello>`s and starts to read. `limit` bounds the wait for the hello and for each reply;
    /// `notified` is called with each notification.
    pub async fn open<S>(stream: S, limit: Duration, notified: Notified) -> Result<Self, SessionError>
    where
        S: AsyncRead + AsyncWrite + Send + 'static,
    {
        let (mut reader, mut writer) = tokio::io::split(stream);
        let mut decoder = Decoder::new();
        let exchange = async {
            let mut client_hello = Vec::new();
            Framing::EndOfMessage.encode(CLIENT_HELLO, &mut client_hello);
            writer.write_all(&client_hello).await.map_err(|error| ended(&error))?;
            writer.flush().await.map_err(|error| ended(&error))?;
            read_message(&mut reader, &mut decoder).await
        };
        let server_hello = tokio::time::timeout(limit, exchange)
            .await
            .map_err(|_| SessionError::TimedOut { operation: "<hello>".into(), limit })??;
        let hello = Hello::parse(&server_hello).map_err(|error| SessionError::Protocol(error.to_string()))?;
        let framing = match (hello.base("1.1"), hello.base("1.0")) {
            (true, _) => Framing::Chunked,
            (false, true) => Framing::EndOfMessage,
            (false, false) => {
                return Err(SessionError::Protocol("its hello names no version of NETCONF".into()));
            }
        };
        decoder.switch(framing);
        let shared = Arc::new(Shared {
            pending: Mutex::new(Ok(BTreeMap::new())),
            next_id: Mutex::new(1),
            answered: AtomicU64::new(0),
        });
        let (outgoing, mut to_send) = mpsc::unbounded_channel();
        let (close, closed) = watch::channel(false);
        let writing = tokio::spawn(async move {
            // The reader sees the end too and fails all requests.
            let _ = write_requests(&mut writer, framing, &mut to_send).await;
        });
        let reading = tokio::spawn({
            let shared = Arc::clone(&shared);
            async move {
                let error = loop {
                    match read_message(&mut reader, &mut decoder).await {
                        Ok(message) => match classify(&message) {
                            Some(Message::Reply(id)) => shared.complete(id, message),
                            Some(Message::Notification) => notified(&message),
                            None => {
                                break SessionError::Protocol("neither a reply nor a notification".into());
                            }
                        },
                        Err(error) => break error,
                    }
                };
                shared.end(&error);
                close.send_replace(true);
            }
        });
        Ok(Self {
            hello,
            requests: Requests { shared, outgoing },
            limit,
            closed,
            _reader: AbortOnDropHandle::new(reading),
            _writer: AbortOnDropHandle::new(writing),
        })
    }

    /// Turns true when the session has ended.
    pub fn closed(&self) -> watch::Receiver<bool> {
        self.closed.clone()
    }
}

impl Drop for StreamSession {
    fn drop(&mut self) {
        // Pending requests keep the channels that they wait for.
        self.requests.shared.end(&SessionError::Ended("it was closed".into()));
    }
}

impl Session for StreamSession {
    fn hello(&self) -> &Hello {
        &self.hello
    }

    fn call(&self, operation: Text) -> Call {
        let name = operation_name(&operation);
        let operation = Arc::new(operation);
        let (mut id, mut answered) = match self.requests.send(&operation) {
            Ok(sent) => sent,
            Err(error) => return Box::pin(async move { Err(error.into()) }),
        };
        // Only a read can be repeated.
        let mut retry = matches!(name.as_str(), "<get>" | "<get-config>").then(|| Arc::clone(&operation));
        let (requests, limit) = (self.requests.clone(), self.limit);
        let probe_delay = (limit / PROBE_FRACTION).max(MIN_PROBE_DELAY);
        Box::pin(async move {
            let reply = async {
                loop {
                    match (requests.reply(id, answered, probe_delay).await, retry.take()) {
                        (Ok(reply), _) => return Ok(reply),
                        (Err(NoReply::Ended(error)), _) => return Err(error),
                        (Err(NoReply::Lost), None) => {
                            return Err(SessionError::Lost { operation: name.clone() });
                        }
                        (Err(NoReply::Lost), Some(operation)) => {
                            (id, answered) = requests.send(&operation)?;
                        }
                    }
                }
            };
            let timed_out = || SessionError::TimedOut { operation: name.clone(), limit };
            let reply = tokio::time::timeout(limit, reply).await.unwrap_or_else(|_| Err(timed_out()))?;
            let errors = errors(&reply).map_err(|error| SessionError::Protocol(error.to_string()))?;
            if errors.is_empty() {
                Ok(reply)
            } else {
                Err(CallError::Refused { operation: name, errors: RpcErrors(errors) })
            }
        })
    }

    fn ended(&self) -> BoxFuture<'static, ()> {
        until_closed(self.closed())
    }
}

/// Ready when the session of this receiver has ended.
pub(crate) fn until_closed(mut closed: watch::Receiver<bool>) -> BoxFuture<'static, ()> {
    Box::pin(async move {
        // An error means that the reader is gone, and with it the session.
        let _ = closed.wait_for(|closed| *closed).await;
    })
}

/// Writes requests in order, long ones in chunks.
async fn write_requests(
    writer: &mut (impl AsyncWrite + Unpin),
    framing: Framing,
    to_send: &mut mpsc::UnboundedReceiver<(u64, Arc<Text>)>,
) -> std::io::Result<()> {
    let mut bytes = Vec::new();
    while let Some(first) = to_send.recv().await {
        let mut next = Some(first);
        while let Some((id, operation)) = next {
            framing.part(&format!("<rpc xmlns=\"{NETCONF}\" message-id=\"{id}\">"), &mut bytes);
            for part in operation.parts() {
                framing.part(&part, &mut bytes);
                if bytes.len() > WRITE_CHUNK {
                    writer.write_all(&bytes).await?;
                    bytes.clear();
                }
            }
            framing.part("</rpc>", &mut bytes);
            framing.end(&mut bytes);
            next = to_send.try_recv().ok();
        }
        writer.write_all(&bytes).await?;
        writer.flush().await?;
        bytes.clear();
    }
    Ok(())
}

/// `<name>` of an operation's element.
fn operation_name(operation: &Text) -> String {
    let start = operation.parts().next().unwrap_or_default();
    let name = start.trim_start_matches('<');
    let end = name.find([' ', '>', '/']).unwrap_or(name.len());
    format!("<{}>", &name[..end])
}

fn ended(error: &std::io::Error) -> SessionError {
    SessionError::Ended(error.to_string())
}

async fn read_message(
    reader: &mut (impl AsyncRead + Unpin),
    decoder: &mut Decoder,
) -> Result<Text, SessionError> {
    let mut buffer = vec![0; 32 << 10];
    loop {
        if let Some(message) = decoder.next().map_err(|error| SessionError::Protocol(error.to_string()))? {
            return Ok(message);
        }
        match reader.read(&mut buffer).await.map_err(|error| ended(&error))? {
            0 => return Err(SessionError::Ended("the device closed it".into())),
            read => decoder.push(&buffer[..read]),
        }
    }
}
