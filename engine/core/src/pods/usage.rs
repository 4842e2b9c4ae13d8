//! How many addresses a Subnet with Ipam eno has left.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ipnet::IpNet;

use crate::Name;
use crate::kinds::SubnetSpec;
use crate::node::Nodes;
use crate::pods::Pods;
use crate::pods::ipam::{PoolKey, hosts, number};
use crate::store::Store;

/// The addresses of a Subnet with Ipam eno, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Those that pods may have.
    pub size: u128,
    /// Those of them that nodes hold.
    pub leased: u128,
    /// Those that pods have.
    pub used: u128,
    /// The pods that wait for one.
    pub waiting: usize,
}

impl Usage {
    /// Those that no pod has.
    pub fn free(&self) -> u128 {
        self.size.saturating_sub(self.used)
    }
}

impl Pods {
    /// The addresses of a Subnet with Ipam eno, counted. `None`: it is no such Subnet.
    pub fn usage(&self, store: &Store, nodes: &Nodes, subnet: &Name) -> Option<Usage> {
        let spec = store.subnet(subnet).filter(|spec| spec.ipam == eno_schemas::Ipam::Eno)?;
        let next_hops = store.routes_of(spec).into_iter().map(|route| route.next_hop);
        let excluded: BTreeSet<IpAddr> = next_hops.chain(store.routed_addresses(subnet)).collect();
        let mut usage = Usage { size: size(spec, &excluded), ..Usage::default() };
        for (_, own) in nodes.observed_addresses(subnet) {
            usage.leased = own.held.iter().map(length).fold(usage.leased, u128::saturating_add);
            usage.used += own.used.len() as u128;
            usage.waiting += own.waiting.len();
        }
        let running = self.ipam.count(&PoolKey::Subnet(subnet.clone())) + self.ranges.attached(subnet);
        let running = running as u128;
        usage.leased = usage.leased.saturating_add(running);
        usage.used += running;
        Some(usage)
    }
}

/// The number of addresses that pods may have: those of AllocationPool or of the whole network, without `excluded`.
fn size(spec: &SubnetSpec, excluded: &BTreeSet<IpAddr>) -> u128 {
    let (lowest, highest) = hosts(&spec.network);
    let written = spec.allocation_pool.iter().map(|pool| (number(pool.start), number(pool.end)));
    let mut spans: Vec<(u128, u128)> =
        written.map(|(start, end)| (start.max(lowest), end.min(highest))).collect();
    if spans.is_empty() {
        spans.push((lowest, highest));
    }
    let taken =
        excluded.iter().filter(|address| spec.network.contains(*address)).map(|address| number(*address));
    let taken: Vec<u128> = taken.collect();
    let left = spans.into_iter().filter(|(start, end)| start <= end).map(|(start, end)| {
        let inside = taken.iter().filter(|at| (start..=end).contains(at)).count() as u128;
        (end - start).saturating_add(1) - inside
    });
    left.fold(0, u128::saturating_add)
}

/// The number of addresses of a block.
fn length(block: &IpNet) -> u128 {
    1u128.checked_shl(u32::from(block.max_prefix_len() - block.prefix_len())).unwrap_or(u128::MAX)
}

#[cfg(test)]
mod tests {
    use eno_schemas::{Dns, Ipam, Pool};

    use super::*;

    #[test]
    fn size_is_that_of_the_pools_without_next_hops() {
        for (network, pools, excluded, expected) in [
            ("10.0.0.0/24", &[][..], &[][..], 254),
            ("10.0.0.0/30", &[], &["10.0.0.1"], 1),
            (
                "10.0.0.0/24",
                &[("10.0.0.0", "10.0.0.9"), ("10.0.0.250", "10.0.0.255")],
                &["10.0.0.1", "10.9.0.1"],
                13,
            ),
            ("10.0.0.0/24", &[("10.0.0.255", "10.0.0.255")], &[], 0),
            ("2001:db8::/64", &[], &["fe80::1"], (1 << 64) - 1),
            ("::/0", &[], &[], u128::MAX),
        ] {
            let parse = |text: &str| text.parse::<IpAddr>().unwrap();
            let pool = |(start, end): &(&str, &str)| Pool { start: parse(start), end: parse(end) };
            let spec = SubnetSpec {
                ipam: Ipam::Eno,
                network: network.parse().unwrap(),
                allocation_pool: pools.iter().map(pool).collect(),
                hot_plug_pool: Vec::new(),
                sticky: false,
                routes: Vec::new(),
                dns: Dns::default(),
            };
            let excluded = excluded.iter().map(|text| parse(text)).collect();
            assert_eq!(size(&spec, &excluded), expected, "{network} {pools:?}");
        }
    }

    #[test]
    fn length_of_a_block_has_no_overflow() {
        for (block, expected) in
            [("10.0.0.0/28", 16), ("10.0.0.1/32", 1), ("::/0", u128::MAX), ("fd00::/64", 1 << 64)]
        {
            assert_eq!(length(&block.parse().unwrap()), expected, "{block}");
        }
    }
}
