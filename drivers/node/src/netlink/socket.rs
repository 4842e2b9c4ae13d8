//! The socket: requests and their acknowledgements, dumps.

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

use super::lean::lean;
use super::{NetlinkError, Request};

/// `struct nlmsghdr`.
const HEADER: usize = 16;

/// The kernel fills at most 32 KiB in one go.
const BUFFER: usize = 64 * 1024;

/// Requests sent in one system call: their answers fit into the socket's receive buffer.
const BATCH: usize = 64;

/// `NLMSGERR_ATTR_MSG`.
const ERROR_MESSAGE: u16 = 1;

/// How often a dump is begun again that changes have torn.
const DUMPS: usize = 5;

thread_local! {
    /// Of the last socket that was closed on this thread.
    static BUFFERS: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// An rtnetlink socket, bound for ever to the namespace that its thread was in when it was opened.
#[derive(Debug)]
pub struct Netlink {
    socket: Socket,
    port: u32,
    sequence: u32,
    buffer: Buffer,
}

/// What is read goes there.
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
        self.whole.get(HEADER..).unwrap_or_default()
    }
}

impl Netlink {
    /// Opens one in the namespace of the calling thread.
    pub fn open() -> Result<Self, NetlinkError> {
        let failed = |source: io::Error| NetlinkError::Socket {
            operation: "open a netlink socket".to_owned(),
            source,
        };
        let mut socket = Socket::new(NETLINK_ROUTE).map_err(failed)?;
        let port = socket.bind_auto().map_err(failed)?.port_number();
        // The kernel's own words, and no copies of requests in acknowledgements.
        socket.set_ext_ack(true).map_err(failed)?;
        socket.set_cap_ack(true).map_err(failed)?;
        // Answers are there when the request has been sent; this only keeps a thread from hanging for ever.
        setsockopt(&socket.as_fd(), sockopt::ReceiveTimeout, &TimeVal::new(10, 0))
            .map_err(|errno| failed(errno.into()))?;
        let mut buffer = BUFFERS.take();
        buffer.clear();
        buffer.reserve_exact(BUFFER);
        Ok(Self { socket, port, sequence: 0, buffer: Buffer(buffer) })
    }

    /// Carries out one request.
    pub fn execute(&mut self, request: Request) -> Result<(), NetlinkError> {
        self.batch(vec![request]).pop().unwrap_or(Ok(()))
    }

    /// Carries out requests in their order, many in one system call. One that fails stops none of the others; there
    /// is one result for each.
    pub fn batch(&mut self, requests: Vec<Request>) -> Vec<Result<(), NetlinkError>> {
        let mut results = Vec::with_capacity(requests.len());
        let mut rest = requests.into_iter().peekable();
        while rest.peek().is_some() {
            self.send_some(rest.by_ref().take(BATCH).collect(), &mut results);
        }
        results
    }

    /// Errors are told of each, in their order; only of the last it is told that it was done, and with that that all
    /// before it were done of which nothing was told.
    fn send_some(&mut self, requests: Vec<Request>, results: &mut Vec<Result<(), NetlinkError>>) {
        let first = self.sequence + 1;
        let mut bytes = Vec::new();
        let mut waiting: Vec<(Request, Option<Result<(), NetlinkError>>)> =
            Vec::with_capacity(requests.len());
        let last = requests.len().saturating_sub(1);
        for (at, request) in requests.into_iter().enumerate() {
            self.sequence += 1;
            let told = if at == last { NLM_F_ACK } else { 0 };
            append(&mut bytes, request.message.clone(), NLM_F_REQUEST | told | request.flags, self.sequence);
            waiting.push((request, None));
        }
        let outcome = self.send(&bytes).and_then(|()| {
            while waiting.last().is_some_and(|(_, answer)| answer.is_none()) {
                self.receive(|part| {
                    let slot = part.sequence.checked_sub(first).and_then(|at| waiting.get_mut(at as usize));
                    if let Some((request, answer @ None)) = slot
                        && part.kind == NLMSG_ERROR
                    {
                        *answer =
                            Some(verdict(&request.operation, part).or_else(|error| request.forgive(error)));
                    }
                })?;
            }
            Ok(())
        });
        let failure = outcome.err();
        results.extend(waiting.into_iter().map(|(request, answer)| match (answer, &failure) {
            (Some(answer), _) => answer,
            (None, None) => Ok(()),
            (None, Some(error)) => {
                Err(NetlinkError::Socket { operation: request.operation, source: copy(error) })
            }
        }));
    }

    /// What `read` makes of the objects that the kernel lists upon `message`, one after the other. Those that can't
    /// be decoded are left out: an interface of a kind from the future is nobody's business here.
    pub(super) fn dump<T, I: IntoIterator<Item = T>>(
        &mut self,
        operation: &str,
        message: &RouteNetlinkMessage,
        read: impl Fn(RouteNetlinkMessage) -> I,
    ) -> Result<Vec<T>, NetlinkError> {
        let mut found = Vec::new();
        let mut bytes = Vec::new();
        append(&mut bytes, message.clone(), NLM_F_REQUEST | NLM_F_DUMP, 0);
        self.dump_raw(operation, &mut bytes, &mut found, |found, part| match decode(part) {
            Ok(NetlinkMessage { payload: NetlinkPayload::InnerMessage(message), .. }) => {
                found.extend(read(message));
            }
            Ok(_) => {}
            Err(error) => tracing::debug!(%error, operation, "left out an object that is not understood"),
        })?;
        Ok(found)
    }

    /// As [`Self::dump`], with a request as bytes (the sequence number is filled in) and answers as bytes, both with
    /// their headers.
    pub(super) fn dump_raw<T>(
        &mut self,
        operation: &str,
        request: &mut [u8],
        found: &mut Vec<T>,
        mut each: impl FnMut(&mut Vec<T>, &[u8]),
    ) -> Result<(), NetlinkError> {
        let socket = |source| NetlinkError::Socket { operation: operation.to_owned(), source };
        for _ in 0..DUMPS {
            found.clear();
            self.sequence += 1;
            let sequence = self.sequence;
            if let Some(field) = request.get_mut(8..12) {
                field.copy_from_slice(&sequence.to_ne_bytes());
            }
            self.send(request).map_err(socket)?;
            let mut end = None;
            let mut torn = false;
            while end.is_none() {
                self.receive(|part| {
                    if part.sequence != sequence || end.is_some() {
                        return;
                    }
                    torn |= part.flags & NLM_F_DUMP_INTR != 0;
                    match part.kind {
                        NLMSG_DONE | NLMSG_ERROR => end = Some(verdict(operation, part)),
                        NLMSG_NOOP => {}
                        _ => each(found, part.whole),
                    }
                })
                .map_err(socket)?;
            }
            end.unwrap_or(Ok(()))?;
            if !torn {
                return Ok(());
            }
        }
        Err(NetlinkError::Refused {
            operation: operation.to_owned(),
            errno: Errno::EAGAIN,
            detail: Some("it changes all the time".to_owned()),
        })
    }

    /// The one object that the kernel answers `message` with.
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
                    NLMSG_ERROR => verdict(operation, part).map(|()| None),
                    _ => match decode(part.whole) {
                        Ok(NetlinkMessage { payload: NetlinkPayload::InnerMessage(message), .. }) => {
                            Ok(Some(message))
                        }
                        Ok(_) => Ok(None),
                        Err(error) => Err(NetlinkError::Garbled {
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

    /// That of the interface called `name`. Unlike a request this waits for nothing that the kernel is about to do to
    /// interfaces.
    pub fn index_of(&self, name: &str) -> Result<u32, NetlinkError> {
        rustix::net::netdevice::name_to_index(&self.socket, name).map_err(|error| NetlinkError::Refused {
            operation: format!("find the interface {name}"),
            errno: Errno::from_raw(error.raw_os_error()),
            detail: None,
        })
    }

    /// The socket and its port, to listen with.
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

    /// Reads once and hands over each message that came.
    fn receive(&mut self, mut each: impl FnMut(&Part<'_>)) -> io::Result<()> {
        self.buffer.0.clear();
        loop {
            match self.socket.recv_from(&mut self.buffer.0, 0) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
                // Only the kernel (port 0) is listened to.
                Ok((_, from)) if from.port_number() != 0 => self.buffer.0.clear(),
                Ok(_) => break,
            }
        }
        let mut rest = self.buffer.0.as_slice();
        while let Some((part, after)) = split(rest) {
            each(&part);
            rest = after;
        }
        Ok(())
    }
}

/// The next socket on the same thread, as comes with every pod, takes no memory anew.
impl Drop for Buffer {
    fn drop(&mut self) {
        let buffer = std::mem::take(&mut self.0);
        let _ = BUFFERS.try_with(|kept| kept.replace(buffer));
    }
}

pub(super) fn decode(message: &[u8]) -> Result<NetlinkMessage<RouteNetlinkMessage>, DecodeError> {
    match lean(message) {
        Some(lean) => NetlinkMessage::deserialize(&lean),
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

/// The first message of a buffer and what comes after it.
fn split(bytes: &[u8]) -> Option<(Part<'_>, &[u8])> {
    let word =
        |at: usize| bytes.get(at..at + 4).and_then(|field| field.try_into().ok()).map(u32::from_ne_bytes);
    let half =
        |at: usize| bytes.get(at..at + 2).and_then(|field| field.try_into().ok()).map(u16::from_ne_bytes);
    let length = word(0)? as usize;
    let whole = bytes.get(..length).filter(|whole| whole.len() >= HEADER)?;
    let rest = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    Some((Part { kind: half(4)?, flags: half(6)?, sequence: word(8)?, whole }, rest))
}

/// What an NLMSG_ERROR or NLMSG_DONE says.
fn verdict(operation: &str, part: &Part<'_>) -> Result<(), NetlinkError> {
    let payload = part.payload();
    let code = payload.get(..4).and_then(|field| field.try_into().ok()).map_or(0, i32::from_ne_bytes);
    if code == 0 {
        return Ok(());
    }
    // An error repeats the header of the request, and the whole of it unless it is capped.
    let request = payload.get(4..8).and_then(|field| field.try_into().ok()).map_or(HEADER, |length| {
        if part.flags & NLM_F_CAPPED != 0 { HEADER } else { u32::from_ne_bytes(length) as usize }
    });
    let attributes = if part.kind == NLMSG_DONE { 4 } else { 4 + request.next_multiple_of(4) };
    let detail = attribute(payload.get(attributes..).unwrap_or_default(), ERROR_MESSAGE)
        .map(|text| String::from_utf8_lossy(text).trim_end_matches('\0').to_owned());
    Err(NetlinkError::Refused { operation: operation.to_owned(), errno: Errno::from_raw(code.abs()), detail })
}

/// The value of the first attribute of that type.
pub(super) fn attribute(mut bytes: &[u8], kind: u16) -> Option<&[u8]> {
    loop {
        let (found, value, rest) = next_attribute(bytes)?;
        if found == kind {
            return Some(value);
        }
        bytes = rest;
    }
}

/// The first attribute (type without its flags, value), and what comes after it.
pub(super) fn next_attribute(bytes: &[u8]) -> Option<(u16, &[u8], &[u8])> {
    let length = usize::from(u16::from_ne_bytes(bytes.get(..2)?.try_into().ok()?));
    let kind = u16::from_ne_bytes(bytes.get(2..4)?.try_into().ok()?) & 0x3fff;
    let value = bytes.get(4..length)?;
    Some((kind, value, bytes.get(length.next_multiple_of(4)..).unwrap_or_default()))
}

fn copy(error: &io::Error) -> io::Error {
    error.raw_os_error().map_or_else(|| error.kind().into(), io::Error::from_raw_os_error)
}
