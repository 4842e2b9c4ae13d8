//! Large messages as text. Long texts are kept deflated in blocks.
//!
//! The configuration of a full device is tens of megabytes with few different tags (SR Linux, IEEE 802.1Q: 4,094
//! VLANs on 48 ports are 200,000 entries). Deflated, less than a fiftieth is left. So all code that renders, sends,
//! receives or parses handles whole messages.

use std::fmt;
use std::io::{self, BufRead, Read, Write as _};
use std::sync::Arc;

use eno_sbi::{Memory, Share, TooLarge};
use flate2::Compression;
use flate2::bufread::DeflateDecoder;
use flate2::write::DeflateEncoder;

/// Bytes per block. Shorter texts are not deflated.
const BLOCK: usize = 128 << 10;
/// Replies that wait to be parsed, deflated. The configuration of a full device takes 1 MiB.
static MESSAGES: Memory = Memory::new(8 << 20, 48 << 20);
/// Stands for what could not be read as text.
pub(crate) const REPLACEMENT: &str = "\u{fffd}";

/// A text that is written at its end and read from its start.
#[derive(Clone, Default)]
pub struct Text {
    blocks: Vec<Block>,
    /// The tail, shorter than a block.
    open: String,
    length: usize,
    /// The memory of a text that a device sent.
    shares: Vec<Arc<Share>>,
}

impl PartialEq for Text {
    fn eq(&self, other: &Self) -> bool {
        (&self.blocks, &self.open, self.length) == (&other.blocks, &other.open, other.length)
    }
}

impl Eq for Text {}

#[derive(Clone, PartialEq, Eq)]
enum Block {
    /// Plain text shorter than a block, where two texts were joined.
    Plain(String),
    /// Deflated bytes, and the length before deflating.
    Deflated(Box<[u8]>, usize),
}

impl Text {
    /// The empty text.
    pub fn new() -> Self {
        Self::default()
    }

    /// The length in bytes.
    pub fn len(&self) -> usize {
        self.length
    }

    /// True when the text is empty.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Appends `more`.
    pub fn push_str(&mut self, mut more: &str) {
        self.length += more.len();
        while self.open.len() + more.len() >= BLOCK {
            let (now, later) = more.split_at(more.floor_char_boundary(BLOCK.saturating_sub(self.open.len())));
            self.open.push_str(now);
            more = later;
            self.deflate();
        }
        self.open.push_str(more);
    }

    /// Appends `more` without copying its blocks.
    pub fn append(&mut self, more: Self) {
        self.shares.extend(more.shares);
        if more.blocks.is_empty() {
            self.push_str(&more.open);
            return;
        }
        if !self.open.is_empty() {
            self.blocks.push(Block::Plain(std::mem::take(&mut self.open)));
        }
        self.blocks.extend(more.blocks);
        self.open = more.open;
        self.length += more.length;
    }

    /// Writing to memory does not fail; if it does, the block stays plain.
    fn deflate(&mut self) {
        let mut encoder = DeflateEncoder::new(Vec::new(), Compression::fast());
        let deflated = encoder.write_all(self.open.as_bytes()).and_then(|()| encoder.finish());
        let block = match deflated {
            Ok(bytes) => Block::Deflated(bytes.into_boxed_slice(), self.open.len()),
            Err(_) => Block::Plain(self.open.clone()),
        };
        self.blocks.push(block);
        self.open.clear();
    }

    /// The bytes of its blocks in memory.
    fn kept(&self) -> usize {
        let blocks = self.blocks.iter().map(|block| match block {
            Block::Plain(text) => text.len(),
            Block::Deflated(bytes, _) => bytes.len(),
        });
        blocks.sum()
    }

    /// The text in parts, in order.
    pub fn parts(&self) -> impl Iterator<Item = std::borrow::Cow<'_, str>> {
        let blocks = self.blocks.iter().map(|block| match block {
            Block::Plain(text) => text.as_str().into(),
            Block::Deflated(bytes, length) => inflate(bytes, *length).into(),
        });
        blocks.chain((!self.open.is_empty()).then(|| self.open.as_str().into()))
    }

    /// A reader of the text's bytes.
    pub(crate) fn reader(&self) -> Reader<'_, impl Iterator<Item = std::borrow::Cow<'_, str>>> {
        Reader { parts: self.parts(), part: std::borrow::Cow::Borrowed(""), at: 0, taken: 0 }
    }

    /// Whether the text contains the short `word`.
    pub fn contains(&self, word: &str) -> bool {
        let mut last = String::new();
        self.parts().any(|part| {
            // A word may span two parts.
            let head = part.floor_char_boundary(word.len());
            last.push_str(&part[..head]);
            let found = part.contains(word) || last.contains(word);
            let kept = if head < part.len() { part.as_ref() } else { last.as_str() };
            let from = kept.floor_char_boundary(kept.len().saturating_sub(word.len()));
            last = String::from(&kept[from..]);
            found
        })
    }
}

/// Inflates a block that [`Text::deflate`] made.
fn inflate(bytes: &[u8], length: usize) -> String {
    let mut text = String::with_capacity(length);
    let inflated = DeflateDecoder::new(bytes).read_to_string(&mut text);
    debug_assert!(inflated.is_ok(), "{inflated:?}");
    text
}

impl fmt::Write for Text {
    fn write_str(&mut self, more: &str) -> fmt::Result {
        self.push_str(more);
        Ok(())
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        let mut all = Self::new();
        all.push_str(text);
        all
    }
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        if text.len() < BLOCK {
            return Self { length: text.len(), open: text, ..Self::new() };
        }
        Self::from(text.as_str())
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.parts().try_for_each(|part| f.write_str(&part))
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.blocks.is_empty() { self.open.fmt(f) } else { write!(f, "{} bytes of text", self.length) }
    }
}

/// A line of at most `max` bytes of what a device said, for a status.
pub(crate) fn excerpt(text: &str, max: usize) -> String {
    eno_schemas::Text::at_most(text, max).into()
}

/// Maximum bytes of a tag, a text or a comment, each of which a parser keeps whole.
pub(crate) const LONGEST_EVENT: usize = 1 << 20;

/// Reads a text part by part. It fails within an event of XML that is too long.
pub(crate) struct Reader<'a, P> {
    parts: P,
    part: std::borrow::Cow<'a, str>,
    at: usize,
    /// Bytes since the last event began.
    taken: usize,
}

impl<P> Reader<'_, P> {
    /// The next bytes are of another event.
    pub(crate) fn next_event(&mut self) {
        self.taken = 0;
    }
}

impl<'a, P: Iterator<Item = std::borrow::Cow<'a, str>>> BufRead for Reader<'a, P> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.taken > LONGEST_EVENT {
            return Err(io::Error::other("a tag or a text is longer than 1 MiB"));
        }
        while self.at == self.part.len()
            && let Some(next) = self.parts.next()
        {
            (self.part, self.at) = (next, 0);
        }
        Ok(&self.part.as_bytes()[self.at..])
    }

    fn consume(&mut self, amount: usize) {
        self.at = (self.at + amount).min(self.part.len());
        self.taken += amount;
    }
}

impl<'a, P: Iterator<Item = std::borrow::Cow<'a, str>>> Read for Reader<'a, P> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.fill_buf()?.read(buffer)?;
        self.consume(read);
        Ok(read)
    }
}

/// A text that arrives as bytes, split anywhere. It is decoded as its XML declaration says, otherwise as UTF-8. Bytes
/// that are no UTF-8 become U+FFFD: devices keep descriptions as somebody typed them.
#[derive(Debug, Default)]
pub(crate) struct Incoming {
    text: Text,
    bytes: Vec<u8>,
    /// `None`: nothing was decoded yet.
    encoding: Option<Encoding>,
    /// What was kept at the last count, and its memory.
    share: Option<(usize, Share)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Encoding {
    Utf8,
    Latin1,
}

impl Encoding {
    /// The encoding that the XML declaration at the start of `bytes` names.
    fn declared(bytes: &[u8]) -> Self {
        const LATIN_1: [&str; 4] = ["iso-8859-1", "iso_8859-1", "latin1", "windows-1252"];
        let start = String::from_utf8_lossy(&bytes[..bytes.len().min(256)]).to_ascii_lowercase();
        let declaration = start.trim_start().strip_prefix("<?xml").and_then(|rest| rest.split("?>").next());
        let name = declaration
            .and_then(|declaration| declaration.split_once("encoding"))
            .map(|(_, rest)| rest.trim_start_matches(|c: char| c.is_whitespace() || "='\"".contains(c)));
        match name {
            Some(name) if LATIN_1.iter().any(|known| name.starts_with(known)) => Self::Latin1,
            _ => Self::Utf8,
        }
    }
}

impl Incoming {
    /// The bytes so far.
    pub(crate) fn len(&self) -> usize {
        self.text.len() + self.bytes.len()
    }

    /// Appends bytes. Fails when the text, deflated, is more than may be kept.
    pub(crate) fn push(&mut self, mut bytes: &[u8]) -> Result<(), TooLarge> {
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(BLOCK));
            self.bytes.extend_from_slice(now);
            bytes = later;
            if self.bytes.len() >= BLOCK {
                self.decode();
                let (counted, share) = self.share.get_or_insert_with(|| (0, MESSAGES.share()));
                let kept = self.text.kept();
                share.add(kept - *counted)?;
                *counted = kept;
            }
        }
        Ok(())
    }

    /// Decodes all bytes but those of an incomplete character at the end.
    fn decode(&mut self) {
        let encoding = *self.encoding.get_or_insert_with(|| Encoding::declared(&self.bytes));
        let bytes = std::mem::take(&mut self.bytes);
        if encoding == Encoding::Latin1 {
            self.text.push_str(&bytes.iter().map(|byte| char::from(*byte)).collect::<String>());
            return;
        }
        let mut rest = &*bytes;
        while let Err(error) = std::str::from_utf8(rest) {
            let (valid, after) = rest.split_at(error.valid_up_to());
            self.text.push_str(&String::from_utf8_lossy(valid));
            let Some(invalid) = error.error_len() else {
                self.bytes = after.to_vec();
                return;
            };
            self.text.push_str(REPLACEMENT);
            rest = &after[invalid..];
        }
        self.text.push_str(&String::from_utf8_lossy(rest));
    }

    /// Returns the text and starts a new one.
    pub(crate) fn finish(&mut self) -> Text {
        self.decode();
        let Self { mut text, bytes, share, .. } = std::mem::take(self);
        text.shares.extend(share.map(|(_, share)| Arc::new(share)));
        if !bytes.is_empty() {
            text.push_str(REPLACEMENT);
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;

    fn long() -> String {
        (0..40_000).fold(String::new(), |mut all, number| {
            let _ = write!(all, "<é>{number}</é>");
            all
        })
    }

    #[test]
    fn text_round_trips() {
        let long = long();
        assert!(long.len() > 3 * BLOCK);
        for text in ["", "<a/>", &long[..BLOCK - 1], &long[..=BLOCK], &long] {
            let whole = Text::from(text);
            assert_eq!(whole.len(), text.len());
            assert_eq!(whole.to_string(), text);
            let mut parts = Text::new();
            for part in text.split_inclusive('>') {
                parts.push_str(part);
            }
            assert_eq!(parts.to_string(), text);
            let mut read = String::new();
            whole.reader().read_to_string(&mut read).unwrap();
            assert_eq!(read, text);
            let mut joined = Text::from("<x>");
            joined.append(whole);
            joined.push_str("</x>");
            assert_eq!(joined.to_string(), format!("<x>{text}</x>"));
            assert_eq!(joined.len(), text.len() + 7);
        }
        let kept = Text::from(long.as_str()).kept();
        assert!(kept * 4 < long.len(), "{kept} of {}", long.len());
    }

    #[test]
    fn search_spans_block_boundaries() {
        let text = Text::from(long());
        let ends: Vec<usize> = text
            .parts()
            .scan(0, |end, part| {
                *end += part.len();
                Some(*end)
            })
            .collect();
        let (all, end) = (text.to_string(), ends[0]);
        for from in end - 12..=end {
            let from = all.floor_char_boundary(from);
            let word = &all[from..all.floor_char_boundary(from + 12)];
            assert!(text.contains(word), "{word}");
        }
        assert!(!text.contains("<40000>"));
        let mut joined = Text::from(long());
        joined.append(Text::from("</rpc-"));
        joined.append(Text::from("error>"));
        assert!(joined.contains("rpc-error"));
    }

    #[test]
    fn utf8_may_be_split_at_any_byte() {
        let long = long();
        let mut incoming = Incoming::default();
        for part in long.as_bytes().chunks(1021) {
            incoming.push(part).unwrap();
        }
        assert_eq!(incoming.len(), long.len());
        assert_eq!(incoming.finish().to_string(), long);
    }

    #[test]
    fn bytes_are_decoded_as_declared_or_with_replacements() {
        let decoded = |bytes: &[u8]| {
            let mut whole = Incoming::default();
            whole.push(bytes).unwrap();
            let whole = whole.finish().to_string();
            let mut singly = Incoming::default();
            bytes.chunks(1).for_each(|byte| singly.push(byte).unwrap());
            assert_eq!(singly.finish().to_string(), whole);
            whole
        };
        let latin_1 = |declaration: &str| [declaration.as_bytes(), b"<d>Z\xfcrich</d>"].concat();
        for (declaration, expected) in [
            ("", "Z\u{fffd}rich"),
            ("<?xml version=\"1.0\"?>", "Z\u{fffd}rich"),
            ("<?xml version=\"1.0\" encoding=\"UTF-8\"?>", "Z\u{fffd}rich"),
            ("<?xml version=\"1.0\" encoding=\"ISO-8859-1\"?>", "Zürich"),
            ("\n<?xml version='1.0' encoding = 'iso-8859-1' ?>", "Zürich"),
        ] {
            assert_eq!(
                decoded(&latin_1(declaration)),
                format!("{declaration}<d>{expected}</d>"),
                "{declaration}"
            );
        }
        assert_eq!(decoded("é".as_bytes()), "é");
        assert_eq!(decoded(&"é".as_bytes()[..1]), "\u{fffd}");
        assert_eq!(decoded(b"\xe9a\xff"), "\u{fffd}a\u{fffd}");
        let long = [long().as_bytes(), b"\xfc", long().as_bytes()].concat();
        let mut incoming = Incoming::default();
        long.chunks(1021).for_each(|part| incoming.push(part).unwrap());
        assert_eq!(incoming.finish().to_string(), String::from_utf8_lossy(&long));
    }

    #[test]
    fn excerpts_are_single_lines() {
        assert_eq!(excerpt("\n a\t\u{1b}[0m b\r\n", 20), "a \u{fffd}[0m b");
        assert_eq!(excerpt("äöü äöü", 12), "äöü ä…");
        assert_eq!(excerpt("", 5), "");
    }
}
