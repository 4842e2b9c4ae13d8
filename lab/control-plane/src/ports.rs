//! Picks free ports, preferably those of the last start.

use std::net::{Ipv4Addr, TcpListener};
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};
use std::{io, process};

use serde::{Deserialize, Serialize};

/// Ports below those that the kernel gives to connections (`ip_local_port_range`), which would take a port between its
/// choice and its use.
const RANGE: Range<u16> = 12_000..30_000;

/// Counts the ports that this process tried, so that its threads get different ones.
static TRIED: AtomicU32 = AtomicU32::new(0);

/// Picks a free loopback port. Another process can take it before the caller binds it.
pub fn pick_port() -> io::Result<u16> {
    Ok(bind_any(Ipv4Addr::LOCALHOST)?.local_addr()?.port())
}

/// The ports of one control plane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ports {
    pub(crate) etcd: u16,
    pub(crate) etcd_peer: u16,
    pub(crate) api_server: u16,
    pub(crate) nats: u16,
}

impl Ports {
    /// Picks free ports, preferably the last ones. etcd's ports are on loopback, the others on `address`.
    pub(crate) fn pick(address: Ipv4Addr, last: Option<Self>) -> io::Result<Self> {
        let last = last.unwrap_or(Self { etcd: 0, etcd_peer: 0, api_server: 0, nats: 0 });
        let [etcd, etcd_peer, api_server, nats] = pick_ports([
            (Ipv4Addr::LOCALHOST, last.etcd),
            (Ipv4Addr::LOCALHOST, last.etcd_peer),
            (address, last.api_server),
            (address, last.nats),
        ])?;
        Ok(Self { etcd, etcd_peer, api_server, nats })
    }
}

/// Picks distinct free ports, preferably the wanted ones. Zero wants any.
pub(crate) fn pick_ports<const N: usize>(wanted: [(Ipv4Addr, u16); N]) -> io::Result<[u16; N]> {
    // Keep all bound until all are picked, so that they differ.
    let mut listeners = Vec::with_capacity(N);
    let mut picked = [0; N];
    for ((address, port), picked) in wanted.into_iter().zip(&mut picked) {
        let kept = (port != 0).then(|| bind(address, port).ok()).flatten();
        let listener = kept.map_or_else(|| bind_any(address), Ok)?;
        *picked = listener.local_addr()?.port();
        listeners.push(listener);
    }
    Ok(picked)
}

fn bind(address: Ipv4Addr, port: u16) -> io::Result<TcpListener> {
    TcpListener::bind((address, port))
}

/// Binds the next free port of [`RANGE`]. Each process begins elsewhere.
fn bind_any(address: Ipv4Addr) -> io::Result<TcpListener> {
    let count = u32::try_from(RANGE.len()).unwrap_or(u32::MAX);
    let mut outcome = Err(io::ErrorKind::AddrInUse.into());
    for _ in RANGE {
        let tried = TRIED.fetch_add(1, Ordering::Relaxed);
        let offset = process::id().wrapping_mul(211).wrapping_add(tried) % count;
        outcome = bind(address, RANGE.start + u16::try_from(offset).unwrap_or_default());
        match &outcome {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
            _ => break,
        }
    }
    outcome
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn pick_returns_distinct_ports_and_replaces_taken_ones() {
        let taken = bind(Ipv4Addr::LOCALHOST, 0).unwrap();
        let taken_port = taken.local_addr().unwrap().port();
        let first = Ports::pick(Ipv4Addr::LOCALHOST, None).unwrap();
        let last = Ports { nats: taken_port, ..first };
        let second = Ports::pick(Ipv4Addr::LOCALHOST, Some(last)).unwrap();
        assert_ne!(second.nats, taken_port);
        let all = BTreeSet::from([second.etcd, second.etcd_peer, second.api_server, second.nats]);
        assert_eq!(all.len(), 4);
    }
}
