//! Parses frames of the NATS client protocol as far as needed for their ends and subjects.

use bytes::{Bytes, BytesMut};

/// Maximum bytes of a line; the server's limit is 4 KiB, and its INFO line is longer.
const LINE: usize = 64 * 1024;

/// One frame, in either direction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Frame {
    /// The whole frame.
    pub(super) bytes: Bytes,
    /// The subject of a message: of `PUB` and `HPUB`, `MSG` and `HMSG`.
    pub(super) subject: Option<String>,
    /// The reply subject.
    pub(super) reply: Option<String>,
}

impl Frame {
    /// The JSON payload of a message.
    pub(super) fn text(&self) -> String {
        let begin = self.bytes.iter().position(|byte| *byte == b'{').unwrap_or(self.bytes.len());
        String::from_utf8_lossy(&self.bytes[begin..]).trim_end().to_owned()
    }
}

/// The bytes are no frame of the NATS protocol; maybe TLS.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("not a frame of the NATS protocol: {0:?}")]
pub(super) struct FrameError(String);

/// Removes the first frame from the buffer, once it is complete.
pub(super) fn take(buffer: &mut BytesMut) -> Result<Option<Frame>, FrameError> {
    let bad =
        |buffer: &[u8]| FrameError(String::from_utf8_lossy(&buffer[..buffer.len().min(60)]).into_owned());
    let Some(end) = buffer.windows(2).position(|two| two == b"\r\n") else {
        return if buffer.len() > LINE { Err(bad(buffer)) } else { Ok(None) };
    };
    let line = std::str::from_utf8(&buffer[..end]).map_err(|_| bad(buffer))?;
    let fields: Vec<&str> = line.split_ascii_whitespace().collect();
    // The number of fields of a message with a reply subject; `None`: a frame without payload.
    let shape = match fields.first().map(|word| word.to_ascii_uppercase()).as_deref() {
        Some("PUB") => Some(4),
        Some("HPUB" | "MSG") => Some(5),
        Some("HMSG") => Some(6),
        Some("INFO" | "CONNECT" | "PING" | "PONG" | "SUB" | "UNSUB" | "+OK" | "-ERR") => None,
        _ => return Err(bad(buffer)),
    };
    let Some(with_reply) = shape else {
        return Ok(Some(Frame { bytes: buffer.split_to(end + 2).freeze(), subject: None, reply: None }));
    };
    let size: usize = fields.last().and_then(|size| size.parse().ok()).ok_or_else(|| bad(buffer))?;
    let from_server = fields[0].to_ascii_uppercase().ends_with("MSG");
    let subject = fields.get(1).map(|subject| (*subject).to_owned());
    let reply = fields.get(if from_server { 3 } else { 2 }).filter(|_| fields.len() == with_reply);
    let reply = reply.map(|reply| (*reply).to_owned());
    let frame_length = end + 2 + size + 2;
    if buffer.len() < frame_length {
        return Ok(None);
    }
    Ok(Some(Frame { bytes: buffer.split_to(frame_length).freeze(), subject, reply }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &str) -> Vec<(usize, Option<String>, Option<String>)> {
        let mut buffer = BytesMut::from(text);
        let mut found = Vec::new();
        while let Some(frame) = take(&mut buffer).expect("NATS") {
            found.push((frame.bytes.len(), frame.subject, frame.reply));
        }
        assert!(buffer.is_empty(), "{buffer:?} is left");
        found
    }

    #[test]
    fn frame_ends_are_found_in_a_byte_stream() {
        let some = |text: &str| Some(text.to_owned());
        let text = "PING\r\nPUB a.b 5\r\nx\r\ny!\r\nPUB a.b _INBOX.1 0\r\n\r\nHPUB a c 12 14\r\nNATS/1.0\r\n\r\nhi\r\n";
        let found = all(text);
        assert_eq!(found[1].1, some("a.b"));
        assert_eq!((&found[1].2, &found[2].2, &found[3].2), (&None, &some("_INBOX.1"), &some("c")));
        assert_eq!(found.len(), 4);
        let found =
            all("MSG _INBOX.1 7 2\r\nok\r\nMSG s 7 r 2\r\nok\r\nHMSG s 7 r 12 12\r\nNATS/1.0\r\n\r\n\r\n");
        assert_eq!(
            found.iter().map(|frame| frame.2.as_deref()).collect::<Vec<_>>(),
            [None, Some("r"), Some("r")]
        );
    }

    #[test]
    fn incomplete_frame_is_not_returned() {
        let mut buffer = BytesMut::from("PUB a 5\r\nhel");
        assert_eq!(take(&mut buffer), Ok(None));
        buffer.extend_from_slice(b"lo\r\n");
        assert_eq!(take(&mut buffer).map(|frame| frame.map(|frame| frame.bytes.len())), Ok(Some(16)));
        assert!(take(&mut BytesMut::from("\u{16}\u{3}\u{1}\r\n")).is_err());
    }
}
