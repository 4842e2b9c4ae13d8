//! The addresses of Subnets with Ipam eno, as the last report of each node tells of them.

use std::collections::BTreeMap;
use std::net::IpAddr;

use eno_schemas::{Applied, AppliedAddresses, Outcome, PodAddress, Report};

use crate::node::Nodes;
use crate::store::Store;
use crate::work::Work;
use crate::{Key, Kind, Name, Target};

/// By the name of a Subnet: what a node has of it.
type Addresses = BTreeMap<String, AppliedAddresses>;

/// The key of a Subnet.
pub(super) fn subnet(name: &str) -> Key {
    Key::cluster(Kind::Subnet, &name.into())
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
fn addresses(report: &Report) -> Option<&Addresses> {
    let tells = matches!(report.outcome, Outcome::Applied | Outcome::Failed(_));
    match &report.applied {
        Some(Applied::Node { addresses, .. }) if tells => Some(addresses),
        _ => None,
    }
}

impl Nodes {
    /// Takes in what reports from before the start tell of addresses, so that no decision is made without them.
    pub fn begin_addresses(&mut self, early_reports: &[(Target, Report)]) {
        for (target, report) in early_reports {
            let (Target::Node(name), Some(addresses)) = (target, addresses(report)) else { continue };
            if let Some(node) = self.targets.get_mut(name) {
                node.observed_addresses.clone_from(addresses);
            }
        }
    }

    /// What each node has of a Subnet, also while its agent is not alive.
    pub fn addresses_of<'a>(
        &'a self,
        subnet: &'a Name,
    ) -> impl Iterator<Item = (&'a Name, &'a AppliedAddresses)> {
        self.targets.iter().filter_map(|(name, node)| Some((name, node.observed_addresses.get(&**subnet)?)))
    }

    /// The pod that has an address of a Subnet since it started.
    pub fn address_holder(&self, subnet: &Name, address: IpAddr) -> Option<&PodAddress> {
        let own = self.targets.values().filter_map(|node| node.observed_addresses.get(&**subnet));
        own.flat_map(|own| &own.used).find(|used| used.address == address)
    }
}
