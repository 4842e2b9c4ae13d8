//! Properties of any bytes that a device may send, for the fuzz targets and their corpus.

use eno_schemas::{Device, FabricDesired, FabricVlans};

use crate::bgp_sessions::WantedSessions;
use crate::dialect::DIALECTS;
use crate::framing::{Decoder, Framing};
use crate::hello::Hello;
use crate::notification::is_foreign_change;
use crate::plan::Inventory;
use crate::reply::{classify, errors};
use crate::stations::Wanted;
use crate::text::Incoming;

/// A stream of bytes decodes to the same messages and the same end, however it is split. The first byte selects the
/// framing and the length of the parts.
///
/// # Panics
///
/// When the property does not hold.
pub fn framing(data: &[u8]) {
    let Some((first, bytes)) = data.split_first() else { return };
    let framing = if first % 2 == 0 { Framing::EndOfMessage } else { Framing::Chunked };
    let step = usize::from(first / 2).max(1);
    let whole = decode(framing, [bytes]);
    let parts = decode(framing, bytes.chunks(step));
    assert_eq!(whole, parts, "split every {step} bytes");
    let (messages, broken) = whole;
    // Decoded messages are the same after encoding and decoding.
    let messages: Vec<String> = match framing {
        Framing::EndOfMessage => messages,
        // An empty message has no chunk.
        Framing::Chunked => messages.into_iter().filter(|message| !message.is_empty()).collect(),
    };
    // A declaration names the encoding of the device's bytes.
    let messages: Vec<String> = messages.into_iter().filter(|message| !message.contains("<?xml")).collect();
    let mut written = Vec::new();
    for message in &messages {
        framing.encode(message, &mut written);
    }
    assert_eq!(decode(framing, [written.as_slice()]), (messages, false), "the stream was broken: {broken}");
}

/// All messages, and whether the framing broke after them.
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

/// No message makes a parser panic.
pub fn xml(data: &[u8]) {
    let mut incoming = Incoming::default();
    if incoming.push(data).is_err() {
        return;
    }
    let text = &incoming.finish();
    let _ = (classify(text), errors(text), Hello::parse(text), is_foreign_change(text, Some(1)));
    let desired = FabricDesired {
        cluster: "c".into(),
        cluster_uid: None,
        device: Device::new(""),
        vrfs: Vec::new(),
        vlans: FabricVlans::new(),
        ports: Vec::new(),
        lookup: None,
    };
    for dialect in DIALECTS {
        let _ = dialect.mac_table().map(|table| table.parse_mac_table(text, &Wanted::of(&desired)));
        let _ = dialect
            .bgp()
            .map(|bgp| (bgp.parse_bgp(text, "c"), bgp.parse_sessions(text, &WantedSessions::default())));
        let inventory = dialect.parse_inventory(text).unwrap_or_default();
        for inventory in [&Inventory::new(), &inventory] {
            let _ = dialect.parse(text, inventory);
        }
    }
}
