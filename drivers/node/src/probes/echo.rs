//! Asks by packets of full size: echo requests of ICMPv6 (RFC 4443, 4.1), from a socket that needs no capability.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::time::Duration;

use nix::errno::Errno;
use rustix::net::sockopt::{Ipv6PathMtuDiscovery, set_ipv6_mtu_discover};
use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto, socket_with};
use tokio::net::UdpSocket;
use tokio::time::{Instant, Interval, timeout_at};

use super::ProbeError;
use super::ask::Ask;
use crate::netlink::Namespace;

/// How often a node is asked that does not answer.
const TRIES: u16 = 3;
/// How long an answer may take before the node is asked again.
const WAIT: Duration = Duration::from_secs(1);
/// Bytes of the header of IPv6.
const IPV6_HEADER: usize = 40;
/// Bytes of the header of an echo request, and of an answer.
const HEADER: usize = 8;
/// The types of both.
const REQUEST: u8 = 128;
const ANSWER: u8 = 129;
/// What requests carry, and answers repeat.
const CONTENT: u8 = 0x55;

/// Asks neighbours by packets of so many bytes, one per tick of `pace`. Returns who answered with a packet of this size.
pub async fn ask(
    namespace: &Namespace,
    asks: BTreeMap<Ask, u16>,
    pace: &mut Interval,
) -> Result<BTreeSet<Ask>, ProbeError> {
    let socket = namespace.run(open).await?.map_err(ProbeError::Echo)?;
    let socket = UdpSocket::from_std(socket).map_err(ProbeError::Echo)?;
    let (mut open, mut answered) = (asks, BTreeSet::new());
    let mut buffer = vec![0; open.values().copied().max().unwrap_or_default().into()];
    for sequence in 1..=TRIES {
        for (ask, size) in open.clone() {
            pace.tick().await;
            let IpAddr::V6(address) = ask.address else { continue };
            let to = SocketAddrV6::new(address, 0, 0, ask.index);
            match socket.send_to(&request(sequence, size), SocketAddr::V6(to)).await {
                // No packet of this size leaves the port.
                Err(error) if error.raw_os_error() == Some(Errno::EMSGSIZE as i32) => drop(open.remove(&ask)),
                sent => drop(sent.map_err(ProbeError::Echo)?),
            }
        }
        let end = Instant::now() + WAIT;
        while !open.is_empty() && Instant::now() < end {
            let Ok(received) = timeout_at(end, socket.recv_from(&mut buffer)).await else { break };
            let (length, from) = received.map_err(ProbeError::Echo)?;
            let (Some(message), SocketAddr::V6(from)) = (buffer.get(..length), from) else { continue };
            let ask = Ask { index: from.scope_id(), address: IpAddr::V6(*from.ip()) };
            if open.get(&ask).is_some_and(|size| is_answer(message, sequence, *size)) {
                open.remove(&ask);
                answered.insert(ask);
            }
        }
    }
    Ok(answered)
}

/// A socket for echo requests in the calling thread's namespace. The kernel gives it only answers to its own, and a packet
/// gets the address of the interface that it leaves by.
fn open() -> io::Result<std::net::UdpSocket> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::INET6, SocketType::DGRAM, flags, Some(ipproto::ICMPV6))?;
    // Nothing is fragmented, and no hint of a router makes packets smaller.
    set_ipv6_mtu_discover(&socket, Ipv6PathMtuDiscovery::PROBE)?;
    // To the standard library this is any socket of datagrams.
    Ok(socket.into())
}

/// An echo request whose packet has this size. The kernel fills in identifier and checksum.
fn request(sequence: u16, size: u16) -> Vec<u8> {
    let [high, low] = sequence.to_be_bytes();
    let mut message = vec![REQUEST, 0, 0, 0, 0, 0, high, low];
    message.resize(length(size), CONTENT);
    message
}

/// True for an answer of this size to a request that was sent: one with a number up to `last`.
fn is_answer(message: &[u8], last: u16, size: u16) -> bool {
    let Some(([kind, code, _, _, _, _, high, low], content)) = message.split_first_chunk::<HEADER>() else {
        return false;
    };
    let is_sent = (1..=last).contains(&u16::from_be_bytes([*high, *low]));
    let is_whole = message.len() == length(size) && content.iter().all(|byte| *byte == CONTENT);
    (*kind, *code) == (ANSWER, 0) && is_sent && is_whole
}

/// The bytes of the message in a packet of this size.
fn length(size: u16) -> usize {
    usize::from(size).saturating_sub(IPV6_HEADER).max(HEADER)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A change of an answer.
    type Change<'a> = &'a dyn Fn(&mut Vec<u8>);

    #[test]
    fn only_whole_answers_to_what_was_sent_count() {
        let sent = request(2, 1500);
        assert_eq!((sent.len(), &sent[..HEADER]), (1460, &[128, 0, 0, 0, 0, 0, 0, 2][..]));
        let answer = |change: Change<'_>| {
            let mut answer = sent.clone();
            answer[0] = ANSWER;
            change(&mut answer);
            is_answer(&answer, 2, 1500)
        };
        assert!(answer(&|_| {}));
        assert!(answer(&|answer| answer[7] = 1), "one that came late");
        let wrong: [Change<'_>; 8] = [
            &|answer| answer[0] = REQUEST,
            &|answer| answer[1] = 1,
            &|answer| answer[7] = 3,
            &|answer| answer[7] = 0,
            &|answer| answer.truncate(1459),
            &|answer| answer.push(CONTENT),
            &|answer| answer[1459] = 0,
            &|answer| answer.truncate(7),
        ];
        for (at, change) in wrong.into_iter().enumerate() {
            assert!(!answer(change), "case {at}");
        }
    }
}
