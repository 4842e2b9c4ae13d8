//! Address allocation for pods. Networks are never enumerated: only addresses that are or were taken are stored.
//!
//! A released address is leased again only after all others of its source. So neighbours don't send to the hardware
//! address of its former holder. That order is lost on a restart; leases are in statuses.

mod addresses;
pub mod blocks;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use eno_schemas::Pool;
use ipnet::{IpNet, IpSubnets, Ipv4Subnets, Ipv6Subnets};

use crate::{Key, Name};

use addresses::Addresses;

/// The pool in which an address is unique.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PoolKey {
    /// A pod bridge of a namespace: namespace, bridge.
    Bridge(Name, String),
    /// The pods of one link of an object: object, link.
    Link(Key, Name),
    /// A Subnet.
    Subnet(Name),
    /// A pool that no spec names any more. Its addresses are taken in every pool until they are released.
    Unknown,
}

/// The holder of an address: the object, the pod's uid and the link.
pub type Holder = (Key, Name, Name);

/// The source of an address; one address family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A network, whose first address may be a bridge's.
    Network {
        /// The network.
        network: IpNet,
        /// The first address is the bridge's.
        bridged: bool,
    },
    /// One of these.
    List(Vec<IpNet>),
    /// The ranges of a Subnet that the engine leases.
    Ranges {
        /// The network, for its prefix length and its ends.
        network: IpNet,
        /// The ranges.
        ranges: Vec<Pool>,
        /// The next hops of its routes.
        excluded: Vec<IpAddr>,
    },
}

/// An inclusive range of addresses, as numbers of one family.
pub(crate) type Span = (u128, u128);

/// All addresses that are or were taken.
#[derive(Debug)]
pub struct Ipam {
    /// The addresses of each pool.
    pools: HashMap<PoolKey, Addresses>,
    /// The addresses of [`PoolKey::Unknown`], each with its number of holders.
    unknown: BTreeMap<IpAddr, u32>,
    /// By count: the pool in which an address was released.
    released: BTreeMap<u64, PoolKey>,
    /// Counts the releases.
    count: u64,
    /// Maximum entries of `released`.
    max_released: usize,
}

impl Default for Ipam {
    fn default() -> Self {
        Self {
            pools: HashMap::new(),
            unknown: BTreeMap::new(),
            released: BTreeMap::new(),
            count: 0,
            max_released: MAX_RELEASED,
        }
    }
}

/// Maximum of released addresses that are remembered: as many as an IPv4 network of prefix length 16 has.
const MAX_RELEASED: usize = 1 << 16;

impl Ipam {
    /// Takes a given address for `holder`. Returns true when the holder has it now.
    pub fn take(&mut self, pool: &PoolKey, address: IpAddr, holder: &Holder) -> bool {
        if *pool == PoolKey::Unknown {
            *self.unknown.entry(address).or_default() += 1;
            return true;
        }
        let addresses = self.pools.entry(pool.clone()).or_default();
        if let Some(known) = addresses.holder(address) {
            return known == holder;
        }
        if addresses.blocks.containing(address).is_some() {
            return false;
        }
        if let Some(count) = addresses.take(address, holder) {
            self.released.remove(&count);
        }
        true
    }

    /// Takes a free address of `source`: the lowest that was never taken, else the one that was released first, which
    /// neighbours have forgotten. `None`: there is none.
    pub fn take_any(&mut self, pool: &PoolKey, source: &Source, holder: &Holder) -> Option<IpNet> {
        let addresses = self.pools.entry(pool.clone()).or_default();
        let next = source.next(addresses, &self.unknown);
        if let Some(next) = next {
            if let Some(count) = addresses.take(next.addr(), holder) {
                self.released.remove(&count);
            }
        } else if addresses.is_empty() {
            self.pools.remove(pool);
        }
        next
    }

    /// Releases an address.
    pub fn release(&mut self, pool: &PoolKey, address: IpAddr) {
        if *pool == PoolKey::Unknown {
            if let Some(count) = self.unknown.get_mut(&address) {
                *count -= 1;
                if *count == 0 {
                    self.unknown.remove(&address);
                }
            }
            return;
        }
        let Some(addresses) = self.pools.get_mut(pool) else { return };
        if !addresses.release(address, self.count) {
            return;
        }
        self.released.insert(self.count, pool.clone());
        self.count += 1;
        while self.released.len() > self.max_released
            && let Some((count, pool)) = self.released.pop_first()
            && let Some(addresses) = self.pools.get_mut(&pool)
        {
            addresses.forget(count);
            if addresses.is_empty() {
                self.pools.remove(&pool);
            }
        }
    }

    /// Undoes [`Self::take_any`] for an address that was never used.
    pub fn undo(&mut self, pool: &PoolKey, address: IpAddr) {
        let Some(addresses) = self.pools.get_mut(pool) else { return };
        if let Some(count) = addresses.undo(address) {
            self.released.insert(count, pool.clone());
        }
        if addresses.is_empty() {
            self.pools.remove(pool);
        }
    }

    /// The addresses of a range that are taken in `pool`, also in blocks, and those of [`PoolKey::Unknown`].
    pub fn taken(&self, pool: &PoolKey, range: &Pool) -> BTreeSet<IpAddr> {
        let addresses = self.pools.get(pool);
        let known =
            addresses.into_iter().flat_map(|addresses| addresses.taken_between(range.start, range.end));
        let unknown = self.unknown.range(range.start..=range.end).map(|(address, _)| *address);
        let blocks = addresses.into_iter().flat_map(|own| own.blocks.within((range.start, range.end)));
        let (first, last, family) = (number(range.start), number(range.end), IpNet::from(range.start));
        let of_blocks = blocks.flat_map(|(start, end)| start.max(first)..=end.min(last));
        known.chain(unknown).chain(of_blocks.map(|at| address(at, &family))).collect()
    }

    /// True of an address of [`PoolKey::Unknown`].
    pub fn is_unknown(&self, address: IpAddr) -> bool {
        self.unknown.contains_key(&address)
    }

    /// The number of addresses of `pool` that objects give to running pods.
    pub fn count(&self, pool: &PoolKey) -> usize {
        self.pools.get(pool).map_or(0, Addresses::count)
    }

    /// The holder of an address. `None` also for those of [`PoolKey::Unknown`].
    pub fn holder(&self, pool: &PoolKey, address: IpAddr) -> Option<&Holder> {
        self.pools.get(pool)?.holder(address)
    }
}

impl Source {
    /// True when `address` may be leased from this source.
    pub fn offers(&self, address: IpNet) -> bool {
        match self {
            Self::List(list) => list.contains(&address),
            Self::Network { network, .. } | Self::Ranges { network, .. } => {
                let at = number(address.addr());
                address.prefix_len() == network.prefix_len()
                    && same_family(address.addr(), network.addr())
                    && self.spans().iter().any(|(first, last)| (first..=last).contains(&&at))
                    && !self.excluded().contains(&address.addr())
            }
        }
    }

    /// True when a pod that has `address` may keep it, even if it is not offered any more.
    pub fn keeps(&self, address: IpNet) -> bool {
        match self {
            Self::Ranges { network, excluded, .. } => {
                let (first, last) = hosts(network);
                address.prefix_len() == network.prefix_len()
                    && same_family(address.addr(), network.addr())
                    && (first..=last).contains(&number(address.addr()))
                    && !excluded.contains(&address.addr())
            }
            Self::List(_) | Self::Network { .. } => self.offers(address),
        }
    }

    /// Its network; `None`: it is a list.
    pub(crate) fn network(&self) -> Option<&IpNet> {
        match self {
            Self::List(_) => None,
            Self::Network { network, .. } | Self::Ranges { network, .. } => Some(network),
        }
    }

    /// Its inclusive ranges.
    pub(crate) fn spans(&self) -> Vec<Span> {
        match self {
            Self::List(_) => Vec::new(),
            Self::Network { network, bridged } => {
                let (first, last) = hosts(network);
                let first = if *bridged { first.checked_add(1) } else { Some(first) };
                first.filter(|first| *first <= last).map(|first| (first, last)).into_iter().collect()
            }
            Self::Ranges { network, ranges, .. } => {
                let (lowest, highest) = hosts(network);
                let mut spans: Vec<Span> = ranges
                    .iter()
                    .map(|range| (number(range.start).max(lowest), number(range.end).min(highest)))
                    .filter(|(first, last)| first <= last)
                    .collect();
                spans.sort_unstable();
                spans
            }
        }
    }

    /// The networks that together have the addresses of its ranges, also those that are never leased.
    pub(crate) fn prefixes(&self) -> Vec<IpNet> {
        let Some(network) = self.network() else { return Vec::new() };
        let of = |(first, last): Span| match (address(first, network), address(last, network)) {
            (IpAddr::V4(first), IpAddr::V4(last)) => IpSubnets::V4(Ipv4Subnets::new(first, last, 0)),
            (IpAddr::V6(first), IpAddr::V6(last)) => IpSubnets::V6(Ipv6Subnets::new(first, last, 0)),
            _ => unreachable!("addresses of one network"),
        };
        self.spans().into_iter().flat_map(of).collect()
    }

    /// The addresses that are never leased.
    pub(crate) fn excluded(&self) -> &[IpAddr] {
        match self {
            Self::Ranges { excluded, .. } => excluded,
            Self::Network { .. } | Self::List(_) => &[],
        }
    }

    /// The number of addresses that its ranges offer.
    pub(crate) fn size(&self) -> u128 {
        let within = |address: &&IpAddr| self.network().is_some_and(|network| network.contains(*address));
        let excluded: BTreeSet<u128> =
            self.excluded().iter().filter(within).map(|address| number(*address)).collect();
        let left = self.spans().into_iter().map(|(first, last)| {
            let inside = excluded.range(first..=last).count() as u128;
            (last - first).saturating_add(1) - inside
        });
        left.fold(0, u128::saturating_add)
    }

    fn next(&self, addresses: &Addresses, unknown: &BTreeMap<IpAddr, u32>) -> Option<IpNet> {
        let usable = |ip: IpAddr| !unknown.contains_key(&ip) && !self.excluded().contains(&ip);
        let network = match self {
            Self::List(list) => {
                let free =
                    list.iter().filter(|ip| addresses.holder(ip.addr()).is_none() && usable(ip.addr()));
                // An address that was never released comes first.
                return free.min_by_key(|ip| addresses.released_at(ip.addr())).copied();
            }
            Self::Network { network, .. } | Self::Ranges { network, .. } => network,
        };
        let with_prefix = |ip| IpNet::new(ip, network.prefix_len()).ok();
        for (first, last) in self.spans() {
            let mut candidate = Some(first);
            while let Some(at) = candidate.filter(|at| *at <= last) {
                let ip = address(at, network);
                let end = addresses.end_of_used(ip);
                if end.is_none() && usable(ip) {
                    return with_prefix(ip);
                }
                candidate = end.map_or(at, number).checked_add(1);
            }
        }
        let mut oldest = addresses.released().filter_map(with_prefix);
        let is_free = |ip: IpAddr| !unknown.contains_key(&ip) && addresses.blocks.containing(ip).is_none();
        oldest.find(|ip| self.offers(*ip) && is_free(ip.addr()))
    }
}

/// The first address of a network that an interface may have, with the network's prefix length.
pub fn first_address(network: &IpNet) -> IpNet {
    let first = address(hosts(network).0, network);
    IpNet::new(first, network.prefix_len()).unwrap_or(*network)
}

/// The first and last address that interfaces may have. That excludes the network's own and IPv4's broadcast address,
/// which networks of one or two addresses lack (RFC 3021, RFC 6164).
pub(crate) fn hosts(network: &IpNet) -> Span {
    let (first, last) = (number(network.network()), number(network.broadcast()));
    match network {
        _ if network.max_prefix_len() - network.prefix_len() < 2 => (first, last),
        IpNet::V4(_) => (first + 1, last - 1),
        IpNet::V6(_) => (first + 1, last),
    }
}

pub(crate) fn number(ip: IpAddr) -> u128 {
    match ip {
        IpAddr::V4(ip) => u128::from(ip.to_bits()),
        IpAddr::V6(ip) => ip.to_bits(),
    }
}

/// The address with this number, of the network's family.
pub(crate) fn address(number: u128, network: &IpNet) -> IpAddr {
    match network {
        IpNet::V4(_) => IpAddr::V4(Ipv4Addr::from_bits(u32::try_from(number).unwrap_or(u32::MAX))),
        IpNet::V6(_) => IpAddr::V6(Ipv6Addr::from_bits(number)),
    }
}

fn same_family(a: IpAddr, b: IpAddr) -> bool {
    a.is_ipv4() == b.is_ipv4()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kind;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    fn holder(n: usize) -> Holder {
        (Key::cluster(Kind::PodConfig, &"c".into()), format!("pod{n}").into(), "l".into())
    }

    fn key() -> PoolKey {
        PoolKey::Subnet("s".into())
    }

    fn network(text: &str, bridged: bool) -> Source {
        Source::Network { network: text.parse().unwrap(), bridged }
    }

    fn all(source: &Source, max: usize) -> Vec<String> {
        let mut ipam = Ipam::default();
        let taken = (0..max).map_while(|n| ipam.take_any(&key(), source, &holder(n)));
        taken.map(|ip| ip.to_string()).collect()
    }

    #[test]
    fn take_any_leases_all_hosts_of_every_prefix_length() {
        assert_eq!(
            all(&network("10.0.0.0/29", true), 9),
            ["10.0.0.2/29", "10.0.0.3/29", "10.0.0.4/29", "10.0.0.5/29", "10.0.0.6/29"]
        );
        assert_eq!(all(&network("10.0.0.0/30", false), 9), ["10.0.0.1/30", "10.0.0.2/30"]);
        assert_eq!(all(&network("10.0.0.0/31", true), 9), ["10.0.0.1/31"]);
        assert_eq!(all(&network("10.0.0.0/31", false), 9), ["10.0.0.0/31", "10.0.0.1/31"]);
        assert_eq!(all(&network("10.0.0.9/32", false), 9), ["10.0.0.9/32"]);
        assert!(all(&network("10.0.0.9/32", true), 9).is_empty());
        assert_eq!(all(&network("0.0.0.0/0", true), 1), ["0.0.0.2/0"]);
        assert_eq!(
            all(&network("255.255.255.254/31", false), 9),
            ["255.255.255.254/31", "255.255.255.255/31"]
        );
        assert_eq!(all(&network("fd00::/64", true), 2), ["fd00::2/64", "fd00::3/64"]);
        assert_eq!(all(&network("fd00::/127", true), 2), ["fd00::1/127"]);
        assert_eq!(all(&network("ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffe/127", false), 9).len(), 2);
        assert_eq!(all(&network("::/0", false), 1), ["::1/0"]);
        for (text, first) in
            [("10.1.0.0/16", "10.1.0.1/16"), ("10.0.0.4/31", "10.0.0.4/31"), ("fd00::/48", "fd00::1/48")]
        {
            assert_eq!(first_address(&text.parse().unwrap()).to_string(), first);
        }
    }

    #[test]
    fn take_any_leases_lists_and_ranges_in_order() {
        let list = Source::List(vec!["10.0.0.9/24".parse().unwrap(), "10.0.0.4/24".parse().unwrap()]);
        assert_eq!(all(&list, 9), ["10.0.0.9/24", "10.0.0.4/24"]);
        let range =
            |start: &str, end: &str| Pool { start: start.parse().unwrap(), end: end.parse().unwrap() };
        let ranges = Source::Ranges {
            network: "10.0.0.0/28".parse().unwrap(),
            ranges: vec![range("10.0.0.14", "10.0.0.15"), range("10.0.0.0", "10.0.0.3")],
            excluded: vec!["10.0.0.1".parse().unwrap()],
        };
        assert_eq!(all(&ranges, 9), ["10.0.0.2/28", "10.0.0.3/28", "10.0.0.14/28"]);
        assert!(
            !ranges.offers("10.0.0.1/28".parse().unwrap()) && ranges.offers("10.0.0.14/28".parse().unwrap())
        );
        assert!(!ranges.offers("10.0.0.14/24".parse().unwrap()));
    }

    #[test]
    fn size_is_that_of_the_ranges_without_excluded_addresses() {
        for (network, ranges, excluded, expected) in [
            ("10.0.0.0/24", &[("10.0.0.0", "10.0.0.255")][..], &[][..], 254),
            ("10.0.0.0/30", &[("10.0.0.0", "10.0.0.3")], &["10.0.0.1"], 1),
            (
                "10.0.0.0/24",
                &[("10.0.0.0", "10.0.0.9"), ("10.0.0.250", "10.0.0.255")],
                &["10.0.0.1", "10.9.0.1", "10.0.0.1"],
                13,
            ),
            ("10.0.0.0/24", &[("10.0.0.255", "10.0.0.255")], &[], 0),
            (
                "2001:db8::/64",
                &[("2001:db8::", "2001:db8::ffff:ffff:ffff:ffff")],
                &["fe80::1"],
                (1 << 64) - 1,
            ),
            ("::/0", &[("::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff")], &[], u128::MAX),
        ] {
            let parse = |text: &str| text.parse::<IpAddr>().unwrap();
            let source = Source::Ranges {
                network: network.parse().unwrap(),
                ranges: ranges
                    .iter()
                    .map(|(start, end)| Pool { start: parse(start), end: parse(end) })
                    .collect(),
                excluded: excluded.iter().map(|text| parse(text)).collect(),
            };
            assert_eq!(source.size(), expected, "{source:?}");
        }
    }

    fn take(ipam: &mut Ipam, source: &Source) -> Option<String> {
        ipam.take_any(&key(), source, &holder(0)).map(|ip| ip.addr().to_string())
    }

    #[test]
    fn released_addresses_are_leased_last_in_order_of_release() {
        let mut ipam = Ipam::default();
        let source = network("10.0.0.0/29", true);
        let ip = |last: u8| IpAddr::from([10, 0, 0, last]);
        for last in 2..5 {
            assert_eq!(take(&mut ipam, &source), Some(ip(last).to_string()));
        }
        ipam.release(&key(), ip(3));
        ipam.release(&key(), ip(2));
        for last in [5, 6, 3, 2] {
            assert_eq!(take(&mut ipam, &source), Some(ip(last).to_string()));
        }
        assert_eq!(take(&mut ipam, &source), None);
        // A list follows the same order.
        let list = Source::List([2, 3, 4].map(|last| IpNet::new(ip(last), 29).unwrap()).to_vec());
        for last in [4, 3, 2] {
            ipam.release(&key(), ip(last));
        }
        assert_eq!(take(&mut ipam, &list), Some(ip(4).to_string()));
        // A given address is taken.
        assert!(ipam.take(&key(), ip(3), &holder(9)) && !ipam.take(&key(), ip(3), &holder(8)));
        assert_eq!(ipam.holder(&key(), ip(3)), Some(&holder(9)));
        assert_eq!(take(&mut ipam, &list), Some(ip(2).to_string()));
        assert_eq!(take(&mut ipam, &list), None);
    }

    #[test]
    fn undone_address_is_leased_next() {
        let mut ipam = Ipam::default();
        let source = network("10.0.0.0/30", false);
        for expected in ["10.0.0.1", "10.0.0.2", "10.0.0.1"] {
            for _ in 0..3 {
                assert_eq!(take(&mut ipam, &source).as_deref(), Some(expected));
                ipam.undo(&key(), expected.parse().unwrap());
            }
            assert_eq!(take(&mut ipam, &source).as_deref(), Some(expected));
            ipam.release(&key(), expected.parse().unwrap());
        }
    }

    #[test]
    fn released_addresses_beyond_the_limit_are_forgotten() {
        let mut ipam = Ipam { max_released: 2, ..Ipam::default() };
        let source = network("fd00::/64", false);
        for _ in 0..9 {
            let ip = take(&mut ipam, &source).unwrap();
            ipam.release(&key(), ip.parse().unwrap());
            assert!(ipam.released.len() <= 2);
        }
        // An unused pool is dropped in the end.
        let other = PoolKey::Subnet("other".into());
        for _ in 0..2 {
            let ip = ipam.take_any(&other, &source, &holder(0)).unwrap();
            ipam.release(&other, ip.addr());
        }
        assert_eq!(ipam.pools.keys().collect::<Vec<_>>(), [&other]);
        assert_eq!(take(&mut ipam, &source).as_deref(), Some("fd00::1"));
    }

    #[test]
    fn addresses_of_the_unknown_pool_are_free_in_no_pool() {
        let (mut ipam, ip) = (Ipam::default(), "10.0.0.2".parse().unwrap());
        let source = network("10.0.0.0/24", true);
        for n in 0..2 {
            assert!(ipam.take(&PoolKey::Unknown, ip, &holder(n)));
        }
        assert_eq!(ipam.take_any(&key(), &source, &holder(2)).unwrap().to_string(), "10.0.0.3/24");
        let list = Source::List(vec!["10.0.0.2/24".parse().unwrap()]);
        assert_eq!(ipam.take_any(&key(), &list, &holder(2)), None);
        ipam.release(&PoolKey::Unknown, ip);
        assert_eq!(ipam.take_any(&key(), &list, &holder(2)), None);
        ipam.release(&PoolKey::Unknown, ip);
        assert_eq!(ipam.take_any(&key(), &source, &holder(2)).unwrap().addr(), ip);
    }

    proptest! {
        /// For any sequence of leases and releases: no address is leased twice or outside the source, and the one
        /// that was free for longest comes first.
        #[test]
        fn leases_are_unique_and_least_recently_released(
            bits in any::<u32>(), length in 20u8..=32, bridged: bool,
            steps in proptest::collection::vec((any::<bool>(), 0usize..40), 1..200),
        ) {
            let network = ipnet::Ipv4Net::new(Ipv4Addr::from_bits(bits), length).unwrap().trunc();
            let source = Source::Network { network: IpNet::V4(network), bridged };
            let usable = network.hosts().skip(usize::from(bridged));
            let mut queue: VecDeque<IpNet> = usable.map(|ip| IpNet::new(ip.into(), length).unwrap()).collect();
            let mut ipam = Ipam::default();
            let mut held: Vec<IpNet> = Vec::new();
            for (n, (take, which)) in steps.into_iter().enumerate() {
                if take {
                    let got = ipam.take_any(&key(), &source, &holder(n));
                    prop_assert_eq!(got, queue.pop_front());
                    prop_assert!(got.is_none_or(|ip| source.offers(ip)));
                    held.extend(got);
                } else if which < held.len() {
                    let ip = held.swap_remove(which);
                    ipam.release(&key(), ip.addr());
                    queue.push_back(ip);
                }
            }
        }
    }
}
