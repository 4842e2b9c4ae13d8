//! Free ports, the same ones again where that is possible.

use std::io;
use std::net::{Ipv4Addr, TcpListener};

use serde::{Deserialize, Serialize};

/// A loopback port that nobody listens on at the moment. Another process can take it before it is used:
/// whoever starts a server on it looks at how that went.
pub fn pick_port() -> io::Result<u16> {
    Ok(reserve(Ipv4Addr::LOCALHOST, 0)?.local_addr()?.port())
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
    /// Free ports: those of the last time where they are free, else others. Those of etcd are on loopback, the others on
    /// this address.
    pub(crate) fn pick(address: Ipv4Addr, last: Option<Self>) -> io::Result<Self> {
        let last = last.unwrap_or(Self { etcd: 0, etcd_peer: 0, api_server: 0, nats: 0 });
        let wanted = [
            (Ipv4Addr::LOCALHOST, last.etcd),
            (Ipv4Addr::LOCALHOST, last.etcd_peer),
            (address, last.api_server),
            (address, last.nats),
        ];
        // All are held until all are known, so that they differ.
        let mut held = Vec::with_capacity(wanted.len());
        for (address, port) in wanted {
            held.push(reserve(address, port).or_else(|_| reserve(address, 0))?);
        }
        let port = |index: usize| held[index].local_addr().map(|address| address.port());
        Ok(Self { etcd: port(0)?, etcd_peer: port(1)?, api_server: port(2)?, nats: port(3)? })
    }
}

fn reserve(address: Ipv4Addr, port: u16) -> io::Result<TcpListener> {
    TcpListener::bind((address, port))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn ports_differ_and_a_taken_one_is_replaced() {
        let taken = reserve(Ipv4Addr::LOCALHOST, 0).unwrap();
        let taken_port = taken.local_addr().unwrap().port();
        let first = Ports::pick(Ipv4Addr::LOCALHOST, None).unwrap();
        let last = Ports { nats: taken_port, ..first };
        let second = Ports::pick(Ipv4Addr::LOCALHOST, Some(last)).unwrap();
        assert_ne!(second.nats, taken_port);
        let all = BTreeSet::from([second.etcd, second.etcd_peer, second.api_server, second.nats]);
        assert_eq!(all.len(), 4);
    }
}
