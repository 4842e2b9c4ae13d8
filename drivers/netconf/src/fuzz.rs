//! What holds for any bytes that a device may send, for the fuzz targets and their corpus.

use crate::dialect::DIALECTS;
use crate::framing::{Decoder, Framing};
use crate::hello::Hello;
use crate::notification::is_foreign_change;
use crate::plan::Inventory;
use crate::reply::{classify, errors};
use crate::text::Text;

/// A stream of bytes gives the same messages, or the same end, however it is split. The first byte says which
/// framing is used, and where it is split.
///
/// # Panics
///
/// When it does not.
pub fn framing(data: &[u8]) {
    let Some((first, bytes)) = data.split_first() else { return };
    let framing = if first % 2 == 0 { Framing::EndOfMessage } else { Framing::Chunked };
    let step = usize::from(first / 2).max(1);
    let whole = decode(framing, [bytes]);
    let parts = decode(framing, bytes.chunks(step));
    assert_eq!(whole, parts, "split every {step} bytes");
    let (messages, broken) = whole;
    // What was read can be written, and is read as the same again.
    let messages: Vec<String> = match framing {
        Framing::EndOfMessage => messages,
        // An empty message has no chunk.
        Framing::Chunked => messages.into_iter().filter(|message| !message.is_empty()).collect(),
    };
    let mut written = Vec::new();
    for message in &messages {
        framing.encode(message, &mut written);
    }
    assert_eq!(decode(framing, [written.as_slice()]), (messages, false), "the stream was broken: {broken}");
}

/// All messages, and whether it then broke.
fn decode<'a>(framing: Framing, parts: impl IntoIterator<Item = &'a [u8]>) -> (Vec<String>, bool) {
    let mut decoder = Decoder::new();
    decoder.switch(framing);
    let mut messages = Vec::new();
    for part in parts {
        decoder.push(part);
        loop {
            match decoder.next() {
                Ok(Some(message)) => messages.push(message.to_string()),
                Ok(None) => break,
                Err(_) => return (messages, true),
            }
        }
    }
    (messages, false)
}

/// No message makes a parser panic, and none takes one for two things.
pub fn xml(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let text = &Text::from(text);
    let _ = (classify(text), errors(text), Hello::parse(text), is_foreign_change(text, Some(1)));
    for dialect in DIALECTS {
        let inventory = dialect.parse_inventory(text).unwrap_or_default();
        for inventory in [&Inventory::new(), &inventory] {
            let _ = dialect.parse(text, inventory);
        }
    }
}
