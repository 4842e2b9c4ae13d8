//! The messages of NATS in a dump.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use eno_engine::trace::StoredMessages;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{Dump, DumpError, stream_path};

/// A message of a stream, as one line.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct MessageLine {
    /// Its subject.
    pub subject: String,
    /// Its sequence in the stream.
    pub sequence: u64,
    /// When the server stored it, RFC 3339.
    pub time: String,
    /// Its payload, redacted. One that is no JSON is a text.
    pub payload: Box<RawValue>,
}

/// The payloads of a stream by subject.
type Payloads = HashMap<String, Vec<Vec<u8>>>;

/// The streams of a dump. A stream is read as a whole when it is first asked for.
pub(super) struct MessageFiles {
    dump: Dump,
    streams: Mutex<HashMap<String, Arc<Payloads>>>,
}

impl MessageFiles {
    /// Of this dump.
    pub(super) fn new(dump: Dump) -> Self {
        Self { dump, streams: Mutex::default() }
    }

    fn required(&self, stream: &str) -> Result<Arc<Payloads>, ReadError> {
        if !self.dump.has(&stream_path(stream)) {
            let reason = self.dump.reason_of(|what| what.contains(stream));
            return Err(format!("the dump has no messages of stream {stream}: {reason}").into());
        }
        Ok(self.stream(stream)?)
    }

    fn stream(&self, name: &str) -> Result<Arc<Payloads>, DumpError> {
        let mut streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(stream) = streams.get(name) {
            return Ok(Arc::clone(stream));
        }
        let wanted = stream_path(name);
        let mut payloads = Payloads::new();
        self.dump.each(
            |path| path == wanted,
            |_, line: MessageLine| {
                payloads.entry(line.subject).or_default().push(line.payload.get().as_bytes().to_owned());
            },
        )?;
        let payloads = Arc::new(payloads);
        streams.insert(name.to_owned(), Arc::clone(&payloads));
        Ok(payloads)
    }
}

/// An error of any reader of messages.
type ReadError = Box<dyn std::error::Error + Send + Sync>;

impl StoredMessages for MessageFiles {
    fn payloads(&self, stream: &str, subject: &str) -> Result<Vec<Vec<u8>>, ReadError> {
        Ok(self.required(stream)?.get(subject).cloned().unwrap_or_default())
    }

    fn subjects(&self, stream: &str) -> Result<Vec<String>, ReadError> {
        Ok(self.required(stream)?.keys().cloned().collect())
    }
}

impl fmt::Debug for MessageFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MessageFiles").field("dump", &self.dump.path()).finish_non_exhaustive()
    }
}
