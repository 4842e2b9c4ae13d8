//! One pool: the files of a Subnet on this node.
//!
//! All is done under the lock of the pool. The ranges are written before the leases are read: the plugin gives no address
//! afterwards that [`AppliedAddresses::held`] lacks.

use std::collections::BTreeSet;
use std::fmt::Display;

use eno_ipam::{Error, Lease, Locked, Netns, PoolDir, Waiting};
use eno_schemas::{AppliedAddresses, NodeAddresses, PodAddress, Text, WaitingPod};
use ipnet::IpNet;

/// What a pool contains.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Contents {
    /// What the plugin may give.
    pub ranges: Option<NodeAddresses>,
    /// What of it is reported.
    pub applied: AppliedAddresses,
}

impl Contents {
    /// A pool of which only the command is known.
    pub fn unread(commanded: Option<&NodeAddresses>, problem: impl Display) -> Self {
        let unread = Some(problem.to_string().into());
        let applied = AppliedAddresses { unread, ..applied(commanded, &[], &[]) };
        Self { ranges: None, applied }
    }

    /// Number of addresses that the plugin may give and that no pod has.
    pub fn free(&self) -> u128 {
        let AppliedAddresses { held, used, .. } = &self.applied;
        let size = |range: &IpNet| 1_u128.checked_shl(u32::from(range.max_prefix_len() - range.prefix_len()));
        let all = held.iter().fold(0_u128, |all, range| all.saturating_add(size(range).unwrap_or(u128::MAX)));
        let excluded = self.ranges.as_ref().map_or(0, |ranges| ranges.excluded.len());
        all.saturating_sub((used.len() + excluded) as u128)
    }
}

/// Writes the ranges of a pool, removes what pods that are gone have left, and returns the rest, with the first failure
/// of a write. `is_gone`: the network namespace is gone.
pub(super) fn settle(
    pool: &PoolDir,
    commanded: Option<&NodeAddresses>,
    is_gone: impl Fn(&Netns) -> bool,
) -> (Contents, Result<(), Error>) {
    let mut locked = match pool.lock() {
        Ok(locked) => locked,
        Err(error) => return (Contents::unread(commanded, error), Ok(())),
    };
    let written = match locked.ranges() {
        Ok(ranges) if ranges.as_ref() == commanded => Ok(()),
        _ => locked.set_ranges(commanded),
    };
    let removed = collect(&mut locked, is_gone);
    let contents = read(&locked);
    let changed = written.and(removed);
    if changed.is_ok() && contents == Contents::default() {
        return (contents, locked.remove_if_empty());
    }
    (contents, changed)
}

/// What a pool contains, without changing it.
pub(super) fn look(pool: &PoolDir, commanded: Option<&NodeAddresses>) -> Contents {
    match pool.lock() {
        Ok(locked) => read(&locked),
        Err(error) => Contents::unread(commanded, error),
    }
}

/// Removes the leases and requests of pods whose network namespace is gone. What can't be read stays: the report says so.
fn collect(locked: &mut Locked<'_>, is_gone: impl Fn(&Netns) -> bool) -> Result<(), Error> {
    let (leases, waiting) = (locked.leases().unwrap_or_default(), locked.waiting().unwrap_or_default());
    let leases = leases.into_iter().map(|lease| (lease.netns, lease.container, lease.ifname));
    let waiting = waiting.into_iter().map(|pod| (pod.netns, pod.container, pod.ifname));
    for (netns, container, ifname) in leases.chain(waiting) {
        if is_gone(&netns) {
            locked.release(&container, &ifname)?;
        }
    }
    Ok(())
}

fn read(locked: &Locked<'_>) -> Contents {
    let mut unread = None;
    let ranges = or_note(locked.ranges(), &mut unread);
    let leases = or_note(locked.leases(), &mut unread);
    let waiting = or_note(locked.waiting(), &mut unread);
    let applied = AppliedAddresses { unread, ..applied(ranges.as_ref(), &leases, &waiting) };
    Contents { ranges, applied }
}

/// The value, or nothing and a note of the first error.
fn or_note<T: Default>(read: Result<T, Error>, unread: &mut Option<Text>) -> T {
    read.unwrap_or_else(|error| {
        unread.get_or_insert_with(|| error.to_string().into());
        T::default()
    })
}

/// The report of a pool with these ranges and files. Pure.
fn applied(ranges: Option<&NodeAddresses>, leases: &[Lease], waiting: &[Waiting]) -> AppliedAddresses {
    let (blocks, fixed) = ranges.map_or_else(Default::default, |ranges| (&*ranges.blocks, &*ranges.fixed));
    let single = fixed.iter().map(|own| own.address).chain(leases.iter().map(|lease| lease.address));
    let outside = single.filter(|address| !blocks.iter().any(|block| block.contains(address)));
    let held: BTreeSet<IpNet> = outside.map(IpNet::from).chain(blocks.iter().copied()).collect();
    let used: BTreeSet<PodAddress> = leases
        .iter()
        .map(|lease| PodAddress {
            address: lease.address,
            namespace: lease.namespace.clone(),
            pod: lease.pod.clone(),
        })
        .collect();
    let waiting: BTreeSet<WaitingPod> = waiting
        .iter()
        .map(|one| WaitingPod {
            namespace: one.namespace.clone(),
            pod: one.pod.clone(),
            address: one.address,
        })
        .collect();
    AppliedAddresses {
        held: held.into_iter().collect(),
        used: used.into_iter().collect(),
        waiting: waiting.into_iter().take(AppliedAddresses::MAX_WAITING).collect(),
        unread: None,
    }
}
