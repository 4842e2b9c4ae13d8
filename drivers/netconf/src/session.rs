//! A NETCONF session over any byte stream: requests in flight together, replies matched by message-id.
//!
//! The crate `rustnetconf` was meant to do this and does not fit: a request borrows its session until the reply
//! is there (no pipelining), nothing is read between requests (a dropped connection or a notification shows only
//! at the next one), one `rpc-error` of several survives, its host key check can neither show an unknown key
//! nor ask for the pinned key's algorithm, and private keys come from files only. What is left after that is
//! framing and matching, which is below.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use quick_xml::events::Event;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::task::AbortOnDropHandle;

use crate::framing::{Decoder, Framing, FramingError};
use crate::hello::{CLIENT_HELLO, Hello};
use crate::reply::{Message, RpcErrors, classify, errors};
use crate::text::{Text, excerpt};
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
    /// The device sent more than is read or kept, so this side ended the session.
    #[error("the session was ended, since the device sends too much: {0}")]
    TooLarge(String),
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

/// Maximum characters of a message that an error shows.
const MAX_SHOWN: usize = 300;
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
    /// The sender of operations.
    operations: Operations,
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
    /// Exchanges the `<hello>`s and starts to read. `wait` bounds the wait for the hello and `limit` that for each
    /// reply; `notified` is called with each notification.
    pub async fn open<S>(
        stream: S,
        wait: Duration,
        limit: Duration,
        notified: Notified,
    ) -> Result<Self, SessionError>
    where
        S: AsyncRead + AsyncWrite + Send + 'static,
    {
        let (mut reader, mut writer) = tokio::io::split(stream);
        let mut decoder = Decoder::new();
        let exchange = async {
            let mut client_hello = Vec::new();
            Framing::EndOfMessage.encode(CLIENT_HELLO, &mut client_hello);
            // A device that closes the session at once may have said why.
            let _ = writer.write_all(&client_hello).await;
            let _ = writer.flush().await;
            read_message(&mut reader, &mut decoder).await
        };
        let exchanged = tokio::time::timeout(wait, exchange).await;
        let server_hello = match exchanged {
            Ok(Ok(hello)) => hello,
            failed => return Err(no_hello(failed.ok().and_then(Result::err), wait, &decoder.rest())),
        };
        let unusable = |what: String| SessionError::Protocol(format!("{what}: {}", shown(&server_hello)));
        let hello = match errors(&server_hello) {
            Ok(errors) if !errors.is_empty() => {
                return Err(SessionError::Ended(format!("the device refuses it: {}", RpcErrors(errors))));
            }
            _ => Hello::parse(&server_hello)
                .map_err(|error| unusable(format!("its hello can't be read ({error})")))?,
        };
        let framing = match (hello.base("1.1"), hello.base("1.0")) {
            (true, _) => Framing::Chunked,
            (false, true) => Framing::EndOfMessage,
            (false, false) => return Err(unusable("its hello names no version of NETCONF".to_owned())),
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
                                let text = shown(&message);
                                break SessionError::Protocol(format!(
                                    "neither a reply nor a notification: {text}"
                                ));
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
            operations: Operations {
                requests: Requests { shared, outgoing },
                limit,
                one_root: Arc::default(),
            },
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
        self.operations.requests.shared.end(&SessionError::Ended("it was closed".into()));
    }
}

impl Session for StreamSession {
    fn hello(&self) -> &Hello {
        &self.hello
    }

    fn call(&self, operation: Text) -> Call {
        self.operations.call(operation)
    }

    fn ended(&self) -> BoxFuture<'static, ()> {
        until_closed(self.closed())
    }
}

/// Sends operations and awaits their replies.
#[derive(Clone)]
struct Operations {
    /// The sender of requests.
    requests: Requests,
    /// Maximum time for each reply.
    limit: Duration,
    /// The device takes only filters with one root element.
    one_root: Arc<AtomicBool>,
}

impl Operations {
    /// Sends the operation. A device may refuse a read whose filter has several root elements: they are read one by
    /// one, and the replies joined.
    fn call(&self, operation: Text) -> Call {
        let roots = roots(&operation);
        if roots.len() < 2 {
            return self.call_once(operation);
        }
        if self.one_root.load(Ordering::Relaxed) {
            return self.call_each(roots);
        }
        let (call, operations) = (self.call_once(operation), self.clone());
        Box::pin(async move {
            let refused = match call.await {
                Err(refused @ CallError::Refused { .. }) => refused,
                other => return other,
            };
            match operations.call_each(roots).await {
                Err(CallError::Refused { .. }) => Err(refused),
                Ok(reply) => {
                    operations.one_root.store(true, Ordering::Relaxed);
                    Ok(reply)
                }
                failed => failed,
            }
        })
    }

    /// Sends all reads at once and joins their replies.
    fn call_each(&self, reads: Vec<Text>) -> Call {
        let calls: Vec<Call> = reads.into_iter().map(|read| self.call_once(read)).collect();
        Box::pin(async move {
            let mut reply = Text::new();
            for call in calls {
                reply.append(call.await?);
            }
            Ok(reply)
        })
    }

    fn call_once(&self, operation: Text) -> Call {
        let name = operation_name(&operation);
        let operation = Arc::new(operation);
        let (mut id, mut answered) = match self.requests.send(&operation) {
            Ok(sent) => sent,
            Err(error) => return Box::pin(async move { Err(error.into()) }),
        };
        // Only a read can be repeated.
        let mut retry = is_read(&name).then(|| Arc::clone(&operation));
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
}

fn is_read(operation: &str) -> bool {
    matches!(operation, "<get>" | "<get-config>")
}

/// The read of each root element of a subtree filter; empty for other operations. Elements of one name that follow
/// each other count as one root.
fn roots(operation: &Text) -> Vec<Text> {
    const FILTER: &str = "<filter type=\"subtree\">";
    if !is_read(&operation_name(operation)) {
        return Vec::new();
    }
    let operation = operation.to_string();
    let content = operation.split_once(FILTER).and_then(|(before, rest)| {
        let (content, after) = rest.rsplit_once("</filter>")?;
        Some((before, content, after))
    });
    let Some((before, content, after)) = content else { return Vec::new() };
    let mut roots: Vec<(String, String)> = Vec::new();
    for element in elements(content) {
        let name = element.split([' ', '>', '/']).next().unwrap_or_default();
        match roots.last_mut() {
            Some((last, elements)) if last == name => elements.push_str(element),
            _ => roots.push((name.to_owned(), element.to_owned())),
        }
    }
    roots.into_iter().map(|(_, root)| format!("{before}{FILTER}{root}</filter>{after}").into()).collect()
}

/// The elements side by side in well-formed XML.
fn elements(xml: &str) -> Vec<&str> {
    let mut reader = quick_xml::Reader::from_str(xml);
    let (mut elements, mut depth, mut start) = (Vec::new(), 0_usize, 0);
    loop {
        match reader.read_event() {
            Ok(Event::Start(_)) => depth += 1,
            Ok(Event::End(_)) => depth = depth.saturating_sub(1),
            Ok(Event::Eof) | Err(_) => return elements,
            Ok(_) => {}
        }
        if depth == 0 {
            let end = usize::try_from(reader.buffer_position()).unwrap_or(xml.len());
            elements.extend(xml.get(start..end));
            start = end;
        }
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

/// The reason for a missing hello. `received`: what came instead of one.
fn no_hello(error: Option<SessionError>, wait: Duration, received: &Text) -> SessionError {
    let text = shown(received);
    match error {
        Some(SessionError::Ended(reason)) if !text.is_empty() => {
            SessionError::Ended(format!("{reason}; it sent no hello but: {text}"))
        }
        Some(error) => error,
        None if text.is_empty() => SessionError::TimedOut { operation: "<hello>".into(), limit: wait },
        None => SessionError::Ended(format!("no hello within {} s, but: {text}", wait.as_secs_f32())),
    }
}

/// The start of a message for an error.
fn shown(message: &Text) -> String {
    excerpt(&message.parts().next().unwrap_or_default(), MAX_SHOWN)
}

async fn read_message(
    reader: &mut (impl AsyncRead + Unpin),
    decoder: &mut Decoder,
) -> Result<Text, SessionError> {
    let mut buffer = vec![0; 32 << 10];
    loop {
        match decoder.next() {
            Ok(Some(message)) => return Ok(message),
            Ok(None) => {}
            Err(error @ (FramingError::TooLong { .. } | FramingError::TooLarge(_))) => {
                return Err(SessionError::TooLarge(error.to_string()));
            }
            Err(error) => {
                let text = shown(&decoder.rest());
                return Err(SessionError::Protocol(format!("{error}: {text}")));
            }
        }
        match reader.read(&mut buffer).await.map_err(|error| ended(&error))? {
            0 => return Err(SessionError::Ended("the device closed it".into())),
            read => decoder.push(&buffer[..read]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_are_split_into_their_roots() {
        let read = |filter: &str| {
            format!(
                "<get-config><source><running/></source><filter type=\"subtree\">{filter}</filter></get-config>"
            )
        };
        let split = |operation: &str| -> Vec<String> {
            roots(&operation.into()).iter().map(ToString::to_string).collect()
        };
        let (first, second) = ("<a xmlns=\"x\"><b>&lt;/filter></b></a>", "<c xmlns=\"y\"/>");
        assert_eq!(split(&read(&format!("{first}{second}"))), [read(first), read(second)]);
        assert_eq!(split(&read(&format!("{first}{first}{second}"))).len(), 2);
        assert_eq!(split(&read(first)).len(), 1);
        for other in [read(""), "<commit/>".to_owned(), "<get/>".to_owned()] {
            assert!(split(&other).is_empty(), "{other}");
        }
    }
}
