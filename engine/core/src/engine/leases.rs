//! What pods have of what only one can have: addresses, names and hardware addresses.

use std::collections::{BTreeMap, BTreeSet};

use eno_schemas::PrimaryLink;

use crate::podnet::ipam::{Holder, PoolKey};
use crate::podnet::template::{self, Template};
use crate::podnet::{self, Claim, Lease};
use crate::spec::Spec;
use crate::{Key, Kind, Name};

use super::Engine;

/// Leases, each with its link's name.
pub(super) fn named(leases: BTreeMap<Name, Vec<Lease>>) -> impl Iterator<Item = (Name, Lease)> {
    leases.into_iter().flat_map(|(link, own)| own.into_iter().map(move |lease| (link.clone(), lease)))
}

impl Engine {
    /// Takes over what the status of an object says of leases, before anyone is given anything new.
    pub(super) fn seed_pods(&mut self, key: &Key) {
        let Some(record) = self.records.get(key) else { return };
        let entries = record.status.pods.clone();
        for entry in entries {
            let mut leases: BTreeMap<Name, Vec<Lease>> = BTreeMap::new();
            for (link, addresses) in &entry.leases {
                for address in addresses {
                    let Some(pool) = self.pool_of(key, link, address.addr()) else { continue };
                    let holder: Holder = (key.clone(), entry.uid.clone(), link.clone());
                    if self.podnet.ipam.take(&pool, address.addr(), &holder) {
                        leases.entry(link.clone()).or_default().push(Lease { pool, address: *address });
                    }
                }
            }
            let had_any = !leases.is_empty() || !entry.links.is_empty();
            let giver = self.podnet.givers.entry(key.clone()).or_default();
            let own = giver.entry(&entry.uid, &entry.name);
            if let Some(state) = self.podnet.pods.get_mut(&entry.uid) {
                state.entries.insert(key.clone());
            }
            own.leases = leases;
            own.ifname = entry.links.iter().find(|link| link.link == key.name).map(|link| link.name.clone());
            own.was_given = had_any;
            let work = (key.clone(), entry.uid.clone());
            if had_any {
                self.podwork_first.insert(work)
            } else {
                self.podwork.insert(work)
            };
        }
    }

    /// Where the address of a link is unique.
    fn pool_of(&self, key: &Key, link: &Name, address: std::net::IpAddr) -> Option<PoolKey> {
        let record = self.records.get(key)?;
        let spec = record.effective.as_deref().or(record.spec.as_deref().ok())?;
        if let Some(spec) = spec.pod_links() {
            let link = spec.links.iter().find(|own| own.name == *link)?;
            return Some(match template::pod_bridge(&link.kind) {
                Some(bridge) => PoolKey::Bridge(key.namespace.clone(), bridge.to_owned()),
                None => PoolKey::Link(key.clone(), link.name.clone()),
            });
        }
        let services = &spec.attachment()?.services;
        let services = services
            .iter()
            .filter_map(|name| self.effective(&Key::cluster(Kind::L2Service, name), Spec::service));
        services.flat_map(|service| &service.subnets).find_map(|name| {
            let subnet = self.effective(&Key::cluster(Kind::Subnet, name), Spec::subnet)?;
            subnet.network.contains(&address).then(|| PoolKey::Subnet(name.clone()))
        })
    }

    /// What only one can have: names in the pod, and hardware addresses beside other pods.
    pub(super) fn claims_for(
        &self,
        key: &Key,
        uid: &Name,
        templates: &[Template],
        primary: Option<&PrimaryLink>,
    ) -> Result<BTreeSet<Claim>, String> {
        let Some(state) = self.podnet.pods.get(uid) else { return Ok(BTreeSet::new()) };
        let node = state.pod.node.clone().unwrap_or_else(|| "".into());
        let mut claims = BTreeSet::new();
        for template in templates {
            let link = &template.link;
            let name = podnet::name_claim(uid, &link.name);
            self.check_claim(key, uid, &name, |(other, _, _)| {
                let Claim::Name(_, name) = &name else { unreachable!() };
                format!("the name {name} is taken by an interface of {} {}", other.kind, other.name)
            })?;
            claims.insert(name);
            if let (Some(mac), Some(master)) = (&link.mac, template::shared_master(&link.kind)) {
                let claim = Claim::Mac(node.clone(), master.to_owned(), mac.clone());
                self.check_claim(key, uid, &claim, |(_, _, pod)| {
                    format!(
                        "link {}: the hardware address {mac} is taken by pod {pod} on {master}",
                        template.name
                    )
                })?;
                claims.insert(claim);
            }
        }
        if let Some(primary) = primary {
            let claim = Claim::Name(uid.clone(), primary.name.clone());
            self.check_claim(key, uid, &claim, |(other, _, _)| {
                format!("its interface {} is changed by {} {} already", primary.name, other.kind, other.name)
            })?;
            claims.insert(claim);
        }
        Ok(claims)
    }

    fn check_claim(
        &self,
        key: &Key,
        uid: &Name,
        claim: &Claim,
        words: impl FnOnce(&podnet::Claimant) -> String,
    ) -> Result<(), String> {
        match self.podnet.claims.get(claim) {
            Some(holder) if (&holder.0, &holder.1) != (key, uid) => Err(words(holder)),
            _ => Ok(()),
        }
    }

    pub(super) fn set_claims(&mut self, key: &Key, uid: &Name, claims: BTreeSet<Claim>) {
        let Some(entry) = self.podnet.givers.get_mut(key).and_then(|giver| giver.entries.get_mut(uid)) else {
            return;
        };
        if !claims.is_subset(&entry.claims) {
            // Others that the pod asks for may have to say now that the name is taken.
            let same = self.podnet.blocked.iter().filter(|(other, pod)| pod == uid && other != key);
            self.podwork.extend(same.cloned());
        }
        for claim in &claims {
            self.podnet.claims.insert(claim.clone(), (key.clone(), uid.clone(), entry.name.clone()));
        }
        let before = std::mem::replace(&mut entry.claims, claims);
        let given_up: Vec<Claim> = before.difference(&entry.claims).cloned().collect();
        for claim in &given_up {
            self.podnet.claims.remove(claim);
        }
        if !given_up.is_empty() {
            self.unblock();
        }
    }

    /// Those who can't be given something that another had are looked at again.
    pub(super) fn unblock(&mut self) {
        self.podwork.append(&mut self.podnet.blocked);
    }

    /// The addresses of a pod's links: those that it has, and new ones where it has none; all or nothing.
    pub(super) fn lease(
        &mut self,
        key: &Key,
        uid: &Name,
        templates: &[Template],
    ) -> Result<BTreeMap<Name, Vec<Lease>>, String> {
        let entry = self.podnet.givers.get(key).and_then(|giver| giver.entries.get(uid));
        let had = entry.map(|entry| entry.leases.clone()).unwrap_or_default();
        let mut leases: BTreeMap<Name, Vec<Lease>> = BTreeMap::new();
        let mut taken: Vec<Lease> = Vec::new();
        for template in templates {
            let holder: Holder = (key.clone(), uid.clone(), template.name.clone());
            let kept = had.get(&template.name);
            for need in &template.needs {
                let fits = |lease: &&Lease| lease.pool == need.pool && need.source.keeps(lease.address);
                let lease = if let Some(lease) = kept.into_iter().flatten().find(fits) {
                    lease.clone()
                } else if let Some(address) = self.podnet.ipam.take_any(&need.pool, &need.source, &holder) {
                    let lease = Lease { pool: need.pool.clone(), address };
                    taken.push(lease.clone());
                    lease
                } else {
                    for lease in taken {
                        self.podnet.ipam.release(&lease.pool, lease.address.addr());
                    }
                    return Err(need.full.clone());
                };
                leases.entry(template.name.clone()).or_default().push(lease);
            }
        }
        Ok(leases)
    }

    /// Gives back what a node has confirmed to be gone.
    pub(super) fn settle_entry(&mut self, key: &Key, uid: &Name) {
        let Some(entry) = self.podnet.givers.get(key).and_then(|giver| giver.entries.get(uid)) else {
            return;
        };
        if let Some(leaving) = &entry.leaving {
            let gone = self.hosts.node(&leaving.node).is_none_or(|node| {
                node.caught_up(leaving.version) && !node.has_links_of(uid, &template::link_id(key, ""))
            });
            if gone {
                self.drop_entry(key, uid);
            }
            return;
        }
        if entry.retiring.is_empty() {
            return;
        }
        let node = self.podnet.pods.get(uid).and_then(|state| state.pod.node.as_ref());
        let Some(version) = entry.retired_at else { return };
        if node.and_then(|node| self.hosts.node(node)).is_none_or(|node| node.caught_up(version)) {
            let retired = self.podnet.givers.get_mut(key).and_then(|giver| giver.entries.get_mut(uid));
            let retired = retired.map(|entry| std::mem::take(&mut entry.retiring)).unwrap_or_default();
            self.release(key, retired.into_iter().map(|(_, lease)| lease).collect());
            if self.records.contains_key(key) {
                self.judge.insert(key.clone());
            }
        }
    }

    pub(super) fn release(&mut self, key: &Key, leases: Vec<Lease>) {
        if leases.is_empty() {
            return;
        }
        for lease in leases {
            let own = |holder: &Holder| holder.0 == *key;
            if self.podnet.ipam.holder(&lease.pool, lease.address.addr()).is_some_and(own) {
                self.podnet.ipam.release(&lease.pool, lease.address.addr());
            }
        }
        self.unblock();
    }

    /// An object of that name is there again: addresses that are still taken for it are to be written down anew.
    pub(super) fn renew_giver(&mut self, key: &Key) {
        let Some(giver) = self.podnet.givers.get_mut(key) else { return };
        giver.awaiting.clear();
        for entry in giver.entries.values_mut() {
            giver.leased += 1;
            entry.leased_at = giver.leased;
        }
    }
}
