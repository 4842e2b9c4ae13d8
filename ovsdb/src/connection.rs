//! One connection: many requests in flight, replies in any order, `echo` both ways (RFC 7047 section 4.1).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Value as Json, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::endpoint::{Endpoint, Stream};
use crate::error::ConnectionError;
use crate::framing::{Decoder, FramingError};
use crate::options::Options;
use crate::outcome::Refusal;
use crate::value::Malformed;

/// Bytes from which messages of all connections of the process are parsed one after the other.
const LARGE: usize = 256 << 10;
static PARSING: Mutex<()> = Mutex::new(());

/// A reply, or why there is none.
pub(crate) type Reply = Result<Result<Json, Refusal>, ConnectionError>;

/// Called with the reply before the next message is handled, so that its effects are visible to that message.
type OnReply = Box<dyn FnOnce(Reply) -> Result<(), Malformed> + Send>;

/// Called with the method and parameters of each notification, in the order of arrival.
pub(crate) type OnNotification = Box<dyn Fn(&str, &[Json]) -> Result<(), Malformed> + Send + Sync>;

/// Dropping it closes the connection.
pub(crate) struct Connection {
    shared: Arc<Shared>,
    _task: AbortOnDropHandle<()>,
}

struct Shared {
    endpoint: String,
    /// Requests without a reply; after the connection's end, its reason.
    pending: Mutex<Result<Pending, ConnectionError>>,
    /// Capacity for all requests in flight, their `cancel`s and some `echo`s. When it is full, the peer does
    /// not read.
    outgoing: mpsc::Sender<Vec<u8>>,
    in_flight: Arc<Semaphore>,
    ended: CancellationToken,
}

#[derive(Default)]
struct Pending {
    next_id: u64,
    waiting: BTreeMap<u64, (OnReply, OwnedSemaphorePermit)>,
}

impl Shared {
    fn pending(&self) -> MutexGuard<'_, Result<Pending, ConnectionError>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end(&self, error: &ConnectionError) {
        let waiting = {
            let mut pending = self.pending();
            match pending.as_mut() {
                Ok(requests) => {
                    let waiting = std::mem::take(&mut requests.waiting);
                    *pending = Err(error.clone());
                    waiting
                }
                Err(_) => return,
            }
        };
        for (_, (on_reply, _)) in waiting {
            // An absent reply can't be malformed.
            let _ = on_reply(Err(error.clone()));
        }
        self.in_flight.close();
        self.ended.cancel();
    }

    fn why(&self) -> ConnectionError {
        match &*self.pending() {
            Err(error) => error.clone(),
            Ok(_) => ConnectionError::Closed { endpoint: self.endpoint.clone() },
        }
    }

    fn protocol(&self, reason: &impl ToString) -> ConnectionError {
        ConnectionError::Protocol { endpoint: self.endpoint.clone(), reason: reason.to_string() }
    }

    fn framing(&self, error: &FramingError) -> ConnectionError {
        match error {
            FramingError::Stray(_) => self.protocol(error),
            FramingError::TooLong { .. } | FramingError::TooManyValues { .. } => self.too_large(error),
        }
    }

    fn too_large(&self, reason: &impl ToString) -> ConnectionError {
        ConnectionError::TooLarge { endpoint: self.endpoint.clone(), reason: reason.to_string() }
    }

    fn malformed(&self, malformed: &Malformed) -> ConnectionError {
        if malformed.is_too_large() { self.too_large(malformed) } else { self.protocol(malformed) }
    }

    fn ended(&self, reason: &impl ToString) -> ConnectionError {
        ConnectionError::Ended { endpoint: self.endpoint.clone(), reason: reason.to_string() }
    }

    /// Sends a small message without waiting for space.
    fn push(&self, message: &Json) -> Result<(), ConnectionError> {
        self.outgoing
            .try_send(message.to_string().into_bytes())
            .map_err(|_| self.ended(&"it takes no more messages"))
    }

    fn handle(&self, message: &[u8], notified: &OnNotification) -> Result<(), ConnectionError> {
        let mut message: Json =
            serde_json::from_slice(message).map_err(|error| self.protocol(&format!("no JSON: {error}")))?;
        let id = message["id"].take();
        let Some(method) = message.get("method") else {
            let reply = match message["error"].take() {
                Json::Null => Ok(message["result"].take()),
                error => Err(Refusal::from_json(&error)),
            };
            let request = id.as_u64().and_then(|id| self.pending().as_mut().ok()?.waiting.remove(&id));
            // Other replies are those to `echo`.
            return match request {
                Some((on_reply, _)) => on_reply(Ok(reply)).map_err(|malformed| self.malformed(&malformed)),
                None => Ok(()),
            };
        };
        let method = method.as_str().unwrap_or_default();
        let params = message["params"].as_array().map_or(&[][..], Vec::as_slice);
        match (method, id) {
            (_, Json::Null) => notified(method, params).map_err(|malformed| self.malformed(&malformed)),
            ("echo", id) => self.push(&json!({"id": id, "result": params, "error": null})),
            (_, id) => self.push(&json!({"id": id, "result": null, "error": "unknown method"})),
        }
    }

    /// Reads until the connection ends. A server that is silent for `probe` is sent an `echo`, and
    /// disconnected after the same time again.
    async fn read(
        &self,
        mut reader: ReadHalf<Box<dyn Stream>>,
        options: &Options,
        notified: &OnNotification,
    ) -> Result<(), ConnectionError> {
        let mut decoder = Decoder::new(options.max_message, options.max_parsed);
        let mut buffer = vec![0; 32 << 10];
        let mut probed = false;
        loop {
            while let Some(message) = decoder.next().map_err(|error| self.framing(&error))? {
                // One after the other, since a parsed message is much larger.
                let large =
                    (message.len() > LARGE).then(|| PARSING.lock().unwrap_or_else(PoisonError::into_inner));
                let handled = self.handle(message, notified);
                drop(large);
                handled?;
            }
            match tokio::time::timeout(options.probe_interval, reader.read(&mut buffer)).await {
                Ok(Ok(0)) if decoder.in_message() => {
                    return Err(self.ended(&"the server closed it in the middle of a message"));
                }
                Ok(Ok(0)) => return Err(self.ended(&"the server closed it")),
                Ok(Ok(length)) => {
                    probed = false;
                    decoder.push(&buffer[..length]);
                }
                Ok(Err(error)) => return Err(self.ended(&error)),
                Err(_) if probed => {
                    let limit = options.probe_interval * 2;
                    return Err(ConnectionError::Stalled { endpoint: self.endpoint.clone(), limit });
                }
                Err(_) => {
                    probed = true;
                    self.push(&json!({"method": "echo", "params": [], "id": "echo"}))?;
                }
            }
        }
    }

    async fn write(
        &self,
        mut writer: WriteHalf<Box<dyn Stream>>,
        mut outgoing: mpsc::Receiver<Vec<u8>>,
    ) -> Result<(), ConnectionError> {
        while let Some(mut bytes) = outgoing.recv().await {
            while bytes.len() < 64 << 10
                && let Ok(more) = outgoing.try_recv()
            {
                bytes.extend_from_slice(&more);
            }
            writer.write_all(&bytes).await.map_err(|error| self.ended(&error))?;
            writer.flush().await.map_err(|error| self.ended(&error))?;
        }
        Ok(())
    }
}

impl Connection {
    /// Connects and starts reading.
    pub(crate) async fn open(
        endpoint: &Endpoint,
        options: &Options,
        notified: OnNotification,
    ) -> Result<Self, ConnectionError> {
        let connect = |reason: String| ConnectionError::Connect { endpoint: endpoint.to_string(), reason };
        let limit = options.connect_timeout;
        let stream = tokio::time::timeout(limit, endpoint.open())
            .await
            .map_err(|_| connect(format!("no answer within {} s", limit.as_secs_f32())))?
            .map_err(|error| connect(error.to_string()))?;
        let (reader, writer) = tokio::io::split(stream);
        let (outgoing, to_send) = mpsc::channel(2 * options.max_in_flight + 64);
        let shared = Arc::new(Shared {
            endpoint: endpoint.to_string(),
            pending: Mutex::new(Ok(Pending::default())),
            outgoing,
            in_flight: Arc::new(Semaphore::new(options.max_in_flight)),
            ended: CancellationToken::new(),
        });
        let task = tokio::spawn({
            let shared = Arc::clone(&shared);
            let options = options.clone();
            async move {
                let ended = tokio::select! {
                    ended = shared.read(reader, &options, &notified) => ended,
                    ended = shared.write(writer, to_send) => ended,
                };
                if let Err(error) = ended {
                    shared.end(&error);
                }
            }
        });
        Ok(Self { shared, _task: AbortOnDropHandle::new(task) })
    }

    /// Waits until the connection ends.
    pub(crate) async fn ended(&self) -> ConnectionError {
        self.shared.ended.cancelled().await;
        self.shared.why()
    }

    /// Sends a request once there is space for it, and returns its id. On an error it was not sent.
    pub(crate) async fn request(
        &self,
        method: &str,
        params: Json,
        on_reply: impl FnOnce(Reply) -> Result<(), Malformed> + Send + 'static,
    ) -> Result<u64, ConnectionError> {
        let permit = Arc::clone(&self.shared.in_flight).acquire_owned().await;
        let mut pending = self.shared.pending();
        let requests = pending.as_mut().map_err(|error| error.clone())?;
        let Ok(permit) = permit else { return Err(self.shared.ended(&"it was closed")) };
        let id = requests.next_id;
        requests.next_id += 1;
        self.shared.push(&json!({"method": method, "params": params, "id": id}))?;
        requests.waiting.insert(id, (Box::new(on_reply), permit));
        Ok(id)
    }

    /// Sends a request and waits for its reply. When the future is dropped or times out, the request is
    /// cancelled at the server.
    pub(crate) async fn call(
        &self,
        method: &str,
        params: Json,
        limit: Duration,
    ) -> Result<Result<Json, Refusal>, CallError> {
        let (sender, receiver) = oneshot::channel();
        let on_reply = move |reply| {
            // The receiver may have been dropped.
            let _ = sender.send(reply);
            Ok(())
        };
        let deadline = tokio::time::Instant::now() + limit;
        let sent = tokio::time::timeout_at(deadline, self.request(method, params, on_reply));
        let Ok(sent) = sent.await else {
            let error = self.shared.ended(&"too many requests wait for their reply");
            return Err(CallError::NotSent(error));
        };
        let id = sent.map_err(CallError::NotSent)?;
        let _cancel = CancelOnDrop { shared: &self.shared, id };
        match tokio::time::timeout_at(deadline, receiver).await {
            Ok(Ok(reply)) => reply.map_err(CallError::Unknown),
            Ok(Err(_)) => Err(CallError::Unknown(self.shared.why())),
            Err(_) => Err(CallError::TimedOut(limit)),
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.shared.end(&ConnectionError::Closed { endpoint: self.shared.endpoint.clone() });
    }
}

/// Why a call has no reply.
#[derive(Debug)]
pub(crate) enum CallError {
    /// Nothing was sent.
    NotSent(ConnectionError),
    /// The connection ended before the reply.
    Unknown(ConnectionError),
    /// No reply in time.
    TimedOut(Duration),
}

/// Sends `cancel` (RFC 7047 section 4.1.4), unless the reply came. ovsdb-server may omit the reply then, so
/// none is waited for.
struct CancelOnDrop<'a> {
    shared: &'a Shared,
    id: u64,
}

impl Drop for CancelOnDrop<'_> {
    fn drop(&mut self) {
        let waiting =
            self.shared.pending().as_mut().ok().and_then(|requests| requests.waiting.remove(&self.id));
        if waiting.is_some() {
            // Without space for the message, the server completes the request.
            let _ = self.shared.push(&json!({"method": "cancel", "params": [self.id], "id": null}));
        }
    }
}
