//! Which address a pod gets.

use std::collections::BTreeSet;
use std::net::IpAddr;

use eno_schemas::{NodeAddresses, has_ordinal};
use ipnet::{IpAddrRange, IpNet, Ipv4AddrRange, Ipv6AddrRange};

use crate::Lease;

/// Why a pod waits.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    /// The node has no addresses of the Subnet.
    #[error("this node has no addresses of it yet")]
    Unknown,
    /// All addresses of the node are used.
    #[error("no address is free on this node")]
    NoneFree,
    /// The pod's own address is to come.
    #[error("the address of a pod with an ordinal is fixed by the engine, which has not done so yet")]
    NotFixed,
    /// An address that no pod gets.
    #[error("{0} is a next hop or a gateway")]
    Excluded(IpAddr),
    /// An address that this node may not give.
    #[error("{0} is not leased to this node")]
    NotHere(IpAddr),
    /// A pod on this node has it.
    #[error("{address} is the address of pod {namespace}/{pod}")]
    Used {
        /// The address.
        address: IpAddr,
        /// `metadata.namespace` of the other pod.
        namespace: String,
        /// `metadata.name` of the other pod.
        pod: String,
    },
    /// It is kept for another pod.
    #[error("{address} is fixed for pod {namespace}/{pod}")]
    Fixed {
        /// The address.
        address: IpAddr,
        /// `metadata.namespace` of the other pod.
        namespace: String,
        /// `metadata.name` of the other pod.
        pod: String,
    },
}

/// Chooses an address for the pod `namespace/pod`, which asks for `wanted`. `last` is the address that was given last:
/// the search begins after it.
pub fn choose(
    ranges: &NodeAddresses,
    leases: &[Lease],
    last: Option<IpAddr>,
    (namespace, pod): (&str, &str),
    wanted: Option<IpAddr>,
) -> Result<IpAddr, Reason> {
    let used_by = |address| leases.iter().find(|lease| lease.address == address);
    let own = || {
        let fixed = ranges.fixed.iter().filter(|fixed| fixed.namespace == namespace && fixed.pod == pod);
        fixed.map(|fixed| fixed.address)
    };
    let needs_fixed = ranges.sticky && has_ordinal(pod);
    let check = |address| {
        if let Some(Lease { namespace, pod, .. }) = used_by(address) {
            return Err(Reason::Used { address, namespace: namespace.clone(), pod: pod.clone() });
        }
        if ranges.excluded.contains(&address) { Err(Reason::Excluded(address)) } else { Ok(address) }
    };
    if let Some(address) = wanted {
        check(address)?;
        if own().any(|own| own == address) {
            return Ok(address);
        }
        if let Some(fixed) = ranges.fixed.iter().find(|fixed| fixed.address == address) {
            let (namespace, pod) = (fixed.namespace.clone(), fixed.pod.clone());
            return Err(Reason::Fixed { address, namespace, pod });
        }
        if needs_fixed {
            return Err(Reason::NotFixed);
        }
        return blocks(ranges)
            .any(|block| block.contains(&address))
            .then_some(address)
            .ok_or(Reason::NotHere(address));
    }
    let own: Vec<_> = own().map(check).collect();
    if let Some(address) = own.iter().flatten().next() {
        return Ok(*address);
    }
    if needs_fixed {
        return Err(own.into_iter().find_map(Result::err).unwrap_or(Reason::NotFixed));
    }
    next_fit(ranges, leases, last).ok_or(Reason::NoneFree)
}

/// The first free address of the blocks after `last`, else the first one. Looks at one address more than there are
/// taken ones, whatever the size of the blocks.
fn next_fit(ranges: &NodeAddresses, leases: &[Lease], last: Option<IpAddr>) -> Option<IpAddr> {
    let fixed = ranges.fixed.iter().map(|fixed| fixed.address);
    let taken: BTreeSet<IpAddr> = leases
        .iter()
        .map(|lease| lease.address)
        .chain(fixed)
        .chain(ranges.excluded.iter().copied())
        .collect();
    let last = last.filter(|last| ranges.network.contains(last));
    let after = last.into_iter().flat_map(|last| {
        blocks(ranges)
            .filter(move |block| block.broadcast() > last)
            .flat_map(move |block| addresses(block.network().max(last), block.broadcast()))
            .filter(move |address| *address > last)
    });
    let all = blocks(ranges).flat_map(|block| addresses(block.network(), block.broadcast()));
    after.chain(all).find(|address| !taken.contains(address))
}

fn blocks(ranges: &NodeAddresses) -> impl Iterator<Item = &IpNet> {
    ranges.blocks.iter().filter(|block| ranges.network.contains(*block))
}

/// The addresses from one to another, both included, of one family.
fn addresses(first: IpAddr, last: IpAddr) -> IpAddrRange {
    match (first, last) {
        (IpAddr::V4(first), IpAddr::V4(last)) => IpAddrRange::V4(Ipv4AddrRange::new(first, last)),
        (IpAddr::V6(first), IpAddr::V6(last)) => IpAddrRange::V6(Ipv6AddrRange::new(first, last)),
        // None: a network has one family.
        _ => IpAddrRange::V4(Ipv4AddrRange::new([0, 0, 0, 1].into(), [0, 0, 0, 0].into())),
    }
}
