//! Blocks of addresses that nodes give to their pods, beside the single addresses of the same pool. A block is an
//! aligned power of two.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use ipnet::IpNet;

use super::{Ipam, PoolKey, Source, Span, address, number};
use crate::Name;

/// The holder of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// The node.
    pub node: Name,
    /// How far the node has it.
    pub stage: Stage,
}

/// How far a node has what is leased to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The node gets it once the status of this revision is written.
    Leased(u64),
    /// The node is commanded to have it.
    Given,
    /// It is being taken back.
    Taken {
        /// The version of the nodes since which the node is not commanded to have it.
        version: u64,
        /// The time since then.
        since: Duration,
    },
}

/// The blocks of a pool. They are disjoint.
#[derive(Debug, Default)]
pub(crate) struct Blocks(BTreeMap<IpNet, Block>);

impl Blocks {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The block that contains an address.
    pub fn containing(&self, address: IpAddr) -> Option<(&IpNet, &Block)> {
        let last = self.0.range(..=IpNet::from(address)).next_back();
        last.filter(|(net, _)| net.contains(&address))
    }

    /// The blocks that have addresses in a range, as ranges.
    pub fn within(&self, (first, last): (IpAddr, IpAddr)) -> impl Iterator<Item = Span> {
        let start = self.containing(first).map_or_else(|| lowest(first), |(net, _)| *net);
        let all = self.0.range(start..).map(|(net, _)| net);
        all.take_while(move |net| net.network().is_ipv4() == last.is_ipv4() && net.network() <= last)
            .map(span)
    }

    /// Takes a part out of the block that contains it. The rest stays. Returns the holder.
    fn cut(&mut self, part: &IpNet) -> Option<Block> {
        let net = *self.containing(part.network())?.0;
        if !net.contains(part) {
            return None;
        }
        let block = self.0.remove(&net)?;
        let ((first, last), (start, end)) = (span(&net), span(part));
        let before = start.checked_sub(1).filter(|_| first < start).map(|before| (first, before));
        let after = end.checked_add(1).filter(|_| end < last).map(|after| (after, last));
        for rest in before.into_iter().chain(after) {
            self.0.extend(aligned(rest, &net).map(|rest| (rest, block.clone())));
        }
        Some(block)
    }
}

/// The first block that a range of blocks from `address` may start with.
fn lowest(address: IpAddr) -> IpNet {
    IpNet::new(address, 0).unwrap_or(IpNet::from(address))
}

/// The first and the last address of a network.
pub(crate) fn span(net: &IpNet) -> Span {
    (number(net.network()), number(net.broadcast()))
}

/// The number of addresses of a network, or slightly less.
pub(crate) fn size(net: &IpNet) -> u128 {
    let (first, last) = span(net);
    (last - first).saturating_add(1)
}

/// The largest aligned blocks of a range, ascending. `family`: a network of its family.
pub(crate) fn aligned((first, last): Span, family: &IpNet) -> impl Iterator<Item = IpNet> {
    let (family, length) = (*family, family.max_prefix_len());
    let mut next = Some(first);
    std::iter::from_fn(move || {
        let at = next.filter(|at| *at <= last)?;
        let room = (last - at).checked_add(1).map_or(128, u128::ilog2);
        let bits = at.trailing_zeros().min(room).min(u32::from(length));
        let net = IpNet::new(address(at, &family), length - u8::try_from(bits).ok()?).ok()?;
        next = span(&net).1.checked_add(1);
        Some(net)
    })
}

/// Subtracts ranges, which ascend, from a range. They may overlap each other and its ends.
pub(crate) fn gaps((first, last): Span, taken: impl Iterator<Item = Span>) -> Vec<Span> {
    let (mut gaps, mut next) = (Vec::new(), Some(first));
    for (start, end) in taken {
        let Some(at) = next.filter(|at| *at <= last) else { return gaps };
        if at < start {
            gaps.push((at, last.min(start - 1)));
        }
        next = if end >= at { end.checked_add(1) } else { next };
    }
    gaps.extend(next.filter(|at| *at <= last).map(|at| (at, last)));
    gaps
}

impl Ipam {
    /// The block that contains an address.
    pub fn block_of(&self, pool: &PoolKey, address: IpAddr) -> Option<(&IpNet, &Block)> {
        self.pools.get(pool)?.blocks.containing(address)
    }

    /// The blocks of a pool, ascending.
    pub fn blocks(&self, pool: &PoolKey) -> impl Iterator<Item = (&IpNet, &Block)> {
        self.pools.get(pool).into_iter().flat_map(|addresses| &addresses.blocks.0)
    }

    /// The addresses of a source that nobody has, as ranges.
    pub fn free(&self, pool: &PoolKey, source: &Source) -> Vec<Span> {
        let spans = source.spans().into_iter();
        let (family, excluded) = (source.network(), source.excluded());
        spans.flat_map(|span| self.gaps_of(pool, span, family, excluded)).collect()
    }

    fn gaps_of(&self, pool: &PoolKey, range: Span, family: Option<&IpNet>, excluded: &[IpAddr]) -> Vec<Span> {
        let Some(family) = family else { return Vec::new() };
        let ends = (address(range.0, family), address(range.1, family));
        let single = |address: &IpAddr| (number(*address), number(*address));
        let mut taken: Vec<Span> =
            self.unknown.range(ends.0..=ends.1).map(|(address, _)| single(address)).collect();
        if let Some(addresses) = self.pools.get(pool) {
            taken.extend(addresses.taken_between(ends.0, ends.1).map(|address| single(&address)));
            taken.extend(addresses.blocks.within(ends));
        }
        taken.extend(excluded.iter().filter(|address| address.is_ipv4() == ends.0.is_ipv4()).map(single));
        taken.sort_unstable();
        gaps(range, taken.into_iter())
    }

    /// Leases a free block of a source to a node: of `most` addresses, a power of two, or else the largest that is free.
    pub fn take_block(&mut self, pool: &PoolKey, source: &Source, most: u128, block: Block) -> Option<IpNet> {
        let family = *source.network()?;
        let free = self.free(pool, source);
        let all = free.iter().flat_map(|range| aligned(*range, &family));
        // Of the smallest that is large enough, so that large ones stay whole.
        let rank =
            |net: &IpNet| if size(net) >= most { (true, u128::MAX - size(net)) } else { (false, size(net)) };
        let found = all.reduce(|best, net| if rank(&net) > rank(&best) { net } else { best })?;
        let first = number(found.network());
        let net = aligned((first, first + (most.min(size(&found)) - 1)), &family).next()?;
        self.pools.entry(pool.clone()).or_default().blocks.0.insert(net, block);
        Some(net)
    }

    /// Leases the parts of a network that nobody has. Returns them.
    pub fn claim(&mut self, pool: &PoolKey, net: &IpNet, block: &Block) -> Vec<IpNet> {
        let free = self.gaps_of(pool, span(net), Some(net), &[]);
        let parts: Vec<IpNet> = free.into_iter().flat_map(|range| aligned(range, net)).collect();
        if !parts.is_empty() {
            let addresses = self.pools.entry(pool.clone()).or_default();
            addresses.blocks.0.extend(parts.iter().map(|part| (*part, block.clone())));
        }
        parts
    }

    /// Takes a part of a block back from its node.
    pub fn release_part(&mut self, pool: &PoolKey, part: &IpNet) {
        let Some(addresses) = self.pools.get_mut(pool) else { return };
        addresses.blocks.cut(part);
        if addresses.is_empty() {
            self.pools.remove(pool);
        }
    }

    /// Changes how far the node of a block has a part of it.
    pub fn set_stage(&mut self, pool: &PoolKey, part: &IpNet, stage: Stage) {
        let Some(addresses) = self.pools.get_mut(pool) else { return };
        if let Some(block) = addresses.blocks.cut(part) {
            addresses.blocks.0.insert(*part, Block { stage, ..block });
        }
    }

    /// Joins the two halves of blocks that one node has alike.
    pub fn join_blocks(&mut self, pool: &PoolKey) {
        let Some(addresses) = self.pools.get_mut(pool) else { return };
        let mut joined: Vec<(IpNet, Block)> = Vec::new();
        for (net, block) in std::mem::take(&mut addresses.blocks.0) {
            joined.push((net, block));
            while let [.., (left, of_left), (right, of_right)] = &joined[..]
                && of_left == of_right
                && left.prefix_len() == right.prefix_len()
                && let Some(whole) = left.supernet().filter(|whole| whole.contains(right))
            {
                joined.pop();
                if let Some(last) = joined.last_mut() {
                    last.0 = whole;
                }
            }
        }
        addresses.blocks.0 = joined.into_iter().collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pods::ipam::Holder;
    use crate::{Key, Kind};
    use eno_schemas::Pool;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn pool() -> PoolKey {
        PoolKey::Subnet("s".into())
    }

    fn source(network: &str, excluded: &[&str]) -> Source {
        let network: IpNet = network.parse().unwrap();
        let ranges = vec![Pool { start: network.network(), end: network.broadcast() }];
        let excluded = excluded.iter().map(|address| address.parse().unwrap()).collect();
        Source::Ranges { network, ranges, excluded }
    }

    fn given(node: &str) -> Block {
        Block { node: node.into(), stage: Stage::Given }
    }

    fn holder(n: usize) -> Holder {
        (Key::cluster(Kind::PodConfig, &"c".into()), format!("pod{n}").into(), "l".into())
    }

    fn shown(ipam: &Ipam) -> Vec<String> {
        ipam.blocks(&pool()).map(|(net, block)| format!("{net} {}", block.node)).collect()
    }

    #[test]
    fn blocks_leave_out_ends_next_hops_and_single_leases() {
        let mut ipam = Ipam::default();
        let source = source("10.0.0.0/28", &["10.0.0.1"]);
        assert!(ipam.take(&pool(), "10.0.0.6".parse().unwrap(), &holder(0)));
        let mut take = |most| ipam.take_block(&pool(), &source, most, given("a")).map(|net| net.to_string());
        assert_eq!(take(4).as_deref(), Some("10.0.0.8/30"));
        assert_eq!(take(4).as_deref(), Some("10.0.0.2/31"), "no block of four is free");
        assert_eq!(take(1).as_deref(), Some("10.0.0.7/32"), "the smallest that is large enough");
        assert_eq!(take(256).as_deref(), Some("10.0.0.4/31"));
        assert_eq!(take(256).as_deref(), Some("10.0.0.12/31"));
        assert_eq!(take(256).as_deref(), Some("10.0.0.14/32"));
        assert_eq!(take(1), None);
        assert_eq!(ipam.take_any(&pool(), &source, &holder(1)), None, "blocks are no single leases");
        assert!(!ipam.take(&pool(), "10.0.0.8".parse().unwrap(), &holder(1)));
    }

    #[test]
    fn parts_change_hands_and_joined_blocks_are_whole_again() {
        let mut ipam = Ipam::default();
        assert_eq!(ipam.claim(&pool(), &"10.0.0.16/28".parse().unwrap(), &given("a")).len(), 1);
        let part: IpNet = "10.0.0.20/31".parse().unwrap();
        let taken = Stage::Taken { version: 1, since: Duration::ZERO };
        ipam.set_stage(&pool(), &part, taken);
        assert_eq!(shown(&ipam), ["10.0.0.16/30 a", "10.0.0.20/31 a", "10.0.0.22/31 a", "10.0.0.24/29 a"]);
        ipam.join_blocks(&pool());
        assert_eq!(ipam.blocks(&pool()).count(), 4, "one is being taken back");
        ipam.release_part(&pool(), &part);
        let all = ipam.claim(&pool(), &"10.0.0.0/27".parse().unwrap(), &given("b"));
        assert_eq!(all.iter().map(ToString::to_string).collect::<Vec<_>>(), ["10.0.0.0/28", "10.0.0.20/31"]);
        ipam.release_part(&pool(), &part);
        ipam.claim(&pool(), &part, &given("a"));
        ipam.join_blocks(&pool());
        assert_eq!(shown(&ipam), ["10.0.0.0/28 b", "10.0.0.16/28 a"]);
        for part in ["10.0.0.0/28", "10.0.0.16/28"] {
            ipam.release_part(&pool(), &part.parse().unwrap());
        }
        assert!(ipam.pools.is_empty(), "nothing is left of the pool");
    }

    #[test]
    fn largest_networks_have_blocks() {
        for (network, first) in
            [("::/0", "::100/120"), ("0.0.0.0/0", "0.0.1.0/24"), ("fd00::/64", "fd00::100/120")]
        {
            let mut ipam = Ipam::default();
            let net = ipam.take_block(&pool(), &source(network, &[]), 256, given("a"));
            assert_eq!(net.map(|net| net.to_string()).as_deref(), Some(first), "{network}");
        }
    }

    #[derive(Clone, Debug)]
    enum Step {
        Block(u32, u8),
        Single,
        Claim(u8, u8, u8),
        Part(u8, u8),
        Release(u8, u8),
        Join,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (0u32..5, 0u8..3).prop_map(|(bits, node)| Step::Block(bits, node)),
            2 => Just(Step::Single),
            1 => (any::<u8>(), 24u8..=32, 0u8..3).prop_map(|(at, length, node)| Step::Claim(at, length, node)),
            2 => (any::<u8>(), 24u8..=32).prop_map(|(at, length)| Step::Part(at, length)),
            3 => (any::<u8>(), 24u8..=32).prop_map(|(at, length)| Step::Release(at, length)),
            1 => Just(Step::Join),
        ]
    }

    fn net(at: u8, length: u8) -> IpNet {
        IpNet::new(IpAddr::from([10, 0, 0, at]), length).unwrap().trunc()
    }

    /// The addresses of blocks, each with its node. No address is in two blocks.
    fn held(ipam: &Ipam) -> BTreeMap<u128, Name> {
        let mut all = BTreeMap::new();
        for (net, block) in ipam.blocks(&pool()) {
            assert_eq!(*net, net.trunc(), "a block is aligned");
            for at in span(net).0..=span(net).1 {
                assert_eq!(all.insert(at, block.node.clone()), None, "{net} overlaps another block");
            }
        }
        all
    }

    proptest! {
        /// No address is in two blocks, or in a block and a single lease. A block of a size is found while one is free.
        /// Nothing else changes hands.
        #[test]
        fn blocks_and_single_leases_share_no_address(
            bits in 24u8..=30, excluded in proptest::collection::vec(any::<u8>(), 0..3),
            steps in proptest::collection::vec(step(), 1..60),
        ) {
            let network = format!("10.0.0.0/{bits}");
            let excluded: Vec<String> = excluded.iter().map(|at| format!("10.0.0.{at}")).collect();
            let source = source(&network, &excluded.iter().map(String::as_str).collect::<Vec<_>>());
            let mut ipam = Ipam::default();
            let mut singles: BTreeSet<u128> = BTreeSet::new();
            for (n, step) in steps.into_iter().enumerate() {
                let before = held(&ipam);
                let free: BTreeSet<u128> =
                    ipam.free(&pool(), &source).into_iter().flat_map(|(first, last)| first..=last).collect();
                match step {
                    Step::Block(bits, node) => {
                        let fits = |size: u128| {
                            let is_free = |at: &u128| at.is_multiple_of(size) && (*at..at + size).all(|at| free.contains(&at));
                            free.iter().any(is_free)
                        };
                        let largest = (0..=bits).rev().map(|bits| 1u128 << bits).find(|size| fits(*size));
                        let got = ipam.take_block(&pool(), &source, 1 << bits, given(&node.to_string()));
                        prop_assert_eq!(got.as_ref().map(size), largest);
                        let (first, last) = got.as_ref().map_or((1, 0), span);
                        prop_assert!((first..=last).all(|at| free.contains(&at)));
                    }
                    Step::Single => {
                        let got = ipam.take_any(&pool(), &source, &holder(n)).map(|got| number(got.addr()));
                        prop_assert_eq!(got.is_none(), free.is_empty());
                        prop_assert!(got.is_none_or(|got| free.contains(&got)));
                        singles.extend(got);
                    }
                    Step::Claim(at, length, node) => {
                        let parts = ipam.claim(&pool(), &net(at, length), &given(&node.to_string()));
                        let claimed: BTreeSet<u128> = parts.iter().flat_map(|part| span(part).0..=span(part).1).collect();
                        let (first, last) = span(&net(at, length));
                        let expected = (first..=last).filter(|at| !before.contains_key(at) && !singles.contains(at));
                        prop_assert_eq!(claimed, expected.collect::<BTreeSet<u128>>());
                    }
                    Step::Part(at, length) => {
                        ipam.set_stage(&pool(), &net(at, length), Stage::Leased(1));
                        prop_assert_eq!(held(&ipam), before);
                    }
                    Step::Release(at, length) => {
                        let part = net(at, length);
                        let is_part = ipam.block_of(&pool(), part.network()).is_some_and(|(net, _)| net.contains(&part));
                        ipam.release_part(&pool(), &part);
                        let gone = |at: &u128| is_part && (span(&part).0..=span(&part).1).contains(at);
                        let left = before.into_iter().filter(|(at, _)| !gone(at)).collect::<BTreeMap<_, _>>();
                        prop_assert_eq!(held(&ipam), left);
                    }
                    Step::Join => {
                        ipam.join_blocks(&pool());
                        prop_assert_eq!(held(&ipam), before);
                    }
                }
                prop_assert!(held(&ipam).keys().all(|at| !singles.contains(at)));
            }
        }
    }
}
