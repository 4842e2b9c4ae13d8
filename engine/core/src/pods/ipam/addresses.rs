//! The addresses of one pool: their holders, and the order in which others were released.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::Holder;
use super::blocks::Blocks;
use crate::Kind;

/// The addresses that are or were taken.
#[derive(Debug, Default)]
pub(crate) struct Addresses {
    /// The taken addresses.
    taken: BTreeMap<IpAddr, Taken>,
    /// Released addresses by their count.
    oldest: BTreeMap<u64, IpAddr>,
    /// The inverse of `oldest`.
    counts: BTreeMap<IpAddr, u64>,
    /// The addresses of `taken` and `counts`, as runs.
    used: Runs,
    /// The blocks of nodes.
    pub blocks: Blocks,
}

#[derive(Debug)]
struct Taken {
    holder: Holder,
    /// Its count in `oldest` before it was taken again.
    count: Option<u64>,
}

impl Addresses {
    pub fn is_empty(&self) -> bool {
        self.used.0.is_empty() && self.blocks.is_empty()
    }

    /// The number of those that objects give to running pods. A Subnet itself gives addresses to pods that start.
    pub fn count(&self) -> usize {
        self.taken.values().filter(|taken| taken.holder.0.kind != Kind::Subnet).count()
    }

    pub fn holder(&self, address: IpAddr) -> Option<&Holder> {
        Some(&self.taken.get(&address)?.holder)
    }

    /// The addresses of a range that are leased singly.
    pub fn taken_between(&self, first: IpAddr, last: IpAddr) -> impl Iterator<Item = IpAddr> {
        self.taken.range(first..=last).map(|(address, _)| *address)
    }

    /// Takes a free address. Returns the count of its former release.
    pub fn take(&mut self, address: IpAddr, holder: &Holder) -> Option<u64> {
        let count = self.counts.remove(&address);
        match count {
            Some(count) => {
                self.oldest.remove(&count);
            }
            None => self.used.insert(address),
        }
        self.taken.insert(address, Taken { holder: holder.clone(), count });
        count
    }

    /// Releases an address. Returns false when it was not taken.
    pub fn release(&mut self, address: IpAddr, count: u64) -> bool {
        let was_taken = self.taken.remove(&address).is_some();
        if was_taken {
            self.oldest.insert(count, address);
            self.counts.insert(address, count);
        }
        was_taken
    }

    /// Undoes a take. Returns the count of the former release, which holds again.
    pub fn undo(&mut self, address: IpAddr) -> Option<u64> {
        let count = self.taken.remove(&address)?.count;
        if let Some(count) = count {
            self.oldest.insert(count, address);
            self.counts.insert(address, count);
        } else {
            self.used.remove(address);
        }
        count
    }

    /// Forgets the release with this count, as if the address had never been taken.
    pub fn forget(&mut self, count: u64) {
        if let Some(address) = self.oldest.remove(&count) {
            self.counts.remove(&address);
            self.used.remove(address);
        }
    }

    /// The count of an address's release.
    pub fn released_at(&self, address: IpAddr) -> Option<u64> {
        self.counts.get(&address).copied()
    }

    /// Released addresses, oldest first.
    pub fn released(&self) -> impl Iterator<Item = IpAddr> {
        self.oldest.values().copied()
    }

    /// The end of the run of used addresses, or of the block, that contains `address`; `None`: it was never taken.
    pub fn end_of_used(&self, address: IpAddr) -> Option<IpAddr> {
        let block = self.blocks.containing(address).map(|(net, _)| net.broadcast());
        block.or_else(|| self.used.end(address))
    }
}

/// Runs of adjacent addresses: first to last.
#[derive(Debug, Default)]
struct Runs(BTreeMap<IpAddr, IpAddr>);

impl Runs {
    fn run(&self, address: IpAddr) -> Option<(IpAddr, IpAddr)> {
        let (first, last) = self.0.range(..=address).next_back()?;
        (*last >= address).then_some((*first, *last))
    }

    fn end(&self, address: IpAddr) -> Option<IpAddr> {
        self.run(address).map(|(_, last)| last)
    }

    /// Adds an address that is in no run.
    fn insert(&mut self, address: IpAddr) {
        let first = before(address).and_then(|before| self.run(before)).map_or(address, |(first, _)| first);
        let last = after(address).and_then(|after| self.0.remove(&after)).unwrap_or(address);
        self.0.insert(first, last);
    }

    fn remove(&mut self, address: IpAddr) {
        let Some((first, last)) = self.run(address) else { return };
        self.0.remove(&first);
        if let Some(before) = before(address).filter(|_| first < address) {
            self.0.insert(first, before);
        }
        if let Some(after) = after(address).filter(|_| address < last) {
            self.0.insert(after, last);
        }
    }
}

fn after(address: IpAddr) -> Option<IpAddr> {
    Some(match address {
        IpAddr::V4(ip) => Ipv4Addr::from_bits(ip.to_bits().checked_add(1)?).into(),
        IpAddr::V6(ip) => Ipv6Addr::from_bits(ip.to_bits().checked_add(1)?).into(),
    })
}

fn before(address: IpAddr) -> Option<IpAddr> {
    Some(match address {
        IpAddr::V4(ip) => Ipv4Addr::from_bits(ip.to_bits().checked_sub(1)?).into(),
        IpAddr::V6(ip) => Ipv6Addr::from_bits(ip.to_bits().checked_sub(1)?).into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn runs_do_not_span_address_families() {
        let mut runs = Runs::default();
        let ips = ["255.255.255.255", "::", "0.0.0.0", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"];
        let ips = ips.map(|ip| ip.parse::<IpAddr>().unwrap());
        for ip in ips {
            runs.insert(ip);
        }
        assert_eq!(runs.0.len(), 4);
        for ip in ips {
            assert_eq!(runs.end(ip), Some(ip));
            runs.remove(ip);
        }
        assert!(runs.0.is_empty());
    }

    proptest! {
        #[test]
        fn runs_equal_a_set_of_addresses(steps in proptest::collection::vec((any::<bool>(), 0u32..40), 1..200)) {
            let (mut runs, mut model) = (Runs::default(), BTreeSet::new());
            for (add, at) in steps {
                let ip = IpAddr::from(Ipv4Addr::from_bits(at));
                if add && model.insert(at) {
                    runs.insert(ip);
                } else if !add {
                    model.remove(&at);
                    runs.remove(ip);
                }
                for at in 0..40 {
                    let end = (at..40).take_while(|at| model.contains(at)).last();
                    let end = end.map(|end| IpAddr::from(Ipv4Addr::from_bits(end)));
                    prop_assert_eq!(runs.end(IpAddr::from(Ipv4Addr::from_bits(at))), end);
                }
                let gaps = model.iter().filter(|at| !model.contains(&(**at + 1))).count();
                prop_assert_eq!(runs.0.len(), gaps);
            }
        }
    }
}
