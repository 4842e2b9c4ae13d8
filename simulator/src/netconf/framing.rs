//! Message framing of RFC 6242: the `]]>]]>` delimiter of base:1.0 and the chunks of base:1.1.
//!
//! [`Decoder`] does no IO. It takes bytes in pieces of any size and returns whole messages.

use bytes::{Buf, BytesMut};

const DELIMITER: &[u8] = b"]]>]]>";
/// Maximum length of a chunk header in bytes: `\n#4294967295\n`.
const MAX_CHUNK_HEADER: usize = 13;

/// The framing of messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// RFC 6242 section 4.3: each message ends with `]]>]]>`.
    EndOfMessage,
    /// RFC 6242 section 4.2: length-prefixed chunks.
    Chunked,
}

/// A framing error; the session must end (RFC 6242 section 4.2).
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum FramingError {
    /// A message exceeds the limit of the decoder.
    #[error("a message is longer than the {limit} bytes this switch accepts")]
    TooLong {
        /// The limit in bytes.
        limit: usize,
    },
    /// The bytes at the position of a chunk header are invalid.
    #[error("malformed chunk header")]
    BadChunkHeader,
    /// `\n##\n` came before any chunk.
    #[error("a chunked message has no chunk")]
    EmptyMessage,
}

/// Splits a byte stream into messages.
#[derive(Debug)]
pub struct Decoder {
    /// The framing of the next message.
    framing: Framing,
    /// Maximum length of a message in bytes.
    limit: usize,
    /// Received bytes that are not decoded yet.
    input: BytesMut,
    /// Bytes of `input` that contain no start of a delimiter.
    searched: usize,
    /// The decoded chunks of the current message.
    message: Vec<u8>,
    /// Missing bytes of the current chunk.
    chunk_left: usize,
    /// Number of chunks of the current message.
    chunks: usize,
}

impl Decoder {
    /// A decoder that starts with [`Framing::EndOfMessage`], as every session does.
    ///
    /// `limit`: the longest message it accepts, in bytes.
    pub fn new(limit: usize) -> Self {
        Self {
            framing: Framing::EndOfMessage,
            limit,
            input: BytesMut::new(),
            searched: 0,
            message: Vec::new(),
            chunk_left: 0,
            chunks: 0,
        }
    }

    /// Sets the framing of the following messages.
    pub fn set_framing(&mut self, framing: Framing) {
        self.framing = framing;
        self.searched = 0;
    }

    /// Adds received bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
    }

    /// Returns the next whole message, or `None` if more bytes are needed.
    pub fn next_message(&mut self) -> Result<Option<Vec<u8>>, FramingError> {
        match self.framing {
            Framing::EndOfMessage => self.next_delimited(),
            Framing::Chunked => self.next_chunked(),
        }
    }

    fn next_delimited(&mut self) -> Result<Option<Vec<u8>>, FramingError> {
        let found = self.input[self.searched..].windows(DELIMITER.len()).position(|w| w == DELIMITER);
        let Some(at) = found.map(|at| at + self.searched) else {
            if self.input.len() > self.limit {
                return Err(FramingError::TooLong { limit: self.limit });
            }
            self.searched = self.input.len().saturating_sub(DELIMITER.len() - 1);
            return Ok(None);
        };
        if at > self.limit {
            return Err(FramingError::TooLong { limit: self.limit });
        }
        let message = self.input.split_to(at).to_vec();
        self.input.advance(DELIMITER.len());
        self.searched = 0;
        Ok(Some(message))
    }

    fn next_chunked(&mut self) -> Result<Option<Vec<u8>>, FramingError> {
        loop {
            if self.chunk_left > 0 {
                let take = self.chunk_left.min(self.input.len());
                self.message.extend_from_slice(&self.input[..take]);
                self.input.advance(take);
                self.chunk_left -= take;
                if self.chunk_left > 0 {
                    return Ok(None);
                }
            }
            match chunk_header(&self.input)? {
                None => return Ok(None),
                Some(Header::Chunk { header, size }) => {
                    if self.message.len() + size > self.limit {
                        return Err(FramingError::TooLong { limit: self.limit });
                    }
                    self.input.advance(header);
                    self.chunk_left = size;
                    self.chunks += 1;
                }
                Some(Header::End { header }) => {
                    if self.chunks == 0 {
                        return Err(FramingError::EmptyMessage);
                    }
                    self.input.advance(header);
                    self.chunks = 0;
                    return Ok(Some(std::mem::take(&mut self.message)));
                }
            }
        }
    }
}

enum Header {
    Chunk { header: usize, size: usize },
    End { header: usize },
}

/// Parses `\n#<1..4294967295>\n` or `\n##\n`. Returns `None` for a valid prefix of them.
fn chunk_header(input: &[u8]) -> Result<Option<Header>, FramingError> {
    for (byte, expected) in input.iter().zip(b"\n#") {
        if byte != expected {
            return Err(FramingError::BadChunkHeader);
        }
    }
    let Some(rest) = input.get(2..) else { return Ok(None) };
    match rest.first() {
        None => Ok(None),
        Some(b'#') => match rest.get(1) {
            None => Ok(None),
            Some(b'\n') => Ok(Some(Header::End { header: 4 })),
            Some(_) => Err(FramingError::BadChunkHeader),
        },
        Some(b'1'..=b'9') => {
            let digits = rest.iter().take_while(|b| b.is_ascii_digit()).count();
            if digits + 3 > MAX_CHUNK_HEADER {
                return Err(FramingError::BadChunkHeader);
            }
            match rest.get(digits) {
                None => Ok(None),
                Some(b'\n') => {
                    let size = rest[..digits].iter().fold(0u64, |n, b| n * 10 + u64::from(b - b'0'));
                    let size = u32::try_from(size).map_err(|_| FramingError::BadChunkHeader)?;
                    let size = usize::try_from(size).map_err(|_| FramingError::BadChunkHeader)?;
                    Ok(Some(Header::Chunk { header: digits + 3, size }))
                }
                Some(_) => Err(FramingError::BadChunkHeader),
            }
        }
        Some(_) => Err(FramingError::BadChunkHeader),
    }
}

/// Frames one outgoing message.
pub fn encode(framing: Framing, message: &str) -> Vec<u8> {
    match framing {
        Framing::EndOfMessage => [message.as_bytes(), DELIMITER].concat(),
        Framing::Chunked => {
            [format!("\n#{}\n", message.len()).as_bytes(), message.as_bytes(), b"\n##\n"].concat()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(framing: Framing, pieces: &[&[u8]]) -> Result<Vec<String>, FramingError> {
        let mut decoder = Decoder::new(64);
        decoder.set_framing(framing);
        let mut messages = Vec::new();
        for piece in pieces {
            decoder.push(piece);
            while let Some(message) = decoder.next_message()? {
                messages.push(String::from_utf8(message).expect("the test sends UTF-8"));
            }
        }
        Ok(messages)
    }

    /// Checks that `wire` decodes to the same messages in any three pieces and byte by byte.
    fn every_split(framing: Framing, wire: &[u8], expected: &[&str]) {
        for first in 0..=wire.len() {
            for second in first..=wire.len() {
                let pieces = [&wire[..first], &wire[first..second], &wire[second..]];
                assert_eq!(decode(framing, &pieces).as_deref(), Ok(expected_vec(expected).as_slice()));
            }
        }
        let bytes: Vec<&[u8]> = wire.chunks(1).collect();
        assert_eq!(decode(framing, &bytes).as_deref(), Ok(expected_vec(expected).as_slice()));
    }

    fn expected_vec(expected: &[&str]) -> Vec<String> {
        expected.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn delimited_messages_survive_every_split() {
        every_split(Framing::EndOfMessage, b"<a/>]]>]]><b>]]]></b>]]>]]>", &["<a/>", "<b>]]]></b>"]);
    }

    #[test]
    fn chunked_messages_survive_every_split() {
        every_split(Framing::Chunked, b"\n#3\n<a>\n#4\n</a>\n##\n\n#4\n\n##\n\n##\n", &["<a></a>", "\n##\n"]);
    }

    #[test]
    fn decoder_returns_encoded_messages() {
        for framing in [Framing::EndOfMessage, Framing::Chunked] {
            every_split(framing, &encode(framing, "<rpc/>"), &["<rpc/>"]);
        }
    }

    #[test]
    fn decoder_refuses_malformed_chunk_headers() {
        let cases: &[&[u8]] = &[
            b"<rpc/>",
            b"\n<",
            b"\n#0\n",
            b"\n#01\nx",
            b"\n#-1\n",
            b"\n#1x\n",
            b"\n#4294967296\n",
            b"\n#99999999999",
            b"\n# 1\n",
            b"\n#1\na#2\nbb",
            b"\n#1\na\n##x",
        ];
        for case in cases {
            assert_eq!(
                decode(Framing::Chunked, &[case]),
                Err(FramingError::BadChunkHeader),
                "{:?}",
                String::from_utf8_lossy(case)
            );
        }
        assert_eq!(decode(Framing::Chunked, &[b"\n##\n"]), Err(FramingError::EmptyMessage));
    }

    #[test]
    fn decoder_refuses_message_over_limit_before_buffering_it() {
        let long = [b'x'; 65];
        assert_eq!(decode(Framing::EndOfMessage, &[&long]), Err(FramingError::TooLong { limit: 64 }));
        assert_eq!(decode(Framing::Chunked, &[b"\n#65\n"]), Err(FramingError::TooLong { limit: 64 }));
        let chunks = b"\n#40\n0123456789012345678901234567890123456789\n#40\n";
        assert_eq!(decode(Framing::Chunked, &[chunks]), Err(FramingError::TooLong { limit: 64 }));
    }
}
