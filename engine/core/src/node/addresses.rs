//! What agents report on the addresses of their pods, within bounds.

use std::collections::BTreeMap;

use eno_schemas::{AppliedAddresses, PodAddress, Text, WaitingPod};
use ipnet::IpNet;

use crate::Name;

/// Maximum of Subnets of a node.
const MAX_SUBNETS: usize = 1024;
/// Maximum of networks that a node holds of a Subnet, and of pods that have an address of it.
const MAX_ENTRIES: usize = 4096;
/// Maximum bytes of the name of an object.
const MAX_NAME_LEN: usize = 253;

/// The addresses of a report: ascending, with those that pods have among the held ones. `None`: it has more than are
/// read. A part of them would make others seem free.
pub(crate) fn bounded(
    reported: BTreeMap<String, AppliedAddresses>,
) -> Option<BTreeMap<Name, AppliedAddresses>> {
    if reported.len() > MAX_SUBNETS {
        return None;
    }
    let bounded = reported.into_iter().map(|(subnet, own)| {
        let fits = subnet.len() <= MAX_NAME_LEN && own.held.len().max(own.used.len()) <= MAX_ENTRIES;
        fits.then(|| (Name::from(subnet), tidied(own)))
    });
    bounded.collect()
}

fn tidied(AppliedAddresses { held, mut used, mut waiting }: AppliedAddresses) -> AppliedAddresses {
    let text = |name: String| String::from(Text::at_most(&name, MAX_NAME_LEN));
    used = used
        .into_iter()
        .map(|one| PodAddress { address: one.address, namespace: text(one.namespace), pod: text(one.pod) })
        .collect();
    used.sort_unstable();
    used.dedup_by_key(|one| one.address);
    waiting.truncate(AppliedAddresses::MAX_WAITING);
    let waiting = waiting
        .into_iter()
        .map(|one| WaitingPod { namespace: text(one.namespace), pod: text(one.pod), ..one })
        .collect();
    let held: Vec<IpNet> = held.into_iter().chain(used.iter().map(|one| IpNet::from(one.address))).collect();
    AppliedAddresses { held: IpNet::aggregate(&held), used, waiting }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used(address: &str, pod: &str) -> PodAddress {
        PodAddress { address: address.parse().unwrap(), namespace: "ns".into(), pod: pod.into() }
    }

    #[test]
    fn reported_addresses_are_ascending_and_clean() {
        let own = AppliedAddresses {
            held: ["10.0.0.9/29", "10.0.0.0/29"].map(|net| net.parse().unwrap()).to_vec(),
            used: vec![used("10.0.0.40", "b\u{7}"), used("10.0.0.1", "a"), used("10.0.0.1", "c")],
            waiting: Vec::new(),
        };
        let read = bounded([("s".to_owned(), own)].into()).unwrap();
        let read = &read["s"];
        let held: Vec<String> = read.held.iter().map(ToString::to_string).collect();
        assert_eq!(held, ["10.0.0.0/28", "10.0.0.40/32"]);
        assert_eq!(
            read.used.iter().map(|one| one.address.to_string()).collect::<Vec<_>>(),
            ["10.0.0.1", "10.0.0.40"]
        );
        assert!(!read.used[1].pod.contains('\u{7}'));
    }

    #[test]
    fn report_with_more_addresses_than_are_read_tells_nothing() {
        let nets =
            |count: u32| (0..count).map(|at| IpNet::from(std::net::IpAddr::from((at * 2).to_be_bytes())));
        for (count, is_read) in [(4096, true), (4097, false)] {
            let own = AppliedAddresses { held: nets(count).collect(), ..AppliedAddresses::default() };
            assert_eq!(bounded([("s".to_owned(), own)].into()).is_some(), is_read, "{count}");
        }
        let many = (0..1025).map(|n| (n.to_string(), AppliedAddresses::default()));
        assert!(bounded(many.collect()).is_none());
    }
}
