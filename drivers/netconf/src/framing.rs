//! Message framing (RFC 6242 sections 4.2 and 4.3).

use eno_sbi::TooLarge;

use crate::text::{Incoming, Text};

/// The end of a message before chunked framing.
const END_OF_MESSAGE: &[u8] = b"]]>]]>";
/// Maximum bytes of a message from a device. The configuration of a full device has 60 MiB.
const LONGEST_MESSAGE: usize = 128 << 20;
/// Maximum bytes of a `<hello>`, which is kept.
const LONGEST_HELLO: usize = 2 << 20;

/// The framing of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    /// `]]>]]>` after each: the `<hello>`, and all of NETCONF 1.0.
    EndOfMessage,
    /// Chunks with their length before them: NETCONF 1.1 after the `<hello>`.
    Chunked,
}

impl Framing {
    /// Appends `message` with its frame.
    pub(crate) fn encode(self, message: &str, out: &mut Vec<u8>) {
        self.part(message, out);
        self.end(out);
    }

    /// Appends a part of a message, which is not empty.
    pub(crate) fn part(self, part: &str, out: &mut Vec<u8>) {
        if self == Self::Chunked {
            out.extend_from_slice(format!("\n#{}\n", part.len()).as_bytes());
        }
        out.extend_from_slice(part.as_bytes());
    }

    /// Appends the end of a message.
    pub(crate) fn end(self, out: &mut Vec<u8>) {
        out.extend_from_slice(match self {
            Self::EndOfMessage => END_OF_MESSAGE,
            Self::Chunked => b"\n##\n",
        });
    }
}

/// Bytes that violate the framing. The session can't go on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FramingError {
    /// Other bytes in place of `
    /// #<length>
    /// ` or `
    /// ##
    /// `.
    #[error("bad chunk header")]
    Header,
    /// A message above the maximum.
    #[error("it sends a message of more than {} MiB", limit >> 20)]
    TooLong {
        /// The maximum in bytes.
        limit: usize,
    },
    /// A message that takes too much memory.
    #[error(transparent)]
    TooLarge(#[from] TooLarge),
}

/// Splits incoming bytes into messages. Each byte is examined once, however the bytes are split.
#[derive(Debug)]
pub(crate) struct Decoder {
    framing: Framing,
    /// Bytes that were not examined yet, or may be part of a frame.
    input: Vec<u8>,
    /// The message so far.
    message: Incoming,
    /// Chunked framing: the bytes that the current chunk still lacks.
    missing: usize,
    /// Maximum bytes of a message.
    longest: usize,
}

impl Decoder {
    pub(crate) fn new() -> Self {
        Self {
            framing: Framing::EndOfMessage,
            input: Vec::new(),
            message: Incoming::default(),
            missing: 0,
            longest: LONGEST_HELLO,
        }
    }

    /// Switches the framing after the `<hello>`, also for buffered bytes.
    pub(crate) fn switch(&mut self, framing: Framing) {
        (self.framing, self.longest) = (framing, LONGEST_MESSAGE);
    }

    /// Appends received bytes.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
    }

    /// The next whole message; `None`: more bytes are needed.
    pub(crate) fn next(&mut self) -> Result<Option<Text>, FramingError> {
        let complete = match self.framing {
            Framing::EndOfMessage => self.end_of_message()?,
            Framing::Chunked => self.chunked()?,
        };
        Ok(complete.then(|| self.message.finish()))
    }

    /// The bytes that are no whole message yet, as text.
    pub(crate) fn rest(&mut self) -> Text {
        let rest = std::mem::take(&mut self.input);
        // The start is there also when the rest is too long.
        let _ = self.message.push(&rest);
        self.message.finish()
    }

    /// Whether so many further bytes of the message are allowed.
    fn check(&self, more: usize) -> Result<(), FramingError> {
        let limit = self.longest;
        if self.message.len() + more > limit { Err(FramingError::TooLong { limit }) } else { Ok(()) }
    }

    fn end_of_message(&mut self) -> Result<bool, FramingError> {
        let found = self.input.windows(END_OF_MESSAGE.len()).position(|w| w == END_OF_MESSAGE);
        // The last bytes may be the start of an end marker.
        let certain = self.input.len().saturating_sub(END_OF_MESSAGE.len() - 1);
        let (content, taken) = found.map_or((certain, certain), |at| (at, at + END_OF_MESSAGE.len()));
        self.message.push(&self.input[..content])?;
        self.input.drain(..taken);
        self.check(0)?;
        Ok(found.is_some())
    }

    fn chunked(&mut self) -> Result<bool, FramingError> {
        let mut at = 0;
        let complete = loop {
            if self.missing > 0 {
                let taken = self.missing.min(self.input.len() - at);
                self.message.push(&self.input[at..at + taken])?;
                at += taken;
                self.missing -= taken;
                if self.missing > 0 {
                    break false;
                }
            }
            if self.message.len() == 0 {
                at += superfluous(&self.input[at..]);
            }
            match header(&self.input[at..])? {
                Header::Incomplete => break false,
                Header::End(length) => {
                    if self.message.len() == 0 {
                        return Err(FramingError::Header);
                    }
                    at += length;
                    break true;
                }
                Header::Chunk { header, size } => {
                    at += header;
                    self.missing = size;
                    self.check(size)?;
                }
            }
        };
        self.input.drain(..at);
        Ok(complete)
    }
}

/// The length of white space before the line feed of the first chunk of a message. Some devices end a message with one
/// line feed more.
fn superfluous(bytes: &[u8]) -> usize {
    let blank = bytes.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
    match bytes[..blank].last() {
        Some(b'\n') => blank - 1,
        _ if blank == bytes.len() => blank,
        _ => 0,
    }
}

enum Header {
    Incomplete,
    Chunk { header: usize, size: usize },
    End(usize),
}

fn header(bytes: &[u8]) -> Result<Header, FramingError> {
    for (at, expected) in [b'\n', b'#'].into_iter().enumerate() {
        match bytes.get(at) {
            None => return Ok(Header::Incomplete),
            Some(byte) if *byte == expected => {}
            Some(_) => return Err(FramingError::Header),
        }
    }
    let mut size = 0_usize;
    // A chunk size has at most 10 digits and no leading 0.
    for (at, byte) in bytes.iter().enumerate().skip(2).take(11) {
        match byte {
            b'#' if at == 2 => {
                return match bytes.get(3) {
                    None => Ok(Header::Incomplete),
                    Some(b'\n') => Ok(Header::End(4)),
                    Some(_) => Err(FramingError::Header),
                };
            }
            b'\n' if at > 2 => return Ok(Header::Chunk { header: at + 1, size }),
            b'0' if at == 2 => return Err(FramingError::Header),
            b'0'..=b'9' => size = size * 10 + usize::from(byte - b'0'),
            _ => return Err(FramingError::Header),
        }
    }
    if bytes.len() > 12 { Err(FramingError::Header) } else { Ok(Header::Incomplete) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(framing: Framing, parts: &[&[u8]]) -> Result<Vec<String>, FramingError> {
        let mut decoder = Decoder::new();
        decoder.switch(framing);
        let mut messages = Vec::new();
        for part in parts {
            decoder.push(part);
            while let Some(message) = decoder.next()? {
                messages.push(message.to_string());
            }
        }
        Ok(messages)
    }

    #[test]
    fn every_split_decodes_the_same() {
        let sent = ["<a>]]>]] é</a>", "b", "<c>\n#3\n##\n</c>"];
        for framing in [Framing::EndOfMessage, Framing::Chunked] {
            let mut bytes = Vec::new();
            for message in sent {
                framing.encode(message, &mut bytes);
            }
            for first in 0..=bytes.len() {
                for second in first..=bytes.len() {
                    let parts = [&bytes[..first], &bytes[first..second], &bytes[second..]];
                    assert_eq!(decode(framing, &parts).unwrap(), sent, "{framing:?} {first} {second}");
                }
            }
            let single: Vec<&[u8]> = bytes.chunks(1).collect();
            assert_eq!(decode(framing, &single).unwrap(), sent);
        }
    }

    #[test]
    fn chunks_are_joined_into_one_message() {
        assert_eq!(decode(Framing::Chunked, &[b"\n#4\n<rpc\n#1\n>\n##\n"]).unwrap(), ["<rpc>"]);
    }

    #[test]
    fn malformed_chunk_header_is_an_error() {
        for bad in [
            &b"<rpc/>"[..],
            b"\n<",
            b"\n#0\n",
            b"\n#01\n",
            b"\n#x\n",
            b"\n#\n",
            b"\n##x",
            b"\n##\n",
            b"\n#12345678901\n",
            b"\n#4294967295\n",
        ] {
            assert!(decode(Framing::Chunked, &[bad]).is_err(), "{}", String::from_utf8_lossy(bad));
        }
    }

    #[test]
    fn white_space_between_messages_is_skipped() {
        let sent = b"\n#1\na\n##\n\n\n#1\nb\n##\n\r\n \n#1\nc\n##\n\n";
        for split in 0..sent.len() {
            let parts = [&sent[..split], &sent[split..]];
            assert_eq!(decode(Framing::Chunked, &parts).unwrap(), ["a", "b", "c"], "{split}");
        }
        assert!(decode(Framing::Chunked, &[b"\n#1\na\n\n##\n"]).is_err());
    }

    #[test]
    fn chunks_after_hello_in_same_read_are_decoded() {
        let mut decoder = Decoder::new();
        decoder.push(b"<hello/>]]>]]>\n#1\nx\n##\n");
        assert_eq!(decoder.next().unwrap(), Some("<hello/>".into()));
        decoder.switch(Framing::Chunked);
        assert_eq!(decoder.next().unwrap(), Some("x".into()));
    }
}
