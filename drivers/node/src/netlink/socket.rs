//! The rtnetlink socket: requests with their acknowledgements, and dumps.

use std::cell::RefCell;
use std::io;
use std::os::fd::AsFd as _;

use nix::errno::Errno;
use nix::sys::socket::{setsockopt, sockopt};
use nix::sys::time::TimeVal;
use rtnetlink::packet_core::{
    DecodeError, NLM_F_ACK, NLM_F_CAPPED, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REQUEST, NLMSG_DONE,
    NLMSG_ERROR, NLMSG_NOOP, NetlinkMessage, NetlinkPayload,
};
use rtnetlink::packet_route::RouteNetlinkMessage;
use rtnetlink::sys::protocols::NETLINK_ROUTE;
use rtnetlink::sys::{Socket, SocketAddr};

use super::attribute_filter::strip_attributes;
use super::{NetlinkError, Request};

/// Bytes of `struct nlmsghdr`.
const HEADER_LEN: usize = 16;

/// Bytes of the receive buffer. The kernel fills at most 32 KiB at once, except for one larger object: the alternative
/// names of an interface take up to 64 KiB and more.
const BUFFER_LEN: usize = 256 * 1024;

/// Maximum bytes of the answer to a dump in the namespace of a pod: some 2,500 interfaces, or 40,000 rules.
const POD_DUMP_LEN: usize = 4 * 1024 * 1024;

/// Maximum requests per system call: their answers fit into the socket's receive buffer.
const MAX_BATCH: usize = 64;

/// The flags of a request that lists objects.
pub(super) const DUMP: u16 = NLM_F_REQUEST | NLM_F_DUMP;

/// `NLMSGERR_ATTR_MSG`.
const ERROR_MESSAGE: u16 = 1;

/// Maximum attempts at a dump that concurrent changes interrupt (`NLM_F_DUMP_INTR`).
const MAX_DUMPS: usize = 5;

thread_local! {
    /// The receive buffer of the last socket that was closed on this thread.
    static BUFFERS: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// An rtnetlink socket. It stays bound to the namespace in which it was opened.
#[derive(Debug)]
pub struct Netlink {
    socket: Socket,
    port: u32,
    sequence: u32,
    buffer: Buffer,
    /// Maximum bytes of the answer to a dump.
    max_dump: usize,
}

/// The receive buffer.
#[derive(Debug)]
struct Buffer(Vec<u8>);

/// One message of an answer.
struct Part<'a> {
    kind: u16,
    flags: u16,
    sequence: u32,
    whole: &'a [u8],
}

impl Part<'_> {
    fn payload(&self) -> &[u8] {
        self.whole.get(HEADER_LEN..).unwrap_or_default()
    }
}

impl Netlink {
    /// Opens a socket in the calling thread's namespace, which is a pod's. What a pod makes there is not trusted: a dump
    /// that is too large fails, and one with an interface that can't be decoded, which may be ENO's.
    pub fn open_in_pod() -> Result<Self, NetlinkError> {
        Ok(Self { max_dump: POD_DUMP_LEN, ..Self::open()? })
    }

    /// Opens a socket in the calling thread's namespace.
    pub fn open() -> Result<Self, NetlinkError> {
        Self::open_protocol(NETLINK_ROUTE)
    }

    /// As [`Self::open`], for messages of another protocol than rtnetlink.
    pub(super) fn open_protocol(protocol: isize) -> Result<Self, NetlinkError> {
        let failed = |source: io::Error| NetlinkError::Socket {
            operation: "open a netlink socket".to_owned(),
            source,
        };
        let mut socket = Socket::new(protocol).map_err(failed)?;
        let port = socket.bind_auto().map_err(failed)?.port_number();
        // Acknowledgements carry the kernel's message, and no copy of the request.
        socket.set_ext_ack(true).map_err(failed)?;
        socket.set_cap_ack(true).map_err(failed)?;
        // The kernel filters dumps by the fields of the request.
        socket.set_netlink_get_strict_chk(true).map_err(failed)?;
        // Answers arrive while the request is being sent: the timeout only keeps a thread from hanging for ever.
        setsockopt(&socket.as_fd(), sockopt::ReceiveTimeout, &TimeVal::new(10, 0))
            .map_err(|errno| failed(errno.into()))?;
        let mut buffer = BUFFERS.take();
        buffer.clear();
        buffer.reserve_exact(BUFFER_LEN);
        Ok(Self { socket, port, sequence: 0, buffer: Buffer(buffer), max_dump: usize::MAX })
    }

    /// Carries out one request.
    pub fn execute(&mut self, request: Request) -> Result<(), NetlinkError> {
        self.batch(vec![request]).pop().unwrap_or(Ok(()))
    }

    /// Carries out requests in their order, many in one system call. A failed request does not stop the others. Returns
    /// one result for each request.
    pub fn batch(&mut self, requests: Vec<Request>) -> Vec<Result<(), NetlinkError>> {
        let mut results = Vec::with_capacity(requests.len());
        let mut rest = requests.into_iter().peekable();
        while rest.peek().is_some() {
            self.send_some(rest.by_ref().take(MAX_BATCH).collect(), &mut results);
        }
        results
    }

    /// Sends the requests in one system call. Only the last asks for an acknowledgement; the kernel answers errors of
    /// all, in their order. With the last answer, earlier requests without an error have succeeded.
    fn send_some(&mut self, requests: Vec<Request>, results: &mut Vec<Result<(), NetlinkError>>) {
        let first = self.sequence + 1;
        let mut bytes = Vec::new();
        let mut pending: Vec<(Request, Option<Result<(), NetlinkError>>)> =
            Vec::with_capacity(requests.len());
        let last = requests.len().saturating_sub(1);
        for (at, request) in requests.into_iter().enumerate() {
            self.sequence += 1;
            let acknowledge = if at == last { NLM_F_ACK } else { 0 };
            append(
                &mut bytes,
                request.message.clone(),
                NLM_F_REQUEST | acknowledge | request.flags,
                self.sequence,
            );
            pending.push((request, None));
        }
        let outcome = self.send(&bytes).and_then(|()| {
            while pending.last().is_some_and(|(_, answer)| answer.is_none()) {
                self.receive(|part| {
                    let slot = part.sequence.checked_sub(first).and_then(|at| pending.get_mut(at as usize));
                    if let Some((request, answer @ None)) = slot
                        && part.kind == NLMSG_ERROR
                    {
                        *answer = Some(
                            parse_status(&request.operation, part).or_else(|error| request.tolerate(error)),
                        );
                    }
                })?;
            }
            Ok(())
        });
        let failure = outcome.err();
        results.extend(pending.into_iter().map(|(request, answer)| match (answer, &failure) {
            (Some(answer), _) => answer,
            (None, None) => Ok(()),
            (None, Some(error)) => {
                Err(NetlinkError::Socket { operation: request.operation, source: copy(error) })
            }
        }));
    }

    /// Dumps the objects that `message` asks for and converts each by `read`. Objects that can't be decoded are left
    /// out, such as interfaces of unknown kinds; not so interfaces of a pod.
    pub(super) fn dump<T, I: IntoIterator<Item = T>>(
        &mut self,
        operation: &str,
        message: &RouteNetlinkMessage,
        read: impl Fn(RouteNetlinkMessage) -> I,
    ) -> Result<Vec<T>, NetlinkError> {
        let mut found = Vec::new();
        let mut bytes = Vec::new();
        let mut undecoded = None;
        append(&mut bytes, message.clone(), DUMP, 0);
        self.dump_raw(operation, &mut bytes, &mut found, |found, part| match decode(part) {
            Ok(NetlinkMessage { payload: NetlinkPayload::InnerMessage(message), .. }) => {
                found.extend(read(message));
            }
            Ok(_) => {}
            Err(error) => {
                tracing::debug!(%error, operation, "left out an object that is not understood");
                undecoded = Some(error.to_string());
            }
        })?;
        match undecoded {
            Some(reason)
                if self.max_dump < usize::MAX && matches!(message, RouteNetlinkMessage::GetLink(_)) =>
            {
                Err(NetlinkError::Malformed { operation: operation.to_owned(), message: reason })
            }
            _ => Ok(found),
        }
    }

    /// As [`Self::dump`], with request and answers as bytes, both with their headers. The request's sequence number is
    /// filled in.
    pub(super) fn dump_raw<T>(
        &mut self,
        operation: &str,
        request: &mut [u8],
        found: &mut Vec<T>,
        mut each: impl FnMut(&mut Vec<T>, &[u8]),
    ) -> Result<(), NetlinkError> {
        let socket = |source| NetlinkError::Socket { operation: operation.to_owned(), source };
        for _ in 0..MAX_DUMPS {
            found.clear();
            self.sequence += 1;
            let sequence = self.sequence;
            if let Some(field) = request.get_mut(8..12) {
                field.copy_from_slice(&sequence.to_ne_bytes());
            }
            self.send(request).map_err(socket)?;
            let mut end = None;
            let mut interrupted = false;
            let mut left = self.max_dump;
            while end.is_none() {
                let read = self.receive(|part| {
                    if part.sequence != sequence || end.is_some() {
                        return;
                    }
                    interrupted |= part.flags & NLM_F_DUMP_INTR != 0;
                    match part.kind {
                        NLMSG_DONE | NLMSG_ERROR => end = Some(parse_status(operation, part)),
                        NLMSG_NOOP => {}
                        _ => each(found, part.whole),
                    }
                });
                left = left.checked_sub(read.map_err(socket)?).ok_or_else(|| NetlinkError::TooLarge {
                    operation: operation.to_owned(),
                    limit: self.max_dump,
                })?;
            }
            end.unwrap_or(Ok(()))?;
            if !interrupted {
                return Ok(());
            }
        }
        Err(NetlinkError::Refused {
            operation: operation.to_owned(),
            errno: Errno::EAGAIN,
            detail: Some("it changes all the time".to_owned()),
        })
    }

    /// Sends messages that the kernel carries out together or not at all. `messages` gets the sequence number of the
    /// first; that of the message behind `acknowledged` others is answered behind all errors.
    pub(super) fn transact(
        &mut self,
        operation: &str,
        acknowledged: usize,
        messages: impl FnOnce(u32) -> Vec<u8>,
    ) -> Result<(), NetlinkError> {
        let socket = |source| NetlinkError::Socket { operation: operation.to_owned(), source };
        let first = self.sequence + 1;
        let last = first + u32::try_from(acknowledged).unwrap_or(u32::MAX);
        self.send(&messages(first)).map_err(socket)?;
        // The last message has no answer, and its number is not used again.
        self.sequence = last + 1;
        let mut outcome = None;
        while outcome.is_none() {
            self.receive(|part| {
                if part.kind == NLMSG_ERROR && outcome.is_none() && (first..=last).contains(&part.sequence) {
                    outcome = match parse_status(operation, part) {
                        Ok(()) if part.sequence != last => None,
                        status => Some(status),
                    };
                }
            })
            .map_err(socket)?;
        }
        outcome.unwrap_or(Ok(()))
    }

    /// Requests one object.
    pub(super) fn get(
        &mut self,
        operation: &str,
        message: RouteNetlinkMessage,
    ) -> Result<Option<RouteNetlinkMessage>, NetlinkError> {
        let socket = |source| NetlinkError::Socket { operation: operation.to_owned(), source };
        self.sequence += 1;
        let sequence = self.sequence;
        let mut bytes = Vec::new();
        append(&mut bytes, message, NLM_F_REQUEST, sequence);
        self.send(&bytes).map_err(socket)?;
        let mut answer = None;
        while answer.is_none() {
            self.receive(|part| {
                if part.sequence != sequence {
                    return;
                }
                answer = Some(match part.kind {
                    NLMSG_ERROR => parse_status(operation, part).map(|()| None),
                    _ => match decode(part.whole) {
                        Ok(NetlinkMessage { payload: NetlinkPayload::InnerMessage(message), .. }) => {
                            Ok(Some(message))
                        }
                        Ok(_) => Ok(None),
                        Err(error) => Err(NetlinkError::Malformed {
                            operation: operation.to_owned(),
                            message: error.to_string(),
                        }),
                    },
                });
            })
            .map_err(socket)?;
        }
        answer.unwrap_or(Ok(None))
    }

    /// The index of the interface `name` (`SIOCGIFINDEX`). Unlike a request this does not wait for pending changes of
    /// interfaces.
    pub fn index_of(&self, name: &str) -> Result<u32, NetlinkError> {
        rustix::net::netdevice::name_to_index(&self.socket, name).map_err(|error| NetlinkError::Refused {
            operation: format!("find the interface {name}"),
            errno: Errno::from_raw(error.raw_os_error()),
            detail: None,
        })
    }

    /// The socket and its port, for subscribing to notifications.
    pub(super) fn into_socket(self) -> (Socket, u32) {
        (self.socket, self.port)
    }

    fn send(&self, bytes: &[u8]) -> io::Result<()> {
        loop {
            match self.socket.send_to(bytes, &SocketAddr::new(0, 0), 0) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => return other.map(|_| ()),
            }
        }
    }

    /// Reads once and calls `each` for every message in the datagram. Returns its bytes.
    fn receive(&mut self, mut each: impl FnMut(&Part<'_>)) -> io::Result<usize> {
        self.buffer.0.clear();
        loop {
            match self.socket.recv_from(&mut self.buffer.0, 0) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
                // Messages of other senders than the kernel (port 0) are dropped.
                Ok((_, from)) if from.port_number() != 0 => self.buffer.0.clear(),
                Ok(_) => break,
            }
        }
        let mut rest = self.buffer.0.as_slice();
        while let Some((part, after)) = split(rest) {
            each(&part);
            rest = after;
        }
        if rest.is_empty() {
            Ok(self.buffer.0.len())
        } else {
            Err(io::Error::new(io::ErrorKind::InvalidData, "an object is larger than the buffer"))
        }
    }
}

/// Leaves the buffer to the next socket of the thread: every pod's work opens one.
impl Drop for Buffer {
    fn drop(&mut self) {
        let buffer = std::mem::take(&mut self.0);
        let _ = BUFFERS.try_with(|buffers| buffers.replace(buffer));
    }
}

pub(super) fn decode(message: &[u8]) -> Result<NetlinkMessage<RouteNetlinkMessage>, DecodeError> {
    match strip_attributes(message) {
        Some(stripped) => NetlinkMessage::deserialize(&stripped),
        None => NetlinkMessage::deserialize(message),
    }
}

fn append(bytes: &mut Vec<u8>, message: RouteNetlinkMessage, flags: u16, sequence: u32) {
    let mut message = NetlinkMessage::from(message);
    message.header.flags = flags;
    message.header.sequence_number = sequence;
    message.finalize();
    let start = bytes.len();
    let length = message.buffer_len();
    bytes.resize(start + length.next_multiple_of(4), 0);
    message.serialize(&mut bytes[start..start + length]);
}

/// The first message of a buffer, and the rest of the buffer.
fn split(bytes: &[u8]) -> Option<(Part<'_>, &[u8])> {
    let u32_at =
        |at: usize| bytes.get(at..at + 4).and_then(|field| field.try_into().ok()).map(u32::from_ne_bytes);
    let u16_at =
        |at: usize| bytes.get(at..at + 2).and_then(|field| field.try_into().ok()).map(u16::from_ne_bytes);
    let length = u32_at(0)? as usize;
    let whole = bytes.get(..length).filter(|whole| whole.len() >= HEADER_LEN)?;
    let rest = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    Some((Part { kind: u16_at(4)?, flags: u16_at(6)?, sequence: u32_at(8)?, whole }, rest))
}

/// The result that an NLMSG_ERROR or NLMSG_DONE carries.
fn parse_status(operation: &str, part: &Part<'_>) -> Result<(), NetlinkError> {
    let payload = part.payload();
    let code = payload.get(..4).and_then(|field| field.try_into().ok()).map_or(0, i32::from_ne_bytes);
    if code == 0 {
        return Ok(());
    }
    // An error repeats the request: only its header when capped (`NLM_F_CAPPED`), else all of it.
    let request = payload.get(4..8).and_then(|field| field.try_into().ok()).map_or(HEADER_LEN, |length| {
        if part.flags & NLM_F_CAPPED != 0 { HEADER_LEN } else { u32::from_ne_bytes(length) as usize }
    });
    let attributes = if part.kind == NLMSG_DONE { 4 } else { 4 + request.next_multiple_of(4) };
    let detail = attribute(payload.get(attributes..).unwrap_or_default(), ERROR_MESSAGE)
        .map(|text| String::from_utf8_lossy(text).trim_end_matches('\0').to_owned());
    Err(NetlinkError::Refused { operation: operation.to_owned(), errno: Errno::from_raw(code.abs()), detail })
}

/// The value of the first attribute with that type.
pub(super) fn attribute(mut bytes: &[u8], kind: u16) -> Option<&[u8]> {
    loop {
        let (found, value, rest) = next_attribute(bytes)?;
        if found == kind {
            return Some(value);
        }
        bytes = rest;
    }
}

/// The first attribute (type without its flags, value), and the rest of the buffer.
pub(super) fn next_attribute(bytes: &[u8]) -> Option<(u16, &[u8], &[u8])> {
    let length = usize::from(u16::from_ne_bytes(bytes.get(..2)?.try_into().ok()?));
    let kind = u16::from_ne_bytes(bytes.get(2..4)?.try_into().ok()?) & 0x3fff;
    let value = bytes.get(4..length)?;
    Some((kind, value, bytes.get(length.next_multiple_of(4)..).unwrap_or_default()))
}

fn copy(error: &io::Error) -> io::Error {
    error.raw_os_error().map_or_else(|| error.kind().into(), io::Error::from_raw_os_error)
}
