//! The addresses of one pool: who has which, and in which order the others were given back.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use eno_schemas::Pool;

use super::Holder;

/// Addresses that are taken, or were.
#[derive(Debug, Default)]
pub(super) struct Addresses {
    taken: BTreeMap<IpAddr, Taken>,
    /// By the count at which each was given back.
    oldest: BTreeMap<u64, IpAddr>,
    /// The same, the other way round.
    counts: BTreeMap<IpAddr, u64>,
    /// All of `taken` and `counts`.
    used: Runs,
}

#[derive(Debug)]
struct Taken {
    holder: Holder,
    /// The count that it had among those that were given back.
    count: Option<u64>,
}

impl Addresses {
    pub fn is_empty(&self) -> bool {
        self.used.0.is_empty()
    }

    pub fn holder(&self, address: IpAddr) -> Option<&Holder> {
        Some(&self.taken.get(&address)?.holder)
    }

    pub fn taken(&self, range: &Pool) -> impl Iterator<Item = IpAddr> {
        self.taken.range(range.start..=range.end).map(|(address, _)| *address)
    }

    /// Takes one that is free. The count at which it was given back is returned.
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

    /// False when nobody had it.
    pub fn release(&mut self, address: IpAddr, count: u64) -> bool {
        let was_taken = self.taken.remove(&address).is_some();
        if was_taken {
            self.oldest.insert(count, address);
            self.counts.insert(address, count);
        }
        was_taken
    }

    /// Makes it free as it was when it was taken. The count at which it was given back then is returned.
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

    /// What was given back at `count` is as if nobody had had it.
    pub fn forget(&mut self, count: u64) {
        if let Some(address) = self.oldest.remove(&count) {
            self.counts.remove(&address);
            self.used.remove(address);
        }
    }

    /// When one was given back, if it was.
    pub fn released_at(&self, address: IpAddr) -> Option<u64> {
        self.counts.get(&address).copied()
    }

    /// Those that are free and were taken before, in the order in which they were given back.
    pub fn released(&self) -> impl Iterator<Item = IpAddr> {
        self.oldest.values().copied()
    }

    /// The last of the addresses from `address` on that are all taken or were; `None`: that one was never taken.
    pub fn end_of_used(&self, address: IpAddr) -> Option<IpAddr> {
        self.used.end(address)
    }
}

/// Addresses as runs without gaps: the last of each by its first.
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

    /// Adds one that is in no run.
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
    fn runs_end_with_their_family() {
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
        fn runs_are_what_is_in_them(steps in proptest::collection::vec((any::<bool>(), 0u32..40), 1..200)) {
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
