//! What the tests share.

use std::net::IpAddr;

use eno_ipam::{Lease, Netns, Requester};
use eno_schemas::{NodeAddresses, PodAddress};

pub fn address(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

/// What a node may give of the network of `blocks`, whose first one tells the family.
pub fn ranges(blocks: &[&str]) -> NodeAddresses {
    let network = if blocks[0].contains(':') { "2001:db8::/64" } else { "10.0.0.0/24" };
    NodeAddresses {
        network: network.parse().expect("a network"),
        blocks: blocks.iter().map(|block| block.parse().expect("a block")).collect(),
        excluded: Vec::new(),
        fixed: Vec::new(),
        sticky: false,
    }
}

pub fn fixed(at: &str, pod: &str) -> PodAddress {
    PodAddress { address: address(at), namespace: "apps".into(), pod: pod.into() }
}

/// The namespace of this process.
pub fn netns() -> Netns {
    Netns::at("/proc/self/ns/net").expect("a namespace")
}

/// A namespace that is no more.
pub fn gone() -> Netns {
    Netns { path: "/run/netns/eno-none".into(), device: 4, inode: 4_026_531_840 }
}

/// The interface `net1` of a pod in the namespace `apps`.
pub fn requester(container: &str, pod: &str) -> Requester {
    Requester {
        container: container.into(),
        ifname: "net1".into(),
        namespace: "apps".into(),
        pod: pod.into(),
        wanted: Vec::new(),
        netns: netns(),
    }
}

pub fn lease(at: &str, pod: &str) -> Lease {
    Lease {
        container: format!("of-{pod}"),
        ifname: "net1".into(),
        address: address(at),
        namespace: "apps".into(),
        pod: pod.into(),
        netns: netns(),
    }
}
