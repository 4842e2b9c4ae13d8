//! The leases of nodes.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use ipnet::IpNet;

use super::{Group, Groups, Leases, Parts};
use crate::kinds::{Family, Spec};
use crate::pods::ipam::{Holder, PoolKey};
use crate::pods::template::AddressNeed;
use crate::pods::{GONE_AFTER, Lease, Pods};
use crate::status::bgp::Worker;
use crate::store::Store;
use crate::{Key, Name};

/// The holder of an address of a node.
pub(super) fn holder(key: &Key, node: &Name, address: IpNet) -> Holder {
    (key.clone(), node.clone(), Family::of(address.addr()).as_str().into())
}

/// The Subnet of an address, if the realised service of a group has it.
fn pool_of(store: &Store, key: &Key, address: IpNet) -> PoolKey {
    let record = store.get(key);
    let spec = record.and_then(|record| record.effective.as_deref().or(record.spec.as_deref().ok()));
    let service = spec.and_then(Spec::bgp_session_group).and_then(|spec| store.service(&spec.service));
    let mut subnets = service.into_iter().flat_map(|service| &service.subnets);
    let has_it =
        |name: &&Name| store.subnet(name).is_some_and(|subnet| subnet.network.contains(&address.addr()));
    subnets.find(has_it).map_or(PoolKey::Unknown, |name| PoolKey::Subnet(name.clone()))
}

impl Groups {
    /// Takes the leases of a status.
    pub(super) fn restore(&mut self, parts: &mut Parts<'_, '_>, key: &Key, workers: &[Worker]) {
        let group = self.by_key.entry(key.clone()).or_default();
        for worker in workers {
            let leases = group.workers.entry(worker.node.clone()).or_default();
            for address in &worker.addresses {
                let own = holder(key, &worker.node, *address);
                let pool = pool_of(parts.cx.store, key, *address);
                let pool = if parts.pods.take_given(&pool, *address, &own) { pool } else { PoolKey::Unknown };
                let lease = Lease { pool, address: *address };
                match leases.own.entry(Family::of(address.addr())) {
                    Entry::Vacant(entry) => drop(entry.insert(lease)),
                    Entry::Occupied(_) => leases.retiring.push(lease),
                }
            }
        }
        self.queue.insert(key.clone());
    }
}

impl Group {
    /// Gives a node an address of each need: those that it has, and new ones where it has none. All or nothing.
    pub(super) fn lease(
        &mut self,
        parts: &mut Parts<'_, '_>,
        key: &Key,
        node: &Name,
        needs: &BTreeMap<Family, AddressNeed>,
    ) -> Result<(), String> {
        let worker = self.workers.get(node);
        let mut own: BTreeMap<Family, Lease> = BTreeMap::new();
        let mut taken: Vec<Lease> = Vec::new();
        for (family, need) in needs {
            let fits = |lease: &&Lease| lease.pool == need.pool && need.source.keeps(lease.address);
            let mut former =
                worker.into_iter().flat_map(|worker| worker.own.values().chain(&worker.retiring));
            let kept = former.find(fits).cloned();
            let lease = if let Some(lease) = kept {
                lease
            } else {
                let holder = (key.clone(), node.clone(), family.as_str().into());
                let Some(lease) = parts.pods.take_any(need, &holder) else {
                    parts.pods.undo(taken);
                    return Err(need.exhausted_message.clone());
                };
                taken.push(lease.clone());
                lease
            };
            own.insert(*family, lease);
        }
        for lease in &taken {
            Pods::leased(parts.cx.store, lease, parts.cx.work);
        }
        let leases = self.workers.entry(node.clone()).or_default();
        leases.gone = None;
        if leases.own == own {
            return Ok(());
        }
        let before = std::mem::replace(&mut leases.own, own);
        leases.retire(before.into_values());
        self.revision += 1;
        leases.revision = self.revision;
        Ok(())
    }

    /// Takes the addresses of a node that takes no part any more. They are released when it has confirmed.
    pub(super) fn withdraw(&mut self, node: &Name) {
        let Some(leases) = self.workers.get_mut(node).filter(|leases| !leases.own.is_empty()) else { return };
        let before = std::mem::take(&mut leases.own);
        leases.retire(before.into_values());
        self.revision += 1;
        leases.revision = self.revision;
    }

    /// Releases what nodes have confirmed to be gone. `is_wanted`: the group is not given up.
    pub(super) fn settle(&mut self, parts: &mut Parts<'_, '_>, key: &Key, is_wanted: bool) {
        let now = parts.cx.now;
        let mut released = Vec::new();
        for (name, leases) in self.workers.iter_mut().filter(|(_, leases)| !leases.retiring.is_empty()) {
            let is_gone = match (parts.cx.nodes.node(name), leases.retired_at) {
                (Some(node), Some(version)) => {
                    leases.gone = None;
                    // What the agent refuses, or can't remove, stays as it was.
                    let is_there = node.observed_network(&self.interface).is_some();
                    let is_as_wanted =
                        if leases.own.is_empty() { !is_there && !node.has_leftovers() } else { is_there };
                    node.caught_up(version) && is_as_wanted
                }
                (Some(_), None) => false,
                // It may come back with the interface as it was.
                (None, _) => {
                    let until = *leases.gone.get_or_insert(now) + GONE_AFTER;
                    if now < until && is_wanted {
                        self.wake = Some(self.wake.map_or(until, |wake| wake.min(until)));
                    }
                    now >= until || !is_wanted
                }
            };
            if is_gone {
                released.append(&mut leases.retiring);
                leases.retired_at = None;
                self.revision += 1;
            }
        }
        self.workers.retain(|_, leases| !leases.own.is_empty() || !leases.retiring.is_empty());
        parts.pods.release(parts.cx.store, key, released, parts.cx.work);
    }
}

impl Leases {
    /// Takes former addresses. They are few: a node gets others only when its Subnets change.
    fn retire(&mut self, before: impl Iterator<Item = Lease>) {
        let own = &self.own;
        let is_kept = |lease: &Lease| own.values().any(|kept| kept == lease);
        self.retiring.retain(|lease| !is_kept(lease));
        self.retiring.extend(before.filter(|lease| !is_kept(lease)));
        self.retired_at = None;
    }
}
