//! The part of a Subnet that an IPAM plugin may hand out, and whether pods reach a next hop.

use std::collections::BTreeSet;
use std::net::IpAddr;

use eno_schemas::{Ipam, Pool};
use ipnet::IpNet;

use crate::kinds::SubnetSpec;
use crate::pods::ipam::{address, hosts, number};

/// An inclusive range of addresses.
type Span = (u128, u128);

/// Why a pod with an address of `network` can't reach `next_hop`; `None`: it can.
pub fn next_hop_problem(next_hop: IpAddr, network: &IpNet) -> Option<String> {
    let link_local = matches!(next_hop, IpAddr::V6(hop) if hop.is_unicast_link_local());
    if link_local && network.addr().is_ipv6() {
        return None;
    }
    if !network.contains(&next_hop) {
        return Some(format!("{next_hop} is not in {network}"));
    }
    let (first, last) = hosts(network);
    let hop = number(next_hop);
    // The network's own address is an anycast address of its routers in IPv6.
    let is_host = (first..=last).contains(&hop) || network.addr().is_ipv6();
    (!is_host).then(|| format!("{next_hop} is the network or the broadcast address of {network}"))
}

/// The ranges that the IPAM plugin may hand out: AllocationPool or the whole network, less HotPlugPool, less what
/// `leased` finds in a range, less the next hops of the Subnet's Routes. They stay as in the spec where nothing is
/// taken away; an empty list means the whole network. `None`: no address is left.
pub fn ipam_pools(
    spec: &SubnetSpec,
    next_hops: &[IpAddr],
    leased: impl Fn(&Pool) -> BTreeSet<IpAddr>,
) -> Option<Vec<Pool>> {
    let network = &spec.network;
    let written: Vec<Span> =
        spec.allocation_pool.iter().map(|pool| (number(pool.start), number(pool.end))).collect();
    // The plugin static hands out one address, which has to be named.
    if written.is_empty() && spec.ipam == Ipam::Static {
        return Some(Vec::new());
    }
    let (lowest, highest) = usable(spec);
    let whole = vec![(lowest, highest)];
    let offered: Vec<Span> = (if written.is_empty() { &whole } else { &written })
        .iter()
        .map(|(first, last)| (*first.max(&lowest), *last.min(&highest)))
        .filter(|(first, last)| first <= last)
        .collect();
    let hot = spec.hot_plug_pool.iter().map(|pool| (number(pool.start), number(pool.end)));
    let hops = next_hops.iter().filter(|hop| network.contains(*hop)).map(|hop| (number(*hop), number(*hop)));
    let mut left = offered.clone();
    for taken in hot.chain(hops) {
        left = left.into_iter().flat_map(|span| without(span, taken)).collect();
    }
    let pool = |(first, last): Span| Pool { start: address(first, network), end: address(last, network) };
    let left: Vec<Span> = left
        .into_iter()
        .flat_map(|span| {
            let taken: Vec<u128> = leased(&pool(span)).into_iter().map(number).collect();
            gaps(span, &taken)
        })
        .collect();
    // host-local and static hand out any address of their ranges; whereabouts skips the ends of the network.
    let kept =
        left == offered && (spec.ipam == Ipam::Whereabouts || written.is_empty() || written == offered);
    if left.is_empty() {
        return None;
    }
    Some(if kept { spec.allocation_pool.clone() } else { left.into_iter().map(pool).collect() })
}

/// The addresses that the IPAM plugin hands out of a whole network. whereabouts takes IPv6's last address for a
/// broadcast address. It treats a range that starts and ends with such an address as the whole network.
fn usable(spec: &SubnetSpec) -> Span {
    let (first, last) = hosts(&spec.network);
    let is_short = spec.ipam == Ipam::Whereabouts && spec.network.addr().is_ipv6();
    (first, last.saturating_sub(u128::from(is_short)))
}

/// Subtracts a range from another.
fn without((first, last): Span, (start, end): Span) -> impl Iterator<Item = Span> {
    let before = (first < start).then(|| (first, last.min(start - 1)));
    let after = (end < last).then(|| (first.max(end + 1), last));
    if end < first || last < start { [Some((first, last)), None] } else { [before, after] }
        .into_iter()
        .flatten()
}

/// Subtracts single addresses, which are in the range and ascend.
fn gaps((mut first, last): Span, taken: &[u128]) -> Vec<Span> {
    let mut gaps = Vec::new();
    for at in taken {
        if first < *at {
            gaps.push((first, at - 1));
        }
        if *at == last {
            return gaps;
        }
        first = at + 1;
    }
    gaps.push((first, last));
    gaps
}

#[cfg(test)]
mod tests {
    use super::*;
    use eno_schemas::Dns;
    use proptest::prelude::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn pool(start: &str, end: &str) -> Pool {
        Pool { start: ip(start), end: ip(end) }
    }

    fn subnet(ipam: Ipam, network: &str, allocation: &[(&str, &str)], hot: &[(&str, &str)]) -> SubnetSpec {
        let pools = |pools: &[(&str, &str)]| pools.iter().map(|(start, end)| pool(start, end)).collect();
        SubnetSpec {
            ipam,
            network: network.parse().unwrap(),
            allocation_pool: pools(allocation),
            hot_plug_pool: pools(hot),
            sticky: false,
            routes: Vec::new(),
            dns: Dns::default(),
        }
    }

    fn left(spec: &SubnetSpec, hops: &[&str], leased: &[&str]) -> Option<Vec<String>> {
        let hops: Vec<IpAddr> = hops.iter().map(|hop| ip(hop)).collect();
        let leased: BTreeSet<IpAddr> = leased.iter().map(|address| ip(address)).collect();
        let found = |pool: &Pool| leased.range(pool.start..=pool.end).copied().collect();
        let pools = ipam_pools(spec, &hops, found)?;
        Some(pools.iter().map(|pool| format!("{}-{}", pool.start, pool.end)).collect())
    }

    #[test]
    fn next_hop_problem_accepts_only_hosts_of_the_network() {
        for (hop, network, problem) in [
            ("10.1.0.1", "10.1.0.0/24", None),
            ("10.2.0.1", "10.1.0.0/24", Some("is not in 10.1.0.0/24")),
            ("10.1.0.0", "10.1.0.0/24", Some("is the network or the broadcast address")),
            ("10.1.0.255", "10.1.0.0/24", Some("is the network or the broadcast address")),
            ("10.1.0.0", "10.1.0.0/31", None),
            ("2001:db8::", "2001:db8::/64", None),
            ("2001:db8::1", "2001:db8::/64", None),
            ("2001:db8:1::1", "2001:db8::/64", Some("is not in 2001:db8::/64")),
            ("fe80::1", "2001:db8::/64", None),
            ("fe80::1", "10.1.0.0/24", Some("is not in 10.1.0.0/24")),
            ("169.254.0.1", "10.1.0.0/24", Some("is not in 10.1.0.0/24")),
        ] {
            let found = next_hop_problem(ip(hop), &network.parse().unwrap());
            assert_eq!(found.is_some(), problem.is_some(), "{hop} {network}: {found:?}");
            assert!(found.unwrap_or_default().contains(problem.unwrap_or_default()), "{hop} {network}");
        }
    }

    #[test]
    fn ipam_pools_stay_as_written_when_nothing_is_excluded() {
        let reference = subnet(Ipam::Whereabouts, "10.10.13.0/24", &[("10.10.13.10", "10.10.13.255")], &[]);
        let hops = &["10.10.13.1"];
        assert_eq!(left(&reference, hops, &[]), Some(vec!["10.10.13.10-10.10.13.255".into()]));
        let outside = subnet(
            Ipam::Whereabouts,
            "10.0.0.0/24",
            &[("10.0.0.200", "10.0.0.255"), ("10.0.0.0", "10.0.0.9")],
            &[("10.0.0.100", "10.0.0.199")],
        );
        let written: Vec<String> = vec!["10.0.0.200-10.0.0.255".into(), "10.0.0.0-10.0.0.9".into()];
        assert_eq!(left(&outside, &[], &["10.0.0.150"]), Some(written));
        for ipam in [Ipam::Whereabouts, Ipam::HostLocal, Ipam::Static] {
            for network in ["10.0.0.0/24", "2001:db8::/64"] {
                assert_eq!(left(&subnet(ipam, network, &[], &[]), &[], &[]), Some(vec![]));
            }
        }
    }

    #[test]
    fn ipam_pools_exclude_leased_addresses_and_next_hops() {
        let two_pools = subnet(Ipam::Whereabouts, "10.63.0.0/24", &[], &[("10.63.0.1", "10.63.0.9")]);
        assert_eq!(left(&two_pools, &[], &[]), Some(vec!["10.63.0.10-10.63.0.254".into()]));
        assert_eq!(
            left(&two_pools, &["10.63.0.254"], &["10.63.0.2", "10.63.0.50", "10.63.0.51"]),
            Some(vec!["10.63.0.10-10.63.0.49".into(), "10.63.0.52-10.63.0.253".into()])
        );
        let v6 = subnet(Ipam::Whereabouts, "2001:db8::/64", &[], &[("2001:db8::100", "2001:db8::1ff")]);
        let upper = |last: &str| format!("2001:db8::200-2001:db8::ffff:ffff:ffff:{last}");
        assert_eq!(left(&v6, &[], &[]), Some(vec!["2001:db8::1-2001:db8::ff".into(), upper("fffe")]));
        let v6 = SubnetSpec { ipam: Ipam::HostLocal, ..v6 };
        assert_eq!(
            left(&v6, &["fe80::1"], &[]),
            Some(vec!["2001:db8::1-2001:db8::ff".into(), upper("ffff")])
        );
        let gateway = subnet(Ipam::Whereabouts, "10.0.0.0/24", &[], &[]);
        assert_eq!(left(&gateway, &["10.0.0.1"], &[]), Some(vec!["10.0.0.2-10.0.0.254".into()]));
        // host-local would hand out the ends of the network, and static the first address.
        let ends = subnet(Ipam::HostLocal, "10.0.0.0/24", &[("10.0.0.0", "10.0.0.255")], &[]);
        assert_eq!(left(&ends, &[], &[]), Some(vec!["10.0.0.1-10.0.0.254".into()]));
        let first = subnet(
            Ipam::Static,
            "10.0.0.0/24",
            &[("10.0.0.20", "10.0.0.29"), ("10.0.0.1", "10.0.0.9")],
            &[("10.0.0.100", "10.0.0.109")],
        );
        assert_eq!(
            left(&first, &["10.0.0.20"], &["10.0.0.21"]),
            Some(vec!["10.0.0.22-10.0.0.29".into(), "10.0.0.1-10.0.0.9".into()])
        );
    }

    #[test]
    fn ipam_pools_are_none_when_no_address_is_left() {
        let all = &[("10.0.0.0", "10.0.0.255")];
        assert_eq!(left(&subnet(Ipam::Whereabouts, "10.0.0.0/24", &[], all), &[], &[]), None);
        let broadcast = &[("10.0.0.255", "10.0.0.255")];
        assert_eq!(left(&subnet(Ipam::Whereabouts, "10.0.0.0/24", broadcast, &[]), &[], &[]), None);
        let one = subnet(Ipam::Static, "10.0.0.0/24", &[("10.0.0.5", "10.0.0.5")], &[]);
        assert_eq!(left(&one, &[], &["10.0.0.5"]), None);
        let last = &[("2001:db8::ffff:ffff:ffff:ffff", "2001:db8::ffff:ffff:ffff:ffff")];
        assert_eq!(left(&subnet(Ipam::Whereabouts, "2001:db8::/64", last, &[]), &[], &[]), None);
    }

    /// The addresses that the plugins hand out for pools, address by address.
    fn handed_out(ipam: Ipam, network: &IpNet, pools: &[Pool]) -> BTreeSet<u128> {
        let (lowest, highest) = (number(network.network()), number(network.broadcast()));
        let written = |at: &u128| pools.iter().any(|p| (number(p.start)..=number(p.end)).contains(at));
        match ipam {
            Ipam::Static => pools.iter().take(1).map(|pool| number(pool.start)).collect(),
            Ipam::HostLocal if !pools.is_empty() => (lowest..=highest).filter(written).collect(),
            Ipam::HostLocal => {
                let last = highest - u128::from(network.addr().is_ipv4());
                (lowest + 1..=last).collect()
            }
            Ipam::Eno => BTreeSet::new(),
            // One range from the first start to the last end, each of which counts only if it is usable.
            Ipam::Whereabouts => {
                let usable = lowest + 1..=highest - 1;
                let start = pools.iter().map(|pool| number(pool.start)).min();
                let end = pools.iter().map(|pool| number(pool.end)).max();
                let first = start.filter(|at| usable.contains(at)).unwrap_or(lowest + 1);
                let last = end.filter(|at| (first..=highest - 1).contains(at)).unwrap_or(highest - 1);
                let between =
                    |at: &u128| pools.is_empty() || written(at) || start > Some(*at) || end < Some(*at);
                (first..=last).filter(between).collect()
            }
        }
    }

    proptest! {
        /// For any pools, no address is both the plugin's and the engine's, and no pod gets the address of a next
        /// hop. Nothing else is left out except the ends of the network.
        #[test]
        fn ipam_pools_never_overlap_leases_or_next_hops(
            ipam in prop_oneof![Just(Ipam::Whereabouts), Just(Ipam::HostLocal), Just(Ipam::Static)],
            v6: bool,
            bits in 2u8..8,
            allocation in proptest::collection::vec((0u128..256, 0u128..256), 0..4),
            hot in proptest::collection::vec((0u128..256, 0u128..64), 0..3),
            hops in proptest::collection::vec(0u128..256, 0..2),
            leased in proptest::collection::btree_set(0u128..256, 0..6),
        ) {
            let text = if v6 { format!("2001:db8::/{}", 128 - bits) } else { format!("10.0.0.0/{}", 32 - bits) };
            let network: IpNet = text.parse().unwrap();
            let (base, size) = (number(network.network()), 1u128 << bits);
            let at = |n: u128| address(base + n % size, &network);
            let mut written: Vec<Pool> = Vec::new();
            for (from, more) in allocation {
                let pool = Pool { start: at(from), end: address((base + from % size + more).min(base + size - 1), &network) };
                if written.iter().all(|other| pool.end < other.start || other.end < pool.start) {
                    written.push(pool);
                }
            }
            let hot: Vec<Pool> = hot
                .into_iter()
                .map(|(from, more)| Pool {
                    start: at(from),
                    end: address((base + from % size + more).min(base + size - 1), &network),
                })
                .filter(|hot| written.iter().all(|pool| hot.end < pool.start || pool.end < hot.start))
                .collect();
            let hops: Vec<IpAddr> = hops.into_iter().map(at).collect();
            let leased: BTreeSet<IpAddr> = leased.into_iter().map(at).collect();
            let spec = SubnetSpec {
                ipam,
                network,
                allocation_pool: written.clone(),
                hot_plug_pool: hot.clone(),
                sticky: false,
                routes: Vec::new(),
                dns: Dns::default(),
            };
            let found = |pool: &Pool| leased.range(pool.start..=pool.end).copied().collect();
            let pools = ipam_pools(&spec, &hops, found);
            let given = pools.as_ref().map(|pools| handed_out(ipam, &network, pools)).unwrap_or_default();
            let of_engine = |n: u128| {
                let ip = address(n, &network);
                leased.contains(&ip) || hot.iter().any(|pool| pool.start <= ip && ip <= pool.end)
            };
            for n in &given {
                prop_assert!(!of_engine(*n), "{} is the engine's", address(*n, &network));
                prop_assert!(!hops.contains(&address(*n, &network)), "{} is a next hop", address(*n, &network));
            }
            if ipam != Ipam::Static {
                for n in base + 1..base + size - 1 {
                    let ip = address(n, &network);
                    let offered = written.is_empty() || written.iter().any(|pool| pool.start <= ip && ip <= pool.end);
                    prop_assert_eq!(given.contains(&n), offered && !of_engine(n) && !hops.contains(&ip));
                }
            }
        }
    }
}
