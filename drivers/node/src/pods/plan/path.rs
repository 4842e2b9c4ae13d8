//! The path MTU of a pod's interface with a desired MTU.

use std::net::IpAddr;

use eno_schemas::{LinkKind, PathMtu, PodLink};

use super::Planner;
use crate::netlink::{Kind, Link};
use crate::pods::check::Refusal;
use crate::pods::kind::{self, Base};

impl Planner<'_> {
    /// The bottleneck of a link's path: an interface with a smaller MTU than the desired one.
    pub(super) fn path(&self, link: &PodLink, found: &Link) -> Option<PathMtu> {
        let mtu = link.mtu?;
        if let Some(overhead) = overhead(&link.kind) {
            let under = self.observed.pod.link(*self.observed.routed.get(&remote(&link.kind)?)?)?;
            return bottleneck(mtu, overhead, [under].into_iter());
        }
        match kind::base(&link.kind) {
            Base::Nothing => self.path_of_pair(mtu, found),
            _ => bottleneck(mtu, 0, self.made_on(link).into_iter()),
        }
    }

    /// The bottleneck of a veth pair's path: its host end, or the bridge of that.
    pub(super) fn path_of_pair(&self, mtu: u32, found: &Link) -> Option<PathMtu> {
        let end = self.peer_on_host(found)?;
        let master = end.master.and_then(|index| self.observed.host.link(index));
        let bridge = master.filter(|master| matches!(master.kind, Kind::Bridge { .. }));
        bottleneck(mtu, 0, bridge.into_iter().chain([end]))
    }

    /// Refuses an MTU above that of the lower interface, which the kernel does not for all kinds.
    pub(super) fn check_mtu(&self, link: &PodLink) -> Result<(), Refusal> {
        match (link.mtu, self.made_on(link)) {
            (Some(mtu), Some(lower)) if mtu > lower.mtu => Err(Refusal::temporary(format!(
                "an MTU of {mtu} can't be: {}, which it is made on, has an MTU of {}",
                lower.name, lower.mtu
            ))),
            _ => Ok(()),
        }
    }

    /// The lower interface of a link.
    pub(super) fn made_on(&self, link: &PodLink) -> Option<&Link> {
        match kind::base(&link.kind) {
            Base::Nothing => None,
            Base::Host(name) => self.observed.host.link(self.observed.host.guard().parent(name).ok()?),
            Base::Pod(name) => self.observed.pod.named(name),
            Base::Link(id) => self.ours.get(id).copied(),
        }
    }
}

/// The link with the smallest MTU, if that is less than `mtu` plus `overhead`. Of equals the first.
fn bottleneck<'a>(mtu: u32, overhead: u32, links: impl Iterator<Item = &'a Link>) -> Option<PathMtu> {
    let least = links.min_by_key(|link| link.mtu)?;
    let less = least.mtu < mtu.saturating_add(overhead);
    less.then(|| PathMtu { interface: least.name.clone(), mtu: least.mtu, overhead })
}

/// Bytes of encapsulation that a tunnel adds to each packet; `None`: the link is no tunnel.
pub(super) fn overhead(kind: &LinkKind) -> Option<u32> {
    const ETHERNET: u32 = 14;
    const IPV4: u32 = 20;
    const IPV6: u32 = 40;
    const UDP: u32 = 8;
    // The header of VXLAN, and of Geneve without options.
    const OVERLAY: u32 = 8;
    let gre = |tunnel: &eno_schemas::Tunnel| IPV4 + 4 + if tunnel.key.is_some() { 4 } else { 0 };
    Some(match kind {
        LinkKind::Vxlan { .. } | LinkKind::Geneve { .. } => {
            let ip = if remote(kind).is_some_and(|ip| ip.is_ipv6()) { IPV6 } else { IPV4 };
            ip + UDP + OVERLAY + ETHERNET
        }
        LinkKind::Gre(tunnel) => gre(tunnel),
        LinkKind::Gretap(tunnel) => gre(tunnel) + ETHERNET,
        LinkKind::Ipip(_) => IPV4,
        _ => return None,
    })
}

pub(super) fn remote(kind: &LinkKind) -> Option<IpAddr> {
    match kind {
        LinkKind::Vxlan { remote, .. } => *remote,
        LinkKind::Geneve { remote, .. } => Some(*remote),
        LinkKind::Gre(tunnel) | LinkKind::Gretap(tunnel) | LinkKind::Ipip(tunnel) => {
            Some(tunnel.remote.into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use eno_schemas::Tunnel;

    #[test]
    fn tunnel_overhead_matches_encapsulation() {
        let tunnel = |key| Tunnel { remote: "192.0.2.1".parse().unwrap(), local: None, key, ttl: None };
        let vxlan = |remote: &str| LinkKind::Vxlan {
            vni: 1,
            remote: Some(remote.parse().unwrap()),
            local: None,
            port: None,
        };
        let geneve = |remote: &str| LinkKind::Geneve { vni: 1, remote: remote.parse().unwrap(), port: None };
        for (kind, bytes) in [
            (vxlan("192.0.2.1"), Some(50)),
            (vxlan("2001:db8::1"), Some(70)),
            (geneve("192.0.2.1"), Some(50)),
            (geneve("2001:db8::1"), Some(70)),
            (LinkKind::Gre(tunnel(None)), Some(24)),
            (LinkKind::Gre(tunnel(Some(7))), Some(28)),
            (LinkKind::Gretap(tunnel(None)), Some(38)),
            (LinkKind::Ipip(tunnel(None)), Some(20)),
            (LinkKind::Dummy {}, None),
        ] {
            assert_eq!(overhead(&kind), bytes, "{kind:?}");
        }
    }
}
