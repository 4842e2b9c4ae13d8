//! Splits a stream of JSON texts without lengths or separators into messages (RFC 7047 section 4).

use std::sync::atomic::AtomicUsize;

use crate::memory::{ENTRY, MAP, Size, VALUE};

/// The stream is not one of JSON objects, or a message is too long.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FramingError {
    /// A byte that starts no message.
    #[error("byte 0x{0:02x} where a JSON object should start")]
    Stray(u8),
    /// A message longer than the limit.
    #[error("a message of more than {limit} bytes")]
    TooLong {
        /// Limit in bytes.
        limit: usize,
    },
    /// A message of too many values.
    #[error("a message that takes more than {limit} bytes once it is parsed")]
    TooManyValues {
        /// Limit in bytes.
        limit: usize,
    },
}

/// The bytes that all connections of the process have received and not handled.
static ALL: AtomicUsize = AtomicUsize::new(0);
/// Maximum of them.
const MAX_BUFFERED: usize = 32 << 20;

/// Bytes that stay allocated between messages: the first copy of a database is large, later updates are not.
const RETAINED_BYTES: usize = 256 << 10;

/// Splits a byte stream into JSON objects. It scans each byte once and tracks only the depth of brackets and
/// whether it is inside a string. The JSON parser checks the content.
#[derive(Debug)]
pub struct Decoder {
    /// Received bytes without complete messages.
    buffer: Vec<u8>,
    /// Number of scanned bytes of `buffer`.
    scanned: usize,
    /// Start of the message that is being scanned.
    start: usize,
    /// Depth of open brackets.
    depth: usize,
    /// Whether the scan is inside a string.
    string: InString,
    /// Maximum bytes of a message.
    limit: usize,
    /// The bytes of `buffer`.
    size: Size,
    /// Bytes that the message so far takes once it is parsed.
    parsed: usize,
    /// Maximum bytes of a parsed message.
    max_parsed: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InString {
    No,
    Yes,
    AfterBackslash,
}

impl Decoder {
    /// Accepts messages of up to `limit` bytes, and of up to `max_parsed` bytes once they are parsed.
    pub fn new(limit: usize, max_parsed: usize) -> Self {
        Self {
            buffer: Vec::new(),
            scanned: 0,
            start: 0,
            depth: 0,
            string: InString::No,
            limit,
            size: Size::new(&ALL),
            parsed: 0,
            max_parsed,
        }
    }

    /// Appends bytes of the stream.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.drain(..self.start);
        self.scanned -= self.start;
        self.start = 0;
        if self.buffer.is_empty() && self.buffer.capacity() > RETAINED_BYTES {
            self.buffer = Vec::new();
        }
        self.buffer.extend_from_slice(bytes);
        self.size.remove(self.size.bytes());
        self.size.add(self.buffer.len());
    }

    /// True inside a message.
    pub fn in_message(&self) -> bool {
        self.depth > 0
    }

    /// The next complete message, if there is one.
    pub fn next(&mut self) -> Result<Option<&[u8]>, FramingError> {
        while let Some(&byte) = self.buffer.get(self.scanned) {
            if self.depth == 0 {
                match byte {
                    b' ' | b'\t' | b'\r' | b'\n' => self.start = self.scanned + 1,
                    b'{' => (self.depth, self.parsed) = (1, MAP),
                    stray => return Err(FramingError::Stray(stray)),
                }
                self.scanned += 1;
                continue;
            }
            self.scanned += 1;
            match (self.string, byte) {
                (InString::No, b'{') => {
                    self.depth += 1;
                    self.parsed += VALUE + MAP;
                }
                (InString::No, b'[') => {
                    self.depth += 1;
                    self.parsed += VALUE;
                }
                (InString::No, b',') => self.parsed += VALUE,
                (InString::No, b':') => self.parsed += ENTRY,
                (InString::No, b'}' | b']') => self.depth -= 1,
                (InString::No, b'"') | (InString::AfterBackslash, _) => self.string = InString::Yes,
                (InString::Yes, b'\\') => self.string = InString::AfterBackslash,
                (InString::Yes, b'"') => self.string = InString::No,
                (InString::No | InString::Yes, _) => {}
            }
            if self.scanned - self.start > self.limit {
                return Err(FramingError::TooLong { limit: self.limit });
            }
            if self.parsed > self.max_parsed {
                return Err(FramingError::TooManyValues { limit: self.max_parsed });
            }
            if self.depth == 0 {
                let message = self.start..self.scanned;
                self.start = self.scanned;
                return Ok(Some(&self.buffer[message]));
            }
        }
        if self.size.is_one_of_too_many(MAX_BUFFERED) {
            return Err(FramingError::TooLong { limit: MAX_BUFFERED });
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn decode(chunks: &[&[u8]], limit: usize) -> Result<Vec<String>, FramingError> {
        let mut decoder = Decoder::new(limit, usize::MAX);
        let mut messages = Vec::new();
        for chunk in chunks {
            decoder.push(chunk);
            while let Some(message) = decoder.next()? {
                messages.push(String::from_utf8_lossy(message).into_owned());
            }
        }
        Ok(messages)
    }

    #[test]
    fn messages_decode_identically_for_every_three_way_split() {
        let one = r#"{"a":"}\"]\\","b":[{"c":"é\u005d"},[]]}"#;
        let two = r#"{"x":{}}"#;
        let stream = format!(" {one}{two}\n{two}\t");
        let bytes = stream.as_bytes();
        for first in 0..=bytes.len() {
            for second in first..=bytes.len() {
                let chunks = [&bytes[..first], &bytes[first..second], &bytes[second..]];
                assert_eq!(decode(&chunks, 1000).unwrap(), [one, two, two], "{first} {second}");
            }
        }
    }

    #[test]
    fn message_that_starts_no_object_is_refused() {
        for (stream, stray) in [("x", b'x'), ("[1]", b'['), ("{} }", b'}'), ("{}\"", b'"'), ("\0", 0)] {
            assert_eq!(decode(&[stream.as_bytes()], 100), Err(FramingError::Stray(stray)), "{stream:?}");
        }
    }

    #[test]
    fn mismatched_brackets_yield_an_invalid_json_message() {
        let messages = decode(&[b"{]{\"a\":}"], 100).unwrap();
        assert_eq!(messages, ["{]", "{\"a\":}"]);
        assert!(messages.iter().all(|message| serde_json::from_str::<Value>(message).is_err()));
    }

    #[test]
    fn message_size_is_bounded() {
        let exactly = format!("{{{}}}", " ".repeat(98));
        assert_eq!(decode(&[exactly.as_bytes(), exactly.as_bytes()], 100).unwrap().len(), 2);
        let endless = format!("{{\"{}", "a".repeat(200));
        assert_eq!(decode(&[endless.as_bytes()], 100), Err(FramingError::TooLong { limit: 100 }));
        let deep = "{".repeat(200);
        assert_eq!(decode(&[deep.as_bytes()], 100), Err(FramingError::TooLong { limit: 100 }));
    }

    #[test]
    fn memory_of_parsed_messages_is_bounded() {
        let limit = MAP + ENTRY + 100 * VALUE;
        let decode = |text: &str| {
            let mut decoder = Decoder::new(usize::MAX, limit);
            decoder.push(text.as_bytes());
            decoder.next().map(|message| message.map(<[u8]>::len))
        };
        let list = |values: usize| format!("{{\"a\":[{}0]}}", "0,".repeat(values - 1));
        assert_eq!(decode(&list(100)).unwrap(), Some(list(100).len()));
        let text = format!("{{\"a\":\"{}\"}}", ",[{:".repeat(2000));
        assert_eq!(decode(&text).unwrap(), Some(text.len()));
        let maps = format!("{{\"a\":[{}0]}}", "{},".repeat(10));
        for more in [list(101), maps] {
            assert_eq!(decode(&more), Err(FramingError::TooManyValues { limit }));
        }
    }

    proptest! {
        #[test]
        fn random_messages_decode_for_random_splits(texts in proptest::collection::vec(any::<String>(), 1..6), size in 1usize..9) {
            let written: Vec<String> = texts.iter().map(|text| json!({text: [text, {"k": text}]}).to_string()).collect();
            let stream = written.concat();
            let chunks: Vec<&[u8]> = stream.as_bytes().chunks(size).collect();
            prop_assert_eq!(decode(&chunks, 1 << 20).unwrap(), written);
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), size in 1usize..9) {
            let chunks: Vec<&[u8]> = bytes.chunks(size).collect();
            let _ = decode(&chunks, 50);
        }
    }
}
