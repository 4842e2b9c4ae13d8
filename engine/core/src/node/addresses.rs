//! What agents report on the addresses of their pods, within bounds.

use std::collections::BTreeMap;
use std::net::IpAddr;

use eno_schemas::{Applied, AppliedAddresses, Outcome, PodAddress, Report, Text, WaitingPod};
use ipnet::IpNet;

use crate::node::Nodes;
use crate::store::Store;
use crate::work::Work;
use crate::{Key, Kind, Name, Target};

/// By Subnet: what a node has of it.
type Addresses = BTreeMap<Name, AppliedAddresses>;

/// Maximum of Subnets of a node.
const MAX_SUBNETS: usize = 1024;
/// Maximum of networks that a node holds of a Subnet, and of pods that have an address of it.
const MAX_ENTRIES: usize = 4096;
/// Maximum bytes of the name of an object.
const MAX_NAME_LEN: usize = 253;

/// The addresses of a report: ascending, with those that pods have among the held ones. `None`: it has more than are
/// read. A part of them would make others seem free.
pub(crate) fn bounded(reported: BTreeMap<String, AppliedAddresses>) -> Option<Addresses> {
    if reported.len() > MAX_SUBNETS {
        return None;
    }
    let bounded = reported.into_iter().map(|(subnet, own)| {
        let fits = subnet.len() <= MAX_NAME_LEN && own.held.len().max(own.used.len()) <= MAX_ENTRIES;
        fits.then(|| (Name::from(subnet), tidied(own)))
    });
    bounded.collect()
}

fn tidied(AppliedAddresses { held, mut used, mut waiting, unread }: AppliedAddresses) -> AppliedAddresses {
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
    AppliedAddresses { held: IpNet::aggregate(&held), used, waiting, unread }
}

/// The key of a Subnet.
pub(super) fn subnet(name: &Name) -> Key {
    Key::cluster(Kind::Subnet, name)
}

/// A node reports: Subnets of which it has something else now have to be looked at.
pub(super) fn reevaluate_changed(store: &Store, before: &Addresses, report: &Report, work: &mut Work) {
    let Some(now) = addresses(report) else { return };
    for name in before.keys().chain(now.keys()) {
        if before.get(name) != now.get(name) {
            let key = subnet(name);
            // A change of its Ipam may have waited for pods to end.
            if store.get(&key).is_some_and(|record| record.problem.is_some()) {
                work.validate.insert(key.clone());
            }
            work.evaluate.insert(key);
        }
    }
}

/// The addresses of a report that tells what a node has.
fn addresses(report: &Report) -> Option<Addresses> {
    let tells = matches!(report.outcome, Outcome::Applied | Outcome::Failed(_));
    match &report.applied {
        Some(Applied::Node { addresses, .. }) if tells => bounded(addresses.clone()),
        _ => None,
    }
}

impl Nodes {
    /// Takes in what reports from before the start tell of addresses, so that no decision is made without them.
    pub fn begin_addresses(&mut self, early_reports: &[(Target, Report)]) {
        for (target, report) in early_reports {
            let (Target::Node(name), Some(addresses)) = (target, addresses(report)) else { continue };
            if let Some(node) = self.targets.get_mut(name) {
                node.observed_addresses = addresses;
            }
        }
    }

    /// The pod that has an address of a Subnet since it started.
    pub fn address_holder(&self, subnet: &Name, address: IpAddr) -> Option<&PodAddress> {
        let own = self.targets.values().filter_map(|node| node.observed_addresses.get(subnet));
        own.flat_map(|own| &own.used).find(|used| used.address == address)
    }
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
            ..AppliedAddresses::default()
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
